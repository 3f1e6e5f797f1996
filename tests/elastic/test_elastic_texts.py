"""The texts of refused queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from asterism import PatternProcessor, eql
from asterism.elastic import checking
from asterism.elastic.conditions import ConditionWriter
from asterism.rules.checking.validation import checked_processors
from tests.kit import Golden

EVENTS = pa.table({"@timestamp": [1], "event.category": ["process"], "process.name": ["a"], "pid": [1]})


def refused(query: str) -> Callable[[], object]:
    return lambda: eql(query, EVENTS)


COLUMNS = pa.schema(
    {
        "kind": pa.string(),
        "pid": pa.int64(),
        "tags": pa.list_(pa.string()),
        "process": pa.struct({"name": pa.string()}),
        "host.name": pa.string(),
    }
)


def unbound(query: str, *select: str) -> Callable[[], object]:
    """A rule over events with these columns."""
    return lambda: checked_processors({"id": "a", "version": 1, "eql": query, "select": list(select)}, COLUMNS)


TEXTS: dict[str, Callable[[], object]] = {
    "single_quotes": refused("any where process.name == 'a'"),
    "one_equals_sign": refused("any where pid = 1"),
    "unknown_field": refused("any where proces.name == 1"),
    "unknown_function": refused('any where startWith(process.name, "a")'),
    "number_of_arguments": refused("any where length(process.name, 1) > 1"),
    "no_where": refused("process"),
    "no_end": refused('any where process.name == "a'),
    "one_event": refused("sequence [any where true]"),
    "keys": refused("sequence [any where true] by pid [any where true]"),
    "absent_without_maxspan": refused("sequence [any where true] ![any where true]"),
    "unit_of_maxspan": refused("sequence with maxspan=5 [any where true] [any where true]"),
    "too_many_runs": refused("sequence [any where true] with runs=1000 [any where true]"),
    "join": refused("join [any where true] [any where true]"),
    "lineage": refused("any where child of [any where true]"),
    "network": refused('any where cidrMatch(process.name, "10.0.0/8")'),
    "too_deep": refused("any where " + "(" * 200 + "true" + ")" * 200),
    "too_long": refused("any where true" + " " * 100_000),
    "overlapping": refused(f"sequence {' '.join(f'[any where pid > {n}]' for n in range(9))}"),
    "nested_functions": refused("any where " + "substring(" * 12 + "process.name" + ", -5, -1)" * 12 + ' == "b"'),
    "large_number": refused("any where pid == " + "1" * 5000),
    "infinite_number": refused("any where pid == 1e999"),
    "many_operations": refused("any where " + "1+" * 60 + "1 == pid"),
    "comment_without_end": refused("/* any where true"),
    "negative_head": refused("any where true | head -1"),
    "not_a_condition": refused("any where pid"),
    "sequence_column": lambda: eql(
        "sequence [any where true] [any where true]", EVENTS.append_column("sequence", EVENTS["pid"])
    ),
    "not_a_string": lambda: eql(b"any where true", EVENTS),  # type: ignore[call-overload]
    "rule_with_keys": lambda: PatternProcessor.from_dict(
        {"id": "a", "version": 1, "eql": "sequence [any where true] by pid [any where true] by ppid"}
    ),
    "rule_of_sample": lambda: PatternProcessor.from_dict(
        {"id": "a", "version": 1, "eql": "sample by pid [any where true] [any where true]"}
    ),
    "rule_with_select": lambda: PatternProcessor.from_dict(
        {"id": "a", "version": 1, "eql": "any where true", "select": [1]}
    ),
    "rule_with_absent_first": lambda: PatternProcessor.from_dict(
        {
            "id": "a",
            "version": 1,
            "eql": "sequence with maxspan=1m ![any where true] by ppid [any where true] by pid",
        }
    ),
    "flag_of_regex": refused('any where process.name regex "(?x)a b"'),
    "text_without_quotes": refused("any where process.name == a"),
    "unknown_category": lambda: eql("process where true", EVENTS.drop_columns(["event.category"])),
    "types": refused("sequence by pid\n  [any where true]\n  [any where pid > 1 and process.name == 5]"),
    "array": lambda: eql(
        'process where event.type == "start"',
        pa.table({"@timestamp": [1], "event.category": ["process"], "event.type": [["start"]]}),
    ),
    "array_of_categories": lambda: eql(
        "process where true", pa.table({"@timestamp": [1], "event.category": [["process"]]})
    ),
    "many_items": refused(f"sequence {'[any where true] ' * 21}"),
    "event_without_name": lambda: PatternProcessor.from_dict(
        {
            "id": "a",
            "version": 1,
            "eql": "sequence [any where a] with runs=25 [any where b]",
            "select": ["event_7.x AS x"],
        }
    ),
    "long_condition": refused(
        f"any where process.name : ({', '.join(f'{chr(34)}{n:05}{chr(34)}' for n in range(900))})"
    ),
    "nested_field": lambda: eql("any where user.nam == null", pa.table({"@timestamp": [1], "user": [{"name": "a"}]})),
    "pipe_of_sample": refused("sample by pid [any where true] [any where true] | tail 1"),
    "pipe_of_sequence": refused("sequence [any where true] [any where true] | filter pid == 1"),
    "column_sample": lambda: eql(
        "sample [any where true] [any where true]", EVENTS.append_column("sample", EVENTS["pid"])
    ),
    "text_of_a_double": lambda: eql(
        'any where pid > 1 and string(load) == "1.5"', EVENTS.append_column("load", pa.array([1.5]))
    ),
    "unbound_field": unbound('any where kind == "a" and\n  process.nam == "b"'),
    "unbound_type": unbound('any where kind == "a" and pid == "x"'),
    "unbound_array": unbound('any where tags == "a"'),
    "unbound_column_with_dots": unbound('any where host.name == "a"'),
    "unbound_key": unbound("sequence by kimd [any where true] [any where true]"),
    "unbound_key_of_until": unbound(
        "sequence with maxspan=5m\n  [any where true] by pid\n  [any where true] by pid\nuntil [any where true] by kind"
    ),
    "unbound_select": unbound(
        'sequence by kind with maxspan=5m [any where pid == 1] [any where kind == "b"]',
        "event_1.pid AS first",
        "event_2.pid - event_1.kind AS more",
    ),
    "syntax_of_select": lambda: checked_processors(
        {"id": "a", "version": 1, "eql": "any where true", "select": ["event.pid AS pid", "event.pid > AS more"]}
    ),
    "unbound_category": unbound("process where true"),
    "array_as_key": lambda: eql(
        "sequence [any where true] by pid [any where true] by pid until [any where true] by tags",
        EVENTS.append_column("tags", pa.array([["a"]])),
    ),
    "rule_with_pattern": lambda: PatternProcessor.from_dict(
        {"id": "a", "version": 1, "eql": "any where true", "pattern": {}}
    ),
    "rule_with_pipe": lambda: PatternProcessor.from_dict({"id": "a", "version": 1, "eql": "any where true | head 1"}),
}


def test_the_place_of_an_error_is_found_with_few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a condition with hundreds of parts, and values in a list are no parts."""
    checked: list[str] = []
    type_of = checking._type_of

    def noted(sql: str, writer: ConditionWriter) -> pa.DataType:
        checked.append(sql)
        return type_of(sql, writer)

    monkeypatch.setattr(checking, "_type_of", noted)
    values = ", ".join(f'"v{number}"' for number in range(300))
    for wrong, place in ((f"pid in ({values})", "in"), ("kind", "kind")):
        parts = [f'kind == "{number}"' for number in range(200)]
        parts[150] = wrong
        text = f"any where {' or '.join(parts)}"
        checked.clear()
        problem = checking.problem_of_rule(text, COLUMNS)
        assert problem is not None
        assert problem.position is not None
        assert problem.position == text.index(f"{wrong} or") + wrong.index(place)
        assert len(checked) < 15


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    Golden(Path(__file__)).error(name, TEXTS[name])
