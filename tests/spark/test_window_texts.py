"""What a user reads when windows are described wrongly on Spark: the text of every error, when ``window`` is called, or what is
computed of them is said.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism import (
    All,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    GlobalWindows,
    KeyedStream,
    ProcessingTimeTrigger,
    SessionWindows,
    SlidingWindows,
    Trigger,
    TriggerResult,
    TumblingWindows,
    WindowedStream,
    window,
)
from tests.kit import Golden

HOUR = timedelta(hours=1)
HOURS = TumblingWindows.of(HOUR)
AT_END = EventTimeTrigger.after_end_of_window()


class NeverAgain(Trigger):
    def on_element(self, element: Any, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE


def nothing(*args: Any) -> None: ...


def provocations(spark: SparkSession) -> dict[str, Callable[[], object]]:
    df = spark.createDataFrame([], "who STRING, ts TIMESTAMP, price DOUBLE, kind STRING")
    rate = spark.readStream.format("rate").load().selectExpr("value AS who", "timestamp AS ts")
    stream = KeyedStream(df, "who", "ts")
    in_processing_time, flowing = KeyedStream(df, "who"), KeyedStream(rate, "who", "ts")

    def computed(what: Callable[[WindowedStream], object]) -> Callable[[], object]:
        return lambda: what(window(stream, HOURS))

    return {
        "not_a_keyed_stream": lambda: window(df, HOURS),  # type: ignore[arg-type]
        "order_by": lambda: window(KeyedStream(df, "who", "ts", order_by=["price"]), HOURS),
        "not_windows": lambda: window(stream, HOUR),  # type: ignore[arg-type]
        "key_groups": lambda: window(stream, HOURS, key_groups=0),
        "pages": lambda: window(flowing, HOURS, pages=1000),
        "negative_size": lambda: window(stream, TumblingWindows.of(-HOUR)),
        "gaps_between_windows": lambda: window(stream, SlidingWindows.of(HOUR, 2 * HOUR)),
        "global_without_trigger": lambda: window(stream, GlobalWindows()),
        "lateness_in_processing_time": lambda: window(in_processing_time, HOURS, allowed_lateness=HOUR),
        "negative_lateness": lambda: window(stream, HOURS, allowed_lateness=-HOUR),
        "event_time_trigger_in_processing_time": lambda: window(in_processing_time, HOURS, trigger=AT_END),
        "in_order_in_processing_time": lambda: window(in_processing_time, HOURS, in_order=True),
        "late_trigger_by_the_clock": lambda: window(
            stream,
            HOURS,
            trigger=ProcessingTimeTrigger.after_end_of_window().with_late_trigger(CountTrigger.at_least(1)),
        ),
        "all_of_nothing": lambda: window(stream, HOURS, trigger=All()),
        "at_least_none": lambda: window(stream, HOURS, trigger=CountTrigger.at_least(0)),
        "distance_of_texts": lambda: window(stream, HOURS, trigger=DeltaTrigger.of(1, "who")),
        "sessions_with_distances": lambda: window(
            stream, SessionWindows.with_gap(HOUR), trigger=DeltaTrigger.of(1, "price")
        ),
        "sessions_with_own_trigger": lambda: window(stream, SessionWindows.with_gap(HOUR), trigger=NeverAgain()),
        "gap_of_unknown_column": lambda: window(stream, SessionWindows.with_dynamic_gap("patience")),
        "not_an_evictor": lambda: window(stream, HOURS, evictor=3),  # type: ignore[arg-type]
        "key_is_called_like_a_result": lambda: window(KeyedStream(df, "kind", "ts"), HOURS),
        "no_measures": computed(lambda w: w.aggregate()),
        "measure_is_a_column": computed(lambda w: w.aggregate(F.count("*"))),  # type: ignore[arg-type]
        "measures_are_a_dict": computed(lambda w: w.aggregate({"n": "count(*)"})),  # type: ignore[arg-type]
        "key_groups_are_a_text": lambda: window(stream, HOURS, key_groups="4"),  # type: ignore[arg-type]
        "measure_of_unknown_column": computed(lambda w: w.aggregate("sum(amount) AS total")),
        "result_is_called_like_another": computed(lambda w: w.process(nothing, "kind STRING")),
        "reduce_is_no_function": computed(lambda w: w.reduce("sum")),  # type: ignore[arg-type]
        "output_unknown": computed(lambda w: w.run({"matches": nothing})),
        "nothing_is_computed": computed(lambda w: w.run({"results": nothing})),
        "computed_twice": computed(lambda w: w.run({"late": nothing}, aggregate=["count(*) AS n"], reduce=nothing)),
        "session_ids_of_hours": lambda: window(stream, HOURS, session_ids=True),
        "function_without_schema": computed(lambda w: w.run({"results": nothing}, process=nothing)),
        "no_checkpoint": lambda: window(flowing, HOURS).run({"late": nothing}),
        "does_not_end_by_itself": lambda: window(KeyedStream(rate, "who"), HOURS).run(
            {"late": nothing}, checkpoint="unused", drain=False
        ),
    }


@pytest.mark.spark
def test_error_texts_of_windows_on_spark(spark: SparkSession, golden: Golden) -> None:
    every = provocations(spark)
    for name, provocation in every.items():
        golden.error(name, provocation)
    assert golden.names() == set(every)
