"""Counters of a query with one sink, and of windows."""

from __future__ import annotations

from collections import Counter as Counts
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from asterism import (
    CEP,
    CountTrigger,
    Evictor,
    Fold,
    Sequence,
    TimeSpan,
    Windows,
    window,
)
from tests.spark.streams import FUNNEL, Collect, batch, events, stream_of, write_files
from tests.spark.test_metrics import AVAILABLE, check_counters, observed

pytestmark = pytest.mark.spark


def test_counters_of_a_query_with_one_sink(spark: SparkSession, tmp_path: Path) -> None:
    check_counters(spark, tmp_path, ["all"])


class Minutes(Windows):
    """TumblingWindows of a minute, by hand."""

    def assign(self, times: Any) -> Any:
        start = times // 60_000_000 * 60_000_000
        return np.arange(len(times)), start, start + 60_000_000


class ViewsLeave(Evictor):
    def keeps(self, elements: pa.Table, window: TimeSpan) -> Any:
        return [kind != "view" for kind in elements["kind"].to_pylist()]


def test_windows_count_what_never_fired(spark: SparkSession, tmp_path: Path) -> None:
    """With windows, an evictor and a fold of one's own, which come to the workers, and a function after the fold."""
    table = events(400, users=3)
    write_files(table, tmp_path / "in", [200])
    found = Collect()
    fold = Fold("n INT", {"n": 0}, lambda total, element: {"n": total["n"] + 1})

    def run(drain: bool) -> StreamingQuery | None:
        minutes = window(
            stream_of(spark, tmp_path / "in"),
            Minutes(),
            trigger=Sequence(CountTrigger.at_least(3), CountTrigger.at_least(7)),
            evictor=ViewsLeave(),
            key_groups=2,
            drain=drain,
        )
        how: dict[str, Any] = {
            "fold": fold,
            "process": lambda rows, window: {"who": rows["user"][0].as_py(), "n": rows["n"][0].as_py()},
            "schema": "who STRING, n INT",
        }
        return minutes.run({"results": found}, checkpoint=str(tmp_path / "cp"), trigger=AVAILABLE, **how)

    counts = observed(run)
    times = table["ts"].cast(pa.int64()).to_pylist()
    sizes = Counts((user, time // 60_000_000) for user, time in zip(table["user"].to_pylist(), times, strict=True))
    assert counts["unfired_elements"] == sum((n - 3) % 7 if n >= 3 else n for n in sizes.values()) > 10
    assert len(found.rows) == sum((n - 3) // 7 + 1 for n in sizes.values() if n >= 3)
    assert all(row["who"] == row["user"] for row in found.rows)
    rest = {(row["user"], row["window_start"]): row["n"] for row in sorted(found.rows, key=lambda row: row["firing"])}
    assert 0 < sum(rest.values()) < sum(sizes.values())


def test_a_pattern_counts_what_comes_of_it(spark: SparkSession, tmp_path: Path) -> None:
    table = events(800)
    write_files(pa.concat_tables([table, table.slice(0, 3)]), tmp_path / "in", [400, 800])
    expected = batch(spark, table, FUNNEL)
    sinks = {"matches": Collect(), "timed_out": Collect(), "late": Collect()}

    def run(drain: bool) -> StreamingQuery | None:
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, key_groups=3, drain=drain)
        return stream.run(sinks, checkpoint=str(tmp_path / "cp"), trigger=AVAILABLE)

    counts = observed(run)
    assert counts["matches"] == expected.matches.count() > 0
    assert counts["timed_out"] == expected.timed_out.count() > 0
    assert counts["late_elements"] == len(sinks["late"].rows) == 3
