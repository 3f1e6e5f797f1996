"""The web service of the examples, called as its server calls it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from examples.live_web_service import app


async def answer(method: str, path: str, body: Any = None) -> tuple[int, Any]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "app": app}
    await app(scope, receive, send)
    text = b"".join(each.get("body", b"") for each in sent[1:])
    return sent[0]["status"], text.decode() if path == "/metrics" else json.loads(text)


def event(second: int, kind: str) -> dict[str, Any]:
    return {"user": "ann", "ts": 1000 * second, "event": kind}


def test_attacks_over_two_runs_of_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTERISM_STATE", str(tmp_path))

    async def first() -> None:
        async with app.router.lifespan_context(app):
            found = [await answer("POST", "/logins", event(second, "failed")) for second in (1, 2)]
            assert found == [(200, {"attacks": []})] * 2
            status, refused = await answer("POST", "/logins", {"user": "ann", "ts": "noon", "event": "failed"})
            assert (status, bool(refused["error"])) == (400, True)

    async def second() -> None:
        async with app.router.lifespan_context(app):
            status, found = await answer("POST", "/logins", [event(3, "failed"), event(4, "accepted")])
            assert status == 200
            (attack,) = found["attacks"]
            assert (attack["user"], attack["failures"]) == ("ann", 3)
            _, progress = await answer("GET", "/progress")
            assert progress["numInputRows"] == 4
            _, metrics = await answer("GET", "/metrics")
            assert 'asterism_query_input_rows_total{query="logins"} 2.0' in metrics

    asyncio.run(first())
    asyncio.run(second())
