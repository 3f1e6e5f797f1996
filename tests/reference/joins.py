"""Joins of streams, written to be believed: lists of rows, and loops over all pairs.

Each function returns what has been emitted when the watermark is *now*, of rows that are not late. A row that joins nothing is
paired with None. Rows of the right side that join nothing come after all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from asterism.windows.assigners import SessionWindows, SlidingWindows, TumblingWindows

END = 2**63 - 1


class Row(NamedTuple):
    number: int
    key: str | None
    time: int
    value: int
    """Versions with equal times are in the order of their values."""


Pair = tuple[tuple[int, int] | None, Row | None, Row | None]
"""The window, in a window join; the row of the left side; that of the right side."""
On = Callable[[Row, Row], bool]


def interval_join(
    left: Sequence[Row], right: Sequence[Row], lower: int, upper: int, how: str, on: On, now: int
) -> list[Pair]:
    def joined(row: Row, other: Row) -> bool:
        in_interval = row.time + lower <= other.time <= row.time + upper
        return equal(row, other) and max(row.time, other.time) <= now and in_interval and on(row, other)

    found: list[Pair] = []
    for row in left:
        if row.time <= now:
            partners = [other for other in right if joined(row, other)]
            found += of_type(None, row, partners, how, decided=row.time + upper <= now)
    for other in right:
        if how in ("right", "full") and other.time <= now and other.time - lower <= now:
            partners = [row for row in left if joined(row, other)]
            found += [] if partners else [(None, None, other)]
    return found


def as_of_join(
    left: Sequence[Row], right: Sequence[Row], tolerance: int | None, how: str, on: On, now: int
) -> list[Pair]:
    found: list[Pair] = []
    for row in left:
        if row.time <= now:
            versions = [other for other in right if equal(row, other) and other.time <= row.time]
            versions.sort(key=lambda version: (version.time, version.value))
            partners = [
                version
                for version in versions[-1:]
                if (tolerance is None or row.time - version.time <= tolerance) and on(row, version)
            ]
            found += of_type(None, row, partners, how, decided=True)
    return found


def window_join(
    left: Sequence[Row],
    right: Sequence[Row],
    windows: TumblingWindows | SlidingWindows | SessionWindows,
    how: str,
    on: On,
    now: int,
) -> list[Pair]:
    found: list[Pair] = []
    for start, end, mine, others in contents(left, right, windows, now):
        for row in mine:
            partners = [other for other in others if equal(row, other) and on(row, other)]
            found += of_type((start, end), row, partners, how, decided=True)
        for other in others:
            if how in ("right", "full") and not any(equal(row, other) and on(row, other) for row in mine):
                found.append(((start, end), None, other))
    return found


def contents(
    left: Sequence[Row], right: Sequence[Row], windows: TumblingWindows | SlidingWindows | SessionWindows, now: int
) -> list[tuple[int, int, list[Row], list[Row]]]:
    """The windows that have ended, with the rows of both sides."""
    found: list[tuple[int, int, list[Row], list[Row]]] = []
    if isinstance(windows, SessionWindows):
        gap = int(windows.gap.total_seconds() * 1e6)  # type: ignore[union-attr] # no dynamic gaps here
        sides = [(row, 0) for row in left] + [(row, 1) for row in right]

        def of_pair(pair: tuple[Row, int]) -> tuple[str | None, int]:
            """A NULL of one side is no key of the other side."""
            return pair[0].key, pair[1] if pair[0].key is None else 0

        for key in set(map(of_pair, sides)):
            session: list[tuple[Row, int]] = []
            mine = sorted((pair for pair in sides if of_pair(pair) == key), key=lambda pair: pair[0].time)
            for pair in [*mine, None]:
                if pair is not None and pair[0].time > now:
                    pair = None
                if session and (pair is None or pair[0].time - session[-1][0].time > gap):
                    end = session[-1][0].time + gap
                    if end <= now:
                        ours, others = ([row for row, side in session if side == number] for number in (0, 1))
                        found.append((session[0][0].time, end, ours, others))
                    session = []
                if pair is None:
                    break
                session.append(pair)
        return found
    size = int(windows.size.total_seconds() * 1e6)  # type: ignore[union-attr] # no months here
    slide = int(windows.slide.total_seconds() * 1e6)  # type: ignore[union-attr]
    starts = set()
    for row in [*left, *right]:
        start = row.time // slide * slide
        while start + size > row.time:
            starts.add(start)
            start -= slide
    for start in starts:
        if start + size - 1 <= now:
            inside = [[row for row in side if start <= row.time < start + size] for side in (left, right)]
            found.append((start, start + size, inside[0], inside[1]))
    return found


def equal(row: Row, other: Row) -> bool:
    return row.key is not None and row.key == other.key


def of_type(window: tuple[int, int] | None, row: Row, partners: Iterable[Row], how: str, decided: bool) -> list[Pair]:
    pairs: list[Pair] = [(window, row, partner) for partner in partners]
    alone: list[Pair] = [(window, row, None)]
    if how in ("inner", "right"):
        return pairs
    if how in ("left", "full"):
        return pairs or (alone if decided else [])
    if how == "left_semi":
        return alone if pairs else []
    return alone if decided and not pairs else []


# ---------------------------------------------------------------------- many streams

Rows = tuple[Row | None, ...]
Bounds = dict[tuple[int, int], tuple[int, int]]
"""For pairs of inputs, the earlier one first: how much later a row of the second one is, at least and at most."""


def multi_join(
    inputs: Sequence[Sequence[Row]], bounds: Bounds, left: Sequence[bool], on: Callable[[int, Rows], bool], now: int
) -> list[Rows]:
    """``a JOIN b ON ... LEFT JOIN c ON ...``, as SQL does it: one join after the other.

    :param on: the condition of an input, for rows of this one and of those before it
    """
    found: list[Rows] = [(row,) for row in inputs[0] if row.time <= now]
    for number in range(1, len(inputs)):
        of_input = {first: each for (first, second), each in bounds.items() if second == number}
        joined: list[Rows] = []
        for rows in found:
            windows = []
            for first, (lower, upper) in of_input.items():
                row = rows[first]
                windows.append((1, 0) if row is None else (row.time + lower, row.time + upper))
            begin, end = max(w[0] for w in windows), min(w[1] for w in windows)
            assert rows[0] is not None
            partners = [
                other
                for other in inputs[number]
                if equal(rows[0], other)
                and begin <= other.time <= end
                and other.time <= now
                and on(number, (*rows, other))
            ]
            joined += [(*rows, other) for other in partners]
            if left[number] and not partners and (rows[0].key is None or begin > end or end <= now):
                joined.append((*rows, None))
        found = joined
    return found
