"""Shadows are promoted while a query runs; queries that the user starts are counted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from asterism.discovery import status_of
from asterism.discovery.editing.editing import rules_at
from asterism.rules.sets.discovery_status import RuleState
from tests.kit import until
from tests.spark.rules import Watch, e, found, rule
from tests.spark.streams import Collect

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_a_query_that_the_user_starts_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Also after a restart from its checkpoint."""
    store = str(tmp_path / "store")
    watch = Watch(spark, tmp_path, store=store)
    watch.rules(rule("ab", 1, "a", "b"))
    for number, matches in ((0, 1), (10, 3)):
        watch.events(e(number + 1, "a"), e(number + 2, "b"), e(number + 3, "a"))
        writer = watch.stream.output("matches").writeStream.foreachBatch(lambda rows, batch: rows.collect())
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        until(lambda matches=matches: [one.matches for one in status_of(store).rules] == [matches])


def test_a_shadow_is_promoted_while_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    """With a restart in between. Its partial matches and its counts continue."""
    query = Watch(spark, tmp_path)
    query.sinks["shadow"] = Collect()
    query.rules(rule("ab", 1, "a", "b"), rule("ab", 2, "a", "c", shadow=True))

    def of(version: int) -> RuleState:
        return next(one for one in query.status.rules if one.version == version)

    def counted() -> list[tuple[str, int, int, int]]:
        return [(one.state, one.matches, one.shadow_matches, one.partial_matches) for one in query.status.rules]

    with query.running():
        query.send(e(1, "a"), e(2, "b"), e(3, "c"), e(4, "a", "bob"))
        until(lambda: counted() == [("in force", 1, 0, 1), ("shadow", 0, 1, 1)], query.query)
    assert (query.status.processors, query.status.shadows) == ({"ab": 1}, {"ab": 2})
    assert found(query.sinks["shadow"].rows) == [("ab", 2, ("ann",), "a1 c3")]
    with query.running():
        assert rules_at(str(query.file)).promote(["ab"]) == ["ab version 2 promoted"]
        query.wait_for({"ab": 2})
        query.settle().send(e(5, "b", "bob"), e(6, "c", "bob"))
        until(lambda: counted() == [("in force", 1, 1, 0)], query.query)
        progress = [one for one in query.query.recentProgress if query.stream.matches_by_processor(one)]  # type: ignore[union-attr]
    assert [query.stream.matches_by_processor(one) for one in progress] == [{"ab": 1}]
    assert query.found == [("ab", 1, ("ann",), "a1 b2"), ("ab", 2, ("bob",), "a4 c6")]
    assert len(query.sinks["shadow"].rows) == 1
    assert "ab promoted, version 1 -> 2, accepted" in query.status.log[-1]
    assert of(2).added == 1


def test_a_run_that_returns_has_counted_everything(spark: SparkSession, tmp_path: Path) -> None:
    query = Watch(spark, tmp_path)
    query.rules(rule("ab", 1, "a", "b"))
    query.events(e(1, "a"), e(2, "b"), e(3, "a"))
    query.stream.run(query.sinks, checkpoint=str(query.checkpoint))
    status = query.stream.status(str(query.checkpoint))
    assert [(one.matches, one.partial_matches, one.state) for one in status.rules] == [(1, 0, "in force")]
    assert status.missed == 0
