"""Delays that grow from flight to flight, in the departures from New York City in 2013.

An aircraft that leaves late arrives late, and leaves even later the next time. The pattern finds three or more departures of an
aircraft, each at least 15 minutes more delayed than the one before. Twelve hours without a departure end a run, except after its
first departure.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, AfterMatchSkipStrategy, KeyedStream, Pattern, PatternStream, timeline

FLIGHTS = Path(__file__).parent / "data" / "flights_nyc2013_part.parquet"
WORSE_AND_WORSE = (
    Pattern.begin("first", AfterMatchSkipStrategy.skip_past_last_event())
    .where("dep_delay >= 15")
    .next("worse")
    .where("dep_delay >= PREV(dep_delay) + 15")
    .times_or_more(2, within=timedelta(hours=12))
    .consecutive()
    .longest()
)


def find(spark: SparkSession) -> PatternStream:
    flights = KeyedStream(spark.read.parquet(str(FLIGHTS)), "tailnum", time="sched_dep", order_by=["flight_id"])
    return CEP.pattern(flights, WORSE_AND_WORSE)


def longest(found: PatternStream) -> DataFrame:
    """The ten longest runs, with the delay of their first and of their last departure."""
    runs = found.select("COUNT(*) AS flights", "first.dep_delay AS began", "LAST(worse.dep_delay) AS ended", "end_time")
    return runs.orderBy("flights", "ended", ascending=False).limit(10)


if __name__ == "__main__":
    session = SparkSession.builder.appName("flight delays").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    found = find(session)
    runs = longest(found).toPandas()
    print(runs)
    july = timeline(found.matches.where("month(start_time) = 7"), "tailnum")
    Path("flight_delays.svg").write_text(july.to_svg(), encoding="utf-8")
    session.stop()
