"""What changes, when, and for which events: the semantics of FLIP-200, made exact."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pyarrow as pa
import pytest

from asterism import AfterMatchSkipStrategy, Pattern
from asterism.errors import PatternProcessorError
from asterism.operators.state.page_numbers import DEFINITION_PAGE, SETS_PAGE
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.result_rows import ERRORS, LATE, MATCHES, TIMED_OUT
from tests.kit import examples
from tests.rules.driver import Driver, Event, at, chain, cuts, processor, table_of

AB = processor("ab", 1, chain("a", "b"))


def e(second: int, kind: str, user: str = "ann", item: int = 7, x: float = 0.0) -> Event:
    return second, user, item, kind, x


def test_no_processor_nothing_is_kept() -> None:
    driver = Driver().batch([e(1, "a")], watermark=1)
    assert driver.stores[0].pages.keys() == {DEFINITION_PAGE}
    driver.batch(sets=[AB]).batch([e(2, "b")], watermark=2).end()
    assert driver.found == []
    assert driver.stores[0].is_empty


def test_each_processor_has_its_own_key() -> None:
    by_item = processor("by item", 1, chain("a", "b"), key=("item",))
    by_both = processor("by both", 1, chain("a", "b"), key=("user", "item % 2"))
    driver = Driver().batch([e(1, "a"), e(2, "b", "bob", 7), e(3, "b", "ann", 9)], sets=[AB, by_item, by_both]).end()
    assert driver.found == [
        ("ab", 1, ("ann",), "a1 b3"),
        ("by both", 1, ("ann", "1"), "a1 b3"),
        ("by item", 1, ("7",), "a1 b2"),
    ]


def test_a_key_is_what_spark_groups_by() -> None:
    by_x = processor("by x", 1, chain("a", "b"), key=("x",))
    events = [e(1, "a", x=0.0), e(2, "b", x=-0.0), e(3, "a", x=math.nan), e(4, "b", x=-math.nan)]
    driver = Driver(key_groups=4).batch(events[:1], sets=[by_x]).batch(events[1:]).end()
    assert driver.found == [("by x", 1, ("0",), "a1 b2"), ("by x", 1, ("nan",), "a3 b4")]


@pytest.mark.parametrize("cut", range(4))
def test_events_with_equal_times_are_in_the_order_of_order_by(cut: int) -> None:
    in_sql = PatternProcessor("sql", 1, sql="MEASURES A.x AS x PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'")
    events = [e(1, "b", x=2.0), e(1, "a", x=1.0), e(1, "b", x=0.0)]
    for order_by, x in (["x"], 2.0), (["-x"], 0.0), (["user", "-x NULLS FIRST"], 0.0), ([], 0.0), (["kind"], 2.0):
        driver = Driver(order_by=order_by).batch(events[:cut], sets=[AB, in_sql.as_data()]).batch(events[cut:]).end()
        matches = {row["processor_id"]: row for row in driver.rows["matches"]}
        assert len(driver.rows["matches"]) == len(matches) == 2
        assert matches["ab"]["events"][1]["event"]["x"] == x


def test_without_any_key_there_is_one() -> None:
    driver = Driver(keys=()).batch([e(1, "a", "ann"), e(2, "b", "bob")], sets=[AB]).end()
    assert driver.found == [("ab", 1, (), "a1 b2")]


def test_the_same_version_keeps_its_partial_matches_and_another_drops_them() -> None:
    other = processor("other", 1, chain("a", "b"))
    driver = Driver().batch([e(1, "a")], sets=[AB, other], watermark=1)
    driver.batch([e(2, "b")], sets=[AB, processor("other", 2, chain("a", "b"))], watermark=2)
    assert driver.found == [("ab", 1, ("ann",), "a1 b2")]


def test_what_is_removed_goes_with_its_partial_matches() -> None:
    driver = Driver().batch([e(1, "a")], sets=[AB], watermark=1)
    assert driver.stores[0].pages.keys() == {0, SETS_PAGE, DEFINITION_PAGE}
    driver.batch(sets=[])
    assert driver.stores[0].pages.keys() == {SETS_PAGE, DEFINITION_PAGE}  # the set itself, which is empty
    driver.batch([e(2, "b")], sets=[AB], watermark=2).end()
    assert driver.found == []


def test_an_update_does_not_mix_two_patterns() -> None:
    """FLIP-200 accepts that for a moment AC is found where ABC was wanted, and then AC; here never."""
    abc, ac = processor("rule", 1, chain("a", "b", "c")), processor("rule", 2, chain("a", "c"))
    for cut in range(1, 4):
        events = [e(1, "a"), e(2, "b"), e(3, "c")]
        driver = Driver(key_groups=4).batch(events[:cut], sets=[abc], watermark=cut)
        driver.batch(events[cut:], sets=[ac], watermark=3).end()
        assert driver.found == ([("rule", 1, ("ann",), "a1 b2 c3")] if cut == 3 else [])


@pytest.mark.parametrize("seed", range(examples(6, usual=20)))
def test_a_timestamp_is_exact_wherever_micro_batches_end(seed: int) -> None:
    """Version 1 sees the events before second 10, version 2 those from then on."""
    rng = random.Random(seed)
    events = [e(second, rng.choice("abc"), rng.choice(["ann", "bob"])) for second in range(1, 21)]
    old, new = AB, processor("ab", 2, chain("a", "c"), timestamp=at(10))

    def run(pieces: Any, key_groups: int) -> list[Any]:
        driver = Driver(key_groups=key_groups).batch(sets=[old]).batch(sets=[new])
        for piece in pieces:
            driver.batch(piece, watermark=max(event[0] for event in piece) - rng.randint(0, 3))
        return driver.end().found

    expected = run([events], 1)
    first = Driver().batch([x for x in events if x[0] < 10], sets=[old]).end().found
    second = Driver().batch([x for x in events if x[0] >= 10], sets=[processor("ab", 2, chain("a", "c"))]).end().found
    assert expected == sorted(first + second)
    for key_groups in (1, 3):
        assert run(cuts(events, rng), key_groups) == expected


def test_a_processor_waits_for_its_time() -> None:
    later = processor("ab", 1, chain("a", "b"), timestamp=at(5))
    driver = Driver().batch([e(1, "a"), e(2, "b"), e(5, "a"), e(6, "b")], sets=[later]).end()
    assert driver.found == [("ab", 1, ("ann",), "a5 b6")]


def test_what_was_scheduled_can_be_replaced_before_its_time() -> None:
    scheduled = processor("ab", 2, chain("b", "c"), timestamp=at(10))
    instead = processor("ab", 3, chain("a", "c"), timestamp=at(4))
    driver = Driver().batch(sets=[AB]).batch(sets=[scheduled]).batch(sets=[instead])
    events = [e(1, "a"), e(2, "b"), e(5, "a"), e(6, "c"), e(11, "b"), e(12, "c")]
    assert driver.batch(events).end().found == [("ab", 1, ("ann",), "a1 b2"), ("ab", 3, ("ann",), "a5 c6")]


def test_a_processor_sees_the_events_after_the_watermark_also_those_that_arrived_before_it() -> None:
    driver = Driver().batch([e(1, "a"), e(5, "a")], sets=[AB], watermark=1)  # the second event waits for the watermark
    driver.batch([e(6, "b")], sets=[AB, processor("new", 1, chain("a", "b"))], watermark=6)
    assert driver.found == [("ab", 1, ("ann",), "a1 b6"), ("ab", 1, ("ann",), "a5 b6"), ("new", 1, ("ann",), "a5 b6")]


@pytest.mark.parametrize("disorder", [None, 60_000_000])
def test_a_new_version_sees_what_waits(disorder: int | None) -> None:
    """Without it, neither version would match an event that arrived before the second one."""
    driver = Driver(key_groups=2, waiting_time=disorder).batch(sets=[AB])
    driver.batch([e(12, "a"), e(15, "z", "cyd")], watermark=-45)
    driver.batch(
        [e(13, "b"), e(100, "z", "cyd")], sets=[processor("ab", 2, AB.pattern, timestamp=at(10))], watermark=40
    )
    assert driver.found == [("ab", 2, ("ann",), "a12 b13")]


def test_events_that_no_rule_needs_wait_for_those_that_come() -> None:
    """Whether the condition is in the index, evaluated for all events, or a function, and whichever rule there was."""
    text = "upper(kind) = 'A' AND x > 1"
    rules = [
        processor("text", 1, Pattern.begin("a").where(text)),
        processor("index", 1, chain("a")),
        PatternProcessor("clause", 1, sql="MEASURES 1 AS n PATTERN (A) DEFINE A AS kind = 'a'"),
    ]
    driver = Driver().batch([e(5, "a", x=2), e(6, "b"), e(7, "a", "bob", x=1)], sets=[], watermark=1)
    driver.batch(sets=rules).batch(watermark=10)
    found = sorted((row["processor_id"], row["start_time"].timestamp()) for row in driver.rows[MATCHES])
    assert found == [("clause", 5), ("clause", 7), ("index", 5), ("index", 7), ("text", 5)]


def test_a_new_key_sees_the_events_that_arrive_from_its_micro_batch_on() -> None:
    by_item = [processor("by item", version, chain("a", "b"), key=("item",)) for version in (1, 2)]
    driver = Driver(key_groups=4).batch([e(5, "a")], sets=[AB], watermark=1)  # in the key group of ann
    driver.batch([e(6, "a"), e(7, "b")], sets=[AB, by_item[0]], watermark=3)
    driver.batch(sets=[AB, by_item[1]]).batch(watermark=9)  # the key is known
    assert driver.found == [
        *(("ab", 1, ("ann",), found) for found in ("a5 b7", "a6 b7")),
        ("by item", 2, ("7",), "a6 b7"),
    ]
    # Without a rule with this key, nothing is kept for it.
    driver = Driver(key_groups=4).batch([e(5, "a")], sets=[by_item[0]], watermark=1)
    driver.batch([e(6, "b")], sets=[]).batch(sets=[by_item[1]]).batch([e(8, "a"), e(9, "b")], watermark=20)
    assert driver.found == [("by item", 2, ("7",), "a8 b9")]


def test_without_disorder_only_the_latest_events_are_kept_for_later_rules() -> None:
    driver = Driver(waiting_time=1_000)
    driver.batch(sets=[AB])
    events = [e(1, "x"), e(2, "a"), e(3, "y"), e(3, "z")]
    kinds = driver.operator.prepare("events", table_of(events)).column("e:kind").to_pylist()
    assert kinds == ["a", "y", "z"]
    assert Driver(waiting_time=0).operator.prepare("events", table_of(events)).num_rows == 0


def test_a_key_that_is_null_is_the_key_of_the_stream() -> None:
    by_x = processor("by x", 1, chain("a", "b"), key=("nullif(x, 1.0)",))
    events = [
        e(1, "a", "ann", x=1),
        e(2, "b", "bob", x=1),
        e(3, "b", "ann", x=1),
        e(4, "a", "cyd", x=2),
        e(5, "b", "dan", x=2),
    ]
    driver = Driver(key_groups=3).batch(events, sets=[by_x]).end()
    assert driver.found == [("by x", 1, ("2",), "a4 b5"), ("by x", 1, ("ann",), "a1 b3")]
    # A clause groups NULLs, as SQL does, also beside such a rule. A key of several expressions is NULL if all of them are.
    sql = "PARTITION BY nullif(x, 1.0) MEASURES 1 AS n PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
    both = processor("both", 1, chain("a", "b"), key=("nullif(x, 1.0)", "nullif(item, 7)"))
    half = processor("half", 1, chain("a", "b"), key=("nullif(x, 1.0)", "item"))
    driver = Driver(key_groups=3).batch(events, sets=[PatternProcessor("sql", 1, sql=sql), by_x, both, half]).end()
    found = sorted(
        (r["processor_id"], *map(str, r["key"]), r["start_time"].second, r["end_time"].second)
        for r in driver.rows[MATCHES]
    )
    assert found == [
        ("both", "2", "None", 4, 5), ("both", "ann", 1, 3), ("by x", "2", 4, 5), ("by x", "ann", 1, 3),
        ("half", "2", "7", 4, 5), ("half", "None", "7", 1, 2), ("sql", "2", 4, 5), ("sql", "None", 1, 2),
    ]  # fmt: skip


def test_timeouts_late_events_and_measures() -> None:
    measured = processor(
        "ab", 1, chain("a", "b", within=5), timed_out=True, select=("LAST(a.x) + 1 AS x", "COUNT(b.*) AS bs")
    )
    driver = Driver().batch([e(1, "a", x=2.5)], sets=[measured], watermark=4)
    driver.batch([e(3, "b")], watermark=20)
    assert [(row["measures"], row["timeout_time"]) for row in driver.rows[TIMED_OUT]] == [
        ([("x", "3.5"), ("bs", "0")], at(6))
    ]
    assert [(row["kind"], row["ts"]) for row in driver.rows[LATE]] == [("b", at(3))]
    assert driver.metrics == {"timed_out": 1, "late_elements": 1}


def test_a_function_makes_the_result() -> None:
    def count(matches: pa.Table) -> pa.Table:
        return pa.table({"n": [len(row["a"]) for row in matches.to_pylist()]})

    named = processor("ab", 1, chain("a", "b"), function="count")
    driver = Driver(functions={"count": count}).batch([e(1, "a"), e(2, "b")], sets=[named]).end()
    assert [row["result"] for row in driver.rows["matches"]] == ['{"n": 1}']


FAILS = processor("fails", 1, Pattern.begin("a").where("kind = 'a'").next("b").where("1 / (x - LAST(a.x)) > 0"))


def test_a_processor_that_fails_fails_the_query() -> None:
    with pytest.raises(PatternProcessorError, match='the pattern processor "fails" version 1 failed') as caught:
        Driver().batch([e(1, "a", x=1.0), e(2, "b", x=1.0)], sets=[AB, FAILS], watermark=2)
    assert "stage \"b\", key 'ann', event of 1970-01-01T00:00:02.000000" in (caught.value.detail or "")


def test_or_is_disabled_until_its_next_version() -> None:
    driver = Driver(disable_on_error=True).batch([e(1, "a", x=1.0), e(2, "b", x=1.0)], sets=[AB, FAILS], watermark=2)
    assert driver.found == [("ab", 1, ("ann",), "a1 b2")]
    (error,) = driver.rows[ERRORS]
    assert (error["processor_id"], error["processor_version"]) == ("fails", 1)
    assert "division by zero" in error["error"]
    driver.batch([e(3, "a", x=1.0), e(4, "b", x=2.0)], watermark=4)
    assert [row for row in driver.found if row[0] == "fails"] == []
    mended = PatternProcessor("fails", 2, FAILS.pattern)
    driver.batch([e(5, "a", x=1.0), e(6, "b", x=2.0)], sets=[AB, mended], watermark=6)
    assert [row for row in driver.found if row[0] == "fails"] == [("fails", 2, ("ann",), "a5 b6")]


def test_processing_time() -> None:
    driver = (
        Driver(time=None).batch([e(1, "a")], sets=[AB], processing_time=100).batch([e(2, "b")], processing_time=130)
    )
    driver.batch([e(3, "a")], processing_time=200).batch([e(4, "b")], processing_time=300)
    assert driver.found == [("ab", 1, ("ann",), "a1 b2")]


@pytest.mark.parametrize("seed", range(examples(3, usual=6)))
def test_a_long_random_run_equals_a_simple_model(seed: int) -> None:
    """Each version of a processor alone, over the events of its time, finds what all find together."""
    rng = random.Random(seed)
    kinds = "abcd"
    events = [e(s, rng.choice(kinds), rng.choice(["ann", "bob", "cy"]), rng.randint(1, 3)) for s in range(1, 61)]
    driver = Driver(key_groups=rng.choice([1, 2, 5]))
    current: dict[str, PatternProcessor] = {}
    lives: list[tuple[PatternProcessor, int, int]] = []  # processor, first and one past the last event
    begun: dict[str, int] = {}
    position = 0
    versions = 0
    while position < len(events):
        new = None
        if rng.random() < 0.5:
            for name in ("p", "q", "r"):
                roll = rng.random()
                if roll < 0.3 and name in current:
                    lives.append((current.pop(name), begun[name], position))
                elif roll < 0.6:
                    if name in current:
                        lives.append((current[name], begun[name], position))
                    versions += 1
                    pattern = chain(
                        *rng.sample(kinds, rng.choice([2, 3])), strict=rng.random() < 0.4, within=rng.choice([5, 20])
                    )
                    key = rng.choice([None, ("item",), ("user", "item")])
                    current[name], begun[name] = processor(name, versions, pattern, key=key), position
            new = list(current.values())
        piece = events[position : position + rng.randint(1, 8)]
        position += len(piece)
        driver.batch(piece, sets=new, watermark=piece[-1][0])
        if rng.random() < 0.3:  # as after a failure: nothing but state is known
            stores = driver.stores
            fresh = Driver(key_groups=len(stores))
            fresh.stores, fresh.rows, fresh.sets.all = stores, driver.rows, driver.sets.all
            driver = fresh
    driver.end()
    lives += [(current[name], begun[name], len(events)) for name in current]
    expected = []
    for one, begin, end in lives:
        alone = Driver().batch(events[begin:end], sets=[one], watermark=events[end - 1][0] if end > begin else None)
        if end == len(events):
            alone.end()
        expected += alone.found
    assert driver.found == sorted(expected)


DIVIDES = processor(
    "divides", 1, Pattern.begin("a").where("kind = 'a' AND 1 / x > 0").followed_by("b").where("kind = 'b'")
)


def test_a_condition_that_fails_names_the_processor_the_stage_and_the_event() -> None:
    with pytest.raises(PatternProcessorError) as caught:
        Driver().batch([e(1, "a", x=1.0), e(2, "a", x=0.0)], sets=[AB, DIVIDES]).end()
    assert caught.value.message == 'the pattern processor "divides" version 1 failed'
    assert 'a condition of stage "a"' in (caught.value.detail or "")
    assert "kind='a', x=0.0" in (caught.value.detail or "")


@pytest.mark.parametrize("size", [1, 2, 6])
def test_a_processor_is_in_force_until_the_event_on_which_it_fails(size: int) -> None:
    events = [e(1, "a", x=1.0), e(2, "b"), e(3, "a", x=1.0), e(4, "a", x=0.0), e(5, "b"), e(6, "a", x=1.0)]
    driver = Driver(disable_on_error=True).batch(sets=[AB, DIVIDES])
    for begin in range(0, len(events), size):
        piece = events[begin : begin + size]
        driver.batch(piece, watermark=piece[-1][0])
    driver.end()
    assert [row[3] for row in driver.found if row[0] == "divides"] == ["a1 b2"]
    assert [row[3] for row in driver.found if row[0] == "ab"] == ["a1 b2", "a3 b5", "a4 b5"]
    (error,) = driver.rows[ERRORS]
    assert (error["processor_id"], error["time"]) == ("divides", at(4))
    assert error["error"].startswith(
        'EvaluationFailedError: [EVALUATION_FAILED] a condition of stage "a" could not be computed'
    )


def test_a_key_that_fails_costs_its_processor_alone() -> None:
    by_number = processor("by number", 1, chain("a", "b"), key=("CAST(user AS INT)",))
    events = [e(1, "a", "7"), e(2, "b", "7"), e(3, "a", "ann"), e(4, "b", "ann")]
    driver = Driver(disable_on_error=True).batch(events, sets=[AB, by_number], watermark=4)
    assert driver.found == [("ab", 1, ("7",), "a1 b2"), ("ab", 1, ("ann",), "a3 b4"), ("by number", 1, ("7",), "a1 b2")]
    (error,) = driver.rows[ERRORS]
    assert error["error"].startswith("EvaluationFailedError: [EVALUATION_FAILED] its key could not be computed")
    with pytest.raises(PatternProcessorError, match='the pattern processor "by number" version 1 failed'):
        Driver().batch(events, sets=[AB, by_number]).end()


def test_a_function_that_fails_disables_its_processor() -> None:
    def fails(matches: pa.Table) -> pa.Table:
        raise ValueError("no")

    named = processor("named", 1, chain("a", "b"), function="fails")
    driver = Driver(functions={"fails": fails}, disable_on_error=True)
    driver.batch([e(1, "a"), e(2, "b")], sets=[named, AB], watermark=2)
    assert driver.found == [("ab", 1, ("ann",), "a1 b2")]
    assert [row["error"] for row in driver.rows[ERRORS]] == ["ValueError: no"]


@pytest.mark.parametrize("size", [1, 2, 4, 6])
@pytest.mark.parametrize("how", ["measure", "function"])
def test_what_was_found_before_a_measure_or_function_fails_stays(how: str, size: int) -> None:
    def quotient(matches: pa.Table) -> pa.Table:
        return pa.table({"q": [1 / (row["a"][0]["x"] - 7) for row in matches.to_pylist()]})

    fields: dict[str, Any] = {"function": "quotient"} if how == "function" else {"select": ("1 / (a.x - 7) AS q",)}
    divides = processor("divides", 1, chain("a", "b"), **fields)
    events = [e(0, "a", x=8.0), e(1, "b"), e(2, "a", x=7.0), e(3, "b"), e(4, "a", x=9.0), e(5, "b")]
    driver = Driver(functions={"quotient": quotient}, disable_on_error=True).batch(sets=[divides])
    for begin in range(0, len(events), size):
        piece = events[begin : begin + size]
        driver.batch(piece, watermark=piece[-1][0])
    driver.end()
    measures = {} if how == "function" else {"q": "1.0"}
    assert [(row["match_time"], row["result"], dict(row["measures"] or [])) for row in driver.rows[MATCHES]] == [
        (at(1), '{"q": 1.0}', measures)
    ]
    assert [row["time"] for row in driver.rows[ERRORS]] == [at(3)]


def test_a_result_is_json_whatever_is_in_it() -> None:
    def odd(matches: pa.Table) -> pa.Table:
        rows = [{"a": float("inf"), "b": b"\xff", "c": [float("nan"), 1.5], "d": at(1), "e": None}]
        return pa.Table.from_pylist(rows * matches.num_rows)

    named = processor("odd", 1, chain("a"), function="odd")
    (row,) = Driver(functions={"odd": odd}).batch([e(1, "a")], sets=[named]).end().rows[MATCHES]
    assert json.loads(row["result"], parse_constant=pytest.fail) == {
        "a": "Infinity", "b": "/w==", "c": ["NaN", 1.5], "d": "1970-01-01T00:00:01+00:00", "e": None,
    }  # fmt: skip


def test_a_version_that_comes_again_is_another_one() -> None:
    """Version 1, then 2 from second 10 on, then 1 again from second 20 on: three lives, each with its own partial matches."""
    driver = Driver().batch([e(1, "a")], sets=[AB], watermark=1)
    driver.batch([e(9, "a"), e(11, "a")], sets=[processor("ab", 2, chain("a", "b"), timestamp=at(10))], watermark=11)
    driver.batch(sets=[processor("ab", 1, chain("a", "b"), timestamp=at(20))])
    driver.batch([e(12, "b"), e(19, "a"), e(21, "a"), e(22, "b")]).end()
    assert driver.found == [("ab", 1, ("ann",), "a21 b22"), ("ab", 2, ("ann",), "a11 b12")]


def test_a_skip_that_misses_at_the_end_disables_its_processor() -> None:
    skip = AfterMatchSkipStrategy.skip_to_last("b", throw_on_miss=True)
    pattern = Pattern.begin("a", skip).where("kind = 'a'").one_or_more().followed_by("b").where("kind = 'b'").optional()
    driver = Driver(disable_on_error=True).batch([e(1, "a"), e(2, "b")], sets=[AB, processor("misses", 1, pattern)])
    driver.end()
    assert driver.found[0] == ("ab", 1, ("ann",), "a1 b2")
    assert [row["processor_id"] for row in driver.rows[ERRORS]] == ["misses"]


def test_what_a_processor_does_not_see_cannot_fail_it() -> None:
    """Events before its time, late ones, and those that come with the set that removes it."""
    later = PatternProcessor("divides", 1, DIVIDES.pattern, timestamp=at(5))
    driver = Driver().batch([e(1, "a", x=0.0), e(6, "a", x=1.0), e(7, "b")], sets=[later], watermark=7)
    driver.batch([e(3, "a", x=0.0)], watermark=8)
    driver.batch([e(9, "a", x=0.0)], sets=[AB], watermark=9).end()
    assert driver.found == [("divides", 1, ("ann",), "a6 b7")]


# ---------------------------------------------------------------------- functions that give any number of rows


def each_event(matches: pa.Table) -> pa.Table:
    """A row for each event of stage a with x over 1, in descending order of x; so none for some matches."""
    rows = [
        {"match_id": match["match_id"], "x": event["x"]}
        for match in reversed(matches.to_pylist())
        for event in sorted(match["a"], key=lambda event: -event["x"])
        if event["x"] > 1
    ]
    return pa.Table.from_pylist(rows, pa.schema([("match_id", pa.string()), ("x", pa.float64())]))


AS_THEN_B = Pattern.begin("a").where("kind = 'a'").one_or_more().consecutive().next("b").where("kind = 'b'")


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_function_gives_any_number_of_rows(size: int) -> None:
    events = [e(1, "a", x=2), e(2, "a", x=3), e(3, "b"), e(4, "a", x=0), e(5, "b"), e(6, "a", x=7), e(7, "b")]
    rule = processor("each", 1, AS_THEN_B, function="each")
    driver = Driver(functions={"each": each_event}).batch(sets=[rule])
    for begin in range(0, len(events), size):
        driver.batch(events[begin : begin + size], watermark=events[: begin + size][-1][0])
    rows = driver.end().rows[MATCHES]
    found = [(row["start_time"], row["end_time"], json.loads(row["result"])["x"]) for row in rows]
    assert found == [
        (at(1), at(3), 3.0), (at(1), at(3), 2.0), (at(2), at(3), 3.0), (at(6), at(7), 7.0)
    ]  # fmt: skip
    assert len({row["match_id"] for row in rows}) == len(rows)
    ids = [row["match_id"] for row in rows if json.loads(row["result"])["match_id"] == row["match_id"]]
    assert ids == [rows[0]["match_id"], rows[2]["match_id"], rows[3]["match_id"]]
    again = Driver(functions={"each": each_event}).batch(events, sets=[rule]).end()
    assert [row["match_id"] for row in again.rows[MATCHES]] == [row["match_id"] for row in rows]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda matches: None, "must return a pyarrow.Table, not NoneType"),
        (lambda matches: pa.table({"n": [1, 2, 3]}), "must return a row for each match, or a column match_id"),
        (lambda matches: pa.table({"match_id": ["x"]}), "returned a match_id that it did not get: 'x'"),
    ],
)
def test_rows_that_belong_to_no_match_are_an_error(answer: Any, message: str) -> None:
    driver = Driver(functions={"f": answer}, disable_on_error=True)
    driver.batch([e(1, "a"), e(2, "b")], sets=[processor("ab", 1, chain("a", "b"), function="f")]).end()
    assert message in driver.rows[ERRORS][0]["error"]
    assert driver.rows[MATCHES] == []
