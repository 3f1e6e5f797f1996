"""Payments in euros, each at the rate that was in force when it was made.

The rates are a second stream, which is broadcast to every task. They arrive after payments that need them. These payments wait
until the watermark of the rates has passed them.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

import asterism
from asterism.sinks import FileSink

PAYMENT = "id INT, time TIMESTAMP, account STRING, currency STRING, amount DOUBLE"
RATE = "since TIMESTAMP, currency STRING, rate DOUBLE"
ARRIVING = (
    ("payments", (1, "2025-03-03 09:05", "ann", "USD", 100.0), (2, "2025-03-03 10:10", "bob", "CHF", 50.0)),
    ("payments", (3, "2025-03-03 10:20", "ann", "USD", 100.0), (4, "2025-03-03 10:40", "ann", "GBP", 10.0)),
    ("rates", ("2025-03-03 09:00", "USD", 0.9), ("2025-03-03 09:00", "GBP", 1.15), ("2025-03-03 10:00", "USD", 0.85)),
    ("rates", ("2025-03-03 10:30", "GBP", 1.2), ("2025-03-03 10:42", "CHF", 1.05)),
)


class ToEuros(asterism.StreamOperator):
    payments = asterism.Input(PAYMENT)
    rates = asterism.BroadcastInput(RATE)
    latest = asterism.BroadcastMapState("STRING", "STRUCT<since: TIMESTAMP, rate: DOUBLE>")
    converted = asterism.Output(f"{PAYMENT}, since TIMESTAMP, euros DOUBLE")

    @rates.process_element
    def change(self, rate: asterism.Element, ctx: asterism.Context) -> None:
        self.latest.put(rate.currency, {"since": rate.since, "rate": rate.rate})

    @payments.process_element
    def pay(self, payment: asterism.Element, ctx: asterism.Context) -> None:
        rate = self.latest.get(payment.currency)
        known = {"since": rate["since"], "euros": round(payment.amount * rate["rate"], 2)} if rate else {}
        self.converted.collect(payment | known)


def convert(spark: SparkSession, folder: Path) -> DataFrame:
    for name, *rows in ARRIVING:
        spark.createDataFrame(rows).coalesce(1).write.mode("append").csv(f"{folder}/{name}")
    files = spark.readStream.option("maxFilesPerTrigger", 1)
    payments = asterism.KeyedStream(files.schema(PAYMENT).csv(f"{folder}/payments"), key="account", time="time")
    rates = asterism.BroadcastStream(files.schema(RATE).csv(f"{folder}/rates"), time="since")
    converted = asterism.connect(ToEuros(), payments=payments, rates=rates, key_groups=4)
    converted.run({"converted": FileSink(f"{folder}/converted")}, checkpoint=f"{folder}/checkpoint")
    return spark.read.parquet(f"{folder}/converted").drop("batch").orderBy("id")


if __name__ == "__main__":
    session = SparkSession.builder.appName("exchange rates").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with TemporaryDirectory() as work:
        found = convert(session, Path(work))
        found.show()
        picture = asterism.timeline(found, ["account", "currency"], start="since", end="time").to_svg()
        Path("exchange_rates.svg").write_text(picture, encoding="utf-8")
        session.stop()
