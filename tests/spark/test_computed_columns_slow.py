"""Slow: further cases of test_computed_columns.py."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import KeyedStream, TumblingWindows, window
from tests.spark.streams import SCHEMA, Collect, events, ids, stream_of, write_files

pytestmark = pytest.mark.spark


def test_windows_over_streams_find_what_a_table_finds(spark: SparkSession, tmp_path: Path) -> None:
    """With late elements, which are as they arrived, and a restart."""
    table = events(200, users=3)
    measures = ["sum(py_twice(id)) AS twice", "count(*) FILTER (WHERE kind COLLATE UTF8_LCASE = 'VIEW') AS views"]
    windows = TumblingWindows.of(timedelta(seconds=10))
    sinks: dict[str, Any] = {"results": Collect(), "late": Collect()}
    late = table.slice(0, 1).set_column(0, SCHEMA.field(0), [[-1]])
    parts = [(table.slice(0, 100), False), (table.slice(100), False), (late, True)]
    for number, (part, drain) in enumerate(parts):
        write_files(part, tmp_path / "in", [], first=number)
        windowed = window(stream_of(spark, tmp_path / "in"), windows, key_groups=2)
        windowed.run(sinks, aggregate=measures, checkpoint=str(tmp_path / "checkpoint"), drain=drain)
    expected = window(KeyedStream(spark.createDataFrame(table), "user", "ts"), windows).aggregate(*measures)
    assert ids(sinks["results"].rows) == ids(expected.toArrow().to_pylist())
    assert [(row["id"], *row) for row in sinks["late"].rows] == [(-1, *SCHEMA.names)]
