"""Pattern processors from a web server, which is asked again and again."""

from __future__ import annotations

import hashlib
import time
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit

from asterism.discovery.documents import MAX_BYTES, YAML, read_document
from asterism.discovery.polling import Items, PollingDiscoverer
from asterism.errors import PatternProcessorError
from asterism.processors import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
)

SCHEMES = ("http", "https")
TIMEOUT = 10  # seconds of silence
TOTAL_TIMEOUT = 60  # seconds for a whole answer
MAX_REDIRECTS = 5
_CHUNK = 65_536


class UrlPatternProcessorDiscovererFactory(PatternProcessorDiscovererFactory):
    """Asks a web server for a document with pattern processors; with its ETag or date, if it gives one.

    :param url: ``http`` or ``https``; the document is in YAML if the path ends in ``.yaml`` or ``.yml``, or its media type says
        so, otherwise in JSON
    :param headers: of every request, for example ``{"Authorization": "Bearer ..."}``; they are not sent on to other hosts
    :param interval: how often to ask; after a failure twice as long each time, up to a minute
    :raises PatternProcessorError: the URL is of another kind

    >>> UrlPatternProcessorDiscovererFactory("https://example.com/rules.json", headers={"Authorization": "Bearer secret"})
    UrlPatternProcessorDiscovererFactory('https://example.com/rules.json', headers=['Authorization'])
    """

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, interval: timedelta = timedelta(seconds=10)
    ) -> None:
        parts = _checked(url)
        self.url, self.headers, self.interval = url, dict(headers or {}), interval
        self._shown = _shown(parts)
        for name, value in self.headers.items():
            if not (name + value).isascii() or not (name + value).isprintable():
                raise PatternProcessorError(f"the header {name!r:.60} is not one line of ASCII characters")

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
            "a URL with a password ends up in logs", hint='headers={"Authorization": "Basic ..."}'
        )
    return parts


def _shown(parts: SplitResult) -> str:
    """Without the query, which may have a secret in it."""
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + ("?…" if parts.query else "")


class UrlDiscoverer(PollingDiscoverer):
    """See :class:`UrlPatternProcessorDiscovererFactory`."""

    def __init__(self, url: str, headers: Mapping[str, str], interval: timedelta) -> None:
        super().__init__(interval=interval)
        self.url, self.headers = url, dict(headers)
        self.shown = _shown(urlsplit(url))
        self._known: dict[str, str] = {}
        """What the next request says of the document that is here."""
        self._digest: bytes | None = None
        self._items = Items()
        self._opener = _opener()

    def poll(self) -> Sequence[Discovered] | None:
        request = urllib.request.Request(self.url, headers={**self.headers, **self._known})
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                text = self._read(response)
                headers = response.headers
        except HTTPError as error:
            with error:
                if error.code == 304 and self._known:
                    return None
                raise self._failure(f"it answers {error.code} {error.reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise self._failure(str(reason) or type(reason).__name__) from None
        digest = hashlib.sha256(text).digest()
        found = None
        if digest != self._digest:
            yaml = urlsplit(self.url).path.endswith(YAML) or "yaml" in headers.get_content_type()
            document = read_document(text, "set.yaml" if yaml else "set.json")
            found = self._items.processors(document.items, self.shown)
        self._digest = digest
        self._known = {
            asked: headers[given]
            for asked, given in (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
            if headers[given]
        }
        return found

    def _read(self, response: Any) -> bytes:
        if response.status != 200:
            raise self._failure(f"it answers {response.status}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise self._failure("the answer is compressed")
        until = time.monotonic() + TOTAL_TIMEOUT
        text = bytearray()
        while chunk := response.read1(_CHUNK):
            text += chunk
            if len(text) > MAX_BYTES:
                raise self._failure(f"the answer is too large (limit {MAX_BYTES} bytes)")
            if time.monotonic() > until:
                raise self._failure(f"the answer is not there after {TOTAL_TIMEOUT} seconds")
        if response.length:
            raise self._failure("the answer is cut off")
        return bytes(text)

    def _failure(self, reason: str) -> PatternProcessorError:
        return PatternProcessorError(f"{self.shown} cannot be read", reason)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """To another web server, but never from HTTPS to HTTP, and without the headers that are for the first."""

    max_redirections = MAX_REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if after.scheme not in SCHEMES or (before.scheme == "https" and after.scheme != "https"):
            fp.close()
            raise PatternProcessorError(f"{_shown(before)} leads from {before.scheme} to {after.scheme}")
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and before[:2] != after[:2]:
            new.headers = {}
        return new


def _opener() -> urllib.request.OpenerDirector:
    """For HTTP and HTTPS only; the usual one opens files, too."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
        _Redirects,
    ):
        opener.add_handler(handler())
    return opener
