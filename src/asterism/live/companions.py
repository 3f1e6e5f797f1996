"""What accompanies the operator of a live engine, such as the discovery of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from asterism.operators.operator import Arrival


class Companion(Protocol):
    """Something beside the operator that has arrivals of its own, and a place in snapshots."""

    def begin(self, details: Mapping[str, Any]) -> tuple[list[Arrival], Mapping[str, Any]]:
        """(the arrivals for a call that begins, what snapshots keep if it succeeds)

        :param details: what the state has kept before
        """

    def succeeded(self, metrics: Mapping[str, int]) -> None:
        """A call has succeeded, with these metrics."""

    def saving(self, details: Mapping[str, Any], number: int) -> Callable[[], None]:
        """A snapshot is taken, the *number*-th; returns what is called when it has been written."""

    def close(self) -> None:
        """The engine is closed."""
