"""Rules in a PostgreSQL database: one is added, one gets another version, one is disabled, while a query runs.

The environment variable RULES_URL selects the database; the default is ``postgresql://rules@localhost/rules``. The rules are
in the table ``example_rules``, which is created again by each run.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from asterism import CEP, KeyedStream, Pattern
from asterism.discovery import SqlPatternProcessorDiscovererFactory, create_pattern_processor_table

URL = os.environ.get("RULES_URL", "postgresql://rules@localhost/rules")
TABLE = "example_rules"
CLICK = "customer STRING, product STRING, time TIMESTAMP, action STRING"


def actions(*names: str) -> Pattern:
    """The actions in this order, within an hour, with any events in between."""
    pattern = Pattern.begin(names[0]).where(f"action = '{names[0]}'")
    for name in names[1:]:
        pattern = pattern.followed_by(name).where(f"action = '{name}'")
    return pattern.within(timedelta(hours=1))


class Rules:
    """The database, as the authors of rules use it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
        self.execute(f"DROP TABLE IF EXISTS {TABLE}")
        create_pattern_processor_table(url, TABLE)

    def execute(self, statement: str, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.text(statement), values)

    def add(self, name: str, version: int, pattern: Pattern, *, key: str) -> None:
        """The highest enabled version of a rule is used."""
        statement = f"INSERT INTO {TABLE} (id, version, key, pattern) VALUES (:name, :version, :key, :pattern)"
        self.execute(statement, name=name, version=version, key=key, pattern=pattern.to_json())

    def disable(self, name: str) -> None:
        self.execute(f"UPDATE {TABLE} SET enabled = false WHERE id = :name", name=name)

    def close(self) -> None:
        self.execute(f"DROP TABLE {TABLE}")
        self.engine.dispose()


# ------------------------------------------------------------------ the running query


@dataclass
class Shop:
    """The folder that the query reads, and the matches."""

    folder: Path
    files: int = 0

    def __post_init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        (self.folder / "clicks").mkdir()

    def start(self, spark: SparkSession, rules: Rules) -> StreamingQuery:
        def gather(rows: DataFrame, batch_id: int) -> None:
            self.found += rows.toArrow().to_pylist()

        matches = CEP.pattern_processors(
            KeyedStream(spark.readStream.schema(CLICK).json(str(self.folder / "clicks")), key="customer", time="time"),
            SqlPatternProcessorDiscovererFactory(rules.url, TABLE, interval=timedelta(milliseconds=100)),
            store=str(self.folder / "rules"),
            key_groups=2,
        )
        self.status = matches.status
        self.query = matches.run(
            {"matches": gather},
            checkpoint=str(self.folder / "checkpoint"),
            trigger={"processingTime": "100 milliseconds"},
        )
        assert self.query is not None
        return self.query

    def wait_for(self, **rules: int) -> None:
        """Wait until these versions are in force."""
        assert self.query is not None
        while self.status().processors != rules:
            assert self.query.isActive, self.query.exception()
            time.sleep(0.05)
        self.query.processAllAvailable()

    def click(self, *clicks: tuple[int, str, str, str]) -> None:
        """Write a file with clicks (minute, customer, product, action) and wait until they have been processed."""
        assert self.query is not None
        rows = [
            {
                "customer": customer,
                "product": product,
                "time": (NOON + timedelta(minutes=minute)).isoformat(),
                "action": action,
            }
            for minute, customer, product, action in clicks
        ]
        self.files += 1
        file = self.folder / f"{self.files}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        file.replace(self.folder / "clicks" / file.name)  # so that Spark never reads a partial file
        self.query.processAllAvailable()


NOON = datetime(2025, 3, 3, 12, tzinfo=UTC)


def watch(spark: SparkSession, folder: Path, url: str) -> list[dict[str, Any]]:
    """Run three days with changing rules."""
    rules, shop = Rules(url), Shop(folder)
    rules.add("bought", 1, actions("view", "buy"), key="customer")
    query = shop.start(spark, rules)
    try:
        shop.wait_for(bought=1)
        shop.click(
            (0, "ann", "lamp", "view"),
            (1, "bob", "sofa", "view"),
            (2, "ann", "lamp", "buy"),
            (3, "cid", "sofa", "view"),
        )

        rules.add("bought", 2, actions("view", "cart", "buy"), key="customer")
        rules.add("wanted", 1, actions("view", "cart"), key="product")
        shop.wait_for(bought=2, wanted=1)
        # bob's earlier clicks belong to the first version, which has been removed.
        shop.click(
            (4, "bob", "sofa", "buy"),
            (5, "dora", "lamp", "view"),
            (6, "eve", "lamp", "cart"),
            (7, "dora", "lamp", "cart"),
        )

        rules.disable("wanted")
        shop.wait_for(bought=2)
        shop.click(
            (8, "dora", "lamp", "buy"), (9, "fay", "vase", "view"), (10, "gus", "vase", "cart"), (99, "-", "-", "-")
        )
    finally:
        query.stop()
        rules.close()
    return sorted(shop.found, key=lambda match: (match["end_time"], match["processor_id"]))


# ------------------------------------------------------------------ the program


def show(console: Console, matches: Iterable[dict[str, Any]]) -> None:
    table = Table("Time", "Rule", "Version", "Key", "Actions")
    for match in matches:
        told = ", ".join(f"{one['event']['customer']}: {one['stage']}" for one in match["events"])
        version = str(match["processor_version"])
        table.add_row(f"{match['end_time']:%H:%M}", match["processor_id"], version, *match["key"], told)
    console.print(table)


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("rules in PostgreSQL")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        matches = watch(spark, Path(folder), URL)
    spark.stop()
    show(Console(), matches)


if __name__ == "__main__":
    main()
