"""Histograms in the results of calls: numbers by name, which the host adds up, and their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

SUM, LEAST, GREATEST = "sum", "min", "max"


def count_name(histogram: str, bucket: int) -> str:
    """The name of the number of values up to the bound of a bucket; after the last one, of all values."""
    return f"{histogram}/{bucket}"


def value_name(histogram: str, what: str) -> str:
    """The name of SUM, LEAST or GREATEST."""
    return f"{histogram}/{what}"


@dataclass(frozen=True, slots=True)
class HistogramStatistics:
    """The statistics of a histogram.

    :ivar count: the number of values
    :ivar min: the least value; *max*: the greatest one; None if there are no values
    :ivar buckets: the number of values that are not greater than each bound
    """

    count: int
    sum: float
    min: float | None
    max: float | None
    buckets: Mapping[float, int]

    @classmethod
    def of(
        cls, name: str, bounds: Sequence[float], calls: Iterable[tuple[Mapping[str, int], Mapping[str, float]]]
    ) -> HistogramStatistics:
        """The statistics of a histogram from the counts and values in the results of several calls."""
        results = list(calls)
        numbers = [
            sum(counts.get(count_name(name, bucket), 0) for counts, _ in results) for bucket in range(len(bounds) + 1)
        ]
        least, greatest = value_name(name, LEAST), value_name(name, GREATEST)
        return cls(
            numbers[-1],
            sum(values.get(value_name(name, SUM), 0.0) for _, values in results),
            min((values[least] for _, values in results if least in values), default=None),
            max((values[greatest] for _, values in results if greatest in values), default=None),
            dict(zip(bounds, numbers, strict=False)),
        )

    def plus(self, other: HistogramStatistics) -> HistogramStatistics:
        """The statistics of both histograms, which have the same bounds."""
        return HistogramStatistics(
            self.count + other.count,
            self.sum + other.sum,
            min((value for value in (self.min, other.min) if value is not None), default=None),
            max((value for value in (self.max, other.max) if value is not None), default=None),
            {bound: count + other.buckets.get(bound, 0) for bound, count in self.buckets.items()},
        )

    @property
    def mean(self) -> float | None:
        """The mean of the values; None if there are none."""
        return self.sum / self.count if self.count else None


Number = int | float | HistogramStatistics
"""A count, a gauge or a histogram."""
