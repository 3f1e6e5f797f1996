"""Triggers of users, written in Python, and delta functions: alone, as parts of others, kept and restored, merged."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from asterism.errors import OperatorError
from asterism.testing import OperatorHarness
from asterism.windows.assigners import GlobalWindows, SessionWindows, TumblingWindows, Windows
from asterism.windows.evictors import Evictor
from asterism.windows.operator import WindowOperator
from asterism.windows.triggers import (
    All,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    TimeSpan,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from asterism.windows.triggers import Any as AnyOf
from asterism.windows.triggers import Sequence as Turns

SCHEMA = pa.schema({"k": "string", "t": pa.timestamp("us", "UTC"), "v": "int64"})
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class EveryNth(Trigger):
    """CountTrigger.at_least, by hand."""

    def __init__(self, count: int) -> None:
        self.count = count

    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return self._result(ctx)

    def _result(self, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if ctx.state.get("n", 0) >= self.count else TriggerResult.CONTINUE

    def on_fired(self, window: TimeSpan, ctx: TriggerContext) -> None:
        ctx.state["n"] = 0

    def on_merge(self, window: TimeSpan, states: list[dict[str, Any]], ctx: TriggerContext) -> None:
        ctx.state["n"] = sum(state.get("n", 0) for state in states)


class AtEnd(Trigger):
    """EventTimeTrigger.after_end_of_window, by hand."""

    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        assert window.end is not None
        last = window.end - timedelta(microseconds=1)
        if ctx.watermark is not None and ctx.watermark >= last:
            return TriggerResult.FIRE
        ctx.register_event_time_timer(last)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        assert window.end is not None
        return TriggerResult.FIRE if time == window.end - timedelta(microseconds=1) else TriggerResult.CONTINUE

    def on_merge(self, window: TimeSpan, states: list[dict[str, Any]], ctx: TriggerContext) -> None:
        pass


class InProcessingTime(Trigger):
    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(ctx.processing_time + 10 * SECOND)
        ctx.register_processing_time_timer(ctx.processing_time + 20 * SECOND)
        ctx.delete_processing_time_timer(ctx.processing_time + 20 * SECOND)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE


def events(*times: float, key: str = "a") -> pa.Table:
    rows = [{"k": key, "t": BEGIN + time * SECOND, "v": n} for n, time in enumerate(times, 1)]
    return pa.Table.from_pylist(rows, SCHEMA)


def micros(seconds: float) -> int:
    return int((BEGIN + seconds * SECOND).timestamp() * 1_000_000)


def harness(trigger: Trigger, windows: Windows | None = None, **more: Any) -> OperatorHarness:
    windows = windows or TumblingWindows.of(10 * SECOND)
    operator = WindowOperator(
        windows, SCHEMA, keys=["k"], time="t", trigger=trigger, measures=["count(*) AS n", "max(v) AS m"], **more
    )
    return OperatorHarness(operator, keys=["k"])


def firings_of(found: OperatorHarness) -> list[tuple[int, str, int]]:
    return [(row["firing"], row["kind"], row["n"]) for row in found.rows("firings")]


PAIRS: list[tuple[Trigger, Trigger]] = [
    (EveryNth(2), CountTrigger.at_least(2)),
    (EveryNth(2).discarding(), CountTrigger.at_least(2).discarding()),
    (AtEnd(), EventTimeTrigger.after_end_of_window()),
    (All(AtEnd(), EveryNth(3)), All(EventTimeTrigger.after_end_of_window(), CountTrigger.at_least(3))),
    (
        AnyOf(AtEnd(), EveryNth(3), EveryNth(4)),
        AnyOf(EventTimeTrigger.after_end_of_window(), CountTrigger.at_least(3), CountTrigger.at_least(4)),
    ),
    (Turns(EveryNth(1), EveryNth(2)), Turns(CountTrigger.at_least(1), CountTrigger.at_least(2))),
    (EveryNth(2).until(EveryNth(3)), CountTrigger.at_least(2).until(CountTrigger.at_least(3))),
    (
        AnyOf(EveryNth(2).once(), AtEnd()),
        AnyOf(CountTrigger.at_least(2).once(), EventTimeTrigger.after_end_of_window()),
    ),
    (
        EventTimeTrigger.after_end_of_window().with_early_trigger(EveryNth(2)).with_late_trigger(EveryNth(2)),
        EventTimeTrigger.after_end_of_window()
        .with_early_trigger(CountTrigger.at_least(2))
        .with_late_trigger(CountTrigger.at_least(2)),
    ),
    (
        DeltaTrigger.of(1.5, lambda a, b: abs(b["v"] - a["v"])),
        DeltaTrigger.of(1.5, "v"),
    ),
]


@pytest.mark.parametrize(("own", "built_in"), PAIRS, ids=lambda trigger: repr(trigger)[:40])
@pytest.mark.parametrize("windows", [TumblingWindows.of(10 * SECOND), SessionWindows.with_gap(3 * SECOND)], ids=repr)
@pytest.mark.parametrize("restored", [False, True])
def test_by_hand_and_built_in_do_the_same(own: Trigger, built_in: Trigger, windows: Windows, restored: bool) -> None:
    if windows.merges and isinstance(own, DeltaTrigger | All):
        pytest.skip(
            "a DeltaTrigger cannot be merged; a trigger of one's own that is ready stays so when its window grows"
        )
    results = []
    for trigger in (own, built_in):
        found = harness(trigger, windows, lateness=20 * SECOND)
        for batch in (events(1, 2, 7, 4), events(6, 12), events(3)):
            found.feed(batch)
            if restored:
                found = harness(trigger, windows, lateness=20 * SECOND).restore(found.snapshot())
        found.move(watermark=micros(11)).feed(events(5, 8, 9.5)).move(watermark=micros(18)).feed(events(16, 2)).end()
        results.append(firings_of(found))
    assert results[0] == results[1]
    assert results[0]


def test_by_the_clock_and_purging() -> None:
    """A trigger of one's own may purge by itself."""
    found = harness(InProcessingTime()).tick(micros(0)).feed(events(1, 2))
    assert found.operator.processing_time
    assert found.next_time is not None
    found.tick(micros(9)).feed(events(3)).tick(micros(10))
    assert firings_of(found) == [(1, "early", 3)]
    found.feed(events(4)).tick(micros(20))
    assert firings_of(found) == [(1, "early", 3), (2, "early", 1)]


