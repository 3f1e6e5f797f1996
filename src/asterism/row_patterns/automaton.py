"""Compiles a pattern to an automaton without empty transitions, whose edges are ordered by preference.

See ``docs/row_pattern_search.md``; docs/decisions/0097 for absence and timeouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import comb, factorial
from typing import NamedTuple, NoReturn

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.errors import ExpressionSyntaxError, printable
from asterism.row_patterns.clause import clause as syntax

MAX_EDGES = 200_000
MAX_NEGATED = 16
"""Maximum number of variables that a row must not satisfy."""
MAX_WAYS = 64
"""Maximum number of combinations of such variables and of anchors with which paths from a state lead to an instruction."""
ACCEPT = -1
"""The target of an edge to a complete match."""
_MANY = 12
"""A permutation with this number of parts has more orders than a pattern may have elements."""
AT_START, AT_END, AT_DEADLINE = 1, 2, 4
"""Conditions of an edge, as bits: it leads from the start of the partition; the row before it is the last one of the partition,
or the last one that WITHIN allows.
"""
_NEXT_TOO = 8
"""While edges are made: the conditions on the next row apply even if the match ends before it."""
Edge = tuple[int, int, tuple[int, ...]]
"""(target, guards, variables whose conditions the next row must not satisfy); see :class:`RowAutomaton`."""


@dataclass(frozen=True, slots=True)
class RowAutomaton:
    """A state is reached by taking a row for its variable. The last state is the start, which is reached without a row. A
    variable that takes no row has a state to which no edge leads, so that rows can be tested in it.

    :ivar variables: for each state but the start, the number of its variable
    :ivar excluded: for each state but the start, whether its row is excluded from the output
    :ivar edges: rows (target state or ACCEPT; AT_START, AT_END and AT_DEADLINE; a variable whose condition the next row must not
        satisfy, or -1), by state, the preferred edge first. For ACCEPT, the next row is the next one that WITHIN allows.
    :ivar also: for each edge, further variables whose conditions the next row must not satisfy, or -1
    :ivar first_edge: the edges of state *s* are ``first_edge[s]:first_edge[s + 1]``
    """

    names: tuple[str, ...]
    variables: Ints
    excluded: Mask
    edges: Ints
    also: Ints
    first_edge: Ints

    @property
    def start(self) -> int:
        return len(self.variables)

    @property
    def needs_depth(self) -> bool:
        """Whether only the depth-first search supports the automaton: the end of a match depends on rows that are not in it, or
        on the time that has passed; or a row must not satisfy several variables.
        """
        ends = self.edges[self.edges[:, 0] == ACCEPT]
        return bool((ends[:, 1] & AT_DEADLINE).any() or (ends[:, 2] >= 0).any() or self.also.shape[1])

    @property
    def state_of(self) -> Ints:
        """The first state of each variable. A row can be tested in any state of a variable, because all have its condition."""
        return np.array([np.argmax(self.variables == variable) for variable in range(len(self.names))], np.int64)

    def __str__(self) -> str:
        return self.text()

    def edges_of(self, state: int) -> list[Edge]:
        """The edges of a state."""
        of_state = slice(self.first_edge[state], self.first_edge[state + 1])
        unless = np.column_stack([self.edges[of_state, 2:], self.also[of_state]]).tolist()
        return [
            (target, guards, tuple(variable for variable in variables if variable >= 0))
            for (target, guards), variables in zip(self.edges[of_state, :2].tolist(), unless, strict=True)
        ]

    def text(self, limit: int | None = None) -> str:
        """
        :param limit: the maximum number of states; further ones are counted

        >>> from asterism.row_patterns.clause.reading import read
        >>> print(compiled_pattern(read("PATTERN (A B*? $ | {- C -})")))
        start: A0, C2
        A0: accept at the end, B1
        B1: accept at the end, B1
        C2 (excluded): accept
        """

        def name(state: int) -> str:
            return "start" if state == self.start else f"{printable(self.names[self.variables[state]])}{state}"

        lines = []
        reached = {self.start, *self.edges[:, 0].tolist()}
        states = [state for state in range(self.start) if state in reached or self.edges_of(state)]
        shown = len(states) if limit is None else min(len(states), limit - 1)
        for state in (self.start, *states[:shown]):
            words = [
                ("accept" if target == ACCEPT else name(target))
                + (" at the start" if guards & AT_START else "")
                + (" at the end" if guards & AT_END else "")
                + (" at the deadline" if guards & AT_DEADLINE else "")
                + (f" unless {' or '.join(printable(self.names[variable]) for variable in unless)}" if unless else "")
                for target, guards, unless in self.edges_of(state)
            ]
            excluded = " (excluded)" if state < self.start and self.excluded[state] else ""
            lines.append(f"{name(state)}{excluded}: {', '.join(words) or 'nothing'}")
        if shown < len(states):
            lines.append(f"... and {len(states) - shown} more states")
        return "\n".join(lines)


def compiled_pattern(clause: syntax.Clause) -> RowAutomaton:
    """The automaton of a clause that has been checked.

    :raises asterism.errors.ExpressionSyntaxError: it has too many edges
    """
    program = _Program(clause)
    start = program.build(clause.pattern, program.accept, excluded=False)
    numbered = [
        (number, instruction)
        for number, instruction in enumerate(program.instructions)
        if isinstance(instruction, _TakeRow)
    ]
    # Instructions are made from the end to the beginning; states are numbered in the order of the text.
    numbered.reverse()
    state_of = {number: state for state, (number, _) in enumerate(numbered)}
    rows = [instruction for _, instruction in numbered]
    tested = sorted({*range(len(clause.variables))} - {row.variable for row in rows})
    begins = [*(row.then for row in rows), *(None for _ in tested), start]
    edges, first_edge = _edges_of_states(program, begins, state_of)
    unless = np.full((len(edges), max([1, *(len(variables) for _, _, variables in edges)])), -1, np.int64)
    for number, (_, _, variables) in enumerate(edges):
        unless[number, : len(variables)] = variables
    targets = np.array([(target, guards) for target, guards, _ in edges], np.int64).reshape(-1, 2)
    automaton = RowAutomaton(
        clause.variables,
        np.array([*(row.variable for row in rows), *tested], np.int64),
        np.array([*(row.excluded for row in rows), *(False for _ in tested)], np.bool_),
        np.column_stack([targets, unless[:, :1]]),
        np.ascontiguousarray(unless[:, 1:]),
        np.array(first_edge, np.int64),
    )
    if clause.within is None and (automaton.edges[:, 1] & AT_DEADLINE).any():
        absent = next(node for node in clause.pattern.walk() if isinstance(node, syntax.NotNext))
        problem = "that a row does not follow, however late, is known only with a deadline: WITHIN is missing"
        hint = "PATTERN (A {- X*? -} [^B]) WITHIN INTERVAL '1' HOUR"
        raise ExpressionSyntaxError.at(problem, clause.text, absent.start, hint)
    return automaton


def _edges_of_states(
    program: _Program, begins: Sequence[int | None], state_of: Mapping[int, int]
) -> tuple[list[Edge], list[int]]:
    """(the edges of all states, :attr:`RowAutomaton.first_edge`)

    :param begins: for each state, the instruction after it; None: the state has no edges
    :param state_of: the state of each instruction that takes a row
    """
    edges: list[Edge] = []
    first_edge = [0]
    for begin in begins:
        edges += [] if begin is None else program.edges(begin, state_of)
        first_edge.append(len(edges))
        if len(edges) > MAX_EDGES:
            problem = f"the automaton of this pattern has more than {MAX_EDGES:,} edges"
            program.fail(
                problem, "too many elements one after the other may be left out; A{,100} instead of A? A? A? ..."
            )
    return edges, first_edge


# ---------------------------------------------------------------------------------------------------- instructions


@dataclass(slots=True)
class _TakeRow:
    variable: int
    excluded: bool
    then: int


@dataclass(slots=True)
class _Choice:
    """Continue with one of these instructions; the first is preferred."""

    options: Sequence[int]


@dataclass(slots=True)
class _UnboundedLoop:
    """Repeat any number of times. A repetition that takes no row is the last one."""

    repetition: int
    then: int
    greedy: bool


@dataclass(slots=True)
class _Anchor:
    guard: int
    then: int


@dataclass(slots=True)
class _Unless:
    """
    :ivar always: the condition applies even if the match ends here
    """

    variable: int
    then: int
    always: bool


class _Path(NamedTuple):
    """A path through the instructions that takes no row.

    :ivar number: the next instruction
    :ivar guards: AT_START, AT_END, AT_DEADLINE and _NEXT_TOO
    :ivar unless: variables whose conditions the next row must not satisfy
    :ivar begun: the loops of which a repetition has begun and has not taken a row yet
    """

    number: int
    guards: int = 0
    unless: tuple[int, ...] = ()
    begun: frozenset[int] = frozenset()


@dataclass
class _Program:
    """Instructions, made from the end of the pattern to its beginning: each part is given the instruction that follows it."""

    clause: syntax.Clause
    instructions: list[_TakeRow | _Choice | _UnboundedLoop | _Anchor | _Unless | None] = field(
        default_factory=lambda: [None]
    )
    """None: the match is complete"""
    accept: int = 0
    untils: list[str] = field(default_factory=list)
    """the variables of ``{C}`` of the loops around the part that is built"""

    @cached_property
    def names(self) -> Sequence[str]:
        return self.clause.variables

    def fail(self, problem: str, hint: str) -> NoReturn:
        raise ExpressionSyntaxError.at(problem, self.clause.text, self.clause.pattern.start, hint)

    def add(self, instruction: _TakeRow | _Choice | _UnboundedLoop | _Anchor | _Unless) -> int:
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def build(self, node: syntax.PatternNode, then: int, *, excluded: bool) -> int:
        """The instruction with which *node* begins."""
        match node:
            case syntax.Variable():
                return self._row(node.name, excluded, then)
            case syntax.EmptyPattern():
                return then
            case syntax.PartitionStart():
                return self.add(_Anchor(AT_START, then))
            case syntax.PartitionEnd():
                return self.add(_Anchor(AT_END, then))
            case syntax.NotNext():
                return self.add(_Unless(self.names.index(node.name), then, not node.implied))
            case syntax.Concatenation():
                following: syntax.PatternNode | None = None
                for part in reversed(node.of):
                    gap = syntax.gap_of(part)
                    if gap is not None and isinstance(following, syntax.NotNext):
                        then = self._gap(gap, following, then)
                    else:
                        then = self.build(part, then, excluded=excluded)
                    following = part
                return then
            case syntax.Alternation():
                # From the last to the first, so that states are numbered in the order of the text.
                options = [self.build(part, then, excluded=excluded) for part in reversed(node.of)]
                return self.add(_Choice(options[::-1]))
            case syntax.Exclusion():
                return self.build(node.of, then, excluded=True)
            case syntax.Permutation():
                return self._any_order(node, then, excluded)
            case syntax.Quantified():
                return self._repeated(node, then, excluded)
        raise TypeError(f"unknown node {node!r}")

    def _any_order(self, node: syntax.Permutation, then: int, excluded: bool) -> int:
        """The alternation of all orders, in lexicographic order of the places of the parts.

        Orders that begin with the same part share it if it can match in only one way. Otherwise, the choice between these orders
        would come after the choice of how the part matches, but it must come before.
        """
        one_way = [matches_in_one_way(part) for part in node.of]
        known: dict[tuple[int, bool], list[int]] = {}

        def orders(left: int, separate: bool) -> list[int]:
            """The orders of some parts, as alternatives."""
            if left == 0:
                return [then]
            key = left, separate and left.bit_count() > 1
            if key not in known:
                options: list[int] = []
                for n, part in reversed(list(enumerate(node.of))):
                    if left >> n & 1:
                        shared = one_way[n] and not separate
                        rests = orders(left & ~(1 << n), not shared)
                        if shared and len(rests) > 1:
                            rests = [self.add(_Choice(rests))]
                        options += [self.build(part, rest, excluded=excluded) for rest in reversed(rests)]
                known[key] = options[::-1]
            return known[key]

        return self.add(_Choice(orders((1 << len(node.of)) - 1, False)))

    def _row(self, name: str, excluded: bool, then: int) -> int:
        """A row for a variable."""
        row = self.add(_TakeRow(self.names.index(name), excluded, then))
        for until in self.untils:
            row = self.add(_Unless(self.names.index(until), row, True))
        return row

    def _gap(self, gap: syntax.Quantified, absent: syntax.NotNext, then: int) -> int:
        """A gap without a row that satisfies *absent*. Instruction *then* tests the row after the gap. If no row follows, the gap
        continues up to the deadline.
        """
        assert isinstance(gap.of, syntax.Variable)
        loop = _Choice(())
        again = self.add(loop)
        row = self._row(gap.of.name, True, again)
        more = self.add(_Unless(self.names.index(absent.name), row, True))
        enough = self.add(_Anchor(AT_DEADLINE, then))
        loop.options = [more, enough] if gap.greedy else [enough, more]
        return again

    def _repeated(self, node: syntax.Quantified, then: int, excluded: bool) -> int:
        if node.until is not None:
            self.untils.append(node.until)
            begin = self._repeated(replace(node, until=None), then, excluded)
            self.untils.pop()
            return begin
        node = simplified(node)

        def choice(more: int, enough: int) -> list[int]:
            return [more, enough] if node.greedy else [enough, more]

        copies = node.least
        if node.most is not None:
            enough = then
            for _ in range(node.most - node.least):
                then = self.add(_Choice(choice(self.build(node.of, then, excluded=excluded), enough)))
        else:
            loop = _UnboundedLoop(then, then, node.greedy)
            again = self.add(loop)
            body = self.build(node.of, again, excluded=excluded)
            loop.repetition = body
            # A repetition that takes no row ends the loop, except among the first *least* repetitions.
            if node.least and not takes_no_row(node.of):
                copies, then = node.least - 1, body
            else:
                then = again
        for _ in range(copies):
            then = self.build(node.of, then, excluded=excluded)
        return then

    def edges(self, begin: int, state_of: Mapping[int, int]) -> list[Edge]:
        """The edges of a state after which the program continues with instruction *begin*."""
        edges: list[Edge] = []
        seen: dict[tuple[int, frozenset[int]], list[tuple[int, tuple[int, ...]]]] = {}
        stack = [_Path(begin)]
        while stack:
            number, guards, unless, begun = path = stack.pop()
            instruction = self.instructions[number]
            if instruction is None or isinstance(instruction, _TakeRow):
                begun = frozenset()  # later instructions do not depend on it
            ways = seen.setdefault((number, begun), [])
            if any(other & ~guards == 0 and {*without} <= {*unless} for other, without in ways):
                continue  # a preferred path leads to this instruction, under no more conditions
            if len(ways) == MAX_WAYS or len(unless) > MAX_NEGATED:
                problem = (
                    f"a row must not satisfy too many variables (limit {MAX_NEGATED}), or too many combinations of them"
                )
                self.fail(problem, "[^A] with OR in the condition of A, instead of several")
            ways.append((guards, unless))
            if isinstance(instruction, _TakeRow):
                edges.append((state_of[number], guards & (AT_START | AT_END), unless))
            elif instruction is None:
                # At the deadline there is no next row.
                tests_next = guards & _NEXT_TOO and not guards & AT_DEADLINE
                edges.append((ACCEPT, guards & ~_NEXT_TOO, unless if tests_next else ()))
                if not guards and self.clause.skip.to is not syntax.SkipTo.NO_SKIP:
                    break  # all other paths are less preferred
            else:
                stack.extend(reversed(self._continued(path, instruction)))
        return edges

    def _continued(self, path: _Path, instruction: _Choice | _UnboundedLoop | _Anchor | _Unless) -> list[_Path]:
        """The paths after an instruction that takes no row, the preferred path first."""
        number, guards, unless, begun = path
        match instruction:
            case _Choice(options):
                return [_Path(option, guards, unless, begun) for option in options]
            case _UnboundedLoop(repetition, then, greedy):
                leave = _Path(then, guards, unless, begun - {number})
                if number in begun:
                    return [leave]
                repeat = _Path(repetition, guards, unless, begun | {number})
                return [repeat, leave] if greedy else [leave, repeat]
            case _Anchor(guard, then):
                return [_Path(then, guards | guard, unless, begun)]
            case _Unless(variable, then, always):
                if not always and unless and not guards & _NEXT_TOO and variable not in unless:
                    problem = "in the dialect of Flink, a variable that may be left out cannot follow a greedy loop"
                    self.fail(problem, "a reluctant loop, as in B*?, or the standard's dialect")
                negated = tuple(sorted({*unless, variable}))
                return [_Path(then, guards | (_NEXT_TOO if always else 0), negated, begun)]


def simplified(node: syntax.Quantified) -> syntax.Quantified:
    """``(A*)+`` is ``A*``, and so on: a greedy loop around a greedy loop adds no match that the inner loop does not prefer.

    >>> str(simplified(syntax.Quantified(syntax.Quantified(syntax.Variable("A"), 0, None), 1, None)))
    'A*'
    """
    if node.until is not None:
        return node
    of = simplified(node.of) if isinstance(node.of, syntax.Quantified) else node.of
    loops = node.most is None and node.greedy and isinstance(of, syntax.Quantified) and of.most is None and of.greedy
    if loops and isinstance(of, syntax.Quantified) and of.least == 0 and not takes_no_row(of.of):
        return of
    return replace(node, of=of)


def takes_no_row(node: syntax.PatternNode) -> bool:
    """Whether a part of a pattern can match without a row."""
    match node:
        case syntax.Variable():
            return False
        case syntax.Alternation():
            return any(map(takes_no_row, node.of))
        case syntax.Quantified():
            return node.least == 0 or takes_no_row(node.of)
    return all(map(takes_no_row, node.parts))


def matches_in_one_way(node: syntax.PatternNode) -> bool:
    """Whether a part of a pattern has at most one way to match from a given row on."""
    match node:
        case syntax.Alternation() | syntax.Permutation():
            return False
        case syntax.Quantified():
            return node.least == node.most and matches_in_one_way(node.of)
    return all(map(matches_in_one_way, node.parts))


def copies_of_parts(node: syntax.Permutation) -> list[int]:
    """How often the automaton contains each part of a permutation, or more than a pattern may have.

    >>> a, loop = syntax.Variable("A"), syntax.Quantified(syntax.Variable("A"), 1, None)
    >>> copies_of_parts(syntax.Permutation((a, a, a))), copies_of_parts(syntax.Permutation((loop, a, a)))
    ([4, 4, 4], [5, 4, 4])
    """
    in_one_way = [matches_in_one_way(part) for part in node.of]
    others = len(node.of) - 1
    several = in_one_way.count(False)
    if several == 0:
        return [1 << others] * len(node.of)  # once for each set of parts before it
    if others > _MANY:
        return [factorial(_MANY)] * len(node.of)
    # Once for each order of the parts behind it.
    separate = sum(comb(others, k) * factorial(k) for k in range(others + 1))
    # Before the first part that matches in several ways, once for each set of parts before it.
    before = range(several, others + 1)
    shared = (1 << max(others - several, 0)) - sum(comb(others - several, k - several) * factorial(k) for k in before)
    return [separate + shared if is_shared else separate for is_shared in in_one_way]
