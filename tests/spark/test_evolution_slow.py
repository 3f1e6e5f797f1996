"""Outputs for late events and queries of two operators change, too."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from asterism import (
    CEP,
    CountTrigger,
    EventTimeTrigger,
    Input,
    KeyedStream,
    Output,
    Pattern,
    StreamOperator,
    ValueState,
    connect,
    read_state,
    window,
)
from asterism.errors import StateError
from asterism.spark.host.evolution import LAST_OPERATOR
from asterism.streams.operators import OperatorStream
from asterism.windows.assigners import TumblingWindows
from tests.spark.streams import ABSENCE, FUNNEL, STRICT, Collect, batch_matches, events, ids, stream_of, write_files
from tests.spark.test_windows import MINUTE

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("pattern", [FUNNEL, STRICT], ids=["relevant events", "all events"])
@pytest.mark.parametrize("first", [False, True], ids=["without late events first", "with late events first"])
def test_an_output_for_late_events_is_added_and_removed(
    spark: SparkSession, tmp_path: Path, pattern: Pattern, first: bool
) -> None:
    """Without it, Spark filters the events, and has a watermark for them. Spark does not allow that to change."""
    table, found, late = events(600), Collect(), Collect()
    checkpoint = str(tmp_path / "checkpoint")
    for number, with_late in enumerate([first, not first, first]):
        write_files(table.slice(200 * number, 200), tmp_path / "in", [], first=number)
        sinks = {"matches": found} | ({"late": late} if with_late else {})
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), pattern, key_groups=2)
        stream.run(sinks, checkpoint=checkpoint, drain=number == 2)
    assert ids(found.rows) == batch_matches(spark, table, pattern)
    assert not late.rows


class RoundedSums(StreamOperator):
    """Behind windows."""

    rows = Input("user STRING, window_end TIMESTAMP, n BIGINT")
    total = ValueState("BIGINT")
    out = Output("user STRING, total BIGINT")

    @rows.process_element
    def see(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.n)
        self.out.collect(user=e.user, total=self.total.value())


class CountedSums(RoundedSums):
    seen = ValueState("BIGINT")
    out = Output("user STRING, total BIGINT, seen BIGINT")

    @RoundedSums.rows.process_element
    def see_and_count(self, e: Any, ctx: Any) -> None:
        self.seen.update((self.seen.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + e.n)
        self.out.collect(user=e.user, total=self.total.value(), seen=self.seen.value())


class OtherSums(RoundedSums):
    total = ValueState("DOUBLE")  # type: ignore[assignment]


def test_queries_of_two_operators_and_those_started_by_write_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Both operators change: the first is checked by its key groups, the last also before Spark starts."""
    table = events(300)
    write_files(table.slice(0, 150), tmp_path / "in", [])
    checkpoint = str(tmp_path / "checkpoint")

    def chain(last: StreamOperator, *measures: str, size: timedelta = MINUTE / 6) -> OperatorStream:
        windows = window(stream_of(spark, tmp_path / "in"), TumblingWindows.of(size), key_groups=2)
        counts = windows.aggregate("count(*) AS n", *measures).select("user", "window_end", "n")
        return connect(last, rows=KeyedStream(counts, "user", "window_end"), key_groups=2)

    def start(stream: OperatorStream) -> list[dict[str, Any]]:
        found = Collect()
        writer = stream.output("out").writeStream.foreachBatch(found).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        return found.rows

    before = start(chain(RoundedSums()))
    assert before
    assert read_state(spark, checkpoint, operator_id=LAST_OPERATOR).kind == "operator"
    write_files(table.slice(150, 100), tmp_path / "in", [], first=1)
    after = start(chain(CountedSums(), "sum(price) AS total"))
    totals = {row["user"]: row["total"] for row in before}
    for row in after:
        if row["seen"] == 1 and row["user"] in totals:
            assert row["total"] > totals[row["user"]]
    assert any(row["seen"] == 1 and row["user"] in totals for row in after)

    write_files(table.slice(250, 50), tmp_path / "in", [], first=2)
    with pytest.raises(StateError, match='the state "total" of OtherSums changed its type'):
        chain(OtherSums()).run({"out": Collect()}, checkpoint=checkpoint)
    with pytest.raises(
        StreamingQueryException,
        match=r"CheckpointMismatchError: \[CHECKPOINT_MISMATCH\] the checkpoint cannot be continued: the windows changed",
    ):
        start(chain(CountedSums(), size=MINUTE))
    with pytest.raises(StreamingQueryException, match='the state "total" of OtherSums changed its type'):
        start(chain(OtherSums()))
    last = Collect()
    chain(CountedSums()).run({"out": last}, checkpoint=checkpoint)
    totals = {row["user"]: 0 for row in last.rows}
    for row in [*before, *after, *last.rows]:
        totals[row["user"]] = max(totals.get(row["user"], 0), row["total"])
    assert sum(totals.values()) == table.num_rows


def test_windows_with_other_counts_and_measures_and_a_pattern_after_a_drain(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = events(400)
    write_files(table.slice(0, 200), tmp_path / "in", [])
    checkpoint = str(tmp_path / "checkpoint")

    def run(count: int, *measures: str, drain: bool) -> Collect:
        trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(count))
        windowed = window(stream_of(spark, tmp_path / "in"), TumblingWindows.of(MINUTE), trigger=trigger, key_groups=2)
        found = Collect()
        windowed.run({"results": found}, aggregate=measures, checkpoint=checkpoint, drain=drain)
        return found

    before = run(3, "count(*) AS n", drain=False)
    write_files(table.slice(200, 200), tmp_path / "in", [], first=1)
    after = run(2, "sum(price) AS total", "count(*) AS n", drain=True)
    assert {"n", "total"} <= after.rows[0].keys()
    last = [row["n"] for row in (*before.rows, *after.rows) if row["is_last"]]
    assert sum(last) == table.num_rows

    # There is no state any more, so the query can be any other with the same sources.
    assert read_state(spark, checkpoint).is_empty
    write_files(table.slice(0, 50), tmp_path / "in", [], first=2)
    stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, key_groups=4)
    with pytest.raises(StateError, match="created with 2 key groups"):
        stream.run({"matches": Collect()}, checkpoint=checkpoint)
    late = stream_of(spark, tmp_path / "in")
    found = Collect()
    stream = CEP.pattern(late, ABSENCE)
    stream.run({"matches": found, "late": Collect()}, checkpoint=checkpoint)
    assert ids(found.rows)
