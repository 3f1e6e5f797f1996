"""Setup of Spark's Python workers. It must be quick to import, since some workers only inspect the functions they get."""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

FEW = 20_000
"""How many objects are collected after every task without a noticeable cost: 5 ms."""
FULL_COLLECTION = 60.0
"""Seconds from one collection of all objects to the next."""
_OPEN_FILES = Path("/proc/self/fd")
_last_full = time.monotonic()


def task(function: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The *function* for ``mapInArrow`` with the setup of a task. Spark shows its name in the plan."""

    @wraps(function)
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        receive_at_once()
        settle_memory()
        yield from function(batches)

    return run


def settle_memory() -> None:
    """Exclude what earlier tasks have left in memory, modules and bound rules, from garbage collection. Call this when a task
    begins.

    PySpark's worker collects garbage after every task. With all imported modules this takes 50 to 85 ms, as long as a small
    task, and with many rules several times as long. Objects that remain after a task are in use, since its garbage has been
    collected, but may become garbage later. Therefore, all objects are collected from time to time.
    """
    global _last_full  # noqa: PLW0603 - a time per process
    now = time.monotonic()
    if now - _last_full >= FULL_COLLECTION:
        _last_full = now
        gc.unfreeze()
    elif len(gc.get_objects(generation=2)) > FEW:
        # This includes the objects of the current task, which become garbage. It happens only when much has been added.
        gc.freeze()


def forked() -> None:
    """This process has been forked from one that had imported this module."""
    global _last_full  # noqa: PLW0603 - a time per process
    _last_full = time.monotonic()


def send_no_empty_profiles() -> None:
    """Remove the empty profiles that Spark sends from a process that plans a source in Python. ``spark-pipelines run`` takes them
    for an unknown response, and fails after the run has completed.
    """
    from pyspark.accumulators import _accumulatorRegistry

    for number in [number for number, sent in _accumulatorRegistry.items() if sent._value == {}]:
        del _accumulatorRegistry[number]


def receive_at_once() -> None:
    """Acknowledge what Spark has sent to this process so far. Call this before a task waits for its input.

    Spark sends the function of a task, and then the input. TCP holds back a small input until the function is acknowledged
    (Nagle's algorithm), and Linux delays the acknowledgement by 40 ms, because the worker has nothing to send. The
    connection to the state had the same delay (SPARK-51667).
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not _OPEN_FILES.is_dir():  # not Linux
        return
    for file in _OPEN_FILES.iterdir():
        with suppress(OSError):  # not a TCP socket
            connection = socket.socket(fileno=int(file.name))
            try:
                connection.setsockopt(socket.IPPROTO_TCP, option, 1)
            finally:
                connection.detach()  # its owner closes it
