"""Reading from sockets until a deadline.

The timeout of a socket applies to each read, so a peer that sends a byte now and then could block a reader indefinitely.
"""

from __future__ import annotations

import io
import math
import socket
import time
from typing import Any


class Deadline:
    """The time by which everything must have been read.

    :param silence: the maximum duration of a single read in seconds
    """

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self._seconds = self._until = math.inf

    def begin(self, seconds: float) -> None:
        """Set the deadline to *seconds* from now."""
        self._seconds, self._until = seconds, time.monotonic() + seconds

    def wait(self) -> float:
        """The maximum duration of the next read in seconds.

        :raises TimeoutError: the deadline has passed
        """
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no complete response after {self._seconds:g} seconds")
        return min(left, self.silence)

    def watch(self, file: io.BufferedReader, connection: socket.socket) -> io.BufferedReader:
        """Make *file*, which reads from *connection*, observe the deadline."""
        return io.BufferedReader(_Watched(file.detach(), connection, self))


class _Watched(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, connection: socket.socket, deadline: Deadline) -> None:
        self._raw, self._connection, self._deadline = raw, connection, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connection.settimeout(self._deadline.wait())
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            self._deadline.wait()  # raises a clearer error if the deadline has passed
            raise

    def close(self) -> None:
        self._raw.close()
        super().close()
