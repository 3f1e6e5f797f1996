"""Windows that continue with another trigger, allowed lateness, size, gap or content."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    Evictor,
    KeyedStream,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    window,
)
from asterism.changes.plan import PlanPart
from asterism.errors import CheckpointMismatchError, StateError
from asterism.operators.evolution import FIXED
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.changes.windows import WindowsChange
from asterism.savepoints.key_groups import Summary
from asterism.savepoints.manifest import Manifest, QueryPosition
from asterism.spark.savepoints.changing import change_of
from asterism.testing import WindowHarness
from tests.kit import FACTOR
from tests.savepoints.regrouping import continue_with

SECOND = timedelta(seconds=1)
SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
AT_END = EventTimeTrigger.after_end_of_window()
EARLY = AT_END.with_early_trigger(CountTrigger.at_least(2))
TUMBLING = TumblingWindows.of(20 * SECOND)
TOTAL = {"aggregate": ["SUM(v) AS v"]}
Row = tuple[Any, ...]


def windows(assigner: Any = TUMBLING, trigger: Any = AT_END, **options: Any) -> WindowHarness:
    options = TOTAL | options if "process" not in options and "fold" not in options else options
    return WindowHarness(assigner, trigger, SCHEMA, keys=options.pop("keys", ["user"]), time="ts", **options)


def events(*rows: tuple[float, str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"ts": datetime.fromtimestamp(at, UTC), "user": user, "v": v} for at, user, v in rows], SCHEMA
    )


def changed(old: WindowHarness, new: WindowHarness) -> Counter[PlanPart]:
    """What became of the state."""
    counts = Counter[PlanPart]()

    class Watched(WindowsChange):
        def rows(self, rows: pa.Table) -> Any:
            made, found = super().rows(rows)
            counts.update(found)
            return made, found

        def waiting(self, name: str, events: pa.Table) -> Any:
            made, found = super().waiting(name, events)
            counts.update(found)
            return made, found

    def change_of(definition: StateDefinition, summary: Any) -> WindowsChange:
        return Watched(definition, new.operator, max(summary.watermark, old.now.watermark))  # type: ignore[arg-type]

    continue_with(old, new, change_of)
    return counts


def fates(counts: Counter[PlanPart]) -> dict[tuple[str, str, str], int]:
    return {(part.what, part.outcome, part.reason): count for part, count in counts.items()}


def rows(run: WindowHarness) -> list[Row]:
    """Key, start, kind and total of each firing."""
    return [(r["user"], r["window_start"].timestamp(), r["kind"], r["v"]) for r in run.rows("firings")]


def test_another_trigger_begins_anew() -> None:
    old, new = windows(), windows(trigger=EARLY)
    old.feed(events((1, "a", 1), (2, "b", 2))).feed_watermark(5_000_000)
    assert fates(changed(old, new)) == {("windows", "continues", "the new trigger begins anew"): 2}
    new.feed(events((6, "a", 10), (7, "a", 100))).end()
    assert rows(new) == [("a", 0, "early", 111), ("a", 0, "on_time", 111), ("b", 0, "on_time", 2)]


def test_a_window_that_has_fired_does_not_fire_again() -> None:
    old, new = (windows(trigger=t, allowed_lateness=60 * SECOND) for t in (AT_END, EARLY))
    old.feed(events((1, "a", 1))).feed_watermark(30_000_000)
    assert rows(old) == [("a", 0, "on_time", 1)]
    counts = fates(changed(old, new))
    assert counts == {("windows that have fired", "continues", "the new trigger begins anew"): 1}
    new.feed(events((3, "a", 10))).end()
    assert rows(new) == [("a", 0, "late", 11)]


@pytest.mark.parametrize(
    ("seconds", "reason"), [(60, ""), (5, "its time in the new definition has passed: it ends at once")]
)
def test_another_lateness(seconds: int, reason: str) -> None:
    old, new = (windows(allowed_lateness=s * SECOND) for s in (30, seconds))
    old.feed(events((1, "a", 1))).feed_watermark(30_000_000)
    assert fates(changed(old, new)) == {("windows that have fired", "continues", reason): 1}
    new.feed_watermark(31_000_000).feed(events((3, "a", 10))).end()
    assert rows(new) == ([("a", 0, "late", 11)] if seconds == 60 else [])


def test_another_size_keeps_what_both_have() -> None:
    old, new = windows(SlidingWindows.of(20 * SECOND, 10 * SECOND)), windows()
    old.feed(events((25, "a", 1))).feed_watermark(26_000_000)
    no_window = "the new definition has no such window"
    assert fates(changed(old, new)) == {("windows", "continues", ""): 1, ("windows", "dropped", no_window): 1}
    new.feed(events((30, "a", 10))).end()
    assert rows(new) == [("a", 20, "on_time", 11)]


@pytest.mark.parametrize(("gap", "starts"), [(20, [(0, 11)]), (3, [(0, 1), (8, 10)])])
def test_sessions_with_another_gap(gap: int, starts: list[tuple[int, int]]) -> None:
    old, new = windows(SessionWindows.with_gap(5 * SECOND)), windows(SessionWindows.with_gap(gap * SECOND))
    old.feed(events((0, "a", 1))).feed_watermark(2_000_000)
    # State of earlier builds has the gap only in the text of the windows, and its definition may not differ from today's.
    assert set(old.operator.definition.details) == {"lateness", "partials", FIXED}  # type: ignore[attr-defined]
    assert fates(changed(old, new)) == {("windows", "continues", ""): 1}
    new.feed(events((8, "a", 10))).end()
    assert [(start, v) for _, start, _, v in rows(new)] == starts


def test_sessions_with_a_shorter_gap_end_at_once() -> None:
    old, new = windows(SessionWindows.with_gap(50 * SECOND)), windows(SessionWindows.with_gap(3 * SECOND))
    old.feed(events((0, "a", 1))).feed_watermark(20_000_000)
    reason = "its time in the new definition has passed: it ends at once"
    assert fates(changed(old, new)) == {("windows", "continues", reason): 1}
    new.feed_watermark(21_000_000)
    assert rows(new) == [("a", 0, "on_time", 1)]


def test_sessions_with_a_longer_gap_do_not_overlap() -> None:
    """Two sessions of a key that the new gap would unite remain two: nothing says what was between their elements."""
    old, new = (windows(SessionWindows.with_gap(gap * SECOND), in_order=False) for gap in (2, 30))
    old.feed(events((0, "a", 1), (5, "a", 10)))
    changed(old, new)
    assert [(start, v) for _, start, _, v in rows(new.end())] == [(0, 1), (5, 10)]


DROPPED: dict[str, tuple[Callable[[], WindowHarness], Callable[[], WindowHarness], str]] = {
    "sessions of windows": (windows, lambda: windows(SessionWindows.with_gap(SECOND)), "the new definition has no such window"),
    "elements of aggregates": (
        windows,
        lambda: windows(aggregate=["PERCENTILE(v, 0.5) AS v"]),
        "its state is aggregates, and the new definition needs the elements of each window",
    ),
    "another evictor": (
        lambda: windows(aggregate=["PERCENTILE(v, 0.5) AS v"]),
        lambda: windows(aggregate=["PERCENTILE(v, 0.5) AS v"], evictor=Evictor.delta(3, "v")),
        "its elements were stored without what the new evictor compares",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DROPPED)
def test_what_is_dropped(name: str) -> None:
    make_old, make_new, reason = DROPPED[name]
    old, new = make_old(), make_new()
    old.feed(events((1, "a", 1), (2, "b", 2))).feed_watermark(5_000_000)
    assert fates(changed(old, new)) == {("windows", "dropped", reason): 2}
    new.feed(events((6, "a", 10))).end()
    assert [(row["user"], row["v"]) for row in new.rows("firings")] == [("a", 10)]


def test_the_key_cannot_change() -> None:
    old, new = windows(), windows(keys=["user", "v"], aggregate=["COUNT(*) AS n"])
    old.feed(events((1, "a", 1))).feed_watermark(5_000_000)
    with pytest.raises(CheckpointMismatchError, match="the key changed"):
        changed(old, new)


def test_events_that_wait() -> None:
    old, new = windows(in_order=True), windows(in_order=True, trigger=EARLY)
    old.feed(events((1, "a", 1), (3, "a", 2))).feed_watermark(2_000_000)
    assert fates(changed(old, new))[("events that wait", "continues", "")] == 1
    assert rows(new.end())[-1] == ("a", 0, "on_time", 3)


TRIGGERS = {
    "end": AT_END, "early": EARLY, "three": AT_END.with_early_trigger(CountTrigger.at_least(3)),
    "each": AT_END.with_early_trigger(ContinuousEventTimeTrigger.of(7 * SECOND)),
}  # fmt: skip


@pytest.mark.parametrize("before", TRIGGERS)
@pytest.mark.parametrize("after", TRIGGERS)
def test_the_result_at_the_end_is_that_of_a_replay(before: str, after: str) -> None:
    """Whatever the triggers, and with another number of key groups: the last total of each window that ends after the change."""
    for seed in range(FACTOR):
        rng = random.Random(f"{before} {after} {seed}")
        times = sorted(rng.sample(range(100), 24))
        all_events = [(at, rng.choice("abc"), rng.randrange(100)) for at in times]
        half = rng.randint(4, 20)
        old, new, whole = (windows(trigger=TRIGGERS[t], key_groups=g) for t, g in ((before, 1), (after, 3), (after, 2)))
        mark = (all_events[half - 1][0] - 1) * 1_000_000
        old.feed(events(*all_events[:half])).feed_watermark(mark)
        counts = changed(old, new)
        assert not [part for part in counts if part.outcome == "dropped"]
        new.feed(events(*all_events[half:])).end()
        whole.feed(events(*all_events)).end()
        expected = [row for row in rows(whole) if row[2] == "on_time" and (row[1] + 20) * 1_000_000 - 1 > mark]
        assert sorted(row for row in rows(new) if row[2] == "on_time") == sorted(expected)


def test_the_definition_is_the_stream_of_the_query() -> None:
    """With the order in which it processes elements."""

    def stream(trigger: Any) -> Any:
        events: Any = KeyedStream(SCHEMA, key="user", time="ts")
        return window(events, TUMBLING, trigger=trigger)

    old = windows(in_order=True).operator
    summary = Summary(old.definition, old.fingerprint, None, 0, [0], [0], announced=True)
    manifest = Manifest("", "", "", QueryPosition("", 0, 0, "", ""), "None", 1, 1, summary, {})
    change = change_of(manifest, summary, stream(EARLY), {}, TOTAL["aggregate"])
    assert change.new == windows(trigger=EARLY, in_order=True).operator.definition
    with pytest.raises(StateError, match="need the aggregates"):
        change_of(manifest, summary, stream(EARLY), {}, [])
