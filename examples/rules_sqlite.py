"""Rules in a SQLite database that change while a query runs.

A bank monitors the payments of its cards. The first rule groups them by card. While the query runs, a second rule is inserted
into the database, which groups the same payments by terminal. From then on both rules are evaluated, without a restart.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from asterism import CEP, AfterMatchSkipStrategy, KeyedStream, Pattern
from asterism.discovery import SqlPatternProcessorDiscovererFactory, create_pattern_processor_table

PAYMENT = "card STRING, terminal STRING, time TIMESTAMP, amount DOUBLE"

SMALL_THEN_LARGE = (
    Pattern.begin("small")
    .where("amount < 2")
    .followed_by("large")
    .where("amount > 500")
    .within(timedelta(minutes=10))
)  # fmt: skip
"""A small payment to test a stolen card, then a large one."""

MANY_LARGE = (
    Pattern.begin("large", AfterMatchSkipStrategy.skip_past_last_event())
    .where("amount > 300")
    .times(3)
    .consecutive()
    .within(timedelta(minutes=10))
)
"""Three large payments in a row."""


class Rules:
    """The database, as the authors of rules use it."""

    def __init__(self, file: Path) -> None:
        self.file, self.url = file, f"sqlite:///{file}"
        create_pattern_processor_table(self.url)

    def add(self, name: str, pattern: Pattern, *, key: str, select: list[str]) -> None:
        connection = sqlite3.connect(self.file)
        with connection:
            connection.execute(
                'INSERT INTO pattern_processors (id, version, key, pattern, "select") VALUES (?, 1, ?, ?, ?)',
                (name, key, pattern.to_json(), json.dumps(select)),
            )
        connection.close()


# ------------------------------------------------------------------ the running query


@dataclass
class Bank:
    """The folder that the query reads, and the matches."""

    folder: Path
    files: int = 0

    def __post_init__(self) -> None:
        self.alarms: list[dict[str, Any]] = []
        (self.folder / "payments").mkdir()

    def start(self, spark: SparkSession, rules: Rules) -> StreamingQuery:
        def gather(rows: DataFrame, batch_id: int) -> None:
            self.alarms += rows.toArrow().to_pylist()

        payments = spark.readStream.schema(PAYMENT).json(str(self.folder / "payments"))
        alarms = CEP.pattern_processors(
            KeyedStream(payments, key="card", time="time"),
            SqlPatternProcessorDiscovererFactory(rules.url, interval=timedelta(milliseconds=100)),
            store=str(self.folder / "rules"),
            key_groups=2,
        )
        self.status = alarms.status
        query = alarms.run(
            {"matches": gather},
            checkpoint=str(self.folder / "checkpoint"),
            trigger={"processingTime": "100 milliseconds"},
        )
        assert query is not None
        return query

    def wait_for(self, rules: dict[str, int], query: StreamingQuery) -> None:
        """Wait until these versions are in force."""
        while self.status().processors != rules:
            assert query.isActive, query.exception()
            time.sleep(0.05)
        query.processAllAvailable()

    def pay(self, *payments: tuple[int, str, str, float]) -> None:
        """Write a file with payments (minute, card, terminal, amount), then move it so that Spark reads complete files."""
        rows = [
            {
                "card": card,
                "terminal": terminal,
                "time": (NOON + timedelta(minutes=minute)).isoformat(),
                "amount": amount,
            }
            for minute, card, terminal, amount in payments
        ]
        self.files += 1
        file = self.folder / f"{self.files}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        file.replace(self.folder / "payments" / file.name)


NOON = datetime(2025, 3, 3, 12, tzinfo=UTC)


def watch(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    """Payments, a new rule, and more payments."""
    rules, bank = Rules(folder / "rules.db"), Bank(folder)
    rules.add(
        "small, then large", SMALL_THEN_LARGE, key="card", select=["small.amount AS small", "large.amount AS large"]
    )
    query = bank.start(spark, rules)
    try:
        bank.pay(
            (0, "ann", "north", 1.5), (1, "bob", "south", 40.0), (2, "ann", "south", 650.5), (3, "cid", "south", 1.25)
        )
        query.processAllAvailable()
        rules.add("many large ones", MANY_LARGE, key="terminal", select=["SUM(large.amount) AS total"])
        bank.wait_for({"many large ones": 1, "small, then large": 1}, query)
        bank.pay(
            (4, "dora", "east", 310.25),
            (5, "eve", "east", 420.0),
            (6, "cid", "north", 900.5),
            (7, "fay", "east", 330.0),
        )
        bank.pay((30, "gus", "west", 10.0))  # advances event time
        query.processAllAvailable()
    finally:
        query.stop()
    return sorted(bank.alarms, key=lambda alarm: alarm["end_time"])


# ------------------------------------------------------------------ the program


def show(console: Console, alarms: Iterable[dict[str, Any]]) -> None:
    table = Table("Time", "Rule", "Version", "Key", "")
    for alarm in alarms:
        measures = ", ".join(f"{name} {value}" for name, value in alarm["measures"])
        version = str(alarm["processor_version"])
        table.add_row(f"{alarm['end_time']:%H:%M}", alarm["processor_id"], version, *alarm["key"], measures)
    console.print(table)


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("rules in SQLite")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        alarms = watch(spark, Path(folder))
    spark.stop()
    show(Console(), alarms)


if __name__ == "__main__":
    main()
