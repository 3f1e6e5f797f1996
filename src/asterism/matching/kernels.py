"""The inner loop of the matching engine: arrays in, arrays out, compiled once per machine for all patterns.

:mod:`asterism.patterns.automaton` defines the transitions of a partial match; this module defines their order.
:mod:`asterism.matching.tables` and :mod:`asterism.matching.linking` make the tables; :mod:`asterism.matching.matcher` calls
:func:`advance_keys`.

* *Events* are numbered by position in a pool: first those kept in state, then the new ones, by key and time. So the number of
  an event reflects the processing order, and partial matches are ordered by the number of their first event.
* A *partial match* is a row (first event, node, state). The first event of the start state is NO_EVENT, so that it sorts
  last.
* A *node* is a row (event, stage, parent). Partial matches with a common prefix share its nodes.
* A *finished* match that waits for its emission is a row (first event, node, time of its completion).
* Rows of both kinds are kept in binary heaps on their first column, which behave like ``java.util.PriorityQueue``, including
  ties: with a skip strategy, ties decide which match survives, and Flink's results are the specification. The heap of the partial
  matches is always in order: each event goes through them in this order, and adds what they become. So the start state is the
  last one, and the partial matches whose window ends next are the first ones. An event that matters to none of them visits the
  start state alone (:func:`step`), and :func:`expire` visits those that end.

*Guards* decide which edges an event can follow. Most test only condition bits, which are computed for the whole batch in
advance, and take one comparison (:func:`follow`). The others are branching programs (:func:`holds`) that evaluate conditions
in the order in which they were written, as far as they matter. A condition is a bit, a program for a stack machine
(:func:`run_program`, with the functions of :mod:`asterism.expressions.kernels`), or both. The program may call a Python function
through :mod:`asterism.matching.python_conditions`.

What the stack machine cannot compute is *asked* of :mod:`asterism.matching.asked_conditions` (:func:`ask`). If an answer is not
known yet, the key stops before the event (ASKED), after it has looked for further questions of this event and, with
presumed answers, of the next ones. The caller computes all answers together, and the keys that stopped go on.

See docs/decisions/0004, 0096 and 0113.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from asterism.columns.compiled import compiled, entry, inlined, uncounted
from asterism.matching.asked_conditions import ENOUGH, FIRST_FAILURE, NULL_ANSWER, PRESUMED_TRUE
from asterism.matching.instructions import Func, Number, Op
from asterism.matching.key_rows import KeyRows
from asterism.matching.stack_machine import (
    NULL_VALUE,
    OVERFLOW,
    STATES,
    VALID,
    VALUES,
    bits_of,
    calculate,
    carry,
    double,
    less,
    mean,
    product_fits,
    wrapped,
)
from asterism.patterns.automaton import Action, NfaStateKind
from asterism.patterns.sequence import SkipKind

NO_EVENT = 2**62
NEVER = 2**63 - 1
NO_ADVANCE = -(2**63)
COUNTS_OF_PART = 6
"""The number of numbers with which a part begins, see :func:`divide`."""
END_OF_TIME = 2**63 - 1
BITS = 63  # condition bits per word; the sign bit of a mask of relevant conditions means "always"

TAKE, IGNORE, PROCEED = int(Action.TAKE), int(Action.IGNORE), int(Action.PROCEED)
START, PENDING, STOP, FINAL, AT_LAST = (
    int(NfaStateKind.START),
    int(NfaStateKind.PENDING),
    int(NfaStateKind.STOP),
    int(NfaStateKind.FINAL),
    int(NfaStateKind.LAST),
)
_SKIPS = list(SkipKind)
NO_SKIP, SKIP_TO_NEXT, SKIP_PAST_LAST = (
    _SKIPS.index(SkipKind.NO_SKIP),
    _SKIPS.index(SkipKind.SKIP_TO_NEXT),
    _SKIPS.index(SkipKind.SKIP_PAST_LAST_EVENT),
)
SKIP_TO_FIRST = _SKIPS.index(SkipKind.SKIP_TO_FIRST)
FIRST_MATCH_ONLY = _SKIPS.index(SkipKind.FIRST_MATCH_ONLY)

HOLDS, FAILS = -1, -2
"""The ends of a guard."""

OK, NO_ROOM = 0, 1
PYTHON_FAILED, SKIP_MISSED, SKIP_TO_OWN_FIRST, TOO_MANY_EDGES, TOO_MANY_RUNS, TOO_MUCH_WORK = range(3, 9)
TOO_MANY_HELD, SLICE_FULL, ASKED = 9, 10, 12
"""Error codes, beside those of the stack machine; NO_ROOM, SLICE_FULL and ASKED are handled in this module."""
MAX_VISITS = 1_000_000
"""The maximum number of states that one event may visit for one partial match. More are reached only by combinations of
optional stages.
"""
UNLIMITED = 2**62
MADE = 50
"""The steps that a new partial match, node or match adds to the work of an event. A step is a visited state or edge, an
operation of a program, or an event of a partial match that an aggregate or a result reads."""

# numba compares against plain integers faster than against enum members, and caches better
SLOT, AGG, PYTHON, ASK, AND = int(Op.SLOT), int(Op.AGG), int(Op.PYTHON), int(Op.ASK), int(Op.AND)
EVERY_STAGE = -1
"""The stage of an aggregate over all events of a match; a smaller number n is the set of the stages in the bits of -2 - n."""
FIRST, LAST, SUM, COUNT, AVG, MIN, MAX = (int(func) for func in Func)
DOUBLE, DECIMAL = int(Number.DOUBLE), int(Number.DECIMAL)


class Tables(NamedTuple):
    """Compiled patterns as arrays of 64-bit integers, one row per item. Edges are those of
    :class:`asterism.patterns.automaton.Nfa`. States, guards, conditions and operations are numbered across all patterns;
    stages, bits and events are not.
    """

    states: Any
    """kind; gap (microseconds, 0: none); relevant: a mask of the conditions of which an event must satisfy one to matter to the
    state (negative: every event matters); first edge; end of the edges; 1 if all edges reachable over PROCEED edges are
    SIMPLE; the number of IGNORE edges after which a partial match is the same as before
    (:func:`asterism.patterns.automaton.ignored_edges`)
    """
    edges: Any
    """action; target; first row of its guard (a row of guards, or HOLDS); stage of its source state; gap (0: none); for
    guards that only require some condition bits to be set and others to be unset: the mask of these bits, and their values;
    SIMPLE: 1 for such a guard
    """
    guards: Any
    """condition; next row if it holds; next row if it does not; HOLDS and FAILS in place of a row end the guard"""
    conditions: Any
    """bit (-1: none); first operation of its program; end of its program (equal: no program)"""
    ops: Any
    """operation (asterism.matching.instructions.Op); constant, slot, offset of an aggregate, or number of the Python
    condition; for aggregates: function, stage, slot (-1: none), its Number; for PYTHON: address of the C
    function; for ASK: likewise, the number of its operands, and AND or OR if it is the right operand of such an operation; for
    IN: the number of rows of its table, whether it has a NULL, whether it is floating, the distance to the table in rows
    """
    automata: Any
    """one row per pattern: first state, which is a final one; start state; window (microseconds, 0: none); skip strategy; the
    stage that the strategy names (-1: none); 1 if a match without an event of that stage is an error; maximum number of
    partial matches of a key (0: no maximum); maximum number of steps of an event; maximum number of finished matches that
    wait for their emission; the first and last row of its preferred stages
    """
    preferred: Any
    """stage: of the matches that begin with the same event, the one with most events in these stages, compared from the first
    stage on, discards the others
    """
    flink: bool
    drop: bool  # at the limit of partial matches, drop those that began last; otherwise raise an error


class Transitions(NamedTuple):
    """The tables that determine where an event leads; each array that is passed to a function takes time."""

    states: Any
    edges: Any
    guards: Any
    conditions: Any
    ops: Any


class Events(NamedTuple):
    """The pool of events."""

    times: Any  # microseconds
    bits: Any  # of the conditions that an event satisfies, a row of words per event
    values: Any  # of the slots, a row per event


class Keys(NamedTuple):
    """The work for each key, and its results."""

    automaton: Any  # the number of its pattern
    event_at: Any  # where its new events begin, which are sorted by time; followed by the end of the last key
    horizon: Any  # the time to which it advances after its events (NO_ADVANCE: not beyond its events)
    next_deadline: Any  # output: its next deadline
    failures: Any  # output: a row per pattern
    asked_at: Any  # in and out: the event before which it stopped for an answer; -1: it did not
    asked_began: Any  # its BEGAN


class SliceCall(NamedTuple):
    """A call of :func:`advance_keys`."""

    rows: KeyRows
    begins_at: Any  # resume at its beginning
    resume: Any  # output
    most: Any  # matches, timed-out partial matches and nodes, after which it ends
    go_on: Any  # after a failure
    again: Any  # only the keys that stopped for an answer
    ahead: Any  # how many events to look ahead for further questions


class Visit(NamedTuple):
    """An event for a partial match, see :func:`follow`."""

    state: int
    event: int
    node: int
    since: int
    only_proceed: bool


class Turn(NamedTuple):
    """The work for one key in a slice."""

    key: int
    begin: int  # its first event
    end: int
    until: int  # the time to which it advances, see Keys.horizon
    began: int  # see RESUME_BEGAN


class Matches(NamedTuple):
    """The partial and the finished matches of the current key."""

    heaps: Any
    count: Any  # their sizes, and all other counters
    nodes: Any  # of all keys


class Buffers(NamedTuple):
    """Arrays that are filled; see NO_ROOM."""

    out: Any  # matches of all keys
    lost: Any  # timed-out partial matches of all keys
    timers: Any  # of the current key
    work: Any  # rows: VALUES, STATES, VISIT, FOLLOW, BUDGET


KIND, GAP, RELEVANT, FIRST_EDGE, END_EDGE, PLAIN, IGNORED, PROCEEDS = range(8)  # columns of states
ACTION, TARGET, GUARD, STAGE, EDGE_GAP, CARE, WANT, SIMPLE = range(8)  # columns of edges
FIRST_STATE, START_STATE, WINDOW, SKIP, SKIP_STAGE, THROW_ON_MISS, MAX_RUNS, MAX_WORK, MAX_HELD = range(9)
FIRST_PREFERRED, END_PREFERRED = 9, 10
"""Columns of automata."""
STACK_SIZE = 80
# rows of the scratch array: the stack (VALUES, STATES), states to visit, edges to follow, and the number of steps left for the
# current event, followed by whether an answer is missing, and whether the search looks ahead
VISIT, FOLLOW, BUDGET = 2, 3, 4  # after those of the stack
MISSING, AHEAD = 1, 2  # columns of BUDGET
KNOWN, ANSWER = 3, 4  # also of BUDGET: the last condition whose program was run for the current event and partial match
FAILED_AT, FAILED_HOW, FAILED_KEY, FAILED_STATE = range(4)
"""Columns of failures, one row per pattern: time, error code (OK: no failure), key, state (-1: none)."""
RESUME_KEY, RESUME_EVENT, RESUME_BEGAN, RESUME_AGAIN, RESUME_AHEAD = range(5)
"""Where the next call continues: the key, its next event, and its BEGAN (-1: this key was not started). Whether only the keys
that stopped for an answer continue, and how many events they look ahead.
"""


# ------------------------------------------------------------------------------------------------ heaps
#
# The heaps of the current key are planes of one array, *heaps*; *count* holds their sizes and all other counters.
# Arrays are never replaced within a key because numba counts references at every join of two branches. If there is not enough
# room, the key is restarted with larger arrays (NO_ROOM).

DONE, WAITING = 2, 3  # planes; planes 0 and 1 alternate between the partial matches and those made by the current event
N_RUNS, N_NEW, N_DONE, N_WAITING, N_NODES, N_OUT, N_LOST, N_TIMERS = range(8)
RUNS, BEGAN, EARLIEST, RELEVANT_MASK, DROPPED, TIME, STATE, EVENT, SHORT = range(8, 17)
FIRST_RUN, BEGUN_MASK, IN_ORDER, STALE, COUNTS = range(17, 22)
"""Indexes of *count*: sizes; the plane of the partial matches; whether one began in this round; the earliest deadline; the
mask of their relevant conditions; the number of partial matches dropped by the limit; the time and state of a failure (-1: no
state); the event before which a slice ended; what there was not enough room for; the row of the first partial match; the mask of
relevant conditions without the start state; whether the deadlines are in the order of the partial matches; whether some were
removed since the last :func:`survey`.
"""
NO_HEAP, NO_NODES, NO_OUT, NO_LOST, NO_TIMERS, NO_NEW_RUNS, NO_NEW_WAITING, NO_NEW_TIMERS = range(8)


@uncounted
def push(heaps: Any, plane: int, size: int, first: int, node: int, last: int) -> None:
    """Add a row. The caller ensures that there is room."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if first >= heaps[plane, parent, 0]:
            break
        move(heaps, plane, parent, at)
        at = parent
    heaps[plane, at, 0] = first
    heaps[plane, at, 1] = node
    heaps[plane, at, 2] = last


