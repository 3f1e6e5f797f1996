"""Sequences of EQL as MATCH_RECOGNIZE clauses.

Elasticsearch keeps, for each key and each number of events, the latest sequence of so many events. An event continues the
latest sequence before it, which it takes along, or replaces an earlier one of the same number of events. Hence the sequence
that begins with a given event has at most one continuation, and is lost as soon as a later one has as many events. In the
clause, the rows between two events of a sequence are those among which no later sequence gets so far: for two events

    s1 (w1_0)* s2

where ``w1_0`` is a row that satisfies neither the condition of s1 nor that of s2, and for three

    s1 (w1_0)* s2 (w2_0)* (t2_1 (w2_1)*)? s3

where ``t2_1`` is a row like s1, and ``w2_1`` one that is not like s2; neither is like s3.

Source: https://www.elastic.co/guide/en/elasticsearch/reference/current/eql-syntax.html#eql-sequences, and
https://www.elastic.co/guide/en/elasticsearch/reference/current/eql.html#eql-how-sequence-queries-handle-matches
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from asterism.elastic import syntax
from asterism.elastic.conditions import ConditionWriter
from asterism.errors import UnsupportedSyntaxError
from asterism.text.printable import quoted_name


COPY, KEY = "eql_copy", "eql_key_"
"""The columns of copies of rows. If the keys differ between the events of a sequence, there is a copy of each row for each kind
of keys, with its number and its keys. Of an event, the copy with the highest number comes first, so that no event follows itself.
"""


@dataclass(frozen=True, slots=True)
class SequenceClause:
    """A sequence as the parts of a clause.

    :ivar keys: the expressions of PARTITION BY
    :ivar pattern: the text in the parentheses of PATTERN
    :ivar definitions: the conditions, by variable
    :ivar events: the variables of the events, in their order
    :ivar maxspan: the time of WITHIN; None: there is none
    """

    keys: Sequence[str]
    pattern: str
    definitions: dict[str, str]
    events: Sequence[str]
    maxspan: timedelta | None
    copies: Sequence[Sequence[str]] = ()
    """If the keys differ between the events: the keys, as texts, of each copy of a row; see :data:`COPY`."""

    def text(self, time: str, measures: Sequence[str] = (), rows: str = "ONE ROW PER MATCH") -> str:
        """The clause.

        :param time: the column of the event time
        :param measures: the items of MEASURES
        """
        lines = [f"PARTITION BY {', '.join(self.keys)}"] if self.keys else []
        lines += [f"ORDER BY {quoted_name(time)}"]
        lines += [f"MEASURES {', '.join(measures)}"] if measures else []
        lines += [rows, "AFTER MATCH SKIP TO NEXT ROW", f"PATTERN ({self.pattern})"]
        if self.maxspan is not None:
            lines.append(f"WITHIN {_interval(self.maxspan)}")
        lines.append("DEFINE " + ",\n  ".join(f"{name} AS {sql}" for name, sql in self.definitions.items()))
        return "\n".join(lines)


def sequence_clause(sequence: syntax.Sequence, writer: ConditionWriter, *, copies: bool = False) -> SequenceClause:
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
    return _ClauseWriter(sequence, writer, kinds).clause()


def _kinds_of_keys(sequence: syntax.Sequence, writer: ConditionWriter) -> list[tuple[str, ...]]:
    """The keys of the events in SQL, each once."""
    steps = [*sequence.steps, *([sequence.until] if sequence.until is not None else [])]
    return list(dict.fromkeys(_keys_of(sequence, step, writer) for step in steps))


def _keys_of(sequence: syntax.Sequence, step: syntax.Step, writer: ConditionWriter) -> tuple[str, ...]:
    return tuple(writer.sql(node) for node in (*sequence.by, *step.by))


@dataclass
class _ClauseWriter:
    sequence: syntax.Sequence
    writer: ConditionWriter
    kinds: Sequence[tuple[str, ...]]
    definitions: dict[str, str] = field(default_factory=dict)

    def clause(self) -> SequenceClause:
        sequence, writer = self.sequence, self.writer
        if sequence.steps[0].absent:
            raise UnsupportedSyntaxError.at(
                "an absent event at the beginning is not supported", writer.text, sequence.steps[0].start
            )
        are_copied = len(self.kinds) > 1
        keys = [f"{KEY}{number}" for number in range(1, len(self.kinds[0]) + 1)] if are_copied else self.kinds[0]
        events: list[str] = []
        sql: list[str] = []
        """The conditions of the events so far."""
        absent: list[str] = []
        """Those of the absent events since the last event."""
        pattern: list[str] = []
        until = [] if sequence.until is None else [self._condition(sequence.until)]
        for step in sequence.steps:
            condition = self._condition(step)
            if step.absent:
                absent.append(condition)
                continue
            if sql:
                pattern.append(self._gap(sql, [condition, *absent, *until]))
            events.append(f"s{len(events) + 1}")
            self.definitions[events[-1]] = self._with_keys(condition, step, keys)
            pattern.append(events[-1])
            sql.append(condition)
            absent = []
        if absent:
            self.definitions["absent"] = " OR ".join(f"({condition})" for condition in [*absent, *until])
            self.definitions["gap"] = "TRUE"
            pattern.append("{- gap*? -} [^absent]")
        copies = self.kinds if are_copied else ()
        return SequenceClause(keys, " ".join(pattern), self.definitions, events, sequence.maxspan, copies)

    def _condition(self, step: syntax.Step) -> str:
        condition = self.writer.event(step.query)
        if len(self.kinds) == 1:
            return condition
        return f"{COPY} = {self.kinds.index(_keys_of(self.sequence, step, self.writer))} AND ({condition})"

    def _with_keys(self, condition: str, step: syntax.Step, keys: Sequence[str]) -> str:
        """The condition of an event, whose keys are not NULL unless they are optional."""
        nodes = (*self.sequence.by, *step.by)
        needed = [
            key
            for key, node in zip(keys, nodes, strict=True)
            if not (isinstance(node, syntax.FieldName) and node.optional)
        ]
        return " AND ".join([f"({condition})", *(f"{key} IS NOT NULL" for key in needed)])

    def _gap(self, sql: Sequence[str], unwanted: Sequence[str]) -> str:
        """The rows after the last event of *sql*: none is like one of *unwanted*, and no later sequence gets so far."""
        number = len(sql)
        text = ""
        for at in range(number - 1, -1, -1):
            waits = self._variable(f"w{number}_{at}", "TRUE", [sql[at], *unwanted])
            inner = f" {text}" if text else ""
            if at:
                moves = self._variable(f"t{number}_{at}", sql[at - 1], unwanted)
                text = f"({moves} {waits}*{inner})?"
            else:
                text = f"{waits}*{inner}"
        return "{- " + text + " -}"

    def _variable(self, name: str, condition: str, unwanted: Sequence[str]) -> str:
        nots = [f"NOT COALESCE({sql}, FALSE)" for sql in dict.fromkeys(unwanted)]
        self.definitions[name] = " AND ".join([*([f"({condition})"] if condition != "TRUE" else []), *nots])
        return name


def _interval(duration: timedelta) -> str:
    seconds, rest = divmod(duration, timedelta(seconds=1))
    microseconds = rest // timedelta(microseconds=1)
    return f"INTERVAL '{seconds}{f'.{microseconds:06}' if microseconds else ''}' SECOND"
