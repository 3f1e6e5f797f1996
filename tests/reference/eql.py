"""Sequences of EQL as Elasticsearch describes them: for each key and number of events, the latest sequence is kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """
    :ivar absent: there is no such event, see :func:`has_no_absent_event`
    """

    matches: Callable[[Event], bool]
    key: Callable[[Event], Hashable]
    absent: bool = False


def sequences(
    events: Sequence[Event], steps: Sequence[Step], until: Step | None, maxspan: int | None
) -> list[list[Event]]:
    """The sequences, in the order of their last events; *events* are in their order.

    An event that is late for a sequence, or that *until* matches, ends it, also if it has just begun or continued the sequence.
    Absent events do not change which sequences there are; they drop those that have been found.
    """
    wanted = [step for step in steps if not step.absent]
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
                found.append((key, [*before, event]))
            else:
                kept[number][key] = [*before, event]
        if until is not None and until.matches(event):
            for level in kept[:-1]:
                level.pop(until.key(event), None)
    return [chain for key, chain in found if has_no_absent_event(chain, key, events, steps, maxspan)]


def has_no_absent_event(
    chain: Sequence[Event], key: Hashable, events: Sequence[Event], steps: Sequence[Step], maxspan: int | None
) -> bool:
    """Whether no absent event is between the two events around it; if it is the first or the last step, within *maxspan*. If both
    are absent, there must be one of each, within *maxspan* of each other, to drop the sequence.
    """
    place, taken = {id(event): number for number, event in enumerate(events)}, 0
    leading, trailing = list[int](), list[int]()
    for step in steps:
        if not step.absent:
            taken += 1
            continue
        for number, event in enumerate(events):
            if not step.matches(event) or step.key(event) != key:
                continue
            if taken > 0 and number <= place[id(chain[taken - 1])]:
                continue
            if taken < len(chain) and number >= place[id(chain[taken])]:
                continue
            if 0 < taken < len(chain):
                return False
            (trailing if taken else leading).append(event["time"])
    if not leading and not trailing:
        return True
    assert maxspan is not None
    if steps[0].absent and steps[-1].absent:
        return all(after - before > maxspan for before in leading for after in trailing)
    return all(chain[-1]["time"] - time > maxspan for time in leading) and all(
        time - chain[0]["time"] > maxspan for time in trailing
    )
