"""The index of tests of texts has the answers of the conditions themselves."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.columns.groups import mask_of
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.rules.binding import text_index
from asterism.rules.binding.text_index import MIN_CONDITIONS, TextIndex
from tests.rules.driver import Driver, processor

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int64())])
LITERALS = ["x", "xy", "yx", "xyx", "Y", "y y", "it\\'s", "ü", "X", "a(b", " AND ", ", FALSE)", ")"]
TEXTS = ["x", "XY", "yxyx", "xyxy x", "", "it's", "Ü x", "y y", "a(b", "x AND y, FALSE)", None]


def leaf(rng: random.Random) -> str:
    column = rng.choice(["a", "b"])
    text = rng.choice([column, f"LOWER(CAST({column} AS STRING))"])
    literal = f"'{rng.choice(LITERALS)}'"
    return rng.choice(
        [
            f"CONTAINS({text}, {literal})",
            f"STARTSWITH({text}, {literal})",
            f"ENDSWITH({text}, {literal})",
            f"{text} = {literal}",
            f"{text} IN ({literal}, 'x', '')",
            f"{column} IS NULL",
            "n IS NOT NULL",
            f"{text} LIKE '%x_%'",
            f"{text} RLIKE 'x.*y'",
            f"TRY_CAST({column} AS DOUBLE) = 1",
            "n > 3",
            "n + 1 > 3",
            "1 / n > 0.2",
            f"CONTAINS({text}, '')",
        ]
    )


def tree(rng: random.Random, depth: int) -> str:
    kind = rng.choice(["leaf", "and", "or", "not"]) if depth else "leaf"
    if kind == "leaf":
        return leaf(rng)
    if kind == "not":
        return f"NOT COALESCE({tree(rng, depth - 1)}, FALSE)"
    word = f" {kind.upper()} "
    return f"({word.join(tree(rng, depth - 1) for _ in range(rng.randint(2, 4)))})"


def test_random_conditions() -> None:
    rng = random.Random(2)
    expressions, scope = Vectorized(SCHEMA), Scope(SCHEMA)
    for _ in range(150):
        text = tree(rng, 3)
        expressions.add(scope.resolve(parse(text), text), text)
    events = pa.Table.from_pylist(
        [{"a": rng.choice(TEXTS), "b": rng.choice(TEXTS), "n": rng.choice([1, 4, 5, 6])} for _ in range(120)], SCHEMA
    )
    index = TextIndex(expressions)
    assert 20 < sum(index.exact) < len(index.exact)
    for part in (events, events.slice(5, 1), events.slice(0, 0)):
        expected = [mask_of(column) for column in expressions.evaluate(part)]
        assert all(np.array_equal(*both) for both in zip(index.masks(part), expected, strict=True))


def test_a_set_of_many_rules_with_and_without_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [
        processor(
            f"rule {number}",
            1,
            Pattern.begin("e").where(f"CONTAINS(LOWER(kind), 'k{number}') AND NOT COALESCE(kind = 'K7!', FALSE)"),
        )
        for number in range(MIN_CONDITIONS + 8)
    ]
    events = [(second, "ann", 1, f"K{second}{'!' * (second % 2)}", 1.0) for second in range(60)]
    indexed = Driver().batch(sets=rules).batch(events, watermark=100).rows
    monkeypatch.setattr(text_index, "MIN_CONDITIONS", 10_000)
    assert Driver().batch(sets=rules).batch(events, watermark=100).rows == indexed
    assert len(indexed["matches"]) > MIN_CONDITIONS


def test_events_for_which_a_condition_fails_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [
        processor(
            f"rule {number}", 1, Pattern.begin("e").where(f"CONTAINS(kind, 'k{number}') AND 10 / item > {number}")
        )
        for number in range(MIN_CONDITIONS + 1)
    ]
    events = [(second, "ann", second % 3, f"k{second}", 1.0) for second in range(9)]
    indexed = Driver(disable_on_error=True).batch(sets=rules).batch(events, watermark=100).rows
    monkeypatch.setattr(text_index, "MIN_CONDITIONS", 10_000)
    assert Driver(disable_on_error=True).batch(sets=rules).batch(events, watermark=100).rows == indexed
