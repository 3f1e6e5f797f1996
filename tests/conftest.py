"""One Spark session for all tests that need one, and the reference matcher as an engine of the conformance corpus."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter, so it comes before the session
from asterism.conformance.engines import register
from tests.reference.engine import run_reference

register("reference", run_reference)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("asterism tests")
        .config("spark.driver.memory", "2g")
        # Small jobs do not live long enough for the better compiler: the JVM takes two thirds of the CPU time with this one.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
