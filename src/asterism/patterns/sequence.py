"""The pattern language as immutable data.

A pattern is a chain of :class:`Stage`; a stage is a single pattern or a group (which is itself a pattern).
Every method returns a new pattern and refers to the last stage of the chain, as in Flink's ``Pattern``. A meaningless
definition is refused by the call or, if the whole chain must be known, by :meth:`PatternSequence.validate`.

Source: https://nightlies.apache.org/flink/flink-docs-stable/docs/libs/cep/
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self

from asterism.arguments import expect, expect_string, shown
from asterism.errors import MalformedPatternError, PatternTooLargeError, UnboundedNotStageError
from asterism.patterns.conditions import AndCondition, Condition, ConditionLike, OrCondition, as_condition
from asterism.spelling import PythonNames
from asterism.text.printable import quoted_name

MAX_GROUP_DEPTH = 50
"""Maximum nesting of groups: far more than anyone reads, far less than Python's stack allows."""
MAX_ALTERNATIVES = 100
"""Maximum number of patterns in ``any_of``."""
MAX_IN_ANY_ORDER = 8
"""Maximum number of patterns in ``in_any_order``: there is a state for each subset of them."""
MAX_DURATION = timedelta(microseconds=2**62)
"""146,000 years: the sum of a time and a duration must fit into 64 bits."""


class Contiguity(enum.Enum):
    """What may lie between two events of a match (Flink: ``ConsumingStrategy``)."""

    STRICT = "STRICT"
    """No events: the stage needs the very next event of the key."""
    SKIP_TILL_NEXT = "SKIP_TILL_NEXT"
    """Non-matching events are skipped; the first matching event is accepted."""
    SKIP_TILL_ANY = "SKIP_TILL_ANY"
    """Any events are skipped: every matching event is accepted, each in its own match."""
    NOT_NEXT = "NOT_NEXT"
    """The very next event must not match."""
    NOT_FOLLOW = "NOT_FOLLOW"
    """No matching event may occur before the next stage is reached."""
    NOT_BEFORE = "NOT_BEFORE"
    """No matching event may precede the first event of the match. (Not in Flink.)"""

    @property
    def negated(self) -> bool:
        return self in (Contiguity.NOT_NEXT, Contiguity.NOT_FOLLOW, Contiguity.NOT_BEFORE)


class WithinType(enum.Enum):
    """The two events between which a window is measured."""

    FIRST_AND_LAST = "FIRST_AND_LAST"
    PREVIOUS_AND_CURRENT = "PREVIOUS_AND_CURRENT"


class QuantifierKind(enum.Enum):
    SINGLE = "SINGLE"
    TIMES = "TIMES"
    LOOPING = "LOOPING"


class Taking(enum.Enum):
    """How many events a loop accepts if several numbers are possible. Flink has only ALL and GREEDY."""

    ALL = "ALL"
    """Every number, each in its own match."""
    GREEDY = "GREEDY"
    """The next stage may not accept an event that the loop would accept."""
    GIVING_BACK = "GIVING_BACK"
    """As many as possible such that the rest of the pattern still matches."""
    LONGEST = "LONGEST"
    """GREEDY; at the end of the pattern, the match is complete when the loop cannot accept another event."""
    RELUCTANT = "RELUCTANT"
    """The loop neither accepts nor skips an event that the next stage accepts or skips."""


class Combining(enum.Enum):
    """What the elements of a pattern mean together. Flink has only SEQUENCE."""

    SEQUENCE = "SEQUENCE"
    """One after the other."""
    ANY_OF = "ANY_OF"
    """Exactly one of them."""
    IN_ANY_ORDER = "IN_ANY_ORDER"
    """All of them, in any order."""


@dataclass(frozen=True, slots=True)
class Quantifier:
    """How often a stage occurs: ``times(at_least, at_most)`` or, looping, ``at_least`` times or more."""

    kind: QuantifierKind = QuantifierKind.SINGLE
    at_least: int = 1
    at_most: int = 1
    optional: bool = False
    taking: Taking = Taking.ALL
    inner: Contiguity = Contiguity.SKIP_TILL_NEXT
    """Contiguity between repetitions."""
    gap: timedelta | None = None
    """Bound on the gap between repetitions (Flink: ``windowTime``)."""

    @property
    def greedy(self) -> bool:
        """Whether the next stage may not accept an event that the loop would accept."""
        return self.taking in (Taking.GREEDY, Taking.LONGEST)


@dataclass(frozen=True, slots=True)
class Stage:
    """One element of the chain: a single pattern, or a group if *group* is set."""

    name: str
    contiguity: Contiguity
    condition: Condition | None = None
    quantifier: Quantifier = Quantifier()
    until: Condition | None = None
    window: timedelta | None = None
    gap_window: timedelta | None = None
    group: PatternSequence | None = None
    inclusive: bool = False
    """Whether the duration of a window is itself allowed."""


