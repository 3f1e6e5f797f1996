"""What may be in the folder of a savepoint, and what is copied of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import fs

from asterism.errors import StateError
from asterism.savepoints.manifest import MANIFEST
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.restoring import StoredOperator, StoredSavepoint
from tests.savepoints.test_manifest import made


def folder_of(path: Path, **files: str) -> StoredFolder:
    for name, text in files.items():
        file = path / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return StoredFolder(str(path), fs.LocalFileSystem(), str(path))


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
