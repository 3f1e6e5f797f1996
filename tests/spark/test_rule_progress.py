"""The progress of queries reaches the counts of their rules, without a Spark session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from asterism.rules.set_store import FolderStore
from asterism.spark.rule_progress import count
from tests.kit import until


class Session:
    """With the listeners of its streams."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append, removeListener=self.listeners.remove)


def test_a_session_has_one_listener_while_it_has_queries() -> None:
    session: Any = Session()
    queries: list[Any] = [SimpleNamespace(runId=f"run {n}", recentProgress=[], isActive=True) for n in range(3)]
    counted = [count(session, query, "observation", FolderStore("/nowhere")) for query in queries]
    [listener] = session.listeners
    for query, one in zip(queries, counted, strict=True):
        assert not one.ended.is_set()
        listener.onQueryTerminated(SimpleNamespace(runId=query.runId))
        one.wait()
        assert one.ended.is_set()
    until(lambda: not session.listeners)
    count(session, None, "observation", FolderStore("/nowhere"))
    assert len(session.listeners) == 1


def test_a_query_that_has_ended_is_not_waited_for() -> None:
    session: Any = Session()
    query: Any = SimpleNamespace(runId="run", recentProgress=[], isActive=False)
    assert count(session, query, "observation", FolderStore("/nowhere")).ended.is_set()
    until(lambda: not session.listeners)
