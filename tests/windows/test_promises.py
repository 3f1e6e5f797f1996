"""Sentences of docs/windows.md of which nothing else is the test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism.testing import OperatorHarness
from asterism.windows.assigners import GlobalWindows, TumblingWindows, Windows
from asterism.windows.operator import WindowOperator
from asterism.windows.plan import FIRINGS
from asterism.windows.triggers import CountTrigger, EventTimeTrigger, ProcessingTimeTrigger, PurgingTrigger, Trigger

SECOND = timedelta(seconds=1)
TEN = TumblingWindows.of(10 * SECOND)
SCHEMA = pa.schema({"t": "int64", "v": "int64"})
AT_END = EventTimeTrigger.after_end_of_window()
IN_PROCESSING_TIME = ProcessingTimeTrigger.after_end_of_window()


def fired(trigger: Trigger, windows: Windows = TEN, time: str | None = "t", **more: Any) -> list[tuple[Any, ...]]:
    """The elements 1 and 2, then the end."""
    operator = WindowOperator(windows, SCHEMA, time=time, trigger=trigger, measures=["sum(v) AS total"], **more)
    elements = pa.table({"t": [1000, 2000], "v": [1, 2]}, SCHEMA)
    rows = OperatorHarness(operator).move(processing_time=10**9).feed(elements).end().rows(FIRINGS)
    return [(row["kind"], row["is_last"], row["total"]) for row in rows]


def test_a_window_that_has_nothing_new_has_no_row_on_time_when_it_is_discarding() -> None:
    early = AT_END.with_early_trigger(CountTrigger.at_least(2))
    assert fired(early.discarding()) == [("early", False, 3)]
    assert fired(early) == [("early", False, 3), ("on_time", True, 3)]


def test_with_an_allowed_lateness_the_row_on_time_is_not_the_last() -> None:
    assert fired(AT_END, lateness=5 * SECOND) == [("on_time", False, 3)]


@pytest.mark.parametrize(
    "early", [CountTrigger.at_least(2).discarding(), PurgingTrigger.of(CountTrigger.at_least(2))], ids=repr
)
def test_the_mode_of_the_whole_overrides_that_of_its_parts(early: Trigger) -> None:
    assert fired(AT_END.with_early_trigger(early)) == [("early", False, 3), ("on_time", True, 3)]


def test_a_window_without_an_end_ends_when_nothing_comes_any_more() -> None:
    assert fired(AT_END, GlobalWindows()) == [("on_time", True, 3)]
    assert fired(IN_PROCESSING_TIME, GlobalWindows()) == []
    assert fired(IN_PROCESSING_TIME, GlobalWindows(), time=None) == [("on_time", True, 3)]


def test_a_window_in_event_time_that_has_ended_by_the_clock_fires_with_each_element() -> None:
    assert fired(IN_PROCESSING_TIME) == [("early", False, 1), ("early", False, 3)]
    assert fired(IN_PROCESSING_TIME, in_order=True) == [("early", False, 1), ("early", False, 3)]
