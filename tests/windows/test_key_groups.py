"""Results depend on the elements, not on how their keys are grouped or how they are cut: with triggers by the clock, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism.operators.operator import EVENTS, Arrival, sorted_arrival
from asterism.operators.state.state_store import batch_from_bytes
from asterism.spark.host import exchange
from asterism.spark.host.batch import BATCH_GROUP, answered, run_groups
from asterism.testing import OperatorHarness
from asterism.testing.operator_harness import key_hashes
from asterism.windows.assigners import SessionWindows, TumblingWindows, Windows
from asterism.windows.operator import WindowOperator
from asterism.windows.plan import FIRINGS
from asterism.windows.triggers import Any as AnyOf
from asterism.windows.triggers import (
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    TimeSpan,
    Trigger,
    TriggerContext,
    TriggerResult,
)

SECOND = timedelta(seconds=1)
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROCESSING_TIME = int(NOW.timestamp()) * 10**6
SCHEMA = pa.schema({"k": "string", "t": pa.timestamp("us", "UTC"), "v": "int64"})
AT_END = EventTimeTrigger.after_end_of_window()
IN_PROCESSING_TIME = ProcessingTimeTrigger.after_end_of_window()
ELEMENTS = pa.Table.from_pylist(
    [{"k": "abcde"[n % 5], "t": BEGIN + n // 5 * 4 * SECOND, "v": n} for n in range(30)], SCHEMA
)


class WhenItCame(Trigger):
    """Fires if the clock shows what it should."""

    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(ctx.processing_time + SECOND)
        return TriggerResult.FIRE if ctx.processing_time == NOW else TriggerResult.CONTINUE

    def on_processing_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, window: TimeSpan, states: list[dict[str, Any]], ctx: TriggerContext) -> None: ...


class AtOnce(WhenItCame):
    """Its timers are due when they are set."""

    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(ctx.processing_time)
        return TriggerResult.CONTINUE


POLICIES: dict[str, tuple[Trigger, int]] = {
    "the end by the clock, which has passed": (IN_PROCESSING_TIME, 30),
    "the end by either": (AnyOf(IN_PROCESSING_TIME, AT_END), 30),
    "early by the clock, which stands still": (
        AT_END.with_early_trigger(ContinuousProcessingTimeTrigger.of(SECOND)),
        0,
    ),
    "at once by the clock": (ProcessingTimeTrigger.after_first_element(timedelta(0)), 30),
    "after a while by the clock": (ProcessingTimeTrigger.after_first_element(SECOND), 0),
    "one's own": (WhenItCame(), 30),
    "one's own with timers that are due": (AtOnce(), 30),
    "by count": (CountTrigger.at_least(2), 0),
}


def operator_of(windows: Windows, trigger: Trigger) -> WindowOperator:
    measures = ["sum(v) AS total", "count(*) AS n"]
    return WindowOperator(windows, SCHEMA, keys=["k"], time="t", trigger=trigger, measures=measures, in_order=True)


def over_a_table(operator: WindowOperator, key_groups: int) -> list[tuple[Any, ...]]:
    """As Spark carries it: by key group and time."""
    groups = key_hashes(ELEMENTS.select(["k"])).view("uint64") % key_groups
    rows = ELEMENTS.append_column(BATCH_GROUP, pa.array(groups.astype("int32")))
    rows = rows.sort_by([(BATCH_GROUP, "ascending"), ("t", "ascending")])

    def sent(rows: pa.Table) -> list[Arrival]:
        return sorted_arrival(EVENTS, operator.prepare(EVENTS, rows))

    runner: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    runner = run_groups(operator, sent, PROCESSING_TIME, answered)
    found = []
    for batch in runner(iter(rows.to_batches(max_chunksize=7))):
        for row in batch.to_pylist():
            assert row["output"] == FIRINGS
            found += batch_from_bytes(row["chunk"], operator.output_schemas[FIRINGS]).to_pylist()
    return firings_of(found)


def firings_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((r["k"], str(r["window_start"]), r["firing"], r["kind"], r["total"], r["n"]) for r in rows)


@pytest.mark.parametrize("windows", [SessionWindows.with_gap(5 * SECOND)], ids=repr)
@pytest.mark.parametrize(("trigger", "early"), POLICIES.values(), ids=POLICIES.keys())
def test_it_does_not_matter_how_keys_are_grouped_or_elements_are_cut(
    windows: Windows, trigger: Trigger, early: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [over_a_table(operator_of(windows, trigger), key_groups) for key_groups in (1, 2, 32)]
    monkeypatch.setattr(exchange, "GATHER", 4)
    found += [over_a_table(operator_of(windows, trigger), key_groups) for key_groups in (1, 2, 32)]

    # The same elements as a stream that is drained, in one key group.
    for size in (1, 4, 30):
        harness = OperatorHarness(operator_of(windows, trigger), keys=["k"]).move(processing_time=PROCESSING_TIME)
        for begin in range(0, 30, size):
            ahead = ELEMENTS.column("t")[begin].as_py()
            harness.move(watermark=int(ahead.timestamp()) * 10**6 - 1).feed(ELEMENTS.slice(begin, size))
        found.append(firings_of(harness.end().rows(FIRINGS)))
    assert all(one == found[0] for one in found)
    if isinstance(windows, TumblingWindows) and early:
        assert len([row for row in found[0] if row[3] == "early"]) == early
    assert found[0] or not early or windows.is_global
