"""Windows with triggers on Spark: define windows, triggers and aggregates, and get the results as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

from asterism.arguments import expect, expect_options, expect_outputs
from asterism.errors import StreamDefinitionError
from asterism.expressions.aggregates import FUNCTIONS
from asterism.expressions.parts_for_spark import Expression
from asterism.operators.operator import EVENTS, Arrival
from asterism.operators.stream_operator import Output, declared_in
from asterism.spark.host.batch import BATCH_GROUP, sorted_arrival
from asterism.spark.host.column_types import arrow_schema, function_schema, zone_if_used, zone_of
from asterism.spark.host.computed_columns import ComputedColumns, has_computed, with_computed
from asterism.spark.host.execution import OperatorOutputs, Sink
from asterism.spark.host.host import NO_TIME, PROCESSING_TIME
from asterism.spark.host.keyed_stream import KeyedStream
from asterism.spark.host.stateful import Use, bounded, check_use, hashed, key_group_of, packed, stateful
from asterism.spelling import PythonNames
from asterism.text.printable import quoted_name
from asterism.windows.assigners import Windows
from asterism.windows.folds import Fold
from asterism.windows.operator import LATE_ELEMENTS, WindowOperator
from asterism.windows.plan import FIRINGS
from asterism.windows.process_function import ProcessWindowFunction
from asterism.windows.spec import (
    Reduce,
    ResultOptions,
    WindowFunction,
    WindowOperatorOptions,
    WindowOptions,
    operator_results,
)
from asterism.windows.triggers import DeltaTrigger, Trigger, walk

_Build = Callable[[pa.Schema], WindowOperator]
RESULT_ROWS, LATE_ROWS = "results", "late"
"""The outputs of :meth:`WindowedStream.run`."""
_OUTPUTS = {RESULT_ROWS: FIRINGS, LATE_ROWS: LATE_ELEMENTS}
_SHOWN = ("in_order", "closing", "on_time", "session_ids")
_NOTHING: WindowOperatorOptions = {"measures": ["count(*) AS __elements"]}
"""A placeholder, if only late elements are requested, and to validate everything except the aggregates."""


def window(
    stream: KeyedStream,
    windows: Windows,
    *,
    trigger: Trigger | None = None,
    allowed_lateness: timedelta = timedelta(0),
    in_order: bool | None = None,
    key_groups: int | None = None,
    drain: bool = False,
    **options: Unpack[WindowOptions],
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
    :param in_order: streaming: whether elements are buffered until the watermark has passed them and are then processed in
        the order of their times, so that results do not depend on micro-batches. Otherwise they are processed when they
        arrive: ``CountTrigger`` fires at once, not when the watermark has advanced. Default: True if the trigger depends only
        on elements and event time. In batch it is always True if there is an event time.
    :param key_groups: the number of key groups. It cannot change during the lifetime of a checkpoint. Default:
        ``run`` keeps that of the checkpoint, or chooses four for each stateful task, up to 32, or one for each core of a
        cluster; a DataFrame has 32.
    :param drain: whether this run ends the stream (streaming). With the trigger *available now*, a single micro-batch reads
        all available data, then every window ends. :meth:`WindowedStream.run` drains by default.
    :param options: ``evictor``, ``closing``, ``on_time``, ``session_ids`` and ``pages``: see
        :class:`~asterism.windows.spec.WindowOptions`
    :raises StreamDefinitionError: the arguments are incompatible; the message has the reason and an alternative
    :raises ExpressionError, ColumnNotFoundError: an expression in the trigger, the windows or the evictor does not fit the
        stream

    Runnable examples: docs/windows.md and examples/early_results.py. Source: FLIP-9; Flink's "Windows".
    """
    expect_options("window", options, WindowOptions)
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
    check_use(key_groups, drain)
    return WindowedStream(stream, windows, trigger, allowed_lateness, in_order, key_groups, drain, **options)


