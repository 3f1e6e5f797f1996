"""A query whose sources have names: it is restarted, and sources are added and removed."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from asterism import CEP, KeyedStream
from asterism.spark.host.control_source import NAME
from asterism.spark.host.evolution import control_offsets
from asterism.spark.host.versions import SOURCE_EVOLUTION
from tests.spark.streams import DISORDER, FUNNEL, Collect, events, write_file

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not hasattr(DataStreamReader, "name"), reason="this version of Spark does not name sources"),
]


def united(spark: SparkSession, folder: Path, names: str, prefix: str = "") -> KeyedStream:
    """The files of some folders, each of which is a source of its name, with a prefix."""

    def source(name: str) -> DataFrame:
        place = str(folder / name)
        return spark.readStream.schema(spark.read.parquet(place).schema).name(prefix + name).parquet(place)

    df = reduce(DataFrame.union, [source(name) for name in names])
    return KeyedStream(df, key="user", time="ts", max_out_of_orderness=DISORDER)


def test_a_source_is_added_and_another_removed(spark: SparkSession, tmp_path: Path) -> None:
    table, checkpoint, matches = events(240, users=6), tmp_path / "checkpoint", Collect()
    begin = 0
    spark.conf.set(SOURCE_EVOLUTION, "true")
    try:
        for run, sources in enumerate(["ab", "bc"]):
            for name in sources:
                write_file(table.slice(begin, 60), tmp_path / name, run)
                begin += 60
            stream = CEP.pattern(united(spark, tmp_path, sources), FUNNEL, key_groups=2)
            stream.run({"matches": matches}, checkpoint=str(checkpoint), drain=run == 1)
            assert control_offsets(spark, str(checkpoint))[0]["keyGroups"] == 2
    finally:
        spark.conf.unset(SOURCE_EVOLUTION)
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)).read_text().splitlines()
    assert newest[0] == "v2"
    assert any(line.startswith(f"{NAME}:") for line in newest)
    replayed = CEP.pattern(KeyedStream(spark.createDataFrame(table), key="user", time="ts"), FUNNEL).matches
    assert sorted(row["match_id"] for row in matches.rows) == sorted(row["match_id"] for row in replayed.collect())
    assert matches.rows
