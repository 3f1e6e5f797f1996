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

See docs/decisions/0140.

Source: https://www.elastic.co/guide/en/elasticsearch/reference/current/eql-syntax.html#eql-sequences, and
https://www.elastic.co/guide/en/elasticsearch/reference/current/eql.html#eql-how-sequence-queries-handle-matches
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from asterism.elastic import syntax
from asterism.elastic.conditions import ConditionWriter
from asterism.errors import StreamDefinitionError, UnsupportedSyntaxError
from asterism.text.printable import quoted_name

MAX_BRANCHES = 300
"""The maximum number of parts of a pattern."""
COPY, KEY = "eql_copy", "eql_key_"
"""The columns of copies of rows. If the keys differ between the events of a sequence, there is a copy of each row for each kind
of keys, with its number and its keys. Of an event, the copy with the highest number comes first, so that no event follows itself.
"""


def no_columns_of_copies(columns: Sequence[str]) -> None:
    """:raises StreamDefinitionError: the events have a column with one of these names"""
    for name in columns:
        if name == COPY or name.startswith(KEY):
            raise StreamDefinitionError(
                f"the events have a column {name!r:.60}, which the query adds", hint="rename it"
            )


@dataclass(frozen=True, slots=True)
class SequenceClause:
    """A sequence as the parts of a clause.

    :ivar keys: the expressions of PARTITION BY
    :ivar pattern: the text in the parentheses of PATTERN
    :ivar definitions: the conditions, by variable
    :ivar maxspan: the time of WITHIN; None: there is none
    """

    keys: Sequence[str]
    pattern: str
    definitions: dict[str, str]
    maxspan: timedelta | None
    copies: Sequence[Sequence[str]] = ()
    """If the keys differ between the events: the keys, as texts, of each copy of a row; see :data:`COPY`."""

    def text(self, time: str | None, measures: Sequence[str] = (), rows: str = "ONE ROW PER MATCH") -> str:
        """The clause.

        :param time: the column of the event time; None: that of the stream, in a rule
        :param measures: the items of MEASURES
        """
        lines = [f"PARTITION BY {', '.join(self.keys)}"] if self.keys else []
        lines += [f"ORDER BY {quoted_name(time)}"] if time is not None else []
        lines += [f"MEASURES {', '.join(measures)}"] if measures else []
        lines += [rows, "AFTER MATCH SKIP TO NEXT ROW", f"PATTERN ({self.pattern})"]
        if self.maxspan is not None:
            lines.append(f"WITHIN {_interval(self.maxspan)}")
        lines.append("DEFINE " + ",\n  ".join(f"{name} AS {sql}" for name, sql in self.definitions.items()))
        return "\n".join(lines)


def sequence_clause(sequence: syntax.EqlSequence, writer: ConditionWriter, *, copies: bool = False) -> SequenceClause:
    """
    :param copies: whether rows can be copied, see :data:`COPY`
    :raises ExpressionError: a condition is invalid; UnsupportedSyntaxError: the sequence cannot be written as a clause
    """
    kinds = _kinds_of_keys(sequence, writer)
    if len(kinds) > 1 and not copies:
        raise UnsupportedSyntaxError.at(
            "keys that differ between the events are not supported in a rule",
            writer.text,
            sequence.start,
            "asterism.eql(query, events) finds such sequences",
        )
    return _SequenceWriter(sequence, writer, kinds).clause()


def _kinds_of_keys(sequence: syntax.EqlSequence, writer: ConditionWriter) -> list[tuple[str, ...]]:
    """The keys of the events in SQL, each once."""
    steps = [*sequence.steps, *([sequence.until] if sequence.until is not None else [])]
    return list(dict.fromkeys(_keys_of(sequence, step, writer) for step in steps))


def _keys_of(sequence: syntax.EqlSequence, step: syntax.EqlStep, writer: ConditionWriter) -> tuple[str, ...]:
    return tuple(writer.operand(node) for node in (*sequence.by, *step.by))


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
        return None not in (self.category, other.category) and self.category != other.category


