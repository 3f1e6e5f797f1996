"""SQL over events: on the current event for a whole batch, and over the events of a stage, event by event."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from asterism.columns.time import END_OF_TIME
from asterism.errors import ExpressionError, ExpressionSyntaxError, ExpressionTypeError, InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import conjuncts, parse
from asterism.expressions.types import TIME_ZONE
from asterism.matching.binding import BoundPattern
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.pattern import Pattern

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("at", pa.timestamp("us", "Europe/Madrid")),
        ("day", pa.date32()),
        ("Mixed Case", pa.int32()),
    ]
)


def value(text: str, *rows: dict[str, Any]) -> list[Any]:
    """The values of a pure expression for rows that have the columns they name."""
    scope, vectorized = Scope(SCHEMA), Vectorized(SCHEMA)
    vectorized.add(scope.resolve(parse(text), text), text)
    values: list[Any] = vectorized.evaluate(pa.Table.from_pylist(list(rows) or [{}], SCHEMA))[0].to_pylist()
    return values


def n(*values: int | None) -> list[dict[str, Any]]:
    return [{"n": value} for value in values]


def x(*values: float | None) -> list[dict[str, Any]]:
    return [{"x": value} for value in values]


def s(*values: str | None) -> list[dict[str, Any]]:
    return [{"s": value} for value in values]


NAN = float("nan")


@pytest.mark.parametrize(
    ("text", "rows", "expected"),
    [
        # comparisons and nulls
        ("n > 1", n(1, 2, None), [False, True, None]),
        ("n <> 1 AND n != 3", n(1, 2, 3), [False, True, False]),
        ("n <=> NULL", n(1, None), [False, True]),
        ("n IS NULL", n(1, None), [False, True]),
        ("n IS NOT NULL", n(1, None), [True, False]),
        ("NOT n = 1", n(1, 2, None), [False, True, None]),
        ("n = 1 OR NULL", n(1, 2), [True, None]),
        ("n = 1 AND NULL", n(1, 2), [None, False]),
        ("b", [{"b": True}, {"b": False}, {"b": None}], [True, False, None]),
        ("b IS NOT TRUE", [{"b": True}, {"b": False}, {"b": None}], [False, True, True]),
        # NaN is the largest number and equal to itself, as in Spark
        ("x > 1e308", x(NAN, 1.0), [True, False]),
        ("x = x", x(NAN), [True]),
        # arithmetic
        ("n + 2 * 3 - -1", n(1), [8]),
        ("n / 2", n(3), [1.5]),
        ("try_divide(n, 0)", n(3), [None]),
        ("n % 3", n(7, -7), [1, -1]),
        ("abs(n)", n(-7), [7]),
        ("greatest(n, 3)", n(1, 5), [3, 5]),
        ("least(n, 3)", n(1, 5), [1, 3]),
        # IN, BETWEEN
        ("n IN (1, 2)", n(1, 3, None), [True, False, None]),
        ("n IN (1, NULL)", n(1, 3), [True, None]),
        ("n NOT IN (1, 2)", n(1, 3, None), [False, True, None]),
        ("n BETWEEN 1 AND 2", n(0, 1, 2, 3, None), [False, True, True, False, None]),
        ("n NOT BETWEEN 1 AND 2", n(0, 1), [True, False]),
        # text
        ("s = 'it''s'", s("it's"), [True]),
        (r"s = 'it\'s'", s("it's"), [True]),
        ('s = "it\'s"', s("it's"), [True]),
        ('s = \'say "hi"\'', s('say "hi"'), [True]),
        ("s = 'a -- b'", s("a -- b"), [True]),
        ("s = 'c1'", s("c1", "c2"), [True, False]),
        ("s = 'ñandú'", s("ñandú"), [True]),
        ("s < 'b'", s("a", "B", "b", "ä"), [True, True, False, False]),
        ("s LIKE 'a_c%'", s("abcd", "ac", None), [True, False, None]),
        (r"s LIKE 'a\\_c'", s("a_c", "abc"), [True, False]),
        ("s NOT LIKE '%x%'", s("axb", "ab"), [False, True]),
        ("s RLIKE 'b+'", s("abb", "ac"), [True, False]),
        ("length(s)", s("äö", ""), [2, 0]),
        ("upper(s) = 'AB'", s("ab"), [True]),
        ("lower(s)", s("AB"), ["ab"]),
        ("concat(s, '-', s)", s("a", None), ["a-a", None]),
        ("startswith(s, 'a') AND endswith(s, 'c') AND contains(s, 'b')", s("abc", "ac"), [True, False]),
        # choices
        ("CASE WHEN n > 1 THEN 'big' WHEN n = 1 THEN 'one' END", n(2, 1, 0, None), ["big", "one", None, None]),
        ("CASE n WHEN 1 THEN 'one' ELSE 'other' END", n(1, 2, None), ["one", "other", "other"]),
        ("IF(n > 1, n, -n)", n(2, 1), [2, -1]),
        ("COALESCE(n, 7)", n(None, 1), [7, 1]),
        # casts
        ("CAST(s AS DOUBLE)", s("1.5", " -Inf "), [1.5, -math.inf]),
        ("CAST(x AS INT)", x(2.7, -2.7, None), [2, -2, None]),
        ("CAST(x AS DECIMAL(5,2))", x(1.005, NAN), [Decimal("1.01"), None]),
        ("CAST(n AS STRING) || ':' || CAST(b AS STRING)", [{"n": 1, "b": True}], ["1:true"]),
        ("TRY_CAST(s AS INT)", s("12", "1.5", " 7 "), [12, None, 7]),
        ("5::BIGINT", [{}], [5]),
        # decimals
        ("1.10 * 3", [{}], [Decimal("3.30")]),
        ("1.0 / 3", [{}], [Decimal("0.333333")]),
        ("2.5 % 1", [{}], [Decimal("0.5")]),
        ("CAST(0.1234 / 1S AS STRING) || ' ' || CAST(0.1234 / 1Y AS STRING)", [{}], ["0.123400 0.12340000"]),
        # numbers
        ("n DIV 2", n(7, -7), [3, -3]),
        ("pmod(n, 3)", n(7, -7), [1, 2]),
        ("round(x, 2)", x(1.005, 2.675, -0.001), [1.01, 2.68, 0.0]),
        ("bround(x)", x(2.5, 3.5), [2.0, 4.0]),
        ("ceil(x) - floor(x)", x(2.5, 3.0, NAN), [1, 0, 0]),
        ("sign(x)", x(-3.0, NAN), [-1.0, NAN]),
        ("ln(x) IS NULL", x(0.0, 1.0), [True, False]),
        ("n & 6 = 2", n(3, 5), [True, False]),
        # what is decided by the left side cannot fail on the right
        ("x <> 0 AND 1 / x > 2", x(0.0, 0.25), [False, True]),
        ("x = 0 OR 1 / x > 2", x(0.0, 0.25), [True, True]),
        ("IF(x = 0, NULL, 1 / x)", x(0.0, 0.5), [None, 2.0]),
        # texts
        ("upper(s)", s("straße", "ŉ"), ["STRASSE", "\u02bcN"]),
        ("lower(s)", s("İ", "ΟΔΟΣ"), ["i̇", "οδος"]),
        ("reverse(s)", s("e\u0301a"), ["a\u0301e"]),
        ("substring(s, -3, 2) || '|' || left(s, 1) || '|' || right(s, 1)", s("hello"), ["ll|h|o"]),
        ("split_part(s, ',', -1)", s("a,b", "a"), ["b", "a"]),
        ("lpad(s, 3, 'ab')", s("x", "abcd"), ["abx", "abc"]),
        ("instr(s, 'ß')", s("häß", ""), [3, 0]),
        ("replace(s, 'a', 'xy')", s("banana"), ["bxynxynxy"]),
        ("s ILIKE 'É%'", s("école"), [True]),
        ("s LIKE '%!%' ESCAPE '!'", s("50%", "50"), [True, False]),
        ("s RLIKE 'a$'", s("a\n", "a\r\n", "a\n\n", "ba"), [True, True, False, True]),
        # dates
        ("day + 1", [{"day": date(2024, 2, 28)}], [date(2024, 2, 29)]),
        ("day + INTERVAL 1 MONTH", [{"day": date(2024, 1, 31)}], [date(2024, 2, 29)]),
        ("datediff(day, '2024-01-01')", [{"day": date(2024, 3, 1)}], [60]),
        ("dayofweek(day) * 10 + weekday(day)", [{"day": date(2024, 5, 5)}], [16]),
        ("date_trunc('WEEK', day) = TIMESTAMP '2024-04-29'", [{"day": date(2024, 5, 5)}], [True]),
        # names
        ("N > 1", n(2), [True]),
        ("`n` > 1", n(2), [True]),
        ("`Mixed Case` > 1", [{"Mixed Case": 2}], [True]),
        ("`mixed case` > 1", [{"Mixed Case": 2}], None),
    ],
)  # fmt: skip
def test_expression_on_the_current_event(text: str, rows: list[dict[str, Any]], expected: list[Any] | None) -> None:
    """What Spark answers, NULL included; None: Spark would find the column, but quoted names are exact here."""
    if expected is None:
        with pytest.raises(Exception, match="unknown column"):
            value(text, *rows)
    else:
        assert repr(value(text, *rows)) == repr(
            expected
        )  # which distinguishes 0.0 from -0.0, and finds NaN equal to itself


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at = TIMESTAMP '2024-07-01 12:00:00'", True),
        ("at >= DATE '2024-07-01'", True),
        ("at + INTERVAL 90 MINUTES > TIMESTAMP '2024-07-01 13:15:00'", True),
        ("at - INTERVAL '1' DAY < TIMESTAMP '2024-07-01 00:00:00'", True),
        ("day = DATE '2024-07-01'", True),
        ("day < at", True),
    ],
)
def test_times_with_a_zone_are_read_on_the_clock_of_that_zone(text: str, expected: bool) -> None:
    """12:00 in Madrid is 12:00 in the text too."""
    noon = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Madrid")).astimezone(UTC)
    assert value(text, {"at": noon, "day": date(2024, 7, 1)}) == [expected]


def test_equal_expressions_are_evaluated_once() -> None:
    scope, vectorized = Scope(SCHEMA), Vectorized(SCHEMA)
    numbers = [vectorized.add(scope.resolve(parse(text), text), text) for text in ("n > 1", "N>1", "n > 2")]
    assert (numbers, len(vectorized.texts)) == ([0, 0, 1], 2)


def test_a_failing_cast_is_an_error() -> None:
    """As in Spark's ANSI mode, which also refuses to divide by zero."""
    with pytest.raises(Exception, match="could not be computed"):
        value("CAST(s AS DOUBLE)", {"s": "one"})


