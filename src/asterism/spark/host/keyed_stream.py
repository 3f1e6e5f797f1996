"""Descriptions of streams: a DataFrame with its key, its event time and its maximum out-of-orderness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from asterism.arguments import expect, expect_strings
from asterism.columns.internal import check_not_internal
from asterism.columns.sort_keys import SortKey, no_order
from asterism.columns.time import DAY, FAR, MILLISECONDS, TIME_UNITS
from asterism.errors import ColumnNotFoundError, ColumnTypeError, StreamDefinitionError
from asterism.spark.host.chaining import has_upstream, is_watermarked
from asterism.spark.host.column_types import check_collation, plain_columns
from asterism.spark.host.computed_columns import with_keys
from asterism.spelling import PythonNames

_KEY_TYPES = (
    T.IntegralType, T.StringType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DecimalType, T.BinaryType,
)  # fmt: skip
_PARTITION_TYPES = (T.IntegralType, T.StringType, T.DateType)
_ORDER_TYPES = (*_KEY_TYPES, T.FractionalType, T.DayTimeIntervalType, T.NullType)

MAX_DURATION = timedelta(days=FAR // DAY - 1)
"""An event time minus this duration fits into 64 bits, in microseconds."""


@dataclass(frozen=True)
class KeyedStream(metaclass=PythonNames):
    """A DataFrame of events, with its key and its event time.

    :param df: a streaming or a batch DataFrame. Names of columns that begin with ``__asterism_`` are reserved.
    :param key: key column or columns. A key can also be any deterministic expression of Spark over one event: it becomes a
        column of the events, which is named by its text (``"lower(name)"``), or by the name after AS (``"lower(name) AS user"``).
        A text that is the name of a column is this column. Without a key, all events have the same key, and a single task
        processes them; for an operator of your own that needs no key, see :class:`DataStream`. Null is a key like any other.
    :param time: event-time column. TIMESTAMP; TIMESTAMP_NTZ, interpreted as UTC; DATE, interpreted as midnight UTC; or
        BIGINT, a count of *time_unit* from 1970-01-01 UTC. None: processing time. An event whose time is null or out of range
        goes to the late output; if there is none, the query fails.
    :param max_out_of_orderness: how far the time of an event may lie behind the latest time so far before the event is late
        (streaming only). The watermark is ``max(time) - max_out_of_orderness - 1 ms``, as in Flink's
        ``forBoundedOutOfOrderness``.
    :param idle_after: the time without data (processing time) after which this input, or one of its partitions, is idle and no
        longer holds back the watermark. Default: never.
    :param watermark_by: the columns that distinguish the partitions of the stream, such as ``["topic", "partition"]`` of Kafka
        (streaming only). Each partition that has had events has a watermark of its own, and that of the stream is their minimum:
        if a partition is hours behind the others, its events are not late. The columns are integers, strings or dates; there are
        at most 10,000 partitions. Default: one watermark for all events.
    :param time_unit: the unit of an event time of type BIGINT: "seconds", "milliseconds", "microseconds" or "nanoseconds"
    :param order_by: order of events with equal times: columns, descending with a leading ``-``. As in Spark, NULL is less than
        all other values, so it is first, and last if the order is descending; ``"price NULLS LAST"`` and
        ``"-price NULLS FIRST"`` say otherwise. Default: arrival order.
    :raises StreamDefinitionError, ColumnNotFoundError: a column is missing or of an unsuitable type
    :raises ExpressionError: Spark cannot evaluate a key, or it is not deterministic
    """

    df: DataFrame
    key: str | Sequence[str] | None = ()
    time: str | None = None
    max_out_of_orderness: timedelta = timedelta(0)
    order_by: Sequence[str] = ()
    idle_after: timedelta | None = None
    time_unit: str = MILLISECONDS
    watermark_by: Sequence[str] = ()
    computes_keys: bool = field(init=False, default=False, repr=False)
    """whether a key is an expression"""

    def __post_init__(self) -> None:
        _check_unit(self.time_unit)
        if self.key is not None and not isinstance(self.key, Sequence):
            raise StreamDefinitionError(
                f"key must be a column or a list of columns, not {self.key!r:.60}", hint='key=["user", "shop"]'
            )
        if isinstance(self.order_by, str) or not isinstance(self.order_by, Sequence):
            raise StreamDefinitionError(
                f"order_by must be a list of columns, not {self.order_by!r:.60}",
                hint=f"order_by=[{self.order_by!r}]"
                if isinstance(self.order_by, str)
                else 'order_by=["number", "-price"]',
            )
        object.__setattr__(self, "df", plain_columns(self.df))
        order = [SortKey.of(text).name if isinstance(text, str) else text for text in self.order_by]
        times = [] if self.time is None else [self.time]
        _check_columns(self.df, [*times, *order], "in the keyed stream")
        self._add_keys()
        twice = [name for name, count in Counter(self.keys).items() if count > 1]
        if twice:
            raise StreamDefinitionError(f'the key column "{twice[0]}" is named twice')
        for name in self.keys:
            kind = self.df.schema[name].dataType
            if not isinstance(kind, _KEY_TYPES):
                raise ColumnTypeError(
                    f'the key column "{name}" is of type {kind.simpleString()}, which has no exact equality',
                    hint='several keys are a list: key=["user", "shop"]'
                    if isinstance(kind, T.StructType)
                    else "CAST it to a string, an integer or a decimal",
                )
            hint = "COLLATE UTF8_BINARY at the end of a key that is an expression" if self.computes_keys else None
            check_collation(f'the key column "{name}"', name, kind, hint)
        for name in order:
            kind = self.df.schema[name].dataType
            if not isinstance(kind, _ORDER_TYPES):
                raise no_order(name, kind.simpleString())
            check_collation(f'the column "{name}" of order_by', name, kind)
        _check_time(self)
        _check_partitions(self)

    def _add_keys(self) -> None:
        """Make keys that are expressions columns."""
        keys = self.keys
        _check_strings(keys)
        df, names = with_keys(self.df, keys)
        _check_columns(df, names, "in the keyed stream")
        if names != keys:
            object.__setattr__(self, "key", names)
        object.__setattr__(self, "computes_keys", df is not self.df)
        object.__setattr__(self, "df", df)

    @property
    def keys(self) -> list[str]:
        if self.key is None or (isinstance(self.key, Sequence) and not isinstance(self.key, str)):
            return list(self.key or ())
        return [self.key]


@dataclass(frozen=True)
class _WithoutKey:
    df: DataFrame
    time: str | None = None
    max_out_of_orderness: timedelta = timedelta(0)
    idle_after: timedelta | None = None
    time_unit: str = MILLISECONDS
    watermark_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        _check_unit(self.time_unit)
        object.__setattr__(self, "df", plain_columns(self.df))
        where = "in the broadcast stream" if isinstance(self, BroadcastStream) else "in the stream"
        _check_columns(self.df, [] if self.time is None else [self.time], where)
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


def _check_columns(df: DataFrame, names: Sequence[str], where: str) -> None:
    columns = [field.name for field in df.schema]
    check_not_internal(columns)
    _check_strings(names)
    for name in names:
        if name not in columns:
            raise ColumnNotFoundError.from_missing_and_available(name, columns, where)


def _check_strings(names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise StreamDefinitionError(
                f"a column name must be a string, not {name!r:.60}", hint='KeyedStream(df, key="user", time="ts")'
            )


def _check_unit(unit: str) -> None:
    if not isinstance(unit, str) or unit not in TIME_UNITS:
        raise StreamDefinitionError(
            f"unknown time_unit {unit!r:.60}", f"Units: {', '.join(TIME_UNITS)}", 'time_unit="seconds"'
        )


def check_watermarks(idle_after: object, watermark_by: object) -> None:
    """Check the types of these options."""
    expect(
        StreamDefinitionError, idle_after, timedelta | None, "idle_after must be a timedelta", "timedelta(minutes=1)"
    )
    hint = 'watermark_by=["topic", "partition"]'
    expect_strings(StreamDefinitionError, watermark_by, "watermark_by must be a list of columns", hint)


def _check_time(stream: KeyedStream | _WithoutKey) -> None:
    time, idle_after, delay = stream.time, stream.idle_after, stream.max_out_of_orderness
    if time is not None:
        kind = stream.df.schema[time].dataType
        if not isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType | T.LongType):
            raise ColumnTypeError(
                f'the event-time column "{time}" is of type {kind.simpleString()}',
                "It must be TIMESTAMP, TIMESTAMP_NTZ, DATE, or BIGINT, which counts from 1970-01-01 UTC (time_unit).",
                "CAST it, or build it with to_timestamp(...)",
            )
    expect(StreamDefinitionError, delay, timedelta, "max_out_of_orderness must be a timedelta", "timedelta(seconds=5)")
    check_watermarks(idle_after, stream.watermark_by)
    if stream.time_unit != MILLISECONDS and (
        time is None or not isinstance(stream.df.schema[time].dataType, T.LongType)
    ):
        raise ColumnTypeError(f'time_unit="{stream.time_unit}" requires a BIGINT, and the event time is not a BIGINT')
    if delay < timedelta(0):
        raise StreamDefinitionError(f"max_out_of_orderness cannot be negative ({delay})")
    if idle_after is not None and idle_after <= timedelta(0):
        raise StreamDefinitionError(f"idle_after must be positive, not {idle_after}")
    for name, value in (("max_out_of_orderness", delay), ("idle_after", idle_after)):
        if value is not None and value > MAX_DURATION:
            raise StreamDefinitionError(f"{name} can be at most {MAX_DURATION.days:,} days, not {value}")
    if idle_after is not None and time is None:
        raise StreamDefinitionError("idle_after requires an event time, and the input has none")


def _check_partitions(stream: KeyedStream | _WithoutKey) -> None:
    columns, df = stream.watermark_by, stream.df
    if not columns:
        return
    if stream.time is None:
        raise StreamDefinitionError("watermark_by requires an event time, and the input has none")
    _check_columns(df, columns, "in the stream")
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise StreamDefinitionError(f'the column "{twice[0]}" of watermark_by is named twice')
    for name in columns:
        kind = df.schema[name].dataType
        if not isinstance(kind, _PARTITION_TYPES):
            raise ColumnTypeError(
                f'the column "{name}" of watermark_by is of type {kind.simpleString()}',
                "The columns that distinguish partitions are integers, strings or dates.",
                "CAST it to a string",
            )
        check_collation(f'the column "{name}" of watermark_by', name, kind)
    if df.isStreaming and (has_upstream(df) or is_watermarked(df)):
        raise StreamDefinitionError(
            "the stream already has a watermark, so it cannot have one for each partition",
            "It is the output of an operator, whose watermark it has, or it has one of Spark (withWatermark).",
            "use watermark_by in the first operator, and no withWatermark",
        )
