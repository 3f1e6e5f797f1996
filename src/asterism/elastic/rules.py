"""EQL in a rule: ``eql`` in its document."""

from __future__ import annotations

from asterism.elastic import syntax
from asterism.elastic.conditions import ConditionWriter
from asterism.elastic.events import unsupported_pipe
from asterism.elastic.parsing import parse
from asterism.elastic.sequences import sequence_clause
from asterism.errors import UnsupportedSyntaxError


def clause_of_rule(text: str) -> str:
    """The clause of a rule. A field with dots is a field of a STRUCT, since the columns of the events are not known.

    :raises ExpressionError: the query is invalid or not supported

    >>> print(clause_of_rule('process where process.name == "cmd.exe"'))
    PATTERN (event)
    DEFINE event AS `event`.`category` = 'process' AND (`process`.`name` = 'cmd.exe')
    """
    query, writer = parse(text), ConditionWriter(text)
    for pipe in query.pipes:
        raise unsupported_pipe(pipe, text)
    match query.of:
        case syntax.EqlEventQuery():
            return f"PATTERN (event)\nDEFINE event AS {writer.event(query.of)}"
        case syntax.EqlSequence():
            return sequence_clause(query.of, writer).text(None)
    raise UnsupportedSyntaxError.at("samples are not supported", text, query.of.start)
