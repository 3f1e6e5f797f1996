"""Conditions in the forms that dynamic Flink CEP prints: nested, of a subtype, and in languages of the JVM."""

from __future__ import annotations

import json
from typing import Any

import pytest

from asterism import NamedCondition, NotCondition, Pattern, SqlCondition
from asterism.errors import PatternFormatError
from asterism.patterns.conditions import Condition
from asterism.patterns.json_reading import MAX_NESTED

PACKAGE = "org.apache.flink.cep.pattern.conditions."
AVIATOR = {"type": "AVIATOR", "expression": "action == 0 && productionId == 1"}
SQL = {"type": "SQL", "expression": "v > 1"}
NAMED = {"type": "CLASS", "className": "com.example.StartCondition"}
aviator = NamedCondition("AVIATOR", ["action == 0 && productionId == 1"])
sql, named = SqlCondition("v > 1"), NamedCondition("com.example.StartCondition")


def rich(name: str, *nested: Any) -> dict[str, Any]:
    return {"type": "CLASS", "className": f"{PACKAGE}{name}", "nestedConditions": list(nested)}


def pattern(condition: Any) -> Pattern:
    graph = json.loads(Pattern.begin("a").to_json())
    graph["nodes"][0]["condition"] = condition
    return Pattern.from_json(json.dumps(graph))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (AVIATOR, aviator),
        ({"type": "GROOVY", "expression": "x"}, NamedCondition("GROOVY", ["x"])),
        (rich("RichAndCondition", AVIATOR, SQL), aviator & sql),
        (rich("RichAndCondition", AVIATOR, SQL, NAMED), aviator & sql & named),
        (rich("RichOrCondition", rich("RichNotCondition", AVIATOR), NAMED), NotCondition(aviator) | named),
        (
            {"type": "CLASS", "className": f"{PACKAGE}SubtypeCondition", "subClassName": "com.example.Login"},
            NamedCondition("com.example.Login"),
        ),
    ],
)
def test_a_form_of_flink(condition: Any, expected: Condition) -> None:
    """Written, it is read as the same."""
    found = pattern(condition)
    assert found.stages[0].condition == expected
    assert Pattern.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (rich("RichNotCondition", SQL, SQL), "list of one condition"),
        (rich("RichAndCondition", SQL), "at least two conditions"),
        (rich("RichAndCondition", SQL, None), "is missing"),
        (rich("RichAndCondition", SQL, {"type": "PYTHON"}), "condition type"),
        (rich("RichAndCondition", SQL, SQL) | {"args": []}, "args"),
        ({"type": "GROOVY"}, "no expression"),
    ],
)
def test_what_is_refused(condition: Any, problem: str) -> None:
    with pytest.raises(PatternFormatError, match=problem):
        pattern(condition)


def test_the_depth_is_bounded() -> None:
    condition = NAMED
    for _ in range(MAX_NESTED + 1):
        condition = rich("RichNotCondition", condition)
    with pytest.raises(PatternFormatError, match="too deeply"):
        pattern(condition)
