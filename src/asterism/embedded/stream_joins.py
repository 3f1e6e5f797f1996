"""Joins over Arrow tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from asterism.embedded.tables import run_inputs, write
from asterism.expressions.routines.user_functions import Purpose, checked, listed
from asterism.joins.conditions import JoinConditions
from asterism.joins.multi_operator import MultiJoinOperator
from asterism.joins.operator import JoinOperator
from asterism.operators.multiple_input import Wire
from asterism.operators.sink_functions import Sink
from asterism.streams.joins import BuildJoin
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.run_options import RunOptions


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
        self._tables = {name: stream.df for name, stream in streams.items()}
        self._wires = {
            name: Wire(stream.df.schema, tuple(stream.keys), stream.time) for name, stream in streams.items()
        }
        self.operator = self._operator([])

    def _operator(self, late: Collection[str]) -> JoinOperator | MultiJoinOperator:
        with listed(checked(None), Purpose.TABLES):
            return self._build(dict(self._wires), late=late, pages=1)

    def rows(self, late: Collection[str], output: str) -> pa.Table:
        return run_inputs(self._operator(late), self._tables)[output]

    def run(self, late: Sequence[str], sinks: Mapping[str, Sink], options: RunOptions) -> None:
        operator = self._operator(late)
        write(operator.output_schemas, lambda: run_inputs(operator, self._tables), sinks)
