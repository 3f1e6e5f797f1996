"""Calls Python conditions from the kernel, and gives them access to the event and the partial match.

The kernel identifies conditions, events and stages by number, and a partial match by its last node. :class:`PythonCalls` maps
these numbers while the kernel runs. The kernel calls :meth:`PythonCalls.answer` through a C function pointer, whose address
is part of the program of the condition. Nodes are read from the memory of the kernel, only if the function requests them.
"""

from __future__ import annotations

import ctypes
import reprlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from asterism.arguments import described, function_name
from asterism.columns.arrays import Ints, one_chunk
from asterism.errors import ColumnNotFoundError, EvaluationFailedError, InvalidEventError
from asterism.expressions.computed_columns import is_computed
from asterism.matching.binding import BoundPattern
from asterism.operators.rich_functions import ready
from asterism.patterns.conditions import Event
from asterism.patterns.semantics import Semantics

POINTER = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)
"""Converts a Python function of five integers (condition, event, node, address of the nodes, their number) to a C function.
"""
FAILED = -1
ANY_NODE = -2
LATEST = (datetime.max - datetime(1970, 1, 1)) // timedelta(microseconds=1)
"""The maximum of datetime in microseconds, which represents the end of time."""


class CallFailure(NamedTuple):
    condition: int
    error: BaseException | None
    answer: Any
    """the return value, if it was not True or False"""


class PythonCalls:
    """The per-event conditions of *pattern* during one run of the kernel.

    :param pool: the events, with the columns ``e:<name>`` of those that the conditions read
    :param rows: maps an event number to a row of *pool*
    :param times: maps an event number to its time, in microseconds
    """

    def __init__(self, pattern: BoundPattern, pool: pa.Table, rows: Ints, times: Ints, processing_time: int) -> None:
        self.pattern = pattern
        self.conditions = conditions = pattern.per_event_conditions
        self._functions = [ready(condition.function) for condition in conditions]
        self.stages = {name: number for number, name in enumerate(pattern.nfa.stages)}
        self.rows, self.times = rows, times
        self.zone = pattern.plan.zone
        self.processing_time = processing_time
        self.allows_unknown_stages = pattern.semantics is Semantics.FLINK
        """an unknown stage has accepted no events, as in Flink"""
        held = {
            name.removeprefix("e:"): one_chunk(pool.column(name))
            for name in pool.column_names
            if name.startswith("e:") and not is_computed(name[2:])
        }
        self._columns = [held if c.columns is None else {name: held[name] for name in c.columns} for c in conditions]
        self._events: list[dict[int, Event]] = [{} for _ in conditions]
        self._known = [(-1, -1, 0)] * len(conditions)
        """per condition: event, node and result of the last call"""
        self._nodes: tuple[int, int, Any] = (0, 0, None)
        self.failure: CallFailure | None = None

    def answer(self, condition: int, event: int, node: int, nodes: int, n_nodes: int) -> int:
        """Whether the condition holds: 1, 0, or FAILED with the reason in *failure*."""
        known_event, known_node, known = self._known[condition]
        if known_event == event and known_node in (node, ANY_NODE):
            return known
        context = _PartialMatchContext(self, condition, event, node, nodes, n_nodes)
        error: BaseException | None = None
        holds: Any = None
        try:
            holds = self._functions[condition](self.event(condition, event), context)
        except BaseException as raised:  # no exception may pass through the kernel; error() raises it again
            error = raised
        finally:
            context.calls = None
        if not isinstance(holds, bool | np.bool_):
            self.failure = CallFailure(condition, error, holds)
            return FAILED
        # The edges of a state repeat the same call. A function that did not read earlier events gives the same result for
        # every other partial match.
        self._known[condition] = event, node if context.read_partial_match else ANY_NODE, int(holds)
        return int(holds)

    def error(self, where: str) -> InvalidEventError:
        """The exception for the failure. One that no condition causes, such as KeyboardInterrupt, is raised."""
        assert self.failure is not None
        number, error, answer = self.failure
        if error is not None and not isinstance(error, Exception):
            raise error
        function = self.conditions[number].function
        stages = ", ".join(f'"{name}"' for name in self.pattern.plan.stages_with(self.pattern.per_event[number]))
        what = f"condition {function_name(function)} of stage {stages}"
        if error is None:
            answered = f"It returned {reprlib.repr(answer)}.\n{where}"
            return EvaluationFailedError(f"{what} did not return True or False", answered, "wrap it in bool(...)")
        failed = EvaluationFailedError(f"{what} failed", f"{described(error)}\n{where}")
        failed.__cause__ = error
        return failed

    def event(self, condition: int, number: int) -> Event:
        """The event as passed to a condition."""
        events = self._events[condition]
        known = events.get(number)
        if known is None:
            known = events[number] = Event(self._columns[condition], int(self.rows[number]))
        return known

    def accepted(self, stage: int, node: int, nodes: int, n_nodes: int) -> list[int]:
        """The events that a stage has accepted on the path to *node*, in order."""
        address, length, cells = self._nodes
        if (address, length) != (nodes, n_nodes):
            cells = (ctypes.c_int64 * (3 * n_nodes)).from_address(nodes)  # event, stage, parent
            self._nodes = nodes, n_nodes, cells
        numbers = []
        while node >= 0:
            if cells[3 * node + 1] == stage:
                numbers.append(cells[3 * node])
            node = cells[3 * node + 2]
        numbers.reverse()
        return numbers


class _PartialMatchContext:
    """The context of one call. It is closed afterwards because the memory of the kernel is then invalid."""

    __slots__ = ("_at", "calls", "read_partial_match")

    def __init__(self, calls: PythonCalls, condition: int, event: int, node: int, nodes: int, n_nodes: int) -> None:
        self.calls: PythonCalls | None = calls
        self._at = condition, event, node, nodes, n_nodes
        self.read_partial_match = False

    def _open(self) -> PythonCalls:
        if self.calls is None:
            raise RuntimeError("the context of a condition can be used only until the condition has returned")
        return self.calls

    @property
    def timestamp(self) -> datetime:
        calls = self._open()
        return moment_of(int(calls.times[self._at[1]]), calls.zone)

    @property
    def current_processing_time(self) -> datetime:
        return moment_of(self._open().processing_time, "UTC")

    def events_for_pattern(self, name: str) -> list[Event]:
        calls = self._open()
        self.read_partial_match = True
        condition, _, node, nodes, n_nodes = self._at
        stage = calls.stages.get(name)
        if stage is None:
            if calls.allows_unknown_stages:
                return []
            raise unknown_stage(name, calls.stages)
        return [calls.event(condition, number) for number in calls.accepted(stage, node, nodes, n_nodes)]


def moment_of(micros: int, zone: str | None) -> datetime:
    """A time in the form that Python conditions get."""
    moment: datetime = pa.scalar(min(micros, LATEST), pa.timestamp("us", zone)).as_py()
    return moment


def unknown_stage(name: str, stages: Iterable[str]) -> ColumnNotFoundError:
    """The error for a stage that the pattern does not have."""
    return ColumnNotFoundError(
        f"unknown stage {name!r}", f"Stages: {', '.join(stages)}", "stage names are case-sensitive"
    )
