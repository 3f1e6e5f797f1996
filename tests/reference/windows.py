"""Windows and triggers, written to be believed: one element at a time, Python objects, nothing clever.

Times are integers, in whatever unit a test likes; ``end - 1`` is the last time of a window. A trigger's running part says whether
it is *ready*; a window fires when its trigger is, and then all parts are told. Elements are (key, time, value).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from asterism.windows import triggers as t

END = 2**63 - 1
BEFORE = -(2**63) + 1


# ---------------------------------------------------------------------- triggers


@dataclass
class Window:
    start: int
    end: int
    open: bool = True
    """The end is not part of it."""

    @property
    def last(self) -> int:
        return END if self.end == END else self.end - self.open


@dataclass(frozen=True)
class Now:
    """When a window fires. *moment*: the time of the element or the timer, if the watermark has not passed it yet."""

    watermark: int
    moment: int
    processing_time: int


class Running:
    """What a trigger remembers of one window."""

    is_ready = False

    def element(self, window: Window, time: int, value: Any, watermark: int, processing_time: int) -> None:
        """An element has been added to the window."""

    def watermark_at(self, window: Window, time: int, ending: bool) -> None:
        """Event time is *time*, one of the times that :meth:`event_times` names."""

    def on_processing_time(self, window: Window, time: int, now: int) -> None:
        """The clock shows *time*."""

    def event_times(self, window: Window) -> list[int]:
        return []

    def processing_times(self, window: Window) -> list[int]:
        return []

    def ready(self, window: Window) -> bool:
        return self.is_ready

    def fired(self, window: Window, now: Now) -> None:
        self.is_ready = False

    def merge(self, other: Any, window: Window, watermark: int, processing_time: int) -> None:
        """Go on for *window*, which this window and the other's have become."""
        raise NotImplementedError

    def begin(self, window: Window, now: Now) -> None:
        """Its turn in a sequence has come."""

    @property
    def is_over(self) -> bool:
        """Will it never be ready again?"""
        return False


class Never(Running):
    def merge(self, other: Any, window: Window, watermark: int, processing_time: int) -> None:
        pass


class Count(Running):
    def __init__(self, wanted: int) -> None:
        self.wanted, self.count = wanted, 0

    def element(self, window: Window, time: int, value: Any, watermark: int, processing_time: int) -> None:
        self.count += 1

    def ready(self, window: Window) -> bool:
        return self.count >= self.wanted

    def fired(self, window: Window, now: Now) -> None:
        self.count = 0

    def merge(self, other: Count, window: Window, watermark: int, processing_time: int) -> None:
        self.count += other.count


class AfterFirst(Running):
    """After the first element since the last firing, plus a delay: by event time, or by the clock."""

    def __init__(self, delay: int, event: bool) -> None:
        self.delay, self.event = delay, event
        self.due: int | None = None

    def element(self, window: Window, time: int, value: Any, watermark: int, processing_time: int) -> None:
        if self.due is None:
            self.due = (time if self.event else processing_time) + self.delay
        self.is_ready |= self.due <= (watermark if self.event else processing_time)

    def event_times(self, window: Window) -> list[int]:
        return [self.due] if self.event and self.due is not None and not self.is_ready else []

    def processing_times(self, window: Window) -> list[int]:
        return [self.due] if not self.event and self.due is not None and not self.is_ready else []

    def watermark_at(self, window: Window, time: int, ending: bool) -> None:
        self.is_ready |= self.event and self.due is not None and self.due <= time

    def on_processing_time(self, window: Window, time: int, now: int) -> None:
        self.is_ready |= not self.event and self.due is not None and self.due <= time

    def fired(self, window: Window, now: Now) -> None:
        self.is_ready, self.due = False, None

    def merge(self, other: AfterFirst, window: Window, watermark: int, processing_time: int) -> None:
        self.due = min((due for due in (self.due, other.due) if due is not None), default=None)
        self.is_ready |= other.is_ready


