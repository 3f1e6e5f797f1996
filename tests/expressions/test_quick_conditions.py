"""Conditions that are read without the parser have the values that the parser and the translation give."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from asterism.errors import ExpressionError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.operators import conjunction
from asterism.expressions.templates import Resolved, quick_condition
from asterism.expressions.values import Sql

SCHEMA = pa.schema([("a", pa.string()), ("b c", pa.string()), ("n", pa.int64()), ("or", pa.large_string())])
LITERALS = ["x", "X' OR a", r"\\", r"it\'s", "ü", " AND ", ")", ", FALSE)", "", "%_", "-- x", "/*", "`a`"]


def translated(text: str) -> Sql:
    """As a pattern binds a condition."""
    expressions, scope = Vectorized(SCHEMA), Scope(SCHEMA)
    values = [expressions.translate(part, text) for part in Resolved.of(scope, text).pure]
    return values[0] if len(values) == 1 else conjunction(values)


def leaf(rng: random.Random) -> str:
    column = rng.choice(["`a`", "`or`", "`n`" if rng.random() < 0.02 else "`a`"])
    text = rng.choice([f"CAST({column} AS STRING)", f"LOWER(CAST({column} AS STRING))"])
    literal, other = (f"'{rng.choice(LITERALS)}'" for _ in range(2))
    return rng.choice(
        [
            f"{rng.choice(['CONTAINS', 'STARTSWITH', 'ENDSWITH'])}({text}, {literal})",
            f"{text} = {literal}",
            f"{text} IN ({literal}, {other}, 'y')",
            f"{column} IS NULL",
            f"{column} IS NOT NULL",
        ]
    )


def tree(rng: random.Random, depth: int) -> str:
    kind = rng.choice(["leaf", "and", "or", "not", "paren"]) if depth else "leaf"
    if kind == "leaf":
        return leaf(rng)
    if kind == "paren":
        return f"({tree(rng, depth - 1)})"
    if kind == "not":
        return f"NOT COALESCE({several(rng, depth - 1)}, FALSE)"
    return f"({several(rng, depth - 1)})"


def several(rng: random.Random, depth: int) -> str:
    return rng.choice([" AND ", " OR "]).join(tree(rng, depth) for _ in range(rng.randint(1, 3)))


def test_random_conditions() -> None:
    rng = random.Random(3)
    quick = 0
    for _ in range(150):
        text = rng.choice([several, tree])(rng, 3)
        value = quick_condition(Scope(SCHEMA), "UTC", text)
        try:
            expected = translated(text)
        except ExpressionError:
            assert value is None, text
            continue
        if value is not None:
            quick += 1
            assert value == expected, text
            assert not value.raises
    assert quick > 100


@pytest.mark.parametrize(
    "text",
    [
        "CONTAINS(`a`, 'x')",
        "CONTAINS(CAST(`A` AS STRING), 'x')",
        "CONTAINS(CAST(`b c` AS STRING), 'x')",
        "CONTAINS(CAST(`nosuch` AS STRING), 'x')",
        "CONTAINS(CAST(`n` AS STRING), 'x')",
        "CONTAINS(CAST(`a` AS STRING), '${x}')",
        "CONTAINS(CAST(`a` AS STRING), '\\u0024')",
        "CONTAINS(CAST(`a` AS STRING), 'x') ",
        "CONTAINS(CAST(`a` AS STRING), 'x') AND `a` IS NULL OR `a` IS NULL",
        "CONTAINS(CAST(`a` AS STRING), 'x' 'y')",
        "CAST(`a` AS STRING) LIKE 'x'",
        "(`a` IS NULL",
        "`a` IS NULL)",
        "(" * 30 + "`a` IS NULL" + ")" * 30,
        " OR ".join(["`a` IS NULL"] * 2_000),
        "",
    ],
)
def test_other_conditions_are_left_to_the_parser(text: str) -> None:
    assert quick_condition(Scope(SCHEMA), "UTC", text) is None
