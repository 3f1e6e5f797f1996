"""Patients whose vital signs get worse, and who are not seen within half an hour.

Two warnings within an hour and no visit within 30 minutes raise an alarm. The absence of a visit is a part of the pattern: no
event has to arrive at the deadline. The readings are made up.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from asterism import CEP, AfterMatchSkipStrategy, KeyedStream, Pattern, PatternStream, WithinType

EVENT = "patient STRING, time TIMESTAMP, kind STRING, pulse INT, oxygen INT"
READINGS = (
    ("ann", "08:00", "reading", 88, 97), ("ann", "08:20", "reading", 124, 95), ("ann", "08:50", "reading", 131, 92),
    ("ann", "09:05", "visit", None, None), ("ann", "09:30", "reading", 96, 96),
    ("ben", "08:05", "reading", 118, 89), ("ben", "08:30", "reading", 126, 88), ("ben", "08:45", "reading", 110, 91),
    ("ben", "09:10", "visit", None, None), ("ben", "10:30", "reading", 84, 96),
    ("eve", "08:10", "reading", 125, 96), ("eve", "09:40", "reading", 127, 95), ("eve", "10:20", "reading", 90, 97),
)  # fmt: skip
NOT_SEEN = (
    Pattern.begin("warning", AfterMatchSkipStrategy.skip_past_last_event())
    .where("kind = 'reading' AND (pulse > 120 OR oxygen < 90)")
    .times(2, within=timedelta(hours=1))
    .not_followed_by("visit")
    .where("kind = 'visit'")
    .within(timedelta(minutes=30), WithinType.PREVIOUS_AND_CURRENT)
)


def find(spark: SparkSession) -> PatternStream:
    day = datetime(2025, 3, 3, tzinfo=UTC)
    rows = [(who, day.replace(hour=int(at[:2]), minute=int(at[3:])), *rest) for who, at, *rest in READINGS]
    return CEP.pattern(KeyedStream(spark.createDataFrame(rows, EVENT), "patient", time="time"), NOT_SEEN)


if __name__ == "__main__":
    session = SparkSession.builder.appName("vital signs").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    found = find(session)
    alarms = found.select("MAX(warning.pulse) AS pulse", "MIN(warning.oxygen) AS oxygen", "match_time").toPandas()
    print(alarms)
    Path("vital_signs.svg").write_text(found.show_timeline().to_svg(), encoding="utf-8")
    session.stop()
