"""What a live engine does if something fails: nothing is lost, and nothing is doubled by id."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import CEP, KeyedStream, Pattern
from asterism.errors import (
    AsterismError,
    CheckpointInUseError,
    CheckpointMismatchError,
    ColumnTypeError,
    InvalidEventError,
    LeaseLostError,
    StateError,
    StreamDefinitionError,
)
from asterism.live import snapshots
from asterism.live.engine import LiveEngine
from asterism.live.snapshots import DATABASE, SnapshotFolder, SnapshotRecord, read_snapshot
from asterism.sinks import FileSink, KafkaSink, SqlSink
from tests.kit import SOON, until
from tests.live.driver import in_order, killed

SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("price", pa.float64())])
PAIRS = Pattern.begin("a").followed_by("b").where("price < LAST(a.price)").within(timedelta(seconds=10))


def opened(folder: Path | None = None, pattern: Pattern = PAIRS, **options: Any) -> LiveEngine:
    stream: Any = KeyedStream(SCHEMA, key="user", time="ts")
    return CEP.pattern(stream, pattern).open(folder, **options)


def event(number: int, price: float | None = None) -> dict[str, Any]:
    return {"user": "ann", "ts": 1000 * number, "price": float(-number) if price is None else price}


PROGRAM = """
import json, sys
from tests.live.test_failures import event, opened
from pathlib import Path

engine = opened(Path(sys.argv[1]), snapshot_every=7)
start = 0 if engine.position is None else engine.position + 1
with open(sys.argv[2], "a") as file:
    for number in range(start, 150):
        if number == 120 and len(sys.argv) > 3:
            sys.stdin.read()  # it is not over before it is killed
        rows = engine.process(event(number), position=number, watermark=1000 * number)
        for row in rows["matches"].to_pylist():
            file.write(json.dumps([row["match_id"], row["a"][0]["ts"], row["b"][0]["ts"]]) + "\\n")
        file.flush()
    for row in engine.finish()["matches"].to_pylist():
        file.write(json.dumps([row["match_id"], row["a"][0]["ts"], row["b"][0]["ts"]]) + "\\n")
