"""Calls of a live engine that are interrupted, and engines that are closed at unusual places."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism.errors import StateError
from asterism.live.batches import Batch
from asterism.live.engine import LiveEngine
from asterism.live.live_store import LiveStore
from asterism.patterns.pattern import Pattern
from tests.kit import SOON
from tests.live.driver import in_order, killed
from tests.live.test_failures import event, opened


def some_batches(first: int, last: int) -> Iterator[Batch]:
    return (Batch(event(number), position=number, watermark=1000 * number) for number in range(first, last))


def test_a_task_that_is_cancelled_while_a_batch_is_processed(tmp_path: Path) -> None:
    """Nobody gets the rows of the batch, so it has no effect: it is sent again, in this engine or after a restart."""
    entered, goes = threading.Event(), threading.Event()
    found: list[Any] = []

    def slow(rows: pa.Table) -> list[bool]:
        if 3000 in rows["ts"].to_pylist():
            entered.set()
            goes.wait(SOON)
        return [True] * rows.num_rows

    async def run(engine: LiveEngine) -> None:
        async for rows in engine.astream(some_batches(1, 9)):
            found.extend(rows["matches"].to_pylist())

    async def cancelled(engine: LiveEngine) -> None:
        task = asyncio.create_task(run(engine))
        await asyncio.to_thread(entered.wait, SOON)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # once more, while it waits for the call
        threading.Timer(0.1, goes.set).start()
        with suppress(asyncio.CancelledError):
            await task

    pattern = Pattern.begin("a").where(slow)
    engine = opened(tmp_path, pattern=pattern)
    asyncio.run(cancelled(engine))
    assert engine.position == 2
    engine.close()
    with opened(tmp_path, pattern=pattern) as engine:
        for rows in engine.stream(some_batches(engine.position + 1, 9)):
            found += rows["matches"].to_pylist()
    assert [row["match_time"] for row in found] == [1000 * number for number in range(1, 9)]


def test_an_interrupt_after_a_call_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call has no effect, although its pages were kept already."""
    engine, whole = opened(), opened()
    for each in (engine, whole):
        each.process(event(1), position=1)
    commit, interrupts = LiveStore.commit, [True]

    def interrupted(store: LiveStore) -> None:
        commit(store)
        if interrupts:
            interrupts.clear()
            raise KeyboardInterrupt

    monkeypatch.setattr(LiveStore, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.process([event(2), event(3)], position=3)
    assert (engine.position, engine.progress["numInputRows"]) == (1, 1)
    for each in (engine, whole):
        each.process([event(2), event(3)], position=3)
    assert in_order(engine.finish()["matches"]) == in_order(whole.finish()["matches"])
    assert engine.progress == whole.progress


def test_an_interrupt_while_a_call_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    store = LiveStore({1: b"one", 2: b"two"})
    for number, value in ((1, b"new"), (2, None), (3, b"three")):
        store.write_page(number, value)
    store.write_header(b"new head")

    def halfway(changes: dict[int, bytes | None]) -> None:
        store._pages[1] = changes[1] or b""
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "_put", halfway)
        with pytest.raises(KeyboardInterrupt):
            store.commit()
    store.take_back()
    assert [store.read_page(number) for number in (1, 2, 3)] == [b"one", b"two", None]
    assert store.read_header() is None


to_close: list[LiveEngine] = []


def close(rows: pa.Table, number: int = 0) -> list[bool]:
    """A condition, or a sink."""
    for engine in to_close:
        engine.close()
    return [True] * rows.num_rows


@pytest.mark.parametrize("place", ["a sink", "a condition"])
def test_an_engine_that_is_closed_within_a_call(place: str, tmp_path: Path) -> None:
    """The call returns its rows. The snapshot has it if a sink has taken them, and otherwise the calls before it."""
    pattern = Pattern.begin("a").where(close) if place == "a condition" else Pattern.begin("a")
    options: Any = {"sinks": {"matches": close}} if place == "a sink" else {}
    engine = opened(tmp_path, pattern=pattern, **options)
    engine.process(event(1), position=1, watermark=1000)
    to_close.append(engine)
    assert engine.process(event(2), position=2, watermark=2000)["matches"].num_rows == 1
    to_close.clear()
    engine.close()  # again, which is allowed
    with opened(tmp_path, pattern=pattern) as again:
        assert again.position == (2 if place == "a sink" else 1)
        if again.position == 1:
            assert again.process(event(2), position=2, watermark=2000)["matches"].num_rows == 1


AT_EXIT = """
import atexit, sys
from pathlib import Path
from tests.live.test_failures import event, opened

engine = opened(Path(sys.argv[1]), snapshot_every=None)
atexit.register(engine.close)
engine.process(event(1), position=1)
"""


def test_an_engine_that_is_closed_at_exit(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", AT_EXIT, str(tmp_path)]
    result = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=SOON)
    assert result.stderr == ""
    with opened(tmp_path) as engine:
        assert engine.position == 1


def test_a_snapshot_that_fails_is_taken_again_after_a_call_that_fails(tmp_path: Path) -> None:
    engine = opened(tmp_path, snapshot_every=None)
    engine.process(event(1), position=1)
    engine._save()
    assert engine._folder is not None
    engine._folder.wait()
    engine.process(event(2), position=2)
    with pytest.raises(Exception, match="must be a dict"):
        engine.process([5])
    engine.snapshot()
    killed(engine)
    with opened(tmp_path) as engine:
        assert engine.position == 2


def test_an_engine_that_is_closed_while_a_call_cannot_begin(tmp_path: Path) -> None:
    """The call before it has returned its rows, so its effects are in the last snapshot."""
    engine = opened(tmp_path)
    engine.process(event(1), position=1)
    folder = engine._folder
    assert folder is not None

    def fails() -> None:
        engine.close()
        raise StateError("the folder is gone")

    folder.check = fails  # type: ignore[method-assign]
    with pytest.raises(StateError, match="the folder is gone"):
        engine.process(event(2), position=2)
    with opened(tmp_path) as engine:
        assert engine.position == 1
