"""The search for matches: arrays in, arrays out, compiled once per machine for all patterns.

:mod:`asterism.row_patterns.automaton` makes the tables of the pattern, :mod:`asterism.row_patterns.match_conditions` those of
the conditions, and ``docs/row_pattern_search.md`` explains the search (docs/decisions/0041, 0109). A table of where the earliest
match ends that continues from a row and a state is computed from the last row to the first (:func:`fill_ends`). Then matches are
searched from one row after the other, in one of two ways:

* If no condition depends on the match so far, the table is exact. :func:`walk` goes forward along the preferred edges from which
  a match can be completed, or from which a row that is not known yet may be reached. It never goes back.
* Otherwise, the table is a superset of what is possible, and :func:`search` tries the ways to match in order of preference, in
  depth. What conditions can read of the rows taken so far is kept in stacks, one entry per row of a *group*, which is a variable,
  a subset, or all rows: the places of these rows, and running counts, sums and extremes (*registers*). To go back is to shorten
  the stacks.

A condition is a bit per row (its conjuncts over rows near the current one), a program for a stack machine (its other conjuncts;
:mod:`asterism.matching.instructions` has the operations, :mod:`asterism.expressions.kernels` the functions), or both. If neither
decides, the search pauses, the caller evaluates the condition, and the search resumes. All arrays that the
search changes belong to the caller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asterism.columns.compiled import entry, inlined, uncounted
from asterism.matching.instructions import Op
from asterism.matching.stack_machine import (
    NULL_VALUE,
    STATES,
    VALID,
    VALUES,
    bits_of,
    calculate,
    carry,
    double,
    wrapped,
)

ACCEPT, AT_START, AT_END, AT_DEADLINE = -1, 1, 2, 4  # as in automaton.py
NOWHERE = 2**31 - 1
"""More than any row number: no match can be completed."""
ANYWHERE = NOWHERE - 1
"""The end of the rows of a match, if any number of them may come."""
PAST_LAST_ROW, NEXT_ROW, TO_FIRST, TO_LAST, NO_SKIP = range(5)
OK, NO_ROW_TO_SKIP_TO, SKIPS_TO_OWN_START, MORE, TOO_LONG, ASK, NO_ROOM, NO_ROOM_FOR_MATCH, TOO_MANY_STEPS, WAIT = (
    range(10)
)
START, PARTITION, NUMBER, FIRST_LABEL, ROWS, TIMED_OUT = range(6)  # columns of matches
NEXT_START, MATCHES, COVERED_ROWS, ROWS_BEFORE, DROPPED, DEADLINE = range(6)  # columns of progress

FAILS, HOLDS, UNKNOWN, SURE = 0, 1, 2, 3  # bits, and answers but for the last one
LEADS_ON = 4  # an answer: the next row is taken
FAILED_VALUE = 2  # of a value; an error of the stack machine
(
    AT_PARTITION, BEGIN, SIZE, KNOWN, AT_ROW, MATCHES_BEFORE, COVERED, BEFORE, FILLED, DEPTH, STEPS, LIMIT, UNTIL, FRONTIER,
    LONGEST, FOUND, USED, ANSWER, BEYOND, PASSED, OPEN_STEPS, COMPLETES, PARTIAL, FOUND_HERE, FOUND_DEPTH, SOME_LATE,
    NEXT_BOUND, POSITIONS,
) = range(28)  # fmt: skip
"""Of the position of the search; see :class:`Workspace`."""

# What an operand of a program is: columns of operands.
KIND, GROUP, FROM_LAST, SKIP, DISTANCE, REGISTER = range(6)
(
    VALUE_OF_ROW,
    LABEL_OF_ROW,
    MATCH_NUMBER,
    COUNT_OF_GROUP,
    REGISTER_VALUE,
    REGISTER_MEAN,
    REGISTER_ROW,
    REGISTER_COUNT,
) = range(8)
# What a register is: columns of registers.
R_GROUP, R_FUNCTION, R_SLOT = range(3)
R_SUM, R_SUM_OF_DOUBLES, R_SMALLEST, R_LARGEST, R_COUNT = range(5)
# What bounds the time of a row of a variable: columns of bounds, and of what the bounds read.
B_VARIABLE, B_FIRST, B_LAST, B_STRICT, B_UNIT = range(5)
R_BOUND, R_READ_GROUP, R_FROM_LAST, R_SKIP = range(4)
NO_BOUND, MAX_TIME = 2**63 - 1, 2**62
"""More than any time in microseconds; limits beyond MAX_TIME are none."""
# What failures depend on: (kind, group or register, how many rows after the first or before the last).
K_LAST, K_FIRST, K_COUNT, K_REGISTER, K_LABEL_OF_LAST, K_LABEL_OF_FIRST, K_MATCH_NUMBER = range(7)
USUAL_STEPS = 10_000
"""The usual number of steps of a search; steps beyond it are limited over all searches."""
UNUSUAL_SEARCHES = 10
"""The number of searches that together may take the maximum number of steps."""
MEMORY_COLUMNS = 3  # state and kind of search, row, limit; then what the failure depends on

SLOT, AGG = int(Op.SLOT), int(Op.AGG)


class PatternTables(NamedTuple):
    """The automaton, see :mod:`asterism.row_patterns.automaton`, AFTER MATCH, and SHOW TIMEOUT MATCHES.

    :ivar state_of: a state of each variable
    """

    variables: Any
    excluded: Any
    state_of: Any
    edges: Any
    also: Any
    first_edge: Any
    within: int
    skip: int
    skip_to: Any
    timeouts: bool


class ConditionTables(NamedTuple):
    """The conditions, by variable.

    :ivar programs: rows (first operation, the one behind the last) of *operations*
    :ivar start_programs: likewise, of the conjuncts that are the same for all rows of a match, because they read nothing but its
        first row and its number
    :ivar asks: whether the caller must decide, where bit and program do not exclude the row
    :ivar operations: AGG has the slot of a value in column 4 and the number of an operand in column 3; an operation on integers
        has the number of bits of its result in column 2
    :ivar labels: the rank of the name of each variable among all strings
    :ivar members: groups x variables
    :ivar keys: what failures of a state depend on: ``keys[first_key[s]:first_key[s + 1]]``
    :ivar remembers: for each state, whether its failures can be remembered
    :ivar bounds: (variable, program: first operation, the one behind the last; whether the limit is excluded, unit): a row of the
        variable has a time of at most the result of the program
    :ivar bound_reads: (bound, group, whether it counts from the last row of the group, how many rows are skipped): what the
        programs of *bounds* read
    """

    programs: Any
    start_programs: Any
    asks: Any
    operations: Any
    operands: Any
    registers: Any
    labels: Any
    members: Any
    keys: Any
    first_key: Any
    remembers: Any
    bounds: Any
    bound_reads: Any


class RowTables(NamedTuple):
    """The input.

    :ivar offsets: rows ``offsets[i]:offsets[i + 1]`` are partition *i*
    :ivar bits: rows x variables: whether the conjuncts over near rows hold; UNKNOWN where they cannot be computed, SURE where the
        whole condition holds, whatever the match is
    :ivar exact: whether the bits are the whole conditions, and tell where the earliest match ends, so that the search never goes
        back
    :ivar values: slot *k* in column 2k, and whether it is there in column 2k + 1
    :ivar times: in order, ascending or descending in each partition
    """

    offsets: Any
    bits: Any
    exact: bool
    values: Any
    times: Any


class FutureRows(NamedTuple):
    """The limits of rows to come.

    :ivar ended: whether no more rows come
    :ivar horizon: the rows that come have later times
    :ivar lookahead: how many rows after a row its conditions read
    :ivar trailing: how many rows after its last one a match reads
    :ivar max_rows: if the first *max_rows* rows from a start leave open what matches there, and the next row could belong to
        it, the status is TOO_LONG, or the start is dropped
    :ivar drop: whether it is dropped
    """

    ended: bool
    horizon: int
    lookahead: int
    trailing: int
    max_rows: int
    drop: bool


class Workspace(NamedTuple):
    """The state that the search changes.

    :ivar position: where the search is: partition, its first row, how many rows it has and how many of them are known, first row
        of the match, number of matches before it, rows covered by matches, rows of the partition that are gone, the partition
        (+ 1) to which *ends* belong, the number of rows taken (-1 before a search), steps of this search, the first row that is
        too late, the same if more rows may come, the first row that is not known (NOWHERE if it does not matter), whether that is
        so because of max_rows, the numbers of matches and labels found, the answer (-1: none), the steps of all searches beyond
        the usual ones, the edge (+ 1) whose row does not satisfy the variable that it must not, the steps of searches that wait
        for more rows, whether the automaton accepts without the variables in *impossible*, whether a match that times out is
        searched, how many matches were found from the first row (NO_SKIP), how many rows the last of them had where the search
        went on: up to there, there is no failure; whether the next row is too late for some variable, the smallest bound of its
        time that has not passed
    :ivar ends: see :func:`fill_ends`
    :ivar needs: see :func:`fill_needs`
    :ivar frames: for each row taken, and before the first one: the state, and the edge to try next
    :ivar counts: of the rows of each group
    :ivar places: groups x rows: which rows of the match they are
    :ivar sums: registers x (rows + 1) x (value, number of values; negative if it does not fit)
    :ivar memory: failures, in places that depend on their contents
    :ivar matches: rows (start row, partition, number in the partition, first label, number of rows, whether it has timed out)
    :ivar labels: the states of the rows of the matches
    :ivar unmatched: rows in which no match begins and which are in no match
    :ivar impossible: variables of which a match from the current start can have no row
    :ivar reached: states, while it is found out whether the automaton accepts
    :ivar todo: likewise
    :ivar late: variables for which the next row comes too late
    :ivar late_later: variables for which any later row comes too late
    :ivar passed: bounds that have passed, and that no row can move
    :ivar leads_on: states after which a match is still possible
    """

    position: Any
    ends: Any
    needs: Any
    frames: Any
    counts: Any
    places: Any
    sums: Any
    stack: Any
    memory: Any
    key: Any
    matches: Any
    labels: Any
    unmatched: Any
    impossible: Any
    reached: Any
    todo: Any
    late: Any
    late_later: Any
    passed: Any
    leads_on: Any


class SearchTables(NamedTuple):
    """Everything that a search reads or changes."""

    pattern: Any
    conditions: Any
    rows: Any
    future: Any
    work: Any


# ---------------------------------------------------------------------------------------------------- the match so far


@inlined
def take(tables: Any, state: int, depth: int) -> None:
    """Take the row number *depth* of the match in a state."""
    conditions, work = tables.conditions, tables.work
    work.frames[depth + 1, 0] = state
    variable = tables.pattern.variables[state]
    absolute = work.position[BEGIN] + work.position[AT_ROW] + depth
    for number in range(len(conditions.registers)):
        group = conditions.registers[number, R_GROUP]
        if conditions.members[group, variable]:
            add(conditions.registers, number, tables.rows.values, work.sums, work.counts[group], absolute)
    for group in range(len(conditions.members)):
        if conditions.members[group, variable]:
            work.places[group, work.counts[group]] = depth
            work.counts[group] += 1


@inlined
def give_back(tables: Any, variable: int) -> None:
    """Undo :func:`take`."""
    members, counts = tables.conditions.members, tables.work.counts
    for group in range(len(members)):
        counts[group] -= members[group, variable]


@uncounted
def add(registers: Any, register: int, values: Any, sums: Any, count: int, absolute: int) -> None:
    """Entry *count* + 1 of a register: with the value of one more row."""
    function, column = registers[register, R_FUNCTION], 2 * registers[register, R_SLOT]
    value, number = sums[register, count, 0], sums[register, count, 1]
    state = values[absolute, column + 1]
    if state == FAILED_VALUE:
        number = -1
    elif state == VALID and number >= 0:
        given = values[absolute, column]
        if function == R_SUM:
            if carry(value, given) != 0:
                number = -2
            value = wrapped(value, given)
        elif function == R_SUM_OF_DOUBLES:
            value = bits_of(double(value) + double(given))
        elif number == 0 and function != R_COUNT:
            value = absolute
        elif function == R_SMALLEST:
            if given < values[value, column]:
                value = absolute
        elif function == R_LARGEST and given > values[value, column]:
            value = absolute
        number += 1
    sums[register, count + 1, 0], sums[register, count + 1, 1] = value, number


@uncounted
def operand(tables: Any, at: int, depth: int, top: int) -> None:
    """Push the operand of an AGG operation. *depth* is the number of the row of the match that is tested."""
    conditions, work = tables.conditions, tables.work
    operands, number, stack = conditions.operands, conditions.operations[at, 3], work.stack
    kind, group = operands[number, KIND], operands[number, GROUP]
    stack[STATES, top], stack[VALUES, top] = VALID, 0
    if kind == MATCH_NUMBER:
        stack[VALUES, top] = work.position[MATCHES_BEFORE] + 1
    elif kind == COUNT_OF_GROUP:
        stack[VALUES, top] = work.counts[group]
    elif kind in (VALUE_OF_ROW, LABEL_OF_ROW):
        of_row(tables, at, depth, top)
    else:
        of_register(tables, at, top)


@inlined
def of_row(tables: Any, at: int, depth: int, top: int) -> None:
    """Push the value or the variable of a row at a place of the match."""
    conditions, rows, work = tables.conditions, tables.rows, tables.work
    operands, number, slot, stack = (
        conditions.operands,
        conditions.operations[at, 3],
        conditions.operations[at, 4],
        work.stack,
    )
    group, skip, start = operands[number, GROUP], operands[number, SKIP], work.position[AT_ROW]
    count = work.counts[group]
    stack[STATES, top] = NULL_VALUE
    if skip >= count:
        return
    place = work.places[group, count - 1 - skip if operands[number, FROM_LAST] else skip] + operands[number, DISTANCE]
    if operands[number, KIND] == LABEL_OF_ROW:
        if 0 <= place <= depth:
            stack[VALUES, top] = conditions.labels[tables.pattern.variables[work.frames[place + 1, 0]]]
            stack[STATES, top] = VALID
    elif 0 <= start + place < work.position[SIZE]:
        push_value(rows.values, work.position[BEGIN] + start + place, slot, stack, top)


@inlined
def of_register(tables: Any, at: int, top: int) -> None:
    """Push a running aggregate."""
    conditions, work = tables.conditions, tables.work
    operands, number, stack = conditions.operands, conditions.operations[at, 3], work.stack
    kind, register = operands[number, KIND], operands[number, REGISTER]
    count = work.counts[operands[number, GROUP]]
    value, present = work.sums[register, count, 0], work.sums[register, count, 1]
    if present < 0:
        stack[STATES, top] = FAILED_VALUE
    elif kind == REGISTER_COUNT:
        stack[VALUES, top] = present
    elif present == 0:
        stack[STATES, top] = NULL_VALUE
    elif kind == REGISTER_ROW:
        push_value(tables.rows.values, value, conditions.operations[at, 4], stack, top)
    elif kind == REGISTER_MEAN:
        stack[VALUES, top] = bits_of(double(value) / present)
    else:
        stack[VALUES, top] = value


@inlined
def push_value(values: Any, row: int, slot: int, stack: Any, top: int) -> None:
    stack[VALUES, top], stack[STATES, top] = values[row, 2 * slot], values[row, 2 * slot + 1]


@uncounted
def run(tables: Any, first: int, last: int, depth: int) -> int:
    """HOLDS if the program is TRUE for the row number *depth* of the match, FAILS if it is FALSE or NULL, UNKNOWN if it
    cannot decide.
    """
    operations, rows, work = tables.conditions.operations, tables.rows, tables.work
    stack = work.stack
    row = work.position[BEGIN] + work.position[AT_ROW] + depth
    n = 0  # the number of values on the stack
    for at in range(first, last):
        op = operations[at, 0]
        if op == SLOT:
            push_value(rows.values, row, operations[at, 1], stack, n)
            n += 1
        elif op == AGG:
            operand(tables, at, depth, n)
            n += 1
        else:
            n = calculate(operations, at, stack, n)
    if stack[STATES, 0] > NULL_VALUE:
        return UNKNOWN
    return HOLDS if (stack[STATES, 0] == VALID and stack[VALUES, 0] == 1) else FAILS


@inlined
def verdict(tables: Any, variable: int, depth: int) -> int:
    """Whether the row that was taken last satisfies its condition; UNKNOWN: the caller must decide."""
    conditions, position = tables.conditions, tables.work.position
    bit = tables.rows.bits[position[BEGIN] + position[AT_ROW] + depth, variable]
    if bit == UNKNOWN:
        return UNKNOWN
    if bit == SURE:
        return HOLDS
    first, last = conditions.programs[variable, 0], conditions.programs[variable, 1]
    if first < last:
        position[STEPS] += last - first
        outcome = run(tables, first, last, depth)
        if outcome != HOLDS:
            return outcome
    return UNKNOWN if conditions.asks[variable] else HOLDS


# ---------------------------------------------------------------------------------------------------- failures


@uncounted
def make_key(tables: Any, state: int, row: int) -> Any:
    """Put what a failure in *state* after *row* depends on into ``work.key``. Its place in the memory, or -1 if it has none."""
    conditions, work, variables = tables.conditions, tables.work, tables.pattern.variables
    key, position = work.key, work.position
    key[0], key[1], key[2] = 2 * (state + 1) + position[PARTIAL], position[BEGIN] + row, position[UNTIL]
    n = MEMORY_COLUMNS
    for at in range(conditions.first_key[state], conditions.first_key[state + 1]):
        kind, which, offset = conditions.keys[at, 0], conditions.keys[at, 1], conditions.keys[at, 2]
        if kind == K_MATCH_NUMBER:
            key[n] = position[MATCHES_BEFORE]
        elif kind == K_REGISTER:
            count = work.counts[conditions.registers[which, R_GROUP]]
            if work.sums[which, count, 1] < 0:
                return np.int64(-1)
            key[n], key[n + 1] = work.sums[which, count, 0], work.sums[which, count, 1]
            if conditions.registers[which, R_FUNCTION] in (R_SMALLEST, R_LARGEST):
                key[n + 1] = min(key[n + 1], 1)  # only whether there is a value
            n += 1
        elif kind == K_COUNT:
            key[n] = work.counts[which]
        else:
            count = work.counts[which]
            key[n] = -1
            if offset < count:
                from_last = kind in (K_LAST, K_LABEL_OF_LAST)
                place = work.places[which, count - 1 - offset if from_last else offset]
                if kind in (K_LAST, K_FIRST):
                    key[n] = position[AT_ROW] + place
                else:
                    key[n] = variables[work.frames[place + 1, 0]]
        n += 1
    mixed = np.uint64(0)
    for at in range(n):
        mixed = (mixed ^ np.uint64(key[at])) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    for at in range(n, len(key)):
        key[at] = 0
    return np.int64(mixed & np.uint64(len(work.memory) - 1))


@uncounted
def is_known(work: Any, place: int) -> bool:
    for column in range(len(work.key)):  # noqa: SIM110 - numba
        if work.memory[place, column] != work.key[column]:
            return False
    return True


# ---------------------------------------------------------------------------------------------------- how matches can go on


@inlined
def allowed(guards: Any, at: Any, count: Any) -> Any:
    """Whether an edge can be followed when *at* rows of a partition of *count* rows lie before the next one."""
    return not ((guards & AT_START and at != 0) or (guards & AT_END and at != count))


@inlined
def blocked(unless: Any, bits: Any, row: Any) -> Any:
    """Whether *row* must not be taken, because it satisfies the condition of a variable, which is a bit."""
    return unless >= 0 and bits[row, unless] != FAILS


@uncounted
def fill_ends(pattern: Any, rows: Any, begin: int, count: int, first: int, known: int, ends: Any) -> None:
    """``ends[p, s]`` is the number of rows before the end of the earliest match that takes row *p* in state *s*, if all
    conditions that are not bits hold.

    :param begin, count: the rows of the partition
    :param first, known: these rows, those before *known*, are filled; no path leads further
    """
    bits, variables, edges, first_edge, exact = (
        rows.bits,
        pattern.variables,
        pattern.edges,
        pattern.first_edge,
        rows.exact,
    )
    for row in range(known - 1, first - 1, -1):
        for state in range(len(variables)):
            earliest = NOWHERE
            if bits[begin + row, variables[state]] != FAILS:
                for edge in range(first_edge[state], first_edge[state + 1]):
                    if not allowed(edges[edge, 1], row + 1, count):
                        continue
                    target = edges[edge, 0]
                    end = row + 1
                    if target != ACCEPT:
                        if row + 1 == known or (exact and blocked(edges[edge, 2], bits, begin + row + 1)):
                            continue
                        end = ends[row + 1, target]
                    earliest = min(earliest, end)
            ends[row, state] = earliest


@uncounted
def fill_needs(pattern: Any, rows: Any, begin: int, first: int, known: int, needs: Any) -> None:
    """``needs[p, s]`` is the last row that a path with row *p* in state *s* can reach, whatever that row is; or -1."""
    bits, variables, edges, first_edge, exact = (
        rows.bits,
        pattern.variables,
        pattern.edges,
        pattern.first_edge,
        rows.exact,
    )
    for row in range(known - 1, first - 1, -1):
        for state in range(len(variables)):
            last = -1
            if bits[begin + row, variables[state]] != FAILS:
                for edge in range(first_edge[state], first_edge[state + 1]):
                    target = edges[edge, 0]
                    if target == ACCEPT or edges[edge, 1] != 0:
                        continue
                    if row + 1 < known:
                        if exact and blocked(edges[edge, 2], bits, begin + row + 1):
                            continue
                        last = max(last, needs[row + 1, target])
                    last = max(last, row + 1)
            needs[row, state] = last


@inlined
def leads_on(work: Any, row: int, target: int, until: int, frontier: int) -> Any:
    """Whether a match could be completed, or a row be reached that is not known, if *row* is taken in the state *target*."""
    return row < until and (
        work.ends[row, target] <= until or (frontier != NOWHERE and work.needs[row, target] >= frontier)
    )


# ---------------------------------------------------------------------------------------------------- the search from one row


@inlined
def walk(tables: Any) -> int:
    """The preferred match from the current start, if bits are exact: HOLDS, with its states behind the labels of earlier matches,
    and its length in DEPTH; FAILS; or a status of :func:`find_matches` in negative.
    """
    pattern, bits, work, ended = tables.pattern, tables.rows.bits, tables.work, tables.future.ended
    position, labels, edges, first_edge = work.position, work.labels, pattern.edges, pattern.first_edge
    begin, size, before, start = position[BEGIN], position[SIZE], position[BEFORE], position[AT_ROW]
    until, frontier, used = position[UNTIL], position[FRONTIER], position[USED]
    state, row = len(pattern.variables), start
    while True:
        chosen = -1
        for edge in range(first_edge[state], first_edge[state + 1]):
            if not allowed(edges[edge, 1], row + before, size + before):
                continue
            target = edges[edge, 0]
            if target == ACCEPT:
                position[DEPTH] = row - start
                return HOLDS if ended or not edges[edge, 1] & AT_END else -WAIT
            if row >= frontier:
                return -WAIT
            if leads_on(work, row, target, until, frontier) and not blocked(edges[edge, 2], bits, begin + row):
                chosen = target
                break
        if chosen < 0:
            return FAILS
        if used + row - start == len(labels):
            position[DEPTH] = row - start + 1
            return -NO_ROOM_FOR_MATCH
        labels[used + row - start] = chosen
        state = chosen
        row += 1


@inlined
def is_open(position: Any) -> Any:
    """Whether the search may need rows that have not arrived yet."""
    return position[FRONTIER] != NOWHERE and position[LONGEST] == 0


@uncounted
def find_late(tables: Any, state: int, depth: int, time: int) -> None:
    """Find out for which variables the next row, at *time* or later, is too late, and which states can still lead to a match."""
    bounds, work = tables.conditions.bounds, tables.work
    stack, position = work.stack, work.position
    for number in range(len(bounds)):
        first, last = bounds[number, B_FIRST], bounds[number, B_LAST]
        position[STEPS] += last - first
        run(tables, first, last, depth)
        work.passed[number] = False
        limit, largest = stack[VALUES, 0], MAX_TIME // bounds[number, B_UNIT]
        if stack[STATES, 0] != VALID or limit >= largest or limit <= -largest:
            continue
        latest = (limit - bounds[number, B_STRICT]) * bounds[number, B_UNIT]
        if latest < time:
            work.passed[number] = True
            position[SOME_LATE] = 1
        else:
            position[NEXT_BOUND] = min(position[NEXT_BOUND], latest)
    if position[SOME_LATE] == 0:
        return
    mark_late(bounds, work.passed, work.late)
    mark_late(bounds, work.passed, work.late_later)
    while are_moved(tables, state):
        mark_late(bounds, work.passed, work.late_later)
    mark_leading(tables.pattern, work)


@uncounted
def mark_late(bounds: Any, passed: Any, late: Any) -> None:
    """The variables of the bounds that have passed."""
    late[:] = False
    for number in range(len(bounds)):
        if passed[number]:
            late[bounds[number, B_VARIABLE]] = True


@uncounted
def mark_leading(pattern: Any, work: Any) -> None:
    """The states after which a match is still possible."""
    variables, edges, first_edge, leads_on = pattern.variables, pattern.edges, pattern.first_edge, work.leads_on
    leads_on[:] = False
    is_changed = True
    while is_changed:
        is_changed = False
        work.position[STEPS] += len(edges)
        for before in range(len(variables) - 1, -1, -1):
            for edge in range(first_edge[before], first_edge[before + 1]):
                target = edges[edge, 0]
                if target == ACCEPT or (leads_on[target] and not work.late_later[variables[target]]):
                    is_changed = is_changed or not leads_on[before]
                    leads_on[before] = True
                    break


@uncounted
def are_moved(tables: Any, state: int) -> bool:
    """Whether rows that can be taken from a state on move bounds that have passed; these are not passed any more."""
    pattern, conditions, work = tables.pattern, tables.conditions, tables.work
    variables, edges, first_edge = pattern.variables, pattern.edges, pattern.first_edge
    reads, members, reached, todo = conditions.bound_reads, conditions.members, work.reached, work.todo
    reached[:] = False
    todo[0] = state
    count, is_first, found = 1, True, False
    while count:
        count -= 1
        at = todo[count]
        for edge in range(first_edge[at], first_edge[at + 1]):
            work.position[STEPS] += 1
            target = edges[edge, 0]
            if target == ACCEPT or reached[target]:
                continue
            variable = variables[target]
            if work.late[variable] if is_first else work.late_later[variable]:
                continue
            reached[target] = True
            todo[count] = target
            count += 1
            for number in range(len(reads)):
                bound, group = reads[number, R_BOUND], reads[number, R_READ_GROUP]
                fixed = reads[number, R_FROM_LAST] == 0 and work.counts[group] > reads[number, R_SKIP]
                if work.passed[bound] and members[group, variable] and not fixed:
                    work.passed[bound] = False
                    found = True
        is_first = False
    return found


@uncounted
def none_is_in_time(pattern: Any, work: Any, state: int, at: int, count: int) -> bool:
    """Whether the next row comes too late for all that a state can go on with."""
    goes_on = False
    for edge in range(pattern.first_edge[state], pattern.first_edge[state + 1]):
        target = pattern.edges[edge, 0]
        if target == ACCEPT or not allowed(pattern.edges[edge, 1], at, count):
            continue
        if work.leads_on[target] and not work.late[pattern.variables[target]]:
            return False
        goes_on = True
    return goes_on


@uncounted
def is_late(tables: Any, depth: int) -> bool:
    """Find out for which variables the row number *depth* of the match is too late. Whether the match times out with that."""
    rows, work = tables.rows, tables.work
    position, row, state = work.position, work.position[AT_ROW] + depth, work.frames[depth, 0]
    position[SOME_LATE], position[NEXT_BOUND] = 0, NO_BOUND
    if row >= position[UNTIL]:
        return False
    time = rows.times[position[BEGIN] + row] if row < position[SIZE] else tables.future.horizon + 1
    find_late(tables, state, depth, time)
    if position[PARTIAL] == 0 or position[SOME_LATE] == 0:
        return False
    before = position[BEFORE]
    return none_is_in_time(tables.pattern, work, state, row + before, position[SIZE] + before)


@uncounted
def none_comes(tables: Any, edge: int) -> bool:
    """Whether no row that comes satisfies a variable that the next row must not satisfy."""
    pattern, work = tables.pattern, tables.work
    for which in range(1 + pattern.also.shape[1]):
        unless = pattern.edges[edge, 2] if which == 0 else pattern.also[edge, which - 1]
        if unless >= 0 and not (work.position[SOME_LATE] == 1 and work.late[unless]):
            return False
    return True


@inlined
def can_follow(tables: Any, edge: int, row: int) -> int:
    """Whether an edge can be followed before *row* as far as is known without its conditions: FAILS; HOLDS, all rows of a match
    that times out are taken; UNKNOWN, the conditions decide; or -WAIT.
    """
    position, edges, work = tables.work.position, tables.pattern.edges, tables.work
    until, frontier, before = position[UNTIL], position[FRONTIER], position[BEFORE]
    partial = position[PARTIAL] == 1
    if not allowed(edges[edge, 1], row + before, position[SIZE] + before):
        return FAILS
    target = edges[edge, 0]
    if target == ACCEPT:
        if partial:
            return FAILS
        at_deadline = edges[edge, 1] & AT_DEADLINE != 0
        if row >= frontier and (at_deadline or not none_comes(tables, edge)):
            return -WAIT
        return FAILS if at_deadline and row < until else UNKNOWN
    variable = tables.pattern.variables[target]
    if position[SOME_LATE] == 1 and (work.late[variable] or not work.leads_on[target]):
        return FAILS
    if row >= frontier:
        return -WAIT
    if partial:
        if row >= until:  # this row would have gone on
            return HOLDS
        if work.needs[row, target] >= until:
            return UNKNOWN
        may_be_late = len(tables.conditions.bounds) > 0 and tables.rows.bits[position[BEGIN] + row, variable] != FAILS
        return UNKNOWN if may_be_late else FAILS
    return UNKNOWN if leads_on(work, row, target, until, frontier) else FAILS


@inlined
def tested(tables: Any, state: int, depth: int) -> int:
    """Take a row in a state, and find out whether it satisfies the condition: HOLDS, FAILS, or a status of
    :func:`find_matches` in negative, after which this is called again.
    """
    work = tables.work
    outcome: int = work.position[ANSWER]
    work.position[ANSWER] = -1
    if outcome == WAIT:
        return -WAIT
    if outcome < 0:
        if depth + 2 >= len(work.frames):
            return -NO_ROOM
        take(tables, state, depth)
        outcome = verdict(tables, tables.pattern.variables[state], depth)
        if outcome == UNKNOWN:
            return -ASK
    return outcome


@inlined
def follow(tables: Any, edge: int, depth: int) -> int:
    """Follow an edge if the conditions of the row number *depth* allow it: LEADS_ON, that row is taken; HOLDS, the match is
    complete; FAILS; or a status of :func:`find_matches` in negative, after which this is called again.
    """
    pattern, rows, work = tables.pattern, tables.rows, tables.work
    position, frames, edges = work.position, work.frames, pattern.edges
    target, row, several = edges[edge, 0], position[AT_ROW] + depth, 1 + pattern.also.shape[1]
    frames[depth, 1] = edge  # if there is no room for the match, it is found again
    # First the variables that the row must not satisfy, then the one of the target.
    for which in range(several + 1):
        state = target
        if which < several:
            unless = edges[edge, 2] if which == 0 else pattern.also[edge, which - 1]
            if unless < 0 or row >= position[UNTIL] or row >= position[FRONTIER]:
                continue
            if rows.bits[position[BEGIN] + row, unless] == FAILS:
                continue
            if which < position[PASSED] - (edge + 1) * (several + 1) <= several:
                continue
            state = pattern.state_of[unless]
        elif target == ACCEPT:
            position[PASSED] = 0
            return HOLDS if tables.future.ended or not edges[edge, 1] & AT_END else -WAIT
        outcome = tested(tables, state, depth)
        if outcome < 0:
            return outcome
        if which < several:
            give_back(tables, pattern.variables[state])
            if outcome == HOLDS:
                position[PASSED] = 0
                return FAILS
            position[PASSED] = (edge + 1) * (several + 1) + which + 1
        elif outcome == FAILS or has_failed(tables, target, row):
            give_back(tables, pattern.variables[target])
            break
        else:
            frames[depth, 1] = edge + 1
            frames[depth + 1, 1] = pattern.first_edge[target]
            position[DEPTH] = depth + 1
            position[PASSED] = 0
            return LEADS_ON
    position[PASSED] = 0
    return FAILS


@inlined
def has_failed(tables: Any, state: int, row: int) -> bool:
    """Whether it is known that no match can be completed behind *row*, which has been taken in *state*."""
    if not tables.conditions.remembers[state]:
        return False
    place = make_key(tables, state, row)
    return place >= 0 and is_known(tables.work, place)


@inlined
def go_back(tables: Any, depth: int) -> None:
    """Give the last row back, and remember that no match can be completed behind it."""
    position, frames, work = tables.work.position, tables.work.frames, tables.work
    state = frames[depth, 0]
    if depth <= position[FOUND_DEPTH]:
        position[FOUND_DEPTH] = depth - 1
    elif tables.conditions.remembers[state]:
        place = make_key(tables, state, position[AT_ROW] + depth - 1)
        if place >= 0:
            for column in range(len(work.key)):
                work.memory[place, column] = work.key[column]
    give_back(tables, tables.pattern.variables[state])
    position[DEPTH] = depth - 1


@uncounted
def search(tables: Any, max_steps: int) -> int:
    """The preferred match from the current start: HOLDS with its rows in ``work.frames`` and its length in DEPTH, FAILS; or a
    status of :func:`find_matches` in negative.

    How many steps a search takes until it waits for more rows depends on how many rows are known, so it may not fail for that:
    it waits. The search that is made when all rows are known decides.
    """
    position, frames, first_edge = tables.work.position, tables.work.frames, tables.pattern.first_edge
    start, bounded = position[AT_ROW], len(tables.conditions.bounds) > 0
    while True:
        depth = position[DEPTH]
        # While a row is tested, it is taken already.
        if bounded and position[ANSWER] < 0 and is_late(tables, depth):
            return HOLDS
        outcome = FAILS
        for edge in range(frames[depth, 1], first_edge[frames[depth, 0] + 1]):
            position[STEPS] += 1
            if position[STEPS] > max_steps:
                return -WAIT if is_open(position) else -TOO_MANY_STEPS
            outcome = can_follow(tables, edge, start + depth)
            if outcome == UNKNOWN:
                outcome = follow(tables, edge, depth)
            if outcome != FAILS:
                break
        if outcome == LEADS_ON:
            continue
        if outcome != FAILS or depth == 0:
            return outcome
        go_back(tables, depth)


@uncounted
def begin_search(tables: Any) -> None:
    """Prepare the search from the current start."""
    pattern, times, future, position = tables.pattern, tables.rows.times, tables.future, tables.work.position
    begin, size, known, within = position[BEGIN], position[SIZE], position[KNOWN], pattern.within
    start = position[AT_ROW]
    limit = max(position[LIMIT], start)
    while limit < size and (within < 0 or abs(times[begin + limit] - times[begin + start]) <= within):
        limit += 1
    # The rows of a match are before UNTIL; those from FRONTIER on are not known.
    until = limit
    if limit == size and not future.ended and (within < 0 or times[begin + start] + within > future.horizon):
        until = ANYWHERE
    frontier = NOWHERE if future.ended else known
    too_long = start + future.max_rows <= known and start + future.max_rows < size
    if too_long:
        frontier = start + future.max_rows
    position[LIMIT], position[UNTIL], position[LONGEST] = limit, until, 1 if too_long else 0
    position[FRONTIER] = frontier if frontier < until else NOWHERE
    position[STEPS], position[PARTIAL], position[FOUND_HERE], position[FOUND_DEPTH] = 0, 0, 0, -1
    position[SOME_LATE], position[NEXT_BOUND] = 0, NO_BOUND
    at_first_row(tables)


@inlined
def at_first_row(tables: Any) -> None:
    """No row is taken yet."""
    pattern, work = tables.pattern, tables.work
    work.position[DEPTH] = 0
    work.frames[0, 0], work.frames[0, 1] = len(pattern.variables), pattern.first_edge[len(pattern.variables)]
    for group in range(len(work.counts)):
        work.counts[group] = 0


@uncounted
def can_complete(tables: Any) -> bool:
    """Whether a match may begin at the current start, judged by its first row and its number alone."""
    pattern, conditions, work = tables.pattern, tables.conditions, tables.work
    position, variables, first_edge = work.position, pattern.variables, pattern.first_edge
    first_state = -1
    for edge in range(first_edge[len(variables)], first_edge[len(variables) + 1]):
        if pattern.edges[edge, 0] == ACCEPT:
            return True
        first_state = pattern.edges[edge, 0]
    if first_state < 0:
        return False
    is_taken = changed = False
    for variable in range(len(conditions.start_programs)):
        first, last = conditions.start_programs[variable, 0], conditions.start_programs[variable, 1]
        if first == last:
            continue
        if not is_taken:
            take(tables, first_state, 0)
            is_taken = True
        position[STEPS] += last - first
        fails = run(tables, first, last, 0) == FAILS
        changed = changed or work.impossible[variable] != fails
        work.impossible[variable] = fails
    if is_taken:
        give_back(tables, variables[first_state])
    if changed:
        position[COMPLETES] = 1 if accepts(pattern, work) else 0
    completes: bool = position[COMPLETES] == 1
    return completes


@uncounted
def accepts(pattern: Any, work: Any) -> bool:
    """Whether the automaton accepts any rows without impossible variables."""
    reached, todo, variables = work.reached, work.todo, pattern.variables
    reached[:] = False
    todo[0] = len(variables)
    count = 1
    while count:
        count -= 1
        state = todo[count]
        for edge in range(pattern.first_edge[state], pattern.first_edge[state + 1]):
            target = pattern.edges[edge, 0]
            if target == ACCEPT:
                return True
            if not reached[target] and not work.impossible[variables[target]]:
                reached[target] = True
                todo[count] = target
                count += 1
    return False


@inlined
def search_from_start(tables: Any, max_steps: int) -> int:
    """The preferred match from the current start, or what of it is still to search; see :func:`search`."""
    position = tables.work.position
    begins = position[DEPTH] < 0
    if begins:
        begin_search(tables)
    if tables.rows.exact:
        return walk(tables)
    # What times out need not be able to complete.
    if begins and not tables.pattern.timeouts and not can_complete(tables):
        return FAILS
    # Whatever the number of keys, the searches of a call that only wait are limited together.
    many = position[OPEN_STEPS] > UNUSUAL_SEARCHES * max_steps and is_open(position)
    return search(tables, USUAL_STEPS if many else max_steps)


@inlined
def begins_timeout(tables: Any, outcome: int) -> bool:
    """Whether a match that times out is to be searched, because no match begins in this row, whatever comes; prepares that."""
    position = tables.work.position
    # Where conditions bound times, a match can time out before all rows are known that WITHIN allows.
    decided = outcome == FAILS and (position[FRONTIER] == NOWHERE or len(tables.conditions.bounds) > 0)
    if not (tables.pattern.timeouts and decided and position[PARTIAL] + position[FOUND_HERE] == 0):
        return False
    position[PARTIAL] = 1
    at_first_row(tables)
    return True


@inlined
def too_many_steps(position: Any, max_steps: int) -> bool:
    """Count the steps of a search that is over. Whether all searches have taken too many beyond the usual ones."""
    position[BEYOND] = max(position[BEYOND] + position[STEPS] - USUAL_STEPS, 0)
    position[STEPS] = USUAL_STEPS  # if there is no room for the match, this is done again
    too_many: bool = position[BEYOND] > UNUSUAL_SEARCHES * max_steps
    return too_many


# ---------------------------------------------------------------------------------------------------- matches


@inlined
def rows_of_match(tables: Any) -> int:
    """How many rows the match has that was found. Those at its end that are not in the output do not belong to a match that times
    out, or of which a row does not come, except for the first row.
    """
    pattern, frames, position = tables.pattern, tables.work.frames, tables.work.position
    length: int = position[DEPTH]
    if tables.rows.exact:
        return length
    edge = frames[length, 1]
    at_deadline = pattern.edges[edge, 0] == ACCEPT and pattern.edges[edge, 1] & AT_DEADLINE != 0
    if position[PARTIAL] == 1 or at_deadline:
        while length > 1 and pattern.excluded[frames[length, 0]]:
            length -= 1
    return length


@inlined
def measures_wait(tables: Any) -> bool:
    """Whether the measures of the match read rows that are still to come."""
    future, position = tables.future, tables.work.position
    if future.ended or not future.trailing:
        return False
    waits: bool = position[AT_ROW] + rows_of_match(tables) - 1 + future.trailing >= position[SIZE]
    return waits


@inlined
def withdraw(work: Any) -> None:
    """Remove the matches from the current start, which are found again."""
    position = work.position
    position[FOUND] -= position[FOUND_HERE]
    if position[FOUND_HERE] > 0:
        position[USED] = work.matches[position[FOUND], FIRST_LABEL]
        position[FOUND_HERE] = 0


@uncounted
def was_found(tables: Any, length: int) -> bool:
    """Whether a match from the same first row has the same variables."""
    variables, work = tables.pattern.variables, tables.work
    frames, matches, found = work.frames, work.matches, work.position[FOUND]
    for number in range(found - work.position[FOUND_HERE], found):
        if matches[number, ROWS] != length:
            continue
        first, same_so_far = matches[number, FIRST_LABEL], True
        for at in range(length):
            work.position[STEPS] += 1
            if variables[work.labels[first + at]] != variables[frames[at + 1, 0]]:
                same_so_far = False
                break
        if same_so_far:
            return True
    return False


@inlined
def has_room(work: Any, length: int) -> bool:
    """Whether there is room for one more match."""
    room: bool = work.position[FOUND] < len(work.matches) and work.position[USED] + length <= len(work.labels)
    return room


@inlined
def keep(tables: Any, number: int, length: int) -> None:
    """Append the match that was found. There is room for it."""
    work = tables.work
    position, frames = work.position, work.frames
    found, used = position[FOUND], position[USED]
    if not tables.rows.exact:
        for at in range(length):
            work.labels[used + at] = frames[at + 1, 0]
        position[STEPS] += length
    work.matches[found, START] = position[BEGIN] + position[AT_ROW]
    work.matches[found, PARTITION] = position[AT_PARTITION]
    work.matches[found, NUMBER] = number
    work.matches[found, FIRST_LABEL] = used
    work.matches[found, ROWS] = length
    work.matches[found, TIMED_OUT] = position[PARTIAL]
    position[FOUND], position[USED] = found + 1, used + length


@inlined
def keep_one_of_several(tables: Any) -> int:
    """Keep a match after which the search goes on for others from the same row (NO SKIP)."""
    work = tables.work
    position = work.position
    length = rows_of_match(tables)
    if not was_found(tables, length):
        if not has_room(work, length):
            return NO_ROOM_FOR_MATCH
        position[FOUND_HERE] += 1
        keep(tables, position[MATCHES_BEFORE] + position[FOUND_HERE], length)
    position[FOUND_DEPTH] = position[DEPTH]
    work.frames[position[DEPTH], 1] += 1
    return OK


@inlined
def keep_and_skip(tables: Any) -> int:
    """Keep the match that was found, and go to the row where the search for the next one begins."""
    position, skip = tables.work.position, tables.pattern.skip
    length, start = rows_of_match(tables), position[AT_ROW]
    if not has_room(tables.work, length):
        return NO_ROOM_FOR_MATCH
    position[MATCHES_BEFORE] += 1
    keep(tables, position[MATCHES_BEFORE], length)
    position[COVERED] = max(position[COVERED], start + length)
    position[DEPTH] = -1
    if skip in (TO_FIRST, TO_LAST) and position[PARTIAL] == 0:
        place = place_to_skip_to(tables, length)
        if place > 0:
            position[AT_ROW] += place
        else:
            return SKIPS_TO_OWN_START if place == 0 else NO_ROW_TO_SKIP_TO
    else:
        past_last_row = skip == PAST_LAST_ROW and position[PARTIAL] == 0
        position[AT_ROW] += max(length, 1) if past_last_row else 1
    return OK


@inlined
def place_to_skip_to(tables: Any, length: int) -> int:
    """The row of the match kept last to which AFTER MATCH SKIP goes, or -1."""
    pattern, work = tables.pattern, tables.work
    first = work.position[USED] - length
    place = -1
    for at in range(length):
        if pattern.skip_to[pattern.variables[work.labels[first + at]]] and (place < 0 or pattern.skip == TO_LAST):
            place = at
    return place


@inlined
def leave_start(work: Any) -> int:
    """Go to the next row, because no match begins in this one, or all of them have been found. Returns how many."""
    position = work.position
    start = position[AT_ROW]
    here: int = position[FOUND_HERE]
    for number in range(position[FOUND] - here, position[FOUND]):
        position[COVERED] = max(position[COVERED], start + work.matches[number, ROWS])
    work.unmatched[position[BEGIN] + start] = here == 0 and start >= position[COVERED]
    position[MATCHES_BEFORE] += here
    position[AT_ROW] += 1
    position[DEPTH] = -1
    return here


# ---------------------------------------------------------------------------------------------------- the search in partitions


@inlined
def pass_rows(tables: Any) -> None:
    """Go to the next row from which a match could be completed, or a row be reached that is not known. Bits are exact. The tables
    show this in less time than :func:`begin_search` and :func:`walk`.
    """
    pattern, work = tables.pattern, tables.work
    position, edges, start = work.position, pattern.edges, len(pattern.variables)
    knows_all, max_rows = len(work.needs) == 0, tables.future.max_rows
    while position[AT_ROW] < position[KNOWN]:
        row = position[AT_ROW]
        for edge in range(pattern.first_edge[start], pattern.first_edge[start + 1]):
            target = edges[edge, 0]
            if target == ACCEPT or work.ends[row, target] != NOWHERE:
                return
            if not knows_all and work.needs[row, target] >= min(position[KNOWN], row + max_rows):
                return
        leave_start(work)


@uncounted
def search_partition(tables: Any, progress: Any, most: int, max_steps: int) -> int:
    """Search from the position in a partition on. Returns a status of :func:`find_matches`; OK if no more can be done now."""
    work, future = tables.work, tables.future
    position = work.position
    passes = tables.rows.exact and not tables.pattern.timeouts
    while True:
        if passes and position[DEPTH] < 0:
            pass_rows(tables)
        if position[AT_ROW] >= position[SIZE]:
            return OK
        outcome = search_from_start(tables, max_steps)
        if outcome < 0 and outcome != -WAIT:
            return -outcome
        if begins_timeout(tables, outcome):
            continue
        if outcome == HOLDS and measures_wait(tables):
            outcome, position[LONGEST] = -WAIT, 0
        if outcome == -WAIT:
            withdraw(work)
            if position[LONGEST] == 0:
                position[OPEN_STEPS] += position[STEPS]
                position[DEPTH] = -1
                progress[position[AT_PARTITION], DEADLINE] = position[NEXT_BOUND]
                return OK
        goes_on = tables.pattern.skip == NO_SKIP and outcome == HOLDS and position[PARTIAL] == 0
        if not goes_on and not is_open(position) and too_many_steps(position, max_steps):
            return TOO_MANY_STEPS
        if outcome == -WAIT:
            position[DEPTH] = -1
            if not future.drop:
                return TOO_LONG
            progress[position[AT_PARTITION], DROPPED] += 1
        status, enough = OK, True
        if goes_on:
            status, enough = keep_one_of_several(tables), False
        elif outcome == HOLDS:
            status = keep_and_skip(tables)
        else:
            enough = leave_start(work) > 0
        if status != OK:
            return status
        if enough and position[USED] > most:
            return MORE


@uncounted
def open_partition(tables: Any, progress: Any) -> None:
    """Go to where the search in the current partition continues, and fill the tables of ends and needs."""
    rows, future, work = tables.rows, tables.future, tables.work
    position, partition = work.position, work.position[AT_PARTITION]
    begin = rows.offsets[partition]
    size = rows.offsets[partition + 1] - begin
    known = size if future.ended else max(size - future.lookahead, 0)
    start = progress[partition, NEXT_START]
    position[BEGIN], position[SIZE], position[KNOWN], position[FILLED] = begin, size, known, partition + 1
    position[AT_ROW], position[MATCHES_BEFORE] = start, progress[partition, MATCHES]
    position[COVERED], position[BEFORE] = progress[partition, COVERED_ROWS], progress[partition, ROWS_BEFORE]
    position[LIMIT] = 0
    fill_ends(tables.pattern, rows, begin, size, start, known, work.ends)
    if len(work.needs):
        fill_needs(tables.pattern, rows, begin, start, known, work.needs)


@entry
def find_matches(tables: Any, progress: Any, most: int, max_steps: int) -> int:
    """Search all partitions from the position of the workspace on. Matches are put into the workspace.

    :param progress: for each partition: the row, from the first one in *offsets*, where the search continues; how many matches
        were found; the end of the last row in a match; how many rows of the partition were before those in *offsets*; how many
        starts were dropped. At first zeros; is updated. A search that has not reached the last row waits for more rows.
    :param most: if the matches have more rows together, the search is interrupted
    :param max_steps: of the search for one match, if it may go back; those for many matches may take USUAL_STEPS each
    :returns: OK; NO_ROW_TO_SKIP_TO or SKIPS_TO_OWN_START: AFTER MATCH SKIP fails after the last match; TOO_LONG, see
        :class:`FutureRows`; MORE: there is more to find; ASK: the caller must decide whether the row number DEPTH of the match
        fits, and put that into ANSWER, or WAIT if rows that are still to come decide whether that matters; NO_ROOM: the arrays
        are too small for a match of so many rows; NO_ROOM_FOR_MATCH: those for matches are full; TOO_MANY_STEPS
    """
    position = tables.work.position
    while position[AT_PARTITION] < len(tables.rows.offsets) - 1:
        partition = position[AT_PARTITION]
        if position[FILLED] != partition + 1:
            open_partition(tables, progress)
        status = search_partition(tables, progress, most, max_steps)
        progress[partition, NEXT_START], progress[partition, MATCHES] = position[AT_ROW], position[MATCHES_BEFORE]
        progress[partition, COVERED_ROWS] = position[COVERED]
        if status != OK:
            return status
        position[AT_PARTITION] += 1
    return OK


# ---------------------------------------------------------------------------------------------------- values of matches


class MatchTables(NamedTuple):
    """Matches; see :class:`Workspace`, :class:`PatternTables` and :class:`RowTables`."""

    matches: Any
    labels: Any
    variables: Any
    offsets: Any


class RowPlace(NamedTuple):
    """Which row of a match is read, of those of a variable; see :class:`asterism.row_patterns.resolution.Place`."""

    last: bool
    skip: int
    final: bool
    steps: int


@entry
def rows_at_places(tables: Any, items: Any, of: Any, place: Any) -> Any:
    """For each item the row at a place of its match, or -1.

    :param items: rows (match or -1, visible rows of the match), by match and in ascending order of the visible rows
    :param of: for each variable, whether its rows are meant
    """
    matches, labels, variables, offsets = tables.matches, tables.labels, tables.variables, tables.offsets
    found = np.full(len(items), -1, np.int64)
    places = np.empty(16, np.int64)
    current, scanned, count = -1, 0, 0
    for item in range(len(items)):
        match = items[item, 0]
        if match < 0:
            continue
        if match != current:
            current, scanned, count = match, 0, 0
        visible = matches[match, ROWS] if place.final else items[item, 1]
        while scanned < visible:
            if of[variables[labels[matches[match, FIRST_LABEL] + scanned]]]:
                if count == len(places):
                    grown = np.empty(2 * count, np.int64)
                    grown[:count] = places
                    places = grown
                places[count] = scanned
                count += 1
            scanned += 1
        if place.skip >= count:
            continue
        at = places[count - 1 - place.skip] if place.last else places[place.skip]
        row = matches[match, START] + at + place.steps
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
