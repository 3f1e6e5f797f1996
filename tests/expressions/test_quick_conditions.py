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
from asterism.matching.binding import BoundPattern
from asterism.patterns.json_writing import graph_of
from asterism.patterns.pattern import Pattern
from asterism.rules.checking.validation import check_processor
from asterism.text.strict_json import nowhere
from asterism.trace import trace

SCHEMA = pa.schema([("a", pa.string()), ("b c", pa.string()), ("n", pa.int64()), ("or", pa.large_string())])
LITERALS = [
    "x",
    "X' OR a",
    r"\\",
    r"it\'s",
    "ü",
    " AND ",
    ")",
    ", FALSE)",
    "",
    "%_",
    "-- x",
    "/*",
    "`a`",
    "$",
    "$x$",
    "$ {x}",
]


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
            f"{text} LIKE {literal}",
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
        "CAST(`a` AS STRING) LIKE 'x' ESCAPE '!'",
        "CAST(`a` AS STRING) NOT LIKE 'x'",
        "CAST(`a` AS STRING) RLIKE 'x'",
        "CONTAINS(CAST(`a` AS STRING), '$${x}')",
        "(`a` IS NULL",
        "`a` IS NULL)",
        "(" * 30 + "`a` IS NULL" + ")" * 30,
        " OR ".join(["`a` IS NULL"] * 8_000),
        "",
    ],
)
def test_other_conditions_are_left_to_the_parser(text: str) -> None:
    assert quick_condition(Scope(SCHEMA), "UTC", text) is None


def test_a_long_condition_on_texts() -> None:
    """The parser does not read it, so a name that does not exist is found here."""
    text = " OR ".join(f"CONTAINS(LOWER(CAST(`a` AS STRING)), 'v{number}')" for number in range(1_700))
    table = pa.table([pa.array(["x V1699 y", "x", None])], pa.schema([("a", pa.string())]))
    bound = BoundPattern.of_pattern(Pattern.begin("x").where(text), table.schema)
    (values,) = bound.vectorized.evaluate(table)
    assert [bool(value) for value in values.to_pylist()] == [True, False, False]
    assert bound.texts_of_bits(str) == [text]
    events = [{"t": number, "a": value} for number, value in enumerate(table["a"].to_pylist())]
    assert [match.took for match in trace(Pattern.begin("x").where(text), events, time="t").matches] == [(("x", (1,)),)]
    item = {"id": "long", "version": 1, "pattern": graph_of(Pattern.begin("x").where(text))}
    assert check_processor(item, nowhere).problems == []
    assert check_processor(item, nowhere, table.schema).problems == []
    (problem,) = check_processor(item, nowhere, pa.schema([("b", pa.string())])).problems
    assert "unknown column 'a'" in problem.message
    for other in (text + " OR x > 1", text * 2):
        item = {"id": "long", "version": 1, "pattern": graph_of(Pattern.begin("x").where(other))}
        (problem,) = check_processor(item, nowhere).problems
        assert "is too long (limit 20,000)" in problem.message
