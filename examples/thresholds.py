"""Alarms whose thresholds are changed while the query runs.

A query monitors the temperatures of two ovens. Each file that is added to a control folder changes a threshold, for all ovens
at once, without a restart. Thresholds survive a restart because they are state.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from asterism import (
    BroadcastInput,
    BroadcastMapState,
    BroadcastStream,
    Context,
    Element,
    Input,
    KeyedStream,
    Output,
    StreamOperator,
    ValueState,
    connect,
)

READING = "oven STRING, time TIMESTAMP, celsius DOUBLE"
THRESHOLD = "name STRING, celsius DOUBLE"


class Alarms(StreamOperator):
    """Reports when an oven becomes too hot, and when it is back to normal."""

    readings = Input(READING)
    control = BroadcastInput(THRESHOLD)
    threshold = BroadcastMapState("STRING", "DOUBLE")
    alarmed = ValueState("BOOLEAN")
    alarms = Output("oven STRING, time TIMESTAMP, celsius DOUBLE, threshold DOUBLE, what STRING")

    @control.process_element
    def change(self, change: Element, ctx: Context) -> None:
        self.threshold.put(change.name, change.celsius)

    @readings.process_element
    def read(self, reading: Element, ctx: Context) -> None:
        threshold = self.threshold.get("too hot", 250.0)
        if (reading.celsius > threshold) == bool(self.alarmed.value()):
            return
        self.alarmed.update(reading.celsius > threshold)
        what = "too hot" if self.alarmed.value() else "well again"
        self.alarms.collect(reading | {"threshold": threshold, "what": what})


# ------------------------------------------------------------------ the running query


@dataclass
class Plant:
    """The folders that the query reads, and its alarms."""

    folder: Path
    files: int = 0

    def __post_init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        for name in ("readings", "control"):
            (self.folder / name).mkdir()

    def start(self, spark: SparkSession) -> StreamingQuery:
        def gather(rows: DataFrame, batch_id: int) -> None:
            self.found += rows.toArrow().to_pylist()

        # Thresholds have no event time, so they take effect when they arrive.
        alarms = connect(
            Alarms(),
            readings=KeyedStream(
                spark.readStream.schema(READING).json(str(self.folder / "readings")), key="oven", time="time"
            ),
            control=BroadcastStream(spark.readStream.schema(THRESHOLD).json(str(self.folder / "control"))),
            key_groups=2,
        )
        query = alarms.run(
            {"alarms": gather},
            checkpoint=str(self.folder / "checkpoint"),
            trigger={"processingTime": "100 milliseconds"},
        )
        assert query is not None
        return query

    def arrive(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """Write a file with rows, then move it so that Spark never reads a partial file."""
        self.files += 1
        file = self.folder / f"{self.files}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        file.replace(self.folder / name / file.name)


NOON = datetime(2025, 3, 3, 12, tzinfo=UTC)
TEMPERATURES = {"east": [190, 205, 235, 240, 245, 240, 238, 225], "west": [180, 255, 245, 240, 240, 215, 205, 200]}


def readings(minutes: range) -> list[dict[str, Any]]:
    return [
        {"oven": oven, "time": (NOON + timedelta(minutes=minute)).isoformat(), "celsius": celsius[minute]}
        for minute in minutes
        for oven, celsius in TEMPERATURES.items()
    ]


def watch(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    """Eight minutes of readings; the threshold is lowered after four of them.

    A reading waits until the watermark has passed it, so the reading of 12:03 is compared with the new threshold.
    """
    plant = Plant(folder)
    query = plant.start(spark)
    try:
        plant.arrive("readings", readings(range(4)))
        query.processAllAvailable()
        plant.arrive("control", [{"name": "too hot", "celsius": 230}])
        query.processAllAvailable()
        plant.arrive("readings", readings(range(4, 8)))
        query.processAllAvailable()
    finally:
        query.stop()
    return sorted(plant.found, key=lambda alarm: (alarm["time"], alarm["oven"]))


# ------------------------------------------------------------------ the program


def show(console: Console, alarms: Iterable[dict[str, Any]]) -> None:
    table = Table("Time", "Oven", "Temperature", "Threshold", "")
    for alarm in alarms:
        degrees = [f"{alarm[name]:.0f} °C" for name in ("celsius", "threshold")]
        table.add_row(f"{alarm['time']:%H:%M}", alarm["oven"], *degrees, alarm["what"])
    console.print(table)


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("thresholds")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        alarms = watch(spark, Path(folder))
    spark.stop()
    show(Console(), alarms)


if __name__ == "__main__":
    main()
