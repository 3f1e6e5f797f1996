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
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import expect, expect_strings, function_name, shown
from asterism.columns.schemas import schema_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, NO_TIME, TIME, Described, TimeColumn, micros
from asterism.errors import (
    ExpressionSyntaxError,
    ExpressionTypeError,
    InvalidEventError,
    StreamDefinitionError,
    UserFunctionError,
)
from asterism.expressions.aggregates import Aggregates
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope, columns_of
from asterism.expressions.parsing import parse
from asterism.operators.evolution import FIXED, aligned
from asterism.operators.group_header import GroupHeader
from asterism.operators.key_group import LATE, Group, KeyGroupOperator, complete, key_schema_of, late_table
from asterism.operators.operator import EVENTS, Arrival, InputSpec
from asterism.operators.pages import PAGE, fixed_pages_of
from asterism.operators.state_definition import OperatorKind, StateDefinition
from asterism.operators.state_store import (
    StateStore,
    additions_from_bytes,
    tables_from_bytes,
    tables_to_bytes,
    with_additions,
)
from asterism.operators.stream_operator import Counter, Gauge, Histogram, Output, declared_in
from asterism.windows.arguments import duration
from asterism.windows.assigners import GlobalWindows, SessionWindows, Windows
from asterism.windows.evictors import BuiltInEvictor, Evictor
from asterism.windows.firing import WindowCall
from asterism.windows.folds import Fold, Folding
from asterism.windows.panes import DISTANCE, TIMES, Partials, Reduction
from asterism.windows.plan import (
    CLOSING,
    COUNTED,
    DISTANCES,
    FIRINGS,
    GAP,
    ON_TIME,
    UNFIRED,
    WindowFunction,
    WindowPlan,
)
from asterism.windows.process_function import ProcessWindowFunction, states_of
from asterism.windows.session_ids import IDS, REPLACES, SESSION_COLUMNS, SESSION_ID
from asterism.windows.stored_windows import PANES
from asterism.windows.trigger_table import CallPhase, trigger_table_of
from asterism.windows.triggers import (
    BuiltIn,
    ContinuousProcessingTimeTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    Trigger,
    check_event_time,
    check_lateness,
    check_merging,
    check_trigger,
    walk,
)
from asterism.windows.user_functions import failed

LATE_ELEMENTS = "late"
"""The output of late elements."""
BEHIND = "behind"
"""Input name of ready elements that were behind the watermark on arrival."""
LONGEST_GAP = 10**11
"""The longest gap of a session, in seconds: three thousand years."""
WINDOW_START, WINDOW_END, FIRING, KIND, IS_LAST = "window_start", "window_end", "firing", "kind", "is_last"
OWN_COLUMNS = (WINDOW_START, WINDOW_END, FIRING, KIND, IS_LAST)
PROCESSING_TIME = TimeColumn("processing time", pa.timestamp("us", "UTC"))


