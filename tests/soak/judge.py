"""Does something grow? Lines through what was measured after a warm-up, and the limits of their slopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

WARM_UP = 0.4
"""The part of a run that does not count: caches fill, code is compiled, Spark's logs come to the length that they keep."""
FEW = 8
"""So many measurements are needed for a verdict."""


@dataclass(frozen=True)
class Limit:
    """:param slope: what may be gained in a micro-batch
    :param noise: what may be gained in all, however short the run
    :param why: the reason for the two
    """

    slope: float
    noise: float
    unit: str
    why: str


LIMITS: Mapping[str, Limit] = {
    "jvm_heap": Limit(0.02, 25, "MB", "after a collection; Spark keeps the last executions for its UI, up to a number"),
    "worker_rss": Limit(0.02, 25, "MB", "the largest Python process; allocators give back in pieces"),
    "python_rss": Limit(0.05, 80, "MB", "all Python processes; Spark starts and ends some"),
    "checkpoint_files": Limit(0.3, 150, "files", "the file source's log gains one in ten; Spark deletes in turns"),
    "checkpoint_mb": Limit(0.002, 2, "MB", "the file source's log knows every file; the state is bounded"),
    "store_files": Limit(0.05, 110, "files", "sets of rules: the last 100 stay"),
    "latency": Limit(0.0005, 0.35, "s", "median of the micro-batches since the last measurement"),
}


@dataclass(frozen=True)
class Finding:
    name: str
    first: float
    last: float
    slope: float
    gained: float
    grows: bool


def judged(samples: Sequence[Mapping[str, float]]) -> list[Finding]:
    """*samples* have ``batch``, the number of the micro-batch, and values of LIMITS.

    :raises ValueError: there are too few
    """
    counted = [sample for sample in samples if sample["batch"] >= WARM_UP * samples[-1]["batch"]]
    if len(counted) < FEW:
        raise ValueError(f"{len(counted)} measurements after the warm-up; {FEW} are needed: let it run longer")
    found = []
    for name, limit in LIMITS.items():
        points = [(sample["batch"], sample[name]) for sample in counted if name in sample]
        if len(points) < FEW:
            continue
        slope = slope_of(points)
        batches = points[-1][0] - points[0][0]
        gained = slope * batches
        grows = gained > max(limit.noise, limit.slope * batches)
        third = max(len(points) // 3, 1)
        first, last = (median(value for _, value in part) for part in (points[:third], points[-third:]))
        found.append(Finding(name, first, last, slope, gained, grows))
    return found


def slope_of(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between any two points (Theil and Sen): one that lies off moves nothing."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2]
    return median(slopes) if slopes else 0.0
