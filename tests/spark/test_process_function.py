"""Match functions with outputs of their own on Spark: over tables and streams, across runs, and before other operators."""

from __future__ import annotations

import os
import sys
from collections import Counter as Counts
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from asterism import (
    Context,
    Counter,
    Element,
    Input,
    MatchContext,
    OpenContext,
    Output,
    PatternProcessFunction,
    ProcessWindowFunction,
    StreamOperator,
    TimeSpan,
    ValueState,
    WindowContext,
)
from asterism.errors import StreamDefinitionError, UnknownOutputError, UserFunctionError
from tests.spark.streams import FUNNEL, SCHEMA, Collect, batch, events

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])
GROUPS: dict[str, Any] = {"key_groups": 3}
MAIN = "user STRING, price DOUBLE"


class Logged:
    """Appends what happens to a file: one line for each call, of any process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self, what: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{what} {type(self).__name__} {os.getpid()}\n")

    def open(self, context: OpenContext) -> None:
        self.schema = context.schema
        self.handle = self.path.open("a")  # cannot be pickled
        self.log("open")

    def close(self) -> None:
        self.handle.close()
        self.log("close")


class Purchases(Logged, PatternProcessFunction):
    dear = Output("id STRING, user STRING, price DOUBLE, at TIMESTAMP")
    lost = Output("user STRING, views INT")
    bought = Counter()

    def process_matches(self, matches: pa.Table, ctx: MatchContext) -> pa.Table:
        assert self.schema.names == SCHEMA.names
        self.bought.inc(matches.num_rows)
        rows = []
        for match in matches.to_pylist():
            price = match["b"][0]["price"]
            rows.append({"user": match["user"], "price": price})
            if price > 50:
                self.dear.collect(rows[-1], id=match["match_id"], at=match["end_time"])
        return pa.Table.from_pylist(rows, pa.schema([("user", pa.string()), ("price", pa.float64())]))

    def process_timed_out_matches(self, matches: pa.Table, ctx: MatchContext) -> None:
        for match in matches.to_pylist():
            self.lost.collect(user=match["user"], views=len(match["a"]))


def counted(rows: list[dict[str, Any]]) -> Counts[str]:
    return Counts(str(sorted((name, str(value)) for name, value in row.items())) for row in rows)


class Spent(StreamOperator):
    rows = Input("user STRING, price DOUBLE, at TIMESTAMP")
    total = ValueState("DOUBLE")
    totals = Output("user STRING, total DOUBLE")

    @rows.process_element
    def add(self, row: Element, ctx: Context) -> None:
        self.total.update((self.total.value() or 0) + row.price)
        self.totals.collect(user=ctx.key, total=self.total.value())


class IsView(Logged):
    def __call__(self, events: pa.Table) -> pa.ChunkedArray:
        assert events.schema.names == self.schema.names
        return pc.equal(events["kind"], "view")


class IsDearer(Logged):
    def __call__(self, event: Any, context: Any) -> bool:
        assert self.schema.names == SCHEMA.names
        if event.price == 1000:
            raise ValueError("no such price")
        return bool(event.price > context.events_for_pattern("a")[0].price)


def test_what_does_not_fit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    found, process = batch(spark, events(1), FUNNEL), Purchases(tmp_path / "log")
    with pytest.raises(StreamDefinitionError, match="needs a schema"):
        found.process(process)
    with pytest.raises(UnknownOutputError, match="Outputs: dear, lost"):
        found.process(process, output="timed_out")
    with pytest.raises(UnknownOutputError, match="Outputs: matches, timed_out, late, dear, lost"):
        found.run({"deer": Collect()}, process=process)
    with pytest.raises(StreamDefinitionError, match="either measures or the rows of a function"):
        found.run({"matches": Collect()}, process=process, schema=MAIN, select={"matches": ["a.id AS a"]})
    with pytest.raises(StreamDefinitionError, match="process must be a match function"):
        found.run({"matches": Collect()}, process="f", schema=MAIN)  # type: ignore[arg-type]
    closed = type("Closed", (Purchases,), {"open": lambda self, context: 1 / 0})(tmp_path / "log")
    of_table = batch(spark, events(400), FUNNEL)
    with pytest.raises(UserFunctionError, match=r"Closed\.open failed"):
        of_table.run({"lost": Collect()}, process=closed)


class Views(ProcessWindowFunction):
    many = Output("user STRING, views BIGINT")
    fired = Counter()

    def process(self, elements: pa.Table, window: TimeSpan, ctx: WindowContext) -> Any:
        self.fired.inc()
        views = elements["kind"].to_pylist().count("view")
        if views > 10:
            self.many.collect(user=ctx.key, views=views)
        return {"n": elements.num_rows}
