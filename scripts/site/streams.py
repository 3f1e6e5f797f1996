"""Pictures of streams for the documentation: what matched, what did not and why, and how far time has advanced.

Every picture shows a run of the engine. ``python -m scripts.site.streams`` writes the pictures to ``docs/images/streams``;
``tests/architecture/test_site.py`` checks that they are current.
"""

from __future__ import annotations

import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism import AfterMatchSkipStrategy, Pattern
from asterism.errors import PatternWarning
from asterism.testing import EVENTS, Literals, PatternHarness
from asterism.text.printable import duration
from asterism.text.svg import (
    AMBER,
    BLUE,
    EDGE_OF_PAPER,
    FAINT,
    FAINT_LINE,
    INK,
    MONO,
    PAD,
    PALE_AMBER,
    PALE_BLUE,
    PALE_PURPLE,
    PALE_RED,
    PAPER,
    PURPLE,
    RED,
    Canvas,
    text_width,
)
from asterism.trace import Why, trace
from asterism.trace.steps import Taken, What

Place = Callable[[float], float]
"""The x of a time in seconds."""
FOLDER = Path(__file__).parents[2] / "docs" / "images" / "streams"
STEP, ROW, CHIP, HIGH = 50.0, 30.0, 34.0, 20.0  # distance of events and of lines; width and height of an event
DISCARDED = "discarded after the match"


# ---------------------------------------------------------------------------------------------------- patterns


@dataclass(frozen=True)
class Row:
    """A pattern in a picture. *label* is the part in which it differs from the others."""

    label: str
    pattern: Pattern
    hidden: tuple[str, ...] = ()
    """Reasons of partial matches that are not shown."""


@dataclass(frozen=True)
class Picture:
    """Events of one key in the notation of the test kit, and what patterns find in them.

    With *scale*, the pixels of a second, events are at their times; otherwise they are at equal distances.
    """

    name: str
    events: str
    rows: list[Row]
    scale: float | None = None


@dataclass
class _Line:
    """A match, or a partial match that became none, with the event or the time that decided it."""

    events: list[int]
    color: str
    pale: str
    text: str = ""
    crossed: int | None = None
    """The event that ended it."""
    decided_at: float | None = None
    stages: dict[int, str] = field(default_factory=dict)


def _events(text: str) -> tuple[list[dict[str, Any]], list[str], list[float]]:
    """The events, their names and their times in seconds."""
    [table] = Literals().parse(text, EVENTS)
    assert isinstance(table, pa.Table)
    events = table.to_pylist()
    return events, [Literals().text(event) for event in events], [event["ts"].timestamp() for event in events]


def picture(spec: Picture) -> str:
    """The picture as SVG."""
    events, names, seconds = _events(spec.events)
    left = PAD + max(text_width(row.label, 12, 0.62) for row in spec.rows) + 24

    def x_at(second: float) -> float:
        if spec.scale is not None:
            return left + CHIP / 2 + (second - min(seconds)) * spec.scale
        return left + CHIP / 2 + seconds.index(second) * STEP

    xs = [x_at(second) for second in seconds]
    lines = [(row, _lines(row, events, names, x_at if spec.scale is not None else None)) for row in spec.rows]
    ends = [line.decided_at for _, found in lines for line in found if line.decided_at is not None]
    notes = max([*xs, *ends]) + CHIP / 2 + 22
    texts = [line.text for _, found in lines for line in found]
    width = notes + max([text_width(text, 12) * 0.92 for text in texts if text], default=0.0) + PAD

    canvas = Canvas()
    top = 26.0
    height = top + 26 + (14 if spec.scale is not None else 0)
    height += sum(ROW * max(1, len(found)) + 8 for _, found in lines)
    for x in xs:
        canvas.line([(x, top + 14), (x, height - 6)], FAINT_LINE, width=1)
    canvas.text(PAD, top + 4, "stream", 12, fill=FAINT)
    for x, name in zip(xs, names, strict=True):
        _chip(canvas, x, top, name, INK, PAPER)
    y = top + 30
    if spec.scale is not None:
        canvas.text(PAD, top + 25, "seconds", 11, fill=FAINT)
        for x, second in zip(xs, seconds, strict=True):
            canvas.text(x, top + 25, f"{second:g}", 11, fill=FAINT, text_anchor="middle")
        y += 14
    for row, found in lines:
        canvas.line([(PAD, y - 8), (width - PAD, y - 8)], FAINT_LINE, width=1)
        canvas.text(PAD, y + 11, row.label, 12, font_family=MONO)
        if not found:
            canvas.text(left, y + 11, "no match", 12, fill=FAINT)
        for number, line in enumerate(found):
            _draw(canvas, line, y + 7 + number * ROW, xs, names, notes)
        y += ROW * max(1, len(found)) + 8
    told = "; ".join(f"{row.label}: {_told(found, names)}" for row, found in lines)
    return canvas.written(width, height, f"stream {' '.join(names)}. Matches of {told}")