class AtEndOfWindow(AtEnd):
    """With a timer at the end, which is not part of the window, or so much after it."""

    def __init__(self, after: timedelta = timedelta(0)) -> None:
        self.after = after
        self.times: list[datetime] = []

    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        assert window.end is not None
        ctx.register_event_time_timer(window.end + self.after)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        assert window.end is not None
        self.times.append(time)
        # A session that has grown keeps the timers of its former ends.
        return TriggerResult.FIRE if time >= window.end else TriggerResult.CONTINUE


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("windows", [TumblingWindows.of(10 * SECOND), SessionWindows.with_gap(10 * SECOND)], ids=repr)
def test_a_timer_at_the_end_of_a_window_is_due_when_it_ends(windows: Windows, in_order: bool) -> None:
    trigger = AtEndOfWindow()
    found = harness(trigger, windows, in_order=in_order).feed(events(0, 1)).move(watermark=micros(25))
    assert [(row["kind"], row["is_last"], row["n"]) for row in found.rows("firings")] == [("on_time", True, 2)]
    assert found.is_empty

    found = harness(AtEndOfWindow(), windows, in_order=in_order).feed(events(0, 1)).end()
    assert firings_of(found) == [(1, "on_time", 2)]


def test_a_timer_at_the_end_with_lateness() -> None:
    """The end is on time. A timer that a late element sets there is late."""
    trigger = AtEndOfWindow()
    found = harness(trigger, lateness=10 * SECOND).feed(events(1)).move(watermark=micros(10) - 1)
    assert firings_of(found) == [(1, "on_time", 1)]
    assert trigger.times == [BEGIN + 10 * SECOND]
    found.feed(events(2)).move(watermark=micros(12))
    assert firings_of(found) == [(1, "on_time", 1), (2, "late", 2)]
    found.end()
    assert firings_of(found) == [(1, "on_time", 1), (2, "late", 2)]


