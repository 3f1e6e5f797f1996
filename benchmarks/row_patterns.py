"""MATCH_RECOGNIZE over tables, without Spark: ``python -m benchmarks.row_patterns --size S``.

One JSON line per case and round on standard output; round 0 warms up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.result_rows import match_table
from benchmarks import harness

PRICES = harness.HERE.parent / "examples" / "data" / "stock_prices.parquet"
LONG_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class Case:
    clause: str
    rows: Callable[[Path], pa.Table]
    """Of the folder of the events."""


def _events(folder: Path) -> pa.Table:
    return pq.read_table(folder / "parquet")


def _prices(folder: Path) -> pa.Table:
    return pq.read_table(PRICES)


def _ramp(folder: Path) -> pa.Table:
    """One partition."""
    numbers = np.arange(LONG_ROWS)
    return pa.table({"ts": numbers, "v": numbers % 1000})


_V = "PATTERN (A D+ U+) DEFINE D AS close < PREV(close), U AS close > PREV(close)"
LONG = "a match of 500,000 rows"
CASES = {
    "V shapes": Case(
        "PARTITION BY symbol ORDER BY date MEASURES A.close AS high, LAST(D.close) AS low, LAST(U.close) AS back,"
        f" COUNT(*) AS days {_V}",
        _prices,
    ),
    "V shapes, ALL ROWS": Case(
        "PARTITION BY symbol ORDER BY date MEASURES MATCH_NUMBER() AS match, CLASSIFIER() AS part,"
        f" LAST(D.close) AS low, COUNT(*) AS days ALL ROWS PER MATCH {_V}",
        _prices,
    ),
    "alternation": Case(
        "PARTITION BY user_id ORDER BY ts MEASURES V.event_time AS first, B.event_time AS bought, COUNT(*) AS events"
        " PATTERN (V (C | S V)* B) DEFINE V AS kind = 'view', C AS kind = 'cart', S AS kind = 'search', B AS kind = 'buy'",
        _events,
    ),
    "sessions by gap": Case(
        "PARTITION BY user_id ORDER BY ts MEASURES FIRST(event_time) AS begun, LAST(event_time) AS over, COUNT(*) AS events"
        " PATTERN (A B*) DEFINE B AS event_time - PREV(event_time) <= 300000",
        _events,
    ),
    "condition on the match so far": Case(
        "PARTITION BY symbol ORDER BY date MEASURES A.close AS bought, MAX(B.close) AS high, C.close AS sold"
        " PATTERN (A B+ C) DEFINE B AS close >= A.close, C AS close < 0.95 * MAX(B.close)",
        _prices,
    ),
    LONG: Case(
        "ORDER BY ts MEASURES FIRST(ts) AS begun, LAST(ts) AS over, SUM(B.v) AS total"
        " PATTERN (A B* C) DEFINE A AS v = 0, B AS v >= 0, C AS v = 999",
        _ramp,
    ),
}


def main(arguments: list[str] | None = None) -> None:
    cli = harness.command_line("row_patterns", "Measure MATCH_RECOGNIZE over tables.")
    cli.add_argument("--runs", type=int, default=3, help="rounds after the warm-up")
    args = cli.parse_args(arguments)
    folder = harness.data_folder(args.size, args.data)
    for name, case in CASES.items():
        rows = case.rows(folder)
        clause = check(read(case.clause), rows.schema)
        for number in range(args.runs + 1):
            begin, cpu = time.perf_counter(), time.process_time()
            found = match_table(clause, rows)
            seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
            record = {
                "case": name,
                "round": number,
                "rows": rows.num_rows,
                "seconds": round(seconds, 4),
                "cpu_s": round(cpu, 4),
                "rows_per_s": round(rows.num_rows / seconds),
                "found": found.num_rows,
            }
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
