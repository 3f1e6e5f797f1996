"""Lookups as a query declares them, and how the coordinator reads their tables, at the start and when they have changed."""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from asterism.arguments import described, expect, expect_strings, shown
from asterism.columns.schemas import schema_of
from asterism.errors import AsterismError, PatternProcessorError, StreamDefinitionError
from asterism.expressions.types import is_nested, name_of, spark_type
from asterism.rules.definition.lookup_tables import (
    LookupColumn,
    LookupTable,
    LookupVersion,
    checked_rows,
    columns_in,
    digest_of_rows,
    has_column,
    key_type,
    rows_to_bytes,
)
from asterism.rules.sets.discovery_status import LookupState, now_text
from asterism.rules.sets.interfaces import checked_interval
from asterism.rules.sets.set_store import FolderStore

MAX_LOOKUPS = 20
MAX_COLUMNS = 100
LONG_READING, RESTING = 1.0, 9
"""If reading a table to detect a change takes more seconds than this, the next read waits for a multiple of that time."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HINT = 'lookups={"limits": Lookup("limits.parquet", key="customer")}'


class LookupSource(ABC):
    """Where the rows of a lookup come from. It is sent to Spark's driver, and must therefore be picklable."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns, for a lookup that does not declare them.

        :raises PatternProcessorError: they cannot be determined
        """

    @abstractmethod
    def read(self, schema: pa.Schema) -> pa.Table:
        """All rows, with at least these columns. The caller checks columns, types, keys and sizes.

        :raises PatternProcessorError: they cannot be read now
        """

    def state(self) -> Any:
        """A value that differs from the last one if the rows may have changed; None: unknown, so all rows are read and
        compared.
        """
        return None


@dataclass(frozen=True)
class Lookup:
    """A table that rules read by a key of the event: with ``lookups={"limits": Lookup(...)}``, ``amount > limits.max``.

    :param source: the path or URI of a file, or of a folder of files (``.parquet``, ``.csv`` with a header, ``.jsonl``); the URL
        of a database; a DataFrame or a :class:`pyarrow.Table`, which are read once; or a
        :class:`~asterism.discovery.LookupSource`
    :param key: the column of the table with the key, or several columns. A key occurs once and is never NULL.
    :param on: the SQL expression over an event that gives its key, or as many as key columns. Default: the columns of the event
        with the names of the key columns
    :param schema: the columns that rules can read, with types and with the key: ``"customer STRING, max DOUBLE"``. Default: all
        columns that the table has when the query is defined
    :param table: the name of the table, or ``schema.table``, if *source* is the URL of a database
    :param interval: how often to look for changes
    :raises PatternProcessorError: an argument is invalid

    docs/rules/lookups.md has a runnable example.
    """

    source: Any
    key: str | Sequence[str]
    on: str | Sequence[str] | None = None
    schema: str | pa.Schema | None = None
    table: str | None = None
    interval: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        for name, value in (("key", self.key), ("on", self.key if self.on is None else self.on)):
            texts = [value] if isinstance(value, str) else value
            expect_strings(PatternProcessorError, texts, f"{name} of a lookup must be a string or a list of strings")
            object.__setattr__(self, name, tuple(texts))
        if not self.key or len(self.key) != len(self.on or ()):
            problem = f"a lookup needs as many expressions (on) as key columns, not {len(self.on or ()):,} and {len(self.key):,}"
            raise PatternProcessorError(problem, hint='key=["country", "product"], on=["country", "item"]')
        if self.schema is not None:
            object.__setattr__(self, "schema", schema_of(self.schema))
        expect(PatternProcessorError, self.table, str | None, "the table of a lookup must be a string")
        object.__setattr__(self, "interval", checked_interval(self.interval))


@dataclass(frozen=True)
class DefinedLookup:
    column: LookupColumn
    source: LookupSource
    interval: timedelta

    def read(self) -> tuple[bytes, int]:
        """The rows as they are stored, and their number. An error means that they cannot be read, or used."""
        rows = checked_rows(self.column, self.source.read(self.column.schema))
        LookupTable(self.column, rows)
        return rows_to_bytes(rows), rows.num_rows


@dataclass(frozen=True)
class GivenRows(LookupSource):
    value: bytes = field(repr=False)
    columns: pa.Schema

    @classmethod
    def of(cls, rows: pa.Table) -> GivenRows:
        return cls(rows_to_bytes(rows), rows.schema)

    def schema(self) -> pa.Schema:
        return self.columns

    def read(self, schema: pa.Schema) -> pa.Table:
        return parquet.read_table(pa.BufferReader(self.value))

    def state(self) -> Any:
        return ""


def defined_lookups(
    given: Any, events: pa.Schema, source_of: Callable[[Lookup], LookupSource]
) -> tuple[DefinedLookup, ...]:
    """The lookups of a query over *events*, sorted by name.

    :param source_of: the source of a lookup
    :raises StreamDefinitionError: these are not lookups by name, or do not fit the events
    :raises PatternProcessorError: the columns of a table cannot be determined
    """
    if not isinstance(given, Mapping):
        raise StreamDefinitionError(f"lookups must be a dict by name, not {shown(given)}", hint=_HINT)
    if len(given) > MAX_LOOKUPS:
        raise StreamDefinitionError(f"more than {MAX_LOOKUPS:,} lookups")
    defined = []
    names: dict[str, str] = {name.lower(): "a column of the events" for name in events.names}
    for name, lookup in given.items():
        if not isinstance(name, str) or not isinstance(lookup, Lookup):
            raise StreamDefinitionError(
                f"lookups must map names to Lookup, not {shown(name)} to {shown(lookup)}", hint=_HINT
            )
        if not _NAME.fullmatch(name):
            raise StreamDefinitionError(
                f"{name!r:.120} cannot be the name of a lookup", hint="letters, digits and _, up to 100: limits"
            )
        if name.lower() in names:
            raise StreamDefinitionError(f"the name of the lookup {name} is that of {names[name.lower()]}")
        names[name.lower()] = "another lookup"
        source = source_of(lookup)
        column = LookupColumn(name, tuple(lookup.key), tuple(lookup.on or ()), _columns(name, lookup, source))
        column.key_expressions(events)
        defined.append(DefinedLookup(column, source, lookup.interval))
    return tuple(sorted(defined, key=lambda lookup: lookup.column.name))


def _columns(name: str, lookup: Lookup, source: LookupSource) -> pa.Schema:
    """The columns of the table, with the types that expressions have."""
    what = f"the lookup {name}"
    try:
        schema = source.schema() if lookup.schema is None else lookup.schema
    except AsterismError as error:
        raise type(error)(f"{what}: {error.message}", error.detail, error.hint) from None
    assert isinstance(schema, pa.Schema)
    if len(schema) > MAX_COLUMNS:
        raise StreamDefinitionError(
            f"{what} has {len(schema):,} columns (limit {MAX_COLUMNS:,})",
            hint='name some of them: schema="id STRING, max DOUBLE"',
        )
    fields = []
    for column in schema:
        if not column.name.isprintable() or [other.lower() for other in schema.names].count(column.name.lower()) > 1:
            raise StreamDefinitionError(f"{what}: {column.name!r:.100} cannot be the name of a column, or occurs twice")
        kind = spark_type(column.type, "UTC")
        if kind is None or is_nested(kind) or pa.types.is_null(kind):
            raise StreamDefinitionError(
                f"{what}: the column {column.name!r:.100} has the type {column.type}, which lookups do not support",
                hint='name the others, with their types: schema="id STRING, max DOUBLE"',
            )
        fields.append(pa.field(column.name, kind))
    for key in lookup.key:
        if key not in schema.names:
            raise StreamDefinitionError(
                f"{what} has no column {key!r:.100} for its key", f"Columns: {', '.join(schema.names):.1000}"
            )
        kind = next(column.type for column in fields if column.name == key)
        if key_type(kind) is None:
            raise StreamDefinitionError(f"{what}: the key {key!r:.100} cannot be {name_of(kind)}")
    return pa.schema(fields)


def fixed_versions(lookups: Sequence[DefinedLookup], store: FolderStore) -> tuple[LookupVersion, ...]:
    """The tables as they are now, in *store*, for a run over a table. An error means that one cannot be read."""
    watch = LookupWatch(lookups, ())
    watch.poll()
    watch.check_all_are_known()
    return watch.store_versions(1, store)


def stored_lookups(versions: Sequence[LookupVersion], store: FolderStore) -> list[LookupColumn]:
    """The lookups with which versions were stored, as recorded in the state: their names, columns and keys (none: unknown).

    :raises StateError: a stored table is missing, or cannot be read
    """
    return [
        LookupColumn(version.name, version.key, (), columns_in(version.name, store.read_lookup(version)))
        for version in versions
    ]


@dataclass(slots=True)
class _WatchedLookup:
    lookup: DefinedLookup
    version: LookupVersion | None = None
    state: Any = None
    due: float = 0.0
    last_read: tuple[bytes, str, int] | None = None
    """The rows that were read last: their stored form, their digest and their number."""
    error: str | None = None
    read_at: str = ""

    @property
    def is_new(self) -> bool:
        return self.last_read is not None and (self.version is None or self.last_read[1] != self.version.digest)


class LookupWatch:
    """Reads the tables of lookups, and tracks the versions in the newest set.

    :param known: the versions of the newest set of an earlier run
    :param former: the lookups of these versions, see :func:`stored_lookups`. A version without the columns of its lookup, or with
        another key, is not used: the table must be read.
    """

    def __init__(
        self,
        lookups: Sequence[DefinedLookup],
        known: Sequence[LookupVersion],
        former: Sequence[LookupColumn] = (),
    ) -> None:
        columns = {lookup.column.name: lookup.column for lookup in lookups}
        usable = {
            stored.name
            for stored in former
            if (now := columns.get(stored.name)) is not None
            and stored.key in ((), now.key)
            and all(has_column(stored.schema, field) for field in now.schema)
        }
        versions = {version.name: version for version in known if version.name in usable}
        self._watched = [_WatchedLookup(lookup, versions.get(lookup.column.name)) for lookup in lookups]
        self._have_changed = len(versions) < len(known)
        """Whether the newest set has versions that are not used any more."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._watched)

    def poll(self) -> list[tuple[str, str | None]]:
        """Read the tables that are due. Returns the lookups whose error has changed, with it.

        The errors are those of reading, and of rows that cannot be used; the version in force stays.
        """
        failures = []
        for watched in self._watched:
            if time.monotonic() < watched.due:
                continue
            begun, error, state = time.monotonic(), None, None
            try:
                state = watched.lookup.source.state()
                if state is None or state != watched.state:
                    value, rows = watched.lookup.read()
                    with self._lock:
                        watched.last_read, watched.state = (value, digest_of_rows(value), rows), state
                watched.read_at = now_text()
            except (Exception, SystemExit) as reason:  # a user-defined source may raise anything
                error = str(reason) if isinstance(reason, AsterismError) else described(reason)
            ended = time.monotonic()
            pause = RESTING * (ended - begun) if state is None and ended - begun > LONG_READING else 0.0
            watched.due = ended + max(watched.lookup.interval.total_seconds(), pause)
            if watched.error != error:
                failures.append((watched.lookup.column.name, error))
            watched.error = error
        return failures

    @property
    def all_are_known(self) -> bool:
        return self._unknown is None

    @property
    def _unknown(self) -> _WatchedLookup | None:
        return next(
            (watched for watched in self._watched if watched.version is None and watched.last_read is None), None
        )

    def check_all_are_known(self) -> None:
        """:raises PatternProcessorError: a table has never been read"""
        watched = self._unknown
        if watched is not None:
            name = watched.lookup.column.name
            raise PatternProcessorError(f"the table of the lookup {name} cannot be used", watched.error)

    @property
    def has_news(self) -> bool:
        """Whether a table has been read that is in no set, or the newest set has a table that is no longer used.

        A set has all tables or those of the set before it, so there is nothing new while one has never been read.
        """
        return self.all_are_known and (self._have_changed or any(watched.is_new for watched in self._watched))

    def store_versions(self, number: int, store: FolderStore) -> tuple[LookupVersion, ...]:
        """The versions for the set *number*; new ones are stored."""
        versions = []
        for watched in self._watched:
            with self._lock:
                version, new = watched.version, watched.last_read if watched.is_new else None
            if new is not None:
                value, digest, rows = new
                version = LookupVersion(watched.lookup.column.name, number, digest, rows, watched.lookup.column.key)
                store.put_lookup(version, value)
            if version is not None:
                versions.append(version)
        return tuple(versions)

    def published(self, versions: Sequence[LookupVersion]) -> None:
        known = {version.name: version for version in versions}
        self._have_changed = False
        with self._lock:
            for watched in self._watched:
                watched.version = known.get(watched.lookup.column.name)
                if not watched.is_new:
                    watched.last_read = None

    def states(self) -> dict[str, LookupState]:
        return {
            watched.lookup.column.name: LookupState(
                0 if watched.version is None else watched.version.version,
                0 if watched.version is None else watched.version.rows,
                watched.read_at,
                watched.error,
            )
            for watched in self._watched
        }


def lookups_of(given: Sequence[tuple[str, str, str]]) -> dict[str, Lookup]:
    """Lookups as commands take them: a name; a file, a folder or ``URL#TABLE``; and the key column, or ``COLUMN=EXPRESSION``.

    :raises StreamDefinitionError: a lookup is not valid
    """
    lookups: dict[str, Lookup] = {}
    for name, place, key in given:
        column, _, expression = key.partition("=")
        url, _, table = place.partition("#") if "://" in place else (place, "", "")
        lookups[name] = Lookup(url, key=column, on=expression or column, table=table or None)
    return lookups
