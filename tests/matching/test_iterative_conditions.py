"""Per-event conditions in Python: what they see, how they combine, and that nothing but the events decides."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asterism import AfterMatchSkipStrategy, IterativeCondition, Pattern, Semantics
from asterism.columns.time import END_OF_TIME
from asterism.conformance.corpus import CUTS
from asterism.errors import ColumnNotFoundError, InvalidEventError, MalformedPatternError
from asterism.matching.binding import BoundPattern
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.conditions import AndCondition, ConditionContext, Event, NotCondition, OrCondition, SqlCondition
from tests.matching import harness, twin
from tests.matching.harness import SCHEMA, Run, ms, stage
from tests.matching.twin import comparable, run_engine
from tests.reference.matcher import run_case

Function = Callable[[Event, ConditionContext], bool]


def run(pattern: Pattern, text: str, **options: Any) -> Run:
    """As :func:`tests.matching.harness.run`, with prices as ``a1=5``."""
    return harness.run(pattern, re.sub(r"=(\S+)", r"(price=\1)", text), **options)


def named(name: str) -> IterativeCondition:
    return IterativeCondition(lambda event, context: event.name == name)


# ---------------------------------------------------------------------------------------------------- what they can say


def below_five(event: Event, context: ConditionContext) -> bool:
    """The example of Flink's documentation: the prices of all accepted events of the stage stay below 5."""
    if not event["name"].startswith("foo"):
        return False
    return sum(earlier["price"] for earlier in context.events_for_pattern("middle")) + event["price"] < 5.0


def test_sum_over_the_events_that_were_accepted() -> None:
    middle = Pattern.begin("start").where("name = 's'").followed_by("middle").one_or_more()
    pattern = middle.where(IterativeCondition(below_five)).followed_by("end").where("name = 'e'")
    assert twin.found(pattern, "s1 foo2=2 bar3=1 foo4=2.5 | foo5=1 foo6=0.25 e7") == [
        "s1 foo2 e7",
        "s1 foo2 foo4 e7",
        "s1 foo2 foo4 foo6 e7",
    ]


def test_events_of_an_earlier_stage() -> None:
    """As LAST and FIRST in SQL; in order of acceptance."""
    growing = IterativeCondition(lambda event, context: event.price > context.events_for_pattern("a")[-1].price)
    pattern = stage("a").times(2).followed_by("b").where("name = 'b'").where(growing)
    assert twin.found(pattern, "a1=1 a2=7 b3=5 a4=1 b5=2 b6=9") == ["a1 a2 b6", "a2 a4 b5"]


def test_the_current_event_is_not_among_the_accepted() -> None:
    """Nor is there anything of other stages before they took anything, or of a stage that takes nothing."""
    seen: list[list[int]] = []

    def note(event: Event, context: ConditionContext) -> bool:
        seen.append([len(context.events_for_pattern(name)) for name in ("a", "n", "b")])
        return True

    pattern = stage("a").not_followed_by("n").where("name = 'n'").followed_by("b").where("name = 'b'").one_or_more()
    run(pattern.where(IterativeCondition(note)), "a1 b2 b3")
    assert [0, 0, 0] not in seen
    assert {tuple(counts) for counts in seen} == {(1, 0, 0), (1, 0, 1)}


def test_or_and_not() -> None:
    cheap = IterativeCondition(lambda event, context: event.price is not None and event.price < 2)
    later = IterativeCondition(lambda event, context: len(context.events_for_pattern("a")) >= 1)
    pattern = Pattern.begin("a").where(named("a") & ~cheap).or_(cheap & later | "name = 'z'").times(1, 2).consecutive()
    pattern = pattern.next("b").where(named("b"))
    assert twin.found(pattern, "a1=3 a2=1 b3 | z4 b5 a6=1 b7") == ["a1 a2 b3", "z4 b5"]


