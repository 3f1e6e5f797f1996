"""Tables that rules read by a key of the event."""

from __future__ import annotations

import copy
import json
import random
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from asterism import Lookup, Pattern
from asterism.cli.main import main
from asterism.columns import hashing
from asterism.columns.time import TimeColumn
from asterism.discovery import FileLookupSource, LookupSource, SqlLookupSource, status_of
from asterism.discovery.sources.lookup_sources import source_of
from asterism.errors import AsterismError, PatternProcessorError, StateError
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition import lookup_tables
from asterism.rules.definition.lookup_tables import (
    LookupColumn,
    LookupTable,
    checked_rows,
    rows_from_bytes,
    rows_to_bytes,
)
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.definition.rule_tests import RuleTest
from asterism.rules.matching.result_rows import ERRORS, MATCHES
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.publishing.lookup_watch import DefinedLookup, LookupWatch, defined_lookups
from asterism.rules.sets import set_store
from asterism.rules.sets.set_store import FolderStore
from asterism.testing.rule_harness import run_rule_test
from tests.kit import FACTOR
from tests.rules.driver import SCHEMA, Driver, Event, cuts, processor

COLUMNS = pa.schema([("customer", pa.string()), ("max", pa.float64())])
LIMITS = LookupColumn("limits", ("customer",), ("user",), COLUMNS)
ABOVE = processor("above", 1, Pattern.begin("a").where("x > limits.max")).as_data()
ABOVE_A = processor("above a", 1, Pattern.begin("a").where("kind = 'a' AND x > limits.max AND x >= 0")).as_data()
"""Its first and its last condition are in the index."""
THEN_B = processor(
    "then b", 1, Pattern.begin("a").where("x > limits.max").followed_by("b").where("kind = 'b'")
).as_data()
TOTAL = processor(
    "total", 1,
    Pattern.begin("a").where("kind = 'a'").followed_by("b").where("SUM(a.x) + x > limits.max"),
    select=("LAST(b.limits.max) AS max", "SUM(a.x) + LAST(b.x) AS total"),
).as_data()  # fmt: skip
IN_SQL = PatternProcessor(
    "sql", 1, None, sql="MEASURES A.x AS x, A.limits.max AS max PATTERN (A) DEFINE A AS x > limits.max"
).as_data()
UNKNOWN = processor("unknown", 1, Pattern.begin("a").where("limits.customer IS NULL")).as_data()
RULES = [ABOVE, ABOVE_A, THEN_B, TOTAL, IN_SQL, UNKNOWN]


def limits(**values: float) -> pa.Table:
    return pa.table({"customer": list(values), "max": [float(value) for value in values.values()]}, COLUMNS)


def e(second: float, user: str, x: float, kind: str = "a") -> Event:
    return second, user, 1, kind, x


class TwiceDriver(Driver):
    """Attempts each micro-batch twice; meanwhile, a set with other rows has been published."""

    def __init__(self, **more: Any) -> None:
        super().__init__(lookups=[LIMITS], **more)

    def batch(self, *args: Any, **more: Any) -> Driver:
        before = copy.deepcopy((self.stores, self.rows)), list(self.sets.all)
        super().batch(*args, **more)
        first = self.stores, self.rows
        (self.stores, self.rows), self.sets.all = before
        lookups = self.sets.lookups
        self.sets.all.append(None)  # type: ignore[arg-type] # not a set: its number must be free
        self.sets.look_up(LIMITS, limits(ann=-1, dan=-1))
        self.sets.all.pop()
        self.sets.lookups, self.sets.surplus_lookups = lookups, self.sets.lookups
        super().batch(*args, **more)
        assert (self.stores, self.rows) == first
        self.sets.surplus_lookups = ()
        return self

    def seen(self) -> list[tuple[Any, ...]]:
        return sorted(
            (
                row["processor_id"],
                row["start_time"].timestamp(),
                row["end_time"].timestamp(),
                json.dumps(row["measures"]),
            )
            for row in self.rows[MATCHES]
        )


