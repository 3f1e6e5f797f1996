"""Pattern matching as an operator: passes events to the matcher in order once the watermark has passed them.

Events are ordered by event time; equal times are ordered by ``order_by``, or else by arrival. The operator reads the pages of
state that contain the keys of these events or deadlines that have passed, runs the matcher, and writes the pages back.

In processing time, the time of an event is the time of the call; no event is late, and none is buffered.

Source: Flink's ``CepOperator``.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from asterism.arguments import expect_options
from asterism.columns.arrays import Ints, Mask, empty_table, from_numpy, to_numpy
from asterism.columns.groups import BUCKET, group_codes
from asterism.columns.sort_keys import order_of
from asterism.columns.time import END_OF_TIME, NO_TIME, TIME, Described, TimeColumn, to_datetime
from asterism.expressions.computed_columns import visible
from asterism.matching.binding import BoundPattern
from asterism.matching.matcher import KeyedEvents, Matcher, Step, enough_memory
from asterism.matching.outputs import MatchOutput, OutputKind, OutputSpec
from asterism.matching.page import DecodedPage, PackedPage, Page, resident, together
from asterism.matching.plan import Limits
from asterism.matching.process_function import (
    MatchContext,
    MatchFunction,
    ProcessSpec,
    check_names,
    rows_of_main_output,
)
from asterism.matching.spec import MatchOptions, MatchSpec
from asterism.matching.stored_matches import CHANGE, described_automaton, described_pattern
from asterism.operators.evolution import FIXED, aligned
from asterism.operators.key_group import (
    LATE,
    Group,
    KeyGroupOperator,
    complete,
    key_schema_of,
    late_table,
    stamped,
)
from asterism.operators.operator import EVENTS, InputSpec, Now
from asterism.operators.rich_functions import close_all
from asterism.operators.state.pages import PAGE
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.operators.state.state_store import KeptPage
from asterism.patterns.conditions import IterativeCondition, PythonCondition, name_of
from asterism.patterns.identity import pattern_identity
from asterism.patterns.pattern import Pattern

DROPPED = "partial_matches_dropped"
"""The metric that counts the partial matches dropped by ``on_limit="drop"``."""


class CepOperator(KeyGroupOperator):
    """A pattern over one keyed input.

    :param schema: the columns of the events, and those that Spark computes (``asterism.expressions.computed_columns``)
    :param keys: the key columns; if empty, all events have one key
    :param time: the event-time column; None: processing time
    :param outputs: the requested outputs, by name
    :param process: a match function with outputs of its own, beside *outputs*
    :param options: see :class:`~asterism.matching.spec.MatchOptions`
    """

    metrics: Sequence[str] = (OutputKind.MATCHES.value, OutputKind.TIMED_OUT.value, LATE, DROPPED)

    def __init__(
        self,
        pattern: Pattern,
        schema: pa.Schema,
        *,
        keys: Sequence[str] = (),
        time: str | None,
        outputs: Mapping[str, OutputSpec],
        process: ProcessSpec | None = None,
        **options: Unpack[MatchOptions],
    ) -> None:
        expect_options(type(self).__name__, options, MatchOptions)
        spec = MatchSpec(pattern=pattern, schema=schema, keys=keys, time=time, outputs=outputs, **options)
        self.set_pages(spec.pages)
        self.schema, self.keys, self.outputs = schema, list(keys), outputs
        self.event_schema = visible(schema)
        self.order_by, self.time, self.processing_time = spec.sort_keys, spec.time_column, time is None
        stages = [stage.name for stage in pattern.atoms()]
        self.match_outputs = {
            name: MatchOutput(output, schema, keys, self.time, stages, subsets=pattern.subsets)
            for name, output in outputs.items()
            if output.kind is not OutputKind.LATE
        }
        self.process_spec = process
        self.function = None if process is None else MatchFunction(process.function, self.event_schema)
        self.function_inputs: dict[OutputKind, MatchOutput] = {}
        """The outputs that make the rows for the match function."""
        if self.function is not None:
            kinds = [OutputKind.MATCHES, *([OutputKind.TIMED_OUT] if self.function.handles_timeouts else [])]
            self.function_inputs = {
                kind: MatchOutput(OutputSpec(kind), schema, keys, self.time, stages) for kind in kinds
            }
        self.pattern = self._bound(spec)
        self.matcher = Matcher([self.pattern])
        # A stream without a key is treated as a stream with one key.
        self.key_schema = key_schema_of(schema.field(name) for name in keys)
        self.inputs = {EVENTS: InputSpec(self._read_columns(), self._prepared(), timed=time is not None)}
        self.output_schemas = {
            name: self.event_schema if output.kind is OutputKind.LATE else self.match_outputs[name].schema
            for name, output in outputs.items()
        }
        if process is not None and self.function is not None:
            self._add_declared(process, self.function)
        # The text of a pattern only names its functions; the fingerprint must also depend on their code.
        functions = [
            _plain(condition.function)
            for condition in self.pattern.nfa.conditions
            if isinstance(condition, PythonCondition | IterativeCondition)
        ]
        self.fingerprint = self._fingerprint(spec, functions)
        self._fixed = self._fixed_parts(spec, functions)

    def _bound(self, spec: MatchSpec) -> BoundPattern:
        made = [*self.match_outputs.values(), *self.function_inputs.values()]
        previous = sorted({column for output in made for column in output.previous})
        kept_columns = {column for output in made for column in output.kept_columns}
        kept_columns |= {column.name for column in previous}
        return BoundPattern.of_pattern(
            spec.pattern,
            self.schema,
            spec.semantics,
            limits=Limits(spec.max_partial_matches, drop=spec.on_limit == "drop"),
            counts_matches=any(output.counts_matches for output in self.match_outputs.values()),
            kept_columns=tuple(
                name
                for name in self.schema.names
                if name in kept_columns or (self.wants_late and name in self.event_schema.names)
            ),
            previous=tuple(previous),
            zone=self.time.type.tz if pa.types.is_timestamp(self.time.type) else "UTC",
        )

    def _prepared(self) -> pa.Schema:
        """The columns that :meth:`prepare` makes."""
        return pa.schema(
            [
                *(field.with_name("k:" + field.name) for field in self.key_schema),
                pa.field(TIME, pa.int64()),
                *([pa.field(PAGE, pa.uint8())] if self.pages > 1 else []),
                *self.pattern.bit_fields,
                *self.pattern.event_schema,
                *(self.schema.field(name).with_name("o:" + name) for name, *_ in self.order_by),
            ]
        )

    def _add_declared(self, process: ProcessSpec, function: MatchFunction) -> None:
        """Add the outputs and metrics of the match function."""
        if process.schema is not None:
            self.output_schemas = {**self.output_schemas, process.output: process.schema}
        usual = [kind.value for kind in OutputKind]
        check_names(function, [*usual, *self.output_schemas], self.metrics)
        declared = function.declared
        self.output_schemas = {**self.output_schemas, **declared.outputs}
        self.metrics = (*self.metrics, *declared.counters)
        self.gauges = {name: gauge.aggregate for name, gauge in declared.gauges.items()}
        self.histograms = {name: histogram.buckets for name, histogram in declared.histograms.items()}

    def _fingerprint(self, spec: MatchSpec, functions: Sequence[Any]) -> bytes:
        described = (
            pattern_identity(spec.pattern),
            repr(spec.semantics),
            repr(self.keys),
            repr(Described(self.time)),
            repr([key.described for key in self.order_by]),
            repr(self.pages),
            repr(str(self.inputs[EVENTS].prepared)),
            repr(functions),
            *(["MATCH_NUMBER"] if self.pattern.plan.counts_matches else []),
        )
        return hashlib.sha256(f"({', '.join(described)})".encode()).digest()[:16]

    def _fixed_parts(self, spec: MatchSpec, functions: Sequence[Any]) -> dict[str, str]:
        """What must not change while the state is kept, in words."""
        identity = f"{pattern_identity(spec.pattern)}, {functions!r}"
        return {
            "the pattern": "#" + hashlib.sha256(identity.encode()).hexdigest()[:16],
            "semantics": spec.semantics.value,
            "the key": ", ".join(self.keys) or "none",
            "the event time": repr(Described(self.time)),
            "order_by": ", ".join(map(str, self.order_by)) or "none",
            "pages": str(self.pages),
            "the use of the output late": str(self.wants_late),
            "the number of earlier events that PREV() reads": str(self.pattern.remembers_events),
            "the use of MATCH_NUMBER() in measures": str(self.pattern.plan.counts_matches),
        }

    def close(self) -> None:
        functions = [output.function for output in self.match_outputs.values()]
        with ExitStack() as stack:
            stack.callback(self.pattern.close)
            stack.callback(close_all, [self.function, *functions])

    @property
    def definition(self) -> StateDefinition:
        return StateDefinition(
            OperatorKind.PATTERN,
            pa.schema([self.schema.field(name) for name in self.keys]),
            {"keys": self.key_schema, EVENTS: self.pattern.event_schema},
            {name: spec.prepared for name, spec in self.inputs.items()},
            {**described_automaton(self.pattern.nfa), CHANGE: self._described, FIXED: self._fixed},
        )

    @property
    def _described(self) -> dict[str, Any]:
        """What another pattern needs to continue the state."""
        columns = self._read_columns().with_metadata(self.schema.metadata).serialize().to_pybytes()
        return {
            **described_pattern(self.pattern, identity_of_function),
            "columns": base64.b64encode(columns).decode(),
            "time": None if self.processing_time else self.time.name,
            "order_by": [str(key) for key in self.order_by],
        }

    def converted(self, old: StateDefinition, page: bytes) -> bytes:
        keys, events = old.tables.values()
        stored_page = Page.from_bytes(page, keys, events)
        events = aligned(stored_page.events, self.pattern.event_schema)
        return replace(stored_page, keys=aligned(stored_page.keys, self.key_schema), events=events).to_bytes()

    @property
    def calls_python(self) -> bool:
        """Whether it calls functions of the user, of conditions or of matches."""
        conditions = self.pattern.nfa.conditions
        return (
            self.function is not None
            or any(output.function is not None for output in self.match_outputs.values())
            or any(isinstance(condition, PythonCondition | IterativeCondition) for condition in conditions)
        )

    @property
    def wants_late(self) -> bool:
        return any(spec.kind is OutputKind.LATE for spec in self.outputs.values())

    def _read_columns(self) -> pa.Schema:
        """The event columns that :meth:`prepare` reads."""
        names = {*self.pattern.input_columns, *self._other_columns()}
        return pa.schema([field for field in self.schema if field.name in names])

    @property
    def columns_beside_bits(self) -> list[str]:
        """The event columns that :meth:`prepare` reads if the events have the ``bit_fields`` of the pattern."""
        names = {*self.pattern.columns_beside_bits, *self._other_columns()}
        return [name for name in self.schema.names if name in names]

    def _other_columns(self) -> list[str]:
        """The key, time and order columns."""
        time = [] if self.processing_time else [self.time.name]
        return [*self.keys, *time, *(name for name, *_ in self.order_by)]

    # ------------------------------------------------------------------ before the exchange

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        """Evaluate the conditions on the current events, and keep only the columns needed for matching and results.

        :param events: they may have the ``bit_fields`` of the pattern, if its ``bit_conditions`` were evaluated before
        """
        bits = None
        if self.pattern.bit_fields[0].name in events.column_names and self.pattern.bit_conditions is not None:
            bits = [events.column(field.name) for field in self.pattern.bit_fields]
        full = complete(events, self.schema)
        times = event_times(full, self.time, self.processing_time, self.wants_late)
        columns = self.first_columns(events, [full.column(key) for key in self.keys], times)
        columns += self.pattern.prepare(full, bits)
        columns += [full.column(column) for column, *_ in self.order_by]
        return pa.table(columns, schema=self.inputs[name].prepared)

    def relevant(self, name: str, prepared: pa.Table) -> pa.Table:
        if self.wants_late or not self.pattern.relevant_only:
            return prepared
        seen = self.pattern.sees(prepared)
        return prepared if seen.all() else prepared.filter(from_numpy(seen))

    # ------------------------------------------------------------------ with state

    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> Iterator[None]:
        events = self._ordered(ready[EVENTS]) if EVENTS in ready else empty_table(self.inputs[EVENTS].prepared)
        keys = self._keys_of(events)
        pages = group.load([events], ["k:" + name for name in self.key_schema.names], horizon)
        stored = [self._page_of(value) for value in pages.stored]
        page = together(stored or [self.empty_page()])
        with enough_memory(functools.partial(_heaviest, page, keys)):
            shown = KeyedEvents.of_one(self.pattern, page, keys, events, horizon)
            for step in self.matcher.advance_one(page, shown, processing_time=group.processing_time):
                self.collect(step, group)
                if not step.last:
                    yield
            first_events = shown.rows[shown.begins[page.keys.num_rows : -1]]
            sizes = [stored_page.keys.num_rows for stored_page in stored]
            page_of = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), pages.of_events[0][first_events]])
            left = step.page
            assert left is not None

            def encoded(parts: Sequence[Ints]) -> Iterator[tuple[bytes | KeptPage, int, int]]:
                for rows, page in zip(parts, resident(left, parts), strict=True):
                    yield page if pages.keeps else page.to_bytes(), step.next_deadline(rows), END_OF_TIME

            pages.rewrite(lambda: left.keys, page_of[step.kept], encoded)

    def _page_of(self, value: bytes | PackedPage | DecodedPage | None) -> Page | PackedPage:
        if isinstance(value, PackedPage):
            return value
        if isinstance(value, DecodedPage):
            return value.page
        if value is None:
            return self.empty_page()
        return Page.from_bytes(value, self.key_schema, self.pattern.event_schema)

    def late(self, group: Group, name: str, events: pa.Table) -> None:
        group.metrics[LATE] += events.num_rows
        for output, spec in self.outputs.items():
            if spec.kind is OutputKind.LATE:
                group.emit(output, late_table(self.event_schema, events))

    def _ordered(self, events: pa.Table) -> pa.Table:
        """Sort by ``order_by``; the matcher sorts by time and keeps this order among equal times."""
        if not self.order_by:
            return events
        return events.take(from_numpy(order_of(events, [key._replace(name="o:" + key.name) for key in self.order_by])))

    def _keys_of(self, events: pa.Table) -> pa.Table:
        return pa.table([events.column("k:" + name) for name in self.key_schema.names], schema=self.key_schema)

    def collect(self, step: Step, group: Group) -> None:
        """Emit the rows of *step*, and count them."""
        kinds = {OutputKind.MATCHES.value: len(step.matches), OutputKind.TIMED_OUT.value: len(step.timeouts)}
        for metric, count in {**kinds, DROPPED: step.dropped}.items():
            if count:
                group.metrics[metric] += count
        for name, output in self.match_outputs.items():
            matched = step.timeouts if output.spec.kind is OutputKind.TIMED_OUT else step.matches
            if len(matched):
                group.emit(name, output.build(step, matched))
        for kind, of_function in self.function_inputs.items():
            matched = step.timeouts if kind is OutputKind.TIMED_OUT else step.matches
            if len(matched):
                self._process(kind, of_function.build(step, matched), group)

    def _process(self, kind: OutputKind, matches: pa.Table, group: Group) -> None:
        """Call the match function, and emit its rows."""
        assert self.function is not None
        assert self.process_spec is not None
        context = MatchContext(to_datetime(group.processing_time))
        processed = self.function.process(matches, context, timed_out=kind is OutputKind.TIMED_OUT)
        if kind is OutputKind.MATCHES:
            rows = rows_of_main_output(self.function, processed.rows, self.process_spec.schema)
            if rows is not None:
                group.emit(self.process_spec.output, rows)
        processed.emitted.add_to(group)

    # ------------------------------------------------------------------ tables, without a state store

    def process_table(
        self, state: TableState, events: pa.Table, now: Now
    ) -> Generator[dict[str, pa.Table], None, TableState]:
        """Process a part of a table. Yields rows of the outputs.

        The keys are divided into buckets, and the parts come bucket by bucket, in order of time. Events of the same bucket and
        time are in the same part. The last bucket of a part may continue in the next part; a part without rows ends the table.

        :param state: the return value of the previous call, initially :meth:`initial_table_state`
        :param events: prepared events, with the column BUCKET
        """
        group = Group.without_state(now)
        bucket = events.column(BUCKET)[-1].as_py() if events.num_rows else None
        events = self._events_of_table(events, group)
        n_stored = state.page.keys.num_rows
        if not events.num_rows and (not n_stored or bucket == state.bucket):
            yield group.taken()
            return state
        is_open = np.concatenate(
            [
                np.full(n_stored, bucket == state.bucket),
                to_numpy(events.column(BUCKET)) == bucket,
            ]
        )
        page = yield from self._steps_of_table(state.page, events, is_open, group)
        return TableState(page, bucket)

    def process_part(self, events: pa.Table, now: Now) -> Iterator[dict[str, pa.Table]]:
        """:meth:`process_table` for all events of some keys at once. Yields rows of the outputs.

        :param events: prepared events, in order of arrival
        """
        group = Group.without_state(now)
        events = self._events_of_table(events, group)
        yield group.taken()
        if events.num_rows:
            yield from self._steps_of_table(self.empty_page(), events, None, group)

    def _events_of_table(self, events: pa.Table, group: Group) -> pa.Table:
        """The events of a table that have a time, in order; the others are late."""
        if self.processing_time:
            return self._ordered(stamped(events, group.processing_time))
        timeless = to_numpy(events.column(TIME)) == NO_TIME
        if timeless.any():
            self.late(group, EVENTS, events.filter(from_numpy(timeless)))
            events = events.filter(from_numpy(~timeless))
        return self._ordered(events)

    def _steps_of_table(
        self, page: Page, events: pa.Table, is_open: Mask | None, group: Group
    ) -> Generator[dict[str, pa.Table], None, Page]:
        """Yields rows of the outputs; returns the remaining partial matches.

        :param is_open: see :meth:`~asterism.matching.matcher.KeyedEvents.of_one`
        """
        keys = self._keys_of(events)
        with enough_memory(lambda: _heaviest(page, keys)):
            shown = KeyedEvents.of_one(self.pattern, page, keys, events, END_OF_TIME, is_open=is_open)
            for step in self._matcher_of_tables.advance_one(page, shown, processing_time=group.processing_time):
                self.collect(step, group)
                yield group.taken()
        assert step.page is not None
        return step.page

    @functools.cached_property
    def _matcher_of_tables(self) -> Matcher:
        """The matcher, which leaves out timed-out partial matches if no output has them: nobody counts those of a table."""
        kinds = [*self.function_inputs, *(output.spec.kind for output in self.match_outputs.values())]
        return Matcher([self.pattern], reporting=[OutputKind.TIMED_OUT in kinds])

    def initial_table_state(self) -> TableState:
        return TableState(self.empty_page(), None)

    def empty_page(self) -> Page:
        return Page.empty(self.key_schema, self.pattern.event_schema)


@dataclass(frozen=True, slots=True)
class TableState:
    """The state between calls of :meth:`CepOperator.process_table`: the partial matches of the *bucket* that may continue."""

    page: Page
    bucket: int | None


def event_times(
    events: pa.Table, time: TimeColumn, processing_time: bool, wants_late: bool
) -> pa.ChunkedArray | pa.Array:
    """The column TIME of events. An event without a time is an error, unless the output for late events is wanted."""
    if processing_time:
        return from_numpy(np.zeros(events.num_rows, np.int64))
    return time.of_events(
        events,
        lenient=wants_late,
        what="events",
        detail="An event without a time cannot be ordered.",
        hint=f"drop the events in which {time.name} IS NULL, or write the late output in the same run",
    )


def _heaviest(page: Page, keys: pa.Table) -> str:
    """The key with the most partial matches, or if there are none, the key with the most events of the call."""
    most, heaviest, what = 0, None, "partial matches before it"
    counts = np.diff(page.rows.run_at)  # including the start state of each key
    if len(counts) and counts.max() > most:
        most, heaviest = int(counts.max()), page.keys.slice(int(counts.argmax()), 1)
    if heaviest is None and keys.num_rows:
        codes, _ = group_codes(keys)
        counts, what = np.bincount(codes), "events in this call"
        most, heaviest = int(counts.max()), keys.slice(int(np.argmax(codes == counts.argmax())), 1)
    if heaviest is None:
        return "no key has events or partial matches"
    return f"the key {', '.join(f'{name}={values[0]!r}' for name, values in heaviest.to_pydict().items())} with {most:,} {what}"


def identity_of_function(function: Any) -> str:
    """Equal for functions with the same code."""
    return "#" + hashlib.sha256(repr(_plain(function)).encode()).hexdigest()[:16]


def _plain(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """The name, code, defaults and captured values of a function, equal in every process; the types of other objects."""
    if id(value) in seen:
        return "..."
    seen = (*seen, id(value))
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return value
        case tuple():
            return [_plain(item, seen) for item in value]
        case frozenset():
            return sorted(repr(_plain(item, seen)) for item in value)
        case CodeType():
            return value.co_code, value.co_names, _plain(value.co_consts, seen)
        case FunctionType():
            cells = tuple(_captured(cell) for cell in value.__closure__ or ())
            parts = value.__code__, value.__defaults__, tuple((value.__kwdefaults__ or {}).items()), cells
            return name_of(value), [_plain(part, seen) for part in parts]
        case MethodType():
            return _plain(value.__func__, seen)
        case functools.partial():
            return [_plain(part, seen) for part in (value.func, value.args, tuple(value.keywords.items()))]
    called = getattr(type(value), "__call__", None)  # noqa: B004 - an instance of a class with __call__
    return name_of(value), _plain(called, seen) if isinstance(called, FunctionType) else None


def _captured(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is not set yet
        return None
