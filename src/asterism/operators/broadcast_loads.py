"""The elements of broadcast inputs that come first in a call. All key groups get the same ones, and their functions, which cannot
know the key group, make the same broadcast state of them. So a process calls these functions for one key group, and the others
take over the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that functions of broadcast inputs can read besides their elements.

    :ivar index: identifies the broadcast state
    :ivar ended: the inputs that have ended
    """

    index: bytes | None
    time: int
    processing_time: int
    ended: frozenset[str]


@dataclass(frozen=True, slots=True)
class BroadcastLoad:
    """The first elements of a call, and their effects.

    :ivar count: their number, in the order of time
    :ivar parts: all elements of broadcast inputs with their times, by input
    :ivar after: the entries of the states that changed
    :ivar time: the time after them
    """

    situation: Situation
    count: int
    parts: Mapping[str, tuple[pa.Table, Ints]]
    after: Mapping[str, Any]
    time: int

    def is_of(self, other: BroadcastLoad) -> bool:
        """Whether these are the same elements in the same situation."""
        return (
            (self.situation, self.count, self.parts.keys()) == (other.situation, other.count, other.parts.keys())
            and all(np.array_equal(times, other.parts[name][1]) for name, (_, times) in self.parts.items())
            and all(rows.equals(other.parts[name][0]) for name, (rows, _) in self.parts.items())
        )
