"""Runs operators with several inputs without Spark, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast, overload

import numpy as np
import pyarrow as pa

from asterism.arguments import expect, expect_string, expect_strings, shown
from asterism.columns.schemas import schema_of
from asterism.columns.time import END_OF_TIME, TimeColumn, micros_if_given
from asterism.errors import ColumnNotFoundError, InvalidEventError, StreamDefinitionError
from asterism.operators.key_group import check_pages
from asterism.operators.multiple_input import MultipleInputOperator, Wire
from asterism.operators.operator import Arrival, Now, Operator
from asterism.operators.stream_operator import Input, StreamOperator
from asterism.testing.literals import WORDS, Row, Time, check_rows, table_of
from asterism.testing.operator_harness import OperatorHarness

if TYPE_CHECKING:
    import pandas as pd

_CONNECTED = 'inputs={"orders": {"key": "id", "time": "ts"}}'


# ---------------------------------------------------------------------- steps

Rows: TypeAlias = "Row | Sequence[Row] | pa.Table | pd.DataFrame"


@dataclass(frozen=True, slots=True)
class Send:
    """A test step: elements of an input arrive."""

    input: str
    rows: Rows


@dataclass(frozen=True, slots=True)
class Watermark:
    """A test step: the watermark advances to *to*, for one *input* or for all inputs that have a time."""

    to: Time
    input: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessingTime:
    """A test step: processing time advances to *to*."""

    to: Time


@dataclass(frozen=True, slots=True)
class End:
    """A test step: one *input* ends, or all inputs end."""

    input: str | None = None


Step: TypeAlias = Send | Watermark | ProcessingTime | End


# ---------------------------------------------------------------------- operators with any number of inputs


class InputsHarness(OperatorHarness):
    """Runs an operator with any number of inputs step by step, with its state and time.

    :param wires: the connection of each input, by name

    Times, including those in timestamp columns of rows, are strings as in event literals (``"10s"``, see :class:`Literals`), the
    time since 1970, or datetimes.
    """

    def __init__(self, operator: Operator, wires: Mapping[str, Wire], *, key_groups: int = 1) -> None:
        # The hash of an element that is distributed is that of all its columns.
        hashed = {name: wire.schema.names if wire.distributed else wire.keys for name, wire in wires.items()}
        super().__init__(operator, keys=hashed, key_groups=key_groups)
        self.wires = wires

    def send(self, input: str, rows: Rows) -> Self:
        """Send elements of one input: a dict, a list of dicts, a table or a pandas DataFrame. Each call is a batch.

        Missing columns are null. Elements with an event time are buffered until the watermark passes them.

        :raises InvalidEventError: the elements do not fit the input, or the input has ended
        :raises ColumnNotFoundError: the input does not have a column of the elements
        """
        table = self.table(input, rows)
        return self.feed(table, input) if table.num_rows else self

    def table(self, input: str, rows: Rows) -> pa.Table:
        """Elements as a table with the columns of an input."""
        schema = self._wire(input).schema
        timed = [field for field in schema if pa.types.is_timestamp(field.type) or field.name == self._wire(input).time]
        if isinstance(rows, Mapping):
            rows = [rows]
        if isinstance(rows, Sequence):
            check_rows(rows)
            rows = [
                row | {f.name: _as_time(row[f.name], f) for f in timed if isinstance(row.get(f.name), str | timedelta)}
                for row in rows
            ]
        return table_of(rows, schema)

    def _wire(self, input: str) -> Wire:
        self._check_input(input)
        return self.wires[input]

    @overload
    def advance_watermark(self, input: Time, to: None = None) -> Self: ...
    @overload
    def advance_watermark(self, input: str, to: Time) -> Self: ...
    def advance_watermark(self, input: Time, to: Time | None = None) -> Self:
        """Advance the watermark: ``("orders", "10s")`` for one input, ``("10s")`` for all inputs that have a time.

        A watermark lower than the current one has no effect.
        """
        if to is None:
            names = [name for name, spec in self.operator.inputs.items() if spec.timed]
            going = [name for name in names if name not in self.ended] or names
            return self._arrive([Arrival(name, watermark=WORDS.micros(input)) for name in going])
        self._check_input(input)
        assert isinstance(input, str)
        return self._arrive([Arrival(input, watermark=WORDS.micros(to))])

    def advance_processing_time(self, to: Time) -> Self:
        """Advance processing time to *to*. It starts in 1970, and changes only when the test advances it."""
        return self.tick(WORDS.micros(to))

    def end(self, input: str | None = None) -> Self:
        """End one input, or all of them. At the end of all inputs every timer fires, no element is buffered, and the state is
        empty.
        """
        if input is None:
            last = self.now
            for group in range(len(self.stores)):  # as on Spark: a last micro-batch at the current time
                self.now = last
                self._call(group, [])
                self.now = Now(END_OF_TIME, END_OF_TIME)
                self._call(group, [])
            return self.close()
        self._wire(input)
        return self._arrive([Arrival(input, watermark=END_OF_TIME)])

    def play(self, steps: Iterable[Step]) -> Self:
        """Execute the steps in order."""
        if not isinstance(steps, Iterable):
            raise InvalidEventError(
                f"not steps of a test: {shown(steps)}", hint='[Send("orders", rows), Watermark("5m")]'
            )
        for step in steps:
            match step:
                case Send(input, rows):
                    self.send(input, rows)
                case Watermark(to, None):
                    self.advance_watermark(to)
                case Watermark(to, input):
                    self.advance_watermark(cast("str", input), to)
                case ProcessingTime(to):
                    self.advance_processing_time(to)
                case End(input):
                    self.end(input)
                case _:
                    raise InvalidEventError(
                        f"not a step of a test: {shown(step)}", hint="Send, Watermark, ProcessingTime or End"
                    )
        return self


class StreamOperatorHarness(InputsHarness):
    """Runs a :class:`~asterism.operators.stream_operator.StreamOperator` step by step, with its state and time.

    :param inputs: the stream of each input, by name, as a dict with the options of ``KeyedStream`` and ``BroadcastStream``:
        ``key`` (a column or several), ``time`` and ``idle_after``. If the stream has columns that the operator does not read,
        such as its key or its time, ``columns`` has all columns, as Spark SQL or an Arrow schema. ``distributed=True`` stands
        for a ``DataStream``. An input without options has no key and no time.
    :param key_groups: the number of key groups, as on Spark; *pages*: a fixed number of pages of state per key group. Results
        must not depend on them.
    :raises StreamDefinitionError, ColumnNotFoundError: as ``connect``

    Times, including those in timestamp columns of rows, are strings as in event literals (``"10s"``, see :class:`Literals`), the
    time since 1970, or datetimes.

    >>> from asterism.operators.state.keyed_state import ValueState
    >>> from asterism.operators.stream_operator import Input, Output, StreamOperator
    >>> class Unpaid(StreamOperator):
    ...     orders = Input("id BIGINT, ts TIMESTAMP")
    ...     payments = Input("id BIGINT")
    ...     paid = ValueState("BOOLEAN")
    ...     reminders = Output("id BIGINT")
    ...
    ...     @orders.process_element
    ...     def order(self, order, ctx):
    ...         ctx.register_event_time_timer("due", order.ts + timedelta(minutes=30))
    ...
    ...     @payments.process_element
    ...     def pay(self, payment, ctx):
    ...         self.paid.update(True)
    ...
    ...     def on_event_time_timer(self, timer, ctx):
    ...         if not self.paid.value():
    ...             self.reminders.collect(id=ctx.key)
    >>> inputs = {"orders": {"key": "id", "time": "ts"}, "payments": {"key": "id"}}
    >>> harness = StreamOperatorHarness(Unpaid(), inputs)
    >>> harness = harness.send("orders", [{"id": 1, "ts": "1m"}, {"id": 2, "ts": "2m"}]).send("payments", {"id": 1})
    >>> harness.advance_watermark("orders", "40m").rows("reminders")
    [{'id': 2}]
    """

    def __init__(
        self,
        operator: StreamOperator,
        inputs: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        key_groups: int = 1,
        pages: int | None = None,
    ) -> None:
        expect(StreamDefinitionError, operator, StreamOperator, "expected a StreamOperator", "Unpaid()")
        check_pages(pages)
        expect(StreamDefinitionError, inputs, Mapping | None, "inputs must be a dict of options by input", _CONNECTED)
        for name, options in (inputs or {}).items():
            expect_string(StreamDefinitionError, name, "the name of an input must be a string", _CONNECTED)
            expect(
                StreamDefinitionError, options, Mapping, f'the options of the input "{name}" must be a dict', _CONNECTED
            )
        self._options: dict[str, Any] = {
            "operator": operator, "inputs": inputs or {}, "key_groups": key_groups, "pages": pages
        }  # fmt: skip
        declared: Mapping[str, Input] = operator.declared(Input)
        connected: dict[str, Mapping[str, Any]] = {name: {} for name in declared} | dict(inputs or {})
        wires = {name: wire_of(name, options, declared.get(name)) for name, options in connected.items()}
        self.streams = MultipleInputOperator(operator, wires, pages=pages)
        super().__init__(self.streams, self.streams.wires, key_groups=key_groups)

    def again(self, **changes: Any) -> StreamOperatorHarness:
        """A new harness for the same operator, with the same options except for *changes*."""
        return StreamOperatorHarness(**self._options | changes)


def wire_of(name: str, options: Mapping[str, Any], declared: Input | None = None) -> Wire:
    """The connection of an input from the *options* of its stream.

    :raises StreamDefinitionError, ColumnNotFoundError: an option is unknown or wrong
    """
    known = ["key", "time", "idle_after", "columns", *(["distributed"] if declared is not None else [])]
    unknown = next((option for option in options if option not in known), None)
    if unknown is not None:
        raise StreamDefinitionError(
            f'the input "{name}" has no option {unknown!r}', hint=f"options: {', '.join(known)}"
        )
    return _wire(name, declared, **options)


def _wire(
    name: str,
    declared: Input | None,
    *,
    key: str | Sequence[str] = (),
    time: str | None = None,
    columns: str | pa.Schema | None = None,
    idle_after: timedelta | None = None,
    distributed: bool = False,
) -> Wire:
    if columns is None:
        columns = pa.schema([]) if declared is None else declared.schema
    schema = schema_of(columns)
    what = f'of the input "{name}"'
    expect(StreamDefinitionError, time, str | None, f"the time {what} must be a column", _CONNECTED)
    expect(
        StreamDefinitionError,
        idle_after,
        timedelta | None,
        f"idle_after {what} must be a timedelta",
        "timedelta(minutes=1)",
    )
    expect_strings(
        StreamDefinitionError,
        [key] if isinstance(key, str) else key,
        f"the key {what} must be a column or a list of columns",
        _CONNECTED,
    )
    keys = [key] if isinstance(key, str) else list(key)
    for column in [*keys, *([] if time is None else [time])]:
        if column not in schema.names:
            raise ColumnNotFoundError.from_missing_and_available(
                column,
                schema.names,
                f'in the input "{name}"; if its stream has more columns, declare them: columns="..."',
            )
    expect(StreamDefinitionError, distributed, bool, f"distributed {what} must be True or False")
    if distributed and (keys or (declared is not None and declared.broadcast)):
        raise StreamDefinitionError(
            f'the input "{name}" is distributed, so it has no key and is no broadcast input',
            hint='{"distributed": True}',
        )
    return Wire(schema, keys, time, micros_if_given(idle_after), distributed)


def _as_time(time: str | timedelta, field: pa.Field) -> Any:
    return TimeColumn(field.name, field.type).from_micros(np.array([WORDS.micros(time)]))[0].as_py()
