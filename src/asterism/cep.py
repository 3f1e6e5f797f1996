"""Pattern matching as an operator: buffers events until the watermark passes them, then shows them to the matcher.

One call for a key group goes so:

1. Events at or before the watermark are late; the others wait in the buffer.
2. What the watermark has passed is taken out of the buffer, in order of event time (equal times: in order of arrival, or as
   ``order_by`` says).
3. The pages of state that hold keys of these events, or deadlines that have passed, are read; the matcher feeds and advances
   them; what came of it is written back.

In processing time an event's time is the time of the call, nothing is late, and nothing waits.

Source: Flink's ``CepOperator``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from asterism.compiler import Semantics
from asterism.errors import InvalidEventError, StreamDefinitionError
from asterism.expressions import Scope
from asterism.matcher import TIME, Matcher, Step
from asterism.operator import BEFORE_TIME, END_OF_TIME, Now, Result
from asterism.outputs import MatchOutput, OutputKind, OutputSpec, TimeColumn, check_outputs, late_table
from asterism.pattern import Pattern
from asterism.state import NO_PAGE, GroupHeader, Page, StateStore, batch_from_bytes, batch_to_bytes

KEY_HASH = "__key_hash"
"""Column of 64-bit hashes of the keys, which the host supplies where there is more than one page."""
PAGE = "__page"
ONE_KEY = "__one_key"
MAX_PAGES = 256
NO_TIME = BEFORE_TIME - 1
PROCESSING_TIME = TimeColumn("processing time", pa.timestamp("us", "UTC"))


class CepOperator:
    """A pattern over one keyed input.

    :param schema: the columns of the events
    :param keys: the key columns; none: all events have one key
    :param time: the event-time column; None: processing time
    :param outputs: what is asked for, by name
    :param order_by: secondary order of events with equal times: columns, descending with a leading ``-``
    :param pages: pages of state per key group
    """

    def __init__(
        self,
        pattern: Pattern,
        schema: pa.Schema,
        *,
        keys: Sequence[str] = (),
        time: str | None,
        outputs: Mapping[str, OutputSpec],
        semantics: Semantics = Semantics.DEFAULT,
        order_by: Sequence[str] = (),
        pages: int = 1,
    ) -> None:
        check_outputs(outputs)
        if not 1 <= pages <= MAX_PAGES:
            raise StreamDefinitionError(f"pages must be between 1 and {MAX_PAGES}, not {pages}")
        for name in (*keys, *([time] if time is not None else []), *(column.removeprefix("-") for column in order_by)):
            Scope(schema).column(_column(name), f"key, time and order columns: {name}")
        self.schema = schema
        self.keys = list(keys)
        self.event_time = time is not None
        self.time = TimeColumn(time, schema.field(time).type) if time is not None else PROCESSING_TIME
        self.order_by = [(column.removeprefix("-"), column.startswith("-")) for column in order_by]
        self.pages = pages
        stages = [stage.name for stage in pattern.atoms()]
        self.outputs = outputs
        self.match_outputs = {
            name: MatchOutput(spec, schema, keys, self.time, stages)
            for name, spec in outputs.items()
            if spec.kind is not OutputKind.LATE
        }
        carried = {column for output in self.match_outputs.values() for column in output.carried}
        if self.wants_late:
            carried = set(schema.names)
        self.matcher = Matcher(pattern, schema, [name for name in schema.names if name in carried], semantics)
        # A stream without a key is a stream with one key.
        self.key_schema = pa.schema([schema.field(name) for name in keys] or [pa.field(ONE_KEY, pa.int8())])
        self.prepared_schema = pa.schema(
            [
                *(field.with_name("k:" + field.name) for field in self.key_schema),
                pa.field(TIME, pa.int64()),
                *([pa.field(PAGE, pa.uint8())] if pages > 1 else []),
                *self.matcher.bit_fields,
                *self.matcher.event_schema,
                *(schema.field(name).with_name("o:" + name) for name, _ in self.order_by),
            ]
        )
        self.output_schemas = {
            name: schema if spec.kind is OutputKind.LATE else self.match_outputs[name].schema
            for name, spec in outputs.items()
        }
        definition = repr(
            (_stable(pattern), semantics, self.keys, self.time, self.order_by, pages, str(self.prepared_schema))
        )
        self.fingerprint = hashlib.sha256(definition.encode()).digest()[:16]

    @property
    def wants_late(self) -> bool:
        return any(spec.kind is OutputKind.LATE for spec in self.outputs.values())

    @property
    def input_columns(self) -> list[str]:
        """The columns of the events that :meth:`prepare` reads."""
        names = {*self.matcher.input_columns, *self.keys, *(name for name, _ in self.order_by)}
        if self.event_time:
            names.add(self.time.name)
        return [name for name in self.schema.names if name in names]

    # ------------------------------------------------------------------ before the exchange

    def prepare(self, events: pa.Table) -> pa.Table:
        """Evaluate the conditions on current events, and keep only the columns that matching and results need."""
        count = events.num_rows
        full = pa.table(
            [
                events.column(f.name).cast(f.type) if f.name in events.column_names else pa.nulls(count, f.type)
                for f in self.schema
            ],
            schema=self.schema,
        )
        columns: list[Any] = [full.column(name) for name in self.keys] or [pa.array(np.zeros(count, np.int8))]
        columns.append(self._times(full))
        if self.pages > 1:
            hashes = events.column(KEY_HASH).to_numpy().view(np.uint64)
            columns.append(pa.array(((hashes >> np.uint64(32)) % np.uint64(self.pages)).astype(np.uint8)))
        columns += self.matcher.prepare(full)
        columns += [full.column(name) for name, _ in self.order_by]
        return pa.table(columns, schema=self.prepared_schema)

    def _times(self, events: pa.Table) -> pa.ChunkedArray | pa.Array:
        if not self.event_time:
            return pa.array(np.zeros(events.num_rows, np.int64))
        column = self.time.to_micros(events.column(self.time.name))
        if column.null_count and not self.wants_late:
            raise InvalidEventError(
                f'the event time "{self.time.name}" of {column.null_count} events is null',
                "An event without a time has no place in the order of events.",
                "filter such events out, or take the late output, to which they go",
            )
        return pc.fill_null(column, NO_TIME)

    # ------------------------------------------------------------------ with state

    def process(self, store: StateStore, events: Sequence[pa.Table], now: Now) -> Result:
        stored = store.read_header()
        if stored is None:
            header = GroupHeader(self.fingerprint, np.full(self.pages, NO_PAGE, np.int64))
        else:
            header = GroupHeader.from_bytes(stored, self.fingerprint)
        outputs: dict[str, pa.Table] = {}
        if self.event_time:
            horizon = now.watermark
            ready = self._sort_out(header, list(events), horizon, outputs)
        else:
            horizon = now.processing_time
            ready = self._stamp(list(events), horizon)

        exists = header.wakes != NO_PAGE
        due = exists & (header.wakes <= horizon)
        if ready is not None:
            pages = ready.column(PAGE).to_numpy() if self.pages > 1 else np.zeros(ready.num_rows, np.uint8)
            due[np.unique(pages)] = True
        if horizon == END_OF_TIME:
            due |= exists
        if due.any():
            self._advance(store, header, np.flatnonzero(due), ready, horizon, outputs)

        pages_wake = header.wakes[header.wakes != NO_PAGE]
        wake = int(pages_wake.min(initial=END_OF_TIME))
        if header.buffer:
            wake = min(wake, self._buffer_start(header))
        new = header.to_bytes() if header.buffer or len(pages_wake) else None
        if new != stored:
            store.write_header(new)
        return Result(outputs, None if wake == END_OF_TIME else wake)

    def _buffer_start(self, header: GroupHeader) -> int:
        return int(batch_from_bytes(header.buffer, self.prepared_schema).column(TIME).to_numpy().min())

    def _sort_out(
        self, header: GroupHeader, tables: list[pa.Table], watermark: int, outputs: dict[str, pa.Table]
    ) -> pa.Table | None:
        """Late events to their output, early ones to the buffer; the rest is ready."""
        if tables:
            arrived = pa.concat_tables(tables)
            late = arrived.column(TIME).to_numpy() <= watermark
            if late.any():
                for name, spec in self.outputs.items():
                    if spec.kind is OutputKind.LATE:
                        outputs[name] = late_table(self.schema, arrived.filter(pa.array(late)))
                arrived = arrived.filter(pa.array(~late))
            tables = [arrived]
        if header.buffer:
            tables = [batch_from_bytes(header.buffer, self.prepared_schema), *tables]
        if not tables:
            return None
        waiting = pa.concat_tables(tables)
        passed = waiting.column(TIME).to_numpy() <= watermark
        if not passed.any():
            header.buffer = batch_to_bytes(waiting) if waiting.num_rows else b""
            return None
        header.buffer = b"" if passed.all() else batch_to_bytes(waiting.filter(pa.array(~passed)))
        return self._ordered(waiting if passed.all() else waiting.filter(pa.array(passed)))

    def _stamp(self, tables: list[pa.Table], time: int) -> pa.Table | None:
        if not tables:
            return None
        events = pa.concat_tables(tables)
        stamped = pa.array(np.full(events.num_rows, time, np.int64))
        return self._ordered(events.set_column(events.column_names.index(TIME), TIME, stamped))

    def _ordered(self, events: pa.Table) -> pa.Table:
        """By ``order_by``; the matcher sorts by time and keeps this order among equal times."""
        for name, descending in reversed(self.order_by):
            how = ("descending", "at_end") if descending else ("ascending", "at_start")  # nulls as Spark orders them
            events = events.take(pc.sort_indices(events, sort_keys=[("o:" + name, *how)]))
        return events

    def _advance(
        self,
        store: StateStore,
        header: GroupHeader,
        numbers: npt.NDArray[np.intp],
        ready: pa.Table | None,
        horizon: int,
        outputs: dict[str, pa.Table],
    ) -> None:
        stored = [store.read_page(int(number)) if header.wakes[number] != NO_PAGE else None for number in numbers]
        matcher, event_schema = self.matcher, self.matcher.event_schema
        pages = [
            Page.empty(self.key_schema, event_schema)
            if value is None
            else Page.from_bytes(value, self.key_schema, event_schema)
            for value in stored
        ]
        events = ready if ready is not None else self.prepared_schema.empty_table()
        page_of = None if self.pages == 1 else np.searchsorted(numbers, events.column(PAGE).to_numpy())
        step = matcher.advance(pages, self._keys_of(events), page_of, events, horizon)
        for number, old, page, wake in zip(numbers, stored, step.pages, step.wakes, strict=True):
            new = page.to_bytes() if page.keys.num_rows else None
            if new != old:
                store.write_page(int(number), new)
            header.wakes[number] = NO_PAGE if new is None else wake
        self.collect(step, outputs)

    def _keys_of(self, events: pa.Table) -> pa.Table:
        return pa.table([events.column("k:" + name) for name in self.key_schema.names], schema=self.key_schema)

    def collect(self, step: Step, outputs: dict[str, pa.Table]) -> None:
        """Add the rows for what *step* found to *outputs*."""
        for name, output in self.match_outputs.items():
            found = step.timeouts if output.spec.kind is OutputKind.TIMED_OUT else step.matches
            if len(found):
                outputs[name] = output.build(step, found)

    # ------------------------------------------------------------------ sorted, without state

    def empty_page(self) -> Page:
        return Page.empty(self.key_schema, self.matcher.event_schema)

    def process_sorted(
        self, carried: Page, events: pa.Table, *, last: bool, now: Now
    ) -> tuple[dict[str, pa.Table], Page]:
        """Batch: *events* (prepared) are sorted by key and time, and all there is of their keys; the last key may go on in
        the next call, unless this is the *last*. *carried* is the page that the call before returned.
        """
        outputs: dict[str, pa.Table] = {}
        if self.event_time:
            timeless = events.column(TIME).to_numpy() == NO_TIME
            if timeless.any():
                for name, spec in self.outputs.items():
                    if spec.kind is OutputKind.LATE:
                        outputs[name] = late_table(self.schema, events.filter(pa.array(timeless)))
                events = events.filter(pa.array(~timeless))
        else:
            stamped = pa.array(np.full(events.num_rows, now.processing_time, np.int64))
            events = events.set_column(events.column_names.index(TIME), TIME, stamped)
        if not events.num_rows and not carried.keys.num_rows:
            return outputs, carried
        step = self.matcher.advance([carried], self._keys_of(events), None, events, END_OF_TIME, last_key_open=not last)
        self.collect(step, outputs)
        return outputs, step.pages[0]


def _column(name: str) -> Any:
    from sqlglot import exp

    return exp.column(name, quoted=True)


def _stable(pattern: Pattern) -> str:
    """The definition of a pattern as text that is the same in every process."""

    return re.sub(r" at 0x[0-9a-f]+", "", repr(pattern))
