"""The events of a sample that some of its matches need, so that a test of a rule has no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

MAX_TRIES = 60
"""How often events are left out to see whether the matches stay the same."""

Holds = Callable[[Sequence[int]], bool]


def needed_events(
    keys: Sequence[str], order: Sequence[int], matched: AbstractSet[int], holds: Holds
) -> list[int] | None:
    """The numbers of events with which the matches are the same: those of the matches, and as few others as a bounded search
    finds; None: with all events, there are other matches.

    :param keys: for each event its key
    :param order: the numbers of all events in the order of time
    :param matched: the events of the matches, which stay
    :param holds: whether the matches are the same with some events

    >>> needed_events(["ann"] * 5, range(5), {2}, lambda kept: {1, 2} <= set(kept))  # its condition has PREV
    [1, 2]
    """
    near = _distances(keys, order, matched)
    distance = 0
    kept: list[int] | None = None
    while kept is None:
        candidate = [event for event, away in enumerate(near) if away <= distance]
        if holds(candidate):
            kept = candidate
        elif len(candidate) == len(keys):
            return None
        distance = 2 * distance or 1 if distance < len(keys) else max(near)
    return _without_others(kept, matched, holds)


def _distances(keys: Sequence[str], order: Sequence[int], matched: AbstractSet[int]) -> list[int]:
    """For each event how many events of its key there are from it to the next matched one, before or after it. The events of keys
    without a match are farther away than all others.
    """
    near = [2 * len(keys)] * len(keys)
    for events in (order, order[::-1]):
        since: dict[str, int] = {}
        for event in events:
            key = keys[event]
            if event in matched:
                since[key] = 0
            elif key in since:
                since[key] += 1
            near[event] = min(near[event], since.get(key, near[event]))
    return near


def _without_others(kept: list[int], matched: AbstractSet[int], holds: Holds) -> list[int]:
    """*kept* without as many events that are not matched as a few tries allow, in parts that become smaller."""
    others = [event for event in kept if event not in matched]
    size, tries = (len(others) + 1) // 2, MAX_TRIES
    while size and tries:
        begin = 0
        while begin < len(others) and tries:
            rest = others[:begin] + others[begin + size :]
            tries -= 1
            if holds(sorted({*rest, *matched})):
                others = rest
            else:
                begin += size
        size = (size + 1) // 2 if size > 1 else 0
    return sorted({*others, *matched})
