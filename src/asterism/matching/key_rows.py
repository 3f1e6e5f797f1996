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

    def of(self, keys: Ints) -> KeyRows:
        """The rows of *keys*, in this order; -1 denotes a key without rows."""
        from asterism.matching import kernels

        return kernels.rows_of_keys(self, keys)
