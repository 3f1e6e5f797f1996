"""A query is started without a rule by its options."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from asterism import Pattern
from asterism.rules.sets.discovery_status import OFF
from tests.kit import until
from tests.spark.rules import Watch, e, rule
from tests.spark.test_killed_rules import AB, bad, check_rule_is_left_out, cli

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("how", ["without", "kill"])
def test_a_query_that_a_rule_has_brought_down_starts_again_without_it(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    query = check_rule_is_left_out(spark, tmp_path, how)
    query.events(e(5, "b"), e(6, "tick"))
    with query.running():
        query.settle()  # it is not left out any more, and stays disabled
        query.taken(AB, bad(2, Pattern.begin("a").where("kind = 'z'")))
        query.send(e(7, "z"))
    assert query.found == [("ab", 1, ("ann",), "a1 b2"), ("ab", 1, ("ann",), "a3 b5"), ("bad", 2, ("ann",), "z7")]
    assert query.sinks["errors"].rows == []


def test_a_rule_is_killed_while_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    query = Watch(spark, tmp_path)
    r = rule("r", 1, "a", "b")
    query.rules(AB, r)
    with query.running():
        query.send(e(1, "a"))
        assert cli("kill", str(query.checkpoint), "r") == "r killed\n"
        until(lambda: query.status.version == 2, query.query)
        query.settle().send(e(2, "b"), e(3, "a"), e(4, "b"))
        shown = cli("status", str(query.checkpoint))
        assert shown.startswith("valid since ")
        assert "killed: r: no reason was given" in shown
    assert [one for one in query.found if one[0] == "r"] == []
    assert query.found == [("ab", 1, ("ann",), "a1 b2"), ("ab", 1, ("ann",), "a3 b4")]
    until(lambda: query.status.state == OFF)
