"""Windows with triggers on Spark: define windows, triggers and aggregates, and get the results as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

from asterism.arguments import expect, expect_outputs
from asterism.errors import StreamDefinitionError
from asterism.operators.operator import EVENTS, Arrival
from asterism.operators.stream_operator import Output, declared_in
from asterism.spark.batch import BATCH_GROUP, sorted_arrival
from asterism.spark.execution import RunOptions, Sink, run
from asterism.spark.host import NO_TIME, PROCESSING_TIME
from asterism.spark.keyed_stream import KeyedStream
from asterism.spark.row_schemas import arrow_schema, function_schema, zone_if_used
from asterism.spark.stateful import (
    Use,
    bounded,
    check_key_groups,
    hashed,
    key_group_of,
    output_of,
    packed,
    stateful,
)
from asterism.spelling import PythonNames
from asterism.text.printable import quoted_name
from asterism.windows.assigners import Windows
from asterism.windows.evictors import Evictor
from asterism.windows.folds import Fold
from asterism.windows.operator import LATE_ELEMENTS, WindowOperator
from asterism.windows.plan import FIRINGS, WindowFunction
from asterism.windows.process_function import ProcessWindowFunction
from asterism.windows.triggers import Trigger

_Build = Callable[[pa.Schema], WindowOperator]
Reduce = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]
RESULT_ROWS, LATE_ROWS = "results", "late"
"""The outputs of :meth:`WindowedStream.run`."""
_OUTPUTS = {RESULT_ROWS: FIRINGS, LATE_ROWS: LATE_ELEMENTS}
_DEFAULTS = (False, "drop", "fire_if_non_empty")
_NOTHING: dict[str, Any] = {"measures": ["count(*) AS __elements"]}
"""A placeholder, if only late elements are requested, and to validate everything except the aggregates."""


def window(
    stream: KeyedStream,
    windows: Windows,
    *,
    trigger: Trigger | None = None,
    allowed_lateness: timedelta = timedelta(0),
    evictor: Evictor | None = None,
    in_order: bool | None = None,
    key_groups: int | None = None,
    pages: int | None = None,
    drain: bool = False,
    closing: str = "drop",
    on_time: str = "fire_if_non_empty",
    session_ids: bool = False,
) -> WindowedStream:
    """Assign the elements of *stream* to *windows*, which fire according to their *trigger*.

    In processing time, a window fires in the first micro-batch that begins after the window is due, even without new data.
    The delay is at most one trigger interval, or one micro-batch if that takes longer. In batch, processing time is constant:
    the time at which the result was requested.

    :param stream: if its key is empty, windows contain the elements of the whole stream. If it has no time, windows are in
        processing time. Elements with equal times are processed in arrival order; ``order_by`` is not supported.
    :param windows: TumblingWindows, SlidingWindows, SessionWindows or GlobalWindows
    :param trigger: decides when a window fires. Default: at its end.
    :param allowed_lateness: how long after its end a window still accepts elements, in event time. Default: zero.
    :param evictor: removes elements when the window fires. Default: none.
    :param in_order: streaming: whether elements are buffered until the watermark has passed them and are then processed in
        the order of their times, so that results do not depend on micro-batches. Otherwise they are processed when they
        arrive: ``CountTrigger`` fires at once, not when the watermark has advanced. Default: True if the trigger depends only
        on elements and event time. In batch it is always True if there is an event time.
    :param key_groups: the number of key groups. It cannot change during the lifetime of a checkpoint. Default:
        ``run`` keeps that of the checkpoint, or chooses four for each stateful task, up to 32; a DataFrame has 32.
    :param pages: a fixed number of pages of state per key group (streaming), which cannot change either. Default: the number
        follows the size of the state. Needed only for a checkpoint that was created with a number.
    :param drain: whether this run ends the stream (streaming). With the trigger *available now*, a single micro-batch reads
        all available data, then every window ends. :meth:`WindowedStream.run` drains by default.
    :param closing: what happens when a window ends, allowed lateness included, and its trigger does not fire then.
        ``"drop"``: nothing; elements that have not been in a firing are dropped, and counted as ``unfired_elements``.
        ``"fire_if_non_empty"``: the window fires once more if there are such elements. ``"fire_always"``: it fires once more in
        any case, so each window has exactly one row with ``is_last``.
    :param on_time: ``"fire_always"``: if the trigger fires on time and the window is empty, because it is discarding and
        nothing is new, the window fires nevertheless. Default: ``"fire_if_non_empty"``.
    :param session_ids: session windows: whether results have the columns ``session_id`` and ``replaces``, with which a sink
        can keep one row per session although sessions merge. See docs/windows.md.
    :raises StreamDefinitionError: the arguments are incompatible; the message has the reason and an alternative
    :raises ExpressionError, ColumnNotFoundError: an expression in the trigger, the windows or the evictor does not fit the
        stream

    Runnable examples: docs/windows.md and examples/early_results.py. Source: FLIP-9; Flink's "Windows".
    """
    if not isinstance(stream, KeyedStream):
        raise StreamDefinitionError(
            f"window requires a KeyedStream, not a {type(stream).__name__}",
            hint='window(KeyedStream(df, key="user", time="ts"), ...)',
        )
    if stream.order_by:
        raise StreamDefinitionError(
            "the stream of a window has an order_by",
            "Windows receive elements with equal times in arrival order.",
            "remove it; to define the last element, use max_by(price, number)",
        )
    check_key_groups(key_groups)
    closed = {"closing": closing, "on_time": on_time, "session_ids": session_ids}
    return WindowedStream(
        stream, windows, trigger, allowed_lateness, evictor, in_order, key_groups, pages, drain, closed
    )


class WindowedStream(metaclass=PythonNames):
    """The windows of a stream, on which results are computed. Each DataFrame is a separate query; :meth:`run` writes results
    and late elements from one query.

    A row of a result has the key columns; ``window_start`` and ``window_end``, of the type of the event time (NULL for global
    windows); ``firing``, the number of the firing within the window, from 1; ``kind``, which is "early", "on_time" or "late";
    ``is_last``, whether the window, including its allowed lateness, ends with this firing; with session ids, ``session_id`` and
    ``replaces``; and the computed columns.
    """

    def __init__(
        self,
        stream: KeyedStream,
        windows: Windows,
        trigger: Trigger | None,
        allowed_lateness: timedelta,
        evictor: Evictor | None,
        in_order: bool | None,
        key_groups: int | None,
        pages: int | None,
        drain: bool,
        closed: Mapping[str, Any],
    ) -> None:
        self.stream = stream
        self.windows = windows
        self.trigger: Trigger | None = trigger
        self.allowed_lateness = allowed_lateness
        self.evictor = evictor
        self.key_groups, self.pages, self.drain = key_groups, pages, drain
        self._closed = closed
        self.spark: SparkSession = stream.df.sparkSession
        self.schema = arrow_schema(self.spark, stream.df.schema, stream.time_unit)
        expect(StreamDefinitionError, in_order, bool | None, "in_order must be True, False or None")
        self.in_order = bool(in_order)
        # Validate everything except the aggregates now, not when a result is requested.
        operator = self._operator(_NOTHING, False, self.schema)
        self.trigger = operator.trigger
        if not stream.df.isStreaming:
            self.in_order = stream.time is not None
        elif in_order is None:
            self.in_order = stream.time is not None and not operator.processing_time

    def __repr__(self) -> str:
        given = {"in_order": self.in_order} | dict(self._closed)
        options = [f", {name}={value!r}" for name, value in given.items() if value not in _DEFAULTS]
        return f"WindowedStream({self.windows!r}, {self.trigger!r}{''.join(options)})"

    # ------------------------------------------------------------------ results

    def __getattr__(self, name: str) -> NoReturn:
        """
        :raises AttributeError: always; for a name of a DataFrame, the message explains that an aggregate is needed first
        """
        if not name.startswith("_") and hasattr(DataFrame, name):
            raise AttributeError(
                f"a windowed stream is not a DataFrame and has no {name}(): define the results first, as in "
                f'window(...).aggregate("count(*) AS n").{name}(...)'
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def aggregate(self, *measures: str | Sequence[str]) -> DataFrame:
        """Aggregates of a window's elements, in Spark SQL: ``"sum(amount) AS total"``, ``"count(*) AS n"``. Without an
        evictor, the state has only the partial aggregates (sums, counts, minima), not the elements.

        :param measures: strings, or one list of strings
        :raises ExpressionError: a measure is not an aggregate of the stream's columns
        :raises StreamDefinitionError: there is no measure, or two columns have the same name
        """
        whole = measures[0] if len(measures) == 1 and isinstance(measures[0], list | tuple) else measures
        return self._results_of({"measures": whole})

    def process(
        self,
        function: WindowFunction,
        schema: T.StructType | str,
        *,
        aggregate: Sequence[str] | str | None = None,
        reduce: Reduce | None = None,
        fold: Fold | None = None,
        output: str = RESULT_ROWS,
    ) -> DataFrame:
        """Rows computed by *function*, which is called once for each firing.

        After *aggregate*, *reduce* or *fold*, at most one of which is given, the function gets their result instead of the
        elements: a table with one row, with the key columns. The state then has one row per window, not the elements.

        :param function: takes the elements of the window, a :class:`pyarrow.Table`, and the window, a
            :class:`~asterism.windows.triggers.TimeSpan`; returns a table, a pandas DataFrame, a dict or a list of dicts with
            exactly the columns of *schema*. The query fails if a value does not fit its column, or if the function raises.
        :param schema: the columns that the function returns
        :param aggregate: the measures of :meth:`aggregate`, a list or one string
        :param reduce: the function of :meth:`reduce`
        :param fold: the fold of :meth:`fold`
        :param output: "results", or an output that a :class:`asterism.ProcessWindowFunction` declares
        :raises StreamDefinitionError: *function* is not callable, or two columns have the same name

        Source: Flink's ``aggregate(AggregateFunction, ProcessWindowFunction)``.
        """
        first = _first_step(aggregate, reduce, fold)
        build = partial(self._operator, first | self._processed(function, schema), False)
        expect_outputs([output], [RESULT_ROWS, *_declared_outputs(function)])
        return self._single(build, _OUTPUTS.get(output, output))

    def fold(self, fold: Fold) -> DataFrame:
        """Aggregate the elements of a window with functions of your own: the result is the accumulator. The state has a single
        row per window.

        :raises StreamDefinitionError: *fold* is not a :class:`asterism.Fold`, or has no ``merge``, for session windows
        """
        return self._results_of({"fold": fold})

    def reduce(self, function: Reduce) -> DataFrame:
        """Combine all elements of a window into one with *function*. It takes two elements, as dicts, and returns one with
        exactly the same columns. The state has a single element per window.

        :raises StreamDefinitionError: *function* is not callable, or a column of the stream has the name of a result column
        """
        return self._results_of({"reduce": function})

    @property
    def late(self) -> DataFrame:
        """Elements that arrived after all their windows had ended, and elements without a time, with the columns of the
        input. In batch, no element is late.
        """
        return self._single(partial(self._operator, _NOTHING, True), LATE_ELEMENTS)

    # ------------------------------------------------------------------ several outputs, one query

    def run(
        self,
        sinks: Mapping[str, Sink],
        *,
        aggregate: Sequence[str] | str | None = None,
        process: WindowFunction | None = None,
        schema: T.StructType | str | None = None,
        reduce: Reduce | None = None,
        fold: Fold | None = None,
        checkpoint: str | None = None,
        drain: bool | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> StreamingQuery | None:
        """Write the outputs ``results`` and ``late``, and those that a window function declares, to sinks. They are computed
        only once, as in :meth:`asterism.PatternStream.run`.

        The query's progress has the numbers of early, on-time and late firings, of late elements, and of elements that were
        dropped with their window before they were in a firing (``unfired_elements``), in the observation ``asterism``.

        Exactly one of *aggregate*, *reduce*, *fold* and *process* is required for ``results``; *process* may also follow one of
        the others.

        :param aggregate: the measures of :meth:`aggregate`, a list or one string
        :param process: the function of :meth:`process`, with its *schema*
        :param reduce: the function of :meth:`reduce`
        :param fold: the fold of :meth:`fold`
        """
        options = RunOptions.checked(sinks, checkpoint, drain, trigger, name, with_trigger=self.drain)
        expect_outputs(sinks, [*_OUTPUTS, *_declared_outputs(process)])
        computed = _first_step(aggregate, reduce, fold)
        if process is not None:
            computed |= self._processed(process, schema)
        if not computed and RESULT_ROWS in sinks:
            raise _no_result()
        build = partial(self._operator, computed or _NOTHING, LATE_ROWS in sinks)
        operator = build(self.schema)
        return run(
            partial(self._results, build, operator),
            operator.output_schemas,
            {_OUTPUTS.get(output, output): sink for output, sink in sinks.items()},
            options=options,
            streams=[self.stream],
            ends_by_itself=not operator.processing_time,
            spark=self.spark,
            key_groups=self.key_groups,
            operator=operator,
        )

    # ------------------------------------------------------------------ plans

    def _processed(self, function: WindowFunction, schema: T.StructType | str | None) -> dict[str, Any]:
        hint = "run(..., process=function, schema='n BIGINT')"
        return {"function": function, "output": function_schema(self.spark, schema, hint)}

    def _operator(self, computed: Mapping[str, Any], late: bool, schema: pa.Schema) -> WindowOperator:
        stream = self.stream
        return WindowOperator(
            self.windows,
            schema,
            keys=stream.keys,
            time=stream.time,
            trigger=self.trigger,
            lateness=self.allowed_lateness,
            evictor=self.evictor,
            late_output=late,
            in_order=self.in_order,
            pages=self.pages if stream.df.isStreaming else 1,
            **self._closed,
            **computed,
        )

    def _results_of(self, computed: Mapping[str, Any]) -> DataFrame:
        return self._single(partial(self._operator, computed, False), FIRINGS)

    def _single(self, build: _Build, output: str) -> DataFrame:
        operator = build(self.schema)
        use = Use.as_dataframe(self.drain, output, self.key_groups)
        return output_of(
            self._results(build, operator, use), output, operator.output_schemas[output], streams=[self.stream], use=use
        )

    def _results(self, build: _Build, operator: WindowOperator, use: Use) -> DataFrame:
        """Results as chunks, with the names of their outputs."""
        return self._streaming(build, operator, use) if self.stream.df.isStreaming else self._batch(operator, use)

    def _streaming(self, build: _Build, operator: WindowOperator, use: Use) -> DataFrame:
        stream = self.stream
        rows = hashed(stream.df, stream.keys, operator.inputs[EVENTS].schema.names)
        chunks = packed(stream, operator, EVENTS, rows, use=use)
        time_mode = PROCESSING_TIME if operator.processing_time else NO_TIME
        return stateful(
            self.spark, operator, [chunks], streams={EVENTS: stream}, use=use,
            zone=zone_if_used(build, self.schema), time_mode=time_mode,
        )  # fmt: skip

    def _batch(self, operator: WindowOperator, use: Use) -> DataFrame:
        """All elements, by key group and in time order. Memory usage is that of the open windows of one key group."""
        stream = self.stream
        group = key_group_of(stream.keys, use.key_groups)
        rows = stream.df.select(group.alias(BATCH_GROUP), *map(quoted_name, operator.inputs[EVENTS].schema.names))
        order = [] if stream.time is None else [quoted_name(stream.time)]

        def sent(rows: pa.Table) -> list[Arrival]:
            return sorted_arrival(EVENTS, operator.prepare(EVENTS, rows))

        return bounded(rows, order, operator, sent, use=use)


def _declared_outputs(function: WindowFunction | None) -> list[str]:
    """The names of the outputs of a window function."""
    return list(declared_in(type(function), Output)) if isinstance(function, ProcessWindowFunction) else []


def _first_step(aggregate: Sequence[str] | str | None, reduce: Reduce | None, fold: Fold | None) -> dict[str, Any]:
    """The arguments of the operator for what is computed without keeping the elements.

    :raises StreamDefinitionError: there is more than one
    """
    measures = [aggregate] if isinstance(aggregate, str) else aggregate
    found = {"measures": measures, "reduce": reduce, "fold": fold}
    given = {name: value for name, value in found.items() if value is not None}
    if len(given) > 1:
        raise _no_result()
    return given


def _no_result() -> StreamDefinitionError:
    return StreamDefinitionError(
        "exactly one of aggregate, reduce and fold is required, or process, which may follow one of them",
        hint='run({"results": sink}, aggregate=["count(*) AS n", "sum(amount) AS total"])',
    )
