"""Events that are read again for each result, and of which only those columns are read that a query needs.

These are files of Parquet, relations of DuckDB, datasets of pyarrow, and lazy frames of Polars; files of CSV and JSON if they
are large. Everything else is read when the stream is made. See docs/decisions/0141.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from asterism.columns.arrays import empty_table
from asterism.columns.event_files import (
    TIMESTAMPS,
    as_in_spark,
    errors_of_file,
    files_of,
    parts_of_file,
    path_of,
    schema_of_parquet,
    types_of_file,
)
from asterism.columns.time import TimeColumn
from asterism.embedded.databases import database_of_files, is_read_alike
from asterism.embedded.memory import memory_of_tables
from asterism.embedded.source_filters import SourceFilter
from asterism.errors import AsterismError, StreamDefinitionError
from asterism.expressions.types import quoted_name

_ROWS = 2**17
"""The number of rows of a batch."""
_COMPRESSION = 8
"""How much larger a file is that was compressed, about."""
_NO_LIMIT = 2**63 - 1
_COMPARABLE = {
    "VARCHAR", "BOOLEAN", "FLOAT", "DOUBLE", "DATE",
    *(f"{sign}{size}" for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT") for sign in ("", "U")),
    *(f"TIMESTAMP{kind}" for kind in ("", "_S", "_MS", "_NS", " WITH TIME ZONE")),
}  # fmt: skip
"""The types of columns of DuckDB that are compared as those of Arrow."""
Batches = Callable[[Sequence[str], SourceFilter | None], Iterable[pa.RecordBatch]]
"""Reads some of the columns: of all rows, or at least of those that a filter keeps."""


class LazyTable:
    """Events that are not in memory. It has of a table what queries use.

    :ivar schema: the columns with the types that they have in Spark
    :param read: reads some columns, with the types of the source
    :param convert: the conversion of a table of the source to the types of Spark
    :param computed: further columns, which are computed from a table of all others
    """

    def __init__(
        self,
        schema: pa.Schema,
        read: Batches,
        convert: Callable[[pa.Table], pa.Table],
        computed: Mapping[str, Callable[[pa.Table], pa.ChunkedArray]] | None = None,
    ) -> None:
        self.schema, self._read, self._convert, self._computed = schema, read, convert, dict(computed or {})

    @property
    def column_names(self) -> list[str]:
        names: list[str] = self.schema.names
        return names

    @cached_property
    def num_rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches(self.column_names[:1]))

    def with_computed(
        self, schema: pa.Schema, columns: Mapping[str, Callable[[pa.Table], pa.ChunkedArray]]
    ) -> LazyTable:
        """With further columns.

        :param schema: that of all columns
        """
        return LazyTable(schema, self._read, self._convert, {**self._computed, **columns})

    def select(self, names: Sequence[str]) -> pa.Table:
        """Some columns, in memory."""
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        return pa.Table.from_batches(self.batches(names), schema)

    def column(self, name: str) -> pa.ChunkedArray:
        return self.select([name]).column(0)

    def batches(self, names: Sequence[str], only: SourceFilter | None = None) -> Iterator[pa.RecordBatch]:
        """Some columns, batch by batch.

        :param only: of the rows that the filter does not keep, none need be read. All batches may have its bits, and the columns
            beside them, instead.
        :raises StreamDefinitionError: reading fails
        """
        stored = [name for name in self.column_names if name not in self._computed]
        # An expression may read any column; there is none if the query needs only others.
        read = [name for name in stored if name in names]
        if any(name in self._computed for name in names):
            read, only = stored, only and only._replace(bits=None)
        expected = pa.schema([self.schema.field(name) for name in names])
        bits = only and only.bits
        with _errors():
            for batch in self._read(read or stored[:1], only):
                table = self._convert(pa.Table.from_batches([batch]))
                for name, values in self._computed.items():
                    if name in names:
                        table = table.append_column(name, values(table))
                if bits is not None and bits.are_in(table.column_names):
                    names = [*bits.beside, *(field.name for field in bits.fields)]
                    expected = pa.schema([*(self.schema.field(name) for name in bits.beside), *bits.fields])
                    bits = None
                table = table.select(names)
                if not table.schema.equals(expected):
                    raise StreamDefinitionError(
                        "the types of the events have changed since the stream was made",
                        f"Before: {_shown(expected)}\nNow: {_shown(table.schema)}",
                        "make a new KeyedStream",
                    )
                yield from table.combine_chunks().to_batches()


class SelectedEvents:
    """Some columns of events that are not in memory."""

    def __init__(self, events: LazyTable, names: Sequence[str], only: SourceFilter | None = None) -> None:
        self._events, self._names, self._only = events, names, only

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._events.batches(self._names, self._only)


def lazy_source(events: Any, time: str | None) -> tuple[pa.Schema, Batches] | None:
    """The schema of a source, and what reads it; None: it is to be read at once.

    :param time: the event-time column
    :raises StreamDefinitionError: the source cannot be read
    """
    kind = f"{type(events).__module__}.{type(events).__name__}"
    with _errors():
        if isinstance(events, str | PathLike):
            return _files(path_of(events), time)
        if kind == "duckdb._relation.DuckDBPyRelation" or kind.endswith("duckdb.DuckDBPyRelation"):
            return _relation(events)
        if kind.startswith("polars.lazyframe."):
            schema = events.head(0).collect().to_arrow().schema
            return schema, lambda names, only: _of_lazy_frame(events, names, only and only.sql(schema))
        if kind.startswith("pyarrow._dataset.") and hasattr(events, "scanner"):
            return events.schema, lambda names, _: events.scanner(columns=list(names), batch_size=_ROWS).to_batches()
    return None


def _relation(relation: Any) -> tuple[pa.Schema, Batches]:
    """A relation of DuckDB."""
    schema = relation.limit(0).to_arrow_table().schema
    # Others have values that DuckDB compares otherwise: a UUID, which is a string of Arrow, is compared with UUIDs only.
    comparable = pa.schema(
        [field for field, kind in zip(schema, relation.types, strict=True) if str(kind) in _COMPARABLE]
    )

    def read(names: Sequence[str], only: SourceFilter | None) -> Iterable[pa.RecordBatch]:
        condition = only and only.sql(comparable, calls=True)
        columns = _columns(names, only, comparable)
        if condition is None:
            return _of_relation(relation, columns)
        # The optimizer moves a filter below expressions of the relation, such as a CAST, which then fail for other rows than
        # before. It cannot move it below a LIMIT.
        return _of_relation(relation.limit(_NO_LIMIT).filter(condition), columns)

    return schema, read


def _files(path: Path, time: str | None) -> tuple[pa.Schema, Batches] | None:
    """Files of Parquet; those of CSV and JSON if they are too large to be read at once."""
    if not path.exists():
        return None  # the error is that of other files
    kind, files = files_of(path)
    if kind != "parquet" and sum(map(_size, files)) <= memory_of_tables():
        return None
    footers = [Footer.of(file, time) for file in files] if kind == "parquet" else []
    try:
        schemas = [footer.schema for footer in footers] or _schemas_of_text(files, kind, time)
        schema = pa.unify_schemas(schemas, promote_options="permissive").remove_metadata()
    except pa.ArrowTypeError:
        return None
    except pa.ArrowException:
        if kind == "parquet":
            raise
        return None  # all values decide which types the columns have
    if kind == "parquet" and time in schema.names and pa.types.is_string(schema.field(time).type):
        return None  # the values decide which type the times have

    def read(names: Sequence[str], only: SourceFilter | None) -> Iterator[pa.RecordBatch]:
        every = pa.schema([schema.field(name) for name in names])
        bits = only and only.bits
        for batch in _of_files(files, kind, schemas, footers, names, only):
            whole = every
            if bits is not None and bits.are_in(batch.schema.names):
                whole = batch.schema
            nothing = pa.nulls(batch.num_rows)  # of a column that only other files have
            columns = [
                (batch.column(field.name) if field.name in batch.schema.names else nothing).cast(field.type)
                for field in whole
            ]
            table = pa.table(columns, schema=whole)
            yield from as_in_spark(table, kind, time).combine_chunks().to_batches()

    return as_in_spark(empty_table(schema), kind, time).schema, read


def _size(file: Path) -> int:
    """The bytes of a file of text, about."""
    return file.stat().st_size * (_COMPRESSION if file.name.endswith(".gz") else 1)


def _schemas_of_text(files: Sequence[Path], kind: str, time: str | None) -> list[pa.Schema]:
    """
    :raises pyarrow.ArrowException: only all values together say which types the columns have
    """
    kinds = list(TIMESTAMPS)

    def check(batch: pa.RecordBatch) -> None:
        """Strings of the event time are all timestamps without a zone, or all with one."""
        if time in batch.schema.names and pa.types.is_string(batch.schema.field(time).type):
            kinds[:] = [each for each in kinds if _are_timestamps(batch.column(time), each)]
            if not kinds:
                raise pa.ArrowInvalid("they are no timestamps")

    return [types_of_file(file, kind, check) for file in files]


def _are_timestamps(strings: pa.Array, kind: pa.DataType) -> bool:
    try:
        strings.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _of_files(
    files: Sequence[Path],
    kind: str,
    schemas: Sequence[pa.Schema],
    footers: Sequence[Footer],
    names: Sequence[str],
    only: SourceFilter | None,
) -> Iterator[pa.RecordBatch]:
    """Of each file the columns that it has."""
    if footers and only is not None and all(schema.equals(schemas[0]) for schema in schemas):
        timed = only.time is not None and have_times(footers, only.time)
        condition, columns = only.sql(schemas[0], timed=timed), _columns(names, only, schemas[0])
        if (condition is not None or columns.keys() != set(names)) and is_read_alike(files, schemas[0], names):
            are_read = yield from _of_parquet(files, columns, condition or "TRUE")
            if are_read:
                return
    for file, schema in zip(files, schemas, strict=True):
        yield from _parts(file, kind, schema, [name for name in names if name in schema.names])


@dataclass(frozen=True, slots=True)
class Footer:
    """What is used of the footer of a file of Parquet, which is read once.

    :ivar time: the column of event times; None: it is not known yet
    :ivar times: the least and the greatest of its values, None unless they are integers; None: a row may have none
    :ivar state: when the file was changed, and its size
    """

    file: Path
    schema: pa.Schema
    time: str | None
    times: tuple[int | None, int | None] | None
    state: tuple[int, int]

    @classmethod
    def of(cls, file: Path, time: str | None) -> Footer:
        with errors_of_file(file, "parquet"):
            state = _state(file)
            metadata = parquet.read_metadata(file)
            times = None if time is None else _times_in(metadata, time)
            return cls(file, schema_of_parquet(metadata), time, times, state)

    def times_of(self, time: str) -> tuple[int | None, int | None] | None:
        """*times* of this column, and of the file as it is now."""
        if time == self.time and self.state == _state(self.file):
            return self.times
        return Footer.of(self.file, time).times


def _state(file: Path) -> tuple[int, int]:
    known = file.stat()
    return known.st_mtime_ns, known.st_size


def _times_in(metadata: parquet.FileMetaData, time: str) -> tuple[int | None, int | None] | None:
    """See :class:`Footer`."""
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    schema = metadata.schema.to_arrow_schema()
    if paths.count(time) != 1 or time not in schema.names:  # an expression, or beside a field that has the same path
        return None
    number, is_integer = paths.index(time), pa.types.is_integer(schema.field(time).type)
    ends: list[int] = []
    for group in range(metadata.num_row_groups):
        known = metadata.row_group(group).column(number).statistics
        if known is None or not known.has_null_count or known.null_count or (is_integer and not known.has_min_max):
            return None
        ends += (known.min, known.max) if is_integer else ()
    return (min(ends), max(ends)) if ends else (None, None)


def have_times(footers: Iterable[Footer], time: TimeColumn) -> bool:
    """Whether the time of each row is one, by the statistics of files of Parquet. A filter need not look for others then."""
    first, last = time.range
    for footer in footers:
        times = footer.times_of(time.name)
        if times is None:
            return False
        least, greatest = times
        if least is not None and greatest is not None and not (first <= least and greatest <= last):
            return False
    return True


def _columns(names: Sequence[str], only: SourceFilter | None, source: pa.Schema) -> dict[str, str]:
    """What a query of DuckDB selects, by name: these columns; or bits, and the columns that are needed beside them."""
    with_bits = None if only is None else only.bits_sql(source)
    return {name: quoted_name(name) for name in names} if with_bits is None else with_bits


def _of_parquet(
    files: Sequence[Path], columns: Mapping[str, str], condition: str
) -> Generator[pa.RecordBatch, None, bool]:
    """The rows for which a condition holds. Returns whether DuckDB can read the files: Arrow knows further codecs."""
    import duckdb

    with database_of_files(files, pa.cpu_count()) as database:
        try:
            relation = database.read_parquet([str(file) for file in files], hive_partitioning=False)
            batches = iter(_of_relation(relation.filter(condition), columns))
            first = next(batches, None)
        except duckdb.Error:
            return False
        if first is not None:
            yield first
            yield from batches
    return True


def _parts(file: Path, kind: str, schema: pa.Schema, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a file; at least one of text."""
    with errors_of_file(file, kind):
        if kind == "parquet":
            with parquet.ParquetFile(file) as opened:
                yield from opened.iter_batches(_ROWS, columns=names)
            return
        yield from parts_of_file(file, kind, pa.schema([schema.field(name) for name in names or schema.names[:1]]))


