"""The matching engine's inner loop: arrays in, arrays out, compiled once per machine for all patterns.

What happens is told in :mod:`asterism.nfa` (what a partial match can do) and below (in which order). :mod:`asterism.matcher`
makes the tables and calls :func:`advance_keys`.

* *Events* are numbered by position in a pool: those that the state remembers, then the new ones, by key and time. So the
  number of an event tells the order of processing, and the number of its first event orders partial matches.
* A *partial match* is a row (first event, node, state); the start state's first event is NO_EVENT, so that it sorts last.
* A *node* is a row (event, stage, parent): partial matches that began alike share their beginnings.
* A *finished* match that waits for its emission is a row (first event, node, time of its completion).
* Rows of both kinds live in binary heaps on their first column, which behave like ``java.util.PriorityQueue``, ties
  included: with a skip strategy, ties decide which match survives, and Flink's answers are the specification.
"""

# ruff: noqa: PLR0913, PLR0912, PLR0915 - kernels take flat arrays and avoid calls on the hot path

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from asterism.expressions import Func, Op
from asterism.nfa import Action, StateKind
from asterism.pattern import SkipKind

NO_EVENT = np.int64(2**62)
NEVER = np.int64(2**63 - 1)
NO_ADVANCE = np.int64(-(2**63))
END_OF_TIME = np.int64(2**63 - 1)
BITS = 63  # condition bits per word; the sign bit of a wake mask means "always"

TAKE, IGNORE, PROCEED = int(Action.TAKE), int(Action.IGNORE), int(Action.PROCEED)
START, PENDING, STOP, FINAL = int(StateKind.START), int(StateKind.PENDING), int(StateKind.STOP), int(StateKind.FINAL)
_SKIPS = list(SkipKind)
NO_SKIP, SKIP_TO_NEXT, SKIP_PAST_LAST = (
    _SKIPS.index(SkipKind.NO_SKIP),
    _SKIPS.index(SkipKind.SKIP_TO_NEXT),
    _SKIPS.index(SkipKind.SKIP_PAST_LAST_EVENT),
)
SKIP_TO_FIRST = _SKIPS.index(SkipKind.SKIP_TO_FIRST)

GUARD_NOT, GUARD_AND, GUARD_OR, GUARD_TRUE = -1, -2, -3, -4

OK, DIVISION_BY_ZERO, SKIP_MISSED, SKIP_TO_OWN_FIRST, ENDLESS_PROCEED = 0, 1, 2, 3, 4

# numba compares against plain integers faster than against enum members, and caches better
_O = {op.name: int(op) for op in Op}
CONST, CONST_F, NULL, STRING, SLOT, SLOT_F = _O["CONST"], _O["CONST_F"], _O["NULL"], _O["STRING"], _O["SLOT"], _O["SLOT_F"]
AGG, AGG_F, TO_FLOAT, TO_FLOAT_BELOW = _O["AGG"], _O["AGG_F"], _O["TO_FLOAT"], _O["TO_FLOAT_BELOW"]
ADD, SUB, MUL, NEG, ABS = _O["ADD"], _O["SUB"], _O["MUL"], _O["NEG"], _O["ABS"]
ADD_F, SUB_F, MUL_F, DIV_F, NEG_F, ABS_F = _O["ADD_F"], _O["SUB_F"], _O["MUL_F"], _O["DIV_F"], _O["NEG_F"], _O["ABS_F"]
EQ, LT, LE, EQ_F, LT_F, LE_F = _O["EQ"], _O["LT"], _O["LE"], _O["EQ_F"], _O["LT_F"], _O["LE_F"]
SWAP, NOT, AND, OR, IS_NULL = _O["SWAP"], _O["NOT"], _O["AND"], _O["OR"], _O["IS_NULL"]
COALESCE, COALESCE_F, SELECT, SELECT_F = _O["COALESCE"], _O["COALESCE_F"], _O["SELECT"], _O["SELECT_F"]
FIRST, LAST, SUM, COUNT, AVG, MIN, MAX = (int(func) for func in Func)


