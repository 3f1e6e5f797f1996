"""Rows that cannot matter to a query are not read: the results are those over a table in memory, in which all rows are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism import CEP, KeyedStream, Pattern, PatternProcessor, match_recognize
from asterism.columns.time import MILLISECONDS, TimeColumn
from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory
from asterism.embedded import lazy_events
from asterism.embedded.databases import database_of_files
from asterism.embedded.lazy_events import LazyTable
from asterism.embedded.source_filters import SourceBits, SourceFilter
from asterism.errors import AsterismError, InvalidEventError, NullEventTimeError, StreamDefinitionError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
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


def of_pattern(events: Any, first: str, second: str) -> pa.Table:
    pattern = Pattern.begin("a").where(first).followed_by("b").where(second)
    return CEP.pattern(KeyedStream(events, key="user", time="ts"), pattern).select(*MEASURES)


def of_rules(events: Any, first: str, second: str) -> pa.Table:
    """Two rules with keys of their own; timed-out partial matches, and events without a time."""
    pattern = Pattern.begin("a").where(first).followed_by("b").where(second).within(timedelta(milliseconds=20))
    other = Pattern.begin("a").where(second).followed_by("b").where("kind = 'buy'").within(timedelta(milliseconds=5))
    rules = [PatternProcessor("r", 1, pattern, timed_out=True), PatternProcessor("q", 1, other, key=("kind",))]
    stream = KeyedStream(events, key="user", time="ts")
    outputs = CEP.pattern_processors(stream, GivenPatternProcessorDiscovererFactory(tuple(rules)), on_error="disable")
    tables = {}
    names = ("matches", "timed_out", "late", "errors")
    outputs.run({name: lambda rows, _, name=name: tables.update({name: rows}) for name in names})
    texts = [in_order(tables[name]) for name in names]
    return pa.table({"rows": [text for name in texts for text in name]})


def of_clause(events: Any, first: str, second: str) -> pa.Table:
    text = f"""
        PARTITION BY user ORDER BY ts MEASURES A.amount AS x, B.kind AS y, B.Level AS z, MATCH_NUMBER() AS n
        AFTER MATCH SKIP TO NEXT ROW PATTERN (A X* B) WITHIN INTERVAL '0.02' SECOND DEFINE A AS {first}, B AS {second}
    """
    return match_recognize(events, text).matches


def of_loop(events: Any, first: str, second: str) -> pa.Table:
    """The loop has conditions of its own."""
    text = f"""
        PARTITION BY user ORDER BY ts MEASURES A.amount AS x, B.kind AS y, C.Level AS z AFTER MATCH SKIP TO NEXT ROW
        PATTERN (A X* B Y* C) DEFINE A AS {first}, X AS {second}, B AS kind = 'buy', C AS kind = 'buy' AND Level > A.Level,
          Y AS kind <> 'buy' OR Level <= A.Level
    """
    return match_recognize(events, text).matches


def of_strict_clause(events: Any, first: str, second: str) -> pa.Table:
    text = f"""
        PARTITION BY user ORDER BY ts MEASURES A.amount AS x, B.kind AS y, NEXT(B.kind) AS z
        PATTERN (A B) DEFINE A AS {first}, B AS {second}
    """
    return match_recognize(events, text).matches


MEASURES = ("a.amount AS x", "b.kind AS y", "b.Level AS z")
QUERIES: dict[str, Callable[[Any, str, str], pa.Table]] = {
    "pattern": of_pattern, "rules": of_rules, "clause": of_clause, "loop": of_loop,
    "strict clause": of_strict_clause,
}  # fmt: skip


def results(events: Any, query: str, first: str, second: str) -> list[str] | str:
    try:
        return in_order(QUERIES[query](events, first, second))
    except AsterismError as error:
        return f"{type(error).__name__}: {error}"


def sources(table: pa.Table, folder: Path) -> dict[str, Any]:
    """Each with the same rows. DuckDB has those of the relation with other types, and the relation an expression over them."""
    for old in folder.glob("*.parquet"):
        old.unlink()
    connection = duckdb.connect()
    connection.register("events", table)
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), folder / "0.parquet", row_group_size=3)
    pq.write_table(table.slice(half), folder / "1.parquet")
    relation = connection.sql("SELECT * REPLACE (CAST(CAST(ts AS VARCHAR) AS BIGINT) AS ts) FROM events")
    return {"files": folder, "lazy frame": pl.scan_parquet(folder / "*.parquet"), "relation": relation}


@settings(
    max_examples=examples(25, usual=200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(ROW, min_size=1, max_size=14),
    query=st.sampled_from(list(QUERIES)),
    first=CONDITION,
    second=CONDITION,
    bad=st.sampled_from([0, None, LATEST, -LATEST]),
)
def test_results_are_those_of_a_table(
    rows: list[Any], query: str, first: str, second: str, bad: int | None, tmp_path: Path
) -> None:
    if bad != 0:  # a time that is an error, in a row that may not matter
        rows = [*rows, {**rows[0], "ts": bad}]
    table = pa.Table.from_pylist(rows, SCHEMA)
    expected = results(table, query, first, second)
    for name, events in sources(table, tmp_path).items():
        assert results(events, query, first, second) == expected, name


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


@given(texts=st.lists(CONDITION, min_size=1, max_size=9), rows=st.lists(ROW, max_size=14))
@settings(max_examples=examples(30, usual=200), deadline=None)
def test_bits_of_a_source_are_those_of_the_conditions(texts: list[str], rows: list[Any]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    vectorized, scope = Vectorized(SCHEMA), Scope(SCHEMA)
    numbers = [vectorized.add(scope.resolve(scope.parse(text), text), text) for text in texts]
    known = [vectorized.indexable[number] for number in numbers]
    conditions = tuple(condition.ranges for condition in known if condition is not None and condition.rest is None)
    bits = SourceBits((pa.field("bits", pa.int16()),), (conditions,), ())
    computed = SourceFilter(None, SCHEMA, None, bits=bits).bits_sql(SCHEMA)
    if computed is None or len(conditions) < len(texts):
        return
    answers = [pc.fill_null(column, False).to_pylist() for column in vectorized.evaluate(table)]
    words = [sum(answer << bit for bit, answer in enumerate(of_row)) for of_row in zip(*answers, strict=True)]
    with database_of_files([], 1) as database:
        relation = database.from_arrow(table).project(f"{computed['bits']} AS bits")
        assert relation.to_arrow_table().column("bits").to_pylist() == words


def read_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    batches = LazyTable.batches

    def counted(self: LazyTable, *arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, *arguments):
            counts.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(LazyTable, "batches", counted)
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
SOURCES = ["files", "lazy frame", "relation"]
BUYS = "kind = 'buy'", "kind = 'buy' AND amount > 0"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("query", QUERIES)
def test_rows_that_cannot_matter_are_not_read(
    query: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, counts = results(TABLE, query, *BUYS), read_rows(monkeypatch)
    events = sources(TABLE, tmp_path)[source]
    assert results(events, query, *BUYS) == expected
    # Without conditions, and where a neighbour of a row matters, all rows are read.
    assert sum(counts) == (100 if query in ("strict clause", "loop") else 2)
    counts.clear()
    assert results(events, query, "Level IS NULL OR Level >= 0", BUYS[1]) == results(
        TABLE, query, "Level IS NULL OR Level >= 0", BUYS[1]
    )
    assert sum(counts) == 100
    counts.clear()
    CEP.pattern(KeyedStream(events, key="user", time="ts"), Pattern.begin("a").next("b")).select("b.ts AS ts")
    assert sum(counts) == 100


def test_rows_that_a_loop_takes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, events = read_rows(monkeypatch), sources(TABLE, tmp_path)["files"]
    assert results(events, "loop", "kind = 'buy'", "kind <> 'buy'") == results(
        TABLE, "loop", "kind = 'buy'", "kind <> 'buy'"
    )
    assert sum(counts) == 2


@pytest.mark.parametrize("second", ["kind = 'view'", "kind > 'view'"])
@pytest.mark.parametrize("source", ["files", "relation"])
def test_columns_that_only_conditions_need_are_not_read(
    source: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB evaluates conditions that are equalities of strings, also of a pattern to which every event matters."""
    pattern = Pattern.begin("a").where("kind = 'buy'").next("b").where(second)
    names, batches = set[str](), LazyTable.batches

    def seen(self: LazyTable, *arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, *arguments):
            names.update(batch.schema.names)
            yield batch

    monkeypatch.setattr(LazyTable, "batches", seen)
    found = CEP.pattern(KeyedStream(sources(TABLE, tmp_path)[source], key="user", time="ts"), pattern).select(
        "b.ts AS ts"
    )
    assert sorted(found.column("ts").to_pylist()) == ([1, 51] if second == "kind = 'view'" else [])
    assert ("kind" in names) == (second != "kind = 'view'")


