"""EQL in a rule: ``eql`` in its document."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.elastic import syntax
from asterism.elastic.conditions import ConditionWriter
from asterism.elastic.parsing import parse
from asterism.elastic.sequences import sequence_clause
from asterism.errors import UnsupportedSyntaxError


def clause_of_rule(text: str, measures: Sequence[str] = ()) -> str:
    """The clause of a rule. A field with dots is a field of a STRUCT, since the columns of the events are not known.

    :param measures: the items of MEASURES, in which the event of an event query is ``event``, and those of a sequence are
        ``event_1``, ``event_2``, ...
    :raises ExpressionError: the query is invalid or not supported

    >>> print(clause_of_rule('process where process.name == "cmd.exe"', ["event.user AS user"]))
    MEASURES event.user AS user
    PATTERN (event)
    DEFINE event AS `event`.`category` = 'process' AND (`process`.`name` = 'cmd.exe')
    """
    query, writer = parse(text), ConditionWriter(text)
    for pipe in query.pipes:
        raise UnsupportedSyntaxError.at(
            f"a rule cannot have the pipe {pipe.name}", text, pipe.start, "asterism.eql(query, events) over a table"
        )
    match query.of:
        case syntax.EqlEventQuery():
            lines = [f"MEASURES {', '.join(measures)}"] if measures else []
            return "\n".join([*lines, "PATTERN (event)", f"DEFINE event AS {writer.event(query.of)}"])
        case syntax.EqlSequence():
            return sequence_clause(query.of, writer).text(None, measures)
    raise UnsupportedSyntaxError.at(
        "a rule cannot be a sample",
        text,
        query.of.start,
        "a sample has no order and no time limit; find it in a table with asterism.eql(query, events)",
    )