def test_what_java_writes_differently_by_version_is_refused() -> None:
    with pytest.raises(ExpressionTypeError, match="CAST from DOUBLE to STRING is not supported"):
        value("CAST(x AS STRING)", {"x": 1.5})


def test_and_takes_booleans_only() -> None:
    """Numbers are not truth values in Spark, not even next to AND."""
    with pytest.raises(Exception, match="BOOLEAN"):
        BoundPattern.of_pattern(Pattern.begin("a").where("n > 1 AND n"), SCHEMA)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("n + 1", {"n": 2**63 - 1}),
        ("9223372036854775807 + 1 > n", {"n": 1}),
        ("`Mixed Case` + 1", {"Mixed Case": 2**31 - 1}),
        ("-n", {"n": -(2**63)}),
        ("n % 0", {"n": 1}),
        ("CAST(n AS TINYINT)", {"n": 128}),
        ("CAST(s AS DATE)", {"s": "2023-02-29"}),
        ("split_part(s, ',', n::INT)", {"s": "a", "n": 0}),
        ("make_date(2023, 2, n::INT)", {"n": 29}),
    ],
)
def test_what_fails_in_spark_fails_here(text: str, row: dict[str, Any]) -> None:
    with pytest.raises(InvalidEventError, match="could not be computed"):
        value(text, row)


