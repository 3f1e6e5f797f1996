"""Batches of a live stream as tables with the columns of its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from numbers import Integral, Number
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import shown
from asterism.columns.time import TimeColumn, micros_if_given
from asterism.embedded.events import converted, type_in_spark, zone_of_schema
from asterism.errors import ColumnNotFoundError, ColumnTypeError, InvalidEventError, StreamDefinitionError
from asterism.expressions.types import name_of
from asterism.live.live_input import LiveInput, zone_of
from asterism.live.live_options import LiveOptions
from asterism.operators.multiple_input import Wire
from asterism.operators.operator import Operator
from asterism.streams.data_streams import DataStream, Stream
from asterism.streams.keyed_stream import KeyedStream

if TYPE_CHECKING:
    from asterism.live.engine import LiveEngine

_HINT = 'engine.process({"user": "ann", "ts": datetime.now(UTC)}), a list of dicts, or an Arrow table'
_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    lambda kind: pa.types.is_timestamp(kind) or pa.types.is_date(kind),
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    pa.types.is_nested,
)
"""Values of one kind are converted between its types, if none of them is lost."""


def opened(operator: Operator, streams: Mapping[str, Stream], options: LiveOptions, **details: Any) -> LiveEngine:
    """An engine that runs an operator over the streams of its inputs.

    :param details: further arguments of the engine
    """
    from asterism.live.engine import LiveEngine  # queries over tables need neither asyncio nor SQLite

    inputs = {name: live_input(stream) for name, stream in streams.items()}
    for name, source in inputs.items():
        if source.watermark_by:  # operators with one input do not know it yet, as on Spark
            by, idle = tuple(source.watermark_by), micros_if_given(source.idle_after)
            spec = replace(operator.inputs[name], watermark_by=by, idle_after=idle)
            operator.inputs = {**operator.inputs, name: spec}
    zone = zone_of(next(iter(streams.values())).df.schema)
    return LiveEngine(operator, inputs, options, zone=zone, **details)


def wire_of(stream: Stream) -> Wire:
    """The connection of an input to a stream. Tables have neither idle times nor partitions."""
    keys = tuple(stream.keys) if isinstance(stream, KeyedStream) else ()
    wire = Wire(stream.df.schema, keys, stream.time, distributed=isinstance(stream, DataStream))
    if not is_live(stream):
        return wire
    return replace(wire, idle_after=micros_if_given(stream.idle_after), watermark_by=tuple(stream.watermark_by))


def live_input(stream: Stream) -> LiveInput:
    """The input of a live engine for a stream of a schema."""
    read: Callable[[Any], pa.Table] = stream.batch  # type: ignore[union-attr] # one of Arrow
    time = None if stream.time is None else TimeColumn.of(stream.time, stream.df.schema)
    keys = stream.keys if isinstance(stream, KeyedStream) else ()
    return LiveInput(read, time, stream.max_out_of_orderness, stream.idle_after, stream.watermark_by, keys)


def batch_table(events: Any, schema: pa.Schema) -> pa.Table:
    """A batch as a table with these columns.

    :param events: a dict, a list of dicts, or anything with Arrow's C interface
    :raises InvalidEventError, ColumnNotFoundError, ColumnTypeError: it does not fit the schema
    """
    if isinstance(events, Mapping):
        return _of_dicts([events], schema)
    if isinstance(events, list | tuple):
        return _of_dicts(events, schema)
    if isinstance(events, pa.RecordBatch):
        table = pa.Table.from_batches([events])
    elif isinstance(events, pa.Table):
        table = events
    elif isinstance(events, pa.RecordBatchReader):
        raise InvalidEventError(
            "a reader is not a batch", "It may be endless, or fail after some of its events.", "engine.stream(reader)"
        )
    else:
        table = _of_stream(events)
    columns = [_column(table, field, schema) for field in schema]
    return pa.table(columns, schema=schema)


def _of_stream(events: Any) -> pa.Table:
    try:
        if hasattr(events, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(events).read_all()
        if hasattr(events, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(events)])
    except Exception as error:  # of the producer: of any class
        raise InvalidEventError("the batch cannot be read", f"{type(error).__name__}: {error}") from error
    is_lazy = hasattr(events, "collect")  # a lazy frame of Polars
    hint = "engine.process(frame.collect())" if is_lazy else _HINT
    raise InvalidEventError(f"not a batch of events: {shown(events)}", hint=hint)


def _column(table: pa.Table, field: pa.Field, schema: pa.Schema) -> pa.ChunkedArray:
    if table.schema.get_field_index(field.name) < 0:  # there is none, or several
        if field.name in table.column_names:
            names = ", ".join(table.column_names)
            raise InvalidEventError(
                f"two columns of the batch are named {field.name!r:.100}", f"Columns: {names:.1000}", "rename one"
            )
        raise ColumnNotFoundError(
            f"this batch has no column {field.name!r:.100}",
            f"Columns: {', '.join(table.column_names):.1000}",
            "rename a column, or add one that is NULL",
        )
    column = table.column(field.name)
    if column.type == field.type:
        return column
    zone = zone_of_schema(schema)
    kind = type_in_spark(column.type, zone)
    try:
        if kind == field.type:
            return converted(column, kind)
        same = any(is_kind(kind) and is_kind(field.type) for is_kind in _KINDS)
        if same or pa.types.is_null(kind):
            return _finite(converted(column, kind), field.type)
        reason = None
    except pa.ArrowException as error:
        reason = str(error)
    raise ColumnTypeError(
        f'the column "{field.name}" of this batch is of type {name_of(kind)}, and that of the stream {name_of(field.type)}',
        reason,
        "CAST it, or open a stream of another schema",
    )


def _finite(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The column as this type.

    :raises pa.ArrowInvalid: a value does not fit, such as a DOUBLE that would be an infinite FLOAT
    """
    values = column.cast(kind)
    if pa.types.is_floating(kind) and pa.types.is_floating(column.type) and kind.bit_width < column.type.bit_width:
        overflows = pc.and_(pc.is_inf(values), pc.is_finite(column))
        if pc.any(overflows).as_py():
            raise pa.ArrowInvalid(f"{column.filter(overflows)[0].as_py()} is not in the range of the type")
    return values


