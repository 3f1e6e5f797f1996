"""The contracts on Spark: as streams, with a restart in between, and in batch; few queries, each with many of them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import tests.contracts.contracts
import tests.contracts.spark_host
from asterism.columns.schemas import schema_of
from asterism.operators.operator import InputSpec
from asterism.operators.stream_operator import Input, Output, StreamOperator
from asterism.spark.host import stateful
from asterism.streams.data_streams import BroadcastStream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import OperatorStream, connect
from asterism.testing import Send, StreamOperatorHarness
from tests.contracts.contracts import CONTRACTS, TYPES, Contract
from tests.contracts.spark_host import ContractHost, Stream, write_steps
from tests.contracts.test_pure import counted

pytestmark = pytest.mark.spark

for module in (tests.contracts.contracts, tests.contracts.spark_host, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # Spark's workers do not find the tests


def check(contract: Contract, expected: Mapping[str, Sequence[Any]], outputs: Mapping[str, Sequence[Any]]) -> None:
    for name, rows in outputs.items():
        assert counted(rows) == counted(expected.get(name, ())), f"{contract.name}: {name}"


@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateful, "OperatorHost", ContractHost)


@pytest.mark.usefixtures("hosted")
def test_contracts_on_streams(spark: SparkSession, tmp_path: Path) -> None:
    check_streams(spark, tmp_path, 2, 3, 5)


def check_streams(spark: SparkSession, tmp_path: Path, key_groups: int, pages: int, files: int) -> None:
    """One step after the other, or several in a micro-batch; the query is started anew in the middle, and then drained."""
    contracts = [c for c in CONTRACTS if c.stream and (files == 1 or c.batch is True) and (key_groups == 1 or c.spread)]
    assert len(contracts) > 15
    later = tmp_path / "later"
    paths = write_steps(contracts, tmp_path / "in")
    later.mkdir()
    for path in paths[len(paths) // 2 :]:
        path.rename(later / path.name)
    stream = Stream(spark, contracts, tmp_path, key_groups=key_groups, pages=pages, files=files)
    stream.run(drain=False)
    for path in sorted(later.iterdir()):
        path.rename(tmp_path / "in" / path.name)
    stream.run(drain=files != 1)
    if files == 1:
        stream.run(drain=True)
    outputs, counts = stream.found()
    for contract, found, count in zip(contracts, outputs, counts, strict=True):
        check(contract, contract.expected, found)
        assert count == Counter(contract.counts), contract.name


def connected(spark: SparkSession, contract: Contract, **options: Any) -> OperatorStream:
    """A contract's operator, connected to bounded DataFrames that have all its elements."""
    harness = StreamOperatorHarness(contract.operator, contract.inputs)
    streams: dict[str, KeyedStream | BroadcastStream] = {}
    for name, wire in harness.streams.wires.items():
        tables = [
            harness.table(name, step.rows) for step in contract.steps if isinstance(step, Send) and step.input == name
        ]
        table = pa.concat_tables([wire.schema.empty_table(), *tables])
        # One partition, so that there is an order of arrival.
        df = spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True)).coalesce(1)
        spec: InputSpec = harness.streams.inputs[name]
        streams[name] = BroadcastStream(df, wire.time) if spec.broadcast else KeyedStream(df, wire.keys, wire.time)
    return connect(contract.operator, streams, **options)


ECHOED = ", ".join(f"c{n} {kind}" for n, kind in enumerate(TYPES))


class Echo(StreamOperator):
    """Columns of all types go in and out, by element and by batch."""

    clicks = Input(ECHOED)
    again = Input(ECHOED)
    out = Output(ECHOED)

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.out.collect(e)

    @again.process_batch
    def batch(self, batch: pa.Table, ctx: Any) -> None:
        self.out.collect_batch(batch)


def test_types_come_out_as_they_went_in(spark: SparkSession) -> None:
    schema = schema_of(ECHOED)
    arrays = [
        pa.array([values[0], values[-1], None], field.type)
        for values, field in zip(TYPES.values(), schema, strict=True)
    ]
    table = pa.table(arrays, schema=schema)
    df = spark.createDataFrame(table, from_arrow_schema(schema, prefer_timestamp_ntz=True))
    found = connect(Echo(), clicks=KeyedStream(df, "c4"), again=KeyedStream(df, "c4")).output("out")
    assert found.schema == df.schema
    assert Counter(map(str, found.collect())) == Counter(map(str, [*df.collect(), *df.collect()]))
