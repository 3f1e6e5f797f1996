"""The texts of errors about checkpoints that another process uses."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from asterism.errors import StateError
from asterism.files import lease as lease_module
from asterism.files.lease import Lease
from tests.kit import Golden, Provocation

CHECKPOINT = "the checkpoint /data/checkpoint"
OTHER = {"boot": "", "host": "etl-3", "process": 4711}


def in_use() -> None:
    with tempfile.TemporaryDirectory() as folder:
        first = Lease(folder, CHECKPOINT, expiry=0.5)
        first.acquire()
        try:
            Lease(folder, CHECKPOINT, expiry=0.5).acquire()
        finally:
            first.release()


def lost() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lease = Lease(folder, CHECKPOINT)
        lease.acquire()
        Path(folder, f"9-{'0' * 32}-holds.json").write_text(json.dumps(OTHER))
        lease._renew_once()
        try:
            lease.check()
        finally:
            lease.release()


TEXTS: dict[str, Provocation] = {"in_use": in_use, "lost": lost}


@pytest.mark.parametrize("name", TEXTS)
def test_text(golden: Golden, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "_this_process", lambda: OTHER)
    assert isinstance(golden.error(name, TEXTS[name]), StateError)
