"""The metrics of a call, of which many may count things with fixed names, such as rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from asterism.columns.arrays import Ints


class Counted(NamedTuple):
    """The *counts* of some of *names*, with distinct *numbers* in them."""

    names: Sequence[str]
    numbers: Ints
    counts: Ints


class CallMetrics(Mapping[str, int]):
    """Metrics by name, which are put together when somebody reads them.

    :ivar named: those that have names at once
    :ivar counted: the others
    """

    def __init__(self, named: Mapping[str, int], counted: Sequence[Counted] = ()) -> None:
        self.named, self.counted = named, counted

    @cached_property
    def _all(self) -> Mapping[str, int]:
        metrics = dict(self.named)
        for names, numbers, counts in self.counted:
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                metrics[names[number]] = metrics.get(names[number], 0) + count
        return metrics

    @classmethod
    def of(cls, metrics: Mapping[str, int]) -> CallMetrics:
        return metrics if isinstance(metrics, CallMetrics) else cls(metrics)

    def __getitem__(self, name: str) -> int:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)
