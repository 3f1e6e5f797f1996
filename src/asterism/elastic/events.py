"""What a query finds in events, as SQL over them; a host evaluates it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from asterism.elastic import syntax
from asterism.elastic.conditions import CATEGORY, ConditionWriter
from asterism.elastic.parsing import parse
from asterism.elastic.sequences import SequenceClause, sequence_clause
from asterism.errors import StreamDefinitionError, UnsupportedSyntaxError

TIME = "@timestamp"
"""The field of the event time."""
SEQUENCE, EVENT = "sequence", "event_number"
"""The columns of the events of sequences: the number of the sequence among those with its key, and that of the event in it."""


@dataclass(frozen=True, slots=True)
class EventPlan:
    """An event query.

    :ivar condition: SQL over an event
    """

    condition: str
    pipes: Sequence[syntax.EqlPipe]
    writer: ConditionWriter


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """A sequence: the rows of the matches of a clause are its events.

    :ivar clause: the text of the clause, with the column :data:`SEQUENCE` and the variable of each row
    :ivar relevant: SQL over an event: whether it may belong to a match, or prevent one
    """

    of: SequenceClause
    clause: str
    relevant: str
    pipes: Sequence[syntax.EqlPipe]
    writer: ConditionWriter


def plan_of(
    text: str, schema: pa.Schema | None, *, time: str = TIME, category: str = CATEGORY, copies: bool = True
) -> EventPlan | SequencePlan:
    """
    :param schema, category: see :class:`~asterism.elastic.conditions.ConditionWriter`
    :param time: the column of the event time
    :param copies: see :func:`~asterism.elastic.sequences.sequence_clause`
    :raises ExpressionError: the query is invalid or not supported
    """
    query = parse(text)
    added = [name for name in (SEQUENCE, EVENT) if schema is not None and name in schema.names]
    if added and isinstance(query.of, syntax.EqlSequence):
        raise StreamDefinitionError(f"the events have a column {added[0]!r}, which the result adds", hint="rename it")
    writer = ConditionWriter(text, schema, category)
    if isinstance(query.of, syntax.EqlEventQuery):
        return EventPlan(writer.event(query.of), query.pipes, writer)
    if isinstance(query.of, syntax.EqlSample):
        raise UnsupportedSyntaxError.at("samples are not supported", text, query.of.start)
    of = sequence_clause(query.of, writer, copies=copies)
    steps = [*query.of.steps, *([query.of.until] if query.of.until is not None else [])]
    relevant = " OR ".join(f"({writer.event(step.query)})" for step in steps)
    measures = [f"MATCH_NUMBER() AS {SEQUENCE}", f"INT(SUBSTRING(SPLIT_PART(CLASSIFIER(), '_', 1), 2)) AS {EVENT}"]
    clause = of.text(time, measures, "ALL ROWS PER MATCH")
    return SequencePlan(of, clause, relevant, query.pipes, writer)


def number_of(pipe: syntax.EqlPipe) -> int:
    """That of ``head`` or ``tail``."""
    [number] = pipe.arguments
    assert isinstance(number, syntax.EqlLiteral)
    assert isinstance(number.value, int)
    return number.value


def unsupported_pipe(pipe: syntax.EqlPipe, text: str) -> UnsupportedSyntaxError:
    """The error for a pipe that a sequence cannot have, or a stream."""
    return UnsupportedSyntaxError.at(f"the pipe {pipe.name} is not supported here", text, pipe.start)
