"""What a user of windows and triggers reads when something is wrong: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import reduce
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from asterism.testing import OperatorHarness
from asterism.windows.assigners import (
    CumulativeWindows,
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    Windows,
)
from asterism.windows.evictors import Evictor
from asterism.windows.folds import Fold
from asterism.windows.operator import WindowOperator
from asterism.windows.triggers import (
    All,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeSpan,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from asterism.windows.triggers import Any as AnyOf
from asterism.windows.triggers import Sequence as Turns
from tests.kit import Golden
from tests.windows.user_functions import event_time_timer, fails, processing_time_timer, timer_without_zone

Provocation = Callable[[], object]
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
SCHEMA = pa.schema({"k": "string", "t": pa.timestamp("us", "UTC"), "v": "int64", "s": "string"})
TEN = TumblingWindows.of(10 * SECOND)
END: Any = EventTimeTrigger.after_end_of_window()
IN_PROCESSING_TIME: Any = ProcessingTimeTrigger.after_end_of_window()


def text_of(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    return "far"


def deep() -> object:
    return reduce(lambda inner, _: All(inner), range(200), CountTrigger.at_least(1))


class Own(Trigger):
    """Does what a test says."""

    def __init__(self, answer: Callable[[TriggerContext], Any]) -> None:
        self.answer = answer

    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> Any:
        return self.answer(ctx)


class Listens(Own):
    def on_event_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE


class Empty(Trigger):
    """Has no methods."""


class OwnEvictor(Evictor):
    def __init__(self, answer: Callable[..., Any]) -> None:
        self.answer = answer

    def keeps(self, elements: pa.Table, window: TimeSpan) -> Any:
        return self.answer(elements, window)


class OwnWindows(Windows):
    def __init__(self, answer: Callable[..., Any]) -> None:
        self.answer = answer

    def assign(self, times: Any) -> Any:
        return self.answer(times)


class OwnSessions(OwnWindows):
    @property
    def merges(self) -> bool:
        return True


COUNT = Fold("n INT", {"n": 0}, lambda total, element: {"n": total["n"] + 1})


def made(windows: Any = TEN, **more: Any) -> WindowOperator:
    if not more.keys() & {"measures", "function", "reduce", "fold"}:
        more["measures"] = ["sum(v) AS total"]
    return WindowOperator(windows, SCHEMA, **({"keys": ["k"], "time": "t"} | more))


def run(windows: Any = TEN, *, at: Any = datetime(2025, 1, 1), **more: Any) -> object:
    rows = [{"k": "ann", "t": at, "v": 1, "s": "x"}, {"k": "ann", "t": at, "v": 2, "s": "y"}]
    return OperatorHarness(made(windows, **more), keys=["k"]).feed(pa.Table.from_pylist(rows, SCHEMA)).end()


TRIGGERS: dict[str, Provocation] = {
    "all_of_nothing": All,
    "any_of_nothing": AnyOf,
    "all_of_a_number": lambda: All(CountTrigger.at_least(1), 5),  # type: ignore[arg-type]
    "any_of_a_class": lambda: AnyOf(CountTrigger),  # type: ignore[arg-type]
    "count_of_zero": lambda: CountTrigger.at_least(0),
    "count_of_less": lambda: CountTrigger.at_least(-3),
    "count_of_a_fraction": lambda: CountTrigger.at_least(2.5),  # type: ignore[arg-type]
    "count_of_true": lambda: CountTrigger.at_least(True),
    "count_that_never_comes": lambda: CountTrigger.at_least(2**63),
    "late_trigger_by_the_clock": lambda: IN_PROCESSING_TIME.with_late_trigger(CountTrigger.at_least(5)),
    "early_trigger_twice": lambda: END.with_early_trigger(CountTrigger.at_least(1)).with_early_trigger(
        IN_PROCESSING_TIME
    ),
    "late_trigger_twice": lambda: END.with_late_trigger(CountTrigger.at_least(1)).with_late_trigger(IN_PROCESSING_TIME),
    "early_trigger_of_first_element": lambda: EventTimeTrigger.after_first_element(SECOND).with_early_trigger(END),
    "late_trigger_of_first_element": lambda: EventTimeTrigger.after_first_element(SECOND).with_late_trigger(END),
    "early_trigger_of_first_element_by_the_clock": lambda: ProcessingTimeTrigger.after_first_element(
        SECOND
    ).with_early_trigger(END),
    "early_trigger_is_a_text": lambda: END.with_early_trigger("count"),
    "delay_is_negative": lambda: EventTimeTrigger.after_first_element(-SECOND),
    "delay_is_a_number": lambda: ProcessingTimeTrigger.after_first_element(10),  # type: ignore[arg-type]
    "interval_is_zero": lambda: ContinuousEventTimeTrigger.of(timedelta(0)),
    "interval_is_negative": lambda: ContinuousProcessingTimeTrigger.of(-SECOND),
    "interval_is_endless": lambda: ContinuousProcessingTimeTrigger.of(timedelta.max),
    "delta_threshold_is_a_text": lambda: DeltaTrigger.of("5", "v"),  # type: ignore[arg-type]
    "delta_threshold_is_negative": lambda: DeltaTrigger.of(-1, "v"),
    "delta_is_a_number": lambda: DeltaTrigger.of(1, 5),  # type: ignore[arg-type]
    "delta_function_returns_text": lambda: DeltaTrigger.of(1, text_of),  # type: ignore[arg-type]
    "purging_of_nothing": lambda: PurgingTrigger.of(None),  # type: ignore[arg-type]
    "purging_and_accumulating": lambda: PurgingTrigger.of(END).accumulating(),
    "own_trigger_without_method": lambda: All(Empty()),
    "nested_too_deep": deep,
    "sequence_of_nothing": Turns,
    "sequence_of_a_number": lambda: Turns(END, 5),  # type: ignore[arg-type]
    "until_a_number": lambda: END.until(5),
    "once_of_own_trigger_without_method": lambda: Empty().once(),
}

WINDOWS: dict[str, Provocation] = {
    "size_is_negative": lambda: TumblingWindows.of(-SECOND),
    "size_is_zero": lambda: TumblingWindows.of(timedelta(0)),
    "size_is_a_number": lambda: TumblingWindows.of(10),  # type: ignore[arg-type]
    "slide_is_larger": lambda: SlidingWindows.of(10 * SECOND, 15 * SECOND),
    "slide_is_negative": lambda: SlidingWindows.of(10 * SECOND, -SECOND),
    "slide_is_tiny": lambda: SlidingWindows.of(DAY, timedelta(milliseconds=1)),
    "slide_of_months_is_larger": lambda: SlidingWindows.of_months(1, 3),
    "months_are_zero": lambda: TumblingWindows.of_months(0),
    "offset_is_too_long": lambda: TumblingWindows.of(10 * SECOND, offset=10 * SECOND),
    "offset_is_a_number": lambda: TumblingWindows.of(10 * SECOND, offset=3),  # type: ignore[arg-type]
    "zone_is_unknown": lambda: TumblingWindows.of(DAY, zone="Europe/Berln"),
    "zone_of_hours": lambda: TumblingWindows.of(timedelta(hours=1), zone="Europe/Berlin"),
    "gap_is_negative": lambda: SessionWindows.with_gap(-SECOND),
    "gap_is_a_number": lambda: SessionWindows.with_dynamic_gap(5),  # type: ignore[arg-type]
    "evictor_of_zero": lambda: Evictor.count(0),
    "evictor_of_negative_time": lambda: Evictor.time(-SECOND),
    "evictor_of_no_distance": lambda: Evictor.delta(0, "v"),
    "step_does_not_divide_the_size": lambda: CumulativeWindows.of(10 * SECOND, 3 * SECOND),
    "step_is_tiny": lambda: CumulativeWindows.of(DAY, timedelta(milliseconds=1)),
    "step_does_not_divide_a_day_of_a_zone": lambda: CumulativeWindows.of(2 * DAY, 2 * DAY, zone="Asia/Tokyo"),
    "accumulator_is_a_number": lambda: Fold(5, {}, fails),  # type: ignore[arg-type]
    "accumulator_without_columns": lambda: Fold(pa.schema([]), {}, fails),
    "accumulator_would_be_rounded": lambda: Fold("mean FLOAT", {"mean": 0.0}, fails),
    "initial_accumulator_is_a_list": lambda: Fold("n INT", [0], fails),  # type: ignore[arg-type]
    "initial_accumulator_without_a_column": lambda: Fold("n INT, m INT", {"n": 0}, fails),
    "initial_accumulator_of_another_type": lambda: Fold("n INT", {"n": "0"}, fails),
    "add_is_a_text": lambda: Fold("n INT", {"n": 0}, "add"),  # type: ignore[arg-type]
    "merge_is_a_text": lambda: Fold("n INT", {"n": 0}, fails, "merge"),  # type: ignore[arg-type]
}

DEFINITIONS: dict[str, Provocation] = {
    "windows_are_a_duration": lambda: made(10 * SECOND),
    "trigger_is_a_number": lambda: made(trigger=5),
    "lateness_is_negative": lambda: made(lateness=-SECOND),
    "late_trigger_without_lateness": lambda: made(
        trigger=AnyOf(IN_PROCESSING_TIME, END.with_late_trigger(CountTrigger.at_least(5)))
    ),
    "lateness_in_processing_time": lambda: made(time=None, lateness=SECOND),
    "event_time_trigger_in_processing_time": lambda: made(time=None, trigger=AnyOf(CountTrigger.at_least(1), END)),
    "global_window_without_trigger": lambda: made(GlobalWindows()),
    "session_with_delta": lambda: made(SessionWindows.with_gap(SECOND), trigger=All(END, DeltaTrigger.of(1, "v"))),
    "session_with_own_trigger_that_cannot_merge": lambda: made(SessionWindows.with_gap(SECOND), trigger=Own(fails)),
    "in_order_in_processing_time": lambda: made(time=None, in_order=True),
    "nothing_is_computed": lambda: made(measures=None),
    "two_things_are_computed": lambda: made(measures=["count(*)"], reduce=lambda a, b: a),
    "measures_are_a_text": lambda: made(measures="count(*)"),
    "measures_are_none": lambda: made(measures=[]),
    "measure_is_a_number": lambda: made(measures=[5]),
    "measure_is_the_key": lambda: made(measures=["k", "count(*) AS n"]),
    "measure_is_called_nearly_like_the_key": lambda: made(measures=["count(*) AS K"]),
    "measure_is_called_nearly_like_a_column": lambda: made(measures=["count(*) AS Kind"]),
    "function_returns_the_key": lambda: made(function=fails, output="k STRING"),
    "key_is_called_like_a_column": lambda: WindowOperator(
        TEN, pa.schema({"Kind": "string", "t": "int64"}), keys=["Kind"], time="t", measures=["count(*) AS n"]
    ),
    "reduced_element_has_a_column_called_so": lambda: WindowOperator(
        TEN, pa.schema({"kind": "string", "t": "int64"}), time="t", reduce=fails
    ),
    "function_without_output": lambda: made(function=lambda rows, window: rows),
    "function_is_a_text": lambda: made(function="len", output="n BIGINT"),
    "reduce_is_a_text": lambda: made(reduce="max"),
    "measure_is_called_like_a_column": lambda: made(measures=["count(*) AS firing"]),
    "measure_is_called_like_the_key": lambda: made(measures=["count(*) AS k"]),
    "measures_are_called_alike": lambda: made(measures=["count(*) AS n", "sum(v) AS n"]),
    "key_is_unknown": lambda: made(keys=["user"]),
    "time_is_unknown": lambda: made(time="ts"),
    "time_is_a_text": lambda: made(time="s"),
    "zone_of_times_without_zone": lambda: WindowOperator(
        TumblingWindows.of(DAY, zone="Asia/Tokyo"),
        pa.schema({"t": pa.timestamp("us")}),
        time="t",
        measures=["count(*) AS n"],
    ),
    "pages_are_zero": lambda: made(pages=0),
    "evictor_is_a_number": lambda: made(evictor=3),
    "delta_of_a_text_column": lambda: made(trigger=DeltaTrigger.of(1, "s")),
    "delta_of_an_unknown_column": lambda: made(trigger=DeltaTrigger.of(1, "w")),
    "gap_of_a_text_column": lambda: made(SessionWindows.with_dynamic_gap("s")),
    "closing_is_unknown": lambda: made(closing="fire"),
    "on_time_is_unknown": lambda: made(on_time=True),
    "session_ids_of_other_windows": lambda: made(session_ids=True),
    "measure_is_called_like_a_column_of_sessions": lambda: made(
        SessionWindows.with_gap(SECOND), session_ids=True, measures=["count(*) AS replaces"]
    ),
    "fold_is_a_function": lambda: made(fold=fails),
    "fold_of_sessions_without_merge": lambda: made(SessionWindows.with_gap(SECOND), fold=COUNT),
    "folded_and_reduced": lambda: made(fold=COUNT, reduce=fails),
    "own_evictor_without_method": lambda: made(evictor=Evictor()),
    "own_windows_without_method": lambda: made(Windows()),
    "own_windows_that_merge": lambda: made(OwnSessions(fails)),
}

RUNNING: dict[str, Provocation] = {
    "event_time_is_null": lambda: run(at=None),
    "gap_is_not_positive": lambda: run(SessionWindows.with_dynamic_gap("v - 1")),
    "gap_function_fails": lambda: run(SessionWindows.with_dynamic_gap(fails)),
    "gap_function_of_other_length": lambda: run(SessionWindows.with_dynamic_gap(lambda rows: [SECOND])),
    "window_function_fails": lambda: run(function=fails, output="n BIGINT"),
    "window_function_gives_text": lambda: run(function=lambda rows, window: [{"n": "x"}], output="n BIGINT"),
    "window_function_gives_a_fraction": lambda: run(function=lambda rows, window: {"n": 1.9}, output="n BIGINT"),
    "window_function_gives_a_table_of_fractions": lambda: run(
        function=lambda rows, window: pa.table({"n": [1.0, 1.9]}), output="n BIGINT"
    ),
    "window_function_without_a_column": lambda: run(
        function=lambda rows, window: [{"n": 1, "m": 2}, {"n": 1}], output="n BIGINT, m BIGINT"
    ),
    "window_function_of_another_column": lambda: run(
        function=lambda rows, window: {"n": 1, "mean": 1.5}, output="n BIGINT"
    ),
    "window_function_gives_nothing": lambda: run(function=lambda rows, window: None, output="n BIGINT"),
    "window_function_is_a_generator": lambda: run(
        function=lambda rows, window: ({"n": n} for n in (1, 2)), output="n BIGINT"
    ),
    "fold_function_fails": lambda: run(fold=Fold("n INT", {"n": 0}, fails)),
    "fold_function_gives_nothing": lambda: run(fold=Fold("n INT", {"n": 0}, lambda total, element: None)),  # type: ignore[arg-type,return-value]
    "fold_function_gives_a_fraction": lambda: run(fold=Fold("n INT", {"n": 0}, lambda total, element: {"n": 1.5})),
    "fold_function_of_another_column": lambda: run(fold=Fold("n INT", {"n": 0}, lambda total, element: element)),
    "own_evictor_fails": lambda: run(evictor=OwnEvictor(fails)),
    "own_evictor_gives_too_few": lambda: run(evictor=OwnEvictor(lambda *_: [True])),
    "own_evictor_gives_numbers": lambda: run(evictor=OwnEvictor(lambda *_: [0, 1])),
    "own_windows_fail": lambda: run(OwnWindows(fails)),
    "own_windows_give_nothing": lambda: run(OwnWindows(lambda times: None)),
    "own_windows_give_texts": lambda: run(OwnWindows(lambda times: ([0, 1], ["a", "b"], times))),
    "own_windows_of_other_length": lambda: run(OwnWindows(lambda times: ([0, 1], times, [1]))),
    "own_windows_of_an_unknown_element": lambda: run(OwnWindows(lambda times: ([0, 2], times, times + 1))),
    "own_windows_in_disorder": lambda: run(OwnWindows(lambda times: ([1, 0], times, times + 1))),
    "own_windows_twice": lambda: run(OwnWindows(lambda times: ([0, 0, 1], [0, 0, 0], [9, 9, 9]))),
    "own_windows_miss_an_element": lambda: run(OwnWindows(lambda times: ([0], times[:1], times[:1] + 1))),
    "own_windows_end_before_they_start": lambda: run(OwnWindows(lambda times: ([0, 1], times, times))),
    "reduce_function_fails": lambda: run(reduce=fails),
    "reduce_function_gives_text": lambda: run(reduce=lambda a, b: {**a, "v": "x"}),
    "reduce_function_gives_a_fraction": lambda: run(reduce=lambda a, b: {**a, "v": (a["v"] + b["v"]) / 2}),
    "reduce_function_without_a_column": lambda: run(reduce=lambda a, b: {"v": 1}),
    "reduce_function_of_another_column": lambda: run(reduce=lambda a, b: {**a, "n": 1}),
    "reduce_function_gives_nothing": lambda: run(reduce=lambda a, b: None),
    "delta_function_fails": lambda: run(trigger=DeltaTrigger.of(1, fails)),
    "delta_function_gives_text": lambda: run(trigger=DeltaTrigger.of(1, lambda a, b: "far")),  # type: ignore[arg-type,return-value]
    "own_trigger_fails": lambda: run(trigger=Own(fails)),
    "own_trigger_returns_true": lambda: run(trigger=Own(lambda ctx: True)),
    "own_trigger_timer_without_zone": lambda: run(trigger=Own(timer_without_zone)),
    "own_trigger_without_on_event_time": lambda: run(trigger=Own(event_time_timer)),
    "own_trigger_without_on_processing_time": lambda: run(trigger=Own(processing_time_timer)),
    "own_trigger_waits_for_a_watermark_in_processing_time": lambda: run(time=None, trigger=Listens(event_time_timer)),
    "own_trigger_state_is_odd": lambda: OperatorHarness(
        made(trigger=Own(lambda ctx: ctx.state.update(x={1}) or TriggerResult.CONTINUE)), keys=["k"]
    ).feed(pa.Table.from_pylist([{"k": "ann", "t": datetime(2025, 1, 1), "v": 1, "s": "x"}], SCHEMA)),
}


def many_firings() -> object:
    with patch("asterism.windows.firing.MAX_FIRINGS", 100):
        return run(TumblingWindows.of(DAY), trigger=ContinuousEventTimeTrigger.of(SECOND))


RUNNING["too_many_firings"] = many_firings
TEXTS = TRIGGERS | WINDOWS | DEFINITIONS | RUNNING


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
