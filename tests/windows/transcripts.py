"""Windows and triggers as data: what comes in, when time moves, and what fires. ``transcripts/*.yaml`` hold the cases.

A case has a name, a ``window``, a ``trigger`` (code, with durations such as ``10s``), and steps, one a line::

    in a1@3 b2@4.5          elements: key, value, event time in seconds; a1@3+2: with a gap of two seconds
    watermark 9.999         the watermark moves
    processing_time 12      processing time moves
    end                     nothing comes any more
    fires a [0,10) #1 on_time!: 1 2     key, window, number and kind of the firing, ! if it is the last, the window's values
    late a7@1               an element that came too late
    unfired 2               so many elements were dropped with their windows, and have been in no firing

With ``session_ids``, a firing also has the window with which its session began, and those that it replaces:
``fires a [1,30) #2 early session [1,11) replaces [20,30): 1 2 3``.

After a step that moves something stands all that comes of it, in any order; what is not there must not come. What a case does not
know it must not say: an unknown word, or an unknown setting, is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from asterism.windows import assigners as windows
from asterism.windows import triggers
from asterism.windows.evictors import BuiltInEvictor, Evictor
from tests.reference.windows import END, Reference

MILLISECOND = timedelta(milliseconds=1)
FOLDER = Path(__file__).parent / "transcripts"
SETTINGS = {
    "name", "why", "window", "trigger", "lateness", "time", "keyed", "in_order", "evict", "closing", "on_time", "session_ids",
    "steps",
}  # fmt: skip
ACTIONS = {"in", "watermark", "processing_time", "end"}
RESULTS = {"fires", "late", "unfired"}
_UNITS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_ELEMENT = re.compile(r"([a-z])(-?\d+|null)(?:@(-?[\d.]+))?(?:\+([\d.]+))?")


@dataclass(frozen=True)
class Element:
    key: str
    value: int | None
    time: int
    gap: int | None


@dataclass(frozen=True)
class Step:
    action: str
    elements: tuple[Element, ...] = ()
    time: int = 0
    expected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """Times and durations in milliseconds."""

    name: str
    window: windows.Windows
    trigger: triggers.Trigger
    steps: tuple[Step, ...]
    lateness: int = 0
    event: bool = True
    keyed: bool = True
    in_order: bool = False
    evict: Evictor | None = None
    closing: str = "drop"
    on_time: str = "fire_if_non_empty"
    session_ids: bool = False


class EvensOnly(Evictor):
    """An evictor of one's own: drops odd values."""

    def __init__(self, after: bool = False) -> None:
        self.after = after

    def keeps(self, elements: pa.Table, window: triggers.TimeSpan) -> Any:
        return [value is not None and value % 2 == 0 for value in elements["v"].to_pylist()]


# ---------------------------------------------------------------------- reading


@cache
def cases() -> tuple[Case, ...]:
    files = sorted(FOLDER.glob("*.yaml"))
    return tuple(case_of(raw) for path in files for raw in yaml.safe_load(path.read_text("utf-8")))


def case_of(raw: dict[str, Any]) -> Case:
    unknown = raw.keys() - SETTINGS
    if unknown:
        raise ValueError(f"unknown settings: {sorted(unknown)} in {raw.get('name')}")
    time = raw.get("time", "event")
    if time not in ("event", "processing"):
        raise ValueError(f"unknown time: {time}")
    return Case(
        name=raw["name"],
        window=evaluate(raw["window"]),
        trigger=evaluate(raw["trigger"]),
        steps=tuple(_steps(raw["steps"])),
        lateness=evaluate(raw["lateness"]) // MILLISECOND if "lateness" in raw else 0,
        event=time == "event",
        keyed=raw.get("keyed", True),
        in_order=raw.get("in_order", False),
        evict=evaluate(raw["evict"]) if "evict" in raw else None,
        closing=raw.get("closing", "drop"),
        on_time=raw.get("on_time", "fire_if_non_empty"),
        session_ids=raw.get("session_ids", False),
    )


def _steps(text: str) -> Iterator[Step]:
    steps: list[tuple[str, str, list[str]]] = []
    for line in text.strip().splitlines():
        line = line.split(" # ")[0].strip()
        word, _, rest = line.partition(" ")
        if word in ACTIONS:
            steps.append((word, rest.strip(), []))
        elif word in RESULTS and steps:
            steps[-1][2].append(line)
        else:
            raise ValueError(f"unknown step: {line}")
    for word, rest, expected in steps:
        elements = tuple(_element(one) for one in rest.split()) if word == "in" else ()
        time = millis(rest) if word in ("watermark", "processing_time") else 0
        yield Step(word, elements, time, tuple(expected))


def _element(text: str) -> Element:
    found = _ELEMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"not an element: {text}")
    key, value, time, gap = found.groups()
    return Element(
        key, None if value == "null" else int(value), millis(time or "0"), None if gap is None else millis(gap)
    )


def millis(seconds: str) -> int:
    return round(float(seconds) * 1000)


