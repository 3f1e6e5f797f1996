"""Orders that nobody paid or shipped within three days: one operator with three inputs, and a timer for each order.

Events arrive up to an hour out of order. Order 6 has days left: it stays in the checkpoint for the next run.
"""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

import asterism
from asterism.sinks import FileSink

EVENTS = {
    "orders": {1: "03-03 09:00", 2: "03-03 10:00", 3: "03-03 11:00", 4: "03-04 09:00", 5: "03-05 09:00", 6: "03-09 09:00"},
    "payments": {1: "03-03 09:30", 2: "03-05 18:00", 9: "03-06 08:00", 3: "03-06 12:00", 5: "03-06 13:00", 6: "03-09 10:00"},
    "shipments": {1: "03-04 07:00", 4: "03-04 12:00", 5: "03-08 08:59", 6: "03-09 18:00"},
}  # fmt: skip
EVENT = "id INT, time TIMESTAMP"


class Journey(asterism.StreamOperator):
    orders, payments, shipments = asterism.Input(EVENT), asterism.Input(EVENT), asterism.Input(EVENT)
    steps = asterism.ListState("STRING")
    missing = asterism.Output("id INT, ordered TIMESTAMP, deadline TIMESTAMP, steps ARRAY<STRING>")
    strays = asterism.Output("id INT, time TIMESTAMP, what STRING")

    @orders.process_element
    def order(self, order: asterism.Element, ctx: asterism.Context) -> None:
        ctx.register_event_time_timer("deadline", order.time + timedelta(days=3))
        self.steps.add("orders")

    @payments.process_element
    @shipments.process_element
    def step(self, step: asterism.Element, ctx: asterism.Context) -> None:
        if self.steps.get():
            self.steps.add(ctx.input)
        else:
            self.strays.collect(step, what=ctx.input)

    def on_event_time_timer(self, timer: asterism.Timer, ctx: asterism.Context) -> None:
        if missing := sorted({"payments", "shipments"} - set(self.steps.get())):
            self.missing.collect(id=ctx.key, ordered=timer.time - timedelta(days=3), deadline=timer.time, steps=missing)
        self.steps.clear()


def follow(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    inputs = {}
    for name, times in EVENTS.items():
        spark.createDataFrame([(id, f"2025-{time}") for id, time in times.items()]).write.csv(f"{folder}/{name}")
        events = spark.readStream.schema(EVENT).csv(f"{folder}/{name}")
        inputs[name] = asterism.KeyedStream(events, "id", time="time", max_out_of_orderness=timedelta(hours=1))
    sinks = {output: FileSink(folder / output) for output in ("missing", "strays")}
    asterism.connect(Journey(), inputs, key_groups=4).run(sinks, checkpoint=f"{folder}/checkpoint", drain=False)
    return {output: spark.read.parquet(f"{folder}/{output}").drop("batch").orderBy("id") for output in sinks}


if __name__ == "__main__":
    session = SparkSession.builder.appName("order journey").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with TemporaryDirectory() as work:
        found = follow(session, Path(work))
        found["missing"].show(truncate=False)
        found["strays"].show()
        picture = asterism.timeline(found["missing"], "id", start="ordered", end="deadline").to_svg()
        Path("order_journey.svg").write_text(picture, encoding="utf-8")
        session.stop()