class WindowOperator(KeyGroupOperator):
    """Windows over one input.

    Exactly one of *measures*, *reduce* and *fold* defines the result of a firing, or *function*, which may also follow one of
    them. Each row of the output FIRINGS has the key, the window (NULL for a global one), the number of the firing from 1, its
    kind ("early", "on_time", "late"), whether it is the last firing of the window, lateness included, and the results.

    :param windows: the window assigner
    :param schema: the columns of the elements
    :param keys: the key columns; none: all elements have one key
    :param time: the event-time column; None: processing time
    :param trigger: when a window fires; default: at its end
    :param lateness: how long a window is kept after its end, in event time
    :param measures: Spark SQL aggregates, such as ``sum(price) AS total``
    :param function: takes the elements of the window (:class:`pyarrow.Table`) and the window
        (:class:`~asterism.windows.triggers.TimeSpan`), and returns a table, a DataFrame, a dict or a list of dicts with the
        columns *output*. After *measures*, *reduce* or *fold*, it takes their result instead of the elements: a table with one
        row, with the key.
    :param output: those columns, as Spark SQL or an Arrow schema
    :param reduce: combines two elements (dicts) into one: the results are the columns of the elements
    :param fold: aggregates the elements with an accumulator: the results are its columns
    :param evictor: removes elements when the window fires
    :param late_output: whether there is an output for late elements
    :param in_order: elements wait until the watermark passes them, and are processed in the order of their times
    :param pages: a fixed number of pages of state per key group; None: as many as the size of the state requires
    :param closing: what happens when a window is dropped: one of CLOSING
    :param on_time: whether a window without contents fires on time: one of ON_TIME
    :param session_ids: whether the rows of session windows have the columns ``session_id`` and ``replaces``
    :raises StreamDefinitionError: the arguments do not match
    :raises ExpressionError: an expression does not match the columns of the elements

    >>> from asterism.testing import OperatorHarness
    >>> from asterism.windows.triggers import CountTrigger
    >>> from asterism.windows.assigners import TumblingWindows
    >>> operator = WindowOperator(
    ...     TumblingWindows.of(timedelta(seconds=10)), pa.schema({"who": "string", "ts": "int64", "n": "int64"}), keys=["who"],
    ...     time="ts", measures=["sum(n) AS total"],
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
        lateness: timedelta = timedelta(0),
        measures: Sequence[str] | None = None,
        function: WindowFunction | None = None,
        output: str | pa.Schema | None = None,
        reduce: Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]] | None = None,
        fold: Fold | None = None,
        evictor: Evictor | None = None,
        late_output: bool = False,
        in_order: bool = False,
        pages: int | None = None,
        closing: str = "drop",
        on_time: str = "fire_if_non_empty",
        session_ids: bool = False,
    ) -> None:
        _check_windows(windows)
        expect(
            StreamDefinitionError,
            schema,
            pa.Schema,
            "the schema of a stream must be a pyarrow.Schema",
            'pa.schema({"ts": "int64"})',
        )
        expect_strings(StreamDefinitionError, keys, "keys must be a list of columns", 'keys=["user"]')
        expect(StreamDefinitionError, time, str | None, "the event time must be a column or None", 'time="ts"')
        self.set_pages(pages)
        self.windows = windows
        self.schema = schema
        self.keys = list(keys)
        self.wants_late = late_output
        self.in_order = in_order
        self.time = PROCESSING_TIME if time is None else _time_column(schema, time)
        self._is_event_time = time is not None
        check_zone(windows, self.time)
        for key in keys:
            _column(schema, key, "key")
        self.trigger = _checked_trigger(windows, trigger, self._is_event_time)
        self.lateness = _checked_lateness(lateness, self._is_event_time)
        if not self.lateness and not windows.is_global:
            check_lateness(self.trigger)
        if in_order and not self._is_event_time:
            raise StreamDefinitionError("in_order needs an event time: in processing time, elements arrive in order")
        self.table = trigger_table_of(self.trigger)
        self.evictor = evictor
        _check_evictor(evictor)

        self.closing = _choice("closing", closing, CLOSING)
        self.always_on_time = _choice("on_time", on_time, ON_TIME) > 0
        expect(StreamDefinitionError, session_ids, bool, "session_ids must be True or False")
        self.session_ids = session_ids
        if session_ids and not windows.merges:
            raise StreamDefinitionError(
                "only session windows have session ids",
                f"In: {windows!r}\nOther windows are identified by their key, start and end.",
                "SessionWindows.with_gap(timedelta(minutes=30)), or remove session_ids",
            )

        self.vectorized = Vectorized(schema)
        self._distances = [self._number(text, "DeltaTrigger.of") for text in self.table.distances]
        own = evictor is not None and evictor.is_user_defined
        evicts_by = (
            evictor.distance if isinstance(evictor, BuiltInEvictor) and isinstance(evictor.distance, str) else None
        )
        self._evicts_by = None if evicts_by is None else self._number(evicts_by, "Evictor.delta")
        gap = windows.dynamic_gap if isinstance(windows, SessionWindows) else None
        self._gap_text = self._gap_expression(gap) if isinstance(gap, str) else None
        self._gap_function = gap if callable(gap) else None

        self._choose(measures, function, output, reduce, fold)
        self.calls_python = bool(self.table.user_defined)
        everything = late_output or self.calls_python or own or callable(getattr(evictor, "distance", None))
        self.kept_columns = [name for name in schema.names if everything or name in self._needed]
        self._element_fields = [schema.field(name).with_name("e:" + name) for name in self.kept_columns]
        self._make_schemas()
        self.plan = self._plan()
        self.processing_time = not self._is_event_time or any(map(_needs_processing_time, walk(self.trigger)))
        # What earlier releases do not know is left out if it is not used: their state continues.
        added = [f"closing={closing}"] if closing != "drop" else []
        added += ["always on time"] if self.always_on_time else []
        added += ["session ids"] if session_ids else []
        added += [repr(fold)] if fold is not None else []
        added += [repr(self.plan.states)] if self.plan.states else []
        definition = repr(
            (
                windows, self.trigger, self.lateness, measures, _named(function), _named(reduce), str(self.result_schema),
                evictor, in_order, self.keys, Described(self.time), self.pages, str(self.inputs[EVENTS].prepared), *added,
            )
        )  # fmt: skip
        self.fingerprint = hashlib.sha256(definition.encode()).digest()[:16]

    @property
    def definition(self) -> StateDefinition:
        schemas, of_states = self.plan.page_schemas, self.plan.state_schemas
        count = len(schemas) - len(of_states)
        tables = dict(zip(("seen", PANES, "rows"), schemas[:count], strict=False)) | of_states
        return StateDefinition(
            OperatorKind.WINDOWS,
            pa.schema([self.schema.field(name) for name in self.keys]),
            tables,
            {name: spec.prepared for name, spec in self.inputs.items()},
            {
                "lateness": self.lateness, "partials": self._partial_names, FIXED: self._fixed,
                **({"kinds": {name: spec.kind.value for name, spec in self.plan.states.items()}} if self.plan.states else {}),
            },
        )  # fmt: skip

    @property
    def _partial_names(self) -> list[str]:
        """The meaning of each partial of a pane, independent of its position."""
        return [] if self.partials is None else self.partials.computation.partial_names

    @property
    def _fixed(self) -> dict[str, str]:
        contents = "aggregates"
        if self.partials is None:
            contents = "the elements of each window"
        elif isinstance(self.computation, Reduction):
            contents = "one element of each window"
        elif isinstance(self.computation, Folding):
            contents = f"an accumulator of each window: {', '.join(map(str, self.computation.fields))}"
        return {
            "the windows": repr(self.windows),
            # Counts, delays, intervals and thresholds can change.
            "the trigger": re.sub(r"\d+(\.\d+)?", "…", repr(self.trigger)),
            "what the trigger compares": ", ".join(self.table.distances) or "nothing",
            "what the evictor compares": repr(getattr(self.evictor, "distance", None))
            if self._evicts_by is not None
            else "nothing",
            "what the state contains": contents,
            "the event time": repr(Described(self.time)),
            "in_order": str(self.in_order),
            "the key": ", ".join(self.keys) or "none",
            "the use of processing time": str(self.processing_time),
            "pages": str(self.pages),
        }

    def converted(self, old: StateDefinition, page: bytes) -> bytes:
        found = dict(zip(old.tables, tables_from_bytes(page, list(old.tables.values())), strict=True))
        panes = found[PANES]
        found[PANES] = panes.drop_columns([name for name in panes.column_names if name.startswith("p:")])
        new = {
            name: aligned(found[name], schema) if name in found else schema.empty_table()
            for name, schema in self.definition.tables.items()
        }
        if self.partials is not None:
            new[PANES] = self.partials.continued(panes, old.details["partials"], new[PANES])
        return with_additions(tables_to_bytes(list(new.values())), additions_from_bytes(page, len(old.tables)))

    def evolved(self, store: StateStore, header: GroupHeader, old: StateDefinition) -> None:
        # The trigger or the lateness may have changed, so that windows are due at other times.
        header.next_event_times[header.exists] = BEFORE_TIME

    def open(self) -> None:
        if isinstance(self.function, ProcessWindowFunction):
            try:
                self.function.open()
            except Exception as error:
                raise failed(f"{type(self.function).__name__}.open", error) from error
            self._is_open = True

    def close(self) -> None:
        if self._is_open and isinstance(self.function, ProcessWindowFunction):
            self._is_open = False
            self.function.close()

    # ------------------------------------------------------------------ definition

    def _choose(
        self,
        measures: Sequence[str] | None,
        function: WindowFunction | None,
        output: str | pa.Schema | None,
        reduce: Any,
        fold: Fold | None,
    ) -> None:
        """Set up the computation, which defines the contents of state."""
        given = sum(what is not None for what in (measures, reduce, fold))
        if given > 1 or (not given and function is None):
            raise StreamDefinitionError(
                "exactly one of measures, a function, a reduce function and a fold is required",
                hint='measures=["count(*) AS n", "sum(amount) AS total"]',
            )
        if (function is None) != (output is None):
            raise StreamDefinitionError(
                "a window function requires output columns, and only a window function can have them",
                hint='output="n BIGINT, mean DOUBLE"',
            )
        if function is not None and not (callable(function) or isinstance(function, ProcessWindowFunction)):
            raise StreamDefinitionError(f"the window function cannot be called: {function!r}")
        self.function = function
        self._is_open = False
        self.partials: Partials | None = None
        self.computation: Aggregates | Reduction | Folding | None = None
        self._needed = set(self.schema.names)
        if reduce is not None:
            if not callable(reduce):
                raise StreamDefinitionError(f"the reduce function cannot be called: {reduce!r}")
            self.computation = Reduction(reduce, self.schema)
        elif fold is not None:
            expect(StreamDefinitionError, fold, Fold, "fold must be a Fold", 'Fold("n BIGINT", {"n": 0}, add)')
            if fold.merge is None and self.windows.merges:
                raise StreamDefinitionError(
                    "a fold of session windows needs a function that merges accumulators",
                    "Sessions merge, and each has an accumulator.",
                    "Fold(..., merge=lambda a, b: {...})",
                )
            self.computation = Folding(fold, list(self.schema.names))
        elif measures is not None:
            self.computation = Aggregates(_checked_measures(measures, self.keys), self.schema)
        if self.computation is not None:
            self._needed = {*self.computation.read, *self.computation.kept_columns}
            if not self.computation.kept_columns and self.evictor is None:
                self.partials = Partials(self.computation)
        if output is not None:
            self.result_schema = schema_of(output)
        else:
            assert self.computation is not None
            self.result_schema = pa.schema(self.computation.fields)
        # A reduced element is an element and contains its key.
        is_element = reduce is not None and function is None
        self.result_names = [name for name in self.result_schema.names if not (is_element and name in self.keys)]
        own = [*OWN_COLUMNS, *(SESSION_COLUMNS if self.session_ids else ())]
        of_stream = [*own, *self.keys, *(self.result_names if is_element else [])]
        _check_alike(of_stream, "rename the column of the stream: df.withColumnRenamed({0!r}, {1!r})", own)
        if not is_element:
            where = "use another name: sum(amount) AS total" if function is None else "use another name in the schema"
            _check_alike([*of_stream, *self.result_names], where, own)
        if function is not None and self.computation is not None and reduce is None:
            _check_alike([*self.keys, *(one.name for one in self.computation.fields)], "use another name")

    def _make_schemas(self) -> None:
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
                *([pa.field(DISTANCE, pa.float64())] if self._evicts_by is not None else []),
                *self._element_fields,
            ]
        )
        self.inputs = {EVENTS: InputSpec(self._read_columns(), prepared, timed=self._is_event_time)}
        moment = self.time.written
        self.output_schemas = {
            FIRINGS: pa.schema(
                [
                    *(self.schema.field(name) for name in self.keys),
                    pa.field(WINDOW_START, moment),
                    pa.field(WINDOW_END, moment),
                    pa.field(FIRING, pa.int64()),
                    pa.field(KIND, pa.string()),
                    pa.field(IS_LAST, pa.bool_()),
                    *([pa.field(SESSION_ID, pa.string()), pa.field(REPLACES, IDS)] if self.session_ids else []),
                    *(self.result_schema.field(name) for name in self.result_names),
                ]
            )
        }
        if self.wants_late:
            self.output_schemas[LATE_ELEMENTS] = self.schema
        if isinstance(self.function, ProcessWindowFunction):
            self._add_declared(type(self.function))
        self.pane_schema = pa.schema(
            [
                *self.key_schema,
                pa.field("start", pa.int64()),
                pa.field("end", pa.int64()),
                pa.field("firings", pa.int64()),
                pa.field("count", pa.int64()),
                pa.field("words", pa.list_(pa.int64(), len(self.table.initial))),
                *([pa.field("own", pa.string())] if self.calls_python else []),
                *(self.partials.kept if self.partials is not None else []),
            ]
        )
        # Rows need all kept columns and those of the late output: functions may read kept elements.
        distance = [pa.field(DISTANCE, pa.float64())] if self._evicts_by is not None else []
        self.row_schema = pa.schema([pa.field(TIMES, pa.int64()), *distance, *self._row_fields()])

    def _plan(self) -> WindowPlan:
        return WindowPlan(
            windows=self.windows,
            trigger=self.trigger,
            table=self.table,
            evictor=self.evictor,
            time=self.time,
            is_event_time=self._is_event_time,
            in_order=self.in_order,
            lateness=self.lateness,
            closing=self.closing,
            always_on_time=self.always_on_time,
            session_ids=self.session_ids,
            keys=tuple(self.keys),
            kept_columns=tuple(self.kept_columns),
            partials=self.partials,
            computation=self.computation,
            function=self.function,
            states=states_of(self.function),
            result_schema=self.result_schema,
            result_names=tuple(self.result_names),
            key_schema=self.key_schema,
            pane_schema=self.pane_schema,
            row_schema=self.row_schema,
            firing_schema=self.output_schemas[FIRINGS],
        )

    def _row_fields(self) -> list[pa.Field]:
        own = self.evictor is not None and (
            self.evictor.is_user_defined or callable(getattr(self.evictor, "distance", None))
        )
        return [field for field in self._element_fields if own or field.name[2:] in self._needed]

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
        if self._is_event_time:
            names.add(self.time.name)
        for text in self.vectorized.texts:
            names |= {self.schema.names[number] for number in columns_of(text)}
        if self._gap_function is not None:
            names |= set(self.schema.names)
        return pa.schema([field for field in self.schema if field.name in names])

    def _number(self, text: str, where: str) -> int:
        """Bind a numeric expression to the columns of the elements."""
        number = self._expression(text)
        found = self.vectorized.types[number]
        if not _is_number(found):
            raise ExpressionTypeError.at(
                f"{where}: the distance between elements must be a number, not {found}",
                text,
                hint="CAST it, or use a function",
            )
        return number

    def _gap_expression(self, text: str) -> int:
        number = self._expression(text)
        found = self.vectorized.types[number]
        if not (_is_number(found) or pa.types.is_duration(found)):
            raise ExpressionTypeError.at(
                f"SessionWindows.with_dynamic_gap: a gap must be an INTERVAL or a number of seconds, not {found}", text
            )
        return number

    def _expression(self, text: str) -> int:
        with ExpressionSyntaxError.if_too_deep(text):
            return self.vectorized.add(Scope(self.schema).resolve(parse(text), text), text)

    # ------------------------------------------------------------------ before the exchange

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        """The columns that windows, triggers and results need."""
        count = events.num_rows
        full = complete(events, self.schema)
        columns: list[Any] = [full.column(key) for key in self.keys] or [pa.array(np.zeros(count, np.int8))]
        columns.append(self._times(full))
        if self.pages > 1:
            columns.append(fixed_pages_of(events, self.pages))
        values = self.vectorized.evaluate(full) if self.vectorized.texts else []
        if self._gap_text is not None:
            columns.append(_gaps(values[self._gap_text]))
        elif self._gap_function is not None:
            columns.append(_gaps(_called(self._gap_function, full)))
        numbers = [*self._distances, *([self._evicts_by] if self._evicts_by is not None else [])]
        columns += [values[number].cast(pa.float64(), safe=False) for number in numbers]
        columns += [full.column(column) for column in self.kept_columns]
        return pa.table(columns, schema=self.inputs[name].prepared)

    def _times(self, events: pa.Table) -> pa.ChunkedArray | pa.Array:
        if not self._is_event_time:
            return pa.array(np.zeros(events.num_rows, np.int64))
        return self.time.of_events(
            events,
            lenient=self.wants_late,
            what="elements",
            detail="An element without a time belongs to no window.",
            hint=f"drop the elements in which {self.time.name} IS NULL, or write the late output in the same run",
        )

    # ------------------------------------------------------------------ with state

    def late(self, group: Group, name: str, events: pa.Table) -> None:
        group.metrics[LATE] += events.num_rows
        if self.wants_late:
            group.emit(LATE_ELEMENTS, late_table(self.schema, events))

    def ready_events_of(
        self, group: Group, number: int, name: str, tables: list[pa.Table], before: int
    ) -> list[pa.Table]:
        """Nothing is late yet: that depends on the windows. In order, elements wait until the watermark has passed them."""
        if tables:
            arrived = pa.concat_tables(tables)
            timeless = arrived.column(TIME).to_numpy() == NO_TIME
            if timeless.any():
                self.late(group, name, arrived.filter(pa.array(timeless)))
                arrived = arrived.filter(pa.array(~timeless))
            tables = [arrived]
        return super().ready_events_of(group, number, name, tables, before) if self.in_order else tables

    def processing_time_of(self, group: Group) -> int:
        """The processing time, for windows in event time. The end of the input does not advance processing time, so elements that
        wait until then are processed at the processing time of the previous call.
        """
        return int(group.header.last_activity[0])

    def ready_events(self, group: Group, arrivals: Sequence[Arrival], before: int) -> dict[str, pa.Table]:
        if group.processing_time != END_OF_TIME:
            group.header.last_activity[0] = group.processing_time
        elif group.header.last_activity[0] == END_OF_TIME:  # there was no previous call
            group.header.last_activity[0] = 0
        if not self.in_order:
            return super().ready_events(group, arrivals, before)
        behind, others = [self.inputs[EVENTS].prepared.empty_table()], []
        for arrival in arrivals:
            if arrival.events is None:
                continue
            times = arrival.events.column(TIME).to_numpy()
            passed = (times <= before) & (times != NO_TIME)
            behind.append(arrival.events.filter(pa.array(passed)))
            others.append(replace(arrival, events=arrival.events.filter(pa.array(~passed))))
        ready = super().ready_events(group, others, before)
        late = pa.concat_tables(behind)
        return ready | ({BEHIND: late} if late.num_rows else {})

    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> None:
        events = ready.get(EVENTS, self.inputs[EVENTS].prepared.empty_table())
        times = events.column(TIME).to_numpy()
        watermarks = np.full(len(times), group.before, np.int64)
        stages = np.full(len(times), CallPhase.ELEMENTS, np.int64)
        if self.in_order:
            behind = ready.get(BEHIND, events.slice(0, 0))
            events = events.take(pa.array(np.argsort(times, kind="stable")))
            times = events.column(TIME).to_numpy()
            # Some waited for a watermark that the host has since the previous call.
            earlier = int(np.searchsorted(times, group.before, side="right"))
            events = pa.concat_tables([events.slice(0, earlier), behind, events.slice(earlier)])
            late = np.arange(events.num_rows)
            late = (late >= earlier) & (late < earlier + behind.num_rows)
            times = events.column(TIME).to_numpy()
            watermarks = np.where(late, group.before, times - 1)
            before = times <= group.before
            stages = np.where(late, CallPhase.ELEMENTS, np.where(before, CallPhase.BEFORE, CallPhase.AFTER)).astype(
                np.int64
            )
        processing_time = self.processing_time_of(group)
        WindowCall(
            self.plan,
            group,
            events.combine_chunks(),
            watermarks,
            stages,
            processing_time=processing_time,
            late=self.late,
        ).run()


# ---------------------------------------------------------------------- checks and conversions


def _check_windows(windows: object) -> None:
    if not isinstance(windows, Windows):
        raise StreamDefinitionError(
            f"not windows: {windows!r}",
            hint="TumblingWindows.of(timedelta(hours=1)), SlidingWindows, SessionWindows or GlobalWindows()",
        )
    name = type(windows).__name__
    if type(windows).assign is Windows.assign:
        raise StreamDefinitionError(
            f"the windows {name} have no method assign",
            hint="def assign(self, times): return np.arange(len(times)), times, times + 10_000_000",
        )
    if windows.is_user_defined and (windows.merges or windows.is_global):
        raise StreamDefinitionError(
            f"the windows {name} cannot merge or have no end",
            "Only SessionWindows merge, and only GlobalWindows have no end.",
            "remove merges and is_global; a gap of SessionWindows may be an expression or a function",
        )


def _check_evictor(evictor: object) -> None:
    if evictor is None:
        return
    if not isinstance(evictor, Evictor):
        raise StreamDefinitionError(f"not an evictor: {evictor!r}", hint="Evictor.count(100)")
    if evictor.is_user_defined and type(evictor).keeps is Evictor.keeps:
        raise StreamDefinitionError(
            f"the evictor {type(evictor).__name__} has no method keeps",
            hint="def keeps(self, elements, window): return [True] * elements.num_rows",
        )
    expect(StreamDefinitionError, evictor.after, bool, f"{type(evictor).__name__}.after must be True or False")


def _choice(name: str, value: object, choices: Sequence[str]) -> int:
    """The index of *value* in *choices*."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices[:-1])
        raise StreamDefinitionError(
            f'{name} must be {listed} or "{choices[-1]}", not {shown(value)}', hint=f'{name}="fire_if_non_empty"'
        )
    return choices.index(value)