def test_until() -> None:
    """The loop ends once three were taken and a fourth came."""
    full = IterativeCondition(lambda event, context: len(context.events_for_pattern("a")) == 3)
    pattern = stage("a").one_or_more().greedy().until(full).followed_by("b").where("name = 'b'")
    assert twin.found(pattern, "a1 a2 a3 x4 b5") == ["a1 a2 a3 b5", "a2 a3 b5", "a3 b5"]
    loop = stage("s").followed_by("a").where("name = 'a'").one_or_more().until(full)
    assert twin.found(loop, "s1 a2 a3 a4 a5 a6") == ["s1 a2", "s1 a2 a3", "s1 a2 a3 a4"]


def test_until_of_a_group() -> None:
    """Once two rounds were taken, whatever comes ends it."""
    enough = IterativeCondition(lambda event, context: len(context.events_for_pattern("b")) == 2)
    group = Pattern.begin(stage("a").next("b").where(named("b"))).one_or_more().until(enough)
    assert twin.found(group, "a1 b2 a3 b4 | a5 b6") == ["a1 a3 b2 b4", "a1 b2", "a3 a5 b4 b6", "a3 b4", "a5 b6"]


def test_forbidden_by_what_was_taken() -> None:
    other = IterativeCondition(lambda event, context: event.price != context.events_for_pattern("a")[0].price)
    pattern = stage("a").not_followed_by("n").where("name = 'n'").where(other).followed_by("b").where("name = 'b'")
    assert twin.found(pattern, "a1=1 a2=2 n3=2 b4") == ["a2 b4"]


@pytest.mark.parametrize("skip", ["skip_to_next", "skip_past_last_event"])
def test_with_skip_strategies(skip: str) -> None:
    rising = IterativeCondition(
        lambda event, context: all(event.price > earlier.price for earlier in context.events_for_pattern("a"))
    )
    pattern = stage("a").where(rising).one_or_more().followed_by("b").where("name = 'b'")
    strategy = getattr(AfterMatchSkipStrategy, skip)()
    assert twin.found(pattern.skip_strategy(strategy), "a1=1 a2=3 a3=2 b4 | a5=1 b6")


def test_many_partial_matches() -> None:
    """More than there is room for at first: the key is processed again."""
    few = IterativeCondition(lambda event, context: len(context.events_for_pattern("a")) < 4)
    pattern = stage("a").where(few).one_or_more().allow_combinations().followed_by("b").where("name = 'b'")
    text = " ".join(f"a{n}" for n in range(1, 10))
    assert len(twin.found(pattern, f"{text} b10")) == sum([9, 36, 84, 126])


# ---------------------------------------------------------------------------------------------------- when they are asked


class Counting:
    """A condition that notes of which events it was asked."""

    def __init__(self, answer: bool = True) -> None:
        self.answer = answer
        self.calls: list[str] = []

    def __call__(self, event: Event, context: ConditionContext) -> bool:
        self.calls.append(f"{event['name']}{event['ts']}")
        return self.answer


def test_not_asked_where_the_condition_before_decides() -> None:
    """where(x).where(f): only where x is TRUE, not where it is FALSE or NULL; where(x).or_(f): only where it is not."""
    both, either = Counting(), Counting()
    run(stage("a").where("price > 1").where(IterativeCondition(both)), "a1=5 a2=1 b3=5 a4=null a5=2")
    assert both.calls == ["a1", "a5"]
    run(stage("a").or_(IterativeCondition(either)), "a1 b2 a3 c4")
    assert either.calls == ["b2", "c4"]


def test_not_asked_where_a_condition_on_earlier_events_decides() -> None:
    """Also one that is decided for each partial match."""
    counting = Counting()
    second = Pattern.begin("b").where("price > LAST(a.price)").where(IterativeCondition(counting))
    pattern = stage("a").followed_by(second)
    run(pattern, "a1=3 b2=1 b3=4")
    assert counting.calls == ["b3"]


def test_division_is_not_tried_where_the_condition_before_decides() -> None:
    """The same order holds for SQL over earlier events."""
    ratio = stage("a").followed_by("b").where("name = 'b'").where("LAST(a.price) > 0").where("1 / LAST(a.price) > 0")
    assert run(ratio, "a1=0 b2 a3=1 b4").matches == ["a3 b4 @4"]