PAIR = Pattern.begin("a").where(BUYS[0]).followed_by("b").where(BUYS[1])


def test_many_rules_are_told_by_one_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = [
        Pattern.begin("a")
        .where(f"kind = 'buy' AND amount > {number}")
        .followed_by("b")
        .where(f"kind = 'b{number % 9}'")
        for number in range(100)
    ]
    rules = tuple(PatternProcessor(f"r{number}", 1, pattern) for number, pattern in enumerate(patterns))
    every = (
        *rules,
        PatternProcessor("any", 1, Pattern.begin("a").where("Level = 1").followed_by("b").where("Level = 2")),
    )
    for some, read in ((rules, 2), (every, 100)):
        counts = read_rows(monkeypatch)
        stream = KeyedStream(sources(TABLE, tmp_path)["files"], key="user", time="ts")
        found = CEP.pattern_processors(stream, GivenPatternProcessorDiscovererFactory(some)).output("matches")
        assert (found.num_rows, sum(counts)) == (0, read)


def test_a_filter_does_not_move_below_what_fails(tmp_path: Path) -> None:
    """Without a filter, it does not fail for these rows, or fails for others."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT range AS ts, 'ann' AS user, 'view' AS kind, '1' AS word FROM range(10)"
    )
    connection.execute("INSERT INTO t VALUES (10, 'ann', 'none', 'x'), (11, 'ann', 'buy', '7')")
    pattern = Pattern.begin("a").where("n = 7")
    excluded = connection.sql("SELECT ts, user, CAST(word AS INTEGER) AS n FROM t WHERE kind <> 'none'")
    assert CEP.pattern(KeyedStream(excluded, key="user", time="ts"), pattern).select("a.ts AS ts").num_rows == 1
    pattern = Pattern.begin("a").where("kind = 'buy'")
    failing = connection.sql("SELECT ts, user, kind, CAST(word AS INTEGER) AS n FROM t")
    with pytest.raises(StreamDefinitionError, match="Could not convert string 'x'"):
        CEP.pattern(KeyedStream(failing, key="user", time="ts"), pattern).select("a.n AS n")


@pytest.mark.parametrize("kind", ["UUID", "JSON", "ENUM ('abc', 'd')"])
def test_columns_that_a_relation_compares_otherwise(kind: str) -> None:
    value = {"UUID": "00000000-0000-0000-0000-000000000001", "JSON": "[1]"}.get(kind, "abc")
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t (ts BIGINT, x {kind})")
    connection.execute(f"INSERT INTO t VALUES (1, '{value}'), (2, NULL)")
    for constant, rows in ((value, 1), ("abc}", 0)):
        found = CEP.pattern(
            KeyedStream(connection.table("t"), time="ts"), Pattern.begin("a").where(f"x = '{constant}'")
        )
        assert found.select("a.ts AS ts").num_rows == rows


@pytest.mark.parametrize("moment", ["'infinity'", "'-infinity'", "'200000-01-01'", "NULL"])
def test_times_of_a_relation_that_are_none(moment: str) -> None:
    relation = duckdb.connect().sql(f"SELECT CAST({moment} AS TIMESTAMP) AS ts, 'view' AS kind")
    found = CEP.pattern(KeyedStream(relation, time="ts"), Pattern.begin("a").where("kind = 'buy'"))
    with pytest.raises(InvalidEventError, match=r"out of range|is null"):
        found.select("a.ts AS ts")


@pytest.mark.parametrize("difference", ["name", "columns", "database", "type"])
def test_files_that_are_read_as_a_whole(difference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB would not read them, or not as Arrow does."""
    counts, table = read_rows(monkeypatch), TABLE
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


