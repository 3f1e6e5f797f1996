"""The endpoint that takes processors over HTTP, on loopback."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from asterism.discovery import HttpPatternProcessorDiscovererFactory, UrlPatternProcessorDiscovererFactory
from asterism.discovery import http as module
from asterism.discovery.rule_set import RuleSet
from asterism.errors import PatternProcessorError
from tests.discovery.kit import INTERVAL, Manager, graph, refused, rule, travelled, until, versions, watching

TOKEN = "correct-horse-battery-staple"


class Client:
    """Asks an endpoint; answers are (status, JSON or text)."""

    def __init__(self, discoverer: module.HttpDiscoverer, context: ssl.SSLContext | None = None) -> None:
        until(lambda: discoverer.address is not None)
        assert discoverer.address is not None
        self.host, _, port = discoverer.address.rpartition("/")[2].rpartition(":")
        self.port, self.context = int(port), context

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        connection = (
            http.client.HTTPConnection(self.host, self.port, timeout=10)
            if self.context is None
            else http.client.HTTPSConnection(self.host, self.port, timeout=10, context=self.context)
        )
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if body is not None else {}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, data, given | {n.replace("_", "-"): v for n, v in headers.items()})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None, answer.headers
        finally:
            connection.close()

    def status(self, *arguments: Any, **options: Any) -> int:
        return self.ask(*arguments, **options)[0]

    def is_refused(self) -> bool:
        """Does the endpoint not talk to anybody more?"""
        try:
            self.status("GET", "/health")
        except (http.client.HTTPException, OSError):
            return True
        return False

    def raw(self, text: bytes) -> bytes:
        """What comes back for bytes as they are."""
        with socket.create_connection((self.host, self.port), 10) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))


def factory(folder: Path, **options: Any) -> HttpPatternProcessorDiscovererFactory:
    return HttpPatternProcessorDiscovererFactory(0, **{"token": TOKEN, "state": folder / "set.json", **options})


@contextmanager
def endpoint(folder: Path, **options: Any) -> Iterator[tuple[Client, Manager]]:
    discoverer = travelled(factory(folder, **options))
    assert isinstance(discoverer, module.HttpDiscoverer)
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        yield Client(discoverer), manager


def test_processors_are_put_and_removed(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, manager):
        assert client.ask("GET", "/processors")[:2] == (200, {"processors": []})
        assert client.ask("PUT", "/processors/a", rule("a"))[:2] == (201, {"id": "a", "version": 1})
        manager.wait_for({"a": 1})
        assert client.ask("PUT", "/processors/a", {"version": 2, "pattern": graph()})[:2] == (
            200,
            {"id": "a", "version": 2},
        )
        manager.wait_for({"a": 2})
        assert client.status("PUT", "/processors/b", rule("b")) == 201
        manager.wait_for({"a": 2, "b": 1})
        assert client.ask("GET", "/processors/a")[:2] == (200, rule("a", 2) | {"pattern": graph()})
        assert client.ask("GET", "/processors")[1] == {"processors": [rule("a", 2), rule("b")]}
        assert client.ask("DELETE", "/processors/a")[:2] == (204, None)
        manager.wait_for({"b": 1})
        assert client.status("DELETE", "/processors/a") == 404
        assert client.status("GET", "/processors/a") == 404
        assert client.status("PUT", "/processors/b", rule("b", enabled=False)) == 200
        manager.wait_for({})


def test_a_set_is_put_and_the_wrong_ones_in_it_are_refused_alone(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, manager):
        first = [rule("a"), rule("b"), rule("c")]
        assert client.ask("PUT", "/processors", first)[:2] == (
            200,
            {"accepted": ["a", "b", "c"], "removed": [], "refused": []},
        )
        manager.wait_for({"a": 1, "b": 1, "c": 1})
        status, told, _ = client.ask("PUT", "/processors", {"processors": [rule("a", 2), rule("b", -1), rule("d")]})
        assert (status, told["accepted"], told["removed"]) == (207, ["a", "d"], ["c"])
        [wrong] = told["refused"]
        assert (wrong["id"], wrong["version"]) == ("b", -1)
        assert wrong["message"].startswith("a version is an integer from 0")
        # The last good version stays.
        manager.wait_for({"a": 2, "b": 1, "d": 1})


def test_because_of_one_that_cannot_be_identified_none_is_removed(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, manager):
        client.ask("PUT", "/processors", [rule("a"), rule("b")])
        status, told, _ = client.ask("PUT", "/processors", [rule("a", 2), {"Id": "b"}])
        assert (status, told["removed"], told["refused"][0]["id"]) == (207, [], "#2")
        manager.wait_for({"a": 2, "b": 1})


def test_a_version_stays_what_it_is(tmp_path: Path) -> None:
    """What runs keeps it: an update that would have no effect is not taken."""
    with endpoint(tmp_path) as (client, _):
        assert client.status("PUT", "/processors/a", rule("a")) == 201
        assert client.status("PUT", "/processors/a", rule("a")) == 200
        status, told, _headers = client.ask("PUT", "/processors/a", rule("a", pattern=graph("price > 2")))
        assert (status, told["error"]["hint"]) == (409, "raise the version")
        status, told, _headers = client.ask("PUT", "/processors", [rule("a", key=["user"]), rule("b")])
        assert (status, told["accepted"], [one["id"] for one in told["refused"]]) == (207, ["b"], ["a"])
        assert client.ask("GET", "/processors/a")[1] == rule("a")


def test_a_restart_keeps_the_set(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, manager):
        client.ask("PUT", "/processors", [rule("a"), rule("b", 2), rule("c", enabled=False)])
        manager.wait_for({"a": 1, "b": 2})
    again = factory(tmp_path).create_pattern_processor_discoverer()
    assert versions(again.initial_pattern_processors()) == {"a": 1, "b": 2}
    with watching(again) as manager:
        client = Client(again)
        assert len(client.ask("GET", "/processors")[1]["processors"]) == 3
        assert manager.updates == []


def test_what_came_between_the_start_and_the_watch_is_not_lost(tmp_path: Path) -> None:
    discoverer = factory(tmp_path).create_pattern_processor_discoverer()
    discoverer.initial_pattern_processors()
    RuleSet(tmp_path / "set.json").put("a", rule("a"))
    with watching(discoverer) as manager:
        manager.wait_for({"a": 1})


def test_a_state_that_cannot_be_read_fails_the_start_and_is_not_overwritten(tmp_path: Path) -> None:
    state = tmp_path / "set.json"
    state.write_text('{"processors": [')
    discoverer = factory(tmp_path).create_pattern_processor_discoverer()
    with pytest.raises(PatternProcessorError, match="not JSON"):
        discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        manager.wait_for_failure()
        assert (discoverer.address, state.read_text()) == (None, '{"processors": [')
        state.write_text('{"processors": []}')
        manager.wait_for({})


def test_a_processor_in_the_state_that_cannot_be_used_is_refused_alone(tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text(json.dumps([rule("a"), rule("b", -1)]))
    found = factory(tmp_path).create_pattern_processor_discoverer().initial_pattern_processors()
    assert (versions(found), [one.id for one in refused(found)]) == ({"a": 1}, ["b"])


def test_a_state_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint(tmp_path / "sub") as (client, manager):
        status, told, _ = client.ask("PUT", "/processors/a", rule("a"))
        assert (status, "cannot be written" in told["error"]["message"]) == (500, True)
        assert client.ask("GET", "/processors")[1] == {"processors": []}
        assert manager.updates == []


def test_a_port_that_is_taken_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", timedelta(milliseconds=50))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        discoverer = HttpPatternProcessorDiscovererFactory(
            port, token=TOKEN, state=tmp_path / "set.json"
        ).create_pattern_processor_discoverer()
        discoverer.initial_pattern_processors()
        with watching(discoverer) as manager:
            assert f"cannot listen on 127.0.0.1:{port}" in str(manager.wait_for_failure())
            taken.close()
            assert Client(discoverer).status("GET", "/health") == 200


def test_health_tells_what_is_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", timedelta(milliseconds=200))
    with endpoint(tmp_path) as (client, manager):
        assert client.ask("GET", "/health")[:2] == (200, {"status": "ok", "processors": 0, "in_force": {}})
        manager.refuses_next = True
        client.ask("PUT", "/processors/a", rule("a"))
        manager.wait(lambda: manager.failures)
        assert client.ask("GET", "/health")[:2] == (
            503,
            {"status": "interrupted", "processors": 1, "error": "the manager cannot take it", "in_force": {}},
        )
        manager.wait_for({"a": 1})
        assert client.ask("GET", "/health")[:2] == (200, {"status": "ok", "processors": 1, "in_force": {"a": 1}})


@pytest.mark.parametrize("id", ["a b", "a/b", "ä€", "%2F", "..", "?x", "#", "a+b", "'\""])
def test_any_id_can_stand_in_a_path(tmp_path: Path, id: str) -> None:
    with endpoint(tmp_path) as (client, manager):
        path = f"/processors/{quote(id, safe='')}"
        assert client.status("PUT", path, rule(id)) == 201
        manager.wait_for({id: 1})
        assert client.ask("GET", path)[1]["id"] == id
        assert client.status("DELETE", path) == 204
    assert [path.name for path in tmp_path.iterdir()] == ["set.json"]


# ---------------------------------------------------------------------- who may, and what


@pytest.mark.parametrize(
    "token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "correct-horse-battery-stapl\xe9"]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/processors"), ("PUT", "/processors/a"), ("DELETE", "/processors/a"), ("GET", "/health")],
)
def test_nothing_goes_without_the_token(tmp_path: Path, token: str | None, method: str, path: str) -> None:
    with endpoint(tmp_path) as (client, manager):
        status, told, headers = client.ask(method, path, rule("a") if method == "PUT" else None, token)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert TOKEN not in json.dumps(told)
        assert client.ask("GET", "/processors")[1] == {"processors": []}
        assert manager.updates == []


def test_other_schemes_are_no_token(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, _):
        assert client.status("GET", "/health", token=None, Authorization=f"Basic {TOKEN}") == 401
        assert client.status("GET", "/health", token=None, Authorization=f"bearer {TOKEN}") == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", None, 404), ("GET", "/processors/", None, 404), ("GET", "/processors/a/b", None, 404),
        ("GET", "/etc/passwd", None, 404), ("GET", "/processors?x=1", None, 404), ("GET", "/processors/%ff", None, 400),
        ("POST", "/processors", b"[]", 405), ("DELETE", "/processors", None, 405), ("PUT", "/health", b"[]", 405),
        ("PATCH", "/processors/a", b"{}", 405), ("OPTIONS", "/processors", None, 501), ("HEAD", "/processors", None, 501),
        ("PUT", "/processors/a", b"", 422), ("PUT", "/processors/a", b"{", 422), ("PUT", "/processors/a", b"[]", 422),
        ("PUT", "/processors/a", b"{}", 422), ("PUT", "/processors/a", b'{"id": "a"}', 422),
        ("PUT", "/processors/a", b'{"id": "a", "id": "a"}', 422), ("PUT", "/processors/a", b"\xff", 422),
        ("PUT", "/processors/b", json.dumps(rule("a")).encode(), 422),
        ("PUT", "/processors/a", json.dumps(rule("a", enabled="yes")).encode(), 422),
        ("PUT", "/processors/a", json.dumps(rule("a", pattern=graph() | {"nodes": 5})).encode(), 422),
        ("PUT", "/processors", b"{}", 422), ("PUT", "/processors", b"5", 422),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_and_changes_nothing(
    tmp_path: Path, method: str, path: str, body: bytes | None, status: int
) -> None:
    with endpoint(tmp_path) as (client, manager):
        answered, told, _ = client.ask(method, path, body)
        assert answered == status
        assert method == "HEAD" or told["error"]["message"]
        assert client.ask("GET", "/processors")[1] == {"processors": []}
        assert manager.updates == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/yaml"]
)
def test_other_media_types_are_refused(tmp_path: Path, kind: str) -> None:
    """A form in a browser cannot send JSON."""
    with endpoint(tmp_path) as (client, _):
        assert client.status("PUT", "/processors/a", rule("a"), Content_Type=kind) == 415
        assert client.status("PUT", "/processors/a", rule("a"), Content_Type="Application/JSON; charset=utf-8") == 201


def test_bodies_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    with endpoint(tmp_path) as (client, _):
        assert client.status("PUT", "/processors/a", b"x" * 1001) == 413
        assert client.status("PUT", "/processors/a", b"x" * 500_000) == 413
        # What the client says it will send, it need not send.
        head = f"PUT /processors/a HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        assert b" 413 " in client.raw(f"{head}Content-Length: 99999999999\r\n\r\n".encode())


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["Content-Length: 10", "Content-Length: 20"], 400),
        (["Content-Length: -1"], 400),
        (["Content-Length: 1e3"], 400),
        (["Content-Length: " + "9" * 30], 400),
        (["Transfer-Encoding: chunked"], 411),
        (["Content-Length: 4", "Transfer-Encoding: chunked"], 411),
        ([], 411),
        (["Content-Length: 100"], 400),  # and the connection ends
        (["X: " + "y" * 100_000], 431),
        ([f"X{n}: y" for n in range(200)], 431),
    ],
)
def test_requests_that_could_be_read_in_two_ways_are_refused(tmp_path: Path, lines: list[str], status: int) -> None:
    with endpoint(tmp_path) as (client, _):
        head = ["PUT /processors HTTP/1.1", f"Authorization: Bearer {TOKEN}", "Content-Type: application/json", *lines]
        answer = client.raw("\r\n".join([*head, "", "[]\r\n"]).encode())
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert answer.count(b"HTTP/1.1") == 1
        assert client.ask("GET", "/processors")[1] == {"processors": []}


def test_a_body_is_asked_for_only_if_it_is_wanted(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, _):
        for token, begin in ((TOKEN, b"HTTP/1.1 100 "), ("wrong", b"HTTP/1.1 401 ")):
            head = f"PUT /processors HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            answer = client.raw(f"{head}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n[]".encode())
            assert answer.startswith(begin)


def test_who_says_nothing_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    monkeypatch.setattr(module._Handler, "timeout", 0.2)
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    with endpoint(tmp_path) as (client, _):
        silent = [socket.create_connection((client.host, client.port), 10) for _ in range(2)]
        for one in silent:
            assert one.recv(100) == b""  # closed
            one.close()
        assert client.status("GET", "/health") == 200


def test_connections_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    with endpoint(tmp_path) as (client, _):
        silent = [socket.create_connection((client.host, client.port), 10) for _ in range(2)]
        until(client.is_refused)
        for one in silent:
            one.close()
        until(lambda: not client.is_refused())
        assert client.status("GET", "/health") == 200


def test_requests_at_once_lose_nothing(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, manager):
        threads = [
            threading.Thread(target=lambda n=n: client.ask("PUT", f"/processors/r{n}", rule(f"r{n}")))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        manager.wait_for({f"r{n}": 1 for n in range(20)})
        assert len(RuleSet(tmp_path / "set.json")) == 20


def test_nothing_secret_is_logged_or_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with endpoint(tmp_path) as (client, _):
        client.ask("PUT", "/processors/a", rule("a"))
        client.ask("PUT", "/processors", [rule("b", -1)])
        client.ask("GET", "/processors/%1b%5b2J")
        client.raw(b"GET /\x1b[2J HTTP/1.1\r\n\r\n")
    assert "listening for pattern processors on http://127.0.0.1:" in caplog.text
    assert "refused: b version -1: a version is an integer" in caplog.text
    shown = caplog.text + repr(factory(tmp_path)) + repr(vars(factory(tmp_path).create_pattern_processor_discoverer()))
    assert TOKEN not in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    "token", ["", "short", "with spaces in between", "ümlaut-ümlaut-ümlaut", "line\nbreak-line-break"]
)
def test_weak_tokens_are_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(PatternProcessorError, match="the token must have at least 16"):
        factory(tmp_path, token=token)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "rules.example.com", "::", ""])
def test_the_token_does_not_travel_in_clear(tmp_path: Path, host: str) -> None:
    with pytest.raises(PatternProcessorError, match="would travel in clear"):
        factory(tmp_path, host=host)


# ---------------------------------------------------------------------- HTTPS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    chain, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", key, "-out", chain], check=True, capture_output=True)
    return chain, key


def test_it_speaks_https_with_a_certificate(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    chain, key = certificate
    made = factory(tmp_path, certificate=chain, private_key=key)
    assert repr(made).startswith("HttpPatternProcessorDiscovererFactory('https://127.0.0.1:0'")
    discoverer = made.create_pattern_processor_discoverer()
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        client = Client(discoverer, ssl.create_default_context(cafile=chain))
        # Who does not shake hands holds up nobody.
        with socket.create_connection((client.host, client.port)):
            assert client.status("PUT", "/processors/a", rule("a")) == 201
        with suppress(OSError):
            assert client.raw(b"GET /processors HTTP/1.1\r\n\r\n")[:4] != b"HTTP"
        manager.wait_for({"a": 1})
        assert client.status("GET", "/health", token="wrong") == 401


def test_a_certificate_that_cannot_be_used_interrupts(tmp_path: Path) -> None:
    with endpoint_that_fails(tmp_path, certificate=tmp_path / "none.pem") as manager:
        assert "none.pem cannot be used" in str(manager.wait_for_failure())


@contextmanager
def endpoint_that_fails(folder: Path, **options: Any) -> Iterator[Manager]:
    discoverer = factory(folder, **options).create_pattern_processor_discoverer()
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        yield manager


def test_it_listens_on_ipv6(tmp_path: Path) -> None:
    with endpoint(tmp_path, host="::1") as (client, _):
        client.host = "::1"
        assert client.status("GET", "/health") == 200


def test_one_endpoint_can_be_asked_by_another_query(tmp_path: Path) -> None:
    """Its set is in the format of rule files, with an ETag."""
    with endpoint(tmp_path) as (client, _):
        client.ask("PUT", "/processors/a", rule("a"))
        headers = client.ask("GET", "/processors")[2]
        assert client.ask("GET", "/processors", If_None_Match=headers["ETag"])[:2] == (304, None)
        url = f"http://127.0.0.1:{client.port}/processors"
        asking = UrlPatternProcessorDiscovererFactory(
            url, headers={"Authorization": f"Bearer {TOKEN}"}, interval=INTERVAL
        ).create_pattern_processor_discoverer()
        assert versions(asking.initial_pattern_processors()) == {"a": 1}
        with watching(asking) as manager:
            client.ask("PUT", "/processors/a", rule("a", 2))
            manager.wait_for({"a": 2})