@pytest.mark.parametrize("seed", range(FACTOR))
def test_an_event_sees_the_rows_of_the_set_in_force(seed: int) -> None:
    rng = random.Random(seed)
    phases = [
        ({"ann": 5, "bob": 50}, [e(1, "ann", 6), e(2, "bob", 6), e(3, "ann", 1, "b"), e(4, "cyd", 1)]),
        ({"ann": 50, "bob": 5}, [e(11, "ann", 6), e(12, "bob", 6), e(13, "ann", 1, "b"), e(14, "bob", 3, "b")]),
        ({"ann": 50, "bob": 5}, [e(15, "ann", 55, "b"), e(16, "dan", 1)]),  # a set with the same rows
        ({"cyd": 0}, [e(21, "ann", 6), e(22, "cyd", 6), e(23, "dan", 6)]),
    ]

    def found(cut: Any, **more: Any) -> list[tuple[Any, ...]]:
        made = TwiceDriver(key_groups=2, **more)
        known: dict[str, float] = {}
        for rows, events in phases:
            if rows != known:
                made.sets.look_up(LIMITS, limits(**rows))
                known = rows
            made.batch(sets=RULES)
            for part in cut(events):
                made.batch(part, watermark=part[-1][0] - 2)  # events wait
            made.batch(watermark=events[-1][0])  # and meet the set after this one if they still do
        made.end()
        assert not made.rows[ERRORS]
        return made.seen()  # type: ignore[no-any-return]

    whole = found(lambda events: [events])
    assert whole == found(lambda events: [[one] for one in events]) == found(lambda events: cuts(events, rng))
    times = {name: [row[1:3] for row in whole if row[0] == name] for name in ("then b", "total")}
    assert times == {"then b": [(1, 3), (12, 14)], "total": [(1, 3), (2, 12), (4, 22), (11, 15), (12, 14)]}
    above = {
        second: rows.get(user, 999)
        for rows, events in phases
        for second, user, _, _, x in events
        if x > rows.get(user, 999)
    }
    of_kind_b = {event[0] for _, events in phases for event in events if event[3] == "b"}
    assert [row[1] for row in whole if row[0] == "above a"] == sorted(above.keys() - of_kind_b)
    assert above.keys() & of_kind_b
    assert [row[1] for row in whole if row[0] == "above"] == sorted(above)
    assert {row[1]: json.loads(row[3])[1] for row in whole if row[0] == "sql"} == {
        second: ["max", f"{most:.1f}"] for second, most in above.items()
    }
    assert [row[1] for row in whole if row[0] == "unknown"] == [4, 16, 21, 23]


def test_an_event_that_waits_sees_the_rows_of_the_set_that_comes_meanwhile() -> None:
    made = TwiceDriver()
    made.sets.look_up(LIMITS, limits(ann=5, bob=50))
    made.batch(sets=RULES).batch([e(1, "ann", 6), e(2, "bob", 6), e(3, "ann", 6)], watermark=1)
    made.sets.look_up(LIMITS, limits(ann=50, bob=5))
    made.batch(sets=RULES).batch(watermark=9)
    rows = [row for row in made.seen() if row[0] in ("above", "above a", "sql")]
    assert [row[:2] for row in rows] == [(name, second) for name in ("above", "above a", "sql") for second in (1, 2)]
    assert [json.loads(row[3])[1] for row in rows[4:]] == [["max", "5.0"], ["max", "5.0"]]


def test_a_condition_that_fails_shows_the_row() -> None:
    divides = processor("divides", 1, Pattern.begin("a").where("x / limits.max > 1")).as_data()
    made = TwiceDriver(disable_on_error=True)
    made.sets.look_up(LIMITS, limits(ann=2, bob=0))
    made.batch([e(1, "ann", 5), e(2, "bob", 6), e(3, "ann", 7)], sets=[divides, ABOVE]).end()
    [error] = made.rows[ERRORS]
    assert "division by zero" in error["error"].lower()
    assert "limits={'customer': 'bob', 'max': 0.0}" in error["error"]
    assert [row[:2] for row in made.seen()] == [("above", 1), ("above", 2), ("above", 3), ("divides", 1)]


def test_values_are_kept_for_those_who_read_them_later() -> None:
    compiler = TwiceDriver().operator.compiler
    bound = {one.id: compiler.bind(one) for one in RULES}
    assert {id: one.kept_lookups == {"limits"} for id, one in bound.items()} == {
        "above": False, "above a": False, "then b": False, "total": True, "sql": True, "unknown": False,
    }  # fmt: skip
    assert sorted(bound["then b"].lookups) == [(), ("limits",)]