def test_the_zone_of_the_session_is_in_the_metadata_of_the_schema() -> None:
    """Spark hands times over as those of UTC, whatever its zone."""
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))], metadata={TIME_ZONE: "Asia/Tokyo"})
    vectorized = Vectorized(schema)
    vectorized.add(Scope(schema).resolve(parse("hour(at)"), ""), "hour(at)")
    assert vectorized.evaluate(pa.table({"at": [datetime(2024, 7, 1, 20, tzinfo=UTC)]}, schema))[0].to_pylist() == [5]


def test_fields_elements_and_keys() -> None:
    """A name with a dot is a field, unless a stage has that name."""
    schema = pa.schema(
        [
            ("who", pa.struct([("Name", pa.string()), ("at", pa.struct([("n", pa.int32())]))])),
            ("tags", pa.list_(pa.string())),
        ]
    )
    row = pa.table({"who": [{"Name": "ann", "at": {"n": 3}}], "tags": [["x", "y"]]}, schema)
    for text, expected in {
        "who.name": "ann",
        "who.at.n + 1": 4,
        "tags[1]": "y",
        "size(tags)": 2,
        "get(tags, 5)": None,
    }.items():
        vectorized = Vectorized(schema)
        vectorized.add(Scope(schema).resolve(parse(text), text), text)
        assert vectorized.evaluate(row)[0].to_pylist() == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "n" + " + n" * 1000,
        "(" * 40 + "n" + " + 1)" * 40 + " = 1 AND " + " AND ".join(["n / x > 1"] * 1000),
        "CASE " * 20 + "n" + " WHEN 1 THEN n WHEN 2 THEN n WHEN 3 THEN n ELSE n END" * 20 + " = 1",
        "repeat(replace(s, 'a', '" + "b" * 1000 + "'), 1000) = ''",
        "lpad(s, 1000000000, 'x') = ''",
        "NOT " * 5000 + "b",
        "- " * 5000 + "n = 1",
        "s RLIKE '((a{1000}){1000}){1000}'",
        "s RLIKE '" + "(" * 300 + ")" * 300 + "'",
    ],
)
def test_what_would_take_too_much_is_refused(text: str) -> None:
    """Before an event comes."""
    with pytest.raises(ExpressionError):
        value(text, {"s": "a"})


