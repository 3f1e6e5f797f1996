"""Runs a user-defined operator in one call, with its states, timers and outputs."""

from __future__ import annotations

import copy
import heapq
from collections import Counter as Counts
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from asterism.arguments import described, function_name, shown
from asterism.columns.arrays import Ints, python_values
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, to_datetime
from asterism.errors import OperatorError, UserFunctionError
from asterism.operators.context import EVENT, ON_TIMER, PROCESSING, Context, Element, Timer
from asterism.operators.state.keyed_state import State, StateEntries, StateKind, StateSpec, StateTable
from asterism.operators.stream_operator import WHEN, Input, StreamOperator
from asterism.operators.tools import Tools

TIMERS = StateSpec("timers", StateKind.MAP, pa.int64(), pa.string(), None, broadcast=False)
ENDLESS = 10_000
"""How often a timer of a key may fire in one call without a later time, or after the end of all inputs. A timer that fires
more
often is considered an endless loop."""


NONE: Ints = np.empty(0, np.int64)


# ---------------------------------------------------------------------- a call


@dataclass(slots=True)
class Arrived:
    """Ready elements of one input: the declared columns, their times and the indexes of their keys (broadcast: -1)."""

    spec: Input
    rows: pa.Table
    times: Ints
    keys: Ints

    def elements(self) -> list[Element]:
        new_elements = [Element() for _ in range(self.rows.num_rows)]
        for name, column in zip(self.rows.column_names, self.rows.columns, strict=True):
            # This is faster than Element(zip(...)).
            for element, value in zip(new_elements, python_values(column), strict=True):
                element[name] = value
        return new_elements


@dataclass(frozen=True, slots=True)
class BroadcastLoad:
    """The elements of broadcast inputs that come first in a call, and their effects. All key groups get the same ones, and their
    functions, which cannot know the key group, make the same broadcast state of them. So a process calls these functions for one
    key group, and the others take over the state.

    :ivar situation: everything that the functions can read besides the elements, and the number of elements
    :ivar parts: all elements of broadcast inputs with their times, by input
    :ivar after: the entries of the states that changed
    :ivar time: the time after them
    """

    situation: tuple[object, ...]
    parts: Mapping[str, tuple[pa.Table, Ints]]
    after: Mapping[str, Any]
    time: int

    def is_of(self, situation: tuple[object, ...], parts: Mapping[str, tuple[pa.Table, Ints]]) -> bool:
        """Whether it is of the same elements in the same situation."""
        return (
            (self.situation, self.parts.keys()) == (situation, parts.keys())
            and all(np.array_equal(times, parts[name][1]) for name, (_, times) in self.parts.items())
            and all(rows.equals(parts[name][0]) for name, (rows, _) in self.parts.items())
        )


