"""Checkpoints and savepoints in HDFS: what is created, restored and rescaled there has the rows of a query on a local file system
that was never stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import (
    create_savepoint,
    read_savepoint,
    rescale_checkpoint,
    restore_savepoint,
    undo_change,
)
from asterism.files.hadoop import HadoopFiles
from tests.discovery.servers import NoServerError
from tests.savepoints.test_savepoints_slow import Query, of_pattern, parts
from tests.servers.hdfs import Hdfs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def hdfs() -> Iterator[str]:
    try:
        server = Hdfs()
        server.start()
    except NoServerError as error:
        pytest.skip(str(error))
    yield server.uri
    server.remove()


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
