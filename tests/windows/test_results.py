"""What comes out of windows: columns, types, functions, reduce, aggregates that need the rows, zones, order, batch, waking."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from asterism.columns.time import BEFORE_TIME, LAST_TIMESTAMP
from asterism.errors import InvalidEventError, StateError
from asterism.operators.operator import Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.testing import OperatorHarness, WindowHarness
from asterism.windows.assigners import GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows
from asterism.windows.evictors import Evictor
from asterism.windows.operator import WindowOperator
from asterism.windows.triggers import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    TimeSpan,
)

SCHEMA = pa.schema({"k": "string", "t": pa.timestamp("us", "UTC"), "v": "int64", "w": "float64"})
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TEN = TumblingWindows.of(10 * SECOND)


def table(*rows: tuple[str, float, int], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "t": BEGIN + at * SECOND, "v": v, "w": v / 10} for k, at, v in rows], schema)


def micros(seconds: float) -> int:
    return int((BEGIN + seconds * SECOND).timestamp() * 1_000_000)


def operator(windows: Any = TEN, **more: Any) -> WindowOperator:
    if not more.keys() & {"measures", "function", "reduce"}:
        more["measures"] = ["sum(v) AS total"]
    return WindowOperator(windows, SCHEMA, **({"keys": ["k"], "time": "t"} | more))


def run(made: WindowOperator, *batches: pa.Table) -> list[dict[str, Any]]:
    harness = OperatorHarness(made, keys=made.keys)
    for batch in batches:
        harness.feed(batch)
    rows: list[dict[str, Any]] = harness.end().rows("firings")
    return rows


DATA = table(("a", 1, 1), ("b", 2, 2), ("a", 3, 4), ("a", 12, 8))


def test_the_columns_of_a_row() -> None:
    first, *_ = run(operator(), DATA)
    assert first == {
        "k": "a",
        "window_start": BEGIN,
        "window_end": BEGIN + 10 * SECOND,
        "firing": 1,
        "kind": "on_time",
        "is_last": True,
        "total": 5,
    }


def test_a_global_window_has_no_start_and_no_end() -> None:
    row = run(operator(GlobalWindows(), trigger=CountTrigger.at_least(4), keys=[]), DATA)[0]
    assert (row["window_start"], row["window_end"], row["total"]) == (None, None, 15)


def test_a_function_of_the_rows_may_give_any_number_of_rows() -> None:
    def largest(rows: pa.Table, window: TimeSpan) -> Any:
        assert window.end is not None
        return rows.to_pandas().nlargest(2, "v")[["v", "w"]]

    made = operator(function=largest, output="v BIGINT, w DOUBLE")
    found = run(made, table(("a", 1, 1), ("a", 2, 5), ("a", 3, 3), ("b", 1, 7)))
    assert [(row["k"], row["v"], row["w"], row["firing"]) for row in found] == [
        ("a", 5, 0.5, 1),
        ("a", 3, 0.3, 1),
        ("b", 7, 0.7, 1),
    ]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_reduce_function(cut: int) -> None:
    def smaller(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return a if a["v"] <= b["v"] else b

    made = operator(reduce=smaller, trigger=CountTrigger.at_least(3))
    data = table(("a", 1, 5), ("a", 2, 3), ("a", 3, 9), ("a", 4, 1), ("a", 5, 2), ("a", 6, 4))
    found = run(made, data.slice(0, cut), data.slice(cut))
    assert [(row["k"], row["v"], row["w"]) for row in found] == [("a", 3, 0.3), ("a", 1, 0.1)]
    assert made.output_schemas["firings"].names[-3:] == ["t", "v", "w"]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_aggregates_that_need_the_rows(one_by_one: bool) -> None:
    made = operator(
        measures=[
            "median(v) AS middle",
            "sum(w) AS sum",
            "collect_list(v) AS all",
            "array_agg(v ORDER BY w DESC) AS down",
        ]
    )
    data = table(("a", 1, 1), ("b", 1, 3), ("a", 2, 2), ("a", 3, 9), ("b", 4, 5))
    batches = [data.slice(at, 1) for at in range(5)] if one_by_one else [data]
    found = run(made, *batches)
    assert [(row["k"], row["middle"], row["all"]) for row in found] == [("a", 2.0, [1, 2, 9]), ("b", 4.0, [3, 5])]
    assert [row["down"] for row in found] == [[9, 2, 1], [5, 3]]
    assert [row["sum"] for row in found] == pytest.approx([1.2, 0.8])


def test_aggregates_with_an_evictor() -> None:
    made = operator(measures=["sum(v) AS total"], evictor=Evictor.count(2))
    assert [row["total"] for row in run(made, table(("a", 1, 1), ("a", 2, 2), ("a", 3, 4)))] == [6]


def test_only_what_is_needed_is_carried_and_kept() -> None:
    made = operator(measures=["count(*) AS n"])
    assert made.inputs["events"].prepared.names == ["k:k", "__time"]
    assert operator().kept_columns == ["v"]
    assert set(operator().inputs["events"].schema.names) == {"k", "t", "v"}


def test_sums_do_not_depend_on_the_batches_to_the_last_bit() -> None:
    data = table(*[("a", at / 100, at * 37 % 101) for at in range(120)])
    made = operator(measures=["sum(w / 3) AS x", "avg(w) AS y"])
    whole = run(made, data)
    assert whole == run(made, *[data.slice(at, 1) for at in range(120)])
    assert whole == run(made, data.slice(0, 7), data.slice(7, 100), data.slice(107))


def test_days_of_a_zone_are_as_long_as_they_are() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    made = operator(TumblingWindows.of(timedelta(days=1), zone="Europe/Berlin"), measures=["count(*) AS n"], keys=[])
    noon = [datetime(2025, *day, 12, tzinfo=berlin) for day in ((3, 29), (3, 30), (10, 26))]
    rows = pa.Table.from_pylist([{"k": "a", "t": at, "v": 1, "w": 0.0} for at in noon], SCHEMA)
    lengths = [row["window_end"] - row["window_start"] for row in run(made, rows)]
    assert lengths == [timedelta(hours=24), timedelta(hours=23), timedelta(hours=25)]


def test_months() -> None:
    made = operator(TumblingWindows.of_months(3, zone="America/New_York"), keys=[])
    rows = run(made, table(("a", -1, 1), ("a", 86400, 2), ("a", 80 * 86400, 4)))
    assert [(row["window_start"].month, row["total"]) for row in rows] == [(10, 1), (1, 6)]


def test_sliding_months() -> None:
    rows = run(operator(SlidingWindows.of_months(2, 1), keys=[]), table(("a", 86400, 1), ("a", 40 * 86400, 2)))
    assert [(row["window_start"].month, row["total"]) for row in rows] == [(12, 1), (1, 3), (2, 2)]


def test_a_session_gap_by_a_function_and_by_an_expression() -> None:
    data = table(("a", 1, 2), ("a", 2.5, 1), ("a", 9, 3))
    by_text = run(operator(SessionWindows.with_dynamic_gap("v")), data)
    by_function = run(
        operator(SessionWindows.with_dynamic_gap(lambda rows: [timedelta(seconds=v.as_py()) for v in rows["v"]])), data
    )
    assert by_text == by_function
    assert [(row["window_start"], row["window_end"], row["total"]) for row in by_text] == [
        (BEGIN + SECOND, BEGIN + 3.5 * SECOND, 3),
        (BEGIN + 9 * SECOND, BEGIN + 12 * SECOND, 3),
    ]


@pytest.mark.parametrize("gap", ["NULL", "0", "-1", "CAST('NaN' AS DOUBLE)", "1e300", "CAST('-Infinity' AS DOUBLE)"])
def test_a_gap_that_is_none_is_an_error(gap: str) -> None:
    with pytest.raises(InvalidEventError, match="gap"):
        run(operator(SessionWindows.with_dynamic_gap(f"IF(v > 1, {gap}, 1)")), DATA)


def test_firings_come_in_the_order_of_time() -> None:
    made = operator(trigger=ContinuousEventTimeTrigger.of(4 * SECOND))
    harness = OperatorHarness(made, keys=["k"]).feed(table(("b", 1, 1), ("a", 6, 1), ("c", 2, 1)))
    harness.move(watermark=micros(9))
    assert [(row["k"], row["firing"]) for row in harness.rows("firings")] == [
        ("b", 1),
        ("c", 1),
        ("b", 2),
        ("a", 1),
        ("c", 2),
    ]


def test_wakes_when_something_is_due() -> None:
    trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(
        ProcessingTimeTrigger.after_first_element(5 * SECOND)
    )
    made = operator(trigger=trigger)
    store = MemoryStore()
    events = made.prepare("events", table(("a", 1, 1)))
    result = made.process(store, [Arrival("events", events)], Now(BEFORE_TIME, micros(100)))
    assert (result.next_event_time, result.next_processing_time) == (micros(10) - 1, micros(105))
    result = made.process(store, [], Now(BEFORE_TIME, micros(105)))
    assert result.outputs["firings"].num_rows == 1
    assert (result.next_event_time, result.next_processing_time) == (micros(10) - 1, None)
    result = made.process(store, [], Now(micros(10), micros(106)))
    assert (result.next_event_time, result.next_processing_time) == (None, None)
    assert result.metrics == {"on_time_firings": 1}
    assert store.is_empty


def test_windows_in_processing_time_wake_by_the_clock() -> None:
    made = operator(time=None)
    store = MemoryStore()
    events = made.prepare("events", table(("a", 1, 1)))
    result = made.process(store, [Arrival("events", events)], Now(BEFORE_TIME, micros(3)))
    assert (result.next_event_time, result.next_processing_time) == (None, micros(10))


def test_what_has_no_time_is_late() -> None:
    made = operator(late_output=True)
    rows = pa.Table.from_pylist([{"k": "a", "t": None, "v": 1, "w": 0.0}], SCHEMA)
    harness = OperatorHarness(made, keys=["k"]).feed(rows)
    assert harness.rows("late") == [{"k": "a", "t": None, "v": 1, "w": 0.0}]
    assert harness.metrics["late_elements"] == 1


def test_keys_in_many_groups_and_pages() -> None:
    data = table(*[(f"key{at % 50}", at / 10, at) for at in range(300)])
    one = run(operator(), data)
    harness = OperatorHarness(operator(pages=7), keys=["k"], key_groups=3)
    for at in range(0, 300, 60):
        harness.feed(data.slice(at, 60))
    many = harness.end().rows("firings")
    assert sorted(map(repr, one)) == sorted(map(repr, many))
    assert harness.is_empty


def test_state_of_another_definition_is_refused() -> None:
    store = MemoryStore()
    made = operator()
    made.process(store, [Arrival("events", made.prepare("events", DATA))], Now())
    other = operator(trigger=CountTrigger.at_least(1))
    with pytest.raises(StateError):
        other.process(store, [], Now())


def test_an_operator_can_travel() -> None:
    made = operator(SessionWindows.with_dynamic_gap("v"), trigger=EventTimeTrigger.after_end_of_window())
    again = pickle.loads(pickle.dumps(made))
    assert again.fingerprint == made.fingerprint
    assert run(again, DATA) == run(made, DATA)


def test_columns_may_have_odd_names() -> None:
    """Those that the operator uses itself, for one."""
    schema = pa.schema(
        {"__time": pa.int64(), "e:v": pa.int64(), "k:k": pa.string(), "count": pa.int64(), "x:": "int64"}
    )
    data = pa.table([[1000, 2000], [1, 2], ["a", "a"], [3, 4], [5, 6]], schema=schema)
    for evictor in (None, Evictor.delta(100, "`e:v`")):
        made = WindowOperator(
            TEN,
            schema,
            keys=["k:k", "count"],
            time="__time",
            evictor=evictor,
            measures=["sum(`e:v`) AS `__time`", "max(`x:`) AS `e:v`", "sum(`__time`) AS total"],
        )
        harness = OperatorHarness(made, keys=["k:k", "count"]).feed(data).end()
        assert [(row["__time"], row["e:v"], row["total"]) for row in harness.rows("firings")] == [
            (1, 5, 1000),
            (2, 6, 2000),
        ]


# ---------------------------------------------------------------------- batch

EARLY = EventTimeTrigger.after_end_of_window().with_early_trigger(EventTimeTrigger.after_first_element(2 * SECOND))


@pytest.mark.parametrize("windows", [TEN, SessionWindows.with_gap(3 * SECOND), GlobalWindows()], ids=repr)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_batch_in_runs_of_any_size(windows: Any, size: int) -> None:
    """In the order of time: the next element may have the time of the last."""
    made = operator(windows, trigger=EARLY, in_order=True)
    data = table(*[(key, at, at) for at in (0, 1, 1, 3, 4, 9, 11, 11, 30) for key in "abc"])
    runs = OperatorHarness(made, keys=["k"])
    for at in range(0, data.num_rows, size):
        part = data.slice(at, size)
        runs.feed(part).move(watermark=part.column("t").cast("int64")[-1].as_py() - 1)
    rows = runs.end().rows("firings")
    assert sorted(map(repr, rows)) == sorted(map(repr, run(made, data)))
    assert {row["kind"] for row in rows} == {"early", "on_time"}


def test_batch_in_processing_time_is_complete_at_once() -> None:
    rows = OperatorHarness(operator(time=None), keys=["k"]).tick(micros(5)).feed(DATA).end().rows("firings")
    assert [(row["k"], row["total"], row["kind"]) for row in rows] == [("a", 13, "on_time"), ("b", 2, "on_time")]


def test_windows_after_the_year_9999() -> None:
    """As in Spark: Python cannot show these times, but they are different ones."""
    hour, first = 3_600_000_000, LAST_TIMESTAMP + 1
    schema = pa.schema({"ts": pa.timestamp("us", "UTC"), "key": pa.string()})
    harness = WindowHarness(TumblingWindows.of(timedelta(hours=1)), None, schema, aggregate=["count(*) AS n"])
    times = [first - 1, first, first + hour, first + 2000 * 365 * 24 * hour]
    harness.feed(pa.table([pa.array(times, schema.field("ts").type), ["u"] * 4], schema=schema))
    rows = harness.end().output("firings").sort_by("window_start")
    starts = [first - hour, *times[1:]]
    assert rows.column("window_start").cast(pa.int64()).to_pylist() == starts
    ends = [LAST_TIMESTAMP, *(start + hour for start in starts[1:])]
    assert rows.column("window_end").cast(pa.int64()).to_pylist() == ends
