"""Chains of Sigma correlations: those whose rules are correlations, as one MATCH_RECOGNIZE clause.

A match is not an event of the same query. So the pattern of a chain contains those of the correlations to which it refers, one
after the other; that of a chain in it contains those of its own. What they match does not overlap: an element of a chain begins
after the one before it has ended (docs/decisions/0152-chains-of-sigma-correlations.md and docs/decisions/0167).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from asterism.errors import PatternProcessorError
from asterism.sigma.chain_rules import (
    OVERLAP,
    ChainElement,
    ChainRule,
    CorrelationChain,
    check_length,
    conjunction,
    groups_of,
    soon_after,
)
from asterism.sigma.correlations import MAX_COUNT, MAX_RULES, WINDOW, CorrelationPattern, CorrelationTranslator
from asterism.sigma.overlapping import OverlappingPart
from asterism.text.printable import quoted_name


@dataclass(slots=True)
class ChainTranslator:
    """
    :param time: the event-time column, with which timespans are compared
    """

    chain: CorrelationChain
    time: str | None
    _made: list[ChainElement] = field(default_factory=list)

    @property
    def outer(self) -> CorrelationTranslator:
        return self.chain.outer

    def pattern(self) -> CorrelationPattern:
        """:raises PatternProcessorError: the chain cannot be expressed"""
        if not self.chain.in_any_order:
            self.chain.sequence()
        if self.time is None:
            raise PatternProcessorError(
                "a correlation of correlations needs the name of the event-time column",
                hint='time="ts"; in a command, --time ts, or --time-column ts of `rules add`',
            )
        self._add(self.chain, [])
        *others, last = self._made
        texts = [f"{made.before} {made.last_pattern} Y*?".lstrip() for made in others]
        excluded = " ".join([*texts, last.before]).strip()
        pattern = f"{{- {excluded} -}} {last.last_pattern}" if excluded else last.last_pattern
        value = next(made.value for made in self._made if made.value is not None)
        subsets = ", ".join(subset for made in self._made for subset in made.subsets)
        variables = [variable for made in self._made for variable in made.variables]
        clause = self.outer.clause(
            "TO NEXT ROW", pattern, variables, value, seconds=self.chain.seconds, subsets=subsets
        )
        return CorrelationPattern(sql=clause, suppress=self.outer.suppress)

    def _add(self, chain: CorrelationChain, bounds: Sequence[str]) -> None:
        """Add the elements of *chain*, after those that there are.

        :param bounds: what its events satisfy because of the chains in which it is
        """
        later = bounds
        parts = [chain] if chain.in_any_order else chain.sequence()
        for number, element in enumerate(parts):
            if isinstance(element, CorrelationChain) and set(groups_of(element)) != set(self.outer.groups):
                raise PatternProcessorError(
                    "a chain in another one must be grouped as that one is",
                    OVERLAP,
                    "group both by the same fields",
                )
            if isinstance(element, CorrelationChain) and not element.in_any_order:
                self._add(element, later)
            elif len(self._made) == MAX_RULES:  # before it is written, because chains can double their length
                raise PatternProcessorError(f"a chain with those in it has more than {MAX_RULES} rules")
            else:
                self._made.append(self._element(element, later))
                check_length(variable for made in self._made for variable in made.variables)
            if not number:
                later = [self._within(self._made[-1].last, chain.outer), *bounds]

    # ------------------------------------------------------------------ elements

    def _element(self, rule: ChainRule, later: Sequence[str]) -> ChainElement:
        if isinstance(rule, str):
            name = f"R{1 + sum(made.value is None for made in self._made)}"
            return ChainElement("", name, name, [(name, conjunction([rule, *later]))])
        number = 1 + sum(made.value is not None for made in self._made)
        suffix = str(number) if number > 1 else ""
        if isinstance(rule, CorrelationTranslator):
            return self._inner(rule, suffix, later)
        return OverlappingPart(rule, self._column, suffix).element(later, whole=rule is self.chain)

    def _inner(self, inner: CorrelationTranslator, suffix: str, later: Sequence[str]) -> ChainElement:
        further = self._further_groups(inner)
        if inner.kind == "temporal_ordered":
            return self._ordered(inner, suffix, further, later)
        return self._window(inner, suffix, further, later)

    def _further_groups(self, inner: CorrelationTranslator) -> list[str]:
        """The columns by which *inner* is grouped and the chain is not."""
        outer = self.outer
        for name, group in zip(outer.rule.group_by or (), outer.groups, strict=True):
            if group not in inner.groups:
                raise PatternProcessorError(
                    f"the correlation to which it refers is not grouped by {name!r:.100}, as this one is"
                )
        further = [group for group in inner.groups if group not in outer.groups]
        if any(not group.startswith("`") for group in further):
            raise PatternProcessorError(
                "the correlation to which it refers has an alias that is not one of this correlation"
            )
        if further and self._made:
            raise PatternProcessorError(
                "only the first correlation of a chain can be grouped by more fields than the chain",
                OVERLAP,
                "group both by the same fields",
            )
        return further

    def _window(
        self, inner: CorrelationTranslator, suffix: str, further: Sequence[str], later: Sequence[str]
    ) -> ChainElement:
        event, other, last, window = (f"{name}{suffix}" for name in ("E", "X", "L", WINDOW))
        if inner.kind == "event_count" and inner.only_lower:
            inner.least_count(MAX_COUNT, "events")
        value, condition, reached = inner.reaching(window)
        if not reached:
            raise PatternProcessorError(
                "a correlation of correlations cannot refer to one that is known only when its window is over",
                "Such are value_avg, value_median and value_percentile, conditions with lt, lte, eq or neq, and those with not.",
                "refer to an event_count, value_count or value_sum with gt or gte, to a temporal or a temporal_ordered",
            )
        inside = conjunction([inner.relevant, *(f"{group} = FIRST({window}.{group})" for group in further)])
        soon = self._within(f"FIRST({window}", inner, ")")
        variables = [
            (event, conjunction([inside, soon, *later])),
            (other, f"NOT COALESCE({inside}, FALSE)"),
            (last, conjunction([inside, soon, *later, condition])),
        ]
        subsets = [f"{window} = ({event}, {last})"]
        return ChainElement(f"({event} {other}*?)*?", last, last, variables, value, subsets)

    def _ordered(
        self, inner: CorrelationTranslator, suffix: str, further: Sequence[str], later: Sequence[str]
    ) -> ChainElement:
        steps = inner.steps()
        names = [f"S{suffix}_{number}" for number in range(1, len(steps) + 1)]
        same = [*(f"{group} = {names[0]}.{group}" for group in further), self._within(names[0], inner)]
        variables = [
            (name, conjunction([condition, *(same if number else ()), *later]))
            for number, (name, condition) in enumerate(zip(names, steps, strict=True))
        ]
        before = "".join(f"{name} Y*? " for name in names[:-1]).rstrip()
        window = f"{WINDOW}{suffix}"
        subsets = [f"{window} = ({', '.join(names)})"]
        return ChainElement(before, names[-1], names[-1], variables, f"COUNT({window}.*)", subsets)

    def _within(self, row: str, correlation: CorrelationTranslator, end: str = "") -> str:
        """That an event is within the timespan of *correlation* after that of a row."""
        return soon_after(self._column, f"{row}.{self._column}{end}", correlation.seconds)

    @property
    def _column(self) -> str:
        """The event-time column."""
        assert self.time is not None
        return quoted_name(self.time)
