"""The results of a multi-way join go into windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import KeyedStream, TumblingWindows, window
from tests.spark.streams import Collect, write_files
from tests.spark.test_multi_join import SECOND, in_order, joined, stream, tables

pytestmark = pytest.mark.spark


def test_results_go_into_windows_and_one_input_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    rows = tables()
    frames = {name: spark.createDataFrame(table) for name, table in rows.items()}

    def counted(frames: dict[str, DataFrame]) -> Any:
        left = KeyedStream(joined(frames).results, key="item", time="ts")
        return window(left, TumblingWindows.of(10 * SECOND), key_groups=2)

    aggregate = ["count(*) AS n", "sum(paid) AS paid"]
    expected = in_order(counted(frames).aggregate(*aggregate))
    for name in ("orders", "payments"):
        write_files(rows[name], tmp_path / name, [40, 60])
        frames[name] = stream(spark, tmp_path / name, rows[name])
    found, late = Collect(), Collect()
    counted(frames).run({"results": found, "late": late}, aggregate=aggregate, checkpoint=str(tmp_path / "cp"))
    assert late.rows == []
    assert sorted((tuple(row.values()) for row in found.rows), key=str) == expected
