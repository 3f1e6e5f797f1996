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

    def fired(self, window: Window) -> None:
        self.is_ready = False

    def merge(self, other: Any, window: Window, watermark: int, processing_time: int) -> None:
        """Go on for *window*, which this window and the other's have become."""
        raise NotImplementedError


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

    def fired(self, window: Window) -> None:
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

    def fired(self, window: Window) -> None:
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

    def fired(self, window: Window) -> None:
        if self.over and self.late is not None:
            self.late.fired(window)
        elif self.is_ready:
            self.over, self.awaited = True, False
            self.early, self.late = copy.deepcopy(self.new_early), copy.deepcopy(self.new_late)
        elif self.early is not None:
            self.early.fired(window)
        self.is_ready = False

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

    def fired(self, window: Window) -> None:
        for part in self.parts:
            part.fired(window)

    def merge(self, other: Combination, window: Window, watermark: int, processing_time: int) -> None:
        for mine, its in zip(self.parts, other.parts, strict=True):
            mine.merge(its, window, watermark, processing_time)


def running(trigger: t.Trigger, unit: Any) -> Running:
    """The running part of a trigger. *unit* is what a whole number of time stands for."""
    match trigger:
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


@dataclass(frozen=True)
class Firing:
    key: Any
    start: int
    end: int
    number: int
    kind: str
    last: bool
    values: tuple[Any, ...]

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
    """

    def __init__(
        self, assign: Any, trigger: t.Trigger, *, unit: Any, event: bool = True, merges: bool = False, lateness: int = 0,
        evict: Any = None, evict_after: bool = False, in_order: bool = False,
    ) -> None:  # fmt: skip
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
            self._fire_if_ready(pane, kind, cleanup)
            if cleanup:
                self.panes.remove(pane)

    def end(self) -> None:
        """Nothing comes any more."""
        if self.event:
            self.move_watermark(END)
            return
        for pane in self.panes:
            self._end_in_processing_time(pane)
        self.panes = []

    # -- how

    def _end_in_processing_time(self, pane: Pane) -> None:
        """Only the end of the window is told to the trigger: no time goes by."""

        def tell(part: Running) -> None:
            if isinstance(part, AfterEnd) and not part.event:
                part.is_ready |= part.awaited and not part.over
            for inner in getattr(part, "parts", ()):
                tell(inner)

        tell(pane.trigger)
        tell_over(pane.trigger)
        self._fire_if_ready(pane, "on_time", True)

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
            self._fire_if_ready(pane, kind, cleanup)
            if cleanup:
                self.panes.remove(pane)
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
            pane.trigger.element(pane.window, time, value, self.watermark, self.processing_time)
            if self.event:
                kind = "early" if self.watermark < pane.window.last else "late"
            else:
                kind = "early" if self.processing_time < pane.window.last else "on_time"
            self._fire_if_ready(pane, kind, False)
            if not self.event:
                self.advance_processing_time(self.processing_time)
        if not taken:
            self.late.append((key, time, value))

    def _pane(self, key: Any, window: Window) -> Pane:
        for pane in self.panes:
            if pane.key == key and pane.window == window:
                return pane
        pane = Pane(key, window, running(self.trigger, self.unit))
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
            first.firings = max(first.firings, other.firings)
            self.panes.remove(other)
        if len(met) == 1:  # it grows: the same as to merge with nothing
            first.trigger.merge(running(self.trigger, self.unit), whole, self.watermark, self.processing_time)
        first.window = whole
        return first

    def _fire_if_ready(self, pane: Pane, kind: str, last: bool) -> bool:
        if not pane.trigger.ready(pane.window):
            return False
        pane.trigger.fired(pane.window)
        contents = pane.contents
        if self.evict is not None and not self.evict_after:
            contents = pane.contents = self.evict(contents)
        if not contents:
            return False
        pane.firings += 1
        values = tuple(value for _, value in contents)
        self.out.append(Firing(pane.key, pane.window.start, pane.window.end, pane.firings, kind, last, values))
        if self.evict is not None and self.evict_after:
            pane.contents = self.evict(contents)
        if self.trigger.purges:
            pane.contents = []
        return True
