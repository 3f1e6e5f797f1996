"""Keyed and broadcast state of user-defined operators: values, lists and maps.

State is declared by class attributes of a :class:`asterism.operators.stream_operator.StreamOperator`; in its functions the same
attributes are the state of the current key. It is stored in columns: one table per state with a row per entry, sorted by key.
The entries of a key become Python objects when a function reads them; a vectorised function reads and writes whole columns.

Source: Flink's "Working with State", "The Broadcast State Pattern"; FLINK-4940.
"""

from __future__ import annotations

import builtins
import copy
import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from asterism.arguments import hint_of_duration, shown
from asterism.columns.arrays import Ints, cast_to, python_values
from asterism.columns.schemas import type_of
from asterism.columns.time import END_OF_TIME
from asterism.errors import OperatorError, StreamDefinitionError, UserFunctionError
from asterism.spelling import PythonNames

KEY, NAME, VALUE, EXPIRES = "key", "name", "value", "expires"
MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""The exceptions of Arrow for a value of a wrong type."""
ON_CREATE_AND_WRITE, ON_READ_AND_WRITE = UPDATE_TYPES = "on_create_and_write", "on_read_and_write"
"""The event from which the time to live of an entry is measured."""


class StateScope(Protocol):
    """The interface of states to the current call."""

    time: int
    key_number: int | None
    """the index of the current key, if there is one"""

    def key_for(self, what: str) -> int:
        """The index of the current key; an error if there is none."""
        ...

    def check_broadcast(self, spec: StateSpec) -> None: ...

    def see_keys(self, keys: Ints, how: str) -> None: ...

    def times_of(self, keys: Ints, *, last: bool) -> Ints: ...


class StateKind(enum.Enum):
    VALUE = "value"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class StateSpec:
    """The definition of a state. *ttl* in microseconds."""

    name: str
    kind: StateKind
    type: pa.DataType
    key_type: pa.DataType | None
    ttl: int | None
    broadcast: bool
    # Not in the repr, of which the fingerprint of an operator is made: the stored state is the same.
    refreshed_by_reads: bool = field(default=False, repr=False)

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(KEY, pa.int64())]
        if self.key_type is not None:
            fields.append(pa.field(NAME, self.key_type))
        fields.append(pa.field(VALUE, self.type))
        if self.ttl is not None:
            fields.append(pa.field(EXPIRES, pa.int64()))
        return pa.schema(fields)


Entry = tuple[Any, int]
"""A value and its expiry time."""


class StateEntries(ABC):
    """The entries of one state in a call."""

    def __init__(self, spec: StateSpec) -> None:
        self.spec = spec
        self.exact = _exact(spec.type)
        self.exact_name = _exact(spec.key_type) if spec.key_type is not None else None

    @abstractmethod
    def entries(self, key: int) -> Any:
        """The entries of a key, to be changed in place (a list, a dict) or replaced by :meth:`replace`."""

    @abstractmethod
    def replace(self, key: int, entries: Any) -> None: ...

    def begin_change(self) -> None:  # noqa: B027 - the entries of a key belong to it alone
        """Called before the entries of a broadcast state change."""

    def value(self, value: Any) -> Any:
        """A value as it would be read from a checkpoint.

        :raises OperatorError: it is not of the state's type
        """
        try:
            return self.exact(value)
        except MISFITS as error:
            raise self._misfit(value, self.spec.type, "holds", error) from None

    def name(self, name: Any) -> Any:
        """A key of a map, likewise."""
        assert self.exact_name is not None
        try:
            name = self.exact_name(name)
            return _normalized(name) if isinstance(name, float) else name
        except MISFITS as error:
            raise self._misfit(name, self.spec.key_type, "has keys of type", error) from None

    def _misfit(self, value: Any, type_: pa.DataType, verb: str, error: Exception) -> OperatorError:
        return OperatorError(f'the state "{self.spec.name}" {verb} {type_}, not {value!r}', str(error))


class StateTable(StateEntries):
    """The entries of one state for the keys of a call. Key indexes start at 0; *rows* are sorted by key.

    The entries of keys that were accessed are in *touched*: an Entry or None, a list of them, or a dict of them.
    """

    def __init__(self, spec: StateSpec, rows: pa.Table) -> None:
        super().__init__(spec)
        self.rows = rows.combine_chunks()
        self.keys: Ints = self.rows.column(KEY).to_numpy()
        self.touched: dict[int, Any] = {}
        self._values: list[Any] | None = None
        self._names: list[Any] = []
        self._expires: list[int] = []
        self._where: dict[int, tuple[int, int]] = {}

    def entries(self, key: int) -> Any:
        if key in self.touched:
            return self.touched[key]
        if self._values is None:
            self._values = python_values(self.rows.column(VALUE))
            self._names = map_keys(self.rows.column(NAME)) if self.spec.key_type is not None else []
            has = self.spec.ttl is not None
            self._expires = self.rows.column(EXPIRES).to_pylist() if has else [END_OF_TIME] * len(self._values)
            distinct, begins = np.unique(self.keys, return_index=True)
            ends = np.append(begins, len(self.keys))[1:]
            self._where = dict(zip(distinct.tolist(), zip(begins.tolist(), ends.tolist(), strict=True), strict=True))
        begin, end = self._where.get(key, (0, 0))
        stored = list(zip(self._values[begin:end], self._expires[begin:end], strict=True))
        if self.spec.kind is StateKind.VALUE:
            return stored[0] if stored else None
        if self.spec.kind is StateKind.MAP:
            of_key: Any = dict(zip(self._names[begin:end], stored, strict=True))
        else:
            of_key = stored
        self.touched[key] = of_key
        return of_key

    def replace(self, key: int, entries: Any) -> None:
        self.touched[key] = entries

    def settle(self, time: int) -> pa.Table:
        """All rows, with the current entries of accessed keys, without entries that have expired by *time*."""
        rows = self.rows
        if self.touched:
            untouched = ~np.isin(self.keys, np.fromiter(self.touched, np.int64, len(self.touched)))
            rows = pa.concat_tables([rows.filter(pa.array(untouched)), self._of_touched()])
            rows = rows.take(pa.array(np.argsort(rows.column(KEY).to_numpy(), kind="stable")))
        if self.spec.ttl is not None:
            rows = rows.filter(pa.array(rows.column(EXPIRES).to_numpy() > min(time, END_OF_TIME - 1)))
        if rows is not self.rows:
            self.rows = rows.combine_chunks()
            self.keys = self.rows.column(KEY).to_numpy()
            self._values, self.touched = None, {}
        return self.rows

    def _of_touched(self) -> pa.Table:
        keys: list[int] = []
        names: list[Any] = []
        entries: list[Entry] = []
        for key, of_key in self.touched.items():
            if self.spec.kind is StateKind.VALUE:
                key_entries = [] if of_key is None else [of_key]
            elif self.spec.kind is StateKind.MAP:
                names += of_key.keys()
                key_entries = list(of_key.values())
            else:
                key_entries = of_key
            keys += [key] * len(key_entries)
            entries += key_entries
        columns = {KEY: pa.array(keys, pa.int64()), VALUE: self.array([value for value, _ in entries])}
        if self.spec.key_type is not None:
            columns[NAME] = self.array(names, self.spec.key_type)
        if self.spec.ttl is not None:
            columns[EXPIRES] = pa.array([expires for _, expires in entries], pa.int64())
        return pa.table([columns[name] for name in self.spec.schema.names], schema=self.spec.schema)

    def array(self, values: Any, type_: pa.DataType | None = None) -> pa.Array:
        """Values as an array of the state's type.

        :raises OperatorError: one of them is not of this type
        """
        type_ = self.spec.type if type_ is None else type_
        try:
            if isinstance(values, pa.ChunkedArray):
                values = values.combine_chunks()
            return cast_to(values, type_) if isinstance(values, pa.Array) else pa.array(values, type_)
        except MISFITS as error:
            raise OperatorError(
                f'the values do not fit the state "{self.spec.name}", which holds {type_}', str(error)
            ) from None

    # ------------------------------------------------------------------ columns

    def column(self, keys: Ints, time: int, at_row: Ints | None = None) -> pa.Array:
        """The value of each of *keys*, or null. *at_row*: the time at which each is read, if it matters."""
        rows = self.settle(time)
        if not len(self.keys):
            return pa.nulls(len(keys), self.spec.type)
        inside = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        missing = self.keys[inside] != keys
        if at_row is not None:
            missing |= rows.column(EXPIRES).to_numpy()[inside] <= at_row
        return rows.column(VALUE).combine_chunks().take(pa.array(inside, mask=missing))

    def put_column(self, keys: Ints, values: Any, time: int, expires: Ints | None = None) -> None:
        """Set the value of each of *keys*; the last of equal keys applies. A null clears. *expires*: the expiry times."""
        rows = self.settle(time)
        array = self.array(values)
        if len(array) != len(keys):
            raise OperatorError(f'the state "{self.spec.name}" received {len(array):,} values for {len(keys):,} keys')
        last = len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]  # sorted by key
        columns = {KEY: pa.array(keys[last]), VALUE: array.take(pa.array(last))}
        if self.spec.ttl is not None:
            assert expires is not None
            columns[EXPIRES] = pa.array(expires[last])
        new = pa.table([columns[name] for name in self.spec.schema.names], schema=self.spec.schema)
        new = new.filter(new.column(VALUE).is_valid())
        merged = pa.concat_tables([rows.filter(pa.array(~np.isin(self.keys, keys))), new])
        self.rows = merged.take(pa.array(np.argsort(merged.column(KEY).to_numpy(), kind="stable"))).combine_chunks()
        self.keys, self._values = self.rows.column(KEY).to_numpy(), None


def map_keys(column: pa.ChunkedArray) -> list[Any]:
    """The keys of a map, so that a dict has one entry for those that Spark regards as equal."""
    keys: list[Any] = column.to_pylist()
    return list(map(_normalized, keys)) if pa.types.is_floating(column.type) else keys


def _normalized(key: float) -> float:
    """-0.0 is 0.0. NaN is one object, since it is not equal to itself, but a dict finds a key that is the same object."""
    return math.nan if math.isnan(key) else key + 0.0


_PLAIN: dict[pa.DataType, type] = {
    pa.bool_(): bool,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes,
}


def _exact(type_: pa.DataType) -> Callable[[Any], Any]:
    """A function that converts a value as a round trip through a column of this type would; None stays None."""
    plain = _PLAIN.get(type_)
    fields = {field.name for field in type_} if pa.types.is_struct(type_) else set()

    def exact(value: Any) -> Any:
        if type(value) is plain or value is None:
            return value
        if type(value) is int and pa.types.is_temporal(type_):
            raise TypeError("a number is not a time: use a datetime or a date")
        if fields and isinstance(value, dict) and not value.keys() <= fields:
            raise TypeError(f"there is no field {min(value.keys() - fields, key=str)!r}")
        return pa.scalar(value, type_).as_py(maps_as_pydicts="lossy")

    def exact_int(value: Any) -> Any:
        return value if type(value) is int and -(2**63) <= value < 2**63 else exact(value)

    return exact_int if type_ == pa.int64() else exact


# ---------------------------------------------------------------------- the public states


class State(metaclass=PythonNames):
    """Base of states. As a class attribute it is a declaration; in a running operator it is the state of the current key."""

    kind = StateKind.VALUE
    broadcast = False
    change = "update(value)"
    """The call that changes it, for messages."""

    def __init__(
        self, type: str | pa.DataType, *, ttl: timedelta | None = None, update_type: str = ON_CREATE_AND_WRITE
    ) -> None:
        self.type = type_of(type)
        self.key_type: pa.DataType | None = None
        if ttl is not None and not (isinstance(ttl, timedelta) and ttl > timedelta(0)):
            hint = hint_of_duration(ttl, "ttl=timedelta(hours=1)")
            raise StreamDefinitionError(f"a state's time to live must be a positive timedelta, not {ttl!r}", hint=hint)
        if not isinstance(update_type, str) or update_type not in UPDATE_TYPES:
            raise StreamDefinitionError(
                f'the update_type of a state must be "{ON_CREATE_AND_WRITE}" or "{ON_READ_AND_WRITE}", not {shown(update_type)}'
            )
        if update_type == ON_READ_AND_WRITE and ttl is None:
            raise StreamDefinitionError(
                "a state without a time to live has no update_type",
                hint=f'ttl=timedelta(hours=1), update_type="{update_type}"',
            )
        self.ttl = None if ttl is None else ttl // timedelta(microseconds=1)
        self.update_type = update_type
        self.refreshed_by_reads = update_type == ON_READ_AND_WRITE
        self.name = ""
        self._runtime: StateScope | None = None
        self._table: StateEntries | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Self:
        if instance is None:
            return self
        try:
            bound: Self = instance.__dict__["_states"][self.name]
        except KeyError:  # the operator does not run
            return self
        return bound

    def __set__(self, instance: Any, value: Any) -> None:
        # Python would replace the state by an attribute, which is not part of a checkpoint.
        raise OperatorError(
            f'the state "{self.name}" cannot be assigned, only changed with its methods',
            hint=f"self.{self.name}.{self.change}",
        )

    @property
    def spec(self) -> StateSpec:
        return StateSpec(
            self.name, self.kind, self.type, self.key_type, self.ttl, self.broadcast, self.refreshed_by_reads
        )

    def bound(self, runtime: StateScope) -> Self:
        """This state in a running operator."""
        running_state = copy.copy(self)
        running_state._runtime = runtime
        return running_state

    def attach(self, table: StateEntries | None) -> None:
        self._table = table

    # The following methods are for bound states.

    @property
    def _here(self) -> StateEntries:
        table = self._table
        if table is not None:
            return table
        if not self.name:
            raise OperatorError(
                "a state cannot be created in a function",
                hint="declare it in the class, next to the inputs",
            )
        raise OperatorError(
            f'the state "{self.name}" cannot be used here',
            hint="use it in functions that process elements, watermarks or timers; late elements have no access to state",
        )

    @property
    def _running(self) -> StateScope:
        assert self._runtime is not None
        return self._runtime

    def _key(self) -> int:
        if self.broadcast:
            return 0
        key = self._running.key_number
        return self._running.key_for(f'the state "{self.name}"') if key is None else key

    def _entries(self) -> Any:
        """The entries of the current key."""
        runtime = self._runtime
        assert runtime is not None
        key = 0 if self.broadcast else runtime.key_number
        return (self._table or self._here).entries(self._key() if key is None else key)

    def _to_change(self) -> int:
        if self.broadcast:
            table = self._here
            self._running.check_broadcast(table.spec)
            table.begin_change()
            return 0
        key = self._running.key_number
        return self._key() if key is None else key

    @property
    def _now(self) -> int:
        return min(self._running.time, END_OF_TIME - 1) if self.ttl is not None else 0

    def _entry(self, value: Any) -> Entry:
        return (self._table or self._here).value(value), self._expiry

    @property
    def _expiry(self) -> int:
        """The expiry time of an entry that is updated now."""
        return END_OF_TIME if self.ttl is None else min(self._now + self.ttl, END_OF_TIME)

    def _alive(self, entry: Entry) -> bool:
        return self.ttl is None or entry[1] > self._now

    def _shown(self, value: Any) -> Any:
        """A value that the caller can change without changing the state."""
        return copy.deepcopy(value) if isinstance(value, (list, dict)) else value


class SingleValueState(State):
    """Base of states with one value per key."""

    def _read(self) -> Any:
        """The value, or None."""
        entry = self._entries()
        if entry is None or not (self.ttl is None or self._alive(entry)):
            return None
        if self.refreshed_by_reads:
            self._here.replace(self._key(), (entry[0], self._expiry))
        return self._shown(entry[0])

    def _write(self, value: Any) -> None:
        table = self._table or self._here
        table.replace(self._to_change(), None if value is None else self._entry(value))

    def clear(self) -> None:
        """Remove the value."""
        self._write(None)


class ValueState(SingleValueState):
    """One value per key.

    :param type: its type, as Spark SQL or Arrow
    :param ttl: time to live, in the operator's time; None: forever
    :param update_type: what it is measured from: the last update (``"on_create_and_write"``, the default), or the last update
        or read (``"on_read_and_write"``), of the value, the entry of a map or the element of a list

    Source: Flink's ``StateTtlConfig``. Expired values are never returned (``StateVisibility.NeverReturnExpired``).
    """

    def value(self) -> Any:
        """The value, or None."""
        return self._read()

    def update(self, value: Any) -> None:
        """Set the value; None clears it.

        :raises OperatorError: it is not of the state's type
        """
        self._write(value)

    def column(self, keys: Ints) -> pa.Array:
        """In a function that processes batches: the value of each key (indexes from ``ctx.keys``), or null.

        Values that have expired at the first row of their key in the batch are null.
        """
        table = self._here_by_key(keys)
        at_row = None if self.ttl is None else self._running.times_of(keys, last=False)
        values = table.column(keys, self._running.time, at_row)
        if self.refreshed_by_reads:
            has_value = values.is_valid()
            self.update_column(keys[has_value.to_numpy(zero_copy_only=False)], values.filter(has_value))
        return values

    def update_column(self, keys: Ints, values: Any) -> None:
        """Set the value of each key; the last of equal keys applies, a null clears. The TTL starts at the key's last row.

        :raises OperatorError: the values are not of the state's type, or their number differs from that of the keys
        """
        table = self._here_by_key(keys)
        expires = None
        if self.ttl is not None:
            expires = np.minimum(self._running.times_of(keys, last=True), END_OF_TIME - self.ttl) + self.ttl
        table.put_column(keys, values, self._running.time, expires)

    def _here_by_key(self, keys: Ints) -> StateTable:
        if self.broadcast:
            raise OperatorError(
                f'the broadcast state "{self.name}" has one value, and no columns', hint="value(), update()"
            )
        table = self._here
        assert isinstance(table, StateTable)
        self._running.see_keys(keys, f'the column of "{self.name}"')
        return table


class ReducingState(ValueState):
    """One value per key; :meth:`add` combines it with a new value by a function of two values."""

    def __init__(
        self,
        type: str | pa.DataType,
        function: Callable[[Any, Any], Any],
        *,
        ttl: timedelta | None = None,
        update_type: str = ON_CREATE_AND_WRITE,
    ) -> None:
        super().__init__(type, ttl=ttl, update_type=update_type)
        self.function = function

    def add(self, value: Any) -> None:
        """Combine *value* with the value of the key, or set it if there is none."""
        before = self.value()
        self.update(value if before is None else self.function(before, value))


class AggregateFunction(ABC):
    """Aggregates values with an accumulator, for an :class:`AggregatingState`.

    Functions may change their accumulator and return it. The type of the accumulator is that of the state.

    Source: Flink's ``AggregateFunction``. Its ``merge`` is not needed: Flink calls it only for session windows that merge. State
    of a key does not merge when its sessions do, and session windows have no state per window, as in Flink. To aggregate the
    elements of sessions, use a :class:`~asterism.Fold` with ``merge``.
    """

    @abstractmethod
    def create_accumulator(self) -> Any:
        """The accumulator of no values."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with one more value."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """The result, of any type."""


