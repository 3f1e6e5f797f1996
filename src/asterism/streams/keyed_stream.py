"""Descriptions of keyed streams: events with their key, their event time and their maximum out-of-orderness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from asterism.arguments import expect, expect_strings
from asterism.columns.internal import check_not_internal
from asterism.columns.time import DAY, FAR, MILLISECONDS, TIME_UNITS
from asterism.errors import ColumnNotFoundError, ColumnTypeError, StreamDefinitionError
from asterism.spelling import PythonNames
from asterism.streams.hosts import hosted_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import TypeVar

    Events = TypeVar("Events", default=DataFrame)
else:
    from typing import TypeVar

    Events = TypeVar("Events")

MAX_DURATION = timedelta(days=FAR // DAY - 1)
"""An event time minus this duration fits into 64 bits, in microseconds."""


@dataclass(frozen=True)
class KeyedStream(Generic[Events], metaclass=PythonNames):
    """Events with their key and their event time.

    >>> import pyarrow as pa
    >>> events = pa.table({"user": ["ann", "bob"], "ts": [1000, 2000], "kind": ["cart", "buy"]})
    >>> KeyedStream(events, key="user", time="ts").keys
    ['user']

    :param df: the events. A streaming or a batch DataFrame of Spark; or a table, for queries in this process, without Spark
        (docs/tables.md): an object with Arrow's C stream interface (``__arrow_c_stream__``), such as a pyarrow table or reader, a
        DataFrame of Polars or pandas, a relation of DuckDB; or the path of a CSV, JSON lines or Parquet file, or of a folder of
        such files. Names of columns that begin with ``__asterism_`` are reserved.
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
    :raises ExpressionError: a key cannot be evaluated, or it is not deterministic
    """

    df: Events
    key: str | Sequence[str] | None = ()
    time: str | None = None
    max_out_of_orderness: timedelta = timedelta(0)
    order_by: Sequence[str] = ()
    idle_after: timedelta | None = None
    time_unit: str = MILLISECONDS
    watermark_by: Sequence[str] = ()
    computes_keys: bool = field(init=False, default=False, repr=False)
    """whether a key is an expression"""

    host: ClassVar[str]
    """the package that runs queries over these events"""

    if not TYPE_CHECKING:

        def __new__(cls, df: Any = None, *arguments: Any, **options: Any) -> Any:
            """A stream of the host that takes these events."""
            return object.__new__(hosted_class(df, cls.__name__) if cls is KeyedStream else cls)

    def __post_init__(self) -> None:
        """Check the arguments; each host has the types of its columns."""
        raise NotImplementedError

    @property
    def keys(self) -> list[str]:
        if self.key is None or (isinstance(self.key, Sequence) and not isinstance(self.key, str)):
            return list(self.key or ())
        return [self.key]

    def check_definition(self) -> None:
        """Check the types of the arguments that do not depend on the columns."""
        check_unit(self.time_unit)
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

    def set_keys(self, events: Any, names: Sequence[str], *, computed: bool) -> None:
        """Set the events with columns for all keys.

        :param names: the key columns
        :param computed: whether a key is an expression
        """
        if list(names) != self.keys:
            object.__setattr__(self, "key", list(names))
        object.__setattr__(self, "computes_keys", computed)
        object.__setattr__(self, "df", events)
        twice = [name for name, count in Counter(self.keys).items() if count > 1]
        if twice:
            raise StreamDefinitionError(f'the key column "{twice[0]}" is named twice')


def no_key(name: str, kind: str, *, is_struct: bool) -> ColumnTypeError:
    """The error for a key column of a type that has no exact equality."""
    return ColumnTypeError(
        f'the key column "{name}" is of type {kind}, which has no exact equality',
        hint='several keys are a list: key=["user", "shop"]'
        if is_struct
        else "CAST it to a string, an integer or a decimal",
    )


def no_time(name: str, kind: str, hint: str = "CAST it, or build it with to_timestamp(...)") -> ColumnTypeError:
    """The error for an event-time column of an unsuitable type."""
    return ColumnTypeError(
        f'the event-time column "{name}" is of type {kind}',
        "It must be TIMESTAMP, TIMESTAMP_NTZ, DATE, or BIGINT, which counts from 1970-01-01 UTC (time_unit).",
        hint,
    )


def no_partition(name: str, kind: str) -> ColumnTypeError:
    """The error for a column of ``watermark_by`` of an unsuitable type."""
    return ColumnTypeError(
        f'the column "{name}" of watermark_by is of type {kind}',
        "The columns that distinguish partitions are integers, strings or dates.",
        "CAST it to a string",
    )


def check_columns(columns: Sequence[str], names: Sequence[str], where: str) -> None:
    """Check whether *names* are among the *columns* of the events."""
    check_not_internal(columns)
    check_strings(names)
    for name in names:
        if name not in columns:
            error = ColumnNotFoundError.from_missing_and_available(name, columns, where)
            column, _, direction = name.rpartition(" ")
            if direction.upper() == "DESC":
                raise ColumnNotFoundError(
                    error.message, error.detail, f'a leading "-" is descending: "-{column.strip()}"'
                )
            raise error


def check_strings(names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise StreamDefinitionError(
                f"a column name must be a string, not {name!r:.60}", hint='KeyedStream(df, key="user", time="ts")'
            )


def check_unit(unit: str) -> None:
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


def check_times(stream: Any, *, is_integer: bool) -> None:
    """Check the options of a stream that have to do with time.

    :param stream: a stream, keyed or not
    :param is_integer: whether its event time is a BIGINT
    """
    time, idle_after, delay = stream.time, stream.idle_after, stream.max_out_of_orderness
    expect(StreamDefinitionError, delay, timedelta, "max_out_of_orderness must be a timedelta", "timedelta(seconds=5)")
    check_watermarks(idle_after, stream.watermark_by)
    if stream.time_unit != MILLISECONDS and not is_integer:
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


def check_partitions(stream: Any, columns: Sequence[str]) -> None:
    """Check the columns of ``watermark_by``, except for their types.

    :param columns: those of the events
    """
    names = stream.watermark_by
    if not names:
        return
    if stream.time is None:
        raise StreamDefinitionError("watermark_by requires an event time, and the input has none")
    check_columns(columns, names, "in the stream")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise StreamDefinitionError(f'the column "{twice[0]}" of watermark_by is named twice')
