"""An operator whose rows show every element that was lost or came twice."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from asterism.columns.schemas import schema_of
from asterism.operators.state.keyed_state import BroadcastListState, BroadcastMapState, ListState, ValueState
from asterism.operators.stream_operator import BroadcastInput, Counter, Input, Output, StreamOperator
from asterism.streams.data_streams import BroadcastStream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import OperatorStream, connect
from asterism.testing import StreamOperatorHarness
from asterism.testing.literals import Row
from tests.spark.streams import Collect, write_file

START = datetime(2025, 1, 1, tzinfo=UTC)
DELAY = timedelta(seconds=5)
MOVES, FEES = "id BIGINT, account BIGINT, t TIMESTAMP, amount BIGINT", "t TIMESTAMP, name STRING, fee BIGINT"


class Ledger(StreamOperator):
    """Balances of accounts: moves are charged with fees, which are broadcast and change."""

    moves = Input(MOVES)
    fees = BroadcastInput(FEES)
    balance = ValueState("BIGINT")
    ids = ListState("BIGINT")
    fee = BroadcastMapState("STRING", "BIGINT")
    changes = BroadcastListState("STRING")
    booked = Output("account BIGINT, id BIGINT, number BIGINT, balance BIGINT, changes BIGINT")
    statements = Output("account BIGINT, ids ARRAY<BIGINT>, balance BIGINT, at TIMESTAMP")
    moved = Counter()

    @fees.process_element
    def on_fee(self, e: Any, ctx: Any) -> None:
        self.changes.add(e.name)
        self.fee.put(e.name, e.fee)

    @moves.process_element
    def on_move(self, e: Any, ctx: Any) -> None:
        self.balance.update((self.balance.value() or 0) + e.amount - sum(self.fee.values()))
        self.ids.add(e.id)
        self.moved.inc()
        self.booked.collect(
            account=e.account, id=e.id, number=len(self.ids.get()), balance=self.balance.value(),
            changes=len(self.changes.get()),
        )  # fmt: skip
        ctx.register_event_time_timer("statement", e.t + timedelta(seconds=60))

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.statements.collect(account=ctx.key, ids=self.ids.get(), balance=self.balance.value(), at=timer.time)
        self.ids.clear()


def data(count: int = 600, accounts: int = 20, seed: int = 5) -> tuple[list[Row], list[Row]]:
    """Moves, in order of arrival, up to DELAY late; and fees. Times are unique."""
    rng = random.Random(seed)
    moves = []
    for number in range(count):
        time = START + timedelta(seconds=number)
        row = {"id": number, "account": rng.randrange(accounts), "t": time, "amount": rng.randrange(100)}
        moves.append((time + rng.random() * DELAY, row))
    moves.sort(key=lambda pair: pair[0])
    times = [START + timedelta(seconds=count * n / 8, microseconds=1) for n in range(8)]
    return [row for _, row in moves], [{"t": t, "name": f"fee{n % 3}", "fee": n} for n, t in enumerate(times)]


def expected(moves: Iterable[Row], fees: Iterable[Row]) -> dict[str, list[tuple[Any, ...]]]:
    """By the operator without Spark, in one piece."""
    harness = StreamOperatorHarness(Ledger(), {"moves": {"key": "account", "time": "t"}, "fees": {"time": "t"}})
    harness.send("moves", list(moves)).send("fees", list(fees)).end()
    return {name: in_order(harness.rows(name)) for name in harness.outputs}


def in_order(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def write(rows: list[Row], schema: str, folder: Path, pieces: int, first: int = 0) -> None:
    """Files in order; *first*: the number of the first."""
    table = pa.Table.from_pylist(rows, schema_of(schema))
    cuts = [n * len(rows) // pieces for n in range(pieces + 1)]
    for number, (begin, end) in enumerate(pairwise(cuts), first):
        write_file(table.slice(begin, end - begin), folder, number)


def source(spark: SparkSession, folder: Path, schema: str, *, streaming: bool = True) -> DataFrame:
    if not streaming:
        return spark.read.schema(schema).parquet(str(folder))
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def ledger(spark: SparkSession, folder: Path, operator: StreamOperator | None = None, **options: Any) -> OperatorStream:
    moves = KeyedStream(source(spark, folder / "moves", MOVES), "account", "t", max_out_of_orderness=DELAY)
    fees = BroadcastStream(source(spark, folder / "fees", FEES), "t")
    return connect(operator or Ledger(), moves=moves, fees=fees, **options)


def ledger_sinks() -> dict[str, Collect]:
    return {name: Collect() for name in Ledger.declared(Output)}


def utc(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Spark gives out times without a zone, in that of this process."""
    return in_order(
        {name: v.astimezone(UTC) if isinstance(v, datetime) else v for name, v in row.items()} for row in rows
    )