def _told(found: list[_Line], names: list[str]) -> str:
    matches = [" ".join(names[event] for event in line.events) for line in found if line.color == BLUE]
    return ", ".join(matches) or "no match"


def _lines(row: Row, events: list[dict[str, Any]], names: list[str], place: Place | None) -> list[_Line]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PatternWarning)
        found = trace(row.pattern, events, time="ts")
    assert not found.stopped
    assert not found.omitted
    matches = [_taken(step.took) for step in found.steps if step.what is What.MATCHED]
    shown: list[_Line] = []
    seen: list[list[int]] = []
    for step in found.steps:
        taken = _taken(step.took)
        stages = {event - 1: stage for stage, numbers in step.took for event in numbers}
        if step.what is What.MATCHED:
            line = _Line(taken, BLUE, PALE_BLUE, stages=stages)
            if step.event is None and place is not None and isinstance(step.time, datetime):
                line.decided_at = place(step.time.timestamp())
                line.text = f"a match at {step.time.timestamp():g} s"
            shown.append(line)
        elif step.what is What.DROPPED and step.why is not None:
            part_of_match = any(match[: len(taken)] == taken for match in matches)
            if taken in seen or step.why.name in row.hidden or (part_of_match and step.why in (Why.END, Why.SKIPPED)):
                continue
            seen.append(taken)
            shown.append(_ended(step.why, step.event, step.time, step.reason, taken, stages, names, place))
    parts = [line for line in shown for other in shown if line is not other and _is_part(line, other)]
    shown = [line for line in shown if line not in parts]
    return sorted(shown, key=lambda line: (line.color != BLUE, line.events))


def _ended(
    why: Why, event: int | None, time: object, reason: str, taken: list[int],
    stages: dict[int, str], names: list[str], place: Place | None,
) -> _Line:  # fmt: skip
    line = _Line(taken, RED, PALE_RED, stages=stages)
    if why is Why.WINDOW and isinstance(time, datetime):
        line.color, line.pale = PURPLE, PALE_PURPLE
        line.decided_at = None if place is None else place(time.timestamp())
        line.text = f"timed out at {time.timestamp():g} s"
    elif why is Why.END:
        line.text = "no match: the input ends"
    elif event is not None:
        name = names[event - 1]
        line.crossed = None if why is Why.SKIPPED else event - 1
        line.text = {
            Why.STRICT: f"no match: {name} instead of {reason.partition('had to be ')[2].partition(':')[0]}",
            Why.FORBIDDEN: f"no match: {name} is forbidden",
            Why.SKIPPED: DISCARDED,
            Why.UNTIL: f"{name} ends the loop",
        }.get(why, why.value)
    return line


def _is_part(line: _Line, other: _Line) -> bool:
    """Was the partial match discarded together with a longer one?"""
    return line.text == other.text == DISCARDED and other.events[: len(line.events)] == line.events