@pytest.mark.parametrize(
    ("lateness", "after", "kind"),
    [(0, 3600, "on_time"), (10, 5, "late"), (10, 3600, "late")],
)
def test_a_timer_after_the_window_is_due_when_it_is_dropped(lateness: int, after: int, kind: str) -> None:
    trigger = AtEndOfWindow(after * SECOND)
    found = harness(trigger, lateness=lateness * SECOND).feed(events(1)).move(watermark=micros(30))
    assert [(row["kind"], row["is_last"]) for row in found.rows("firings")] == [(kind, after > lateness)]
    assert trigger.times == [BEGIN + (10 + after) * SECOND]


def test_times_in_milliseconds_have_an_end_too() -> None:
    """The last time of a window is then a millisecond before its end."""
    schema = pa.schema({"t": "int64"})
    operator = WindowOperator(
        TumblingWindows.of(10 * SECOND), schema, time="t", trigger=AtEndOfWindow(), measures=["count(*) AS n"]
    )
    found = OperatorHarness(operator).feed(pa.table({"t": [1000]}, schema)).move(watermark=9_999_000)
    assert firings_of(found) == [(1, "on_time", 1)]


class PastTimer(InProcessingTime):
    """Its timers are due when they are set."""

    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(ctx.processing_time - SECOND)
        return TriggerResult.CONTINUE


@pytest.mark.parametrize("together", [False, True])
def test_a_timer_that_the_clock_has_passed_is_due_at_once(together: bool) -> None:
    found = harness(PastTimer()).tick(micros(0))
    for part in (events(1, 2),) if together else (events(1), events(2)):
        found.feed(part)
    assert firings_of(found) == [(1, "early", 1), (2, "early", 1)]


def test_a_deleted_timer_is_not_told() -> None:
    """Also if both were due at the same time."""

    class Deletes(AtEndOfWindow):
        def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
            ctx.register_event_time_timer(BEGIN + 3 * SECOND)
            ctx.register_event_time_timer(BEGIN + 4 * SECOND)
            return TriggerResult.CONTINUE

        def on_event_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
            self.times.append(time)
            ctx.delete_event_time_timer(BEGIN + 4 * SECOND)
            return TriggerResult.CONTINUE

    trigger = Deletes()
    harness(trigger).feed(events(1)).move(watermark=micros(9))
    assert trigger.times == [BEGIN + 3 * SECOND]


def test_a_trigger_in_event_time_does_not_wait_for_the_clock() -> None:
    assert not harness(AtEnd()).operator.processing_time
    assert not harness(AnyOf(AtEnd(), CountTrigger.at_least(2))).operator.processing_time
    assert harness(AnyOf(AtEnd(), InProcessingTime())).operator.processing_time


class ReadsProcessingTime(EveryNth):
    def __init__(self) -> None:
        super().__init__(1)
        self.seen: list[datetime] = []

    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        self.seen.append(ctx.processing_time)
        return TriggerResult.CONTINUE


@pytest.mark.parametrize("in_order", [False, True])
def test_the_end_of_input_is_no_time_of_the_clock(in_order: bool) -> None:
    """What waits for the watermark is taken by the clock as it was."""
    trigger = ReadsProcessingTime()
    found = harness(trigger, in_order=in_order).tick(micros(0)).feed(events(1)).tick(micros(5)).feed(events(2))
    found.move(processing_time=micros(7)).end()
    shown = [BEGIN + 7 * SECOND] * 2 if in_order else [BEGIN, BEGIN + 5 * SECOND]
    assert trigger.seen == shown


def test_state_may_hold_what_json_does_not_know() -> None:
    class Remembers(EveryNth):
        def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
            before = ctx.state.get("all")
            now = {"at": window.end, "d": Decimal("1.5"), "s": SECOND, "b": b"\x00", "l": [1, None, {"x": 2.5}]}
            ctx.state["all"] = now
            return TriggerResult.FIRE if before == now else TriggerResult.CONTINUE

    found = harness(Remembers(1)).feed(events(1))
    found = harness(Remembers(1)).restore(found.snapshot()).feed(events(2))
    assert firings_of(found) == [(1, "early", 2)]


