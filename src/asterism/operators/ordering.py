"""The order in which a user-defined operator processes elements and timers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.operators.context import Element
from asterism.operators.runtime import NONE, Arrived, BroadcastLoad, Runtime, Waiting
from asterism.operators.state.broadcast_state import BroadcastState

# ---------------------------------------------------------------------- processing order


def run(
    runtime: Runtime, arrived: Sequence[Arrived], horizon: int, waiting: Waiting | None, broadcast: BroadcastState
) -> None:
    """Process all elements that have arrived, and fire all timers up to *horizon*."""
    runtime.left, runtime.waiting = {part.spec.name: len(part.times) for part in arrived}, waiting
    runtime.load_timers(horizon)
    if runtime.now != END_OF_TIME:  # at the end of input, processing time advances after event time
        runtime.fire_processing_time_timers()
    batches = any("process_batch" in part.spec.functions for part in arrived if not part.spec.broadcast)
    order = _in_order(arrived)
    order = order[_load(runtime, arrived, order, broadcast) :]
    if batches:
        _in_runs(runtime, arrived, order)
    else:
        _process_in_order(runtime, arrived, order, waiting)
    limit = min(horizon, END_OF_TIME - 1) + 1
    if horizon != END_OF_TIME:
        runtime.fire_before(limit)
        runtime.time = max(runtime.time, horizon)
    if waiting is not None:  # at the end of input, buffered elements come before the remaining timers
        for key in list(waiting.elements):
            waiting.drain(runtime, key)
    fire_due(runtime, horizon)


def fire_due(runtime: Runtime, horizon: int) -> None:
    """Fire all timers up to *horizon*, when no elements are left; at the end of the input all timers."""
    runtime.only_timers = runtime.now == END_OF_TIME
    runtime.fire_all(min(horizon, END_OF_TIME - 1) + 1)
    runtime.time = max(runtime.time, horizon)


def _in_order(arrived: Sequence[Arrived]) -> npt.NDArray[np.int64]:
    """The indexes (part, row) of all elements, in processing order."""
    part = np.concatenate(
        [np.full(len(a.times), n, np.int64) for n, a in enumerate(arrived)] or [np.empty(0, np.int64)]
    )
    row = np.concatenate([np.arange(len(a.times)) for a in arrived] or [np.empty(0, np.int64)])
    times = np.concatenate([a.times for a in arrived] or [np.empty(0, np.int64)])
    rank = np.array([(not a.spec.broadcast, n) for n, a in enumerate(arrived)], np.int64).reshape(-1, 2)
    order = np.lexsort((row, rank[part, 1], rank[part, 0], times))
    return np.stack([part[order], row[order]], axis=1)


class _Ordered:
    """Elements in their processing order.

    :param order: for each the number of its input, and its row
    :ivar elements: those of each input whose function gets them one by one, by row
    """

    def __init__(self, arrived: Sequence[Arrived], order: npt.NDArray[np.int64]) -> None:
        self._arrived, self._order = arrived, order
        by_batch = ["process_batch" in part.spec.functions for part in arrived]
        numbers = np.flatnonzero(np.bincount(order[:, 0], minlength=len(arrived))).tolist()
        self.elements = {number: arrived[number].elements() for number in numbers if not by_batch[number]}
        self._ends: Ints = NONE
        """The indexes at which the elements of one input and one time end, if a broadcast input needs them."""
        if any(part.spec.broadcast and by_batch[number] for number, part in enumerate(arrived)):
            parts, times = order[:, 0], _of_order(order, [part.times for part in arrived])
            ends = np.flatnonzero((parts[1:] != parts[:-1]) | (times[1:] != times[:-1])) + 1
            self._ends = np.append(ends, len(order))

    def broadcast(self, runtime: Runtime, at: int) -> int:
        """Process the elements of a broadcast input from index *at* that its function gets in one call, and return their number.
        A function that processes batches gets all with the same time, since in no key group other elements can come between them.
        """
        number, row = self._order[at].tolist()
        part, count = self._arrived[number], 1
        if number in self.elements:
            time = int(part.times[row])
            runtime.element(part.spec, self.elements[number][row], None if time == BEFORE_TIME else time, None)
        else:
            rows = self._order[at : self._ends[np.searchsorted(self._ends, at, side="right")], 1]
            runtime.batch(part.spec, part.rows.take(pa.array(rows)), NONE, NONE)
            count = len(rows)
        runtime.left[part.spec.name] -= count
        return count


def _load(runtime: Runtime, arrived: Sequence[Arrived], order: npt.NDArray[np.int64], broadcast: BroadcastState) -> int:
    """Process the elements of broadcast inputs that come before all others, and before all timers, and return their number."""
    is_keyed = np.array([not part.spec.broadcast for part in arrived], np.bool_)[order[:, 0]]
    count = int(np.argmax(is_keyed)) if is_keyed.any() else len(order)
    lead = order[:count]
    if not count:
        return 0
    number, row = lead[-1].tolist()
    if runtime.heap and runtime.heap[0][0] < arrived[number].times[row]:
        return 0
    ended = frozenset(name for name in runtime.inputs if runtime.ended(name))
    situation = broadcast.index, runtime.time, runtime.processing_time, ended, count
    parts = {part.spec.name: (part.rows, part.times) for part in arrived if part.spec.broadcast}
    known = runtime.load
    # The first key group always calls the functions, because it emits the rows of all key groups.
    if known is not None and not runtime.is_first and known.is_of(situation, parts):
        broadcast.take_over(known.after)
        runtime.time = known.time
        for part, taken in zip(arrived, np.bincount(lead[:, 0], minlength=len(arrived)).tolist(), strict=True):
            runtime.left[part.spec.name] -= taken
        return count
    runtime.knew_keys = False
    steps = _Ordered(arrived, lead)
    at = 0
    while at < count:
        at += steps.broadcast(runtime, at)
    runtime.load = BroadcastLoad(situation, parts, broadcast.changes(), runtime.time) if not runtime.knew_keys else None
    return count


def _process_in_order(
    runtime: Runtime, arrived: Sequence[Arrived], order: npt.NDArray[np.int64], waiting: Waiting | None
) -> None:
    ordered = _Ordered(arrived, order)
    elements = ordered.elements
    numbers, rows = order[:, 0].tolist(), order[:, 1].tolist()
    inputs = [part.spec for part in arrived]
    times = _of_order(order, [part.times for part in arrived]).tolist()
    keys = _of_order(order, [part.keys for part in arrived]).tolist()
    of_order = [elements[n][row] if n in elements else _NO_ELEMENT for n, row in zip(numbers, rows, strict=True)]
    at = 0
    while at < len(numbers):
        part, time, key = arrived[numbers[at]], times[at], keys[at]
        if runtime.heap:
            runtime.fire_before(time)
        if part.spec.broadcast:
            at += ordered.broadcast(runtime, at)
        elif waiting is None:
            at = runtime.keyed_elements(inputs, numbers, times, keys, of_order, at)
        else:
            runtime.settle_waiting(key, time)
            waiting.add(key, part.spec, None if time == BEFORE_TIME else time, of_order[at])
            runtime.left[part.spec.name] -= 1
            waiting.drain(runtime, key)
            at += 1


_NO_ELEMENT = Element()
"""Stands for the elements of a broadcast input whose function processes batches."""


def _of_order(order: npt.NDArray[np.int64], columns: Sequence[Ints]) -> Ints:
    """The values of the elements in the *order*, from a column of each input."""
    values = np.empty(len(order), np.int64)
    for number, column in enumerate(columns):
        of_input = order[:, 0] == number
        values[of_input] = column[order[of_input, 1]]
    return values


def _in_runs(runtime: Runtime, arrived: Sequence[Arrived], order: npt.NDArray[np.int64]) -> None:
    ordered = _Ordered(arrived, order)
    is_broadcast = np.array([part.spec.broadcast for part in arrived], np.bool_)[order[:, 0]]
    at = 0
    while at < len(order):
        if is_broadcast[at]:
            number, row = order[at].tolist()
            runtime.fire_before(int(arrived[number].times[row]))
            at += ordered.broadcast(runtime, at)
            continue
        following = np.flatnonzero(is_broadcast[at:])
        end = at + int(following[0]) if len(following) else len(order)
        # Until the next broadcast element, time advances separately for each key.
        begun = runtime.time
        for number, rows in _runs(arrived, order[at:end]):
            part = arrived[number]
            if number in ordered.elements:
                for row, time, key in zip(
                    rows.tolist(), part.times[rows].tolist(), part.keys[rows].tolist(), strict=True
                ):
                    runtime.time = begun
                    runtime.fire_key_before(key, time)
                    runtime.element(
                        part.spec, ordered.elements[number][row], None if time == BEFORE_TIME else time, key
                    )
            else:
                _run_of_batch(runtime, part, rows, begun)
            runtime.left[part.spec.name] -= len(rows)
        number, row = order[end - 1].tolist()
        last = int(arrived[number].times[row])
        runtime.time = begun
        runtime.fire_before(last)
        runtime.time = max(runtime.time, last - 1)
        at = end


def _run_of_batch(runtime: Runtime, part: Arrived, rows: Ints, begun: int) -> None:
    """Process a run with its function, divided where timers of its keys fire in between."""
    while len(rows):
        keys, times = part.keys[rows], part.times[rows]
        now = np.ones(len(rows), np.bool_)
        if runtime.heap:
            first = dict(zip(keys[::-1].tolist(), times[::-1].tolist(), strict=True))
            for key, time in first.items():
                runtime.time = begun
                runtime.fire_key_before(key, time)
            limits = {key: runtime.next_timer(key)[0] for key in first}
            now = times <= np.array([limits[key] for key in keys.tolist()], np.int64)
        runtime.time = begun
        before_timers = rows[now]
        runtime.batch(part.spec, part.rows.take(pa.array(before_timers)), keys[now], times[now])
        rows = rows[~now]


def _runs(arrived: Sequence[Arrived], order: npt.NDArray[np.int64]) -> Iterator[tuple[int, Ints]]:
    """The elements of keyed inputs as (input, rows): first the first run of every key, then the second run, and so on."""
    parts, rows = order[:, 0], order[:, 1]
    if len(np.unique(parts)) == 1:
        yield int(parts[0]), rows
        return
    keys = np.empty(len(order), np.int64)
    for number, part in enumerate(arrived):
        of_part = parts == number
        keys[of_part] = part.keys[rows[of_part]]
    by_key = np.argsort(keys, kind="stable")
    sorted_keys, sorted_parts = keys[by_key], parts[by_key]
    new_key = np.concatenate([[True], sorted_keys[1:] != sorted_keys[:-1]])
    new_run = new_key | np.concatenate([[True], sorted_parts[1:] != sorted_parts[:-1]])
    runs = np.cumsum(new_run)
    number_in_key = runs - runs[np.maximum.accumulate(np.where(new_key, np.arange(len(keys)), 0))]
    run_of = np.empty(len(order), np.int64)
    run_of[by_key] = number_in_key
    for turn in range(int(run_of.max()) + 1):
        for number in range(len(arrived)):
            is_selected = (run_of == turn) & (parts == number)
            if is_selected.any():
                yield number, rows[is_selected]
