"""The endpoint that takes processors over HTTP, on loopback."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism.columns.time import TimeColumn
from asterism.discovery import HttpPatternProcessorDiscovererFactory, UrlPatternProcessorDiscovererFactory
from asterism.discovery.rest import application as rest
from asterism.discovery.rest import endpoint as module
from asterism.discovery.rest import rule_file as rule_set
from asterism.discovery.rest.prometheus import CONTENT_TYPE
from asterism.discovery.rest.rule_file import StoredRuleFile
from asterism.discovery.sources.url import Endpoint
from asterism.errors import MissingPackageError, PatternProcessorError
from asterism.http import server
from asterism.http.access import Access
from asterism.http.application import Application
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets.rule_counts import RuleCounts, error_metric, metric
from asterism.rules.sets.set_store import FolderStore
from tests.discovery.kit import (
    INTERVAL,
    Manager,
    graph,
    put,
    put_all,
    refused,
    rule,
    travelled,
    versions,
    watching,
)
from tests.kit import SOON, until

TOKEN = "correct-horse-battery-staple"


class Client:
    """Asks an endpoint; answers are (status, JSON or text)."""

    def __init__(self, discoverer: module.HttpDiscoverer, context: ssl.SSLContext | None = None) -> None:
        until(lambda: discoverer.address is not None)
        assert discoverer.address is not None
        self.address = discoverer.address
        self.host, _, port = discoverer.address.rpartition("/")[2].rpartition(":")
        self.port, self.context = int(port), context

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        connection = (
            http.client.HTTPConnection(self.host, self.port, timeout=SOON)
            if self.context is None
            else http.client.HTTPSConnection(self.host, self.port, timeout=SOON, context=self.context)
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

    def health(self) -> int:
        """The status; 0, if the connection breaks."""
        try:
            return self.status("GET", "/health")
        except (http.client.HTTPException, OSError):
            return 0

    def connected(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), 10)

    def raw(self, text: bytes) -> bytes:
        """What comes back for bytes as they are."""
        with self.connected() as connection:
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
        done = ["a version 1 added"]
        assert client.ask("PUT", "/processors/a", rule("a"))[:2] == (201, {"id": "a", "version": 1, "done": done})
        manager.wait_for({"a": 1})
        assert client.status("PUT", "/processors/a", {"version": 2, "pattern": graph()}) == 200
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


def test_an_error_of_our_own_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint(tmp_path) as (client, manager):
        manager.wait_for_polls(1)  # the endpoint itself reads the set, and would end
        monkeypatch.setattr(StoredRuleFile, "rule_set", lambda self: 1 / 0)
        status, body, headers = client.ask("GET", "/processors/a")
        assert (status, body["error"]["message"]) == (500, "the request failed because of an internal error")
        assert headers["X-Content-Type-Options"] == "nosniff"


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
    put(StoredRuleFile(tmp_path / "set.json"), rule("a"))
    with watching(discoverer) as manager:
        manager.wait_for({"a": 1})


def test_a_state_that_cannot_be_read_fails_the_start_and_is_not_overwritten(tmp_path: Path) -> None:
    state = tmp_path / "set.json"
    state.write_text('{"processors": [')
    discoverer = factory(tmp_path).create_pattern_processor_discoverer()
    with pytest.raises(PatternProcessorError, match=r"set\.json: invalid JSON"):
        discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        assert str(state) in str(manager.wait_for_failure())
        assert (discoverer.address, state.read_text()) == (None, '{"processors": [')
        state.write_text('{"processors": []}')
        manager.wait_for({})


def test_a_processor_in_the_state_that_cannot_be_used_is_refused_alone(tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text(json.dumps([rule("a"), rule("b", -1)]))
    found = factory(tmp_path).create_pattern_processor_discoverer().initial_pattern_processors()
    assert (versions(found), [one.id for one in refused(found)]) == ({"a": 1}, ["b"])


def test_a_state_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint(tmp_path / "sub") as (client, manager):
        status, body, _ = client.ask("PUT", "/processors/a", rule("a"))
        assert (status, "cannot be written" in body["error"]["message"]) == (500, True)
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
        assert client.ask("GET", "/health")[:2] == (200, {"status": "ok", "processors": 0})
        manager.refuses_next = True
        client.ask("PUT", "/processors/a", rule("a"))
        manager.wait(lambda: manager.failures)
        assert client.ask("GET", "/health")[:2] == (
            503,
            {"status": "interrupted", "processors": 1, "error": "the manager cannot take it"},
        )
        manager.wait_for({"a": 1})
        assert client.ask("GET", "/health")[:2] == (200, {"status": "ok", "processors": 1})


def test_many_that_are_refused_are_few_lines_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "MAX_LOGGED", 3)
    with endpoint(tmp_path) as (client, _):
        status, body, _ = client.ask("PUT", "/processors", [rule("a"), *[{"id": "b"}] * 100])
        assert (status, len(body["refused"])) == (422, 100)
        assert client.ask("GET", "/processors")[1] == {"processors": []}
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert (len(logged), logged[-1]) == (4, "refused: 97 more, listed in the response")


def test_health_tells_what_the_query_has_refused(tmp_path: Path) -> None:
    made = factory(tmp_path)
    discoverer = made.create_pattern_processor_discoverer()
    made.create_pattern_processor_discoverer = lambda: discoverer  # type: ignore[method-assign]
    schema = pa.schema([("price", pa.float64())])
    compiler = ProcessorCompiler(schema, (), TimeColumn("ts", pa.timestamp("us", "UTC")), Semantics.DEFAULT, {})
    coordinator = Coordinator(compiler, FolderStore(str(tmp_path / "sets")))
    coordinator.start(made)
    try:
        client = Client(discoverer)
        assert client.ask("GET", "/health")[1]["refused"] == {}
        status, body, _ = client.ask("PUT", "/processors/b", rule("b", key=["client"]))
        assert (status, body["error"]["message"]) == (422, "key: unknown column 'client'")
        assert client.status("PUT", "/processors", [rule("a"), rule("b", function="unknown")]) == 200
        until(lambda: coordinator.status.refused)
        body = client.ask("GET", "/health")[1]
        assert (body["status"], body["in_force"], body["pending"]) == ("ok", {}, {"a": 1})
        assert list(body["refused"]) == ["b"]
        assert "the function 'unknown' is not known" in body["refused"]["b"]
        coordinator.planned(coordinator.version, 0)
        name = ("a", 1, coordinator.version)
        counts = RuleCounts()
        counts.add("q", 0, [{metric("matches", name): 3, error_metric(name, "no"): 1}])
        coordinator.store.write_counts(counts)
        body = client.ask("GET", "/health")[1]
        assert (body["in_force"], body["disabled"], body["pending"]) == ({"a": 1}, {"a": "no"}, {})
        assert body["shadow"] == {}
        status = Endpoint(str(discoverer.address), TOKEN).status()
        assert [(rule.id, rule.state, rule.matches) for rule in status.rules] == [
            ("a", "disabled", 3),
            ("b", "refused", 0),
        ]
        with pytest.raises(PatternProcessorError, match="401"):
            Endpoint(str(discoverer.address), "not the token").status()
        request = urllib.request.Request(f"{discoverer.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request) as response:
            assert response.headers.get_all("Content-Type") == [CONTENT_TYPE]
            assert b'asterism_rule_matches_total{rule="a",version="1"} 3.0\n' in response.read()
    finally:
        coordinator.close()
        until(lambda: discoverer.address is None)


def test_sql_that_some_query_could_take_is_taken(tmp_path: Path) -> None:
    """The endpoint does not know which columns there are, and of which types."""
    until = {"properties": ["LOOPING"], "untilCondition": {"type": "SQL", "expression": "address.city = a.city"}}
    node = {"name": "a", "type": "ATOMIC", "quantifier": until}
    inner = {"name": "g", "quantifier": {"properties": ["SINGLE"]}, "type": "COMPOSITE", "nodes": [node]}
    fields = {
        "key": ["address.city", "LOWER(country)"],
        "select": ["LAST(a.address.city) AS city", "COUNT(a.*)", "address.zip.code"],
        "pattern": {"type": "COMPOSITE", "nodes": [inner]},
    }
    rules = StoredRuleFile(tmp_path / "set.json")
    assert put(rules, rule("a", **fields)) == ["a version 1 added"]
    assert versions(StoredRuleFile(tmp_path / "set.json").processors()) == {"a": 1}


def test_what_stays_as_it_is_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    original = rule_set.checked_processors
    monkeypatch.setattr(
        rule_set,
        "checked_processors",
        lambda item, *columns: checked.append(item["version"]) or original(item, *columns),
    )
    rules = StoredRuleFile(tmp_path / "set.json")
    put_all(rules, [rule("a"), rule("b")])
    put(rules, rule("b"))
    assert checked == [1, 1]
    put_all(rules, [rule("a", 3), rule("b")])
    assert checked == [1, 1, 3]
    assert versions(rules.processors()) == {"a": 3, "b": 1}


# ---------------------------------------------------------------------- clients at once


def test_of_two_changes_at_once_one_is_made(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, _):
        client.ask("PUT", "/processors/a", rule("a"))
        tag = client.ask("GET", "/processors/a")[2]["ETag"]
        found: list[int] = []
        threads = [
            threading.Thread(
                target=lambda n=n: found.append(
                    client.status("PUT", "/processors/a", rule("a", n, key=[f"k{n}"]), If_Match=tag)
                )
            )
            for n in range(2, 8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [200, 412, 412, 412, 412, 412]


# ---------------------------------------------------------------------- how much


def test_what_is_taken_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small ones add up."""
    with endpoint(tmp_path) as (client, manager):
        assert client.status("PUT", "/processors", [rule(f"r{n}") for n in range(20)]) == 200
        size = (tmp_path / "set.json").stat().st_size
        monkeypatch.setattr(rule_set, "MAX_BYTES", size)
        status, body, _ = client.ask("PUT", "/processors/more", rule("more"))
        assert (status, body["error"]["message"].startswith("the set would be too large: ")) == (413, True)
        assert client.status("PUT", "/processors", [rule(f"r{n}") for n in range(21)]) == 413
        assert (tmp_path / "set.json").stat().st_size == size
        assert client.status("DELETE", "/processors/r0") == 204
        assert client.status("PUT", "/processors/r0", rule("r0")) == 201
        manager.wait(lambda: len(manager.last) == 20)
    assert len(StoredRuleFile(tmp_path / "set.json").rule_set()) == 20


