"""Sales per hour and shop: early results, the result at the end of the hour, and a correction for each late sale.

Spark would emit the result of an hour once, when it is final. Here the policy is one line: early results one minute of event
time after a new sale, the result on time, and a correction for every sale that is up to an hour late. Later sales go to a
separate output.
"""

from __future__ import annotations

import json
import os
import tempfile
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from asterism import EventTimeTrigger, KeyedStream, TumblingWindows, window

SALE = "shop STRING, time TIMESTAMP, amount DOUBLE"
POLICY = EventTimeTrigger.after_end_of_window().with_early_trigger(
    EventTimeTrigger.after_first_element(timedelta(minutes=1))
)

# Files in order of arrival: the till in Bern loses its connection at half past nine and reconnects an hour later.
SALES = (
    [("bern", "09:00:10", 10.0), ("ulm", "09:00:30", 5.0), ("bern", "09:00:50", 20.0)],
    [("bern", "09:05:00", 5.0), ("ulm", "09:20:00", 7.5), ("ulm", "09:20:40", 2.5)],
    [("ulm", "10:00:00", 4.0), ("ulm", "10:31:00", 6.0)],
    [("bern", "09:40:00", 40.0), ("bern", "10:20:00", 15.0)],
    [("ulm", "11:05:00", 1.0)],
    [("bern", "09:50:00", 99.0)],
)


def write_files(folder: Path) -> None:
    """Write the sales as JSON, with modification times from which Spark takes their order."""
    (folder / "sales").mkdir()
    for number, sales in enumerate(SALES):
        file = folder / "sales" / f"{number}.json"
        lines = [{"shop": shop, "time": f"2025-03-03T{time}Z", "amount": amount} for shop, time, amount in sales]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(file, (number, number))


def add_up(spark: SparkSession, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Run to the end of the stream, one file per micro-batch."""
    sales = spark.readStream.schema(SALE).option("maxFilesPerTrigger", 1).json(str(folder / "sales"))
    hours = window(
        KeyedStream(sales, key="shop", time="time"),
        TumblingWindows.of(timedelta(hours=1)),
        trigger=POLICY,
        allowed_lateness=timedelta(hours=1),
        key_groups=4,
    )
    found: dict[str, list[dict[str, Any]]] = {"results": [], "late": []}

    def gather(output: str, rows: DataFrame, batch_id: int) -> None:
        found[output] += rows.toArrow().to_pylist()

    hours.run(
        {output: partial(gather, output) for output in found},
        aggregate=["count(*) AS sales", "sum(amount) AS total"],
        checkpoint=str(folder / "checkpoint"),
    )
    found["results"].sort(key=lambda row: (row["shop"], row["window_start"], row["firing"]))
    return found


def show(console: Console, found: dict[str, list[dict[str, Any]]]) -> None:
    table = Table("Shop", "Hour", "Result", "", "Sales", "Total")
    for row in found["results"]:
        kind = row["kind"].replace("_", " ")
        hour = f"{row['window_start']:%H:%M}"
        table.add_row(row["shop"], hour, str(row["firing"]), kind, str(row["sales"]), f"{row['total']:.2f}")
    console.print(table)
    for row in found["late"]:
        console.print(f"Too late: {row['amount']:.2f} in {row['shop']} at {row['time']:%H:%M}")


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("early results")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        found = add_up(spark, Path(folder))
    spark.stop()
    show(Console(), found)


if __name__ == "__main__":
    main()
