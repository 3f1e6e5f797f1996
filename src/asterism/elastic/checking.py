"""Checks the types of a query's expressions, so that an error has its place in the query and not in the SQL that it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import pyarrow as pa

from asterism.elastic import syntax
from asterism.elastic.conditions import ConditionWriter
from asterism.elastic.parsing import parse as parse_query
from asterism.errors import ExpressionError, ExpressionTypeError
from asterism.expressions.evaluation import Vectorized, tried_before
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.types import is_nested, name_of

_ARRAY = "ARRAY<"
"""How the name of the type of an array begins."""
_OF_ARRAYS = "arrayContains(field, value); or an element, field[0]"
_OF_CASTS = "number(...) converts a string to a number, and string(...) a value to a string"
_TO_TEXT = "to STRING is not supported"
"""How the message for a value without a text ends, such as a DOUBLE."""


def check_query(query: syntax.EqlQuery, writer: ConditionWriter) -> None:
    """
    :param writer: that of the query, with the columns of the events
    :raises ExpressionTypeError: the types do not match, or a condition is not Boolean; with the position
    """
    for event_query in event_queries(query):
        _check_event_query(event_query, writer)
    if not isinstance(query.of, syntax.EqlEventQuery):
        for key in (*query.of.by, *(key for step in _steps(query.of) for key in step.by)):
            _check_key(key, writer)
    for pipe in query.pipes:
        for argument in pipe.arguments:
            if pipe.name == "filter":
                _check_condition(argument, writer)
            else:
                _checked(argument, writer)


def problem_of_rule(text: str, schema: pa.Schema) -> ExpressionError | None:
    """The problem of a valid query, as a rule, with the columns of the events, at its place in the query; None: it has none.

    >>> print(problem_of_rule('any where pid == "x"', pa.schema([("pid", pa.bool_())])))
    [EXPRESSION_TYPE] 'x' is not a valid BOOLEAN
      any where pid == "x"
                    ^
    """
    query, writer = parse_query(text), ConditionWriter(text, schema, in_rule=True)
    try:
        check_query(query, writer)
        if isinstance(query.of, syntax.EqlSequence):
            _check_keys_that_differ(query.of, writer)
    except ExpressionError as error:
        return error
    return None


def _check_keys_that_differ(sequence: syntax.EqlSequence, writer: ConditionWriter) -> None:
    """In a rule, the keys of all events are compared with those of the first one."""
    first = next(step for step in sequence.steps if not step.absent)
    for step in _steps(sequence):
        for key, of_first in zip(step.by, first.by, strict=True):
            sql, sql_of_first = writer.operand(key), writer.operand(of_first)
            try:
                _type_of(f"{sql} = {sql_of_first}", writer)
            except ExpressionTypeError:
                what = "the key of until" if step is sequence.until else "the key of this event"
                kinds = [name_of(_type_of(operand, writer)) for operand in (sql, sql_of_first)]
                problem = f"{what} is {kinds[0]}, and that of the first event {kinds[1]}"
                raise ExpressionTypeError.at(problem, writer.text, key.start, _OF_CASTS) from None


def _steps(of: syntax.EqlSequence | syntax.EqlSample) -> list[syntax.EqlStep]:
    """The events of a query, with that of ``until``."""
    return [*of.steps, *([of.until] if isinstance(of, syntax.EqlSequence) and of.until is not None else [])]


def event_queries(query: syntax.EqlQuery) -> list[syntax.EqlEventQuery]:
    """Those of a query, with that of ``until``; that of ``with runs`` once."""
    of = query.of
    if isinstance(of, syntax.EqlEventQuery):
        return [of]
    return list({id(step.query): step.query for step in _steps(of)}.values())


def _check_key(key: syntax.EqlNode, writer: ConditionWriter) -> None:
    of = _checked(key, writer)
    if is_nested(of):
        raise ExpressionTypeError.at(
            f"a key cannot be {name_of(of)}", writer.text, key.start, "a field of it, or an element"
        )


def _check_event_query(query: syntax.EqlEventQuery, writer: ConditionWriter) -> None:
    _check_condition(query.condition, writer)
    if query.category is None:
        return
    try:
        _type_of(writer.event(replace(query, condition=syntax.EqlLiteral(True))), writer)
    except ExpressionTypeError as error:  # of the event category
        hint = 'any where arrayContains(event.category, "process")' if _ARRAY in error.message else error.hint
        raise ExpressionTypeError.at(error.message, writer.text, query.start, hint) from None


def _check_condition(condition: syntax.EqlNode, writer: ConditionWriter) -> None:
    of = _checked(condition, writer)
    if not pa.types.is_boolean(of) and not pa.types.is_null(of):
        problem = f"a condition must be a BOOLEAN, not {name_of(of)}"
        raise ExpressionTypeError.at(problem, writer.text, condition.start, "compare it: ==, :, <")


def _checked(expression: syntax.EqlNode, writer: ConditionWriter) -> pa.DataType:
    """The type of an expression.

    :raises ExpressionTypeError: at the innermost part that has it
    """
    try:
        return _type_of(writer.sql(expression), writer)
    except ExpressionTypeError as error:
        with tried_before():  # an error of types is found without a trial
            part, inner = _innermost(expression, error, writer)
        raise ExpressionTypeError.at(inner.message, writer.text, part.start, _hint(inner)) from None


def _innermost(
    expression: syntax.EqlNode, error: ExpressionTypeError, writer: ConditionWriter
) -> tuple[syntax.EqlNode, ExpressionTypeError]:
    """The innermost part that has an error, and its error."""
    if isinstance(expression, syntax.EqlJunction):
        wrong = _wrong_part(expression, writer)
        inner = _type_error(wrong, writer)
        return (wrong, error) if inner is None else _innermost(wrong, inner, writer)  # None: it is no Boolean
    for part in _parts(expression):
        inner = None if isinstance(part, syntax.EqlLiteral) else _type_error(part, writer)
        if inner is not None:
            return _innermost(part, inner, writer)
    return expression, error


def _wrong_part(junction: syntax.EqlJunction, writer: ConditionWriter) -> syntax.EqlNode:
    """The first part because of which ``and`` or ``or`` has an error. There may be a thousand, so they are halved."""
    parts = junction.parts
    while len(parts) > 1:
        first = parts[: len(parts) // 2]
        # With two parts, one that is no Boolean is an error, too.
        is_wrong = _type_error(replace(junction, parts=(*first, syntax.EqlLiteral(True))), writer) is not None
        parts = first if is_wrong else parts[len(first) :]
    return parts[0]


def _type_error(expression: syntax.EqlNode, writer: ConditionWriter) -> ExpressionTypeError | None:
    try:
        _type_of(writer.sql(expression), writer)
    except ExpressionTypeError as error:
        return error
    return None


def _hint(error: ExpressionTypeError) -> str | None:
    if _ARRAY in error.message:
        return _OF_ARRAYS
    if error.message.endswith(_TO_TEXT):
        return "compare it with a number: == 1.5, <, >"
    return _OF_CASTS if error.hint is not None and "CAST" in error.hint else error.hint


def _parts(node: syntax.EqlNode) -> Iterator[syntax.EqlNode]:
    """The direct parts of an expression."""
    for field in fields(node):
        value = getattr(node, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, syntax.EqlNode):
                yield part


def _type_of(sql: str, writer: ConditionWriter) -> pa.DataType:
    assert writer.schema is not None
    vectorized = Vectorized(writer.schema)
    number = vectorized.add(Scope(writer.schema).resolve(parse(sql), sql), sql)
    return vectorized.types[number]
