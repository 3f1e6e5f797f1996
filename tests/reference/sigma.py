"""Sigma detections, event by event, and correlations, window by window, in plain Python from the specification: no SQL."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

Event = Mapping[str, Any]


def detects(detection: Mapping[str, Any], event: Event, keywords: Sequence[str] = ()) -> bool:
    """Whether an event satisfies the ``detection`` of a rule, whose condition has names, ``and``, ``or``, ``not``, parentheses,
    and ``1 of`` and ``all of`` names with ``*``, or ``them``.
    """
    known = {
        name: _selected(value, event, keywords)
        for name, value in detection.items()
        if name not in ("condition", "timeframe")
    }

    def several(matched: re.Match[str]) -> str:
        pattern = "*" if matched[2] == "them" else matched[2]
        values = [known[name] for name in known if re.fullmatch(pattern.replace("*", ".*"), name)]
        return str(all(values) if matched[1] == "all" else any(values))

    text = re.sub(r"\b(1|any|all) of ([\w*]+)", several, detection["condition"])
    words = {"and", "or", "not", "True", "False"}
    text = re.sub(r"[\w-]+", lambda word: word[0] if word[0] in words else str(known[word[0]]), text)
    assert re.fullmatch(r"(and|or|not|True|False|[() ])*", text)
    return bool(eval(text))


def _selected(selection: Any, event: Event, keywords: Sequence[str]) -> bool:
    if isinstance(selection, Mapping):
        return all(_item(key, value, event, keywords) for key, value in selection.items())
    if isinstance(selection, list) and any(isinstance(part, Mapping) for part in selection):
        return any(_selected(part, event, keywords) for part in selection)
    return _item("", selection, event, keywords)


def _item(key: str, values: Any, event: Event, keywords: Sequence[str]) -> bool:
    field, *modifiers = key.split("|")
    expected = values if isinstance(values, list) else [values]
    linked = all if "all" in modifiers else any
    fields = [field] if field else list(keywords)
    modifiers = modifiers if field else [*modifiers, "contains"]
    answer = linked(any(_one(event, name, value, modifiers) for name in fields) for value in expected)
    return not answer if "neq" in modifiers else answer


def _one(event: Event, field: str, value: Any, modifiers: Sequence[str]) -> bool:
    actual = event.get(field)
    if "exists" in modifiers:
        return (actual is not None) is value
    if value is None:
        return actual is None
    if actual is None:
        return False
    if "fieldref" in modifiers:
        other = event.get(value)
        return other is not None and _as_text(actual).lower() == _as_text(other).lower()
    compared = next((name for name in ("lt", "lte", "gt", "gte") if name in modifiers), None)
    if compared is not None or (isinstance(value, int | float) and not isinstance(value, bool)):
        number = _as_number(actual)
        if number is None:
            return False
        answers = {"lt": number < value, "lte": number <= value, "gt": number > value, "gte": number >= value}
        return bool(answers.get(compared or "", number == value))
    if isinstance(value, bool):
        return _as_text(actual).lower() == str(value).lower()
    if "re" in modifiers:
        flags = sum(flag for name, flag in (("i", re.I), ("s", re.S)) if name in modifiers)
        return re.search(value, _as_text(actual), flags) is not None
    if "cidr" in modifiers:
        try:
            return ipaddress.ip_address(_as_text(actual)) in ipaddress.ip_network(value)
        except ValueError:
            return False
    flags = re.S if "cased" in modifiers else re.S | re.I
    return any(re.fullmatch(pattern, _as_text(actual), flags) for pattern in _patterns(value, modifiers))


def _patterns(value: str, modifiers: Sequence[str]) -> list[str]:
    """Regular expressions for the whole text."""
    parts: list[list[str]] = [_wildcards(value)]
    for modifier in modifiers:
        if modifier == "windash":
            parts = [written for one in parts for written in _dashes(one)]
        elif modifier in ("wide", "base64", "base64offset"):
            texts = ["".join(part[1:] for part in one) for one in parts]
            parts = [[*("=" + letter for letter in encoded)] for text in texts for encoded in _encoded(text, modifier)]
        elif modifier in ("contains", "endswith"):
            parts = [["*", *one] for one in parts]
        if modifier in ("contains", "startswith"):
            parts = [[*one, "*"] for one in parts]
    special = {"*": ".*", "?": "."}
    return ["".join(special.get(part) or re.escape(part[1:]) for part in one) for one in parts]


def _wildcards(value: str) -> list[str]:
    """``*`` and ``?``, or ``=`` and a plain character."""
    parts, rest = [], value
    while rest:
        if rest[0] == "\\" and rest[1:2] in ("*", "?", "\\") and rest[1:2]:
            parts.append("=" + rest[1])
            rest = rest[2:]
        else:
            parts.append(rest[0] if rest[0] in "*?" else "=" + rest[0])
            rest = rest[1:]
    return parts


def _dashes(parts: list[str]) -> list[list[str]]:
    text = "".join(part[-1] for part in parts)
    places = [found.start() for found in re.finditer(r"\B[-/]\b", text) if parts[found.start()].startswith("=")]
    written = []
    for letters in product("-/\u2013\u2014\u2015", repeat=len(places)):
        one = list(parts)
        for place, letter in zip(places, letters, strict=True):
            one[place] = "=" + letter
        written.append(one)
    return written


def _encoded(text: str, modifier: str) -> list[str]:
    if modifier == "wide":
        return ["".join(letter + "\0" for letter in text)]
    if modifier == "base64":
        return [base64.b64encode(text.encode()).decode()]
    # What is certain of the encoding if the text begins at any byte of a longer one.
    encoded = []
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + text.encode() + b"\0" * 2).decode()
        bits = 8 * before, 8 * (before + len(text.encode()))
        encoded.append(whole[-(-bits[0] // 6) : bits[1] // 6])
    return encoded


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_number(value: Any) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


Window = Sequence[Event]
"""The events of a window that satisfy a rule of the correlation."""
Found = tuple[int, int]
"""A match: the number of its last event, and how many were suppressed before it."""


def reached(events: Window, timespan: float, holds: Callable[[Window], bool], *, episode: bool) -> list[Found]:
    """The matches of one group: each event opens a window, which matches with the first event that makes the condition hold.

    :param events: in order, each with a ``time`` in seconds and a ``number``
    :param episode: whether matches within the timespan of a reported one are suppressed
    """
    ends = []
    for first, opening in enumerate(events):
        window: list[Event] = []
        for event in events[first:]:
            if event["time"] - opening["time"] > timespan:
                break
            window.append(event)
            if holds(window):
                ends.append(event)
                break
    return reported(ends, timespan, episode=episode)


def reported(ends: Sequence[Event], timespan: float, *, episode: bool) -> list[Found]:
    """The matches that end with these events, less the suppressed ones."""
    found: list[Found] = []
    last, suppressed = -float("inf"), 0
    for event in sorted(ends, key=lambda event: event["time"]):
        if episode and event["time"] - last < timespan:
            suppressed += 1
            continue
        forgotten = event["time"] - last >= 2 * timespan
        found.append((event["number"], suppressed if episode and not forgotten else 0))
        last, suppressed = event["time"], 0
    return found


def over(events: Window, timespan: float, holds: Callable[[Window], bool]) -> list[Found]:
    """The matches of one group: windows follow one another, each begins with the first event after the one before."""
    found: list[Found] = []
    window: list[Event] = []
    for event in [*events, None]:
        if window and (event is None or event["time"] - window[0]["time"] > timespan):
            if holds(window):
                found.append((window[-1]["number"], 0))
            window = []
        if event is not None:
            window.append(event)
    return found


def in_order(window: Window, rules: Sequence[str]) -> bool:
    """Whether events satisfy the rules one after the other; the first event of the window the first rule, its last the last."""
    if rules[0] not in window[0]["rules"] or rules[-1] not in window[-1]["rules"] or len(window) < len(rules):
        return False
    place = 0
    for event in window:
        if place < len(rules) and rules[place] in event["rules"]:
            place += 1
    return place == len(rules)


Element = Callable[[Window, int], list[int]]
"""An element of a chain: the places where it can end, if it begins at a place."""


def detected(*rules: str) -> Element:
    """An event that satisfies one of the rules."""
    return lambda events, first: [first] if set(rules) & set(events[first]["rules"]) else []


def windows(
    rules: Sequence[str], timespan: float, holds: Callable[[Window], bool], groups: Sequence[str] = ()
) -> Element:
    """A correlation: all windows that begin at a place, and hold at their last event."""

    def ends(events: Window, first: int) -> list[int]:
        opening, window, found = events[first], list[Event](), list[int]()
        for place in range(first, len(events)):
            event = events[place]
            if event["time"] - opening["time"] > timespan:
                break
            if not set(rules) & set(event["rules"]) or any(event[name] != opening[name] for name in groups):
                if place == first:
                    break
                continue
            window.append({**event, "rules": [name for name in event["rules"] if name in rules]})
            if holds(window):
                found.append(place)
        return found

    return ends


def sequence(timespan: float, elements: Sequence[Element]) -> Element:
    """A chain: any choice of windows, one after the other. The timespan begins where the first element ends."""

    def ends(events: Window, first: int) -> list[int]:
        possible = set[int]()
        for begin in elements[0](events, first):
            reached_at = {begin}
            for later in elements[1:]:
                starts = range(min(reached_at, default=len(events)) + 1, len(events))
                reached_at = {end for start in starts for end in later(events, start)}
                reached_at = {end for end in reached_at if events[end]["time"] - events[begin]["time"] <= timespan}
            possible |= reached_at
        return sorted(possible)

    return ends


def chained(events: Window, timespan: float, elements: Sequence[Element], *, episode: bool) -> list[Found]:
    """The matches of one group: each event opens one, which ends at the first event where the chain can end."""
    whole = sequence(timespan, elements)
    ends = [events[min(possible)] for first in range(len(events)) if (possible := whole(events, first))]
    return reported(ends, timespan, episode=episode)


Completes = Callable[[Window], bool]
"""Whether the last of some events completes a match of a rule; they are all events since a window was opened."""


def event_of(*rules: str) -> Completes:
    """An event that satisfies one of the rules."""
    return lambda events: bool(set(rules) & set(events[-1]["rules"]))


def lately(rules: Sequence[str], timespan: float, holds: Callable[[Window], bool]) -> Completes:
    """A correlation: what satisfies its rules, and is in the timespan that ends with the last event."""

    def completes(events: Window) -> bool:
        relevant = [
            {**event, "rules": [name for name in event["rules"] if name in rules]}
            for event in events
            if events[-1]["time"] - event["time"] <= timespan and set(rules) & set(event["rules"])
        ]
        return event_of(*rules)(events) and holds(relevant)

    return completes


def in_any_order(timespan: float, rules: Mapping[str, Completes], holds: Callable[[set[str]], bool]) -> Completes:
    """A temporal of correlations: the rules of which a match ended in the timespan."""

    def completes(events: Window) -> bool:
        ends = [number for number, event in enumerate(events, 1) if events[-1]["time"] - event["time"] <= timespan]
        recent = {name for name, rule in rules.items() if any(rule(events[:end]) for end in ends)}
        return any(rule(events) for rule in rules.values()) and holds(recent)

    return completes


def several_counted(timespan: float, detections: Sequence[str], rules: Sequence[Completes], count: int) -> Completes:
    """An event_count of several rules: the events that satisfy a detection or complete a match. The matches of a correlation
    follow one another: the events of one are later than the end of the one before.
    """

    def completes(events: Window) -> bool:
        ends = {end for end, event in enumerate(events, 1) if set(detections) & set(event["rules"])}
        for rule in rules:
            last = -float("inf")
            for end, event in enumerate(events, 1):
                unused = [earlier for earlier in events[:end] if earlier["time"] > last]
                if event["time"] > last and rule(unused):
                    ends.add(end)
                    last = event["time"]
        recent = [end for end in ends if events[-1]["time"] - events[end - 1]["time"] <= timespan]
        return len(events) in ends and len(recent) >= count

    return completes


def overlapping(rules: Sequence[str], seconds: float, completes: Completes) -> Element:
    """A part of a chain in which matches may overlap: it begins with any event of a rule."""

    def ends(events: Window, first: int) -> list[int]:
        if not set(rules) & set(events[first]["rules"]):
            return []
        places = range(first, len(events))
        inside = [place for place in places if events[place]["time"] - events[first]["time"] <= seconds]
        return [place for place in inside if completes(events[first : place + 1])]

    return ends
