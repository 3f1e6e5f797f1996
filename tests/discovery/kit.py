"""What the tests of all discoverers have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from pyspark import cloudpickle

from asterism.discovery.rest.rule_file import StoredRuleFile
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    RefusedProcessor,
)
from tests.kit import SOON

Rule = dict[str, Any]
INTERVAL = timedelta(milliseconds=50)


def graph(condition: str = "price > 1") -> dict[str, Any]:
    return {
        "type": "COMPOSITE",
        "nodes": [
            {
                "name": "a",
                "type": "ATOMIC",
                "quantifier": {"properties": ["SINGLE"]},
                "condition": {"type": "SQL", "expression": condition},
            }
        ],
    }


def rule(id: str, version: int = 1, **fields: Any) -> Rule:
    return {"id": id, "version": version, "pattern": graph()} | fields


CLAUSE = """PARTITION BY user
ORDER BY ts
MEASURES LAST(B.price) AS price
PATTERN (A B+)
DEFINE B AS price > PREV(price)
"""


def sql_rule(id: str, version: int = 1, sql: str = CLAUSE, **fields: Any) -> Rule:
    return {"id": id, "version": version, "sql": sql} | fields


def versions(found: Sequence[Discovered]) -> dict[str, int]:
    """Of those that are good."""
    return {one.id: one.version for one in found if isinstance(one, PatternProcessor)}


def refused(found: Sequence[Discovered]) -> list[RefusedProcessor]:
    return [one for one in found if isinstance(one, RefusedProcessor)]


def put(rules: StoredRuleFile, item: Rule) -> list[str]:
    """What was done."""
    new = rules.checked(item)
    return rules.change(lambda there: there.add([new]))


def put_all(rules: StoredRuleFile, items: Sequence[Rule]) -> list[str]:
    new = [rules.checked(item) for item in items]
    return rules.change(lambda there: there.put_all(new))


class Manager(PatternProcessorManager):
    """Records the calls that it gets, and waits for them."""

    def __init__(self) -> None:
        self.updates: list[Sequence[Discovered]] = []
        self.failures: list[Exception] = []
        self.polls = 0
        """At which nothing had changed."""
        self.refuses_next = False
        self._changed = threading.Condition()

    def on_pattern_processors_updated(self, pattern_processors: Sequence[Discovered]) -> None:
        with self._changed:
            if self.refuses_next:
                self.refuses_next = False
                raise RuntimeError("the manager cannot take it")
            self.updates.append(list(pattern_processors))
            self._changed.notify_all()

    def on_discovery_failed(self, error: Exception) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def on_nothing_changed(self) -> None:
        with self._changed:
            self.polls += 1
            self._changed.notify_all()

    def current_pattern_processors(self) -> Sequence[PatternProcessor]:
        return [one for one in (self.updates or [[]])[-1] if isinstance(one, PatternProcessor)]

    @property
    def last(self) -> Sequence[Discovered]:
        return self.updates[-1]

    def wait(self, what: Callable[[], object]) -> None:
        with self._changed:
            if not self._changed.wait_for(what, SOON):
                raise AssertionError(f"updates: {[*map(versions, self.updates[-3:])]}, failures: {self.failures[-3:]}")

    def wait_for(self, expected: dict[str, int]) -> Sequence[Discovered]:
        """Until an update has just these good processors."""
        self.wait(lambda: bool(self.updates) and versions(self.last) == expected)
        return self.last

    def wait_for_polls(self, number: int = 2) -> None:
        """At which nothing has changed. With two, the second has begun after this call."""
        known = self.polls
        self.wait(lambda: self.polls >= known + number)

    def wait_for_failure(self) -> Exception:
        known = len(self.failures)
        self.wait(lambda: len(self.failures) > known)
        return self.failures[-1]


@contextmanager
def watching(discoverer: PatternProcessorDiscoverer) -> Iterator[Manager]:
    """A manager that *discoverer* notifies in a thread, which must end soon after it is closed."""
    manager = Manager()
    thread = threading.Thread(
        target=discoverer.discover_pattern_processor_updates, args=(manager,), name="discoverer", daemon=True
    )
    thread.start()
    try:
        yield manager
    finally:
        discoverer.close()
        thread.join(SOON)
        assert not thread.is_alive()


def travelled(factory: PatternProcessorDiscovererFactory) -> PatternProcessorDiscoverer:
    """What a factory makes after it was pickled."""
    copy: PatternProcessorDiscovererFactory = cloudpickle.loads(cloudpickle.dumps(factory))
    return copy.create_pattern_processor_discoverer()
