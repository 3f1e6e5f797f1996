"""The last set of rules goes on without a file or a database, too."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.discovery.places import FilePlace, PostgresqlPlace
from tests.discovery.postgresql import Server
from tests.spark.test_rules import check_without_discoverer

pytestmark = pytest.mark.spark


def test_the_last_set_goes_on_without_its_file(spark: SparkSession, tmp_path: Path) -> None:
    with closing(FilePlace(tmp_path)) as place:
        check_without_discoverer(spark, tmp_path, place)


def test_the_last_set_goes_on_without_its_database(
    spark: SparkSession, tmp_path: Path, postgresql: Server, database: str
) -> None:
    with closing(PostgresqlPlace(postgresql, database)) as place:
        check_without_discoverer(spark, tmp_path, place)
