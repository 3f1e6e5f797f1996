"""Delta and Iceberg, in a process with a Spark on which they run; slow, because it may have to be downloaded (67 s)."""

from __future__ import annotations

from tests.discovery.servers import or_skipped
from tests.servers.lakes import run_scenarios


def run(*files: str) -> None:
    with or_skipped():
        run_scenarios(*files)


def test_each_row_once() -> None:
    run("core.py", "sinks.py")


def test_tables_as_sources() -> None:
    run("sources.py")


def test_the_documentation() -> None:
    run("documents.py")


def test_spark_connect() -> None:
    run("connect.py")
