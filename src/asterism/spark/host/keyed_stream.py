"""Descriptions of streams: a DataFrame with its key, its event time and its maximum out-of-orderness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from asterism.columns.sort_keys import SortKey, no_order
from asterism.columns.time import MILLISECONDS
from asterism.errors import StreamDefinitionError
from asterism.spark.host.chaining import has_upstream, is_watermarked
from asterism.spark.host.column_types import check_collation, plain_columns
from asterism.spark.host.computed_columns import with_keys
from asterism.streams.hosts import SPARK
from asterism.streams.keyed_stream import (
    KeyedStream,
    check_columns,
    check_partitions,
    check_strings,
    check_times,
    check_unit,
    no_key,
    no_partition,
    no_time,
)

_KEY_TYPES = (
    T.IntegralType, T.StringType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DecimalType, T.BinaryType,
)  # fmt: skip
_PARTITION_TYPES = (T.IntegralType, T.StringType, T.DateType)
_ORDER_TYPES = (*_KEY_TYPES, T.FractionalType, T.DayTimeIntervalType, T.NullType)


class SparkKeyedStream(KeyedStream[DataFrame]):
    """A keyed stream of a DataFrame."""

    host = SPARK

    def __post_init__(self) -> None:
        self.check_definition()
        df = plain_columns(self.df)
        order = [SortKey.of(text).name if isinstance(text, str) else text for text in self.order_by]
        times = [] if self.time is None else [self.time]
        check_columns(df.columns, [*times, *order], "in the keyed stream")
        check_strings(self.keys)
        with_all, names = with_keys(df, self.keys)
        check_columns(with_all.columns, names, "in the keyed stream")
        self.set_keys(with_all, names, computed=with_all is not df)
        for name in self.keys:
            kind = self.df.schema[name].dataType
            if not isinstance(kind, _KEY_TYPES):
                raise no_key(name, kind.simpleString(), is_struct=isinstance(kind, T.StructType))
            hint = "COLLATE UTF8_BINARY at the end of a key that is an expression" if self.computes_keys else None
            check_collation(f'the key column "{name}"', name, kind, hint)
        for name in order:
            kind = self.df.schema[name].dataType
            if not isinstance(kind, _ORDER_TYPES):
                raise no_order(name, kind.simpleString())
            check_collation(f'the column "{name}" of order_by', name, kind)
        _check_time(self)
        _check_partitions(self)


@dataclass(frozen=True)
class _WithoutKey:
    df: DataFrame
    time: str | None = None
    max_out_of_orderness: timedelta = timedelta(0)
    idle_after: timedelta | None = None
    time_unit: str = MILLISECONDS
    watermark_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_unit(self.time_unit)
        object.__setattr__(self, "df", plain_columns(self.df))
        where = "in the broadcast stream" if isinstance(self, BroadcastStream) else "in the stream"
        check_columns(self.df.columns, [] if self.time is None else [self.time], where)
        _check_time(self)
        _check_partitions(self)


class DataStream(_WithoutKey):  # docs/decisions/0101
    """Elements without a key, distributed over parallel instances of an operator: its key groups. Each instance has separate
    state and timers.

    The instance of an element follows from a hash of the columns that the operator reads, other than maps. It is the same when a
    micro-batch is repeated. Equal elements have the same instance.

    :param df: a streaming or a batch DataFrame
    :param time, max_out_of_orderness, idle_after, time_unit, watermark_by: as for a :class:`KeyedStream`
    :raises StreamDefinitionError, ColumnNotFoundError: a column is missing or of an unsuitable type

    Source: operators of a Flink ``DataStream`` that is not keyed.
    """


class BroadcastStream(_WithoutKey):
    """Elements that every key group receives, such as rules, thresholds or slowly changing tables.

    :param df: a streaming or a batch DataFrame
    :param time: event-time column, of the types of :class:`KeyedStream`. An element takes effect exactly at its time, and
        keyed events wait for the watermark of this input. None: an element takes effect in the micro-batch in which it
        arrives, before the keyed events of that micro-batch.
    :param max_out_of_orderness: as for a keyed stream
    :param idle_after, time_unit, watermark_by: as for a keyed stream
    :raises StreamDefinitionError, ColumnNotFoundError: a column is missing or of an unsuitable type
    """


Stream = KeyedStream | DataStream | BroadcastStream


def partitioned_by(stream: Stream) -> tuple[str, ...]:
    """The columns that distinguish partitions with a watermark of their own; of a table none."""
    return tuple(stream.watermark_by) if stream.df.isStreaming else ()


def idle_micros(stream: Stream) -> int | None:
    """The idle time of a stream in microseconds."""
    return None if stream.idle_after is None else stream.idle_after // timedelta(microseconds=1)


def _check_time(stream: Stream | _WithoutKey) -> None:
    time = stream.time
    kind = None if time is None else stream.df.schema[time].dataType
    if time is not None and not isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType | T.LongType):
        raise no_time(time, stream.df.schema[time].dataType.simpleString())
    check_times(stream, is_integer=isinstance(kind, T.LongType))


def _check_partitions(stream: Stream | _WithoutKey) -> None:
    columns, df = stream.watermark_by, stream.df
    check_partitions(stream, df.columns)
    for name in columns:
        kind = df.schema[name].dataType
        if not isinstance(kind, _PARTITION_TYPES):
            raise no_partition(name, kind.simpleString())
        check_collation(f'the column "{name}" of watermark_by', name, kind)
    if columns and df.isStreaming and (has_upstream(df) or is_watermarked(df)):
        raise StreamDefinitionError(
            "the stream already has a watermark, so it cannot have one for each partition",
            "It is the output of an operator, whose watermark it has, or it has one of Spark (withWatermark).",
            "use watermark_by in the first operator, and no withWatermark",
        )