def test_events_that_meet_no_other_condition_are_passed_over() -> None:
    counting = Counting()
    pattern = stage("a").followed_by("b").where("name = 'b'").where(IterativeCondition(counting))
    run(pattern, "a1 " + " ".join(f"x{n}" for n in range(2, 50)) + " b50")
    assert counting.calls == ["b50"]


def test_asked_once_for_all_partial_matches_if_it_asks_for_nothing() -> None:
    """An answer that depends on the event alone is the same for each of them, and for the edges of a state."""
    counting = Counting(False)
    pattern = stage("a").followed_by("b").where(IterativeCondition(counting))
    run(pattern, "a1 a2 a3 b4")
    assert counting.calls == ["a2", "a3", "b4"]


def test_events_that_they_alone_decide_are_not_filtered() -> None:
    alone = stage("a").followed_by("b").where(IterativeCondition(Counting()))
    assert BoundPattern.of_pattern(alone, SCHEMA).relevance_sql() is None
    after_sql = stage("a").followed_by("b").where("name = 'b'").where(IterativeCondition(Counting()))
    assert BoundPattern.of_pattern(after_sql, SCHEMA).relevance_sql() == "(`name` = 'b') OR (`name` = 'a')"
    negated = stage("a").followed_by("b").where(~IterativeCondition(Counting()))
    assert BoundPattern.of_pattern(negated, SCHEMA).relevance_sql() is None


def test_a_condition_over_earlier_events_only_is_no_part_of_the_filter() -> None:
    pattern = stage("a").followed_by("b").where("name = 'b'").where("price > LAST(a.price)")
    assert BoundPattern.of_pattern(pattern, SCHEMA).relevance_sql() == "(`name` = 'b') OR (`name` = 'a')"


# ---------------------------------------------------------------------------------------------------- what they see

TYPED = pa.schema(
    [
        ("key", pa.string()),
        ("ts", pa.timestamp("us", "Europe/Berlin")),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
        ("keys", pa.struct([("x", pa.int32())])),
        ("unused", pa.binary()),
    ]
)
NOON = datetime(2025, 7, 1, 12, tzinfo=UTC)


def see(function: Function, rows: list[dict[str, Any]], schema: pa.Schema = TYPED, columns: Any = None) -> None:
    """Show *rows* to a condition; what it notes is its affair."""
    condition = IterativeCondition(function, columns)
    outputs = {"matches": OutputSpec(OutputKind.MATCHES, measures=("COUNT(a.*) AS n",))}
    operator = CepOperator(Pattern.begin("a").where(condition), schema, keys=["key"], time="ts", outputs=outputs)
    store = MemoryStore()
    prepared = operator.prepare(EVENTS, pa.Table.from_pylist(rows, schema=schema))
    operator.process(store, [Arrival(EVENTS, prepared)], Now())
    operator.process(store, [], Now(END_OF_TIME))


def test_values_are_those_of_pyarrow() -> None:
    row = {"key": "k", "ts": NOON, "price": None, "tags": ["x", None], "keys": {"x": 1}, "unused": b"\0"}
    seen: list[Event] = []
    see(lambda event, context: bool(seen.append(event)), [row])
    (event,) = seen
    assert dict(event) == row == {**event}
    assert list(event) == list(event.keys()) == TYPED.names
    assert len(event) == len(TYPED)
    assert "price" in event
    assert "prize" not in event
    assert event.get("prize", 7) == 7
    assert event.tags == ["x", None]
    assert event["keys"] == {"x": 1}  # the attribute of this name is a method
    assert event.ts.utcoffset() == timedelta(hours=2)
    assert repr(event).startswith("Event({'key': 'k', 'ts': datetime.datetime(2025")


@pytest.mark.parametrize("ask", [lambda event: event["prize"], lambda event: event.prize])
def test_unknown_columns_are_named(ask: Callable[[Event], Any]) -> None:
    with pytest.raises(InvalidEventError, match="'prize' is not a column of the condition; its columns are key, price"):
        see(lambda event, context: bool(ask(event)), [{"key": "k", "ts": NOON}], columns=["key", "price"])


