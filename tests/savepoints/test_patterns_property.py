"""A query that continues with another pattern has the rows of a replay with it, where they can be the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from asterism import Pattern
from asterism.operators.state.state_definition import StateDefinition
from asterism.savepoints.changes.patterns import PatternChange
from asterism.savepoints.key_groups import Summary
from asterism.testing import PatternHarness
from tests.savepoints.regrouping import continue_with

SECOND = timedelta(seconds=1)
OUTPUTS = "matches", "timed_out"
EVENTS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("uv")), min_size=4, max_size=24)
"""The kind and the key of each event; one event in a second."""
Rows = list[tuple[str, dict[str, Any]]]


def is_(letter: str, more: str = "") -> str:
    return f"kind = '{letter}'{more}"


def shapes(more: str = "", names: str = "abc") -> dict[str, Pattern]:
    """Patterns of stages with these names. *more*: a part of all conditions"""
    a, b, c = names
    begin = Pattern.begin(a).where(is_("a", more))
    in_group = Pattern.begin(b).where(is_("b", more)).followed_by(c).where(is_("c", more))
    return {
        "relaxed": begin.followed_by(b).where(is_("b", more)).followed_by(c).where(is_("c", more)),
        "any": begin.followed_by_any(b).where(is_("b", more)).followed_by_any(c).where(is_("c", more)),
        "strict": begin.next(b).where(is_("b", more)).next(c).where(is_("c", more)),
        "loop": begin.followed_by(b).where(is_("b", more)).one_or_more().followed_by(c).where(is_("c", more)),
        "combinations": begin.followed_by(b).where(is_("b", more)).one_or_more().allow_combinations()
        .followed_by(c).where(is_("c", more)),
        "greedy": begin.followed_by(b).where(f"kind IN ('b', 'c'){more}").one_or_more().greedy()
        .followed_by(c).where(is_("c", more)),
        "times": begin.followed_by(b).where(is_("b", more)).times(2, 3).followed_by(c).where(is_("c", more)),
        "optional": begin.followed_by(b).where(is_("b", more)).optional().followed_by(c).where(is_("c", more)),
        "optional loop": begin.followed_by(b).where(is_("b", more)).one_or_more().optional()
        .followed_by(c).where(is_("c", more)),
        "until": begin.followed_by(b).where(is_("b", more)).one_or_more().until(is_("d"))
        .followed_by(c).where(is_("c", more)),
        "absent": begin.not_followed_by(b).where(is_("b", more)).followed_by(c).where(is_("c", more)),
        "absent at the end": begin.followed_by(b).where(is_("b", more)).not_followed_by(c).where(is_("c", more)),
        "not next": begin.not_next(b).where(is_("b", more)).followed_by(c).where(is_("c", more)),
        "group": begin.followed_by(in_group).times(2),
        "iterative": begin.followed_by(b).where(f"value > {a}.value AND kind <> 'c'{more}").one_or_more()
        .followed_by(c).where(is_("c", f" AND value > AVG({b}.value){more}")),
        "previous": begin.followed_by(b).where(f"PREV(value) < value AND kind <> 'c'{more}").followed_by(c)
        .where(is_("c", more)),
    }  # fmt: skip


SHAPES = list(shapes())
NOT_AT_THE_END = st.sampled_from([shape for shape in SHAPES if shape != "absent at the end"])


def harness(pattern: Pattern, window: int = 9) -> PatternHarness:
    return PatternHarness(pattern.within(window * SECOND), keys=["key"])


def words(events: list[tuple[str, str]], first: int = 0) -> str:
    return " ".join(f"{key}.{kind}{7 * at % 5}@{at}s" for at, (kind, key) in enumerate(events, start=first))


def rows(run: PatternHarness) -> Rows:
    return [(output, row) for output in OUTPUTS for row in run.rows(output)]


def texts(found: Rows) -> list[str]:
    return sorted(map(str, found))


def replayed(pattern: Pattern, events: list[tuple[str, str]], window: int = 9) -> Rows:
    return rows(harness(pattern, window).send(words(events)).end())


def changed(
    old: PatternHarness,
    new: PatternHarness,
    events: list[tuple[str, str]],
    stop: int,
    *,
    watermark: int,
    renamed: Mapping[str, str] | None = None,
) -> tuple[Rows, Rows]:
    """The rows before the change and after it. The change is after *stop* events; those after *watermark* wait then."""

    def change_of(definition: StateDefinition, summary: Summary) -> PatternChange:
        return PatternChange(definition, new.cep, renamed, old.now.watermark)

    old.send(words(events[:stop])).advance_watermark(f"{watermark}s")
    continue_with(old, new, change_of)
    return rows(old), rows(new.send(words(events[stop:], stop)).end())


def stops(data: st.DataObject, events: list[tuple[str, str]]) -> tuple[int, int]:
    """(after how many events the query stops, its watermark: the time of one of the last three)."""
    stop = data.draw(st.integers(1, len(events) - 1))
    return stop, data.draw(st.integers(max(stop - 3, 0), stop - 1))


@given(shape=st.sampled_from(SHAPES), events=EVENTS, data=st.data())
def test_another_condition_that_decides_the_same_changes_nothing(shape: str, events: Any, data: Any) -> None:
    stop, watermark = stops(data, events)
    new = shapes(" AND value < 99")[shape]
    before, after = changed(harness(shapes()[shape]), harness(new), events, stop, watermark=watermark)
    assert texts(before + after) == texts(replayed(new, events))


@given(shape=st.sampled_from(SHAPES), events=EVENTS, data=st.data())
def test_stages_can_be_renamed(shape: str, events: Any, data: Any) -> None:
    stop, watermark = stops(data, events)
    new, renamed = shapes(names="xyz")[shape], {"a": "x", "b": "y", "c": "z"}
    _, after = changed(harness(shapes()[shape]), harness(new), events, stop, watermark=watermark, renamed=renamed)
    expected = [row for row in replayed(new, events) if _decided(row[1]) > watermark]
    assert texts(after) == texts(expected)


def _decided(row: dict[str, Any]) -> float:
    return float((row.get("match_time") or row["timeout_time"]).timestamp())


@given(shape=NOT_AT_THE_END, events=EVENTS, data=st.data())
def test_a_stage_at_the_end(shape: str, events: Any, data: Any) -> None:
    """A partial match that was complete was a match, and is not one with the new stage."""
    stop, watermark = stops(data, events)
    new = shapes()[shape].followed_by("z").where(is_("e"))
    _, after = changed(harness(shapes()[shape]), harness(new), events, stop, watermark=watermark)
    expected = [
        (output, row) for output, row in replayed(new, events)
        if _decided(row) > watermark and not (row["c"] and _last(row["c"]) <= watermark and _is_complete(shape, row))
    ]  # fmt: skip
    assert texts(after) == texts(expected)


def _is_complete(shape: str, row: dict[str, Any]) -> bool:
    return shape != "group" or len(row["c"]) == 2


def _last(events: list[dict[str, Any]]) -> float:
    return max(float(event["ts"].timestamp()) for event in events)


ANY = Pattern.begin("a").where(is_("a"))


def _any(*letters: str) -> Pattern:
    pattern = ANY
    for letter in letters:
        pattern = pattern.followed_by_any(letter).where(is_(letter))
    return pattern


@given(events=EVENTS, data=st.data(), old=st.permutations("bcd"), size=st.integers(0, 3))
def test_stages_can_be_inserted_and_removed(events: Any, data: Any, old: list[str], size: int) -> None:
    """Where every event can be skipped, a match takes events after the stop for all stages from the first new one on."""
    stop, watermark = stops(data, events)
    former, new = sorted(old[:size]), sorted(old[data.draw(st.integers(0, 3)) :])
    _, after = changed(harness(_any(*former, "f")), harness(_any(*new, "f")), events, stop, watermark=watermark)
    first_new = next((letter for letter in new if letter not in former), "f")
    expected = [
        ("matches", row)
        for row in (row for output, row in replayed(_any(*new, "f"), events) if output == "matches")
        if all(_last(row[letter]) > watermark for letter in [*new, "f"] if letter >= first_new)
        and _decided(row) > watermark
    ]
    assert texts([row for row in after if row[0] == "matches"]) == texts(expected)


@given(
    events=EVENTS,
    data=st.data(),
    shape=NOT_AT_THE_END,
    old=st.integers(3, 9),
    now=st.integers(3, 9),
)
def test_the_window_can_change(events: Any, data: Any, shape: str, old: int, now: int) -> None:
    stop, watermark = stops(data, events)
    pattern = shapes()[shape]
    _, after = changed(harness(pattern, old), harness(pattern, now), events, stop, watermark=watermark)
    found = [row for row in after if row[0] == "matches"]
    expected = [
        row for row in replayed(pattern, events, now)
        if row[0] == "matches" and _decided(row[1]) > watermark
        and (now <= old or row[1]["start_time"].timestamp() + old > watermark)
    ]  # fmt: skip
    assert texts(found) == texts(expected)
