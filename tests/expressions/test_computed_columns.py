"""The parts of expressions that Spark computes as columns: which they are, and that the rest is read as it was."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from asterism.errors import ExpressionError, UnsupportedSyntaxError
from asterism.expressions.aggregates import CALLS_OF_MATCHES
from asterism.expressions.computed_columns import PREFIX, visible
from asterism.expressions.names import Scope
from asterism.expressions.parts_for_spark import Expression
from asterism.expressions.types import SPARK_TYPE
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.patterns.pattern import Pattern
from asterism.testing import PatternHarness, WindowHarness
from asterism.trace import trace
from asterism.windows.assigners import TumblingWindows

EVENTS = pa.schema(
    [
        ("x", pa.int64()), ("path", pa.string()), ("kind", pa.string()), ("xs", pa.list_(pa.int64())),
        ("s", pa.struct([("a", pa.int64())])), ("first name", pa.string()), ("straße", pa.int64()), ("end", pa.int64()),
    ]
)  # fmt: skip
STAGES = ("a", "b")


def parts_of(text: str, *, measure: bool = False) -> list[str]:
    expression = Expression(text, STAGES, CALLS_OF_MATCHES if measure else ())
    return [part.sql for part in expression.parts_for_spark(EVENTS)]


def test_a_literal_of_bytes_is_no_column() -> None:
    events = pa.schema([("ab", pa.int64())])
    assert [part.sql for part in Expression("SUM(f(a.ab, X'AB')) > 1", STAGES).parts_for_spark(events)] == [
        "f(ab, X'AB')"
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("x > 1", []),
        ("f(x) > 0.5", ["f(x) > 0.5"]),
        ("x > 1 AND f(x) > 0.5 AND kind = 'a'", ["x > 1 AND f(x) > 0.5 AND kind = 'a'"]),
        ("x <> 0 AND LAST(a.x) > 1 AND f(1 / x) > 0 AND kind = 'a'", ["x <> 0 AND f(1 / x) > 0"]),
        ("LAST(a.x) > 1 OR x = 0 OR f(1 / x) > 0 OR kind = 'a'", ["x = 0 OR f(1 / x) > 0"]),
        ("LAST(a.x) > f(x) + 1", ["f(x) + 1"]),
        ("LAST(a.x) + f(x) * 2 - x > g(x)", ["f(x) * 2", "g(x)"]),
        ("LAST(a.x) BETWEEN f(x) AND g(x) AND x = 1", ["f(x)", "g(x)"]),
        ("NOT (f(x) > LAST(a.x))", ["f(x)"]),
        ("CASE WHEN x > 1 THEN f(x) ELSE 0 END > LAST(a.x)", ["CASE WHEN x > 1 THEN f(x) ELSE 0 END"]),
        ("CASE WHEN LAST(a.x) > 1 THEN f(x) ELSE x END > 2", ["f(x)"]),
        ("coalesce(LAST(a.x), f(x)) > 1", ["f(x)"]),
        ("LAST(a.x) IN (1, f(x))", ["f(x)"]),
        ("LAST(a.x) IS NOT NULL AND f(x) IS NOT NULL", ["f(x) IS NOT NULL"]),
        ("SUM(f(a.path, '/')) > 3", ["f(path, '/')"]),
        ("SUM(f(path, '/')) > 3", ["f(path, '/')"]),
        ("SUM(a.x) FILTER (WHERE f(a.x) > 0) > 3", ["f(x) > 0"]),
        ("PREV(f(x)) > f(x)", ["f(x)", "f(x)"]),
        ("LAST(f(a.x), 1) > 0", ["f(x)"]),
        ("LAST(aggregate(a.xs, 0, (t, v) -> t + v)) > 2", ["aggregate(xs, 0, (t, v) -> t + v)"]),
        ("SUM(pow2(a.x, b.x)) > 1", []),  # of two stages
        ("SUM(pow2(a.x, x)) > 1", []),
        ("f(LAST(a.x)) > 1", []),
        ("f(a.x) > 1", []),  # the last event of a stage, which may have none
        ("exists(xs, v -> v > LAST(a.x))", []),
        ("exists(xs, v -> f(v)) AND LAST(a.x) = 1", ["exists(xs, v -> f(v))"]),
        ("exists(xs, v -> v > 1) AND LAST(a.x) = 1", []),
        ("f(s.a) > LAST(a.x)", ["f(s.a)"]),
        ("LAST(a.s.a) > 1 AND s.a > f(s.a)", ["s.a > f(s.a)"]),
        ("kind COLLATE UTF8_LCASE = 'A' AND LAST(a.x) = 1", ["kind COLLATE UTF8_LCASE = 'A'"]),
        ("path:items[0].x::int > LAST(a.x)", ["path:items[0].x::int"]),
        ("f(`first name`) > LAST(a.x)", ["f(`first name`)"]),
        ("f(straße) > LAST(a.x) + f(`end`)", ["f(straße)", "f(`end`)"]),
        ("f( x )/* one */ >\n 'it''s' -- two\n AND LAST(a.x) > 1", ["f( x ) > 'it''s'"]),
        ("kind LIKE ANY ('a', f(x)) AND LAST(a.x) = 1", ["kind LIKE ANY ('a', f(x))"]),
        ("threshold < LAST(a.x)", ["threshold"]),  # a variable of the session
        ("x < LAST(a.x)", []),
        ("f(x) > count(*)", ["f(x)"]),
        ("f(x", []),
        ("(" * 60 + "f(x)" + ")" * 60, []),
        ("NOT " * 2000 + "f(x) > 1", ["NOT " * 2000 + "f(x) > 1"]),
    ],
)  # fmt: skip
def test_parts_that_only_spark_can_evaluate(text: str, parts: list[str]) -> None:
    assert parts_of(text) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SUM(f(a.path, '/')) AS n", ["f(path, '/')"]),
        ("array_agg(DISTINCT f(a.x) ORDER BY g(a.x) DESC NULLS LAST)", ["f(x)", "g(x)"]),
        ("COUNT(a.*) FILTER (WHERE f(a.x) > 0)", ["f(x) > 0"]),
        ("PREV(LAST(f(a.x)))", ["f(x)"]),
        ("any_value(f(b.x) IGNORE NULLS)", ["f(x)"]),
        ("stddev(f(x)) + 1", ["f(x)"]),
    ],
)
def test_arguments_of_aggregates_in_measures(text: str, parts: list[str]) -> None:
    assert parts_of(text, measure=True) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.v:price::int + a.x", ["v:price::int"]),
        ("coalesce(variant_get(a.v, '$.x', 'int'), 0) AS y", ["variant_get(v, '$.x', 'int')"]),
        ("CAST(a.v AS STRING) || a.kind", ["CAST(v AS STRING)"]),
        ("transform(a.xs, y -> y + a.x)", []),
        ("transform(a.xs, v -> v + a.x)", []),
        ("SUM(a.v:n::int) + b.v:n::int", ["v:n::int"]),
        ("variant_get(a.v, concat('$.', b.kind), 'int')", []),
        ("LAST(a.v):price::int", []),
        ("a.v", []),
        ("CASE WHEN a.x > 1 THEN a.v:n::int ELSE b.v:m::int END", ["v:n::int", "v:m::int"]),
    ],
)
def test_parts_around_columns_of_other_types_in_measures(text: str, parts: list[str]) -> None:
    """Of one stage, and the smallest ones: the value of the rest is that of the last event, or of NULL without events."""
    events = EVENTS.append(pa.field("v", pa.binary(), metadata={SPARK_TYPE: "variant"}))
    found = Expression(text, STAGES, CALLS_OF_MATCHES).parts_for_spark(events)
    assert list(dict.fromkeys(part.sql for part in found)) == parts


def test_without_spark_a_hint_says_what_to_do() -> None:
    def pattern() -> object:
        return PatternHarness(Pattern.begin("a").where("risk(kind) > 1"))

    def windows() -> object:
        return WindowHarness(TumblingWindows.of(timedelta(seconds=1)), aggregate=["sum(risk(kind)) AS n"])

    for harness in (pattern, windows):
        with pytest.raises(ExpressionError) as caught:
            harness()
        assert "give its value as a column of the events" in str(caught.value.hint)


def test_rules_do_not_reach_functions_of_the_session() -> None:
    """A rule is bound to the columns of the events alone: nothing looks for parts that Spark could compute."""
    with pytest.raises(ExpressionError, match="unknown function risk"):
        operator_of(Pattern.begin("a").where("risk(kind) > 1"), EVENTS)


def test_queries_and_windows_are_refused() -> None:
    for text in ("f(x) > 1 AND x IN (SELECT g(1))", "f(x) > 1 AND row_number() OVER (ORDER BY x) > 1"):
        with pytest.raises(UnsupportedSyntaxError, match="are not supported") as caught:
            parts_of(text)
        assert caught.value.position == text.index("SELECT" if "SELECT" in text else "OVER")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("f(x) > 1 AND now() > 1", 13),
        ("f(x) > 1 AND current_date > path", 13),
        ("f(x) > unix_timestamp()", 7),
        ("f(x) > 1 AND TIMESTAMP 'now' > path", 13),
        ("x = 1 AND f(rand()) > LAST(a.x)", 12),
    ],
)
def test_what_does_not_depend_on_the_event_alone_is_refused(text: str, position: int) -> None:
    with pytest.raises(UnsupportedSyntaxError, match="does not depend") as caught:
        parts_of(text)
    assert caught.value.position == position


def test_a_part_is_read_as_a_column_at_its_position() -> None:
    text = "x <> 0 AND LAST(a.x) > 1 AND f(1 / x) > 0 AND SUM(f(a.x)) > 'a'"
    schema = with_columns({"x <> 0 AND f(1 / x) > 0": pa.bool_(), "f(x)": pa.float64()})
    scope = Scope(schema, STAGES)
    tree = scope.resolve(scope.parse(text), text)
    expected = "`:sql:x <> 0 AND f(1 / x) > 0` AND LAST(`a`.`x`) > 1 AND SUM(`a`.`:sql:f(x)`) > 'a'"
    assert tree.sql("spark") == expected


def with_columns(columns: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*EVENTS, *(pa.field(PREFIX + sql, kind) for sql, kind in columns.items())])


def test_errors_beside_a_part_have_their_position() -> None:
    text = "f(x) > 0.5 AND LAST(a.xs) > LAST(a.path)"
    scope = Scope(with_columns({"f(x) > 0.5": pa.bool_()}), STAGES)
    pattern = Pattern.begin("a").next("b").where(text)
    with pytest.raises(ExpressionError) as caught:
        operator_of(pattern, scope.schema)
    assert caught.value.position == text.index("a.xs") + 2
    assert "f(x) > 0.5" in str(caught.value)
    text = "f(x) > 0.5 AND LAST(c.x) > 1"
    with pytest.raises(ExpressionError, match="unknown stage 'c'"):
        scope.resolve(scope.parse(text), text)


def operator_of(pattern: Pattern, schema: pa.Schema, *measures: str, late: bool = False) -> CepOperator:
    outputs = {"matches": OutputSpec(OutputKind.MATCHES, measures or None)}
    if late:
        outputs["late"] = OutputSpec(OutputKind.LATE)
    return CepOperator(pattern, schema, time=None, outputs=outputs)


def test_computed_columns_are_not_in_results() -> None:
    schema = with_columns({"f(x)": pa.float64()})
    operator = operator_of(Pattern.begin("a").next("b").where("f(x) > LAST(f(a.x))"), schema, late=True)
    assert operator.output_schemas["late"] == EVENTS == visible(schema)
    assert [field.name for field in operator.output_schemas["matches"].field("a").type.value_type] == EVENTS.names
    assert ":sql:f(x)" in operator.inputs["events"].schema.names
    alone = operator_of(Pattern.begin("a").where("f(x) > 0.5"), with_columns({"f(x) > 0.5": pa.bool_()}), "1 AS n")
    assert alone.inputs["events"].schema.names == [":sql:f(x) > 0.5"]
    with pytest.raises(ExpressionError) as caught:
        operator_of(Pattern.begin("a").where("f(x) > y"), schema)
    assert ":sql" not in str(caught.value)


def test_a_pattern_without_such_parts_has_the_same_state() -> None:
    pattern = Pattern.begin("a").next("b").where("x > LAST(a.x)")
    assert operator_of(pattern, EVENTS).fingerprint == operator_of(pattern, visible(EVENTS)).fingerprint


def test_conditions_that_are_columns_become_bits_of_spark() -> None:
    schema = with_columns({"f(x) > 0.5": pa.bool_()})
    operator = operator_of(Pattern.begin("a").where("f(x) > 0.5"), schema, "a.x AS x")
    assert operator.pattern.bits_sql == ["IF(`:sql:f(x) > 0.5`, 1L, 0L)"]
    assert operator.columns_beside_bits == ["x"]


def test_traces_read_computed_columns() -> None:
    schema = with_columns({"f(x) > 0.5": pa.bool_()}).append(pa.field("ts", pa.timestamp("us", "UTC")))
    rows = [{"x": number, "f(x) > 0.5": number == 2, "ts": number} for number in range(3)]
    table = pa.Table.from_pylist([{**row, ":sql:f(x) > 0.5": row["f(x) > 0.5"]} for row in rows], schema=schema)
    found = trace(Pattern.begin("a").where("f(x) > 0.5"), table, time="ts")
    assert len(found.matches) == 1
