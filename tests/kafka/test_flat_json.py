"""Flat JSON objects, which Arrow parses: the events and dead letters are those of Spark's ``from_json``."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import sources
from asterism.columns.json_objects import INSTANT, json_objects
from asterism.sources import kafka_events
from tests.kafka.test_dead_letters import GOOD, REASONS, stored
from tests.reference.json_values import VALUES

SCHEMA = "ts TIMESTAMP, user STRING, n BIGINT, m INT, x DOUBLE, b BOOLEAN"


def random_values() -> list[bytes | None]:
    values: list[bytes | None] = []

    @given(st.lists(VALUES, min_size=10, max_size=40))
    def collect(drawn: list[bytes | None]) -> None:
        values.extend(drawn)

    collect()
    return values


def rows_of(records: DataFrame) -> list[str]:
    everything = kafka_events(records, SCHEMA, time="ts").all
    # Python has no times before the year 1, and NaN is not equal to itself.
    return [str(row) for row in everything.withColumn("ts", F.unix_micros("ts")).orderBy("offset").collect()]


def are_certain(*values: bytes | None) -> list[bool]:
    fields = [
        ("ts", INSTANT),
        ("user", pa.string()),
        ("n", pa.int64()),
        ("m", pa.int32()),
        ("x", pa.float64()),
        ("b", pa.bool_()),
    ]
    return json_objects(pa.array(values, pa.binary()), pa.schema(fields)).is_valid().to_pylist()  # type: ignore[no-any-return]


def test_events_and_dead_letters_of_random_values(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # One value that is not certain leaves its neighbours to Spark, so they are together.
    values = sorted([GOOD, *REASONS, *random_values()], key=lambda value: are_certain(value)[0])
    assert sum(are_certain(*values)) > len(values) / 8
    records = stored(spark, *values)
    with_arrow = rows_of(records)
    monkeypatch.setattr(sources, "_flat", lambda kind: None)
    different = [
        (value, *rows) for value, *rows in zip(values, with_arrow, rows_of(records), strict=True) if rows[0] != rows[1]
    ]
    assert different == []


def test_each_value_is_parsed_once(spark: SparkSession) -> None:
    events = kafka_events(stored(spark, GOOD), SCHEMA, time="ts").events.where("user = 'ann' OR n > 1")
    plan = events._jdf.queryExecution().optimizedPlan().toString()
    assert (plan.count("parse(value"), plan.count("from_json(StructField(ts")) == (1, 1)
    assert events.count() == 1
