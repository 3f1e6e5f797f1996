"""What an operator counts is in the query's progress, each thing once."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from asterism import (
    Counter,
    Gauge,
    Histogram,
    Input,
    Output,
    StreamOperator,
    ValueState,
    connect,
)
from asterism.spark.host.stateful import OBSERVATION
from tests.spark.streams import Collect, events, stream_of, write_files

pytestmark = pytest.mark.spark


class Sales(StreamOperator):
    """Counts what it sells, and tells of the first purchase and of every one."""

    events = Input("id BIGINT, user STRING, kind STRING, price DOUBLE")
    bought = ValueState("BIGINT")
    all = Output("id BIGINT, user STRING")
    first = Output("id BIGINT, user STRING")
    purchases = Counter()
    cents = Counter()
    refunds = Counter()
    dearest = Gauge("max")
    refunded = Gauge("sum")
    prices = Histogram([1.0, 10.0, 1000.0])

    @events.process_element
    def event(self, event: Any, ctx: Any) -> None:
        if event.kind == "buy":
            self.purchases.inc()
            self.cents.inc(int(100 * event.price))
            self.dearest.set(event.price)
            self.prices.update(event.price)
            self.all.collect(id=event.id, user=event.user)
            if self.bought.value() is None:
                self.bought.update(event.id)
                self.first.collect(id=event.id, user=event.user)


def observed(run: Callable[[bool], StreamingQuery | None], seen: list[dict[str, Any]] | None = None) -> Counts[str]:
    """The sums over the micro-batches of a query and of its drain. What is not a count is appended to *seen*."""
    totals: Counts[str] = Counts()
    for drain in (False, True):
        query = run(drain)
        assert query is not None
        query.awaitTermination()
        for progress in query.recentProgress:
            counts = progress.observedMetrics.get(OBSERVATION)
            row = {} if counts is None else counts.asDict(recursive=True)
            totals.update({name: value for name, value in row.items() if isinstance(value, int)})
            if row and seen is not None:
                seen.append(row)
    return totals


AVAILABLE = {"availableNow": True}


def test_counters_count_once_though_there_are_two_sinks(spark: SparkSession, tmp_path: Path) -> None:
    check_counters(spark, tmp_path, ["all", "first"])


def check_counters(spark: SparkSession, tmp_path: Path, names: list[str]) -> None:
    table = events(900)
    write_files(pa.concat_tables([table, table.slice(0, 5)]), tmp_path / "in", [450, 900])
    sinks = {name: Collect() for name in names}

    def run(drain: bool) -> StreamingQuery | None:
        sales = connect(Sales(), events=stream_of(spark, tmp_path / "in"), key_groups=3, drain=drain)
        return sales.run(sinks, checkpoint=str(tmp_path / "cp"), trigger=AVAILABLE)

    seen: list[dict[str, Any]] = []
    counts = observed(run, seen)
    bought = [row for row in table.to_pylist() if row["kind"] == "buy"]
    assert len(sinks["all"].rows) == len(bought) > 100
    assert counts == {
        "purchases": len(bought),
        "cents": sum(int(100 * row["price"]) for row in bought),
        "refunds": 0,
        "late_elements": 5,
    }
    prices = [row["price"] for row in bought]
    assert sum(row["prices"]["count"] for row in seen) == len(prices)
    assert sum(row["prices"]["sum"] for row in seen) == pytest.approx(sum(prices))
    assert max(row["prices"]["max"] for row in seen if row["prices"]["max"] is not None) == max(prices)
    bounds = [(bucket["le"], bucket["count"]) for row in seen for bucket in row["prices"]["buckets"]]
    assert {le: sum(n for bound, n in bounds if bound == le) for le, _ in bounds} == {
        le: sum(price <= le for price in prices) for le in (1.0, 10.0, 1000.0)
    }
    gauges = [row["dearest"] for row in seen if row["dearest"] is not None]
    assert gauges
    assert set(gauges) <= set(prices)
    assert {row["refunded"] for row in seen} == {None}
    if "first" in sinks:
        assert len(sinks["first"].rows) == len({row["user"] for row in bought})
