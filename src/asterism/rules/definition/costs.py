"""The cost of a pattern processor, as far as it can be determined without events."""

from __future__ import annotations

import time
from dataclasses import dataclass

from asterism.matching.tables import longest_match
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.automaton import compiled_pattern
from asterism.row_patterns.clause.clause import Alternation, PatternNode, Quantified, Variable
from asterism.row_patterns.clause.reading import read
from asterism.rules.definition.processor import PatternProcessor
from asterism.text.printable import duration


@dataclass(frozen=True, slots=True)
class RuleCost:
    """
    :param states: the number of states of the automaton
    :param conditions: the number of its conditions
    :param bound: what bounds its partial matches or, for a clause, its waiting rows; None: nothing
    :param seconds: the time to compile it
    """

    states: int
    conditions: int
    bound: str | None
    seconds: float


def cost_of(processor: PatternProcessor, semantics: Semantics = Semantics.DEFAULT) -> RuleCost:
    """
    :raises AsterismError: the processor is invalid

    >>> cost = cost_of(PatternProcessor("rise", 1, sql="PATTERN (A B+) DEFINE B AS x > PREV(x)"))
    >>> cost.states, cost.conditions, cost.bound
    (2, 1, None)
    """
    begin = time.perf_counter()
    if processor.pattern is None:
        assert processor.sql is not None
        clause = read(processor.sql)
        automaton = compiled_pattern(clause)
        seconds = time.perf_counter() - begin
        bounds = [] if clause.within is None else [f"WITHIN {clause.within.text}"]
        rows = _most_rows(clause.pattern)
        bounds += [] if rows is None else ["1 event" if rows <= 1 else f"{rows:,} events"]
        return RuleCost(automaton.start, len(clause.definitions), _joined(bounds, processor), seconds)
    nfa = compile_pattern(processor.pattern, semantics)
    seconds = time.perf_counter() - begin
    window, longest = processor.pattern.effective_window, longest_match(nfa)
    bounds = [] if window is None else [f"within {duration(window)}"]
    bounds += [] if longest is None else ["1 event" if longest == 0 else f"{longest + 1} events"]
    return RuleCost(len(nfa.states), len(nfa.conditions), _joined(bounds, processor), seconds)


def _most_rows(node: PatternNode) -> int | None:
    """The number of rows of the longest match of a pattern, which also bounds how long it can be undecided; None: no limit."""
    if isinstance(node, Variable):
        return 1
    if isinstance(node, Quantified) and node.most is None:
        return None
    parts = [_most_rows(part) for part in node.parts]
    known = [rows for rows in parts if rows is not None]
    if len(known) < len(parts):
        return None
    rows = max(known, default=0) if isinstance(node, Alternation) else sum(known)
    return rows if not isinstance(node, Quantified) or node.most is None else rows * node.most


def _joined(bounds: list[str], processor: PatternProcessor) -> str | None:
    limit = processor.max_partial_matches
    return ", ".join([*bounds, *([] if limit is None else [f"maxPartialMatches {limit:,}"])]) or None
