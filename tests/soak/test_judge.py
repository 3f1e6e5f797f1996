"""The judge of the soak test sees what grows, and nothing else."""

from __future__ import annotations

import random

import pytest

from tests.soak.judge import LIMITS, judged, slope_of


def test_a_line_through_points_one_of_which_lies_off() -> None:
    points = [(n, 2.0 * n) for n in range(20)]
    points[7] = (7, 1000.0)
    assert slope_of(points) == pytest.approx(2.0)


@pytest.mark.parametrize("leaks", LIMITS)
def test_what_grows_is_seen(leaks: str) -> None:
    rng = random.Random(1)
    samples = []
    for batch in range(0, 3000, 25):
        sample = {"batch": float(batch)}
        for name, limit in LIMITS.items():
            warm = limit.noise * min(batch, 600) / 100
            leak = 3 * limit.slope * batch if name == leaks else 0
            sample[name] = warm + leak + rng.random() * limit.noise / 4
        samples.append(sample)
    assert [finding.name for finding in judged(samples) if finding.grows] == [leaks]


def test_too_short_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="let it run longer"):
        judged([{"batch": float(batch), "latency": 1.0} for batch in range(6)])
