"""A process is killed at a point of the library that ``make nemesis`` knows."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nemesis.life import FILES, INJECT, KILL, ROOT, SELF, Fault, crash_points, points_of
from tests.nemesis.queries import QUERIES

PROGRAM = """
import pathlib
from asterism.rules.sets.set_store import FolderStore
from asterism.rules.sets.discovery_status import Status
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
