"""What a user at a terminal reads while the first micro-batch of a query runs, which takes longer than later ones."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

from pyspark.sql.streaming.query import StreamingQuery

from asterism.loading import at_terminal

_LONG = 5
"""Seconds without a micro-batch, after which this is said."""
_BETWEEN = 15
"""Seconds between two messages."""


def show_first_batch(query: StreamingQuery) -> None:
    """Say on standard error, if that is a terminal, that the first micro-batch of a query is running, and for how long."""
    if at_terminal():
        threading.Thread(target=_show, args=(query,), name="asterism first micro-batch", daemon=True).start()


def _show(query: StreamingQuery) -> None:
    begun, seconds = time.monotonic(), _LONG
    with suppress(Exception):  # the session may have ended
        while not query.awaitTermination(seconds) and query.lastProgress is None:
            status = query.status
            if status["isDataAvailable"]:  # otherwise, it waits for data
                name, what = query.name or str(query.id), status["message"].lower()
                sys.stderr.write(message(name, what, time.monotonic() - begun))
            seconds = _BETWEEN


def message(name: str, what: str, seconds: float) -> str:
    """The message, on a line of its own: Spark draws bars of progress on the current one."""
    return (
        f"\r\x1b[Kasterism: the first micro-batch of {name} has run for {seconds:.0f} s ({what}). "
        "It starts Python processes and loads compiled code; later ones are faster.\n"
    )
