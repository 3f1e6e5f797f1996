"""Compiles a pattern to an automaton without empty transitions, whose edges are ordered by preference.

See ``docs/decisions/0041-row-patterns.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.errors import ExpressionSyntaxError, printable
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

MAX_EDGES = 200_000
ACCEPT = -1
"""The target of an edge to a complete match."""
AT_START, AT_END = 1, 2
"""Conditions of an edge, as bits: it leads from the start of the partition, or the row before it is the last one."""


@dataclass(frozen=True, slots=True)
class RowAutomaton:
    """To be in a state is to have taken a row for it. The last state is the start, which has taken none.

    :ivar variables: for each state but the start, the number of its variable
    :ivar excluded: for each state but the start, whether its row is excluded from the output
    :ivar edges: rows (target state or ACCEPT, AT_START and AT_END, a variable whose condition the next row must not satisfy or
        -1), by state, the preferred first
    :ivar first_edge: the edges of state *s* are ``first_edge[s]:first_edge[s + 1]``
    """

    names: tuple[str, ...]
    variables: Ints
    excluded: Mask
    edges: Ints
    first_edge: Ints

    @property
    def start(self) -> int:
        return len(self.variables)

    @property
    def state_of(self) -> Ints:
        """For each variable, its first state: conditions are those of variables, so a row can be tested in any of its states."""
        return np.array([np.argmax(self.variables == variable) for variable in range(len(self.names))], np.int64)

    def __str__(self) -> str:
        return self.text()

    def edges_of(self, state: int) -> list[tuple[int, int, int]]:
        """The rows of :attr:`edges` of a state."""
        return [(a, b, c) for a, b, c in self.edges[self.first_edge[state] : self.first_edge[state + 1]].tolist()]

    def text(self, limit: int | None = None) -> str:
        """
        :param limit: the maximum number of states; further ones are counted

        >>> from asterism.row_patterns.reading import read
        >>> print(compiled_pattern(read("PATTERN (A B*? $ | {- C -})")))
        start: A0, C2
        A0: accept at the end, B1
        B1: accept at the end, B1
        C2 (excluded): accept
        """

        def name(state: int) -> str:
            return "start" if state == self.start else f"{printable(self.names[self.variables[state]])}{state}"

        lines = []
        shown = self.start if limit is None else min(self.start, limit - 1)
        for state in (self.start, *range(shown)):
            words = [
                ("accept" if target == ACCEPT else name(target))
                + (" at the start" if guards & AT_START else "")
                + (" at the end" if guards & AT_END else "")
                + (f" unless {printable(self.names[unless])}" if unless >= 0 else "")
                for target, guards, unless in self.edges_of(state)
            ]
            excluded = " (excluded)" if state < self.start and self.excluded[state] else ""
            lines.append(f"{name(state)}{excluded}: {', '.join(words) or 'nothing'}")
        if shown < self.start:
            lines.append(f"... and {self.start - shown} more states")
        return "\n".join(lines)


def compiled_pattern(clause: Clause) -> RowAutomaton:
    """The automaton of a clause that has been checked.

    :raises asterism.errors.ExpressionSyntaxError: it has too many edges
    """
    program = _Program(clause.variables)
    start = program.build(clause.pattern, program.accept, excluded=False)
    rows = [number for number, one in enumerate(program.instructions) if isinstance(one, _TakeRow)]
    # They were made from the end to the beginning.
    rows.reverse()
    state_of = {number: state for state, number in enumerate(rows)}
    takes = [program.instructions[number] for number in rows]
    edges: list[tuple[int, int, int]] = []
    first_edge = [0]
    for begin in [*(one.then for one in takes if isinstance(one, _TakeRow)), start]:
        try:
            edges += program.edges(begin, state_of)
        except _TwoConditionsError:
            problem = "in the dialect of Flink, a variable that may be left out cannot follow a greedy loop"
            hint = "a reluctant loop, as in B*?, or the standard's dialect"
            raise ExpressionSyntaxError.at(problem, clause.text, clause.pattern.start, hint) from None
        first_edge.append(len(edges))
        if len(edges) > MAX_EDGES:
            problem = f"the automaton of this pattern has more than {MAX_EDGES:,} edges"
            hint = "too many elements one after the other may be left out; A{,100} instead of A? A? A? ..."
            raise ExpressionSyntaxError.at(problem, clause.text, clause.pattern.start, hint)
    return RowAutomaton(
        clause.variables,
        np.array([one.variable for one in takes if isinstance(one, _TakeRow)], np.int64),
        np.array([one.excluded for one in takes if isinstance(one, _TakeRow)], np.bool_),
        np.array(edges, np.int64).reshape(-1, 3),
        np.array(first_edge, np.int64),
    )


# ---------------------------------------------------------------------------------------------------- instructions


@dataclass(slots=True)
class _TakeRow:
    variable: int
    excluded: bool
    then: int


@dataclass(slots=True)
class _Choice:
    """Go on with one of these instructions, the first is preferred."""

    options: Sequence[int]


@dataclass(slots=True)
class _Anchor:
    guard: int
    then: int


@dataclass(slots=True)
class _Unless:
    variable: int
    then: int


class _TwoConditionsError(Exception):
    """The next row must not satisfy the conditions of two variables."""


@dataclass(slots=True)
class _Accept:
    pass


@dataclass(slots=True)
class _Program:
    """Instructions, made from the end of the pattern to its beginning: each part is given the instruction that follows it."""

    names: Sequence[str]
    instructions: list[_TakeRow | _Choice | _Anchor | _Unless | _Accept] = field(default_factory=lambda: [_Accept()])
    accept: int = 0

    def add(self, instruction: _TakeRow | _Choice | _Anchor | _Unless) -> int:
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def build(self, node: PatternNode, then: int, *, excluded: bool) -> int:
        """The instruction with which *node* begins."""
        match node:
            case Variable():
                return self.add(_TakeRow(self.names.index(node.name), excluded, then))
            case EmptyPattern():
                return then
            case PartitionStart():
                return self.add(_Anchor(AT_START, then))
            case PartitionEnd():
                return self.add(_Anchor(AT_END, then))
            case NotNext():
                return self.add(_Unless(self.names.index(node.name), then))
            case Concatenation():
                for part in reversed(node.of):
                    then = self.build(part, then, excluded=excluded)
                return then
            case Alternation():
                # From the last to the first, so that states are numbered in the order of the text.
                options = [self.build(part, then, excluded=excluded) for part in reversed(node.of)]
                return self.add(_Choice(options[::-1]))
            case Exclusion():
                return self.build(node.of, then, excluded=True)
            case Permutation():
                return self._any_order(node, then, excluded)
            case Quantified():
                return self._repeated(node, then, excluded)
        raise TypeError(f"unknown node {node!r}")

    def _any_order(self, node: Permutation, then: int, excluded: bool) -> int:
        """An instruction for each set of parts that are still to come."""
        everything = (1 << len(node.of)) - 1
        begin = {0: then}
        for left in range(1, everything + 1):
            options = [
                self.build(part, begin[left & ~(1 << n)], excluded=excluded)
                for n, part in reversed(list(enumerate(node.of)))
                if left >> n & 1
            ]
            begin[left] = self.add(_Choice(options[::-1]))
        return begin[everything]

    def _repeated(self, node: Quantified, then: int, excluded: bool) -> int:
        node = simplified(node)

        def choice(more: int, enough: int) -> list[int]:
            return [more, enough] if node.greedy else [enough, more]

        copies = node.least
        if node.most is not None:
            enough = then
            for _ in range(node.most - node.least):
                then = self.add(_Choice(choice(self.build(node.of, then, excluded=excluded), enough)))
        else:
            loop = _Choice(())
            again = self.add(_TakeRow(0, False, 0))  # its number is needed before what it leads to
            self.instructions[again] = loop
            body = self.build(node.of, again, excluded=excluded)
            loop.options = choice(body, then)
            # A repetition of the loop must take a row, one of the first *least* need not.
            if node.least and not takes_no_row(node.of):
                copies, then = node.least - 1, body
            else:
                then = again
        for _ in range(copies):
            then = self.build(node.of, then, excluded=excluded)
        return then

    def edges(self, begin: int, state_of: dict[int, int]) -> list[tuple[int, int, int]]:
        """The edges of a state after which the program goes on with instruction *begin*."""
        found: list[tuple[int, int, int]] = []
        seen: dict[int, list[tuple[int, int]]] = {}
        stack = [(begin, 0, -1)]
        while stack:
            number, guards, unless = stack.pop()
            if any(other & ~guards == 0 and without in (-1, unless) for other, without in seen.get(number, ())):
                continue  # a preferred way leads here, under no more conditions
            seen.setdefault(number, []).append((guards, unless))
            match self.instructions[number]:
                case _TakeRow():
                    found.append((state_of[number], guards, unless))
                case _Accept():
                    found.append((ACCEPT, guards, -1))
                    if not guards:
                        return found  # what follows is never preferred
                case _Anchor(guard, then):
                    stack.append((then, guards | guard, unless))
                case _Unless(variable, then):
                    if unless not in (-1, variable):
                        raise _TwoConditionsError
                    stack.append((then, guards, variable))
                case _Choice(options):
                    stack.extend((option, guards, unless) for option in reversed(options))
        return found


def simplified(node: Quantified) -> Quantified:
    """``(A*)+`` is ``A*``, and so on: what a greedy loop around a greedy loop adds, the inner one prefers already.

    >>> str(simplified(Quantified(Quantified(Variable("A"), 0, None), 1, None)))
    'A*'
    """
    of = simplified(node.of) if isinstance(node.of, Quantified) else node.of
    loops = node.most is None and node.greedy and isinstance(of, Quantified) and of.most is None and of.greedy
    if loops and isinstance(of, Quantified) and of.least == 0 and not takes_no_row(of.of):
        return of
    return replace(node, of=of)


def takes_no_row(node: PatternNode) -> bool:
    """Whether a part of a pattern can match without a row."""
    match node:
        case Variable():
            return False
        case Alternation():
            return any(map(takes_no_row, node.of))
        case Quantified():
            return node.least == 0 or takes_no_row(node.of)
    return all(map(takes_no_row, node.parts))
