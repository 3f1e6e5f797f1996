"""The operator: buffering, order, keys, lateness, and what it remembers between calls."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from asterism.errors import InvalidEventError
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.patterns.conditions import Condition, SqlCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import AfterMatchSkipStrategy, WithinType
from tests.matching.harness import Run, chain, found, ms, run, stage
from tests.reference.match_ids import match_id

AB = chain("a", "b")
ONLY_MATCHES = {"matches": OutputSpec(OutputKind.MATCHES)}


# --- order and buffering ---


def test_events_wait_for_the_watermark() -> None:
    """Nothing is matched before the watermark has passed it."""
    cep = Run(AB).send("a1 b2")
    assert (cep.matches, cep.next_time) == ([], 1000)
    assert cep.send("|1").matches == []
    assert cep.send("|2").matches == ["a1 b2 @2"]


def test_events_are_matched_in_order_of_time() -> None:
    """However they arrive."""
    assert found(AB, "b3 a1 / b2") == ["a1 b2"]


def test_equal_times_keep_the_order_of_arrival() -> None:
    assert found(AB, "b1 a1") == []
    assert found(AB, "a1 / b1") == ["a1 b1"]


def test_order_by_settles_equal_times() -> None:
    """Nulls first, as Spark orders them; with a minus, descending and nulls last."""
    prices = Pattern.begin("x").times(3).consecutive()
    assert [
        e["price"] for e in run(prices, "a1(price=2) a1(price=null) a1(price=1)", order_by=["price"]).rows()[0]["x"]
    ] == [None, 1, 2]
    assert [
        e["price"] for e in run(prices, "a1(price=2) a1(price=null) a1(price=3)", order_by=["-price"]).rows()[0]["x"]
    ] == [3, 2, None]


def test_order_by_several_columns() -> None:
    """The first decides, then the second, then arrival; and time comes before all."""
    loop = Pattern.begin("x").times(5).consecutive()
    rows = run(loop, "b1(price=1) a1(price=2) a1(price=1) b1(price=1) a0(price=9)", order_by=["name", "-price"]).rows()[
        0
    ]["x"]
    assert [(e["name"], e["price"]) for e in rows] == [("a", 9), ("a", 2), ("a", 1), ("b", 1), ("b", 1)]


STREAM = "a1 b2 a3 x4 | a5 b5 b6 a7 |6 u.a7 u.b8 | b9 a9"


@pytest.mark.parametrize("cut", ["", " / "])
def test_cuts_do_not_matter(cut: str) -> None:
    """Whole, or event by event."""
    pattern = chain("a", "b", by="followed_by_any").within(ms(5))
    text = STREAM.replace(" ", cut) if cut else STREAM
    whole, pieces = run(pattern, STREAM), run(pattern, text.replace("/ |", "|").replace("| /", "|") if cut else text)
    assert pieces.matches == whole.matches
    assert pieces.timed_out == whole.timed_out


def test_strings_are_compared_across_calls() -> None:
    """Each call sees other texts; equality and order are those of the texts, not of one call."""
    same = Pattern.begin("a").followed_by("b").where("name = LAST(a.name)")
    assert found(same, "c1 | b2 | a3 | c4 | x5") == ["c1 c4"]
    later = Pattern.begin("a").where("name <= 'm'").next("b").where("name > LAST(a.name) AND LAST(a.name) <> 'k'")
    assert found(later, "c1 | b2 | z3 | k4 | l5 | m6") == ["b2 z3", "l5 m6"]


# --- late events ---


def test_late_events_take_no_part() -> None:
    """What is at or before the watermark comes out as it came."""
    cep = run(AB, "a5 |5 a4(price=7) a5 b6 a6")
    assert cep.late == ["a4", "a5"]
    assert cep.rows("late")[0] == {"key": None, "ts": 4, "name": "a", "n": 4, "price": 7.0}
    assert cep.matches == ["a5 b6 @6"]


def test_late_events_are_dropped_if_nobody_asked() -> None:
    assert run(AB, "a5 |5 a4 b6", outputs=ONLY_MATCHES).matches == ["a5 b6 @6"]


def test_events_without_a_time_are_late() -> None:
    """They have no place in the order of events, even before the first watermark."""
    cep = run(AB, "a1 b@null a@null b2")
    assert (cep.matches, cep.late) == (["a1 b2 @2"], ["b", "a"])


def test_events_without_a_time_are_an_error_if_nobody_takes_them() -> None:
    with pytest.raises(InvalidEventError, match=r'the event time "ts" of 2 events is null'):
        run(AB, "a1 b@null a@null", outputs=ONLY_MATCHES)


def test_times_before_1970() -> None:
    assert run(AB.within(ms(5)), "a-3 b0 a0 b9").matches == ["a-3 b0 @0"]


# --- keys ---


def test_keys_do_not_meet() -> None:
    assert found(AB, "u.a1 v.b2 v.a3 u.b4 v.b5") == ["u.a1 u.b4", "v.a3 v.b5"]


def test_null_is_a_key() -> None:
    assert found(AB, "a1 u.b2 | b3") == ["a1 b3"]


def test_several_key_columns() -> None:
    """All of them together are the key, nulls included."""
    pattern = Pattern.begin("x").next("y")
    assert found(pattern, "u.a1 u.b2 v.a3 | v.b4 a5 u.a6 a7", keys=["key", "name"]) == [
        "u.a1 u.a6",
        "a5 a7",
    ]


def test_no_key_is_one_key() -> None:
    cep = run(AB, "u.a1 | v.b2", keys=[])
    assert [(row["a"][0]["key"], row["b"][0]["key"]) for row in cep.rows()] == [("u", "v")]
    assert "key" not in cep.output("matches").column_names


def test_key_columns_come_first() -> None:
    row = run(AB, "u.a1 b2 u.b3", keys=["name", "key"]).operator.output_schemas["matches"]
    assert row.names == ["name", "key", "start_time", "end_time", "match_time", "match_id", "a", "b"]


@pytest.mark.parametrize("pages", [2, 7, 64, 256])
def test_pages_do_not_matter(pages: int) -> None:
    """Keys spread over pages of state give what they give on one page."""
    pattern = chain("a", "b", by="followed_by_any").within(ms(7))
    text = (
        " ".join(f"{key}.{name}{at}" for at, name in enumerate("aababxab") for key in "pqrstuv")
        + " | q.b9 s.a9 | z.a20 |25"
    )
    one, many = run(pattern, text), run(pattern, text, pages=pages)
    assert len(many.stores[0].pages) == 0
    assert sorted(many.matches) == sorted(one.matches)
    assert sorted(many.timed_out) == sorted(one.timed_out)
    assert many.late == one.late


def test_only_pages_with_something_to_do_are_touched() -> None:
    cep = Run(AB, pages=16).send("u.a1 v.a1 w.a1 |")
    before = dict(cep.stores[0].pages)
    cep.send("u.b2 |")
    changed = {number for number in before if cep.stores[0].pages.get(number) is not before[number]}
    assert len(before) == 3 + 1  # with the definition
    assert len(changed) == 1


# --- what is remembered ---


def test_nothing_is_remembered_of_keys_without_partial_matches() -> None:
    assert Run(AB).send("b1 x2 |").is_empty
    assert not Run(AB).send("a1 |").is_empty


def test_nothing_is_remembered_after_the_end_of_time() -> None:
    cep = run(chain("a", "b", by="followed_by_any"), "a1 u.a2 b3 | a4 b5")
    assert cep.is_empty
    assert cep.next_time is None


def test_nothing_is_remembered_once_everything_has_timed_out() -> None:
    """A key that has gone quiet costs nothing."""
    cep = Run(AB.within(ms(10))).send("a1 u.a2 |")
    assert cep.next_time == 11_000
    assert cep.send("|11").next_time == 12_000
    assert cep.send("|12").timed_out == ["a1 @11", "u.a2 @12"]
    assert cep.is_empty
    assert cep.next_time is None


def test_nothing_is_remembered_of_a_finished_match() -> None:
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    assert Run(AB.skip_strategy(skip)).send("a1 a2 b3 |").is_empty


def test_unchanged_pages_are_not_written() -> None:
    """An event that changes nothing for the keys of a page leaves the page alone."""
    cep = Run(AB).send("a1 |")
    before = cep.stores[0].pages[0]
    cep.send("x2 u.b2 | |9")
    assert cep.stores[0].pages[0] is before


# --- deadlines ---


def test_windows_expire_on_a_quiet_key() -> None:
    cep = run(AB.within(ms(10)), "a1 | |11 u.a20 |40")
    assert cep.timed_out == ["a1 @11", "u.a20 @30"]


def test_a_window_ends_before_its_length() -> None:
    """The bound is exclusive."""
    assert found(AB.within(ms(10)), "a1 b11") == []
    assert found(AB.within(ms(10)), "a1 b10") == ["a1 b10"]


def test_timed_out_rows() -> None:
    """As matches, with what was accepted so far, and ``timeout_time``."""
    cep = run(chain("a", "b", "c").within(ms(10)), "a1 b3")
    assert cep.rows("timed_out") == [
        {
            "key": None,
            "start_time": 1,
            "end_time": 3,
            "timeout_time": 11,
            "match_id": match_id(["timed_out", "a", "b", "c"], "-", [(1000, 0, 0), (3000, 0, 1)]),
            "a": [{"key": None, "ts": 1, "name": "a", "n": 1, "price": None}],
            "b": [{"key": None, "ts": 3, "name": "b", "n": 3, "price": None}],
            "c": [],
        }
    ]


def test_partial_matches_without_a_deadline_do_not_time_out() -> None:
    """At the end of time they just end."""
    assert run(AB, "a1").timed_out == []


# --- processing time ---


def test_in_processing_time_nothing_waits_and_nothing_is_late() -> None:
    cep = Run(AB, time=None).advance_processing_time("5")
    cep.send("a9 b1")
    assert cep.rows()[0]["match_time"].timestamp() == 0.005
    assert cep.late == []


def test_processing_time_orders_by_arrival() -> None:
    cep = Run(AB, time=None).advance_processing_time("5")
    cep.send("b1 a2").advance_processing_time("6")
    assert cep.rows() == []
    assert len(cep.send("b0").rows()) == 1


def test_timeouts_in_processing_time() -> None:
    cep = Run(AB.within(ms(10)), time=None).advance_processing_time("5")
    cep.send("a1")
    assert cep.next_time == 15_000
    cep.advance_processing_time("14")
    assert cep.rows("timed_out") == []
    cep.advance_processing_time("16")
    assert [row["timeout_time"].timestamp() for row in cep.rows("timed_out")] == [0.015]
    assert cep.is_empty


def test_a_null_time_is_no_matter_in_processing_time() -> None:
    cep = Run(AB, time=None, outputs=ONLY_MATCHES).advance_processing_time("1")
    assert len(cep.send("a@null b@null").rows()) == 1


# --- conditions in Python ---


def test_python_conditions_see_a_batch() -> None:
    """A table of the events, with all of their columns, in; a mask out: Arrow or numpy, null is no."""
    dear = Pattern.begin("a").where(lambda events: pc.greater(events["price"], 3))
    assert found(dear.next("b"), "a1(price=4) b2 a3(price=2) b4 a5(price=null) b6") == ["a1 b2"]
    odd = Pattern.begin("a").where(lambda events: events["n"].to_numpy() % 2 == 1)
    assert found(odd, "a1 a2 a3") == ["a1", "a3"]
    assert found(Pattern.begin("a").where(lambda events: [n == 2 for n in events["n"].to_pylist()]), "a1 a2") == ["a2"]


def test_python_conditions_join_sql() -> None:
    pattern = stage("a").where(lambda events: pc.equal(events["n"], 2)).or_("price = 1")
    assert found(pattern, "a1 a2 b2 a3(price=1)") == ["a2", "a3"]


def test_python_conditions_do_not_see_empty_batches() -> None:
    """Nor do they have to: without events they are not asked."""
    sizes: list[int] = []

    def condition(events: pa.Table) -> pa.Array:
        sizes.append(events.num_rows)
        return pa.array([True] * events.num_rows)

    run(Pattern.begin("a").where(condition), "a1 a2 / a3 |5 |6")
    assert sizes == [2, 1]


@pytest.mark.parametrize("depth", [10, 100])
def test_conditions_may_be_nested(depth: int) -> None:
    """Joined from the right, so that the innermost is read last."""

    def nested(name: str) -> Condition:
        condition: Condition = SqlCondition(f"name = '{name}' AND COUNT(a.*) >= 0")
        for number in range(depth):
            condition = SqlCondition(f"n <> {number + 100}").and_(condition)
        return condition

    pattern = (
        Pattern.begin("a")
        .where(nested("a"))
        .followed_by("b")
        .where(nested("b"))
        .optional()
        .followed_by("c")
        .where(nested("c"))
    )
    assert found(pattern, "a1 b2 c3 a4 c5") == ["a1 b2 c3", "a1 c3", "a4 c5"]


# --- skip strategies, across keys and calls ---


def test_skip_past_last_event() -> None:
    pattern = chain("a", "b").skip_strategy(AfterMatchSkipStrategy.skip_past_last_event())
    assert found(pattern, "a1 a2 b3 b4 a5 u.a5 | b6 u.b6") == ["a1 b3", "a5 b6", "u.a5 u.b6"]


def test_gap_window_bounds_the_gap() -> None:
    pattern = chain("a", "b", "c").within(ms(5), WithinType.PREVIOUS_AND_CURRENT)
    assert found(pattern, "a1 b20 c24") == ["a1 b20 c24"]
    assert found(pattern, "a1 b20 c25") == []
