"""Policies as drawings. These tests check that they show everything that the operator does; how they look is for eyes."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from asterism.text.svg import text_width
from asterism.windows.assigners import GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows, Windows
from asterism.windows.drawing import MAX_FIRINGS, MAX_STEPS, default_steps, draw
from asterism.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    Trigger,
    TriggerResult,
)
from tests.kit import FACTOR
from tests.windows.transcripts import FOLDER, Case, Element, Step, case_of, cases, play_reference, seconds

SVG = "{http://www.w3.org/2000/svg}"
TEN = TumblingWindows.of(timedelta(seconds=10))
ON_TIME = EventTimeTrigger.after_end_of_window()


def texts(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def titles(root: ET.Element) -> list[str]:
    return [title.text or "" for title in root.iter(f"{SVG}title")]


def written(case: Case) -> str:
    """The steps of a case, without what is expected."""
    lines = []
    for step in case.steps:
        if step.action == "in":
            lines.append("in " + " ".join(word(one, case.keyed) for one in step.elements))
        else:
            lines.append(f"{step.action} {seconds(step.time)}" if step.action != "end" else "end")
    return "\n".join(lines)


def word(one: Element, keyed: bool) -> str:
    key = one.key if keyed else ""
    gap = "" if one.gap is None else f"+{seconds(one.gap)}"
    return f"{key}{'null' if one.value is None else one.value}@{seconds(one.time)}{gap}"


def text_of(case: Case) -> str:
    return draw(
        case.window, case.trigger, written(case), evictor=case.evict, in_order=case.in_order,
        lateness=timedelta(milliseconds=case.lateness), processing_time=not case.event, closing=case.closing,
        on_time=case.on_time,
    )  # fmt: skip


DOCS = Path(__file__).parents[2] / "docs"
PICTURES = [case_of(raw) for raw in yaml.safe_load((Path(__file__).parent / "pictures.yaml").read_text("utf-8"))]
CASES = cases()


@pytest.mark.parametrize("case", CASES[::5], ids=lambda case: case.name)
def test_the_drawing_of_a_transcript(case: Case) -> None:
    """It shows the firings that are expected, unless these are too many; texts do not overlap; everything is on the paper."""
    root = ET.fromstring(text_of(case))
    if max((len(step.expected) for step in case.steps), default=0) <= MAX_FIRINGS:
        check_firings(root, case)
    check_texts(root)
    check_places(root)


def check_firings(root: ET.Element, case: Case) -> None:
    expected = [re.sub(r" session [^:]*", "", line) for step in case.steps[:MAX_STEPS] for line in step.expected]
    fired = sorted(line if case.keyed else line.replace(" * ", " ") for line in expected if line.startswith("fires "))
    assert sorted(title for title in titles(root) if title.startswith("fires ")) == fired
    late = sum(line.startswith("late ") for line in expected)
    dropped = [text.removeprefix("too late: ") for text in texts(root) if text.startswith("too late: ")]
    assert sum(len(text.split()) for text in dropped) == late
    assert len([text for text in texts(root) if text.startswith("#") or re.match(r"[a-z] #", text)]) == len(fired)


def check_texts(root: ET.Element) -> None:
    """As wide as the drawing takes them to be."""
    boxes = []
    for text in root.iter(f"{SVG}text"):
        size = float(text.get("font-size", "0"))
        width = text_width(text.text or "", size, 0.61 if "mono" in text.get("font-family", "") else 0.56)
        x = float(text.get("x", "0")) - (width / 2 if text.get("text-anchor") == "middle" else 0)
        y = float(text.get("y", "0"))
        boxes.append((x, x + width, y - 0.75 * size, y + 0.2 * size, text.text))
    for one, other in combinations(boxes, 2):
        apart = one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
        assert apart, (one, other)


def check_places(root: ET.Element) -> None:
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for shape in root.iter():
        for name, limit in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            assert 0 <= float(shape.get(name, "0")) <= limit
        wide = (
            text_width(shape.text or "", float(shape.get("font-size", "0")), 0.61) if shape.tag == f"{SVG}text" else 0
        )
        if shape.get("text-anchor") != "middle":
            assert float(shape.get("x", "0")) + wide <= width + 1, shape.text


def policies() -> dict[str, Case]:
    return {f"{case.window!r} {case.trigger!r} {case.lateness}": case for case in CASES}


def test_every_policy_has_steps_by_default_that_the_operator_plays() -> None:
    """And what it shows is what the reference says of the same steps."""
    for name, case in list(policies().items())[:: max(1, 5 // FACTOR)]:
        check_default_steps(name, case)


def check_default_steps(name: str, case: Case) -> None:
    lateness = timedelta(milliseconds=case.lateness)
    steps = default_steps(case.window, case.trigger, lateness=lateness, processing_time=not case.event)
    svg = draw(
        case.window, case.trigger, lateness=lateness, evictor=case.evict, processing_time=not case.event, in_order=case.in_order
    )  # fmt: skip
    root = ET.fromstring(svg)
    script = steps.splitlines()
    assert any(line.startswith("in ") for line in script), name
    played: list[list[str]] = play_reference(as_case(case, script))
    if max(map(len, played)) <= MAX_FIRINGS and "delta" not in repr(case.trigger).lower():
        shown = sorted(title.replace("fires ", "fires a ") for title in titles(root) if title.startswith("fires "))
        assert shown == sorted(line for lines in played for line in lines if line.startswith("fires ")), name


def as_case(case: Case, script: list[str]) -> Case:
    """Steps by default, of one key, as a transcript."""
    steps: list[Step] = []
    for line in script:
        action, _, rest = line.partition(" ")
        if action != "in":
            steps.append(Step(action, time=round(float(rest) * 1000)))
            continue
        found = [re.fullmatch(r"([\d.]+)(?:@(-?[\d.]+))?(?:\+([\d.]+))?", one) for one in rest.split()]
        elements = [
            Element("a", int(float(one[1])), millis(one[2]) or 0, millis(one[3])) for one in found if one is not None
        ]
        assert len(elements) == len(rest.split())
        steps.append(Step("in", tuple(elements)))
    return Case("", case.window, case.trigger, tuple(steps), case.lateness, case.event, True, case.in_order, case.evict)


def millis(text: str | None) -> int | None:
    return None if text is None else round(float(text) * 1000)


# ---------------------------------------------------------------------- the pictures of the documentation


@pytest.mark.parametrize("case", PICTURES, ids=lambda case: case.name)
def test_pictures_of_the_documentation_are_those_that_are_drawn(case: Case) -> None:
    """``ASTERISM_REWRITE=1`` writes them anew. What fires is what the reference says."""
    svg, path = text_of(case), DOCS / "images" / "triggers" / f"{case.name}.svg"
    if os.environ.get("ASTERISM_REWRITE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(svg + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == svg + "\n"
    expected = sorted(line for lines in play_reference(case) for line in lines if line.startswith("fires "))
    assert sorted(title for title in titles(ET.fromstring(svg)) if title.startswith("fires ")) == expected


def test_every_picture_is_shown() -> None:
    shown = re.findall(r"\(images/triggers/(\w+)\.svg\)", (DOCS / "windows.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(case.name for case in PICTURES)


# ---------------------------------------------------------------------- what is drawn


def test_kinds_of_firings_are_told_with_their_contents() -> None:
    policy = ON_TIME.with_early_trigger(CountTrigger.at_least(2)).with_late_trigger(CountTrigger.at_least(2))
    steps = "in 1@1 2@2 3@3\nwatermark 10\nin 4@4 5@5\nwatermark 20\nin 6@6"
    root = ET.fromstring(draw(TEN, policy, steps, lateness=timedelta(seconds=10)))
    shown = [text for text in texts(root) if text.startswith(("#", "too late: "))]
    assert shown == ["#1 early: 1 2", "#2 on time: 1 2 3", "#3 late: 1 2 3 4 5", "too late: 6"]
    for meaning in ("watermark", "its window has ended", "too late for every window", "allowed lateness", "fires late"):
        assert meaning in texts(root)


def test_what_does_not_occur_is_not_in_the_legend() -> None:
    root = ET.fromstring(draw(TEN, ON_TIME, "in 1@1\nwatermark 10"))
    assert not {"processing time advances", "fires early", "fires late", "allowed lateness", "its gap"} & set(
        texts(root)
    )


def test_an_element_stands_at_its_time_and_below_those_that_came_before() -> None:
    root = ET.fromstring(draw(TEN, ON_TIME, "in 1@6\nwatermark 1\nin 2@2"))
    places = {text.text: (float(text.get("x", "0")), float(text.get("y", "0"))) for text in root.iter(f"{SVG}text")}
    assert places["1"][0] > places["2"][0]
    assert places["1"][1] < places["2"][1]


def test_keys_are_told_where_there_are_several() -> None:
    root = ET.fromstring(draw(TEN, ON_TIME, "in a1@1 b2@2\nwatermark 10"))
    assert {"a1", "b2", "a #1 on time: 1, last", "b #1 on time: 2, last"} <= set(texts(root))


def test_times_may_have_units() -> None:
    root = ET.fromstring(draw(TumblingWindows.of(timedelta(days=1)), None, "in 1@90min 2@1.5h\nwatermark 1d"))
    assert "fires [0,86400) #1 on_time!: 1 2" in titles(root)
    assert {"event time, h", "watermark 1 d"} <= set(texts(root))


def test_many_firings_and_long_contents_are_shortened() -> None:
    steps = "in " + " ".join(f"{n}@{n}" for n in range(100, 160)) + "\nwatermark 200"
    root = ET.fromstring(draw(TEN, ON_TIME, steps))
    assert "#1 on time: 100 101 102 103 104 105 106 107 108 109, last" in texts(root)
    root = ET.fromstring(draw(GlobalWindows(), CountTrigger.at_least(60), steps))
    assert "#1 early: 100 101 … 159 (60)" in texts(root)
    steps = "in " + " ".join(f"{n}@{10 * n}" for n in range(40)) + "\nend"
    assert f"and {40 - MAX_FIRINGS} more firings" in texts(ET.fromstring(draw(TEN, ON_TIME, steps)))


def test_a_trigger_of_a_user_is_called_and_told_by_its_name() -> None:
    class FireOnAlarm(Trigger):
        def on_element(self, element: Any, window: Any, ctx: Any) -> TriggerResult:
            return TriggerResult.FIRE if element["v"] == 3 else TriggerResult.CONTINUE

    root = ET.fromstring(draw(TEN, FireOnAlarm(), "in 1@1 3@2 2@3"))
    assert [text for text in texts(root) if "#" in text] == ["#1 early: 1 3"]
    assert "FireOnAlarm(...)" in texts(root)


def test_the_column_of_the_values_has_the_name_that_the_trigger_uses() -> None:
    root = ET.fromstring(draw(TEN, DeltaTrigger.of(0.5, "price"), "in 1@1 1.2@2 1.8@3", value="price"))
    assert [text for text in texts(root) if "#" in text] == ["#1 early: 1 1.2 1.8"]


def test_a_drawing_is_made_of_plain_shapes_on_paper_of_its_own_and_the_same_every_time() -> None:
    svg = draw(SessionWindows.with_gap(timedelta(seconds=10)), ON_TIME)
    root = ET.fromstring(svg)
    assert {shape.tag for shape in root.iter()} <= {
        SVG + tag for tag in ("svg", "style", "rect", "text", "title", "path", "circle")
    }
    assert (root[0].tag, root[0].get("fill")) == (f"{SVG}rect", "#ffffff")
    assert svg == draw(SessionWindows.with_gap(timedelta(seconds=10)), ON_TIME)


def test_text_from_outside_is_only_text() -> None:
    svg = draw(TEN, DeltaTrigger.of(1, '"</text><script>" '.replace('"', "`")), "in 1@1", value="</text><script>")
    assert "<script" not in svg
    ET.fromstring(svg)


@pytest.mark.parametrize(
    ("windows", "trigger", "more"),
    [
        (TumblingWindows.of_months(12_000), ON_TIME, {"lateness": timedelta(days=999_999)}),
        (TumblingWindows.of(timedelta(days=1_000_000)), ON_TIME, {"lateness": timedelta(days=999_999)}),
        (TumblingWindows.of(timedelta(milliseconds=1)), ON_TIME, {"lateness": timedelta(milliseconds=1)}),
        (SlidingWindows.of(timedelta(days=1), timedelta(minutes=1)), ON_TIME, {}),
        (TEN, CountTrigger.at_least(10**9), {}),
        (TEN, ON_TIME, {"steps": "in 1@-1000d 2@2000000d\nwatermark 1d\nwatermark 2100000d\nend"}),
        (GlobalWindows(), ContinuousEventTimeTrigger.of(timedelta(hours=1)), {}),
        (TumblingWindows.of(timedelta(hours=1)), ContinuousProcessingTimeTrigger.of(timedelta(days=1)), {}),
        (SessionWindows.with_dynamic_gap("gap"), ON_TIME, {}),
        (GlobalWindows(), DeltaTrigger.of(0, "v"), {}),
    ],
)
def test_odd_policies_are_drawn(windows: Windows, trigger: Trigger, more: dict[str, Any]) -> None:
    root = ET.fromstring(draw(windows, trigger, **more))
    assert len(list(root.iter())) < 2_000
    assert 500 < float(root.get("width", "0")) < 1_500


def test_the_transcripts_are_there() -> None:
    assert len(CASES) >= 150, FOLDER


def test_a_trigger_draws_itself_in_a_notebook() -> None:
    trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
    assert trigger._repr_svg_() == trigger.to_svg() == draw(TumblingWindows.of(timedelta(seconds=10)), trigger)
    assert DeltaTrigger.of(1.0, "price")._repr_svg_() is None
