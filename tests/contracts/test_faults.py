"""Operators on Spark, as a user runs them: with counters, with a clock, with bounded inputs, with mistakes."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import tests.contracts.ledger
from asterism.operators.state.keyed_state import BroadcastValueState, ListState
from asterism.operators.stream_operator import BroadcastInput, Input, Output, StreamOperator
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import connect
from tests.contracts.ledger import (
    FEES,
    MOVES,
    data,
    ledger,
    ledger_sinks,
    write,
)

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(tests.contracts.ledger)
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def failing(df: DataFrame, batch_id: int) -> None:
    raise RuntimeError("the sink fails")


def test_counts_are_in_the_progress(spark: SparkSession, tmp_path: Path) -> None:
    """And what is late is in none of the rows."""
    moves, fees = data(100)
    write(moves, MOVES, tmp_path / "moves", 1)
    write(fees, FEES, tmp_path / "fees", 1)
    write([{**move, "id": move["id"] + 1000} for move in moves[:3]], MOVES, tmp_path / "moves", 1, first=1)
    stream, sinks = ledger(spark, tmp_path, drain=True), ledger_sinks()
    query = stream.run(sinks, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True})
    assert query is not None
    query.awaitTermination()
    progress = [p.observedMetrics["asterism"] for p in query.recentProgress if "asterism" in p.observedMetrics]
    assert sum(row["moved"] or 0 for row in progress) == len(sinks["booked"].rows)


# ---------------------------------------------------------------------- the clock


class Reminders(StreamOperator):
    """Timers of both kinds, and a rule that is broadcast."""

    orders = Input("id BIGINT, t TIMESTAMP")
    rules = BroadcastInput("name STRING")
    rule = BroadcastValueState("STRING")
    out = Output("id BIGINT, what STRING, rule STRING, due BIGINT, clock BIGINT")

    @rules.process_element
    def on_rule(self, e: Any, ctx: Any) -> None:
        self.rule.update(e.name)

    @orders.process_element
    def on_order(self, e: Any, ctx: Any) -> None:
        ctx.register_event_time_timer("event", e.t + timedelta(seconds=10))
        ctx.register_processing_time_timer("clock", ctx.processing_time + timedelta(milliseconds=1500))

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.tell(timer, ctx)

    def on_processing_time_timer(self, timer: Any, ctx: Any) -> None:
        self.tell(timer, ctx)

    def tell(self, timer: Any, ctx: Any) -> None:
        due, clock = (round(time.timestamp() * 1000) for time in (timer.time, ctx.processing_time))
        self.out.collect(id=ctx.key, what=timer.name, rule=self.rule.value(), due=due, clock=clock)


# ---------------------------------------------------------------------- times


class Times(StreamOperator):
    """The order of elements with times of another kind."""

    a = Input("id BIGINT")
    b = Input("id BIGINT")
    seen = ListState("BIGINT")
    out = Output("ids ARRAY<BIGINT>")

    def on(self, e: Any, ctx: Any) -> None:
        self.seen.add(e.id)
        ctx.register_event_time_timer("end", datetime(2100, 1, 1))

    @a.process_element
    def on_a(self, e: Any, ctx: Any) -> None:
        self.on(e, ctx)

    @b.process_element
    def on_b(self, e: Any, ctx: Any) -> None:
        self.on(e, ctx)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(ids=self.seen.get())


def test_times_of_all_kinds_in_any_zone(spark: SparkSession) -> None:
    """In batch: local times, also those that a zone leaves out or has twice, and milliseconds."""
    hours = [(1, "2025-03-09 01:30:00"), (2, "2025-03-09 02:30:00"), (3, "2025-03-09 03:00:00"), (4, "2025-03-09 03:30:00"),
             (5, "2025-11-02 01:30:00"), (6, "2025-11-02 02:00:00"), (7, "1969-12-31 23:59:59.000001")]  # fmt: skip
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        df = spark.createDataFrame([(n, t, 0) for n, t in hours], "id BIGINT, text STRING, k INT")
        local = df.selectExpr("id", "k", "CAST(text AS TIMESTAMP_NTZ) AS t")
        millis = df.selectExpr("id + 10 AS id", "k", "unix_millis(to_timestamp(text || '+00:00')) AS t")
        stream = connect(Times(), a=KeyedStream(local, "k", "t"), b=KeyedStream(millis, "k", "t"), key_groups=2)
        assert [row.ids for row in stream.output("out").collect()] == [
            [7 + 10, 7, *(n for m in range(1, 7) for n in (m, m + 10))]
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
