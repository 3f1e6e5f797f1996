"""Continues a harness with another pattern."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from asterism import Pattern
from asterism.changes.plan import SavepointPlan, plan_of
from asterism.operators.state.page_numbers import PageKind
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.changes.patterns import PatternChange
from asterism.testing import Literals, PatternHarness
from tests.savepoints.regrouping import continue_with

SECOND = timedelta(seconds=1)
TIMED = Literals(timed_by_value=True)


def is_(letter: str) -> str:
    return f"kind = '{letter}'"


A = Pattern.begin("a").where(is_("a"))
AB = A.followed_by("b").where(is_("b"))
ABC = AB.followed_by("c").where(is_("c"))
AXC = A.followed_by("x").where(is_("x")).followed_by("c").where(is_("c"))
AXBC = A.followed_by("x").where(is_("x")).followed_by("b").where(is_("b")).followed_by("c").where(is_("c"))


def within(pattern: Pattern, seconds: int = 100) -> Pattern:
    return pattern.within(seconds * SECOND)


def changed(
    old: Pattern,
    new: Pattern,
    events: str,
    renamed: Mapping[str, str] | None = None,
    former: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[SavepointPlan, PatternHarness]:
    """The plan, and the query with the new pattern.

    :param former: options of the former query
    """
    before = PatternHarness(old, literals=TIMED, **(former or {})).send(f"{events} |")
    run, changes = PatternHarness(new, literals=TIMED, **options), list[PatternChange]()

    def change_of(definition: StateDefinition, summary: Any) -> PatternChange:
        changes.append(PatternChange(definition, run.cep, renamed, before.now.watermark))
        return changes[0]

    store = before.stores[0]
    continue_with(before, run, change_of)
    pages = [page for number, page in store.pages.items() if number < PageKind.WAITING_EVENTS.first]
    plan = plan_of((changes[0].page(page)[-1] for page in pages), changes[0].notes if changes else ())
    return plan, run
