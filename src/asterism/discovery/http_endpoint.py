"""An endpoint that takes pattern processors over HTTP.

========  ====================  ==============================================================================
method    path
========  ====================  ==============================================================================
``GET``   ``/processors``       all processors, in the format of rule files
``PUT``   ``/processors``       a new set; those that cannot be used are refused alone
``GET``   ``/processors/{id}``  one
``PUT``   ``/processors/{id}``  a new one, or a new version
``DELETE``  ``/processors/{id}``  removes one
``GET``   ``/health``           how many there are, which versions are in force, and what was refused
========  ====================  ==============================================================================

What is answered with success has been written to the file of the set. Every request needs the token. Processors and the set have
ETags, and what changes them can depend on these: ``If-Match``, ``If-None-Match``.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import ipaddress
import json
import logging
import os
import re
import socket
import socketserver
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from asterism.arguments import expect
from asterism.discovery.deadline import Deadline
from asterism.discovery.documents import MAX_BYTES, Document, read_document
from asterism.discovery.rule_file import ChangedError, Condition, ConflictError, RuleSet, TooLargeError
from asterism.errors import AsterismError, PatternProcessorError, printable
from asterism.rules.durable_files import NotWrittenError
from asterism.rules.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
)

MIN_TOKEN = 16
HEAD_TIMEOUT = 5  # seconds to show the token; and as many before to agree on TLS
TIMEOUT = 10  # seconds of silence after which a connection is closed
TOTAL_TIMEOUT = 60  # seconds to send a body, and to take in an answer
MAX_CONNECTIONS = 32
MAX_TURNED_AWAY = 100
TURNED_AWAY = 1  # seconds for which the connection of who was turned away stays open
MAX_LOGGED = 20  # processors of one request that are refused with a line each; the answer has all
MAX_DRAINED = 1_000_000  # bytes of a body that nobody wants
RETRY = timedelta(seconds=1)
"""How soon the endpoint tries again to start, or to hand over what it has got, and looks whether it still listens."""
_log = logging.getLogger("asterism.discovery")


class HttpPatternProcessorDiscovererFactory(PatternProcessorDiscovererFactory):
    """Listens for pattern processors over HTTP, or HTTPS with a certificate.

    :param port: to listen on, up to 65535; 0: one that is free, which the log tells
    :param token: what every request must bring, as ``Authorization: Bearer ...``; at least 16 characters
    :param state: the file that holds the set, so that it survives a restart; made if there is none
    :param host: the address to listen on; without a certificate it must be one of this machine alone
    :param certificate: a file with the chain of certificates, in PEM; with it, the endpoint speaks HTTPS
    :param private_key: its key, where that is not in the same file
    :raises PatternProcessorError: the token is too short, or it would travel in clear; there is no such port; there is a key
        without its certificate

    >>> HttpPatternProcessorDiscovererFactory(8473, token="a-long-random-secret", state="/var/lib/rules.json")
    HttpPatternProcessorDiscovererFactory('http://127.0.0.1:8473', state='/var/lib/rules.json')
    """

    def __init__(
        self,
        port: int,
        *,
        token: str,
        state: str | os.PathLike[str],
        host: str = "127.0.0.1",
        certificate: str | os.PathLike[str] | None = None,
        private_key: str | os.PathLike[str] | None = None,
    ) -> None:
        for what, file in (("state", state), ("certificate", certificate), ("private_key", private_key)):
            if file is not None or what == "state":
                expect(
                    PatternProcessorError,
                    file,
                    str | os.PathLike,
                    f"{what} is the path of a file",
                    'Path("rules.json")',
                )
        expect(PatternProcessorError, host, str, "the host is a text", "127.0.0.1")
        if (
            not isinstance(token, str)
            or len(token) < MIN_TOKEN
            or not token.isascii()
            or not token.isprintable()
            or " " in token
        ):
            raise PatternProcessorError(
                f"the token must have at least {MIN_TOKEN} printable ASCII characters",
                hint='python -c "import secrets; print(secrets.token_urlsafe())"',
            )
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
            raise PatternProcessorError(f"a port is an integer from 0 to 65535, not {port!r:.60}")
        if certificate is None and private_key is not None:
            raise PatternProcessorError(
                "there is a private key, and no certificate", hint="certificate=, the file with its chain"
            )
        if certificate is None and not _is_loopback(host):
            raise PatternProcessorError(
                f"on {host} the token would travel in clear",
                hint="give a certificate, or listen on 127.0.0.1 behind a proxy that speaks HTTPS",
            )
        self.host, self.port, self.token = host, port, token
        self.state = Path(state).absolute()
        self.certificate = None if certificate is None else Path(certificate).absolute()
        self.private_key = None if private_key is None else Path(private_key).absolute()

    def __repr__(self) -> str:
        scheme = "http" if self.certificate is None else "https"
        return f"{type(self).__name__}('{scheme}://{self.host}:{self.port}', state={str(self.state)!r})"

    def create_pattern_processor_discoverer(self) -> HttpDiscoverer:
        return HttpDiscoverer(self)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ---------------------------------------------------------------------- the endpoint


class HttpDiscoverer(PatternProcessorDiscoverer):
    """See :class:`HttpPatternProcessorDiscovererFactory`. What is put becomes known to the manager in the order of requests."""

    def __init__(self, options: HttpPatternProcessorDiscovererFactory) -> None:
        self.options = options
        self.address: str | None = None
        """Where it listens, ``http://127.0.0.1:8473``; None: it does not."""
        self._closed = threading.Event()
        self._changed = threading.Event()
        self._given: bytes | None = None
        """The set as the manager knows it."""

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        rules = RuleSet(self.options.state)
        self._given = rules.text
        return rules.processors()

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        while not self._closed.is_set():
            try:
                self._serve(RuleSet(self.options.state), manager)
            except Exception as error:
                manager.on_discovery_failed(error)
                self._closed.wait(RETRY.total_seconds())

    def close(self) -> None:
        self._closed.set()
        self._changed.set()

    def _serve(self, rules: RuleSet, manager: PatternProcessorManager) -> None:
        server = _Server(self.options, rules, manager, self._changed)
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="asterism-rules-http", daemon=True)
        try:
            thread.start()
            self.address = server.address
            _log.info("listening for pattern processors on %s", self.address)
            while not self._closed.is_set():
                self._changed.clear()
                self._hand_over(rules, manager, server)
                self._changed.wait(RETRY.total_seconds())
                if not thread.is_alive():
                    raise PatternProcessorError("the endpoint has died", hint="it is started again")
        finally:
            self.address = None
            server.shutdown()
            server.server_close()
            thread.join()

    def _hand_over(self, rules: RuleSet, manager: PatternProcessorManager, server: _Server) -> None:
        text = rules.text
        if text == self._given:
            manager.on_nothing_changed()
            return
        try:
            # Whatever has come since is newer, and handed over again.
            manager.on_pattern_processors_updated(rules.processors())
            self._given, server.problem = text, None
        except Exception as error:
            server.problem = error
            manager.on_discovery_failed(error)


