"""A micro-batch runs the code that Spark generated for the one before: no literal of it changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, TumblingWindows, interval_join, window
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.rules.processor import PatternProcessor
from tests.spark.streams import FUNNEL, events, random_cuts, stream_of, write_files

pytestmark = pytest.mark.spark
MINUTE = timedelta(minutes=1)
FILES = 8


def runs(spark: SparkSession, folder: Path, rules: Path) -> Mapping[str, tuple[Any, str]]:
    """By name what is run, and its output."""
    stream, factory = stream_of(spark, folder), FilePatternProcessorDiscovererFactory(rules)
    return {
        "pattern": (CEP.pattern(stream, FUNNEL, key_groups=4), "matches"),
        "rules": (CEP.pattern_processors(stream, factory, key_groups=4), "matches"),
        "window": (window(stream, TumblingWindows.of(MINUTE), key_groups=4), "results"),
        "join": (
            interval_join(stream, stream_of(spark, folder), (-MINUTE, MINUTE), prefix="right_", key_groups=4),
            "results",
        ),
    }


@pytest.mark.parametrize("name", ["pattern", "rules", "window", "join"])
def test_later_micro_batches_generate_no_code(name: str, spark: SparkSession, tmp_path: Path) -> None:
    table, rules = events(400), tmp_path / "rules.json"
    write_files(table, tmp_path / "events", random_cuts(table.num_rows, FILES, 3))
    rules.write_text(json.dumps([PatternProcessor("funnel", 1, FUNNEL).to_dict()]), encoding="utf-8")
    made, output = runs(spark, tmp_path / "events", rules)[name]
    jvm: Any = spark._jvm
    compilations = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    counts = []

    def sink(df: DataFrame, _: int) -> None:
        df.collect()
        counts.append(compilations.getCount())

    options = {"aggregate": ["count(*) AS events"]} if name == "window" else {}
    made.run({output: sink}, checkpoint=str(tmp_path / "checkpoint"), drain=False, **options)
    assert len(counts) >= FILES
    assert counts[2] == counts[FILES - 1]
