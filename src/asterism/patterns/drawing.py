"""Patterns as drawings: SVG with plain shapes, for notebooks and documents.

The layout has two steps: the size of every part is computed (:class:`_Box`), then its position. The parts of a chain are in
rows, from left to right, on one line; a group is a frame around its own chain. Alternatives, and elements in any order, are
branches one below the other, between a fork and a join: thin lines for alternatives, bars for elements that must all occur.

Names and conditions are external input. They are added to a drawing as text of an XML tree, which is escaped when it is written,
never as markup. They are truncated, and the number of parts is bounded, so that a browser can render every drawing.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from asterism.patterns.automaton import Action, Always, Edge, Nfa, NfaState, NfaStateKind
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import Combining, Contiguity, PatternSequence, Quantifier, Stage
from asterism.patterns.wording import (
    CONTIGUITY,
    condition_text,
    count_text,
    group_words,
    loop_words,
    quantifier_words,
    repeats,
    skip_words,
    stage_words,
    whole_words,
    window_words,
)
from asterism.text.html_table import html_table
from asterism.text.printable import duration, one_line
from asterism.text.svg import (
    AMBER,
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
    SANS,
    Canvas,
    badge_width,
    text_width,
    wrapped,
)

MAX_STAGES = 60
"""Maximum number of stages; further ones are only counted."""
MAX_DEPTH = 6
"""Maximum nesting of groups; deeper ones are only counted."""
MAX_EDGES = 150
"""Maximum number of edges of an automaton."""
MAX_NAME = 28
"""Maximum length of a name in its box."""
ROW = 940
"""Width after which a chain continues in a new row, in pixels."""

TURN = 20  # how far an arrow to a new row extends beyond its ends
ARC = 24  # space above a part that repeats
FORK, BRANCH, HEAD = 36, 16, 18  # the width of a fork, the space between branches, and that of the words above them
MAX_NOTES = 10
"""Maximum number of lines below a drawing."""
DASHES = {Contiguity.SKIP_TILL_NEXT: "7 4", Contiguity.SKIP_TILL_ANY: "1.5 4", Contiguity.NOT_FOLLOW: "7 4"}
LEGEND = {
    Contiguity.STRICT: "the very next event",
    Contiguity.SKIP_TILL_NEXT: "the next that fits",
    Contiguity.SKIP_TILL_ANY: "any later one that fits",
}


# ---------------------------------------------------------------------------------------------------- parts


@dataclass(slots=True)
class _Box:
    """An element of a chain: a stage, a group, or a placeholder for omitted stages."""

    stage: Stage | None
    width: float = 0
    height: float = 0
    """of the frame, without anything above it"""
    above: float = 0
    line: float = 0
    """position of incoming and outgoing arrows, from the top of the frame"""
    name: str = ""
    lines: list[tuple[str, str, str]] = field(default_factory=list)
    """(colour, font, text)"""
    chain: _Chain | None = None
    branches: list[_Box] = field(default_factory=list)
    """alternatives, or elements in any order"""


@dataclass(slots=True)
class _Row:
    parts: list[_Box]
    width: float
    above: float
    """from the top of the row to the line of its parts"""
    below: float


@dataclass(slots=True)
class _Chain:
    rows: list[_Row]
    width: float
    height: float

    @property
    def margin(self) -> float:
        """The space that arrows to new rows need on both sides."""
        return TURN + 4 if len(self.rows) > 1 else 0


class _Layout:
    """Computes the size of every part. *left* is the number of stages that may still be drawn."""

    def __init__(self, pattern: PatternSequence) -> None:
        self.left = MAX_STAGES
        self.omitted = sum(1 for _ in pattern.atoms()) - MAX_STAGES
        self.used: set[Contiguity] = set()

    def chain(self, pattern: PatternSequence, room: float, depth: int) -> _Chain:
        parts = []
        for number, stage in enumerate(pattern.stages):
            if self.left == 0:
                break
            if number > 0 or depth > 0:
                self.used.add(stage.contiguity)
            parts.append(self.part(stage, room, depth))
        if self.left == 0 and self.omitted > 0:
            parts.append(_note(f"… and {self.omitted} more stages"))
            self.omitted = 0
        rows: list[_Row] = []
        while parts:
            fitting = [parts.pop(0)]
            width = fitting[0].width
            while parts and width + _gap(parts[0]) + parts[0].width <= room:
                width += _gap(parts[0]) + parts[0].width
                fitting.append(parts.pop(0))
            above = max(part.above + part.line for part in fitting)
            rows.append(_Row(fitting, width, above, max(part.height - part.line for part in fitting)))
        height = sum(row.above + row.below for row in rows) + GAP * (len(rows) - 1)
        return _Chain(rows, max(row.width for row in rows), height)

    def part(self, stage: Stage, room: float, depth: int) -> _Box:
        if stage.group is None:
            self.left -= 1
            return self.stage(stage)
        inner = sum(1 for _ in stage.group.atoms())
        if depth == MAX_DEPTH:
            self.left -= min(inner, self.left)
            part = _note(f"group of {inner} stages")
            part.stage = stage
        elif stage.group.combination is not Combining.SEQUENCE:
            part = self.fork(stage, stage.group, room, depth)
        else:
            chain = self.chain(stage.group, max(room - 2 * (PAD + TURN), 240.0), depth + 1)
            part = _Box(stage, chain=chain)
            part.lines = _details(stage)
            part.line = PAD + chain.rows[0].above
            text = max((text_width(text, 11, 0.61) for _, _, text in part.lines), default=0.0)
            part.width = max(chain.width + 2 * chain.margin, text) + 2 * PAD
            part.height = chain.height + 15 * len(part.lines) + 2 * PAD
        part.above = _above(stage.quantifier)
        return part

    def fork(self, stage: Stage, group: PatternSequence, room: float, depth: int) -> _Box:
        """Branches one below the other."""
        part = _Box(stage, name="".join(group_words(group)))
        part.lines = _details(stage)
        inside = max(room - 2 * (PAD + FORK), 200.0)
        for element in group.stages:
            if self.left == 0:
                break
            part.branches.append(self.part(element, inside, depth + 1))
        if self.left == 0 and self.omitted > 0:
            part.branches.append(_note(f"… and {self.omitted} more stages"))
            self.omitted = 0
        texts = [text_width(part.name, 11), *(text_width(text, 11, 0.61) for _, _, text in part.lines)]
        widest = max(branch.width for branch in part.branches)
        part.width = max(widest + 2 * (PAD + FORK), max(texts) + 2 * PAD)
        heights = sum(branch.above + branch.height for branch in part.branches) + BRANCH * (len(part.branches) - 1)
        part.height = HEAD + heights + 15 * len(part.lines) + 2 * PAD
        lines = [y + branch.line for branch, y in _placed(part)]
        part.line = (lines[0] + lines[-1]) / 2
        return part

    def stage(self, stage: Stage) -> _Box:
        part = _Box(stage, name=one_line(stage.name, MAX_NAME))
        part.lines = _details(stage)
        texts = [text_width(text, 11, 0.61) for _, _, text in part.lines]
        part.width = max(100.0, text_width(part.name, 14, 0.6), *texts) + 2 * PAD
        part.height = 24 + 15 * len(part.lines) + PAD
        part.line = part.height / 2
        part.above = _above(stage.quantifier)
        return part


def _placed(part: _Box) -> Iterator[tuple[_Box, float]]:
    """The branches, with the position of each frame from the top of that of *part*."""
    y = float(PAD + HEAD)
    for branch in part.branches:
        y += branch.above
        yield branch, y
        y += branch.height + BRANCH


def _note(text: str) -> _Box:
    return _Box(None, width=text_width(text, 12) + 2 * PAD, height=36, line=18, name=text)


def _above(quantifier: Quantifier) -> float:
    return ARC if repeats(quantifier) else 10 if count_text(quantifier) else 0


def _gap(part: _Box) -> float:
    """The space for the arrow to a part, with its label."""
    return max(44.0, max((text_width(text, 10) for text in _labels(part)), default=0.0) + 20)


def _labels(part: _Box) -> list[str]:
    """The labels above and below the arrow to a part."""
    if part.stage is None:
        return [""]
    gap = part.stage.gap_window
    compare = "≤" if part.stage.inclusive else "<"
    return [CONTIGUITY[part.stage.contiguity], *([f"{compare} {duration(gap)}"] if gap is not None else [])]


def _details(stage: Stage) -> list[tuple[str, str, str]]:
    lines = []
    if stage.condition is not None:
        lines += [(INK, MONO, line) for line in wrapped(condition_text(stage.condition))]
    elif stage.group is None:
        lines.append((FAINT, SANS, "any event"))
    if stage.until is not None:
        lines += [(AMBER, MONO, line) for line in wrapped("until " + condition_text(stage.until))]
    if stage.contiguity is Contiguity.NOT_BEFORE:
        compare = "≤" if stage.inclusive else "<"
        time = "at any time" if stage.window is None else f"{compare} {duration(stage.window)}"
        lines.append((FAINT, SANS, f"{time} before the match"))
    words = loop_words(stage.quantifier)
    return lines + ([(FAINT, SANS, ", ".join(words))] if words else [])


# ---------------------------------------------------------------------------------------------------- stages


def stages_svg(pattern: PatternSequence) -> str:
    """Draw the stages of a pattern, which may be incomplete. See :meth:`asterism.patterns.pattern.Pattern.to_svg`."""
    canvas, layout = Canvas(), _Layout(pattern)
    chain = layout.chain(pattern, ROW, 0)
    x, y, ends = 2.0 * PAD, 1.5 * PAD, 30.0  # space for the dots at both ends
    first = y + chain.rows[0].above
    canvas.add("circle", cx=x + 4, cy=first, r=4, fill=INK)
    if pattern.from_first:
        canvas.line([(x - 4, first - 9), (x - 4, first + 9)], INK)
    canvas.arrow([(x + 4, first), (x + ends, first)], INK)
    _draw_chain(canvas, chain, x + ends, y)
    last = chain.rows[-1]
    end_x, end_y = x + ends + last.width, y + chain.height - last.below
    canvas.line([(end_x, end_y), (end_x + 17, end_y)], INK)
    canvas.add("circle", cx=end_x + 22, cy=end_y, r=5, fill="none", stroke=INK, stroke_width=1.6)
    canvas.add("circle", cx=end_x + 22, cy=end_y, r=2.5, fill=INK)
    if pattern.to_last:
        canvas.line([(end_x + 32, end_y - 9), (end_x + 32, end_y + 9)], INK)
    y += chain.height + 16
    width = chain.width + 2 * ends
    window = window_words(pattern)
    if window is not None:
        canvas.window(x + ends, x + ends + chain.width, y, window.replace("less than", "within"))
        y += 30
    width = max(width, _draw_legend(canvas, x, y + 14, layout.used, pattern))
    for words in whole_words(pattern)[:MAX_NOTES]:
        y += 18
        text = one_line(words, 100)
        canvas.title(canvas.text(x, y + 14, text, 11, fill=FAINT), words)
        width = max(width, text_width(text, 11))
    return canvas.written(width + 2 * x, y + 32, "Pattern: " + _summary(pattern))


def _summary(pattern: PatternSequence) -> str:
    words = [stage_words(stage, number == 0) for number, stage in enumerate(pattern.stages[:MAX_STAGES])]
    return ", ".join(words) + (", …" if len(pattern.stages) > MAX_STAGES else "")


def _draw_chain(canvas: Canvas, chain: _Chain, x: float, y: float) -> None:
    left = x
    before: tuple[float, float] | None = None
    for row in chain.rows:
        line, at = y + row.above, left
        for number, part in enumerate(row.parts):
            if before is not None and number == 0:
                _draw_turn(canvas, part, before, (left, line), y - GAP / 2)
            elif before is not None:
                at += _gap(part)
                _draw_arrow(canvas, part, before[0], at, line)
            _draw_part(canvas, part, at, line - part.line)
            at += part.width
            before = at, line
        y += row.above + row.below + GAP


def _arrow_style(part: _Box) -> tuple[str, str | None]:
    if part.stage is None:
        return FAINT, "1.5 4"
    contiguity = part.stage.contiguity
    return RED if contiguity.negated else INK, DASHES.get(contiguity)


def _draw_arrow(canvas: Canvas, part: _Box, x0: float, x1: float, y: float) -> None:
    color, dashes = _arrow_style(part)
    canvas.arrow([(x0, y), (x1, y)], color, dashes)
    for label, place in zip(_labels(part), (y - 7, y + 15), strict=False):
        fill = PURPLE if place > y else RED if color == RED else FAINT
        canvas.text((x0 + x1 - 6) / 2, place, label, 10, text_anchor="middle", fill=fill)


def _draw_turn(
    canvas: Canvas, part: _Box, start: tuple[float, float], end: tuple[float, float], between: float
) -> None:
    """Draw the arrow from the end of a row to the beginning of the next."""
    color, dashes = _arrow_style(part)
    far, near = start[0] + TURN, end[0] - TURN
    canvas.arrow([start, (far, start[1]), (far, between), (near, between), (near, end[1]), end], color, dashes)
    label = ", ".join(_labels(part))
    if label:
        width = text_width(label, 10) + 8
        canvas.rect(near + 24, between - 7, width, 14, fill=PAPER)
        canvas.text(near + 24 + width / 2, between + 3.5, label, 10, text_anchor="middle", fill=color)


def _draw_part(canvas: Canvas, part: _Box, x: float, y: float) -> None:
    stage = part.stage
    if stage is None:
        canvas.rect(x, y, part.width, part.height, rx=8, fill=PAPER, stroke=FAINT, stroke_dasharray="3 3")
        canvas.text(x + part.width / 2, y + 22, part.name, 12, text_anchor="middle", fill=FAINT)
        return
    quantifier, negated = stage.quantifier, stage.contiguity.negated
    color, fill = (RED, PALE_RED) if negated else (FAINT, "none") if stage.group is not None else (BLUE, PALE_BLUE)
    if repeats(quantifier):
        canvas.loop(x + part.width / 2, y, min(part.width * 0.6, 120.0), ARC - 10, DASHES.get(quantifier.inner))
    frame = canvas.rect(x, y, part.width, part.height, rx=8, fill=fill, stroke=color, stroke_width=1.4)
    if negated:
        frame.set("stroke-dasharray", "5 3")
    canvas.title(frame, f"{stage_words(stage, False)}: {quantifier_words(quantifier)}")
    if part.chain is not None:
        _draw_chain(canvas, part.chain, x + PAD + part.chain.margin, y + PAD)
        _draw_lines(canvas, part, x + PAD, y + PAD + part.chain.height + 16)
    elif part.branches:
        canvas.text(x + PAD, y + PAD + 8, part.name, 11, fill=FAINT)
        _draw_branches(canvas, part, x, y)
        _draw_lines(canvas, part, x + PAD, y + part.height - 15 * len(part.lines) + 4)
    elif stage.group is not None:
        canvas.text(x + part.width / 2, y + 22, part.name, 12, text_anchor="middle", fill=FAINT)
    else:
        strike = "line-through" if negated else None
        name = canvas.text(
            x + PAD, y + 23, part.name, 14, font_weight="bold", fill=RED if negated else INK, text_decoration=strike
        )
        canvas.title(name, stage.name)
        _draw_lines(canvas, part, x + PAD, y + 42)
    badge = count_text(quantifier)
    if badge:
        width = badge_width(badge)
        at = x + part.width / 2 - width / 2 if repeats(quantifier) else x + part.width - width - 8
        canvas.badge(at, y - ARC + 1 if repeats(quantifier) else y - 9, width, badge)


def _draw_branches(canvas: Canvas, part: _Box, x: float, y: float) -> None:
    assert part.stage is not None
    assert part.stage.group is not None
    inner, outer = x + PAD + FORK, x + part.width - PAD - FORK
    fork, join, middle = inner - FORK / 2, outer + FORK / 2, y + part.line
    lines = [y + top + branch.line for branch, top in _placed(part)]
    all_occur = part.stage.group.combination is Combining.IN_ANY_ORDER
    for (branch, top), at in zip(_placed(part), lines, strict=True):
        end = inner + branch.width
        if all_occur:
            canvas.arrow([(fork, at), (inner, at)], INK)
            canvas.line([(end, at), (join, at)], INK)
        else:
            canvas.arrow([(x, middle), (fork, middle), (fork, at), (inner, at)], INK)
            canvas.line([(end, at), (join, at), (join, middle), (x + part.width, middle)], INK)
        _draw_part(canvas, branch, inner, y + top)
    if all_occur:
        canvas.line([(x, middle), (fork, middle)], INK)
        canvas.line([(join, middle), (x + part.width, middle)], INK)
        for bar in (fork, join):
            canvas.line([(bar, lines[0] - 10), (bar, lines[-1] + 10)], INK, width=4)


def _draw_lines(canvas: Canvas, part: _Box, x: float, y: float) -> None:
    assert part.stage is not None
    full = {INK: part.stage.condition, AMBER: part.stage.until}
    for number, (color, font, line) in enumerate(part.lines):
        shape = canvas.text(x, y + 15 * number, line, 11, fill=color, font_family=font)
        condition = full.get(color)
        if condition is not None:
            canvas.title(shape, ("until " if color == AMBER else "") + condition_text(condition))


def _draw_legend(canvas: Canvas, x: float, y: float, used: set[Contiguity], pattern: PatternSequence) -> float:
    """Draw the kinds of arrows that are used and the skip strategy, and return the width."""
    at = x
    for contiguity, meaning in LEGEND.items():
        if contiguity in used:
            canvas.arrow([(at, y - 4), (at + 30, y - 4)], INK, DASHES.get(contiguity))
            canvas.text(at + 36, y, meaning, 11, fill=FAINT)
            at += 36 + text_width(meaning, 11) + 18
    if any(contiguity.negated for contiguity in used):
        canvas.rect(at, y - 11, 22, 14, rx=4, fill=PALE_RED, stroke=RED, stroke_dasharray="5 3")
        canvas.text(at + 28, y, "must not occur", 11, fill=FAINT)
        at += 28 + text_width("must not occur", 11) + 18
    if pattern.skip.kind.value != "NO_SKIP":
        kind, _, words = skip_words(pattern).partition(": ")
        text = one_line(f"after a match: {kind}", 60)
        canvas.title(canvas.text(at, y, text, 11, fill=FAINT), words)
        at += text_width(text, 11) + 18
    return max(at - 18 - x, 0.0)


# ---------------------------------------------------------------------------------------------------- automaton

STEP, LANE = 20, 13
_KINDS = {
    NfaStateKind.START: (BLUE, PALE_BLUE),
    NfaStateKind.NORMAL: (BLUE, PALE_BLUE),
    NfaStateKind.PENDING: (PURPLE, "#f5effb"),
    NfaStateKind.STOP: (RED, PALE_RED),
    NfaStateKind.FINAL: (INK, "#eef0f2"),
    NfaStateKind.LAST: (INK, "#eef0f2"),
}
_ACTIONS = {Action.TAKE: (BLUE, None), Action.IGNORE: (FAINT, "7 4"), Action.PROCEED: (AMBER, "1.5 4")}


def automaton_svg(pattern: PatternSequence, semantics: Semantics = Semantics.DEFAULT) -> str:
    """Draw the automaton: its states from top to bottom, below each state its edges in the order in which they are tried, and at
    the right lanes to the target states. See :meth:`asterism.patterns.pattern.Pattern.to_svg`.
    """
    nfa, canvas = compile_pattern(pattern, semantics), Canvas()
    states = _first_states(nfa)
    x, y = 1.5 * PAD, 2.5 * PAD
    notes = [(f"c{n}: {condition_text(condition)}", INK) for n, condition in enumerate(nfa.conditions[:MAX_EDGES])]
    if nfa.window is not None:
        notes.append((f"within {duration(nfa.window)}", PURPLE))
    notes += [(note, INK) for note in nfa.notes()]
    width = 0.0
    for note, color in notes:
        shape = canvas.text(x, y, one_line(note, 100), 11, font_family=MONO, fill=color)
        canvas.title(shape, note)
        width = max(width, text_width(one_line(note, 100), 11, 0.61))
        y += 16

    boxes = max(text_width(_state_text(state), 13, 0.6) for state in states) + 2 * PAD
    right = x + max(
        boxes, *(text_width(_edge_text(edge), 11, 0.61) + 54 for state in states for edge in state.edges), 0.0
    )
    rows: dict[NfaState, float] = {}
    lines: list[tuple[float, Edge]] = []
    for state in states:
        rows[state] = y + 12
        _draw_state(canvas, state, x, y, boxes)
        y += 24 + STEP / 2
        for edge in state.edges:
            color, dashes = _ACTIONS[edge.action]
            canvas.line([(x + 14, y), (x + 40, y)], color, dashes)
            canvas.title(
                canvas.text(x + 46, y + 4, _edge_text(edge), 11, fill=color, font_family=MONO), str(edge.guard)
            )
            if edge.target is not state:
                lines.append((y, edge))
            y += STEP
        y += 6
    drawn = [(start, rows[edge.target], edge) for start, edge in lines if edge.target in rows]
    for (start, end, edge), lane in zip(drawn, _lanes(drawn), strict=True):
        color, dashes = _ACTIONS[edge.action]
        at = right + LANE * (lane + 1)
        width = max(width, at - x)
        stub = x + 52 + text_width(_edge_text(edge), 11, 0.61)
        canvas.arrow([(stub, start), (at, start), (at, end), (x + boxes + 2, end)], color, dashes)
    if len(states) < len(nfa.states):
        canvas.text(x, y + 8, f"… and {len(nfa.states) - len(states):,} more states", 12, fill=FAINT)
        y += STEP
    return canvas.written(max(width, right - x) + 2 * x, y + PAD, "Automaton of the pattern: " + _summary(pattern))


def _first_states(nfa: Nfa) -> list[NfaState]:
    """The states to draw, from the start state on."""
    edges = 0
    states: list[NfaState] = []
    for state in reversed(nfa.states):
        edges += len(state.edges) + 1
        if edges > MAX_EDGES and states:
            break
        states.append(state)
    return states


def _draw_state(canvas: Canvas, state: NfaState, x: float, y: float, width: float) -> None:
    color, fill = _KINDS[state.kind]
    canvas.rect(x, y, width, 24, rx=8, fill=fill, stroke=color, stroke_width=1.4)
    name = canvas.text(x + PAD, y + 16.5, _state_text(state), 13, font_weight="bold", fill=color)
    canvas.title(name, state.name)


def _state_text(state: NfaState) -> str:
    kind = "" if state.kind in (NfaStateKind.NORMAL, NfaStateKind.FINAL) else f" {state.kind.name}"
    gap = f" gap < {duration(state.gap)}" if state.gap is not None else ""
    return one_line(state.name, MAX_NAME) + kind + gap


def _edge_text(edge: Edge) -> str:
    gap = f" within {duration(edge.gap)}" if edge.gap is not None else ""
    guard = "" if isinstance(edge.guard, Always) else f" if {one_line(str(edge.guard), 60)}"
    return f"{edge.action.name} → {one_line(edge.target.name, MAX_NAME)}{guard}{gap}"


def _lanes(lines: list[tuple[float, float, Edge]]) -> list[int]:
    """Assign a lane to each vertical line without overlaps; short lines are inside."""
    taken: list[list[tuple[float, float]]] = []
    lanes = [0] * len(lines)
    for number in sorted(range(len(lines)), key=lambda n: abs(lines[n][1] - lines[n][0])):
        low, high = sorted(lines[number][:2])
        lane = next((n for n, spans in enumerate(taken) if all(high < a or b < low for a, b in spans)), len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((low, high))
        lanes[number] = lane
    return lanes


# ---------------------------------------------------------------------------------------------------- notebooks


def to_html(pattern: PatternSequence) -> str:
    """The drawing, followed by a table of the stages."""
    rows = []
    for number, words, stage in islice(_numbered(pattern, ""), MAX_STAGES):
        cells = [
            number,
            words,
            "must not occur" if stage.contiguity.negated else quantifier_words(stage.quantifier),
            "" if stage.group is not None else condition_text(stage.condition) if stage.condition else "any event",
            condition_text(stage.until) if stage.until is not None else "",
        ]
        rows.append([one_line(cell, MAX_TITLE) for cell in cells])
    body = html_table(("", "stage", "how often", "where", "until"), rows)
    after = f"<div>After a match: {html.escape(skip_words(pattern))}</div>"
    for words in whole_words(pattern)[:MAX_NOTES]:
        after += f"<div>{html.escape(one_line(words, MAX_TITLE))}</div>"
    return f'<div style="overflow-x:auto">{stages_svg(pattern)}</div>{body}{after}'


def _numbered(pattern: PatternSequence, prefix: str) -> Iterator[tuple[str, str, Stage]]:
    """The number, the words and the stage of each line."""
    for number, stage in enumerate(pattern.stages, 1):
        yield f"{prefix}{number}", stage_words(stage, number == 1, pattern.combination), stage
        if stage.group is not None:
            yield from _numbered(stage.group, f"{prefix}{number}.")
