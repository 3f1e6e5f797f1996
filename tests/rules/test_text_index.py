"""The index of tests of texts has the answers of the conditions themselves."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.columns.groups import mask_of
from asterism.expressions.evaluation import Vectorized, tried_before
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.rules.binding import replication, text_index
from asterism.rules.binding.text_index import MIN_CONDITIONS, MIN_EXACT, TextIndex
from tests.kit import bounded, examples
from tests.rules.driver import SCHEMA as EVENTS_OF_DRIVER
from tests.rules.driver import Driver, processor

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int64())])
LITERALS = ["x", "xy", "yx", "xyx", "Y", "y y", "it\\'s", "ü", "X", "a(b", " AND ", ", FALSE)", ")"]
LIKES = ["x%", "%y", "x_x", "X%y%", "%", "_y x%", "%.%", ""]
LIKES += [r"%a\\\\b%", r"a\\\\b%", r"%\\\\b", r"a\\\\b", r"a\\\\_%", r"x\\%y", r"%\\_%", r"a%\n%b", "%$%"]
REGEXES = [
    "x.*y",
    "x",
    "(?i)X.*Y|s",
    "(x|yx){2}",
    "^y.*$",
    "[^x]",
    "a[(]b",
    ".{4}",
    "ü",
    "( y)+",
    ".{100,}",
    "(?i)and?",
    r"\\\\zoom",
    r"[\\\\]z",
    r"z(oo)?m?$",
    r"\\$",
    r"(?i)k",
]
TEXTS = ["x", "XY", "yxyx", "xyxy x", "", "it's", "Ü x", "y y", "a(b", "x AND y, FALSE)", None]
TEXTS += ["a\\b", "a\\\\b", "ab", "x\\zoom", "\\z", "$oom", "x%y", "xzy", "_", "a\nb", "a\n\nb\n", "\u212a", "İ", "ς"]


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
            f"{text} LIKE '{rng.choice(LIKES)}'",
            f"{text} RLIKE '{rng.choice(REGEXES)}'",
            f"{text} = {text.replace(column, 'b')}",
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


@pytest.mark.parametrize("seed", range(examples(1, usual=4)))
def test_random_conditions(seed: int) -> None:
    rng = random.Random(seed)
    expressions, scope = Vectorized(SCHEMA), Scope(SCHEMA)
    for _ in range(100):
        text = tree(rng, 3)
        with tried_before():
            expressions.add(scope.resolve(parse(text), text), text)
    events = pa.Table.from_pylist(
        [{"a": rng.choice(TEXTS), "b": rng.choice(TEXTS), "n": rng.choice([1, 4, 5, 6])} for _ in range(60)], SCHEMA
    )
    index = TextIndex(expressions)
    assert 10 < sum(index.exact) < len(index.exact)
    for part in (events, events.slice(5, 1), events.slice(0, 0)):
        offsets, met = index.met(part)
        found = [met[begin:end].tolist() for begin, end in itertools.pairwise(offsets.tolist())]
        masks = np.array([mask_of(column) for column in expressions.evaluate(part)])
        assert found == [np.flatnonzero(masks[:, event]).tolist() for event in range(part.num_rows)]


def test_tens_of_thousands_of_constants_that_nearly_match() -> None:
    """The time is bounded by the number of constants with a gram, and each is found once in a text."""

    def condition(number: int) -> str:
        literals = [f"'{'a' * (3 + place % 31)}b{place}'" for place in range(number * 250, number * 250 + 250)]
        return f"({' OR '.join(f'contains(c0, {literal})' for literal in literals)})"

    index = TextIndex(Vectorized(SCHEMA, list(map(condition, range(40)))))
    long = "a" * 20_000
    events = pa.Table.from_pylist([{"a": long}, {"a": f"{long}b7"}, {"a": "aaab0"}], SCHEMA)
    index.met(events)
    with bounded():
        offsets, met = index.met(events)
    assert (offsets.tolist(), met.tolist()) == ([0, 0, 1, 2], [0, 0])


def without_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next sets have no index, not even that of equal rules before."""
    monkeypatch.setattr(text_index, "MIN_EXACT", 10_000)
    replication._EVALUATIONS.clear()


@pytest.mark.parametrize("count", [MIN_EXACT, MIN_CONDITIONS + 8])
def test_a_set_of_rules_with_and_without_the_index(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [
        processor(
            f"rule {number}",
            1,
            Pattern.begin("e").where(f"CONTAINS(LOWER(kind), 'k{number}') AND NOT COALESCE(kind = 'K7!', FALSE)"),
        )
        for number in range(count)
    ]
    events = [(second, "ann", 1, f"K{second}{'!' * (second % 2)}", 1.0) for second in range(60)]
    indexed = Driver().batch(sets=rules).batch(events, watermark=100).rows
    without_index(monkeypatch)
    assert Driver().batch(sets=rules).batch(events, watermark=100).rows == indexed
    assert len(indexed["matches"]) > count


@pytest.mark.parametrize(
    ("texts", "has_index"),
    [
        ([f"CONTAINS(kind, 'a{number}')" for number in range(MIN_EXACT - 1)], False),
        ([f"CONTAINS(kind, 'a{number}')" for number in range(MIN_EXACT)], True),
        ([*(f"CONTAINS(kind, 'a{number}')" for number in range(MIN_EXACT)), "CONTAINS(kind, 'b') AND x > item"], False),
    ],
)
def test_small_sets_have_an_index_if_all_conditions_are_tests_of_texts(texts: list[str], has_index: bool) -> None:
    conditions, scope = Vectorized(EVENTS_OF_DRIVER), Scope(EVENTS_OF_DRIVER)
    for text in texts:
        conditions.add(scope.resolve(scope.parse(text), text), text)
    assert (text_index.text_index(conditions) is not None) == has_index


def test_events_for_which_a_condition_fails_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [
        processor(
            f"rule {number}", 1, Pattern.begin("e").where(f"CONTAINS(kind, 'k{number}') AND 10 / item > {number}")
        )
        for number in range(MIN_CONDITIONS + 1)
    ]
    events = [(second, "ann", second % 3, f"k{second}", 1.0) for second in range(9)]
    indexed = Driver(disable_on_error=True).batch(sets=rules).batch(events, watermark=100).rows
    without_index(monkeypatch)
    monkeypatch.setattr(text_index, "MIN_CONDITIONS", 10_000)
    assert Driver(disable_on_error=True).batch(sets=rules).batch(events, watermark=100).rows == indexed
