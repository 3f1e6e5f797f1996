"""The state of a MATCH_RECOGNIZE clause, continued with another clause: in a savepoint, and as a rule that adopts.

The state has the rows of each key from the first undecided one on, and not how a match in progress has taken them. So the search
begins again at that row, with the new clause. See docs/decisions/0132 and 0144.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from asterism.changes.plan import CONTINUES, DROPPED, Counts, PlanPart
from asterism.columns.arrays import one_chunk
from asterism.errors import StateError
from asterism.operators.evolution import CHANGES_OF_SAVEPOINTS, FIXED, WITHOUT_STATE, check_evolution
from asterism.operators.key_group import complete
from asterism.operators.state.state_definition import KEYS_TABLE, StateDefinition
from asterism.operators.state.state_store import tables_by_name, tables_to_bytes
from asterism.operators.stored_state import aligned_column
from asterism.row_patterns.current_row import WORDS, CurrentRow
from asterism.row_patterns.operator import RowPatternOperator
from asterism.row_patterns.stored_searches import ROWS

SEARCHES, DECIDED = "keys whose search waits", "keys without undecided rows"
_REACH = "the number of earlier rows that PREV() reads"
_SHOWN = 5
AGAIN = "the search begins again at the first undecided row"


class SearchesChange:
    """
    :param old: the definition of the state
    :param operator: that of the new clause
    :param former: the conditions of the former clause, if they are known. Where a new condition cannot be computed of stored
        rows, that of the same variable then counts as it was: what happened is not judged again.
    :raises AsterismError: the state cannot be continued at all
    """

    def __init__(self, old: StateDefinition, operator: RowPatternOperator, former: CurrentRow | None = None) -> None:
        self.old, self._operator, self._former = old, operator, former
        before, now = old.details[FIXED], operator.definition.details[FIXED]
        may_change = {name: now[name] for name in CHANGES_OF_SAVEPOINTS if name in now}
        if int(now[_REACH]) < int(before[_REACH]):
            may_change[_REACH] = now[_REACH]
        adjusted = replace(
            old, details={**old.details, FIXED: {**before, **may_change}}, inputs=operator.definition.inputs
        )
        check_evolution(adjusted, operator.definition)
        if operator.is_anchored and before["PATTERN"] != now["PATTERN"]:
            raise StateError(
                "the savepoint cannot be continued with a pattern that begins with ^",
                "Keys whose rows are all decided are not in it, and have had a first row.",
                WITHOUT_STATE,
            )

    def page(self, value: bytes, tables: Mapping[str, pa.Schema]) -> tuple[bytes | None, Counts]:
        """(a page with the *tables* of the new clause, None: nothing continues; what became of its keys)."""
        stored = tables_by_name(value, self.old.tables)
        keys, rows = stored[KEYS_TABLE], stored[ROWS]
        sizes, starts = (keys.column(f"p:{name}").to_numpy() for name in ("rows", "next_start"))
        waiting = int((starts < sizes).sum())
        reason = self.lacking(rows.column_names)
        outcome = CONTINUES if reason is None else DROPPED
        counts: Counts = Counter()
        counts[PlanPart(SEARCHES, "", "", outcome, reason or AGAIN)] += waiting
        counts[PlanPart(DECIDED, "", "", outcome, reason or "")] += len(sizes) - waiting
        made = None if reason is not None else tables_to_bytes([keys, self.columns(rows, tables[ROWS])])
        return made, +counts

    def lacking(self, stored: Sequence[str]) -> str | None:
        """Why rows with these columns cannot be searched with the new clause, by variables and measures; None: they can."""
        bits = self._operator.current_row.columns
        needed = [name[2:] for name in self._operator.row_schema.names if name != WORDS]
        needed += chain.from_iterable(columns for bit, columns in enumerate(bits) if not self._is_known(bit))
        missing = [name for name in dict.fromkeys(needed) if f"e:{name}" not in stored]
        if not missing:
            return None
        reads = [f'{reader} reads "{name}"' for name in missing for reader in self._readers(name)]
        more = [f"and {len(reads) - _SHOWN} more"] if len(reads) > _SHOWN else []
        return f"rows were stored without columns that are needed: {'; '.join([*reads[:_SHOWN], *more])}"

    def _is_known(self, bit: int) -> bool:
        """Whether it is stored what a bit of the new clause tests."""
        return bit in self._known or bit in self._judged

    def _readers(self, column: str) -> list[str]:
        """What in the new clause reads a column that is missing."""
        clause, bits = self._operator.clause, self._operator.current_row.bits
        readers = [
            f"the condition of {name}"
            for name, condition in clause.conditions.items()
            if not (bits[name].whole and self._is_known(bits[name].possible[0]))
            and column in clause.rows.columns_of_leaves(condition.resolved.leaves)
        ]
        readers += [
            f"the measure {measure.name}"
            for measure, resolved in zip(clause.clause.measures, clause.measures, strict=False)
            if column in clause.rows.columns_of_leaves(resolved.leaves)
        ]
        return readers or ["a row of the output"]

    def columns(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """The rows with the columns of *schema*, and the conditions of the new clause."""
        columns = [self._words(rows) if field.name == WORDS else aligned_column(rows, field) for field in schema]
        return pa.table(columns, schema=schema)

    @cached_property
    def _known(self) -> dict[int, int]:
        """The bits of the new clause that the former one has, too, with their numbers there."""
        former: list[str] = self.old.details.get("bits", [])
        texts = enumerate(self._operator.current_row.texts)
        return {bit: former.index(text) for bit, text in texts if text in former}

    @cached_property
    def _judged(self) -> dict[int, int]:
        """The bits that are whole conditions, with the bits of the former conditions of the same variables."""
        if self._former is None:
            return {}
        of_bit = defaultdict[int, set[int | None]](set)
        for name, bits in self._operator.current_row.bits.items():
            if bits.whole:
                before = self._former.bits.get(name)
                of_bit[bits.possible[0]].add(before.possible[0] if before is not None and before.whole else None)
            else:
                for bit in (*bits.possible, *chain.from_iterable(bits.certain)):
                    of_bit[bit].add(None)
        return {bit: before for bit, (before, *others) in of_bit.items() if before is not None and not others}

    def _words(self, rows: pa.Table) -> pa.Array:
        operator = self._operator
        known = [name for name in rows.column_names if name.startswith("e:") and name[2:] in operator.schema.names]
        events = rows.select(known).rename_columns([name[2:] for name in known])
        computed = operator.current_row.words(complete(events, operator.schema)).to_numpy().astype(np.int64)
        before = one_chunk(rows.column(WORDS)).to_numpy().astype(np.int64)
        words = np.zeros(rows.num_rows, np.int64)
        for bit, columns in enumerate(operator.current_row.columns):
            place = self._known.get(bit)
            if place is None and not {f"e:{name}" for name in columns} <= {*rows.column_names}:
                place = self._judged[bit]
            words |= ((computed >> bit if place is None else before >> place) & 1) << bit
        return pa.array(words).cast(operator.current_row.word_type)
