"""An expression that is made from the tree of another one is the expression that its own text gives."""

from __future__ import annotations

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.errors import ExpressionError
from asterism.expressions import templates
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.templates import Resolved, resolved
from asterism.expressions.values import Sql
from asterism.matching.condition_programs import compile_condition
from asterism.matching.instructions import Programs
from tests.expressions.sql_expressions import Expressions, arrow_schema
from tests.rules.test_condition_index import condition

SCHEMA = arrow_schema("UTC")
SCOPE = Scope(SCHEMA, ("u", "v"))
NUMBERS = [
    "0",
    "1",
    "7",
    "00",
    "08",
    "12",
    "300",
    "2147483648",
    "99999999999999999999",
    "0.5",
    "1.50",
    "20.25",
    "0.00",
    "3.0",
]


def meaning(found: Resolved, text: str) -> tuple[list[Sql], list[object]]:
    vectorized = Vectorized(SCHEMA)
    programs = Programs(SCOPE, vectorized)
    pure = []
    for place, part in enumerate(found.pure):
        known = found.value(place)
        pure.append(vectorized.translate(part, text) if known is None else known)
        found.keep(place, pure[-1])
    code = [(compile_condition(programs, part, text), tuple(programs.strings)) for part in found.iterative]
    return pure, [*code, vectorized.texts]


def outcome(text: str, *, reused: bool) -> object:
    try:
        if not reused:
            return meaning(Resolved.of(SCOPE, text), text)
        with resolved(SCOPE, "UTC", text) as found:
            return meaning(found, text)
    except ExpressionError as error:
        return type(error)


@settings(max_examples=max(1, settings().max_examples // 2))
@given(st.integers(0, 2**32))
def test_other_numbers(seed: int) -> None:
    rng = random.Random(seed)
    expressions = Expressions(rng)
    templates._TEMPLATES.clear()
    for _ in range(30):
        text = rng.choice([lambda: condition(rng, 2), lambda: expressions.truth(3), lambda: stages(rng)])()
        for _ in range(4):
            assert outcome(text, reused=True) == outcome(text, reused=False), text
            text = re.sub(r"\d+(\.\d+)?", lambda found: rng.choice([*NUMBERS, found.group()]), text)


def stages(rng: random.Random) -> str:
    return rng.choice(
        [
            "d > 2.5 * LAST(u.d)",
            "i = 5 AND l > LAST(v.l, 1) + 7L",
            "SUM(u.i) + i < 100 AND s = 'a1'",
            "arr[1] = 1",
            "5L < i",
        ]
    )


def test_a_condition_with_another_number_is_not_parsed_again() -> None:
    templates._TEMPLATES.clear()
    for text in ["s = 'x' AND d >= 10.0D AND i BETWEEN 1 AND 5", "s = 'x' AND d >= 250.75D AND i BETWEEN 2 AND 70"]:
        with resolved(SCOPE, "UTC", text) as found:
            assert found.replaced == ("250" in text)
            assert outcome(text, reused=False) == meaning(found, text)


def test_numbers_in_texts_and_names_belong_to_the_expression() -> None:
    templates._TEMPLATES.clear()
    first = "s = 'a1' AND arr[0] = 1 AND d2 > DATE'2024-01-01'"
    for text in [first, first.replace("a1", "a2"), first.replace("[0]", "[1]"), first.replace("2024", "2025")]:
        with resolved(SCOPE, "UTC", text) as found:
            assert not found.replaced
