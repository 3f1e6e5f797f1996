"""A join of three streams in one operator, and as a chain of joins: ``python -m benchmarks.multi_joins --size S``.

The events of a user are divided into three streams: each view with the carts of the ten minutes after it, and each of these pairs
with the purchases of the hour after the cart. In one process, alternating:

* ``multi``: ``multi_join``;
* ``chain``: ``interval_join`` of the result of ``interval_join``;
* ``spark``: Spark's own stream-stream joins, in a chain.

One JSON line per run on standard output: the seconds of the run to the end of the stream, and the bytes of the files of state
that it has written. The number of results is compared with DuckDB's; another one makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import KeyedStream, interval_join, multi_join
from benchmarks import harness, streaming
from benchmarks.joins import COLUMNS
from benchmarks.windows import ROCKS_DB
from benchmarks.workloads import DISORDER, KEY, TIMESTAMP

KINDS = ("view", "cart", "buy")
FIRST, SECOND = timedelta(minutes=10), timedelta(hours=1)
MULTI, CHAIN, SPARK = "multi", "chain", "spark"
_NOTHING = timedelta(0)
_SQL = f"""
    SELECT count(*) FROM view JOIN cart ON view.{KEY} = cart.{KEY}
    AND cart.event_time BETWEEN view.event_time AND view.event_time + {FIRST // harness.MILLISECOND}
    JOIN buy ON view.{KEY} = buy.{KEY}
    AND buy.event_time BETWEEN cart.event_time AND cart.event_time + {SECOND // harness.MILLISECOND}
"""


def divide(source: Path, target: Path) -> int:
    """Write the events of each kind to files of their own, as many as there are; returns the number of results."""
    with duckdb.connect() as connection:
        for number, file in enumerate(sorted(source.glob("part-*.parquet"))):
            events = pq.read_table(file)
            for kind in KINDS:
                path = target / kind / file.name
                path.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(events.filter(pc.equal(events.column("kind"), kind)).select(COLUMNS), path)
                streaming.set_order(path, number)
        for kind in KINDS:
            connection.register(kind, pq.read_table(target / kind))
        return int(connection.sql(_SQL).fetchall()[0][0])


def joined(mode: str, streams: Mapping[str, DataFrame], key_groups: int | None) -> Any:
    """The join, with Asterism."""
    keyed = {
        name: KeyedStream(df.withColumnRenamed(TIMESTAMP, "ts"), KEY, "ts", max_out_of_orderness=DISORDER)
        for name, df in streams.items()
    }
    if mode == MULTI:
        return multi_join(
            keyed,
            {("view", "cart"): (_NOTHING, FIRST), ("cart", "buy"): (_NOTHING, SECOND)},
            prefix={name: f"{name}_" for name in KINDS[1:]},
            key_groups=key_groups,
        )
    options: dict[str, Any] = {"key_groups": key_groups}
    pairs = interval_join(keyed["view"], keyed["cart"], (_NOTHING, FIRST), prefix="cart_", drain=True, **options)
    left = KeyedStream(pairs.results, KEY, "cart_ts")
    return interval_join(left, keyed["buy"], (_NOTHING, SECOND), prefix="buy_", drain=True, **options)


def in_spark(streams: Mapping[str, DataFrame]) -> DataFrame:
    seconds = f"{DISORDER // timedelta(seconds=1)} seconds"
    view, cart, buy = (
        df.withWatermark(TIMESTAMP, seconds).select(F.col(KEY).alias(f"{n}_k"), F.col(TIMESTAMP).alias(f"{n}_t"))
        for n, df in streams.items()
    )
    minutes = FIRST // timedelta(minutes=1)
    pairs = view.join(
        cart, F.expr(f"view_k = cart_k AND cart_t BETWEEN view_t AND view_t + INTERVAL {minutes} MINUTES")
    )
    # A stream has one event time.
    pairs = pairs.withColumn("view_t", F.unix_micros("view_t"))
    return pairs.join(buy, F.expr("view_k = buy_k AND buy_t BETWEEN cart_t AND cart_t + INTERVAL 1 HOUR"))


def measured(spark: SparkSession, files: Path, mode: str, args: argparse.Namespace) -> dict[str, Any]:
    counts: dict[int, int] = {}

    def sink(rows: DataFrame, batch_id: int) -> None:
        counts[batch_id] = rows.count()

    streams = {kind: streaming.stream_of(spark, files / kind, args.batches) for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch:
        checkpoint = str(Path(scratch, "checkpoint"))
        begin = time.perf_counter()
        if mode == SPARK:
            writer = in_spark(streams).writeStream.outputMode("append").option("checkpointLocation", checkpoint)
            writer.foreachBatch(sink).trigger(availableNow=True).start().awaitTermination()
        else:
            joined(mode, streams, args.key_groups).run({"results": sink}, checkpoint=checkpoint)
        seconds = time.perf_counter() - begin
        written = sum(path.stat().st_size for path in Path(checkpoint, "state").rglob("*") if path.is_file())
    found = {"mode": mode, "seconds": round(seconds, 2), "state_mb": round(written / 2**20, 1)}
    return found | {"results": sum(counts.values())}


def main(arguments: list[str] | None = None) -> int:
    cli = harness.command_line("multi_joins", "Measure joins of three streams.")
    cli.add_argument("--modes", nargs="+", choices=[MULTI, CHAIN, SPARK], default=[MULTI, CHAIN, SPARK])
    cli.add_argument("--runs", type=int, default=3, help="rounds after the warm-up")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--batches", type=int, default=3, help="micro-batches that bring events")
    cli.add_argument("--key-groups", type=int, default=8, help="of each join of asterism")
    cli.add_argument("--memory", default="6g", help="heap of the JVM")
    args = cli.parse_args(arguments)

    data = harness.data_folder(args.size, args.data)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    spark = harness.session(args.cores, args.memory)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS_DB)  # for all
    ok = True
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch:
        expected = divide(data / "parquet", Path(scratch))
        for number in range(args.runs + 1):
            for mode in args.modes:
                record = measured(spark, Path(scratch), mode, args)
                ok = ok and record["results"] == expected
                print(json.dumps({"round": number, **record, "ok": record["results"] == expected}), flush=True)
    spark.stop()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
