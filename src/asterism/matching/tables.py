"""Converts an automaton to flat arrays for the kernel, and analyzes its guards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.columns.time import micros
from asterism.matching.instructions import Programs
from asterism.matching.plan import MatchPlan
from asterism.patterns.automaton import (
    Action,
    Always,
    Both,
    Edge,
    Either,
    Guard,
    Nfa,
    NfaState,
    NfaStateKind,
    Not,
    Test,
    conditions_in,
    ignored_edges,
    proceeding,
)
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import SkipKind

if TYPE_CHECKING:
    from asterism.matching.kernels import Tables

BITS_PER_WORD = 63


def tables_of(plan: MatchPlan, evaluation: Evaluation, programs: Programs) -> Tables:
    """The tables of the automaton of *plan* alone."""
    from asterism.matching import kernels

    nfa, skip, limits = plan.nfa, plan.skip, plan.limits
    stages = {name: number for number, name in enumerate(nfa.stages)}
    guards: list[tuple[int, int, int]] = []
    guard_at: dict[Guard, int] = {}
    states: list[tuple[int, ...]] = []
    edges: list[tuple[int, ...]] = []
    summaries = evaluation.summaries(nfa.states)
    for state in nfa.states:
        first_edge = len(edges)
        for edge in state.edges:
            if edge.guard not in guard_at:
                guard_at[edge.guard] = _branches(edge.guard, kernels.HOLDS, kernels.FAILS, guards)
            care_want = evaluation.bits_only(edge.guard)
            where = edge.action, edge.target.number, guard_at[edge.guard], stages.get(state.stage, -1), micros(edge.gap)
            edges.append((*where, *(care_want or (0, 0)), int(care_want is not None)))
        summary = summaries[state]
        relevant, plain = summary.relevant_conditions(state, plan.semantics), int(summary.plain)
        ignored = 0 if plan.semantics is Semantics.FLINK else summary.ignored
        proceeds = int(any(edge.action is Action.PROCEED for edge in state.edges))
        states.append((state.kind, micros(state.gap), relevant, first_edge, len(edges), plain, ignored, proceeds))
    spans = [
        (0, 0) if number < 0 else (programs.starts[number], programs.ends[number]) for number in evaluation.program
    ]
    automaton = (
        0,
        nfa.start.number,
        micros(nfa.window),
        list(SkipKind).index(skip.kind),
        stages.get(skip.stage or "", -1),
        int(skip.throw_on_miss),
        limits.partial_matches or 0,
        kernels.UNLIMITED if limits.steps is None else limits.steps,
        kernels.UNLIMITED if limits.held is None else limits.held,
        0,
        len(nfa.preferred),
    )
    return kernels.Tables(
        states=_rows(states, 8),
        edges=_rows(edges, 8),
        guards=_rows(guards, 3),
        conditions=_rows([(bit, *span) for bit, span in zip(evaluation.bit, spans, strict=True)], 3),
        ops=_rows(programs.ops, 6),
        automata=np.array([automaton], np.int64),
        preferred=_rows([(stages[name],) for name in nfa.preferred], 1),
        flink=plan.semantics is Semantics.FLINK,
        drop=limits.drop,
    )


def _rows(rows: Sequence[Sequence[int]], columns: int) -> Ints:
    return np.array(rows, np.int64).reshape(-1, columns)


def _branches(guard: Guard, if_true: int, if_false: int, rows: list[tuple[int, int, int]]) -> int:
    """Append the rows of a guard: a condition and the rows to continue with. Returns the first row of the guard."""
    match guard:
        case Always():
            return if_true
        case Test(condition):
            rows.append((condition, if_true, if_false))
            return len(rows) - 1
        case Not(inner):
            return _branches(inner, if_false, if_true, rows)
        case Both(left, right):
            return _branches(left, _branches(right, if_true, if_false, rows), if_false, rows)
        case Either(left, right):
            return _branches(left, if_true, _branches(right, if_true, if_false, rows), rows)
    raise AssertionError(guard)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How each condition of an automaton is evaluated: its bit, and the number of its program, or -1."""

    bit: Sequence[int]
    program: Sequence[int]
    _summaries: dict[tuple[NfaState, ...], dict[NfaState, StateSummary]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def reads_event_only(self, guard: Guard) -> bool:
        """Whether a guard depends on the current event alone."""
        return all(self.program[condition] < 0 for condition in conditions_in(guard))

    def holding(self, guard: Guard, bits: Ints) -> Mask:
        """For each event whether it satisfies a guard that depends on the current event alone; *bits*: a row of words each."""
        match guard:
            case Test(condition):
                bit = self.bit[condition]
                is_set: Mask = (bits[:, bit // BITS_PER_WORD] >> (bit % BITS_PER_WORD)) & 1 == 1
                return is_set
            case Not(inner):
                return ~self.holding(inner, bits)
            case Both(left, right):
                return self.holding(left, bits) & self.holding(right, bits)
            case Either(left, right):
                return self.holding(left, bits) | self.holding(right, bits)
        return np.ones(len(bits), np.bool_)

    def bits_only(self, guard: Guard) -> tuple[int, int] | None:
        """(a mask of the bits that the guard tests, their required values) if the guard tests nothing else."""
        match guard:
            case Always():
                return 0, 0
            case Test(condition) | Not(Test(condition)):
                bit = self.bit[condition]
                if self.program[condition] >= 0 or not 0 <= bit < BITS_PER_WORD:
                    return None
                return 1 << bit, 1 << bit if isinstance(guard, Test) else 0
            case Both(left, right):
                a, b = self.bits_only(left), self.bits_only(right)
                if a is None or b is None or (a[0] & b[0] & (a[1] ^ b[1])):
                    return None
                return a[0] | b[0], a[1] | b[1]
        return None

    def required_bits(self, guard: Guard) -> frozenset[int] | None:
        """Bits of which an event must have one to satisfy the guard; None: no bits are known."""
        match guard:
            case Test(condition) if self.bit[condition] >= 0:
                return frozenset([self.bit[condition]])
            case Both(left, right):
                known = [bits for bits in map(self.required_bits, (left, right)) if bits is not None]
                return min(known, key=len, default=None)
            case Either(left, right):
                a, b = self.required_bits(left), self.required_bits(right)
                return None if a is None or b is None else a | b
        return None

    def summaries(self, states: Sequence[NfaState]) -> dict[NfaState, StateSummary]:
        """The summary of each state, including the states that its PROCEED edges lead to."""
        key = tuple(states)
        if key not in self._summaries:
            self._summaries[key] = self._summarized(key)
        return self._summaries[key]

    def _summarized(self, states: Sequence[NfaState]) -> dict[NfaState, StateSummary]:
        summaries: dict[NfaState, StateSummary] = {}
        for state in _targets_first(states):
            summary = StateSummary(quiet=state.kind is not NfaStateKind.STOP, ignored=ignored_edges(state))
            summaries[state] = summary
            for edge in state.edges:
                summary.plain &= self.bits_only(edge.guard) is not None
                for bit in (self.bit[condition] for condition in conditions_in(edge.guard)):
                    if bit >= 0:
                        summary.bits |= 1 << (bit % BITS_PER_WORD)
                low, high = self._if_nothing_is_met(edge.guard)
                summary.quiet &= low == high and edge.gap is None
                if edge.action is Action.PROCEED:
                    beyond = summaries[edge.target]
                    summary.plain &= beyond.plain
                    summary.bits |= beyond.bits
                    summary.quiet &= beyond.quiet or not low
                if low:
                    proceeds = edge.action is Action.PROCEED
                    summary.n_followed += beyond.n_followed if proceeds else 1
                    summary.followed = beyond.followed or summary.followed if proceeds else edge
                    summary.passes &= beyond.passes if proceeds else edge.action is Action.IGNORE
        return summaries

    def _if_nothing_is_met(self, guard: Guard) -> tuple[bool, bool]:
        """Bounds of the value of a guard for an event whose condition bits are all unset."""
        match guard:
            case Test(condition):
                if self.bit[condition] >= 0:
                    return False, False
                return self.program[condition] < 0, True
            case Not(inner):
                low, high = self._if_nothing_is_met(inner)
                return not high, not low
            case Both(left, right) | Either(left, right):
                a, b = self._if_nothing_is_met(left), self._if_nothing_is_met(right)
                return (a[0] and b[0], a[1] and b[1]) if isinstance(guard, Both) else (a[0] or b[0], a[1] or b[1])
        return True, True

    def can_skip_events(self, states: Sequence[NfaState]) -> bool:
        """Whether events that satisfy no condition can be removed in the default semantics: no stage is strict."""
        return all(
            summary.relevant_conditions(state, Semantics.DEFAULT) >= 0
            for state, summary in self.summaries(states).items()
            if state.kind not in (NfaStateKind.STOP, NfaStateKind.FINAL)
        )


def longest_match(nfa: Nfa) -> int | None:
    """How many visible events a partial match can live after its first one; None: any number, because it can stay in a state."""
    sources: dict[NfaState, list[NfaState]] = {state: [] for state in nfa.states}
    open_edges = dict.fromkeys(nfa.states, 0)
    for state in nfa.states:
        if state is not nfa.start and state.kind not in (NfaStateKind.STOP, NfaStateKind.FINAL):
            open_edges[state] = len(state.edges)
            for edge in state.edges:
                sources[edge.target].append(state)
    open_edges[nfa.start] = 1  # a partial match that returns there can live on
    longest: dict[NfaState, int] = {}
    todo = [state for state, count in open_edges.items() if not count]
    while todo:
        state = todo.pop()
        is_end = state.kind in (NfaStateKind.STOP, NfaStateKind.FINAL)
        ways = (longest[e.target] + (e.action is not Action.PROCEED) for e in (() if is_end else state.edges))
        longest[state] = max(ways, default=0)
        for source in sources[state]:
            open_edges[source] -= 1
            if not open_edges[source]:
                todo.append(source)
    return None if len(longest) < len(nfa.states) - 1 else max(longest.values())


MAX_STATES, MAX_WAYS = 50, 4
"""Larger automata have no :class:`Completion`, so that the work of an event for a few partial matches is within its limit."""


@dataclass(frozen=True, slots=True)
class Completion:
    """How matches are completed.

    :param bits: condition bits of which an event must have one to complete a match
    :param at_once: whether an event that begins a partial match can complete a match
    :param ways: the maximum number of partial matches that an event makes of one
    """

    bits: frozenset[int]
    at_once: bool
    ways: int


def completion(nfa: Nfa, evaluation: Evaluation, semantics: Semantics) -> Completion | None:
    """None: matches can be completed by time, or by events that satisfy no condition, or the automaton is large."""
    if semantics is Semantics.FLINK or len(nfa.states) > MAX_STATES:
        return None
    ways: dict[NfaState, int] = {}
    ends: dict[NfaState, bool] = {}
    """whether PROCEED edges lead to the final state"""
    for state in _targets_first(nfa.states):
        if state.kind in (NfaStateKind.PENDING, NfaStateKind.LAST):
            return None
        on = [edge.target for edge in state.edges if edge.action is Action.PROCEED]
        ways[state] = len(state.edges) - len(on) + sum(ways[target] for target in on)
        ends[state] = state.kind is NfaStateKind.FINAL or any(ends[target] for target in on)
    completing = [(state, edge) for state in nfa.states for edge in state.edges if ends[edge.target]]
    completing = [(state, edge) for state, edge in completing if edge.action is not Action.PROCEED]
    required = [evaluation.required_bits(edge.guard) for _, edge in completing]
    bits = frozenset[int]().union(*(bits_of_edge for bits_of_edge in required if bits_of_edge is not None))
    if None in required or max(ways.values()) > MAX_WAYS:
        return None
    from_start = proceeding(nfa.start)
    return Completion(bits, any(state in from_start for state, _ in completing), max(ways.values()))


@dataclass(slots=True)
class StateSummary:
    """The possible effects of an event on a partial match in a state, including PROCEED edges."""

    plain: bool = True
    """whether guards test condition bits only"""
    bits: int = 0
    """the bits of the conditions in guards"""
    quiet: bool = True
    """whether the effect of an event that satisfies none of these conditions is certain and does not end the partial match"""
    n_followed: int = 0
    """the number of edges that such an event follows, if that is certain"""
    followed: Edge | None = None
    """one of them"""
    passes: bool = True
    """whether all of them are IGNORE edges"""
    ignored: int = 0
    """see :func:`~asterism.patterns.automaton.ignored_edges`"""

    def relevant_conditions(self, state: NfaState, semantics: Semantics) -> int:
        """A mask of the conditions of which an event must satisfy one to matter to a partial match in *state*; -1: all matter."""
        if not self.quiet or not self.passes:
            return -1
        stays = self.n_followed == 1 and self.followed is not None and self.followed.target is state
        if semantics is not Semantics.FLINK:
            stays |= 0 < self.n_followed == self.ignored
        return self.bits if stays or state.kind is NfaStateKind.START else -1


def _targets_first(states: Sequence[NfaState]) -> list[NfaState]:
    """The states, with the targets of PROCEED edges before their sources; these edges form no cycle."""
    order = TopologicalSorter(
        {state: [edge.target for edge in state.edges if edge.action is Action.PROCEED] for state in states}
    )
    return list(order.static_order())