def test_matches_have_the_columns_of_the_events_alone() -> None:
    rows = processor("rows", 1, Pattern.begin("a").where("kind = 'a'"))
    every = PatternProcessor("every", 1, None, sql="ALL ROWS PER MATCH PATTERN (A) DEFINE A AS x > limits.max")
    made = TwiceDriver(wants_late=True)
    made.sets.look_up(LIMITS, limits(ann=2))
    made.batch([e(1, "ann", 5)], sets=[rows.as_data(), every.as_data()], watermark=1).batch([e(0.5, "ann", 5)]).end()
    assert [list(event["event"]) for row in made.rows[MATCHES] for event in row["events"]] == [SCHEMA.names] * 2
    assert list(made.rows["late"][0]) == SCHEMA.names


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (processor("r", 1, Pattern.begin("a").where("x > limits.min")), "min"),
        (processor("r", 1, Pattern.begin("a").where("x > limits.customer")), "STRING"),
        (processor("r", 1, Pattern.begin("a").where("x > limit.max")), "unknown stage 'limit'"),
        (processor("r", 1, Pattern.begin("a").where("x > 1"), key=("limits.max",)), "unknown stage 'limits'"),
    ],
)
def test_a_rule_is_checked_with_the_columns_of_lookups(rule: PatternProcessor, message: str) -> None:
    with pytest.raises(AsterismError, match=message):
        TwiceDriver().operator.compiler.try_out(rule.as_data())


def test_a_test_beside_a_rule_has_a_lookup_as_a_column() -> None:
    columns = {"x": "double", "user": "string", "limits": "struct<max: double>"}
    events = (
        {"ts": "1s", "user": "ann", "x": 6, "limits": {"max": 5}},
        {"ts": "2s", "user": "bob", "x": 6, "limits": None},
    )
    test = RuleTest("above", events, ({"x": 6, "max": 5},), columns=columns, literals={"key": "user"})
    assert run_rule_test(IN_SQL, test).failure == ()


# ---------------------------------------------------------------------------------------------------- tables


def test_keys_of_several_columns_and_types_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = pa.schema([("item", pa.int32()), ("kind", pa.string()), ("ok", pa.bool_())])
    lookup = LookupColumn("known", ("item", "kind"), ("item", "kind"), columns)
    rng = np.random.default_rng(1)
    rows = {(int(item), kind): bool(rng.random() < 0.5) for item in rng.integers(-500, 500, 300) for kind in "abc"}
    table = pa.table([[*(k[0] for k in rows)], [*(k[1] for k in rows)], [*rows.values()]], schema=columns)
    items, kinds = rng.integers(-600, 600, 2000), rng.choice(["a", "b", "x"], 2000)
    events = pa.table({"item": pa.array(items), "kind": pa.array(kinds, mask=np.arange(2000) % 7 == 0)})
    expected = [
        None if number % 7 == 0 or (item, kind) not in rows else {"item": item, "kind": kind, "ok": rows[item, kind]}
        for number, (item, kind) in enumerate(zip(items.tolist(), kinds.tolist(), strict=True))
    ]
    keys = lookup.keys_of(events, lookup.key_expressions(SCHEMA.remove(0).remove(0).remove(2)))
    assert LookupTable(lookup, checked_rows(lookup, table)).of_keys(keys).to_pylist() == expected
    # The same with a hash that is seldom unique.
    hash_keys = hashing.hash_keys
    monkeypatch.setattr(hashing, "hash_keys", lambda keys: hash_keys(keys) % np.uint64(100))
    assert LookupTable(lookup, checked_rows(lookup, table)).of_keys(keys).to_pylist() == expected
    monkeypatch.setattr(hashing, "hash_keys", lambda keys: hash_keys(keys) % np.uint64(2))
    with pytest.raises(PatternProcessorError, match=r"keys have the same hash \(limit 64\)"):
        LookupTable(lookup, checked_rows(lookup, table))


def test_an_empty_table_has_no_row() -> None:
    made = LookupTable(LIMITS, checked_rows(LIMITS, COLUMNS.empty_table()))
    assert made.of_keys(pa.table({"customer": ["ann"]})).to_pylist() == [None]


