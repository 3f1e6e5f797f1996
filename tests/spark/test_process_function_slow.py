"""Slow: further cases of test_process_function.py."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, TumblingWindows, connect, window
from asterism.errors import UnknownOutputError
from tests.spark.streams import FUNNEL, Collect, events, stream_of, write_files
from tests.spark.test_process_function import GROUPS, MAIN, Purchases, Spent, Views, counted

pytestmark = pytest.mark.spark


def test_an_output_is_the_input_of_an_operator(spark: SparkSession, tmp_path: Path) -> None:
    table, process = events(400, users=6), Purchases(tmp_path / "log")
    write_files(table, tmp_path / "in", [200])

    def spent(stream: KeyedStream) -> Any:
        dear = CEP.pattern(stream, FUNNEL, **GROUPS).process(process, MAIN, output="dear")
        return connect(Spent(), rows=KeyedStream(dear, key="user", time="at"), **GROUPS)

    sink = Collect()
    spent(stream_of(spark, tmp_path / "in")).run({"totals": sink}, checkpoint=str(tmp_path / "cp"))
    of_table = spent(KeyedStream(spark.createDataFrame(table), "user", "ts")).output("totals").toArrow().to_pylist()
    last = [
        {row["user"]: row["total"] for row in sorted(rows, key=lambda row: row["total"])}
        for rows in (sink.rows, of_table)
    ]
    assert last[0] == pytest.approx(last[1])
    assert last[0]


def test_a_window_function_has_outputs_too(spark: SparkSession, tmp_path: Path) -> None:
    table = events(300, users=5)
    write_files(table, tmp_path / "in", [150])
    minutes = TumblingWindows.of(timedelta(minutes=1))
    by_table = window(KeyedStream(spark.createDataFrame(table), "user", "ts"), minutes, **GROUPS)
    expected = counted(by_table.process(Views(), "n BIGINT", output="many").toArrow().to_pylist())
    sinks = {"results": Collect(), "many": Collect()}
    stream = window(stream_of(spark, tmp_path / "in"), minutes, **GROUPS)
    stream.run(sinks, process=Views(), schema="n BIGINT", checkpoint=str(tmp_path / "cp"))
    assert counted(sinks["many"].rows) == expected
    assert len(sinks["results"].rows) > len(sinks["many"].rows) > 0
    with pytest.raises(UnknownOutputError, match="Outputs: results, many"):
        by_table.process(Views(), "n BIGINT", output="late")
