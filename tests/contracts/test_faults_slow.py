"""Bounded inputs beside streams."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import tests.contracts.ledger
from asterism.errors import StateError, UserFunctionError
from asterism.operators.state.keyed_state import ListState, ValueState
from asterism.operators.stream_operator import Input, Output, StreamOperator
from asterism.streams.data_streams import BroadcastStream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import connect
from tests.contracts.ledger import (
    DELAY,
    FEES,
    MOVES,
    START,
    Ledger,
    data,
    expected,
    in_order,
    ledger,
    ledger_sinks,
    source,
    utc,
    write,
)
from tests.contracts.test_faults import Reminders, failing
from tests.kit import until
from tests.spark.streams import Collect

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(tests.contracts.ledger)
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Lookup(Ledger):
    """With a table that is read to its end before anything of a stream, although it is declared after one."""

    probe = Input("id BIGINT, account BIGINT")
    owners = Input("account BIGINT, owner STRING")
    owner = ListState("STRING")
    seen = Output("id BIGINT, owners ARRAY<STRING>, ended BOOLEAN")

    @probe.process_element
    def on_probe(self, e: Any, ctx: Any) -> None:
        self.seen.collect(id=e.id, owners=self.owner.get(), ended=ctx.has_ended("owners"))

    @owners.process_element
    def on_owner(self, e: Any, ctx: Any) -> None:
        self.owner.add(e.owner)


def test_bounded_inputs_come_first_and_once(spark: SparkSession, tmp_path: Path) -> None:
    """A table and timed broadcast elements, with streams; after a restart they are not read again."""
    moves, fees = data(200, accounts=5)
    owners = [{"account": n % 5, "owner": f"{n:02}"} for n in range(50)]
    probe, owner = "id BIGINT, account BIGINT", "account BIGINT, owner STRING"
    write(fees, FEES, tmp_path / "fees", 3)
    write(owners, owner, tmp_path / "owners", 2)
    sinks = {name: Collect() for name in Lookup.declared(Output)}

    def run(**how: Any) -> None:
        bounded = {
            "fees": BroadcastStream(source(spark, tmp_path / "fees", FEES, streaming=False), "t"),
            "owners": KeyedStream(source(spark, tmp_path / "owners", owner, streaming=False), "account"),
        }
        streams = {
            "moves": KeyedStream(source(spark, tmp_path / "moves", MOVES), "account", "t", max_out_of_orderness=DELAY),
            "probe": KeyedStream(source(spark, tmp_path / "probe", probe), "account"),
        }
        stream = connect(Lookup(), {**streams, **bounded}, key_groups=3)
        stream.run(sinks, checkpoint=str(tmp_path / "checkpoint"), **how)

    write(moves[:100], MOVES, tmp_path / "moves", 1)
    write([{"id": n, "account": n} for n in range(5)], probe, tmp_path / "probe", 1)
    run(drain=False)
    assert len(sinks["seen"].rows) == 5
    write([{**fee, "fee": 1000} for fee in fees], FEES, tmp_path / "fees", 1)
    write([{"account": n, "owner": "new"} for n in range(5)], owner, tmp_path / "owners", 3)
    write(moves[100:], MOVES, tmp_path / "moves", 1, first=1)
    write([{"id": n + 5, "account": n} for n in range(5)], probe, tmp_path / "probe", 1, first=1)
    run()
    wanted = expected(moves, fees)
    assert {name: utc(sinks[name].rows) for name in wanted} == wanted
    assert utc([row | {"owners": sorted(row["owners"])} for row in sinks["seen"].rows]) == in_order(
        {"id": n, "owners": [row["owner"] for row in owners if row["account"] == n % 5], "ended": True}
        for n in range(10)
    )
    run()  # without new elements, a stream that has ended is ended again
    write([{"id": 99, "account": 0}], probe, tmp_path / "probe", 1, first=2)
    with pytest.raises(StateError, match="its bounded inputs cannot be read again"):
        run()


class Failing(Ledger):
    """Of the same state as its base, so that it fits its checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_move(self, e: Any, ctx: Any) -> None:
        if e.id == 150:
            raise KeyError("color")
        super().on_move(e, ctx)

    def close(self) -> None:
        (self.folder / f"closed {os.getpid()}").touch()


class OfOtherState(Ledger):
    balance = ValueState("DOUBLE")


