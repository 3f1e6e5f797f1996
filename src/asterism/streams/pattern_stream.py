"""The results of a pattern over a keyed stream, on every host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Unpack

import pyarrow as pa

from asterism.arguments import expect, expect_outputs, expect_strings, shown
from asterism.errors import StreamDefinitionError
from asterism.live.live_options import SNAPSHOT_EVERY, LiveOptions, not_live
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.matching.process_function import MatchFunction, MatchFunctionLike, PatternProcessFunction, ProcessSpec
from asterism.matching.spec import MatchOptions
from asterism.operators.sink_functions import Sink
from asterism.patterns.pattern import Pattern
from asterism.spelling import PythonNames
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.run_options import BeginOptions, RunOptions
from asterism.text.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T
    from pyspark.sql.streaming.query import StreamingQuery
    from typing_extensions import TypeVar

    from asterism.live.engine import LiveEngine
    from asterism.trace.timeline import Timeline

    Rows = TypeVar("Rows", default=DataFrame)
else:
    from typing import TypeVar

    Rows = TypeVar("Rows")


def _kind(output: Any) -> OutputKind:
    expect_outputs([output], [kind.value for kind in OutputKind])
    return OutputKind(output)


def check_measures(select: Any) -> None:
    """:raises StreamDefinitionError: these are not measures by output"""
    hint = 'select={"matches": ["COUNT(a.*) AS n"]}'
    expect(StreamDefinitionError, select, Mapping | None, "select must map outputs to measures", hint)
    for texts in (select or {}).values():
        expect_strings(StreamDefinitionError, texts, "measures must be a list of SQL strings", hint)


class PatternStream(View, Generic[Rows], metaclass=PythonNames):
    """The results of a pattern applied to a stream. They are DataFrames of Spark, or Arrow tables if the events are a table. Each
    of them is a separate query, which reads only the columns that it needs; :meth:`run` writes several outputs from one query.
    Notebooks draw the pattern.
    """

    schema: pa.Schema
    """the columns of the events"""

    def __init__(
        self,
        stream: KeyedStream[Any],
        pattern: Pattern,
        key_groups: int | None,
        drain: bool,
        options: MatchOptions,
    ) -> None:
        self.stream, self.pattern, self.key_groups, self.drain = stream, pattern, key_groups, drain
        self._options: MatchOptions = {**options, "order_by": stream.order_by}

    # ------------------------------------------------------------------ what a host does

    @abstractmethod
    def _function_schema(self, schema: Any, hint: str) -> pa.Schema:
        """The schema of the columns that a user's function returns."""

    @abstractmethod
    def _bound(
        self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None = None
    ) -> tuple[CepOperator, Mapping[str, Any]]:
        """The operator, and what the host computes of its outputs."""

    @abstractmethod
    def _output(self, operator: CepOperator, projections: Mapping[str, Any], name: str) -> Rows:
        """The rows of one output."""

    @abstractmethod
    def _run(
        self, operator: CepOperator, projections: Mapping[str, Any], sinks: Mapping[str, Sink], options: RunOptions
    ) -> StreamingQuery | None:
        """Write the outputs of the operator to sinks."""

    def _open(self, operator: CepOperator, options: LiveOptions) -> LiveEngine:
        """A live engine with this operator."""
        raise not_live()

    # ------------------------------------------------------------------ results

    @property
    def operator(self) -> CepOperator:
        """The operator of all matches with all columns."""
        return self._operator({OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES)})

    @property
    def matches(self) -> Rows:
        """The matches: key columns, ``start_time`` and ``end_time`` (the times of the first and last event), ``match_time``
        (the time at which the match was decided), ``match_id`` (the same each time this match is found), and for each stage a
        list of its events, with all columns of the input and their types.
        """
        return self._single(OutputSpec(OutputKind.MATCHES))

    @property
    def timed_out(self) -> Rows:
        """Timed-out partial matches, with the columns of :attr:`matches`, but ``timeout_time`` instead of ``match_time``."""
        return self._single(OutputSpec(OutputKind.TIMED_OUT))

    @property
    def late(self) -> Rows:
        """Late events and events without a time, with the columns of the input."""
        return self._single(OutputSpec(OutputKind.LATE))

    def select(self, *measures: str, output: str = "matches") -> Rows:
        """One row per match (or, with ``output="timed_out"``, partial match): the key columns and *measures*.

        A measure is an SQL expression over the stages, such as ``LAST(b.price) - FIRST(a.price) AS rise``. FIRST, LAST, SUM,
        COUNT, AVG, MIN, MAX and the other aggregates of docs/sql.md range over the events of a stage. Without events, these
        seven are NULL (COUNT: 0). ``a.price`` alone means ``LAST(a.price)``. Key columns, ``start_time``, ``end_time``,
        ``match_time`` (``timeout_time``) and ``match_id`` are available, too.
        """
        expect_strings(StreamDefinitionError, measures, "a measure must be an SQL string", 'select("COUNT(a.*) AS n")')
        return self._single(OutputSpec(_kind(output), measures=measures))

    def to_reader(self, *measures: str, output: str = "matches") -> pa.RecordBatchReader:
        """The rows of :meth:`select`, or without *measures* those of :attr:`matches` or :attr:`timed_out`, as a stream of Arrow.
        They are computed while they are read, so that neither the table nor the result need to fit into memory.

        :raises StreamDefinitionError: the events are a DataFrame of Spark, or an argument is invalid
        """
        expect_strings(
            StreamDefinitionError, measures, "a measure must be an SQL string", 'to_reader("COUNT(a.*) AS n")'
        )
        spec = OutputSpec(_kind(output), measures=measures or None)
        return self._reader(self._operator({output: spec}), output)

    def _reader(self, operator: CepOperator, output: str) -> pa.RecordBatchReader:
        raise StreamDefinitionError(
            "only the results over a table without Spark have a reader", hint="df.toLocalIterator(), or run({...})"
        )

    def process(
        self,
        function: MatchFunctionLike,
        schema: T.StructType | pa.Schema | str | None = None,
        *,
        output: str = "matches",
    ) -> Rows:
        """Rows computed by *function*. It takes a :class:`pyarrow.Table` of matches, with the columns of :attr:`matches`, and
        returns a table with the columns of *schema*. Each call gets an arbitrary number of matches.

        :param function: a function of a table; or a :class:`asterism.PatternProcessFunction`, which can emit rows to further
            outputs. An object with ``open`` or ``close`` is opened and closed: see :class:`asterism.OpenContext`.
        :param schema: the columns that it returns, as Spark SQL, or as a schema of Spark or over a table of Arrow. None: a
            :class:`asterism.PatternProcessFunction` that emits rows only to its outputs.
        :param output: "matches"; for a plain function also "timed_out", whose rows it then gets; for a
            :class:`asterism.PatternProcessFunction` also an output that it declares
        :raises StreamDefinitionError: *function* is not a function, or the schema is missing or invalid
        :raises UnknownOutputError: there is no such output
        """
        hint = "process(f, 'n BIGINT')"
        if not isinstance(function, PatternProcessFunction):
            if not callable(function):
                raise StreamDefinitionError(f"process takes a function, not {shown(function)}", hint=hint)
            returned = self._function_schema(schema, hint)
            return self._single(OutputSpec(_kind(output), function=function, function_schema=returned))
        operator = self._operator({}, self._process_spec(function, schema))
        if output == OutputKind.MATCHES.value and output not in operator.output_schemas:
            raise StreamDefinitionError(f"{type(function).__name__} returns rows, so it needs a schema", hint=hint)
        expect_outputs([output], operator.output_schemas)
        return self._output(operator, {}, output)

    def _process_spec(self, function: PatternProcessFunction, schema: Any) -> ProcessSpec:
        hint = "process(f, 'n BIGINT')"
        return ProcessSpec(function, None if schema is None else self._function_schema(schema, hint))

    def show_timeline(self, output: str = "matches") -> Timeline:
        """Draw the matches over a table on a time axis, with a line for each key: :func:`asterism.timeline` of the output.

        :param output: "matches", or "timed_out" for the partial matches that timed out
        :return: a drawing, which notebooks show; ``to_svg()`` returns it as a string
        :raises StreamDefinitionError: the DataFrame is a stream
        """
        from asterism.streams.timelines import timeline  # a tenth of a second, which few queries need

        expect(StreamDefinitionError, output, str, "output must be a string", 'show_timeline("timed_out")')
        return timeline(self._single(OutputSpec(_kind(output))), self.stream.keys)

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self.pattern!r}"

    def _repr_svg_(self) -> str:
        return self.pattern._repr_svg_()

    def _repr_html_(self) -> str:
        return self.pattern._repr_html_()

    # ------------------------------------------------------------------ several outputs, one query

    def run(
        self,
        sinks: Mapping[str, Sink],
        *,
        checkpoint: str | None = None,
        select: Mapping[str, Sequence[str]] | None = None,
        process: MatchFunctionLike | None = None,
        schema: T.StructType | pa.Schema | str | None = None,
        drain: bool | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        from_savepoint: str | None = None,
        **begin: Unpack[BeginOptions],
    ) -> StreamingQuery | None:
        """Write outputs (``matches``, ``timed_out``, ``late``, and those of a match function) to sinks. They are computed only
        once.

        A sink is called as ``sink(rows, batch_id)`` for every micro-batch, and must read the whole DataFrame; over a table, it is
        called once. If a micro-batch is repeated after a failure, it has the same batch id and the same rows, so that a sink that
        overwrites by batch id writes each row exactly once.

        :param checkpoint: checkpoint location, required for a stream
        :param select: measures per output. Default: the columns of :attr:`matches`, :attr:`timed_out` and :attr:`late`.
        :param process: the function of :meth:`process`. With a *schema*, ``matches`` has the rows that it returns. The outputs
            that a :class:`asterism.PatternProcessFunction` declares are further outputs, and its metrics are in the query's
            progress, in the observation ``asterism``.
        :param schema: the columns that *process* returns
        :param drain: whether to end the stream after all available data has been processed. Default: True without a trigger;
            with one, as in :meth:`CEP.pattern`
        :param trigger: arguments of ``DataStreamWriter.trigger``. Default: process the available data and return.
        :param from_savepoint: the savepoint with which a new checkpoint begins: the query continues where the other one was
            stopped. Later starts with the same argument continue with the checkpoint. See docs/savepoints.md.
        :param begin: ``history``, ``history_until``, ``allow_changed``: see :class:`~asterism.streams.run_options.BeginOptions`
        :return: the running query if *trigger* was given; otherwise None, after the query has ended
        :raises StreamDefinitionError: an argument is invalid; or the query would end its input, but does not end
        :raises StateError: there is no such savepoint, or the checkpoint exists and was not made from it
        :raises AsterismError: the query failed with this error, which Spark's exception contains
        """
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
        check_measures(select)
        operator, projections = self._operator_of(sinks, select or {}, process, schema)
        return self._run(operator, projections, sinks, options)

    # ------------------------------------------------------------------ a live engine

    def open(
        self,
        folder: str | PathLike[str] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        select: Mapping[str, Sequence[str]] | None = None,
        process: MatchFunctionLike | None = None,
        schema: pa.Schema | str | None = None,
        sinks: Mapping[str, Sink] | None = None,
        snapshot_every: timedelta | int | None = SNAPSHOT_EVERY,
    ) -> LiveEngine:
        """Open a live engine for the stream of a schema, without Spark: events go in, and the rows of outputs come out. See
        docs/live.md.

        :param folder: where the state is kept, on a local disk; it is created. Another process cannot open it at the same time.
            None: the state is only in memory.
        :param outputs: the outputs that calls return. Default: those of *select* and *sinks*, or else ``matches``
        :param select, process, schema: as for :meth:`run`
        :param sinks: functions that are called as ``sink(rows, number)`` with the rows of an output, before the call returns.
            A call that is repeated after a failure has the same number if the batches are the same.
        :param snapshot_every: how often the state is written to the folder: after so much time, or so many events. None: only by
            :meth:`~asterism.live.engine.LiveEngine.snapshot` and at the end
        :raises StreamDefinitionError: an argument is invalid, or the stream is a table or a DataFrame
        :raises CheckpointInUseError: another process has opened the folder
        :raises StateError: the folder has the state of another query, or cannot be used

        >>> from asterism import CEP, KeyedStream, Pattern
        >>> prices = KeyedStream(pa.schema([("ts", pa.int64()), ("price", pa.float64())]), time="ts")
        >>> fall = Pattern.begin("high").next("low").where("price < LAST(high.price)")
        >>> with CEP.pattern(prices, fall).open(select={"matches": ["low.price AS low"]}) as engine:
        ...     rows = engine.process([{"ts": 1000, "price": 5.0}, {"ts": 2000, "price": 4.0}], watermark=2000)
        >>> rows["matches"].to_pylist()
        [{'low': 4.0}]
        """
        check_measures(select)
        options = LiveOptions.of(folder, outputs, sinks, snapshot_every, select or ())
        names = options.outputs or [OutputKind.MATCHES.value]
        operator, _ = self._operator_of(names, select or {}, process, schema)
        return self._open(operator, options)

    # ------------------------------------------------------------------ operators

    def _operator_of(
        self, sinks: Iterable[str], measures: Mapping[str, Sequence[str]], process: Any, schema: Any
    ) -> tuple[CepOperator, Mapping[str, Any]]:
        """The operator with the outputs of :meth:`run`."""
        matches = OutputKind.MATCHES.value
        hint = "run(..., process=function, schema='n BIGINT')"
        spec, of_matches = None, None
        if isinstance(process, PatternProcessFunction):
            spec = self._process_spec(process, schema)
        elif process is not None or schema is not None:
            if not callable(process):
                raise StreamDefinitionError(f"process must be a match function, not {shown(process)}", hint=hint)
            returned = self._function_schema(schema, hint)
            of_matches = OutputSpec(OutputKind.MATCHES, function=process, function_schema=returned)
        if schema is not None and matches in measures:
            raise StreamDefinitionError("the output matches has either measures or the rows of a function")
        known = {} if spec is None else MatchFunction(spec.function, self.schema).declared.outputs
        expect_outputs(sinks, [*(kind.value for kind in OutputKind), *known])
        outputs = {
            sink: OutputSpec(_kind(sink), measures=tuple(measures[sink]) if sink in measures else None)
            for sink in sinks
            if sink not in known and not (sink == matches and schema is not None)
        }
        if of_matches is not None and matches in sinks:
            outputs[matches] = of_matches
        return self._bound(outputs, spec)

    def _single(self, spec: OutputSpec) -> Rows:
        name = spec.kind.value
        return self._output(*self._bound({name: spec}), name)

    def _operator(self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None = None) -> CepOperator:
        return self._bound(outputs, process)[0]

    def _stages(self) -> list[str]:
        """The stages, and the subsets of them."""
        return [*(stage.name for stage in self.pattern.atoms()), *(name for name, _ in self.pattern.subsets)]

    def _operator_for(
        self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None, schema: pa.Schema
    ) -> CepOperator:
        """The operator for these columns of the events."""
        keys, time = self.stream.keys, self.stream.time
        return CepOperator(
            self.pattern, schema, keys=keys, time=time, outputs=outputs, process=process, **self._options
        )