engine.close()
"""


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    """Rows are those of a table: none is missing, and rows that came twice have the same id."""
    output, arguments = (
        tmp_path / "rows",
        [sys.executable, "-c", PROGRAM, str(tmp_path / "state"), str(tmp_path / "rows")],
    )
    with subprocess.Popen([*arguments, "held"], stdin=subprocess.PIPE) as process:
        try:
            until(lambda: process.poll() is not None or (output.exists() and output.read_text().count("\n") >= 40))
            assert process.poll() is None
        finally:
            process.kill()
    subprocess.run(arguments, check=True, timeout=SOON)
    found = [tuple(json.loads(line)) for line in output.read_text().splitlines()]
    table = pa.Table.from_pylist([event(number) for number in range(150)], SCHEMA)
    stream: Any = KeyedStream(table, key="user", time="ts")
    expected = {
        (row["match_id"], row["a"][0]["ts"], row["b"][0]["ts"])
        for row in CEP.pattern(stream, PAIRS).matches.to_pylist()
    }
    assert set(found) == expected
    assert len(found) < 2 * len(expected)


def test_a_batch_that_fails_has_no_effect() -> None:
    engine, whole = opened(), opened()
    good = [event(1, 5.0), event(2, 4.0)]
    for wrong in (
        {"user": "ann", "ts": "noon"},
        [event(3), 5],
        pa.table({"user": ["ann"], "ts": ["1"], "price": [1.0]}),
        pa.table({"user": ["ann"], "price": [1.0]}),
        {"user": "ann", "price": 1.0},
        "events",
        None,
    ):
        with pytest.raises(AsterismError):
            engine.process(wrong, position=1)
    assert engine.position is None
    assert engine.progress["batchId"] == 0
    for each in (engine, whole):
        each.process(good, position=2)
    assert in_order(engine.finish()["matches"]) == in_order(whole.finish()["matches"])


def test_a_condition_that_fails_on_one_batch() -> None:
    def condition(events: pa.Table) -> list[bool]:
        prices = events["price"].to_pylist()
        if 13.0 in prices:
            raise RuntimeError("thirteen")
        return [True] * len(prices)

    engine = opened(pattern=Pattern.begin("a").where(condition).next("b").where("price < LAST(a.price)"))
    engine.process(event(1, 9.0))
    with pytest.raises(AsterismError, match="thirteen"):
        engine.process([event(2, 8.0), event(3, 13.0)])
    engine.process(event(2, 8.0))
    assert engine.finish()["matches"].num_rows == 1


def test_types_that_change_between_batches() -> None:
    engine = opened()
    engine.process(
        pa.table({"ts": pa.array([1000], pa.int32()), "price": pa.array([9], pa.float32()), "user": ["ann"]})
    )
    engine.process(pa.table({"ts": [2000], "price": [8.0], "user": pa.array(["ann"]).dictionary_encode(), "more": [1]}))
    rows = engine.process(pa.table({"ts": [3000], "price": pa.nulls(1), "user": pa.array(["ann"], pa.large_string())}))
    with pytest.raises(ColumnTypeError, match='the column "price" of this batch is of type STRING'):
        engine.process(pa.table({"ts": [4000], "price": ["7"], "user": ["ann"]}))
    with pytest.raises(ColumnTypeError, match=r'the column "ts" of this batch is of type DECIMAL\(20,0\)'):
        engine.process(pa.table({"ts": pa.array([2**63], pa.uint64()), "price": [7.0], "user": ["ann"]}))
    assert rows["matches"].num_rows == 1
    assert engine.finish()["matches"].num_rows == 0


def test_batches_that_are_none() -> None:
    engine = opened()
    columns = pa.array([1000]), pa.array([9.0]), pa.array(["ann"])
    twice = pa.table([*columns, columns[1]], names=["ts", "price", "user", "price"])
    with pytest.raises(InvalidEventError, match="two columns of the batch are named 'price'"):
        engine.process(twice)

    class LazyFrame:
        def collect(self) -> pa.Table: ...

    with pytest.raises(InvalidEventError, match=r"process\(frame.collect\(\)\)"):
        engine.process(LazyFrame())


def test_readers() -> None:
    batches = [pa.RecordBatch.from_pylist([event(number)], SCHEMA) for number in range(5)]

    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches
        raise OSError("the line is down")

    engine = opened()
    with pytest.raises(InvalidEventError, match="a reader is not a batch"):
        engine.process(pa.RecordBatchReader.from_batches(SCHEMA, batches))
    found = engine.stream(pa.RecordBatchReader.from_batches(SCHEMA, failing()))
    assert [next(found)["matches"].num_rows for _ in range(3)] == [1, 1, 1]
    with pytest.raises(OSError, match="the line is down"):
        next(found)
    endless = ({"user": "ann", "ts": 1000 * n, "price": -1.0 * n} for n in range(5, 10**9))
    assert next(engine.stream(endless))["matches"].num_rows == 1


def test_threads() -> None:
    """One call at a time: all events are there, and sinks have all rows."""
    written: list[Any] = []
    engine = opened(pattern=Pattern.begin("a"), sinks={"matches": lambda rows, number: written.append((number, rows))})

    def send(first: int) -> None:
        for number in range(first, first + 20):
            engine.process({"user": str(first), "ts": 1_000_000, "price": float(number)})

    threads = [threading.Thread(target=send, args=(100 * thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.finish()
    assert engine.progress["numInputRows"] == 80
    assert sum(rows.num_rows for _, rows in written) == 80
    assert sorted(number for number, _ in written) == [number for number, _ in written]


def test_a_sink_that_fails_or_calls_the_engine(tmp_path: Path) -> None:
    fails = [True]

    def sink(rows: pa.Table, number: int) -> None:
        if fails:
            fails.clear()
            raise RuntimeError("no line")
        written.append(number)

    written: list[int] = []
    engine = opened(tmp_path, pattern=Pattern.begin("a"), sinks={"matches": sink})
    with pytest.raises(RuntimeError, match="no line"):
        engine.process(event(1), watermark=1000, position=1)
    assert engine.position is None
    engine.process(event(1), watermark=1000, position=1)
    assert written == [0]
    engine.close()
    with pytest.raises(StreamDefinitionError, match="the engine is closed"):
        engine.process(event(2))

    again = opened(pattern=Pattern.begin("a"), sinks={"matches": lambda rows, number: again.finish()})
    with pytest.raises(StreamDefinitionError, match="calls the engine"):
        again.process(event(1), watermark=1000)


def test_a_process_that_is_killed_between_a_snapshot_and_its_output(tmp_path: Path) -> None:
    """The snapshot that a call takes does not have its own effects, whose rows are not written yet."""
    engine = opened(tmp_path, snapshot_every=1)
    engine.process(event(1), position=1)
    engine.process(event(2), position=2, watermark=2000)
    killed(engine)
    engine = opened(tmp_path)
    assert engine.position == 1
    assert engine.process(event(2), position=2, watermark=2000)["matches"].num_rows == 1
    killed(engine)


def test_a_folder_of_another_query(tmp_path: Path) -> None:
    with opened(tmp_path / "state") as engine:
        engine.process(event(1))
    with pytest.raises(CheckpointMismatchError, match="the pattern"):
        opened(tmp_path / "state", Pattern.begin("a").next("c"))
    other: Any = KeyedStream(SCHEMA.append(pa.field("at", pa.timestamp("us", "Europe/Paris"))), key="user", time="ts")
    with pytest.raises(CheckpointMismatchError, match="time zone"):
        CEP.pattern(other, PAIRS).open(tmp_path / "state")
    with opened(tmp_path / "state") as engine:
        assert engine.process(event(2), watermark=2000)["matches"].num_rows == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata").write_text("{}")
    with pytest.raises(CheckpointMismatchError, match="not that of a live engine"):
        opened(tmp_path / "other")
    assert not (tmp_path / "other" / DATABASE).exists()


def test_a_folder_in_use(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        engine.process(event(1))
        with pytest.raises(CheckpointInUseError):
            opened(tmp_path)
        engine.process(event(2))
    opened(tmp_path).close()


def test_a_folder_that_was_taken_over(tmp_path: Path) -> None:
    engine = opened(tmp_path, snapshot_every=None)
    engine.process(event(1), position=1)
    folder = engine._folder
    assert folder is not None

    def lost() -> None:
        raise LeaseLostError("taken over")

    folder._lease.check = lost  # type: ignore[method-assign]
    with pytest.raises(LeaseLostError):
        engine.snapshot()
    killed(engine)
    engine = opened(tmp_path)
    assert engine.position is None
    engine.close()


def test_a_process_that_is_paused_within_a_snapshot(tmp_path: Path) -> None:
    """It has checked its lease before; another engine has taken over the folder since then."""

    class Page:
        def __len__(self) -> int:
            return 1

        def to_bytes(self) -> bytes:
            paused._lease.release()
            other = SnapshotFolder(tmp_path)
            other.write({1: b"other"}, SnapshotRecord(pages=1), lambda: None, pytest.fail)
            other.close()
            return b"paused"

    paused, errors = SnapshotFolder(tmp_path), list[AsterismError]()
    paused.write({0: Page()}, SnapshotRecord(pages=1), pytest.fail, errors.append)
    paused.wait()
    assert [type(error) for error in errors] == [LeaseLostError]
    assert read_snapshot(tmp_path)[1] == {1: b"other"}
    paused.close()


def test_a_full_disk(tmp_path: Path) -> None:
    """The snapshot fails as a whole. The next call says so, and does nothing; then everything goes on."""
    engine = opened(tmp_path, pattern=Pattern.begin("a").next("b"), snapshot_every=None)
    engine.process(event(1), position=1)
    engine.snapshot()
    folder = engine._folder
    assert folder is not None
    pages = folder._database.execute("PRAGMA page_count").fetchone()[0]
    folder._database.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(2, 200):
        engine.process({"user": f"user {number}" * 100, "ts": number * 1000, "price": 1.0}, position=number)
    with pytest.raises(StateError, match="cannot be written"):
        engine.snapshot()
    assert read_snapshot(tmp_path)[0].positions == {"events": 1}
    engine.process(event(200), position=200)
    folder._database.execute("PRAGMA max_page_count = 1000000")
    engine.snapshot()
    assert read_snapshot(tmp_path)[0].positions == {"events": 200}
    killed(engine)
    engine = opened(tmp_path, pattern=Pattern.begin("a").next("b"))
    assert engine.position == 200
    assert len(read_snapshot(tmp_path)[1]) > 2
    engine.close()


def test_a_disk_that_is_full_at_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so, and neither the database nor the lease remains open."""
    connect, made = sqlite3.connect, list[sqlite3.Connection]()

    class Full(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    def full(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*arguments, **options, factory=Full))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", full)
        with pytest.raises(StateError, match="cannot be used") as raised:
            opened(tmp_path)
    assert raised.value.hint == "make room on the disk"
    for connection in made:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            sqlite3.Connection.execute(connection, "SELECT 1")
    opened(tmp_path).close()

    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_room)
        with pytest.raises(StateError, match="cannot be used") as raised:
            opened(tmp_path / "another")
    assert raised.value.hint == "make room on the disk"
    opened(tmp_path / "another").close()


