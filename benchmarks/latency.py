"""Latency: ``python -m benchmarks.latency``.

* ``idle``: the duration of a micro-batch without events, of a pattern with 32 key groups (``asterism``) and of Spark's own
  ``groupBy(window, key).count()`` with Spark's default state store (``spark``), both over the state of 2,000 events;
* ``quiet``: a query whose source has no event, with each of the triggers: CPU seconds of all its processes, for each second;
* ``match``: 1,000 events/s, with each of the triggers in turn: from an event that completes a match to the match in the sink;
* ``rule``: in the same stream, from the commit of a rule to a SQLite database to the begin of the micro-batch from which it is in
  force, and to its first match in the sink. Each is committed when the match of the one before it has arrived, just before a
  micro-batch begins without it.

One JSON line per round on standard output. The warm-up is left out: the first micro-batches of a query, the first rule.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from asterism import CEP, KeyedStream, Pattern
from asterism.discovery import SqlPatternProcessorDiscovererFactory, create_pattern_processor_table
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.rule_set import Addition
from asterism.rules.definition.processor import PatternProcessor
from benchmarks import harness

IDLE, QUIET, MATCH, RULE = "idle", "quiet", "match", "rule"
WHAT = (IDLE, QUIET, MATCH, RULE)
ASTERISM, SPARK = "asterism", "spark"
RATE, USERS = 1_000, 500
"""Events per second; an event and the next one are of the same user."""
WARM_UP = 5
"""Micro-batches."""
PATIENCE = 300
"""Seconds to wait for a result on a busy machine."""
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
HDFS_BACKED = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
"""Spark's default; Asterism sets another one in the session."""


# ------------------------------------------------------------------ micro-batches without events


def idle(
    spark: SparkSession, mode: str, start: Callable[[DataFrame, str], StreamingQuery], micro_batches: int
) -> dict[str, Any]:
    # The source has data once a second. The condition on the rows is one that Spark cannot evaluate when it plans.
    rate = spark.readStream.format("rate").option("rowsPerSecond", RATE).load().where(f"value < {2 * RATE}")
    events = rate.select(F.col("timestamp").alias("ts"), (F.col("value") % USERS).alias("user"))
    with running(partial(start, events)) as query:
        durations = _durations(query, WARM_UP + micro_batches)[WARM_UP:]
    return {
        "latency": IDLE,
        "mode": mode,
        "micro_batches": len(durations),
        "median_s": statistics.median(durations),
        "max_s": max(durations),
    }


def _pattern(events: DataFrame, checkpoint: str) -> StreamingQuery:
    stream = KeyedStream(events, key="user", time="ts", max_out_of_orderness=timedelta(0))
    pattern = Pattern.begin("a").where("user >= 0").followed_by("b").where("user < 0").within(timedelta(hours=1))
    query = CEP.pattern(stream, pattern, key_groups=32).run(
        {"matches": _read}, checkpoint=checkpoint, trigger=trigger_of(0)
    )
    assert query is not None
    return query


def _window(events: DataFrame, checkpoint: str) -> StreamingQuery:
    spark = events.sparkSession
    before = spark.conf.get(STATE_STORE)
    spark.conf.set(STATE_STORE, HDFS_BACKED)
    try:
        counts = events.withWatermark("ts", "0 seconds").groupBy(F.window("ts", "1 hour"), "user").count()
        writer = counts.writeStream.foreachBatch(_read).option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger_of(0)).start()
    finally:
        spark.conf.set(STATE_STORE, str(before))


def _read(rows: DataFrame, batch_id: int) -> None:
    rows.collect()


def trigger_of(seconds: float) -> Any:
    return {"processingTime": f"{round(seconds * 1000)} milliseconds"}


def _durations(query: StreamingQuery, count: int) -> list[float]:
    """Seconds of the micro-batches so far, once there are at least *count*."""

    def done() -> list[float]:
        return [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if "addBatch" in p.durationMs]

    _await(lambda: len(done()) >= count, query)
    return done()


