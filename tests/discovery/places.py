"""Where processors can be: what is written there, not by this library, and how the place goes away and comes back."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg
import pymysql
import yaml
from confluent_kafka import Producer

from asterism.discovery import (
    FilePatternProcessorDiscovererFactory,
    KafkaPatternProcessorDiscovererFactory,
    SqlPatternProcessorDiscovererFactory,
    UrlPatternProcessorDiscovererFactory,
    create_pattern_processor_table,
)
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from tests.discovery.kit import INTERVAL, Rule
from tests.discovery.mariadb import USER, MariadbServer
from tests.discovery.postgresql import Server
from tests.servers.kafka import SECONDS, Broker


class Place(ABC):
    secret: str | None = None
    """What may be shown nowhere."""

    @abstractmethod
    def factory(self, interval: timedelta = INTERVAL) -> PatternProcessorDiscovererFactory: ...

    @abstractmethod
    def write(self, rules: Sequence[Rule]) -> None:
        """All of them."""

    @abstractmethod
    def break_it(self) -> None: ...

    @abstractmethod
    def mend(self) -> None: ...

    def close(self) -> None:  # noqa: B027
        """It is not needed any more."""


class FilePlace(Place):
    """One file."""

    def __init__(self, folder: Path, name: str = "rules.json") -> None:
        self.path = folder / name

    def factory(self, interval: timedelta = INTERVAL) -> PatternProcessorDiscovererFactory:
        return FilePatternProcessorDiscovererFactory(self.path, interval=interval)

    def write(self, rules: Sequence[Rule]) -> None:
        text = yaml.safe_dump(list(rules)) if self.path.suffix == ".yaml" else json.dumps({"processors": list(rules)})
        self.path.write_text(text, encoding="utf-8")

    def break_it(self) -> None:
        self.path.rename(self.path.with_name("away"))

    def mend(self) -> None:
        self.path.with_name("away").rename(self.path)


class FolderPlace(Place):
    """A file for each rule."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rules"
        self.path.mkdir()

    def factory(self, interval: timedelta = INTERVAL) -> PatternProcessorDiscovererFactory:
        return FilePatternProcessorDiscovererFactory(self.path, interval=interval)

    def write(self, rules: Sequence[Rule]) -> None:
        texts = {f"{number}-{rule['id']}.json": json.dumps(rule) for number, rule in enumerate(rules)}
        for name, text in texts.items():
            (self.path / "new.tmp").write_text(text, encoding="utf-8")
            (self.path / "new.tmp").replace(self.path / name)
        for path in self.path.iterdir():
            if path.name not in texts:
                path.unlink()

    def break_it(self) -> None:
        self.path.rename(self.path.with_name("away"))

    def mend(self) -> None:
        self.path.with_name("away").rename(self.path)


class StorePlace(FolderPlace):
    """A folder that is read by its URI, as one in an object store is."""

    def factory(self, interval: timedelta = INTERVAL) -> PatternProcessorDiscovererFactory:
        return FilePatternProcessorDiscovererFactory(self.path.as_uri(), interval=interval)


def row(rule: Rule) -> tuple[object, ...]:
    lists = [None if rule.get(name) is None else json.dumps(rule[name]) for name in ("key", "select")]
    pattern = rule.get("pattern")
    pattern = pattern if pattern is None or isinstance(pattern, str) else json.dumps(pattern)
    enabled = rule.get("enabled", True)
    return (
        rule["id"],
        rule["version"],
        rule.get("timestamp"),
        lists[0],
        pattern,
        rule.get("sql"),
        lists[1],
        rule.get("function"),
        rule.get("shadow", False),
        enabled,
    )


