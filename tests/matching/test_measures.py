"""Rows of results: the default form, measures, functions, and the types of their columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from asterism.columns.time import END_OF_TIME, LAST_TIMESTAMP
from asterism.errors import ColumnNotFoundError, ExpressionError, ExpressionSyntaxError, InvalidEventError
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.pattern import Pattern
from tests.matching.harness import Run, chain, ms, run, stage

ABC = chain("a", "b").optional().followed_by("c").where("name = 'c'")
LOOP = stage("a").one_or_more().consecutive().next("z").where("name = 'z'")


def measured(
    pattern: Pattern, text: str, *measures: str, kind: OutputKind = OutputKind.MATCHES
) -> list[tuple[Any, ...]]:
    """The measures of each match, without the key."""
    rows = run(pattern, text, outputs={"m": OutputSpec(kind, measures)}).rows("m")
    return [tuple(row.values())[1:] for row in rows]


def test_measures_of_one_event() -> None:
    assert measured(chain("a", "b"), "a1(price=5) b2(price=7)", "LAST(a.price)", "FIRST(b.n) AS n", "b.price AS p") == [
        (5.0, 2, 7.0)
    ]


def test_measures_are_named() -> None:
    """By AS, or else by their text; the key columns come first."""
    schema = Run(
        chain("a", "b"), {"m": OutputSpec(OutputKind.MATCHES, ("LAST(a.n) AS x", "COUNT(b.*)"))}
    ).operator.output_schemas["m"]
    assert schema == pa.schema([("key", pa.string()), ("x", pa.int64()), ("COUNT(b.*)", pa.int64())])


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("FIRST(a.n)", 1),
        ("LAST(a.n)", 4),
        ("FIRST(a.price)", 1.5),
        ("LAST(a.price)", None),
        ("COUNT(a.*)", 4),
        ("COUNT(a.price)", 3),
        ("SUM(a.n)", 10),
        ("SUM(a.price)", 6.0),
        ("AVG(a.n)", 2.5),
        ("AVG(a.price)", 2.0),
        ("MIN(a.price)", 1.5),
        ("MAX(a.price)", 2.5),
        ("MAX(a.name)", "a"),
        ("SUM(a.n * a.n)", 30),
        ("SUM(CASE WHEN a.price > 1.9 THEN 1 ELSE 0 END)", 2),
        ("MAX(a.price) - MIN(a.price)", 1.0),
        ("LAST(z.n) - FIRST(a.n)", 4),
        ("SUM(a.n) / COUNT(a.*)", 2.5),
        ("SUM(a.price) / SUM(a.n) * 100 > 59", True),
        ("COALESCE(LAST(a.price), -1)", -1),
        ("CASE WHEN COUNT(a.*) > 3 THEN 'many' ELSE 'few' END", "many"),
        ("concat(FIRST(a.name), '-', LAST(z.name))", "a-z"),
        ("end_time - start_time", 4),
        ("match_time", 5),
        ("1 + 1", 2),
        ("LAST(A.n)", None),
    ],
)
def test_measure(measure: str, expected: Any) -> None:
    """Over the events a1 to a4 with prices 1.5, 2.0, 2.5, NULL, then z5."""
    text = "a1(price=1.5) a2(price=2) a3(price=2.5) a4(price=null) z5"
    if measure == "LAST(A.n)":
        with pytest.raises(ColumnNotFoundError):
            measured(LOOP, text, measure)
        return
    matches = measured(LOOP, text, measure, "COUNT(a.*) AS length")
    assert [value for value, length in matches if length == 4] == [expected]


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("SUM(a.price) FILTER (WHERE a.n > 1)", 4.5),
        ("count(a.*) FILTER (WHERE a.price > 1.9)", 2),
        ("count_if(a.price > 1.9)", 2),
        ("COUNT(DISTINCT a.name, z.name)", None),
        ("COUNT(DISTINCT a.name)", 1),
        ("COUNT(a.n, a.price)", 3),
        ("min_by(a.n, a.price)", 1),
        ("percentile(a.price, 0.5)", 2.0),
        ("percentile_approx(a.price, 0.5)", 2.0),
        ("collect_list(a.price)", [1.5, 2.0, 2.5]),
        ("collect_set(a.name)", ["a"]),
        ("approx_count_distinct(a.price)", 3),
        ("approx_count_distinct(a.price, 0.0022)", 3),
        ("var_pop(a.n)", 1.25),
        ("bool_and(a.n > 1) OR bool_or(z.n = 5)", True),
        ("LAST(a.price) IGNORE NULLS", 2.5),
        ("LAST(a.price, TRUE)", 2.5),
        ("LAST(a.price, 1)", 2.5),
        ("LAST(a.price, 1) IGNORE NULLS", 2.0),
        ("FIRST(a.n, 3)", 4),
        ("FIRST(a.n, 4)", None),
        ("FIRST(a.n, 1) FILTER (WHERE a.n <> 2)", 3),
        ("any_value(z.n) + a.n", 9),
        ("SUM(10 / (a.n - 5))", -10 / 4 - 10 / 3 - 10 / 2 - 10),
        ("get(collect_list(a.n), 1)", 2),
    ],
)
def test_measures_have_the_aggregates_of_windows(measure: str, expected: Any) -> None:
    """Over the same events; z5, which is of another stage, cannot make ``10 / (a.n - 5)`` fail."""
    text = "a1(price=1.5) a2(price=2) a3(price=2.5) a4(price=null) z5"
    if "a.name, z.name" in measure:
        with pytest.raises(ExpressionSyntaxError, match="COUNT must use the events of a single stage"):
            measured(LOOP, text, measure)
        return
    matches = measured(LOOP, text, measure, "COUNT(a.*) AS length")
    assert [value for value, length in matches if length == 4] == [
        pytest.approx(expected) if isinstance(expected, float) else expected
    ]


@pytest.mark.parametrize(
    ("measure", "problem"),
    [
        ("SUM(a.price) FILTER (WHERE z.n > 1)", "SUM must use the events of a single stage"),
        ("SUM(a.price + price)", "SUM must use the events of a single stage"),
        ("SUM(a.*)", "\\* is supported only in COUNT"),
        ("MAX(SUM(a.n))", "SUM inside MAX: aggregates cannot be nested"),
        ("SUM(a.n) FILTER (WHERE COUNT(a.*) > 1)", "FILTER cannot contain an aggregate"),
        ("upper(DISTINCT a.name)", "DISTINCT belongs to aggregates"),
        ("LAST(a.n, 10001)", "the offset must be between 0 and 10,000"),
        ("LAST(a.n, a.n)", "the offset cannot depend on the elements"),
    ],
)
def test_measures_that_mean_nothing(measure: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        measured(LOOP, "a1 z5", measure)


def test_a_sum_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(InvalidEventError, match="the sum does not fit into BIGINT"):
        measured(LOOP, "a1 a2 z3", f"SUM(a.n + {2**62}L)")


def test_nan_is_the_largest_number() -> None:
    [(smallest, largest)] = measured(
        chain("a", "b"), "a1(price=1) b2", "MIN(a.price + 0)", "MAX(a.price * double('NaN'))"
    )
    assert smallest == 1.0
    assert math.isnan(largest)


def test_measures_of_several_matches() -> None:
    """Each match has its own events, also where matches share some."""
    assert sorted(
        measured(
            LOOP,
            "a1(price=1) a2(price=2) u.a2(price=5) a3(price=4) z4 u.z9(price=3)",
            "SUM(a.price)",
            "COUNT(a.*) AS c",
            "LAST(z.n) AS z",
        )
    ) == [
        (4.0, 1, 4),
        (5.0, 1, 9),
        (6.0, 2, 4),
        (7.0, 3, 4),
    ]


def test_a_missing_stage_gives_null_and_zero() -> None:
    """Also in a batch in which no match at all has the stage."""
    measures = (
        "LAST(b.n)",
        "SUM(b.price)",
        "AVG(b.n)",
        "MIN(b.name)",
        "COUNT(b.*)",
        "COUNT(b.price)",
        "FIRST(b.n) + 1",
    )
    assert measured(ABC, "a1 c2", *measures) == [(None, None, None, None, 0, 0, None)]
    rows = measured(ABC, "a1 b2(price=3) c3 u.a5 u.c6", "LAST(b.price)", "COUNT(b.*)")
    assert sorted(rows, key=str) == [(3.0, 1), (None, 0), (None, 0)]


def test_measures_of_timed_out_matches() -> None:
    """With ``timeout_time`` for ``match_time``; stages not reached are missing."""
    pattern = chain("a", "b").within(ms(10))
    assert measured(pattern, "a1(price=5)", "a.price", "b.price", "timeout_time", kind=OutputKind.TIMED_OUT) == [
        (5.0, None, 11)
    ]
    with pytest.raises(ColumnNotFoundError, match="match_time"):
        measured(pattern, "a1(price=5)", "match_time", kind=OutputKind.TIMED_OUT)


# --- types ---

TYPES = pa.schema(
    [
        ("at", pa.timestamp("us", "Europe/Madrid")),
        ("local", pa.timestamp("us")),
        ("small", pa.int16()),
        ("single", pa.float32()),
        ("money", pa.decimal128(10, 2)),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32())])),
    ]
)
ROW = {
    "at": datetime(2024, 7, 1, 12, tzinfo=UTC),
    "local": datetime(2024, 7, 1, 12),
    "small": 3,
    "single": 1.5,
    "money": Decimal("12.50"),
    "flag": True,
    "day": datetime(2024, 7, 1).date(),
    "raw": b"\x00\xff",
    "tags": ["x", None],
    "place": {"x": 1},
}


def typed(measures: Sequence[str] | None, time: str = "at", pattern: Pattern | None = None) -> pa.Table:
    """The result over one row of every type, and one of nulls at another time."""
    spec = OutputSpec(OutputKind.MATCHES, None if measures is None else tuple(measures))
    operator = CepOperator(pattern or Pattern.begin("a").next("b"), TYPES, time=time, outputs={"m": spec})
    later = {"at": ROW["at"].replace(minute=1), "local": ROW["local"].replace(minute=1)}  # type: ignore[attr-defined]
    store = MemoryStore()
    operator.process(
        store, [Arrival(EVENTS, operator.prepare(EVENTS, pa.Table.from_pylist([ROW, later], TYPES)))], Now()
    )
    result: pa.Table = operator.process(store, [], Now(END_OF_TIME)).outputs["m"]
    assert result.schema == operator.output_schemas["m"]
    return result


@pytest.mark.parametrize("function", ["FIRST", "LAST", "MIN", "MAX"])
@pytest.mark.parametrize("column", ["at", "local", "small", "single", "money", "flag", "day"])
def test_values_keep_their_type(function: str, column: str) -> None:
    """Zones included."""
    result = typed([f"{function}(a.{column}) AS value"])
    assert result.schema.field("value").type == TYPES.field(column).type
    assert result["value"].to_pylist() == [ROW[column]]


@pytest.mark.parametrize("column", ["raw", "tags", "place"])
def test_values_of_any_type_can_be_picked(column: str) -> None:
    assert typed([f"LAST(a.{column}) AS value", f"LAST(b.{column}) AS none"]).to_pylist() == [
        {"value": ROW[column], "none": None}
    ]


def test_times_of_an_expression_keep_their_zone() -> None:
    """An hour after a time with a zone is a time with that zone."""
    result = typed(["LAST(a.at) + INTERVAL 1 HOUR AS value"])
    assert result.schema.field("value").type == TYPES.field("at").type
    assert result["value"].to_pylist() == [datetime(2024, 7, 1, 13, tzinfo=UTC)]


def test_sums_of_small_types_are_wide() -> None:
    result = typed(
        ["SUM(a.small) AS small", "SUM(a.single) AS single", "SUM(a.money) AS money", "AVG(a.small) AS average"]
    )
    assert result.to_pylist() == [{"small": 3, "single": 1.5, "money": Decimal("12.50"), "average": 3.0}]
    assert result.schema.types == [pa.int64(), pa.float64(), pa.decimal128(20, 2), pa.float64()]


def test_sums_and_averages_of_decimals_are_exact() -> None:
    result = typed(["AVG(a.money) AS average", "SUM(a.money * 2) AS twice"])
    assert result.schema.types == [pa.decimal128(14, 6), pa.decimal128(22, 2)]
    assert result.to_pylist() == [{"average": Decimal("12.500000"), "twice": Decimal("25.00")}]


@pytest.mark.parametrize("time", ["at", "local"])
def test_times_of_a_match_have_the_type_of_the_event_time(time: str) -> None:
    result = typed(["start_time", "end_time", "match_time"], time)
    assert {field.type for field in result.schema} == {TYPES.field(time).type}
    assert result["end_time"].to_pylist()[0].minute == 1


def test_events_keep_every_type() -> None:
    """The default form has the events as they came in."""
    assert typed(None)["a"].to_pylist() == [[ROW]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_event_times_of_any_unit(unit: str) -> None:
    schema = pa.schema([("at", pa.timestamp(unit, "UTC"))])
    operator = CepOperator(
        Pattern.begin("a").within(ms(2000)).next("b"),
        schema,
        time="at",
        outputs={"m": OutputSpec(OutputKind.TIMED_OUT)},
    )
    result = operator.process(
        MemoryStore(),
        [Arrival(EVENTS, operator.prepare(EVENTS, pa.table([[ROW["at"]]], schema=schema)))],
        Now(END_OF_TIME - 1),
    )
    assert result.outputs == {}
    store = MemoryStore()
    operator.process(store, [Arrival(EVENTS, operator.prepare(EVENTS, pa.table([[ROW["at"]]], schema=schema)))], Now())
    rows = operator.process(store, [], Now(END_OF_TIME)).outputs["m"]
    assert rows.schema == operator.output_schemas["m"]
    assert rows["timeout_time"].to_pylist()[0] == datetime(2024, 7, 1, 12, 0, 2, tzinfo=UTC)


def test_nanoseconds_are_truncated() -> None:
    """Spark knows microseconds."""
    schema = pa.schema([("at", pa.timestamp("ns"))])
    operator = CepOperator(Pattern.begin("a"), schema, time="at", outputs={"m": OutputSpec(OutputKind.MATCHES)})
    prepared = operator.prepare(EVENTS, pa.table([pa.array([1_001, 2_999], pa.timestamp("ns"))], schema=schema))
    assert prepared.column("__time").to_pylist() == [1, 2]


def test_the_end_of_time_fits_into_a_timestamp() -> None:
    """A match is never stamped later than the year 9999."""
    pattern = Pattern.begin("a").not_followed_by("b").within(ms(2**52))
    result = typed(["match_time AS value"], pattern=pattern)
    assert result["value"].cast(pa.int64()).to_pylist() == [LAST_TIMESTAMP]


# --- functions ---


def test_a_function_makes_rows_of_matches() -> None:
    """It gets the default form, as many matches at once as there are, and gives as many rows as it likes."""

    def twice(matches: pa.Table) -> pa.Table:
        lengths = pc.list_value_length(matches["a"])
        return pa.concat_tables([pa.table({"key": matches["key"], "length": lengths})] * 2)

    schema = pa.schema([("key", pa.string()), ("length", pa.int64())])
    spec = OutputSpec(OutputKind.MATCHES, function=twice, function_schema=schema)
    rows = run(chain("a", "b"), "a1 b2", outputs={"m": spec}).rows("m")
    assert rows == 2 * [{"key": None, "length": 1}]


def test_outputs_stand_alone() -> None:
    """One query, several outputs."""
    outputs = {
        "whole": OutputSpec(OutputKind.MATCHES),
        "short": OutputSpec(OutputKind.MATCHES, ("a.n AS n",)),
        "lost": OutputSpec(OutputKind.TIMED_OUT, ("a.n AS n",)),
        "late": OutputSpec(OutputKind.LATE),
    }
    cep = run(chain("a", "b").within(ms(5)), "a1 b2 a3 |2 b1", outputs=outputs)
    assert [one.text for one in cep.found("whole")] == ["a1 b2"]
    assert (cep.rows("short"), cep.rows("lost")) == ([{"key": None, "n": 1}], [{"key": None, "n": 3}])
    assert cep.late == ["b1"]
