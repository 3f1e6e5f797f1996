"""The responses of the console, without sockets: who may do what, and what it does."""

from __future__ import annotations

import getpass
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from asterism.console import application as module_of_requests
from asterism.console import counts as module
from asterism.console.application import HEADERS, ConsoleApplication
from asterism.console.backtests import Backtests
from asterism.console.counts import MatchesByHour, WatchedStatus
from asterism.console.rule_views import ConsoleRules
from asterism.console.worker import OnProgress, WorkerProcess
from asterism.discovery import (
    FilePatternProcessorDiscovererFactory,
    HttpPatternProcessorDiscovererFactory,
    create_pattern_processor_table,
)
from asterism.rules.definition import processor
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.discovery_status import RuleState, Status
from asterism.rules.sets.history import HistoryEntry, changes
from asterism.rules.sets.set_store import FolderStore
from asterism.text.strict_yaml import read_yaml, written_yaml
from tests.console.kit import (
    EVENTS,
    HOSTILE,
    READER,
    SOURCE_TOKEN,
    WRITER,
    Asker,
    application,
    graph,
    rule,
    status_in,
    token_file,
)
from tests.discovery.kit import watching
from tests.kit import until


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([rule(), graph()]))
    return path


@pytest.fixture
def client(rules: Path) -> Asker:
    return Asker(application(str(rules)))


