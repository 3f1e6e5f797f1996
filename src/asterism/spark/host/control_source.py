"""A streaming source that sends control messages to every key group: the end of input and, if the operator detects idle inputs,
the begin of a run.

Its offsets are in Spark's offset log. Therefore a message is delivered in the same micro-batch to all key groups, also after a
failure. An offset also records the number of key groups, which cannot change, the time zone, and the definition of the query.
If the definition differs, a micro-batch begins in which key groups compare it with the definition in their state.

See docs/decisions/0035, 0064 and 0124.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from asterism.errors import CheckpointMismatchError, StreamDefinitionError
from asterism.spark import BEGIN_OF_RUN, CHUNKS, CONTROL, END_OF_INPUT
from asterism.spark.host import end_of_input as signals
from asterism.spark.host.partitioning import check_key_groups_of, label
from asterism.spark.host.versions import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    reader_for_spark,
)
from asterism.spark.session.worker import receive_at_once, send_no_empty_profiles

if TYPE_CHECKING:
    from asterism.spark.session.leases import SourceLease

NAME = "asterism_control"
SECONDS_TO_END = 10
_NO_LIMIT = 2**31 - 1


def check_zone_of(offset: Mapping[str, Any], zone: str | None) -> None:
    """:raises StateError: the offset is of a query in another time zone than *zone*; None: the query does not depend on it"""
    before = offset.get("zone", zone)  # checkpoints of earlier releases do not have it
    if zone is not None and before != zone:
        raise CheckpointMismatchError(
            f"the checkpoint was created in the time zone {before}, but this session uses {zone}",
            "An expression depends on it, such as hour(ts) or a time that is written without a zone.",
            f'spark.conf.set("spark.sql.session.timeZone", "{before}"), or use a new checkpoint location',
        )


class ControlSource(DataSource):
    """A source with the options ``keyGroups``, ``definition`` (a fingerprint of the query), ``drain`` (whether to send the
    end of input), ``timers`` (whether there are timers in processing time), ``idle`` (whether an input can be idle; then there
    are such timers), ``signals`` (the folder with the signal that a query ends the input of all its operators), ``run`` (the
    folder of the run that ends the input when the other sources are exhausted), ``zone`` (the session's time zone, if an
    expression depends on it), ``start`` (the last offset of the checkpoint, for Spark 4.1), ``checkpoint`` (over Spark Connect:
    the source holds its lease) and ``leaseSeconds``.
    """

    hadoop: ClassVar[Mapping[str, str]] = {}
    """Settings of Hadoop for the checkpoint. They may contain a password, and options are shown in query plans."""
    lease: ClassVar[Mapping[str, str]] = {}
    """The options ``checkpoint`` and ``leaseSeconds``, if the checkpoint is only known when the query starts."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)  # type: ignore[arg-type] # PySpark wants a dict
        send_no_empty_profiles()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        send_no_empty_profiles()  # of the process that plans how the source is read

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return CHUNKS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        reader = self.reader_of_stream()
        reader.hadoop = self.hadoop
        if self.lease:
            reader.lease_of(self.lease)
        return reader_for_spark(reader, self.options, reader.check)

    def reader_of_stream(self) -> SourceReader:
        return (DrainReader if self.drains else ControlReader)(self.options)

    @property
    def drains(self) -> bool:
        return self.options.get("drain", "false") == "true"


def renamed(source: type[DataSource], name: str, **attributes: object) -> type[DataSource]:
    """A subclass of a source with another name, and with further attributes."""
    subclass: Any = type("Renamed", (source,), {"name": classmethod(lambda cls: name), **attributes})
    return subclass  # type: ignore[no-any-return] # the base is a variable


