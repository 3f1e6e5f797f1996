"""The console that listens, and what a client sends it byte by byte."""

from __future__ import annotations

import json
import re
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from asterism.console.application import MAX_BODY, MAX_SAMPLING
from asterism.console.server import ConsoleServer
from asterism.console.worker import WorkerError
from asterism.http import server as http_server
from tests.console.kit import READER, WRITER, console, rule, token_file
from tests.kit import SOON, bounded, until

DEPTH = 80_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ConsoleServer]:
    (tmp_path / "rules.json").write_text(json.dumps([rule()]))
    with console(str(tmp_path / "rules.json"), tokens=token_file(tmp_path / "tokens.json")) as found:
        yield found


def connected(server: ConsoleServer) -> socket.socket:
    assert server.address is not None
    return socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2])), SOON)


def head(path: str, length: int, token: str = WRITER, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}"]
    lines += ["Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def answer_of(connection: socket.socket) -> tuple[int, Any]:
    found = b"".join(iter(lambda: connection.recv(65_536), b""))
    first, _, body = found.partition(b"\r\n\r\n")
    return int(first.split()[1]), json.loads(body)


def sent(server: ConsoleServer, request: bytes) -> tuple[int, Any]:
    with connected(server) as connection:
        connection.sendall(request)
        return answer_of(connection)


def test_a_slow_body_is_not_waited_for(server: ConsoleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(server) as slow, monkeypatch.context() as patch:
        patch.setattr(http_server, "TOTAL_TIMEOUT", 1)
        slow.sendall(head("/api/check", 1000))
        slow.settimeout(0.05)
        found = b""

        def is_answered() -> bool:
            nonlocal found
            with suppress(TimeoutError):
                if not found:
                    slow.sendall(b" ")
                found += slow.recv(65_536)
            return b"}" in found

        until(is_answered)
    assert found.startswith(b"HTTP/1.1 408 ")
    assert b"the body was not received in time" in found
    assert sent(server, head("/api/rules", 0, method="GET"))[0] == 200


def test_bodies_that_are_slow_are_few(server: ConsoleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_SERVED", 2)
    rules = head("/api/rules", 0, READER, "GET")
    with connected(server) as one, connected(server) as other:
        for slow in (one, other):
            slow.sendall(head("/api/check", 1000))
        until(lambda: sent(server, rules)[0] == 503)
    until(lambda: sent(server, rules)[0] == 200)


def test_a_client_that_has_gone_is_not_waited_for(server: ConsoleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Future[None] | None] = []

    def never(request: Any, *, gone: Future[None] | None = None, **options: Any) -> Any:
        waits.append(gone)
        assert gone is not None
        gone.result(SOON)
        raise WorkerError("nobody waits")

    monkeypatch.setattr(server.application.sampler, "ask", never)
    body = json.dumps({"text": json.dumps(rule()), "events": "ts,user,kind,price"}).encode()
    for number in range(MAX_SAMPLING + 2):  # more than may wait at the same time
        with connected(server) as connection:
            connection.sendall(head("/api/sample", len(body)) + body)
            until(lambda number=number: len(waits) > number)
        until(lambda: waits[-1] is not None and waits[-1].done())
    assert sent(server, head("/api/rules", 0, READER, "GET"))[0] == 200


def nested(kind: str) -> str:
    return "[" * DEPTH + "]" * DEPTH if kind == "list" else '{"a":' * DEPTH + "1" + "}" * DEPTH


IN_REQUEST: list[Callable[[str], tuple[str, str, str]]] = [
    lambda value: ("POST", "/api/check", f'{{"text": {value}}}'),
    lambda value: ("POST", "/api/check", json.dumps({"text": f'{{"id": "deep", "version": 1, "pattern": {value}}}'})),
    lambda value: ("POST", "/api/sample", json.dumps({"text": json.dumps(rule()), "events": value})),
    lambda value: ("PUT", "/processors/deep", f'{{"id": "deep", "version": 1, "pattern": {value}}}'),
    lambda value: ("PUT", "/processors", value),
]


@pytest.mark.parametrize("kind", ["list", "object"])
@pytest.mark.parametrize("request_of", IN_REQUEST)
def test_deep_nesting_is_refused(
    server: ConsoleServer, request_of: Callable[[str], tuple[str, str, str]], kind: str
) -> None:
    method, path, body = request_of(nested(kind))
    data = body.encode()
    assert len(data) <= MAX_BODY
    tracemalloc.start()
    try:
        with bounded():
            status, answer = sent(server, head(path, len(data), method=method) + data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert re.search("nested too deeply|exceeded maximum nesting depth", json.dumps(answer))
    assert status == 422 or path == "/api/check"
    assert peak < 100_000_000
    assert sent(server, head("/api/rules", 0, READER, "GET"))[0] == 200
