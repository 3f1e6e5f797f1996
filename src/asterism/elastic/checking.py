"""Checks the types of a query's conditions, so that an error has its place in the query and not in the SQL that it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import pyarrow as pa

from asterism.elastic import syntax
from asterism.elastic.conditions import ConditionWriter
from asterism.errors import ExpressionTypeError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.types import name_of

_OF_ARRAYS = "arrayContains(field, value); or an element, field[0]"
_OF_CASTS = "number(...) makes a number of a text, and string(...) a text of a value"


def check_condition(query: syntax.EqlEventQuery, writer: ConditionWriter) -> None:
    """
    :param writer: that of the query, with the columns of the events
    :raises ExpressionTypeError: the types do not match, or the condition is not Boolean; with the position
    """
    whole = writer.event(query)
    try:
        _type_of(whole, writer)
    except ExpressionTypeError as error:
        raise _placed(error, query, writer) from None
    of = _type_of(writer.sql(query.condition), writer)
    if not pa.types.is_boolean(of) and not pa.types.is_null(of):
        problem = f"a condition must be a BOOLEAN, not {name_of(of)}"
        raise ExpressionTypeError.at(problem, writer.text, query.condition.start, "compare it: ==, :, <")


def _placed(error: ExpressionTypeError, query: syntax.EqlEventQuery, writer: ConditionWriter) -> ExpressionTypeError:
    """The error at the innermost part of the query that has it; that of the event category comes last."""
    for node in _nodes(query.condition):
        try:
            _type_of(writer.sql(node), writer)
        except ExpressionTypeError as inner:
            return ExpressionTypeError.at(inner.message, writer.text, node.start, _hint(inner))
    hint = 'any where arrayContains(event.category, "process")' if "ARRAY<" in error.message else error.hint
    return ExpressionTypeError.at(error.message, writer.text, query.start, hint)


def _hint(error: ExpressionTypeError) -> str | None:
    if "ARRAY<" in error.message:
        return _OF_ARRAYS
    return _OF_CASTS if error.hint is not None and "CAST" in error.hint else error.hint


def _nodes(node: syntax.EqlNode) -> Iterator[syntax.EqlNode]:
    """The parts of an expression, each after those within it."""
    for field in fields(node):
        value = getattr(node, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, syntax.EqlNode):
                yield from _nodes(part)
    yield node


def _type_of(sql: str, writer: ConditionWriter) -> pa.DataType:
    assert writer.schema is not None
    vectorized = Vectorized(writer.schema)
    number = vectorized.add(Scope(writer.schema).resolve(parse(sql), sql), sql)
    return vectorized.types[number]
