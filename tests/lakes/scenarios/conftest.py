"""The session of the scenarios, which run in a process of their own: see ``tests/servers/lakes.py``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kit import JAVA
from tests.servers.lakes import settings

_numbers = count(1)
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.pollingDelay": "50ms",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("lakes")
    builder = SparkSession.builder.master("local[2]").config(
        "spark.driver.extraJavaOptions", f"{JAVA} -Dderby.system.home={folder}"
    )
    for name, value in (SETTINGS | settings(folder)).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
    yield session
    session.stop()


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(spark: SparkSession, lake: str) -> Iterator[str]:
    """A table that does not exist yet."""
    name = f"t{next(_numbers)}"
    full = f"ice.db.{name}" if lake == "iceberg" else name
    yield full
    spark.sql(f"DROP TABLE IF EXISTS {full}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
