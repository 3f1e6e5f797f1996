"""The records of a source as events, and as dead letters. ``docs/how_to/sources_and_sinks.md`` describes them.

See docs/decisions/0107, 0117 and 0122.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa

from asterism.arguments import expect, expect_string, expect_strings, shown
from asterism.columns.internal import internal
from asterism.columns.json_objects import INSTANT, json_objects
from asterism.errors import ColumnNotFoundError, ColumnTypeError, StreamDefinitionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["KafkaEvents", "dead_letters", "kafka_events"]

_POSITION = ("topic", "partition", "offset")
_RECORD = ("key", "value", *_POSITION, "timestamp")
_DEAD = "dead_letter"
_HINT = 'kafka_events(records, "ts TIMESTAMP, user STRING", time="ts")'
_CORRUPT = internal("corrupt")
_FLAT = internal("flat")
"""The events that Arrow has parsed."""
_FLAT_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "timestamp": INSTANT,
}
_ELEMENTS = f"ARRAY<STRUCT<{internal('field')}: STRING>>"


class KafkaEvents:
    """The records of Kafka as events and dead letters. Created by :func:`kafka_events`."""

    def __init__(
        self,
        records: DataFrame,
        event: Column,
        reason: Column,
        columns: list[str],
        headers: Sequence[str],
        time: str,
        flat: Column | None = None,
    ) -> None:
        from pyspark.sql import functions as F

        letter = ["timestamp", "key", "value", *(["headers"] if "headers" in records.columns else [])]
        parsed = records.select("*", _computed_once(flat).alias(_FLAT)) if flat is not None else records
        kept = [*_POSITION, *letter, *([_FLAT] if flat is not None else [])]
        parsed = parsed.select(*kept, _computed_once(event).alias("event"))
        parsed = parsed.withColumn("reason", _computed_once(reason))
        is_event = F.col("reason").isNull()
        values = [F.when(is_event, F.col("event").getField(name)).alias(name) for name in columns]
        values += [F.when(is_event, _header(name)).alias(name) for name in headers]
        if time == "timestamp" and time not in columns:
            values.insert(0, F.when(is_event, F.col(time)).alias(time))
        dead = F.when(~is_event, F.struct(*letter, "reason")).alias(_DEAD)
        self.all: DataFrame = parsed.select(*values, *_POSITION, dead)
        """Events and dead letters, for one query that writes both: of a dead letter, all columns of the event are NULL, also its
        time, so it goes to the output ``late``, from which :func:`dead_letters` takes it.
        """

    @property
    def events(self) -> DataFrame:
        """The events, with ``topic``, ``partition`` and ``offset`` of their records. Dead letters are left out."""
        return self.all.where(f"{_DEAD} IS NULL").drop(_DEAD)

    @property
    def dead_letters(self) -> DataFrame:
        """``topic``, ``partition``, ``offset``, ``timestamp``, ``key`` and ``value`` (both BINARY), ``reason``, and ``headers``
        if the source has them. A query that writes it reads the topic independently of others.
        """
        return dead_letters(self.all)


def _computed_once(column: Column) -> Column:
    """The same column, which Spark takes for non-deterministic because of the partition id. Otherwise Spark would put its
    expression wherever the column is used, also into filters that it moves before the parsing, and a value would be parsed
    several times.
    """
    from pyspark.sql import functions as F

    return F.when(F.spark_partition_id() >= 0, column)


def dead_letters(df: DataFrame) -> DataFrame:
    """The dead letters among the rows of an output ``late``.

    :param df: rows with the columns of :attr:`KafkaEvents.all`
    :return: the columns of :attr:`KafkaEvents.dead_letters`. The other rows, ``dead_letter IS NULL``, are late events.
    :raises StreamDefinitionError: the rows are not those of :func:`kafka_events`

    A runnable example: docs/how_to/sources_and_sinks.md.
    """
    columns = getattr(df, "columns", ())
    missing = [name for name in (*_POSITION, _DEAD) if name not in columns]
    if missing:
        raise StreamDefinitionError(
            f"the rows have no column {missing[0]!r}",
            "Dead letters are rows of the events that kafka_events(...).all has.",
            "KeyedStream(kafka_events(...).all, ...), and run({..., 'late': sink}), whose rows have these columns",
        )
    return df.where(f"{_DEAD} IS NOT NULL").select(*_POSITION, f"{_DEAD}.*")


def kafka_events(
    records: DataFrame, event: str | StructType | Column, *, time: str, headers: Sequence[str] = ()
) -> KafkaEvents:
    """Take events out of the records of Spark's source for Kafka. A record that has none becomes a dead letter with a reason, and
    stops no query.

    The reasons: the record is a tombstone (its value is NULL); the value is not a JSON object, not UTF-8, has text after the
    object, or has a wrong type in a column, which is named; the value cannot be parsed (another format); a header is not UTF-8;
    the event has no time.

    :param records: the DataFrame of the source: ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``, and
        ``headers`` if it was read with ``includeHeaders``
    :param event: the schema of JSON objects: ``"ts TIMESTAMP, user STRING"``, or a :class:`~pyspark.sql.types.StructType`. For
        other formats a column that is a struct, and NULL where the value cannot be parsed: ``from_avro("value", schema, {"mode":
        "PERMISSIVE"})``, or a function in Python.
    :param time: the column of the event time. ``timestamp`` is the time of the record if the event has no such column.
    :param headers: the headers that are columns of the events, as STRING, with their names: ``["tenant"]``. NULL if a record
        lacks the header; of several headers with one name, the last one. The source needs the option ``includeHeaders``.
    :return: events and dead letters. The events have the columns of *event*, the *headers*, and ``topic``, ``partition`` and
        ``offset``. A column that a JSON object lacks is NULL, and a field that the schema lacks is ignored.
    :raises StreamDefinitionError: the records are not those of Kafka, or were read without headers; the schema is invalid; or it
        has a column of a record's position, or of a header
    :raises ColumnNotFoundError: there is no column *time*
    :raises ColumnTypeError: *event* is no struct

    A runnable example: docs/how_to/sources_and_sinks.md.
    """
    from pyspark.sql import Column
    from pyspark.sql import functions as F

    columns = getattr(records, "columns", None)
    if columns is None or not callable(getattr(records, "select", None)):
        raise StreamDefinitionError(f"the records must be a DataFrame, not {shown(records)}", hint=_HINT)
    missing = [name for name in _RECORD if name not in columns]
    if missing:
        raise StreamDefinitionError(
            f"the records have no column {missing[0]!r}",
            f"Columns: {', '.join(columns)}",
            'spark.readStream.format("kafka")...load() has them',
        )
    expect_string(StreamDefinitionError, time, "the event time must be the name of a column", 'time="ts"')
    is_json = not isinstance(event, Column)
    parsed = event if isinstance(event, Column) else _from_json(event)
    kind = _type_of(records, parsed)
    fields = [name for name in kind.names if name != _CORRUPT]
    _check_headers(headers, columns)
    for name in (*_POSITION, _DEAD, *headers):
        if name.lower() in map(str.lower, fields):
            raise StreamDefinitionError(
                f"the events have a column {name!r}, like the records",
                hint="pass a column that is a struct with another name for it, instead of a schema",
            )
    if time not in fields and time != "timestamp":
        raise ColumnNotFoundError.from_missing_and_available(time, fields, "for the event time")
    flat = _flat(kind) if is_json else None
    if flat is not None:
        parsed = F.coalesce(_FLAT, parsed)
    reason = _reason(fields, headers, time, is_json=is_json, is_flat=flat is not None)
    return KafkaEvents(records, parsed, reason, fields, headers, time, flat)


def _check_headers(headers: Sequence[str], columns: Sequence[str]) -> None:
    expect_strings(StreamDefinitionError, headers, "the headers must be a list of names", 'headers=["tenant"]')
    if headers and "headers" not in columns:
        raise StreamDefinitionError(
            "the records were read without headers", hint='spark.readStream....option("includeHeaders", "true")'
        )
    names = [name.lower() for name in headers]
    for name in headers:
        if names.count(name.lower()) > 1 or name in (*_POSITION, _DEAD, "timestamp"):
            raise StreamDefinitionError(f"the header {name!r} cannot be a column: there is another one with this name")


def _header(name: str) -> Column:
    from pyspark.sql import functions as F

    with_name = F.filter("headers", lambda header: header["key"] == F.lit(name))
    return F.try_element_at(with_name, F.lit(-1))["value"].cast("string")


def _from_json(schema: str | StructType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    expect(StreamDefinitionError, schema, str | StructType, "the event must be a schema or a column", _HINT)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col("value").cast("string")
    if isinstance(schema, str):
        return F.from_json(text, f"{schema.strip().removesuffix(',')}, {_CORRUPT} STRING", options)
    return F.from_json(text, StructType([*schema.fields]).add(_CORRUPT, StringType()), options)


def _flat(kind: StructType) -> Column | None:
    """The event of type *kind* in a value that is a flat JSON object, parsed by Arrow; NULL: ``from_json`` must parse the value.
    None: it must parse all of them, because of a type, or because Spark is older than 4.1.
    """
    from pyspark.sql import functions as F

    arrow_udf = getattr(F, "arrow_udf", None)
    if arrow_udf is None or any(
        field.dataType.simpleString() not in _FLAT_TYPES or not field.nullable for field in kind
    ):
        return None
    types = [(field.name, _FLAT_TYPES[field.dataType.simpleString()]) for field in kind if field.name != _CORRUPT]
    columns = pa.schema(types)

    def parse(values: pa.Array) -> pa.Array:
        objects = json_objects(values, columns)
        corrupt = pa.nulls(len(values), pa.string())
        fields = [*columns, pa.field(_CORRUPT, pa.string())]
        return pa.StructArray.from_arrays([*objects.flatten(), corrupt], fields=fields, mask=objects.is_null())

    column: Column = arrow_udf(parse, kind)("value")
    return column


def _type_of(records: DataFrame, event: Column) -> StructType:
    """The type of the events."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StructType

    try:
        kind = records.select(event.alias("event")).schema["event"].dataType
    except AnalysisException as error:
        raise StreamDefinitionError("the events cannot be parsed", str(error).splitlines()[0], _HINT) from None
    if not isinstance(kind, StructType):
        raise ColumnTypeError(f"the event must be a struct, not {kind.simpleString()}", hint=_HINT)
    return kind


