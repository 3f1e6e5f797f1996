"""The codes of errors: programs and people's notes rely on them."""

from __future__ import annotations

import os
import re

from asterism import errors
from asterism.errors import AsterismError
from tests.kit import ROOT

CODES = ROOT / "tests" / "architecture" / "error_codes.txt"
CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, AsterismError)]


def test_each_class_has_its_own_code() -> None:
    assert all("code" in vars(one) and re.fullmatch(r"[A-Z]+(_[A-Z]+)+", one.code) for one in CLASSES)
    assert len({one.code for one in CLASSES}) == len(CLASSES)


def test_codes_stay() -> None:
    """A line may be added, with ``ASTERISM_REWRITE=1``. A line that changes or disappears breaks programs."""
    lines = "".join(sorted(f"{one.code} {one.__name__}\n" for one in CLASSES))
    if os.environ.get("ASTERISM_REWRITE"):
        CODES.write_text(lines, encoding="utf-8")
    assert lines == CODES.read_text(encoding="utf-8")


def test_the_reference_has_each_code() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## ([A-Z_]+)$", page, re.MULTILINE)
    assert headings == re.findall(r"^\| \[`([A-Z_]+)`\]", page, re.MULTILINE)
    assert set(headings) == {one.code for one in CLASSES}
    listed = dict(re.findall(r"^\| \[`([A-Z_]+)`\]\(#\w+\) \| `(\w+)`", page, re.MULTILINE))
    assert listed == {one.code: one.__name__ for one in CLASSES}


def test_the_reference_shows_each_text() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"{error-texts} ([A-Z_]+)$", page, re.MULTILINE))
    tested = {
        code[1]
        for path in ROOT.glob("tests/*/golden/*/*.txt")
        if (code := re.match(r"\w+Error\n\[([A-Z_]+)\] ", path.read_text(encoding="utf-8")))
    }
    assert shown == tested
