"""Parts of a chain in which matches may overlap: correlations in any order, and correlations as alternatives.

The events of such a part are divided into *classes*. A class says for each correlation in the part whether an event completes a
match of it and, for an event_count, otherwise whether the event is counted. Each class is a variable, so the time of the last
match of a correlation is that of the last row of the classes which complete one. An event is of one class, so the part ends with
the first event that satisfies its condition (docs/decisions/0165-correlations-in-any-order.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from asterism.errors import PatternProcessorError
from asterism.sigma.chain_rules import (
    OVERLAP,
    Alternatives,
    ChainElement,
    ChainRule,
    CorrelationChain,
    check_length,
    conjunction,
    groups_of,
    soon_after,
)
from asterism.sigma.correlations import MAX_COUNT, WINDOW, CorrelationTranslator, of_variable

MAX_CLASSES = 32
"""The maximum number of classes of events; three correlations of the type event_count have 27."""
APART, COUNTED, COMPLETES = "0", "1", "2"
"""What an event is to a member, in the name of a class."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A correlation of the part, or the detections whose events are counted with its matches.

    :ivar rule: the correlation, or the condition of the detections
    :ivar number: in the names of subsets
    :ivar once: whether an event belongs to one of its matches only
    """

    rule: ChainRule
    number: int
    once: bool

    @property
    def counts(self) -> bool:
        """Whether events are counted until there are enough."""
        return isinstance(self.rule, CorrelationTranslator) and self.rule.kind == "event_count"

    @property
    def states(self) -> str:
        return APART + COUNTED + COMPLETES if self.counts else APART + COMPLETES


@dataclass(slots=True)
class OverlappingPart:
    """
    :param root: what the part is
    :param time: the event-time column, in quotes
    :param suffix: of the names of the part
    """

    root: CorrelationChain | Alternatives
    time: str
    suffix: str
    _members: list[_Member] = field(default_factory=list)
    _classes: list[str] = field(default_factory=list)

    def element(self, later: Sequence[str], *, whole: bool) -> ChainElement:
        """
        :param later: what its events satisfy because of the chains in which it is
        :param whole: whether there is nothing else in the pattern, so that its WITHIN limits the part. The search then remembers
            which classes of rows fail, because no condition depends on the first row.
        :raises PatternProcessorError: it cannot be expressed
        """
        self._add_members(self.root)
        self._classes = self._possible_classes()
        soon = [] if whole else [self._soon_after(f"FIRST({self._window}.{self.time})", self.root.seconds)]
        variables, ends = [], []
        for written in self._classes:
            conditions = [*self._conditions(written), *soon, *later]
            variables.append((f"V{self.suffix}_{written}", conjunction(conditions)))
            end = self._end(written)
            if end is not None:
                ends.append((f"L{self.suffix}_{written}", conjunction([*conditions, *end])))
            check_length([*variables, *ends])
        other = f"X{self.suffix}"
        alternatives = " | ".join(name for name, _ in variables)
        names = [name for name, _ in ends]
        return ChainElement(
            before=f"(({alternatives}) {other}*?)*?",
            last=f"D{self.suffix}",
            last_pattern=f"({' | '.join(names)})",
            variables=[*variables, (other, f"NOT COALESCE({self._relevant}, FALSE)"), *ends],
            value=self._value(),
            subsets=list(self._subsets(names)),
        )

    # ------------------------------------------------------------------ members and classes

    def _add_members(self, rule: ChainRule) -> None:
        """Add the correlations in *rule*; those to which one refers come before it."""
        if isinstance(rule, str) or any(member.rule is rule for member in self._members):
            return
        if rule is not self.root and set(groups_of(rule)) != set(self.root.outer.groups):
            problem = "a correlation in any order, or as an alternative, must be grouped as the one that refers to it"
            raise PatternProcessorError(problem, OVERLAP, "group both by the same fields")
        if isinstance(rule, CorrelationTranslator):
            self._check(rule)
        else:
            if isinstance(rule, CorrelationChain):
                self._check_chain(rule)
            for element in rule.elements:
                self._add_members(element)
        if rule is self.root:
            detections = [element for element in self.root.elements if isinstance(element, str)]
            if self._counts and detections:
                self._members.append(_Member(" OR ".join(dict.fromkeys(detections)), len(self._members), once=False))
        else:
            once = self._counts and any(rule is element for element in self.root.elements)
            self._members.append(_Member(rule, len(self._members), once))

    @property
    def _counts(self) -> bool:
        return self.root.outer.kind == "event_count"

    def _check(self, inner: CorrelationTranslator) -> None:
        if inner.kind == "event_count" and inner.only_lower:
            inner.least_count(MAX_COUNT, "events")
        elif inner.kind != "temporal" or not inner.reaching()[2]:
            raise PatternProcessorError(
                f"{inner.kind} cannot match in any order, or as an alternative"
                if inner.kind != "temporal" and inner.only_lower
                else "a correlation of correlations cannot refer to one that is known only when its window is over",
                "There, correlations are event_count with gt or gte, and temporal without not.",
                "refer to it in a temporal_ordered",
            )

    def _check_chain(self, chain: CorrelationChain) -> None:
        chain.check_size()
        refused = not chain.in_any_order or chain.outer.kind == "event_count" or self._counts
        if chain is not self.root and refused:
            raise PatternProcessorError(
                f"{chain.outer.kind} of correlations cannot "
                + ("be counted with other rules" if self._counts else "match in any order, or as an alternative"),
                "Several of its matches can be begun at the same time.",
                "refer to it in a temporal_ordered",
            )
        if not (chain.outer.presence(str)[1] if chain.outer.extended else chain.outer.only_lower):
            raise chain.not_possible()

    def _possible_classes(self) -> list[str]:
        if math.prod(len(member.states) for member in self._members) > MAX_CLASSES:
            raise PatternProcessorError(
                f"too many correlations in any order, or as alternatives (limit {MAX_CLASSES} classes of events)",
                "Each event_count multiplies the classes by 3, and each other correlation by 2.",
            )
        return ["".join(states) for states in product(*(member.states for member in self._members))]

    def _number_of(self, rule: ChainRule) -> int:
        return next(member.number for member in self._members if member.rule is rule)

    # ------------------------------------------------------------------ conditions

    def _conditions(self, written: str) -> list[str]:
        """That an event is of a class."""
        conditions = []
        for member, state in zip(self._members, written, strict=True):
            relevant = self._relevant_to(member, written)
            matches = self._matches(member, completed=state == COMPLETES)
            both = conjunction([text for text in (relevant, matches) if text])
            if state == COMPLETES:
                conditions.append(both)
            elif state == COUNTED:
                conditions.append(f"{relevant} AND NOT COALESCE({matches}, FALSE)")
            else:
                conditions.append(f"NOT COALESCE({relevant if member.counts else both}, FALSE)")
        if written.strip(APART):  # then it satisfies a rule
            return conditions
        return [f"({self._relevant})", *conditions]

    def _relevant_to(self, member: _Member, written: str) -> str:
        """That an event satisfies a rule of a member; empty: its class says that it completes a match of one."""
        rule = member.rule
        if isinstance(rule, str):
            return f"({rule})"
        if isinstance(rule, CorrelationTranslator):
            return rule.relevant
        if any(not isinstance(part, str) and written[self._number_of(part)] == COMPLETES for part in rule.elements):
            return ""
        return f"({' OR '.join([part for part in rule.elements if isinstance(part, str)] or ['FALSE'])})"

    @property
    def _relevant(self) -> str:
        """That an event satisfies a rule of the part."""
        conditions: dict[str, None] = {}
        for rule in (*(member.rule for member in self._members), self.root):
            if isinstance(rule, CorrelationTranslator):
                conditions |= dict.fromkeys(rule.conditions)
            elif not isinstance(rule, str):
                conditions |= dict.fromkeys(element for element in rule.elements if isinstance(element, str))
        return " OR ".join(conditions)

    def _matches(self, member: _Member, *, completed: bool) -> str:
        """That a member has enough events in its timespan, up to the current one; empty: one event is enough.

        :param completed: whether the current event counts as the last match of the member
        """
        rule = member.rule
        if isinstance(rule, str):
            return ""
        if isinstance(rule, CorrelationTranslator) and rule.kind == "event_count":
            count = rule.least_count(MAX_COUNT, "events")
            first = f"LAST({self._subset(COUNTED, member)}.{self.time}, {count - 1})"
            unused = [self._unused(member, first, completed=completed)] if member.once and count > 1 else []
            return conjunction([self._soon_after(first, rule.seconds), *unused])

        assert not isinstance(rule, Alternatives)
        timespan = rule.seconds if isinstance(rule, CorrelationTranslator) else rule.outer.seconds

        def recently(row_time: str) -> str:
            unused = [self._unused(member, row_time, completed=completed)] if member.once else []
            return conjunction([self._soon_after(row_time, timespan), *unused])

        if isinstance(rule, CorrelationTranslator):
            conditions = rule.condition_of
            return self._reached(
                rule, lambda reference: recently(self._last_of(conditions[reference])), list(conditions)
            )[1]
        return self._temporal(rule, recently)[1]

    def _unused(self, member: _Member, row_time: str, *, completed: bool) -> str:
        """That a row is later than the last match of a member before the current event."""
        before = f"LAST({self._subset(COMPLETES, member)}.{self.time}{', 1' if completed else ''})"
        return f"COALESCE({row_time} > {before}, TRUE)"

    def _soon_after(self, row_time: str, seconds: int) -> str:
        return soon_after(self.time, row_time, seconds)

    def _temporal(self, chain: CorrelationChain, recently: Callable[[str], str]) -> tuple[str, str]:
        """The value and the condition of a temporal of correlations."""
        elements = chain.element_of

        def matched(reference: str) -> str:
            element = elements[reference]
            if isinstance(element, str):
                return recently(self._last_of(element))
            return recently(f"LAST({self._subset(COMPLETES, self._members[self._number_of(element)])}.{self.time})")

        return self._reached(chain.outer, matched, list(elements))

    @staticmethod
    def _reached(
        outer: CorrelationTranslator, matched: Callable[[str], str], references: Sequence[str]
    ) -> tuple[str, str]:
        """The number of different rules that have matched, and the condition of a temporal."""
        flags = dict.fromkeys(map(matched, references))
        value = " + ".join(f"CASE WHEN {flag} THEN 1 ELSE 0 END" for flag in flags)
        return value, outer.presence(matched)[0] if outer.extended else f"({outer.compared(value)})"

    def _last_of(self, condition: str) -> str:
        """The time of the last event of a detection."""
        return f"MAX(CASE WHEN {of_variable(self._window, condition)} THEN {self._window}.{self.time} END)"

    def _end(self, written: str) -> list[str] | None:
        """What an event of a class satisfies in addition if it is the last one of the part; None: it cannot be."""
        root = self.root
        if isinstance(root, CorrelationChain):
            return [self._root_condition()[1]]
        if any(not isinstance(part, str) and written[self._number_of(part)] == COMPLETES for part in root.elements):
            return []
        detections = [part for part in root.elements if isinstance(part, str)]
        return [f"({' OR '.join(detections)})"] if detections else None

    def _root_condition(self) -> tuple[str, str]:
        root = self.root
        assert isinstance(root, CorrelationChain)
        if self._counts:
            first = f"LAST(N{self.suffix}.{self.time}, {root.outer.least_count(MAX_COUNT, 'matches') - 1})"
            return f"COUNT(N{self.suffix}.*)", self._soon_after(first, root.outer.seconds)
        return self._temporal(root, lambda row_time: self._soon_after(row_time, root.outer.seconds))

    def _value(self) -> str:
        if isinstance(self.root, Alternatives):
            return f"COUNT({self._window}.*)"
        return self._root_condition()[0]

    # ------------------------------------------------------------------ names

    @property
    def _window(self) -> str:
        return f"{WINDOW}{self.suffix}"

    def _subset(self, state: str, member: _Member) -> str:
        """The name of the events that complete a match of a member, or that are counted."""
        return f"{'M' if state == COMPLETES else 'I'}{self.suffix}_{member.number}"

    def _subsets(self, ends: Sequence[str]) -> Iterator[str]:
        names = {f"V{self.suffix}_{written}": written for written in self._classes}
        names |= {end: end.rpartition("_")[2] for end in ends}
        yield f"{self._window} = ({', '.join(names)})"
        yield f"D{self.suffix} = ({', '.join(ends)})"
        for member in self._members:
            states = {COUNTED: COUNTED + COMPLETES, COMPLETES: COMPLETES}
            for state in (COUNTED, COMPLETES) if member.counts else (COMPLETES,):
                inside = [name for name, written in names.items() if written[member.number] in states[state]]
                yield f"{self._subset(state, member)} = ({', '.join(inside)})"
        if self._counts:
            inside = [
                name
                for name, written in names.items()
                if any(written[self._number_of_counted(part)] == COMPLETES for part in self.root.elements)
            ]
            yield f"N{self.suffix} = ({', '.join(inside)})"

    def _number_of_counted(self, part: ChainRule) -> int:
        """The member with the matches of a rule; detections are one member."""
        if isinstance(part, str):
            return next(member.number for member in self._members if isinstance(member.rule, str))
        return self._number_of(part)
