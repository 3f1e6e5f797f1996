"""Windows with triggers on Spark: say which windows, when they fire and what is computed, and take the results as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

from asterism.arguments import expect
from asterism.errors import StreamDefinitionError
from asterism.spark.batch import BATCH_GROUP, sorted_arrival
from asterism.spark.execution import Sink, check_run, run
from asterism.spark.host import NO_TIME, PROCESSING_TIME
from asterism.spark.keyed_stream import KeyedStream
from asterism.spark.row_schemas import arrow_schema, function_schema, quoted, zone_asked
from asterism.spark.stateful import (
    DEFAULT_KEY_GROUPS,
    Use,
    bounded,
    check_key_groups,
    hashed,
    key_group_of,
    output_of,
    packed,
    stateful,
)
from asterism.windows.assigners import Windows
from asterism.windows.evictors import Evictor
from asterism.windows.operator import LATE_ELEMENTS, WindowOperator
from asterism.windows.plan import EVENTS, FIRINGS, WindowFunction
from asterism.windows.triggers import Trigger

_Build = Callable[[pa.Schema], WindowOperator]
Reduce = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]
RESULT_ROWS, LATE_ROWS = "results", "late"
"""What :meth:`WindowedStream.run` can write."""
_OUTPUTS = {RESULT_ROWS: FIRINGS, LATE_ROWS: LATE_ELEMENTS}
_NOTHING: dict[str, Any] = {"measures": ["count(*) AS __elements"]}
"""Where only late elements are asked for, and to check all but what is computed."""


def window(
    stream: KeyedStream,
    windows: Windows,
    *,
    trigger: Trigger | None = None,
    allowed_lateness: timedelta = timedelta(0),
    evictor: Evictor | None = None,
    in_order: bool | None = None,
    key_groups: int = DEFAULT_KEY_GROUPS,
    pages: int = 1,
    drain: bool = False,
) -> WindowedStream:
    """Put the elements of *stream* into *windows*, which give results when their *trigger* says so.

    By the clock, a window fires with the first micro-batch that begins when it is due, also if no data flows: one trigger
    interval later at most, or one micro-batch, if that takes longer. In batch the clock stands still, at the time when the
    result was asked for.

    :param stream: its key may be empty: then there is one window at a time for all elements. Without a time, windows are in
        processing time. Elements with equal times are taken in the order of their arrival: there is no ``order_by``.
    :param windows: TumblingWindows, SlidingWindows, SessionWindows or GlobalWindows
    :param trigger: when a window fires; default: at its end
    :param allowed_lateness: how long after its end a window still takes elements, in event time; default: not at all
    :param evictor: drops elements when the window fires; default: all count
    :param in_order: streaming: elements wait until the watermark has passed them and are taken in the order of their times, so
        that results do not depend on micro-batches. If not, they are taken when they arrive: ``CountTrigger`` fires at once,
        not when the watermark has come. Default: in order, where the trigger asks for nothing but elements and event time. In
        batch always, where there is an event time.
    :param key_groups: into how many groups keys are hashed; fixed for the life of a checkpoint
    :param pages: pages of state per key group (streaming), likewise; more make small micro-batches over much state cheaper
    :param drain: streaming: this run ends the stream: with the trigger *available now*, one micro-batch takes all that is
        available, then every window ends. :meth:`WindowedStream.run` does that by itself.
    :raises StreamDefinitionError: these do not fit together: it says why, and what to do instead
    :raises ExpressionError, ColumnNotFoundError: an expression in the trigger, the windows or the evictor does not fit the stream

    Examples that run: docs/windows.md and examples/early_results.py. Source: FLIP-9; Flink's "Windows".
    """
    if not isinstance(stream, KeyedStream):
        raise StreamDefinitionError(
            f"windows are of a KeyedStream, not of a {type(stream).__name__}",
            hint='window(KeyedStream(df, key="user", time="ts"), ...)',
        )
    if stream.order_by:
        raise StreamDefinitionError(
            "the stream of a window has an order_by",
            "Windows take elements with equal times in the order of their arrival.",
            "leave it out; if the last element matters, max_by(price, number) says by what",
        )
    check_key_groups(key_groups)
    return WindowedStream(stream, windows, trigger, allowed_lateness, evictor, in_order, key_groups, pages, drain)


class WindowedStream:
    """Windows of a stream; what is computed of them is said last. Each DataFrame made here is a query of its own; :meth:`run`
    writes results and late elements from one query.

    A row of a result has the key columns; ``window_start`` and ``window_end``, of the type of the event time (NULL for global
    windows); ``firing``, the number of the window's firing, from 1; ``kind``, "early", "on_time" or "late"; ``is_last``: is
    the window over with this firing, allowed lateness included; and then what was computed.
    """

    def __init__(
        self,
        stream: KeyedStream,
        windows: Windows,
        trigger: Trigger | None,
        allowed_lateness: timedelta,
        evictor: Evictor | None,
        in_order: bool | None,
        key_groups: int,
        pages: int,
        drain: bool,
    ) -> None:
        self.stream = stream
        self.windows = windows
        self.trigger: Trigger | None = trigger
        self.allowed_lateness = allowed_lateness
        self.evictor = evictor
        self.key_groups, self.pages, self.drain = key_groups, pages, drain
        self.spark: SparkSession = stream.df.sparkSession
        self.schema = arrow_schema(self.spark, stream.df.schema, stream.time_unit)
        expect(StreamDefinitionError, in_order, bool | None, "in_order is True, False or None")
        self.in_order = bool(in_order)
        # Everything that is wrong but what is computed is said now, not when a result is asked for.
        operator = self._operator(_NOTHING, False, self.schema)
        self.trigger = operator.trigger
        if not stream.df.isStreaming:
            self.in_order = stream.time is not None
        elif in_order is None:
            self.in_order = stream.time is not None and not operator.processing_time

    def __repr__(self) -> str:
        order = ", in_order=True" if self.in_order else ""
        return f"WindowedStream({self.windows!r}, {self.trigger!r}{order})"

    # ------------------------------------------------------------------ results

    def __getattr__(self, name: str) -> NoReturn:
        """
        :raises AttributeError: always; of what DataFrames have it says what comes first
        """
        if not name.startswith("_") and hasattr(DataFrame, name):
            raise AttributeError(
                f"windows are no DataFrame yet, so they have no {name}(): say what is computed first, "
                f'window(...).aggregate("count(*) AS n").{name}(...)'
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def aggregate(self, *measures: str | Sequence[str]) -> DataFrame:
        """Aggregates of a window's elements, in Spark SQL: ``"sum(amount) AS total"``, ``"count(*) AS n"``. Sums, counts, minima
        and the like are kept, not the elements, where there is no evictor.

        :param measures: texts, or one list of them
        :raises ExpressionError: a measure is no aggregate of the stream's columns
        :raises StreamDefinitionError: there is none, or two columns have one name
        """
        whole = measures[0] if len(measures) == 1 and isinstance(measures[0], list | tuple) else measures
        return self._results_of({"measures": whole})

    def process(self, function: WindowFunction, schema: T.StructType | str) -> DataFrame:
        """Rows made by *function*, which is called once for each firing.

        :param function: takes the elements of the window, a :class:`pyarrow.Table`, and the window, a
            :class:`~asterism.windows.triggers.TimeSpan`; returns a table, a pandas DataFrame, a dict or a list of dicts with
            all of these columns and no others. While the query runs, what does not fit a column is an error, as is a failure.
        :param schema: the columns that it returns
        :raises StreamDefinitionError: it is no function, or two columns have one name
        """
        return self._results_of(self._processed(function, schema))

    def reduce(self, function: Reduce) -> DataFrame:
        """One element made of all by *function*, which takes two, as dicts, and returns one, with all their columns and no
        others. What is kept is one element.

        :raises StreamDefinitionError: it is no function, or a column of the stream has the name of one of the result
        """
        return self._results_of({"reduce": function})

    @property
    def late(self) -> DataFrame:
        """Elements that came when all their windows were over, and elements without a time, as they came in. In batch nothing
        is late.
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
        checkpoint: str | None = None,
        drain: bool = True,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> StreamingQuery | None:
        """Write ``results`` and ``late`` elements to sinks, computing once; as :meth:`asterism.PatternStream.run`.

        How many windows fired, early, on time and late, and how many elements were late, is in the query's progress, as the
        observation ``asterism``.

        :param aggregate: the measures of :meth:`aggregate`, a list or one text; or
        :param process: the function of :meth:`process`, with its *schema*; or
        :param reduce: that of :meth:`reduce`
        """
        check_run(sinks, checkpoint, drain, trigger, name)
        for output in sinks:
            if output not in _OUTPUTS:
                raise StreamDefinitionError(
                    f'windows have no output "{output}"', f"Their outputs: {', '.join(_OUTPUTS)}"
                )
        given = sum(what is not None for what in (aggregate, process, reduce))
        if given > 1 or (not given and RESULT_ROWS in sinks):
            raise StreamDefinitionError(
                "what is computed of a window is said once: aggregate, process or reduce",
                hint='run({"results": sink}, aggregate=["count(*) AS n", "sum(amount) AS total"])',
            )
        computed: dict[str, Any] = {}
        if aggregate is not None:
            computed = {"measures": [aggregate] if isinstance(aggregate, str) else aggregate}
        elif reduce is not None:
            computed = {"reduce": reduce}
        elif process is not None:
            computed = self._processed(process, schema)
        build = partial(self._operator, computed or _NOTHING, LATE_ROWS in sinks)
        operator = build(self.schema)
        return run(
            partial(self._results, build, operator),
            operator.output_schemas,
            {_OUTPUTS[output]: sink for output, sink in sinks.items()},
            streams=[self.stream],
            ends_by_itself=not operator.processing_time,
            checkpoint=checkpoint,
            drain=drain if trigger is None else self.drain,
            trigger=trigger,
            name=name,
            spark=self.spark,
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
            **computed,
        )

    def _results_of(self, computed: Mapping[str, Any]) -> DataFrame:
        return self._single(partial(self._operator, computed, False), FIRINGS)

    def _single(self, build: _Build, output: str) -> DataFrame:
        operator = build(self.schema)
        use = Use.as_dataframe(self.drain)
        return output_of(
            self._results(build, operator, use), output, operator.output_schemas[output], streams=[self.stream], use=use
        )

    def _results(self, build: _Build, operator: WindowOperator, use: Use) -> DataFrame:
        """Results as chunks, with the name of their output."""
        return self._streaming(build, operator, use) if self.stream.df.isStreaming else self._batch(operator)

    def _streaming(self, build: _Build, operator: WindowOperator, use: Use) -> DataFrame:
        stream = self.stream
        rows = hashed(stream.df, stream.keys, operator.inputs[EVENTS].schema.names)
        chunks = packed(stream, operator, EVENTS, rows, key_groups=self.key_groups, use=use)
        time_mode = PROCESSING_TIME if operator.processing_time else NO_TIME
        return stateful(
            self.spark, operator, [chunks], streams={EVENTS: stream}, use=use,
            zone=zone_asked(build, self.schema), key_groups=self.key_groups, time_mode=time_mode,
        )  # fmt: skip

    def _batch(self, operator: WindowOperator) -> DataFrame:
        """All elements by key group, in the order of their times: what is in memory is the open windows of one key group."""
        stream = self.stream
        group = key_group_of(stream.keys, self.key_groups)
        rows = stream.df.select(group.alias(BATCH_GROUP), *map(quoted, operator.inputs[EVENTS].schema.names))
        order = [] if stream.time is None else [quoted(stream.time)]
        return bounded(rows, order, operator, lambda rows: sorted_arrival(EVENTS, operator.prepare(EVENTS, rows)))
