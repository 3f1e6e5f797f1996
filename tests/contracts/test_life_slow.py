"""State of a newer release is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import asterism.operators.state.state_store
import tests.contracts.ledger
from asterism.errors import NewerStateError
from asterism.operators.stream_operator import Output, StreamOperator
from asterism.streams.data_streams import BroadcastStream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import connect
from asterism.testing import StreamOperatorHarness
from asterism.testing.literals import Row
from tests.contracts.ledger import FEES, MOVES, START, Ledger, data, in_order, ledger, ledger_sinks, source, utc, write
from tests.contracts.test_life import Priced
from tests.spark.streams import Collect, shuffle_partitions

pytestmark = pytest.mark.spark
for module in (tests.contracts.ledger, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)


@contextmanager
def newer_release() -> Iterator[None]:
    before = asterism.operators.state.state_store.LAYOUT
    asterism.operators.state.state_store.LAYOUT = before + 1
    try:
        yield
    finally:
        asterism.operators.state.state_store.LAYOUT = before


class OfNewerRelease(Ledger):
    """Writes its state as a newer release would."""

    def open(self) -> None:
        self.release = newer_release()
        self.release.__enter__()

    def close(self) -> None:
        self.release.__exit__(None, None, None)


def test_state_of_a_newer_release_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    moves, fees = data(60)
    write(moves[:30], MOVES, tmp_path / "moves", 1)
    write(fees, FEES, tmp_path / "fees", 1)
    sinks = ledger_sinks()

    def run(operator: StreamOperator, **how: Any) -> None:
        ledger(spark, tmp_path, operator, key_groups=2).run(sinks, checkpoint=str(tmp_path / "checkpoint"), **how)

    run(OfNewerRelease(), drain=False)
    before = {name: utc(sink.rows) for name, sink in sinks.items()}
    write(moves[30:], MOVES, tmp_path / "moves", 1, first=1)
    with pytest.raises(NewerStateError, match="this release reads only up to layout") as caught:
        run(Ledger())
    assert "key group " in str(caught.value)
    assert {name: utc(sink.rows) for name, sink in sinks.items()} == before


def test_broadcast_state_is_kept_when_nothing_else_comes_and_when_the_query_is_rescaled(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Prices come while there are no sales; each run has another number of partitions than the one before."""
    sales, prices = "customer BIGINT, t TIMESTAMP, item STRING", "item STRING, price BIGINT"
    for name in ("sales", "prices"):
        (tmp_path / name).mkdir()
    harness = StreamOperatorHarness(Priced(), {"sales": {"key": "customer", "time": "t"}})
    sinks = {name: Collect() for name in Priced.declared(Output)}
    checkpoint = str(tmp_path / "checkpoint")

    def sell(number: int) -> None:
        seconds = range(100 * number, 100 * number + 40)
        rows: list[Row] = [
            {"customer": n % 13, "t": START + timedelta(seconds=n), "item": "ab"[n % 2]} for n in seconds
        ]
        write(rows, sales, tmp_path / "sales", 1, first=number)
        harness.send("sales", rows).advance_watermark(rows[-1]["t"] - timedelta(milliseconds=1))

    def set_prices(number: int, **values: int) -> None:
        rows = [{"item": item, "price": price} for item, price in values.items()]
        write(rows, prices, tmp_path / "prices", 1, first=number)
        harness.send("prices", rows)

    def run(**how: Any) -> None:
        stream = connect(
            Priced(),
            sales=KeyedStream(source(spark, tmp_path / "sales", sales), "customer", "t"),
            prices=BroadcastStream(source(spark, tmp_path / "prices", prices)),
            key_groups=5,
        )
        stream.run(sinks, checkpoint=checkpoint, **how)

    def rescale(number: int) -> None:
        spark._streamingCheckpointManager.repartition(checkpoint, number)

    set_prices(0, a=3, b=5)
    run(drain=False)
    rescale(3)
    sell(0)
    run(drain=False)
    set_prices(1, a=7)
    with shuffle_partitions(spark, 4):  # which Spark heeds for a new checkpoint only
        run(drain=False)
    rescale(1)
    sell(1)
    run()
    harness.end()
    for name, sink in sinks.items():
        assert in_order(sink.rows) == in_order(harness.rows(name)), name
    assert len(sinks["bills"].rows) == 13
