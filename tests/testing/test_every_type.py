"""A column that nobody reads has the same values in results, whatever its type is, and NULL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import Pattern, TumblingWindows
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.result_rows import match_table
from asterism.rules.definition.processor import PatternProcessor
from asterism.testing import JoinHarness, OperatorHarness, PatternHarness, RowPatternHarness, WindowHarness
from tests.every_type import TYPES, value_and_null
from tests.rules.driver import Driver

SECOND = 1_000_000
AB = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'")


@pytest.fixture(params=TYPES)
def events(request: pytest.FixtureRequest) -> pa.Table:
    """a with the value, b with NULL, one second later."""
    times = [datetime(2025, 1, 1, 0, 0, second, tzinfo=UTC) for second in (1, 2)]
    columns = {
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
        "user": pa.array(["u", "u"]),
        "kind": pa.array(["a", "b"]),
    }
    return pa.table(columns | {"v": value_and_null(request.param)})


def sent(harness: OperatorHarness, events: pa.Table) -> Any:
    """With a restart between the events, while the first one waits, and a late event at the end."""
    harness.feed(events.slice(0, 1))
    harness.restore(harness.snapshot())
    harness.feed(events.slice(1))
    harness.feed_watermark(events.column("ts")[1].cast(pa.int64()).as_py())
    return harness.feed(events).end()


def texts(column: Any) -> list[str]:
    """NaN is equal to itself."""
    return [repr(value) for value in column.to_pylist()]


def test_patterns(events: pa.Table) -> None:
    harness = sent(PatternHarness(AB, events.schema, keys=["user"]), events)
    matches = harness.output("matches")
    of_stages = [matches.column(stage).combine_chunks().flatten().field("v") for stage in "ab"]
    assert [texts(column)[0] for column in of_stages] == texts(events.column("v"))
    assert texts(harness.output("late").column("v")) == texts(events.column("v"))


def test_windows(events: pa.Table) -> None:
    seen: list[pa.Table] = []

    def process(rows: pa.Table, _: Any) -> pa.Table:
        seen.append(rows)
        return pa.table({"n": [rows.num_rows]})

    windows = TumblingWindows.of(timedelta(seconds=10))
    harness = sent(
        WindowHarness(windows, None, events.schema, keys=["user"], process=process, schema="n BIGINT"), events
    )
    assert [row["n"] for row in harness.rows("firings")] == [4]  # the late elements are not late for their window
    assert texts(seen[0].column("v")) == texts(events.column("v")) * 2


@pytest.mark.parametrize("rows", ["ALL ROWS PER MATCH", "ALL ROWS PER MATCH WITH UNMATCHED ROWS"])
def test_row_patterns(events: pa.Table, rows: str) -> None:
    clause = f"PARTITION BY user ORDER BY ts {rows} PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
    harness = sent(RowPatternHarness(clause, events.schema), events)
    of_table = match_table(check(read(clause), events.schema), events)
    for found in (of_table, harness.output("matches"), harness.output("late")):
        assert texts(found.column("v")) == texts(events.column("v"))


@pytest.mark.parametrize("how", ["inner", "left", "many streams"])
def test_joins(events: pa.Table, how: str) -> None:
    side: dict[str, Any] = {"columns": events.schema, "key": "user", "time": "ts"}
    apart = timedelta(seconds=1)
    if how == "many streams":
        sides, between = {"left": side, "right": side}, {("left", "right"): (apart, apart)}
        harness = JoinHarness.multi_join(sides, between, prefix={"right": "r_"})
    else:
        harness = JoinHarness.interval_join(side, side, (apart, apart), how=how, prefix="r_")
    for name in ("left", "right"):
        harness.feed(events, name)
    harness.restore(harness.snapshot())
    found = harness.end().output("results").sort_by("ts")
    value, null = texts(events.column("v"))
    assert texts(found.column("v")) == [value, null][: found.num_rows]
    assert texts(found.column("r_v")) == [null, null][: found.num_rows]


@pytest.mark.parametrize("clause", [False, True], ids=["pattern", "clause"])
def test_rules(events: pa.Table, clause: bool) -> None:
    text = "ALL ROWS PER MATCH PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
    driver = Driver(schema=events.schema, wants_late=True)
    driver.batch(
        events.slice(0, 1), sets=[PatternProcessor("ab", 1, sql=text) if clause else PatternProcessor("ab", 1, AB)]
    )
    driver.batch(events.slice(1), watermark=events.column("ts")[1].as_py().timestamp()).batch(events).end()
    found = [event["event"]["v"] for match in driver.rows["matches"] for event in match["events"]]
    assert list(map(repr, found)) == texts(events.column("v"))
