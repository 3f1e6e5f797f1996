"""Chains of Sigma correlations: those whose rules are correlations, as one MATCH_RECOGNIZE clause.

A match is not an event of the same query. So the pattern of a chain contains those of the correlations to which it refers, one
after the other. What they match does not overlap: an element of a chain begins after the one before it has ended
(docs/decisions/0152-chains-of-sigma-correlations.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from asterism.errors import PatternProcessorError
from asterism.sigma.correlations import MAX_COUNT, MAX_RULES, WINDOW, CorrelationPattern, CorrelationTranslator
from asterism.text.printable import quoted_name

MAX_REPEATED = 10
"""The maximum count of an ``event_count`` of matches of a correlation."""

_KINDS = ("temporal_ordered", "event_count")
_OVERLAP = "The windows of several groups overlap, and one pattern has no overlapping windows."


@dataclass(slots=True)
class _ChainElement:
    """A part of the pattern: the text before its last variable, and that variable."""

    before: str
    last: str
    variables: list[tuple[str, str]]
    value: str | None = None
    """The measure of the element, if it is a correlation."""
    subset: str | None = None


@dataclass(slots=True)
class ChainTranslator:
    """
    :param outer: the correlation of correlations, with those of its rules that are detections
    :param elements: all of its rules, in its order: the conditions of detections, and correlations
    :param time: the event-time column, with which timespans are compared
    """

    outer: CorrelationTranslator
    elements: Sequence[str | CorrelationTranslator]
    time: str | None
    _made: list[_ChainElement] = field(default_factory=list)

    def pattern(self) -> CorrelationPattern:
        """:raises PatternProcessorError: the chain cannot be expressed"""
        if len(self.elements) > MAX_RULES:
            raise PatternProcessorError(f"the correlation refers to {len(self.elements):,} rules (limit {MAX_RULES})")
        elements = self._sequence()
        if self.time is None:
            raise PatternProcessorError(
                "a correlation of correlations needs the name of the event-time column",
                hint='time="ts", or --time-column ts',
            )
        for element in elements:
            later = self._within(self._made[0].last, self.outer) if self._made else None
            self._made.append(
                self._detection(element, later) if isinstance(element, str) else self._inner(element, later)
            )
        *others, last = self._made
        texts = [f"{made.before} {made.last} Y*?".lstrip() for made in others]
        excluded = " ".join([*texts, last.before]).strip()
        pattern = f"{{- {excluded} -}} {last.last}" if excluded else last.last
        first = elements[0]
        seconds = self.outer.rule.timespan.seconds + (0 if isinstance(first, str) else first.rule.timespan.seconds)
        value = next(made.value for made in self._made if made.value is not None)
        subsets = ", ".join(made.subset for made in self._made if made.subset is not None)
        variables = [variable for made in self._made for variable in made.variables]
        clause = self.outer.clause("TO NEXT ROW", pattern, variables, value, seconds=seconds, subsets=subsets)
        return CorrelationPattern(sql=clause, suppress=self.outer.suppress)

    def _sequence(self) -> Sequence[str | CorrelationTranslator]:
        outer = self.outer
        if outer.kind == "temporal_ordered" and not outer.extended:
            outer.check_all_needed(len(self.elements))
            return self.elements
        if outer.kind == "event_count" and len(self.elements) == 1 and outer.only_lower:
            (inner,) = self.elements
            if isinstance(inner, CorrelationTranslator) and set(inner.groups) != set(outer.groups):
                raise PatternProcessorError(
                    "event_count of a correlation must be grouped as the correlation is",
                    _OVERLAP,
                    "group both by the same fields, or count the matches of the correlation in a second query",
                )
            count = outer.least_count(MAX_REPEATED, "matches of a correlation")
            return [inner] * count
        raise PatternProcessorError(
            f"a correlation of correlations cannot be {outer.kind}"
            + (" with this condition" if outer.kind in _KINDS else ""),
            "It is temporal_ordered without a condition; or event_count, with gt or gte, of one correlation.",
            "write it as one correlation, or correlate the matches of the correlations in a second query",
        )

    # ------------------------------------------------------------------ elements

    def _detection(self, condition: str, later: str | None) -> _ChainElement:
        number = 1 + sum(made.value is None for made in self._made)
        return _ChainElement("", f"R{number}", [(f"R{number}", _all([condition, later]))])

    def _inner(self, inner: CorrelationTranslator, later: str | None) -> _ChainElement:
        number = 1 + sum(made.value is not None for made in self._made)
        suffix = str(number) if number > 1 else ""
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
                _OVERLAP,
                "group both by the same fields",
            )
        return further

    def _window(
        self, inner: CorrelationTranslator, suffix: str, further: Sequence[str], later: str | None
    ) -> _ChainElement:
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
        inside = _all([inner.relevant, *(f"{group} = FIRST({window}.{group})" for group in further)])
        soon = self._within(f"FIRST({window}", inner, ")")
        variables = [
            (event, _all([inside, soon, later])),
            (other, f"NOT COALESCE({inside}, FALSE)"),
            (last, _all([inside, soon, later, condition])),
        ]
        return _ChainElement(f"({event} {other}*?)*?", last, variables, value, f"{window} = ({event}, {last})")

    def _ordered(
        self, inner: CorrelationTranslator, suffix: str, further: Sequence[str], later: str | None
    ) -> _ChainElement:
        steps = inner.steps()
        names = [f"S{suffix}_{number}" for number in range(1, len(steps) + 1)]
        same = [*(f"{group} = {names[0]}.{group}" for group in further), self._within(names[0], inner)]
        variables = [
            (name, _all([condition, *(same if number else ()), later]))
            for number, (name, condition) in enumerate(zip(names, steps, strict=True))
        ]
        before = "".join(f"{name} Y*? " for name in names[:-1]).rstrip()
        window = f"{WINDOW}{suffix}"
        return _ChainElement(before, names[-1], variables, f"COUNT({window}.*)", f"{window} = ({', '.join(names)})")

    def _within(self, variable: str, correlation: CorrelationTranslator, end: str = "") -> str:
        """That an event is within the timespan of *correlation* after that of *variable*."""
        assert self.time is not None
        now = quoted_name(self.time)
        return f"{now} <= {variable}.{now}{end} + INTERVAL '{correlation.rule.timespan.seconds}' SECOND"


def _all(conditions: Sequence[str | None]) -> str:
    return " AND ".join(condition for condition in conditions if condition is not None)