@pytest.fixture(params=["json", "yaml", "folder", "sqlite", "endpoint"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    match request.param:
        case "sqlite":
            url = f"sqlite:///{tmp_path / 'rules.db'}"
            create_pattern_processor_table(url)
            yield url
        case "folder":
            (tmp_path / "rules").mkdir()
            yield str(tmp_path / "rules")
        case "endpoint":
            factory = HttpPatternProcessorDiscovererFactory(0, token=SOURCE_TOKEN, state=tmp_path / "set.json")
            discoverer = factory.create_pattern_processor_discoverer()
            with watching(discoverer):
                until(lambda: discoverer.address)
                yield str(discoverer.address)
        case suffix:
            path = tmp_path / f"rules.{suffix}"
            path.write_text("[]")
            yield str(path)


# ---------------------------------------------------------------------- rights


def without_notes(item: Mapping[str, Any]) -> dict[str, Any]:
    """A rule without who changed it, when and why."""
    return {name: value for name, value in item.items() if name not in ("changedBy", "changedAt", "comment")}


def every_route(found: ConsoleApplication) -> list[tuple[str, str, str]]:
    return [
        (method, path.replace("{id}", "pair"), route.right.value)
        for path, methods in found.routes.items()
        for method, route in methods.items()
    ]


def test_every_route_needs_its_right(rules: Path, tmp_path: Path) -> None:
    status = WatchedStatus(status_in(tmp_path / "checkpoint"))
    backtests = Backtests(WorkerProcess("", {}))
    client = Asker(application(str(rules), tokens=token_file(tmp_path / "t.json"), status=status, backtests=backtests))
    routes = every_route(client.application)
    assert len(routes) == 40
    before = rules.read_bytes()
    for method, path, right in routes:
        body = {} if method in ("POST", "PUT") else None
        for token in (None, "", "x" * 30, READER[:-1]):
            assert client.with_token(token).ask(method, path, body)[0] == 401, (method, path, token)
        reader = client.with_token(READER).ask(method, path, body)
        assert (reader[0] == 403) == (right == "write"), (method, path, reader)
        if right == "write":
            assert reader[1] == {"error": {"message": f"the token 'dashboard' does not have the right to {right}"}}
    assert rules.read_bytes() == before
    for method, path, _ in routes:
        if method == "DELETE":
            continue
        found = client.with_token(WRITER).ask(method, path, {} if method in ("POST", "PUT") else None)
        assert found[0] not in (401, 403), (method, path, found)


def test_the_right_is_checked_before_the_body_is_read(rules: Path, tmp_path: Path) -> None:
    client = Asker(application(str(rules), tokens=token_file(tmp_path / "t.json")), READER)
    answer = client.answer("POST", "/api/save", b"not JSON", content_length="999999999")
    assert answer.status == 403


def test_the_page_needs_no_token(rules: Path, tmp_path: Path) -> None:
    client = Asker(application(str(rules), tokens=token_file(tmp_path / "t.json")))
    page = client.answer("GET", "/")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert client.answer("GET", "/", if_none_match=page.headers["ETag"]).status == 304
    assert client.answer("GET", "/page/app.js").headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert client.answer("POST", "/", {}).status == 405
    for path in (
        "/page/",
        "/page/../access.py",
        "/page/%2e%2e/access.py",
        "/page/app.js?x",
        "//etc/passwd",
        "/console.css",
    ):
        assert client.answer("GET", path).status == 401, path


def test_every_response_has_the_headers_of_a_safe_page(rules: Path, tmp_path: Path) -> None:
    client = Asker(application(str(rules), tokens=token_file(tmp_path / "t.json")))
    for one in (client, client.with_token(READER)):
        for path in ("/", "/page/console.css", "/api/rules", "/nosuch", "/api/save"):
            found = one.answer("GET", path)
            assert HEADERS.items() <= found.headers.items(), path
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "https:" not in policy
    assert "default-src 'none'" in policy


def test_without_tokens_the_console_has_no_other_name(client: Asker) -> None:
    """The page of another site could otherwise read the rules, if its name leads to this machine."""
    for host in ("127.0.0.1", "127.0.0.1:8474", "localhost:8474", "[::1]:8474"):
        assert client.answer("GET", "/api/rules", host=host).status == 200, host
    for host in (
        "",
        "evil.example",
        "evil.example:8474",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "[",
        "[::1",
        "::1",
        "\xff",
    ):
        for path in ("/", "/api/rules"):
            assert client.answer("GET", path, host=host).status == 421, host


def test_other_sites_change_nothing(client: Asker) -> None:
    body = {"id": "pair", "tag": client.good("POST", "/api/rule", {"id": "pair"})["tag"]}
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:9999",
        "http://[",
        "",
        "http://evil.example://127.0.0.1:8474",
        "ftp://127.0.0.1:8474",
        "127.0.0.1:8474",
    ):
        assert client.ask("POST", "/api/disable", body, origin=origin)[0] == 403
    # A form cannot send JSON.
    assert client.ask("POST", "/api/disable", body, content_type="text/plain")[0] == 415
    assert client.ask("POST", "/api/disable", body, origin="http://127.0.0.1:8474")[0] == 200


def test_unknown_paths_and_bodies(client: Asker) -> None:
    assert client.ask("GET", "/nosuch")[0] == 404
    assert client.ask("GET", "/api/rules?x")[0] == 400
    assert client.ask("POST", "/api/rules", {})[0] == 405
    assert client.ask("GET", "/processors/%ff")[0] == 400
    assert client.ask("POST", "/api/rule", b"{")[0] == 422
    assert client.ask("POST", "/api/rule", b'{"id": "a", "id": "b"}')[0] == 422
    assert client.ask("POST", "/api/rule", [])[0] == 422
    assert client.ask("POST", "/api/rule", {"id": 1})[1] == {"error": {"message": "id must be a string"}}
    assert client.ask("POST", "/api/rule", b"{}", content_length="99999999")[0] == 413
    for key in ("ann", [1], ["x" * 2000], ["a"] * 200):
        assert client.ask("POST", "/api/sample", {"text": json.dumps(rule()), "events": EVENTS, "key": key})[0] == 422
    for limit in (0, -1, 10**6, True, "1"):
        assert client.ask("POST", "/api/events", {"limit": limit})[0] == 422


FIELDS = {
    "/api/rule": ["id"], "/api/check": ["text", "id"], "/api/form": ["text", "form", "notes"], "/api/alerts": ["id"],
    "/api/sample": ["text", "id", "events", "key"],
    "/api/events": ["text", "key", "limit", "around"], "/api/save": ["text", "tag"], "/api/enable": ["id", "version", "tag"],
    "/api/disable": ["id", "tag"], "/api/remove": ["id", "version", "tag"], "/api/promote": ["id", "tag"],
    "/api/kill": ["id", "version", "reason"], "/api/unkill": ["name"], "/api/history": ["id"],
    "/api/rollback": ["id", "version", "tag"],
}  # fmt: skip
ANYTHING = [
    None, [], {}, True, 1.5, -1, 2**31, 2**63, 10**30, "", "a\x00b", "\ud800", "../../etc", "%2e%2e", "x" * 100_000, "\u202e",
    "'; DROP TABLE rules; --", "a@99999999999999999999", HOSTILE, [[]], {"a": {}},
]  # fmt: skip


def test_a_field_of_a_request_can_be_anything(rules: Path, tmp_path: Path) -> None:
    check_fields(str(rules), tmp_path)


def check_fields(source: str, tmp_path: Path) -> None:
    client = Asker(application(source, status=WatchedStatus(status_in(tmp_path / "checkpoint"))))
    usual = {
        "id": "pair", "text": json.dumps(rule()), "events": EVENTS, "key": ["ann"], "limit": 10, "version": 1, "reason": "r",
        "name": "pair",
    }  # fmt: skip
    for path, fields in FIELDS.items():
        for field in fields:
            for value in ANYTHING:
                body = {name: usual.get(name, tag_of(client, "pair")) for name in fields} | {field: value}
                status, answer = client.ask("POST", path, body)
                assert status < 500, (path, field, value, answer)


class NoBacktest(WorkerProcess):
    """Answers at once."""

    def __init__(self) -> None:
        super().__init__("", {})

    def ask(
        self, request: Mapping[str, Any], *, timeout: float, on_progress: OnProgress = lambda progress: None
    ) -> Any:
        return {}


def test_a_field_of_a_backtest_can_be_anything(rules: Path) -> None:
    with closing(Backtests(NoBacktest())) as backtests:
        client = Asker(application(str(rules), backtests=backtests))
        page: dict[str, dict[str, Any]] = {
            "/matches": {"job": 1, "from": 0, "count": 9},
            "/download": {"job": 1, "format": "csv"},
        }
        fields = [("", "text"), ("", "id"), ("", "label"), ("/state", "job"), ("/cancel", "job")]
        fields += [(path, field) for path, usual in page.items() for field in (*usual, "difference", "true")]
        for path, field in fields:
            usual: dict[str, Any] = page.get(path, {}) if path else {"id": "pair", "text": json.dumps(rule(version=2))}
            for value in ANYTHING:
                status, answer = client.ask("POST", f"/api/backtest{path}", usual | {field: value})
                assert status < 500 or answer["error"]["message"] == "too many backtests wait", (path, value, answer)
        for body in ([], "x", None, b"{", b"[" * 100_000, {"text": json.dumps(rule("x" * 100_000))}):
            assert client.ask("POST", "/api/backtest", body)[0] in (411, 415, 422)
        number = client.good("POST", "/api/backtest", {"id": "pair", "text": json.dumps(rule(version=2))})["job"]
        until(lambda: client.good("POST", "/api/backtest/state", {"job": number})["state"] == "done")


def test_matches_that_are_read_are_bounded(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Backtests(NoBacktest())) as backtests:
        tested = application(str(rules), backtests=backtests)
        client = Asker(tested)
        number = client.good("POST", "/api/backtest", {"id": "pair", "text": json.dumps(rule(version=2))})["job"]
        page = {"job": number, "from": 0, "count": 9}
        assert client.ask("POST", "/api/backtest/matches", page)[0] == 422, "it has no file"
        monkeypatch.setattr(backtests, "matches", lambda job: rules.parent / f"{job}.parquet")
        status, answer = client.ask("POST", "/api/backtest/download", {"job": number, "format": "parquet"})
        assert (status, answer["error"]["hint"]) == (422, "run it again")
        with tested._reading, tested._reading:
            for path, body in (("matches", page), ("download", {"job": number, "format": "csv"})):
                answer = client.answer("POST", f"/api/backtest/{path}", body)
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


# ---------------------------------------------------------------------- reading and checking


def test_alerts_are_counted_by_hour(tmp_path: Path, rules: Path) -> None:
    place = tmp_path / "checkpoint"
    status = WatchedStatus(status_in(place, 5))
    client = Asker(application(str(rules), status=status))
    assert client.good("POST", "/api/alerts", {"id": None})["since"] is None
    status.look()  # what was found before is not known by hour
    assert client.good("POST", "/api/alerts", {"id": "pair"})["hours"] == []
    status_in(place, 12)
    status.look()
    [[hour, count]] = client.good("POST", "/api/alerts", {"id": "pair"})["hours"]
    assert (hour[13:], count) == (":00:00+00:00", 7)
    assert client.good("POST", "/api/alerts", {"id": None})["rules"] == [["pair", 7, 7, 7]]
    assert client.ask("POST", "/api/alerts", {"id": 5})[0] == 422
    assert Asker(application(str(rules))).ask("POST", "/api/alerts", {"id": None})[0] == 404


def test_hours_of_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = datetime(2026, 1, 31, 10, tzinfo=UTC)
    hours = MatchesByHour()

    def add(hour: float, **counts: int) -> None:
        hours.add(begin + timedelta(hours=hour), {(name[0], int(name[1:])): count for name, count in counts.items()})

    add(0, a1=100)
    add(0.5, a1=103, b1=2)
    add(1.5, b1=2)  # a is disabled
    add(2.5, a1=103, b1=1)  # it is enabled again, and b counts in another checkpoint
    add(2.6, a1=103, a2=4, b1=1)
    assert hours.of("a") == [["2026-01-31T10:00:00+00:00", 3], ["2026-01-31T12:00:00+00:00", 4]]
    assert [count for _, count in hours.of(None)] == [5, 5]
    add(24.5, a2=5)
    assert hours.by_rule(begin + timedelta(hours=25)) == [["a", 5, 8, 8], ["b", 1, 3, 3]]
    monkeypatch.setattr(module, "MAX_COUNTS", 3)
    add(26, a2=6, b1=2)
    assert [hour[8:13] for hour, _ in hours.of(None)] == ["01T10", "01T12"], "the latest ones"
    add(24 * 60 + 25, a2=6, b1=3)
    assert [count for _, count in hours.of(None)] == [2, 1], "of sixty days"


def test_what_the_editor_completes(client: Asker) -> None:
    found = client.good("GET", "/api/completions")
    usages, fields = dict(found["functions"]), dict(found["fields"])
    assert usages["substring"] == "substring(text, start[, length])"
    assert {"count", "sum", "prev", "classifier"} <= usages.keys()
    notes = {"changedBy", "changedAt", "comment"}  # which the console writes itself
    assert fields.keys() == {*processor._FIELDS, "parameters", "rows"} - notes


def test_a_disabled_rule_stays_disabled(tmp_path: Path) -> None:
    """A change of its title is none of what is in force, and neither is one of a version that was rolled back."""
    url = f"sqlite:///{tmp_path / 'rules.db'}"
    create_pattern_processor_table(url)
    client = Asker(application(url))
    for version in (1, 2):
        tag = tag_of(client, "pair") if version > 1 else None
        client.good(
            "POST",
            "/api/save",
            {"text": json.dumps(rule(version=version, suppress={"for": f"{version} minutes"})), "tag": tag},
        )
    client.good("POST", "/api/enable", {"id": "pair", "version": 1, "tag": tag_of(client, "pair")})
    client.good("POST", "/api/disable", {"id": "pair", "tag": tag_of(client, "pair")})
    for number in (0, 1):  # of the version that was rolled back, and of the one that was in use
        text = client.good("POST", "/api/rule", {"id": "pair"})["versions"][number]["text"]
        text = client.good("POST", "/api/form", {"text": text, "notes": {"title": f"T{number}"}})["text"]
        saved = client.good("POST", "/api/save", {"text": text, "tag": tag_of(client, "pair")})
        assert (saved["effect"], saved["version"]) == ("labels", 2 - number)
    shown = client.good("POST", "/api/rule", {"id": "pair"})["versions"]
    assert [(one["state"], one["labels"]) for one in shown] == [("off", {"title": "T0"}), ("off", {"title": "T1"})]
    client.good("POST", "/api/enable", {"id": "pair", "version": None, "tag": tag_of(client, "pair")})
    shown = client.good("POST", "/api/rule", {"id": "pair"})["versions"]
    assert [(one["version"], one["state"]) for one in shown] == [(2, "off"), (1, "on")]


def test_rules_are_listed(client: Asker) -> None:
    pair, other = client.good("GET", "/api/rules")["rules"]
    assert (pair["id"], pair["version"], pair["state"], pair["kind"], pair["key"]) == ("pair", 1, "on", "sql", ["user"])
    assert other["summary"] == "2 stages (first, second), NO_SKIP"
    answer = client.answer("GET", "/api/rules")
    assert client.answer("GET", "/api/rules", if_none_match=answer.headers["ETag"]).status == 304


def test_a_rule_has_its_source(source: str) -> None:
    client = Asker(application(source))
    for version in (1, 2):
        wanted = graph(
            version=version, condition=f"price > {version}", suppress={"for": "1 hour"}, labels={"owner": "ann"}
        )
        before = None if version == 1 else client.good("POST", "/api/rule", {"id": "graph"})["tag"]
        client.good("POST", "/api/save", {"text": json.dumps(wanted), "tag": before})
        found = client.good("POST", "/api/rule", {"id": "graph"})
        assert read_yaml(found["versions"][0]["text"])[0] == wanted
    if "sqlite:" in source:  # a file has one version
        assert [(one["version"], one["state"]) for one in found["versions"]] == [(2, "on"), (1, "older")]


def test_problems_have_places(client: Asker) -> None:
    checked = client.good("POST", "/api/check", {"text": "id: a\nversion: 1\nsql: |\n  PATTERN (A B\n"})
    [problem] = checked["problems"]
    assert (problem["line"], problem["message"]) == (4, "sql: PATTERN ( is not closed")
    checked = client.good(
        "POST", "/api/check", {"text": "id: a\nversion: x\nkey: [nosuch]\nlabels: 5\nsql: PATTERN (A)\n"}
    )
    assert [(one["line"], one["column"]) for one in checked["problems"]] == [(2, 10), (3, 6), (4, 9)]
    assert "drawing" not in checked
    [problem] = client.good("POST", "/api/check", {"text": "id: a\n version: 1"})["problems"]
    assert (problem["line"], problem["column"]) == (2, 9)
    [problem] = client.good("POST", "/api/check", {"text": "- id: a\n- id: b\n"})["problems"]
    assert problem["message"] == "there are 2 rules"
    for text in ("", "[", "5", "{}", "\x00", "\ud800", "id: a", "x" * 2_000_000):
        assert client.good("POST", "/api/check", {"text": text})["problems"], text[:10]


def test_columns_are_checked(client: Asker) -> None:
    wrong = graph(condition="evnt = 'a'")
    [problem] = client.good("POST", "/api/check", {"text": json.dumps(wrong, indent=1)})["problems"]
    assert "no column 'evnt'" in problem["message"] or "evnt" in problem["message"]
    assert problem["line"] > 1


def test_a_valid_rule_has_a_drawing_and_what_saving_does(client: Asker) -> None:
    def effect(item: dict[str, Any]) -> dict[str, Any]:
        checked = client.good("POST", "/api/check", {"text": json.dumps(item)})
        assert checked["problems"] == []
        assert checked["drawing"].startswith("<svg")
        assert "automaton" not in checked["explanation"]
        assert checked["cost"] == {"states": 2, "conditions": 2, "bound": "2 events"}
        found: dict[str, Any] = checked["effect"]
        return found

    assert effect(rule("new")) == {"effect": "new", "version": 1, "shadow": False}
    assert effect(rule()) == {"effect": "unchanged", "version": 1, "shadow": False}
    assert effect(rule(labels={"owner": "ann"})) == {"effect": "labels", "version": 1, "shadow": False}
    assert effect(rule(tests=[{"name": "a", "events": [], "matches": []}])) == {
        "effect": "labels",
        "version": 1,
        "shadow": False,
    }
    assert effect(rule(suppress={"for": "1 hour"})) == {"effect": "version", "version": 2, "shadow": False}
    shadow = rule(suppress={"for": "1 hour"}, shadow=True)
    assert effect(shadow) == {"effect": "version", "version": 2, "shadow": True}
    assert effect(rule(version=7, suppress={"for": "1 hour"})) == {"effect": "version", "version": 7, "shadow": False}


# ---------------------------------------------------------------------- changes


def test_a_rule_is_added_changed_and_removed(source: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "asterism.discovery")
    client = Asker(application(source))

    def versions(id: str) -> list[tuple[int, str]]:
        return [(one["version"], one["state"]) for one in client.good("GET", "/api/rules")["rules"] if one["id"] == id]

    def tag() -> str:
        return str(client.good("POST", "/api/rule", {"id": "pair"})["tag"])

    saved = client.good("POST", "/api/save", {"text": json.dumps(rule()), "tag": None})
    assert (saved["version"], saved["effect"]) == (1, "new")
    assert client.ask("POST", "/api/save", {"text": json.dumps(rule()), "tag": None})[0] == 412
    first = tag()
    changed = json.dumps(rule(suppress={"for": "5 minutes"}))
    assert client.good("POST", "/api/save", {"text": changed, "tag": first})["version"] == 2
    # Someone else has the page from before.
    status, found = client.ask("POST", "/api/save", {"text": changed, "tag": first})
    assert (status, found["error"]["message"]) == (412, "the rule 'pair' has been changed in the meantime")
    assert client.ask("POST", "/api/remove", {"id": "pair", "tag": first})[0] == 412
    labelled = json.dumps(rule(version=2, suppress={"for": "5 minutes"}, labels={"owner": "ann"}))
    assert client.good("POST", "/api/save", {"text": labelled, "tag": tag()})["effect"] == "labels"
    assert client.good("POST", "/api/save", {"text": labelled, "tag": tag()}) == {
        "id": "pair", "rule": "pair", "version": 2, "effect": "unchanged", "done": [],
    }  # fmt: skip
    assert client.good("GET", "/api/rules")["rules"][-1]["labels"] == {"owner": "ann"}
    later = json.dumps(rule(version=3, timestamp="2099-01-01T00:00:00Z"))
    assert client.good("POST", "/api/save", {"text": later, "tag": tag()})["version"] == 3
    assert versions("pair")[-2:] == [(2, "on"), (3, "waiting")]
    client.good("POST", "/api/remove", {"id": "pair", "version": 3, "tag": tag()})
    client.good("POST", "/api/disable", {"id": "pair", "tag": tag()})
    assert {state for _, state in versions("pair")} == {"off"}
    client.good("POST", "/api/enable", {"id": "pair", "version": None, "tag": tag()})
    assert (2, "on") in versions("pair")
    if "sqlite:" in source:
        client.good("POST", "/api/enable", {"id": "pair", "version": 1, "tag": tag()})
        assert versions("pair") == [(1, "on"), (2, "off")]
        client.good("POST", "/api/disable", {"id": "pair", "tag": tag()})
        client.good("POST", "/api/enable", {"id": "pair", "version": None, "tag": tag()})
        assert versions("pair") == [(1, "on"), (2, "off")]
    client.good("POST", "/api/remove", {"id": "pair", "version": None, "tag": tag()})
    assert versions("pair") == []
    assert client.ask("POST", "/api/rule", {"id": "pair"})[0] == 404
    assert caplog.messages[0].endswith(": pair version 1 added")
    assert caplog.messages[-1].endswith(": pair removed")


def test_an_invalid_rule_is_not_saved(client: Asker, rules: Path) -> None:
    before = rules.read_bytes()
    status, found = client.ask("POST", "/api/save", {"text": "id: a\nversion: 1\nsql: PATTERN (\n", "tag": None})
    assert (status, found["error"]["message"], len(found["problems"])) == (422, "sql: the pattern is incomplete", 1)
    assert rules.read_bytes() == before


def test_a_source_that_cannot_be_read_is_told(client: Asker, rules: Path) -> None:
    rules.write_text("[")
    client.application.source._last_read = (0.0, [])
    [shown] = client.good("GET", "/api/rules")["rules"]
    assert shown["state"] == "wrong"
    rules.unlink()
    client.application.source._last_read = (0.0, [])
    assert client.ask("GET", "/api/rules")[0] == 422
    assert client.ask("GET", "/health")[0] == 503


def test_tests_stay_beside_a_rule_where_the_source_stores_them(source: str) -> None:
    client = Asker(application(source))
    item = rule(tests=[{"name": "none", "events": [], "matches": []}])
    checked = client.good("POST", "/api/check", {"text": json.dumps(item)})
    assert checked["warnings"] == []
    client.good("POST", "/api/save", {"text": json.dumps(item), "tag": None})
    assert client.good("POST", "/api/check", {"text": json.dumps(item)})["effect"]["effect"] == "unchanged"
    assert client.good("GET", "/processors/pair")["tests"] == item["tests"]
    # They change without a new version.
    changed = json.dumps(rule(tests=[{"name": "some", "events": [], "matches": []}]))
    assert client.good("POST", "/api/check", {"text": changed})["effect"] == {
        "effect": "labels", "version": 1, "shadow": False
    }  # fmt: skip
    client.good("POST", "/api/save", {"text": changed, "tag": tag_of(client, "pair")})
    assert [test["name"] for test in client.good("GET", "/processors/pair")["tests"]] == ["some"]


def test_a_table_without_a_column_for_tests(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rules.db'}"
    create_pattern_processor_table(url)
    with closing(sqlite3.connect(tmp_path / "rules.db")) as connection:
        for column in ("tests", "comment", "changed_at", "changed_by"):
            connection.execute(f"ALTER TABLE pattern_processors DROP COLUMN {column}")
    client = Asker(application(url))
    item = json.dumps(rule(tests=[{"name": "none", "events": [], "matches": []}]))
    [warning] = client.good("POST", "/api/check", {"text": item})["warnings"]
    assert warning["message"] == "the table does not store the tests of a rule"
    client.good("POST", "/api/save", {"text": item, "tag": None, "comment": "lost"})
    assert client.good("POST", "/api/check", {"text": item})["effect"]["effect"] == "unchanged"


def test_a_sample_becomes_a_test(source: str) -> None:
    client = Asker(application(source))
    text = "# Ours\nid: pair\nversion: 1\n" + written_yaml({"sql": rule()["sql"]})
    fields = {"text": text, "id": None, "events": EVENTS, "name": "one of each"}
    with_test = client.good("POST", "/api/test", fields)["text"]
    assert with_test.startswith("# Ours\nid: pair\n")
    assert client.good("POST", "/api/tests", {"text": with_test}) == [{"name": "one of each", "failure": []}]
    changed = with_test.replace("B AS kind = 'b'", "B AS kind = 'c'")
    [failed] = client.good("POST", "/api/tests", {"text": changed})
    assert failed["failure"]
    assert client.good("POST", "/api/test", fields | {"text": with_test})["name"] == "one of each 2"


PRICES = """ts,user,kind,price
2026-01-31 12:00:01,ann,c,1
2026-01-31 12:00:02,bob,c,2
2026-01-31 12:00:03,ann,c,3
2026-01-31 12:00:04,ann,a,4
2026-01-31 12:00:05,ann,c,5
2026-01-31 12:00:06,ann,a,9
2026-01-31 12:00:07,ann,c,1
"""


@pytest.mark.parametrize("measured", [True, False])
def test_a_test_has_the_events_that_its_match_needs(rules: Path, measured: bool) -> None:
    """The match needs the event before it, with which its price is compared."""
    client = Asker(application(str(rules)))
    sql = f"""PARTITION BY user ORDER BY ts {"MEASURES A.price AS price" if measured else "ALL ROWS PER MATCH"}
PATTERN (A) DEFINE A AS kind = 'a' AND PREV(price) > 2
"""
    fields = {"text": json.dumps({"id": "rise", "version": 1, "sql": sql}), "id": None, "events": PRICES, "name": "one"}
    found = client.good("POST", "/api/sample", fields)
    assert [match["end"][17:19] for match in found["matches"]] == ["04", "06"]
    last = {name: found["matches"][1][name] for name in ("key", "start", "end")}
    counts = [(False, 7), (True, 3), (last, 2), (last | {"key": ["bob"]}, 3)]
    for needed, count in counts:
        test = client.good("POST", "/api/test", fields | {"needed": needed})
        assert test["events"] == count
        assert client.good("POST", "/api/tests", {"text": test["text"]}) == [{"name": "one", "failure": []}]
    for wrong in (5, {"key": ["ann"]}, last | {"key": 5}, last | {"start": 5}):
        assert client.ask("POST", "/api/test", fields | {"needed": wrong})[0] == 422


def test_versions_have_an_author_a_time_and_a_comment(source: str) -> None:
    client = Asker(application(source))
    client.good("POST", "/api/save", {"text": json.dumps(rule()), "tag": None, "comment": " the first "})
    [version] = client.good("POST", "/api/rule", {"id": "pair"})["versions"]
    assert (version["comment"], version["changedBy"]) == ("the first", getpass.getuser())
    assert abs(datetime.fromisoformat(version["changedAt"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert "comment" not in version["text"]
    assert client.ask("POST", "/api/save", {"text": "", "tag": None, "comment": "x" * 2_000})[0] == 422


def test_the_comment_of_a_version_stays_with_it(source: str) -> None:
    """Other labels do not change the version, other tests neither; a new comment replaces the former one."""
    client = Asker(application(source))

    def saved(comment: str | None, **fields: Any) -> str:
        tag = client.good("POST", "/api/rule", {"id": "pair"})["tag"] if comment != "first" else None
        client.good("POST", "/api/save", {"text": json.dumps(rule(**fields)), "tag": tag, "comment": comment})
        [version] = client.good("POST", "/api/rule", {"id": "pair"})["versions"]
        return str(version["comment"])

    tests = [{"name": "t", "events": "a1", "matches": []}]
    assert saved("first") == "first"
    assert saved(None, labels={"team": "a"}) == "first"
    assert saved("relabelled", labels={"team": "b"}) == "relabelled"
    assert saved("with a test", labels={"team": "b"}, tests=tests) == "with a test"


def test_rules_that_cannot_be_used_do_not_hide_others(client: Asker, rules: Path) -> None:
    """Whatever is wrong with them."""
    broken = [
        {"id": "clause", "version": 1, "sql": "PATTERN (A"}, {"id": "graph", "version": 1, "pattern": {}}, {"id": "no version"},
        {"id": "condition", **{name: value for name, value in graph(condition="x >").items() if name != "id"}}, 5, {"id": 7},
        {"id": "<b>", "version": 1, "sql": "PATTERN (A)", "labels": {"a": 1}}, {"id": "\n\ud800", "version": "x"}, None, [],
        rule(suppress={"for": "soon"}), rule("twice"), rule("twice", 2), graph("key", key=["x >"]), rule(sql=None, pattern="{"),
    ]  # fmt: skip
    rules.write_text(json.dumps([*broken, rule("good")]))
    client.application.source._last_read = (0.0, [])
    found = client.good("GET", "/api/rules")["rules"]
    assert len(found) == len(broken) + 1
    assert [one["id"] for one in found if "error" not in one] == ["condition", "twice", "key", "good"]
    for one in found:
        shown = client.good("POST", "/api/rule", {"id": one["id"]})["versions"]
        for text in (version["text"] for version in shown if version["text"] is not None):
            client.good("POST", "/api/check", {"text": text})


def test_comments_of_a_yaml_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        f"# Ours\n- {json.dumps(rule('other'))}  # the other\n- id: pair\n  version: 1\n  sql: PATTERN (A)\n"
    )
    client = Asker(application(str(path)))
    tag = client.good("POST", "/api/rule", {"id": "pair"})["tag"]
    client.good("POST", "/api/save", {"text": json.dumps(rule()), "tag": tag})
    text = path.read_text()
    assert text.startswith("# Ours\n")
    assert "# the other" in text
    assert "  sql: |\n    PARTITION BY user\n" in text


# ---------------------------------------------------------------------- programs


def test_queries_read_the_rules(client: Asker, tmp_path: Path) -> None:
    answer = client.answer("GET", "/processors")
    assert client.answer("GET", "/processors", if_none_match=answer.headers["ETag"]).status == 304
    (tmp_path / "fetched.json").write_bytes(answer.body)
    discoverer = FilePatternProcessorDiscovererFactory(tmp_path / "fetched.json").create_pattern_processor_discoverer()
    assert [one.id for one in discoverer.initial_pattern_processors()] == ["pair", "graph"]


def test_the_author_of_a_change_is_the_name_of_the_token(source: str, tmp_path: Path) -> None:
    client = Asker(application(source, tokens=token_file(tmp_path / "t.json")), WRITER)
    client.good("POST", "/api/save", {"text": json.dumps(rule(changedBy="somebody else")), "tag": None})
    [found] = client.good("POST", "/api/rule", {"id": "pair"})["versions"]
    assert found["changedBy"] == "ann"
    assert "changedBy" not in found["text"]
    client.good("PUT", "/processors/pair", rule(version=2, changedBy="somebody else", suppress={"for": "1 hour"}))
    assert client.good("GET", "/processors/pair")["changedBy"] == "ann"


def test_an_earlier_version_comes_from_the_history_of_a_query(rules: Path, tmp_path: Path) -> None:
    status = WatchedStatus(status_in(tmp_path / "checkpoint"))
    client = Asker(application(str(rules), status=status))
    tag = client.good("POST", "/api/rule", {"id": "pair"})["tag"]
    assert client.good("POST", "/api/history", {"id": "pair"}) == {"entries": []}
    assert client.ask("POST", "/api/rollback", {"id": "pair", "version": 0, "tag": tag})[0] == 404
    history = FolderStore(str(tmp_path / "checkpoint" / "pattern_processors")).history()
    old = PatternProcessor.from_dict(rule(version=0, suppress={"for": "2 hours"}))
    new = PatternProcessor.from_dict(rule(changedBy="ann"))
    history.append([*changes(1, [], [old]), *changes(2, [old], [new])])
    second, first = client.good("POST", "/api/history", {"id": "pair"})["entries"]
    assert (first["what"], first["version"], second["what"], second["by"]) == ("added", 0, "replaced", "ann")
    assert read_yaml(first["source"])[0] == rule(version=0, suppress={"for": "2 hours"})
    assert client.good("POST", "/api/history", {"id": "graph"}) == {"entries": []}
    client.good("POST", "/api/rollback", {"id": "pair", "version": 0, "tag": tag})
    assert without_notes(client.good("GET", "/processors/pair")) == rule(version=0, suppress={"for": "2 hours"})
    assert client.ask("POST", "/api/rollback", {"id": "pair", "version": 1, "tag": tag})[0] == 412


def test_the_status_of_a_query_is_shown_over_time(rules: Path, tmp_path: Path) -> None:
    place = status_in(tmp_path / "checkpoint")
    status = WatchedStatus(place)
    client = Asker(application(str(rules), status=status))
    status.look()
    for matches in (5, 9, 2):
        status_in(tmp_path / "checkpoint", matches)
        status.look()
    found = client.good("GET", "/api/status")
    assert found["status"]["rules"][0]["matches"] == 2
    assert found["series"]["matches"] == {"pair": [0, 4, 0]}
    assert len(found["series"]["times"]) == 4
    assert client.good("GET", "/status")["processors"] == {"pair": 1}
    assert b'asterism_rule_matches_total{rule="pair",version="1"} 2.0' in client.answer("GET", "/metrics").body
    (tmp_path / "checkpoint" / "pattern_processors" / "status.json").write_text("{")
    status.look()
    found = client.good("GET", "/api/status")
    assert found["error"]["message"]
    assert found["status"]["state"] == "valid"  # the last one


def test_the_matches_of_former_versions_are_counted(rules: Path, tmp_path: Path) -> None:
    status = WatchedStatus(status_in(tmp_path / "checkpoint"))
    client = Asker(application(str(rules), status=status))
    status.look()
    assert client.good("GET", "/api/status")["earlier"] == {}
    store = FolderStore(str(tmp_path / "checkpoint" / "pattern_processors"))
    store.write_status(Status("valid", 2, {"pair": 2}, rules=[RuleState("pair", 2, "in force", added=2)]))
    status.look()
    assert client.good("GET", "/api/status")["earlier"] == {"pair": 5}


@pytest.mark.skipif(
    not hasattr(time, "pthread_getcpuclockid"), reason="this system does not count the time of a thread"
)
def test_a_check_waits_for_its_turn_but_does_not_compute_for_ever(
    client: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(rule())
    good = client.good("POST", "/api/check", {"text": text})
    check = client.application.source.check
    monkeypatch.setattr(module_of_requests, "CHECK_POLL", 0.01)
    monkeypatch.setattr(module_of_requests, "CHECK_CPU", 0.3)

    def waits(*arguments: Any) -> Any:
        time.sleep(0.2)
        return checked

    over = threading.Event()

    def never(*arguments: Any) -> Any:
        over.wait()

    def computes(*arguments: Any) -> Any:
        until = time.thread_time() + 1
        while time.thread_time() < until:
            pass

    checked = check(text, None)
    monkeypatch.setattr(client.application.source, "check", waits)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: client.ask("POST", "/api/check", {"text": text}), range(4)))
    assert [status for status, _ in answers] == [200] * 4
    assert answers[0][1]["id"] == good["id"]
    monkeypatch.setattr(client.application.source, "check", computes)
    status, answer = client.ask("POST", "/api/check", {"text": text})
    assert (status, answer["error"]["message"]) == (422, "the check of the rule takes more than 0.3 seconds")
    monkeypatch.setattr(client.application.source, "check", never)
    monkeypatch.setattr(module_of_requests, "CHECK_TIMEOUT", 0.1)
    assert client.ask("POST", "/api/check", {"text": text})[0] == 503
    over.set()


# ---------------------------------------------------------------------- hostile rules


def test_hostile_ids_and_labels_are_data(source: str) -> None:
    client = Asker(application(source))
    for id in (HOSTILE, "..", ".", "%2e%2e", "a/b", "x" * 200, "constructor", "__proto__"):
        item = rule(id, labels={"__proto__": HOSTILE, HOSTILE[:50]: "</script>"})
        client.good("POST", "/api/save", {"text": json.dumps(item), "tag": None})
        found = client.good("POST", "/api/rule", {"id": id})
        assert read_yaml(found["versions"][0]["text"])[0] == item
        checked = client.good("POST", "/api/check", {"text": found["versions"][0]["text"]})
        assert "<img" not in checked["drawing"]
        client.good("POST", "/api/remove", {"id": id, "version": 1, "tag": found["tag"]})


LIMITED = "PARTITION BY user PATTERN (A) DEFINE A AS price > :limit"


def template(**fields: Any) -> dict[str, Any]:
    rows = [{"id": "uk", "limit": 8}, {"id": "de", "limit": 9, "enabled": False}]
    return {"id": "large", "parameters": {"limit": "number"}, "rows": rows, "sql": LIMITED} | fields


def test_rules_of_a_template_are_changed_with_it(source: str) -> None:
    client = Asker(application(source))
    version = {"version": 1} if "sqlite" in source else {}
    checked = client.good("POST", "/api/check", {"text": json.dumps(template(**version)), "id": "large/de"})
    assert (checked["problems"], checked["id"], checked["effect"]["effect"]) == ([], "large", "new")
    text = json.dumps(template(**version, labels={"owner": "ann"}))
    saved = client.good("POST", "/api/save", {"text": text, "tag": None})
    assert (saved["id"], saved["rule"]) == ("large", "large/uk")
    client.good("POST", "/api/save", {"text": json.dumps(rule()), "tag": None})
    listed = client.good("GET", "/api/rules")["rules"]
    assert sorted((one["id"], one["template"], one["state"]) for one in listed) == [
        ("large/de", "large", "off"), ("large/uk", "large", "on"), ("pair", None, "on"),
    ]  # fmt: skip
    found = client.good("POST", "/api/rule", {"id": "large/uk"})
    assert "price > 8" in found["versions"][0]["text"]
    shown = found["template"]
    assert (shown["id"], shown["canEdit"], shown["rules"]) == ("large", True, 2)
    assert (shown["parameters"], shown["rows"]) == ([["limit", "number", None]], [["uk", True, 8], ["de", False, 9]])
    assert read_yaml(shown["text"])[0] == json.loads(text)
    assert client.good("POST", "/api/check", {"text": shown["text"]})["effect"]["effect"] == "unchanged"
    # One row of it is tried.
    for id, matches in (("large/uk", 1), ("large/de", 0), (None, 1)):
        sample = {"text": shown["text"], "id": id, "events": "ts,user,price\n2026-01-31 12:00:01,ann,8.5\n"}
        assert len(client.good("POST", "/api/sample", sample)["matches"]) == matches
    for action in ("disable", "remove", "promote"):
        status, answer = client.ask("POST", f"/api/{action}", {"id": "large/uk", "tag": found["tag"]})
        assert (status, answer["error"]["message"]) == (422, "'large/uk' is a rule of the template 'large'")
    status, answer = client.ask("POST", "/api/rollback", {"id": "large/uk", "version": 1, "tag": found["tag"]})
    assert (status, answer["error"]["hint"]) == (422, "change its row: the earlier values give the earlier version")
    changed = read_yaml(shown["text"])[0]
    changed["rows"][0]["limit"] = 7
    saved = client.good("POST", "/api/save", {"text": json.dumps(changed), "tag": shown["tag"]})
    assert (saved["effect"], saved["version"]) == ("version", 2 if version else None)
    assert "price > 7" in client.good("POST", "/api/rule", {"id": "large/uk"})["versions"][0]["text"]
    assert client.ask("POST", "/api/save", {"text": json.dumps(changed), "tag": shown["tag"]})[0] == 412
    assert client.ask("POST", "/api/save", {"text": json.dumps(changed), "tag": None})[0] == 412


def test_problems_of_a_template_have_places(client: Asker) -> None:
    rows = [{"id": "uk", "limit": 8}, {"id": "de", "limit": "x"}, {"limit": 1}]
    text = json.dumps(template(rows=rows, sql=LIMITED.replace("price", "prize")), indent=1)
    found = client.good("POST", "/api/check", {"text": text})
    lines = text.splitlines()
    assert [(lines[one["line"] - 1].strip(), one["message"]) for one in found["problems"]] == [
        ("{", "template 'large', row 'de': the parameter 'limit' must be a number, not 'x'"),
        ("{", "template 'large', row '#3': a row needs an 'id', a string"),
        (lines[-2].strip(), "sql: unknown column 'prize'"),
    ]
    assert client.ask("POST", "/api/save", {"text": text, "tag": None})[0] == 422
    [problem] = client.good("POST", "/api/check", {"text": json.dumps(template(rows=[]))})["problems"]
    assert problem["message"] == "the template has no rows, so it has no rules"


def test_for_programs_a_template_is_one_item(rules: Path, client: Asker) -> None:
    rules.write_text(json.dumps([template(), rule()]))
    assert client.good("GET", "/processors") == {"processors": [template(), rule()]}
    changed = template(rows=[{"id": "uk", "limit": 7}])
    assert client.ask("PUT", "/processors", [template(rows=[{"id": "uk", "limit": "x"}])])[0] == 422
    assert client.good("PUT", "/processors", [changed])["done"][-1] == "pair removed"
    assert [one["id"] for one in client.good("GET", "/api/rules")["rules"]] == ["large/uk"]
    assert client.ask("DELETE", "/processors/large") == (204, None)


def test_conditions_by_name_are_those_of_the_query(rules: Path) -> None:
    item = graph("inside")
    for number, name in enumerate(("in_network", "in_town")):
        item["pattern"]["nodes"][number]["condition"] = {"type": "CLASS", "className": name, "args": ["24."]}
    for known, warnings in [
        (None, []),
        ({"in_network": "network: str"}, ["the query has not registered the condition 'in_town'"]),
    ]:
        source = ConsoleRules(str(rules), "", conditions=lambda known=known: known)
        checked = source.check(json.dumps(item)).checked.to_dict()
        found = [one for one in checked["warnings"] if "registered" in one["message"]]
        assert (checked["problems"], [one["message"] for one in found]) == ([], warnings)
        assert all(one["detail"] == "Registered: in_network" for one in found)


# ---------------------------------------------------------------------- shadows, and rules that are killed


def test_a_shadow_is_promoted(source: str) -> None:
    client = Asker(application(source))
    for item in (rule(), rule(version=2, suppress={"for": "1 hour"}, shadow=True)):
        client.good("POST", "/api/save", {"text": json.dumps(item), "tag": tag_of(client, "pair")})
    found = client.good("POST", "/api/rule", {"id": "pair"})
    assert [(one["version"], one["state"], one["shadow"]) for one in found["versions"]] == [
        (2, "shadow", True), (1, "on", False),
    ]  # fmt: skip
    status, answer = client.ask("POST", "/api/rollback", {"id": "pair", "version": 2, "tag": found["tag"]})
    assert (status, answer["error"]["message"], answer["error"]["hint"]) == (
        422, "version 2 of 'pair' is a shadow", "promote it",
    )  # fmt: skip
    assert client.ask("POST", "/api/promote", {"id": "pair", "tag": "0" * 32})[0] == 412
    assert client.good("POST", "/api/promote", {"id": "pair", "tag": found["tag"]})["done"] == [
        "pair version 2 promoted"
    ]
    promoted = rule(version=2, suppress={"for": "1 hour"})
    assert without_notes(client.good("GET", "/processors/pair")) | {"timedOut": False} == promoted | {"timedOut": False}
    assert client.ask("POST", "/api/promote", {"id": "pair", "tag": tag_of(client, "pair")})[0] == 404


def test_a_template_is_a_shadow_and_is_promoted(source: str) -> None:
    client = Asker(application(source))
    version = {"version": 1} if source.startswith("sqlite") else {}
    client.good("POST", "/api/save", {"text": json.dumps(template(**version)), "tag": None})
    shown = client.good("POST", "/api/rule", {"id": "large/de"})["template"]
    assert (shown["shadow"], shown["isShadow"]) == (False, False)
    changed = template(**version, shadow=True, rows=[{"id": "de", "limit": 7}, {"id": "fr", "limit": 8}])
    saved = client.good("POST", "/api/save", {"text": json.dumps(changed), "tag": shown["tag"]})
    assert saved["effect"] == "new"
    listed = client.good("GET", "/api/rules")["rules"]
    assert sorted((one["id"], one["state"]) for one in listed) == [
        ("large/de", "off"), ("large/de", "shadow"), ("large/fr", "shadow"), ("large/uk", "on"),
    ]  # fmt: skip
    found = client.good("POST", "/api/rule", {"id": "large/de"})
    assert sorted(one["state"] for one in found["versions"]) == ["off", "shadow"]
    shown = found["template"]
    assert (shown["shadow"], shown["isShadow"], shown["rules"]) == (True, False, 2)
    assert client.good("POST", "/api/rule", {"id": "large/fr"})["template"]["isShadow"]
    assert len(client.good("GET", "/processors")["processors"]) == 2
    assert client.ask("POST", "/api/promote", {"id": "large", "tag": "0" * 32})[0] == 412
    client.good("POST", "/api/promote", {"id": "large", "tag": shown["tag"]})
    listed = client.good("GET", "/api/rules")["rules"]
    assert sorted((one["id"], one["state"]) for one in listed) == [("large/de", "on"), ("large/fr", "on")]


def tag_of(client: Asker, id: str) -> str | None:
    status, found = client.ask("POST", "/api/rule", {"id": id})
    return str(found["tag"]) if status == 200 else None


def test_a_rule_is_killed_with_a_reason(rules: Path, tmp_path: Path) -> None:
    place = status_in(tmp_path / "checkpoint")
    options = {"status": WatchedStatus(place), "tokens": token_file(tmp_path / "t.json")}
    client = Asker(application(str(rules), **options), WRITER)
    store = FolderStore(f"{place}/pattern_processors")
    for reason in ("", "  "):
        assert client.ask("POST", "/api/kill", {"id": "pair", "reason": reason})[0] == 422
    assert client.ask("POST", "/api/kill", {"id": "pair", "reason": "no"})[0] == 200
    assert client.good("POST", "/api/kill", {"id": "a@3", "version": 2, "reason": "too loud"})["done"] == [
        "a@3@2 killed"
    ]
    assert {name: (one.reason, one.by) for name, one in store.killed().items()} == {
        "pair": ("no", "ann"), "a@3@2": ("too loud", "ann"),
    }  # fmt: skip
    assert client.with_token(READER).ask("POST", "/api/kill", {"id": "pair", "reason": "no"})[0] == 403
    client.good("POST", "/api/unkill", {"name": "pair"})
    assert client.ask("POST", "/api/unkill", {"name": "pair"})[0] == 404
    assert list(store.killed()) == ["a@3@2"]
    store.history().append(
        [
            HistoryEntry("2026-01-31T12:00:00", 1, "killed", name, by="ann", reason="no")
            for name in ("pair", "pair@2", "pairs")
        ]
    )
    assert [one["id"] for one in client.good("POST", "/api/history", {"id": "pair"})["entries"]] == ["pair@2", "pair"]
    assert Asker(application(str(rules))).ask("POST", "/api/kill", {"id": "pair", "reason": "no"})[0] == 404