def test_a_set_needs_no_more_room_than_it_was_sent_with(tmp_path: Path) -> None:
    rules = [rule(f"ä{n}", select=["LAST(a.price) AS price"]) for n in range(50)]
    put_all(StoredRuleFile(tmp_path / "set.json"), rules)
    text = (tmp_path / "set.json").read_bytes()
    assert len(text) < len(json.dumps(rules))
    assert len(text.splitlines()) == 52  # one each


def test_a_state_that_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "set.json"
    state.write_bytes(b" " * (rule_set.MAX_BYTES + 1))
    with pytest.raises(PatternProcessorError, match=r"set\.json: the JSON is too large"):
        StoredRuleFile(state)


def test_halves_of_surrogate_pairs_can_be_told_and_kept(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, _):
        half = rule("a", pattern=graph() | {"name": "\ud800"})
        status, body, _ = client.ask("PUT", "/processors", [rule("\ud800"), half])
        assert (status, body["refused"][0]["id"]) == (422, "\ud800")
        assert client.status("PUT", "/processors", [half]) == 200
    assert len(StoredRuleFile(tmp_path / "set.json").rule_set()) == 1


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
        status, body, headers = client.ask(method, path, rule("a") if method == "PUT" else None, token)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert TOKEN not in json.dumps(body)
        assert client.ask("GET", "/processors")[1] == {"processors": []}
        assert manager.updates == []


