"""A savepoint of many open partial matches: ``python -m benchmarks.savepoints --keys 10000000``, on two cores.

A query with one open partial match for each key is stopped, its savepoint is created, restored with four times as many key
groups, and continued. One JSON line: seconds, sizes, and the largest resident memory of all processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, create_savepoint, restore_savepoint
from benchmarks.harness import session

PATTERN = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(timedelta(days=300))
EVENTS = "ts TIMESTAMP, user BIGINT, kind STRING, price DOUBLE"
MB = 2**20


class Memory(threading.Thread):
    """The largest sum of the resident memory of this process and all its descendants."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest = 0

    def run(self) -> None:
        while True:
            self.largest = max(self.largest, _resident())
            time.sleep(0.5)


def _resident() -> int:
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)], sizes[int(entry.name)] = int(fields[1]), int(fields[21])
    family = {os.getpid()}
    grown = True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in family} - family
        family |= new
        grown = bool(new)
    return sum(sizes.get(pid, 0) for pid in family) * os.sysconf("SC_PAGE_SIZE")


def measure(spark: SparkSession, folder: Path, keys: int) -> dict[str, Any]:
    matches: list[int] = []

    def count(df: DataFrame, batch_id: int) -> None:
        matches.append(df.count())

    def write(sql: str) -> None:
        spark.sql(sql).write.mode("append").parquet(str(folder / "events"))

    def run(checkpoint: str) -> None:
        df = spark.readStream.schema(EVENTS).parquet(str(folder / "events"))
        stream = CEP.pattern(KeyedStream(df, key="user", time="ts"), PATTERN)
        stream.run({"matches": count}, checkpoint=str(folder / checkpoint), drain=False)

    def seconds(what: Callable[[], object]) -> float:
        begin = time.perf_counter()
        what()
        return round(time.perf_counter() - begin, 1)

    moment = "TIMESTAMP_MICROS(1735689600000000 + id)"
    write(f"SELECT {moment} AS ts, id AS user, 'a' AS kind, id / 7 AS price FROM range({keys})")
    found: dict[str, Any] = {"keys": keys, "first_run": seconds(lambda: run("first"))}
    memory = Memory()
    memory.start()
    savepoint = str(folder / "savepoint")
    found["create"] = seconds(lambda: create_savepoint(spark, str(folder / "first"), savepoint))
    found["create_memory_mb"] = memory.largest // MB
    found["restore"] = seconds(
        lambda: restore_savepoint(spark, savepoint, str(folder / "second"), key_groups=32, tasks=2)
    )
    found["memory_mb"] = memory.largest // MB
    sizes = {name: _size(folder / name) for name in ("first", "savepoint", "second")}
    found |= {f"{name}_mb": size // MB for name, size in sizes.items()}
    write(
        f"SELECT {moment} + INTERVAL 1 DAY AS ts, id AS user, 'b' AS kind, 0D AS price FROM range(0, {keys}, {keys // 10})"
    )
    found["next_run"] = seconds(lambda: run("second"))
    found["matches"] = sum(matches)
    return found


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--memory", default="4g", help="of Spark's driver")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="savepoints"))
    spark = session(2, arguments.memory)
    try:
        result = measure(spark, folder, arguments.keys)
        print(json.dumps(result))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if result["matches"] >= 9 else 1


if __name__ == "__main__":
    sys.exit(main())
