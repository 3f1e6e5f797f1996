"""Tests beside rules: what is read, what is refused, and what they are not: a part of the rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from asterism.discovery.sources.documents import read_document
from asterism.errors import AsterismError, PatternProcessorError
from asterism.rules.checking.validation import check_processor
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.definition.rule_tests import RuleTest, read_tests
from asterism.rules.sets.interfaces import RefusedProcessor, processors_from
from asterism.testing.rule_harness import run_rule_test
from tests.rules.driver import chain

TEST = {"name": "pair", "events": "a1 b2", "matches": ["a1 b2"]}
GRAPH = PatternProcessor("a", 1, chain("a", "b")).to_dict()
RULE = PatternProcessor("a", 1, chain("a", "b"))
MEASURED = PatternProcessor("a", 1, chain("a", "b"), select=("LAST(b.value) AS last", "COUNT(a.*) > 0 AS some"))
CLAUSE = "MEASURES LAST(B.value) AS last PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"


def test_tests_are_no_part_of_the_rule() -> None:
    """A change of them is no change of the rule, and a rule without them has the same text."""
    with_tests = PatternProcessor.from_dict(GRAPH | {"tests": [TEST]})
    assert with_tests == PatternProcessor.from_dict(GRAPH)
    assert with_tests.text == PatternProcessor.from_dict(GRAPH | {"tests": []}).text
    assert "tests" not in with_tests.to_dict()


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("text", "tests must be a list of tests, not 'text'"),
        ({}, "tests must be a list of tests"),
        ([TEST] * 101, "tests are too many: 101 (limit 100)"),
        ([TEST, TEST], "two tests have the name 'pair'"),
        ([5], "test 1 must be an object"),
        ([TEST | {"name": ""}], "the name of test 1 must be a string of 1 to 200 printable characters"),
        ([TEST | {"name": "\x1b[2J"}], "the name of test 1"),
        ([TEST | {"name": "x" * 201}], "the name of test 1"),
        ([{"name": "a"}], "test 1 needs 'events'"),
        ([TEST | {"event": "a"}], "test 1 has no field 'event'"),
        ([TEST | {"events": "a " * 1001}], "the events of test 1 are too many: 1,001 (limit 1,000)"),
        ([TEST | {"events": "a" * 10**6}], "the events of test 1 have 1,000,000 characters (limit 20,000)"),
        ([TEST | {"events": [{"x": 1}] * 10**6}], "the events of test 1 are too many: 1,000,000 (limit 1,000)"),
        ([TEST | {"events": [5]}], "the events of test 1 must be objects, not 5"),
        ([TEST | {"events": [{str(n): 1 for n in range(201)}]}], "the events of test 1 have 201 columns"),
        ([TEST | {"matches": None}], "the matches of test 1 must be a list"),
        ([TEST | {"matches": "a1 b2"}], "the matches of test 1 must be a list"),
        ([TEST | {"matches": [[0]]}], "the matches of test 1 must be literals, numbers of events (from 1), or objects"),
        ([TEST | {"matches": [[True]]}], "the matches of test 1 must be literals"),
        ([TEST | {"matches": [["a1"]]}], "the matches of test 1 must be literals"),
        ([TEST | {"matches": [[1]] * 1001}], "the matches of test 1 are too many"),
        ([TEST | {"timedOut": 5}], "timedOut of test 1 must be a list"),
        ([TEST | {"columns": {"x": 5}}], "the columns of test 1 must be strings"),
        ([TEST | {"columns": []}], "the columns of test 1 must be an object"),
        ([TEST | {"literals": {"step": "1s"}}], "the literals of test 1 have no field 'step'"),
    ],
)
def test_what_is_refused(tests: Any, message: str) -> None:
    with pytest.raises(PatternProcessorError) as caught:
        PatternProcessor.from_dict(GRAPH | {"tests": tests})
    assert message in str(caught.value)
    assert len(str(caught.value)) < 2500
    (refused,) = processors_from([GRAPH | {"tests": tests}])
    assert isinstance(refused, RefusedProcessor)


def test_a_problem_has_its_place() -> None:
    document = read_document(json.dumps([GRAPH | {"tests": 5}], indent=1).encode())
    (problem,) = check_processor(document.items[0], lambda pointer: document.place("/0" + pointer)).problems
    assert problem.line == document.text[: document.text.index('"tests"')].count("\n") + 1


def failure(rule: PatternProcessor, **fields: Any) -> tuple[str, ...]:
    (test,) = read_tests([TEST | fields])
    return run_rule_test(rule, test).failure


@pytest.mark.parametrize(
    ("events", "matches"),
    [
        ("a1 b2", ["a1 b2"]),
        ("a1 x2 b3 a4 b5", ["a4   b5", [1, 3]]),
        ("a1 x2", []),
        ("ann.a1 bob.b2 ann.b3", [{"a": "ann.a1", "b": [3]}]),
        ("a1@1s b2@2m", []),
        ("b2@3s a1@2s", [[2, 1]]),  # events are sorted by time
        ("a1@1s |10s b2@5s", []),  # b is late
        ([{"ts": "1s", "kind": "a"}, {"ts": "00:02", "kind": "b"}], [[1, 2]]),
        ([{"ts": 1000, "kind": "a"}, {"ts": 2000, "kind": "b"}], [[1, 2]]),
        ([{"kind": "a"}, {"kind": "b"}], [[1, 2]]),  # processing time
    ],
)
def test_events_and_matches(events: Any, matches: Any) -> None:
    assert failure(RULE, events=events, matches=matches) == ()


def test_columns_of_events() -> None:
    assert failure(RULE, events=[], matches=[], columns={"ts": "timestamp", "kind": "string"}) == ()
    renamed = PatternProcessor("a", 1, sql=CLAUSE.replace("kind", "event").replace("value", "price"))
    literals = {"kind": "event", "value": "price", "key": "ip", "time": "at"}
    given = {"literals": literals, "columns": {"price": "decimal(10,2)"}}
    assert failure(renamed, events="a1 b2.5", matches=[{"last": 2.5}], **given) == ()
    rows = [{"at": "1s", "event": "a"}, {"at": "2s", "event": "b", "price": "7.25"}]
    assert failure(renamed, events=rows, matches=[{"last": "7.25"}], **given) == ()
    assert failure(renamed, events=rows, matches=[], columns={"price": "nosuch"}, literals=literals)[0].startswith(
        "[STREAM_DEFINITION] not a Spark SQL type"
    )
    assert "is not a value of price" in failure(renamed, events=[{"price": "x"}], matches=[], **given)[0]


def test_measures() -> None:
    for expected in ({"last": 2}, {"last": "2", "some": True}, {}, "a1 b2", [1, 2]):
        assert failure(MEASURED, matches=[expected]) == ()
    for wrong in ({"last": 3}, {"other": 2}, {"last": None}, {"some": "no"}, {"last": [2]}):
        assert failure(MEASURED, matches=[wrong])
    both = [{"last": 2}, {"last": 4, "some": True}]
    assert failure(MEASURED, events="a1 b2 a3 b4", matches=both) == ()
    assert failure(MEASURED, events="a1 b2 a3 b2", matches=[{}, {"last": 2, "some": True}]) == ()
    assert failure(PatternProcessor("a", 1, sql=CLAUSE), matches=[{"last": 2}]) == ()
    assert (
        failure(
            PatternProcessor("a", 1, sql="ALL ROWS PER MATCH " + CLAUSE[CLAUSE.index("PATTERN") :]), matches=[[1], [2]]
        )
        == ()
    )
    assert "have no events" in failure(PatternProcessor("a", 1, sql=CLAUSE), matches=[[1, 2]])[0]
    assert failure(PatternProcessor("a", 1, chain("a", "b"), function="f"), matches=[[1, 2]]) == ()


def test_timed_out_partial_matches() -> None:
    assert failure(RULE, events="a1 x2@2m", matches=[], timedOut=["a1"]) == ()
    assert failure(RULE, events="a1 b2", timedOut=["a1"]) == ("timed out: expected, not found: a1", "events: a1 b2")


def test_a_failure_tells_what_differs() -> None:
    assert failure(MEASURED, events="a1 x2 b3", matches=["a1 b2", {"last": 7}]) == (
        "expected, not found: {last=7}",
        "expected, not found: a1 b2",
        "found, not expected: a1 b3 [1, 3] {last=3, some=true}",
        "events: a1 x2 b3",
    )
    assert (
        failure(PatternProcessor("a", 1, chain("a").where("nosuch > 1")))[0]
        == "[COLUMN_NOT_FOUND] unknown column 'nosuch'"
    )
    assert failure(RULE, events="a1 ?")[0] == "[INVALID_EVENT] not an event: '?'"
    divides = PatternProcessor("a", 1, chain("a").where("1 / (value - 1) > 0"))
    assert any("division by zero" in line for line in failure(divides, matches=[]))


def test_a_rule_that_explodes_ends() -> None:
    bomb = chain("a").followed_by_any("b").one_or_more().allow_combinations().followed_by("c").where("kind = 'c'")
    assert "a key has more than 10,000 partial matches" in " ".join(
        failure(PatternProcessor("a", 1, bomb), events="a1 " + "b " * 900, matches=[])
    )


def test_hostile_texts_are_printable() -> None:
    evil = "\x1b[2J<b>\n"
    test = RuleTest("t", ({"ts": "1s", "kind": "a", "user": evil}, {"ts": "2s", "kind": "b"}), ({evil: evil},))
    lines = run_rule_test(RULE, test).failure
    assert lines
    assert all(line.isprintable() for line in lines)
    assert issubclass(PatternProcessorError, AsterismError)
