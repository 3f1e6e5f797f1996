"""Pattern processors from a web server, by polling."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import socket
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from http.client import HTTPException, HTTPMessage
from types import MappingProxyType
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit

from asterism.arguments import expect, expect_string, expect_strings
from asterism.discovery.sources.documents import MAX_BYTES, YAML, read_document
from asterism.discovery.sources.polling import Items, PollingDiscoverer
from asterism.errors import PatternProcessorError, RuleSourceError, located, printable
from asterism.http.deadline import Deadline
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    checked_interval,
)
from asterism.text.printable import one_line

SCHEMES = ("http", "https")
TIMEOUT = 10  # seconds without data
TOTAL_TIMEOUT = 60  # seconds for a whole response, including all redirects
MAX_REDIRECTS = 5
MAX_REASON = 200  # characters of a server's error message
_CHUNK = 65_536


class UrlPatternProcessorDiscovererFactory(PatternProcessorDiscovererFactory):
    """Polls a web server for a document with pattern processors, with conditional requests if the server sends an ETag or a
    date.

    :param url: ``http`` or ``https``; the document is in YAML if the path ends in ``.yaml`` or ``.yml`` or the media type is
        YAML, otherwise in JSON
    :param headers: headers of every request, for example ``{"Authorization": "Bearer ..."}``; they are not sent to other
        hosts
    :param interval: the polling interval; it doubles after each failure, up to a minute
    :raises PatternProcessorError: the URL has another scheme, a header has several lines, or the interval is not a positive
        timedelta

    >>> UrlPatternProcessorDiscovererFactory("https://example.com/rules.json", headers={"Authorization": "Bearer secret"})
    UrlPatternProcessorDiscovererFactory('https://example.com/rules.json', headers=['Authorization'])
    """

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, interval: timedelta = timedelta(seconds=10)
    ) -> None:
        expect_string(PatternProcessorError, url, "a URL must be a string", "https://example.com/rules.json")
        expect(
            PatternProcessorError, headers, Mapping | None, "headers must be a dict", '{"Authorization": "Bearer ..."}'
        )
        for each in (headers or {}).items():
            expect_strings(PatternProcessorError, each, "a header must be a name and a value")
        parts = _checked(url)
        self.url, self.headers, self.interval = url, dict(headers or {}), checked_interval(interval)
        self._shown = _shown(parts)
        for name, value in self.headers.items():
            if not (name + value).isascii() or not (name + value).isprintable():
                raise PatternProcessorError(f"the header {name!r:.60} must be one line of ASCII characters")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown!r}, headers={list(self.headers)})"

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        return UrlDiscoverer(self.url, self.headers, self.interval)


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = parts.scheme in SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port >= 0)
    except ValueError:
        good = False
    if not good or not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        raise PatternProcessorError("this is not the URL of a web server", hint="https://example.com/rules.json")
    if "@" in parts.netloc:
        raise PatternProcessorError(
            "a password in a URL can appear in logs", hint='headers={"Authorization": "Basic ..."}'
        )
    return parts


def _shown(parts: SplitResult) -> str:
    """The URL without the query string, which may contain a secret."""
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + ("?…" if parts.query else "")


class Endpoint:
    """The endpoint of a query, as a client uses it.

    :param url: its address, without a path
    :raises PatternProcessorError: the URL is not one of a web server, or there is no token
    """

    def __init__(self, url: str, token: str | None) -> None:
        self.shown = _shown(_checked(url.rstrip("/")))
        if not token:
            raise PatternProcessorError(
                "the token of the endpoint is required", hint="set the environment variable ASTERISM_TOKEN"
            )
        if not token.isascii() or not token.isprintable():
            raise PatternProcessorError("a token must be printable ASCII characters")
        self._url, self._token = url.rstrip("/"), token

    def status(self) -> Status:
        """:raises PatternProcessorError: the status cannot be read"""
        text, _ = self._send("GET", "/status")
        try:
            return Status.from_bytes(text)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            reason = printable(f"{type(error).__name__}: {error}"[:MAX_REASON])
            raise RuleSourceError(f"{self.shown} does not return the status of a query", reason) from None

    def get_set(self) -> tuple[bytes, str | None]:
        """:raises PatternProcessorError: the set, or its ETag, cannot be read"""
        text, headers = self._send("GET", "/processors")
        return text, headers["ETag"]

    def put_set(self, text: bytes, tag: str | None) -> None:
        """:param tag: the ETag of the set on which the new one is based; None: any. An error means that it was not replaced."""
        condition = {} if tag is None else {"If-Match": tag}
        self._send("PUT", "/processors", text, {"Content-Type": "application/json", **condition})

    def _send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[bytes, HTTPMessage]:
        given = {"Authorization": f"Bearer {self._token}", **headers}
        return _Client(self.shown + path).send(urllib.request.Request(self._url + path, body, given, method=method))


class _Client:
    """Sends requests, with limits for the time and the size of responses. *shown*: the address, for messages."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self._deadline = Deadline(TIMEOUT)
        self._opener = _opener(self._deadline)

    def send(self, request: urllib.request.Request) -> tuple[bytes, HTTPMessage]:
        """Return the body and the headers of the response.

        :raises PatternProcessorError: there is none, or it has another status
        :raises NotModifiedError: the status is 304
        """
        self._deadline.begin(TOTAL_TIMEOUT)
        try:
            with self._opener.open(request) as response:
                if response.status != 200:
                    raise _ResponseError(f"it returned {response.status}")
                return _body_of(response), response.headers
        except HTTPError as error:
            given = _reason_in(error)
            error.close()
            if error.code == 304:
                raise NotModifiedError from None
            reason: object = f"it returned {error.code} {error.reason}{given}"
        except (OSError, HTTPException, ValueError, _ResponseError) as error:
            reason = error.reason if isinstance(error, URLError) else error
        # Most of the text comes from the server.
        text = one_line(str(reason) or type(reason).__name__, MAX_REASON)
        verb = "read" if request.get_method() == "GET" else "changed"
        raise RuleSourceError(f"{self.shown} cannot be {verb}", text)


