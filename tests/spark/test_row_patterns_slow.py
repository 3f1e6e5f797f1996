"""More of MATCH_RECOGNIZE over streams."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from asterism import match_recognize, sql
from asterism.cli.main import main
from tests.spark.streams import Collect, events, random_cuts, stream_of, write_files
from tests.spark.test_row_patterns import (
    FEW,
    OF_PAIRS,
    PAIRS,
    PROCTIME,
    RISE,
    check_some_rows,
    in_any_order,
    instants,
    nested,
)

pytestmark = pytest.mark.spark


def test_stream_of_rows_of_which_some_matter_without_the_late_ones(spark: SparkSession, tmp_path: Path) -> None:
    check_some_rows(spark, tmp_path, ["matches"])


def test_statement_over_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    table = events(600)
    write_files(table, tmp_path / "in", [300])
    found = Collect()
    rise = RISE.replace("user ORDER BY ts", "c.user ORDER BY c.ts").replace("B AS price", "B AS c.price")
    result = sql(
        f"SELECT user, last - first AS ids FROM clicks AS c MATCH_RECOGNIZE ({rise}) AS m WHERE n > 1",
        spark, clicks=stream_of(spark, tmp_path / "in").df, drain=True, **FEW,
    )  # fmt: skip
    query = result.writeStream.foreachBatch(found).option("checkpointLocation", str(tmp_path / "cp"))
    query.trigger(availableNow=True).start().awaitTermination()
    rows = match_recognize(spark.createDataFrame(table), RISE).matches.where("n > 1").collect()
    assert len(rows) > 50
    assert sorted((row["user"], row["ids"]) for row in found.rows) == sorted((r.user, r.last - r.first) for r in rows)


def test_processing_time_of_a_stream_is_that_of_the_micro_batch_also_if_it_is_repeated(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_files(events(600), tmp_path / "in", [200, 400])
    seen: dict[int, list[set[int]]] = {}
    fail = True

    def sink(rows: DataFrame, batch_id: int) -> None:
        times = set(instants(rows))
        seen.setdefault(batch_id, []).append(times)
        if times and fail:
            raise RuntimeError("the sink failed")

    def run() -> None:
        stream = stream_of(spark, tmp_path / "in").df
        match_recognize(stream, PROCTIME, **FEW).run({"matches": sink}, checkpoint=str(tmp_path / "cp"))

    begin = time.time_ns() // 1000
    with pytest.raises(StreamingQueryException, match="the sink failed"):
        run()
    failed = time.time_ns() // 1000
    fail = False
    run()
    repeated = [times for times in seen.values() if len(times) > 1]
    assert repeated
    assert all(len(times[0]) == 1 and times[0] == times[1] for times in repeated)
    assert all(begin // 1000 * 1000 <= at < failed for times in repeated for at in times[0])
    others = [times[0] for times in seen.values() if len(times) == 1 and times[0]]
    assert others
    assert all(len(times) == 1 and failed < min(times) < time.time_ns() // 1000 for times in others)


@pytest.mark.parametrize("statement", [True, False])
def test_clause_behind_a_clause_on_a_stream(spark: SparkSession, tmp_path: Path, statement: bool) -> None:
    """A match is emitted long after its first row, which is not late for the next clause."""
    table = events(600)
    write_files(table, tmp_path / "in", random_cuts(600, 3, seed=2))
    clicks, pairs = stream_of(spark, tmp_path / "in").df, PAIRS.format("WITHIN INTERVAL '40' SECOND")
    batch = sorted(map(tuple, sql(nested(pairs), spark, clicks=spark.createDataFrame(table)).collect()))
    assert len(batch) > 5
    found, late = Collect(), Collect()
    if statement:
        writer = sql(nested(pairs), spark, clicks=clicks, drain=True, **FEW).writeStream.foreachBatch(found)
        writer = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True)
        writer.start().awaitTermination()
    else:
        first = match_recognize(clicks, pairs, **FEW).matches.where("id >= 0")
        second = match_recognize(first, OF_PAIRS, key_groups=4)
        second.run({"matches": found, "late": late}, checkpoint=str(tmp_path / "cp"))
    assert sorted(tuple(row.values()) for row in found.rows) == batch
    assert late.rows == []


def test_stream_of_rows_of_which_some_matter(spark: SparkSession, tmp_path: Path) -> None:
    check_some_rows(spark, tmp_path, ["matches", "late"])


def test_command_in_batch_and_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(events(300), tmp_path / "clicks.parquet")
    statement = f"SELECT * FROM clicks MATCH_RECOGNIZE ({RISE})"
    found = []
    for options in ([], ["--spark"], ["--stream", "--max-out-of-orderness", "5s"]):
        out = tmp_path / "out.parquet"
        arguments = ["sql", statement, "--table", f"clicks={tmp_path / 'clicks.parquet'}", *options, "--out", str(out)]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        found.append(in_any_order(pq.read_table(out).to_pylist()))
        assert result.stdout == f"{len(found[-1])} rows written to {out}\n"
    assert found[0] == found[1] == found[2] != []