def test_long_rows_of_conditions_have_room() -> None:
    text = " OR ".join(f"n = {number}" for number in range(1000))
    assert value(text, *n(999, 1000)) == [True, False]
    assert over(text.replace("n =", "LAST(a.n) ="), {"n": 99})
    rows = " AND ".join(f"({number} = 1 OR n / {number} < n)" for number in range(1, 100))
    assert value(rows, *n(7)) == [True]


def test_comments_are_no_part_of_an_expression() -> None:
    assert value("n > 1 /* or so */ -- really", {"n": 2}) == [True]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "n > (SELECT 1)",
        "read_csv('x')",
        "n > 1; DROP TABLE events",
        "getenv('HOME') = ''",
        "COUNT(*) OVER () > 1",
    ],
)
def test_nothing_but_expressions_over_events(text: str) -> None:
    """Texts arrive from outside: what is not known to be harmless is refused."""
    with pytest.raises(ExpressionSyntaxError):
        BoundPattern.of_pattern(Pattern.begin("a").where(text), SCHEMA)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n = 1;", "unexpected token"),
        ("n = 1 ; ", "unexpected token"),
        ("timestampadd('DAY', 1, at) > at", "the unit of timestampadd must be a word without quotes"),
        ("datediff('DAY', at, at) = 1", "the unit of datediff must be a word without quotes"),
        ("CAST(s AS INT FORMAT 'x') = 1", "FORMAT is not supported here"),
        ("TRY_CAST(s AS INT FORMAT 'x') = 1", "FORMAT is not supported here"),
        ("CAST(s AS DATE FORMAT 'x') IS NULL", "FORMAT is not supported here"),
    ],
)
def test_what_spark_does_not_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionSyntaxError) as error:
        parse(text)
    assert error.value.message == message


