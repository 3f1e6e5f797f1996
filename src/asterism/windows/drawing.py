"""Windows and triggers as drawings: the effect of a policy on elements, watermarks and processing time, as SVG.

Event time runs from left to right, and the steps from top to bottom: elements that arrive, and advances of the watermark and
of processing time. Below each step are its firings, as bars as long as their windows. The firings are computed by
:class:`~asterism.windows.operator.WindowOperator`, which runs the steps, so a drawing shows the actual behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from string import ascii_lowercase
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from asterism.arguments import expect, expect_options, expect_string
from asterism.columns.groups import KEY_HASH
from asterism.columns.time import END_OF_TIME
from asterism.errors import StreamDefinitionError
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.text import svg
from asterism.text.printable import duration, one_line
from asterism.text.view import SvgDrawing
from asterism.windows import triggers
from asterism.windows.arguments import code
from asterism.windows.assigners import GlobalWindows, SessionWindows, TumblingWindows, Windows, assigned
from asterism.windows.operator import LATE_ELEMENTS, WindowOperator
from asterism.windows.plan import FIRINGS
from asterism.windows.spec import FiringOptions, WindowOperatorOptions

MAX_STEPS = 300
"""Maximum number of elements and advances of time in a drawing."""
MAX_FIRINGS = 12
"""Maximum number of firings per step; further ones are only counted."""
MAX_LANES = 8
"""Maximum number of windows above each other; further ones are omitted."""
MAX_BANDS = 24
"""Maximum number of windows with start and end lines; more lines would merge into a grey area."""
MAX_CONTENTS = 44
"""Maximum length of the contents of a firing; the tooltip has the full text."""

MAX_TIME = 2 * 10**14
"""Maximum distance of a time in a step from 1970, in milliseconds."""

_STEP = "in 1@3 2@4.5, watermark 9.999, processing_time 12, end"
_UNITS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME = r"-?\d+(?:\.\d+)?(?:ms|s|min|h|d)?"
_ELEMENT = re.compile(rf"([a-z])?(-?\d+(?:\.\d+)?|null)?(?:@({_TIME}))?(?:\+({_TIME}))?")
_TICKS = [
    *(ten * factor for ten in (1, 10, 100) for factor in (1, 2, 5)),
    *(unit * factor for unit in (1_000, 60_000) for factor in (1, 2, 5, 10, 15, 30)),
    *(3_600_000 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400_000 * ten * factor for ten in (1, 10, 100, 1_000) for factor in (1, 2, 5)),
]
PLOT, HIGH, LOW, DOT = 560, 26, 21, 9  # width of the plot, height of rows of elements and of other rows, radius
BOLD = 0.62  # approximate width of a bold character
KINDS = {
    "early": (svg.BLUE, svg.PALE_BLUE),
    "on_time": (svg.GREEN, svg.PALE_GREEN),
    "late": (svg.AMBER, svg.PALE_AMBER),
}


# ---------------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class _DrawnElement:
    key: str
    value: float | None
    time: int
    gap: int | None

    def __str__(self) -> str:
        return self.key + _value(self.value)


@dataclass(frozen=True, slots=True)
class _Move:
    what: str
    """watermark, processing_time or end"""
    to: int = END_OF_TIME


def _parsed(steps: str) -> list[_DrawnElement | _Move]:
    """Parse steps, with times and gaps in milliseconds. The expectations of a transcript are ignored."""
    drawn: list[_DrawnElement | _Move] = []
    for written in steps.splitlines():
        word, _, rest = written.split("#")[0].strip().partition(" ")
        match word:
            case "in":
                drawn += [_element(element) for element in rest.split()]
            case "watermark" | "processing_time":
                drawn.append(_Move(word, _millis(rest.strip(), written)))
            case "end":
                drawn.append(_Move(word))
            case "fires" | "late" | "":
                continue
            case _:
                raise StreamDefinitionError(f"not a step of a drawing: {one_line(written, 60)!r}", hint=_STEP)
    if len(drawn) > MAX_STEPS:
        raise StreamDefinitionError(
            f"a drawing can show at most {MAX_STEPS:,} elements and changes of time, not {len(drawn):,}",
            hint="use fewer elements; ten are usually enough",
        )
    return drawn


def _element(text: str) -> _DrawnElement:
    parts = _ELEMENT.fullmatch(text)
    if parts is None or not text:
        raise StreamDefinitionError(
            f"not an element of a drawing: {one_line(text, 60)!r}",
            "An element has a key (a letter), a value, a time and a gap; each is optional.",
            "3, a3@4.5, 3@10min, a3@1+20s",
        )
    key, value, time, gap = parts.groups()
    return _DrawnElement(
        key or "",
        None if value in (None, "null") else float(value),
        _millis(time or "0", text),
        None if gap is None else _millis(gap, text),
    )


def _millis(text: str, where: str) -> int:
    number = re.fullmatch(r"(-?[\d.]+)([a-z]*)", text) if re.fullmatch(_TIME, text) else None
    time = None if number is None else float(number[1]) * _UNITS[number[2] or "s"]
    if time is None or abs(time) > MAX_TIME:
        raise StreamDefinitionError(
            f"not a time: {one_line(text, 20)!r} in {one_line(where, 60)!r}", hint="4.5, 10s, 2h"
        )
    return round(time)


def _value(value: float | None) -> str:
    return "null" if value is None else f"{value:g}"


def _seconds(time: int) -> str:
    return f"{time / 1000:.3f}".rstrip("0").rstrip(".")


# ---------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class _Firing:
    key: str
    start: int | None
    """None for a global window, like the end"""
    end: int | None
    number: int
    kind: str
    last: bool
    values: tuple[str, ...]

    @property
    def contents(self) -> str:
        return " ".join(self.values) or "nothing"

    def __str__(self) -> str:
        """The notation of transcripts."""
        window = "global" if self.end is None else f"[{_seconds(self.start or 0)},{_seconds(self.end)})"
        key = self.key + " " if self.key else ""
        return f"fires {key}{window} #{self.number} {self.kind}{'!' * self.last}: {' '.join(self.values)}".rstrip()


@dataclass(slots=True)
class _DrawnEvent:
    """A step and its effects."""

    step: _DrawnElement | _Move
    time: int
    """of an element, or the new time"""
    windows: list[tuple[int, int]] = field(default_factory=list)
    behind: bool = False
    """its windows had ended"""
    firings: list[_Firing] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


class _Play:
    """The operator, with its state and time."""

    def __init__(
        self,
        windows: Windows,
        trigger: triggers.Trigger | None,
        *,
        event_time: bool,
        value: str,
        **options: Unpack[WindowOperatorOptions],
    ) -> None:
        self.schema = pa.schema({"k": "string", "t": "int64", value: "float64", "gap": "float64"})
        self.event_time, self.value = event_time, value

        def values(rows: pa.Table, _: triggers.TimeSpan) -> dict[str, list[float | None]]:
            return {"values": rows.column(value).to_pylist()}

        options |= {"late_output": True, "function": values, "output": pa.schema({"values": pa.list_(pa.float64())})}
        time = "t" if event_time else None
        self.operator = WindowOperator(windows, self.schema, keys=["k"], time=time, trigger=trigger, **options)
        self.store = MemoryStore()
        self.now = Now()

    def run(self, steps: list[_DrawnElement | _Move]) -> Iterator[_DrawnEvent]:
        for step in steps:
            if isinstance(step, _DrawnElement):
                time = step.time if self.event_time else self.now.processing_time // 1000
                event = _DrawnEvent(step, time, self._windows(step, time))
                ends = [end for _, end in event.windows]
                event.behind = self.event_time and bool(ends) and max(ends) * 1000 - 1000 <= self.now.watermark
                self._call(event, step)
            else:
                event = _DrawnEvent(step, step.to)
                micros = END_OF_TIME if step.what == "end" else step.to * 1000
                watermark = self.now.watermark if step.what == "processing_time" else max(self.now.watermark, micros)
                processing_time = self.now.processing_time
                if step.what != "watermark":
                    processing_time = max(processing_time, micros)
                self.now = Now(watermark, processing_time)
                self._call(event, None)
            yield event

    def _windows(self, element: _DrawnElement, time: int) -> list[tuple[int, int]]:
        windows = self.operator.spec.windows
        if windows.is_global:
            return []
        if isinstance(windows, SessionWindows) and windows.dynamic_gap is not None:
            return [(time, time + (element.gap or 0))]
        _, starts, ends = assigned(windows, np.array([time * 1000]))
        return [(int(start) // 1000, int(end) // 1000) for start, end in zip(starts, ends, strict=True)]

    def _call(self, event: _DrawnEvent, element: _DrawnElement | None) -> None:
        arrivals = []
        if element is not None:
            gap = None if element.gap is None else element.gap / 1000
            row = {"k": element.key, "t": event.time, self.value: element.value, "gap": gap}
            table = pa.Table.from_pylist([row], self.schema).append_column(KEY_HASH, pa.array([0]))
            arrivals = [Arrival(EVENTS, self.operator.prepare(EVENTS, table))]
        outputs = self.operator.process(self.store, arrivals, self.now).outputs
        for row in outputs.get(FIRINGS, pa.table({})).to_pylist():
            start, end = (_moment(row[name]) for name in ("window_start", "window_end"))
            values = tuple(map(_value, row["values"]))
            event.firings.append(_Firing(row["k"], start, end, row["firing"], row["kind"], row["is_last"], values))
        for row in outputs.get(LATE_ELEMENTS, pa.table({})).to_pylist():
            event.dropped.append(row["k"] + _value(row[self.value]))


def _moment(time: Any) -> int | None:
    return time if time is None or isinstance(time, int) else round(time.timestamp() * 1000)


# ---------------------------------------------------------------------------------------------------- steps by default


def default_steps(
    windows: Windows,
    trigger: triggers.Trigger | None = None,
    *,
    lateness: timedelta = timedelta(0),
    processing_time: bool = False,
) -> str:
    """Steps that show the effect of a policy: out-of-order elements, time that passes the end of the window, late elements.

    :param windows, trigger, lateness, processing_time: as for :func:`draw`
    :return: steps for :func:`draw`

    >>> from asterism.windows.assigners import TumblingWindows
    >>> from asterism.windows.triggers import CountTrigger
    >>> print(default_steps(TumblingWindows.of(timedelta(seconds=10)), CountTrigger.at_least(2)))
    in 1@1 2@3.5
    in 3@2.5
    watermark 4
    in 4@6
    in 5@5
    watermark 8
    in 6@8.5
    watermark 10
    in 7@7.5
    """
    parts = [] if trigger is None else list(triggers.walk(trigger))
    counts = [part.count for part in parts if isinstance(part, triggers.CountTrigger)]
    many = min(max(counts, default=1), 10)
    waits = [part.interval for part in parts if isinstance(part, triggers.ContinuousProcessingTimeTrigger)]
    waits += [part.delay for part in parts if isinstance(part, triggers.ProcessingTimeTrigger) and part.delay]
    wait = max(waits, default=timedelta(0)) // timedelta(milliseconds=1)
    thresholds = [part.threshold for part in parts if isinstance(part, triggers.DeltaTrigger)]
    start, end = _span(windows, parts)
    gap = isinstance(windows, SessionWindows) and windows.dynamic_gap is not None
    script = _Script(start, end, 0.4 * thresholds[0] if thresholds and thresholds[0] else 1.0, gap)
    if processing_time:
        script.processing(max(2, many // 2 + 1))
        return "\n".join(script.lines)
    if wait:
        script.advance_processing_time(0)
    some = max(2, many // 2)
    script.elements(0.1, 0.35, some)
    script.elements(0.25, 0.3, 1)
    script.advance_processing_time(wait)
    script.watermark(0.4)
    script.elements(0.6, 0.8, some - 1)
    script.elements(0.5, 0.6, 1)
    script.advance_processing_time(wait)
    script.watermark(0.8)
    script.elements(0.85, 0.95, max(1, some - 2))
    if isinstance(windows, SessionWindows):
        script.elements(2.6, 2.9, 1)
        script.watermark(2.2)
    else:
        script.watermark(1)
    if lateness and not windows.is_global:
        script.elements(0.15, 0.7, min(max(counts, default=2), 12))
        script.advance_processing_time(wait)
        kept = lateness / timedelta(milliseconds=end - start)
        if kept > 1_000 or lateness > timedelta(milliseconds=MAX_TIME / 10):
            return "\n".join(script.lines)
        script.watermark((2.2 if windows.merges else 1) + kept)
    if not windows.is_global:
        script.elements(0.75, 0.8, 1)
    return "\n".join(script.lines)


@dataclass(slots=True)
class _Script:
    """Steps as text; times are fractions of a window."""

    start: int
    end: int
    unit: float
    gap: bool
    lines: list[str] = field(default_factory=list)
    count: int = 0
    now: int = 0

    def at(self, part: float) -> str:
        length = self.end - self.start
        step = next((step for step in reversed(_TICKS) if step * 20 <= length), 1)
        return _seconds(round((self.start + part * length) / step) * step)

    def elements(self, first: float, last: float, count: int, timed: bool = True) -> None:
        words = []
        for part in np.linspace(first, last, count).tolist():
            self.count += 1
            value = f"{self.unit * self.count:.3g}"
            gap = f"+{_seconds((self.end - self.start) * (1 + self.count % 2) // 2)}" if self.gap else ""
            words.append(f"{value}@{self.at(part)}{gap}" if timed else value + gap)
        if words:
            self.lines.append("in " + " ".join(words))

    def watermark(self, part: float) -> None:
        self.lines.append(f"watermark {self.at(part)}")

    def advance_processing_time(self, wait: int) -> None:
        if wait or not self.lines:
            self.now += wait
            self.lines.append(f"processing_time {_seconds(self.now)}")

    def processing(self, some: int) -> None:
        parts = (0.1, 0.35, 0.5, 0.6, 0.8, 1.0, 1.2, 1.6, 2.2)
        for part, more in zip(parts, (some, 1, 0, some, 0, 0, 1, 0, 0), strict=True):
            self.lines.append(f"processing_time {self.at(part)}")
            self.elements(part, part, more, timed=False)


def _span(windows: Windows, parts: list[triggers.Trigger]) -> tuple[int, int]:
    """A window to draw, which starts near 1970."""
    if isinstance(windows, SessionWindows):
        return 0, (windows.gap // timedelta(milliseconds=1) if isinstance(windows.gap, timedelta) else 10_000)
    if isinstance(windows, GlobalWindows):
        lengths = [getattr(part, "interval", None) or getattr(part, "delay", None) for part in parts]
        longest = max((length for length in lengths if length), default=timedelta(seconds=20))
        return 0, max(3 * longest // timedelta(milliseconds=1), 1)
    _, starts, ends = assigned(windows, np.zeros(1, np.int64))
    return int(starts[-1]) // 1000, max(int(ends[-1]) // 1000, int(starts[-1]) // 1000 + 1)


# ---------------------------------------------------------------------------------------------------- the drawing


def draw_trigger(trigger: triggers.Trigger) -> str:
    """Draw two windows of ten seconds, with an allowed lateness of five if *trigger* has a late trigger."""
    late = any(isinstance(part, triggers.EventTimeTrigger) and part.late is not None for part in triggers.walk(trigger))
    return draw(TumblingWindows.of(timedelta(seconds=10)), trigger, lateness=timedelta(seconds=5 if late else 0))


def draw(
    windows: Windows,
    trigger: triggers.Trigger | None = None,
    steps: str | None = None,
    *,
    lateness: timedelta = timedelta(0),
    processing_time: bool = False,
    in_order: bool = False,
    value: str = "v",
    **options: Unpack[FiringOptions],
) -> SvgDrawing:
    """Draw the effect of a policy on the elements, watermarks and processing times of *steps*, as SVG.

    Each line is a step: ``in 1@3 2@4.5s`` (elements: value and event time; ``a1@3`` has the key a, ``1@3+20s`` a gap),
    ``watermark 10min``, ``processing_time 12`` and ``end``. Times are seconds after 1970-01-01 UTC, or have a unit: ms,
    s, min, h, d. Expressions may read the columns k (the key), t (the time in milliseconds), *value* and gap (in seconds).

    :param windows, trigger, lateness, in_order: as for :class:`~asterism.windows.operator.WindowOperator`
    :param steps: the steps; default: steps that show what the policy does
    :param processing_time: windows in processing time: the time of an element is that of its arrival
    :param value: the name of the column with the values
    :param options: ``evictor``, ``closing``, ``on_time``: see :class:`~asterism.windows.spec.FiringOptions`
    :return: the SVG, as a string that notebooks draw and whose method ``save`` writes a file
    :raises StreamDefinitionError: an invalid step, or more than MAX_STEPS; a policy that the operator refuses

    >>> from asterism.windows.assigners import TumblingWindows
    >>> from asterism.windows.triggers import CountTrigger, EventTimeTrigger
    >>> policy = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
    >>> svg = draw(TumblingWindows.of(timedelta(seconds=10)), policy, "in 1@1 2@2 3@3\\nwatermark 10")
    >>> for text in re.findall(">(#.*)<", svg):
    ...     print(text)
    #1 early: 1 2
    #2 on time: 1 2 3, last
    """
    expect_options("draw", options, FiringOptions)
    expect(
        StreamDefinitionError,
        steps,
        str | None,
        "the steps of a drawing must be a string",
        '"in 1@1 2@2\\nwatermark 10"',
    )
    expect_string(StreamDefinitionError, value, "the column of values must be a string", 'value="price"')
    event_time = not processing_time
    play = _Play(windows, trigger, event_time=event_time, value=value, lateness=lateness, in_order=in_order, **options)
    if steps is None:
        steps = default_steps(
            windows, play.operator.spec.effective_trigger, lateness=lateness, processing_time=processing_time
        )
    events = list(play.run(_parsed(steps)))
    if not any(isinstance(event.step, _DrawnElement) for event in events):
        raise StreamDefinitionError("a drawing needs an element", hint=_STEP)
    return SvgDrawing(_Drawing(play.operator, events, lateness // timedelta(milliseconds=1)).svg())


class _Drawing:
    """Rows from top to bottom, each with at most one text at its left and one at its right."""

    def __init__(self, operator: WindowOperator, events: list[_DrawnEvent], lateness: int) -> None:
        self.operator, self.events, self.lateness = operator, events, lateness
        self.event_time = operator.spec.is_event_time
        self.merges = operator.spec.windows.merges
        elements = [event for event in events if isinstance(event.step, _DrawnElement)]
        self.many_keys = len({event.step.key for event in elements if isinstance(event.step, _DrawnElement)}) > 1
        self.spans = sorted({span for event in elements for span in event.windows})
        times = [event.time for event in elements] + [time for span in self.spans for time in span]
        if self.spans:
            ends = max(end for _, end in self.spans)
            times.append(ends + min(self.lateness, 2 * (ends - self.spans[0][0])))
        else:
            moves = [event.time for event in events if self._moves(event) and event.time != END_OF_TIME]
            times += moves
        low, high = min(times), max(times)
        margin = max((high - low) * 0.04, 0.5)
        self.low, self.high = low - margin, high + margin
        texts = [self._text(firing) for event in events for firing in event.firings]
        self.left = max(svg.text_width(self._label(event), 11) for event in events) + 2.5 * svg.PAD
        self.left = max(self.left, svg.text_width("processing time, min", 11) + svg.PAD)
        self.right = (
            max([svg.text_width(text, 12, BOLD) for text in texts] + [svg.text_width("and 1000 more firings", 12)])
            + 1.5 * svg.PAD
        )
        self.canvas = svg.Canvas()
        self.used: set[str] = set()

    # -- places and texts

    def x(self, time: float) -> float:
        part = (time - self.low) / (self.high - self.low)
        return self.left + PLOT * min(max(part, 0.0), 1.0)

    def _moves(self, event: _DrawnEvent) -> bool:
        """Whether it advances the time of the windows."""
        return isinstance(event.step, _Move) and (event.step.what == "processing_time") != self.event_time

    def _label(self, event: _DrawnEvent) -> str:
        if isinstance(event.step, _DrawnElement):
            return ""
        if event.step.what == "end":
            return "end of input"
        return f"{event.step.what.replace('_', ' ')} {self._time(event.time)}"

    def _time(self, time: int) -> str:
        """A time in the format of the axis if possible, otherwise as text."""
        return duration(timedelta(milliseconds=time))

    def _text(self, firing: _Firing) -> str:
        key = f"{firing.key} " if self.many_keys else ""
        last = ", last" if firing.last else ""
        contents = firing.contents
        if len(contents) > MAX_CONTENTS:
            contents = f"{firing.values[0]} {firing.values[1]} … {firing.values[-1]} ({len(firing.values):,})"
        return f"{key}#{firing.number} {firing.kind.replace('_', ' ')}: {contents}{last}"

    # -- parts

    def svg(self) -> str:
        y = self._policy(2.0 * svg.PAD)
        top = y + 8
        y = self._windows(self._axis(top))
        rows = y
        grid = len(self.canvas.root)
        y = self._rows(y + 4)
        self._grid(grid, rows, y)
        width = self.left + PLOT + self.right
        y = self._legend(svg.PAD, y + 22, width)
        label = f"{self.operator.spec.windows!r} with {self.operator.spec.effective_trigger!r}"
        return self.canvas.written(width, y + svg.PAD, label)

    def _policy(self, y: float) -> float:
        lines = [repr(self.operator.spec.windows)]
        width = self.left + PLOT + self.right - 4 * svg.PAD
        lines += _wrapped(repr(self.operator.spec.effective_trigger), int(width / (11 * 0.62)))
        if self.lateness:
            lines.append(f"allowed lateness: {code(timedelta(milliseconds=self.lateness))}")
        if self.operator.spec.evictor is not None:
            lines.append(repr(self.operator.spec.evictor))
        for number, line in enumerate(lines):
            indent = 20 if line.startswith(" ") else 0
            self.canvas.text(svg.PAD + indent, y + 15 * number, line.strip(), 11, font_family=svg.MONO)
        return y + 15 * len(lines)

    def _axis(self, y: float) -> float:
        step = next((step for step in _TICKS if (self.high - self.low) / step <= 9), _TICKS[-1])
        unit = next(name for name, length in reversed(_UNITS.items()) if step % length == 0)
        self.ticks = range(-int(-self.low // step) * step, int(self.high) + 1, step)
        room = PLOT * step / (self.high - self.low)
        for tick in self.ticks:
            text = f"{tick // _UNITS[unit]}"
            if svg.text_width(text, 11) < room or tick == self.ticks[0]:
                self.canvas.text(self.x(tick), y, text, 11, text_anchor="middle", fill=svg.FAINT)
        name = "event" if self.event_time else "processing"
        self.canvas.text(svg.PAD, y, f"{name} time, {unit}", 11, fill=svg.FAINT)
        return y + 8

    def _windows(self, y: float) -> float:
        """Draw the windows of the elements above the rows, next to or above each other, with their lateness."""
        windows = self.operator.spec.windows
        if windows.is_global:
            self.canvas.rect(self.left, y, PLOT, 16, rx=3, fill=svg.PALE_BLUE, stroke=svg.BLUE)
            self.canvas.text(self.left + PLOT / 2, y + 12, "global window", 11, text_anchor="middle", fill=svg.BLUE)
            return y + 22
        if self.merges:
            return y
        lanes: list[int] = []
        for start, end in self.spans:
            over = end + self.lateness
            lane = next((number for number, until in enumerate(lanes) if until <= start), len(lanes))
            if lane == MAX_LANES:
                continue
            lanes[lane : lane + 1] = [over]
            at = y + 18 * lane
            bar = self.canvas.rect(
                self.x(start) + 1,
                at,
                max(self.x(end) - self.x(start) - 2, 2.0),
                14,
                rx=3,
                fill=svg.PALE_BLUE,
                stroke=svg.BLUE,
            )
            self.canvas.title(bar, f"window [{_seconds(start)},{_seconds(end)})")
            if self.lateness:
                self.used.add("lateness")
                self.canvas.line([(self.x(end), at + 7), (self.x(over), at + 7)], svg.BLUE, "3 3", 1.2)
                self.canvas.line([(self.x(over), at + 3), (self.x(over), at + 11)], svg.BLUE, None, 1.2)
        self.canvas.text(svg.PAD, y + 11, "windows", 11, fill=svg.FAINT)
        return y + 18 * len(lanes) + 4

    def _rows(self, y: float) -> float:
        behind = len(self.canvas.root)
        line: list[tuple[float, float]] = []  # of the watermark or processing time
        free = self.left + PLOT  # start of the free space in the row of elements
        open_row = False
        for event in self.events:
            if isinstance(event.step, _DrawnElement):
                text = str(event.step) if self.many_keys else _value(event.step.value)
                radius = max(float(DOT), svg.text_width(text, 10) / 2 + 4)
                x = self.x(event.time)
                if not open_row or x - radius < free + 3 or self.merges:
                    y += HIGH * open_row
                    open_row = True
                self._element(event, text, x, y + HIGH / 2, radius)
                free = x + radius
                if not event.firings and not event.dropped:
                    continue
            else:
                y += HIGH * open_row
                open_row = False
                y = self._move(event, y, line)
            if event.firings or event.dropped:
                y += HIGH * open_row
                open_row = False
                y = self._fired(event, y)
        y += HIGH * open_row
        if line:
            self.used.add("watermark" if self.event_time else "time of windows")
            self.canvas.line([*line, (line[-1][0], y)], svg.PURPLE, None, 2)
            shapes = self.canvas.root
            shapes.insert(behind, shapes[-1])
            del shapes[-1]
        return y

    def _element(self, event: _DrawnEvent, text: str, x: float, y: float, radius: float) -> None:
        assert isinstance(event.step, _DrawnElement)
        if self.merges and event.windows:
            self.used.add("gap")
            until = self.x(event.windows[0][1])
            self.canvas.line([(x, y), (until, y)], svg.FAINT, "3 3", 1.2)
            self.canvas.line([(until, y - 4), (until, y + 4)], svg.FAINT, None, 1.2)
        is_dropped = bool(event.dropped) and not event.firings
        style, fill, stroke, ink = (
            ("behind", svg.AMBER, svg.AMBER, svg.PAPER) if event.behind else ("", svg.INK, svg.INK, svg.PAPER)
        )
        if is_dropped:
            style, fill, stroke, ink = "dropped", svg.PALE_RED, svg.RED, svg.RED
        self.used.add(style)
        dot = self.canvas.rect(
            x - radius,
            y - DOT,
            2 * radius,
            2 * DOT,
            rx=DOT,
            fill=fill,
            stroke=stroke,
            stroke_dasharray="3 2" if is_dropped else None,
        )
        came = f", arrives at {self._time(event.time)}" if not self.event_time else f"@{_seconds(event.time)}"
        self.canvas.title(dot, f"element {event.step}{came}")
        self.canvas.text(x, y + 3.5, text, 10, text_anchor="middle", fill=ink)

    def _move(self, event: _DrawnEvent, y: float, line: list[tuple[float, float]]) -> float:
        middle = y + LOW / 2
        moves = self._moves(event)
        self.canvas.text(svg.PAD, middle + 4, self._label(event), 11, fill=svg.PURPLE if moves else svg.FAINT)
        if moves:
            x = self.x(event.time)
            line += [(line[-1][0] if line else self.left, middle)]
            if x > line[-1][0]:
                line += [(x, middle)]
            line[:] = [point for point, after in pairwise([*line, (-1.0, -1.0)]) if point != after]
        else:
            self.used.add("processing_time")
            self.canvas.line([(self.left, middle), (self.left + PLOT, middle)], svg.FAINT, "1.5 4", 1.2)
        return y + LOW

    def _fired(self, event: _DrawnEvent, y: float) -> float:
        right = self.left + PLOT + svg.PAD
        for firing in event.firings[:MAX_FIRINGS]:
            self.used.add(firing.kind)
            color, fill = KINDS[firing.kind]
            start = self.left if firing.start is None else self.x(firing.start) + 1
            end = self.left + PLOT if firing.end is None else self.x(firing.end) - 1
            bar = self.canvas.rect(
                start, y + 4, max(end - start, 2.0), LOW - 8, rx=4, fill=fill, stroke=color, stroke_width=1.6
            )
            self.canvas.title(bar, str(firing))
            self.canvas.text(right, y + LOW / 2 + 4, self._text(firing), 12, fill=color, font_weight="bold")
            y += LOW
        if len(event.firings) > MAX_FIRINGS:
            more = f"and {len(event.firings) - MAX_FIRINGS} more firings"
            self.canvas.text(right, y + LOW / 2 + 4, more, 12, fill=svg.FAINT)
            y += LOW
        if event.dropped:
            elements = (
                event.dropped if self.many_keys else [text.lstrip(ascii_lowercase) or text for text in event.dropped]
            )
            text = f"too late: {' '.join(elements)}"
            self.canvas.text(right, y - HIGH / 2 + 4 if not event.firings else y + LOW / 2 + 4, text, 12, fill=svg.RED)
            y += LOW if event.firings else 0
        return y

    def _grid(self, at: int, top: float, bottom: float) -> None:
        """Draw bands of windows behind the rows, with their start and end."""
        front = self.canvas.root[at:]
        del self.canvas.root[at:]
        apart = all(end <= start for (_, end), (start, _) in pairwise(self.spans))
        if not self.merges and len(self.spans) <= MAX_BANDS:
            for number, (start, end) in enumerate(self.spans):
                if apart:
                    width = self.x(end) - self.x(start)
                    fill = svg.BAND if number % 2 == 0 else svg.PALE_BAND
                    self.canvas.rect(self.x(start), top, width, bottom - top, fill=fill)
                for time in (start, end):
                    self.canvas.line([(self.x(time), top), (self.x(time), bottom)], svg.FAINT_LINE, None, 1)
        self.canvas.line([(self.left, bottom), (self.left + PLOT, bottom)], svg.FAINT_LINE, None, 1)
        self.canvas.root.extend(front)

    def _legend(self, x: float, y: float, width: float) -> float:
        """Draw the legend of the symbols that are used, in as many lines as needed."""
        meanings = {
            "": "an element; arrival order from top to bottom",
            "behind": "its window has ended",
            "dropped": "too late for every window",
            "gap": "its gap",
            "lateness": "allowed lateness",
            "watermark": "watermark",
            "time of windows": "processing time",
            "processing_time": "processing time advances",
            "early": "fires early",
            "on_time": "fires on time",
            "late": "fires late",
        }
        at, left = x, x
        for what, meaning in meanings.items():
            if what not in self.used:
                continue
            room = 34 + svg.text_width(meaning, 11)
            if at + room > width - svg.PAD and at > left:
                at, y = left, y + 18
            self._sign(what, at, y - 4)
            self.canvas.text(at + 30, y, meaning, 11, fill=svg.FAINT)
            at += room + 14
        return y

    def _sign(self, what: str, x: float, y: float) -> None:
        canvas = self.canvas
        match what:
            case "" | "behind":
                canvas.add("circle", cx=x + 12, cy=y, r=6, fill=svg.INK if not what else svg.AMBER)
            case "dropped":
                canvas.add("circle", cx=x + 12, cy=y, r=6, fill=svg.PALE_RED, stroke=svg.RED, stroke_dasharray="3 2")
            case "early" | "on_time" | "late":
                color, fill = KINDS[what]
                canvas.rect(x, y - 6, 24, 12, rx=4, fill=fill, stroke=color, stroke_width=1.6)
            case "watermark" | "time of windows":
                canvas.line([(x, y), (x + 24, y)], svg.PURPLE, None, 2)
            case _:
                color, dashes = {
                    "gap": (svg.FAINT, "3 3"),
                    "lateness": (svg.BLUE, "3 3"),
                    "processing_time": (svg.FAINT, "1.5 4"),
                }[what]
                canvas.line([(x, y), (x + 24, y)], color, dashes, 1.2)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of code, broken before methods and after commas; all but the first are indented."""
    lines = [""]
    for part in re.split(r"(?=\.with_|\.discarding\(|\.accumulating\()|(?<=, )", text):
        if lines[-1].strip() and len(lines[-1]) + len(part) > width:
            lines.append(" ")
        lines[-1] += part
    return lines
