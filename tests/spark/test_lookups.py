"""Tables that rules read by a key of the event, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import (
    Lookup,
    Pattern,
    PatternProcessor,
)
from tests.kit import until
from tests.spark.rules import INTERVAL, Watch, e

pytestmark = pytest.mark.spark

ABOVE = PatternProcessor("above", 1, Pattern.begin("a").where("kind = 'a' AND x > limits.max"))
TOTAL = PatternProcessor(
    "total", 1,
    Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND a.x + x > limits.max"),
    select=("LAST(b.limits.max) AS max",),
)  # fmt: skip
IN_SQL = PatternProcessor(
    "sql", 1, None, sql="MEASURES A.limits.max AS max PATTERN (A) DEFINE A AS kind = 'a' AND x > limits.max"
)


def found(query: Watch) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["processor_id"],
            row["start_time"].timestamp(),
            row["end_time"].timestamp(),
            dict(row["measures"] or {}).get("max"),
        )
        for row in query.sinks["matches"].rows
    )


class Limits:
    """A table in a file, and a query with rules that read it."""

    def __init__(self, spark: SparkSession, folder: Path, **limits: Any) -> None:
        self.path = folder / "limits.csv"
        self.write(**limits)
        lookup = Lookup(self.path, key="customer", on="user", schema="customer STRING, max DOUBLE", interval=INTERVAL)
        self.query = Watch(spark, folder, lookups={"limits": lookup})

    def write(self, **limits: Any) -> None:
        new = self.path.with_name("new limits")
        new.write_text("\n".join(["customer,max", *(f"{name},{value}" for name, value in limits.items()), ""]))
        new.replace(self.path)


def test_a_table_changes_while_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    limits = Limits(spark, tmp_path, ann=5, bob=50)
    query = limits.query
    query.rules(ABOVE, TOTAL, IN_SQL)
    with query.running():
        query.send(e(1, "a", x=6), e(2, "a", "bob", x=6), e(3, "a", "cy", x=100))
        limits.write(ann=50, bob=5)
        until(lambda: query.status.lookups["limits"].version == 2, query.query)
        query.settle().send(e(11, "a", x=6), e(12, "b", "bob", x=1), e(13, "a", "bob", x=6))
        limits.write(ann="much")
        until(lambda: query.status.lookups["limits"].error is not None, query.query)
        state = query.status.lookups["limits"]
        assert "limits.csv cannot be read" in (state.error or "")
        assert (state.version, state.rows) == (2, 2)
        query.settle().send(e(21, "a", "bob", x=7))
    assert found(query) == [
        ("above", 1, 1, None), ("above", 13, 13, None), ("above", 21, 21, None),
        ("sql", 1, 1, "5.0"), ("sql", 13, 13, "5.0"), ("sql", 21, 21, "5.0"),
        ("total", 2, 12, "5.0"),
    ]  # fmt: skip
