"""Event literals, such as ``a1``, and times as strings."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from asterism.arguments import also_named, expect, expect_number, expect_string, shown
from asterism.columns.schemas import schema_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, EPOCH, MICROSECOND, TimeColumn
from asterism.errors import AsterismError, ColumnNotFoundError, InvalidEventError, StreamDefinitionError
from asterism.operators.key_group import complete

if TYPE_CHECKING:
    import pandas as pd


Row = dict[str, Any]
Events: TypeAlias = "str | Sequence[Row] | pa.Table | pd.DataFrame"
Time = str | timedelta | datetime
Part: TypeAlias = pa.Table | int | None
"""A step of a harness: a batch of events, or a time to advance to (in microseconds; None: the latest time so far)."""
EVENTS = pa.schema(
    [("key", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("kind", pa.string()), ("value", pa.int64())]
)
"""The columns of event literals."""
_TIMES = "10s, 1h30m, 500ms, 00:10, 2025-01-31T12:00:00"
_EVENTS = '"a1 b2", dicts, a pyarrow.Table or a pandas DataFrame'
_COLUMNS = 'columns="ts TIMESTAMP, user STRING"'
_SECOND = timedelta(seconds=1)


# ---------------------------------------------------------------------- event literals

_WORD = re.compile(
    r"(?:(?P<key>\w+)\.)?(?P<kind>[^\W\d]+)(?P<value>-?\d+(?:\.\d+)?)?(?:\((?P<more>[^()]*)\))?(?:@(?P<time>\S+))?"
)
_DURATION = re.compile(r"-?(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?(?:(\d+)us)?")
_DURATION_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
_TIME_OF_DAY = re.compile(r"(?:(?P<h>\d+):)?(?P<m>\d{1,2}):(?P<s>\d{1,2}(?:\.\d{1,6})?)")
_A_DATE = 10**14
"""Microseconds since 1970, some three years, from which times are written as dates."""


@dataclass(frozen=True, slots=True)
class Literals:
    """The format of event literals: ``a1`` is an event of kind "a" with the value 1.

    ==================  ================================================================================
    literal             event
    ==================  ================================================================================
    ``a1``              kind "a", value 1, one *step* after the previous event; the time of the first
                        event is one *step*
    ``add_to_cart``     kind "add_to_cart", value null
    ``ann.a1``          the key is "ann"; without a prefix, it is null
    ``a1@10s``          at 10 seconds: also ``500ms``, ``1h30m``, ``00:10``, ``01:00:10``,
                        ``2025-01-31T12:00:00``, and ``10``, ten steps; ``a1@null`` has no time
    ``a1(price=2.5)``   values of other columns, separated by commas
    ==================  ================================================================================

    Between events, ``/`` ends a batch, ``|`` ends it and advances the watermark to the latest time so far, and ``|10s``
    advances it (or the processing time) to that time; ``|end`` is the end of input.

    :param kind: the column with the kind of the event; *value*, *key* and *time* likewise
    :param step: the interval between events without an explicit time
    :param timed_by_value: whether the value is also the time, in *steps*: ``a7`` is at 7 s
    :param label: in results, write an event as the value of this column
    """

    kind: str = "kind"
    value: str = "value"
    key: str = "key"
    time: str = "ts"
    step: timedelta = _SECOND
    timed_by_value: bool = False
    label: str | None = None

    def __post_init__(self) -> None:
        for name in ("kind", "value", "key", "time"):
            expect_string(StreamDefinitionError, getattr(self, name), f"{name} must be the name of a column")
        expect(StreamDefinitionError, self.label, str | None, "label must be the name of a column")
        expect(StreamDefinitionError, self.timed_by_value, bool, "timed_by_value must be True or False")
        expect(StreamDefinitionError, self.step, timedelta, "step must be a timedelta", "timedelta(seconds=1)")
        if self.step < MICROSECOND:
            raise StreamDefinitionError(f"step must be positive, not {self.step}")

    @also_named("schema", "columns", InvalidEventError)
    def parse(self, text: str, columns: str | pa.Schema, after: int = 0) -> list[Part]:
        """Parse *text* into batches of events, and times to advance to (in microseconds; None: the latest time so far).

        :param columns: of the events, as Spark SQL or an Arrow schema
        :param after: the time of the event before the first one, in microseconds
        :raises InvalidEventError: a literal is invalid, or a value is of another type
        :raises ColumnNotFoundError: the events have no such column

        >>> [batch] = Literals().parse("a1 b2@01:00", EVENTS)
        >>> [row["ts"].minute for row in batch.to_pylist()]
        [0, 1]
        """
        expect_string(InvalidEventError, text, "events as words must be a string", '"a1 b2"')
        schema = checked_columns(columns, "events", InvalidEventError)
        check_micros(after)
        parts: list[Part] = []
        rows: list[Row] = []
        for word in [*text.split(), "/"]:
            if word != "/" and not word.startswith("|"):
                row, after = self._event(word, schema, after)
                rows.append(row)
                continue
            if rows:
                parts.append(table_of(rows, schema))
                rows = []
            if word != "/":
                parts.append(None if word == "|" else self.micros(word[1:]))
        return parts

    def _event(self, word: str, schema: pa.Schema, after: int) -> tuple[Row, int]:
        literal = _WORD.fullmatch(word)
        if not literal:
            raise InvalidEventError(f"not an event: {word!r}", hint="a1, ann.a1, a1@10s, a1(price=2.5)")
        texts = {self.kind: literal["kind"], self.value: literal["value"], self.key: literal["key"]}
        for part in filter(None, (literal["more"] or "").split(",")):
            name, equals, value = part.partition("=")
            if not equals:
                raise InvalidEventError(
                    f"not an event: {word!r}", "The parentheses must contain columns.", "a1(price=2.5,user=ann)"
                )
            texts[name] = value
        row = {
            name: None if text in (None, "null") else _typed(text, name, schema, word)
            for name, text in texts.items()
            if text is not None or name in schema.names
        }
        if literal["time"] == "null":
            return row, after
        if literal["time"] is not None:
            after = self.micros(literal["time"])
        elif self.timed_by_value and literal["value"] is not None:
            after = self.micros(literal["value"])
        else:
            after += self.step // MICROSECOND
        if self.time in schema.names:
            column = TimeColumn.of(self.time, schema)
            row[self.time] = column.from_micros(np.array([after]))[0].as_py()
        return row, after

    def micros(self, time: str | timedelta | datetime) -> int:
        """A time in microseconds since the epoch. A string is as in a literal; a datetime without a time zone is in UTC.

        >>> Literals().micros("1m30s"), Literals().micros("01:30"), Literals().micros(timedelta(seconds=90))
        (90000000, 90000000, 90000000)
        """
        if time == "end":
            return END_OF_TIME
        try:
            microseconds = self._micros(time)
        except (ValueError, OverflowError):
            microseconds = None
        if microseconds is None or not BEFORE_TIME < microseconds < END_OF_TIME:
            raise InvalidEventError(f"not a time: {shown(time)}", hint=_TIMES)
        return microseconds

    def _micros(self, time: Any) -> int | None:
        if isinstance(time, timedelta):
            return time // MICROSECOND
        if isinstance(time, datetime):
            moment = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            return (moment - EPOCH) // MICROSECOND
        if not isinstance(time, str):
            return None
        if re.fullmatch(r"-?\d+", time):
            return int(time) * (self.step // MICROSECOND)
        if fields := _DURATION.fullmatch(time):
            numbers = {unit: int(number or 0) for unit, number in zip(_DURATION_UNITS, fields.groups(), strict=True)}
            return timedelta(**numbers) // MICROSECOND * (-1 if time.startswith("-") else 1)
        if fields := _TIME_OF_DAY.fullmatch(time):
            duration = timedelta(hours=int(fields["h"] or 0), minutes=int(fields["m"]), seconds=float(fields["s"]))
            return duration // MICROSECOND
        return self._micros(datetime.fromisoformat(time))

    def time_text(self, micros: int) -> str:
        """A time as a string, as in a literal."""
        check_micros(micros)
        step = self.step // MICROSECOND
        if micros == END_OF_TIME:
            return "end"
        if self.timed_by_value and micros % step == 0:
            return str(micros // step)
        if abs(micros) >= _A_DATE:
            moment = EPOCH + timedelta(microseconds=micros)
            return moment.replace(tzinfo=None).isoformat()
        number, unit = next(
            (micros // size, unit) for size, unit in ((10**6, "s"), (1000, "ms"), (1, "us")) if micros % size == 0
        )
        return f"{number}{unit}"

    def text(self, event: Row) -> str:
        """An event as a literal without its time: key, kind and value, or its *label*.

        Without the column of the kind, all columns are written.

        >>> Literals().text({"kind": "a", "value": 1, "key": "ann"})
        'ann.a1'
        >>> Literals().text({"user": "ann", "price": 2.5})
        '(user=ann,price=2.5)'
        """
        expect(InvalidEventError, event, Mapping, "an event must be a dict")
        if self.label is not None:
            if self.label not in event:
                raise ColumnNotFoundError.from_missing_and_available(self.label, event, "the label of events")
            return _written(event[self.label])
        if self.kind not in event:
            return (
                "(" + ",".join(f"{name}={_written(value)}" for name, value in event.items() if value is not None) + ")"
            )
        key, value = event.get(self.key), event.get(self.value)
        return ("" if key is None else f"{key}.") + str(event[self.kind]) + ("" if value is None else _written(value))


WORDS = Literals()


def check_micros(micros: Any) -> None:
    expect_number(InvalidEventError, micros, "a time in microseconds", least=BEFORE_TIME, most=END_OF_TIME)


def shown_name(name: Any) -> str:
    return f'"{name}"' if isinstance(name, str) else shown(name)


def check_table(events: Any) -> None:
    expect(InvalidEventError, events, pa.Table, "a batch of events must be a pyarrow.Table", "use table_of(...)")


def _typed(text: str, name: str, schema: pa.Schema, word: str) -> Any:
    if name not in schema.names:
        raise ColumnNotFoundError.from_missing_and_available(name, schema.names, f"in: {word}")
    try:
        return pa.scalar(text, pa.string()).cast(schema.field(name).type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidEventError(
            f"{text!r} is not a value of {name}: {schema.field(name).type}", f"in: {word}"
        ) from None


def _written(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def checked_columns(
    columns: str | pa.Schema, what: str, error: type[AsterismError] = StreamDefinitionError
) -> pa.Schema:
    """The columns of *what* as a schema, from Spark SQL or Arrow.

    :raises error: they are something else
    """
    expect(error, columns, str | pa.Schema, f"the columns of {what} must be a string or a pyarrow.Schema", _COLUMNS)
    return schema_of(columns)


@also_named("schema", "columns", InvalidEventError)
def table_of(events: Sequence[Row] | pa.Table | pd.DataFrame, columns: str | pa.Schema | None = None) -> pa.Table:
    """Events as a table: from dicts, a pandas DataFrame or a table. It has the columns *columns*, or else those of the events.

    :param columns: as Spark SQL or an Arrow schema
    :raises ColumnNotFoundError: an event has another column
    :raises InvalidEventError: a value is of another type

    >>> table_of([{"kind": "a"}], EVENTS).column_names
    ['key', 'ts', 'kind', 'value']
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(events, pandas.DataFrame):
        events = pa.Table.from_pandas(events, preserve_index=False)
    table = events if isinstance(events, pa.Table) else None
    rows = cast("Sequence[Row]", events)
    schema = None if columns is None else checked_columns(columns, "events", InvalidEventError)
    if table is None:
        check_rows(events)
    if schema is None:
        try:
            return pa.Table.from_pylist(rows) if table is None else table
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidEventError(
                "the events cannot be converted to a table", str(error), "declare the types of their columns: columns="
            ) from None
    names = list(dict.fromkeys(name for row in rows for name in row)) if table is None else table.column_names
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise ColumnNotFoundError.from_missing_and_available(unknown[0], schema.names, "in the sent events")
    try:
        if table is None:
            return _table_of_rows(rows, schema)
        return complete(table, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidEventError("an event does not fit the schema", str(error)) from None


def check_rows(events: Any) -> None:
    if isinstance(events, str | bytes | Mapping) or not isinstance(events, Sequence):
        raise InvalidEventError(f"not events: {shown(events)}", hint=_EVENTS)
    for row in events:
        expect(InvalidEventError, row, Mapping, "an event must be a dict", _EVENTS)
        for name in row:
            expect_string(InvalidEventError, name, "the column names of an event must be strings")


def _table_of_rows(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        for row in rows:
            for name, value in row.items():
                try:
                    pa.array([value], schema.field(name).type)
                except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                    raise InvalidEventError(
                        f"{value!r} is not a value of {name}: {schema.field(name).type}", f"{error}\nin: {row}"
                    ) from None
        raise
