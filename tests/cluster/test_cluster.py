"""A standalone cluster with Spark's default settings gives the expected results, also if workers are killed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gen_data import Parameters
from tests.cluster.processes import Cluster
from tests.cluster.runs import answer, data_of, expected, run

SIZE = "XS"


def test_a_worker_is_killed_under_windows(tmp_path: Path) -> None:
    check_results(tmp_path, ["tumbling_1"], Parameters(events=5_000, users=100, items=50))


def check_results(folder: Path, names: list[str], parameters: Parameters) -> None:
    """Of workloads of the benchmarks, one after the other; each with ``_1`` loses a worker."""
    data = folder / "data"
    data.mkdir()
    data_of(parameters, data)
    with Cluster(folder) as cluster:
        found = run(cluster, data, folder, names)
    for name in names:
        query = name.partition("_")[0]
        assert found[name].num_rows > 100
        assert answer(query, found[name], data) == expected(query, SIZE, data), name
