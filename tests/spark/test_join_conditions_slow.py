"""Slow: test_join_conditions.py with the other types of joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import read_state
from asterism.errors import CheckpointMismatchError
from asterism.joins.types import STREAM_JOIN_TYPES
from asterism.spark.session.settings import settings
from tests.spark.streams import Collect, write_file, write_files
from tests.spark.test_join_conditions import (
    BEFORE,
    FAST,
    LEFT,
    RIGHT,
    check_tables,
    computed,
    condition,
    joins,
    of_session,
)
from tests.spark.test_stream_joins import ORDERS, PRICES, rows

pytestmark = pytest.mark.spark
__all__ = ["of_session"]


@pytest.mark.parametrize("how", [how for how in STREAM_JOIN_TYPES if how not in FAST])
def test_tables(spark: SparkSession, how: str) -> None:
    check_tables(spark, how)


def test_streams(spark: SparkSession, tmp_path: Path) -> None:
    """With a restart, late rows, and a key that is an expression; neither results nor late rows have computed columns."""
    tables = {"left": rows(ORDERS, 60, seed=2), "right": rows(PRICES, 60, seed=3)}
    frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
    expected = joins(*computed(frames["left"], frames["right"]), BEFORE, "left")["interval"].results
    sinks: dict[str, Any] = {name: Collect() for name in ("results", "late_left", "late_right")}

    def run(drain: bool) -> None:
        left, right = (
            spark.readStream.schema(frames[name].schema).parquet(str(tmp_path / name)) for name in ("left", "right")
        )
        join = joins(left, right, condition(LEFT | RIGHT), "left", key="substr(item, 1, 1) AS k", key_groups=2)
        join["interval"].run(sinks, checkpoint=str(tmp_path / "checkpoint"), drain=drain)

    for number, part in enumerate((slice(0, 40), slice(40, 60))):
        for name, table in tables.items():
            write_files(table.slice(part.start, part.stop - part.start), tmp_path / name, [], first=number)
        if number:
            late = table.slice(0, 1).set_column(3, PRICES.field("version"), [[-1]])
            write_file(late, tmp_path / "right", 2)
        if number:
            zone = settings(spark, {"spark.sql.session.timeZone": "Asia/Kolkata"})
            with zone, pytest.raises(CheckpointMismatchError):
                run(drain=False)
        run(drain=bool(number))
    assert read_state(spark, str(tmp_path / "checkpoint")).is_empty
    names = [*ORDERS.names, "k", "p_at", "p_price", "p_version"]
    found = sorted(str([row[name] for name in names if name != "k"]) for row in sinks["results"].rows)
    in_order = expected.select([name for name in names if name != "k"]).toArrow().to_pylist()
    assert found == sorted(str(list(row.values())) for row in in_order)
    assert list(sinks["results"].rows[0]) == names
    assert [row["version"] for row in sinks["late_right"].rows] == [-1]
    assert {*sinks["late_right"].rows[0]} == {*PRICES.names}
