"""Labels of rules: texts that reach the matches, and that can change without a new version."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from asterism.columns.time import BEFORE_TIME
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import MAX_LABELS, PatternProcessor, from_text
from asterism.rules.matching.result_rows import MATCHES, TIMED_OUT
from asterism.rules.sets.sets import ProcessorSet, updated
from asterism.rules.sets.used_versions import UsedVersions
from tests.rules.driver import Driver, Event, at, chain, processor
from tests.rules.test_coordinator import coordinator

LABELS = {"severity": "high", "owner": "payments"}
SQL = "PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"


def e(second: int, kind: str) -> Event:
    return second, "ann", 1, kind, 0.0


def labelled(labels: dict[str, str], version: int = 1, **more: Any) -> PatternProcessor:
    return processor("ab", version, chain("a", "b"), labels=labels, **more)


def labels_of(driver: Driver, output: str = MATCHES) -> list[dict[str, str]]:
    return [dict(row["labels"]) for row in driver.rows[output]]


def test_matches_and_timed_out_rows_have_the_labels_of_their_rule() -> None:
    rules = [
        processor("ab", 1, chain("a", "b", within=5), timed_out=True, labels=LABELS),
        PatternProcessor("sql", 1, sql=SQL, labels={"owner": "ann"}),
        processor("none", 1, chain("a", "b")),
    ]
    driver = Driver().batch([e(1, "a"), e(2, "b"), e(3, "a")], sets=rules).batch(watermark=20).end()
    found = {row["processor_id"]: dict(row["labels"]) for row in driver.rows[MATCHES]}
    assert found == {"ab": LABELS, "sql": {"owner": "ann"}, "none": {}}
    assert labels_of(driver, TIMED_OUT) == [LABELS]


@pytest.mark.parametrize("sql", [False, True])
def test_other_labels_do_not_restart_a_rule(sql: bool) -> None:
    def rule(labels: dict[str, str]) -> PatternProcessor:
        return PatternProcessor("ab", 1, sql=SQL, labels=labels) if sql else labelled(labels)

    driver = Driver().batch([e(1, "a")], sets=[rule({})], watermark=1)
    driver.batch([e(2, "b"), e(3, "a")], sets=[rule(LABELS)], watermark=3)
    driver.batch(sets=[rule({"owner": "bob"})])
    driver.batch([e(4, "b")], watermark=4).batch(sets=[rule({})]).end()
    assert labels_of(driver) == [LABELS, {"owner": "bob"}]


def test_labels_are_those_of_the_set_in_force_when_the_match_is_emitted() -> None:
    """However the events between two sets are divided into micro-batches."""
    events = [e(1, "a"), e(2, "b"), e(3, "a"), e(4, "b")]
    whole = Driver().batch(sets=[labelled({"n": "1"})]).batch(events[:3], watermark=3)
    whole.batch(events[3:], sets=[labelled({"n": "2"})], watermark=4).end()
    single = Driver().batch(sets=[labelled({"n": "1"})])
    for event in events[:3]:
        single.batch([event], watermark=event[0])
    single.batch(sets=[labelled({"n": "2"})]).batch(events[3:]).batch(watermark=4).end()
    assert labels_of(whole) == labels_of(single) == [{"n": "1"}, {"n": "2"}]


def test_a_waiting_version_gets_new_labels_and_the_one_in_force_keeps_its_own() -> None:
    driver = Driver().batch(sets=[labelled({"n": "1"})])
    driver.batch(sets=[labelled({"n": "2"}, 2, timestamp=at(10))])
    driver.batch(sets=[labelled({"n": "3"}, 2, timestamp=at(10))])
    driver.batch([e(1, "a"), e(2, "b"), e(11, "a"), e(12, "b")]).end()
    assert labels_of(driver) == [{"n": "1"}, {"n": "3"}]


def test_entries_keep_who_added_them() -> None:
    [before] = updated([], ProcessorSet(1, (labelled({}),)), BEFORE_TIME)
    [after] = updated([before], ProcessorSet(2, (labelled(LABELS),)), BEFORE_TIME)
    assert (after.name, after.processor.labels) == (before.name, LABELS)


def test_the_coordinator_publishes_other_labels_as_a_set(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    for labels in ({"owner": "ann"}, {"owner": "bob"}, {"owner": "bob"}):
        manager.on_pattern_processors_updated([labelled(labels)])
    assert manager.version == 2
    assert manager.status.refused == {}
    assert [one.labels for one in coordinator(tmp_path).current_pattern_processors()] == [{"owner": "bob"}]
    manager.on_pattern_processors_updated([labelled({"owner": "bob"}, select=("LAST(b.x) AS x",))])
    assert manager.version == 2
    assert "its definition has changed, but its version has not (1)" in manager.status.refused["ab"]


def test_labels_do_not_define_a_version() -> None:
    one, other = labelled(LABELS).as_data(), labelled({"owner": "bob"}).as_data()
    assert one != other
    assert one.text != other.text
    assert one.has_definition_of(other)
    assert one.definition == other.definition == labelled({}).as_data().text
    assert not one.has_definition_of(labelled(LABELS, 2).as_data())
    assert not one.has_definition_of(labelled(LABELS, select=("LAST(b.x) AS x",)).as_data())
    used = UsedVersions().with_([one])
    assert used.check(other) is None
    assert used.check(labelled(LABELS, timed_out=True).as_data()) is not None


def test_a_rule_is_written_and_read_with_its_labels_in_order() -> None:
    one = labelled({"b": "2", "a": "1"}).as_data()
    assert list(json.loads(one.text)["labels"].items()) == [("a", "1"), ("b", "2")]
    assert from_text(one.text) == one
    assert one.text == labelled({"a": "1", "b": "2"}).as_data().text
    assert PatternProcessor.from_dict({**one.to_dict(), "labels": None}).labels == {}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"], "labels must be an object of strings"),
        ("a", "labels must be an object of strings"),
        ({"a": 1}, "the label 'a' must be a string of up to 1,000 characters\n  Hint: write numbers"),
        ({"a": None}, "the label 'a' must be a string of up to 1,000 characters"),
        ({"a": "x" * 1001}, "the label 'a' must be a string of up to 1,000 characters"),
        ({"a": "\ud800"}, "the label 'a' must be a string of up to 1,000 characters"),
        ({"": "x"}, "the name of a label must be a string of 1 to 100 printable characters, not ''"),
        ({"x" * 101: "x"}, "the name of a label must be a string of 1 to 100 printable characters"),
        ({"a\n": "x"}, "the name of a label must be a string of 1 to 100 printable characters"),
        ({str(n): "x" for n in range(MAX_LABELS + 1)}, "there are 21 labels (limit 20)"),
    ],
)
def test_invalid_labels(labels: Any, message: str) -> None:
    with pytest.raises(PatternProcessorError) as error:
        PatternProcessor.from_dict({"id": "a", "version": 1, "sql": SQL, "labels": labels})
    assert str(error.value).partition("] ")[2].startswith(message)


def test_labels_may_be_empty_and_have_several_lines() -> None:
    labels = {"description": "first\nsecond", "none": ""}
    assert PatternProcessor("a", 1, chain("a").within(timedelta(1)), labels=labels).labels == labels
