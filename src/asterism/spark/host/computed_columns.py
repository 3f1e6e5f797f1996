"""Computes the parts of expressions that only Spark can evaluate, as columns before an operator.

An operator of Spark that accepts such expressions builds itself by :meth:`ComputedColumns.bind`, which gives it a schema with the
columns that its expressions need, and adds these columns to its events by :func:`with_computed`:

    columns = ComputedColumns(stream.df, schema)
    operator = columns.bind(lambda schema: Operator(schema, ...), [Expression(text) for text in texts])
    df = with_computed(stream.df, operator.schema)

Keys that are expressions are columns, too: :func:`with_keys`.

See :mod:`asterism.expressions.computed_columns` and docs/decisions/0110.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from asterism.columns.internal import internal
from asterism.columns.time import TIME_UNIT
from asterism.errors import (
    ColumnNotFoundError,
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    UnknownFunctionError,
    UnsupportedSyntaxError,
)
from asterism.expressions.computed_columns import is_computed, sql_of_column, visible
from asterism.expressions.functions import FUNCTIONS
from asterism.expressions.parts_for_spark import STORED, PartForSpark
from asterism.spark.host.column_types import arrow_schema, cannot_pass
from asterism.spark.session.settings import errors_not_logged, of_expressions
from asterism.streams.key_expressions import key_parts
from asterism.text.printable import quoted_name

Built = TypeVar("Built")
_NOT_DETERMINISTIC = "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION"
UNKNOWN_FUNCTION = "unknown function "
_AS_ARGUMENT = (
    "Spark computes an expression over a single event, also as an argument: LAST(f(a.x)) instead of f(LAST(a.x)); of several"
    " events, conditions take the functions of docs/sql.md, or are in Python: IterativeCondition"
)
_AGGREGATES = ("MISSING_GROUP_BY", "NESTED_AGGREGATE_FUNCTION", "MISSING_AGGREGATION", "GROUP_BY_AGGREGATE")
_PLACE = re.compile(r"\(line (\d+), pos(?:ition)? (\d+)\)")


class HasParts(Protocol):
    """One or several expressions of an operator, such as :class:`asterism.expressions.parts_for_spark.Expression`."""

    def parts_for_spark(self, schema: pa.Schema) -> list[PartForSpark]:
        """The parts that Spark must compute, in rows with the columns of *schema*."""


class ComputedColumns:
    """The columns that Spark computes for the expressions over a DataFrame.

    :param df: the events
    :param schema: its columns (:func:`~asterism.spark.host.column_types.arrow_schema`)
    :param names: for SQL, the names of those columns that it can read, if they are not all with their own names
    """

    def __init__(self, df: DataFrame, schema: pa.Schema, names: Mapping[str, str] | None = None) -> None:
        if names is not None:
            df = df.select(*[F.col(quoted_name(name)).alias(new) for name, new in names.items()])
        self._df, self._schema = df, schema
        self._known: dict[str, pa.Field] = {}
        self.available = df.columns
        """the columns, for messages"""
        self.unknown_functions: set[str] = set()
        """functions that neither Spark nor this library knows"""

    def bind(
        self, build: Callable[[pa.Schema], Built], expressions: Iterable[HasParts], hint: str = _AS_ARGUMENT
    ) -> Built:
        """What *build* makes for the schema of the events. If it refuses an expression, and there are parts of *expressions* that
        Spark must compute, it gets the schema with their columns.

        :param hint: what to write instead of a function of the session that reads several events
        :raises ExpressionError: neither it nor Spark can evaluate an expression
        """
        try:
            return build(self._schema)
        except ExpressionError as error:
            parts = [part for expression in expressions for part in expression.parts_for_spark(self._schema)]
            if not parts:
                raise with_hint(error, self.unknown_functions, hint) from None
        try:
            return build(self.schema_with(parts))
        except ExpressionError as error:
            raise with_hint(error, self.unknown_functions, hint) from None

    def schema_with(self, parts: Iterable[PartForSpark]) -> pa.Schema:
        """The schema with the columns of these parts at its end.

        :raises ExpressionError: Spark refuses a part, or it is not deterministic
        """
        by_column = {
            part.column: part for part in reversed(list(parts))
        }  # of equal parts, the first one is in messages
        by_column = dict(reversed(by_column.items()))
        unknown = [part for column, part in by_column.items() if column not in self._known]
        if unknown:
            with of_expressions(self._df.sparkSession):
                self._known |= {field.name: field for field in self._analyzed(unknown)}
        fields = [self._known[column] for column in by_column if column in self._known]
        return pa.schema([*self._schema, *fields], self._schema.metadata)

    def _analyzed(self, parts: Sequence[PartForSpark]) -> pa.Schema:
        """The columns of these parts, without those that Spark refuses for the same reason as this library."""
        df = self._df
        try:
            struct = analyzed(df, parts)
        except Exception as error:  # also an internal error of Spark, as for x -> 1 outside of a call
            if len(parts) > 1:
                return pa.schema([field for part in parts for field in self._analyzed([part])])
            better = refused(parts[0], error, self.available)
            if better is None and isinstance(parts[0].refusal, UnknownFunctionError):
                self.unknown_functions.add(parts[0].refusal.message)
            if better is not None:
                raise better from None
            return pa.schema([])
        for part, field in zip(parts, struct, strict=True):
            if cannot_pass(field.dataType):
                raise ExpressionTypeError.at(
                    f"this part is of type {field.dataType.simpleString()}, which cannot be passed to Python",
                    part.text,
                    part.position(0),
                    "CAST it, or compare it within the part that reads one event",
                )
        unit = (self._schema.metadata or {}).get(TIME_UNIT)
        return arrow_schema(df.sparkSession, struct, *([] if unit is None else [unit.decode()]))


def analyzed(df: DataFrame, parts: Sequence[PartForSpark]) -> T.StructType:
    """The columns of *parts* over *df*.

    :raises pyspark.errors.AnalysisException: Spark refuses a part, or it is not deterministic
    """
    with errors_not_logged():  # they become errors of this library
        struct = df.select(*[F.expr(part.sql).alias(part.column) for part in parts]).schema
        # Spark has no function that tells whether an expression is deterministic; an aggregate of it must be.
        df.agg(*[F.count(F.expr(part.sql)) for part in parts]).schema  # noqa: B018 - on Spark Connect, it is analyzed here
    return struct


def with_computed(df: DataFrame, schema: pa.Schema, names: Mapping[str, str] | None = None) -> DataFrame:
    """*df* with the computed columns of *schema*.

    :param names: as for :class:`ComputedColumns`
    """
    columns = {name: F.expr(sql_of_column(name)) for name in schema.names if is_computed(name)}
    if not columns:
        return df
    before = df.columns
    if names is not None:
        df = df.toDF(*[names.get(name, internal(f"column_{number}")) for number, name in enumerate(before)])
    with of_expressions(df.sparkSession):
        computed = df.select("*", *[column.alias(name) for name, column in columns.items()])
    return computed if names is None else computed.toDF(*before, *columns)


def has_computed(schema: pa.Schema) -> bool:
    """Whether Spark computes columns of *schema*."""
    return len(visible(schema)) != len(schema)


# ---------------------------------------------------------------------------------------------------- keys


def with_keys(df: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """(*df* with a column for each key that is an expression, the names of the columns of all keys)

    :param keys: columns, expressions, or expressions with ``AS name``. The name of a column is this column.
    :raises ExpressionError: Spark cannot evaluate an expression, or it is not deterministic
    :raises StreamDefinitionError: the name after AS is that of another column
    """
    names, parts = key_parts(keys, df.columns)
    if not parts:
        return df, names
    with of_expressions(df.sparkSession):
        for part in parts.values():
            try:
                analyzed(df, [part])
            except Exception as error:  # also an internal error of Spark
                raise refused(part, error, df.columns, "a key is of a single event") or part.refusal from None
        return df.select("*", *[F.expr(part.sql).alias(name) for name, part in parts.items()]), names


# ---------------------------------------------------------------------------------------------------- errors


def with_hint(error: ExpressionError, unknown_functions: Collection[str], hint: str = _AS_ARGUMENT) -> ExpressionError:
    """An error of an expression in which no part is left that Spark could compute.

    :param unknown_functions: functions that Spark does not know either
    :param hint: for other functions
    """
    if not isinstance(error, UnknownFunctionError) or not (error.hint or "").startswith("docs/sql.md lists"):
        return error
    if error.message in unknown_functions:
        return unknown_function(error)
    hinted = type(error)(error.message, error.detail, hint)
    hinted.position = error.position
    return hinted


def refused(
    part: PartForSpark, error: Exception, columns: Sequence[str], of: str = "there is a single event here"
) -> ExpressionError | None:
    """The error for a part that Spark refuses, too; None if that of this library is at least as good.

    :param of: why an aggregate function is not allowed
    """
    if not isinstance(error, AnalysisException):
        return None
    condition, ours = error.getCondition() or "", part.refusal
    position = part.position(_index(part, error))
    unsupported = isinstance(ours, UnsupportedSyntaxError | UnknownFunctionError)
    if condition == _NOT_DETERMINISTIC:
        problem = "this part is not deterministic, so its result does not depend on the events alone"
        return UnsupportedSyntaxError.at(problem, part.text, position, STORED)
    if condition.startswith("UNRESOLVED_ROUTINE"):
        return None if isinstance(ours, UnknownFunctionError) else _unknown_function(part, error, position)
    if condition.startswith("UNRESOLVED_COLUMN"):
        if isinstance(ours, ColumnNotFoundError):
            return None
        name = str((error.getMessageParameters() or {}).get("objectName", "")).replace("`", "")
        missing = ColumnNotFoundError.from_missing_and_available(name, columns, "")
        hint = missing.hint or f"columns: {', '.join(columns)}"
        return ColumnNotFoundError.at(missing.message, part.text, position, hint)
    if isinstance(error, ParseException):
        return ExpressionSyntaxError.at(_reason(error), part.text, position) if unsupported else None
    if condition.startswith(_AGGREGATES):
        problem = f"this part has an aggregate function, and {of}"
        return UnsupportedSyntaxError.at(problem, part.text, position, "docs/sql.md lists the aggregates of conditions")
    if condition.startswith("UNSUPPORTED_GENERATOR"):
        problem = "this part has a function that makes rows"
        hint = "compute it before, in a query around the events: SELECT *, explode(items) AS item FROM events"
        return UnsupportedSyntaxError.at(problem, part.text, position, hint)
    if unsupported or isinstance(ours, ColumnNotFoundError):
        return ExpressionTypeError.at(_reason(error), part.text, position)
    return None


def _unknown_function(part: PartForSpark, error: AnalysisException, position: int | None) -> ExpressionError:
    name = str((error.getMessageParameters() or {}).get("routineName", "")).replace("`", "")
    close = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1, cutoff=0.8)
    hint = f"did you mean {close[0]}?" if close else _registered(name)
    return UnknownFunctionError.at(UNKNOWN_FUNCTION + name, part.text, position, hint)


def unknown_function(refusal: UnknownFunctionError) -> UnknownFunctionError:
    """The error for a function that neither Spark nor this library knows."""
    hint = _registered(refusal.message.removeprefix(UNKNOWN_FUNCTION))
    error = UnknownFunctionError(refusal.message, refusal.detail, hint)
    error.position = refusal.position
    return error


def _registered(name: str) -> str:
    return f"docs/sql.md lists functions; or a function of the session: spark.udf.register({name!r}, ...)"


def _index(part: PartForSpark, error: AnalysisException) -> int | None:
    """Where in the SQL of a part Spark's error is."""
    for context in error.getQueryContext():
        if context.contextType().name == "SQL" and 0 <= context.startIndex() < len(part.sql):
            return int(context.startIndex())
    place = _PLACE.search(str(error))
    return int(place[2]) if place is not None and place[1] == "1" else None


def _reason(error: AnalysisException) -> str:
    """Spark's message without its code, the position and the plan."""
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    text = re.sub(r"^\[[\w.]+\] ", "", first.strip())
    text = re.split(r" SQLSTATE: |; line \d+ pos \d+", text)[0].rstrip(".;: ")
    return "Spark: " + (text[:1].lower() + text[1:] if text[1:2].islower() else text)