@pytest.mark.parametrize("text", ["get(items, l) = 1", "unix_date(at) = 1", "unix_date(ntz) = 1"])
def test_types_that_spark_does_not_take_are_refused(text: str) -> None:
    schema = pa.schema(
        {"items": pa.list_(pa.int64()), "l": pa.int64(), "at": pa.timestamp("us", "UTC"), "ntz": pa.timestamp("us")}
    )
    with pytest.raises(ExpressionTypeError):
        BoundPattern.of_pattern(Pattern.begin("a").where(text), schema)


@pytest.mark.parametrize("items", [None, [1, 2]])
def test_the_largest_index_is_outside(items: list[int] | None) -> None:
    schema = pa.schema({"items": pa.list_(pa.int64()), "i": pa.int32()})
    events = pa.Table.from_pylist([{"items": items, "i": 2**31 - 1}], schema)
    scope, vectorized, text = Scope(schema), Vectorized(schema), "get(items, i)"
    vectorized.add(scope.resolve(parse(text), text), text)
    assert vectorized.evaluate(events)[0].to_pylist() == [None]


def test_conjuncts() -> None:
    """What AND joins at the top, however it is bracketed."""
    assert [part.sql() for part in conjuncts(parse("(n > 1 AND (x > 2 AND b)) AND (n < 3 OR b)"))] == [
        "n > 1",
        "x > 2",
        "b",
        "n < 3 OR b",
    ]


# --- over the events of a stage ---


def over(text: str, *accepted: dict[str, Any], now: dict[str, Any] | None = None) -> bool:
    """Does *text* hold for the event *now*, once stage ``a`` has accepted the others, which went through bytes?"""
    pattern = Pattern.begin("a").where("n < 100").times(max(len(accepted), 1)).consecutive().next("z").where(text)
    schema = SCHEMA.append(pa.field("ts", pa.int64()))
    operator = CepOperator(pattern, schema, time="ts", outputs={"m": OutputSpec(OutputKind.MATCHES)})
    store = MemoryStore()
    before = [row | {"n": row.get("n", 0), "ts": ts} for ts, row in enumerate(accepted or ({},))]
    after = [(now or {}) | {"n": (now or {}).get("n", 100), "ts": len(before)}]
    operator.process(store, [Arrival(EVENTS, operator.prepare(EVENTS, pa.Table.from_pylist(before, schema)))], Now())
    operator.process(store, [], Now((len(before) - 1) * 1000))
    operator.process(
        store,
        [Arrival(EVENTS, operator.prepare(EVENTS, pa.Table.from_pylist(after, schema)))],
        Now((len(before) - 1) * 1000),
    )
    result = operator.process(store, [], Now(END_OF_TIME))
    return "m" in result.outputs and result.outputs["m"].num_rows == 1


NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
LATER = datetime(2024, 7, 1, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a accepted (n, x) = (1, 1.5), (2, NULL), (3, 4.0); the event has n = 100, x = 3.0
        ("FIRST(a.n) = 1 AND LAST(a.n) = 3 AND a.n = 3", True),
        ("LAST(a.n) = 2", False),
        ("COUNT(a.*) = 3 AND COUNT(a.x) = 2", True),
        ("SUM(a.n) = 6 AND SUM(a.x) = 5.5", True),
        ("AVG(a.n) = 2 AND AVG(a.x) = 2.75", True),
        ("MIN(a.x) = 1.5 AND MAX(a.x) = 4", True),
        ("SUM(a.n * a.n) = 14", True),
        ("SUM(a.n * 2 + 1) = 15", True),
        ("MAX(CASE WHEN a.n = 2 THEN 10 ELSE a.n END) = 10", True),
        ("COUNT(z.*) = 0 AND LAST(z.n) IS NULL AND SUM(z.n) IS NULL", True),
        ("x BETWEEN MIN(a.x) AND MAX(a.x)", True),
        ("x NOT BETWEEN MIN(a.x) AND MAX(a.x)", False),
        ("LAST(a.n) IN (1, 3)", True),
        ("LAST(a.n) NOT IN (1, 3)", False),
        ("LAST(z.n) IN (1)", False),
        ("NOT (LAST(z.n) = 1)", False),
        ("LAST(z.n) = 1 OR n = 100", True),
        ("COALESCE(LAST(z.n), LAST(a.n), 7) = 3", True),
        ("COALESCE(LAST(z.n), 7.5) = 7.5", True),
        ("CASE WHEN LAST(a.n) > 2 THEN x > 1 ELSE FALSE END", True),
        ("CASE WHEN LAST(a.n) > 5 THEN TRUE END", False),
        ("IF(LAST(a.n) > 5, 1, 2.5) = 2.5", True),
        ("CASE WHEN LAST(a.n) > 2 THEN 'big' ELSE 'small' END = 'big'", True),
        ("CASE WHEN LAST(a.n) > 2 THEN 'z' ELSE 'a' END < 'b'", False),
        ("LAST(a.n) / 2 = 1.5", True),
        ("try_divide(1, LAST(a.n) - 3) IS NULL", True),
        ("abs(FIRST(a.n) - n) = 99 AND -LAST(a.n) = -3", True),
        ("n + LAST(a.n) * 2 - 6 = 100", True),
        ("x > LAST(a.n) - 0.5", True),
        ("LAST(a.n) >= 3 AND LAST(a.n) <= 3 AND LAST(a.n) <> 4 AND NOT LAST(a.n) < 3", True),
        ("LAST(a.n) = NULL", False),
        # computed for each event in advance
        ("LAST(a.n) % 2 = 1 AND sqrt(FIRST(a.x)) < 1.3", True),
        ("CAST(LAST(a.n) AS STRING) = '3'", True),
        ("greatest(FIRST(a.n), LAST(a.n), 2) = 3 AND least(LAST(z.n), 4) = 4", True),
        ("LAST(z.n) <=> NULL AND NOT LAST(a.n) <=> NULL", True),
        ("(LAST(a.n) = 3) IS TRUE AND (LAST(z.n) = 3) IS NOT TRUE", True),
        ("CASE LAST(a.n) WHEN 1 THEN 'x' WHEN 3 THEN 'y' END = 'y'", True),
        ("nullif(LAST(a.n), 3) IS NULL AND nvl2(LAST(a.n), 1, 2) = 1", True),
        # what does not matter cannot fail
        ("LAST(a.n) = 3 OR 1 / (LAST(a.n) - 3) > 0", True),
        ("CASE WHEN LAST(a.n) <> 3 THEN 1 / (LAST(a.n) - 3) ELSE 0 END = 0", True),
        ("LAST(a.n) > 2.5 AND LAST(a.n) - 0.5 = 2.5", True),
        ("TRUE AND LAST(a.n) = 3", True),
        # operations that the machine has for other types too
        ("-LAST(CAST(a.x AS FLOAT)) = x - 7 AND abs(-LAST(CAST(a.x AS FLOAT))) = x + 1", True),
        ("FIRST(a.n) BETWEEN 1 AND LAST(a.n) AND nvl2(x, LAST(a.n), 0) = 3", True),
        ("greatest(LAST(z.n), LAST(a.n), FIRST(a.n)) = 3 AND least(LAST(a.n), NULL, n) = 3", True),
    ],
)
def test_condition_over_a_stage(text: str, expected: bool) -> None:
    """Aggregates range over what the stage has accepted so far; nulls are not counted."""
    accepted: list[dict[str, Any]] = [{"n": 1, "x": 1.5}, {"n": 2}, {"n": 3, "x": 4.0}]
    assert over(text, *accepted, now={"x": 3.0}) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at > LAST(a.at)", True),
        ("at - LAST(a.at) < INTERVAL 61 SECONDS", True),
        ("at - LAST(a.at) < INTERVAL '1' MINUTE", False),
        ("at - LAST(a.at) = INTERVAL '60' SECOND", True),
        ("at > LAST(a.at) + INTERVAL 59 SECONDS", True),
        ("LAST(a.at) + INTERVAL 1 HOUR - INTERVAL 1 HOUR < at", True),
        ("LAST(a.at) = TIMESTAMP '2024-07-01 14:00:00'", True),
        ("LAST(a.at) < at - INTERVAL 59 SECONDS AND LAST(a.at) = at - INTERVAL 60 SECONDS", True),
        ("day > LAST(a.day)", True),
        ("LAST(a.s) = s", False),
        ("LAST(a.s) < s AND LAST(a.s) = 'a''b'", True),
        ("MAX(a.s) = 'a''b' AND COUNT(a.s) = 1", True),
        ("LAST(a.b) = TRUE AND b", True),
        ("LAST(a.b)", True),
        ("b AND NOT LAST(a.b)", False),
        ("upper(s) = upper('b') AND LAST(a.s) <> upper(s)", True),
        ("concat(LAST(a.s), 'c3') = 'a''bc3' AND LAST(a.s) <> 'c99'", True),
    ],
)
def test_condition_over_a_stage_on_times_and_texts(text: str, expected: bool) -> None:
    """Times keep their zone: noon UTC is 14:00 in Madrid, where the column is."""
    before = {"at": NOON, "s": "a'b", "b": True, "day": date(2024, 7, 1)}
    assert over(text, before, now={"at": LATER, "s": "b", "b": True, "day": date(2024, 7, 2)}) is expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("day + n > LAST(a.day)", "a number of days cannot be a BIGINT"),
        ("CASE WHEN NULL THEN LAST(a.b) END", "CASE needs BOOLEAN, not NULL"),
    ],
)
def test_what_would_differ_from_spark_over_a_stage_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionTypeError, match=problem):
        over(text, {"n": 1})


