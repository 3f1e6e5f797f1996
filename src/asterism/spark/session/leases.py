"""Leases of checkpoints: one process at a time runs a query on a checkpoint.

A lease is taken when a query starts, and released when it ends. Inside a process, Spark decides: it stops a query when another
one is started on its checkpoint. Over Spark Connect, a server runs the query, and its control source has the lease
(:class:`SourceLease`). See docs/decisions/0130.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from asterism.errors import CheckpointInUseError, StateError
from asterism.files.file_systems import is_path
from asterism.files.lease import EXPIRY, Lease
from asterism.spark.session.interruptions import without_stack_traces
from asterism.spark.session.settings import hadoop_settings
from asterism.text.printable import one_line

FOLDER = "asterism_lease"
"""In a checkpoint."""
SECONDS = "spark.asterism.lease.seconds"
"""Configuration of the session: the seconds after which another process takes over from one that does not answer; 0: no lease is
taken. Default: 20.
"""
_MAX_REASON = 200


@dataclass
class _Held:
    """The lease of a checkpoint, the last query there, and how many are being started."""

    lease: Lease
    query: StreamingQuery | None = None
    starts: int = 0


_held: dict[str, _Held] = {}
"""The leases of this process by checkpoint."""
_lock = threading.Lock()


@contextmanager
def leased(
    spark: SparkSession, checkpoint: str | None, what: str = "checkpoint"
) -> Iterator[Callable[[StreamingQuery], None]]:
    """Hold the lease of a checkpoint inside the block, and after it until the query ends that the block has passed on.

    Over Spark Connect, the process that starts a query is not the one that runs it, and holds no lease.

    :param what: what is at the location, for messages
    :raises CheckpointInUseError: another process runs a query on the checkpoint
    """
    seconds = lease_seconds(spark)
    if checkpoint is None or is_remote() or seconds <= 0:
        yield lambda query: None
        return
    with _lease(spark, checkpoint, seconds, what) as keep:
        yield keep


@contextmanager
def leased_here(spark: SparkSession, checkpoint: str, what: str = "checkpoint") -> Iterator[Callable[[], None]]:
    """Hold the lease inside the block, also in a client of Spark Connect, which reads or writes the files there itself. The block
    gets a function that raises :class:`LeaseLostError` if another process has taken over, as its end does.

    :raises CheckpointInUseError: another process runs a query on the checkpoint
    """
    seconds = lease_seconds(spark)
    if seconds <= 0:
        yield lambda: None
        return
    with _lease(spark, checkpoint, seconds, what):
        yield partial(_check, checkpoint)
        _check(checkpoint)


@contextmanager
def _lease(
    spark: SparkSession, checkpoint: str, seconds: float, what: str
) -> Iterator[Callable[[StreamingQuery], None]]:
    """Hold the lease, which this process may hold already."""
    held = _started(checkpoint) or _acquired(spark, checkpoint, seconds, what)
    if held is None:
        yield lambda query: None
        return

    is_kept = False

    def keep(query: StreamingQuery) -> None:
        nonlocal is_kept
        is_kept = True
        with _lock:
            held.starts, held.query = held.starts - 1, query
        threading.Thread(target=_watch, args=(checkpoint, query), name="asterism lease of a query", daemon=True).start()

    try:
        yield keep
    finally:
        if not is_kept:
            with _lock:
                held.starts -= 1
            _release(checkpoint, held.query)


def lease_seconds(spark: SparkSession) -> float:
    """After which another process takes over; 0 or less: no lease is taken."""
    return float(spark.conf.get(SECONDS, None) or EXPIRY)


def options_of_source(spark: SparkSession, checkpoint: str) -> dict[str, str]:
    """The options with which a control source holds the lease of the checkpoint; none, if this process holds it."""
    seconds = lease_seconds(spark)
    return {"checkpoint": checkpoint, "leaseSeconds": str(seconds)} if is_remote() and seconds > 0 else {}


class SourceLease:
    """The lease of the query that a control source belongs to.

    :param seconds: after which another process takes over
    :param hadoop: settings of Hadoop
    """

    def __init__(self, checkpoint: str, seconds: float, hadoop: Mapping[str, str]) -> None:
        self._lease = _new_lease(checkpoint, seconds, hadoop, "checkpoint")

    def check(self) -> None:
        """
        :raises LeaseLostError: another process has taken over
        """
        if self._lease is not None:
            self._lease.check()

    def release(self) -> None:
        if self._lease is not None:
            self._lease.release()


def runs_here(checkpoint: str) -> bool:
    """Whether this process runs a query on a checkpoint."""
    with _lock:
        held = _held.get(checkpoint)
        return held is not None and held.query is not None and held.query.isActive


def _started(checkpoint: str) -> _Held | None:
    """The lease of a checkpoint that this process holds, for a query that starts."""
    with _lock:
        held = _held.get(checkpoint)
        if held is not None:
            held.starts += 1
        return held


def _acquired(spark: SparkSession, checkpoint: str, seconds: float, what: str) -> _Held | None:
    """A new lease, for a query that starts; None: the folder cannot be used."""
    # A path is of Python. To read the settings takes a call of the JVM for each of them.
    lease = _new_lease(checkpoint, seconds, {} if is_path(checkpoint) else hadoop_settings(spark), what)
    if lease is None:
        return None
    with _lock:
        _held[checkpoint] = _Held(lease, starts=1)
        return _held[checkpoint]


def _new_lease(checkpoint: str, seconds: float, hadoop: Mapping[str, str], what: str) -> Lease | None:
    """A lease that this process has acquired; None: the folder cannot be used, which a message says.

    :raises CheckpointInUseError: another process runs a query on the checkpoint
    """
    try:
        location, purpose = f"{checkpoint.rstrip('/')}/{FOLDER}", f"the {what} {checkpoint}"
        lease = Lease(location, purpose, hadoop, expiry=seconds)
        lease.acquire(lambda message: sys.stderr.write(f"asterism: {message}\n"))
    except CheckpointInUseError:
        raise
    except (OSError, StateError, pa.ArrowException) as error:
        reason = f"no lease can be written there: {one_line(str(error), _MAX_REASON)}"
        sys.stderr.write(unprotected(checkpoint, reason, what))
        return None
    return lease


def unprotected(checkpoint: str, reason: str, what: str = "checkpoint") -> str:
    """A message for standard error."""
    return (
        f"asterism: a second process on the {what} {checkpoint} will not be detected, because {reason}. "
        f'spark.conf.set("{SECONDS}", 0) turns leases off.\n'
    )


def checked(sink: Callable[[DataFrame, int], Any], checkpoint: str | None) -> Callable[[DataFrame, int], None]:
    """A sink that fails, before it writes, if another process has taken over the checkpoint."""
    if is_remote():  # over Spark Connect, it is sent to another process
        return sink

    def write(rows: DataFrame, batch_id: int) -> None:
        if checkpoint is not None:
            _check(checkpoint)
        sink(rows, batch_id)

    return without_stack_traces(write)


def _check(checkpoint: str) -> None:
    held = _held.get(checkpoint)
    if held is not None:
        held.lease.check()


def _watch(checkpoint: str, query: StreamingQuery) -> None:
    """Release the lease when the query ends, and end the query when the lease is lost."""
    held = _held.get(checkpoint)
    if held is not None:
        held.lease.when_lost(query.stop)
    with suppress(Exception):  # the owner of the query gets its exception
        query.awaitTermination()
    _release(checkpoint, query)


def _release(checkpoint: str, query: StreamingQuery | None) -> None:
    """Release the lease of a *query* that has ended, unless another one has it now."""
    with _lock:
        held = _held.get(checkpoint)
        if held is None or held.starts or held.query is not query or (query is not None and query.isActive):
            return
        del _held[checkpoint]
    held.lease.release()
