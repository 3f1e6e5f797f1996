"""A trigger as a table for :mod:`asterism.windows.kernels`: one row per part, each trigger before its parts.

The state of a trigger for a window is a row of 64-bit words; each part has a few of them.

The kernels are compiled with these numbers and cached until their own file changes: a change of a number here must be
accompanied by a change of that file. ``tests/architecture/test_kernel_numbers.py`` has the numbers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.columns.arrays import Ints
from asterism.columns.time import micros
from asterism.windows import triggers
from asterism.windows.triggers import Trigger

NO_MOMENT = 2**63 - 1
"""Represents a time that is not known yet."""


class TriggerPart(enum.IntEnum):
    """The kind of a row of the table. The texts below describe its words after the flags."""

    NEVER = 0
    COUNT = 1
    """the number of elements; no flags"""
    FIRST_EVENT = 2
    """the time that the watermark must pass"""
    FIRST_PROCESSING = 3
    END_EVENT = 4
    END_PROCESSING = 5
    EACH_EVENT = 6
    """the next multiple"""
    EACH_PROCESSING = 7
    DELTA = 8
    """the bits of the number at the last firing"""
    ALL = 9
    ANY = 10
    USER_DEFINED = 11
    """the first event-time timer; the first processing-time timer"""
    SEQUENCE = 12
    """the index of the current part"""
    ONCE = 13
    UNTIL = 14


WORDS = {
    TriggerPart.NEVER: (),
    TriggerPart.ALL: (),
    TriggerPart.ANY: (),
    TriggerPart.COUNT: (0,),
    TriggerPart.END_EVENT: (0,),
    TriggerPart.END_PROCESSING: (0,),
    TriggerPart.FIRST_EVENT: (0, NO_MOMENT),
    TriggerPart.FIRST_PROCESSING: (0, NO_MOMENT),
    TriggerPart.EACH_EVENT: (0, NO_MOMENT),
    TriggerPart.EACH_PROCESSING: (0, NO_MOMENT),
    TriggerPart.DELTA: (0, 0),
    TriggerPart.USER_DEFINED: (0, NO_MOMENT, NO_MOMENT),
    TriggerPart.SEQUENCE: (0, 0),
    TriggerPart.ONCE: (0,),
    TriggerPart.UNTIL: (0,),
}
"""The initial words of a part."""


class CallPhase(enum.IntEnum):
    """The stages of a call in which a window can fire, in this order."""

    BEFORE = 0
    """up to the watermark before the call"""
    PROCESSING_TIME = 1
    ELEMENTS = 2
    """with an element, at the watermark before the call"""
    AFTER = 3
    """on the way to the new watermark"""


PLAIN, EARLY, LATE, FINAL, STEP = range(5)
"""Roles: a part of a combination; the early or late trigger of a trigger that waits for the end of the window; the trigger with
which another one is over; STEP + n: part n of a sequence."""
KIND, NUMBER, PARENT, ROLE, WORD, END_ROW, END_WORD, COLUMN = range(8)
"""Columns of the table: a Part; its parameter (a count, microseconds); the row of the parent; the role; the first word; one past
the last row and the last word of its parts; the index of its distances, or of a user-defined trigger."""


@dataclass(frozen=True)
class TriggerTable:
    """:ivar rows: the parts, see above
    :ivar initial: the initial words of a window
    :ivar thresholds: the thresholds of the parts that compare distances, by COLUMN
    :ivar distances: their expressions
    :ivar user_defined: the user-defined triggers, by COLUMN
    """

    rows: Ints
    initial: Ints
    thresholds: npt.NDArray[np.float64]
    distances: tuple[str, ...]
    user_defined: tuple[Trigger, ...]
    purges: bool

    @property
    def turns(self) -> bool:
        """Whether there are parts that are over at some time."""
        return any(kind in (TriggerPart.SEQUENCE, TriggerPart.ONCE, TriggerPart.UNTIL) for kind in self.rows[:, KIND])


def trigger_table_of(trigger: Trigger) -> TriggerTable:
    """
    >>> both = triggers.All(triggers.CountTrigger.at_least(5), triggers.EventTimeTrigger.after_end_of_window())
    >>> trigger_table_of(both).rows[:, :4].tolist()
    [[9, 0, -1, 0], [1, 5, 0, 0], [4, 0, 0, 0]]
    """
    rows: list[list[int]] = []
    initial: list[int] = []
    thresholds: list[float] = []
    distances: list[str] = []
    user_defined: list[Trigger] = []

    def add(part: Trigger, parent: int, role: int, *, ends: bool = False) -> None:
        """*ends*: a sequence continues when the part is over."""
        while isinstance(part, triggers.PurgingTrigger):
            part = part.trigger
        if ends and not isinstance(part, triggers.OnceTrigger | triggers.UntilTrigger | triggers.Sequence):
            part = triggers.OnceTrigger(part)
        kind, number, column = _kind(part), 0, -1
        if isinstance(part, triggers.CountTrigger):
            number = part.count
        elif isinstance(part, triggers.EventTimeTrigger | triggers.ProcessingTimeTrigger) and part.delay is not None:
            number = micros(part.delay)
        elif isinstance(part, triggers.ContinuousEventTimeTrigger | triggers.ContinuousProcessingTimeTrigger):
            number = micros(part.interval)
        elif kind is TriggerPart.DELTA:
            assert isinstance(part, triggers.DeltaTrigger)
            assert isinstance(part.delta, str)
            column = len(distances)
            thresholds.append(float(part.threshold))
            distances.append(part.delta)
        elif kind is TriggerPart.USER_DEFINED:
            column = len(user_defined)
            user_defined.append(part)
        elif isinstance(part, triggers.Sequence):
            number = len(part.parts)
        at = len(rows)
        row = [int(kind), number, parent, role, len(initial), 0, 0, column]
        rows.append(row)
        initial.extend(WORDS[kind])
        if kind is not TriggerPart.USER_DEFINED:
            for inner, its_role in _inner(part):
                add(inner, at, its_role, ends=STEP <= its_role < STEP + number - 1 or (ends and its_role >= STEP))
        row[END_ROW], row[END_WORD] = len(rows), len(initial)

    add(trigger, -1, PLAIN)
    return TriggerTable(
        np.array(rows, np.int64),
        np.array(initial or [0], np.int64),
        np.array(thresholds, np.float64),
        tuple(distances),
        tuple(user_defined),
        trigger.purges,
    )


def _inner(part: Trigger) -> list[tuple[Trigger, int]]:
    if isinstance(part, triggers.EventTimeTrigger | triggers.ProcessingTimeTrigger):
        phases: list[tuple[Any, int]] = [(part.early, EARLY), (getattr(part, "late", None), LATE)]
        return [(inner, role) for inner, role in phases if inner is not None]
    if isinstance(part, triggers.Sequence):
        return [(inner, STEP + number) for number, inner in enumerate(part.parts)]
    if isinstance(part, triggers.UntilTrigger):
        return [(part.trigger, PLAIN), (part.end, FINAL)]
    return [(inner, PLAIN) for inner in part.parts]


_KINDS: dict[type[Trigger], TriggerPart] = {
    triggers.NeverTrigger: TriggerPart.NEVER,
    triggers.CountTrigger: TriggerPart.COUNT,
    triggers.EventTimeTrigger: TriggerPart.END_EVENT,
    triggers.ProcessingTimeTrigger: TriggerPart.END_PROCESSING,
    triggers.ContinuousEventTimeTrigger: TriggerPart.EACH_EVENT,
    triggers.ContinuousProcessingTimeTrigger: TriggerPart.EACH_PROCESSING,
    triggers.DeltaTrigger: TriggerPart.DELTA,
    triggers.All: TriggerPart.ALL,
    triggers.Any: TriggerPart.ANY,
    triggers.Sequence: TriggerPart.SEQUENCE,
    triggers.OnceTrigger: TriggerPart.ONCE,
    triggers.UntilTrigger: TriggerPart.UNTIL,
}


def _kind(part: Trigger) -> TriggerPart:
    if isinstance(part, triggers.EventTimeTrigger | triggers.ProcessingTimeTrigger) and part.delay is not None:
        return TriggerPart.FIRST_EVENT if isinstance(part, triggers.EventTimeTrigger) else TriggerPart.FIRST_PROCESSING
    if part.is_user_defined:
        return TriggerPart.USER_DEFINED
    return next(kind for of, kind in _KINDS.items() if isinstance(part, of))
