"""Templates in files, tables and over HTTP: their rules are found, and a changed row changes one rule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from asterism.discovery import SqlPatternProcessorDiscovererFactory
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.sources import sql_table
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import Discovered
from tests.discovery.kit import INTERVAL, graph, refused, rule, travelled, versions, watching
from tests.discovery.places import FilePlace, PostgresqlPlace, SqlitePlace
from tests.discovery.test_http import endpoint

GRAPH = graph("price > :limit AND item = :item")
KINDS = {"limit": "number", "item": {"type": "string", "default": "tea"}}
ROWS = [{"id": "eu", "limit": 5}, {"id": "us", "limit": 7.5, "item": "it's"}]


def template(*rows: Any, id: str = "high", **fields: Any) -> dict[str, Any]:
    return {"id": id, "version": 1, "parameters": KINDS, "pattern": GRAPH, "rows": list(rows)} | fields


def conditions(found: Sequence[Discovered]) -> dict[str, str]:
    return {
        one.id: one.to_dict()["pattern"]["nodes"][0]["condition"]["expression"]
        for one in found
        if isinstance(one, PatternProcessor)
    }


CONDITIONS = {"high/eu": "price > 5 AND item = 'tea'", "high/us": "price > 7.5 AND item = 'it\\'s'"}


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_in_a_file(suffix: str, tmp_path: Path) -> None:
    place = FilePlace(tmp_path, f"rules.{suffix}")
    place.write([template(*ROWS), rule("other")])
    discoverer = travelled(place.factory())
    before = discoverer.initial_pattern_processors()
    assert conditions(before) == CONDITIONS | {"other": "price > 1"}
    with watching(discoverer) as manager:
        place.write([template(ROWS[0], ROWS[1] | {"limit": 8}), rule("other")])
        manager.wait(lambda: manager.updates)
        assert conditions(manager.last)["high/us"] == "price > 8 AND item = 'it\\'s'"
        # What has not changed is not even read again.
        same = {one.id: one for one in before}
        assert [one.id for one in manager.last if one is same.get(one.id)] == ["high/eu", "other"]
        place.write([template({"id": "eu", "limit": "many"}, ROWS[1])])
        manager.wait(lambda: len(manager.updates) > 1)
        assert [(one.id, one.unidentified) for one in refused(manager.last)] == [("high/eu", False)]


# ---------------------------------------------------------------------- tables


class Tables:
    """A table of rules, and one of rows."""

    def __init__(self, place: SqlitePlace | PostgresqlPlace) -> None:
        self.place = place
        self.url = place.url

    def execute(self, text: str, *values: object) -> None:
        if isinstance(self.place, SqlitePlace):
            self.place.execute((text, values))
            return
        with psycopg.connect(self.url) as connection:
            connection.execute(text.replace("?", "%s"), values)

    def add(self, item: dict[str, Any]) -> None:
        texts = [json.dumps(item[name]) if name in item else None for name in ("parameters", "rows", "pattern")]
        statement = "INSERT INTO pattern_processors (id, version, parameters, rows, pattern) VALUES (?, ?, ?, ?, ?)"
        self.execute(statement, item["id"], item["version"], *texts)

    def create_rows(self) -> None:
        number = "DOUBLE PRECISION" if isinstance(self.place, SqlitePlace) else "NUMERIC(10, 2)"
        self.execute(
            f'CREATE TABLE pattern_processors_rows (template TEXT, id TEXT, "limit" {number}, item TEXT, x TEXT)'
        )


@pytest.fixture(params=["sqlite", "postgresql"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    if request.param == "sqlite":
        yield Tables(SqlitePlace(tmp_path))
    else:
        yield Tables(PostgresqlPlace(request.getfixturevalue("postgresql"), request.getfixturevalue("database")))


def test_in_a_table_with_its_rows(tables: Tables) -> None:
    tables.add(template(*ROWS))
    found = travelled(SqlPatternProcessorDiscovererFactory(tables.url)).initial_pattern_processors()
    assert conditions(found) == CONDITIONS


def test_rows_in_a_second_table(tables: Tables) -> None:
    without_rows = {name: value for name, value in template().items() if name != "rows"}
    tables.add(without_rows)
    tables.add(without_rows | {"id": "empty"})
    discoverer = travelled(SqlPatternProcessorDiscovererFactory(tables.url, interval=INTERVAL))
    found = discoverer.initial_pattern_processors()
    assert [(one.id, one.unidentified) for one in refused(found)] == [("empty", True), ("high", True)]
    assert "a template needs rows" in str(refused(found)[0])
    with watching(discoverer) as manager:
        tables.create_rows()
        manager.wait(lambda: manager.updates and not refused(manager.last))
        assert manager.last == []
        tables.execute(
            "INSERT INTO pattern_processors_rows VALUES ('high', 'us', 7.5, ?, 'x'), ('none', 'us', 1, '', '')", "it's"
        )
        manager.wait(lambda: len(manager.last) == 1)
        tables.execute("INSERT INTO pattern_processors_rows VALUES ('high', 'eu', 5, NULL, NULL)")
        manager.wait(lambda: len(manager.last) == 2)
        assert conditions(manager.last) == CONDITIONS
        before = versions(manager.last)
        same = {one.id: one for one in manager.last}
        manager.wait_for_polls()
        tables.execute("""UPDATE pattern_processors_rows SET "limit" = 6 WHERE id = 'eu'""")
        manager.wait(lambda: conditions(manager.last)["high/eu"] == "price > 6 AND item = 'tea'")
        assert versions(manager.last)["high/us"] == before["high/us"]
        assert versions(manager.last)["high/eu"] != before["high/eu"]
        assert [one.id for one in manager.last if one is same[one.id]] == ["high/us"]
        tables.execute("INSERT INTO pattern_processors_rows VALUES ('high', NULL, 5, NULL, NULL)")
        manager.wait(lambda: [one.unidentified for one in refused(manager.last)] == [True])
        tables.execute("DELETE FROM pattern_processors WHERE id = 'high'")
        manager.wait(lambda: manager.last == [])
        assert manager.failures == []


def test_the_second_table_is_read_only_if_a_template_needs_it(tables: Tables) -> None:
    tables.execute("CREATE TABLE pattern_processors_rows (something TEXT)")
    tables.add(template(*ROWS))
    factory = SqlPatternProcessorDiscovererFactory(tables.url)
    assert conditions(travelled(factory).initial_pattern_processors()) == CONDITIONS
    tables.execute("UPDATE pattern_processors SET rows = NULL")
    with pytest.raises(PatternProcessorError, match="is not a table of the rows of templates"):
        travelled(factory).initial_pattern_processors()


def test_a_change_that_could_not_be_read_is_read_later(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.add({name: value for name, value in template().items() if name != "rows"})
    tables.create_rows()
    tables.execute("INSERT INTO pattern_processors_rows VALUES ('high', 'eu', 5, NULL, NULL)")
    discoverer = travelled(SqlPatternProcessorDiscovererFactory(tables.url))
    assert isinstance(discoverer, sql_table.SqlDiscoverer)
    assert discoverer.check_pattern_processor_update()
    tables.execute("""UPDATE pattern_processors_rows SET "limit" = 6""")
    with monkeypatch.context() as patch:
        patch.setattr(sql_table, "processors_of", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            discoverer.check_pattern_processor_update()
    assert discoverer.check_pattern_processor_update()
    assert conditions(discoverer.latest_pattern_processors()) == {"high/eu": "price > 6 AND item = 'tea'"}
    assert not discoverer.check_pattern_processor_update()
    discoverer.database.close()


def test_a_row_whose_template_cannot_be_read_removes_nothing(tables: Tables) -> None:
    tables.add(template(*ROWS))
    tables.execute("UPDATE pattern_processors SET pattern = '{', parameters = '['")
    [found] = refused(travelled(SqlPatternProcessorDiscovererFactory(tables.url)).initial_pattern_processors())
    assert (found.id, found.unidentified) == ("high", True)


def test_of_a_template_the_highest_enabled_version_counts(tables: Tables) -> None:
    tables.add(template(*ROWS))
    tables.add(template(ROWS[0], version=2))
    assert [rule.id for rule in rules_at(tables.url).all()] == ["high/eu"]
    tables.execute("UPDATE pattern_processors SET enabled = false WHERE version = 2")
    assert [(rule.id, rule.state) for rule in rules_at(tables.url).all()] == [("high/eu", "on"), ("high/us", "on")]
    tables.execute("UPDATE pattern_processors SET enabled = false")
    assert [(rule.id, rule.state) for rule in rules_at(tables.url).all()] == [("high/eu", "off")]


# ---------------------------------------------------------------------- over HTTP


def test_over_http(tmp_path: Path) -> None:
    with endpoint(tmp_path) as (client, manager):
        assert client.ask("PUT", "/processors/high", template(*ROWS))[0] == 201
        manager.wait(lambda: manager.updates and len(manager.last) == 2)
        before = versions(manager.last)
        changed = template(ROWS[0], ROWS[1] | {"limit": 8})
        assert client.status("PUT", "/processors/high", changed) == 200
        manager.wait(lambda: versions(manager.last) != before)
        assert versions(manager.last)["high/eu"] == before["high/eu"]
        assert client.ask("GET", "/processors/high")[1] == changed
        assert client.status("PUT", "/processors/other", rule("other")) == 201
        assert client.ask("GET", "/health")[1]["processors"] == 3
        status, answer, _ = client.ask("PUT", "/processors/high", template({"id": "eu", "limit": "many"}))
        assert status == 422
        expected = "template 'high', row 'eu': the parameter 'limit' must be a number, not 'many'"
        assert answer["error"]["message"] == expected
        status, answer, _ = client.ask(
            "PUT", "/processors/high", template(*ROWS, pattern=graph("price > :limit AND f(:item)"))
        )
        assert status == 422
        assert answer["error"]["message"] == "high/eu: pattern: a: condition: unknown function f"
        assert client.status("PUT", "/processors/high%2Feu", rule("high/eu")) == 422
        others = [rule("low/eu"), template(*ROWS, id="low"), rule("b")]
        status, answer, _ = client.ask("PUT", "/processors", others)
        assert (status, answer["error"]["message"]) == (422, "two processors have the id 'low/eu'")