def evaluate(text: str) -> Any:
    """What a line of code says that only makes windows, triggers and durations."""
    text = re.sub(r"\b(\d+)(ms|s|min|h|d)\b", lambda m: f"duration({int(m[1]) * _UNITS[m[2]]})", text)
    known: dict[str, Any] = {
        **{name: value for name, value in vars(triggers).items() if name == "never" or name.endswith("Trigger")},
        **{name: value for name, value in vars(windows).items() if name.endswith("Windows")},
        "Evictor": Evictor,
        "All": triggers.All,
        "Any": triggers.Any,
        "Sequence": triggers.Sequence,
        "EvensOnly": EvensOnly,
        "duration": lambda number: number * MILLISECOND,
    }

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Expression(body):
                return value(body)
            case ast.Constant(constant):
                return constant
            case ast.UnaryOp(ast.USub(), operand):
                return -value(operand)
            case ast.Name(name):
                return known[name]
            case ast.Attribute(owner, name) if not name.startswith("_"):
                return getattr(value(owner), name)
            case ast.Call(function, arguments, keywords):
                named = {str(keyword.arg): value(keyword.value) for keyword in keywords}
                return value(function)(*map(value, arguments), **named)
        raise ValueError(f"not understood: {ast.unparse(node)}")

    return value(ast.parse(text.strip(), mode="eval"))


# ---------------------------------------------------------------------- results as text


def seconds(time: int) -> str:
    return f"{time / 1000:.3f}".rstrip("0").rstrip(".")


def firing_text(
    key: str, start: int, end: int, number: int, kind: str, last: bool, values: Any,
    session: tuple[str, Sequence[str]] | None = None,
) -> str:  # fmt: skip
    """:param session: the window with which it began, and those that it replaces"""
    window = "global" if end == END else span(start, end)
    shown = " ".join("null" if value is None else str(value) for value in values)
    began = "" if session is None else f" session {session[0]}"
    if session is not None and session[1]:
        began += f" replaces {' '.join(sorted(session[1]))}"
    return f"fires {key} {window} #{number} {kind}{'!' if last else ''}{began}: {shown}".rstrip()


def span(start: int, end: int) -> str:
    return f"[{seconds(start)},{seconds(end)})"


def late_text(key: str, value: int | None, time: int) -> str:
    return f"late {key}{'null' if value is None else value}@{seconds(time)}"


# ---------------------------------------------------------------------- the reference


def reference_of(case: Case) -> Reference:
    keep: Callable[[list[Any]], list[Any]] | None = None
    if case.evict is not None:
        evict = case.evict

        def keep(contents: list[Any]) -> list[Any]:
            if isinstance(evict, EvensOnly):
                values = [one[1][0] if isinstance(one[1], tuple) else one[1] for one in contents]
                return [
                    one for one, value in zip(contents, values, strict=True) if value is not None and value % 2 == 0
                ]
            assert isinstance(evict, BuiltInEvictor)
            if evict.kind == "count":
                return contents[-evict.keep :]
            if evict.kind == "time":
                newest = max((time for time, _ in contents), default=0)
                return [one for one in contents if time_of(one) > newest - evict.keep // 1000]
            last = contents[-1][1] if contents else 0
            return [one for one in contents if abs(one[1] - last) < evict.threshold]

    def time_of(one: tuple[int, Any]) -> int:
        return one[0]

    def assign(time: int, value: Any) -> list[tuple[int, int]]:
        return windows_of(case.window, time, value)

    return Reference(
        assign, case.trigger, unit=MILLISECOND, event=case.event, merges=case.window.merges, lateness=case.lateness,
        evict=keep, evict_after=case.evict is not None and case.evict.after, in_order=case.in_order,
        closing=case.closing, always_on_time=case.on_time == "fire_always",
    )  # fmt: skip


def windows_of(window: windows.Windows, time: int, value: Any) -> list[tuple[int, int]]:
    """By counting, without calendars."""
    match window:
        case windows.GlobalWindows():
            return [(0, END)]
        case windows.SessionWindows(gap):
            return [(time, time + (gap // MILLISECOND if isinstance(gap, timedelta) else value[1]))]
        case windows.TumblingWindows(size, slide, offset) | windows.SlidingWindows(size, slide, offset):
            assert isinstance(size, timedelta)
            assert isinstance(slide, timedelta)
            length, step = size // MILLISECOND, slide // MILLISECOND
            start = (time - offset // MILLISECOND) // step * step + offset // MILLISECOND
            starts = []
            while start + length > time:
                starts.append(start)
                start -= step
            return [(start, start + length) for start in reversed(starts)]
        case windows.CumulativeWindows(size, step, offset):
            length, each = size // MILLISECOND, step // MILLISECOND
            start = (time - offset // MILLISECOND) // length * length + offset // MILLISECOND
            return [(start, end) for end in range(start + each, start + length + 1, each) if end > time]
    raise ValueError(window)


def play_reference(case: Case) -> list[list[str]]:
    """What comes of each step."""
    reference = reference_of(case)
    results = []
    dynamic = isinstance(case.window, windows.SessionWindows) and case.window.dynamic_gap is not None
    for step in case.steps:
        reference.out.clear()
        reference.late.clear()
        reference.unfired = 0
        match step.action:
            case "in":
                for one in step.elements:
                    value: Any = (one.value, one.gap) if dynamic else one.value
                    reference.element(one.key if case.keyed else "*", one.time, value)
            case "watermark":
                reference.move_watermark(step.time)
            case "processing_time":
                reference.advance_processing_time(step.time)
            case "end":
                reference.end()
        results.append(
            [
                firing_text(
                    f.key, f.start, f.end, f.number, f.kind, f.last, [v[0] if dynamic else v for v in f.values],
                    (span(*f.identity), [span(*one) for one in f.replaces]) if case.session_ids else None,
                )
                for f in reference.out
            ]
            + [late_text(key, value[0] if dynamic else value, time) for key, time, value in reference.late]
            + ([f"unfired {reference.unfired}"] if reference.unfired else [])
        )  # fmt: skip
    return results