class AfterEnd(Running):
    """At the end of the window, with an early trigger before and a late one after."""

    def __init__(self, early: Running | None, late: Running | None, event: bool) -> None:
        self.early, self.late, self.event = early, late, event
        self.new_early, self.new_late = copy.deepcopy(early), copy.deepcopy(late)
        self.over = False  # has it fired at the end?
        self.awaited = False  # has an element come for which the end is awaited?

    def element(self, window: Window, time: int, value: Any, watermark: int, processing_time: int) -> None:
        if self.over and self.late is not None:
            self.late.element(window, time, value, watermark, processing_time)
        elif (watermark if self.event else processing_time) >= window.last:
            self.is_ready = True
        else:
            self.awaited = True
            if self.early is not None:
                self.early.element(window, time, value, watermark, processing_time)

    @property
    def phase(self) -> Running | None:
        return self.late if self.over else self.early

    def event_times(self, window: Window) -> list[int]:
        own = [window.last] if self.event and self.awaited and not self.over and not self.is_ready else []
        return own + (self.phase.event_times(window) if self.phase is not None else [])

    def processing_times(self, window: Window) -> list[int]:
        own = [window.last] if not self.event and self.awaited and not self.over and not self.is_ready else []
        return own + (self.phase.processing_times(window) if self.phase is not None else [])

    def watermark_at(self, window: Window, time: int, ending: bool) -> None:
        self.is_ready |= self.event and self.awaited and not self.over and time >= window.last
        if self.phase is not None:
            self.phase.watermark_at(window, time, ending)

    def on_processing_time(self, window: Window, time: int, now: int) -> None:
        self.is_ready |= not self.event and self.awaited and not self.over and time >= window.last
        if self.phase is not None:
            self.phase.on_processing_time(window, time, now)

    def ready(self, window: Window) -> bool:
        return self.is_ready or (self.phase is not None and self.phase.ready(window))

    def fired(self, window: Window, now: Now) -> None:
        if self.over and self.late is not None:
            self.late.fired(window, now)
        elif self.is_ready:
            self.over, self.awaited = True, False
            self.early, self.late = copy.deepcopy(self.new_early), copy.deepcopy(self.new_late)
        elif self.early is not None:
            self.early.fired(window, now)
        self.is_ready = False

    def begin(self, window: Window, now: Now) -> None:
        self.awaited = (now.watermark if self.event else now.processing_time) < window.last
        if self.early is not None:
            self.early.begin(window, now)

    def merge(self, other: AfterEnd, window: Window, watermark: int, processing_time: int) -> None:
        """Where the merged window has ended too, the late phase goes on; otherwise its end is still to come."""
        past = (watermark if self.event else processing_time) >= window.last
        self.over = (self.over or other.over) and past
        self.is_ready = (self.is_ready or other.is_ready) and past
        self.awaited = (self.awaited or other.awaited) and past
        for mine, its in ((self.early, other.early), (self.late, other.late)):
            if mine is not None:
                mine.merge(its, window, watermark, processing_time)
        if not self.over:
            self.late = copy.deepcopy(self.new_late)


class ContinuousEvent(Running):
    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.next: int | None = None
        self.end_awaited = False

    def element(self, window: Window, time: int, value: Any, watermark: int, processing_time: int) -> None:
        if watermark >= window.last:
            self.is_ready = True
            return
        self.end_awaited = True
        if self.next is None:
            self.next = time // self.interval * self.interval + self.interval

    def event_times(self, window: Window) -> list[int]:
        own = [window.last] if self.end_awaited else []
        return own + ([self.next] if self.next is not None and self.next < window.last else [])

    def watermark_at(self, window: Window, time: int, ending: bool) -> None:
        if self.end_awaited and time >= window.last:
            self.end_awaited, self.is_ready = False, True
        elif self.next is not None and self.next <= time and self.next < window.last:
            self.is_ready = True
            self.next += self.interval
            if ending and window.last == END:
                self.next = None

    def begin(self, window: Window, now: Now) -> None:
        if now.watermark < window.last:
            self.end_awaited = True
            if now.moment != BEFORE:
                self.next = now.moment // self.interval * self.interval + self.interval

    def merge(self, other: ContinuousEvent, window: Window, watermark: int, processing_time: int) -> None:
        self.next = min((next_ for next_ in (self.next, other.next) if next_ is not None), default=None)
        self.is_ready |= other.is_ready
        self.end_awaited = False  # the element that comes next sees to it


