"""Sequences, compared with the state machine that Elasticsearch describes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import eql
from asterism.errors import ExpressionError, UnsupportedSyntaxError
from tests.reference.eql import Step, sequences

EVENTS = st.lists(
    st.fixed_dictionaries(
        {"gap": st.integers(0, 3), "kind": st.sampled_from("abcx"), "pid": st.integers(1, 2), "ppid": st.integers(1, 2)}
    ),
    max_size=14,
)
# Some conditions are true of the same events.
KINDS = st.sampled_from(["a", "b", "c", "ab", "abc"])
SEQUENCES = st.fixed_dictionaries(
    {
        "steps": st.lists(KINDS, min_size=2, max_size=4),
        "absent": st.booleans(),
        "until": st.none() | st.sampled_from(["x", "ax"]),
        "maxspan": st.none() | st.integers(1, 6),
        "keys": st.sampled_from(["none", "same", "different"]),
    }
)


def written(query: dict[str, Any]) -> str:
    def event(kinds: str, by: str, sign: str = "[") -> str:
        listed = ", ".join(f'"{kind}"' for kind in kinds)
        return f"{sign}any where kind in ({listed})]" + (f" by {by}" if query["keys"] == "different" else "")

    steps = [event(kinds, "ppid" if number else "pid") for number, kinds in enumerate(query["steps"])]
    if query["absent"]:
        steps.insert(-1, event("x", "ppid", "!["))
    by = " by pid" if query["keys"] == "same" else ""
    span = "" if query["maxspan"] is None else f" with maxspan={query['maxspan']}s"
    until = "" if query["until"] is None else f" until {event(query['until'], 'ppid')}"
    return f"sequence{by}{span} {' '.join(steps)}{until}"


def step(query: dict[str, Any], kinds: str, by: str, *, absent: bool = False) -> Step:
    name = {"none": None, "same": "pid", "different": by}[query["keys"]]
    return Step(lambda event: event["kind"] in kinds, lambda event: None if name is None else event[name], absent)


@given(given_events=EVENTS, query=SEQUENCES)
def test_sequences_are_those_of_the_reference(given_events: list[dict[str, Any]], query: dict[str, Any]) -> None:
    query["maxspan"] = 5 if query["absent"] and query["maxspan"] is None else query["maxspan"]
    events, time = [], 0
    for number, event in enumerate(given_events):
        time += event["gap"]
        events.append({"number": number, "time": time, **event})
    steps = [step(query, kinds, "ppid" if number else "pid") for number, kinds in enumerate(query["steps"])]
    if query["absent"]:
        steps.insert(-1, step(query, "x", "ppid", absent=True))
    until = None if query["until"] is None else step(query, query["until"], "ppid")
    expected = [[event["number"] for event in found] for found in sequences(events, steps, until, query["maxspan"])]
    columns = {name: pa.array([event[name] for event in events], pa.int64()) for name in ("number", "pid", "ppid")}
    table = pa.table(
        {
            **columns,
            "kind": pa.array([event["kind"] for event in events], pa.string()),
            "time": pa.array([event["time"] * 1_000_000 for event in events], pa.timestamp("us", "UTC")),
        }
    )
    rows = eql(written(query), table, time="time").to_pylist()
    found: list[list[int]] = []
    for row in rows:
        if row["event_number"] == 1:
            found.append([])
        found[-1].append(row["number"])
    assert sorted(found) == sorted(expected)
    assert [events[numbers[-1]]["time"] for numbers in found] == sorted(
        events[numbers[-1]]["time"] for numbers in found
    )


def table(*kinds: str) -> pa.Table:
    times = pa.array([number * 1_000_000 for number in range(len(kinds))], pa.timestamp("us", "UTC"))
    return pa.table({"@timestamp": times, "kind": list(kinds), "n": list(range(len(kinds)))})


@pytest.mark.parametrize(
    ("query", "kinds", "expected"),
    [
        ('[any where kind == "a"] with runs=3 [any where kind == "b"]', "aabb", []),
        ('[any where kind == "a"] with runs=2 [any where kind == "b"]', "aaab", [1, 2, 3]),
        ('with maxspan=2s [any where kind == "a"] ![any where kind == "b"]', "axxxaxb", [0]),
        ('with maxspan=2s [any where kind == "a"] [any where kind == "b"]', "axbaxxb", [0, 2]),
        ('with maxspan=500ms [any where kind == "a"] [any where kind == "b"]', "ab", []),
        ('[any where kind == "a"] [any where kind == "b"] | head 1', "abab", [0, 1]),
        ('[any where kind == "a"] [any where kind == "b"] | tail 1', "abab", [2, 3]),
    ],
)
def test_sequences(query: str, kinds: str, expected: list[int]) -> None:
    assert eql(f"sequence {query}", table(*kinds))["n"].to_pylist() == expected


def test_sequences_are_counted() -> None:
    query = 'sequence [any where kind == "a"] [any where kind == "b"] | count'
    assert eql(query, table(*"abab")).to_pylist() == [{"count": 2}]


@pytest.mark.parametrize(
    "query",
    [
        'sequence with maxspan=1s ![any where kind == "a"] [any where kind == "b"]',
        'sequence with maxspan=1s [any where true] ![any where kind == "a"] [any where true] [any where true]',
        "sample by kind [any where true] [any where true]",
        "sequence [any where true] [any where true] | unique kind",
    ],
)
def test_what_is_not_supported(query: str) -> None:
    with pytest.raises(UnsupportedSyntaxError, match=r"not supported|supported only"):
        eql(query, table("a"))


def test_an_event_does_not_follow_itself() -> None:
    events = pa.table({"@timestamp": [1, 2], "pid": [5, 6], "ppid": [5, 5]})
    query = "sequence [any where true] by pid [any where true] by ppid"
    assert eql(query, events)["pid"].to_pylist() == [5, 6]
    with pytest.raises(ExpressionError, match="unknown column 'user'"):
        eql("sequence by user [any where true] [any where true]", events)
