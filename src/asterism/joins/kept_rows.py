"""Reads the rows that a join keeps of its inputs from the pages of the state, numbers their keys, and writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import group_codes
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TIME
from asterism.joins.matching import JoinRows
from asterism.operators.key_group import ONE_KEY, Group
from asterism.operators.state.pages import Pages
from asterism.operators.state.state_store import tables_from_bytes, tables_to_bytes

MATCHED, SEEN = "matched", "seen"
"""Columns of stored rows: whether the row has joined a row of the other side; the operator's time when it was written."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of a call: the rows of the pages that were read, followed by the rows that have become ready.

    :ivar tables: by input
    :ivar page_of: for each row the index of its page
    :ivar stored: the number of rows of the pages, by input
    """

    pages: Pages
    tables: dict[str, pa.Table]
    page_of: dict[str, Ints]
    stored: dict[str, int]
    keys: Sequence[str]

    @classmethod
    def load(
        cls,
        group: Group,
        ready: Mapping[str, pa.Table],
        schemas: Mapping[str, pa.Schema],
        keys: Sequence[str],
        horizon: int,
    ) -> KeptRows:
        """
        :param schemas: of the stored rows, by input
        :param keys: the names of the key columns
        """
        names = [name for name in schemas if name in ready]
        pages = group.load([ready[name] for name in names], keys, horizon)
        read = [
            {name: schema.empty_table() for name, schema in schemas.items()}
            if value is None
            else dict(zip(schemas, tables_from_bytes(value, list(schemas.values())), strict=True))
            for value in pages.stored
        ]
        kept_rows = cls(pages, {}, {}, {}, keys)
        for name, schema in schemas.items():
            parts = [page[name] for page in read]
            kept_rows.stored[name] = sum(part.num_rows for part in parts)
            of_rows = [np.full(part.num_rows, number, np.int64) for number, part in enumerate(parts)]
            if name in ready:
                parts.append(as_stored(ready[name], schema))
                of_rows.append(pages.of_events[names.index(name)])
            kept_rows.tables[name] = pa.concat_tables([schema.empty_table(), *parts]).combine_chunks()
            kept_rows.page_of[name] = np.concatenate([np.empty(0, np.int64), *of_rows])
        return kept_rows

    def numbered(self) -> dict[str, JoinRows]:
        """The keys and times of the rows, with the same numbers for the keys of all inputs."""
        keys = pa.concat_tables([table.select(self.keys) for table in self.tables.values()])
        codes, _ = group_codes(keys)
        known = np.ones(keys.num_rows, np.bool_)
        for column in keys.columns:
            if column.null_count:
                known &= column.is_valid().to_numpy()
        sides, at = {}, 0
        for name, table in self.tables.items():
            count = table.num_rows
            seen = table.column(SEEN).to_numpy() if SEEN in table.column_names else np.full(count, BEFORE_TIME)
            sides[name] = JoinRows(
                table.column(TIME).to_numpy(),
                codes[at : at + count],
                known[at : at + count],
                np.arange(count) >= self.stored[name],
                seen,
            )
            at += count
        return sides

    def write(
        self,
        tables: Sequence[pa.Table],
        keep: Sequence[Mask],
        due: Sequence[Ints],
        gone: Sequence[Ints],
        horizon: int,
    ) -> None:
        """Replace the contents of the pages.

        :param tables: the rows of each input
        :param keep: for each input, a mask of the rows that remain
        :param due: the time at which each row must be processed again
        :param gone: the time from which each row is no longer needed
        """
        rows = [np.flatnonzero(mask) for mask in keep]
        kept = []
        for table, chosen in zip(tables, rows, strict=True):
            part = table.take(pa.array(chosen))
            if SEEN in part.column_names:
                part = part.set_column(part.column_names.index(SEEN), SEEN, pa.array(np.full(len(chosen), horizon)))
            kept.append(part)
        starts = np.cumsum([0, *map(len, rows)])
        due_at = np.concatenate([times[chosen] for times, chosen in zip(due, rows, strict=True)])
        gone_at = np.concatenate([times[chosen] for times, chosen in zip(gone, rows, strict=True)])

        def encoded(which: Ints) -> tuple[bytes, int, int]:
            """A page is due when a row must be processed again, at the latest when none of its rows is needed any more."""
            parts = [
                part.take(pa.array(which[(which >= start) & (which < start + part.num_rows)] - start))
                for part, start in zip(kept, starts.tolist(), strict=False)
            ]
            return tables_to_bytes(parts), min(int(due_at[which].min()), int(gone_at[which].max())), END_OF_TIME

        pages = np.concatenate([of_rows[chosen] for of_rows, chosen in zip(self.page_of.values(), rows, strict=True)])
        self.pages.rewrite(
            lambda: pa.concat_tables([part.select(self.keys) for part in kept]), pages, partial(map, encoded)
        )


def as_stored(events: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows that have become ready as rows of the state."""
    count = events.num_rows
    new = {SEEN: np.full(count, BEFORE_TIME), MATCHED: np.zeros(count, np.bool_)}
    columns = [pa.array(new[f.name]) if f.name in new else events.column(f.name) for f in schema]
    return pa.table(columns, schema=schema)


def stored_fields(schema: pa.Schema, names: Collection[str]) -> list[pa.Field]:
    """The columns *names* of a schema, as they are stored."""
    return [field.with_name("e:" + field.name) for field in schema if field.name in names]


def key_columns(stored: pa.Schema) -> pa.Schema:
    """The key columns of the state, with their names in the streams; none if the streams have no key."""
    if stored.names == ["k:" + ONE_KEY]:
        return pa.schema([])
    return pa.schema([pa.field(field.name.removeprefix("k:"), field.type) for field in stored])