@uncounted
def move(heaps: Any, plane: int, source: int, target: int) -> None:
    heaps[plane, target, 0] = heaps[plane, source, 0]
    heaps[plane, target, 1] = heaps[plane, source, 1]
    heaps[plane, target, 2] = heaps[plane, source, 2]


@uncounted
def put(heaps: Any, plane: int, at: int, first: int, node: int, state: int) -> None:
    """Add a partial match after those that began before or together with it."""
    heaps[plane, at, 0] = first
    heaps[plane, at, 1] = node
    heaps[plane, at, 2] = state


@uncounted
def to_front(heaps: Any, count: Any) -> None:
    """Move the partial matches to the beginning of their plane."""
    begin, runs = count[FIRST_RUN], count[RUNS]
    if begin > 0:
        for run in range(count[N_RUNS]):
            move(heaps, runs, begin + run, run)
        count[FIRST_RUN] = 0


@uncounted
def sift_down(heaps: Any, plane: int, size: int, at: int) -> None:
    first, node, last = heaps[plane, at, 0], heaps[plane, at, 1], heaps[plane, at, 2]
    while at < size >> 1:
        child = 2 * at + 1
        if child + 1 < size and heaps[plane, child, 0] > heaps[plane, child + 1, 0]:
            child += 1
        if first <= heaps[plane, child, 0]:
            break
        move(heaps, plane, child, at)
        at = child
    heaps[plane, at, 0] = first
    heaps[plane, at, 1] = node
    heaps[plane, at, 2] = last


@uncounted
def drop_head(heaps: Any, plane: int, size: int) -> int:
    """Remove row 0. Returns the new size."""
    size -= 1
    if size > 0:
        move(heaps, plane, size, 0)
        sift_down(heaps, plane, size, 0)
    return size


@uncounted
def discard(heaps: Any, plane: int, size: int, lowest: int, highest: int) -> int:
    """Remove the rows whose first event is in [lowest, highest]. Returns the new size."""
    if size == 0 or heaps[plane, 0, 0] > highest:
        return size
    kept = 0
    for at in range(size):
        if not lowest <= heaps[plane, at, 0] <= highest:
            if kept < at:
                move(heaps, plane, at, kept)
            kept += 1
    if kept < size:
        for at in range((kept >> 1) - 1, -1, -1):
            sift_down(heaps, plane, kept, at)
    return kept


@compiled
def keep_oldest(heaps: Any, plane: int, size: int, n_nodes: int, limit: int) -> int:
    """Keep the start state and the *limit* partial matches that began first; of those that began together, the ones that
    accepted their last event first. Returns the new size.
    """
    age = np.empty(size, np.int64)
    for at in range(size):
        first = heaps[plane, at, 0]
        age[at] = NEVER if first == NO_EVENT else first * n_nodes + heaps[plane, at, 1]
    oldest = np.sort(age)[:limit]
    youngest = oldest[-1]
    room = np.sum(oldest == youngest)  # several may share an event and a node
    kept = 0
    for at in range(size):
        if age[at] < youngest or age[at] == NEVER or (age[at] == youngest and room > 0):
            room -= age[at] == youngest
            if kept < at:
                move(heaps, plane, at, kept)
            kept += 1
    for at in range((kept >> 1) - 1, -1, -1):
        sift_down(heaps, plane, kept, at)
    return kept


# ------------------------------------------------------------------------------------------------ conditions
#
# *values* holds slot k of an event in column 2k, and 1 in column 2k + 1 if it is null. Doubles are stored as integers with
# the same 64 bits.


def _call(context: Any, address: Any, condition: Any, event: Any, node: Any, nodes: Any, n_nodes: Any) -> Any:
    """Call the C function at *address*, an integer. (numba does not cache functions that take a function as an argument.)"""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(64)
        kind = ir.FunctionType(integer, [integer] * (len(arguments) - 1))
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int64(*[types.int64] * 6), generate


call: Any = intrinsic(_call)


@uncounted
def belongs(event_stage: int, stage: int) -> bool:
    """Whether an event of the stage *own* belongs to *stage*, which may be several stages."""
    if stage >= 0:
        return event_stage == stage
    return stage == EVERY_STAGE or (((-2 - stage) >> event_stage) & 1) == 1


@compiled
def add_up(values: Any, nodes: Any, node: int, stage: int, slot: int, floating: bool, count: int) -> float:
    """The sum as a double, in order of acceptance, because sums of doubles depend on the order of addition."""
    events = np.empty(count, np.int64)
    at = node
    put = count
    while at >= 0:
        if belongs(nodes[at, 1], stage) and values[nodes[at, 0], 2 * slot + 1] == 0:
            put -= 1
            events[put] = nodes[at, 0]
        at = nodes[at, 2]
    total = 0.0
    for event in events:
        total += double(values[event, 2 * slot]) if floating else float(values[event, 2 * slot])
    return total


@uncounted
def aggregate(ops: Any, op: int, values: Any, nodes: Any, node: int, work: Any, top: int) -> None:
    """Push the value of an aggregate over the events of a stage, in order of acceptance, at *top*."""
    func, stage, slot, kind = ops[op, 2], ops[op, 3], ops[op, 4], ops[op, 5]
    floating = kind == DOUBLE
    column = 2 * slot
    work[STATES, top] = 0
    at = node
    walked = 0
    if func in (FIRST, LAST):
        event = -1
        left = ops[op, 1]  # the number of events of the stage to skip, from the newest on
        if func == FIRST:
            left = -1 - left
            while at >= 0:
                left += belongs(nodes[at, 1], stage)
                at = nodes[at, 2]
            at = node if left >= 0 else -1
        while at >= 0:
            if belongs(nodes[at, 1], stage):
                if left == 0:
                    event = nodes[at, 0]
                    break
                left -= 1
            at = nodes[at, 2]
            walked += 1
        work[BUDGET, 0] -= walked
        if event < 0 or values[event, column + 1] != 0:
            work[STATES, top] = 1
        else:
            work[VALUES, top] = values[event, column]
        return
    count = 0
    whole = carried = 0  # the sum is whole + carried * 2**64
    best = -1  # the event with the smallest or largest value
    while at >= 0:
        if belongs(nodes[at, 1], stage):
            event = nodes[at, 0]
            if slot < 0:
                count += 1
            elif values[event, column + 1] == 0:
                count += 1
                if func == SUM or (func == AVG and kind == DECIMAL):
                    carried += carry(whole, values[event, column])
                    whole = wrapped(whole, values[event, column])
                elif best < 0:
                    best = event
                elif floating:
                    value, other = double(values[event, column]), double(values[best, column])
                    smaller, larger = less(value, other), less(other, value)
                    best = event if (smaller if func == MIN else larger) else best
                else:
                    smaller = values[event, column] < values[best, column]
                    larger = values[best, column] < values[event, column]
                    best = event if (smaller if func == MIN else larger) else best
        at = nodes[at, 2]
        walked += 1
    work[BUDGET, 0] -= walked
    if func == COUNT:
        work[VALUES, top] = count
    elif count == 0:
        work[STATES, top] = 1
    elif kind == DECIMAL and func in (SUM, AVG):
        work[VALUES, top] = whole
        if carried != 0 or (func == AVG and not product_fits(whole, 10_000)):
            work[STATES, top] = OVERFLOW
        elif func == AVG:
            work[VALUES, top] = mean(whole, count)
    elif func == AVG:
        work[VALUES, top] = bits_of(add_up(values, nodes, node, stage, slot, floating, count) / count)
    elif func == SUM and floating:
        work[VALUES, top] = bits_of(add_up(values, nodes, node, stage, slot, floating, count))
    elif func == SUM:
        work[VALUES, top] = whole
        if carried != 0:
            work[STATES, top] = OVERFLOW
    else:
        work[VALUES, top] = values[best, column]