def _reason(fields: list[str], headers: Sequence[str], time: str, *, is_json: bool, is_flat: bool) -> Column:
    """Why a record, with its column ``event``, is a dead letter; NULL: it is none."""
    from pyspark.sql import functions as F

    event, text = F.col("event"), F.col("value").cast("string")
    of_time = event.getField(time) if time in fields else F.col("timestamp")
    reason = F.when(F.col("value").isNull(), "the value is NULL (a tombstone)")
    if is_json:
        corrupt = event.isNull() | event.getField(_CORRUPT).isNotNull()
        texts = F.from_json(text, "MAP<STRING, STRING>")
        wrong = [
            F.when(texts.getItem(name).isNotNull() & event.getField(name).isNull(), F.lit(name)) for name in fields
        ]
        reason = (
            reason.when(~F.is_valid_utf8(text), "the value is not UTF-8")
            .when(corrupt & F.json_object_keys(text).isNull(), "the value is not a JSON object")
            .when(corrupt, F.concat(F.lit("wrong type: "), F.concat_ws(", ", *wrong)))
            .when(~_ends_with_its_object(text), "there is text after the JSON object")
        )
        if is_flat:
            reason = F.when(F.col(_FLAT).isNull(), reason)
    else:
        # from_avro in PERMISSIVE mode returns a struct of NULLs.
        is_empty = reduce(and_, (event.getField(name).isNull() for name in fields), F.lit(True))
        reason = reason.when(is_empty, "the value cannot be parsed")
    others = F.when(of_time.isNull(), f"there is no event time {time!r}")
    for name in reversed(headers):
        others = F.when(~F.is_valid_utf8(_header(name)), f"the header {name!r} is not UTF-8").otherwise(others)
    return F.coalesce(reason, others)


def _ends_with_its_object(text: Column) -> Column:
    """Whether nothing but white space follows the first JSON object of a text: ``from_json`` ignores what follows, so it takes
    the first of two concatenated messages. The text is known to begin with an object.
    """
    from pyspark.sql import functions as F

    def elements(after: str) -> Column:
        array = F.from_json(F.concat(F.lit("["), text, F.lit(after)), _ELEMENTS)
        return F.coalesce(F.size(array), F.lit(0))

    is_flat = F.instr(text, "}") == F.length(text)  # the usual case, in which nothing is parsed again
    # A text with "]" could close the array early: then its length does not depend on what is appended.
    is_whole = ~F.contains(text, F.lit("]")) | (elements(",{}]") == 2)
    return is_flat | ((elements("]") == 1) & is_whole)
