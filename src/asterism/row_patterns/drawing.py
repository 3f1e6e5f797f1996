"""The pattern of a clause as a drawing: SVG in the style of :mod:`asterism.patterns.drawing`.

The layout has two steps: every part knows its size, then it is drawn at its place. All parts of a sequence are on one line,
which passes through them. Names and conditions are external input: see :mod:`asterism.text.svg`.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

from asterism.errors import printable
from asterism.row_patterns.clause import (
    Alternation,
    Clause,
    Concatenation,
    EmptyPattern,
    Exclusion,
    NotNext,
    PartitionEnd,
    PartitionStart,
    PatternNode,
    Permutation,
    Quantified,
    Variable,
)
from asterism.row_patterns.wording import (
    condition_of,
    count_text,
    name_text,
    output_words,
    quantifier_words,
    skip_words,
)
from asterism.text.html_table import html_table
from asterism.text.printable import one_line
from asterism.text.svg import (
    BLUE,
    FAINT,
    GAP,
    INK,
    MAX_TITLE,
    MONO,
    PAD,
    PALE_BLUE,
    PALE_RED,
    PAPER,
    PURPLE,
    RED,
    Canvas,
    badge_width,
    text_width,
    wrapped,
)

MAX_PARTS = 60
"""Maximum number of variables in a drawing; further ones are only counted."""
MAX_DEPTH = 6
"""Maximum nesting of parts with other parts; deeper ones are only counted."""
MAX_NAME = 28
"""Maximum length of a name in its box."""
ROW = 940
"""Width after which the pattern continues in a new row, in pixels."""

ARROW, TURN, ARC, BYPASS, BRANCH = 34, 20, 24, 12, 14


@dataclass(slots=True)
class _Part:
    """
    :ivar above: the height above the line that passes through the part; *below* is the height below it
    """

    width: float
    above: float
    below: float

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        """Draw the part; its line begins at (x, y)."""
        raise NotImplementedError


@dataclass(slots=True)
class _Note(_Part):
    """A text in a small frame."""

    text: str
    title: str = ""
    color: str = FAINT
    fill: str = PAPER
    dashes: str | None = "3 3"

    @classmethod
    def of(cls, text: str, title: str = "", color: str = FAINT, fill: str = PAPER, dashes: str | None = "3 3") -> _Note:
        return cls(text_width(text, 12) + 2 * PAD, 16, 16, text, title, color, fill, dashes)

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        frame = canvas.rect(
            x, y - 16, self.width, 32, rx=8, fill=self.fill, stroke=self.color, stroke_dasharray=self.dashes
        )
        canvas.title(frame, self.title or self.text)
        canvas.text(x + self.width / 2, y + 4, self.text, 12, text_anchor="middle", fill=self.color)


@dataclass(slots=True)
class _VariableBox(_Part):
    """A variable."""

    name: str
    condition: str | None
    lines: list[str]

    @classmethod
    def of(cls, clause: Clause, name: str) -> _VariableBox:
        condition = condition_of(clause, name)
        lines = ["any row"] if condition is None else wrapped(condition)
        shown = one_line(name, MAX_NAME)
        width = max(70.0, text_width(shown, 14, 0.6), *(text_width(line, 11, 0.61) for line in lines)) + 2 * PAD
        half = (24 + 15 * len(lines) + PAD) / 2
        return cls(width, half, half, name, condition, lines)

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        top = y - self.above
        height = self.above + self.below
        canvas.rect(x, top, self.width, height, rx=8, fill=PALE_BLUE, stroke=BLUE, stroke_width=1.4)
        name = canvas.text(x + PAD, top + 23, one_line(self.name, MAX_NAME), 14, font_weight="bold")
        canvas.title(name, self.name)
        for number, line in enumerate(self.lines):
            place = x + PAD, top + 42 + 15 * number
            if self.condition is None:
                canvas.text(*place, line, 11, fill=FAINT)
            else:
                canvas.title(canvas.text(*place, line, 11, font_family=MONO), self.condition)


@dataclass(slots=True)
class _DrawnSequence(_Part):
    """Parts one after the other, with arrows between them."""

    parts: list[_Part]

    @classmethod
    def of(cls, parts: list[_Part]) -> _DrawnSequence:
        width = sum(part.width for part in parts) + ARROW * (len(parts) - 1)
        return cls(width, max(part.above for part in parts), max(part.below for part in parts), parts)

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        for number, part in enumerate(self.parts):
            if number:
                canvas.arrow([(x, y), (x + ARROW, y)], INK)
                x += ARROW
            part.draw(canvas, x, y)
            x += part.width


@dataclass(slots=True)
class _Frame(_Part):
    """A frame around a part, with a caption below."""

    inner: _Part
    caption: str = ""
    dashes: str | None = None

    @classmethod
    def of(cls, inner: _Part, caption: str = "", dashes: str | None = None) -> _Frame:
        width = max(inner.width, text_width(caption, 11)) + 2 * PAD
        return cls(width, inner.above + PAD, inner.below + PAD + (15 if caption else 0), inner, caption, dashes)

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        frame = canvas.rect(x, y - self.above, self.width, self.above + self.below, rx=8, fill="none", stroke=FAINT)
        frame.set("stroke-width", "1.4")
        if self.dashes is not None:
            frame.set("stroke-dasharray", self.dashes)
        left = x + (self.width - self.inner.width) / 2
        if not isinstance(self.inner, _Stack) or self.inner.branches:
            canvas.line([(x, y), (left, y)], INK)
            canvas.line([(left + self.inner.width, y), (x + self.width, y)], INK)
        self.inner.draw(canvas, left, y)
        if self.caption:
            canvas.text(x + self.width / 2, y + self.below - 7, self.caption, 11, text_anchor="middle", fill=FAINT)


@dataclass(slots=True)
class _Stack(_Part):
    """Parts one below the other, of which one is taken (*branches*), or all in any order."""

    parts: list[_Part]
    branches: bool

    @classmethod
    def of(cls, parts: list[_Part], *, branches: bool) -> _Stack:
        margin = 2 * (ARROW + BRANCH) if branches else 0
        height = sum(part.above + part.below for part in parts) + BRANCH * (len(parts) - 1)
        above = parts[0].above if branches else height / 2
        return cls(max(part.width for part in parts) + margin, above, height - above, parts, branches)

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        top, end = y - self.above, x + self.width
        for part in self.parts:
            line = top + part.above
            left = x + (self.width - part.width) / 2
            if self.branches:
                into = [(x, y), (x + BRANCH, y), (x + BRANCH, line), (left, line)]
                out = [(left + part.width, line), (end - BRANCH, line), (end - BRANCH, y), (end, y)]
                straight = line == y
                canvas.arrow([into[0], into[-1]] if straight else into, INK)
                canvas.line([out[0], out[-1]] if straight else out, INK)
            part.draw(canvas, left, line)
            top = line + part.below + BRANCH


@dataclass(slots=True)
class _Repeated(_Part):
    """A part that is repeated or left out."""

    inner: _Part
    node: Quantified

    @classmethod
    def of(cls, inner: _Part, node: Quantified) -> _Repeated:
        bypass = BYPASS if node.least == 0 else 0
        return cls(inner.width + 2 * bypass, inner.above + ARC, inner.below + bypass, inner, node)

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        left = x + (self.width - self.inner.width) / 2
        right, top, bottom = left + self.inner.width, y - self.inner.above, y + self.below - 3
        if self.node.least == 0:
            canvas.line(
                [(x, y), (x + 2, y), (x + 2, bottom), (right + BYPASS - 2, bottom), (right + BYPASS - 2, y)], INK
            )
            canvas.line([(x, y), (left, y)], INK)
            canvas.line([(right, y), (right + BYPASS, y)], INK)
        center, badge = left + self.inner.width / 2, count_text(self.node)
        if self.node.most != 1:
            canvas.loop(center, top, min(self.inner.width * 0.6, 120.0), ARC - 10)
        self.inner.draw(canvas, left, y)
        width = badge_width(badge)
        rises = ARC - 1 if self.node.most != 1 else 9
        shape = canvas.badge(center - width / 2, top - rises, width, badge)
        canvas.title(shape, quantifier_words(self.node))


class _PartLayout:
    """Makes the parts. *left* is the number of variables that may still be drawn."""

    def __init__(self, clause: Clause) -> None:
        self.clause, self.left = clause, MAX_PARTS
        self.chooses = False

    def part(self, node: PatternNode, depth: int) -> _Part:
        if self.left <= 0 or (depth > MAX_DEPTH and node.parts):
            number = _variables_in(node)
            self.left -= number
            return _Note.of(f"… {number} {'variable' if number == 1 else 'variables'}")
        match node:
            case Variable(name):
                self.left -= 1
                return _VariableBox.of(self.clause, name)
            case PartitionStart():
                return _Note.of("^ start", "only at the first row of the partition", PURPLE, dashes=None)
            case PartitionEnd():
                return _Note.of("end $", "only after the last row of the partition", PURPLE, dashes=None)
            case NotNext(name):
                title = f"the next row must not satisfy the condition of {name_text(name)}"
                return _Note.of(one_line(f"not {name}", MAX_NAME), title, RED, PALE_RED, "5 3")
            case EmptyPattern():
                return _Note.of("( )", "no row")
            case Quantified():
                inner = self.part(node.of, depth + 1)
                return _Repeated.of(inner if isinstance(inner, _VariableBox | _Note) else _framed(inner), node)
            case Exclusion():
                return _Frame.of(self.part(node.of, depth + 1), "not in the output", "5 3")
            case Permutation():
                return _Frame.of(_Stack.of(self.parts(node.parts, depth), branches=False), "in any order")
            case Alternation():
                self.chooses = True
                return _Stack.of(self.parts(node.parts, depth), branches=True)
        return _DrawnSequence.of(self.parts(node.parts, depth))

    def parts(self, nodes: tuple[PatternNode, ...], depth: int) -> list[_Part]:
        """The parts of a node, with one note for all those that are not drawn."""
        parts: list[_Part] = []
        for number, node in enumerate(nodes):
            if self.left <= 0:
                more = sum(_variables_in(one) for one in nodes[number:])
                return [*parts, _Note.of(f"… and {more:,} more")]
            parts.append(self.part(node, depth + 1))
        return parts


def _framed(inner: _Part) -> _Part:
    return inner if isinstance(inner, _Frame) else _Frame.of(inner)


def _variables_in(node: PatternNode) -> int:
    return sum(isinstance(one, Variable) for one in node.walk())


# ---------------------------------------------------------------------------------------------------- the drawing


def pattern_svg(clause: Clause) -> str:
    """See :meth:`asterism.row_patterns.match_recognize.MatchRecognize.to_svg`."""
    canvas, layout = Canvas(), _PartLayout(clause)
    pattern = clause.pattern
    parts = layout.parts(pattern.of if isinstance(pattern, Concatenation) else (pattern,), 0)
    rows = _rows(parts)
    x, y, ends = 2.0 * PAD + (TURN if len(rows) > 1 else 0), 1.5 * PAD, 30.0
    left, width = x + ends, max(row.width for row in rows)
    end = (x + 4, y + rows[0].above)
    canvas.add("circle", cx=end[0], cy=end[1], r=4, fill=INK)
    for number, row in enumerate(rows):
        line = y + row.above
        if number == 0:
            canvas.arrow([end, (left, line)], INK)
        else:
            between = y - GAP / 2
            far, near = end[0] + TURN, left - TURN
            canvas.arrow([end, (far, end[1]), (far, between), (near, between), (near, line), (left, line)], INK)
        row.draw(canvas, left, line)
        end = (left + row.width, line)
        y = line + row.below + GAP
    canvas.line([end, (end[0] + 17, end[1])], INK)
    canvas.add("circle", cx=end[0] + 22, cy=end[1], r=5, fill="none", stroke=INK, stroke_width=1.6)
    canvas.add("circle", cx=end[0] + 22, cy=end[1], r=2.5, fill=INK)
    y += 16 - GAP
    if clause.within is not None:
        canvas.window(left, left + width, y, one_line(f"within {clause.within.text.strip()}", 60))
        y += 30
    at = x
    notes = [(output_words(clause), "output: "), (skip_words(clause), "after a match: ")]
    legend = [(one_line(f"{what}{words.partition(': ')[0]}", 80), words) for words, what in notes]
    if layout.chooses:
        legend.insert(0, ("an upper branch is preferred", "the standard's order of preference: that of the text"))
    for text, title in legend:
        canvas.title(canvas.text(at, y + 14, text, 11, fill=FAINT), title)
        at += text_width(text, 11) + 18
    return canvas.written(
        max(left + width + ends + TURN, at) + x, y + 32, f"Row pattern: {one_line(str(pattern), MAX_TITLE)}"
    )


def _rows(parts: list[_Part]) -> list[_DrawnSequence]:
    rows: list[list[_Part]] = [[]]
    width = 0.0
    for part in parts:
        if rows[-1] and width + ARROW + part.width > ROW:
            rows.append([])
            width = 0.0
        width += part.width + ARROW
        rows[-1].append(part)
    return [_DrawnSequence.of(row) for row in rows]


def to_html(clause: Clause) -> str:
    """The drawing, followed by tables of the variables and the measures."""
    variables = [(name_text(name), condition_of(clause, name) or "any row") for name in clause.variables]
    variables += [(name_text(one.name), f"rows of {', '.join(map(name_text, one.members))}") for one in clause.subsets]
    measures = [(printable(one.name), printable(one.expression.text.strip())) for one in clause.measures]
    tables = _table(("variable", "where"), variables) + _table(("measure", ""), measures)
    after = f"<div>After a match: {html.escape(skip_words(clause))}</div>"
    return f'<div style="overflow-x:auto">{pattern_svg(clause)}</div>{tables}{after}'


def _table(head: tuple[str, ...], rows: list[tuple[str, str]]) -> str:
    cells = [[one_line(cell, MAX_TITLE) for cell in row] for row in rows[:MAX_PARTS]]
    return html_table(head, cells) if rows else ""
