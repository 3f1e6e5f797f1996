"""The two tiers of tests, as tests/README.md describes them."""

from __future__ import annotations

import re

from tests.kit import ROOT

TESTS = ROOT / "tests"
README = (TESTS / "README.md").read_text(encoding="utf-8")
FAST = README.partition("## What the fast tests show")[2].partition("\n## ")[0]
FILES = re.compile(r"`(\w+/\w+\.py)`")


def test_every_guarantee_has_a_fast_test() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    section = page.partition("## Guarantees")[2].partition("\n## ")[0]
    guarantees = set(re.findall(r"^\| (\w[\w ]*) \|", section, re.MULTILINE))
    rows = re.findall(r"^\| ([\w, ]+) \| `", FAST, re.MULTILINE)
    assert len(guarantees) > 10
    assert guarantees - {name for row in rows for name in row.split(", ")} == set()
    assert [file for file in FILES.findall(FAST) if file.endswith("_slow.py")] == []


def test_files_that_are_named_exist() -> None:
    assert [file for file in FILES.findall(README) if not (TESTS / file).exists()] == []
