"""The automaton of a query and its limits: everything that does not depend on the schema of the events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asterism.errors import LimitExceededError, TooManyPartialMatchesError
from asterism.expressions.names import PreviousColumn
from asterism.patterns.automaton import Nfa
from asterism.patterns.compiler import compile_pattern, identity_of
from asterism.patterns.conditions import leaves_of
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import AfterMatchSkipStrategy, PatternSequence, stages_of

STEPS_PER_PARTIAL_MATCH, HELD_PER_PARTIAL_MATCH, LEAST_PARTIAL_MATCHES = 1000, 10, 10_000
NO_SKIP = AfterMatchSkipStrategy.no_skip()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the cost of a key.

    :param partial_matches: the maximum number of partial matches of a key after each of its events; None: no maximum. Each of
        them allows an event STEPS_PER_PARTIAL_MATCH steps (see ``kernels.MADE``), and HELD_PER_PARTIAL_MATCH finished matches
        that wait for their emission. A limit below LEAST_PARTIAL_MATCHES counts as that.
    :param drop: drop the partial matches that began last instead of raising an error
    """

    partial_matches: int | None = None
    drop: bool = False

    @property
    def steps(self) -> int | None:
        """The maximum number of steps of an event."""
        return self._times(STEPS_PER_PARTIAL_MATCH)

    @property
    def held(self) -> int | None:
        """The maximum number of finished matches that wait for their emission."""
        return self._times(HELD_PER_PARTIAL_MATCH)

    def _times(self, factor: int) -> int | None:
        return None if self.partial_matches is None else factor * max(self.partial_matches, LEAST_PARTIAL_MATCHES)

    def error(self, code: int, where: str, excess: int, hint: str) -> LimitExceededError:
        """The exception for an error code of the kernel; *excess* is the number of partial matches above the limit, or 0."""
        from asterism.matching import kernels

        if code == kernels.TOO_MANY_RUNS:
            limit = self.partial_matches or 0
            counted = (
                f"{limit + excess:,} partial matches (limit {limit:,})"
                if excess
                else f"more than {limit:,} partial matches"
            )
            return TooManyPartialMatchesError(f"a key has {counted}", where, hint)
        if code == kernels.TOO_MUCH_WORK:
            message = f"an event takes more than {self.steps:,} steps for the partial matches of its key"
            each = STEPS_PER_PARTIAL_MATCH
        else:
            message = f"a key has more than {self.held:,} matches that the skip strategy holds back"
            each = HELD_PER_PARTIAL_MATCH
        detail = f"{where}\nThe limit is {each} for each of the partial matches that are allowed."
        return LimitExceededError(message, detail, hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchPlan:
    """An automaton and the options with which it is run.

    :param conditions_of: for each stage the numbers of its conditions, from which error messages determine the stage
    :param skip: the skip strategy
    :param kept_columns: the event columns that matches need, which are kept with the partial matches
    :param previous: the columns of earlier events of the key that matches need; *kept_columns* contains their names
    :param counts_matches: whether matches are numbered, for MATCH_NUMBER()
    :param zone: the time zone of the times that per-event conditions get; None: the times have no time zone
    """

    nfa: Nfa
    conditions_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    skip: AfterMatchSkipStrategy = NO_SKIP
    semantics: Semantics = Semantics.DEFAULT
    limits: Limits = Limits()
    kept_columns: tuple[str, ...] = ()
    previous: tuple[PreviousColumn, ...] = ()
    counts_matches: bool = False
    zone: str | None = "UTC"

    @classmethod
    def of_pattern(
        cls, pattern: PatternSequence, semantics: Semantics = Semantics.DEFAULT, **options: Any
    ) -> MatchPlan:
        """Compile a pattern; *options* are the other fields."""
        nfa = compile_pattern(pattern, semantics)
        numbers = {identity_of(condition): number for number, condition in enumerate(nfa.conditions)}
        used: dict[str, tuple[int, ...]] = {}
        for stage in stages_of(pattern):
            conditions = map(identity_of, (*leaves_of(stage.condition), *leaves_of(stage.until)))
            used[stage.name] = tuple(dict.fromkeys(numbers[name] for name in conditions if name in numbers))
        return cls(nfa=nfa, conditions_of=used, skip=pattern.skip, semantics=semantics, **options)

    def stages_with(self, *conditions: int) -> list[str]:
        """The stages that use any of these conditions."""
        return [stage for stage, used in self.conditions_of.items() if not set(used).isdisjoint(conditions)]
