"""The rows of keys: what the kernel of patterns reads and makes, and pages keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from asterism.columns.arrays import Ints


class KeyRows(NamedTuple):
    """The partial matches, waiting matches and timers of keys; ``*_at``: where the rows of each key begin."""

    run_at: Ints
    run_rows: Ints
    waiting_at: Ints
    waiting_rows: Ints
    timer_at: Ints
    timer_rows: Ints

    def pairs(self) -> Iterator[tuple[Ints, Ints]]:
        return zip(self[::2], self[1::2], strict=True)
