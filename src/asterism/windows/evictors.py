"""Evictors, which remove elements from a window when it fires: immutable values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from asterism.arguments import expect, expect_number, shown
from asterism.columns.time import micros
from asterism.errors import StreamDefinitionError
from asterism.spelling import PythonNames
from asterism.windows.arguments import check_delta, code, duration, name_of
from asterism.windows.assigners import MAX_KEPT
from asterism.windows.triggers import TimeSpan

# ---------------------------------------------------------------------- evictors


class Evictor(metaclass=PythonNames):
    """Removes elements from a window when it fires; the result is computed from the remaining ones. Created by :meth:`count`,
    :meth:`time` and :meth:`delta`. Removed elements are not part of later firings. All elements are kept in state, instead of
    partial aggregates.

    A user-defined evictor is a subclass with the method :meth:`keeps`. It may remove all elements: the window fires
    nevertheless, with an empty result.

    :ivar after: remove elements after the result is computed, not before

    >>> class CardsOnly(Evictor):
    ...     def keeps(self, elements, window):
    ...         return [kind == "card" for kind in elements["kind"].to_pylist()]

    Source: Flink's "Windows", section "Evictors".
    """

    after: bool = False

    def keeps(self, elements: pa.Table, window: TimeSpan) -> Any:
        """Called for each firing of a window.

        :param elements: the elements of the window, in order, with all columns
        :param window: its start and end
        :return: for each element whether it stays: a list, a numpy array or an Arrow array of Booleans. The answer may depend
            only on the arguments.
        """
        raise NotImplementedError

    @property
    def is_user_defined(self) -> bool:
        """Whether it is a user-defined evictor."""
        return True

    def __repr__(self) -> str:
        # Without anything that depends on the process: the text is part of the fingerprint of the state.
        return f"{type(self).__name__}(...)"

    @classmethod
    def count(cls, elements: int, *, after: bool = False) -> Evictor:
        """Keep the last *elements*.

        :raises StreamDefinitionError: *elements* is not an integer of at least 1

        >>> Evictor.count(100)
        Evictor.count(100)
        """
        return BuiltInEvictor("count", elements, after=after)

    @classmethod
    def time(cls, length: timedelta, *, after: bool = False) -> Evictor:
        """Keep the elements that are less than *length* older than the newest.

        :raises StreamDefinitionError: *length* is not positive

        >>> Evictor.time(timedelta(seconds=10), after=True)
        Evictor.time(timedelta(seconds=10), after=True)
        """
        return BuiltInEvictor("time", micros(duration(length, "Evictor.time")), after=after)

    @classmethod
    def delta(cls, threshold: float, delta: Any, *, after: bool = False) -> Evictor:
        """Keep the elements whose distance from the last one is less than *threshold*.

        :param delta: as for :meth:`asterism.windows.triggers.DeltaTrigger.of`
        :raises StreamDefinitionError: as for that method

        >>> Evictor.delta(2.5, "price")
        Evictor.delta(2.5, 'price')
        """
        check_delta(threshold, delta, "Evictor.delta")
        return BuiltInEvictor("delta", 0, float(threshold), delta, after)


@dataclass(frozen=True, repr=False)
class BuiltInEvictor(Evictor):
    """An evictor of the library."""

    kind: str
    keep: int
    """elements, or microseconds"""
    threshold: float = 0.0
    distance: Any = None
    after: bool = field(default=False)

    def __post_init__(self) -> None:
        if self.kind not in ("count", "time", "delta"):
            raise StreamDefinitionError(
                f"the kind of an evictor must be count, time or delta, not {shown(self.kind)}",
                hint="Evictor.count(100), Evictor.time(timedelta(seconds=10)), Evictor.delta(2.5, 'price')",
            )
        expect(StreamDefinitionError, self.after, bool, "after must be True or False")
        if self.kind == "delta":
            check_delta(self.threshold, self.distance, "Evictor.delta")
            if not self.threshold:
                raise StreamDefinitionError("Evictor.delta: a threshold of 0 would drop all elements")
        elif self.kind == "count" and (isinstance(self.keep, bool) or not isinstance(self.keep, int) or self.keep < 1):
            raise StreamDefinitionError(f"Evictor.count takes a number of elements, 1 or more, not {shown(self.keep)}")
        else:
            expect_number(StreamDefinitionError, self.keep, "the size of an evictor", least=1, most=MAX_KEPT)

    @property
    def is_user_defined(self) -> bool:
        return False

    def __repr__(self) -> str:
        after = ", after=True" if self.after else ""
        what = {
            "count": lambda: str(self.keep),
            "time": lambda: code(timedelta(microseconds=self.keep)),
            "delta": lambda: f"{self.threshold!r}, {name_of(self.distance)}",
        }[self.kind]()
        return f"Evictor.{self.kind}({what}{after})"
