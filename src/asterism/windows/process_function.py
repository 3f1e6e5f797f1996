"""Window functions with state: per key, and per window of a key.

State is in tables of the pages of a window operator, after those of panes and rows: the keys that have state, and for each state
a table by key and, unless windows merge, a table by pane. Functions are called in the order of the firings, so state does not
depend on micro-batches.

Source: Flink's ``ProcessWindowFunction``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from asterism.arguments import shown
from asterism.columns.arrays import Ints
from asterism.columns.time import BEFORE_TIME, to_datetime
from asterism.errors import OperatorError, StreamDefinitionError, UserFunctionError
from asterism.operators.context import Element
from asterism.operators.state.keyed_state import KEY, State, StateSpec, StateTable
from asterism.operators.stream_operator import Counter, Gauge, Histogram, Output, declared_in
from asterism.operators.tools import Emitted, Tools
from asterism.windows.triggers import TimeSpan
from asterism.windows.user_functions import called, table_of

TOOLS = (Output, Counter, Gauge, Histogram)
S = TypeVar("S", bound=State)


class ProcessWindowFunction(ABC):
    """A window function that keeps state from one firing to the next. A subclass declares states as class attributes. In
    :meth:`process`, ``ctx.global_state(self.name)`` is the state of the key, and ``ctx.window_state(self.name)`` that of the
    window.

    >>> from datetime import timedelta
    >>> from asterism import ProcessWindowFunction, TumblingWindows, ValueState
    >>> from asterism.testing import WindowHarness
    >>> class Growth(ProcessWindowFunction):
    ...     before = ValueState("BIGINT")
    ...
    ...     def process(self, elements, window, ctx):
    ...         before = ctx.global_state(self.before)
    ...         growth = elements.num_rows - (before.value() or 0)
    ...         before.update(elements.num_rows)
    ...         return {"growth": growth}
    >>> windows = TumblingWindows.of(timedelta(seconds=10))
    >>> harness = WindowHarness(windows, process=Growth(), schema="growth BIGINT").send("a1@1s a2@11s a3@12s |20s")
    >>> [row["growth"] for row in harness.results]
    [1, 1]

    Outputs and metrics are declared and used as in a :class:`asterism.StreamOperator`: ``large = Output("n BIGINT")``, and
    ``self.large.collect(n=1)`` in :meth:`process` or :meth:`clear`.

    :raises StreamDefinitionError: when the class is defined, if a state cannot be used

    Source: Flink's ``ProcessWindowFunction``; ``ctx.output(tag, value)`` is ``self.large.collect(...)``.
    """

    def open(self) -> None:  # noqa: B027 - most have nothing to do
        """Called first in the process that runs the function."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Called at the end."""

    @abstractmethod
    def process(self, elements: pa.Table, window: TimeSpan, ctx: WindowContext) -> Any:
        """Called for each firing, in the order of the firings of a key.

        :return: rows, as of a function that is not a class: a table, a DataFrame, a dict or a list of dicts
        """

    def clear(self, window: TimeSpan, ctx: WindowContext) -> None:  # noqa: B027 - most have nothing to do
        """Called when a window is dropped: at its end, allowed lateness included, after its last firing. The state of the window
        is dropped then in any case.
        """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, state in declared_in(cls, (State, *TOOLS)).items():
            if hasattr(ProcessWindowFunction, name):
                raise StreamDefinitionError(
                    f'{cls.__name__} declares "{name}", which is a method of every window function',
                    hint=f'name it "{name}_"',
                )
            if isinstance(state, State) and state.broadcast:
                raise StreamDefinitionError(
                    f'the state "{name}" of {cls.__name__} is a broadcast state',
                    hint="window functions have keyed state",
                )


def states_of(function: object) -> dict[str, StateSpec]:
    """The states that a window function declares."""
    if not isinstance(function, ProcessWindowFunction):
        return {}
    return {name: state.spec for name, state in declared_in(type(function), State).items()}


class WindowContext:
    """Gives a window function access to everything besides its elements."""

    def __init__(self, states: FunctionStates) -> None:
        self._states = states

    @property
    def key(self) -> Any:
        """The value of the key; with several key columns, an :class:`asterism.Element` of them; with none, None."""
        return self._states.key_value()

    @property
    def window(self) -> TimeSpan:
        """The window."""
        return self._states.window

    @property
    def current_watermark(self) -> datetime | None:
        """The event time of the firing, or None in processing time and before the first watermark. Later firings of the same key
        have no earlier one.
        """
        time = self._states.time
        return None if not self._states.event_time or time <= BEFORE_TIME + 1 else to_datetime(time)

    def global_state(self, state: S) -> S:
        """The state of the current key, which all its windows share. It remains until it is cleared, or its time to live has
        passed.

        :raises OperatorError: the function does not declare it
        """
        return self._states.of_key.bound(state)

    def window_state(self, state: S) -> S:
        """The state of the current window and key, independent of :meth:`global_state`. It is dropped with the window.

        :raises OperatorError: the function does not declare it; or windows merge
        """
        if self._states.of_window is None:
            raise OperatorError(
                "session windows have no state per window, because they merge",
                "The state of two windows would have to become one.",
                "ctx.global_state, which all windows of the key share; or fold=Fold(..., merge=...), whose accumulators merge",
            )
        return self._states.of_window.bound(state)


