"""The search for matches: arrays in, arrays out, compiled once per machine for all patterns.

:mod:`asterism.row_patterns.automaton` makes the tables, and ``docs/decisions/0041-row-patterns.md`` explains the search: a table
of where the earliest match ends that goes on from a row and a state, made from the last row to the first, and a walk forward
along the preferred edges from which a match can be completed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asterism.columns.compiled import compiled, entry

ACCEPT, AT_START, AT_END = -1, 1, 2  # as in automaton.py
NOWHERE = 2**31 - 1
"""More than any row number: no match can be completed."""
PAST_LAST_ROW, NEXT_ROW, TO_FIRST, TO_LAST = range(4)
OK, NO_ROW_TO_SKIP_TO, SKIPS_TO_OWN_START, MORE = range(4)
START, PARTITION, NUMBER, FIRST_LABEL, ROWS = range(5)  # columns of matches
AT_PARTITION, AT_ROW, MATCHES_BEFORE, COVERED = range(4)  # of a position: where the search goes on


@compiled
def allowed(guards: Any, at: Any, count: Any) -> Any:
    """Whether an edge can be followed when *at* rows of a partition of *count* rows lie before the next one."""
    return not ((guards & AT_START and at != 0) or (guards & AT_END and at != count))


@compiled
def fill_ends(bits: Any, begin: Any, count: Any, variables: Any, edges: Any, first_edge: Any, ends: Any) -> None:
    """``ends[p, s]`` is the number of rows before the end of the earliest match that takes row *p* in state *s*."""
    for row in range(count - 1, -1, -1):
        for state in range(len(variables)):
            earliest = NOWHERE
            if bits[begin + row, variables[state]]:
                for edge in range(first_edge[state], first_edge[state + 1]):
                    if not allowed(edges[edge, 1], row + 1, count):
                        continue
                    target = edges[edge, 0]
                    end = row + 1
                    if target != ACCEPT:
                        end = ends[row + 1, target] if row + 1 < count else NOWHERE
                    earliest = min(earliest, end)
            ends[row, state] = earliest


@entry
def find_matches(
    offsets: Any,
    bits: Any,
    variables: Any,
    edges: Any,
    first_edge: Any,
    times: Any,
    within: int,
    skip: int,
    skip_to: Any,
    position: Any,
    most: int,
) -> Any:
    """(status, matches, labels, unmatched) of all partitions, or of some matches at a time.

    :param offsets: rows ``offsets[i]:offsets[i + 1]`` are partition *i*
    :param bits: for each row and variable, whether its condition holds
    :param times: for each row its time; ascending or descending in each partition
    :param within: the largest difference of times in a match; negative if there is none
    :param skip_to: for each variable, whether SKIP TO names it
    :param position: where the search begins, at first zeros; is set to where it goes on if the status is MORE
    :param most: if the matches have more rows together, the search is interrupted
    :returns: *matches* are rows (start row, partition, number in the partition, first label, number of rows); if AFTER MATCH
        SKIP fails, the last one is where. *labels* are the states of the rows of the matches. *unmatched* tells
        for each row that no match begins there and it is in none.
    """
    count = len(bits)
    largest = 0
    for partition in range(len(offsets) - 1):
        largest = max(largest, offsets[partition + 1] - offsets[partition])
    ends = np.empty((largest, len(variables)), np.int32)
    matches = np.empty((16, 5), np.int64)
    labels = np.empty(16, np.int32)
    unmatched = np.zeros(count, np.bool_)
    found, used = 0, 0
    for partition in range(position[AT_PARTITION], len(offsets) - 1):
        begin = offsets[partition]
        size = offsets[partition + 1] - begin
        fill_ends(bits, begin, size, variables, edges, first_edge, ends)
        start, number, covered, limit = position[AT_ROW], position[MATCHES_BEFORE], position[COVERED], 0
        position[:] = 0
        while start < size:
            limit = max(limit, start)
            while limit < size and (within < 0 or abs(times[begin + limit] - times[begin + start]) <= within):
                limit += 1
            state, row, first_label = len(variables), start, used
            complete = False
            while not complete:
                chosen = -1
                for edge in range(first_edge[state], first_edge[state + 1]):
                    if not allowed(edges[edge, 1], row, size):
                        continue
                    target = edges[edge, 0]
                    if target == ACCEPT:
                        complete = True
                        break
                    if row < limit and ends[row, target] <= limit:
                        chosen = target
                        break
                if complete or chosen < 0:
                    break
                if used == len(labels):
                    grown = np.empty(2 * used, np.int32)
                    grown[:used] = labels
                    labels = grown
                labels[used] = chosen
                used += 1
                row += 1
                state = chosen
            if not complete:
                unmatched[begin + start] = start >= covered
                start += 1
                continue
            number += 1
            if found == len(matches):
                more = np.empty((2 * found, 5), np.int64)
                more[:found] = matches
                matches = more
            matches[found, START] = begin + start
            matches[found, PARTITION] = partition
            matches[found, NUMBER] = number
            matches[found, FIRST_LABEL] = first_label
            matches[found, ROWS] = row - start
            found += 1
            covered = max(covered, row)
            status = OK
            if skip == PAST_LAST_ROW:
                start = max(row, start + 1)
            elif skip == NEXT_ROW:
                start += 1
            else:
                place = -1
                for at in range(row - start):
                    if skip_to[variables[labels[first_label + at]]] and (place < 0 or skip == TO_LAST):
                        place = at
                if place < 0:
                    status = NO_ROW_TO_SKIP_TO
                elif place == 0:
                    status = SKIPS_TO_OWN_START
                start += place
            if status == OK and used > most:
                status = MORE
                position[AT_PARTITION], position[AT_ROW] = partition, start
                position[MATCHES_BEFORE], position[COVERED] = number, covered
            if status != OK:
                return status, matches[:found], labels[:used], unmatched
    return OK, matches[:found], labels[:used], unmatched


@entry
def rows_at_places(
    matches: Any,
    labels: Any,
    items: Any,
    of: Any,
    variables: Any,
    last: bool,
    skip: int,
    final: bool,
    steps: int,
    offsets: Any,
) -> Any:
    """For each item the row at a place of its match, or -1.

    :param items: rows (match or -1, visible rows of the match), by match and in ascending order of the visible rows
    :param of: for each variable, whether its rows are meant
    """
    found = np.full(len(items), -1, np.int64)
    places = np.empty(16, np.int64)
    current, scanned, count = -1, 0, 0
    for item in range(len(items)):
        match = items[item, 0]
        if match < 0:
            continue
        if match != current:
            current, scanned, count = match, 0, 0
        visible = matches[match, ROWS] if final else items[item, 1]
        while scanned < visible:
            if of[variables[labels[matches[match, FIRST_LABEL] + scanned]]]:
                if count == len(places):
                    grown = np.empty(2 * count, np.int64)
                    grown[:count] = places
                    places = grown
                places[count] = scanned
                count += 1
            scanned += 1
        if skip >= count:
            continue
        place = places[count - 1 - skip] if last else places[skip]
        row = matches[match, START] + place + steps
        partition = matches[match, PARTITION]
        if offsets[partition] <= row < offsets[partition + 1]:
            found[item] = row
    return found
