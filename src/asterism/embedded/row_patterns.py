"""MATCH_RECOGNIZE over Arrow tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from asterism.columns.time import MILLISECONDS
from asterism.embedded.events import table_of
from asterism.embedded.tables import write
from asterism.expressions.routines.user_functions import Purpose, checked, listed
from asterism.operators.key_group import check_pages, complete
from asterism.operators.sink_functions import Sink
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.clause import Clause
from asterism.row_patterns.operator import LATE_ROWS, MATCHES, MAX_ROWS, check_limit, columns_read
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.row_patterns import RowPatternStream, SearchOptions
from asterism.streams.run_options import RunOptions


def row_pattern_stream(
    rows: Any,
    clause: Clause,
    max_out_of_orderness: timedelta,
    idle_after: timedelta | None,
    watermark_by: Sequence[str],
    key_groups: int | None,
    drain: bool,
    options: SearchOptions,
) -> RowPatternStream[pa.Table]:
    """See :func:`asterism.match_recognize`."""
    found = ArrowRowPatternStream(rows, clause, key_groups, drain, options)
    KeyedStream(found.rows, max_out_of_orderness=max_out_of_orderness)  # checks this option; the others are for streams
    return found


class ArrowRowPatternStream(RowPatternStream[pa.Table]):
    """The results of a row pattern over a table, as tables. They are computed each time they are read."""

    def __init__(self, rows: Any, clause: Clause, key_groups: int | None, drain: bool, options: SearchOptions) -> None:
        super().__init__(key_groups, drain)
        self.rows = table_of(rows, None, MILLISECONDS)
        with listed(checked(None), Purpose.TABLES):
            self._checked = check(clause, self.rows.schema)
        check_limit(options.get("max_rows", MAX_ROWS), options.get("on_limit", "error"))
        check_pages(options.get("pages"))

    def _single(self, output: str) -> pa.Table:
        if output == LATE_ROWS:
            return self.rows.slice(0, 0)
        from asterism.row_patterns.result_rows import TableMatcher  # imports numba

        schema, needed = self._checked.rows.input, columns_read(self._checked)
        rows = complete(self.rows.select([name for name in schema.names if name in needed]), schema)
        now = time.time_ns() // 1000 if self._checked.uses_processing_time else 0
        parts = [*TableMatcher(self._checked).match(rows, now)]
        return pa.concat_tables(parts) if parts else self._checked.output.empty_table()

    def _run(self, sinks: Mapping[str, Sink], options: RunOptions) -> None:
        schemas = {MATCHES: self._checked.output, LATE_ROWS: self.rows.schema}
        write(schemas, lambda: {output: self._single(output) for output in sinks}, sinks)
