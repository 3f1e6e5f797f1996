"""Streams of Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from asterism.columns.arrays import empty_table
from asterism.columns.sort_keys import SortKey, no_order
from asterism.embedded.batches import batch_table
from asterism.embedded.events import TO_INTEGER, events_of, is_schema
from asterism.embedded.lazy_events import LazyTable
from asterism.errors import ExpressionError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parts_for_spark import PartForSpark
from asterism.expressions.routines.user_functions import Purpose, checked, listed
from asterism.expressions.types import name_of, spark_type
from asterism.streams.data_streams import BroadcastStream, DataStream, Stream, StreamWithoutKey
from asterism.streams.hosts import EMBEDDED
from asterism.streams.key_expressions import key_parts
from asterism.streams.keyed_stream import (
    KeyedStream,
    check_columns,
    check_partitions,
    check_strings,
    check_times,
    no_key,
    no_partition,
    no_time,
)

_TO_WHOLE = 'make it whole, here from seconds to milliseconds: (pl.col("ts") * 1000).cast(pl.Int64) in Polars'
_TO_TIME = 'convert it: pl.col("ts").str.to_datetime() in Polars, pd.to_datetime(df["ts"]) in pandas, CAST in DuckDB'


class ArrowKeyedStream(KeyedStream[pa.Table]):
    """A keyed stream of a table, or of what can be read as one; or of a schema, for a live engine."""

    host = EMBEDDED
    live = False
    """whether the events are to come: there is only their schema"""

    def __post_init__(self) -> None:
        self.check_definition()
        object.__setattr__(self, "live", is_schema(self.df))
        table = events_of(empty_table(pa.schema(self.df)) if self.live else self.df, self.time, self.time_unit)
        columns = table.schema
        order = [SortKey.of(text).name if isinstance(text, str) else text for text in self.order_by]
        times = [] if self.time is None else [self.time]
        check_columns(table.column_names, [*times, *order], "in the keyed stream")
        check_strings(self.keys)
        names, parts = key_parts(self.keys, table.column_names)
        computed = {name: _key_column(columns, part) for name, part in parts.items()}

        def with_keys(table: pa.Table) -> pa.Table:
            for name, values in computed.items():
                table = table.append_column(name, values(table))
            return table

        if isinstance(table, LazyTable):
            table = table.with_computed(with_keys(empty_table(columns)).schema, computed)
        else:
            table = _without_null_keys(with_keys(table), names)
        object.__setattr__(self, "batch", lambda events: with_keys(batch_table(events, columns)))
        check_columns(table.column_names, names, "in the keyed stream")
        self.set_keys(table, names, computed=bool(parts))
        for name in self.keys:
            kind = table.schema.field(name).type
            if not _is_key(kind):
                raise no_key(name, name_of(kind), is_struct=pa.types.is_struct(kind))
        for name in order:
            kind = table.schema.field(name).type
            if not _has_order(kind):
                raise no_order(name, name_of(kind))
        _check_time(self)

    def __repr__(self) -> str:
        if self.live or isinstance(self.df, LazyTable):
            return f"{KeyedStream.__name__}({', '.join(self.df.column_names)}; key={self.keys!r}, time={self.time!r})"
        return f"{KeyedStream.__name__}({self.df.num_rows:,} events, key={self.keys!r}, time={self.time!r})"


class _ArrowStreamWithoutKey(StreamWithoutKey[pa.Table]):
    host = EMBEDDED
    live = False
    """see :class:`ArrowKeyedStream`"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "live", is_schema(self.df))
        table = events_of(empty_table(pa.schema(self.df)) if self.live else self.df, self.time, self.time_unit)
        object.__setattr__(self, "batch", lambda events: batch_table(events, table.schema))
        self.set_events(table, table.column_names)
        _check_time(self)


class ArrowDataStream(_ArrowStreamWithoutKey, DataStream[pa.Table]):
    """A data stream of a table."""


class ArrowBroadcastStream(_ArrowStreamWithoutKey, BroadcastStream[pa.Table]):
    """A broadcast stream of a table."""


def _check_time(stream: Stream) -> None:
    kind = None if stream.time is None else stream.df.schema.field(stream.time).type
    is_integer = kind is not None and pa.types.is_int64(kind)
    if kind is not None and not (is_integer or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        if pa.types.is_integer(kind):
            hint = TO_INTEGER
        elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            hint = _TO_WHOLE
        else:
            hint = _TO_TIME
        raise no_time(str(stream.time), name_of(spark_type(kind, "UTC") or kind), hint)
    check_times(stream, is_integer=is_integer)
    check_partitions(stream, stream.df.column_names)
    for name in stream.watermark_by:
        kind = stream.df.schema.field(name).type
        if not (pa.types.is_integer(kind) or _is_string(kind) or pa.types.is_date(kind)):
            raise no_partition(name, name_of(kind))


def _key_column(columns: pa.Schema, part: PartForSpark) -> Callable[[pa.Table], pa.ChunkedArray]:
    """The values of a key that is an expression, from a table of these columns."""
    try:
        with listed(checked(None), Purpose.TABLES):
            scope, vectorized = Scope(columns), Vectorized(columns)
            vectorized.add(scope.resolve(scope.parse(part.sql), part.sql), part.sql)
    except ExpressionError as error:
        raise error.at(error.message, part.text, part.position(error.position), error.hint) from None

    def values(table: pa.Table) -> pa.ChunkedArray:
        (column,) = vectorized.evaluate(table)
        return column

    return values


def _without_null_keys(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Key columns without any value, as in a file without rows, have no type of their own: they are strings."""
    for number, field in enumerate(table.schema):
        if field.name in names and pa.types.is_null(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(pa.string()))
    return table


def _is_key(kind: Any) -> bool:
    types = pa.types
    exact = (types.is_integer, types.is_boolean, types.is_date, types.is_timestamp, types.is_decimal)
    return _is_string(kind) or _is_bytes(kind) or any(is_exact(kind) for is_exact in exact)


def _has_order(kind: Any) -> bool:
    types = pa.types
    return _is_key(kind) or types.is_floating(kind) or types.is_duration(kind) or types.is_null(kind)


def _is_string(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
