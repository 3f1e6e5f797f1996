"""The rows of a clause by partition, in order, and the expressions that are computed from them before the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, one_chunk
from asterism.columns.groups import group_codes, narrow, normalize_nan_and_zero, offsets_of, sorted_rows
from asterism.columns.time import MILLISECONDS, TimeColumn
from asterism.errors import NullEventTimeError
from asterism.expressions.aggregates.accumulators import sort_keys
from asterism.expressions.computed_columns import visible
from asterism.expressions.evaluation import Vectorized
from asterism.operators.key_group import complete
from asterism.row_patterns.checking import CheckedClause
from asterism.row_patterns.clause.clause import RowsPerMatch
from asterism.row_patterns.current_row import WORDS, CurrentRow
from asterism.row_patterns.resolution import Leaf, RowValue

Path = tuple[int, int, int, Ints]
"""(first row, partition, number of the match, states of its rows); the last state is that of the row that is tested."""


def evaluated(values: Vectorized, numbers: Sequence[int], rows: pa.Table) -> dict[int, pa.Array]:
    """Some of the expressions of *values* over rows, by number."""
    selected = Vectorized(values.schema)
    new_numbers = {number: selected.adopt(values, number) for number in numbers}
    columns = selected.evaluate(rows)
    return {number: one_chunk(columns[at]) for number, at in new_numbers.items()}


def partition_keys(clause: CheckedClause, rows: pa.Table, others: Sequence[int] = ()) -> dict[int, pa.Array]:
    """The values of PARTITION BY over rows, normalized as in Spark's GROUP BY, and of *others*, by number."""
    keys = evaluated(clause.rows.values, [*clause.partition_by, *others], rows)
    return keys | {number: normalize_nan_and_zero(keys[number]) for number in clause.partition_by}


def partitions_of(clause: CheckedClause, keys: Mapping[int, pa.Array], count: int) -> tuple[Ints, int]:
    """(for each row the number of its partition, the number of partitions). Partitions are numbered in order of appearance."""
    if not clause.partition_by:
        return np.zeros(count, np.int64), 1
    return group_codes(
        pa.table([keys[number] for number in clause.partition_by], names=[*map(str, clause.partition_by)])
    )


def columns_kept(clause: CheckedClause, current_row: CurrentRow) -> list[str]:
    """The columns that are still needed once the bits, the partitions and the order of the rows have been computed."""
    names = set() if clause.clause.rows is RowsPerMatch.ONE else set(visible(clause.rows.input).names)
    read: list[Leaf] = [leaf for measure in clause.measures for leaf in measure.leaves]
    for name, condition in clause.conditions.items():
        if not current_row.bits[name].whole:
            read += condition.resolved.leaves
    numbers = {leaf.number for leaf in read if isinstance(leaf, RowValue)}
    numbers |= {aggregate.number for aggregate in clause.rows.plain_aggregates.values() if aggregate.number is not None}
    names |= clause.rows.columns_of(numbers)
    for calls in clause.rows.calls.values():
        names |= set(calls.read)
    # A table without columns would lose its number of rows.
    return [name for name in clause.rows.input.names if name in names] or clause.rows.input.names[:1]


def columns_beside_words(clause: CheckedClause, current_row: CurrentRow) -> set[str]:
    """The columns of the input that are read if the rows come with their bits."""
    keys = clause.rows.columns_of([*clause.partition_by, *clause.order_by])
    return keys.union(columns_kept(clause, current_row)).intersection(clause.rows.input.names)


def complete_with_words(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """*rows* with all columns of *schema*, and with the column WORDS if Spark has computed it."""
    full = complete(rows, schema)
    if WORDS not in rows.column_names or WORDS in schema.names:
        return full
    return full.append_column(WORDS, rows.column(WORDS))


@dataclass(slots=True)
class OrderedRows:
    """Rows by partition, in order.

    :ivar offsets: rows ``offsets[i]:offsets[i + 1]`` are partition *i*
    :ivar keys: the values of the expressions of PARTITION BY and ORDER BY, by number
    :ivar words: see :meth:`asterism.row_patterns.current_row.CurrentRow.words`; None: they have not been computed
    """

    clause: CheckedClause
    rows: pa.Table
    offsets: Ints
    keys: dict[int, pa.Array]
    words: Ints | None = None

    @classmethod
    def of(cls, clause: CheckedClause, rows: pa.Table) -> OrderedRows:
        """Partitions are numbered in order of appearance."""
        keys = partition_keys(clause, rows, clause.order_by)
        codes, count = partitions_of(clause, keys, rows.num_rows)
        return cls.sorted(clause, rows, keys, codes, count)

    @classmethod
    def sorted(
        cls,
        clause: CheckedClause,
        rows: pa.Table,
        keys: dict[int, pa.Array],
        codes: Ints,
        count: int,
        words: Ints | None = None,
    ) -> OrderedRows:
        """
        :param rows: may lack columns that are not read
        :param codes: for each row the number of its partition
        :param count: the number of partitions
        """
        sorted_by: list[Ints] = [narrow(codes)]
        for key, number in zip(clause.clause.order_by, clause.order_by, strict=True):
            column = keys[number]
            values = sort_keys(column)
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                nulls_first = not key.descending if key.nulls_first is None else key.nulls_first
                sorted_by.append((~nulls if nulls_first else nulls).astype(np.int8))
                values = np.where(nulls, 0, values)
            sorted_by.append(~values if key.descending else values)
        order, _ = sorted_rows(*sorted_by)
        offsets = offsets_of(np.bincount(codes, minlength=count))
        if not np.array_equal(order, np.arange(len(order))):
            taken = pa.array(order)
            rows, keys = rows.take(taken), {number: column.take(taken) for number, column in keys.items()}
            words = None if words is None else words[order]
        return cls(clause, complete(rows, clause.rows.input), offsets, keys, words)

    def shifted(self, steps: int) -> pa.Array:
        """For each row the row that is *steps* after it in its partition, or null."""
        at = np.arange(self.rows.num_rows) + steps
        partition = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        outside = (at < self.offsets[partition]) | (at >= self.offsets[partition + 1])
        return pa.array(at, mask=outside)

    def times(self, *, needed: bool = False) -> Ints:
        """The times that WITHIN bounds, in microseconds.

        :param needed: whether the times are needed without WITHIN, too; otherwise they are zeros without WITHIN
        """
        clause = self.clause
        if clause.within is None and not needed:
            return np.zeros(self.rows.num_rows, np.int64)
        column = self.keys[clause.order_by[0]]
        if column.null_count:
            source = clause.clause.order_by[0].expression.text
            raise NullEventTimeError(
                f"a time is NULL: {source}", "WITHIN needs the time of each row", "filter such rows out"
            )
        times = TimeColumn("time", column.type, MILLISECONDS).to_micros(pa.chunked_array([column]))
        micros: Ints = np.array(one_chunk(times).to_numpy(zero_copy_only=False))
        return micros  # a copy, because Arrow's arrays are read-only, for which all kernels would be compiled once more