def _check_alike(names: Sequence[str], hint: str, own: Sequence[str] = OWN_COLUMNS) -> None:
    """Refuse names that Spark treats as equal."""
    seen: dict[str, str] = {}
    for name in names:
        former = seen.get(name.lower())
        if former is not None:
            alike = repr(name) if former == name else f"{former!r} and {name!r}, which are equal in Spark"
            raise StreamDefinitionError(
                f"two columns of the result are named {alike}",
                f"A row has the key, {', '.join(own)}, and the computed columns.",
                hint.format(name, "event_" + name),
            )
        seen[name.lower()] = name


def _checked_measures(measures: object, keys: Sequence[str]) -> list[str]:
    example = '"count(*) AS n", "sum(amount) AS total"'
    if not isinstance(measures, list | tuple):
        raise StreamDefinitionError(f"measures must be a list of SQL strings, not {measures!r}", hint=f"[{example}]")
    if not measures:
        raise StreamDefinitionError("at least one measure is required", hint=example)
    for measure in measures:
        if not isinstance(measure, str):
            raise StreamDefinitionError(f"a measure must be an SQL string, not {measure!r}", hint=example)
        if measure.strip().strip("`").lower() in [key.lower() for key in keys]:
            raise StreamDefinitionError(
                f"the key {measure.strip()} is not a measure", hint="remove it: the result already contains the key"
            )
    return list(measures)


