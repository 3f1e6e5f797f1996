"""Chains of Sigma correlations: those whose rules are correlations, as one MATCH_RECOGNIZE clause.

A match is not an event of the same query. So the pattern of a chain contains those of the correlations to which it refers, one
after the other; that of a chain in it contains those of its own. What they match does not overlap: an element of a chain begins
after the one before it has ended (docs/decisions/0152-chains-of-sigma-correlations.md and docs/decisions/0167).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True, slots=True)
class CorrelationChain:
    """
    :ivar outer: the correlation of correlations, with those of its rules that are detections
    :ivar references: all of its rules, in its order, as the correlation writes them
    :ivar elements: what they are: the conditions of detections, correlations, and chains
    """

    outer: CorrelationTranslator
    references: Sequence[str]
    elements: Sequence[ChainRule]

    def sequence(self) -> Sequence[ChainRule]:
        """What the chain matches, one after the other.

        :raises PatternProcessorError: it is not a sequence
        """
        outer = self.outer
        if len(self.elements) > MAX_RULES:
            raise PatternProcessorError(f"the correlation refers to {len(self.elements):,} rules (limit {MAX_RULES})")
        if outer.kind == "temporal_ordered":
            if outer.extended:
                return [self._part(node) for node in outer.parts_in_order()]
            outer.check_all_needed(len(self.elements))
            return self.elements
        if outer.kind == "event_count" and len(self.elements) == 1 and outer.only_lower:
            (inner,) = self.elements
            if set(groups_of(inner)) != set(outer.groups):
                raise PatternProcessorError(
                    "event_count of a correlation must be grouped as the correlation is",
                    _OVERLAP,
                    "group both by the same fields, or count the matches of the correlation in a second query",
                )
            return [inner] * outer.least_count(MAX_REPEATED, "matches of a correlation")
        raise PatternProcessorError(
            f"a correlation of correlations cannot be {outer.kind}"
            + (" with this condition" if outer.kind in _KINDS else ""),
            "It is temporal_ordered; or event_count, with gt or gte, of one correlation.",
            "write it as one correlation, or correlate the matches of the correlations in a second query",
        )

    def _part(self, node: Any) -> ChainRule:
        """A part of the condition of a temporal_ordered."""
        elements = dict(zip(self.references, self.elements, strict=True))

        def condition_of(reference: str) -> str:
            element = elements[reference]
            if not isinstance(element, str):
                raise PatternProcessorError(
                    f"the correlation {reference!r:.100} cannot be an alternative",
                    "Which of the alternatives ends first is known only when all of them have ended.",
                    "a chain for each alternative",
                )
            return element

        reference = getattr(node, "reference", None)
        return self.outer.alternatives(node, condition_of) if reference is None else elements[reference]

    @property
    def seconds(self) -> int:
        """The maximum length of a match."""
        first = self.sequence()[0]
        before = 0 if isinstance(first, str) else first.seconds
        return self.outer.seconds + before


ChainRule = str | CorrelationTranslator | CorrelationChain


def groups_of(rule: ChainRule) -> Sequence[str]:
    """The columns by which a correlation is grouped."""
    return () if isinstance(rule, str) else rule.outer.groups if isinstance(rule, CorrelationChain) else rule.groups


@dataclass(slots=True)
class ChainTranslator:
    """
    :param time: the event-time column, with which timespans are compared
    """

    chain: CorrelationChain
    time: str | None
    _made: list[_ChainElement] = field(default_factory=list)

    @property
    def outer(self) -> CorrelationTranslator:
        return self.chain.outer

    def pattern(self) -> CorrelationPattern:
        """:raises PatternProcessorError: the chain cannot be expressed"""
        self.chain.sequence()
        if self.time is None:
            raise PatternProcessorError(
                "a correlation of correlations needs the name of the event-time column",
                hint='time="ts"; in a command, --time ts, or --time-column ts of `rules add`',
            )
        self._add(self.chain, [])
        *others, last = self._made
        texts = [f"{made.before} {made.last} Y*?".lstrip() for made in others]
        excluded = " ".join([*texts, last.before]).strip()
        pattern = f"{{- {excluded} -}} {last.last}" if excluded else last.last
        value = next(made.value for made in self._made if made.value is not None)
        subsets = ", ".join(made.subset for made in self._made if made.subset is not None)
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
        for number, element in enumerate(chain.sequence()):
            if isinstance(element, CorrelationChain):
                if set(groups_of(element)) != set(self.outer.groups):
                    raise PatternProcessorError(
                        "a chain in another one must be grouped as that one is",
                        _OVERLAP,
                        "group both by the same fields",
                    )
                self._add(element, later)
            elif len(self._made) == MAX_RULES:  # before it is written, because chains can double their length
                raise PatternProcessorError(f"a chain with those in it has more than {MAX_RULES} rules")
            else:
                self._made.append(
                    self._detection(element, later) if isinstance(element, str) else self._inner(element, later)
                )
            if not number:
                later = [self._within(self._made[-1].last, chain.outer), *bounds]

    # ------------------------------------------------------------------ elements

    def _detection(self, condition: str, later: Sequence[str]) -> _ChainElement:
        number = 1 + sum(made.value is None for made in self._made)
        return _ChainElement("", f"R{number}", [(f"R{number}", _all([condition, *later]))])

    def _inner(self, inner: CorrelationTranslator, later: Sequence[str]) -> _ChainElement:
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
        self, inner: CorrelationTranslator, suffix: str, further: Sequence[str], later: Sequence[str]
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
            (event, _all([inside, soon, *later])),
            (other, f"NOT COALESCE({inside}, FALSE)"),
            (last, _all([inside, soon, *later, condition])),
        ]
        return _ChainElement(f"({event} {other}*?)*?", last, variables, value, f"{window} = ({event}, {last})")

    def _ordered(
        self, inner: CorrelationTranslator, suffix: str, further: Sequence[str], later: Sequence[str]
    ) -> _ChainElement:
        steps = inner.steps()
        names = [f"S{suffix}_{number}" for number in range(1, len(steps) + 1)]
        same = [*(f"{group} = {names[0]}.{group}" for group in further), self._within(names[0], inner)]
        variables = [
            (name, _all([condition, *(same if number else ()), *later]))
            for number, (name, condition) in enumerate(zip(names, steps, strict=True))
        ]
        before = "".join(f"{name} Y*? " for name in names[:-1]).rstrip()
        window = f"{WINDOW}{suffix}"
        return _ChainElement(before, names[-1], variables, f"COUNT({window}.*)", f"{window} = ({', '.join(names)})")

    def _within(self, variable: str, correlation: CorrelationTranslator, end: str = "") -> str:
        """That an event is within the timespan of *correlation* after that of *variable*."""
        assert self.time is not None
        now = quoted_name(self.time)
        return f"{now} <= {variable}.{now}{end} + INTERVAL '{correlation.seconds}' SECOND"


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions)
