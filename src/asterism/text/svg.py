"""Shapes of a drawing: SVG with bounded, escaped text, and the colours that all drawings share."""

from __future__ import annotations

import textwrap
import unicodedata
import xml.etree.ElementTree as ET

from asterism.errors import printable
from asterism.text.printable import one_line

MAX_TITLE = 1_000
"""Maximum length of a tooltip."""
PAD, GAP, CORNER = 12, 26, 9
LINE, LINES = 28, 3  # characters per line of a condition in its box, and number of lines
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

INK, FAINT, PAPER, EDGE_OF_PAPER = "#1f2328", "#57606a", "#ffffff", "#d0d7de"
BLUE, PALE_BLUE, RED, PALE_RED, AMBER, PURPLE = "#2f63c8", "#eef3fd", "#c62828", "#fdeeee", "#8a5300", "#7a3fb8"
PALE_PURPLE, PALE_AMBER, GREEN, PALE_GREEN = "#f5effb", "#fdf3e3", "#1a7f37", "#eaf6ec"
TEAL, OLIVE, PINK = "#0b7285", "#5c7a29", "#ad1a72"
PALE_INK, FAINT_LINE, BAND, PALE_BAND = "#eef0f2", "#e4e8ec", "#f6f8fa", "#fbfcfd"
_IN_THE_DARK = {
    INK: "#e6edf3", FAINT: "#a3adb8", PAPER: "#12161c", EDGE_OF_PAPER: "#3d454f", FAINT_LINE: "#2c333b",
    BLUE: "#82adff", PALE_BLUE: "#182741", RED: "#ff8a80", PALE_RED: "#3d1b1b",
    AMBER: "#e3ab55", PALE_AMBER: "#392a12", PURPLE: "#c8a2ff", PALE_PURPLE: "#2b1f3d", GREEN: "#6fd394", PALE_GREEN: "#15301f",
    TEAL: "#5cc5da", OLIVE: "#a9c76d", PINK: "#ff8ec9",
    PALE_INK: "#2a3038", BAND: "#1a1f26", PALE_BAND: "#161a20",
}  # fmt: skip
"""The colours of a drawing on a dark page: those of the reader's system, or of the element that shows the drawing."""


