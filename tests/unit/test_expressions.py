"""SQL over events: on the current event for a whole batch, and over the events of a stage, event by event."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from asterism.cep import EVENTS, CepOperator
from asterism.errors import ExpressionSyntaxError
from asterism.expressions import Scope, Vectorized, conjuncts, parse
from asterism.matcher import Matcher
from asterism.operator import END_OF_TIME, Arrival, Now
from asterism.outputs import OutputKind, OutputSpec
from asterism.pattern import Pattern
from asterism.state import MemoryStore

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
        # casts as in Spark: towards zero
        ("CAST(s AS DOUBLE)", s("1.5"), [1.5]),
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
        assert value(text, *rows) == expected


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


@pytest.mark.parametrize("text", ["CAST(x AS INT)", "CAST(n AS STRING)", "TRY_CAST(s AS DOUBLE)"])
def test_casts_that_round_or_write_numbers_differently_are_refused(text: str) -> None:
    with pytest.raises(Exception, match="is not supported"):
        value(text, {"x": 1.5})


def test_and_takes_booleans_only() -> None:
    """Numbers are not truth values in Spark, not even next to AND."""
    with pytest.raises(Exception, match="Boolean"):
        Matcher(Pattern.begin("a").where("n > 1 AND n"), SCHEMA)


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
        Matcher(Pattern.begin("a").where(text), SCHEMA)


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
        ("TRUE AND LAST(a.n) = 3", True),
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
    ],
)
def test_condition_over_a_stage_on_times_and_texts(text: str, expected: bool) -> None:
    """Times keep their zone: noon UTC is 14:00 in Madrid, where the column is."""
    before = {"at": NOON, "s": "a'b", "b": True, "day": date(2024, 7, 1)}
    assert over(text, before, now={"at": LATER, "s": "b", "b": True, "day": date(2024, 7, 2)}) is expected


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
    matcher = Matcher(pattern, SCHEMA)
    words = np.array([column.to_pylist() for column in matcher.prepare(pa.Table.from_pylist(n(*range(70)), SCHEMA))])
    assert matcher.words == 2
    assert {(word, bits.bit_count()) for row in words.T for word, bits in enumerate(row.tolist()) if bits} == {
        (0, 1),
        (1, 1),
    }
    assert len(np.unique(words.T, axis=0)) == 70
