"""The partial matches in the pages of a pattern, as rows for ``read_state``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.groups import offsets_of
from asterism.columns.time import END_OF_TIME, MOMENT, micros, moments
from asterism.errors import CheckpointMismatchError
from asterism.matching.page import Page
from asterism.operators.state.state_definition import UNKNOWN_COLUMNS, StateDefinition, keys_as_structs
from asterism.operators.stored_state import columns_of_events, kept_column
from asterism.patterns.automaton import Nfa, NfaStateKind

if TYPE_CHECKING:
    from asterism.matching.binding import BoundPattern

ACCEPTED = "accepted"
"""The column with the events."""


def described_automaton(nfa: Nfa) -> dict[str, Any]:
    """The part of an automaton that :func:`partial_matches` needs, as JSON: its stages; of each state the stage that it waits
    for, its kind and its gap; its window. Times are microseconds.
    """
    states = [[state.stage or state.name, int(state.kind), micros(state.gap)] for state in nfa.states]
    return {"stages": list(nfa.stages), "states": states, "window": micros(nfa.window)}


CHANGE = "change"
"""In the details of a definition: what a change of the pattern needs, by :func:`described_pattern`."""
_MAX_EDGES = 20_000


def described_pattern(pattern: BoundPattern, identity: Callable[[Any], str]) -> dict[str, Any]:
    """What the state of a pattern needs, beside its automaton, to be continued with another pattern
    (:mod:`asterism.changes.partial_matches`), as JSON: :func:`described_edges`, what the condition bits and the computed
    columns of events are, and what keys remember.

    :param identity: of a function in Python
    """
    return {
        **described_edges(pattern.nfa),
        "bits": pattern.texts_of_bits(identity),
        "computed": pattern.computed_texts,
        **described_memory(pattern),
        "relevant_only": pattern.relevant_only,
    }


def described_memory(pattern: BoundPattern) -> dict[str, Any]:
    """What keys remember beside partial matches, as in :func:`described_pattern`."""
    return {
        "previous": pattern.remembers_events,
        "absences": [absence.stage for absence in pattern.nfa.absences],
        "counts_keys": pattern.counts_keys,
    }


def lowest_state(described: Mapping[str, Any] | None) -> int:
    """The lowest number in the place of the state of a partial match: rows of what a key remembers have negative ones
    (:mod:`asterism.matching.key_memory`).

    :param described: of :func:`described_memory`; None: an earlier release has described less, so any number that it can have
    """
    if described is None:
        return -(2**31)
    events = described["previous"] + len(described["absences"])
    return -1 - events if events or described["counts_keys"] else 0


def described_edges(nfa: Nfa) -> dict[str, Any]:
    """The start and the edges of each state of an automaton, as JSON; no edges, if there are very many."""
    edges = [[[int(edge.action), edge.target.number, micros(edge.gap)] for edge in state.edges] for state in nfa.states]
    return {"start": nfa.start.number, "edges": edges if sum(map(len, edges)) <= _MAX_EDGES else None}


def matches_schema(key: pa.DataType, event: pa.DataType | None = None) -> pa.Schema:
    """The columns of :func:`partial_matches`; *event*: the type of events, if the column ACCEPTED is wanted."""
    names = [("rule", pa.string()), ("version", pa.int64()), ("stage", pa.string()), ("waits_for", pa.string())]
    accepted = [] if event is None else [(ACCEPTED, pa.list_(_accepted(event)))]
    times = [("since", MOMENT), ("deadline", MOMENT), ("events", pa.int64())]
    return pa.schema([("key", key), *names, *times, *accepted])


def _accepted(event: pa.DataType) -> pa.StructType:
    return pa.struct([("stage", pa.string()), ("time", MOMENT), ("event", event)])


def accepted_events(stages: pa.Array, times: Ints, rows: pa.Table, counts: Ints, event: pa.DataType) -> pa.ListArray:
    """The column ACCEPTED: for each partial match as many of the events *rows*, in order, as *counts* says."""
    rows_of_events = pa.StructArray.from_arrays([kept_column(rows, field) for field in event], fields=list(event))
    accepted = pa.StructArray.from_arrays([stages, moments(times), rows_of_events], fields=list(_accepted(event)))
    return pa.ListArray.from_arrays(pa.array(offsets_of(counts).astype(np.int32)), accepted)


def event_type(schema: pa.Schema | None) -> pa.StructType | None:
    """The kept columns of events as a struct; None if there are none."""
    fields = columns_of_events(schema or ())
    return pa.struct(fields) if fields else None


def partial_matches_of(definition: StateDefinition | None, value: bytes, event: pa.DataType | None) -> pa.Table:
    """The partial matches in a page of a pattern. Without a definition, stages are numbers, and keys and deadlines unknown."""
    if definition is None:
        page = Page.from_bytes(value, UNKNOWN_COLUMNS, UNKNOWN_COLUMNS)
        keys, automaton = pa.nulls(page.keys.num_rows, pa.string()), None
    else:
        page = Page.from_bytes(value, *definition.tables.values())
        keys, automaton = keys_as_structs(page.keys, definition.keys.names), definition.details
    return partial_matches(page, keys, [automaton], np.zeros(len(keys), np.int64), event=event)


def partial_matches(
    page: Page,
    keys: pa.Array,
    automata: Sequence[Mapping[str, Any] | None],
    of_keys: Ints,
    rules: Sequence[tuple[str, int]] | None = None,
    event: pa.DataType | None = None,
) -> pa.Table:
    """
    :param keys: the keys of *page*
    :param automata: described by :func:`described_automaton`; None: unknown
    :param of_keys: for each key the index of its automaton
    :param rules: for each automaton the id and version of its rule
    :raises StateError: the page belongs to another automaton
    """
    of_runs = np.repeat(np.arange(len(keys)), np.diff(page.rows.run_at))
    begun = (page.rows.run_rows[:, 1] >= 0) & (page.rows.run_rows[:, 2] >= 0)
    of_runs, (first, node, state) = of_runs[begun], page.rows.run_rows[begun].T
    of_automata = of_keys[of_runs]
    counts, events, accepted_by = _chains(page.nodes, node)
    stages = [None if automaton is None else automaton["stages"] for automaton in automata]
    since, last = page.times[first], page.times[page.nodes[node, 0]]
    deadlines = np.full(len(node), END_OF_TIME, np.int64)
    reached: list[str] = [""] * len(node)
    waits: list[str | None] = [None] * len(node)
    for number in np.unique(of_automata).tolist():
        of_automaton, automaton = np.flatnonzero(of_automata == number), automata[number]
        for at, stage in zip(of_automaton.tolist(), page.nodes[node[of_automaton], 1].tolist(), strict=True):
            reached[at] = _name(stages[number], stage)
        if automaton is None:
            continue
        if state[of_automaton].max() >= len(automaton["states"]):
            raise CheckpointMismatchError("the state of the checkpoint belongs to another pattern")
        names, kinds, gaps = zip(*automaton["states"], strict=True)
        for at, each in zip(of_automaton.tolist(), state[of_automaton].tolist(), strict=True):
            waits[at] = names[each]
        ends = np.array(kinds)[state[of_automaton]] == NfaStateKind.LAST
        gap, window = np.array(gaps, np.int64)[state[of_automaton]], int(automaton["window"])
        by_gap = np.where(gap > 0, last[of_automaton] + gap, END_OF_TIME)
        by_window = since[of_automaton] + window if window else np.full(len(of_automaton), END_OF_TIME)
        deadlines[of_automaton] = np.where(ends, END_OF_TIME, np.minimum(by_gap, by_window))
    ids = [(None, None)] * len(automata) if rules is None else rules
    columns = [
        keys.take(pa.array(of_runs)),
        pa.array([ids[number][0] for number in of_automata.tolist()], pa.string()),
        pa.array([ids[number][1] for number in of_automata.tolist()], pa.int64()),
        pa.array(reached, pa.string()),
        pa.array(waits, pa.string()),
        moments(since),
        moments(deadlines),
        pa.array(counts),
    ]
    if event is not None:
        names_of = np.repeat(of_automata, counts).tolist()
        taken = [_name(stages[n], stage) for n, stage in zip(names_of, accepted_by.tolist(), strict=True)]
        rows = page.events.take(pa.array(events))
        columns.append(accepted_events(pa.array(taken, pa.string()), page.times[events], rows, counts, event))
    return pa.table(columns, schema=matches_schema(keys.type, event))


def _name(stages: Sequence[str] | None, number: int) -> str:
    return str(number) if stages is None else stages[number]


def _chains(nodes: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """(the length of each chain of nodes that ends with one of *ends*; the events and stages of all chains, in order)"""
    counts = np.zeros(len(ends), np.int64)
    levels: list[tuple[Ints, Ints]] = []
    which, at = np.arange(len(ends)), ends
    while len(at):
        counts[which] += 1
        levels.append((which, at))
        parents = nodes[at, 2]
        which, at = which[parents >= 0], parents[parents >= 0]
    begins = offsets_of(counts)
    chain = np.empty(int(begins[-1]), np.int64)
    for depth, (which, at) in enumerate(levels):
        chain[begins[which + 1] - 1 - depth] = at
    return counts, nodes[chain, 0], nodes[chain, 1]
