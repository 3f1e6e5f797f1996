"""Windows with triggers: the function ``window`` and its results, on every host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Unpack, cast, overload

import pyarrow as pa

from asterism.arguments import expect, expect_options, expect_outputs
from asterism.errors import StreamDefinitionError
from asterism.live.live_options import SNAPSHOT_EVERY, LiveOptions, not_live
from asterism.operators.sink_functions import Sink
from asterism.operators.stream_operator import Output, declared_in
from asterism.spelling import PythonNames
from asterism.streams.hosts import module_of
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.pattern_stream import Rows
from asterism.streams.run_options import BeginOptions, RunOptions, check_use
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
from asterism.windows.triggers import Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T
    from pyspark.sql.streaming.query import StreamingQuery

    from asterism.live.engine import LiveEngine

Build = Callable[[pa.Schema], WindowOperator]


class RunContents(ResultOptions, BeginOptions, total=False):
    """The contents of the results of :meth:`WindowedStream.run`, and where its state begins."""


RESULT_ROWS, LATE_ROWS = "results", "late"
"""The outputs of :meth:`WindowedStream.run`."""
_OUTPUTS = {RESULT_ROWS: FIRINGS, LATE_ROWS: LATE_ELEMENTS}
_SHOWN = ("in_order", "closing", "on_time", "session_ids")
NO_CONTENTS: WindowOperatorOptions = {"measures": ["count(*) AS __elements"]}
"""A placeholder, if only late elements are requested, and to validate everything except the aggregates."""


@overload
def window(
    stream: KeyedStream[DataFrame],
    windows: Windows,
    *,
    trigger: Trigger | None = ...,
    allowed_lateness: timedelta = ...,
    in_order: bool | None = ...,
    key_groups: int | None = ...,
    drain: bool = ...,
    **options: Unpack[WindowOptions],
) -> WindowedStream[DataFrame]: ...


@overload
def window(
    stream: KeyedStream[Any],
    windows: Windows,
    *,
    trigger: Trigger | None = ...,
    allowed_lateness: timedelta = ...,
    in_order: bool | None = ...,
    key_groups: int | None = ...,
    drain: bool = ...,
    **options: Unpack[WindowOptions],
) -> WindowedStream[pa.Table]: ...


def window(
    stream: KeyedStream[Any],
    windows: Windows,
    *,
    trigger: Trigger | None = None,
    allowed_lateness: timedelta = timedelta(0),
    in_order: bool | None = None,
    key_groups: int | None = None,
    drain: bool = False,
    **options: Unpack[WindowOptions],
) -> WindowedStream[Any]:
    """Assign the elements of *stream* to *windows*, which fire according to their *trigger*.

    >>> import pyarrow as pa
    >>> from asterism import KeyedStream, TumblingWindows
    >>> sales = KeyedStream(pa.table({"ts": [1000, 2000, 61000], "price": [5, 4, 6]}), time="ts")
    >>> minutes = window(sales, TumblingWindows.of(timedelta(minutes=1)))
    >>> minutes.aggregate("sum(price) AS total").select(["window_start", "total"]).to_pylist()
    [{'window_start': 0, 'total': 9}, {'window_start': 60000, 'total': 6}]

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
        ``run`` keeps the number of the checkpoint. For a new checkpoint, it chooses four for each stateful task, at most 32,
        or more on a cluster with more cores. Without ``run``, there are 32.
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
    windowed: WindowedStream[Any] = module_of(stream.host, "windows").windowed_stream(
        stream, windows, trigger, allowed_lateness, in_order, key_groups, drain, options
    )
    return windowed


