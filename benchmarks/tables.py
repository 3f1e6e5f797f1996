"""W1 to W5 over the Parquet files of the events: Asterism without Spark, Spark's warm session, and queries written by hand for
DuckDB and Polars: ``python -m benchmarks.tables --size S``.

Each run reads the files, and ends with the matches in memory. One JSON line per run on standard output: seconds, CPU seconds of
all processes, and peak memory. A result that is not the expected one makes the exit status 1. W5 has no query written by hand:
it makes all subsets. Polars is no dependency: ``pip install polars``; without it, its queries are left out.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism import CEP, KeyedStream
from benchmarks import harness
from benchmarks.workloads import KEY, TIME, WORKLOADS, Workload

ASTERISM, ONE_THREAD, SPARK, DUCKDB, POLARS = "asterism", "one_thread", "spark", "duckdb", "polars"
MODES = (ASTERISM, ONE_THREAD, SPARK, DUCKDB, POLARS)
_AHEAD = "(PARTITION BY user_id ORDER BY event_time ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)"
_OF_USER = "WINDOW of_user AS (PARTITION BY user_id ORDER BY event_time)"

SQL = {
    "W1": f"""
        WITH logins AS (
          SELECT user_id, event_time, kind, min(CASE WHEN kind = 'login_ok' THEN event_time END) OVER {_AHEAD} AS next_ok
          FROM events WHERE kind IN ('login_fail', 'login_ok')
        ), fails AS (
          SELECT event_time AS t1, lead(event_time, 1) OVER of_user AS t2, lead(event_time, 2) OVER of_user AS t3,
            lead(next_ok, 2) OVER of_user AS t4
          FROM logins WHERE kind = 'login_fail' {_OF_USER}
        )
        SELECT * FROM fails WHERE t4 - t1 < 600000""",
    "W2": f"""
        WITH ahead AS (
          SELECT kind, event_time AS t1, lead(kind, 1) OVER of_user AS kind1, lead(event_time, 1) OVER of_user AS t2,
            lead(kind, 2) OVER of_user AS kind2, lead(event_time, 2) OVER of_user AS t3
          FROM events {_OF_USER}
        )
        SELECT t1, t2, t3 FROM ahead WHERE kind = 'view' AND kind1 = 'cart' AND kind2 = 'buy' AND t3 - t1 < 3600000""",
    "W3": """
        WITH transfers AS (SELECT user_id, event_time, amount FROM events WHERE kind = 'transfer')
        SELECT a.event_time AS t1, min(b.event_time) AS t2
        FROM transfers AS a JOIN transfers AS b ON a.user_id = b.user_id AND b.event_time > a.event_time
          AND b.event_time < a.event_time + 1800000 AND b.amount > 10 * a.amount
        GROUP BY a.user_id, a.event_time""",
    "W4": f"""
        WITH carts AS (
          SELECT kind, event_time AS t1, min(CASE WHEN kind = 'buy' THEN event_time END) OVER {_AHEAD} AS next_buy
          FROM events WHERE kind IN ('cart', 'buy')
        )
        SELECT t1 FROM carts WHERE kind = 'cart' AND (next_buy IS NULL OR next_buy - t1 >= 1800000)""",
}
"""For DuckDB. Event times are unique, so that ``min`` over the rows ahead is the next one."""


def _in_polars(pl: Any) -> Mapping[str, Callable[[Any], Any]]:
    """The same for Polars."""

    def only(events: Any, *kinds: str) -> Any:
        return events.filter(pl.col("kind").is_in(kinds)).sort("user_id", "event_time")

    def ahead(name: str, n: int) -> Any:
        return pl.col(name).shift(-n).over("user_id")

    def following(kind: str) -> Any:
        """The time of the next event of a kind."""
        return pl.when(pl.col("kind") == kind).then("event_time").backward_fill().over("user_id")

    def w1(events: Any) -> Any:
        fails = only(events, "login_fail", "login_ok").with_columns(following("login_ok").alias("next_ok"))
        fails = fails.filter(pl.col("kind") == "login_fail").select(
            pl.col("event_time").alias("t1"), ahead("event_time", 1).alias("t2"), ahead("event_time", 2).alias("t3"),
            ahead("next_ok", 2).alias("t4"),
        )  # fmt: skip
        return fails.filter(pl.col("t4") - pl.col("t1") < 600_000)

    def w2(events: Any) -> Any:
        every = events.select("user_id", "event_time", "kind").sort("user_id", "event_time")
        every = every.select(
            "kind", ahead("kind", 1).alias("kind1"), ahead("kind", 2).alias("kind2"), pl.col("event_time").alias("t1"),
            ahead("event_time", 1).alias("t2"), ahead("event_time", 2).alias("t3"),
        )  # fmt: skip
        kinds = (pl.col("kind") == "view") & (pl.col("kind1") == "cart") & (pl.col("kind2") == "buy")
        return every.filter(kinds & (pl.col("t3") - pl.col("t1") < 3_600_000)).select("t1", "t2", "t3")

    def w3(events: Any) -> Any:
        transfers = events.filter(pl.col("kind") == "transfer").select("user_id", "event_time", "amount")
        pairs = transfers.join(transfers, on="user_id", suffix="_b").filter(
            (pl.col("event_time_b") > pl.col("event_time"))
            & (pl.col("event_time_b") < pl.col("event_time") + 1_800_000)
            & (pl.col("amount_b") > 10 * pl.col("amount"))
        )
        return pairs.group_by("user_id", "event_time").agg(pl.col("event_time_b").min()).select(
            pl.col("event_time").alias("t1"), pl.col("event_time_b").alias("t2")
        )  # fmt: skip

    def w4(events: Any) -> Any:
        carts = only(events, "cart", "buy").with_columns(following("buy").alias("next_buy"))
        alone = pl.col("next_buy").is_null() | (pl.col("next_buy") - pl.col("event_time") >= 1_800_000)
        return carts.filter((pl.col("kind") == "cart") & alone).select(pl.col("event_time").alias("t1"))

    return {"W1": w1, "W2": w2, "W3": w3, "W4": w4}


def of_asterism(workload: Workload, parquet: str, threads: int) -> pa.Table:
    pa.set_cpu_count(threads)
    if workload.measures is None:  # a match has all columns of its events
        import pyarrow.dataset as ds
        from pyarrow import parquet as pq

        columns = [name for name in ds.dataset(parquet).schema.names if name not in ("item_id", "ts")]
        return CEP.pattern(
            KeyedStream(pq.read_table(parquet, columns=columns), key=KEY, time=TIME), workload.pattern
        ).matches
    return CEP.pattern(KeyedStream(parquet, key=KEY, time=TIME), workload.pattern).select(*workload.measures)


def query_of(mode: str, workload: Workload, parquet: str, cores: int) -> Callable[[], pa.Table] | None:
    """Computes the matches; None: there is no such query."""
    if mode in (ASTERISM, ONE_THREAD):
        return lambda: of_asterism(workload, parquet, cores if mode == ASTERISM else 1)
    if mode == SPARK:
        spark = harness.session(cores, "4g")
        found: Callable[[], pa.Table] = lambda: workload.matches(spark.read.parquet(parquet)).toArrow()  # noqa: E731
        return found
    if workload.name not in SQL:
        return None
    if mode == DUCKDB:
        import duckdb

        connection = duckdb.connect(":memory:", config={"threads": cores})
        connection.execute(f"CREATE VIEW events AS FROM read_parquet('{parquet}/*.parquet')")
        return lambda: connection.sql(SQL[workload.name]).to_arrow_table()
    try:
        import polars as pl
    except ImportError:
        return None
    query = _in_polars(pl)[workload.name]
    return lambda: query(pl.scan_parquet(f"{parquet}/*.parquet")).collect().to_arrow()


def measured(
    workload: Workload, mode: str, size: str, data: Path, number: int, query: Callable[[], pa.Table]
) -> dict[str, Any]:
    begin, cpu = time.perf_counter(), _cpu()
    matches = query()
    seconds, cpu = time.perf_counter() - begin, _cpu() - cpu
    times = workload.times(matches, as_columns=mode in (DUCKDB, POLARS))
    answer = (matches.num_rows, harness.checksum(workload.tag, times))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {
        "workload": workload.name, "mode": mode, "round": number, "seconds": round(seconds, 3), "cpu_s": round(cpu, 3),
        "matches": answer[0], "ok": answer == harness.expected(size, workload.name), "peak_rss_mb": peak,
    }  # fmt: skip


def _cpu() -> float:
    """Of this process and its children, such as the JVM."""
    return sum(seconds for _, seconds in harness.family_use().values())


def main(arguments: list[str] | None = None) -> int:
    cli = harness.command_line("tables", "Measure W1 to W5 over tables.")
    cli.add_argument("--workloads", default=",".join(WORKLOADS), help="default: all")
    cli.add_argument("--modes", default=",".join(MODES), help=f"default: all, {', '.join(MODES)}".replace("%", "%%"))
    cli.add_argument("--runs", type=int, default=3, help="runs after those that warm up")
    cli.add_argument("--warm-ups", type=int, default=2)
    cli.add_argument("--cores", type=int, default=2)
    args = cli.parse_args(arguments)
    data = harness.data_folder(args.size, args.data)
    ok = True
    for name in args.workloads.split(","):
        for mode in args.modes.split(","):
            workload = WORKLOADS[name]
            query = query_of(mode, workload, str(data / "parquet"), args.cores)
            for number in range(1 - args.warm_ups, args.runs + 1) if query is not None else ():
                assert query is not None
                record = measured(workload, mode, args.size, data, max(number, 0), query)
                ok = ok and record["ok"]
                print(json.dumps(record), flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
