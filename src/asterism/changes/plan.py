"""What a change of a query's definition does to its state, as a table, before anything happens."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from asterism.errors import StateError
from asterism.text.html_table import html_table
from asterism.text.view import View

CONTINUES, DROPPED = "continues", "dropped"
MERGED = "merged"
"""The same as another partial match, without the events of stages that were removed."""
ENDED = "ended"
"""Over before the change, and only not removed yet."""


class PlanPart(NamedTuple):
    """A part of the state with one fate.

    :ivar what: such as "partial matches"
    :ivar stage: that of the last event, for partial matches
    :ivar waits_for: the stage that it waited for
    :ivar outcome: CONTINUES, DROPPED, MERGED or ENDED
    :ivar reason: why it is dropped, or how it continues
    """

    what: str
    stage: str
    waits_for: str
    outcome: str
    reason: str


Counts = Counter[PlanPart]


@dataclass(frozen=True)
class SavepointPlan(View):
    """What a new definition does to the state in a savepoint.

    :ivar counts: how many of each part there are
    :ivar notes: what the counts do not show, as sentences
    """

    counts: Mapping[PlanPart, int]
    notes: Sequence[str] = ()

    @property
    def dropped(self) -> int:
        """How many partial matches, windows and other parts of the state would be dropped."""
        return sum(count for part, count in self.counts.items() if part.outcome == DROPPED)

    def to_table(self) -> pa.Table:
        """The plan as a table: ``what``, ``stage``, ``waits_for``, ``outcome``, ``reason`` and ``count``."""
        rows = [{**part._asdict(), "count": count} for part, count in self.rows()]
        texts = [(name, pa.string()) for name in PlanPart._fields]
        return pa.Table.from_pylist(rows, pa.schema([*texts, ("count", pa.int64())]))

    def rows(self) -> list[tuple[PlanPart, int]]:
        """The parts with their counts: first what is dropped."""
        order = (DROPPED, ENDED, MERGED, CONTINUES)
        return sorted(self.counts.items(), key=lambda row: (order.index(row[0].outcome), row[0]))

    def check(self, *, allow_dropped: bool) -> None:
        """:raises StateError: something would be dropped, and that is not allowed"""
        if self.dropped and not allow_dropped:
            lines = [f"{count:,} {described(part)}" for part, count in self.rows() if part.outcome == DROPPED]
            raise StateError(
                f"the new definition drops {self.dropped:,} of {sum(self.counts.values()):,} parts of the state",
                "\n".join([*lines[:_SHOWN], *([f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])]),
                "allow it with allow_dropped=True (--allow-dropped), or change the definition",
            )

    def __str__(self) -> str:
        lines = [f"{count:>12,}  {part.outcome:<9}  {described(part)}" for part, count in self.rows()]
        return "\n".join([*(lines or ["there is no state"]), *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        rows = [[f"{count:,}", part.outcome, described(part)] for part, count in self.rows()]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return html_table(["count", "outcome", "what"], rows) + notes


_SHOWN = 20


def described(part: PlanPart) -> str:
    where = f" after {part.stage}" if part.stage else ""
    where += f", waiting for {part.waits_for}" if part.waits_for else ""
    return f"{part.what}{where}{': ' if part.reason else ''}{part.reason}"


def plan_of(counts: Iterable[Mapping[PlanPart, int]], notes: Sequence[str] = ()) -> SavepointPlan:
    """The plan of a whole savepoint from those of its parts."""
    total: Counts = Counter()
    for each in counts:
        total.update(each)
    return SavepointPlan(dict(total), notes)