def test_only_the_columns_asked_for_are_carried() -> None:
    def columns(which: Any) -> list[str]:
        pattern = Pattern.begin("a").where(IterativeCondition(lambda event, context: True, which)).times(2)
        outputs = {"matches": OutputSpec(OutputKind.MATCHES, measures=("COUNT(a.*) AS n",))}
        operator = CepOperator(pattern, TYPED, time="ts", outputs=outputs)
        assert operator.pattern.event_schema.names == ["e:" + name for name in operator.pattern.input_columns]
        return operator.pattern.input_columns

    assert columns(None) == TYPED.names
    assert columns("price") == columns(("price",)) == ["price"]
    assert columns(["tags", "key"]) == ["key", "tags"]
    assert columns(()) == []


def test_columns_that_the_events_do_not_have_are_refused() -> None:
    with pytest.raises(ColumnNotFoundError, match="unknown column 'prise'"):
        BoundPattern.of_pattern(Pattern.begin("a").where(IterativeCondition(named, ["prise"])), SCHEMA)


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.timestamp("us", "Europe/Berlin"), NOON, NOON),
        (pa.timestamp("ns", "UTC"), NOON, NOON),
        (pa.timestamp("us"), NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
        (pa.int64(), int(NOON.timestamp() * 1000) + 5, NOON + timedelta(milliseconds=5)),
    ],
)
def test_time_of_the_event(kind: pa.DataType, value: Any, shown: datetime) -> None:
    """As the time column says it; what is counted in milliseconds is shown in UTC."""
    seen: list[Any] = []
    schema = pa.schema([("key", pa.string()), ("ts", kind)])
    see(lambda event, context: bool(seen.append((context.timestamp, event.ts))), [{"key": "k", "ts": value}], schema)
    (timestamp, column) = seen[0]
    assert timestamp == shown
    assert timestamp.tzinfo == shown.tzinfo or timestamp.utcoffset() is not None
    assert isinstance(column, int) or timestamp == column


def test_processing_time() -> None:
    """It is the time of the call; in processing time, it is also the time of the event."""
    seen: list[tuple[str, datetime, datetime]] = []

    def slow(event: Event, context: ConditionContext) -> bool:
        seen.append((event.name, context.timestamp, context.current_processing_time))
        first = context.events_for_pattern("a")
        return not first or context.current_processing_time.second >= 2

    pattern = Pattern.begin("a").where(IterativeCondition(slow)).followed_by("b").where(IterativeCondition(slow))
    waiting = Run(pattern, time=None)
    for second, words in ((1, "a1"), (1, "x1"), (3, "b2")):
        waiting.move(processing_time=second * 1_000_000)
        waiting.send(words)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert {name: when for name, when, _ in seen} == {
        "a": epoch + timedelta(seconds=1),
        "x": epoch + timedelta(seconds=1),
        "b": epoch + timedelta(seconds=3),
    }
    assert all(timestamp == now for _, timestamp, now in seen)
    assert [len(row["b"]) for row in waiting.rows()] == [1, 1]


def test_processing_time_beside_event_time() -> None:
    """In event time the two have nothing to do with each other; the end of time is shown as the last moment there is."""
    seen: list[tuple[datetime, datetime]] = []

    def note(event: Event, context: ConditionContext) -> bool:
        seen.append((context.timestamp, context.current_processing_time))
        return True

    cep = Run(Pattern.begin("a").where(IterativeCondition(note))).move(processing_time=7_000_000)
    cep.send("a1 | a2").end()
    assert seen[0] == (datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), datetime(1970, 1, 1, 0, 0, 7, 0, UTC))
    assert seen[1] == (datetime(1970, 1, 1, 0, 0, 0, 2000, UTC), datetime.max.replace(tzinfo=UTC))


def test_the_context_is_closed_afterwards() -> None:
    kept: list[ConditionContext] = []
    run(Pattern.begin("a").where(IterativeCondition(lambda event, context: bool(kept.append(context)))), "a1")
    for ask in (lambda c: c.timestamp, lambda c: c.current_processing_time, lambda c: c.events_for_pattern("a")):
        with pytest.raises(RuntimeError, match="only until the condition has returned"):
            ask(kept[0])


