"""A savepoint of many open partial matches: ``python -m benchmarks.savepoints --keys 10000000``, on two cores.

A query with one open partial match for each key is stopped; its savepoint is created, and restored with another number of key
groups. The new checkpoint is rescaled in place to the former number, and the query continues with it. One JSON line: of each
step the seconds, the CPU seconds of all processes and of the JVM, and the largest resident memory of the JVM and of all Python
processes; the sizes of the folders; and the number of matches that the query then finds, which has to be right.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, create_savepoint, rescale_checkpoint, restore_savepoint
from benchmarks.harness import family_seconds, family_use, session

PATTERN = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(timedelta(days=300))
EVENTS = "ts TIMESTAMP, user BIGINT, kind STRING, price DOUBLE"
MB = 2**20


@contextmanager
def measured(found: dict[str, Any], step: str) -> Iterator[None]:
    """What a step took, as an entry of *found*, and on standard error at once."""
    done, most = threading.Event(), {True: 0.0, False: 0.0}

    def sample() -> None:
        while not done.wait(0.5):
            for jvm, (mb, _) in family_use().items():
                most[jvm] = max(most[jvm], mb)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    begin, cpu, of_jvm = time.perf_counter(), family_seconds(), family_use()[True][1]
    try:
        yield
    finally:
        taken, used = time.perf_counter() - begin, family_seconds() - cpu
        of_jvm = family_use()[True][1] - of_jvm
        done.set()
        thread.join()
    found[step] = {
        "s": round(taken, 1),
        "cpu_s": round(used, 1),
        "jvm_cpu_s": round(of_jvm, 1),
        "jvm_mb": round(most[True]),
        "python_mb": round(most[False]),
    }
    print(step, found[step], file=sys.stderr, flush=True)


def measure(spark: SparkSession, folder: Path, keys: int, groups: tuple[int, int]) -> dict[str, Any]:
    matches: list[int] = []

    def count(df: DataFrame, batch_id: int) -> None:
        matches.append(df.count())

    def write(sql: str) -> None:
        spark.sql(sql).write.mode("append").parquet(str(folder / "events"))

    def run(checkpoint: str) -> None:
        df = spark.readStream.schema(EVENTS).parquet(str(folder / "events"))
        stream = CEP.pattern(KeyedStream(df, key="user", time="ts"), PATTERN, key_groups=groups[0])
        stream.run({"matches": count}, checkpoint=str(folder / checkpoint), drain=False)

    moment = "TIMESTAMP_MICROS(1735689600000000 + id)"
    write(f"SELECT {moment} AS ts, id AS user, 'a' AS kind, id / 7 AS price FROM range({keys})")
    found: dict[str, Any] = {"keys": keys, "key_groups": groups}
    with measured(found, "first_run"):
        run("first")
    first, savepoint, second = (str(folder / name) for name in ("first", "savepoint", "second"))
    with measured(found, "create"):
        create_savepoint(spark, first, savepoint)
    with measured(found, "restore"):
        restore_savepoint(spark, savepoint, second, key_groups=groups[1], tasks=2)
    found |= {f"{name}_mb": _size(folder / name) // MB for name in ("first", "savepoint", "second")}
    with measured(found, "rescale"):
        rescale_checkpoint(spark, second, key_groups=groups[0], tasks=2)
    again = f"{moment} + INTERVAL 1 DAY AS ts, id AS user, 'b' AS kind, 0D AS price"
    write(f"SELECT {again} FROM range(0, {keys}, {keys // 10})")
    with measured(found, "next_run"):
        run("second")
    found["matches"] = sum(matches)
    return found


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument(
        "--groups", type=int, nargs=2, default=(32, 512), help="key groups before and after the restore"
    )
    parser.add_argument("--memory", default="4g", help="of Spark's driver")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="savepoints"))
    spark = session(2, arguments.memory)
    try:
        result = measure(spark, folder, arguments.keys, tuple(arguments.groups))
        print(json.dumps(result))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if result["matches"] >= 9 else 1


if __name__ == "__main__":
    sys.exit(main())
