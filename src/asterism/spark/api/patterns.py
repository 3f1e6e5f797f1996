"""The fluent API of patterns on Spark: match a pattern in a keyed stream, and get the results as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

from asterism.arguments import expect, expect_options, expect_outputs, expect_strings, shown
from asterism.errors import ExpressionError, StreamDefinitionError
from asterism.expressions.aggregates import CALLS_OF_MATCHES
from asterism.expressions.names import Scope
from asterism.expressions.outer_parts import DividedMeasures, divided_measures
from asterism.expressions.parts_for_spark import Expression
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import VALUES_OF_MATCH, OutputKind, OutputSpec
from asterism.matching.process_function import MatchFunction, MatchFunctionLike, PatternProcessFunction, ProcessSpec
from asterism.matching.spec import MAX_PARTIAL_MATCHES, MatchOptions, OnLimit
from asterism.operators.operator import EVENTS
from asterism.patterns.compiler import check_pattern, compile_pattern
from asterism.patterns.conditions import SqlCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.warnings import warn
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.spark.api.timelines import timeline
from asterism.spark.host.batch import ORDER, order_of_table, run_table
from asterism.spark.host.column_types import arrow_schema, function_schema, zone_if_used, zone_of
from asterism.spark.host.computed_columns import ComputedColumns, has_computed
from asterism.spark.host.execution import OperatorOutputs, Sink
from asterism.spark.host.host import EVENT_TIME, NO_TIME, PROCESSING_TIME
from asterism.spark.host.keyed_stream import KeyedStream
from asterism.spark.host.outer_measures import OuterProjection, Projections
from asterism.spark.host.stateful import (
    Use,
    batch_results,
    check_use,
    filtered,
    hash_of,
    hashed,
    packed,
    stateful,
)
from asterism.spark.host.times import event_micros
from asterism.spark.rules.rules import PatternProcessorStream, ProcessorOptions, rule_options
from asterism.spark.session.settings import of_expressions
from asterism.spelling import PythonNames
from asterism.text.printable import quoted_name
from asterism.trace.timeline import Timeline

if TYPE_CHECKING:
    from asterism.spark.rules.backtest import Backtest


def _check(stream: KeyedStream, key_groups: int | None, drain: bool = False) -> None:
    check_use(key_groups, drain)
    hint = 'KeyedStream(df, key="user", time="ts")'
    expect(StreamDefinitionError, stream, KeyedStream, "the stream must be a KeyedStream", hint)


def _kind(output: Any) -> OutputKind:
    expect_outputs([output], [kind.value for kind in OutputKind])
    return OutputKind(output)


class CEP(metaclass=PythonNames):
    """Applies patterns to streams, like Flink's class of the same name."""

    @staticmethod
    def pattern(
        stream: KeyedStream,
        pattern: Pattern,
        *,
        semantics: Semantics = Semantics.DEFAULT,
        key_groups: int | None = None,
        pages: int | None = None,
        drain: bool = False,
        max_partial_matches: int | None = MAX_PARTIAL_MATCHES,
        on_limit: OnLimit = "error",
    ) -> PatternStream:
        """Match *pattern* in *stream*.

        :param semantics: the semantics of this library, or exactly those of Flink
        :param key_groups: the number of key groups (streaming). It cannot change during the lifetime of a checkpoint. Default:
            ``run`` keeps that of the checkpoint, or chooses four for each stateful task, up to 32, or one for each core of a
            cluster; a DataFrame has 32.
        :param pages: a fixed number of pages of state per key group (streaming), which cannot change either. Default: the number
            follows the size of the state. Needed only for a checkpoint that was created with a number.
        :param drain: whether this run ends the stream (streaming). With the trigger *available now*, a single micro-batch
            reads all available data, then every deadline fires and the state is empty. :meth:`PatternStream.run` drains by
            default, after it has read the available data in as many micro-batches as the sources require.
        :param max_partial_matches: the maximum number of partial matches per key, which also limits the cost of an event.
            None: no limit (see docs/limits.md).
        :param on_limit: the behavior at that limit. "error" fails the query with
            :class:`~asterism.errors.LimitExceededError`; "drop" drops the partial matches that began last.
        :raises MalformedPatternError, ExpressionError: the pattern is invalid, or does not fit the columns of the stream

        Issues a :class:`~asterism.errors.PatternWarning` if the pattern is most likely not what was intended.

        Runnable examples: README.md (batch) and docs/streaming.md.
        """
        _check(stream, key_groups, drain)
        check_pattern(pattern)
        warn(pattern)
        options = MatchOptions(
            semantics=semantics, pages=pages, max_partial_matches=max_partial_matches, on_limit=on_limit
        )
        return PatternStream(stream, pattern, key_groups, drain, options)

    @staticmethod
    def pattern_processors(
        stream: KeyedStream,
        factory: PatternProcessorDiscovererFactory,
        *,
        store: str | None = None,
        on_error: str = "fail",
        on_limit: str = "disable",
        key_groups: int | None = None,
        drain: bool = False,
        **options: Unpack[ProcessorOptions],
    ) -> PatternProcessorStream:
        """Match the patterns of many processors, which can change while the query runs (FLIP-200).

        :param stream: a stream, whose key applies to processors without a key; the key may be empty
        :param factory: creates the discoverer, on Spark's driver
        :param store: a folder for the rule sets, accessible to the driver and the executors. Default: a folder in the
            checkpoint.
        :param on_error: the behavior if a processor fails. "fail" fails the query; "disable" disables the processor until its
            next version, in the key group where it failed, and adds a row to the output ``errors``. A shadow is always disabled,
            also at the limit below.
        :param on_limit: the behavior at *max_partial_matches*, independent of *on_error*. "disable" disables the processor as
            above; "fail" fails the query with :class:`~asterism.errors.LimitExceededError`.
        :param key_groups, drain: as for :meth:`pattern`
        :param options: *functions*, *conditions*, *udfs*, *lookups*, *semantics*, *max_partial_matches*: see
            :class:`~asterism.spark.rules.rules.ProcessorOptions`
        :raises StreamDefinitionError: an argument is invalid
        """
        _check(stream, key_groups, drain)
        for name, value in (("on_error", on_error), ("on_limit", on_limit)):
            # Check the type first: a comparison of a Column with == or != does not return a Boolean.
            if not isinstance(value, str) or value not in ("fail", "disable"):
                raise StreamDefinitionError(f'{name} must be "fail" or "disable", not {shown(value)}')
        expect_options("pattern_processors", options, ProcessorOptions)
        of_rules, lookups = rule_options(stream, options)
        of_rules = replace(of_rules, disable_on_error=on_error == "disable", disable_on_limit=on_limit == "disable")
        return PatternProcessorStream(stream, factory, store, key_groups, drain, of_rules, lookups)

    @staticmethod
    def backtest(
        stream: KeyedStream,
        rules: Any,
        against: Any = None,
        *,
        key_groups: int | None = None,
        examples: int = 3,
        **options: Unpack[ProcessorOptions],
    ) -> Backtest:
        """Run rules over a table of history, and compare their matches with those of other rules.

        The result is that of a bounded job with ``on_error="disable"``: a rule that fails is disabled in its key group, and all
        others continue. Timestamps of rules are ignored. A shadow takes the place of its rule.

        :param stream: a table, whose key applies to rules without a key
        :param rules: the rules: a path, the URL of a database or a web server, a discoverer factory, or a list of
            :class:`~asterism.PatternProcessor`
        :param against: the rules to compare with, for example those in force, without their shadows. Rules are compared by id.
        :param key_groups, options: as for :meth:`pattern_processors`
        :param examples: the number of matches that are shown of each rule, up to 1000: of those that were added, and of those
            that were removed
        :raises PatternProcessorError: the rules cannot be read
        :raises StreamDefinitionError: an argument is invalid

        docs/rules.md has a runnable example.
        """
        from asterism.spark.rules.backtest import backtest  # imports SQLAlchemy, which few queries need

        expect_options("backtest", options, ProcessorOptions)
        _check(stream, key_groups)
        of_rules, lookups = rule_options(stream, options)
        return backtest(stream, rules, against, of_rules, lookups, key_groups=key_groups, examples=examples)


