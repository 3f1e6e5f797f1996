"""Spark's Python processes import the PySpark that is installed, and not an archive of it, which is slower."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

import asterism.spark
from asterism.spark.startup.sitecustomize import without_archives

STARTUP = Path(asterism.spark.__file__).parent / "startup"
LIB = Path(pyspark.__file__).parent / "python" / "lib"


def loaded_from(*path: Path) -> tuple[str, str]:
    """Where a process with this PYTHONPATH imports pyspark from, and what it has printed before."""
    *before, place = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__file__)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return place, "".join(before)


def test_the_archive_of_an_installed_pyspark_is_not_used() -> None:
    (py4j,) = LIB.glob("py4j-*.zip")
    assert loaded_from(LIB / "pyspark.zip", py4j) == (str(LIB / "pyspark.zip" / "pyspark" / "__init__.py"), "")
    assert loaded_from(LIB / "pyspark.zip", py4j, STARTUP) == (pyspark.__file__, "")


def test_another_archive_is_used(tmp_path: Path) -> None:
    """That of a Spark distribution, which may have another version."""
    lib = tmp_path / "spark" / "python" / "lib"
    lib.mkdir(parents=True)
    (lib / "pyspark.zip").write_bytes((LIB / "pyspark.zip").read_bytes())
    assert loaded_from(lib / "pyspark.zip", STARTUP) == (str(lib / "pyspark.zip" / "pyspark" / "__init__.py"), "")


def test_an_archive_whose_package_is_not_on_the_path_is_used(tmp_path: Path) -> None:
    lib = tmp_path / "pyspark" / "python" / "lib"
    archives = [str(lib / "pyspark.zip"), str(lib / "py4j-1-src.zip")]
    assert without_archives([*archives, "/elsewhere"]) == [*archives, "/elsewhere"]
    assert without_archives([*archives, str(tmp_path)]) == [*archives, str(tmp_path)]  # it has no package

    lib.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    assert without_archives([*archives, str(tmp_path)]) == [archives[1], str(tmp_path)]


@pytest.mark.parametrize("order", [1, -1])
def test_another_sitecustomize_is_run_too(order: int, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    expected = (pyspark.__file__, "mine") if order == 1 else (str(LIB / "pyspark.zip/pyspark/__init__.py"), "mine")
    assert loaded_from(LIB / "pyspark.zip", *[STARTUP, tmp_path][::order]) == expected


@pytest.mark.spark
def test_spark_runs_it(spark: SparkSession) -> None:
    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"place": [pyspark.__file__]})

    rows = spark.range(1, numPartitions=1).mapInArrow(place, "place string").collect()
    assert [row.place for row in rows] == [pyspark.__file__]
