"""Matches that repeat an earlier one of their rule and key are suppressed and counted."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import asterism.rules.matching.operator as module
from asterism import Pattern
from asterism.errors import PatternProcessorError
from asterism.operators.state.page_numbers import SUPPRESSIONS_PAGE
from asterism.rules.definition.processor import PatternProcessor, from_text
from asterism.rules.matching.result_rows import ERRORS, MATCHES
from tests.kit import FACTOR
from tests.rules.driver import Driver, Event, at, chain, cuts, processor

SPAN = 10
ANY_A = Pattern.begin("a").where("kind = 'a'")
AB = chain("a", "b", within=30)
SQL = "MEASURES LAST(A.x) AS x PATTERN (A B? C*?) DEFINE A AS kind = 'a', B AS kind = 'b'"
LATER = "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B{2,} C) WITHIN INTERVAL '30' SECOND DEFINE A AS kind = 'a', C AS kind <> 'a'"
ALL_ROWS = "ALL ROWS PER MATCH PATTERN (A B*) DEFINE A AS kind = 'a', B AS kind = 'b'"


def e(second: float, kind: str, user: str = "ann") -> Event:
    return second, user, 1, kind, 0.0


def rule(of: Pattern | str, version: int = 1, *, seconds: float | None = SPAN, **more: Any) -> PatternProcessor:
    span = None if seconds is None else timedelta(seconds=seconds)
    if isinstance(of, str):
        return PatternProcessor("r", version, sql=of, suppress=span, **more)
    return processor("r", version, of, suppress=span, **more)


def rows_of(driver: Driver) -> list[tuple[float, int]]:
    return [(row["match_time"].timestamp(), row["suppressed"]) for row in driver.rows[MATCHES]]


def state_of(driver: Driver) -> bytes | None:
    return driver.stores[0].read_page(SUPPRESSIONS_PAGE)


# ---------------------------------------------------------------------- what is suppressed


def test_matches_within_the_span_are_suppressed_and_counted_in_the_next_one() -> None:
    """A match exactly one span later is emitted, and suppressed ones do not extend the span."""
    events = [e(second, "a") for second in (0, 1, 9.999, 10, 21, 22, 40, 60)]
    driver = Driver().batch(events, sets=[rule(ANY_A)]).end()
    assert rows_of(driver) == [(0, 0), (10, 2), (21, 0), (40, 1), (60, 0)]
    assert driver.metrics["suppressed"] == 3
    assert driver.counts.versions["r", 1].matches == 5


def test_a_number_is_forgotten_a_second_span_later() -> None:
    for last, expected in ((19.999, 1), (20, 0)):
        driver = Driver().batch([e(0, "a"), e(1, "a"), e(last, "a")], sets=[rule(ANY_A)]).end()
        assert rows_of(driver) == [(0, 0), (last, expected)]


def test_keys_and_rules_are_independent() -> None:
    rules = [
        rule(ANY_A),
        processor("all", 1, ANY_A),
        processor("one key", 1, ANY_A, key=(), suppress=timedelta(days=1)),
    ]
    driver = Driver().batch([e(0, "a"), e(1, "a", "bob"), e(2, "a"), e(3, "a", "bob")], sets=rules).end()
    found = sorted((row["processor_id"], row["match_time"].timestamp(), row["key"]) for row in driver.rows[MATCHES])
    assert found == [
        *(("all", second, [user]) for second, user in ((0, "ann"), (1, "bob"), (2, "ann"), (3, "bob"))),
        ("one key", 0, []),
        ("r", 0, ["ann"]),
        ("r", 1, ["bob"]),
    ]


def test_timed_out_partial_matches_are_not_suppressed() -> None:
    one = rule(chain("a", "b", within=5), timed_out=True)
    driver = Driver().batch([e(0, "a"), e(1, "a"), e(2, "a")], sets=[one]).end()
    assert len(driver.rows["timed_out"]) == 3


def test_a_new_version_begins_without_suppression() -> None:
    driver = Driver().batch([e(0, "a")], sets=[rule(ANY_A)], watermark=0)
    driver.batch([e(1, "a")], sets=[rule(ANY_A, 2)], watermark=1)
    driver.batch([e(2, "a")], sets=[], watermark=2)
    assert state_of(driver) is None
    assert rows_of(driver.end()) == [(0, 0), (1, 0)]


def test_other_labels_do_not_end_a_suppression() -> None:
    driver = Driver().batch([e(0, "a")], sets=[rule(ANY_A)], watermark=0)
    driver.batch([e(1, "a"), e(12, "a")], sets=[rule(ANY_A, labels={"owner": "ann"})], watermark=12)
    assert [(row["suppressed"], row["labels"]) for row in driver.rows[MATCHES]] == [(0, []), (1, [("owner", "ann")])]


def test_all_rows_of_a_match_are_decided_as_one() -> None:
    events = [e(0, "a"), e(1, "b"), e(2, "a"), e(3, "b"), e(12, "a"), e(13, "b"), e(14, "b"), e(15, "c")]
    driver = Driver().batch(events, sets=[rule(ALL_ROWS)]).end()
    found = [(row["events"][0]["event"]["ts"].timestamp(), row["suppressed"]) for row in driver.rows[MATCHES]]
    assert found == [(0, 0), (1, 0), (12, 1), (13, 1), (14, 1)]


def test_a_suppressed_match_computes_no_measures() -> None:
    """So it does not fail."""
    one = rule(ANY_A, select=("1 / (LAST(a.item) - 2) AS x",))
    events = [e(0, "a"), (1.0, "ann", 2, "a", 0.0), e(11, "a")]
    assert rows_of(Driver().batch(events, sets=[one]).end()) == [(0, 0), (11, 1)]


def test_a_rule_that_fails_is_disabled_and_its_state_is_removed() -> None:
    one = rule(ANY_A, select=("1 / (LAST(a.item) - 2) AS x",))
    events = [e(0, "a"), e(1, "a"), (11.0, "ann", 2, "a", 0.0), e(12, "a")]
    driver = Driver(disable_on_error=True).batch(events, sets=[one], watermark=12)
    assert rows_of(driver) == [(0, 0)]
    assert state_of(driver) is None


# ---------------------------------------------------------------------- state


def test_state_exists_only_while_it_matters() -> None:
    driver = Driver().batch(sets=[rule(ANY_A)], watermark=0)
    assert state_of(driver) is None
    driver.batch([e(1, "a")], watermark=10)
    assert state_of(driver) is not None
    driver.batch(watermark=11)
    assert state_of(driver) is None
    driver.batch([e(21, "a"), e(22, "a")], watermark=40)
    assert state_of(driver) is not None  # the next match carries the number
    driver.batch(watermark=41)
    assert state_of(driver) is None
    driver.batch([e(50, "a")], watermark=50).end()
    assert state_of(driver) is None
    assert driver.stores[0].read_header() is None


def test_rules_with_too_much_state_are_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STATE", 4_000)
    few = processor("few", 1, ANY_A, key=("x",), suppress=timedelta(days=1))
    events = [e(n / 100, "a", f"user {n}") for n in range(300)]
    driver = Driver(keys=()).batch(events, sets=[rule(ANY_A, key=("user",)), few], watermark=5)
    [error] = driver.rows[ERRORS]
    assert (error["processor_id"], error["error"].splitlines()[0]) == (
        "r",
        "LimitExceededError: [LIMIT_EXCEEDED] the keys with suppressed matches have more than 4,000 bytes in a key group",
    )
    driver.batch([e(6, "a")], watermark=6)
    assert len(driver.rows[ERRORS]) == 1


# ---------------------------------------------------------------------- against a loop, with random cuts


def suppressed(rows: Sequence[dict[str, Any]], seconds: float) -> list[tuple[str, int]]:
    """The match ids that are emitted, each with the number of matches suppressed before: what the documentation says."""
    found = []
    emitted: dict[tuple[str, ...], float] = {}
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    for row in rows:
        key, time = tuple(row["key"]), row["match_time"].timestamp()
        if key in emitted and time < emitted[key] + seconds:
            counts[key] += 1
            continue
        remembered = key in emitted and time < emitted[key] + 2 * seconds
        found.append((row["match_id"], counts[key] if remembered else 0))
        emitted[key], counts[key] = time, 0
    return sorted(found)


@pytest.mark.parametrize("seed", range(FACTOR))
@pytest.mark.parametrize("of", [ANY_A, AB, SQL, LATER], ids=["single", "pairs", "sql", "sql_late"])
def test_results_do_not_depend_on_cuts_restarts_and_partitions(of: Pattern | str, seed: int) -> None:
    rng = random.Random(f"{seed} {of}")
    seconds = rng.choice([1, 7, 20])
    times = sorted(rng.choices(range(120), k=80))
    events = [e(time, rng.choice("aaabbc"), rng.choice(["ann", "bob", "cy"])) for time in times]
    all_matches = Driver().batch(events, sets=[rule(of, seconds=None)]).end()
    wanted = suppressed(all_matches.rows[MATCHES], seconds)
    assert len(wanted) < len(all_matches.rows[MATCHES])
    for groups in (1, 3):
        driver = Driver(key_groups=groups).batch(sets=[rule(of, seconds=seconds)])
        for part in cuts(events, rng) if groups > 1 or rng.random() < 0.9 else [events]:
            last = part[-1][0]
            assert last is not None
            driver.batch(part, watermark=None if rng.random() < 0.3 else last - 1)
            if rng.random() < 0.3:
                driver.operator = pickle.loads(pickle.dumps(driver.operator))
            if rng.random() < 0.2:
                driver.batch(sets=[rule(of, seconds=seconds, labels={"n": str(rng.random())})])
        rows = driver.end().rows[MATCHES]
        assert sorted((row["match_id"], row["suppressed"]) for row in rows) == wanted
        assert len(all_matches.rows[MATCHES]) - len(rows) == driver.metrics.get("suppressed", 0)


def test_results_are_the_same_in_many_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large results are computed twice."""
    import asterism.matching.matcher as matcher

    events = [e(n / 3, "a" if n % 3 else "b") for n in range(200)]
    whole = Driver().batch(events, sets=[rule(AB)]).end()
    monkeypatch.setattr(matcher, "SLICE", 10)
    parts = Driver().batch(events, sets=[rule(AB)]).end()
    for driver in (whole, parts):
        assert len(driver.rows[MATCHES]) > 3
    found = [[(row["match_id"], row["suppressed"]) for row in driver.rows[MATCHES]] for driver in (whole, parts)]
    assert found[0] == found[1]