class _ResponseError(Exception):
    """The response cannot be used."""


def _body_of(response: Any) -> bytes:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise _ResponseError("the response is compressed")
    text = bytearray()
    while chunk := response.read1(_CHUNK):
        text += chunk
        if len(text) > MAX_BYTES:
            raise _ResponseError(f"the response is too large (limit {MAX_BYTES:,} bytes)")
    if response.length:
        raise _ResponseError("the response is incomplete")
    return bytes(text)


class NotModifiedError(Exception):
    """The document has not changed."""


def _reason_in(error: HTTPError) -> str:
    """The message in the JSON body of an endpoint's response, if it has one."""
    try:
        message = json.loads(error.read1(_CHUNK))["error"]["message"]
    except (OSError, HTTPException, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ""
    return f": {message}" if isinstance(message, str) else ""


class UrlDiscoverer(PollingDiscoverer):
    """See :class:`UrlPatternProcessorDiscovererFactory`."""

    def __init__(self, url: str, headers: Mapping[str, str], interval: timedelta) -> None:
        super().__init__(interval=interval)
        self.url, self.headers = url, dict(headers)
        self.shown = _shown(urlsplit(url))
        self._known: dict[str, str] = {}
        """The headers with which the next request identifies the current document."""
        self._digest: bytes | None = None
        self._items = Items()
        self._client = _Client(self.shown)

    def poll(self) -> Sequence[Discovered] | None:
        try:
            text, headers = self._client.send(urllib.request.Request(self.url, headers={**self.headers, **self._known}))
        except NotModifiedError:
            if self._known:
                return None
            raise RuleSourceError(f"{self.shown} cannot be read", "it returned 304 Not Modified") from None
        digest = hashlib.sha256(text).digest()
        processors = None
        if digest != self._digest:
            yaml = urlsplit(self.url).path.endswith(YAML) or "yaml" in headers.get_content_type()
            with located(self.shown):
                document = read_document(text, "set.yaml" if yaml else "set.json")
            processors = self._items.processors(document.items, self.shown)
        self._digest = digest
        self._known = {
            request_header: headers[given]
            for request_header, given in (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
            if headers[given]
        }
        return processors


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to other web servers, but never from HTTPS to HTTP, and without the headers for the first server."""

    max_redirections = MAX_REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        fp.close()  # the body is not read, whatever its size
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if after.scheme not in SCHEMES or (before.scheme == "https" and after.scheme != "https"):
            raise RuleSourceError(
                f"{one_line(_shown(before), MAX_REASON)} redirects from {before.scheme} to {after.scheme:.20}"
            )
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and before[:2] != after[:2]:
            new.headers = {}
        return new


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        kind = http.client.HTTPSConnection if req.type == "https" else http.client.HTTPConnection
        req.timeout = self._deadline.wait()
        return self.do_open(partial(_connection, kind, self._deadline), req)

    https_open = http_open


def _connection(
    kind: type[http.client.HTTPConnection], deadline: Deadline, host: str, **options: Any
) -> http.client.HTTPConnection:
    """Create a connection that reads the whole response, from the first line on, until the deadline."""

    class Response(http.client.HTTPResponse):
        fp: io.BufferedReader

        def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
            super().__init__(sock, *arguments, **options)
            self.fp = deadline.watch(self.fp, sock)

    made = kind(host, **options)
    made.response_class = Response
    return made


def _opener(deadline: Deadline) -> urllib.request.OpenerDirector:
    """An opener for HTTP and HTTPS only, since the default opener also opens files."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Handler(deadline),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener
