"""Rules in a SQLite database: one is added while the query runs.

The first rule groups the payments of a bank by card. The second one, which is added later, groups the same ones by terminal.
"""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, AfterMatchSkipStrategy, KeyedStream, Pattern, SqlPatternProcessorDiscovererFactory, timeline
from asterism.discovery import create_pattern_processor_table
from asterism.sinks import FileSink

PAYMENT = "time TIMESTAMP, card STRING, terminal STRING, amount DOUBLE"
FIRST = "12:00 ann north 1.5, 12:02 ann south 650.5, 12:03 cid south 1.25"
LATER = "12:04 dora east 310.25, 12:05 eve east 420, 12:06 cid north 900.5, 12:07 fay east 330, 12:30 gus west 10"
SMALL, LARGE = Pattern.begin("small").where("amount < 2"), AfterMatchSkipStrategy.skip_past_last_event()
SMALL_THEN_LARGE = SMALL.followed_by("large").where("amount > 500").within(timedelta(minutes=10))
MANY_LARGE = Pattern.begin("large", LARGE).where("amount > 300").times(3).consecutive().within(timedelta(minutes=10))
ADD = "INSERT INTO pattern_processors (id, version, key, pattern) VALUES (?, 1, ?, ?)"


def watch(spark: SparkSession, folder: Path) -> DataFrame:
    def add(*rule: str) -> None:
        with closing(sqlite3.connect(folder / "rules.db")) as database, database:
            database.execute(ADD, rule)

    def pay(payments: str) -> None:
        rows = [f"2025-03-03T{payment}".split() for payment in payments.split(", ")]
        spark.createDataFrame(rows).coalesce(1).write.mode("append").csv(f"{folder}/payments")
        query.processAllAvailable()

    rules = f"sqlite:///{folder}/rules.db"
    create_pattern_processor_table(rules)
    add("small, then large", "card", SMALL_THEN_LARGE.to_json())
    (folder / "payments").mkdir()
    payments = KeyedStream(spark.readStream.schema(PAYMENT).csv(f"{folder}/payments"), "card", time="time")
    discoverer = SqlPatternProcessorDiscovererFactory(rules, interval=timedelta(milliseconds=100))
    alarms = CEP.pattern_processors(payments, discoverer, store=f"{folder}/rules", key_groups=2)
    sink = FileSink(f"{folder}/alarms")
    query = alarms.run({"matches": sink}, checkpoint=f"{folder}/checkpoint", trigger={"processingTime": "1 second"})
    pay(FIRST)
    add("many large ones", "terminal", MANY_LARGE.to_json())
    alarms.wait_for({"many large ones": 1})
    pay(LATER)
    query.stop()
    return spark.read.parquet(sink.path).drop("batch").orderBy("end_time")


if __name__ == "__main__":
    session = SparkSession.builder.appName("rules in SQLite").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with TemporaryDirectory() as work:
        found = watch(session, Path(work))
        found.select("end_time", "processor_id", "processor_version", "key", "events.event.amount").show(truncate=False)
        Path("rules_sqlite.svg").write_text(timeline(found, ["processor_id", "key"]).to_svg(), encoding="utf-8")
        session.stop()
