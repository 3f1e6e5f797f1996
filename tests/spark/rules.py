"""A query with pattern processors over a folder of events and a file of rules, as a test drives it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from asterism import CEP, KeyedStream, Pattern, PatternProcessorStream
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.rules.sets.set_store import STORE, FolderStore
from asterism.savepoints.offset_log import offsets_of_log
from tests.kit import until
from tests.spark.streams import Collect, write_file

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("user", pa.string()),
        ("item", pa.int64()),
        ("kind", pa.string()),
        ("x", pa.float64()),
    ]
)
Event = tuple[float, str, str, int, float]
"""Second, kind, user, item, x."""
Found = tuple[str, int, tuple[str, ...], str]
"""Id, version, key, and the kinds and seconds of the events."""
INTERVAL = timedelta(milliseconds=50)


def e(second: float, kind: str, user: str = "ann", item: int = 7, x: float = 0.0) -> Event:
    return second, kind, user, item, x


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def chain(*kinds: str, strict: bool = False, within: float | None = 60) -> Pattern:
    """One stage for each kind, named as it."""
    pattern = Pattern.begin(kinds[0]).where(f"kind = '{kinds[0]}'")
    for kind in kinds[1:]:
        pattern = (pattern.next(kind) if strict else pattern.followed_by(kind)).where(f"kind = '{kind}'")
    return pattern if within is None else pattern.within(timedelta(seconds=within))


def rule(name: str, version: int, *kinds: str, **more: Any) -> PatternProcessor:
    """A processor that looks for a chain of *kinds*."""
    return PatternProcessor(name, version, chain(*kinds), **more)


def found(rows: Iterable[Mapping[str, Any]]) -> list[Found]:
    """Matches in a form to compare, sorted."""
    return sorted(
        (
            row["processor_id"],
            row["processor_version"],
            tuple(row["key"]),
            " ".join(f"{one['event']['kind']}{one['event']['ts'].timestamp():g}" for one in row["events"]),
        )
        for row in rows
    )


class Watch:
    """:param options: of ``CEP.pattern_processors``"""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        *,
        factory: PatternProcessorDiscovererFactory | None = None,
        keys: tuple[str, ...] = ("user",),
        delay: float = 0,
        files_at_once: int | None = None,
        **options: Any,
    ) -> None:
        self.spark, self.folder, self.options = spark, folder, {"key_groups": 4} | options
        self.keys, self.delay, self.files_at_once = keys, timedelta(seconds=delay), files_at_once
        self.file, self.checkpoint = folder / "rules.json", folder / "checkpoint"
        self.factory = factory or FilePatternProcessorDiscovererFactory(self.file, interval=INTERVAL)
        self.sinks: dict[str, Any] = {name: Collect() for name in ("matches", "errors")}
        self.query: StreamingQuery | None = None
        (folder / "events").mkdir(exist_ok=True)

    # ------------------------------------------------------------------ what comes

    def rules(self, *rules: PatternProcessor | Mapping[str, Any]) -> None:
        """What is in the file from now on."""
        items = [one.to_dict() if isinstance(one, PatternProcessor) else one for one in rules]
        self.write(json.dumps(items))

    def write(self, text: str) -> None:
        new = self.file.with_name("new")
        new.write_text(text)
        new.replace(self.file)

    def events(self, *events: Event | tuple[None, str, str, int, float]) -> None:
        """A file of its own; a time may be null."""
        names = ["ts", "kind", "user", "item", "x"]
        times = [None if second is None else at(second) for second, *_ in events]
        rows = [dict(zip(names, [time, *rest], strict=True)) for time, (_, *rest) in zip(times, events, strict=True)]
        number = len(list((self.folder / "events").glob("*.parquet")))
        write_file(pa.Table.from_pylist(rows, SCHEMA), self.folder / "events", number)

    # ------------------------------------------------------------------ the query

    @property
    def stream(self) -> PatternProcessorStream:
        reader = self.spark.readStream.schema("ts TIMESTAMP, user STRING, item BIGINT, kind STRING, x DOUBLE")
        if self.files_at_once is not None:
            reader = reader.option("maxFilesPerTrigger", self.files_at_once)
        return self.stream_of(reader.parquet(str(self.folder / "events")))

    def stream_of(self, df: DataFrame) -> PatternProcessorStream:
        events = KeyedStream(df, self.keys, "ts", max_out_of_orderness=self.delay)
        return CEP.pattern_processors(events, self.factory, **self.options)

    def once(self) -> StreamingQuery:
        """Process what is there, and end."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return query

    def start(self, **trigger: Any) -> StreamingQuery:
        query = self.stream.run(self.sinks, checkpoint=str(self.checkpoint), trigger=trigger)
        assert query is not None
        return query

    @contextmanager
    def running(self) -> Iterator[Watch]:
        self.query = self.start(processingTime="0 seconds")
        try:
            yield self
        finally:
            self.query.stop()
            self.query = None

    def settle(self) -> Watch:
        """Until all that is there has been processed."""
        assert self.query is not None
        self.query.processAllAvailable()
        return self

    def send(self, *events: Event) -> Watch:
        """Events that are seen at once: another one shows that their time has passed."""
        self.events(*events, (events[-1][0] + 0.5, "tick", "-", -1, 0.0))
        return self.settle()

    def taken(self, *rules: PatternProcessor) -> Watch:
        """The rules as they are to be in force, written and taken: what comes from now on is theirs."""
        self.rules(*rules)
        self.wait_for({one.id: one.version for one in rules})
        return self.settle()

    def wait_for(self, versions: Mapping[str, int], state: str = "valid") -> Status:
        until(lambda: (self.status.processors, self.status.state) == (versions, state), self.query)
        return self.status

    @property
    def status(self) -> Status:
        return FolderStore(f"{self.checkpoint}/{STORE}").read_status()

    @property
    def found(self) -> list[Found]:
        return found(self.sinks["matches"].rows)

    def history(self) -> Iterator[tuple[int, list[Event]]]:
        """Of each micro-batch the number of the newest set, and the events that it read; from the query's own logs."""
        read: dict[int, dict[str, None]] = {}
        for log in (self.checkpoint / "sources").glob("*/[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                read.setdefault(entry["batchId"], {})[entry["path"]] = None
        last = -1
        for log in sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
            offsets = [offset for offset in offsets_of_log(log.read_text()) if offset is not None]
            number = next(offset["set"] for offset in offsets if "set" in offset)
            until = next((offset["logOffset"] for offset in offsets if "logOffset" in offset), last)
            paths = [path for n in range(last + 1, until + 1) for path in read.get(n, ())]
            last = until
            rows = [row for path in paths for row in pq.read_table(path.removeprefix("file://")).to_pylist()]
            yield number, [(r["ts"].timestamp(), r["kind"], r["user"], r["item"], r["x"]) for r in rows]
