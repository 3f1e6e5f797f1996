"""Rows of a savepoint on their way to their key groups, as chunks of bytes, and the pages of a key group from its chunks.

A chunk has many rows of one key group, without their schema. An exchange moves and sorts a few chunks in place of many rows,
whose nested columns take long to convert.

See docs/decisions/0151.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from asterism.columns.arrays import one_chunk
from asterism.operators.state.page_numbers import SETS_PAGE
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes, batch_to_bytes
from asterism.savepoints.instances import is_distributed, merged_instances
from asterism.savepoints.key_groups import KEY_GROUP, KEY_HASH, POSITION, Summary, groups_of, rows_schema, write_group
from asterism.savepoints.key_states import KeyStates
from asterism.savepoints.kinds import key_states
from asterism.savepoints.plain_types import retyped_table
from asterism.savepoints.rule_sets import RuleSets

OF_KEYS = "(keys)"
"""Name of the table of keys among the inputs. An input of an operator cannot have this name."""
MANY_ROWS, MANY_BYTES = 2**18, 2**25
"""How many rows a file has at most, and about how many bytes are taken together."""
T = TypeVar("T")
Chunk = tuple[str, bytes]
"""The name of an input, or OF_KEYS, and its rows."""


def in_parts(items: Iterable[tuple[T, int]], most: int = MANY_BYTES) -> Iterator[list[T]]:
    """Consecutive items together: up to *most* bytes, or one item with more.

    :param items: with about the bytes of each

    >>> list(in_parts([("a", 3), ("b", 4), ("c", 9), ("d", 1)], 8))
    [['a', 'b'], ['c'], ['d']]
    """
    part, size = list[T](), 0
    for item, nbytes in items:
        if part and size + nbytes > most:
            yield part
            part, size = [], 0
        part.append(item)
        size += nbytes
    if part:
        yield part


def gathered(tables: Iterable[tuple[pa.Table, int]]) -> Iterator[pa.Table]:
    """Fewer tables with the same rows.

    :param tables: with about the bytes of each
    """
    for part in in_parts(tables):
        yield pa.concat_tables(part).combine_chunks()


def tables_of_file(content: pa.Buffer, names: Collection[str]) -> Iterator[tuple[pa.Table, int]]:
    """The rows in a Parquet file, with about the bytes of each table.

    :param names: the columns that are read, of those that there are
    """
    file = pq.ParquetFile(pa.BufferReader(content))
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    size = sum(group.total_byte_size for group in groups)  # not compressed
    rows = max(1, min(MANY_ROWS, MANY_BYTES * file.metadata.num_rows // max(1, size)))
    for batch in file.iter_batches(rows, use_threads=False):
        yield chosen_rows(batch, names)


def chosen_rows(batch: pa.RecordBatch, names: Collection[str]) -> tuple[pa.Table, int]:
    """The columns of a batch that have one of these names, in the order of the names, and about their bytes."""
    chosen = batch.select([name for name in names if name in batch.schema.names])
    return pa.Table.from_batches([chosen]), chosen.nbytes


def chunk_schemas(summary: Summary, states: KeyStates) -> dict[str, pa.Schema]:
    """The columns of the chunks of each input, and of OF_KEYS."""
    of_events = [(KEY_GROUP, pa.int32()), (POSITION, pa.int64())]
    waiting = {name: pa.schema([*of_events, *prepared]) for name, prepared in summary.definition.inputs.items()}
    return {OF_KEYS: pa.schema([*rows_schema(states), (KEY_HASH, pa.int64())]), **waiting}


def chunks_of(rows: pa.Table, schema: pa.Schema, key_groups: int) -> Iterator[tuple[int, bytes]]:
    """The rows of a table of a savepoint in chunks, each with its key group.

    :param rows: the columns of *schema*, in their plain types, and KEY_HASH; without it, they are those of a broadcast input,
        which every key group has
    """
    table = retyped_table(rows, schema)
    if KEY_HASH not in rows.column_names:
        everything = batch_to_bytes(table)
        yield from ((group, everything) for group in range(key_groups))
        return
    groups = groups_of(one_chunk(rows.column(KEY_HASH)).to_numpy(), key_groups)
    order = np.argsort(groups, kind="stable")
    table = table.take(pa.array(order)).combine_chunks()
    numbers, begins = np.unique(groups[order], return_index=True)
    for group, (begin, end) in zip(numbers.tolist(), pairwise([*begins.tolist(), len(order)]), strict=True):
        yield group, batch_to_bytes(table.slice(begin, end - begin))


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """Makes the pages of key groups from their chunks.

    :param summary: None: there is no state but the sets of rules
    :param rules: of a query with rules
    :param broadcast: the entries of each broadcast state
    """

    summary: Summary | None
    rules: RuleSets | None
    key_groups: int
    broadcast: Mapping[str, pa.Table] = field(default_factory=dict)

    def written(self, group: int, chunks: Collection[Chunk]) -> MemoryStore:
        """The header and the pages of a key group."""
        store = MemoryStore()
        sets = None if self.rules is None else self.rules.page_of(group, self.key_groups)
        if self.summary is None:
            store.write_page(SETS_PAGE, sets)
            return store
        definition = self.summary.definition
        states = key_states(definition, self.rules)
        tables = _tables_in(chunks, chunk_schemas(self.summary, states))
        keys = tables.pop(OF_KEYS, None)
        if keys is not None and is_distributed(definition):
            keys = merged_instances(keys)
        in_order = [(KEY_GROUP, "ascending"), (POSITION, "ascending")]
        waiting = {name: events.sort_by(in_order) for name, events in tables.items()}
        write_group(store, self.summary, states, keys, waiting, self.broadcast, sets)
        return store


def _tables_in(chunks: Iterable[Chunk], schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    parts: dict[str, list[pa.Table]] = {}
    for name, rows in chunks:
        parts.setdefault(name, []).append(batch_from_bytes(rows, schemas[name]))
    return {name: pa.concat_tables(tables).combine_chunks() for name, tables in parts.items()}
