"""Examples as a user runs them, but in the session of the tests."""

from __future__ import annotations

import runpy
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit import EXAMPLES


def run_program(name: str, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a program in *folder*, and return its variables. The session and the files that it has written remain."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda: nullcontext(str(folder)))
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
