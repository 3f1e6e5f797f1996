"""The search for matches: arrays in, arrays out, compiled once per machine for all patterns.

:mod:`asterism.row_patterns.automaton` makes the tables, and ``docs/row_pattern_search.md`` explains the search: a table of where
the earliest match ends that continues from a row and a state, computed from the last row to the first, and a walk forward along
the preferred edges from which a match can be completed, or from which a row that is not known yet may be reached.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asterism.columns.compiled import compiled, entry

ACCEPT, AT_START, AT_END = -1, 1, 2  # as in automaton.py
NOWHERE = 2**31 - 1
"""More than any row number: no match can be completed."""
ANYWHERE = NOWHERE - 1
"""The end of the rows of a match, if any number of them may come."""
PAST_LAST_ROW, NEXT_ROW, TO_FIRST, TO_LAST = range(4)
OK, NO_ROW_TO_SKIP_TO, SKIPS_TO_OWN_START, MORE, TOO_LONG = range(5)
START, PARTITION, NUMBER, FIRST_LABEL, ROWS, TIMED_OUT = range(6)  # columns of matches
NEXT_START, MATCHES, COVERED, ROWS_BEFORE, DROPPED = range(5)  # columns of progress


@compiled
def allowed(guards: Any, at: Any, count: Any) -> Any:
    """Whether an edge can be followed when *at* rows of a partition of *count* rows lie before the next one."""
    return not ((guards & AT_START and at != 0) or (guards & AT_END and at != count))


@compiled
def blocked(unless: Any, bits: Any, row: Any) -> Any:
    """Whether *row* must not be taken, because it satisfies the condition of a variable."""
    return unless >= 0 and bits[row, unless]


@compiled
def fill_ends(
    bits: Any, begin: Any, first: Any, known: Any, count: Any, variables: Any, edges: Any, first_edge: Any, ends: Any
) -> None:
    """``ends[p, s]`` is the number of rows before the end of the earliest match that takes row *p* in state *s*.

    :param first, known: these rows, those before *known*, are filled; no path leads further
    """
    for row in range(known - 1, first - 1, -1):
        for state in range(len(variables)):
            earliest = NOWHERE
            if bits[begin + row, variables[state]]:
                for edge in range(first_edge[state], first_edge[state + 1]):
                    if not allowed(edges[edge, 1], row + 1, count):
                        continue
                    target = edges[edge, 0]
                    end = row + 1
                    if target != ACCEPT:
                        if row + 1 == known or blocked(edges[edge, 2], bits, begin + row + 1):
                            continue
                        end = ends[row + 1, target]
                    earliest = min(earliest, end)
            ends[row, state] = earliest


@compiled
def fill_needs(
    bits: Any, begin: Any, first: Any, known: Any, variables: Any, edges: Any, first_edge: Any, needs: Any
) -> None:
    """``needs[p, s]`` is the last row that a path with row *p* in state *s* can reach, whatever that row is; or -1."""
    for row in range(known - 1, first - 1, -1):
        for state in range(len(variables)):
            last = -1
            if bits[begin + row, variables[state]]:
                for edge in range(first_edge[state], first_edge[state + 1]):
                    target = edges[edge, 0]
                    if target != ACCEPT and edges[edge, 1] == 0:
                        if row + 1 < known and blocked(edges[edge, 2], bits, begin + row + 1):
                            continue
                        last = max(last, row + 1)
                        if row + 1 < known:
                            last = max(last, needs[row + 1, target])
            needs[row, state] = last


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
    progress: Any,
    position: Any,
    most: int,
    ended: bool,
    horizon: int,
    lookahead: int,
    trailing: int,
    max_rows: int,
    drop: bool,
) -> Any:
    """(status, matches, labels, unmatched) of all partitions, or of some matches at a time.

    :param offsets: rows ``offsets[i]:offsets[i + 1]`` are partition *i*
    :param bits: for each row and variable, whether its condition holds
    :param times: for each row its time; ascending or descending in each partition, ascending if more rows may come
    :param within: the largest difference of times in a match; negative if there is none
    :param skip_to: for each variable, whether SKIP TO names it
    :param progress: for each partition: the row, from the first one in *offsets*, where the search continues; how many matches
        were found; the end of the last row in a match; how many rows of the partition were before those in *offsets*; how many
        starts were dropped. At first zeros; is updated. A search that has not reached the last row waits for more rows.
    :param position: the partition where the search begins, at first 0; is set to where it continues if the status is MORE
    :param most: if the matches have more rows together, the search is interrupted
    :param ended: whether no more rows come
    :param horizon: the rows that come have later times
    :param lookahead: how many rows after a row its conditions read
    :param trailing: how many rows after its last one a match reads
    :param max_rows: if the first *max_rows* rows from a start leave open what matches there, and the next row could belong to
        it, the status is TOO_LONG, or the start is dropped
    :returns: *matches* are rows (start row, partition, number in the partition, first label, number of rows, 0: it has not timed
        out); if AFTER MATCH SKIP fails, the last one is where. *labels* are the states of the rows of the matches. *unmatched*
        says, for each row, whether no match begins there and it is in none.
    """
    count = len(bits)
    largest = 0
    for partition in range(len(offsets) - 1):
        largest = max(largest, offsets[partition + 1] - offsets[partition])
    ends = np.empty((largest, len(variables)), np.int32)
    some_wait = not ended or largest > max_rows
    needs = np.empty((largest if some_wait else 0, len(variables)), np.int32)
    matches = np.zeros((16, 6), np.int64)
    labels = np.empty(16, np.int32)
    unmatched = np.zeros(count, np.bool_)
    found, used = 0, 0
    for partition in range(position[0], len(offsets) - 1):
        begin = offsets[partition]
        size = offsets[partition + 1] - begin
        known = size if ended else max(size - lookahead, 0)
        start, number, covered = (
            progress[partition, NEXT_START],
            progress[partition, MATCHES],
            progress[partition, COVERED],
        )
        before, limit = progress[partition, ROWS_BEFORE], 0
        fill_ends(bits, begin, start, known, size, variables, edges, first_edge, ends)
        if some_wait:
            fill_needs(bits, begin, start, known, variables, edges, first_edge, needs)
        status = OK
        while start < size:
            limit = max(limit, start)
            while limit < size and (within < 0 or abs(times[begin + limit] - times[begin + start]) <= within):
                limit += 1
            # The rows of a match are before *until*; those from *frontier* on are not known.
            until = limit
            if limit == size and not ended and (within < 0 or times[begin + start] + within > horizon):
                until = ANYWHERE
            frontier = NOWHERE if ended else known
            too_long = start + max_rows <= known and start + max_rows < size
            if too_long:
                frontier = start + max_rows
            open_end = frontier < until
            state, row, first_label = len(variables), start, used
            complete, waits = False, False
            while not complete and not waits:
                chosen = -1
                for edge in range(first_edge[state], first_edge[state + 1]):
                    if not allowed(edges[edge, 1], row + before, size + before):
                        continue
                    target = edges[edge, 0]
                    if target == ACCEPT:
                        complete = ended or not edges[edge, 1] & AT_END
                        waits = not complete
                        break
                    if row >= frontier and open_end:
                        waits = True
                        break
                    if row >= until or blocked(edges[edge, 2], bits, begin + row):
                        continue
                    if ends[row, target] <= until or (open_end and needs[row, target] >= frontier):
                        chosen = target
                        break
                if complete or waits or chosen < 0:
                    break
                if used == len(labels):
                    grown = np.empty(2 * used, np.int32)
                    grown[:used] = labels
                    labels = grown
                labels[used] = chosen
                used += 1
                row += 1
                state = chosen
            if complete and not ended and trailing and row - 1 + trailing >= size:
                complete, waits, too_long = False, True, False
            if waits:
                used = first_label
                if not too_long:
                    break
                if not drop:
                    status = TOO_LONG
                    break
                progress[partition, DROPPED] += 1
            if not complete:
                unmatched[begin + start] = start >= covered
                start += 1
                continue
            number += 1
            if found == len(matches):
                more = np.zeros((2 * found, 6), np.int64)
                more[:found] = matches
                matches = more
            matches[found, START] = begin + start
            matches[found, PARTITION] = partition
            matches[found, NUMBER] = number
            matches[found, FIRST_LABEL] = first_label
            matches[found, ROWS] = row - start
            found += 1
            covered = max(covered, row)
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
            if status != OK:
                break
        progress[partition, NEXT_START], progress[partition, MATCHES] = start, number
        progress[partition, COVERED] = covered
        if status != OK:
            position[0] = partition
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


@entry
def running_sums(values: Any, groups: Any) -> Any:
    """For each value, the sum of the values of its group up to it, in order. Groups are runs of equal numbers."""
    sums = np.empty(len(values), np.float64)
    total = 0.0
    for at in range(len(values)):
        if at and groups[at] != groups[at - 1]:
            total = 0.0
        total += values[at]
        sums[at] = total
    return sums


@entry
def running_winners(keys: Any, valid: Any, groups: Any, largest: bool) -> Any:
    """For each key, where the largest or smallest valid key of its group up to it is, the first of equal ones; or -1."""
    found = np.empty(len(keys), np.int64)
    best = -1
    for at in range(len(keys)):
        if at and groups[at] != groups[at - 1]:
            best = -1
        if valid[at] and (best < 0 or (keys[at] > keys[best] if largest else keys[at] < keys[best])):
            best = at
        found[at] = best
    return found