def _taken(took: Taken) -> list[int]:
    return sorted(event - 1 for _, numbers in took for event in numbers)


def _draw(canvas: Canvas, line: _Line, y: float, xs: list[float], names: list[str], notes: float) -> None:
    for one, two in zip(line.events, line.events[1:], strict=False):
        dashes = None if two == one + 1 else "4 4"
        canvas.line([(xs[one] + CHIP / 2, y), (xs[two] - CHIP / 2, y)], line.color, dashes)
    last = xs[line.events[-1]] + CHIP / 2
    if line.crossed is not None:
        x = xs[line.crossed]
        dashes = None if line.crossed == line.events[-1] + 1 else "4 4"
        if x > last:
            canvas.line([(last, y), (x - 7, y)], line.color, dashes)
        _cross(canvas, x, y, line.color)
    if line.decided_at is not None:
        canvas.line([(last, y), (line.decided_at, y)], line.color, "1 4")
        canvas.line([(line.decided_at, y - 8), (line.decided_at, y + 8)], line.color, width=2)
    for event in line.events:
        shape = _chip(canvas, xs[event], y, names[event], line.color, line.pale)
        canvas.title(shape, f"{names[event]} is accepted by {line.stages[event]}")
    if line.text:
        canvas.text(notes, y + 4, line.text, 12, fill=line.color if line.color != BLUE else INK)


def _chip(canvas: Canvas, x: float, y: float, text: str, color: str, fill: str) -> ET.Element:
    canvas.rect(x - CHIP / 2, y - HIGH / 2, CHIP, HIGH, rx=10, fill=fill, stroke=color, stroke_width=1.4)
    return canvas.text(x, y + 4, text, 12, text_anchor="middle", fill=color, font_weight="bold")


def _cross(canvas: Canvas, x: float, y: float, color: str) -> None:
    for rise in (5.0, -5.0):
        canvas.line([(x - 5, y - rise), (x + 5, y + rise)], color, width=2.4)


# ---------------------------------------------------------------------------------------------------- time


def watermarks(events: str, lateness: timedelta, pattern: Pattern) -> str:
    """Event time from left to right, arrival from top to bottom: the watermark after each event, and late events.

    Each event is a micro-batch of its own.
    """
    rows, names, seconds = _events(events)
    harness = PatternHarness(pattern)
    left, scale, step = 152.0, 34.0, 36.0
    lowest = min(seconds) - 4
    latest = max(seconds)
    plot = left + (latest - lowest) * scale + CHIP
    width, height = plot + 210, 74 + step * len(rows)
    canvas = Canvas()

    def x_at(second: float) -> float:
        return left + (max(second, lowest) - lowest) * scale

    canvas.text(PAD, 26, "arrival", 12, fill=FAINT)
    canvas.text(left, 26, "event time, in seconds", 12, fill=FAINT)
    for tick in range(int(lowest), int(latest) + 1):
        canvas.line([(x_at(tick), 44), (x_at(tick), height - 16)], FAINT_LINE, width=1)
        if tick >= 0:
            canvas.text(x_at(tick), 42, str(tick), 10, fill=FAINT, text_anchor="middle")
    y, top = 62.0, min(seconds)
    mark: float | None = None
    path: list[tuple[float, float]] = []
    for row, name, second in zip(rows, names, seconds, strict=True):
        late, matched = len(harness.late), len(harness.matches)
        before = mark
        harness.send([row])
        top = max(top, second)
        mark = top - lateness.total_seconds() - 0.001
        harness.advance_watermark(datetime.fromtimestamp(mark, UTC))
        if before is not None:
            path += [(x_at(before), y - step / 2), (x_at(before), y + step / 2)]
        is_late = len(harness.late) > late
        color, pale = (RED, PALE_RED) if is_late else (BLUE, PALE_BLUE)
        canvas.text(PAD, y + 4, f"{name} at {second:g} s", 12)
        _chip(canvas, x_at(second), y, name, color, pale)
        told, shade = "", FAINT
        if is_late:
            told, shade = "late: behind the watermark", RED
        elif len(harness.matches) > matched:
            told, shade = "match: " + ", ".join(harness.matches[matched:]), BLUE
        elif second < top:
            told = "out of order, in time"
        canvas.text(plot + 8, y + 4, told, 12, fill=shade)
        y += step
    assert mark is not None
    path += [(x_at(mark), y - step / 2), (x_at(mark), y - step / 2 + 10)]
    stairs: list[tuple[float, float]] = []
    for point in path:
        if not stairs or point != stairs[-1]:
            stairs.append(point)
    canvas.add(
        "path", d="M" + "L".join(f"{x:.1f} {place:.1f}" for x, place in stairs), fill="none", stroke=AMBER, stroke_width=2.4
    )  # fmt: skip
    canvas.text(x_at(mark) + 8, height - 12, "watermark", 12, fill=AMBER)
    harness.end()
    found = f"matches: {', '.join(harness.matches)}; late: {', '.join(harness.late)}"
    return canvas.written(width, height, f"{' '.join(names)}, {duration(lateness)} out of order at most. {found}")