def _await(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if not query.isActive or time.monotonic() > deadline:
            raise TimeoutError(f"the query ended or gave no result for {PATIENCE} s: {query.exception()}")
        time.sleep(0.1)


# ------------------------------------------------------------------ 1,000 events/s


class Clock(DataSource):
    """A stream of *rate* events per second since *begin*, an option in seconds, each at its event time."""

    @classmethod
    def name(cls) -> str:
        return "benchmark_clock"

    def schema(self) -> str:
        return "sent BIGINT, number BIGINT"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802 - Spark's name
        return Ticks(float(self.options["begin"]), int(self.options["rate"]))


class Ticks(SimpleDataSourceStreamReader):
    def __init__(self, begin: float, rate: int) -> None:
        self.begin, self.rate = begin, rate

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's names, as below
        return {"number": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int, int]], dict[str, int]]:
        end = {"number": int((time.time() - self.begin) * self.rate)}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int, int]]:  # noqa: N802
        numbers = range(start["number"], end["number"])
        # PySpark copies the iterator, which a generator does not allow.
        return iter([(int((self.begin + number / self.rate) * 1_000_000), number) for number in numbers])


def events_since_now(spark: SparkSession, rate: int = RATE) -> KeyedStream:
    """Columns: ``ts``; ``sent``, the same in microseconds; ``number``; ``user``."""
    spark.dataSource.register(Clock)
    ticks = spark.readStream.format(Clock.name()).options(begin=time.time(), rate=rate).load()
    events = ticks.select(
        F.timestamp_micros("sent").alias("ts"), "sent", "number", F.expr(f"number DIV 2 % {USERS}").alias("user")
    )
    return KeyedStream(events, key="user", time="ts", max_out_of_orderness=timedelta(0))


