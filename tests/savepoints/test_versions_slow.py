"""A savepoint of one version of Spark is restored by another one: the tables of lakes need Spark 4.1, other tests have 4.3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import create_savepoint, restore_savepoint
from tests.discovery.servers import or_skipped
from tests.savepoints.test_savepoints_slow import Query, of_pattern, parts
from tests.servers.lakes import SPARK, run_scenarios

pytestmark = pytest.mark.spark


def run(*arguments: str) -> None:
    with or_skipped():
        run_scenarios("savepoints.py", more=arguments)


def test_positions_in_tables_of_delta_and_iceberg() -> None:
    run("-k", "positions")


def test_to_another_version_of_spark_and_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, moved = Query(spark, tmp_path / "whole", of_pattern), Query(spark, tmp_path / "moved", of_pattern)
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
    whole.run("checkpoint", drain=True)
    for number in (0, 1):
        moved.write(number, parts()[number])
    moved.run("first", drain=False, key_groups=3)
    create_savepoint(spark, str(moved.folder / "first"), str(moved.folder / "savepoint-1"))
    monkeypatch.setenv("ASTERISM_MOVED", str(moved.folder))
    run("-k", "another_version")
    manifest = json.loads((moved.folder / "savepoint-2" / "manifest.json").read_text())
    assert (manifest["spark"], manifest["key_groups"]) == (SPARK, 5)
    restore_savepoint(spark, str(moved.folder / "savepoint-2"), str(moved.folder / "third"), key_groups=2)
    for number in (4, 5):
        moved.write(number, parts()[number])
    moved.run("third", drain=True)
    assert moved.rows() == whole.rows()
