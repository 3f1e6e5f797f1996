"""The conformance corpus on Spark: many cases in one streaming query, since starting a query takes seconds.

Every micro-batch has the next piece of each case: some events, or a watermark. This tests:

* the columnar exchange: conditions are evaluated and rows packed before the shuffle, results are returned as chunks;
* key groups, and the host that calls the operator;
* Spark's state store, which has the whole state of a case (partial matches, buffered events) between two pieces;
* a restart: the query stops in the middle of every case, and another one continues from its checkpoint;
* pickling: workers get the operators as bytes.

It does not test Spark's own watermark, timers and the control source. Each case has a separate watermark, which is part of
its pieces.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism.columns.groups import KEY_HASH
from asterism.conformance.corpus import SCHEMA, Answer, Case, Outcome, judge, pieces, rng_for
from asterism.conformance.engines import Collected, operator_for
from asterism.matching.operator import CepOperator
from asterism.operators.operator import EVENTS, Arrival, InputSpec, Now, Operator, Result
from asterism.operators.state.state_store import StateStore, batch_from_bytes, batch_to_bytes
from asterism.patterns.semantics import Semantics
from asterism.spark import CHUNKS, RESULTS
from asterism.spark.host.exchange import pack
from asterism.spark.host.host import OperatorHost
from asterism.spark.host.stateful import processing_time_column
from asterism.spark.session.settings import configure_state_store

KEY_GROUPS = 16
PIECES = pa.schema([("number", pa.int64()), ("events", pa.list_(pa.struct(list(SCHEMA)))), ("watermark", pa.int64())])
_PIECES_DDL = (
    "number long, events array<struct<id: long, ts: long, name: string, price: double, volume: long>>, watermark long"
)
PREPARED = pa.schema(
    [("number", pa.int64()), ("events", pa.binary()), ("watermark", pa.int64()), ("error", pa.string())]
)
ANSWERS = pa.schema([("number", pa.int64()), ("output", pa.string()), ("rows", pa.binary())])
ERROR = "error"
"""The output in ANSWERS for a case that failed. Its rows are the error message."""


class Cases(Operator):
    """Runs the operators of many cases, each with separate state. A case is identified by its index.

    The operators are stored in *folder*, since PySpark 4.3 cannot start a query whose pickled stateful processor is larger
    than 1 MiB (it becomes a broadcast variable, which the process that prepares the query does not load).
    """

    def __init__(self, operators: Mapping[int, CepOperator], folder: Path) -> None:
        self.folder = str(folder)
        folder.mkdir()
        for number, operator in operators.items():
            (folder / str(number)).write_bytes(pickle.dumps(operator))
        self.fingerprint = hashlib.sha256(b"".join(op.fingerprint for op in operators.values())).digest()[:16]
        self.output_schemas = {"answers": ANSWERS}
        self.inputs = {EVENTS: InputSpec(PIECES, PREPARED, timed=False)}
        self.pages = 2 * len(operators)
        self.processing_time = False
        self.metrics = ()

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        rows = [self._prepared(row) for row in events.select(PIECES.names).to_pylist()]
        return pa.Table.from_pylist(rows, PREPARED)

    def _prepared(self, row: dict[str, Any]) -> dict[str, Any]:
        events, error = None, None
        if row["events"]:
            try:
                prepared = _operator(self.folder, row["number"]).prepare(
                    EVENTS, pa.Table.from_pylist(row["events"], SCHEMA)
                )
                events = batch_to_bytes(prepared)
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}"
        return {"number": row["number"], "events": events, "watermark": row["watermark"], "error": error}

    def slices(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Iterator[Result]:
        answers = []
        for arrival in arrivals:
            for row in [] if arrival.events is None else arrival.events.to_pylist():
                answers += [{"number": row["number"], "output": o, "rows": r} for o, r in self._answers(store, row)]
        yield Result({"answers": pa.Table.from_pylist(answers, ANSWERS)})

    def _answers(self, store: StateStore, row: dict[str, Any]) -> list[tuple[str, bytes]]:
        if row["error"] is not None:
            return [(ERROR, row["error"].encode())]
        operator = _operator(self.folder, row["number"])
        prepared = operator.inputs[EVENTS].prepared
        arrivals = [] if row["events"] is None else [Arrival(EVENTS, batch_from_bytes(row["events"], prepared))]
        try:
            outputs = operator.process(_StateOfCase(store, row["number"]), arrivals, Now(row["watermark"])).outputs
        except Exception as failure:
            return [(ERROR, f"{type(failure).__name__}: {failure}".encode())]
        return [(output, batch_to_bytes(rows)) for output, rows in outputs.items()]


@lru_cache(maxsize=10_000)
def _operator(folder: str, number: int) -> CepOperator:
    """The operator of a case. Operators are stateless, so that a worker can cache them between micro-batches."""
    operator: CepOperator = pickle.loads(Path(folder, str(number)).read_bytes())
    return operator


class _StateOfCase:
    """The state of one case. Its header and its only page are two pages of the key group."""

    def __init__(self, store: StateStore, number: int) -> None:
        self.store, self.header = store, 2 * number

    def read_header(self) -> bytes | None:
        return self.store.read_page(self.header)

    def write_header(self, value: bytes | None) -> None:
        self.store.write_page(self.header, value)

    def read_page(self, number: int) -> bytes | None:
        return self.store.read_page(self.header + 1 + number)

    def write_page(self, number: int, value: bytes | None) -> None:
        self.store.write_page(self.header + 1 + number, value)


def run_cases(
    spark: SparkSession,
    cases: Sequence[Case],
    folder: Path,
    semantics: Semantics = Semantics.FLINK,
    cuts: str = "whole",
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    rounds: int | None = None,
) -> Iterator[Outcome]:
    """Run all *cases* in one streaming query and compare their results.

    :param folder: an empty folder, for input, operators and checkpoint
    :param progress: a function that is called with the number of finished micro-batches and their total number
    :param rounds: the maximum number of micro-batches before the restart, and after it. None: one per piece of a case.
    """
    operators: dict[int, CepOperator] = {}
    errors: dict[int, Exception] = {}
    for number, case in enumerate(cases):
        try:
            operators[number] = operator_for(case, semantics)
        except Exception as error:
            errors[number] = error
    before, after = micro_batches(cases, operators, cuts, seed, rounds)
    chunks: dict[int, list[bytes]] = {}

    def collect(df: DataFrame, batch_id: int) -> None:
        chunks[batch_id] = [bytes(row.chunk) for row in df.collect()]
        progress(len(chunks), len(before) + len(after))

    source = folder / "pieces"
    source.mkdir()
    hosted = Cases(operators, folder / "operators")
    written = 0
    for batches in (before, after):
        for batch in batches:
            written += 1
            file = source / f"{written:05}.parquet"
            pq.write_table(batch, file)
            os.utime(file, (written, written))  # Spark reads the oldest file first
        if batches:
            _run(spark, hosted, source, folder / "checkpoint", collect)
    collected = {number: Collected() for number in operators}
    for chunk in chain.from_iterable(chunks[batch_id] for batch_id in sorted(chunks)):
        for row in batch_from_bytes(chunk, ANSWERS).to_pylist():
            number, output, rows = row["number"], row["output"], row["rows"]
            if output == ERROR:
                errors.setdefault(number, RuntimeError(rows.decode()))
            else:
                collected[number].add({output: batch_from_bytes(rows, operators[number].output_schemas[output])})
    for number, case in enumerate(cases):
        answer: Answer | Exception = errors[number] if number in errors else collected[number].as_json()
        yield judge(case, answer)


def micro_batches(
    cases: Sequence[Case], numbers: Iterable[int], cuts: str, seed: int, rounds: int | None = None
) -> tuple[list[pa.Table], list[pa.Table]]:
    """The micro-batches before the restart and after it. Each has the next piece of every case, or the next pieces if there
    are more than *rounds*. The restart takes place after half of the pieces of each case.
    """
    halves: tuple[list[list[list[dict[str, Any]]]], ...] = ([], [])
    for number in numbers:
        case = cases[number]
        by_id = {event[0]: dict(zip(SCHEMA.names, event, strict=True)) for event in case["events"]}
        stream = [
            {"number": number, "events": [by_id[event] for event in ids], "watermark": watermark}
            for ids, watermark in pieces(case, cuts, rng_for(case, seed))
        ]
        middle = len(stream) // 2
        for half, part in zip(halves, (stream[:middle], stream[middle:]), strict=True):
            size = 1 if rounds is None else max(1, -(-len(part) // rounds))
            half.append([part[n : n + size] for n in range(0, len(part), size)])
    before, after = (
        [
            pa.Table.from_pylist([row for rows in batch for row in rows], PIECES)
            for batch in zip_longest(*half, fillvalue=[])
        ]
        for half in halves
    )
    return before, after


def _run(
    spark: SparkSession, operator: Cases, source: Path, checkpoint: Path, sink: Callable[[DataFrame, int], None]
) -> None:
    """Process the files that have not been processed yet."""
    configure_state_store(spark)
    hosted: Any = operator
    arrived = spark.readStream.schema(_PIECES_DDL).option("maxFilesPerTrigger", 1).parquet(str(source))
    packed = arrived.withColumn(KEY_HASH, F.xxhash64("number")).mapInArrow(pack(hosted, KEY_GROUPS, EVENTS), CHUNKS)
    results = (
        packed.withColumn("processing_time", processing_time_column())
        .groupBy("key_group")
        .transformWithState(
            statefulProcessor=OperatorHost(hosted),
            outputStructType=RESULTS,
            outputMode="Append",
            timeMode="None",
        )
    )
    writer = results.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
