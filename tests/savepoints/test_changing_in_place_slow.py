"""Checkpoints of windows, a join and a pattern that are changed in place on Spark."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    CountTrigger,
    EventTimeTrigger,
    KeyedStream,
    SessionWindows,
    change_checkpoint,
    interval_join,
    match_recognize,
    window,
)
from asterism.cli.main import main
from tests.savepoints.test_savepoints_slow import AB, EVENTS, SECOND, Query, parts

pytestmark = pytest.mark.spark
AT_END = EventTimeTrigger.after_end_of_window()
Make = Callable[[DataFrame, dict[str, Any]], tuple[Any, list[str]]]


def with_trigger(trigger: Any) -> Make:
    def make(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
        events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
        return window(events, SessionWindows.with_gap(9 * SECOND), trigger=trigger, **options), ["results"]

    return make


def with_bounds(upper: timedelta) -> Make:
    def make(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
        left, right = (
            KeyedStream(df.where(f"kind = '{kind}'"), key="user", time="ts", max_out_of_orderness=3 * SECOND)
            for kind in "ab"
        )
        return interval_join(left, right, (0 * SECOND, upper), prefix="r_", **options), ["results"]

    return make


def run_both(spark: SparkSession, folder: Path, before: Make, after: Make, change: Callable[[str], Any]) -> list[Query]:
    """A query that was changed after three files, and one that had the second definition from the beginning."""
    query, whole = Query(spark, folder / "changed", before), Query(spark, folder / "whole", after)
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        if number < 3:
            query.write(number, rows)
    query.run("checkpoint", drain=False, key_groups=3)
    change(str(query.folder / "checkpoint"))
    query.make = after
    for number, rows in enumerate(parts()[3:], start=3):
        query.write(number, rows)
    query.run("checkpoint", drain=True)
    whole.run("checkpoint", drain=True)
    return [query, whole]


def test_windows_with_another_trigger(spark: SparkSession, tmp_path: Path) -> None:
    """The results at the end of windows are those of a query that always had this trigger; there are early ones only after."""
    early = AT_END.with_early_trigger(CountTrigger.at_least(2))

    def change(checkpoint: str) -> None:
        events = spark.readStream.schema(EVENTS).parquet(str(tmp_path / "changed" / "events"))
        stream, _ = with_trigger(early)(events, {})
        plan = change_checkpoint(spark, checkpoint, stream, measures=["SUM(v) AS v"])
        assert {(part.outcome, part.reason) for part in plan.counts if part.what == "windows"} == {
            ("continues", "the new trigger begins anew")
        }

    changed, whole = run_both(spark, tmp_path, with_trigger(AT_END), with_trigger(early), change)
    at_end = [
        Counter(re.sub(r"firing=\d+", "", row) for row in query.rows()["results"].elements() if "on_time" in row)
        for query in (changed, whole)
    ]
    assert at_end[0] == at_end[1] != Counter()
    assert any("'early'" in row for row in changed.rows()["results"])


def test_a_join_with_wider_bounds(spark: SparkSession, tmp_path: Path) -> None:
    """All pairs are those of a query that always had the wider bounds; what is missing has rows of before the change."""

    def change(checkpoint: str) -> None:
        events = spark.readStream.schema(EVENTS).parquet(str(tmp_path / "changed" / "events"))
        wider, _ = with_bounds(8 * SECOND)(events, {})
        plan = change_checkpoint(spark, checkpoint, wider)
        assert plan.dropped == 0
        assert any(part.what == "rows of left" for part in plan.counts)

    run_both(spark, tmp_path, with_bounds(4 * SECOND), with_bounds(8 * SECOND), change)
    found, expected = (
        spark.read.parquet(str(tmp_path / name / "results")).drop("batch").persist() for name in ("changed", "whole")
    )
    assert found.where("r_ts - ts > INTERVAL 4 SECONDS").count()
    assert not found.exceptAll(expected).count()
    # Three files end at second 89, so the watermark was at most at 86, and rows from second 83 on were still there.
    assert not expected.exceptAll(found).where("ts >= TIMESTAMP '2025-01-01 00:01:23'").count()


def test_a_clause_with_another_within(spark: SparkSession, tmp_path: Path) -> None:
    """Matches begin before the change and end after it, also longer ones than the former clause allows."""

    def within(seconds: int) -> Make:
        def make(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
            clause = f"""
                PARTITION BY user ORDER BY ts MEASURES A.ts AS begins, C.ts AS ends
                AFTER MATCH SKIP TO NEXT ROW
                PATTERN (A B* C) WITHIN INTERVAL '{seconds}' SECOND DEFINE A AS v = 7, B AS v NOT IN (4, 7), C AS v = 4
            """
            return match_recognize(df, clause, max_out_of_orderness=3 * SECOND, **options), ["matches"]

        return make

    def change(checkpoint: str) -> None:
        events = spark.readStream.schema(EVENTS).parquet(str(tmp_path / "changed" / "events"))
        stream, _ = within(60)(events, {})
        assert change_checkpoint(spark, checkpoint, stream).dropped == 0

    run_both(spark, tmp_path, within(20), within(60), change)
    found, expected = (
        spark.read.parquet(str(tmp_path / name / "matches")).drop("batch").persist() for name in ("changed", "whole")
    )
    change_at = "TIMESTAMP '2025-01-01 00:01:30'"
    longer = "ends - begins > INTERVAL 20 SECONDS"
    assert found.where(f"begins < {change_at} AND ends > {change_at} AND {longer}").count()
    assert not found.exceptAll(expected).count()
    assert not expected.exceptAll(found).where(f"begins >= {change_at}").count()


def test_the_command_changes_a_pattern_in_place(spark: SparkSession, tmp_path: Path) -> None:
    longer = AB.within(60 * SECOND)
    file = tmp_path / "pattern.json"
    file.write_text(longer.to_json())

    def of(pattern: Any) -> Make:
        def make(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
            events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
            return CEP.pattern(events, pattern, **options), ["matches"]

        return make

    def change(checkpoint: str) -> None:
        shown = CliRunner().invoke(
            main, ["savepoint", "change-checkpoint", checkpoint, str(file), "--json"], catch_exceptions=False
        )
        assert json.loads(shown.stdout)["dropped"] == 0

    changed, whole = run_both(spark, tmp_path, of(AB), of(longer), change)
    found, expected = (query.rows()["matches"] for query in (changed, whole))
    assert found
    assert not found - expected
