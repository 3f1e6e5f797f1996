"""A standalone cluster with Spark's default settings gives the expected results, also if workers are killed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cluster.processes import Cluster
from tests.cluster.runs import answer, data_of, expected, run

SIZE = "XS"
NAMES = ["W1", "W6_1", "tumbling"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    data_of(SIZE, folder)
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Mapping[str, pa.Table]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder) as cluster:
        return run(cluster, data, folder, NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_results_are_the_expected_ones(found: Mapping[str, pa.Table], data: Path, name: str) -> None:
    query = name.partition("_")[0]
    assert answer(query, found[name], data) == expected(query, SIZE, data)
