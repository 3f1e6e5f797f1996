"""Slow: further cases of test_process_function.py."""

from __future__ import annotations

from collections import Counter as Counts
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from asterism import CEP, IterativeCondition, KeyedStream, Pattern, TumblingWindows, connect, window
from asterism.errors import EvaluationFailedError, UnknownOutputError
from tests.spark.streams import FUNNEL, Collect, batch, events, stream_of, write_files
from tests.spark.test_metrics import AVAILABLE, observed
from tests.spark.test_process_function import GROUPS, MAIN, IsDearer, IsView, Purchases, Spent, Views, counted

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


def test_conditions_are_opened_and_closed_in_each_task_also_after_a_failure(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    pattern = Pattern.begin("a").where(IsView(log)).next("b").where(IterativeCondition(IsDearer(log)))
    plain = Pattern.begin("a").where("kind = 'view'").next("b").where("price > a.price")
    table = events(200, users=4)
    expected = batch(spark, table, plain, **GROUPS).select("a.id AS a", "b.id AS b").toArrow().to_pylist()
    of_table = batch(spark, table, pattern, **GROUPS).select("a.id AS a", "b.id AS b").toArrow().to_pylist()
    write_files(table, tmp_path / "in", [100])
    sink = Collect()
    CEP.pattern(stream_of(spark, tmp_path / "in"), pattern, **GROUPS).run(
        {"matches": sink}, select={"matches": ["a.id AS a", "b.id AS b"]}, checkpoint=str(tmp_path / "cp")
    )
    assert counted(of_table) == counted(sink.rows) == counted(expected)
    lines = Counts(line.rpartition(" ")[0] for line in log.read_text().splitlines())
    assert lines["open IsView"] == lines["close IsView"] > 0
    assert lines["open IsDearer"] == lines["close IsDearer"] > 0

    bad = table.set_column(4, "price", pa.array([1000.0] * table.num_rows))
    log.unlink()
    write_files(bad, tmp_path / "bad", [])
    failing = CEP.pattern(stream_of(spark, tmp_path / "bad"), pattern, **GROUPS)
    with pytest.raises(EvaluationFailedError, match='condition IsDearer of stage "b" failed'):
        failing.run({"matches": Collect()}, checkpoint=str(tmp_path / "cp2"))
    lines = Counts(line.rpartition(" ")[0] for line in log.read_text().splitlines())
    assert lines["open IsDearer"] == lines["close IsDearer"] > 0


def test_a_stream_in_several_runs_gives_what_a_table_gives(spark: SparkSession, tmp_path: Path) -> None:
    table, process = events(800), Purchases(tmp_path / "log")
    write_files(table, tmp_path / "in", [300, 500])
    of_table = batch(spark, table, FUNNEL, **GROUPS)
    expected = {
        name: counted(of_table.process(process, MAIN, output=name).toArrow().to_pylist())
        for name in ("matches", "dear", "lost")
    }
    assert all(expected.values())
    together = {name: Collect() for name in ("matches", "dear", "lost", "timed_out")}
    of_table.run(together, process=process, schema=MAIN)
    assert {name: counted(together[name].rows) for name in expected} == expected
    assert len(together["timed_out"].rows) == len(together["lost"].rows)

    sinks = {name: Collect() for name in together}
    taken = iter([["matches", "dear", "lost", "timed_out"], ["lost", "dear", "matches"]])

    def run(drain: bool) -> Any:
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, **GROUPS, drain=drain)
        chosen = {name: sinks[name] for name in next(taken)}
        return stream.run(chosen, process=process, schema=MAIN, checkpoint=str(tmp_path / "cp"), trigger=AVAILABLE)

    counts = observed(run)
    assert {name: counted(sinks[name].rows) for name in expected} == expected
    assert counts["bought"] == counts["matches"] == len(sinks["matches"].rows)
    lines = (tmp_path / "log").read_text().splitlines()
    assert sum(line.startswith("open") for line in lines) == sum(line.startswith("close") for line in lines) > 4
