"""A proxy for HTTP that answers slowly, refuses requests, and breaks connections: what an object store does on a bad day."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

THROTTLED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
BROKEN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
)
NOT_FORWARDED = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}


@dataclass
class Weather:
    """What happens to requests. Each of them is off by default.

    :param seconds: before each request is forwarded
    :param throttled: the share of requests that get 503 ``SlowDown``
    :param broken: each so-many-th request gets 500, and has no effect
    :param cut: the connection of each so-many-th request is closed after the server has carried it out, and before its answer
    """

    seconds: float = 0.0
    throttled: float = 0.0
    broken: int = 0
    cut: int = 0


@dataclass(frozen=True)
class SeenRequest:
    """One that has come: its status is 0 if the connection was cut."""

    method: str
    path: str
    conditional: bool
    status: int


class FaultyProxy:
    """Forwards requests to a server on loopback. *weather* may be changed at any time."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.weather = Weather()
        self.requests: list[SeenRequest] = []
        self._numbers, self._random = count(1), random.Random(0)
        self._creating = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer is written in two parts, the second of which would wait for the acknowledgement of the first.
            disable_nagle_algorithm = True

            def forward(self) -> None:
                proxy._answer(self, (host, port), _body(self))

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward  # noqa: N815 - named by the base class

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing is logged."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A client that was killed is expected."""

        self._server = Server((host, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.address = f"http://{host}:{self._server.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler, server: tuple[str, int], body: bytes) -> None:
        weather, number = self.weather, next(self._numbers)
        conditional = handler.headers.get("If-None-Match") == "*"
        time.sleep(weather.seconds)
        headers: Sequence[tuple[str, str]] = []
        if self._random.random() < weather.throttled:
            status, answer = 503, THROTTLED
        elif weather.broken and number % weather.broken == 0:
            status, answer = 500, BROKEN
        else:
            if conditional:
                with self._creating:  # S3 creates an object once, however many ask for it; the server behind may not
                    status, headers, answer = _forwarded(handler, server, body)
            else:
                status, headers, answer = _forwarded(handler, server, body)
            if weather.cut and number % weather.cut == 0:
                self.requests.append(SeenRequest(handler.command, handler.path, conditional, 0))
                handler.close_connection = True
                return
        self.requests.append(SeenRequest(handler.command, handler.path, conditional, status))
        if status in (500, 503):
            headers = [("Content-Type", "application/xml")]
        handler.send_response(status)
        for name, value in headers:
            if name.lower() not in NOT_FORWARDED:
                handler.send_header(name, value)
        of_head = [value for name, value in headers if name.lower() == "content-length"]
        is_head = handler.command == "HEAD"
        handler.send_header("Content-Length", of_head[0] if is_head and of_head else str(len(answer)))
        handler.end_headers()
        if not is_head:
            handler.wfile.write(answer)


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    parts = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        parts.append(handler.rfile.read(size))
        handler.rfile.readline()
    while handler.rfile.readline().strip():
        """Trailers are of no interest."""
    return b"".join(parts)


def _forwarded(
    handler: BaseHTTPRequestHandler, server: tuple[str, int], body: bytes
) -> tuple[int, Sequence[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection(*server, timeout=60)
    try:
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in NOT_FORWARDED}
        connection.request(handler.command, handler.path, body, {**headers, "Content-Length": str(len(body))})
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()