def test_other_schemes_are_no_token(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, _):
        assert client.status("GET", "/health", token=None, Authorization=f"Basic {TOKEN}") == 401
        assert client.status("GET", "/health", token=None, Authorization=f"bearer {TOKEN}") == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/yaml"]
)
def test_other_media_types_are_refused(tmp_path: Path, kind: str) -> None:
    """A form in a browser cannot send JSON."""
    with endpoint(tmp_path) as (client, _):
        assert client.status("PUT", "/processors/a", rule("a"), Content_Type=kind) == 415
        assert client.status("PUT", "/processors/a", rule("a"), Content_Type="Application/JSON; charset=utf-8") == 201


def test_bodies_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "MAX_BYTES", 1000)
    with endpoint(tmp_path) as (client, _):
        assert client.status("PUT", "/processors/a", b"x" * 1001) == 413
        assert client.status("PUT", "/processors/a", b"x" * 500_000) == 413
        # What the client says it will send, it need not send.
        head = f"PUT /processors/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
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
        ([f"X{n}: y" for n in range(20_000)], 431),
        (["Content-Length: 4", "Host: y"], 400),
    ],
)
def test_requests_that_could_be_read_in_two_ways_are_refused(tmp_path: Path, lines: list[str], status: int) -> None:
    with endpoint(tmp_path) as (client, _):
        head = [
            "PUT /processors HTTP/1.1",
            "Host: x",
            f"Authorization: Bearer {TOKEN}",
            "Content-Type: application/json",
            *lines,
        ]
        answer = client.raw("\r\n".join([*head, "", "[]\r\n"]).encode())
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert answer.count(b"HTTP/1.1") == 1
        assert client.ask("GET", "/processors")[1] == {"processors": []}


