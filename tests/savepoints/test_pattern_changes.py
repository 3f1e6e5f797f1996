"""Partial matches that continue with another pattern."""

from __future__ import annotations

from typing import Any

import pytest

from asterism import AfterMatchSkipStrategy, Pattern
from asterism.errors import ColumnNotFoundError
from asterism.operators.operator import EVENTS
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.changes.patterns import PatternChange, operator_of_pattern
from asterism.testing import PatternHarness
from tests.savepoints.pattern_changes import AB, ABC, AXBC, A, changed, is_, within


def test_partial_matches_continue_where_they_were() -> None:
    _, run = changed(within(AB), within(ABC), "a1 a2")
    assert run.send("b3 c4").end().matches == ["a1 b3 c4", "a2 b3 c4"]
    _, run = changed(within(ABC), within(AXBC), "a1 b2 a3")
    assert run.send("b4 x5 b6 c7").end().matches == ["a3 x5 b6 c7"]
    _, run = changed(within(ABC), within(A.followed_by("c").where(is_("c"))), "a1 b2 a3")
    assert run.send("c4").end().matches == ["a1 c4", "a3 c4"]


def test_a_loop_counts_on() -> None:
    loop = A.followed_by("b").where(is_("b"))
    end = is_("c")
    more = within(loop.times(3).followed_by("c").where(end))
    _, run = changed(within(loop.times(2).followed_by("c").where(end)), more, "a1 b2 b3")
    assert run.send("c4 b5 c6").end().matches == ["a1 b2 b3 b5 c6"]
    _, run = changed(
        within(loop.times(3).followed_by("c").where(end)),
        within(loop.one_or_more().followed_by("c").where(end)),
        "a1 b2",
    )
    assert run.send("b3 c4").end().matches == ["a1 b2 b3 c4", "a1 b2 c4"]


def test_a_skip_strategy_can_change() -> None:
    """Matches that were held back are emitted, or discarded by the new strategy."""
    skip = AfterMatchSkipStrategy
    loop = "a1 a2 b3"

    def pattern(strategy: Any) -> Pattern:
        return within(
            Pattern.begin("a", strategy)
            .where(is_("a"))
            .followed_by_any("b")
            .where(is_("b"))
            .followed_by_any("c")
            .where(is_("c"))
        )

    _, run = changed(pattern(skip.no_skip()), pattern(skip.skip_past_last_event()), loop)
    assert run.send("c4 c5").end().matches == ["a1 b3 c4"]
    _, run = changed(pattern(skip.skip_past_last_event()), pattern(skip.no_skip()), loop)
    assert run.send("c4").end().matches == ["a1 b3 c4", "a2 b3 c4"]


def test_a_first_match_can_be_the_only_one_and_need_not_be() -> None:
    def pattern(strategy: AfterMatchSkipStrategy) -> Pattern:
        return within(Pattern.begin("a", strategy).where(is_("a")).followed_by("b").where(is_("b")))

    first, every = pattern(AfterMatchSkipStrategy.first_match_only()), pattern(AfterMatchSkipStrategy.no_skip())
    _, run = changed(first, every, "a1 b2")
    assert run.send("a3 b4").end().matches == ["a3 b4"]
    plan, run = changed(every, first, "a1 b2 a3")
    assert run.send("b4 a5 b6").end().matches == ["a3 b4"]
    assert any("first match" in note for note in plan.notes)


def test_a_pattern_alone_reads_the_columns_that_were_read() -> None:
    store = PatternHarness(AB, select=["COUNT(*) AS n"], outputs={}).send("a1 |").stores[0]
    definition = StateDefinition.from_bytes(store.pages[DEFINITION_PAGE])
    operator = operator_of_pattern(ABC, definition)
    assert PatternChange(definition, operator).new.inputs[EVENTS].names == operator.inputs[EVENTS].prepared.names
    with pytest.raises(ColumnNotFoundError, match="value"):
        operator_of_pattern(AB.where("value > 1"), definition)
