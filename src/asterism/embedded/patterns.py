"""Patterns over Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from asterism.arguments import expect_options
from asterism.embedded.batches import check_live, check_table, is_live, opened
from asterism.embedded.tables import (
    Outputs,
    function_schema,
    parts_of_pattern,
    selected_for_pattern,
    threads_of,
    whole,
    write,
)
from asterism.expressions.routines.user_functions import Purpose, checked, listed
from asterism.live.live_options import LiveOptions
from asterism.loading import loading
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.matching.process_function import ProcessSpec
from asterism.matching.spec import MatchOptions
from asterism.operators.operator import EVENTS
from asterism.operators.sink_functions import Sink
from asterism.patterns.pattern import Pattern
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.pattern_stream import PatternStream
from asterism.streams.run_options import RunOptions

if TYPE_CHECKING:
    from asterism.live.engine import LiveEngine
    from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
    from asterism.streams.backtests import Backtest
    from asterism.streams.pattern_processors import PatternProcessorStream, ProcessorOptions


def pattern_stream(
    stream: KeyedStream[Any], pattern: Pattern, key_groups: int | None, drain: bool, options: MatchOptions
) -> PatternStream[pa.Table]:
    """See :meth:`asterism.CEP.pattern`."""
    with loading():
        from asterism.matching import kernels  # noqa: F401 - which imports numba

        return ArrowPatternStream(stream, pattern, key_groups, drain, options)


def pattern_processors(
    stream: KeyedStream[Any],
    factory: PatternProcessorDiscovererFactory,
    *,
    store: str | None = None,
    on_error: str = "fail",
    on_limit: str = "disable",
    key_groups: int | None,
    drain: bool,
    **options: Unpack[ProcessorOptions],
) -> PatternProcessorStream[pa.Table]:
    """See :meth:`asterism.CEP.pattern_processors`."""
    from asterism.embedded import rules
    from asterism.streams.pattern_processors import ProcessorOptions, check_given, rule_options

    check_given(on_error, on_limit)
    expect_options("pattern_processors", options, ProcessorOptions)
    of_rules, lookups = rule_options(stream, stream.df.schema, options)
    of_rules = replace(of_rules, disable_on_error=on_error == "disable", disable_on_limit=on_limit == "disable")
    return rules.ArrowPatternProcessorStream(stream, factory, store, key_groups, drain, of_rules, lookups)


def backtest(
    stream: KeyedStream[Any],
    rules: Any,
    against: Any,
    *,
    key_groups: int | None,
    examples: int,
    label: str | None,
    **options: Unpack[ProcessorOptions],
) -> Backtest[pa.Table]:
    """See :meth:`asterism.CEP.backtest`."""
    from asterism.embedded import rules as of_rules
    from asterism.streams.pattern_processors import ProcessorOptions, rule_options

    expect_options("backtest", options, ProcessorOptions)
    rule_arguments, lookups = rule_options(stream, stream.df.schema, options)
    return of_rules.backtest(
        stream, rules, against, rule_arguments, lookups, key_groups=key_groups, examples=examples, label=label
    )


class ArrowPatternStream(PatternStream[pa.Table]):
    """The results of a pattern over a table, as tables. They are computed each time they are read."""

    def __init__(
        self,
        stream: KeyedStream[Any],
        pattern: Pattern,
        key_groups: int | None,
        drain: bool,
        options: MatchOptions,
    ) -> None:
        super().__init__(stream, pattern, key_groups, drain, options)
        if not is_live(stream):
            self._options["pages"] = 1
        self.schema = stream.df.schema
        # Validate the pattern now, not when a result is requested. Names of columns depend on the result.
        self._operator({OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES, measures=())})

    def _function_schema(self, schema: Any, hint: str) -> pa.Schema:
        return function_schema(schema, hint)

    def _bound(
        self, outputs: Mapping[str, OutputSpec], process: ProcessSpec | None = None
    ) -> tuple[CepOperator, Mapping[str, Any]]:
        with listed(checked(None), Purpose.TABLES):
            return self._operator_for(outputs, process, self.schema), {}

    def _output(self, operator: CepOperator, projections: Mapping[str, Any], name: str) -> pa.Table:
        check_table(self.stream)
        return self._rows(operator)[name]

    def _run(
        self, operator: CepOperator, projections: Mapping[str, Any], sinks: Mapping[str, Sink], options: RunOptions
    ) -> None:
        options.check_of_table()
        check_table(self.stream)
        write(operator.output_schemas, lambda: self._rows(operator), sinks)

    def _reader(self, operator: CepOperator, output: str) -> pa.RecordBatchReader:
        check_table(self.stream)
        schema = operator.output_schemas[output]
        batches = (batch for part in self._parts(operator) if output in part for batch in part[output].to_batches())
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _rows(self, operator: CepOperator) -> Outputs:
        return whole(operator, self._parts(operator))

    def _parts(self, operator: CepOperator) -> Iterator[Mapping[str, pa.Table]]:
        def build() -> CepOperator:
            with listed(checked(None), Purpose.TABLES):
                return self._operator_for(operator.outputs, operator.process_spec, self.schema)

        threads = threads_of(alone=not operator.calls_python)
        return parts_of_pattern(operator, build, selected_for_pattern(self.stream.df, operator), threads=threads)

    def _open(self, operator: CepOperator, options: LiveOptions) -> LiveEngine:
        check_live(self.stream)
        return opened(operator, {EVENTS: self.stream}, options)
