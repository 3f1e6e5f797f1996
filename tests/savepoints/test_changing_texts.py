"""The complete text of plans, and of changes that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from asterism import Pattern
from tests.kit import Golden
from tests.savepoints.pattern_changes import AB, ABC, AXBC, AXC, A, changed, is_, within

ONE_MEASURE = {"select": ["COUNT(a.*) AS n"], "outputs": {}}
CASES: dict[str, tuple[Any, ...]] = {
    "inserted": (within(ABC), within(AXBC), "a1 a2 b3"),
    "removed": (within(ABC), within(A.followed_by("c").where(is_("c"))), "a1 a2 b3"),
    "replaced": (within(ABC), within(AXC), "a1 a2 b3"),
    "renamed": (within(ABC), within(AXC), "a1 a2 b3", {"b": "x"}),
    "all_removed": (within(AB), within(Pattern.begin("x").where(is_("x"))), "a1 a2"),
    "end_removed": (within(ABC), within(AB), "a1 b2"),
    "shorter_window": (within(ABC), within(ABC, 3), "a1 b9 a10 a20"),
    "more_repetitions": (
        within(A.followed_by("b").where(is_("b")).times(2).followed_by("c").where(is_("c"))),
        within(A.followed_by("b").where(is_("b")).times(3).followed_by("c").where(is_("c"))),
        "a1 b2 b3 a4",
    ),
    "fewer_repetitions": (
        within(A.followed_by("b").where(is_("b")).times(4).followed_by("c").where(is_("c"))),
        within(A.followed_by("b").where(is_("b")).times(2).followed_by("c").where(is_("c"))),
        "a1 b2 b3 b4 a5 b6",
    ),
    "column": (
        within(ABC),
        within(AB.followed_by("c").where("kind = 'c' AND value > b.value")),
        "a1 b2 a3",
        None,
        ONE_MEASURE,
    ),
}  # fmt: skip


def refused(old: Pattern, new: Pattern, **options: Any) -> object:
    return changed(old, new, "a1", **options)


REFUSED: dict[str, Callable[[], object]] = {
    "another_key": lambda: refused(AB, ABC, keys=[]),
    "previous": lambda: refused(AB, A.followed_by("b").where("value > PREV(value)")),
    "first_event": lambda: refused(AB, AB.starts_with_first_event()),
    "begin_without": lambda: refused(AB, Pattern.begin_without("z").where(is_("z")).followed_by("a").where(is_("a"))),
    "unknown_stage": lambda: changed(AB, ABC, "a1", {"x": "c"}),
    "unknown_new_stage": lambda: changed(AB, ABC, "a1", {"b": "x"}),
    "two_stages_with_one_name": lambda: changed(ABC, AB, "a1", {"c": "b"}),
}
TEXTS = {**CASES, **REFUSED, "dropped": None}


@pytest.mark.parametrize("name", CASES)
def test_plan(name: str, golden: Golden) -> None:
    golden.check(name, str(changed(*CASES[name], **(ONE_MEASURE if name == "column" else {}))[0]))


@pytest.mark.parametrize("name", REFUSED)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, REFUSED[name])


def test_what_is_dropped_must_be_allowed(golden: Golden) -> None:
    plan, _ = changed(*CASES["inserted"])
    plan.check(allow_dropped=True)
    golden.error("dropped", lambda: plan.check(allow_dropped=False))
    assert sum(plan.to_table().column("count").to_pylist()) == plan.dropped == 2
