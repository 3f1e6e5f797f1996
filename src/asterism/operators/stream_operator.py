"""User-defined operators: any number of named inputs, keyed and broadcast state, timers, side outputs.

A user subclasses :class:`StreamOperator`, declares inputs, states, outputs and counters as class attributes, and defines
functions that process elements and timers (see ``docs/operators.md``).
:class:`asterism.operators.multiple_input.MultipleInputOperator` adapts it to :class:`asterism.operators.operator.Operator`.

The processing order depends only on the events:

* Elements with an event time are buffered until the watermark passes them, and are processed in the order of their times.
  Among equal times, broadcast inputs come first, then inputs in the order of declaration, then elements in arrival order.
  Elements without an event time are processed when they arrive, before all others.
* An event-time timer fires when event time passes it: after the elements up to its time, before later ones.
* Functions that process batches get whole runs for each key: all consecutive elements of one input. Broadcast elements are
  processed between runs, in order.

Source: FLIP-92; FLINK-4940; Flink's ``KeyedBroadcastProcessFunction``.
"""

from __future__ import annotations

import bisect
import copy
import inspect
import itertools
import math
import operator as op
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pyarrow as pa

from asterism.arguments import expect_string, shown
from asterism.columns.arrays import cast_table
from asterism.columns.schemas import schema_of
from asterism.errors import OperatorError, StreamDefinitionError
from asterism.operators.context import ON_TIMER, Context, Timer
from asterism.operators.histograms import GREATEST, LEAST, SUM, count_name, value_name
from asterism.operators.key_group import LATE, Group
from asterism.operators.state.keyed_state import MISFITS, State

GAUGE_AGGREGATES = ("max", "min", "sum", "avg")
"""How the values of a gauge in several key groups are combined."""
DEFAULT_BUCKETS = tuple(step * 10.0**power for power in range(-3, 4) for step in (1, 2, 5))
"""The upper bounds of the buckets of a histogram."""
_MAX_BUCKETS = 100
WHEN = "the operator processes elements, watermarks or timers"
"""When an operator can use its outputs."""
_USES = "__asterism_uses__"
"""Attribute of functions: the inputs that they are attached to, and their purposes."""


class InputSelection(frozenset[str]):
    """The inputs that an operator reads next: ``InputSelection.of("build")``, or ALL."""

    ALL: ClassVar[InputSelection]

    @classmethod
    def of(cls, *names: str) -> InputSelection:
        """
        :raises StreamDefinitionError: a name is not a string
        """
        for name in names:
            expect_string(
                StreamDefinitionError,
                name,
                "an InputSelection must contain names of inputs",
                'InputSelection.of("a", "b")',
            )
        return cls(names)


InputSelection.ALL = InputSelection()


# ---------------------------------------------------------------------- declarations