class Runtime:
    """The execution of an operator in one call: the current element, key and time."""

    kind, when = "operator", WHEN

    def __init__(self, operator: StreamOperator, event_time: bool) -> None:
        # A copy, since functions may set attributes of the operator, which must be discarded with this object.
        operator = self.operator = copy.copy(operator)
        self.event_time = event_time
        self.ctx = Context(self)
        self.states = {name: state.bound(self) for name, state in operator.declared(State).items()}
        operator.__dict__["_states"] = self.states
        self.tools = Tools(self)
        self.inputs: dict[str, Input] = operator.declared(Input)
        self.input_name: str | None = None
        self.timer_name: str | None = None
        self.writes_broadcast = False
        self.visits_keys = False
        """Whether the current function may visit all keys."""
        self.is_first = True
        """Whether this is the key group that emits what all key groups compute."""
        self.knows_keys: str | None = None
        """The call that gave the function of a broadcast input data that differs between key groups."""
        self.knew_keys = False
        """Whether there was such a call since this was last set."""
        self.load: BroadcastLoad | None = None
        """The last load of broadcast elements, by any key group."""
        self.failed_at: tuple[Exception, int | None] | None = None
        """The exception during a visit of all keys, and the key."""
        self.key_number: int | None = None
        self.element_time: int | None = None
        self.batch_keys = self.batch_times = NONE
        self.processing_time = 0
        self.running = False
        self.answers = {
            domain: getattr(type(operator), method) is not getattr(StreamOperator, method)
            for domain, method in ON_TIMER.items()
        }
        """Whether there is a function for timers, by time domain."""

    def begin(
        self,
        tables: Mapping[str, StateTable],
        broadcast: Mapping[str, StateEntries],
        timers: StateTable,
        keys: pa.Table,
        *,
        before: int,
        now: int,
        ended: Callable[[str], bool],
        is_first: bool,
    ) -> None:
        self.tools.reset()
        for name, state in self.states.items():
            state.attach(broadcast.get(name) if state.broadcast else tables.get(name))
        self.running, self.key_number, self.writes_broadcast, self.knows_keys = True, None, False, None
        self.visits_keys = False
        self.tables, self.timer_table, self.key_table = tables, timers, keys
        self.now, self.ended, self.is_first = now, ended, is_first
        self.left: dict[str, int] = {}
        self.waiting: Waiting | None = None
        self.time = before if self.event_time else self.processing_time
        self.heap: list[tuple[int, int, str]] = []
        self.horizon = before
        self.last_fired: dict[tuple[int, str], int] = {}
        self.repeated: Counts[tuple[int, str]] = Counts()
        self.only_timers = False
        """Whether all inputs have ended and only timers are left."""
        self._key_values: list[Any] | None = None

    def finish(self) -> None:
        """Detach the state at the end of a call."""
        self.running = False
        for state in self.states.values():
            state.attach(None)

    # ------------------------------------------------------------------ keys

    def key_value(self) -> Any:
        if self.key_number is None:
            raise OperatorError(
                "there is no current key",
                hint="elements of broadcast inputs, late elements, batches, watermarks and the end of an input have no key",
            )
        if self._key_values is None:
            if not self.key_table.num_columns:
                return None
            rows = self.key_table.to_pylist()
            single = self.key_table.num_columns == 1
            self._key_values = [next(iter(row.values())) if single else Element(row) for row in rows]
        return self._key_values[self.key_number]

    def key_for(self, what: str) -> int:
        if self.key_number is None:
            raise OperatorError(
                f"{what} belongs to a key, but there is no current key",
                hint="in batches use the columns of a state; from a broadcast input use ctx.apply_to_keyed_state",
            )
        return self.key_number

    def check_broadcast(self, spec: StateSpec) -> None:
        if not self.writes_broadcast:
            raise OperatorError(
                f'the broadcast state "{spec.name}" cannot be changed here',
                "Only elements of broadcast inputs may change it: every key group receives them, so all have the same state.",
                None if self.knows_keys is None else f"change it before {self.knows_keys}",
            )
        if self.knows_keys is not None:
            raise OperatorError(
                f'the broadcast state "{spec.name}" cannot be changed after {self.knows_keys}',
                "Its result differs between key groups, but broadcast state must not.",
                "change it before",
            )

    @property
    def repeats(self) -> bool:
        """Whether another key group emits the same rows: this is the function of a broadcast input, has not yet read anything
        that belongs to a key group, and is not in the first one.
        """
        return self.writes_broadcast and self.knows_keys is None and not self.is_first

    def see_keys(self, keys: Ints, how: str) -> None:
        """Record that a function reads data of *keys*, which are specific to this key group."""
        if self.writes_broadcast and len(keys):
            self.knows_keys = how

    def apply_to_keyed_state(self, state: State, function: Callable[[Any, Any], object]) -> None:
        if not self.visits_keys:
            raise OperatorError(
                "only a function of a broadcast input or of the end of an input may visit all keys",
                hint="use it in process_element or process_batch of a broadcast input, or in end_input",
            )
        if not isinstance(state, State) or state.broadcast or self.states.get(state.name) is not state:
            raise OperatorError(
                f"not a keyed state of this operator: {getattr(state, 'name', state)!r}", hint="self.<name of a state>"
            )
        self.knows_keys = "ctx.apply_to_keyed_state"
        rows = self.tables[state.name].settle(self.time)
        # The caller may catch the exception of a function; the flags are therefore restored in any case.
        writes_broadcast = self.writes_broadcast
        self.writes_broadcast = self.visits_keys = False
        try:
            for key in np.unique(rows.column("key").to_numpy()).tolist():
                self.key_number = key
                returned = function(self.key_value(), self.states[state.name])
                if returned is not None:
                    raise _nothing_to_return(function_name(function), returned)
        except Exception as error:
            self.failed_at = error, self.key_number
            raise
        finally:
            self.key_number, self.writes_broadcast, self.visits_keys = None, writes_broadcast, True

    # ------------------------------------------------------------------ timers

    def set_timer(self, domain: str, name: str, time: int | None) -> None:
        if domain == EVENT and not self.event_time:
            raise OperatorError(
                "there are no event-time timers in processing time", hint="set the event time of an input"
            )
        key = self.key_for("a timer")
        if not isinstance(name, str):
            raise OperatorError(f"the name of a timer must be a string, not {type(name).__name__}")
        if time is not None and not self.answers[domain]:
            raise OperatorError(
                f'the operator has no function for the timer "{name}"', hint=f"define {ON_TIMER[domain]}"
            )
        entries = self.timer_table.entries(key)
        if time is None:
            entries.pop(domain + name, None)
            return
        entries[domain + name] = (time, END_OF_TIME)
        if domain == EVENT and time <= self.horizon:
            heapq.heappush(self.heap, (time, key, name))

    def load_timers(self, horizon: int) -> None:
        """Queue the event-time timers up to *horizon*."""
        self.horizon = horizon
        rows = self.timer_table.rows
        if not rows.num_rows:
            return
        times = rows.column("value").to_numpy()
        due = np.flatnonzero(times <= horizon)
        for key, name, time in zip(
            self.timer_table.keys[due].tolist(), rows.column("name").take(pa.array(due)).to_pylist(), times[due].tolist(),
            strict=True,
        ):  # fmt: skip
            if name[0] == EVENT:
                self.heap.append((time, key, name[1:]))
        heapq.heapify(self.heap)

    def has_ended(self, name: str) -> bool:
        """Whether the input has ended and has no further elements to process, for the current key if there is one."""
        if name not in self.inputs:
            raise OperatorError(f"there is no input {name!r}", f"Inputs: {', '.join(self.inputs)}")
        if self.writes_broadcast and not self.inputs[name].broadcast:
            self.knows_keys = f'ctx.has_ended("{name}")'
        held = self.waiting is not None and self.waiting.counts[self.key_number, name] > 0
        return self.ended(name) and not self.left.get(name) and not held

    def fire_before(self, limit: int) -> None:
        """Fire the queued event-time timers before *limit*, in the order of their times."""
        while self.heap and self.heap[0][0] < limit:
            time, key, name = first = self.heap[0]
            self.settle_waiting(key, time)
            if self.heap[0] != first:
                continue
            heapq.heappop(self.heap)
            if self.timer_table.entries(key).get(EVENT + name, (None,))[0] == time:  # else deleted or replaced
                self._fire(key, EVENT + name, time)

    def settle_waiting(self, key: int, time: int) -> None:
        """Process the buffered elements of a key that are selected before *time*, as if a micro-batch ended at that time."""
        if self.waiting is not None:
            self.time = max(self.time, time - 1)
            self.waiting.drain(self, key)

    def fire_key_before(self, key: int, limit: int) -> None:
        """Fire the event-time timers of one key before *limit*."""
        while self.heap:  # otherwise no timer is due
            time, name = self.next_timer(key)
            if time >= limit:
                return
            self._fire(key, name, time)

    def next_timer(self, key: int) -> tuple[int, str]:
        """The time and the name of the next event-time timer of a key."""
        entries = self.timer_table.entries(key).items()
        return min(((time, name) for name, (time, _) in entries if name[0] == EVENT), default=(END_OF_TIME, ""))

    def fire_processing_time_timers(self) -> bool:
        """Fire the processing-time timers that are due, in the order of their times; return whether there were any."""
        rows = self.timer_table.settle(0)
        if not rows.num_rows:
            return False
        names = rows.column("name").to_pylist()
        times = rows.column("value").to_numpy()
        due = [at for at in np.flatnonzero(times <= self.now).tolist() if names[at][0] == PROCESSING]
        keys = self.timer_table.keys
        for time, key, name in sorted((int(times[at]), int(keys[at]), names[at]) for at in due):
            if self.timer_table.entries(key).get(name, (None,))[0] == time:
                self.processing_time = max(self.processing_time, time)
                self._fire(key, name, time)
        return bool(due)

    def fire_all(self, limit: int) -> None:
        """Fire processing-time timers, and event-time timers before *limit*, until none is due."""
        self.fire_before(limit)
        while self.fire_processing_time_timers():
            self.fire_before(limit)

    def _fire(self, key: int, name: str, time: int) -> None:
        """Fire a timer; *name* is its name with its time domain as a prefix."""
        del self.timer_table.entries(key)[name]
        self.key_number, self.element_time, self.input_name, self.timer_name = key, time, None, name[1:]
        if self.only_timers or self.last_fired.get((key, name), BEFORE_TIME) >= time:
            self.repeated[key, name] += 1
            if self.repeated[key, name] > ENDLESS:
                when = "after the end of all inputs" if self.only_timers else "without moving to a later time"
                raise OperatorError(
                    f'the timer "{name[1:]}" never stops firing',
                    f"It fired {ENDLESS} times {when}, and was registered again each time.\n{self.place(None)}",
                    'register it again only if not ctx.has_ended("name of an input")'
                    if self.only_timers
                    else "register it for a later time",
                )
        self.last_fired[key, name] = time
        if name[0] == EVENT or not self.event_time:
            self.time = max(self.time, time)
        self.call(ON_TIMER[name[0]], Timer(name[1:], to_datetime(time)))
        self.key_number = self.timer_name = None

    # ------------------------------------------------------------------ functions

    def place(self, function: str | None) -> str:
        """A description of the current element or timer, for messages."""
        known = {
            "operator": type(self.operator).__name__,
            "function": function,
            "input": None if self.input_name is None else f'"{self.input_name}"',
            "timer": None if self.timer_name is None else f'"{self.timer_name}"',
            "key": None if self.key_number is None else repr(self.key_value()),
        }
        return ", ".join(f"{what} {value}" for what, value in known.items() if value is not None)

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function, which returns nothing.

        :raises OperatorError: it returned something, which would be lost
        """
        try:
            returned = getattr(self.operator, function)(*arguments, self.ctx)
            if returned is not None:
                raise _nothing_to_return(f"{type(self.operator).__name__}.{function}", returned)
        except Exception as error:
            self._fail(error, function)

    def _fail(self, error: Exception, function: str) -> NoReturn:
        """Raise the error of a function, with the current element or timer."""
        if self.failed_at is not None and self.failed_at[0] is error:
            self.key_number = self.failed_at[1]
        if isinstance(error, OperatorError):
            error.detail = "\n".join([*([error.detail] if error.detail else []), self.place(function)])
            raise error
        raise UserFunctionError(
            f"{type(self.operator).__name__}.{function} failed",
            f"{described(error)}\n{self.place(function)}",
        ) from error

    def _begin_of(self, spec: Input) -> None:
        """Before a function of an input's elements."""
        self.input_name, self.knows_keys = spec.name, None
        self.writes_broadcast = self.visits_keys = spec.broadcast

    def _end(self) -> None:
        self.knew_keys |= self.knows_keys is not None
        self.writes_broadcast = self.visits_keys = False
        self.knows_keys = None

    def element(self, spec: Input, element: Element, time: int | None, key: int | None) -> None:
        self._begin_of(spec)
        self.key_number, self.element_time = key, time
        if time is not None:
            self.time = max(self.time, time - 1)
        self.call(spec.functions["process_element"], element)
        self.key_number = None
        self._end()

    def keyed_elements(
        self,
        inputs: Sequence[Input],
        numbers: list[int],
        times: list[int],
        keys: list[int],
        elements: list[Element],
        at: int,
    ) -> int:
        """:meth:`element` for the elements of keyed inputs from index *at*, until one of a broadcast input, or a timer that is
        due before; return its index.

        :param numbers: for each element the number of its input; *times* and *keys* likewise
        """
        names = ["" if spec.broadcast else spec.functions["process_element"] for spec in inputs]
        functions = [getattr(self.operator, name) if name else None for name in names]
        ctx, heap, left = self.ctx, self.heap, self.left
        number = 0
        try:
            while at < len(numbers):
                number, time = numbers[at], times[at]
                function = functions[number]
                if function is None or (heap and heap[0][0] < time):
                    break
                self.input_name = name = inputs[number].name
                self.key_number = keys[at]
                if time == BEFORE_TIME:
                    self.element_time = None
                else:
                    self.element_time = time
                    if time > self.time:
                        self.time = time - 1
                returned = function(elements[at], ctx)
                if returned is not None:
                    raise _nothing_to_return(f"{type(self.operator).__name__}.{names[number]}", returned)
                at += 1
                left[name] -= 1
        except Exception as error:
            self._fail(error, names[number])
        self.key_number = None
        return at

    def late(self, spec: Input, element: Element, time: int | None) -> None:
        self.input_name, self.element_time = spec.name, time
        self.call(spec.functions["process_late"], element)

    def select(self, key: int) -> set[str] | frozenset[str]:
        """The inputs that the operator selects for the key; empty: all inputs.

        :raises OperatorError: the operator returned no selection of keyed inputs
        """
        self.key_number, self.element_time, self.input_name = key, None, None
        try:
            selection: Any = self.operator.select_inputs(self.ctx)
        except Exception as error:
            self._fail(error, "select_inputs")
        if not isinstance(selection, set | frozenset):
            raise OperatorError(
                f"{selection!r} is not a selection of inputs",
                self.place("select_inputs"),
                'InputSelection.of("name of an input", ...), or InputSelection.ALL',
            )
        keyed = [name for name, declared in self.inputs.items() if not declared.broadcast]
        unknown = sorted(str(name) for name in selection.difference(keyed))
        if unknown:
            raise OperatorError(
                f"there is no keyed input {unknown[0]!r} to select",
                f"Keyed inputs: {', '.join(keyed)}\n{self.place('select_inputs')}",
            )
        self.key_number = None
        return selection

    def watermark(self, function: str, watermark: int) -> None:
        """Call the function for a new watermark of an input."""
        self.element_time = None
        self.call(function, to_datetime(watermark))

    def end_input(self, function: str) -> None:
        """Call the function for the end of an input."""
        self.element_time, self.visits_keys = None, True
        self.call(function)
        self._end()

    def batch(self, spec: Input, rows: pa.Table, keys: Ints, times: Ints) -> None:
        self._begin_of(spec)
        self.batch_keys, self.batch_times, self.element_time = keys, times, None
        self.call(spec.functions["process_batch"], rows)
        self.batch_keys = self.batch_times = NONE
        self._end()

    def times_of(self, keys: Ints, *, last: bool) -> Ints:
        """The operator's event time at the first or *last* row of each of *keys* in the current batch."""
        step = -1 if last else 1
        distinct_keys, at = np.unique(self.batch_keys[::step], return_index=True)
        times = np.maximum(self.batch_times[::step][at], self.time + 1) - 1
        if not len(distinct_keys):
            return np.full(len(keys), self.time, np.int64)
        place = np.minimum(np.searchsorted(distinct_keys, keys), len(distinct_keys) - 1)
        return np.where(distinct_keys[place] == keys, times[place], self.time)


