"""The layout of diagrams of patterns: boxes on a line that passes through them, with arrows, loops, frames and branches.

The layout has two steps: every part computes its size from the sizes of the parts in it, then it is drawn at its place. A
line passes through every part; a sequence connects the lines of its parts.

The texts of a diagram are external input: see :mod:`asterism.text.svg`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from asterism.text.printable import one_line
from asterism.text.svg import (
    BLUE,
    FAINT,
    GAP,
    INK,
    MONO,
    PAD,
    PALE_BLUE,
    PAPER,
    PURPLE,
    RED,
    SANS,
    Canvas,
    badge_width,
    text_width,
    wrapped,
)

MAX_PARTS = 60
"""Maximum number of boxes; further ones are only counted."""
MAX_DEPTH = 6
"""Maximum nesting of frames and branches; deeper ones are only counted."""
MAX_NAME = 28
"""Maximum length of a name in its box."""
ROW = 940.0
"""Width after which a sequence continues in a new row, in pixels."""

ARROW, TURN, ARC, BYPASS = 34, 20, 24, 12
FORK, BRANCH = 36, 16
_MARGIN = TURN + 4
_ENDS = 30.0


@dataclass(frozen=True, slots=True)
class Arrow:
    """The arrow that leads to a part, with a label above it and one below."""

    color: str = INK
    dashes: str | None = None
    above: str = ""
    below: str = ""

    @property
    def width(self) -> float:
        return max(ARROW, text_width(self.above, 10) + 20, text_width(self.below, 10) + 20)

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        canvas.arrow([(x, y), (x + self.width, y)], self.color, self.dashes)
        label = RED if self.color == RED else FAINT
        for text, place, fill in ((self.above, y - 7, label), (self.below, y + 15, PURPLE)):
            if text:
                canvas.text(x + self.width / 2 - 3, place, text, 10, text_anchor="middle", fill=fill)

    def turn(self, canvas: Canvas, start: tuple[float, float], end: tuple[float, float], between: float) -> None:
        """Draw the arrow from the end of a row to the beginning of the next; *between* is the height between the rows."""
        far, near = start[0] + TURN, end[0] - TURN
        points = [start, (far, start[1]), (far, between), (near, between), (near, end[1]), end]
        canvas.arrow(points, self.color, self.dashes)
        label = ", ".join(filter(None, (self.above, self.below)))
        if label:
            width = text_width(label, 10) + 8
            canvas.rect(near + 24, between - 7, width, 14, fill=PAPER)
            canvas.text(near + 24 + width / 2, between + 3.5, label, 10, text_anchor="middle", fill=self.color)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text in a box or a frame.

    :param title: the tooltip
    """

    text: str
    color: str = INK
    font: str = SANS
    title: str = ""

    @property
    def width(self) -> float:
        return text_width(self.text, 11, 0.61 if self.font == MONO else 0.56)

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        shape = canvas.text(x, y, self.text, 11, fill=self.color, font_family=self.font)
        if self.title:
            canvas.title(shape, self.title)


def condition_lines(condition: str, color: str = INK) -> list[Line]:
    """A condition in some lines, each with all of it as its tooltip."""
    return [Line(text, color, MONO, condition) for text in wrapped(condition)]


class Part:
    """
    :ivar above: the height above the line that passes through the part; *below* is the height below it
    :ivar arrow: leads to the part, unless it is the first of its sequence
    """

    def __init__(self, width: float, above: float, below: float) -> None:
        self.width, self.above, self.below = width, above, below
        self.arrow = Arrow()

    @property
    def height(self) -> float:
        return self.above + self.below

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        """Draw the part; its line begins at (x, y)."""
        raise NotImplementedError


class Note(Part):
    """A text in a small frame."""

    def __init__(
        self, text: str, title: str = "", color: str = FAINT, fill: str = PAPER, dashes: str | None = "3 3"
    ) -> None:
        super().__init__(text_width(text, 12) + 2 * PAD, 16, 16)
        self.text, self.title, self.color, self.fill, self.dashes = text, title, color, fill, dashes

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        frame = canvas.rect(
            x, y - 16, self.width, 32, rx=8, fill=self.fill, stroke=self.color, stroke_dasharray=self.dashes
        )
        canvas.title(frame, self.title or self.text)
        canvas.text(x + self.width / 2, y + 4, self.text, 12, text_anchor="middle", fill=self.color)


@dataclass(frozen=True, slots=True)
class Style:
    """The outline of a box or a frame."""

    color: str
    fill: str
    dashes: str | None = None

    def draw(self, canvas: Canvas, part: Part, x: float, y: float, title: str) -> None:
        frame = canvas.rect(
            x, y - part.above, part.width, part.height, rx=8, fill=self.fill, stroke=self.color, stroke_width=1.4,
            stroke_dasharray=self.dashes,
        )  # fmt: skip
        if title:
            canvas.title(frame, title)