class SkipKind(enum.Enum):
    NO_SKIP = "NO_SKIP"
    SKIP_TO_NEXT = "SKIP_TO_NEXT"
    SKIP_PAST_LAST_EVENT = "SKIP_PAST_LAST_EVENT"
    SKIP_TO_FIRST = "SKIP_TO_FIRST"
    SKIP_TO_LAST = "SKIP_TO_LAST"
    FIRST_MATCH_ONLY = "FIRST_MATCH_ONLY"


_SKIP_HINT = "AfterMatchSkipStrategy.skip_past_last_event(), for example"


@dataclass(frozen=True, slots=True)
class AfterMatchSkipStrategy(metaclass=PythonNames):
    """Defines which overlapping partial and completed matches are discarded after a match.

    >>> AfterMatchSkipStrategy.skip_to_first("b").kind
    <SkipKind.SKIP_TO_FIRST: 'SKIP_TO_FIRST'>
    """

    kind: SkipKind = SkipKind.NO_SKIP
    stage: str | None = None
    throw_on_miss: bool = False

    def __post_init__(self) -> None:
        expect(MalformedPatternError, self.kind, SkipKind, "the kind of a skip strategy must be a SkipKind", _SKIP_HINT)
        expect(MalformedPatternError, self.throw_on_miss, bool, "throw_on_miss must be True or False")
        names_stage = self.kind in (SkipKind.SKIP_TO_FIRST, SkipKind.SKIP_TO_LAST)
        if names_stage:
            hint = f'AfterMatchSkipStrategy.{self.kind.value.lower()}("b")'
            expect_string(MalformedPatternError, self.stage, f"{self.kind.value} needs the name of a stage", hint)
        elif self.stage is not None or self.throw_on_miss:
            raise MalformedPatternError(f"{self.kind.value} does not support a stage or throw_on_miss", hint=_SKIP_HINT)

    @classmethod
    def no_skip(cls) -> AfterMatchSkipStrategy:
        """Nothing is discarded (the default)."""
        return cls()

    @classmethod
    def skip_to_next(cls) -> AfterMatchSkipStrategy:
        """Discard matches that started with the same event."""
        return cls(SkipKind.SKIP_TO_NEXT)

    @classmethod
    def skip_past_last_event(cls) -> AfterMatchSkipStrategy:
        """Discard matches that started before or with the last event of the match."""
        return cls(SkipKind.SKIP_PAST_LAST_EVENT)

    @classmethod
    def skip_to_first(cls, stage: str, *, throw_on_miss: bool = False) -> AfterMatchSkipStrategy:
        """Discard matches that started before the first event of *stage*.

        If the match has no such event, or if it is the first event of the match, nothing is discarded; with *throw_on_miss*,
        the query fails with :class:`~asterism.errors.SkipStrategyError` instead.
        """
        return cls(SkipKind.SKIP_TO_FIRST, stage, throw_on_miss)

    @classmethod
    def skip_to_last(cls, stage: str, *, throw_on_miss: bool = False) -> AfterMatchSkipStrategy:
        """Discard matches that started before the last event of *stage*; *throw_on_miss* as in :meth:`skip_to_first`."""
        return cls(SkipKind.SKIP_TO_LAST, stage, throw_on_miss)

    @classmethod
    def first_match_only(cls) -> AfterMatchSkipStrategy:
        """Only the first complete match of each key is a match. (Not in Flink.)

        Of several matches that are complete at the same time, the one that began first is the first. A stream remembers each
        key that had its match.
        """
        return cls(SkipKind.FIRST_MATCH_ONLY)


