"""Backtests on Spark: what is refused. What they find is compared with the other host in ``embedded/test_on_spark.py``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream
from asterism.errors import AsterismError
from tests.embedded.backtest_checks import EVENTS

pytestmark = pytest.mark.spark


def table(spark: SparkSession, events: list[Any] = EVENTS) -> DataFrame:
    rows = [(None if second is None else datetime.fromtimestamp(second, UTC), *rest) for second, *rest in events]
    return spark.createDataFrame(rows, "ts TIMESTAMP, user STRING, item BIGINT, kind STRING").coalesce(1)


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = KeyedStream(table(spark), time="ts")
    for arguments, message in (
        ({"rules": 5}, "these are not rules: 5"),
        ({"rules": [5]}, "this is not a rule: 5"),
        ({"rules": tmp_path / "none.json"}, "cannot be read"),
        ({"rules": [], "examples": 1001}, "examples must be between 0 and 1,000"),
        ({"rules": [], "against": b""}, "these are not rules"),
    ):
        with pytest.raises(AsterismError, match=message):
            CEP.backtest(stream, **arguments)
    (tmp_path / "events").mkdir()
    streaming = spark.readStream.schema("ts TIMESTAMP").json(str(tmp_path / "events"))
    with pytest.raises(AsterismError, match="a backtest needs a table"):
        CEP.backtest(KeyedStream(streaming, time="ts"), [])