def test_events_outlive_the_call() -> None:
    kept: list[Event] = []
    run(Pattern.begin("a").where(IterativeCondition(lambda event, context: bool(kept.append(event)))), "a1=5 b2")
    assert [event.price for event in kept] == [5.0, None]


def test_unknown_stage() -> None:
    """An error, but in Flink's semantics, where it has accepted nothing."""
    pattern = Pattern.begin("a").where(IterativeCondition(lambda event, context: not context.events_for_pattern("z")))
    with pytest.raises(InvalidEventError, match="unknown stage 'z'"):
        run(pattern, "a1")
    assert run(pattern, "a1", semantics=Semantics.FLINK).matches == ["a1 @1"]


# ---------------------------------------------------------------------------------------------------- what goes wrong


def fails(event: Event, context: ConditionContext) -> bool:
    return 1 / event.price > 0


def test_an_exception_is_told_with_stage_and_key() -> None:
    pattern = stage("a").followed_by("b").where("name = 'b'").where(IterativeCondition(fails))
    with pytest.raises(InvalidEventError) as caught:
        run(pattern, "u.a1 v.a2 u.b3=1 v.b4=0")
    assert str(caught.value) == (
        "[EVALUATION_FAILED] condition fails of stage \"b\" failed\n  ZeroDivisionError: float division by zero\n  key key='v'"
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.__cause__.__traceback__ is not None


def test_the_state_survives_an_exception() -> None:
    """Nothing was written: the same call can be made again."""
    fragile = Counting()

    def sometimes(event: Event, context: ConditionContext) -> bool:
        if not fragile.answer:
            raise ValueError("not now")
        return True

    cep = Run(stage("a").followed_by("b").where("name = 'b'").where(IterativeCondition(sometimes))).send("a1 | b2")
    fragile.answer = False
    with pytest.raises(InvalidEventError, match="not now"):
        cep.move(watermark=2000)
    fragile.answer = True
    cep.move(watermark=2000)
    assert cep.matches == ["a1 b2 @2"]


@pytest.mark.parametrize("answer", [None, 1, 0, "yes", [], 1.0])
def test_an_answer_that_is_no_boolean_is_an_error(answer: Any) -> None:
    pattern = stage("a").one_or_more().until(IterativeCondition(lambda event, context: answer))
    with pytest.raises(InvalidEventError) as caught:
        run(pattern, "a1 a2")
    assert re.fullmatch(
        r"\[EVALUATION_FAILED\] condition \S+<lambda> of stage \"a\" did not return True or False\n"
        rf"  It returned {re.escape(repr(answer))}\.\n  key key=None\n  Hint: wrap it in bool\(\.\.\.\)",
        str(caught.value),
    )


def test_numpy_booleans_are_booleans() -> None:
    condition = IterativeCondition(lambda event, context: np.float64(event.price) > 1)
    assert run(Pattern.begin("a").where(condition), "a1=1 b2=2").matches == ["b2 @2"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_not_an_error_passes_unchanged(kind: type[BaseException]) -> None:
    def interrupted(event: Event, context: ConditionContext) -> bool:
        raise kind

    with pytest.raises(kind):
        run(Pattern.begin("a").where(IterativeCondition(interrupted)), "a1")


def test_only_functions_make_conditions() -> None:
    with pytest.raises(MalformedPatternError, match="needs a function, not \"name = 'a'\""):
        IterativeCondition("name = 'a'")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- conditions as values


def test_operators_are_the_methods() -> None:
    a, b = SqlCondition("x"), IterativeCondition(fails)
    assert a & b == a.and_(b) == AndCondition(a, b)
    assert a | b == a.or_(b) == OrCondition(a, b)
    assert ~b == b.negate() == NotCondition(b)
    assert b & "x" == AndCondition(b, a)
    assert IterativeCondition(fails, ["price"]).columns == ("price",)
    assert repr(IterativeCondition(fails, "price")) == f"IterativeCondition({__name__}.fails, columns=('price',))"


@dataclass
class Above:
    """A condition without a hash."""

    limit: float

    def __call__(self, event: Event, context: ConditionContext) -> bool:
        return event.price > self.limit


def test_objects_that_can_be_called() -> None:
    pattern = Pattern.begin("a").where(IterativeCondition(Above(1))).next("b").where(IterativeCondition(Above(2)))
    assert run(pattern, "a1=2 b2=3 c3=2").matches == ["a1 b2 @2"]


# ---------------------------------------------------------------------------------------------------- definitions


def fingerprint(function: Function, columns: Any = None) -> bytes:
    pattern = Pattern.begin("a").where(IterativeCondition(function, columns))
    outputs = {"matches": OutputSpec(OutputKind.MATCHES)}
    return CepOperator(pattern, SCHEMA, time="ts", outputs=outputs).fingerprint


def above(limit: float) -> Function:
    return lambda event, context: event.price > limit


def test_functions_are_told_apart_by_what_they_do() -> None:
    """Not by their name alone; the same code is the same definition."""
    functions: list[Function] = [
        lambda event, context: event.price > 1,
        lambda event, context: event.price > 2,
        lambda event, context: event.n > 1,
        lambda event, context: event.name in {"a", "b", "c"},
        lambda event, context, limit=3: event.price > limit,  # type: ignore[misc]
        lambda event, context, limit=4: event.price > limit,  # type: ignore[misc]
        above(1),
        above(2),
        partial(below_five),
        below_five,
        Above(1),
    ]
    prints = [fingerprint(function) for function in functions]
    assert len(set(prints)) == len(prints)
    assert fingerprint(above(1)) == fingerprint(above(1))
    assert fingerprint(above(1), ["price"]) != fingerprint(above(1))


def test_a_definition_is_the_same_in_every_process() -> None:
    """Whatever the addresses, and the order of sets."""
    program = (
        "from tests.matching.test_iterative_conditions import *;"
        "print(fingerprint(lambda e, c: e.name in {'a', 'b', 'c', 'd'} and all(x for x in [1])).hex(),"
        " fingerprint(above(1)).hex(), fingerprint(partial(below_five)).hex(), fingerprint(Above(3)).hex())"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=Path(__file__).parents[2],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1


def test_what_a_function_remembers_is_no_part_of_it() -> None:
    """A list or an object that it captures may change while it runs."""
    seen: list[str] = []
    cache: dict[str, bool] = {}

    def remembers(event: Event, context: ConditionContext) -> bool:
        seen.append(event.name)
        return cache.setdefault(event.name, True)

    before = fingerprint(remembers)
    run(Pattern.begin("a").where(IterativeCondition(remembers)), "a1 b2")
    assert seen
    assert fingerprint(remembers) == before


def test_functions_that_refer_to_themselves() -> None:
    def depth(event: Event, context: ConditionContext) -> bool:
        return event.n == 0 or depth(event, context)

    assert fingerprint(depth) == fingerprint(depth)


# ---------------------------------------------------------------------------------------------------- snapshot and restore


@pytest.mark.parametrize("cuts", CUTS)
def test_restore_between_any_two_events(cuts: str) -> None:
    """With an operator out of a pickle for every call; the events that a condition looks at are in the state."""
    rising = IterativeCondition(
        lambda event, context: all(event.price >= earlier.price for earlier in context.events_for_pattern("b")),
        columns="price",
    )
    pattern = stage("a").followed_by("b").where("name = 'b'").where(rising).times_or_more(2).followed_by("c")
    pattern = pattern.where("name = 'c'").within(ms(100))
    case = twin.case_of(pattern, "a1=1 b2=1 b3=2 | b4=1 | a5=7 b6=3 b7=5 | c8=9 a90=1 b91=5 c200=1")
    answer = run_engine(pattern, case, Semantics.DEFAULT, cuts)
    assert comparable(answer) == comparable(run_case(case, "default"))
    assert len(answer["matches"]) == 4
    assert len(answer["timeouts"]) == 3
