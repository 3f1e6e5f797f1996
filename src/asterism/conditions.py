"""Conditions on events: SQL text, vectorised Python, and their combinations.

A condition is plain data. What it means for a given schema is settled by :mod:`asterism.expressions` (SQL) and
:mod:`asterism.compiler` (how it steers the automaton).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Condition:
    """Base of all conditions."""

    def and_(self, other: Condition) -> Condition:
        """Both must hold."""
        return AndCondition(self, other)

    def or_(self, other: Condition) -> Condition:
        """One must hold."""
        return OrCondition(self, other)


@dataclass(frozen=True, slots=True)
class SqlCondition(Condition):
    """Spark SQL text over the current event and, by ``FIRST(a.x)``, ``LAST``, ``SUM``, ``COUNT``, ``AVG``, ``MIN``,
    ``MAX``, over the events that stage ``a`` has accepted so far in the partial match. It holds only where it is TRUE.
    """

    text: str


@dataclass(frozen=True, slots=True)
class PythonCondition(Condition):
    """A function from a :class:`pyarrow.Table` of events to a Boolean mask of the same length.

    It sees the current events only, a batch at a time, and must be a pure function of each row: batches are cut anywhere.
    """

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AndCondition(Condition):
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class OrCondition(Condition):
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class NotCondition(Condition):
    """Holds where the other does not; a condition that is NULL does not hold, so its negation does."""

    condition: Condition


ConditionLike = str | Condition | Callable[[Any], Any]


def as_condition(value: ConditionLike) -> Condition:
    """SQL text, a function or a condition, as a condition."""
    if isinstance(value, Condition):
        return value
    if isinstance(value, str):
        return SqlCondition(value)
    if callable(value):
        return PythonCondition(value)
    raise TypeError(f"a condition is SQL text, a function or a Condition, not {type(value).__name__}")
