"""A live engine: ``python -m benchmarks.live``, without Spark.

*latency*: 10,000 events/s arrive in batches of 100, each with its watermark and its position, on a schedule that does not wait
for the engine. The latency of a batch is the time from its arrival until its rows are there. Snapshots are written each second.
*rules*: the same with 1,000 rules. *throughput*: batches of 10,000 events, as fast as possible, in one thread. *cold start*: a
new process until its first match, in a live engine and over a file, and one with the same question to DuckDB. CPU times are those
of the thread that calls the engine. A batch comes each 10 ms: if its call takes longer, batches wait for those before them, and
latencies say nothing. Garbage is collected once after the start, as docs/live.md advises.

One JSON line per case. The exit status is 1 if there are no matches.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from asterism import CEP, KeyedStream, LiveEngine, Pattern
from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory
from asterism.rules.definition.processor import PatternProcessor

SCHEMA = pa.schema([("user", pa.int64()), ("ts", pa.int64()), ("kind", pa.int32()), ("amount", pa.float64())])
RATE = 10_000
BATCH = 100
EVENTS_BY_BATCH = {100: 200_000, 10_000: 2_000_000}
"""The number of events of *throughput*, by the size of its batches."""
PATTERN, RULES = "latency", "1,000 rules"
"""The cases of latency."""
ATTACK = (
    Pattern.begin("fails").where("kind = 1").times_or_more(3).consecutive()
    .next("login").where("kind = 2").within(timedelta(seconds=10))
)  # fmt: skip
COLD_STARTS = {
    "a live engine": (
        """
import pyarrow as pa
from asterism import CEP, KeyedStream, Pattern
stream = KeyedStream(pa.schema([("ts", pa.int64())]), time="ts")
engine = CEP.pattern(stream, Pattern.begin("a").next("b")).open()
assert engine.process([{"ts": 1}, {"ts": 2}], watermark=2)["matches"].num_rows == 1
""",
        """
import duckdb
import pyarrow as pa
events = pa.table({"ts": [1, 2]})
query = "SELECT * FROM (SELECT ts, lead(ts) OVER (ORDER BY ts) AS later FROM events) WHERE later IS NOT NULL"
assert duckdb.sql(query).to_arrow_table().num_rows == 1
""",
    ),
    "1 MB of CSV": (
        """
import sys
from datetime import timedelta
from asterism import CEP, KeyedStream, Pattern
pattern = Pattern.begin("a").where("kind = 1").next("b").where("kind = 2").within(timedelta(seconds=10))
assert CEP.pattern(KeyedStream(sys.argv[1], key="user", time="ts"), pattern).matches.num_rows
""",
        """
