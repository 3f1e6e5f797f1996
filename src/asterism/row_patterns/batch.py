"""Matches a clause in a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, Mask, cast_to, one_chunk
from asterism.columns.groups import group_codes, mask_of, normalize_nan_and_zero, offsets_of
from asterism.columns.time import END_OF_TIME, MILLISECONDS, TimeColumn
from asterism.errors import InvalidEventError, LimitExceededError, NullEventTimeError, SkipStrategyError
from asterism.expressions.aggregates.accumulators import filled, sort_keys, where_valid
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import columns_of, plain_column
from asterism.expressions.types import BIGINT, DOUBLE, FLOATS, INTEGERS, NULL, STRING
from asterism.operators.key_group import complete
from asterism.row_patterns import match_search
from asterism.row_patterns.automaton import RowAutomaton, compiled_pattern
from asterism.row_patterns.checking import CheckedClause
from asterism.row_patterns.clause import RowsPerMatch, SkipTo, quoted
from asterism.row_patterns.current_row import CurrentRow
from asterism.row_patterns.match_conditions import BoundConditions, ClauseConditions
from asterism.row_patterns.match_search import MatchSearch, Path, SearchCallbacks, SearchedPattern
from asterism.row_patterns.resolution import (
    AggregateValue,
    Leaf,
    MatchNumber,
    MatchProcessingTime,
    MatchTimeout,
    MeasureValue,
    ResolvedExpression,
    RowValue,
)

MAX_TABLE = 2**30  # bytes of the table of ends of a partition
MATCHED_ROWS = 5_000_000
"""How many rows of matches are made into a result at a time; with SKIP TO NEXT ROW, a row is in many matches."""
_FEW = 4  # items, of which each may take a row, so that expressions are computed for taken rows instead of all
NO_LIMIT = 2**62
_SURELY_FITS = 2**62  # of the absolute values of sums
AT_ONCE = 1_000_000  # members of the groups whose running aggregates are computed together
MAX_RUNNING = 200_000_000
"""How many members the groups of the running aggregates of a match may have: the rows up to each of its rows."""


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
    >>> from asterism.row_patterns.reading import read
    >>> prices = pa.table({"ts": [1, 2, 3, 4], "price": [7, 5, 4, 6]})
    >>> text = "ORDER BY ts MEASURES A.price AS high, LAST(D.price) AS low PATTERN (A D+) DEFINE D AS price < PREV(price)"
    >>> match_table(check(read(text), prices.schema), prices).to_pylist()
    [{'high': 7, 'low': 4}]
    """
    return pa.concat_tables([clause.output.empty_table(), *match_parts(clause, rows, processing_time)])


def match_parts(clause: CheckedClause, rows: pa.Table, processing_time: int = 0) -> Iterator[pa.Table]:
    """The result of :func:`match_table` in parts."""
    yield from TableMatcher(clause).match(rows, processing_time)


class TableMatcher:
    """A clause that is matched in several tables."""

    def __init__(self, clause: CheckedClause) -> None:
        self._clause, self._automaton = clause, compiled_pattern(clause.clause)
        self._current_row = CurrentRow(clause, self._automaton)
        self._conditions = ClauseConditions(clause, self._current_row)
        self._kept = columns_kept(clause, self._current_row)

    def match(self, rows: pa.Table, processing_time: int = 0) -> Iterator[pa.Table]:
        """The result for a table, in parts, with arguments as for :func:`match_table`."""
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
        search = Search.of_table(ordered, processing_time)
        yield from match_ordered(clause, self._automaton, self._conditions, ordered, search)


def match_ordered(
    clause: CheckedClause, automaton: RowAutomaton, conditions: ClauseConditions, ordered: OrderedRows, search: Search
) -> Iterator[pa.Table]:
    """Rows of the result, and at the end of each part how far the search has come; see :func:`match_table`.

    :raises asterism.errors.LimitExceededError: also if a match may have more rows than *search* allows
    """
    for found in _search(clause, automaton, conditions, ordered, search):
        if len(found.matches) or found.unmatched.any():
            yield _ResultRows(clause, automaton, ordered, found, search.processing_time).table()
        else:
            yield clause.output.empty_table()


