"""Random patterns with everything that :class:`Pattern` has beyond Flink, and short streams of a few keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import assume, reject
from hypothesis import strategies as st

from asterism.errors import MalformedPatternError
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import AfterMatchSkipStrategy, SkipKind

Row = dict[str, Any]
NAMES = "abcd"
SUBSET = "u"


@dataclass(slots=True)
class Chosen:
    """What a pattern has so far: the names that are left, and those that conditions can read."""

    left: list[str]
    used: list[str]


def chance(percent: int) -> st.SearchStrategy[bool]:
    return st.integers(0, 99).map(lambda number: number >= 100 - percent)


def conditions(letter: str, stage: str) -> st.SearchStrategy[str]:
    """On events of a kind, which events of other stages may share, on earlier events of the key, and on the match so far."""
    return st.sampled_from(
        [
            *12 * [f"name = '{letter}'"],
            f"name IN ('{letter}', 'a')",
            f"name IN ('{letter}', 'b')",
            f"name = '{letter}' OR price > 2",
            "price < 3",
            "price > PREV(price)",
            f"name = '{letter}' AND PREV(price, 2) < 3",
            "PREV(name) = 'a' OR PREV(name, 3) IS NULL",
            f"name = '{letter}' AND COUNT(*) < 3",
            "price >= LAST(price) OR COUNT(*) = 0",
            "SUM(price) < 7",
            f"name = '{letter}' AND (COUNT({SUBSET}.*) < 2 OR price > LAST({SUBSET}.price))",
            f"price >= MAX({SUBSET}.price) OR name = '{letter}'",
            f"name <> FIRST({stage}.name) AND name <> 'x'",
        ]
    )


@st.composite
def atoms(draw: st.DrawFn, chosen: Chosen, add: Callable[[str], Pattern], *, optional: bool = True) -> Pattern:
    """One stage, with a quantifier."""
    name = chosen.left.pop(0)
    pattern = add(name).where(draw(conditions(name, draw(st.sampled_from([*chosen.used, name])))))
    chosen.used.append(name)
    kind = draw(st.sampled_from(["once", "once", "once", "times", "loop", "loop"]))
    if kind == "times":
        least = draw(st.integers(1, 2))
        pattern = pattern.times(least, least + draw(st.integers(0, 2)))
    elif kind == "loop":
        pattern = pattern.times_or_more(
            draw(st.sampled_from([1, 1, 2])), within=draw(st.sampled_from([None, None, None, ms(3)]))
        )
    if kind != "once":
        inner = draw(st.sampled_from(["", "consecutive", "consecutive", "allow_combinations"]))
        pattern = getattr(pattern, inner)() if inner else pattern
    if optional and draw(chance(20)):
        pattern = pattern.optional()
    takings: list[Callable[[], Pattern]] = [pattern.reluctant]
    if kind != "once":
        takings += [pattern.greedy, lambda: pattern.greedy(give_back=True), pattern.longest, pattern.longest]
    if draw(chance(60)) and (kind != "once" or pattern.stages[-1].quantifier.optional):
        pattern = draw(st.sampled_from(takings))()
    if kind == "loop" and not pattern.stages[-1].quantifier.greedy and draw(chance(15)):
        pattern = pattern.until(draw(st.sampled_from(["name = 'x'", "price = 1"])))
    return pattern


@st.composite
def combinations(draw: st.DrawFn, chosen: Chosen, depth: int = 1) -> Pattern:
    """``any_of`` or ``in_any_order``: of stages, sequences of two stages and, rarely, further combinations."""
    elements = []
    for _ in range(draw(st.sampled_from([2, 2, 3]))):
        if not chosen.left:
            break
        if depth and len(chosen.left) > 1 and draw(chance(10)):
            elements.append(draw(combinations(chosen, depth - 1)))
            continue
        element = draw(atoms(chosen, Pattern.begin, optional=False))
        if draw(chance(25)) and chosen.left:
            adds: list[Callable[[str], Pattern]] = [element.next, element.followed_by]
            element = draw(atoms(chosen, draw(st.sampled_from(adds))))
        elements.append(element)
    if len(elements) < 2:
        reject()
    if draw(chance(60)):
        return Pattern.any_of(*elements)
    return Pattern.in_any_order(*elements, consecutive=draw(chance(40)))


@st.composite
def links(draw: st.DrawFn, chosen: Chosen, pattern: Pattern | None) -> Pattern:
    """One more stage or combination."""
    adds: list[Any] = [Pattern.begin]
    if pattern is not None:
        adds = [pattern.next, pattern.followed_by, pattern.followed_by_any]
        if pattern.stages[-1].contiguity.value == "NOT_BEFORE":
            adds = [pattern.followed_by]
    add = draw(st.sampled_from(adds))
    if len(chosen.left) < 2 or draw(chance(60)):
        return draw(atoms(chosen, add))
    made: Pattern = add(draw(combinations(chosen)))
    if draw(chance(25)):
        made = made.times(*draw(st.sampled_from([(1, 2), (2, 2)]))) if draw(chance(50)) else made.one_or_more()
        made = made.consecutive() if draw(chance(50)) else made
    if pattern is not None and draw(chance(20)):
        made = made.optional()
    return made


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    """Valid patterns of up to four stages."""
    chosen = Chosen(list(NAMES), [])
    skip = draw(st.sampled_from(list(SkipKind)))
    try:
        pattern = None
        if draw(chance(15)):
            pattern = Pattern.begin_without("z").where(
                draw(st.sampled_from(["name = 'x'", "price = 1", "name = 'a' AND price > 2"]))
            )
            pattern = (
                pattern.within(ms(draw(st.integers(1, 6))), inclusive=draw(chance(50))) if draw(chance(60)) else pattern
            )
        for _ in range(draw(st.sampled_from([1, 2, 2, 3]))):
            if chosen.left:
                pattern = draw(links(chosen, pattern))
        assert pattern is not None
        if draw(chance(35)):
            pattern = pattern.within(ms(draw(st.integers(2, 9))), inclusive=draw(chance(30)))
        pattern = pattern.starts_with_first_event() if draw(chance(12)) else pattern
        pattern = pattern.ends_with_last_event() if draw(chance(12)) else pattern
        pattern = pattern.subset(SUBSET, *draw(st.sets(st.sampled_from(chosen.used), min_size=1)))
        stage = None
        if skip in (SkipKind.SKIP_TO_FIRST, SkipKind.SKIP_TO_LAST):
            stage = draw(st.sampled_from(chosen.used))
        pattern = pattern.skip_strategy(AfterMatchSkipStrategy(skip, stage))
        compile_pattern(pattern)
    except MalformedPatternError:
        reject()
    # A stage that needs no event in the beginning gives every match without an event, which is none.
    assume(any(not stage.quantifier.optional and not stage.contiguity.negated for stage in pattern.stages))
    return pattern


@st.composite
def streams(draw: st.DrawFn, names: str, keys: int = 3, longest: int = 8) -> list[Row]:
    """Up to eight events of each key, some at the same time, in the order of arrival; not always in the order of times."""
    rows: list[Row] = []
    for key in "kjl"[: draw(st.sampled_from([1, 1, 2, keys]))]:
        time = draw(st.integers(0, 2))
        for _ in range(draw(st.integers(min(4, longest), longest)) if draw(chance(85)) else draw(st.integers(0, 3))):
            time += draw(st.sampled_from([1, 1, 1, 0, 2, 4]))
            row = {"key": key, "ts": time, "name": draw(st.sampled_from(names)), "price": draw(st.integers(1, 4))}
            rows.append(row)
    rows = draw(st.permutations(rows)) if draw(chance(30)) else sorted(rows, key=lambda row: int(row["ts"]))
    return [{**row, "id": number} for number, row in enumerate(rows, 1)]


@st.composite
def cases(draw: st.DrawFn, longest: int = 8) -> tuple[Pattern, list[Row]]:
    """A pattern, and a stream most of whose events are of the kinds that it is about."""
    pattern = draw(patterns())
    names = "".join(stage.name for stage in pattern.atoms() if stage.name in NAMES)
    return pattern, draw(streams(2 * names + "ax", longest=longest))


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)