def test_a_snapshot_in_the_background_that_fails(tmp_path: Path) -> None:
    engine = opened(tmp_path, snapshot_every=1)
    engine.process(event(1), position=1)
    folder = engine._folder
    assert folder is not None
    folder._database.execute("PRAGMA query_only = 1")
    engine.process(event(2), position=2)  # the snapshot of event 1 begins
    folder.wait()
    with pytest.raises(StateError, match="cannot be written"):
        engine.process(event(3), position=3)
    assert engine.position == 2
    folder._database.execute("PRAGMA query_only = 0")
    engine.process(event(3), position=3)
    engine.close()
    with opened(tmp_path) as engine:
        assert engine.position == 3
        assert engine.finish()["matches"].num_rows == 1


def test_a_folder_that_is_removed(tmp_path: Path) -> None:
    """SQLite would go on with files that have no name any more, and nothing would be there after a failure."""
    engine = opened(tmp_path / "state")
    engine.process(event(1), position=1)
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(StateError, match=r"is gone\n  The folder was removed or replaced"):
        engine.snapshot()
    assert engine.process(event(2), watermark=2000)["matches"].num_rows == 1
    with pytest.raises(StateError, match="is gone"):
        engine.close()


def test_the_log_of_a_large_snapshot_is_cut(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)
    log = tmp_path / f"{DATABASE}-wal"
    sizes = []
    for size in (3 * snapshots._LOG_SIZE, 1, 1):
        folder.write({1: bytes(size)}, SnapshotRecord(pages=1), lambda: None, pytest.fail)
        folder.wait()
        sizes.append(log.stat().st_size)
    folder.close()
    assert sizes[0] > 2 * snapshots._LOG_SIZE >= 2 * sizes[-1]