def _time_column(schema: pa.Schema, time: str) -> TimeColumn:
    _column(schema, time, "event time")
    return TimeColumn.of(time, schema)


def check_zone(windows: Windows, time: TimeColumn) -> None:
    """:raises StreamDefinitionError: the windows follow a time zone, and the time has none"""
    zone = getattr(windows, "zone", None)
    if zone is not None and pa.types.is_timestamp(time.type) and time.type.tz is None:
        raise StreamDefinitionError(
            f'the event-time column "{time.name}" has no time zone, so its windows cannot have one',
            f"In: {windows!r}\nIts days and months are those of its local times.",
            "remove the zone, or CAST the column to TIMESTAMP",
        )


def _checked_trigger(windows: Windows, trigger: Trigger | None, event: bool) -> Trigger:
    if trigger is None:
        if isinstance(windows, GlobalWindows):
            raise StreamDefinitionError(
                "a global window needs a trigger",
                "It has no end at which it could fire.",
                "CountTrigger.at_least(100), or NeverTrigger() if it must never fire",
            )
        return EventTimeTrigger.after_end_of_window() if event else ProcessingTimeTrigger.after_end_of_window()
    checked = check_trigger(trigger)
    if not event:
        check_event_time(checked)
    if windows.merges:
        check_merging(checked)
    return checked


