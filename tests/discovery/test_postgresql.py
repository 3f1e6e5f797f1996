"""The SQL discoverer on a real PostgreSQL."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from asterism import Pattern
from asterism.discovery import SqlPatternProcessorDiscovererFactory, create_pattern_processor_table
from asterism.discovery.sources import sql_table as module
from asterism.discovery.sources.database import Database, parsed_url
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import ProcessorRegistry
from tests.discovery.kit import INTERVAL, Manager, graph, refused, rule, travelled, versions, watching
from tests.discovery.places import PostgresqlPlace
from tests.discovery.postgresql import USER, Server

GRAPH = json.dumps(graph())


@pytest.fixture
def place(postgresql: Server, database: str) -> PostgresqlPlace:
    return PostgresqlPlace(postgresql, database)


def execute(place: PostgresqlPlace, statement: str, *values: Any) -> None:
    with psycopg.connect(place.url) as connection:
        connection.execute(statement, values)


class DummyPatternProcessor:
    """The class of FLIP-200's example: it has one parameter, an int."""

    def __new__(cls, a: int) -> PatternProcessor:  # type: ignore[misc]
        return PatternProcessor(f"dummy-{a}", 1, Pattern.begin("event").where(f"a = {a}"))


def test_the_example_of_flip_200(place: PostgresqlPlace) -> None:
    """Its table, with its class, and what its users do with it: add, change and remove rows while the query runs."""
    execute(place, 'CREATE TABLE rules (uid INT PRIMARY KEY, "className" TEXT, "constructorParams" JSONB)')
    name = "org.apache.flink.cep.processor.DummyPatternProcessor"

    def put(uid: int, value: int) -> None:
        params = json.dumps([{"type": "int", "value": value}])
        insert = 'INSERT INTO rules VALUES (%s, %s, %s) ON CONFLICT (uid) DO UPDATE SET "constructorParams" = %s'
        execute(place, insert, uid, name, params, params)

    put(1, 0)
    put(2, 1)
    registry = ProcessorRegistry({name: DummyPatternProcessor})
    factory = SqlPatternProcessorDiscovererFactory(place.url, "rules", registry=registry, interval=INTERVAL)
    discoverer = travelled(factory)
    initial = discoverer.initial_pattern_processors()
    assert initial == [DummyPatternProcessor(0), DummyPatternProcessor(1)]
    with watching(discoverer) as manager:
        put(3, 7)
        manager.wait_for({"dummy-0": 1, "dummy-1": 1, "dummy-7": 1})
        put(1, 5)
        manager.wait_for({"dummy-5": 1, "dummy-1": 1, "dummy-7": 1})
        execute(place, 'INSERT INTO rules VALUES (9, \'os.system\', \'[{"type": "string", "value": "true"}]\')')
        execute(place, "DELETE FROM rules WHERE uid = 2")
        found = manager.wait_for({"dummy-5": 1, "dummy-7": 1})
        assert [one.id for one in refused(found)] == ["uid 9"]


def test_a_killed_connection_is_not_noticed(place: PostgresqlPlace) -> None:
    """The pool tries it before it is used."""
    place.write([rule("a")])
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        for version in (2, 3, 4):
            killed = 0
            while not killed:  # between two looks there is one that rests, during one there is one that works
                killed = place.kill_connections()
            place.write([rule("a", version)])
            manager.wait_for({"a": version})


def test_a_server_that_stops_and_starts_again(place: PostgresqlPlace) -> None:
    place.write([rule("a")])
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        place.server.stop()
        error = manager.wait_for_failure()
        manager.wait_for_failure()
        assert isinstance(error, PatternProcessorError)
        assert place.server.password not in str(error)
        assert manager.updates == []
        place.server.start()
        place.write([rule("a", 2)])
        manager.wait_for({"a": 2})


def test_after_failures_it_asks_less_often(place: PostgresqlPlace) -> None:
    place.break_it()
    discoverer = travelled(place.factory())
    times: list[float] = []

    class Clock(Manager):
        def on_discovery_failed(self, error: Exception) -> None:
            times.append(time.monotonic())
            if len(times) == 5:
                discoverer.close()

    discoverer.discover_pattern_processor_updates(Clock())
    place.mend()
    waits = [after - before for before, after in pairwise(times)]
    assert all(wait >= INTERVAL.total_seconds() * 2**n for n, wait in enumerate(waits, 1))


