"""W1 through live engines in several processes or threads: ``python -m benchmarks.live_processes --size M``, without Spark.

Each engine has a part of the keys, as each process of a consumer group has a part of the partitions of a topic. The events of a
part are in memory before the run, as batches of 10,000 in the order of their arrival. A run is measured from the first batch of
the first engine to the end of the last one, with snapshots each second on the disk, and with the end of the stream, which fires
every deadline. ``rest_events_per_s`` is the rate without this last call.

One JSON line per run. A result that is not the expected one makes the exit status 1. The first rounds, all with the number 0,
warm up.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from asterism import CEP, KeyedStream, LiveEngine
from benchmarks import harness
from benchmarks.gen_data import Parameters
from benchmarks.workloads import COLUMNS, DISORDER, KEY, TIME, WORKLOADS, Workload

BATCH = 10_000
PROCESSES, THREADS = "processes", "threads"


@dataclass(frozen=True, slots=True)
class PartOfRun:
    """What one engine has done. Times are those of the monotonic clock, which all processes share."""

    began: float
    ended: float
    finish: float
    """The seconds of the last call, which ends the stream."""
    cpu: float
    """The CPU seconds of the thread that calls the engine."""
    matches: int
    checksum: int


class Barrier(Protocol):
    def wait(self) -> int: ...


class Part:
    """The events of a part of the keys, in batches."""

    def __init__(self, workload: Workload, parquet: Path, number: int, parts: int) -> None:
        events = pq.read_table(parquet, columns=[*COLUMNS])
        keys = events.column(KEY)
        mine = pc.subtract(keys, pc.multiply(pc.divide(keys, parts), parts))
        events = events.filter(pc.equal(mine, number)).combine_chunks()
        self.workload, self.schema = workload, events.schema
        self.batches = [events.slice(begin, BATCH) for begin in range(0, events.num_rows, BATCH)]

    def opened(self, folder: Path) -> LiveEngine:
        stream: Any = KeyedStream(self.schema, key=KEY, time=TIME, max_out_of_orderness=DISORDER)
        assert self.workload.measures is not None
        return CEP.pattern(stream, self.workload.pattern).open(folder, select={"matches": list(self.workload.measures)})

    def run(self, barrier: Barrier) -> PartOfRun:
        """Begin when all parts do."""
        found: list[pa.Table] = []
        with tempfile.TemporaryDirectory() as folder, self.opened(Path(folder)) as engine:
            barrier.wait()
            began, cpu = time.monotonic(), time.thread_time()
            for number, batch in enumerate(self.batches):
                found.append(engine.process(batch, position=number)["matches"])
            last = time.monotonic()
            found.append(engine.finish()["matches"])
            ended, cpu = time.monotonic(), time.thread_time() - cpu
        matches = pa.concat_tables(found)
        checksum = int(harness.checksum(self.workload.tag, self.workload.times(matches)), 16)
        return PartOfRun(began, ended, ended - last, cpu, matches.num_rows, checksum)


Round = Callable[[], list[PartOfRun]]


@contextmanager
def in_threads(workload: Workload, parquet: Path, parts: int) -> Iterator[Round]:
    engines = [Part(workload, parquet, number, parts) for number in range(parts)]

    def measured() -> list[PartOfRun]:
        made: dict[int, PartOfRun] = {}
        barrier = threading.Barrier(parts)

        def run(number: int) -> None:
            made[number] = engines[number].run(barrier)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(parts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [made[number] for number in range(parts)]

    yield measured


@contextmanager
def in_processes(workload: Workload, parquet: Path, parts: int) -> Iterator[Round]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(parts)
    with ExitStack() as stack:
        ends: list[Connection] = []
        for number in range(parts):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(workload.name, parquet, number, parts, barrier, there))
            process.start()
            there.close()
            stack.callback(process.join)
            ends.append(stack.enter_context(here))

        def measured() -> list[PartOfRun]:
            for end in ends:
                end.send("run")
            return [end.recv() for end in ends]

        yield measured


def _serve(name: str, parquet: Path, number: int, parts: int, barrier: Barrier, end: Connection) -> None:
    """Run as often as the other end asks, until it is closed."""
    part = Part(WORKLOADS[name], parquet, number, parts)
    while True:
        try:
            end.recv()
        except EOFError:
            return
        end.send(part.run(barrier))


def record_of(size: str, workload: Workload, mode: str, number: int, made: Sequence[PartOfRun]) -> dict[str, Any]:
    seconds = max(part.ended for part in made) - min(part.began for part in made)
    rest = seconds - max(part.finish for part in made)
    events = Parameters.of_size(size).events
    answer = sum(part.matches for part in made), f"{sum(part.checksum for part in made) % 2**64:016x}"
    return {
        "workload": workload.name, "mode": mode, "engines": len(made), "round": number, "events": events,
        "seconds": round(seconds, 3), "events_per_s": round(events / seconds), "rest_events_per_s": round(events / rest),
        "cpu_s": round(sum(part.cpu for part in made), 3), "matches": answer[0], "checksum": answer[1],
        "ok": answer == harness.expected(size, workload.name),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    cli = harness.command_line("live_processes", "Measure W1 in live engines.")
    cli.add_argument("--workloads", default="W1", help="of W1 to W4; default: W1")
    cli.add_argument("--modes", default=PROCESSES, help=f"{PROCESSES}, {THREADS}; default: {PROCESSES}")
    cli.add_argument("--engines", default="1,2", help="default: 1,2")
    cli.add_argument("--runs", type=int, default=3, help="rounds after the warm-up")
    cli.add_argument("--warm-ups", type=int, default=1, help="rounds that warm up")
    args = cli.parse_args(arguments)
    parquet = harness.data_folder(args.size, args.data) / "parquet"
    ok = True
    for name in args.workloads.split(","):
        for mode in args.modes.split(","):
            for engines in map(int, args.engines.split(",")):
                opened = in_processes if mode == PROCESSES else in_threads
                with opened(WORKLOADS[name], parquet, engines) as measured:
                    for number in range(1 - args.warm_ups, args.runs + 1):
                        record = record_of(args.size, WORKLOADS[name], mode, max(number, 0), measured())
                        ok = ok and record["ok"]
                        print(json.dumps(record), flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
