"""What carrying an operator costs on Spark: ``python -m benchmarks.host_overhead --size S``.

Runs operators with three inputs over the benchmark's events, as streams, in a few micro-batches and a drain, with a host that
measures itself: the time in its calls (chunks decoded, state read and written, results encoded, all round trips to the JVM), and,
inside of that, the time in ``operator.process``. One JSON line per run:

* ``host_s``, ``process_s``, ``ratio``: the two, and the first over the second; below 1.1 carrying costs less than a tenth;
* ``host_cpu_s``, ``process_cpu_s``, ``cpu_ratio``: the same in CPU time of the thread, for machines that do other things too;
  waiting for the JVM is not in it;
* ``open_s``: unpickling and opening the operator, once a task, which is in neither; the first task of a process imports it;
* ``call_ms``: of a call, on average, the host's own part.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from asterism import (
    BroadcastInput,
    BroadcastMapState,
    BroadcastStream,
    Context,
    Counter,
    Element,
    Input,
    KeyedStream,
    Output,
    StreamOperator,
    Timer,
    ValueState,
    connect,
)
from asterism.spark.host import execution as plan
from asterism.spark.host.host import OperatorHost
from benchmarks import harness
from benchmarks.gen_data import SIZES
from benchmarks.streaming import in_order_of_arrival
from benchmarks.workloads import DISORDER, KEY, TIMESTAMP

EVENT = "user_id BIGINT, ts TIMESTAMP, amount DOUBLE"


class Totals(StreamOperator):
    """In columns: how much each user looked at and spent, told whenever a user passes another multiple of the limit."""

    looks = Input(EVENT)
    buys = Input(EVENT)
    limits = BroadcastInput("name STRING, value DOUBLE")
    looked = ValueState("BIGINT")
    spent = ValueState("DOUBLE")
    limit = BroadcastMapState("STRING", "DOUBLE")
    big = Output("user_id BIGINT, looked BIGINT, spent DOUBLE")
    bought = Counter()

    @limits.process_element
    def set_limit(self, limit: Element, ctx: Context) -> None:
        self.limit.put(limit.name, limit.value)

    @looks.process_batch
    def look(self, batch: pa.Table, ctx: Context) -> None:
        users, counts = np.unique(ctx.keys, return_counts=True)
        before = pc.fill_null(self.looked.column(users), 0)
        self.looked.update_column(users, pc.add(before, pa.array(counts)))

    @buys.process_batch
    def buy(self, batch: pa.Table, ctx: Context) -> None:
        self.bought.inc(batch.num_rows)
        users, of_row = np.unique(ctx.keys, return_inverse=True)
        amounts = np.bincount(of_row, batch.column("amount").to_numpy())
        before = pc.fill_null(self.spent.column(users), 0.0).to_numpy()
        after = before + amounts
        self.spent.update_column(users, pa.array(after))
        limit = self.limit.get("spent", math.inf)
        passed = np.flatnonzero(after // limit > before // limit)
        looked = pc.fill_null(self.looked.column(users[passed]), 0)
        rows = ctx.key_columns(users[passed]).append_column("looked", looked)
        self.big.collect_batch(rows.append_column("spent", pa.array(after[passed])))


class Forgotten(StreamOperator):
    """One by one: what was looked at or put into a cart last, and not bought half an hour later, if that is dear enough."""

    looks = Input(EVENT)
    buys = Input(EVENT)
    limits = BroadcastInput("name STRING, value DOUBLE")
    last = ValueState("DOUBLE")
    limit = BroadcastMapState("STRING", "DOUBLE")
    forgotten = Output("user_id BIGINT, ts TIMESTAMP, amount DOUBLE")
    bought = Counter()

    @limits.process_element
    def set_limit(self, limit: Element, ctx: Context) -> None:
        self.limit.put(limit.name, limit.value)

    @looks.process_element
    def look(self, look: Element, ctx: Context) -> None:
        if look.amount >= self.limit.get("dear", 0.0):
            self.last.update(look.amount)
            ctx.register_event_time_timer("forgotten", look.ts + timedelta(minutes=30))

    @buys.process_element
    def buy(self, buy: Element, ctx: Context) -> None:
        self.bought.inc()
        self.last.clear()
        ctx.delete_event_time_timer("forgotten")

    def on_event_time_timer(self, timer: Timer, ctx: Context) -> None:
        self.forgotten.collect(user_id=ctx.key, ts=timer.time, amount=self.last.value())
        self.last.clear()


OPERATORS: dict[str, type[StreamOperator]] = {"batches": Totals, "elements": Forgotten}


# ------------------------------------------------------------------ a host that measures itself


class Stopwatch:
    """Seconds of wall clock and of CPU, and how often."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.times = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.wall += time.perf_counter() - wall
            self.cpu += time.thread_time() - cpu
            self.times += 1