@dataclass(frozen=True, slots=True)
class PatternSequence(metaclass=PythonNames):
    """The stages of a pattern and the methods that extend them; :class:`~asterism.patterns.pattern.Pattern` is the public class.

    >>> p = (PatternSequence.begin("fails").where("event = 'failed'").times_or_more(3).consecutive()
    ...      .next("login").where("event = 'accepted'").within(timedelta(minutes=10)))
    >>> [stage.name for stage in p.stages]
    ['fails', 'login']
    """

    stages: tuple[Stage, ...]
    skip: AfterMatchSkipStrategy = AfterMatchSkipStrategy()
    combination: Combining = Combining.SEQUENCE
    """Of the pattern of a group."""
    from_first: bool = False
    """Whether a match begins with the first event of its key."""
    to_last: bool = False
    """Whether a match ends with the last event of its key."""
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names for several stages together."""

    def __post_init__(self) -> None:
        # Every method changes only the last stage: the others were checked before.
        if not isinstance(self.stages, tuple) or not self.stages:
            raise MalformedPatternError(f"a pattern must be a tuple of stages, not {shown(self.stages)}", hint=_BEGIN)
        expect(MalformedPatternError, self.stages[-1], Stage, "a pattern must be a tuple of stages", _BEGIN)
        if not isinstance(self.skip, AfterMatchSkipStrategy):
            raise MalformedPatternError(
                f"a skip strategy must be an AfterMatchSkipStrategy, not {shown(self.skip)}", hint=_skip_hint(self.skip)
            )
        expect(MalformedPatternError, self.combination, Combining, "the combination of a pattern must be a Combining")
        for value in (self.from_first, self.to_last):
            expect(MalformedPatternError, value, bool, "from_first and to_last must be True or False")
        expect(MalformedPatternError, self.subsets, tuple, "subsets must be a tuple of names with stages", _SUBSET)

    # ------------------------------------------------------------------ the chain

    @classmethod
    def begin(cls, stage: str | PatternSequence, skip: AfterMatchSkipStrategy | None = None) -> Self:
        """Start a pattern with a stage of this name, or with a group."""
        # As in Flink: no events precede the first stage, so none can be skipped.
        first = _stage(stage, Contiguity.STRICT)
        return cls((first,), AfterMatchSkipStrategy() if skip is None else skip)

    @classmethod
    def begin_without(cls, stage: str) -> Self:
        """Start a pattern with an absence: no matching event may precede the match. (Not in Flink.)

        The next stage is the first one that accepts an event. :meth:`within` bounds the time before that event in which no
        matching event may occur; without it, no earlier event of the key may match. The condition can read only the current
        event. An event that occurs at the same time but earlier in the order of events precedes the match. A stream stores the
        last matching event of each key.

        >>> p = (PatternSequence.begin_without("failure").where("event = 'failed'").within(timedelta(hours=1))
        ...      .followed_by("login").where("event = 'accepted'"))
        >>> p.stages[0].contiguity
        <Contiguity.NOT_BEFORE: 'NOT_BEFORE'>
        """
        return cls((_stage(stage, Contiguity.NOT_BEFORE),))

    @classmethod
    def any_of(cls, *alternatives: str | PatternSequence) -> Self:
        """Start a pattern with alternatives; as an argument of :meth:`next` or :meth:`followed_by`, add them. (Not in Flink.)

        A match contains events of exactly one alternative. The contiguity before the alternatives applies to the first event
        of each: ``followed_by(Pattern.any_of(b, c))`` skips events that begin none of them. An event that begins several
        alternatives begins a match with each, in this order. An alternative that has begun and fails is not replaced by another
        one. Quantifiers apply to the alternatives as to a group.

        :param alternatives: two or more stages or patterns; each must begin with a stage that accepts an event
        :raises MalformedPatternError: an alternative is not allowed

        >>> paid = PatternSequence.any_of(
        ...     PatternSequence.begin("card").where("kind = 'card'"),
        ...     PatternSequence.begin("invoice").where("kind = 'invoice'").followed_by("transfer").where("kind = 'paid'"),
        ... )
        >>> [stage.name for stage in PatternSequence.begin("order").followed_by(paid).atoms()]
        ['order', 'card', 'invoice', 'transfer']
        """
        return cls((_combined(alternatives, Combining.ANY_OF, Contiguity.STRICT),))

    @classmethod
    def in_any_order(cls, *elements: str | PatternSequence, consecutive: bool = False) -> Self:
        """Start a pattern with elements that may occur in any order; as an argument of :meth:`next` or :meth:`followed_by`,
        add them. (Not in Flink; SQL: ``PERMUTE``.)

        An event that begins several of the remaining elements is accepted by each, in its own match. No event of one element lies
        between two events of another one.

        :param elements: two to eight stages or patterns; each must begin with a stage that accepts an event
        :param consecutive: whether no other event may lie between two elements; by default, events that begin none of the
            remaining elements are skipped
        :raises MalformedPatternError: an element is not allowed

        >>> both = PatternSequence.in_any_order(
        ...     PatternSequence.begin("shipped").where("kind = 'shipped'"),
        ...     PatternSequence.begin("paid").where("kind = 'paid'"),
        ... )
        >>> [stage.name for stage in PatternSequence.begin("order").followed_by(both).atoms()]
        ['order', 'shipped', 'paid']
        """
        expect(MalformedPatternError, consecutive, bool, "consecutive must be True or False")
        between = Contiguity.STRICT if consecutive else Contiguity.SKIP_TILL_NEXT
        return cls((_combined(elements, Combining.IN_ANY_ORDER, between),))

    def next(self, stage: str | PatternSequence) -> Self:
        """Add a stage that must accept the very next event of the key."""
        return self._append(_stage(stage, Contiguity.STRICT))

    def followed_by(self, stage: str | PatternSequence) -> Self:
        """Add a stage that accepts the next matching event; non-matching events are skipped."""
        return self._append(_stage(stage, Contiguity.SKIP_TILL_NEXT))

    def followed_by_any(self, stage: str | PatternSequence) -> Self:
        """Add a stage that accepts any later matching event, each in its own match."""
        return self._append(_stage(stage, Contiguity.SKIP_TILL_ANY))

    def not_next(self, stage: str) -> Self:
        """Add a stage that forbids the very next event to match."""
        return self._append(_stage(stage, Contiguity.NOT_NEXT))

    def not_followed_by(self, stage: str) -> Self:
        """Add a stage that forbids matching events before the next stage or, at the end of a pattern, within its window."""
        return self._append(_stage(stage, Contiguity.NOT_FOLLOW))

    # ------------------------------------------------------------------ conditions

    def where(self, condition: ConditionLike) -> Self:
        """The event must satisfy *condition*; several are combined by AND, from left to right with :meth:`or_`.

        *condition* is a Spark SQL expression, a vectorised function (``pyarrow.Table`` to Boolean mask) or a ``Condition``,
        such as an :class:`~asterism.patterns.conditions.IterativeCondition`. They are evaluated in this order, with
        short-circuiting.

        >>> PatternSequence.begin("a").where("price > 10 AND price > LAST(a.price)").stages[0].condition
        SqlCondition(text='price > 10 AND price > LAST(a.price)')
        """
        return self._joined("where", condition, AndCondition)

    def or_(self, condition: ConditionLike) -> Self:
        """Add an alternative to the previous conditions of the stage."""
        return self._joined("or_", condition, OrCondition)

    def subtype(self, *names: str, column: str = "type") -> Self:
        """The event must also be of a kind in *names*, given by the value of *column*, because rows have no class (Flink:
        ``subtype(Class)``). Combined as by :meth:`where`.

        :param names: one or more kinds, such as all subclasses of a class
        :param column: the column with the kind, case-sensitive
        :raises MalformedPatternError: there is no name, or the last stage is a group

        >>> PatternSequence.begin("a").where("amount > 10").subtype("card", "cash", column="kind").stages[0].condition.right
        SqlCondition(text="`kind` IN ('card', 'cash')")
        """
        last, hint = self._last("subtype"), 'subtype("card", column="kind")'
        if not names:
            raise MalformedPatternError(f'stage "{last.name}": subtype needs a name', hint=hint)
        for name in names:
            expect_string(MalformedPatternError, name, f'stage "{last.name}": a subtype must be a string', hint)
        expect_string(
            MalformedPatternError, column, f'stage "{last.name}": the column of a subtype must be a string', hint
        )
        texts = ["'" + name.replace("\\", "\\\\").replace("'", "''") + "'" for name in names]
        quoted = quoted_name(column)
        return self.where(f"{quoted} = {texts[0]}" if len(texts) == 1 else f"{quoted} IN ({', '.join(texts)})")

    def until(self, condition: ConditionLike) -> Self:
        """End a loop with an event that satisfies *condition*, which the loop does not accept."""
        last = self.stages[-1]
        if last.until is not None:
            raise MalformedPatternError(f'stage "{last.name}": only one until condition can be applied')
        if last.quantifier.kind is not QuantifierKind.LOOPING:
            raise MalformedPatternError(
                f'stage "{last.name}": until applies to loops only',
                hint="make it a loop first, with one_or_more() or times_or_more(n)"
                if last.quantifier.kind is QuantifierKind.SINGLE
                else "until ends loops without a maximum, which are one_or_more() and times_or_more(n); "
                "times(n) can exclude the event in its condition",
            )
        return self._with(replace(last, until=as_condition(condition)))

    # ------------------------------------------------------------------ quantifiers

    def times(self, at_least: int, at_most: int | None = None, *, within: timedelta | None = None) -> Self:
        """Exactly *at_least* times, or *at_least* to *at_most* times; 0 means optional.

        *within* is the exclusive bound of the gap between adjacent repetitions.
        """
        last = self._quantifiable()
        for count in (at_least, at_least if at_most is None else at_most):
            expect(MalformedPatternError, count, int, f'stage "{last.name}": times takes integers', "times(2, 4)")
        given = f"times({at_least})" if at_most is None else f"times({at_least}, {at_most})"
        at_most = at_least if at_most is None else at_most
        optional = at_least == 0 or last.quantifier.optional
        at_least = at_least or 1
        if at_least < 1 or at_most < at_least:
            raise MalformedPatternError(
                f'stage "{last.name}": {given} is not a range of positive numbers',
                hint="times(n) with n > 0, or times(from, to) with 0 <= from <= to and to > 0",
            )
        loop = replace(last.quantifier, kind=QuantifierKind.TIMES, at_least=at_least, at_most=at_most, gap=within)
        return self._with(replace(last, quantifier=replace(loop, optional=optional)))

    def times_or_more(self, at_least: int, *, within: timedelta | None = None) -> Self:
        """*at_least* times or more; *within* as in :meth:`times`."""
        last = self._quantifiable()
        what = f'stage "{last.name}": times_or_more takes an integer'
        expect(MalformedPatternError, at_least, int, what, "times_or_more(2)")
        if at_least < 1:
            raise MalformedPatternError(
                f'stage "{last.name}": times_or_more({at_least}) needs a positive number',
                hint="zero or more is one_or_more().optional()",
            )
        loop = replace(last.quantifier, kind=QuantifierKind.LOOPING, at_least=at_least, at_most=at_least, gap=within)
        return self._with(replace(last, quantifier=loop))

    def one_or_more(self, *, within: timedelta | None = None) -> Self:
        """Once or more; *within* as in :meth:`times`."""
        return self.times_or_more(1, within=within)

    def optional(self) -> Self:
        """The stage may be absent."""
        last = self.stages[-1]
        if last.contiguity.negated:
            raise MalformedPatternError(f'stage "{last.name}": a NOT stage cannot be optional')
        if last.quantifier.optional:
            raise MalformedPatternError(f'stage "{last.name}": optional was already applied')
        if len(self.stages) > 1 and self.stages[-2].quantifier.greedy:
            raise MalformedPatternError(
                f'stage "{last.name}": an optional stage cannot follow the greedy stage "{self.stages[-2].name}"'
            )
        return self._with(replace(last, quantifier=replace(last.quantifier, optional=True)))

    def greedy(self, *, give_back: bool = False) -> Self:
        """The loop accepts as many events as it can: the next stage may not accept an event that the loop would accept.

        :param give_back: the next stage may accept such an event if the pattern cannot match otherwise, as in SQL and in
            regular expressions. Of the matches that begin with the same event, only the one in which this loop accepts most
            events is a match, or, among equals, the first complete one; it is decided when no other can become possible. With
            several such loops, the first one decides. (Not in Flink.)

        >>> low = PatternSequence.begin("low").where("price < 10").one_or_more().consecutive().greedy(give_back=True)
        >>> low.next("last").where("price < 5").stages[0].quantifier.taking
        <Taking.GIVING_BACK: 'GIVING_BACK'>
        """
        expect(MalformedPatternError, give_back, bool, "give_back must be True or False")
        return self._take("greedy", Taking.GIVING_BACK if give_back else Taking.GREEDY)

    def longest(self) -> Self:
        """The loop accepts as many events as it can, and a match is complete only when it can accept no more. (Not in Flink.)

        A loop at the end of the pattern is complete when, with :meth:`consecutive`, an event does not match; when an event
        satisfies the condition of :meth:`until`; when it has the maximum number of events; when the window of the pattern
        passes; at the end of the input. The time of the match is that of this event or deadline; at the end of the input, that of
        its last event. If the loop is optional, a match without it is complete when the loop cannot begin. Before another stage,
        ``longest`` means :meth:`greedy`.

        A match can begin with each event of a run: add the skip strategy ``skip_past_last_event`` to find only whole runs.

        >>> run = (PatternSequence.begin("high", AfterMatchSkipStrategy.skip_past_last_event())
        ...        .where("temperature > 80").times_or_more(3).consecutive().longest())
        >>> run.stages[0].quantifier.taking
        <Taking.LONGEST: 'LONGEST'>
        """
        return self._take("longest", Taking.LONGEST)

    def reluctant(self) -> Self:
        """The loop accepts as few events as it can. (Not in Flink.)

        It ends before the first event that the next stage accepts; if the next stage can skip events, with the minimum number of
        events, as at the end of a pattern. With :meth:`ends_with_last_event`, the end of a pattern is the last event of the key.
        :meth:`optional` stages can be reluctant, too.

        >>> PatternSequence.begin("a").one_or_more().reluctant().next("b").where("x > 1").stages[0].quantifier.taking
        <Taking.RELUCTANT: 'RELUCTANT'>
        """
        return self._take("reluctant", Taking.RELUCTANT)

    def _take(self, verb: str, taking: Taking) -> Self:
        last = self.stages[-1]
        if last.contiguity.negated:
            raise MalformedPatternError(f'stage "{last.name}": {verb} does not apply to a NOT stage')
        if last.group is not None:
            raise MalformedPatternError(f'group "{last.name}": {verb} does not apply to a group')
        if last.quantifier.kind is QuantifierKind.SINGLE and not (
            taking is Taking.RELUCTANT and last.quantifier.optional
        ):
            raise MalformedPatternError(
                f'stage "{last.name}": {verb} does not apply to a stage that occurs once',
                hint="make it a loop first, with times(n, m), one_or_more() or times_or_more(n)",
            )
        if last.quantifier.taking not in (Taking.ALL, taking):
            raise MalformedPatternError(
                f'stage "{last.name}": only one of greedy, longest and reluctant can be applied'
            )
        return self._with(replace(last, quantifier=replace(last.quantifier, taking=taking)))

    def consecutive(self) -> Self:
        """Repetitions must be adjacent events: strict contiguity inside the loop."""
        return self._inner(Contiguity.STRICT, "consecutive")

    def allow_combinations(self) -> Self:
        """Repetitions may skip matching events: non-deterministic relaxed contiguity inside the loop."""
        return self._inner(Contiguity.SKIP_TILL_ANY, "allow_combinations")

    # ------------------------------------------------------------------ time, skipping

    def within(
        self, duration: timedelta, within_type: WithinType = WithinType.FIRST_AND_LAST, *, inclusive: bool = False
    ) -> Self:
        """Bound the duration of a match, in event time: ``last - first < duration``; the smallest of several bounds applies.

        With ``PREVIOUS_AND_CURRENT`` it bounds the gap before the event of the last stage instead. A partial match that
        exceeds the bound is reported as timed out.

        :param inclusive: whether the duration itself is allowed: ``last - first <= duration``. (Not in Flink.)

        >>> PatternSequence.begin("a").followed_by("b").within(timedelta(minutes=5)).time_bound
        datetime.timedelta(seconds=300)
        """
        last = self.stages[-1]
        _check_duration(last.name, duration)
        what = f'stage "{last.name}": the kind of a window must be a WithinType'
        hint = "WithinType.FIRST_AND_LAST, WithinType.PREVIOUS_AND_CURRENT"
        expect(MalformedPatternError, within_type, WithinType, what, hint)
        # As in Flink, a window of length zero is no window.
        expect(MalformedPatternError, inclusive, bool, f'stage "{last.name}": inclusive must be True or False')
        value = duration if duration > timedelta(0) or inclusive else None
        if within_type is WithinType.FIRST_AND_LAST:
            changed = replace(last, window=value)
        elif last.contiguity is Contiguity.NOT_BEFORE:
            raise MalformedPatternError(
                f'stage "{last.name}": the time without an event is bounded by within(duration) alone'
            )
        else:
            changed = replace(last, gap_window=value)
        other = last.gap_window if within_type is WithinType.FIRST_AND_LAST else last.window
        if inclusive is not last.inclusive and other is not None:
            raise MalformedPatternError(f'stage "{last.name}": either both of its windows are inclusive, or none')
        return self._with(replace(changed, inclusive=inclusive and value is not None))

    # ------------------------------------------------------------------ the events of a key

    def starts_with_first_event(self) -> Self:
        """A match must begin with the first event of its key. (Not in Flink; SQL: ``^``.)

        A stream remembers each key that it has seen.

        >>> PatternSequence.begin("view").where("page = '/checkout'").starts_with_first_event().from_first
        True
        """
        return replace(self, from_first=True)

    def ends_with_last_event(self) -> Self:
        """A match must end with the last event of its key, which is decided at the end of the input. (Not in Flink; SQL: ``$``.)

        Its time is that of this event; a window does not bound the time after it.

        On a stream the input ends when the query is drained.

        >>> PatternSequence.begin("cart").followed_by("leaves").where("event = 'left'").ends_with_last_event().to_last
        True
        """
        return replace(self, to_last=True)

    def subset(self, name: str, *stages: str) -> Self:
        """Name several stages together, for expressions: ``COUNT(name.*)``, ``LAST(name.price)``.

        Not in Flink; SQL: ``SUBSET``.

        :param stages: names of stages of the pattern, which may also be in groups, or be added later

        >>> p = PatternSequence.begin("a").next("b").subset("both", "a", "b")
        >>> p.subsets
        (('both', ('a', 'b')),)
        """
        expect_string(MalformedPatternError, name, "a subset needs a name", _SUBSET)
        if not name or name == "*" or ":" in name:
            problem = f'"{name}" cannot be the name of a subset' if name else "a subset needs a name"
            raise MalformedPatternError(problem, hint=_SUBSET)
        if not stages:
            raise MalformedPatternError(f'subset "{name}" has no stages', hint=_SUBSET)
        for stage in stages:
            expect_string(MalformedPatternError, stage, f'subset "{name}" must have names of stages', _SUBSET)
        return replace(self, subsets=(*self.subsets, (name, tuple(dict.fromkeys(stages)))))

    def skip_strategy(self, skip: AfterMatchSkipStrategy) -> Self:
        """Return the pattern with this after-match skip strategy."""
        return replace(self, skip=skip)

    @property
    def time_bound(self) -> timedelta | None:
        """The smallest window between first and last event that is set anywhere in the chain."""
        bounds = [s.window for s in self.stages if s.window is not None and s.contiguity is not Contiguity.NOT_BEFORE]
        return min(bounds, default=None)

    # ------------------------------------------------------------------ the whole

    def atoms(self) -> Iterator[Stage]:
        """Every stage that accepts or forbids events, in order, with groups flattened."""
        return (stage for stage in stages_of(self) if stage.group is None)

    @property
    def effective_window(self) -> timedelta | None:
        """The smallest window from first to last event, as an exclusive bound. On the last stage of a group it has no effect."""

        def windows(stages: tuple[Stage, ...], in_group: bool) -> list[timedelta]:
            bounded = (s for s in (stages[:-1] if in_group else stages) if s.contiguity is not Contiguity.NOT_BEFORE)
            bounds = [bound for bound in (exclusive(s, s.window) for s in bounded) if bound is not None]
            for stage in stages:
                if stage.group is not None:
                    bounds += windows(stage.group.stages, True)
            return bounds

        return min(windows(self.stages, False), default=None)

    def validate(self) -> None:
        """Check the chain as a whole.

        :raises MalformedPatternError: the chain has no meaning
        """
        seen: set[str] = set()
        for stage in self.atoms():
            if stage.name in seen:
                raise MalformedPatternError(
                    f'two stages are named "{stage.name}"', hint="stage names must be unique, including those in groups"
                )
            seen.add(stage.name)
        last = self.stages[-1]
        if last.contiguity is Contiguity.NOT_FOLLOW and self.effective_window is None and last.gap_window is None:
            raise UnboundedNotStageError(
                f'not_followed_by("{last.name}") cannot be the last stage of a pattern without a time bound',
                "Absence can only be decided when the waiting time is known.",
                "add .within(...), or follow it with a stage that must occur",
            )
        if self.skip.stage is not None and self.skip.stage not in [s.name for s in self.stages if s.group is None]:
            raise MalformedPatternError(
                f'the skip strategy names "{self.skip.stage}", which is not a stage of the pattern',
                "Stages inside groups cannot be skipped to.",
            )
        if all(stage.contiguity.negated for stage in self.stages):
            raise MalformedPatternError(
                f'no stage of the pattern accepts an event after "{last.name}"', hint='add .followed_by("a")'
            )
        self._check_subsets(seen)
        if self.to_last and (last.contiguity.negated or last.quantifier.taking is Taking.LONGEST):
            why = (
                "is a NOT stage"
                if last.contiguity.negated
                else "is the longest loop, which ends with the last event anyway"
            )
            raise MalformedPatternError(f'ends_with_last_event does not apply: the last stage "{last.name}" {why}')

    def _check_subsets(self, stages: set[str]) -> None:
        names: set[str] = set()
        for name, members in self.subsets:
            if name in stages or name in names:
                raise MalformedPatternError(f'subset "{name}" has the name of another stage or subset')
            names.add(name)
            for member in members:
                if member not in stages:
                    raise MalformedPatternError(
                        f'subset "{name}" names "{member}", which is not a stage of the pattern',
                        f"Stages: {', '.join(sorted(stages))}",
                    )

    # ------------------------------------------------------------------ helpers

    def _append(self, stage: Stage) -> Self:
        check_follows(self.stages[-1], stage)
        return replace(self, stages=(*self.stages, stage))

    def _with(self, last: Stage) -> Self:
        if last.quantifier.gap is not None:
            _check_duration(last.name, last.quantifier.gap)
        return replace(self, stages=(*self.stages[:-1], last))

    def _last(self, verb: str) -> Stage:
        last = self.stages[-1]
        if last.group is not None:
            raise MalformedPatternError(
                f'group "{last.name}": {verb} does not apply to a group', hint="put the condition on its stages"
            )
        return last

    def _joined(self, verb: str, condition: ConditionLike, join: Callable[[Condition, Condition], Condition]) -> Self:
        last, new = self._last(verb), as_condition(condition)
        return self._with(replace(last, condition=new if last.condition is None else join(last.condition, new)))

    def _quantifiable(self) -> Stage:
        last = self.stages[-1]
        if last.quantifier.kind is not QuantifierKind.SINGLE:
            raise MalformedPatternError(f'stage "{last.name}" already has a quantifier')
        if last.contiguity.negated:
            raise MalformedPatternError(f'stage "{last.name}": a quantifier does not apply to a NOT stage')
        return last

    def _inner(self, inner: Contiguity, verb: str) -> Self:
        last = self.stages[-1]
        if last.quantifier.kind is QuantifierKind.SINGLE:
            raise MalformedPatternError(
                f'stage "{last.name}": {verb} does not apply to a stage that occurs once',
                hint="make it a loop first, with times(n), one_or_more() or times_or_more(n)",
            )
        if last.quantifier.inner is not Contiguity.SKIP_TILL_NEXT and last.quantifier.inner is not inner:
            raise MalformedPatternError(f'stage "{last.name}": either consecutive or allow_combinations, not both')
        return self._with(replace(last, quantifier=replace(last.quantifier, inner=inner)))


def stages_of(pattern: PatternSequence) -> Iterator[Stage]:
    """Every stage, in order; a group precedes its stages."""
    for stage in pattern.stages:
        yield stage
        if stage.group is not None:
            yield from stages_of(stage.group)


def check_follows(previous: Stage, stage: Stage) -> None:
    """:raises MalformedPatternError: *stage* cannot follow *previous*"""
    if previous.contiguity is Contiguity.NOT_BEFORE and stage.contiguity is not Contiguity.SKIP_TILL_NEXT:
        raise MalformedPatternError(
            f'after begin_without("{previous.name}"), the first stage of a match is added by followed_by',
            hint=f'begin_without("{previous.name}").where(...).followed_by("a")',
        )
    if stage.contiguity.negated and previous.quantifier.optional:
        raise MalformedPatternError(
            f'the NOT stage "{stage.name}" cannot follow the optional stage "{previous.name}"',
            hint="write two patterns, one with and one without the optional stage",
        )


def _stage(stage: str | PatternSequence, contiguity: Contiguity) -> Stage:
    if isinstance(stage, PatternSequence):
        if contiguity.negated:
            raise MalformedPatternError("a NOT stage cannot be a group", hint="name one stage that must not occur")
        _check_group(stage)
        only = stage.stages[0]
        is_plain = len(stage.stages) == 1 and only.window is None and only.gap_window is None
        combined = only.group is not None and only.group.combination is not Combining.SEQUENCE
        if is_plain and combined and stage.skip == AfterMatchSkipStrategy():
            # any_of(...) and in_any_order(...) are patterns with one group, to which the contiguity applies.
            return replace(only, contiguity=contiguity)
        _check_depth(stage)
        return Stage(
            name="(" + " ".join(inner.name for inner in stage.stages) + ")", contiguity=contiguity, group=stage
        )
    expect_string(MalformedPatternError, stage, "a stage must be a name, or a Pattern as a group", 'followed_by("b")')
    if not stage:
        raise MalformedPatternError("a stage needs a name")
    if ":" in stage:
        raise MalformedPatternError(
            f'stage name "{stage}" contains a colon', hint="use letters, digits and underscores"
        )
    return Stage(name=stage, contiguity=contiguity)


def _check_group(pattern: PatternSequence) -> None:
    """Refuse what applies to a whole pattern only."""
    if pattern.stages[0].contiguity is Contiguity.NOT_BEFORE:
        raise MalformedPatternError(
            f'a group cannot begin with begin_without("{pattern.stages[0].name}")',
            hint="begin the whole pattern with it",
        )
    for applied, method in (
        (pattern.from_first, "starts_with_first_event()"),
        (pattern.to_last, "ends_with_last_event()"),
        (bool(pattern.subsets), "subset(...)"),
    ):
        if applied:
            raise MalformedPatternError(f"{method} does not apply to a group", hint="apply it to the whole pattern")


def _combined(parts: tuple[str | PatternSequence, ...], combination: Combining, between: Contiguity) -> Stage:
    """A group whose elements are alternatives, or may occur in any order."""
    method = combination.value.lower()
    most = MAX_ALTERNATIVES if combination is Combining.ANY_OF else MAX_IN_ANY_ORDER
    if not 2 <= len(parts) <= most:
        raise MalformedPatternError(f"{method} takes 2 to {most:,} patterns, not {len(parts):,}")
    elements = []
    for part in parts:
        if isinstance(part, PatternSequence) and part.skip != AfterMatchSkipStrategy():
            raise MalformedPatternError(f"{method}: a skip strategy applies to whole patterns only")
        if isinstance(part, PatternSequence) and len(part.stages) == 1:
            _check_group(part)
            element = replace(part.stages[0], contiguity=between)
        else:
            element = _stage(part, between)
        first = element
        while True:
            if first.quantifier.optional:
                raise MalformedPatternError(
                    f'{method}: the element with "{element.name}" begins with the optional stage "{first.name}"',
                    "An element must begin with a stage that accepts an event.",
                    "make the whole any_of optional, or write one element with the stage and one without it",
                )
            if first.group is None or first.group.combination is not Combining.SEQUENCE:
                break
            first = first.group.stages[0]
        elements.append(element)
    group = PatternSequence(tuple(elements), combination=combination)
    _check_depth(group)
    joined = " | " if combination is Combining.ANY_OF else " & "
    name = "(" + joined.join(element.name for element in elements) + ")"
    return Stage(name=name, contiguity=Contiguity.STRICT, group=group)


def exclusive(stage: Stage, bound: timedelta | None) -> timedelta | None:
    """A window of *stage* as an exclusive bound; event times have microseconds."""
    return bound + timedelta(microseconds=1) if bound is not None and stage.inclusive else bound


def _check_depth(pattern: PatternSequence) -> None:
    """:raises PatternTooLargeError: groups are nested too deeply"""
    level = [pattern]
    for _ in range(MAX_GROUP_DEPTH):
        inside = {id(stage.group): stage.group for p in level for stage in p.stages if stage.group is not None}
        if not inside:
            return
        level = list(inside.values())
    raise PatternTooLargeError(f"groups are nested too deeply (limit {MAX_GROUP_DEPTH:,} levels)")


def _check_duration(stage: str, duration: Any) -> None:
    what = f'stage "{stage}": a window must be a timedelta'
    expect(MalformedPatternError, duration, timedelta, what, "timedelta(minutes=5)")
    if duration < timedelta(0):
        raise MalformedPatternError(f'stage "{stage}": a window cannot be negative ({duration.total_seconds()} s)')
    if duration > MAX_DURATION:
        raise MalformedPatternError(f'stage "{stage}": a window of {duration.days} days is out of range')


def _skip_hint(given: Any) -> str:
    name = str(getattr(given, "__name__", given)).lower()
    if name in ("skip_to_first", "skip_to_last"):
        return f'AfterMatchSkipStrategy.{name}("b"), with the name of a stage'
    known = [kind.value.lower() for kind in SkipKind]
    return f"AfterMatchSkipStrategy.{name}(), with parentheses" if name in known else _SKIP_HINT


_SUBSET = 'subset("both", "a", "b")'
_BEGIN = 'Pattern.begin("a").where("...").followed_by("b")'
