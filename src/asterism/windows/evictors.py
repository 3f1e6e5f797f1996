"""Evictors, which remove elements from a window when it fires: immutable values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from asterism.arguments import expect, expect_number, shown
from asterism.columns.time import micros
from asterism.errors import StreamDefinitionError
from asterism.windows.arguments import check_delta, code, duration, name_of
from asterism.windows.assigners import MAX_KEPT

# ---------------------------------------------------------------------- evictors


@dataclass(frozen=True, repr=False)
class Evictor:
    """Removes elements from a window when it fires; the result is computed from the remaining ones. Created by :meth:`count`,
    :meth:`time` and :meth:`delta`. Removed elements are not part of later firings. All elements are kept in state, instead of
    partial aggregates.

    :ivar after: remove elements after the result is computed, not before

    Source: Flink's "Windows", section "Evictors".
    """

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

    @classmethod
    def count(cls, elements: int, *, after: bool = False) -> Evictor:
        """Keep the last *elements*.

        :raises StreamDefinitionError: *elements* is not an integer of at least 1

        >>> Evictor.count(100)
        Evictor.count(100)
        """
        return cls("count", elements, after=after)

    @classmethod
    def time(cls, length: timedelta, *, after: bool = False) -> Evictor:
        """Keep the elements that are less than *length* older than the newest.

        :raises StreamDefinitionError: *length* is not positive

        >>> Evictor.time(timedelta(seconds=10), after=True)
        Evictor.time(timedelta(seconds=10), after=True)
        """
        return cls("time", micros(duration(length, "Evictor.time")), after=after)

    @classmethod
    def delta(cls, threshold: float, delta: Any, *, after: bool = False) -> Evictor:
        """Keep the elements whose distance from the last one is less than *threshold*.

        :param delta: as for :meth:`asterism.windows.triggers.DeltaTrigger.of`
        :raises StreamDefinitionError: as for that method

        >>> Evictor.delta(2.5, "price")
        Evictor.delta(2.5, 'price')
        """
        check_delta(threshold, delta, "Evictor.delta")
        return cls("delta", 0, float(threshold), delta, after)

    def __repr__(self) -> str:
        after = ", after=True" if self.after else ""
        what = {
            "count": lambda: str(self.keep),
            "time": lambda: code(timedelta(microseconds=self.keep)),
            "delta": lambda: f"{self.threshold!r}, {name_of(self.distance)}",
        }[self.kind]()
        return f"Evictor.{self.kind}({what}{after})"
