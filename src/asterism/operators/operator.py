"""What an operator is: a pure function of its state, what arrives, and the time.

The host (``asterism.spark``, or a test) carries the three. An operator knows no clock, no files and no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from asterism.columns.time import BEFORE_TIME, NO_TIME
from asterism.operators.state_store import StateStore


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of an operator, as its host sees it.

    :param schema: the columns that :meth:`Operator.prepare` reads
    :param prepared: the columns that it gives
    :param broadcast: every key group receives all elements, and there is no key
    :param timed: events have an event time: they wait for the watermark, and count in it
    :param idle_after: microseconds of processing time without an element after which the watermark does not wait for this
        input; None: it always does
    """

    schema: pa.Schema
    prepared: pa.Schema
    broadcast: bool = False
    timed: bool = True
    idle_after: int | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that came over an input: prepared events, in order of arrival, a watermark, or both.

    The watermark says that no event of this input at or before it is to come after this call.
    """

    input: str
    events: pa.Table | None = None
    watermark: int = BEFORE_TIME


@dataclass(frozen=True, slots=True)
class Now:
    """The time of a call, in microseconds since the epoch. The watermark is one that all inputs had before this call."""

    watermark: int = BEFORE_TIME
    processing_time: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave: rows per output, counts, and when the operator wants to be called again, whatever may arrive.

    A call may give its rows in several results; the last one has the rest.
    """

    outputs: Mapping[str, pa.Table]
    wake: int | None = None
    """event time"""
    wake_processing: int | None = None
    """processing time"""
    metrics: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def whole(cls, results: Iterable[Result]) -> Result:
        """The results of a call in one."""
        tables: dict[str, list[pa.Table]] = {}
        last = cls({})
        for last in results:
            for name, table in last.outputs.items():
                tables.setdefault(name, []).append(table)
        return replace(last, outputs={name: pa.concat_tables(some) for name, some in tables.items()})


class Operator(Protocol):
    """An operator with any number of inputs, over key groups."""

    inputs: Mapping[str, InputSpec]
    output_schemas: Mapping[str, pa.Schema]
    fingerprint: bytes
    """Tells state of this definition from state of any other."""
    pages: int
    """Pages of state per key group."""
    processing_time: bool
    """Does it need to be called as processing time goes by?"""
    metrics: Sequence[str]
    """Names of the counts it may give; ``name/*`` stands for all that begin with ``name/``."""

    def open(self) -> None:
        """Called in the process that runs the operator, before :meth:`process`."""
        return

    def close(self) -> None:
        """Called at the end, also after a failure."""
        return

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        """The stateless part, done before events of an input are exchanged: the columns that :meth:`process` needs.

        *events* have a column KEY_HASH; where the operator chooses the keys itself, its answer has one instead.
        """

    def latest(self, name: str, events: pa.Table, prepared: pa.Table) -> int:
        """The latest event time of a batch and what :meth:`prepare` made of it, which moves the watermark; or NO_TIME."""
        return NO_TIME

    def slices(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Iterator[Result]:
        """Take what arrived for one key group at time *now*. What comes of it need not fit in memory at once.

        There is at least one result. State is written before the last one; whoever does not come so far has to discard the
        results before, as the call is then to be repeated.
        """

    def process(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Result:
        """:meth:`slices` in one."""
        return Result.whole(self.slices(store, arrivals, now))