def test_nan_over_a_stage() -> None:
    """NaN is larger than any number and equal to itself, also here."""
    assert over(
        "LAST(a.x) > 1e308 AND LAST(a.x) = x AND MIN(a.x) = 1 AND MAX(a.x) = x", {"x": 1.0}, {"x": NAN}, now={"x": NAN}
    )


def test_sums_of_doubles_add_up_from_the_first_event() -> None:
    """(1e16 + 1) + -1e16 is 0 in doubles; the other way round it would be 1."""
    assert over("SUM(a.x) = 0", {"x": 1e16}, {"x": 1.0}, {"x": -1e16})


def test_whole_numbers_stay_exact() -> None:
    """2**53 + 1 has no double."""
    assert over("n - LAST(a.n) = 9007199254740993", {"n": 0}, now={"n": 2**53 + 1})


def test_many_conditions_have_room() -> None:
    """More conditions than bits in a word: each has a bit of its own."""
    pattern = Pattern.begin("s0").where("n = 0")
    for number in range(1, 70):
        pattern = pattern.next(f"s{number}").where(f"n = {number}")
    bound = BoundPattern.of_pattern(pattern, SCHEMA)
    words = np.array([column.to_pylist() for column in bound.prepare(pa.Table.from_pylist(n(*range(70)), SCHEMA))])
    assert bound.words == 2
    assert {(word, bits.bit_count()) for row in words.T for word, bits in enumerate(row.tolist()) if bits} == {
        (0, 1),
        (1, 1),
    }
    assert len(np.unique(words.T, axis=0)) == 70
