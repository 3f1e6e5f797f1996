"""Optional fields, ``?user.name``, of rules: the columns of the events are not known when a rule is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from asterism import match_recognize
from asterism.elastic.rules import clause_of_rule
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.definition.rule_tests import RuleTest
from asterism.testing.rule_harness import run_rule_test
from tests.elastic.kit import CASES, EVENTS

TYPES = {"n": "int", "kind": "string", "pid": "int", "user": "struct<name: string>"}
OPTIONAL = [query for query in CASES if "?" in query and query.startswith("any where") and "|" not in query]


def failure(query: str, numbers: list[int], *events: dict[str, Any], **types: str) -> tuple[str, ...]:
    """:param numbers: those of the last events of the matches"""
    last = "event_2.n AS n" if query.startswith("sequence") else "event.n AS n"
    rule = PatternProcessor.from_dict({"id": "rule", "version": 1, "eql": query, "select": [last]})
    rows = tuple({"ts": f"{number}s", "n": number, **event} for number, event in enumerate(events))
    test = RuleTest("optional", rows, matches=tuple({"n": number} for number in numbers), columns=TYPES | types)
    return run_rule_test(rule, test).failure


@pytest.mark.parametrize("query", OPTIONAL)
def test_a_rule_finds_the_events_of_a_query(query: str) -> None:
    clause = clause_of_rule(query, ["event.n AS n"])
    assert match_recognize(EVENTS, f"ORDER BY n\n{clause}").matches["n"].to_pylist() == CASES[query]


def test_a_field_that_the_events_lack_is_null() -> None:
    events = [{"kind": "a"}, {"kind": "b"}, {"kind": "a", "user": {"name": "Ann"}}]
    assert failure('any where kind == "a" and ?user.id == null and ?host.name == null', [0, 2], *events) == ()
    assert failure('any where ?user.name : "ANN" or ?nobody.name : "ann"', [2], *events) == ()


def test_keys_are_optional() -> None:
    query = 'sequence by pid, ?session with maxspan=5s [any where kind == "a"] [any where kind == "b"]'
    events = [{"kind": "a", "pid": 1}, {"kind": "b", "pid": 2}, {"kind": "b", "pid": 1}]
    assert failure(query, [2], *events) == ()
    in_sessions = [{**event, "session": session} for event, session in zip(events, "xxy", strict=True)]
    assert failure(query, [], *in_sessions, session="string") == ()


def test_keys_that_differ_are_optional() -> None:
    query = (
        'sequence with maxspan=5s [any where kind == "a"] by pid, ?session [any where kind == "b"] by ppid, ?session'
    )
    assert failure(query, [1], {"kind": "a", "pid": 1}, {"kind": "b", "ppid": 1}, ppid="int") == ()


def test_a_field_that_is_not_optional_must_exist() -> None:
    assert "unknown column 'user.id'" in str(failure('any where user.id == "a"', [], {"kind": "a"}))
    assert "unknown column 'nobody'" in str(failure('any where nobody == "a"', [], {"kind": "a"}))


def test_a_column_with_the_name_itself_comes_first() -> None:
    events = pa.table({"at": [1, 2], "?a": ["x", "y"], "a": ["y", "x"]})
    clause = "ORDER BY at MEASURES A.at AS n PATTERN (A) DEFINE A AS `?a` = 'x'"
    assert match_recognize(events, clause).matches["n"].to_pylist() == [1]


def test_a_long_path_is_found() -> None:
    kind: pa.DataType = pa.string()
    for name in reversed("bcdefg"):
        kind = pa.struct({name: kind})
    events = pa.table({"at": [1, 2], "a": pa.array([{"b": {"c": {"d": {"e": {"f": {"g": "x"}}}}}}, None], kind)})
    clause = clause_of_rule('any where ?a.b.c.d.e.f.g == "x"', ["event.at AS n"])
    assert match_recognize(events, f"ORDER BY at\n{clause}").matches["n"].to_pylist() == [1]
    assert match_recognize(events, f"ORDER BY at\n{clause.replace('.g`', '.h`')}").matches.num_rows == 0


def test_an_element_that_the_events_lack_is_null() -> None:
    types = {"args": "array<struct<name: string>>"}
    events = [{"kind": "a", "args": [{"name": "x"}]}, {"kind": "b", "args": [{"name": "y"}]}, {"kind": "c"}]
    assert failure('any where ?args[0].name == "x"', [0], *events, **types) == ()
    assert failure('any where ?args[1].name == null and ?args[0].name != "x"', [1], *events, **types) == ()
    for field in ("?nothing.args[0].name", "?args[0].age", "?args.name", "?kind[0]", "?nothing[0][1].a.b"):
        assert failure(f'any where {field} == null or {field} == "x"', [0, 1, 2], *events, **types) == (), field
    assert failure('any where arrayContains(?nothing[0].a, "x") or kind == "c"', [2], *events, **types) == ()


@pytest.mark.parametrize("key", ["args[0].name", "?args[0].name"])
def test_keys_that_differ_are_elements_of_arrays(key: str) -> None:
    query = f'sequence with maxspan=5s [any where kind == "a"] by {key} [any where kind == "b"] by parent'
    types = {"args": "array<struct<name: string>>", "parent": "string"}
    events = [{"kind": "a", "args": [{"name": "x"}]}, {"kind": "b", "parent": "y"}, {"kind": "b", "parent": "x"}]
    assert failure(query, [2], *events, **types) == ()


def test_optional_keys_that_differ_are_elements_that_the_events_lack() -> None:
    query = (
        'sequence with maxspan=5s [any where kind == "a"] by ?nothing[0].name [any where kind == "b"] by ?args[0].name'
    )
    events = [{"kind": "a"}, {"kind": "b", "args": [{"name": "x"}]}, {"kind": "b"}]
    assert failure(query, [2], *events, args="array<struct<name: string>>") == ()


def test_a_missing_column_is_not_called_a_variable_or_a_stage() -> None:
    assert "unknown column 'host.id'" in str(failure('any where host.id == "a"', [], {"kind": "a"}))
    query = "sequence by host.id with maxspan=1s [any where pid == 1] [any where pid == 2]"
    assert "unknown column 'host.id'" in str(failure(query, [], {"pid": 1}))
