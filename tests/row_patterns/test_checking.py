"""A clause over its input: what names mean, the types of expressions, and the columns of the result."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pyarrow as pa
import pytest

from asterism.errors import ExpressionError
from asterism.expressions.types import TIME_ZONE, name_of
from asterism.row_patterns.checking import CheckedClause, check
from asterism.row_patterns.clause.clause import InputTable
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.resolution import AggregateValue, Leaf, MatchNumber, Place, RowValue
from tests.kit import bounded

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("price", pa.int32()),
        ("volume", pa.decimal128(10, 2)),
        ("point", pa.struct([("x", pa.float64())])),
        ("tags", pa.list_(pa.string())),
        ("A", pa.string()),
        ("odd name", pa.int16()),
    ],
    metadata={TIME_ZONE: b"UTC"},
)


def checked(text: str) -> CheckedClause:
    return check(read(text), SCHEMA)


def measure(expression: str) -> CheckedClause:
    return checked(f"ORDER BY ts MEASURES {expression} AS m PATTERN (A B+ C) SUBSET U = (A, B)")


@pytest.mark.parametrize(
    ("expression", "data_type"),
    [
        ("price", "INT"),
        ("A.price", "INT"),
        ("a.PRICE", "INT"),
        ("B.`odd name`", "SMALLINT"),
        ("A.A", "STRING"),
        ("A", "STRING"),
        ("point.x", "DOUBLE"),
        ("B.point.x", "DOUBLE"),
        ("LAST(B.price, 2) + A.price", "INT"),
        ("FINAL LAST(B.ts) - FIRST(A.ts)", "INTERVAL DAY TO SECOND"),
        ("PREV(FIRST(U.volume, 1), 2)", "DECIMAL(10,2)"),
        ("NEXT(CLASSIFIER())", "STRING"),
        ("CLASSIFIER(U)", "STRING"),
        ("MATCH_NUMBER()", "BIGINT"),
        ("MATCH_ROWTIME()", "TIMESTAMP"),
        ("COUNT(*)", "BIGINT"),
        ("COUNT(B.*)", "BIGINT"),
        ("SUM(price)", "BIGINT"),
        ("SUM(U.volume)", "DECIMAL(20,2)"),
        ("AVG(U.volume)", "DECIMAL(14,6)"),
        ("FINAL MAX(B.price) FILTER (WHERE B.volume > 1)", "INT"),
        ("COUNT(DISTINCT B.name)", "BIGINT"),
        ("array_agg(B.name || CLASSIFIER(B))", "ARRAY<STRING>"),
        ("max_by(price, CLASSIFIER())", "INT"),
        ("array_agg(B.name ORDER BY CLASSIFIER(B), B.price DESC NULLS LAST)", "ARRAY<STRING>"),
        ("SUM(price + MATCH_NUMBER())", "BIGINT"),
        ("first_value(B.price) IGNORE NULLS", "INT"),
        ("A.price IN (300, LAST(A.price))", "BOOLEAN"),
        ("CASE WHEN COUNT(B.*) > 2 THEN 'many' ELSE lower(CLASSIFIER()) END", "STRING"),
        ("NULL", "NULL"),
    ],
)
def test_type_of_a_measure(expression: str, data_type: str) -> None:
    assert name_of(measure(expression).output.field("m").type) == data_type


@pytest.mark.parametrize(
    ("expression", "leaves"),
    [
        ("price", [RowValue(Place(), 1)]),
        ("A.price", [RowValue(Place("A"), 1)]),
        ("A.price + LAST(A.price)", [RowValue(Place("A"), 1)]),
        ("FIRST(price, 2)", [RowValue(Place(last=False, skip=2), 1)]),
        ("FINAL LAST(U.price)", [RowValue(Place("U", final=True), 1)]),
        ("PREV(price)", [RowValue(Place(steps=-1), 1)]),
        ("NEXT(LAST(B.price, 1), 3)", [RowValue(Place("B", skip=1, steps=3), 1)]),
        ("PREV(FINAL FIRST(B.price), 0)", [RowValue(Place("B", last=False, final=True), 1)]),
        ("CLASSIFIER()", [RowValue(Place(), 1, labelled=True)]),
        ("FIRST(CLASSIFIER(U))", [RowValue(Place("U", last=False), 1, labelled=True)]),
        ("MATCH_NUMBER()", [MatchNumber()]),
        ("MATCH_ROWTIME()", [RowValue(Place(), 0)]),
        ("RUNNING SUM(B.price)", [AggregateValue("B", False, 0)]),
        ("FINAL SUM(price) - SUM(price)", [AggregateValue(None, True, 0), AggregateValue(None, False, 0)]),
        ("COUNT(*)", [AggregateValue(None, False, 0)]),
        ("1 + 1", []),
    ],
)
def test_leaves_of_an_expression(expression: str, leaves: list[Leaf]) -> None:
    assert list(measure(expression).measures[0].leaves) == leaves


@pytest.mark.parametrize(
    ("condition", "reach"),
    [
        ("TRUE", (0, 0)),
        ("price > 1", (0, 0)),
        ("B.price > PREV(B.price, 3)", (3, 0)),
        ("price > PREV(U.price) AND NEXT(price, 2) IS NULL", (1, 2)),
        ("LAST(price) > PREV(LAST(B.price))", (1, 0)),
        ("V.price > 1", None),
        ("price > A.price", None),
        ("price > LAST(price, 1)", None),
        ("price > FIRST(price)", None),
        ("SUM(price) > 1", None),
        ("PREV(CLASSIFIER()) = 'A'", None),
        ("MATCH_NUMBER() = 1", None),
    ],
)
def test_reach_of_a_condition(condition: str, reach: tuple[int, int] | None) -> None:
    """A condition that depends on rows near the current one alone can be computed before any match is known."""
    clause = checked(f"ALL ROWS PER MATCH PATTERN (A B) SUBSET U = (A, B), V = (A) DEFINE B AS {condition}")
    assert clause.conditions["B"].reach == reach


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("PARTITION BY name ORDER BY ts MEASURES price AS p, 1 AS one PATTERN (A)", ["name", "p", "one"]),
        (
            "PARTITION BY name ORDER BY ts, price + 1 MEASURES 1 AS one ALL ROWS PER MATCH PATTERN (A)",
            ["name", "ts", "one", "price", "volume", "point", "tags", "A", "odd name"],
        ),
        ("PARTITION BY name, date(ts) AS day PATTERN (A)", ["name", "day"]),
        ("PARTITION BY upper(name) PATTERN (A)", ["upper(name)"]),
        (
            "ORDER BY ts, TS DESC ALL ROWS PER MATCH PATTERN (A)",
            ["ts", "name", "price", "volume", "point", "tags", "A", "odd name"],
        ),
    ],
)
def test_columns_of_the_result(text: str, names: list[str]) -> None:
    assert checked(text).output.names == names


def test_a_variable_comes_before_a_column_of_the_same_name() -> None:
    leaves = [measure(text).measures[0].leaves[0] for text in ("A.name", "A")]
    assert leaves == [RowValue(Place("A"), 1), RowValue(Place(None), 1)]


@pytest.mark.parametrize("name", ["show", "set", "describe", "use", "comment", "explain", "cache", "update", "begin"])
def test_column_named_like_a_command(name: str) -> None:
    """At the beginning of an expression, too."""
    schema = pa.schema({name: pa.int32(), "ts": pa.int64()})
    clause = check(
        read(f"ORDER BY ts MEASURES {name} + 1 AS m, A.{name} AS n PATTERN (A) DEFINE A AS {name} > 1"), schema
    )
    assert clause.output.names == ["m", "n"]


def test_column_named_as_the_label_of_rows() -> None:
    schema = pa.schema({"__classifier": pa.int32(), "ts": pa.int64()})
    clause = check(read("MEASURES CLASSIFIER() AS c, __classifier AS d PATTERN (A)"), schema)
    assert [str(field.type) for field in clause.output] == ["string", "int32"]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("INTERVAL '1' HOUR", 3_600_000_000),
        ("INTERVAL 90 MINUTES", 5_400_000_000),
        ("INTERVAL '2' DAY", 172_800_000_000),
        ("INTERVAL '1:30' HOUR TO MINUTE", 5_400_000_000),
        ("INTERVAL '2 03' DAY TO HOUR", 183_600_000_000),
        ("INTERVAL '0 00:00:00.5' day to second", 500_000),
    ],
)
def test_within(text: str, micros: int) -> None:
    assert checked(f"ORDER BY ts ALL ROWS PER MATCH PATTERN (A) WITHIN {text}").within == micros


def test_permutation_of_ten_is_not_too_large() -> None:
    """An automaton needs a state for each set of parts, not a path for each order."""
    checked("ALL ROWS PER MATCH PATTERN (PERMUTE(" + ", ".join(f"V{n}" for n in range(10)) + "))")


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN ("
        + " ".join(f"V{n}" for n in range(200))
        + ") DEFINE "
        + ", ".join(f"V{n} AS price > {n}" for n in range(200)),
        "MEASURES " + ", ".join(f"SUM(price) + {n} AS m{n}" for n in range(500)) + " PATTERN (A)",
        "PATTERN (A) DEFINE A AS " + "SUM(" * 40 + "price" + ")" * 40 + " > 1",
        "PATTERN (A) DEFINE A AS " + " AND ".join(["price > 1"] * 1500),
        "PATTERN (A) DEFINE A AS " + " OR ".join(f"PREV(price, {n % 90}) > {n}" for n in range(900)),
        "PATTERN (A) DEFINE A AS " + " + ".join(["price"] * 2000) + " > 1",
        "PATTERN (A) DEFINE A AS " + "NOT " * 4000 + "TRUE",
        "PATTERN (A) DEFINE A AS name = '" + "x" * 15_000 + "'",
        "PATTERN (" + "(" * 45 + "A" + "){2}" * 45 + ")",
    ],
    ids=lambda text: text[:40],
)
def test_hostile_clause_is_checked_or_refused_in_bounded_time(text: str) -> None:
    with bounded(), contextlib.suppress(ExpressionError):
        checked(text)


@pytest.mark.parametrize(
    "word", ["DROP", "Create", "FROM", "WHEN", "LIKE", "ORDER", "DEFINE", "WITHIN", "INTERVAL", "NULL"]
)
def test_variable_with_the_name_of_a_keyword(word: str) -> None:
    clause = checked(
        f"ORDER BY ts MEASURES LAST({word}.price) + {word}.price AS p, COUNT({word}.*) AS n PATTERN (A {word}) "
        f"DEFINE {word} AS A.price > .5 AND {word}.price < A.price"
    )
    assert clause.measures[0].leaves == (RowValue(Place(word.upper()), 1),)
    assert clause.conditions[word.upper()].reach is None


TRIPS = InputTable(("catalog", "db", "Trips"))


def over(text: str, *tables: InputTable, schema: pa.Schema = SCHEMA) -> CheckedClause:
    return check(replace(read(text), tables=tables), schema)


def test_names_of_tables() -> None:
    clause = over(
        "PARTITION BY upper(trips . name) AS k, db.Trips.price ORDER BY `catalog`.db.trips.ts "
        "MEASURES SUM(trips.price) AS s, db.trips.point.x AS x, TRIPS.price - A.price AS d PATTERN (A B) "
        "DEFINE B AS trips.price > PREV(trips.price)",
        TRIPS,
    )
    plain = over(
        "PARTITION BY upper(name) AS k, price ORDER BY ts MEASURES SUM(price) AS s, point.x AS x, price - A.price AS d "
        "PATTERN (A B) DEFINE B AS price > PREV(price)"
    )
    assert clause.output == plain.output
    assert [one.leaves for one in clause.measures] == [one.leaves for one in plain.measures]
    assert clause.conditions["B"].resolved.leaves == plain.conditions["B"].resolved.leaves
    assert clause.rows.values.texts == plain.rows.values.texts
    # Spark evaluates the keys.
    keys = [key.expression.text for key in (*clause.clause.partition_by, *clause.clause.order_by)]
    assert keys == ["upper(name)", "price", "ts"]


def test_a_variable_with_the_name_of_a_table() -> None:
    """Variables cannot be used in PARTITION BY and ORDER BY, so the name is that of the table there."""
    clause = over(
        "PARTITION BY A.name ORDER BY A.ts MEASURES A.price AS p PATTERN (A B) DEFINE B AS price > A.price",
        InputTable(("a",)),
    )
    assert clause.output.names == ["name", "p"]
    assert clause.measures[0].leaves == (RowValue(Place("A"), 2),)
    assert clause.conditions["B"].reach is None


def test_a_table_with_the_name_of_a_struct_column() -> None:
    clause = over("ORDER BY ts MEASURES point.price AS p, point.x AS x PATTERN (A)", InputTable(("point",)))
    assert [name_of(field.type) for field in clause.output] == ["INT", "DOUBLE"]


JOINED = pa.schema([("l.n", "int32"), ("c", "string"), ("r.n", "int64")])
SIDES = (InputTable(("l",), (("n", "l.n"),)), InputTable(("r",), (("n", "r.n"),)))


def test_columns_of_the_tables_of_a_join() -> None:
    clause = over(
        "PARTITION BY L.N, r.n + 1 AS k MEASURES FIRST(l.n) AS f, r.n AS r, A.c AS c PATTERN (A)", *SIDES, schema=JOINED
    )
    assert [(field.name, str(field.type)) for field in clause.output][1:] == [
        ("k", "int64"),
        ("f", "int32"),
        ("r", "int64"),
        ("c", "string"),
    ]
    assert [key.expression.text for key in clause.clause.partition_by] == ["`l.n`", "`r.n` + 1"]