def test_stored_rows_do_not_depend_on_their_order() -> None:
    one = rows_to_bytes(checked_rows(LIMITS, limits(ann=1, bob=2)))
    other = rows_to_bytes(checked_rows(LIMITS, limits(bob=2, ann=1).append_column("more", [[1, 2]])))
    assert one == other
    assert rows_from_bytes(LIMITS, one).to_pylist() == limits(ann=1, bob=2).to_pylist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            pa.table({"customer": ["ann", "bob", "ann", "ann", "bob"], "max": [1.0] * 5}),
            "the lookup limits: 3 rows have the same key, customer='ann'\n  3 rows are too many.",
        ),
        (
            pa.table({"customer": ["ann", None], "max": [1.0] * 2}),
            "the lookup limits: the key 'customer' is NULL in 1 rows",
        ),
        (pa.table({"customer": ["ann"]}), "the lookup limits: its table has no column 'max'\n  Columns: customer"),
        (
            pa.table({"customer": ["ann"], "max": ["much"]}),
            "the lookup limits: the column 'max' is STRING, not DOUBLE\n  Failed to parse string: 'much'",
        ),
        (
            pa.table({"customer": [str(n) for n in range(11)], "max": [1.0] * 11}),
            "the lookup limits has 11 rows (limit 10)",
        ),
        (pa.table({"customer": ["a" * 900], "max": [1.0]}), "the lookup limits has 912 bytes (limit 800)"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(rows: pa.Table, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_tables, "MAX_ROWS", 10)
    monkeypatch.setattr(lookup_tables, "MAX_BYTES", 800)
    with pytest.raises(PatternProcessorError) as error:
        checked_rows(LIMITS, rows)
    assert str(error.value).partition("] ")[2].startswith(message)


# ---------------------------------------------------------------------------------------------------- declarations


def defined(name: Any = "limits", **given: Any) -> DefinedLookup:
    given = {"source": limits(ann=1), "key": "customer", "on": "user"} | given
    [found] = defined_lookups({name: Lookup(**given)}, SCHEMA, source_of)
    return found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "user"}, "the name of the lookup user is that of a column of the events"),
        ({"name": "a.b"}, "'a.b' cannot be the name of a lookup"),
        ({"name": "../up"}, "'../up' cannot be the name of a lookup"),
        ({"name": 5}, "lookups must map names to Lookup, not 5 to Lookup"),
        ({"key": 5}, "key of a lookup must be a string or a list of strings, not 5"),
        ({"key": []}, "a lookup needs as many expressions \\(on\\) as key columns, not 1 and 0"),
        ({"key": ["customer", "max"]}, "a lookup needs as many expressions"),
        ({"key": "id"}, "the lookup limits has no column 'id' for its key"),
        ({"key": "max", "on": "x"}, "the lookup limits: the key 'max' cannot be DOUBLE"),
        ({"on": "item"}, "the lookup limits: 'item' is BIGINT, and the key 'customer' is STRING"),
        ({"on": "CAST(user AS DATE)"}, "the lookup limits: the expression 'CAST\\(user AS DATE\\)' can fail"),
        ({"on": "colour"}, "unknown column 'colour'"),
        ({"on": "SUM(x)"}, "."),
        ({"on": None}, "unknown column 'customer'"),
        ({"schema": "customer STRING, max ARRAY<INT>"}, "the column 'max' has the type list"),
        ({"schema": "customer STRING, max MUCH"}, "not a list of columns with Spark SQL types"),
        ({"source": 5}, "this is not the source of a lookup: 5"),
        ({"source": "postgresql://u:secret@h/d"}, "a lookup in a database needs its URL and a table"),
        ({"source": "limits.csv", "table": "limits"}, "a lookup in a database needs its URL and a table"),
        ({"source": "/no/such/file.csv"}, "the lookup limits: there is no file /no/such/file.csv"),
        ({"source": __file__}, "has no supported format"),
        ({"interval": timedelta(0)}, "an interval must be positive"),
        (
            {"source": pa.table({"customer": ["a"], "Customer": ["b"]})},
            "'customer' cannot be the name of a column, or occurs",
        ),
    ],
)
def test_a_declaration_is_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(AsterismError, match=message):
        defined(**given)


def test_a_key_can_be_computed() -> None:
    found = defined(on="LOWER(TRIM(user))", schema="customer STRING, max DECIMAL(10,2)")
    keys = found.column.keys_of(
        pa.table([[None], ["  ANN "], [1], ["a"], [1.0]], schema=SCHEMA), found.column.key_expressions(SCHEMA)
    )
    assert keys.to_pylist() == [{"customer": "ann"}]
    assert str(found.column.schema.field("max").type) == "decimal128(10, 2)"


