"""Names of columns have dots and backquotes."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    FilePatternProcessorDiscovererFactory,
    PatternProcessor,
    TumblingWindows,
    window,
)
from tests.spark import test_columns
from tests.spark.test_columns import PAIR, streams

pytestmark = pytest.mark.spark
folder = test_columns.folder


def run(made: Any, output: str, checkpoint: Path, **options: Any) -> list[Any]:
    rows: list[Any] = []

    def sink(df: DataFrame, _: int) -> None:
        rows.extend(df.collect())

    made.run({output: sink}, checkpoint=str(checkpoint), **options)
    return rows


def test_a_name_may_have_dots_and_backquotes(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([PatternProcessor("pair", 1, PAIR).to_dict()]), encoding="utf-8")
    factory = FilePatternProcessorDiscovererFactory(rules)
    for number, stream in enumerate(streams(spark, folder)):
        matches = run(CEP.pattern(stream, PAIR, key_groups=4), "matches", tmp_path / f"p{number}")
        assert [(row["who`s"], row["b"][0]["kind of.event"]) for row in matches] == [("ann", "b")] * 2
        firings = run(
            window(stream, TumblingWindows.of(timedelta(minutes=1)), key_groups=4), "results", tmp_path / f"w{number}",
            aggregate=["max(`kind of.event`) AS `last.kind`"],
        )  # fmt: skip
        assert [(row["who`s"], row["last.kind"]) for row in firings] == [("ann", "x")]
        found = run(CEP.pattern_processors(stream, factory, key_groups=4), "matches", tmp_path / f"d{number}")
        assert [row.key for row in found] == [["ann"]] * 2
