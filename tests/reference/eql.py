"""Sequences of EQL as Elasticsearch describes them: for each key and number of events, the latest sequence is kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """
    :ivar absent: no such event may come before the next one, which is the last
    """

    matches: Callable[[Event], bool]
    key: Callable[[Event], Hashable]
    absent: bool = False


def sequences(
    events: Sequence[Event], steps: Sequence[Step], until: Step | None, maxspan: int | None
) -> list[list[Event]]:
    """The sequences, in the order of their last events; *events* are in their order.

    An event that is late for a sequence, or that *until* matches, ends it. An event that belongs to a sequence does not end it.
    """
    wanted = [step for step in steps if not step.absent]
    unwanted = next((step for step in steps if step.absent), None)
    kept: list[dict[Hashable, list[Event]]] = [{} for _ in wanted]
    found = []
    for event in events:
        for number in range(len(wanted) - 1, -1, -1):
            step = wanted[number]
            if not step.matches(event):
                continue
            key = step.key(event)
            before = kept[number - 1].pop(key, None) if number else []
            if before is None or (before and maxspan is not None and event["time"] - before[0]["time"] > maxspan):
                continue
            if number == len(wanted) - 1:
                found.append([*before, event])
            else:
                kept[number][key] = [*before, event]
        for ending, levels in ((until, kept[:-1]), (unwanted, kept[len(wanted) - 2 : -1])):
            if ending is not None and ending.matches(event):
                for level in levels:
                    chain = level.get(ending.key(event))
                    if chain is not None and chain[-1] is not event:
                        del level[ending.key(event)]
    return found