class Tables(NamedTuple):
    """A compiled pattern as flat arrays. States and edges as in :class:`asterism.nfa.Nfa`."""

    kind: Any  # int8[state]
    gap: Any  # int64[state], microseconds, 0: none
    wake: Any  # int64[state], bits of the conditions that an event must meet to matter to it; negative: every event matters
    edge_at: Any  # int64[state + 1]
    edge_action: Any
    edge_target: Any
    edge_guard: Any
    edge_stage: Any  # int64[edge], the stage of the state that the edge leaves
    edge_gap: Any  # int64[edge], microseconds, 0: none
    guard_at: Any  # int64[guard + 1], into:
    guard_ops: Any  # int64[...], postfix: a condition's number or one of GUARD_NOT, _AND, _OR, _TRUE; empty: always
    condition_bit: Any  # int64[condition], -1: none
    condition_program: Any  # int64[condition], -1: none
    program_start: Any
    program_end: Any  # int64[program], into:
    ops: Any  # int64[op, 2], see asterism.expressions.Op
    ints: Any
    floats: Any
    aggregates: Any  # int64[aggregate, 4]: function, stage, slot, is the slot floating
    start: int
    window: int  # microseconds, 0: none
    flink: bool
    skip: int
    skip_stage: int
    throw_on_miss: bool


class Events(NamedTuple):
    """The pool of events, columnar."""

    time: Any  # int64[event], microseconds
    bits: Any  # int64[event, word]
    ints: Any  # int64[event, slot]
    floats: Any  # the same memory as doubles
    nulls: Any  # bool[event, slot]
    strings: Any  # int64[constant]: rank of each string constant among all strings of this call


class Scratch(NamedTuple):
    ints: Any
    floats: Any
    nulls: Any
    stack: Any
    edges: Any
    guards: Any


@njit(cache=True)
def make_scratch(states: int, edges: int) -> Scratch:
    return Scratch(
        np.empty(80, np.int64),
        np.empty(80, np.float64),
        np.empty(80, np.bool_),
        np.empty(4 * (states + edges) + 16, np.int64),
        np.empty(4 * edges + 16, np.int64),
        np.empty(256, np.bool_),
    )


# ------------------------------------------------------------------------------------------------ heaps


@njit(cache=True)
def grown(rows: Any, needed: int) -> Any:
    """*rows*, or a larger copy if it holds fewer than *needed*."""
    if needed <= len(rows):
        return rows
    larger = np.empty((max(needed, 2 * len(rows)), rows.shape[1]), np.int64)
    larger[: len(rows)] = rows
    return larger


@njit(cache=True)
def push(heap: Any, size: int, first: int, node: int, last: int) -> None:
    """Add a row; the caller has made room."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if first >= heap[parent, 0]:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at, 0] = first
    heap[at, 1] = node
    heap[at, 2] = last


@njit(cache=True)
def sift_down(heap: Any, size: int, at: int) -> None:
    first, node, last = heap[at, 0], heap[at, 1], heap[at, 2]
    while at < size >> 1:
        child = 2 * at + 1
        if child + 1 < size and heap[child, 0] > heap[child + 1, 0]:
            child += 1
        if first <= heap[child, 0]:
            break
        heap[at] = heap[child]
        at = child
    heap[at, 0] = first
    heap[at, 1] = node
    heap[at, 2] = last


@njit(cache=True)
def drop_head(heap: Any, size: int) -> int:
    """Remove row 0; the new size."""
    size -= 1
    if size > 0:
        heap[0] = heap[size]
        sift_down(heap, size, 0)
    return size


@njit(cache=True)
def discard(heap: Any, size: int, lowest: int, highest: int) -> int:
    """Remove the rows whose first event is in [lowest, highest]; the new size."""
    kept = 0
    for at in range(size):
        if not lowest <= heap[at, 0] <= highest:
            heap[kept] = heap[at]
            kept += 1
    if kept < size:
        for at in range((kept >> 1) - 1, -1, -1):
            sift_down(heap, kept, at)
    return kept


# ------------------------------------------------------------------------------------------------ conditions


@njit(cache=True)
def aggregate(T: Tables, E: Events, number: int, nodes: Any, node: int, S: Scratch, top: int) -> None:
    """Put the value of an aggregate over the events of a stage, in order of acceptance, on the stack at *top*."""
    func, stage, slot, floating = T.aggregates[number, 0], T.aggregates[number, 1], T.aggregates[number, 2], T.aggregates[number, 3]
    S.nulls[top] = False
    found = np.int64(0)
    at = node
    if func == FIRST or func == LAST:
        event = np.int64(-1)
        while at >= 0:
            if nodes[at, 1] == stage:
                event = nodes[at, 0]
                if func == LAST:
                    break
            at = nodes[at, 2]
        if event < 0 or E.nulls[event, slot]:
            S.nulls[top] = True
        elif floating:
            S.floats[top] = E.floats[event, slot]
        else:
            S.ints[top] = E.ints[event, slot]
        return
    while at >= 0:
        if nodes[at, 1] == stage and (slot < 0 or not E.nulls[nodes[at, 0], slot]):
            found += 1
        at = nodes[at, 2]
    if func == COUNT:
        S.ints[top] = found
        return
    if found == 0:
        S.nulls[top] = True
        return
    # Sums of doubles depend on the order of addition: collect from the newest node to the oldest, add up forwards.
    events = np.empty(found, np.int64)
    at = node
    put = found
    while at >= 0:
        if nodes[at, 1] == stage and not E.nulls[nodes[at, 0], slot]:
            put -= 1
            events[put] = nodes[at, 0]
        at = nodes[at, 2]
    if func == AVG or (func == SUM and floating):
        total = 0.0
        for event in events:
            total += E.floats[event, slot] if floating else float(E.ints[event, slot])
        S.floats[top] = total / found if func == AVG else total
    elif func == SUM:
        whole = np.int64(0)
        for event in events:
            whole += E.ints[event, slot]
        S.ints[top] = whole
    elif floating:
        best = E.floats[events[0], slot]
        for event in events:
            value = E.floats[event, slot]
            if (func == MIN and less(value, best)) or (func == MAX and less(best, value)):
                best = value
        S.floats[top] = best
    else:
        best_int = E.ints[events[0], slot]
        for event in events:
            best_int = min(best_int, E.ints[event, slot]) if func == MIN else max(best_int, E.ints[event, slot])
        S.ints[top] = best_int


@njit(cache=True)
def less(a: float, b: float) -> bool:
    """Spark's order of doubles: NaN is equal to itself and larger than everything else."""
    if np.isnan(a):
        return False
    return np.isnan(b) or a < b


