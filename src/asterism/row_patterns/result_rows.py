"""Matches a clause in a table, and computes the rows of the result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, cast_to, one_chunk
from asterism.row_patterns import kernels as k
from asterism.row_patterns.checking import CheckedClause
from asterism.row_patterns.clause.clause import RowsPerMatch
from asterism.row_patterns.current_row import CurrentRow
from asterism.row_patterns.match_conditions import ClauseConditions
from asterism.row_patterns.match_items import FoundMatches, MatchItems, over_leaves
from asterism.row_patterns.ordered_rows import OrderedRows, columns_kept, partition_keys, partitions_of
from asterism.row_patterns.resolution import MeasureValue
from asterism.row_patterns.search import MatchSearch, SearchState, no_progress


def match_table(clause: CheckedClause, rows: pa.Table, processing_time: int = 0) -> pa.Table:
    """The result of a clause: partition by partition, in the order in which the partitions appear in *rows*.

    :param rows: the input, with the schema that the clause was checked for
    :param processing_time: in microseconds since the epoch
    :raises asterism.errors.SkipStrategyError: AFTER MATCH SKIP TO has no row to go to
    :raises asterism.errors.LimitExceededError: a partition is too large for the pattern, a match for running aggregates, or the
        search for a match takes too many steps because conditions depend on the match so far
    :raises asterism.errors.InvalidEventError: an expression fails in a row that the search reaches, or a time is NULL although
        there is WITHIN

    >>> from asterism.row_patterns.checking import check
    >>> from asterism.row_patterns.clause.reading import read
    >>> prices = pa.table({"ts": [1, 2, 3, 4], "price": [7, 5, 4, 6]})
    >>> text = "ORDER BY ts MEASURES A.price AS high, LAST(D.price) AS low PATTERN (A D+) DEFINE D AS price < PREV(price)"
    >>> match_table(check(read(text), prices.schema), prices).to_pylist()
    [{'high': 7, 'low': 4}]
    """
    return pa.concat_tables([clause.output.empty_table(), *TableMatcher(clause).match(rows, processing_time)])


class TableMatcher:
    """A clause that is matched in several tables."""

    def __init__(self, clause: CheckedClause) -> None:
        self._clause = clause
        self._current_row = CurrentRow(clause)
        self._conditions = ClauseConditions(clause, self._current_row)
        self._kept = columns_kept(clause, self._current_row)

    def match(self, rows: pa.Table, processing_time: int = 0) -> Iterator[pa.Table]:
        """The result for a table, in parts, with arguments as for :func:`match_table`.

        :param rows: they may have a column WORDS, see :attr:`CurrentRow.words_sql`
        """
        if not rows.num_rows:
            return
        clause = self._clause
        keys = partition_keys(clause, rows, clause.order_by)
        words = self._current_row.words(rows).to_numpy()
        codes, count = partitions_of(clause, keys, rows.num_rows)
        rows = rows.select(self._kept)
        if self._current_row.has_neutral:
            kept = ~self._current_row.neutral(words)
            if clause.within is not None:  # WITHIN needs the time of each row
                kept |= keys[clause.order_by[0]].is_null().to_numpy(zero_copy_only=False)
            at = np.flatnonzero(kept)
            if len(at) < len(kept):
                taken = pa.array(at)
                rows, codes, words = rows.take(taken), codes[at], words[at]
                keys = {number: column.take(taken) for number, column in keys.items()}
        ordered = OrderedRows.sorted(clause, rows, keys, codes, count, words)
        state = SearchState(no_progress(count), processing_time)
        yield from match_ordered(self._conditions, ordered, state)

    def close(self) -> None:
        """Nothing to do: it holds nothing outside of this process."""


def match_ordered(conditions: ClauseConditions, ordered: OrderedRows, state: SearchState) -> Iterator[pa.Table]:
    """The result in parts; see :func:`match_table`. After each part, *state* has the progress of the search.

    :raises asterism.errors.LimitExceededError: also if a match may have more rows than *state* allows
    """
    for found_matches in MatchSearch(conditions, ordered, state).run():
        if len(found_matches.matches) or found_matches.unmatched.any():
            yield _result_rows(ordered, found_matches, state.processing_time)
        else:
            yield ordered.clause.output.empty_table()


def _items(ordered: OrderedRows, found_matches: FoundMatches) -> list[Ints]:
    """For each row of the output, in order: the number of its match, or -1 for an unmatched row; the number of visible rows of
    the match; and its row of the input.
    """
    matches, kind = found_matches.matches, ordered.clause.clause.rows
    starts, sizes = matches[:, k.START], matches[:, k.ROWS]
    if kind is RowsPerMatch.ONE:
        items = [np.arange(len(matches)), sizes, starts]
    else:
        shown = ~ordered.clause.automaton.excluded[found_matches.labels]
        match_of_label, place = np.repeat(np.arange(len(matches)), sizes), found_matches.place_of_label
        items = [match_of_label[shown], place[shown] + 1, (starts[match_of_label] + place)[shown]]
        if kind is not RowsPerMatch.ALL_OMIT_EMPTY:
            empty = np.flatnonzero(sizes == 0)
            items = _joined(items, [empty, np.zeros_like(empty), starts[empty]])
        if kind is RowsPerMatch.ALL_WITH_UNMATCHED:
            left = np.flatnonzero(found_matches.unmatched)
            items = _joined(items, [np.full_like(left, -1), np.zeros_like(left), left])
    begins = items[2].copy()
    begins[items[0] >= 0] = starts[items[0][items[0] >= 0]]
    order = np.argsort(begins, kind="stable")
    return [column[order] for column in items]


def _result_rows(ordered: OrderedRows, found_matches: FoundMatches, processing_time: int) -> pa.Table:
    clause = ordered.clause
    match, visible, row = _items(ordered, found_matches)
    items = MatchItems(ordered, found_matches, match, visible, processing_time)
    leaves = items.leaves(clause.measures, whole=clause.clause.rows is RowsPerMatch.ONE)
    rows, matched = pa.array(row), pa.array(match >= 0)
    measures = dict(zip((measure.name for measure in clause.clause.measures), clause.measures, strict=True))
    columns = []
    values: list[pa.Array] = []
    for place, field in enumerate(clause.output):
        if place < len(clause.partition_by):
            column = ordered.keys[clause.partition_by[place]].take(rows)
        elif field.name in measures:
            resolved = measures[field.name]
            given = [
                values[leaf.number] if isinstance(leaf, MeasureValue) else leaves[leaf] for leaf in resolved.leaves
            ]
            values.append(one_chunk(over_leaves(resolved, given, len(rows))))
            column = pc.if_else(matched, values[-1], pa.scalar(None, values[-1].type))
        else:
            column = one_chunk(ordered.rows.column(field.name)).take(rows)
        columns.append(cast_to(column, field.type))
    return pa.table(columns, schema=clause.output)


def _joined(left: list[Ints], right: list[Ints]) -> list[Ints]:
    return [np.concatenate(pair) for pair in zip(left, right, strict=True)]
