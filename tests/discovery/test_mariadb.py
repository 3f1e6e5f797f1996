"""Rules in MariaDB, which speaks MySQL's protocol and dialect."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from asterism.discovery import SqlLookupSource, SqlPatternProcessorDiscovererFactory
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.rule_set import Addition
from asterism.discovery.sources.database import parsed_url
from asterism.errors import PatternProcessorError, RuleSourceError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import ProcessorRegistry
from tests.discovery.kit import INTERVAL, graph, rule, travelled, versions, watching
from tests.discovery.mariadb import MariadbServer
from tests.discovery.places import MariadbPlace
from tests.discovery.test_postgresql import DummyPatternProcessor


@pytest.fixture
def place(mariadb: MariadbServer, mariadb_database: str) -> MariadbPlace:
    return MariadbPlace(mariadb, mariadb_database)


def execute(place: MariadbPlace, *statements: str) -> list[Any]:
    rows: list[Any] = []
    with place.server.connect(place.name) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            rows = list(cursor.fetchall())
    return rows


def addition(version: int = 1, id: str = "a", **fields: Any) -> Addition:
    item = rule(id, version, **fields)
    return Addition(item, PatternProcessor.from_dict({k: v for k, v in item.items() if k not in ("enabled", "shadow")}))


def states(place: MariadbPlace) -> dict[tuple[str, int | None], str]:
    return {(one.id, one.version): one.state for one in rules_at(place.url).all()}


def test_rules_are_edited(place: MariadbPlace) -> None:
    kept = rules_at(place.url, by="ann")
    kept.add([addition(), addition(2, timestamp="2026-01-31T12:00:00.123456+00:00"), addition(1, "A")])
    assert states(place) == {("A", 1): "on", ("a", 1): "on", ("a", 2): "on"}
    [second, _] = [one for one in travelled(place.factory()).initial_pattern_processors() if one.id == "a"]
    assert isinstance(second, PatternProcessor)
    assert (second.timestamp, second.changed_by) == (datetime(2026, 1, 31, 12, 0, 0, 123456, UTC), "ann")
    assert kept.disable(["a"]) == ["a disabled"]
    assert versions(travelled(place.factory()).initial_pattern_processors()) == {"A": 1}
    kept.enable(["a"], 1)
    assert versions(travelled(place.factory()).initial_pattern_processors()) == {"A": 1, "a": 1}
    kept.add([Addition(rule("A", 2, shadow=True))])
    kept.promote(["A"])
    assert versions(travelled(place.factory()).initial_pattern_processors()) == {"A": 2, "a": 1}
    kept.remove(["A"])
    assert {id for id, _ in states(place)} == {"a"}
    with pytest.raises(PatternProcessorError, match="there is no"):
        kept.remove(["A"])


def test_long_texts_and_all_characters_are_kept(place: MariadbPlace) -> None:
    long = rule("long", pattern=graph(f"name IN ({', '.join(repr(f'n{number}') for number in range(12_000))}, 'é😀')"))
    place.write([long])
    assert travelled(place.factory()).initial_pattern_processors() == [PatternProcessor.from_dict(long)]


def test_the_tables_of_flip_200_and_of_lookups(place: MariadbPlace) -> None:
    name = "org.apache.flink.cep.processor.DummyPatternProcessor"
    execute(
        place,
        "CREATE TABLE rules (uid INT PRIMARY KEY, className TEXT, constructorParams JSON)",
        f"""INSERT INTO rules VALUES (1, '{name}', '{json.dumps([{"type": "int", "value": 7}])}')""",
        "CREATE TABLE limits (user VARCHAR(20) PRIMARY KEY, top DECIMAL(10, 2), since DATETIME(6), active BOOLEAN)",
        "INSERT INTO limits VALUES ('ann', 12.5, '2026-01-31 12:00:00.5', TRUE), ('bob', NULL, NULL, FALSE)",
    )
    registry = ProcessorRegistry({name: DummyPatternProcessor})
    factory = SqlPatternProcessorDiscovererFactory(place.url, "rules", registry=registry, interval=INTERVAL)
    assert factory.create_pattern_processor_discoverer().initial_pattern_processors() == [DummyPatternProcessor(7)]
    schema = pa.schema({"user": pa.string(), "top": pa.decimal128(10, 2), "active": pa.bool_()})
    limits = SqlLookupSource(place.url, "limits").read(schema).sort_by("user").to_pylist()
    assert limits == [
        {"user": "ann", "top": Decimal("12.50"), "active": True}, {"user": "bob", "top": None, "active": False},
    ]  # fmt: skip


def test_a_server_that_stops_and_starts_again(place: MariadbPlace) -> None:
    place.write([rule("a")])
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        place.server.stop()
        assert place.server.password not in str(manager.wait_for_failure())
        assert manager.updates == []
        place.server.start()
        place.write([rule("a", 2)])
        manager.wait_for({"a": 2})


def test_the_url_of_jdbc_is_read(place: MariadbPlace) -> None:
    place.write([rule("a")])
    server = place.server
    for kind in ("mysql", "mariadb"):
        url = f"jdbc:{kind}://127.0.0.1:{server.port}/{place.name}?user=rules&password={server.password}&useSSL=false"
        factory = SqlPatternProcessorDiscovererFactory(url, interval=INTERVAL)
        assert versions(travelled(factory).initial_pattern_processors()) == {"a": 1}
        assert server.password not in repr(factory)
    with pytest.raises(RuleSourceError, match="the option 'useSSL' of a JDBC URL is not supported"):
        parsed_url("jdbc:mysql://host/fraud?useSSL=true")