@contextmanager
def running(start: Callable[[str], StreamingQuery | None]) -> Iterator[StreamingQuery]:
    """A query with a temporary checkpoint, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-", ignore_cleanup_errors=True) as checkpoint:
        query = start(checkpoint)
        assert query is not None
        try:
            yield query
        finally:
            query.stop()


def quiet(spark: SparkSession, seconds: float, trigger: float) -> dict[str, Any]:
    with running(partial(_alternating(spark, rate=0), _read, trigger)):
        time.sleep(seconds)  # what the begin of the query leaves to do
        before = harness.family_seconds()
        time.sleep(seconds)
        after = harness.family_seconds()
    return {"latency": QUIET, "trigger_s": trigger, "cpu_per_s": (after - before) / seconds}


def _alternating(spark: SparkSession, rate: int = RATE) -> Callable[..., StreamingQuery | None]:
    """Starts a query that finds each event with the next one, for a sink, a trigger in seconds, and a checkpoint."""
    pattern = Pattern.begin("a").where("number % 2 = 0").followed_by("b").where("number % 2 = 1")
    found = CEP.pattern(events_since_now(spark, rate), pattern.within(timedelta(minutes=1)))

    def start(sink: Callable[[DataFrame, int], None], trigger: float, checkpoint: str) -> StreamingQuery | None:
        select = {"matches": ["b.sent AS sent"]}
        return found.run({"matches": sink}, select=select, checkpoint=checkpoint, trigger=trigger_of(trigger))

    return start


def match(spark: SparkSession, seconds: float, trigger: float) -> dict[str, Any]:
    arrived: dict[float, float] = {}
    """When each event was sent, and when its match arrived."""

    def sink(rows: DataFrame, batch_id: int) -> None:
        found = rows.collect()
        now = time.time()
        arrived.update({row.sent / 1_000_000: now for row in found})

    with running(partial(_alternating(spark), sink, trigger)) as query:
        _durations(query, WARM_UP)
        begin = time.time()
        time.sleep(seconds)
        end = time.time()
        durations = _durations(query, WARM_UP)[WARM_UP:]
        _await(lambda: max(arrived, default=0) > end, query)
    waits = [arrived[sent] - sent for sent in arrived if begin < sent < end]
    return {
        "latency": MATCH,
        "trigger_s": trigger,
        **_quantiles(waits),
        "micro_batch_s": statistics.median(durations),
    }


def rule(spark: SparkSession, updates: int, trigger: float, interval: float) -> dict[str, Any]:
    """One rule after the other is committed; the database is polled every *interval* seconds."""
    committed: dict[str, float] = {}
    seen: dict[str, tuple[float, int]] = {}

    def sink(rows: DataFrame, batch_id: int) -> None:
        found = rows.select("processor_id").distinct().collect()
        now = time.time()
        for row in found:
            seen.setdefault(row.processor_id, (now, batch_id))

    with tempfile.TemporaryDirectory(prefix="asterism-rules-") as folder:
        url = f"sqlite:///{folder}/rules.db"
        create_pattern_processor_table(url)
        factory = SqlPatternProcessorDiscovererFactory(url, interval=timedelta(seconds=interval))
        found = CEP.pattern_processors(events_since_now(spark), factory)
        start = partial(found.run, {"matches": sink}, trigger=trigger_of(trigger))
        with running(lambda checkpoint: start(checkpoint=checkpoint)) as query:
            for number in range(updates + 1):
                name = f"rule {number}"
                pattern = Pattern.begin("a").where("number % 2 = 0").next("b").where(f"user % 10 = {number % 10}")
                processor = PatternProcessor(name, 1, pattern)
                rules_at(url).add([Addition(processor.to_dict(), processor)])
                committed[name] = time.time()
                _await(partial(seen.__contains__, name), query)
            last = seen[name][1]
            _await(lambda: any(progress.batchId >= last for progress in query.recentProgress), query)
            begins = {p.batchId: datetime.fromisoformat(p.timestamp).timestamp() for p in query.recentProgress}
    names = list(committed)[1:]  # the first waits for the query's start
    waits = [seen[name][0] - committed[name] for name in names]
    in_force = _quantiles([begins[seen[name][1]] - committed[name] for name in names])
    return {
        "latency": RULE,
        "trigger_s": trigger,
        "poll_s": interval,
        **_quantiles(waits),
        "in_force_median_s": in_force["median_s"],
        "in_force_p90_s": in_force["p90_s"],
    }


def _quantiles(waits: list[float]) -> Mapping[str, float]:
    percentiles = statistics.quantiles(waits, n=100, method="inclusive")
    return {
        "count": len(waits),
        "median_s": percentiles[49],
        "p90_s": percentiles[89],
        "p99_s": percentiles[98],
        "max_s": max(waits),
    }


def show(number: int, record: dict[str, Any]) -> None:
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in record.items()}
    print(json.dumps({"round": number} | rounded), flush=True)


def main(arguments: list[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m benchmarks.latency", description="Measure latency on Spark.")
    cli.add_argument("--what", default=",".join(WHAT), help="separated by commas; default: all")
    cli.add_argument("--rounds", type=int, default=2)
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--micro-batches", type=int, default=20, help="without events, per query and round")
    cli.add_argument("--seconds", type=float, default=30, help="of 1,000 events/s per round")
    cli.add_argument("--updates", type=int, default=20, help="rules per round")
    cli.add_argument("--triggers", default="0,0.5", help="seconds between micro-batches; the last one for rules")
    cli.add_argument("--interval", type=float, default=0.2, help="seconds between polls of the database")
    args = cli.parse_args(arguments)
    what, triggers = args.what.split(","), [float(seconds) for seconds in args.triggers.split(",")]
    spark = harness.session(args.cores, "4g")
    for number in range(1, args.rounds + 1):
        if IDLE in what:
            show(number, idle(spark, ASTERISM, _pattern, args.micro_batches))
            show(number, idle(spark, SPARK, _window, args.micro_batches))
        for trigger in triggers:
            if QUIET in what:
                show(number, quiet(spark, args.seconds, trigger))
            if MATCH in what:
                show(number, match(spark, args.seconds, trigger))
        if RULE in what:
            show(number, rule(spark, args.updates, triggers[-1], args.interval))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
