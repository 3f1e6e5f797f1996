"""W1 to W6 on Flink CEP, W1 to W3 on Flink SQL: ``python -m benchmarks.flink --size S``, or ``--download`` for its jars.

One JSON line per run on standard output. A result that is not the expected one makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks import flink, harness
from benchmarks.gen_data import SIZES


def main(arguments: list[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m benchmarks.flink", description="Measure W1 to W6 on Flink CEP.")
    cli.add_argument("--download", action="store_true", help="only download Flink's jars, into benchmarks/data/flink")
    cli.add_argument("--size", choices=list(SIZES), default="S")
    cli.add_argument(
        "--data", type=Path, help="folder of the data, generated if absent; default: benchmarks/data/<size>"
    )
    cli.add_argument("--workloads", default="W1,W2,W3,W4,W5", help="default: W1 to W5")
    cli.add_argument("--variants", default=",".join(flink.VARIANTS), help="separated by commas; default: all")
    cli.add_argument("--runs", type=int, default=3, help="runs after the warm-up")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--memory", default="8g", help="heap of the JVM")
    cli.add_argument("--limit", type=float, default=3600, help="seconds after which a program is ended")
    args = cli.parse_args(arguments)
    if args.download:
        print(flink.download(), file=sys.stderr)
        return 0
    library = flink.library()
    if library is None:
        raise SystemExit(
            "Flink's jars are not there: set FLINK_LIB to their folder, or call python -m benchmarks.flink --download"
        )
    data = harness.data_folder(args.size, args.data, binary=True)
    ok = True
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as classes:
        flink.build(library, Path(classes))
        for workload in args.workloads.split(","):
            for variant in (flink.VARIANTS[name] for name in args.variants.split(",")):
                if workload not in variant.workloads:
                    continue
                for record in flink.run(
                    library, Path(classes), workload, variant,
                    data=data, runs=args.runs + 1, cores=args.cores, heap=args.memory, limit=args.limit,
                ):  # fmt: skip
                    if "matches" in record:
                        answer = (record["matches"], record["checksum"])
                        record["ok"] = answer == harness.expected(args.size, workload)
                        ok = ok and record["ok"]
                    print(json.dumps(record), flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
