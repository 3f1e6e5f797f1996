"""Operators in a live engine: the answers are those of a model that does one thing after the other, and of the contracts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism.errors import CheckpointMismatchError, InvalidEventError, StreamDefinitionError
from asterism.live.engine import LiveEngine
from asterism.operators.state.keyed_state import ValueState
from asterism.operators.stream_operator import Counter, Input, Output, StreamOperator
from asterism.streams.data_streams import BroadcastStream, DataStream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import connect
from asterism.testing import Send, StreamOperatorHarness
from tests.contracts.contracts import CONTRACTS, Contract
from tests.contracts.test_pure import counted
from tests.kit import examples
from tests.live.driver import killed, play
from tests.operators.test_stream_operator_property import ELEMENTS, EPOCH, INPUTS, SECOND, ByElement, Model

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int64())])
ALL: dict[str, Any] = {"max_out_of_orderness": timedelta(days=1000)}
"""No element is late."""


@settings(
    max_examples=examples(12, usual=30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(elements=ELEMENTS, seed=st.integers(0, 10_000), pages=st.sampled_from([None, 3]))
def test_random_programs_cuts_and_kills(
    elements: list[tuple[str, str, int, int]], seed: int, pages: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Keyed and broadcast inputs, with timers, times to live and visits of all keys; three inputs in any order."""
    elements = sorted(elements, key=lambda element: element[2])
    tables = {
        name: pa.Table.from_pylist(
            [{"k": k, "t": EPOCH + SECOND * t, "v": v} for of, k, t, v in elements if of == name], SCHEMA
        )
        for name in INPUTS
    }
    tables["rules"] = tables["rules"].select(["t", "v"])
    keyed: dict[str, Any] = {name: KeyedStream(SCHEMA, "k", "t") for name in ("left", "right")}
    rules: Any = BroadcastStream(tables["rules"].schema, "t")
    live = connect(ByElement(), **keyed, rules=rules, pages=pages)
    rows = play(
        lambda folder: live.open(folder, snapshot_every=None), tables, tmp_path_factory.mktemp("live"), seed, largest=5
    )
    found: dict[str, list[str]] = defaultdict(list)
    for row in sorted(rows["log"].to_pylist(), key=lambda row: (row["k"], row["n"])):
        found[row["k"]].append(row["line"])
    assert found == Model().run(elements)


def timed(contract: Contract) -> bool:
    wires = StreamOperatorHarness(contract.operator, contract.inputs).streams.wires.values()
    return contract.batch and all(wire.time is not None and not wire.distributed for wire in wires)


@pytest.mark.parametrize("contract", [*filter(timed, CONTRACTS)], ids=lambda contract: contract.name)
def test_contracts(contract: Contract, tmp_path: Path) -> None:
    harness = StreamOperatorHarness(contract.operator, contract.inputs)
    streams: dict[str, Any] = {}
    tables = {}
    for name, wire in harness.streams.wires.items():
        sent = [step.rows for step in contract.steps if isinstance(step, Send) and step.input == name]
        table = pa.concat_tables([wire.schema.empty_table(), *(harness.table(name, rows) for rows in sent)])
        tables[name] = table
        streams[name] = (
            BroadcastStream(table.schema, wire.time, **ALL)
            if harness.streams.inputs[name].broadcast
            else KeyedStream(table.schema, wire.keys, wire.time, **ALL)
        )
    expected = contract.batch if isinstance(contract.batch, Mapping) else contract.expected
    live = connect(contract.operator, streams)
    found = play(lambda folder: live.open(folder, snapshot_every=None), tables, tmp_path, 7)
    for name in contract.operator.declared(Output):
        assert counted(found[name].to_pylist()) == counted(expected.get(name, ())), name


class Idle(StreamOperator):
    """Says in processing time that a key has no element any more."""

    items = Input("k STRING")
    seen = ValueState("BIGINT")
    count = Counter()
    out = Output("k STRING, n BIGINT")
    also = Output("n BIGINT")

    @items.process_element
    def on_item(self, e: Any, ctx: Any) -> None:
        self.seen.update((self.seen.value() or 0) + 1)
        self.count.inc()
        ctx.register_processing_time_timer("idle", ctx.processing_time + timedelta(minutes=1))

    def on_processing_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(k=ctx.key, n=self.seen.value())
        self.also.collect(n=self.seen.value())


