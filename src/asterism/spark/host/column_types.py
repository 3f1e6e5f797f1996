"""The types of Spark's columns: those that are converted before an operator sees them, and those that Arrow types do not
determine; and the schemas of Spark and Arrow, which also pass the session's time zone.

Arrow has one type of strings. Spark has collations, with which equal strings may have other bytes, and CHAR(n), whose literals
Spark pads. Asterism compares bytes. So that one text of a condition has one meaning, whoever evaluates it,

* a column of CHAR(n) or VARCHAR(n) is a STRING for all parts of a query (:func:`plain_columns`), so that Spark pads nothing;
* no expression reads a column with a collation, nor is it a key or an order. It passes through to results with its type, which
  the field of an Arrow schema remembers (:data:`~asterism.expressions.types.SPARK_TYPE`).

See docs/decisions/0090.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from asterism.arguments import expect, shown
from asterism.columns.time import MILLISECONDS, TIME_UNIT
from asterism.errors import ColumnTypeError, StreamDefinitionError
from asterism.expressions.types import SPARK_JSON, SPARK_TYPE, TIME_ZONE
from asterism.operators.operator import Operator
from asterism.spark.host.versions import to_arrow
from asterism.spark.session.pipelines import analyzable
from asterism.spark.session.settings import errors_not_logged
from asterism.streams.hosts import needs_spark
from asterism.text.printable import quoted_name

_PADDED = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key with which Spark marks a column of CHAR(n), or of a type that contains one."""
_VALUES = tuple(
    getattr(T, name) for name in ("VariantType", "GeometryType", "GeographyType") if hasattr(T, name)  # Spark 3.5 has none
)  # fmt: skip
_INTERVALS = tuple(
    getattr(T, name) for name in ("YearMonthIntervalType", "CalendarIntervalType") if hasattr(T, name)
)  # fmt: skip


def types_in(kind: T.DataType) -> Iterator[T.DataType]:
    """A type, and all types that it contains."""
    yield kind
    parts: list[T.DataType] = []
    match kind:
        case T.ArrayType():
            parts = [kind.elementType]
        case T.MapType():
            parts = [kind.keyType, kind.valueType]
        case T.StructType():
            parts = [field.dataType for field in kind]
    for part in parts:
        yield from types_in(part)


def _changed(kind: T.DataType, change: Callable[[T.DataType], T.DataType]) -> T.DataType:
    """A type with changed parts."""
    match kind:
        case T.ArrayType():
            return T.ArrayType(change(kind.elementType), kind.containsNull)
        case T.MapType():
            return T.MapType(change(kind.keyType), change(kind.valueType), kind.valueContainsNull)
        case T.StructType():
            return T.StructType(
                [T.StructField(part.name, change(part.dataType), part.nullable, part.metadata) for part in kind]
            )
    return kind


def collation_of(kind: T.DataType) -> str | None:
    """The collation of a string type, unless it compares bytes."""
    collation: str | None = getattr(kind, "collation", None)
    return None if collation == "UTF8_BINARY" else collation


def check_collation(what: str, name: str, kind: T.DataType, hint: str | None = None) -> None:
    """:raises ColumnTypeError: the column has a collation that compares other than bytes"""
    collation = collation_of(kind)
    if collation is not None:
        quoted = quoted_name(name)
        raise ColumnTypeError(
            f"{what} has the collation {collation}",
            "Strings are compared by their bytes.",
            hint
            or f'df.withColumn({name!r}, F.expr("{quoted} COLLATE UTF8_BINARY")), or lower(...) of that to ignore case',
        )


def plain_columns(df: DataFrame) -> DataFrame:
    """*df* with STRING in place of CHAR(n) and VARCHAR(n): the values are the same, and Spark does not pad literals.

    :raises StreamDefinitionError: it has no columns, or two of the same name
    """
    if hasattr(df, "__arrow_c_stream__") and not isinstance(df, DataFrame):
        raise needs_spark("this query")
    expect(StreamDefinitionError, df, DataFrame, "events must be a DataFrame", 'KeyedStream(df, key="user", time="ts")')
    df = analyzable(df)
    fields = df.schema.fields
    if not fields:
        raise StreamDefinitionError("the stream has no columns", hint="select the columns that are needed")
    twice = next((name for name, count in Counter(field.name for field in fields).items() if count > 1), None)
    if twice is not None:
        raise StreamDefinitionError(
            f"two columns are named {twice!r:.100}",
            f"Columns: {', '.join(field.name for field in fields):.1000}",
            f"drop one: df.drop(other[{twice!r:.100}]); or rename one before the join",
        )
    if not any(_is_padded(field) for field in fields):
        return df
    return df.select(
        *[_plain_column(field) if _is_padded(field) else F.col(quoted_name(field.name)) for field in fields]
    )


