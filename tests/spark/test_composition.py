"""Two operators in one streaming query, one after the other: with a restart in the middle, a pair gives what a table gives."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import CEP, AfterMatchSkipStrategy, KeyedStream, Pattern, PatternProcessorStream
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.errors import StreamDefinitionError
from asterism.operators.state.keyed_state import ValueState
from asterism.operators.stream_operator import Input, Output, StreamOperator
from asterism.rules.definition.processor import PatternProcessor
from asterism.streams.broadcast_joins import Side, multi_broadcast_join
from asterism.streams.joins import JoinedStream, MultiJoinedStream, interval_join, multi_join
from asterism.streams.operators import OperatorStream, connect
from asterism.streams.pattern_stream import PatternStream
from asterism.streams.row_patterns import RowPatternStream, match_recognize
from asterism.streams.windows import WindowedStream, window
from asterism.windows.assigners import TumblingWindows
from tests.spark.streams import Collect, write_file

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])

START = datetime(2025, 1, 1, tzinfo=UTC)
GROUPS: dict[str, Any] = {"key_groups": 2}
KINDS = "aabababaabbabbbaaaabbabbabaabaabbbaacaaa"
FILES = [range(24), [*range(24, 34), 600]]
"""One event a second, of two keys; the second file has one of them, and goes far on: deadlines of the other move, too."""
EVENTS = [
    {"k": "xy"[n // 2 % 2] if n < 24 else "x", "t": START + timedelta(seconds=n), "v": n, "kind": KINDS[n % len(KINDS)]}
    for file in FILES
    for n in file
]
SCHEMA = "k STRING, t TIMESTAMP, v BIGINT, kind STRING"
ARROW = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int64()), ("kind", pa.string())])
AB = (
    Pattern.begin("a", AfterMatchSkipStrategy.skip_past_last_event())
    .where("kind = 'a'").followed_by("b").where("kind = 'b'").within(timedelta(seconds=8))
)  # fmt: skip


class Numbered(StreamOperator):
    """Counts the elements of a key, from two inputs; five seconds after the last one says that there is silence."""

    left = Input(SCHEMA)
    right = Input(SCHEMA)
    count = ValueState("BIGINT")
    out = Output(SCHEMA)

    @left.process_element
    @right.process_element
    def see(self, e: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        if ctx.input == "left":
            self.out.collect(k=e.k, t=e.t, v=self.count.value(), kind="ab"[self.count.value() % 2])
            ctx.register_event_time_timer("silence", e.t + timedelta(seconds=5))

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(k=ctx.key, t=timer.time, v=self.count.value(), kind="b")


def pattern(df: DataFrame, folder: Path, drain: bool) -> PatternStream:
    """Events of other kinds are filtered out before the exchange."""
    return CEP.pattern(KeyedStream(df, "k", "t"), AB, drain=drain, **GROUPS)


def processors(df: DataFrame, folder: Path, drain: bool) -> PatternProcessorStream:
    folder.mkdir(exist_ok=True)
    rules = folder / "rules.json"
    rules.write_text(json.dumps([PatternProcessor("ab", 1, AB, select=("a.k AS k", "b.v AS v")).to_dict()]))
    factory = FilePatternProcessorDiscovererFactory(str(rules))
    store = str(folder / "store")
    return CEP.pattern_processors(KeyedStream(df, "k", "t"), factory, store=store, drain=drain, **GROUPS)


def connected(df: DataFrame, folder: Path, drain: bool) -> OperatorStream:
    even = KeyedStream(df.where("v % 2 = 0"), "k", "t")
    return connect(Numbered(), left=KeyedStream(df, "k", "t"), right=even, drain=drain, **GROUPS)


def windowed(df: DataFrame, folder: Path, drain: bool) -> WindowedStream:
    return window(KeyedStream(df, "k", "t"), TumblingWindows.of(timedelta(seconds=3)), drain=drain, **GROUPS)


def joined(df: DataFrame, folder: Path, drain: bool) -> DataFrame:
    names = df.sparkSession.createDataFrame([("x", 100), ("y", 200)], "name STRING, more BIGINT")
    wide = multi_broadcast_join(df, names=Side(names, on={"k": "name"}))
    return wide.select("k", "t", (F.col("v") + F.col("more")).alias("v"), "kind")


def between(df: DataFrame, folder: Path, drain: bool) -> JoinedStream:
    """Pairs of an element with those of the next three seconds, and elements that have none."""
    right = KeyedStream(df.where("v % 2 = 0"), "k", "t")
    bounds = (timedelta(0), timedelta(seconds=3))
    return interval_join(KeyedStream(df, "k", "t"), right, bounds, how="left", prefix="r_", drain=drain, **GROUPS)


def joined_by_three(df: DataFrame, folder: Path, drain: bool) -> MultiJoinedStream:
    """Elements with those of even values of the next four seconds, and the row of a table that lies around them."""
    moments = [(key, START + timedelta(seconds=n), n) for key in "xy" for n in range(0, 601, 10)]
    table = df.sparkSession.createDataFrame(moments, "k STRING, t TIMESTAMP, n INT")
    inputs = {"elements": df, "even": df.where("v % 2 = 0"), "moments": table}
    return multi_join(
        {name: KeyedStream(frame, "k", "t") for name, frame in inputs.items()},
        {
            ("elements", "even"): (timedelta(0), timedelta(seconds=4)),
            ("elements", "moments"): (timedelta(seconds=-5), timedelta(seconds=4)),
        },
        how={"even": "left"},
        prefix={"even": "r_", "moments": "m_"},
        drain=drain,
        **GROUPS,
    )


def clauses(df: DataFrame, folder: Path, drain: bool) -> RowPatternStream:
    text = """PARTITION BY k ORDER BY t MEASURES LAST(b.t) AS t, LAST(b.v) AS v, 'a' AS kind
        AFTER MATCH SKIP PAST LAST ROW PATTERN (a c*? b) WITHIN INTERVAL 8 SECONDS
        DEFINE a AS kind = 'a', b AS kind = 'b' OR v > 20"""
    return match_recognize(df, text, drain=drain, **GROUPS)


OPERATORS: dict[str, Callable[[DataFrame, Path, bool], Any]] = {
    "pattern": pattern, "processors": processors, "connect": connected, "window": windowed,
    "clause": clauses, "interval_join": between, "multi_join": joined_by_three, "join": joined,
}  # fmt: skip
"""Each over a DataFrame with the columns of SCHEMA."""
CHAIN = ("join", "pattern", "window")
"""``test_composition_slow.py`` has all pairs, and other chains, in which each operator occurs."""
MEASURES = ["FIRST(b.v) AS v", "match_time AS t"]


def kind() -> Column:
    return F.when(F.col("v") % 2 == 0, "a").otherwise("b").alias("kind")


def rows_of(stream: Any) -> DataFrame:
    """What an operator gives, with the columns of SCHEMA again; the time is that at which it was decided."""
    match stream:
        case PatternStream():
            return stream.select(*MEASURES).select("k", "t", "v", kind())
        case PatternProcessorStream():
            measures = F.col("measures")
            found = stream.output("matches").select(
                measures["k"].alias("k"), F.col("match_time").alias("t"), measures["v"].cast("long").alias("v")
            )
            return found.select("k", "t", "v", kind())
        case OperatorStream():
            return stream.output("out")
        case RowPatternStream():
            return stream.matches.select("k", "t", "v", kind())
        case JoinedStream() | MultiJoinedStream():
            return stream.results.select("k", "t", F.coalesce("r_v", "v").alias("v"), "kind")
        case WindowedStream():
            found = stream.aggregate("sum(v) AS v")
            return found.select("k", F.col("window_end").alias("t"), "v", kind())
    assert isinstance(stream, DataFrame)
    return stream


def finish(stream: Any, sink: Collect, checkpoint: str, drain: bool) -> None:
    """Write what the last operator gives."""
    how: dict[str, Any] = {"checkpoint": checkpoint, "drain": drain}
    match stream:
        case PatternStream():
            stream.run({"matches": sink}, select={"matches": MEASURES}, **how)
        case PatternProcessorStream() | RowPatternStream():
            stream.run({"matches": sink}, **how)
        case OperatorStream():
            stream.run({"out": sink}, **how)
        case WindowedStream():
            stream.run({"results": sink}, aggregate="count(*) AS v", **how)
        case JoinedStream() | MultiJoinedStream():
            stream.run({"results": sink}, **how)
        case DataFrame(isStreaming=True):
            writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()
        case _:
            sink(stream, 0)


def comparable(sink: Collect) -> list[str]:
    """Without the ids of matches, which also depend on the position of an event among equal ones."""
    return sorted(str({name: v for name, v in row.items() if name != "match_id"}) for row in sink.rows)


class Case:
    """Files that come one after the other, and what a table of all of them gives."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.sink = spark, folder, Collect()
        (folder / "in").mkdir()

    def add(self, *files: int) -> None:
        for number in files:
            rows = [row for row in EVENTS if row["v"] in FILES[number]]
            write_file(pa.Table.from_pylist(rows, ARROW), self.folder / "in", number)

    @property
    def stream(self) -> DataFrame:
        return self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))

    @property
    def table(self) -> DataFrame:
        return self.spark.read.schema(SCHEMA).parquet(str(self.folder / "in"))

    def run(self, chain: Callable[[DataFrame, bool], Any], *, drain: bool) -> None:
        """*chain*: the last operator over the events; the argument says whether operators before it must end their input."""
        last = chain(self.stream, False)
        if isinstance(last, DataFrame) and drain:
            last = chain(self.stream, True)
        finish(last, self.sink, str(self.folder / "checkpoint"), drain)

    def expected(self, chain: Callable[[DataFrame, bool], Any]) -> list[str]:
        found = Collect()
        finish(chain(self.table, False), found, "", True)
        return comparable(found)


@pytest.fixture
def case(spark: SparkSession, tmp_path: Path) -> Case:
    return Case(spark, tmp_path)


def test_a_chain(case: Case) -> None:
    check_chain(case, CHAIN)


def check_chain(case: Case, names: tuple[str, ...]) -> tuple[int, int]:
    """The number of rows before the restart, and in all."""

    def chain(df: DataFrame, drain: bool) -> Any:
        *before, last = enumerate(names)
        for number, name in before:
            df = rows_of(OPERATORS[name](df, case.folder / str(number), drain))
        return OPERATORS[last[1]](df, case.folder / str(last[0]), drain)

    case.add(0)
    case.run(chain, drain=False)
    before = len(case.sink.rows)
    case.add(1)
    case.run(chain, drain=True)
    expected = case.expected(chain)
    assert comparable(case.sink) == expected
    assert expected
    return before, len(expected)


def test_an_operator_that_goes_on_is_not_ended_behind(case: Case) -> None:
    numbered = rows_of(connected(case.stream, case.folder, False))
    with pytest.raises(StreamDefinitionError, match="its upstream operator is not"):
        rows_of(windowed(numbered, case.folder, True))
