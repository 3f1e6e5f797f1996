"""The values of expressions for matches, which conditions and measures read from the rows of a match."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask, filled, one_chunk
from asterism.columns.groups import consecutive, offsets_of
from asterism.errors import InvalidEventError, LimitExceededError
from asterism.expressions.aggregates.accumulators import sort_keys, where_valid
from asterism.expressions.names import plain_column
from asterism.expressions.types import BIGINT, DOUBLE, FLOATS, INTEGERS, NULL, STRING
from asterism.row_patterns import kernels as k
from asterism.row_patterns import resolution
from asterism.row_patterns.ordered_rows import OrderedRows, Path, evaluated

AT_ONCE = 1_000_000  # members of the groups whose running aggregates are computed together
MAX_RUNNING = 200_000_000
"""The maximum number of members of the groups of the running aggregates of a match: the rows up to each of its rows."""
_FEW = 4  # with this many rows for each item, expressions are computed only for the rows that items read
_SURELY_FITS = 2**62  # maximum sum of absolute values; above it, a sum may not fit into 64 bits


@dataclass(frozen=True, slots=True)
class FoundMatches:
    """The matches that the kernel found; see :func:`asterism.row_patterns.kernels.find_matches`."""

    matches: Ints
    labels: Ints
    unmatched: Mask

    @property
    def place_of_label(self) -> Ints:
        """For each label, how many rows of its match are before it."""
        matches = self.matches
        places: Ints = np.arange(len(self.labels)) - np.repeat(matches[:, k.FIRST_LABEL], matches[:, k.ROWS])
        return places


class MatchItems:
    """The items for which expressions are evaluated. An item is a match with its first rows, which are visible to expressions.

    :param match: for each item, the number of its match, or -1
    :param visible: for each item, the number of visible rows of the match
    :param processing_time: of expressions other than conditions, in microseconds since the epoch
    """

    def __init__(
        self, ordered: OrderedRows, found_matches: FoundMatches, match: Ints, visible: Ints, processing_time: int = 0
    ) -> None:
        self._processing_time = processing_time
        self._clause, self._automaton = ordered.clause, ordered.clause.automaton
        self._ordered, self._found = ordered, found_matches
        self._match, self._visible = match, visible
        self._items = np.column_stack([match, visible])
        matches = found_matches.matches
        self._match_of_label: Ints = np.repeat(np.arange(len(matches)), matches[:, k.ROWS])
        self._row_of_label: Ints = matches[self._match_of_label, k.START] + found_matches.place_of_label

    def leaves(
        self, expressions: Sequence[resolution.ResolvedExpression], *, whole: bool
    ) -> dict[resolution.Leaf, pa.Array]:
        """The values of all leaves of *expressions*, for each item; with *whole*, all rows of its match are visible."""
        leaves = dict.fromkeys(leaf for expression in expressions for leaf in expression.leaves)
        plain = {leaf.number for leaf in leaves if isinstance(leaf, resolution.RowValue) and not leaf.labelled}
        columns = self._of_all_rows(sorted(plain))
        values: dict[resolution.Leaf, pa.Array] = {}
        for leaf in leaves:
            if isinstance(leaf, resolution.RowValue):
                values[leaf] = self._of_places(leaf, columns)
            elif isinstance(leaf, resolution.MatchNumber | resolution.MatchProcessingTime | resolution.MatchTimeout):
                values[leaf] = self._of_matches(leaf)
        aggregates = [leaf for leaf in leaves if isinstance(leaf, resolution.AggregateValue)]
        if not whole:
            scanned = {leaf: self._scanned(leaf) for leaf in aggregates if not leaf.final}
            values |= {leaf: column for leaf, column in scanned.items() if column is not None}
            aggregates = [leaf for leaf in aggregates if leaf not in values]
        for variable, final in dict.fromkeys((leaf.variable, leaf.final) for leaf in aggregates):
            results = self._aggregated(variable, whole or final)
            values |= {
                leaf: results[leaf.number] for leaf in aggregates if (leaf.variable, leaf.final) == (variable, final)
            }
        return values

    def _of_matches(
        self, leaf: resolution.MatchNumber | resolution.MatchProcessingTime | resolution.MatchTimeout
    ) -> pa.Array:
        """The value of a leaf that is the same for all rows of a match."""
        match leaf:
            case resolution.MatchNumber():
                return self._numbers(self._match)
            case resolution.MatchTimeout():
                timed_out = pa.array(self._found.matches[:, k.TIMED_OUT] != 0)
                return timed_out.take(pa.array(self._match, mask=self._match < 0))
            case resolution.MatchProcessingTime():
                now = pa.scalar(self._processing_time, self._clause.rows.time_type)
                return pa.repeat(now, len(self._match))

    def _of_places(self, leaf: resolution.RowValue, columns: Mapping[int, pa.Array]) -> pa.Array:
        """The values of a leaf that reads a row of the match. *columns* have been computed for all rows."""
        at = self._places(leaf)
        values = self._clause.rows.values
        column = plain_column(values.texts[leaf.number])
        if column is not None and values.schema.names[column] in self._clause.clause.constants:
            at = np.maximum(at, 0)  # an empty match has no row
        if leaf.number in columns and not leaf.labelled:
            return columns[leaf.number].take(pa.array(at, mask=at < 0))
        return self._of_taken_rows(leaf, at)

    def _places(self, leaf: resolution.RowValue) -> Ints:
        place = leaf.place
        tables = k.MatchTables(
            self._found.matches, self._found.labels, self._automaton.variables, self._ordered.offsets
        )
        meant = self._clause.meant_by(place.variable)
        row_place = k.RowPlace(place.last, place.skip, place.final, place.steps)
        rows: Ints = k.rows_at_places(tables, self._items, meant, row_place)
        return rows

    def _numbers(self, matches: Ints) -> pa.Array:
        numbers = pa.array(self._found.matches[:, k.NUMBER], BIGINT)
        return numbers.take(pa.array(matches, mask=matches < 0))

    def _with_labels(self, rows: Ints, matches: Ints, columns: Collection[str]) -> pa.Table:
        """Rows of the input, with their labels and the number of the match. Other columns than *columns* may be NULL."""
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

    def _of_taken_rows(self, leaf: resolution.RowValue, at: Ints) -> pa.Array:
        with_row = np.flatnonzero(at >= 0)
        values = self._of_rows(leaf.number, at[with_row], self._match[with_row])
        places = np.full(len(at), -1)
        places[with_row] = np.arange(len(with_row))
        return values.take(pa.array(places, mask=places < 0))

    def _of_rows(self, number: int, rows: Ints, matches: Ints) -> pa.Array:
        """An expression over single rows, for some rows and the matches to which they belong."""
        expressions = self._clause.rows
        table = self._with_labels(rows, matches, expressions.columns_of([number]))
        return evaluated(expressions.values, [number], table)[number]

    def _scanned(self, leaf: resolution.AggregateValue) -> pa.Array | None:
        """A running aggregate for each item, in one pass over the rows of the matches; None if it needs the rows themselves."""
        plain = self._clause.rows.plain_aggregates.get((leaf.variable, leaf.number))
        if plain is None:
            return None
        meant = self._clause.meant_by(leaf.variable)[self._automaton.variables[self._found.labels]]
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
        results = totals[last] if len(totals) else np.zeros(len(last))
        return pa.array(results / np.maximum(numbers, 1) if plain.function == "avg" else results, mask=missing)

    def _aggregated(self, variable: str | None, whole: bool) -> list[pa.Array]:
        """The calls over the rows of a variable, for each item: over the visible rows of its match, or over the whole match."""
        calls, matches = self._clause.rows.calls[variable], self._found.matches
        meant = self._clause.meant_by(variable)[self._automaton.variables[self._found.labels]]
        elements = self._with_labels(self._row_of_label, self._match_of_label, calls.read)
        if whole:
            at = np.flatnonzero(meant)
            results = calls.compute(self._match_of_label[at], len(matches), elements, at)
            items = pa.array(self._match, mask=self._match < 0)
            return [column.take(items) for column in results]
        # Each item is a group: the visible rows of its match.
        # The limit applies to a single match, because the number of matches in a call depends on the micro-batches.
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
            at = consecutive(first, visible)
            group, at = group[meant[at]], at[meant[at]]
            low, high = (int(at.min()), int(at.max()) + 1) if len(at) else (0, 0)
            slices.append(calls.compute(group, end - begin, elements.slice(low, high - low), at - low))
            begin = end
        if not slices:
            return [
                column.slice(0, 0)
                for column in calls.compute(np.zeros(0, np.int64), 0, elements, np.zeros(0, np.int64))
            ]
        return [pa.concat_arrays([part[number] for part in slices]) for number in range(len(slices[0]))]


def leaves_of_paths(
    ordered: OrderedRows, resolved: resolution.ResolvedExpression, paths: Sequence[Path]
) -> list[pa.Array]:
    """The value of each leaf of a condition, for the last row of each path."""
    lengths = np.array([len(path[3]) for path in paths], np.int64)
    matches = np.zeros((len(paths), k.TIMED_OUT + 1), np.int64)
    matches[:, [k.START, k.PARTITION, k.NUMBER]] = [path[:3] for path in paths]
    matches[:, k.FIRST_LABEL], matches[:, k.ROWS] = offsets_of(lengths)[:-1], lengths
    found_matches = FoundMatches(matches, np.concatenate([path[3] for path in paths]), np.zeros(0, np.bool_))
    items = MatchItems(ordered, found_matches, np.arange(len(paths)), lengths)
    leaves = items.leaves([resolved], whole=True)
    return [leaves[leaf] for leaf in resolved.leaves]


def over_leaves(resolved: resolution.ResolvedExpression, leaves: Sequence[pa.Array], count: int) -> pa.ChunkedArray:
    """The value of an expression, given its leaves."""
    return resolved.body.evaluate(table_of_leaves(resolved, leaves, count))[0]


def table_of_leaves(resolved: resolution.ResolvedExpression, leaves: Sequence[pa.Array], count: int) -> pa.Table:
    # Without a leaf, a column provides the number of rows.
    return pa.table(leaves, schema=resolved.body.schema) if leaves else pa.table({"rows": pa.nulls(count)})
