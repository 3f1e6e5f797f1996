"""Passes the progress of the queries of a session to observers."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol
from uuid import UUID
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

_log = logging.getLogger("asterism.spark")


class Observer(Protocol):
    """Receives the progress of queries from the listener. Calls come from one thread, in order.

    An exception is logged, once for each type, and the other observers are called.
    """

    def add(self, progress: StreamingQueryProgress) -> None:
        """A query has completed a micro-batch."""

    def idle(self, run: str, time: str) -> None:
        """A query has found no data."""

    def end(self, run: str, error: str | None) -> None:
        """A query has ended."""


class ProgressListener(StreamingQueryListener):
    """Passes the progress of queries to observers.

    There is one for each session, because Spark converts the progress of every query once for every listener.
    """

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        self._logged: set[tuple[type, type]] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._pass(event.progress.id, lambda observer: observer.add(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._pass(event.id, lambda observer: observer.idle(str(event.runId), event.timestamp))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._pass(event.id, lambda observer: observer.end(str(event.runId), event.exception))

    def _pass(self, query: UUID, call: Callable[[Observer], None]) -> None:
        for observer in list(self.observers):
            try:
                call(observer)
            except Exception as error:
                kind = type(observer), type(error)
                if kind not in self._logged:  # otherwise, it would be in the log once per micro-batch
                    self._logged.add(kind)
                    _log.exception("the progress of query %s was not counted by %s", query, type(observer).__name__)


_listeners: WeakKeyDictionary[SparkSession, ProgressListener] = WeakKeyDictionary()
_lock = threading.Lock()


def observe(spark: SparkSession, observer: Observer) -> None:
    """Pass the progress of all queries of a session to *observer*."""
    with _lock:
        if not _listeners:
            atexit.unregister(_remove_all)
            atexit.register(_remove_all)
        if spark not in _listeners:
            listener = ProgressListener()
            spark.streams.addListener(listener)
            _listeners[spark] = listener
        _listeners[spark].observers.append(observer)


def forget(spark: SparkSession, observer: Observer) -> None:
    """The opposite of :func:`observe`. The observer must not call it."""
    with _lock:
        if spark not in _listeners or observer not in _listeners[spark].observers:
            return
        _listeners[spark].observers.remove(observer)
        if not _listeners[spark].observers:
            listener = _listeners.pop(spark)
            with suppress(Exception):  # the session may have ended
                spark.streams.removeListener(listener)


def _remove_all() -> None:
    """Remove all listeners before the program ends, after which Spark would log that it cannot call them."""
    for spark, listener in list(_listeners.items()):
        with suppress(Exception):  # the session may have ended
            spark.streams.removeListener(listener)


def observers() -> list[Observer]:
    """The observers of all sessions."""
    with _lock:
        return [observer for listener in _listeners.values() for observer in listener.observers]
