"""Removes partial matches of a pattern from the rows of keys, with the events that nothing else refers to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask, one_chunk
from asterism.columns.groups import offsets_of
from asterism.errors import StateError
from asterism.operators.operator import EVENTS
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.savepoints.key_groups import STATE, THE_KEY
from asterism.savepoints.key_states import NODES, PARTIAL_MATCHES, KeyStates
from asterism.savepoints.plain_types import plain_type, retyped
from asterism.savepoints.rows.nested import as_structs, listed, owners_of, sizes_of, unlisted


@dataclass(frozen=True, slots=True)
class DroppedMatches:
    """Which partial matches are dropped: those of *stage* that began before a time, or of which a key has too many.

    :param stage: that of the last event; None: all
    :param before: microseconds; None: with *max_per_key* none for its age, otherwise all
    :param max_per_key: the latest ones of each key that are kept
    """

    stage: str | None = None
    before: int | None = None
    max_per_key: int | None = None

    def check(self, definition: StateDefinition) -> None:
        """:raises StateError: it is not the state of a pattern with this stage"""
        if definition.kind is not OperatorKind.PATTERN:
            raise StateError(
                "only patterns have partial matches that can be dropped",
                f"The state is that of: {definition.kind.value}",
            )
        stages = definition.details["stages"]
        if self.stage is not None and self.stage not in stages:
            raise StateError(f'the pattern has no stage "{self.stage}"', f"Stages: {', '.join(stages)}")


def without_partial_matches(states: KeyStates, rows: pa.Table, dropped: DroppedMatches) -> pa.Table:
    """The rows of keys without some of their partial matches. Keys remain, also those without any."""
    key, stored = one_chunk(rows.column(THE_KEY)), pa.struct(list(states.fields))
    columns = [retyped(column, field.type) for column, field in zip(key.flatten(), states.keys, strict=True)]
    state = dict(zip(states.fields.names, retyped(one_chunk(rows.column(STATE)), stored).flatten(), strict=True))
    state[PARTIAL_MATCHES] = _kept(states, state, dropped)
    # A page has no events and nodes to which nothing refers.
    _, read = states.read(states.written(pa.table(columns, schema=states.keys), state))
    fields = list(states.fields)
    written = pa.StructArray.from_arrays([read[field.name] for field in fields], fields=fields)
    return rows.set_column(rows.column_names.index(STATE), STATE, retyped(written, plain_type(stored)))


def _kept(states: KeyStates, state: dict[str, pa.Array], dropped: DroppedMatches) -> pa.ListArray:
    lists = state[PARTIAL_MATCHES]
    matches, owners = unlisted(lists)
    first, node, automaton = (one_chunk(matches.column(name)).to_numpy() for name in ("event", "node", "state"))
    begun = np.flatnonzero((node >= 0) & (automaton >= 0))  # others have no event yet
    node_at, event_at = (offsets_of(sizes_of(state[name]))[:-1] for name in (NODES, EVENTS))
    nodes, events = (unlisted(state[name])[0] for name in (NODES, EVENTS))
    since = one_chunk(events.column("time")).to_numpy()[event_at[owners[begun]] + first[begun]]
    if dropped.stage is not None:
        number = states.definition.details["stages"].index(dropped.stage)
        of_stage = one_chunk(nodes.column("stage")).to_numpy()[node_at[owners[begun]] + node[begun]] == number
        begun, since = begun[of_stage], since[of_stage]
    keep = np.ones(len(node), np.bool_)
    keep[begun] = _wanted(owners[begun], since, dropped)
    return listed(as_structs(matches.filter(pa.array(keep))), owners_of(lists)[keep], len(lists))


def _wanted(owners: Ints, since: Ints, dropped: DroppedMatches) -> Mask:
    """A mask of the partial matches that remain, of those of the stage."""
    if dropped.before is None and dropped.max_per_key is None:
        return np.zeros(len(owners), np.bool_)
    wanted: Mask = np.ones(len(owners), np.bool_) if dropped.before is None else since >= dropped.before
    if dropped.max_per_key is not None:
        order = np.lexsort((-np.arange(len(owners)), -since, owners))
        order = order[wanted[order]]
        begins = np.flatnonzero(np.diff(owners[order], prepend=-1))
        places = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
        wanted[order[places >= dropped.max_per_key]] = False
    return wanted
