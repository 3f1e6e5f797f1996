"""Golden files: each belongs to a test. Tests on Spark, whose names are known where there is a session, look themselves."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.kit import ROOT, Golden

MODULES = sorted(path for path in ROOT.glob("tests/*/test_*_texts.py") if path.parent.name != "spark")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_golden_file_is_left_over(path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert Golden(path).names() == set(module.TEXTS)


def test_every_folder_of_golden_files_has_its_tests() -> None:
    folders = set(ROOT.glob("tests/*/golden/*"))
    assert folders == {Golden(path).folder for path in ROOT.glob("tests/*/test_*_texts.py")}
