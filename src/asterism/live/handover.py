"""What the sinks of a live engine have taken from a call that has no effect in the end, so that they do not get it twice.

A call may fail in its second sink, or be taken back because nobody gets its rows. Its batch is then sent again, also after a
restart, and gives the same rows. See docs/decisions/0156.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from asterism.operators.operator import Arrival

Handed = Mapping[str, Mapping[str, str]]
"""By input, the digests of what sinks have taken from the last batch, which is sent again; by output. The input of a call
without a batch, such as that of a timer, is "".
"""


@dataclass
class Handover:
    """The rows of a call on their way to the sinks.

    :param input: the input with a batch; None: none has
    :param position: that of the batch, as JSON
    :param before: what was handed over before the call
    """

    input: str | None
    position: str | None
    arrivals: Sequence[Arrival]
    before: Handed
    taken: dict[str, pa.Table] = field(default_factory=dict)
    """The rows that sinks have taken, in this call or before it, by output."""

    def repeats(self, output: str, rows: pa.Table) -> bool:
        """Whether the sink of an output has taken these rows before the call."""
        digest = self.before.get(self._name, {}).get(output)
        return digest is not None and digest == self._digest(rows)

    @property
    def after(self) -> Handed:
        """What has been handed over after the call, if it has no effect."""
        if not self.taken:
            return self.before
        return {**self.before, self._name: {output: self._digest(rows) for output, rows in self.taken.items()}}

    @property
    def remaining(self) -> Handed:
        """What has been handed over after the call, if it has succeeded: its batch does not come again. A call without a batch,
        and batches of other inputs, may come before one that is sent again; timers that have not fired fire in any call.
        """
        return {name: digests for name, digests in self.before.items() if name not in (self._name, "")}

    @property
    def _name(self) -> str:
        return self.input or ""

    @cached_property
    def _call(self) -> bytes:
        """What identifies the call: its batch and its position."""
        batch = [(each.input, _values(each.events), each.watermark, dict(each.partitions)) for each in self.arrivals]
        return repr((self.input, self.position, batch)).encode()

    def _digest(self, rows: pa.Table) -> str:
        return hashlib.sha256(self._call + repr(_values(rows)).encode()).hexdigest()


def _values(table: pa.Table | None) -> Any:
    return None if table is None else (table.column_names, table.to_pylist())
