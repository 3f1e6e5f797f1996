"""A savepoint is written to a folder by one process at a time, and is complete only if nobody has taken over."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asterism.errors import CheckpointInUseError, LeaseLostError, StateError
from asterism.files.lease import Lease
from asterism.savepoints.manifest import INCOMPLETE, MANIFEST
from asterism.spark.savepoints.creating import writing
from asterism.spark.session.leases import FOLDER, _held
from tests.savepoints.test_folders import folder_of
from tests.savepoints.test_manifest import made

SESSION: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default=None: "20", getAll={}))
CARTS = "/checkpoints/carts"


def test_another_process_is_refused_until_it_is_over(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "savepoint")
    other = Lease(f"{folder.location}/{FOLDER}", "the savepoint")
    other.acquire()
    folder.write("keys", "of the other process")
    folder.write(INCOMPLETE, json.dumps({"checkpoint": CARTS}))  # as if it were interrupted
    text = f"(?s)another savepoint is being written to {folder.location}.*It is used by process"
    with pytest.raises(CheckpointInUseError, match=text), writing(SESSION, folder, CARTS):
        pass
    assert folder.read("keys") == "of the other process"
    other.release()
    with writing(SESSION, folder, CARTS) as complete:
        assert folder.read("keys") is None
        folder.write("keys", "new")
        with pytest.raises(CheckpointInUseError, match="another thread"), writing(SESSION, folder, CARTS):
            pass
        complete(made(0, [0, 0]))
    assert folder.names() == ["keys", MANIFEST]
    with pytest.raises(StateError, match="is not empty"), writing(SESSION, folder, CARTS):
        pass
    assert folder.names() == ["keys", MANIFEST]


def test_a_process_that_was_paused_does_not_complete_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "savepoint")

    def paused() -> None:
        with writing(SESSION, folder, CARTS) as complete:
            _held[folder.location].lease._lost = LeaseLostError("another process has taken over")
            complete(made(0, [0, 0]))

    with pytest.raises(LeaseLostError):
        paused()
    assert MANIFEST not in folder.names()
    with writing(SESSION, folder, CARTS) as complete:
        complete(made(0, [0, 0]))
    assert folder.names() == [MANIFEST]
