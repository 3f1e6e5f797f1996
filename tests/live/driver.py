"""Runs the queries of tables as live engines: events in random batches, with kills and restarts."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism.live.engine import LiveEngine

Open = Callable[[Path], LiveEngine]


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def killed(engine: LiveEngine) -> None:
    """End an engine as ``kill -9`` does, without a last snapshot."""
    with engine._lock:
        engine._closed, engine.meter.outcome = True, "failed"
        engine._release()
        engine._operator.close()


def play(
    open_engine: Open, inputs: Mapping[str, pa.Table], folder: Path, seed: int, *, kills: int = 2, largest: int = 3
) -> dict[str, pa.Table]:
    """The rows of all outputs: events of several inputs in random order and cuts, killed at random and opened again.

    Rows that come again after a restart are the same, and are counted once.
    """
    rng = random.Random(seed)
    kept: dict[int, dict[str, pa.Table]] = {}
    engine, number = open_engine(folder), 0
    plan = _plan(inputs, rng, largest)
    deaths = sorted(rng.sample(range(len(plan) + 1), min(kills, len(plan) + 1)))
    while number < len(plan):
        if deaths and deaths[0] == number:
            deaths.pop(0)
            killed(engine)
            engine = open_engine(folder)
            at = _batches_in(engine, inputs)
            assert at <= number
            number = at
        name, begin, end = plan[number]
        rows = engine.process(inputs[name].slice(begin, end - begin), input=name, position=number)
        if number in kept:  # the batch came again after a restart, and so do its rows
            assert {name: in_order(table) for name, table in rows.items()} == {
                name: in_order(table) for name, table in kept[number].items()
            }
        kept[number] = rows
        number += 1
        if rng.random() < 0.3:
            engine.snapshot()
    kept[number] = engine.finish()
    engine.close()
    return {name: pa.concat_tables([rows[name] for rows in kept.values()]) for name in engine.outputs}


def _batches_in(engine: LiveEngine, inputs: Mapping[str, pa.Table]) -> int:
    position = engine.position
    numbers: Sequence[int] = list(position.values()) if isinstance(position, dict) else [position]
    return max((each for each in numbers if each is not None), default=-1) + 1


def _plan(inputs: Mapping[str, pa.Table], rng: random.Random, largest: int) -> list[tuple[str, int, int]]:
    """(the input, the first row, the row after the last) of each batch."""
    at, plan = dict.fromkeys(inputs, 0), []
    while going := [name for name, begin in at.items() if begin < inputs[name].num_rows]:
        name = rng.choice(going)
        end = min(at[name] + rng.randint(1, largest), inputs[name].num_rows)
        plan.append((name, at[name], end))
        at[name] = end
    return plan


class OpenedPattern:
    """Has the methods for results of a PatternStream over a table, which are computed by a live engine."""

    def __init__(self, opened: Any, table: pa.Table, folder: Path, seed: int) -> None:
        self._opened, self._table, self._folder, self._seed = opened, table, folder, seed

    def _rows(self, output: str, **options: Any) -> pa.Table:
        def open_engine(folder: Path) -> LiveEngine:
            engine: LiveEngine = self._opened().open(folder, outputs=[output], snapshot_every=None, **options)
            return engine

        return play(open_engine, {"events": self._table}, self._folder, self._seed)[output]

    @property
    def matches(self) -> pa.Table:
        return self._rows("matches")

    @property
    def timed_out(self) -> pa.Table:
        return self._rows("timed_out")

    @property
    def late(self) -> pa.Table:
        return self._rows("late")

    def select(self, *measures: str, output: str = "matches") -> pa.Table:
        return self._rows(output, select={output: measures})

    def process(self, function: Any, schema: str, *, output: str = "matches") -> pa.Table:
        return self._rows(output, process=function, schema=schema)


class OpenedWindows:
    """The same for a WindowedStream."""

    def __init__(self, opened: Any, table: pa.Table, folder: Path, seed: int) -> None:
        self._opened, self._table, self._folder, self._seed = opened, table, folder, seed

    def _rows(self, output: str, **options: Any) -> pa.Table:
        def open_engine(folder: Path) -> LiveEngine:
            engine: LiveEngine = self._opened().open(folder, outputs=[output], snapshot_every=None, **options)
            return engine

        return play(open_engine, {"events": self._table}, self._folder, self._seed)[output]

    @property
    def late(self) -> pa.Table:
        return self._rows("late")

    def aggregate(self, *measures: str) -> pa.Table:
        return self._rows("results", aggregate=measures)

    def reduce(self, function: Any) -> pa.Table:
        return self._rows("results", reduce=function)

    def process(self, function: Any, schema: str) -> pa.Table:
        return self._rows("results", process=function, schema=schema)
