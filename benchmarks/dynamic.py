"""Pattern processors: ``python -m benchmarks.dynamic --size S``.

Runs more and more rules over the same stream. A hundred are W6, whose result must be the expected one; ``--fixed`` runs the first
rule as a pattern without a processor, too. One JSON line per run on standard output.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.spark.host.execution import Sink
from benchmarks import harness, rules, streaming
from benchmarks.gen_data import Parameters
from benchmarks.workloads import DISORDER, KEY, TIME

SERIES = "1,10,100,1000"
FIXED = 0
"""Stands for the number of rules of a pattern without a processor."""


def find(path: Path, events: DataFrame, sinks: Mapping[str, Sink], checkpoint: str) -> None:
    stream = KeyedStream(events, key=KEY, time=TIME, max_out_of_orderness=DISORDER)
    CEP.pattern_processors(stream, FilePatternProcessorDiscovererFactory(path)).run(sinks, checkpoint=checkpoint)


def find_fixed(events: DataFrame, sinks: Mapping[str, Sink], checkpoint: str) -> None:
    rule = rules.processor(rules.rules()[0])
    assert rule.pattern is not None
    stream = KeyedStream(events, key=rule.key, time=TIME, max_out_of_orderness=DISORDER)
    CEP.pattern(stream, rule.pattern).run(sinks, checkpoint=checkpoint)


def run(
    spark: SparkSession,
    size: str,
    files: Path,
    count: int,
    batches: int,
    progress: streaming.Progress,
    number: int,
    *,
    written: bool,
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="asterism-rules-") as folder:
        path = Path(folder, "rules.json")
        path.write_text(json.dumps([processor.to_dict() for processor in rules.some(count)]), encoding="utf-8")
        with harness.PeakMemory() as memory:
            finding = partial(find, path) if count else find_fixed
            result = streaming.measured(
                spark, files, batches, progress, finding, into=streaming.PARQUET if written else streaming.NOOP
            )
    matches, checksum = rules.answer(result.matches) if count and written else (result.matches.num_rows, None)
    expected = harness.expected(size, "W6") if count == len(rules.rules()) and written else None
    return {
        "workload": "W6",
        "rules": count,
        "round": number,
        "events": Parameters.of_size(size).events,
        **result.figures(),
        "matches": matches,
        "checksum": checksum,
        "ok": expected is None or expected == (matches, checksum),
        "peak_rss_mb": round(memory.mb),
    }


def main(arguments: list[str] | None = None) -> int:
    cli = harness.command_line("dynamic", "Measure pattern processors on Spark.")
    cli.add_argument("--counts", default=SERIES, help="numbers of rules")
    cli.add_argument("--fixed", action="store_true", help="also the first rule as a fixed pattern")
    cli.add_argument("--unwritten", action="store_true", help="compute the matches without writing them")
    cli.add_argument("--runs", type=int, default=2, help="rounds after the warm-up")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--batches", type=int, default=3, help="micro-batches that bring events")
    args = cli.parse_args(arguments)
    data = harness.data_folder(args.size, args.data)
    spark = harness.session(args.cores, "6g")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    ok = True
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch, streaming.listening(spark) as progress:
        files = Path(scratch, "files")
        streaming.in_order_of_arrival(data / "parquet", files)
        counts = [FIXED] * args.fixed + [int(count) for count in args.counts.split(",")]
        for number in range(args.runs + 1):
            for count in counts:
                record = run(spark, args.size, files, count, args.batches, progress, number, written=not args.unwritten)
                ok = ok and record["ok"]
                print(json.dumps(record), flush=True)
    spark.stop()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
