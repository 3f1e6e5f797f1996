"""Files of micro-batches are written once, and those of other queries are not touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism.errors import SinkError
from asterism.sinks import FileSink


def rows(spark: SparkSession, *names: str) -> DataFrame:
    return spark.createDataFrame([(name,) for name in names], "name STRING")


def written(spark: SparkSession, path: Path, format: str = "parquet") -> list[tuple[str, int]]:
    return sorted((row.name, row.batch) for row in spark.read.format(format).load(str(path)).collect())


def test_a_repeated_micro_batch_replaces_its_files(spark: SparkSession, tmp_path: Path) -> None:
    check_repeated(spark, tmp_path, "json")


def check_repeated(spark: SparkSession, tmp_path: Path, format: str) -> None:
    sink = FileSink(tmp_path / "out", format)
    sink(rows(spark, "ann"), 0)
    sink(rows(spark, "bob", "cat"), 1)
    for again in (sink, FileSink(str(tmp_path / "out") + "/", format)):  # also in another process
        again(rows(spark, "bob", "cat"), 1)
        assert written(spark, tmp_path / "out", format) == [("ann", 0), ("bob", 1), ("cat", 1)]


def test_micro_batches_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    FileSink(tmp_path)(rows(spark), 0)
    assert written(spark, tmp_path) == []
    FileSink(tmp_path)(rows(spark, "ann"), 1)
    assert written(spark, tmp_path) == [("ann", 1)]


def test_the_files_of_another_query_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    first = FileSink(tmp_path)
    first(rows(spark, "ann"), 10)
    first(rows(spark, "bob"), 11)
    for sink in (first, FileSink(tmp_path)):
        with pytest.raises(SinkError) as caught:
            sink(rows(spark, "cat"), 9)
        assert str(caught.value) == (
            f"[SINK_ERROR] the folder '{tmp_path}' has the results of another query\n"
            "  This query writes micro-batch 9, but the folder already has micro-batch 11.\n"
            "  Hint: use a new folder with a new checkpoint"
        )
    assert written(spark, tmp_path) == [("ann", 10), ("bob", 11)]


@pytest.mark.parametrize("name", ["part-0.parquet", "batch=1/day=2/part-0.parquet", "batch=x/part-0.parquet"])
def test_a_folder_with_other_files_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    other = tmp_path / name
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_bytes(b"PAR1")
    with pytest.raises(SinkError) as caught:
        FileSink(tmp_path)(rows(spark, "ann"), 0)
    assert str(caught.value) == (
        f"[SINK_ERROR] the folder '{tmp_path}' has files of something else\n"
        f"  One of them: file:{other}\n"
        "  Hint: use a folder for the results of one output of one query"
    )
    assert not (tmp_path / "batch=0").exists()


def test_a_path_that_is_no_folder() -> None:
    with pytest.raises(SinkError, match="the path of a sink must be a folder"):
        FileSink("/")
