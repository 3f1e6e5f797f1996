"""What Python workers exclude from garbage collection."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from asterism.spark import worker


class Thing:
    """What can be in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def nothing_is_frozen() -> Iterator[None]:
    gc.unfreeze()
    gc.collect()
    yield
    gc.unfreeze()


def test_what_earlier_tasks_left_is_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_last_full", float("inf"))
    worker.settle_memory()
    before = gc.get_freeze_count()
    assert before > worker.FEW
    worker.settle_memory()
    left = [Thing() for _ in range(worker.FEW + 1)]
    gc.collect()
    worker.settle_memory()
    assert gc.get_freeze_count() > before + len(left)


def test_little_is_not_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the operators of all tasks, of which each unpickles one, would stay in memory."""
    monkeypatch.setattr(worker, "_last_full", float("inf"))
    worker.settle_memory()
    before = gc.get_freeze_count()
    of_a_task = [Thing() for _ in range(1_000)]
    worker.settle_memory()
    assert gc.get_freeze_count() == before
    seen = weakref.ref(of_a_task[0])
    del of_a_task
    gc.collect()
    assert seen() is None


def test_excluded_garbage_is_collected_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_last_full", float("inf"))
    thing = Thing()
    worker.settle_memory()
    seen = weakref.ref(thing)
    del thing
    gc.collect()
    assert seen() is not None
    monkeypatch.setattr(worker, "_last_full", float("-inf"))
    worker.settle_memory()
    gc.collect()
    assert seen() is None
