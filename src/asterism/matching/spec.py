"""What the operator of a pattern matches: its options, and all of its arguments, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

import pyarrow as pa
from sqlglot import exp

from asterism.arguments import expect, expect_strings, shown
from asterism.columns.sort_keys import SortKey, check_order
from asterism.columns.time import TimeColumn
from asterism.errors import StreamDefinitionError
from asterism.expressions.names import Scope
from asterism.matching.outputs import OutputSpec, check_outputs
from asterism.patterns.compiler import check_pattern
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics

MAX_PARTIAL_MATCHES = 100_000
"""The default maximum number of partial matches of a key."""
LARGEST_LIMIT = 10**12
OnLimit = Literal["error", "drop"]
PROCESSING_TIME = TimeColumn("processing time", pa.timestamp("us", "UTC"))


class MatchOptions(TypedDict, total=False):
    """The options of a pattern over a stream.

    :param semantics: the semantics, see ``docs/differences_from_flink.md``. Default: ``Semantics.DEFAULT``
    :param order_by: the secondary order of events with equal times: columns, descending with a leading ``-``, as in
        :class:`asterism.KeyedStream`. Default: that of their arrival
    :param pages: a fixed number of pages of state per key group. Default: as many as the size of the state requires
    :param max_partial_matches: the maximum number of partial matches of a key after each of its events, by default
        MAX_PARTIAL_MATCHES; None: no maximum. It also limits the cost of one event, see ``docs/limits.md``.
    :param on_limit: what happens beyond the maximum: ``"error"``, the default, raises
        :class:`~asterism.errors.LimitExceededError`; with ``"drop"`` the partial matches that began last are dropped, without a
        timeout, and counted in the metric ``partial_matches_dropped``
    """

    semantics: Semantics
    order_by: Sequence[str]
    pages: int | None
    max_partial_matches: int | None
    on_limit: OnLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchSpec:
    """The arguments of a :class:`~asterism.matching.operator.CepOperator`, with those of MatchOptions.

    :raises StreamDefinitionError, ColumnNotFoundError: one of them is invalid
    """

    pattern: Pattern
    schema: pa.Schema
    keys: Sequence[str]
    time: str | None
    outputs: Mapping[str, OutputSpec]
    semantics: Semantics = Semantics.DEFAULT
    order_by: Sequence[str] = ()
    pages: int | None = None
    max_partial_matches: int | None = MAX_PARTIAL_MATCHES
    on_limit: OnLimit = "error"

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        expect(StreamDefinitionError, self.schema, pa.Schema, "the schema of the events must be a pyarrow.Schema")
        expect_strings(StreamDefinitionError, self.keys, "keys must be a list of columns", 'keys=["user"]')
        expect(StreamDefinitionError, self.time, str | None, "time must be the name of a column or None", 'time="ts"')
        order_hint = 'order_by=["price", "-volume"]'
        expect_strings(StreamDefinitionError, self.order_by, "order_by must be a list of columns", order_hint)
        check_outputs(self.outputs)
        check_limit(self.max_partial_matches)
        if not isinstance(self.on_limit, str) or self.on_limit not in get_args(OnLimit):
            raise StreamDefinitionError(f'on_limit must be "error" or "drop", not {shown(self.on_limit)}')
        time = [] if self.time is None else [self.time]
        for name in (*self.keys, *time, *(key.name for key in self.sort_keys)):
            Scope(self.schema).column(exp.column(name, quoted=True), f"key, time and order columns: {name}")
        check_order(self.schema, self.sort_keys)

    @property
    def sort_keys(self) -> list[SortKey]:
        return [SortKey.of(text) for text in self.order_by]

    @property
    def time_column(self) -> TimeColumn:
        return PROCESSING_TIME if self.time is None else TimeColumn.of(self.time, self.schema)


def check_limit(max_partial_matches: Any) -> None:
    """:raises StreamDefinitionError: the value is not a valid limit of partial matches"""
    expect(StreamDefinitionError, max_partial_matches, int | None, "max_partial_matches must be an integer or None")
    if max_partial_matches is not None and max_partial_matches > LARGEST_LIMIT:
        raise StreamDefinitionError("max_partial_matches is out of range", hint="for no limit, use None")
    if max_partial_matches is not None and max_partial_matches < 1:
        raise StreamDefinitionError(f"max_partial_matches must be positive or None, not {max_partial_matches}")
