"""Runs the console: sockets, the threads of requests, and background tasks."""

from __future__ import annotations

import asyncio
import base64
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from asterism.columns.schemas import schema_of
from asterism.console.access import access_from
from asterism.console.application import ConsoleApplication
from asterism.console.backtests import Backtests
from asterism.console.counts import WatchedStatus
from asterism.console.rule_views import ConsoleRules
from asterism.console.samples import SampleSettings
from asterism.console.worker import WorkerProcess
from asterism.errors import AsterismError, PatternProcessorError
from asterism.http.access import Access
from asterism.http.listening import address_of, check_server, is_loopback, listening_socket, tls_context
from asterism.patterns.semantics import Semantics

SCHEMA_TIMEOUT = 120.0
"""Seconds in which the columns of the history must be known."""
_log = logging.getLogger("asterism.console")


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The options of ``asterism rules serve``.

    :param samples: the columns of events, the history, the key and the event time
    :param source_token: the token of the source, if it is the endpoint of a query
    :param backtest_worker: the module that runs backtests, if there is a history
    :raises PatternProcessorError: h11 is not installed, or tokens would be sent unencrypted
    """

    source: str
    table: str
    samples: SampleSettings
    checkpoint: str | None = None
    tokens: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    private_key: Path | None = None
    backtest_worker: str | None = None
    source_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.tokens is None and not is_loopback(self.host):
            raise PatternProcessorError(
                f"on {self.host}, everyone who can reach it could change the rules", hint="--token-file FILE"
            )
        check_server("the console", self.host, self.certificate, self.private_key)


class ConsoleServer:
    """The console, from :meth:`run` to :meth:`close`.

    :raises AsterismError: the options are invalid, or the source or the tokens cannot be read
    """

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        settings = options.samples
        self.address: str | None = None
        """The address on which it listens; None: it does not."""
        self._schema: pa.Schema | None = None
        if settings.columns is not None and not settings.lookups:
            self._schema = schema_of(settings.columns)
        self._schema_is_known = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = threading.Event()
        self._ended = asyncio.Event()
        access = Access() if options.tokens is None else access_from(options.tokens)
        status = None if options.checkpoint is None else WatchedStatus(options.checkpoint)
        source = ConsoleRules(
            options.source,
            options.table,
            Semantics(settings.semantics),
            self._known_schema,
            token=options.source_token,
            conditions=lambda: None if status is None else status.conditions(),
            udfs=lambda: {} if status is None else status.udfs(),
            free_version=attrgetter("version") if status is None else status.free_version,
        )
        source.all()
        if status is not None:
            status.look()
            problem = status.current()[1]
            if problem is not None:  # the query may not have been started yet
                _log.warning("there is no status: %s", problem)
        setup = asdict(settings)
        worker = options.backtest_worker
        backtests = None if worker is None or not settings.history else Backtests(WorkerProcess(worker, setup))
        facts = {
            "history": [Path(path).name for path in settings.history],
            "time": settings.time,
            "streamKey": list(settings.keys),
        }
        sampler = WorkerProcess("asterism.console.sample_worker", setup)
        self.application = ConsoleApplication(source, access, sampler, status=status, backtests=backtests, facts=facts)

    def run(self, on_listening: Callable[[str], None] = lambda address: None) -> None:
        """Serve until :meth:`close`.

        :param on_listening: called with the address
        :raises PatternProcessorError: the port is not free, or the certificate cannot be used
        """
        application = self.application
        if application.status is not None:
            application.status.start()
        samples = self.options.samples
        if self._schema is None and (samples.history or samples.columns is not None):
            threading.Thread(target=self._find_schema, name="asterism-console-columns", daemon=True).start()
        else:
            self._schema_is_known.set()
        try:
            asyncio.run(self._serve(on_listening))
        finally:
            self.address = None
            application.close()

    def close(self) -> None:
        self._closed.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._ended.set)

    def _find_schema(self) -> None:
        """Until the columns of the history are known, they are not checked."""
        try:
            schema = self.application.sampler.ask({"do": "schema"}, timeout=SCHEMA_TIMEOUT)
            self._schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(schema)))
        except AsterismError as error:
            _log.warning("the columns of the history are not known: %s", error)
        finally:
            self._schema_is_known.set()

    def _known_schema(self, seconds: float) -> pa.Schema | None:
        self._schema_is_known.wait(seconds)
        return self._schema

    async def _serve(self, on_listening: Callable[[str], None]) -> None:
        from asterism.http.server import MAX_SERVED, HttpServer

        options = self.options
        self._loop = asyncio.get_running_loop()
        tls = tls_context(options.certificate, options.private_key)
        with (
            listening_socket(options.host, options.port) as listening,
            ThreadPoolExecutor(MAX_SERVED + 2, thread_name_prefix="asterism-console") as threads,
        ):
            self._loop.set_default_executor(threads)
            async with await asyncio.start_server(HttpServer(self.application, tls), sock=listening):
                self.address = address_of(options.host, listening.getsockname()[1], encrypted=tls is not None)
                on_listening(self.address)
                if not self._closed.is_set():
                    await self._ended.wait()
                self.application.sampler.stop()  # a request may wait for it