def _is_padded(field: T.StructField) -> bool:
    return _PADDED in field.metadata or any(
        isinstance(part, T.CharType | T.VarcharType) for part in types_in(field.dataType)
    )


def _plain_column(field: T.StructField) -> Any:
    metadata = {name: value for name, value in field.metadata.items() if name != _PADDED}
    return F.col(quoted_name(field.name)).cast(plain_type(field.dataType)).alias(field.name, metadata=metadata)


def plain_type(kind: T.DataType) -> T.DataType:
    """A type with STRING in place of CHAR(n) and VARCHAR(n)."""
    return T.StringType() if isinstance(kind, T.CharType | T.VarcharType) else _changed(kind, plain_type)


# ---------------------------------------------------------------------------------------------------- Arrow


def arrow_field(field: T.StructField, *, large: bool) -> pa.Field:
    """The Arrow field of a column, which records what its type does not determine. A column that cannot be passed to Python has
    some type of Arrow, too: :func:`check_passes` refuses it if it is needed.
    """
    kind = field.dataType
    special = any(collation_of(part) is not None or isinstance(part, _VALUES + _INTERVALS) for part in types_in(kind))
    passed = pa.null()
    if not cannot_pass(kind):
        passed = to_arrow(T.StructType([T.StructField("c", _nullable(kind))]), large=large).field(0).type
    if not special:
        return pa.field(field.name, passed)
    alone = T.StructType([T.StructField("c", kind)])
    return pa.field(field.name, passed, metadata={SPARK_TYPE: kind.simpleString(), SPARK_JSON: alone.json()})


def _nullable(kind: T.DataType) -> T.DataType:
    """The type with arrays of no type that may have NULLs, which Arrow requires; they are empty."""
    match kind:
        case T.ArrayType(elementType=T.NullType()):
            return T.ArrayType(kind.elementType, True)
        case T.MapType(valueType=T.NullType()):
            return T.MapType(_nullable(kind.keyType), kind.valueType, True)
    return _changed(kind, _nullable)


def cannot_pass(kind: T.DataType) -> bool:
    """Whether Spark does not pass columns of this type to Python."""
    return any(
        isinstance(part, _INTERVALS) or (isinstance(part, T.MapType) and isinstance(part.keyType, T.NullType))
        for part in types_in(kind)
    )


def check_passes(df: DataFrame) -> None:
    """:raises ColumnTypeError: a column is of a type that Spark does not pass to Python"""
    for field in df.schema:
        kind = field.dataType
        # In batch, the columns of an input are a struct.
        parts = kind.fields if isinstance(kind, T.StructType) and cannot_pass(kind) else [field]
        for part in parts:
            if cannot_pass(part.dataType):
                raise ColumnTypeError(
                    f'the column "{part.name}" is of type {part.dataType.simpleString()}, which cannot be passed to Python',
                    "Results with all columns contain it, and so do rules. A column that is not needed is left out.",
                    f"df.drop({part.name!r}); or df.withColumn({part.name!r}, F.col({part.name!r}).cast('string'))",
                )


def spark_field(field: pa.Field) -> T.StructField:
    """The Spark column of an Arrow field. A timestamp without a time zone is a TIMESTAMP_NTZ, not a TIMESTAMP."""
    return T.StructField(field.name, _spark_type(field), field.nullable)


def _spark_type(field: pa.Field) -> T.DataType:
    written = (field.metadata or {}).get(SPARK_JSON)
    if written is not None:
        return T.StructType.fromJson(json.loads(written)).fields[0].dataType
    kind = field.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return T.ArrayType(_spark_type(kind.value_field), kind.value_field.nullable)
    known = from_arrow_type(kind, prefer_timestamp_ntz=True)
    if isinstance(known, T.StructType):
        return T.StructType([spark_field(part) for part in kind])
    return known


def function_schema(spark: SparkSession, schema: Any, hint: str) -> pa.Schema:
    """The schema of the columns that a user's function returns.

    :raises StreamDefinitionError: *schema* is not a valid schema
    """
    expect(StreamDefinitionError, schema, T.StructType | str, "the schema of a function must be a string", hint)
    try:
        with errors_not_logged():
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
