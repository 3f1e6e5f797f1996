"""A micro-batch runs the code that Spark generated for the one before: no literal of it changes."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, TumblingWindows, interval_join, window
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.rules.definition.processor import PatternProcessor
from asterism.spark.host.execution import Sink
from tests.spark.streams import FUNNEL, events, random_cuts, stream_of, write_files

pytestmark = pytest.mark.spark
MINUTE = timedelta(minutes=1)
FILES = 8


def run(name: str, spark: SparkSession, folder: Path, sink: Sink) -> None:
    stream, options = stream_of(spark, folder / "events"), {"checkpoint": str(folder / "checkpoint"), "drain": False}
    if name == "pattern":
        CEP.pattern(stream, FUNNEL, key_groups=4).run({"matches": sink}, **options)
    elif name == "rules":
        rules = folder / "rules.json"
        rules.write_text(json.dumps([PatternProcessor("funnel", 1, FUNNEL).to_dict()]), encoding="utf-8")
        factory = FilePatternProcessorDiscovererFactory(rules)
        CEP.pattern_processors(stream, factory, key_groups=4).run({"matches": sink}, **options)
    elif name == "window":
        windows = window(stream, TumblingWindows.of(MINUTE), key_groups=4)
        windows.run({"results": sink}, aggregate=["count(*) AS events"], **options)
    else:
        other = stream_of(spark, folder / "events")
        joined = interval_join(stream, other, (-MINUTE, MINUTE), prefix="right_", key_groups=4)
        joined.run({"results": sink}, **options)


@pytest.mark.parametrize("name", ["pattern", "rules", "window", "join"])
def test_later_micro_batches_generate_no_code(name: str, spark: SparkSession, tmp_path: Path) -> None:
    table = events(400)
    write_files(table, tmp_path / "events", random_cuts(table.num_rows, FILES, 3))
    jvm: Any = spark._jvm
    compilations = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    counts = []

    def sink(df: DataFrame, _: int) -> None:
        df.collect()
        counts.append(compilations.getCount())

    run(name, spark, tmp_path, sink)
    assert len(counts) >= FILES
    assert counts[2] == counts[FILES - 1]