@pytest.mark.parametrize(
    ("columns", "statistics", "answer"),
    [
        ({"ts": [1, 2, 3]}, True, True),
        ({"ts": [1, 2, 3]}, False, False),
        ({"ts": [1, None, 3]}, True, False),
        ({"ts": [1, 2, LATEST]}, True, False),
        ({"ts": [-LATEST, 2, 3]}, True, False),
        ({"other": [1, 2, 3]}, True, False),
        ({"s": [{"t": 1}] * 3, "s.t": [1, None, 3]}, True, False),
    ],
)
def test_times_by_the_statistics_of_files(
    columns: dict[str, Any], statistics: bool, answer: bool, tmp_path: Path
) -> None:
    table = pa.table(columns)
    pq.write_table(table.slice(0, 1), tmp_path / "0.parquet")
    pq.write_table(table, tmp_path / "1.parquet", row_group_size=2, write_statistics=statistics)
    name = "s.t" if "s.t" in columns else "ts"
    for known in (name, None):
        footers = [lazy_events.Footer.of(file, known) for file in sorted(tmp_path.iterdir())]
        assert lazy_events.have_times(footers, TimeColumn(name, pa.int64())) == answer


@pytest.mark.parametrize("unit", ["nanoseconds", "microseconds", MILLISECONDS, "seconds"])
def test_range_of_times(unit: str) -> None:
    """Its ends are times, and what is beyond them is none."""
    time = TimeColumn("ts", pa.int64(), unit)
    first, last = time.range
    assert time.to_micros(pa.chunked_array([[first, last]])).null_count == 0
    beyond = [at for at in (first - 1, last + 1) if abs(at) <= LATEST]
    assert time.to_micros(pa.chunked_array([pa.array(beyond, pa.int64())]), lenient=True).null_count == len(beyond)