def test_a_body_is_asked_for_only_if_it_is_wanted(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, _):
        for token, begin in ((TOKEN, b"HTTP/1.1 100 "), ("wrong", b"HTTP/1.1 401 ")):
            head = f"PUT /processors HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            answer = client.raw(f"{head}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n[]".encode())
            assert answer.startswith(begin)


def test_who_says_nothing_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 0.2)
    with endpoint(tmp_path) as (client, _), client.connected() as silent:
        assert silent.recv(100) == b""  # closed


@pytest.mark.parametrize(
    "head", ["", "GET /health HTTP/1.1\r\n", "PUT /processors HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"]
)
def test_who_drips_without_the_token_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    """However often a byte comes: there is time for the whole."""
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 0.2)
    with endpoint(tmp_path) as (client, _), client.connected() as slow:
        slow.sendall(head.encode())
        until(lambda: drips_in_vain(slow))


def test_who_drips_with_the_token_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 1000)
    monkeypatch.setattr(server, "TOTAL_TIMEOUT", 0.2)
    with endpoint(tmp_path) as (client, _), client.connected() as slow:
        head = f"PUT /processors HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: 100000\r\n\r\n".encode())
        slow.setblocking(False)
        answer: list[bytes] = []

        def is_answered() -> bool:
            with suppress(BlockingIOError):
                answer.append(slow.recv(100))
            with suppress(OSError):
                slow.send(b" ")
            return bool(answer)

        until(is_answered)
        assert answer[0].startswith(b"HTTP/1.1 408 ")


def drips_in_vain(slow: socket.socket) -> bool:
    """Is a connection closed that still sends?"""
    slow.setblocking(False)
    try:
        slow.send(b"x")
        while slow.recv(100):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def connections(client: Client, number: int, begin: bytes = b"") -> Iterator[list[socket.socket]]:
    """That stay, and have sent so much; some may be closed on the other side already."""
    with ExitStack() as stack:
        found = [stack.enter_context(client.connected()) for _ in range(number)]
        for one in found:
            with suppress(OSError):
                one.sendall(begin)
        yield found


def test_who_has_the_token_is_told_where_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_SERVED", 2)
    head = f"PUT /processors HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n"
    with endpoint(tmp_path) as (client, _):
        with connections(client, 2, f"{head}Content-Type: application/json\r\n\r\n[".encode()):
            until(lambda: client.health() == 503)
            assert client.ask("GET", "/health")[2]["Retry-After"] == "5"
        until(lambda: client.health() == 200)


WITHOUT_TOKEN = [b"", b"GET /health HT", b"PUT /processors HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n["]


@pytest.mark.parametrize("begin", WITHOUT_TOKEN)
def test_of_those_without_the_token_the_oldest_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(server, "MAX_WAITING", 5)
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 1000)
    with endpoint(tmp_path) as (client, _), connections(client, 50, begin) as held:
        assert client.status("PUT", "/processors/a", rule("a")) == 201
        until(lambda: sum(drips_in_vain(one) for one in held) >= 45)
        assert not drips_in_vain(held[-1]) or begin.startswith(b"PUT")  # who has shown a wrong head is told


def test_who_connects_all_the_time_keeps_nobody_out(tmp_path: Path) -> None:
    """Ever more connections, of which as many stay as there is room for."""
    ended = threading.Event()
    opened = 0
    with endpoint(tmp_path) as (client, _), connections(client, server.MAX_WAITING) as held:

        def attack() -> None:
            nonlocal opened
            while not ended.wait(0.001):
                held.pop(0).close()
                held.append(client.connected())
                opened += 1

        attacker = threading.Thread(target=attack)
        attacker.start()
        try:
            assert [client.status("GET", "/health") for _ in range(100)] == [200] * 100
            until(lambda: opened > 20)
        finally:
            ended.set()
            attacker.join()
            for one in held:
                one.close()