def test_processing_time_outputs_and_counters(tmp_path: Path) -> None:
    stream: Any = KeyedStream(pa.schema([("k", pa.string())]), "k")
    live = connect(Idle(), items=stream)
    engine = live.open(tmp_path, outputs=["out"])
    engine.process([{"k": "ann"}, {"k": "ann"}, {"k": "bob"}], position=3)
    due = engine.next_processing_time
    assert due is not None
    assert due > datetime.now(UTC)
    engine.close()
    with live.open(tmp_path) as engine:
        assert (engine.position, engine.next_processing_time) == (3, due)
        assert list(engine.outputs) == ["out", "also"]
        assert engine.advance_processing_time(due - timedelta(seconds=1))["out"].num_rows == 0
        rows = engine.advance_processing_time(due + timedelta(seconds=1))
        assert sorted(row["n"] for row in rows["out"].to_pylist()) == [1, 2]
        assert rows["also"].num_rows == 2
        assert engine.progress["observedMetrics"]["asterism"]["count"] == 3


class Total(StreamOperator):
    items = Input("v BIGINT")
    total = ValueState("BIGINT")
    out = Output("total BIGINT")

    @items.process_element
    def on_item(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.v)
        self.out.collect(total=self.total.value())


def test_elements_without_a_key(tmp_path: Path) -> None:
    """The engine is a single instance of the operator."""
    stream: Any = DataStream(pa.schema([("v", pa.int64())]))
    live = connect(Total(), items=stream, pages=4)
    engine = live.open(tmp_path)
    assert engine.process([{"v": 1}, {"v": 2}])["out"].column("total").to_pylist() == [1, 3]
    engine.snapshot()
    engine.process({"v": 100})
    killed(engine)
    with live.open(tmp_path) as engine:
        assert engine.process({"v": 4})["out"].column("total").to_pylist() == [7]


def test_a_function_that_fails() -> None:
    """The batch has no effect, and the engine goes on."""

    class Doubles(StreamOperator):
        items = Input("v BIGINT")
        total = ValueState("BIGINT")
        out = Output("total BIGINT")

        @items.process_element
        def on_item(self, e: Any, ctx: Any) -> None:
            if e.v < 0:
                raise ValueError("negative")
            self.total.update((self.total.value() or 0) + e.v)
            self.out.collect(total=self.total.value())

    stream: Any = KeyedStream(pa.schema([("v", pa.int64())]))
    with connect(Doubles(), items=stream).open() as engine:
        engine.process({"v": 1})
        with pytest.raises(Exception, match="negative"):
            engine.process([{"v": 5}, {"v": -1}])
        assert engine.process({"v": 2})["out"].column("total").to_pylist() == [3]


def test_what_is_wrong(tmp_path: Path) -> None:
    schema = pa.schema([("v", pa.int64())])
    stream: Any = KeyedStream(schema)
    with connect(Total(), items=stream).open(tmp_path) as engine:
        engine.process({"v": 1})
        engine.finish()
        with pytest.raises(InvalidEventError, match="has ended"):
            engine.process({"v": 1})
    with pytest.raises(StreamDefinitionError, match="no output"):
        connect(Total(), items=stream).open(outputs=["nothing"])
    table: Any = KeyedStream(schema.empty_table())
    with pytest.raises(StreamDefinitionError, match="only the stream of a schema can be opened"):
        connect(Total(), items=table).open()
    with pytest.raises(StreamDefinitionError, match="tables and streams of a schema"):
        connect(ByElement(), left=KeyedStream(SCHEMA, "k", "t"), right=KeyedStream(SCHEMA, "k", "t"),
                rules=BroadcastStream(SCHEMA.empty_table(), "t"))  # fmt: skip


def test_a_folder_of_another_operator(tmp_path: Path) -> None:
    def opened(operator: StreamOperator, columns: list[tuple[str, pa.DataType]], key: str | None) -> LiveEngine:
        stream: Any = KeyedStream(pa.schema(columns), key)
        return connect(operator, items=stream).open(tmp_path)

    with opened(Total(), [("v", pa.int64())], None) as engine:
        engine.process({"v": 1})
    with pytest.raises(CheckpointMismatchError):
        opened(Idle(), [("k", pa.string())], "k")
