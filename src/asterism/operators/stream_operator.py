"""Operators of one's own: any number of named inputs, keyed and broadcast state, timers, side outputs.

A user writes a :class:`StreamOperator`: inputs, states, outputs and counters are declared as class attributes, functions say what
to do with what arrives. ``docs/operators.md`` shows how. :class:`asterism.operators.multiple_input.MultipleInputOperator` makes
it an :class:`asterism.operators.operator.Operator`.

The order of things, which depends on the events alone:

* Elements with an event time wait for the watermark, and are processed in the order of their times; equal times: broadcast
  inputs first, then inputs in the order of declaration, then by arrival. Elements without one are processed when they arrive,
  before all others.
* An event-time timer fires when event time passes it: after the elements up to its time, before the later ones.
* Functions that process batches get, for each key, whole runs: all consecutive elements of one input. Broadcast elements
  are processed between runs, at their place.

Source: FLIP-92; FLINK-4940; Flink's ``KeyedBroadcastProcessFunction``.
"""

from __future__ import annotations

import copy
import heapq
import inspect
import operator as op
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asterism.arguments import described, expect_text
from asterism.columns.arrays import Ints
from asterism.columns.schemas import schema_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, to_datetime, to_micros
from asterism.errors import OperatorError, StreamDefinitionError
from asterism.operators.key_group import LATE
from asterism.operators.keyed_state import FOREVER, MISFITS, State, StateKind, StateSpec, StateTable

TIMERS = StateSpec("timers", StateKind.MAP, pa.int64(), pa.string(), None, broadcast=False)
EVENT, CLOCK = "e", "p"
ON_TIMER = {EVENT: "on_event_time_timer", CLOCK: "on_processing_time_timer"}
ENDLESS = 10_000
"""How often a timer of a key may fire in one call without getting later, or when all inputs have ended: it would go on so."""
_USES = "__asterism_uses__"
"""Attribute of functions: for which inputs, and what, they are."""


NONE: Ints = np.empty(0, np.int64)


class Element(dict[str, Any]):
    """One element: a column by name (``order["price"]``) or as an attribute (``order.price``); of columns that are named
    like a method of dict, such as ``items``, only by name. A MAP is a dict.
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


class InputSelection(frozenset[str]):
    """Which inputs an operator wants to read next: ``InputSelection.of("build")``, or ALL."""

    ALL: ClassVar[InputSelection]

    @classmethod
    def of(cls, *names: str) -> InputSelection:
        """
        :raises StreamDefinitionError: a name is no text
        """
        for name in names:
            expect_text(
                StreamDefinitionError, name, "an InputSelection is of names of inputs", 'InputSelection.of("a", "b")'
            )
        return cls(names)


InputSelection.ALL = InputSelection()


# ---------------------------------------------------------------------- what a user declares


class Input:
    """A keyed input: elements with one key meet the state of that key.

    :param columns: the columns that the operator reads, as Spark SQL (``"id BIGINT, ts TIMESTAMP"``) or an Arrow schema

    Functions are attached as decorators: one of :meth:`process_element` and :meth:`process_batch`, and if wanted
    :meth:`process_late`, :meth:`process_watermark` and :meth:`end_input`. A subclass overrides them by name, or decorates
    its own with ``@Base.clicks.process_element``.
    """

    broadcast = False

    def __init__(self, columns: str | pa.Schema) -> None:
        self.schema = schema_of(columns)
        self.name = ""
        self.functions: dict[str, str] = {}
        self.declared_as = self
        """What a base class declared, where this is a subclass's own."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def _attach(self, what: str, function: Callable[..., None]) -> Callable[..., None]:
        # The class that is being defined reads this: an inherited input may get functions there, and keep others elsewhere.
        function.__dict__.setdefault(_USES, []).append((self, what))
        return function

    def process_element(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, element, ctx)`` is called for each element."""
        return self._attach("process_element", function)

    def process_batch(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, batch, ctx)`` is called with many elements at once, of many keys, as a :class:`pyarrow.Table`;
        ``ctx.keys`` has the number of each row's key.
        """
        return self._attach("process_batch", function)

    def process_late(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, element, ctx)`` is called for an element that came after the watermark, or has no time. It has no
        access to state. Without such a function late elements are counted and dropped, and one without a time is an error.
        """
        return self._attach("process_late", function)

    def process_watermark(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, watermark, ctx)`` is called when this input's own watermark has moved, once per key group, with
        a datetime (the last one: ``datetime.max``). How often depends on the micro-batches; elements up to that time may still
        wait for other inputs.
        """
        return self._attach("process_watermark", function)

    def end_input(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, ctx)`` is called when this input has ended and its elements have been processed, once per key group.
        Those that wait to be selected may still come.
        """
        return self._attach("end_input", function)


class BroadcastInput(Input):
    """An input whose elements every key group receives, in the same order; only its functions may change broadcast state."""

    broadcast = True


class _Declared:
    """Base of what is used under its own name in a running operator."""

    use = ""

    def __init__(self) -> None:
        self.name = ""
        self.runtime: Runtime | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance.__dict__.get("_tools", {}).get(self.name, self)

    def __set__(self, instance: Any, value: Any) -> None:
        raise OperatorError(
            f'"{self.name}" is used by its methods, and cannot be assigned', hint=f"self.{self.name}.{self.use}"
        )

    def _check_declared(self) -> None:
        if not self.name:
            raise OperatorError(
                f"a {type(self).__name__} that is made in a function is not the operator's",
                hint="declare it in the class, beside the inputs",
            )

    @property
    def _operator_name(self) -> str:
        return "" if self.runtime is None else type(self.runtime.operator).__name__

    def _check_running(self) -> None:
        self._check_declared()
        if self.runtime is None or not self.runtime.running:
            raise OperatorError(
                f'the output "{self.name}" can be used only while the operator processes something',
                hint="use it in the functions that process elements, watermarks and timers",
            )


class Output(_Declared):
    """An output: ``self.alerts.collect(user="ann", amount=7.0)``.

    :param columns: its columns, as Spark SQL or an Arrow schema
    """

    use = "collect(...)"

    def __init__(self, columns: str | pa.Schema) -> None:
        super().__init__()
        self.schema = schema_of(columns)
        self.rows: list[Mapping[str, Any]] = []
        self.tables: list[pa.Table] = []

    def collect(self, row: Mapping[str, Any] | None = None, /, **columns: Any) -> None:
        """Give out one row; a column that is not named is null.

        :param row: a dict or an element, all of it; *columns* come to it, or replace what it has
        :raises OperatorError: there is no such column
        """
        self._check_running()
        whole = row is not None
        row = {**row, **columns} if row is not None else columns
        unknown = row.keys() - set(self.schema.names)
        if unknown:
            raise OperatorError(
                f'the output "{self.name}" has no column {sorted(unknown)[0]!r}',
                f"Columns: {', '.join(self.schema.names)}",
                "what is given out whole brings all of its columns: name those that are meant" if whole else None,
            )
        # A list or a dict may be changed by the caller before the rows are taken.
        self.rows.append({name: copy.deepcopy(v) if isinstance(v, list | dict) else v for name, v in row.items()})

    def collect_batch(self, rows: pa.Table) -> None:
        """Give out many rows; the columns may be in any order.

        :raises OperatorError: a column is missing, or of another type
        """
        self._check_running()
        self._rows_to_table()
        try:
            self.tables.append(rows.select(self.schema.names).cast(self.schema))
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OperatorError(
                f'the rows do not fit the output "{self.name}"', f"{error}\nColumns: {self._columns}"
            ) from None

    def take(self) -> pa.Table | None:
        """What was collected since the last call."""
        self._rows_to_table()
        tables, self.tables = self.tables, []
        return pa.concat_tables(tables) if tables else None

    def _rows_to_table(self) -> None:
        if self.rows:
            rows, self.rows = self.rows, []
            try:
                self.tables.append(self._table(rows))
            except MISFITS:
                for row in rows:
                    try:
                        self._table([row])
                    except MISFITS as error:
                        raise OperatorError(
                            f'a row does not fit the output "{self.name}"',
                            f"{row!r}\n{error}\nColumns: {self._columns}\noperator {self._operator_name}",
                        ) from None
                raise

    @property
    def _columns(self) -> str:
        return ", ".join(f"{field.name} {field.type}" for field in self.schema)

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(rows, self.schema)


def _check_function(function: Callable[..., Any]) -> None:
    kind = "generator" if inspect.isgeneratorfunction(function) else "coroutine"
    if kind == "generator" or inspect.iscoroutinefunction(function):
        raise StreamDefinitionError(
            f"{function.__qualname__.rpartition('<locals>.')[2]} is a {kind}: nobody would run it",
            hint="write a plain function, and give rows to an output: self.alerts.collect(...)",
        )


class Counter(_Declared):
    """A count, shown in the query's progress: ``self.rejected.inc()``."""

    use = "inc()"

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def inc(self, by: int = 1) -> None:
        """Count one more, or *by* more.

        :raises TypeError: *by* is not a whole number
        """
        self._check_declared()
        self.count += op.index(by)


