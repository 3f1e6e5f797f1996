"""What is bounded, and what happens at the bound: partial matches of a key, and the size of definitions."""

from __future__ import annotations

import json
import pickle
import random
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from asterism import IterativeCondition, Pattern, Semantics
from asterism.columns.time import END_OF_TIME
from asterism.conformance.corpus import CUTS
from asterism.errors import (
    ExpressionError,
    LimitExceededError,
    MalformedPatternError,
    PatternFormatError,
    StreamDefinitionError,
)
from asterism.matching import plan
from asterism.matching.binding import BoundPattern
from asterism.matching.operator import DROPPED, CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns import compiler
from asterism.patterns.compiler import MAX_STATES, compile_pattern
from asterism.patterns.conditions import Condition, SqlCondition
from asterism.patterns.sequence import MAX_GROUP_DEPTH, AfterMatchSkipStrategy
from tests.kit import FACTOR
from tests.matching import twin
from tests.matching.harness import SCHEMA, chain, found, stage
from tests.reference.matcher import run_case

# ---------------------------------------------------------------------------------------------------- partial matches

SUBSETS = (
    stage("a").followed_by("b").where("name = 'b'").one_or_more().allow_combinations().followed_by("c").where("name = 'c'")
)  # fmt: skip


def operator(pattern: Pattern, **options: Any) -> CepOperator:
    outputs = {"matches": OutputSpec(OutputKind.MATCHES)}
    return CepOperator(pattern, SCHEMA, keys=["key"], time="ts", outputs=outputs, **options)


def feed(cep: CepOperator, words: str) -> tuple[int, int]:
    """Events ``u.a1``, then the end of time; (number of matches, what was dropped)."""
    rows = []
    for word in words.split():
        key, _, rest = word.rpartition(".")
        rows.append({"key": key or None, "ts": int(rest[1:]), "name": rest[0], "n": int(rest[1:])})
    store = MemoryStore()
    cep.process(store, [Arrival(EVENTS, cep.prepare(EVENTS, pa.Table.from_pylist(rows, schema=SCHEMA)))], Now())
    result = cep.process(store, [], Now(END_OF_TIME))
    return sum(table.num_rows for table in result.outputs.values()), result.metrics.get(DROPPED, 0)


def test_nothing_is_counted_where_nothing_is_dropped() -> None:
    """Nine b's make 2^8 subsets that begin with the first."""
    assert feed(operator(SUBSETS), "a1 b2 b3 b4 b5 b6 b7 b8 b9 b10 c11") == (256, 0)


MANY = "a1 " + " ".join(f"b{n}" for n in range(2, 22)) + " c40"


def test_there_is_a_limit_by_default() -> None:
    with pytest.raises(LimitExceededError, match=r"a key has 196,608 partial matches \(limit 100,000\)"):
        feed(operator(SUBSETS), MANY)