def test_columns_of_other_types(place: PostgresqlPlace) -> None:
    execute(
        place,
        """CREATE TABLE rules (id VARCHAR, version BIGINT, "timestamp" TIMESTAMP, key JSONB, pattern JSON, "select" JSON,
                               enabled INT, notes TEXT)""",
    )
    insert = "INSERT INTO rules VALUES (%s, %s, %s, %s, %s, %s, %s)"
    execute(place, insert, "a", 3, datetime(2026, 1, 31, 12), '["user"]', GRAPH, '["LAST(a.x)"]', 1)
    execute(place, insert, "b", 1, None, None, GRAPH, None, 0)
    execute(place, insert, "c", 1, None, "5", '"text"', None, None)
    discoverer = travelled(SqlPatternProcessorDiscovererFactory(place.url, "rules", interval=INTERVAL))
    a, *others = discoverer.initial_pattern_processors()
    assert isinstance(a, PatternProcessor)
    assert (a.version, a.timestamp, a.key, a.select) == (
        3,
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        ("user",),
        ("LAST(a.x)",),
    )
    assert [one.id for one in refused(others)] == ["c"]


@pytest.mark.parametrize("value", ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"])
def test_a_time_that_python_does_not_know_is_refused_alone(place: PostgresqlPlace, value: str) -> None:
    place.write([rule("a", timestamp=value), rule("b", timestamp="2026-01-31 12:00:00+01")])
    found = travelled(place.factory()).initial_pattern_processors()
    assert versions(found) == {"b": 1}
    assert found[0].timestamp == datetime(2026, 1, 31, 11, tzinfo=UTC)  # type: ignore[union-attr]


def test_a_table_in_a_schema_and_a_view(place: PostgresqlPlace) -> None:
    execute(place, "CREATE SCHEMA fraud")
    create_pattern_processor_table(place.url, "fraud.rules")
    execute(place, "INSERT INTO fraud.rules (id, version, pattern) VALUES ('a', 1, %s), ('b', 1, %s)", GRAPH, GRAPH)
    execute(place, "CREATE VIEW mine AS SELECT * FROM fraud.rules WHERE id = 'a'")
    for table, expected in (("fraud.rules", {"a": 1, "b": 1}), ("mine", {"a": 1})):
        factory = SqlPatternProcessorDiscovererFactory(place.url, table, interval=INTERVAL)
        assert versions(travelled(factory).initial_pattern_processors()) == expected


def test_it_needs_to_read_only(place: PostgresqlPlace) -> None:
    place.write([rule("a")])
    with place.server.connect("postgres") as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'reader'").fetchone():
            connection.execute("CREATE ROLE reader LOGIN PASSWORD 'p@ss/word%20'")
    execute(place, "GRANT SELECT ON pattern_processors TO reader")
    url = place.url.replace(f"{USER}:{place.server.password}", "reader:p%40ss%2Fword%2520")
    factory = SqlPatternProcessorDiscovererFactory(url, interval=INTERVAL)
    assert versions(travelled(factory).initial_pattern_processors()) == {"a": 1}
    with pytest.raises(PatternProcessorError, match="cannot be used"):
        create_pattern_processor_table(url, "pg_catalog.mine")


def test_a_change_of_any_column_is_seen_and_only_its_rows_are_sent(place: PostgresqlPlace) -> None:
    place.write([rule(f"r{n}") for n in range(20)])
    discoverer = module.SqlDiscoverer(Database(parsed_url(place.url)), module.TABLE, INTERVAL, ProcessorRegistry())
    before = {one.id: one for one in discoverer.initial_pattern_processors()}
    for column, value in (
        ("version", 2), ("timestamp", "2026-01-31"), ("key", "user"), ("pattern", json.dumps(graph("x = 1"))),
        ("select", "LAST(a.x)"), ("timed_out", True), ("max_partial_matches", 7),
        ("labels", '{"owner": "ann"}'), ("suppress", "1 hour"), ("expires", "2030-01-31"), ("enabled", False),
    ):  # fmt: skip
        execute(place, f"""UPDATE pattern_processors SET "{column}" = %s WHERE id = 'r7'""", value)
        with discoverer.database.read() as connection:
            found = discoverer._from_postgresql(connection)
            assert found is not None
            assert [row["id"] for row in found[3]] == ["r7"]
        after = {one.id: one for one in discoverer.poll() or []}
        assert after.get("r7") != before["r7"]
        assert all(after[id] is before[id] for id in before if id != "r7")
        before = {**before, **after}
        assert discoverer.poll() is None
    discoverer.database.close()


def test_too_much_text_interrupts(place: PostgresqlPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if only a part of it is new."""
    place.write([rule("a")])
    discoverer = travelled(place.factory())
    monkeypatch.setattr(module, "MAX_TOTAL", 2 * len(GRAPH))
    assert versions(discoverer.initial_pattern_processors()) == {"a": 1}
    with watching(discoverer) as manager:
        place.write([rule("a"), rule("b")])
        assert "characters in its rules" in str(manager.wait_for_failure())
        place.write([rule("b")])
        manager.wait_for({"b": 1})


def test_two_changes_in_one_transaction_are_seen_together(place: PostgresqlPlace) -> None:
    place.write([rule("a"), rule("b")])
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        for version in range(2, 20):
            place.write([rule("a", version), rule("b", version)])
        manager.wait_for({"a": 19, "b": 19})
        assert all(len(set(versions(found).values())) == 1 and len(found) == 2 for found in manager.updates)
