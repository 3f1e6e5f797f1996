"""More runs of patterns over streams."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from asterism import CEP, KeyedStream, Pattern, Semantics
from asterism.errors import NullEventTimeError, StreamDefinitionError, unwrapped
from asterism.spark.host import end_of_input as signals
from asterism.spark.host.execution import Sink
from asterism.spark.host.versions import PASSES_START
from tests.spark import test_streaming
from tests.spark.streams import (
    ABSENCE,
    BASE,
    FUNNEL,
    SCHEMA,
    STRICT,
    Collect,
    batch,
    batch_matches,
    events,
    ids,
    random_cuts,
    stream_of,
    write_files,
)
from tests.spark.test_streaming import FEW, check_repeated_run

pytestmark = pytest.mark.spark
started = test_streaming.started


@pytest.mark.parametrize(("pattern", "pieces"), [(FUNNEL, 3), (STRICT, 5), (ABSENCE, 4)])
def test_any_micro_batches_give_the_matches_of_a_batch_run(
    spark: SparkSession, tmp_path: Path, pattern: Pattern, pieces: int
) -> None:
    table = events()
    write_files(table, tmp_path / "in", random_cuts(table.num_rows, pieces, seed=pieces))
    found = Collect()
    CEP.pattern(stream_of(spark, tmp_path / "in"), pattern).run({"matches": found}, checkpoint=str(tmp_path / "cp"))
    expected = batch_matches(spark, table, pattern)
    assert len(expected) > 20
    assert ids(found.rows) == expected


@pytest.mark.parametrize("failing", [1, 2], ids=["data", "no data"])
def test_a_run_that_failed_anywhere_can_be_repeated(spark: SparkSession, tmp_path: Path, failing: int) -> None:
    check_repeated_run(spark, tmp_path, failing)


def test_the_query_that_reads_the_data_ends_its_input_if_the_driver_is_elsewhere(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[DataStreamWriter]
) -> None:
    monkeypatch.setattr(signals.Drain, "place", "/nowhere/at/all")
    table = events(600)
    write_files(table, tmp_path / "in", [300])
    found = Collect()
    CEP.pattern(stream_of(spark, tmp_path / "in"), ABSENCE, **FEW).run(
        {"matches": found}, checkpoint=str(tmp_path / "cp")
    )
    assert ids(found.rows) == batch_matches(spark, table, ABSENCE)
    assert len(started) == 2


def test_an_interrupted_run_stops_its_query(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = events(200)
    write_files(table, tmp_path / "in", [100])
    before = spark.conf.getAll
    found = Collect()

    def interrupts(df: DataFrame, batch_id: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does
        time.sleep(60)

    def run(sink: Sink) -> None:
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), ABSENCE, key_groups=1)
        stream.run({"matches": sink}, checkpoint=str(tmp_path / "cp"))

    with pytest.raises(KeyboardInterrupt):
        run(interrupts)
    assert spark.streams.active == []
    assert "was stopped, because run() was interrupted" in caplog.text
    assert spark.conf.getAll == before
    run(found)
    assert ids(found.rows) == batch_matches(spark, table, ABSENCE)


def test_a_dataframe_that_ends_its_input_needs_a_query_that_ends(spark: SparkSession, tmp_path: Path) -> None:
    write_files(events(20), tmp_path / "in", [])
    matches = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, key_groups=1, drain=True).matches
    writer = matches.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
    with pytest.raises(StreamDefinitionError, match="needs a trigger with which it ends"), unwrapped():
        writer.start().awaitTermination()


def test_events_that_arrive_during_a_run_are_left_to_the_next_one(spark: SparkSession, tmp_path: Path) -> None:
    """If each micro-batch brought more events, the run would not end."""
    table = events(600)
    write_files(table.slice(0, 300), tmp_path / "in", [])
    found = Collect()

    def arriving(df: DataFrame, batch_id: int) -> None:
        found(df, batch_id)
        if batch_id == 0:
            write_files(table.slice(300), tmp_path / "in", [], first=1)

    for _ in range(2):
        CEP.pattern(stream_of(spark, tmp_path / "in"), STRICT, **FEW).run(
            {"matches": arriving}, checkpoint=str(tmp_path / "cp")
        )
    runs = [table.slice(0, 300), table.slice(300)]
    if not PASSES_START:  # the query that ends the input is the second of a run
        runs = [table]
    assert len(found.rows) == sum(len(batch_matches(spark, run, STRICT)) for run in runs)


def test_after_the_drain_no_state_is_left(spark: SparkSession, tmp_path: Path) -> None:
    table = events(600)
    write_files(table, tmp_path / "in", [300])
    CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, **FEW).run(
        {"matches": Collect()}, checkpoint=str(tmp_path / "cp")
    )
    for variable in ("header", "pages"):
        state = (
            spark.read.format("statestore").option("path", str(tmp_path / "cp")).option("stateVarName", variable).load()
        )
        assert state.count() == 0


def test_null_keys_are_one_key(spark: SparkSession, tmp_path: Path) -> None:
    table = events(400)
    nulls = table.set_column(1, SCHEMA.field("user"), pa.nulls(400, pa.string()))
    write_files(nulls, tmp_path / "in", [200])
    found = Collect()
    CEP.pattern(stream_of(spark, tmp_path / "in"), STRICT, **FEW).run(
        {"matches": found}, checkpoint=str(tmp_path / "cp")
    )
    named = table.set_column(1, SCHEMA.field("user"), pa.array(["x"] * 400))
    expected = batch(spark, named, STRICT).matches.toArrow().to_pylist()
    assert expected
    # To have no name is another key than to be called x: the ids of the matches differ, and nothing else.
    key = {"user": "?", "match_id": "?"}
    assert ids([row | key for row in found.rows]) == ids([row | key for row in expected])
    assert {row["user"] for row in found.rows} == {None}


def test_a_run_in_processing_time_ends_with_the_drain(spark: SparkSession, tmp_path: Path) -> None:
    table = events(40)
    write_files(table, tmp_path / "in", [20])
    found = Collect()
    stream = CEP.pattern(stream_of(spark, tmp_path / "in", time=None), Pattern.begin("a").where("kind = 'view'"), **FEW)
    stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"))
    assert len(found.rows) == sum(kind == "view" for kind in table.column("kind").to_pylist())
    with pytest.raises(StreamDefinitionError, match="does not end by itself"):
        stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"), drain=False)


def test_flink_semantics_through_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    table = events(400)
    write_files(table, tmp_path / "in", [200])
    found = Collect()
    stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, semantics=Semantics.FLINK, **FEW)
    stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"))
    assert ids(found.rows) == batch_matches(spark, table, FUNNEL, semantics=Semantics.FLINK)


def test_null_event_times_fail_a_query_without_late_output(spark: SparkSession, tmp_path: Path) -> None:
    table = events(20)
    write_files(table.set_column(2, SCHEMA.field("ts"), pa.nulls(20, SCHEMA.field("ts").type)), tmp_path / "in", [])
    stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, **FEW)
    with pytest.raises(NullEventTimeError, match='the event time "ts" of 20 events is null'):
        stream.run({"matches": Collect()}, checkpoint=str(tmp_path / "cp"))


def test_an_empty_dataframe_has_no_matches(spark: SparkSession, tmp_path: Path) -> None:
    assert batch_matches(spark, SCHEMA.empty_table(), FUNNEL) == []
    write_files(SCHEMA.empty_table(), tmp_path / "in", [])
    found = Collect()
    CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, **FEW).run(
        {"matches": found}, checkpoint=str(tmp_path / "cp")
    )
    assert found.rows == []


def test_a_run_without_drain_waits_and_the_next_run_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    table = events()
    half = table.num_rows // 2
    found = Collect()

    def run(drain: bool) -> None:
        stream = stream_of(spark, tmp_path / "in")
        CEP.pattern(stream, ABSENCE, **FEW).run({"matches": found}, checkpoint=str(tmp_path / "cp"), drain=drain)

    write_files(table.slice(0, half), tmp_path / "in", [half // 2])
    run(drain=False)
    expected = batch_matches(spark, table, ABSENCE)
    assert set(ids(found.rows)) < set(expected)
    write_files(table.slice(half), tmp_path / "in", [100], first=2)
    run(drain=True)
    assert ids(found.rows) == expected


def test_outputs_of_one_query_go_to_their_own_sinks(spark: SparkSession, tmp_path: Path) -> None:
    table = events(800)
    old = table.slice(0, 3)
    write_files(pa.concat_tables([table, old]), tmp_path / "in", [400, 800])
    sinks = {"matches": Collect(), "timed_out": Collect(), "late": Collect()}
    CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, **FEW).run(sinks, checkpoint=str(tmp_path / "cp"))
    expected = batch(spark, table, FUNNEL)
    assert ids(sinks["matches"].rows) == ids(expected.matches.toArrow().to_pylist())
    assert ids(sinks["timed_out"].rows) == ids(expected.timed_out.toArrow().to_pylist())
    assert sorted(row["id"] for row in sinks["late"].rows) == sorted(old.column("id").to_pylist())


def test_null_event_times_go_to_the_late_output(spark: SparkSession, tmp_path: Path) -> None:
    table = events(100)
    timeless = table.slice(0, 4).set_column(2, SCHEMA.field("ts"), pa.nulls(4, SCHEMA.field("ts").type))
    write_files(pa.concat_tables([table, timeless]), tmp_path / "in", [50])
    sinks = {"matches": Collect(), "late": Collect()}
    CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, **FEW).run(sinks, checkpoint=str(tmp_path / "cp"))
    assert sorted(row["id"] for row in sinks["late"].rows) == sorted(timeless.column("id").to_pylist())
    assert ids(sinks["matches"].rows) == batch_matches(spark, table, FUNNEL)


def test_ids_do_not_depend_on_the_outputs_that_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    """Where nobody takes late events, those that cannot matter are left out before the exchange."""
    kinds, times = ["cart", "view", "cart", "view", "buy", "cart"], [0, 0, 0, 0, 1, 2]
    columns = [range(6), ["u"] * 6, [BASE + second * 10**6 for second in times], kinds, [0.0] * 6]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    write_files(table, tmp_path / "in", [])
    pattern = Pattern.begin("a").where("kind = 'view'").followed_by_any("b").where("kind = 'buy'")
    stream = KeyedStream(spark.read.parquet(str(tmp_path / "in")), "user", "ts", order_by=["id"])
    found = [sorted(row.match_id for row in CEP.pattern(stream, pattern, **FEW).matches.collect())]
    stream = replace(stream, df=stream_of(spark, tmp_path / "in").df)
    for number, taken in enumerate([["matches"], ["late", "timed_out", "matches"]]):
        sinks = {name: Collect() for name in taken}
        CEP.pattern(stream, pattern, **FEW).run(sinks, checkpoint=str(tmp_path / f"checkpoint{number}"))
        found.append(sorted(row["match_id"] for row in sinks["matches"].rows))
    assert len(set(found[0])) == 2
    assert found == [found[0]] * 3
