"""Patterns over Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from asterism.embedded.batches import check_live, check_table, opened
from asterism.embedded.tables import function_schema, run_table, write
from asterism.expressions.routines.user_functions import Purpose, checked, listed
from asterism.live.engine import LiveEngine
from asterism.live.live_options import LiveOptions
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


def pattern_stream(
    stream: KeyedStream[Any], pattern: Pattern, key_groups: int | None, drain: bool, options: MatchOptions
) -> PatternStream[pa.Table]:
    """See :meth:`asterism.CEP.pattern`."""
    return ArrowPatternStream(stream, pattern, key_groups, drain, options)


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
        if not stream.live:  # type: ignore[attr-defined] # an ArrowKeyedStream
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
        return run_table(operator, self.stream.df)[name]

    def _run(
        self, operator: CepOperator, projections: Mapping[str, Any], sinks: Mapping[str, Sink], options: RunOptions
    ) -> None:
        check_table(self.stream)
        write(operator.output_schemas, lambda: run_table(operator, self.stream.df), sinks)

    def _open(self, operator: CepOperator, options: LiveOptions) -> LiveEngine:
        check_live(self.stream)
        return opened(operator, {EVENTS: self.stream}, options)
