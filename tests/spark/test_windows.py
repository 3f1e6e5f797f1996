"""Windows with triggers on Spark give what the operator gives: in batch, in any micro-batches, across restarts."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import asterism
from asterism import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    KeyedStream,
    SessionWindows,
    SlidingWindows,
    TimeSpan,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingWindows,
    WindowedStream,
    window,
)
from asterism.testing import OperatorHarness
from asterism.windows.operator import WindowOperator
from asterism.windows.plan import FIRINGS
from tests.reference.windows import END
from tests.spark.streams import SCHEMA, Collect, events, random_cuts, stream_of, write_files
from tests.windows.driver import SCHEMA as ELEMENTS
from tests.windows.driver import operator_of, summed, table_of
from tests.windows.transcripts import Case, cases, firing_text, late_text

pytestmark = pytest.mark.spark
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
AT_END = EventTimeTrigger.after_end_of_window()
MEASURES = ["sum(price) AS total", "count(*) AS n", "first(id) AS first", "last(id) AS last"]


def texts(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as comparable text."""
    return sorted(
        str({name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()})
        for row in rows
    )


# ---------------------------------------------------------------------- streams, tables, the operator


def prices(rows: pa.Table, span: TimeSpan) -> dict[str, Any]:
    assert span.start is not None
    assert span.end is not None
    return {"ids": rows.column("id").to_pylist(), "minutes": (span.end - span.start) / MINUTE}


EARLY = "early results and the one at the end"
POLICIES: dict[str, dict[str, Any]] = {
    EARLY: {
        "windows": TumblingWindows.of(MINUTE),
        "trigger": AT_END.with_early_trigger(
            asterism.Any(EventTimeTrigger.after_first_element(10 * SECOND), CountTrigger.at_least(3))
        ),
        "aggregate": MEASURES,
    },
    "sessions, each firing with what is new": {
        "windows": SessionWindows.with_gap(12 * SECOND),
        "trigger": AT_END.with_early_trigger(CountTrigger.at_least(2)).discarding(),
        "aggregate": MEASURES,
        "allowed_lateness": MINUTE,
    },
    "one key, a function of all elements": {
        "windows": SlidingWindows.of(2 * MINUTE, MINUTE),
        "trigger": AT_END.with_early_trigger(ContinuousEventTimeTrigger.of(MINUTE)),
        "evictor": Evictor.count(50),
        "keys": (),
        "process": prices,
        "schema": "ids ARRAY<BIGINT>, minutes DOUBLE",
    },
}


def test_any_micro_batches_give_what_a_batch_run_and_the_operator_give(spark: SparkSession, tmp_path: Path) -> None:
    check_policy(spark, tmp_path, POLICIES[EARLY])


def check_policy(spark: SparkSession, tmp_path: Path, policy: dict[str, Any]) -> None:
    table = events(1200)
    keys = policy.get("keys", ("user",))
    how = {name: policy[name] for name in ("trigger", "allowed_lateness", "evictor") if name in policy}
    computed = {name: policy[name] for name in ("aggregate", "process", "schema") if name in policy}

    names = {"aggregate": "measures", "process": "function", "schema": "output", "allowed_lateness": "lateness"}
    pure = {names.get(name, name): value for name, value in (how | computed).items()}
    operator = WindowOperator(policy["windows"], SCHEMA, keys=keys, time="ts", in_order=True, **pure)
    expected = texts(OperatorHarness(operator, keys=keys).feed(table).end().rows(FIRINGS))
    assert len(expected) > 10

    shuffled = table.take(pa.array(random.Random(1).sample(range(1200), 1200)))
    bounded = KeyedStream(spark.createDataFrame(shuffled), key=keys, time="ts")
    found = Collect()
    window(bounded, policy["windows"], **how).run({"results": found}, **computed)
    assert texts(found.rows) == expected

    write_files(table, tmp_path / "in", random_cuts(1200, 3, seed=5))
    found = Collect()
    streamed = window(stream_of(spark, tmp_path / "in", key=keys), policy["windows"], key_groups=4, pages=2, **how)
    streamed.run({"results": found}, checkpoint=str(tmp_path / "cp"), **computed)
    assert texts(found.rows) == expected
    state = spark.read.format("statestore").option("path", str(tmp_path / "cp")).option("stateVarName", "header")
    assert state.load().count() == 0


# ---------------------------------------------------------------------- transcripts

DISORDER = 10**9
"""In milliseconds: elements alone do not move the watermark. A mark, this much later, does."""
MARK = "~"


def can_run(case: Case) -> bool:
    """Not with a clock, which is Spark's; a mark must have a window of its own."""
    uses_processing_time = operator_of(case).processing_time or any(
        step.action == "processing_time" for step in case.steps
    )
    return not uses_processing_time and (case.keyed or not isinstance(case.window, GlobalWindows))


def pieces_of(case: Case, rng: random.Random) -> list[pa.Table]:
    """The steps, cut anywhere. A watermark holds for what comes in the next micro-batch."""
    pieces: list[pa.Table] = []
    waiting = ELEMENTS.empty_table()
    for step in case.steps:
        for element in step.elements:
            waiting = pa.concat_tables([waiting, table_of((element,))])
            if rng.random() < 0.3:
                pieces.append(waiting)
                waiting = ELEMENTS.empty_table()
        if step.action == "watermark":
            mark = {"k": MARK, "t": step.time + DISORDER + 1, "v": 0, "gap": 1.0}
            pieces.append(pa.concat_tables([waiting, pa.Table.from_pylist([mark], ELEMENTS)]))
            waiting = ELEMENTS.empty_table()
    return [*pieces, waiting] if waiting.num_rows else pieces


