"""The tables of lookups: rows by key, which the expressions of rules read beside the event, as in ``amount > limits.max``.

A lookup is a struct column of the events, with the columns of its table. Its value is that of the row with the key of the event,
or NULL. A table has versions: a changed table is stored as a whole, and belongs to all sets of pattern processors from the next
one on (:mod:`asterism.rules.sets.sets`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from asterism.caches import keep, recent
from asterism.columns.arrays import Ints, cast_to, one_chunk
from asterism.errors import PatternProcessorError, StateError, StreamDefinitionError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    FLOATS,
    INTEGERS,
    is_decimal,
    is_instant,
    is_nested,
    name_of,
    spark_type,
)
from asterism.text.printable import event_text

MAX_ROWS = 2_000_000
MAX_BYTES = 256 * 1024 * 1024
"""The maximum size of a table in memory. Each Python process of the executors has a copy, and temporarily two or three."""
MAX_VERSIONS = 4
"""The number of versions of a table that a process keeps: a micro-batch cannot use more."""
MAX_TABLES = 64
"""The number of tables of which a process keeps versions."""
MAX_ALIKE = 64
"""The maximum number of keys with the same hash, which are searched one by one."""
_UTC = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class LookupVersion:
    """A version of the table of a lookup.

    :param version: the number of the set in which it was published
    :param digest: the digest of its rows
    :param key: the key of the lookup; none: an earlier release has stored the version without it
    """

    name: str
    version: int
    digest: str
    rows: int
    key: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        key = {"key": list(self.key)} if self.key else {}
        return {"version": self.version, "digest": self.digest, "rows": self.rows, **key}

    @classmethod
    def from_dict(cls, name: str, stored: Mapping[str, Any]) -> LookupVersion:
        key = tuple(map(str, stored.get("key", ())))
        return cls(name, int(stored["version"]), str(stored["digest"]), int(stored["rows"]), key)


@dataclass(frozen=True, slots=True)
class LookupColumn:
    """A lookup as seen by the code that uses its table.

    :param name: the name of the struct column
    :param key: columns of the table
    :param on: SQL expressions over an event, in the order of *key*
    :param schema: the columns of the table, with the key
    """

    name: str
    key: tuple[str, ...]
    on: tuple[str, ...]
    schema: pa.Schema

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, pa.struct(list(self.schema)))

    def key_expressions(self, events: pa.Schema) -> tuple[Vectorized, list[int]]:
        """The distinct expressions *on*, and for each element of *on* its index among them.

        :raises StreamDefinitionError: an expression has another type than its key, or can fail
        """
        expressions, scope, numbers = Vectorized(events), Scope(events), list[int]()
        what = f"the lookup {self.name}"
        for text, key in zip(self.on, self.key, strict=True):
            value = expressions.translate(scope.resolve(parse(text), text), text)
            if value.raises:
                raise StreamDefinitionError(
                    f"{what}: the expression {text!r:.200} can fail", hint="TRY_CAST(...) gives NULL instead"
                )
            have, want = key_type(expressions.type_of_value(value, text)), key_type(self.schema.field(key).type)
            if have != want:
                names = [_shown(expressions.type_of_value(value, text)), _shown(self.schema.field(key).type)]
                raise StreamDefinitionError(
                    f"{what}: {text!r:.200} is {names[0]}, and the key {key!r:.100} is {names[1]}",
                    hint=f"on='CAST({text:.100} AS {names[1]})', or TRY_CAST",
                )
            numbers.append(expressions.add_value(value, text))
        return expressions, numbers

    def keys_of(self, events: pa.Table, expressions: tuple[Vectorized, list[int]]) -> pa.Table:
        """The keys of events, by which :meth:`LookupTable.of_keys` finds rows. *expressions*: :meth:`key_expressions`."""
        values = expressions[0].evaluate(events)
        columns = [
            values[number].cast(key_type(self.schema.field(key).type))
            for number, key in zip(expressions[1], self.key, strict=True)
        ]
        return pa.table(columns, names=list(self.key))


def key_type(data_type: pa.DataType) -> pa.DataType | None:
    """The type in which keys are compared; None if a value of this type cannot be a key."""
    kind = spark_type(data_type, "UTC")
    if kind is None or is_nested(kind) or kind in FLOATS or kind == BINARY or pa.types.is_null(kind):
        return None
    if kind in INTEGERS:
        return BIGINT
    if is_instant(kind):
        return _UTC
    return pa.decimal128(38, kind.scale) if is_decimal(kind) else kind


def _shown(data_type: pa.DataType) -> str:
    return name_of(spark_type(data_type, "UTC") or data_type)


def with_lookups(events: pa.Schema, lookups: Sequence[LookupColumn]) -> pa.Schema:
    """The schema of events with the columns of lookups after their own."""
    return pa.schema([*events, *(lookup.field for lookup in lookups)], metadata=events.metadata)


# ---------------------------------------------------------------------------------------------------- versions


def checked_rows(lookup: LookupColumn, table: pa.Table) -> pa.Table:
    """The rows of a new version, with the columns and types of the lookup, in an order that depends only on the rows.

    :raises PatternProcessorError: a column is missing or has another type, a key is NULL or not unique, or the table is too large
    """
    what = f"the lookup {lookup.name}"
    if table.num_rows > MAX_ROWS:
        raise PatternProcessorError(f"{what} has {table.num_rows:,} rows (limit {MAX_ROWS:,})")
    columns = []
    for field in lookup.schema:
        if table.column_names.count(field.name) != 1:
            raise PatternProcessorError(
                f"{what}: its table has no column {field.name!r:.100}",
                f"Columns: {', '.join(table.column_names):.1000}",
            )
        try:
            # Parquet files often have nanoseconds.
            columns.append(table.column(field.name).cast(field.type, safe=not pa.types.is_timestamp(field.type)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise PatternProcessorError(
                f"{what}: the column {field.name!r:.100} is {_shown(table.column(field.name).type)},"
                f" not {_shown(field.type)}",
                str(error).splitlines()[0],
            ) from None
    rows = pa.table(columns, schema=lookup.schema)
    if rows.nbytes > MAX_BYTES:
        raise PatternProcessorError(f"{what} has {rows.nbytes:,} bytes (limit {MAX_BYTES:,})")
    for name in lookup.key:
        count = rows.column(name).null_count
        if count:
            raise PatternProcessorError(f"{what}: the key {name!r:.100} is NULL in {count:,} rows")
    counts = rows.select(list(lookup.key)).group_by(list(lookup.key)).aggregate([([], "count_all")])
    if counts.num_rows < rows.num_rows:
        first = counts.filter(pc.greater(counts.column("count_all"), 1)).slice(0, 1).to_pylist()[0]
        times = first.pop("count_all")
        raise PatternProcessorError(
            f"{what}: {times:,} rows have the same key, {event_text(first)}",
            f"{rows.num_rows - counts.num_rows:,} rows are too many.",
        )
    order = pc.sort_indices(rows, [(name, "ascending") for name in lookup.key])
    return rows.take(order).combine_chunks()


def rows_to_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(rows, sink, compression="zstd")
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def rows_from_bytes(lookup: LookupColumn, value: bytes) -> pa.Table:
    """Read the result of :func:`rows_to_bytes`, which may have been written when the lookup had other columns. Those that are
    missing, or have another type, are NULL; without the key, there are no rows.

    :raises StateError: it is not that of a table
    """
    with _reading(lookup.name):
        stored = columns_in(lookup.name, value)
        known = [field.name for field in lookup.schema if has_column(stored, field)]
        if not {*lookup.key} <= {*known}:
            return lookup.schema.empty_table()
        rows = parquet.read_table(pa.BufferReader(value), columns=known)
        columns = [
            cast_to(rows.column(field.name), field.type) if field.name in known else pa.nulls(rows.num_rows, field.type)
            for field in lookup.schema
        ]
        return pa.table(columns, schema=lookup.schema)


def columns_in(lookup: str, value: bytes) -> pa.Schema:
    """The columns in the result of :func:`rows_to_bytes`, with the types that expressions have.

    :raises StateError: it is not that of a table
    """
    with _reading(lookup):
        stored = parquet.read_schema(pa.BufferReader(value))
        return pa.schema([(field.name, spark_type(field.type, "UTC") or field.type) for field in stored])


def has_column(stored: pa.Schema, wanted: pa.Field) -> bool:
    """Whether a stored table has a column with this type."""
    return wanted.name in stored.names and stored.field(wanted.name).type == wanted.type


@contextmanager
def _reading(lookup: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StateError(
            f"a stored table of the lookup {lookup} cannot be read",
            str(error).splitlines()[0],
            "restore the folder that belongs to the checkpoint",
        ) from None


def digest_of_rows(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:32]


class LookupTable:
    """The rows of one version, by key.

    :raises PatternProcessorError: too many keys have the same hash
    """

    def __init__(self, lookup: LookupColumn, rows: pa.Table) -> None:
        from asterism.columns.hashing import hash_keys

        self._lookup = lookup
        self._columns = [one_chunk(column) for column in rows.columns]
        keys = [rows.column(name).cast(key_type(lookup.schema.field(name).type)) for name in lookup.key]
        self._keys = [one_chunk(column) for column in keys]
        hashes = hash_keys(pa.table(keys, names=list(lookup.key)))
        self._row_of = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._row_of]
        ends = np.flatnonzero(self._hashes[1:] != self._hashes[:-1]) + 1
        self._alike = int(np.diff([0, *ends.tolist(), len(hashes)]).max())
        if self._alike > MAX_ALIKE:
            raise PatternProcessorError(
                f"the lookup {lookup.name}: {self._alike:,} keys have the same hash (limit {MAX_ALIKE:,})"
            )

    def of_keys(self, keys: pa.Table) -> pa.StructArray:
        """The struct for each key of :meth:`LookupColumn.keys_of`; NULL if no row has it."""
        rows = self._rows_of(keys)
        missing = pa.array(rows < 0)
        taken = pa.array(rows, mask=rows < 0)
        columns = [column.take(taken) for column in self._columns]
        return pa.StructArray.from_arrays(columns, fields=list(self._lookup.schema), mask=missing)

    def _rows_of(self, keys: pa.Table) -> Ints:
        """The row of each key, or -1."""
        from asterism.columns.hashing import hash_keys

        row_of_key = np.full(keys.num_rows, -1, np.int64)
        if not len(self._hashes):
            return row_of_key
        asked = [one_chunk(column) for column in keys.columns]
        hashes = hash_keys(keys)
        at = np.searchsorted(self._hashes, hashes)
        open_ = np.arange(keys.num_rows)
        for _ in range(self._alike):
            at, open_ = at[at < len(self._hashes)], open_[at < len(self._hashes)]
            same = self._hashes[at] == hashes[open_]
            at, open_ = at[same], open_[same]
            if not len(open_):
                break
            rows = self._row_of[at]
            equal = np.ones(len(rows), np.bool_)
            for stored, other in zip(self._keys, asked, strict=True):
                alike = pc.equal(stored.take(pa.array(rows)), other.take(pa.array(open_)))
                equal &= pc.fill_null(alike, False).to_numpy(zero_copy_only=False)
            row_of_key[open_[equal]] = rows[equal]
            at, open_ = at[~equal] + 1, open_[~equal]
        return row_of_key


def nulls_of(lookup: LookupColumn, count: int) -> pa.Array:
    """The column if there is no table."""
    return pa.nulls(count, lookup.field.type)


# ---------------------------------------------------------------------------------------------------- cache


def table_of(lookup: LookupColumn, version: LookupVersion, read: Callable[[LookupVersion], bytes]) -> LookupTable:
    """The table of a version. A process reads its rows once, with *read*, and keeps the most recent versions."""
    lookup_text = repr(lookup)
    versions = recent(_TABLES, lookup_text) or keep(_TABLES, MAX_TABLES, lookup_text, {})
    known = recent(versions, version.digest)
    if known is None:
        has_key = version.key in ((), lookup.key)
        rows = rows_from_bytes(lookup, read(version)) if has_key else lookup.schema.empty_table()
        known = keep(versions, MAX_VERSIONS, version.digest, LookupTable(lookup, rows))
    return known


def keep_versions(lookup: LookupColumn, digests: Collection[str]) -> None:
    """Drop the versions of a lookup that are not in use any more."""
    versions = _TABLES.get(repr(lookup), {})
    for digest in [stored for stored in [*versions] if stored not in digests]:
        versions.pop(digest, None)


_TABLES: dict[str, dict[str, LookupTable]] = {}
