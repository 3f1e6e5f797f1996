"""Rules in the PostgreSQL database of RULES_URL: one gets another version, one is added and disabled, while a query runs."""

import os
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, SqlPatternProcessorDiscovererFactory, timeline
from asterism.discovery import create_pattern_processor_table
from asterism.sinks import FileSink

ADD = "INSERT INTO example_rules (id, version, key, pattern) VALUES (%s, %s, %s, %s)"


def after_view(action: str) -> str:
    """A view, and within an hour this action."""
    view = Pattern.begin("view").where("action = 'view'")
    return view.followed_by(action).where(f"action = '{action}'").within(timedelta(hours=1)).to_json()


def watch(spark: SparkSession, folder: Path, url: str) -> DataFrame:
    def click(clicks: str) -> None:
        rows = [f"2025-03-03T{click}".split() for click in clicks.split(", ")]
        spark.createDataFrame(rows).coalesce(1).write.mode("append").csv(f"{folder}/clicks")
        query.processAllAvailable()

    (folder / "clicks").mkdir()
    clicks = spark.readStream.schema("time TIMESTAMP, customer STRING, product STRING, action STRING")
    stream = KeyedStream(clicks.csv(f"{folder}/clicks"), "customer", time="time")
    discoverer = SqlPatternProcessorDiscovererFactory(url, "example_rules", interval=timedelta(milliseconds=100))
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("DROP TABLE IF EXISTS example_rules")
        create_pattern_processor_table(url, "example_rules")
        database.execute(ADD, ("interested", 1, "customer", after_view("cart")))
        matches = CEP.pattern_processors(stream, discoverer, store=f"{folder}/rules", key_groups=2)
        sink = FileSink(f"{folder}/matches")
        query = matches.run({"matches": sink}, checkpoint=f"{folder}/cp", trigger={"processingTime": "1 second"})
        click("12:00 ann lamp view, 12:01 bob sofa view, 12:02 ann lamp cart, 12:03 cid sofa view")
        database.execute(ADD, ("interested", 2, "customer", after_view("buy")))
        database.execute(ADD, ("wanted", 1, "product", after_view("cart")))
        matches.wait_for({"interested": 2, "wanted": 1})
        click("12:04 bob sofa cart, 12:05 dora lamp view, 12:06 eve lamp cart, 12:07 cid vase view")
        database.execute("UPDATE example_rules SET enabled = false WHERE id = 'wanted'")
        while "wanted" in matches.status().processors:
            time.sleep(0.1)
        click("12:08 dora lamp buy, 12:09 fay vase cart, 12:10 gus sofa view")
        query.stop()
    return spark.read.parquet(sink.path).drop("batch").orderBy("end_time")


if __name__ == "__main__":
    session = SparkSession.builder.appName("rules").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with TemporaryDirectory() as work:
        found = watch(session, Path(work), os.environ.get("RULES_URL", "postgresql://rules@localhost/rules"))
        found.select("end_time", "processor_id", "processor_version", "events.event.customer").show(truncate=False)
        Path("rules_postgresql.svg").write_text(timeline(found, ["processor_id", "key"]).to_svg(), encoding="utf-8")
        session.stop()
