"""The runbook of docs/operations.md, executed with its commands: the rows are those of a query that was never stopped."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, Pattern, read_state
from asterism.cli.main import main
from asterism.sinks import FileSink
from tests.kit import ROOT

pytestmark = pytest.mark.spark
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
EVENTS = "ts TIMESTAMP, user STRING, kind STRING"
BOUGHT = (
    Pattern.begin("cart").where("kind = 'cart'").followed_by("buy").where("kind = 'buy'").within(timedelta(hours=5))
)
WITH_REFUND = (
    Pattern.begin("cart")
    .where("kind = 'cart'")
    .followed_by("buy")
    .where("kind = 'buy'")
    .followed_by("refund")
    .where("kind = 'refund'")
    .within(timedelta(hours=5))
)


def commands(title: str) -> list[list[str]]:
    """The commands of a section of the runbook, a list for each block."""
    [runbook] = re.findall(r"^## Runbook\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    [section] = re.findall(rf"^### {title}\n(.*?)(?=^### |\Z)", runbook, re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", section, re.DOTALL | re.MULTILINE)
    return [[line.strip() for line in block.splitlines()] for block in blocks]


class Carts:
    """A query that stops after each file of events.

    :ivar folder: takes the place of /data
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        (folder / "events").mkdir(parents=True)
        self.part = 0

    def execute(self, block: list[str]) -> str:
        """Execute commands, those of Asterism in this session."""
        printed = ""
        for line in block:
            line = line.replace("/data/", f"{self.folder}/")
            if line.startswith("asterism "):
                result = CliRunner().invoke(main, shlex.split(line)[1:], catch_exceptions=False)
                assert result.exit_code == 0, result.output
                printed += result.output
            else:
                subprocess.run(["sh", "-ec", line], check=True)
        return printed

    def run(self, place: str, *events: str, pattern: Pattern = BOUGHT, drain: bool = False, **options: Any) -> None:
        """Start the program with a file of events such as "2 ann cart": at minute 2."""
        if events:
            self.part += 1
            rows = [
                f"2025-01-01T12:{int(minute):02}:00Z,{user},{kind}" for minute, user, kind in map(str.split, events)
            ]
            path = self.folder / "events" / f"{self.part}.csv"
            path.write_text("\n".join(rows), encoding="utf-8")
            os.utime(path, (self.part, self.part))
        files = self.spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).csv(f"{self.folder}/events")
        stream = CEP.pattern(KeyedStream(files, key="user", time="ts"), pattern, **options)
        stream.run({"matches": FileSink(f"{self.folder}/matches")}, checkpoint=f"{self.folder}/{place}", drain=drain)

    def found(self) -> Counter[str]:
        return Counter(row.user for row in self.spark.read.parquet(f"{self.folder}/matches").collect())


def test_a_query_lives_for_years(spark: SparkSession, tmp_path: Path) -> None:
    carts = Carts(spark, tmp_path)
    carts.run("checkpoints/carts", "1 ann cart", "2 bob cart", "3 alice cart", "4 cy cart", "5 x view", key_groups=2)

    [grow] = commands("Grow")
    carts.execute(grow)
    carts.run("checkpoints/carts", "6 ann buy", "7 x view")
    assert read_state(spark, str(tmp_path / "checkpoints" / "carts")).key_groups().count() == 6
    assert carts.found() == Counter(["ann"])

    [move] = commands("Move")
    assert "6 key groups, 2 tasks" in carts.execute(move)
    shutil.rmtree(tmp_path / "checkpoints" / "carts")
    carts.run("moved/carts", "8 eve cart", "9 bob buy", "10 x view")
    assert carts.found() == Counter(["ann", "bob"])

    [upgrade] = commands("Upgrade")
    carts.execute(upgrade)

    (tmp_path / "with_refund.json").write_text(WITH_REFUND.to_json(), encoding="utf-8")
    [change] = commands("Change the pattern")
    assert "cart" in carts.execute(change)
    options: dict[str, Any] = {"pattern": WITH_REFUND}
    carts.run("checkpoints/carts-refund", "11 cy buy", "12 alice buy", "13 cy refund", "14 x view", **options)
    assert carts.found() == Counter(["ann", "bob", "cy"])

    forget, remove = commands("Forget a customer")
    report = carts.execute(forget)
    assert "removed keys: 1 of" in report
    assert "alice" not in report.partition("heaviest keys")[2]
    carts.execute(remove)
    assert not any(b"alice" in p.read_bytes() for p in (tmp_path / "checkpoints").rglob("*") if p.is_file())
    carts.run("checkpoints/carts-refund", "15 alice refund", "16 x view", **options)
    assert carts.found() == Counter(["ann", "bob", "cy"])

    keep, undo, back = commands("Roll back")
    carts.execute(keep)
    carts.execute(undo)
    assert read_state(spark, str(tmp_path / "checkpoints" / "carts-refund")).key_groups().count() == 6
    before = set((tmp_path / "matches").glob("batch=*"))
    carts.run("checkpoints/carts-refund", "17 eve buy", "18 eve refund", "19 x view", **options)
    assert carts.found() == Counter(["ann", "bob", "cy", "eve"])
    for batch in set((tmp_path / "matches").glob("batch=*")) - before:
        shutil.rmtree(batch)
    carts.execute(back)
    carts.run("checkpoints/carts-back", drain=True, **options)
    assert carts.found() == Counter(["ann", "bob", "cy", "eve"])
