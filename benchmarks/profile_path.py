"""What the Python side of a stream costs, without Spark: ``python -m benchmarks.profile_path --size S --workload W2``.

Drives what Spark's workers run, over the same data: the pack stage (conditions, one chunk per key group) and the stateful
stage (chunks, state and watermark of one key group a call), with the state in a dictionary. Prints CPU time per event and the
number of Python function calls per event; far below one of these says that no Python object is made for an event.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from asterism.columns.groups import KEY_HASH
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.matching.operator import EVENTS, CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import Arrival, Now
from asterism.operators.state_store import MemoryStore, batch_from_bytes
from asterism.spark.exchange import pack, results
from asterism.spark.partitioning import label
from benchmarks import harness
from benchmarks.gen_data import SIZES
from benchmarks.workloads import DISORDER, KEY, TIME, WORKLOADS, Workload

KEY_GROUPS = 32
OUTPUT = OutputKind.MATCHES.value
STAGE_NAMES = ("pack", "process")

Chunks = dict[int, list[tuple[int | None, bytes | None]]]
Results = list[bytes]


class Stages:
    """The stages, and what they were given and gave."""

    def __init__(self, workload: Workload, schema: pa.Schema) -> None:
        spec = OutputSpec(OutputKind.MATCHES, measures=workload.measures)
        self.workload = workload
        self.operator = CepOperator(workload.pattern, schema, keys=[KEY], time=TIME, outputs={OUTPUT: spec})
        self.stores = {label(group): MemoryStore() for group in range(KEY_GROUPS)}
        self.calls = 0

    def relevant(self, events: pa.Table) -> pa.RecordBatch:
        """What Spark does: the filter and the hash of the key."""
        if self.workload.kinds is not None:
            events = events.filter(pc.is_in(events.column("kind"), pa.array(self.workload.kinds)))
        mixed = events.column(KEY).to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        names = self.operator.inputs[EVENTS].schema.names
        needed = events.select(names).append_column(KEY_HASH, pa.array(mixed.view(np.int64)))
        return needed.combine_chunks().to_batches()[0]

    def pack(self, events: pa.RecordBatch, chunks: Chunks) -> None:
        delay = DISORDER // timedelta(microseconds=1)
        for packed in pack(self.operator, KEY_GROUPS, EVENTS, delay)(iter([events])):
            columns = (packed.column(name).to_pylist() for name in ("key_group", "watermark", "chunk"))
            for group, watermark, chunk in zip(*columns, strict=True):
                chunks[group].append((watermark, chunk))

    def process(self, chunks: Chunks, watermark: int, found: Results) -> None:
        schema = self.operator.inputs[EVENTS].prepared
        for group, store in self.stores.items():
            arrivals = [
                Arrival(
                    EVENTS,
                    None if chunk is None else batch_from_bytes(chunk, schema),
                    BEFORE_TIME if latest is None else latest,
                )
                for latest, chunk in chunks.get(group, [])
            ]
            result = self.operator.process(store, arrivals, Now(watermark))
            found += [chunk for _, chunk, _ in results(result.outputs)]
            self.calls += 1


def drive(
    workload: Workload, files: list[Path], batches: int, around: Callable[[str, Callable[[], None]], None]
) -> tuple[Stages, Results]:
    """The stream in so many micro-batches, each stage called through *around*."""
    schema = pq.read_schema(files[0])
    schema = schema.set(schema.names.index(TIME), pa.field(TIME, pa.timestamp("us", "UTC")))  # as Spark hands it over
    path = Stages(workload, schema)
    found: Results = []
    for part in np.array_split(np.array(files, dtype=object), batches):
        chunks: Chunks = defaultdict(list)
        for file in part:
            table = pq.read_table(file)
            events = path.relevant(table.cast(schema))
            around("pack", partial(path.pack, events, chunks))
        around("process", partial(path.process, chunks, BEFORE_TIME, found))
    around("process", partial(path.process, {}, END_OF_TIME, found))
    return path, found


def check(path: Stages, found: Results, size: str) -> None:
    workload = path.workload
    schema = path.operator.output_schemas[OUTPUT]
    matches = pa.concat_tables([batch_from_bytes(chunk, schema) for chunk in found])
    answer = (
        matches.num_rows,
        harness.checksum(workload.tag, workload.times(matches)),
    )
    if answer != harness.expected(size, workload.name):
        raise SystemExit(f"WRONG: {workload.name}: {answer}, expected {harness.expected(size, workload.name)}")


def main(arguments: list[str] | None = None) -> None:
    cli = argparse.ArgumentParser(
        prog="python -m benchmarks.profile_path", description="Profile the Python side of a stream."
    )
    cli.add_argument("--size", choices=list(SIZES), default="S")
    cli.add_argument(
        "--data", type=Path, help="folder of the data, generated if absent; default: benchmarks/data/<size>"
    )
    cli.add_argument("--workload", choices=list(WORKLOADS), default="W2")
    cli.add_argument("--batches", type=int, default=4)
    cli.add_argument("--top", type=int, default=25, help="functions to show")
    args = cli.parse_args(arguments)

    files = sorted((harness.data_folder(args.size, args.data) / "parquet").glob("*.parquet"))
    workload = WORKLOADS[args.workload]
    events = SIZES[args.size][0]

    seconds = dict.fromkeys(STAGE_NAMES, 0.0)

    def timed(stage: str, work: Callable[[], Any]) -> None:
        begin = time.process_time()
        work()
        seconds[stage] += time.process_time() - begin

    profiles = {stage: cProfile.Profile() for stage in STAGE_NAMES}
    drive(
        workload, files, args.batches, lambda stage, work: work()
    )  # warms up: the kernel is compiled, or read from its cache
    path, found = drive(workload, files, args.batches, timed)
    check(path, found, args.size)
    drive(workload, files, args.batches, lambda stage, work: profiles[stage].runcall(work))
    for stage, profile in profiles.items():
        out = io.StringIO()
        stats = pstats.Stats(profile, stream=out).strip_dirs().sort_stats("tottime")
        stats.print_stats(args.top)
        print(f"==== {stage}\n{out.getvalue().strip()}\n")
        print(
            f"{workload.name} {stage}: {seconds[stage] * 1e9 / events:,.0f} ns of CPU per event,"
            f" {stats.total_calls / events:.4f} Python function calls per event\n"  # type: ignore[attr-defined]
        )
    print(
        f"{workload.name}: {path.calls:,} calls of the stateful stage, {seconds['process'] * 1e6 / path.calls:,.0f} µs each"
    )


if __name__ == "__main__":
    main()
