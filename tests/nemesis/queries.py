"""The queries that the nemesis, the soak test and the upgrade test run: one of each kind, over files of random events.

A query's events are a function of a seed and the number of the file, its rules of the order in which they were drawn: so a run
can be made again, and be as long as one likes.
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern
from asterism.columns.schemas import schema_of
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.rules.definition.processor import PatternProcessor
from asterism.spark.host.execution import Sink
from asterism.streams.data_streams import BroadcastStream
from asterism.streams.joins import JoinedStream, as_of_join, interval_join, multi_join, window_join
from asterism.streams.operators import connect
from asterism.streams.row_patterns import match_recognize
from asterism.streams.windows import window
from asterism.windows.assigners import SlidingWindows, TumblingWindows
from asterism.windows.operator import LATE_ELEMENTS
from asterism.windows.plan import FIRINGS
from asterism.windows.triggers import CountTrigger, EventTimeTrigger
from tests.contracts.ledger import FEES, MOVES, Ledger
from tests.spark.rules import INTERVAL, SCHEMA, at, chain
from tests.spark.streams import write_file

DELAY = timedelta(seconds=5)
SECONDS = 20
"""Of event time in a file."""
EVENTS = "ts TIMESTAMP, user STRING, item BIGINT, kind STRING, x DOUBLE"
Columns = dict[str, list[Any]]


class Query(ABC):
    """:param seed: of the events; :param size: how many of them are in a file"""

    kind: str
    outputs: tuple[str, ...]
    ids: tuple[str, ...]
    """The outputs whose rows have an id by which a sink can tell that it has them already."""
    sources: ClassVar[Mapping[str, timedelta]] = {"events": DELAY}
    """The folders of files, in the order of the inputs, and how late their events may be."""
    named: ClassVar[Mapping[str, str]] = {}
    """The outputs that the operator calls otherwise."""
    has_rules = False

    def __init__(self, folder: Path, seed: int, *, key_groups: int = 4, size: int = 40) -> None:
        self.folder, self.seed, self.key_groups, self.size = folder, seed, key_groups, size
        self.location = str(self.checkpoint)

    @property
    def checkpoint(self) -> Path:
        """As a replay reads it; the query itself has it at ``location``."""
        return self.folder / "checkpoint"

    # ------------------------------------------------------------------ what comes

    def feed(self, number: int) -> None:
        """The files of this number."""
        for source, table in self.files(number, random.Random(f"{self.seed} {number}")).items():
            write_file(table, self.folder / source, number)

    def files(self, number: int, rng: random.Random) -> Mapping[str, pa.Table]:
        """Up to DELAY late, some events later than that, many with equal times."""
        rows = []
        for _ in range(self.size):
            second = number * SECONDS + rng.randrange(SECONDS)
            late = rng.random() < 0.03
            arrival = second + rng.random() * DELAY.total_seconds()
            kind = rng.choice("aabbcd") if rng.random() < 0.7 else "z"
            item, x = rng.randrange(4), float(rng.randrange(100))
            rows.append((arrival, at(second - 60 * late), f"u{rng.randrange(5)}", item, kind, x))
        rows.sort()
        columns = list(zip(*rows, strict=True))[1:]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        return {"events": pa.table(arrays, schema=SCHEMA)}

    def change_rules(self, rng: random.Random, second: float) -> None:  # noqa: B027 - most have none
        """Publish, change, postpone, withdraw or remove some; *second*: of event time, about now."""

    # ------------------------------------------------------------------ the query

    @abstractmethod
    def run(self, spark: SparkSession, sinks: Mapping[str, Sink], **how: Any) -> Any:
        """:param how: of ``run``: a trigger, drain"""

    def read(self, spark: SparkSession, source: str, schema: str) -> DataFrame:
        (self.folder / source).mkdir(parents=True, exist_ok=True)
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / source))

    def events(self, spark: SparkSession) -> KeyedStream:
        return KeyedStream(self.read(spark, "events", EVENTS), "user", "ts", max_out_of_orderness=DELAY)

    @property
    def table_schema(self) -> Mapping[str, pa.Schema]:
        return {"events": SCHEMA}

    def row_id(self, output: str, row: Mapping[str, Any]) -> str:
        return str(row["match_id"])


class PatternQuery(Query):
    kind = "pattern"
    outputs = ("matches", "timed_out", "late")
    ids = ("matches", "timed_out")
    pattern = (
        Pattern.begin("a").where("kind = 'a'").times(2).followed_by("b").where("kind = 'b' AND x > LAST(a.x)")
    ).within(timedelta(seconds=60))

    def run(self, spark: SparkSession, sinks: Mapping[str, Sink], **how: Any) -> Any:
        stream = CEP.pattern(self.events(spark), self.pattern, key_groups=self.key_groups)
        return stream.run(sinks, checkpoint=self.location, **how)


FAILING = "kind = 'a' AND CAST(CASE WHEN x > 96 THEN kind ELSE '1' END AS INT) = 1"


class RulesQuery(Query):
    """Rules of three keys, with chains of two or three stages, some that fail and some that do not compile; and their shadows."""

    kind = "rules"
    outputs = ("matches", "timed_out", "shadow", "late", "errors")
    ids = ("matches", "timed_out", "shadow")
    has_rules = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rules: dict[str, PatternProcessor] = {}
        self.versions: dict[tuple[str, int], int] = {}
        self.before: dict[str, PatternProcessor] = {}
        self.shadows: dict[str, PatternProcessor] = {}

    @property
    def rules_file(self) -> Path:
        return self.folder / "rules.json"

    def change_rules(self, rng: random.Random, second: float) -> None:
        for _ in range(rng.randint(1, 3)):
            name = f"r{rng.randrange(6)}"
            what = rng.choice(["publish", "publish", "change", "postpone", "withdraw", "remove"])
            if what == "withdraw" and name in self.before:  # the version that waited for its time is taken back
                self.rules[name] = self.before.pop(name)
            elif what == "remove":
                self.rules.pop(name, None)
                self.before.pop(name, None)
            else:
                if name in self.rules:
                    self.before[name] = self.rules[name]
                later = at(int(second) + rng.randrange(-10, 60)) if what == "postpone" else None
                self.rules[name] = self._rule(name, rng, later)
        if not self.rules:
            self.rules["r0"] = self._rule("r0", rng, None)
        self._change_shadows(random.Random(f"{self.seed} shadows {second}"))
        found: list[Any] = [rule.to_dict() for rule in (*self.rules.values(), *self.shadows.values())]
        if rng.random() < 0.2:
            found.append({"id": "broken", "version": 1, "pattern": {"stages": []}})
        new = self.folder / "rules.new"
        new.write_text(json.dumps(found))
        new.replace(self.rules_file)

    def _change_shadows(self, rng: random.Random) -> None:
        """Publish, change, promote or remove some."""
        for _ in range(2):
            name = f"r{rng.randrange(6)}"
            what = rng.choice(["publish", "publish", "promote", "remove"])
            if what == "publish":
                self.shadows[name] = replace(self._rule(name, rng, None, first=1000), shadow=True)
            elif what == "promote" and name in self.shadows:
                self.rules[name] = replace(self.shadows.pop(name), shadow=False)
                self.before.pop(name, None)
            elif what == "remove":
                self.shadows.pop(name, None)

    def _rule(self, name: str, rng: random.Random, timestamp: datetime | None, first: int = 1) -> PatternProcessor:
        version = self.versions.get((name, first), first)
        self.versions[name, first] = version + 1
        kinds = rng.sample("abcdz", rng.choice([2, 2, 3]))
        pattern = chain(*kinds, strict=rng.random() < 0.2, within=rng.choice([30, 60]))
        if rng.random() < 0.15:
            begin = Pattern.begin("a").where(FAILING)
            pattern = begin.followed_by("b").where("kind = 'b'").within(timedelta(seconds=30))
        return PatternProcessor(
            name,
            version,
            pattern,
            timestamp=timestamp,
            key=rng.choice([None, None, ("item",), ()]),
            timed_out=rng.random() < 0.5,
        )

    def run(self, spark: SparkSession, sinks: Mapping[str, Sink], **how: Any) -> Any:
        factory = FilePatternProcessorDiscovererFactory(self.rules_file, interval=INTERVAL)
        stream = CEP.pattern_processors(self.events(spark), factory, key_groups=self.key_groups, on_error="disable")
        return stream.run(sinks, checkpoint=self.location, **how)


class WindowQuery(Query):
    kind = "window"
    outputs = ("results", "late")
    named: ClassVar[Mapping[str, str]] = {FIRINGS: "results", LATE_ELEMENTS: "late"}
    ids = ("results",)
    trigger = (
        EventTimeTrigger.after_end_of_window()
        .with_early_trigger(CountTrigger.at_least(3))
        .with_late_trigger(CountTrigger.at_least(1))
    )

    def run(self, spark: SparkSession, sinks: Mapping[str, Sink], **how: Any) -> Any:
        windowed = window(
            self.events(spark), TumblingWindows.of(timedelta(seconds=30)), trigger=self.trigger,
            allowed_lateness=timedelta(seconds=40), key_groups=self.key_groups,
        )  # fmt: skip
        measures = ["count(*) AS n", "sum(x) AS total", "max_by(kind, x) AS kind_of_max"]
        return windowed.run(sinks, aggregate=measures, checkpoint=self.location, **how)

    def row_id(self, output: str, row: Mapping[str, Any]) -> str:
        return f"{row['user']} {utc(row['window_start'])} {row['firing']}"


class OperatorQuery(Query):
    """Accounts that are charged with fees: two inputs, keyed and broadcast state, timers in event time."""

    kind = "operator"
    outputs = ("booked", "statements")
    ids = ("booked",)
    sources: ClassVar[Mapping[str, timedelta]] = {"moves": DELAY, "fees": timedelta(0)}

    def files(self, number: int, rng: random.Random) -> Mapping[str, pa.Table]:
        moves = []
        for n in range(self.size):
            time = at(number * SECONDS + n * SECONDS / self.size)
            row = {
                "id": number * self.size + n,
                "account": number // 5 % 2 * 4 + rng.randrange(4),
                "t": time,
                "amount": rng.randrange(100),
            }
            moves.append((n + rng.random() * self.size / 5, row))
        moves.sort(key=lambda pair: pair[0])
        fee = {"t": at(number * SECONDS + 0.0001), "name": f"fee{rng.randrange(4)}", "fee": rng.randrange(5)}
        return {
            "moves": pa.Table.from_pylist([row for _, row in moves], self.table_schema["moves"]),
            "fees": pa.Table.from_pylist([fee], self.table_schema["fees"]),
        }

    @property
    def table_schema(self) -> Mapping[str, pa.Schema]:
        return {"moves": schema_of(MOVES), "fees": schema_of(FEES)}

    def run(self, spark: SparkSession, sinks: Mapping[str, Sink], **how: Any) -> Any:
        moves = KeyedStream(self.read(spark, "moves", MOVES), "account", "t", max_out_of_orderness=DELAY)
        fees = BroadcastStream(self.read(spark, "fees", FEES), "t")
        stream = connect(Ledger(), moves=moves, fees=fees, key_groups=self.key_groups)
        return stream.run(sinks, checkpoint=self.location, **how)

    def row_id(self, output: str, row: Mapping[str, Any]) -> str:
        return str(row["id"])


class RowPatternQuery(Query):
    """MATCH_RECOGNIZE with numbers of matches, rows before a match, and conditions on the match so far."""

    kind = "row_pattern"
    outputs = ("matches", "late")
    ids = ("matches",)
    clause = """
        PARTITION BY user ORDER BY ts, item, x, kind
        MEASURES MATCH_NUMBER() AS number, FIRST(ts) AS began, LAST(ts) AS ended, COUNT(B.*) AS bs, SUM(x) AS total,
            PREV(FIRST(kind)) AS before
        PATTERN (A B* C) WITHIN INTERVAL '60' SECOND
        DEFINE A AS kind = 'a', B AS kind <> 'c', C AS kind = 'c' OR (kind = 'b' AND x > A.x AND x > PREV(x))
    """

    def run(self, spark: SparkSession, sinks: Mapping[str, Sink], **how: Any) -> Any:
        events = self.read(spark, "events", EVENTS)
        stream = match_recognize(events, self.clause, max_out_of_orderness=DELAY, key_groups=self.key_groups)
        return stream.run(sinks, checkpoint=self.location, **how)

    def row_id(self, output: str, row: Mapping[str, Any]) -> str:
        return f"{row['user']} {row['number']}"


CLICKS = "at TIMESTAMP, who STRING, click BIGINT"


VIEWS = "at TIMESTAMP, who STRING, view BIGINT"


class ClicksQuery(Query):
    """Events, and clicks of the same users. Of both some are late, and some have equal times."""

    ids = ("results",)

    def events_and_clicks(self, number: int, rng: random.Random) -> tuple[pa.Table, pa.Table]:
        clicks = []
        for n in range(self.size // 2):
            second = number * SECONDS + n * SECONDS // (self.size // 2)
            time = at(second - 60 * (rng.random() < 0.05))
            clicks.append({"at": time, "who": f"u{rng.randrange(5)}", "click": number * self.size + n})
        events = super().files(number, rng)["events"]
        # Of rows with equal times and values, an id would not tell which is which.
        events = events.set_column(2, "item", pa.array(range(number * self.size, (number + 1) * self.size)))
        return events, pa.Table.from_pylist(clicks, schema_of(CLICKS))


class JoinQuery(ClicksQuery):
    """Of events and clicks."""

    outputs = ("results", "late_left", "late_right")
    sources: ClassVar[Mapping[str, timedelta]] = {"left": DELAY, "right": DELAY}

    def files(self, number: int, rng: random.Random) -> Mapping[str, pa.Table]:
        return dict(zip(self.sources, self.events_and_clicks(number, rng), strict=True))

    @property
    def table_schema(self) -> Mapping[str, pa.Schema]:
        return {"left": SCHEMA, "right": schema_of(CLICKS)}

    @abstractmethod
    def join(self, events: KeyedStream, clicks: KeyedStream) -> JoinedStream: ...

    def run(self, spark: SparkSession, sinks: Mapping[str, Sink], **how: Any) -> Any:
        events = KeyedStream(self.read(spark, "left", EVENTS), "user", "ts", max_out_of_orderness=DELAY)
        clicks = KeyedStream(
            self.read(spark, "right", CLICKS), "who", "at", order_by=self.order_by, max_out_of_orderness=DELAY
        )
        return self.join(events, clicks).run(sinks, checkpoint=self.location, **how)

    order_by: ClassVar[list[str]] = []

    def row_id(self, output: str, row: Mapping[str, Any]) -> str:
        return f"{row['item']} {row['click']} {utc(row.get('window_start'))}"


class IntervalJoinQuery(JoinQuery):
    kind = "interval_join"

    def join(self, events: KeyedStream, clicks: KeyedStream) -> JoinedStream:
        bounds = (timedelta(seconds=-10), timedelta(seconds=25))
        how: dict[str, Any] = {"how": "left", "on": "kind <> 'd' AND click % 4 > 0"}
        return interval_join(events, clicks, between=bounds, key_groups=self.key_groups, **how)


class AsOfJoinQuery(JoinQuery):
    kind = "as_of_join"
    order_by: ClassVar[list[str]] = ["-click"]

    def join(self, events: KeyedStream, clicks: KeyedStream) -> JoinedStream:
        return as_of_join(events, clicks, tolerance=timedelta(seconds=30), how="left", key_groups=self.key_groups)


class WindowJoinQuery(JoinQuery):
    kind = "window_join"

    def join(self, events: KeyedStream, clicks: KeyedStream) -> JoinedStream:
        windows = SlidingWindows.of(timedelta(seconds=20), timedelta(seconds=10))
        return window_join(events, clicks, windows, how="left", on="click % 4 > 0", key_groups=self.key_groups)


class MultiJoinQuery(ClicksQuery):
    """Events with the clicks and, if there are any, the views of the same users."""

    kind = "multi_join"
    outputs = ("results", "late_events", "late_clicks", "late_views")
    sources: ClassVar[Mapping[str, timedelta]] = {"events": DELAY, "clicks": DELAY, "views": DELAY}

    def files(self, number: int, rng: random.Random) -> Mapping[str, pa.Table]:
        events, clicks = self.events_and_clicks(number, rng)
        _, views = self.events_and_clicks(number, rng)
        return {"events": events, "clicks": clicks, "views": views.rename_columns(schema_of(VIEWS).names)}

    @property
    def table_schema(self) -> Mapping[str, pa.Schema]:
        return {"events": SCHEMA, "clicks": schema_of(CLICKS), "views": schema_of(VIEWS)}

    def run(self, spark: SparkSession, sinks: Mapping[str, Sink], **how: Any) -> Any:
        of_users = {
            name: KeyedStream(self.read(spark, name, columns), "who", "at", max_out_of_orderness=DELAY)
            for name, columns in (("clicks", CLICKS), ("views", VIEWS))
        }
        joined = multi_join(
            {"events": self.events(spark), **of_users},
            {
                ("events", "clicks"): (timedelta(seconds=-5), timedelta(seconds=10)),
                ("clicks", "views"): (timedelta(0), timedelta(seconds=4)),
            },
            how={"views": "left"},
            on={"clicks": "click % 4 > 0", "views": "kind <> 'd'"},
            prefix={"views": "view_"},
            key_groups=self.key_groups,
        )
        return joined.run(sinks, checkpoint=self.location, **how)

    def row_id(self, output: str, row: Mapping[str, Any]) -> str:
        return f"{row['item']} {row['click']} {row['view_view']}"


QUERIES: dict[str, type[Query]] = {
    one.kind: one
    for one in (
        PatternQuery, RulesQuery, WindowQuery, OperatorQuery, RowPatternQuery,
        IntervalJoinQuery, AsOfJoinQuery, WindowJoinQuery, MultiJoinQuery,
    )
}  # fmt: skip


def utc(value: Any) -> Any:
    """As text that is the same for all ways to write a time, wherever it is."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, Mapping):
        return {key: utc(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [utc(item) for item in value]
    return value


def text(row: Mapping[str, Any]) -> str:
    """A row in a form to compare."""
    return json.dumps(utc(row), sort_keys=True, ensure_ascii=False)