def test_a_snapshot_gives_way_to_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not for long: some engines are called all the time."""
    encoded: list[bool] = []

    class Kept:
        def __len__(self) -> int:
            return 1

        def to_bytes(self) -> bytes:
            encoded.append(folder.is_called)
            return b"page"

    folder = SnapshotFolder(tmp_path)
    monkeypatch.setattr(snapshots, "_PATIENCE", SOON)
    folder.is_called = True
    folder.write({0: Kept()}, SnapshotRecord(), lambda: None, pytest.fail)
    threading.Event().wait(0.05)
    assert folder.is_writing
    assert encoded == []
    folder.wait()
    assert encoded == [False]
    monkeypatch.setattr(snapshots, "_PATIENCE", 0.01)
    folder.is_called = True
    folder.write({1: Kept()}, SnapshotRecord(), lambda: None, pytest.fail)
    until(lambda: not folder.is_writing)
    assert encoded == [False, True]
    folder.close()


def test_the_end_of_a_stream(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        engine.process([event(1), event(2)])
        assert engine.finish()["matches"].num_rows == 1
        with pytest.raises(InvalidEventError, match="the stream has ended"):
            engine.process(event(3))
    with opened(tmp_path) as engine:
        # As a program that is started again after its end.
        for call in (lambda: engine.advance_watermark(9000), engine.advance_processing_time, engine.finish):
            assert call()["matches"].num_rows == 0
        with pytest.raises(InvalidEventError, match="the stream has ended"):
            engine.process(event(3))


def test_rows_in_a_database_are_there_once(tmp_path: Path) -> None:
    """The sink writes before a snapshot has the call, and again after the restart."""
    url, path = f"sqlite:///{tmp_path / 'rows.db'}", tmp_path / "rows.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE pairs (user TEXT, match_id TEXT PRIMARY KEY, ts INTEGER)")
    options: dict[str, Any] = {
        "sinks": {"matches": SqlSink(url, "pairs", key="match_id")},
        "select": {"matches": ["match_id", "b.ts AS ts"]},
    }
    engine = opened(tmp_path / "state", snapshot_every=None, **options)
    engine.process([event(1), event(2)], watermark=2000)
    killed(engine)
    with opened(tmp_path / "state", **options) as engine:
        assert engine.position is None
        engine.process([event(1), event(2), event(3)], watermark=3000)
    with sqlite3.connect(path) as database:
        assert sorted(database.execute("SELECT ts FROM pairs")) == [(2000,), (3000,)]


def test_a_fixed_number_of_pages(tmp_path: Path) -> None:
    """Keys are distributed over the pages, as on Spark."""
    stream: Any = KeyedStream(SCHEMA, key="user", time="ts")
    live = CEP.pattern(stream, PAIRS, pages=8)
    users = [event(1) | {"user": f"user {number}"} for number in range(100)]
    with live.open(tmp_path) as engine:
        engine.process(users, position=1, watermark=1000)
    pages = {number: len(value) for number, value in read_snapshot(tmp_path)[1].items() if 0 <= number < 256}
    assert sorted(pages) == list(range(8))
    with live.open(tmp_path) as engine:
        engine.process([each | {"ts": 2000, "price": -5.0} for each in users])
        assert engine.finish()["matches"].num_rows == 100


def test_values_out_of_the_range_of_a_type() -> None:
    stream: Any = KeyedStream(pa.schema([("ts", pa.int64()), ("x", pa.float32()), ("n", pa.int8())]), time="ts")
    with CEP.pattern(stream, Pattern.begin("a")).open() as engine:
        for wrong in ({"x": 1e300}, {"n": 300}, {"x": -1e39}):
            row = {"ts": 1, "x": 0.5, "n": 1} | wrong
            with pytest.raises(InvalidEventError, match=f'is not a value of "{next(iter(wrong))}"'):
                engine.process(row)
            with pytest.raises(ColumnTypeError, match=f'the column "{next(iter(wrong))}" of this batch'):
                engine.process(pa.Table.from_pylist([row]))
        values = [float("inf"), float("-inf"), float("nan"), None, 3.4e38]
        engine.process([{"ts": 1, "x": value, "n": 1} for value in values])
        engine.process(pa.table({"ts": [1] * 5, "x": values, "n": [1] * 5}))
        assert engine.finish()["matches"].num_rows == 10


def test_processing_time_without_a_time_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        with opened() as engine:
            later = datetime.now(UTC) + timedelta(hours=1)
            engine.advance_processing_time(later.replace(tzinfo=None))
            assert engine._record.processing_time == (later - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
                microseconds=1
            )
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("sink", [FileSink("/data"), KafkaSink("host:9092", "topic", key="match_id")])
def test_sinks_that_need_spark(sink: Any, tmp_path: Path) -> None:
    with pytest.raises(StreamDefinitionError, match='the sink of "matches" writes DataFrames'):
        opened(tmp_path / "state", sinks={"matches": sink})
    opened(tmp_path / "state").close()