@inlined
def ask(ops: Any, at: int, event: int, work: Any, n: int) -> Any:
    """Replace the operands of an ASK by its answer. Returns the number of values."""
    first = n - ops[at, 3]
    if ops[at, 4] != 0:  # the right operand of AND or OR, which does not matter if the left one decides or is an error
        state = work[STATES, first - 1]
        if state > NULL_VALUE or (state == VALID and work[VALUES, first - 1] == (0 if ops[at, 4] == AND else 1)):
            work[VALUES, first], work[STATES, first] = 0, NULL_VALUE
            return first + 1
    nulls = 0
    for operand in range(first, n):
        if work[STATES, operand] > NULL_VALUE:
            work[STATES, first] = work[STATES, operand]
            return first + 1
        if work[STATES, operand] == NULL_VALUE:
            work[VALUES, operand] = 0
            nulls |= 1 << (operand - first)
    work[BUDGET, 0] -= MADE
    answer = call(ops[at, 2], ops[at, 1], event, work.ctypes.data + 8 * first, nulls, work[BUDGET, AHEAD])
    if answer < 0:
        work[BUDGET, MISSING] = 1
        if answer == ENOUGH:
            work[BUDGET, AHEAD] = 0
        answer = 1 if answer == PRESUMED_TRUE else 0
    work[VALUES, first], work[STATES, first] = answer, VALID
    if answer == NULL_ANSWER:
        work[STATES, first] = NULL_VALUE
    elif answer >= FIRST_FAILURE:
        work[STATES, first] = answer
    return first + 1


@uncounted
def run_program(ops: Any, begin: int, end: int, values: Any, event: int, nodes: Any, node: int, work: Any) -> int:
    """1 if the program is TRUE for this event and partial match, 0 if it is FALSE or NULL; otherwise a negated error code."""
    n = 0  # the number of values on the stack
    work[BUDGET, 0] -= end - begin
    for at in range(begin, end):
        op = ops[at, 0]
        if op == SLOT:
            k = 2 * ops[at, 1]
            work[VALUES, n], work[STATES, n] = values[event, k], values[event, k + 1]
            n += 1
        elif op == AGG:
            aggregate(ops, at, values, nodes, node, work, n)
            n += 1
        elif op == PYTHON:
            answer = call(ops[at, 2], ops[at, 1], event, node, nodes.ctypes.data, len(nodes))
            if answer < 0:
                return -PYTHON_FAILED
            work[VALUES, n], work[STATES, n] = answer, VALID
            n += 1
        elif op == ASK:
            n = ask(ops, at, event, work, n)
        else:
            n = calculate(ops, at, work, n)
    if work[STATES, 0] > NULL_VALUE:
        return -int(work[STATES, 0])
    return 1 if (work[STATES, 0] == VALID and work[VALUES, 0] == 1) else 0


