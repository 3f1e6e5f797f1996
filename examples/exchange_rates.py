"""Payments in euros, each at the rate that was in force when it was made.

The rates are a slowly changing table: a separate stream that is broadcast to every task. They arrive after payments that need
them. Even so, every payment is converted at the rate of its own time, not at the latest rate known when it arrives.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
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

PAYMENT = "id INT, time TIMESTAMP, account STRING, currency STRING, amount DOUBLE"
RATE = "time TIMESTAMP, currency STRING, euros DOUBLE"


class ToEuros(StreamOperator):
    """Converts payments and sums them for each account."""

    payments = Input(PAYMENT)
    rates = BroadcastInput(RATE)
    rate = BroadcastMapState("STRING", "DOUBLE")
    total = ValueState("DOUBLE")
    converted = Output(f"{PAYMENT}, rate DOUBLE, euros DOUBLE, total DOUBLE")
    unknown = Output("id INT, account STRING, currency STRING")

    @rates.process_element
    def new_rate(self, rate: Element, ctx: Context) -> None:
        self.rate.put(rate.currency, rate.euros)

    @payments.process_element
    def pay(self, payment: Element, ctx: Context) -> None:
        rate = self.rate.get(payment.currency)
        if rate is None:
            self.unknown.collect(id=payment.id, account=payment.account, currency=payment.currency)
            return
        euros = round(payment.amount * rate, 2)
        self.total.update((self.total.value() or 0.0) + euros)
        self.converted.collect(payment | {"rate": rate, "euros": euros, "total": self.total.value()})


# ------------------------------------------------------------------ the streams

# Files in order of arrival. When Ann pays in pounds at 10:40, the rate of 10:30 has not arrived yet.
PAYMENTS = (
    [
        (1, "09:05", "ann", "USD", 100.0),
        (2, "09:40", "bob", "GBP", 20.0),
        (3, "10:05", "ann", "USD", 100.0),
        (4, "10:10", "bob", "CHF", 50.0),
    ],
    [
        (5, "10:29", "ann", "GBP", 10.0),
        (6, "10:40", "ann", "GBP", 10.0),
        (7, "10:45", "bob", "CHF", 50.0),
    ],
)
RATES = (
    [("09:00", "USD", 0.90), ("09:00", "GBP", 1.15)],
    [("10:00", "USD", 0.85)],
    [("10:30", "GBP", 1.20), ("10:42", "CHF", 1.05)],
)


def write_files(folder: Path) -> None:
    """Write the streams as JSON, with modification times from which Spark takes their order."""
    for name, files, columns in (("payments", PAYMENTS, PAYMENT), ("rates", RATES, RATE)):
        names = [column.split()[0] for column in columns.split(", ")]
        (folder / name).mkdir()
        for number, rows in enumerate(files):
            file = folder / name / f"{number}.json"
            lines = [dict(zip(names, row, strict=True)) for row in rows]
            file.write_text(
                "".join(json.dumps(line | {"time": f"2025-03-03T{line['time']}:00Z"}) + "\n" for line in lines)
            )
            os.utime(file, (number, number))


def convert(spark: SparkSession, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Run to the end of both streams, one file of each per micro-batch."""

    def read(name: str, columns: str) -> DataFrame:
        return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(folder / name))

    euros = connect(
        ToEuros(),
        payments=KeyedStream(read("payments", PAYMENT), key="account", time="time"),
        rates=BroadcastStream(read("rates", RATE), time="time"),
        key_groups=4,
    )
    found: dict[str, list[dict[str, Any]]] = {"converted": [], "unknown": []}

    def gather(output: str, rows: DataFrame, batch_id: int) -> None:
        found[output] += rows.toArrow().to_pylist()

    euros.run(
        {output: partial(gather, output) for output in found},
        checkpoint=str(folder / "checkpoint"),
    )
    return {output: sorted(rows, key=lambda row: row["id"]) for output, rows in found.items()}


# ------------------------------------------------------------------ the program


def show(console: Console, found: dict[str, list[dict[str, Any]]]) -> None:
    table = Table("Payment", "Account", "Amount", "Rate", "Euros", "Account's total")
    for row in found["converted"]:
        amount = f"{row['amount']:.2f} {row['currency']}"
        table.add_row(*_texts(row["id"], row["account"], amount, row["rate"], row["euros"], row["total"]))
    console.print(table)
    for row in found["unknown"]:
        console.print(f"Payment {row['id']}: no rate of {row['currency']} was in force")


def _texts(*values: Any) -> Sequence[str]:
    return [f"{value:.2f}" if isinstance(value, float) else str(value) for value in values]


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("exchange rates")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        found = convert(spark, Path(folder))
    spark.stop()
    show(Console(), found)


if __name__ == "__main__":
    main()
