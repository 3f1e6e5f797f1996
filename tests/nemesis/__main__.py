"""``make nemesis ARGS="--kills 1000 --seed 7"``: lives of all kinds, until so many faults have happened."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

from tests.nemesis.life import Life, drawn, points_of
from tests.nemesis.queries import QUERIES


def main() -> int:
    parser = argparse.ArgumentParser(prog="make nemesis", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="how many faults (default: 100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(QUERIES), help=f"default: {','.join(QUERIES)}")
    parser.add_argument("--faults", type=int, default=12, help="of one life (default: 12)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no life after that")
    parser.add_argument(
        "--only", type=int, help="of the lives that the seed gives, this one alone: to repeat a failure"
    )
    options = parser.parse_args()
    rng = random.Random(options.seed)
    kinds = options.kinds.split(",")
    points: dict[str, list[str]] = {kind: [] for kind in kinds}
    table: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    rows: Counter[str] = Counter()
    failed: list[str] = []
    begin, done, number = time.monotonic(), 0, 0
    work = Path(tempfile.mkdtemp(prefix="nemesis-"))
    while done < options.kills and time.monotonic() - begin < 60 * options.minutes:
        kind = kinds[number % len(kinds)]
        number += 1
        seed = rng.randrange(10**9)
        faults = []
        for n in range(min(options.faults, options.kills - done)):
            if not points[kind]:  # every point once, then all again
                points[kind] = rng.sample(points_of(kind), len(points_of(kind)))
            faults.append(drawn(rng, n, points[kind].pop()))
        done += len(faults)
        if options.only not in (None, number):
            continue
        folder = work / f"{number:04}-{kind}"
        print(f"life {number}: {kind}, {len(faults)} faults; again: --seed {options.seed} --only {number}", flush=True)
        life = Life(folder, kind, seed, faults, partial(print, flush=True))
        try:
            verdict = life.run()
        except Exception as error:
            failed.append(f"{folder}: {type(error).__name__}: {error}")
            print(failed[-1])
            verdict = None
        at = set()
        if verdict is not None:
            rows.update(verdict.rows)
            rows["(micro-batches)"] += verdict.batches
            at = {one[0] for one in verdict.differences}
            if verdict.differences:
                failed.append(f"{folder} (seed {seed}):\n{verdict.tell()}")
                print(failed[-1])
            elif life.outcomes:
                shutil.rmtree(folder)
        for one in life.outcomes:
            count = table[one.fault.point, one.fault.name]
            count.update(tried=1, hit=one.hit, recovered=one.recovered)
            count["rows"] += 0 if verdict is None else sum(verdict.rows.values())
            count["different"] += bool({one.batch, one.batch + 1} & at) and one.hit
        hit = sum(count["hit"] for count in table.values())
        told = (
            "no verdict"
            if verdict is None
            else f"{verdict.batches} micro-batches, {len(verdict.differences)} differences"
        )
        print(
            f"{kind} {seed}: {told}, {life.starts} starts; {done} of {options.kills} faults, {hit} happened, "
            f"{(time.monotonic() - begin) / 60:.0f} min",
            flush=True,
        )
    print(f"\n{'point':<26}{'fault':<14}{'tried':>6}{'hit':>6}{'went on':>9}{'rows':>9}{'differ':>8}")
    for (point, fault), count in sorted(table.items()):
        values = [count[name] for name in ("tried", "hit", "recovered", "rows", "different")]
        print(f"{point:<26}{fault:<14}" + "{:>6}{:>6}{:>9}{:>9}{:>8}".format(*values))
    print(", ".join(f"{count} {name}" for name, count in sorted(rows.items())))
    print(f"{len(failed)} of {number} lives failed" + "".join(f"\n{one}" for one in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # DuckDB's bindings would tell, over the table, what they have not freed
