"""The test kit: words, time, answers, what its assertions say, and independence of cuts."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import AfterMatchSkipStrategy, Pattern, Semantics
from asterism.columns.time import END_OF_TIME, TIME_UNIT, TIME_UNITS
from asterism.errors import AsterismError, ColumnNotFoundError, InvalidEventError, StateError, StreamDefinitionError
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import Arrival, InputSpec, Now, Operator, Result
from asterism.operators.state.state_store import StateStore
from asterism.testing import (
    EVENTS,
    Literals,
    OperatorHarness,
    PatternHarness,
    assert_matches,
    check_independence,
    match,
    table_of,
)

SECOND = timedelta(seconds=1)
KEYED = pa.schema([("key", pa.string())])
OWN = pa.schema([("id", pa.int64()), ("user", pa.string()), ("at", pa.int64()), ("price", pa.float64())])


def stages(*names: str) -> Pattern:
    """Each stage takes events of the kind that it is named after, and is followed by the next."""
    pattern = Pattern.begin(names[0]).where(f"kind = '{names[0]}'")
    for name in names[1:]:
        pattern = pattern.followed_by(name).where(f"kind = '{name}'")
    return pattern


AB = stages("a", "b")

# --- words ---


def events(text: str, schema: pa.Schema = EVENTS, literals: Literals = Literals()) -> list[dict[str, Any]]:  # noqa: B008
    [batch] = literals.parse(text, schema)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def seconds(text: str, **options: Any) -> list[float]:
    """The times of the events."""
    return [row["ts"].timestamp() for row in events(text, literals=Literals(**options))]


def test_a_word_is_an_event() -> None:
    first, second = events("a1 ann.add_to_cart-7")
    assert first == {"key": None, "kind": "a", "value": 1, "ts": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}
    assert (second["key"], second["kind"], second["value"]) == ("ann", "add_to_cart", -7)


def test_a_word_without_a_number_has_no_value() -> None:
    assert [row["value"] for row in events("x a0")] == [None, 0]


def test_events_are_a_second_apart() -> None:
    """Counted from the event before, also where its time is written."""
    assert seconds("a1 b2 c3@10s d4 e5") == [1, 2, 10, 11, 12]
    assert seconds("a1 b2", step=timedelta(minutes=1)) == [60, 120]


def test_values_can_be_times() -> None:
    assert seconds("a5 b2 x c7@1s", timed_by_value=True) == [5, 2, 3, 1]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("10s", 10), ("500ms", 0.5), ("1h30m", 5400), ("1d", 86400), ("20us", 0.00002), ("-3s", -3), ("00:10", 10),
        ("01:00:10", 3610), ("1:02.5", 62.5), ("10", 10), ("1970-01-02", 86400), ("1970-01-01T00:00:05", 5),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)  # fmt: skip
def test_times(time: str, expected: float) -> None:
    assert seconds(f"a1@{time}") == [expected]


def test_an_event_may_have_no_time() -> None:
    first, second = events("a1@null b2")
    assert first["ts"] is None
    assert second["ts"].timestamp() == 1


def test_words_for_events_of_ones_own() -> None:
    """Letters, number, key and time go to the columns that are said, and others are in brackets."""
    literals = Literals(kind="event", value="price", key="user", time="at")
    schema = pa.schema([*OWN, ("event", pa.string()), ("vip", pa.bool_())])
    assert events("ann.buy2.5(id=7,vip=true)@1s x(price=null)", schema, literals) == [
        {"id": 7, "user": "ann", "at": 1000, "price": 2.5, "event": "buy", "vip": True},
        {"id": None, "user": None, "at": 2000, "price": None, "event": "x", "vip": None},
    ]


def test_bars_and_slashes_end_batches() -> None:
    parts = Literals().parse("a1 / b2 c3 | d4 |10s / |end", EVENTS)
    assert [part if part is None or isinstance(part, int) else part.num_rows for part in parts] == [
        1, 2, None, 1, 10_000_000, END_OF_TIME,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "word", ["1", "a1b", "a.b.c", "a1@", "a1@soon", "a1(price)", "a1(b=2", "|soon", "a1(nothing=1)", "?"]
)
def test_what_is_no_event_is_refused(word: str) -> None:
    with pytest.raises(ColumnNotFoundError if "nothing" in word else InvalidEventError):
        Literals().parse(f"a1 {word}", EVENTS)


NUMBERS = st.integers(-(10**15), 10**15)


@given(micros=NUMBERS)
def test_times_are_read_as_they_are_written(micros: int) -> None:
    for literals in (Literals(), Literals(timed_by_value=True), Literals(step=timedelta(milliseconds=1))):
        assert literals.micros(literals.time_text(micros)) == micros


@given(key=st.sampled_from([None, "ann"]), kind=st.sampled_from(["a", "add_to_cart"]), value=st.none() | NUMBERS)
def test_events_are_written_as_they_are_read(key: str | None, kind: str, value: int | None) -> None:
    text = Literals().text({"key": key, "kind": kind, "value": value})
    [row] = events(text)
    assert (row["key"], row["kind"], row["value"]) == (key, kind, value)


def test_events_that_are_no_words_are_written_out() -> None:
    """Whole, or as the value of a column."""
    event = {"user": "ann", "price": 2.0, "note": None}
    assert Literals().text(event) == "(user=ann,price=2)"
    assert Literals(label="user").text(event) == "ann"


# --- what is sent ---

RISE = Pattern.begin("low").where("price < 3").next("high").where("price > 5")
ROWS = [{"id": 1, "user": "ann", "at": 1000, "price": 2.0}, {"id": 2, "user": "ann", "at": 2000, "price": 6.0}]


@pytest.mark.parametrize("make", [list, pa.Table.from_pylist, pd.DataFrame], ids=["dicts", "arrow", "pandas"])
def test_events_may_be_dicts_or_tables(make: Any) -> None:
    """With a schema or without."""
    for options in ({}, {"columns": OWN}):
        harness = match(RISE, make(ROWS), time="at", keys=["user"], literals=Literals(label="id"), **options)
        assert harness.by_stage() == [{"low": ["1"], "high": ["2"]}]


def test_schema_is_the_former_name_of_columns() -> None:
    """As in release 0.1.0, where it was an Arrow schema."""
    pattern, row, schema = Pattern.begin("a"), [{"x": 1}], pa.schema({"x": pa.int64(), "ts": pa.int64()})
    harness = PatternHarness(pattern, schema=schema)  # type: ignore[call-arg]
    for same in (harness, harness.again(schema=schema), match(pattern, row, schema=schema)):
        assert same.schema == match(pattern, row, columns="x BIGINT, ts BIGINT").schema == schema
    check_independence(pattern, [{"x": 1, "ts": 5}], schema=schema, cuts=0)
    assert table_of(row, schema=schema).schema == schema  # type: ignore[call-arg]
    with pytest.raises(StreamDefinitionError, match="columns and schema are given"):
        match(pattern, row, columns=schema, schema=schema)


def test_columns_that_are_missing_are_null() -> None:
    for sent in ([{"at": 1, "price": 1.0}], pa.table({"at": [1], "price": [1]})):
        assert table_of(sent, OWN).to_pylist() == [{"id": None, "user": None, "at": 1, "price": 1.0}]


@pytest.mark.parametrize("make", [list, pa.Table.from_pylist, pd.DataFrame], ids=["dicts", "arrow", "pandas"])
def test_columns_that_are_not_of_the_events_are_refused(make: Any) -> None:
    with pytest.raises(ColumnNotFoundError, match="unknown column 'prize'"):
        PatternHarness(RISE, OWN, time="at").send(make([{"at": 1, "prize": 1.0}]))


@pytest.mark.parametrize("make", [list, pa.Table.from_pylist], ids=["dicts", "arrow"])
def test_values_of_other_types_are_refused(make: Any) -> None:
    with pytest.raises(InvalidEventError, match=r"an event does not fit the schema|'much' is not a value of price"):
        PatternHarness(RISE, OWN, time="at").send(make([{"at": 1, "price": "much"}]))


def test_nothing_is_sent_if_a_word_is_wrong() -> None:
    harness = PatternHarness(AB)
    with pytest.raises(InvalidEventError):
        harness.send("a1 | b2 | ??")
    assert harness.sent == []


def test_an_empty_batch_is_no_batch() -> None:
    assert match(AB, "").matches == []
    assert PatternHarness(RISE, OWN, time="at").send([]).sent == []


# --- event time ---


def test_events_wait_for_the_watermark() -> None:
    harness = PatternHarness(AB).send("a1 b2")
    assert harness.matches == []
    assert harness.next_time == 1_000_000
    assert harness.advance_watermark("1s").partial_matches == ["a1"]
    assert harness.advance_watermark().matches == ["a1 b2"]


def test_late_events_and_timeouts() -> None:
    harness = match(AB.within(5 * SECOND), "a1@10s | b2@9s a3@20s b4@21s")
    assert (harness.matches, harness.timed_out, harness.late) == (["a3 b4"], ["a1"], ["b2"])


@pytest.mark.parametrize("to", ["3s", timedelta(seconds=3), datetime(1970, 1, 1, 0, 0, 3)])
def test_ways_to_say_a_time(to: Any) -> None:
    assert PatternHarness(AB).advance_watermark(to).now.watermark == 3_000_000
    assert PatternHarness(AB, time=None).advance_processing_time(to).now.processing_time == 3_000_000


def test_time_never_goes_back() -> None:
    harness = PatternHarness(AB).advance_watermark("10s").advance_watermark("5s")
    assert harness.send("a1@7s").end().late == ["a1"]


def test_words_go_on_from_the_last_event() -> None:
    assert PatternHarness(AB).send("a1@10s").send("b2").end().found()[0].time == 11_000_000


def test_nothing_can_be_sent_after_the_end() -> None:
    with pytest.raises(InvalidEventError, match="the stream has ended"):
        match(AB, "a1").send("b2")


# --- processing time ---


def test_in_processing_time_the_clock_is_moved_by_hand() -> None:
    harness = PatternHarness(AB.within(10 * SECOND), time=None).advance_processing_time("5s").send("a1")
    assert (harness.next_time, harness.partial_matches) == (15_000_000, ["a1"])
    assert harness.advance_processing_time("14s").timed_out == []
    assert harness.advance_processing_time("15s").timed_out == ["a1"]
    assert harness.is_empty


def test_words_move_the_clock() -> None:
    assert match(AB.within(10 * SECOND), "a1 |9s b2 a3 |20s b4", time=None).matches == ["a1 b2"]


def test_in_processing_time_a_bar_says_no_time() -> None:
    with pytest.raises(InvalidEventError, match="has no time"):
        match(AB, "a1 | b2", time=None)


# --- keys, options ---


def test_keys_do_not_meet() -> None:
    harness = match(AB, "ann.a1 bob.b2 ann.b3 a4 b5")
    assert harness.matches == ["ann.a1 ann.b3", "a4 b5"]
    assert [one.key for one in harness.found()] == [("ann",), (None,)]


def test_key_groups_are_stores_of_their_own() -> None:
    harness = PatternHarness(AB, key_groups=4).send(" ".join(f"k{number}.a1" for number in range(20)) + " |")
    assert all(not store.is_empty for store in harness.stores)
    assert len(harness.send(" ".join(f"k{number}.b2" for number in range(20)) + " |").matches) == 20


def test_both_semantics() -> None:
    absence = Pattern.begin("a").where("kind = 'a'").not_followed_by("b").where("kind = 'b'").within(10 * SECOND)
    ours, flinks = (match(absence, "a1 x2@1m", semantics=semantics).found()[0].time for semantics in Semantics)
    assert (ours, flinks) == (11_000_000, 60_000_000)


def test_measures() -> None:
    loop = Pattern.begin("a").where("kind = 'a'").times(2)
    assert match(loop, "ann.a1 ann.a5", select=["SUM(a.value) AS s"]).selected == [{"key": "ann", "s": 6}]


def test_order_by_settles_equal_times() -> None:
    assert match(AB, "b2@1s a1@1s", order_by=["value"]).matches == ["a1 b2"]


ZONED = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "America/New_York")]


def timed(kind: pa.DataType, unit: str | None = None) -> pa.Schema:
    metadata = None if unit is None else {TIME_UNIT: unit}
    fields = [("key", pa.string()), ("ts", kind), ("kind", pa.string()), ("value", pa.int64())]
    return pa.schema(fields, metadata=metadata)


@pytest.mark.parametrize(
    "schema",
    [*map(timed, [*ZONED, pa.int64(), pa.date32()]), *(timed(pa.int64(), unit) for unit in TIME_UNITS)],
    ids=str,
)
def test_event_times_of_every_type(schema: pa.Schema) -> None:
    soon = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(timedelta(days=2))
    harness = match(soon, "a1@2024-01-01 b2@2024-01-02 | a3@1969-12-30 a4@2024-01-09", columns=schema)
    day = 86_400_000_000
    first = 19_723 * day  # 2024-01-01
    assert (harness.matches, harness.timed_out, harness.late) == (["a1 b2"], ["a4"], ["a3"])
    assert [found.time for found in harness.found()] == [first + day]
    assert [found.time for found in harness.found("timed_out")] == [first + 10 * day]
    assert [time for table in harness.sent for time in harness.times(table)] == [
        first, first + day, -2 * day, first + 8 * day,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [*ZONED, pa.int64(), pa.date32()], ids=str)
@pytest.mark.parametrize("value", [2**62 + 1, -(2**62) - 1, 2**63 - 1, -(2**63)])
def test_event_times_out_of_range_are_late(kind: pa.DataType, value: int) -> None:
    """Nanoseconds cannot be so far away."""
    if kind == pa.date32():
        value //= 2**32
    times = pa.array([value, None], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    events = pa.table({"key": ["k", "k"], "ts": times, "kind": ["a", "b"], "value": [1, 2]}, timed(kind))
    harness = match(Pattern.begin("x"), events)
    near = str(kind).startswith("timestamp[ns")
    assert (harness.matches, harness.late) == ((["k.a1"], ["k.b2"]) if near else ([], ["k.a1", "k.b2"]))


def test_a_time_that_python_does_not_have_is_shown_as_its_number() -> None:
    kind = pa.timestamp("s")
    events = pa.table({"key": ["k"], "ts": pa.array([10**12]).cast(kind), "kind": ["a"], "value": [1]}, timed(kind))
    harness = match(Pattern.begin("x"), events)
    assert harness.matches == ["k.a1"]
    assert [row["x"][0]["ts"] for row in harness.rows("matches")] == [10**12]


def test_the_end_of_time_is_written_as_such() -> None:
    """A Flink match that only the end of input brings carries that for a time."""
    absence = AB.not_followed_by("c").where("kind = 'c'").within(10 * SECOND)
    for schema in (EVENTS, pa.schema([("ts", pa.int64()), ("kind", pa.string()), ("value", pa.int64())])):
        harness = match(absence, "a1 b2", columns=schema, semantics=Semantics.FLINK)
        assert_matches(harness, ["a1 b2 @end"])


# --- what is under way ---


def test_partial_matches_are_seen() -> None:
    harness = PatternHarness(stages("a", "b", "c"), key_groups=2, pages=2)
    assert harness.send("ann.a1 bob.a2 ann.b3 |").partial_matches == ["ann.a1 ann.b3", "bob.a2"]


def test_held_matches_are_seen() -> None:
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    pattern = Pattern.begin("a", skip).where("kind = 'a'").followed_by("b").where("LAST(a.value) > 1 AND kind = 'b'")
    harness = PatternHarness(pattern).send("a1 a2 b3 |")
    assert (harness.matches, harness.held_matches, harness.partial_matches) == ([], ["a2 b3"], ["a1"])
    assert harness.end().matches == ["a2 b3"]


# --- snapshots ---


def test_a_snapshot_is_gone_back_to() -> None:
    harness = PatternHarness(AB).send("a1 |")
    before = harness.snapshot()
    assert harness.send("b2 |").matches == ["a1 b2"]
    assert harness.restore(before).matches == []
    assert harness.send("x2 b3 |").matches == ["a1 b3"]


def test_a_new_harness_goes_on_from_a_snapshot() -> None:
    """With buffered events, partial matches, time and what came out so far."""
    harness = PatternHarness(AB).send("a1 b2 a3 | b4")
    other = harness.again().restore(harness.snapshot())
    assert other.matches == ["a1 b2"]
    assert other.end().matches == ["a1 b2", "a3 b4"]
    assert harness.matches == ["a1 b2"]


def test_a_snapshot_belongs_to_its_pattern() -> None:
    harness = PatternHarness(AB).send("a1 |")
    with pytest.raises(StateError, match="the checkpoint cannot be continued: the pattern changed"):
        PatternHarness(stages("a", "c")).restore(harness.snapshot()).send("c2")


# --- any operator ---


class Counting(Operator):
    """Counts the elements of its two inputs per key group: an operator that has nothing to do with patterns."""

    fingerprint = b"count"
    inputs: Mapping[str, InputSpec] = {"keyed": InputSpec(KEYED, KEYED), "all": InputSpec(KEYED, KEYED, broadcast=True)}
    output_schemas: Mapping[str, pa.Schema] = {"counts": pa.schema([("count", pa.int64()), ("time", pa.int64())])}
    pages = 1
    processing_time = True
    metrics = ()

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        return events.select(["key"])

    def process(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Result:
        tables = [arrival.events for arrival in arrivals if arrival.events is not None]
        count = int(store.read_header() or b"0") + sum(table.num_rows for table in tables)
        store.write_header(str(count).encode())
        marks = [arrival.watermark for arrival in arrivals if arrival.events is None]
        row = {"count": count, "time": max(marks, default=now.processing_time)}
        return Result(
            {} if tables else {"counts": pa.Table.from_pylist([row], self.output_schemas["counts"])}, next_event_time=7
        )


def test_any_operator_can_be_driven() -> None:
    harness = OperatorHarness(Counting(), keys=["key"], key_groups=2)
    harness.feed(pa.table({"key": [str(number) for number in range(50)]}), "keyed")
    snapshot = harness.snapshot()
    rows = harness.move(processing_time=3).rows("counts")
    assert sum(row["count"] for row in rows) == 50
    assert all(0 < row["count"] < 50 for row in rows)
    assert {row["time"] for row in rows} == {3}
    assert harness.next_time == 7
    assert harness.restore(snapshot).rows("counts") == []


def test_broadcast_inputs_and_watermarks_reach_every_key_group() -> None:
    harness = OperatorHarness(Counting(), keys=["key"], key_groups=3)
    harness.feed(pa.table({"key": ["a", "b"]}), "all").feed_watermark(5, "keyed")
    assert harness.rows("counts") == 3 * [{"count": 2, "time": 5}]


# --- assertions ---


def message(actual: Any, expected: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_matches(actual, expected, **options)
    return "\n" + str(caught.value) + "\n"


def test_what_is_as_expected_passes() -> None:
    harness = match(AB.within(5 * SECOND), "a1 a2 b3 | a4@10s b5@2s")
    assert_matches(harness, ["a1 b3", "a2 b3"])
    assert_matches(harness, [{"a": "a2", "b": ["b3"]}, "a1 b3 @3s"])
    assert_matches(harness, ["a4 @15s"], output="timed_out")
    assert_matches(harness, ["b5"], output="late")
    assert_matches(harness.matches, ["a1 b3", "a2 b3"])
    assert_matches(harness.by_stage(), [{"a": "a1", "b": "b3"}, "a2 b3"])


def test_what_is_missing_is_shown_with_how_far_it_came() -> None:
    harness = match(stages("a", "b").next("c").where("kind = 'c'"), "a1 b2 x3 c4 a5 b6 c7")
    assert message(harness, ["a1 b2 c4", "a5 b6 c7"]) == textwrap.dedent("""
        matches: 1 missing

            expected   found
          - a1 b2 c4
            a5 b6 c7   a5 b6 c7 @7s

          a1 b2 c4: reached a1 b2, which was dropped at x3@3s
          events: a1@1s b2@2s x3@3s c4@4s a5@5s b6@6s c7@7s
    """)


def test_what_is_unexpected_is_shown() -> None:
    assert message(match(AB, "a1 a2 b3"), ["a2 b3"]) == textwrap.dedent("""
        matches: 1 unexpected

            expected   found
            a2 b3      a2 b3 @3s
          +            a1 b3 @3s

          events: a1@1s a2@2s b3@3s
    """)


def test_times_that_differ_are_shown() -> None:
    assert message(match(AB, "a1 b2"), ["a1 b2 @1m1s"]) == textwrap.dedent("""
        matches: 1 missing, 1 unexpected

            expected     found
          - a1 b2 @61s
          +              a1 b2 @2s

          events: a1@1s b2@2s
    """)


def test_what_is_out_of_order_is_shown() -> None:
    harness = match(AB, "a1 b2 a3 b4")
    assert message(harness, ["a3 b4", "a1 b2"]) == textwrap.dedent("""
        matches: 1 out of order

            expected   found
            a3 b4      a3 b4 @4s
          ~ a1 b2      a1 b2 @2s

          events: a1@1s b2@2s a3@3s b4@4s
    """)
    assert_matches(harness, ["a3 b4", "a1 b2"], in_any_order=True)


def test_stages_that_differ_are_shown() -> None:
    loop = Pattern.begin("some").times(2).next("last")
    assert message(match(loop, "a1 a2 b3"), [{"some": "a1", "last": "a2 b3"}]) == textwrap.dedent("""
        matches: 1 missing, 1 unexpected

            expected                 found
          - some:[a1] last:[a2 b3]
          +                          some:[a1 a2] last:[b3] @3s

          events: a1@1s a2@2s b3@3s
    """)


@pytest.mark.parametrize(
    ("pattern", "text", "expected", "note"),
    [
        (AB, "x1 b2", "a1 b2", "no partial match began with its events"),
        (AB, "a1", "a1 b2", "reached a1, which still waits for more events"),
        (AB, "a1@9s | b2@1s", "a1 b2", "b2 arrived late"),
        (AB.within(SECOND), "a1 x2 b3", "a1 b3", "reached a1, which timed out at 2s"),
        (AB.within(SECOND), "a1", "a1 b3", "reached a1, which timed out at 2s"),
    ],
)
def test_how_far_a_match_came(pattern: Pattern, text: str, expected: str, note: str) -> None:
    assert f"\n  {expected}: {note}\n" in message(match(pattern, text), [expected])


def test_a_match_may_be_held_back() -> None:
    skip = AfterMatchSkipStrategy.skip_past_last_event()
    pattern = Pattern.begin("a", skip).where("kind = 'a'").followed_by("b").where("LAST(a.value) > 1 AND kind = 'b'")
    harness = PatternHarness(pattern).send("a1 a2 b3 |")
    assert "a2 b3: complete, and held back by the skip strategy" in message(harness, ["a2 b3"])


def test_differences_of_timeouts_and_late_events() -> None:
    harness = match(AB.within(5 * SECOND), "a1@1s | b2@1s x3@2h")
    assert message(harness, ["a2"], output="timed_out") == textwrap.dedent("""
        timed_out: 1 missing, 1 unexpected

            expected   found
          - a2
          +            a1 @6s

          events: a1@1s b2@1s x3@7200s
    """)
    assert message(harness, [], output="late") == textwrap.dedent("""
        late: 1 unexpected

            expected   found
          +            b2

          events: a1@1s b2@1s x3@7200s
    """)


def test_differences_of_lists() -> None:
    assert message(["a1", "a2"], ["a2", "a1"]) == textwrap.dedent("""
        matches: 1 out of order

            expected   found
            a2         a2
          ~ a1         a1
    """)


def test_long_differences_are_cut() -> None:
    text = message(match(Pattern.begin("a"), " ".join(f"a{number}" for number in range(100))), [])
    assert text.splitlines()[1] == "matches: 100 unexpected"
    assert "\n    and 60 more\n" in text
    assert "a39@40s and 60 more" in text
    assert len(text.splitlines()) < 50


def test_under_pytest_only_the_difference_is_shown(tmp_path: Path) -> None:
    """No line of the kit, and no comparison of long lists."""
    (tmp_path / "test_users.py").write_text(
        textwrap.dedent("""
            from asterism import Pattern
            from asterism.testing import assert_matches, match

            def test_two_in_a_row():
                pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
                assert_matches(match(pattern, "a1 b2 a3 x4 b5"), ["a1 b2", "a3 b5"])
        """),
        encoding="utf-8",
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    printed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=tmp_path).stdout
    lines = [line.rstrip() for line in printed.splitlines()]
    first = lines.index("    def test_two_in_a_row():")
    end = lines.index("test_users.py:7: AssertionError")
    assert "\n".join(lines[first:end]) == textwrap.dedent("""\
            def test_two_in_a_row():
                pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
        >       assert_matches(match(pattern, "a1 b2 a3 x4 b5"), ["a1 b2", "a3 b5"])
        E       AssertionError: matches: 1 missing
        E
        E           expected   found
        E           a1 b2      a1 b2 @2s
        E         - a3 b5
        E
        E         a3 b5: reached a3, which was dropped at x4@4s
        E         events: a1@1s b2@2s a3@3s x4@4s b5@5s
        """)


def test_the_kit_needs_neither_pytest_nor_spark() -> None:
    program = (
        "import sys; from asterism import Pattern; from asterism.testing import *;"
        "assert_matches(match(Pattern.begin('a').where(\"kind = 'a'\"), 'a1 b2'), ['a1']);"
        "print(sorted({'pytest', 'pyspark'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]"


# --- independence ---


STREAM = "ann.a1 bob.a2 ann.x3 bob.b4 ann.b5 a6 a7 b8 ann.a9@30s"


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("text", [STREAM, STREAM.replace("ann.b5", "| ann.b5@2s |20s")], ids=["events", "watermarks"])
def test_answers_do_not_depend_on_cuts(text: str, semantics: Semantics) -> None:
    harness = check_independence(AB.within(10 * SECOND), text, semantics=semantics)
    assert_matches(harness, match(AB.within(10 * SECOND), text, semantics=semantics).matches)
    assert harness.timed_out == (["ann.a9"] if "|" not in text else ["ann.a1", "ann.a9"])


def test_nor_in_processing_time() -> None:
    harness = check_independence(AB.within(10 * SECOND), "a1 x2 |5s b3 a4 |30s b5", time=None)
    assert (harness.matches, harness.timed_out) == (["a1 b3"], ["a4"])


def test_nor_for_tables_measures_and_events_without_a_time() -> None:
    rows = [*ROWS, {"id": 3, "user": "ann", "at": None, "price": 1.0}]
    check_independence(
        RISE, rows, time="at", keys=["user"], select=["LAST(high.price) AS p"], literals=Literals(label="id")
    )


def remembering() -> Any:
    """A condition that must not be written: it holds for every other event that it sees."""
    seen = [0]

    def condition(table: pa.Table) -> Any:
        first = seen[0]
        seen[0] += table.num_rows
        return np.arange(first, seen[0]) % 2 == 0

    return condition


def of_its_batch(table: pa.Table) -> Any:
    return np.arange(table.num_rows) == 0


@pytest.mark.parametrize("condition", [remembering(), of_its_batch], ids=["remembers", "sees its batch"])
def test_conditions_that_are_no_functions_of_the_event_are_found(condition: Any) -> None:
    with pytest.raises(AssertionError, match="matches depend on how the events arrive"):
        check_independence(Pattern.begin("a").where(condition), "a1 a2 a3 a4 a5")


def test_measures_that_differ_are_shown_as_rows() -> None:
    outputs = {"m": OutputSpec(OutputKind.MATCHES, ("COUNT(a.*) AS n",))}
    with pytest.raises(AssertionError) as caught:
        check_independence(Pattern.begin("a").where(of_its_batch), "a1 a2", outputs=outputs)
    assert str(caught.value) == textwrap.dedent("""\
        m depend on how the events arrive
          whole: [{'key': None, 'n': 1}]
          one by one: [{'key': None, 'n': 1}, {'key': None, 'n': 1}]""")


def test_cuts_are_the_same_for_the_same_seed() -> None:
    """So that a failure comes again."""
    sizes: list[list[int]] = []

    def condition(table: pa.Table) -> Any:
        sizes[-1].append(table.num_rows)
        return np.ones(table.num_rows, np.bool_)

    for seed in (1, 1, 2):
        sizes.append([])
        check_independence(Pattern.begin("a").where(condition), "a1 a2 a3 a4 a5 a6 a7 a8", seed=seed)
    assert sizes[0] == sizes[1] != sizes[2]


def test_errors_are_errors_whatever_the_cuts() -> None:
    with pytest.raises(AsterismError):
        check_independence(Pattern.begin("a").where("nothing > 1"), "a1")
