"""The database of a live engine that was changed by something else: an error, and never other state."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from asterism.errors import StateError
from asterism.live.snapshots import DATABASE, SnapshotRecord, read_snapshot
from asterism.live.takeover import create_live_savepoint
from tests.kit import examples
from tests.live.test_failures import event, opened

Use = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with pages of several kinds, some of them longer than a page of SQLite."""
    folder = tmp_path_factory.mktemp("whole")
    with opened(folder) as engine:
        for number in range(40):
            engine.process(
                [event(number), {"user": f"user {number}" * 50, "ts": number, "price": 1.0}], position=number
            )
    return (folder / DATABASE).read_bytes()


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Some bytes in one place, or the end, are others."""
    at, size = rng.randrange(len(content)), rng.choice([1, 16, 512, 4096])
    match rng.choice(["other", "zero", "shorter", "copied"]):
        case "other":
            new = rng.randbytes(size)
        case "zero":
            new = bytes(size)
        case "shorter":
            return content[:at]
        case _:
            begin = rng.randrange(len(content))
            new = content[begin : begin + size]
    return content[:at] + new[: len(content) - at] + content[at + len(new) :]


@pytest.mark.parametrize("seed", range(examples(40, usual=300)))
def test_it_is_an_error_or_the_whole_state(seed: int, whole: bytes, tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(damaged(whole, random.Random(seed)))
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / DATABASE).write_bytes(whole)
    found = None
    with suppress(StateError):
        found = read_snapshot(tmp_path)
    if found is not None:
        assert found == read_snapshot(tmp_path / "whole")
        return
    uses: list[Use] = [opened, lambda folder: create_live_savepoint(folder, tmp_path / "savepoint")]
    for use in uses:
        with pytest.raises(StateError, match="is damaged") as raised:
            use(tmp_path)
        assert raised.value.hint == "restore the folder; or open another one, and send the events from the beginning"


def test_a_database_that_was_emptied(tmp_path: Path) -> None:
    """The file of a new folder has tables from its first moment, so one without them is damaged, and is left as it is."""
    opened(tmp_path).close()
    opened(tmp_path).close()
    uses: list[Use] = [opened, read_snapshot]
    for content in (b"", b"no database" * 100):
        (tmp_path / DATABASE).write_bytes(content)
        for use in uses:
            with pytest.raises(StateError, match="is damaged"):
                use(tmp_path)
        assert (tmp_path / DATABASE).read_bytes() == content


def test_a_start_that_was_killed_leaves_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / f".{DATABASE}.{os.getpid()}.1").write_bytes(b"SQLite")
    opened(tmp_path).close()


def test_a_page_that_is_missing(whole: bytes, tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(whole)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        database.execute("DELETE FROM pages WHERE number = (SELECT max(number) FROM pages)")
        database.commit()
    with pytest.raises(StateError, match=r"it has \d+ of \d+ pages"):
        opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        database.execute("DELETE FROM snapshot")
        database.commit()
    with pytest.raises(StateError, match=r"it has \d+ of 0 pages"):
        opened(tmp_path)


def test_state_without_checksums_is_read(tmp_path: Path) -> None:
    """As format 1 has it; what is written then has checksums."""
    with opened(tmp_path) as engine:
        engine.process(event(1), position=1)
    record, pages = read_snapshot(tmp_path)
    text = record.to_json().replace('"format": 2', '"format": 1').replace(f', "pages": {len(pages)}', "")
    assert SnapshotRecord.from_json(text).pages is None
    (tmp_path / DATABASE).unlink()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        database.execute("CREATE TABLE pages (number INTEGER PRIMARY KEY, value BLOB NOT NULL)")
        database.execute("CREATE TABLE snapshot (id INTEGER PRIMARY KEY CHECK (id = 0), content TEXT NOT NULL)")
        database.executemany("INSERT INTO pages VALUES (?, ?)", pages.items())
        database.execute("INSERT INTO snapshot VALUES (0, ?)", [text])
        database.commit()
    assert read_snapshot(tmp_path)[1] == pages
    with opened(tmp_path) as engine:
        assert engine.position == 1
        engine.process(event(2), position=2)
    record, pages = read_snapshot(tmp_path)
    assert (record.positions, record.pages) == ({"events": 2}, len(pages))
    with opened(tmp_path) as engine:
        assert engine.finish()["matches"].num_rows == 1