class _Server(ThreadingHTTPServer):
    request_queue_size = MAX_CONNECTIONS
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        options: HttpPatternProcessorDiscovererFactory,
        rules: RuleSet,
        manager: PatternProcessorManager,
        changed: threading.Event,
    ) -> None:
        self.rules, self.manager, self.changed = rules, manager, changed
        self.problem: Exception | None = None
        """Why the manager does not have the newest set."""
        self._token = _hash(options.token)
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._turned_away: deque[tuple[float, socket.socket]] = deque()
        """And when to close them."""
        self._tls = _tls(options)
        self.address_family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        try:
            super().__init__((options.host, options.port), _Handler)
        except (OSError, OverflowError) as error:
            raise PatternProcessorError(f"cannot listen on {options.host}:{options.port}", str(error)) from None
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.address = f"{'https' if self._tls else 'http'}://{host}:{self.server_address[1]}"

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks for the name of the host.
        socketserver.TCPServer.server_bind(self)

    def is_allowed(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        # Hashes are of one length: how long it takes tells nothing about the token.
        return hmac.compare_digest(_hash(token.strip()), self._token) and scheme.lower() == "bearer"

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self._turn_away(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # there can be no more threads
            self._slots.release()
            raise

    def _turn_away(self, request: socket.socket) -> None:
        """Tell a client to come again, and wait for nothing."""
        if self._tls is not None:
            self.shutdown_request(request)
            return
        with suppress(OSError):
            request.setblocking(False)
            request.send(_BUSY)
            request.shutdown(socket.SHUT_WR)
        # Closed on a client that is still sending, the connection would break before it reads the answer.
        self._turned_away.append((time.monotonic() + TURNED_AWAY, request))

    def service_actions(self) -> None:
        waiting, now = self._turned_away, time.monotonic()
        while waiting and (waiting[0][0] < now or len(waiting) > MAX_TURNED_AWAY):
            waiting.popleft()[1].close()

    def server_close(self) -> None:
        super().server_close()
        while self._turned_away:
            self._turned_away.popleft()[1].close()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(HEAD_TIMEOUT)
        if self._tls is None:
            super().finish_request(request, client_address)
        else:
            # In the thread of the request: a client that is slow to shake hands holds up no other. The timeout is that of the
            # whole handshake.
            with self._tls.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("request of %s failed", client_address, exc_info=True)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _tls(options: HttpPatternProcessorDiscovererFactory) -> ssl.SSLContext | None:
    if options.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.certificate, options.private_key)
    except OSError as error:
        raise PatternProcessorError(f"the certificate {options.certificate} cannot be used", str(error)) from None
    return context


# ---------------------------------------------------------------------- requests


def _busy() -> bytes:
    body = json.dumps({"error": {"message": "too many connections", "hint": "come again"}})
    return (
        f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: {HEAD_TIMEOUT}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


class _AnswerError(Exception):
    """An answer other than success."""

    def __init__(self, status: HTTPStatus, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, dict(headers or {})


def _error(status: HTTPStatus, message: str, hint: str | None = None, **headers: str) -> _AnswerError:
    error = {"message": message, "hint": hint} if hint else {"message": message}
    return _AnswerError(status, {"error": error}, {name.replace("_", "-"): value for name, value in headers.items()})


def _told(error: AsterismError) -> dict[str, Any]:
    parts = {
        "message": error.message,
        "detail": error.detail,
        "path": getattr(error, "path", None) or None,
        "hint": error.hint,
    }
    return {name: value for name, value in parts.items() if value is not None}


_BUSY = _busy()
_STATUS = {
    ConflictError: HTTPStatus.CONFLICT,
    ChangedError: HTTPStatus.PRECONDITION_FAILED,
    TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    NotWrittenError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
_TAG = re.compile(r'(?:W/)?"[^"\x00-\x20\x7f]*"')
_TAGS = re.compile(rf"{_TAG.pattern}(?:[ \t]*,[ \t]*{_TAG.pattern})*")
_UNUSABLE = HTTPStatus.UNPROCESSABLE_ENTITY
_Answer = tuple[HTTPStatus, bytes, Mapping[str, str]]


def _not_allowed(methods: str) -> _AnswerError:
    return _error(HTTPStatus.METHOD_NOT_ALLOWED, f"only {methods} here", Allow=methods)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    rfile: io.BufferedReader
    _unread = 0
    """Bytes of the body that have not been read."""

    def setup(self) -> None:
        super().setup()
        self._deadline = Deadline(TIMEOUT)
        self._deadline.begin(HEAD_TIMEOUT)
        self.rfile = self._deadline.watch(self.rfile, self.connection)

    def do_GET(self) -> None:
        self._handle()

    do_PUT = do_DELETE = do_POST = do_PATCH = do_GET  # noqa: N815

    def handle_expect_100(self) -> bool:
        # Who may not send a body is told so before it is sent.
        if self.server.is_allowed(self.headers.get("Authorization", "")):
            return super().handle_expect_100()
        self._handle()
        return False

    def _handle(self) -> None:
        status: int
        try:
            self._unread = self._length()
            if not self.server.is_allowed(self.headers.get("Authorization", "")):
                raise _error(HTTPStatus.UNAUTHORIZED, "the token is missing, or another one", WWW_Authenticate="Bearer")
            self._deadline.begin(TOTAL_TIMEOUT)
            status, body, headers = self._answer()
        except _AnswerError as answer:
            status, body, headers = answer.status, json.dumps(answer.body).encode(), answer.headers
        except AsterismError as error:
            status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), _UNUSABLE)
            body, headers = json.dumps({"error": _told(error)}).encode(), {}
            self.server.changed.set()  # of a file that could not be written to the end, the new content may count
        self._send(status, body, headers)

    def _answer(self) -> _Answer:
        rules = self.server.rules
        match self._path(), self.command:
            case ["health"], "GET":
                return self._health()
            case ["processors"], "GET":
                return self._get(rules.text)
            case ["processors"], "PUT":
                return self._put_all()
            case ["processors", id], "GET":
                text = rules.get(id)
                if text is None:
                    raise _error(HTTPStatus.NOT_FOUND, f"there is no processor {id!r:.60}")
                return self._get(text)
            case ["processors", id], "PUT":
                return self._put(id)
            case ["processors", id], "DELETE":
                if not rules.remove(id, self._condition()):
                    raise _error(HTTPStatus.NOT_FOUND, f"there is no processor {id!r:.60}")
                self.server.changed.set()
                return HTTPStatus.NO_CONTENT, b"", {}
            case ["health"], _:
                raise _not_allowed("GET")
            case ["processors"], _:
                raise _not_allowed("GET, PUT")
            case ["processors", _], _:
                raise _not_allowed("GET, PUT, DELETE")
        raise _error(HTTPStatus.NOT_FOUND, "there is nothing here", "/processors, /processors/{id} and /health are")

    def _path(self) -> list[str]:
        if "?" in self.path:
            raise _error(HTTPStatus.BAD_REQUEST, "nothing is asked with ? here", "in an id it is written %3F")
        # A slash in an id is written %2F.
        try:
            return [unquote(part, errors="strict") for part in self.path.removeprefix("/").split("/")]
        except UnicodeDecodeError:
            raise _error(HTTPStatus.BAD_REQUEST, "the path is not in UTF-8") from None

    def _length(self) -> int:
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or (self.command == "PUT" and not lengths):
            raise _error(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is needed")
        if len(lengths) > 1 or not all(re.fullmatch("[0-9]{1,18}", length) for length in lengths):
            raise _error(HTTPStatus.BAD_REQUEST, "the Content-Length is not a number")
        return int(lengths[0]) if lengths else 0

    def _document(self) -> Document:
        if self.headers.get_content_type() != "application/json":
            raise _error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "processors are sent as application/json")
        if self._unread > MAX_BYTES:
            raise _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is too large (limit {MAX_BYTES} bytes)")
        try:
            body = self.rfile.read(self._unread)
        except TimeoutError:
            raise _error(HTTPStatus.REQUEST_TIMEOUT, "the body does not come") from None
        if len(body) < self._unread:
            raise _error(HTTPStatus.BAD_REQUEST, "the body is shorter than its Content-Length")
        self._unread = 0
        return read_document(body)

    def _get(self, text: bytes) -> _Answer:
        tag = _tag(text)
        match, none_match = self._tags("If-Match"), self._tags("If-None-Match")
        if match is not None and match.isdisjoint({"*", tag}):
            raise ChangedError("what is there has another ETag", tag)
        if none_match is not None and not none_match.isdisjoint({"*", tag, f"W/{tag}"}):
            return HTTPStatus.NOT_MODIFIED, b"", {"ETag": tag}
        return HTTPStatus.OK, text, {"ETag": tag}

    def _condition(self) -> Condition:
        """Of a change: what RFC 9110 has in If-Match and If-None-Match."""
        match, none_match = self._tags("If-Match"), self._tags("If-None-Match")

        def holds(text: bytes | None) -> bool:
            if match is None and none_match is None:
                return True
            there = set() if text is None else {"*", _tag(text)}
            if match is not None and match.isdisjoint(there):
                return False
            return none_match is None or none_match.isdisjoint(there | {f"W/{tag}" for tag in there})

        return holds

    def _tags(self, header: str) -> set[str] | None:
        lines = self.headers.get_all(header)
        if lines is None:
            return None
        text = ", ".join(lines).strip()
        if text != "*" and not _TAGS.fullmatch(text):
            raise _error(HTTPStatus.BAD_REQUEST, f"{header} has something else than ETags", 'in quotation marks: "..."')
        return {"*"} if text == "*" else set(_TAG.findall(text))

    def _put(self, id: str) -> _Answer:
        document = self._document()
        if document.pointers != [""]:
            raise PatternProcessorError("one processor is expected")
        [item] = document.items
        new = self.server.rules.put(id, item, self._condition())
        self.server.changed.set()
        return _json(HTTPStatus.CREATED if new else HTTPStatus.OK, {"id": id, "version": item["version"]})

    def _put_all(self) -> _Answer:
        document = self._document()
        if document.pointers == [""]:
            # An id that was forgotten in the path would remove all others.
            raise PatternProcessorError(
                "a set is expected, and this is one processor",
                hint='PUT /processors/{id} puts one; a set is [...] or {"processors": [...]}',
            )
        report = self.server.rules.put_all(document.items, self._condition())
        self.server.changed.set()
        for one in report.refused[:MAX_LOGGED]:
            _log.warning("refused: %s", one)
        if len(report.refused) > MAX_LOGGED:
            _log.warning("refused: %d more, which the answer tells", len(report.refused) - MAX_LOGGED)
        refused = [{"id": one.id, "version": one.version, **_told(one.error)} for one in report.refused]
        found = {"accepted": report.accepted, "removed": report.removed, "refused": refused}
        return _json(HTTPStatus.MULTI_STATUS if refused else HTTPStatus.OK, found)

    def _health(self) -> _Answer:
        problem = self.server.problem
        found: dict[str, Any] = {"status": "interrupted" if problem else "ok", "processors": len(self.server.rules)}
        if problem:
            found["error"] = str(problem)
        found["in_force"] = {one.id: one.version for one in self.server.manager.current_pattern_processors()}
        # A manager need not keep a status; that of a query does.
        refused = getattr(getattr(self.server.manager, "status", None), "refused", None)
        if isinstance(refused, Mapping):
            found["refused"] = dict(refused)
        return _json(HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK, found)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.close_connection = True
        self.connection.settimeout(TOTAL_TIMEOUT)
        self.send_response(status)
        for name, value in {"Connection": "close", "Cache-Control": "no-cache", **headers}.items():
            self.send_header(name, value)
        if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self._drain()

    def _drain(self) -> None:
        """Take in what the client is still sending: closed on it, the connection would break before it reads the answer."""
        left = min(self._unread, MAX_DRAINED)
        if left == 0:
            return
        self._deadline.begin(HEAD_TIMEOUT)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0:
                taken = len(self.rfile.read1(min(left, 65536)))
                if taken == 0:
                    break
                left -= taken

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class finds wrong, before there is a request."""
        self.command = getattr(self, "command", None) or "GET"
        self._send(code, json.dumps({"error": {"message": message or HTTPStatus(code).phrase}}).encode(), {})

    def version_string(self) -> str:
        return "asterism"

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug("%s %s", self.address_string(), printable(format % args))


def _json(status: HTTPStatus, value: Any) -> _Answer:
    return status, json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace"), {}


def _tag(text: bytes) -> str:
    return f'"{hashlib.sha256(text).hexdigest()[:32]}"'