PLAIN = Style(FAINT, "none")
BOX = Style(BLUE, PALE_BLUE)


class Box(Part):
    """A name, and lines below it."""

    def __init__(self, name: str, lines: Sequence[Line], style: Style = BOX, title: str = "") -> None:
        width = max(70.0, text_width(one_line(name, MAX_NAME), 14, 0.6), *(line.width for line in lines)) + 2 * PAD
        half = (24 + 15 * len(lines) + PAD) / 2
        super().__init__(width, half, half)
        self.name, self.lines, self.style, self.title = name, lines, style, title

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        self.style.draw(canvas, self, x, y, self.title)
        top, is_red = y - self.above, self.style.color == RED
        name = canvas.text(
            x + PAD, top + 23, one_line(self.name, MAX_NAME), 14, font_weight="bold", fill=RED if is_red else INK,
            text_decoration="line-through" if is_red else None,
        )  # fmt: skip
        canvas.title(name, self.name)
        for number, line in enumerate(self.lines):
            line.draw(canvas, x + PAD, top + 42 + 15 * number)


class DiagramRows(Part):
    """Parts one after the other, in one or more rows.

    :param room: the maximum width of a row of more than one part
    """

    def __init__(self, parts: Sequence[Part], room: float = ROW) -> None:
        self.rows = rows = [list[Part]()]
        width = 0.0
        for part in parts:
            if rows[-1] and width + part.arrow.width + part.width > room:
                rows.append([])
            width = part.width if not rows[-1] else width + part.arrow.width + part.width
            rows[-1].append(part)
        height = sum(_above(row) + _below(row) for row in rows) + GAP * (len(rows) - 1)
        self._margin = _MARGIN if len(rows) > 1 else 0
        """The space for the arrows to new rows."""
        super().__init__(max(map(_width, rows)) + 2 * self._margin, _above(rows[0]), height - _above(rows[0]))

    @property
    def end(self) -> tuple[float, float]:
        """Where the line ends, relative to its beginning."""
        return self._margin + _width(self.rows[-1]), self.below - _below(self.rows[-1])

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        left = x + self._margin
        if left > x:
            canvas.line([(x, y), (left, y)], INK)
        for number, row in enumerate(self.rows):
            if number:
                before = self.rows[number - 1]
                top = y + _below(before)
                start, y = (left + _width(before), y), top + GAP + _above(row)
                row[0].arrow.turn(canvas, start, (left, y), top + GAP / 2)
            at = left
            for part in row:
                if part is not row[0]:
                    part.arrow.draw(canvas, at, y)
                    at += part.arrow.width
                part.draw(canvas, at, y)
                at += part.width


def _width(row: Sequence[Part]) -> float:
    return sum(part.width for part in row) + sum(part.arrow.width for part in row[1:])


def _above(row: Sequence[Part]) -> float:
    return max(part.above for part in row)


def _below(row: Sequence[Part]) -> float:
    return max(part.below for part in row)


class Frame(Part):
    """A frame around a part, with a word at its top and lines at its bottom."""

    def __init__(
        self, inner: Part, head: str = "", lines: Sequence[Line] = (), style: Style = PLAIN, title: str = ""
    ) -> None:
        width = max(inner.width, text_width(head, 11), *(line.width for line in lines), 0.0) + 2 * PAD
        super().__init__(width, inner.above + PAD + (15 if head else 0), inner.below + PAD + 15 * len(lines))
        self.inner, self.head, self.lines, self.style, self.title = inner, head, lines, style, title

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        self.style.draw(canvas, self, x, y, self.title)
        left = x + (self.width - self.inner.width) / 2
        if not isinstance(self.inner, DiagramRows) or len(self.inner.rows) == 1:
            canvas.line([(x, y), (left, y)], INK)
            canvas.line([(left + self.inner.width, y), (x + self.width, y)], INK)
        self.inner.draw(canvas, left, y)
        if self.head:
            canvas.text(x + PAD, y - self.above + PAD + 8, self.head, 11, fill=FAINT)
        for number, line in enumerate(self.lines):
            line.draw(canvas, x + PAD, y + self.below - 15 * (len(self.lines) - number) + 4)


