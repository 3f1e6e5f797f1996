"""Expensive resources, created once: a Spark session, and servers of PostgreSQL and MariaDB in which each test gets a
database of its own.

The reference matcher is registered as an engine of the conformance corpus.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter, so it comes before the session
from asterism.cli.common import terminal
from asterism.conformance.engines import register
from tests.discovery.mariadb import MariadbServer
from tests.discovery.postgresql import Server
from tests.discovery.servers import NoServerError, running, running_or_skipped
from tests.kit import FACTOR, JAVA, Golden, examples
from tests.reference.engine import run_reference
from tests.servers.jars import jars
from tests.servers.kafka import Broker

register("reference", run_reference)
os.environ["SPARK_SUBMIT_OPTS"] = JAVA  # of the sessions that programs of the tests make, too
terminal.SLOW = 3600.0  # what a command prints does not depend on how long it takes

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "tests",
    deadline=None,
    derandomize=FACTOR == 1,
    database=None,
    max_examples=examples(10, usual=20),
    suppress_health_check=_SLOW,
    print_blob=FACTOR > 1,
)
settings.load_profile("tests")

_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
_numbers = count(1)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.path)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    connectors: list[Path] = []
    with suppress(NoServerError):  # without Maven, the tests with a broker say so
        connectors = jars("kafka")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("asterism tests")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", 2)
        # On a local file system, Spark's default starts some 30 processes for each micro-batch, most of them to look for links.
        # `run` selects this class itself, but writeStream does not.
        .config(
            "spark.sql.streaming.checkpointFileManagerClass", f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager"
        )
        .config("spark.sql.streaming.checkpoint.fileChecksum.enabled", "false")
        # Running queries without new data look for them a hundred times a second by default.
        .config("spark.sql.streaming.pollingDelay", "50ms")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", ",".join(map(str, connectors)))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    # Hadoop starts a process for each local file that it creates, to set its mode, and one more for the file with its checksum.
    assert session._jvm is not None
    local = session._jvm.org.apache.hadoop.fs.FileSystem.getLocal(session._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)
    yield session
    session.stop()


@contextmanager
def _or_failed() -> Iterator[None]:
    """The test fails where there cannot be a server that the block needs."""
    try:
        yield
    except NoServerError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    with _or_failed(), running(Server) as server:
        yield server


@pytest.fixture
def database(postgresql: Server) -> str:
    """The URL of a new, empty database."""
    name = f"rules{next(_numbers)}"
    with postgresql.connect("postgres") as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{postgresql.address}/{name}"


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    with _or_failed(), running(MariadbServer) as server:
        yield server


@pytest.fixture
def mariadb_database(mariadb: MariadbServer) -> str:
    """The URL of a new, empty database."""
    name = f"rules{next(_numbers)}"
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    return f"{mariadb.address}/{name}"


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A Kafka broker. Tests that stop it, or change its settings, have :func:`own_broker`."""
    with running_or_skipped(Broker) as server:
        yield server


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A Kafka broker of one test."""
    with running_or_skipped(Broker) as server:
        yield server
