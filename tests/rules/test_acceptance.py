"""Which of the processors that were discovered come into the next set, without a coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from asterism.columns.time import BEFORE_TIME
from asterism.errors import AsterismError, PatternProcessorError, VersionConflictError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.publishing.acceptance import Acceptance, accept
from asterism.rules.sets.interfaces import Discovered, RefusedProcessor
from asterism.rules.sets.sets import ProcessorSet
from asterism.rules.sets.used_versions import UsedVersions

WRONG = PatternProcessorError("it cannot be used")


def rule(id: str, version: int = 1, limit: int = 1, **more: Any) -> PatternProcessor:
    """A limit of 0 makes it unusable."""
    return PatternProcessor(id, version, sql=f"PATTERN (A) DEFINE A AS x > {limit}", **more)


def check(one: PatternProcessor, was_accepted: bool) -> AsterismError | None:
    return WRONG if str(one.sql).endswith(" 0") else None


def accepted(
    found: Sequence[Discovered],
    before: Sequence[PatternProcessor] = (),
    left_out: Sequence[str] = (),
    used: Sequence[PatternProcessor] = (),
) -> Acceptance:
    known = ProcessorSet(1, tuple(before))
    return accept(known, found, left_out, UsedVersions().with_([*before, *used]), check, lambda: BEFORE_TIME)


def names(found: Acceptance) -> tuple[list[tuple[str, int, bool]], list[str]]:
    return [(one.id, one.version, one.shadow) for one in found.listed], [one.name for one in found.refused]


def test_a_refused_rule_keeps_its_last_version() -> None:
    found = accepted([rule("a", 2), rule("b", 2, limit=0)], [rule("a"), rule("b"), rule("c")])
    assert names(found) == ([("a", 2, False), ("b", 1, False)], ["b"])
    assert found.refused[0].error is WRONG


def test_what_cannot_be_identified_may_be_any_rule() -> None:
    found = accepted([rule("a", 2), RefusedProcessor("#2", WRONG, unidentified=True)], [rule("a"), rule("b")])
    assert names(found) == ([("a", 2, False), ("b", 1, False)], ["#2"])


def test_a_version_keeps_its_definition() -> None:
    """That of the last set, and those that were used before."""
    found = accepted([rule("a", 1, limit=2), rule("b", 1, limit=2)], [rule("a")], used=[rule("b")])
    assert names(found) == ([("a", 1, False)], ["a", "b"])
    assert all(isinstance(one.error, VersionConflictError) for one in found.refused)


def test_a_rule_that_is_left_out_stays_unchecked() -> None:
    assert names(accepted([rule("a", 1, limit=0)], [rule("a")], ["a"])) == ([("a", 1, False)], [])
    assert names(accepted([rule("a", 2)], [], ["a"])) == ([], [])


def test_a_shadow_of_the_version_in_force_is_refused() -> None:
    assert names(accepted([rule("a"), rule("a", shadow=True)])) == ([("a", 1, False)], ["a@1"])
    # One that is promoted is no shadow any more.
    assert names(accepted([rule("a", 2)], [rule("a"), rule("a", 2, shadow=True)])) == ([("a", 2, False)], [])


def test_versions_come_into_force_in_turn() -> None:
    start = datetime(2026, 1, 31, tzinfo=UTC)
    later = [rule("a", n, timestamp=start + timedelta(hours=n)) for n in (3, 2)]
    assert names(accepted([*later, rule("a")])) == ([("a", 1, False), ("a", 2, False), ("a", 3, False)], [])
    assert names(accepted([rule("a", 2), rule("a", 3)])) == ([("a", 2, False)], ["a"])


RULES = st.lists(
    st.builds(rule, st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 2)), max_size=4, unique_by=lambda r: r.id
)


@given(st.lists(RULES, max_size=5))
def test_a_usable_rule_never_depends_on_the_others(polls: list[list[PatternProcessor]]) -> None:
    """Compared with each rule alone, over several polls."""
    together: Sequence[PatternProcessor] = ()
    alone: dict[str, Sequence[PatternProcessor]] = {}
    used: list[PatternProcessor] = []
    for found in polls:
        together = accepted(found, together, used=used).listed
        for id in "abc":
            mine = [one for one in used if one.id == id]
            alone[id] = accepted([one for one in found if one.id == id], alone.get(id, ()), used=mine).listed
        assert {one.id: one for one in together} == {one.id: one for some in alone.values() for one in some}
        used += together