class SourceReader(DataSourceStreamReader):
    """Offsets have ``messages``, the number of ends of input sent; ``starts``, the number of micro-batches that the source has
    started; and ``runs``, the number of begins of runs sent. ``keyGroups``, ``definition`` and ``zone`` are constant.

    Spark runs micro-batches without data only after one with data. After a restart, *timers* in processing time would
    therefore not fire until data arrives. To prevent this, the source starts the first micro-batch.
    """

    last: dict[str, Any] | None = None
    """The offset with the end of input, if this reader has sent it."""
    hadoop: Mapping[str, str] = {}
    checkpoint: str | None = None
    lease_seconds = 0.0
    _lease: SourceLease | None = None
    _stopped = False

    def __init__(self, options: Mapping[str, str]) -> None:
        self.key_groups, self.definition = int(options["keyGroups"]), options["definition"]
        self.folder, self.zone, self.run = options.get("signals"), options.get("zone"), options.get("run")
        self.started: int | None = None
        """The last micro-batch that the source has started."""
        self.timers, self.idle = (options.get(name, "false") == "true" for name in ("timers", "idle"))
        self.lease_of(options)
        if self.folder is not None:
            signals.announce(self.folder)

    def lease_of(self, options: Mapping[str, str]) -> None:
        """Set the checkpoint whose lease is acquired, if these options have one."""
        self.checkpoint, self.lease_seconds = options.get("checkpoint"), float(options.get("leaseSeconds", "0"))

    def __getstate__(self) -> dict[str, Any]:
        # The pickled reader is sent to executors, which only read partitions.
        return {name: value for name, value in self.__dict__.items() if name not in ("_lease", "hadoop")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        receive_at_once()  # a worker has unpickled this, and now waits for the partition to read

    def getDefaultReadLimit(self) -> ReadLimit:
        # With this default, Spark uses the limit ReadAllAvailable only when it plans a single micro-batch for all available
        # data.
        return ReadMaxRows(_NO_LIMIT)

    def is_ending(self, limit: ReadLimit | None) -> bool:
        """Whether the query, which another operator drains, is planning its last micro-batch."""
        return isinstance(limit, ReadAllAvailable) and self.folder is not None and signals.is_ending(self.folder)

    def ended(self, start: dict[str, Any]) -> dict[str, Any]:
        """The offset after *start*, with the end of input."""
        self.last = start | {"messages": start["messages"] + 1}
        return self.last

    def drained(self, start: dict[str, Any]) -> dict[str, Any]:
        """The offset after *start* in a query that a run drains: with the end of input if the other sources are exhausted.
        Otherwise, the source starts the micro-batch itself, so that there is one in which the others had no data.
        """
        if self.run is None:
            return start
        exhausted = False if self.started is None else signals.is_exhausted(self.run, self.started)
        if exhausted is None:  # the run was interrupted, and the query continues without it, to the end of its data
            self.run = None
            return start
        return self.ended(start) if exhausted else self.with_start(start)

    def announced(self, offset: dict[str, Any]) -> dict[str, Any]:
        """The offset with what the source publishes in addition to messages."""
        return offset

    def with_start(self, start: dict[str, Any]) -> dict[str, Any]:
        """The offset after *start*, with which the source starts a micro-batch itself. The first one begins the run; a
        micro-batch that a former run has planned is repeated with its own offset.
        """
        if self.started is None and self.idle:
            start = start | {"runs": start.get("runs", 0) + 1}
        self.started = start.get("starts", 0) + 1
        return start | {"starts": self.started}

    def protect(self) -> None:
        """Acquire the lease of the checkpoint, unless the process that starts the query holds it; and check it from then on.

        :raises CheckpointInUseError: another process runs a query on the checkpoint
        :raises LeaseLostError: another process has taken over
        """
        if self._lease is not None:
            self._lease.check()
        elif self.checkpoint is not None:
            from asterism.spark.session.leases import SourceLease

            self._lease = SourceLease(self.checkpoint, self.lease_seconds, self.hadoop)
            self.stop_on_signal()

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.end()

    def end(self) -> None:
        """The query has ended. Called once."""
        if self._lease is not None:
            self._lease.release()

    def stop_on_signal(self) -> None:
        """Call :meth:`stop` after SIGTERM. Spark ends this process with this signal, at which Python would exit immediately.

        The handler does not call it: what it interrupts may hold a lock that :meth:`stop` needs, and has released it when the
        program exits.
        """

        def end(*_: Any) -> None:
            signal.alarm(SECONDS_TO_END)
            if not self._stopped:  # otherwise the shutdown has begun
                sys.exit()

        if threading.current_thread() is threading.main_thread():
            atexit.register(self.stop)
            signal.signal(signal.SIGTERM, end)

    def initialOffset(self) -> dict[str, Any]:
        self.protect()
        zone = {} if self.zone is None else {"zone": self.zone}
        return {"messages": 0, "keyGroups": self.key_groups, "definition": self.definition, **zone}

    def check(self, start: dict[str, Any]) -> dict[str, Any]:
        """Check that the query can continue from the offset *start*. Returns it with the definition of this query, so that a
        changed definition begins a micro-batch.
        """
        self.protect()
        check_key_groups_of(start, self.key_groups)
        check_zone_of(start, self.zone)
        if start["definition"] == self.definition:
            return start
        return {**self.initialOffset(), **start, "definition": self.definition}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self.protect()  # the first call, if a micro-batch is repeated
        messages = {"messages": END_OF_INPUT, "runs": BEGIN_OF_RUN}
        return [InputPartition(messages[count]) for count in messages if end.get(count, 0) > start.get(count, 0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str, int, None, bytes]]:
        for group in range(self.key_groups):
            yield label(group), CONTROL, 0, None, partition.value


class ControlReader(SourceReader, SupportsTriggerAvailableNow):
    """Sends the end of input only if a downstream operator ends the input, or the run does after the last data."""

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        start = self.check(start)
        if self.last is not None:
            return self.last
        if self.is_ending(limit):
            return self.ended(start)
        if self.timers and self.started is None:
            return self.with_start(start)
        return self.drained(start)


class DrainReader(SourceReader):
    """Sends the end of input, once.

    It deliberately does not support the trigger *available now*. Spark then reads all available data of all sources in one
    micro-batch, so that no data can follow the end of input.
    """

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        start = self.check(start)
        check_that_query_ends(limit)
        return self.ended(self.announced(start)) if self.last is None else self.last


def check_that_query_ends(limit: ReadLimit | None) -> None:
    """
    :param limit: with which Spark asks a source that does not support the trigger *available now*; None: Spark 4.1 does not pass
        it
    :raises StreamDefinitionError: the query has another trigger, with which more data could follow the end of input
    """
    if limit is not None and not isinstance(limit, ReadAllAvailable):
        raise StreamDefinitionError(
            "a query that ends its input needs a trigger with which it ends",
            "drain=True ends the input in the first micro-batch, and the events after that would be lost.",
            "drain=False; or writeStream.trigger(availableNow=True)",
        )