def lines_of(case: Case, firings: list[dict[str, Any]], late: list[dict[str, Any]]) -> list[str]:
    lines = []
    for row in firings:
        start, end = row["window_start"], row["window_end"]
        if row.get("k") == MARK or (start is not None and start > DISORDER // 2):
            continue
        values = [row["total"], row["n"], row["newest"]]
        span = (0, END) if end is None else (start, end)
        lines.append(firing_text(row.get("k", "*"), *span, row["firing"], row["kind"], row["is_last"], values))
    lines += [late_text(row["k"] if case.keyed else "*", row["v"], row["t"]) for row in late]
    return sorted(lines)


RUNNABLE = {case.name: case for case in cases() if can_run(case)}
SAMPLE = "a late element that reaches a living session is not late"


def test_what_a_transcript_says_with_a_restart_in_the_middle(spark: SparkSession, tmp_path: Path) -> None:
    check_transcript(spark, tmp_path, SAMPLE)


def check_transcript(spark: SparkSession, tmp_path: Path, name: str) -> None:
    case = RUNNABLE[name]
    rng = random.Random(name)
    pieces = pieces_of(case, rng)
    half = rng.randrange(len(pieces))
    found, late = Collect(), Collect()

    def go_on(first: int, more: list[pa.Table], *, drain: bool) -> None:
        if more:
            cuts = [sum(piece.num_rows for piece in more[:n]) for n in range(1, len(more))]
            write_files(pa.concat_tables(more), tmp_path / "in", cuts, first)
        schema = spark.createDataFrame(table_of(())).schema
        stream = KeyedStream(
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in")),
            key="k" if case.keyed else (),
            time="t",
            max_out_of_orderness=timedelta(milliseconds=DISORDER),
        )
        windowed = window(
            stream, case.window, trigger=case.trigger, allowed_lateness=timedelta(milliseconds=case.lateness),
            evictor=case.evict, in_order=case.in_order, key_groups=2, closing=case.closing, on_time=case.on_time,
        )  # fmt: skip
        windowed.run(
            {"results": found, "late": late},
            aggregate=["sum(v) AS total", "count(*) AS n", "last(v) AS newest"],
            checkpoint=str(tmp_path / "cp"),
            drain=drain,
        )

    (tmp_path / "in").mkdir()
    if half:
        go_on(0, pieces[:half], drain=False)
    go_on(half, pieces[half:], drain=case.steps[-1].action == "end")
    expected = [line for step in case.steps for line in step.expected if not line.startswith("unfired")]
    assert lines_of(case, found.rows, late.rows) == sorted(
        re.sub(" session [^:]*", "", summed(line)) for line in expected
    )


# ---------------------------------------------------------------------- the clock


# ---------------------------------------------------------------------- batch


def of_table(spark: SparkSession, table: pa.Table, **options: Any) -> WindowedStream:
    stream = KeyedStream(spark.createDataFrame(table), key="user", time="ts")
    return window(stream, **{"windows": TumblingWindows.of(HOUR), **options})


def older(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return max(first, second, key=lambda row: row["price"])


def kinds(rows: pa.Table, span: TimeSpan) -> Any:
    return rows.group_by("kind").aggregate([("price", "sum")]).rename_columns(["what", "total"]).to_pandas()


def test_what_is_computed_and_where_elements_without_a_time_go(spark: SparkSession) -> None:
    table = events(300, users=3)
    windowed = of_table(spark, table.drop_columns(["kind"]))
    highest = {row["user"]: row["price"] for row in windowed.reduce(older).toArrow().to_pylist()}
    grouped = table.group_by("user").aggregate([("price", "max")]).to_pylist()
    assert highest == {row["user"]: row["price_max"] for row in grouped}

    found = of_table(spark, table).process(kinds, "what STRING, total DOUBLE").toArrow()
    wanted = table.group_by(["user", "kind"]).aggregate([("price", "sum")]).rename_columns(["user", "what", "total"])
    assert texts(found.select(["user", "what", "total"]).to_pylist()) == texts(wanted.to_pylist())

    timeless = table.slice(0, 4).set_column(2, SCHEMA.field("ts"), pa.nulls(4, SCHEMA.field("ts").type))
    late = of_table(spark, pa.concat_tables([table, timeless])).late
    assert sorted(row.id for row in late.collect()) == sorted(timeless.column("id").to_pylist())


class EveryThird(Trigger):
    def on_element(self, element: Mapping[str, Any], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return TriggerResult.FIRE if ctx.state["n"] % 3 == 0 else TriggerResult.CONTINUE


def test_a_trigger_of_ones_own_travels(spark: SparkSession) -> None:
    table = events(300, users=5)
    own, built_in = (
        of_table(spark, table, trigger=trigger).aggregate(*MEASURES).toArrow().to_pylist()
        for trigger in (EveryThird(), CountTrigger.at_least(3))
    )
    assert len(own) > 80
    assert texts(own) == texts(built_in)


def test_windows_are_no_data_frame_yet(spark: SparkSession) -> None:
    windowed = of_table(spark, events(1))
    for name in ("collect", "count", "show", "agg"):
        with pytest.raises(AttributeError, match=rf"aggregate\(.*\)\.{name}\(\.\.\.\)"):
            getattr(windowed, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = windowed.nothing


def test_windows_of_nothing(spark: SparkSession) -> None:
    assert of_table(spark, SCHEMA.empty_table()).aggregate("count(*) AS n").count() == 0
