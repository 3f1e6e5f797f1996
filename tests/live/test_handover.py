"""Sinks that only append: what fails, and when an engine is closed within a call, rows come once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism.live.engine import LiveEngine
from asterism.live.snapshots import read_snapshot
from tests.live.driver import in_order, killed
from tests.live.test_failures import event, opened

EVENTS = [event(number if number % 5 else max(number - 9, 1), float(-(number % 7))) for number in range(1, 60)]
"""Each fifth one is late."""
BATCHES = [EVENTS[at : at + 6] for at in range(0, len(EVENTS), 6)]


class Appending:
    """Sinks of two outputs that append rows, and what happens before they do so.

    :param before: called with the engine and the output
    """

    def __init__(self, before: Callable[[LiveEngine, str], None]) -> None:
        self.before = before
        self.engine: LiveEngine | None = None
        self.rows: dict[str, list[dict[str, Any]]] = {"matches": [], "late": []}
        self.sinks = {output: self._sink(output) for output in self.rows}

    def _sink(self, output: str) -> Callable[[pa.Table, int], None]:
        def write(rows: pa.Table, number: int) -> None:
            assert self.engine is not None
            self.before(self.engine, output)
            self.rows[output] += rows.to_pylist()

        return write

    def open(self, folder: Path, **options: Any) -> LiveEngine:
        self.engine = opened(folder, sinks=self.sinks, snapshot_every=5, **options)
        return self.engine


def feed(engine: LiveEngine) -> None:
    """All batches after the position."""
    for number in range(0 if engine.position is None else engine.position + 1, len(BATCHES)):
        batch = BATCHES[number]
        engine.process(batch, position=number, watermark=max(event["ts"] for event in batch))


def rows_without_failures(folder: Path) -> dict[str, list[dict[str, Any]]]:
    calm = Appending(lambda engine, output: None)
    with calm.open(folder) as engine:
        feed(engine)
    assert min(map(len, calm.rows.values())) > 5
    return calm.rows


@pytest.mark.parametrize("seed", range(4))
def test_rows_come_once(seed: int, tmp_path: Path) -> None:
    """Sinks fail before they write, and close the engine, at random; the engine is opened again, or gets the batch again."""
    rng = random.Random(seed)

    def happens(engine: LiveEngine, output: str) -> None:
        if rng.random() < 0.15:
            engine.close()
        if rng.random() < 0.3:
            raise OSError("the sink is down")

    appending = Appending(happens)
    over = False
    while not over:
        try:
            with appending.open(tmp_path / "a") as engine:
                for _ in range(rng.randrange(1, 4)):
                    try:
                        feed(engine)
                        over = True
                    except OSError:
                        if rng.random() < 0.3:
                            raise
        except Exception as error:  # the sink is down, or the engine is closed
            assert "the sink is down" in str(error) or "the engine is closed" in str(error)  # noqa: PT017 - both end a run
    expected = rows_without_failures(tmp_path / "b")
    for output, rows in appending.rows.items():
        assert in_order(pa.Table.from_pylist(rows)) == in_order(pa.Table.from_pylist(expected[output]))


def one_failure(output: str) -> Callable[[LiveEngine, str], None]:
    """The sink of an output fails once."""
    left = [OSError("the sink is down")]

    def fails(engine: LiveEngine, name: str) -> None:
        if name == output and left:
            raise left.pop()

    return fails


def both(number: int = 0) -> list[dict[str, Any]]:
    """A batch with a match and a late event."""
    return [event(10 + number), event(11 + number), event(1)]


@pytest.mark.parametrize("between", ["nothing", "a timer", "a restart", "kill -9"])
def test_a_batch_that_is_sent_again(between: str, tmp_path: Path) -> None:
    appending = Appending(one_failure("late"))
    engine = appending.open(tmp_path)
    engine.process(event(9), position=0, watermark=9000)
    with pytest.raises(OSError, match="down"):
        engine.process(both(), position=1, watermark=11_000)
    assert engine.position == 0
    if between == "a timer":
        engine.advance_processing_time()
    if between == "a restart":
        engine.close()
        assert read_snapshot(tmp_path)[0].handed.keys() == {"events"}
        engine = appending.open(tmp_path)
    if between == "kill -9":
        engine.snapshot()
        killed(engine)
        engine = appending.open(tmp_path)
    engine.process(both(), position=1, watermark=11_000)
    matches = len(appending.rows["matches"])
    assert len({row["match_id"] for row in appending.rows["matches"]}) == matches > 0
    assert len(appending.rows["late"]) == 1
    engine.process(both(10), position=2, watermark=30_000)
    assert len(appending.rows["matches"]) > matches
    engine.close()
    assert read_snapshot(tmp_path)[0].handed == {}


def test_another_batch_gives_its_rows(tmp_path: Path) -> None:
    """The one that failed is left out. Its rows are in a sink; those of the next one are as well."""
    appending = Appending(one_failure("late"))
    with appending.open(tmp_path) as engine:
        engine.process(event(9), position=0, watermark=9000)
        with pytest.raises(OSError, match="down"):
            engine.process(both(), position=1, watermark=11_000)
        before = len(appending.rows["matches"])
        engine.process(both(), position=2, watermark=11_000)
        assert len(appending.rows["matches"]) == 2 * before
