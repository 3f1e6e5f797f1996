"""On random policies and streams, the operator and the slow twin agree, however the steps are carried to the operator."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asterism.windows import assigners as w
from asterism.windows import triggers as t
from asterism.windows.evictors import Evictor
from asterism.windows.spec import CLOSING, ON_TIME
from tests.kit import FACTOR, examples
from tests.windows.driver import WAYS, Driver, Way, summed
from tests.windows.transcripts import Case, Element, EvensOnly, Step, play_reference

SETTINGS = settings(
    deadline=None,
    derandomize=FACTOR == 1,
    database=None,
    max_examples=examples(30, usual=80),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def seconds(low: int, high: int) -> st.SearchStrategy[timedelta]:
    return st.integers(low, high).map(lambda number: timedelta(seconds=number))


@cache
def triggers(event: bool, merges: bool, processing_time: bool, turns: bool = False) -> st.SearchStrategy[t.Trigger]:
    leaves: list[st.SearchStrategy[t.Trigger]] = [st.integers(1, 4).map(t.CountTrigger.at_least), st.just(t.never)]
    if processing_time:
        leaves += [
            st.just(t.ProcessingTimeTrigger.after_end_of_window()),
            seconds(0, 12).map(t.ProcessingTimeTrigger.after_first_element),
            seconds(1, 12).map(t.ContinuousProcessingTimeTrigger.of),
        ]
    if event:
        leaves += [
            st.just(t.EventTimeTrigger.after_end_of_window()),
            seconds(0, 12).map(t.EventTimeTrigger.after_first_element),
            seconds(1, 12).map(t.ContinuousEventTimeTrigger.of),
        ]
    if not merges:
        leaves.append(st.integers(0, 5).map(lambda threshold: t.DeltaTrigger.of(threshold, "v")))

    def wider(inner: st.SearchStrategy[t.Trigger]) -> st.SearchStrategy[t.Trigger]:
        ends = t.EventTimeTrigger if event else t.ProcessingTimeTrigger
        some = st.lists(inner, min_size=1, max_size=3)
        kinds: list[st.SearchStrategy[t.Trigger]] = [
            some.map(lambda parts: t.All(*parts)),
            some.map(lambda parts: t.Any(*parts)),
            inner.map(lambda part: ends.after_end_of_window().with_early_trigger(part)),
            inner.map(t.PurgingTrigger.of),
        ]
        if processing_time:
            kinds.append(inner.map(lambda part: t.ProcessingTimeTrigger.after_end_of_window().with_early_trigger(part)))
        if event:
            kinds += [
                inner.map(lambda part: t.EventTimeTrigger.after_end_of_window().with_late_trigger(part)),
                st.tuples(inner, inner).map(
                    lambda two: (
                        t.EventTimeTrigger.after_end_of_window().with_early_trigger(two[0]).with_late_trigger(two[1])
                    )
                ),
            ]
        return st.one_of(kinds)

    def in_turn(inner: st.SearchStrategy[t.Trigger]) -> st.SearchStrategy[t.Trigger]:
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: t.Sequence(*parts)),
            st.tuples(inner, inner).map(lambda two: two[0].until(two[1])),
            inner.map(lambda part: part.once()),
        )

    deeper = st.one_of(st.one_of(leaves), wider(st.one_of(leaves)))
    whole = st.one_of(st.one_of(leaves), wider(deeper))
    if turns:
        some = st.one_of(in_turn(deeper), in_turn(in_turn(st.one_of(leaves))))
        whole = st.one_of(some, some, wider(some))
    return st.tuples(whole, st.booleans()).map(
        lambda pair: pair[0].discarding() if pair[1] and not isinstance(pair[0], t.PurgingTrigger) else pair[0]
    )


WINDOWS = st.one_of(
    st.integers(1, 12).map(lambda size: w.TumblingWindows.of(timedelta(seconds=size))),
    st.tuples(st.integers(2, 12), st.integers(1, 6)).map(
        lambda two: w.SlidingWindows.of(timedelta(seconds=max(two)), timedelta(seconds=min(two)))
    ),
    st.integers(1, 6).map(lambda gap: w.SessionWindows.with_gap(timedelta(seconds=gap))),
    st.just(w.SessionWindows.with_dynamic_gap("gap")),
    st.tuples(st.integers(1, 4), st.integers(1, 4)).map(
        lambda two: w.CumulativeWindows.of(timedelta(seconds=two[0] * two[1]), timedelta(seconds=two[1]))
    ),
    st.just(w.GlobalWindows()),
)


@st.composite
def a_case(draw: st.DrawFn, ordered: bool = False, turns: bool = False) -> Case:
    """*turns*: with triggers that are used in turn"""
    window = draw(WINDOWS)
    event = ordered or draw(st.sampled_from([True, True, True, False]))
    in_order = ordered or (event and draw(st.booleans()))
    evict = draw(st.none() | st.none() | st.integers(1, 3).map(Evictor.count) | seconds(1, 5).map(Evictor.time))
    moments = st.one_of(st.integers(0, 60).map(lambda half: half * 500), st.integers(1, 30).map(lambda s: s * 1000 - 1))
    elements = st.builds(
        Element,
        key=st.sampled_from("ab"),
        value=st.integers(0, 9),
        time=moments,
        gap=st.integers(1, 6).map(lambda gap: gap * 1000),
    )
    steps = draw(
        st.lists(
            st.one_of(
                st.lists(elements, min_size=1, max_size=4).map(lambda some: Step("in", tuple(some))),
                moments.map(lambda time: Step("watermark", time=time)) if event else st.nothing(),
                moments.map(lambda time: Step("processing_time", time=time)),
            ),
            min_size=1,
            max_size=10,
        )
    )
    processing_time = 0
    for at, step in enumerate(steps):  # the clock does not go back
        if step.action == "processing_time":
            processing_time = max(processing_time, step.time)
            steps[at] = Step("processing_time", time=processing_time)
    trigger = draw(triggers(event, window.merges, processing_time=not ordered, turns=turns))
    lateness = draw(st.sampled_from([0, 0, 3000, 20_000])) if event else 0
    if any(isinstance(part, t.EventTimeTrigger) and part.late is not None for part in t.walk(trigger)):
        lateness = max(lateness, 1000)  # without any, a late trigger is refused
    return Case(
        name="drawn",
        window=window,
        trigger=trigger,
        steps=(*steps, Step("end")),
        lateness=lateness,
        event=event,
        keyed=draw(st.booleans()),
        in_order=in_order,
        evict=evict,
        closing=draw(st.sampled_from(["drop", *CLOSING])),
        on_time=draw(st.sampled_from(ON_TIME)),
        session_ids=window.merges and draw(st.booleans()),
    )


SEPARATELY = st.sampled_from([way for way in WAYS if not way.together])


@SETTINGS
@given(a_case(), SEPARATELY)
def test_the_operator_agrees_with_the_reference(case: Case, way: Way) -> None:
    check(case, way)


@pytest.mark.parametrize("seed", range(FACTOR))
def test_many_turns_and_sessions_agree_with_the_reference(seed: int) -> None:
    """Drawn evenly: Hypothesis draws few nested triggers, and few sessions that merge."""
    some = random.Random(seed + 2)
    ways = [way for way in WAYS if not way.together]
    seen: Counter[str] = Counter()
    for _ in range(50 if FACTOR == 1 else 120):
        case = random_case(some)
        check(case, some.choice(ways))
        seen += Counter({type(part).__name__ for part in t.walk(case.trigger)})
        seen += Counter(word for step in play_reference(case) for line in step for word in line.split())
    assert min(seen[name] for name in ("Sequence", "OnceTrigger", "UntilTrigger", "replaces", "unfired")) > 5


def random_trigger(some: random.Random, event: bool, merges: bool, depth: int) -> t.Trigger:
    def part() -> t.Trigger:
        return random_trigger(some, event, merges, depth - 1)

    time = timedelta(seconds=some.randint(1, 8))
    ends = t.EventTimeTrigger if event else t.ProcessingTimeTrigger
    leaves: list[Callable[[], t.Trigger]] = [
        lambda: t.CountTrigger.at_least(some.randint(1, 3)),
        lambda: t.CountTrigger.at_least(some.randint(1, 3)),
        ends.after_end_of_window,
        lambda: ends.after_first_element(time),
        lambda: t.ProcessingTimeTrigger.after_first_element(time),
        lambda: t.ContinuousProcessingTimeTrigger.of(time),
    ]
    if event:
        leaves.append(lambda: t.ContinuousEventTimeTrigger.of(time))
    if not merges:
        leaves.append(lambda: t.DeltaTrigger.of(some.randint(0, 3), "v"))
    if depth == 0:
        return some.choice(leaves)()
    wider: list[Callable[[], t.Trigger]] = [
        lambda: t.Sequence(*(part() for _ in range(some.randint(2, 3)))),
        lambda: t.Sequence(part(), part()),
        lambda: part().until(part()),
        lambda: part().once(),
        lambda: t.All(part(), part()),
        lambda: t.Any(part(), part()),
        lambda: ends.after_end_of_window().with_early_trigger(part()),
    ]
    if event:
        wider.append(lambda: t.EventTimeTrigger.after_end_of_window().with_late_trigger(part()))
    return some.choice(some.choice([leaves, wider, wider]))()


def random_case(some: random.Random) -> Case:
    second = timedelta(seconds=1)
    window: w.Windows = some.choice(
        [
            w.TumblingWindows.of(10 * second),
            w.SlidingWindows.of(10 * second, 5 * second),
            w.CumulativeWindows.of(9 * second, 3 * second, offset=second),
            w.GlobalWindows(),
            w.SessionWindows.with_gap(2 * second),
            w.SessionWindows.with_gap(3 * second),
            w.SessionWindows.with_gap(3 * second),
            w.SessionWindows.with_dynamic_gap("gap"),
        ]
    )
    event = some.random() < 0.8
    trigger = random_trigger(some, event, window.merges, 3)
    if event and window.merges and some.random() < 0.5:
        early = t.CountTrigger.at_least(some.randint(1, 2))
        trigger = some.choice([t.Any(early, trigger), t.Sequence(early, trigger), t.Any(early.once(), trigger)])
    if some.random() < 0.3:
        trigger = trigger.discarding()
    steps: list[Step] = []
    clock = near = 0
    for _ in range(some.randint(4, 12)):
        near += some.randint(0, 2000)
        match some.choice(
            ["in", "in", "in", "in", "watermark", "processing_time"] if event else ["in", "processing_time"]
        ):
            case "in":
                many = []
                for _ in range(some.randint(1, 5)):
                    time = max(near + 500 * some.randint(-10, 14), 0)
                    many.append(Element(some.choice("aab"), some.randint(0, 9), time, some.randint(1, 4) * 1000))
                steps.append(Step("in", tuple(many)))
            case "watermark":
                steps.append(Step("watermark", time=near - some.randint(0, 6) * 1000 - some.randint(0, 1)))
            case "processing_time":
                clock += some.randint(0, 6000)
                steps.append(Step("processing_time", time=clock))
    return Case(
        name="random",
        window=window,
        trigger=trigger,
        steps=(*steps, Step("end")),
        lateness=some.choice([1000, 3000, 20_000]) if event else 0,
        event=event,
        in_order=event and some.random() < 0.3,
        evict=some.choice(
            [None, None, EvensOnly(after=some.random() < 0.5), Evictor.count(2), Evictor.time(2 * second, after=True)]
        ),
        closing=some.choice(CLOSING),
        on_time=some.choice(ON_TIME),
        session_ids=window.merges,
    )


def check(case: Case, way: Way) -> None:
    wanted = [sorted(summed(line) if way.incremental else line for line in step) for step in play_reference(case)]
    found = [sorted(step) for step in Driver(case, way).play()]
    assert found == wanted


# ---------------------------------------------------------------------- in order, it does not matter how the elements came


def _fires_on_and_on(case: Case) -> bool:
    """Does it fire until nothing comes any more, whether there is something new or not?"""
    endless = case.window.is_global or case.lateness
    return bool(endless and any(isinstance(part, t.ContinuousEventTimeTrigger) for part in t.walk(case.trigger)))


@st.composite
def a_stream(draw: st.DrawFn) -> tuple[Case, tuple[Step, ...], Way]:
    """A policy in event time; elements, and the same in parts, with watermarks between that make nothing late."""
    turns = draw(st.booleans())
    case = draw(a_case(ordered=True, turns=turns).filter(lambda case: not _fires_on_and_on(case)))
    elements = [one for step in case.steps for one in step.elements]
    steps: list[Step] = []
    while elements:
        size = draw(st.integers(1, len(elements)))
        steps.append(Step("in", tuple(elements[:size])))
        elements = elements[size:]
        ahead = min((one.time for one in elements), default=60_000)
        steps.append(Step("watermark", time=ahead - draw(st.integers(1, 4000))))
    return case, (*steps, Step("end")), draw(st.sampled_from([way for way in WAYS if not way.together]))


@SETTINGS
@given(a_stream())
def test_in_order_the_answer_does_not_depend_on_how_the_elements_came(
    drawn: tuple[Case, tuple[Step, ...], Way],
) -> None:
    """Only what is known to be the last may be known earlier or later."""
    case, parts, way = drawn
    together = replace(case, steps=(Step("in", tuple(one for s in parts for one in s.elements)), Step("end")))
    found = [
        [line for step in Driver(one, way).play() for line in step] for one in (together, replace(case, steps=parts))
    ]
    fired = [sorted(line.replace("!", "") for line in lines if not line.startswith("unfired")) for lines in found]
    assert fired[0] == fired[1]
    assert not any(line.startswith("late") for line in fired[0])
    unfired = [sum(int(line.split()[1]) for line in lines if line.startswith("unfired")) for lines in found]
    assert unfired[0] == unfired[1]