class Branches(Part):
    """Parts one below the other, between a fork and a join: thin lines if one of them is taken, bars if all of them are."""

    def __init__(self, parts: Sequence[Part], *, all_occur: bool) -> None:
        height = sum(part.height for part in parts) + BRANCH * (len(parts) - 1)
        first, last = parts[0].above, height - parts[-1].below
        above = (first + last) / 2 if all_occur else first
        super().__init__(max(part.width for part in parts) + 2 * FORK, above, height - above)
        self.parts, self.all_occur = parts, all_occur

    def _lines(self, y: float) -> Iterator[tuple[Part, float]]:
        """The parts, each with the height of its line."""
        top = y - self.above
        for part in self.parts:
            yield part, top + part.above
            top += part.height + BRANCH

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        end = x + self.width
        fork, join = x + FORK / 2, end - FORK / 2
        for part, line in self._lines(y):
            left = x + FORK if self.all_occur else x + (self.width - part.width) / 2
            right = left + part.width
            if self.all_occur or line == y:
                canvas.arrow([(fork if self.all_occur else x, line), (left, line)], INK)
                canvas.line([(right, line), (join if self.all_occur else end, line)], INK)
            else:
                canvas.arrow([(x, y), (fork, y), (fork, line), (left, line)], INK)
                canvas.line([(right, line), (join, line), (join, y), (end, y)], INK)
            part.draw(canvas, left, line)
        if self.all_occur:
            canvas.line([(x, y), (fork, y)], INK)
            canvas.line([(join, y), (end, y)], INK)
            lines = [line for _, line in self._lines(y)]
            for bar in (fork, join):
                canvas.line([(bar, lines[0] - 10), (bar, lines[-1] + 10)], INK, width=4)


class Repeated(Part):
    """A part that is repeated or left out.

    :param badge: how often it occurs
    :param loop: whether it may occur more than once; *dashes* are those of the arrow back
    :param bypass: whether a line passes by the part
    """

    def __init__(
        self, inner: Part, badge: str, title: str, *, loop: bool, bypass: bool = False, dashes: str | None = None
    ) -> None:
        side = BYPASS if bypass else 0
        super().__init__(inner.width + 2 * side, inner.above + (ARC if loop else 10), inner.below + side)
        self.inner, self.badge, self.title, self.dashes = inner, badge, title, dashes
        self.has_loop, self.has_bypass = loop, bypass

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        left = x + (self.width - self.inner.width) / 2
        right, top, bottom = left + self.inner.width, y - self.inner.above, y + self.below - 3
        if self.has_bypass:
            end = right + BYPASS
            canvas.line([(x, y), (x + 2, y), (x + 2, bottom), (end - 2, bottom), (end - 2, y)], INK)
            canvas.line([(x, y), (left, y)], INK)
            canvas.line([(right, y), (end, y)], INK)
        center, width = left + self.inner.width / 2, badge_width(self.badge)
        if self.has_loop:
            canvas.loop(center, top, min(self.inner.width * 0.6, 120.0), ARC - 10, self.dashes)
        self.inner.draw(canvas, left, y)
        place = (center - width / 2, top - ARC + 1) if self.has_loop else (right - width - 8, top - 9)
        canvas.title(canvas.badge(*place, width, self.badge), self.title)


class Diagram:
    """A sequence between a dot and a circle, and texts below it.

    :param bounds: whether there is a bar at its start (the pattern begins with the first event), and one at its end (it ends with
        the last event)
    """

    def __init__(self, rows: DiagramRows, bounds: tuple[bool, bool] = (False, False)) -> None:
        self.canvas = canvas = Canvas()
        self._x, y = 2.0 * PAD, 1.5 * PAD
        line, left = y + rows.above, self._x + _ENDS
        canvas.add("circle", cx=self._x + 4, cy=line, r=4, fill=INK)
        canvas.arrow([(self._x + 4, line), (left, line)], INK)
        rows.draw(canvas, left, line)
        end_x, end_y = left + rows.end[0], line + rows.end[1]
        canvas.line([(end_x, end_y), (end_x + 17, end_y)], INK)
        canvas.add("circle", cx=end_x + 22, cy=end_y, r=5, fill="none", stroke=INK, stroke_width=1.6)
        canvas.add("circle", cx=end_x + 22, cy=end_y, r=2.5, fill=INK)
        for is_there, x, bar in zip(bounds, (self._x - 4, end_x + 32), (line, end_y), strict=True):
            if is_there:
                canvas.line([(x, bar - 9), (x, bar + 9)], INK)
        self._span = left, left + rows.width
        self._y, self._width = y + rows.height + 16, rows.width + 2 * _ENDS

    def window(self, label: str) -> None:
        """The bar of a window below the sequence."""
        self.canvas.window(*self._span, self._y, label)
        self._y += 30

    def legend(self, *signs: tuple[Style | Arrow | None, str, str]) -> None:
        """A line of signs, each with a text and a tooltip."""
        x, y = self._x, self._y + 14
        for sign, text, title in signs:
            if isinstance(sign, Arrow):
                self.canvas.arrow([(x, y - 4), (x + 30, y - 4)], sign.color, sign.dashes)
                x += 36
            elif sign is not None:
                self.canvas.rect(
                    x, y - 11, 22, 14, rx=4, fill=sign.fill, stroke=sign.color, stroke_dasharray=sign.dashes
                )
                x += 28
            shape = self.canvas.text(x, y, text, 11, fill=FAINT)
            if title:
                self.canvas.title(shape, title)
            x += text_width(text, 11) + 18
        self._width = max(self._width, x - 18 - self._x)
        self._y += 18

    def to_svg(self, label: str) -> str:
        return self.canvas.written(self._width + 2 * self._x, self._y + 14, label)
