"""MATCH_RECOGNIZE over Arrow tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from asterism.columns.time import MILLISECONDS, TimeColumn
from asterism.embedded.batches import check_table, only_of_schema, opened
from asterism.embedded.events import events_of, is_schema
from asterism.embedded.parts import Buckets, TablePart, Workers, buckets_of, divided_rows
from asterism.embedded.source_filters import SourceFilter
from asterism.embedded.tables import selected_columns, threads_of, write
from asterism.expressions.routines.user_functions import Purpose, checked, listed
from asterism.live.live_options import LiveOptions
from asterism.operators.key_group import check_pages, complete
from asterism.operators.operator import EVENTS
from asterism.operators.sink_functions import Sink
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.clause import Clause
from asterism.row_patterns.current_row import CurrentRow
from asterism.row_patterns.operator import (
    LATE_ROWS,
    MATCHES,
    MAX_ROWS,
    RowPatternOperator,
    check_limit,
    columns_read,
    event_time_of,
)
from asterism.row_patterns.ordered_rows import partition_keys
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.row_patterns import RowPatternStream, SearchOptions
from asterism.streams.run_options import RunOptions

if TYPE_CHECKING:
    from asterism.live.engine import LiveEngine


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
    live = is_schema(rows)
    found = ArrowRowPatternStream(pa.schema(rows).empty_table() if live else rows, clause, key_groups, drain, options)
    if not live:
        KeyedStream(
            found.rows, max_out_of_orderness=max_out_of_orderness
        )  # checks this option; the others are for streams
        return found
    found.stream = KeyedStream(
        found.rows.schema,
        time=found.time,
        max_out_of_orderness=max_out_of_orderness,
        idle_after=idle_after,
        watermark_by=watermark_by,
    )
    return found


class ArrowRowPatternStream(RowPatternStream[pa.Table]):
    """The results of a row pattern over a table, as tables. They are computed each time they are read.

    :ivar stream: of a schema, for a live engine; None: there is a table
    """

    stream: KeyedStream[Any] | None = None

    def __init__(self, rows: Any, clause: Clause, key_groups: int | None, drain: bool, options: SearchOptions) -> None:
        super().__init__(key_groups, drain)
        self.rows = events_of(rows, None, MILLISECONDS)
        self._clause = clause
        with listed(checked(None), Purpose.TABLES):
            self._checked = check(clause, self.rows.schema)
        check_limit(options.get("max_rows", MAX_ROWS), options.get("on_limit", "error"))
        check_pages(options.get("pages"))
        self._options = options

    @property
    def time(self) -> str:
        """The event time of a stream."""
        return event_time_of(self._checked)

    def _operator(self, outputs: Sequence[str]) -> RowPatternOperator:
        with listed(checked(None), Purpose.TABLES):
            return RowPatternOperator(self._checked, self._checked.rows.input, outputs=outputs, **self._options)

    def _open(self, options: LiveOptions) -> LiveEngine:
        if self.stream is None:
            raise only_of_schema()
        return opened(self._operator(options.outputs or [MATCHES]), {EVENTS: self.stream}, options)

    def _single(self, output: str) -> pa.Table:
        if self.stream is not None:
            check_table(self.stream)
        if output == LATE_ROWS:
            return self.rows.schema.empty_table()
        return pa.concat_tables([self._checked.output.empty_table(), *self._parts()])

    def _parts(self) -> Iterator[pa.Table]:
        """The matches, part by part. A part has some of the partitions."""
        from asterism.row_patterns.result_rows import TableMatcher  # imports numba

        schema, needed = self._checked.rows.input, columns_read(self._checked)
        names = [name for name in schema.names if name in needed]
        stored = pa.schema([schema.field(name) for name in names], schema.metadata)
        now = time.time_ns() // 1000 if self._checked.uses_processing_time else 0

        def build() -> TableMatcher:
            with listed(checked(None), Purpose.TABLES):
                return TableMatcher(check(self._clause, self.rows.schema))

        def prepare(matcher: TableMatcher, name: str, chunk: pa.Table) -> pa.Table:
            return complete(chunk, stored)

        def matches(matcher: TableMatcher, part: TablePart) -> list[pa.Table]:
            return [*matcher.match(complete(part.read()[EVENTS], schema), now)]

        rows = selected_columns(self.rows, names, self._only())
        with (
            Workers(TableMatcher(self._checked), build, threads_of(alone=True)) as workers,
            closing(divided_rows(workers, {EVENTS: rows}, prepare, {EVENTS: stored}, self._buckets_of)) as divided,
        ):
            for tables in workers.map(matches, divided.parts()):
                yield from tables

    def _only(self) -> SourceFilter | None:
        """The rows that matter, if all others can be left out: no expression of PARTITION BY and ORDER BY may fail for them."""
        clause = self._checked
        names = {number: clause.rows.plain_name(number) for number in (*clause.partition_by, *clause.order_by)}
        matter = None if None in names.values() else CurrentRow(clause).matter_ranges
        if matter is None:
            return None
        time = None
        if clause.within is not None:  # which needs the time of each row
            number = clause.order_by[0]
            time = TimeColumn(names[number] or "", clause.rows.values.types[number], MILLISECONDS)
        return SourceFilter(matter.ranges, clause.rows.schema, time, matter.columns)

    def _buckets_of(self, rows: pa.Table) -> Buckets:
        keys = partition_keys(self._checked, rows)
        if not keys or any(pa.types.is_nested(column.type) for column in keys.values()):
            return np.zeros(rows.num_rows, np.uint8)
        return buckets_of(pa.table([*keys.values()], names=[*map(str, keys)]))

    def _run(self, sinks: Mapping[str, Sink], options: RunOptions) -> None:
        options.check_of_table()
        schemas = {MATCHES: self._checked.output, LATE_ROWS: self.rows.schema}
        write(schemas, lambda: {output: self._single(output) for output in sinks}, sinks)
