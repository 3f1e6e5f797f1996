"""Sequences, compared with the state machine that Elasticsearch describes."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import eql, match_recognize
from asterism.elastic import sequences as sequences_as_clauses
from asterism.elastic.rules import clause_of_rule
from asterism.elastic.samples import chosen
from asterism.errors import ExpressionError
from asterism.row_patterns.clause.reading import MAX_CLAUSE
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
        "absent": st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["x", "c", "ax"])), max_size=2),
        "until": st.none() | st.sampled_from(["x", "ax"]),
        "maxspan": st.none() | st.integers(1, 6),
        "keys": st.sampled_from(["none", "same", "different", "alternating"]),
    }
)
Query = dict[str, Any]
DIFFERENT = ("different", "alternating")


def steps_of(query: Query) -> list[tuple[str, str, bool]]:
    """The events of a query: their kinds, their key, and whether they are absent."""
    second = {"alternating": lambda number: number % 2 == 1}.get(query["keys"], bool)
    steps = [(kinds, "ppid" if second(number) else "pid", False) for number, kinds in enumerate(query["steps"])]
    for place, kinds in query["absent"]:
        steps.insert(min(place, len(steps)), (kinds, "ppid", True))
    return steps


def written(query: Query) -> str:
    def event(kinds: str, by: str, sign: str = "[") -> str:
        listed = ", ".join(f'"{kind}"' for kind in kinds)
        return f"{sign}any where kind in ({listed})]" + (f" by {by}" if query["keys"] in DIFFERENT else "")

    steps = " ".join(event(kinds, by, "![" if absent else "[") for kinds, by, absent in steps_of(query))
    by = " by pid" if query["keys"] == "same" else ""
    span = "" if query["maxspan"] is None else f" with maxspan={query['maxspan']}s"
    until = "" if query["until"] is None else f" until {event(query['until'], 'ppid')}"
    return f"sequence{by}{span} {steps}{until}"


def step(query: Query, kinds: str, by: str, absent: bool = False) -> Step:
    name = {"none": None, "same": "pid"}.get(query["keys"], by)
    return Step(lambda event: event["kind"] in kinds, lambda event: None if name is None else event[name], absent)


def in_time(given_events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    events, time = [], 0
    for number, event in enumerate(given_events):
        time += event["gap"]
        events.append({"number": number, "time": time, **event})
    return events


def table_of(events: list[dict[str, Any]]) -> pa.Table:
    columns = {name: pa.array([event[name] for event in events], pa.int64()) for name in ("number", "pid", "ppid")}
    times = pa.array([event["time"] * 1_000_000 for event in events], pa.timestamp("us", "UTC"))
    return pa.table(
        {**columns, "kind": pa.array([event["kind"] for event in events], pa.string()), "@timestamp": times}
    )


def expected_of(query: Query, events: list[dict[str, Any]]) -> list[list[int]]:
    steps = [step(query, *each) for each in steps_of(query)]
    until = None if query["until"] is None else step(query, query["until"], "ppid")
    return [[event["number"] for event in found] for found in sequences(events, steps, until, query["maxspan"])]


def prepared(query: Query) -> None:
    """Absent events need a time."""
    if query["absent"] and query["maxspan"] is None:
        query["maxspan"] = 5


@given(given_events=EVENTS, query=SEQUENCES)
def test_sequences_are_those_of_the_reference(given_events: list[dict[str, Any]], query: Query) -> None:
    prepared(query)
    events = in_time(given_events)
    rows = eql(written(query), table_of(events)).to_pylist()
    found: list[list[int]] = []
    for row in rows:
        if row["event_number"] == 1:
            found.append([])
        found[-1].append(row["number"])
    assert sorted(found) == sorted(expected_of(query, events))
    assert [events[numbers[-1]]["time"] for numbers in found] == sorted(
        events[numbers[-1]]["time"] for numbers in found
    )


@given(given_events=EVENTS, query=SEQUENCES)
def test_a_rule_finds_the_sequences_of_the_reference(given_events: list[dict[str, Any]], query: Query) -> None:
    """Its clause has no copies of rows: keys that differ are compared with those of the first event."""
    query["maxspan"] = query["maxspan"] or 5
    prepared(query)
    if query["keys"] in DIFFERENT and steps_of(query)[0][2]:
        query["absent"] = []
    events = in_time(given_events)
    clause = clause_of_rule(
        written(query), ("LAST(event_1.number) AS first", f"event_{len(query['steps'])}.number AS last")
    )
    partition = clause.startswith("PARTITION BY")
    head, _, rest = clause.partition("\n") if partition else ("", "", clause)
    found = match_recognize(table_of(events), f"{head}\nORDER BY `@timestamp`\n{rest}").matches
    pairs = [(numbers[0], numbers[-1]) for numbers in expected_of(query, events)]
    assert sorted(zip(found["first"].to_pylist(), found["last"].to_pylist(), strict=True)) == sorted(pairs)


RUNS = st.lists(st.tuples(KINDS, st.integers(1, 5)), min_size=1, max_size=2).map(
    lambda runs: [kinds for kinds, count in runs for _ in range(count)]
)


@given(
    given_events=st.lists(EVENTS, max_size=3).map(lambda lists: [event for events in lists for event in events]),
    query=SEQUENCES,
    steps=RUNS.filter(lambda steps: len(steps) > 1),
)
def test_events_that_share_a_variable_are_those_of_the_reference(
    given_events: list[dict[str, Any]], query: Query, steps: list[str]
) -> None:
    query["steps"] = steps
    if query["keys"] == "alternating":  # no event then has the keys of the one before
        query["keys"] = "different"
    with patch.object(sequences_as_clauses, "MAX_WRITTEN_OUT", 0):
        test_sequences_are_those_of_the_reference.hypothesis.inner_test(given_events, query)
        test_a_rule_finds_the_sequences_of_the_reference.hypothesis.inner_test(given_events, query)


def test_a_sequence_has_up_to_100_runs() -> None:
    query = 'with maxspan=1h [any where kind == "a"] with runs=100 [any where kind == "b"]'
    kinds = "x".join("a" * 100) + "xxb"
    assert eql(f"sequence {query}", table(*kinds))["n"].to_pylist() == [*range(0, 200, 2), 201]
    assert eql(f"sequence {query}", table(*kinds[1:])).num_rows == 0
    clause = clause_of_rule(f"sequence {query}", ["event_1.n AS first", "event_100.n AS last", "event_101.n AS b"])
    found = match_recognize(table(*kinds), f"ORDER BY `@timestamp`\n{clause}").matches
    assert found.select(["first", "last", "b"]).to_pylist() == [{"first": 0, "last": 198, "b": 201}]
    with pytest.raises(ExpressionError, match="the events 2 to 99 have no names of their own"):
        clause_of_rule(f"sequence {query}", ["AVG(event_7.n) AS middle"])


def test_a_long_condition_is_written_once_for_the_events_that_share_a_variable() -> None:
    condition = " or ".join(f'kind : "{number:02}*"' for number in range(300))
    query = f'sequence with maxspan=1m [any where kind == "a" or {condition}] with runs=4'
    assert len(clause_of_rule(query)) < MAX_CLAUSE
    assert eql(query, table(*"abaaa"))["event_number"].to_pylist() == [1, 2, 3, 4]


def test_keys_may_be_the_same_or_missing() -> None:
    query = "sequence by ?user, ?host, kind, kind with maxspan=9s [any where n < 2] [any where n > 1]"
    assert eql(query, table(*"abba"))["n"].to_pylist() == [1, 2, 0, 3]
    clause_of_rule(query)


def test_sequences_that_end_at_the_same_time_are_in_the_order_of_their_events() -> None:
    events = pa.table({"@timestamp": [1, 2, 3, 3], "pid": [1, 2, 1, 2], "n": [0, 1, 2, 3]})
    query = "sequence by pid [any where n < 2] [any where n > 1]"
    assert eql(query, events)["n"].to_pylist() == [0, 2, 1, 3]
    assert eql(query, events.take([1, 0, 3, 2]))["n"].to_pylist() == [1, 3, 0, 2]


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
        # As in Elastic's description of pending sequences: the latest one of each state is kept.
        ('[any where kind == "a"] [any where kind == "b"] [any where kind == "c"]', "aabbcc", [1, 2, 4]),
        ('[any where kind == "a"] [any where kind == "b"] [any where kind == "c"]', "abaxbc", [2, 4, 5]),
        # An event of until after the sequence does not matter, and one between its events does.
        ('[any where kind == "a"] [any where kind == "b"] until [any where kind == "c"]', "abcacb", [0, 1]),
        # It ends also the sequence of which it is an event, but not if it is the last one.
        ('[any where kind == "a"] [any where kind == "b"] until [any where n == 0]', "aabb", [1, 2]),
        ('[any where kind == "a"] [any where kind == "b"] until [any where n == 1]', "ababab", [0, 1, 2, 3, 4, 5]),
        ('[any where kind == "a"] with runs=2 [any where kind == "b"] until [any where n == 1]', "aabaab", [3, 4, 5]),
        # Absent events: at the beginning, between events, several, and next to a single event.
        ('with maxspan=2s ![any where kind == "x"] [any where kind == "a"]', "axaxbba", [0, 6]),
        ('with maxspan=3s ![any where kind == "x"] [any where kind == "a"] [any where kind == "b"]', "xabxxxxab", []),
        (
            'with maxspan=3s ![any where kind == "x"] [any where kind == "a"] [any where kind == "b"]',
            "abxccab",
            [0, 1, 5, 6],
        ),
        (
            'with maxspan=9s [any where kind == "a"] ![any where kind == "x"] [any where kind == "b"] '
            '![any where kind == "y"] [any where kind == "c"]',
            "axbcaybxcabyc",
            [4, 6, 8],
        ),
        (
            'with maxspan=9s [any where kind == "a"] ![any where kind == "x"] ![any where kind == "y"] '
            '[any where kind == "b"]',
            "axbaybab",
            [6, 7],
        ),
        (
            'with maxspan=2s [any where kind == "a"] ![any where kind == "b"] until [any where kind == "c"]',
            "acxxab",
            [0],
        ),
        (
            'with maxspan=9s [any where kind == "a"] ![any where kind == "x"] with runs=3 [any where kind == "b"]',
            "axbab",
            [3, 4],
        ),
        # At both ends, two absent events within maxspan of each other drop a sequence.
        ('with maxspan=3s ![any where kind == "x"] [any where kind == "a"] ![any where kind == "y"]', "xaybay", [4]),
        (
            'with maxspan=3s ![any where kind == "x"] [any where kind == "a"] ![any where kind == "y"]',
            "xabbyaxa",
            [1, 5, 7],
        ),
        (
            'with maxspan=3s ![any where kind == "x"] [any where kind == "a"] [any where kind == "b"] '
            '![any where kind == "y"]',
            "xabybxxab",
            [7, 8],
        ),
        ('[any where kind == "a"] [any where kind == "b"] | unique n % 4', "abxxabxabx", [0, 1, 7, 8]),
        ('[any where kind == "a"] [any where kind == "b"] | head 1', "abab", [0, 1]),
        ('[any where kind == "a"] [any where kind == "b"] | tail 1', "abab", [2, 3]),
    ],
)
def test_sequences(query: str, kinds: str, expected: list[int]) -> None:
    assert eql(f"sequence {query}", table(*kinds))["n"].to_pylist() == expected


def test_sequences_are_counted() -> None:
    query = 'sequence [any where kind == "a"] [any where kind == "b"] | count'
    assert eql(query, table(*"abab")).to_pylist() == [{"count": 2}]


def test_keys_of_different_types_are_compared_by_their_values() -> None:
    events = pa.table({"@timestamp": [1, 2, 3], "pid": [10, 11, 12], "ppid": [10.0, 10.0, 11.5]})
    query = "sequence [any where true] by pid [any where true] by ppid"
    assert eql(query, events)["pid"].to_pylist() == [10, 11]
    texts = events.set_column(2, "ppid", pa.array(["x", "10", "1"]))
    assert eql(query, texts)["pid"].to_pylist() == [10, 11]


@pytest.mark.parametrize("of", [pa.float64(), pa.decimal128(20, 1)])
def test_integer_keys_that_are_no_double_equal_no_other_number(of: pa.DataType) -> None:
    events = pa.table({"@timestamp": [1, 2], "pid": [2**53 + 1, 0], "ppid": pa.array([0, 2**53]).cast(pa.int64())})
    events = events.set_column(2, "ppid", events["ppid"].cast(of))
    query = "sequence [any where pid > 0] by pid [any where pid == 0] by ppid"
    assert eql(query, events).num_rows == 0
    assert eql(query, events.set_column(1, "pid", pa.array([2**53, 0]))).num_rows == 2


SAMPLE = "sample by kind [any where n < 4] [any where n > 1]"


def test_a_sample_has_a_different_event_for_each_item() -> None:
    found = eql(SAMPLE, table(*"aabba"))
    assert found.select(["sample", "event_number", "kind", "n"]).to_pylist() == [
        {"sample": 1, "event_number": 1, "kind": "a", "n": 0},
        {"sample": 1, "event_number": 2, "kind": "a", "n": 4},
        {"sample": 2, "event_number": 1, "kind": "b", "n": 3},
        {"sample": 2, "event_number": 2, "kind": "b", "n": 2},
    ]
    assert eql(SAMPLE + " | count", table(*"aabba")).to_pylist() == [{"count": 2}]
    assert eql(SAMPLE, table(*"ab")).num_rows == 0
    events = pa.table({"@timestamp": [1, 2, 3], "pid": [10, None, 12], "ppid": [1.0, 10.0, None]})
    by = "sample [any where true] by pid [any where true] by ppid"
    assert eql(by, events)["@timestamp"].to_pylist() == [1, 2]
    assert eql(by.replace("by pid", "by ?pid").replace("by ppid", "by ?ppid"), events)["sample"].to_pylist() == [
        1,
        1,
        2,
        2,
    ]


@given(st.lists(st.lists(st.integers(0, 4), max_size=4, unique=True), min_size=1, max_size=4))
def test_a_sample_is_found_if_there_is_one(candidates: list[list[int]]) -> None:
    ways = [way for way in product(*candidates) if len(set(way)) == len(way)]
    found = chosen(candidates)
    assert (tuple(found) in ways) if found is not None else not ways


def test_an_event_does_not_follow_itself() -> None:
    events = pa.table({"@timestamp": [1, 2], "pid": [5, 6], "ppid": [5, 5]})
    query = "sequence [any where true] by pid [any where true] by ppid"
    assert eql(query, events)["pid"].to_pylist() == [5, 6]
    with pytest.raises(ExpressionError, match="unknown column 'user'"):
        eql("sequence by user [any where true] [any where true]", events)
