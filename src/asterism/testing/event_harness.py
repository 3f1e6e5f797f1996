"""Runs an operator with one input on events that are written as literals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from asterism.arguments import shown
from asterism.columns.time import END_OF_TIME, TimeColumn
from asterism.errors import InvalidEventError
from asterism.operators.operator import Operator
from asterism.testing.literals import Events, Literals, Part, Time, check_table, table_of
from asterism.testing.operator_harness import OperatorHarness


class EventHarness(OperatorHarness):
    """Sends events and times to an operator with one input.

    :param schema: the columns of the events
    :param event_time: whether the operator works in event time; otherwise the test advances processing time
    """

    _options: Mapping[str, Any]
    """The arguments of a subclass."""

    def __init__(
        self,
        operator: Operator,
        schema: pa.Schema,
        literals: Literals,
        *,
        keys: Sequence[str],
        key_groups: int,
        event_time: bool = True,
    ) -> None:
        super().__init__(operator, keys=keys, key_groups=key_groups)
        self.schema, self.literals, self.event_time = schema, literals, event_time

    def again(self, **changes: Any) -> Self:
        """A new harness for the same operator, with the same options except for *changes*."""
        return type(self)(**{**self._options, **changes})

    def send(self, events: Events) -> Self:
        """Send events: literals (see :class:`Literals`), dicts, or a table. Each call is a batch.

        Missing columns are null.

        :raises InvalidEventError: the argument is not events, an event does not fit the schema, or the stream has ended
        :raises ColumnNotFoundError: an event has a column that is not in the schema
        """
        return self.deliver(self.parts(events))

    def parts(self, events: Events) -> list[Part]:
        """*events* as batches, with the times between them that the literals specify."""
        if not isinstance(events, str):
            table = table_of(events, self.schema)
            return [table] if table.num_rows else []
        before = [time for table in self.sent[-1:] for time in self.times(table) if time is not None]
        return self.literals.parse(events, self.schema, before[-1] if before else 0)

    def deliver(self, parts: Iterable[Part]) -> Self:
        """Send batches, and advance the watermark (or the processing time) between them."""
        if isinstance(parts, str | bytes | Mapping) or not isinstance(parts, Iterable):
            raise InvalidEventError(f"parts must be batches and times, not {shown(parts)}", hint="harness.parts(...)")
        for part in parts:
            if isinstance(part, pa.Table):
                self.feed(part)
            elif part == END_OF_TIME:
                self.end()
            elif not self.event_time:
                if part is None:
                    raise InvalidEventError('"|" has no time', hint="in processing time, add the new time: |10s")
                self.move(processing_time=part)
            elif part is None:
                self.advance_watermark()
            else:
                self.move(watermark=part)
        return self

    def times(self, events: pa.Table) -> list[int | None]:
        """The times of events, in microseconds since the epoch; None if a time is null or out of range."""
        check_table(events)
        if self.literals.time not in self.schema.names:
            return [None] * events.num_rows
        column = TimeColumn.of(self.literals.time, self.schema)
        times: list[int | None] = column.to_micros(events.column(column.name), lenient=True).to_pylist()
        return times

    def advance_watermark(self, to: Time | None = None) -> Self:
        """Advance the watermark to *to*, or to the latest time of the events so far. A watermark lower than the current one
        has no effect.

        :param to: a string as in event literals, the time since 1970, or a datetime (in UTC, if it has no time zone)
        """
        if to is None:
            times = [time for table in self.sent for time in self.times(table) if time is not None]
            return self.move(watermark=max(times, default=None))
        return self.move(watermark=self.literals.micros(to))

    def advance_processing_time(self, to: Time) -> Self:
        """Advance processing time to *to*, a time as in :meth:`advance_watermark`."""
        return self.move(processing_time=self.literals.micros(to))