@njit(cache=True)
def same(a: float, b: float) -> bool:
    return a == b or (np.isnan(a) and np.isnan(b))


@njit(cache=True)
def run_program(T: Tables, E: Events, program: int, event: int, nodes: Any, node: int, S: Scratch) -> int:
    """1 if the program is TRUE for this event and partial match, 0 if it is FALSE or NULL, -1 on division by zero."""
    ints, floats, nulls = S.ints, S.floats, S.nulls
    n = 0  # values on the stack
    for at in range(T.program_start[program], T.program_end[program]):
        op, k = T.ops[at, 0], T.ops[at, 1]
        if op == CONST:
            ints[n], nulls[n] = T.ints[k], False
            n += 1
        elif op == CONST_F:
            floats[n], nulls[n] = T.floats[k], False
            n += 1
        elif op == NULL:
            ints[n], floats[n], nulls[n] = 0, 0.0, True
            n += 1
        elif op == STRING:
            ints[n], nulls[n] = E.strings[k], False
            n += 1
        elif op == SLOT:
            ints[n], nulls[n] = E.ints[event, k], E.nulls[event, k]
            n += 1
        elif op == SLOT_F:
            floats[n], nulls[n] = E.floats[event, k], E.nulls[event, k]
            n += 1
        elif op == AGG or op == AGG_F:
            aggregate(T, E, k, nodes, node, S, n)
            n += 1
        elif op == TO_FLOAT:
            floats[n - 1] = float(ints[n - 1])
        elif op == TO_FLOAT_BELOW:
            floats[n - 2] = float(ints[n - 2])
        elif op == NEG:
            ints[n - 1] = -ints[n - 1]
        elif op == ABS:
            ints[n - 1] = abs(ints[n - 1])
        elif op == NEG_F:
            floats[n - 1] = -floats[n - 1]
        elif op == ABS_F:
            floats[n - 1] = abs(floats[n - 1])
        elif op == NOT:
            ints[n - 1] = 1 - ints[n - 1]
        elif op == IS_NULL:
            ints[n - 1], nulls[n - 1] = (1 if nulls[n - 1] else 0), False
        elif op == SWAP:
            ints[n - 1], ints[n - 2] = ints[n - 2], ints[n - 1]
            floats[n - 1], floats[n - 2] = floats[n - 2], floats[n - 1]
            nulls[n - 1], nulls[n - 2] = nulls[n - 2], nulls[n - 1]
        elif op == SELECT or op == SELECT_F:
            n -= 2
            from_ = n if (not nulls[n - 1] and ints[n - 1] == 1) else n + 1
            ints[n - 1], floats[n - 1], nulls[n - 1] = ints[from_], floats[from_], nulls[from_]
        else:  # two values to one
            n -= 1
            a, b = n - 1, n
            if op == AND or op == OR:
                decides = 0 if op == AND else 1
                if (not nulls[a] and ints[a] == decides) or (not nulls[b] and ints[b] == decides):
                    ints[a], nulls[a] = decides, False
                elif nulls[a] or nulls[b]:
                    nulls[a] = True
                else:
                    ints[a] = 1 - decides
                continue
            if op == COALESCE or op == COALESCE_F:
                if nulls[a]:
                    ints[a], floats[a], nulls[a] = ints[b], floats[b], nulls[b]
                continue
            if nulls[a] or nulls[b]:
                nulls[a] = True
                continue
            if op == ADD:
                ints[a] += ints[b]
            elif op == SUB:
                ints[a] -= ints[b]
            elif op == MUL:
                ints[a] *= ints[b]
            elif op == ADD_F:
                floats[a] += floats[b]
            elif op == SUB_F:
                floats[a] -= floats[b]
            elif op == MUL_F:
                floats[a] *= floats[b]
            elif op == DIV_F:
                if floats[b] == 0.0:
                    if k == 0:
                        return -1
                    nulls[a] = True
                else:
                    floats[a] /= floats[b]
            elif op == EQ:
                ints[a] = 1 if ints[a] == ints[b] else 0
            elif op == LT:
                ints[a] = 1 if ints[a] < ints[b] else 0
            elif op == LE:
                ints[a] = 1 if ints[a] <= ints[b] else 0
            elif op == EQ_F:
                ints[a] = 1 if same(floats[a], floats[b]) else 0
            elif op == LT_F:
                ints[a] = 1 if less(floats[a], floats[b]) else 0
            elif op == LE_F:
                ints[a] = 0 if less(floats[b], floats[a]) else 1
    return 1 if (not nulls[0] and ints[0] == 1) else 0


