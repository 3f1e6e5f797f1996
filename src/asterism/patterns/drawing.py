"""Patterns as drawings: SVG with plain shapes, for notebooks and documents.

Stages are a diagram, see :mod:`asterism.text.diagram`. A group is a frame around its stages. Alternatives, and elements in
any order, are branches.

Names and conditions are external input. They are added to a drawing as text of an XML tree, which is escaped when it is written,
never as markup. They are truncated, and the number of parts is bounded, so that a browser can render every drawing.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from itertools import islice

from asterism.patterns.automaton import Action, Always, Edge, Nfa, NfaState, NfaStateKind
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import Combining, Contiguity, PatternSequence, Stage
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
from asterism.text.diagram import (
    BOX,
    FORK,
    MAX_DEPTH,
    MAX_NAME,
    MAX_PARTS,
    PLAIN,
    ROW,
    TURN,
    Arrow,
    Box,
    Branches,
    Diagram,
    DiagramRows,
    Frame,
    Line,
    Note,
    Part,
    Repeated,
    Style,
    condition_lines,
)
from asterism.text.html_table import html_table
from asterism.text.printable import duration, one_line
from asterism.text.svg import (
    AMBER,
    BLUE,
    FAINT,
    INK,
    MAX_TITLE,
    MONO,
    PAD,
    PALE_BLUE,
    PALE_INK,
    PALE_PURPLE,
    PALE_RED,
    PURPLE,
    RED,
    Canvas,
    text_width,
)

MAX_EDGES = 150
"""Maximum number of edges of an automaton."""
MAX_NOTES = 10
"""Maximum number of lines below a drawing."""
DASHES = {Contiguity.SKIP_TILL_NEXT: "7 4", Contiguity.SKIP_TILL_ANY: "1.5 4", Contiguity.NOT_FOLLOW: "7 4"}
LEGEND = {
    Contiguity.STRICT: "the very next event",
    Contiguity.SKIP_TILL_NEXT: "the next that fits",
    Contiguity.SKIP_TILL_ANY: "any later one that fits",
}
NEGATED = Style(RED, PALE_RED, "5 3")


class _Layout:
    """Makes the parts. *left* is the number of stages that may still be drawn."""

    def __init__(self, pattern: PatternSequence) -> None:
        self.left = MAX_PARTS
        self.omitted = sum(1 for _ in pattern.atoms()) - MAX_PARTS
        self.used: set[Contiguity] = set()

    def chain(self, pattern: PatternSequence, room: float, depth: int) -> DiagramRows:
        parts = []
        for number, stage in enumerate(pattern.stages):
            if self.left == 0:
                break
            if number > 0 or depth > 0:
                self.used.add(stage.contiguity)
            parts.append(self.part(stage, room, depth))
        return DiagramRows([*parts, *self.rest()], room)

    def rest(self) -> Iterator[Part]:
        """A note about the stages that are not drawn, once."""
        if self.left == 0 and self.omitted > 0:
            note = Note(f"… and {self.omitted} more stages")
            note.arrow = Arrow(FAINT, "1.5 4")
            yield note
            self.omitted = 0

    def part(self, stage: Stage, room: float, depth: int) -> Part:
        part = self.once(stage, room, depth)
        quantifier = stage.quantifier
        if count_text(quantifier):
            part = Repeated(
                part,
                count_text(quantifier),
                quantifier_words(quantifier),
                loop=repeats(quantifier),
                dashes=DASHES.get(quantifier.inner),
            )
        compare = "≤" if stage.inclusive else "<"
        gap = "" if stage.gap_window is None else f"{compare} {duration(stage.gap_window)}"
        color = RED if stage.contiguity.negated else INK
        part.arrow = Arrow(color, DASHES.get(stage.contiguity), CONTIGUITY[stage.contiguity], gap)
        return part

    def once(self, stage: Stage, room: float, depth: int) -> Part:
        """A stage without its quantifier."""
        negated, group = stage.contiguity.negated, stage.group
        title = f"{stage_words(stage, False)}: {quantifier_words(stage.quantifier)}"
        if group is None:
            self.left -= 1
            return Box(stage.name, _details(stage), NEGATED if negated else BOX, title)
        style = NEGATED if negated else PLAIN
        if depth == MAX_DEPTH:
            stages = sum(1 for _ in group.atoms())
            self.left -= min(stages, self.left)
            return Note(f"group of {stages} stages", title, dashes=style.dashes)
        if group.combination is Combining.SEQUENCE:
            chain = self.chain(group, max(room - 2 * (PAD + TURN), 240.0), depth + 1)
            return Frame(chain, lines=_details(stage), style=style, title=title)
        inside = max(room - 2 * (PAD + FORK), 200.0)
        branches: list[Part] = []
        for element in group.stages:
            if self.left == 0:
                break
            branches.append(self.part(element, inside, depth + 1))
        all_occur = group.combination is Combining.IN_ANY_ORDER
        parts = Branches([*branches, *self.rest()], all_occur=all_occur)
        return Frame(parts, "".join(group_words(group)), _details(stage), style, title)


def _details(stage: Stage) -> list[Line]:
    lines: list[Line] = []
    if stage.condition is not None:
        lines += condition_lines(condition_text(stage.condition))
    elif stage.group is None:
        lines.append(Line("any event", FAINT))
    if stage.until is not None:
        lines += condition_lines("until " + condition_text(stage.until), AMBER)
    if stage.contiguity is Contiguity.NOT_BEFORE:
        compare = "≤" if stage.inclusive else "<"
        time = "at any time" if stage.window is None else f"{compare} {duration(stage.window)}"
        lines.append(Line(f"{time} before the match", FAINT))
    words = loop_words(stage.quantifier)
    return lines + ([Line(", ".join(words), FAINT)] if words else [])


def stages_svg(pattern: PatternSequence) -> str:
    """Draw the stages of a pattern, which may be incomplete. See :meth:`asterism.patterns.pattern.Pattern.to_svg`."""
    layout = _Layout(pattern)
    diagram = Diagram(layout.chain(pattern, ROW, 0), (pattern.from_first, pattern.to_last))
    window = window_words(pattern)
    if window is not None:
        diagram.window(window.replace("less than", "within"))
    diagram.legend(*_legend(layout.used, pattern))
    for words in whole_words(pattern)[:MAX_NOTES]:
        diagram.legend((None, one_line(words, 100), words))
    return diagram.to_svg("Pattern: " + _summary(pattern))


def _summary(pattern: PatternSequence) -> str:
    words = [stage_words(stage, number == 0) for number, stage in enumerate(pattern.stages[:MAX_PARTS])]
    return ", ".join(words) + (", …" if len(pattern.stages) > MAX_PARTS else "")


def _legend(used: set[Contiguity], pattern: PatternSequence) -> Iterator[tuple[Style | Arrow | None, str, str]]:
    """The kinds of arrows that are used, and the skip strategy."""
    for contiguity, meaning in LEGEND.items():
        if contiguity in used:
            yield Arrow(INK, DASHES.get(contiguity)), meaning, ""
    if any(contiguity.negated for contiguity in used):
        yield NEGATED, "must not occur", ""
    if pattern.skip.kind.value != "NO_SKIP":
        kind, _, words = skip_words(pattern).partition(": ")
        yield None, one_line(f"after a match: {kind}", 60), words


# ---------------------------------------------------------------------------------------------------- automaton

STEP, LANE = 20, 13
_KINDS = {
    NfaStateKind.START: (BLUE, PALE_BLUE),
    NfaStateKind.NORMAL: (BLUE, PALE_BLUE),
    NfaStateKind.PENDING: (PURPLE, PALE_PURPLE),
    NfaStateKind.STOP: (RED, PALE_RED),
    NfaStateKind.FINAL: (INK, PALE_INK),
    NfaStateKind.LAST: (INK, PALE_INK),
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
    for number, words, stage in islice(_numbered(pattern, ""), MAX_PARTS):
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
