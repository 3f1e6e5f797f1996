"""The contract of an operator: a pure function of its state, its arrivals, and the time.

The host (``asterism.spark``, or a test) supplies the three. An operator uses no system clock, no files and no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa

from asterism.columns.time import BEFORE_TIME, END_OF_TIME, NO_TIME, TIME
from asterism.operators.state.state_store import StateStore

EVENTS = "events"
"""The name of the input of events, of an operator that has only this one, or rules beside it."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of an operator, as described to its host.

    :param schema: the columns that :meth:`Operator.prepare` reads
    :param prepared: the columns that it returns
    :param broadcast: every key group receives all elements, and there is no key
    :param timed: events have an event time: they wait for the watermark, and advance it
    :param idle_after: microseconds of processing time without an element after which the watermark does not wait for this
        input or, with *watermark_by*, for a partition; None: it always waits
    :param watermark_by: the columns that distinguish the partitions of the input, if its watermark is the minimum of theirs
    """

    schema: pa.Schema
    prepared: pa.Schema
    broadcast: bool = False
    timed: bool = True
    idle_after: int | None = None
    watermark_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrival:
    """The data of one input in a call: prepared events, in order of arrival, a watermark, or both.

    The watermark asserts that no event of this input at or before it will arrive after this call.

    :param partitions: of an input with ``watermark_by`` the watermarks of partitions that have events, by their names
    """

    input: str
    events: pa.Table | None = None
    watermark: int = BEFORE_TIME
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Now:
    """The time of a call, in microseconds since the epoch. All inputs had reached the watermark before this call.

    :param key_group: the number of the key group that is called, for messages; None: unknown
    :param begins_run: whether this call is in the first micro-batch that a run plans: the query was stopped before, and the time
        since the previous call is not idle time
    """

    watermark: int = BEFORE_TIME
    processing_time: int = 0
    key_group: int | None = None
    begins_run: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call: rows per output, metrics, and the times at which the operator must be called again.

    A call may emit its rows in several results; the last one has everything else.
    """

    outputs: Mapping[str, pa.Table]
    next_event_time: int | None = None
    """event time"""
    next_processing_time: int | None = None
    """processing time"""
    metrics: Mapping[str, int] = field(default_factory=dict)
    watermark: int | None = None
    """the watermark of the operator after the call; None: there is none yet, or the input has ended"""
    behind: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """by input, how far the slowest partitions are behind the fastest one, see :class:`PartitionWatermarks`"""
    gauges: Mapping[str, float] = field(default_factory=dict)
    """the last values of gauges, and what is not counted of histograms, see :mod:`asterism.operators.histograms`"""

    @classmethod
    def whole(cls, results: Iterable[Result]) -> Result:
        """Combine the results of a call."""
        tables: dict[str, list[pa.Table]] = {}
        last = cls({})
        for last in results:
            for name, table in last.outputs.items():
                tables.setdefault(name, []).append(table)
        return replace(last, outputs={name: pa.concat_tables(some) for name, some in tables.items()})


def sorted_arrival(name: str, events: pa.Table) -> list[Arrival]:
    """Prepared events, sorted by time, with a watermark before the time of the last event, since further events may have the
    same time.
    """
    return [Arrival(name, events, max(events.column(TIME)[-1].as_py() - 1, BEFORE_TIME))]


def watermark_of_table(spec: InputSpec, time: int | None, passed: bool) -> int:
    """The watermark of an input after rows of tables, which are sorted by time, then input.

    :param time: that of the last row; None: it has none
    :param passed: whether no element without a time follows in this input. Further rows may have the same time.
    """
    if spec.timed:
        return BEFORE_TIME if time is None else max(time - 1, BEFORE_TIME)
    return END_OF_TIME if passed else BEFORE_TIME


@contextmanager
def closing(operator: Operator) -> Iterator[None]:
    """Close the *operator* at the end of a task. After a failure, the first error is raised."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            operator.close()
        raise
    operator.close()


class Operator(Protocol):
    """An operator with any number of inputs, over key groups."""

    inputs: Mapping[str, InputSpec]
    output_schemas: Mapping[str, pa.Schema]
    fingerprint: bytes
    """Identifies the definition, to distinguish its state from that of other definitions."""
    pages: int
    """Pages of state per key group."""
    processing_time: bool
    """Whether it must be called when processing time advances."""
    metrics: Sequence[str]
    """Names of its counters; ``name/*`` includes all names with the prefix ``name/``."""
    gauges: Mapping[str, str] = MappingProxyType({})
    """For each of its gauges how the values of key groups are combined: max, min, sum or avg."""
    histograms: Mapping[str, Sequence[float]] = MappingProxyType({})
    """For each of its histograms the bounds of the buckets."""

    def open(self) -> None:
        """Called in the process that runs the operator, before :meth:`process`."""
        return

    def close(self) -> None:
        """Called at the end, also after a failure, and after :meth:`prepare`. It closes what was opened."""
        return

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        """The stateless part, before the exchange of the events of an input: computes the columns that :meth:`process` needs.

        *events* have a column KEY_HASH; an operator that chooses the keys itself returns this column instead.
        """

    def latest(self, name: str, events: pa.Table, prepared: pa.Table) -> int:
        """The latest event time of a batch and its prepared events, which advances the watermark; or NO_TIME."""
        return NO_TIME

    def relevant(self, name: str, prepared: pa.Table) -> pa.Table:
        """The prepared events that can matter. The times of the others have advanced the watermark, and that is all they do."""
        return prepared

    def slices(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Iterator[Result]:
        """Process the arrivals of one key group at time *now*. The results need not fit into memory at once.

        There is at least one result. State is written before the last one. A caller that does not reach the last result must
        discard the others and repeat the call.
        """

    def process(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Result:
        """The results of :meth:`slices`, combined into one."""
        return Result.whole(self.slices(store, arrivals, now))
