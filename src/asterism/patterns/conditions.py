"""Conditions on events: SQL text, Python over batches or event by event, and their combinations.

A condition is plain data. These modules evaluate it for a schema: :mod:`asterism.expressions.parsing` (SQL),
:mod:`asterism.matching.python_conditions` (Python, event by event) and :mod:`asterism.patterns.compiler` (guards of the
automaton).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from asterism.arguments import expect_string, expect_strings, shown
from asterism.errors import MalformedPatternError, PatternTooLargeError

MAX_DEPTH = 100
"""Maximum nesting of conditions. Comparing and pickling reach Python's limit near 300. Alternatives can be one SQL expression."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Base of all conditions.

    Conditions are combined by ``&`` and ``|`` and negated by ``~``, or by methods with Flink's names. As in Flink the left
    operand is evaluated first, and the right one only if the left one does not decide the result.

    >>> SqlCondition("price > 1") & ~SqlCondition("kind = 'x'") == SqlCondition("price > 1").and_(
    ...     SqlCondition("kind = 'x'").negate()
    ... )
    True
    """

    def and_(self, other: ConditionLike) -> Condition:
        """Both must be satisfied."""
        return AndCondition(self, as_condition(other))

    def or_(self, other: ConditionLike) -> Condition:
        """At least one must be satisfied."""
        return OrCondition(self, as_condition(other))

    def negate(self) -> Condition:
        """Must not be satisfied. A condition that is NULL is not satisfied, so its negation is."""
        return NotCondition(self)

    __and__, __or__, __invert__ = and_, or_, negate

    @property
    def depth(self) -> int:
        """The nesting depth of this condition."""
        return 0


@dataclass(frozen=True, slots=True)
class SqlCondition(Condition):
    """A Spark SQL expression over the current event and, with ``FIRST(a.x)``, ``LAST``, ``SUM``, ``COUNT``, ``AVG``, ``MIN``
    and ``MAX``, over the events that stage ``a`` has accepted so far in the partial match. It is satisfied if it is TRUE.
    """

    text: str

    def __post_init__(self) -> None:
        expect_string(MalformedPatternError, self.text, "the SQL of a condition must be a string")


@dataclass(frozen=True, slots=True, repr=False)
class PythonCondition(Condition):
    """A function from a :class:`pyarrow.Table` of events to a Boolean mask of the same length.

    It gets only the current events, one batch per call, and must be a pure function of each row: batch boundaries are arbitrary.
    """

    function: Callable[[Any], Any]

    def __repr__(self) -> str:
        return f"PythonCondition({name_of(self.function)})"


@dataclass(frozen=True, slots=True, repr=False)
class IterativeCondition(Condition):
    """A function ``(event, context)`` to True or False, called for each event, like Flink's ``IterativeCondition``.

    It can read the events that a stage has accepted so far in the partial match: ``context.events_for_pattern("a")``. It is
    therefore called for each partial match that an event could continue, which takes some microseconds. SQL is much faster,
    also for a part of the condition: in ``where(sql).where(IterativeCondition(f))``, *f* is called only if *sql* is TRUE.

    It must be a pure function of its arguments. The number of calls and their events are undefined: known results are
    reused, and calls are repeated if a key is processed again. Events on which only this function decides cannot be
    filtered out before the exchange.

    An object can have ``open(context)`` and ``close()``: see :class:`asterism.OpenContext`.

    A checkpoint belongs to the function: its module and name, its code (for this minor release of Python), its defaults and
    the immutable values that it captures. Functions that it calls are not compared.

    :param function: called with an :class:`Event` and a :class:`ConditionContext`; it must return a ``bool`` (or numpy's). It
        is sent to Spark's workers by cloudpickle.
    :param columns: the columns of events that it reads, one name or several; only these are stored with partial matches.
        None: all columns.
    :raises MalformedPatternError: *function* is not callable, or *columns* are not names

    Source: Flink, "Conditions: Iterative Conditions" in the CEP documentation.

    >>> def costs_less_than_all_before(event: Event, context: ConditionContext) -> bool:
    ...     return sum(earlier.price for earlier in context.events_for_pattern("a")) + event.price < 5.0
    >>> IterativeCondition(costs_less_than_all_before, columns=["price"])
    IterativeCondition(asterism.patterns.conditions.costs_less_than_all_before, columns=('price',))
    """

    function: Callable[[Event, ConditionContext], bool]
    columns: tuple[str, ...] | None = None

    def __init_subclass__(cls) -> None:
        raise MalformedPatternError(
            f"the class {cls.__name__} cannot be derived from IterativeCondition",
            "In Flink, a class overrides filter(event, context). Here, that is a function.",
            "IterativeCondition(function), where function(event, context) returns True or False; it can be an object with "
            "__call__, or functools.partial(function, limit)",
        )

    def __init__(
        self, function: Callable[[Event, ConditionContext], bool], columns: str | Sequence[str] | None = None
    ) -> None:
        if not callable(function):
            raise MalformedPatternError(f"an IterativeCondition needs a function, not {shown(function)}")
        object.__setattr__(self, "function", function)
        chosen = (columns,) if isinstance(columns, str) else columns
        if chosen is not None:
            expect_strings(MalformedPatternError, chosen, "columns must be a list of column names", 'columns=["price"]')
        object.__setattr__(self, "columns", None if chosen is None else tuple(chosen))

    def __repr__(self) -> str:
        columns = "" if self.columns is None else f", columns={self.columns}"
        return f"IterativeCondition({name_of(self.function)}{columns})"


FOREIGN = ("AVIATOR", "GROOVY")
"""Condition types of dynamic Flink CEP with an expression in a JVM language. Such a condition is a :class:`NamedCondition` with
this name, whose argument is the expression."""
MAX_ARGUMENTS = 20
MAX_ARGUMENT = 1_000
"""The maximum number of characters of an argument, and of elements of a list."""
ConditionArgument = str | int | float | bool | tuple[str | int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class NamedCondition(Condition):
    """A condition of a rule that the query has registered under a name, with its arguments: ``conditions=`` of
    ``CEP.pattern_processors``.

    It reads only the current event. In JSON, it is ``{"type": "CLASS", "className": "near", "args": [48.2, 16.4]}``, as a class
    is in dynamic Flink CEP.

    :param name: 1 to 200 printable characters
    :param arguments: up to 20: strings, numbers, Booleans, or lists of these; strings and lists have at most 1,000 characters
        or elements
    :raises MalformedPatternError: the name or an argument is invalid

    >>> NamedCondition("near", [48.2, 16.4, ["taxi", "bus"]])
    NamedCondition(name='near', arguments=(48.2, 16.4, ('taxi', 'bus')))
    """

    name: str
    arguments: tuple[ConditionArgument, ...] = field(default=(), compare=False)
    _text: str = field(default="", init=False, repr=False)
    """The arguments as JSON, because 1, 1.0 and True are equal in Python."""

    def __init__(self, name: str, arguments: Sequence[Any] = ()) -> None:
        if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable():
            raise MalformedPatternError(
                f"the name of a condition must be 1 to 200 printable characters, not {shown(name)}"
            )
        if isinstance(arguments, str) or not isinstance(arguments, Sequence):
            raise MalformedPatternError(f"the arguments of a condition must be a list, not {shown(arguments)}")
        if len(arguments) > MAX_ARGUMENTS:
            raise MalformedPatternError(
                f"the condition {name!r} has {len(arguments):,} arguments (limit {MAX_ARGUMENTS:,})"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", tuple(_argument(name, value) for value in arguments))
        object.__setattr__(self, "_text", json.dumps(self.arguments))


def _argument(name: str, value: Any) -> ConditionArgument:
    if isinstance(value, list | tuple) and len(value) <= MAX_ARGUMENT and all(map(_is_scalar, value)):
        return tuple(value)
    if not _is_scalar(value):
        raise MalformedPatternError(
            f"an argument of the condition {name!r} is {shown(value)}",
            f"Arguments are strings of up to {MAX_ARGUMENT:,} characters, numbers, Booleans, and lists of these.",
        )
    argument: ConditionArgument = value
    return argument


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_ARGUMENT and not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, bool):
        return True
    return abs(value) < 2**63 if isinstance(value, int) else isinstance(value, float) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class FirstEventCondition(Condition):
    """The event is the first one of its key: made from ``starts_with_first_event()``."""


@dataclass(frozen=True, slots=True)
class AbsentBeforeCondition(Condition):
    """No event of the stage precedes the event: made from ``begin_without(stage)``."""

    stage: str


@dataclass(frozen=True, slots=True)
class _Joined(Condition):
    _depth: int = field(init=False, repr=False, compare=False, default=0)

    @property
    def depth(self) -> int:
        return self._depth

    def _nest(self, *parts: Condition) -> None:
        for part in parts:
            if not isinstance(part, Condition):
                raise _no_condition(part)
        depth = 1 + max(part.depth for part in parts)
        if depth > MAX_DEPTH:
            raise PatternTooLargeError(
                f"conditions are nested too deeply (limit {MAX_DEPTH:,} levels)",
                "Each where, or_, and_ and negate adds a level.",
                "write alternatives as one SQL condition, such as kind IN ('a', 'b')",
            )
        object.__setattr__(self, "_depth", depth)


@dataclass(frozen=True, slots=True)
class _Connective(_Joined):
    left: Condition
    right: Condition

    def __post_init__(self) -> None:
        self._nest(self.left, self.right)


class AndCondition(_Connective):
    __slots__ = ()


class OrCondition(_Connective):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class NotCondition(_Joined):
    """Satisfied if the operand is not; a condition that is NULL is not satisfied, so its negation is."""

    condition: Condition

    def __post_init__(self) -> None:
        self._nest(self.condition)


def leaves_of(condition: Condition | None) -> Iterator[Condition]:
    """The conditions that a condition combines or negates, from left to right."""
    match condition:
        case AndCondition(left, right) | OrCondition(left, right):
            yield from (*leaves_of(left), *leaves_of(right))
        case NotCondition(inner):
            yield from leaves_of(inner)
        case Condition():
            yield condition


ConditionLike = str | Condition | Callable[[Any], Any]


def as_condition(value: ConditionLike) -> Condition:
    """Convert SQL, a function or a condition to a condition."""
    if isinstance(value, Condition):
        return value
    if isinstance(value, str):
        return SqlCondition(value)
    if callable(value):
        return PythonCondition(value)
    raise _no_condition(value)


def _no_condition(value: Any) -> MalformedPatternError:
    return MalformedPatternError(
        f"a condition must be an SQL string, a function or a Condition, not {shown(value)}",
        hint="write it as SQL: where(\"kind = 'a' AND price > 10\")",
    )


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function: its module and name, or those of its type; the same in every process."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


# ---------------------------------------------------------------------------------------------------- arguments of functions


class Event(Mapping[str, Any]):
    """One event, read-only: ``event["price"]``, or ``event.price`` unless a method has this name.

    Values are those of pyarrow's ``as_py``: int, float, str, ``datetime``, ``Decimal``, None for null, lists and dicts.
    """

    __slots__ = ("_columns", "_row", "_values")

    def __init__(self, columns: Mapping[str, Any], row: int) -> None:
        self._columns = columns
        self._row = row
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            if name not in self._columns:
                raise KeyError(f"{name!r} is not a column of the condition; its columns are {', '.join(self._columns)}")
            self._values[name] = self._columns[name][self._row].as_py()
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in Event.__slots__:
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"Event({dict(self)})"


class ConditionContext(Protocol):
    """The second argument of an :class:`IterativeCondition`. It is valid only until the function returns."""

    @property
    def timestamp(self) -> datetime:
        """The time of the current event: in event time that of its time column, with the column's zone (none for
        TIMESTAMP_NTZ, UTC for a BIGINT); in processing time that of the call, in UTC.
        """

    @property
    def current_processing_time(self) -> datetime:
        """The processing time, in UTC: the time of the micro-batch, or of the batch query. A result that depends on it
        depends on when the stream is read.
        """

    def events_for_pattern(self, name: str) -> list[Event]:
        """The events that stage *name* has accepted so far in the partial match, in order of acceptance, without the
        current event.

        :raises ColumnNotFoundError: the pattern has no such stage; in Flink's semantics the list is empty
        """
