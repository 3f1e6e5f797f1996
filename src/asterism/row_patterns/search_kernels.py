"""The search for matches when conditions depend on the match so far: arrays in, arrays out, compiled once for all patterns.

``docs/row_pattern_search.md`` explains it (docs/decisions/0041). The search is depth-first, in order of preference. What
conditions can read of the rows taken so far is kept in stacks, one entry per row of a *group*, which is a variable, a subset, or
all rows: the places of these rows, and running counts, sums and extremes (*registers*). To go back is to shorten the stacks.

A condition is a bit per row (its conjuncts over rows near the current one), a program for a stack machine (its other conjuncts;
:mod:`asterism.matching.instructions` has the operations), or both. If neither decides, the search pauses, the caller evaluates
the condition, and the search resumes. All arrays that the search changes belong to the caller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asterism.columns.compiled import entry, uncounted
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
ANYWHERE = NOWHERE - 1  # as in kernels.py
PAST_LAST_ROW, NEXT_ROW, TO_FIRST, TO_LAST, NO_SKIP = range(5)  # the first four as in kernels.py
OK, NO_ROW_TO_SKIP_TO, SKIPS_TO_OWN_START, MORE, TOO_LONG = range(5)  # as in kernels.py
ASK, NO_ROOM, NO_ROOM_FOR_MATCH, TOO_MANY_STEPS, WAIT = range(5, 10)
START, PARTITION, NUMBER, FIRST_LABEL, ROWS, TIMED_OUT = range(6)  # columns of matches, as in kernels.py
NEXT_START, MATCHES, COVERED_ROWS, ROWS_BEFORE, DROPPED, DEADLINE = range(
    6
)  # columns of progress; five as in kernels.py

FAILS, HOLDS, UNKNOWN, SURE = 0, 1, 2, 3  # bits, and answers but for the last one
FAILED_VALUE = 2  # of a value; an error of the stack machine
(
    AT_PARTITION, AT_ROW, MATCHES_BEFORE, COVERED, BEFORE, FILLED, DEPTH, STEPS, LIMIT, UNTIL, FRONTIER, LONGEST, FOUND, USED,
    ANSWER, BEYOND, PASSED, OPEN_STEPS, COMPLETES, PARTIAL, FOUND_HERE, FOUND_DEPTH, SOME_LATE, NEXT_BOUND, POSITIONS,
) = range(25)  # fmt: skip
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
    :ivar values: slot *k* in column 2k, and whether it is there in column 2k + 1
    :ivar times: in order, ascending or descending in each partition
    """

    offsets: Any
    bits: Any
    values: Any
    times: Any


class FutureRows(NamedTuple):
    """The limits of rows to come, see :func:`asterism.row_patterns.kernels.find_matches`."""

    ended: bool
    horizon: int
    lookahead: int
    trailing: int
    max_rows: int
    drop: bool


