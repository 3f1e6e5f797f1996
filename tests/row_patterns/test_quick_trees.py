"""Conditions that are read without the parser have the syntax tree of the parser."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlglot import exp

from asterism.elastic.conditions import ConditionWriter
from asterism.elastic.parsing import parse as parse_query
from asterism.errors import ExpressionError
from asterism.expressions.parsing import parse
from asterism.expressions.templates import MAX_DEPTH
from asterism.row_patterns.clause.quick_trees import quick_tree
from asterism.row_patterns.resolution import _ELSEWHERE, _MODES, _VOCABULARY
from tests.kit import FACTOR

NAMES = ["`a`", "`a`.`b c`", "`a`.`b`.`c`.`d`.`e`.`f`", "`?a.b`", "`AND`", "`ü`"]
TEXTS = ["''", "'x'", r"'it\'s \\'", "' AND '", "'%a_'", "'a\nb'", "'$x'", "'ü)'", "'`a`'"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]


def described(node: exp.Expr) -> Any:
    """The node with the notes that are used."""
    parts = {
        name: [described(part) if isinstance(part, exp.Expr) else part for part in value]
        if isinstance(value, list)
        else described(value)
        if isinstance(value, exp.Expr)
        else value
        for name, value in node.args.items()
        if value not in (None, False, [])
    }
    notes = {name: node.meta[name] for name in ("start", "end", "typed", "call_end", "called") if name in node.meta}
    return type(node).__name__, parts, notes


def parsed(text: str) -> exp.Expr:
    return parse(text, _VOCABULARY, _MODES, unlisted=(*_MODES, *_ELSEWHERE))


def comparison(rng: random.Random) -> str:
    name, text = rng.choice(NAMES), rng.choice(TEXTS)
    operand = rng.choice([name, f"LOWER({name})"])
    return rng.choice(
        [
            f"{operand} {rng.choice(OPERATORS)} {rng.choice([text, '12', '0', 'TRUE', 'FALSE'])}",
            f"{operand} LIKE {text}",
            f"{operand} IN ({', '.join(rng.choices(TEXTS, k=rng.randint(1, 4)))})",
            f"{name} IN (1, 22)",
            f"{operand} IS {rng.choice(['', 'NOT '])}NULL",
            f"{rng.choice(['STARTSWITH', 'ENDSWITH', 'CONTAINS'])}({operand}, {text})",
            f"CONCAT({operand}, 'x') RLIKE {text}",
            "TRUE",
        ]
    )


def condition(rng: random.Random, depth: int = 0) -> str:
    if depth > 3 or rng.random() < 0.3:
        return comparison(rng)
    parts = [condition(rng, depth + 1) for _ in range(rng.randint(1, 4))]
    joined = rng.choice([" AND ", " OR "]).join(parts)
    return rng.choice(["({})", "NOT ({})", "NOT COALESCE({}, FALSE)"]).format(joined)


def test_random_conditions() -> None:
    for seed in range(100 * FACTOR):
        text = condition(random.Random(seed))
        tree = quick_tree(text)
        assert tree is not None, text
        assert described(tree) == described(parsed(text)), text


def test_what_eql_writes() -> None:
    query = 'process where a.b : ("x*", "y") and not (c == "$" or d in~ ("e")) and f != null and g >= 5 and h like "?"'
    of: Any = parse_query(query).of
    text = ConditionWriter(query).event(of)
    tree = quick_tree(text)
    assert tree is not None
    assert described(tree) == described(parsed(text))


@pytest.mark.parametrize(
    "text",
    [
        "`a` = 1 + 1", "`a` = 'x' AND `b` = 'y' OR `c` = 'z'", "`a` = 'x'y'", "`a` = 'x' 'y'", "`a` = '${x}'", "a = 'x'",
        "`a` = 1.5", "`a` = 1L", "(`a`) = 'x'", "`a` = 'x' -- no", "`a` LIKE 'x' ESCAPE '!'", r"`a` = '\n'", "`a` == 'x'",
        "`a` = \"x\"", "`a` = TRUE1", "`a``b` = 'x'", "A.`a` = 'x'", "`a` = 'x' ", "NOT `a` = 'x'",
        "(" * (MAX_DEPTH + 1) + "TRUE" + ")" * (MAX_DEPTH + 1), "",
    ],
)  # fmt: skip
def test_anything_else_is_left_to_the_parser(text: str) -> None:
    assert quick_tree(text) is None


def test_what_the_parser_refuses_is_refused() -> None:
    long = " OR ".join(["`a` = 'xxxxxxxxxxxxxxxxxxxx'"] * 1_000)
    assert quick_tree(long) is None
    with pytest.raises(ExpressionError, match="too long"):
        parsed(long)
