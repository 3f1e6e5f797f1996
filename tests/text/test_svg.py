"""The colours of drawings, which follow the theme of the page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from asterism.text.svg import INK, Canvas
from tests.kit import ROOT

DRAWINGS = sorted((ROOT / "docs" / "images").rglob("*.svg"))
RULE = re.compile(r"\.asterism \[(fill|stroke)=\"(#[0-9a-f]{6})\"\]\{\1:#[0-9a-f]{6}\}")


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_each_colour_has_one_for_dark_pages(path: Path) -> None:
    root = ET.parse(path).getroot()
    [style] = root.iter("{http://www.w3.org/2000/svg}style")
    used = {(name, shape.get(name)) for shape in root.iter() for name in ("fill", "stroke")}
    assert set(RULE.findall(style.text or "")) == {(name, color) for name, color in used if color not in (None, "none")}


def test_the_style_contains_nothing_but_colours() -> None:
    canvas = Canvas()
    canvas.text(0, 0, '</style>[fill="#1f2328"]', 12)
    root = ET.fromstring(canvas.written(10, 10, "a { b }"))
    style = root[1].text or ""
    assert style.endswith("}")
    assert RULE.sub("", style) == "@media (prefers-color-scheme: dark) {}"
    assert INK in style
