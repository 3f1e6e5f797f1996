"""The contracts over Arrow tables, without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.operators.operator import InputSpec
from asterism.operators.stream_operator import Output
from asterism.streams.data_streams import BroadcastStream, DataStream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import OperatorStream, connect
from asterism.testing import Send, StreamOperatorHarness
from tests.contracts.contracts import CONTRACTS, Contract, Instances
from tests.contracts.test_pure import counted
from tests.operators.test_stream_operator_property import ELEMENTS, EPOCH, INPUTS, SECOND, ByElement, Model, arrival

IN_BATCH = [contract for contract in CONTRACTS if contract.batch]


def connected(contract: Contract, **options: Any) -> OperatorStream[pa.Table]:
    """A contract's operator, connected to tables that have all its elements."""
    harness = StreamOperatorHarness(contract.operator, contract.inputs)
    streams: dict[str, Any] = {}
    for name, wire in harness.streams.wires.items():
        sent = [step.rows for step in contract.steps if isinstance(step, Send) and step.input == name]
        table = pa.concat_tables([wire.schema.empty_table(), *(harness.table(name, rows) for rows in sent)])
        spec: InputSpec = harness.streams.inputs[name]
        streams[name] = (
            BroadcastStream(table, wire.time) if spec.broadcast else KeyedStream(table, wire.keys, wire.time)
        )
    return connect(contract.operator, streams, **options)


@pytest.mark.parametrize("contract", IN_BATCH, ids=lambda contract: contract.name)
def test_contract(contract: Contract) -> None:
    expected = contract.batch if isinstance(contract.batch, Mapping) else contract.expected
    for key_groups in (2, None) if contract.spread else (2,):
        stream = connected(contract, key_groups=key_groups)
        for name in contract.operator.declared(Output):
            assert counted(stream.output(name).to_pylist()) == counted(expected.get(name, ())), name


@given(elements=ELEMENTS, data=st.data(), key_groups=st.sampled_from([1, 3, None]))
def test_elements(elements: list[tuple[str, str, int, int]], data: st.DataObject, key_groups: int | None) -> None:
    """Random programs give what the model gives, as the harness does."""
    arrived = arrival(elements, data)
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    tables = {
        name: pa.Table.from_pylist(
            [{"k": k, "t": EPOCH + SECOND * t, "v": v} for of, k, t, v in arrived if of == name], schema
        )
        for name in INPUTS
    }
    stream = connect(
        ByElement(),
        left=KeyedStream(tables["left"], "k", "t"),
        right=KeyedStream(tables["right"], "k", "t"),
        rules=BroadcastStream(tables["rules"].select(["t", "v"]), "t"),
        key_groups=key_groups,
    )
    found: dict[str, list[str]] = defaultdict(list)
    for row in sorted(stream.output("log").to_pylist(), key=lambda row: (row["k"], row["n"])):
        found[row["k"]].append(row["line"])
    assert found == Model().run(arrived)


def instances_of_table(table: pa.Table) -> list[int]:
    """The numbers of elements of four instances."""
    instances = connect(Instances(), items=DataStream(table, time="t"), key_groups=4)
    return sorted(instances.output("counts").column("n").to_pylist())


def test_elements_without_a_key_are_distributed() -> None:
    """``test_spark_slow.py`` compares the instances with those on Spark."""
    times = pa.array([number * 1_000_000 for number in range(40)], pa.timestamp("us", "UTC"))
    more = pa.array([[("a", 1)]] * 40, pa.map_(pa.string(), pa.int32()))
    counts = instances_of_table(pa.table({"t": times, "v": list(range(40)), "more": more, "unread": ["x"] * 40}))
    assert (len(counts), sum(counts)) == (4, 40)
