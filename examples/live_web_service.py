"""A web service that finds attacks in logins, without Spark: a live engine behind Starlette.

    pip install starlette uvicorn prometheus-client
    uvicorn examples.live_web_service:app

    curl -d '{"user": "ann", "ts": 1769860801000, "event": "failed"}' localhost:8000/logins

The answer has the attacks that an event completes; ``/metrics`` is for Prometheus. State is in the folder
``ASTERISM_STATE``, by default ``logins-state``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pyarrow as pa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from asterism import CEP, KeyedStream, LiveEngine, Pattern, export_metrics
from asterism.errors import AsterismError

LOGINS: Any = KeyedStream(
    pa.schema([("user", pa.string()), ("ts", pa.int64()), ("event", pa.string())]), key="user", time="ts"
)
ATTACK = (
    Pattern.begin("fails").where("event = 'failed'").times_or_more(3).consecutive()
    .next("login").where("event = 'accepted'").within(timedelta(minutes=10))
)  # fmt: skip


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Open the engine with the service, and take a last snapshot at its end."""
    with CEP.pattern(LOGINS, ATTACK).open(
        os.environ.get("ASTERISM_STATE", "logins-state"),
        select={"matches": ["match_id", "COUNT(fails.*) AS failures"]},
    ) as engine:
        app.state.engine, app.state.metrics = engine, export_metrics({"logins": engine})
        yield


async def logins(request: Request) -> JSONResponse:
    """Take an event or a list of events. A thread calls the engine, so that others are answered meanwhile."""
    engine: LiveEngine = request.app.state.engine
    events = await request.json()
    try:
        # Each event is in its place when it arrives, so the watermark is its time.
        last = max(event["ts"] for event in (events if isinstance(events, list) else [events]))
        rows = await asyncio.to_thread(engine.process, events, watermark=last)
    except (AsterismError, KeyError, TypeError, ValueError) as error:
        return JSONResponse({"error": str(error)}, status_code=400)
    return JSONResponse({"attacks": rows["matches"].to_pylist()})


async def progress(request: Request) -> JSONResponse:
    return JSONResponse(request.app.state.engine.progress)


async def metrics(request: Request) -> PlainTextResponse:
    """They do not wait for a call."""
    return PlainTextResponse(request.app.state.metrics.text())


app = Starlette(
    routes=[Route("/logins", logins, methods=["POST"]), Route("/progress", progress), Route("/metrics", metrics)],
    lifespan=lifespan,
)