class WindowedStream(Generic[Rows], metaclass=PythonNames):
    """The windows of a stream, on which results are computed. Each DataFrame is a separate query; :meth:`run` writes results
    and late elements from one query.

    A row of a result has the key columns; ``window_start`` and ``window_end``, of the type of the event time (NULL for global
    windows); ``firing``, the number of the firing within the window, from 1; ``kind``, which is "early", "on_time" or "late";
    ``is_last``, whether the window, including its allowed lateness, ends with this firing; with session ids, ``session_id`` and
    ``replaces``; and the computed columns.
    """

    schema: pa.Schema
    """the columns of the elements"""
    _rows_class: type

    def __init__(
        self,
        stream: KeyedStream[Any],
        windows: Windows,
        trigger: Trigger | None,
        allowed_lateness: timedelta,
        in_order: bool | None,
        key_groups: int | None,
        drain: bool,
        options: WindowOptions,
    ) -> None:
        self.stream = stream
        self.windows = windows
        self.trigger: Trigger | None = trigger
        self.key_groups, self.drain = key_groups, drain
        self.allowed_lateness, self._options = allowed_lateness, options
        expect(StreamDefinitionError, in_order, bool | None, "in_order must be True, False or None")
        self.in_order = bool(in_order)

    def __repr__(self) -> str:
        spec = self._bound(partial(self._operator, NO_CONTENTS, False)).spec
        options = [
            f", {field.name}={getattr(spec, field.name)!r}"
            for field in fields(spec)
            if field.name in _SHOWN and getattr(spec, field.name) != field.default
        ]
        return f"WindowedStream({self.windows!r}, {self.trigger!r}{''.join(options)})"

    # ------------------------------------------------------------------ what a host does

    @property
    @abstractmethod
    def is_streaming(self) -> bool:
        """Whether the stream is not a table."""

    @abstractmethod
    def _function_schema(self, schema: Any, hint: str) -> pa.Schema:
        """The schema of the columns that a user's function returns."""

    @abstractmethod
    def _bound(self, build: Build, measures: Any = None) -> WindowOperator:
        """The operator, for the columns of the stream and those that the host computes for its expressions."""

    @abstractmethod
    def _single(self, build: Build, output: str, measures: Any = None) -> Rows:
        """The rows of one output."""

    @abstractmethod
    def _run(
        self, build: Build, operator: WindowOperator, sinks: Mapping[str, Sink], options: RunOptions
    ) -> StreamingQuery | None:
        """Write the outputs of the operator to sinks."""

    # ------------------------------------------------------------------ results

    def __getattr__(self, name: str) -> NoReturn:
        """
        :raises AttributeError: always; for a name of its results, the message explains that an aggregate is needed first
        """
        if not name.startswith("_") and hasattr(self._rows_class, name):
            raise AttributeError(
                f"a windowed stream is not a table and has no {name}(): define the results first, as in "
                f'window(...).aggregate("count(*) AS n").{name}(...)'
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def aggregate(self, *measures: str | Sequence[str]) -> Rows:
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
        schema: T.StructType | pa.Schema | str,
        *,
        aggregate: Sequence[str] | str | None = None,
        reduce: Reduce | None = None,
        fold: Fold | None = None,
        output: str = RESULT_ROWS,
    ) -> Rows:
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
        contents = _contents_of("process", process=function, aggregate=aggregate, reduce=reduce, fold=fold)
        contents["output"] = self._function_schema(schema, "process(function, schema='n BIGINT')")
        expect_outputs([output], [RESULT_ROWS, *_declared_outputs(function)])
        build = partial(self._operator, contents, False)
        return self._single(build, _OUTPUTS.get(output, output), contents.get("measures"))

    def fold(self, fold: Fold) -> Rows:
        """Aggregate the elements of a window with functions of your own: the result is the accumulator. The state has a single
        row per window.

        :raises StreamDefinitionError: *fold* is not a :class:`asterism.Fold`, or has no ``merge``, for session windows
        """
        return self._results_of({"fold": fold})

    def reduce(self, function: Reduce) -> Rows:
        """Combine all elements of a window into one with *function*. It takes two elements, as dicts, and returns one with
        exactly the same columns. The state has a single element per window.

        :raises StreamDefinitionError: *function* is not callable, or a column of the stream has the name of a result column
        """
        return self._results_of({"reduce": function})

    @property
    def late(self) -> Rows:
        """Elements that arrived after all their windows had ended, and elements without a time, with the columns of the
        input. In batch, no element is late.
        """
        return self._single(partial(self._operator, NO_CONTENTS, True), LATE_ELEMENTS)

    # ------------------------------------------------------------------ several outputs, one query

    def run(
        self,
        sinks: Mapping[str, Sink],
        *,
        schema: T.StructType | pa.Schema | str | None = None,
        checkpoint: str | None = None,
        drain: bool | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        from_savepoint: str | None = None,
        **contents: Unpack[RunContents],
    ) -> StreamingQuery | None:
        """Write the outputs ``results`` and ``late``, and those that a window function declares, to sinks. They are computed
        only once, as in :meth:`asterism.PatternStream.run`.

        The query's progress has the numbers of early, on-time and late firings, of late elements, and of elements that were
        dropped with their window before they were in a firing (``unfired_elements``), in the observation ``asterism``.

        Exactly one of *aggregate*, *reduce*, *fold* and *process* is required for ``results``; *process* may also follow one of
        the others.

        :param schema: the columns that *process* returns
        :param contents: ``aggregate``, ``process``, ``reduce``, ``fold``: see :class:`~asterism.windows.spec.ResultOptions`;
            ``history``, ``history_until``, ``allow_changed``: see :class:`~asterism.streams.run_options.BeginOptions`
        """
        expect_options("run", contents, RunContents)
        begin = {name: contents[name] for name in BeginOptions.__annotations__ if name in contents}  # type: ignore[literal-required]
        of_results = {name: value for name, value in contents.items() if name not in begin}
        options = RunOptions.checked(
            sinks,
            checkpoint,
            drain,
            trigger,
            name,
            with_trigger=self.drain,
            key_groups=self.key_groups,
            from_savepoint=from_savepoint,
        ).begun(begin)
        build, operator = self._of_outputs("run", sinks, cast("ResultOptions", of_results), schema)
        sinks = {_OUTPUTS.get(output, output): sink for output, sink in sinks.items()}
        return self._run(build, operator, sinks, options)

    # ------------------------------------------------------------------ a live engine

    def open(
        self,
        folder: str | PathLike[str] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        schema: pa.Schema | str | None = None,
        sinks: Mapping[str, Sink] | None = None,
        snapshot_every: timedelta | int | None = SNAPSHOT_EVERY,
        **contents: Unpack[ResultOptions],
    ) -> LiveEngine:
        """Open a live engine for the stream of a schema, without Spark, as :meth:`asterism.PatternStream.open`.

        :param folder, sinks, snapshot_every: as there
        :param outputs: the outputs that calls return. Default: those of *sinks*, or else ``results``
        :param schema, contents: as for :meth:`run`
        :raises StreamDefinitionError: an argument is invalid, or the stream is a table or a DataFrame
        :raises StateError: the folder has the state of another query, is in use, or cannot be used
        """
        expect_options("open", contents, ResultOptions)
        options = LiveOptions.of(folder, outputs, sinks, snapshot_every)
        names = options.outputs or [RESULT_ROWS]
        _, operator = self._of_outputs("open", names, contents, schema)
        return self._open(operator, options, {_OUTPUTS.get(name, name): name for name in names})

    def _open(self, operator: WindowOperator, options: LiveOptions, names: Mapping[str, str]) -> LiveEngine:
        """A live engine with this operator.

        :param names: the outputs by their names in the operator
        """
        raise not_live()

    # ------------------------------------------------------------------ operators

    def _of_outputs(
        self, method: str, outputs: Collection[str], contents: ResultOptions, schema: Any
    ) -> tuple[Build, WindowOperator]:
        """The operator with these outputs.

        :param method: that of the user, for hints
        """
        expect_outputs(outputs, [*_OUTPUTS, *_declared_outputs(contents.get("process"))])
        computed = _contents_of(method, **contents)
        if contents.get("process") is not None:
            computed["output"] = self._function_schema(schema, f"{method}(..., process=function, schema='n BIGINT')")
        if not computed and RESULT_ROWS in outputs:
            raise _no_result(method)
        build = partial(self._operator, computed or NO_CONTENTS, LATE_ROWS in outputs)
        return build, self._bound(build, computed.get("measures"))

    def _operator(self, contents: WindowOperatorOptions, late: bool, schema: pa.Schema) -> WindowOperator:
        stream = self.stream
        options: WindowOperatorOptions = {
            **self._options,
            **contents,
            "lateness": self.allowed_lateness,
            "in_order": self.in_order,
            "late_output": late,
        }
        if not self.is_streaming:
            options["pages"] = 1
        return WindowOperator(self.windows, schema, keys=stream.keys, time=stream.time, trigger=self.trigger, **options)

    def _results_of(self, contents: WindowOperatorOptions) -> Rows:
        return self._single(partial(self._operator, contents, False), FIRINGS, contents.get("measures"))


def _declared_outputs(function: WindowFunction | None) -> list[str]:
    """The names of the outputs of a window function."""
    return list(declared_in(type(function), Output)) if isinstance(function, ProcessWindowFunction) else []


def _contents_of(method: str, **options: Unpack[ResultOptions]) -> WindowOperatorOptions:
    """The contents of a firing, of which only one can be computed without the elements.

    :param method: that of the user, for the hint
    """
    if sum(options.get(name) is not None for name in ("aggregate", "reduce", "fold")) > 1:
        raise _no_result(method)
    return operator_results(options)


def _no_result(method: str) -> StreamDefinitionError:
    first = {"run": '{"results": sink}, ', "process": "function, schema, "}.get(method, "")
    return StreamDefinitionError(
        "exactly one of aggregate, reduce and fold is required, or process, which may follow one of them",
        hint=f'{method}({first}aggregate=["count(*) AS n", "sum(amount) AS total"])',
    )