# ---------------------------------------------------------------------------------------------------- rows in order


def evaluated(values: Vectorized, numbers: Sequence[int], rows: pa.Table) -> dict[int, pa.Array]:
    """Some of the expressions of *values* over rows."""
    some = Vectorized(values.schema)
    own = {number: some.adopt(values, number) for number in numbers}
    columns = some.evaluate(rows)
    return {number: one_chunk(columns[at]) for number, at in own.items()}


def partition_keys(clause: CheckedClause, rows: pa.Table, others: Sequence[int] = ()) -> dict[int, pa.Array]:
    """The values of PARTITION BY over rows, as Spark's GROUP BY sees them, and of *others*, by number."""
    keys = evaluated(clause.rows.values, [*clause.partition_by, *others], rows)
    return keys | {number: normalize_nan_and_zero(keys[number]) for number in clause.partition_by}


def partitions_of(clause: CheckedClause, keys: Mapping[int, pa.Array], count: int) -> tuple[Ints, int]:
    """(for each row the number of its partition, how many there are), in the order in which they appear."""
    if not clause.partition_by:
        return np.zeros(count, np.int64), 1
    return group_codes(
        pa.table([keys[number] for number in clause.partition_by], names=[*map(str, clause.partition_by)])
    )


def columns_kept(clause: CheckedClause, current_row: CurrentRow) -> list[str]:
    """The columns that are read when the bits of the rows are known, their partitions and their order."""
    values = clause.rows.values
    if clause.clause.rows is not RowsPerMatch.ONE:
        return [*clause.rows.input.names]
    read: list[Leaf] = [leaf for one in clause.measures for leaf in one.leaves]
    for name, condition in clause.conditions.items():
        if not current_row.bits[name].whole:
            read += condition.resolved.leaves
    numbers = {leaf.number for leaf in read if isinstance(leaf, RowValue)}
    numbers |= {one.number for one in clause.rows.plain_aggregates.values() if one.number is not None}
    names = {values.schema.names[column] for number in numbers for column in columns_of(values.texts[number])}
    for calls in clause.rows.calls.values():
        names |= set(calls.read)
    # Without a column, a table has no rows.
    return [name for name in clause.rows.input.names if name in names] or clause.rows.input.names[:1]