@njit(cache=True)
def holds(T: Tables, E: Events, guard: int, event: int, nodes: Any, node: int, S: Scratch) -> int:
    """Does a guard hold for this event and partial match? 1, 0, or -1 on division by zero."""
    begin, end = T.guard_at[guard], T.guard_at[guard + 1]
    n = 0
    for at in range(begin, end):
        op = T.guard_ops[at]
        if op >= 0:
            bit, program = T.condition_bit[op], T.condition_program[op]
            value = bit < 0 or (E.bits[event, bit // BITS] >> (bit % BITS)) & 1 == 1
            if value and program >= 0:
                answer = run_program(T, E, program, event, nodes, node, S)
                if answer < 0:
                    return -1
                value = answer == 1
            S.guards[n] = value
            n += 1
        elif op == GUARD_TRUE:
            S.guards[n] = True
            n += 1
        elif op == GUARD_NOT:
            S.guards[n - 1] = not S.guards[n - 1]
        elif op == GUARD_AND:
            n -= 1
            S.guards[n - 1] = S.guards[n - 1] and S.guards[n]
        else:
            n -= 1
            S.guards[n - 1] = S.guards[n - 1] or S.guards[n]
    return 1 if n == 0 or S.guards[0] else 0


# ------------------------------------------------------------------------------------------------ one event


@njit(cache=True)
def reaches_final(T: Tables, E: Events, state: int, event: int, nodes: Any, node: int, S: Scratch) -> int:
    """Can the final state be reached from *state* by PROCEED edges that hold? 1, 0, or -1 on division by zero."""
    S.stack[0] = state
    n = 1
    while n > 0:
        n -= 1
        at = S.stack[n]
        for edge in range(T.edge_at[at], T.edge_at[at + 1]):
            if T.edge_action[edge] == PROCEED:
                answer = holds(T, E, T.edge_guard[edge], event, nodes, node, S)
                if answer < 0:
                    return -1
                if answer == 1:
                    target = T.edge_target[edge]
                    if T.kind[target] == FINAL:
                        return 1
                    if n >= len(S.stack):
                        return -2
                    S.stack[n] = target
                    n += 1
    return 0


@njit(cache=True)
def step(
    T: Tables, E: Events, event: int, runs: Any, n_runs: int, new: Any, nodes: Any, n_nodes: int, done: Any, S: Scratch
) -> tuple[Any, int, Any, int, Any, int, bool, int]:
    """Show one event to all partial matches of a key.

    Returns the heap of new partial matches, the nodes, the heap of matches that this event finished, whether it began a
    partial match, and an error code.
    """
    n_new = n_done = 0
    began = False
    time = E.time[event]
    for run in range(n_runs):
        first, node, state = runs[run, 0], runs[run, 1], runs[run, 2]
        fresh = first == NO_EVENT
        # Collect the edges that hold; PROCEED edges are followed at once, the last one pushed first.
        stopped = False
        n_edges = 0
        S.stack[0] = state
        n = 1
        while n > 0:
            n -= 1
            at = S.stack[n]
            if T.kind[at] == STOP:
                stopped = True
                continue
            for edge in range(T.edge_at[at], T.edge_at[at + 1]):
                answer = holds(T, E, T.edge_guard[edge], event, nodes, node, S)
                if answer < 0:
                    return new, n_new, nodes, n_nodes, done, n_done, began, DIVISION_BY_ZERO
                if answer == 1:
                    if T.edge_action[edge] == PROCEED:
                        if n >= len(S.stack):
                            return new, n_new, nodes, n_nodes, done, n_done, began, ENDLESS_PROCEED
                        S.stack[n] = T.edge_target[edge]
                        n += 1
                    elif T.edge_gap[edge] == 0 or time - E.time[nodes[node, 0]] < T.edge_gap[edge]:
                        if n_edges >= len(S.edges):
                            return new, n_new, nodes, n_nodes, done, n_done, began, ENDLESS_PROCEED
                        S.edges[n_edges] = edge
                        n_edges += 1
        # Follow them in that order.
        new = grown(new, n_new + n_edges + 1)
        done = grown(done, n_done + 2 * n_edges)
        for which in range(n_edges):
            edge = S.edges[which]
            target = T.edge_target[edge]
            if T.edge_action[edge] == IGNORE:
                if fresh:
                    continue
                if T.kind[target] == FINAL:
                    push(done, n_done, first, node, time)
                    n_done += 1
                elif not stopped:
                    push(new, n_new, first, node, target)
                    n_new += 1
                continue
            # TAKE: the stage is that of the state that the edge leaves, which PROCEED edges may have led to
            nodes = grown(nodes, n_nodes + 1)
            nodes[n_nodes, 0], nodes[n_nodes, 1], nodes[n_nodes, 2] = event, T.edge_stage[edge], node
            begin = event if fresh else first
            began = began or fresh
            if T.kind[target] == FINAL:
                push(done, n_done, begin, n_nodes, time)
                n_done += 1
            else:
                if not stopped:
                    push(new, n_new, begin, n_nodes, target)
                    n_new += 1
                answer = reaches_final(T, E, target, event, nodes, node, S)
                if answer < 0:
                    error = DIVISION_BY_ZERO if answer == -1 else ENDLESS_PROCEED
                    return new, n_new, nodes, n_nodes, done, n_done, began, error
                if answer == 1:
                    push(done, n_done, begin, n_nodes, time)
                    n_done += 1
            n_nodes += 1
        if fresh:
            push(new, n_new, NO_EVENT, -1, T.start)
            n_new += 1
    return new, n_new, nodes, n_nodes, done, n_done, began, OK


# ------------------------------------------------------------------------------------------------ finished matches


@njit(cache=True)
def settle(
    T: Tables, runs: Any, n_runs: int, waiting: Any, n_waiting: int, nodes: Any, key: int, time: int, out: Any, n_out: int
) -> tuple[int, int, Any, int, int]:
    """Emit the finished matches that nothing can discard any more, and discard what the skip strategy says.

    Rows of *out*: key, emission time (*time*, or NO_ADVANCE for the time of completion), time of completion, node.
    """
    # A partial match that began earlier may still finish and discard; one that skips to the next start never can.
    hold = T.skip != NO_SKIP and (T.flink or T.skip != SKIP_TO_NEXT)
    while n_waiting > 0:
        first, node, completed = waiting[0, 0], waiting[0, 1], waiting[0, 2]
        if hold and n_runs > 0 and runs[0, 0] < first:
            break
        n_waiting = drop_head(waiting, n_waiting)
        if T.skip == SKIP_TO_NEXT:
            n_runs = discard(runs, n_runs, first, first)
            n_waiting = discard(waiting, n_waiting, first, first)
        elif T.skip == SKIP_PAST_LAST:
            n_runs = discard(runs, n_runs, -1, nodes[node, 0])
            n_waiting = discard(waiting, n_waiting, -1, nodes[node, 0])
        elif T.skip != NO_SKIP:
            pivot = np.int64(-1)
            at = node
            while at >= 0:
                if nodes[at, 1] == T.skip_stage:
                    pivot = nodes[at, 0]
                    if T.skip != SKIP_TO_FIRST:
                        break
                at = nodes[at, 2]
            if T.throw_on_miss and (pivot < 0 or pivot == first):
                return n_runs, n_waiting, out, n_out, SKIP_MISSED if pivot < 0 else SKIP_TO_OWN_FIRST
            if pivot >= 0:
                n_runs = discard(runs, n_runs, -1, pivot - 1)
                n_waiting = discard(waiting, n_waiting, -1, pivot - 1)
        out = grown(out, n_out + 1)
        out[n_out, 0], out[n_out, 1], out[n_out, 2], out[n_out, 3] = key, completed if time == NO_ADVANCE else time, completed, node
        n_out += 1
    return n_runs, n_waiting, out, n_out, OK


# ------------------------------------------------------------------------------------------------ time


@njit(cache=True)
def survey(T: Tables, E: Events, runs: Any, n_runs: int, nodes: Any) -> tuple[int, int]:
    """(earliest deadline, which events matter) over the partial matches of a key."""
    earliest = NEVER
    wake = np.int64(0)
    for run in range(n_runs):
        first, node, state = runs[run, 0], runs[run, 1], runs[run, 2]
        wake |= T.wake[state]
        if first != NO_EVENT:
            if T.window > 0:
                earliest = min(earliest, E.time[first] + T.window)
            if T.gap[state] > 0:
                earliest = min(earliest, E.time[nodes[node, 0]] + T.gap[state])
    return earliest, wake


@njit(cache=True)
def expire(
    T: Tables, E: Events, runs: Any, n_runs: int, new: Any, nodes: Any, done: Any, key: int, time: int, lost: Any, n_lost: int
) -> tuple[Any, int, Any, int, Any, int]:
    """Take out the partial matches that are out of time at *time*.

    One that was only waiting for an absence is finished; any other goes to *lost*: key, its deadline, the same, node.
    """
    new = grown(new, n_runs)
    done = grown(done, n_runs)
    n_new = n_done = 0
    for run in range(n_runs):
        first, node, state = runs[run, 0], runs[run, 1], runs[run, 2]
        by_window = by_gap = NEVER
        if first != NO_EVENT:
            if T.window > 0:
                by_window = E.time[first] + T.window
            if T.gap[state] > 0:
                by_gap = E.time[nodes[node, 0]] + T.gap[state]
        deadline = min(by_window, by_gap)
        if deadline > time or deadline == NEVER:
            push(new, n_new, first, node, state)
            n_new += 1
        elif T.kind[state] == PENDING:
            push(done, n_done, first, node, time)
            n_done += 1
        else:
            lost = grown(lost, n_lost + 1)
            deadline = by_gap if by_gap <= time and by_gap != NEVER else by_window
            lost[n_lost, 0], lost[n_lost, 1], lost[n_lost, 2], lost[n_lost, 3] = key, deadline, deadline, node
            n_lost += 1
    return new, n_new, done, n_done, lost, n_lost


# ------------------------------------------------------------------------------------------------ all keys


@njit(cache=True)
def advance_keys(
    T: Tables,
    E: Events,
    event_at: Any,
    horizon: Any,
    nodes: Any,
    n_nodes: int,
    run_at: Any,
    run_rows: Any,
    waiting_at: Any,
    waiting_rows: Any,
    timer_at: Any,
    timer_rows: Any,
) -> tuple[Any, ...]:
    """Feed each key its new events and advance its time.

    Key *k* has the events ``event_at[k]`` up to ``event_at[k + 1]``, by time, and afterwards its time becomes
    ``horizon[k]`` (NO_ADVANCE: it does not advance beyond its events); its partial matches, waiting matches and timers are
    the rows ``*_at[k]`` up to ``*_at[k + 1]``. The same arrays come back, with the next deadline of each key, the
    matches, the timed-out partial matches, and (error code, event, key).
    """
    n_keys = len(horizon)
    S = make_scratch(len(T.kind), len(T.edge_action))
    runs, new = np.empty((64, 3), np.int64), np.empty((64, 3), np.int64)
    done, waiting = np.empty((64, 3), np.int64), np.empty((64, 3), np.int64)
    timers = np.empty((64, 1), np.int64)
    out, lost = np.empty((256, 4), np.int64), np.empty((256, 4), np.int64)
    n_out = n_lost = 0
    new_run_at, new_waiting_at, new_timer_at = np.zeros(n_keys + 1, np.int64), np.zeros(n_keys + 1, np.int64), np.zeros(n_keys + 1, np.int64)
    new_run_rows, new_waiting_rows = np.empty((len(run_rows) + 64, 3), np.int64), np.empty((len(waiting_rows) + 8, 3), np.int64)
    new_timer_rows = np.empty((len(timer_rows) + 8, 1), np.int64)
    n_new_run_rows = n_new_waiting_rows = n_new_timer_rows = 0
    wake_at = np.empty(n_keys, np.int64)
    error, error_event, error_key = OK, np.int64(-1), np.int64(-1)
    words = E.bits.shape[1]

    for key in range(n_keys):
        until = horizon[key]
        # load
        n_runs = run_at[key + 1] - run_at[key]
        runs = grown(runs, n_runs + 1)
        runs[:n_runs] = run_rows[run_at[key] : run_at[key + 1]]
        if n_runs == 0:  # a key without state is a key at the start state
            push(runs, 0, NO_EVENT, -1, T.start)
            n_runs = 1
        n_waiting = waiting_at[key + 1] - waiting_at[key]
        waiting = grown(waiting, n_waiting + 1)
        waiting[:n_waiting] = waiting_rows[waiting_at[key] : waiting_at[key + 1]]
        n_timers = timer_at[key + 1] - timer_at[key]
        timers = grown(timers, n_timers + 1)
        timers[:n_timers] = timer_rows[timer_at[key] : timer_at[key + 1]]
        earliest, wake = survey(T, E, runs, n_runs, nodes)
        began = False

        # the events, then the horizon (one step further in the same loop, without an event)
        begin, end = event_at[key], event_at[key + 1]
        due = begin < end
        for at in range(n_timers):
            due = due or timers[at, 0] <= until
        for event in range(begin, end + 1):
            at_horizon = event == end
            if at_horizon and (until == NO_ADVANCE or (T.flink and not due)):
                # Flink: without a timer that is due, a watermark does nothing at all.
                break
            time = until if at_horizon else E.time[event]
            while earliest <= time and earliest != NEVER:
                # By default time goes from deadline to deadline, whatever the watermarks; in Flink it jumps.
                moment = time if T.flink else earliest
                new, n_new, done, n_done, lost, n_lost = expire(T, E, runs, n_runs, new, nodes, done, key, moment, lost, n_lost)
                runs, new = new, runs
                n_runs = n_new
                waiting = grown(waiting, n_waiting + n_done)
                for row in range(n_done):
                    push(waiting, n_waiting, done[row, 0], done[row, 1], done[row, 2])
                    n_waiting += 1
                n_runs, n_waiting, out, n_out, error = settle(T, runs, n_runs, waiting, n_waiting, nodes, key, moment, out, n_out)
                earliest, wake = survey(T, E, runs, n_runs, nodes)
                if error != OK:
                    break
            if at_horizon or error != OK:
                break
            # Most events matter to nobody: one test passes over them.
            bits = E.bits[event, 0]
            for word in range(1, words):
                bits |= E.bits[event, word]
            if wake < 0 or bits & wake != 0:
                new, n_new, nodes, n_nodes, done, n_done, first_taken, error = step(
                    T, E, event, runs, n_runs, new, nodes, n_nodes, done, S
                )
                if error != OK:
                    error_event, error_key = event, key
                    break
                began = began or (first_taken and time > 0)
                runs, new = new, runs
                n_runs = n_new
                waiting = grown(waiting, n_waiting + n_done)
                for row in range(n_done):
                    push(waiting, n_waiting, done[row, 0], done[row, 1], done[row, 2])
                    n_waiting += 1
                if n_waiting > 0:
                    n_runs, n_waiting, out, n_out, error = settle(T, runs, n_runs, waiting, n_waiting, nodes, key, time, out, n_out)
                earliest, wake = survey(T, E, runs, n_runs, nodes)
                if error != OK:
                    error_event, error_key = event, key
                    break
            if T.flink and began and T.window > 0:
                timers = grown(timers, n_timers + 1)
                timers[n_timers, 0] = time + T.window
                n_timers += 1
        if error != OK:
            error_key = key
            break
        if until == END_OF_TIME and not T.flink:
            # Nothing can come any more: partial matches without a deadline end, and what they held back comes out.
            n_runs = 0
            n_runs, n_waiting, out, n_out, error = settle(T, runs, n_runs, waiting, n_waiting, nodes, key, NO_ADVANCE, out, n_out)
            earliest = NEVER
            if error != OK:
                error_key = key
                break

        # store
        if n_runs == 1 and runs[0, 0] == NO_EVENT:
            n_runs = 0
        new_run_rows = grown(new_run_rows, n_new_run_rows + n_runs)
        new_run_rows[n_new_run_rows : n_new_run_rows + n_runs] = runs[:n_runs]
        n_new_run_rows += n_runs
        new_waiting_rows = grown(new_waiting_rows, n_new_waiting_rows + n_waiting)
        new_waiting_rows[n_new_waiting_rows : n_new_waiting_rows + n_waiting] = waiting[:n_waiting]
        n_new_waiting_rows += n_waiting
        if T.flink:
            earliest = NEVER
            new_timer_rows = grown(new_timer_rows, n_new_timer_rows + n_timers)
            for at in range(n_timers):
                moment = timers[at, 0]
                if moment > until and (n_new_timer_rows == new_timer_at[key] or new_timer_rows[n_new_timer_rows - 1, 0] != moment):
                    new_timer_rows[n_new_timer_rows, 0] = moment
                    n_new_timer_rows += 1
                    earliest = min(earliest, moment)
        wake_at[key] = earliest
        new_run_at[key + 1], new_waiting_at[key + 1], new_timer_at[key + 1] = n_new_run_rows, n_new_waiting_rows, n_new_timer_rows

    return (
        nodes,
        n_nodes,
        new_run_at,
        new_run_rows[:n_new_run_rows],
        new_waiting_at,
        new_waiting_rows[:n_new_waiting_rows],
        new_timer_at,
        new_timer_rows[:n_new_timer_rows],
        wake_at,
        out[:n_out],
        lost[:n_lost],
        (error, error_event, error_key),
    )


# ------------------------------------------------------------------------------------------------ what is remembered


@njit(cache=True)
def compact(n_events: int, nodes: Any, n_nodes: int, run_rows: Any, waiting_rows: Any) -> tuple[Any, Any]:
    """Forget the nodes and events that no partial or waiting match refers to.

    Rows are renumbered in place. Returns the remaining nodes and the numbers of the remaining events, both ascending, so
    that order keeps its meaning.
    """
    node_used, event_used = np.zeros(n_nodes, np.bool_), np.zeros(n_events, np.bool_)
    for rows in (run_rows, waiting_rows):
        for row in range(len(rows)):
            at = rows[row, 1]
            while at >= 0 and not node_used[at]:
                node_used[at] = True
                event_used[nodes[at, 0]] = True
                at = nodes[at, 2]
    node_number, event_number = np.cumsum(node_used) - 1, np.cumsum(event_used) - 1
    kept = np.empty((np.sum(node_used), 3), np.int64)
    put = 0
    for at in range(n_nodes):
        if node_used[at]:
            parent = nodes[at, 2]
            kept[put, 0], kept[put, 1] = event_number[nodes[at, 0]], nodes[at, 1]
            kept[put, 2] = node_number[parent] if parent >= 0 else -1
            put += 1
    for rows in (run_rows, waiting_rows):
        for row in range(len(rows)):
            if rows[row, 1] >= 0:
                rows[row, 0] = event_number[rows[row, 0]]
                rows[row, 1] = node_number[rows[row, 1]]
    return kept, np.nonzero(event_used)[0]


@njit(cache=True)
def unfold(nodes: Any, last: Any) -> tuple[Any, Any, Any]:
    """The events of matches that end in the nodes *last*: (offsets, events, stages), each match in order of acceptance."""
    offsets = np.zeros(len(last) + 1, np.int64)
    for match in range(len(last)):
        at, length = last[match], 0
        while at >= 0:
            length += 1
            at = nodes[at, 2]
        offsets[match + 1] = offsets[match] + length
    events, stages = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
    for match in range(len(last)):
        at, put = last[match], offsets[match + 1]
        while at >= 0:
            put -= 1
            events[put], stages[put] = nodes[at, 0], nodes[at, 1]
            at = nodes[at, 2]
    return offsets, events, stages