class AggregatingState(SingleValueState):
    """An accumulator per key; :meth:`add` adds a value, :meth:`get` returns the result.

    :param type: the type of the accumulator, as Spark SQL or Arrow
    :param function: its methods are those of :class:`AggregateFunction`, in any class
    :param ttl: and *update_type*, as for :class:`ValueState`
    :raises StreamDefinitionError: *function* lacks a method

    >>> from asterism.operators.stream_operator import Input, Output, StreamOperator
    >>> from asterism.testing import StreamOperatorHarness
    >>> class Mean(AggregateFunction):
    ...     def create_accumulator(self):
    ...         return {"total": 0.0, "n": 0}
    ...
    ...     def add(self, value, accumulator):
    ...         return {"total": accumulator["total"] + value, "n": accumulator["n"] + 1}
    ...
    ...     def get_result(self, accumulator):
    ...         return accumulator["total"] / accumulator["n"]
    >>> class Means(StreamOperator):
    ...     readings = Input("machine STRING, value DOUBLE")
    ...     mean = AggregatingState("STRUCT<total: DOUBLE, n: BIGINT>", Mean())
    ...     means = Output("machine STRING, mean DOUBLE")
    ...
    ...     @readings.process_element
    ...     def read(self, reading, ctx):
    ...         self.mean.add(reading.value)
    ...         self.means.collect(machine=ctx.key, mean=self.mean.get())
    >>> harness = StreamOperatorHarness(Means(), {"readings": {"key": "machine"}})
    >>> [row["mean"] for row in harness.send("readings", [{"value": 2.0}, {"value": 5.0}]).rows("means")]
    [2.0, 3.5]

    Source: Flink's ``AggregatingState``.
    """

    change = "add(value)"

    def __init__(
        self,
        type: str | pa.DataType,
        function: AggregateFunction,
        *,
        ttl: timedelta | None = None,
        update_type: str = ON_CREATE_AND_WRITE,
    ) -> None:
        super().__init__(type, ttl=ttl, update_type=update_type)
        for method in ("create_accumulator", "add", "get_result"):
            if isinstance(function, builtins.type) or not callable(getattr(function, method, None)):
                raise StreamDefinitionError(
                    f"not an aggregate function: {shown(function)}",
                    f"It needs the methods create_accumulator, add and get_result, and lacks {method}."
                    if not isinstance(function, builtins.type)
                    else None,
                    "an instance of a subclass of AggregateFunction: Mean()",
                )
        self.function = function

    def add(self, value: Any) -> None:
        """Add a value to the accumulator of the key.

        :raises OperatorError: the function returned no accumulator, or one that is not of the state's type
        """
        before = self._read()
        after = self.function.add(value, self.function.create_accumulator() if before is None else before)
        if after is None:
            raise UserFunctionError(
                f"{builtins.type(self.function).__name__}.add returned no accumulator",
                hint="return the changed accumulator",
            )
        self._write(after)

    def get(self) -> Any:
        """The result of the values of the key; None if there are none."""
        accumulator = self._read()
        return None if accumulator is None else self.function.get_result(accumulator)


