"""Orders that nobody paid or shipped in time: one operator with three inputs.

Orders, payments and shipments are separate streams, each with its own delay, keyed by the number of the order. Three days
after an order, the operator reports what is missing.
"""

from __future__ import annotations

import json
import tempfile
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from asterism import Context, Counter, Element, Input, KeyedStream, Output, StreamOperator, Timer, ValueState, connect

IN_TIME = timedelta(days=3)


class Journey(StreamOperator):
    """Reports what is missing three days after an order."""

    orders = Input("order_id INT, time TIMESTAMP, customer STRING")
    payments = Input("order_id INT, time TIMESTAMP")
    shipments = Input("order_id INT, time TIMESTAMP")

    customer = ValueState("STRING")
    paid = ValueState("TIMESTAMP")
    shipped = ValueState("TIMESTAMP")

    missing = Output("order_id INT, customer STRING, ordered TIMESTAMP, what STRING")
    strays = Output("order_id INT, what STRING")
    complete = Counter()

    @orders.process_element
    def order(self, order: Element, ctx: Context) -> None:
        self.customer.update(order.customer)
        ctx.register_event_time_timer("deadline", order.time + IN_TIME)

    @payments.process_element
    def pay(self, payment: Element, ctx: Context) -> None:
        if self.customer.value() is None:
            self.strays.collect(order_id=ctx.key, what="payment")
        else:
            self.paid.update(payment.time)

    @shipments.process_element
    def ship(self, shipment: Element, ctx: Context) -> None:
        if self.customer.value() is None:
            self.strays.collect(order_id=ctx.key, what="shipment")
        else:
            self.shipped.update(shipment.time)

    def on_event_time_timer(self, timer: Timer, ctx: Context) -> None:
        steps = {"payment": self.paid, "shipment": self.shipped}
        missing = [what for what, time in steps.items() if time.value() is None]
        if missing:
            self.missing.collect(
                order_id=ctx.key,
                customer=self.customer.value(),
                ordered=timer.time - IN_TIME,
                what=" and ".join(missing),
            )
        else:
            self.complete.inc()
        for state in (self.customer, self.paid, self.shipped):
            state.clear()


# ------------------------------------------------------------------ the streams

ORDERS = [
    (1, "03-03 09:00", "ann"),
    (2, "03-03 10:00", "bob"),
    (3, "03-03 11:00", "cid"),
    (4, "03-04 09:00", "dora"),
    (5, "03-05 09:00", "eve"),
    (6, "03-09 09:00", "ann"),
]
# Order 3 is paid too late, order 9 does not exist.
PAYMENTS = [
    (1, "03-03 09:30"),
    (2, "03-05 18:00"),
    (9, "03-06 08:00"),
    (3, "03-06 12:00"),
    (5, "03-06 13:00"),
    (6, "03-09 10:00"),
]
SHIPMENTS = [(1, "03-04 07:00"), (4, "03-04 12:00"), (5, "03-08 08:59"), (6, "03-09 18:00")]


def write_files(folder: Path) -> None:
    for name, rows in {"orders": ORDERS, "payments": PAYMENTS, "shipments": SHIPMENTS}.items():
        (folder / name).mkdir()
        for number in range(0, len(rows), 2):  # two per file
            lines = [
                dict(zip(("order_id", "time", "customer"), (row[0], f"2025-{row[1]}:00", *row[2:]), strict=False))
                for row in rows[number : number + 2]
            ]
            (folder / name / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))


def follow(spark: SparkSession, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what is missing, and the payments and shipments without an order."""

    def keyed(name: str) -> KeyedStream:
        columns = "order_id INT, time TIMESTAMP" + (", customer STRING" if name == "orders" else "")
        df = spark.readStream.schema(columns).json(str(folder / name))
        return KeyedStream(df, key="order_id", time="time", max_out_of_orderness=timedelta(hours=1))

    names = ("orders", "payments", "shipments")
    journey = connect(Journey(), {name: keyed(name) for name in names}, key_groups=4)
    found: dict[str, list[dict[str, Any]]] = {"missing": [], "strays": []}

    def gather(output: str, rows: DataFrame, batch_id: int) -> None:
        found[output] += rows.toArrow().to_pylist()

    # Not drained: order 6 has days left and stays in the checkpoint for the next run.
    journey.run(
        {output: partial(gather, output) for output in found},
        checkpoint=str(folder / "checkpoint"),
        drain=False,
    )
    return {output: sorted(rows, key=lambda row: row["order_id"]) for output, rows in found.items()}


# ------------------------------------------------------------------ the program


def show(console: Console, found: dict[str, list[dict[str, Any]]]) -> None:
    table = Table("Order", "Customer", "Ordered", "Missing after three days")
    for row in found["missing"]:
        table.add_row(str(row["order_id"]), row["customer"], f"{row['ordered']:%d %b %H:%M}", row["what"])
    console.print(table)
    for row in found["strays"]:
        console.print(f"A {row['what']} for order {row['order_id']}, which is not open")


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("order journey")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        found = follow(spark, Path(folder))
    spark.stop()
    show(Console(), found)


if __name__ == "__main__":
    main()
