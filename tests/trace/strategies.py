"""Random patterns with everything that :class:`~asterism.Pattern` offers, written with its methods."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from hypothesis import assume
from hypothesis import strategies as st

from asterism import AfterMatchSkipStrategy, Pattern
from asterism.errors import AsterismError
from asterism.patterns.compiler import check_pattern
from asterism.patterns.sequence import WithinType
from tests.patterns.strategies import (
    LETTERS,
    Json,
    chance,
    events,
    iterative_conditions,
    pure_conditions,
    steps,
    weighted,
)

SUBSET = "u"
NAMES = tuple("abcdefgh")
_OF_KEY = (
    "price > PREV(price)",
    "name <> PREV(name, 2)",
    "PREV(volume) IS NULL OR PREV(volume, 3) = 1",
    "volume >= PREV(volume + 1) - 1 OR name = '{letter}'",
)
_OF_MATCH = (
    "COUNT(*) < 3",
    "SUM(volume) <= 3 OR name = '{letter}'",
    "price >= LAST(price) AND name <> 'x'",
    "FIRST(name) IN ('a', 'b') OR name = '{letter}'",
    "MAX(price) + 1 > price OR COUNT(volume) = 0",
    "name = LAST(name, 1) OR name = '{letter}'",
)
_TAKINGS: tuple[Callable[[Pattern], Pattern], ...] = (
    Pattern.longest,
    Pattern.reluctant,
    lambda pattern: pattern.greedy(give_back=True),
    Pattern.greedy,
)
_SKIPS = (
    AfterMatchSkipStrategy.no_skip,
    AfterMatchSkipStrategy.skip_past_last_event,
    AfterMatchSkipStrategy.skip_to_next,
    AfterMatchSkipStrategy.first_match_only,
)


def _tried(pattern: Pattern, change: Callable[[Pattern], Pattern]) -> Pattern:
    """The changed pattern; the same one if the change is refused."""
    try:
        return change(pattern)
    except AsterismError:
        return pattern


@st.composite
def conditions(draw: st.DrawFn, *, of_match: bool = True) -> str | None:
    letter = draw(st.sampled_from("abbac"))
    if of_match and draw(chance(30)):
        text = draw(st.one_of(st.sampled_from(_OF_KEY + _OF_MATCH), iterative_conditions(letter, [SUBSET])))
        return text.format(letter=letter)
    return draw(pure_conditions(letter))


def milliseconds() -> st.SearchStrategy[timedelta]:
    return st.integers(1, 20).map(lambda size: timedelta(milliseconds=size))


@st.composite
def _with_condition(draw: st.DrawFn, pattern: Pattern) -> Pattern:
    text = draw(conditions())
    return pattern if text is None else pattern.where(text)


@st.composite
def _repeated(draw: st.DrawFn, pattern: Pattern, *, like_flink: bool) -> Pattern:
    """The pattern whose last stage may be a loop or optional."""
    if draw(chance(50)):
        least, gap = draw(st.integers(1, 2)), draw(milliseconds()) if draw(chance(15)) else None
        if draw(chance(60)):
            pattern = _tried(pattern, lambda p: p.times_or_more(least, within=gap))
            if draw(chance(25)):
                until = draw(conditions())
                pattern = _tried(pattern, lambda p: p.until(until or f"name = '{LETTERS[-1]}'"))
        else:
            most = least + draw(st.integers(0, 2))
            pattern = _tried(pattern, lambda p: p.times(least, most, within=gap))
        inner = draw(st.sampled_from([Pattern.consecutive, Pattern.consecutive, Pattern.allow_combinations, None]))
        if inner is not None:
            pattern = _tried(pattern, inner)
    if draw(chance(25)):
        pattern = _tried(pattern, Pattern.optional)
    if draw(chance(65)):
        pattern = _tried(pattern, Pattern.greedy if like_flink else draw(st.sampled_from(_TAKINGS)))
    return pattern


@st.composite
def _parts(draw: st.DrawFn, names: list[str], depth: int, *, like_flink: bool) -> Pattern:
    """One stage with its condition, a chain, alternatives, or elements in any order."""
    kind = (
        draw(weighted(stage=4, chain=1) if like_flink else weighted(stage=4, chain=1, any_of=1, in_any_order=1))
        if depth
        else "stage"
    )
    if kind == "stage" or len(names) < 3:
        return draw(_with_condition(Pattern.begin(names.pop(0))))
    if kind == "chain":
        return draw(_chains(names, draw(st.integers(1, 2)), depth - 1, like_flink=like_flink))
    parts = []
    for _ in range(draw(st.integers(2, 3))):
        if names:
            part = draw(_parts(names, depth - 1, like_flink=like_flink))
            if draw(chance(20)):
                part = draw(_repeated(part, like_flink=like_flink))
            parts.append(part)
    consecutive = draw(chance(40))
    try:
        return Pattern.any_of(*parts) if kind == "any_of" else Pattern.in_any_order(*parts, consecutive=consecutive)
    except AsterismError:
        return parts[0]


@st.composite
def _chains(draw: st.DrawFn, names: list[str], length: int, depth: int, *, like_flink: bool) -> Pattern:
    first = draw(_parts(names, depth, like_flink=like_flink))
    pattern = first if len(first.stages) == 1 else Pattern.begin(first)
    pattern = draw(_repeated(pattern, like_flink=like_flink))
    for _ in range(length - 1):
        if not names:
            break
        if draw(chance(12)):
            negated = partial(draw(st.sampled_from([Pattern.not_next, Pattern.not_followed_by])), stage=names.pop(0))
            changed = _tried(pattern, negated)
            pattern = pattern if changed is pattern else draw(_with_condition(changed))
            continue
        part = draw(_parts(names, depth, like_flink=like_flink))
        add = draw(st.sampled_from([Pattern.next, Pattern.followed_by, Pattern.followed_by_any]))
        only = part.stages[0]
        if len(part.stages) == 1 and only.group is None:
            pattern = add(pattern, only.name)
            pattern = pattern if only.condition is None else pattern.where(only.condition)
        else:
            pattern = add(pattern, part)
        pattern = draw(_repeated(pattern, like_flink=like_flink))
        if draw(chance(10)):
            kind = WithinType.PREVIOUS_AND_CURRENT
            bounded = partial(
                Pattern.within,
                duration=draw(milliseconds()),
                within_type=kind,
                inclusive=not like_flink and draw(chance(50)),
            )
            pattern = _tried(pattern, bounded)
    return pattern


@st.composite
def _runs(draw: st.DrawFn, names: list[str]) -> Pattern:
    """A longest loop, alone or after a stage."""
    loop = Pattern.begin(names.pop(0))
    if draw(chance(40)):
        loop = draw(st.sampled_from([Pattern.next, Pattern.followed_by]))(loop.where("name = 'a'"), names.pop(0))
    loop = loop.where(draw(st.sampled_from(["name = 'a'", "name IN ('a', 'b')", "volume > 0", "price >= PREV(price)"])))
    loop = loop.times_or_more(draw(st.integers(1, 2)))
    if draw(chance(30)):
        loop = loop.until(draw(st.sampled_from(["volume = 2", "name = 'x'"])))
    return (loop if draw(chance(40)) else loop.consecutive()).longest()


@st.composite
def patterns(draw: st.DrawFn, *, like_flink: bool = False) -> Pattern:
    """
    :param like_flink: only with what Semantics.FLINK supports, and expressions beyond Flink
    """
    names = list(NAMES)
    without: Pattern | None = None
    if not like_flink and draw(chance(15)):
        without = Pattern.begin_without(names.pop())
        condition = draw(conditions(of_match=False))
        without = without if condition is None else without.where(condition)
        if draw(chance(60)):
            without = without.within(draw(milliseconds()), inclusive=not like_flink and draw(chance(50)))
    if not like_flink and draw(chance(20)):
        pattern = draw(_runs(names))
    else:
        pattern = draw(_chains(names, draw(st.sampled_from([1, 2, 2, 3])), 2, like_flink=like_flink))
    if without is not None:
        pattern = without.followed_by(pattern)
        if draw(chance(30)):
            pattern = draw(_repeated(pattern, like_flink=like_flink))
    if draw(chance(40)):
        pattern = _tried(
            pattern,
            partial(Pattern.within, duration=draw(milliseconds()), inclusive=not like_flink and draw(chance(50))),
        )
    if not like_flink and draw(chance(10)):
        pattern = pattern.starts_with_first_event()
    if not like_flink and draw(chance(15)):
        pattern = pattern.ends_with_last_event()
    stages = [stage.name for stage in pattern.atoms() if not stage.contiguity.negated]
    members: list[str] = draw(st.lists(st.sampled_from(stages), min_size=1, max_size=3))
    pattern = pattern.subset(SUBSET, *members)
    if draw(chance(60)):
        named = [stage.name for stage in pattern.stages if stage.group is None]
        skip = draw(st.sampled_from(_SKIPS[:-1] if like_flink else _SKIPS))()
        if draw(chance(30)) and named:
            to = draw(st.sampled_from([AfterMatchSkipStrategy.skip_to_first, AfterMatchSkipStrategy.skip_to_last]))
            skip = to(draw(st.sampled_from(named)))
        pattern = pattern.skip_strategy(skip)
    try:
        check_pattern(pattern)
    except AsterismError:
        assume(False)
    return pattern


@st.composite
def streams(draw: st.DrawFn) -> Json:
    """The events and steps of a case."""
    rows = draw(events())
    case: Json = {"events": rows, "steps": draw(steps(rows))}
    if draw(chance(10)):
        case["order_by"] = [draw(st.sampled_from(["price", "-volume", "name"]))]
    return case