class StreamOperator:
    """Base of operators with any number of inputs. Subclass it, and declare.

    >>> from asterism.operators.keyed_state import ValueState
    >>> class Count(StreamOperator):
    ...     clicks = Input("user STRING, ts TIMESTAMP")
    ...     seen = ValueState("BIGINT")
    ...     totals = Output("user STRING, clicks BIGINT")
    ...
    ...     @clicks.process_element
    ...     def click(self, click, ctx):
    ...         self.seen.update((self.seen.value() or 0) + 1)
    ...         self.totals.collect(user=click.user, clicks=self.seen.value())
    >>> sorted(Count.declared(Output))
    ['totals']

    :raises StreamDefinitionError: when the class is defined, if its declarations do not fit together
    """

    def open(self) -> None:
        """Called in the process that runs the operator, before anything else: connections, models."""

    def close(self) -> None:
        """Called at the end, also after a failure."""

    def on_event_time_timer(self, timer: Timer, ctx: Context) -> None:
        """Called when event time has passed a timer of the key at hand.

        When all inputs have ended, every timer fires, also those that are registered then: one that registers itself again and
        again should ask ``ctx.has_ended``.
        """

    def on_processing_time_timer(self, timer: Timer, ctx: Context) -> None:
        """Called when the clock has passed a timer of the key at hand; at the end likewise."""

    def select_inputs(self, ctx: Context) -> InputSelection:
        """Which inputs the key at hand wants to read next; elements of others wait, in order. Asked before every element. If
        all that were selected have ended, any may come.
        """
        return InputSelection.ALL

    @classmethod
    def declared(cls, kind: type | tuple[type, ...]) -> dict[str, Any]:
        """The class attributes of a kind (or several), by name, in order of declaration, those of base classes first."""
        found: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            found |= {name: value for name, value in vars(base).items() if isinstance(value, kind)}
        return found

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in cls.declared((Input, State, Output, Counter)):
            if hasattr(StreamOperator, name):
                raise StreamDefinitionError(
                    f'{cls.__name__} declares "{name}", which is a method of every operator', hint=f'name it "{name}_"'
                )
            if name == LATE:
                raise StreamDefinitionError(f'"{name}" is what every operator counts already', hint="another name")
        cls._own_inputs()
        for method in ON_TIMER.values():
            _check_function(getattr(cls, method))
        for name, declared in cls.declared(Input).items():
            functions = declared.functions
            for function in functions.values():
                _check_function(getattr(cls, function))
            if "process_element" in functions and "process_batch" in functions:
                raise StreamDefinitionError(
                    f'the input "{name}" of {cls.__name__} processes both elements and batches',
                    f"The functions are {functions['process_element']} and {functions['process_batch']}.",
                )
        if cls.selects() and any("process_batch" in i.functions for i in cls.declared(Input).values()):
            raise StreamDefinitionError(
                f"{cls.__name__} selects its inputs and processes batches",
                "Which input comes next is asked before every element.",
                "use process_element",
            )

    @classmethod
    def _own_inputs(cls) -> None:
        """Give this class its own inputs, with the functions that its bases and it have for them."""
        inputs = {name: copy.copy(declared) for name, declared in cls.declared(Input).items()}
        for name, mine in inputs.items():
            mine.functions = {}
            setattr(cls, name, mine)
        for base in reversed(cls.__mro__):
            here: dict[tuple[str, str], str] = {}
            for function, value in vars(base).items():
                for used, what in getattr(value, "__dict__", {}).get(_USES, ()):
                    if inputs[used.name].declared_as is not used.declared_as:
                        continue  # the input was declared anew
                    other = here.setdefault((used.name, what), function)
                    if other != function:
                        raise StreamDefinitionError(
                            f'the input "{used.name}" has two functions for {what}',
                            f"They are {other} and {function}.",
                        )
                    inputs[used.name].functions[what] = function

    @classmethod
    def selects(cls) -> bool:
        return cls.select_inputs is not StreamOperator.select_inputs


# ---------------------------------------------------------------------- a call


