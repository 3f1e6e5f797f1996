"""``make hosts ARGS="--kinds pattern"``: queries on hosts that share nothing but HDFS, while links and hosts fail."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from tests.discovery.servers import NoServerError
from tests.hosts.cluster import Cluster
from tests.hosts.namespaces import check_machine
from tests.hosts.runs import FAULTS, SCENARIOS, Outcome, Scenario, outcome
from tests.kit import clean_up_on_sigterm
from tests.servers.jars import jars

_ROW = "{:45}{:>8}{:>8}{:>10}{:>13}{:>9}"


def main() -> int:
    cli = argparse.ArgumentParser(prog="python -m tests.hosts")
    cli.add_argument("--kinds", help="of queries; default: each without a fault, and the pattern with each fault")
    cli.add_argument("--faults", help=f"some of {', '.join(FAULTS)}")
    cli.add_argument(
        "--checkpoint", default="hdfs", choices=["hdfs", "s3"], help="where it is, with --kinds or --faults"
    )
    cli.add_argument("--files", type=int, default=8, help="micro-batches with data")
    cli.add_argument("--keep", action="store_true", help="keep the folders of the hosts")
    args = cli.parse_args()
    clean_up_on_sigterm()
    try:
        check_machine()
        for name in ("hdfs", "s3a", "kafka", "broker"):
            jars(name)
    except NoServerError as error:
        print(error, file=sys.stderr)
        return 2
    scenarios = SCENARIOS
    if args.kinds or args.faults:
        kinds = args.kinds.split(",") if args.kinds else ["pattern"]
        faults = args.faults.split(",") if args.faults else ["none"]
        scenarios = [Scenario(*pair, args.checkpoint) for pair in itertools.product(kinds, faults)]
    rows, wrong = [], 0
    for number, (scenario, result, seconds) in enumerate(_outcomes(scenarios, args.files, args.keep), 1):
        rows.append(_row(scenario, result, seconds))
        wrong += result is None or bool(result.verdict.differences)
        print(f"{number:>2}/{len(scenarios)} {rows[-1]}", flush=True)
        if result is not None:
            print(result.verdict.tell(), end="", flush=True)
    print("", _ROW.format("query: fault", "batches", "rows", "next (s)", "differences", "seconds"), *rows, sep="\n")
    print(f"{wrong} of {len(scenarios)} are wrong")
    return 1 if wrong else 0


def _outcomes(
    scenarios: Sequence[Scenario], files: int, keep: bool
) -> Iterator[tuple[Scenario, Outcome | None, float]]:
    """Each with its seconds; None for what has failed. They share hosts, except for faults that do not pass."""
    for shared, group in itertools.groupby(scenarios, lambda scenario: scenario.passes):
        with ExitStack() as hosts:
            cluster: Cluster | None = None
            for scenario in group:
                begin, result = time.monotonic(), None
                try:
                    if cluster is None:
                        cluster = hosts.enter_context(Cluster(scenario.seconds, keep=keep))
                    result = outcome(cluster, scenario, files)
                except Exception:
                    traceback.print_exc()
                if result is None or not shared:
                    hosts.close()
                    cluster = None
                yield scenario, result, time.monotonic() - begin


def _row(scenario: Scenario, result: Outcome | None, seconds: float) -> str:
    if result is None:
        return _ROW.format(str(scenario), "-", "-", "-", "failed", f"{seconds:.0f}")
    verdict = result.verdict
    numbers = (verdict.batches, verdict.rows.total(), f"{result.seconds:.1f}", len(verdict.differences))
    return _ROW.format(str(scenario), *numbers, f"{seconds:.0f}")


if __name__ == "__main__":
    sys.exit(main())