class MeasuringHost(OperatorHost):
    """Writes what it measured to a file per task, in *folder*."""

    folder: str

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.watches = {name: Stopwatch() for name in ("host", "process", "open")}

    @property
    def operator(self) -> Any:
        if "operator" not in self.__dict__:
            with self.watches["open"].running():
                operator = OperatorHost.operator.func(self)  # type: ignore[attr-defined] # a cached property
            process, watch = operator.process, self.watches["process"]

            def measured(*arguments: Any) -> Any:
                with watch.running():
                    return process(*arguments)

            operator.process = measured
            self.__dict__["operator"] = operator
        return self.__dict__["operator"]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        with self.watches["host"].running():
            return iter(list(super().handleInputRows(key, rows, timerValues)))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        with self.watches["host"].running():
            return iter(list(super().handleExpiredTimer(key, timerValues, expiredTimerInfo)))

    def close(self) -> None:
        super().close()
        found = {name: (watch.wall, watch.cpu, watch.times) for name, watch in self.watches.items()}
        Path(self.folder, uuid.uuid4().hex).write_text(json.dumps(found))


def totals(folder: Path) -> dict[str, Any]:
    """The sums of what all tasks wrote."""
    tasks = [json.loads(file.read_text()) for file in folder.iterdir()]
    sums = {name: np.sum([task[name] for task in tasks], axis=0).tolist() for name in ("host", "process", "open")}
    (host, host_cpu, calls), (process, process_cpu, _), (opening, opening_cpu, _) = sums.values()
    host, host_cpu = host - opening, host_cpu - opening_cpu
    return {
        "tasks": len(tasks),
        "calls": int(calls),
        "host_s": host,
        "process_s": process,
        "ratio": host / process,
        "host_cpu_s": host_cpu,
        "process_cpu_s": process_cpu,
        "cpu_ratio": host_cpu / process_cpu,
        "open_s": opening,
        "call_ms": 1000 * (host - process) / calls,
    }


# ------------------------------------------------------------------ a run


def run(spark: SparkSession, name: str, files: Path, batches: int, key_groups: int) -> dict[str, Any]:
    per_batch = math.ceil(len(list(files.glob("*.parquet"))) / batches)
    schema = spark.read.parquet(str(files)).schema
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", per_batch).parquet(str(files))
    limits = spark.createDataFrame([("dear", 5.0), ("spent", 1000.0)], "name STRING, value DOUBLE")
    operator = OPERATORS[name]()
    rows = dict.fromkeys(operator.declared(Output), 0)

    def keyed(condition: str) -> KeyedStream:
        return KeyedStream(events.where(condition), key=KEY, time=TIMESTAMP, max_out_of_orderness=DISORDER)

    def count(output: str, df: DataFrame) -> None:
        rows[output] += df.count()

    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch:
        found = Path(scratch, "found")
        found.mkdir()
        MeasuringHost.folder = str(found)
        stream = connect(
            operator,
            looks=keyed("kind NOT IN ('buy', 'transfer')"),
            buys=keyed("kind IN ('buy', 'transfer')"),
            limits=BroadcastStream(limits),
            key_groups=key_groups,
        )
        begin = time.perf_counter()
        sinks = {output: lambda df, _, output=output: count(output, df) for output in rows}
        stream.run(sinks, checkpoint=str(Path(scratch, "checkpoint")))
        return {"seconds": time.perf_counter() - begin, **totals(found), "rows": rows}


def main(arguments: list[str] | None = None) -> int:
    cli = harness.command_line("host_overhead", "Measure the host.")
    cli.add_argument("--operators", default=",".join(OPERATORS), help="default: all")
    cli.add_argument("--runs", type=int, default=2, help="rounds after the warm-up")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--batches", type=int, default=4, help="micro-batches that bring events")
    cli.add_argument("--key-groups", type=int, default=32)
    cli.add_argument("--memory", default="4g", help="heap of the JVM")
    args = cli.parse_args(arguments)

    data = harness.data_folder(args.size, args.data)
    plan.OperatorHost = MeasuringHost  # type: ignore[attr-defined]
    spark = harness.session(args.cores, args.memory)
    scratch = Path(tempfile.mkdtemp(prefix="asterism-benchmark-"))
    try:
        in_order_of_arrival(data / "parquet", scratch / "events")
        for number in range(args.runs + 1):
            for name in args.operators.split(","):
                found = run(spark, name, scratch / "events", args.batches, args.key_groups)
                record = {"operator": name, "round": number, "events": SIZES[args.size][0], **found}
                rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in record.items()}
                print(json.dumps(rounded), flush=True)
    finally:
        shutil.rmtree(scratch)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
