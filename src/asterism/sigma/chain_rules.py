"""What a chain of Sigma correlations consists of: detections, correlations, chains, and alternatives of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from asterism.errors import PatternProcessorError
from asterism.row_patterns.clause.reading import MAX_CLAUSE
from asterism.sigma.correlations import MAX_RULES, CorrelationTranslator

MAX_REPEATED = 10
"""The maximum count of an ``event_count`` of matches of a correlation."""

OVERLAP = "The windows of several groups overlap, and one pattern has no overlapping windows."
_KINDS = ("temporal", "temporal_ordered", "event_count")


@dataclass(frozen=True)
class CorrelationChain:
    """
    :ivar outer: the correlation of correlations, with those of its rules that are detections
    :ivar references: all of its rules, in its order, as the correlation writes them
    :ivar elements: what they are: the conditions of detections, correlations, and chains
    """

    outer: CorrelationTranslator
    references: Sequence[str]
    elements: Sequence[ChainRule]

    @property
    def in_any_order(self) -> bool:
        """Whether its rules match in any order, so that what they match can overlap."""
        return self.outer.kind == "temporal" or (self.outer.kind == "event_count" and len(self.elements) > 1)

    @property
    def element_of(self) -> dict[str, ChainRule]:
        """The elements by their references."""
        return dict(zip(self.references, self.elements, strict=True))

    def check_size(self) -> None:
        """:raises PatternProcessorError: there are too many rules"""
        if len(self.elements) > MAX_RULES:
            raise PatternProcessorError(f"the correlation refers to {len(self.elements):,} rules (limit {MAX_RULES})")

    def sequence(self) -> Sequence[ChainRule]:
        """What the chain matches, one after the other.

        :raises PatternProcessorError: it is not a sequence
        """
        outer = self.outer
        self.check_size()
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
                    OVERLAP,
                    "group both by the same fields, or count the matches of the correlation in a second query",
                )
            return [inner] * outer.least_count(MAX_REPEATED, "matches of a correlation")
        raise self.not_possible()

    def not_possible(self) -> PatternProcessorError:
        """The error for a kind of correlation that cannot refer to correlations."""
        return PatternProcessorError(
            f"a correlation of correlations cannot be {self.outer.kind}"
            + (" with this condition" if self.outer.kind in _KINDS else ""),
            "It is temporal_ordered; temporal without not; or event_count; the last two with gt or gte.",
            "write it as one correlation, or correlate the matches of the correlations in a second query",
        )

    def _part(self, node: Any) -> ChainRule:
        """A part of the condition of a temporal_ordered."""
        elements = self.element_of
        reference = getattr(node, "reference", None)
        if reference is not None:
            return elements[reference]
        alternatives: list[ChainRule] = []

        def condition_of(reference: str) -> str:
            alternatives.append(elements[reference])
            return str(elements[reference])

        condition = self.outer.alternatives(node, condition_of)
        if all(isinstance(alternative, str) for alternative in alternatives):
            return condition
        return Alternatives(self.outer, alternatives)

    @cached_property
    def seconds(self) -> int:
        """The maximum length of a match."""
        if self.in_any_order:
            return self.outer.seconds + max(map(seconds_of, self.elements))
        return self.outer.seconds + seconds_of(self.sequence()[0])

    @cached_property
    def levels(self) -> int:
        """How many correlations refer to one another, down to those of detections."""
        return 1 + max(part.levels if isinstance(part, CorrelationChain) else 1 for part in self.elements)


@dataclass(frozen=True)
class Alternatives:
    """A part of a ``temporal_ordered`` of which one suffices; at least one of them is a correlation.

    :ivar outer: the correlation in whose condition they are
    """

    outer: CorrelationTranslator
    elements: Sequence[ChainRule]

    @cached_property
    def seconds(self) -> int:
        """The maximum length of a match."""
        return max(map(seconds_of, self.elements))


ChainRule = str | CorrelationTranslator | CorrelationChain | Alternatives


def seconds_of(rule: ChainRule) -> int:
    """The maximum length of a match of a rule."""
    return 0 if isinstance(rule, str) else rule.seconds


def groups_of(rule: ChainRule) -> Sequence[str]:
    """The columns by which a correlation is grouped."""
    if isinstance(rule, str):
        return ()
    return rule.groups if isinstance(rule, CorrelationTranslator) else rule.outer.groups


@dataclass(slots=True)
class ChainElement:
    """A part of the pattern of a chain.

    :ivar before: the text before its last row
    :ivar last: the variable of its last row, or the name of a subset of such variables
    :ivar last_pattern: the pattern of the last row
    :ivar value: the measure of the element, if it is a correlation
    """

    before: str
    last: str
    last_pattern: str
    variables: list[tuple[str, str]]
    value: str | None = None
    subsets: Sequence[str] = ()


def check_levels(levels: int) -> None:
    """:raises PatternProcessorError: too many correlations refer to one another"""
    if levels > MAX_RULES:
        raise PatternProcessorError(f"more than {MAX_RULES} correlations refer to one another")


def check_length(variables: Iterable[tuple[str, str]]) -> None:
    """:raises PatternProcessorError: the clause of a chain becomes longer than one may be; checked while it is written"""
    if sum(len(condition) for _, condition in variables) > MAX_CLAUSE:
        raise PatternProcessorError(
            f"the clause of the correlation is longer than {MAX_CLAUSE:,} characters",
            "It repeats the conditions of the rules for each correlation.",
            "fewer correlations in one, or shorter rules",
        )


def conjunction(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions)


def soon_after(column: str, row_time: str, seconds: int) -> str:
    """That the current event is at most some time after that of a row.

    :param column: the event-time column, in quotes
    :param row_time: the time of the row

    >>> soon_after("`ts`", "FIRST(W.`ts`)", 60)
    "`ts` <= FIRST(W.`ts`) + INTERVAL '60' SECOND"
    """
    return f"{column} <= {row_time} + INTERVAL '{seconds}' SECOND"
