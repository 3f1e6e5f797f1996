"""What the tests of the console share: rules, requests without sockets, and a console that runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from asterism.console.access import access_from
from asterism.console.application import ConsoleApplication
from asterism.console.rule_views import ConsoleRules
from asterism.console.samples import Samples, SampleSettings
from asterism.console.server import ConsoleOptions, ConsoleServer
from asterism.console.worker import OnProgress, WorkerProcess
from asterism.http.access import Access
from asterism.http.application import Application
from asterism.http.messages import Answer, AnswerError, Request
from asterism.rules.sets.discovery_status import RuleState, Status
from asterism.rules.sets.rule_counts import RuleCounts, VersionCounts
from asterism.rules.sets.set_store import FolderStore
from asterism.text.strict_json import decode
from tests.kit import until

Rule = dict[str, Any]
READER, WRITER = "reader-of-rules-0123456789", "writer-of-rules-0123456789"
SOURCE_TOKEN = "endpoint-of-a-query-0123456789"
COLUMNS = "ts TIMESTAMP, user STRING, kind STRING, price DOUBLE"
HOSTILE = "<img src=x onerror=alert(1)> \"'../../%2e%2e#?&"
"""An id that means something in HTML, in a path, and in a URL."""


def rule(id: str = "pair", version: int = 1, **fields: Any) -> Rule:
    """Finds ``a`` and then ``b`` of the same user."""
    sql = """PARTITION BY user
ORDER BY ts
MEASURES LAST(B.price) AS price
PATTERN (A B)
DEFINE A AS kind = 'a', B AS kind = 'b'
"""
    return {"id": id, "version": version, "sql": sql} | fields


def graph(id: str = "graph", version: int = 1, condition: str = "kind = 'a'", **fields: Any) -> Rule:
    node = {"type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}}
    nodes = [
        {"name": "first", "condition": {"type": "SQL", "expression": condition}, **node},
        {"name": "second", "condition": {"type": "SQL", "expression": "kind = 'b'"}, **node},
    ]
    edges = [{"source": "first", "target": "second", "type": "SKIP_TILL_NEXT"}]
    return {
        "id": id,
        "version": version,
        "key": ["user"],
        "pattern": {"type": "COMPOSITE", "nodes": nodes, "edges": edges},
    } | fields


EVENTS = """ts,user,kind,price
2026-01-31 12:00:01,ann,a,1
2026-01-31 12:00:02,bob,a,2
2026-01-31 12:00:03,ann,b,3
2026-01-31 12:00:04,bob,c,4
"""


def token_file(path: Path) -> Path:
    tokens = [
        {"name": "ann", "rights": ["read", "write"], "secret": WRITER},
        {"name": "dashboard", "rights": ["read"], "secret": READER},
    ]
    path.write_text(json.dumps({"tokens": tokens}))
    path.chmod(0o600)
    return path


def status_in(folder: Path, matches: int = 5) -> str:
    """The checkpoint of a query that runs the rule ``pair``."""
    (folder / "pattern_processors").mkdir(parents=True, exist_ok=True)
    store = FolderStore(str(folder / "pattern_processors"))
    store.claim("x" * 32)
    store.write_status(Status("valid", 1, {"pair": 1}, rules=[RuleState("pair", 1, "in force", added=1)]))
    store.write_counts(RuleCounts({("pair", 1): VersionCounts(1, matches)}, query="q", batch=1))
    return str(folder)


class SamplesHere(WorkerProcess):
    """Tries rules in this process."""

    def __init__(self, settings: SampleSettings) -> None:
        super().__init__("", {})
        self.samples = Samples(settings)

    def ask(
        self,
        request: Mapping[str, Any],
        *,
        timeout: float,
        on_progress: OnProgress = lambda progress: None,
        gone: Future[None] | None = None,
    ) -> Any:
        return json.loads(json.dumps(self.samples.answer(json.loads(json.dumps(request)))))


class Asker:
    """Sends requests to an application as the server does, without sockets."""

    def __init__(self, application: Application, token: str | None = None) -> None:
        self.application, self.token = application, token

    def with_token(self, token: str | None) -> Asker:
        return Asker(self.application, token)

    def answer(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"host": "127.0.0.1:8474"}
        if body is not None:
            given |= {"content-type": "application/json", "content-length": str(len(data))}
        if self.token is not None:
            given["authorization"] = f"Bearer {self.token}"
        request = Request(method, path, given | {name.replace("_", "-"): value for name, value in headers.items()})
        answer = self._answer(request, data)
        return answer._replace(headers={**self.application.headers, **answer.headers})

    def _answer(self, request: Request, data: bytes) -> Answer:
        try:
            public = self.application.public(request)
            if public is not None:
                return public
            self.application.authorize(request)
            has_body = self.application.needs_body(request)
        except AnswerError as error:
            return error.answer
        return self.application.answer(request, data if has_body else b"")

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status, and the body as JSON."""
        found = self.answer(method, path, body, **headers)
        return int(found.status), decode(found.body.decode()) if found.body else None

    def good(self, method: str, path: str, body: Any = None) -> Any:
        status, found = self.ask(method, path, body)
        assert 200 <= status < 300, found
        return found


def application(
    source: str, *, tokens: Path | None = None, settings: SampleSettings | None = None, **options: Any
) -> ConsoleApplication:
    settings = settings or SampleSettings(COLUMNS, time="ts")
    access = Access() if tokens is None else access_from(tokens)
    samples = Samples(settings)
    status = options.get("status")
    rules = ConsoleRules(
        source,
        "pattern_processors",
        schema=lambda seconds: samples.schema(),
        token=SOURCE_TOKEN,
        free_version=attrgetter("version") if status is None else status.free_version,
    )
    return ConsoleApplication(
        rules,
        access,
        SamplesHere(settings),
        **options,
    )


@contextmanager
def console(source: str, **options: Any) -> Iterator[ConsoleServer]:
    """A console that listens on a free port."""
    settings = options.pop("samples", SampleSettings(COLUMNS, time="ts"))
    server = ConsoleServer(ConsoleOptions(source, "pattern_processors", settings, **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.address is not None)
        yield server
    finally:
        server.close()
        thread.join()
