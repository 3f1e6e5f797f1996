"""The outputs and metrics that the class of an operator or of a function declares, while it runs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from asterism.operators.histograms import add_values
from asterism.operators.key_group import Group
from asterism.operators.stream_operator import Counter, Gauge, Histogram, Output, RunningOperator, declared_in


@dataclass(frozen=True, slots=True)
class Emitted:
    """What a call has added to outputs and metrics, by name."""

    outputs: Mapping[str, pa.Table] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)

    def add_to(self, group: Group) -> None:
        for name, rows in self.outputs.items():
            group.emit(name, rows)
        for name, count in self.counts.items():
            group.metrics[name] += count
        group.gauges.update(self.gauges)
        for name, histogram in self.histograms.items():
            add_values(group.metrics, group.gauges, name, histogram)


class Tools:
    """The outputs and metrics of a running operator or function, whose attributes they become."""

    def __init__(self, runtime: RunningOperator) -> None:
        declared = type(runtime.operator)
        self.outputs: dict[str, Output] = {
            name: output.running_in(runtime) for name, output in declared_in(declared, Output).items()
        }
        self.counters: dict[str, Counter] = {
            name: counter.running_in(runtime) for name, counter in declared_in(declared, Counter).items()
        }
        self.gauges: dict[str, Gauge] = {
            name: gauge.running_in(runtime) for name, gauge in declared_in(declared, Gauge).items()
        }
        self.histograms: dict[str, Histogram] = {
            name: histogram.running_in(runtime) for name, histogram in declared_in(declared, Histogram).items()
        }
        self.reset()
        runtime.operator.__dict__["_tools"] = self.outputs | self.counters | self.gauges | self.histograms

    def reset(self) -> None:
        """Discard what was added."""
        for output in self.outputs.values():
            output.rows, output.tables = [], []
        for counter in self.counters.values():
            counter.count = 0
        for gauge in self.gauges.values():
            gauge.reset()
        for histogram in self.histograms.values():
            histogram.reset()

    def taken(self) -> Emitted:
        """What was added since the last call of this method or of :meth:`reset`.

        :raises OperatorError: a row does not fit its output
        """
        rows = {name: output.take() for name, output in self.outputs.items()}
        emitted = Emitted(
            {name: table for name, table in rows.items() if table is not None},
            {name: counter.count for name, counter in self.counters.items() if counter.count},
            {name: gauge.last for name, gauge in self.gauges.items() if gauge.last is not None},
            {name: copy.copy(histogram) for name, histogram in self.histograms.items() if any(histogram.counts)},
        )
        self.reset()
        return emitted
