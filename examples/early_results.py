"""Sales per hour and shop: early results, the result at the end of the hour, and a correction for each late sale.

Spark would give out an hour once, when it is final. Here the policy is one line: an early result a minute of event time after a
new sale, the result on time, and a correction for every sale that is up to an hour late. Later sales go to another output.
"""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from asterism import EventTimeTrigger, KeyedStream, TumblingWindows, draw, window
from asterism.sinks import FileSink

EARLY = EventTimeTrigger.after_first_element(timedelta(minutes=1))
POLICY = EventTimeTrigger.after_end_of_window().with_early_trigger(EARLY)
HOUR = timedelta(hours=1)
# As they arrive: Bern loses its connection at half past nine and reconnects an hour later. Shop, hour, minute, amount.
SALES = (
    [("bern", 9, 0, 10), ("ulm", 9, 0, 5), ("bern", 9, 0, 20)],
    [("bern", 9, 5, 5), ("ulm", 9, 20, 7), ("ulm", 9, 20, 3)],
    [("ulm", 10, 0, 4), ("ulm", 10, 31, 6)],
    [("bern", 9, 40, 40), ("bern", 10, 20, 15)],
    [("ulm", 11, 5, 1)],
    [("bern", 9, 50, 99)],
)


def add_up(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    for sales in SALES:
        rows = [(shop, f"2025-03-03 {hour:02}:{minute:02}", amount) for shop, hour, minute, amount in sales]
        spark.createDataFrame(rows).coalesce(1).write.mode("append").csv(f"{folder}/sales")
    files = spark.readStream.schema("shop STRING, time TIMESTAMP, amount INT").option("maxFilesPerTrigger", 1)
    stream = KeyedStream(files.csv(f"{folder}/sales"), "shop", time="time")
    hours = window(stream, TumblingWindows.of(HOUR), trigger=POLICY, allowed_lateness=HOUR, key_groups=4)
    sinks = {output: FileSink(folder / output) for output in ("results", "late")}
    hours.run(sinks, aggregate=["count(*) AS sales", "sum(amount) AS total"], checkpoint=f"{folder}/checkpoint")
    return {output: spark.read.parquet(f"{folder}/{output}").drop("batch") for output in sinks}


def picture() -> str:
    """The sales of Bern, and what the policy makes of them."""
    steps = []
    for sales in SALES:
        times = [f"{amount}@{60 * hour + minute}min" for shop, hour, minute, amount in sales if shop == "bern"]
        latest = max(60 * hour + minute for _, hour, minute, _ in sales)
        steps += [f"in {' '.join(times)}"] * bool(times) + [f"watermark {latest}min"]
    return draw(TumblingWindows.of(HOUR), POLICY, "\n".join(steps), lateness=HOUR, in_order=True)


if __name__ == "__main__":
    session = SparkSession.builder.appName("early results").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with TemporaryDirectory() as work:
        found = add_up(session, Path(work))
        found["results"].orderBy("shop", "window_start", "firing").show()
        found["late"].show()
        Path("early_results.svg").write_text(picture(), encoding="utf-8")
        session.stop()
