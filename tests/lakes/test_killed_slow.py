"""A query that writes to Delta and Iceberg is killed: each row is in the tables once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.discovery.servers import NoServerError
from tests.nemesis.life import ALL, DRIVER, ERROR, JVM, KILL, SELF, Fault, Life
from tests.servers.lakes import environment

FAULTS = [
    ("sink.lake", 1, KILL, ALL),  # when the first table has been written
    ("sink.lake", 2, ERROR, SELF),
    ("sink.lake", 3, KILL, JVM),
    ("batch.end", 1, KILL, DRIVER),  # when all have been
]


def test_a_life_with_lakes(tmp_path: Path) -> None:
    """Rows are appended to a table of one lake, and merged into a table of the other one."""
    try:
        environment()
    except NoServerError as error:
        pytest.skip(str(error))
    faults = [Fault(number, *fault) for number, fault in enumerate(FAULTS)]
    life = Life(tmp_path, "pattern", 11, faults, lakes=True)
    verdict = life.run()
    assert not verdict.differences, verdict.tell()
    assert [outcome.hit and outcome.recovered for outcome in life.outcomes] == [True] * len(faults)
    for output in life.query.ids:
        assert verdict.rows[f"{output} in delta"] == verdict.rows[f"{output} in iceberg"] == verdict.rows[output] > 0
