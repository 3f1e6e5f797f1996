"""The attacks in a real SSH log: in this process, without Spark; or, with ``--stream``, as a stream on Spark.

Passwords that were guessed in ten minutes, and sessions left open for eight hours, of which no line of the log says anything.
Spark reads the log in twelve parts, as if they were just arriving. A query ends with the log, but time does not go on
(``drain=False``): a session that was opened just before is not left open.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from asterism import CEP, AfterMatchSkipStrategy, KeyedStream, Pattern, timeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG = Path(__file__).resolve().parent / "data" / "ssh_auth.csv"
COLUMNS = (
    "event_id INT, ts TIMESTAMP, pid INT, ip STRING, port INT, event STRING, method STRING, user STRING, valid_user INT"
)
GUESSED = (
    Pattern.begin("fails", AfterMatchSkipStrategy.skip_past_last_event())
    .where("event = 'failed'").times_or_more(3).consecutive()
    .next("login").where("event = 'accepted'")
    .within(timedelta(minutes=10))
)  # fmt: skip
LEFT_OPEN = (
    Pattern.begin("login").where("event = 'accepted'")
    .not_followed_by("logout").where("event IN ('disconnected', 'closed') AND port = LAST(login.port)")
    .within(timedelta(hours=8))
)  # fmt: skip


def cut_log(folder: Path, parts: int = 12) -> None:
    folder.mkdir()
    header, *lines = LOG.read_text(encoding="utf-8").splitlines(keepends=True)
    for part in range(parts):
        rows = lines[part * len(lines) // parts : (part + 1) * len(lines) // parts]
        (folder / f"{part}.csv").write_text(header + "".join(rows), encoding="utf-8")
        os.utime(folder / f"{part}.csv", (part, part))  # Spark reads the oldest file first


def find_in_table(pattern: Pattern) -> pa.Table:
    """The matches in the whole log, in this process."""
    log = duckdb.read_csv(str(LOG)).filter("event IN ('failed', 'accepted')")
    return CEP.pattern(KeyedStream(log, "ip", time="ts", order_by=["event_id"]), pattern).matches


def find(events: DataFrame, pattern: Pattern, folder: Path) -> DataFrame:
    """The matches in a stream, on Spark."""
    from asterism.sinks import FileSink

    def write(matches: DataFrame, batch_id: int) -> None:
        sink(matches, batch_id)
        print(f"micro-batch {batch_id}: {spark.read.parquet(sink.path).count()} found so far")

    spark, sink = events.sparkSession, FileSink(folder / "matches")
    stream = KeyedStream(events, "ip", time="ts", order_by=["event_id"])
    CEP.pattern(stream, pattern, key_groups=4).run({"matches": write}, checkpoint=f"{folder}/checkpoint", drain=False)
    return spark.read.parquet(sink.path).drop("batch").orderBy("start_time")


def stream() -> None:
    """Both patterns over a stream, on Spark."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("ssh attacks").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with TemporaryDirectory() as work:
        cut_log(Path(work, "log"))
        log = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).csv(f"{work}/log", header=True)
        attacks = find(log.where("event IN ('failed', 'accepted')"), GUESSED, Path(work, "attacks"))
        attacks.selectExpr("ip", "start_time", "size(fails) AS failures", "login[0].user AS user", "end_time").show()
        sessions = find(log, LEFT_OPEN, Path(work, "sessions"))
        sessions.selectExpr("ip", "start_time AS login", "login[0].user AS user", "login[0].port AS port").show()
        Path("ssh_sessions.svg").write_text(timeline(sessions, "ip", end="match_time").to_svg(), encoding="utf-8")
        session.stop()


def table() -> None:
    """The guessed password over the whole log."""
    attacks = find_in_table(GUESSED)
    for attack in attacks.to_pylist():
        fails, [login] = attack["fails"], attack["login"]
        print(f"{attack['ip']}: {len(fails)} failures from {attack['start_time']}, then a login as {login['user']}")
    Path("ssh_attacks.svg").write_text(timeline(attacks, "ip").to_svg(), encoding="utf-8")


if __name__ == "__main__":
    if "--stream" in sys.argv:
        stream()
    else:
        table()
