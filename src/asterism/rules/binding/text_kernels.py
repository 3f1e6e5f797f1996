"""Compiled loops of :mod:`asterism.rules.binding.text_index`: which constants a text has, which conditions an event meets.

A constant is found by one of its *grams*, up to four of its bytes that few other constants have: the constants with a gram are in
a bucket of a hash table, and are compared where the gram occurs in the text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asterism.columns.compiled import entry, uncounted

BEGIN, END, GRAM, ANCHOR, FIRST_USE, END_USE = range(6)  # columns of constants
AT_BEGIN, AT_END = 1, 2  # bits of ANCHOR
MAX_GRAM = 4
BUCKET_BITS = 16
TRUE, FALSE = -1, -2  # where a program ends
_FACTOR, _WORD = 1640531527, 0xFFFFFFFF


class Constants(NamedTuple):
    """The constants of a column.

    :ivar table: for each constant where its bytes begin and end, where in it its gram begins, where it must be in the text, and
        the range of its uses
    :ivar buckets: for each size of a gram the beginnings of the buckets in *members*, which are constants
    :ivar sizes: whether there are grams of each size
    :ivar uses: the tests that a constant satisfies
    :ivar lengths: tests of the number of bytes: the least number, and the test
    :ivar empty: the tests that the empty text satisfies
    """

    table: Any
    bytes: Any
    buckets: Any
    members: Any
    sizes: Any
    uses: Any
    lengths: Any
    empty: Any


class ConditionPrograms(NamedTuple):
    """Conditions as tests with two ways on each, to another test, or to TRUE or FALSE. *entries* are their beginnings."""

    entries: Any
    test: Any
    if_met: Any
    if_not: Any


def bucket_of(gram: bytes) -> int:
    """The bucket of the constants with a gram.

    >>> bucket_of(b".exe")
    41802
    """
    return ((int.from_bytes(gram, "little") * _FACTOR) & _WORD) >> (32 - BUCKET_BITS)


@uncounted
def bucket_at(data: Any, at: int, size: int) -> int:
    """:func:`bucket_of` the *size* bytes at a place."""
    word: Any = np.int64(0)
    for place in range(size):
        word |= np.int64(data[at + place]) << (8 * place)
    bucket: int = ((word * _FACTOR) & _WORD) >> (32 - BUCKET_BITS)
    return bucket


@uncounted
def same_bytes(data: Any, at: int, other: Any, begin: int, end: int) -> bool:
    for place in range(end - begin):  # noqa: SIM110 - compiled
        if data[at + place] != other[begin + place]:
            return False
    return True


@entry
def tests_of_texts(offsets: Any, data: Any, constants: Constants, tests: int) -> tuple[Any, Any]:
    """For each text the tests that it satisfies, of *tests* tests, as offsets and values."""
    table, of_constants, buckets, members, sizes, uses, lengths, empty = constants
    n_texts = len(offsets) - 1
    at = np.zeros(n_texts + 1, np.int64)
    found = np.empty(max(16 * n_texts, 64), np.int64)
    found_constant = np.full(len(table), -1, np.int64)  # the last text that has it
    found_test = np.full(tests, -1, np.int64)
    put = 0
    for text in range(n_texts):
        begin, end = np.int64(offsets[text]), np.int64(offsets[text + 1])
        if put + tests > len(found):
            larger = np.empty(max(put + tests, 2 * len(found)), np.int64)
            larger[:put] = found[:put]
            found = larger
        for row in range(len(lengths)):
            if end - begin >= lengths[row, 0]:
                found[put] = lengths[row, 1]
                put += 1
        if begin == end:
            for test in empty:
                found[put] = test
                put += 1
        for size in range(1, MAX_GRAM + 1):
            if not sizes[size - 1]:
                continue
            for place in range(begin, end - size + 1):
                bucket = bucket_at(data, place, size)
                for member in range(buckets[size - 1, bucket], buckets[size - 1, bucket + 1]):
                    constant = members[member]
                    first = place - table[constant, GRAM]
                    last = first + table[constant, END] - table[constant, BEGIN]
                    anchor = table[constant, ANCHOR]
                    if (
                        found_constant[constant] == text
                        or first < begin
                        or last > end
                        or (anchor & AT_BEGIN and first != begin)
                        or (anchor & AT_END and last != end)
                        or not same_bytes(data, first, of_constants, table[constant, BEGIN], table[constant, END])
                    ):
                        continue
                    found_constant[constant] = text
                    for use in range(table[constant, FIRST_USE], table[constant, END_USE]):
                        if found_test[uses[use]] != text:
                            found_test[uses[use]] = text
                            found[put] = uses[use]
                            put += 1
        at[text + 1] = put
    return at, found[:put]


@entry
def conditions_of_events(
    texts: Any, tests_at: Any, tests: Any, nulls: Any, null_tests: Any, programs: ConditionPrograms, count: int
) -> tuple[Any, Any]:
    """For each event the conditions that it satisfies, as offsets and values.

    :param texts: for each column and event the number of the text in *tests_at*, -1: NULL
    :param nulls: for each of *null_tests* the events that satisfy it
    :param count: of the tests
    """
    entries, test, if_met, if_not = programs
    columns, events = texts.shape
    at = np.zeros(events + 1, np.int64)
    found = np.empty(max(events, len(entries)), np.int64)
    met_by = np.full(count, -1, np.int64)  # the last event that satisfies each test
    put = 0
    for event in range(events):
        for column in range(columns):
            text = texts[column, event]
            if text >= 0:
                for place in range(tests_at[text], tests_at[text + 1]):
                    met_by[tests[place]] = event
        for number in range(len(null_tests)):
            if nulls[number, event]:
                met_by[null_tests[number]] = event
        if put + len(entries) > len(found):
            larger = np.empty(max(put + len(entries), 2 * len(found)), np.int64)
            larger[:put] = found[:put]
            found = larger
        for condition in range(len(entries)):
            place = entries[condition]
            while place >= 0:
                place = if_met[place] if met_by[test[place]] == event else if_not[place]
            if place == TRUE:
                found[put] = condition
                put += 1
        at[event + 1] = put
    return at, found[:put]
