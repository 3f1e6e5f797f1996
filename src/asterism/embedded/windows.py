"""Windows over Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from asterism.embedded.batches import check_live, check_table, is_live, opened
from asterism.embedded.tables import Outputs, function_schema, parts_of_inputs, selected, whole, write
from asterism.expressions.routines.user_functions import Purpose, checked, listed
from asterism.live.live_options import LiveOptions
from asterism.operators.operator import EVENTS
from asterism.operators.sink_functions import Sink
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.run_options import RunOptions
from asterism.streams.windows import NO_CONTENTS, Build, WindowedStream
from asterism.windows.assigners import Windows
from asterism.windows.operator import WindowOperator
from asterism.windows.spec import WindowOptions
from asterism.windows.triggers import Trigger

if TYPE_CHECKING:
    from asterism.live.engine import LiveEngine


def windowed_stream(
    stream: KeyedStream[Any],
    windows: Windows,
    trigger: Trigger | None,
    allowed_lateness: timedelta,
    in_order: bool | None,
    key_groups: int | None,
    drain: bool,
    options: WindowOptions,
) -> WindowedStream[pa.Table]:
    """See :func:`asterism.window`."""
    return ArrowWindowedStream(stream, windows, trigger, allowed_lateness, in_order, key_groups, drain, options)


class ArrowWindowedStream(WindowedStream[pa.Table]):
    """The windows of a table. Results are computed each time they are read."""

    _rows_class = pa.Table

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
        super().__init__(stream, windows, trigger, allowed_lateness, in_order, key_groups, drain, options)
        self.schema = stream.df.schema
        # Validate everything except the aggregates now, not when a result is requested.
        operator = self._bound(partial(self._operator, NO_CONTENTS, False))
        self.trigger = operator.spec.effective_trigger
        if not self.is_streaming:
            self.in_order = stream.time is not None
        elif in_order is None:
            self.in_order = stream.time is not None and not operator.processing_time

    @property
    def is_streaming(self) -> bool:
        return is_live(self.stream)

    def _function_schema(self, schema: Any, hint: str) -> pa.Schema:
        return function_schema(schema, hint)

    def _bound(self, build: Build, measures: Any = None) -> WindowOperator:
        with listed(checked(None), Purpose.TABLES):
            return build(self.schema)

    def _single(self, build: Build, output: str, measures: Any = None) -> pa.Table:
        check_table(self.stream)
        return self._rows(build, self._bound(build, measures))[output]

    def _run(self, build: Build, operator: WindowOperator, sinks: Mapping[str, Sink], options: RunOptions) -> None:
        check_table(self.stream)
        options.check_of_table()
        write(operator.output_schemas, lambda: self._rows(build, operator), sinks)

    def _rows(self, build: Build, operator: WindowOperator) -> Outputs:
        events = {EVENTS: selected(self.stream.df, operator)}
        # Triggers, evictors, assigners and functions may be those of the user, for which one thread is safe.
        return whole(operator, parts_of_inputs(operator, partial(self._bound, build), events, threads=1))

    def _open(self, operator: WindowOperator, options: LiveOptions, names: Mapping[str, str]) -> LiveEngine:
        check_live(self.stream)
        return opened(operator, {EVENTS: self.stream}, options, names=names)
