"""Conditions that were translated before are bound as if they were new."""

from __future__ import annotations

import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.errors import ExpressionError, ExpressionSyntaxError
from asterism.matching import binding
from asterism.matching.binding import BoundPattern

SCHEMA = pa.schema([("kind", pa.string()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
TEXTS = [
    "kind = 'a' AND x > 1",
    "kind = 'a' AND x > 2",
    "upper(kind) = 'A'",
    "at > '2024-10-27 02:30:00'",
    "x > 1 AND x > LAST(a.x)",
]


def bound(text: str, schema: pa.Schema = SCHEMA) -> tuple[object, ...]:
    pattern = Pattern.begin("a").where("x > 0").followed_by("b").where(text)
    found = BoundPattern.of_pattern(pattern, schema)
    vectorized = found.vectorized
    return (
        vectorized.texts,
        vectorized.types,
        vectorized.costs,
        vectorized.indexable,
        found.evaluation,
        found.programs.ops,
    )


@pytest.mark.parametrize("text", TEXTS)
def test_a_condition_again(text: str) -> None:
    binding._KNOWN.clear()
    new = bound(text)
    for other in TEXTS:
        bound(other)
    assert bound(text) == new


def test_a_condition_of_another_schema_or_time_zone() -> None:
    binding._KNOWN.clear()
    text = "at > '2024-10-27 02:30:00'"
    berlin = SCHEMA.set(2, pa.field("at", pa.timestamp("us", "Europe/Berlin")))
    assert bound(text) != bound(text, berlin)
    with pytest.raises(ExpressionError):
        bound(text, SCHEMA.remove(2))


def test_an_invalid_condition_again() -> None:
    for _ in range(2):
        with pytest.raises(ExpressionSyntaxError, match="cannot have a name"):
            bound("x > 1 AS big")


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    binding._KNOWN.clear()
    monkeypatch.setattr(binding, "MAX_KNOWN", 3)
    for number in range(10):
        bound(f"x > {number}")
        bound("x = 0")
    assert len(binding._KNOWN) == 3
    assert "x = 0" in {text for _, _, text in binding._KNOWN}, "it was always in use"
