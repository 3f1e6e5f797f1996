"""The events of a user as an Arrow table, with the types that they would have in Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any

import pyarrow as pa

from asterism.arguments import shown
from asterism.columns.event_files import check_names, path_of, read_events
from asterism.columns.time import TIME_UNIT
from asterism.embedded.lazy_events import LazyTable, lazy_source, unreadable
from asterism.embedded.memory import memory_of_process
from asterism.errors import ColumnNotFoundError, ColumnTypeError, LimitExceededError, StreamDefinitionError
from asterism.expressions.types import TIME_ZONE
from asterism.streams.keyed_stream import no_time

_HINT = 'KeyedStream(table, key="user", time="ts")'
TO_INTEGER = 'convert it: pl.col("ts").cast(pl.Int64) in Polars, df["ts"].astype("int64") in pandas, CAST in DuckDB'
"""The hint at an event time that is a number of another type."""
_WIDER = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.date64(): pa.date32(), pa.string_view(): pa.string(), pa.binary_view(): pa.binary(),
}  # fmt: skip


def is_schema(events: Any) -> bool:
    """Whether *events* are a schema of Arrow, and no events."""
    return hasattr(events, "__arrow_c_schema__") and not hasattr(events, "__arrow_c_stream__")


def zone_of_schema(schema: pa.Schema) -> str:
    """The time zone of expressions over a table of :func:`table_of`."""
    zone: bytes = (schema.metadata or {}).get(TIME_ZONE, b"UTC")
    return zone.decode()


def table_of(events: Any, time: str | None, time_unit: str, *, what: str = "events", hint: str = _HINT) -> pa.Table:
    """The events as a table. The metadata of its schema has the time zone of expressions, which is that of the first TIMESTAMP
    column, or UTC.

    :param time: the event-time column, which in a file may be a string
    :param what, hint: for the error if they are something else
    :raises StreamDefinitionError: they are nothing that can be read as a table, or reading them fails
    """
    table = _read(events, time, what, hint)
    return _in_spark(table.schema, time, time_unit)[1](table)


def events_of(events: Any, time: str | None, time_unit: str) -> pa.Table | LazyTable:
    """:func:`table_of`, but of a source that can be read again, its events are not read yet."""
    if isinstance(events, LazyTable):
        return events
    source = lazy_source(events, time)
    if source is None:
        return table_of(events, time, time_unit)
    kinds, read = source
    schema, convert = _in_spark(kinds, time, time_unit)
    return LazyTable(schema, read, convert)


def _in_spark(schema: pa.Schema, time: str | None, time_unit: str) -> tuple[pa.Schema, Callable[[pa.Table], pa.Table]]:
    """The columns with the types that they have in Spark, and the conversion of a table with some of them.

    :raises StreamDefinitionError: there are no columns, two with the same name, or an event time that would be a decimal
    """
    check_names(schema.names)
    if not schema.names:
        raise StreamDefinitionError("the stream has no columns", hint="select the columns that are needed")
    if time in schema.names and pa.types.is_uint64(schema.field(time).type):
        raise no_time(str(time), "uint64", TO_INTEGER)
    zones = (str(kind.tz) for kind in schema.types if pa.types.is_timestamp(kind) and kind.tz is not None)
    zone = next(zones, "UTC")
    metadata = {TIME_ZONE: zone, TIME_UNIT: time_unit}
    fields = [pa.field(field.name, type_in_spark(field.type, zone)) for field in schema]

    def convert(table: pa.Table) -> pa.Table:
        columns = []
        for field, column in zip(table.schema, table.columns, strict=True):
            kind = type_in_spark(field.type, zone)
            try:
                columns.append(column if column.type == kind else converted(column, kind))
            except pa.ArrowException as error:
                raise ColumnTypeError(
                    f'the column "{field.name}" of type {field.type} cannot be converted to {kind}', str(error)
                ) from None
        kinds = [pa.field(name, column.type) for name, column in zip(table.column_names, columns, strict=True)]
        return pa.table(columns, schema=pa.schema(kinds, metadata=metadata))

    return pa.schema(fields, metadata=metadata), convert


def _read(events: Any, time: str | None, what: str, hint: str) -> pa.Table:
    """The table with the types that it has."""
    if isinstance(events, str | PathLike):
        return read_events(path_of(events), time)
    if not hasattr(events, "__arrow_c_stream__"):
        if isinstance(events, list | tuple) and events and isinstance(events[0], str | PathLike):
            hint = "pyarrow.dataset.dataset(paths), or pl.scan_csv(paths)"
        elif isinstance(events, list | tuple | Iterator):
            hint = "pyarrow.Table.from_pylist(list(rows)) makes a table from dicts, RecordBatchReader.from_batches from batches"
        elif isinstance(events, dict):
            hint = "pyarrow.table(...) makes a table from a dict"
        raise StreamDefinitionError(
            f"{what} must be a DataFrame, an Arrow table or the path of a file, not {shown(events)}",
            "Anything with Arrow's C stream interface is a table: of pyarrow, Polars, pandas, DuckDB.",
            hint,
        )
    try:
        if isinstance(events, pa.Table):
            table = events
        elif isinstance(events, pa.RecordBatchReader):
            table = _read_once(events)
        else:
            table = pa.RecordBatchReader.from_stream(events).read_all()
    except LimitExceededError:
        raise
    except Exception as error:  # of the producer: of any class
        raise unreadable(error) from error
    if type(events).__module__.startswith("pandas."):  # as Spark does
        index = (table.schema.pandas_metadata or {}).get("index_columns", [])
        if time is not None and time in index:
            hint = "df.reset_index() makes it a column"
            raise ColumnNotFoundError(f"{time!r:.100} is the index of the DataFrame, and no column", hint=hint)
        table = table.select([name for name in table.column_names if name not in index])
    return table


def _read_once(reader: pa.RecordBatchReader) -> pa.Table:
    """
    :raises LimitExceededError: it has more than half of what the process can have, as one without an end
    """
    batches, size, most = [], 0, memory_of_process() // 2
    for batch in reader:
        batches.append(batch)
        size += batch.nbytes
        if size > most:
            raise LimitExceededError(
                f"the reader has more than {most:,} bytes, and may have no end",
                "A reader can be read once, so all of it must be in memory: at most half of what the process can have.",
                "for a stream without an end, KeyedStream(reader.schema, ...) and engine.stream(reader); "
                "otherwise write it to Parquet files, which are read part by part",
            )
    return pa.Table.from_batches(batches, reader.schema)


def converted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in the type that it has in Spark."""
    if not pa.types.is_dictionary(column.type):
        return column.cast(kind, safe=False)
    # Arrow cannot cast a dictionary of string views, as that of a Categorical of Polars is.
    chunks = [chunk.dictionary.cast(kind, safe=False).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, kind)


def type_in_spark(kind: pa.DataType, zone: str) -> pa.DataType:
    """The type that a column of an Arrow type has in Spark; large strings, lists and bytes remain large."""
    types = pa.types
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_dictionary(kind):
        return type_in_spark(kind.value_type, zone)
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else zone)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind):
        return pa.list_(_part(kind.value_field, zone))
    if types.is_large_list(kind):
        return pa.large_list(_part(kind.value_field, zone))
    if types.is_map(kind):
        return pa.map_(_part(kind.key_field, zone), _part(kind.item_field, zone))
    if types.is_struct(kind):
        return pa.struct([_part(field, zone) for field in kind])
    return kind


def _part(field: pa.Field, zone: str) -> pa.Field:
    return pa.field(field.name, type_in_spark(field.type, zone), field.nullable)
