"""A micro-batch that is repeated gives the same rows, ids and state, whatever was published or forgotten meanwhile."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism import Pattern
from asterism.columns.groups import KEY_HASH
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.errors import InvalidEventError
from asterism.operators.operator import EVENTS, Arrival, Now, Result
from asterism.operators.state.page_numbers import SETS_PAGE
from asterism.operators.state.state_store import MemoryStore
from asterism.rules.definition.lookup_tables import LookupVersion
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.operator import PROCESSORS, DynamicCepOperator, RuleOptions
from asterism.rules.matching.result_rows import LATE, MATCHES
from asterism.rules.matching.state_pages import entries_of_page, prepared_set
from asterism.rules.sets.sets import ProcessorSet
from tests.kit import examples
from tests.rules.driver import SCHEMA, Driver, Event, at, chain, processor, table_of
from tests.rules.test_operator import AB, DIVIDES, e


class Attempts:
    """A query of which every micro-batch is attempted again and again: the stage before the exchange finds what was announced
    and what it must not miss, and each time other rules besides.
    """

    def __init__(self, key_groups: int) -> None:
        self.operator = DynamicCepOperator(
            SCHEMA, self, RuleOptions(keys=("user",), time="ts", disable_on_error=True, wants_late=True)
        )
        self.stores = [MemoryStore() for _ in range(key_groups)]
        self.rows: dict[str, list[Any]] = {name: [] for name in self.operator.output_schemas}
        self.retains: list[ProcessorSet] = []
        self.number = 0

    def retained(self) -> list[ProcessorSet]:
        return self.retains

    def expired(self, time: int) -> None:
        """Do nothing, since there is no log."""

    def read_lookup(self, version: LookupVersion) -> bytes:
        raise AssertionError("there are no lookups")

    def replaced_later(self, version: int, processors: Sequence[tuple[str, int]]) -> None:
        """Nothing is forgotten but by the attempts."""

    def micro_batch(
        self,
        new: Sequence[PatternProcessor] | None,
        events: Sequence[Event],
        watermark: int | None,
        surplus: Sequence[Sequence[PatternProcessor]],
    ) -> None:
        needed = [entry.processor for store in self.stores for entry in entries_of_page(store.read_page(SETS_PAGE))[1]]
        announced = None
        if new is not None:
            self.number += 1
            announced = ProcessorSet(self.number, tuple(new))
            needed += new
        attempts = []
        for more in surplus:
            self.retains = [ProcessorSet(1, (*more, *needed)), ProcessorSet(2, tuple(needed))]
            attempts.append(self._attempt(announced, events, watermark))
        (stores, results), *others = attempts
        for other_stores, other_results in others:
            for result, other in zip(results, other_results, strict=True):
                assert result.outputs == other.outputs
                assert (result.next_event_time, result.metrics) == (other.next_event_time, other.metrics)
            assert stores == other_stores
        self.stores = stores
        for result in results:
            for name, table in result.outputs.items():
                self.rows[name] += table.to_pylist()

    def _attempt(
        self, announced: ProcessorSet | None, events: Sequence[Event], watermark: int | None
    ) -> tuple[list[MemoryStore], list[Result]]:
        stores = copy.deepcopy(self.stores)
        prepared = self.operator.prepare(EVENTS, table_of(events)) if events else None
        results = []
        for number, store in enumerate(stores):
            arrivals = [] if announced is None else [Arrival(PROCESSORS, prepared_set(announced.to_bytes()))]
            if prepared is not None:
                hashes = prepared.column(KEY_HASH).to_numpy().view(np.uint64)
                mine = prepared.filter(pa.array(hashes % np.uint64(len(stores)) == np.uint64(number)))
                arrivals.append(Arrival(EVENTS, mine.drop_columns([KEY_HASH]) if mine.num_rows else None))
            if watermark is not None:
                arrivals.append(Arrival(EVENTS, None, watermark * 1_000_000))
            results.append(self.operator.process(store, arrivals, Now(BEFORE_TIME, 0)))
        return stores, results

    def end(self) -> None:
        for store in self.stores:
            for name, table in self.operator.process(store, [], Now(END_OF_TIME, END_OF_TIME)).outputs.items():
                self.rows[name] += table.to_pylist()


CONDITIONS = [
    "kind = 'a'", "kind = 'b'", "kind IN ('b', 'c')", "x > 0", "kind = 'a' AND 1 / x > 0", "CAST(kind AS INT) = 1", "item = 1",
]  # fmt: skip
KEYS = [None, None, ("item",), ("user", "item"), (), ("CAST(user AS INT)",), ("1 / x",)]


def rule(rng: random.Random, name: str, version: int) -> PatternProcessor:
    pattern = Pattern.begin("s0").where(rng.choice(CONDITIONS))
    for number in range(rng.randint(0, 2)):
        pattern = rng.choice([pattern.followed_by, pattern.followed_by_any, pattern.next])(f"s{number + 1}")
        pattern = pattern.where(rng.choice(CONDITIONS))
    return processor(
        name,
        version,
        pattern.within(timedelta(seconds=rng.randint(1, 20))),
        key=rng.choice(KEYS),
        timed_out=rng.random() < 0.5,
        timestamp=rng.choice([None, at(rng.randint(1, 15))]),
    )


POOL = {name: [rule(random.Random(f"{name}{n}"), name, n) for n in range(12)] for name in "pqr"}


@st.composite
def sets(draw: st.DrawFn) -> list[PatternProcessor]:
    return [draw(st.sampled_from(POOL[name])) for name in draw(st.lists(st.sampled_from("pqr"), unique=True))]


POSITIONS = st.tuples(
    st.sampled_from([None, -3, -1, 0, 1, 1, 1, 2, 2]),  # seconds after the watermark
    st.sampled_from(["ann", "bob", "1"]),
    st.integers(1, 2),
    st.sampled_from(["a", "b", "c", "1"]),
    st.sampled_from([0.0, 1.0]),
)
CALLS = st.lists(
    st.tuples(
        st.one_of(st.none(), sets()),
        st.lists(POSITIONS, max_size=8),
        st.integers(0, 4),
        st.lists(sets(), min_size=2, max_size=2),
    ),
    min_size=1,
    max_size=6,
)
SEARCH = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=examples(5, usual=12),
    suppress_health_check=list(HealthCheck),
)


@SEARCH
@given(CALLS, st.sampled_from([1, 3]))
def test_every_micro_batch_is_what_it_was(calls: list[Any], key_groups: int) -> None:
    """Its rows, its metrics and its state to the byte."""
    query, watermark = Attempts(key_groups), 0
    for new, offsets, passing, surplus in calls:
        events = [(None if far is None else watermark + far, *rest) for far, *rest in offsets]
        watermark += passing
        query.micro_batch(new, events, watermark, [[], *surplus])
    query.end()


def ids(query: Attempts | Driver) -> list[str]:
    return sorted(row["match_id"] for row in query.rows[MATCHES])


def test_a_rule_that_was_published_meanwhile_changes_no_id() -> None:
    seen = [e(200, "z"), e(200, "a"), e(201, "b"), e(230, "x")]
    published = processor("z", 1, chain("z", "x"))
    query = Attempts(2)
    query.micro_batch([AB], seen, 300, [[], [published], [DIVIDES, published]])
    both = Attempts(2)
    both.micro_batch([AB, published], seen, 300, [[]])
    found = {row["processor_id"]: row["match_id"] for row in both.rows[MATCHES]}
    assert [row["match_id"] for row in query.rows[MATCHES]] == [found["ab"]]
    assert set(found) == {"ab", "z"}


@pytest.mark.parametrize("more", [[], ["a"], ["z"], ["a", "z"], ["z", "b", "a"]])
def test_a_late_event_is_told_once_if_a_rule_asks_for_it(more: list[str]) -> None:
    """Whichever keys it would go to for rules that are not in force."""
    here = [AB, processor("by item", 1, chain("b", "a"), key=("item",))]
    # In other words than the rules that are here: what these ask of the event must be known all the same.
    asks = {kind: Pattern.begin("one").where(f"upper(kind) = '{kind.upper()}'") for kind in more}
    surplus = [processor(f"more {kind}", 1, asks[kind], key=(f"'{kind}'", "user")) for kind in more]
    surplus += [processor(f"less {kind}", 1, asks[kind], key=(f"'{kind}' || item",)) for kind in more]
    query = Attempts(3)
    query.micro_batch(here, [e(50, "x")], 50, [surplus])
    query.micro_batch(None, [e(10, "a"), e(11, "z"), e(12, "b"), e(13, "x"), e(60, "a")], 50, [surplus, []])
    assert [row["kind"] for row in query.rows[LATE]] in (["a", "b"], ["b", "a"])


def test_a_key_that_fails_is_no_matter_to_a_rule_that_does_not_ask_for_the_event() -> None:
    key = ("CAST(user AS INT)",)
    mine, other = processor("mine", 1, chain("a", "b"), key=key), processor("other", 1, chain("x", "y"), key=key)
    events = [e(1, "a", "7"), e(2, "x", "ann"), e(3, "b", "7"), e(4, "x", "!")]
    driver = Driver(disable_on_error=True).batch(events, sets=[mine, other], watermark=4)
    assert [row["processor_id"] for row in driver.rows["errors"]] == ["other"]
    assert driver.found == [("mine", 1, ("7",), "a1 b3")]


@pytest.mark.parametrize("size", [7])
def test_however_many_events_fail_none_but_these_do(size: int) -> None:
    """And those that do not fail are in other key groups."""
    events = [e(n, "a", f"u{n % 9}", x=float(n % 9 == 0)) for n in range(1, 100)]
    events = [event if event[1] == "u0" else (*event[:4], 1.0) for event in events]
    events = [(*event[:4], 0.0) if event[1] == "u0" else event for event in events]
    driver = Driver(disable_on_error=True, key_groups=16).batch(sets=[DIVIDES, AB])
    for begin in range(0, len(events), size):
        driver.batch(events[begin : begin + size], watermark=begin)
    last = [e(120, "b", f"u{n}") for n in range(9)]
    driver.batch(last).end()
    (error,) = driver.rows["errors"]
    assert error["time"] == at(9)
    failed_with = {row[2] for row in driver.found if row[0] == "ab"} - {
        row[2] for row in driver.found if row[0] == "divides"
    }
    assert ("u0",) in failed_with
    alone = Driver(disable_on_error=True, key_groups=16).batch(sets=[DIVIDES, AB])
    for event in events:
        alone.batch([event])
    assert alone.batch(last).end().found == driver.found


def test_an_event_without_a_time_is_late_where_late_events_are_taken() -> None:
    events = [e(1, "a"), (None, "ann", 7, "z", 0.0), (None, "bob", 7, "a", 0.0), e(2, "b")]
    driver = Driver(wants_late=True, key_groups=3).batch(events, sets=[AB], watermark=2).end()
    assert driver.found == [("ab", 1, ("ann",), "a1 b2")]
    assert sorted((row["ts"], row["kind"]) for row in driver.rows[LATE]) == [(None, "a"), (None, "z")]
    assert driver.metrics["late_elements"] == 2
    with pytest.raises(InvalidEventError, match='the event time "ts" of 2 events is null') as caught:
        Driver().batch(events, sets=[AB])
    assert "late output" in (caught.value.hint or "")
    # In processing time there is none.
    assert Driver(time=None).batch(events, sets=[AB], processing_time=5).end().rows[LATE] == []


def test_without_any_rule_too() -> None:
    driver = Driver(wants_late=True).batch([(None, "ann", 7, "z", 0.0)])
    assert len(driver.rows[LATE]) == 1