class PatternStream(OperatorOutputs, metaclass=PythonNames):
    """The results of a pattern applied to a stream. Each DataFrame is a separate query, which reads only the columns that it
    needs; :meth:`run` writes several outputs from one query.
    """

    def __init__(
        self,
        stream: KeyedStream,
        pattern: Pattern,
        key_groups: int | None,
        drain: bool,
        options: MatchOptions,
    ) -> None:
        self.stream, self.pattern, self.key_groups, self.drain = stream, pattern, key_groups, drain
        self._options: MatchOptions = {**options, "order_by": stream.order_by}
        if not stream.df.isStreaming:
            self._options["pages"] = 1
        self.spark: SparkSession = stream.df.sparkSession
        self.schema = arrow_schema(self.spark, stream.df.schema, stream.time_unit)
        self._computed = ComputedColumns(stream.df, self.schema)
        # Validate the pattern now, not when a result is requested. Names of columns depend on the result.
        self._operator({OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES, measures=())})

    @property
    def operator(self) -> CepOperator:
        """The operator of all matches with all columns."""
        return self._operator({OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES)})

    # ------------------------------------------------------------------ results

    @property
    def matches(self) -> DataFrame:
        """The matches: key columns, ``start_time`` and ``end_time`` (the times of the first and last event), ``match_time``
        (the time at which the match was decided), ``match_id`` (the same each time this match is found), and for each stage a
        list of its events, with all columns of the input and their types.
        """
        return self._single(OutputSpec(OutputKind.MATCHES))

    @property
    def timed_out(self) -> DataFrame:
        """Timed-out partial matches, with the columns of :attr:`matches`, but ``timeout_time`` instead of ``match_time``."""
        return self._single(OutputSpec(OutputKind.TIMED_OUT))

    @property
    def late(self) -> DataFrame:
        """Late events and events without a time, with the columns of the input."""
        return self._single(OutputSpec(OutputKind.LATE))

    def select(self, *measures: str, output: str = "matches") -> DataFrame:
        """One row per match (or, with ``output="timed_out"``, partial match): the key columns and *measures*.

        A measure is an SQL expression over the stages, such as ``LAST(b.price) - FIRST(a.price) AS rise``. FIRST, LAST, SUM,
        COUNT, AVG, MIN, MAX and the other aggregates of docs/sql.md range over the events of a stage. Without events, these
        seven are NULL (COUNT: 0). ``a.price`` alone means ``LAST(a.price)``. Key columns, ``start_time``, ``end_time``,
        ``match_time`` (``timeout_time``) and ``match_id`` are available, too.
        """
        expect_strings(StreamDefinitionError, measures, "a measure must be an SQL string", 'select("COUNT(a.*) AS n")')
        return self._single(OutputSpec(_kind(output), measures=measures))

    def process(
        self, function: MatchFunctionLike, schema: T.StructType | str | None = None, *, output: str = "matches"
    ) -> DataFrame:
        """Rows computed by *function*. It takes a :class:`pyarrow.Table` of matches, with the columns of :attr:`matches`, and
        returns a table with the columns of *schema*. Each call gets an arbitrary number of matches.

        :param function: a function of a table; or a :class:`asterism.PatternProcessFunction`, which can emit rows to further
            outputs. An object with ``open`` or ``close`` is opened and closed: see :class:`asterism.OpenContext`.
        :param schema: the columns that it returns. None: a :class:`asterism.PatternProcessFunction` that emits rows only to its
            outputs.
        :param output: "matches"; for a plain function also "timed_out", whose rows it then gets; for a
            :class:`asterism.PatternProcessFunction` also an output that it declares
        :raises StreamDefinitionError: *function* is not a function, or the schema is missing or invalid
        :raises UnknownOutputError: there is no such output
        """
        hint = "process(f, 'n BIGINT')"
        if not isinstance(function, PatternProcessFunction):
            if not callable(function):
                raise StreamDefinitionError(f"process takes a function, not {shown(function)}", hint=hint)
            returned = function_schema(self.spark, schema, hint)
            return self._single(OutputSpec(_kind(output), function=function, function_schema=returned))
        operator = self._operator({}, self._process_spec(function, schema))
        if output == OutputKind.MATCHES.value and output not in operator.output_schemas:
            raise StreamDefinitionError(f"{type(function).__name__} returns rows, so it needs a schema", hint=hint)
        expect_outputs([output], operator.output_schemas)
        return self._output(operator, {}, output)

    def _process_spec(self, function: PatternProcessFunction, schema: Any) -> ProcessSpec:
        hint = "process(f, 'n BIGINT')"
        return ProcessSpec(function, None if schema is None else function_schema(self.spark, schema, hint))

    def show_timeline(self, output: str = "matches") -> Timeline:
        """Draw the matches over a table on a time axis, with a line for each key: :func:`asterism.timeline` of the output.

        :param output: "matches", or "timed_out" for the partial matches that timed out
        :return: a drawing, which notebooks show; ``to_svg()`` returns it as a string
        :raises StreamDefinitionError: the DataFrame is a stream
        """
        expect(StreamDefinitionError, output, str, "output must be a string", 'show_timeline("timed_out")')
        return timeline(self._single(OutputSpec(_kind(output))), self.stream.keys)

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
        schema: T.StructType | str | None = None,
        drain: bool | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> StreamingQuery | None:
        """Write outputs (``matches``, ``timed_out``, ``late``, and those of a match function) to sinks. They are computed only
        once.

        A sink is called as ``sink(dataframe, batch_id)`` for every micro-batch, and must read the whole DataFrame. If a
        micro-batch is repeated after a failure, it has the same batch id and the same rows, so that a sink that overwrites by
        batch id writes each row exactly once.

        :param checkpoint: checkpoint location, required for a stream
        :param select: measures per output. Default: the columns of :attr:`matches`, :attr:`timed_out` and :attr:`late`.
        :param process: the function of :meth:`process`. With a *schema*, ``matches`` has the rows that it returns. The outputs
            that a :class:`asterism.PatternProcessFunction` declares are further outputs, and its metrics are in the query's
            progress, in the observation ``asterism``.
        :param schema: the columns that *process* returns
        :param drain: whether to end the stream after all available data has been processed. Default: True without a trigger;
            with one, as in :meth:`CEP.pattern`
        :param trigger: arguments of ``DataStreamWriter.trigger``. Default: process the available data and return.
        :return: the running query if *trigger* was given; otherwise None, after the query has ended
        :raises StreamDefinitionError: an argument is invalid; or the query would end its input, but does not end
        :raises AsterismError: the query failed with this error, which Spark's exception contains
        """
        options = self._run_options(sinks, checkpoint, drain, trigger, name)
        hint = 'select={"matches": ["COUNT(a.*) AS n"]}'
        expect(StreamDefinitionError, select, Mapping | None, "select must map outputs to measures", hint)
        for texts in (select or {}).values():
            expect_strings(StreamDefinitionError, texts, "measures must be a list of SQL strings", hint)
        operator, projections = self._operator_of(sinks, select or {}, process, schema)
        return self._write(operator, partial(self._results, operator), sinks, options, projections=projections)

    # ------------------------------------------------------------------ plans

    def _operator_of(
        self, sinks: Iterable[str], measures: Mapping[str, Sequence[str]], process: Any, schema: Any
    ) -> tuple[CepOperator, Projections]:
        """The operator with the outputs of :meth:`run`."""
        matches = OutputKind.MATCHES.value
        hint = "run(..., process=function, schema='n BIGINT')"
        spec, of_matches = None, None
        if isinstance(process, PatternProcessFunction):
            spec = self._process_spec(process, schema)
        elif process is not None or schema is not None:
            if not callable(process):
                raise StreamDefinitionError(f"process must be a match function, not {shown(process)}", hint=hint)
            returned = function_schema(self.spark, schema, hint)
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

    def _single(self, spec: OutputSpec) -> DataFrame:
        name = spec.kind.value
        return self._output(*self._bound({name: spec}), name)

    def _output(self, operator: CepOperator, projections: Projections, name: str) -> DataFrame:
        results = partial(self._results, operator)
        return self._as_dataframe(operator, results, name, projection=projections.get(name))

    def _operator(self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None = None) -> CepOperator:
        return self._bound(outputs, process)[0]

    def _bound(
        self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None = None
    ) -> tuple[CepOperator, Projections]:
        """The operator, and the projections after it."""
        build = partial(self._divided_for, outputs, process)
        operator, measures = self._computed.bind(build, self._expressions(outputs))
        return operator, {
            name: OuterProjection.checked(self.spark, operator.output_schemas[name], divided, self.schema.names)
            for name, divided in measures.items()
        }

    def _divided_for(
        self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None, schema: pa.Schema
    ) -> tuple[CepOperator, Mapping[str, DividedMeasures]]:
        """The operator for these columns of the events, and the outputs whose measures have outer parts."""
        try:
            return self._operator_for(outputs, process, schema), {}
        except ExpressionError as error:
            refusal = error
        self._operator_for({OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES, measures=())}, process, schema)
        measures: dict[str, DividedMeasures] = {}
        divided_outputs = dict(outputs)
        for name, spec in outputs.items():
            if spec.measures is not None:

                def check(text: str, spec: OutputSpec = spec) -> None:
                    self._operator_for({spec.kind.value: replace(spec, measures=(text,))}, None, schema)

                names = Scope(schema, tuple(self._stages())).names(CALLS_OF_MATCHES)
                texts, measures[name] = divided_measures(spec.measures, names, VALUES_OF_MATCH, check)
                divided_outputs[name] = replace(spec, measures=tuple(texts))
        measures = {name: divided for name, divided in measures.items() if divided.outer}
        if not measures:
            raise refusal
        return self._operator_for(divided_outputs, process, schema), measures

    def _stages(self) -> list[str]:
        """The stages, and the subsets of them."""
        return [*(stage.name for stage in self.pattern.atoms()), *(name for name, _ in self.pattern.subsets)]

    def _expressions(self, outputs: Mapping[str, OutputSpec]) -> Iterator[Expression]:
        """The SQL of conditions and measures."""
        stages = self._stages()
        for condition in compile_pattern(self.pattern, self._options["semantics"]).conditions:
            if isinstance(condition, SqlCondition):
                yield Expression(condition.text, stages)
        for output in outputs.values():
            for text in output.measures or ():
                yield Expression(text, stages, CALLS_OF_MATCHES)

    def _operator_for(
        self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None, schema: pa.Schema
    ) -> CepOperator:
        """The operator for these columns of the events."""
        keys, time = self.stream.keys, self.stream.time
        return CepOperator(
            self.pattern, schema, keys=keys, time=time, outputs=outputs, process=process, **self._options
        )

    def _results(self, operator: CepOperator, use: Use) -> DataFrame:
        """Results as chunks, with the names of their outputs."""
        with of_expressions(self.spark):
            return self._streaming(operator, use) if self.stream.df.isStreaming else self._batch(operator, use)

    def _relevance(self, operator: CepOperator) -> str | None:
        """A condition for the events that can affect the result, which filters them before the exchange. Late events are kept if
        the output ``late`` is requested.
        """
        return None if operator.wants_late else operator.pattern.relevance_sql()

    def _inputs(self, df: DataFrame, operator: CepOperator) -> tuple[DataFrame, list[str]]:
        """The columns that the operator prepares. Spark evaluates the conditions, if it can, and then need not transfer their
        columns. See docs/decisions/0083.
        """
        names, pattern = operator.inputs[EVENTS].schema.names, operator.pattern
        if pattern.bits_sql is None:
            return df, names
        bits = {field.name: F.expr(text) for field, text in zip(pattern.bit_fields, pattern.bits_sql, strict=True)}
        return df.withColumns(bits), [*operator.columns_beside_bits, *bits]

    def _streaming(self, operator: CepOperator, use: Use) -> DataFrame:
        stream = self.stream
        relevant, watched = filtered(stream, self._relevance(operator), use, operator.schema)
        relevant, names = self._inputs(relevant, operator)
        time_mode = PROCESSING_TIME if stream.time is None else EVENT_TIME if watched else NO_TIME
        chunks = packed(
            stream, operator, EVENTS, hashed(relevant, stream.keys, names, stream),
            use=use, watched=watched,
        )  # fmt: skip
        # What Spark computes may depend on the time zone.
        build = partial(self._operator_for, operator.outputs, operator.process_spec)
        zone = zone_of(operator.schema) if has_computed(operator.schema) else zone_if_used(build, operator.schema)
        return stateful(operator, [chunks], streams={EVENTS: stream}, use=use, zone=zone, time_mode=time_mode)

    def _batch(self, operator: CepOperator, use: Use) -> DataFrame:
        stream = self.stream
        relevant, _ = filtered(stream, self._relevance(operator), use, operator.schema)
        df, names = self._inputs(relevant, operator)
        df = df.select([quoted_name(name) for name in names])
        micros = None if stream.time is None else event_micros(df, stream.time, stream.time_unit)
        # Repartition by the hash: if a table is bucketed by the keys, Spark removes a repartition by them, and then the
        # bucketing. The hash is computed again after the exchange, which takes less time than to exchange it.
        key_hash = hash_of(stream.keys)
        df = df.repartition(key_hash) if stream.keys else df.coalesce(1)
        df = df.withColumn(ORDER, order_of_table(key_hash, micros)).sortWithinPartitions(ORDER)
        return batch_results(df, partial(run_table, operator), operator, use)
