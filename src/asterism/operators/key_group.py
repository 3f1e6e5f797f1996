"""One call for one key group, the same for every operator: late events, waiting events, and the watermark.

1. Events at or before the watermark are late; the others are added to the waiting events.
2. The watermarks in the arrivals advance those of the inputs; the operator's watermark is their minimum, without idle inputs. The
   watermark of an input with ``watermark_by`` is the minimum of those of its partitions, without idle partitions.
3. Events that the watermark has passed are ready, and the operator advances: it gets these events, and the pages of state of
   their keys or with a deadline that has passed.

Events of inputs without an event time never wait. If no input has an event time, the operator is in processing time: the time
of an event is the time of the call.

An input has ended when its watermark is the end of time and none of its events is waiting; when all have ended, no state is kept.

See docs/decisions/0008 and 0124.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.arguments import expect_number
from asterism.columns.arrays import Mask, cast_to, from_numpy, to_numpy
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, NO_TIME, TIME
from asterism.errors import StreamDefinitionError
from asterism.operators.counted import CallMetrics, Counted
from asterism.operators.evolution import aligned, check_evolution
from asterism.operators.operator import Arrival, InputSpec, Now, Operator, Result
from asterism.operators.state.group_header import GroupHeader, other_query
from asterism.operators.state.page_numbers import DEFINITION_PAGE, MAX_FIXED_PAGES, page_number
from asterism.operators.state.pages import Pages, fixed_pages_of
from asterism.operators.state.partition_watermarks import IDLE, PartitionWatermarks
from asterism.operators.state.state_definition import StateDefinition
from asterism.operators.state.state_store import MemoryStore, StateStore
from asterism.operators.state.waiting_events import WaitingEvents

MAX_KEY_GROUPS = 2**15
ONE_KEY = "__one_key"
"""The key column of streams without keys."""
LATE = "late_elements"
"""The metric that counts late elements."""


def check_pages(pages: Any) -> None:
    """:raises StreamDefinitionError: *pages* is neither None nor a number of pages"""
    if pages is not None:
        expect_number(StreamDefinitionError, pages, "pages", least=1, most=MAX_FIXED_PAGES)


@dataclass(slots=True)
class Group:
    """A key group during a call: its state, its time, and its output."""

    store: StateStore
    header: GroupHeader
    watermark: int
    processing_time: int
    before: int
    """The operator's time before this call."""
    partitions_before: Mapping[int, PartitionWatermarks] = field(default_factory=dict)
    """The partitions before this call, as they were stored, by the number of the input."""
    latest_before: Mapping[int, int] = field(default_factory=dict)
    """The latest watermark of these partitions."""
    moved: Mapping[str, int] = field(default_factory=dict)
    """The inputs whose watermark has advanced in this call, with the new watermark."""
    ended: frozenset[str] = frozenset()
    """The inputs that have ended: their last events are ready in this call."""
    newly_ended: Sequence[str] = ()
    """The inputs that have ended in this call."""
    over: bool = False
    """Whether all inputs have ended."""
    fixed_pages: bool = True
    """Whether the number of pages is fixed."""
    number: int | None = None
    """Its number, if it is known."""
    outputs: dict[str, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    metrics: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    counted: list[Counted] = field(default_factory=list)
    """The metrics that are not in *metrics*."""
    gauges: dict[str, float] = field(default_factory=dict)

    @classmethod
    def without_state(cls, now: Now) -> Group:
        return cls(MemoryStore(), GroupHeader.new(b"", 0, 0, 0), now.watermark, now.processing_time, now.watermark)

    def taken(self) -> dict[str, pa.Table]:
        """The output rows since the previous call of this method, by output."""
        by_output = {name: pa.concat_tables(tables) for name, tables in self.outputs.items()}
        self.outputs.clear()
        return by_output

    def emit(self, output: str, rows: pa.Table) -> None:
        if rows.num_rows:
            self.outputs[output].append(rows)

    def due(self, horizon: int) -> Mask:
        """A mask of the pages that have something to do without events: a deadline has passed, or the input has ended."""
        header = self.header
        if self.over:
            return header.exists
        return header.exists & (
            (header.next_event_times <= horizon) | (header.next_processing_times <= self.processing_time)
        )

    def load(
        self,
        events: Sequence[pa.Table],
        keys: Sequence[str],
        horizon: int,
        *,
        everything: bool = False,
        undivided: bool = False,
    ) -> Pages:
        """Read the pages of the keys of *events* and those that are due, or all pages.

        :param events: the ready events of each keyed input
        :param keys: the names of their key columns
        :param undivided: whether all keys must be in one page
        """
        due = self.header.exists if everything else self.due(horizon)
        return Pages(
            self.store,
            self.header,
            events,
            keys,
            due,
            fixed=self.fixed_pages,
            last=self.over,
            undivided=undivided,
        )


class KeyGroupOperator(Operator):
    """Base of the library's operators: implements lateness, waiting events and watermarks."""

    fixed_pages: bool = True
    """Whether the number of pages is fixed. Otherwise it is 1 at the beginning, and follows the size of the state."""
    group_type: type[Group] = Group
    metrics: Sequence[str] = ()

    def set_pages(self, pages: int | None) -> None:
        """Set the number of pages of state per key group; None: as many as the size of the state requires.

        :raises StreamDefinitionError: *pages* is neither None nor a number of pages
        """
        check_pages(pages)
        self.fixed_pages, self.pages = pages is not None, pages or 1

    def first_columns(self, events: pa.Table, keys: Sequence[Any], times: Any) -> list[Any]:
        """The first of the prepared columns: the key (without *keys*, all events have one), TIME, and PAGE if pages are fixed."""
        columns = [*(keys or [from_numpy(np.zeros(events.num_rows, np.int8))]), times]
        return columns + ([fixed_pages_of(events, self.pages)] if self.pages > 1 else [])

    @property
    @abstractmethod
    def definition(self) -> StateDefinition:
        """The definition of its state."""

    @cached_property
    def _definition(self) -> bytes:
        return self.definition.to_bytes()

    @abstractmethod
    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> Iterator[None] | None:
        """Process *ready* events and everything that is due until *horizon*, the operator's time.

        For large results this is a generator: at each yield, the emitted rows are passed on.
        """

    def arrived(self, group: Group, arrivals: Sequence[Arrival], time: int) -> Sequence[Arrival]:
        """Called first, when everything at or before *time* has been processed, and the watermark has advanced; returns the
        arrivals for the call.
        """
        return arrivals

    def must_advance(self, group: Group) -> bool:
        """Whether to advance although no event is ready and no page is due."""
        return False

    def finish(self, group: Group, horizon: int) -> None:
        """Called last, before the header is written."""

    def latest(self, name: str, events: pa.Table, prepared: pa.Table) -> int:
        if not self.inputs[name].timed or not prepared.num_rows:
            return NO_TIME
        return int(to_numpy(prepared.column(TIME)).max())

    @abstractmethod
    def late(self, group: Group, name: str, events: pa.Table) -> None:
        """Process events of an input that are late or have no time."""

    @property
    def event_time(self) -> bool:
        return any(spec.timed for spec in self.inputs.values())

    def slices(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Iterator[Result]:
        stored = store.read_header()
        if stored is not None and (quiet := self._moved(store, stored, arrivals, now)) is not None:
            yield quiet
            return
        if stored is None:
            header = GroupHeader.new(self.fingerprint, self.pages, len(self.inputs), now.processing_time)
        else:
            header = GroupHeader.from_bytes(stored)
        before = header.watermark if now.watermark == END_OF_TIME else max(header.watermark, now.watermark)
        group = self.group_type(
            store, header, before, now.processing_time, before, fixed_pages=self.fixed_pages, number=now.key_group
        )
        if header.fingerprint != self.fingerprint:
            self._evolve(group)
        group.partitions_before = header.partitions
        group.latest_before = {number: each.latest for number, each in header.partitions.items()}
        waited = {name for number, name in enumerate(self.inputs) if header.is_waiting(number)}
        group.moved = self._move_watermarks(header, arrivals, now)
        group.watermark = max(before, now.watermark, self._least(header, now.processing_time))
        self._mark_idle(header, now)
        arrivals = self.arrived(group, arrivals, before if self.event_time else now.processing_time - 1)
        ready = self.ready_events(group, arrivals, before)
        self._end_inputs(group, waited)
        horizon = group.watermark if self.event_time else now.processing_time
        if ready or group.over or group.due(horizon).any() or self.must_advance(group):
            for _ in self.advance(group, ready, horizon) or ():
                if group.outputs:
                    yield Result(group.taken())
        self.finish(group, horizon)
        self._write_header(group, stored)
        next_event_time, next_processing_time = self._next_times(group, now)
        yield Result(
            group.taken(),
            None if next_event_time == END_OF_TIME else next_event_time,
            None if next_processing_time == END_OF_TIME else next_processing_time,
            CallMetrics(dict(group.metrics), group.counted),
            group.watermark if self.event_time and BEFORE_TIME < group.watermark < END_OF_TIME else None,
            {name: header.partitions[n].behind for n, name in enumerate(self.inputs) if n in header.partitions},
            dict(group.gauges),
        )

    @cached_property
    def _timed(self) -> list[int]:
        """The numbers of the inputs with an event time, if nothing happens in a call in which only watermarks advance and no page
        is due; otherwise none.
        """
        if self.sees_every_call or any(
            spec.idle_after is not None or spec.watermark_by for spec in self.inputs.values()
        ):
            return []
        return [number for number, spec in enumerate(self.inputs.values()) if spec.timed]

    @property
    def sees_every_call(self) -> bool:
        """Whether something may happen in a call without events and without a page that is due."""
        hooks = ("arrived", "must_advance", "finish")
        return any(getattr(type(self), name) is not getattr(KeyGroupOperator, name) for name in hooks)

    def _moved(self, store: StateStore, stored: bytes, arrivals: Sequence[Arrival], now: Now) -> Result | None:
        """The result of a call in which only watermarks advance: most calls of key groups without events. None: call as always.

        This takes less than half of the time of a call.
        """
        if not self._timed or now.begins_run or now.watermark == END_OF_TIME:
            return None
        names, watermarks = list(self.inputs), dict[int, int]()
        for arrival in arrivals:
            if arrival.events is not None or arrival.partitions:
                return None
            number = names.index(arrival.input)
            watermarks[number] = max(arrival.watermark, watermarks.get(number, BEFORE_TIME))
        moved = GroupHeader.moved(stored, self.fingerprint, self._timed, watermarks, now.watermark, now.processing_time)
        if moved is None:
            return None
        if moved.value != stored:
            store.write_header(moved.value)
        return Result(
            {},
            None if moved.next_event_time == END_OF_TIME else moved.next_event_time,
            None if moved.next_processing_time == END_OF_TIME else moved.next_processing_time,
            {},
            moved.watermark if moved.watermark > BEFORE_TIME else None,
        )

    def _move_watermarks(self, header: GroupHeader, arrivals: Sequence[Arrival], now: Now) -> dict[str, int]:
        """Advance the watermarks of the inputs. Return the new ones of those that have advanced."""
        numbers = {name: number for number, name in enumerate(self.inputs)}
        moved: dict[str, int] = {}
        self._find_partitions(header)
        if not is_announced(header):  # without a watermark, a key group may have no header, so its idle time is unknown
            if now.processing_time != END_OF_TIME:  # at the end of input, windows need the time of the previous call
                header.last_activity[:] = now.processing_time
        elif now.begins_run:
            self._restart_idle_time(header, now)
        for arrival in arrivals:
            number = numbers[arrival.input]
            header.last_activity[number] = now.processing_time
            if arrival.partitions and number in header.partitions:
                header.partitions[number].update(arrival.partitions, now.processing_time)
            if arrival.watermark > header.watermarks[number]:
                header.watermarks[number] = moved[arrival.input] = arrival.watermark
        for name, number in numbers.items():
            watermark = self._watermark_of(header, number, self.inputs[name], now.processing_time)[0]
            if watermark > header.watermarks[number]:
                header.watermarks[number] = moved[name] = watermark
        if now.watermark == END_OF_TIME:
            moved |= {name: END_OF_TIME for name in self.inputs if header.watermarks[numbers[name]] != END_OF_TIME}
            header.watermarks[:] = END_OF_TIME
        return moved

    def _find_partitions(self, header: GroupHeader) -> None:
        """The partitions of each input with ``watermark_by``. If its columns were others before, those partitions are
        forgotten, and the watermark remains.
        """
        partitions = {}
        for number, spec in enumerate(self.inputs.values()):
            if spec.watermark_by and header.watermarks[number] != END_OF_TIME:
                before = header.partitions.get(number)
                known = before is not None and tuple(before.columns) == spec.watermark_by
                partitions[number] = before if before is not None and known else PartitionWatermarks(spec.watermark_by)
        header.partitions = partitions

    @staticmethod
    def _watermark_of(header: GroupHeader, number: int, spec: InputSpec, processing_time: int) -> tuple[int, bool]:
        """(the watermark of an input, which never decreases; whether it is idle)."""
        watermark = int(header.watermarks[number])
        partitions = header.partitions.get(number)
        if partitions is not None and partitions.names and watermark != END_OF_TIME:
            combined, idle = partitions.combined(processing_time, spec.idle_after)
            return max(watermark, combined), idle
        idle_time = processing_time - int(header.last_activity[number])
        return watermark, spec.idle_after is not None and idle_time >= spec.idle_after

    def _end_inputs(self, group: Group, waited: Collection[str]) -> None:
        """Set which inputs have ended. *waited*: those with events that waited before the call"""
        header = group.header
        at_end = [
            name
            for number, name in enumerate(self.inputs)
            if header.watermarks[number] == END_OF_TIME and not header.is_waiting(number)
        ]
        group.ended, group.over = frozenset(at_end), len(at_end) == len(self.inputs)
        group.newly_ended = [name for name in at_end if name in group.moved or name in waited]

    def _write_header(self, group: Group, stored: bytes | None) -> None:
        """Write the header, if it is not the *stored* one, and the definition of the state, if there is any state."""
        header = group.header
        announced = is_announced(header)
        if announced:
            header.watermark = group.watermark
        waits = any(map(header.is_waiting, range(len(self.inputs))))
        keep = bool(header.exists.any()) or waits or (announced and not group.over)
        new = header.to_bytes() if keep else None
        if new != stored:
            group.store.write_header(new)
        if keep != header.defined:
            group.store.write_page(DEFINITION_PAGE, self._definition if keep else None)

    def _next_times(self, group: Group, now: Now) -> tuple[int, int]:
        """The next event time and the next processing time at which there is something to do."""
        header = group.header
        event_time = min(header.first_event_time, self._first_waiting(group))
        processing_time = min(
            header.first_processing_time,
            self._first_idle(header, now) if is_announced(header) else END_OF_TIME,
        )
        return (event_time, processing_time) if self.event_time else (END_OF_TIME, min(event_time, processing_time))

    def _evolve(self, group: Group) -> None:
        """:raises StateError: state of a former definition cannot be converted"""
        store, header = group.store, group.header
        written = store.read_page(DEFINITION_PAGE)
        if written is None:
            raise other_query()
        old = StateDefinition.from_bytes(written)
        self.check_state(old, group)
        count = len(header.exists)
        for number in np.flatnonzero(header.exists).tolist():
            place = page_number(number, count, fixed=self.fixed_pages)
            before = store.read_page(place)
            assert before is not None
            after = self.converted(old, before)
            store.write_page(place, after)
            header.size += len(after) - len(before)
        for number, name in enumerate(self.inputs):
            waiting = WaitingEvents(store, header, number, old.inputs[name])
            waiting.replace(partial(self.converted_events, group, old, name))
        self.evolved(group, old)
        store.write_page(DEFINITION_PAGE, self._definition)
        header.fingerprint, header.defined = self.fingerprint, True

    def check_state(self, old: StateDefinition, group: Group | None = None) -> None:
        """
        :param group: the key group with this state; None: any
        :raises StateError: state of the former definition *old* cannot be continued
        """
        check_evolution(old, self.definition)

    def converted(self, old: StateDefinition, page: bytes) -> bytes:
        """A page of keys of the former definition *old*."""
        return page

    def converted_events(self, group: Group, old: StateDefinition, name: str, events: pa.Table) -> pa.Table:
        """Events of the input *name* that wait since the former definition *old*."""
        return aligned(events, self.inputs[name].prepared)

    def evolved(self, group: Group, old: StateDefinition) -> None:
        """Called when the pages and the waiting events have been converted."""

    def _least(self, header: GroupHeader, processing_time: int) -> int:
        """The minimum watermark of the inputs that are neither idle nor ended; the end of time if all have ended.

        If all are idle, none waits for another, and it is the maximum.
        """
        marks, going = [], []
        for number, spec in enumerate(self.inputs.values()):
            mark, idle = self._watermark_of(header, number, spec, processing_time)
            if not spec.timed or mark == END_OF_TIME:
                continue
            marks.append(mark)
            if not idle:
                going.append(mark)
        if marks:
            return min(going, default=max(marks))
        return END_OF_TIME if self.event_time else BEFORE_TIME

    def _first_idle(self, header: GroupHeader, now: Now) -> int:
        """The processing time at which an input or a partition becomes idle. The operator is called then, even if its watermark
        does not advance: what is idle must not depend on other timers of a key group.
        """
        limits: list[int] = []
        for number, spec in enumerate(self.inputs.values()):
            if spec.timed and spec.idle_after is not None and header.watermarks[number] != END_OF_TIME:
                partitions = header.partitions.get(number)
                of_partitions = [] if partitions is None else np.unique(partitions.last_activity).tolist()
                limits += [time + spec.idle_after for time in (int(header.last_activity[number]), *of_partitions)]
        return min((time for time in limits if time > now.processing_time), default=END_OF_TIME)

    def _mark_idle(self, header: GroupHeader, now: Now) -> None:
        for number, spec in enumerate(self.inputs.values()):
            if spec.idle_after is not None:
                if now.processing_time - int(header.last_activity[number]) >= spec.idle_after:
                    header.last_activity[number] = IDLE
                if number in header.partitions:
                    header.partitions[number].mark_idle(now.processing_time, spec.idle_after)

    def _restart_idle_time(self, header: GroupHeader, now: Now) -> None:
        """Do not count the time until this call as idle time of what is not idle yet: the query was stopped meanwhile."""
        specs = enumerate(self.inputs.values())
        awaited = [number for number, spec in specs if spec.timed and header.last_activity[number] != IDLE]
        if awaited:
            idle_time = now.processing_time - int(header.last_activity[awaited].max())
            header.last_activity[awaited] += idle_time
            for partitions in header.partitions.values():
                partitions.restart_idle_time(idle_time)

    def _first_waiting(self, group: Group) -> int:
        return min(
            WaitingEvents(group.store, group.header, number, spec.prepared).first_time()
            for number, spec in enumerate(self.inputs.values())
        )

    def ready_events(self, group: Group, arrivals: Sequence[Arrival], before: int) -> dict[str, pa.Table]:
        """The events that are ready, by input."""
        ready: dict[str, pa.Table] = {}
        for number, (name, spec) in enumerate(self.inputs.items()):
            tables = [arrival.events for arrival in arrivals if arrival.input == name and arrival.events is not None]
            if spec.timed:
                tables = self.ready_events_of(group, number, name, tables, before)
            elif tables and not self.event_time:
                tables = [stamped(pa.concat_tables(tables), group.processing_time)]
            events = pa.concat_tables(tables) if tables else None
            if events is not None and events.num_rows:
                ready[name] = events
        return ready

    def ready_events_of(
        self, group: Group, number: int, name: str, tables: list[pa.Table], before: int
    ) -> list[pa.Table]:
        """Pass late events to :meth:`late`, and let those after the watermark wait; the rest is ready."""
        if tables:
            arrived = pa.concat_tables(tables)
            late = to_numpy(arrived.column(TIME)) <= before
            if late.any():
                self.late(group, name, arrived.filter(from_numpy(late)))
                arrived = arrived.filter(from_numpy(~late))
            tables = [arrived]
        waiting = WaitingEvents(group.store, group.header, number, self.inputs[name].prepared)
        return waiting.exchange(tables, group.watermark)


def is_announced(header: GroupHeader) -> bool:
    """Whether an input has a watermark. Watermarks are sent to all key groups."""
    return bool((header.watermarks != BEFORE_TIME).any())


def key_schema_of(fields: Iterable[pa.Field]) -> pa.Schema:
    """The schema of key columns; of a stream without keys, the column ONE_KEY."""
    return pa.schema(list(fields) or [pa.field(ONE_KEY, pa.int8())])


def complete(events: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of *schema*, with its types; columns that the events lack, because they are not read, are null."""
    columns = [
        cast_to(events.column(field.name), field.type)
        if field.name in events.column_names
        else pa.nulls(events.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def late_table(schema: pa.Schema, events: pa.Table) -> pa.Table:
    """Late events in their original columns."""
    return pa.table([events.column("e:" + name) for name in schema.names], schema=schema)


def stamped(events: pa.Table, time: int) -> pa.Table:
    """The events with *time* as their time."""
    times = from_numpy(np.full(events.num_rows, time, np.int64))
    return events.set_column(events.column_names.index(TIME), TIME, times)