def _nothing_to_return(function: str, returned: object) -> UserFunctionError:
    return UserFunctionError(
        f"{function} returned {shown(returned)}, which no output has",
        hint="emit rows with an output: self.alerts.collect(...); return nothing",
    )


class Waiting:
    """The buffered elements of inputs that are not selected, per key and in order."""

    def __init__(self, inputs: Mapping[str, Input]) -> None:
        self.inputs = inputs
        self.elements: dict[int, list[tuple[Input, int | None, Element]]] = {}
        self.counts: Counts[tuple[int | None, str]] = Counts()

    def add(self, key: int, spec: Input, time: int | None, element: Element) -> None:
        self.elements.setdefault(key, []).append((spec, time, element))
        self.counts[key, spec.name] += 1

    def drain(self, runtime: Runtime, key: int) -> None:
        """Process buffered elements of the key, as long as there are any of selected inputs."""
        buffered = self.elements.get(key, [])
        while buffered:
            selection = runtime.select(key)
            wanted = selection or self.inputs.keys()
            at = next((n for n, item in enumerate(buffered) if item[0].name in wanted), None)
            if at is None:
                if not all(runtime.has_ended(name) for name in wanted):
                    return
                at = 0
            spec, time, element = buffered.pop(at)
            runtime.element(spec, element, time, key)
            self.counts[key, spec.name] -= 1
        self.elements.pop(key, None)
