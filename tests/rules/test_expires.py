"""Rules that expire: from an event time on they are no longer in force."""

from __future__ import annotations

import logging
import pickle
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from asterism.columns.time import BEFORE_TIME
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor, from_text
from asterism.rules.matching.result_rows import ERRORS, MATCHES, TIMED_OUT
from asterism.rules.sets.sets import ProcessorSet, updated
from asterism.rules.sets.used_versions import UsedVersions
from tests.rules.driver import Driver, Event, at, chain, cuts, processor
from tests.rules.test_coordinator import coordinator

SQL = "PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
ITEM: dict[str, Any] = {"id": "a", "version": 1, "sql": SQL}


def e(second: float, kind: str, user: str = "ann") -> Event:
    return second, user, 1, kind, 0.0


def rule(expires: float | None, version: int = 1, *, sql: bool = False, **more: Any) -> PatternProcessor:
    end = None if expires is None else at(expires)
    if sql:
        return PatternProcessor("ab", version, sql=SQL, expires=end, **more)
    return processor("ab", version, chain("a", "b"), expires=end, **more)


def times_of(driver: Driver) -> list[float]:
    return sorted(row["match_time"].timestamp() for row in driver.rows[MATCHES])


@pytest.mark.parametrize("sql", [False, True])
@pytest.mark.parametrize("key_groups", [1, 3])
def test_the_time_itself_does_not_belong_to_the_rule(sql: bool, key_groups: int) -> None:
    """Whatever the micro-batches."""
    events = [e(1, "a"), e(9, "b"), e(8, "a", "bob"), e(10, "b", "bob"), e(11, "a"), e(12, "b")]
    for seed in range(4):
        rng = random.Random(seed)
        driver = Driver(key_groups=key_groups).batch(sets=[rule(10, sql=sql)])
        for part in cuts(events, rng) if seed else [events]:
            driver.batch(part, watermark=None if rng.random() < 0.5 else min(part[-1][0] or 0, 7))
            driver.operator = pickle.loads(pickle.dumps(driver.operator))
        assert times_of(driver.end()) == [9]


def test_partial_matches_end_as_those_of_a_removed_rule() -> None:
    """They do not time out."""
    one = processor("ab", 1, chain("a", "b", within=5), timed_out=True, expires=at(10))
    driver = Driver().batch([e(1, "a"), e(8, "a")], sets=[one]).batch(watermark=20)
    assert [row["timeout_time"].timestamp() for row in driver.rows[TIMED_OUT]] == [6]
    driver.batch(watermark=21)
    assert driver.stores[0].read_page(0) is None


@pytest.mark.parametrize("sql", [False, True])
def test_it_can_be_set_changed_and_removed_without_a_new_version(sql: bool) -> None:
    driver = Driver().batch([e(1, "a")], sets=[rule(None, sql=sql)], watermark=1)
    driver.batch(sets=[rule(5, sql=sql)], watermark=2).batch(sets=[rule(20, sql=sql)], watermark=4)
    driver.batch([e(15, "b"), e(16, "a")], watermark=16).batch(sets=[rule(None, sql=sql)], watermark=17)
    assert times_of(driver.batch([e(30, "b")]).end()) == [15, 30]


def test_a_rule_that_has_expired_begins_anew_if_it_is_extended() -> None:
    driver = Driver().batch([e(1, "a")], sets=[rule(5)], watermark=6)
    driver.batch([e(7, "b"), e(8, "a")], sets=[rule(20)], watermark=8)
    assert times_of(driver.batch([e(9, "b")]).end()) == [9]


def test_a_rule_can_be_expired_at_once() -> None:
    driver = Driver().batch([e(1, "a")], sets=[rule(None)], watermark=5).batch(sets=[rule(3)])
    driver.batch([e(6, "b"), e(7, "a"), e(8, "b")], watermark=8)
    assert times_of(driver.end()) == []
    assert driver.rows[ERRORS] == []


