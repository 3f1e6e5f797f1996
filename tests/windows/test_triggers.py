"""Triggers as values: what they are, how they print, and what they refuse is in ``test_window_texts.py``."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from asterism.errors import StreamDefinitionError
from asterism.windows import triggers as t
from asterism.windows.assigners import GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows
from asterism.windows.evictors import Evictor
from asterism.windows.trigger_table import TriggerPart, trigger_table_of
from tests.windows.test_operator_property import triggers

NAMES: dict[str, Any] = {
    name: getattr(t, name) for name in vars(t) if name.endswith("Trigger") or name in ("All", "Any")
}
NAMES |= {"timedelta": timedelta, "TumblingWindows": TumblingWindows, "SlidingWindows": SlidingWindows}
NAMES |= {"SessionWindows": SessionWindows, "GlobalWindows": GlobalWindows, "Evictor": Evictor}


@settings(deadline=None, derandomize=True, max_examples=200, database=None)
@given(triggers(event=True, merges=False, processing_time=True))
def test_repr_is_the_code_that_makes_it(trigger: t.Trigger) -> None:
    again = eval(repr(trigger), NAMES)
    assert again == trigger
    assert repr(again) == repr(trigger)
    assert hash(again) == hash(trigger)
    assert pickle.loads(pickle.dumps(trigger)) == trigger


@pytest.mark.parametrize(
    "made",
    [
        TumblingWindows.of(timedelta(days=1), offset=timedelta(hours=6), zone="Europe/Berlin"),
        TumblingWindows.of(timedelta(milliseconds=1500), offset=timedelta(milliseconds=-1)),
        TumblingWindows.of_months(3, zone="Asia/Tokyo"),
        SlidingWindows.of(timedelta(days=7), timedelta(days=1), zone="UTC"),
        SlidingWindows.of_months(12, 1, offset=timedelta(days=3)),
        SessionWindows.with_gap(timedelta(minutes=30)),
        SessionWindows.with_dynamic_gap("gap * 2"),
        GlobalWindows(),
        Evictor.count(3, after=True),
        Evictor.time(timedelta(hours=1)),
        Evictor.delta(1.5, "price", after=True),
    ],
    ids=repr,
)
def test_repr_of_windows_and_evictors_is_the_code_that_makes_them(made: Any) -> None:
    assert eval(repr(made), NAMES) == made


def test_a_trigger_does_not_change() -> None:
    whole = t.EventTimeTrigger.after_end_of_window()
    assert whole.with_early_trigger(t.never) != whole
    assert whole.discarding().mode is t.Mode.DISCARDING
    assert whole == t.EventTimeTrigger.after_end_of_window()
    with pytest.raises(FrozenInstanceError):
        whole.early = t.never  # type: ignore[misc]


def test_the_mode_of_the_whole_counts() -> None:
    """FLIP-9's example."""
    inner = t.CountTrigger.at_least(4).accumulating(), t.CountTrigger.at_least(5)
    assert trigger_table_of(t.All(*inner).discarding()).purges
    assert not trigger_table_of(t.All(*(trigger.discarding() for trigger in inner))).purges
    assert not trigger_table_of(t.CountTrigger.at_least(4)).purges
    assert trigger_table_of(t.PurgingTrigger.of(t.never)).purges


def test_the_plan_has_a_row_for_each_part() -> None:
    inner = t.PurgingTrigger.of(t.ProcessingTimeTrigger.after_first_element(timedelta(seconds=10)))
    plan = trigger_table_of(
        t.EventTimeTrigger.after_end_of_window().with_early_trigger(inner).with_late_trigger(t.CountTrigger.at_least(5))
    )
    assert [TriggerPart(row[0]).name for row in plan.rows] == ["END_EVENT", "FIRST_PROCESSING", "COUNT"]


def test_triggers_may_be_nested_deep() -> None:
    trigger: t.Trigger = t.CountTrigger.at_least(1)
    for _ in range(t.MAX_DEPTH - 1):
        trigger = t.All(trigger)
    assert eval(repr(trigger), NAMES) == trigger
    assert len(trigger_table_of(trigger).rows) == t.MAX_DEPTH


@pytest.mark.parametrize(
    "make",
    [
        lambda: t.CountTrigger(0),
        lambda: t.EventTimeTrigger(timedelta(seconds=-1)),
        lambda: t.EventTimeTrigger(timedelta(seconds=1), early=t.never),
        lambda: t.ProcessingTimeTrigger(early="never"),  # type: ignore[arg-type]
        lambda: t.ContinuousEventTimeTrigger(timedelta(0)),
        lambda: t.DeltaTrigger(1, 5),  # type: ignore[arg-type]
        lambda: t.PurgingTrigger(5),  # type: ignore[arg-type]
    ],
)
def test_there_is_no_way_around_the_checks(make: Any) -> None:
    with pytest.raises(StreamDefinitionError):
        make()


def test_flinks_spellings_are_answered_with_those_of_here() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'of': write CountTrigger\.at_least\(5\)"):
        t.CountTrigger.of(5)
    with pytest.raises(AttributeError, match=r"write EventTimeTrigger\.after_end_of_window\(\)"):
        t.EventTimeTrigger.create()
    with pytest.raises(AttributeError, match=r"has no attribute .at_most.$"):
        t.CountTrigger.at_most(5)
    with pytest.raises(ImportError, match="asterism has no 'TumblingEventTimeWindows': it is TumblingWindows here"):
        from asterism import TumblingEventTimeWindows  # noqa: F401
