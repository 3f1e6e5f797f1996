"""The conditions that rules may name, with arguments. A query registers them; nothing is ever imported by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, get_args, get_origin

import pyarrow as pa

from asterism.arguments import shown
from asterism.errors import PatternProcessorError, StreamDefinitionError
from asterism.matching.binding import unregistered
from asterism.operators.rich_functions import Openable, ready
from asterism.patterns.conditions import (
    AndCondition,
    Condition,
    NamedCondition,
    NotCondition,
    OrCondition,
    PythonCondition,
    SqlCondition,
    leaves_of,
)
from asterism.patterns.sequence import PatternSequence, stages_of
from asterism.patterns.wording import condition_text

_P = TypeVar("_P", bound=PatternSequence)
_SCALARS: dict[type, tuple[type, ...]] = {str: (str,), int: (int,), float: (float, int), bool: (bool,)}
"""The types of arguments, with the types of the JSON values."""
_HINT = 'RegisteredCondition(function, {"limit": float, "names": list[str]})'


@dataclass(frozen=True)
class RegisteredCondition:
    """A condition that rules may name.

    :param function: maps a :class:`pyarrow.Table` of events, and the arguments, to a Boolean array with a value for each event.
        It must be a pure function of each event: batch boundaries are arbitrary. It is also called with a table without
        events, when a rule is checked. An object can have ``open(context)`` and ``close()``: see
        :class:`asterism.OpenContext`.
    :param arguments: the types of the arguments, by name, in their order: str, int, float (also for integers), bool, or a list of
        one of these, such as ``list[str]``. An argument can be missing in a rule if the function has a default for it.
    :raises StreamDefinitionError: *function* is not callable, or a type is not supported

    >>> def above(events: pa.Table, limit: float) -> pa.ChunkedArray:
    ...     return pc.greater(events["price"], limit)
    >>> RegisteredCondition(above, {"limit": float}).arguments
    {'limit': <class 'float'>}
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise StreamDefinitionError(f"a condition needs a function, not {shown(self.function)}", hint=_HINT)
        if not isinstance(self.arguments, Mapping):
            raise StreamDefinitionError(
                f"the arguments must be a dict of types, not {shown(self.arguments)}", hint=_HINT
            )
        for name, kind in self.arguments.items():
            if not isinstance(name, str) or _scalar(kind) not in _SCALARS:
                raise StreamDefinitionError(f"the argument {name!r:.60} cannot have the type {kind!r:.60}", hint=_HINT)

    @property
    def signature(self) -> str:
        """The arguments and their types.

        >>> RegisteredCondition(lambda events, names: names, {"names": list[str]}).signature
        'names: list[str]'
        """
        return ", ".join(f"{name}: {_type_name(kind)}" for name, kind in self.arguments.items())

    def call(self, condition: NamedCondition) -> RegisteredCall:
        """:raises PatternProcessorError: the arguments of a rule do not have the declared types"""
        values, what = condition.arguments, f"the condition {condition.name!r:.120}"
        names = self.signature or "none"
        if len(values) > len(self.arguments):
            more = f"{what} has more arguments ({len(values):,}) than are registered ({len(self.arguments):,})"
            raise PatternProcessorError(more, f"Arguments: {names}")
        for number, (name, kind) in enumerate(self.arguments.items()):
            if number >= len(values):
                if not self._has_default(number):
                    raise PatternProcessorError(f"{what} needs the argument {name!r}", f"Arguments: {names}")
            elif not _fits(values[number], kind):
                given = list(values[number]) if isinstance(values[number], tuple) else values[number]  # type: ignore[arg-type]
                problem = f"{what}: the argument {name!r} must be {_type_name(kind)}, not {given!r:.60}"
                raise PatternProcessorError(problem, f"Arguments: {names}")
        arguments = [list(value) if isinstance(value, tuple) else value for value in values]
        return RegisteredCall(condition, self.function, arguments)

    def _has_default(self, number: int) -> bool:
        """Whether the function has a default for an argument."""
        try:
            parameters = [*inspect.signature(self.function).parameters.values()]
        except (TypeError, ValueError):  # a function that is not written in Python
            return False
        return len(parameters) > number + 1 and parameters[number + 1].default is not inspect.Parameter.empty