INSERT = """INSERT INTO pattern_processors (id, version, timestamp, key, pattern, sql, "select", function, shadow,
            enabled) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class SqlitePlace(Place):
    def __init__(self, folder: Path) -> None:
        self.path = folder / "rules.db"
        self.url = f"sqlite:///{self.path}"
        create_pattern_processor_table(self.url)

    def factory(self, interval: timedelta = INTERVAL) -> PatternProcessorDiscovererFactory:
        return SqlPatternProcessorDiscovererFactory(self.url, interval=interval)

    def execute(self, *statements: tuple[str, Sequence[object]]) -> None:
        connection = sqlite3.connect(self.path, timeout=10)
        try:
            with connection:
                for text, values in statements:
                    connection.execute(text, values)
        finally:
            connection.close()

    def write(self, rules: Sequence[Rule]) -> None:
        self.execute(("DELETE FROM pattern_processors", ()), *((INSERT, row(rule)) for rule in rules))

    def break_it(self) -> None:
        self.path.rename(self.path.with_name("away"))

    def mend(self) -> None:
        self.path.with_name("away").rename(self.path)


class DatabasePlace(Place):
    """A database of a server."""

    def __init__(self, url: str, password: str) -> None:
        self.url, self.secret = url, password
        self.name = url.rpartition("/")[2]
        create_pattern_processor_table(self.url)

    def factory(self, interval: timedelta = INTERVAL) -> PatternProcessorDiscovererFactory:
        return SqlPatternProcessorDiscovererFactory(self.url, interval=interval)


class PostgresqlPlace(DatabasePlace):
    def __init__(self, server: Server, database: str) -> None:
        super().__init__(database, server.password)
        self.server = server

    def write(self, rules: Sequence[Rule]) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute("DELETE FROM pattern_processors")
            for rule in rules:
                connection.execute(INSERT.replace("?", "%s"), row(rule))

    def break_it(self) -> None:
        self._administer(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS false")
        self.kill_connections()

    def mend(self) -> None:
        self._administer(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS true")

    def kill_connections(self) -> int:
        """How many there were."""
        with self.server.connect("postgres") as connection:
            kill = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
            return len(connection.execute(kill, (self.name,)).fetchall())

    def _administer(self, statement: str) -> None:
        with self.server.connect("postgres") as connection:
            connection.execute(statement)


class MariadbPlace(DatabasePlace):
    def __init__(self, server: MariadbServer, database: str) -> None:
        super().__init__(database, server.password)
        self.server = server

    def write(self, rules: Sequence[Rule]) -> None:
        insert = INSERT.replace("?", "%s").replace(" sql,", ' "sql",').replace(" key,", ' "key",')
        connection = self.server.connect(self.name)
        with connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = 'ANSI_QUOTES'")
            connection.begin()
            cursor.execute("DELETE FROM pattern_processors")
            for rule in rules:
                cursor.execute(insert, row(rule))
            connection.commit()

    def break_it(self) -> None:
        self._administer(f"ALTER USER '{USER}'@'%' ACCOUNT LOCK")

    def mend(self) -> None:
        self._administer(f"ALTER USER '{USER}'@'%' ACCOUNT UNLOCK")

    def close(self) -> None:
        self.mend()

    def _administer(self, statement: str) -> None:
        with (
            pymysql.connect(unix_socket=str(self.server.socket), user="root") as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            cursor.execute("SELECT id FROM information_schema.processlist WHERE user = %s", (USER,))
            for (id,) in cursor.fetchall():
                with suppress(pymysql.OperationalError):  # it has ended
                    cursor.execute(f"KILL {id}")


class UrlPlace(Place):
    """A web server that gives ETags and wants a password."""

    secret = "swordfish-0123456789"

    def __init__(self) -> None:
        self.text = b'{"processors": []}'
        self.broken = False
        self.statuses: list[int] = []
        place = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                tag = f'"{hash(place.text)}"'
                if place.broken:
                    self.answer(503, b"no")
                elif self.headers.get("Authorization") != f"Bearer {place.secret}":
                    self.answer(401, b"who?")
                elif self.headers.get("If-None-Match") == tag:
                    self.answer(304, b"")
                else:
                    self.answer(200, place.text, tag)

            def answer(self, status: int, text: bytes, tag: str = "") -> None:
                place.statuses.append(status)
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                if tag:
                    self.send_header("ETag", tag)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/rules.json"

    def factory(self, interval: timedelta = INTERVAL) -> PatternProcessorDiscovererFactory:
        headers = {"Authorization": f"Bearer {self.secret}"}
        return UrlPatternProcessorDiscovererFactory(self.url, headers=headers, interval=interval)

    def write(self, rules: Sequence[Rule]) -> None:
        self.text = json.dumps({"processors": list(rules)}).encode()

    def break_it(self) -> None:
        self.broken = True

    def mend(self) -> None:
        self.broken = False

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class TopicPlace(Place):
    """A compacted topic, whose records are those of a transaction for each set."""

    secret = "swordfish-0123456789"

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self._producer = Producer(
            {"bootstrap.servers": broker.address, "transactional.id": topic, "log_level": 0, "linger.ms": 0}
        )
        self._producer.init_transactions(SECONDS)
        self._keys: set[str] = set()
        self.mend()

    def factory(self, interval: timedelta = INTERVAL) -> PatternProcessorDiscovererFactory:
        options = {"sasl.password": self.secret, "security.protocol": "PLAINTEXT"}
        return KafkaPatternProcessorDiscovererFactory(
            self.broker.address, self.topic, interval=interval, options=options
        )

    def write(self, rules: Sequence[Rule]) -> None:
        """Each version and shadow of a rule has a key of its own."""
        values = {f"{rule['id']}@{rule['version']}": json.dumps(rule) for rule in rules}
        self._producer.begin_transaction()
        for key in sorted(self._keys | values.keys()):
            self._producer.produce(self.topic, values.get(key), key, hash(key) % 2)
        self._producer.commit_transaction(SECONDS)
        self._keys = {*values}

    def break_it(self) -> None:
        self.broker.delete_topic(self.topic)
        self._keys = set()

    def mend(self) -> None:
        self.broker.create_topic(self.topic, 2, {"cleanup.policy": "compact"})


def touch(path: Path) -> None:
    """Other times, the same content."""
    os.utime(path, (1_000_000_000, 1_000_000_000))
