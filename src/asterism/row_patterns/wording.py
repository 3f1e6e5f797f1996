"""Human-readable descriptions of clauses, shared by their explanation, their drawing and their trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

from asterism.errors import ExpressionError, printable
from asterism.expressions.parsing import tokenize
from asterism.row_patterns.automaton import ACCEPT, AT_DEADLINE, AT_END, RowAutomaton
from asterism.row_patterns.clause.clause import Clause, Quantified, RowsPerMatch, Skip, SkipTo, Variable, quoted
from asterism.text.printable import either, one_line

MAX_PAIRS = 50_000
"""Pairs of edges that are compared to find out whether an alternative can keep a match waiting."""

_SKIP = {
    SkipTo.PAST_LAST_ROW: "the search continues after the last row of the match",
    SkipTo.NEXT_ROW: "the search continues with the row after the first row of the match",
    SkipTo.FIRST: "the search continues with the first row of {name}",
    SkipTo.LAST: "the search continues with the last row of {name}",
    SkipTo.NO_SKIP: "all matches that begin at a row, then those that begin at the next one",
}
_OUTPUT = {
    RowsPerMatch.ONE: "one row for each match",
    RowsPerMatch.ALL_SHOW_EMPTY: "the rows of each match; an empty match has one",
    RowsPerMatch.ALL_OMIT_EMPTY: "the rows of each match; an empty match has none",
    RowsPerMatch.ALL_WITH_UNMATCHED: "the rows of each match, and the rows that are in none",
}


def name_text(name: str) -> str:
    """The name of a variable or a subset."""
    return printable(quoted(name))


@dataclass(frozen=True, slots=True)
class VariableWords:
    """The words of another language for the variables of the clause that a text in it has become.

    :ivar names: by variable; empty: a variable that has no counterpart in the text
    :ivar reasons: by a part of a condition in SQL: what a row is that does not satisfy it
    """

    names: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def name(self, variable: str) -> str:
        """The name of a variable or a subset."""
        known = self.names.get(variable)
        return name_text(variable) if known is None else known

    def of_all(self, variables: Sequence[str]) -> list[str]:
        """The names of those that have one, each once."""
        return list(dict.fromkeys(filter(None, map(self.name, variables))))


def summary(clause: Clause) -> str:
    """Summarize a clause in a line.

    >>> from asterism.row_patterns.clause.reading import read
    >>> summary(read("PATTERN (A B+) WITHIN INTERVAL '1' HOUR DEFINE B AS x > PREV(x)"))
    "PATTERN (A B+), WITHIN INTERVAL '1' HOUR, ONE ROW PER MATCH, SKIP PAST LAST ROW"
    """
    words = [f"PATTERN ({one_line(str(clause.pattern), 80)})"]
    if clause.within is not None:
        words.append(f"WITHIN {one_line(clause.within.text, 80)}")
    skip = clause.skip
    return ", ".join([*words, clause.rows_text, f"{skip_text(skip)}"])


def quantifier_words(node: Quantified) -> str:
    """How often a part is repeated, and what is preferred.

    >>> quantifier_words(Quantified(Variable("A"), 0, 1)), quantifier_words(Quantified(Variable("A"), 2, None, greedy=False))
    ('at most once, once is preferred', '2 or more times, as few as possible')
    """
    least, most = node.least, node.most
    if least == most:
        return "once" if least == 1 else f"{least} times"
    if (least, most) == (0, 1):
        return f"at most once, {'once' if node.greedy else 'not at all'} is preferred"
    if most is None:
        times = f"{least} or more times"
    else:
        times = f"{least} to {most} times" if least else f"at most {most} times"
    until = "" if node.until is None else f", until a row satisfies {name_text(node.until)}"
    return f"{times}, as {'many' if node.greedy else 'few'} as possible{until}"


def count_text(node: Quantified) -> str:
    """How often, in a few characters: the text of the quantifier.

    >>> count_text(Quantified(Variable("A"), 1, None, greedy=False))
    '+?'
    """
    return str(Quantified(Variable("A"), node.least, node.most, node.greedy, node.until))[1:]


def condition_of(clause: Clause, variable: str) -> str | None:
    """The text of a condition; None if there is none."""
    texts = (definition.condition.text for definition in clause.definitions if definition.variable == variable)
    return next((printable(text.strip()) for text in texts), None)


def skip_words(clause: Clause) -> str:
    """
    >>> from asterism.row_patterns.clause.reading import read
    >>> skip_words(read("PATTERN (A)"))
    'SKIP PAST LAST ROW: the search continues after the last row of the match'
    """
    skip = clause.skip
    name = name_text(skip.variable) if skip.variable is not None else ""
    return f"{skip_text(skip)}: {_SKIP[skip.to].format(name=name)}"


def skip_text(skip: Skip) -> str:
    """AFTER MATCH, as it is written.

    >>> skip_text(Skip(SkipTo.LAST, "B")), skip_text(Skip(SkipTo.NO_SKIP))
    ('SKIP TO LAST B', 'NO SKIP')
    """
    if skip.to is SkipTo.NO_SKIP:
        return "NO SKIP"
    return f"SKIP {skip.to.value}{'' if skip.variable is None else f' {name_text(skip.variable)}'}"


def output_words(clause: Clause) -> str:
    timeouts = "; also those that time out" if clause.timeouts else ""
    return f"{clause.rows_text}: {_OUTPUT[clause.rows]}{timeouts}"


# ---------------------------------------------------------------------------------------------------- streams


@dataclass(slots=True)
class _MatchEnds:
    """The variables with whose rows a match can end, "" for an empty match, in the order of the states.

    :ivar complete: no longer match is possible
    :ivar preferred_longer: by the variables that may continue a match: a longer match would be preferred
    :ivar at_partition_end: because of ``$``
    :ivar negated: the variables whose conditions the row after a match must not satisfy
    :ivar at_deadline: whether a match can end at the deadline
    """

    complete: dict[str, None] = field(default_factory=dict)
    preferred_longer: dict[tuple[str, ...], dict[str, None]] = field(default_factory=dict)
    at_partition_end: dict[str, None] = field(default_factory=dict)
    negated: dict[str, None] = field(default_factory=dict)
    at_deadline: bool = False

    @classmethod
    def of(cls, automaton: RowAutomaton) -> _MatchEnds:
        ends = cls()
        for state in range(automaton.start + 1):
            name = "" if state == automaton.start else name_text(automaton.names[automaton.variables[state]])
            continuing: dict[str, None] = {}
            for target, guards, unless in automaton.edges_of(state):
                if target != ACCEPT:
                    continuing[name_text(automaton.names[automaton.variables[target]])] = None
                elif guards & AT_DEADLINE:
                    ends.at_deadline = True
                elif guards & AT_END:
                    ends.at_partition_end[name] = None
                else:
                    ends.negated |= dict.fromkeys(name_text(automaton.names[variable]) for variable in unless)
                    if continuing:
                        ends.preferred_longer.setdefault(tuple(continuing), {})[name] = None
                    elif not unless:
                        ends.complete[name] = None
        return ends


def emission_words(clause: Clause, automaton: RowAutomaton) -> Iterator[str]:
    """When a match is emitted on a stream, one line for each case.

    >>> from asterism.row_patterns.automaton import compiled_pattern
    >>> from asterism.row_patterns.clause.reading import read
    >>> clause = read("PATTERN (A B+) WITHIN INTERVAL '1' HOUR")
    >>> for line in emission_words(clause, compiled_pattern(clause)):
    ...     print(line)
    after B: with the first row that does not continue the match with B, because a longer match is preferred
    at the latest when the watermark has passed INTERVAL '1' HOUR after its first row
    """
    ends = _MatchEnds.of(automaton)
    if any(ends.complete):
        yield f"as soon as the row for {either([name for name in ends.complete if name])} is there"
    if "" in ends.complete:
        yield "an empty match: as soon as its row is there"
    for longer, names in ends.preferred_longer.items():
        after = [f"after {either([name for name in names if name])}"] if any(names) else []
        empty = ["an empty match"] if "" in names else []
        what = " or ".join([*after, *empty])
        until = f"with the first row that does not continue the match with {either(longer)}"
        yield f"{what}: {until}, because a longer match is preferred"
    if ends.negated:
        yield f"with the next row, if that is not {either(list(ends.negated))}; or when there is no next row"
    if ends.at_deadline:
        yield f"for a row that does not come: when the watermark has passed {_within_text(clause)} after the first row"
    if ends.at_partition_end:
        yield "at the end of the input, because of $"
    if _alternative_may_wait(automaton):
        yield "if a preferred alternative is still possible: when it no longer is"
    if _reads_next(clause):
        yield "NEXT waits for the rows that it reads"
    if clause.timeouts:
        yield f"a match that times out: when the watermark has passed {_within_text(clause)} after its first row"
    if clause.skip.to is SkipTo.NO_SKIP:
        yield "all matches that begin at a row: when no further match can begin at it"
    if clause.within is not None:
        yield f"at the latest when the watermark has passed {_within_text(clause)} after its first row"
    elif any(isinstance(node, Quantified) and node.most is None for node in clause.pattern.walk()):
        yield "without WITHIN, a search can wait for any number of rows, up to max_rows"


def _within_text(clause: Clause) -> str:
    return printable(clause.within.text.strip()) if clause.within is not None else ""


def _reads_next(clause: Clause) -> bool:
    sources = [definition.condition for definition in clause.definitions]
    sources += [measure.expression for measure in clause.measures]
    for source in sources:
        try:
            tokens = tokenize(source.text, "expression", len(source.text))
        except ExpressionError:  # reported elsewhere
            continue
        words = [token.text.upper() for token in tokens]
        if ("NEXT", "(") in pairwise(words):
            return True
    return False


def _alternative_may_wait(automaton: RowAutomaton) -> bool:
    """Whether a path can be complete while a preferred one, over as many rows, is not."""
    if len(automaton.edges) > MAX_PAIRS // 10:
        return False
    edges = [automaton.edges_of(state) for state in range(automaton.start + 1)]
    targets = [[target for target, _, _ in of_state if target != ACCEPT] for of_state in edges]
    accepts = [any(target == ACCEPT for target, _, _ in of_state) for of_state in edges]
    seen: dict[tuple[int, int], None] = {}
    for of_state in targets:
        pairs = ((a, b) for n, b in enumerate(of_state) for a in of_state[:n] if a != b)
        seen |= dict.fromkeys(islice(pairs, MAX_PAIRS // 10))
    stack, steps = list(seen), 0
    while stack:
        preferred, other = stack.pop()
        if accepts[other] and not accepts[preferred]:
            return True
        for a in targets[preferred]:
            for b in targets[other]:
                steps += 1
                if steps > MAX_PAIRS:
                    return False
                if a != b and (a, b) not in seen:
                    seen[a, b] = None
                    stack.append((a, b))
    return False
