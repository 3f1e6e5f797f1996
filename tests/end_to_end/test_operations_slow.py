"""The instructions of docs/operations.md for a query that has failed or falls behind, executed with their commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import asterism
from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream, Pattern, PatternProcessor
from asterism.errors import AsterismError, SinkError
from asterism.sinks import FileSink, SqlSink
from tests.kit import ROOT

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
EVENTS = "ts TIMESTAMP, user STRING, kind STRING"
BOUGHT = Pattern.begin("cart").where("kind = 'cart'").followed_by("buy").where("kind = 'buy'")
PENDING = Pattern.begin("cart").where("kind = 'cart'").followed_by("refund").where("kind = 'refund'")


def section(title: str) -> str:
    [found] = re.findall(rf"^## {title}\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    return found


def blocks(title: str) -> list[str]:
    """The shell commands of a section."""
    return re.findall(r"```sh\n(.*?)```", section(title), re.DOTALL)


class Carts:
    """A query over rules, with the places that the page names below a folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.checkpoint = folder / "data" / "checkpoints" / "carts"
        (folder / "events").mkdir()
        (folder / "backup").mkdir()
        self.database = folder / "carts.db"
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute("CREATE TABLE carts (match_id TEXT PRIMARY KEY, customer TEXT)")

    def shell(self, commands: str) -> str:
        """Run commands of the page, and return what they print."""
        for place in ("/data", "/backup"):
            commands = commands.replace(f"{place}/", f"{self.folder}{place}/")
        commands = commands.replace("2026-12-31", date.today().isoformat())
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-e", "-c", commands], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rules(self, **patterns: Pattern) -> None:
        rules = [PatternProcessor(name, 1, pattern).to_dict() for name, pattern in patterns.items()]
        (self.folder / "rules.json").write_text(json.dumps(rules), encoding="utf-8")

    def arrive(self, number: int, *events: str) -> None:
        """A file of events such as "2 ann cart": at minute 2."""
        rows = [f"2025-01-01T12:{int(minute):02}:00Z,{user},{kind}" for minute, user, kind in map(str.split, events)]
        (self.folder / "events" / f"{number}.csv").write_text("\n".join(rows), encoding="utf-8")
        os.utime(self.folder / "events" / f"{number}.csv", (number, number))

    def run(self, **options: Any) -> Any:
        files = self.spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).csv(f"{self.folder}/events")
        stream = KeyedStream(files, key="user", time="ts")
        rules = FilePatternProcessorDiscovererFactory(self.folder / "rules.json")
        matches = CEP.pattern_processors(stream, rules, key_groups=2)
        table = SqlSink(f"sqlite:///{self.database}", "carts")
        files_of = FileSink(self.folder / "matches")

        def write(df: Any, batch_id: int) -> None:
            table(df.select("match_id", df["key"][0].alias("customer")), batch_id)
            files_of(df, batch_id)

        return matches.run({"matches": write}, checkpoint=str(self.checkpoint), **options or {"drain": False})

    def found(self) -> list[str]:
        """The customers in the files, which are also those in the database."""
        rows = self.spark.read.parquet(f"{self.folder}/matches").selectExpr("key[0]").collect()
        files = sorted(customer for (customer,) in rows)
        with closing(sqlite3.connect(self.database)) as database:
            table = sorted(customer for (customer,) in database.execute("SELECT customer FROM carts"))
        assert files == table
        return files


@pytest.fixture
def carts(spark: SparkSession, tmp_path: Path) -> Carts:
    return Carts(spark, tmp_path)


def test_a_checkpoint_is_copied_and_restored(carts: Carts) -> None:
    backup, restore = blocks("Backup and restore")
    carts.rules(bought=BOUGHT)
    carts.arrive(1, "1 ann cart", "2 bob cart")
    carts.arrive(2, "3 ann buy", "4 eve cart", "5 cy view")
    carts.run()
    assert carts.found() == ["ann"]
    carts.shell(backup)
    [copy] = (carts.folder / "backup").iterdir()
    assert copy.name == f"carts-{date.today()}"
    assert (copy / "pattern_processors").is_dir()

    carts.rules(bought=BOUGHT, pending=PENDING)
    carts.arrive(3, "6 bob buy", "7 eve buy", "8 cy view")
    carts.arrive(4, "9 dora cart", "10 dora buy", "11 cy view")
    carts.run()
    everything = carts.found()
    assert everything == ["ann", "bob", "dora", "eve"]

    carts.rules(bought=BOUGHT)
    older = carts.checkpoint / "pattern_processors"
    shutil.rmtree(older)
    shutil.copytree(copy / "pattern_processors", older)
    refused = "the checkpoint has 2 sets of pattern processors, but their folder only 1"
    with pytest.raises(AsterismError, match=refused):
        carts.run()

    carts.rules(bought=BOUGHT, pending=PENDING)
    shown = carts.shell(restore)
    assert "bob" in shown
    with pytest.raises(SinkError, match="has the results of another query"):
        carts.run()
    last = max(int(file.name) for file in (copy / "commits").iterdir() if file.name.isdigit())
    for batch in (carts.folder / "matches").glob("batch=*"):
        if int(batch.name.removeprefix("batch=")) > last:
            shutil.rmtree(batch)
    carts.run()
    assert carts.found() == everything


def test_a_query_that_falls_behind_is_examined(carts: Carts) -> None:
    text_of_page = section("When a query falls behind")
    carts.rules(bought=BOUGHT, pending=PENDING)
    carts.arrive(1, *(f"{minute} ann cart" for minute in range(1, 20)), "20 bob cart")
    carts.arrive(2, "21 ann view")
    query = carts.run(trigger={"processingTime": "0 seconds"})
    try:
        query.processAllAvailable()
        progress = query.recentProgress[0]
        shown = str(asterism.monitor(query))
    finally:
        query.stop()
    assert "processed" in shown
    durations = [name for name in re.findall(r"`(\w+)`", text_of_page) if name in progress.durationMs]
    assert durations == ["addBatch", "latestOffset", "getBatch", "walCommit", "commitOffsets"]
    assert progress.stateOperators[0].numShufflePartitions == 2
    keys = carts.shell("asterism state /data/checkpoints/carts")
    assert keys.index("ann") < keys.index("bob")
    status = carts.shell("asterism rules status /data/checkpoints/carts")
    assert "bought" in status
    assert "pending" in status