def _of_dicts(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    for row in rows:
        if not isinstance(row, Mapping):
            raise InvalidEventError(f"an event must be a dict, not {shown(row)}", hint=_HINT)
    try:
        table = pa.Table.from_pylist(rows, schema)
        for field in schema:
            if pa.types.is_float32(field.type) and pc.any(pc.is_inf(table.column(field.name))).as_py():
                _finite(pa.chunked_array([pa.array([row.get(field.name) for row in rows], pa.float64())]), field.type)
            if any(_may_be_changed(kind, field.type) for kind in {type(row.get(field.name)) for row in rows}):
                for row in rows:
                    _check_value(row.get(field.name), field)
        return table
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        for row in rows:
            for field in schema:
                _check_value(row.get(field.name), field)
        raise


def _may_be_changed(kind: type, to: pa.DataType) -> bool:
    """Whether Arrow converts values of a Python type, but makes something else of some: 2 of 2.5, and a time in microseconds of
    every number.
    """
    if pa.types.is_integer(to):
        return issubclass(kind, Number) and not issubclass(kind, Integral)
    return (pa.types.is_timestamp(to) or pa.types.is_date(to)) and issubclass(kind, Number)


def _check_value(value: Any, field: pa.Field) -> None:
    try:
        pa.array([value], field.type)
        if _may_be_changed(type(value), field.type) and not (pa.types.is_integer(field.type) and value == int(value)):
            raise ValueError("it would become another value")
        if pa.types.is_float32(field.type):
            _finite(pa.chunked_array([pa.array([value], pa.float64())]), field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        hint = None
        if pa.types.is_timestamp(field.type) and isinstance(value, str):
            hint = f'datetime.fromisoformat("{datetime(2026, 1, 31)}")'
        elif pa.types.is_timestamp(field.type) and isinstance(value, Number):
            hint = "datetime.fromtimestamp(milliseconds / 1000, UTC), or a column of the type BIGINT and its time_unit"
        elif isinstance(value, list) and not pa.types.is_nested(field.type):
            hint = "a dict is one event; pyarrow.table({...}) has columns"
        raise InvalidEventError(
            f'{value!r:.100} is not a value of "{field.name}": {name_of(field.type)}',
            str(error)[:300],
            hint,
        ) from None


def is_live(stream: Any) -> bool:
    """Whether a stream is that of a schema."""
    return bool(stream.live)


def check_table(stream: Any) -> None:
    """:raises StreamDefinitionError: the stream is that of a schema, which has no rows"""
    if stream.live:
        raise StreamDefinitionError(
            "the stream has a schema, and no events yet",
            "Its results come from an engine, which gets the events.",
            'CEP.pattern(KeyedStream(schema, ...), pattern).open("folder")',
        )


def check_live(stream: Any) -> None:
    """:raises StreamDefinitionError: the stream is a table"""
    if not stream.live:
        raise only_of_schema()


def only_of_schema() -> StreamDefinitionError:
    """The error for a table that is opened."""
    return StreamDefinitionError(
        "only the stream of a schema can be opened",
        "This stream is a table, which has its results already.",
        "KeyedStream(table.schema, ...), whose engine then gets the events; or .matches, .run(...)",
    )
