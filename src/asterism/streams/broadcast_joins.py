"""The multi broadcast join: joins a large table or stream with several small tables in the stage that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic

from asterism.arguments import expect, expect_strings, shown
from asterism.errors import ColumnNotFoundError, StreamDefinitionError
from asterism.joins.types import FILTERING, JOIN_TYPES
from asterism.streams.hosts import host_of, is_of_spark, module_of
from asterism.streams.pattern_stream import Rows


@dataclass(frozen=True)
class Side(Generic[Rows]):
    """A small table to join with.

    :param df: the table: a batch DataFrame, which every executor keeps in memory as a whole; or, if the probe is a table, another
        one, as for a :class:`KeyedStream`
    :param on: the column or columns that have the same name on both sides, or a mapping from columns of the probe to columns
        of this table. As in SQL, null does not equal any value.
    :param how: the join type: ``inner``, ``left``, ``left_semi`` or ``left_anti``
    :param select: the columns of this table in the result. Default: all except the join columns. Semi and anti joins add no
        columns.
    :param prefix: a prefix for the names of these columns
    :raises StreamDefinitionError, ColumnNotFoundError: the join type is not supported, or a column is missing
    """

    df: Rows
    on: str | Sequence[str] | Mapping[str, str]
    how: str = "inner"
    select: Sequence[str] | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        expect(StreamDefinitionError, self.prefix, str, "the prefix must be a string", 'Side(..., prefix="customer_")')
        frame = _module(self.df).frame(self.df, "a broadcast table", 'Side(customers, on="id")')
        object.__setattr__(self, "df", frame)
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
            [name for name in names_of(self.df) if name not in key_columns]
            if self.select is None
            else list(self.select)
        )


def multi_broadcast_join(probe: Rows, sides: Mapping[str, Side[Any]] | None = None, **more: Side[Any]) -> Rows:
    """Join *probe* with small tables in the stage that reads it. The probe is not shuffled, regardless of the number of tables.

    Rows have the columns of the probe, followed by those of each table in turn. A table can be joined on columns of a
    previous table. Every micro-batch of a stream reads and broadcasts the tables again. For a table whose changes take effect
    at a certain time, use a broadcast input.

    :param probe: a batch or streaming DataFrame; or a table, as for a :class:`KeyedStream`: the result is then an Arrow table
    :param sides: the tables; or as keywords: ``multi_broadcast_join(orders, customers=Side(customers, on="customer_id"))``
    :raises StreamDefinitionError: a table is a stream, or two columns have the same name
    :raises ColumnNotFoundError: a join column is missing

    Source: FLIP-92, its first use case. A runnable example: docs/operators.md.
    """
    hint = 'multi_broadcast_join(orders, customers=Side(customers, on="customer_id"))'
    expect(StreamDefinitionError, sides, Mapping | None, "tables must be a dict by name", hint)
    twice = sorted((sides or {}).keys() & more.keys())
    if twice:
        raise StreamDefinitionError(f'the table "{twice[0]}" is joined twice')
    every = {**(sides or {}), **more}
    if not every:
        raise StreamDefinitionError("a join needs at least one table", hint=hint)
    host = _module(probe)
    joined = host.frame(probe, "the left side of a join", hint)
    for name, side in every.items():
        if not isinstance(side, Side):
            raise StreamDefinitionError(
                f'"{name}" is a {type(side).__name__}', hint=f'{name}=Side({name}, on="a column of both")'
            )
        if host is not _module(side.df):
            raise StreamDefinitionError(
                f'"{name}" and the probe are a DataFrame of Spark and an Arrow table',
                hint="spark.createDataFrame(table) makes a DataFrame; df.toArrow() makes a table",
            )
        if host.is_stream(side.df):
            raise StreamDefinitionError(
                f'"{name}" is a stream, and only a static table can be broadcast',
                hint="read it as a batch; or, if it changes while the query runs, make it a BroadcastInput of an operator",
            )
    owners = {column.lower(): "the probe" for column in names_of(joined)}  # column names are case-insensitive in Spark
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
        joined = host.joined(joined, side, f"__{number}:")
    result: Rows = joined
    return result


def names_of(frame: Any) -> list[str]:
    """The columns of a DataFrame of Spark or of an Arrow table."""
    names: list[str] = frame.columns if is_of_spark(frame) else frame.column_names
    return names


def _module(frame: Any) -> Any:
    """What a host does for a join: it checks a table (``frame``, ``is_stream``), and joins it with a side (``joined``)."""
    return module_of(host_of(frame), "broadcast_joins")


def _check(frame: Any, names: Iterable[str], where: str) -> None:
    columns = names_of(frame)
    for name in names:
        if name not in columns:
            raise ColumnNotFoundError.from_missing_and_available(name, columns, where)
