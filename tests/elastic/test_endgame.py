"""Random queries, compared with Endgame's engine, the package ``eql``, where its semantics are those of Elasticsearch: texts in
lower case, and no missing values.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import eql
from tests.reference import endgame as reference
from tests.reference.eql import Step

endgame = pytest.importorskip("eql", reason="the package eql (AGPL) is not installed: pip install eql")
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "gap": st.integers(0, 3),
            "kind": st.sampled_from("abc"),
            "pid": st.integers(1, 2),
            "ppid": st.integers(1, 2),
            "size": st.integers(-3, 9),
            "path": st.sampled_from(["c:\\temp\\a.exe", "c:\\b.dll", "x", ""]),
        }
    ),
    max_size=12,
)
COMPARISONS = st.builds(
    "{} {} {}".format,
    st.sampled_from(["size", "pid", "size + pid", "size * 2", "length(path)", "(size - ppid)"]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    st.integers(-2, 9).map(str) | st.sampled_from(["ppid", "pid * 2"]),
)
TESTS = COMPARISONS | st.sampled_from(
    [
        'kind in ("a", "c")',
        'kind == "b"',
        'wildcard(path, "*.exe", "*.dll")',
        'startsWith(path, "c:\\\\")',
        'endsWith(path, ".dll")',
        'stringContains(path, "temp")',
        'substring(path, 0, 2) == "c:"',
        'indexOf(path, ".") > 4',
        'concat(kind, ":", path) == "a:x"',
        "string(size) == string(pid)",
    ]
)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: (
        st.builds("({} and {})".format, inner, inner)
        | st.builds("({} or {})".format, inner, inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=5,
)


def in_time(given_events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    events, time = [], 0
    for number, event in enumerate(given_events):
        time += event["gap"]
        events.append({**event, "n": number, "time": time})
    return events


def found_by_endgame(query: str, events: list[dict[str, Any]]) -> list[list[int]]:
    """The numbers of the events of each result."""
    found: list[list[int]] = []
    engine = endgame.PythonEngine()
    with endgame.parser.elasticsearch_syntax if "![" in query else nullcontext(), endgame.parser.allow_negation:
        engine.add_query(endgame.parse_query(query))
    engine.add_output_hook(lambda output: found.append([event.data["n"] for event in output.events]))
    engine.stream_events([endgame.Event("generic", event["time"] * 10_000_000, event) for event in events])
    return found


def found_here(query: str, events: list[dict[str, Any]]) -> list[list[int]]:
    names = {"n": pa.int64(), "pid": pa.int64(), "ppid": pa.int64(), "size": pa.int64(), "kind": pa.string()}
    columns = {
        name: pa.array([event[name] for event in events], of) for name, of in {**names, "path": pa.string()}.items()
    }
    times = pa.array([event["time"] * 1_000_000 for event in events], pa.timestamp("us", "UTC"))
    found: list[list[int]] = []
    for row in eql(query, pa.table({"@timestamp": times, **columns})).to_pylist():
        if row.get("event_number", 1) == 1:
            found.append([])
        found[-1].append(row["n"])
    return found


@given(
    given_events=EVENTS,
    condition=CONDITIONS,
    pipe=st.sampled_from(["", " | head 2", " | tail 3", " | unique kind, pid"]),
)
def test_events_are_those_of_endgame(given_events: list[dict[str, Any]], condition: str, pipe: str) -> None:
    events = in_time(given_events)
    query = f"any where {condition}{pipe}"
    assert found_here(query, events) == found_by_endgame(query, events)


@given(
    given_events=EVENTS,
    kinds=st.permutations("abc").map(lambda kinds: kinds[:3]),
    size=st.integers(2, 3),
    maxspan=st.none() | st.integers(1, 6),
    keys=st.sampled_from([("", ""), (" by pid", " by pid"), (" by pid", " by ppid")]),
    until=st.booleans(),
    pipe=st.sampled_from(["", "", " | head 1", " | tail 1", " | unique size"]),
)
def test_sequences_are_those_of_endgame(
    given_events: list[dict[str, Any]],
    kinds: list[str],
    size: int,
    maxspan: int | None,
    keys: tuple[str, str],
    until: bool,
    pipe: str,
) -> None:
    events = in_time(given_events)
    steps = [f'[any where kind == "{kind}"]{keys[number > 0]}' for number, kind in enumerate(kinds[:size])]
    ending = f' until [any where kind == "{kinds[2]}"]{keys[1]}' if until and size == 2 else ""
    span = "" if maxspan is None else f" with maxspan={maxspan}s"
    query = f"sequence{span} {' '.join(steps)}{ending}{pipe}"
    ours, theirs = found_here(query, events), found_by_endgame(query, events)
    assert (ours if pipe else sorted(ours)) == (theirs if pipe else sorted(theirs))


ABSENT = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=2, max_size=4).filter(
    lambda steps: {absent for _, absent in steps} == {False, True}
)
"""The kinds of events of a sequence, and whether they are absent."""


@given(
    given_events=EVENTS,
    steps=ABSENT,
    maxspan=st.integers(1, 6),
    keys=st.sampled_from([(None, None), ("pid", "pid"), ("pid", "ppid")]),
)
def test_an_absent_event_of_endgame_is_the_next_event(
    given_events: list[dict[str, Any]],
    steps: list[tuple[str, bool]],
    maxspan: int,
    keys: tuple[str | None, str | None],
) -> None:
    """This is the cause of all differences in sequences: :func:`test_where_absent_events_differ` has one of each kind."""
    events = in_time(given_events)
    written, listed = [], []
    for number, (kind, absent) in enumerate(steps):
        key = keys[number > 0]
        written.append(f'{"!" if absent else ""}[any where kind == "{kind}"]{f" by {key}" if key else ""}')
        listed.append(
            Step(
                lambda event, kind=kind: event["kind"] == kind,  # type: ignore[misc]
                lambda event, key=key: key and event[key],  # type: ignore[misc]
                absent,
            )
        )
    query = f"sequence with maxspan={maxspan}s {' '.join(written)}"
    expected = [[event["n"] for event in chain] for chain in reference.sequences(events, listed, maxspan)]
    assert sorted(found_by_endgame(query, events)) == sorted(expected)


A, B, NO_X = '[any where kind == "a"]', '[any where kind == "b"]', '![any where kind == "x"]'


@pytest.mark.parametrize(
    ("query", "kinds", "ours", "theirs"),
    [
        # Between two events, Endgame's engine looks at the next event alone, and needs one.
        (f"{A} {NO_X} {B}", "acxb", [], [[0, 3]]),
        (f"{A} {NO_X} {B}", "ab", [[0, 1]], []),
        (f"{A} {NO_X} {B}", "abb", [[0, 1]], [[0, 2]]),
        # At the end, it does not wait for maxspan.
        (f"{A} {NO_X}", "acx", [], [[0]]),
        (f"{A} {NO_X}", "a", [[0]], []),
        (f"{A} {NO_X}", "abbbbbx", [[0]], [[0]]),
        # At the beginning, it looks at the event before, and needs one.
        (f"{NO_X} {A}", "xca", [], [[2]]),
        (f"{NO_X} {A}", "a", [[0]], []),
        (f"{NO_X} {A} {B}", "cacxab", [], [[4, 5]]),
    ],
)
def test_where_absent_events_differ(query: str, kinds: str, ours: list[list[int]], theirs: list[list[int]]) -> None:
    fields = {"pid": 1, "ppid": 1, "size": 0, "path": ""}
    events = [{"n": number, "time": number, "kind": kind, **fields} for number, kind in enumerate(kinds)]
    query = f"sequence with maxspan=3s {query}"
    assert (found_here(query, events), found_by_endgame(query, events)) == (ours, theirs)


@pytest.mark.parametrize(
    ("condition", "ours", "theirs"),
    [
        ('match(path, "c:")', False, True),
        ('match(path, "c:.*")', True, True),
        ('wildcard(path, "c:?b.dll")', True, False),
        ('between(path, "q", ".") == ""', True, False),
        ('between(path, "q", ".") == null', False, True),
        ('between(path, "", ".") == path', True, False),
    ],
)
def test_where_functions_differ(condition: str, ours: bool, theirs: bool) -> None:
    events = in_time([{"gap": 0, "kind": "a", "pid": 1, "ppid": 1, "size": 0, "path": "c:\\b.dll"}])
    query = f"any where {condition}"
    assert (found_here(query, events), found_by_endgame(query, events)) == ([[0]] * ours, [[0]] * theirs)
