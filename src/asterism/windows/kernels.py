"""The compiled evaluation of triggers, element by element: arrays in, arrays out. :mod:`asterism.windows.trigger_table` makes
the tables.

A *pane* is a window of one key. Its words, its number of firings and its number of elements are changed in place. Firings are
recorded with their *contents*.

Contents are indexes that represent elements: those of a pane before the call; a *segment*, which is a run of new elements of a
pane between two firings; or a *join* of two contents. The caller converts the indexes to aggregates or rows, many at a time.

The order of processing for a pane: event-time timers up to the watermark before the call; processing-time timers; the elements,
each after the event-time timers up to its watermark; event-time timers up to the new watermark.

Functions that are only ``jitable`` run uncompiled if a user-defined trigger must be called in between: *calls* is
then an object with the methods that are used here, otherwise None.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from asterism.columns.compiled import compiled, entry, uncounted
from asterism.windows.trigger_table import (
    COLUMN,
    EARLY,
    END_ROW,
    END_WORD,
    FINAL,
    KIND,
    LATE,
    NO_MOMENT,
    NUMBER,
    PARENT,
    ROLE,
    STEP,
    WORD,
    CallPhase,
    TriggerPart,
)

jitable = register_jitable(_nrt=False)
"""Without counted references, as :func:`uncounted`."""
(
    NEVER, COUNT, FIRST_EVENT, FIRST_PROCESSING, END_EVENT, END_PROCESSING, EACH_EVENT, EACH_PROCESSING, DELTA, ALL, ANY,
    USER_DEFINED, SEQUENCE, ONCE, UNTIL,
) = map(int, TriggerPart)  # fmt: skip
END_OF_TIME = 2**63 - 1
BEFORE_TIME = -(2**63) + 1

READY = 1
OVER = 2
"""END: it has fired at the end. EACH: it waits for the end of the window. DELTA: there is a number to compare with. USER_DEFINED:
there is state. SEQUENCE, ONCE, UNTIL: it will never be ready again."""
ARMED = 4
"""END: an element waits for the end of the window."""

OK, NO_ROOM = 0, 1
EARLY_FIRING, ON_TIME_FIRING, LATE_FIRING = range(3)
PANE, CONTENTS, STAGE, TIME, PLACE, FIRING_KIND, IS_LAST, FIRING_NUMBER, START, STOP = range(10)
"""Columns of firings. STAGE, TIME and PLACE define the order: a Stage; the time of the timer; the index of the
element, or -1."""
STAGE_BEFORE, STAGE_PROCESSING_TIME, STAGE_ELEMENTS, STAGE_AFTER = map(int, CallPhase)
NONE = -1
"""No contents."""
SURVIVOR, MERGED, FIRED_BEFORE = range(3)
"""Columns of merges: a pane; the pane that was merged into it; the number of firings of the call before."""
DROP, FIRE_IF_NON_EMPTY, FIRE_ALWAYS = range(3)
"""What to do with a pane that is dropped."""


class Rules(NamedTuple):
    """The constants of a call. Times are microseconds.

    *lateness* is how long panes are kept after their last time, END_OF_TIME if that is not in event time; *resolution* is the
    distance between the last time of a window and its end.
    """

    table: Any
    initial: Any
    thresholds: Any
    purges: bool
    event: bool
    lateness: int
    resolution: int
    before: int
    watermark: int
    processing_time: int
    in_order: bool
    """whether elements waited for a watermark"""
    ending: bool
    """whether the input has ended"""
    closing: int
    """DROP, FIRE_IF_NON_EMPTY or FIRE_ALWAYS"""
    always_on_time: bool
    """whether a pane without contents fires on time"""
    turns: bool
    """whether there is a SEQUENCE, ONCE or UNTIL"""


class Panes(NamedTuple):
    """The panes of a call, one row each."""

    start: Any
    end: Any
    seen: Any
    """the watermark up to which event-time timers have fired"""
    words: Any
    firings: Any
    count: Any
    """elements in the contents"""
    unfired: Any
    """those of them that have not been in a firing"""
    contents: Any
    segment: Any
    """the open segment, or NONE"""
    alive: Any
    watermark: Any
    """the watermark during the call"""


class Log(NamedTuple):
    """The output of a call. *sizes*: number of firings, segments, joins, elements that were dropped without a firing, merges."""

    firings: Any
    segment_of: Any
    """by element"""
    left: Any
    right: Any
    sizes: Any
    late: Any
    """by element"""
    merges: Any


FIRED, SEGMENTS, JOINS, UNFIRED, MERGES = range(5)


class Elements(NamedTuple):
    """The new elements of a call."""

    first: Any
    """the first element of each pane, in sessions of each key, and the number of elements at the end"""
    times: Any
    watermarks: Any
    """the watermark at which each is processed"""
    places: Any
    """the index of each in the input"""
    stages: Any
    """a CallPhase"""
    distances: Any
    """the numbers that triggers compare, by column"""


class PaneEvaluation(NamedTuple):
    """What the evaluation of a pane reads and changes: *live* and *ready* have room for the parts of the trigger."""

    rules: Rules
    panes: Panes
    log: Log
    live: Any
    ready: Any


class Moment(NamedTuple):
    """When a pane may fire, and how: see the columns of firings. *time* is that of the firing, *event_time* the time that the
    parts of a sequence see.
    """

    stage: int
    time: int
    place: int
    firing_kind: int
    is_last: bool
    watermark: int
    event_time: int


# ---------------------------------------------------------------------- one trigger, one pane


@uncounted
def next_multiple(time: int, interval: int) -> int:
    """The first multiple of an interval after a time: when a continuous trigger fires next."""
    return (time // interval + 1) * interval


@uncounted
def last_time(start: int, end: int, resolution: int) -> int:
    return END_OF_TIME if end == END_OF_TIME else end - resolution


@uncounted
def cleanup_time(last: int, lateness: int) -> int:
    return END_OF_TIME if last > END_OF_TIME - lateness else last + lateness


@uncounted
def takes_part(table: Any, words: Any, row: int) -> bool:
    """Whether a part is active when its parent is: of a trigger that waits for the end, the early trigger before it and the late
    one after it; the current part of a sequence; the parts of a trigger that is not over."""
    role, parent = table[row, ROLE], table[row, PARENT]
    kind, at = table[parent, KIND], table[parent, WORD]
    if role >= STEP:
        return bool(words[at + 1] == role - STEP)
    if role == LATE:
        return bool(words[at] & OVER != 0)
    if role == EARLY or kind in (ONCE, UNTIL):
        return bool(words[at] & OVER == 0)
    return True


@uncounted
def find_live(table: Any, words: Any, live: Any) -> None:
    """Find the active parts."""
    for row in range(len(table)):
        parent = table[row, PARENT]
        live[row] = parent < 0 or (live[parent] and takes_part(table, words, row))


@uncounted
def has_late(table: Any, row: int) -> bool:
    for inner in range(row + 1, table[row, END_ROW]):  # noqa: SIM110 - numba knows no any()
        if table[inner, PARENT] == row and table[inner, ROLE] == LATE:
            return True
    return False


@compiled
def add_element(
    rules: Rules, words: Any, live: Any, time: int, watermark: int, last: int, distances: Any, element: int
) -> None:
    """Update the trigger for a new element."""
    table = rules.table
    processing_time = rules.processing_time
    # A processing-time part is early or late in processing time; the others by the watermark.
    for row in range(len(table)):
        parent = table[row, PARENT]
        live[row] = parent < 0 or (live[parent] and takes_part(table, words, row))
        if parent >= 0 and table[row, ROLE] == EARLY:
            past = (watermark if table[parent, KIND] == END_EVENT else processing_time) >= last
            live[row] = live[row] and not past
        if not live[row]:
            continue
        kind, at = table[row, KIND], table[row, WORD]
        if kind == COUNT:
            words[at] += 1
        elif kind in (FIRST_EVENT, FIRST_PROCESSING):
            now = watermark if kind == FIRST_EVENT else processing_time
            if words[at + 1] == NO_MOMENT:
                words[at + 1] = (time if kind == FIRST_EVENT else processing_time) + table[row, NUMBER]
            if words[at + 1] <= now:
                words[at] |= READY
        elif kind in (END_EVENT, END_PROCESSING):
            now = watermark if kind == END_EVENT else processing_time
            if now < last:
                words[at] |= ARMED  # otherwise the firing at the end is overdue: docs/decisions/0099
            elif not (words[at] & OVER != 0 and has_late(table, row)):
                words[at] |= READY
        elif kind == EACH_EVENT:
            if watermark >= last:
                words[at] |= READY
            else:
                words[at] |= OVER
                if words[at + 1] == NO_MOMENT:
                    words[at + 1] = next_multiple(time, table[row, NUMBER])
        elif kind == EACH_PROCESSING:
            if words[at + 1] == NO_MOMENT:
                words[at + 1] = next_multiple(processing_time, table[row, NUMBER])
        elif kind == DELTA:
            value = distances[element, table[row, COLUMN]]
            if not np.isnan(value):
                bits = np.array([value]).view(np.int64)[0]
                if words[at] & OVER == 0:
                    words[at] |= OVER
                    words[at + 1] = bits
                else:
                    former = np.array([words[at + 1]]).view(np.float64)[0]
                    if abs(value - former) > rules.thresholds[table[row, COLUMN]]:
                        words[at] |= READY
                        words[at + 1] = bits


@uncounted
def first_timer(table: Any, words: Any, live: Any, last: int, event: bool) -> int:
    """The first time for which a part waits, in event time (*event*) or in processing time."""
    find_live(table, words, live)
    first = NO_MOMENT
    for row in range(len(table)):
        if not live[row]:
            continue
        kind, at = table[row, KIND], table[row, WORD]
        if kind == FIRST_EVENT if event else kind == FIRST_PROCESSING:
            if words[at] & READY == 0:
                first = min(first, words[at + 1])
        elif kind == END_EVENT if event else kind == END_PROCESSING:
            if words[at] & (READY | OVER | ARMED) == ARMED:
                first = min(first, last)
        elif event and kind == EACH_EVENT:
            if words[at] & OVER != 0:
                first = min(first, last)
            if words[at + 1] < last:
                first = min(first, words[at + 1])
        elif not event and kind == EACH_PROCESSING:
            first = min(first, words[at + 1])
        elif kind == USER_DEFINED:
            first = min(first, words[at + 1] if event else words[at + 2])
    return first


@uncounted
def on_event_time(table: Any, words: Any, live: Any, time: int, last: int, ending: bool) -> None:
    """Update the trigger when the watermark has passed *time*, one of its timers. *ending*: the input has ended."""
    find_live(table, words, live)
    for row in range(len(table)):
        if not live[row]:
            continue
        kind, at = table[row, KIND], table[row, WORD]
        if kind == FIRST_EVENT:
            if words[at + 1] <= time and words[at + 1] != NO_MOMENT:
                words[at] |= READY
        elif kind == END_EVENT:
            if time >= last and words[at] & (OVER | ARMED) == ARMED:
                words[at] |= READY
        elif kind == EACH_EVENT:
            if words[at] & OVER != 0 and time >= last:
                words[at] = READY
            elif words[at + 1] <= time and words[at + 1] < last:
                words[at] |= READY
                words[at + 1] += table[row, NUMBER]
                if ending and last == END_OF_TIME:
                    words[at + 1] = NO_MOMENT


@uncounted
def on_processing_time(
    table: Any, words: Any, live: Any, time: int, now: int, last: int, ending: bool, is_over: bool
) -> None:  # fmt: skip
    """Update the trigger when processing time, which is *now*, has passed *time*. *ending*: update only the end of the window.

    Of the multiples of an interval that have passed, only the first is used, and the next one is after *now*: after a pause
    a window fires once.
    """
    find_live(table, words, live)
    for row in range(len(table)):
        if not live[row]:
            continue
        kind, at = table[row, KIND], table[row, WORD]
        if kind == END_PROCESSING:
            if time >= last and words[at] & (OVER | ARMED) == ARMED:
                words[at] |= READY
        elif kind == EACH_PROCESSING and is_over and words[at + 1] != NO_MOMENT:
            words[at] |= READY
            words[at + 1] = NO_MOMENT
        elif (
            ending
            or kind not in (FIRST_PROCESSING, EACH_PROCESSING)
            or words[at + 1] == NO_MOMENT
            or words[at + 1] > time
        ):
            continue
        else:
            words[at] |= READY
            if kind == EACH_PROCESSING:
                words[at + 1] = next_multiple(now, table[row, NUMBER])


@uncounted
def is_ready(table: Any, words: Any, ready: Any) -> bool:
    for row in range(len(table)):
        ready[row] = table[row, KIND] == ALL
    for row in range(len(table) - 1, -1, -1):
        kind, at = table[row, KIND], table[row, WORD]
        if kind == COUNT:
            ready[row] = words[at] >= table[row, NUMBER]
        elif kind not in (NEVER, ALL, ANY, SEQUENCE, ONCE, UNTIL) and words[at] & READY != 0:
            ready[row] = True
        parent = table[row, PARENT]
        if parent < 0:
            continue
        if table[parent, KIND] == ALL:
            ready[parent] &= ready[row]
        elif takes_part(table, words, row):
            ready[parent] |= ready[row]
    return bool(ready[0])


@uncounted
def reset_words(rules: Rules, words: Any, first: int, row: int) -> None:
    """Set the words from *first* to the end of the part in *row* to the initial ones."""
    for word in range(first, rules.table[row, END_WORD]):
        words[word] = rules.initial[word]


@uncounted
def begin_part(rules: Rules, words: Any, active: Any, first: int, watermark: int, event_time: int, last: int) -> None:
    """The turn of a part of a sequence has come: it waits for the end of the window and for multiples of intervals, and for
    elements that come from now on.
    """
    table, processing_time = rules.table, rules.processing_time
    reset_words(rules, words, table[first, WORD], first)
    for row in range(first, table[first, END_ROW]):
        active[row] = row == first or (active[table[row, PARENT]] and takes_part(table, words, row))
        if not active[row]:
            continue
        kind, at = table[row, KIND], table[row, WORD]
        if kind in (END_EVENT, END_PROCESSING):
            if (watermark if kind == END_EVENT else processing_time) < last:
                words[at] |= ARMED
        elif kind == EACH_EVENT and watermark < last:
            words[at] |= OVER
            if event_time != BEFORE_TIME:
                words[at + 1] = next_multiple(event_time, table[row, NUMBER])
        elif kind == EACH_PROCESSING and processing_time != END_OF_TIME:
            words[at + 1] = next_multiple(processing_time, table[row, NUMBER])


@uncounted
def reset_after_firing(rules: Rules, words: Any, active: Any, ready: Any) -> None:
    """Reset all active parts after a firing of the window. *ready*: the parts that were."""
    table = rules.table
    for row in range(len(table)):
        parent = table[row, PARENT]
        if parent < 0:
            active[row] = True
        elif table[row, ROLE] == FINAL:  # it waits for its condition from the beginning, whatever fires before
            active[row] = False
        elif table[row, ROLE] not in (EARLY, LATE):
            active[row] = active[parent] and takes_part(table, words, row)
        # parts of a trigger that waits for the end are reset with it, see below
        if not active[row]:
            for inner in range(row + 1, table[row, END_ROW]):
                if table[inner, PARENT] == row:
                    active[inner] = False
            continue
        kind, at = table[row, KIND], table[row, WORD]
        if kind == COUNT:
            words[at] = 0
        elif kind in (FIRST_EVENT, FIRST_PROCESSING):
            words[at] = 0
            words[at + 1] = NO_MOMENT
        elif kind in (END_EVENT, END_PROCESSING):
            role = -1
            if words[at] & OVER != 0 and has_late(table, row):
                role = LATE
            elif words[at] & READY != 0:
                words[at] = OVER
                reset_words(rules, words, at + 1, row)
            else:
                role = EARLY
            words[at] &= ~READY
            for inner in range(row + 1, table[row, END_ROW]):
                if table[inner, PARENT] == row:
                    active[inner] = table[inner, ROLE] == role
        elif kind in (EACH_EVENT, EACH_PROCESSING, DELTA, USER_DEFINED):
            words[at] &= ~READY
        elif kind in (ONCE, UNTIL):
            over = kind == ONCE and ready[row]
            for inner in range(row + 1, table[row, END_ROW]):
                over = over or (table[inner, PARENT] == row and table[inner, ROLE] == FINAL and ready[inner])
            if over:
                words[at] |= OVER
                reset_words(rules, words, at + 1, row)


@uncounted
def take_turns(rules: Rules, words: Any, active: Any, watermark: int, event_time: int, last: int) -> None:
    """After a firing, begin the following parts of the sequences whose current part is over."""
    table = rules.table
    for row in range(len(table) - 1, -1, -1):  # the inner sequences first
        at = table[row, WORD]
        if table[row, KIND] != SEQUENCE or not active[row] or words[at] & OVER != 0:
            continue
        current = words[at + 1]
        following = -1
        over = False
        for inner in range(row + 1, table[row, END_ROW]):
            if table[inner, PARENT] == row:
                if table[inner, ROLE] == STEP + current:
                    over = table[inner, KIND] in (SEQUENCE, ONCE, UNTIL) and words[table[inner, WORD]] & OVER != 0
                elif table[inner, ROLE] == STEP + current + 1:
                    following = inner
        if over and following < 0:
            words[at] |= OVER
        elif over:
            words[at + 1] += 1
            begin_part(rules, words, active, following, watermark, event_time, last)


@compiled
def align_turns(rules: Rules, words: Any, other: Any) -> None:
    """Before words are merged: a trigger that is over in one window is over in both, and sequences continue with the later of
    their parts.
    """
    table = rules.table
    for row in range(len(table)):
        kind, at = table[row, KIND], table[row, WORD]
        if kind in (ONCE, UNTIL) and (words[at] | other[at]) & OVER != 0:
            for side in (words, other):
                reset_words(rules, side, at, row)
                side[at] |= OVER
        elif kind == SEQUENCE and words[at + 1] != other[at + 1]:
            mine, its = words[at + 1], other[at + 1]
            behind = words if mine < its else other
            reset_words(rules, behind, at, row)
            behind[at + 1] = max(mine, its)


@compiled
def merge_words(rules: Rules, words: Any, other: Any, watermark: int, last: int) -> None:
    """Merge the words of two windows; the last time of the merged window is *last*."""
    table = rules.table
    if rules.turns:
        other = other.copy()
        align_turns(rules, words, other)
    for row in range(len(table)):
        kind, at = table[row, KIND], table[row, WORD]
        if kind == COUNT:
            words[at] += other[at]
        elif kind in (FIRST_EVENT, FIRST_PROCESSING, EACH_PROCESSING):
            words[at] |= other[at]
            words[at + 1] = min(words[at + 1], other[at + 1])
        elif kind == EACH_EVENT:
            words[at] = (words[at] | other[at]) & READY  # the next element sets the end
            words[at + 1] = min(words[at + 1], other[at + 1])
        elif kind in (END_EVENT, END_PROCESSING):
            past = (watermark if kind == END_EVENT else rules.processing_time) >= last
            words[at] = (words[at] | other[at]) if past else 0
        elif kind in (SEQUENCE, ONCE, UNTIL):
            words[at] |= other[at]
        elif kind == USER_DEFINED:
            words[at] |= other[at] & READY
            words[at + 1] = min(words[at + 1], other[at + 1])
            words[at + 2] = min(words[at + 2], other[at + 2])
    for row in range(len(table)):
        if table[row, ROLE] == LATE and words[table[table[row, PARENT], WORD]] & OVER == 0:
            reset_words(rules, words, table[row, WORD], row)


# ---------------------------------------------------------------------- one pane


@uncounted
def join(log: Log, left: int, right: int, first_join: int) -> int:
    if left == NONE:
        return right
    if right == NONE:
        return left
    at: int = log.sizes[JOINS]
    log.left[at] = left
    log.right[at] = right
    log.sizes[JOINS] += 1
    return first_join + at


@uncounted
def close(panes: Panes, log: Log, pane: int) -> None:
    """Close the open segment of a pane and add it to the contents."""
    if panes.segment[pane] != NONE:
        n_panes, n_elements = len(panes.start), len(log.segment_of)
        panes.contents[pane] = join(log, panes.contents[pane], n_panes + panes.segment[pane], n_panes + n_elements)
        panes.segment[pane] = NONE


@uncounted
def purge(panes: Panes, log: Log, pane: int) -> None:
    panes.contents[pane] = NONE
    panes.segment[pane] = NONE
    panes.count[pane] = 0
    panes.unfired[pane] = 0


@uncounted
def drop(rules: Rules, panes: Panes, log: Log, pane: int) -> None:
    """Drop the pane; a later element starts a new one."""
    log.sizes[UNFIRED] += panes.unfired[pane]
    purge(panes, log, pane)
    panes.alive[pane] = False
    panes.firings[pane] = 0
    for word in range(len(rules.initial)):
        panes.words[pane, word] = rules.initial[word]


@uncounted
def take(panes: Panes, log: Log, pane: int, element: int) -> None:
    """Add an element to the contents."""
    if panes.segment[pane] == NONE:
        panes.segment[pane] = log.sizes[SEGMENTS]
        log.sizes[SEGMENTS] += 1
    log.segment_of[element] = panes.segment[pane]
    panes.count[pane] += 1
    panes.unfired[pane] += 1
    panes.alive[pane] = True


@jitable
def fire_if_ready(evaluation: PaneEvaluation, pane: int, moment: Moment, calls: Any) -> None:
    """Record a firing; there is room for it. *is_last*: the pane is dropped then."""
    rules, panes, log = evaluation.rules, evaluation.panes, evaluation.log
    words = panes.words[pane]
    fires, purges = False, False
    if is_ready(rules.table, words, evaluation.ready):
        reset_after_firing(rules, words, evaluation.live, evaluation.ready)
        if rules.turns:
            last = last_time(panes.start[pane], panes.end[pane], rules.resolution)
            take_turns(rules, words, evaluation.live, moment.watermark, moment.event_time, last)
        if calls is not None:
            calls.fired(pane, moment.watermark, evaluation.live)
        fires = panes.count[pane] > 0 or (rules.always_on_time and moment.firing_kind == ON_TIME_FIRING)
        purges = rules.purges
    if moment.is_last and not fires and rules.closing != DROP:
        fires = panes.unfired[pane] > 0 or rules.closing == FIRE_ALWAYS
    if fires:
        close(panes, log, pane)
        fired = log.sizes[FIRED]
        log.sizes[FIRED] += 1
        panes.firings[pane] += 1
        panes.unfired[pane] = 0
        row = log.firings[fired]
        row[PANE], row[CONTENTS] = pane, panes.contents[pane]
        row[STAGE], row[TIME], row[PLACE] = moment.stage, moment.time, moment.place
        row[FIRING_KIND], row[IS_LAST], row[FIRING_NUMBER] = moment.firing_kind, moment.is_last, panes.firings[pane]
        row[START], row[STOP] = panes.start[pane], panes.end[pane]
    if purges:
        purge(panes, log, pane)
    if calls is not None and calls.purges:
        calls.purges = False
        purge(panes, log, pane)


@jitable
def event_timers(evaluation: PaneEvaluation, pane: int, until: int, stage: int, calls: Any) -> int:
    """Fire the timers up to a watermark, in the order of time."""
    rules, panes, log, live = evaluation.rules, evaluation.panes, evaluation.log, evaluation.live
    table, words = rules.table, panes.words[pane]
    last = last_time(panes.start[pane], panes.end[pane], rules.resolution)
    cleanup = cleanup_time(last, rules.lateness)
    while panes.alive[pane]:
        time = min(first_timer(table, words, live, last, True), cleanup)
        # Never and the end of time are the same number: only the end of a pane is awaited there.
        if time > until or (time == NO_MOMENT and cleanup != NO_MOMENT):
            break
        if log.sizes[FIRED] >= len(log.firings):
            return NO_ROOM
        on_event_time(table, words, live, time, last, rules.ending)
        if calls is not None:
            calls.on_event_time(pane, time, live)
        kind = EARLY_FIRING if time < last else ON_TIME_FIRING if time == last else LATE_FIRING
        fire_if_ready(evaluation, pane, Moment(stage, time, NONE, kind, time >= cleanup, time, time), calls)
        if time >= cleanup:
            if calls is not None:
                calls.clear(pane)
            drop(rules, panes, log, pane)
    panes.watermark[pane] = max(panes.watermark[pane], until)
    return OK


@jitable
def advance_to(evaluation: PaneEvaluation, pane: int, until: int, calls: Any) -> int:
    """Advance the watermark to *until*, first past the watermark before the call."""
    before, watermark = evaluation.rules.before, evaluation.panes.watermark
    code: int = OK
    if watermark[pane] < before and until >= before:
        code = event_timers(evaluation, pane, before, STAGE_BEFORE, calls)
    if code == OK and until > watermark[pane]:
        stage = STAGE_BEFORE if until <= before else STAGE_AFTER
        code = event_timers(evaluation, pane, until, stage, calls)
    return code


@jitable
def processing_time_timers(evaluation: PaneEvaluation, pane: int, ending: bool, calls: Any) -> int:
    """Fire the timers up to the current processing time, in the order of time. *ending*: only the end of the window."""
    rules, panes, log, live = evaluation.rules, evaluation.panes, evaluation.log, evaluation.live
    table, words = rules.table, panes.words[pane]
    last = last_time(panes.start[pane], panes.end[pane], rules.resolution)
    cleanup = END_OF_TIME if rules.event else last
    while panes.alive[pane]:
        time = last if ending else min(first_timer(table, words, live, last, False), cleanup)
        if not ending and (time > rules.processing_time or time == NO_MOMENT):
            break
        if log.sizes[FIRED] >= len(log.firings):
            return NO_ROOM
        is_over = not rules.event and time >= last
        on_processing_time(table, words, live, time, rules.processing_time, last, ending, is_over)
        if calls is not None and not ending:
            calls.on_processing_time(pane, time, live)
        watermark = max(panes.watermark[pane], rules.before)  # the pane has not been read since the watermark advanced
        if rules.event:
            kind = EARLY_FIRING if watermark < last else LATE_FIRING
        else:
            kind = ON_TIME_FIRING if time >= last else EARLY_FIRING
        fire_if_ready(
            evaluation, pane, Moment(STAGE_PROCESSING_TIME, time, NONE, kind, is_over, watermark, watermark), calls
        )
        if is_over:
            if calls is not None:
                calls.clear(pane)
            drop(rules, panes, log, pane)
    return OK


@jitable
def new_element(
    evaluation: PaneEvaluation, elements: Elements, pane: int, element: int, watermark: int, calls: Any
) -> int:
    rules, panes, log, live = evaluation.rules, evaluation.panes, evaluation.log, evaluation.live
    if log.sizes[FIRED] >= len(log.firings):
        return NO_ROOM
    last = last_time(panes.start[pane], panes.end[pane], rules.resolution)
    take(panes, log, pane, element)
    time, stage = elements.times[element], elements.stages[element]
    add_element(rules, panes.words[pane], live, time, watermark, last, elements.distances, element)
    if calls is not None:
        calls.element(pane, element, watermark, live)
    if rules.event:
        kind = EARLY_FIRING if watermark < last else LATE_FIRING
    else:
        kind = EARLY_FIRING if rules.processing_time < last else ON_TIME_FIRING
    at = time if stage != STAGE_ELEMENTS else 0
    fire_if_ready(
        evaluation,
        pane,
        Moment(stage, at, elements.places[element], kind, False, watermark, max(watermark, time)),
        calls,
    )
    return OK


@jitable
def take_waiting(evaluation: PaneEvaluation, watermarks: Any, pane: int, first: int, stop: int) -> int:
    """Add the elements from *first* to *stop* at which nothing can fire, because the trigger has no part but the end of the
    window, which has not come. Returns the first other element.

    This does for most elements what :func:`advance_to` and :func:`new_element` do, in a tenth of the time.
    """
    rules, panes, log = evaluation.rules, evaluation.panes, evaluation.log
    last = last_time(panes.start[pane], panes.end[pane], rules.resolution)
    if len(rules.table) > 1 or rules.table[0, KIND] != END_EVENT or first == stop or watermarks[first] >= last:
        return first
    take(panes, log, pane, first)
    segment, element = panes.segment[pane], first + 1
    while element < stop and watermarks[element] < last:
        log.segment_of[element] = segment
        element += 1
    panes.count[pane] += element - first - 1
    panes.unfired[pane] += element - first - 1
    panes.words[pane, rules.table[0, WORD]] |= ARMED
    panes.watermark[pane] = max(panes.watermark[pane], watermarks[element - 1])
    return element


# ---------------------------------------------------------------------- all panes


@jitable
def begin_pane(evaluation: PaneEvaluation, pane: int, calls: Any) -> int:
    """Fire everything that has become due since the last call for the pane."""
    rules, panes = evaluation.rules, evaluation.panes
    panes.watermark[pane] = panes.seen[pane] if rules.in_order else rules.before
    if not panes.alive[pane]:
        return OK
    code: int = OK
    if rules.event and not rules.in_order and rules.before > panes.seen[pane]:
        code = event_timers(evaluation, pane, rules.before, STAGE_BEFORE, calls)
    if code == OK and rules.processing_time != END_OF_TIME:
        code = processing_time_timers(evaluation, pane, False, calls)
    return code


@jitable
def finish_pane(evaluation: PaneEvaluation, pane: int, calls: Any) -> int:
    """Advance time to the end of the call."""
    rules = evaluation.rules
    code: int = OK
    if rules.event:
        code = advance_to(evaluation, pane, rules.watermark, calls)
    elif not rules.event and rules.ending:
        code = processing_time_timers(evaluation, pane, True, calls)
    close(evaluation.panes, evaluation.log, pane)
    return code


@register_jitable
def aligned(rules: Rules, panes: Panes, log: Log, elements: Elements, calls: Any) -> int:
    """Windows that do not merge."""
    live = np.zeros(len(rules.table), np.bool_)
    ready = np.zeros(len(rules.table), np.bool_)
    return all_aligned(PaneEvaluation(rules, panes, log, live, ready), elements, calls)


@jitable
def all_aligned(evaluation: PaneEvaluation, elements: Elements, calls: Any) -> int:
    for pane in range(len(evaluation.panes.start)):
        if begin_pane(evaluation, pane, calls) != OK:
            return NO_ROOM
        first, stop = elements.first[pane], elements.first[pane + 1]
        if calls is None:
            first = take_waiting(evaluation, elements.watermarks, pane, first, stop)
        for element in range(first, stop):
            watermark = elements.watermarks[element]
            if advance_to(evaluation, pane, watermark, calls) != OK:
                return NO_ROOM
            if new_element(evaluation, elements, pane, element, watermark, calls) != OK:
                return NO_ROOM
        if finish_pane(evaluation, pane, calls) != OK:
            return NO_ROOM
    return OK


@jitable
def merge_sessions(
    evaluation: PaneEvaluation, slot_of: Any, low: int, met: int, watermark: int, start: int, end: int, calls: Any
) -> None:
    """Merge the panes in the slots from *low* to *met* into the first one, which grows to *start* and *end*."""
    rules, panes, log = evaluation.rules, evaluation.panes, evaluation.log
    pane = slot_of[low]
    last = last_time(start, end, rules.resolution)
    close(panes, log, pane)
    if met - low == 1:  # it grows, like a merge with nothing
        merge_words(rules, panes.words[pane], rules.initial, watermark, last)
    for slot in range(low + 1, met):
        other = slot_of[slot]
        merge_words(rules, panes.words[pane], panes.words[other], watermark, last)
        close(panes, log, other)
        n_panes, n_elements = len(panes.start), len(log.segment_of)
        panes.contents[pane] = join(log, panes.contents[pane], panes.contents[other], n_panes + n_elements)
        panes.count[pane] += panes.count[other]
        panes.unfired[pane] += panes.unfired[other]
        merge = log.merges[log.sizes[MERGES]]
        log.sizes[MERGES] += 1
        merge[SURVIVOR], merge[MERGED], merge[FIRED_BEFORE] = pane, other, log.sizes[FIRED]
        panes.firings[pane] = max(panes.firings[pane], panes.firings[other])
        purge(panes, log, other)
        panes.alive[other] = False
    panes.start[pane], panes.end[pane] = start, end
    if calls is not None:
        calls.merge(pane, slot_of[low + 1 : met])


@jitable
def advance_slots(evaluation: PaneEvaluation, slot_of: Any, n_slots: int, watermark: int, calls: Any) -> int:
    """Advance the watermark of the panes of a key. Returns the number of those that remain, or -1 if there is no room."""
    kept = 0
    for slot in range(n_slots):
        pane = slot_of[slot]
        if advance_to(evaluation, pane, watermark, calls) != OK:
            return -1
        if evaluation.panes.alive[pane]:
            slot_of[kept] = pane
            kept += 1
    return kept


@jitable
def first_slot(panes: Panes, slot_of: Any, n_slots: int, start: int) -> int:
    """The first of the panes of a key that does not end before *start*."""
    low, high = 0, n_slots
    while low < high:
        middle = (low + high) // 2
        if panes.end[slot_of[middle]] < start:
            low = middle + 1
        else:
            high = middle
    return low


@register_jitable
def sessions(
    rules: Rules, panes: Panes, log: Log, elements: Elements, old_at: Any, ends: Any, slot_of: Any, calls: Any
) -> int:
    """Windows that merge. Those of key k were old_at[k] to old_at[k + 1], in order of start. Pane len(panes) - len(elements) + e
    is for the window that element e may start, which ends at ends[e]. *slot_of* has room for the panes of a key.
    """
    live = np.zeros(len(rules.table), np.bool_)
    ready = np.zeros(len(rules.table), np.bool_)
    return all_sessions(PaneEvaluation(rules, panes, log, live, ready), elements, old_at, ends, slot_of, calls)


@jitable
def all_sessions(
    evaluation: PaneEvaluation, elements: Elements, old_at: Any, ends: Any, slot_of: Any, calls: Any
) -> int:
    rules, panes = evaluation.rules, evaluation.panes
    first_new = len(panes.start) - len(elements.times)
    for key in range(len(old_at) - 1):
        n_slots = 0  # slot_of[:n_slots]: the existing panes, in order of start
        watermark = BEFORE_TIME if rules.in_order else rules.before
        for pane in range(old_at[key], old_at[key + 1]):
            if begin_pane(evaluation, pane, calls) != OK:
                return NO_ROOM
            if panes.alive[pane]:
                slot_of[n_slots] = pane
                n_slots += 1
        for element in range(elements.first[key], elements.first[key + 1]):
            if elements.watermarks[element] > watermark:
                watermark = elements.watermarks[element]
                n_slots = advance_slots(evaluation, slot_of, n_slots, watermark, calls)
                if n_slots < 0:
                    return NO_ROOM
            start, end = elements.times[element], ends[element]
            low = first_slot(panes, slot_of, n_slots, start)
            met = low
            while met < n_slots and panes.start[slot_of[met]] <= end:
                met += 1
            if met == low:
                last = last_time(start, end, rules.resolution)
                if rules.event and cleanup_time(last, rules.lateness) <= watermark:
                    evaluation.log.late[element] = True
                    continue
                pane = first_new + element
                panes.start[pane], panes.end[pane] = start, end
                panes.watermark[pane] = watermark
                for slot in range(n_slots, low, -1):
                    slot_of[slot] = slot_of[slot - 1]
                slot_of[low] = pane
                n_slots += 1
            else:
                pane = slot_of[low]
                start = min(start, panes.start[pane])
                end = max(end, panes.end[slot_of[met - 1]], panes.end[pane])
                if met - low > 1 or start != panes.start[pane] or end != panes.end[pane]:
                    merge_sessions(evaluation, slot_of, low, met, watermark, start, end, calls)
                    for slot in range(met, n_slots):
                        slot_of[low + 1 + slot - met] = slot_of[slot]
                    n_slots -= met - low - 1
            if new_element(evaluation, elements, pane, element, watermark, calls) != OK:
                return NO_ROOM
            if not panes.alive[pane]:
                n_slots -= 1
                for slot in range(low, n_slots):
                    slot_of[slot] = slot_of[slot + 1]
        for slot in range(n_slots):
            if finish_pane(evaluation, slot_of[slot], calls) != OK:
                return NO_ROOM
    return OK


@entry
def next_timers(rules: Rules, panes: Panes, event_times: Any, processing_times: Any) -> None:
    """Compute the next event time and processing time of each pane."""
    live = np.zeros(len(rules.table), np.bool_)
    for pane in range(len(panes.start)):
        last = last_time(panes.start[pane], panes.end[pane], rules.resolution)
        words = panes.words[pane]
        processing_times[pane] = first_timer(rules.table, words, live, last, False)
        if rules.event:
            due = min(first_timer(rules.table, words, live, last, True), cleanup_time(last, rules.lateness))
            # A timer behind the watermark fires when the watermark advances.
            event_times[pane] = max(due, rules.watermark + 1) if rules.watermark != END_OF_TIME else due
        else:
            event_times[pane] = END_OF_TIME
            processing_times[pane] = min(processing_times[pane], last)


@entry
def levels_of(left: Any, right: Any, n_panes: int, n_elements: int, levels: Any) -> int:
    """Compute the depth of each join, where a segment on the right does not count, and return the maximum."""
    greatest = 0
    first_join = n_panes + n_elements
    for at in range(len(left)):
        level = 0
        if left[at] >= first_join:
            level = levels[left[at] - first_join]
        if right[at] >= first_join:
            level = max(level, levels[right[at] - first_join])
        levels[at] = level + 1
        greatest = max(greatest, level + 1)
    return greatest


aligned_compiled = entry(aligned)
sessions_compiled = entry(sessions)
