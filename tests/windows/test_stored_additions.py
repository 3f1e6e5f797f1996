"""What pages of windows have since releases without it: elements that have not fired, ids of sessions. Their state opens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.operators.state.state_definition import StateDefinition
from asterism.operators.state.state_store import additions_from_bytes, tables_from_bytes, tables_to_bytes
from asterism.testing import OperatorHarness
from asterism.windows.assigners import GlobalWindows, SessionWindows, TumblingWindows, Windows
from asterism.windows.operator import WindowOperator
from asterism.windows.plan import UNFIRED
from asterism.windows.session_ids import REPLACES, SESSION_ID
from asterism.windows.stored_windows import windows_of
from asterism.windows.triggers import CountTrigger, EventTimeTrigger, Trigger

SECOND = timedelta(seconds=1)
TEN = TumblingWindows.of(10 * SECOND)
SESSIONS = SessionWindows.with_gap(10 * SECOND)
SCHEMA = pa.schema({"k": "string", "t": "int64", "v": "int64"})
TWOS = CountTrigger.at_least(2)
EARLY = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(1))


def operator(windows: Windows = TEN, trigger: Trigger = TWOS, **more: Any) -> WindowOperator:
    return WindowOperator(windows, SCHEMA, keys=["k"], time="t", trigger=trigger, measures=["sum(v) AS total"], **more)


def harness(*elements: tuple[str, int, int], made: WindowOperator | None = None) -> OperatorHarness:
    return OperatorHarness(made or operator(), keys=["k"]).feed(events(*elements))


def events(*elements: tuple[str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "t": second * 1000, "v": v} for k, second, v in elements], SCHEMA)


def without_additions(before: OperatorHarness) -> None:
    """As a release would have written it that knows none."""
    schemas = list(before.operator.definition.tables.values())
    for store in before.stores:
        for number in set(store.pages) - {DEFINITION_PAGE}:
            value = store.pages[number]
            store.pages[number] = tables_to_bytes(tables_from_bytes(value, schemas))


def additions(found: OperatorHarness) -> pa.Table | None:
    (page,) = (value for number, value in found.stores[0].pages.items() if number != DEFINITION_PAGE)
    return additions_from_bytes(page, len(found.operator.definition.tables))


def test_nothing_is_added_where_nothing_is_needed() -> None:
    """Windows that have not fired have only new elements; those that have just fired have none."""
    assert additions(harness(("a", 1, 1), ("b", 1, 1), ("b", 2, 1))) is None
    found = additions(harness(("a", 1, 1), ("a", 2, 2), ("a", 3, 4)))
    assert found is not None
    assert found.column(UNFIRED).to_pylist() == [1]


@pytest.mark.parametrize("more", [{}, {"evictor": None}, {"closing": "fire_if_non_empty"}], ids=repr)
def test_state_without_additions_opens(more: dict[str, Any]) -> None:
    """A window that had fired counts as one without new elements."""
    before = harness(("a", 1, 1), ("b", 1, 1), ("b", 2, 2), ("b", 3, 4), made=operator(**more))
    without_additions(before)
    after = OperatorHarness(operator(**more), keys=["k"]).restore(before.snapshot()).end()
    closed = [] if "closing" not in more else [("a", "on_time", 1)]
    assert [(row["k"], row["kind"], row["total"]) for row in after.rows("firings")] == [("b", "early", 3), *closed]
    assert after.metrics[UNFIRED] == (0 if closed else 1)


def test_a_reader_ignores_additions() -> None:
    found = harness(("a", 1, 1), ("a", 2, 2), ("a", 3, 4))
    pages = found.stores[0].pages
    definition = StateDefinition.from_bytes(pages[DEFINITION_PAGE])
    (page,) = (value for number, value in pages.items() if number != DEFINITION_PAGE)
    assert additions(found) is not None
    assert windows_of(definition, page).select(["firings", "elements"]).to_pylist() == [{"firings": 1, "elements": 3}]


def test_additions_survive_a_change_of_the_query() -> None:
    before = harness(("a", 1, 1), ("a", 2, 2), ("a", 3, 4))
    changed = operator(trigger=CountTrigger.at_least(3), closing="fire_if_non_empty")
    after = OperatorHarness(changed, keys=["k"]).restore(before.snapshot()).end()
    assert [row["total"] for row in after.rows("firings")][-1] == 7
    assert after.metrics[UNFIRED] == 0


def test_session_ids_can_be_added_to_a_query() -> None:
    """A session that is there already begins with its window then."""
    before = harness(("a", 1, 1), ("a", 20, 2), made=operator(SESSIONS, EARLY))
    after = OperatorHarness(operator(SESSIONS, EARLY, session_ids=True), keys=["k"])
    snapshot = before.snapshot()
    after.restore(snapshot)
    after.outputs = {name: [] for name in after.operator.output_schemas}
    rows = after.feed(events(("a", 10, 4))).feed(events(("a", 11, 8))).end().rows("firings")
    assert [(row["total"], len(row[REPLACES])) for row in rows] == [(7, 1), (15, 0), (15, 0)]
    whole = harness(("a", 1, 1), ("a", 20, 2), made=operator(SESSIONS, EARLY, session_ids=True))
    expected = whole.feed(events(("a", 10, 4))).rows("firings")
    assert {row[SESSION_ID] for row in rows} == {expected[0][SESSION_ID]}
    assert rows[0][REPLACES] == [expected[1][SESSION_ID]] == expected[2][REPLACES]


def test_an_id_does_not_change() -> None:
    """Sinks keep ids, so those of earlier releases stay."""
    (row,) = (
        harness(("a", 1, 1), made=operator(SESSIONS, session_ids=True, closing="fire_always")).end().rows("firings")
    )
    assert row[SESSION_ID] == "768fd1ad1ddb97911bed2aed5b510b8b"


def test_a_global_window_counts_what_is_left_at_the_end_of_the_input() -> None:
    found = harness(("a", 1, 1), ("a", 2, 2), ("a", 3, 4), made=operator(GlobalWindows())).end()
    assert found.metrics[UNFIRED] == 1
    assert found.is_empty