class StateOfScope:
    """The states of all keys, or of all windows, in a call: the interface of states to the call."""

    def __init__(self, declared: Mapping[str, State], tables: Mapping[str, StateTable]) -> None:
        self.time = BEFORE_TIME
        self.key_number: int | None = None
        self.tables = tables
        self._bound = {name: state.bound(self) for name, state in declared.items()}

    def bound(self, state: S) -> S:
        running = self._bound.get(state.name) if isinstance(state, State) else None
        if not isinstance(running, type(state)):
            raise OperatorError(
                f"not a state of this window function: {shown(getattr(state, 'name', '') or state)}",
                hint="declare it in the class, and use ctx.global_state(self.name)",
            )
        running.attach(self.tables[state.name] if self.key_number is not None else None)
        return running

    def key_for(self, what: str) -> int:
        raise OperatorError(f"{what} can be used only while a window fires or is cleared")

    def check_broadcast(self, spec: StateSpec) -> None:
        raise AssertionError("window functions have no broadcast state")

    def see_keys(self, keys: Ints, how: str) -> None:
        raise OperatorError("the state of a window function has no columns", hint="value(), update(x)")

    def times_of(self, keys: Ints, *, last: bool) -> Ints:
        return np.full(len(keys), self.time, np.int64)


class FunctionStates:
    """The states of a window function in a call, and what it emits.

    :param keys: the keys by number
    :param of_key: for each state its rows, by the number of the key and sorted by it; *of_window*: by the number of the pane, or
        None if windows merge
    :param key_of_pane: the number of the key of each pane
    """

    def __init__(
        self,
        function: ProcessWindowFunction,
        keys: pa.Table,
        of_key: Mapping[str, pa.Table],
        of_window: Mapping[str, pa.Table] | None,
        key_of_pane: Ints,
        *,
        time: int,
        event_time: bool,
    ) -> None:
        declared = declared_in(type(function), State)
        self.operator, self.running = function, False
        self._tools = Tools(self)
        self._function, self._keys, self._key_of_pane = function, keys, key_of_pane
        self.time, self.event_time = time, event_time
        self.window = TimeSpan(None, None)
        self.of_key = StateOfScope(declared, _tables(declared, of_key))
        self.of_window = None if of_window is None else StateOfScope(declared, _tables(declared, of_window))
        self._context = WindowContext(self)
        self._what = f"the window function {type(function).__name__}"

    kind, when = "window function", "the function processes a window"
    writes_broadcast = repeats = False

    def emitted(self) -> Emitted:
        """The rows and metrics that the function has emitted."""
        return self._tools.taken()

    def key_value(self) -> Any:
        if not self._keys.num_columns or self.of_key.key_number is None:
            return None
        row = self._keys.slice(self.of_key.key_number, 1).to_pylist()[0]
        return next(iter(row.values())) if len(row) == 1 else Element(row)

    def process(self, pane: int, elements: pa.Table, window: TimeSpan, time: int, schema: pa.Schema) -> pa.Table:
        """Call the function for a firing."""
        with self._running(pane, window, time):
            answer = called(self._what, self._function.process, elements, window, self._context)
        return table_of(self._what, answer, schema)

    def clear(self, pane: int, window: TimeSpan, time: int) -> None:
        """Call the function for a window that is dropped."""
        if type(self._function).clear is ProcessWindowFunction.clear:
            return
        with self._running(pane, window, time):
            # A function without annotations may return something.
            answer = called(f"{self._what}: clear", self._function.clear, window, self._context)
        if answer is not None:
            raise UserFunctionError(
                f"{type(self._function).__name__}.clear returned {shown(answer)}, which is in no result",
                hint="rows are returned by process",
            )

    @contextmanager
    def _running(self, pane: int, window: TimeSpan, time: int) -> Iterator[None]:
        self.running = True
        self.window, self.time = window, max(self.time, time)
        self.of_key.key_number = int(self._key_of_pane[pane])
        self.of_key.time = self.time
        if self.of_window is not None:
            self.of_window.key_number, self.of_window.time = pane, self.time
        try:
            yield
        finally:
            self.running, self.of_key.key_number = False, None
            if self.of_window is not None:
                self.of_window.key_number = None

    def settled(self) -> tuple[list[pa.Table], list[pa.Table]]:
        """The rows of all states, by key and by window."""
        by_key = [table.settle(self.time) for table in self.of_key.tables.values()]
        by_window = [] if self.of_window is None else [t.settle(self.time) for t in self.of_window.tables.values()]
        return by_key, by_window


def _tables(declared: Mapping[str, State], rows: Mapping[str, pa.Table]) -> dict[str, StateTable]:
    return {name: StateTable(state.spec, rows[name]) for name, state in declared.items()}


def divided(values: Ints, sizes: Sequence[int]) -> list[Ints]:
    """*values* in parts of these *sizes*."""
    ends = np.cumsum(sizes).astype(np.int64).tolist()
    return [values[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def renumbered(tables: Sequence[pa.Table], schema: pa.Schema, numbers: Sequence[Ints]) -> pa.Table:
    """The rows of a state in several pages, by new numbers: *numbers* has those of the owners of each page."""
    moved = [
        table.set_column(0, KEY, pa.array(new[table.column(KEY).to_numpy()]))
        for table, new in zip(tables, numbers, strict=True)
    ]
    rows = pa.concat_tables([schema.empty_table(), *moved])
    return rows.take(pa.array(np.argsort(rows.column(KEY).to_numpy(), kind="stable")))
