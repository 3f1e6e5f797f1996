"""The complete text of the errors of live engines."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import CEP, KeyedStream, LiveEngine, Pattern, TumblingWindows, interval_join, match_recognize, window
from asterism.live.live_options import not_live
from asterism.live.takeover import create_live_savepoint
from tests.kit import Golden

SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("price", pa.float64())])
EVENT = {"user": "ann", "ts": datetime(2026, 1, 1, tzinfo=UTC), "price": 1.0}
TABLE = pa.Table.from_pylist([EVENT], SCHEMA)
SECOND = timedelta(seconds=1)


def stream(events: Any = SCHEMA) -> Any:
    return KeyedStream(events, key="user", time="ts")


def engine(pattern: Pattern | None = None, **options: Any) -> LiveEngine:
    return CEP.pattern(stream(), pattern or Pattern.begin("a").next("b")).open(**options)


def counted() -> LiveEngine:
    return CEP.pattern(KeyedStream(pa.schema([("ts", pa.int64())]), time="ts"), Pattern.begin("a")).open()


def joined() -> LiveEngine:
    return interval_join(stream(), stream(), (-SECOND, SECOND), prefix="r_").open()


def ended() -> LiveEngine:
    found = engine()
    found.finish()
    return found


def closed() -> LiveEngine:
    found = engine()
    found.close()
    return found


def of_another_pattern() -> None:
    with engine(folder="state") as first:
        first.process(EVENT)
    engine(Pattern.begin("a").next("c"), folder="state")


def of_something_else() -> None:
    Path("state").mkdir()
    Path("state/metadata").touch()
    engine(folder="state")


def damaged() -> None:
    engine(folder="state").close()
    Path("state/state.sqlite").write_bytes(b"damaged" * 100)
    engine(folder="state")


def emptied() -> None:
    engine(folder="state").close()
    Path("state/state.sqlite").write_bytes(b"")
    engine(folder="state")


def of_changed_bytes() -> None:
    with engine(folder="state") as first:
        first.process(EVENT)
        first.snapshot()
        assert first._folder is not None
        first._folder._database.execute("UPDATE pages SET value = zeroblob(length(value))")
        first._unsaved = False
    engine(folder="state")


def of_another_type() -> None:
    with engine(folder="state") as first:
        first.process(EVENT)
    events = stream(SCHEMA.set(2, pa.field("price", pa.int64())))
    CEP.pattern(events, Pattern.begin("a").next("b")).open("state")


def to_a_file() -> None:
    engine(folder="state").close()
    Path("savepoint").touch()
    create_live_savepoint("state", "savepoint")


def of_a_later_format() -> None:
    with engine(folder="state") as first:
        first.process(EVENT)
        first.snapshot()
        assert first._folder is not None
        first._folder._database.execute(
            "UPDATE snapshot SET content = replace(content, '\"format\": 2', '\"format\": 9'), crc32 = NULL"
        )
        first._unsaved = False
    engine(folder="state")


def on_a_full_disk() -> None:
    found = engine(folder="state")
    found.process(EVENT)
    assert found._folder is not None
    found._folder._database.execute("PRAGMA query_only = 1")
    try:
        found.snapshot()
    finally:
        found.__exit__(ValueError, ValueError(), None)


def raised(error: Exception) -> None:
    raise error


TEXTS: dict[str, Callable[[], object]] = {
    "a_table": lambda: CEP.pattern(stream(TABLE), Pattern.begin("a")).open(),
    "a_table_of_a_clause": lambda: match_recognize(TABLE, "ORDER BY ts MEASURES A.price AS p PATTERN (A)").open(),
    "a_clause_without_a_time": lambda: match_recognize(SCHEMA, "ORDER BY price MEASURES A.ts AS t PATTERN (A)"),
    "results_of_a_schema": lambda: CEP.pattern(stream(), Pattern.begin("a")).matches,
    "windows_of_a_schema": lambda: window(stream(), TumblingWindows.of(SECOND)).aggregate("count(*) AS n"),
    "windows_without_results": lambda: window(stream(), TumblingWindows.of(SECOND)).open(),
    "a_table_and_a_schema": lambda: interval_join(stream(), stream(TABLE), (-SECOND, SECOND), prefix="r_"),
    "on_spark": lambda: raised(not_live()),
    "a_folder_that_is_not_local": lambda: engine(folder="s3://states/attacks"),
    "an_unknown_output": lambda: engine(outputs=["match"]),
    "a_sink_that_is_none": lambda: engine(sinks={"matches": 5}),
    "snapshots_at_no_time": lambda: engine(snapshot_every=timedelta(0)),
    "no_event": lambda: engine().process(5),
    "columns_in_a_dict": lambda: engine().process({"user": ["ann"], "ts": [EVENT["ts"]], "price": [1.0]}),
    "a_folder_without_a_name": lambda: engine(folder=""),
    "a_savepoint_that_is_a_file": to_a_file,
    "no_dict": lambda: engine().process([EVENT, 5]),
    "a_value_of_another_type": lambda: engine().process(EVENT | {"price": "high"}),
    "a_time_as_text": lambda: engine().process(EVENT | {"ts": "2026-01-01T12:00:00Z"}),
    "a_time_as_a_number": lambda: engine().process(EVENT | {"ts": 1_767_268_800_000}),
    "a_fraction_as_an_integer": lambda: counted().process([{"ts": 1}, {"ts": 2.0}, {"ts": 2.5}]),
    "a_column_is_missing": lambda: engine().process(TABLE.drop_columns(["price"])),
    "a_column_of_another_type": lambda: engine().process(TABLE.set_column(2, "price", pa.array(["1.0"], pa.string()))),
    "no_time": lambda: engine().process(EVENT | {"ts": None}),
    "a_reader": lambda: engine().process(TABLE.to_reader()),
    "no_stream": lambda: list(engine().stream(TABLE)),
    "a_position": lambda: engine().process(EVENT, position=object),
    "a_watermark": lambda: engine().advance_watermark(5),
    "a_watermark_without_a_time": lambda: (
        CEP.pattern(KeyedStream(SCHEMA, key="user"), Pattern.begin("a")).open().advance_watermark(EVENT["ts"])
    ),
    "no_input": lambda: joined().process(EVENT),
    "an_unknown_input": lambda: joined().process(EVENT, input="middle"),
    "the_stream_has_ended": lambda: ended().process(EVENT),
    "it_is_closed": lambda: closed().process(EVENT),
    "no_rules": lambda: engine().status(),
    "another_pattern": of_another_pattern,
    "something_else": of_something_else,
    "another_type": of_another_type,
    "damaged": damaged,
    "emptied": emptied,
    "changed_bytes": of_changed_bytes,
    "a_later_format": of_a_later_format,
    "a_full_disk": on_a_full_disk,
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/tmp/asterism-live-texts")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    monkeypatch.chdir(folder)
    golden.error(name, TEXTS[name])
