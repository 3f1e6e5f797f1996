"""``make cluster ARGS="--size S"``: all workloads on a cluster, undisturbed, and with workers that are killed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from benchmarks.gen_data import SIZES, Parameters
from benchmarks.windows import WINDOWS
from benchmarks.workloads import WORKLOADS
from tests.cluster.processes import Cluster
from tests.cluster.runs import answer, data_of, expected, run

QUERIES = [*WORKLOADS, "W6", *WINDOWS]
KILLED_IN = (0, 1)
"""The micro-batches with data."""


def by_batch(rows: pa.Table) -> list[str]:
    """The rows of each micro-batch as comparable text."""
    return sorted(str(row) for row in rows.to_pylist())


def main() -> int:
    cli = argparse.ArgumentParser(prog="python -m tests.cluster")
    cli.add_argument("--size", choices=list(SIZES), default="XS")
    cli.add_argument("--queries", default=",".join(QUERIES), help="default: all")
    args = cli.parse_args()
    differences = 0
    with tempfile.TemporaryDirectory(prefix="asterism-cluster-") as scratch:
        data, folder = Path(scratch, "data"), Path(scratch, "cluster")
        folder.mkdir()
        data_of(Parameters.of_size(args.size), data)
        for query in args.queries.split(","):
            names = [query, *(f"{query}_{batch}" for batch in KILLED_IN)]
            place = folder / f"{query} runs"
            place.mkdir()
            with Cluster(place) as cluster:
                found = run(cluster, data, place, names)
            for name, rows in found.items():
                right = answer(query, rows, data) == expected(query, args.size, data)
                same = by_batch(rows) == by_batch(found[query])
                differences += not (right and same)
                seconds = (place / name / "seconds").read_text()
                print(
                    f"{name:12}{rows.num_rows:>10} rows  {'' if right and same else 'DIFFERENT'}  {seconds} s",
                    flush=True,
                )
    print(f"{differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