@dataclass
class _SequenceWriter:
    sequence: syntax.EqlSequence
    writer: ConditionWriter
    kinds: Sequence[tuple[str, ...]]
    definitions: dict[str, str] = field(default_factory=dict)
    steps: list[_SequenceEvent] = field(default_factory=list)
    until: Sequence[str] = ()
    ending: Sequence[str] = ()
    """The absent events before the last event."""
    size: int = 0

    def clause(self) -> SequenceClause:
        sequence, writer = self.sequence, self.writer
        if sequence.steps[0].absent:
            raise UnsupportedSyntaxError.at(
                "an absent event at the beginning is not supported", writer.text, sequence.steps[0].start
            )
        are_copied = len(self.kinds) > 1
        keys = [f"{KEY}{number}" for number in range(1, len(self.kinds[0]) + 1)] if are_copied else self.kinds[0]
        until = [] if sequence.until is None else [self._condition(sequence.until)]
        absent: list[str] = []
        last = max(number for number, step in enumerate(sequence.steps) if not step.absent)
        for number, step in enumerate(sequence.steps):
            condition = self._condition(step)
            if not step.absent:
                self.steps.append(
                    _SequenceEvent(condition, self._with_keys(condition, step, keys), step.query.category)
                )
            elif any(not later.absent for later in sequence.steps[number:last]):
                # A later sequence that such an event ends does not replace this one.
                raise UnsupportedSyntaxError.at(
                    "an absent event is supported only before the last event, and at the end", writer.text, step.start
                )
            else:
                absent.append(condition)
        is_absent_at_end = bool(absent) and sequence.steps[-1].absent
        self.ending = [] if is_absent_at_end else absent
        self.until = until
        pattern = self._variable("s1_0", [self.steps[0].with_keys], [])
        if len(self.steps) > 1:
            pattern += f" {self._rest(1, 0)}"
        if is_absent_at_end:
            self.definitions["absent"] = " OR ".join(f"({condition})" for condition in [*absent, *until])
            self.definitions["gap"] = "TRUE"
            pattern += " {- gap*? -} [^absent]"
        copies = self.kinds if are_copied else ()
        return SequenceClause(keys, pattern, self.definitions, sequence.maxspan, copies)

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
                "conditions of which one event satisfies only one",
            )
        event, other = self.steps[own], self.steps[later]
        is_last = own + 1 == len(self.steps)
        unwanted = [*(self.ending if is_last else []), *self.until]
        ways = []
        if is_last:
            ways.append(self._variable(f"s{own + 1}_{later}", [event.with_keys], []))
        else:
            if event.condition != other.condition:
                taken = self._variable(f"s{own + 1}_{later}", [event.with_keys], [other.condition])
                ways.append(f"{taken} {self._rest(own + 1, later)}")
            if not event.excludes(other):
                taken = self._variable(f"s{own + 1}_{later}b", [event.with_keys, other.condition], [])
                ways.append(f"{taken} {self._rest(own + 1, later + 1)}")
        if later + 1 < own and event.condition != other.condition:
            moved = self._variable(f"t{own}_{later}", [other.condition], [event.condition, *unwanted])
            ways.append(f"{{- {moved} -}} {self._rest(own, later + 1)}")
        waits = self._variable(f"w{own}_{later}", [], [event.condition, other.condition, *unwanted])
        return f"{{- {waits}* -}} " + (ways[0] if len(ways) == 1 else f"({' | '.join(ways)})")

    def _variable(self, name: str, wanted: Sequence[str], unwanted: Sequence[str]) -> str:
        """Define a variable: a row like all of *wanted* and none of *unwanted*."""
        conditions = [f"({condition})" for condition in wanted]
        conditions += [f"NOT COALESCE({condition}, FALSE)" for condition in dict.fromkeys(unwanted)]
        self.definitions[name] = " AND ".join(conditions)
        return name

    def _condition(self, step: syntax.EqlStep) -> str:
        condition = self.writer.event(step.query)
        if len(self.kinds) == 1:
            return condition
        return f"{COPY} = {self.kinds.index(_keys_of(self.sequence, step, self.writer))} AND ({condition})"

    def _with_keys(self, condition: str, step: syntax.EqlStep, keys: Sequence[str]) -> str:
        """The condition of an event, whose keys are not NULL unless they are optional."""
        nodes = (*self.sequence.by, *step.by)
        needed = [
            key
            for key, node in zip(keys, nodes, strict=True)
            if not (isinstance(node, syntax.EqlFieldName) and node.optional)
        ]
        return " AND ".join([f"({condition})", *(f"{key} IS NOT NULL" for key in needed)])


def _interval(duration: timedelta) -> str:
    seconds, rest = divmod(duration, timedelta(seconds=1))
    microseconds = rest // timedelta(microseconds=1)
    return f"INTERVAL '{seconds}{f'.{microseconds:06}' if microseconds else ''}' SECOND"
