"""Versions that wait for their time: which is in force when, what is withdrawn, and that it does not matter who looked when."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism.columns.time import BEFORE_TIME
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.sets import Entry, ProcessorSet, next_versions, passed, updated
from tests.kit import examples
from tests.rules.driver import Driver, at, chain, processor
from tests.rules.test_operator import AB, e

SECOND = 1_000_000
SEARCH = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def version(number: int, second: int | None = None, name: str = "ab", *, shadow: bool = False) -> PatternProcessor:
    first, last = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "a")][number % 4]
    pattern = chain(first, last)
    return processor(name, number, pattern, timestamp=None if second is None else at(second), shadow=shadow)


V1, V2, V3 = version(1), version(2, 10), version(3, 20)


def spans(entries: Sequence[Entry]) -> list[tuple[int, int | None, int | None]]:
    """Version, and the seconds from which and until which it is in force."""

    def seconds(time: int | None) -> int | None:
        return None if time is None else time // SECOND

    return [(one.processor.version, seconds(one.begins), seconds(one.until)) for one in entries]


def following(before: ProcessorSet, listed: Sequence[PatternProcessor]) -> ProcessorSet:
    last, earlier, added = next_versions(before, listed)
    return ProcessorSet(before.version + 1, last, earlier=earlier, added=added)


def after(*steps: Sequence[PatternProcessor] | int) -> list[Entry]:
    """The entries after sets, between which event time comes to some second."""
    entries: list[Entry] = []
    time, newest = BEFORE_TIME, ProcessorSet(0, ())
    for step in steps:
        if isinstance(step, int):
            time = step * SECOND
        else:
            newest = following(newest, step)
            entries = updated(entries, newest, time)
    return passed(entries, time)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([[V1], [V2]], [(1, None, 10), (2, 10, None)], id="scheduled"),
        pytest.param([[V1], [V2], [V3]], [(1, None, 10), (2, 10, 20), (3, 20, None)], id="followed by one for later"),
        pytest.param([[V1], [V3], [V2]], [(1, None, 10), (2, 10, None)], id="replaced by one for earlier"),
        pytest.param([[V1], [V2], [version(4)]], [(4, None, None)], id="replaced by one for now"),
        pytest.param([[V1], [V2], [V1]], [(1, None, None)], id="cancelled"),
        pytest.param([[V1], [V2], [V1], [V2]], [(1, None, 10), (2, 10, None)], id="cancelled and scheduled again"),
        pytest.param([[V1], [V2], []], [], id="removed with what waited"),
        pytest.param([[V1], [V2], [], [V2]], [(2, 10, None)], id="what vanished is gone for good"),
        pytest.param([[V1], [V2], 9, [V1]], [(1, None, None)], id="cancelled just before its time"),
        pytest.param([[V1], [V2], 10, [V1]], [(1, None, None)], id="at its time, version 1 is a new one"),
        pytest.param([[V1], [V2], 10, [V3]], [(2, 10, 20), (3, 20, None)], id="in force, then replaced"),
        pytest.param([[V1], [V2], 10, [V3], [V2]], [(2, 10, None)], id="cancelled, back to the second"),
        pytest.param([[V1], [V2], [V3], 10, [V3]], [(2, 10, 20), (3, 20, None)], id="the first one's time passes"),
        pytest.param([[V2]], [(2, 10, None)], id="nothing is in force before the first"),
        pytest.param([[V2], [V3]], [(2, 10, 20), (3, 20, None)], id="one after the other"),
        pytest.param([[V1], [V2], [V3], [V2]], [(1, None, 10), (2, 10, None)], id="the last is withdrawn"),
        pytest.param([[V1], [V2], [V1], [V3]], [(1, None, 20), (3, 20, None)], id="withdrawn, then one for later"),
        pytest.param(
            [[V1], [V2], [version(4, 10)]], [(1, None, 10), (4, 10, None)], id="replaced by one for the same time"
        ),
        pytest.param([[V1], 15, [V2]], [(2, 10, None)], id="its time is over: at once"),
        pytest.param([[V1, V2, V3]], [(1, None, 10), (2, 10, 20), (3, 20, None)], id="all at once"),
        pytest.param([15, [V1, V2, V3]], [(2, 10, 20), (3, 20, None)], id="all at once, the first one's time is over"),
        pytest.param([[V1, V2, V3], 15, [V1, V2, V3]], [(2, 10, 20), (3, 20, None)], id="read again"),
        pytest.param([[V1], [V1, V2], [V1, V2, V3]], [(1, None, 10), (2, 10, 20), (3, 20, None)], id="one by one"),
        pytest.param([[V3], [V1, V2, V3]], [(1, None, 10), (2, 10, 20), (3, 20, None)], id="earlier ones follow"),
        pytest.param([[V1, V2, V3], [V1, V3]], [(1, None, 20), (3, 20, None)], id="one of them is removed"),
        pytest.param([[V1, V2, V3], [V3]], [(1, None, 20), (3, 20, None)], id="one waited, one is in force until then"),
        pytest.param([[V1, V2, V3], 15, [V3]], [(2, 10, 20), (3, 20, None)], id="removed while it is in force"),
        pytest.param(
            [[V1, V2, V3], 15, [V1, V3]], [(1, None, 20), (3, 20, None)], id="the one before it is there again"
        ),
        pytest.param([[V1, V2, V3], [V3], [V2, V3]], [(1, None, 10), (2, 10, 20), (3, 20, None)], id="and comes again"),
        pytest.param([[V1, V2], [V2, V3]], [(1, None, 10), (2, 10, 20), (3, 20, None)], id="the first one is removed"),
        pytest.param([[V1], 5, [V2], [V3], [V2], [V3], 12], [(2, 10, 20), (3, 20, None)], id="to and fro"),
    ],
)
def test_what_is_in_force(
    steps: Sequence[Sequence[PatternProcessor] | int], expected: list[tuple[int, int | None, int | None]]
) -> None:
    assert spans(after(*steps)) == expected


def test_what_stays_is_the_same_entry_and_what_comes_again_is_not() -> None:
    def since(*steps: Sequence[PatternProcessor] | int) -> int:
        return after(*steps)[0].since

    assert since([V1], [V2], [V1]) == 1
    assert since([V1], [V2], 10, [V1]) == 3
    assert since([V1], [V2], [V3], 10, [V2]) == 2
    assert since([V1], [V2], [V3], [V1]) == 1
    assert since([V1], [], [V1]) == 3
    other = processor("ab", 1, chain("c", "d"))  # one version, two contents
    assert since([V1], [V2], [other]) == 3
    (disabled,) = updated([replace(after([V1], [V2])[0], disabled=True)], ProcessorSet(3, (V1,)), 0)
    assert disabled.disabled


def test_entries_of_an_earlier_release_open() -> None:
    """Which let versions wait that no set had any more."""
    third = PatternProcessor("ab", 3, V3.pattern, timestamp=at(20))
    written = [
        Entry(V1, 1, None, 10 * SECOND),
        Entry(V2, 2, 10 * SECOND, 20 * SECOND),
        Entry(third, 3, 20 * SECOND),
    ]
    entries = [Entry.from_dict(entry.to_dict()) for entry in written]
    assert spans(updated(entries, ProcessorSet(4, (third,)), 5 * SECOND)) == [(1, None, 20), (3, 20, None)]
    assert spans(updated(entries, ProcessorSet(4, (third,)), 10 * SECOND)) == [(2, 10, 20), (3, 20, None)]


def test_versions_that_wait_come_into_force_in_turn() -> None:
    scheduled = processor("ab", 2, chain("b", "c"), timestamp=at(10))
    instead = processor("ab", 3, chain("a", "c"), timestamp=at(20))
    events = [e(11, "a"), e(12, "b"), e(13, "c"), e(21, "a"), e(22, "c")]
    expected = [("ab", 2, ("ann",), "b12 c13"), ("ab", 3, ("ann",), "a21 c22")]
    driver = Driver().batch(sets=[AB]).batch(sets=[scheduled]).batch(sets=[instead])
    assert driver.batch(events).end().found == expected
    # Also if one micro-batch brings all of them, unless the version is withdrawn in between.
    driver = Driver().batch(sets=[AB]).batch(sets=[instead], between=[[scheduled]])
    assert driver.batch(events).end().found == expected
    driver = Driver().batch(sets=[AB]).batch(sets=[instead], between=[[scheduled], [AB]])
    assert driver.batch(events).end().found == [("ab", 1, ("ann",), "a11 b12"), ("ab", 3, ("ann",), "a21 c22")]


def test_what_was_scheduled_can_be_cancelled_and_what_runs_goes_on() -> None:
    scheduled = processor("ab", 2, chain("b", "c"), timestamp=at(1000))
    driver = Driver().batch([e(1, "a")], sets=[AB], watermark=1).batch([e(2, "x")], sets=[scheduled], watermark=2)
    driver.batch([e(3, "b")], sets=[AB], watermark=3)
    assert driver.end().found == [("ab", 1, ("ann",), "a1 b3")]


def test_in_processing_time_the_clock_decides_what_is_in_force() -> None:
    scheduled = processor("ab", 2, chain("b", "c"), timestamp=at(10))
    driver = (
        Driver(time=None).batch([e(1, "a")], sets=[AB], processing_time=1).batch(sets=[scheduled], processing_time=2)
    )
    driver.batch([e(1, "b")], sets=[AB], processing_time=9)
    assert driver.found == [("ab", 1, ("ann",), "a1 b1")]
    driver.batch([e(1, "a")], sets=[scheduled], processing_time=9).batch(processing_time=11)
    driver.batch([e(1, "b")], sets=[AB], processing_time=12)
    assert len(driver.found) == 1


def test_key_groups_say_what_is_in_force_until_the_time_of_another() -> None:
    """So that events are copied for it until then, and no longer."""
    driver = Driver(key_groups=2).batch(sets=[V1]).batch([e(1, "a")], sets=[V2], watermark=1)
    assert driver.sets.replaced == [(2, [("ab", 1)])]
    driver.batch(sets=[V3]).batch(watermark=15)
    assert driver.sets.replaced[1:] == [(3, [("ab", 1), ("ab", 2)])]
    driver.batch(watermark=20).batch()
    assert driver.sets.replaced[2:] == [(3, [])]
    driver.batch(sets=[version(4, 25)], watermark=30).batch()
    assert driver.sets.replaced[3:] == [(4, [])]
    driver.batch(sets=[version(5)]).batch(sets=[version(6, 7)])
    assert driver.sets.replaced[4:] == [(6, [])]


SCHEDULES = st.one_of(st.none(), st.integers(1, 30))
CANDIDATES = st.builds(version, st.integers(1, 6), SCHEDULES, st.sampled_from(["p", "q"]))
SETS = st.lists(CANDIDATES, max_size=2, unique_by=lambda one: one.id)


@settings(SEARCH, max_examples=examples(100, usual=300))
@given(
    st.lists(st.tuples(SETS, st.integers(0, 10)), max_size=4),
    st.lists(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 20)), min_size=2, max_size=2), max_size=3),
    SETS,
    st.data(),
)
def test_the_answer_does_not_depend_on_who_looked_when(
    history: list[tuple[list[PatternProcessor], int]],
    between: list[list[tuple[int, int]]],
    last: list[PatternProcessor],
    data: st.DataObject,
) -> None:
    """Whichever of the sets a micro-batch brings: the versions that wait are those of all of them."""
    entries: list[Entry] = []
    time = number = 0
    newest = ProcessorSet(0, ())
    for processors, passing in history:
        number += 1
        time += passing
        newest = following(newest, processors)
        entries = updated(entries, newest, time * SECOND)
    had = {entry.processor.id: entry.processor for entry in entries}
    polls = []
    for at_, chosen in enumerate(between):
        now = tuple(
            # Other versions than those that are there, each for later, of the ids that are in the last set.
            version(10 + number_, time + ahead, one.id) if one.id in had else one
            for one, (number_, ahead) in zip(last, chosen, strict=False)
        )
        polls.append((number + 1 + at_, now))
    brought = data.draw(st.sets(st.sampled_from([number for number, _ in polls])) if polls else st.just(set()))

    def entries_after(brought: Collection[int]) -> list[Entry]:
        found, before = entries, newest
        for number_, processors in [*polls, (99, tuple(last))]:
            before = following(before, processors)
            if number_ in brought or number_ == 99:
                found = updated(found, before, time * SECOND)
        return found

    def summary_of(found: list[Entry]) -> list[tuple[object, ...]]:
        # What waits is as new as the set that brought it last; nobody has seen an event with it.
        return [
            (one.processor, one.first_time <= time * SECOND and one.since <= number, one.begins, one.until)
            for one in found
        ]

    assert summary_of(entries_after(brought)) == summary_of(entries_after(())) == summary_of(entries_after(range(99)))