def test_what_one_event_takes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the limit drops partial matches."""
    monkeypatch.setattr(plan, "LEAST_PARTIAL_MATCHES", 1)
    pattern = chain("a", "b", by="followed_by_any")
    for on_limit in ("error", "drop"):
        cep = operator(pattern, max_partial_matches=4, on_limit=on_limit)
        assert feed(cep, "a1 a2 a3 a4 b5") == (4, 0)
        monkeypatch.setattr(plan, "STEPS_PER_PARTIAL_MATCH", 100)
        with pytest.raises(LimitExceededError) as caught:
            feed(operator(pattern, max_partial_matches=4, on_limit=on_limit), "a1 a2 a3 a4 b5")
        assert str(caught.value) == (
            "[LIMIT_EXCEEDED] an event takes more than 400 steps for the partial matches of its key\n  key key=None\n"
            "  The limit is 100 for each of the partial matches that are allowed.\n"
            '  Hint: bound them with within(...), raise max_partial_matches, or set on_limit="drop"; see docs/limits.md'
        )
        monkeypatch.setattr(plan, "STEPS_PER_PARTIAL_MATCH", 1000)


def test_the_error_names_key_count_and_limit() -> None:
    """The key that has too many, not its neighbour."""
    cep = operator(SUBSETS, max_partial_matches=20)
    assert feed(cep, "u.a1 u.b2 u.b3 u.b4 u.c5 v.a1 v.c5") == (4, 0)
    with pytest.raises(LimitExceededError) as caught:
        feed(cep, "u.a1 v.a1 u.b2 v.b2 v.b3 v.b4 v.b5 v.b6 v.b7 u.b3")
    assert str(caught.value) == (
        "[TOO_MANY_PARTIAL_MATCHES] a key has 24 partial matches (limit 20)\n  key key='v'\n"
        '  Hint: bound them with within(...), raise max_partial_matches, or set on_limit="drop"; see docs/limits.md'
    )


def test_the_limit_is_reached_not_exceeded() -> None:
    """After each event the partial matches of a key are counted, without what is only ready to begin one."""
    pattern = chain("a", "b")
    assert feed(operator(pattern, max_partial_matches=3), "a1 a2 a3 b4 a5 a6 a7 u.a8 b9") == (6, 0)
    with pytest.raises(LimitExceededError, match="a key has 4 partial matches"):
        feed(operator(pattern, max_partial_matches=3), "a1 a2 a3 a4 b5")


def test_what_completes_with_the_event_does_not_count() -> None:
    assert feed(operator(chain("a", "b"), max_partial_matches=1), "a1 b2 a3 b4") == (2, 0)


def test_what_waits_for_its_emission_does_not_count() -> None:
    """A match that a skip strategy holds back is no partial match any more."""
    pattern = chain("a", "b").skip_strategy(AfterMatchSkipStrategy.skip_past_last_event())
    held = stage("a").followed_by("b").where("name = 'b' AND LAST(a.n) > 1")
    cep = operator(held.skip_strategy(pattern.skip), max_partial_matches=2)
    assert feed(cep, "a1 a2 b3 a4 b5 a6 b7") == (3, 0)


def test_what_began_last_is_dropped_and_counted() -> None:
    """What stays gives the answers that it gives without a limit."""
    pattern = chain("a", "b", "c")
    text = "a1 a2 a3 b4 a5 b6 c7"
    assert twin.found(pattern, text, limit=2) == ["a1 b4 c7", "a2 b4 c7"]
    assert set(twin.found(pattern, text, limit=2)) < set(twin.found(pattern, text))
    assert feed(operator(pattern, max_partial_matches=2, on_limit="drop"), text) == (2, 2)


def test_of_those_that_began_together_the_newest_branches_are_dropped() -> None:
    """At the limit a loop takes no further events; what it has already is kept. What waits for two stages counts twice."""
    assert twin.found(SUBSETS, "a1 b2 b3 b4 b5 c6", limit=2) == ["a1 b2 c6"]
    assert twin.found(SUBSETS, "a1 b2 b3 b4 b5 c6", limit=4) == ["a1 b2 b3 c6", "a1 b2 c6"]


def test_dropped_is_not_timed_out() -> None:
    pattern = chain("a", "b").within(timedelta(milliseconds=5))
    case = twin.case_of(pattern, "a1 a2 a3")
    options: dict[str, Any] = {"max_partial_matches": 1, "on_limit": "drop"}
    answer = twin.run_engine(pattern, case, Semantics.DEFAULT, "rows", **options)
    assert answer["timeouts"] == [[6, {"a": [1]}]]
    assert answer["dropped"] == 2


def test_room_is_there_again_after_a_timeout() -> None:
    pattern = chain("a", "b").within(timedelta(milliseconds=5))
    assert twin.found(pattern, "a1 a2 a7 b8", limit=1) == ["a7 b8"]


def test_each_key_has_the_limit_for_itself() -> None:
    cep = operator(chain("a", "b"), max_partial_matches=1, on_limit="drop")
    assert feed(cep, "u.a1 v.a2 u.a3 v.a4 u.b5 v.b6") == (2, 2)


def test_another_limit_is_no_other_definition() -> None:
    """It may change from one run to the next."""
    unlimited, limited = operator(SUBSETS), operator(SUBSETS, max_partial_matches=5, on_limit="drop")
    assert unlimited.fingerprint == limited.fingerprint
    store = MemoryStore()
    rows = [{"key": "k", "ts": n, "name": "a", "n": n} for n in range(1, 9)]
    unlimited.process(
        store, [Arrival(EVENTS, unlimited.prepare(EVENTS, pa.Table.from_pylist(rows, schema=SCHEMA)))], Now(watermark=0)
    )
    unlimited.process(store, [], Now(watermark=8_000))
    more = pa.Table.from_pylist([{"key": "k", "ts": n, "name": x, "n": n} for n, x in ((9, "b"), (10, "c"))], SCHEMA)
    limited.process(store, [Arrival(EVENTS, limited.prepare(EVENTS, more))], Now(watermark=8_000))
    result = limited.process(store, [], Now(END_OF_TIME))
    assert result.outputs["matches"].num_rows <= 5
    assert result.metrics[DROPPED] >= 3


@pytest.mark.parametrize("semantics", list(Semantics), ids=lambda semantics: semantics.value)
@pytest.mark.parametrize("skip", ["NO_SKIP", "SKIP_TO_NEXT", "SKIP_PAST_LAST_EVENT"])
@pytest.mark.parametrize("seed", range(FACTOR))
def test_what_is_dropped_does_not_depend_on_the_cuts(semantics: Semantics, skip: str, seed: int) -> None:
    """Random streams through patterns that branch, at several limits: as the slow matcher, however the batches are cut."""
    rng = random.Random(seed)
    letters = rng.choices("aabbbc", k=14)
    text = " ".join(f"{letter}{n}" + (" |" if rng.random() < 0.2 else "") for n, letter in enumerate(letters, 1))
    kind = next(k for k in type(AfterMatchSkipStrategy().kind) if k.value == skip)
    begin = stage("a").one_or_more().allow_combinations().followed_by_any("b").where("name IN ('b', 'a')")
    patterns = (SUBSETS, begin.times(1, 2).within(timedelta(milliseconds=9)), begin.optional().followed_by("c"))
    for number, pattern in enumerate(patterns):
        skipping = pattern.skip_strategy(AfterMatchSkipStrategy(kind))
        case = twin.case_of(skipping, text)
        for limit in (1, 3, 7) if FACTOR > 1 else ((1, 3, 7)[number],):
            expected = run_case(case, semantics.value, limit)
            for cuts in CUTS:
                options: dict[str, Any] = {"max_partial_matches": limit, "on_limit": "drop"}
                answer = twin.run_engine(skipping, case, semantics, cuts, **options)
                assert twin.comparable(answer) == twin.comparable(expected), (text, limit, cuts)


@pytest.mark.parametrize(
    "options",
    [
        {"max_partial_matches": 0},
        {"max_partial_matches": -1},
        {"max_partial_matches": True},
        {"max_partial_matches": 10**13},
        {"on_limit": "ignore"},
    ],
    ids=str,
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(StreamDefinitionError, match=next(iter(options))):
        operator(SUBSETS, **options)


# ---------------------------------------------------------------------------------------------------- size of definitions


THOUSANDS = 2_000 if FACTOR == 1 else 5_000
"""More than Python calls can be nested in each other."""


def many(stages: int, add: Callable[[Pattern, int], Pattern]) -> Pattern:
    pattern = stage("s")
    for number in range(stages):
        pattern = add(pattern, number)
    return pattern


LONG: dict[str, Callable[[Pattern, int], Pattern]] = {
    "relaxed": lambda p, n: p.followed_by(f"s{n}").where("name = 'a'"),
    "strict": lambda p, n: p.next(f"s{n}").where("name = 'a'"),
    "optional": lambda p, n: p.followed_by(f"s{n}").where("name = 'a'").optional(),
    "strict and optional": lambda p, n: p.next(f"s{n}").where("name = 'a'").optional(),
    "loops": lambda p, n: p.followed_by(f"s{n}").where("name = 'a'").one_or_more(),
    "greedy": lambda p, n: p.followed_by(f"s{n}").where(f"name = '{'ab'[n % 2]}'").one_or_more().greedy(),
    "forbidden": lambda p, n: p.not_followed_by(f"n{n}").where("name = 'x'").followed_by(f"s{n}").where("name = 'a'"),
    "Python": lambda p, n: p.followed_by(f"s{n}").where(IterativeCondition(lambda event, context: event.name == "a")),
}


@pytest.mark.parametrize("kind", ["relaxed", "strict", "Python"])
def test_thousands_of_stages(kind: str) -> None:
    check_stages(kind)


def check_stages(kind: str) -> None:
    """Definition, pickle, tables and a few events."""
    bound = BoundPattern.of_pattern(many(THOUSANDS, LONG[kind]), SCHEMA)
    if kind != "Python":  # these are not made for a plain pickle
        assert len(pickle.loads(pickle.dumps(bound)).nfa.states) == len(bound.nfa.states)
    assert len(bound.tables.states) == len(bound.nfa.states) > THOUSANDS


def test_thousands_of_stages_match() -> None:
    pattern = many(THOUSANDS - 1, LONG["strict"])
    text = "s1 " + " ".join(f"a{n}" for n in range(2, THOUSANDS + 1))
    cep = operator(pattern)
    assert feed(cep, text) == (1, 0)
    assert feed(cep, text.replace("a1900", "b1900")) == (0, 0)


@pytest.mark.parametrize(
    "pattern",
    [
        lambda: Pattern.begin("a").times(1, 10**9),
        lambda: Pattern.begin("a").times_or_more(10**9),
        lambda: nested(45, lambda p: p.times(2)),
        lambda: nested(30, lambda p: p.times_or_more(3)),
        lambda: many(400, lambda p, n: (p if n else p.not_followed_by("n")).followed_by(f"s{n}").optional()),
    ],
    ids=["times", "times_or_more", "times of times", "loops of loops", "copies"],
)
def test_too_many_states_are_refused(pattern: Callable[[], Pattern]) -> None:
    """As soon as there are too many, not when memory is full."""
    with pytest.raises(MalformedPatternError, match=f"needs more than {MAX_STATES:,} states"):
        compile_pattern(pattern())


def test_too_many_stages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MAX_STATES", 500)
    with pytest.raises(MalformedPatternError, match="needs more than 500 states"):
        compile_pattern(many(500, LONG["relaxed"]))


def test_too_many_forbidden_stages_are_refused() -> None:
    """Every forbidden stage is an edge of every state that sees it."""
    pattern = many(3000, lambda p, n: p.not_followed_by(f"n{n}").where("name = 'x'"))
    with pytest.raises(MalformedPatternError, match="forbids too many stages in too many places"):
        compile_pattern(pattern.followed_by("b").times(1, 3000))


def nested(depth: int, wrap: Callable[[Pattern], Pattern] = lambda p: p) -> Pattern:
    pattern = stage("a")
    for _ in range(depth):
        pattern = wrap(Pattern.begin(pattern))
    return pattern


def test_deeply_nested_groups() -> None:
    """The deepest that is accepted works from end to end; what is deeper is refused where it is said."""
    deepest = nested(MAX_GROUP_DEPTH)
    assert found(deepest, "a1 b2 a3") == ["a1", "a3"]
    assert repr(deepest).count("Pattern(") == MAX_GROUP_DEPTH + 1
    assert pickle.loads(pickle.dumps(deepest)) == deepest
    for depth in (MAX_GROUP_DEPTH + 1, 2000):
        with pytest.raises(
            MalformedPatternError, match=rf"groups are nested too deeply \(limit {MAX_GROUP_DEPTH} levels\)"
        ):
            nested(depth)


def test_a_group_that_is_used_many_times_is_looked_at_once() -> None:
    """It has to be refused, as its stages have the same names; that must not take for ever."""
    pattern = Pattern.begin("a")
    for _ in range(20):
        pattern = Pattern.begin(pattern).next(pattern)
    with pytest.raises(MalformedPatternError, match='two stages are named "a"'):
        compile_pattern(pattern)


@pytest.mark.parametrize("depth", [60, 2000, 100_000])
def test_deeply_nested_json(depth: int) -> None:
    leaf = '{"name": "a", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}}'
    opening = '{"name": "g", "type": "COMPOSITE", "quantifier": {"properties": ["SINGLE"]}, "edges": [], "nodes": ['
    for text in (opening * depth + leaf + "]}" * depth, "[" * depth, '{"nodes":' * depth):
        with pytest.raises(PatternFormatError):
            Pattern.from_json(text)


def test_json_of_many_stages() -> None:
    names = [f"s{n}" for n in range(5000)]
    nodes = [{"name": name, "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}} for name in names]
    edges = [{"source": a, "target": b, "type": "STRICT"} for a, b in pairwise(names)]
    text = json.dumps({"name": "", "type": "COMPOSITE", "nodes": nodes, "edges": edges})
    assert len(Pattern.from_json(text).stages) == 5000


# ---------------------------------------------------------------------------------------------------- conditions


def test_deeply_nested_conditions() -> None:
    """The deepest that is accepted works from end to end, by every way to make one."""
    deepest = stage("a")
    for _ in range(100):
        deepest = deepest.where("n > 0")
    assert found(deepest, "a1 b2 a3") == ["a1", "a3"]
    assert pickle.loads(pickle.dumps(deepest)) == deepest
    assert hash(deepest) == hash(pickle.loads(pickle.dumps(deepest)))


WAYS: dict[str, Callable[[Pattern], Pattern]] = {
    "where": lambda p: p.where("n > 0"),
    "or_": lambda p: p.or_("n > 0"),
    "&": lambda p: Pattern.begin("a").where(condition(p) & "n > 0"),
    "|": lambda p: Pattern.begin("a").where(SqlCondition("n > 0") | condition(p)),
    "~": lambda p: Pattern.begin("a").where(~condition(p)),
    "both sides": lambda p: Pattern.begin("a").where(condition(p).or_(condition(p).negate())),
}


def condition(pattern: Pattern) -> Condition:
    found = pattern.stages[0].condition
    assert found is not None
    return found


@pytest.mark.parametrize("way", WAYS)
def test_conditions_that_are_too_deeply_nested(way: str) -> None:
    def endless() -> None:
        pattern = stage("a")
        for _ in range(5000):
            pattern = WAYS[way](pattern)

    with pytest.raises(MalformedPatternError, match=r"conditions are nested too deeply \(limit 100 levels\)"):
        endless()


LONG_CONDITIONS = [
    "n > 0 OR " * 10_000 + "n > 1",
    "n > 0 OR " * 2_000 + "n > 1",
    "n > 0 AND " * 1_900 + "n > 1",
    "n > LAST(a.n) OR " * 1_100 + "n > 1",
    "n > LAST(a.n) AND " * 1_000 + "n > 1",
    "n + " * 4_000 + "1 > 2",
    "LAST(a.n) + " * 1_500 + "1 > 2",
    "(" * 40 + "LAST(a.n)" + " <=> n)" * 40,
    "nullif(" * 40 + "LAST(a.n)" + ", n)" * 40 + " > 1",
    "nullif(" * 40 + "1 / LAST(a.n)" + ", n)" * 40 + " > 1",
    "greatest(" + ", ".join(f"LAST(a.n, {number})" for number in range(40)) + ") > 1",
    "(" * 5_000 + "n" + ")" * 5_000 + " > 1",
    "(" * 100_000,
    "NOT " * 4_000 + "TRUE",
    "- " * 4_000 + "n > 1",
    "CASE WHEN LAST(a.n) > 1 THEN " * 600 + "TRUE" + " END" * 600,
    "CASE " + "WHEN LAST(a.n) > 1 THEN TRUE " * 600 + "END",
    "coalesce(" * 1_500 + "n" + ")" * 1_500 + " > 1",
    "concat(" + "name, " * 2_500 + "name) = 'x'",
    "n IN (" + ", ".join(map(str, range(3_500))) + ")",
    "LAST(a.n) IN (" + ", ".join(map(str, range(3_500))) + ")",
    "name = '" + "x" * 19_000 + "'",
    "name = '" + "x" * 100_000 + "'",
    "n > " + "1" * 19_000,
    "n > 1 /*" + "/*" * 5_000,
    "a.b." * 4_000 + "c > 1",
    "[" * 10_000,
    "name RLIKE '" + "(a*)*" * 3_000 + "'",
    "`" * 10_001,
    "\0" * 10_000,
]


@pytest.mark.parametrize("text", LONG_CONDITIONS[::3], ids=lambda text: f"{text[:12]}... {len(text)}")
def test_long_conditions_are_refused_or_work(text: str) -> None:
    """In the whole path, and never by a RecursionError."""
    with suppress(ExpressionError):
        assert found(stage("a").followed_by("b").where(text), "a1 b2") in ([], ["a1 b2"])
    measure = OutputSpec(OutputKind.MATCHES, (re.sub(r"\b(n|name)\b", r"LAST(a.\1)", text.replace("a.n", "n")),))
    with suppress(ExpressionError):
        CepOperator(stage("a"), SCHEMA, time="ts", outputs={"matches": measure})


def test_ways_to_skip_stages_are_bounded() -> None:
    """Each group can be left out in two ways; what doubles sixty times is refused, not tried."""
    pattern = stage("a")
    for number in range(60):
        pattern = pattern.next(Pattern.begin(f"g{number}").where("name = 'x'").optional()).optional()
    with pytest.raises(MalformedPatternError, match="too many ways to skip its optional stages"):
        feed(operator(pattern.next("e").where("name = 'e'")), "a1 b2 e3")
