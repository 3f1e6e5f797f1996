"""The pattern of a clause as a drawing: SVG, see :mod:`asterism.text.diagram`.

Names and conditions are external input: see :mod:`asterism.text.svg`.
"""

from __future__ import annotations

import html
import math

from asterism.errors import printable
from asterism.row_patterns.clause import clause as syntax
from asterism.row_patterns.wording import (
    condition_of,
    count_text,
    name_text,
    output_words,
    quantifier_words,
    skip_words,
)
from asterism.text.diagram import (
    MAX_DEPTH,
    MAX_NAME,
    MAX_PARTS,
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
from asterism.text.printable import one_line
from asterism.text.svg import FAINT, MAX_TITLE, PALE_RED, PURPLE, RED


class _PartLayout:
    """Makes the parts. *left* is the number of variables that may still be drawn."""

    def __init__(self, clause: syntax.Clause) -> None:
        self.clause, self.left = clause, MAX_PARTS
        self.chooses = False

    def part(self, node: syntax.PatternNode, depth: int) -> Part:
        if self.left <= 0 or (depth > MAX_DEPTH and node.parts):
            number = _variables_in(node)
            self.left -= number
            return Note(f"… {number} {'variable' if number == 1 else 'variables'}")
        match node:
            case syntax.Variable(name):
                self.left -= 1
                condition = condition_of(self.clause, name)
                return Box(name, [Line("any row", FAINT)] if condition is None else condition_lines(condition))
            case syntax.PartitionStart():
                return Note("^ start", "only at the first row of the partition", PURPLE, dashes=None)
            case syntax.PartitionEnd():
                return Note("end $", "only after the last row of the partition", PURPLE, dashes=None)
            case syntax.NotNext(name):
                title = f"the next row must not satisfy the condition of {name_text(name)}"
                return Note(one_line(f"not {name}", MAX_NAME), title, RED, PALE_RED, "5 3")
            case syntax.EmptyPattern():
                return Note("( )", "no row")
            case syntax.Quantified():
                inner = self.part(node.of, depth + 1)
                return Repeated(
                    inner if isinstance(inner, Box | Note | Frame) else Frame(inner),
                    count_text(node),
                    quantifier_words(node),
                    loop=node.most != 1,
                    bypass=node.least == 0,
                )
            case syntax.Exclusion():
                lines = [Line("not in the output", FAINT)]
                return Frame(self.part(node.of, depth + 1), lines=lines, style=Style(FAINT, "none", "5 3"))
            case syntax.Permutation():
                return Frame(Branches(self.parts(node.parts, depth), all_occur=True), "in any order")
            case syntax.Alternation():
                self.chooses = True
                return Branches(self.parts(node.parts, depth), all_occur=False)
        return DiagramRows(self.parts(node.parts, depth), math.inf)

    def parts(self, nodes: tuple[syntax.PatternNode, ...], depth: int) -> list[Part]:
        """The parts of a node, with one note for all those that are not drawn."""
        parts: list[Part] = []
        for number, node in enumerate(nodes):
            if self.left <= 0:
                more = sum(_variables_in(rest) for rest in nodes[number:])
                return [*parts, Note(f"… and {more:,} more")]
            parts.append(self.part(node, depth + 1))
        return parts


def _variables_in(node: syntax.PatternNode) -> int:
    return sum(isinstance(part, syntax.Variable) for part in node.walk())


# ---------------------------------------------------------------------------------------------------- the drawing


def pattern_svg(clause: syntax.Clause) -> str:
    """See :meth:`asterism.row_patterns.match_recognize.MatchRecognize.to_svg`."""
    layout = _PartLayout(clause)
    pattern = clause.pattern
    diagram = Diagram(
        DiagramRows(layout.parts(pattern.of if isinstance(pattern, syntax.Concatenation) else (pattern,), 0))
    )
    if clause.within is not None:
        diagram.window(one_line(f"within {clause.within.text.strip()}", 60))
    legend = []
    if layout.chooses:
        preference = "the standard's order of preference: that of the text"
        legend.append((None, "an upper branch is preferred", preference))
    for what, words in (("output", output_words(clause)), ("after a match", skip_words(clause))):
        legend.append((None, one_line(f"{what}: {words.partition(': ')[0]}", 80), words))
    diagram.legend(*legend)
    return diagram.to_svg(f"Row pattern: {one_line(str(pattern), MAX_TITLE)}")


def to_html(clause: syntax.Clause) -> str:
    """The drawing, followed by tables of the variables and the measures."""
    variables = [(name_text(name), condition_of(clause, name) or "any row") for name in clause.variables]
    variables += [
        (name_text(subset.name), f"rows of {', '.join(map(name_text, subset.members))}") for subset in clause.subsets
    ]
    measures = [(printable(measure.name), printable(measure.expression.text.strip())) for measure in clause.measures]
    tables = _table(("variable", "where"), variables) + _table(("measure", ""), measures)
    after = f"<div>After a match: {html.escape(skip_words(clause))}</div>"
    return f'<div style="overflow-x:auto">{pattern_svg(clause)}</div>{tables}{after}'


def _table(head: tuple[str, ...], rows: list[tuple[str, str]]) -> str:
    cells = [[one_line(cell, MAX_TITLE) for cell in row] for row in rows[:MAX_PARTS]]
    return html_table(head, cells) if rows else ""
