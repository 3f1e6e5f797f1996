"""Schemas of Spark and Arrow, and the session's time zone."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from asterism.arguments import expect, shown
from asterism.columns.time import MILLISECONDS, TIME_UNIT
from asterism.errors import StreamDefinitionError
from asterism.expressions.types import TIME_ZONE
from asterism.operators.operator import Operator
from asterism.spark.host.column_types import arrow_field, spark_field


def function_schema(spark: SparkSession, schema: Any, hint: str) -> pa.Schema:
    """The schema of the columns that a user's function returns.

    :raises StreamDefinitionError: *schema* is not a valid schema
    """
    expect(StreamDefinitionError, schema, T.StructType | str, "the schema of a function must be a string", hint)
    try:
        struct = schema if isinstance(schema, T.StructType) else spark.createDataFrame([], schema).schema
    except ParseException as error:
        raise StreamDefinitionError(f"not a schema: {shown(schema)}", str(error).strip(), hint) from None
    return arrow_schema(spark, struct)


def arrow_schema(spark: SparkSession, schema: T.StructType, time_unit: str = MILLISECONDS) -> pa.Schema:
    """The Arrow schema in which Spark passes these columns to Python. Its metadata has the session's time zone and the unit
    of event times that are integers.
    """
    # Not toArrow() of an empty DataFrame, which is a job with a Python process on an executor.
    large = spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    # Other metadata of the columns is dropped: it must not affect whether a query fits a checkpoint.
    return pa.schema(
        [arrow_field(field, large=large) for field in schema], metadata={TIME_ZONE: zone, TIME_UNIT: time_unit}
    )


def zone_if_used(build: Callable[[pa.Schema], Operator], schema: pa.Schema) -> str | None:
    """The session's time zone, if the results of an operator depend on it; None otherwise.

    :param build: creates the operator for a schema of events
    """

    def made_in(zone: str) -> bytes:
        written = io.BytesIO()
        pickler: Any = _WithoutMetadata(written)  # type: ignore[no-untyped-call] # pyspark's copy has no types
        pickler.dump(build(schema.with_metadata({**schema.metadata, TIME_ZONE: zone.encode()})))
        return written.getvalue()

    return zone_of(schema) if made_in("UTC") != made_in("America/St_Johns") else None


def zone_of(schema: pa.Schema) -> str:
    """The session's time zone, from the metadata of a schema of events."""
    return str(schema.metadata[TIME_ZONE].decode())


class _WithoutMetadata(cloudpickle.Pickler):
    """Pickles schemas without their metadata."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, pa.Schema):
            return str, (str(obj.remove_metadata()),)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]


def spark_schema(schema: pa.Schema) -> T.StructType:
    """The Spark schema. A timestamp without a time zone is a TIMESTAMP_NTZ, not a TIMESTAMP."""
    return T.StructType([spark_field(field) for field in schema])
