"""Rows that cannot matter to a pattern are not read: the results are those over a table in memory, in which all rows are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism import CEP, KeyedStream, Pattern
from asterism.columns.time import MILLISECONDS, TimeColumn
from asterism.embedded import lazy_events
from asterism.embedded.databases import database_of_files
from asterism.embedded.source_filters import SourceFilter
from asterism.errors import AsterismError, NullEventTimeError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.matching.operator import CepOperator
from tests.embedded.test_lazy_events import in_order
from tests.kit import examples

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("ts", pa.int64()),
        ("kind", pa.string()),
        ("amount", pa.float64()),
        ("Level", pa.int32()),
        ("is_new", pa.bool_()),
        ("day", pa.date32()),
    ]
)
LATEST = 2**63 - 1
ROW = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["ann", "bob", None]),
        "ts": st.integers(0, 40),
        "kind": st.sampled_from(["view", "buy", "it's", "View", "", None]),
        "amount": st.sampled_from([0.0, -0.0, 1.5, 100.0, math.inf, -math.inf, math.nan, None]),
        "Level": st.sampled_from([-(2**31), 0, 1, 7, None]),
        "is_new": st.sampled_from([True, False, None]),
        "day": st.just(None),
    }
)
CONDITION = st.sampled_from(
    [
        "kind = 'view'",
        "kind IN ('buy', 'it''s')",
        "kind > 'buy'",
        "kind <> 'view' AND Level >= 1",
        "kind = 'buy' AND amount > 1",
        "amount > 1.5",
        "amount <= CAST('NaN' AS DOUBLE)",
        "NOT (amount < 0)",
        "amount = 0",
        "Level > 0.5",
        "Level = 7 OR kind IS NOT NULL AND amount >= 100",
        "Level = 3000000000",
        "level BETWEEN 0 AND 1",
        "is_new",
        "NOT is_new OR kind = ''",
        "kind IS NULL",
        "kind = 'view' AND kind = 'buy'",
        "kind LIKE 'v%' AND kind = 'view'",
        "day = DATE '2026-01-01' OR kind = 'buy'",
        "amount / Level > 1",
        "upper(kind) = 'VIEW'",
    ]
)


def results(events: Any, pattern: Pattern) -> list[str] | str:
    try:
        found = CEP.pattern(KeyedStream(events, key="user", time="ts"), pattern)
        return in_order(found.select("a.amount AS x", "b.kind AS y", "b.Level AS z"))
    except AsterismError as error:
        return f"{type(error).__name__}: {error}"


def sources(table: pa.Table, folder: Path) -> dict[str, Any]:
    for old in folder.glob("*.parquet"):
        old.unlink()
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), folder / "0.parquet", row_group_size=3)
    pq.write_table(table.slice(half), folder / "1.parquet")
    return {"files": folder, "lazy frame": pl.scan_parquet(folder / "*.parquet")}


@settings(
    max_examples=examples(25, usual=200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(ROW, min_size=1, max_size=14),
    first=CONDITION,
    second=CONDITION,
    bad=st.sampled_from([0, None, LATEST, -LATEST]),
)
def test_results_are_those_of_a_table(
    rows: list[Any], first: str, second: str, bad: int | None, tmp_path: Path
) -> None:
    if bad != 0:  # a time that is an error, in a row that may not matter
        rows = [*rows, {**rows[0], "ts": bad}]
    table = pa.Table.from_pylist(rows, SCHEMA)
    pattern = Pattern.begin("a").where(first).followed_by("b").where(second)
    expected = results(table, pattern)
    for name, events in sources(table, tmp_path).items():
        assert results(events, pattern) == expected, name


@given(text=CONDITION, rows=st.lists(ROW, max_size=14))
@settings(max_examples=examples(30, usual=200), deadline=None)
def test_a_filter_keeps_what_its_condition_keeps(text: str, rows: list[Any]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    vectorized, scope = Vectorized(SCHEMA), Scope(SCHEMA)
    number = vectorized.add(scope.resolve(scope.parse(text), text), text)
    known = vectorized.indexable[number]
    condition = known and SourceFilter(known.ranges, SCHEMA, None).sql(SCHEMA)
    if condition is None:
        return
    wanted = table.filter(vectorized.evaluate(table)[0])
    frame = pl.from_arrow(wanted)
    assert isinstance(frame, pl.DataFrame)
    assert frame.filter(pl.sql_expr(condition)).height == wanted.num_rows
    with database_of_files([], 1) as database:
        assert len(database.from_arrow(wanted).filter(condition)) == wanted.num_rows


def prepared_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    prepare = CepOperator.prepare

    def counted(self: CepOperator, name: str, events: pa.Table) -> pa.Table:
        counts.append(events.num_rows)
        return prepare(self, name, events)

    monkeypatch.setattr(CepOperator, "prepare", counted)
    return counts


TABLE = pa.table(
    {
        "user": ["ann"] * 100,
        "ts": range(100),
        "kind": ["view" if number % 50 else "buy" for number in range(100)],
        "amount": [1.0] * 100,
        "Level": [1] * 100,
    }
)
PAIR = Pattern.begin("a").where("kind = 'buy'").followed_by("b").where("kind = 'buy' AND amount > 0")


@pytest.mark.parametrize("source", ["files", "lazy frame"])
def test_rows_that_cannot_matter_are_not_read(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = prepared_rows(monkeypatch)
    events = sources(TABLE, tmp_path)[source]
    found = CEP.pattern(KeyedStream(events, key="user", time="ts"), PAIR)
    assert (found.select("b.ts AS ts").column("ts").to_pylist(), sum(counts)) == ([50], 2)
    counts.clear()
    CEP.pattern(KeyedStream(events, key="user", time="ts"), Pattern.begin("a").next("b")).select("b.ts AS ts")
    assert sum(counts) == 100  # without conditions, and in strict order, every event matters


@pytest.mark.parametrize("difference", ["name", "columns", "database", "type"])
def test_files_that_are_read_as_a_whole(difference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB would not read them, or not as Arrow does."""
    counts, table = prepared_rows(monkeypatch), TABLE
    folder = tmp_path / "a[1]" if difference == "name" else tmp_path
    folder.mkdir(exist_ok=True)
    if difference == "columns":
        table = table.append_column("LEVEL", table.column("Level"))
    if difference == "type":
        table = table.set_column(0, "user", pa.array([b"ann"] * 100))
    events = sources(table, folder)["files"]
    if difference == "database":
        monkeypatch.setattr(lazy_events, "database_of_files", lambda files, threads: database_of_files([], threads))
    found = CEP.pattern(KeyedStream(events, key="user", time="ts"), PAIR).select("b.ts AS ts")
    assert (found.column("ts").to_pylist(), sum(counts)) == ([50], 100)


def test_events_without_a_time_are_errors_or_late(tmp_path: Path) -> None:
    """Whether they matter or not."""
    rows = [{"user": "ann", "ts": 1, "kind": "buy"}, {"user": "ann", "ts": None, "kind": "view"}]
    events = sources(pa.Table.from_pylist(rows, SCHEMA), tmp_path)["files"]
    found = CEP.pattern(KeyedStream(events, key="user", time="ts"), Pattern.begin("a").where("kind = 'buy'"))
    with pytest.raises(NullEventTimeError, match="of 1 events is null"):
        found.select("a.ts AS ts")
    assert found.late.num_rows == 1


@pytest.mark.parametrize("unit", ["nanoseconds", "microseconds", MILLISECONDS, "seconds"])
def test_range_of_times(unit: str) -> None:
    """Its ends are times, and what is beyond them is none."""
    time = TimeColumn("ts", pa.int64(), unit)
    first, last = time.range
    assert time.to_micros(pa.chunked_array([[first, last]])).null_count == 0
    beyond = [at for at in (first - 1, last + 1) if abs(at) <= LATEST]
    assert time.to_micros(pa.chunked_array([pa.array(beyond, pa.int64())]), lenient=True).null_count == len(beyond)
