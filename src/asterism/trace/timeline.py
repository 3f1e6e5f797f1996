"""A drawing of matches on a time axis, with a line for each key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from itertools import cycle, groupby
from typing import Any

import pyarrow as pa

from asterism.arguments import shown
from asterism.columns.time import EPOCH
from asterism.errors import ColumnTypeError, StreamDefinitionError
from asterism.text.printable import duration, event_text, one_line
from asterism.text.svg import (
    AMBER,
    BLUE,
    EDGE_OF_PAPER,
    FAINT,
    MONO,
    OLIVE,
    PAD,
    PALE_BLUE,
    PINK,
    PURPLE,
    RED,
    TEAL,
    Canvas,
    text_width,
)
from asterism.text.view import View

MAX_KEYS, MAX_ROWS = 30, 1_000
"""Maximum number of keys and matches in a drawing. The first ones are drawn."""
MAX_LABEL = 40
"""Maximum length of the text of a key."""
_WIDTH, _LANE, _BAR, _LEAST = 900.0, 22.0, 12.0, 3.0  # of the axis; of a line; of a match; the least width of a match
_POINT = 9.0
"""The width of a point. A match that is too narrow for a point of each of its stages has one for each, side by side."""
_STAGES = (BLUE, RED, AMBER, PURPLE, TEAL, OLIVE, PINK, FAINT)
Row = Mapping[str, Any]
_Match = tuple[datetime, datetime, Row]
"""The start of a match, its end, and its row."""
_STEPS = [
    *(timedelta(microseconds=factor * 10**power) for power in range(6) for factor in (1, 2, 5)),
    *(timedelta(seconds=seconds) for seconds in (1, 2, 5, 10, 15, 30)),
    *(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=hours) for hours in (1, 2, 3, 6, 12)),
    *(timedelta(days=factor * 10**power) for power in range(7) for factor in (1, 2, 5)),
]
"""Distances of two ticks of the axis."""


@dataclass(frozen=True)
class _Bar:
    """A match: its row, where it is drawn, and the line among those of its key."""

    start: datetime
    end: datetime
    row: Row
    left: float
    right: float
    lane: int


@dataclass(frozen=True)
class _Points:
    """The events of a stage in a match, with the column of their time."""

    stage: str
    time: str
    color: str
    events: Sequence[Row]


@dataclass(frozen=True)
class _Scale:
    """Where times are on the axis.

    :param stages: the columns of the stages, with the column of the time of an event and a colour
    """

    left: float
    first: datetime
    span: timedelta
    stages: Sequence[tuple[str, str, str]]

    def x_at(self, time: datetime) -> float:
        return self.left + _WIDTH * ((time - self.first) / self.span)

    def points(self, row: Row) -> list[_Points]:
        """The stages of a match that have events with times."""
        points = []
        for stage, time, color in self.stages:
            if events := [event for event in row[stage] or () if event[time] is not None]:
                points.append(_Points(stage, time, color, events))
        return points

    def extent(self, start: datetime, end: datetime, row: Row) -> tuple[float, float]:
        """Both ends of a match, which has room for a point of each stage."""
        least = max(_LEAST, _POINT * len(self.points(row)))
        x0 = max(min(self.x_at(start), self.left + _WIDTH - least), self.left)
        return x0, max(self.x_at(end), x0 + least)


@dataclass(frozen=True, repr=False)
class Timeline(View):
    """Matches on a time axis. Created by :func:`asterism.timeline`. Notebooks draw a timeline that is the last line of a cell.

    :ivar rows: the matches, at most 1,000
    :ivar key: the columns whose values have a line each
    :ivar start: the column with the start of a match
    :ivar end: the column with its end
    :ivar has_more: whether there are more matches than *rows*
    """

    rows: pa.Table
    key: Sequence[str] = ()
    start: str = "start_time"
    end: str = "end_time"
    has_more: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        schema = self.rows.schema
        for name in (self.start, self.end):
            if name not in schema.names:
                raise StreamDefinitionError(
                    f"a timeline needs the start and the end of each match, and there is no column {shown(name)}",
                    f"Columns: {', '.join(schema.names)}",
                    'timeline(matches, start="window_start", end="window_end")',
                )
            if not pa.types.is_timestamp(schema.field(name).type):
                raise ColumnTypeError(
                    f"the column {shown(name)} of a timeline has the type {schema.field(name).type}, not a timestamp",
                    hint="to_timestamp(...)",
                )
        for name in self.key:
            if name not in schema.names:
                raise StreamDefinitionError(
                    f"there is no column {shown(name)} for the key", f"Columns: {', '.join(schema.names)}"
                )

    def _stages(self, rows: Sequence[Row]) -> dict[str, str]:
        """The columns with the events of a stage, and the column of an event that has its time."""
        columns_of_stages = {}
        for column in self.rows.schema:
            if not pa.types.is_list(column.type) or not pa.types.is_struct(column.type.value_type):
                continue
            times = [field.name for field in column.type.value_type if pa.types.is_timestamp(field.type)]
            if times:
                columns_of_stages[column.name] = next(
                    (name for name in times if self._are_between(rows, column.name, name)), times[0]
                )
        return columns_of_stages

    def _are_between(self, rows: Sequence[Row], stage: str, time: str) -> bool:
        """Whether the times of all events are between the start and the end of their match."""
        for row in rows:
            start, end = row[self.start], row[self.end]
            times = [event[time] for event in row[stage] or () if event[time] is not None]
            if start is not None and end is not None and times and not start <= min(times) <= max(times) <= end:
                return False
        return True

    def to_svg(self) -> str:
        """The drawing as SVG. Each match is a bar from its start to its end, with its events as points, and tooltips with the
        columns of both. A match that is too short for its points has one for each stage, side by side. Matches of a key that
        overlap are below each other. The first 30 keys and 1,000 matches are drawn; a note says what is missing. Times are in
        the time zone of the column of the start.
        """
        matches = self.rows.to_pylist()
        grouped, note = self._by_key(matches)
        stages = [
            (stage, time, color)
            for (stage, time), color in zip(self._stages(matches).items(), cycle(_STAGES), strict=False)
        ]
        canvas = Canvas()
        left = PAD + max([text_width(label, 12, 0.62) for label in grouped], default=0.0) + 14
        top, width = 56.0, left + _WIDTH + 2 * PAD
        legend = left
        for stage, _, color in stages:
            if matches and not any(row[stage] for row in matches):  # such as a stage whose event must not occur
                continue
            canvas.add("circle", cx=legend, cy=20, r=4.5, fill=color)
            name = one_line(stage, MAX_LABEL)
            canvas.text(legend + 9, 24, name, 12)
            legend += 9 + text_width(name, 12) + 18
        width = max(width, legend + PAD)
        if not grouped:
            canvas.text(left, top, "no matches", 12, fill=FAINT)
            return canvas.written(width, top + PAD, "no matches")

        times = [time for rows in grouped.values() for start, end, _ in rows for time in (start, end)]
        first, last = min(times), max(times)
        scale = _Scale(left, first, (last - first) or timedelta(seconds=1), stages)
        drawn = {label: _in_lanes(rows, scale) for label, rows in grouped.items()}
        lines = sum(1 + max(bar.lane for bar in bars_of_key) for bars_of_key in drawn.values())
        bottom = top + lines * _LANE + 8 * len(drawn)
        for tick, text in _ticks(first, first + scale.span):
            canvas.line([(scale.x_at(tick), top - 10), (scale.x_at(tick), bottom)], EDGE_OF_PAPER, width=1)
            canvas.text(scale.x_at(tick), top - 15, text, 11, text_anchor="middle", fill=FAINT, font_family=MONO)
        y = top
        for label, bars_of_key in drawn.items():
            canvas.text(PAD, y + _BAR / 2 + 8, label, 12)
            for bar in bars_of_key:
                self._draw(canvas, bar, y + 4 + bar.lane * _LANE, scale)
            y += (1 + max(bar.lane for bar in bars_of_key)) * _LANE + 8
            canvas.line([(PAD, y - 4), (left + _WIDTH, y - 4)], EDGE_OF_PAPER, width=1)
        height = bottom + PAD
        if note:
            canvas.text(left, height, note, 12, fill=FAINT)
            height += 18
        return canvas.written(width, height, f"{len(times) // 2:,} matches from {first} to {last}")

    def _draw(self, canvas: Canvas, bar: _Bar, y: float, scale: _Scale) -> None:
        width = bar.right - bar.left
        shape = canvas.rect(bar.left, y, width, _BAR, rx=4, fill=PALE_BLUE, stroke=BLUE, stroke_width=1)
        of_stages = {stage for stage, *_ in scale.stages}
        columns = {name: value for name, value in bar.row.items() if name not in of_stages}
        canvas.title(shape, f"{duration(bar.end - bar.start)}: {event_text(columns)}")
        points = scale.points(bar.row)
        is_narrow = scale.x_at(bar.end) - scale.x_at(bar.start) < _POINT * len(points)
        for number, stage in enumerate(points):
            for event in stage.events[:1] if is_narrow else stage.events:
                x = bar.left + (number + 0.5) * width / len(points) if is_narrow else scale.x_at(event[stage.time])
                point = canvas.add("circle", cx=x, cy=y + _BAR / 2, r=4, fill=stage.color)
                more = f", the first of {len(stage.events):,} events" if is_narrow and len(stage.events) > 1 else ""
                canvas.title(point, f"{stage.stage}{more}: {event_text(event)}")

    def _ranks(self, labels: Sequence[str], rows: Sequence[Row]) -> dict[str, int]:
        """The places of keys, by their labels, in the order of their values."""
        keys = [tuple((row[name] is None, row[name]) for name in self.key) for row in rows]
        try:
            in_order = sorted(range(len(keys)), key=lambda at: keys[at])
        except TypeError:  # values without an order, such as maps
            in_order = sorted(range(len(keys)), key=lambda at: labels[at])
        return {label: rank for rank, label in enumerate(dict.fromkeys(labels[at] for at in in_order))}

    def _by_key(self, matches: Sequence[Row]) -> tuple[dict[str, list[_Match]], str]:
        """The matches of each key that is drawn, in the order of their starts, and a note about those that are not drawn."""
        zone = _zone(self.rows.schema.field(self.start).type)
        rows: list[_Match] = []
        for row in matches:
            start, end = row[self.start], row[self.end]
            if start is not None and end is not None:
                rows.append((start.astimezone(zone) if zone else start, end.astimezone(zone) if zone else end, row))
        labels = [_label([row[name] for name in self.key]) for *_, row in rows]
        ranks = self._ranks(labels, [row for *_, row in rows])
        order = sorted(range(len(rows)), key=lambda at: (ranks[labels[at]], labels[at], rows[at][:2]))
        drawn: dict[str, list[_Match]] = {}
        keys = 0
        for label, group in groupby(order, key=lambda at: labels[at]):
            keys += 1
            if keys <= MAX_KEYS:
                drawn[label] = [rows[at] for at in group]
        missing = []
        if keys > MAX_KEYS:
            missing.append(f"{keys - MAX_KEYS} more keys")
        if self.has_more:
            missing.append(f"more than {MAX_ROWS:,} matches")
        if len(matches) > len(rows):
            missing.append("matches without a start or an end")
        return drawn, f"not drawn: {', '.join(missing)}" if missing else ""

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __repr__(self) -> str:
        return f"Timeline({self.rows.num_rows:,} matches)"


def _in_lanes(matches: Sequence[_Match], scale: _Scale) -> list[_Bar]:
    """The bars of a key: each in the first line that is free at its place."""
    bars: list[_Bar] = []
    free: list[float] = []  # for each line, the end of its last match
    for start, end, row in matches:
        left, right = scale.extent(start, end, row)
        lane = next((number for number, until in enumerate(free) if until < left), len(free))
        free[lane : lane + 1] = [right]
        bars.append(_Bar(start, end, row, left, right, lane))
    return bars


def _label(key: Sequence[Any]) -> str:
    """The values of a key; a match of a rule has its key as a list."""
    parts = [part for value in key for part in (value if isinstance(value, list) else [value])]
    return one_line(", ".join(map(str, parts)), MAX_LABEL)


def _zone(timestamp: pa.TimestampType) -> tzinfo | None:
    """The time zone in which times of this type are displayed; None: that of the values, which have none."""
    if timestamp.tz is None:
        return None
    zone: tzinfo | None = pa.scalar(EPOCH, timestamp).as_py().tzinfo
    return zone


def _ticks(first: datetime, last: datetime) -> list[tuple[datetime, str]]:
    """At most ten round times from *first* to *last*, with their texts."""
    step = next((step for step in _STEPS if (last - first) / step <= 9), _STEPS[-1])
    day = first.replace(hour=0, minute=0, second=0, microsecond=0)
    ticks: list[tuple[datetime, str]] = []
    for number in range(math.ceil((first - day) / step), int((last - day) / step) + 1):
        time = day + number * step
        if step >= timedelta(days=1):
            text = f"{time:%Y-%m-%d}"
        elif step >= timedelta(minutes=1):
            is_new_day = not ticks or time.date() != ticks[-1][0].date()
            text = f"{time:%m-%d %H:%M}" if is_new_day else f"{time:%H:%M}"
        else:
            text = f"{time:%H:%M:%S}"
        if step < timedelta(seconds=1):
            text += f"{time:.%f}".rstrip("0")
        ticks.append((time, text))
    return ticks
