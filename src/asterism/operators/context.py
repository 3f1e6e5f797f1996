"""The arguments of functions of user-defined operators: elements, timers, and the context of a call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.time import BEFORE_TIME, to_datetime, to_micros
from asterism.operators.state.keyed_state import State, StateScope
from asterism.spelling import PythonNames

EVENT, PROCESSING = "e", "p"
ON_TIMER = {EVENT: "on_event_time_timer", PROCESSING: "on_processing_time_timer"}


class Element(dict[str, Any]):
    """One element. A column is accessed by name (``order["price"]``) or as an attribute (``order.price``). If a method of dict
    has the name of the column, such as ``items``, use ``order["items"]``. A MAP is a dict.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no column {name!r}; columns: {', '.join(self)}") from None


class Timer(NamedTuple):
    """A timer that fires: its name, and the time for which it was registered."""

    name: str
    time: datetime


class CallScope(StateScope, Protocol):
    """The interface between a :class:`Context` and the call in which it is used."""

    key_table: pa.Table
    batch_keys: Ints
    input_name: str | None
    element_time: int | None
    processing_time: int

    def key_value(self) -> Any: ...

    def has_ended(self, name: str) -> bool: ...

    def set_timer(self, domain: str, name: str, time: int | None) -> None: ...

    def apply_to_keyed_state(self, state: State, function: Callable[[Any, Any], None]) -> None: ...


class Context(metaclass=PythonNames):
    """The context of an element or timer: its time and key, and access to timers."""

    def __init__(self, runtime: CallScope) -> None:
        self._runtime = runtime

    @property
    def key(self) -> Any:
        """The value of the current key; with several key columns, an :class:`Element` of them; with none, None."""
        return self._runtime.key_value()

    @property
    def keys(self) -> Ints:
        """In a function that processes a batch: the index of each row's key, for the columns of a ValueState."""
        return self._runtime.batch_keys

    def key_columns(self, keys: Ints) -> pa.Table:
        """The key columns of the keys with these indexes."""
        self._runtime.see_keys(keys, "ctx.key_columns")
        return self._runtime.key_table.take(pa.array(keys))

    @property
    def input(self) -> str | None:
        """The name of the input of the current element; None in a timer."""
        return self._runtime.input_name

    @property
    def timestamp(self) -> datetime | None:
        """The time of the element or timer, in UTC; None if it has none."""
        time = self._runtime.element_time
        return None if time is None else to_datetime(time)

    @property
    def current_watermark(self) -> datetime | None:
        """The operator's current event time: all elements and timers before it have been processed. None: not defined yet."""
        time = self._runtime.time
        return None if time <= BEFORE_TIME + 1 else to_datetime(time)

    @property
    def processing_time(self) -> datetime:
        """The processing time, in UTC, which is the same in the whole micro-batch."""
        return to_datetime(self._runtime.processing_time)

    def has_ended(self, input: str) -> bool:
        """Whether this input has ended and all its elements have been processed."""
        return self._runtime.has_ended(input)

    def register_event_time_timer(self, name: str, time: datetime | int) -> None:
        """Call ``on_event_time_timer`` for the current key when event time has passed *time*, a datetime (in UTC, if it has
        no time zone) or milliseconds since the epoch. It replaces a timer with the same name. A timer in the past fires
        directly after this function.
        """
        self._runtime.set_timer(EVENT, name, to_micros(time))

    def register_processing_time_timer(self, name: str, time: datetime | int) -> None:
        """Call ``on_processing_time_timer`` for the current key when processing time has passed *time*."""
        self._runtime.set_timer(PROCESSING, name, to_micros(time))

    def delete_event_time_timer(self, name: str) -> None:
        """Delete a timer of the current key; a timer that does not exist is ignored."""
        self._runtime.set_timer(EVENT, name, None)

    def delete_processing_time_timer(self, name: str) -> None:
        self._runtime.set_timer(PROCESSING, name, None)

    def apply_to_keyed_state(self, state: State, function: Callable[[Any, Any], None]) -> None:
        """In a function of a broadcast input, or of the end of an input: call ``function(key, state)`` for every key of this
        key group with a value in *state*. In *function*, all states and timers are those of that key. Neither *function* nor,
        after this call, its caller can change broadcast state.
        """
        self._runtime.apply_to_keyed_state(state, function)