class ContinuousProcessing(Running):
    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.next: int | None = None

    def element(self, window: Window, time: int, value: Any, watermark: int, processing_time: int) -> None:
        if self.next is None:
            self.next = processing_time // self.interval * self.interval + self.interval

    def processing_times(self, window: Window) -> list[int]:
        return [self.next] if self.next is not None else []

    def on_processing_time(self, window: Window, time: int, now: int) -> None:
        if self.next is not None and self.next <= time:
            self.is_ready = True
            self.next = now // self.interval * self.interval + self.interval

    def begin(self, window: Window, now: Now) -> None:
        self.next = now.processing_time // self.interval * self.interval + self.interval

    def merge(self, other: ContinuousProcessing, window: Window, watermark: int, processing_time: int) -> None:
        self.next = min((next_ for next_ in (self.next, other.next) if next_ is not None), default=None)
        self.is_ready |= other.is_ready


class Delta(Running):
    def __init__(self, threshold: float, distance: Any) -> None:
        self.threshold, self.distance = threshold, distance
        self.last: Any = None

    def element(self, window: Window, time: int, value: Any, watermark: int, processing_time: int) -> None:
        if value is None:
            return
        if self.last is None:
            self.last = value
        elif self.distance(self.last, value) > self.threshold:
            self.last, self.is_ready = value, True


class Combination(Running):
    def __init__(self, parts: list[Running], join: Any) -> None:
        self.parts, self.join = parts, join

    def element(self, *args: Any) -> None:
        for part in self.parts:
            part.element(*args)

    def watermark_at(self, *args: Any) -> None:
        for part in self.parts:
            part.watermark_at(*args)

    def on_processing_time(self, *args: Any) -> None:
        for part in self.parts:
            part.on_processing_time(*args)

    def event_times(self, window: Window) -> list[int]:
        return [time for part in self.parts for time in part.event_times(window)]

    def processing_times(self, window: Window) -> list[int]:
        return [time for part in self.parts for time in part.processing_times(window)]

    def ready(self, window: Window) -> bool:
        return bool(self.join(part.ready(window) for part in self.parts))

    def fired(self, window: Window, now: Now) -> None:
        for part in self.parts:
            part.fired(window, now)

    def merge(self, other: Combination, window: Window, watermark: int, processing_time: int) -> None:
        for mine, its in zip(self.parts, other.parts, strict=True):
            mine.merge(its, window, watermark, processing_time)

    def begin(self, window: Window, now: Now) -> None:
        for part in self.parts:
            part.begin(window, now)


class Until(Combination):
    """Its only or first part, until the last one has fired."""

    def __init__(self, parts: list[Running]) -> None:
        super().__init__(parts, any)
        self.over = False

    def fired(self, window: Window, now: Now) -> None:
        if not self.over and self.parts[-1].ready(window):
            self.over, self.parts = True, []
        for part in self.parts[:1]:  # the other one waits from the beginning
            part.fired(window, now)

    def merge(self, other: Until, window: Window, watermark: int, processing_time: int) -> None:  # type: ignore[override]
        if self.over or other.over:
            self.over, self.parts = True, []
        else:
            super().merge(other, window, watermark, processing_time)

    @property
    def is_over(self) -> bool:
        return self.over