def _checked_lateness(lateness: timedelta, event: bool) -> int:
    length = duration(lateness, "allowed lateness", zero=True)
    if length and not event:
        raise StreamDefinitionError(
            "windows in processing time have no allowed lateness",
            "An element's processing time is the time at which it arrives, so no element is late.",
            "remove it, or set the event-time column",
        )
    return micros(length)


def _needs_processing_time(part: Trigger) -> bool:
    if isinstance(part, BuiltIn):
        return isinstance(part, ProcessingTimeTrigger | ContinuousProcessingTimeTrigger)
    return type(part).on_processing_time is not Trigger.on_processing_time


def _column(schema: pa.Schema, name: str, what: str) -> pa.DataType:
    from asterism.errors import ColumnNotFoundError

    if name not in schema.names:
        raise ColumnNotFoundError.from_missing_and_available(name, schema.names, f"{what} column")
    return schema.field(name).type


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _gaps(values: Any) -> pa.Array:
    """Convert intervals or numbers of seconds to gaps in microseconds."""
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_duration(column.type):
        found = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    else:
        seconds = column.cast(pa.float64(), safe=False)
        known = pc.less(pc.abs(seconds), LONGEST_GAP)
        found = pc.round(pc.multiply(pc.if_else(known, seconds, 0.0), 1e6)).cast(pa.int64())
    found = pc.fill_null(found, 0)
    wrong = pc.or_(pc.less_equal(found, 0), pc.greater(found, LONGEST_GAP * 1_000_000))
    if pc.any(wrong).as_py():
        raise InvalidEventError(
            f"the gap of a session window must be positive and finite, not {column.filter(wrong)[0].as_py()}",
            "SessionWindows.with_dynamic_gap computes a gap for each element.",
            "COALESCE(gap, 60), or GREATEST(gap, 1)",
        )
    return found


def _called(function: Callable[[pa.Table], Any], events: pa.Table) -> Any:
    what = f"the gap function {function_name(function)}"
    try:
        answer = function(events)
    except Exception as error:
        raise failed(what, error) from error
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
