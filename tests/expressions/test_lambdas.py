"""Lambdas: what they see, and the bounds of what they make. test_sql_property.py compares their results with Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.errors import ExpressionError, InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse, sql_of
from asterism.testing import match

EVENTS = pa.table({"x": [5], "s": ["ab"], "xs": [[3, 1, 2]], "names": [["b", "c", "a"]], "nested": [[[1, 2], [3]]]})


def value(text: str, events: pa.Table = EVENTS) -> object:
    vectorized = Vectorized(events.schema)
    vectorized.add(Scope(events.schema).resolve(parse(text), text), text)
    return vectorized.evaluate(events)[0][0].as_py()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("transform(xs, X -> x * 2)", [6, 2, 4]),  # a parameter hides a column, in any case
        ("transform(xs, y -> y + x)", [8, 6, 7]),
        ("transform(nested, x -> transform(x, x -> -x))", [[-1, -2], [-3]]),
        ("transform(nested, y -> size(filter(y, z -> z < x AND size(y) > 1)))", [2, 0]),
        ("transform(xs, y -> 'a')", ["a", "a", "a"]),
        ("transform(xs, (y, i) -> 'a')", ["a", "a", "a"]),
        ("aggregate(names, '', (last, y) -> greatest(last, y))", "c"),
        ("exists(xs, y -> 1 / (y - 2) > 0)", True),  # what follows the first TRUE is not computed
    ],
)
def test_names_in_lambdas(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("aggregate(xs, 'a', (t, y) -> concat(t, t))", "could grow with each element"),
        ("aggregate(xs, array(1L), (t, y) -> array_append(t, y))", "could grow with each element"),
        ("aggregate(xs, s, (t, y) -> CASE WHEN y > 1 THEN t || t ELSE t END)", "could grow with each element"),
        ("aggregate(xs, s, (t, y) -> aggregate(xs, t, (u, z) -> u || u))", "could grow with each element"),
        ("aggregate(xs, s, (t, y) -> aggregate(xs, '', (u, z) -> t || t))", "not available in a lambda inside"),
        ("aggregate(xs, s, (t, y) -> aggregate(xs, t, (u, z) -> s) || t)", "could grow with each element"),
        ("transform(sequence(1, 10000), y -> sequence(1, 10000))", "more than 1,000,000 bytes"),
        (
            "transform(sequence(1, 10000), y -> aggregate(sequence(1, 10000), 0, (t, z) -> t))",
            "more than 1,000,000 bytes",
        ),
        ("transform(sequence(1, 10000), y -> s)", "100 times as large"),
        ("transform(xs, a -> transform(xs, b -> transform(xs, c -> a)))", "nested too deeply"),
        ("transform(xs, (y, y) -> y)", "must be different names"),
        ("transform(xs, y -> y -> y)", "not supported"),
        ("transform(xs, y)", "must be a lambda"),
        ("abs(y -> y)", "must be no lambda"),
        ("zip_with(xs, xs, y -> y)", "a lambda with 2 parameters"),
    ],
)
def test_lambdas_that_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        value(text)


def test_an_event_for_which_lambdas_make_too_much_is_an_error() -> None:
    """A pair of each element with each: fine for a thousand, not for a hundred thousand."""
    text = "size(transform(xs, y -> size(filter(xs, z -> z = y))))"
    assert value(text, pa.table({"xs": [list(range(1000))]})) == 1000
    with pytest.raises(InvalidEventError, match="it can create"):
        value(text, pa.table({"xs": [list(range(100_000))]}))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("exists(xs, (Y) -> y > x)", "EXISTS(xs, Y -> y > x)"),
        ("transform(xs, (y, i) -> y + i)", "TRANSFORM(xs, (y, i) -> y + i)"),
        ("struct(x, s AS `T t`, x + 1)", "NAMED_STRUCT('x', x, 'T t', s, 'col3', x + 1)"),
        ("arrays_zip(xs, names)", "ARRAYS_ZIP(xs, names)"),
        ("x >>> 2 + 1 > x >> 1", "SHIFTRIGHTUNSIGNED(x, 2 + 1) > SHIFTRIGHT(x, 1)"),
    ],
)
def test_conditions_are_written_for_spark(text: str, written: str) -> None:
    """Spark evaluates some, in filters."""
    tree = parse(text)
    assert sql_of(tree) == written
    resolved = sql_of(Scope(EVENTS.schema).resolve(tree, text))
    assert resolved.replace("`", "") == written.replace("`", "")


@pytest.mark.parametrize(
    ("condition", "events", "expected"),
    [
        ("exists(array(value), x -> x > LAST(a.value))", "a3 b2 b4", ["a3 b4"]),
        ("transform(array(LAST(a.value), 7L), x -> x + value)[0] = 5", "a3 b4 b2", ["a3 b2"]),
        ("struct(LAST(a.value) AS n).n + value = 8", "a3 b2 b5", ["a3 b5"]),
    ],
)
def test_lambdas_in_conditions_over_earlier_events(condition: str, events: str, expected: list[str]) -> None:
    pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where(f"kind = 'b' AND {condition}")
    assert match(pattern, events).matches == expected
