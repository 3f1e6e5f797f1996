"""The trace: what it says is what the engine did, and there is a reason for every partial match that is gone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from asterism import AfterMatchSkipStrategy, Pattern, Semantics, WithinType
from asterism.cli.main import main
from asterism.columns.event_files import read_events
from asterism.errors import (
    AsterismError,
    ColumnNotFoundError,
    InvalidEventError,
    SkipStrategyError,
    StreamDefinitionError,
)
from asterism.patterns.conditions import IterativeCondition, NotCondition, SqlCondition
from asterism.trace import Trace, What, Why, conditions, interpreter, trace

EXAMPLES = Path(__file__).parents[2] / "examples"
Row = dict[str, Any]


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def stage(pattern: Pattern) -> Pattern:
    """The last stage takes events whose kind is its name."""
    return pattern.where(f"kind = '{pattern.stages[-1].name}'")


def begin(name: str = "a", skip: AfterMatchSkipStrategy | None = None) -> Pattern:
    return stage(Pattern.begin(name, skip))


def rows(words: str) -> list[Row]:
    """``a1 b7=5``: an event of kind a at 1 ms, one of kind b at 7 ms with price 5."""
    found = [re.fullmatch(r"([a-z])(\d+)(?:=(\d+))?", word) for word in words.split()]
    assert all(found)
    return [{"kind": m[1], "t": int(m[2]), "price": float(m[3]) if m[3] else None} for m in found if m]


def traced(pattern: Pattern, words: str, **options: Any) -> Trace:
    return trace(pattern, rows(words), time="t", **options)


def lines_of(found: Trace, *, waits: bool = False) -> list[str]:
    """The lines of single steps, without headlines and summary, and unless requested, without steps that change nothing."""
    skipped = {None} if waits else {None, What.WAITED, What.NOTHING}
    return [line.strip() for what, line in found.lines() if what not in skipped]


def reason(found: Trace, what: What = What.DROPPED) -> str:
    [step] = [step for step in found.steps if step.what is what]
    return step.reason


def test_trace_does_not_depend_on_other_keys() -> None:
    pattern = stage(begin().next("b"))
    mixed = [row | {"user": user} for row in rows("a1 a2 b3") for user in ("ann", "bob")]
    ann = trace(pattern, mixed, time="t", key={"user": "ann"})
    assert [match.took for match in ann.matches] == [(("a", (2,)), ("b", (3,)))]
    assert str(ann).startswith("key user='ann': 3 events\n")


# ---------------------------------------------------------------------------------------------------- why


def test_first_condition_is_never_met() -> None:
    found = traced(stage(begin().next("b")), "x1 b2")
    assert str(found) == "\n".join(
        [
            "2 events",
            "no matches",
            "",
            "event 1  1  kind='x'",
            "  begins no match: kind = 'a' is false (kind='x')",
            "",
            "event 2  2  kind='b'",
            "  begins no match: kind = 'a' is false (kind='b')",
        ]
    )


def test_match_is_told_step_by_step() -> None:
    assert lines_of(traced(stage(stage(begin().followed_by("b")).times(2).followed_by("c")), "a1 b2 x3 b4 c5")) == [
        "#1 a=[1] begins; waits for b",
        "#1 becomes #2 a=[1] b=[2]; waits for b",
        "#2 becomes #3 a=[1] b=[2 4]; waits for c",
        "#3 becomes #4 a=[1] b=[2 4] c=[5]",
        "match 1: #4 a=[1] b=[2 4] c=[5]",
    ]


def test_waiting_says_which_part_of_the_condition_is_false() -> None:
    """Of the operands of AND, only those that are not true are shown, with the values that they read."""
    pattern = begin().followed_by("b").where("kind = 'b' AND price > 3 AND price > LAST(a.price) + 1")
    found = traced(pattern, "a1=5 b2=4 b3", drain=False)
    assert [step.reason for step in found.steps if step.what is What.WAITED] == [
        "price > LAST(a.price) + 1 is false (price=4.0, LAST(a.price)=5.0)",
        "price > 3 is not true (price=NULL) and price > LAST(a.price) + 1 is not true (price=NULL, LAST(a.price)=5.0)",
    ]


def test_values_of_aggregates() -> None:
    condition = (
        "kind = 'b' AND COUNT(a.*) + COUNT(a.price) + SUM(a.price) + AVG(a.price) + MIN(a.price) + MAX(a.price * 2)"
        " + FIRST(a.price) < 0"
    )
    found = traced(begin().times(3).followed_by("b").where(condition), "a1=1 a2 a3=4 b4", drain=False)
    [step] = [step for step in found.steps if step.what is What.WAITED and step.event == 4 and "b" in step.waits_for]
    assert dict(step.checks[0].values) == {
        "COUNT(a.*)": 3,
        "COUNT(a.price)": 2,
        "SUM(a.price)": 5.0,
        "AVG(a.price)": 2.5,
        "MIN(a.price)": 1.0,
        "MAX(price * 2) over a": 8.0,
        "FIRST(a.price)": 1.0,
    }


def test_parts_that_cannot_be_computed_alone_are_not_asked_alone() -> None:
    found = traced(begin().followed_by("b").where("price <> 0 AND 10 / price > LAST(a.price)"), "a1=3 b2=4 b3=2")
    assert [match.took for match in found.matches] == [(("a", (1,)), ("b", (3,)))]


def test_strict_contiguity() -> None:
    assert reason(traced(stage(begin().next("b")), "a1 x2")) == (
        "strict contiguity: the very next event had to be b: kind = 'b' is false (kind='x')"
    )


def test_loop_that_ends_narrows_what_is_waited_for() -> None:
    found = traced(stage(begin().one_or_more().consecutive().followed_by("b")), "a1 x2", drain=False)
    assert lines_of(found) == [
        "#1 a=[1] begins; waits for a or b",
        "#1 now waits for b only: strict contiguity: the very next event had to be a: kind = 'a' is false (kind='x')",
    ]
    [waiting] = found.waiting
    assert waiting.waits_for == ("b",)
    assert "#1 a=[1] still waits for b" in str(found)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("a1 b21", "window over: 10 ms after its first event (1); event 2 is 10 ms after its end"),
        ("a1 b11", "window over: 10 ms after its first event (1)"),
        ("a1 x2", "window over: 10 ms after its first event (1)"),
    ],
)
def test_window(words: str, text: str) -> None:
    found = traced(stage(begin().followed_by("b")).within(ms(10)), words)
    assert reason(found) == text
    [timeout] = found.timeouts
    assert (timeout.time, timeout.took) == (11, (("a", (1,)),))


def test_window_between_neighbouring_events() -> None:
    pattern = stage(begin().followed_by("b")).within(ms(10), WithinType.PREVIOUS_AND_CURRENT)
    assert reason(traced(pattern, "a1 b13")) == (
        "window between neighbouring events over: 10 ms after the event before (1); event 2 is 2 ms after its end"
    )


def test_window_between_repetitions() -> None:
    pattern = stage(begin().times_or_more(1, within=ms(5)).followed_by("b"))
    found = traced(pattern, "a1 a9 b10")
    assert [step.reason for step in found.steps if step.event == 2 and step.why is Why.GAP] == [
        "a repetition must occur less than 5 ms after event 1, this event is 8 ms after it"
    ]


def test_until() -> None:
    pattern = stage(begin().one_or_more().until("kind = 'u'").next("b"))
    assert reason(traced(pattern, "a1 u2")) == (
        "a: the until condition of a holds, kind = 'u' is true (kind='u'); b: kind = 'b' is false (kind='u')"
    )


def test_nothing_begins_for_want_of_its_condition_not_of_until() -> None:
    pattern = stage(begin().one_or_more().until("kind = 'u'").next("b"))
    assert reason(traced(pattern, "u1"), What.NOTHING) == "kind = 'a' is false (kind='u')"


def test_greedy() -> None:
    pattern = begin("g").times(1, 2).greedy().next("b").where("price > 0")
    found = traced(pattern, "g1=1 g2=1 g3=1")
    greedy = [step for step in found.steps if step.why is Why.GREEDY]
    assert greedy[0].reason == "the greedy loop g takes the event, kind = 'g' is true (kind='g')"


@pytest.mark.parametrize(
    ("pattern", "words", "text"),
    [
        (stage(stage(begin().not_next("n")).followed_by("b")), "a1 n2", "not next"),
        (stage(stage(begin().not_followed_by("n")).followed_by("b")), "a1 x2 n3", "not followed by"),
        (stage(begin().not_followed_by("n")).within(ms(9)), "a1 n3", "not followed by"),
    ],
)
def test_forbidden_event(pattern: Pattern, words: str, text: str) -> None:
    assert reason(traced(pattern, words)) == f"forbidden event, {text} \"n\": kind = 'n' is true (kind='n')"


def test_forbidden_event_without_a_condition() -> None:
    assert reason(traced(stage(begin().not_next("n").followed_by("b")), "a1 n2")) == (
        'forbidden event, not next "n": it forbids every event'
    )


def test_absence_that_makes_a_match() -> None:
    found = traced(stage(begin().not_followed_by("n")).within(ms(9)), "a1 x2")
    assert lines_of(found, waits=True) == [
        "#1 a=[1] begins; waits for the end of the window without n",
        "#1 keeps waiting for the end of the window without n: kind = 'n' is false (kind='x')",
        "begins no match: kind = 'a' is false (kind='x')",
        "match 1, because no n occurred: #1 a=[1]",
    ]


def test_last_stage_that_must_not_be_next() -> None:
    found = traced(stage(begin().not_next("n")), "a1")
    assert found.steps[0].waits_for == ("an event that is not n",)
    assert reason(found) == "the input ends while it still waits for an event that is not n"


def test_skipped_after_a_match() -> None:
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    found = traced(stage(begin(skip=skip).followed_by("b")), "a1 a2 b3")
    assert lines_of(found)[-3:] == [
        "#2 becomes #4 a=[2] b=[3]",
        "match 1: #3 a=[1] b=[3]",
        "#4 is dropped: skipped after match 1 (SKIP_PAST_LAST_EVENT)",
    ]


def test_match_that_is_held_back() -> None:
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    pattern = begin(skip=skip).followed_by("b").where("kind = 'b' AND price = LAST(a.price)")
    found = traced(pattern, "a1=1 a2=2 b3=2")
    assert "#3 a=[2] b=[3] is complete, but held back: #1 began earlier and could still discard it" in lines_of(found)
    assert lines_of(found)[-2:] == [
        "#1 is dropped: the input ends while it still waits for b",
        "match 1: #3 a=[2] b=[3]",
    ]
    open_end = str(traced(pattern, "a1=1 a2=2 b3=2", drain=False))
    assert "no matches\n  #1 a=[1] still waits for b\n  #3 a=[2] b=[3] is held back\n" in open_end


def test_in_flinks_semantics_a_forbidden_event_can_end_it_all() -> None:
    pattern = stage(stage(Pattern.begin(begin("g").optional()).not_followed_by("n")).followed_by("b"))
    found = traced(pattern, "n1 g2", semantics=Semantics.FLINK)
    assert lines_of(found, waits=True) == [
        "begins no match: forbidden event, not followed by \"n\": kind = 'n' is true (kind='n')",
        "begins no match: a forbidden event arrived before any event was taken; in Flink, nothing can match after it",
    ]
    assert traced(pattern, "n1 g2 b3").matches


def test_condition_that_is_a_negation_is_the_stages_own() -> None:
    pattern = Pattern.begin("a").where(NotCondition(SqlCondition("kind = 'x'")))
    assert reason(traced(pattern, "x1"), What.NOTHING) == "kind = 'x' is true (kind='x')"


def test_alternatives_are_all_told() -> None:
    pattern = Pattern.begin("a").where("kind = 'a'").or_("price > 5")
    assert reason(traced(pattern, "x1=2"), What.NOTHING) == (
        "kind = 'a' is false (kind='x') and price > 5 is false (price=2.0)"
    )


def test_python_conditions_are_named() -> None:
    def large(events: pa.Table) -> Any:
        return [price is not None and price > 5 for price in events.column("price").to_pylist()]

    found = traced(Pattern.begin("a").where(large), "x1=2")
    assert reason(found, What.NOTHING) == "Python test_python_conditions_are_named.<locals>.large is false"
    assert "event 1  1  kind='x'  price=2.0" in str(found)


def test_iterative_conditions_see_the_partial_match() -> None:
    seen: list[tuple[datetime, list[int]]] = []

    def rises(event: Any, context: Any) -> bool:
        earlier = [e.price for e in context.events_for_pattern("a")]
        seen.append((context.timestamp, earlier))
        assert context.current_processing_time.year > 2024
        return event.kind == "b" and event.price > max(earlier)

    found = traced(begin().times(2).followed_by("b").where(IterativeCondition(rises)), "a1=1 a2=3 b3=2 b4=5")
    assert [match.took for match in found.matches] == [(("a", (1, 2)), ("b", (4,)))]
    assert seen == [(datetime.fromtimestamp(t / 1000, UTC), [1, 3]) for t in (3, 4)]
    assert [step.reason for step in found.steps if step.event == 3 and step.waits_for == ("b",)] == [
        "Python test_iterative_conditions_see_the_partial_match.<locals>.rises is false"
    ]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda event, context: context.events_for_pattern("z"), "unknown stage 'z'"),
        (lambda event, context: 1, "did not return True or False"),
    ],
)
def test_iterative_condition_that_fails(function: Any, text: str) -> None:
    with pytest.raises(InvalidEventError, match=text):
        traced(Pattern.begin("a").where(IterativeCondition(function)), "a1")


@pytest.mark.parametrize("answer", [[1], ["x"], True, [True, False], None])
def test_python_condition_that_returns_no_mask(answer: Any) -> None:
    with pytest.raises(InvalidEventError, match="did not return one Boolean per event"):
        traced(Pattern.begin("a").where(lambda events: answer), "a1")


def test_null_in_a_mask_of_a_python_condition_is_false() -> None:
    found = traced(Pattern.begin("a").where(lambda events: pa.array([None, True])), "a1 a2")
    assert [match.took for match in found.matches] == [(("a", (2,)),)]


def test_part_that_fails_is_told_so() -> None:
    """The kernel does not compute it either, where the part before it decides."""
    found = traced(begin().followed_by("b").where("price <> 0 AND 1 / price > LAST(a.price)"), "a1=1 b2=0", drain=False)
    [step] = [step for step in found.steps if step.what is What.WAITED]
    assert step.reason == (
        "price <> 0 is false (price=0.0) and 1 / price > LAST(a.price) cannot be computed (price=0.0, LAST(a.price)=1.0)"
    )


def test_condition_that_did_not_matter_may_fail() -> None:
    """Conditions are asked in their order: the second one is not, where the first one is false."""

    def fails(event: Any, context: Any) -> bool:
        raise ValueError(event.kind)

    for second in (
        "1 / LAST(a.price) > 0",
        IterativeCondition(fails),
        SqlCondition("price = 1") | IterativeCondition(fails),
    ):
        pattern = begin().followed_by("b").where("kind = 'b'").where(second)
        [step] = [step for step in traced(pattern, "a1=0 x2").steps if step.what is What.WAITED]
        assert step.reason == "kind = 'b' is false (kind='x')"


def test_condition_that_fails_for_one_partial_match_fails_the_trace_only_where_it_matters() -> None:
    pattern = begin().followed_by("b").where("kind = 'b' AND 1 / LAST(a.price) > 0")
    assert traced(pattern, "a1=0 a2=1 x3").matches == ()
    with pytest.raises(InvalidEventError, match=r"[Dd]ivision by zero"):
        traced(pattern, "a1=0 a2=1 b3")


def test_answers_do_not_depend_on_how_many_are_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = begin().followed_by("b").where("kind = 'b' AND price > LAST(a.price)")
    whole = traced(pattern, "a1=1 a2=5 a3=2 b4=3")
    monkeypatch.setattr(conditions, "AT_ONCE", 0)
    assert str(traced(pattern, "a1=1 a2=5 a3=2 b4=3")) == str(whole)
    assert len(whole.matches) == 2


def test_values_may_be_lists() -> None:
    events = [{"t": 1, "tags": ["x"]}, {"t": 2, "tags": ["y", "z"]}]
    pattern = Pattern.begin("a").where("size(tags) = 1").next("b").where("size(tags) > 2")
    assert reason(trace(pattern, events, time="t")) == (
        "strict contiguity: the very next event had to be b: size(tags) > 2 is false (tags=['y', 'z'])"
    )


def test_aggregates_over_types_that_arrow_alone_has() -> None:
    events = pa.table(
        {"t": [1, 2, 3], "x": pa.array(["b", "a", "c"]).dictionary_encode(), "n": pa.array([1, None, 3], pa.uint8())}
    )
    pattern = (
        Pattern.begin("a").times(2).next("b").where("MIN(a.x) = 'a' AND MAX(a.x) < x AND SUM(a.n) + COUNT(a.n) = 2")
    )
    assert [match.took for match in trace(pattern, events, time="t").matches] == [(("a", (1, 2)), ("b", (3,)))]


def test_a_trace_refuses_what_a_query_refuses() -> None:
    for text in ("price", "price > 1 AS x", "nothing(LAST(a.price), price) = 1", "nothing = 1"):
        with pytest.raises(AsterismError):
            traced(begin().next("b").where(text), "a1=1")


def test_a_trace_needs_no_compiled_kernel() -> None:
    program = (
        "import sys; from asterism import Pattern; from asterism.trace import trace;"
        "p = Pattern.begin('a').where('x > 1').next('b').where('x > LAST(a.x)');"
        "print(len(trace(p, [{'t': 1, 'x': 2}, {'t': 2, 'x': 3}], time='t').matches), 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["1", "False"]


@pytest.mark.parametrize("name", ["a", "b"])
def test_skip_strategy_that_must_find_its_stage(name: str) -> None:
    skip = AfterMatchSkipStrategy.skip_to_first(name, throw_on_miss=True)
    pattern = stage(begin(skip=skip).followed_by("b")).optional()
    with pytest.raises(SkipStrategyError, match="could not skip to"):
        traced(pattern, "a1")


# ---------------------------------------------------------------------------------------------------- time


def test_late_events_are_told() -> None:
    found = traced(stage(begin().followed_by("b")), "a10 b12 a5", max_out_of_orderness=ms(3), drain=False)
    assert found.late == (3,)
    assert lines_of(found)[-1] == "late: the watermark is 3 ms past the time of the event; it is not matched"
    assert "event 3  5  kind='a'" in str(found)


def test_disorder_is_put_right() -> None:
    found = traced(stage(begin().followed_by("b")), "b12 a10", max_out_of_orderness=ms(3))
    assert [match.took for match in found.matches] == [(("a", (2,)), ("b", (1,)))]
    assert [match.took for match in traced(stage(begin().followed_by("b")), "b12 a10").matches] == [
        (("a", (2,)), ("b", (1,)))
    ]


def test_watermark_sees_the_events_of_other_keys() -> None:
    events = [{"k": "u", "kind": "a", "t": 5}, {"k": "v", "kind": "x", "t": 90}, {"k": "u", "kind": "b", "t": 6}]
    found = trace(stage(begin().next("b")), events, time="t", key={"k": "u"}, max_out_of_orderness=ms(1))
    assert found.late == (2,)


def test_each_partition_can_have_a_watermark() -> None:
    events = [
        {"k": key, "kind": "a", "t": time, "p": partition}
        for key, time, partition in (("v", 5, 1), ("v", 90, 0), ("u", 6, 1), ("u", 4, 1))
    ]
    options: Any = {"time": "t", "key": {"k": "u"}, "max_out_of_orderness": ms(0)}
    assert trace(begin(), events, **options).late == (1, 2)
    assert trace(begin(), events, **options, watermark_by=["p"]).late == (2,)


def test_event_without_a_time() -> None:
    events = [{"kind": "a", "t": None}, {"kind": "a", "t": 1}]
    found = trace(begin(), events, time="t")
    assert lines_of(found)[0] == "the event has no time; it is not matched"
    assert len(found.matches) == 1


def test_processing_time() -> None:
    found = trace(stage(begin().next("b")), rows("a9 b1"), time=None)
    assert [match.took for match in found.matches] == [(("a", (1,)), ("b", (2,)))]
    assert "event 1  kind='a'" in str(found)


def test_order_by() -> None:
    pattern = stage(begin().next("b"))
    assert not traced(pattern, "b1=1 a1=2", order_by=["price"]).matches
    assert traced(pattern, "b1=1 a1=2", order_by=["-price"]).matches


def test_timestamps_are_told_as_they_are() -> None:
    noon = datetime(2025, 1, 1, 12, tzinfo=UTC)
    events = [{"kind": "a", "at": noon}, {"kind": "b", "at": noon + timedelta(hours=2)}]
    found = trace(stage(begin().followed_by("b")).within(timedelta(hours=1)), events, time="at")
    assert "time passes  2025-01-01 13:00:00\n" in str(found)
    assert "event 2 is 1 h after its end" in str(found)
    assert found.timeouts[0].time == noon + timedelta(hours=1)


# ---------------------------------------------------------------------------------------------------- how far


def test_closest_partial_match_is_the_one_that_got_farthest() -> None:
    pattern = stage(stage(stage(begin().next("b")).next("c")).next("d"))
    found = traced(pattern, "a1 b2 c3 x4 a5 b6 x7")
    assert str(found).startswith(
        "7 events\n"
        "no matches\n"
        "closest to a match: #3 a=[1] b=[2] c=[3] reached c, stage 3 of 4;\n"
        "  event 4: strict contiguity: the very next event had to be d: kind = 'd' is false (kind='x')\n\n"
    )
    assert found.closest is not None
    assert found.closest.why is Why.STRICT


def test_closest_counts_repetitions() -> None:
    found = traced(stage(begin().times(4).consecutive().next("b")), "a1 a2 x3")
    assert found.progress == "reached a 2 times (4 required), stage 1 of 2"


# ---------------------------------------------------------------------------------------------------- bounds


def test_text_is_bounded_and_counts_the_rest() -> None:
    found = traced(begin(), "a1 a2 a3")
    assert "... and 5 more steps" in found.text(limit=1)
    assert "more step" not in found.text(limit=None)


def test_kept_steps_are_bounded_and_the_rest_is_counted() -> None:
    """Matches are all kept."""
    found = traced(stage(begin().followed_by("b")), "a1 x2 x3 x4 b5", limit=2)
    assert [step.what for step in found.steps] == [What.BEGAN, What.WAITED, What.MATCHED]
    assert sum(found.omitted.values()) == 6
    assert "... and 6 more steps" in str(found)


def test_only_dropped() -> None:
    found = traced(stage(begin().next("b")), "a1 x2 a3 b4")
    lines = found.text(only_dropped=True).splitlines()
    assert [line for line in lines if line.startswith("event")] == ["event 2  2  kind='x'", "event 4  4  kind='b'"]


def test_same_reason_of_many_is_told_once() -> None:
    found = traced(stage(begin().followed_by("b")), " ".join(f"a{n}" for n in range(1, 12)) + " x12")
    assert "#1, #2, #3, #4, #5, #6, #7, #8 and 3 more keep waiting for b: kind = 'b' is false (kind='x')" in lines_of(
        found, waits=True
    )
    assert lines_of(found)[-1] == (
        "#1, #2, #3, #4, #5, #6, #7, #8 and 3 more are dropped: the input ends while it still waits for b"
    )


def test_too_many_partial_matches_end_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "MAX_PARTIALS", 50)
    pattern = stage(begin().one_or_more().allow_combinations().followed_by("b"))
    found = traced(pattern, " ".join(f"a{n}" for n in range(1, 40)))
    assert found.stopped.startswith("there are ")
    assert "The trace stops here: there are " in str(found)


def test_too_many_ways_through_a_pattern_end_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "MAX_VISITS", 1000)
    pattern = begin()
    for number in range(40):
        pattern = pattern.followed_by(f"b{number}").where("kind = 'b'").optional()
    found = traced(pattern, "a1 a2 b3 b4 b5 b6")
    assert found.stopped == "event 4 leads partial matches through more than 1,000 states"


def test_text_from_outside_cannot_command_a_terminal_or_a_notebook() -> None:
    evil = "\x1b[2J<script>alert(1)</script>"
    pattern = Pattern.begin(evil).where("x = 'a'").next("b").where(f"x = '{evil}'")
    found = trace(pattern, [{"x": "a", "t": 1}, {"x": evil, "t": 2}, {"x": "\x1b", "t": 3}], time="t", key={"x": evil})
    found = trace(pattern, [{"x": "a", "t": 1}, {"x": "\x1b]0;", "t": 2}], time="t")
    assert "\x1b" not in str(found)
    assert "<script>" not in found._repr_html_()


# ---------------------------------------------------------------------------------------------------- errors, files, command


def test_unknown_key_names_those_that_exist() -> None:
    events = [{"k": f"user{n}", "t": n} for n in range(20)]
    with pytest.raises(StreamDefinitionError) as caught:
        trace(Pattern.begin("a"), events, time="t", key={"k": "user99"})
    assert "no event has the key k='user99'" in str(caught.value)
    assert "(20 in all)" in str(caught.value)
    assert "did you mean k='user9'" in str(caught.value)


def test_null_is_a_key() -> None:
    events = [{"k": None, "t": 1}, {"k": "x", "t": 2}]
    assert trace(Pattern.begin("a"), events, time="t", key={"k": None}).events.num_rows == 1


def test_missing_columns() -> None:
    for options in ({"key": {"usr": 1}}, {"order_by": ["-usr"]}):
        with pytest.raises(ColumnNotFoundError, match="usr"):
            trace(Pattern.begin("a"), [{"user": 1, "t": 1}], time="t", **options)  # type: ignore[arg-type]
    with pytest.raises(ColumnNotFoundError, match="kind"):
        trace(begin(), [{"t": 1}], time="t")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_command_follows_a_key_of_a_file() -> None:
    result = run(
        "trace", EXAMPLES / "patterns/left_open.json", "--input", EXAMPLES / "data/ssh_auth.csv",
        "--key-column", "ip", "--key", "85.245.107.41", "--time", "ts", "--limit", 3,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[:2] == ["key ip='85.245.107.41': 374 events", "7 matches"]
    steps = result.stdout.partition("\n\n")[2]
    assert steps.splitlines()[:4] == [
        "event 1  2017-03-27 13:08:09  port=54259  event='accepted'",
        "  #1 login=[1] begins; waits for the end of the window without logout",
        "",
        "event 2  2017-03-27 13:44:19  port=54259  event='disconnected'",
    ]


def test_command_says_what_is_wrong() -> None:
    files = (EXAMPLES / "patterns/left_open.json", "--input", EXAMPLES / "data/ssh_auth.csv", "--time", "ts")
    result = run("trace", *files, "--key", "x")
    assert result.exit_code == 2
    assert "one value is required for each column" in result.stderr
    result = run("trace", *files, "--key-column", "ip", "--key", "85.245.107.4")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "Error: [STREAM_DEFINITION] no event has the key ip='85.245.107.4'\n  Existing keys:\n"
    )
    assert "did you mean ip='85.245.107.41'" in result.stderr


@pytest.mark.parametrize("name", ["events.csv", "events.csv.gz", "events.jsonl", "events.jsonl.gz", "events.parquet"])
def test_files_of_all_formats_are_read(tmp_path: Path, name: str) -> None:
    events = [{"at": "2025-01-01 12:00:00", "n": 1, "s": "x"}, {"at": "2025-01-01 13:00:00", "n": None, "s": "y"}]
    path = tmp_path / name
    if name.endswith(".parquet"):
        import pyarrow.parquet

        pyarrow.parquet.write_table(pa.Table.from_pylist(events), path)
    else:
        lines = ["at,n,s", *(",".join("" if v is None else str(v) for v in e.values()) for e in events)]
        text = "\n".join(lines if ".csv" in name else map(json.dumps, events)) + "\n"
        with pa.output_stream(path, compression="gzip" if name.endswith(".gz") else None) as stream:
            stream.write(text.encode())
    found = read_events(tmp_path, "at")
    assert found.schema == pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64()), ("s", pa.string())])
    assert found.to_pylist()[1] == {"at": datetime(2025, 1, 1, 13, tzinfo=UTC), "n": None, "s": "y"}


def test_a_file_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at,user\n", encoding="utf-8")
    with pytest.raises(StreamDefinitionError, match="there are no events"):
        trace(Pattern.begin("a"), read_events(tmp_path, "at"), time="at", key={"user": "ann"})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StreamDefinitionError, match="no file in a supported format"):
        read_events(tmp_path)
    (tmp_path / "a.parquet").write_text("not parquet", encoding="utf-8")
    with pytest.raises(StreamDefinitionError, match=r"a\.parquet cannot be read"):
        read_events(tmp_path)
    (tmp_path / "b.csv").write_text("x\n1\n", encoding="utf-8")
    with pytest.raises(StreamDefinitionError, match="several formats"):
        read_events(tmp_path)


def test_ends_of_names_have_letters_of_any_case(tmp_path: Path) -> None:
    (tmp_path / "A.CSV").write_text("x\n1\n", encoding="utf-8")
    assert read_events(tmp_path / "A.CSV").to_pylist() == [{"x": 1}]
    (tmp_path / "b.csv.GZ").write_bytes(b"")
    with pytest.raises(StreamDefinitionError, match="no file in a supported format"):
        read_events(tmp_path / "b.csv.GZ")


def test_names_of_columns_that_are_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(StreamDefinitionError, match=r"a\.csv cannot be read"):
        read_events(tmp_path)


def test_empty_field_of_csv_is_null_and_a_quoted_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,b\n"",NA\n,null\n', encoding="utf-8")
    assert read_events(path).to_pylist() == [{"a": "", "b": "NA"}, {"a": None, "b": "null"}]
