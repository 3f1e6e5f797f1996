"""What may be in the folder of a savepoint, what is copied of it, and where to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asterism.errors import StateError
from asterism.rules.sets.set_store import STORE
from asterism.savepoints.manifest import MANIFEST
from asterism.spark.savepoints.bootstrapping import with_sets
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.restoring import StoredOperator, StoredSavepoint, _prepare
from asterism.spark.session.checkpoints import RESTORED
from asterism.spark.session.history import StoredHistory
from asterism.streams.run_options import QueryHistory
from tests.savepoints.kit import folder_of
from tests.savepoints.test_manifest import made

Begin = Callable[[], None]


def beginnings(path: Path) -> tuple[StoredFolder, StoredFolder, list[Begin]]:
    """The store of a query, its checkpoint, and both ways in which it begins with the sets of a savepoint."""
    savepoint = folder_of(path / "savepoint", **{f"{STORE}__1.json": "of the savepoint", f"{STORE}__2.json": "as well"})
    store, target = folder_of(path / "store"), folder_of(path / "checkpoint")
    stored: Any = StoredHistory(None, target.location, target.files, target.path)  # type: ignore[arg-type]
    history = with_sets(QueryHistory(savepoint.location, None), savepoint / STORE, store)

    def restore() -> None:
        _prepare(target, savepoint, store)
        (savepoint / STORE).copy_to(store, {})

    return store, target, [restore, lambda: stored.prepare_from_savepoint(2, history)]


@pytest.mark.parametrize("way", [0, 1], ids=["from_savepoint", "history"])
def test_the_store_of_another_query_is_not_overwritten(tmp_path: Path, way: int) -> None:
    store, target, ways = beginnings(tmp_path)
    store.write("1.json", "of another query")
    with pytest.raises(StateError, match=f"the store {store.location} already exists"):
        ways[way]()
    assert store.read("1.json") == "of another query"
    assert store.names() == ["1.json"]
    assert target.names() == []


@pytest.mark.parametrize("way", [0, 1], ids=["from_savepoint", "history"])
def test_an_interrupted_copy_is_repeated(tmp_path: Path, way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store, target, ways = beginnings(tmp_path)
    with monkeypatch.context() as patch:

        def copy_some(sets: StoredFolder, other: StoredFolder, sums: object) -> None:
            other.write("1.json", "a part")
            other.write("left.json", "")
            raise ZeroDivisionError

        patch.setattr(StoredFolder, "copy_to", copy_some)
        with pytest.raises(ZeroDivisionError):
            ways[way]()
    assert store.names() == ["1.json", "left.json"]
    ways[way]()
    assert store.names() == ["1.json", "2.json"]
    assert store.read("1.json") == "of the savepoint"
    if way:
        assert json.loads(target.read(RESTORED) or "") == {"batches": 1, "key_groups": 2}
        store.write("3.json", "of the query")
        ways[way]()  # the query begins once
        assert store.read("3.json") == "of the query"


def test_folders_of_empty_tables_belong_to_a_savepoint(tmp_path: Path) -> None:
    """Earlier builds have left some, which their manifests do not count."""
    folder = folder_of(
        tmp_path / "one", keys__part="k", waiting_orders__part="", waiting_payments__part="p", sources__0="s"
    )
    folder.write(MANIFEST, "{}")
    manifest = replace(made(0, [0, 0]), counts={"keys": 1, "waiting_payments": 1})
    savepoint = StoredSavepoint(folder, manifest, [StoredOperator(folder, manifest, None)])
    savepoint.check_names()
    for changed, copied in (([0], ["sources"]), ([], ["keys", "sources", "waiting_orders", "waiting_payments"])):
        target = folder_of(tmp_path / f"copy {len(changed)}")
        savepoint.copy_rest(target, changed)
        assert target.names() == copied
    folder_of(tmp_path / "one", waiting_refunds__part="")
    with pytest.raises(StateError, match="files that do not belong to it"):
        savepoint.check_names()
