"""Alarms whose threshold is changed while the query runs, for all ovens at once and without a restart."""

from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

import asterism
from asterism.sinks import FileSink

READING = "oven STRING, time TIMESTAMP, celsius DOUBLE"
OVENS = {"east": (190, 205, 235, 240, 245, 240, 238, 225, 220), "west": (180, 255, 245, 240, 240, 215, 205, 200, 190)}
READINGS = [(oven, f"2025-03-03 12:0{minute}", OVENS[oven][minute]) for minute in range(9) for oven in OVENS]


class Alarms(asterism.StreamOperator):
    readings = asterism.Input(READING)
    control = asterism.BroadcastInput("celsius DOUBLE")
    threshold = asterism.BroadcastValueState("DOUBLE")  # has no event time: takes effect when it arrives
    since = asterism.ValueState("TIMESTAMP")
    alarms = asterism.Output(f"{READING}, since TIMESTAMP, what STRING")

    @control.process_element
    def change(self, control: asterism.Element, ctx: asterism.Context) -> None:
        self.threshold.update(control.celsius)

    @readings.process_element
    def read(self, reading: asterism.Element, ctx: asterism.Context) -> None:
        since, is_hot = self.since.value(), reading.celsius > (self.threshold.value() or 250)
        if is_hot and since is None:
            self.since.update(reading.time)
            self.alarms.collect(reading, what="too hot")
        elif since and not is_hot:
            self.since.clear()
            self.alarms.collect(reading, what="well again", since=since)


def watch(spark: SparkSession, folder: Path) -> DataFrame:
    for name in ("readings", "control"):
        (folder / name).mkdir()
    readings = asterism.KeyedStream(spark.readStream.schema(READING).csv(f"{folder}/readings"), "oven", time="time")
    control = asterism.BroadcastStream(spark.readStream.schema("celsius DOUBLE").csv(f"{folder}/control"))
    alarms = asterism.connect(Alarms(), readings=readings, control=control, key_groups=2)
    sink = FileSink(f"{folder}/alarms")
    query = alarms.run({"alarms": sink}, checkpoint=f"{folder}/checkpoint", trigger={"processingTime": "1 second"})
    for name, rows in (("readings", READINGS[:8]), ("control", [(230.0,)]), ("readings", READINGS[8:])):
        spark.createDataFrame(rows).coalesce(1).write.mode("append").csv(f"{folder}/{name}")
        query.processAllAvailable()
    query.stop()
    return spark.read.parquet(sink.path).drop("batch").orderBy("time", "oven")


if __name__ == "__main__":
    session = SparkSession.builder.appName("thresholds").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with TemporaryDirectory() as work:
        found = watch(session, Path(work))
        found.show()
        picture = asterism.timeline(found.where("since IS NOT NULL"), "oven", start="since", end="time")
        Path("thresholds.svg").write_text(picture.to_svg(), encoding="utf-8")
        session.stop()
