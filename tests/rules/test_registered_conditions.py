"""Conditions that rules name, with arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

from asterism import NamedCondition, Pattern, RegisteredCondition
from asterism.columns.time import TimeColumn
from asterism.errors import AsterismError, MalformedPatternError, StreamDefinitionError
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.checking.validation import check_processor
from asterism.rules.definition.processor import PatternProcessor, from_text
from asterism.rules.definition.registered_conditions import checked_conditions
from asterism.rules.matching.result_rows import ERRORS, MATCHES
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets.interfaces import processors_from
from asterism.rules.sets.set_store import FolderStore
from asterism.testing import match
from tests.rules.driver import SCHEMA, Driver, Event, processor

CALLS: list[int] = []
"""The number of events of each call."""


def above(events: pa.Table, limit: float, kinds: tuple[str, ...] = ()) -> pa.ChunkedArray:
    CALLS.append(events.num_rows)
    if any(x == 13 for x in events["x"].to_pylist()):
        raise ValueError("13")
    found = pc.greater(events["x"], limit)
    return pc.and_(found, pc.is_in(events["kind"], pa.array(kinds))) if kinds else found


def is_b(events: pa.Table) -> Any:
    return pc.equal(events["kind"], "b").to_numpy(zero_copy_only=False)


CONDITIONS = {"above": RegisteredCondition(above, {"limit": float, "kinds": list[str]}), "is_b": is_b}


def driver(**more: Any) -> Driver:
    CALLS.clear()
    return Driver(conditions=checked_conditions(CONDITIONS), **more)


def rule(*arguments: Any, id: str = "r", name: str = "above", **more: Any) -> PatternProcessor:
    first = NamedCondition(name, arguments)
    pattern = Pattern.begin("a").where(first).followed_by("b").where(NamedCondition("is_b"))
    return processor(id, 1, pattern, **more).as_data()


def e(second: int, kind: str, x: float = 0.0, user: str = "ann") -> Event:
    return second, user, 1, kind, x


EVENTS = [e(1, "a", 5), e(2, "c", 7), e(3, "b", 1), e(4, "a", 6, "bob"), e(5, "b", 9, "bob")]


def test_conditions_of_a_rule_that_comes_later_are_evaluated_for_the_events_that_wait() -> None:
    made = driver(key_groups=2, disable_on_error=True).batch(EVENTS, sets=[], watermark=1)
    assert not CALLS
    made.batch(sets=[rule(5), rule(5, ["c"], id="only c")]).batch(watermark=9)
    assert made.found == [("only c", 1, ("ann",), "c2 b3"), ("r", 1, ("ann",), "c2 b3"), ("r", 1, ("bob",), "a4 b5")]
    # The rule fails at the event, and has its matches before it.
    made = driver(disable_on_error=True).batch([*EVENTS, e(6, "b", 13, "bob"), e(7, "b", 1)], sets=[], watermark=1)
    made.batch(sets=[rule(5)]).batch(watermark=9)
    assert made.found == [("r", 1, ("ann",), "c2 b3"), ("r", 1, ("bob",), "a4 b5")]
    [error] = made.rows[ERRORS]
    assert "13" in error["error"]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_events_satisfy_a_condition_with_its_arguments(size: int) -> None:
    made = driver(key_groups=2).batch(sets=[rule(5), rule(0, ["a"], id="only a")])
    for begin in range(0, len(EVENTS), size):
        made.batch(EVENTS[begin : begin + size])
    assert made.end().found == [
        ("only a", 1, ("ann",), "a1 b3"),
        ("only a", 1, ("bob",), "a4 b5"),
        ("r", 1, ("ann",), "c2 b3"),
        ("r", 1, ("bob",), "a4 b5"),
    ]


def test_equal_conditions_of_several_rules_are_one_call() -> None:
    rules = [rule(5, id=str(n)) for n in range(10)] + [rule(5.5, id="other")]
    made = driver().batch(sets=rules)
    CALLS.clear()
    made.batch(EVENTS)
    assert CALLS == [5, 5]


def test_a_condition_that_fails_on_an_event_fails_only_for_this_event() -> None:
    events = [*EVENTS[:3], e(6, "a", 13, "cyd"), *[e(7 + n, "a", 8, "dan") for n in range(50)], e(60, "b", 0, "dan")]
    made = driver(disable_on_error=True).batch(events, sets=[rule(5), rule(0, name="is_b", id="x")][:1]).end()
    [error] = made.rows[ERRORS]
    assert error["processor_id"] == "r"
    assert 'a condition of stage "a" could not be computed' in error["error"]
    assert "condition above(5) failed" in error["error"]
    assert "ValueError: 13" in error["error"]
    assert [row["end_time"].second for row in made.rows[MATCHES]] == [3]


def test_conditions_are_written_as_json_and_read_again() -> None:
    one = rule(1.5, ["x", "y"])
    written = one.to_dict()["pattern"]["nodes"][0]["condition"]
    assert written == {"type": "CLASS", "className": "above", "args": [1.5, ["x", "y"]]}
    assert one.to_dict()["pattern"]["nodes"][1]["condition"] == {"type": "CLASS", "className": "is_b"}
    assert from_text(one.text) == one
    assert cloudpickle.loads(cloudpickle.dumps(one)) == one
    assert not rule(1).has_definition_of(rule(True))
    assert not rule(1).has_definition_of(rule(1.0))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (NamedCondition("below", [1]), "the condition 'below' is not registered\n  Registered: above, is_b"),
        (
            NamedCondition("above"),
            "the condition 'above' needs the argument 'limit'\n  Arguments: limit: float, kinds: list[str]",
        ),
        (NamedCondition("above", ["5"]), "the condition 'above': the argument 'limit' must be float, not '5'"),
        (NamedCondition("above", [True]), "the argument 'limit' must be float, not True"),
        (NamedCondition("above", [1, "a"]), "the argument 'kinds' must be list[str], not 'a'"),
        (NamedCondition("above", [1, ["a", 1]]), "the argument 'kinds' must be list[str], not ['a', 1]"),
        (NamedCondition("above", [1, [], 2]), "the condition 'above' has more arguments (3) than are registered (2)"),
        (
            NamedCondition("is_b", [1]),
            "the condition 'is_b' has more arguments (1) than are registered (0)\n  Arguments: none",
        ),
    ],
)
def test_arguments_are_checked_against_the_registration(condition: NamedCondition, message: str) -> None:
    compiler = driver().operator.compiler
    with pytest.raises(AsterismError) as error:
        compiler.try_out(processor("r", 1, Pattern.begin("a").where(condition)))
    assert message in str(error.value)


def test_what_the_function_returns_is_checked_with_the_rule() -> None:
    bad = {"three": lambda events: [True] * 3, "text": lambda events: pa.array(["a"] * events.num_rows)}
    compiler = Driver(conditions=checked_conditions(bad)).operator.compiler
    for name in bad:
        with pytest.raises(AsterismError, match="did not return one Boolean per event"):
            compiler.try_out(processor("r", 1, Pattern.begin("a").where(NamedCondition(name))))


@pytest.mark.parametrize(
    "wrong",
    [{"f": 5}, [above], {5: above}, "above"],
)
def test_what_is_registered_must_be_functions(wrong: Any) -> None:
    with pytest.raises(StreamDefinitionError, match="conditions must"):
        checked_conditions(wrong)


@pytest.mark.parametrize("kinds", [{"a": dict}, {"a": "float"}, {"a": list}, {"a": list[list[int]]}, {5: int}, [int]])
def test_arguments_have_simple_types(kinds: Any) -> None:
    with pytest.raises(StreamDefinitionError):
        RegisteredCondition(above, kinds)


@pytest.mark.parametrize(
    "arguments",
    ["abc", 5, [None], [{"a": 1}], [[[1]]], [float("nan")], ["x" * 1001], [2**63], [1] * 21, [[1] * 1001], ["\ud800"]],
)
def test_arguments_are_bounded(arguments: Any) -> None:
    with pytest.raises(MalformedPatternError):
        NamedCondition("above", arguments)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"type": "CLASS"}, "a: the condition has no className"),
        ({"type": "CLASS", "className": "f", "args": {"a": 1}}, "a: args must be a list"),
        ({"type": "CLASS", "className": "f", "args": [None]}, "a: an argument of the condition 'f' is None"),
        ({"type": "CLASS", "className": "f", "expression": "x"}, "a: unknown field 'expression'"),
        ({"type": "CLASS", "className": "f\n"}, "a: the name of a condition must be"),
    ],
)
def test_what_is_wrong_in_json_is_said_with_its_place(condition: Any, message: str) -> None:
    node = {"name": "a", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}, "condition": condition}
    with pytest.raises(AsterismError) as error:
        Pattern.from_json({"type": "COMPOSITE", "nodes": [node]})
    assert message in str(error.value)
    assert "At: /nodes/0/condition" in str(error.value)


def test_a_rule_is_refused_when_the_query_no_longer_registers_its_condition(tmp_path: Path) -> None:
    def refused(conditions: dict[str, Any]) -> dict[str, str]:
        time = TimeColumn("ts", SCHEMA.field("ts").type)
        compiler = ProcessorCompiler(
            SCHEMA, ["user"], time, Semantics.DEFAULT, {}, None, checked_conditions(conditions)
        )
        manager = Coordinator(compiler, FolderStore(str(tmp_path)))
        manager.on_pattern_processors_updated([rule(5)])
        return manager.status.refused

    assert refused(CONDITIONS) == {}
    assert "the condition 'above' is not registered" in refused({"is_b": is_b})["r"]
    assert refused(CONDITIONS) == {}


def test_a_template_has_parameters_in_arguments() -> None:
    pattern = json.loads(json.dumps(rule(5, ["a"]).to_dict()["pattern"]))
    pattern["nodes"][0]["condition"]["args"][0] = ":limit"
    item = {"id": "t", "parameters": {"limit": "number"}, "rows": [{"id": "r", "limit": 7}], "pattern": pattern}
    [found] = processors_from([item])
    assert isinstance(found, PatternProcessor)
    assert found.to_dict()["pattern"]["nodes"][0]["condition"]["args"] == [7, ["a"]]


def test_a_rule_is_validated_without_the_functions() -> None:
    checked = check_processor(rule(5).to_dict(), lambda pointer: (1, 1), SCHEMA)
    assert checked.problems == []
    item = rule(5).to_dict()
    item["pattern"]["nodes"][1]["condition"] = {"type": "SQL", "expression": "knd = 'b'"}
    assert [one.message for one in check_processor(item, lambda pointer: (1, 1), SCHEMA).problems] == [
        "pattern: b: condition: unknown column 'knd'"
    ]


def test_other_patterns_have_no_conditions_by_name() -> None:
    with pytest.raises(MalformedPatternError, match="the condition 'above' is not registered"):
        match(Pattern.begin("a").where(NamedCondition("above", [1])), "a1")
    assert "above(1, 'x')" in str(Pattern.begin("a").where(NamedCondition("above", [1, "x"])).explain())
