"""More of ``asterism match``; ``asterism conformance --spark``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli import test_cli_on_spark
from tests.cli.test_cli_on_spark import ON_SSH, PROBLEMS, ROOT, check_problem, late_events, rows_of, run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
any_event = test_cli_on_spark.any_event
brute_force = test_cli_on_spark.brute_force


def test_events_that_may_be_out_of_order_are_not_late(any_event: Path, tmp_path: Path) -> None:
    assert late_events(any_event, tmp_path, "--max-out-of-orderness", "7s") == "0 late events"


def test_each_partition_can_have_a_watermark(any_event: Path, tmp_path: Path) -> None:
    assert late_events(any_event, tmp_path, "--watermark-by", "p") == "0 late events"


def test_stream_finds_what_batch_finds(brute_force: Path, tmp_path: Path) -> None:
    batch = run("match", brute_force, *ON_SSH, "--out", tmp_path / "batch.parquet", "--spark")
    stream = run("match", brute_force, *ON_SSH, "--out", tmp_path / "stream.parquet", "--stream")
    assert (batch.exit_code, stream.exit_code) == (0, 0), batch.output + stream.output
    found = rows_of(tmp_path / "batch.parquet")
    assert found
    assert rows_of(tmp_path / "stream.parquet") == found
    assert batch.stdout == f"{len(found)} matches written to {tmp_path / 'batch.parquet'}\n"
    embedded = run("match", brute_force, *ON_SSH, "--out", tmp_path / "embedded.parquet")
    assert (embedded.exit_code, rows_of(tmp_path / "embedded.parquet")) == (0, found)


def test_timed_out_are_the_same_too(brute_force: Path, tmp_path: Path) -> None:
    options = [*ON_SSH, "--output", "timed_out", "--select", "COUNT(fails.*) AS fails", "--select", "timeout_time"]
    run("match", brute_force, *options, "--out", tmp_path / "batch.parquet", "--spark")
    run("match", brute_force, *options, "--out", tmp_path / "stream.parquet", "--stream")
    found = rows_of(tmp_path / "batch.parquet")
    assert found
    assert rows_of(tmp_path / "stream.parquet") == found


def test_csv_is_that_of_the_other_host(any_event: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"k": "x \\"y\\"", "ts": "2020-01-01 00:00:01", "v": 1}\n', encoding="utf-8")
    for name, more in (("spark.csv", ["--spark"]), ("embedded.csv", [])):
        result = run(
            "match", any_event, "--input", events, "--key", "k", "--time", "ts", "--out", tmp_path / name, *more
        )
        assert result.exit_code == 0, result.output
    assert (tmp_path / "spark.csv").read_text() == (tmp_path / "embedded.csv").read_text()


def test_session_of_others_is_left_running(spark: SparkSession, any_event: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.csv"
    events.write_text("v\n1\n", encoding="utf-8")
    assert run("match", any_event, "--input", events, "--spark").exit_code == 0
    assert spark.range(3).count() == 3


def test_conformance_on_spark(tmp_path: Path) -> None:
    """A case of every file, one of them wrong on purpose."""
    lines = [
        path.read_text(encoding="utf-8").splitlines()[number]
        for number, path in enumerate(sorted((ROOT / "tests" / "corpus").glob("*.jsonl")))
    ]
    wrong = json.loads(lines[0])
    wrong = wrong | {"id": "wrong-on-purpose", "expected": wrong["expected"] | {"late": [1]}}
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join([*lines, json.dumps(wrong)]), encoding="utf-8")
    result = run("conformance", "--spark", "--cuts", "random", path)
    assert result.stdout.splitlines() == ["wrong-on-purpose  late: expected [1], got []", "16 passed, 1 failed"]
    assert result.exit_code == 1


def test_stream_goes_on_from_a_checkpoint(any_event: Path, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    options = ["--input", events, "--time", "ts", "--stream", "--checkpoint", tmp_path / "checkpoint"]
    (events / "1.csv").write_text("ts,v\n1,1\n2,1\n", encoding="utf-8")
    assert run("match", any_event, *options).stdout.splitlines()[-1] == "2 matches"
    (events / "2.csv").write_text("ts,v\n3,1\n", encoding="utf-8")
    assert run("match", any_event, *options).stdout.splitlines()[-1] == "1 match"


@pytest.mark.parametrize(("lines", "options", "problem"), PROBLEMS[:-1])
def test_errors_are_said_without_a_traceback(
    any_event: Path, tmp_path: Path, lines: str, options: list[str], problem: str
) -> None:
    check_problem(any_event, tmp_path, lines, options, problem)


def test_doctor_runs_a_query() -> None:
    result = run("doctor")
    assert result.exit_code == 0, result.output
    assert "ok      a query on Spark: Spark 4." in result.output


def test_files_of_a_folder_are_micro_batches(any_event: Path, tmp_path: Path) -> None:
    """What comes in a later file, behind the watermark of the file before, is late."""
    assert late_events(any_event, tmp_path) == "1 late event"