@dataclass(slots=True)
class OrderedRows:
    """Rows by partition, in order.

    :ivar offsets: rows ``offsets[i]:offsets[i + 1]`` are partition *i*
    :ivar keys: expressions of PARTITION BY and ORDER BY
    :ivar words: see :meth:`asterism.row_patterns.current_row.CurrentRow.words`; None: not known
    """

    rows: pa.Table
    offsets: Ints
    keys: dict[int, pa.Array]
    words: Ints | None = None

    @classmethod
    def of(cls, clause: CheckedClause, rows: pa.Table) -> OrderedRows:
        """Partitions are numbered in the order in which they appear."""
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
        :param count: how many partitions there are
        """
        sorted_by: list[Any] = [codes.astype(np.uint16) if count <= 2**16 else codes]  # 16 bits: a radix sort
        for key, number in zip(clause.clause.order_by, clause.order_by, strict=True):
            column = keys[number]
            values = sort_keys(column)
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                nulls_first = not key.descending if key.nulls_first is None else key.nulls_first
                sorted_by.append(~nulls if nulls_first else nulls)
                values = np.where(nulls, 0, values)
            sorted_by.append(~values if key.descending else values)
        order = np.lexsort(sorted_by[::-1])
        offsets = offsets_of(np.bincount(codes, minlength=count))
        if not np.array_equal(order, np.arange(len(order))):
            taken = pa.array(order)
            rows, keys = rows.take(taken), {number: column.take(taken) for number, column in keys.items()}
            words = None if words is None else words[order]
        return cls(complete(rows, clause.rows.input), offsets, keys, words)

    @property
    def partition_of(self) -> Ints:
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def shifted(self, steps: int) -> pa.Array:
        """For each row the row that is *steps* after it in its partition, or null."""
        at = np.arange(self.rows.num_rows) + steps
        partition = self.partition_of
        outside = (at < self.offsets[partition]) | (at >= self.offsets[partition + 1])
        return pa.array(at, mask=outside)


def _over_leaves(resolved: ResolvedExpression, leaves: Sequence[pa.Array], count: int) -> pa.ChunkedArray:
    """The value of an expression, given its leaves."""
    # Without a leaf, a column provides the number of rows.
    table = pa.table(leaves, schema=resolved.body.schema) if leaves else pa.table({"rows": pa.nulls(count)})
    return resolved.body.evaluate(table)[0]


# ---------------------------------------------------------------------------------------------------- the search


@dataclass(frozen=True, slots=True)
class _FoundMatches:
    """What the kernel found; see :func:`asterism.row_patterns.kernels.find_matches`."""

    matches: Ints
    labels: Ints
    unmatched: Mask


def times_of(clause: CheckedClause, ordered: OrderedRows) -> Ints:
    """The times that WITHIN bounds, in microseconds; zeros without WITHIN."""
    if clause.within is None:
        return np.zeros(ordered.rows.num_rows, np.int64)
    column = ordered.keys[clause.order_by[0]]
    if column.null_count:
        source = clause.clause.order_by[0].expression.text
        raise NullEventTimeError(
            f"a time is NULL: {source}", "WITHIN needs the time of each row", "filter such rows out"
        )
    times = TimeColumn("time", column.type, MILLISECONDS).to_micros(pa.chunked_array([column]))
    found: Ints = one_chunk(times).to_numpy(zero_copy_only=False)
    return found


@dataclass(slots=True)
class Search:
    """How far the search has come in each partition, and what may still come.

    :ivar progress: see :func:`asterism.row_patterns.kernels.find_matches`
    :ivar processing_time: of this search, in microseconds since the epoch
    :ivar ended: whether no more rows come
    :ivar horizon: rows that come have later times, in microseconds
    :ivar max_rows: how many rows of a partition a search may wait with for more
    :ivar drop: whether a start with which it would wait longer is dropped; otherwise LimitExceededError is raised
    """

    progress: Ints
    processing_time: int
    ended: bool = True
    horizon: int = END_OF_TIME
    max_rows: int = NO_LIMIT
    drop: bool = False

    @classmethod
    def of_table(cls, ordered: OrderedRows, processing_time: int) -> Search:
        return cls(np.zeros((len(ordered.offsets) - 1, 5), np.int64), processing_time)

    def limits(self, clause: CheckedClause) -> tuple[bool, int, int, int, int, bool]:
        """What the kernels must know of rows that may still come; the last arguments of ``find_matches``."""
        lookahead, trailing = reach_of_conditions(clause)[1], reach_of_measures(clause)[1]
        return self.ended, self.horizon, lookahead, trailing, self.max_rows, self.drop


def reach_of_conditions(clause: CheckedClause) -> tuple[int, int]:
    """How many rows before and after a row its conditions read."""
    return _reach(one.resolved for one in clause.conditions.values())


def reach_of_measures(clause: CheckedClause) -> tuple[int, int]:
    """How many rows before the first and after the last row of a match its measures read, at most."""
    return _reach(clause.measures)


def _reach(expressions: Iterable[ResolvedExpression]) -> tuple[int, int]:
    steps = [leaf.place.steps for one in expressions for leaf in one.leaves if isinstance(leaf, RowValue)]
    return max(0, -min(steps, default=0)), max(0, max(steps, default=0))


def _search(
    clause: CheckedClause, automaton: RowAutomaton, conditions: ClauseConditions, ordered: OrderedRows, search: Search
) -> Iterator[_FoundMatches]:
    from asterism.row_patterns import kernels as k
    from asterism.row_patterns import search_kernels as deep

    largest = int(np.diff(ordered.offsets).max(initial=0))
    size = 4 * largest * len(automaton.variables)
    if size > MAX_TABLE:
        raise LimitExceededError(
            f"a partition of {largest:,} rows is too large for a pattern of {len(automaton.variables):,} elements",
            f"The search would need {size:,} bytes (limit {MAX_TABLE:,}).",
            "use smaller partitions, or fewer repetitions in {n,m}",
        )
    skip = clause.clause.skip
    kinds = {
        SkipTo.PAST_LAST_ROW: k.PAST_LAST_ROW,
        SkipTo.NEXT_ROW: k.NEXT_ROW,
        SkipTo.FIRST: k.TO_FIRST,
        SkipTo.LAST: k.TO_LAST,
        SkipTo.NO_SKIP: deep.NO_SKIP,
    }
    in_depth = clause.clause.timeouts or skip.to is SkipTo.NO_SKIP or automaton.needs_depth
    bound = conditions.bound(automaton, ordered.rows, ordered.shifted, ordered.words, in_depth=in_depth)
    times, meant = times_of(clause, ordered), meant_by(clause, skip.variable)
    position = np.zeros(1, np.int64)
    if bound.near and not in_depth:
        parts = _near_matches(clause, automaton, ordered, bound, search, times, kinds[skip.to], meant, position)
    else:
        pattern = SearchedPattern(automaton, clause.within, kinds[skip.to], meant, clause.clause.timeouts)
        asked = SearchCallbacks(partial(decided, clause, automaton, ordered), partial(_step_error, clause, ordered))
        parts = MatchSearch(pattern, bound, ordered.offsets, times, search.limits(clause), asked).run(
            search.progress, position, MATCHED_ROWS
        )
    for status, matches, labels, unmatched in parts:
        if status == k.TOO_LONG:
            raise _too_long(clause, ordered, search, int(position[0]))
        if status not in (k.OK, k.MORE):
            raise _skip_error(clause, ordered, matches[-1], status == k.NO_ROW_TO_SKIP_TO)
        yield _FoundMatches(matches, labels, unmatched)


def _near_matches(
    clause: CheckedClause,
    automaton: RowAutomaton,
    ordered: OrderedRows,
    bound: BoundConditions,
    search: Search,
    times: Ints,
    skip: int,
    meant: Mask,
    position: Ints,
) -> Iterator[tuple[int, Ints, Ints, Mask]]:
    """The search if no condition depends on the match."""
    from asterism.row_patterns import kernels as k

    within = -1 if clause.within is None else clause.within
    status = k.MORE
    while status == k.MORE:
        status, matches, labels, unmatched = k.find_matches(
            ordered.offsets,
            bound.bits.view(np.bool_),
            automaton.variables,
            automaton.edges,
            automaton.first_edge,
            times,
            within,
            skip,
            meant,
            search.progress,
            position,
            MATCHED_ROWS,
            *search.limits(clause),
        )
        yield status, matches, labels, unmatched


def decided(clause: CheckedClause, automaton: RowAutomaton, ordered: OrderedRows, path: Path) -> bool:
    """Whether the last row of a path satisfies its condition."""
    condition = clause.conditions[automaton.names[automaton.variables[path[3][-1]]]].resolved
    return bool(mask_of(_over_leaves(condition, leaves_of_path(clause, automaton, ordered, path), 1))[0])


def leaves_of_path(clause: CheckedClause, automaton: RowAutomaton, ordered: OrderedRows, path: Path) -> list[pa.Array]:
    """The values that the condition of the last row of a path reads, for each leaf one."""
    first, partition, number, states = path
    matches = np.array([[first, partition, number, 0, len(states), 0]], np.int64)
    found = _FoundMatches(matches, states, np.zeros(0, np.bool_))
    condition = clause.conditions[automaton.names[automaton.variables[states[-1]]]].resolved
    items = _MatchItems(clause, automaton, ordered, found, np.zeros(1, np.int64), np.array([len(states)]))
    leaves = items.leaves([condition], whole=True)
    return [leaves[leaf] for leaf in condition.leaves]


def _step_error(
    clause: CheckedClause, ordered: OrderedRows, partition: int, row: int, steps: int
) -> LimitExceededError:
    from asterism.row_patterns import search_kernels as k

    place = row - int(ordered.offsets[partition]) + 1
    limits = f"limit {match_search.MAX_STEPS:,}, and {k.USUAL_STEPS:,} on average"
    where = f"The search for a match that begins at row {place:,} of the partition: {steps:,} steps ({limits})."
    key = _shown_keys(clause, ordered, row, order=True)
    why, hint = "because conditions depend on the match so far", ", or PREV instead of LAST and FIRST in conditions"
    if clause.clause.skip.to is SkipTo.NO_SKIP:
        why, hint = "because NO SKIP asks for all ways to match", ", or AFTER MATCH SKIP TO NEXT ROW"
    return LimitExceededError(
        f"the search for matches takes too many steps, {why}",
        f"{where}\nThat row: {key}" if key else where,
        f"WITHIN, quantifiers with an upper limit{hint}",
    )


def _too_long(clause: CheckedClause, ordered: OrderedRows, search: Search, partition: int) -> LimitExceededError:
    from asterism.row_patterns import kernels as k

    row = int(ordered.offsets[partition] + search.progress[partition, k.NEXT_START])
    place = _shown_keys(clause, ordered, row, order=True)
    return LimitExceededError(
        f"more than {search.max_rows:,} rows of a partition wait for the end of a match (max_rows)",
        f"The first of them: {place}" if place else None,
        "WITHIN, or a pattern whose matches end; a larger max_rows; or on_limit='drop', to go on with the next row",
    )


def _shown_keys(clause: CheckedClause, ordered: OrderedRows, row: int, *, order: bool = False) -> str:
    """The values of PARTITION BY in a row, for messages, and those of ORDER BY."""
    sources = [*zip(clause.clause.partition_by, clause.partition_by, strict=True)]
    shown = [(one.expression.text, number) for one, number in sources]
    if order:
        shown += [(one.expression.text, n) for one, n in zip(clause.clause.order_by, clause.order_by, strict=True)]
    return ", ".join(f"{text} = {ordered.keys[number][row].as_py()!r}" for text, number in shown)


def _skip_error(clause: CheckedClause, ordered: OrderedRows, match: Ints, absent: bool) -> SkipStrategyError:
    from asterism.row_patterns import kernels as k

    skip = clause.clause.skip
    name = quoted(skip.variable or "")
    problem = (
        f"it has no row of {name}" if absent else f"{name} is its first row, so the same match would follow forever"
    )
    key = _shown_keys(clause, ordered, int(match[k.START]))
    return SkipStrategyError(
        f"AFTER MATCH SKIP {skip.to.value} {name}: cannot go on after match {match[k.NUMBER]}, because {problem}",
        f"Partition: {key}" if key else None,
        "AFTER MATCH SKIP PAST LAST ROW, or TO NEXT ROW",
    )


def meant_by(clause: CheckedClause, name: str | None) -> Mask:
    """For each variable, whether a variable or a subset means its rows; all rows without a name."""
    if name is None:
        return np.ones(len(clause.variables), np.bool_)
    return np.array([variable in clause.names[name] for variable in clause.variables], np.bool_)


# ---------------------------------------------------------------------------------------------------- the output


class _MatchItems:
    """What expressions see: matches, and how many of their rows.

    :param match: a match, or -1
    :param visible: for each item, how many rows of the match
    :param processing_time: of expressions other than conditions, in microseconds since the epoch
    """

    def __init__(
        self,
        clause: CheckedClause,
        automaton: RowAutomaton,
        ordered: OrderedRows,
        found: _FoundMatches,
        match: Ints,
        visible: Ints,
        processing_time: int = 0,
    ) -> None:
        from asterism.row_patterns import kernels as k

        self._processing_time = processing_time
        self._clause, self._automaton, self._ordered, self._found = clause, automaton, ordered, found
        self._match, self._visible = match, visible
        self._items = np.column_stack([match, visible])
        matches = found.matches
        self._match_of_label: Ints = np.repeat(np.arange(len(matches)), matches[:, k.ROWS])
        self._row_of_label: Ints = matches[self._match_of_label, k.START] + _place_of_label(found)

    def leaves(self, expressions: Sequence[ResolvedExpression], *, whole: bool) -> dict[Leaf, pa.Array]:
        """The values of all leaves of *expressions*, for each item.

        :param whole: whether all rows of the match are visible in each item
        """
        from asterism.row_patterns import kernels as k

        leaves = dict.fromkeys(leaf for one in expressions for leaf in one.leaves)
        plain = {leaf.number for leaf in leaves if isinstance(leaf, RowValue) and not leaf.labelled}
        columns = self._of_all_rows(sorted(plain))
        found: dict[Leaf, pa.Array] = {}
        for leaf in leaves:
            if isinstance(leaf, MatchNumber):
                found[leaf] = self._numbers(self._match)
            elif isinstance(leaf, MatchProcessingTime):
                now = pa.scalar(self._processing_time, self._clause.rows.time_type)
                found[leaf] = pa.repeat(now, len(self._match))
            elif isinstance(leaf, MatchTimeout):
                timed_out = pa.array(self._found.matches[:, k.TIMED_OUT] != 0)
                found[leaf] = timed_out.take(pa.array(self._match, mask=self._match < 0))
            elif isinstance(leaf, RowValue):
                at = self._places(leaf)
                if self._is_constant(leaf):
                    at = np.maximum(at, 0)  # an empty match has no row
                if leaf.number in columns and not leaf.labelled:
                    found[leaf] = columns[leaf.number].take(pa.array(at, mask=at < 0))
                else:
                    found[leaf] = self._of_taken_rows(leaf, at)
        aggregates = [leaf for leaf in leaves if isinstance(leaf, AggregateValue)]
        if not whole:
            scanned = {leaf: self._scanned(leaf) for leaf in aggregates if not leaf.final}
            found |= {leaf: column for leaf, column in scanned.items() if column is not None}
            aggregates = [leaf for leaf in aggregates if leaf not in found]
        for variable, final in dict.fromkeys((leaf.variable, leaf.final) for leaf in aggregates):
            results = self._aggregated(variable, whole or final)
            found |= {
                leaf: results[leaf.number] for leaf in aggregates if (leaf.variable, leaf.final) == (variable, final)
            }
        return found

    def _is_constant(self, leaf: RowValue) -> bool:
        values = self._clause.rows.values
        column = plain_column(values.texts[leaf.number])
        return column is not None and values.schema.names[column] in self._clause.clause.constants

    def _places(self, leaf: RowValue) -> Ints:
        from asterism.row_patterns import kernels as k

        place = leaf.place
        found: Ints = k.rows_at_places(
            self._found.matches,
            self._found.labels,
            self._items,
            meant_by(self._clause, place.variable),
            self._automaton.variables,
            place.last,
            place.skip,
            place.final,
            place.steps,
            self._ordered.offsets,
        )
        return found

    def _numbers(self, matches: Ints) -> pa.Array:
        from asterism.row_patterns import kernels as k

        numbers = pa.array(self._found.matches[:, k.NUMBER], BIGINT)
        return numbers.take(pa.array(matches, mask=matches < 0))

    def _with_labels(self, rows: Ints, matches: Ints, columns: Collection[str]) -> pa.Table:
        """Rows of the input, with their labels and the number of the match. Other columns than *columns* may be NULL."""
        from asterism.row_patterns import kernels as k

        at = rows - self._found.matches[matches, k.START]
        inside = (at >= 0) & (at < self._found.matches[matches, k.ROWS])
        label_at = np.where(inside, self._found.matches[matches, k.FIRST_LABEL] + at, 0)
        states = self._found.labels[label_at] if len(self._found.labels) else np.zeros(len(rows), np.int64)
        names = pa.array(self._automaton.names, STRING)
        labels = names.take(pa.array(self._automaton.variables[states], mask=~inside))
        rows_of, at, nothing = self._ordered.rows, pa.array(rows), pa.nulls(len(rows))
        given = [
            one_chunk(rows_of.column(name)).take(at) if name in columns else nothing for name in rows_of.column_names
        ]
        names_of_all = self._clause.rows.schema.names
        return pa.table([*given, labels, self._numbers(matches)], names=names_of_all)

    def _of_all_rows(self, numbers: Sequence[int]) -> dict[int, pa.Array]:
        """Expressions over single rows, computed for all rows; some or all may be missing."""
        values = self._clause.rows.values
        if len(self._items) * _FEW < self._ordered.rows.num_rows:
            numbers = [number for number in numbers if plain_column(values.texts[number]) is not None]
        try:
            return evaluated(values, numbers, self._ordered.rows)
        except InvalidEventError:  # perhaps in a row that no item reads
            return {}

    def _of_taken_rows(self, leaf: RowValue, at: Ints) -> pa.Array:
        there = np.flatnonzero(at >= 0)
        found = self._of_rows(leaf.number, at[there], self._match[there])
        places = np.full(len(at), -1)
        places[there] = np.arange(len(there))
        return found.take(pa.array(places, mask=places < 0))

    def _of_rows(self, number: int, rows: Ints, matches: Ints) -> pa.Array:
        """An expression over single rows, for some rows and the matches to which they belong."""
        values = self._clause.rows.values
        read = {values.schema.names[column] for column in columns_of(values.texts[number])}
        return evaluated(values, [number], self._with_labels(rows, matches, read))[number]

    def _scanned(self, leaf: AggregateValue) -> pa.Array | None:
        """A running aggregate for each item, in one pass over the rows of the matches; None if it needs the rows themselves."""
        from asterism.row_patterns import kernels as k

        plain = self._clause.rows.plain_aggregates.get((leaf.variable, leaf.number))
        if plain is None:
            return None
        meant = meant_by(self._clause, leaf.variable)[self._automaton.variables[self._found.labels]]
        before = offsets_of(meant)
        first = np.zeros(len(self._match), np.int64)
        first[self._match >= 0] = self._found.matches[self._match[self._match >= 0], k.FIRST_LABEL]
        begin, end = before[first], before[first + self._visible]
        if plain.number is None:
            return pa.array(end - begin)
        at = np.flatnonzero(meant)
        groups = self._match_of_label[at]
        column = self._of_rows(plain.number, self._row_of_label[at], groups)
        valid = where_valid(column)
        counted = offsets_of(valid)
        numbers = counted[end] - counted[begin]
        if plain.function == "count":
            return pa.array(numbers)
        missing, last = numbers == 0, np.maximum(end - 1, 0)
        if plain.function in ("min", "max") and column.type != NULL:
            best = k.running_winners(sort_keys(column), valid, groups, plain.function == "max")
            return column.take(pa.array(best[last] if len(best) else last, mask=missing))
        if plain.function == "sum" and column.type in INTEGERS:
            values = np.where(valid, filled(column), 0).astype(np.int64)
            if np.abs(values.astype(np.float64)).sum() > _SURELY_FITS:
                return None
            sums = offsets_of(values)
            return pa.array(sums[end] - sums[begin], mask=missing)
        if column.type not in (*INTEGERS, *FLOATS):
            return None
        totals = k.running_sums(np.where(valid, filled(column.cast(DOUBLE, safe=False)), 0.0), groups)
        found = totals[last] if len(totals) else np.zeros(len(last))
        return pa.array(found / np.maximum(numbers, 1) if plain.function == "avg" else found, mask=missing)

    def _aggregated(self, variable: str | None, whole: bool) -> list[pa.Array]:
        """The calls over the rows of a variable, for each item: of the visible rows of its match, or of the whole match."""
        from asterism.row_patterns import kernels as k

        calls, matches = self._clause.rows.calls[variable], self._found.matches
        meant = meant_by(self._clause, variable)[self._automaton.variables[self._found.labels]]
        elements = self._with_labels(self._row_of_label, self._match_of_label, calls.read)
        if whole:
            at = np.flatnonzero(meant)
            results = calls.compute(self._match_of_label[at], len(matches), elements, at)
            items = pa.array(self._match, mask=self._match < 0)
            return [column.take(items) for column in results]
        # Each item is a group: the rows of its match up to it.
        # The limit is for a match, because how many matches there are in a call depends on the division into micro-batches.
        matched = self._match >= 0
        most = int(np.bincount(self._match[matched], self._visible[matched], minlength=1).max())
        if most > MAX_RUNNING:
            raise LimitExceededError(
                "a match is too long for running aggregates in ALL ROWS PER MATCH",
                f"The aggregates would read {most:,} rows for it (limit {MAX_RUNNING:,}).",
                "FINAL, as in FINAL array_agg(price), ONE ROW PER MATCH, or a pattern whose matches are shorter",
            )
        slices = []
        begin = 0
        until = np.cumsum(self._visible)
        while begin < len(self._items):
            before = until[begin] - self._visible[begin]
            end = max(begin + 1, int(np.searchsorted(until, before + AT_ONCE, "right")))
            visible = self._visible[begin:end]
            group = np.repeat(np.arange(end - begin), visible)
            first = (
                np.where(self._match[begin:end] >= 0, matches[self._match[begin:end], k.FIRST_LABEL], 0)
                if len(matches)
                else visible
            )
            at = np.repeat(first, visible) + np.arange(len(group)) - np.repeat(np.cumsum(visible) - visible, visible)
            group, at = group[meant[at]], at[meant[at]]
            low, high = (int(at.min()), int(at.max()) + 1) if len(at) else (0, 0)
            slices.append(calls.compute(group, end - begin, elements.slice(low, high - low), at - low))
            begin = end
        if not slices:
            return [
                column.slice(0, 0)
                for column in calls.compute(np.zeros(0, np.int64), 0, elements, np.zeros(0, np.int64))
            ]
        return [pa.concat_arrays([one[number] for one in slices]) for number in range(len(slices[0]))]


class _ResultRows:
    """The rows of the output: a match, or -1 for an unmatched row; its visible rows; the row of the input."""

    def __init__(
        self,
        clause: CheckedClause,
        automaton: RowAutomaton,
        ordered: OrderedRows,
        found: _FoundMatches,
        processing_time: int,
    ) -> None:
        from asterism.row_patterns import kernels as k

        self._clause, self._ordered = clause, ordered
        matches, kind = found.matches, clause.clause.rows
        starts, sizes = matches[:, k.START], matches[:, k.ROWS]
        if kind is RowsPerMatch.ONE:
            items = [np.arange(len(matches)), sizes, starts]
        else:
            shown = ~automaton.excluded[found.labels]
            match_of_label, place = np.repeat(np.arange(len(matches)), sizes), _place_of_label(found)
            items = [match_of_label[shown], place[shown] + 1, (starts[match_of_label] + place)[shown]]
            if kind is not RowsPerMatch.ALL_OMIT_EMPTY:
                empty = np.flatnonzero(sizes == 0)
                items = _joined(items, [empty, np.zeros_like(empty), starts[empty]])
            if kind is RowsPerMatch.ALL_WITH_UNMATCHED:
                left = np.flatnonzero(found.unmatched)
                items = _joined(items, [np.full_like(left, -1), np.zeros_like(left), left])
        begins = items[2].copy()
        begins[items[0] >= 0] = starts[items[0][items[0] >= 0]]
        order = np.argsort(begins, kind="stable")
        self._match, visible, self._row = (column[order] for column in items)
        self._items = _MatchItems(clause, automaton, ordered, found, self._match, visible, processing_time)

    def table(self) -> pa.Table:
        clause, rows = self._clause, pa.array(self._row)
        columns = []
        leaves = self._items.leaves(clause.measures, whole=clause.clause.rows is RowsPerMatch.ONE)
        matched = pa.array(self._match >= 0)
        measures = dict(zip((measure.name for measure in clause.clause.measures), clause.measures, strict=True))
        values: list[pa.Array] = []
        for place, field in enumerate(clause.output):
            if place < len(clause.partition_by):
                column = self._ordered.keys[clause.partition_by[place]].take(rows)
            elif field.name in measures:
                resolved = measures[field.name]
                given = [
                    values[leaf.number] if isinstance(leaf, MeasureValue) else leaves[leaf] for leaf in resolved.leaves
                ]
                values.append(one_chunk(_over_leaves(resolved, given, len(rows))))
                column = pc.if_else(matched, values[-1], pa.scalar(None, values[-1].type))
            else:
                column = one_chunk(self._ordered.rows.column(field.name)).take(rows)
            columns.append(cast_to(column, field.type))
        return pa.table(columns, schema=clause.output)


def _place_of_label(found: _FoundMatches) -> Ints:
    """For each label, how many rows of its match are before it."""
    from asterism.row_patterns import kernels as k

    at: Ints = np.arange(len(found.labels)) - np.repeat(found.matches[:, k.FIRST_LABEL], found.matches[:, k.ROWS])
    return at


def _joined(left: list[Ints], right: list[Ints]) -> list[Ints]:
    return [np.concatenate(pair) for pair in zip(left, right, strict=True)]