def on_spark() -> str:
    """How a query runs: boxes from left to right."""
    canvas = Canvas()
    boxes = [
        ("source", ["files, Kafka, ...", "one micro-batch", "at a time"]),
        ("filter", ["drops events that", "no stage can use,", "keeps their times"]),
        ("exchange", ["by key, to", "32 key groups", ""]),
        ("operator", ["Python, one call", "per key group:", "sort, match, time"]),
        ("sinks", ["matches", "timed_out", "late"]),
    ]
    wide, gap, y, high = 132.0, 30.0, 58.0, 92.0
    for number, (name, texts) in enumerate(boxes):
        x = PAD + number * (wide + gap)
        ours = name in ("filter", "exchange", "operator")
        canvas.rect(x, y, wide, high, rx=8, fill=PALE_BLUE if ours else PAPER, stroke=BLUE if ours else FAINT)
        canvas.text(x + wide / 2, y + 22, name, 13, text_anchor="middle", font_weight="bold")
        for line, text in enumerate(texts):
            canvas.text(x + wide / 2, y + 43 + line * 17, text, 12, text_anchor="middle", fill=INK)
        if number:
            canvas.arrow([(x - gap, y + high / 2), (x, y + high / 2)], FAINT)
    operator = PAD + 3 * (wide + gap)
    canvas.rect(operator, y + high + 40, wide, 50, rx=8, fill=PALE_AMBER, stroke=AMBER)
    canvas.text(operator + wide / 2, y + high + 61, "state store", 13, text_anchor="middle", font_weight="bold")
    canvas.text(operator + wide / 2, y + high + 79, "RocksDB, by key group", 10, text_anchor="middle")
    for x, one, two in ((operator + 46, y + high, y + high + 40), (operator + 86, y + high + 40, y + high)):
        canvas.line([(x, one), (x, two)], AMBER)
        head = 8 if two > one else -8
        canvas.add("path", d=f"M{x:g} {two:g}l-4.5 {-head}h9z", fill=AMBER)
    first = PAD + wide + gap
    canvas.line([(first, y - 14), (first + 3 * wide + 2 * gap, y - 14)], BLUE)
    canvas.text(first, y - 22, "Asterism, inside one Spark query", 12, fill=BLUE)
    canvas.rect(PAD, y + high + 40, 3 * wide + 2 * gap, 50, rx=8, fill=PAPER, stroke=EDGE_OF_PAPER)
    canvas.text(PAD + 12, y + high + 61, "checkpoint", 13, font_weight="bold")
    canvas.text(PAD + 12, y + high + 79, "Spark writes offsets before a micro-batch and commits it after the state", 11)
    width = PAD * 2 + len(boxes) * wide + (len(boxes) - 1) * gap
    return canvas.written(width, y + high + 104, "source, filter, exchange by key, operator with state store, sinks")


