"""The sources of lookup tables: files, databases and topics of Kafka."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from pyarrow import fs

from asterism.arguments import described, expect, expect_string, shown
from asterism.columns.arrays import one_chunk
from asterism.columns.event_files import FORMATS, read_bounded
from asterism.discovery.sources.compacted_topic import (
    CompactedTopic,
    KafkaClient,
    TopicRecord,
    checked_options,
    checked_servers,
    checked_topic,
)
from asterism.discovery.sources.database import Database, parsed_url, shown_url
from asterism.discovery.sources.file import absolute_location, is_in_store
from asterism.discovery.sources.sql_table import split_name
from asterism.errors import PatternProcessorError, RuleSourceError
from asterism.expressions.types import name_of
from asterism.files.file_systems import opened
from asterism.rules.definition.lookup_tables import MAX_BYTES, MAX_ROWS
from asterism.rules.publishing.lookup_watch import GivenRows, Lookup, LookupSource

MAX_FILES = 10_000
AT_REST = 0.2
"""Seconds for which files must not have changed, because they may be in the middle of being written."""
AT_ONCE = 50_000
"""Rows of a database that are converted together."""
_TYPES: list[tuple[type[sa.types.TypeEngine[Any]], pa.DataType]] = [
    (sa.Boolean, pa.bool_()),
    (sa.BigInteger, pa.int64()),
    (sa.SmallInteger, pa.int64()),
    (sa.Integer, pa.int64()),
    (sa.Float, pa.float64()),
    (sa.String, pa.string()),
    (sa.Uuid, pa.string()),
    (sa.Date, pa.date32()),
]


@dataclass(frozen=True)
class FileLookupSource(LookupSource):
    """The rows of a file, or of all files of a folder, which have one format.

    :param path: ``.parquet``, ``.csv`` (with a header) or ``.jsonl`` (``.json``, ``.ndjson``), the texts also with ``.gz``, or a
        folder of such files; also a URI, as for :class:`~asterism.discovery.FilePatternProcessorDiscovererFactory`
    :raises PatternProcessorError: the path is another URL
    """

    path: str

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "path", absolute_location(path, 'Path("limits.csv")'))

    def schema(self) -> pa.Schema:
        return self._read(None).schema

    def read(self, schema: pa.Schema) -> pa.Table:
        before = self._files()
        time.sleep(AT_REST)
        if self._files() != before:
            raise RuleSourceError(f"{self.path} is being written", hint="write another file, and rename it")
        table = self._read(schema)
        if self._files() != before:
            raise RuleSourceError(
                f"{self.path} has changed while it was read", hint="write another file, and rename it"
            )
        return table

    def state(self) -> Any:
        return self._files()

    def _files(self) -> tuple[tuple[str, int, int], ...]:
        """The path, the size and the time of each file."""
        try:
            system, path = opened(self.path)
            [here] = system.get_file_info([path])
            if here.type == fs.FileType.Directory:
                files = [
                    file
                    for file in system.get_file_info(fs.FileSelector(path))
                    if file.type == fs.FileType.File and file.base_name[0] not in "._"
                ]
            else:
                files = [here] if here.type == fs.FileType.File else []
        except (OSError, pa.ArrowException) as error:
            raise RuleSourceError(f"{self.path} cannot be read", str(error).splitlines()[0]) from None
        if not files:
            raise RuleSourceError(f"there is no file {self.path}")
        if len(files) > MAX_FILES:
            raise RuleSourceError(f"{self.path} has more than {MAX_FILES:,} files")
        return tuple(sorted((file.path, file.size or 0, file.mtime_ns or 0) for file in files))

    def _read(self, columns: pa.Schema | None) -> pa.Table:
        system, _ = opened(self.path)
        tables: list[pa.Table] = []
        read = size = 0
        for path, _, _ in self._files():
            kind = next((FORMATS[end] for end in FORMATS if path.endswith(end)), None)
            if kind is None:
                raise RuleSourceError(f"{path} has no supported format", f"Formats: {', '.join(FORMATS)}")

            def check(rows_of_file: int, size_of_file: int, before: tuple[int, int] = (read, size)) -> None:
                _check_size(self.path, before[0] + rows_of_file, before[1] + size_of_file)

            try:
                opener = system.open_input_file if kind == "parquet" else system.open_input_stream
                with opener(path) as file:
                    table = _rows_in(file, kind, columns, path, check)
            except (OSError, pa.ArrowException, ValueError, KeyError) as error:
                raise RuleSourceError(f"{path} cannot be read", described(error).splitlines()[0]) from None
            read, size = read + table.num_rows, size + table.nbytes
            tables.append(table)
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise PatternProcessorError(f"the files in {self.path} do not have the same columns", str(error)) from None


class SqlLookupSource(LookupSource):
    """The rows of a database table or view.

    :param url: an SQLAlchemy URL: ``sqlite:///rules.db``, ``postgresql://user:password@host/database``
    :param table: its name, or ``schema.table``
    :param connect_args: further arguments for the driver
    :raises PatternProcessorError: the URL cannot be parsed

    >>> SqlLookupSource("postgresql://rules:secret@db.example.com/fraud", "limits")
    SqlLookupSource('postgresql://rules:***@db.example.com/fraud', 'limits')
    """

    def __init__(self, url: str | sa.URL, table: str, *, connect_args: Mapping[str, Any] | None = None) -> None:
        expect_string(PatternProcessorError, table, "the table name must be a string", 'table="limits"')
        expect(PatternProcessorError, connect_args, Mapping | None, "connect_args must be a dict")
        self.url, self.table, self.connect_args = parsed_url(url), table, dict(connect_args or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_url(self.url)!r}, {self.table!r})"

    def schema(self) -> pa.Schema:
        with closing(Database(self.url, self.connect_args)) as database, database.read() as connection:
            schema, table = split_name(self.table)
            columns = sa.inspect(connection).get_columns(table, schema)
        return pa.schema([(column["name"], self._type_of(column["name"], column["type"])) for column in columns])

    def _type_of(self, name: str, kind: sa.types.TypeEngine[Any]) -> pa.DataType:
        if isinstance(kind, sa.DateTime):
            return pa.timestamp("us", "UTC" if kind.timezone else None)
        if isinstance(kind, sa.Numeric) and not isinstance(kind, sa.Float):
            return pa.decimal128(kind.precision, kind.scale or 0) if kind.precision else pa.float64()
        for known, arrow_type in _TYPES:
            if isinstance(kind, known):
                return arrow_type
        raise PatternProcessorError(
            f"the column {name!r:.100} of {self.table} has the type {kind}, which lookups do not support",
            hint='name the others, with their types: schema="id STRING, max DOUBLE"',
        )

    def read(self, schema: pa.Schema) -> pa.Table:
        with closing(Database(self.url, self.connect_args)) as database, database.read() as connection:
            within, table = split_name(self.table)
            names = [column["name"] for column in sa.inspect(connection).get_columns(table, within)]
            source = sa.table(table, *(sa.column(name) for name in schema.names if name in names), schema=within)
            # Values are read as text, because a driver may be unable to convert some of them.
            texts = [sa.cast(column, sa.Text).label(column.name) for column in source.columns]
            if not texts:
                raise PatternProcessorError(
                    f"the table {self.table!r} has none of the columns {', '.join(schema.names):.1000}",
                    f"It has the columns {', '.join(names):.1000}.",
                )
            rows = connection.execution_options(yield_per=AT_ONCE).execute(sa.select(*texts).limit(MAX_ROWS + 1))
            return self._converted(rows, schema)

    def _converted(self, rows: Any, schema: pa.Schema) -> pa.Table:
        names = list(rows.keys())
        selected = pa.schema([schema.field(name) for name in names])
        count = size = 0
        batches: list[pa.RecordBatch] = []
        for part in rows.partitions():
            columns = [
                _values_of(pa.array(texts, pa.string()), field, self.table)
                for texts, field in zip(zip(*part, strict=True), selected, strict=True)
            ]
            batch = pa.record_batch(columns, schema=selected)
            count, size = count + batch.num_rows, size + batch.nbytes
            _check_size(self.table, count, size)
            batches.append(batch)
        return pa.Table.from_batches(batches, selected)


class KafkaLookupSource(LookupSource):
    """The rows of a compacted topic of Kafka.

    :param servers: the addresses of brokers, as ``bootstrap.servers`` of Kafka: ``broker1:9092,broker2:9092``
    :param topic: its name. The key of a record is that of the row; the value is the row, a JSON object with all columns, also
        those of the key; without a value (a tombstone), the record removes the row. ``cleanup.policy`` must be ``compact``.
    :param options: further options of the client, those of librdkafka; their values are shown nowhere
    :raises PatternProcessorError: the servers, the topic or the options are invalid

    The columns are inferred from the rows, unless the lookup declares them. Needs the extra ``kafka``.

    >>> KafkaLookupSource("broker:9092", "limits", options={"sasl.password": "secret"})
    KafkaLookupSource('broker:9092', 'limits', options=['sasl.password'])
    """

    def __init__(self, servers: str, topic: str, *, options: Mapping[str, Any] | None = None) -> None:
        self.servers, self.topic = checked_servers(servers), checked_topic(topic)
        self.options = checked_options(options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.servers!r}, {self.topic!r}, options={list(self.options)})"

    def schema(self) -> pa.Schema:
        return self._read(None).schema

    def read(self, schema: pa.Schema) -> pa.Table:
        return self._read(schema)

    def state(self) -> Any:
        with closing(KafkaClient(self.servers, self.options)) as client:
            return client.extent(self.topic)

    def _read(self, columns: pa.Schema | None) -> pa.Table:
        with closing(KafkaClient(self.servers, self.options)) as client:
            records = CompactedTopic(client, self.topic, MAX_ROWS, MAX_BYTES).poll()
        texts = pa.BufferReader(b"\n".join(map(_line_of, records.values())))
        if not records:
            return pa.schema([] if columns is None else columns).empty_table()
        try:
            return _rows_in(texts, "json", columns, self.topic, partial(_check_size, self.topic))
        except (OSError, pa.ArrowException, ValueError) as error:
            raise RuleSourceError(
                f"the topic {self.topic!r} cannot be read", described(error).splitlines()[0]
            ) from None


def _line_of(record: TopicRecord) -> bytes:
    """The row in a record, as one line.

    :raises PatternProcessorError: it is not a JSON object
    """
    try:
        row = json.loads(record.value)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or record.key is None:
        problem = "is not a JSON object" if record.key is not None else "has no key"
        raise RuleSourceError(f"the record in {record.place} {problem}", hint='{"customer": "a", "max": 1000}')
    return record.value.replace(b"\n", b" ").replace(b"\r", b" ")


def _rows_in(file: Any, kind: str, columns: pa.Schema | None, what: str, check: Callable[[int, int], None]) -> pa.Table:
    """The rows of one file. *check* raises an error if they are too many."""
    if kind == "parquet" or columns is None:
        return read_bounded(file, kind, columns, check)
    # In a text, timestamps may have a zone, or none.
    texts = pa.schema([field.with_type(pa.string()) if _is_instant(field) else field for field in columns])
    table = read_bounded(file, kind, texts, check)
    for field in columns:
        if _is_instant(field) and field.name in table.column_names:
            values = _values_of(one_chunk(table.column(field.name)), field, what)
            table = table.set_column(table.column_names.index(field.name), field, values)
    return table


def _is_instant(field: pa.Field) -> bool:
    return pa.types.is_timestamp(field.type) and field.type.tz is not None


def _values_of(texts: pa.Array, field: pa.Field, table: str) -> pa.Array:
    """Values from their texts in a database or a file."""
    kind = field.type
    if pa.types.is_binary(kind):
        raise PatternProcessorError(f"the column {field.name!r:.100} of {table} cannot be BINARY")
    try:
        if pa.types.is_integer(kind):  # SQLite writes 5.0 for a REAL
            texts = pc.replace_substring_regex(texts, r"\.0+$", "")
        if pa.types.is_timestamp(kind) and kind.tz is not None:  # without a zone: UTC
            zoned = pc.match_substring_regex(texts, r":.*([Zz]|[+-]\d\d(:?\d\d)?)$")
            texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
            texts = pc.replace_substring_regex(texts, r"([+-]\d\d)$", r"\1:00")
        return texts.cast(kind)
    except pa.ArrowInvalid as error:
        raise PatternProcessorError(
            f"the column {field.name!r:.100} of {table} has values that are not {name_of(kind)}",
            str(error).splitlines()[0],
        ) from None


def _check_size(what: str, rows: int, size: int) -> None:
    if rows > MAX_ROWS:
        raise PatternProcessorError(f"{what} has more than {MAX_ROWS:,} rows")
    if size > MAX_BYTES:
        raise PatternProcessorError(f"{what} has more than {MAX_BYTES:,} bytes")


def source_of(lookup: Lookup) -> LookupSource:
    """:raises PatternProcessorError: it is none of the sources that a lookup can have"""
    source = lookup.source
    is_database = isinstance(source, str) and "://" in source and not is_in_store(source)
    if is_database != (lookup.table is not None):
        hint = 'Lookup("postgresql://user@host/database", table="limits", key="customer")'
        raise PatternProcessorError(
            "a lookup in a database needs its URL and a table, and others have no table", hint=hint
        )
    if is_database:
        assert lookup.table is not None
        return SqlLookupSource(source, lookup.table)
    if isinstance(source, LookupSource):
        return source
    if isinstance(source, pa.Table):
        _check_size("the table", source.num_rows, source.nbytes)
        return GivenRows.of(source)
    if isinstance(source, str | os.PathLike) and os.fspath(source):
        return FileLookupSource(source)
    raise PatternProcessorError(
        f"this is not the source of a lookup: {shown(source)}", hint="a path, the URL of a database, or a table"
    )
