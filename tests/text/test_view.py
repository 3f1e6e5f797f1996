"""Everything that shows itself in a notebook can be saved: drawings, HTML and text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import CEP, CountTrigger, KeyedStream, MatchRecognize, Pattern, TumblingWindows, draw, timeline
from asterism.changes.plan import PlanPart, SavepointPlan
from asterism.errors import AsterismError
from asterism.rules.checking.backtest import BacktestReport
from asterism.text.view import View

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def views() -> dict[str, Any]:
    pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
    found = pa.Table.from_pylist([{"k": 1, "start_time": NOON, "end_time": NOON}])
    return {
        "pattern": pattern,
        "clause": MatchRecognize("ORDER BY ts MEASURES A.ts AS t PATTERN (A B+)"),
        "timeline": timeline(found, "k"),
        "trigger": CountTrigger.at_least(3),
        "policy": draw(TumblingWindows.of(timedelta(seconds=10)), CountTrigger.at_least(3)),
        "stream": CEP.pattern(KeyedStream(pa.table({"kind": ["a"], "ts": [NOON]}), time="ts"), pattern),
    }


@pytest.mark.parametrize("name", views())
def test_a_view_is_saved_as_drawing_page_and_text(name: str, tmp_path: Path) -> None:
    view = views()[name]
    assert isinstance(view, View)
    view.save(tmp_path / "view.svg")
    assert ET.parse(tmp_path / "view.svg").getroot().tag.endswith("svg")
    view.save(str(tmp_path / "view.HTML"))
    page = (tmp_path / "view.HTML").read_text(encoding="utf-8")
    HTMLParser().feed(page)
    assert page.startswith("<!DOCTYPE html>")
    assert "<svg " in page
    view.save(tmp_path / "view.txt")
    assert (tmp_path / "view.txt").read_text(encoding="utf-8") == f"{view}\n"


def test_a_name_that_says_no_format(tmp_path: Path) -> None:
    pattern = views()["pattern"]
    with pytest.raises(AsterismError, match=re.escape("'view.png' is not the name of a view")) as caught:
        pattern.save(tmp_path / "view.png")
    assert caught.value.hint == "the name of the file must end with .html, .svg or .txt"
    with pytest.raises(AsterismError, match="path must be the name of a file, not 3"):
        pattern.save(3)
    assert list(tmp_path.iterdir()) == []


def test_a_view_without_a_drawing(tmp_path: Path) -> None:
    report = BacktestReport((), compared=False, events=0)
    with pytest.raises(AsterismError, match="BacktestReport has no drawing") as caught:
        report.save(tmp_path / "report.svg")
    assert caught.value.hint == 'save("report.html")'


def test_a_plan_is_a_table() -> None:
    part = PlanPart("partial matches", "a < b", "c", "dropped", "the stage is gone")
    page = SavepointPlan({part: 1_200}, ["one note"])._repr_html_()
    assert page is not None
    assert (
        "<td>1,200</td><td>dropped</td><td>partial matches after a &lt; b, waiting for c: the stage is gone</td>"
        in page
    )
    assert page.endswith("<p>one note</p>")
