"""What backtests find, on every host: events of one time, rules that fail, shadows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from asterism import Backtest, Pattern, PatternProcessor
from asterism.errors import AsterismError
from tests.embedded.rule_cases import OTHERS, RULES, chain

DAY = 86_400
EVENTS = [
    (1, "ann", 7, "a"), (2, "bob", 7, "b"), (3, "ann", 8, "c"), (4, "ann", 8, "b"), (5, "cy", 9, "a"), (20, "cy", 9, "b"),
    (DAY + 21, "bob", 8, "a"), (DAY + 22, "bob", 8, "b"), (DAY + 30, "bob", 8, "a"),
]  # fmt: skip
Ran = Callable[..., Backtest[Any]]
"""Runs a backtest of rules, perhaps against others, over *events*; *time*: the event-time column."""


def table_of(events: list[Any]) -> pa.Table:
    """The events, with times in seconds."""
    rows = [(None if at is None else dt.datetime.fromtimestamp(at, dt.UTC), *rest) for at, *rest in events]
    schema = pa.schema(
        [("ts", pa.timestamp("us", "UTC")), ("user", pa.string()), ("item", pa.int64()), ("kind", pa.string())]
    )
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def row(report: Backtest[Any], id: str) -> dict[str, Any]:
    return next(row for row in report.summary.to_pylist() if row["id"] == id)


def check_stages_do_not_matter_and_events_of_one_time_do(ran: Ran) -> None:
    """Four events at the same time: the match with the second b is not that with the first."""
    events = [(1, "ann", 0, "a"), (2, "ann", 1, "b"), (2, "ann", 2, "b"), (2, "ann", 3, "x"), (2, "ann", 4, "b")]
    stages = Pattern.begin("one").where("kind = 'a'").followed_by_any("two").where("kind = 'b'")
    renamed = Pattern.begin("none").where("kind = 'n'").optional().followed_by("three").where("kind = 'a'")
    renamed = renamed.followed_by_any("four").where("kind = 'b' AND item > 1")
    report = ran([PatternProcessor("r", 2, renamed)], [PatternProcessor("r", 1, stages)], events=events)
    (one,) = report.rules
    assert (one.added, one.removed, one.kept) == (0, 1, 2)
    assert [event["item"] for _, event in one.examples[0].events] == [0, 1]


def check_matches_with_the_same_events_count_each(ran: Ran) -> None:
    """a in the first or in the second stage: two matches of the same two events."""
    twice = Pattern.begin("a").optional().followed_by_any("b").optional().followed_by_any("c").where("kind = 'b'")
    once = Pattern.begin("a").followed_by_any("c").where("kind = 'b'")
    events = [(1, "ann", 0, "a"), (2, "ann", 1, "b")]
    report = ran([PatternProcessor("r", 2, once)], [PatternProcessor("r", 1, twice)], events=events)
    (one,) = report.rules
    assert one.old is not None
    assert (one.new.matches if one.new else None, one.kept) == (1, 1)
    assert one.removed == one.old.matches - 1  # type: ignore[operator]


def check_a_rule_that_fails_or_is_refused_stays_alone(ran: Ran) -> None:
    rules: list[Any] = [
        PatternProcessor("good", 1, chain("a", "b")),
        PatternProcessor("fails", 1, chain("a").where("10 / (item - 8) > 0")),
        PatternProcessor("column", 1, chain("a").where("nosuch > 1")),
        {"id": "malformed", "version": 1, "pattern": {}},
        {"id": "good", "version": 9, "pattern": chain("a").to_json()},
    ]
    report = ran(rules, OTHERS[:1])
    assert (row(report, "good")["matches"], row(report, "good")["version"]) == (2, 1)
    assert row(report, "good")["refused"].startswith("[PATTERN_PROCESSOR] two processors have the id 'good'")
    assert row(report, "fails")["errors"] == 1
    assert "division by zero" in row(report, "fails")["error"]
    assert sorted(report.refused) == ["column", "good", "malformed"]
    assert row(report, "column")["matches"] is None
    assert row(report, "by user")["removed"] == 1


def check_a_shadow_is_compared_with_the_version_in_force(ran: Ran) -> None:
    """In one source, which is tried against itself."""
    rules = [replace(OTHERS[0], shadow=False), replace(RULES[0], shadow=True), replace(OTHERS[4], shadow=True)]
    wrong = PatternProcessor("gone", 2, chain("a").where("colour = 1"), shadow=True)
    report = ran(rules, rules)
    assert [(one.id, one.new and one.new.version, one.old and one.old.version) for one in report.rules] == [
        ("by user", 2, 1),
        ("gone", 1, None),
    ]
    [one, _] = report.rules
    assert (one.new.matches, one.old.matches, one.added) == (2, 1, 1)  # type: ignore[union-attr]
    assert list(ran([*rules[:2], wrong], rules).refused) == ["gone"]


def check_events_without_a_time_and_without_rules(ran: Ran) -> None:
    report = ran(RULES[:1], events=[*EVENTS, (None, "ann", 7, "a")])
    assert (report.events, report.late, report.rules[0].new and report.rules[0].new.matches) == (10, 1, 2)
    assert ran([]).rules == ()
    empty = ran(RULES, [], events=[], examples=0)
    assert [one["matches"] for one in empty.summary.to_pylist()] == [0] * 5
    assert (empty.days, empty.rules[0].new and empty.rules[0].new.keys) == (None, 0)


def check_processing_time_has_no_days(ran: Ran) -> None:
    (one,) = ran(RULES[:1], time=None).summary.to_pylist()
    assert (one["matches_per_day"], one["most_in_a_day"]) == (None, None)


def check_labels_and_days(ran: Ran) -> None:
    """*item* is the label. The events of a key from the first to the last one of a match count, whether they are in it or not."""
    events = [
        (1, "ann", 0, "a"), (2, "ann", 1, "x"), (3, "ann", 0, "b"), (4, "ann", 2, "x"), (5, "bob", 0, "a"), (6, "bob", 0, "b"),
        (7, "ann", 0, "a"), (DAY + 8, "ann", 0, "b"), (DAY + 9, "bob", 0, "a"), (DAY + 9, "bob", 1, "b"), (None, "bob", 1, "b"),
    ]  # fmt: skip
    pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'")
    pairs, short = PatternProcessor("r", 2, pattern), PatternProcessor("r", 1, chain("a", "b"))
    clause = "PARTITION BY user MEASURES A.ts AS t PATTERN (A X*? B) DEFINE A AS kind = 'a', B AS kind = 'b'"
    report = ran([pairs, PatternProcessor("sql", 1, sql=clause)], [short], events=events, label="item")
    assert (report.label, report.labelled) == ("item", 3)
    one, two = report.summary.to_pylist()
    assert (one["matches"], one["true_matches"], one["precision"], one["found"]) == (4, 2, 0.5, 2)
    assert one["recall"] == pytest.approx(2 / 3)
    assert (one["old_matches"], one["old_true_matches"], one["old_found"]) == (3, 2, 2)
    assert [two[name] for name in ("matches", "true_matches", "found")] == [4, 2, 2]
    days = [dt.date(1970, 1, 1), dt.date(1970, 1, 2)]
    rule = report.rules[0]
    assert rule.new is not None
    assert rule.old is not None
    assert (rule.new.daily, rule.old.daily) == (
        dict(zip(days, (2, 2), strict=True)),
        dict(zip(days, (2, 1), strict=True)),
    )
    assert report.where("precision < 0.6 AND old_precision > 0.6") == ["r"]
    wrong = [
        ("kind", "ts", "must be a BOOLEAN or a number"),
        ("item", None, "needs an event time"),
        ("none", "ts", "none"),
    ]
    for bad, time, problem in wrong:
        with pytest.raises(AsterismError, match=problem):
            ran([pairs], events=events, label=bad, time=time)


CHECKS: dict[str, Callable[[Ran], None]] = {
    "stages do not matter and events of one time do": check_stages_do_not_matter_and_events_of_one_time_do,
    "matches with the same events count each": check_matches_with_the_same_events_count_each,
    "a rule that fails or is refused stays alone": check_a_rule_that_fails_or_is_refused_stays_alone,
    "a shadow is compared with the version in force": check_a_shadow_is_compared_with_the_version_in_force,
    "events without a time and without rules": check_events_without_a_time_and_without_rules,
    "processing time has no days": check_processing_time_has_no_days,
    "labels and days": check_labels_and_days,
}
