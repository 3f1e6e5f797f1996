"""How far a long computation is, for whoever wants to show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Show = Callable[[str], object]
_show: ContextVar[Show | None] = ContextVar("_show", default=None)


@contextmanager
def showing(show: Show) -> Iterator[None]:
    """Inside the block, *show* gets a text for each step of a long computation.

    >>> with showing(print):
    ...     report(12_000, 60_000, "events")
    12,000 of 60,000 events
    """
    token = _show.set(show)
    try:
        yield
    finally:
        _show.reset(token)


def report(done: int, total: int, what: str) -> None:
    """Pass on how much of a computation is done, if something shows it."""
    if (show := _show.get()) is not None:
        show(f"{done:,} of {total:,} {what}")
