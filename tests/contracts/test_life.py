"""What befalls a query with an operator: an input falls silent, the state is spread anew, or was written by a newer release."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import tests.contracts.ledger
from asterism.errors import OperatorError
from asterism.operators.state.keyed_state import BroadcastListState, BroadcastMapState, BroadcastValueState, ValueState
from asterism.operators.stream_operator import BroadcastInput, Input, Output, StreamOperator
from asterism.streams.data_streams import BroadcastStream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import connect
from tests.contracts.ledger import FEES, MOVES, START, Ledger, data, source, write
from tests.kit import until
from tests.spark.streams import Collect

pytestmark = pytest.mark.spark
for module in (tests.contracts.ledger, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)


# ---------------------------------------------------------------------- an input falls silent


class Both(StreamOperator):
    left = Input("k BIGINT, t TIMESTAMP")
    right = Input("k BIGINT, t TIMESTAMP")
    seen = Output("input STRING, k BIGINT")
    late = Output("input STRING, k BIGINT")

    @left.process_element
    @right.process_element
    def see(self, e: Any, ctx: Any) -> None:
        self.seen.collect(input=ctx.input, k=e.k)

    @right.process_late
    def too_late(self, e: Any, ctx: Any) -> None:
        self.late.collect(input=ctx.input, k=e.k)


def test_an_idle_input_holds_nobody_back(spark: SparkSession, tmp_path: Path) -> None:
    """While no data flows; what it says when it speaks again is late."""
    schema = "k BIGINT, t TIMESTAMP"

    def elements(name: str, number: int, **seconds: int) -> None:
        rows = [{"k": int(key[1:]), "t": START + timedelta(seconds=at)} for key, at in seconds.items()]
        write(rows, schema, tmp_path / name, 1, first=number)

    elements("left", 0, k1=1, k2=5, k3=9)
    elements("right", 0, k4=2, k5=3)
    sinks = {"seen": Collect(), "late": Collect()}
    stream = connect(
        Both(),
        left=KeyedStream(source(spark, tmp_path / "left", schema), "k", "t"),
        right=KeyedStream(source(spark, tmp_path / "right", schema), "k", "t", idle_after=timedelta(seconds=1)),
        key_groups=3,
    )
    query = stream.run(sinks, checkpoint=str(tmp_path / "checkpoint"), trigger={"processingTime": "200 milliseconds"})
    try:
        until(lambda: len(sinks["seen"].rows) == 4, query)
        assert {row["k"] for row in sinks["seen"].rows} == {1, 2, 4, 5}  # 3, the latest, waits for the watermark
        elements("right", 1, k6=4)
        until(lambda: len(sinks["late"].rows) == 1, query)
    finally:
        assert query is not None
        query.stop()
    assert [row["k"] for row in sinks["late"].rows] == [6]
    assert len(sinks["seen"].rows) == 4


# ---------------------------------------------------------------------- state is spread anew


class Priced(StreamOperator):
    """Sales at prices that are broadcast and have no time."""

    sales = Input("customer BIGINT, t TIMESTAMP, item STRING")
    prices = BroadcastInput("item STRING, price BIGINT")
    price = BroadcastMapState("STRING", "BIGINT")
    history = BroadcastListState("BIGINT")
    last = BroadcastValueState("STRING")
    total = ValueState("BIGINT")
    sold = Output("customer BIGINT, total BIGINT, history ARRAY<BIGINT>, last STRING")
    bills = Output("customer BIGINT, total BIGINT")

    @prices.process_element
    def set_price(self, e: Any, ctx: Any) -> None:
        self.price.put(e.item, e.price)
        self.history.add(e.price)
        self.last.update(e.item)

    @sales.process_element
    def sell(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + self.price.get(e.item, 0))
        self.sold.collect(
            customer=ctx.key, total=self.total.value(), history=self.history.get(), last=self.last.value()
        )
        ctx.register_event_time_timer("bill", e.t + timedelta(hours=1))

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.bills.collect(customer=ctx.key, total=self.total.value())


# ---------------------------------------------------------------------- broadcast state is not for keyed inputs


class Meddling(Ledger):
    def on_move(self, e: Any, ctx: Any) -> None:
        self.fee.put("mine", 0)


def test_a_keyed_input_that_changes_broadcast_state_is_named(spark: SparkSession, tmp_path: Path) -> None:
    moves, fees = data(30)
    write(moves, MOVES, tmp_path / "moves", 1)
    write(fees, FEES, tmp_path / "fees", 1)
    stream = connect(
        Meddling(),
        moves=KeyedStream(source(spark, tmp_path / "moves", MOVES, streaming=False), "account", "t"),
        fees=BroadcastStream(source(spark, tmp_path / "fees", FEES, streaming=False), "t"),
    )
    with pytest.raises(OperatorError) as caught:
        stream.output("booked").collect()
    assert 'the broadcast state "fee" cannot be changed here' in str(caught.value)
    assert 'operator Meddling, function on_move, input "moves", key ' in str(caught.value)
