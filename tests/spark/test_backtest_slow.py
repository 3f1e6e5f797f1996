"""More of backtests: events of one time, rules that fail, shadows, exit codes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, Backtest, FilePatternProcessorDiscovererFactory, KeyedStream, Pattern, PatternProcessor
from tests.spark import test_backtest
from tests.spark.test_backtest import EVENTS, OTHERS, RULES, chain, command, keep, ran, row, table

pytestmark = pytest.mark.spark
files = test_backtest.files


def test_stages_do_not_matter_and_events_of_one_time_do(spark: SparkSession) -> None:
    """Four events at the same time: the match with the second b is not that with the first."""
    events = [(1, "ann", 0, "a"), (2, "ann", 1, "b"), (2, "ann", 2, "b"), (2, "ann", 3, "x"), (2, "ann", 4, "b")]
    stages = Pattern.begin("one").where("kind = 'a'").followed_by_any("two").where("kind = 'b'")
    renamed = Pattern.begin("none").where("kind = 'n'").optional().followed_by("three").where("kind = 'a'")
    renamed = renamed.followed_by_any("four").where("kind = 'b' AND item > 1")
    report = ran(spark, [PatternProcessor("r", 2, renamed)], [PatternProcessor("r", 1, stages)], events=events)
    (one,) = report.rules
    assert (one.added, one.removed, one.kept) == (0, 1, 2)
    assert [event["item"] for _, event in one.examples[0].events] == [0, 1]


def test_matches_with_the_same_events_count_each(spark: SparkSession) -> None:
    """a in the first or in the second stage: two matches of the same two events."""
    twice = Pattern.begin("a").optional().followed_by_any("b").optional().followed_by_any("c").where("kind = 'b'")
    once = Pattern.begin("a").followed_by_any("c").where("kind = 'b'")
    events = [(1, "ann", 0, "a"), (2, "ann", 1, "b")]
    report = ran(spark, [PatternProcessor("r", 2, once)], [PatternProcessor("r", 1, twice)], events=events)
    (one,) = report.rules
    assert one.old is not None
    assert (one.new.matches if one.new else None, one.kept) == (1, 1)
    assert one.removed == one.old.matches - 1  # type: ignore[operator]


def test_a_rule_that_fails_or_is_refused_stays_alone(spark: SparkSession) -> None:
    rules: list[Any] = [
        PatternProcessor("good", 1, chain("a", "b")),
        PatternProcessor("fails", 1, chain("a").where("10 / (item - 8) > 0")),
        PatternProcessor("column", 1, chain("a").where("nosuch > 1")),
        {"id": "malformed", "version": 1, "pattern": {}},
        {"id": "good", "version": 9, "pattern": chain("a").to_json()},
    ]
    report = ran(spark, rules, OTHERS[:1])
    assert (row(report, "good")["matches"], row(report, "good")["version"]) == (2, 1)
    assert row(report, "good")["refused"].startswith("[PATTERN_PROCESSOR] two processors have the id 'good'")
    assert row(report, "fails")["errors"] == 1
    assert "division by zero" in row(report, "fails")["error"]
    assert sorted(report.refused) == ["column", "good", "malformed"]
    assert row(report, "column")["matches"] is None
    assert row(report, "by user")["removed"] == 1


def test_a_shadow_is_compared_with_the_version_in_force(spark: SparkSession) -> None:
    """In one source, which is tried against itself."""
    rules = [replace(OTHERS[0], shadow=False), replace(RULES[0], shadow=True), replace(OTHERS[4], shadow=True)]
    wrong = PatternProcessor("gone", 2, chain("a").where("colour = 1"), shadow=True)
    report = ran(spark, rules, rules)
    assert [(one.id, one.new and one.new.version, one.old and one.old.version) for one in report.rules] == [
        ("by user", 2, 1),
        ("gone", 1, None),
    ]
    [one, _] = report.rules
    assert (one.new.matches, one.old.matches, one.added) == (2, 1, 1)  # type: ignore[union-attr]
    assert list(ran(spark, [*rules[:2], wrong], rules).refused) == ["gone"]


def test_events_without_a_time_and_without_rules(spark: SparkSession) -> None:
    report = ran(spark, RULES[:1], events=[*EVENTS, (None, "ann", 7, "a")])
    assert (report.events, report.late, report.rules[0].new and report.rules[0].new.matches) == (10, 1, 2)
    assert ran(spark, []).rules == ()
    empty = ran(spark, RULES, [], events=[], examples=0)
    assert [one["matches"] for one in empty.summary.to_pylist()] == [0] * 5
    assert (empty.days, empty.matches.count()) == (None, 0)


@pytest.mark.usefixtures("spark")
def test_the_command_fails_if_a_rule_is_refused(files: Path) -> None:
    (files / "bad.yaml").write_text("- {id: a, version: 1, sql: nonsense}\n")
    result = command(files, "bad.yaml")
    assert (result.exit_code, result.output.splitlines()[-1]) == (1, "failed: refused: a")
    result = command(files, "new.json", "--fail-if", "removed > 0")
    assert result.exit_code == 2
    assert "unknown column 'removed'" in result.output
    assert command(files, "none.json").exit_code == 2


def test_it_finds_what_a_bounded_job_finds(spark: SparkSession, compared: Backtest, tmp_path: Path) -> None:
    """Both sides, each as a job of its own; a timestamp does not count."""
    report = compared
    for side, rules in (("", RULES), ("old_", OTHERS)):
        items = [rule.to_dict() | {"timestamp": None} for rule in rules]
        (tmp_path / "rules.json").write_text(json.dumps(items), encoding="utf-8")
        stream = KeyedStream(table(spark), key="user", time="ts")
        factory = FilePatternProcessorDiscovererFactory(tmp_path / "rules.json")
        found: dict[str, list[Any]] = {"matches": [], "timed_out": []}
        CEP.pattern_processors(stream, factory, key_groups=4).run(
            {name: partial(keep, rows) for name, rows in found.items()}
        )
        counts = {name: Counter(one.processor_id for one in rows) for name, rows in found.items()}
        for rule in rules:
            one = row(report, rule.id)
            assert one[f"{side}version"] == rule.version
            assert one[f"{side}matches"] == counts["matches"][rule.id]
            keys = {tuple(match.key) for match in found["matches"] if match.processor_id == rule.id}
            assert one[f"{side}keys"] == len(keys)
            assert one[f"{side}timed_out"] == (counts["timed_out"][rule.id] if rule.timed_out else None)
        if not side:
            columns = ["processor_version", "key", "start_time", "end_time", "match_time", "events", "measures"]
            new = report.matches.where("difference != 'removed'")
            mine = [(one.id, *(one[name] for name in columns)) for one in new.collect()]
            theirs = [(one.processor_id, *(one[name] for name in columns)) for one in found["matches"]]
            assert sorted(map(str, mine)) == sorted(map(str, theirs))


def test_processing_time_has_no_days(spark: SparkSession) -> None:
    report = CEP.backtest(KeyedStream(table(spark), key="user"), RULES[:1], key_groups=4)
    (one,) = report.summary.to_pylist()
    assert (one["matches_per_day"], one["most_in_a_day"], report.days) == (None, None, None)


@pytest.mark.usefixtures("spark")
def test_the_command_compares_and_fails(files: Path) -> None:
    against = ["--against", files / "old.json", "--examples", 0]
    good = command(files, "new.json", *against, "--fail-if", "matches > 1000", "--fail-if", "errors > 0")
    assert (good.exit_code, good.output.splitlines()[0]) == (
        0, "6 rules over 9 events from 1970-01-01 00:00:01 to 1970-01-02 00:00:30 (2 days)",
    )  # fmt: skip
    bad = command(files, "new.json", *against, "--fail-if", "removed > 0", "--fail-if", "added > 1")
    assert bad.exit_code == 1
    assert bad.output.splitlines()[-2:] == ["failed: removed > 0: gone", "failed: added > 1: later"]