class WindowedStream(OperatorOutputs, metaclass=PythonNames):
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
        in_order: bool | None,
        key_groups: int | None,
        drain: bool,
        **options: Unpack[WindowOptions],
    ) -> None:
        self.stream = stream
        self.windows = windows
        self.trigger: Trigger | None = trigger
        self.key_groups, self.drain = key_groups, drain
        self.allowed_lateness, self._options = allowed_lateness, options
        self.spark: SparkSession = stream.df.sparkSession
        self.schema = arrow_schema(self.spark, stream.df.schema, stream.time_unit)
        self._computed = ComputedColumns(stream.df, self.schema)
        expect(StreamDefinitionError, in_order, bool | None, "in_order must be True, False or None")
        self.in_order = bool(in_order)
        # Validate everything except the aggregates now, not when a result is requested.
        operator = self._bound(partial(self._operator, _NOTHING, False))
        self.trigger = operator.spec.effective_trigger
        if not stream.df.isStreaming:
            self.in_order = stream.time is not None
        elif in_order is None:
            self.in_order = stream.time is not None and not operator.processing_time

    def __repr__(self) -> str:
        spec = self._bound(partial(self._operator, _NOTHING, False)).spec
        options = [
            f", {field.name}={getattr(spec, field.name)!r}"
            for field in fields(spec)
            if field.name in _SHOWN and getattr(spec, field.name) != field.default
        ]
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
        whole: Any = measures[0] if len(measures) == 1 and isinstance(measures[0], list | tuple) else measures
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
        contents = _contents_of(process=function, aggregate=aggregate, reduce=reduce, fold=fold)
        contents["output"] = self._output_of(schema)
        expect_outputs([output], [RESULT_ROWS, *_declared_outputs(function)])
        build = partial(self._operator, contents, False)
        return self._single(build, _OUTPUTS.get(output, output), contents.get("measures"))

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
        schema: T.StructType | str | None = None,
        checkpoint: str | None = None,
        drain: bool | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        **contents: Unpack[ResultOptions],
    ) -> StreamingQuery | None:
        """Write the outputs ``results`` and ``late``, and those that a window function declares, to sinks. They are computed
        only once, as in :meth:`asterism.PatternStream.run`.

        The query's progress has the numbers of early, on-time and late firings, of late elements, and of elements that were
        dropped with their window before they were in a firing (``unfired_elements``), in the observation ``asterism``.

        Exactly one of *aggregate*, *reduce*, *fold* and *process* is required for ``results``; *process* may also follow one of
        the others.

        :param schema: the columns that *process* returns
        :param contents: ``aggregate``, ``process``, ``reduce``, ``fold``: see :class:`~asterism.windows.spec.ResultOptions`
        """
        expect_options("run", contents, ResultOptions)
        options = self._run_options(sinks, checkpoint, drain, trigger, name)
        expect_outputs(sinks, [*_OUTPUTS, *_declared_outputs(contents.get("process"))])
        computed = _contents_of(**contents)
        if contents.get("process") is not None:
            computed["output"] = self._output_of(schema)
        if not computed and RESULT_ROWS in sinks:
            raise _no_result()
        build = partial(self._operator, computed or _NOTHING, LATE_ROWS in sinks)
        operator = self._bound(build, computed.get("measures"))
        sinks = {_OUTPUTS.get(output, output): sink for output, sink in sinks.items()}
        return self._write(operator, partial(self._results, build, operator), sinks, options)

    # ------------------------------------------------------------------ plans

    def _output_of(self, schema: T.StructType | str | None) -> pa.Schema:
        hint = "run(..., process=function, schema='n BIGINT')"
        return function_schema(self.spark, schema, hint)

    def _operator(self, contents: WindowOperatorOptions, late: bool, schema: pa.Schema) -> WindowOperator:
        stream = self.stream
        options: WindowOperatorOptions = {
            **self._options,
            **contents,
            "lateness": self.allowed_lateness,
            "in_order": self.in_order,
            "late_output": late,
        }
        if not stream.df.isStreaming:
            options["pages"] = 1
        return WindowOperator(self.windows, schema, keys=stream.keys, time=stream.time, trigger=self.trigger, **options)

    def _results_of(self, contents: WindowOperatorOptions) -> DataFrame:
        return self._single(partial(self._operator, contents, False), FIRINGS, contents.get("measures"))

    def _bound(self, build: _Build, measures: Any = None) -> WindowOperator:
        """The operator, for the columns of the stream and those that Spark computes for its expressions."""
        return self._computed.bind(build, self._expressions(measures))

    def _expressions(self, measures: Any) -> Iterator[Expression]:
        """The SQL of the windows, the trigger, the evictor and the measures."""
        triggers = [] if self.trigger is None else walk(self.trigger)
        deltas = [trigger.delta for trigger in triggers if isinstance(trigger, DeltaTrigger)]
        evictor, gap = self._options.get("evictor"), getattr(self.windows, "dynamic_gap", None)
        for text in (gap, *deltas, getattr(evictor, "distance", None)):
            if isinstance(text, str):
                yield Expression(text)
        for text in measures or ():
            yield Expression(text, aggregates=FUNCTIONS)

    def _single(self, build: _Build, output: str, measures: Any = None) -> DataFrame:
        operator = self._bound(build, measures)
        return self._as_dataframe(operator, partial(self._results, build, operator), output)

    def _results(self, build: _Build, operator: WindowOperator, use: Use) -> DataFrame:
        """Results as chunks, with the names of their outputs."""
        return self._streaming(build, operator, use) if self.stream.df.isStreaming else self._batch(operator, use)

    def _streaming(self, build: _Build, operator: WindowOperator, use: Use) -> DataFrame:
        stream = self.stream
        df = with_computed(stream.df, operator.schema)
        rows = hashed(df, stream.keys, operator.inputs[EVENTS].schema.names, stream)
        chunks = packed(stream, operator, EVENTS, rows, use=use)
        time_mode = PROCESSING_TIME if operator.processing_time else NO_TIME
        zone = zone_of(operator.schema) if has_computed(operator.schema) else zone_if_used(build, self.schema)
        return stateful(operator, [chunks], streams={EVENTS: stream}, use=use, zone=zone, time_mode=time_mode)

    def _batch(self, operator: WindowOperator, use: Use) -> DataFrame:
        """All elements, by key group and in time order. Memory usage is that of the open windows of one key group."""
        stream = self.stream
        group = key_group_of(stream.keys, use.key_groups)
        df = with_computed(stream.df, operator.schema)
        rows = df.select(group.alias(BATCH_GROUP), *map(quoted_name, operator.inputs[EVENTS].schema.names))
        order = [] if stream.time is None else [quoted_name(stream.time)]

        def sent(rows: pa.Table) -> list[Arrival]:
            return sorted_arrival(EVENTS, operator.prepare(EVENTS, rows))

        return bounded(rows, order, operator, sent, use=use)


def _declared_outputs(function: WindowFunction | None) -> list[str]:
    """The names of the outputs of a window function."""
    return list(declared_in(type(function), Output)) if isinstance(function, ProcessWindowFunction) else []


def _contents_of(**options: Unpack[ResultOptions]) -> WindowOperatorOptions:
    """The contents of a firing, of which only one can be computed without the elements."""
    if sum(options.get(name) is not None for name in ("aggregate", "reduce", "fold")) > 1:
        raise _no_result()
    return operator_results(options)


def _no_result() -> StreamDefinitionError:
    return StreamDefinitionError(
        "exactly one of aggregate, reduce and fold is required, or process, which may follow one of them",
        hint='run({"results": sink}, aggregate=["count(*) AS n", "sum(amount) AS total"])',
    )