# ---------------------------------------------------------------------------------------------------- sources


def write(path: Path, rows: pa.Table) -> None:
    """Another file, and then renamed, as the documentation says."""
    new = path.with_name("." + path.name)
    if path.suffix == ".parquet":
        parquet.write_table(rows, new)
    elif path.suffix == ".csv":
        new.write_text(
            "\n".join([",".join(rows.column_names), *(",".join(map(str, row.values())) for row in rows.to_pylist())])
        )
    else:
        new.write_text("\n".join(json.dumps(row) for row in rows.to_pylist()))
    new.rename(path)


@pytest.mark.parametrize("name", ["limits.parquet", "limits.csv", "limits.jsonl"])
@pytest.mark.parametrize("schema", [None, "customer STRING, max DECIMAL(10,1)"])
def test_files_are_read(tmp_path: Path, name: str, schema: str | None) -> None:
    write(tmp_path / name, limits(ann=1, bob=2.5))
    found = defined(source=tmp_path / name, schema=schema)
    assert found.column.schema.field("max").type == (pa.float64() if schema is None else pa.decimal128(10, 1))
    value, count = found.read()
    assert count == 2
    assert [(row["customer"], float(row["max"])) for row in rows_from_bytes(found.column, value).to_pylist()] == [
        ("ann", 1), ("bob", 2.5),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_times_of_files_have_a_zone_or_are_in_utc(tmp_path: Path, name: str) -> None:
    times = ["2026-01-31 12:00:00", "2026-01-31T13:00:00.000+01:00", "2026-01-31T12:00:00Z"]
    rows = pa.table({"customer": ["ann", "bob", "cyd"], "since": times})
    if name == "a.parquet":
        rows = rows.set_column(1, "since", pa.array([datetime(2026, 1, 31, 12)] * 3, pa.timestamp("ns")))
    write(tmp_path / name, rows)
    found = defined(source=tmp_path / name, schema="customer STRING, since TIMESTAMP")
    read = rows_from_bytes(found.column, found.read()[0])
    assert [row["since"].isoformat() for row in read.to_pylist()] == ["2026-01-31T12:00:00+00:00"] * 3


def test_the_files_of_a_folder_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.csv", limits(ann=1))
    write(tmp_path / "b.csv", limits(bob=2))
    (tmp_path / ".c.csv").write_text("customer,max\nann,5")
    found = defined(source=tmp_path)
    assert found.read()[1] == 2
    (tmp_path / "d.csv").write_text("customer,max\ncyd,many\n")
    with pytest.raises(PatternProcessorError, match=r"d\.csv cannot be read"):
        found.read()
    (tmp_path / "d.csv").unlink()
    monkeypatch.setattr("asterism.discovery.sources.lookup_sources.MAX_ROWS", 1)
    with pytest.raises(PatternProcessorError, match="has more than 1 rows"):
        found.read()


def test_a_file_that_is_being_written_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "limits.csv"
    write(path, limits(ann=1))
    source = FileLookupSource(path)
    monkeypatch.setattr(
        "asterism.discovery.sources.lookup_sources.time.sleep",
        lambda _: path.write_text("customer,max\nann,1\nbob,2\n"),
    )
    with pytest.raises(PatternProcessorError, match="is being written"):
        source.read(COLUMNS)


def test_a_table_of_a_database_is_read(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "limits.db")
    connection.execute(
        """CREATE TABLE limits (customer VARCHAR(20), max DOUBLE, n INTEGER, ok BOOLEAN, since DATE, at TIMESTAMP,
        x NUMERIC(6,2), b BLOB)"""
    )
    rows = [
        ("ann", 1.5, 7, True, "2026-01-31", "2026-01-31 12:00:00+01:00", 10.25, b"a"),
        ("bob", None, None, 0, None, None, 3, None),
    ]
    connection.executemany("INSERT INTO limits VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    url = f"sqlite:///{tmp_path}/limits.db"
    with pytest.raises(PatternProcessorError, match="the column 'b' of limits has the type BLOB"):
        defined(source=url, table="limits")
    names = "customer STRING, max DOUBLE, n BIGINT, ok BOOLEAN, since DATE, at TIMESTAMP, x DECIMAL(6,2)"
    found = defined(source=url, table="limits", schema=names)
    ann, bob = rows_from_bytes(found.column, found.read()[0]).to_pylist()
    assert (ann["max"], ann["n"], ann["ok"], str(ann["since"]), str(ann["x"])) == (1.5, 7, True, "2026-01-31", "10.25")
    assert ann["at"].isoformat() == "2026-01-31T11:00:00+00:00"
    assert bob == dict.fromkeys(bob) | {"customer": "bob", "ok": False, "x": bob["x"]}
    connection.execute("UPDATE limits SET max = 'much' WHERE customer = 'bob'")
    connection.commit()
    with pytest.raises(PatternProcessorError, match="the column 'max' of limits has values that are not DOUBLE"):
        found.read()
    connection.execute("CREATE VIEW few AS SELECT customer, max FROM limits WHERE max < 100")
    connection.commit()
    assert defined(source=url, table="few").read()[1] == 1
    with pytest.raises(PatternProcessorError, match="there is no table"):
        SqlLookupSource(url, "none").schema()


def test_a_table_of_postgresql_is_read(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            """CREATE TABLE limits (customer TEXT PRIMARY KEY, max DOUBLE PRECISION, n SMALLINT, ok BOOLEAN, since DATE,
            at TIMESTAMPTZ, there TIMESTAMP, x NUMERIC(6,2), id UUID)"""
        )
        connection.execute(
            """INSERT INTO limits VALUES ('ann', 1.5e300, 7, true, '2026-01-31', '2026-01-31 12:00:00.5+01',
            '2026-01-31 12:00:00', 10.25, '01234567-89ab-cdef-0123-456789abcdef')"""
        )
        connection.execute("INSERT INTO limits VALUES ('bob')")
    found = defined(source=database, table="public.limits")
    ann, bob = rows_from_bytes(found.column, found.read()[0]).to_pylist()
    assert (ann["max"], ann["n"], ann["ok"], str(ann["since"]), str(ann["x"])) == (
        1.5e300,
        7,
        True,
        "2026-01-31",
        "10.25",
    )
    assert (ann["at"].isoformat(), ann["there"].isoformat()) == (
        "2026-01-31T11:00:00.500000+00:00",
        "2026-01-31T12:00:00",
    )
    assert ann["id"] == "01234567-89ab-cdef-0123-456789abcdef"
    assert bob == dict.fromkeys(bob) | {"customer": "bob"}
    assert "secret" not in repr(SqlLookupSource("postgresql://me:secret@host/d", "limits"))


# ---------------------------------------------------------------------------------------------------- the coordinator


class Rows(LookupSource):
    """Rows that change, or an error."""

    def __init__(self, rows: pa.Table | Exception) -> None:
        self.rows = rows

    def schema(self) -> pa.Schema:
        return COLUMNS

    def read(self, schema: pa.Schema) -> pa.Table:
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


def coordinated(folder: Path, source: LookupSource) -> Coordinator:
    lookup = defined(source=source, interval=timedelta(microseconds=1))
    compiler = ProcessorCompiler(
        SCHEMA, ["user"], TimeColumn("ts", SCHEMA.field("ts").type), Semantics.DEFAULT, {}, lookups=[lookup.column]
    )
    made = Coordinator(compiler, FolderStore(str(folder)), lookups=[lookup])
    made.read_lookups()
    return made


def look(manager: Coordinator) -> None:
    """What the thread does that watches tables."""
    manager.poll_lookups()
    manager.publish_lookups()


def versions(store: FolderStore) -> list[tuple[int, dict[str, float]]]:
    """The rows in each stored set."""
    lookup = LIMITS
    return [
        (found.lookups[0].version, {row["customer"]: row["max"] for row in rows_from_bytes(lookup, value).to_pylist()})
        for found in store.retained()
        for value in [store.read_lookup(found.lookups[0])]
    ]


def test_a_new_version_of_a_table_is_a_new_set(tmp_path: Path) -> None:
    source = Rows(limits(ann=1))
    manager = coordinated(tmp_path, source)
    manager.on_pattern_processors_updated([ABOVE])
    manager.planned(1, 0)
    look(manager)
    assert manager.version == 1
    source.rows = limits(ann=2)
    look(manager)
    assert versions(manager.store) == [(1, {"ann": 1}), (2, {"ann": 2})]
    manager.on_pattern_processors_updated([ABOVE, THEN_B])
    assert [found.lookups[0].version for found in manager.store.retained()] == [1, 2, 2]
    # The next one waits until a micro-batch has been planned with the last one.
    source.rows = limits(ann=3)
    look(manager)
    assert manager.version == 3
    manager.planned(2, 1)
    look(manager)
    assert manager.version == 4
    assert [(one.set, one.what, one.id, one.reason) for one in manager.store.history().entries() if one.what == "lookup"] == [
        (1, "lookup", "limits", "1 rows"), (2, "lookup", "limits", "1 rows"), (4, "lookup", "limits", "1 rows"),
    ]  # fmt: skip


def test_rows_that_cannot_be_used_change_nothing(tmp_path: Path) -> None:
    source = Rows(limits(ann=1, bob=2))
    manager = coordinated(tmp_path, source)
    manager.on_pattern_processors_updated([ABOVE])
    manager.planned(1, 0)
    for wrong, message in (
        (pa.concat_tables([limits(ann=1)] * 2), "[PATTERN_PROCESSOR] the lookup limits: 2 rows have the same key"),
        (PatternProcessorError("gone"), "[PATTERN_PROCESSOR] gone"),
        (ValueError("5"), "ValueError: 5"),
    ):
        source.rows = wrong
        look(manager)
        look(manager)
        state = manager.current_status().lookups["limits"]
        assert (state.version, state.rows) == (1, 2)
        assert (state.error or "").startswith(message)
        assert sum(message in line for line in manager.current_status().log) == 1
    manager.close()
    assert status_of(str(tmp_path)).lookups["limits"].error == "ValueError: 5"
    shown = CliRunner().invoke(main, ["rules", "status", str(tmp_path)]).output
    assert "lookup limits: 2 rows since set 1, last read: 20" in shown
    assert "lookup limits: the new rows cannot be used: ValueError: 5" in shown
    # A restart continues with the stored rows, even if the table is gone.
    manager = coordinated(tmp_path, Rows(PatternProcessorError("gone")))
    manager.on_pattern_processors_updated([ABOVE])
    assert versions(manager.store) == [(1, {"ann": 1, "bob": 2})]
    # And reads it again.
    manager = coordinated(tmp_path, Rows(limits(ann=5)))
    manager.on_pattern_processors_updated([ABOVE])
    assert versions(manager.store)[-1] == (2, {"ann": 5})
    assert manager.current_status().lookups["limits"].error is None


def test_a_query_does_not_start_without_rows(tmp_path: Path) -> None:
    with pytest.raises(PatternProcessorError, match=r"(?s)the table of the lookup limits cannot be used.*gone"):
        coordinated(tmp_path, Rows(PatternProcessorError("gone")))


def test_versions_that_no_set_has_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_store, "KEPT_FILES", 3)
    source = Rows(limits(ann=0))
    manager = coordinated(tmp_path, source)
    manager.on_pattern_processors_updated([ABOVE])
    for number in range(1, 8):
        manager.planned(number, number - 1)
        manager.committed(number)
        source.rows = limits(ann=number)
        look(manager)
    assert versions(manager.store)[-1] == (8, {"ann": 7})
    files = {int(path.stem) for path in (tmp_path / "lookups" / "limits").iterdir()}
    sets = {int(path.stem) for path in (tmp_path / "sets").iterdir()}
    assert sets <= files
    assert len(files) <= len(sets) + 1
    (tmp_path / "lookups" / "limits" / "8.parquet").write_bytes(b"PAR1")
    with pytest.raises(StateError, match="has other rows than those that were announced"):
        versions(manager.store)
    (tmp_path / "lookups" / "limits" / "8.parquet").unlink()
    with pytest.raises(StateError, match=r"lookups/limits/8.parquet is missing"):
        versions(manager.store)


def test_a_table_that_takes_long_to_read_is_read_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    reads: list[float] = []

    class Slow(Rows):
        def read(self, schema: pa.Schema) -> pa.Table:
            nonlocal now
            reads.append(now)
            now += 3
            return limits(ann=1)

    class Changing(Slow):
        def state(self) -> Any:
            return now

    monkeypatch.setattr("asterism.rules.publishing.lookup_watch.time.monotonic", lambda: now)
    for source, expected in ((Slow(limits()), [0, 30, 60]), (Changing(limits()), [0, 4, 8])):
        begin = now
        watch = LookupWatch([defined(source=source, interval=timedelta(seconds=1))], ())
        while len(reads) < 3:
            watch.poll()
            now += 1
        assert [each - begin for each in reads] == expected
        reads.clear()
