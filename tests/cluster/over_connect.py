"""A client of Spark Connect: ``python -m tests.cluster.over_connect URL FOLDER NAME`` runs the queries of this name.

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
    PatternStream,
    RowPatternStream,
    TumblingWindows,
    WindowedStream,
    create_savepoint,
    diff_savepoints,
    forget_keys,
    interval_join,
    match_recognize,
    read_savepoint,
    rescale_checkpoint,
    restore_savepoint,
    window,
)
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.errors import CheckpointInUseError
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
"""The folder, and the names, of patterns that are started on a checkpoint that another process, this one, uses at first."""
HISTORY = "history"
"""The name of a pattern that begins with a history."""
SAVEPOINT, CONTINUED, RESCALED, FORGOTTEN = "savepoint", "continued", "rescaled", "forgotten"
"""The names of a pattern that stops after half of the events and leaves a savepoint; and of what follows it."""
TABLES = "tables"
"""The name of a join and a clause over tables."""
AFTER = {ERROR: "pattern", **dict.fromkeys([CONTINUED, RESCALED, FORGOTTEN], SAVEPOINT)}
"""What follows another one."""
HALF = EVENTS // 2
FOUND = "found.json"


def pattern_of(stream: KeyedStream) -> PatternStream:
    return CEP.pattern(stream, FUNNEL_OF_SPARK, key_groups=KEY_GROUPS)


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


def run(name: str, spark: SparkSession, folder: Path) -> None:
    """Read the events in two runs, of which the second one continues from the checkpoint of the first one and ends the input."""
    options: dict[str, Any] = {"aggregate": AGGREGATES} if name in ("windows", "composed") else {}
    folder /= name
    queries: dict[str, Callable[[KeyedStream], Any]] = {
        "pattern": pattern_of,
        "rules": partial(rules_of, file=folder / "rules.json"),
        "windows": windows_of,
        "composed": composed_of,
        "clause": clause_of,
    }
    for number in range(2):
        write_files(events(EVENTS).slice(number * HALF, HALF), folder / "in", [HALF // 2], first=2 * number)
        stream = stream_of(spark, folder / "in")
        query = queries[name](stream)
        query.run(sinks(folder, OUTPUTS[name]), checkpoint=str(folder / "checkpoint"), drain=number == 1, **options)


def with_history(spark: SparkSession, folder: Path) -> None:
    """The first half of the events is a table."""
    folder /= HISTORY
    write_files(events(EVENTS).slice(0, HALF), folder / "history", [HALF])
    write_files(events(EVENTS).slice(HALF), folder / "in", [HALF // 2])
    history = spark.read.parquet(str(folder / "history"))
    stream = pattern_of(stream_of(spark, folder / "in"))
    stream.run(sinks(folder, OUTPUTS["pattern"]), checkpoint=str(folder / "checkpoint"), drain=True, history=history)


# ---------------------------------------------------------------------- savepoints


def savepoint(spark: SparkSession, folder: Path) -> None:
    """It is not created while another process, this one, has the lease."""
    folder /= SAVEPOINT
    write_files(events(EVENTS).slice(0, HALF), folder / "in", [HALF // 2])
    checkpoint, target = folder / "checkpoint", str(folder / "savepoint")
    pattern_of(stream_of(spark, folder / "in")).run(
        sinks(folder, OUTPUTS["pattern"]), checkpoint=str(checkpoint), drain=False
    )
    spark.conf.set(SECONDS, "4")
    lease = Lease(str(checkpoint / FOLDER), "the checkpoint", expiry=4)
    lease.acquire()
    try:
        create_savepoint(spark, str(checkpoint), target)
        refusal = ""
    except CheckpointInUseError as error:
        refusal = error.message
    finally:
        lease.release()
    create_savepoint(spark, str(checkpoint), target)
    keys = sorted(
        row.user for row in read_savepoint(spark, target).partial_matches().select("key.user").distinct().collect()
    )
    (folder / FOUND).write_text(json.dumps({"refusal": refusal, "keys": keys}))


def continued(spark: SparkSession, folder: Path) -> None:
    """With another number of key groups."""
    of_savepoint, folder = folder / SAVEPOINT, folder / CONTINUED
    write_files(events(EVENTS).slice(HALF), of_savepoint / "in", [HALF // 2], first=2)
    stream = CEP.pattern(stream_of(spark, of_savepoint / "in"), FUNNEL_OF_SPARK, key_groups=KEY_GROUPS + 3)
    stream.run(
        sinks(folder, OUTPUTS["pattern"]),
        checkpoint=str(folder / "checkpoint"),
        drain=True,
        from_savepoint=str(of_savepoint / "savepoint"),
    )


def rescaled(spark: SparkSession, folder: Path) -> None:
    _changed(spark, folder, RESCALED, lambda checkpoint: rescale_checkpoint(spark, checkpoint, tasks=1, key_groups=3))


def forgotten(spark: SparkSession, folder: Path) -> None:
    [key, *_] = json.loads((folder / SAVEPOINT / FOUND).read_text())["keys"]
    _changed(spark, folder, FORGOTTEN, lambda checkpoint: forget_keys(spark, checkpoint, [{"user": key}]).removed)


def _changed(spark: SparkSession, folder: Path, name: str, change: Callable[[str], object]) -> None:
    """Restore the savepoint, change the checkpoint, and compare a savepoint of it with the former one."""
    former, folder = str(folder / SAVEPOINT / "savepoint"), folder / name
    restore_savepoint(spark, former, str(folder / "checkpoint"), key_groups=2)
    answer = change(str(folder / "checkpoint"))
    create_savepoint(spark, str(folder / "checkpoint"), str(folder / "savepoint"))
    [operator] = diff_savepoints(spark, former, str(folder / "savepoint")).to_dict()["operators"]
    (folder / FOUND).write_text(json.dumps({"answer": answer, "tables": operator["tables"]}))


# ---------------------------------------------------------------------- errors


def error_of(start: Callable[[], object]) -> str:
    """The error of a query. It is started again if the server was so busy that its Python process did not answer in time."""
    for _ in range(20):
        try:
            start()
        except Exception as error:
            if "failed to connect back" not in str(error):
                return str(error)
        else:
            return ""
    return "the server is too busy"


def refused(kind: str, spark: SparkSession, folder: Path) -> None:
    """A kind of start on a checkpoint that this process uses, and then on the same one, that nobody uses."""
    folder = folder / LEASE / kind
    spark.conf.set(SECONDS, "4")
    write_files(events(EVENTS), folder / "in", [EVENTS])
    stream, checkpoint = stream_of(spark, folder / "in"), str(folder / "checkpoint")

    def start() -> None:
        write, matches = sinks(folder, ["matches"]), pattern_of(stream)
        if kind == "stream":
            matches.run(write, checkpoint=checkpoint)
        elif kind == "frame":
            asterism.run(matches.matches.select("match_id"), write["matches"], checkpoint=checkpoint)
        elif kind == "chain":
            composed_of(stream).run({"results": write["matches"]}, checkpoint=checkpoint, aggregate=AGGREGATES)
        else:
            writer = matches.matches.where("user <> ''").writeStream.format("noop").trigger(availableNow=True)
            writer.option("checkpointLocation", checkpoint).start().awaitTermination()

    claims = Path(checkpoint) / FOLDER
    lease = Lease(str(claims), "the checkpoint", expiry=4)
    lease.acquire()
    error = error_of(start)
    began = (claims.parent / "offsets" / "0").exists()
    lease.release()
    ended = error_of(start)
    states = " ".join(path.stem.rpartition("-")[2] for path in claims.iterdir())
    (folder / FOUND).write_text(json.dumps({"error": error, "began": began, "claims": states, "ended": ended}))


def another_query(spark: SparkSession, folder: Path) -> None:
    """It is started from the checkpoint of the pattern, and not with ``run``, which looks at the checkpoint before."""
    of_pattern = folder / "pattern"
    matches = CEP.pattern(stream_of(spark, of_pattern / "in"), FUNNEL, key_groups=KEY_GROUPS + 1).matches
    writer = matches.writeStream.format("noop").option("checkpointLocation", str(of_pattern / "checkpoint"))
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        (folder / ERROR).write_text(f"{type(error).__name__}: {error}")


def over_tables(spark: SparkSession, folder: Path) -> None:
    table = spark.createDataFrame(events(99))
    joined_of(table).write.parquet(str(folder / "joined"))
    clause_of(KeyedStream(table, time="ts")).matches.write.parquet(str(folder / "matches"))


PROGRAMS: dict[str, Callable[[SparkSession, Path], None]] = {
    **{name: partial(run, name) for name in OUTPUTS},
    **{kind: partial(refused, kind) for kind in LEASES},
    ERROR: another_query,
    TABLES: over_tables,
    HISTORY: with_history,
    SAVEPOINT: savepoint,
    CONTINUED: continued,
    RESCALED: rescaled,
    FORGOTTEN: forgotten,
}


def main(url: str, folder: Path, name: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    PROGRAMS[name](spark, folder)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
