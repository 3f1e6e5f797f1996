"""Windows with triggers as an operator: elements are assigned to windows and added to panes, which fire.

A *pane* is a window of one key. Its trigger (:mod:`asterism.windows.triggers`) decides when it fires and whether its elements
are kept. The compiled :mod:`asterism.windows.kernels` finds all firings of a call, and :mod:`asterism.windows.panes` computes
their results.

The order of processing:

* Elements are processed when they arrive, in order of arrival, with the watermark before the call. An element all of whose
  windows have ended, allowed lateness included, is late. Then the watermark advances, and event-time timers fire in the order
  of time. Processing-time timers that are due fire before the elements of a call. This is the order of Flink.
* With ``in_order``, elements wait until the watermark has passed them and are processed in the order of their times, each after
  the timers before it: the firings depend on the elements alone, not on their arrival. Elements behind the watermark whose
  windows are still kept are processed at once.

Source: FLIP-9; Flink's ``WindowOperator`` and ``EvictingWindowOperator``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import expect_options, function_name
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, NO_TIME, TIME, Described
from asterism.errors import (
    ExpressionSyntaxError,
    ExpressionTypeError,
    InvalidEventError,
    StreamDefinitionError,
    UserFunctionError,
)
from asterism.expressions.computed_columns import visible
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope, columns_of
from asterism.operators.evolution import FIXED, aligned_table
from asterism.operators.key_group import LATE, Group, KeyGroupOperator, complete, key_schema_of, late_table
from asterism.operators.operator import EVENTS, Arrival, InputSpec
from asterism.operators.state.pages import PAGE
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.operators.state.state_store import (
    additions_from_bytes,
    tables_from_bytes,
    tables_to_bytes,
    with_additions,
)
from asterism.operators.stream_operator import Counter, Gauge, Histogram, Output, declared_in
from asterism.windows.assigners import SessionWindows, Windows
from asterism.windows.contents import FIRING, IS_LAST, KIND, WINDOW_END, WINDOW_START, FiringContents
from asterism.windows.evictors import BuiltInEvictor
from asterism.windows.panes import DISTANCE, TIMES
from asterism.windows.plan import COUNTED, DISTANCES, FIRINGS, GAP, UNFIRED, WindowPlan
from asterism.windows.process_function import ProcessWindowFunction
from asterism.windows.session_ids import IDS, REPLACES, SESSION_ID
from asterism.windows.spec import WindowOperatorOptions, WindowSpec
from asterism.windows.stored_windows import PANES
from asterism.windows.trigger_table import CallPhase, trigger_table_of
from asterism.windows.triggers import (
    BuiltIn,
    ContinuousProcessingTimeTrigger,
    ProcessingTimeTrigger,
    Trigger,
    walk,
)
from asterism.windows.user_functions import called

LATE_ELEMENTS = "late"
"""The output of late elements."""
BEHIND = "behind"
"""Input name of ready elements that were behind the watermark on arrival."""
LONGEST_GAP = 10**11
"""The longest gap of a session, in seconds: three thousand years."""


class WindowOperator(KeyGroupOperator):
    """Windows over one input.

    Exactly one of *measures*, *reduce* and *fold* defines the result of a firing, or *function*, which may also follow one of
    them. Each row of the output FIRINGS has the key, the window (NULL for a global one), the number of the firing from 1, its
    kind ("early", "on_time", "late"), whether it is the last firing of the window, lateness included, and the results.

    :param windows: the window assigner
    :param schema: the columns of the elements, and those that Spark computes
        (``asterism.expressions.computed_columns``)
    :param keys: the key columns; none: all elements have one key
    :param time: the event-time column; None: processing time
    :param trigger: when a window fires; default: at its end
    :param options: see :class:`~asterism.windows.spec.WindowOperatorOptions`
    :raises StreamDefinitionError: the arguments do not match
    :raises ExpressionError: an expression does not match the columns of the elements

    >>> from datetime import timedelta
    >>> from asterism.testing import OperatorHarness
    >>> from asterism.windows.triggers import CountTrigger, EventTimeTrigger
    >>> from asterism.windows.assigners import TumblingWindows
    >>> operator = WindowOperator(
    ...     TumblingWindows.of(timedelta(seconds=10)),
    ...     pa.schema({"who": "string", "ts": "int64", "n": "int64"}),
    ...     keys=["who"], time="ts", measures=["sum(n) AS total"],
    ...     trigger=EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2)))
    >>> harness = OperatorHarness(operator, keys=["who"])
    >>> events = pa.table({"who": ["ann"] * 3, "ts": [1000, 2000, 3000], "n": [1, 2, 4]}, operator.schema)
    >>> for row in harness.feed(events).end().rows("firings"):
    ...     print(row["firing"], row["kind"], row["is_last"], row["total"])
    1 early False 3
    2 on_time True 7
    """

    metrics: Sequence[str] = (*COUNTED, LATE, UNFIRED)

    def __init__(
        self,
        windows: Windows,
        schema: pa.Schema,
        *,
        keys: Sequence[str] = (),
        time: str | None,
        trigger: Trigger | None = None,
        **options: Unpack[WindowOperatorOptions],
    ) -> None:
        expect_options(type(self).__name__, options, WindowOperatorOptions)
        spec = WindowSpec(windows=windows, schema=schema, keys=keys, time=time, trigger=trigger, **options)
        self.set_pages(spec.pages)
        self.spec, self.schema, self.keys = spec, schema, list(keys)
        self.event_schema = visible(schema)
        self.table = trigger_table_of(spec.effective_trigger)
        self.vectorized = Vectorized(schema)
        self._distances = [self._number(text, "DeltaTrigger.of") for text in self.table.distances]
        evicts_by = spec.evictor.distance if isinstance(spec.evictor, BuiltInEvictor) else None
        self._evicts_by = self._number(evicts_by, "Evictor.delta") if isinstance(evicts_by, str) else None
        gap = windows.dynamic_gap if isinstance(windows, SessionWindows) else None
        self._gap_text = self._gap_expression(gap) if isinstance(gap, str) else None
        self._gap_function = gap if callable(gap) else None
        self.contents = FiringContents.of(spec)
        self._is_open = False
        self.calls_python = bool(self.table.user_defined)
        everything = spec.late_output or self.calls_python or spec.evictor_calls_python
        needed = {*self.contents.needed, *(self.event_schema.names if everything else ())}
        self.kept_columns = [name for name in schema.names if name in needed]
        self._element_fields = [schema.field(name).with_name("e:" + name) for name in self.kept_columns]
        self._make_inputs()
        self.output_schemas = self._output_schemas()
        if isinstance(spec.function, ProcessWindowFunction):
            self._add_declared(type(spec.function))
        self.plan = self._plan()
        self.processing_time = not spec.is_event_time or any(map(_needs_processing_time, walk(spec.effective_trigger)))
        self.fingerprint = self._fingerprint()

    def _fingerprint(self) -> bytes:
        spec = self.spec
        # Options that earlier releases do not have are left out if they are not used, so that state of these releases continues.
        added = [f"closing={spec.closing}"] if spec.closing != "drop" else []
        added += ["always on time"] if spec.on_time == "fire_always" else []
        added += ["session ids"] if spec.session_ids else []
        added += [repr(spec.fold)] if spec.fold is not None else []
        added += [repr(self.contents.states)] if self.contents.states else []
        definition = repr(
            (
                spec.windows, spec.effective_trigger, spec.lateness_micros, spec.measures, _named(spec.function),
                _named(spec.reduce), str(self.contents.schema), spec.evictor, spec.in_order, self.keys,
                Described(spec.time_column), self.pages, str(self.inputs[EVENTS].prepared), *added,
            )
        )  # fmt: skip
        return hashlib.sha256(definition.encode()).digest()[:16]

    @property
    def definition(self) -> StateDefinition:
        schemas, of_states, states = self.plan.page_schemas, self.plan.state_schemas, self.contents.states
        count = len(schemas) - len(of_states)
        tables = dict(zip(("seen", PANES, "rows"), schemas[:count], strict=False)) | of_states
        return StateDefinition(
            OperatorKind.WINDOWS,
            pa.schema([self.schema.field(name) for name in self.keys]),
            tables,
            {name: spec.prepared for name, spec in self.inputs.items()},
            {
                "lateness": self.spec.lateness_micros, "partials": self.contents.partial_names, FIXED: self._fixed,
                **({"kinds": {name: state.kind.value for name, state in states.items()}} if states else {}),
            },
        )  # fmt: skip

    @property
    def _fixed(self) -> dict[str, str]:
        spec = self.spec
        return {
            "the windows": repr(spec.windows),
            # Counts, delays, intervals and thresholds can change.
            "the trigger": re.sub(r"\d+(\.\d+)?", "…", repr(spec.effective_trigger)),
            "what the trigger compares": ", ".join(self.table.distances) or "nothing",
            "what the evictor compares": repr(getattr(spec.evictor, "distance", None))
            if self._evicts_by is not None
            else "nothing",
            "what the state contains": self.contents.kept,
            "the event time": repr(Described(spec.time_column)),
            "in_order": str(spec.in_order),
            "the key": ", ".join(self.keys) or "none",
            "the use of processing time": str(self.processing_time),
            "pages": str(self.pages),
        }

    def converted(self, old: StateDefinition, page: bytes) -> bytes:
        stored = dict(zip(old.tables, tables_from_bytes(page, list(old.tables.values())), strict=True))
        panes = stored[PANES]
        stored[PANES] = panes.drop_columns([name for name in panes.column_names if name.startswith("p:")])
        new = {
            name: aligned_table(name, stored[name], schema) if name in stored else schema.empty_table()
            for name, schema in self.definition.tables.items()
        }
        if self.contents.partials is not None:
            new[PANES] = self.contents.partials.continued(panes, old.details["partials"], new[PANES])
        return with_additions(tables_to_bytes(list(new.values())), additions_from_bytes(page, len(old.tables)))

    def evolved(self, group: Group, old: StateDefinition) -> None:
        # The trigger or the lateness may have changed, so that windows are due at other times.
        group.header.next_event_times[group.header.exists] = BEFORE_TIME

    def open(self) -> None:
        if isinstance(self.spec.function, ProcessWindowFunction):
            called(f"{type(self.spec.function).__name__}.open", self.spec.function.open)
            self._is_open = True

    def close(self) -> None:
        if self._is_open and isinstance(self.spec.function, ProcessWindowFunction):
            self._is_open = False
            self.spec.function.close()

    # ------------------------------------------------------------------ definition

    def _make_inputs(self) -> None:
        keys = key_schema_of(self.schema.field(name) for name in self.keys)
        self.key_schema = pa.schema([field.with_name("k:" + field.name) for field in keys])
        paged = [pa.field(PAGE, pa.uint8())] if self.pages > 1 else []
        dynamic = self._gap_text is not None or self._gap_function is not None
        prepared = pa.schema(
            [
                *self.key_schema,
                pa.field(TIME, pa.int64()),
                *paged,
                *([pa.field(GAP, pa.int64())] if dynamic else []),
                *(pa.field(f"{DISTANCES}{n}", pa.float64()) for n in range(len(self._distances))),
                *self._evictor_fields,
                *self._element_fields,
            ]
        )
        self.inputs = {EVENTS: InputSpec(self._read_columns(), prepared, timed=self.spec.is_event_time)}

    def _output_schemas(self) -> dict[str, pa.Schema]:
        moment = self.spec.time_column.written
        firings = pa.schema(
            [
                *(self.schema.field(name) for name in self.keys),
                pa.field(WINDOW_START, moment),
                pa.field(WINDOW_END, moment),
                pa.field(FIRING, pa.int64()),
                pa.field(KIND, pa.string()),
                pa.field(IS_LAST, pa.bool_()),
                *([pa.field(SESSION_ID, pa.string()), pa.field(REPLACES, IDS)] if self.spec.session_ids else []),
                *(self.contents.schema.field(name) for name in self.contents.names),
            ]
        )
        return {FIRINGS: firings, **({LATE_ELEMENTS: self.event_schema} if self.spec.late_output else {})}

    def _plan(self) -> WindowPlan:
        panes = pa.schema(
            [
                *self.key_schema,
                pa.field("start", pa.int64()),
                pa.field("end", pa.int64()),
                pa.field("firings", pa.int64()),
                pa.field("count", pa.int64()),
                pa.field("words", pa.list_(pa.int64(), len(self.table.initial))),
                *([pa.field("own", pa.string())] if self.calls_python else []),
                *(self.contents.partials.kept if self.contents.partials is not None else []),
            ]
        )
        everything, needed = self.spec.evictor_calls_python, self.contents.needed
        elements = [field for field in self._element_fields if everything or field.name[2:] in needed]
        rows = pa.schema([pa.field(TIMES, pa.int64()), *self._evictor_fields, *elements])
        firings = self.output_schemas[FIRINGS]
        return WindowPlan(
            self.spec, self.contents, self.table, tuple(self.kept_columns), self.key_schema, panes, rows, firings
        )

    @property
    def _evictor_fields(self) -> list[pa.Field]:
        return [pa.field(DISTANCE, pa.float64())] if self._evicts_by is not None else []

    def _add_declared(self, function: type[ProcessWindowFunction]) -> None:
        """Add the outputs and metrics that the window function declares."""
        outputs: dict[str, Output] = declared_in(function, Output)
        gauges: dict[str, Gauge] = declared_in(function, Gauge)
        histograms: dict[str, Histogram] = declared_in(function, Histogram)
        counters = declared_in(function, Counter)
        usual = {"results", FIRINGS, LATE_ELEMENTS} & outputs.keys()
        usual |= {*self.metrics} & {*counters, *gauges, *histograms}
        if usual:
            name = min(usual)
            raise StreamDefinitionError(
                f'{function.__name__} declares "{name}", which a query has anyway', hint=f'use another name: "{name}_"'
            )
        self.output_schemas = {**self.output_schemas, **{name: output.schema for name, output in outputs.items()}}
        self.metrics = (*self.metrics, *counters)
        self.gauges = {name: gauge.aggregate for name, gauge in gauges.items()}
        self.histograms = {name: histogram.buckets for name, histogram in histograms.items()}

    def _read_columns(self) -> pa.Schema:
        names = {*self.kept_columns, *self.keys}
        if self.spec.is_event_time:
            names.add(self.spec.time_column.name)
        for text in self.vectorized.texts:
            names |= {self.schema.names[number] for number in columns_of(text)}
        if self._gap_function is not None:
            names |= set(self.event_schema.names)
        return pa.schema([field for field in self.schema if field.name in names])

    def _number(self, text: str, where: str) -> int:
        """Bind a numeric expression to the columns of the elements."""
        number = self._expression(text)
        kind = self.vectorized.types[number]
        if not _is_number(kind):
            raise ExpressionTypeError.at(
                f"{where}: the distance between elements must be a number, not {kind}",
                text,
                hint="CAST it, or use a function",
            )
        return number

    def _gap_expression(self, text: str) -> int:
        number = self._expression(text)
        kind = self.vectorized.types[number]
        if not (_is_number(kind) or pa.types.is_duration(kind)):
            raise ExpressionTypeError.at(
                f"SessionWindows.with_dynamic_gap: a gap must be an INTERVAL or a number of seconds, not {kind}", text
            )
        return number

    def _expression(self, text: str) -> int:
        with ExpressionSyntaxError.if_too_deep(text):
            scope = Scope(self.schema)
            return self.vectorized.add(scope.resolve(scope.parse(text), text), text)

    # ------------------------------------------------------------------ before the exchange

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        """The columns that windows, triggers and results need."""
        full = complete(events, self.schema)
        columns = self.first_columns(events, [full.column(key) for key in self.keys], self._times(full))
        values = self.vectorized.evaluate(full) if self.vectorized.texts else []
        if self._gap_text is not None:
            columns.append(_gaps(values[self._gap_text]))
        elif self._gap_function is not None:
            columns.append(_gaps(_gaps_of(self._gap_function, full.select(self.event_schema.names))))
        numbers = [*self._distances, *([self._evicts_by] if self._evicts_by is not None else [])]
        columns += [values[number].cast(pa.float64(), safe=False) for number in numbers]
        columns += [full.column(column) for column in self.kept_columns]
        return pa.table(columns, schema=self.inputs[name].prepared)

    def _times(self, events: pa.Table) -> pa.ChunkedArray | pa.Array:
        if not self.spec.is_event_time:
            return pa.array(np.zeros(events.num_rows, np.int64))
        return self.spec.time_column.of_events(
            events,
            lenient=self.spec.late_output,
            what="elements",
            detail="An element without a time belongs to no window.",
            hint=f"drop the elements in which {self.spec.time_column.name} IS NULL, or write the late output in the same run",
        )

    # ------------------------------------------------------------------ with state

    def late(self, group: Group, name: str, events: pa.Table) -> None:
        group.metrics[LATE] += events.num_rows
        if self.spec.late_output:
            group.emit(LATE_ELEMENTS, late_table(self.event_schema, events))

    def ready_events_of(
        self, group: Group, number: int, name: str, tables: list[pa.Table], before: int
    ) -> list[pa.Table]:
        """No element is late yet: that depends on its windows. In order, elements wait until the watermark has passed them."""
        if tables:
            arrived = pa.concat_tables(tables)
            timeless = arrived.column(TIME).to_numpy() == NO_TIME
            if timeless.any():
                self.late(group, name, arrived.filter(pa.array(timeless)))
                arrived = arrived.filter(pa.array(~timeless))
            tables = [arrived]
        return super().ready_events_of(group, number, name, tables, before) if self.spec.in_order else tables

    def ready_events(self, group: Group, arrivals: Sequence[Arrival], before: int) -> dict[str, pa.Table]:
        if group.processing_time != END_OF_TIME:
            group.header.last_activity[0] = group.processing_time
        elif group.header.last_activity[0] == END_OF_TIME:  # there was no previous call
            group.header.last_activity[0] = 0
        if not self.spec.in_order:
            return super().ready_events(group, arrivals, before)
        behind: list[pa.Table] = []
        others: list[Arrival] = []
        for arrival in arrivals:
            if arrival.events is None:
                continue
            times = arrival.events.column(TIME).to_numpy()
            passed = (times <= before) & (times != NO_TIME)
            if not passed.any():
                others.append(arrival)
                continue
            behind.append(arrival.events.filter(pa.array(passed)))
            others.append(replace(arrival, events=arrival.events.filter(pa.array(~passed))))
        ready = super().ready_events(group, others, before)
        return ready | ({BEHIND: pa.concat_tables(behind)} if behind else {})

    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> None:
        from asterism.windows.firing import WindowCall

        events = ready.get(EVENTS, self.inputs[EVENTS].prepared.empty_table())
        times = events.column(TIME).to_numpy()
        watermarks = np.full(len(times), group.before, np.int64)
        stages = np.full(len(times), CallPhase.ELEMENTS, np.int64)
        if self.spec.in_order:
            order = np.argsort(times, kind="stable")
            events, times = events.take(pa.array(order)), times[order]
            # Some elements waited for a watermark that the host has had since the previous call.
            earlier = int(np.searchsorted(times, group.before, side="right"))
            watermarks, stages[:earlier], stages[earlier:] = times - 1, CallPhase.BEFORE, CallPhase.AFTER
            behind = ready.get(BEHIND)
            if behind is not None:
                events = pa.concat_tables([events.slice(0, earlier), behind, events.slice(earlier)])
                watermarks = np.insert(watermarks, earlier, np.full(behind.num_rows, group.before))
                stages = np.insert(stages, earlier, np.full(behind.num_rows, CallPhase.ELEMENTS))
        # The end of the input does not advance the processing time of windows in event time: elements that wait until then are
        # processed at that of the previous call.
        processing_time = int(group.header.last_activity[0])
        WindowCall(self.plan, group, events.combine_chunks(), watermarks, stages, processing_time, self.late).run()


# ---------------------------------------------------------------------- checks and conversions


def _needs_processing_time(part: Trigger) -> bool:
    if isinstance(part, BuiltIn):
        return isinstance(part, ProcessingTimeTrigger | ContinuousProcessingTimeTrigger)
    return type(part).on_processing_time is not Trigger.on_processing_time


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _gaps(values: Any) -> pa.Array:
    """Convert intervals or numbers of seconds to gaps in microseconds."""
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_duration(column.type):
        gaps = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    else:
        seconds = column.cast(pa.float64(), safe=False)
        known = pc.less(pc.abs(seconds), LONGEST_GAP)
        gaps = pc.round(pc.multiply(pc.if_else(known, seconds, 0.0), 1e6)).cast(pa.int64())
    gaps = pc.fill_null(gaps, 0)
    wrong = pc.or_(pc.less_equal(gaps, 0), pc.greater(gaps, LONGEST_GAP * 1_000_000))
    if pc.any(wrong).as_py():
        raise InvalidEventError(
            f"the gap of a session window must be positive and finite, not {column.filter(wrong)[0].as_py()}",
            "SessionWindows.with_dynamic_gap computes a gap for each element.",
            "COALESCE(gap, 60), or GREATEST(gap, 1)",
        )
    return gaps


def _gaps_of(function: Callable[[pa.Table], Any], events: pa.Table) -> Any:
    what = f"the gap function {function_name(function)}"
    answer = called(what, function, events)
    try:
        if not isinstance(answer, pa.Array | pa.ChunkedArray):
            answer = pa.array(answer if isinstance(answer, np.ndarray) else list(answer))
        if len(answer) != events.num_rows:
            raise ValueError(f"{len(answer):,} values for {events.num_rows:,} rows")
        return answer
    except Exception as error:
        raise UserFunctionError(
            f"{what} did not return gaps",
            str(error),
            "it must take a table and return a timedelta, or a number of seconds, for each row",
        ) from error


def _named(function: object) -> str | None:
    return None if function is None else function_name(function)
