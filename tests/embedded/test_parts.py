"""Tables in parts, in threads and in temporary files: the same rows as in one part."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asterism import CEP, KeyedStream, Pattern, TumblingWindows, interval_join, window
from asterism.columns.compiled import compiled
from asterism.embedded import parts
from asterism.embedded.memory import MEMORY, memory_of_tables
from asterism.errors import InvalidEventError, LimitExceededError, StreamDefinitionError
from tests.embedded.cases import CASES, JOINS, QUOTES, SECOND, TRADES

ROWS = 3000


def events() -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table(
        {
            "user": pa.array([f"user {number}" for number in random.integers(0, 200, ROWS)]),
            "ts": pa.array(random.permutation(ROWS)),
            "price": random.random(ROWS),
            "note": ["not read"] * ROWS,
        }
    )


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small chunks, and many parts, in two threads."""
    monkeypatch.setattr(parts, "CHUNK", 256)
    monkeypatch.setattr(parts, "ROWS_OF_PART", 1)
    threads = pa.cpu_count()
    pa.set_cpu_count(2)
    yield
    pa.set_cpu_count(threads)


def results() -> list[list[dict[str, Any]]]:
    """Of a pattern, windows and a join."""
    stream = KeyedStream(events(), key="user", time="ts")
    rise = Pattern.begin("a").where("price < 0.3").followed_by("b").where("price > a.price + 0.5").within(SECOND)
    found = CEP.pattern(stream, rise)
    windows = window(stream, TumblingWindows.of(SECOND / 10)).aggregate("count(*) AS n", "max(price) AS high")
    joined = interval_join(stream, stream, (SECOND / 1000, SECOND / 100), prefix="q_").results
    return [
        table.to_pylist() for table in (found.matches, found.select("b.price AS p"), found.timed_out, windows, joined)
    ]


EXPECTED = {name: case.rows(case.results(case.table)).to_pylist() for name, case in CASES.items()}
JOINED = {name: join(TRADES, QUOTES).to_pylist() for name, join in JOINS.items()}
"""In one part."""


def in_any_order(tables: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [sorted(map(str, rows)) for rows in tables]


@pytest.mark.usefixtures("in_parts")
def test_threads_and_files_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the order of rows, which does not depend on the number of threads."""
    two = results()
    pa.set_cpu_count(1)
    assert results() == two
    monkeypatch.setattr(parts, "memory_of_tables", lambda: 10_000)
    on_disk = results()
    assert in_any_order(on_disk) == in_any_order(two)
    monkeypatch.setattr(parts, "ROWS_OF_PART", 10**9)
    monkeypatch.setattr(parts, "memory_of_tables", lambda: 10**9)
    whole = results()
    assert in_any_order(whole) == in_any_order(two)
    assert all(whole)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch, in_parts: None) -> None:
    """Chunks of three rows."""
    monkeypatch.setattr(parts, "CHUNK", 3)


@pytest.mark.parametrize("name", CASES)
def test_cases_in_parts(name: str, small_parts: None) -> None:
    case = CASES[name]
    whole = case.rows(case.results(case.table))
    assert sorted(map(str, whole.to_pylist())) == sorted(map(str, EXPECTED[name]))


@pytest.mark.parametrize("name", JOINS)
def test_joins_in_parts(name: str, small_parts: None) -> None:
    found = JOINS[name](TRADES, QUOTES)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, JOINED[name]))


def test_kernels_release_the_lock_of_python() -> None:
    function: Any = compiled(lambda: 1)
    assert function.targetoptions["nogil"]


def test_a_failure_ends_all_threads(small_parts: None) -> None:
    table = events().set_column(1, "ts", pa.array([None, *range(ROWS - 1)], pa.int64()))
    pattern = Pattern.begin("a").where("price > 0.5")
    with pytest.raises(InvalidEventError, match="is null"):
        CEP.pattern(KeyedStream(table, key="user", time="ts"), pattern).select("a.price AS price")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("asterism-tables")]


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**20 < memory_of_tables() < 2**50
    monkeypatch.setenv(MEMORY, "3")
    assert memory_of_tables() == 3 * 2**20
    for wrong in ("0", "-1", "2GB", ""):
        monkeypatch.setenv(MEMORY, wrong)
        with pytest.raises(StreamDefinitionError, match="must be a number of MiB"):
            memory_of_tables()


def test_a_folder_that_cannot_be_written(small_parts: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if the disk was full."""
    monkeypatch.setattr(parts, "memory_of_tables", lambda: 10_000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(LimitExceededError, match="cannot be written to temporary files"):
        results()


def test_temporary_files_are_removed(small_parts: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parts, "memory_of_tables", lambda: 10_000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert any(results())
    assert not list(tmp_path.iterdir())
