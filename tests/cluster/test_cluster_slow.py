"""A standalone cluster with Spark's default settings: patterns, rules and windows, one after the other."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gen_data import Parameters
from tests.cluster.test_cluster import SIZE, check_results


def test_results_are_the_expected_ones(tmp_path: Path) -> None:
    check_results(tmp_path, ["W1", "W6_1", "tumbling"], Parameters.of_size(SIZE))
