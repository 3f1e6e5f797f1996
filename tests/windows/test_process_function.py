"""Window functions with state: by key and by window, whatever the cuts, restarts, key groups and pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import (
    AggregateFunction,
    AggregatingState,
    CountTrigger,
    EventTimeTrigger,
    GlobalWindows,
    ListState,
    ProcessWindowFunction,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    ValueState,
)
from asterism.errors import CheckpointMismatchError, StreamDefinitionError, UserFunctionError
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.operators.state.state_definition import StateDefinition
from asterism.testing import WindowHarness, check_window_independence
from asterism.windows.stored_windows import states_of_keys, states_of_windows
from tests.kit import small_pages

TEN = timedelta(seconds=10)
EARLY_AND_LATE = (
    EventTimeTrigger.after_end_of_window()
    .with_early_trigger(CountTrigger.at_least(2))
    .with_late_trigger(CountTrigger.at_least(1))
)
COLUMNS = "total BIGINT, of_key BIGINT, of_window BIGINT, cleared STRING"


class Totals(ProcessWindowFunction):
    """Counts the firings of a key and of a window, and remembers which windows of the key have been dropped."""

    firings = ValueState("BIGINT")
    cleared = ListState("BIGINT")

    def process(self, elements: pa.Table, window: Any, ctx: Any) -> Any:
        found = {"total": elements.num_rows, "of_window": None}
        of_key = ctx.global_state(self.firings)
        of_key.update((of_key.value() or 0) + 1)
        if self.per_window:
            of_window = ctx.window_state(self.firings)
            of_window.update((of_window.value() or 0) + 1)
            found["of_window"] = of_window.value()
        assert ctx.window == window
        return found | {"of_key": of_key.value(), "cleared": f"{ctx.key}: {ctx.global_state(self.cleared).get()}"}

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.global_state(self.cleared).add(window.start.second if window.start else -1)

    def __init__(self, *, per_window: bool = True) -> None:
        self.per_window = per_window


def rows(harness: WindowHarness) -> list[tuple[Any, ...]]:
    return [(row["key"], row["total"], row["of_key"], row["of_window"], row["cleared"]) for row in harness.results]


def test_state_of_keys_and_of_windows() -> None:
    harness = check_window_independence(
        TumblingWindows.of(TEN),
        EARLY_AND_LATE,
        "ann.a1@1s ann.a2@2s bob.a3@3s ann.a4@4s |10s ann.a5@9s ann.a6@11s |20s bob.a7@21s |40s",
        process=Totals(),
        schema=COLUMNS,
        allowed_lateness=TEN,
    )
    assert rows(harness) == [
        ("ann", 2, 1, 1, "ann: []"),
        ("ann", 3, 2, 2, "ann: []"),
        ("bob", 1, 1, 1, "bob: []"),
        ("ann", 4, 3, 3, "ann: []"),
        ("ann", 1, 4, 1, "ann: [0]"),
        ("bob", 1, 2, 1, "bob: [0]"),
    ]


WINDOWS = st.sampled_from(
    [TumblingWindows.of(TEN), SlidingWindows.of(TEN, TEN / 2), SessionWindows.with_gap(TEN / 5), GlobalWindows()]
)
ELEMENTS = st.lists(st.tuples(st.sampled_from(["ann", "bob", "cid"]), st.integers(0, 40)), max_size=15)


@given(WINDOWS, ELEMENTS, st.booleans(), st.integers(0, 12))
def test_cuts_and_restarts_change_nothing(
    windows: Any, elements: list[tuple[str, int]], aggregated: bool, lateness: int
) -> None:
    trigger = CountTrigger.at_least(2) if isinstance(windows, GlobalWindows) else EARLY_AND_LATE
    if not lateness and trigger is EARLY_AND_LATE:
        trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
    text = " ".join(
        f"{key}.a{number}@{time}s" + (f" |{time}s" if number % 4 == 3 else "")
        for number, (key, time) in enumerate(sorted(elements, key=lambda element: element[1]))
    )
    with small_pages():
        check_window_independence(
            windows,
            trigger,
            text,
            cuts=2,
            process=Totals(per_window=not isinstance(windows, SessionWindows)),
            schema=COLUMNS,
            allowed_lateness=timedelta(seconds=0 if isinstance(windows, GlobalWindows) else lateness),
            **({"aggregate": "count(*) AS n"} if aggregated else {}),
        )


class Always(ProcessWindowFunction):
    before = ValueState("BIGINT")

    def process(self, elements: pa.Table, window: Any, ctx: Any) -> Any:
        before = ctx.global_state(self.before)
        found = {"before": before.value()}
        before.update(elements.num_rows)
        return found


class Recent(Always):
    before = ValueState("BIGINT", ttl=2 * TEN)


def test_state_of_a_key_outlives_its_windows() -> None:
    """Until its time to live has passed; a key with such state is not forgotten."""
    harness = WindowHarness(TumblingWindows.of(TEN), process=Recent(), schema="before BIGINT", key_groups=2)
    harness.send("ann.a1@1s bob.a2@1s ann.a3@2s |10s")
    assert not harness.is_empty
    harness = harness.again().restore(harness.snapshot())
    harness.send("ann.a4@11s |20s bob.a5@41s |50s")
    assert [(row["key"], row["before"]) for row in harness.results] == [
        ("ann", None), ("bob", None), ("ann", 2), ("bob", None)
    ]  # fmt: skip
    assert harness.end().is_empty


def test_a_time_to_live_is_switched_on_for_state_of_a_window_function() -> None:
    """The count of ann was stored without one, so it is there after a minute; the next one expires."""
    harness = WindowHarness(TumblingWindows.of(TEN), process=Always(), schema="before BIGINT", key_groups=2)
    harness.send("ann.a1@1s ann.a2@2s |10s")
    harness = harness.again(process=Recent()).restore(harness.snapshot())
    harness.send("ann.a3@61s |70s ann.a4@121s |130s")
    assert [(row["key"], row["before"]) for row in harness.results] == [("ann", None), ("ann", 2), ("ann", None)]


class More(Recent):
    second = ValueState("STRING")


class Others(ProcessWindowFunction):
    before = ValueState("STRING")

    def process(self, elements: pa.Table, window: Any, ctx: Any) -> Any:
        return {"before": None}


def test_states_can_be_added_to_a_checkpoint_and_not_changed() -> None:
    first = WindowHarness(
        TumblingWindows.of(TEN), process=lambda elements, window: {"before": 0}, schema="before BIGINT"
    )
    state = first.send("ann.a1@1s ann.a2@2s |5s").snapshot()
    with_state = first.again(process=Recent()).restore(state).send("ann.a3@3s |10s ann.a4@11s")
    assert [row["before"] for row in with_state.results] == [None]
    more = with_state.again(process=More()).restore(with_state.snapshot()).send("ann.a5@12s |20s")
    assert [row["before"] for row in more.results] == [None, 3]
    with pytest.raises(CheckpointMismatchError, match='the state "before" of the window function changed its type'):
        with_state.again(process=Others()).restore(with_state.snapshot()).send("ann.a5@12s |20s")
    with pytest.raises(CheckpointMismatchError, match='the state "before" of the window function was removed'):
        with_state.again(process=lambda elements, window: {"before": 0}).restore(with_state.snapshot()).send(
            "a5@12s |20s"
        )


@pytest.mark.parametrize("windows", [TumblingWindows.of(TEN), SessionWindows.with_gap(TEN), GlobalWindows()])
def test_states_are_read_from_pages(windows: Any) -> None:
    """As rows for ``read_state``, with the definition in the state: of a key, and of a window."""
    per_window = not windows.merges
    harness = WindowHarness(
        windows, CountTrigger.at_least(1), process=Totals(per_window=per_window), schema=COLUMNS, pages=1
    ).send("ann.a1@1s bob.a2@2s ann.a3@3s ann.a4@21s |25s")
    [(_, pages)] = harness.snapshot().state
    definition = StateDefinition.from_bytes(pages[DEFINITION_PAGE])
    assert definition.details["kinds"] == {"firings": "value", "cleared": "list"}
    of_keys = states_of_keys(definition, pages[0], "function_state:firings", positions=False)
    assert of_keys.to_pylist() == [{"key": {"key": "ann"}, "value": 3}, {"key": {"key": "bob"}, "value": 1}]
    assert ("window_state:firings" in definition.tables) == per_window
    if per_window:
        of_windows = states_of_windows(definition, pages[0], "window_state:firings", positions=False).to_pylist()
        bounds = [(row["window_start"] is None, row["window_end"] is None) for row in of_windows]
        assert bounds == [(windows.is_global, windows.is_global)] * len(bounds)
        assert [(row["key"]["key"], row["value"]) for row in of_windows] == (
            [("ann", 3), ("bob", 1)] if windows.is_global else [("ann", 1)]
        )


def test_processing_time() -> None:
    harness = WindowHarness(TumblingWindows.of(TEN), process=Totals(), schema=COLUMNS, time=None)
    harness.advance_processing_time("1s").send("ann.a1 ann.a2").advance_processing_time("10s")
    harness.send("ann.a3").advance_processing_time("12s").end()
    assert rows(harness) == [("ann", 2, 1, 1, "ann: []"), ("ann", 1, 2, 1, "ann: [0]")]


class Opened(ProcessWindowFunction):
    """Without state."""

    def open(self) -> None:
        self.factor = 10

    def process(self, elements: pa.Table, window: Any, ctx: Any) -> Any:
        return {"n": self.factor * elements.num_rows}


def test_a_function_is_opened_and_needs_no_state() -> None:
    harness = WindowHarness(TumblingWindows.of(TEN), process=Opened(), schema="n BIGINT").send("ann.a1@1s |10s")
    assert [row["n"] for row in harness.results] == [10]


def returning(what: Any) -> Any:
    class Clears(Opened):
        def clear(self, window: Any, ctx: Any) -> Any:
            return what(self, ctx)

    return Clears


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda self, ctx: {"n": 1}, "clear returned"),
        (lambda self, ctx: ctx.global_state(Totals.firings), "not a state of this window function: 'firings'"),
        (lambda self, ctx: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_in_clear(what: Any, message: str) -> None:
    harness = WindowHarness(TumblingWindows.of(TEN), process=returning(what)(), schema="n BIGINT")
    with pytest.raises(UserFunctionError, match=message):
        harness.send("ann.a1@1s |10s")


def test_sessions_are_cleared_once() -> None:
    """Sessions of two elements, of which one merges two others; a late element begins none."""
    harness = check_window_independence(
        SessionWindows.with_gap(TEN / 5),
        None,
        "ann.a1@1s ann.a2@2s ann.a3@5s ann.a4@6s |5s ann.a5@11s ann.a6@15s ann.a7@13s |30s ann.a8@3s |32s ann.a9@41s |50s",
        process=Totals(per_window=False),
        schema=COLUMNS,
    )
    assert [row[4] for row in rows(harness)] == ["ann: []", "ann: [1]", "ann: [1, 5]", "ann: [1, 5, 11]"]
    assert len(harness.late) == 1


class Mean(AggregateFunction):
    """As in Flink, without merge."""

    def create_accumulator(self) -> Any:
        return {"total": 0, "n": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"total": accumulator["total"] + value, "n": accumulator["n"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["total"] / accumulator["n"]


class Means(ProcessWindowFunction):
    """The mean number of elements of the windows of a key, or of the firings of a window."""

    mean = AggregatingState("STRUCT<total: BIGINT, n: BIGINT>", Mean())

    def __init__(self, *, per_window: bool) -> None:
        self.per_window = per_window

    def process(self, elements: pa.Table, window: Any, ctx: Any) -> Any:
        mean = (ctx.window_state if self.per_window else ctx.global_state)(self.mean)
        mean.add(elements.num_rows)
        return {"mean": mean.get()}


def test_an_aggregating_state_of_the_key_does_not_merge_when_sessions_do() -> None:
    """Its function needs no ``merge``: as in Flink, each firing adds to the accumulator that all sessions of the key share."""
    harness = check_window_independence(
        SessionWindows.with_gap(TEN / 5),
        EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2)),
        "ann.a1@1s ann.a2@2s ann.a3@5s ann.a4@6s ann.a5@3500ms |30s ann.a6@41s |50s",
        process=Means(per_window=False),
        schema="mean DOUBLE",
        in_order=False,
    )
    # Two sessions of two elements fire, the one of five that they become, and one of a single element.
    assert [row["mean"] for row in harness.results] == [2.0, 2.0, 3.0, 2.5]


def test_sessions_have_no_state_per_window() -> None:
    """As in Flink, whatever the state: an aggregate function without ``merge`` is never asked to merge."""
    for process, schema in ((Totals(), COLUMNS), (Means(per_window=True), "mean DOUBLE")):
        harness = WindowHarness(SessionWindows.with_gap(TEN), process=process, schema=schema)
        with pytest.raises(UserFunctionError, match="session windows have no state per window") as caught:
            harness.send("ann.a1@1s |20s")
        assert "Hint: ctx.global_state, which all windows of the key share; or fold=Fold(" in str(caught.value)


def test_states_cannot_have_the_names_of_methods() -> None:
    with pytest.raises(StreamDefinitionError, match='declares "clear"'):
        type("Wrong", (ProcessWindowFunction,), {"clear": ValueState("BIGINT")})
