"""MATCH_RECOGNIZE, windows and joins in a live engine: the answers are those of tables."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import CEP, CountTrigger, GlobalWindows, KeyedStream, Pattern, interval_join, match_recognize, window
from asterism.columns.time import TimeColumn
from asterism.errors import ExpressionSyntaxError, InvalidEventError
from asterism.live.live_input import LiveInput
from asterism.streams import joins
from tests.embedded.cases import CLAUSES, JOINS, QUOTES, SECONDS, TRADES, WINDOWS
from tests.live.driver import OpenedWindows, in_order, play


@pytest.mark.parametrize("name", CLAUSES)
def test_clauses(name: str, tmp_path: Path) -> None:
    case = CLAUSES[name]
    if "DESC" in case.clause:
        with pytest.raises(ExpressionSyntaxError, match="in ascending order"):
            case.matches(TRADES.schema)
        return
    found = play(
        lambda folder: match_recognize(TRADES.schema, case.clause, **case.options).open(folder, snapshot_every=None),
        {"events": TRADES},
        tmp_path,
        seed=3,
    )
    expected = case.matches(TRADES)
    assert found["matches"].schema.equals(expected.schema)
    assert in_order(found["matches"]) == in_order(expected)


def test_late_rows_of_a_clause() -> None:
    clause = "ORDER BY ts MEASURES A.id AS a PATTERN (A)"
    stream = match_recognize(TRADES.schema, clause, max_out_of_orderness=timedelta(seconds=1))
    with stream.open(outputs=["matches", "late"]) as engine:
        engine.process(TRADES.slice(6))
        rows = engine.process(TRADES.slice(0, 1))
        assert rows["late"].column("id").to_pylist() == [1]
        assert engine.finish()["matches"].column("a").to_pylist() == [7, 8]


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str, tmp_path: Path) -> None:
    case = WINDOWS[name]
    expected = case.rows(case.results(TRADES))
    table = case.rows(OpenedWindows(lambda: case.results(TRADES.schema), TRADES, tmp_path, 4))
    assert table.schema.equals(expected.schema)
    assert in_order(table) == in_order(expected)


def test_windows_in_processing_time() -> None:
    trigger = CountTrigger.at_least(2)
    windows = window(KeyedStream(TRADES.schema, key="symbol"), GlobalWindows(), trigger=trigger)
    with windows.open(aggregate=["count(*) AS n"]) as engine:
        assert engine.process({"symbol": "a"})["results"].num_rows == 0
        assert engine.process({"symbol": "a"})["results"].column("n").to_pylist() == [2]


@pytest.mark.parametrize("name", [name for name in JOINS if "small tables" not in name])  # only streams are joined
def test_joins(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = JOINS[name](TRADES, QUOTES)
    monkeypatch.setattr(joins._StreamJoin, "_single", lambda self, late, output: (self, output))
    stream, output = JOINS[name](TRADES.schema, QUOTES.schema)
    names = list(stream._hosted._streams)
    found = play(
        lambda folder: stream.open(folder, outputs=[output], snapshot_every=None),
        dict(zip(names, (TRADES, QUOTES.sort_by("ts")), strict=True)),
        tmp_path,
        seed=5,
    )[output]
    assert found.schema.equals(expected.schema)
    assert in_order(found) == in_order(expected)


def test_idle_inputs_and_the_end_of_an_input() -> None:
    sides = [
        KeyedStream(table.schema, key="symbol", time="ts", idle_after=timedelta(minutes=1))
        for table in (TRADES, QUOTES)
    ]
    last = TRADES.column("ts")[7].as_py()
    with interval_join(*sides, SECONDS, how="left", prefix="q_").open() as engine:
        engine.process(QUOTES.slice(1, 1), input="right")
        assert engine.process(TRADES, input="left", position=8, watermark=last)["results"].num_rows == 0
        assert engine.position == {"left": 8}
        assert engine.watermark == QUOTES.column("ts")[1].as_py() - timedelta(milliseconds=1)
        due = engine.next_processing_time
        assert due is not None
        engine.advance_processing_time(due + timedelta(seconds=1))  # both are idle: the later watermark counts
        assert engine.watermark == last
        engine.process(TRADES.slice(7), input="left", watermark=last + timedelta(seconds=9))
        rows = engine.finish("right")
        with pytest.raises(InvalidEventError, match='the input "right" has ended'):
            engine.process(QUOTES, input="right")
        with pytest.raises(InvalidEventError, match="the input must be named, because there are several"):
            engine.process(QUOTES)
        assert rows["results"].num_rows == 0
        assert engine.watermark == last + timedelta(seconds=9)


def test_a_watermark_for_each_partition() -> None:
    schema = pa.schema([("partition", pa.int32()), ("ts", pa.int64())])
    stream: Any = KeyedStream(schema, time="ts", watermark_by=["partition"])
    with CEP.pattern(stream, Pattern.begin("x")).open(outputs=["matches", "late"]) as engine:
        engine.process([{"partition": 1, "ts": 100_000}, {"partition": 2, "ts": 1000}])
        rows = engine.process({"partition": 2, "ts": 2000})
        assert (rows["matches"].num_rows, rows["late"].num_rows) == (1, 0)
        assert engine.watermark == datetime.fromtimestamp(1.999, UTC)
        assert engine.process({"partition": 1, "ts": 1500})["late"].num_rows == 1
        assert engine.finish()["matches"].num_rows == 2


@pytest.mark.parametrize(
    ("kind", "watermark", "as_column"),
    [
        (pa.int64(), 1_500, pa.int64()),
        (pa.timestamp("ms"), datetime(2026, 1, 31, 12, 0, 0, 1), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "Europe/Madrid"), datetime(2026, 1, 31, 12, tzinfo=UTC), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), date(2026, 1, 31), pa.date32()),
        (pa.date32(), date(2026, 1, 31), pa.date32()),
        (pa.date32(), datetime(2026, 1, 31, 12), pa.date32()),
    ],
)
def test_watermarks_are_read_as_event_times(kind: pa.DataType, watermark: Any, as_column: pa.DataType) -> None:
    values = pa.chunked_array([pa.array([watermark], as_column)])
    expected = TimeColumn("ts", as_column).to_micros(values).to_pylist()
    assert [LiveInput(pa.table, TimeColumn("ts", kind)).micros(watermark)] == expected
