"""Runs queries over Spark Connect, and compares their results with those of a classic session over a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream
from tests.cluster.over_connect import AFTER, AGGREGATES, EVENTS, OUTPUTS, clause_of, composed_of, rules_of, windows_of
from tests.cluster.processes import Process, connect_server
from tests.spark.streams import FUNNEL, events


class Connect:
    """A server of Spark Connect, and a folder with what its clients have written."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._url = folder, url
        self._done: set[str] = set()

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Connect]:
        with connect_server(folder) as server:
            port = server.wait_for_line(r"Spark Connect server started at: \S+:(\d+)")
            yield cls(folder, f"sc://127.0.0.1:{port}")

    def run(self, name: str) -> Path:
        """The folder, after a client has run the queries of this name, and what they follow, once."""
        if name not in self._done:
            if name in AFTER:
                self.run(AFTER[name])
            command = [sys.executable, "-m", "tests.cluster.over_connect", self._url, str(self.folder), name]
            with Process(self.folder, f"client-{name}", *command) as client:
                client.wait()
            self._done.add(name)
        return self.folder


def rows(df: DataFrame) -> list[str]:
    return sorted(str(row) for row in df.select(sorted(df.columns)).collect())


def expected(stream: KeyedStream, name: str, file: Path) -> dict[str, DataFrame]:
    """The outputs that have rows, over a table. Over Connect, parts of the pattern are computed by Spark."""
    if name == "pattern":
        pattern = CEP.pattern(stream, FUNNEL)
        return {"matches": pattern.matches, "timed_out": pattern.timed_out}
    if name == "rules":
        return {"matches": rules_of(stream, file).output("matches")}
    if name == "clause":
        return {"matches": clause_of(stream).matches}
    windows = windows_of(stream) if name == "windows" else composed_of(stream)
    return {"results": windows.aggregate(AGGREGATES)}


def check_results(spark: SparkSession, folder: Path, tmp_path: Path, name: str) -> None:
    stream = KeyedStream(spark.createDataFrame(events(EVENTS)), key="user", time="ts")
    outputs = expected(stream, name, tmp_path / "rules.json")
    for output in OUTPUTS[name]:
        found = rows(spark.read.parquet(str(folder / name / output)).drop("batch"))
        assert found == (rows(outputs[output]) if output in outputs else [])
        assert bool(found) == (output in outputs)
