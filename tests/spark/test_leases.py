"""A second process on a checkpoint is refused, and a query that was paused for long does not write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import asterism
from asterism.errors import CheckpointInUseError, LeaseLostError
from asterism.spark.session.leases import FOLDER, SECONDS
from tests.kit import SOON, until
from tests.spark.streams import FUNNEL, Collect, events, stream_of, write_files

pytestmark = pytest.mark.spark

OTHER_PROCESS = """
import sys
from asterism.files.lease import Lease
lease = Lease(sys.argv[1], "the checkpoint", expiry=5)
lease.acquire()
print("holds", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_process(checkpoint: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", OTHER_PROCESS, str(checkpoint / FOLDER)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        yield process
        process.kill()


@pytest.fixture(autouse=True)
def short_leases(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(SECONDS, "5")
    yield
    spark.conf.unset(SECONDS)


def matches_of(spark: SparkSession, folder: Path) -> asterism.PatternStream:
    return asterism.CEP.pattern(stream_of(spark, folder), FUNNEL, key_groups=2)


def test_a_checkpoint_of_another_process_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """However the query is started; when the other process has ended, it starts at once."""
    write_files(events(400), tmp_path / "in", [])
    checkpoint, rows = tmp_path / "cp", Collect()
    stream = matches_of(spark, tmp_path / "in")
    with other_process(checkpoint) as process:
        with pytest.raises(CheckpointInUseError, match=f"(?s){checkpoint} is in use.*process {process.pid} on"):
            stream.run({"matches": rows}, checkpoint=str(checkpoint))
        writer = stream.matches.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        with pytest.raises(CheckpointInUseError):
            writer.start()
        assert [path.name for path in checkpoint.iterdir()] == [FOLDER]
    stream.run({"matches": rows}, checkpoint=str(checkpoint))
    assert rows.rows
    stream.run({"matches": rows}, checkpoint=str(checkpoint))  # the lease was released
    # A thread that waits for the end of the query releases it.
    until(lambda: [claim.name.endswith("-released.json") for claim in (checkpoint / FOLDER).iterdir()] == [True])


def test_a_query_that_was_taken_over_ends(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sink is not called any more."""
    write_files(events(400), tmp_path / "in", [200])
    checkpoint, batches = tmp_path / "cp", []

    def sink(rows: DataFrame, batch_id: int) -> None:
        batches.append(batch_id)
        rows.count()

    trigger = {"processingTime": "100 milliseconds"}
    query = matches_of(spark, tmp_path / "in").run({"matches": sink}, checkpoint=str(checkpoint), trigger=trigger)
    assert query is not None
    try:
        until(lambda: batches, query)
        (claim,) = (checkpoint / FOLDER).glob("*-holds.json")
        number = int(claim.name.split("-")[0])
        # What a process writes that has taken over while this one was paused.
        (checkpoint / FOLDER / f"{number + 1}-{'0' * 32}-holds.json").write_text('{"host": "h2", "process": 7}')
        with suppress(LeaseLostError):  # unless it is stopped before its sink is called
            assert query.awaitTermination(SOON)
        seen = len(batches)
        write_files(events(10), tmp_path / "in", [], first=7)
        assert len(batches) == seen
    finally:
        query.stop()
