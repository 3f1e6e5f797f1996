"""Compiled loops that determine which events each pattern sees, for :mod:`asterism.rules.shares`."""

from __future__ import annotations

from typing import Any

import numpy as np

from asterism.columns.compiled import entry

FIRST_USE, END_USE, NEEDS_ALL, SINCE_SET, BEGINS, UNTIL = range(6)  # columns of patterns
CONDITION, BIT = range(2)  # columns of asks
WORD_BITS = 63


@entry
def by_condition(met_at: Any, met: Any, count: int) -> tuple[Any, Any]:
    """For each of *count* conditions, the ascending positions of the events that satisfy it, as offsets and values.

    Event *i* satisfies ``met[met_at[i]:met_at[i + 1]]``; negative numbers are conditions that no pattern uses.
    """
    at = np.zeros(count + 1, np.int64)
    for condition in met:
        if condition >= 0:
            at[condition + 1] += 1
    for condition in range(count):
        at[condition + 1] += at[condition]
    free = at[:-1].copy()
    positions = np.empty(at[-1], np.int64)
    for event in range(len(met_at) - 1):
        for place in range(met_at[event], met_at[event + 1]):
            condition = met[place]
            if condition >= 0:
                positions[free[condition]] = event
                free[condition] += 1
    return at, positions


@entry
def shares(
    patterns: Any, uses: Any, at: Any, positions: Any, since: Any, times: Any, words: int
) -> tuple[Any, Any, Any]:
    """For one pattern after another, the events that it sees: their positions, their condition bits, and the number of
    events.

    *patterns* has a row for each pattern: the range of its uses, whether it needs events that satisfy none of them, the set
    that added it, and the times for which it is in force. *uses* are pairs (condition, bit). A pattern sees an event if it
    arrived since that set and its time is within those times.
    """
    n_events = len(times)
    room = 0
    for pattern in range(len(patterns)):
        if patterns[pattern, NEEDS_ALL]:
            room += n_events
        else:
            for use in range(patterns[pattern, FIRST_USE], patterns[pattern, END_USE]):
                condition = uses[use, CONDITION]
                room += at[condition + 1] - at[condition]
    seen, bits = np.empty(room, np.int64), np.zeros((room, words), np.int64)
    counts = np.zeros(len(patterns), np.int64)
    heads = np.empty(len(uses), np.int64)
    put = 0
    for pattern in range(len(patterns)):
        begin, end = patterns[pattern, FIRST_USE], patterns[pattern, END_USE]
        for use in range(begin, end):
            heads[use] = at[uses[use, CONDITION]]
        before = put
        event = -1
        while True:
            if patterns[pattern, NEEDS_ALL]:
                event += 1
            else:
                event = n_events
                for use in range(begin, end):
                    if heads[use] < at[uses[use, CONDITION] + 1]:
                        event = min(event, positions[heads[use]])
            if event >= n_events:
                break
            wanted = (
                since[event] >= patterns[pattern, SINCE_SET]
                and patterns[pattern, BEGINS] <= times[event] < patterns[pattern, UNTIL]
            )
            for use in range(begin, end):
                if heads[use] < at[uses[use, CONDITION] + 1] and positions[heads[use]] == event:
                    heads[use] += 1
                    if wanted:
                        bit = uses[use, BIT]
                        bits[put, bit // WORD_BITS] |= 1 << (bit % WORD_BITS)
            if wanted:
                seen[put] = event
                put += 1
        counts[pattern] = put - before
    return seen[:put], bits[:put], counts
