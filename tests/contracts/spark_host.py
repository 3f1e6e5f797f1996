"""Many contracts in one Spark query: each has key groups of its own in one stateful stage, and a file is a step of all of them.

The operators, their state and their timelines go through the library's exchange, host and state store; what is different from a
query of a user's is that watermarks and ends of inputs are written in the files, so that a timeline is kept to the letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from asterism.columns.groups import KEY_HASH
from asterism.columns.time import END_OF_TIME
from asterism.operators.operator import Arrival, Now, Result
from asterism.operators.state.state_store import StateStore, batch_from_bytes, batch_to_bytes
from asterism.spark import CHUNKS
from asterism.spark.host.exchange import pack
from asterism.spark.host.host import NO_TIME, WATERMARK, OperatorHost
from asterism.spark.host.partitioning import group_of, label
from asterism.spark.host.stateful import Use, stateful
from asterism.testing import End, Send, StreamOperatorHarness, Watermark
from asterism.testing.literals import WORDS
from asterism.testing.operator_harness import key_hashes
from tests.contracts.contracts import Contract
from tests.spark.streams import write_file

FILES = pa.schema(
    [
        ("contract", pa.int32()),
        ("step", pa.int32()),
        ("input", pa.string()),
        ("watermark", pa.int64()),
        ("rows", pa.binary()),
    ]
)
SEPARATOR = "/"


class Together:
    """The operators of several contracts as one: contract *n* has the key groups from ``n * key_groups`` on."""

    processing_time = False
    fingerprint = b"contracts"

    def __init__(self, contracts: Sequence[Contract], key_groups: int, pages: int) -> None:
        self.key_groups, self.pages = key_groups, pages
        self.operators = [StreamOperatorHarness(c.operator, c.inputs, pages=pages).streams for c in contracts]
        self.metrics: Sequence[str] = ()
        self.gauges: Mapping[str, str] = {}
        self.histograms: Mapping[str, Sequence[float]] = {}
        self.current = 0

    @property
    def inputs(self) -> Mapping[str, Any]:
        return self.operators[self.current].inputs

    def open(self) -> None:
        for operator in self.operators:
            operator.open()

    def close(self) -> None:
        for operator in self.operators:
            operator.close()

    def slices(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Iterator[Result]:
        def named(values: Mapping[str, Any]) -> dict[str, Any]:
            return {f"{self.current}{SEPARATOR}{name}": value for name, value in values.items()}

        own = replace(now, key_group=None if now.key_group is None else now.key_group % self.key_groups)
        for result in self.operators[self.current].slices(store, arrivals, own):
            yield replace(result, outputs=named(result.outputs), metrics=named(result.metrics))

    def pack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``: FILES to CHUNKS."""
        columns = [column.split()[0] for column in CHUNKS.split(", ")]
        for batch in batches:
            chunks = [chunk for row in batch.to_pylist() for chunk in self._chunks(**row)]
            values: list[Any] = list(zip(*chunks, strict=True))
            table = pa.table(values or [[]] * 5, names=columns)
            types = [pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.binary()]
            yield from table.cast(pa.schema(list(zip(columns, types, strict=True)))).to_batches()

    def _chunks(
        self, contract: int, step: int, input: str, watermark: int | None, rows: bytes | None
    ) -> Iterator[tuple[int, str, int, int | None, bytes | None]]:
        operator = self.operators[contract]
        first = contract * self.key_groups
        if rows is None:
            yield from ((label(first + group), input, step, watermark, None) for group in range(self.key_groups))
            return
        elements = batch_from_bytes(rows, operator.wires[input].schema)
        hashes = key_hashes(elements.select(operator.wires[input].keys))
        (hashed,) = elements.append_column(KEY_HASH, pa.array(hashes)).to_batches()
        for packed in pack(operator, self.key_groups, input)(iter([hashed])):
            for chunk in packed.to_pylist():
                if chunk["chunk"] is not None:  # else it is the watermark that follows from the elements
                    yield label(first + group_of(chunk["key_group"])), input, step, None, chunk["chunk"]


class ContractHost(OperatorHost):
    """The library's host, which tells the operator whose key group it is."""

    def _process(self, key: Any, *args: Any, **options: Any) -> Any:
        operator: Any = self.operator
        operator.current = group_of(key[0]) // operator.key_groups
        return super()._process(key, *args, **options)


def write_steps(contracts: Sequence[Contract], folder: Path) -> list[Path]:
    """File *n* has step *n* of every contract; a contract that has fewer steps begins later, at random places."""
    longest = max(len(contract.steps) for contract in contracts)
    steps: list[list[dict[str, Any]]] = [[] for _ in range(longest)]
    for number, contract in enumerate(contracts):
        harness = StreamOperatorHarness(contract.operator, contract.inputs)
        begin = number % (longest - len(contract.steps) + 1)
        for at, step in enumerate(contract.steps, begin):
            row: dict[str, Any] = {"contract": number, "step": at}
            match step:
                case Send(input, rows):
                    table = harness.table(input, rows)
                    steps[at].append(row | {"input": input, "rows": batch_to_bytes(table)})
                case Watermark(to, input):
                    names = (
                        [n for n, spec in harness.streams.inputs.items() if spec.timed] if input is None else [input]
                    )
                    steps[at] += [row | {"input": name, "watermark": WORDS.micros(to)} for name in names]
                case End(str(input)):
                    steps[at].append(row | {"input": input, "watermark": END_OF_TIME})
    return [write_file(pa.Table.from_pylist(found, FILES), folder, number) for number, found in enumerate(steps)]


class Stream:
    """A query over the files in a folder; :attr:`outputs` and :attr:`counts` have what came out, by contract."""

    def __init__(
        self,
        spark: SparkSession,
        contracts: Sequence[Contract],
        folder: Path,
        *,
        key_groups: int,
        pages: int,
        files: int,
    ) -> None:
        self.spark, self.contracts, self.folder = spark, contracts, folder
        self.together = Together(contracts, key_groups, pages)
        self.files = files
        self.batches: dict[int, list[Any]] = {}

    def run(self, *, drain: bool) -> None:
        files = self.spark.readStream.schema("contract INT, step INT, input STRING, watermark BIGINT, rows BINARY")
        source = files.option("maxFilesPerTrigger", self.files).parquet(str(self.folder / "in"))
        results = stateful(
            self.together,  # type: ignore[arg-type]
            [source.mapInArrow(self.together.pack, CHUNKS)],
            time_mode=NO_TIME,
            streams={},
            use=Use(drain, key_groups=self.together.key_groups * len(self.contracts)),
        )

        def collect(df: DataFrame, batch_id: int) -> None:
            self.batches[batch_id] = df.collect()

        writer = results.writeStream.foreachBatch(collect).option("checkpointLocation", str(self.folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def found(self) -> tuple[list[dict[str, list[Any]]], list[Counter[str]]]:
        """For each contract the rows by output, and the counts."""
        rows = [row for batch in self.batches.values() for row in batch]
        outputs: list[dict[str, list[Any]]] = [
            {name: [] for name in operator.output_schemas} for operator in self.together.operators
        ]
        counts: list[Counter[str]] = [Counter() for _ in self.contracts]
        for row in rows:
            if row.output is None:
                for name, count in row.metrics.items():
                    if name == WATERMARK:
                        continue
                    number, metric = name.split(SEPARATOR)
                    counts[int(number)][metric] += count
            else:
                number, output = row.output.split(SEPARATOR)
                schema = self.together.operators[int(number)].output_schemas[output]
                outputs[int(number)][output] += batch_from_bytes(bytes(row.chunk), schema).to_pylist()
        return outputs, counts
