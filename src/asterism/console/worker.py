"""Child processes that compute for the console, so that a computation can be stopped, and takes no memory from the endpoint.

A child reads requests from its standard input and writes responses to its standard output, one JSON object per line: first the
setup, then for each request any number of ``{"progress": ...}`` and one ``{"result": ...}`` or ``{"error": ...}``.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from asterism.errors import AsterismError, PatternProcessorError
from asterism.http.messages import error_fields

MAX_RESPONSE = 20_000_000
GRACE = 10.0
"""Seconds that an idle child gets to end."""
ABANDONED = 5.0
"""Seconds for which a request continues after its client has gone: starting the child takes longer than most requests."""
_POLL = 0.1
"""Seconds between two questions whether somebody still waits."""
_NOBODY = "the client has closed the connection"
_log = logging.getLogger("asterism.console")

OnProgress = Callable[[Any], None]
Handler = Callable[[Mapping[str, Any], OnProgress], Any]


class WorkerError(PatternProcessorError):
    """The child could not compute the result: it was stopped, ran out of time, or failed."""


class WorkerProcess:
    """A child process, started with its first request, and again after it has been stopped. Requests wait for each other.

    :param module: the module that runs in the child, which calls :func:`run`
    :param setup: what the child gets before its first request
    """

    def __init__(self, module: str, setup: Mapping[str, Any]) -> None:
        self.module, self.setup = module, setup
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_started: subprocess.Popen[bytes] | None = None
        """The child that has answered a request. One that is still starting is not stopped for a client that has gone."""
        self._why_stopped = ""

    def ask(
        self,
        request: Mapping[str, Any],
        *,
        timeout: float,
        on_progress: OnProgress = lambda progress: None,
        gone: Future[None] | None = None,
    ) -> Any:
        """The result of a request.

        :param timeout: seconds after which the child is stopped
        :param on_progress: called with the progress messages of the child
        :param gone: has a result when nobody waits any more. The request then loses its turn, or ends within :data:`ABANDONED`
        :raises WorkerError: there is no result
        :raises AsterismError: the error that the child has raised
        """
        while not self._turn.acquire(timeout=_POLL):
            if gone is not None and gone.done():
                raise WorkerError(_NOBODY)
        try:
            if gone is not None and gone.done():
                raise WorkerError(_NOBODY)
            process = self._started()
            deadline = _RequestDeadline(self.stop)
            deadline.set(timeout, f"this took longer than {timeout:g} seconds")
            if gone is not None and self._has_started is process:
                gone.add_done_callback(lambda gone: deadline.set(ABANDONED, _NOBODY))
            try:
                answer = self._answer(process, request, on_progress)
                self._has_started = process
                return answer
            finally:
                deadline.end()
                if self._process is not process:
                    _close_pipes(process)
        finally:
            self._turn.release()

    def stop(self, why: str = "it was stopped") -> None:
        """Stop the child and everything that it waits for."""
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            self._why_stopped = why
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        # If a request is in progress, it reads from them, and closes them.
        if self._turn.acquire(blocking=False):
            try:
                _close_pipes(process)
            finally:
                self._turn.release()

    def close(self) -> None:
        """Let the child end on its own if it is idle; otherwise stop it."""
        process = self._process
        if process is not None and self._turn.acquire(blocking=False):
            try:
                assert process.stdin is not None
                with suppress(BrokenPipeError, subprocess.TimeoutExpired):
                    process.stdin.close()
                    process.wait(timeout=GRACE)
            finally:
                if process.poll() is not None:  # its pipes are then closed by the thread whose turn it is
                    _close_pipes(process)
                self._turn.release()
        self.stop()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                _close_pipes(self._process)
                self._process = None
            if self._process is None:
                self._why_stopped = ""
                self._process = subprocess.Popen(
                    [sys.executable, "-m", self.module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
                self._send(self._process, self.setup)
            return self._process

    @staticmethod
    def _send(process: subprocess.Popen[bytes], value: Any) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # the answer then says that the child has ended
            process.stdin.write(json.dumps(value).encode() + b"\n")
            process.stdin.flush()

    def _answer(self, process: subprocess.Popen[bytes], request: Mapping[str, Any], on_progress: OnProgress) -> Any:
        assert process.stdout is not None
        self._send(process, request)
        while line := process.stdout.readline(MAX_RESPONSE):
            if not line.endswith(b"\n"):
                self.stop(f"the result has more than {MAX_RESPONSE:,} bytes")
                break
            response = json.loads(line)
            if "result" in response:
                return response["result"]
            if "error" in response:
                raise PatternProcessorError(*(response["error"].get(part) for part in ("message", "detail", "hint")))
            on_progress(response["progress"])
        self.stop("the process that computes this has ended")
        raise WorkerError(self._why_stopped, hint="try again")


class _RequestDeadline:
    """Calls a function after some seconds, unless it ends before.

    :param stop: the function, which gets the reason
    """

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._has_ended = False

    def set(self, seconds: float, why: str) -> None:
        """Replace the time and the reason."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if not self._has_ended:
                self._timer = threading.Timer(seconds, self._stop, [why])
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            if self._timer is not None:
                self._timer.cancel()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(OSError):
            pipe.close()


def run(handler_of: Callable[[Mapping[str, Any]], Handler]) -> None:
    """Answer requests until the input ends. What is printed meanwhile goes to standard error.

    :param handler_of: makes the function from requests to results, given the setup
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    writing = threading.Lock()

    def write(value: Mapping[str, Any]) -> None:
        with writing:
            answers.write(json.dumps(value).encode() + b"\n")
            answers.flush()

    handler: Handler | None = None
    setup = sys.stdin.buffer.readline()
    for line in sys.stdin.buffer:
        try:
            handler = handler_of(json.loads(setup)) if handler is None else handler
            write({"result": handler(json.loads(line), lambda progress: write({"progress": progress}))})
        except AsterismError as error:
            write({"error": error_fields(error)})
        except MemoryError:
            write({"error": {"message": "this needs too much memory"}})
        except Exception as error:
            _log.exception("a request failed")
            write({"error": {"message": "this failed because of an internal error", "detail": type(error).__name__}})


def limit_memory(size: int) -> None:
    """Limit the memory of this process, where the system can do so."""
    try:
        import resource
    except ImportError:
        return
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
