"""A client of Spark Connect: ``python -m tests.cluster.over_connect URL FOLDER NAME:RUNS...`` runs the queries of these names.

A program of its own, because a process is a client of Spark Connect or has a classic session, not both. Sinks write each
micro-batch to a folder of their output, because they run in a process of the server.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import asterism
from asterism import (
    CEP,
    CountTrigger,
    EventTimeTrigger,
    KeyedStream,
    Pattern,
    PatternProcessorStream,
    RowPatternStream,
    TumblingWindows,
    WindowedStream,
    interval_join,
    match_recognize,
    window,
)
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.files.lease import Lease
from asterism.rules.definition.processor import PatternProcessor
from asterism.spark.host.execution import Sink
from asterism.spark.session.leases import FOLDER, SECONDS
from tests.spark.streams import FUNNEL, STRICT, events, stream_of, write_files

FUNNEL_OF_SPARK = (
    Pattern.begin("a").where("exists(array(kind), k -> k = 'view')").times(2)
    .followed_by("b").where("kind = 'buy' AND price > LAST(element_at(filter(array(a.price), p -> p >= 0), 1))")
).within(timedelta(seconds=60))  # fmt: skip
"""FUNNEL, with parts that Spark computes"""
EVENTS = 600
KEY_GROUPS = 4
AGGREGATES = ["sum(price) AS total", "count(*) AS n"]
OUTPUTS = {
    "pattern": ("matches", "timed_out", "late"),
    "rules": ("matches", "errors"),
    "windows": ("results", "late"),
    "composed": ("results",),
    "clause": ("matches", "late"),
}
"""The outputs of each query that go to sinks."""
ERROR = "error"
"""The name of a query that fails. It follows the pattern."""
LEASE, LEASES = "lease", ["stream", "frame", "writer", "chain"]
"""The name of patterns, started in several ways on a checkpoint that another process, this one, uses at first."""
HISTORY = "history"
"""The name of a pattern that begins with a history."""
TABLES = "tables"
"""The name of a join and a clause over tables."""


def rules_of(stream: KeyedStream, file: Path) -> PatternProcessorStream:
    rules = [PatternProcessor("funnel", 1, FUNNEL), PatternProcessor("strict", 1, STRICT, key=("kind",))]
    file.write_text(json.dumps([rule.to_dict() for rule in rules]))
    return CEP.pattern_processors(stream, FilePatternProcessorDiscovererFactory(file), key_groups=KEY_GROUPS)


def windows_of(stream: KeyedStream) -> WindowedStream:
    trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
    return window(stream, TumblingWindows.of(timedelta(seconds=30)), trigger=trigger, key_groups=KEY_GROUPS)


def composed_of(stream: KeyedStream) -> WindowedStream:
    """Windows over the matches of a pattern."""
    matches = CEP.pattern(stream, FUNNEL, key_groups=KEY_GROUPS).select("match_time", "LAST(b.price) AS price")
    return window(
        KeyedStream(matches, key="user", time="match_time"),
        TumblingWindows.of(timedelta(minutes=1)),
        key_groups=KEY_GROUPS,
    )


def clause_of(stream: KeyedStream) -> RowPatternStream:
    """Spark computes a key, parts of conditions, and the outer part of a measure."""
    clause = """
        PARTITION BY concat_ws('-', user, CAST(variant_get(parse_json('3'), '$', 'int') AS STRING)) AS who ORDER BY ts
        MEASURES FIRST(A.id) AS first, variant_get(parse_json(to_json(struct(B.id AS b))), '$.b', 'bigint') + tax AS last
        PATTERN (A B) WITHIN INTERVAL '20' SECONDS
        DEFINE A AS kind COLLATE UTF8_LCASE = 'VIEW', B AS kind = 'buy' AND added(price) > PREV(added(price))
    """
    stream.df.sparkSession.udf.register("added", lambda price: price + 1, "double")
    stream.df.sparkSession.sql("DECLARE OR REPLACE VARIABLE tax BIGINT DEFAULT 7")
    return match_recognize(stream.df, clause, max_out_of_orderness=stream.max_out_of_orderness, key_groups=KEY_GROUPS)


def joined_of(df: DataFrame) -> DataFrame:
    """A join with keys that are expressions, and a condition of which Spark computes both sides, over a table."""
    left, right = (KeyedStream(df, f"concat({text}, '!') AS who", "ts") for text in ("user", "lower(upper(user))"))
    on = "variant_get(parse_json(string(id)), '$', 'int') < variant_get(parse_json(string(r_id)), '$', 'int')"
    return interval_join(left, right, (timedelta(0), timedelta(seconds=5)), on=on, prefix="r_").results


def sinks(folder: Path, outputs: Sequence[str]) -> dict[str, Sink]:
    def sink(output: str) -> Sink:
        path = str(folder / output)

        def write(df: DataFrame, batch_id: int) -> None:
            df.write.mode("overwrite").parquet(f"{path}/batch={batch_id}")

        return write

    return {output: sink(output) for output in outputs}


def run(spark: SparkSession, name: str, folder: Path, runs: int) -> None:
    """Read the events in some runs, each of which continues from the checkpoint of the previous one. The last one ends the
    input.
    """
    options: dict[str, Any] = {"aggregate": AGGREGATES} if name in ("windows", "composed") else {}
    table = events(EVENTS)
    size = EVENTS // runs
    for number in range(runs):
        write_files(table.slice(number * size, size), folder / "in", [size // 2], first=2 * number)
        stream = stream_of(spark, folder / "in")
        found: Any = {
            "pattern": lambda stream=stream: CEP.pattern(stream, FUNNEL_OF_SPARK, key_groups=KEY_GROUPS),
            "rules": lambda stream=stream: rules_of(stream, folder / "rules.json"),
            "windows": lambda stream=stream: windows_of(stream),
            "composed": lambda stream=stream: composed_of(stream),
            "clause": lambda stream=stream: clause_of(stream),
        }[name]()
        last = number == runs - 1
        found.run(sinks(folder, OUTPUTS[name]), checkpoint=str(folder / "checkpoint"), drain=last, **options)


def with_history(spark: SparkSession, folder: Path) -> None:
    """The first half of the events is a table."""
    table = events(EVENTS)
    write_files(table.slice(0, EVENTS // 2), folder / "history", [EVENTS // 2])
    write_files(table.slice(EVENTS // 2), folder / "in", [EVENTS // 4])
    history = spark.read.parquet(str(folder / "history"))
    stream = CEP.pattern(stream_of(spark, folder / "in"), FUNNEL_OF_SPARK, key_groups=KEY_GROUPS)
    stream.run(sinks(folder, OUTPUTS["pattern"]), checkpoint=str(folder / "checkpoint"), drain=True, history=history)


def error_of(start: Callable[[], object]) -> str:
    """The error of a query. It is started again if the server was so busy that its Python process did not answer in time."""
    for _ in range(5):
        try:
            start()
        except Exception as error:
            if "failed to connect back" not in str(error):
                return str(error)
        else:
            return ""
    return "the server is too busy"


def refused(spark: SparkSession, folder: Path) -> None:
    """Each kind of start on a checkpoint that this process uses, and then on one that nobody uses."""
    spark.conf.set(SECONDS, "4")
    write_files(events(EVENTS), folder / "in", [EVENTS])
    stream = stream_of(spark, folder / "in")

    def start(kind: str) -> None:
        checkpoint, write = str(folder / kind / "checkpoint"), sinks(folder / kind, ["matches"])
        matches = CEP.pattern(stream, FUNNEL_OF_SPARK, key_groups=KEY_GROUPS)
        if kind == "stream":
            matches.run(write, checkpoint=checkpoint)
        elif kind == "frame":
            asterism.run(matches.matches.select("match_id"), write["matches"], checkpoint=checkpoint)
        elif kind == "chain":
            composed_of(stream).run({"results": write["matches"]}, checkpoint=checkpoint, aggregate=AGGREGATES)
        else:
            writer = matches.matches.where("user <> ''").writeStream.format("noop").trigger(availableNow=True)
            writer.option("checkpointLocation", checkpoint).start().awaitTermination()

    found = {}
    for kind in LEASES:
        claims = folder / kind / "checkpoint" / FOLDER
        lease = Lease(str(claims), "the checkpoint", expiry=4)
        lease.acquire()
        error = error_of(partial(start, kind))
        began = (claims.parent / "offsets" / "0").exists()
        lease.release()
        ended = error_of(partial(start, kind))
        states = " ".join(path.stem.rpartition("-")[2] for path in claims.iterdir())
        found[kind] = {"error": error, "began": began, "claims": states, "ended": ended}
    (folder / "leases.json").write_text(json.dumps(found))
    spark.conf.unset(SECONDS)


def another_query(spark: SparkSession, folder: Path) -> None:
    """It is started from the checkpoint of the pattern, and not with ``run``, which looks at the checkpoint before."""
    matches = CEP.pattern(stream_of(spark, folder / "in"), FUNNEL, key_groups=KEY_GROUPS + 1).matches
    writer = matches.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main(url: str, folder: Path, names: list[str]) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for text in names:
        name, _, runs = text.partition(":")
        if name == TABLES:
            table = spark.createDataFrame(events(99))
            joined_of(table).write.parquet(str(folder / "joined"))
            clause_of(KeyedStream(table, time="ts")).matches.write.parquet(str(folder / "matches"))
            continue
        if name == HISTORY:
            with_history(spark, folder / name)
            continue
        if name == LEASE:
            refused(spark, folder / name)
            continue
        if name != ERROR:
            run(spark, name, folder / name, int(runs))
            continue
        try:
            another_query(spark, folder / "pattern")
        except Exception as error:
            (folder / ERROR).write_text(f"{type(error).__name__}: {error}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
