"""Patterns as drawings. That they are good to look at is for eyes; here: what is in them, and what must not be."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import timedelta
from itertools import pairwise

import pytest

from asterism import AfterMatchSkipStrategy, Pattern, Semantics, WithinType
from asterism.errors import MalformedPatternError, PatternError
from asterism.patterns.drawing import automaton_svg
from asterism.text.diagram import MAX_PARTS

SVG = "{http://www.w3.org/2000/svg}"


def drawn(pattern: Pattern, what: str = "stages") -> ET.Element:
    return ET.fromstring(pattern.to_svg(what))  # type: ignore[arg-type]


def texts(root: ET.Element) -> list[str]:
    """What is written, without titles."""
    found = []
    for text in root.iter(f"{SVG}text"):
        title = text.find(f"{SVG}title")
        found.append(((text.text or "") + ((title.tail or "") if title is not None else "")).strip())
    return found


def titles(root: ET.Element) -> list[str]:
    return [title.text or "" for title in root.iter(f"{SVG}title")]


def chain(length: int) -> Pattern:
    pattern = Pattern.begin("s0")
    for number in range(1, length):
        pattern = pattern.next(f"s{number}").where(f"x = {number}")
    return pattern


EVERYTHING = (
    Pattern.begin("fails", AfterMatchSkipStrategy.skip_past_last_event())
    .where("event = 'failed'")
    .times_or_more(3)
    .consecutive()
    .until("event = 'reset'")
    .not_followed_by("alarm")
    .where("event = 'alarm'")
    .followed_by_any(Pattern.begin("b").next("c").optional())
    .times(2, 4)
    .followed_by("d")
    .where("price > LAST(b.price) AND volume > 1000 AND status IN ('open', 'closed', 'unknown') AND x")
    .within(timedelta(minutes=1), WithinType.PREVIOUS_AND_CURRENT)
    .within(timedelta(minutes=10))
)


def test_everything_that_was_said_is_drawn() -> None:
    root = drawn(EVERYTHING)
    written = texts(root)
    for text in (
        "fails", "event = 'failed'", "until event = 'reset'", "consecutive", "3+", "not followed by", "alarm",
        "followed by any", "b", "next", "c", "?", "2..4", "relaxed", "followed by, < 1 min", "d", "within 10 min",
        "after a match: SKIP_PAST_LAST_EVENT", "must not occur", "the very next event", "any later one that fits",
    ):  # fmt: skip
        assert text in written


BRANCHES = (
    Pattern.begin_without("refund")
    .where("event = 'refund'")
    .within(timedelta(hours=1), inclusive=True)
    .followed_by("order")
    .followed_by(Pattern.any_of("card", Pattern.begin("invoice").next("paid"), "voucher"))
    .next(Pattern.in_any_order("sent", "noted", consecutive=True))
    .times(2)
    .next("end")
    .times(2, 3)
    .longest()
    .within(timedelta(days=3), inclusive=True)
    .starts_with_first_event()
    .subset("payment", "card", "voucher")
)


def boxes_of(root: ET.Element) -> dict[str, tuple[float, float, float, float]]:
    """The frames of stages, by name: left, top, right, bottom."""
    found: dict[str, tuple[float, float, float, float]] = {}
    frame = (0.0, 0.0, 0.0, 0.0)
    for shape in root:
        if shape.tag == f"{SVG}rect" and shape.get("stroke-width") == "1.4":
            x, y, width, height = (float(shape.get(name, "0")) for name in ("x", "y", "width", "height"))
            frame = x, y, x + width, y + height
        elif shape.get("font-weight") == "bold" and shape.get("font-size") == "14":
            [title] = shape.iter(f"{SVG}title")
            found[title.text or ""] = frame
    return found


def test_branches_are_below_each_other() -> None:
    """And all of them are on the paper."""
    root = drawn(BRANCHES)
    boxes = boxes_of(root)
    assert [*boxes] == ["refund", "order", "card", "invoice", "paid", "voucher", "sent", "noted", "end"]
    for above, below in (("card", "invoice"), ("invoice", "voucher"), ("sent", "noted")):
        assert boxes[above][3] < boxes[below][1]
    for before, after in (("order", "card"), ("card", "sent"), ("paid", "sent"), ("noted", "end")):
        assert boxes[before][2] < boxes[after][0] or boxes[before][3] < boxes[after][1]
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    assert all(x >= 0 and y >= 0 and right <= width and bottom <= height for x, y, right, bottom in boxes.values())


def test_what_flink_lacks_is_written() -> None:
    written = texts(drawn(BRANCHES))
    for text in (
        "≤ 1 h before the match", "one of", "all of in any order, consecutive", "longest", "at most 3 d",
        "begins with the first event of the key", 'subset "payment": card, voucher',
    ):  # fmt: skip
        assert any(text in line for line in written), text
    page = BRANCHES._repr_html_()
    for text in ("alternative &quot;card&quot;", "element &quot;sent&quot;", "begins with the first event of the key"):
        assert text in page


def test_alternatives_are_bounded() -> None:
    root = drawn(Pattern.any_of(*[f"s{number}" for number in range(100)]).next("end"))
    assert f"… and {101 - MAX_PARTS} more stages" in texts(root)
    pattern = Pattern.any_of("a", "b")
    for number in range(20):
        pattern = Pattern.any_of(pattern.next(f"c{number}"), f"d{number}")
    assert any(text.startswith("group of ") for text in texts(drawn(pattern)))


def test_automaton_beyond_flink_is_drawn() -> None:
    written = texts(drawn(BRANCHES, "automaton"))
    assert any(line.endswith(": first event of the key") for line in written)
    assert any(line.startswith("refund before a match: not c") for line in written)
    preferred = Pattern.begin("a").one_or_more().greedy(give_back=True).next("b").ends_with_last_event()
    written = texts(drawn(preferred, "automaton"))
    assert "$end LAST" in written
    assert "of the matches with the same first event: most events of a" in written


def test_long_conditions_are_shortened_and_in_full_in_the_title() -> None:
    root = drawn(EVERYTHING)
    condition = "price > LAST(b.price) AND volume > 1000 AND status IN ('open', 'closed', 'unknown') AND x"
    assert condition in titles(root)
    assert condition not in texts(root)
    assert any(text.endswith("…") for text in texts(root))


def test_contiguity_is_a_style_of_lines() -> None:
    for verb, dashes in (("next", None), ("followed_by", "7 4"), ("followed_by_any", "1.5 4")):
        pattern: Pattern = getattr(Pattern.begin("a"), verb)("b")
        lines = [path.get("stroke-dasharray") for path in drawn(pattern).iter(f"{SVG}path") if path.get("stroke")]
        assert (dashes in lines) or dashes is None
        assert {line for line in lines if line is not None} == ({dashes} - {None})


def test_not_stages_are_struck_out_and_red() -> None:
    root = drawn(Pattern.begin("a").not_next("n").where("x").followed_by("b"))
    [name] = [text for text in root.iter(f"{SVG}text") if text.get("text-decoration")]
    assert (name.get("text-decoration"), name.get("fill")) == ("line-through", "#c62828")


def test_drawing_has_paper_of_its_own() -> None:
    root = drawn(Pattern.begin("a"))
    paper = root[0]
    assert (paper.tag, paper.get("fill")) == (f"{SVG}rect", "#ffffff")
    assert float(paper.get("width", "0")) + 1 == float(root.get("width", "0"))


HOSTILE = [
    "</title></text></svg><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]><!--",
    "&lt;script&gt;&amp;&#60;",
    "javascript:alert(1)",
    "\x00\x01\x1b[2J\x7f\ufffe\uffff",
    "\u202egnp.exe\u2066",
    "\n\r\t",
    "名前" * 40,
    "e\u0301" * 500,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_from_outside_is_only_text(text: str) -> None:
    """In names, conditions and until conditions; in the drawings and in the HTML around them."""
    name = text.replace(":", "")
    pattern = (
        Pattern.begin(name).where(text).one_or_more().until(text).not_next(name + "2").where(lambda events: events)
    )
    pattern = pattern.followed_by(Pattern.begin(name + "3").where(text).next("z"))
    pattern = pattern.next(Pattern.any_of(name + "4", name + "5")).subset(name + "6", name)
    for svg in (pattern.to_svg(), pattern.to_svg("automaton")):
        root = ET.fromstring(svg)
        assert {element.tag for element in root.iter()} <= {
            SVG + tag for tag in ("svg", "style", "rect", "text", "title", "path", "circle")
        }
        for element in root.iter():
            assert not any(name.startswith("on") or "href" in name for name in element.attrib)
        svg.encode("utf-8")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]", svg)
    page = pattern._repr_html_()
    assert page.encode("utf-8")
    assert not re.search(r"<(script|img|a)\b", page)
    tags = set(re.findall(r"</?([a-z]+)", page))
    assert tags <= {
        "div",
        "svg",
        "style",
        "rect",
        "text",
        "title",
        "path",
        "circle",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }


def test_size_is_bounded() -> None:
    """200 stages, all with names and conditions that are long."""
    pattern = Pattern.begin("n" * 10_000)
    for number in range(199):
        pattern = pattern.next(f"{number}" * 5_000).where(f"x = '{'y' * 15_000}'")
    root = drawn(pattern)
    assert f"… and {200 - MAX_PARTS} more stages" in texts(root)
    for text in (pattern.to_svg(), pattern.to_svg("automaton"), pattern._repr_html_()):
        assert len(text) < 1_000_000
    assert float(root.get("width", "0")) < 1_200


def test_stages_of_groups_count() -> None:
    pattern = Pattern.begin("a")
    for number in range(10):
        inner = Pattern.begin(f"g{number}")
        for other in range(9):
            inner = inner.next(f"g{number}_{other}")
        pattern = pattern.followed_by(inner)
    written = texts(drawn(pattern))
    assert "… and 41 more stages" in written
    assert sum(text.startswith("g") for text in written) == MAX_PARTS - 1


def test_deep_groups_are_counted() -> None:
    pattern = Pattern.begin("a")
    for number in range(20):
        pattern = Pattern.begin(pattern).next(f"b{number}")
    assert "group of 14 stages" in texts(drawn(pattern))


@pytest.mark.parametrize("length", [1, 2, 5, 6, 14, 40])
def test_long_chains_go_on_in_new_rows(length: int) -> None:
    """No box overlaps another, and all are on the paper."""
    root = drawn(chain(length))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    assert width < 1_100
    boxes = [
        tuple(float(rect.get(name, "0")) for name in ("x", "y", "width", "height"))
        for rect in list(root.iter(f"{SVG}rect"))[1:]
        if rect.get("stroke-width") == "1.4"
    ]
    assert len(boxes) == length
    for x, y, w, h in boxes:
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
    for (x, y, w, h), (next_x, next_y, _, _) in pairwise(boxes):
        assert next_x >= x + w or next_y >= y + h


def test_incomplete_pattern_can_be_drawn_but_has_no_automaton() -> None:
    pattern = Pattern.begin("a").not_followed_by("b")
    assert "b" in texts(drawn(pattern))
    assert "<td>not followed by &quot;b&quot;</td><td>must not occur</td>" in pattern._repr_html_()
    with pytest.raises(MalformedPatternError):
        pattern.to_svg("automaton")


def test_automaton_shows_states_edges_and_conditions() -> None:
    pattern = Pattern.begin("a").where("x > 1").one_or_more().not_followed_by("n").where("y").followed_by("b")
    written = texts(drawn(pattern.within(timedelta(seconds=1)), "automaton"))
    for text in (
        "a:1 START",
        "n STOP",
        "b",
        "$end",
        "c0: y",
        "c1: x > 1",
        "within 1 s",
        "PROCEED → n if c0",
        "TAKE → a if c1",
    ):
        assert text in written


def test_automaton_is_that_of_the_semantics() -> None:
    pattern = Pattern.begin("a").followed_by("b").times(2, within=timedelta(seconds=5))
    assert pattern.to_svg("automaton") == automaton_svg(pattern, Semantics.DEFAULT)
    assert pattern.to_svg("automaton", Semantics.FLINK) == automaton_svg(pattern, Semantics.FLINK)
    assert automaton_svg(pattern, Semantics.FLINK) != automaton_svg(pattern, Semantics.DEFAULT)


def test_large_automaton_is_cut_off() -> None:
    assert any(text.endswith(" more states") for text in texts(drawn(Pattern.begin("a").times(1000), "automaton")))


def test_lanes_of_an_automaton_do_not_overlap() -> None:
    root = drawn(EVERYTHING, "automaton")
    vertical: dict[str, list[tuple[float, float]]] = {}
    for path in root.iter(f"{SVG}path"):
        for x, y, end in re.findall(r"Q([\d.]+) ([\d.]+) [\d.]+ [\d.]+L\1 ([\d.]+)Q", path.get("d", "")):
            low, high = sorted((float(y), float(end)))
            vertical.setdefault(x, []).append((low, high))
    assert vertical
    for spans in vertical.values():
        for (_, end), (start, _) in pairwise(sorted(spans)):
            assert end <= start


def test_notebooks_get_the_drawing_and_a_table() -> None:
    pattern = Pattern.begin("a").where("x < 1").followed_by("b").one_or_more().until("y > 2")
    assert pattern._repr_svg_() == pattern.to_svg()
    page = pattern._repr_html_()
    assert pattern.to_svg() in page
    assert (
        "<td>2</td><td>followed by &quot;b&quot;</td><td>1 or more times, relaxed</td><td>any event</td><td>y &gt; 2</td>"
        in page
    )


def test_only_known_drawings() -> None:
    with pytest.raises(PatternError, match="not 'everything'"):
        Pattern.begin("a").to_svg("everything")  # type: ignore[arg-type]


def test_same_pattern_same_drawing() -> None:
    """Drawings can be kept under version control."""
    assert EVERYTHING.to_svg() == EVERYTHING.to_svg()
