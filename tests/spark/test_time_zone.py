"""The session's time zone belongs to a checkpoint where an expression asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from asterism import KeyedStream, Pattern
from asterism.errors import StateError
from asterism.expressions.types import TIME_ZONE
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.spark.host.column_types import zone_if_used
from asterism.streams.windows import window
from asterism.windows.assigners import TumblingWindows
from asterism.windows.operator import WindowOperator
from tests.spark.streams import Collect

pytestmark = pytest.mark.spark
SCHEMA = pa.schema(
    [("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int64()), ("d", pa.date32())],
    {TIME_ZONE: "Asia/Tokyo"},
)


def operator(condition: str, later: str) -> Any:
    pattern = Pattern.begin("a").where(condition).followed_by("b").where(later).within(timedelta(hours=1))

    def build(schema: pa.Schema) -> CepOperator:
        outputs = {"matches": OutputSpec(OutputKind.MATCHES, measures=("LAST(b.v) AS v",))}
        return CepOperator(pattern, schema, keys=["k"], time="t", outputs=outputs)

    return build


@pytest.mark.parametrize(
    ("condition", "later", "asks"),
    [
        ("v > 3", "v > LAST(a.v)", False),
        ("t > TIMESTAMP '2025-01-01 00:00:00Z'", "t > LAST(a.t)", False),
        ("k LIKE 'a%'", "d > DATE '2025-01-01'", False),
        ("hour(t) = 3", "v > 3", True),
        ("t > '2025-01-01'", "v > 3", True),
        ("t > TIMESTAMP '2025-01-01 00:00:00'", "v > 3", True),
        ("CAST(t AS DATE) > d", "v > 3", True),
        ("v > 3", "hour(t) > hour(LAST(a.t))", True),
        ("v > 3", "LAST(a.t) > TIMESTAMP '2025-01-01 00:00:00'", True),
    ],
)
def test_what_asks_for_the_zone(condition: str, later: str, asks: bool) -> None:
    assert zone_if_used(operator(condition, later), SCHEMA) == ("Asia/Tokyo" if asks else None)


@pytest.mark.parametrize(("measure", "asks"), [("sum(v) AS s", False), ("max(hour(t)) AS h", True)])
def test_what_asks_for_the_zone_in_windows(measure: str, asks: bool) -> None:
    def build(schema: pa.Schema) -> WindowOperator:
        return WindowOperator(TumblingWindows.of(timedelta(hours=1)), schema, keys=["k"], time="t", measures=[measure])

    assert (zone_if_used(build, SCHEMA) is not None) == asks


@pytest.fixture
def zones(spark: SparkSession) -> Iterator[Any]:
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_windows_in_another_zone(spark: SparkSession, tmp_path: Path, zones: Any) -> None:
    source = tmp_path / "in"
    spark.sql("SELECT 'x' AS k, TIMESTAMP '2025-01-01 03:00:00Z' AS t, 1L AS v").write.parquet(str(source))

    def run(measure: str) -> None:
        events = spark.readStream.schema("k STRING, t TIMESTAMP, v BIGINT").parquet(str(source))
        windows = window(KeyedStream(events, "k", "t"), TumblingWindows.of(timedelta(hours=1)), key_groups=2)
        checkpoint = str(tmp_path / measure.replace("(", "").replace(")", ""))
        windows.run({"results": Collect()}, aggregate=measure, checkpoint=checkpoint, drain=False)

    run("max(hour(t)) AS h")
    zones("Asia/Tokyo")
    with pytest.raises(StateError, match="created in the time zone UTC"):
        run("max(hour(t)) AS h")
