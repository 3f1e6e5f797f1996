"""An index of conditions: finds those that an event satisfies without evaluating the others.

A condition is indexed if it has ranges of columns (:mod:`asterism.expressions.ranges`). Conditions that require the same
value of a column are in one *bucket*, in the order of their bounds on another column: of ``kind = 'buy' AND amount >= 10`` and a
thousand others with their own kinds and amounts, those that an event satisfies are the first ones of the bucket of its kind.
Further ranges of a condition are tested one by one, and then its *rest*, which was evaluated for all events.

See docs/decisions/0038.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask
from asterism.expressions.ranges import LOWEST, Range, RangeEncoder, Ranges

NO_COLUMN, NO_REST = -1, -1


class ConditionIndex:
    """
    :param schema: of the events
    :param rests: for each condition, the row of *masks* that must also be true, or NO_REST; default: no condition has a rest
    """

    def __init__(self, schema: pa.Schema, conditions: Sequence[Ranges], rests: Sequence[int] | None = None) -> None:
        ranges = [range_ for condition in conditions for alternative in condition for range_ in alternative]
        uses = Counter((range_.column, range_.floating) for range_ in ranges)
        values = {(range_.column, range_.floating, range_.low) for range_ in ranges if range_.is_one}
        distinct = Counter((column, floating) for column, floating, _ in values)
        self.count = len(conditions)
        self._columns = {column: number for number, column in enumerate(uses)}
        self.columns = sorted({column for column, _ in uses})
        """The numbers of the columns that the conditions read."""
        self._encoders = [
            RangeEncoder(schema, column, [range_ for range_ in ranges if range_[:2] == column]) for column in uses
        ]

        groups: dict[tuple[int, int, bool], dict[int, list[tuple[int, int, list[tuple[int, int, int]]]]]] = {}
        for number, alternatives in enumerate(conditions):
            for alternative in alternatives:
                rest = list(alternative)
                equal = max(
                    (range_ for range_ in rest if range_.is_one),
                    key=lambda range_: (distinct[range_[:2]], uses[range_[:2]]),
                    default=None,
                )
                if equal is not None:
                    rest.remove(equal)
                ordered = max(rest, key=lambda range_: uses[range_[:2]], default=None)
                if ordered is not None and ordered.is_one:
                    ordered = None
                from_above = ordered is not None and ordered.low is None and ordered.high is not None
                bound = LOWEST
                if ordered is not None:
                    low, high = self._bounds(ordered)
                    bound = ~high if from_above else low
                    if ordered.low is None or ordered.high is None:
                        rest.remove(ordered)
                group = groups.setdefault((self._at(equal), self._at(ordered), from_above), defaultdict(list))
                tests = [(self._at(range_), *self._bounds(range_)) for range_ in rest]
                if rests is not None and rests[number] != NO_REST:
                    tests.append((~rests[number], 0, 0))
                group[0 if equal is None else self._bounds(equal)[0]].append((bound, number, tests))

        self._groups, self._buckets, self._entries, self._tests = _tables(groups)

    def _at(self, range_: Range | None) -> int:
        return NO_COLUMN if range_ is None else self._columns[range_[:2]]

    def _bounds(self, range_: Range) -> tuple[int, int]:
        return self._encoders[self._at(range_)].bounds(range_)

    def met(self, columns: Sequence[pa.ChunkedArray], rows: int, masks: Mask | None = None) -> tuple[Ints, Ints]:
        """For each event, the numbers of the conditions that it satisfies, as offsets and values.

        :param columns: those of the events in :attr:`columns`
        :param masks: which events satisfy the rests of conditions
        """
        from asterism.rules.binding.kernels import met_conditions

        return met_conditions(*self._encoded(columns, rows), _masks(masks, rows), *self._arrays, self.count)

    def meets_any(self, columns: Sequence[pa.ChunkedArray], rows: int, masks: Mask | None = None) -> Mask:
        """The events that satisfy any of the conditions. See :meth:`met`."""
        from asterism.rules.binding.kernels import meets_any

        mask: Mask = meets_any(*self._encoded(columns, rows), _masks(masks, rows), *self._arrays)
        return mask

    @property
    def _arrays(self) -> tuple[Ints, Ints, Ints, Ints]:
        return self._groups, self._buckets, self._entries, self._tests

    def _encoded(self, columns: Sequence[pa.ChunkedArray], rows: int) -> tuple[Ints, Mask]:
        """The values of the used columns as integers, and which of them are NULL."""
        of_number = dict(zip(self.columns, columns, strict=True))
        values = np.zeros((len(self._encoders), rows), np.int64)
        nulls = np.zeros((len(self._encoders), rows), np.bool_)
        for (column, _), number in self._columns.items():
            values[number], unknown = self._encoders[number].encoded(of_number[column])
            if unknown is not None:
                nulls[number] = unknown
        return values, nulls


def _masks(masks: Mask | None, rows: int) -> Mask:
    return np.zeros((0, rows), np.bool_) if masks is None else masks


def _tables(
    groups: dict[tuple[int, int, bool], dict[int, list[tuple[int, int, list[tuple[int, int, int]]]]]],
) -> tuple[Ints, Ints, Ints, Ints]:
    """The tables of :mod:`asterism.rules.binding.kernels`."""
    group_rows: list[tuple[int, ...]] = []
    bucket_rows: list[tuple[int, ...]] = []
    entry_rows: list[tuple[int, ...]] = []
    test_rows: list[tuple[int, ...]] = []
    for (equal, ordered, from_above), buckets in groups.items():
        group_rows.append((equal, ordered, int(from_above), len(bucket_rows), len(bucket_rows) + len(buckets)))
        for value in sorted(buckets):
            entries = sorted(buckets[value], key=lambda entry: entry[:2])
            bucket_rows.append((value, len(entry_rows), len(entry_rows) + len(entries)))
            for bound, number, tests in entries:
                entry_rows.append((bound, number, len(test_rows), len(test_rows) + len(tests)))
                test_rows += tests
    return _rows(group_rows, 5), _rows(bucket_rows, 3), _rows(entry_rows, 4), _rows(test_rows, 3)


def _rows(rows: Iterable[tuple[int, ...]], columns: int) -> Ints:
    return np.array(list(rows), np.int64).reshape(-1, columns)
