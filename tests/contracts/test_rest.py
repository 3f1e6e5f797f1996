"""Both servers with the paths ``/processors`` answer alike: the endpoint of a query, and the console."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from asterism.console.application import ConsoleApplication
from asterism.discovery.http_application import Application
from asterism.discovery.rule_file import StoredRuleFile
from tests.console.kit import SOURCE_TOKEN, Asker, application, rule
from tests.discovery.kit import Manager


@pytest.fixture(params=["endpoint", "console", "console of a folder", "console of a database"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Asker:
    match request.param:
        case "endpoint":
            stored = StoredRuleFile(tmp_path / "set.json")
            endpoint = Application(SOURCE_TOKEN, stored, Manager(), threading.Event())
            return Asker(cast(ConsoleApplication, endpoint), SOURCE_TOKEN)
        case "console":
            (tmp_path / "rules.json").write_text("[]")
            return Asker(application(str(tmp_path / "rules.json")))
        case "console of a folder":
            (tmp_path / "rules").mkdir()
            return Asker(application(str(tmp_path / "rules")))
    from asterism.discovery import create_pattern_processor_table

    url = f"sqlite:///{tmp_path / 'rules.db'}"
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
