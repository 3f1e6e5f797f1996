"""Sequences of EQL as MATCH_RECOGNIZE clauses.

Elasticsearch keeps, for each key and each number of events, the latest sequence of so many events. An event continues the
latest sequence before it, or replaces an earlier one of the same number of events. Hence the sequence that begins with a given
event has at most one continuation, and is lost as soon as a later one has as many events. What happens to it depends on two
numbers: that of its own events, and that of the events of the furthest later sequence, which is smaller. The pattern is the
tree of what can come next. For two events it is

    s1_0 {- w1_0* -} s2_0

where ``w1_0`` is a row that is like neither event, and for three

    s1_0 {- w1_0* -} (s2_0 {- w2_0* -} (s3_0 | {- t2_1 w2_1* -} s3_1) | s2_1 {- w2_1* -} s3_1)

where ``s2_1`` is also like the first event, which begins a later sequence, and so is ``t2_1``. Branches that no row can take,
because two events have the same condition or another category, are left out.

An event of ``until`` ends the sequences before it, and those of which it is an event itself, unless it is their last one.

Absent events do not change which sequences there are: a sequence is dropped if such an event comes between the two events around
it; after its last event, within maxspan of its first one; or before its first event, within maxspan of its last one. In the last
case, a match begins with the first row of that time, ``{- lead* -} s1_0 ...``, because the condition of its last event says that
the row before the match is earlier. So each sequence is found once.

With absent events both at the beginning and at the end, a sequence is dropped if there are two of them around it, within maxspan
of each other. ``before`` are the absent events before the first event, so the last event is one of two variables:

    {- (before | lead)* -} s1_0 {- w1_0* -} (s2_0 | s2_0a {- gap*? -} [^absent])

where ``s2_0`` says that there is no row ``before``, and ``absent`` is a row within maxspan of the last one.

A sequence of more than 20 events, or with too long a text or too many branches, has one variable for the events of ``with runs``
between the first and the last one. For ``[ ] with runs=60`` it is

    s1_0 ({- w1_0* -} s2_0b){58} {- w59_58* -} s60_58

See docs/decisions/0140, 0147, 0168 and 0172.

Source: https://www.elastic.co/guide/en/elasticsearch/reference/current/eql-syntax.html#eql-sequences, and
https://www.elastic.co/guide/en/elasticsearch/reference/current/eql.html#eql-how-sequence-queries-handle-matches
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain, groupby

import pyarrow as pa

from asterism.elastic import syntax
from asterism.elastic.conditions import TIME, ConditionWriter
from asterism.errors import StreamDefinitionError, UnsupportedSyntaxError
from asterism.row_patterns.clause.reading import MAX_CLAUSE
from asterism.text.printable import quoted_name

MAX_BRANCHES = 300
"""The maximum number of parts of a pattern."""
MAX_WRITTEN_OUT = 20
"""The maximum number of events whose sequence has a variable for each of them; see above."""
COPY, KEY = "eql_copy", "eql_key_"
"""The columns of copies of rows. If the keys differ between the events of a sequence, there is a copy of each row for each run of
events with the same keys, with its number and its keys. Of an event, the copy with the highest number comes first, so that no
event follows itself, and that of ``until`` last, so that it ends the sequence of its own event.
"""
EVENTS = "events"
"""The variables of all events, in the measure of their numbers."""
BEFORE = "before"
"""The variable of the absent events before a sequence."""
_EVENT_NAME = re.compile(r"\bevent_(\d{1,9})\b", re.IGNORECASE)
LARGEST_INTEGER_KEY = 1e19
"""Larger numbers equal no integer key."""


def no_columns_of_copies(columns: Sequence[str]) -> None:
    """:raises StreamDefinitionError: the events have a column with one of these names"""
    for name in columns:
        if name == COPY or name.startswith(KEY):
            raise StreamDefinitionError(
                f"the events have a column {name!r:.60}, which the query adds", hint="rename it"
            )


class KeyForm(enum.Enum):
    """The form in which keys of several types are compared."""

    SAME = "of one type"
    INTEGER = "bigint"
    DOUBLE = "double"
    NUMBER = "a text of a number"
    """Of an integer, its digits; of another number, that of the DOUBLE. An integer beyond 2^53 is no DOUBLE."""
    TEXT = "string"


def form_of_keys(types: Sequence[pa.DataType]) -> KeyForm:
    """
    >>> form_of_keys([pa.int32(), pa.float32()]), form_of_keys([pa.int64(), pa.string()])
    (<KeyForm.NUMBER: 'a text of a number'>, <KeyForm.TEXT: 'string'>)
    """
    if len(set(types)) == 1:
        return KeyForm.SAME
    are_integers = list(map(pa.types.is_integer, types))
    if all(are_integers):
        return KeyForm.INTEGER
    is_number = [pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of) for of in types]
    if not all(is_number):
        return KeyForm.TEXT
    return KeyForm.NUMBER if any(are_integers) else KeyForm.DOUBLE


@dataclass(frozen=True, slots=True)
class SequenceClause:
    """A sequence as the parts of a clause.

    :ivar keys: the expressions of PARTITION BY
    :ivar pattern: the text in the parentheses of PATTERN
    :ivar definitions: the conditions, by variable
    :ivar events: the variables of each event; none: the event shares one of *folded*
    :ivar maxspan: the time of WITHIN; None: there is none
    :ivar copies: if the keys differ between the events: the keys, as texts, of each copy of a row; see :data:`COPY`
    :ivar skip: what AFTER MATCH says
    """

    keys: Sequence[str]
    pattern: str
    definitions: dict[str, str]
    events: Sequence[Sequence[str]]
    maxspan: timedelta | None
    copies: Sequence[tuple[str, ...]] = ()
    skip: str = "SKIP TO NEXT ROW"
    folded: Mapping[str, range] = field(default_factory=dict)
    """the numbers of the events of a variable that stands for several"""

    @property
    def event_number(self) -> str:
        """The measure that is the number of an event of a match, for all rows of it."""
        if self.folded:
            return f"INT(COUNT({EVENTS}.*))"
        return "INT(SUBSTRING(SPLIT_PART(CLASSIFIER(), '_', 1), 2))"

    def text(self, time: str | None, measures: Sequence[str] = (), rows: str = "ONE ROW PER MATCH") -> str:
        """The clause.

        :param time: the column of the event time; None: that of the stream, in a rule
        :param measures: the items of MEASURES
        """
        lines = [f"PARTITION BY {', '.join(self.keys)}"] if self.keys else []
        lines += [f"ORDER BY {quoted_name(time)}"] if time is not None else []
        lines += [f"MEASURES {', '.join(measures)}"] if measures else []
        lines += [rows, f"AFTER MATCH {self.skip}", f"PATTERN ({self.pattern})"]
        if self.maxspan is not None:
            lines.append(f"WITHIN {_interval(self.maxspan)}")
        self._check_measures(measures)
        if any("event_" in measure for measure in measures):
            subsets = [f"event_{number} = ({', '.join(names)})" for number, names in enumerate(self.events, 1) if names]
            if any(f"{EVENTS}." in measure for measure in measures):
                names = [*self.folded, *chain.from_iterable(self.events)]
                subsets.append(f"{EVENTS} = ({', '.join(names)})")
            lines.append(f"SUBSET {', '.join(subsets)}")
        lines.append("DEFINE " + ",\n  ".join(f"{name} AS {sql}" for name, sql in self.definitions.items()))
        return "\n".join(lines)

    def _check_measures(self, measures: Sequence[str]) -> None:
        """:raises UnsupportedSyntaxError: one reads an event that shares its variable"""
        for measure in measures:
            for name in _EVENT_NAME.finditer(measure):
                for numbers in self.folded.values():
                    if int(name[1]) in numbers:
                        raise UnsupportedSyntaxError.at(
                            f"the events {numbers[0]} to {numbers[-1]} have no names of their own",
                            measure,
                            name.start(),
                            f"event_{numbers[0] - 1} or event_{numbers[-1] + 1}",
                        )


def sequence_clause(
    sequence: syntax.EqlSequence, writer: ConditionWriter, *, time: str = TIME, copies: bool = False
) -> SequenceClause:
    """
    :param time: the column of the event time
    :param copies: whether rows can be copied, see :data:`COPY`. Otherwise keys that differ between the events are compared with
        those of the first event, within the other keys
    :raises ExpressionError: a condition is invalid; UnsupportedSyntaxError: the sequence cannot be written as a clause
    """
    key_lists = _keys_of_copies(sequence, writer)
    if len(key_lists) > 1 and not copies:
        if sequence.maxspan is None:
            raise UnsupportedSyntaxError.at(
                "in a rule, keys that differ between events require `with maxspan`",
                writer.text,
                sequence.start,
                "sequence with maxspan=5m ...",
            )
        if sequence.steps[0].absent:  # it would be compared with the keys of an event that comes later
            raise UnsupportedSyntaxError.at(
                "in a rule, a sequence whose keys differ cannot begin with an absent event",
                writer.text,
                sequence.steps[0].start,
                "asterism.eql(query, events); or `sequence by` the same key",
            )
    if len(sequence.steps) <= MAX_WRITTEN_OUT:
        with suppress(UnsupportedSyntaxError):  # too many branches: there may be fewer with variables that are shared
            clause = _SequenceWriter(sequence, writer, key_lists, time, copies).clause()
            if sum(map(len, clause.definitions.values())) <= MAX_CLAUSE:
                return clause
    return _SequenceWriter(sequence, writer, key_lists, time, copies, folds=True).clause()


def _keys_of_copies(sequence: syntax.EqlSequence, writer: ConditionWriter) -> list[tuple[str, ...]]:
    """The keys of ``until``, if not all are the same, and of the events in SQL, in their order; see :data:`COPY`."""
    key_lists = [keys for keys, _ in groupby(keys_of(sequence, step, writer) for step in sequence.steps)]
    until = [] if sequence.until is None else [keys_of(sequence, sequence.until, writer)]
    return key_lists if until == key_lists else [*until, *key_lists]


def keys_of(
    query: syntax.EqlSequence | syntax.EqlSample, step: syntax.EqlStep, writer: ConditionWriter
) -> tuple[str, ...]:
    """The keys of an event in SQL."""
    return tuple(writer.operand(node) for node in (*query.by, *step.by))


@dataclass(frozen=True, slots=True)
class _SequenceEvent:
    """
    :ivar with_keys: the condition, and that the keys are not NULL
    """

    condition: str
    with_keys: str
    category: str | None

    def excludes(self, other: _SequenceEvent) -> bool:
        """Whether no row can be like both, since they have different categories."""
        return _differ(self.category, other.category)


@dataclass
class _SequenceWriter:
    sequence: syntax.EqlSequence
    writer: ConditionWriter
    key_lists: Sequence[tuple[str, ...]]
    time: str
    copies: bool
    folds: bool = False
    """Whether events of ``with runs`` share a variable."""
    definitions: dict[str, str] = field(default_factory=dict)
    steps: list[_SequenceEvent] = field(default_factory=list)
    until: Sequence[str] = ()
    absent: dict[int, list[str]] = field(default_factory=dict)
    """The absent events, by the number of the events before them."""
    folded: dict[str, range] = field(default_factory=dict)
    size: int = 0

    def clause(self) -> SequenceClause:
        sequence = self.sequence
        copy = 0
        if sequence.until is not None:
            self.until = [self._condition(sequence.until, copy)]
            copy += len(self.key_lists) > 1
        for step in sequence.steps:
            copy += self.key_lists[copy] != keys_of(sequence, step, self.writer)
            condition = self._condition(step, copy)
            if step.absent:
                self.absent.setdefault(len(self.steps), []).append(condition)
            else:
                with_keys = self._with_keys(self._condition(step, copy, is_first=not self.steps), step)
                self.steps.append(_SequenceEvent(condition, with_keys, step.query.category))
        leading, trailing = self.absent.get(0, []), self.absent.get(len(self.steps), [])
        if len(self.steps) > 1:
            pattern = f"{self._going_on('s1_0', self.steps[0])} {self._rest(1, 0)}"
        else:
            pattern = self._ending("s1_0")
        if leading:
            lead = self._variable("lead", [], leading)
            if trailing:
                self.definitions[BEFORE] = " OR ".join(_in_parentheses(leading))
                lead = f"({BEFORE} | {lead})"
            pattern = f"{{- {lead}* -}} {pattern}"
        if trailing:
            absent = " OR ".join(_in_parentheses(trailing))
            if leading:
                absent = f"({absent}) AND {self._soon_after(f'LAST({BEFORE}.{quoted_name(self.time)})')}"
            self.definitions["absent"] = absent
            self.definitions["gap"] = "TRUE"
        copies = self.key_lists if self._are_copied else ()
        skip = "NO SKIP" if leading else "SKIP TO NEXT ROW"
        within = sequence.maxspan
        if leading and trailing:  # from the first row before the sequence to the last one after it
            assert within is not None
            within = 2 * within
        return SequenceClause(
            self._keys(), pattern, self.definitions, self._events(), within, copies, skip, self.folded
        )

    @property
    def _are_copied(self) -> bool:
        return self.copies and len(self.key_lists) > 1

    def _keys(self) -> Sequence[str]:
        if self._are_copied:
            return [f"{KEY}{number}" for number in range(1, len(self.key_lists[0]) + 1)]
        keys = [keys[0] for keys in zip(*self.key_lists, strict=True) if len(set(keys)) == 1]
        return list(dict.fromkeys(keys))

    def _events(self) -> list[list[str]]:
        events: list[list[str]] = [[] for _ in self.steps]
        for name in self.definitions:
            number, _, way = name[1:].partition("_")
            if name.startswith("s") and way and name not in self.folded:
                events[int(number) - 1].append(name)
        return events

    def _rest(self, own: int, later: int) -> str:
        """The pattern of what comes next.

        :param own: the number of events of the sequence
        :param later: that of the furthest later sequence
        """
        self.size += 1
        if self.size > MAX_BRANCHES:
            raise UnsupportedSyntaxError.at(
                "the events of the sequence overlap in too many ways",
                self.writer.text,
                self.sequence.start,
                "use conditions of which an event satisfies only one",
            )
        count = self._shared(own, later) if self.folds else 0
        if count > 1:
            return f"{self._folded(own, later, count)} {self._rest(own + count, later + count)}"
        event, other = self.steps[own], self.steps[later]
        is_last = own + 1 == len(self.steps)
        unwanted = [*self.absent.get(own, []), *self.until]
        ways = []
        if is_last:
            ways.append(self._ending(f"s{own + 1}_{later}"))
        else:
            if event.condition != other.condition:
                taken = self._going_on(f"s{own + 1}_{later}", event, unwanted=[other.condition])
                ways.append(f"{taken} {self._rest(own + 1, later)}")
            if not event.excludes(other):
                taken = self._going_on(f"s{own + 1}_{later}b", event, wanted=[other.condition])
                ways.append(f"{taken} {self._rest(own + 1, later + 1)}")
        if later + 1 < own and event.condition != other.condition:
            moved = self._variable(f"t{own}_{later}", [other.condition], [event.condition, *unwanted])
            ways.append(f"{{- {moved} -}} {self._rest(own, later + 1)}")
        waits = self._variable(f"w{own}_{later}", [], [event.condition, other.condition, *unwanted])
        return f"{{- {waits}* -}} " + (ways[0] if len(ways) == 1 else f"({' | '.join(ways)})")

    def _shared(self, own: int, later: int) -> int:
        """The number of the next events that can share a variable: they and one more have the same condition as the events of the
        later sequence, which so has as many events more.
        """
        count, event = 0, self.steps[own]
        while own + count + 1 < len(self.steps) and not self.absent.get(own + count):
            if not self.steps[own + count] == self.steps[own + count + 1] == event:
                break
            if self.steps[later + count].condition != event.condition:
                break
            count += 1
        return count

    def _folded(self, own: int, later: int, count: int) -> str:
        """The pattern of *count* events that share a variable."""
        event = self.steps[own]
        taken = self._going_on(f"s{own + 1}_{later}b", event)
        waits = self._variable(f"w{own}_{later}", [], [event.condition, *self.until])
        self.folded[taken] = range(own + 1, own + count + 1)
        return f"({{- {waits}* -}} {taken}){{{count}}}"

    def _going_on(
        self, name: str, event: _SequenceEvent, wanted: Sequence[str] = (), unwanted: Sequence[str] = ()
    ) -> str:
        """Define the variable of an event that is not the last one. It must not be that of ``until``, too; if there are copies,
        that one has its own.
        """
        until = self.sequence.until
        if until is None or self._are_copied or _differ(event.category, until.query.category):
            return self._variable(name, [event.with_keys, *wanted], unwanted)
        return self._variable(name, [event.with_keys, *wanted], [*unwanted, *self.until])

    def _ending(self, name: str) -> str:
        """The pattern from the last event on."""
        wanted = [self.steps[-1].with_keys, *self._first_row()]
        if len(self.steps) not in self.absent:
            return self._variable(name, wanted, [])
        gap = "{- gap*? -} [^absent]"
        if 0 not in self.absent:
            return f"{self._variable(name, wanted, [])} {gap}"
        is_free = self._variable(name, [*wanted, f"COUNT({BEFORE}.*) = 0"], [])
        return f"({is_free} | {self._variable(f'{name}a', [*wanted, f'COUNT({BEFORE}.*) > 0'], [])} {gap})"

    def _first_row(self) -> list[str]:
        """What the last event must satisfy if there are absent events at the beginning."""
        if 0 not in self.absent:
            return []
        assert self.sequence.maxspan is not None
        time = quoted_name(self.time)
        before = f"PREV(FIRST({time}))"
        conditions = [f"{before} IS NULL OR {before} < {time} - {_interval(self.sequence.maxspan)}"]
        if len(self.steps) in self.absent:  # WITHIN is longer
            conditions.append(self._soon_after(f"FIRST({time})"))
        return conditions

    def _soon_after(self, time: str) -> str:
        """That a row is at most maxspan after *time*."""
        assert self.sequence.maxspan is not None
        return f"{quoted_name(self.time)} <= {time} + {_interval(self.sequence.maxspan)}"

    def _variable(self, name: str, wanted: Sequence[str], unwanted: Sequence[str]) -> str:
        """Define a variable: a row like all of *wanted* and none of *unwanted*."""
        conditions = _in_parentheses(wanted)
        conditions += [f"NOT COALESCE({condition}, FALSE)" for condition in dict.fromkeys(unwanted)]
        definition = " AND ".join(conditions)
        if self.folds and name.startswith("w"):
            name = next((known for known, other in self.definitions.items() if other == definition), name)
        self.definitions[name] = definition
        return name

    def _condition(self, step: syntax.EqlStep, copy: int, *, is_first: bool = False) -> str:
        """The condition of an event, also of its keys if they differ between the events.

        :param copy: the number of the event's copy
        """
        condition = self.writer.event(step.query)
        if len(self.key_lists) == 1 or (is_first and not self.copies):
            return condition
        keys = keys_of(self.sequence, step, self.writer)
        if self.copies:
            return f"{COPY} = {copy} AND ({condition})"
        first = next(step for step in self.sequence.steps if not step.absent)
        of_first = keys_of(self.sequence, first, replace(self.writer, prefix="s1_0."))
        tests = [
            f"{key} {'<=>' if _is_optional(node) else '='} {value}"
            for key, value, node, of_events in zip(
                keys, of_first, (*self.sequence.by, *step.by), zip(*self.key_lists, strict=True), strict=True
            )
            if len(set(of_events)) > 1
        ]
        return " AND ".join([f"({condition})", *tests])

    def _with_keys(self, condition: str, step: syntax.EqlStep) -> str:
        keys = self._keys() if self._are_copied else keys_of(self.sequence, step, self.writer)
        return with_keys(condition, keys, (*self.sequence.by, *step.by))


def _differ(category: str | None, other: str | None) -> bool:
    """Whether no event has both categories."""
    return None not in (category, other) and category != other


def with_keys(condition: str, keys: Sequence[str], nodes: Sequence[syntax.EqlNode]) -> str:
    """The condition of an event, whose keys are not NULL unless they are optional."""
    needed = [f"{key} IS NOT NULL" for key, node in zip(keys, nodes, strict=True) if not _is_optional(node)]
    return " AND ".join([f"({condition})", *needed])


def _in_parentheses(conditions: Sequence[str]) -> list[str]:
    return [f"({condition})" for condition in conditions]


def _is_optional(node: syntax.EqlNode) -> bool:
    return isinstance(node, syntax.EqlFieldName) and node.optional


def _interval(duration: timedelta) -> str:
    seconds, rest = divmod(duration, timedelta(seconds=1))
    microseconds = rest // timedelta(microseconds=1)
    return f"INTERVAL '{seconds}{f'.{microseconds:06}' if microseconds else ''}' SECOND"
