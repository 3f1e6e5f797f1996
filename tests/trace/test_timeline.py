"""Timelines: what is drawn, and where."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from asterism import timeline
from asterism.trace.timeline import MAX_KEYS, MAX_ROWS

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


def at(minute: float) -> datetime:
    return NOON + timedelta(minutes=minute)


def row(user: Any, *minutes: float, **more: Any) -> dict[str, Any]:
    """A match with these events, the last one in another stage."""
    events = [{"ts": at(minute), "seen": at(minute + 99), "price": minute} for minute in minutes]
    times = {"start_time": at(minutes[0]), "end_time": at(minutes[-1])}
    return {"user": user, **times, "fails": events[:-1], "login": events[-1:], **more}


def shapes(rows: Any, tag: str, *key: str, **options: Any) -> list[ET.Element]:
    root = ET.fromstring(timeline(rows, list(key), **options).to_svg())
    return list(root.iter(SVG + tag))[1 if tag == "rect" else 0 :]  # the first one is the background


def texts(rows: Any, *key: str) -> list[str]:
    return [shape.text or "" for shape in shapes(rows, "text", *key)]


def number(shape: ET.Element, name: str) -> float:
    return float(shape.attrib[name])


def test_bars_and_points_are_at_their_times() -> None:
    rows = pa.Table.from_pylist([row("ann", 0, 10, 40), row("ann", 10, 20, 40), row("bob", 100, 240)])
    assert texts(rows, "user")[:2] == ["fails", "login"]
    assert [text for text in texts(rows, "user") if text in ("ann", "bob")] == ["ann", "bob"]
    assert "01-31 12:00" in texts(rows, "user")
    first, second, third = shapes(rows, "rect", "user")
    scale = number(first, "width") / 40
    assert number(second, "x") - number(first, "x") == pytest.approx(10 * scale, abs=0.2)
    assert number(third, "x") - number(first, "x") == pytest.approx(100 * scale, abs=0.2)
    assert number(first, "y") < number(second, "y") < number(third, "y")  # those of ann overlap
    legend, points = shapes(rows, "circle", "user")[:2], shapes(rows, "circle", "user")[2:]
    assert [point.attrib["fill"] for point in points[:3]] == [legend[n].attrib["fill"] for n in (0, 0, 1)]
    minutes = [(number(point, "cx") - number(first, "x")) / scale for point in points[:3]]
    assert minutes == pytest.approx([0, 10, 40], abs=0.1)


def test_the_legend_has_the_stages_with_events() -> None:
    rows = pa.Table.from_pylist([row("ann", 0, 10, logout=[{"ts": at(5)}]), row("bob", 0, 10, logout=[])])
    assert texts(rows, "user")[:3] == ["fails", "login", "logout"]
    assert "logout" not in texts(rows.slice(1), "user")


def test_a_key_is_a_list_or_several_columns() -> None:
    rows = pa.Table.from_pylist([row(["ann", "de"], 0, 10, rule="burst")])
    assert "burst, ann, de" in texts(rows, "rule", "user")


def test_matches_one_after_the_other_share_a_line() -> None:
    one, two = shapes(pa.Table.from_pylist([row("ann", 0, 10), row("ann", 11, 20)]), "rect", "user")
    assert one.attrib["y"] == two.attrib["y"]


def test_a_year_of_short_matches() -> None:
    """Nothing hides another thing: a short match has room for a point of each stage, and neighbours have lines of their own."""
    day = 24 * 60
    rows = [row("ann", day * at, day * at + 1, day * at + 2) for at in (0, 1, 180, 364)]
    bars = shapes(pa.Table.from_pylist(rows), "rect", "user")
    assert [number(bar, "width") for bar in bars] == [18.0] * 4
    assert len({bar.attrib["y"] for bar in bars}) == 2
    points = shapes(pa.Table.from_pylist(rows), "circle", "user")[2:]
    assert len(points) == 8
    for bar, first, last in zip(bars, points[::2], points[1::2], strict=True):
        assert number(bar, "x") < number(first, "cx") < number(last, "cx") - 8 < number(bar, "x") + 18
        assert (first[0].text or "").startswith("fails, the first of 2 events: ts=")
        assert (last[0].text or "").startswith("login: ts=")
    width = float(ET.fromstring(timeline(pa.Table.from_pylist(rows)).to_svg()).attrib["viewBox"].split()[2])
    assert all(number(bar, "x") + 18 < width for bar in bars)


def test_tooltips_have_the_columns() -> None:
    [bar] = shapes(pa.Table.from_pylist([row("ann", 0, 90, match_id="x")]), "rect")
    title = bar[0].text or ""
    assert title.startswith("1 h 30 min: user='ann', start_time=2026-01-31T12:00:00+00:00")
    assert title.endswith("match_id='x'")


def test_text_stays_text() -> None:
    rows = pa.Table.from_pylist([row("<script>\x1b\u202e" + "x" * 1_000, 0, 1)])
    [label] = [text for text in texts(rows, "user") if text.startswith("<script>")]
    assert len(label) <= 40
    assert label.isprintable()


def test_windows_without_stages_and_times_of_a_zone() -> None:
    times = {"window_start": pa.array([NOON], pa.timestamp("us", "Europe/Berlin")), "window_end": pa.array([at(60)])}
    drawn = timeline(pa.table({**times, "total": [3]}), start="window_start", end="window_end")
    assert "01-31 13:00" in drawn.to_svg()
    assert repr(drawn) == "Timeline(1 matches)"


def test_a_pandas_data_frame_and_a_moment() -> None:
    rows = pd.DataFrame({"start_time": [NOON, NOON, None], "end_time": [NOON, at(0.0001), NOON]})
    assert len(shapes(rows, "rect")) == 2
    assert texts(rows)[-1] == "not drawn: matches without a start or an end"


def test_nothing() -> None:
    rows = pa.Table.from_pylist([row("ann", 0, 1)]).slice(0, 0)
    assert texts(rows) == ["fails", "login", "no matches"]


def test_keys_are_in_the_order_of_their_values() -> None:
    rows = pa.Table.from_pylist([row(n, n, n + 1) for n in (10, 2, 1, 11)])
    shown = texts(rows, "user")
    assert [text for text in shown if text in ("1", "2", "10", "11")] == ["1", "2", "10", "11"]


def test_there_is_a_limit() -> None:
    rows = pa.Table.from_pylist([row(n % 50, n, n + 1) for n in range(MAX_ROWS + 5)])
    drawn = {bar.attrib["y"] for bar in shapes(rows, "rect", "user")}
    assert len(drawn) == MAX_KEYS
    assert texts(rows, "user")[-1] == "not drawn: 20 more keys, more than 1,000 matches"


@pytest.mark.parametrize("micros", [1, 999, 10**6, 10**9, 10**12, 10**16], ids=str)
def test_the_axis_has_few_round_times(micros: int) -> None:
    start = datetime(1995, 3, 26, 0, 59, 59, 999_999, tzinfo=UTC)
    times = {"start_time": [start], "end_time": [start + timedelta(microseconds=micros)]}
    assert len(texts(pa.table(times))) <= 12
