"""The state of queries, read from their checkpoints: what is open after known events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    KeyedStream,
    Pattern,
    StateReader,
    read_state,
)
from asterism.columns.schemas import schema_of
from asterism.errors import StateError
from tests.spark.streams import write_file

pytestmark = pytest.mark.spark

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EVENTS = "ts TIMESTAMP, user STRING, kind STRING, price DOUBLE"
ROWS = [  # minute, user, kind, price
    (0, "ann", "cart", 1.0),
    (1, "bob", "cart", 2.0),
    (2, "ann", "view", 3.0),
    (3, "ann", "cart", 4.0),
    (4, "bob", "buy", 5.0),
    (9, "eve", "cart", 6.0),  # waits for the watermark, which is at minute 7
]
UNPAID = Pattern.begin("cart").where("kind = 'cart'").followed_by("buy").where("kind = 'buy'").within(10 * MINUTE)
Sinks = dict[str, Callable[[DataFrame, int], None]]


def at(minute: float) -> datetime:
    return NOON + minute * MINUTE


def nothing(*outputs: str) -> Sinks:
    return {output: lambda df, batch_id: df.write.mode("overwrite").format("noop").save() for output in outputs}


@dataclass
class Place:
    """A folder with the events, and a query over them."""

    spark: SparkSession
    folder: Path

    def read(self, source: str, schema: str, rows: list[tuple[Any, ...]]) -> DataFrame:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema_of(schema), strict=True)]
        write_file(pa.table(arrays, schema=schema_of(schema)), self.folder / source, 0)
        return self.spark.readStream.schema(schema).parquet(str(self.folder / source))

    @property
    def events(self) -> KeyedStream:
        rows = [(at(minute), *rest) for minute, *rest in ROWS]
        return KeyedStream(self.read("events", EVENTS, rows), "user", "ts", max_out_of_orderness=2 * MINUTE)

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def state(self, operator: Any = None) -> StateReader:
        return read_state(self.spark, self.checkpoint, operator)

    def run(self, stream: Any, *outputs: str, **how: Any) -> StateReader:
        stream.run(nothing(*outputs), checkpoint=self.checkpoint, drain=False, **how)
        return self.state()


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def rows(df: DataFrame) -> list[dict[str, Any]]:
    """In the order of their texts."""
    return sorted(df.toArrow().to_pylist(maps_as_pydicts="lossy"), key=repr)


def test_a_pattern(place: Place) -> None:
    state = place.run(CEP.pattern(place.events, UNPAID, key_groups=3), "matches")
    assert (str(state.kind), state.inputs) == ("pattern", ["events"])
    found = rows(state.partial_matches())
    common = {"rule": None, "version": None, "stage": "cart", "waits_for": "buy", "events": 1}
    assert found == [
        {"key": {"user": "ann"}, **common, "since": at(minute), "deadline": at(minute + 10)} for minute in (0, 3)
    ]
    [first] = [row for row in rows(state.partial_matches(events=True)) if row["since"] == at(0)]
    event = {"ts": at(0), "user": "ann", "kind": "cart", "price": 1.0}
    assert first["accepted"] == [{"stage": "cart", "time": at(0), "event": event}]
    [waiting] = rows(state.waiting_events())
    assert (waiting["key"], waiting["time"]) == ({"user": "eve"}, at(9))
    assert rows(state.heaviest_keys()) == [{"key": {"user": "ann"}, "partial_matches": 2, "events": 2, "since": at(0)}]
    assert [row["deadline"] for row in state.deadlines(1).toArrow().to_pylist()] == [at(10)]
    groups = rows(state.key_groups())
    assert [row["key_group"] for row in groups] == [0, 1, 2]
    assert {row["watermark"] for row in groups} == {at(7) - timedelta(milliseconds=1)}
    assert min(row["next_event_time"] for row in groups if row["next_event_time"]) == at(10)
    with pytest.raises(StateError, match="the state of a pattern has no windows"):
        state.windows()


# ---------------------------------------------------------------------- the command


@pytest.mark.parametrize("letter", [" ", "%", "#", "?"])
def test_locations_in_which_spark_cannot_read_state(spark: SparkSession, letter: str) -> None:
    with pytest.raises(StateError, match="cannot read state in a location with the character") as caught:
        read_state(spark, f"/data/my{letter}checkpoint")
    assert "symbolic link" in str(caught.value.hint)
