"""Descriptions of streams: a DataFrame with its key, its event time and its maximum out-of-orderness."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from asterism.columns.sort_keys import SortKey, no_order
from asterism.errors import StreamDefinitionError
from asterism.spark.host.chaining import has_upstream, is_watermarked
from asterism.spark.host.column_types import check_collation, plain_columns
from asterism.spark.host.computed_columns import with_keys
from asterism.streams.data_streams import BroadcastStream, DataStream, Stream, StreamWithoutKey
from asterism.streams.hosts import SPARK
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


class _SparkStreamWithoutKey(StreamWithoutKey[DataFrame]):
    host = SPARK

    def __post_init__(self) -> None:
        df = plain_columns(self.df)
        self.set_events(df, df.columns)
        _check_time(self)
        _check_partitions(self)


class SparkDataStream(_SparkStreamWithoutKey, DataStream[DataFrame]):
    """A data stream of a DataFrame."""


class SparkBroadcastStream(_SparkStreamWithoutKey, BroadcastStream[DataFrame]):
    """A broadcast stream of a DataFrame."""


def partitioned_by(stream: Stream) -> tuple[str, ...]:
    """The columns that distinguish partitions with a watermark of their own; of a table none."""
    return tuple(stream.watermark_by) if stream.df.isStreaming else ()


def idle_micros(stream: Stream) -> int | None:
    """The idle time of a stream in microseconds."""
    return None if stream.idle_after is None else stream.idle_after // timedelta(microseconds=1)


def _check_time(stream: Stream) -> None:
    time = stream.time
    kind = None if time is None else stream.df.schema[time].dataType
    if time is not None and not isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType | T.LongType):
        raise no_time(time, stream.df.schema[time].dataType.simpleString())
    check_times(stream, is_integer=isinstance(kind, T.LongType))


def _check_partitions(stream: Stream) -> None:
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