def _of_relation(relation: Any, columns: Mapping[str, str]) -> Iterable[pa.RecordBatch]:
    selected = ", ".join(f"{text} AS {quoted_name(name)}" for name, text in columns.items())
    reader: Iterable[pa.RecordBatch] = relation.project(selected).to_arrow_reader(_ROWS)
    return reader


def _of_lazy_frame(frame: Any, names: Sequence[str], condition: str | None) -> Iterator[pa.RecordBatch]:
    if condition is not None:
        import polars

        frame = frame.filter(polars.sql_expr(condition))
    selected = frame.select(list(names))
    frames = selected.collect_batches() if hasattr(selected, "collect_batches") else [selected.collect()]
    for each in frames:
        yield from each.to_arrow().to_batches(max_chunksize=_ROWS)


@contextmanager
def _errors() -> Iterator[None]:
    """Errors of a source, of any class, in the block."""
    try:
        yield
    except AsterismError:
        raise
    except Exception as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> StreamDefinitionError:
    """The error for events whose source has raised an error of any class."""
    reason = "; ".join(str(error).partition(" Detail: Python exception")[0].split("\n"))[:300]
    hint = (
        "a column has a type that Arrow does not have: cast it, or leave it out" if "format string" in reason else None
    )
    return StreamDefinitionError("the events cannot be read", f"{type(error).__name__}: {reason}", hint)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)[:1000]
