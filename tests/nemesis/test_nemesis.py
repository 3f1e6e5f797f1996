"""A few of the faults of ``make nemesis``, in one life of a query whose rules change."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.nemesis.life import ALL, ERROR, FILES, INJECT, KILL, ROOT, SELF, Fault, Life, crash_points, points_of
from tests.nemesis.queries import QUERIES
from tests.nemesis.replay import check, insert, kept_operator, write


@pytest.mark.spark
@pytest.mark.matrix
@pytest.mark.timeout(900)
def test_a_life_with_faults(tmp_path: Path) -> None:
    """A worker is killed with its state changed and not kept; the sink fails when it has written; the store fails in the
    middle of a write; everything is killed when an offset is written. Rules change meanwhile. What a checker that replays the
    offset log finds is nothing; and it finds what is then taken away, added or changed.
    """
    faults = [
        Fault(0, "state.call.after", 2, KILL, SELF),
        Fault(1, "batch.end", 1, ERROR, SELF),
        Fault(2, "store.move.before", 1, KILL, SELF),
        Fault(3, "file.offset", 1, KILL, ALL),
    ]
    life = Life(tmp_path, "rules", 11, faults, patience=400)
    verdict = life.run()
    assert not verdict.differences, verdict.tell()
    assert [outcome.hit and outcome.recovered for outcome in life.outcomes] == [True] * 4
    assert life.starts == 2
    assert life.never_passed == set()
    assert verdict.rows["matches"] > 20

    tables = {int(path.stem): pq.read_table(path) for path in (tmp_path / "out" / "matches").glob("*.parquet")}
    last = max(number for number, table in tables.items() if table.num_rows)
    write(tmp_path, "matches", last, tables[last].slice(1))
    insert(tmp_path, "matches", ["an id that nobody has made"])
    found = check(life.query, kept_operator(tmp_path), tmp_path)
    wrong = [(number, output, len(missing), len(more)) for number, output, missing, more in found.differences]
    assert wrong == [(last, "matches", 1, 0), (-1, "matches by id", 0, 1)]


PROGRAM = """
import pathlib
from asterism.rules.set_store import FolderStore
from asterism.rules.discovery_status import Status
store = FolderStore({store!r})
for version in range(9):
    store.write_status(Status(version=version))
"""


@pytest.mark.parametrize(
    ("point", "left"), [("store.move.before", 2), ("store.move.after", 3), ("store.write.before", 2)]
)
def test_a_crash_at_a_point(tmp_path: Path, point: str, left: int) -> None:
    """At the fourth passing; once: a second process goes to its end."""
    fault = Fault(7, point, 4, KILL, SELF)
    (tmp_path / "fault.json").write_text(json.dumps(fault.__dict__))
    store = tmp_path / "store"
    path = os.pathsep.join([str(INJECT), str(ROOT / "src")])
    command = [sys.executable, "-c", PROGRAM.format(store=str(store))]

    def run() -> int:
        environment = os.environ | {"PYTHONPATH": path, "NEMESIS": str(tmp_path)}
        return subprocess.run(command, env=environment, check=False).returncode

    assert run() == -9
    assert json.loads((store / "status.json").read_text())["version"] == left
    assert (tmp_path / "fired-7").exists()
    assert run() == 0
    assert json.loads((store / "status.json").read_text())["version"] == 8


def test_points_are_functions_of_the_library() -> None:
    """One that is renamed would not be passed, and nobody would notice."""
    for module, points in crash_points.FUNCTIONS.items():
        found = importlib.import_module(module)
        for names in points.values():
            for name in names:
                holder, _, function = name.partition(".")
                assert callable(getattr(getattr(found, holder), function)), name
    named = {point for points in crash_points.FUNCTIONS.values() for point in points}
    for kind in QUERIES:
        for point in points_of(kind):
            assert point in FILES or point.rpartition(".")[0] in {*named, "store.move", "sink", "batch"}, point