# ---------------------------------------------------------------------- the field


@pytest.mark.parametrize(
    ("text", "span", "written"),
    [
        ("1 hour", timedelta(hours=1), "1 hour"),
        ("60 minutes", timedelta(hours=1), "1 hour"),
        ("90 minutes", timedelta(minutes=90), "90 minutes"),
        ("1500 milliseconds", timedelta(seconds=1.5), "1500 milliseconds"),
        ("2 days", timedelta(days=2), "2 days"),
    ],
)
def test_durations(text: str, span: timedelta, written: str) -> None:
    item = {"id": "a", "version": 1, "sql": SQL, "suppress": {"for": text, "by": "key"}}
    found = PatternProcessor.from_dict(item)
    assert found.suppress == span
    assert found.to_dict()["suppress"] == {"for": written}
    assert from_text(found.text) == found


def test_another_span_needs_another_version() -> None:
    one, other = rule(ANY_A).as_data(), rule(ANY_A, seconds=1).as_data()
    assert not one.has_definition_of(other)


_BY = "suppress: by must be 'key'"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1 hour", "suppress must be an object\n  Hint: {"),
        ([], "suppress must be an object"),
        (
            {},
            "suppress needs 'for'\n  A duration is a whole number and a unit: days, hours, minutes, seconds, milliseconds",
        ),
        ({"for": "1"}, "suppress: for is not a duration: '1'"),
        ({"for": 60}, "suppress: for is not a duration: 60"),
        ({"for": "1.5 hours"}, "suppress: for is not a duration: '1.5 hours'"),
        ({"for": "-1 hours"}, "suppress: for is not a duration: '-1 hours'"),
        (
            {"for": "0 seconds"},
            "the time to suppress matches must be whole milliseconds, more than 0 and up to 3,650 days",
        ),
        (
            {"for": "3651 days"},
            "the time to suppress matches must be whole milliseconds, more than 0 and up to 3,650 days",
        ),
        ({"for": "9" * 15 + " days"}, "suppress: for is out of range"),
        ({"for": "9" * 100_000 + " days"}, "suppress: for is not a duration"),
        ({"for": "1 hour", "by": ["user"]}, _BY),
        ({"for": "1 hour", "by": "user"}, _BY),
        ({"for": "1 hour", "max": 1}, "suppress has no field 'max'"),
    ],
)
def test_an_invalid_value_is_refused(value: Any, message: str) -> None:
    with pytest.raises(PatternProcessorError) as error:
        PatternProcessor.from_dict({"id": "a", "version": 1, "sql": SQL, "suppress": value})
    assert str(error.value).partition("] ")[2].startswith(message)


def test_unmatched_rows_cannot_be_suppressed() -> None:
    sql = "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A) DEFINE A AS kind = 'a'"
    driver = Driver()
    with pytest.raises(PatternProcessorError, match="suppress cannot be combined with WITH UNMATCHED ROWS"):
        driver.operator.compiler.try_out(rule(sql))


def test_processing_time() -> None:
    driver = Driver(time=None).batch([e(0, "a"), e(0, "a")], sets=[rule(ANY_A)], processing_time=5)
    driver.batch([e(0, "a")], processing_time=14).batch([e(0, "a")], processing_time=15).end()
    assert [(row["match_time"], row["suppressed"]) for row in driver.rows[MATCHES]] == [(at(5), 0), (at(15), 2)]