@inlined
def holds(transitions: Transitions, events: Events, guard: int, event: int, nodes: Any, node: int, work: Any) -> int:
    """Whether a guard holds for this event and partial match: 1, 0, or a negated error code."""
    (_, _, guards, conditions, ops), (_, bits, values) = transitions, events
    at = guard
    while at >= 0:
        condition = guards[at, 0]
        bit, begin, end = conditions[condition, 0], conditions[condition, 1], conditions[condition, 2]
        answer = 1 if bit < 0 else (bits[event, bit // BITS] >> (bit % BITS)) & 1
        if answer == 1 and begin < end:
            # An event is taken where a condition holds, and ignored where it does not.
            if work[BUDGET, KNOWN] == condition:
                answer = work[BUDGET, ANSWER]
                work[BUDGET, 0] -= end - begin
            else:
                answer = run_program(ops, begin, end, values, event, nodes, node, work)
                if answer < 0:
                    return answer
                work[BUDGET, KNOWN], work[BUDGET, ANSWER] = condition, answer
        at = guards[at, 1] if answer == 1 else guards[at, 2]
    return 1 if at == HOLDS else 0


# ------------------------------------------------------------------------------------------------ one event


@uncounted
def follow(
    states: Any, edges: Any, word: int, state: int, since: int, only_proceed: bool, work: Any
) -> tuple[int, int, int]:
    """Collect the TAKE and IGNORE edges whose guards hold in work[FOLLOW]; PROCEED edges are followed immediately, the last
    one first.

    *word* has the condition bits of the event, and *since* is the time since the last accepted event. With *only_proceed*,
    only determine where PROCEED edges lead. Returns the number of edges, which of the states STOP and FINAL were reached
    (bits), and an error code. Requires that all guards test only bits; :func:`follow_guards` supports any guards.
    """
    room = work.shape[1]
    n_edges = reached = visits = 0
    work[VISIT, 0] = state
    n = 1
    while n > 0:
        n -= 1
        visits += 1
        at = work[VISIT, n]
        work[BUDGET, 0] -= 1 + states[at, END_EDGE] - states[at, FIRST_EDGE]
        if work[BUDGET, 0] < 0:
            return n_edges, reached, TOO_MUCH_WORK
        if states[at, KIND] >= STOP:
            reached |= 1 << states[at, KIND]
            continue
        for edge in range(states[at, FIRST_EDGE], states[at, END_EDGE]):
            action = edges[edge, ACTION]
            if (only_proceed and action != PROCEED) or (word & edges[edge, CARE]) != edges[edge, WANT]:
                continue
            if n >= room or n_edges >= room or visits >= MAX_VISITS:
                return n_edges, reached, TOO_MANY_EDGES
            if action == PROCEED:
                work[VISIT, n] = edges[edge, TARGET]
                n += 1
            elif edges[edge, EDGE_GAP] == 0 or since < edges[edge, EDGE_GAP]:
                work[FOLLOW, n_edges] = edge
                n_edges += 1
    return n_edges, reached, OK


@uncounted
def follow_guards(
    transitions: Transitions, events: Events, nodes: Any, visit: Visit, work: Any
) -> tuple[int, int, int]:
    """:func:`follow` for any guards. It is slower because everything that conditions may read must be passed."""
    states, edges = transitions.states, transitions.edges
    state, event, node, since, only_proceed = visit
    word = events.bits[event, 0]
    room = work.shape[1]
    n_edges = reached = visits = 0
    work[BUDGET, KNOWN] = -1
    work[VISIT, 0] = state
    n = 1
    while n > 0:
        n -= 1
        visits += 1
        at = work[VISIT, n]
        work[BUDGET, 0] -= 1 + states[at, END_EDGE] - states[at, FIRST_EDGE]
        if work[BUDGET, 0] < 0:
            return n_edges, reached, TOO_MUCH_WORK
        if states[at, KIND] >= STOP:
            reached |= 1 << states[at, KIND]
            continue
        for edge in range(states[at, FIRST_EDGE], states[at, END_EDGE]):
            action = edges[edge, ACTION]
            if only_proceed and action != PROCEED:
                continue
            if edges[edge, SIMPLE] == 1:
                if (word & edges[edge, CARE]) != edges[edge, WANT]:
                    continue
            else:
                answer = holds(transitions, events, edges[edge, GUARD], event, nodes, node, work)
                if answer < 0:
                    return n_edges, reached, -answer
                if answer == 0:
                    continue
            if n >= room or n_edges >= room or visits >= MAX_VISITS:
                return n_edges, reached, TOO_MANY_EDGES
            if action == PROCEED:
                work[VISIT, n] = edges[edge, TARGET]
                n += 1
            elif edges[edge, EDGE_GAP] == 0 or since < edges[edge, EDGE_GAP]:
                work[FOLLOW, n_edges] = edge
                n_edges += 1
    return n_edges, reached, OK


@uncounted
def only_ignores(edges: Any, n_edges: int, work: Any) -> bool:
    """Whether all edges in work[FOLLOW] are IGNORE edges, and there is one."""
    for which in range(n_edges):
        if edges[work[FOLLOW, which], ACTION] != IGNORE:
            return False
    return n_edges > 0


@inlined
def step(
    transitions: Transitions, events: Events, matches: Matches, work: Any, start: int, flink: bool, event: int
) -> int:
    """Process one event for the partial matches of a key; finished matches are added to plane DONE. Returns an error code.

    If it matters to the start state alone, the others stay where they are. If an answer is missing, nothing has changed.
    """
    states, edges, times, bits = transitions.states, transitions.edges, events.times, events.bits
    heaps, count, nodes = matches
    runs = count[RUNS]
    begin, end = count[FIRST_RUN], count[FIRST_RUN] + count[N_RUNS]
    new, n_new = 1 - runs, 0
    seen = bits[event, 0]
    for column in range(1, bits.shape[1]):
        seen |= bits[event, column]
    only_start = False
    if count[BEGUN_MASK] >= 0 and seen & count[BEGUN_MASK] == 0 and end > begin:
        only_start = heaps[runs, end - 1, 0] == NO_EVENT and heaps[runs, end - 1, 2] == start
    if only_start:
        begin = end - 1
        new, n_new = runs, begin
    n_done = 0
    n_nodes = count[N_NODES]
    has_begun = False
    time, word = times[event], bits[event, 0]
    for run in range(begin, end):
        first, node, state = heaps[runs, run, 0], heaps[runs, run, 1], heaps[runs, run, 2]
        fresh = first == NO_EVENT
        if not fresh and states[state, RELEVANT] >= 0 and seen & states[state, RELEVANT] == 0:
            if n_new == heaps.shape[1]:
                count[SHORT] = NO_HEAP
                return NO_ROOM
            put(heaps, new, n_new, first, node, state)
            n_new += 1
            continue
        since = 0 if fresh else time - times[nodes[node, 0]]
        if states[state, PLAIN] == 1:
            n_edges, reached, error = follow(states, edges, word, state, since, False, work)
        else:
            visit = Visit(state, event, node, since, False)
            n_edges, reached, error = follow_guards(transitions, events, nodes, visit, work)
        stopped = reached & (1 << STOP) != 0
        if error != OK:
            count[STATE] = state
            return error
        if max(n_new + n_edges + 1, n_done + 2 * n_edges) > heaps.shape[1]:
            count[SHORT] = NO_HEAP
            return NO_ROOM
        if n_nodes + n_edges > len(nodes):
            count[SHORT] = NO_NODES
            return NO_ROOM
        made = n_new + n_done + n_nodes
        if not fresh and not stopped and n_edges == states[state, IGNORED] and only_ignores(edges, n_edges, work):
            put(heaps, new, n_new, first, node, state)
            n_new += 1
            n_edges = 0
        for which in range(n_edges):
            edge = work[FOLLOW, which]
            target = edges[edge, TARGET]
            if edges[edge, ACTION] == IGNORE:
                if fresh:
                    continue
                if states[target, KIND] == FINAL:
                    push(heaps, DONE, n_done, first, node, time)
                    n_done += 1
                elif not stopped:
                    put(heaps, new, n_new, first, node, target)
                    n_new += 1
                continue
            nodes[n_nodes, 0], nodes[n_nodes, 1], nodes[n_nodes, 2] = event, edges[edge, STAGE], node
            begun = event if fresh else first
            has_begun = has_begun or (fresh and time > 0)
            if states[target, KIND] == FINAL:
                push(heaps, DONE, n_done, begun, n_nodes, time)
                n_done += 1
            else:
                if not stopped:
                    put(heaps, new, n_new, begun, n_nodes, target)
                    n_new += 1
                # The match may be complete without a further event if all remaining stages are optional.
                reached = 0
                if states[target, PROCEEDS] == 0:
                    work[BUDGET, 0] -= 1 + states[target, END_EDGE] - states[target, FIRST_EDGE]
                elif states[target, PLAIN] == 1:
                    _, reached, error = follow(states, edges, word, target, since, True, work)
                else:
                    visit = Visit(target, event, node, since, True)
                    _, reached, error = follow_guards(transitions, events, nodes, visit, work)
                if error != OK:
                    count[STATE] = target
                    if only_start:
                        put(heaps, runs, end - 1, NO_EVENT, -1, start)
                    return error
                if reached & (1 << FINAL) != 0:
                    push(heaps, DONE, n_done, begun, n_nodes, time)
                    n_done += 1
            n_nodes += 1
        # In Flink a forbidden event seen from the start state ends the start state as well: no further match can begin.
        if fresh and state == start and not (stopped and flink):
            put(heaps, new, n_new, NO_EVENT, -1, start)
            n_new += 1
        work[BUDGET, 0] -= MADE * (n_new + n_done + n_nodes - made)
        if work[BUDGET, 0] < 0:
            count[STATE] = state
            if only_start:
                put(heaps, runs, end - 1, NO_EVENT, -1, start)
            return TOO_MUCH_WORK
    if work[BUDGET, MISSING] != 0 and work[BUDGET, AHEAD] == 0:
        if only_start:
            put(heaps, runs, end - 1, NO_EVENT, -1, start)
        return ASKED
    count[BEGAN] |= 1 if has_begun else 0
    if not only_start:
        count[RUNS], count[FIRST_RUN] = new, 0
    count[N_RUNS], count[N_DONE], count[N_NODES] = n_new - count[FIRST_RUN], n_done, n_nodes
    return OK


# ------------------------------------------------------------------------------------------------ finished matches


@uncounted
def is_preferred(automaton: Any, preferred: Any, nodes: Any, node: int, other: int, work: Any) -> bool:
    """Whether the match that ends in *node* has more events in the preferred stages than that which ends in *other*."""
    for row in range(automaton[FIRST_PREFERRED], automaton[END_PREFERRED]):
        stage = preferred[row, 0]
        more = walked = 0
        at = node
        while at >= 0:
            more += nodes[at, 1] == stage
            at = nodes[at, 2]
            walked += 1
        at = other
        while at >= 0:
            more -= nodes[at, 1] == stage
            at = nodes[at, 2]
            walked += 1
        work[BUDGET, 0] -= walked
        if more != 0:
            return more > 0
    return False


@uncounted
def hold_preferred(
    automaton: Any, preferred: Any, heaps: Any, n_waiting: int, nodes: Any, row: int, work: Any
) -> bool:  # fmt: skip
    """Keep only the preferred one of the match *row* of plane DONE and a waiting match that began with the same event.
    Returns whether there is such a match.
    """
    first, node = heaps[DONE, row, 0], heaps[DONE, row, 1]
    for at in range(n_waiting):
        if heaps[WAITING, at, 0] == first:
            if is_preferred(automaton, preferred, nodes, node, heaps[WAITING, at, 1], work):
                heaps[WAITING, at, 1], heaps[WAITING, at, 2] = node, heaps[DONE, row, 2]
            return True
    return False


@uncounted
def next_match(heaps: Any, n_waiting: int, runs: int, begin: int, n_runs: int, undecided: bool, hold: bool) -> int:
    """The row of the next waiting match to emit; -1: none. With *undecided*, a match waits as long as a partial match that began
    with the same event.
    """
    if not undecided:
        return -1 if hold and n_runs > 0 and heaps[runs, begin, 0] < heaps[WAITING, 0, 0] else 0
    best = -1
    for at in range(n_waiting):
        first = heaps[WAITING, at, 0]
        if best >= 0 and heaps[WAITING, best, 0] <= first:
            continue
        decided = True
        for run in range(begin, begin + n_runs):
            if heaps[runs, run, 0] == first or (hold and heaps[runs, run, 0] < first):
                decided = False
                break
        if decided:
            best = at
    return best


@uncounted
def settle(
    automaton: Any, preferred: Any, flink: bool, matches: Matches, work: Any, out: Any, key: int, time: int
) -> int:
    """Emit the finished matches that nothing can discard any more, and apply the skip strategy.

    The matches in plane DONE are added to those that wait. Rows of *out*: key; emission time, which is *time* or, for
    NO_ADVANCE, the time of completion; node. Returns an error code.
    """
    heaps, count, nodes = matches
    skip, skip_stage, throw_on_miss = automaton[SKIP], automaton[SKIP_STAGE], automaton[THROW_ON_MISS] != 0
    n_waiting, n_out = count[N_WAITING], count[N_OUT]
    if n_waiting + count[N_DONE] > heaps.shape[1]:
        count[SHORT] = NO_HEAP
        return NO_ROOM
    if n_out + n_waiting + count[N_DONE] > len(out):
        count[SHORT] = NO_OUT
        return NO_ROOM
    undecided = automaton[FIRST_PREFERRED] < automaton[END_PREFERRED]
    for row in range(count[N_DONE]):
        if undecided:
            work[BUDGET, 0] -= n_waiting
            if hold_preferred(automaton, preferred, heaps, n_waiting, nodes, row, work):
                continue
        push(heaps, WAITING, n_waiting, heaps[DONE, row, 0], heaps[DONE, row, 1], heaps[DONE, row, 2])
        n_waiting += 1
    count[N_DONE] = 0
    runs, n_runs = count[RUNS], count[N_RUNS]
    # A partial match that began earlier may still finish and discard; with SKIP_TO_NEXT it never can.
    hold = skip not in (NO_SKIP, FIRST_MATCH_ONLY) and (flink or skip != SKIP_TO_NEXT)
    while n_waiting > 0:
        if undecided:
            work[BUDGET, 0] -= n_waiting * n_runs
            if work[BUDGET, 0] < 0:
                return TOO_MUCH_WORK
        chosen = next_match(heaps, n_waiting, runs, count[FIRST_RUN], n_runs, undecided, hold)
        if chosen < 0:
            break
        first, node, completed = heaps[WAITING, chosen, 0], heaps[WAITING, chosen, 1], heaps[WAITING, chosen, 2]
        if chosen == 0:
            n_waiting = drop_head(heaps, WAITING, n_waiting)
        else:
            n_waiting = discard(heaps, WAITING, n_waiting, first, first)
        lowest, highest = 0, -1  # the first events of the discarded rows
        if skip == SKIP_TO_NEXT:
            lowest, highest = first, first
        elif skip == SKIP_PAST_LAST:
            highest = nodes[node, 0]
        elif skip == FIRST_MATCH_ONLY:
            highest = NO_EVENT  # the start state as well: no further match can begin
        elif skip != NO_SKIP:
            pivot = -1
            at = node
            while at >= 0:
                if nodes[at, 1] == skip_stage:
                    pivot = nodes[at, 0]
                    if skip != SKIP_TO_FIRST:
                        break
                at = nodes[at, 2]
            if throw_on_miss and (pivot < 0 or pivot == first):
                return SKIP_MISSED if pivot < 0 else SKIP_TO_OWN_FIRST
            highest = pivot - 1
        if lowest <= highest:
            if n_runs > 0 and heaps[runs, count[FIRST_RUN], 0] <= highest:
                to_front(heaps, count)
                n_left = discard(heaps, runs, n_runs, lowest, highest)
                if n_left < n_runs:
                    count[STALE] = 1
                count[N_RUNS] = n_runs = n_left
            n_waiting = discard(heaps, WAITING, n_waiting, lowest, highest)
        out[n_out, 0], out[n_out, 1], out[n_out, 2] = key, completed if time == NO_ADVANCE else time, node
        n_out += 1
        left = work[BUDGET, 0] - MADE
        while node >= 0 and left >= 0:
            left -= 1
            node = nodes[node, 2]
        work[BUDGET, 0] = left
        if left < 0:
            return TOO_MUCH_WORK
    count[N_RUNS], count[N_WAITING], count[N_OUT] = n_runs, n_waiting, n_out
    return OK


@compiled
def confine(heaps: Any, count: Any, limit: int, drop: bool) -> int:
    """Limit a key to *limit* partial matches, apart from the start state. Returns an error code.

    Those that began last are dropped first. The remaining ones are closest to their end, and a partial match never affects
    those that began earlier, so their results are the same as without a limit.
    """
    runs, last = count[RUNS], count[FIRST_RUN] + count[N_RUNS] - 1
    has_start = heaps[runs, last, 0] == NO_EVENT
    n_partial = count[N_RUNS] - has_start
    if n_partial > limit:
        count[DROPPED] += n_partial - limit
        if not drop:  # report the state with the most partial matches
            tally = np.zeros(np.max(heaps[runs, count[FIRST_RUN] : last + 1, 2]) + 1, np.int64)
            for run in range(count[FIRST_RUN], last + 1):
                tally[heaps[runs, run, 2]] += heaps[runs, run, 0] != NO_EVENT
            count[STATE] = np.argmax(tally)
            return TOO_MANY_RUNS
        youngest = last - has_start
        if has_start and n_partial == limit + 1 and heaps[runs, youngest, 0] > heaps[runs, youngest - 1, 0]:
            move(heaps, runs, last, youngest)
            count[N_RUNS] -= 1
            return OK
        to_front(heaps, count)
        count[N_RUNS] = keep_oldest(heaps, runs, count[N_RUNS], count[N_NODES], limit)
        count[STALE] = 1
    return OK


# ------------------------------------------------------------------------------------------------ time


@uncounted
def survey(states: Any, window: int, times: Any, heaps: Any, count: Any, nodes: Any, begin: int) -> None:
    """Determine the earliest deadline of the partial matches, and the events that matter to them. Those before row *begin* were
    surveyed before.
    """
    end = count[FIRST_RUN] + count[N_RUNS]
    if begin <= count[FIRST_RUN]:
        begin = count[FIRST_RUN]
        count[EARLIEST], count[BEGUN_MASK], count[IN_ORDER], count[STALE] = NEVER, 0, window > 0, 0
    earliest, begun, in_order, start = count[EARLIEST], count[BEGUN_MASK], count[IN_ORDER], 0
    runs = count[RUNS]
    for run in range(begin, end):
        first, state = heaps[runs, run, 0], heaps[runs, run, 2]
        if first == NO_EVENT:
            start |= states[state, RELEVANT]
            continue
        begun |= states[state, RELEVANT]
        if states[state, KIND] == AT_LAST:
            in_order = 0
            continue
        if window > 0:
            earliest = min(earliest, times[first] + window)
        if states[state, GAP] > 0:
            in_order = 0
            earliest = min(earliest, times[nodes[heaps[runs, run, 1], 0]] + states[state, GAP])
    count[EARLIEST], count[BEGUN_MASK], count[IN_ORDER], count[RELEVANT_MASK] = earliest, begun, in_order, begun | start


@uncounted
def is_relevant(mask: int, bits: Any, event: int) -> bool:
    """Whether an event matters to partial matches with this mask of relevant conditions."""
    seen = bits[event, 0]
    for word in range(1, bits.shape[1]):
        seen |= bits[event, word]
    return mask < 0 or seen & mask != 0


@uncounted
def expire(states: Any, window: int, flink: bool, times: Any, matches: Matches, lost: Any, key: int, time: int) -> int:
    """Remove the partial matches whose deadline is at or before *time*.

    If one was waiting only for an absence, it is finished; otherwise it is added to *lost*: key, its deadline, node. In Flink
    the difference of the end of time and a time before 1970 overflows, so such a partial match does not end.
    """
    heaps, count, nodes = matches
    runs = count[RUNS]
    n_done, n_lost = 0, count[N_LOST]
    if count[IN_ORDER] != 0 and not (flink and time == END_OF_TIME):
        begin, end = count[FIRST_RUN], count[FIRST_RUN] + count[N_RUNS]
        while begin < end and heaps[runs, begin, 0] != NO_EVENT and times[heaps[runs, begin, 0]] + window <= time:
            first, node = heaps[runs, begin, 0], heaps[runs, begin, 1]
            if states[heaps[runs, begin, 2], KIND] == PENDING:
                push(heaps, DONE, n_done, first, node, time)
                n_done += 1
            elif n_lost == len(lost):
                count[SHORT] = NO_LOST
                return NO_ROOM
            else:
                lost[n_lost, 0], lost[n_lost, 1], lost[n_lost, 2] = key, times[first] + window, node
                n_lost += 1
            begin += 1
        count[FIRST_RUN], count[N_RUNS], count[N_DONE], count[N_LOST] = begin, end - begin, n_done, n_lost
        has_begun = begin < end and heaps[runs, begin, 0] != NO_EVENT
        count[EARLIEST] = times[heaps[runs, begin, 0]] + window if has_begun else NEVER
        if begin > end - begin:  # so seldom that it takes no time
            to_front(heaps, count)
            count[STALE] = 1
        return OK
    to_front(heaps, count)
    count[STALE] = 1
    new = 1 - runs
    n_new = 0
    if n_lost + count[N_RUNS] > len(lost):
        count[SHORT] = NO_LOST
        return NO_ROOM
    for run in range(count[N_RUNS]):
        first, node, state = heaps[runs, run, 0], heaps[runs, run, 1], heaps[runs, run, 2]
        by_window = by_gap = NEVER
        if first != NO_EVENT and states[state, KIND] != AT_LAST:
            last = nodes[node, 0]
            overflows = flink and time == END_OF_TIME
            if window > 0 and not (overflows and times[first] < 0):
                by_window = times[first] + window
            if states[state, GAP] > 0 and not (overflows and times[last] < 0):
                by_gap = times[last] + states[state, GAP]
        deadline = min(by_window, by_gap)
        if deadline > time or deadline == NEVER:
            put(heaps, new, n_new, first, node, state)
            n_new += 1
        elif states[state, KIND] == PENDING:
            push(heaps, DONE, n_done, first, node, time)
            n_done += 1
        else:
            deadline = by_gap if by_gap <= time and by_gap != NEVER else by_window
            lost[n_lost, 0], lost[n_lost, 1], lost[n_lost, 2] = key, deadline, node
            n_lost += 1
    count[RUNS], count[N_RUNS], count[N_DONE], count[N_LOST] = new, n_new, n_done, n_lost
    return OK


# ------------------------------------------------------------------------------------------------ one key, all keys


@uncounted
def advance_key(
    tables: Tables, events: Events, automaton: Any, turn: Turn, most: int, matches: Matches, buffers: Buffers
) -> int:
    """Process the events of *turn* and advance the time of its key. Returns an error code.

    Once there are *most* matches, timed-out partial matches and nodes, the slice ends before the next event. If an answer is
    missing, it ends before the event that needs it.
    """
    states, preferred, flink, times = tables.states, tables.preferred, tables.flink, events.times
    transitions = Transitions(states, tables.edges, tables.guards, tables.conditions, tables.ops)
    key, begin, end, until, began = turn
    (heaps, count, nodes), (out, lost, timers, work) = matches, buffers
    start, window, max_runs = automaton[START_STATE], automaton[WINDOW], automaton[MAX_RUNS]
    max_work, max_held = automaton[MAX_WORK], automaton[MAX_HELD]
    count[FIRST_RUN] = 0
    survey(states, window, times, heaps, count, nodes, 0)
    resumed = began >= 0
    count[BEGAN] = max(began, 0)
    due = begin < end or resumed
    for at in range(count[N_TIMERS]):
        due = due or timers[at, 0] <= until
    for event in range(begin, end + 1):  # the additional iteration is the horizon
        at_horizon = event == end
        if event > begin and count[N_OUT] + count[N_LOST] + count[N_NODES] >= most:
            count[EVENT] = event
            return SLICE_FULL
        if at_horizon and (until == NO_ADVANCE or (flink and not due)):
            # Flink: without a due timer, a watermark has no effect.
            break
        time = until if at_horizon else times[event]
        # Flink checks the time once for all events of one timestamp, before the first of them.
        checks_deadlines = not flink or at_horizon or (event == begin and not resumed) or times[event - 1] != time
        work[BUDGET, 0] = UNLIMITED  # the work of deadlines is bounded by the existing partial matches
        while checks_deadlines and count[EARLIEST] <= time and count[EARLIEST] != NEVER:
            # By default time advances from deadline to deadline, independently of the watermarks; in Flink it jumps.
            moment = time if flink else count[EARLIEST]
            error = expire(states, window, flink, times, matches, lost, key, moment)
            if error == OK and count[N_DONE] + count[N_WAITING] > 0:
                error = settle(automaton, preferred, flink, matches, work, out, key, moment)
            if error != OK:
                count[TIME] = moment
                return error
            if count[STALE] != 0:
                survey(states, window, times, heaps, count, nodes, 0)
            if flink:
                break
        if at_horizon:
            break
        # Most events matter to no partial match; a single test skips them.
        if is_relevant(count[RELEVANT_MASK], events.bits, event):
            work[BUDGET, 0] = max_work
            plane, start_at = count[RUNS], count[FIRST_RUN] + count[N_RUNS] - 1
            error = step(transitions, events, matches, work, start, flink, event)
            if error == OK and count[N_DONE] + count[N_WAITING] > 0:
                error = settle(automaton, preferred, flink, matches, work, out, key, time)
                if error == OK and count[N_WAITING] > max_held:
                    error = TOO_MANY_HELD
            if error == OK and 0 < max_runs < count[N_RUNS]:
                error = confine(heaps, count, max_runs, tables.drop)
            if error != OK:
                count[TIME], count[EVENT] = time, event
                if work[BUDGET, MISSING] != 0:  # with the answer, the error may not occur
                    work[BUDGET, MISSING] = 0
                    return error if error == NO_ROOM else ASKED
                return error
            is_new = count[STALE] != 0 or count[RUNS] != plane
            survey(states, window, times, heaps, count, nodes, 0 if is_new else start_at)
        if flink and count[BEGAN] == 1 and window > 0:
            if count[N_TIMERS] >= len(timers):
                count[SHORT] = NO_TIMERS
                return NO_ROOM
            timers[count[N_TIMERS], 0] = time + window
            count[N_TIMERS] += 1
    if until == END_OF_TIME and not flink:
        # No more events can arrive: partial matches without a deadline are complete if they waited only for the end, the others
        # end, and the matches that they held back are emitted.
        to_front(heaps, count)
        runs, n_done = count[RUNS], 0
        for run in range(count[N_RUNS]):
            kind = states[heaps[runs, run, 2], KIND]
            if heaps[runs, run, 0] != NO_EVENT and kind in (PENDING, AT_LAST):
                # They are complete at the time of their last event: there is no later time.
                node = heaps[runs, run, 1]
                push(heaps, DONE, n_done, heaps[runs, run, 0], node, times[nodes[node, 0]])
                n_done += 1
        count[N_RUNS], count[N_DONE] = 0, n_done
        count[TIME] = until
        work[BUDGET, 0] = UNLIMITED
        return settle(automaton, preferred, flink, matches, work, out, key, NO_ADVANCE)
    return OK


@uncounted
def look_ahead(
    tables: Tables, events: Events, automaton: Any, turn: Turn, most: int, matches: Matches, buffers: Buffers
) -> None:
    """Ask for the answers that the events of *turn* need if the missing ones are as presumed. What they make is forgotten."""
    count, work = matches.count, buffers.work
    n_nodes, n_out, n_lost, dropped = count[N_NODES], count[N_OUT], count[N_LOST], count[DROPPED]
    work[BUDGET, AHEAD] = 1
    advance_key(tables, events, automaton, turn, most, matches, buffers)
    work[BUDGET, AHEAD] = work[BUDGET, MISSING] = 0
    count[N_NODES], count[N_OUT], count[N_LOST], count[DROPPED] = n_nodes, n_out, n_lost, dropped


@compiled
def grown(rows: Any, needed: int) -> Any:
    """*rows*, or a larger copy if it has less than *needed* rows."""
    if needed <= len(rows):
        return rows
    larger = np.empty((max(needed, 2 * len(rows)), rows.shape[1]), np.int64)
    larger[: len(rows)] = rows
    return larger


# Loops over a few elements, because copies of slices take as long as everything else for a key with a few events.


@uncounted
def copy_to_heap(rows: Any, begin: int, size: int, heaps: Any, plane: int) -> None:
    for row in range(size):
        for column in range(3):
            heaps[plane, row, column] = rows[begin + row, column]


@uncounted
def copy_from_heap(heaps: Any, plane: int, size: int, rows: Any, begin: int) -> None:
    for row in range(size):
        for column in range(3):
            rows[begin + row, column] = heaps[plane, row, column]


@compiled
def copy_rows(at: Any, rows: Any, first: int, last: int, new_at: Any, new_rows: Any) -> Any:
    """Append the rows of the keys from *first* to *last* unchanged. Returns the new rows, possibly in a larger array."""
    begin, put = at[first], new_at[first]
    new_rows = grown(new_rows, put + at[last] - begin)
    new_rows[put : put + at[last] - begin] = rows[begin : at[last]]
    for key in range(first, last):
        new_at[key + 1] = at[key + 1] - begin + put
    return new_rows


@uncounted
def first_relevant(mask: int, bits: Any, begin: int, end: int) -> int:
    """The first event that matters to a key without partial matches: one that can begin one. *end* if there is none."""
    while begin < end and not is_relevant(mask, bits, begin):
        begin += 1
    return begin


@uncounted
def rests(tables: Tables, times: Any, keys: Keys, old: KeyRows, key: int, until: int, nodes: Any, new: KeyRows) -> bool:
    """Whether nothing happens to a key that has partial matches, but no events, until this time; then its rows are copied.

    Most keys of most calls are of this kind.
    """
    states, window, at = tables.states, tables.automata[keys.automaton[key], WINDOW], new.run_at[key]
    n_runs, earliest = old.run_at[key + 1] - old.run_at[key], NEVER
    if tables.flink or until == END_OF_TIME or at + n_runs > len(new.run_rows):
        return False
    for row in range(old.run_at[key], old.run_at[key + 1]):  # as in survey
        first, state = old.run_rows[row, 0], old.run_rows[row, 2]
        if first != NO_EVENT and states[state, KIND] != AT_LAST:
            if window > 0:
                earliest = min(earliest, times[first] + window)
            if states[state, GAP] > 0:
                earliest = min(earliest, times[nodes[old.run_rows[row, 1], 0]] + states[state, GAP])
    if earliest <= until:
        return False
    for row in range(n_runs):
        for column in range(3):
            new.run_rows[at + row, column] = old.run_rows[old.run_at[key] + row, column]
    new.run_at[key + 1], new.waiting_at[key + 1], new.timer_at[key + 1] = (
        at + n_runs,
        new.waiting_at[key],
        new.timer_at[key],
    )
    keys.next_deadline[key], keys.asked_at[key] = earliest, -1
    return True


@uncounted
def advance_some(
    tables: Tables,
    events: Events,
    keys: Keys,
    part: SliceCall,
    first: int,
    matches: Matches,
    buffers: Buffers,
    new: KeyRows,
) -> int:
    """:func:`advance_keys` from the key *first* on, in arrays of fixed sizes.

    Returns the key at which the slice ends. If there is not enough room for a key, returns -1 minus this key, to continue there.
    """
    automata, times, bits, states = tables.automata, events.times, events.bits, tables.states
    automaton, event_at, horizon, next_deadline, failures, asked_at, asked_began = keys
    old, (begins_key, resume_event, resume_began), resume, most, go_on, again, ahead = part
    run_at, run_rows, waiting_at, waiting_rows, timer_at, timer_rows = old
    new_run_at, new_runs, new_waiting_at, new_waiting, new_timer_at, new_timers = new
    heaps, count, timers = matches.heaps, matches.count, buffers.timers
    n_keys = len(horizon)
    for key in range(first, n_keys):
        began = resume_began if key == begins_key else -1
        if key > begins_key and count[N_OUT] + count[N_LOST] + count[N_NODES] >= most:
            resume[RESUME_EVENT] = event_at[key]
            return key
        pattern = automaton[key]
        start = automata[pattern, START_STATE]
        begin, end, until = event_at[key], event_at[key + 1], horizon[key]
        if began >= 0:
            begin = resume_event
        elif again and asked_at[key] >= 0:
            begin, began = asked_at[key], asked_began[key]
        elif again:
            begin, until = end, NO_ADVANCE
        if failures[pattern, FAILED_HOW] != OK:  # check only whether it fails earlier for this key
            until = min(until, failures[pattern, FAILED_AT] - 1)
            while end > begin and times[end - 1] >= failures[pattern, FAILED_AT]:
                end -= 1
        known = (
            run_at[key] < run_at[key + 1] or waiting_at[key] < waiting_at[key + 1] or timer_at[key] < timer_at[key + 1]
        )
        if not known and not tables.flink:
            begin = first_relevant(states[start, RELEVANT], bits, begin, end)
            if begin == end:
                new_run_at[key + 1], new_waiting_at[key + 1] = new_run_at[key], new_waiting_at[key]
                new_timer_at[key + 1], next_deadline[key] = new_timer_at[key], NEVER
                asked_at[key] = -1
                continue
        n_nodes, n_out, n_lost, dropped = count[N_NODES], count[N_OUT], count[N_LOST], count[DROPPED]
        n_runs, n_waiting = run_at[key + 1] - run_at[key], waiting_at[key + 1] - waiting_at[key]
        n_timers = timer_at[key + 1] - timer_at[key]
        if (
            begin == end
            and began < 0
            and n_waiting + n_timers == 0
            and rests(tables, times, keys, old, key, until, matches.nodes, new)
        ):
            continue
        if max(n_runs + 1, n_waiting) > heaps.shape[1]:
            count[SHORT] = NO_HEAP
            return -1 - key
        if n_timers >= len(timers):
            count[SHORT] = NO_TIMERS
            return -1 - key
        count[RUNS] = count[N_DONE] = 0
        count[STATE] = -1
        copy_to_heap(run_rows, run_at[key], n_runs, heaps, 0)
        copy_to_heap(waiting_rows, waiting_at[key], n_waiting, heaps, WAITING)
        if n_runs == 0:  # a key without state is in the start state
            push(heaps, 0, 0, NO_EVENT, -1, start)
            n_runs = 1
        for timer in range(n_timers):
            timers[timer, 0] = timer_rows[timer_at[key] + timer, 0]
        count[N_RUNS], count[N_WAITING], count[N_TIMERS] = n_runs, n_waiting, n_timers
        turn = Turn(key, begin, end, until, began)
        error = advance_key(tables, events, automata[pattern], turn, most, matches, buffers)
        to_front(heaps, count)
        runs, n_runs = count[RUNS], count[N_RUNS]
        if error in (OK, SLICE_FULL, ASKED):
            # After a slice, the key continues with the next one.
            if n_runs == 1 and heaps[runs, 0, 2] == start:
                n_runs = 0
            elif n_runs == 0 and (
                tables.flink or (automata[pattern, SKIP] == FIRST_MATCH_ONLY and (error != OK or until != END_OF_TIME))
            ):
                # Not even the start state is left. A row in the final state, which has no effect, records this.
                heaps[runs, 0, 0], heaps[runs, 0, 1], heaps[runs, 0, 2] = NO_EVENT, -1, automata[pattern, FIRST_STATE]
                n_runs = 1
            if new_run_at[key] + n_runs > len(new_runs):
                count[SHORT], error = NO_NEW_RUNS, NO_ROOM
            elif new_waiting_at[key] + count[N_WAITING] > len(new_waiting):
                count[SHORT], error = NO_NEW_WAITING, NO_ROOM
            elif new_timer_at[key] + count[N_TIMERS] > len(new_timers):
                count[SHORT], error = NO_NEW_TIMERS, NO_ROOM
        if error == NO_ROOM:
            count[N_NODES], count[N_OUT], count[N_LOST], count[DROPPED] = n_nodes, n_out, n_lost, dropped
            return -1 - key
        asked_at[key] = -1
        if error != OK and error != SLICE_FULL and error != ASKED:
            if failures[pattern, FAILED_HOW] == OK or count[TIME] < failures[pattern, FAILED_AT]:
                failures[pattern, FAILED_AT], failures[pattern, FAILED_HOW] = count[TIME], error
                failures[pattern, FAILED_KEY], failures[pattern, FAILED_STATE] = key, count[STATE]
            if not go_on:
                return n_keys
            count[N_NODES], count[N_OUT], count[N_LOST], count[DROPPED] = n_nodes, n_out, n_lost, dropped
            new_run_at[key + 1], new_waiting_at[key + 1] = new_run_at[key], new_waiting_at[key]
            new_timer_at[key + 1], next_deadline[key] = new_timer_at[key], NEVER
            continue

        if error != OK:
            until = NO_ADVANCE
        at = new_run_at[key]
        copy_from_heap(heaps, runs, n_runs, new_runs, at)
        new_run_at[key + 1] = at + n_runs
        at = new_waiting_at[key]
        copy_from_heap(heaps, WAITING, count[N_WAITING], new_waiting, at)
        new_waiting_at[key + 1] = at + count[N_WAITING]
        at = new_timer_at[key]
        next_deadline[key] = NEVER if tables.flink or n_runs == 0 else count[EARLIEST]
        for timer in range(count[N_TIMERS]):
            moment = timers[timer, 0]
            if moment > until and (at == new_timer_at[key] or new_timers[at - 1, 0] != moment):
                new_timers[at, 0] = moment
                at += 1
                next_deadline[key] = min(next_deadline[key], moment)
        new_timer_at[key + 1] = at
        if error == SLICE_FULL:
            resume[RESUME_EVENT], resume[RESUME_BEGAN] = count[EVENT], count[BEGAN]
            return key
        if error == ASKED:
            asked_at[key], asked_began[key] = count[EVENT], count[BEGAN]
            next_events = Turn(key, count[EVENT], min(end, count[EVENT] + ahead), NO_ADVANCE, count[BEGAN])
            look_ahead(tables, events, automata[pattern], next_events, NEVER, matches, buffers)
    return n_keys


@entry
def advance_keys(
    tables: Tables,
    events: Events,
    keys: Keys,
    resume: Any,
    most: int,
    go_on: bool,
    nodes: Any,
    rows: KeyRows,
) -> tuple[Any, int, KeyRows, Any, Any, int]:
    """Process a slice of the new events of each key and advance its time.

    Returns *nodes* in a larger array with the number of them, *rows*, the matches, the timed-out partial matches, and the number
    of partial matches dropped by the limit.

    The call begins at *resume*. After about *most* matches, timed-out partial matches and new nodes it stops and stores in
    *resume* where the next call continues: at key ``len(horizon)`` if everything is done, except for the keys that stopped for an
    answer (``keys.asked_at``), which a call with RESUME_AGAIN continues.

    Failures are stored in ``keys.failures``; the returned arrays must then be discarded. With *go_on*, the earliest failure
    of every pattern is found, otherwise only the first one encountered.
    """
    states, edges, horizon = tables.states, tables.edges, keys.horizon
    run_at, run_rows, waiting_at, waiting_rows, timer_at, timer_rows = rows
    n_nodes = len(nodes)
    nodes = grown(nodes, n_nodes + 64)
    work = np.zeros((5, max(STACK_SIZE, 4 * (len(states) + len(edges)))), np.int64)
    n_keys = len(horizon)
    heaps, timers = np.empty((4, 64, 3), np.int64), np.empty((64, 1), np.int64)
    out, lost = np.empty((256, 3), np.int64), np.empty((256, 3), np.int64)
    count = np.zeros(COUNTS, np.int64)
    count[N_NODES] = n_nodes
    new_run_at, new_waiting_at, new_timer_at = (
        np.zeros(n_keys + 1, np.int64), np.zeros(n_keys + 1, np.int64), np.zeros(n_keys + 1, np.int64),
    )  # fmt: skip
    new_runs, new_waiting = np.empty((len(run_rows) + 64, 3), np.int64), np.empty((len(waiting_rows) + 8, 3), np.int64)
    new_timers = np.empty((len(timer_rows) + 8, 1), np.int64)
    begins_at = (resume[RESUME_KEY], resume[RESUME_EVENT], resume[RESUME_BEGAN])
    part = SliceCall(rows, begins_at, resume, n_nodes + most, go_on, resume[RESUME_AGAIN] != 0, resume[RESUME_AHEAD])
    key, ends_at = begins_at[0], -1
    new_runs = copy_rows(run_at, run_rows, 0, key, new_run_at, new_runs)
    new_waiting = copy_rows(waiting_at, waiting_rows, 0, key, new_waiting_at, new_waiting)
    new_timers = copy_rows(timer_at, timer_rows, 0, key, new_timer_at, new_timers)
    resume[RESUME_EVENT], resume[RESUME_BEGAN] = 0, -1
    while ends_at < 0:
        matches, buffers = Matches(heaps, count, nodes), Buffers(out, lost, timers, work)
        new = KeyRows(new_run_at, new_runs, new_waiting_at, new_waiting, new_timer_at, new_timers)
        ends_at = advance_some(tables, events, keys, part, key, matches, buffers, new)
        if ends_at < 0:
            key = -1 - ends_at
            short = count[SHORT]
            if short == NO_HEAP:
                heaps = np.empty((4, 2 * heaps.shape[1], 3), np.int64)
            elif short == NO_NODES:
                nodes = grown(nodes, 2 * len(nodes))
            elif short == NO_OUT:
                out = grown(out, 2 * len(out))
            elif short == NO_LOST:
                lost = grown(lost, 2 * len(lost))
            elif short == NO_TIMERS:
                timers = grown(timers, 2 * len(timers))
            elif short == NO_NEW_RUNS:
                new_runs = grown(new_runs, 2 * len(new_runs))
            elif short == NO_NEW_WAITING:
                new_waiting = grown(new_waiting, 2 * len(new_waiting))
            else:
                new_timers = grown(new_timers, 2 * len(new_timers))

    resume[RESUME_KEY] = ends_at
    rest = ends_at if resume[RESUME_BEGAN] < 0 else ends_at + 1  # the first key whose state is unchanged
    if rest < n_keys:
        new_runs = copy_rows(run_at, run_rows, rest, n_keys, new_run_at, new_runs)
        new_waiting = copy_rows(waiting_at, waiting_rows, rest, n_keys, new_waiting_at, new_waiting)
        new_timers = copy_rows(timer_at, timer_rows, rest, n_keys, new_timer_at, new_timers)
    new_rows = KeyRows(
        new_run_at, new_runs[: new_run_at[-1]], new_waiting_at, new_waiting[: new_waiting_at[-1]],
        new_timer_at, new_timers[: new_timer_at[-1]],
    )  # fmt: skip
    return nodes, count[N_NODES], new_rows, out[: count[N_OUT]], lost[: count[N_LOST]], count[DROPPED]


# ------------------------------------------------------------------------------------------------ what is remembered


@compiled
def without_unused(nodes: Any, n_nodes: int, run_rows: Any, waiting_rows: Any) -> Any:
    """The nodes that some partial or waiting match refers to, in ascending order, which preserves the order of the nodes.

    Renumbers the rows in place.
    """
    used = np.zeros(n_nodes, np.bool_)
    for rows in (run_rows, waiting_rows):
        for row in range(len(rows)):
            at = rows[row, 1]
            while at >= 0 and not used[at]:
                used[at] = True
                at = nodes[at, 2]
    number = np.cumsum(used) - 1
    kept = np.empty((int(np.sum(used)), 3), np.int64)
    put = 0
    for at in range(n_nodes):
        if used[at]:
            parent = nodes[at, 2]
            kept[put, 0], kept[put, 1] = nodes[at, 0], nodes[at, 1]
            kept[put, 2] = number[parent] if parent >= 0 else -1
            put += 1
    for rows in (run_rows, waiting_rows):
        for row in range(len(rows)):
            if rows[row, 1] >= 0:
                rows[row, 1] = number[rows[row, 1]]
    return kept


kept_nodes = entry(without_unused)


@entry
def compact(n_events: int, nodes: Any, n_nodes: int, run_rows: Any, waiting_rows: Any) -> tuple[Any, Any]:
    """Remove the nodes and events that no partial or waiting match refers to.

    Renumbers the rows in place. Returns the remaining nodes and the numbers of the remaining events, both in ascending order.
    """
    kept = without_unused(nodes, n_nodes, run_rows, waiting_rows)
    used = np.zeros(n_events, np.bool_)
    for node in range(len(kept)):
        used[kept[node, 0]] = True
    number = np.cumsum(used) - 1
    for node in range(len(kept)):
        kept[node, 0] = number[kept[node, 0]]
    for rows in (run_rows, waiting_rows):
        for row in range(len(rows)):
            if rows[row, 1] >= 0:
                rows[row, 0] = number[rows[row, 0]]
    return kept, np.nonzero(used)[0]


@compiled
def take_rows(at: Any, rows: Any, order: Any) -> tuple[Any, Any]:
    """The rows of the keys in *order*, and where those of each of them begin. The key -1 has no rows."""
    new_at = np.zeros(len(order) + 1, np.int64)
    for place in range(len(order)):
        key = order[place]
        new_at[place + 1] = new_at[place] + (at[key + 1] - at[key] if key >= 0 else 0)
    new = np.empty((new_at[-1], rows.shape[1]), np.int64)
    for place in range(len(order)):
        if order[place] >= 0:
            put = new_at[place]
            for row in range(at[order[place]], at[order[place] + 1]):
                for column in range(rows.shape[1]):
                    new[put, column] = rows[row, column]
                put += 1
    return new_at, new


@entry
def rows_of_keys(rows: KeyRows, order: Any) -> KeyRows:
    """The rows of the keys in *order*, as :func:`take_rows`."""
    run_at, run_rows = take_rows(rows.run_at, rows.run_rows, order)
    waiting_at, waiting_rows = take_rows(rows.waiting_at, rows.waiting_rows, order)
    timer_at, timer_rows = take_rows(rows.timer_at, rows.timer_rows, order)
    return KeyRows(run_at, run_rows, waiting_at, waiting_rows, timer_at, timer_rows)


@compiled
def joined_offsets(key_at: Any, parts: Any) -> Any:
    """The offsets of all parts, of each of which *parts* has its own, one after the other."""
    at = np.zeros(key_at[-1] + 1, np.int64)
    for part in range(len(key_at) - 1):
        before = at[key_at[part]]
        for key in range(key_at[part], key_at[part + 1]):
            at[key + 1] = before + parts[key + part + 1]
    return at


@entry
def join(event_at: Any, node_at: Any, key_at: Any, nodes: Any, rows: KeyRows) -> KeyRows:
    """The rows of several parts, the inverse of :func:`divide`. Renumbers the rows and *nodes* in place.

    :param event_at: where the events of each part begin in those of all parts, as *node_at* and *key_at*
    :param rows: those of all parts, one after the other, with the offsets of each part
    """
    run_at, waiting_at = joined_offsets(key_at, rows.run_at), joined_offsets(key_at, rows.waiting_at)
    for part in range(len(key_at) - 1):
        event, node = event_at[part], node_at[part]
        for number in range(node, node_at[part + 1]):
            nodes[number, 0] += event
            if nodes[number, 2] >= 0:
                nodes[number, 2] += node
        for at, some in ((run_at, rows.run_rows), (waiting_at, rows.waiting_rows)):
            for row in range(at[key_at[part]], at[key_at[part + 1]]):
                if some[row, 1] >= 0:
                    some[row, 0] += event
                    some[row, 1] += node
    timer_at = joined_offsets(key_at, rows.timer_at)
    return KeyRows(run_at, rows.run_rows, waiting_at, rows.waiting_rows, timer_at, rows.timer_rows)


@entry
def divide(times: Any, positions: Any, nodes: Any, rows: KeyRows, order: Any, ends: Any) -> tuple[Any, Any, Any, Any]:
    """Parts of the keys, each with its own nodes and events, as one array of numbers.

    For each part, these are the numbers of its keys, events, nodes, and three kinds of rows; for each key the numbers of its
    rows; and then times, positions, nodes and rows. Nodes and rows refer to the nodes and events of their part.

    :param times: those of all events, as *positions*
    :param order: the keys of all parts; those of a part end where *ends* says, which begins with 0
    :returns: where the numbers of each part begin, the numbers, where the events of each part begin, the numbers of the events
    """
    run_at, run_rows = take_rows(rows.run_at, rows.run_rows, order)
    waiting_at, waiting_rows = take_rows(rows.waiting_at, rows.waiting_rows, order)
    timer_at, timer_rows = take_rows(rows.timer_at, rows.timer_rows, order)
    n_events, n_parts = len(times), len(ends) - 1
    at, event_at = np.zeros(n_parts + 1, np.int64), np.zeros(n_parts + 1, np.int64)
    size = n_parts * COUNTS_OF_PART + 3 * (len(order) + len(run_rows) + len(waiting_rows)) + len(timer_rows)
    numbers, events = (
        np.empty((size + 3 * len(nodes) + 2 * n_events + 1, 1), np.int64),
        np.empty((n_events + 1, 1), np.int64),
    )
    node_part, event_part = np.full(len(nodes), -1, np.int64), np.full(n_events, -1, np.int64)
    node_number, event_number = np.empty(len(nodes), np.int64), np.empty(n_events, np.int64)
    used, seen = np.empty(len(nodes), np.int64), np.empty(n_events, np.int64)
    for part in range(n_parts):
        n_used, n_seen, first, last = 0, 0, ends[part], ends[part + 1]
        for of_keys, some in ((run_at, run_rows), (waiting_at, waiting_rows)):
            for row in range(of_keys[first], of_keys[last]):
                node = some[row, 1]
                while node >= 0 and node_part[node] != part:
                    node_part[node], used[n_used] = part, node
                    n_used += 1
                    node = nodes[node, 2]
        of_part = np.sort(used[:n_used])
        for place in range(n_used):
            node_number[of_part[place]] = place
            event = nodes[of_part[place], 0]
            if event_part[event] != part:
                event_part[event], seen[n_seen] = part, event
                n_seen += 1
        events = grown(events, event_at[part] + n_seen)
        events_of_part = np.sort(seen[:n_seen])
        counts = (
            last - first, n_seen, n_used,
            run_at[last] - run_at[first], waiting_at[last] - waiting_at[first], timer_at[last] - timer_at[first],
        )  # fmt: skip
        put = at[part]
        numbers = grown(
            numbers,
            put + COUNTS_OF_PART + 3 * (counts[0] + n_used + counts[3] + counts[4]) + 2 * n_seen + counts[5],
        )
        for place in range(COUNTS_OF_PART):
            numbers[put + place, 0] = counts[place]
        put += COUNTS_OF_PART
        for of_keys in (run_at, waiting_at, timer_at):
            for key in range(first, last):
                numbers[put + key - first, 0] = of_keys[key + 1] - of_keys[key]
            put += last - first
        for place in range(n_seen):
            event = events_of_part[place]
            event_number[event], events[event_at[part] + place, 0] = place, event
            numbers[put + place, 0], numbers[put + n_seen + place, 0] = times[event], positions[event]
        put += 2 * n_seen
        for place in range(n_used):
            node = of_part[place]
            parent = nodes[node, 2]
            numbers[put, 0], numbers[put + 1, 0] = event_number[nodes[node, 0]], nodes[node, 1]
            numbers[put + 2, 0] = node_number[parent] if parent >= 0 else -1
            put += 3
        for of_keys, some in ((run_at, run_rows), (waiting_at, waiting_rows)):
            for row in range(of_keys[first], of_keys[last]):
                has_begun = some[row, 1] >= 0
                numbers[put, 0] = event_number[some[row, 0]] if has_begun else some[row, 0]
                numbers[put + 1, 0] = node_number[some[row, 1]] if has_begun else some[row, 1]
                numbers[put + 2, 0] = some[row, 2]
                put += 3
        for row in range(timer_at[first], timer_at[last]):
            numbers[put, 0] = timer_rows[row, 0]
            put += 1
        at[part + 1], event_at[part + 1] = put, event_at[part] + n_seen
    return at, numbers[: at[-1], 0].copy(), event_at, events[: event_at[-1], 0].copy()


@compiled
def put_counts(numbers: Any, begin: int, at: Any, key: int, n_keys: int) -> None:
    """Append the numbers of rows of some keys to the offsets *at*."""
    for place in range(n_keys):
        at[key + place + 1] = at[key + place] + numbers[begin + place]


@compiled
def put_rows(numbers: Any, begin: int, rows: Any, put: int, count: int, event: int, node: int) -> None:
    """Append *count* rows to *rows*, whose events and nodes come after so many others."""
    for row in range(put, put + count):
        has_begun = numbers[begin + 1] >= 0
        rows[row, 0] = numbers[begin] + (event if has_begun else 0)
        rows[row, 1] = numbers[begin + 1] + (node if has_begun else 0)
        rows[row, 2] = numbers[begin + 2]
        begin += 3


@entry
def together(numbers: Any) -> tuple[Any, Any, Any, KeyRows]:
    """The times, positions, nodes and rows of parts, the inverse of :func:`divide`.

    :param numbers: those of all parts, one after the other
    """
    total = np.zeros(COUNTS_OF_PART, np.int64)
    at = 0
    while at < len(numbers):
        for place in range(COUNTS_OF_PART):
            total[place] += numbers[at + place]
        n_keys, n_events, n_nodes, n_runs, n_waiting, n_timers = numbers[at : at + COUNTS_OF_PART]
        at += COUNTS_OF_PART + 3 * (n_keys + n_nodes + n_runs + n_waiting) + 2 * n_events + n_timers
    times, positions, nodes = (
        np.empty(total[1], np.int64), np.empty(total[1], np.int64), np.empty((total[2], 3), np.int64),
    )  # fmt: skip
    run_at, waiting_at, timer_at = (
        np.zeros(total[0] + 1, np.int64), np.zeros(total[0] + 1, np.int64), np.zeros(total[0] + 1, np.int64),
    )  # fmt: skip
    run_rows, waiting_rows, timer_rows = (
        np.empty((total[3], 3), np.int64), np.empty((total[4], 3), np.int64), np.empty((total[5], 1), np.int64),
    )  # fmt: skip
    at = key = event = node = 0
    while at < len(numbers):
        n_keys, n_events, n_nodes, n_runs, n_waiting, n_timers = numbers[at : at + COUNTS_OF_PART]
        at += COUNTS_OF_PART
        run, waiting, timer = run_at[key], waiting_at[key], timer_at[key]
        for of_keys in (run_at, waiting_at, timer_at):
            put_counts(numbers, at, of_keys, key, n_keys)
            at += n_keys
        for place in range(n_events):
            times[event + place], positions[event + place] = numbers[at + place], numbers[at + n_events + place]
        at += 2 * n_events
        for place in range(node, node + n_nodes):
            parent = numbers[at + 2]
            nodes[place, 0], nodes[place, 1] = numbers[at] + event, numbers[at + 1]
            nodes[place, 2] = parent + node if parent >= 0 else -1
            at += 3
        put_rows(numbers, at, run_rows, run, n_runs, event, node)
        put_rows(numbers, at + 3 * n_runs, waiting_rows, waiting, n_waiting, event, node)
        at += 3 * (n_runs + n_waiting)
        for place in range(n_timers):
            timer_rows[timer + place, 0] = numbers[at + place]
        at += n_timers
        key, event, node = key + n_keys, event + n_events, node + n_nodes
    return times, positions, nodes, KeyRows(run_at, run_rows, waiting_at, waiting_rows, timer_at, timer_rows)


@compiled
def put_narrow(numbers: Any, begin: int, end: int, out: Any, put: int) -> int:
    """Write numbers as words of 32 bits, NO_EVENT as the greatest one. Returns where they end."""
    for at in range(begin, end):
        out[put + at - begin] = 2**31 - 1 if numbers[at] == NO_EVENT else numbers[at]
    return put + end - begin


@compiled
def put_wide(numbers: Any, begin: int, end: int, out: Any, put: int) -> int:
    """Write numbers as two words each, the lower one first. Returns where they end."""
    for at in range(begin, end):
        lower = numbers[at] & 0xFFFFFFFF
        out[put], out[put + 1] = lower - 2**32 if lower >= 2**31 else lower, numbers[at] >> 32
        put += 2
    return put


@compiled
def put_offsets(numbers: Any, begin: int, count: int, out: Any, put: int) -> int:
    """Write the offsets of *count* keys, given their numbers of rows. Returns where they end."""
    out[put] = 0
    for key in range(count):
        out[put + key + 1] = out[put + key] + numbers[begin + key]
    return put + count + 1


@entry
def stored_arrays(numbers: Any) -> tuple[Any, Any]:
    """The sizes of the arrays of a page as it is stored (:class:`~asterism.matching.page.Page`), and these arrays, in words.

    :param numbers: those of one part, see :func:`divide`
    """
    n_keys, n_events, n_nodes, n_runs, n_waiting, n_timers = numbers[:COUNTS_OF_PART]
    sizes = np.array(
        [n_events, n_events, 3 * n_nodes, n_keys + 1, 3 * n_runs, n_keys + 1, 3 * n_waiting, n_keys + 1, n_timers],
        np.int64,
    )
    # Times, waiting rows and timers have two words each.
    out = np.empty(np.sum(sizes) + n_events + 3 * n_waiting + n_timers, np.int32)
    times = COUNTS_OF_PART + 3 * n_keys
    positions, nodes = times + n_events, times + 2 * n_events
    runs = nodes + 3 * n_nodes
    waiting = runs + 3 * n_runs
    timers = waiting + 3 * n_waiting
    put = put_wide(numbers, times, positions, out, 0)
    put = put_narrow(numbers, positions, nodes, out, put)
    put = put_narrow(numbers, nodes, runs, out, put)
    put = put_offsets(numbers, COUNTS_OF_PART, n_keys, out, put)
    put = put_narrow(numbers, runs, waiting, out, put)
    put = put_offsets(numbers, COUNTS_OF_PART + n_keys, n_keys, out, put)
    put = put_wide(numbers, waiting, timers, out, put)
    put = put_offsets(numbers, COUNTS_OF_PART + 2 * n_keys, n_keys, out, put)
    put_wide(numbers, timers, len(numbers), out, put)
    return sizes, out


@entry
def lengths(nodes: Any, last: Any) -> Any:
    """The number of events of the matches that end in the nodes *last*."""
    counts = np.zeros(len(last), np.int64)
    for match in range(len(last)):
        at = last[match]
        while at >= 0:
            counts[match] += 1
            at = nodes[at, 2]
    return counts


@entry
def unfold(nodes: Any, last: Any, offsets: Any) -> tuple[Any, Any]:
    """The events and stages of the matches that end in the nodes *last*, each match in order of acceptance."""
    events, stages = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
    for match in range(len(last)):
        at, put = last[match], offsets[match + 1]
        while at >= 0:
            put -= 1
            events[put], stages[put] = nodes[at, 0], nodes[at, 1]
            at = nodes[at, 2]
    return events, stages