def test_a_trigger_is_told_of_each_firing() -> None:
    """Whatever the reason; with its state, and with timers that it may set."""
    told = []

    class Listens(AtEnd):
        def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            return TriggerResult.CONTINUE

        def on_event_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
            return TriggerResult.FIRE

        def on_fired(self, window: TimeSpan, ctx: TriggerContext) -> None:
            told.append((ctx.state["n"], ctx.watermark))
            if len(told) == 1:
                ctx.register_event_time_timer(BEGIN + 7 * SECOND)

    found = harness(AnyOf(CountTrigger.at_least(2), Listens())).feed(events(1, 2, 3)).move(watermark=micros(8))
    assert firings_of(found) == [(1, "early", 2), (2, "early", 3)]
    assert told == [(2, None), (3, BEGIN + 7 * SECOND)]


def test_an_inactive_trigger_is_not_told_of_a_firing() -> None:
    told = []

    class Told(EveryNth):
        def on_fired(self, window: TimeSpan, ctx: TriggerContext) -> None:
            told.append(dict(ctx.state))

    after = EventTimeTrigger.after_end_of_window()
    trigger = after.with_early_trigger(CountTrigger.at_least(1)).with_late_trigger(Told(2))
    found = harness(trigger, lateness=10 * SECOND).feed(events(1)).move(watermark=micros(11))
    assert told == []
    found.feed(events(2, 3))
    assert told == [{"n": 2}]
    assert firings_of(found) == [(1, "early", 1), (2, "on_time", 1), (3, "late", 3)]


def test_a_failure_in_on_fired_names_it() -> None:
    class FailsThen(EveryNth):
        def on_fired(self, window: TimeSpan, ctx: TriggerContext) -> None:
            raise ValueError("no")

    with pytest.raises(OperatorError, match=r"FailsThen\.on_fired failed"):
        harness(FailsThen(1)).feed(events(1))


def test_what_cannot_be_kept_is_an_error() -> None:
    class Hoards(EveryNth):
        def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
            ctx.state["x"] = object()
            return TriggerResult.CONTINUE

    with pytest.raises(OperatorError, match="cannot be stored"):
        harness(Hoards(1)).feed(events(1))


def test_clear_is_called_when_the_window_is_dropped() -> None:
    cleared = []

    class Clears(AtEnd):
        def clear(self, window: TimeSpan, ctx: TriggerContext) -> None:
            cleared.append(window.end)

    harness(Clears()).feed(events(1, 11)).move(watermark=micros(10))
    assert cleared == [BEGIN + 10 * SECOND]


def test_a_delta_function_of_an_evictor() -> None:
    evictor = Evictor.delta(2, lambda a, b: abs(b["v"] - a["v"]))
    found = harness(CountTrigger.at_least(4), GlobalWindows(), evictor=evictor).feed(events(1, 2, 3, 4))
    assert firings_of(found) == [(1, "early", 2)]


@pytest.mark.parametrize(
    ("day", "shown"),
    [
        (-40_000, datetime(1860, 6, 26, tzinfo=UTC)),
        (-1_000_000, datetime.min.replace(tzinfo=UTC)),
        (3_000_000, datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_windows_of_all_times_are_shown_to_a_function(day: int, shown: datetime) -> None:
    """Python's datetime ends with the year 9999."""
    seen = []

    def function(rows: pa.Table, window: TimeSpan) -> dict[str, Any]:
        seen.append(window.start)
        return {"n": len(rows)}

    operator = WindowOperator(
        TumblingWindows.of(10 * SECOND), SCHEMA, keys=["k"], time="t", function=function, output="n INT"
    )
    one = pa.table([["a"], pa.array([day * 86_400_000_000]).cast(SCHEMA.field("t").type), [1]], schema=SCHEMA)
    OperatorHarness(operator, keys=["k"]).feed(one).end()
    assert seen == [shown]


def test_a_trigger_sees_windows_of_long_ago() -> None:
    seen = []

    class ReadsWindow(AtEnd):
        def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
            seen.append(window.start)
            return TriggerResult.CONTINUE

    long_ago = datetime(1860, 6, 26, tzinfo=UTC)
    harness(ReadsWindow()).feed(pa.Table.from_pylist([{"k": "a", "t": long_ago, "v": 1}], SCHEMA))
    assert seen == [long_ago]
