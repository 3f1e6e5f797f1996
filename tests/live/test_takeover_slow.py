"""A live engine is taken over by a query on Spark, and that by a live engine again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, create_savepoint, match_recognize, restore_live_savepoint
from asterism.cli.main import main
from asterism.sinks import FileSink
from tests.live.test_takeover import PAIR, play, random_events
from tests.savepoints.test_key_changes import SECOND, schema_of

pytestmark = pytest.mark.spark

SCHEMA = schema_of("user", pa.int32())
CLAUSE = (
    "PARTITION BY user ORDER BY ts MEASURES FIRST(v) AS first, COUNT(*) AS n PATTERN (A B+ C) "
    "WITHIN INTERVAL '20' SECOND DEFINE A AS kind = 'a', B AS v > A.v, C AS kind = 'b'"
)


def stream_of(kind: str, source: Any) -> tuple[Any, dict[str, Any]]:
    """The stream, and the options that say what its rows have."""
    if kind == "clause":
        return match_recognize(source, CLAUSE, max_out_of_orderness=3 * SECOND), {}
    keyed = KeyedStream(source, key="user", time="ts", max_out_of_orderness=3 * SECOND)
    return CEP.pattern(keyed, PAIR), {"select": {"matches": ["a.v AS first", "b.v AS last"]}}


@pytest.mark.parametrize("kind", ["pattern", "clause"])
def test_to_spark_and_back(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    events = random_events(random.Random(3), 75)
    parts = events[:25], events[25:50], events[50:]
    live, options = stream_of(kind, SCHEMA)
    with live.open(tmp_path / "first", **options) as engine:
        rows = play(engine, parts[0])

    arguments = ["savepoint", "create", str(tmp_path / "first"), str(tmp_path / "to_spark")]
    assert '{"events": 24}' in CliRunner().invoke(main, arguments, catch_exceptions=False).output
    (tmp_path / "events").mkdir()
    pq.write_table(pa.Table.from_pylist(parts[1], SCHEMA), tmp_path / "events" / "1.parquet")
    source = spark.readStream.schema("user INT, ts TIMESTAMP, kind STRING, v BIGINT").parquet(str(tmp_path / "events"))
    query, _ = stream_of(kind, source)
    checkpoint, history = str(tmp_path / "checkpoint"), str(tmp_path / "to_spark")
    query.run(
        {"matches": FileSink(str(tmp_path / "matches"))}, checkpoint=checkpoint, drain=False, history=history, **options
    )
    of_spark = spark.read.parquet(str(tmp_path / "matches")).drop("batch").toArrow().to_pylist()
    assert of_spark

    create_savepoint(spark, checkpoint, str(tmp_path / "from_spark"))
    (offset,) = restore_live_savepoint(tmp_path / "from_spark", tmp_path / "second")
    assert offset == {"logOffset": 0}
    with live.open(tmp_path / "second", **options) as engine:
        after = play(engine, parts[2])
        after += [str(row) for row in engine.finish()["matches"].to_pylist()]
    with live.open(tmp_path / "whole", **options) as engine:
        whole = play(engine, events)
        whole += [str(row) for row in engine.finish()["matches"].to_pylist()]
    assert rows
    assert after
    assert sorted([*rows, *map(str, of_spark), *after]) == sorted(whole)