def test_who_does_not_take_the_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is larger than what the sockets hold."""
    monkeypatch.setattr(server, "MAX_SERVED", 1)
    (tmp_path / "set.json").write_text(json.dumps([rule("a", pattern="x" * 15_000_000)]))
    with endpoint(tmp_path) as (client, _), ExitStack() as stack:
        monkeypatch.setattr(server, "TOTAL_TIMEOUT", 0.5)

        def has_no_room() -> bool:
            """While another one is waited for: on a busy machine, the one before may be over already."""
            slow = stack.enter_context(client.connected())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(f"GET /processors HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            return client.health() == 503

        until(has_no_room)
        until(lambda: client.health() == 200)


def test_a_connection_is_closed_if_the_server_stops_before_it_is_served(tmp_path: Path) -> None:
    async def serve() -> socket.socket:
        handle = server.HttpServer(Application({}, Access(), {}), None)
        connected = asyncio.Event()

        def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            before = asyncio.all_tasks()
            handle(reader, writer)
            for task in asyncio.all_tasks() - before:
                task.cancel()  # as asyncio.run does at its end
            connected.set()

        async with await asyncio.start_server(connect, "127.0.0.1", 0) as listening:
            client = socket.create_connection(listening.sockets[0].getsockname(), timeout=SOON)
            await connected.wait()
        return client

    with asyncio.run(serve()) as client, suppress(ConnectionResetError):
        assert client.recv(1) == b""


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
        assert len(StoredRuleFile(tmp_path / "set.json").rule_set()) == 20


def test_nothing_secret_is_logged_or_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with endpoint(tmp_path) as (client, _):
        client.ask("PUT", "/processors/a", rule("a"))
        client.ask("PUT", "/processors", [rule("b", -1)])
        client.ask("GET", "/processors/%1b%5b2J")
        client.raw(b"GET /\x1b[2J HTTP/1.1\r\n\r\n")
    assert "listening for pattern processors on http://127.0.0.1:" in caplog.text
    assert "refused: b version -1: a version must be an integer" in caplog.text
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
    with pytest.raises(PatternProcessorError, match="would be sent unencrypted"):
        factory(tmp_path, host=host)


def test_without_h11_it_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'asterism\[http\]'"):
        factory(tmp_path)


@pytest.mark.parametrize("port", [-1, 65536, 70000, "8473", 80.0, True, None])
def test_there_must_be_such_a_port(tmp_path: Path, port: Any) -> None:
    with pytest.raises(PatternProcessorError, match="a port must be an integer from 0 to 65535"):
        HttpPatternProcessorDiscovererFactory(port, token=TOKEN, state=tmp_path / "set.json")


def test_a_key_without_its_certificate_is_refused(tmp_path: Path) -> None:
    """It would be plain HTTP, and who gave it does not think so."""
    with pytest.raises(PatternProcessorError, match="a private key, but no certificate"):
        factory(tmp_path, private_key=tmp_path / "key.pem")


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


def test_large_documents_travel_whole_over_https(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    chain, key = certificate
    large = [rule("a", pattern="x" * 5_000_000), rule("b")]
    with endpoint(tmp_path, certificate=chain, private_key=key) as (client, _):
        client.context = ssl.create_default_context(cafile=chain)
        status, body, _headers = client.ask("PUT", "/processors", large)
        assert (status, len(body["refused"])) == (422, 1)
        assert client.status("PUT", "/processors", b"x" * 500_000, token="wrong") == 401
    (tmp_path / "set.json").write_text(json.dumps(large))
    with endpoint(tmp_path, certificate=chain, private_key=key) as (client, _):
        client.context = ssl.create_default_context(cafile=chain)
        assert client.ask("GET", "/processors")[1] == {"processors": large}


def test_who_does_not_shake_hands_keeps_nobody_out(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_WAITING", 5)
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 1000)
    chain, key = certificate
    with (
        endpoint(tmp_path, certificate=chain, private_key=key) as (client, _),
        connections(client, 20, b"\x16\x03\x01") as held,
    ):
        client.context = ssl.create_default_context(cafile=chain)
        assert client.status("GET", "/health") == 200
        until(lambda: sum(drips_in_vain(one) for one in held) >= 15)


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
        source = UrlPatternProcessorDiscovererFactory(
            url, headers={"Authorization": f"Bearer {TOKEN}"}, interval=INTERVAL
        ).create_pattern_processor_discoverer()
        assert versions(source.initial_pattern_processors()) == {"a": 1}
        with watching(source) as manager:
            client.ask("PUT", "/processors/a", rule("a", 2))
            manager.wait_for({"a": 2})
