"""The index finds the conditions that their evaluation finds, over columns of every type."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.columns.groups import mask_of
from asterism.errors import ExpressionError
from asterism.expressions.evaluation import Vectorized, tried_before
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.ranges import Indexable, RangeTests
from asterism.rules.binding.condition_index import NO_REST, ConditionIndex
from tests.expressions.sql_expressions import table

NUMBERS = (
    "0", "1", "2", "-3", "7", "127", "128", "300", "-32768", "42", "2147483647", "2147483648", "-9223372036854775808",
    "9223372036854775807", "9223372036854775808", "5L", "3S", "1Y", "0.5", "1.25", ".1", "-2.50", "100.", "3.00", "99999999.99",
    "0.3333", "0.00001", "2.5D", "1e3", "0.1D", "-0.0D", "9007199254740993", "9007199254740993.0D", "1e300", "1.5F", "0.1F",
    "12345678901234567890", "NULL", "'7'", "CAST('NaN' AS DOUBLE)",
)  # fmt: skip
WORDS = ("''", "'a'", "'b'", "'abc'", "'x'", "'ABC'", "'ä'", "'2024'", "'\u2028'", "'zzz'", "NULL")
DAYS = ("DATE'2024-02-29'", "DATE'1970-01-01'", "'1582-10-15'", "DATE'9999-12-31'")
LITERALS = {
    **dict.fromkeys("yhilfdempw", NUMBERS),
    **dict.fromkeys("st", WORDS),
    **dict.fromkeys(("day", "d2"), DAYS),
    "b": ("TRUE", "FALSE", "NULL", "'true'"),
    "at": (
        "TIMESTAMP'1970-01-01 00:00:00'",
        "'2024-03-31 02:30:00'",
        "TIMESTAMP'2024-10-27 00:30:00'",
        "DATE'2024-02-29'",
    ),
    "nt": ("TIMESTAMP_NTZ'1970-01-01 00:00:00'", "'2024-03-31 02:30:00'", "DATE'2024-02-29'"),
}


def condition(rng: random.Random, depth: int) -> str:
    if depth and rng.random() < 0.6:
        parts = [condition(rng, depth - 1) for _ in range(rng.randint(2, 3))]
        joined = f"({rng.choice([' AND ', ' AND ', ' OR ']).join(parts)})"
        return f"NOT {joined}" if rng.random() < 0.2 else joined
    name = rng.choice(list(LITERALS))
    a, b, c = (rng.choice(LITERALS[name]) for _ in range(3))
    operator = rng.choice(["=", "=", "<>", "<", "<=", ">", ">=", "<=>"])
    return rng.choice(
        [
            f"{name} {operator} {a}",
            f"{name} {operator} {a}",
            f"{name} {operator} {a}",
            f"{a} {operator} {name}",
            f"{name} IN ({a}, {b}, {c})",
            f"{name} NOT IN ({a}, {b})",
            f"{name} BETWEEN {a} AND {b}",
            f"{name} NOT BETWEEN {a} AND {b}",
            f"{name} IS NOT NULL",
            f"({name} = {a}) IS TRUE",
            f"({name} < {a}) IS FALSE",
            rng.choice(["b", "NOT b", "length(s) > 2", "i + 1 > 2", "s = t", "d >= e", "upper(s) = 'A'", "i IS NULL"]),
        ]
    )


def bound(schema: pa.Schema, texts: list[str]) -> tuple[Vectorized, list[Indexable | None]]:
    """The conditions that are accepted."""
    scope, vectorized = Scope(schema), Vectorized(schema)
    with tried_before():
        for text in texts:
            with contextlib.suppress(ExpressionError):
                vectorized.add(scope.resolve(parse(text), text), text)
    return vectorized, vectorized.indexable


def check(events: pa.Table, texts: list[str]) -> float:
    """Compare the index and the tests one by one with the evaluation. Returns the share of conditions that are indexed."""
    vectorized, found_ranges = bound(events.schema, texts)
    parts = {number: one for number, one in enumerate(found_ranges) if one is not None}
    indexed = list(parts)
    rests, masks, places = Vectorized(events.schema), [np.zeros(events.num_rows, np.bool_)], []
    for number, one in parts.items():
        places.append(NO_REST if one.rest is None else 1 + rests.adopt_rest(vectorized, number))
    masks += [mask_of(values) for values in rests.evaluate(events)]
    index = ConditionIndex(events.schema, [one.ranges for one in parts.values()], places)
    read = [events.column(number) for number in index.columns]
    at, met = index.met(read, events.num_rows, np.array(masks))
    found = np.zeros((events.num_rows, len(indexed)), np.bool_)
    found[np.repeat(np.arange(events.num_rows), np.diff(at)), met] = True
    assert len(met) == found.sum()
    tested = RangeTests(events.schema, [one.ranges for one in parts.values()]).masks(events)
    for place, number in enumerate(indexed):
        expected = mask_of(vectorized.evaluate_some(events, [number])[number]).tolist()
        assert found[:, place].tolist() == expected, (vectorized.sources[number], parts[number])
        of_rest = np.array(masks)[max(places[place], 0)] if places[place] != NO_REST else True
        assert (tested[place] & of_rest).tolist() == expected, (vectorized.sources[number], parts[number])
    assert index.meets_any(read, events.num_rows, np.array(masks)).tolist() == found.any(axis=1).tolist()
    return sum(one.rest is None for one in parts.values()) / max(len(found_ranges), 1)


def test_of_a_conjunction_only_the_rest_is_evaluated() -> None:
    schema = table(random.Random(1), "UTC").schema
    rest = "d >= e"
    texts = [f"i = {n} AND {rest} AND (s = 'a' OR s = 'b')" for n in range(3)] + [f"{rest} AND i > 5", rest]
    parts = [*bound(schema, texts)[1], *bound(schema, ["length(s) > 2 AND upper(s) = 'A'"])[1]]
    assert {one.rest.text for one in parts[:4] if one is not None and one.rest is not None} == {
        Vectorized(schema).translate(Scope(schema).resolve(parse(rest), rest), rest).text
    }
    assert [None if one is None else len(one.ranges) for one in parts] == [2, 2, 2, 1, None, None]
    # A condition that can fail is evaluated as a whole, because it fails on the events where Spark evaluates its rest.
    assert bound(schema, ["i = 1 AND 10 / l > 2"])[1] == [None]


@settings(max_examples=max(1, settings().max_examples // 3))
@given(st.integers(0, 2**32), st.sampled_from(["UTC", "Europe/Madrid"]))
def test_random_conditions(seed: int, zone: str) -> None:
    rng = random.Random(seed)
    texts = [condition(rng, rng.randint(0, 2)) for _ in range(60)]
    assert check(table(rng, zone), texts) > 0.2


@pytest.mark.parametrize(
    "types",
    [
        {
            "s": pa.dictionary(pa.int32(), pa.string()),
            "t": pa.large_string(),
            "l": pa.int8(),
            "at": pa.timestamp("s", "UTC"),
        },
        {
            "s": pa.string_view(),
            "i": pa.uint8(),
            "h": pa.uint16(),
            "y": pa.uint32(),
            "day": pa.date64(),
            "f": pa.float16(),
        },
        {"i": pa.uint64(), "nt": pa.timestamp("ms"), "m": pa.decimal128(18, 2)},
    ],
    ids=lambda types: " ".join(map(str, types.values())),
)
def test_other_arrow_types(types: dict[str, pa.DataType]) -> None:
    rng = random.Random(1)
    events = table(rng, "UTC")
    for name, kind in types.items():
        column = events.column(name)
        if pa.types.is_integer(kind):
            values = [None if value is None else abs(value) % 100 for value in column.to_pylist()]
            column = pa.chunked_array([pa.array(values, kind)])
        elif pa.types.is_dictionary(kind):
            column = column.dictionary_encode()
        events = events.set_column(events.column_names.index(name), pa.field(name, kind), column.cast(kind, safe=False))
    events = events.replace_schema_metadata(table(rng, "UTC").schema.metadata)
    texts = [condition(rng, rng.randint(0, 2)) for _ in range(200)]
    assert check(events, texts) > 0.2
    assert check(events.slice(3, 7), texts) > 0.2
    assert check(events.slice(0, 0), texts) > 0.2


def test_what_is_indexed() -> None:
    """Comparisons of a column with a literal, and what AND, OR and NOT make of them."""
    schema = pa.schema([("kind", pa.string()), ("amount", pa.float64()), ("count", pa.int32()), ("flag", pa.bool_())])
    indexed = [
        "kind = 'buy' AND amount >= 10",
        "kind IN ('buy', 'sell') AND count BETWEEN 1 AND 5",
        "amount > 1.5D OR NOT (kind = 'x')",
        "flag AND count <> 3",
        "5 < count AND 7.5 >= count",
        "kind IS NOT NULL",
    ]
    other = [
        "amount + 1 > 2",
        "kind = upper('buy')",
        "kind LIKE 'b%'",
        "amount > count",
        "kind IS NULL",
        "kind <=> NULL",
    ]
    _, ranges = bound(schema, indexed + other)
    assert [one is not None for one in ranges] == [True] * len(indexed) + [False] * len(other)


def test_conditions_that_nothing_satisfies() -> None:
    events = pa.table({"i": pa.array([1, 2, None], pa.int32())})
    assert check(events, ["i > 5 AND i < 3", "i = 1.5", "i > 99999999999999999999"]) == 1
