"""A query that continues from a savepoint, with other key groups and tasks, has the rows of one that was never stopped."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    CountTrigger,
    EventTimeTrigger,
    KeyedStream,
    Pattern,
    SessionWindows,
    create_savepoint,
    diff_savepoints,
    match_recognize,
    read_savepoint,
    read_state,
    rescale_checkpoint,
    restore_savepoint,
    window,
)
from asterism.cli.main import main
from asterism.errors import StateError
from asterism.sinks import FileSink
from asterism.spark.savepoints import restoring
from asterism.spark.savepoints.folders import StoredFolder
from asterism.streams.windows import WindowedStream

pytestmark = pytest.mark.spark
SECOND = timedelta(seconds=1)
EVENTS = "ts TIMESTAMP, user STRING, kind STRING, v BIGINT"
AB = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(30 * SECOND)
CLAUSE = """
    PARTITION BY user ORDER BY ts MEASURES FIRST(A.v) AS first, LAST(B.v) AS last, COUNT(*) AS n
    PATTERN (A B+ C) WITHIN INTERVAL '40' SECOND DEFINE A AS kind = 'a', B AS v >= A.v, C AS kind = 'b'
"""


@dataclass
class Query:
    """A query over a folder of files, of which each is a micro-batch.

    :ivar make: the stream, and its outputs
    """

    spark: SparkSession
    folder: Path
    make: Callable[[DataFrame, dict[str, Any]], tuple[Any, list[str]]]

    def write(self, number: int, rows: list[dict[str, Any]]) -> None:
        (self.folder / "events").mkdir(parents=True, exist_ok=True)
        schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", "string"), ("kind", "string"), ("v", "int64")])
        path = self.folder / "events" / f"{number:03d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads files in this order

    def run(
        self,
        checkpoint: str,
        *,
        drain: bool,
        from_savepoint: str | None = None,
        begin: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        reader = self.spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
        stream, outputs = self.make(reader.parquet(str(self.folder / "events")), options)
        contents: dict[str, Any] = {"aggregate": ["SUM(v) AS v"]} if isinstance(stream, WindowedStream) else {}
        contents |= begin or {}
        sinks = {output: FileSink(str(self.folder / output)) for output in outputs}
        stream.run(sinks, checkpoint=self.place_of(checkpoint), drain=drain, from_savepoint=from_savepoint, **contents)

    def place_of(self, checkpoint: str) -> str:
        return str(self.folder / checkpoint)

    def rows(self) -> dict[str, Counter[str]]:
        _, outputs = self.make(self.spark.readStream.schema(EVENTS).parquet(str(self.folder / "events")), {})
        return {
            output: Counter(
                str(row) for row in self.spark.read.parquet(str(self.folder / output)).drop("batch").collect()
            )
            for output in outputs
        }


def of_pattern(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
    events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
    return CEP.pattern(events, AB, **options), ["matches", "timed_out"]


def of_clause(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
    return match_recognize(df, CLAUSE, max_out_of_orderness=3 * SECOND, **options), ["matches"]


def of_windows(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
    trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
    stream = window(
        KeyedStream(df, key="user", time="ts"), SessionWindows.with_gap(9 * SECOND), trigger=trigger, **options
    )
    return stream, ["results"]


def parts() -> list[list[dict[str, Any]]]:
    """Events in six files, out of order by up to three seconds."""
    rng, begin = random.Random(5), datetime(2025, 1, 1, tzinfo=UTC)
    return [
        [
            {
                "ts": begin + (number - rng.randrange(4)) * SECOND,
                "user": f"u{rng.randrange(7)}",
                "kind": rng.choice("aab"),
                "v": rng.randrange(9),
            }
            for number in range(30 * part, 30 * part + 30)
        ]
        for part in range(6)
    ]


@pytest.mark.parametrize("make", [of_pattern, of_clause, of_windows])
def test_a_query_continues_with_other_key_groups_and_tasks(
    spark: SparkSession, tmp_path: Path, make: Callable[..., Any]
) -> None:
    whole, moved = Query(spark, tmp_path / "whole", make), Query(spark, tmp_path / "moved", make)
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
    whole.run("checkpoint", drain=True)
    places = [("checkpoint", {"key_groups": 3}), ("second", {}), ("third", {})]
    for stop, (checkpoint, options) in enumerate(places):
        if stop:
            savepoint = str(tmp_path / f"savepoint-{stop}")
            create_savepoint(spark, str(moved.folder / places[stop - 1][0]), savepoint)
            restore_savepoint(spark, savepoint, str(moved.folder / checkpoint), key_groups=(8, 2)[stop - 1], tasks=2)
        for number in (2 * stop, 2 * stop + 1):
            moved.write(number, parts()[number])
        moved.run(checkpoint, drain=stop == 2, **options)
    assert moved.rows() == whole.rows()
    assert all(moved.rows().values())
    log = (moved.folder / "third" / "offsets" / "1").read_text()
    assert '"keyGroups": 2' in log or '"keyGroups":2' in log


def test_an_interrupted_restore_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(spark, tmp_path, of_pattern)
    query.write(0, parts()[0])
    query.run("first", drain=False)
    create_savepoint(spark, str(tmp_path / "first"), str(tmp_path / "savepoint"))
    with pytest.raises(StateError, match="is not empty"):
        create_savepoint(spark, str(tmp_path / "first"), str(tmp_path / "savepoint"))
    open_matches = [
        sorted(map(str, reader.partial_matches(events=True).collect()))
        for reader in (read_state(spark, str(tmp_path / "first")), read_savepoint(spark, str(tmp_path / "savepoint")))
    ]
    assert open_matches[0] == open_matches[1] != []
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "_write_logs", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            restore_savepoint(spark, str(tmp_path / "savepoint"), str(tmp_path / "second"), key_groups=2)
    query.write(1, parts()[1])
    with pytest.raises(StateError, match="incomplete"):
        query.run("second", drain=False)
    restore_savepoint(spark, str(tmp_path / "savepoint"), str(tmp_path / "second"), key_groups=2)
    with pytest.raises(StateError, match="already exists"):
        restore_savepoint(spark, str(tmp_path / "savepoint"), str(tmp_path / "second"), key_groups=2)
    query.run("second", drain=True)
    assert query.rows()["matches"]


def test_a_checkpoint_is_rescaled_in_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, scaled = Query(spark, tmp_path / "whole", of_pattern), Query(spark, tmp_path / "scaled", of_pattern)
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
    whole.run("checkpoint", drain=True)
    checkpoint = str(scaled.folder / "checkpoint")
    for number, rows in enumerate(parts()):
        scaled.write(number, rows)
        scaled.run("checkpoint", drain=number == 5)
        if number == 0:
            with monkeypatch.context() as patch:  # after the restore, before the file that says so
                patch.setattr(StoredFolder, "replace", lambda *arguments: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    rescale_checkpoint(spark, checkpoint, tasks=1)
        elif number in (1, 3):
            rescale_checkpoint(spark, checkpoint, tasks=number, key_groups=number + 2)
            assert read_state(spark, checkpoint).key_groups().count() == number + 2
    assert scaled.rows() == whole.rows()
    assert json.loads((scaled.folder / "checkpoint" / "asterism_current.json").read_text()) == {
        "folder": "rescaled-2",
        "former": "rescaled-1",
    }


@pytest.mark.parametrize("make", [of_pattern, of_clause, of_windows])
def test_a_query_begins_from_a_savepoint(spark: SparkSession, tmp_path: Path, make: Callable[..., Any]) -> None:
    """The first start makes the checkpoint; later ones go on, also if the savepoint is gone; another savepoint is refused."""
    whole, moved = Query(spark, tmp_path / "whole", make), Query(spark, tmp_path / "moved", make)
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        moved.write(number, rows)
        if number == 1:
            moved.run("first", drain=False, key_groups=3)
            for name in ("savepoint", "other"):
                create_savepoint(spark, str(moved.folder / "first"), str(tmp_path / name))
        elif number == 3:
            moved.run("second", drain=False, key_groups=4, from_savepoint=str(tmp_path / "savepoint"))
            with pytest.raises(StateError, match=r"was not made from the savepoint .*other"):
                moved.run("second", drain=False, from_savepoint=str(tmp_path / "other"))
            with pytest.raises(StateError, match="began without a savepoint"):
                moved.run("first", drain=False, from_savepoint=str(tmp_path / "savepoint"))
            if make is of_clause:
                rescale_checkpoint(spark, str(moved.folder / "second"), tasks=1, key_groups=4)
            shutil.rmtree(tmp_path / "savepoint")
        elif number > 3:
            moved.run("second", drain=number == 5, key_groups=4, from_savepoint=str(tmp_path / "savepoint"))
    whole.run("checkpoint", drain=True)
    assert moved.rows() == whole.rows()
    with pytest.raises(StateError, match="there is no savepoint"):
        moved.run("third", drain=False, from_savepoint=str(tmp_path / "savepoint"))


def test_savepoints_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, of_pattern)
    names = [str(tmp_path / f"savepoint-{number}") for number in range(3)]
    query.write(0, parts()[0])
    query.run("first", drain=False, key_groups=3)
    create_savepoint(spark, str(tmp_path / "first"), names[0])
    restore_savepoint(spark, names[0], str(tmp_path / "second"), key_groups=7, tasks=1)
    create_savepoint(spark, str(tmp_path / "second"), names[1])
    moved = diff_savepoints(spark, *names[:2])
    assert {change.name for change in moved.query} <= {"tasks", "micro-batch"}
    assert [change.name for change in moved.operators[0].definition] == ["key groups"]
    assert not [table for table in moved.operators[0].tables if table.added or table.removed or table.changed]
    query.write(1, parts()[1])
    query.run("second", drain=False)
    create_savepoint(spark, str(tmp_path / "second"), names[2])
    grown = diff_savepoints(spark, *names[1:])
    assert [change.name for change in grown.sources] == ["source 0", "source 1"] or len(grown.sources) == 1
    assert {change.name for change in grown.operators[0].watermarks} == {"operator", "events"}
    keys = [
        {str(row.key): str(row) for row in spark.read.parquet(f"{name}/keys").select("key", "state").collect()}
        for name in names[1:]
    ]
    [of_keys] = [table for table in grown.operators[0].tables if table.table == "keys"]
    both = keys[0].keys() & keys[1].keys()
    changed = sum(keys[0][key] != keys[1][key] for key in both)
    added, removed = len(keys[1].keys() - both), len(keys[0].keys() - both)
    assert (of_keys.added, of_keys.removed, of_keys.changed) == (added, removed, changed)
    assert changed
    arguments = ["savepoint", "diff", *names[1:], "--json"]
    shown = json.loads(CliRunner().invoke(main, arguments, catch_exceptions=False).stdout)
    assert shown == json.loads(json.dumps(grown.to_dict()))