class Turns(Running):
    """One after the other. All but the last one end."""

    def __init__(self, parts: list[Running]) -> None:
        self.all, self.turn = parts, 0

    @property
    def parts(self) -> list[Running]:
        return [self.all[self.turn]]

    def element(self, *args: Any) -> None:
        self.all[self.turn].element(*args)

    def watermark_at(self, *args: Any) -> None:
        self.all[self.turn].watermark_at(*args)

    def on_processing_time(self, *args: Any) -> None:
        self.all[self.turn].on_processing_time(*args)

    def event_times(self, window: Window) -> list[int]:
        return self.all[self.turn].event_times(window)

    def processing_times(self, window: Window) -> list[int]:
        return self.all[self.turn].processing_times(window)

    def ready(self, window: Window) -> bool:
        return self.all[self.turn].ready(window)

    def fired(self, window: Window, now: Now) -> None:
        self.all[self.turn].fired(window, now)
        if self.all[self.turn].is_over and self.turn + 1 < len(self.all):
            self.turn += 1
            self.all[self.turn].begin(window, now)

    def begin(self, window: Window, now: Now) -> None:
        self.all[self.turn].begin(window, now)

    def merge(self, other: Turns, window: Window, watermark: int, processing_time: int) -> None:
        """The one that is behind begins the turn of the other, in which it has seen nothing yet."""
        self.turn = other.turn = max(self.turn, other.turn)
        self.all[self.turn].merge(other.all[self.turn], window, watermark, processing_time)

    @property
    def is_over(self) -> bool:
        return self.turn + 1 == len(self.all) and self.all[-1].is_over