class RegisteredCall(Openable):
    """A function of events: a registered condition with its arguments."""

    def __init__(self, condition: NamedCondition, function: Callable[..., Any], arguments: list[Any]) -> None:
        self.condition, self.function, self.arguments = condition, function, arguments
        self.__qualname__ = condition_text(condition)

    def opened(self) -> RegisteredCall:
        ready(self.function)
        return self

    def __call__(self, events: pa.Table) -> Any:
        return self.function(events, *self.arguments)


def checked_conditions(given: Any) -> dict[str, RegisteredCondition]:
    """:raises StreamDefinitionError: these are not conditions, or functions (conditions without arguments), by name"""
    if not isinstance(given, Mapping):
        raise StreamDefinitionError(
            f"conditions must be a dict by name, not {shown(given)}", hint="conditions={name: function}"
        )
    for name, condition in given.items():
        if not isinstance(name, str) or not (isinstance(condition, RegisteredCondition) or callable(condition)):
            raise StreamDefinitionError(
                f"conditions must map names to functions, not {name!r:.60} to {condition!r:.60}",
                hint="conditions={name: function}, or {name: RegisteredCondition(function, {...})}",
            )
    return {
        name: condition if isinstance(condition, RegisteredCondition) else RegisteredCondition(condition)
        for name, condition in given.items()
    }


def with_registered(pattern: _P, known: Mapping[str, RegisteredCondition]) -> _P:
    """The pattern with functions in place of the conditions that are given by name.

    :raises MalformedPatternError: a condition is not known
    :raises PatternProcessorError: its arguments do not have the declared types
    """
    made: dict[NamedCondition, PythonCondition] = {}

    def function_of(condition: NamedCondition) -> PythonCondition:
        if condition not in made:  # equal conditions are one function, and so evaluated once
            if condition.name not in known:
                raise unregistered(condition, known)
            made[condition] = PythonCondition(known[condition.name].call(condition))
        return made[condition]

    return _replaced(pattern, function_of)


def without_named(pattern: _P) -> _P:
    """The pattern with conditions that are always satisfied in place of those that are given by name, for checks of the rest."""
    return _replaced(pattern, lambda condition: SqlCondition("TRUE"))


def names_in(pattern: PatternSequence) -> set[str]:
    """The names of the conditions that are given by name."""
    conditions = (condition for stage in stages_of(pattern) for condition in (stage.condition, stage.until))
    leaves = (leaf for condition in conditions for leaf in leaves_of(condition))
    return {leaf.name for leaf in leaves if isinstance(leaf, NamedCondition)}


def _replaced(pattern: _P, change: Callable[[NamedCondition], Condition]) -> _P:
    def changed(condition: Condition | None) -> Condition | None:
        match condition:
            case NamedCondition():
                return change(condition)
            case AndCondition(left, right) | OrCondition(left, right):
                parts = changed(left), changed(right)
                return condition if parts == (left, right) else type(condition)(*parts)  # type: ignore[arg-type]
            case NotCondition(inner):
                part = changed(inner)
                return condition if part is inner or part is None else NotCondition(part)
        return condition

    stages = tuple(
        replace(
            stage,
            condition=changed(stage.condition),
            until=changed(stage.until),
            group=None if stage.group is None else _replaced(stage.group, change),
        )
        for stage in pattern.stages
    )
    return pattern if stages == pattern.stages else replace(pattern, stages=stages)


def _scalar(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is list and len(get_args(kind)) == 1 else kind


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is list:
        return isinstance(value, tuple) and all(_fits(element, _scalar(kind)) for element in value)
    # A Boolean is also an int in Python.
    return isinstance(value, _SCALARS[kind]) and (kind is bool or not isinstance(value, bool))


def _type_name(kind: Any) -> str:
    return str(kind) if get_origin(kind) is list else str(kind.__name__)
