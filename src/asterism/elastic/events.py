"""What a query finds in events, as SQL over them; a host evaluates it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from asterism.elastic import syntax
from asterism.elastic.checking import check_query, event_queries
from asterism.elastic.conditions import CATEGORY, TIME, ConditionWriter, any_of
from asterism.elastic.parsing import parse
from asterism.elastic.samples import SampleItem, items_of
from asterism.elastic.sequences import SequenceClause, sequence_clause
from asterism.errors import StreamDefinitionError, UnsupportedSyntaxError

SEQUENCE, EVENT = "sequence", "event_number"
"""The columns of the events of sequences: the number of the sequence among those with its key, and that of the event in it."""
STREAM = "a query over a stream"
SAMPLE = "sample"
"""The column of the events of samples, beside :data:`EVENT`: the number of the sample."""


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


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """A sample."""

    items: Sequence[SampleItem]
    pipes: Sequence[syntax.EqlPipe]
    writer: ConditionWriter


def plan_of(
    text: str, schema: pa.Schema, *, time: str = TIME, category: str = CATEGORY
) -> EventPlan | SequencePlan | SamplePlan:
    """
    :param schema, category: see :class:`~asterism.elastic.conditions.ConditionWriter`
    :param time: the column of the event time
    :raises ExpressionError: the query is invalid or not supported
    """
    query = parse(text)
    new = {syntax.EqlSequence: (SEQUENCE, EVENT), syntax.EqlSample: (SAMPLE, EVENT)}.get(type(query.of), ())
    added = [name for name in new if name in schema.names]
    if added:
        raise StreamDefinitionError(f"the events have a column {added[0]!r}, which the result adds", hint="rename it")
    writer = ConditionWriter(text, schema, category)
    check_query(query, writer)
    if isinstance(query.of, syntax.EqlEventQuery):
        return EventPlan(writer.event(query.of), query.pipes, writer)
    if isinstance(query.of, syntax.EqlSample):
        return SamplePlan(items_of(query.of, writer), query.pipes, writer)
    of = sequence_clause(query.of, writer, time=time, copies=True)
    relevant = any_of([f"({writer.event(event_query)})" for event_query in event_queries(query)])
    measures = [f"MATCH_NUMBER() AS {SEQUENCE}", f"{of.event_number} AS {EVENT}"]
    clause = of.text(time, measures, "ALL ROWS PER MATCH")
    return SequencePlan(of, clause, relevant, query.pipes, writer)


def number_of(pipe: syntax.EqlPipe) -> int:
    """That of ``head`` or ``tail``."""
    [number] = pipe.arguments
    assert isinstance(number, syntax.EqlLiteral)
    assert isinstance(number.value, int)
    return number.value


def unsupported_pipe(pipe: syntax.EqlPipe, text: str, of: str) -> UnsupportedSyntaxError:
    """The error for a pipe.

    :param of: what cannot have it, such as ``a sequence``
    """
    hint = "filter the result" if of != STREAM else "a pipe other than filter needs all events: query a table"
    return UnsupportedSyntaxError.at(f"{of} cannot have the pipe {pipe.name}", text, pipe.start, hint)
