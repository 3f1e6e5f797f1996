"""The progress of queries reaches the counts of their rules, without a Spark session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from asterism.rules.sets.rule_counts import MATCHES, metric
from asterism.rules.sets.set_store import FolderStore
from asterism.spark.progress.rule_progress import count
from tests.kit import until
from tests.spark.progress import RUN, WrittenSession, of_rules, on_connect, progress


def test_a_session_has_one_listener_while_it_has_queries() -> None:
    session: Any = WrittenSession()
    queries: list[Any] = [SimpleNamespace(runId=f"run {n}", recentProgress=[], isActive=True) for n in range(3)]
    counted = [count(session, query, "observation", FolderStore("/nowhere")) for query in queries]
    for query, one in zip(queries, counted, strict=True):
        assert not one.ended.is_set()
        session.end(query.runId)
        one.wait()
        assert one.ended.is_set()
    until(lambda: not session.listeners)
    count(session, None, "observation", FolderStore("/nowhere"))
    assert len(session.listeners) == 1


def test_a_query_that_has_ended_is_not_waited_for() -> None:
    session: Any = WrittenSession()
    query: Any = SimpleNamespace(runId="run", recentProgress=[], isActive=False)
    assert count(session, query, "observation", FolderStore("/nowhere")).ended.is_set()
    until(lambda: not session.listeners)


def test_micro_batches_before_a_query_is_counted_on_spark_connect(tmp_path: Path) -> None:
    """Its recent progress has observations in another form."""
    session: Any = WrittenSession()
    store = FolderStore(str(tmp_path))
    store.claim("owner")
    observed = on_connect(of_rules({metric(MATCHES, ("a", 1, 1)): 5}))
    query: Any = SimpleNamespace(runId=RUN, recentProgress=[progress(observed=observed)], isActive=False)
    count(session, query, "asterism", store)
    assert store.counts().versions["a", 1].matches == 5
    until(lambda: not session.listeners)
