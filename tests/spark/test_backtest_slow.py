"""More of backtests on Spark: what they find on every host, and what a bounded job finds; the command."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, Backtest, FilePatternProcessorDiscovererFactory, KeyedStream
from tests.embedded import test_backtests
from tests.embedded.backtest_checks import CHECKS, EVENTS, row
from tests.embedded.rule_cases import COMPARED, OTHERS, RULES
from tests.embedded.test_backtests import command
from tests.spark.test_backtest import table

pytestmark = pytest.mark.spark
files = test_backtests.files


def ran(
    spark: SparkSession, *sides: Any, events: list[Any] = EVENTS, time: str | None = "ts", **options: Any
) -> Backtest:
    return CEP.backtest(KeyedStream(table(spark, events), key="user", time=time), *sides, key_groups=4, **options)


def keep(to: list[Any], rows: DataFrame, batch: int) -> None:
    to.extend(rows.collect())


@pytest.fixture(scope="module")
def compared(spark: SparkSession) -> Backtest:
    return ran(spark, RULES, OTHERS)


def test_two_versions_are_compared_match_by_match(compared: Backtest) -> None:
    report = compared
    found = {one.id: (one.added, one.removed, one.kept) for one in report.rules}
    assert found == COMPARED
    rows = report.matches.select("id", "difference", "processor_version").collect()
    assert Counter((one.id, one.difference) for one in rows)["by user", "kept"] == 1
    assert {one.processor_version for one in rows if one.id == "by user"} == {2}
    (example,) = next(one for one in report.rules if one.id == "by user").examples
    assert (example.difference, example.key) == ("added", ("ann",))
    assert [(stage, event["kind"]) for stage, event in example.events] == [("a", "a"), ("b", "b")]
    gone = next(one for one in report.rules if one.id == "gone")
    assert [one.difference for one in gone.examples] == ["removed"] * 3
    assert (report.events, report.days, report.first) == (9, 2, datetime.fromtimestamp(1, UTC))
    assert (row(report, "in sql")["matches_per_day"], row(report, "in sql")["most_in_a_day"]) == (1.5, 2)
    assert "by user   1 -> 2" in str(report)


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_found(spark: SparkSession, name: str) -> None:
    CHECKS[name](partial(ran, spark))


@pytest.mark.usefixtures("spark")
def test_the_command_on_spark(files: Path) -> None:
    against = ["--against", files / "old.json", "--examples", 2]
    on_spark = command(files, "new.json", *against, "--spark")
    assert (on_spark.exit_code, on_spark.output) == (0, command(files, "new.json", *against).output)


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
