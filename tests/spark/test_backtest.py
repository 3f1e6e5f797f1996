"""A backtest finds what a bounded job finds, and compares the matches of two sets of rules."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, Backtest, KeyedStream
from asterism.errors import AsterismError
from tests.embedded.backtest_checks import EVENTS, row
from tests.embedded.rule_cases import COMPARED, OTHERS, RULES

pytestmark = pytest.mark.spark


def table(spark: SparkSession, events: list[Any] = EVENTS) -> DataFrame:
    rows = [(None if second is None else datetime.fromtimestamp(second, UTC), *rest) for second, *rest in events]
    return spark.createDataFrame(rows, "ts TIMESTAMP, user STRING, item BIGINT, kind STRING").coalesce(1)


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


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = KeyedStream(table(spark), time="ts")
    for arguments, message in (
        ({"rules": 5}, "these are not rules: 5"),
        ({"rules": [5]}, "this is not a rule: 5"),
        ({"rules": tmp_path / "none.json"}, "cannot be read"),
        ({"rules": [], "examples": 1001}, "examples must be between 0 and 1,000"),
        ({"rules": [], "against": b""}, "these are not rules"),
    ):
        with pytest.raises(AsterismError, match=message):
            CEP.backtest(stream, **arguments)
    (tmp_path / "events").mkdir()
    streaming = spark.readStream.schema("ts TIMESTAMP").json(str(tmp_path / "events"))
    with pytest.raises(AsterismError, match="a backtest needs a table"):
        CEP.backtest(KeyedStream(streaming, time="ts"), [])
