"""Backtests as jobs: one runs at a time, in a separate process, and a few wait."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from asterism.console.worker import WorkerProcess
from asterism.errors import AsterismError, PatternProcessorError
from asterism.http.messages import AnswerError, error_fields

MAX_WAITING = 4
MAX_KEPT = 20
"""Results that are kept."""
TIMEOUT = 900.0
"""Seconds of a job."""
IDLE = 600.0
"""Seconds without a job after which Spark is stopped."""
WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"


@dataclass(slots=True)
class BacktestJob:
    """:param progress: what the job is doing at the moment"""

    number: int
    rule: str
    version: int
    author: str
    request: Mapping[str, Any]
    state: str = WAITING
    progress: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    error: Mapping[str, Any] | None = None
    begun: float = 0.0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        fields = {
            name: getattr(self, name) for name in ("rule", "version", "author", "state", "progress", "result", "error")
        }
        seconds = time.monotonic() - self.begun if self.state == RUNNING else self.seconds
        return fields | {"job": self.number, "seconds": round(seconds, 1)}


class Backtests:
    """:param worker: computes one backtest after the other"""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._folder: TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()
        self._jobs: dict[int, BacktestJob] = {}
        self._numbers = itertools.count(1)
        self._queue: queue.SimpleQueue[BacktestJob | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, rule: str, version: int, request: Mapping[str, Any], author: str) -> BacktestJob:
        """:raises AnswerError: too many jobs wait"""
        with self._lock:
            if sum(job.state == WAITING for job in self._jobs.values()) >= MAX_WAITING:
                raise AnswerError(503, "too many backtests wait", "cancel one, or try again later", Retry_After="30")
            number = next(self._numbers)
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="asterism-backtests-", ignore_cleanup_errors=True)
            job = BacktestJob(number, rule, version, author, {**request, "file": str(self._file(number))})
            self._jobs[job.number] = job
            finished = [number for number, kept in self._jobs.items() if kept.state not in (WAITING, RUNNING)]
            for number in finished[: max(len(self._jobs) - MAX_KEPT, 0)]:
                del self._jobs[number]
                self._file(number).unlink(missing_ok=True)
            self._queue.put(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="asterism-console-backtests", daemon=True)
                self._thread.start()
            return job

    def get(self, number: int) -> BacktestJob:
        """:raises PatternProcessorError: there is no such job"""
        with self._lock:
            job = self._jobs.get(number)
        if job is None:
            raise PatternProcessorError(
                f"there is no backtest {number}", hint="its result was not kept; start it again"
            )
        return job

    def _file(self, number: int) -> Path:
        assert self._folder is not None, "a job was submitted"
        return Path(self._folder.name) / f"{number}.parquet"

    def matches(self, number: int) -> Path:
        """The file with all matches of a backtest.

        :raises PatternProcessorError: there is no such job, or it has no result
        """
        file = self._file(self.get(number).number)
        if not file.exists():
            raise PatternProcessorError(f"the backtest {number} has no matches to show")
        return file

    def cancel(self, number: int) -> BacktestJob:
        job = self.get(number)
        with self._lock:  # while it is held, the next job cannot begin
            if job.state == RUNNING:
                self._worker.stop("it was cancelled")
            if job.state in (WAITING, RUNNING):
                job.state = CANCELLED
        return job

    def close(self) -> None:
        self._queue.put(None)
        self._worker.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def _work(self) -> None:
        while True:
            try:
                job = self._queue.get(timeout=IDLE)
            except queue.Empty:
                self._worker.close()
                job = self._queue.get()
            if job is None:
                return
            with self._lock:
                if job.state != WAITING:
                    continue
                job.state, job.begun = RUNNING, time.monotonic()
            self._run(job)

    def _run(self, job: BacktestJob) -> None:
        def on_progress(progress: Any) -> None:
            job.progress = progress

        state, result, error = FAILED, None, None
        try:
            result = self._worker.ask(job.request, timeout=TIMEOUT, on_progress=on_progress)
            state = DONE
        except AsterismError as problem:
            error = error_fields(problem)
        except Exception as problem:
            error = {"message": "this failed because of an internal error", "detail": type(problem).__name__}
        with self._lock:
            job.seconds = time.monotonic() - job.begun
            if job.state == RUNNING:
                job.state, job.result, job.error = state, result, error
