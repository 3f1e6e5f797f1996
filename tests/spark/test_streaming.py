"""The same pattern on the same events gives the same matches: in batch, in any micro-batches, across restarts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from asterism import CEP, KeyedStream, Pattern
from asterism.errors import LimitExceededError, StateError, StreamDefinitionError
from asterism.spark.host.execution import RunOptions, Sink
from asterism.spark.host.versions import PASSES_START
from tests.kit import until
from tests.spark.streams import (
    ABSENCE,
    FUNNEL,
    Collect,
    batch_matches,
    events,
    ids,
    stream_of,
    write_files,
)

pytestmark = pytest.mark.spark
FEW: dict[str, Any] = {"key_groups": 4}
"""A key group costs some milliseconds in each micro-batch."""
END = 3 if PASSES_START else 2
"""The micro-batch after two with data that ends the input; Spark 4.1 has none without data before it."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[DataStreamWriter]:
    """The queries that were started."""
    found: list[DataStreamWriter] = []
    start = DataStreamWriter.start

    def noted(self: DataStreamWriter, *args: Any, **options: Any) -> StreamingQuery:
        found.append(self)
        return start(self, *args, **options)

    monkeypatch.setattr(DataStreamWriter, "start", noted)
    return found


def test_a_run_that_failed_anywhere_can_be_repeated(
    spark: SparkSession, tmp_path: Path, started: list[DataStreamWriter]
) -> None:
    """Here where the input ends. The query that reads the data ends its input, so that each run is one query."""
    check_repeated_run(spark, tmp_path, END)
    assert len(started) == (2 if PASSES_START else 3)
    assert all("match_id" in writer._df.columns for writer in started)  # the only sink needs no plan of its own


def check_repeated_run(spark: SparkSession, tmp_path: Path, failing: int) -> None:
    table = events(600)
    write_files(table, tmp_path / "in", [300])
    found = Collect()
    failing = min(failing, END)

    def fails(df: DataFrame, batch_id: int) -> None:
        if batch_id == failing:
            raise OSError("the sink failed")
        found(df, batch_id)

    def run(sink: Sink) -> None:
        CEP.pattern(stream_of(spark, tmp_path / "in"), ABSENCE, **FEW).run(
            {"matches": sink}, checkpoint=str(tmp_path / "cp")
        )

    with pytest.raises(StreamingQueryException, match="the sink failed"):
        run(fails)
    run(found)
    assert ids(found.rows) == batch_matches(spark, table, ABSENCE)


def nothing(df: DataFrame, batch_id: int) -> None: ...


@pytest.mark.parametrize(
    ("drain", "trigger", "of_stream", "ends"),
    [
        (None, None, False, True),
        (False, None, True, False),
        (None, {"availableNow": True}, False, False),
        (None, {"availableNow": True}, True, True),
        (True, {"once": True}, False, True),
        (False, {"processingTime": "1 second"}, True, False),
        (True, {"processingTime": "1 second"}, False, None),
        (None, {"processingTime": "1 second"}, True, None),
        (True, {"continuous": "1 second"}, False, None),
    ],
)
def test_which_queries_end_their_input(
    drain: bool | None, trigger: dict[str, Any] | None, of_stream: bool, ends: bool | None
) -> None:
    def options() -> RunOptions:
        return RunOptions.checked(
            {"matches": nothing}, "cp", drain, trigger, None, with_trigger=of_stream, key_groups=None
        )

    if ends is not None:
        assert options().drain == ends
    else:
        with pytest.raises(StreamDefinitionError, match="cannot end its input, because it does not end"):
            options()


def test_errors_are_raised_by_their_class(spark: SparkSession, tmp_path: Path) -> None:
    """By ``run``, by its query, and by the DataFrames of results."""
    table = events(20)
    write_files(table, tmp_path / "in", [])
    pattern = Pattern.begin("a").followed_by("b").where("price < 0")
    stream = CEP.pattern(stream_of(spark, tmp_path / "in", key="kind"), pattern, key_groups=1, max_partial_matches=1)
    found = CEP.pattern(
        KeyedStream(spark.createDataFrame(table), "kind", "ts"), pattern, key_groups=1, max_partial_matches=1
    )
    places: list[Callable[[], object]] = [
        lambda: stream.run({"matches": Collect()}, checkpoint=str(tmp_path / "cp")),
        lambda: stream.run(
            {"matches": Collect()}, checkpoint=str(tmp_path / "cp"), trigger={"availableNow": True}
        ).awaitTermination(),  # type: ignore[union-attr] # with a trigger, there is a query
        found.matches.collect,
        found.select("a.id AS id").toArrow,
        lambda: found.run({"matches": Collect()}),
    ]
    for number, place in enumerate(places):
        with pytest.raises(LimitExceededError, match="partial matches") as caught:
            place()
        assert isinstance(caught.value.__cause__, PySparkException), number
    with pytest.raises(PySparkException):
        found.matches.where("kind = 'view'").collect()


def test_a_checkpoint_of_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_files(events(150), tmp_path / "in", [])
    stream = stream_of(spark, tmp_path / "in")

    def run(pattern: Pattern, **options: Any) -> None:
        CEP.pattern(stream, pattern, **options).run(
            {"matches": Collect()}, checkpoint=str(tmp_path / "cp"), drain=False
        )

    run(FUNNEL)
    with pytest.raises(StateError, match="created with 8 key groups, but this query has 64"):
        run(FUNNEL, key_groups=64)
    with pytest.raises(StateError, match="the checkpoint cannot be continued: the pattern changed"):
        run(ABSENCE)


def test_one_shuffle_and_the_filter_before_it(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_files(events(10), tmp_path / "in", [])
    CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, **FEW).matches.explain()
    plan = capfd.readouterr().out
    assert plan.count("Exchange ") == 1
    assert plan.count("hashpartitioning(key_group") == 1
    filters = plan.index("kind") if "kind" in plan else -1
    assert filters > plan.index("Exchange ")  # plans read upwards
    assert plan.index("EventTimeWatermark") > plan.index("Exchange ")
    assert "ArrowEvalPython" not in plan


def test_processing_time_deadlines_fire_while_no_data_flows(spark: SparkSession, tmp_path: Path) -> None:
    pattern = (
        Pattern.begin("a")
        .where("kind = 'view'")
        .followed_by("b")
        .where("kind = 'no such'")
        .within(timedelta(seconds=2))
    )
    table = events(20)
    write_files(table, tmp_path / "in", [])
    found = Collect()
    stream = stream_of(spark, tmp_path / "in", time=None, max_out_of_orderness=timedelta(0))
    query = CEP.pattern(stream, pattern, **FEW).run(
        {"timed_out": found}, checkpoint=str(tmp_path / "cp"), trigger={"processingTime": "500 milliseconds"}
    )
    assert query is not None
    until(lambda: found.rows, query)
    query.stop()
    assert len(found.rows) == sum(kind == "view" for kind in table.column("kind").to_pylist())


def test_a_stream_needs_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    write_files(events(10), tmp_path / "in", [])
    with pytest.raises(StreamDefinitionError, match="a stream needs a checkpoint location"):
        CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, **FEW).run({"matches": Collect()})