class ListState(State):
    """A list per key."""

    kind = StateKind.LIST
    change = "add(value)"

    def get(self) -> list[Any]:
        """A copy of the list."""
        alive = [entry for entry in self._entries() if self._alive(entry)]
        if self.refreshed_by_reads and alive:
            self._here.replace(self._key(), [(value, self._expiry) for value, _ in alive])
        return [self._shown(value) for value, _ in alive]

    def add(self, value: Any) -> None:
        self._here.entries(self._to_change()).append(self._entry(value))

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        self._here.replace(self._to_change(), [self._entry(value) for value in values])

    def clear(self) -> None:
        self.update(())


class MapState(State):
    """A map per key, in the order of insertion. Keys of type FLOAT or DOUBLE are equal as in Spark's GROUP BY: every NaN is the
    same key, and -0.0 is 0.0.
    """

    kind = StateKind.MAP
    change = "put(key, value)"

    def __init__(
        self,
        key_type: str | pa.DataType,
        type: str | pa.DataType,
        *,
        ttl: timedelta | None = None,
        update_type: str = ON_CREATE_AND_WRITE,
    ) -> None:
        super().__init__(type, ttl=ttl, update_type=update_type)
        self.key_type = type_of(key_type)
        if pa.types.is_nested(self.key_type):
            raise StreamDefinitionError(
                f"the keys of a map state cannot be of type {self.key_type}", hint="use a type that is not nested"
            )

    def get(self, key: Any, default: Any = None) -> Any:
        entry = self._entry_of(key)
        return default if entry is None else self._shown(entry[0])

    def __contains__(self, key: Any) -> bool:
        return self._entry_of(key) is not None

    def _entry_of(self, key: Any) -> Entry | None:
        entries, name = self._entries(), self._here.name(key)
        entry: Entry | None = entries.get(name)
        if entry is None or not self._alive(entry):
            return None
        if self.refreshed_by_reads:
            entries[name] = entry[0], self._expiry
        return entry

    def put(self, key: Any, value: Any) -> None:
        self._here.entries(self._to_change())[self._here.name(key)] = self._entry(value)

    def put_all(self, values: Mapping[Any, Any]) -> None:
        for key, value in values.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._here.entries(self._to_change()).pop(self._here.name(key), None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        entries = self._entries()
        alive = [(key, entry[0]) for key, entry in entries.items() if self._alive(entry)]
        if self.refreshed_by_reads:
            entries.update({key: (value, self._expiry) for key, value in alive})
        return iter([(key, self._shown(value)) for key, value in alive])

    def keys(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        return not any(self._alive(entry) for entry in self._entries().values())

    def clear(self) -> None:
        self._here.replace(self._to_change(), {})


class BroadcastValueState(ValueState):
    """One value, the same in every key group; only elements of broadcast inputs may change it."""

    broadcast = True

    def __init__(self, type: str | pa.DataType) -> None:
        super().__init__(type)


class BroadcastListState(ListState):
    """One list, the same in every key group; only elements of broadcast inputs may change it."""

    broadcast = True

    def __init__(self, type: str | pa.DataType) -> None:
        super().__init__(type)


class BroadcastMapState(MapState):
    """One map, the same in every key group; only elements of broadcast inputs may change it."""

    broadcast = True

    def __init__(self, key_type: str | pa.DataType, type: str | pa.DataType) -> None:
        super().__init__(key_type, type)
