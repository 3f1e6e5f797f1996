"""``make hosts ARGS="--kinds pattern"``: queries on hosts that share nothing but HDFS, while links and hosts fail."""

from __future__ import annotations

import argparse
import itertools
import sys
import traceback

from tests.discovery.servers import NoServerError
from tests.hosts.cluster import Cluster
from tests.hosts.namespaces import check_machine
from tests.hosts.runs import FAULTS, outcome
from tests.nemesis.queries import QUERIES


def main() -> int:
    cli = argparse.ArgumentParser(prog="python -m tests.hosts")
    cli.add_argument("--kinds", help="of queries; default: all without a fault, and the pattern with each fault")
    cli.add_argument("--faults", help=f"some of {', '.join(FAULTS)}")
    cli.add_argument("--files", type=int, default=8, help="micro-batches with data")
    cli.add_argument("--keep", action="store_true", help="keep the folders of the hosts")
    args = cli.parse_args()
    try:
        check_machine()
    except NoServerError as error:
        print(error, file=sys.stderr)
        return 2
    pairs = [*((kind, "none") for kind in QUERIES), *(("pattern", fault) for fault in FAULTS if fault != "none")]
    if args.kinds or args.faults:
        kinds = args.kinds.split(",") if args.kinds else ["pattern"]
        pairs = list(itertools.product(kinds, args.faults.split(",") if args.faults else ["none"]))
    wrong = 0
    for kind, fault in pairs:  # each with hosts of its own, because some do not survive it
        try:
            with Cluster(keep=args.keep) as cluster:
                found = outcome(cluster, kind, fault, kind, args.files)
        except Exception:
            traceback.print_exc()
            wrong += 1
            continue
        verdict = found.verdict
        wrong += bool(verdict.differences)
        print(
            f"{kind:14}{fault:28}{verdict.batches:>4} micro-batches  {verdict.rows.total():>5} rows  next after"
            f" {found.seconds:5.1f} s  {found.starts} failures  {len(verdict.differences)} differences",
            flush=True,
        )
        print(verdict.tell(), end="")
    print(f"{wrong} of {len(pairs)} are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
