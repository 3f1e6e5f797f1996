"""Processes with Delta and Iceberg. Neither runs on Spark 4.3: they have Spark 4.1, and otherwise the packages of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.discovery.servers import installed
from tests.kit import ROOT
from tests.servers.jars import jars

SPARK = "4.1.4"
_JARS = "ASTERISM_LAKES"


def environment(*path: Path) -> dict[str, str]:
    """The environment variables of such a process.

    :param path: folders of modules
    :raises NoServerError: the jars or PySpark cannot be had
    """
    connectors = [*jars("delta"), *jars("iceberg")]
    spark = installed("ensure_spark.sh", SPARK, sys.executable)[-1]
    folders = [spark, *map(str, path), str(ROOT / "src"), str(ROOT)]
    without = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYTEST_"))}
    return without | {"PYTHONPATH": os.pathsep.join(folders), _JARS: ",".join(map(str, connectors))}


def settings(folder: Path) -> dict[str, str]:
    """Of a Spark session in such a process: Delta's tables are in its own catalog, those of Iceberg in the catalog ``ice``."""
    return {
        "spark.jars": os.environ[_JARS],
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(folder / "iceberg"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default, for small tables of tests as well
    }


def run_scenarios(*files: str, more: tuple[str, ...] = ()) -> None:
    """Run files of ``tests/lakes/scenarios`` by pytest in such a process.

    :raises NoServerError: the jars or PySpark cannot be had
    """
    folder = ROOT / "tests" / "lakes" / "scenarios"
    # PySpark 4.1 raises warnings with the newest pandas.
    # Their summary would push what has failed out of the message.
    quiet = ["-W", "default", "--disable-warnings", "-p", "no:cacheprovider", "--tb=short"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", *quiet, *more]
    done = subprocess.run(
        [*command, *(str(folder / name) for name in files)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