def test_a_successor_begins_at_its_own_time() -> None:
    driver = Driver().batch(sets=[rule(5)]).batch(sets=[rule(None, 2, timestamp=at(10))])
    events = [e(1, "a"), e(4, "b"), e(6, "a"), e(7, "b"), e(11, "a"), e(12, "b")]
    driver.batch(events).end()
    assert [(row["processor_version"], row["match_time"]) for row in driver.rows[MATCHES]] == [(1, at(4)), (2, at(12))]


def test_entries_end_at_the_earlier_of_both_times() -> None:
    [one] = updated([], ProcessorSet(1, (rule(20),)), BEFORE_TIME)
    before, waiting = updated([one], ProcessorSet(2, (rule(30, 2, timestamp=at(10)),)), BEFORE_TIME)
    assert (before.end_time, waiting.end_time) == (10_000_000, 30_000_000)
    assert updated([before, waiting], ProcessorSet(3, (rule(30, 2, timestamp=at(10)),)), 30_000_000) == []


def test_key_groups_report_the_time_once() -> None:
    driver = Driver().batch([e(1, "a")], sets=[rule(5)], watermark=4)
    assert driver.sets.expired_at == []
    driver.batch([e(6, "a")], watermark=7).batch(watermark=8).batch([e(9, "a")], watermark=9)
    assert driver.sets.expired_at == [7_000_000]


def test_the_end_of_a_stream_is_not_a_time() -> None:
    driver = Driver().batch([e(1, "a")], sets=[rule(5)]).end()
    assert driver.sets.expired_at == []


def test_expired_rules_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    manager = coordinator(tmp_path)
    store = manager.store
    one = PatternProcessor("soon", 1, chain("a").where("TRUE"), expires=at(10))
    other = PatternProcessor("later", 1, chain("a").where("TRUE"), expires=at(20))
    manager.on_pattern_processors_updated([one, other])
    manager._report_expired()
    store.expired(12_000_000)
    manager._report_expired()
    manager._report_expired()
    lines = [record.getMessage() for record in caplog.records if "expired" in record.getMessage()]
    assert lines == ["pattern processors 1: soon version 1 has expired"]
    caplog.clear()
    again = coordinator(tmp_path)
    again._report_expired()
    assert not [record for record in caplog.records if "expired" in record.getMessage()]
    store.expired(25_000_000)
    again._report_expired()
    assert [line for line in again.status.log or again._lines if "later version 1 has expired" in line]


def test_it_does_not_define_a_version() -> None:
    one, other = rule(10).as_data(), rule(20).as_data()
    assert one != other
    assert one.has_definition_of(other)
    assert one.definition == other.definition == rule(None).as_data().text
    assert UsedVersions().with_([one]).check(other) is None
    assert from_text(one.text) == one


@pytest.mark.parametrize(
    "value", ["2026-01-31T12:00:00Z", "2026-01-31 12:00:00", "2026-01-31T13:00:00+01:00", 1769860800000]
)
def test_times(value: Any) -> None:
    found = PatternProcessor.from_dict({**ITEM, "expires": value})
    assert found.to_dict()["expires"] == "2026-01-31T12:00:00+00:00"
    assert PatternProcessor("a", 1, sql=SQL, expires=datetime(2026, 1, 31, 12)) == found


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"expires": "soon"}, "expires is not a point in time: 'soon'"),
        ({"expires": 10**18}, "expires is not a point in time"),
        ({"expires": True}, "expires is not a point in time"),
        ({"expires": {}}, "expires is not a point in time"),
        ({"expires": "9" * 100_000}, "expires is not a point in time"),
        ({"expires": 1000, "timestamp": 1000}, "expires must be after timestamp"),
    ],
)
def test_an_invalid_time_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PatternProcessorError) as error:
        PatternProcessor.from_dict(ITEM | fields)
    assert str(error.value).partition("] ")[2].startswith(message)
