"""Event time: its values in microseconds since 1970-01-01 UTC, and the column that holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import from_numpy, to_numpy
from asterism.errors import ColumnTypeError, InvalidEventError, NullEventTimeError, OperatorError

END_OF_TIME = 2**63 - 1
"""The watermark at the end of the input."""
BEFORE_TIME = -(2**63) + 1
"""Less than every event time: no watermark yet."""
NO_TIME = BEFORE_TIME - 1
"""Replaces the time of an event whose time is null."""
TIME = "__time"
"""Column of prepared events: event time in microseconds since the epoch."""


DAY = 86_400_000_000
"""In microseconds."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def to_micros(time: datetime | int) -> int:
    if isinstance(time, datetime):
        return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
    if isinstance(time, int) and not isinstance(time, bool):
        return time * 1000
    raise OperatorError(
        f"a timer needs a time, not {type(time).__name__}", hint="a datetime, or milliseconds since 1970 as an int"
    )


def to_datetime(micros: int) -> datetime:
    """The datetime in UTC; a time out of range becomes the nearest datetime."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return (datetime.max if micros > 0 else datetime.min).replace(tzinfo=UTC)


def time_text(time: object) -> str:
    """An event time as text, without the time zone, which is UTC.

    >>> time_text(datetime.fromisoformat("2026-01-31T13:00:00+01:00")), time_text(1_769_860_800_000)
    ('2026-01-31 12:00:00', '1769860800000')
    """
    if isinstance(time, datetime) and time.tzinfo is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    return str(time)


MILLISECONDS = "milliseconds"
TIME_UNITS = {"seconds": 1_000_000_000, MILLISECONDS: 1_000_000, "microseconds": 1000, "nanoseconds": 1}
"""Units of an integer event time, in nanoseconds."""
_TIMESTAMPS = {"s": "seconds", "ms": MILLISECONDS, "us": "microseconds", "ns": "nanoseconds"}
TIME_UNIT = b"time_unit"
"""Key in the metadata of a schema: the unit of the event time."""
FAR = 2**62
"""Maximum distance of an event time from 1970, in microseconds, so that time plus duration fits into 64 bits."""
MOMENT = pa.timestamp("us", "UTC")
FIRST_TIMESTAMP = -62_135_596_800_000_000
"""0001-01-01 in microseconds: the first time that a datetime can have."""
LAST_TIMESTAMP = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999 in microseconds: the end of time in a timestamp column."""


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """The event-time column of the input, and the conversion of its values to microseconds.

    A TIMESTAMP_NTZ is interpreted as UTC, a DATE as midnight UTC, so the time of an event does not depend on the session.

    :param unit: the unit of integers, see TIME_UNITS
    """

    name: str
    type: pa.DataType
    unit: str = field(default=MILLISECONDS, repr=False)

    def __post_init__(self) -> None:
        if not (pa.types.is_timestamp(self.type) or pa.types.is_int64(self.type) or pa.types.is_date32(self.type)):
            raise ColumnTypeError(
                f'the event-time column "{self.name}" is of type {self.type}',
                "It must be a timestamp, a date, or a 64-bit integer that counts from 1970-01-01 UTC.",
                "CAST it, or build it with to_timestamp(...)",
            )

    @classmethod
    def of(cls, name: str, schema: pa.Schema) -> TimeColumn:
        """A column of *schema*, whose metadata may contain the unit."""
        unit = (schema.metadata or {}).get(TIME_UNIT, MILLISECONDS.encode()).decode()
        return cls(name, schema.field(name).type, unit)

    @property
    def resolution(self) -> int:
        """The distance between two adjacent times, in microseconds; at least one."""
        if pa.types.is_date32(self.type):
            return 1000  # windows may be shorter than days
        return max(self._nanos // 1000, 1)

    @property
    def _nanos(self) -> int:
        """The unit of a timestamp or an integer, in nanoseconds."""
        return TIME_UNITS[_TIMESTAMPS[self.type.unit] if pa.types.is_timestamp(self.type) else self.unit]

    @property
    def written(self) -> pa.DataType:
        """The type of times in results. Deadlines may need a higher resolution than events, and more range than nanoseconds."""
        return pa.timestamp("us", self.type.tz) if pa.types.is_timestamp(self.type) else self.type

    def to_micros(self, column: pa.ChunkedArray, *, lenient: bool = False) -> pa.ChunkedArray:
        """Microseconds since 1970-01-01 UTC; null for null.

        :param lenient: return null for times out of range
        :raises InvalidEventError: a time is out of range
        """
        if pa.types.is_date32(self.type):
            count, each, of = column.cast(pa.int32()).cast(pa.int64()), DAY, 1
        else:
            count, each, of = column.cast(pa.int64()), self._nanos // 1000, 1000 // self._nanos
        if of > 1:  # Spark has microseconds: round down, also before 1970
            cut = pc.divide(count, of)
            count = pc.subtract(cut, pc.less(pc.subtract(count, pc.multiply(cut, of)), 0).cast(pa.int64()))
        first, last = self._range(each)
        values = to_numpy(count.drop_null() if count.null_count else count)
        if len(values) and (values.min() < first or values.max() > last):
            if not lenient:
                raise self._out_of_range()
            outside = pc.fill_null(pc.or_(pc.greater(count, last), pc.less(count, first)), False)
            count = pc.if_else(outside, None, count)
        return count if each <= 1 else pc.multiply(count, from_numpy(np.array([each]))[0])

    def of_integer(self, value: int) -> int:
        """:meth:`to_micros` of a single value of a column of integers."""
        first, last = self.range
        if not first <= value <= last:
            raise self._out_of_range()
        return value * self._nanos // 1000

    def _out_of_range(self) -> InvalidEventError:
        return InvalidEventError(
            f'an event time in "{self.name}" is out of range', f"An event time must be {self._described}."
        )

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last value of a column of integers."""
        first, last = self._range(self._nanos // 1000)
        of = max(1000 // self._nanos, 1)
        return max(first * of, -(2**63)), min(last * of + of - 1, 2**63 - 1)

    def _range(self, each: int) -> tuple[int, int]:
        """In units of so many microseconds; 0: of one."""
        limit = FAR // max(each, 1)
        return -limit, limit

    def of_events(self, events: pa.Table, *, lenient: bool, what: str, detail: str, hint: str) -> pa.ChunkedArray:
        """The column TIME of events.

        :param lenient: return NO_TIME for an event without a time
        :param what: what the events are, and *detail* and *hint* of the error if one of them has no time
        :raises InvalidEventError: an event has no time, or its time is out of range
        """
        column = self.to_micros(events.column(self.name), lenient=lenient)
        if column.null_count and not lenient:
            message = f'the event time "{self.name}" of {column.null_count:,} {what} is null'
            raise NullEventTimeError(message, detail, hint)
        return pc.fill_null(column, NO_TIME) if column.null_count else column

    @property
    def _described(self) -> str:
        if not pa.types.is_int64(self.type):
            return "at most about 146,000 years before or after 1970"
        return f"in {self.unit} since 1970-01-01 UTC, at most about 146,000 years before or after that date"

    def from_micros(self, values: npt.NDArray[np.int64], events: npt.NDArray[np.int64] | None = None) -> pa.Array:
        """Times in the type of the column, rounded down to its resolution. The end of time is the last timestamp. So is a time
        after the year 9999, which Python cannot show, unless there are events so late.

        :param events: for each time, that of an event to which it belongs
        """
        if not pa.types.is_int64(self.type):
            shown = np.minimum(values, LAST_TIMESTAMP)
            if events is not None:
                shown = np.where((events > LAST_TIMESTAMP) & (values != END_OF_TIME), values, shown)
            if pa.types.is_timestamp(self.type):
                return from_numpy(shown).cast(self.written)
            return from_numpy((shown // DAY).astype(np.int32)).cast(pa.date32())
        if self._nanos >= 1000:
            count = values // (self._nanos // 1000)
        else:
            last = END_OF_TIME // 1000
            count = np.clip(values, -last, last) * 1000
        return from_numpy(np.where(values == END_OF_TIME, END_OF_TIME, count))


@dataclass(frozen=True, slots=True)
class Described:
    """The repr of a time column for checkpoints. The unit is omitted if it is milliseconds, once the only unit."""

    time: TimeColumn

    def __repr__(self) -> str:
        return repr(self.time) if self.time.unit == MILLISECONDS else f"{self.time!r} {self.time.unit}"


def moments(values: npt.NDArray[np.int64], known: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Microseconds as TIMESTAMP, within its range. Those that are not *known*, and the time before and after all, become NULL."""
    unknown = (values <= BEFORE_TIME) | (values == END_OF_TIME)
    if known is not None:
        unknown |= ~known
    return from_numpy(np.clip(values, FIRST_TIMESTAMP, LAST_TIMESTAMP), ~unknown).cast(MOMENT)


def micros(duration: timedelta | None) -> int:
    return 0 if duration is None else duration // MICROSECOND


def micros_if_given(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // MICROSECOND
