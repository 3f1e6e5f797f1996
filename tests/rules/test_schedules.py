"""Versions that wait for their time: which is in force when, what is withdrawn, and that it does not matter who looked when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism.columns.time import BEFORE_TIME
from asterism.rules.processor import PatternProcessor, Slot
from asterism.rules.result_rows import SHADOW
from asterism.rules.sets import Entry, ProcessorSet, passed, updated
from tests.rules.driver import Driver, Event, Found, at, chain, processor
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


def after(*steps: Sequence[PatternProcessor] | int) -> list[Entry]:
    """The entries after sets, between which event time comes to some second."""
    entries: list[Entry] = []
    time, number = BEFORE_TIME, 0
    for step in steps:
        if isinstance(step, int):
            time = step * SECOND
        else:
            number += 1
            entries = updated(entries, ProcessorSet(number, tuple(step)), time)
    return passed(entries, time)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([[V1], [V2]], [(1, None, 10), (2, 10, None)], id="scheduled"),
        pytest.param([[V1], [V2], [V3]], [(1, None, 20), (3, 20, None)], id="replaced by one for later"),
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
        pytest.param(
            [[V1], [V2], [V3], 10, [V3]], [(1, None, 20), (3, 20, None)], id="the withdrawn one's time passes"
        ),
        pytest.param([[V2]], [(2, 10, None)], id="nothing is in force before the first"),
        pytest.param([[V2], [V3]], [(3, 20, None)], id="nothing is in force before the first that is left"),
        pytest.param([[V1], 15, [V2]], [(2, 10, None)], id="its time is over: at once"),
        pytest.param([[V1], 5, [V2], [V3], [V2], [V3], 12], [(1, None, 20), (3, 20, None)], id="to and fro"),
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


def test_a_scheduled_version_is_withdrawn_by_one_for_later() -> None:
    scheduled = processor("ab", 2, chain("b", "c"), timestamp=at(10))
    instead = processor("ab", 3, chain("a", "c"), timestamp=at(20))
    events = [e(11, "a"), e(12, "b"), e(13, "c"), e(21, "a"), e(22, "c")]
    driver = Driver().batch(sets=[AB]).batch(sets=[scheduled]).batch(sets=[instead])
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
    assert driver.sets.replaced == [(2, [("ab", 1)]), (3, [("ab", 1)])]
    driver.batch(watermark=20).batch()
    assert driver.sets.replaced[2:] == [(3, [])]
    driver.batch(sets=[version(4, 25)], watermark=30).batch()
    assert driver.sets.replaced[3:] == [(4, [])]
    driver.batch(sets=[version(5)]).batch(sets=[version(6, 7)])
    assert driver.sets.replaced[4:] == [(6, [])]


# ---------------------------------------------------------------------- a model


@dataclass(eq=False)
class Life:
    """A processor from when it comes until it goes."""

    processor: PatternProcessor
    since: int
    events: list[Event] = field(default_factory=list)
    modes: list[tuple[float, bool]] = field(default_factory=list)
    """From which time on it is a shadow or not."""

    def is_shadow_at(self, second: float) -> bool:
        return [shadow for time, shadow in self.modes if time < second][-1]

    def is_of(self, new: PatternProcessor) -> bool:
        return replace(self.processor, shadow=False) == replace(new, shadow=False)


@dataclass
class Model:
    """The slow twin: for each id and for its shadow who is in force and who waits, and event after event who sees it."""

    time: float = -1e9
    number: int = 0
    in_force: dict[Slot, Life] = field(default_factory=dict)
    waits: dict[Slot, Life] = field(default_factory=dict)
    arrived: list[tuple[Event, int]] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)

    def announce(self, processors: Sequence[PatternProcessor], number: int) -> None:
        self.number = number
        before = [*self.in_force.items(), *self.waits.items()]
        was_in_force = list(self.in_force.values())
        self.in_force, self.waits = {}, {}
        used: list[Life] = []
        for new in sorted(processors, key=lambda one: one.shadow):
            free = [(slot, life) for slot, life in before if slot[0] == new.id and life not in used]
            own = [life for slot, life in free if slot == new.slot]
            in_force = next((life for life in own if life in was_in_force), None)
            if in_force is not None and in_force.is_of(new):
                life = in_force
            else:
                others = [*own, *(life for slot, life in free if slot != new.slot)]
                life = next((one for one in others if one is not in_force and one.is_of(new)), Life(new, number))
            later = life is not in_force and new.timestamp is not None and new.timestamp.timestamp() > self.time
            (self.waits if later else self.in_force)[new.slot] = life
            if later and in_force is not None:
                self.in_force[new.slot] = in_force
                used.append(in_force)
            used.append(life)
            life.modes.append((self.time, new.shadow))
            self.lives += [] if life in self.lives else [life]

    def advance(self, time: float) -> None:
        due = sorted((pair for pair in self.arrived if pair[0][0] <= time), key=lambda pair: pair[0][0])  # type: ignore[operator, arg-type, return-value]
        self.arrived = [pair for pair in self.arrived if pair[0][0] > time]  # type: ignore[operator]
        for event, number in due:
            self._come_to(event[0])  # type: ignore[arg-type]
            for life in self.in_force.values():
                if life.since <= number:
                    life.events.append(event)
        self._come_to(time)

    def _come_to(self, time: float) -> None:
        self.time = max(self.time, time)
        for name, life in list(self.waits.items()):
            assert life.processor.timestamp is not None
            if life.processor.timestamp.timestamp() <= self.time:
                self.in_force[name] = self.waits.pop(name)


SCHEDULES = st.one_of(st.none(), st.integers(1, 30))
CANDIDATES = st.builds(version, st.integers(1, 6), SCHEDULES, st.sampled_from(["p", "q"]))
SETS = st.lists(CANDIDATES, max_size=2, unique_by=lambda one: one.id)
FEW = st.builds(
    version, st.integers(1, 4), st.one_of(st.none(), st.just(12)), st.sampled_from(["p", "q"]), shadow=st.booleans()
)
WITH_SHADOWS = st.lists(FEW, max_size=4, unique_by=(lambda one: one.slot, lambda one: (one.id, one.version)))
STEPS = st.lists(
    st.tuples(
        st.lists(st.one_of(SETS, WITH_SHADOWS), max_size=3),  # those that come with a micro-batch
        st.lists(
            st.tuples(st.integers(1, 8), st.sampled_from("abc")), max_size=4
        ),  # how far ahead an event is, its kind
        st.integers(0, 6),  # how far event time goes
        st.booleans(),
    ),
    max_size=8,
)
Steps = list[tuple[list[list[PatternProcessor]], list[tuple[int, str]], int, bool]]


@SEARCH
@given(STEPS, st.sampled_from([1, 3]))
def test_every_version_sees_what_a_simple_model_says(steps: Steps, key_groups: int) -> None:
    model, driver = Model(), Driver(key_groups=key_groups)
    watermark = 0
    for sets, ahead, passing, moves in steps:
        if sets:
            model.announce(sets[-1], len(driver.sets.all) + len(sets))
        events = [e(watermark + far, kind, f"u{far % 2}") for far, kind in ahead]
        model.arrived += [(event, model.number) for event in events]
        watermark += passing
        driver.batch(events, sets=sets[-1] if sets else None, between=sets[:-1], watermark=watermark if moves else None)
        if moves:
            model.advance(watermark)
        else:
            watermark -= passing
    driver.end()
    model.advance(1e9)
    expected: dict[bool, list[Found]] = {False: [], True: []}
    for life in model.lives:
        alone = PatternProcessor(life.processor.id, life.processor.version, life.processor.pattern)
        for found in Driver().batch(life.events, sets=[alone]).end().found:
            expected[life.is_shadow_at(float(found[3].split()[-1][1:]))].append(found)
    assert (driver.found, driver.found_in(SHADOW)) == (sorted(expected[False]), sorted(expected[True]))


@settings(SEARCH, max_examples=300)
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
    """What was scheduled between two sets, and is not in the second, might as well not have been seen."""
    entries: list[Entry] = []
    time = number = 0
    for processors, passing in history:
        number += 1
        time += passing
        entries = updated(entries, ProcessorSet(number, tuple(processors)), time * SECOND)
    had = {entry.processor.id: entry.processor for entry in entries}
    seen = [
        ProcessorSet(
            number + 1 + at_,
            tuple(
                # Other versions than those that are there, each for later, of the ids that are in the last set.
                version(10 + number_, time + ahead, one.id) if one.id in had else one
                for one, (number_, ahead) in zip(last, chosen, strict=False)
            ),
        )
        for at_, chosen in enumerate(between)
    ]
    end = ProcessorSet(99, tuple(last))
    polls = data.draw(st.lists(st.sampled_from(seen), unique_by=lambda one: one.version) if seen else st.just([]))
    step_by_step = entries
    for poll in [*sorted(polls, key=lambda one: one.version), end]:
        step_by_step = updated(step_by_step, poll, time * SECOND)
    directly = updated(entries, end, time * SECOND)

    def summary_of(found: list[Entry]) -> list[tuple[object, ...]]:
        # What waits is as new as the set that brought it last; nobody has seen an event with it.
        return [
            (one.processor, one.first_time <= time * SECOND and one.since <= number, one.begins, one.until)
            for one in found
        ]

    assert summary_of(step_by_step) == summary_of(directly)
