"""The rows of keys: what the kernel of patterns reads and makes, and pages keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from asterism.columns.arrays import Ints
from asterism.columns.groups import offsets_of


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
        arrays: list[Ints] = []
        for at, rows in self.pairs():
            if not len(rows):
                arrays += np.zeros(len(keys) + 1, np.int64), rows
                continue
            new_at = offsets_of(np.append(np.diff(at), 0)[keys])
            first = np.append(at[:-1], 0)[keys]
            arrays += new_at, rows[np.arange(new_at[-1]) + np.repeat(first - new_at[:-1], np.diff(new_at))]
        return KeyRows(*arrays)
