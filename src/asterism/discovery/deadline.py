"""Reading from sockets until a point in time.

The timeout of a socket is for each of its reads: who sends a byte now and then keeps a reader for as long as it likes.
"""

from __future__ import annotations

import io
import math
import socket
import time
from typing import Any


class Deadline:
    """When something must have been read.

    :param silence: seconds that any one read may take
    """

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self._seconds = self._until = math.inf

    def begin(self, seconds: float) -> None:
        """From now on, all must be there in so many seconds."""
        self._seconds, self._until = seconds, time.monotonic() + seconds

    def wait(self) -> float:
        """How many seconds the next read may take.

        :raises TimeoutError: none
        """
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"it is not there after {self._seconds:g} seconds")
        return min(left, self.silence)

    def watch(self, file: io.BufferedReader, connection: socket.socket) -> io.BufferedReader:
        """*file*, which reads from *connection*, so that it keeps to the deadline."""
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
            self._deadline.wait()  # says it better, if that is it
            raise

    def close(self) -> None:
        self._raw.close()
        super().close()
