"""Functions of users that take the rows of an output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from asterism.arguments import shown
from asterism.errors import StreamDefinitionError

Sink = Callable[[Any, int], None]
"""A function of rows, a DataFrame or a table, and the number of the micro-batch."""


def sink_of_output(sink: Sink, output: str) -> Sink:
    """Tell a sink the name of its output, if it wants to know: one sink may be that of several outputs."""
    for_output = getattr(sink, "for_output", None)  # of DeltaSink, IcebergSink
    named: Sink = for_output(output) if callable(for_output) else sink
    return named


def check_columns_of_sink(sink: Sink, columns: Sequence[str]) -> None:
    """Tell a sink the columns that it will get, if it wants to know."""
    check_columns = getattr(sink, "check_columns", None)  # of FileSink
    if callable(check_columns):
        check_columns(columns)


def check_takes_tables(sink: Sink, output: str) -> None:
    """:raises StreamDefinitionError: only Spark can call the sink, since it writes DataFrames"""
    if getattr(sink, "needs_spark", False):
        raise StreamDefinitionError(
            f'the sink of "{output}" writes DataFrames, and there is no Spark: {shown(sink)}',
            hint="SqlSink, or a function of a table and a number: lambda rows, number: ...",
        )
