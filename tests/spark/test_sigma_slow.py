"""Correlations of Sigma that refer to correlations, as a stream: the answer is that over a table, wherever it is cut."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream
from asterism.discovery import SigmaPatternProcessorDiscovererFactory
from tests.sigma.test_chains import at, chain, inner
from tests.sigma.test_correlations import BASE, correlation, random_events, table
from tests.spark.streams import DISORDER, Collect, random_cuts, write_files

CORRELATIONS: dict[str, dict[str, Any]] = {
    "sequence": correlation("temporal_ordered", ["pairs", "login"]),
    "deeper": correlation("temporal_ordered", ["chain", "admin"]),
    "repeated": correlation("event_count", ["ordered"], {"gte": 2}, timespan="30s"),
    "any order": correlation("temporal", ["guessing", "both", "admin"], {"gte": 2}),
    "either": correlation("temporal", ["guessing", "both", "login"], "(guessing or both) and login"),
    "several": correlation("event_count", ["guessing", "both"], {"gte": 2}),
    "alternatives": correlation("temporal_ordered", ["guessing", "login", "admin"], "(guessing or login) and admin"),
}


def rows_of(matches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["processor_id"],
            *row["key"],
            str(row["match_time"]),
            max(event["event"]["number"] for event in row["events"]),
            row["suppressed"],
        )
        for row in matches
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_chains_in_three_micro_batches(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    events = [at(event, event["time"] // 6) for event in random_events(rng, 120)]
    events.sort(key=lambda event: event["time"] + rng.random() * DISORDER.total_seconds())
    (tmp_path / "rules").mkdir()
    parts = [*map(inner, ("guessing", "pairs", "both", "order")), *map(chain, ("chain", "ordered"))]
    documents = [*BASE, *parts, *(rule | {"name": name} for name, rule in CORRELATIONS.items())]
    (tmp_path / "rules" / "rules.yml").write_text(yaml.safe_dump_all(documents))
    factory = SigmaPatternProcessorDiscovererFactory(tmp_path / "rules", time="ts")

    def matches_of(events: Any) -> Any:
        stream = KeyedStream(events, time="ts", max_out_of_orderness=DISORDER)
        return CEP.pattern_processors(stream, factory, **({} if isinstance(events, pa.Table) else {"key_groups": 2}))

    arrived = table(events)
    expected = rows_of(matches_of(arrived).output("matches").to_pylist())
    assert {name for name, *_ in expected} == set(CORRELATIONS)
    write_files(arrived, tmp_path / "events", random_cuts(arrived.num_rows, 3, seed))
    schema = spark.createDataFrame(arrived.slice(0, 1)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    matches = Collect()
    matches_of(reader.parquet(str(tmp_path / "events"))).run(
        {"matches": matches}, checkpoint=str(tmp_path / "checkpoint")
    )
    assert len(matches.batches) >= 3
    assert rows_of(matches.rows) == expected
