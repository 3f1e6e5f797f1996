"""Checkpoints and savepoints in HDFS: what is created, restored, rescaled and forgotten there has the rows of a query on a local
file system that was never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import (
    create_savepoint,
    forget_keys,
    read_savepoint,
    remove_former_state,
    rescale_checkpoint,
    restore_savepoint,
    undo_change,
)
from asterism.errors import StateError
from asterism.files.hadoop import HadoopFiles
from asterism.savepoints.manifest import MANIFEST
from asterism.spark.savepoints.folders import StoredFolder
from tests.discovery.servers import running_or_skipped
from tests.savepoints.test_savepoints_slow import Query, of_pattern, parts
from tests.savepoints.test_writing_slow import FORGOTTEN, files_with, plain_files, with_name
from tests.servers.hdfs import Hdfs

__all__ = ["plain_files"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def hdfs() -> Iterator[str]:
    with running_or_skipped(Hdfs) as server:
        yield server.uri


class InHdfs(Query):
    """Its checkpoints are in HDFS, its events and results in *folder*."""

    uri: str

    def place_of(self, checkpoint: str) -> str:
        return f"{self.uri}/{checkpoint}"


def test_a_query_moves_within_hdfs(
    spark: SparkSession, tmp_path: Path, hdfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[tuple[str, int]] = []
    read_end = HadoopFiles.read_end

    def noted(files: HadoopFiles, path: str, count: int) -> bytes:
        content = read_end(files, path, count)
        ends.append((path, len(content)))
        return content

    monkeypatch.setattr(HadoopFiles, "read_end", noted)
    whole, moved = Query(spark, tmp_path / "whole", of_pattern), InHdfs(spark, tmp_path / "moved", of_pattern)
    moved.uri = hdfs
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
    whole.run("checkpoint", drain=True)
    for number in (0, 1):
        moved.write(number, parts()[number])
    moved.run("first", drain=False, key_groups=3)
    create_savepoint(spark, f"{hdfs}/first", f"{hdfs}/savepoints/1")
    assert read_savepoint(spark, f"{hdfs}/savepoints/1").partial_matches().count() > 0
    assert ends
    assert all(path.startswith("/savepoints/1/") and 0 < length <= 2**16 for path, length in ends)
    restore_savepoint(spark, f"{hdfs}/savepoints/1", f"{hdfs}/second", key_groups=5, tasks=2)
    for number in (2, 3):
        moved.write(number, parts()[number])
    moved.run("second", drain=False)
    rescale_checkpoint(spark, f"{hdfs}/second", tasks=1, key_groups=2)
    undo_change(spark, f"{hdfs}/second")
    rescale_checkpoint(spark, f"{hdfs}/second", tasks=2, key_groups=4)
    create_savepoint(spark, f"{hdfs}/second", f"{hdfs}/savepoints/2")
    for number in (4, 5):
        moved.write(number, parts()[number])
    moved.run("third", drain=True, from_savepoint=f"{hdfs}/savepoints/2")
    assert moved.rows() == whole.rows()


@pytest.mark.usefixtures("plain_files")
def test_what_is_forgotten_is_nowhere_in_hdfs(spark: SparkSession, tmp_path: Path, hdfs: str) -> None:
    query = InHdfs(spark, tmp_path, of_pattern)
    query.uri = f"{hdfs}/forgetting"
    for number in (0, 1):
        query.write(number, with_name(parts()[number]))
    query.run("checkpoint", drain=False, key_groups=2)
    checkpoint = f"{query.uri}/checkpoint"
    folder = StoredFolder.of(spark, checkpoint)

    def found(copy: str) -> list[str]:
        folder.copy_to(StoredFolder.of(spark, str(tmp_path / copy)))
        return files_with(FORGOTTEN, tmp_path / copy)

    assert found("before")
    changes = forget_keys(spark, checkpoint, [{"user": FORGOTTEN}])
    assert changes.removed["keys"] == 1
    assert found("meanwhile")
    assert remove_former_state(spark, checkpoint) == changes.former_files
    assert not found("after")
    query.write(2, parts()[2])
    query.run("checkpoint", drain=True)
    users = {row.user for row in spark.read.parquet(str(tmp_path / "timed_out")).select("user").collect()}
    assert len(users) > 5


def test_a_damaged_savepoint_in_hdfs(spark: SparkSession, tmp_path: Path, hdfs: str) -> None:
    """The checksum of a table is compared where its bytes are read, in a task; its length before."""
    query = InHdfs(spark, tmp_path, of_pattern)
    query.uri = f"{hdfs}/damaged"
    query.write(0, parts()[0])
    query.run("checkpoint", drain=False)
    savepoint = f"{query.uri}/savepoint"
    create_savepoint(spark, f"{query.uri}/checkpoint", savepoint)
    folder = StoredFolder.of(spark, savepoint)
    files = json.loads(folder.read(MANIFEST) or "")["files"]
    [name, *_] = [name for name in files if name.startswith("keys/")]
    with folder.files.open_input_file(f"{folder.path}/{name}") as file:
        content = bytearray(file.readall())
    content[len(content) // 3] ^= 255
    with folder.files.open_output_stream(f"{folder.path}/{name}") as file:
        file.write(bytes(content))
    with pytest.raises(StateError, match=f"{name} has the CRC-32"):
        restore_savepoint(spark, savepoint, f"{query.uri}/second")
    with folder.files.open_output_stream(f"{folder.path}/{name}") as file:
        file.write(bytes(content[:-1]))
    with pytest.raises(StateError, match=f"{name} has {len(content) - 1:,} bytes"):
        restore_savepoint(spark, savepoint, f"{query.uri}/second")