def running(trigger: t.Trigger, unit: Any, ends: bool = False) -> Running:
    """The running part of a trigger. *unit* is what a whole number of time stands for. *ends*: with its first firing, if nothing
    else says when.
    """
    if ends and isinstance(trigger, t.PurgingTrigger):
        return running(trigger.trigger, unit, ends)
    if ends and not isinstance(trigger, t.OnceTrigger | t.UntilTrigger | t.Sequence):
        return Until([running(trigger, unit)])
    match trigger:
        case t.OnceTrigger(inner):
            return Until([running(inner, unit)])
        case t.UntilTrigger(inner, end):
            return Until([running(inner, unit), running(end, unit)])
        case t.Sequence():
            last = len(trigger.parts) - 1
            return Turns([running(part, unit, ends or n < last) for n, part in enumerate(trigger.parts)])
        case t.CountTrigger(count):
            return Count(count)
        case t.EventTimeTrigger(None, early, late):
            parts = [None if part is None else running(part, unit) for part in (early, late)]
            return AfterEnd(parts[0], parts[1], event=True)
        case t.EventTimeTrigger(delay):
            return AfterFirst(delay // unit, event=True)
        case t.ProcessingTimeTrigger(None, early):
            return AfterEnd(None if early is None else running(early, unit), None, event=False)
        case t.ProcessingTimeTrigger(delay):
            return AfterFirst(delay // unit, event=False)
        case t.ContinuousEventTimeTrigger(interval):
            return ContinuousEvent(interval // unit)
        case t.ContinuousProcessingTimeTrigger(interval):
            return ContinuousProcessing(interval // unit)
        case t.DeltaTrigger(threshold, delta):
            return Delta(threshold, (lambda a, b: abs(b - a)) if isinstance(delta, str) else delta)
        case t.All() | t.Any():
            return Combination([running(p, unit) for p in trigger.parts], all if isinstance(trigger, t.All) else any)
        case t.PurgingTrigger(inner):
            return running(inner, unit)
        case t.NeverTrigger():
            return Never()
    raise NotImplementedError(trigger)


def tell_over(part: Running) -> None:
    """The window is over, in processing time."""
    if isinstance(part, ContinuousProcessing) and part.next is not None:
        part.is_ready, part.next = True, None
    for inner in getattr(part, "parts", ()):
        tell_over(inner)
    if isinstance(part, AfterEnd) and part.phase is not None:
        tell_over(part.phase)


# ---------------------------------------------------------------------- windows


@dataclass
class Pane:
    key: Any
    window: Window
    trigger: Running
    contents: list[tuple[int, Any]] = field(default_factory=list)
    firings: int = 0
    taken: int = 0
    """How many elements its trigger has seen, evicted or not, since the window was purged."""
    unfired: int = 0
    """How many of the elements have been in no firing."""
    identity: tuple[int, int] = (0, 0)
    """The window of the element that began it."""
    replaces: list[tuple[int, int]] = field(default_factory=list)
    """What has been merged into it and had fired, and no firing has said so."""


@dataclass(frozen=True)
class Firing:
    key: Any
    start: int
    end: int
    number: int
    kind: str
    last: bool
    values: tuple[Any, ...]
    identity: tuple[int, int] = (0, 0)
    replaces: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        window = "global" if self.end == END else f"[{self.start},{self.end})"
        return f"{self.key} {window} #{self.number} {self.kind}{'!' if self.last else ''}: " + " ".join(
            map(str, self.values)
        )


class Reference:
    """:param assign: (time, value) -> windows
    :param evict: (contents) -> those that stay
    :param event: event time; otherwise windows, and the times of elements, are those of the clock
    :param in_order: elements wait for the watermark
    :param closing: "drop", "fire_if_non_empty" or "fire_always"
    :param always_on_time: a window fires on time though it is empty
    """

    def __init__(
        self, assign: Any, trigger: t.Trigger, *, unit: Any, event: bool = True, merges: bool = False, lateness: int = 0,
        evict: Any = None, evict_after: bool = False, in_order: bool = False, closing: str = "drop",
        always_on_time: bool = False,
    ) -> None:  # fmt: skip
        self.closing, self.always_on_time, self.unfired = closing, always_on_time, 0
        self.assign, self.trigger, self.unit, self.event, self.merges = assign, trigger, unit, event, merges
        self.lateness, self.evict, self.evict_after, self.in_order = lateness, evict, evict_after, in_order
        # Sessions that touch are one: in order, they must wait for what begins at their end.
        self.open = event and not (merges and in_order)
        self.watermark, self.processing_time = BEFORE, 0
        self.panes: list[Pane] = []
        self.waiting: list[tuple[Any, int, Any]] = []
        self.out: list[Firing] = []
        self.late: list[tuple[Any, int, Any]] = []
        self.ending = False

    # -- what happens

    def element(self, key: Any, time: int, value: Any) -> None:
        if not self.event:
            time = self.processing_time
        if self.in_order and time > self.watermark:
            self.waiting.append((key, time, value))
        else:
            self._element(key, time, value)

    def move_watermark(self, to: int) -> None:
        if to <= self.watermark:
            return
        self.ending = to == END
        for element in sorted((e for e in self.waiting if e[1] <= to), key=lambda e: e[1]):
            self._pass_event_time(element[1] - 1)
            self._element(*element)
        self.waiting = [e for e in self.waiting if e[1] > to]
        self._pass_event_time(to)

    def advance_processing_time(self, to: int) -> None:
        self.processing_time = to
        while True:
            due = [
                (time, n) for n, pane in enumerate(self.panes) for time in self._processing_times(pane) if time <= to
            ]
            if not due:
                return
            time, n = min(due)
            pane = self.panes[n]
            cleanup = not self.event and time >= pane.window.last
            pane.trigger.on_processing_time(pane.window, time, to)
            if cleanup:
                tell_over(pane.trigger)
            if self.event:
                kind = "early" if self.watermark < pane.window.last else "late"
            else:
                kind = "on_time" if time >= pane.window.last else "early"
            self._fire_if_ready(pane, kind, cleanup, Now(self.watermark, self.watermark, self.processing_time))
            if cleanup:
                self._drop(pane)

    def end(self) -> None:
        """Nothing comes any more."""
        if self.event:
            self.move_watermark(END)
            return
        for pane in list(self.panes):
            self._end_in_processing_time(pane)
            self._drop(pane)

    # -- how

    def _end_in_processing_time(self, pane: Pane) -> None:
        """The trigger learns only the end of the window: no time passes."""

        def tell(part: Running) -> None:
            if isinstance(part, AfterEnd) and not part.event:
                part.is_ready |= part.awaited and not part.over
            for inner in getattr(part, "parts", ()):
                tell(inner)

        tell(pane.trigger)
        tell_over(pane.trigger)
        self._fire_if_ready(pane, "on_time", True, Now(self.watermark, self.watermark, self.processing_time))

    def _drop(self, pane: Pane) -> None:
        self.panes.remove(pane)
        self.unfired += pane.unfired

    def _processing_times(self, pane: Pane) -> list[int]:
        cleanup = [pane.window.last] if not self.event and pane.window.last != END else []
        return pane.trigger.processing_times(pane.window) + cleanup

    def _cleanup(self, window: Window) -> int:
        return min(window.last + self.lateness, END)

    def _pass_event_time(self, to: int) -> None:
        if to <= self.watermark:
            return
        while True:
            due = []
            for n, pane in enumerate(self.panes):
                times = [*pane.trigger.event_times(pane.window), self._cleanup(pane.window)]
                due += [(time, n) for time in times if time <= to and self.event]
            if not due:
                break
            time, n = min(due)
            pane = self.panes[n]
            pane.trigger.watermark_at(pane.window, time, self.ending)
            cleanup = time >= self._cleanup(pane.window)
            kind = "early" if time < pane.window.last else "on_time" if time == pane.window.last else "late"
            self._fire_if_ready(pane, kind, cleanup, Now(time, time, self.processing_time))
            if cleanup:
                self._drop(pane)
        self.watermark = to

    def _element(self, key: Any, time: int, value: Any) -> None:
        taken = False
        for start, end in self.assign(time, value):
            window = Window(start, end, self.open)
            pane = self._merged(key, window) if self.merges else self._pane(key, window)
            if self.event and self._cleanup(pane.window) <= self.watermark:
                self.panes.remove(pane)
                continue
            taken = True
            pane.contents.append((time, value))
            pane.taken += 1
            pane.unfired += 1
            pane.trigger.element(pane.window, time, value, self.watermark, self.processing_time)
            if self.event:
                kind = "early" if self.watermark < pane.window.last else "late"
            else:
                kind = "early" if self.processing_time < pane.window.last else "on_time"
            self._fire_if_ready(pane, kind, False, Now(self.watermark, max(self.watermark, time), self.processing_time))
            if not self.event:
                self.advance_processing_time(self.processing_time)
        if not taken:
            self.late.append((key, time, value))

    def _pane(self, key: Any, window: Window) -> Pane:
        for pane in self.panes:
            if pane.key == key and pane.window == window:
                return pane
        pane = Pane(key, window, running(self.trigger, self.unit), identity=(window.start, window.end))
        self.panes.append(pane)
        return pane

    def _merged(self, key: Any, window: Window) -> Pane:
        """The pane of a session window, made one with those that it overlaps or touches."""
        met = [p for p in self.panes if p.key == key and p.window.start <= window.end and window.start <= p.window.end]
        met.sort(key=lambda pane: pane.window.start)
        if not met:
            return self._pane(key, window)
        whole = Window(min(window.start, met[0].window.start), max(window.end, *(p.window.end for p in met)), self.open)
        if len(met) == 1 and met[0].window == whole:
            return met[0]
        first = met[0]
        for other in met[1:]:
            first.trigger.merge(other.trigger, whole, self.watermark, self.processing_time)
            first.contents += other.contents
            first.taken += other.taken
            first.unfired += other.unfired
            first.replaces += other.replaces + ([other.identity] if other.firings else [])
            first.firings = max(first.firings, other.firings)
            self.panes.remove(other)
        if len(met) == 1:  # it grows: the same as to merge with nothing
            first.trigger.merge(running(self.trigger, self.unit), whole, self.watermark, self.processing_time)
        first.window = whole
        return first

    def _fire_if_ready(self, pane: Pane, kind: str, last: bool, now: Now) -> None:
        """*last*: the window is dropped then."""
        is_ready = pane.trigger.ready(pane.window)
        if is_ready:
            pane.trigger.fired(pane.window, now)
        contents = pane.contents
        fires = is_ready and (pane.taken > 0 or (self.always_on_time and kind == "on_time"))
        if last and not fires:
            fires = self.closing == "fire_always" or (self.closing == "fire_if_non_empty" and pane.unfired > 0)
        if fires:
            if self.evict is not None and not self.evict_after:
                contents = pane.contents = self.evict(contents)
            pane.firings += 1
            pane.unfired = 0
            values = tuple(value for _, value in contents)
            window = pane.window
            identity, replaces = pane.identity, tuple(pane.replaces)
            pane.replaces = []
            self.out.append(
                Firing(pane.key, window.start, window.end, pane.firings, kind, last, values, identity, replaces)
            )
            if self.evict is not None and self.evict_after:
                pane.contents = self.evict(contents)
        if is_ready and self.trigger.purges:
            pane.contents, pane.taken, pane.unfired = [], 0, 0
