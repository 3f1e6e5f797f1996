"""The REST interface of rules: at the endpoint of a query, and at a console of a file, a folder and a database."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from asterism.columns.schemas import schema_of
from asterism.discovery.rest.application import RuleApplication, RuleResources
from asterism.discovery.rest.rule_file import StoredRuleFile
from asterism.http.access import Access
from asterism.http.messages import AnswerError, error_fields
from asterism.patterns.semantics import Semantics
from asterism.rules.checking.validation import InvalidProcessorError, checked_processors
from asterism.rules.sets.discovery_status import Status
from tests.console.kit import COLUMNS, SOURCE_TOKEN, Asker, application, graph, rule


def no_query() -> Status:
    raise AnswerError(404, "this endpoint is not part of a query")


@pytest.fixture(params=["endpoint", "console", "console of a folder", "console of a database"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Asker:
    match request.param:
        case "endpoint":
            return endpoint(tmp_path)
        case "console":
            (tmp_path / "rules.json").write_text("[]")
            return Asker(application(str(tmp_path / "rules.json")))
        case "console of a folder":
            (tmp_path / "rules").mkdir()
            return Asker(application(str(tmp_path / "rules")))
    return table(tmp_path)


def endpoint(folder: Path) -> Asker:
    """The endpoint of a query with the same columns as the consoles."""
    columns = lambda: (schema_of(COLUMNS), Semantics.DEFAULT)  # noqa: E731
    resources = RuleResources(StoredRuleFile(folder / "set.json", columns), no_query)
    return Asker(RuleApplication(resources, Access.of_token(SOURCE_TOKEN)), SOURCE_TOKEN)


def table(folder: Path) -> Asker:
    """A console of a database."""
    from asterism.discovery import create_pattern_processor_table

    url = f"sqlite:///{folder / 'rules.db'}"
    create_pattern_processor_table(url)
    return Asker(application(url))


PATH = "/processors/pair"


def put(client: Asker, version: int, **headers: str) -> int:
    return client.ask("PUT", PATH, rule(version=version, suppress={"for": f"{version} hours"}), **headers)[0]


def version_of(client: Asker) -> Any:
    status, body = client.ask("GET", PATH)
    return body["version"] if status == 200 else status


def test_a_change_of_one_rule_is_made_only_if_its_precondition_holds(client: Asker) -> None:
    assert put(client, 1, if_match="*") == 412
    assert put(client, 1, if_none_match="*") in (200, 201)
    assert put(client, 2, if_none_match="*") == 412
    assert put(client, 2, if_match='"nonsense"') == 412
    assert put(client, 2, if_match="nonsense") == 400
    assert version_of(client) == 1

    first = client.answer("GET", PATH).headers["ETag"]
    assert client.answer("GET", PATH, if_none_match=first).status == 304
    assert client.answer("GET", PATH, if_match='"nonsense"').status == 412
    assert put(client, 2, if_match=first) == 200
    second = client.answer("GET", PATH).headers["ETag"]
    assert second != first
    assert put(client, 3, if_match=first) == 412
    assert client.ask("DELETE", PATH, if_match=first)[0] == 412
    assert version_of(client) == 2

    assert put(client, 3, if_match=f"{first}, {second}") == 200
    assert client.ask("DELETE", PATH, if_match=second)[0] == 412
    assert version_of(client) == 3
    assert client.ask("DELETE", PATH, if_match="*")[0] == 204
    assert version_of(client) == 404
    assert client.ask("DELETE", PATH)[0] == 404
    assert put(client, 4) in (200, 201)


def test_a_template_is_created_once(client: Asker) -> None:
    template = {
        "id": "limits",
        "version": 1,
        "sql": rule()["sql"].replace("kind = 'a'", "price > :limit"),
        "parameters": {"limit": "number"},
        "rows": [{"id": "uk", "limit": 5}],
    }
    path = "/processors/limits"
    assert client.ask("PUT", path, template, if_none_match="*")[0] in (200, 201)
    status, body = client.ask("GET", path)
    assert (status, body["rows"]) == (200, template["rows"])
    assert client.ask("PUT", path, template | {"version": 2}, if_none_match="*")[0] == 412
    assert client.ask("DELETE", path, if_match='"nonsense"')[0] == 412
    assert client.ask("DELETE", path, if_match=client.answer("GET", path).headers["ETag"])[0] == 204


def stored(client: Asker, path: str = PATH) -> tuple[Any, bool]:
    """The version of a rule, and whether it is enabled."""
    body = client.good("GET", path)
    return body["version"], body.get("enabled", True)


def test_a_rule_is_put_and_removed(client: Asker) -> None:
    assert client.good("GET", "/processors") == {"processors": []}
    assert client.ask("PUT", PATH, rule()) == (201, {"id": "pair", "version": 1, "done": ["pair version 1 added"]})
    assert client.ask("PUT", PATH, rule(labels={"owner": "ann"}))[0] == 200
    assert client.ask("PUT", PATH, rule(version=2, suppress={"for": "1 hour"}, enabled=False))[0] == 200
    assert client.ask("PUT", "/processors/other", {**rule("other"), "id": "other"})[0] == 201
    assert sorted(one["id"] for one in client.good("GET", "/processors")["processors"]) == ["other", "pair"]
    assert client.ask("GET", "/health") == (200, {"status": "ok", "processors": 2})
    assert [client.ask("GET", path)[0] for path in ("/status", "/metrics")] == [404, 404]
    assert client.ask("DELETE", PATH) == (204, None)
    assert [client.ask(method, PATH)[0] for method in ("GET", "DELETE")] == [404, 404]
    assert client.good("GET", "/health")["processors"] == 1


def test_a_disabled_rule_is_there(client: Asker) -> None:
    client.good("PUT", PATH, rule(enabled=False))
    assert stored(client) == (1, False)
    assert [one.get("enabled") for one in client.good("GET", "/processors")["processors"]] == [False]
    assert client.ask("PUT", PATH, rule(), if_none_match="*")[0] == 412


def versions_of(client: Asker) -> list[Any]:
    return [one["version"] for one in client.good("GET", "/processors")["processors"] if one.get("enabled", True)]


def test_versions_that_come_into_force_in_turn(client: Asker) -> None:
    """Otherwise, a query that reads them for the first time would have none of them until the time of the last one."""
    for version, more in (
        (1, {}),
        (2, {"timestamp": "2030-01-01T00:00:00Z"}),
        (3, {"timestamp": "2029-01-01T00:00:00Z"}),
        (4, {"timestamp": "2030-01-01T00:00:00Z"}),
    ):
        client.good("PUT", PATH, rule(version=version, **more))
        assert version_of(client) == version
    assert versions_of(client) == [1, 3, 4]
    found = client.good("GET", "/processors")
    status, body = client.ask("PUT", "/processors", found)
    assert (status, body["accepted"], body["removed"]) == (200, ["pair"], [])
    assert versions_of(client) == [1, 3, 4]
    client.good("PUT", PATH, rule(labels={"owner": "ann"}))
    assert versions_of(client) == [1, 3, 4]

    # Each of them can be withdrawn.
    one = f"{PATH}/versions/4"
    assert client.good("GET", one)["timestamp"][:4] == "2030"
    assert client.ask("DELETE", one, if_match='"other"')[0] == 412
    assert client.ask("DELETE", one, if_match=client.answer("GET", one).headers["ETag"])[0] == 204
    assert [client.ask(method, one)[0] for method in ("GET", "DELETE")] == [404, 404]
    assert versions_of(client) == [1, 3]
    third = next(one for one in found["processors"] if one["version"] == 3)
    client.good("PUT", PATH, third | {"enabled": False})
    assert versions_of(client) in ([1], [1, 2])  # a table has the version before it again
    client.good("PUT", PATH, third)
    assert client.ask("PUT", "/processors", [rule()])[0] == 200
    assert versions_of(client) == [1]
    client.good("PUT", PATH, rule(version=5, timestamp="2031-01-01T00:00:00Z"))
    client.good("PUT", PATH, rule(version=6))
    assert versions_of(client) == [6]
    assert client.ask("DELETE", PATH)[0] == 204
    assert client.good("GET", "/processors") == {"processors": []}


def test_the_tag_of_a_table_does_not_depend_on_the_order_of_its_rows(tmp_path: Path) -> None:
    client = table(tmp_path)
    client.good("PUT", "/processors", [rule("a"), rule("b")])
    tag = client.answer("GET", "/processors").headers["ETag"]
    with closing(sqlite3.connect(tmp_path / "rules.db")) as connection, connection:
        (name,) = next(connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE '%changed_at%'"))
        rows = list(connection.execute(f"SELECT * FROM {name}"))
        connection.execute(f"DELETE FROM {name}")
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows[::-1])
        assert len(rows) == 2
        assert list(connection.execute(f"SELECT * FROM {name}")) == rows[::-1]
    assert client.answer("GET", "/processors").headers["ETag"] == tag
    assert client.ask("DELETE", "/processors/a")[0] == 204
    assert client.answer("GET", "/processors").headers["ETag"] != tag


def test_a_version_keeps_its_definition(client: Asker) -> None:
    client.good("PUT", PATH, rule())
    status, body = client.ask("PUT", PATH, rule(suppress={"for": "1 hour"}))
    assert (status, body["error"]["code"], body["error"]["hint"]) == (409, "VERSION_CONFLICT", "raise the version")
    assert client.ask("PUT", "/processors", [rule(suppress={"for": "1 hour"}), rule("b")])[0] == 409
    assert len(client.good("GET", "/processors")["processors"]) == 1


def test_a_set_is_replaced_or_nothing(client: Asker) -> None:
    answer = client.answer("PUT", "/processors", [rule("a"), rule("b")])
    assert (answer.status, client.good("GET", "/health")["processors"]) == (200, 2)
    before = client.answer("GET", "/processors")
    wrong = [rule("a", 2), rule("b", -1), {"Id": "c"}, rule("d", shadow="yes")]
    status, body = client.ask("PUT", "/processors", {"processors": wrong})
    assert (status, [(one["id"], one["version"]) for one in body["refused"]]) == (
        422,
        [("b", -1), ("#3", None), ("d", 1)],
    )
    assert body["error"]["message"].startswith("3 of 4 processors are invalid, and nothing has changed: 'b': a version")
    assert client.ask("PUT", "/processors", [rule("a", 2), rule("a", 2)])[0] == 422
    # Whoever forgets the id in the path does not remove all other rules.
    status, body = client.ask("PUT", "/processors", rule("c"))
    assert (status, "PUT /processors/{id}" in body["error"]["hint"]) == (422, True)
    assert client.answer("GET", "/processors").body == before.body
    tag = before.headers["ETag"]
    assert client.answer("GET", "/processors", if_none_match=tag).status == 304
    new = [rule("a", suppress={"for": "1 hour"}, version=2), rule("c"), rule("c", 2, shadow=True)]
    assert client.ask("PUT", "/processors", new, if_match='"other"')[0] == 412
    assert client.ask("PUT", "/processors", new, if_none_match="*")[0] == 412
    status, body = client.ask("PUT", "/processors", {"processors": new}, if_match=tag)
    assert (status, body["accepted"], body["accepted_shadows"], body["removed"]) == (200, ["a", "c"], ["c"], ["b"])
    assert client.ask("PUT", "/processors", new, if_match=tag)[0] == 412
    assert client.ask("PUT", "/processors", [rule("c")])[1]["removed_shadows"] == ["c"]


def test_a_shadow_has_a_path_of_its_own(client: Asker) -> None:
    shadow = f"{PATH}/shadow"
    assert client.ask("POST", f"{PATH}/promote")[0] == 404
    client.good("PUT", PATH, rule())
    assert client.ask("PUT", PATH, rule(version=2, shadow=True))[0] == 422
    assert client.ask("PUT", shadow, rule())[0] == 409  # its version is in force
    assert client.ask("PUT", shadow, rule(version=2, shadow=False))[0] == 422
    done = ["shadow of pair version 2 added"]
    assert client.ask("PUT", shadow, rule(version=2)) == (201, {"id": "pair", "version": 2, "done": done})
    assert client.ask("PUT", shadow, rule(version=2, suppress={"for": "1 hour"}))[0] == 409
    assert (stored(client), stored(client, shadow)) == ((1, True), (2, True))
    assert client.ask("DELETE", shadow) == (204, None)
    assert [client.ask(method, shadow)[0] for method in ("GET", "DELETE")] == [404, 404]
    assert stored(client) == (1, True)

    client.good("PUT", shadow, rule(version=3))
    tag = client.answer("GET", shadow).headers["ETag"]
    assert client.ask("POST", f"{PATH}/promote", if_match='"other"')[0] == 412
    promoted = {"id": "pair", "version": 3, "done": ["pair version 3 promoted"]}
    assert client.ask("POST", f"{PATH}/promote", if_match=tag) == (200, promoted)
    assert (stored(client), client.ask("GET", shadow)[0]) == ((3, True), 404)
    client.good("PUT", shadow, rule(version=4))
    client.good("PUT", PATH, rule(version=4))  # this promotes it, too
    assert (stored(client), client.ask("GET", shadow)[0]) == ((4, True), 404)


def test_any_id_can_stand_in_a_path(client: Asker) -> None:
    for id in ("a b", "a/b", "ä€", "%2F", "..", "?x", "#", "a+b", "'\""):
        path = f"/processors/{quote(id, safe='')}"
        assert client.ask("PUT", path, rule(id))[0] == 201
        assert client.good("GET", path)["id"] == id
        assert client.ask("DELETE", path)[0] == 204


def test_what_is_no_etag_is_refused(client: Asker) -> None:
    client.good("PUT", PATH, rule())
    for tags in ("nope", "", '"a" "b"', '*, "a"', 'w/"a"', '"a'):
        for path, body in (("/processors", [rule()]), (PATH, rule())):
            for header in ("if_match", "if_none_match"):
                assert client.ask("GET", path, **{header: tags})[0] == 400
                assert client.ask("PUT", path, body, **{header: tags})[0] == 400


WRONG: list[tuple[str, str, Any, int]] = [
    ("GET", "/processors/", None, 404), ("GET", "/processors/a/b", None, 404), ("GET", "/etc/passwd", None, 404),
    ("GET", "/processors?x=1", None, 400), ("GET", "/processors/%ff", None, 400), ("POST", "/processors", b"[]", 405),
    ("DELETE", "/processors", None, 405), ("PUT", "/health", b"[]", 405), ("PATCH", "/processors/a", b"{}", 405),
    ("OPTIONS", "/processors", None, 405), ("HEAD", "/processors", None, 405), ("PUT", PATH, b"", 422),
    ("PUT", PATH, b"{", 422), ("PUT", PATH, b"[]", 422), ("PUT", PATH, b"{}", 422), ("PUT", PATH, {"id": "pair"}, 422),
    ("PUT", PATH, b'{"id": "pair", "id": "pair"}', 422), ("PUT", PATH, b"\xff", 422), ("PUT", PATH, rule("b"), 422),
    ("PUT", PATH, rule(enabled="yes"), 422), ("PUT", "/processors", b"{}", 422), ("PUT", "/processors", b"5", 422),
    ("PUT", f"{PATH}?x=1", rule(), 400), ("DELETE", f"{PATH}?", None, 400), ("PUT", "/processors", [5], 422),
    ("PUT", PATH, rule(sql="PATTERN (A B"), 422), ("PUT", PATH, rule(sql="PATTERN (A) DEFINE B AS price > 1"), 422),
    ("PUT", PATH, rule(sql="x" * 50_001), 422), ("PUT", PATH, rule(key=["user"]), 422),
    ("PUT", PATH, graph("pair", condition="price >"), 422), ("PUT", PATH, graph("pair", condition="price > (SELECT 1)"), 422),
    ("PUT", PATH, graph("pair", condition="LAST(other.price) > 1"), 422), ("PUT", PATH, graph("pair", key=["user AS u"]), 422),
    ("PUT", PATH, graph("pair", key=["(SELECT 1)"]), 422), ("PUT", PATH, graph("pair", select=["LAST(b.price)"]), 422),
]  # fmt: skip


def test_what_is_wrong_is_told_and_changes_nothing(client: Asker) -> None:
    for method, path, body, expected in WRONG:
        status, answer = client.ask(method, path, body)
        assert (status, bool(answer["error"]["message"])) == (expected, True), (method, path, body, answer)
    assert client.good("GET", "/processors") == {"processors": []}


def test_all_problems_of_a_rule_are_told(client: Asker) -> None:
    wrong = graph("pair", condition="LAST(other.price) >", key=["user AS u"], select=["LAST(b.price)"])
    status, answer = client.ask("PUT", PATH, wrong)
    assert (status, len(answer["problems"])) == (422, 3)
    assert answer["error"]["message"] == answer["problems"][0]["message"]


UNUSABLE: list[Any] = [
    rule(sql="PATTERN (A) DEFINE A AS amount > 1"),
    rule(sql="PATTERN (A) DEFINE A AS kind > INTERVAL '1' DAY"),
    graph("pair", condition="amount > 1"),
    graph("pair", condition="price LIKE 1 + user AND kind"),
    graph("pair", key=["client"], select=["LAST(second.amount) AS amount", "MAX(first.user + 1) AS m"]),
    {
        "id": "pair",
        "version": 1,
        "parameters": {"limit": "number"},
        "rows": [{"id": "uk", "limit": 5}],
        "sql": "PATTERN (A) DEFINE A AS amount > :limit",
    },
]


def test_a_rule_is_checked_with_the_columns_of_the_query(client: Asker) -> None:
    """Every door gives the answer of the check that `asterism rules validate` makes."""
    for item in UNUSABLE:
        with pytest.raises(InvalidProcessorError) as caught:
            checked_processors(item, schema_of(COLUMNS), Semantics.DEFAULT)
        expected = {"error": error_fields(caught.value), **caught.value.checked.to_dict()}
        assert client.ask("PUT", PATH, item) == (422, json.loads(json.dumps(expected)))
    status, body = client.ask("PUT", "/processors", [rule("a"), UNUSABLE[0]])
    assert (status, [refused["id"] for refused in body["refused"]]) == (422, ["pair"])
    assert client.good("GET", "/processors") == {"processors": []}
