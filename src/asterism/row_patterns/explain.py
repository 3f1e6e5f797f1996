"""A clause as text: the steps of its pattern, its output, when matches are emitted, then its automaton."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from asterism.errors import printable
from asterism.row_patterns.automaton import compiled_pattern
from asterism.row_patterns.clause import clause as syntax
from asterism.row_patterns.wording import (
    condition_of,
    emission_words,
    name_text,
    output_words,
    quantifier_words,
    skip_words,
)

MAX_LINES = 200
"""Maximum number of lines for the steps, and of states of the automaton."""

_WORDS: dict[type[syntax.PatternNode], str] = {
    syntax.EmptyPattern: "no row",
    syntax.PartitionStart: "^: only at the first row of the partition",
    syntax.PartitionEnd: "$: only after the last row of the partition",
    syntax.Alternation: "one of these, an earlier one is preferred",
    syntax.Permutation: "all of these in any order, that of the list is preferred",
}


def explain(clause: syntax.Clause) -> str:
    """See :meth:`asterism.row_patterns.match_recognize.MatchRecognize.explain`."""
    automaton = compiled_pattern(clause)
    lines = [
        *describe(clause),
        "on a stream, a match is emitted",
        *(f"  {line}" for line in emission_words(clause, automaton)),
        "",
        "automaton",
        automaton.text(limit=MAX_LINES),
    ]
    return "\n".join(lines)


def describe(clause: syntax.Clause) -> Iterator[str]:
    """The steps, the window, the output and where the search continues."""
    steps = _Steps(clause)
    pattern = clause.pattern
    parts = pattern.of if isinstance(pattern, syntax.Concatenation) else (pattern,)
    lines = list(islice(steps.numbered(parts, ""), MAX_LINES + 1))
    yield from lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        yield "... and more steps"
    for subset in clause.subsets:
        members = " and ".join(map(name_text, subset.members))
        yield f"{name_text(subset.name)}: the rows of {members}"
    if clause.within is not None:
        yield f"window: {printable(clause.within.text.strip())} from the first to the last row, inclusive"
    if clause.partition_by:
        yield f"partitions: rows with equal {_listed(key.expression.text for key in clause.partition_by)}"
    if clause.order_by:
        keys = (key.expression.text.strip() + (" DESC" if key.descending else "") for key in clause.order_by)
        yield f"order: {_listed(keys)}"
    yield f"output: {output_words(clause)}"
    for measure in clause.measures:
        yield f"  {printable(measure.name)} = {printable(measure.expression.text.strip())}"
    yield f"after a match: {skip_words(clause)}"


def _listed(texts: Iterator[str]) -> str:
    return ", ".join(printable(text.strip()) for text in texts)


class _Steps:
    """The parts of a pattern as numbered lines. The condition of a variable is shown where the variable occurs first."""

    def __init__(self, clause: syntax.Clause) -> None:
        self._clause = clause
        self._shown: dict[str, str] = {}

    def numbered(self, parts: tuple[syntax.PatternNode, ...], prefix: str) -> Iterator[str]:
        for number, part in enumerate(parts, 1):
            after_gap = number > 1 and syntax.gap_of(parts[number - 2]) is not None
            yield from self._step(part, f"{prefix}{number}", after_gap)

    def _step(self, node: syntax.PatternNode, number: str, after_gap: bool) -> Iterator[str]:
        indent = "   " * number.count(".")
        begin, below = f"{indent}{number}. ", " " * (len(indent) + len(number) + 4)
        notes: list[str] = []
        while isinstance(node, syntax.Quantified | syntax.Exclusion):
            notes.append(
                quantifier_words(node)
                if isinstance(node, syntax.Quantified)
                else "not in the output of ALL ROWS PER MATCH"
            )
            node = node.of
        often = ", ".join(reversed(notes))
        if isinstance(node, syntax.Variable):
            yield f"{begin}{name_text(node.name)}: {often or 'once'}"
            yield from (f"{below}{line}" for line in self._condition_lines(node.name, number))
        else:
            words = _WORDS.get(type(node), "a group")
            if isinstance(node, syntax.NotNext):
                words = self._negation_words(node, number, after_gap)
            yield f"{begin}{words}{': ' if often else ''}{often}"
            yield from self.numbered(node.parts, number + ".")

    def _condition_lines(self, name: str, number: str) -> Iterator[str]:
        """The condition of a variable, in the step with this number."""
        condition = condition_of(self._clause, name)
        if condition is None:
            yield "any row"
        elif name in self._shown:
            yield f"where as in {self._shown[name]}."
        else:
            first, *rest = condition.splitlines() or [""]
            yield f"where {first}"
            yield from (f"      {line.strip()}" for line in rest)
        self._shown.setdefault(name, number)

    def _negation_words(self, node: syntax.NotNext, number: str, after_gap: bool) -> str:
        which = "no row of the gap before, nor the next row, may" if after_gap else "the next row must not"
        words = f"{which} satisfy the condition of {name_text(node.name)}"
        if node.implied:
            return f"{words}, whose loop is greedy in Flink"
        condition = condition_of(self._clause, node.name)
        if condition is None or node.name in self._shown:
            return words
        self._shown[node.name] = number
        return f"{words}: {' '.join(condition.split())}"
