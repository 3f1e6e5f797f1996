"""Many partial matches of one key: ``python -m benchmarks.open_matches``, without Spark.

*n* clicks of a user, each of which begins a partial match, and then what completes all of them, or ends them one by one. The CPU
time must grow with *n*: an event that partial matches only ignore does not visit them. One JSON line per case and size. The exit
status is 1 if four times as many clicks take more than ten times as long.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from datetime import timedelta

import numpy as np
import pyarrow as pa

from asterism import AfterMatchSkipStrategy, Pattern
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore

LONG = timedelta(days=30)
MOST_GROWTH = 10.0
LEAST_SECONDS = 0.2
"""Below, a measurement tells nothing."""


def _pattern(skip: AfterMatchSkipStrategy, within: timedelta = LONG) -> Pattern:
    return Pattern.begin("a", skip).where("kind = 'click'").followed_by("b").where("kind = 'buy'").within(within)


CASES: Mapping[str, tuple[Pattern, bool]] = {
    "clicks": (_pattern(AfterMatchSkipStrategy.no_skip()), False),
    "completed at once": (_pattern(AfterMatchSkipStrategy.no_skip()), True),
    "skip to next": (_pattern(AfterMatchSkipStrategy.skip_to_next()), True),
    "time out one by one": (_pattern(AfterMatchSkipStrategy.no_skip(), timedelta(seconds=1000)), False),
    "absence": (
        Pattern.begin("a")
        .where("kind = 'click'")
        .not_followed_by("b")
        .where("kind = 'buy'")
        .within(timedelta(hours=1)),
        False,
    ),
}


def measured(pattern: Pattern, clicks: int, ends: bool) -> tuple[float, int]:
    """(CPU time in seconds, number of matches)"""
    kinds = ["click"] * clicks + ["buy"] * ends
    events = pa.table({"user": ["u"] * len(kinds), "ts": np.arange(len(kinds)) * 1000, "kind": kinds})
    outputs = {"matches": OutputSpec(OutputKind.MATCHES, ("FIRST(a.ts) AS begun",))}
    operator = CepOperator(pattern, events.schema, time="ts", keys=["user"], outputs=outputs, max_partial_matches=None)
    prepared, store = operator.prepare(EVENTS, events), MemoryStore()
    begin = time.process_time()
    first = operator.process(store, [Arrival(EVENTS, prepared)], Now()).outputs
    last = operator.process(store, [], Now(2**63 - 1)).outputs
    seconds = time.process_time() - begin
    return seconds, sum(found["matches"].num_rows for found in (first, last) if "matches" in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=50_000, help="the second size is four times as many")
    clicks = parser.parse_args().clicks
    status = 0
    measured(CASES["clicks"][0], 5_000, False)  # compiles
    measured(CASES["clicks"][0], 5_000, False)
    for name, (pattern, ends) in CASES.items():
        seconds = []
        for size in (clicks, 4 * clicks):
            spent, matches = measured(pattern, size, ends)
            seconds.append(spent)
            print(json.dumps({"case": name, "clicks": size, "cpu_s": round(spent, 3), "matches": matches}), flush=True)
        if seconds[1] > max(MOST_GROWTH * seconds[0], LEAST_SECONDS):
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
