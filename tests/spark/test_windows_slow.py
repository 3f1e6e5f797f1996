"""Windows on Spark: more policies, the clock, and what the other transcripts say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from asterism import (
    CountTrigger,
    KeyedStream,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    TimeSpan,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingWindows,
    ValueState,
    WindowContext,
    window,
)
from asterism.errors import StreamDefinitionError
from tests.kit import until
from tests.spark.streams import Collect, events, stream_of, write_file, write_files
from tests.spark.test_windows import (
    AT_END,
    DAY,
    EARLY,
    HOUR,
    MEASURES,
    MINUTE,
    POLICIES,
    RUNNABLE,
    SAMPLE,
    SECOND,
    check_policy,
    check_transcript,
    of_table,
    texts,
)
from tests.windows.driver import SCHEMA as ELEMENTS

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", [name for name in RUNNABLE if name != SAMPLE])
def test_what_a_transcript_says_with_a_restart_in_the_middle(spark: SparkSession, tmp_path: Path, name: str) -> None:
    check_transcript(spark, tmp_path, name)


def test_windows_in_processing_time_end_with_the_drain(spark: SparkSession, tmp_path: Path) -> None:
    table = events(60)
    write_files(table, tmp_path / "in", [])
    found = Collect()
    stream = stream_of(spark, tmp_path / "in", time=None, max_out_of_orderness=timedelta(0), key=())
    windowed = window(stream, TumblingWindows.of(DAY), key_groups=2)
    windowed.run({"results": found}, aggregate=["count(*) AS n"], checkpoint=str(tmp_path / "cp"))
    assert [(row["n"], row["kind"], row["is_last"]) for row in found.rows] == [(60, "on_time", True)]
    with pytest.raises(StreamDefinitionError, match="does not end by itself"):
        windowed.run({"late": found}, checkpoint=str(tmp_path / "cp"), drain=False)


IN_PROCESSING_TIME = ProcessingTimeTrigger.after_end_of_window()


def test_a_trigger_by_the_clock_gives_the_same_whatever_the_key_groups_and_the_cuts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The windows have ended by the clock, so each element fires: those at the end of a key group, too."""
    table = events(60, users=5)
    found = [
        texts(
            of_table(spark, table, trigger=IN_PROCESSING_TIME, key_groups=n).aggregate(*MEASURES).toArrow().to_pylist()
        )
        for n in (1, 2, 32)
    ]
    assert len(found[0]) == 60
    assert found[1:] == found[:1] * 2

    write_files(table, tmp_path / "in", [20, 40])
    drained = Collect()
    stream = stream_of(spark, tmp_path / "in")
    windowed = window(stream, TumblingWindows.of(HOUR), trigger=IN_PROCESSING_TIME, in_order=True, key_groups=2)
    windowed.run({"results": drained}, aggregate=MEASURES, checkpoint=str(tmp_path / "cp"))
    assert texts(drained.rows) == found[0]


@pytest.mark.parametrize("name", [name for name in POLICIES if name != EARLY])
def test_any_micro_batches_give_what_a_batch_run_and_the_operator_give(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    check_policy(spark, tmp_path, POLICIES[name])


class AtTheEnd(Trigger):
    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        assert window.end is not None
        ctx.register_event_time_timer(window.end)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE


class Numbered(ProcessWindowFunction):
    """Numbers the windows of a key, in its state."""

    windows = ValueState("BIGINT")

    def process(self, elements: pa.Table, span: TimeSpan, ctx: WindowContext) -> dict[str, Any]:
        windows = ctx.global_state(self.windows)
        windows.update((windows.value() or 0) + 1)
        return {"n": elements["n"][0].as_py(), "number": windows.value()}


def test_a_stream_with_a_trigger_of_ones_own_in_event_time_ends_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    table = events(60, users=5)
    write_files(table, tmp_path / "in", [30])
    found = Collect()
    windows = TumblingWindows.of(timedelta(seconds=5))
    windowed = window(stream_of(spark, tmp_path / "in"), windows, trigger=AtTheEnd(), key_groups=2)
    assert windowed.in_order
    numbered = {"process": Numbered(), "schema": "n BIGINT, number BIGINT", "checkpoint": str(tmp_path / "cp")}
    windowed.run({"results": found}, aggregate="count(*) AS n", drain=False, **numbered)
    windowed.run({"results": found}, aggregate=["count(*) AS n"], **numbered)
    assert {row["kind"] for row in found.rows} == {"on_time"}
    by_table = of_table(spark, table, windows=windows, trigger=AT_END)
    counted = by_table.process(Numbered(), "n BIGINT, number BIGINT", aggregate=["count(*) AS n"])
    wanted = counted.toArrow().to_pylist()
    assert max(row["number"] for row in wanted) > 1
    assert texts(found.rows) == texts(wanted)


def test_early_firings_by_the_clock_come_while_no_data_flows(spark: SparkSession, tmp_path: Path) -> None:
    """The second policy of FLIP-9, with a second for ten: early by the clock, then late when there are five new elements."""
    folder = tmp_path / "in"
    folder.mkdir()
    found = Collect()

    def arrive(number: int, *seconds: float) -> None:
        elements = [{"k": "a", "t": round(second * 1000), "v": 1} for second in seconds]
        write_file(pa.Table.from_pylist(elements, ELEMENTS), folder, number)

    schema = spark.createDataFrame(ELEMENTS.empty_table()).schema
    stream = KeyedStream(spark.readStream.schema(schema).parquet(str(folder)), key="k", time="t")
    early = AT_END.with_early_trigger(ProcessingTimeTrigger.after_first_element(SECOND))
    policy = early.with_late_trigger(CountTrigger.at_least(5))
    windowed = window(stream, TumblingWindows.of(MINUTE), trigger=policy, allowed_lateness=MINUTE, key_groups=2)
    assert not windowed.in_order
    arrive(0, 1, 2)
    query = windowed.run(
        {"results": found},
        aggregate=["sum(v) AS n"],
        checkpoint=str(tmp_path / "cp"),
        trigger={"processingTime": "200 milliseconds"},
    )
    assert query is not None

    def firings() -> list[tuple[Any, ...]]:
        """Those of the first minute; the element that ends it begins another."""
        return [(row["firing"], row["kind"], row["n"]) for row in found.rows if row["window_start"] == 0]

    try:
        until(lambda: len(firings()) == 1, query)
        arrive(1, 60)
        until(lambda: len(firings()) == 2, query)
        arrive(2, 3, 4, 5, 6, 7)
        until(lambda: len(firings()) == 3, query)
    finally:
        query.stop()
    assert firings() == [(1, "early", 2), (2, "on_time", 2), (3, "late", 7)]

    # The first came with a micro-batch without data, and with the first that began when it was due.
    progress = {one.batchId: one for one in query.recentProgress}
    began = {batch: datetime.fromisoformat(one.timestamp) for batch, one in progress.items()}
    took = next(batch for batch, one in progress.items() if one.numInputRows == 2)
    gave = next(batch for batch, rows in found.batches.items() if rows)
    assert progress[gave].numInputRows == 0
    assert began[gave - 1] <= began[took + 1] + SECOND
    counted = [one.observedMetrics["asterism"] for one in progress.values()]
    assert progress[gave].observedMetrics["asterism"]["early_firings"] == 1
    assert sum(row["on_time_firings"] for row in counted) == 1
