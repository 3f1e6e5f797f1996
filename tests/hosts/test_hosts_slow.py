"""A worker that is cut off from the storage for good changes no rows. ``make hosts`` has all kinds of queries and faults."""

from __future__ import annotations

import pytest

from tests.discovery.servers import NoServerError
from tests.hosts.cluster import Cluster
from tests.hosts.namespaces import check_machine
from tests.hosts.runs import Scenario, outcome
from tests.servers.jars import jars


def test_a_worker_is_cut_off() -> None:
    try:
        check_machine()
        jars("hdfs")
    except NoServerError as error:
        pytest.skip(str(error))
    with Cluster() as cluster:
        found = outcome(cluster, Scenario("pattern", "cut from storage"), files=6)
    assert not found.verdict.differences, found.verdict.tell()
    assert found.verdict.rows["matches"] > 10
