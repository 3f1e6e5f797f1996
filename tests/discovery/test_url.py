"""A remote document: what is special about it, with a real server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from asterism.discovery import UrlPatternProcessorDiscovererFactory
from asterism.discovery.sources import url as module
from asterism.errors import PatternProcessorError
from tests.discovery.kit import INTERVAL, graph, rule, versions
from tests.discovery.places import UrlPlace
from tests.kit import SOON

SECRET = "swordfish-0123456789"
RULES = json.dumps([rule("a")]).encode()
Answer = Callable[[BaseHTTPRequestHandler], None]


class Web:
    """A server with prepared responses, which records the headers of each request."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.requests.append((self.path, dict(self.headers.items())))
                web.answers[self.path](self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.close()


def answer(status: int, text: bytes = b"", **headers: str) -> Answer:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        given = {"Content-Length": str(len(text))} | {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in given.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text)

    return send


def discoverer(url: str) -> module.UrlDiscoverer:
    factory = UrlPatternProcessorDiscovererFactory(
        url, headers={"Authorization": f"Bearer {SECRET}"}, interval=INTERVAL
    )
    made = factory.create_pattern_processor_discoverer()
    assert isinstance(made, module.UrlDiscoverer)
    return made


def test_what_has_not_changed_is_not_sent_again() -> None:
    place = UrlPlace()
    place.write([rule("a")])
    one = place.factory().create_pattern_processor_discoverer()
    assert isinstance(one, module.UrlDiscoverer)
    assert versions(one.initial_pattern_processors()) == {"a": 1}
    assert one.poll() is None
    place.write([rule("a", 2)])
    assert versions(one.poll() or []) == {"a": 2}
    assert one.poll() is None
    assert place.statuses == [200, 304, 200, 304]
    place.close()


def test_a_date_is_asked_for_where_there_is_no_tag(web: Web) -> None:
    web.answers["/rules.json"] = answer(200, RULES, Last_Modified="Sat, 31 Jan 2026 12:00:00 GMT")
    one = discoverer(f"{web.address}/rules.json")
    one.initial_pattern_processors()
    assert one.poll() is None  # the same bytes
    assert web.requests[1][1]["If-Modified-Since"] == "Sat, 31 Jan 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/rules.yaml", "text/plain"), ("/rules.yml", ""), ("/rules", "application/yaml"), ("/r", "text/x-yaml")],
)
def test_yaml_is_known_by_its_name_or_media_type(web: Web, path: str, kind: str) -> None:
    web.answers[path] = answer(
        200, b"- id: a\n  version: 1\n  pattern: " + json.dumps(graph()).encode(), Content_Type=kind
    )
    assert versions(discoverer(web.address + path).initial_pattern_processors()) == {"a": 1}


def test_a_redirect_is_followed_with_its_headers_on_the_same_server(web: Web) -> None:
    web.answers["/rules.json"] = answer(302, Location="/new.json")
    web.answers["/new.json"] = answer(200, RULES)
    assert versions(discoverer(f"{web.address}/rules.json").initial_pattern_processors()) == {"a": 1}
    assert web.requests[1][1]["Authorization"] == f"Bearer {SECRET}"


def test_a_redirect_to_another_server_takes_no_secret_with_it(web: Web) -> None:
    other = Web()
    web.answers["/rules.json"] = answer(302, Location=f"{other.address}/rules.json")
    other.answers["/rules.json"] = answer(200, RULES)
    assert versions(discoverer(f"{web.address}/rules.json").initial_pattern_processors()) == {"a": 1}
    assert SECRET not in str(other.requests)
    other.close()


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/rules", "data:,[]", "gopher://127.0.0.1/"])
def test_a_redirect_to_another_scheme_is_refused(web: Web, location: str) -> None:
    web.answers["/rules.json"] = answer(302, Location=location)
    with pytest.raises(PatternProcessorError):
        discoverer(f"{web.address}/rules.json").initial_pattern_processors()


def test_a_redirect_from_https_to_http_is_refused() -> None:
    redirects = module._Redirects()
    request = module.urllib.request.Request("https://example.com/rules.json")
    closed = []

    class Answered:
        def close(self) -> None:
            closed.append(True)

    with pytest.raises(PatternProcessorError, match="redirects from https to http"):
        redirects.redirect_request(request, Answered(), 302, "", None, "http://example.com/rules.json")  # type: ignore[arg-type]
    assert closed == [True]


def test_redirects_in_a_circle_end(web: Web) -> None:
    web.answers["/a"] = answer(302, Location="/b")
    web.answers["/b"] = answer(302, Location="/a")
    with pytest.raises(PatternProcessorError, match="cannot be read"):
        discoverer(f"{web.address}/a").initial_pattern_processors()
    assert len(web.requests) < 12


def cut_off(handler: BaseHTTPRequestHandler) -> None:
    answer(200, RULES[:20], Content_Length="1000")(handler)


def garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\xff garbage\r\n\r\n")


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (answer(404), "it returned 404"),
        (answer(500), "it returned 500"),
        (answer(304), "it returned 304"),
        (answer(204), "it returned 204"),
        (answer(206, RULES), "it returned 206"),
        (answer(200, RULES, Content_Encoding="gzip"), "the response is compressed"),
        (answer(200, b""), "the JSON is empty"),
        (answer(200, b"<html>"), "invalid JSON"),
        (answer(200, b"5"), "this is not a list of processors"),
        (answer(200, b"x" * 2000), "the response is too large"),
        (cut_off, "the response is incomplete"),
        (garbage, "cannot be read"),
        (hang_up, "cannot be read"),
    ],
)
def test_a_wrong_answer_is_a_failure_that_passes(
    web: Web, wrong: Answer, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    web.answers["/rules.json"] = wrong
    one = discoverer(f"{web.address}/rules.json")
    with pytest.raises(PatternProcessorError) as error:
        one.initial_pattern_processors()
    assert reason in str(error.value)
    assert SECRET not in str(error.value)
    web.answers["/rules.json"] = answer(200, RULES, ETag='"1"')
    assert versions(one.initial_pattern_processors()) == {"a": 1}
    web.answers["/rules.json"] = wrong
    if reason != "it returned 304":
        with pytest.raises(PatternProcessorError):
            one.poll()
    web.answers["/rules.json"] = answer(200, RULES)
    assert one.poll() is None


@pytest.mark.parametrize("path", ["/rules.json", "/moved.json"])
def test_slow_headers_end(web: Web, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """However often a byte comes, and however many redirects there were before."""
    ended = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not ended.wait(0.05):
            handler.wfile.write(b"x")

    monkeypatch.setattr(module, "TOTAL_TIMEOUT", 0.3)
    web.answers["/rules.json"] = drip
    web.answers["/moved.json"] = answer(302, Location="/rules.json")
    with pytest.raises(PatternProcessorError, match=r"no complete response after 0\.3 seconds"):
        discoverer(web.address + path).initial_pattern_processors()
    ended.set()


def test_what_a_redirect_says_besides_is_not_read(web: Web) -> None:
    ended = threading.Event()

    def redirect(handler: BaseHTTPRequestHandler) -> None:
        answer(302, Location="/new.json", Content_Length="1000")(handler)
        ended.wait(SOON)  # the rest does not come

    web.answers["/rules.json"] = redirect
    web.answers["/new.json"] = answer(200, RULES)
    assert versions(discoverer(f"{web.address}/rules.json").initial_pattern_processors()) == {"a": 1}
    ended.set()


def test_the_words_of_a_server_are_printable_and_few(web: Web) -> None:
    def evil(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 500 evil\x1b[31m" + b"x" * 5000 + b"\r\n\r\n")

    def garbage(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"\x1b[31m" + b"x" * 5000 + b"\r\n\r\n")

    for wrong in (evil, garbage):
        web.answers["/rules.json"] = wrong
        with pytest.raises(PatternProcessorError, match="cannot be read") as error:
            discoverer(f"{web.address}/rules.json").initial_pattern_processors()
        assert str(error.value).replace("\n", "").isprintable()
        assert len(str(error.value)) < 300


def test_a_document_that_cannot_be_read_is_named(web: Web) -> None:
    web.answers[f"/rules.json?token={SECRET}"] = answer(200, b"nothing")
    with pytest.raises(PatternProcessorError) as error:
        discoverer(f"{web.address}/rules.json?token={SECRET}").initial_pattern_processors()
    assert error.value.message == f"{web.address}/rules.json?…: invalid JSON"


@pytest.mark.parametrize("interval", [5, None, timedelta(0), timedelta(seconds=-1)])
def test_an_interval_is_a_time(interval: Any) -> None:
    with pytest.raises(PatternProcessorError, match=r"an interval must be (a timedelta|positive)"):
        UrlPatternProcessorDiscovererFactory("https://example.com/", interval=interval)


def test_a_slow_answer_ends(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not ended.wait(0.05):
            handler.wfile.write(b" ")

    monkeypatch.setattr(module, "TOTAL_TIMEOUT", 0.3)
    web.answers["/drip"] = drip
    web.answers["/silence"] = lambda handler: ended.wait(SOON) and None
    with pytest.raises(PatternProcessorError, match="no complete response after"):
        discoverer(f"{web.address}/drip").initial_pattern_processors()
    monkeypatch.setattr(module, "TOTAL_TIMEOUT", SOON)
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    with pytest.raises(PatternProcessorError, match="timed out"):
        discoverer(f"{web.address}/silence").initial_pattern_processors()
    ended.set()


@pytest.mark.parametrize(
    "url",
    ["", "rules.json", "file:///etc/passwd", "ftp://example.com/rules", "http://", "https:///rules", "http://h:x/", "//h/rules",
     "http://h/a b", "http://h/\n", "http://h:99999/", "javascript:alert(1)", "http://hä/"],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(PatternProcessorError, match="this is not the URL of a web server"):
        UrlPatternProcessorDiscovererFactory(url)


def test_secrets_in_a_url_are_not_shown(web: Web) -> None:
    with pytest.raises(PatternProcessorError, match="can appear in logs") as refused:
        UrlPatternProcessorDiscovererFactory(f"https://user:{SECRET}@example.com/")
    assert SECRET not in str(refused.value)
    url = f"{web.address}/rules.json?token={SECRET}"
    web.answers[f"/rules.json?token={SECRET}"] = answer(403)
    with pytest.raises(PatternProcessorError) as error:
        discoverer(url).initial_pattern_processors()
    assert SECRET not in str(error.value) + repr(UrlPatternProcessorDiscovererFactory(url))


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X\n": "a"}, {"Ä": "b"}])
def test_headers_have_no_line_breaks(headers: dict[str, str]) -> None:
    with pytest.raises(PatternProcessorError):
        UrlPatternProcessorDiscovererFactory("https://example.com/", headers=headers)