class Input:
    """A keyed input. Each element is processed with the state of its key.

    :param columns: the columns that the operator reads, as Spark SQL (``"id BIGINT, ts TIMESTAMP"``) or an Arrow schema

    Functions are attached with decorators: one of :meth:`process_element` and :meth:`process_batch`, and optionally
    :meth:`process_late`, :meth:`process_watermark` and :meth:`end_input`. A subclass overrides these functions by name, or
    attaches its own with ``@Base.clicks.process_element``.
    """

    broadcast = False

    def __init__(self, columns: str | pa.Schema) -> None:
        self.schema = schema_of(columns)
        self.name = ""
        self.functions: dict[str, str] = {}
        self.declared_as = self
        """The declaration in the base class, if this is the copy of a subclass."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def _attach(self, what: str, function: Callable[..., None]) -> Callable[..., None]:
        # __init_subclass__ reads this attribute, since an inherited input can have other functions in each subclass.
        function.__dict__.setdefault(_USES, []).append((self, what))
        return function

    def process_element(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, element, ctx)`` is called for each element."""
        return self._attach("process_element", function)

    def process_batch(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, batch, ctx)`` is called with many elements of many keys at once, as a :class:`pyarrow.Table`.
        ``ctx.keys`` has the index of each row's key.
        """
        return self._attach("process_batch", function)

    def process_late(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, element, ctx)`` is called for a late element, or one without a time. It has no access to state.
        Without this function, late elements are counted and dropped, and an element without a time is an error.
        """
        return self._attach("process_late", function)

    def process_watermark(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, watermark, ctx)`` is called when the watermark of this input has advanced, once per key group,
        with a datetime (at the end: ``datetime.max``). The number of calls depends on the micro-batches. Elements up to that
        time may still be buffered, because of the watermarks of other inputs.
        """
        return self._attach("process_watermark", function)

    def end_input(self, function: Callable[..., None]) -> Callable[..., None]:
        """``function(self, ctx)`` is called when this input has ended and its elements have been processed, once per key
        group, after the timers that are due. It visits keys with ``ctx.apply_to_keyed_state``. Timers that it registers in the
        past fire after it; at the end of all inputs, these are all timers. Only elements that are not selected yet (see
        ``select_inputs``) may be processed later.
        """
        return self._attach("end_input", function)


class BroadcastInput(Input):
    """An input whose elements every key group receives, in the same order. Only its functions may change broadcast state."""

    broadcast = True


class RunningOperator(Protocol):
    """The call in which the outputs and metrics of an operator, or of a function, are used.

    :ivar kind: what declares them
    :ivar when: when outputs can be used
    """

    kind: str
    when: str
    running: bool

    writes_broadcast: bool

    @property
    def operator(self) -> object: ...

    @property
    def repeats(self) -> bool: ...


class Tool:
    """Base of outputs and metrics. In a running operator, the attribute is the object of the current call."""

    use = ""

    def __init__(self) -> None:
        self.name = ""
        self.runtime: RunningOperator | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        try:
            return instance.__dict__["_tools"][self.name]
        except KeyError:  # the operator does not run
            return self

    def __set__(self, instance: Any, value: Any) -> None:
        raise OperatorError(
            f'"{self.name}" cannot be assigned, only used with its methods', hint=f"self.{self.name}.{self.use}"
        )

    def _check_declared(self) -> None:
        if not self.name:
            raise OperatorError(
                f"a {type(self).__name__} cannot be created in a function",
                hint="declare it in the class, next to the inputs",
            )

    @property
    def _repeats(self) -> bool:
        return self.runtime is not None and self.runtime.writes_broadcast and self.runtime.repeats

    @property
    def _place(self) -> str:
        return "" if self.runtime is None else f"\n{self.runtime.kind} {type(self.runtime.operator).__name__}"

    def _check_running(self) -> None:
        self._check_declared()
        if self.runtime is None or not self.runtime.running:
            when = WHEN if self.runtime is None else self.runtime.when
            raise OperatorError(
                f'the output "{self.name}" can be used only while {when}',
                hint="use it in the functions that process elements, watermarks and timers" if when == WHEN else None,
            )

    def running_in(self, runtime: RunningOperator) -> Self:
        """A copy for a running operator or function."""
        running = copy.copy(self)
        running.runtime = runtime
        return running

    def reset(self) -> None:
        """Discard what was added."""
        raise NotImplementedError

    def taken(self) -> Self:
        """A copy with what was added since the last call."""
        taken = copy.copy(self)
        self.reset()
        return taken

    def add_to(self, group: Group) -> None:
        """Add what was added to the results of a call."""
        raise NotImplementedError


class Output(Tool):
    """An output: ``self.alerts.collect(user="ann", amount=7.0)``.

    What a function of a broadcast input emits is emitted once, and not by every key group that runs the function. After
    ``ctx.apply_to_keyed_state`` or another call that depends on the keys, every key group emits its own rows.

    :param columns: its columns, as Spark SQL or an Arrow schema
    """

    use = "collect(...)"

    def __init__(self, columns: str | pa.Schema) -> None:
        super().__init__()
        self.schema = schema_of(columns)
        self._names = frozenset(self.schema.names)
        self._nested = any(pa.types.is_nested(kind) for kind in self.schema.types)
        self.reset()

    def collect(self, row: Mapping[str, Any] | None = None, /, **columns: Any) -> None:
        """Emit one row; missing columns are null.

        :param row: a dict or an element; *columns* are added to it, or replace its values
        :raises OperatorError: there is no such column
        """
        runtime = self.runtime
        if runtime is None or not runtime.running:
            self._check_running()
        assert runtime is not None
        whole = row is not None
        row = {**row, **columns} if row is not None else columns
        if not row.keys() <= self._names:
            unknown = row.keys() - self._names
            raise OperatorError(
                f'the output "{self.name}" has no column {sorted(unknown)[0]!r}',
                f"Columns: {', '.join(self.schema.names)}",
                "an element that is emitted whole must have only columns of the output; otherwise, name the columns"
                if whole
                else None,
            )
        if runtime.writes_broadcast and runtime.repeats:
            return
        # A list or a dict may be changed by the caller before the rows are taken.
        self.rows.append(copy.deepcopy(row) if self._nested else row)

    def collect_batch(self, rows: pa.Table) -> None:
        """Emit many rows; the columns may be in any order.

        :raises OperatorError: a column is missing, or of another type
        """
        self._check_running()
        self._rows_to_table()
        try:
            table = cast_table(rows.select(self.schema.names), self.schema)
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OperatorError(
                f'the rows do not fit the output "{self.name}"', f"{error}\nColumns: {self._columns}"
            ) from None
        if not self._repeats:
            self.tables.append(table)

    def reset(self) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self.tables: list[pa.Table] = []

    def taken(self) -> Self:
        self._rows_to_table()
        return super().taken()

    def add_to(self, group: Group) -> None:
        for table in self.tables:
            group.emit(self.name, table)

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
                            f"{row!r}\n{error}\nColumns: {self._columns}{self._place}",
                        ) from None
                raise

    @property
    def _columns(self) -> str:
        return ", ".join(f"{field.name} {field.type}" for field in self.schema)

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(rows, self.schema)


def declared_in(operator: type, kind: type | tuple[type, ...]) -> dict[str, Any]:
    """The class attributes of one or several types, by name, in the order of declaration, those of base classes first."""
    declared: dict[str, Any] = {}
    for base in reversed(operator.__mro__):
        declared |= {name: value for name, value in vars(base).items() if isinstance(value, kind)}
    return declared


def check_function(function: Callable[..., Any]) -> None:
    """:raises StreamDefinitionError: the function is a generator or a coroutine"""
    kind = "generator" if inspect.isgeneratorfunction(function) else "coroutine"
    if kind == "generator" or inspect.iscoroutinefunction(function):
        raise StreamDefinitionError(
            f"{function.__qualname__.rpartition('<locals>.')[2]} is a {kind}, which is not supported",
            hint="write a plain function, and emit rows with an output: self.alerts.collect(...)",
        )


class Counter(Tool):
    """A counter in the query's progress: ``self.rejected.inc()``. In functions of broadcast inputs it counts once, as an
    :class:`Output` emits once.
    """

    use = "inc()"

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def inc(self, by: int = 1) -> None:
        """Increment the counter by *by*.

        :raises TypeError: *by* is not an integer
        """
        self._check_declared()
        by = op.index(by)
        if not self._repeats:
            self.count += by

    def reset(self) -> None:
        self.count = 0

    def add_to(self, group: Group) -> None:
        if self.count:
            group.metrics[self.name] += self.count


class Gauge(Tool):
    """A value in the query's progress that is set: ``self.waiting.set(3)``. Each key group has the last value that it set in a
    micro-batch; the progress has one value of those of all key groups, or None if there are none.

    :param aggregate: how the values of key groups are combined: ``"max"``, ``"min"``, ``"sum"`` or ``"avg"``
    :raises StreamDefinitionError: *aggregate* is something else

    Source: Flink's ``Gauge``, which each subtask has.
    """

    use = "set(value)"

    def __init__(self, aggregate: str = "max") -> None:
        super().__init__()
        if not isinstance(aggregate, str) or aggregate not in GAUGE_AGGREGATES:
            raise StreamDefinitionError(
                f"the values of a gauge are combined by {', '.join(GAUGE_AGGREGATES)}, not {shown(aggregate)}",
                hint='Gauge("max")',
            )
        self.aggregate = aggregate
        self.reset()

    def reset(self) -> None:
        self.last: float | None = None

    def set(self, value: float) -> None:
        """Set the value.

        :raises OperatorError: it is not a finite number
        """
        self._check_declared()
        value = _number(self, value)
        if not self._repeats:
            self.last = value

    def add_to(self, group: Group) -> None:
        if self.last is not None:
            group.gauges[self.name] = self.last


class Histogram(Tool):
    """A distribution of values in the query's progress: ``self.seconds.update(0.3)``. The progress has their number, sum, minimum
    and maximum in each micro-batch, and for each of *buckets* the number of values that are not greater.

    :param buckets: the upper bounds of the buckets, in ascending order, at most 100. Default: 1, 2 and 5 times the powers of
        ten from 0.001 to 1,000.
    :raises StreamDefinitionError: *buckets* are not ascending numbers

    Source: Flink's ``Histogram``; the histograms of Prometheus, which can be added.
    """

    use = "update(value)"

    def __init__(self, buckets: Sequence[float] = DEFAULT_BUCKETS) -> None:
        super().__init__()
        hint = "Histogram([0.1, 1, 10])"
        if not isinstance(buckets, Sequence) or isinstance(buckets, str | bytes):
            raise StreamDefinitionError(f"the buckets of a histogram must be numbers, not {shown(buckets)}", hint=hint)
        if not 0 < len(buckets) <= _MAX_BUCKETS:
            raise StreamDefinitionError(f"a histogram has 1 to {_MAX_BUCKETS} buckets, not {len(buckets):,}", hint=hint)
        for bound in buckets:
            if not _is_finite(bound):
                raise StreamDefinitionError(
                    f"the buckets of a histogram must be numbers, not {shown(bound)}", hint=hint
                )
        self.buckets = tuple(float(bound) for bound in buckets)
        if any(a >= b for a, b in itertools.pairwise(self.buckets)):
            raise StreamDefinitionError("the buckets of a histogram must be in ascending order", hint=hint)
        self.reset()

    def reset(self) -> None:
        self.counts = [0] * (len(self.buckets) + 1)
        """The number of values in each bucket, and of those that are greater than all bounds."""
        self.sum, self.least, self.greatest = 0.0, math.inf, -math.inf

    def update(self, value: float) -> None:
        """Add a value.

        :raises OperatorError: it is not a finite number
        """
        self._check_declared()
        value = _number(self, value)
        if not self._repeats:
            self.counts[bisect.bisect_left(self.buckets, value)] += 1
            self.sum += value
            self.least, self.greatest = min(self.least, value), max(self.greatest, value)

    def add_to(self, group: Group) -> None:
        if not any(self.counts):
            return
        for bucket, count in enumerate(itertools.accumulate(self.counts)):
            group.metrics[count_name(self.name, bucket)] += count
        for what, combined, value in (SUM, op.add, self.sum), (LEAST, min, self.least), (GREATEST, max, self.greatest):
            key = value_name(self.name, what)
            group.gauges[key] = combined(group.gauges[key], value) if key in group.gauges else value


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(metric: Tool, value: float) -> float:
    value = value.item() if isinstance(value, np.generic) else value
    if not _is_finite(value):
        raise OperatorError(f'the metric "{metric.name}" has finite numbers, not {shown(value)}')
    return float(value)


TOOLS = (Output, Counter, Gauge, Histogram)
"""The kinds of class attributes that an operator or a function declares."""


class StreamOperator:
    """Base class of operators with any number of inputs. A subclass declares inputs, states, outputs and metrics.

    >>> from asterism.operators.state.keyed_state import ValueState
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

    :raises StreamDefinitionError: when the class is defined, if its declarations are inconsistent
    """

    def open(self) -> None:
        """Called first in the process that runs the operator, for example to open connections or load models."""

    def close(self) -> None:
        """Called at the end, also after a failure."""

    def on_event_time_timer(self, timer: Timer, ctx: Context) -> None:
        """Called when event time has passed a timer of the current key.

        When all inputs have ended, every timer fires, also timers that are registered at that point. A timer that registers
        itself again must therefore check ``ctx.has_ended``.
        """

    def on_processing_time_timer(self, timer: Timer, ctx: Context) -> None:
        """Called when processing time has passed a timer of the current key, and for all timers at the end of all inputs."""

    def select_inputs(self, ctx: Context) -> InputSelection:
        """The inputs that the current key reads next; elements of other inputs are buffered in order. It is called before
        every element. If all selected inputs have ended, elements of any input are processed.
        """
        return InputSelection.ALL

    @classmethod
    def declared(cls, kind: type | tuple[type, ...]) -> dict[str, Any]:
        """The class attributes of one or several types, by name, in the order of declaration, those of base classes first."""
        return declared_in(cls, kind)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in declared_in(cls, (Input, State, *TOOLS)):
            if hasattr(StreamOperator, name):
                raise StreamDefinitionError(
                    f'{cls.__name__} declares "{name}", which is a method of every operator', hint=f'name it "{name}_"'
                )
            if name == LATE:
                raise StreamDefinitionError(
                    f'"{name}" is a counter that every operator already has', hint="use another name"
                )
        cls._copy_inputs()
        for method in ("open", "close", "select_inputs", *ON_TIMER.values()):
            check_function(getattr(cls, method))
        for name, declared in cls.declared(Input).items():
            functions = declared.functions
            for function in functions.values():
                check_function(getattr(cls, function))
            if "process_element" in functions and "process_batch" in functions:
                raise StreamDefinitionError(
                    f'the input "{name}" of {cls.__name__} processes both elements and batches',
                    f"The functions are {functions['process_element']} and {functions['process_batch']}.",
                )
        if cls.selects() and any("process_batch" in i.functions for i in cls.declared(Input).values()):
            raise StreamDefinitionError(
                f"{cls.__name__} cannot both select its inputs and process batches",
                "The next input is selected before every element.",
                "use process_element",
            )

    @classmethod
    def _copy_inputs(cls) -> None:
        """Set copies of the inputs on this class, with the functions that it and its base classes attach to them."""
        inputs = {name: copy.copy(declared) for name, declared in cls.declared(Input).items()}
        for name, copied in inputs.items():
            copied.functions = {}
            setattr(cls, name, copied)
        for base in reversed(cls.__mro__):
            here: dict[tuple[str, str], str] = {}
            for function, value in vars(base).items():
                for used, what in getattr(value, "__dict__", {}).get(_USES, ()):
                    if inputs[used.name].declared_as is not used.declared_as:
                        continue  # the input was redeclared
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
