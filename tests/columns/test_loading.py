"""Modules are loaded without collections of garbage, and only those that are used."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from asterism.loading import collect_later, loading
from tests.kit import ROOT


@pytest.fixture(autouse=True)
def _as_usual() -> Iterator[None]:
    was_frozen = gc.get_freeze_count() > 0  # by conftest.py, so that collections are short
    gc.unfreeze()
    yield
    if was_frozen:
        gc.freeze()
    gc.enable()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Imports one."""
    return lambda: monkeypatch.setitem(sys.modules, "a_new_module", ModuleType("a_new_module"))


def test_what_was_loaded_is_old(module: Callable[[], None]) -> None:
    with loading():
        with loading():
            module()
            loaded = ["of a module"]
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert any(thing is loaded for thing in gc.get_objects(generation=2))


def test_what_a_program_has_frozen_stays_frozen(module: Callable[[], None]) -> None:
    gc.freeze()
    with loading():
        module()
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


def test_where_nothing_is_loaded_frozen_objects_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every use of ``asterism.X`` is such a block, and the collector counts its objects one by one."""
    with monkeypatch.context() as patch:
        patch.setattr(gc, "get_freeze_count", pytest.fail)
        with loading():
            pass


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    with loading():
        pass
    assert not gc.isenabled()


def test_the_first_collection_of_a_command_is_later_and_the_others_are_not() -> None:
    usual, callbacks = gc.get_threshold(), list(gc.callbacks)
    collect_later()
    assert gc.get_threshold()[0] > usual[0]
    gc.collect(0)
    assert (gc.get_threshold(), gc.callbacks) == (usual, callbacks)


PROGRAM = """
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from asterism import CEP, KeyedStream, Pattern, PatternProcessor
from asterism.cli.main import run

[log] = sys.argv[1:]
pattern = Pattern.begin("fail").where("event = 'failed'").next("login").where("event = 'accepted'")
count = CEP.pattern(KeyedStream(log, key="ip", time="ts"), pattern).matches.num_rows
assert count == 5
events = pyarrow.csv.read_csv(log)
pyarrow.parquet.write_table(events, "events.parquet")
later = pattern.where("event_id > LAST(fail.event_id) AND port > 1000.5")
rows = CEP.pattern(KeyedStream("events.parquet", key="ip", time="ts"), later).select("COUNT(*) AS n", "LAST(login.port) AS p")
assert rows.num_rows == count
with CEP.pattern(KeyedStream(events.schema, key="ip", time="ts"), pattern).open("state") as engine:
    parts = [engine.process(part) for part in (events.slice(0, 500), events.slice(500))] + [engine.finish()]
assert sum(part["matches"].num_rows for part in parts) == count
assert "pandas" not in sys.modules
pathlib.Path("rules.json").write_text(json.dumps([PatternProcessor("pair", 1, pattern, key=["ip"]).to_dict()]))
sys.argv = ["asterism", "match", "rules.json", "--input", log, "--time", "ts"]
try:
    run()
finally:
    assert "sqlalchemy" not in sys.modules
"""


def test_the_first_match_imports_only_what_it_needs(tmp_path: Path) -> None:
    """No pandas over a CSV file, a Parquet file and batches of Arrow. Then a command runs to its end without SQLAlchemy, and its
    output is complete.
    """
    log = ROOT / "examples" / "data" / "ssh_auth.csv"
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(log)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "5 matches"
