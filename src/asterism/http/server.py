"""An HTTP server for few clients with a token, among others without one. h11 implements the protocol, and asyncio the
sockets.

A connection waits until it has sent the token, and is then served. If too many connections wait, the newest replaces the
oldest, so that a client that sends the token at once is served no matter how many others only connect. Each phase has a
deadline as a whole, so that a client cannot stay connected by sending a byte now and then.

See docs/decisions/0029.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import h11

from asterism.errors import printable
from asterism.http.application import Application
from asterism.http.messages import Answer, AnswerError, Request

HEAD_TIMEOUT = 5  # seconds to send the token, and as many for the TLS handshake before
TOTAL_TIMEOUT = 60  # seconds to send a body, and as many to receive a response
MAX_WAITING = 128  # connections that have not sent the token
MAX_SERVED = 32  # connections that have sent the token
MAX_HEAD = 16_384  # bytes that are stored of an incomplete head
MAX_DRAINED = 1_000_000  # bytes of an unused body that are read
_CHUNK = 65_536
_log = logging.getLogger("asterism.http")


class HttpServer:
    """Serves *application* on the connections for which it is called: ``asyncio.start_server(HttpServer(...), ...)``."""

    def __init__(self, application: Application, tls: ssl.SSLContext | None) -> None:
        self._application, self._tls = application, tls
        self._tasks: set[asyncio.Task[None]] = set()
        """All connections. The event loop itself keeps only weak references to tasks."""
        self._waiting: dict[asyncio.Task[None], None] = {}
        """The connections that have not sent the token, oldest first."""
        self._served = 0

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._handle(reader, writer))
        self._tasks.add(task)
        self._waiting[task] = None

        def close(task: asyncio.Task[None]) -> None:
            # Not in the task, because a task that is cancelled before it starts does not run at all.
            writer.transport.abort()
            self._waiting.pop(task, None)
            self._tasks.discard(task)

        task.add_done_callback(close)
        if len(self._waiting) > MAX_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.cancel()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._tls is not None:
                # The handshake starts only here, so that it counts as waiting.
                await writer.start_tls(self._tls, ssl_handshake_timeout=HEAD_TIMEOUT)
            await self._serve(_Connection(reader, writer, self._application.headers))
        except (OSError, asyncio.CancelledError):
            _log.debug("connection of %s failed", writer.get_extra_info("peername"), exc_info=True)
        except Exception:
            _log.exception("request of %s failed", writer.get_extra_info("peername"))

    async def _serve(self, connection: _Connection) -> None:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                request = await connection.request()
            if request is None:
                return
            public = self._application.public(request)
            if public is not None:
                await connection.send(public)  # it is still among the connections that may be replaced
                return
            self._application.authorize(request)
            if self._served >= MAX_SERVED:
                raise AnswerError(503, "too many connections", "try again later", Retry_After=str(HEAD_TIMEOUT))
        except AnswerError as error:
            await connection.send(error.answer)
            return
        task: Any = asyncio.current_task()
        self._waiting.pop(task, None)
        self._served += 1
        try:
            await connection.send(await self._answer(connection, request))
        finally:
            self._served -= 1

    async def _answer(self, connection: _Connection, request: Request) -> Answer:
        try:
            body = b""
            if self._application.needs_body(request):
                async with asyncio.timeout(TOTAL_TIMEOUT):
                    body = await connection.body()
        except AnswerError as error:
            return error.answer
        except TimeoutError:
            return AnswerError(408, "the body was not received in time").answer
        gone: Future[None] = Future()
        watching = asyncio.create_task(connection.closed())
        watching.add_done_callback(lambda task: gone.set_result(None))
        try:
            return await asyncio.to_thread(self._application.answer, request._replace(gone=gone), body)
        except Exception:
            _log.exception("a request failed")
            return AnswerError(500, "the request failed because of an internal error", "see the log").answer
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


class _Connection:
    """One request and its response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Mapping[str, str]) -> None:
        self._reader, self._writer, self._headers = reader, writer, headers
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._request_line = "nothing"
        # Writing then waits until the socket has taken everything.
        writer.transport.set_write_buffer_limits(0)

    async def _event(self) -> Any:
        """:raises AnswerError: the input is not valid HTTP"""
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                self._protocol.receive_data(await self._reader.read(_CHUNK))
        except h11.RemoteProtocolError as error:
            raise AnswerError(error.error_status_hint, str(error)) from None
        return event

    async def request(self) -> Request | None:
        """The request without its body, or None if the client has disconnected."""
        event = await self._event()
        if not isinstance(event, h11.Request):
            return None
        headers: dict[str, list[str]] = {}
        for name, value in event.headers:
            headers.setdefault(name.decode(), []).append(value.decode("latin-1"))
        joined = {name: ", ".join(values) for name, values in headers.items()}
        request = Request(event.method.decode(), event.target.decode(), joined)
        self._request_line = printable(f"{request.method} {request.target}")
        return request

    async def body(self) -> bytes:
        if self._protocol.they_are_waiting_for_100_continue:
            self._writer.write(self._protocol.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        parts = []
        while isinstance(event := await self._event(), h11.Data):
            parts.append(event.data)
        return b"".join(parts)

    async def closed(self) -> None:
        """Return when the client has closed the connection. What it sends after its request is not used."""
        while await self._reader.read(_CHUNK):
            pass

    async def send(self, answer: Answer) -> None:
        _log.debug("%s %s %d", self._writer.get_extra_info("peername"), self._request_line, answer.status)
        protocol, status, body = self._protocol, answer.status, answer.body
        is_unread = (
            protocol.their_state in (h11.SEND_BODY, h11.ERROR) and not protocol.they_are_waiting_for_100_continue
        )
        headers = {"Connection": "close", "Cache-Control": "no-cache", "Date": formatdate(usegmt=True)}
        headers |= {"X-Content-Type-Options": "nosniff"}  # messages quote requests
        if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        headers |= {**self._headers, **answer.headers}
        head = h11.Response(status_code=status, reason=status.phrase, headers=[*headers.items()])
        async with asyncio.timeout(TOTAL_TIMEOUT):
            self._writer.write(protocol.send(head) or b"")
            self._writer.write(b"" if self._request_line.startswith("HEAD ") else body)
            await self._writer.drain()
            if is_unread:
                await self._discard()
            self._writer.close()
            await self._writer.wait_closed()

    async def _discard(self) -> None:
        """Read what the client is still sending, because closing the connection before would break it before the client reads
        the response.
        """
        if self._writer.can_write_eof():
            self._writer.write_eof()
        left = MAX_DRAINED
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAD_TIMEOUT):
                while left > 0 and (chunk := await self._reader.read(_CHUNK)):
                    left -= len(chunk)