class Canvas:
    """Shapes of one drawing. Only text comes from the user; attributes are names, numbers and colours of this module."""

    def __init__(self) -> None:
        self.root = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")

    def add(self, tag: str, **attributes: object) -> ET.Element:
        named = {name.replace("_", "-"): number_text(value) for name, value in attributes.items() if value is not None}
        return ET.SubElement(self.root, tag, named)

    def rect(self, x: float, y: float, width: float, height: float, **attributes: object) -> ET.Element:
        return self.add("rect", x=x, y=y, width=width, height=height, **attributes)

    def text(self, x: float, y: float, text: str, size: float, **attributes: object) -> ET.Element:
        shape = self.add("text", x=x, y=y, font_size=size, **({"fill": INK, "font_family": SANS} | attributes))
        shape.text = text
        return shape

    def line(
        self,
        points: list[tuple[float, float]],
        color: str,
        dashes: str | None = None,
        width: float = 1.6,
        corner: float = CORNER,
    ) -> None:
        """A line, whose corners have a radius of *corner*."""
        path = f"M{number_text(points[0][0])} {number_text(points[0][1])}"
        for (x0, y0), (x1, y1), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
            into, out = _towards(x1, y1, x0, y0, corner), _towards(x1, y1, x2, y2, corner)
            path += f"L{into}Q{number_text(x1)} {number_text(y1)} {out}"
        path += f"L{number_text(points[-1][0])} {number_text(points[-1][1])}"
        caps = "round" if dashes is not None else None
        self.add(
            "path", d=path, fill="none", stroke=color, stroke_width=width, stroke_dasharray=dashes, stroke_linecap=caps
        )

    def arrow(self, points: list[tuple[float, float]], color: str, dashes: str | None = None) -> None:
        """A line with a head that points right or left."""
        (before, _), (x, y) = points[-2:]
        back = 8 if before <= x else -8
        self.line([*points[:-1], (x - back, y)], color, dashes)
        self.add("path", d=f"M{number_text(x)} {number_text(y)}l{-back} -4.5v9z", fill=color)

    def loop(self, center: float, top: float, width: float, rise: float, dashes: str | None = None) -> None:
        """An arrow over a frame, from its end to its beginning."""
        left, right, high = center - width / 2, center + width / 2, top - rise
        self.line([(right, top), (right, high), (left, high), (left, top - 6)], BLUE, dashes)
        self.add("path", d=f"M{number_text(left)} {number_text(top)}l-4.5 -8h9z", fill=BLUE)

    def badge(self, x: float, y: float, width: float, text: str) -> ET.Element:
        """How often something is repeated."""
        self.rect(x, y, width, 18, rx=9, fill=BLUE)
        return self.text(
            x + width / 2, y + 13, text, 11, text_anchor="middle", fill=PAPER, font_weight="bold", font_family=SANS
        )

    def window(self, x0: float, x1: float, y: float, label: str) -> None:
        """A bar below what lies in a window of time."""
        self.line([(x0, y), (x1, y)], PURPLE)
        for x in (x0, x1):
            self.line([(x, y - 5), (x, y + 5)], PURPLE)
        width = text_width(label, 12) + 12
        self.rect((x0 + x1 - width) / 2, y - 9, width, 18, fill=PAPER)
        self.text((x0 + x1) / 2, y + 4, label, 12, text_anchor="middle", fill=PURPLE)

    def title(self, shape: ET.Element, text: str) -> None:
        """Set the tooltip of *shape*."""
        full = printable(text)
        # A title must precede the text of its shape.
        title = ET.Element("title")
        title.text = full if len(full) <= MAX_TITLE else full[:MAX_TITLE] + "…"
        title.tail, shape.text = shape.text, None
        shape.insert(0, title)

    def written(self, width: float, height: float, label: str) -> str:
        """The drawing as SVG, with a background of its own. Its colours follow the theme of the page."""
        self.root.attrib |= {
            "class": "asterism",
            "width": number_text(width), "height": number_text(height),
            "viewBox": f"0 0 {number_text(width)} {number_text(height)}",
            "aria-label": one_line(label, MAX_TITLE),
        }  # fmt: skip
        paper = self.rect(0.5, 0.5, width - 1, height - 1, rx=8, fill=PAPER, stroke=EDGE_OF_PAPER)
        self.root.remove(paper)
        self.root.insert(0, paper)
        style = ET.Element("style")
        style.text = self._dark_theme()
        self.root.insert(1, style)
        ET.indent(self.root)
        return ET.tostring(self.root, encoding="unicode")

    def _dark_theme(self) -> str:
        """The rules name the drawings' class, because a style within a page applies to the whole page."""
        used = {(name, shape.get(name)) for shape in self.root.iter() for name in ("fill", "stroke")}
        rules = [
            f'.asterism [{name}="{color}"]{{{name}:{dark}}}'
            for color, dark in _IN_THE_DARK.items()
            for name in ("fill", "stroke")
            if (name, color) in used
        ]
        return f"@media (prefers-color-scheme: dark) {{{''.join(rules)}}}"


def number_text(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def _towards(x: float, y: float, other_x: float, other_y: float, distance: float) -> str:
    """The point at most *distance* away from (x, y), in the direction of the other."""
    far = max(abs(other_x - x), abs(other_y - y), 1.0)
    part = min(distance, far / 2) / far
    return f"{number_text(x + (other_x - x) * part)} {number_text(y + (other_y - y) * part)}"


def badge_width(text: str) -> float:
    return text_width(text, 11, 0.62) + 12


def wrapped(text: str) -> list[str]:
    """A condition in the lines of its box."""
    return textwrap.wrap(one_line(text, 2 * LINE * LINES), LINE, max_lines=LINES, placeholder=" …") or [""]


def text_width(text: str, size: float, per_character: float = 0.56) -> float:
    """The approximate width of a text, in pixels."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return (len(text) + wide) * size * per_character
