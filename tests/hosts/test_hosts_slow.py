"""A worker without the storage, and the loss of a driver's host, change no rows. ``make hosts`` has all queries and faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.discovery.servers import or_skipped
from tests.hosts.cluster import Cluster
from tests.hosts.namespaces import check_machine
from tests.hosts.runs import Scenario, outcome
from tests.servers.jars import jars


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with or_skipped():
        check_machine()
        jars("hdfs")
    with Cluster() as cluster:
        yield cluster


@pytest.mark.parametrize(
    "scenario", [Scenario("pattern", "cut from storage"), Scenario("rules", "driver lost")], ids=str
)
def test_rows_are_those_of_a_replay(cluster: Cluster, scenario: Scenario) -> None:
    result = outcome(cluster, scenario, files=5)
    assert not result.verdict.differences, result.verdict.tell()
    assert result.verdict.rows["matches"] > 10
