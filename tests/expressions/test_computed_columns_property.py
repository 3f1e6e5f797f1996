"""Whichever parts of an expression are computed columns, the expression means the same."""

from __future__ import annotations

import random
import re
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from asterism.errors import ExpressionError
from asterism.expressions.computed_columns import PREFIX, PartFinder
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse, tokenize
from asterism.expressions.structure import structure
from tests.expressions.sql_expressions import Expressions, arrow_schema

SCHEMA = arrow_schema("UTC")
_NAMES = "|".join(name for name in SCHEMA.names)
_COLUMN = re.compile(rf"'(?:[^'\\]|\\.|'')*'|(?<![\w.'])({_NAMES})\b(?!\s*\()", re.DOTALL)
STAGES = ("stage", "other")


def random_condition(rng: random.Random) -> str:
    """A condition over an event and stages, with spaces and comments between some tokens."""
    expressions = Expressions(rng)

    def of_stage(text: str) -> str:
        return _COLUMN.sub(lambda match: f"stage.{match[1]}" if match[1] else match[0], text)

    def aggregate() -> str:
        function = rng.choice(["LAST", "FIRST", "MIN", "SUM", "PREV"])
        argument = expressions.number(rng.choice([0, 1, 2]))
        return f"{function}({argument if function == 'PREV' else of_stage(argument)})"

    def some() -> str:
        if rng.random() < 0.4:
            return expressions.truth(rng.choice([0, 1, 2]))
        compared = rng.choice(["{} > {}", "{} = {} + 1", "{} BETWEEN {} AND 3", "{} IN (1, {})", "NOT {} <= - {}"])
        if rng.random() < 0.2:
            return f"CASE WHEN {some()} THEN {some()} ELSE {some()} END"
        return compared.format(*rng.sample([aggregate(), expressions.number(rng.choice([0, 1, 2]))], 2))

    parts = [some()]
    for _ in range(rng.randrange(4)):
        joined = f" {rng.choice(['AND', 'OR'])} ".join([parts.pop(), some()])
        parts.append(rng.choice([joined, joined, f"({joined})", f"NOT ({joined})"]))
    return with_gaps(rng, parts[0])


def with_gaps(rng: random.Random, text: str) -> str:
    written, end = "", 0
    for token in tokenize(text):
        if token.start > end:
            written += rng.choice([" ", " ", " ", "\n", " /* it's */ ", " -- (\n"])
        if token.start >= end:
            written += text[token.start : token.end + 1]
            end = token.end + 1
    return written


def canonical(node: Any) -> str:
    """A tree without parentheses, in which the order of the operands of AND and OR does not matter."""
    if isinstance(node, list):
        return "[" + ", ".join(map(canonical, node)) + "]"
    if not isinstance(node, exp.Expr):
        return repr(node)
    if isinstance(node, exp.Paren):
        return canonical(node.this)
    if isinstance(node, exp.And | exp.Or):
        return f"{node.key}({', '.join(sorted(flat(node)))})"
    arguments = {name: value for name, value in node.args.items() if value not in (None, False, [])}
    return f"{node.key}({', '.join(f'{name}={canonical(value)}' for name, value in sorted(arguments.items()))})"


def flat(node: exp.Expr) -> list[str]:
    """The operands of a chain of ANDs, or of ORs."""
    kind = type(node)
    operands = []
    for side in (node.this, node.expression):
        inner = side.unnest()
        operands += flat(inner) if isinstance(inner, kind) else [canonical(inner)]
    return operands


@given(st.integers(0, 2**32))
def test_computed_columns_stand_for_their_sql(seed: int) -> None:
    rng = random.Random(seed)
    text = random_condition(rng)
    plain = Scope(SCHEMA, STAGES)
    try:
        expected = plain.resolve(parse(text), text)
    except ExpressionError:
        return
    tokens = tokenize(text)
    whole = structure(tokens)
    assert whole is not None
    finder = PartFinder(tokens, text, plain.names())
    share = rng.choice([0.2, 0.5, 1.0])
    chosen: dict[str, bool] = {}
    parts = list(finder.runs(whole, lambda run: chosen.setdefault(finder.sql(run)[0], rng.random() < share)))
    for part in parts:
        sql, starts = finder.sql(part)
        assert all(
            character in (text[start], " ") or start == starts[at - 1]
            for at, (character, start) in enumerate(zip(sql, starts, strict=True))
        )
    names = dict.fromkeys(PREFIX + finder.sql(part)[0] for part in parts)
    scope = Scope(pa.schema([*SCHEMA, *(pa.field(name, pa.null()) for name in names)]), STAGES)
    tree = scope.resolve(scope.parse(text), text)
    read = {column.name for column in tree.find_all(exp.Column) if column.name.startswith(PREFIX)}
    assert read == set(names)

    def original(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or not node.name.startswith(PREFIX):
            return node
        sql = node.name.removeprefix(PREFIX)
        inner = Scope(SCHEMA).resolve(parse(sql), sql)
        for column in list(inner.find_all(exp.Column)):
            column.set("table", node.args.get("table"))
        return exp.Paren(this=inner)

    assert canonical(tree.transform(original)) == canonical(expected), text
