"""``make nemesis ARGS="--kills 1000 --seed 7"``: lives of all kinds, until so many faults have happened."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.kit import clean_up_on_sigterm
from tests.nemesis.life import STORED, Fault, Life, drawn, points_of
from tests.nemesis.queries import QUERIES
from tests.nemesis.replay import Verdict
from tests.nemesis.storages import STORAGES, Storage

_MANY = 24
"""Faults."""


@dataclass
class Tally:
    """What came of all lives."""

    kills: int
    table: dict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    rows: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    never: dict[str, set[str]] = field(default_factory=dict)
    """By kind: points that no life has passed."""
    lives: int = 0
    begin: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, life: Life, verdict: Verdict | None, error: Exception | None) -> None:
        with self.lock:
            self.lives += 1
            at = set()
            if verdict is None:
                self.failed.append(f"{life.folder}: {type(error).__name__}: {error}")
                print(self.failed[-1])
            else:
                self.rows.update(verdict.rows)
                self.rows["(micro-batches)"] += verdict.batches
                at = {one[0] for one in verdict.differences}
                never = life.never_passed
                self.never[life.kind] = self.never.get(life.kind, never) & never
                if verdict.differences:
                    self.failed.append(f"{life.folder} (seed {life.seed}):\n{verdict.tell()}")
                    print(self.failed[-1])
                else:
                    shutil.rmtree(life.folder)
            for one in life.outcomes:
                count = self.table[one.fault.point, one.fault.name]
                count.update(tried=1, hit=one.hit, recovered=one.recovered)
                count["rows"] += 0 if verdict is None else sum(verdict.rows.values())
                count["different"] += bool({one.batch, one.batch + 1} & at) and one.hit
            tried, hit = (sum(count[name] for count in self.table.values()) for name in ("tried", "hit"))
            summary = (
                f"{verdict.batches} micro-batches, {len(verdict.differences)} differences" if verdict else "no verdict"
            )
            print(
                f"{life.kind} {life.seed}: {summary}, {life.starts} starts; {tried} of {self.kills} faults, {hit} happened, "
                f"{(time.monotonic() - self.begin) / 60:.0f} min",
                flush=True,
            )

    def tell(self) -> int:
        print(f"\n{'point':<26}{'fault':<14}{'tried':>6}{'hit':>6}{'went on':>9}{'rows':>9}{'differ':>8}")
        for (point, fault), count in sorted(self.table.items()):
            values = [count[name] for name in ("tried", "hit", "recovered", "rows", "different")]
            print(f"{point:<26}{fault:<14}" + "{:>6}{:>6}{:>9}{:>9}{:>8}".format(*values))
        print(", ".join(f"{count} {name}" for name, count in sorted(self.rows.items())))
        never = [f"{kind}: never passed: {', '.join(sorted(points))}" for kind, points in self.never.items() if points]
        print(f"{len(self.failed)} of {self.lives} lives failed" + "".join(f"\n{one}" for one in self.failed + never))
        return 1 if self.failed or never else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make nemesis", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="how many faults (default: 100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(QUERIES), help=f"default: {','.join(QUERIES)}")
    parser.add_argument("--faults", type=int, default=12, help="of one life (default: 12)")
    parser.add_argument("--at-once", type=int, default=1, help="lives that run at the same time (default: 1)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no life after that")
    parser.add_argument(
        "--only", type=int, help="of the lives that the seed gives, this one alone: to repeat a failure"
    )
    parser.add_argument(
        "--checkpoint", choices=["local", *STORAGES], default="local", help="where it is; the storage is harmed, too"
    )
    parser.add_argument("--lakes", action="store_true", help="rows also go to Delta and Iceberg, with Spark 4.1")
    options = parser.parse_args()
    clean_up_on_sigterm()
    storage = STORAGES[options.checkpoint]() if options.checkpoint in STORAGES else None
    try:
        return lives(options, storage)
    finally:
        if storage is not None:
            storage.remove()


def lives(options: argparse.Namespace, storage: Storage | None) -> int:
    tally = Tally(options.kills)
    work = Path(tempfile.mkdtemp(prefix="nemesis-"))
    java = ""
    if options.kills >= _MANY:
        # Half of what a start costs is loading Spark's classes, so a life without faults puts them into an archive.
        classes = work / "spark.jsa"
        print("a life without faults", flush=True)
        peaceful = Life(work / "0000", "rules", 0, [], java=f"-XX:ArchiveClassesAtExit={classes}", lakes=options.lakes)
        tally.add(peaceful, peaceful.run(), None)
        java = f"-XX:SharedArchiveFile={classes}"

    def live(number: int, kind: str, seed: int, faults: list[Fault]) -> None:
        if time.monotonic() - tally.begin > 60 * options.minutes:
            return
        print(f"life {number}: {kind}, {len(faults)} faults; again: --seed {options.seed} --only {number}", flush=True)
        life = Life(
            work / f"{number:04}-{kind}",
            kind,
            seed,
            faults,
            partial(print, flush=True),
            java,
            storage,
            options.lakes,
        )
        verdict = failure = None
        try:
            verdict = life.run()
        except Exception as error:
            failure = error
        tally.add(life, verdict, failure)

    drawn_ones = drawn_lives(
        random.Random(options.seed), options.kills, options.faults, options.kinds.split(","), storage
    )
    chosen = [one for one in drawn_ones if options.only in (None, one[0])]
    if options.at_once == 1:  # in this thread, which SIGTERM ends
        for one in chosen:
            live(*one)
        return tally.tell()
    with ThreadPoolExecutor(options.at_once) as executor:
        for running in [executor.submit(live, *one) for one in chosen]:
            running.result()
    return tally.tell()


def drawn_lives(
    rng: random.Random, kills: int, most: int, kinds: list[str], storage: Storage | None = None
) -> Iterator[tuple[int, str, int, list[Fault]]]:
    """Number, kind, seed and faults of each life: every point once, then all again; every third fault is one of the storage."""
    harms: list[str] = []
    points: dict[str, list[str]] = {kind: [] for kind in kinds}
    number = 0
    while kills > 0:
        kind = kinds[number % len(kinds)]
        number += 1
        seed = rng.randrange(10**9)
        faults = []
        for n in range(min(most, kills)):
            if storage is not None and n % 3 == 1:
                harms = harms or rng.sample(sorted(storage.harms), len(storage.harms))
                faults.append(Fault(n, STORED, 1, "storage", harms.pop(), rng.choice([2.0, 6.0, 12.0])))
                continue
            if not points[kind]:
                points[kind] = rng.sample(points_of(kind, storage), len(points_of(kind, storage)))
            faults.append(drawn(rng, n, points[kind].pop()))
        kills -= len(faults)
        yield number, kind, seed, faults


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # DuckDB's bindings would tell, over the table, what they have not freed
