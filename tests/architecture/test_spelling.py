"""Java's spellings of public names are answered with the names of Python."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import asterism
from asterism import (
    CEP,
    AfterMatchSkipStrategy,
    Context,
    CountTrigger,
    EventTimeTrigger,
    KeyedStream,
    Pattern,
    ValueState,
)

BEGIN = Pattern.begin("a").where("kind = 'a'")


@pytest.mark.parametrize(
    ("read", "written"),
    [
        (lambda: BEGIN.followedBy, "followed_by"),  # type: ignore[attr-defined] # as all of these
        (lambda: BEGIN.oneOrMore, "one_or_more"),  # type: ignore[attr-defined]
        (lambda: BEGIN.timesOrMore, "times_or_more"),  # type: ignore[attr-defined]
        (lambda: Pattern.notFollowedBy, "not_followed_by"),  # type: ignore[attr-defined]
        (lambda: CEP.dynamicPatterns, "pattern_processors"),  # type: ignore[attr-defined]
        (lambda: AfterMatchSkipStrategy.skipPastLastEvent, "skip_past_last_event"),  # type: ignore[attr-defined]
        (lambda: EventTimeTrigger.afterEndOfWindow, "after_end_of_window"),  # type: ignore[attr-defined]
        (lambda: EventTimeTrigger.after_end_of_window().withEarlyTrigger, "with_early_trigger"),  # type: ignore[attr-defined]
        (lambda: CountTrigger.of, "CountTrigger.at_least"),  # type: ignore[attr-defined]
        (lambda: Context.registerEventTimeTimer, "register_event_time_timer"),  # type: ignore[attr-defined]
        (lambda: ValueState.getValue, "value"),  # type: ignore[attr-defined]
    ],
)
def test_a_name_of_java(read: Callable[[], Any], written: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute .*: write {written}"):
        read()


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("OutputTag", "name of an output"),
        ("WatermarkStrategy", "max_out_of_orderness"),
        ("matchRecognize", "match_recognize"),
    ],
)
def test_a_name_of_the_module(name: str, written: str) -> None:
    with pytest.raises(ImportError, match=written):
        getattr(asterism, name)


def test_other_attributes() -> None:
    with pytest.raises(AttributeError, match=r"'Pattern' object has no attribute 'nothing'$"):
        _ = BEGIN.nothing  # type: ignore[attr-defined]
    assert not hasattr(KeyedStream, "nothing")
    assert copy.deepcopy(BEGIN) == pickle.loads(pickle.dumps(BEGIN)) == BEGIN