@dataclass(slots=True)
class Arrived:
    """Ready elements of one input: the columns that the user sees, their times and the numbers of their keys (broadcast: -1)."""

    spec: Input
    rows: pa.Table
    times: Ints
    keys: Ints

    def elements(self) -> list[Element]:
        names = self.rows.column_names
        columns = [column.to_pylist(maps_as_pydicts="lossy") for column in self.rows.columns]
        return [Element(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


class Context:
    """What a function can ask and say beside its element: the time, the key, timers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def key(self) -> Any:
        """The key at hand: its value; with several key columns, an :class:`Element` of them; with none, None."""
        return self._runtime.key_value()

    @property
    def keys(self) -> Ints:
        """In a function that processes a batch: the number of each row's key, for the columns of a ValueState."""
        return self._runtime.batch_keys

    def key_columns(self, keys: Ints) -> pa.Table:
        """The key columns of numbered keys."""
        self._runtime.see_keys(keys, "ctx.key_columns")
        return self._runtime.key_table.take(pa.array(keys))

    @property
    def input(self) -> str | None:
        """The name of the input whose element is processed; None in a timer."""
        return self._runtime.input_name

    @property
    def timestamp(self) -> datetime | None:
        """The time of the element (or timer), UTC; None if it has none."""
        time = self._runtime.element_time
        return None if time is None else to_datetime(time)

    @property
    def current_watermark(self) -> datetime | None:
        """How far event time has come for the operator: everything before the element at hand is over. None: not begun."""
        time = self._runtime.time
        return None if time <= BEFORE_TIME + 1 else to_datetime(time)

    @property
    def processing_time(self) -> datetime:
        """The clock, UTC: one for the whole micro-batch."""
        return to_datetime(self._runtime.shown_clock)

    def has_ended(self, input: str) -> bool:
        """Has this input come to its end, and have all its elements been processed?"""
        return self._runtime.has_ended(input)

    def register_event_time_timer(self, name: str, time: datetime | int) -> None:
        """Call ``on_event_time_timer`` for the key at hand when event time has passed *time*: a datetime (without a zone: UTC)
        or milliseconds since the epoch. A timer with the same name is moved. One in the past fires at once, after this function.
        """
        self._runtime.set_timer(EVENT, name, to_micros(time))

    def register_processing_time_timer(self, name: str, time: datetime | int) -> None:
        """Call ``on_processing_time_timer`` for the key at hand when the clock has passed *time*."""
        self._runtime.set_timer(CLOCK, name, to_micros(time))

    def delete_event_time_timer(self, name: str) -> None:
        """Nothing happens if there is none."""
        self._runtime.set_timer(EVENT, name, None)

    def delete_processing_time_timer(self, name: str) -> None:
        self._runtime.set_timer(CLOCK, name, None)

    def apply_to_keyed_state(self, state: State, function: Callable[[Any, Any], None]) -> None:
        """For a function of a broadcast input: call ``function(key, state)`` for every key of this key group for which *state*
        holds something. Broadcast state cannot be changed there, nor afterwards by the function that called this.
        """
        self._runtime.apply_to_keyed_state(state, function)


class Runtime:
    """An operator at work in one call: who is processed now, and what time it is."""

    def __init__(self, operator: StreamOperator, event_time: bool) -> None:
        # What functions keep in the operator itself is theirs, and gone with this object.
        operator = self.operator = copy.copy(operator)
        self.event_time = event_time
        self.ctx = Context(self)
        self.states = {name: state.bound(self) for name, state in operator.declared(State).items()}
        self.outputs = {name: _fresh(output, self) for name, output in operator.declared(Output).items()}
        self.counters = {name: _fresh(counter, self) for name, counter in operator.declared(Counter).items()}
        operator.__dict__["_states"] = self.states
        operator.__dict__["_tools"] = self.outputs | self.counters
        self.inputs: dict[str, Input] = operator.declared(Input)
        self.input_name: str | None = None
        self.timer_name: str | None = None
        self.writes_broadcast = False
        self.knows_keys: str | None = None
        """What told the function of a broadcast input something that other key groups do not know."""
        self.failed_at: tuple[Exception, int | None] | None = None
        """What failed while keys were visited, and the key."""
        self.key_number: int | None = None
        self.element_time: int | None = None
        self.batch_keys = self.batch_times = NONE
        self.shown_clock = 0
        self.running = False
        self.answers = {
            domain: getattr(type(operator), method) is not getattr(StreamOperator, method)
            for domain, method in ON_TIMER.items()
        }
        """For which timers is there a function?"""

    def begin(
        self,
        tables: Mapping[str, StateTable],
        timers: StateTable,
        keys: pa.Table,
        *,
        before: int,
        clock: int,
        ended: Callable[[str], bool],
    ) -> None:
        for output in self.outputs.values():
            output.rows, output.tables = [], []
        for counter in self.counters.values():
            counter.count = 0
        for name, state in self.states.items():
            state.attach(tables.get(name))
        self.running, self.key_number, self.writes_broadcast, self.knows_keys = True, None, False, None
        self.tables, self.timer_table, self.key_table = tables, timers, keys
        self.clock, self.ended = clock, ended
        self.left: dict[str, int] = {}
        self.waiting: Waiting | None = None
        self.time = before if self.event_time else self.shown_clock
        self.heap: list[tuple[int, int, str]] = []
        self.horizon = before
        self.last_fired: dict[tuple[int, str], int] = {}
        self.repeated: Counts[tuple[int, str]] = Counts()
        self.only_timers = False
        """Is this the end, and nothing left but timers?"""
        self._key_values: list[Any] | None = None

    def finish(self) -> None:
        """After a call: its state is no longer there."""
        self.running = False
        for state in self.states.values():
            state.attach(None)

    # ------------------------------------------------------------------ who

    def key_value(self) -> Any:
        if self.key_number is None:
            raise OperatorError(
                "there is no key here",
                hint="elements of broadcast inputs, late ones, batches, watermarks and ends of inputs have none",
            )
        if not self.key_table.num_columns:
            return None
        if self._key_values is None:
            rows = self.key_table.to_pylist()
            single = self.key_table.num_columns == 1
            self._key_values = [next(iter(row.values())) if single else Element(row) for row in rows]
        return self._key_values[self.key_number]

    def key_for(self, what: str) -> int:
        if self.key_number is None:
            raise OperatorError(
                f"{what} belongs to a key, and there is none here",
                hint="in batches use the columns of a state; from a broadcast input use ctx.apply_to_keyed_state",
            )
        return self.key_number

    def check_broadcast(self, spec: StateSpec) -> None:
        if not self.writes_broadcast:
            raise OperatorError(
                f'the broadcast state "{spec.name}" cannot be changed here',
                "Only elements of broadcast inputs may: every key group sees them, and so all stay alike.",
                None if self.knows_keys is None else f"change it before {self.knows_keys}",
            )
        if self.knows_keys is not None:
            raise OperatorError(
                f'the broadcast state "{spec.name}" cannot be changed after {self.knows_keys}',
                "What that tells differs between key groups, and broadcast state must not.",
                "change it before",
            )

    def see_keys(self, keys: Ints, how: str) -> None:
        """A function asks for something of *keys*, which are those of this key group."""
        if self.writes_broadcast and len(keys):
            self.knows_keys = how

    def apply_to_keyed_state(self, state: State, function: Callable[[Any, Any], None]) -> None:
        if not self.writes_broadcast:
            raise OperatorError("only a function of a broadcast input may visit all keys")
        if not isinstance(state, State) or state.broadcast or self.states.get(state.name) is not state:
            raise OperatorError(
                f"not a keyed state of this operator: {getattr(state, 'name', state)!r}", hint="self.<name of a state>"
            )
        self.knows_keys = "ctx.apply_to_keyed_state"
        rows = self.tables[state.name].settle(self.time)
        # A function that fails may be caught by the one that called it.
        self.writes_broadcast = False
        try:
            for key in np.unique(rows.column("key").to_numpy()).tolist():
                self.key_number = key
                function(self.key_value(), self.states[state.name])
        except Exception as error:
            self.failed_at = error, self.key_number
            raise
        finally:
            self.key_number, self.writes_broadcast = None, True

    # ------------------------------------------------------------------ timers

    def set_timer(self, domain: str, name: str, time: int | None) -> None:
        if domain == EVENT and not self.event_time:
            raise OperatorError("there are no event-time timers in processing time", hint="give an input a time")
        key = self.key_for("a timer")
        if not isinstance(name, str):
            raise OperatorError(f"the name of a timer is a text, not {type(name).__name__}")
        if time is not None and not self.answers[domain]:
            raise OperatorError(f'nothing would happen when the timer "{name}" fires', hint=f"write {ON_TIMER[domain]}")
        entries = self.timer_table.entries(key)
        if time is None:
            entries.pop(domain + name, None)
            return
        entries[domain + name] = (time, FOREVER)
        if domain == EVENT and time <= self.horizon:
            heapq.heappush(self.heap, (time, key, name))

    def load_timers(self, horizon: int) -> None:
        """Queue the event-time timers that *horizon* passes."""
        self.horizon = horizon
        rows = self.timer_table.rows
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
        """Of the key at hand, if there is one: nothing of this input is still to be processed."""
        if name not in self.inputs:
            raise OperatorError(f"there is no input {name!r}", f"Inputs: {', '.join(self.inputs)}")
        if self.writes_broadcast and not self.inputs[name].broadcast:
            self.knows_keys = f'ctx.has_ended("{name}")'
        held = self.waiting is not None and self.waiting.counts[self.key_number, name] > 0
        return self.ended(name) and not self.left.get(name) and not held

    def fire_before(self, limit: int) -> None:
        """Fire the queued event-time timers before *limit*, in order of time."""
        while self.heap and self.heap[0][0] < limit:
            time, key, name = first = self.heap[0]
            self.settle_waiting(key, time)
            if self.heap[0] != first:
                continue
            heapq.heappop(self.heap)
            if self.timer_table.entries(key).get(EVENT + name, (None,))[0] == time:  # else it was deleted, or moved
                self._fire(key, EVENT + name, time)

    def settle_waiting(self, key: int, time: int) -> None:
        """Before something happens to a key at *time*, what waits and may come by then comes: as if a micro-batch ended there."""
        if self.waiting is not None:
            self.time = max(self.time, time - 1)
            self.waiting.drain(self, key)

    def fire_key_before(self, key: int, limit: int) -> None:
        """Fire the event-time timers of one key before *limit*."""
        while self.heap:  # else none is due
            entries = self.timer_table.entries(key).items()
            due = [(time, name) for name, (time, _) in entries if name[0] == EVENT and time < limit]
            if not due:
                return
            time, name = min(due)
            self._fire(key, name, time)

    def next_timer(self, key: int) -> int:
        """The time of the next event-time timer of a key."""
        entries = self.timer_table.entries(key).items()
        return min((time for name, (time, _) in entries if name[0] == EVENT), default=END_OF_TIME)

    def fire_clock(self) -> bool:
        """Fire the processing-time timers that are due, in order of time; were there any?"""
        rows = self.timer_table.settle(0)
        names = rows.column("name").to_pylist()
        times = rows.column("value").to_numpy()
        due = [at for at in np.flatnonzero(times <= self.clock).tolist() if names[at][0] == CLOCK]
        keys = self.timer_table.keys
        for time, key, name in sorted((int(times[at]), int(keys[at]), names[at]) for at in due):
            if self.timer_table.entries(key).get(name, (None,))[0] == time:
                self.shown_clock = max(self.shown_clock, time)
                self._fire(key, name, time)
        return bool(due)

    def fire_all(self, limit: int) -> None:
        """Fire event-time timers before *limit* and processing-time timers, until none is due."""
        self.fire_before(limit)
        while self.fire_clock():
            self.fire_before(limit)

    def _fire(self, key: int, name: str, time: int) -> None:
        """*name*: with its domain."""
        del self.timer_table.entries(key)[name]
        self.key_number, self.element_time, self.input_name, self.timer_name = key, time, None, name[1:]
        if self.only_timers or self.last_fired.get((key, name), BEFORE_TIME) >= time:
            self.repeated[key, name] += 1
            if self.repeated[key, name] > ENDLESS:
                when = "after the end of all inputs" if self.only_timers else "without getting later"
                raise OperatorError(
                    f'the timer "{name[1:]}" does not come to an end',
                    f"It fired {ENDLESS} times {when}, and was registered again each time.\n{self.place(None)}",
                    'register it again only if not ctx.has_ended("name of an input")'
                    if self.only_timers
                    else "register it for a later time",
                )
        self.last_fired[key, name] = time
        if name[0] == EVENT or not self.event_time:
            self.time = max(self.time, time)
        self.call(
            ON_TIMER[name[0]],
            Timer(name[1:], to_datetime(time)),
        )
        self.key_number = self.timer_name = None

    # ------------------------------------------------------------------ functions

    def place(self, function: str | None) -> str:
        """Who is processed now, in words."""
        known = {
            "operator": type(self.operator).__name__,
            "function": function,
            "input": None if self.input_name is None else f'"{self.input_name}"',
            "timer": None if self.timer_name is None else f'"{self.timer_name}"',
            "key": None if self.key_number is None else repr(self.key_value()),
        }
        return ", ".join(f"{what} {value}" for what, value in known.items() if value is not None)

    def call(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self.operator, function)(*arguments, self.ctx)
        except OperatorError as error:
            self._back_to_the_key(error)
            error.detail = "\n".join([*([error.detail] if error.detail else []), self.place(function)])
            raise
        except Exception as error:
            self._back_to_the_key(error)
            raise OperatorError(
                f"{type(self.operator).__name__}.{function} failed",
                f"{described(error)}\n{self.place(function)}",
            ) from error

    def _back_to_the_key(self, error: Exception) -> None:
        if self.failed_at is not None and self.failed_at[0] is error:
            self.key_number = self.failed_at[1]

    def element(self, spec: Input, element: Element, time: int | None, key: int | None) -> None:
        self.input_name, self.writes_broadcast, self.knows_keys = spec.name, spec.broadcast, None
        self.key_number, self.element_time = key, time
        if time is not None:
            self.time = max(self.time, time - 1)
        self.call(spec.functions["process_element"], element)
        self.key_number, self.writes_broadcast, self.knows_keys = None, False, None

    def late(self, spec: Input, element: Element, time: int | None) -> None:
        self.input_name, self.element_time = spec.name, time
        self.call(spec.functions["process_late"], element)

    def select(self, key: int) -> set[str] | frozenset[str]:
        """What the key wants to read; empty: anything.

        :raises OperatorError: its answer is no selection of keyed inputs
        """
        self.key_number, self.element_time, self.input_name = key, None, None
        selection = self.call("select_inputs")
        if not isinstance(selection, set | frozenset):
            raise OperatorError(
                f"{selection!r} is no selection of inputs",
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

    def watermark(self, function: str, *watermarks: int) -> None:
        """Tell that an input's watermark has moved, or, without one, that it has ended."""
        self.element_time = None
        self.call(function, *map(to_datetime, watermarks))

    def batch(self, spec: Input, rows: pa.Table, keys: Ints, times: Ints) -> None:
        self.input_name, self.writes_broadcast, self.knows_keys = spec.name, spec.broadcast, None
        self.batch_keys, self.batch_times, self.element_time = keys, times, None
        self.call(spec.functions["process_batch"], rows)
        self.batch_keys = self.batch_times = NONE
        self.writes_broadcast, self.knows_keys = False, None

    def times_of(self, keys: Ints, *, last: bool) -> Ints:
        """The operator's time at the first or *last* row that each of *keys* has in the batch at hand."""
        step = -1 if last else 1
        found, at = np.unique(self.batch_keys[::step], return_index=True)
        times = np.maximum(self.batch_times[::step][at], self.time + 1) - 1
        if not len(found):
            return np.full(len(keys), self.time, np.int64)
        place = np.minimum(np.searchsorted(found, keys), len(found) - 1)
        return np.where(found[place] == keys, times[place], self.time)


def _fresh(declared: Any, runtime: Runtime) -> Any:
    kind = type(declared)
    mine = kind(declared.schema) if isinstance(declared, Output) else kind()
    mine.name, mine.runtime = declared.name, runtime
    return mine


# ---------------------------------------------------------------------- the order of things


def run(runtime: Runtime, arrived: Sequence[Arrived], horizon: int, waiting: Waiting | None) -> None:
    """Process everything that has arrived, and fire every timer until *horizon*."""
    runtime.left, runtime.waiting = {part.spec.name: len(part.times) for part in arrived}, waiting
    runtime.load_timers(horizon)
    if runtime.clock != END_OF_TIME:  # at the end of input the clock comes after everything that has a time
        runtime.fire_clock()
    batches = any("process_batch" in part.spec.functions for part in arrived if not part.spec.broadcast)
    order = _in_order(arrived)
    if batches:
        _in_runs(runtime, arrived, order)
    else:
        _one_by_one(runtime, arrived, order, waiting)
    limit = min(horizon, END_OF_TIME - 1) + 1
    if horizon != END_OF_TIME:
        runtime.fire_before(limit)
        runtime.time = max(runtime.time, horizon)
    if waiting is not None:  # at the end, what waits comes before the timers of the time after it
        waiting.drain_all(runtime)
    runtime.only_timers = runtime.clock == END_OF_TIME
    runtime.fire_all(limit)
    runtime.time = max(runtime.time, horizon)


def _in_order(arrived: Sequence[Arrived]) -> npt.NDArray[np.int64]:
    """(part, row) of all elements, in the order in which they are processed."""
    part = np.concatenate(
        [np.full(len(a.times), n, np.int64) for n, a in enumerate(arrived)] or [np.empty(0, np.int64)]
    )
    row = np.concatenate([np.arange(len(a.times)) for a in arrived] or [np.empty(0, np.int64)])
    times = np.concatenate([a.times for a in arrived] or [np.empty(0, np.int64)])
    rank = np.array([(not a.spec.broadcast, n) for n, a in enumerate(arrived)], np.int64).reshape(-1, 2)
    order = np.lexsort((row, rank[part, 1], rank[part, 0], times))
    return np.stack([part[order], row[order]], axis=1)


def _one_by_one(
    runtime: Runtime, arrived: Sequence[Arrived], order: npt.NDArray[np.int64], waiting: Waiting | None
) -> None:
    elements = [part.elements() for part in arrived]
    times = [part.times.tolist() for part in arrived]
    keys = [part.keys.tolist() for part in arrived]
    steps = order.tolist()
    at = 0
    while at < len(steps):
        number, row = steps[at]
        part, time = arrived[number], times[number][row]
        runtime.fire_before(time)
        stamp = None if time == BEFORE_TIME else time
        if part.spec.broadcast:
            at += _broadcast(runtime, part, _alike(part, number, order, at), elements[number], stamp)
            continue
        at += 1
        if waiting is None:
            runtime.element(part.spec, elements[number][row], stamp, keys[number][row])
        else:
            runtime.settle_waiting(keys[number][row], time)
            waiting.add(keys[number][row], part.spec, stamp, elements[number][row])
        runtime.left[part.spec.name] -= 1
        if waiting is not None:
            waiting.drain(runtime, keys[number][row])


def _alike(part: Arrived, number: int, order: npt.NDArray[np.int64], at: int) -> Ints:
    """The rows that a broadcast input's function gets together, from place *at* of the *order*: for one that processes batches
    all that have the same time. Nothing can come between them, in no key group.
    """
    end, time = at + 1, part.times[order[at, 1]]
    if "process_batch" in part.spec.functions:
        while end < len(order) and order[end, 0] == number and part.times[order[end, 1]] == time:
            end += 1
    return order[at:end, 1]


def _broadcast(runtime: Runtime, part: Arrived, rows: Ints, elements: Sequence[Element], stamp: int | None) -> int:
    """Process some elements of a broadcast input. How many there were."""
    if "process_batch" in part.spec.functions:
        runtime.batch(part.spec, part.rows.take(pa.array(rows)), NONE, NONE)
    else:
        runtime.element(part.spec, elements[rows[0]], stamp, None)
    runtime.left[part.spec.name] -= len(rows)
    return len(rows)


def _in_runs(runtime: Runtime, arrived: Sequence[Arrived], order: npt.NDArray[np.int64]) -> None:
    elements: dict[int, list[Element]] = {
        n: part.elements() for n, part in enumerate(arrived) if "process_batch" not in part.spec.functions
    }
    is_broadcast = np.array([part.spec.broadcast for part in arrived], np.bool_)[order[:, 0]]
    at = 0
    while at < len(order):
        if is_broadcast[at]:
            number, row = order[at].tolist()
            part, time = arrived[number], int(arrived[number].times[row])
            runtime.fire_before(time)
            stamp = None if time == BEFORE_TIME else time
            at += _broadcast(runtime, part, _alike(part, number, order, at), elements.get(number, ()), stamp)
            continue
        following = np.flatnonzero(is_broadcast[at:])
        end = at + int(following[0]) if len(following) else len(order)
        # Until the next broadcast element each key has a time of its own.
        begun = runtime.time
        for number, rows in _runs(arrived, order[at:end]):
            part = arrived[number]
            if number in elements:
                for row, time, key in zip(
                    rows.tolist(), part.times[rows].tolist(), part.keys[rows].tolist(), strict=True
                ):
                    runtime.time = begun
                    runtime.fire_key_before(key, time)
                    runtime.element(part.spec, elements[number][row], None if time == BEFORE_TIME else time, key)
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
    """Show a run to its function; in pieces, where timers of its keys fire in between."""
    while len(rows):
        keys, times = part.keys[rows], part.times[rows]
        now = np.ones(len(rows), np.bool_)
        if runtime.heap:
            first = dict(zip(keys[::-1].tolist(), times[::-1].tolist(), strict=True))
            for key, time in first.items():
                runtime.time = begun
                runtime.fire_key_before(key, time)
            limits = {key: runtime.next_timer(key) for key in first}
            now = times <= np.array([limits[key] for key in keys.tolist()], np.int64)
        runtime.time = begun
        mine = rows[now]
        runtime.batch(part.spec, part.rows.take(pa.array(mine)), keys[now], times[now])
        rows = rows[~now]


def _runs(arrived: Sequence[Arrived], order: npt.NDArray[np.int64]) -> Iterator[tuple[int, Ints]]:
    """The elements of keyed inputs as (input, rows): first every key's first run, then every key's second, and so on."""
    parts, rows = order[:, 0], order[:, 1]
    if len(np.unique(parts)) == 1:
        yield int(parts[0]), rows
        return
    keys = np.empty(len(order), np.int64)
    for number, part in enumerate(arrived):
        mine = parts == number
        keys[mine] = part.keys[rows[mine]]
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
            mine = (run_of == turn) & (parts == number)
            if mine.any():
                yield number, rows[mine]


class Waiting:
    """Elements of inputs that are not selected, per key, in order."""

    def __init__(self, inputs: Mapping[str, Input]) -> None:
        self.inputs = inputs
        self.elements: dict[int, list[tuple[Input, int | None, Element]]] = {}
        self.counts: Counts[tuple[int | None, str]] = Counts()

    def add(self, key: int, spec: Input, time: int | None, element: Element) -> None:
        self.elements.setdefault(key, []).append((spec, time, element))
        self.counts[key, spec.name] += 1

    def add_row(self, key: int, spec: Input, time: int | None, row: Mapping[str, Any]) -> None:
        self.add(key, spec, time, Element(row))

    def drain_all(self, runtime: Runtime) -> None:
        for key in list(self.elements):
            self.drain(runtime, key)

    def drain(self, runtime: Runtime, key: int) -> None:
        """Process what the key wants to read, until there is none of that."""
        mine = self.elements.get(key, [])
        while mine:
            selection = runtime.select(key)
            wanted = selection or self.inputs.keys()
            at = next((n for n, item in enumerate(mine) if item[0].name in wanted), None)
            if at is None:
                if not all(runtime.has_ended(name) for name in wanted):
                    return
                at = 0
            spec, time, element = mine.pop(at)
            runtime.element(spec, element, time, key)
            self.counts[key, spec.name] -= 1
        self.elements.pop(key, None)
