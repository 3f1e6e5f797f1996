"""Over Spark Connect, each query is restarted; the matches of one go into windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cluster.over_connect import OUTPUTS
from tests.cluster.test_connect import check_results, outputs_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return outputs_of(dict.fromkeys(OUTPUTS, 2), tmp_path_factory.mktemp("connect"))


@pytest.mark.parametrize("name", OUTPUTS)
def test_results_are_those_of_a_classic_session(spark: SparkSession, folder: Path, tmp_path: Path, name: str) -> None:
    check_results(spark, folder, tmp_path, name)
