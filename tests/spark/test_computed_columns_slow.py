"""Slow: further cases of test_computed_columns.py."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, Pattern, TumblingWindows, window
from asterism.errors import CheckpointMismatchError, UserFunctionError
from tests.spark.streams import SCHEMA, Collect, events, ids, random_cuts, stream_of, write_files
from tests.spark.test_computed_columns import PRICES, VIEWS, streamed

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


def test_streams_find_what_a_table_finds(spark: SparkSession, tmp_path: Path) -> None:
    """With several outputs, a restart, and events that are late; another expression is another query."""
    table = events(400, users=5)
    on_time = spark.createDataFrame(table)
    pattern = streamed(VIEWS, PRICES)
    measures = ["a.id AS a", "b.id AS b", "SUM(py_twice(a.id)) AS twice"]
    cuts = random_cuts(table.num_rows, 4, seed=1)
    sinks: dict[str, Any] = {name: Collect() for name in ("matches", "timed_out", "late")}

    def run(pattern: Pattern, drain: bool) -> None:
        stream = stream_of(spark, tmp_path / "in")
        CEP.pattern(stream, pattern, key_groups=2).run(
            sinks, checkpoint=str(tmp_path / "checkpoint"), select={"matches": measures}, drain=drain
        )

    write_files(table.slice(0, cuts[1]), tmp_path / "in", [cuts[0]])
    run(pattern, drain=False)
    with pytest.raises(CheckpointMismatchError):
        run(streamed(VIEWS.replace("'v%'", "'b%'"), PRICES), drain=False)
    write_files(table.slice(cuts[1]), tmp_path / "in", [cuts[2] - cuts[1]], first=2)
    late = table.slice(0, 1).set_column(0, SCHEMA.field(0), [[-1]])
    write_files(late, tmp_path / "in", [], first=4)
    run(pattern, drain=True)

    expected = CEP.pattern(KeyedStream(on_time, "user", "ts"), pattern)
    assert ids(sinks["matches"].rows) == ids(expected.select(*measures).toArrow().to_pylist())
    assert sinks["matches"].rows
    assert len(sinks["timed_out"].rows) == expected.timed_out.count() > 0
    assert [(row["id"], *row) for row in sinks["late"].rows] == [(-1, *SCHEMA.names)]


def test_a_stream_is_filtered_by_a_function_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    """Only matches are wanted, so Spark filters the events by the column that it computes. If the function fails, it is named."""

    def third(number: int) -> float:
        return 3 / (number - 1_000_000)

    spark.udf.register("third_of_stream", third, "double")
    table = events(20, users=2)
    write_files(table, tmp_path / "in", [])
    pattern = Pattern.begin("a").where("third_of_stream(id) < 0 AND id > 3")

    def run(checkpoint: str) -> list[Any]:
        sink = Collect()
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), pattern, key_groups=1)
        stream.run({"matches": sink}, checkpoint=str(tmp_path / checkpoint), select={"matches": ["a.id AS id"]})
        return sorted(row["id"] for row in sink.rows)

    assert run("good") == [number for number in sorted(table["id"].to_pylist()) if number > 3]
    write_files(table.slice(0, 1).set_column(0, SCHEMA.field(0), [[1_000_000]]), tmp_path / "in", [], first=1)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as caught:
        run("bad")
    assert "third_of_stream(id) < 0 AND id > 3" in str(caught.value.detail)