def test_mistakes_are_named_and_do_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    moves, fees = data(200, accounts=5)
    write(moves[:100], MOVES, tmp_path / "moves", 1)
    write(fees, FEES, tmp_path / "fees", 1)
    sinks = ledger_sinks()

    def run(operator: StreamOperator | None = None, **how: Any) -> None:
        stream = ledger(spark, tmp_path, operator, key_groups=3)
        stream.run({name: sinks[name] for name in ledger_sinks()}, checkpoint=str(tmp_path / "checkpoint"), **how)

    run(drain=False)
    write(moves[100:], MOVES, tmp_path / "moves", 1, first=1)
    with pytest.raises(StateError, match='the state "balance" of OfOtherState changed its type'):
        run(OfOtherState(), drain=False)
    account = next(move["account"] for move in moves if move["id"] == 150)
    with pytest.raises(UserFunctionError) as caught:
        run(Failing(tmp_path), drain=False)
    text = str(caught.value.__cause__)
    for part in (
        "KeyError: 'color'",  # the cause, with its own traceback
        "The above exception was the direct cause",
        "UserFunctionError: [USER_FUNCTION] Failing.on_move failed",
        f'operator Failing, function on_move, input "moves", key {account}\n',
        "key group ",
    ):
        assert part in text
    assert list(tmp_path.glob("closed *"))
    run()
    wanted = expected(moves, fees)
    assert {name: utc(sink.rows) for name, sink in sinks.items()} == wanted


def test_timers_of_both_kinds_while_no_data_flows(spark: SparkSession, tmp_path: Path) -> None:
    found = Collect()
    schema, rule_schema = "id BIGINT, t TIMESTAMP", "name STRING"
    for name in ("orders", "rules"):
        (tmp_path / name).mkdir()

    def start(sink: Any = found, **how: Any) -> Any:
        ordered = KeyedStream(source(spark, tmp_path / "orders", schema), "id", "t")
        rules = BroadcastStream(source(spark, tmp_path / "rules", rule_schema))
        stream = connect(Reminders(), orders=ordered, rules=rules, key_groups=4)
        return stream.run({"out": sink}, checkpoint=str(tmp_path / "checkpoint"), **how)

    def told(what: str) -> dict[int, Any]:
        return {row["id"]: row for row in found.rows if row["what"] == what}

    def orders(number: int, **seconds: int) -> None:
        """The watermark stays behind the last of them, which waits."""
        rows = [{"id": int(name[1:]), "t": START + timedelta(seconds=at)} for name, at in seconds.items()]
        write(rows, schema, tmp_path / "orders", 1, first=number)

    orders(0, n0=0, n1=0, n2=0, n3=2)
    query = start(trigger={"processingTime": "500 milliseconds"})
    try:
        until(lambda: len(told("clock")) == 3, query)
        # The first micro-batch that begins after the time: within one trigger interval, if Spark keeps up.
        begins = [round(datetime.fromisoformat(p.timestamp).timestamp() * 1000) for p in query.recentProgress]
        for row in told("clock").values():
            assert row["due"] <= row["clock"]
            # Its clock is read after it has begun.
            assert sum(row["due"] <= begin < row["clock"] for begin in begins) <= 1
        before = len(found.batches)
        write([{"name": "x"}], rule_schema, tmp_path / "rules", 1)  # while nothing comes that has a key
        until(lambda: len(found.batches) >= before + 2, query)
        orders(1, n8=30, n9=32)
        until(lambda: 3 in told("event"), query)
    finally:
        query.stop()
    query = start(trigger={"processingTime": "500 milliseconds"})
    try:
        until(lambda: 8 in told("clock"), query)  # if not before, then after the restart, to which nothing comes
    finally:
        query.stop()
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        start(failing, trigger={"processingTime": "500 milliseconds"}).awaitTermination()
    start()  # the end comes, although the first micro-batch is the one that has failed
    after = {0: 10, 1: 10, 2: 10, 3: 12, 8: 40, 9: 42}
    assert {n: (row["rule"], row["due"]) for n, row in told("event").items()} == {
        n: ("x", round((START + timedelta(seconds=seconds)).timestamp() * 1000)) for n, seconds in after.items()
    }
    assert {n: row["rule"] for n, row in told("clock").items()} == {n: None if n < 3 else "x" for n in after}
    assert len(found.rows) == 2 * len(after)
