"""The outer parts of measures, which Spark computes from the columns of the operator: see
:mod:`asterism.expressions.outer_parts`.

Variables of the session keep the value that they had when the query was defined: the session of a streaming query has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from asterism.columns.internal import internal
from asterism.errors import ExpressionError, UnknownFunctionError
from asterism.expressions.outer_parts import DividedMeasures, OuterMeasure
from asterism.spark.host.column_types import spark_schema
from asterism.spark.host.computed_columns import analyzed, refused, unknown_function
from asterism.spark.session.settings import errors_not_logged, of_expressions
from asterism.text.printable import quoted_name

Projections = Mapping[str, "OuterProjection"]
"""By output."""


@dataclass(frozen=True)
class OuterProjection:
    """A projection after the operator, for one output.

    :param columns: the names of the columns, each with its SQL over the inner measures; None: the column of the operator
    :param guarded: whether an outer part is NULL where the operator's column of its name is
    :param inner: the names of the inner measures
    :param variables: for columns with the values of variables, the value and the type
    """

    columns: Mapping[str, str | None]
    guarded: bool
    inner: Sequence[str]
    variables: Mapping[str, tuple[Any, T.DataType]]

    @classmethod
    def checked(
        cls, spark: SparkSession, schema: pa.Schema, divided: DividedMeasures, columns: Sequence[str]
    ) -> OuterProjection:
        """
        :param schema: the columns of the operator
        :param columns: those of its input, for messages
        :raises ExpressionError: Spark refuses an outer part, or it is not deterministic
        """
        with of_expressions(spark):
            types = {name: field.dataType for name, field in zip(schema.names, spark_schema(schema), strict=True)}
            rows = spark.range(0).select(
                *[F.lit(None).cast(types[name]).alias(name) for name in schema.names if name in divided.hidden]
            )
            _check(rows, [*divided.outer.values()], columns)
            variables = _Variables(spark)
            outer = {name: measure.with_variables(variables.column_of) for name, measure in divided.outer.items()}
        shown = [name for name in schema.names if name not in divided.hidden]
        return cls(
            {name: outer.get(name) for name in shown},
            divided.only_matched,
            sorted(divided.hidden),
            variables.values,
        )

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows of the output."""
        places = {name: internal(f"output_{number}") for number, name in enumerate(self.columns)}
        with of_expressions(rows.sparkSession):
            # The names of the user's columns mean nothing in the outer parts.
            rows = rows.select(
                *[F.col(quoted_name(name)).alias(place) for name, place in places.items()],
                *[F.col(name) for name in self.inner],
                *[F.lit(value).cast(kind).alias(name) for name, (value, kind) in self.variables.items()],
            )
            computed = {
                places[name]: F.expr(f"CASE WHEN {places[name]} THEN {sql} END" if self.guarded else sql)
                for name, sql in self.columns.items()
                if sql is not None
            }
            rows = rows.withColumns(computed)
            return rows.select(*[F.col(place).alias(name) for name, place in places.items()])


class _Variables:
    """The variables of a session that outer parts read.

    :ivar values: the value and the type of each, by the name of a column
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.values: dict[str, tuple[Any, T.DataType]] = {}
        self._columns: dict[str, str | None] = {}

    def column_of(self, name: str) -> str | None:
        if name not in self._columns:
            self._columns[name] = self._column_of(name)
        return self._columns[name]

    def _column_of(self, name: str) -> str | None:
        try:
            with errors_not_logged():
                row = self.spark.sql("SELECT 1").select(F.expr(name).alias("value"))
                kind = row.schema["value"].dataType
        except AnalysisException:  # another word, such as a unit
            return None
        column = internal(f"variable_{len(self.values)}")
        self.values[column] = row.collect()[0][0], kind
        return column


def _check(rows: DataFrame, measures: Sequence[OuterMeasure], columns: Sequence[str]) -> None:
    try:
        analyzed(rows, [measure.part for measure in measures])
    except Exception as error:
        if len(measures) == 1:
            raise _refused(measures[0], error, columns) from None
        for measure in measures:
            _check(rows, [measure], columns)


def _refused(measure: OuterMeasure, error: Exception, columns: Sequence[str]) -> ExpressionError:
    part = measure.part
    better = refused(part, error, columns, "a match has its own aggregate functions")
    if better is None:
        return unknown_function(part.refusal) if isinstance(part.refusal, UnknownFunctionError) else part.refusal
    message = better.message
    for name, text in measure.hidden.items():
        message = message.replace(name, text)
    return type(better).at(message, part.text, better.position, better.hint)
