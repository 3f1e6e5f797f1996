"""Sigma rules over the logs of Windows machines and of an SSH server: alerts in a table of SQLite.

Without Spark: the logs go through live engines, some events at a time. With ``--spark``, they are streams of Spark.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from asterism import CEP, KeyedStream, SigmaPatternProcessorDiscovererFactory

HERE = Path(__file__).resolve().parent
WINDOWS, SSH = HERE / "data" / "windows_attacks.parquet", HERE / "data" / "ssh_auth.csv"
COLLECTION = HERE / "sigma"
TABLE = """CREATE TABLE IF NOT EXISTS alerts (match_id TEXT PRIMARY KEY, time TEXT, level TEXT, title TEXT,
    techniques TEXT, author TEXT, key TEXT, suppressed INTEGER)"""


class AlertTable:
    """Writes matches to a table of SQLite. A match that comes again, after a restart, replaces itself."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with closing(sqlite3.connect(file)) as database, database:
            database.execute(TABLE)

    def __call__(self, matches: Any, number: int) -> None:
        rows = matches if isinstance(matches, pa.Table) else matches.toArrow()
        alerts = [self._alert(row) for row in rows.to_pylist()]
        with closing(sqlite3.connect(self.file)) as database, database:
            database.executemany("INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", alerts)

    @staticmethod
    def _alert(match: dict[str, Any]) -> tuple[Any, ...]:
        labels, time = dict(match["labels"]), match["match_time"].isoformat(" ")
        texts = [labels.get(name, "") for name in ("level", "title", "techniques", "author")]
        return match["match_id"], time, *texts, ", ".join(match["key"]), match["suppressed"]

    def alerts(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.file)) as database:
            return database.execute("SELECT * FROM alerts ORDER BY time, title").fetchall()


def collections() -> dict[str, SigmaPatternProcessorDiscovererFactory]:
    """The rules of each log. A pipeline maps categories of log sources to events of Sysmon."""
    windows = SigmaPatternProcessorDiscovererFactory(COLLECTION / "windows", pipeline=[COLLECTION / "sysmon.yml"])
    return {"windows": windows, "ssh": SigmaPatternProcessorDiscovererFactory(COLLECTION / "ssh", time="ts")}


def logs() -> dict[str, pa.Table]:
    ssh = pyarrow.csv.read_csv(SSH)
    ssh = ssh.set_column(ssh.column_names.index("ts"), "ts", ssh["ts"].cast(pa.timestamp("us", "UTC")))
    return {"windows": pyarrow.parquet.read_table(WINDOWS), "ssh": ssh}


def live(table: AlertTable, folder: Path) -> None:
    for name, log in logs().items():
        events = KeyedStream(log.schema, {"windows": "Hostname", "ssh": "ip"}[name], time="ts")
        matches = CEP.pattern_processors(events, collections()[name])
        with matches.open(folder / name, sinks={"matches": table}) as engine:
            for start in range(0, log.num_rows, 100):
                engine.process(log.slice(start, 100), position=start)
            engine.finish()


def on_spark(table: AlertTable, folder: Path) -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("sigma alerts").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    for name, log in logs().items():
        session.createDataFrame(log).repartitionByRange(4, "ts").write.parquet(f"{folder}/{name}")
        stream = session.readStream.schema(session.read.parquet(f"{folder}/{name}").schema)
        stream = stream.option("maxFilesPerTrigger", 4).parquet(f"{folder}/{name}")
        events = KeyedStream(stream, {"windows": "Hostname", "ssh": "ip"}[name], time="ts")
        matches = CEP.pattern_processors(events, collections()[name], key_groups=2)
        matches.run({"matches": table}, checkpoint=f"{folder}/checkpoint of {name}")
    session.stop()


def printed(alert: tuple[Any, ...]) -> str:
    """The Detection Rule License asks for the names of the authors of a rule."""
    _, time, level, title, techniques, author, key, suppressed = alert
    more = f", {suppressed} suppressed" if suppressed else ""
    return f"{time[:19]}  {level:<8}  {key:<15}  {title} ({techniques}){more}" + (f", by {author}" if author else "")


if __name__ == "__main__":
    with TemporaryDirectory() as work:
        found = AlertTable(Path(work, "alerts.db"))
        (on_spark if "--spark" in sys.argv else live)(found, Path(work))
        print(*map(printed, found.alerts()), sep="\n")
