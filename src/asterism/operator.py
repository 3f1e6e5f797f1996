"""What an operator is: a pure function of its state, a batch of events and the time.

The host (``asterism.spark``, or a test) carries the three. An operator knows no clock, no files and no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from asterism.state import StateStore

END_OF_TIME = 2**63 - 1
"""The watermark after which nothing comes any more."""
BEFORE_TIME = -(2**63) + 1
"""Lower than every event time: no watermark yet."""


@dataclass(frozen=True, slots=True)
class Now:
    """The time of a call, in microseconds since the epoch."""

    watermark: int = BEFORE_TIME
    processing_time: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave: rows per output, and the time (of the operator's time domain) at which it wants to be called again."""

    outputs: Mapping[str, pa.Table]
    wake: int | None


class Operator(Protocol):
    """Base of keyed operators with one input."""

    fingerprint: bytes
    """Tells state of this definition from state of any other."""
    output_schemas: Mapping[str, pa.Schema]
    prepared_schema: pa.Schema

    def prepare(self, events: pa.Table) -> pa.Table:
        """The stateless part, done before events are exchanged: the columns that :meth:`process` needs, and no others."""

    def process(self, store: StateStore, events: Sequence[pa.Table], now: Now) -> Result:
        """Take *events* (prepared, in order of arrival) of one key group at time *now*."""
