"""Folds, and functions after an aggregate: what they get, what they keep, and that it does not matter how elements arrive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism.testing import WindowHarness, check_window_independence
from asterism.windows.assigners import CumulativeWindows, SessionWindows, TumblingWindows, Windows
from asterism.windows.evictors import Evictor
from asterism.windows.folds import Fold
from asterism.windows.triggers import CountTrigger, EventTimeTrigger, TimeSpan

SECOND = timedelta(seconds=1)
TEN = TumblingWindows.of(10 * SECOND)
EARLY = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
EVENTS = "ann.a1@1s bob.a2@2s ann.a3@9s |5s ann.a4@14s ann.a5@6s |12s bob.a6@11s ann.a7@12s ann.a8@13s |40s"


def add(total: dict[str, Any], element: dict[str, Any]) -> dict[str, Any]:
    """It may change what it gets."""
    total["total"] += element["value"]
    total["largest"] = max(total["largest"], [element["value"]])
    return total


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"total": one["total"] + other["total"], "largest": max(one["largest"], other["largest"])}


SUM = Fold("total BIGINT, largest ARRAY<INT>", {"total": 0, "largest": []}, add, merged)


@pytest.mark.parametrize(
    ("windows", "evictor"),
    [
        (TEN, None),
        (CumulativeWindows.of(9 * SECOND, 3 * SECOND), None),
        (SessionWindows.with_gap(3 * SECOND), None),
        (SessionWindows.with_gap(3 * SECOND), Evictor.count(2)),
    ],
    ids=repr,
)
def test_a_fold_is_an_aggregate(windows: Windows, evictor: Evictor | None) -> None:
    found = [
        check_window_independence(
            windows, EARLY, EVENTS, cuts=1, allowed_lateness=20 * SECOND, evictor=evictor, **computed
        )
        for computed in ({"fold": SUM}, {"aggregate": ["sum(value) AS total", "max(value) AS largest"]})
    ]
    texts = [[line.replace("[", "(").replace("]", ")") for line in one.firings] for one in found]
    sums = [[(row["firing"], row["kind"], row["total"]) for row in one.results] for one in found]
    assert sums[0] == sums[1]
    assert len(texts[0]) == len(texts[1]) > 4
    assert [row["largest"] for row in found[0].results] == [[row["largest"]] for row in found[1].results]


@pytest.mark.parametrize("in_order", [False, True])
def test_sessions_merge_their_accumulators(in_order: bool) -> None:
    harness = WindowHarness(SessionWindows.with_gap(5 * SECOND), fold=SUM, in_order=in_order)
    harness.send("a1@1s a2@9s").send("a4@5s").end()
    assert harness.firings == ["[1s,14s) #1 on_time!: total=7 largest=[4]"]


@pytest.mark.parametrize("first", ["aggregate", "reduce", "fold"])
def test_a_function_after_an_aggregate_gets_its_result_and_the_key(first: str) -> None:
    """And not the elements, which are not kept."""
    seen = []

    def function(rows: pa.Table, window: TimeSpan) -> list[dict[str, Any]]:
        seen.append((rows.column_names, window.start is not None))
        total = rows.column("value" if first == "reduce" else "total")[0].as_py()
        return [{"who": rows.column("key")[0].as_py(), "half": total / 2}] if total > 2 else []

    steps: dict[str, Any] = {
        "aggregate": "sum(value) AS total",
        "reduce": lambda one, other: {**one, "value": one["value"] + other["value"]},
        "fold": SUM,
    }
    options = {first: steps[first], "process": function, "schema": "who STRING, half DOUBLE"}
    harness = WindowHarness(TEN, **options).send("ann.a1@1s ann.a4@2s bob.a2@3s bob.a9@13s").end()
    assert harness.firings == [
        "ann [0s,10s) #1 on_time!: who=ann half=2.5",
        "bob [10s,20s) #1 on_time!: who=bob half=4.5",
    ]
    expected = {
        "aggregate": ["key", "total"],
        "reduce": ["key", "ts", "kind", "value"],
        "fold": ["key", "total", "largest"],
    }
    assert [sorted(names) for names, _ in seen] == [sorted(expected[first])] * 3
    assert all(has_window for _, has_window in seen)
    assert harness.window_operator.contents.partials is not None
    whole = check_window_independence(TEN, EARLY, EVENTS, cuts=1, **options)
    assert len(whole.firings) > 3


def test_a_function_after_an_aggregate_that_needs_the_elements() -> None:
    def function(rows: pa.Table, window: TimeSpan) -> dict[str, Any]:
        return {"twice": rows.column("n")[0].as_py() * 2}

    options = {"aggregate": "count(DISTINCT value) AS n", "process": function, "schema": "twice INT"}
    harness = check_window_independence(TEN, EARLY, EVENTS, cuts=1, **options)
    assert harness.firings[-1] == "ann [10s,20s) #2 on_time!: twice=6"


def test_an_empty_window_has_the_initial_accumulator() -> None:
    trigger = EARLY.discarding()
    harness = WindowHarness(TEN, trigger, fold=SUM, on_time="fire_always").send("a1@1s a2@2s |10s")
    assert harness.firings == ["[0s,10s) #1 early: total=3 largest=[2]", "[0s,10s) #2 on_time!: total=0 largest=[]"]


@pytest.mark.parametrize(
    "aggregate", ["sum(value) AS total", "count(DISTINCT value) AS total", "max_by(kind, value) AS m"]
)
def test_aggregates_of_an_empty_window_are_those_of_no_rows(aggregate: str) -> None:
    harness = WindowHarness(TEN, EARLY.discarding(), aggregate=aggregate, closing="fire_always")
    harness.send("a1@1s a2@2s |10s")
    name, empty = aggregate.rsplit(" ", 1)[1], 0 if "count" in aggregate else "null"
    assert harness.firings[1] == f"[0s,10s) #2 on_time!: {name}={empty}"


def test_a_function_of_an_empty_window_gets_no_elements() -> None:
    options: dict[str, Any] = {"process": lambda rows, window: {"n": rows.num_rows}, "schema": "n INT"}
    harness = WindowHarness(TEN, EARLY.discarding(), on_time="fire_always", **options).send("a1@1s a2@2s |10s")
    assert harness.firings == ["[0s,10s) #1 early: n=2", "[0s,10s) #2 on_time!: n=0"]


def test_a_reduced_window_without_elements_has_nulls() -> None:
    def total(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return {**one, "value": one["value"] + other["value"]}

    schema = pa.schema({"key": pa.string(), "ts": pa.timestamp("us", "UTC"), "value": pa.int64()})
    elements = [
        {"key": "ann", "ts": datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC), "value": second} for second in (1, 2)
    ]
    harness = WindowHarness(TEN, EARLY.discarding(), schema, reduce=total, closing="fire_always")
    harness.send(elements).advance_watermark("10s")
    assert [(row["key"], row["kind"], row["value"]) for row in harness.results] == [
        ("ann", "early", 3),
        ("ann", "on_time", None),
    ]
    options: dict[str, Any] = {"process": lambda rows, window: {"who": rows["key"][0].as_py()}, "schema": "who STRING"}
    named = harness.again(**options).send(elements).advance_watermark("10s")
    assert [row["who"] for row in named.results] == ["ann", "ann"]


def test_the_repr_of_a_fold_does_not_depend_on_the_process() -> None:
    assert repr(SUM) == (
        "Fold('total int64, largest list<item: int32>', {'total': 0, 'largest': []}, add, merged)"
    )  # fmt: skip
