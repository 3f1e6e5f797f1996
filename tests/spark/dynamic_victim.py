"""A program with pattern processors that kills itself: see ``test_dynamic.py``."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.rules.processor import PatternProcessorDiscoverer, PatternProcessorDiscovererFactory
from tests.contracts.ledger import kill_everything
from tests.spark.rules import INTERVAL, Watch, e, rule

AB = rule("ab", 1, "a", "b")
BY_ITEM = rule("by item", 1, "a", "b", key=("item",))
PASSWORD = "swordfish 0123456789 swordfish 0123456789"


@dataclass(frozen=True)
class Secretive(PatternProcessorDiscovererFactory):
    """Knows a password, as one for a database does."""

    path: Path
    password: str

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        assert self.password == PASSWORD
        factory = FilePatternProcessorDiscovererFactory(self.path, interval=INTERVAL)
        return factory.create_pattern_processor_discoverer()


def watch(spark: SparkSession, folder: Path) -> Watch:
    """It writes every micro-batch to a folder of its own."""

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(str(folder / "out" / f"batch={batch_id}"))

    watch = Watch(spark, folder, factory=Secretive(folder / "rules.json", PASSWORD))
    watch.sinks = {"matches": write}
    return watch


def session(folder: Path) -> SparkSession:
    (folder / "log").mkdir()
    settings: dict[str, Any] = {
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": folder / "log",
        "spark.eventLog.compress": False,
        "spark.ui.enabled": False,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": 3,
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else value)
    return builder.getOrCreate()


def main(folder: Path) -> None:
    killed = watch(session(folder), folder)
    killed.rules(AB)
    killed.events(e(1, "a"), e(2, "a", "bob", 8))
    query = killed.once()
    (folder / "progress").write_text("\n".join(progress.json for progress in query.recentProgress))
    killed.options["store"] = str(folder / "elsewhere")
    with (folder / "plan").open("w") as file, contextlib.redirect_stdout(file):
        query.explain(True)
        killed.stream.output("matches").explain(True)
    del killed.options["store"]

    def kill(df: DataFrame, batch_id: int) -> None:
        (folder / "killed").write_text(str(batch_id))
        kill_everything()

    killed.sinks = {"matches": kill}
    killed.rules(AB, BY_ITEM)
    killed.events(e(3, "a", "cy", 9), e(4, "b", "ann", 9), e(5, "a", "eve", 11), e(6, "b", "bob", 8))
    killed.once()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
