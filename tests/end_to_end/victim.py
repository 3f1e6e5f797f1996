"""The program that is killed: a query of each kind, all held at the same point, then everything is killed at once.

``python -m tests.end_to_end.victim FOLDER POINT KIND...``; the next one goes on from the checkpoints that this one leaves behind.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.operators.operator import Arrival, Now, Operator, Result
from asterism.operators.state.state_store import StateStore
from asterism.rules.sets.interfaces import PatternProcessorDiscoverer, PatternProcessorDiscovererFactory
from asterism.spark.host.host import OperatorHost
from tests.kit import kill_session, until
from tests.nemesis.queries import QUERIES, SECONDS, Query
from tests.nemesis.replay import insert, write
from tests.spark.rules import INTERVAL, Watch, e, rule
from tests.spark.streams import shuffle_partitions

SINK, CALL, COMMITTED = POINTS = ("sink", "call", "committed")
"""When the first of the sinks has written; in a worker, when a call has changed state; between two micro-batches."""
STARVED = "failed to connect back"
"""A busy machine: Spark gives a Python worker ten seconds to start. The query is started again."""
FILES = 2
"""Of events in each life: the query is held when it has read the last of them."""
SEED = 3
NEW_KEY = "new_key"

AB = rule("ab", 1, "a", "b")
BY_ITEM = rule("by item", 1, "a", "b", key=("item",))
PASSWORD = "swordfish 0123456789 swordfish 0123456789"


# ---------------------------------------------------------------------- a query of each kind


def query_of(kind: str, folder: Path, **options: Any) -> Query:
    return QUERIES[kind](folder / kind, SEED, **{"key_groups": 2} | options)


def feed(query: Query, number: int) -> None:
    change_rules(query, number)
    query.feed(number)


def change_rules(query: Query, number: int) -> None:
    query.change_rules(random.Random(f"{SEED} {number}"), number * SECONDS)


def sinks(query: Query) -> dict[str, Any]:
    """Each has a file for each micro-batch, and inserts the ids that are not there yet."""

    def sink(output: str) -> Any:
        def written(df: DataFrame, batch_id: int) -> None:
            rows = df.toArrow()
            write(query.folder, output, batch_id, rows)
            if output in query.ids:
                insert(query.folder, output, [query.row_id(output, row) for row in rows.to_pylist()])
            if output == query.outputs[0]:
                hold(query.folder, SINK)

        return written

    return {output: sink(output) for output in query.outputs}


# ---------------------------------------------------------------------- held, and killed


def arm(folder: Path, point: str) -> None:
    """From now on whoever comes to *point* stays there, until the file is removed."""
    hold_mark(folder, point).touch()


def hold(folder: Path, point: str) -> None:
    while hold_mark(folder, point).exists():
        held(folder, point).touch()
        time.sleep(0.1)


def hold_mark(folder: Path, point: str) -> Path:
    return folder / f"hold at {point}"


def held(folder: Path, point: str) -> Path:
    return folder / f"held at {point}"


def slices(
    operator: Operator, folder: Path, store: StateStore, arrivals: Sequence[Arrival], now: Now
) -> Iterator[Result]:
    """Those of the operator; then it is held."""
    yield from type(operator).slices(operator, store, arrivals, now)
    if any(arrival.events is not None for arrival in arrivals):
        hold(folder, CALL)


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """The operator of the query that is started meanwhile can be held in a call."""
    made = OperatorHost.__init__

    def init(self: OperatorHost, operator: Any, *args: Any, **options: Any) -> None:
        operator.slices = partial(slices, operator, folder)
        made(self, operator, *args, **options)
        del operator.slices

    OperatorHost.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        OperatorHost.__init__ = made  # type: ignore[method-assign]


def kill_everything() -> None:
    """This program with Spark and all workers: whatever belongs to its session."""
    kill_session(os.getsid(0))
    os.kill(os.getpid(), signal.SIGKILL)


# ---------------------------------------------------------------------- a rule that brings a new key


@dataclass(frozen=True)
class Secretive(PatternProcessorDiscovererFactory):
    """Knows a password, as one for a database does."""

    path: Path
    password: str

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        assert self.password == PASSWORD
        factory = FilePatternProcessorDiscovererFactory(self.path, interval=INTERVAL)
        return factory.create_pattern_processor_discoverer()


def watch(spark: SparkSession, folder: Path) -> Watch:
    """It writes every micro-batch to a folder of its own."""

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(str(folder / "out" / f"batch={batch_id}"))

    watch = Watch(spark, folder, factory=Secretive(folder / "rules.json", PASSWORD))
    watch.sinks = {"matches": write}
    return watch


def new_key(spark: SparkSession, folder: Path) -> None:
    """Held in the sink of the micro-batch that brings the rule."""
    folder.mkdir()
    victim = watch(spark, folder)
    victim.rules(AB)
    victim.events(e(1, "a"), e(2, "a", "bob", 8))
    query = victim.once()
    (folder / "progress").write_text("\n".join(progress.json for progress in query.recentProgress))
    victim.options["store"] = str(folder / "elsewhere")
    with (folder / "plan").open("w") as file, contextlib.redirect_stdout(file):
        query.explain(True)
        victim.stream.output("matches").explain(True)
    del victim.options["store"]

    def stay(df: DataFrame, batch_id: int) -> None:
        (folder / "batch").write_text(str(batch_id))
        hold(folder, SINK)

    victim.sinks = {"matches": stay}
    victim.rules(AB, BY_ITEM)
    victim.events(e(3, "a", "cy", 9), e(4, "b", "ann", 9), e(5, "a", "eve", 11), e(6, "b", "bob", 8))
    arm(folder, SINK)
    until(held(folder, SINK).exists, victim.start(availableNow=True))


def disguises(secret: str) -> list[bytes]:
    """A text as it is, and in base64 wherever it begins: what does not depend on its neighbours."""
    return [secret.encode(), *(base64.b64encode(b"-" * n + secret.encode())[4:32] for n in range(3))]


# ---------------------------------------------------------------------- the program


def session(folder: Path) -> SparkSession:
    (folder / "log").mkdir(exist_ok=True)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder / "log"),
        "spark.eventLog.compress": "false",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.pollingDelay": "100ms",  # of queries that wait for the kill while others start
    }
    builder = SparkSession.builder.master("local[12]")  # tasks that are held keep their cores
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(folder: Path, point: str, kinds: list[str]) -> None:
    spark = session(folder)
    first = FILES * POINTS.index(point)
    if NEW_KEY in kinds:
        with shuffle_partitions(spark, 3):
            new_key(spark, folder / NEW_KEY)
    for query in [
        query_of(kind, folder) for kind in kinds if kind != NEW_KEY
    ]:  # one by one: workers that start together may time out
        query.folder.mkdir(exist_ok=True)
        for mark in query.folder.glob("hold at *"):
            mark.unlink()
        for number in range(first):  # as they were when the one before was killed
            change_rules(query, number)
        for number in range(first, first + FILES - 1):
            feed(query, number)
        stream = go_on(spark, query, lambda stream: stream.processAllAvailable())
        if point != COMMITTED:
            arm(query.folder, point)
        feed(query, first + FILES - 1)
        if point == COMMITTED:
            go_on(spark, query, lambda stream: stream.processAllAvailable(), stream)
            held(query.folder, point).touch()
        else:
            go_on(spark, query, partial(until, held(query.folder, point).exists), stream)
    kill_everything()


def go_on(spark: SparkSession, query: Query, wait: Callable[[Any], object], stream: Any = None) -> Any:
    """The query, running, when it has come to what *wait* waits for."""
    while True:
        if stream is None:
            with holding(query.folder):
                stream = query.run(spark, sinks(query), trigger={"processingTime": "0 seconds"})
        try:
            wait(stream)
            return stream
        except (StreamingQueryException, AssertionError):
            if STARVED not in str(stream.exception()):
                raise
            stream = None


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