# ---------------------------------------------------------------------------------------------------- the pictures


def _pictures() -> dict[str, str]:
    def where(kind: str) -> str:
        return f"kind = '{kind}'"

    skip = AfterMatchSkipStrategy
    attack = (
        Pattern.begin("fails", skip.skip_past_last_event()).where(where("failed")).times_or_more(3).consecutive()
        .next("login").where(where("accepted")).within(timedelta(minutes=10))
    )  # fmt: skip
    a = Pattern.begin("a").where(where("a"))
    b_after_a = a.followed_by("b").where(where("b"))
    two_b = b_after_a.times(2)
    loop = Pattern.begin("a").where(where("a")).one_or_more().next("b").where(where("b"))
    seconds = timedelta(seconds=5)
    ends = ("END",)
    specs = [
        Picture("first", "f1 f2 f3 a4 f5 a6", [
            Row("3 or more f, then a", Pattern.begin("f", skip.skip_past_last_event()).where(where("f")).times_or_more(3)
                .consecutive().next("a").where(where("a"))),
        ]),
        Picture("contiguity", "a1 x2 b3 b4", [
            Row('next("b")', a.next("b").where(where("b"))),
            Row('followed_by("b")', b_after_a),
            Row('followed_by_any("b")', a.followed_by_any("b").where(where("b")), ends),
        ]),
        Picture("loops", "a1 b2 x3 b4 b5", [
            Row("times(2)", two_b),
            Row("times(2).consecutive()", two_b.consecutive()),
            Row("times(2).allow_combinations()", two_b.allow_combinations(), ends),
        ]),
        Picture("absence", "a1 x2 b3 a4 n5 b6", [
            Row('not_followed_by("n")', a.not_followed_by("n").where(where("n")).followed_by("b").where(where("b"))),
            Row('not_next("x")', a.not_next("x").where(where("x")).followed_by("b").where(where("b"))),
        ]),
        Picture("skip", "a1 a2 a3 b4", [
            Row("no_skip()", loop, ends),
            Row("skip_to_next()", loop.skip_strategy(skip.skip_to_next())),
            Row('skip_to_first("b")', loop.skip_strategy(skip.skip_to_first("b"))),
            Row('skip_to_last("a")', loop.skip_strategy(skip.skip_to_last("a")), ends),
            Row("skip_past_last_event()", loop.skip_strategy(skip.skip_past_last_event())),
        ]),
        Picture("lengths", "a1 b2 b3 b4", [
            Row("no_skip()", b_after_a.one_or_more(), ends),
            Row("skip_to_next()", b_after_a.one_or_more().skip_strategy(skip.skip_to_next())),
        ]),
        Picture("nothing", "o1 v2 p3", [
            Row('next("paid")', Pattern.begin("o").where(where("o")).next("p").where(where("p"))),
            Row('followed_by("paid")', Pattern.begin("o").where(where("o")).followed_by("p").where(where("p"))),
        ]),
        Picture("within", "a1@1s b2@4s a3@7s x4@9s b5@14s", [
            Row("followed_by, within 5 s", b_after_a.within(seconds)),
            Row("not_followed_by, within 5 s", a.not_followed_by("b").where(where("b")).within(seconds)),
        ], scale=26),
    ]  # fmt: skip
    found = {spec.name: picture(spec) for spec in specs}
    found["watermark"] = watermarks("a1@5s x2@7s b3@6s x4@10s b5@4s x6@12s", timedelta(seconds=2), b_after_a)
    found["attack"] = attack.to_svg()
    found["on_spark"] = on_spark()
    return found


def pictures() -> dict[str, str]:
    """All pictures of the documentation, by name."""
    return {name: svg + "\n" for name, svg in _pictures().items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures().items():
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
