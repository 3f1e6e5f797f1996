"""The multi broadcast join: joins a large table or stream with several small tables in the stage that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from asterism.arguments import expect, expect_strings, shown
from asterism.errors import ColumnNotFoundError, StreamDefinitionError
from asterism.joins.types import FILTERING, JOIN_TYPES
from asterism.spark.session.pipelines import analyzable
from asterism.text.printable import quoted_name


@dataclass(frozen=True)
class Side:
    """A small table to join with.

    :param df: the table, a batch DataFrame. Every executor keeps the whole table in memory.
    :param on: the column or columns that have the same name on both sides, or a mapping from columns of the probe to columns
        of this table. As in SQL, null does not equal any value.
    :param how: the join type: ``inner``, ``left``, ``left_semi`` or ``left_anti``
    :param select: the columns of this table in the result. Default: all except the join columns. Semi and anti joins add no
        columns.
    :param prefix: a prefix for the names of these columns
    :raises StreamDefinitionError, ColumnNotFoundError: the join type is not supported, or a column is missing
    """

    df: DataFrame
    on: str | Sequence[str] | Mapping[str, str]
    how: str = "inner"
    select: Sequence[str] | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        expect(
            StreamDefinitionError,
            self.df,
            DataFrame,
            "a broadcast table must be a DataFrame",
            'Side(customers, on="id")',
        )
        expect(StreamDefinitionError, self.prefix, str, "the prefix must be a string", 'Side(..., prefix="customer_")')
        object.__setattr__(self, "df", analyzable(self.df))
        if self.select is not None:
            expect_strings(
                StreamDefinitionError, self.select, "select must be a list of columns", 'Side(..., select=["name"])'
            )
        if not isinstance(self.how, str) or self.how not in JOIN_TYPES:
            raise StreamDefinitionError(
                f"a broadcast table cannot be joined as {shown(self.how)}",
                "Only a task that reads the whole probe side could find the rows without a match.",
                f"use one of {', '.join(JOIN_TYPES)}",
            )
        if not all(isinstance(name, str) for name in self._names()):
            raise StreamDefinitionError(
                "the join columns of a broadcast table must be strings",
                hint='Side(customers, on="customer_id"), or on={"customer": "id"} where their names differ',
            )
        if not self.columns:
            raise StreamDefinitionError(
                "a broadcast table needs join columns", hint='Side(customers, on="customer_id")'
            )
        if self.how in FILTERING and (self.select is not None or self.prefix):
            raise StreamDefinitionError(f"a table that is joined as {self.how} adds no columns")
        _check(self.df, [*self.columns.values(), *(self.select or ())], "of the broadcast table")

    @property
    def columns(self) -> dict[str, str]:
        """The join columns: from columns of the probe to columns of this table."""
        if isinstance(self.on, Mapping):
            return dict(self.on)
        return {name: name for name in self._names()}

    def _names(self) -> list[Any]:
        """All column names in *on*, which have not been validated yet and may not be strings."""
        if isinstance(self.on, Mapping):
            return list(chain.from_iterable(self.on.items()))
        return list(self.on) if isinstance(self.on, list | tuple | set) else [self.on]

    @property
    def brings(self) -> list[str]:
        """The columns that this table adds to the result, without the prefix."""
        if self.how in FILTERING:
            return []
        key_columns = self.columns.values()
        return (
            [name for name in self.df.columns if name not in key_columns] if self.select is None else list(self.select)
        )


def multi_broadcast_join(probe: DataFrame, sides: Mapping[str, Side] | None = None, **more: Side) -> DataFrame:
    """Join *probe* with small tables in the stage that reads it. The probe is not shuffled, regardless of the number of tables.

    Rows have the columns of the probe, followed by those of each table in turn. A table can be joined on columns of a
    previous table. Every micro-batch of a stream reads and broadcasts the tables again. For a table whose changes take effect
    at a certain time, use a broadcast input.

    :param probe: a batch or streaming DataFrame
    :param sides: the tables; or as keywords: ``multi_broadcast_join(orders, customers=Side(customers, on="customer_id"))``
    :raises StreamDefinitionError: a table is a stream, or two columns have the same name
    :raises ColumnNotFoundError: a join column is missing

    Source: FLIP-92, its first use case. A runnable example: docs/operators.md.
    """
    hint = 'multi_broadcast_join(orders, customers=Side(customers, on="customer_id"))'
    expect(StreamDefinitionError, probe, DataFrame, "the left side of a join must be a DataFrame", hint)
    expect(StreamDefinitionError, sides, Mapping | None, "tables must be a dict by name", hint)
    twice = sorted((sides or {}).keys() & more.keys())
    if twice:
        raise StreamDefinitionError(f'the table "{twice[0]}" is joined twice')
    every = {**(sides or {}), **more}
    if not every:
        raise StreamDefinitionError("a join needs at least one table", hint=hint)
    probe = analyzable(probe)
    for name, side in every.items():
        if not isinstance(side, Side):
            raise StreamDefinitionError(
                f'"{name}" is a {type(side).__name__}', hint=f'{name}=Side({name}, on="a column of both")'
            )
        if side.df.isStreaming:
            raise StreamDefinitionError(
                f'"{name}" is a stream, and only a static table can be broadcast',
                hint="read it as a batch; or, if it changes while the query runs, make it a BroadcastInput of an operator",
            )
    owners = {column.lower(): "the probe" for column in probe.columns}  # column names are case-insensitive in Spark
    joined = probe
    for number, (name, side) in enumerate(every.items()):
        _check(joined, side.columns, f'in the join columns of the table "{name}"')
        for column in side.brings:
            shown = side.prefix + column
            if shown.lower() in owners:
                raise StreamDefinitionError(
                    f'two columns would be named "{shown}"',
                    f'One is of {owners[shown.lower()]}, one of "{name}".',
                    f'Side(..., prefix="{name}_"), or select=[...] the columns that are needed',
                )
            owners[shown.lower()] = f'"{name}"'
        joined = _joined(joined, side, f"__{number}:")
    return joined


def _joined(left: DataFrame, side: Side, mark: str) -> DataFrame:
    # Unique names prevent ambiguous references between tables that are derived from one another.
    keys = {ours: mark + theirs for ours, theirs in side.columns.items()}
    right = side.df.select(
        *[F.col(quoted_name(theirs)).alias(mark + theirs) for theirs in dict.fromkeys(side.columns.values())],
        *[F.col(quoted_name(name)).alias(side.prefix + name) for name in side.brings],
    )
    on = reduce(and_, [F.col(quoted_name(ours)) == F.col(quoted_name(theirs)) for ours, theirs in keys.items()])
    return left.join(F.broadcast(right), on, side.how).drop(*keys.values())


def _check(df: DataFrame, names: Iterable[str], where: str) -> None:
    for name in names:
        if name not in df.columns:
            raise ColumnNotFoundError.from_missing_and_available(name, df.columns, where)
