"""Joins over Arrow tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from asterism.embedded.batches import check_live, check_table, is_live, opened, wire_of
from asterism.embedded.tables import Outputs, parts_of_inputs, selected, threads_of, whole, write
from asterism.errors import StreamDefinitionError
from asterism.expressions.routines.user_functions import Purpose, checked, listed
from asterism.joins.conditions import JoinConditions
from asterism.joins.multi_operator import MultiJoinOperator
from asterism.joins.operator import JoinOperator
from asterism.live.live_options import LiveOptions
from asterism.operators.sink_functions import Sink
from asterism.streams.joins import BuildJoin
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.run_options import RunOptions

if TYPE_CHECKING:
    from asterism.live.engine import LiveEngine


def hosted_join(
    streams: Mapping[str, KeyedStream[Any]],
    build: BuildJoin,
    conditions: JoinConditions,
    key_groups: int | None,
    drain: bool,
) -> ArrowJoin:
    """See :class:`asterism.streams.joins.HostedJoin`."""
    return ArrowJoin(streams, build)


class ArrowJoin:
    """A join of tables. Results are computed each time they are read.

    :param build: creates the operator of its inputs, with the options ``late`` and ``pages``
    """

    rows_class = pa.Table

    def __init__(self, streams: Mapping[str, KeyedStream[Any]], build: BuildJoin) -> None:
        self._build = build
        self._streams = dict(streams)
        live = {is_live(stream) for stream in streams.values()}
        if len(live) > 1:
            raise StreamDefinitionError(
                "a join cannot combine tables with streams of a schema", hint="KeyedStream(table.schema, ...)"
            )
        self._live = True in live
        self._tables = {name: stream.df for name, stream in streams.items()}
        self._wires = {name: wire_of(stream) for name, stream in streams.items()}
        self.operator = self._operator([])

    def _operator(self, late: Collection[str]) -> JoinOperator | MultiJoinOperator:
        with listed(checked(None), Purpose.TABLES):
            return self._build(dict(self._wires), late=late, pages=None if self._live else 1)

    def rows(self, late: Collection[str], output: str) -> pa.Table:
        self._check_tables()
        return self._outputs(late)[output]

    def run(self, late: Sequence[str], sinks: Mapping[str, Sink], options: RunOptions) -> None:
        self._check_tables()
        options.check_of_table()
        operator = self._operator(late)
        write(operator.output_schemas, lambda: self._outputs(late), sinks)

    def _outputs(self, late: Collection[str]) -> Outputs:
        operator = self._operator(late)
        tables = {name: selected(table, operator, name) for name, table in self._tables.items()}
        parts = parts_of_inputs(operator, partial(self._operator, late), tables, threads=threads_of(alone=True))
        return whole(operator, parts)

    def open(self, late: Sequence[str], options: LiveOptions, outputs: Sequence[str]) -> LiveEngine:
        for stream in self._streams.values():
            check_live(stream)
        return opened(self._operator(late), self._streams, options, names={output: output for output in outputs})

    def _check_tables(self) -> None:
        for stream in self._streams.values():
            check_table(stream)
