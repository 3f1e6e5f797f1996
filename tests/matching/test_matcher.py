"""The matcher on its own: automata made by hand, and several patterns in one call."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asterism.columns.time import END_OF_TIME, TIME
from asterism.errors import InvalidEventError
from asterism.matching.binding import BoundPattern
from asterism.matching.matcher import KeyedEvents, MatchColumns, Matcher, Step
from asterism.matching.page import Page
from asterism.matching.plan import MatchPlan
from asterism.patterns.automaton import ALWAYS, Action, Nfa, NfaState, NfaStateKind, Not
from asterism.patterns.automaton import Test as Holds
from asterism.patterns.conditions import Condition, IterativeCondition, SqlCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import AfterMatchSkipStrategy

SCHEMA = pa.schema([("kind", pa.string()), ("n", pa.int64())])
KEYS = pa.schema([("key", pa.string())])
FIRST_OR_SECOND = {"first": (0,), "second": (1,), "last": (2,)}


def first_or_second(*conditions: Condition) -> Nfa:
    """``(first | second) last``, with any events in between: no Pattern can say that."""
    final = NfaState(0, "$end", "", NfaStateKind.FINAL)
    last = NfaState(1, "last", "last", NfaStateKind.NORMAL)
    second = NfaState(2, "second", "second", NfaStateKind.NORMAL)
    first = NfaState(3, "first", "first", NfaStateKind.START)
    first.add(Action.TAKE, last, Holds(0))
    first.add(Action.PROCEED, second, ALWAYS)
    second.add(Action.TAKE, last, Holds(1))
    last.add(Action.TAKE, final, Holds(2))
    last.add(Action.IGNORE, last, Not(Holds(2)))
    return Nfa((final, last, second, first), first, conditions, ("first", "second", "last"), None)


def sql(*texts: str) -> list[Condition]:
    return [SqlCondition(text) for text in texts]


def prepared(bound: BoundPattern, words: str) -> pa.Table:
    """Events written as kinds and numbers, one a microsecond."""
    split = [(word[0], int(word[1:])) for word in words.split()]
    events = pa.table([[kind for kind, _ in split], [n for _, n in split]], schema=SCHEMA)
    fields = [pa.field(TIME, pa.int64()), *bound.bit_fields, *bound.event_schema]
    return pa.table([pa.array(range(len(split)), pa.int64()), *bound.prepare(events)], schema=pa.schema(fields))


def keys(count: int) -> pa.Table:
    return pa.table([["k"] * count], schema=KEYS)


def described(step: Step, found: MatchColumns, stages: tuple[str, ...]) -> list[str]:
    kinds = step.events.column("e:kind").to_pylist()
    return [
        " ".join(
            f"{stages[stage]}={kinds[event]}"
            for event, stage in zip(found.events[begin:end].tolist(), found.stages[begin:end].tolist(), strict=True)
        )
        for begin, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)
    ]


def matches(plan: MatchPlan, words: str, cut: int | None = None) -> list[str]:
    """What an automaton finds; with *cut*, in two calls with the matcher sent to another process in between."""
    bound = BoundPattern(plan, SCHEMA)
    matcher, page = Matcher([bound]), Page.empty(KEYS, bound.event_schema)
    events = prepared(bound, words)
    result = []
    for begin, end in [(0, len(events))] if cut is None else [(0, cut), (cut, len(events))]:
        part = events.slice(begin, end - begin)
        horizon = END_OF_TIME if end == len(events) else begin
        shown = KeyedEvents.of_one(bound, page, keys(part.num_rows), part, horizon)
        (step,) = matcher.advance_one(page, shown)
        result += described(step, step.matches, plan.nfa.stages)
        assert step.page is not None
        page = step.page
        matcher = pickle.loads(pickle.dumps(matcher))
    return result


@pytest.mark.parametrize("cut", [None, 0, 1, 2, 3, 4, 5, 6])
def test_an_automaton_needs_no_pattern(cut: int | None) -> None:
    nfa = first_or_second(*sql("kind = 'a'", "kind = 'b'", "kind = 'c' AND n > COUNT(first.*)"))
    plan = MatchPlan(nfa=nfa, conditions_of=FIRST_OR_SECOND, kept_columns=("kind",))
    # c1 is not more than the one event of `first`, but more than none.
    assert matches(plan, "b0 a0 x0 c1 c2 c3", cut) == ["second=b last=c", "first=a last=c"]


def test_an_automaton_has_a_skip_strategy() -> None:
    nfa = first_or_second(*sql("kind = 'a'", "kind = 'b'", "kind = 'c'"))
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    plan = MatchPlan(nfa=nfa, conditions_of=FIRST_OR_SECOND, kept_columns=("kind",), skip=skip)
    assert matches(plan, "b0 a0 c0 a0 c0") == ["second=b last=c", "first=a last=c"]


def test_messages_name_the_stages_of_a_plan() -> None:
    def fails(event: Any, context: Any) -> bool:
        return bool(1 // event.n)

    nfa = first_or_second(*sql("kind = 'a'", "kind = 'b'"), IterativeCondition(fails))
    plan = MatchPlan(nfa=nfa, conditions_of=FIRST_OR_SECOND, kept_columns=("kind",))
    with pytest.raises(InvalidEventError, match=r'(?s)fails of stage "last" failed.*ZeroDivisionError.*key key=\'k\''):
        matches(plan, "a0 x0")


def test_a_set_gives_what_each_of_its_patterns_gives_alone() -> None:
    """Also where the conditions of both are in Python."""
    kept_columns = tuple(SCHEMA.names)
    first = Pattern.begin("a").where("kind = 'a'").followed_by("b").where(IterativeCondition(lambda e, _: e.n > 1))
    second = Pattern.begin("x").where("n > 1 AND n < 4").next("y").where(IterativeCondition(lambda e, _: e.kind == "c"))
    both = [BoundPattern.of_pattern(pattern, SCHEMA, kept_columns=kept_columns) for pattern in (first, second)]
    schema = pa.schema([field.with_name("e:" + field.name) for field in SCHEMA])
    words = "a1 b2 c3 a3 c1 c2"
    alone = []
    parts = []
    for bound in both:
        events = prepared(bound, words)
        page = Page.empty(KEYS, bound.event_schema)
        shown = KeyedEvents.of_one(bound, page, keys(6), events, END_OF_TIME)
        (step,) = Matcher([bound]).advance_one(page, shown)
        alone.append(described(step, step.matches, bound.nfa.stages))
        parts.append(shown)
    one, other = parts
    shown = KeyedEvents(
        keys=pa.concat_tables([one.keys, other.keys]),
        stored=np.array([-1, -1]),
        pattern=np.array([0, 1]),
        kept=np.array([True, True]),
        horizon=np.concatenate([one.horizon, other.horizon]),
        begins=np.array([0, 6, 12]),
        table=prepared(both[0], words),
        rows=np.concatenate([one.rows, other.rows]),
        bits=np.concatenate([one.bits, other.bits]),
        positions=np.concatenate([one.positions, other.positions]),
    )
    (step,) = Matcher(both, schema).advance(Page.empty(KEYS, schema), shown)
    assert isinstance(step, Step)
    everything = described(step, step.matches, ("0", "1"))
    assert [row.replace("0=", "a=").replace("1=", "b=") for row in everything[:2]] == alone[0] != []
    assert [row.replace("0=", "x=").replace("1=", "y=") for row in everything[2:]] == alone[1] != []
