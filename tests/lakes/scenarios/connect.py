"""The sinks in a session of Spark Connect, in a process of its own: a process has a classic session or one of Connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.kit import EVENTS, SELECT, events_of, guesses, sink_of
from tests.lakes.scenarios.conftest import SETTINGS
from tests.servers.lakes import settings


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = SparkSession.builder.remote("local[2]")
    for name, value in (SETTINGS | settings(tmp_path_factory.mktemp("lakes"))).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
    yield session
    session.stop()


def test_rows_by_key_and_rows_that_are_appended(spark: SparkSession, lake: str, table: str, tmp_path: Path) -> None:
    """By key, each match is there once, also when a query begins again; an append is refused, because a query has no id there."""
    events_of(spark, "1 ann failed", "2 ann failed", "3 ann accepted", "4 bob failed").write.json(f"{tmp_path}/events")
    stream = spark.readStream.schema(EVENTS).json(f"{tmp_path}/events")
    for number in range(2):
        sink = sink_of(lake, table, key="match_id")
        guesses(stream).run({"matches": sink}, select={"matches": SELECT}, checkpoint=f"{tmp_path}/{number}")
        assert [row.user for row in spark.table(table).collect()] == ["ann"]
    with pytest.raises(Exception, match="exactly once: there is no id of the query"):
        guesses(stream).run({"matches": sink_of(lake, table)}, checkpoint=f"{tmp_path}/append")
    assert spark.table(table).count() == 1
