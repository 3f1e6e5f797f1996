"""Runs queries over Spark Connect, and compares their results with those of a classic session over a table."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream
from tests.cluster.over_connect import AGGREGATES, EVENTS, OUTPUTS, clause_of, composed_of, rules_of, windows_of
from tests.cluster.processes import Process, connect_server
from tests.spark.streams import FUNNEL, events


def outputs_of(runs: dict[str, int], found: Path) -> Path:
    """A folder with the outputs of queries, each of which runs so many times."""
    with connect_server(found) as server:
        port = server.wait_for_line(r"Spark Connect server started at: \S+:(\d+)")
        names = [f"{name}:{times}" for name, times in runs.items()]
        arguments = [f"sc://127.0.0.1:{port}", str(found), *names]
        with Process(found, "client", sys.executable, "-m", "tests.cluster.over_connect", *arguments) as client:
            client.wait()
    return found


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