class Workspace(NamedTuple):
    """The state that the search changes.

    :ivar position: where the search is: partition, first row of the match, number of matches before it, rows covered by
        matches, rows of the partition that are gone, the partition (+ 1) to which *ends* belong, the number of rows
        taken (-1 before a search), steps of this search, the first row that is too late, the same if more rows may come, the
        first row that is not known (NOWHERE if it does not matter), whether that is so because of max_rows, the numbers of
        matches and labels found, the answer (-1: none), the steps of all searches beyond the usual ones, the edge (+ 1) whose
        row does not satisfy the variable that it must not, the steps of searches that wait for more rows, whether the automaton
        accepts without the variables in *impossible*, whether a match that times out is searched, how many matches were found
        from the first row (NO_SKIP), how many rows the last of them had where the search went on: up to there, there is no
        failure; whether the next row is too late for some variable, the smallest bound of its time that has not passed
    :ivar ends: see :func:`fill_ends`
    :ivar needs: see :func:`fill_needs`
    :ivar frames: for each row taken, and before the first one: the state, and the edge to try next
    :ivar counts: of the rows of each group
    :ivar places: groups x rows: which rows of the match they are
    :ivar sums: registers x (rows + 1) x (value, number of values; negative if it does not fit)
    :ivar memory: failures, in places that depend on their contents
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


# ---------------------------------------------------------------------------------------------------- the match so far


@uncounted
def take(conditions: Any, rows: Any, work: Any, variables: Any, state: int, depth: int, absolute: int) -> None:
    """Take a row, which is number *depth* of the match, in a state."""
    work.frames[depth + 1, 0] = state
    variable = variables[state]
    for number in range(len(conditions.registers)):
        group = conditions.registers[number, R_GROUP]
        if conditions.members[group, variable]:
            add(conditions.registers, number, rows.values, work.sums, work.counts[group], absolute)
    for group in range(len(conditions.members)):
        if conditions.members[group, variable]:
            work.places[group, work.counts[group]] = depth
            work.counts[group] += 1


@uncounted
def give_back(conditions: Any, work: Any, variable: int) -> None:
    """Undo :func:`take`."""
    for group in range(len(conditions.members)):
        work.counts[group] -= conditions.members[group, variable]


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
def operand(
    conditions: Any, rows: Any, work: Any, variables: Any, at: int, begin: int, size: int, depth: int, top: int
) -> None:
    """Push the operand of an AGG operation. *depth* is the number of the row of the match that is tested."""
    operands, number, slot = conditions.operands, conditions.operations[at, 3], conditions.operations[at, 4]
    kind, group = operands[number, KIND], operands[number, GROUP]
    start = work.position[AT_ROW]
    work.stack[STATES, top], work.stack[VALUES, top] = VALID, 0
    if kind == MATCH_NUMBER:
        work.stack[VALUES, top] = work.position[MATCHES_BEFORE] + 1
        return
    count = work.counts[group]
    if kind == COUNT_OF_GROUP:
        work.stack[VALUES, top] = count
        return
    if kind in (VALUE_OF_ROW, LABEL_OF_ROW):
        skip = operands[number, SKIP]
        if skip >= count:
            work.stack[STATES, top] = NULL_VALUE
            return
        place = work.places[group, count - 1 - skip if operands[number, FROM_LAST] else skip]
        place += operands[number, DISTANCE]
        if kind == LABEL_OF_ROW:
            if 0 <= place <= depth:
                work.stack[VALUES, top] = conditions.labels[variables[work.frames[place + 1, 0]]]
            else:
                work.stack[STATES, top] = NULL_VALUE
        elif 0 <= start + place < size:
            row = begin + start + place
            work.stack[VALUES, top], work.stack[STATES, top] = (
                rows.values[row, 2 * slot],
                rows.values[row, 2 * slot + 1],
            )
        else:
            work.stack[STATES, top] = NULL_VALUE
        return
    register = operands[number, REGISTER]
    value, present = work.sums[register, count, 0], work.sums[register, count, 1]
    if present < 0:
        work.stack[STATES, top] = FAILED_VALUE
    elif kind == REGISTER_COUNT:
        work.stack[VALUES, top] = present
    elif present == 0:
        work.stack[STATES, top] = NULL_VALUE
    elif kind == REGISTER_ROW:
        work.stack[VALUES, top], work.stack[STATES, top] = (
            rows.values[value, 2 * slot],
            rows.values[value, 2 * slot + 1],
        )
    elif kind == REGISTER_MEAN:
        work.stack[VALUES, top] = bits_of(double(value) / present)
    else:
        work.stack[VALUES, top] = value


@uncounted
def run(
    conditions: Any, rows: Any, work: Any, variables: Any, first: int, last: int, begin: int, size: int, depth: int
) -> int:
    """HOLDS if the program is TRUE for the row number *depth* of the match, FAILS if it is FALSE or NULL, UNKNOWN if it
    cannot decide.
    """
    operations, stack = conditions.operations, work.stack
    row = begin + work.position[AT_ROW] + depth
    n = 0  # the number of values on the stack
    for at in range(first, last):
        op = operations[at, 0]
        if op == SLOT:
            k = 2 * operations[at, 1]
            stack[VALUES, n], stack[STATES, n] = rows.values[row, k], rows.values[row, k + 1]
            n += 1
        elif op == AGG:
            operand(conditions, rows, work, variables, at, begin, size, depth, n)
            n += 1
        else:
            n = calculate(operations, at, stack, n)
    if stack[STATES, 0] > NULL_VALUE:
        return UNKNOWN
    return HOLDS if (stack[STATES, 0] == VALID and stack[VALUES, 0] == 1) else FAILS


@uncounted
def verdict(
    conditions: Any, rows: Any, work: Any, variables: Any, variable: int, begin: int, size: int, depth: int
) -> int:
    """Whether the row that was taken last satisfies its condition; UNKNOWN: the caller must decide."""
    bit = rows.bits[begin + work.position[AT_ROW] + depth, variable]
    if bit == UNKNOWN:
        return UNKNOWN
    if bit == SURE:
        return HOLDS
    first, last = conditions.programs[variable, 0], conditions.programs[variable, 1]
    if first < last:
        work.position[STEPS] += last - first
        found = run(conditions, rows, work, variables, first, last, begin, size, depth)
        if found != HOLDS:
            return found
    return UNKNOWN if conditions.asks[variable] else HOLDS


# ---------------------------------------------------------------------------------------------------- failures


@uncounted
def make_key(conditions: Any, work: Any, variables: Any, state: int, row: int) -> Any:
    """Put what a failure in *state* after *row* depends on into ``work.key``. Its place in the memory, or -1 if it has none."""
    key = work.key
    key[0], key[1], key[2] = 2 * (state + 1) + work.position[PARTIAL], row, work.position[UNTIL]
    n = MEMORY_COLUMNS
    for at in range(conditions.first_key[state], conditions.first_key[state + 1]):
        kind, which, offset = conditions.keys[at, 0], conditions.keys[at, 1], conditions.keys[at, 2]
        if kind == K_MATCH_NUMBER:
            key[n] = work.position[MATCHES_BEFORE]
        elif kind == K_REGISTER:
            count = work.counts[conditions.registers[which, R_GROUP]]
            if work.sums[which, count, 1] < 0:
                return np.int64(-1)
            key[n], key[n + 1] = work.sums[which, count, 0], work.sums[which, count, 1]
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
                    key[n] = work.position[AT_ROW] + place
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


# ---------------------------------------------------------------------------------------------------- the search


@uncounted
def allowed(guards: Any, at: Any, count: Any) -> Any:
    """Whether an edge can be followed when *at* rows of a partition of *count* rows lie before the next one."""
    return not ((guards & AT_START and at != 0) or (guards & AT_END and at != count))


@uncounted
def fill_ends(
    bits: Any, begin: Any, first: Any, known: Any, count: Any, variables: Any, edges: Any, first_edge: Any, ends: Any
) -> None:
    """``ends[p, s]`` is the number of rows before the end of the earliest match that takes row *p* in state *s*, if all
    conditions that are not bits hold.

    :param first, known: these rows, those before *known*, are filled; no path leads further
    """
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
                        end = ends[row + 1, target] if row + 1 < known else NOWHERE
                    earliest = min(earliest, end)
            ends[row, state] = earliest


@uncounted
def fill_needs(
    bits: Any, begin: Any, first: Any, known: Any, variables: Any, edges: Any, first_edge: Any, needs: Any
) -> None:
    """``needs[p, s]`` is the last row that a path with row *p* in state *s* can reach, whatever that row is; or -1."""
    for row in range(known - 1, first - 1, -1):
        for state in range(len(variables)):
            last = -1
            if bits[begin + row, variables[state]] != FAILS:
                for edge in range(first_edge[state], first_edge[state + 1]):
                    target = edges[edge, 0]
                    if target != ACCEPT and edges[edge, 1] == 0:
                        last = max(last, row + 1)
                        if row + 1 < known:
                            last = max(last, needs[row + 1, target])
            needs[row, state] = last


@uncounted
def tested(
    conditions: Any, rows: Any, work: Any, variables: Any, state: int, begin: int, size: int, depth: int, absolute: int
) -> int:
    """Take a row in a state, and find out whether it satisfies the condition: HOLDS, FAILS, or a status of
    :func:`find_matches` in negative, after which this is called again.
    """
    found: int = work.position[ANSWER]
    work.position[ANSWER] = -1
    if found == WAIT:
        return -WAIT
    if found < 0:
        if depth + 2 >= len(work.frames):
            return -NO_ROOM
        take(conditions, rows, work, variables, state, depth, absolute)
        found = verdict(conditions, rows, work, variables, variables[state], begin, size, depth)
        if found == UNKNOWN:
            return -ASK
    return found


@uncounted
def is_open(position: Any) -> Any:
    """Whether the search may need rows that have not arrived yet."""
    return position[FRONTIER] != NOWHERE and position[LONGEST] == 0


@uncounted
def find_late(
    pattern: Any, conditions: Any, rows: Any, work: Any, state: int, begin: int, size: int, depth: int, time: int
) -> None:
    """Find out for which variables the next row, at *time* or later, is too late, and which states can still lead to a match."""
    bounds, stack, position = conditions.bounds, work.stack, work.position
    for number in range(len(bounds)):
        first, last = bounds[number, B_FIRST], bounds[number, B_LAST]
        position[STEPS] += last - first
        run(conditions, rows, work, pattern.variables, first, last, begin, size, depth)
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
    while are_moved(pattern, conditions, work, state):
        mark_late(bounds, work.passed, work.late_later)
    variables, edges, first_edge, leads_on = pattern.variables, pattern.edges, pattern.first_edge, work.leads_on
    leads_on[:] = False
    is_changed = True
    while is_changed:
        is_changed = False
        position[STEPS] += len(edges)
        for before in range(len(variables) - 1, -1, -1):
            for edge in range(first_edge[before], first_edge[before + 1]):
                target = edges[edge, 0]
                if target == ACCEPT or (leads_on[target] and not work.late_later[variables[target]]):
                    is_changed = is_changed or not leads_on[before]
                    leads_on[before] = True
                    break


@uncounted
def mark_late(bounds: Any, passed: Any, late: Any) -> None:
    """The variables of the bounds that have passed."""
    late[:] = False
    for number in range(len(bounds)):
        if passed[number]:
            late[bounds[number, B_VARIABLE]] = True


@uncounted
def are_moved(pattern: Any, conditions: Any, work: Any, state: int) -> bool:
    """Whether rows that can be taken from a state on move bounds that have passed; these are not passed any more."""
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
def times_out(pattern: Any, work: Any, state: int, at: int, count: int) -> bool:
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
def none_comes(pattern: Any, work: Any, edge: int) -> bool:
    """Whether no row that comes satisfies a variable that the next row must not satisfy."""
    for which in range(1 + pattern.also.shape[1]):
        unless = pattern.edges[edge, 2] if which == 0 else pattern.also[edge, which - 1]
        if unless >= 0 and not (work.position[SOME_LATE] == 1 and work.late[unless]):
            return False
    return True


@uncounted
def search(
    pattern: Any, conditions: Any, rows: Any, work: Any, begin: int, size: int, future: Any, max_steps: int
) -> int:  # fmt: skip
    """The preferred match from the current start: HOLDS with its rows in ``work.frames`` and its length in DEPTH, FAILS; or a
    status of :func:`find_matches` in negative.

    How many steps a search takes until it waits for more rows depends on how many rows are known, so it may not fail for that:
    it waits. The search that is made when all rows are known decides.
    """
    position, frames, ends, needs = work.position, work.frames, work.ends, work.needs
    variables, edges, first_edge = pattern.variables, pattern.edges, pattern.first_edge
    start, until, frontier, before = position[AT_ROW], position[UNTIL], position[FRONTIER], position[BEFORE]
    partial, several = position[PARTIAL] == 1, 1 + pattern.also.shape[1]
    bounded = len(conditions.bounds) > 0
    while True:
        depth = position[DEPTH]
        state, row = frames[depth, 0], start + depth
        went_on = False
        # While a row is tested, it is taken already.
        if bounded and position[ANSWER] < 0:
            position[SOME_LATE], position[NEXT_BOUND] = 0, NO_BOUND
            if row < until:
                time = rows.times[begin + row] if row < size else future.horizon + 1
                find_late(pattern, conditions, rows, work, state, begin, size, depth, time)
                if (
                    partial
                    and position[SOME_LATE] == 1
                    and times_out(pattern, work, state, row + before, size + before)
                ):
                    return HOLDS
        for edge in range(frames[depth, 1], first_edge[state + 1]):
            position[STEPS] += 1
            if position[STEPS] > max_steps:
                return -WAIT if is_open(position) else -TOO_MANY_STEPS
            if not allowed(edges[edge, 1], row + before, size + before):
                continue
            target = edges[edge, 0]
            if target == ACCEPT:
                if partial:
                    continue
                at_deadline = edges[edge, 1] & AT_DEADLINE != 0
                if row >= frontier and (at_deadline or not none_comes(pattern, work, edge)):
                    return -WAIT
                if at_deadline and row < until:
                    continue
            elif position[SOME_LATE] == 1 and (work.late[variables[target]] or not work.leads_on[target]):
                continue
            elif row >= frontier:
                return -WAIT
            elif partial:
                if row >= until:  # all rows are taken, and this one would have gone on
                    return HOLDS
                if needs[row, target] < until and (not bounded or rows.bits[begin + row, variables[target]] == FAILS):
                    continue
            elif row >= until or (ends[row, target] > until and (frontier == NOWHERE or needs[row, target] < frontier)):
                continue
            frames[depth, 1] = edge  # if there is no room for the match, it is found again
            is_blocked = False
            for which in range(several):
                unless = edges[edge, 2] if which == 0 else pattern.also[edge, which - 1]
                if unless < 0 or row >= until or row >= frontier:
                    break
                passed = position[PASSED] - (edge + 1) * (several + 1)
                if rows.bits[begin + row, unless] == FAILS or which < passed <= several:
                    continue
                other = pattern.state_of[unless]
                found = tested(conditions, rows, work, variables, other, begin, size, depth, begin + row)
                if found < 0:
                    return found
                give_back(conditions, work, unless)
                if found == HOLDS:
                    is_blocked = True
                    break
                position[PASSED] = (edge + 1) * (several + 1) + which + 1
            if is_blocked:
                position[PASSED] = 0
                continue
            if target == ACCEPT:
                position[PASSED] = 0
                return HOLDS if future.ended or not edges[edge, 1] & AT_END else -WAIT
            variable = variables[target]
            found = tested(conditions, rows, work, variables, target, begin, size, depth, begin + row)
            if found < 0:
                return found
            position[PASSED] = 0
            if found == HOLDS and conditions.remembers[target]:
                place = make_key(conditions, work, variables, target, begin + row)
                if place >= 0 and is_known(work, place):
                    found = FAILS
            if found == HOLDS:
                frames[depth, 1] = edge + 1
                frames[depth + 1, 1] = first_edge[target]
                position[DEPTH] = depth + 1
                went_on = True
                break
            give_back(conditions, work, variable)
        if went_on:
            continue
        if depth == 0:
            return FAILS
        if depth <= position[FOUND_DEPTH]:
            position[FOUND_DEPTH] = depth - 1
        elif conditions.remembers[state]:
            place = make_key(conditions, work, variables, state, begin + row - 1)
            if place >= 0:
                for column in range(len(work.key)):
                    work.memory[place, column] = work.key[column]
        give_back(conditions, work, variables[state])
        position[DEPTH] = depth - 1


@uncounted
def begin_search(pattern: Any, rows: Any, future: Any, work: Any, begin: int, size: int, known: int) -> None:
    """Prepare the search from the current start."""
    position, times, within = work.position, rows.times, pattern.within
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
    at_first_row(pattern, work)


@uncounted
def at_first_row(pattern: Any, work: Any) -> None:
    """No row is taken yet."""
    work.position[DEPTH] = 0
    work.frames[0, 0], work.frames[0, 1] = len(pattern.variables), pattern.first_edge[len(pattern.variables)]
    for group in range(len(work.counts)):
        work.counts[group] = 0


@uncounted
def can_complete(pattern: Any, conditions: Any, rows: Any, work: Any, begin: int, size: int) -> bool:
    """Whether a match may begin at the current start, judged by its first row and its number alone."""
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
            take(conditions, rows, work, variables, first_state, 0, begin + position[AT_ROW])
            is_taken = True
        position[STEPS] += last - first
        fails = run(conditions, rows, work, variables, first, last, begin, size, 0) == FAILS
        changed = changed or work.impossible[variable] != fails
        work.impossible[variable] = fails
    if is_taken:
        give_back(conditions, work, variables[first_state])
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


@uncounted
def rows_of_match(pattern: Any, work: Any) -> int:
    """How many rows the match has that was found. Those at its end that are not in the output do not belong to a match that times
    out, or of which a row does not come, except for the first row.
    """
    frames, length = work.frames, work.position[DEPTH]
    edge = frames[length, 1]
    at_deadline = pattern.edges[edge, 0] == ACCEPT and pattern.edges[edge, 1] & AT_DEADLINE != 0
    if work.position[PARTIAL] == 1 or at_deadline:
        while length > 1 and pattern.excluded[frames[length, 0]]:
            length -= 1
    return int(length)


@uncounted
def was_found(pattern: Any, work: Any, length: int) -> bool:
    """Whether a match from the same first row has the same variables."""
    variables, frames, matches = pattern.variables, work.frames, work.matches
    found = work.position[FOUND]
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


@uncounted
def keep(work: Any, begin: int, partition: int, number: int, length: int) -> None:
    """Append the match that was found. There is room for it."""
    position, frames = work.position, work.frames
    found, used = position[FOUND], position[USED]
    for at in range(length):
        work.labels[used + at] = frames[at + 1, 0]
    work.matches[found, START] = begin + position[AT_ROW]
    work.matches[found, PARTITION] = partition
    work.matches[found, NUMBER] = number
    work.matches[found, FIRST_LABEL] = used
    work.matches[found, ROWS] = length
    work.matches[found, TIMED_OUT] = position[PARTIAL]
    position[FOUND], position[USED] = found + 1, used + length
    position[STEPS] += length


@entry
def find_matches(
    pattern: Any, conditions: Any, rows: Any, future: Any, work: Any, progress: Any, most: int, max_steps: int
) -> int:
    """Search all partitions from the position of *work* on. Matches are put into *work*.

    :param progress: see :func:`asterism.row_patterns.kernels.find_matches`
    :param most: if the matches have more rows together, the search is interrupted
    :param max_steps: of the search for one match; those for many matches may take USUAL_STEPS each
    :returns: OK; NO_ROW_TO_SKIP_TO or SKIPS_TO_OWN_START: AFTER MATCH SKIP fails after the last match; TOO_LONG, likewise;
        MORE: there is more to find; ASK: the caller must decide whether the row number DEPTH of the match fits, and put that
        into ANSWER, or WAIT if rows that are still to come decide whether that matters; NO_ROOM: the arrays are too small for
        a match of so many rows; NO_ROOM_FOR_MATCH: those for matches are full; TOO_MANY_STEPS
    """
    position, frames, variables, skip = work.position, work.frames, pattern.variables, pattern.skip
    while position[AT_PARTITION] < len(rows.offsets) - 1:
        partition = position[AT_PARTITION]
        begin = rows.offsets[partition]
        size = rows.offsets[partition + 1] - begin
        known = size if future.ended else max(size - future.lookahead, 0)
        if position[FILLED] != partition + 1:
            position[FILLED] = partition + 1
            start = progress[partition, NEXT_START]
            position[AT_ROW], position[MATCHES_BEFORE] = start, progress[partition, MATCHES]
            position[COVERED], position[BEFORE] = progress[partition, COVERED_ROWS], progress[partition, ROWS_BEFORE]
            position[LIMIT] = 0
            edges, first_edge = pattern.edges, pattern.first_edge
            fill_ends(rows.bits, begin, start, known, size, variables, edges, first_edge, work.ends)
            if len(work.needs):
                fill_needs(rows.bits, begin, start, known, variables, edges, first_edge, work.needs)
        waits = False
        status = OK
        while position[AT_ROW] < size and not waits and status == OK:
            start = position[AT_ROW]
            is_possible = True
            if position[DEPTH] < 0:
                begin_search(pattern, rows, future, work, begin, size, known)
                # What times out need not be able to complete.
                is_possible = pattern.timeouts or can_complete(pattern, conditions, rows, work, begin, size)
            # Whatever the number of keys, the searches of a call that only wait are limited together.
            many = position[OPEN_STEPS] > UNUSUAL_SEARCHES * max_steps and is_open(position)
            outcome = FAILS
            if is_possible:
                outcome = search(
                    pattern, conditions, rows, work, begin, size, future, USUAL_STEPS if many else max_steps
                )
            if outcome < 0 and outcome != -WAIT:
                return -outcome
            # Where conditions bound times, a match can time out before all rows are known that WITHIN allows.
            decided = position[FRONTIER] == NOWHERE or len(conditions.bounds) > 0
            if outcome == FAILS and pattern.timeouts and decided and position[PARTIAL] + position[FOUND_HERE] == 0:
                position[PARTIAL] = 1
                at_first_row(pattern, work)
                continue
            length = rows_of_match(pattern, work) if outcome == HOLDS else 0
            too_long = position[LONGEST] == 1
            if (
                outcome == HOLDS
                and not future.ended
                and future.trailing
                and start + length - 1 + future.trailing >= size
            ):
                outcome, too_long = -WAIT, False
            if outcome == -WAIT:  # the matches from this row are found again
                position[FOUND] -= position[FOUND_HERE]
                if position[FOUND_HERE] > 0:
                    position[USED] = work.matches[position[FOUND], FIRST_LABEL]
                    position[FOUND_HERE] = 0
            if outcome == -WAIT and not too_long:
                position[OPEN_STEPS] += position[STEPS]
                position[DEPTH] = -1
                progress[partition, DEADLINE] = position[NEXT_BOUND]
                waits = True
                continue
            goes_on = skip == NO_SKIP and outcome == HOLDS and position[PARTIAL] == 0
            if not is_open(position) and not goes_on:
                position[BEYOND] = max(position[BEYOND] + position[STEPS] - USUAL_STEPS, 0)
                position[STEPS] = USUAL_STEPS  # if there is no room for the match, this is done again
                if position[BEYOND] > UNUSUAL_SEARCHES * max_steps:
                    return TOO_MANY_STEPS
            if outcome == -WAIT:
                position[DEPTH] = -1
                if not future.drop:
                    status = TOO_LONG
                    continue
                progress[partition, DROPPED] += 1
                outcome = FAILS
            if outcome == FAILS:
                here = position[FOUND_HERE]
                for number in range(position[FOUND] - here, position[FOUND]):
                    position[COVERED] = max(position[COVERED], start + work.matches[number, ROWS])
                work.unmatched[begin + start] = here == 0 and start >= position[COVERED]
                position[MATCHES_BEFORE] += here
                position[AT_ROW] += 1
                position[DEPTH] = -1
                if here > 0 and position[USED] > most:
                    status = MORE
                continue
            if goes_on:
                if not was_found(pattern, work, length):
                    if position[FOUND] == len(work.matches) or position[USED] + length > len(work.labels):
                        return NO_ROOM_FOR_MATCH
                    position[FOUND_HERE] += 1
                    keep(work, begin, partition, position[MATCHES_BEFORE] + position[FOUND_HERE], length)
                position[FOUND_DEPTH] = position[DEPTH]
                frames[position[DEPTH], 1] += 1
                continue
            used = position[USED]
            if position[FOUND] == len(work.matches) or used + length > len(work.labels):
                return NO_ROOM_FOR_MATCH
            position[MATCHES_BEFORE] += 1
            keep(work, begin, partition, position[MATCHES_BEFORE], length)
            position[COVERED] = max(position[COVERED], start + length)
            position[DEPTH] = -1
            if position[PARTIAL] == 1 or skip == NO_SKIP:
                position[AT_ROW] += 1
            elif skip == PAST_LAST_ROW:
                position[AT_ROW] = max(start + length, start + 1)
            elif skip == NEXT_ROW:
                position[AT_ROW] += 1
            else:
                place = -1
                for at in range(length):
                    if pattern.skip_to[variables[work.labels[used + at]]] and (place < 0 or skip == TO_LAST):
                        place = at
                if place < 0:
                    status = NO_ROW_TO_SKIP_TO
                elif place == 0:
                    status = SKIPS_TO_OWN_START
                position[AT_ROW] += place
            if status == OK and position[USED] > most:
                status = MORE
        progress[partition, NEXT_START], progress[partition, MATCHES] = position[AT_ROW], position[MATCHES_BEFORE]
        progress[partition, COVERED_ROWS] = position[COVERED]
        if status != OK:
            return status
        position[AT_PARTITION] += 1
    return OK
