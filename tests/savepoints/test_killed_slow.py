"""The commands of savepoints are killed (kill -9) while they work, and repeated; the rows are those of a query without them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import create_savepoint, rescale_checkpoint, restore_savepoint
from tests.kit import kill_session, until
from tests.savepoints.test_savepoints_slow import Query, of_pattern, parts

pytestmark = pytest.mark.spark


def killed(condition: Callable[[], bool], *arguments: str) -> None:
    """Run a command of ``asterism``, and kill it with its JVM as soon as a condition holds."""
    with subprocess.Popen([sys.executable, "-m", "asterism", *arguments], start_new_session=True) as process:
        try:
            until(lambda: condition() or process.poll() is not None, seconds=180)
            assert process.poll() is None, "it was too fast"
        finally:
            kill_session(process.pid)


def begun(spark: SparkSession, folder: Path) -> tuple[Query, Query]:
    """A query that was never stopped, and one that has processed the first part."""
    whole, moved = Query(spark, folder / "whole", of_pattern), Query(spark, folder / "moved", of_pattern)
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
    moved.write(0, parts()[0])
    moved.run("first", drain=False, key_groups=4)
    return whole, moved


def finish(whole: Query, moved: Query, checkpoint: str, numbers: Iterable[int]) -> None:
    for number in numbers:
        moved.write(number, parts()[number])
    moved.run(checkpoint, drain=True)
    whole.run("checkpoint", drain=True)
    assert moved.rows() == whole.rows()


def test_create_and_restore_are_repeated(spark: SparkSession, tmp_path: Path) -> None:
    whole, moved = begun(spark, tmp_path)
    savepoint, first, second = tmp_path / "savepoint", moved.folder / "first", moved.folder / "second"
    for file in ("keys", "keys/_SUCCESS"):
        killed((savepoint / file).exists, "savepoint", "create", str(first), str(savepoint))
        assert not (savepoint / "manifest.json").exists()
    create_savepoint(spark, str(first), str(savepoint))
    for file in ("asterism_restored.json", "state/0", "commits/0"):
        killed((second / file).exists, "savepoint", "restore", str(savepoint), str(second), "--key-groups", "3")
    restore_savepoint(spark, str(savepoint), str(second), key_groups=3)
    finish(whole, moved, "second", range(1, 6))


def test_a_query_continues_after_a_rescale_that_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    whole, moved = begun(spark, tmp_path)
    first = moved.folder / "first"
    for number, file in enumerate(("rescaled-1.savepoint/keys", "rescaled-1/state/0", "rescaled-1/commits/0"), 1):
        killed((first / file).exists, "rescale", str(first), "--tasks", "2", "--key-groups", "5")
        moved.write(number, parts()[number])
        moved.run("first", drain=False)
    rescale_checkpoint(spark, str(first), tasks=2, key_groups=5)
    finish(whole, moved, "first", (4, 5))