import sys
import duckdb
query = '''
SELECT * FROM (
  SELECT kind, ts, lead(kind) OVER of_user AS next_kind, lead(ts) OVER of_user AS next_ts
  FROM read_csv(?) WINDOW of_user AS (PARTITION BY "user" ORDER BY ts)
) WHERE kind = 1 AND next_kind = 2 AND next_ts - ts < 10000
'''
assert duckdb.sql(query, params=[sys.argv[1]]).to_arrow_table().num_rows
""",
    ),
}
"""By case, a program until its first match, and one that asks DuckDB the same."""
ASTERISM, DUCKDB = "asterism", "duckdb"


def events(count: int, users: int, seed: int = 1) -> pa.Table:
    """Events of users, 10 in each millisecond."""
    rng = np.random.default_rng(seed)
    columns = [
        rng.integers(0, users, count),
        np.arange(count) * 1000 // RATE,
        rng.integers(0, 3, count).astype(np.int32),
        rng.random(count) * 100,
    ]
    return pa.table(columns, schema=SCHEMA)


def stream() -> Any:
    return KeyedStream(SCHEMA, key="user", time="ts")


def of_pattern(folder: str | None) -> LiveEngine:
    return CEP.pattern(stream(), ATTACK).open(folder, select={"matches": ["match_id", "COUNT(fails.*) AS n"]})


def of_rules(folder: str | None, count: int = 1000) -> LiveEngine:
    rules = tuple(map(rule_of, range(count)))
    return CEP.pattern_processors(stream(), GivenPatternProcessorDiscovererFactory(rules)).open(folder)


def rule_of(number: int) -> PatternProcessor:
    """About one in 300 events begins a match of the rule, and as many end one."""
    first, last = number % 100, number % 97
    return PatternProcessor(
        f"rule {number}",
        1,
        Pattern.begin("a").where(f"kind = {number % 3} AND amount BETWEEN {first} AND {first + 1}")
        .followed_by("b").where(f"kind = {(number + 1) % 3} AND amount BETWEEN {last} AND {last + 1}")
        .within(timedelta(seconds=10)),
    )  # fmt: skip


def parts(table: pa.Table, size: int) -> Iterator[tuple[pa.Table, int]]:
    """The batches, each with its last time."""
    for begin in range(0, table.num_rows, size):
        part = table.slice(begin, size)
        yield part, part.column("ts")[-1].as_py()


def latency(name: str, opened: Callable[[str | None], LiveEngine], seconds: int, users: int) -> dict[str, Any]:
    batches = list(parts(events(seconds * RATE, users), BATCH))
    warm = events(RATE // 2, users, seed=2)
    with tempfile.TemporaryDirectory() as folder, opened(folder) as engine:
        first = int(warm.column("ts")[-1].as_py()) + 1
        for part, last in parts(warm, BATCH):  # compiled code is loaded
            engine.process(part, watermark=last)
        gc.collect()
        gc.freeze()
        taken, matches, cpu = [], 0, 0.0
        begin = time.perf_counter()
        for number, (part, last) in enumerate(batches):
            due = begin + number * BATCH / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            later = part.set_column(1, SCHEMA.field("ts"), pa.array(part.column("ts").to_numpy() + first))
            cpu_before = time.thread_time()
            rows = engine.process(later, watermark=first + last, position=number)
            cpu += time.thread_time() - cpu_before
            taken.append(time.perf_counter() - due)
            matches += rows["matches"].num_rows
        gc.unfreeze()
        size = engine.progress["stateOperators"][0]["memoryUsedBytes"]
    milliseconds = np.array(taken) * 1000
    quantiles = {f"p{each:g}": round(float(np.percentile(milliseconds, each)), 2) for each in (50, 99, 99.9)}
    return {"case": name, "users": users, **quantiles, "max": round(float(milliseconds.max()), 2), "matches": matches,
            "state_bytes": size, "cpu_ms": round(1000 * cpu / len(batches), 2)}  # fmt: skip


def throughput(count: int, users: int, size: int) -> dict[str, Any]:
    table, matches = events(count, users), 0
    with tempfile.TemporaryDirectory() as folder, of_pattern(folder) as engine:
        for part, last in parts(events(2 * size, users, seed=2), size):
            engine.process(part, watermark=last)
        begin, cpu = time.perf_counter(), time.thread_time()
        for number, (part, last) in enumerate(parts(table, size)):
            later = part.set_column(1, SCHEMA.field("ts"), pa.array(part.column("ts").to_numpy() + 10_000))
            matches += engine.process(later, watermark=last + 10_000, position=number)["matches"].num_rows
        seconds, cpu = time.perf_counter() - begin, time.thread_time() - cpu
    return {"case": "throughput", "users": users, "batch": size, "events_per_second": round(count / seconds),
            "events_per_cpu_second": round(count / cpu), "matches": matches}  # fmt: skip


def cold_starts() -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/events.csv"
        csv.write_csv(events(36_000, 500), file)
        for case, programs in COLD_STARTS.items():
            for name, program in zip((ASTERISM, DUCKDB), programs, strict=True):
                command = [sys.executable, "-c", f"{program}print('matched', flush=True)", file]
                begin = time.perf_counter()
                with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                    assert process.stdout is not None
                    answer = process.stdout.readline()
                    seconds = time.perf_counter() - begin
                assert answer, f"{name}, {case}: no answer"
                yield {"case": case, "program": name, "seconds": round(seconds, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--cases", default="latency,rules,throughput,cold")
    arguments = parser.parse_args()
    failed = False
    for record in measured(arguments.cases.split(","), arguments.seconds):
        print(json.dumps(record), flush=True)
        failed |= record.get("matches") == 0
    return int(failed)


def measured(cases: list[str], seconds: int) -> Iterator[dict[str, Any]]:
    if "latency" in cases:
        yield latency(PATTERN, of_pattern, seconds, 100)
        yield latency(PATTERN, of_pattern, seconds, 10_000)
    if "rules" in cases:
        yield latency(RULES, of_rules, seconds, 10_000)
    if "throughput" in cases:
        for size, count in EVENTS_BY_BATCH.items():
            yield throughput(count, 10_000, size)
    if "cold" in cases:
        for _ in range(3):
            yield from cold_starts()


if __name__ == "__main__":
    sys.exit(main())
