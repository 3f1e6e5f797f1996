"""Sequences of Endgame's engine, the package ``eql``, whose absent events differ from those of Elasticsearch (:mod:`.eql`).

An absent event is a step like any other that takes the next event of the key: if this is the absent one, the sequence is dropped,
and otherwise the sequence goes on without it. What comes after this one event does not matter, and neither does ``maxspan``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tests.reference.eql import Event, Step


def sequences(events: Sequence[Event], steps: Sequence[Step], maxspan: int) -> list[list[Event]]:
    """The sequences, in the order in which they are complete; *events* are in their order."""
    waiting: list[dict[Hashable, list[Event]]] = [{} for _ in steps]
    found = []
    for event in events:
        for level in waiting:
            for key in [key for key, chain in level.items() if chain and event["time"] - chain[0]["time"] > maxspan]:
                del level[key]
        for number in range(len(steps) - 1, -1, -1):
            step = steps[number]
            key, matches = step.key(event), step.matches(event)
            if not matches and not step.absent:
                continue
            chain = waiting[number].pop(key, None) if number else []
            if chain is None or (matches and step.absent):
                continue
            chain = chain if step.absent else [*chain, event]
            if number == len(steps) - 1:
                found.append(chain)
            else:
                waiting[number + 1][key] = chain
    return found
