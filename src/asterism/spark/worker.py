"""Setup of Spark's Python workers. It must be quick to import, since some workers only inspect the functions they get."""

from __future__ import annotations

import gc
import time

FEW = 20_000
"""How many objects are collected after every task without a noticeable cost: 5 ms."""
FULL_COLLECTION = 60.0
"""Seconds from one collection of all objects to the next."""
_last_full = time.monotonic()


def settle_memory() -> None:
    """Exclude what earlier tasks have left in memory, modules and bound rules, from garbage collection. Call this when a task
    begins.

    PySpark's worker collects garbage after every task. With all imported modules this takes 50 to 85 ms, as long as a small
    task, and with many rules several times as long. What a task leaves is in use, since its garbage has been collected, but
    it may become garbage later. Therefore, all objects are collected after a task from time to time.
    """
    global _last_full  # noqa: PLW0603 - a time per process
    now = time.monotonic()
    if now - _last_full >= FULL_COLLECTION:
        _last_full = now
        gc.unfreeze()
    elif len(gc.get_objects(generation=2)) > FEW:
        # This includes the objects of the current task, which become garbage. It happens only when much has been added.
        gc.freeze()
