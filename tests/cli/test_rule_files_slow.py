"""``asterism match`` with the rules of a file: a graph over a table, a clause over a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import test_rule_files
from tests.cli.test_rule_files import check_match

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
folder = test_rule_files.folder


def test_match(folder: Path) -> None:
    options = ["--input", "events.csv", "--time", "ts"]
    check_match(folder / "out.parquet", "rules.yaml#brute-force", *options)
    check_match(folder / "out.parquet", "rules.yaml#burst #2", *options, "--stream")
