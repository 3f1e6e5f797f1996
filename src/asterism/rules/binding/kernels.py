"""Compiled loops that determine which events each pattern sees, for :mod:`asterism.rules.matching.selections`, and which
conditions an event satisfies, for :mod:`asterism.rules.binding.condition_index`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asterism.columns.compiled import entry, inlined, uncounted

(
    FIRST_USE, END_USE, NEEDS_ALL, ALWAYS, MOST_EVENTS, WINDOW, MOST_IN_VAIN, AT_ONCE, SINCE_SET, BEGINS, UNTIL, HORIZON,
) = range(12)  # columns of patterns  # fmt: skip
CONDITION, BIT, STARTS, COMPLETES = range(4)  # columns of uses
EQUAL, ORDERED, FROM_ABOVE, FIRST_BUCKET, END_BUCKET = range(5)  # columns of groups
VALUE, FIRST_ENTRY, END_ENTRY = range(3)  # columns of buckets
BOUND, NUMBER, FIRST_TEST, END_TEST = range(4)  # columns of entries
WORD_BITS = 63
NEVER, BEFORE = 2**63 - 1, -(2**63)


# ------------------------------------------------------------------------------------------------ conditions of an event
#
# *values* has a row for each column, and *nulls* shows which are NULL. A row of *groups* is for the conditions that require
# a value of the column EQUAL (-1: of none), and of the column ORDERED (-1: none) values from a bound on, or with FROM_ABOVE up to
# a bound. *buckets* are the conditions of a group that require the same value, in ascending order of the values. *entries* are
# these conditions in ascending order of their bounds, which are inverted in a group that is FROM_ABOVE. *tests* are further
# ranges: a column, the first value and the last value; or, if the column is negative, ``~column`` is a row of *masks*, which
# shows for which events another condition is true.


@uncounted
def find_bucket(buckets: Any, low: int, end: int, value: int) -> int:
    """The bucket of a value, or -1."""
    high = end
    while low < high:
        middle = (low + high) >> 1
        if buckets[middle, VALUE] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < end and buckets[low, VALUE] == value else -1


@uncounted
def holds_all(tests: Any, begin: int, end: int, values: Any, nulls: Any, masks: Any, event: int) -> bool:
    for at in range(begin, end):
        column = tests[at, 0]
        if column < 0:
            if not masks[~column, event]:
                return False
        elif nulls[column, event] or not tests[at, 1] <= values[column, event] <= tests[at, 2]:
            return False
    return True


@uncounted
def entries_of(
    groups: Any, group: int, buckets: Any, entries: Any, values: Any, nulls: Any, event: int
) -> tuple[int, int]:
    """The entries of a group whose value and bound an event satisfies."""
    bucket = groups[group, FIRST_BUCKET]
    column = groups[group, EQUAL]
    if column >= 0:
        if nulls[column, event]:
            return 0, 0
        bucket = find_bucket(buckets, bucket, groups[group, END_BUCKET], values[column, event])
        if bucket < 0:
            return 0, 0
    begin, end = buckets[bucket, FIRST_ENTRY], buckets[bucket, END_ENTRY]
    column = groups[group, ORDERED]
    if column < 0:
        return begin, end
    if nulls[column, event]:
        return 0, 0
    value = values[column, event]
    if groups[group, FROM_ABOVE] == 1:
        value = ~value
    low, high = begin, end
    while low < high:
        middle = (low + high) >> 1
        if entries[middle, BOUND] <= value:
            low = middle + 1
        else:
            high = middle
    return begin, low


@entry
def meets_any(values: Any, nulls: Any, masks: Any, groups: Any, buckets: Any, entries: Any, tests: Any) -> Any:
    """Which events satisfy any condition."""
    met = np.zeros(nulls.shape[1], np.bool_)
    for event in range(len(met)):
        for group in range(len(groups)):
            begin, end = entries_of(groups, group, buckets, entries, values, nulls, event)
            at = begin
            while at < end and not met[event]:
                met[event] = holds_all(
                    tests, entries[at, FIRST_TEST], entries[at, END_TEST], values, nulls, masks, event
                )
                at += 1
            if met[event]:
                break
    return met


@entry
def met_conditions(
    values: Any, nulls: Any, masks: Any, groups: Any, buckets: Any, entries: Any, tests: Any, count: int
) -> tuple[Any, Any]:
    """For each event the numbers of the conditions that it satisfies, of *count* conditions, as offsets and values."""
    n_events = nulls.shape[1]
    offsets = np.zeros(n_events + 1, np.int64)
    numbers = np.empty(max(4 * n_events, 64), np.int32)
    last = np.full(count, -1, np.int64)  # the last event that satisfies a condition, which may have several entries
    put = 0
    for event in range(n_events):
        for group in range(len(groups)):
            begin, end = entries_of(groups, group, buckets, entries, values, nulls, event)
            if put + end - begin > len(numbers):
                larger = np.empty(max(put + end - begin, 2 * len(numbers)), np.int32)
                larger[:put] = numbers[:put]
                numbers = larger
            for at in range(begin, end):
                number = entries[at, NUMBER]
                if last[number] != event and holds_all(
                    tests, entries[at, FIRST_TEST], entries[at, END_TEST], values, nulls, masks, event
                ):
                    last[number] = event
                    numbers[put] = number
                    put += 1
        offsets[event + 1] = put
    return offsets, numbers[:put]


# ------------------------------------------------------------------------------------------------ pages of rules


@entry
def ranked(numbers: Any) -> tuple[Any, Any]:
    """The distinct numbers, ascending, and for each of *numbers* its place among them."""
    used = np.unique(numbers)
    place = np.empty(len(numbers), np.int32)
    for at in range(len(numbers)):
        place[at] = np.searchsorted(used, numbers[at])
    return used, place


# ------------------------------------------------------------------------------------------------ events of a pattern


@entry
def by_condition(indexed_at: Any, indexed: Any, met_at: Any, met: Any, count: int) -> tuple[Any, Any]:
    """For each condition, the ascending positions of the events that satisfy it, as offsets and values.

    Event *i* satisfies the conditions ``indexed[indexed_at[i]:indexed_at[i + 1]]`` and ``met[met_at[i]:met_at[i + 1]]``. Negative
    numbers are conditions that no pattern uses.
    """
    at = np.zeros(count + 1, np.int64)
    for condition in indexed:
        at[condition + 1] += 1
    for condition in met:
        if condition >= 0:
            at[condition + 1] += 1
    for condition in range(count):
        at[condition + 1] += at[condition]
    free = at[:-1].copy()
    positions = np.empty(at[-1], np.int64)
    for event in range(len(met_at) - 1):
        for place in range(indexed_at[event], indexed_at[event + 1]):
            condition = indexed[place]
            positions[free[condition]] = event
            free[condition] += 1
        for place in range(met_at[event], met_at[event + 1]):
            condition = met[place]
            if condition >= 0:
                positions[free[condition]] = event
                free[condition] += 1
    return at, positions


@uncounted
def first_from(positions: Any, low: int, end: int, position: int) -> int:
    """The first index from *low* to *end* whose position is not less than *position*."""
    step = 1
    high = low
    while high < end and positions[high] < position:
        low = high + 1
        high += step
        step *= 2
    high = min(high, end)
    while low < high:
        middle = (low + high) >> 1
        if positions[middle] < position:
            low = middle + 1
        else:
            high = middle
    return low


class SortedEvents(NamedTuple):
    """Events, sorted by key and time."""

    since: Any  # the newest set when each arrived
    times: Any
    keys: Any
    key_at: Any  # where the events of each key begin
    at: Any
    positions: Any  # positions[at[condition]:at[condition + 1]] are the events that satisfy a condition


class StateKeys(NamedTuple):
    """The keys for which each pattern has partial matches: ``keys[at[pattern]:at[pattern + 1]]``, ascending."""

    at: Any
    keys: Any


class Patterns(NamedTuple):
    """The tables of :func:`shares`, and its working memory.

    *heads* has for each use the index in *positions* of the next event.
    """

    table: Any
    uses: Any
    heads: Any


class SharedEvents(NamedTuple):
    """The results of :func:`shares`, in arrays that may be longer."""

    seen: Any
    bits: Any
    alike: Any
    runs: Any


@entry
def shares(patterns: Any, uses: Any, events: SortedEvents, states: StateKeys, words: int) -> tuple[Any, Any, Any, Any]:
    """Compute the events that may matter to each pattern.

    *patterns* has a row for each pattern: the range of its uses; whether it sees events that satisfy none of them; whether all
    events that it sees matter; the maximum number of further events that it sees while a partial match lives; the maximum time
    for which it lives (0: no maximum); how many events may be in vain, and whether an event that begins a partial match can
    complete a match at once (see below); the set that added the pattern; the times for which it is in force; and the time to
    which it advances. *uses* are: condition, bit, whether such an event can begin a partial match, and whether it can complete a
    match. A pattern sees an event if it arrived since that set and its time is within those times.

    An event matters if it can begin a partial match, or if there may be one. Such events are *in vain*, and do not matter
    either, if from the first of them until no partial match lives any more none can complete a match, and if these are few
    events. Returns the positions of the events that matter, their condition bits, their positions among the events of their key
    and time that the pattern sees, and for each pattern and key with such events a row: pattern, key, and where they begin.
    """
    seen, bits, alike = np.empty(1024, np.int64), np.empty((1024, words), np.int64), np.empty(1024, np.int64)
    runs = np.empty((256, 3), np.int64)
    tables = Patterns(patterns, uses, np.empty(len(uses), np.int64))
    put = n_runs = 0
    for pattern in range(len(patterns)):
        end, n_new = -1, 0
        while end < 0:
            shared = SharedEvents(seen, bits, alike, runs)
            end, n_new = share(tables, events, states, pattern, shared, put, n_runs)
            if end < 0 and n_new == len(runs):
                more = np.empty((2 * len(runs), 3), np.int64)
                more[:n_runs] = runs[:n_runs]
                runs = more
            elif end < 0:
                more_seen, more_alike = np.empty(2 * len(seen), np.int64), np.empty(2 * len(seen), np.int64)
                more_bits = np.empty((2 * len(seen), words), np.int64)
                more_seen[:put], more_alike[:put], more_bits[:put] = seen[:put], alike[:put], bits[:put]
                seen, alike, bits = more_seen, more_alike, more_bits
        put, n_runs = end, n_new
    return seen[:put], bits[:put], alike[:put], runs[:n_runs]


@inlined
def next_start(tables: Patterns, events: SortedEvents, pattern: int, event: int) -> int:
    """The next event, from *event* on, that can begin a partial match of a pattern; the number of events if there is none."""
    start = len(events.times)
    for use in range(tables.table[pattern, FIRST_USE], tables.table[pattern, END_USE]):
        if tables.uses[use, STARTS] == 1:
            end = events.at[tables.uses[use, CONDITION] + 1]
            tables.heads[use] = first_from(events.positions, tables.heads[use], end, event)
            if tables.heads[use] < end:
                start = min(start, events.positions[tables.heads[use]])
    return start


@inlined
def next_seen(tables: Patterns, events: SortedEvents, pattern: int, end: int) -> int:
    """The next event before *end* at the heads of the uses of a pattern; *end* if there is none."""
    event = end
    for use in range(tables.table[pattern, FIRST_USE], tables.table[pattern, END_USE]):
        if tables.heads[use] < events.at[tables.uses[use, CONDITION] + 1]:
            event = min(event, events.positions[tables.heads[use]])
    return event


@inlined
def roles_of(tables: Patterns, events: SortedEvents, pattern: int, event: int) -> tuple[bool, bool]:
    """Whether an event at the heads of the uses of a pattern can begin a partial match, and whether it can complete a match."""
    starts = completes = False
    for use in range(tables.table[pattern, FIRST_USE], tables.table[pattern, END_USE]):
        head = tables.heads[use]
        if head < events.at[tables.uses[use, CONDITION] + 1] and events.positions[head] == event:
            starts |= tables.uses[use, STARTS] == 1
            completes |= tables.uses[use, COMPLETES] == 1
    return starts, completes


@uncounted
def share(
    tables: Patterns, events: SortedEvents, states: StateKeys, pattern: int, shared: SharedEvents, put: int, n_runs: int
) -> tuple[int, int]:
    """Add the events that may matter to a *pattern*. Returns the number of events, or -1 if there is not enough room, and the
    number of rows of ``shared.runs``.
    """
    patterns, uses, heads = tables
    since, times, keys, key_at, at, positions = events
    state_at, state_keys = states
    seen, bits, alike, runs = shared
    first_use, end_use = patterns[pattern, FIRST_USE], patterns[pattern, END_USE]
    needs_all, always = patterns[pattern, NEEDS_ALL] == 1, patterns[pattern, ALWAYS] == 1
    most_events, window = patterns[pattern, MOST_EVENTS], patterns[pattern, WINDOW]
    since_set, begins, until = patterns[pattern, SINCE_SET], patterns[pattern, BEGINS], patterns[pattern, UNTIL]
    most_in_vain, at_once, horizon = (
        patterns[pattern, MOST_IN_VAIN],
        patterns[pattern, AT_ONCE] == 1,
        patterns[pattern, HORIZON],
    )
    n_events = len(times)
    for use in range(first_use, end_use):
        heads[use] = at[uses[use, CONDITION]]
    state = state_at[pattern]
    event = 0
    run_key = last_key = -1
    last_time = count = 0
    while event < n_events:
        # The next event that can begin a partial match, and the next key that has one already.
        start = event if always else next_start(tables, events, pattern, event)
        while state < state_at[pattern + 1] and key_at[state_keys[state] + 1] <= max(event, key_at[state_keys[state]]):
            state += 1  # it has no further events
        left, deadline = 0, BEFORE
        lives = began = False  # whether there may be a partial match before the first event, and before the current one
        begin = start
        if state < state_at[pattern + 1]:
            in_state = max(event, key_at[state_keys[state]])
            if in_state <= start:
                begin = start = in_state
                lives = began = True
                left, deadline = most_events, NEVER
        if begin >= n_events:
            break
        if deadline == NEVER and window > 0:
            deadline = times[begin] + window
        key = keys[start]
        end_of_key = key_at[key + 1]
        if state < state_at[pattern + 1] and state_keys[state] == key:
            state += 1
        # Events of the same time count for the position of the first one.
        while begin > event and keys[begin - 1] == key and times[begin - 1] == times[start]:
            begin -= 1
        for use in range(first_use, end_use):
            heads[use] = first_from(positions, heads[use], at[uses[use, CONDITION] + 1], begin)
        event = begin
        put_before, n_runs_before, run_key_before = put, n_runs, run_key
        in_vain = not lives and most_in_vain > 0
        while True:
            # The next event that the pattern sees.
            if not needs_all:
                event = next_seen(tables, events, pattern, end_of_key)
            if event >= end_of_key:
                event = end_of_key
                break
            starts, completes = roles_of(tables, events, pattern, event)
            starts |= always
            wanted = since[event] >= since_set and begins <= times[event] < until
            if most_in_vain > 0 and began and (left <= 0 or times[event] >= deadline):
                break  # no partial match lives: the following events may be in vain, or those until here
            if starts:
                if wanted:
                    left, deadline = most_events, NEVER
                    if window > 0:
                        deadline = times[event] + window
            elif event >= start:
                if left <= 0 or times[event] >= deadline:
                    break
                left -= wanted
            if wanted:
                in_vain &= not (completes and (began or at_once)) and put - put_before < most_in_vain
                began |= starts
                if put == len(seen) or n_runs == len(runs):
                    return -1, n_runs
                if last_key != key or last_time != times[event]:
                    last_key, last_time, count = key, times[event], 0
                seen[put], alike[put] = event, count
                count += 1
                for word in range(bits.shape[1]):
                    bits[put, word] = 0
                if run_key != key:
                    runs[n_runs, 0], runs[n_runs, 1], runs[n_runs, 2] = pattern, key, put
                    n_runs += 1
                    run_key = key
            for use in range(first_use, end_use):
                if heads[use] < at[uses[use, CONDITION] + 1] and positions[heads[use]] == event:
                    heads[use] += 1
                    if wanted:
                        bit = uses[use, BIT]
                        bits[put, bit // WORD_BITS] |= 1 << (bit % WORD_BITS)
            put += wanted
            event += 1
        if in_vain and (event < end_of_key or deadline <= horizon):
            put, n_runs, run_key = put_before, n_runs_before, run_key_before
    return put, n_runs
