"""Small event streams for the Spark tests: files in order of arrival, and what a batch run finds in them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, PatternStream

BASE = 1_700_000_000_000_000
DISORDER = timedelta(seconds=5)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("kind", pa.string()),
        ("price", pa.float64()),
    ]
)

FUNNEL = (
    Pattern.begin("a").where("kind = 'view'").times(2).followed_by("b").where("kind = 'buy' AND price > LAST(a.price)")
).within(timedelta(seconds=60))
ASKED = (
    Pattern.begin("a").where("kind = 'view'").times(2)
    .followed_by("b").where("kind = 'buy' AND array_max(array(price, LAST(a.price))) > LAST(a.price)")
).within(timedelta(seconds=60))  # fmt: skip
"""FUNNEL, with a condition that DuckDB evaluates."""
STRICT = Pattern.begin("a").where("kind = 'view'").next("b").where("kind = 'cart'").within(timedelta(minutes=5))
ABSENCE = (
    Pattern.begin("a").where("kind = 'cart'").not_followed_by("b").where("kind = 'buy'").within(timedelta(seconds=30))
)


def events(count: int = 2000, users: int = 40, seed: int = 7) -> pa.Table:
    """In order of arrival, up to DISORDER late; times are unique."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        time = number * 300_000
        arrival = time + rng.randrange(DISORDER // timedelta(microseconds=1))
        kind = rng.choice(["view", "view", "cart", "buy", "search"])
        rows.append((arrival, number, f"u{rng.randrange(users)}", BASE + time, kind, float(rng.randrange(100))))
    rows.sort()
    columns = list(zip(*rows, strict=True))[1:]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def write_files(table: pa.Table, folder: Path, cuts: list[int], first: int = 0) -> None:
    """One Parquet file per piece, in order."""
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, table.num_rows], strict=True), first):
        write_file(table.slice(begin, end - begin), folder, number)


def write_file(table: pa.Table, folder: Path, number: int) -> Path:
    """The file of this number: there as a whole at once, and later than those with smaller numbers, which Spark reads first."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / ".new"
    pq.write_table(table, new)
    os.utime(new, (1_700_000_000 + number,) * 2)
    return new.replace(folder / f"{number:05}.parquet")


def random_cuts(rows: int, pieces: int, seed: int) -> list[int]:
    return sorted(random.Random(seed).sample(range(1, rows), pieces - 1))


def stream_of(spark: SparkSession, folder: Path, **options: Any) -> KeyedStream:
    schema = spark.createDataFrame(events(1)).schema
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    how: dict[str, Any] = {"key": "user", "time": "ts", "max_out_of_orderness": DISORDER} | options
    return KeyedStream(df, **how)


class Collect:
    """A sink that keeps the rows of every micro-batch; one that comes again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[dict[str, Any]]] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = df.toArrow().to_pylist()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches.values() for row in batch]


@contextmanager
def shuffle_partitions(spark: SparkSession, number: int) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before is not None
    spark.conf.set("spark.sql.shuffle.partitions", number)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def ids(rows: list[dict[str, Any]]) -> list[str]:
    """Matches as comparable text: key, times, and the ids of their events per stage."""
    result = []
    for row in rows:
        parts = {k: [e["id"] for e in v] if isinstance(v, list) else str(v) for k, v in row.items()}
        result.append(str(sorted(parts.items())))
    return sorted(result)


def batch_matches(spark: SparkSession, table: pa.Table, pattern: Pattern, **options: Any) -> list[str]:
    return ids(batch(spark, table, pattern, **options).matches.toArrow().to_pylist())


def batch(spark: SparkSession, table: pa.Table, pattern: Pattern, **options: Any) -> PatternStream:
    return CEP.pattern(KeyedStream(spark.createDataFrame(table), key="user", time="ts"), pattern, **options)
