"""What is in force in a running query, and after it, as another process reads it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from asterism.discovery import status_of
from asterism.rules.sets.discovery_status import OFF, RuleState
from tests.kit import until
from tests.spark.rules import Watch, at, e, rule

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_what_is_in_force(spark: SparkSession, tmp_path: Path) -> None:
    """A rule finds matches, one fails for one user, one waits for its time, and one is refused."""
    fails = rule("fails", 1, "a", "b", select=["100 / (a.x - 1) AS q"])
    counts = rule("ab", 1, "a", "b", timed_out=True)
    later = rule("ab", 2, "b", "c", timestamp=at(100))
    wrong = {"id": "wrong", "version": 4, "pattern": {}}
    query = Watch(spark, tmp_path, on_error="disable")

    def states() -> dict[tuple[str, int | None], RuleState]:
        return {(one.id, one.version): one for one in status_of(str(query.checkpoint)).rules}

    def of(version: int) -> RuleState:
        return states().get(("ab", version)) or RuleState("ab", version, "none")

    query.rules(counts, fails)
    with query.running():
        query.send(e(1, "a", x=1.0), e(2, "a", "bob"), e(3, "b"), e(3, "b", "bob"), e(4, "a"))
        until(lambda: of(1).partial_matches == 1, query.query)
        first = states()
        query.rules(later, fails, wrong)
        query.wait_for({"ab": 2, "fails": 1})
        query.settle()
        waiting = states()
        query.send(e(101, "b"), e(102, "c"))
        until(lambda: of(2).matches == 1, query.query)
        last = states()
    assert {name: one.state for name, one in first.items()} == {("ab", 1): "in force", ("fails", 1): "disabled"}
    assert (first["ab", 1].matches, first["ab", 1].last_match) == (2, "1970-01-01T00:00:03+00:00")
    failed = first["fails", 1]
    assert (failed.disabled_groups, failed.errors, failed.matches) == (1, 1, 1)
    assert failed.reason is not None
    assert "division by zero" in failed.reason
    assert [(one.id, one.version, one.state) for one in waiting.values()] == [
        ("ab", 1, "in force"),
        ("ab", 2, "waiting"),
        ("fails", 1, "disabled"),
        ("wrong", 4, "refused"),
    ]
    assert waiting["ab", 1].since == first["ab", 1].since
    assert [(one.id, one.version, one.state) for one in last.values()] == [
        ("ab", 2, "in force"),
        ("fails", 1, "disabled"),
        ("wrong", 4, "refused"),
    ]
    until(lambda: status_of(str(query.checkpoint)).state == OFF)
