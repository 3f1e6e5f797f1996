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
import inspect
import operator as op
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from asterism.arguments import expect_text
from asterism.columns.schemas import schema_of
from asterism.errors import OperatorError, StreamDefinitionError
from asterism.operators.context import ON_TIMER, Context, Timer
from asterism.operators.key_group import LATE
from asterism.operators.keyed_state import MISFITS, State

_USES = "__asterism_uses__"
"""Attribute of functions: for which inputs, and what, they are."""


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


class RunningOperator(Protocol):
    """The call in which what an operator declares is used."""

    operator: StreamOperator
    running: bool


class _Declared:
    """Base of what is used under its own name in a running operator."""

    use = ""

    def __init__(self) -> None:
        self.name = ""
        self.runtime: RunningOperator | None = None

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
