"""Reads events from files without Spark: CSV with a header, JSON lines and Parquet, with the types that Spark infers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json, parquet

from asterism.arguments import shown
from asterism.columns.schemas import schema_of
from asterism.errors import ColumnTypeError, StreamDefinitionError

_OF_JSON = [".jsonl", ".json", ".ndjson"]
FORMATS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    **{end + compressed: "json" for end in _OF_JSON for compressed in ("", ".gz")},
    ".parquet": "parquet",
}
"""Formats, by the suffix of the file name. JSON has one object in each line, whatever the suffix."""
_HINT_AT_SCHEMA = (
    'KeyedStream(pyarrow.schema([("user", pyarrow.string()), ("ts", pyarrow.timestamp("us", "UTC"))]), ...)'
)
_ONE_IN_EACH_LINE = "write one object in each line, without a list around them"
_VALUES: Mapping[str, Any] = {"null_values": [""], "strings_can_be_null": True, "quoted_strings_can_be_null": False}
"""An empty field is null; a quoted empty field is an empty string."""
_PARSING = csv.ParseOptions(newlines_in_values=True)
_FIRST, _BLOCK = 2**25, 2**22
"""The bytes of a file by which its types are known, and those of a part of it."""


def check_names(names: Sequence[str], place: str = "") -> None:
    """:raises StreamDefinitionError: two columns have the same name"""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        problem = f"{place}two columns are named {twice!r:.100}"
        raise StreamDefinitionError(problem, f"Columns: {', '.join(names):.1000}", "rename one")


def path_of(location: str | PathLike[str]) -> Path:
    """The path of a file or a folder.

    :raises StreamDefinitionError: it is a URI
    """
    text = fspath(location)
    if isinstance(text, str) and "://" in text:
        is_web = text.startswith("http")
        hint = f"duckdb.sql(\"FROM '{text:.200}'\")" if is_web else f'pyarrow.dataset.dataset("{text:.200}")'
        raise StreamDefinitionError(f"files are read from a local disk, not from {shown(location)}", hint=hint)
    return Path(location)


def files_of(path: Path) -> tuple[str, list[Path]]:
    """The format of a file, or of the files in a folder, and the list of files in the order of their names.

    :raises StreamDefinitionError: there is no file in a supported format, there are several formats, or files in folders only
    """
    if not path.exists():
        _check_text(path)
    files = [file for file in sorted(path.iterdir()) if file.name[0] not in "._"] if path.is_dir() else [path]
    if files and all(file.is_dir() for file in files):
        hint = f'pyarrow.dataset.dataset("{path}", partitioning="hive") reads files of Parquet in folders'
        raise StreamDefinitionError(f"{path} has no files, but folders: {shown(files[0].name)}", hint=hint)
    by_end = {end: [file for file in files if _ends(file.name, end)] for end in FORMATS}
    ends = sorted(end for end, named in by_end.items() if named)
    formats = {FORMATS[end] for end in ends}
    if len(formats) != 1:
        problem = f"it has files of several formats ({', '.join(ends)})" if formats else "no file in a supported format"
        hint = f"supported formats: {', '.join(FORMATS)}; a DataFrame of another one is a table, too"
        raise StreamDefinitionError(f"{path}: {problem}", hint=hint)
    return formats.pop(), sorted(file for named in by_end.values() for file in named)


def _check_text(path: Path) -> None:
    """:raises StreamDefinitionError: what is no path of a file is columns with their types, or a query, or has wildcards"""
    text = str(path)
    if _is_schema(text):
        raise StreamDefinitionError(
            f"{shown(text)} is not the path of a file",
            "A string is a path. The columns of a live stream are an Arrow schema.",
            _HINT_AT_SCHEMA,
        )
    if re.match(r"\s*(SELECT|WITH|FROM)\s", text, re.IGNORECASE):
        raise StreamDefinitionError(f"{text!r:.100} is no file", hint="duckdb.sql(...) makes a relation of a query")
    if any(character in text for character in "*?["):
        hint = f'duckdb.read_parquet("{path}"), duckdb.read_csv and duckdb.read_json read several files'
        raise StreamDefinitionError(f"{path} is no file, and names of files have no wildcards", hint=hint)


def _is_schema(text: str) -> bool:
    with suppress(StreamDefinitionError):
        schema_of(text)
        return True
    return False


def _ends(name: str, end: str) -> bool:
    """Letters of any case are equal, but Arrow decompresses ``.gz`` only."""
    return name.endswith(end) or (not end.endswith(".gz") and name.lower().endswith(end))


def read_events(path: Path, time: str | None = None) -> pa.Table:
    """The events of a file, or of the files in a folder, which must have the same format, in the order of their names.

    :param time: the event-time column, whose strings and dates are converted to timestamps
    :raises StreamDefinitionError: a file does not exist, cannot be read, or has other columns than the other files
    """
    tables = []
    kind, files = files_of(path)
    schema: pa.Schema | None = None
    for file in files:
        with errors_of_file(file, kind):
            tables.append(read_table(file, kind))
            now = tables[-1].schema
            check_names(now.names, f"{file}: ")
        try:
            schema = now if schema is None else pa.unify_schemas([schema, now], promote_options="permissive")
        except pa.ArrowException as error:
            raise StreamDefinitionError(
                f"{file} does not have the columns of the files before it", str(error)
            ) from None
    return as_in_spark(pa.concat_tables(tables, promote_options="permissive"), kind, time)


@contextmanager
def errors_of_file(file: Path, kind: str) -> Iterator[None]:
    """Errors in the block name the file.

    :raises StreamDefinitionError: the file cannot be read
    """
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last one of the names of columns
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        hint = _ONE_IN_EACH_LINE if kind == "json" and "changed from object to array" in problem else None
        raise StreamDefinitionError(f"{file} cannot be read", problem, hint) from None


def schema_of_parquet(metadata: parquet.FileMetaData) -> pa.Schema:
    """The columns of a file. Timestamps of 96 bits, which Spark writes by default, have the time zone UTC, as in Spark."""
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    of_spark = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    schema = metadata.schema.to_arrow_schema()
    for number, field in enumerate(schema):
        if field.name in of_spark and pa.types.is_timestamp(field.type):
            schema = schema.set(number, field.with_type(pa.timestamp(field.type.unit, "UTC")))
    return schema


def read_table(source: Path | BinaryIO, kind: str) -> pa.Table:
    """The events of one file, which is csv, json or parquet, with the types of Arrow. An ArrowException: it cannot be read."""
    match kind:
        case "csv":
            return csv.read_csv(source, convert_options=csv.ConvertOptions(**_VALUES), parse_options=_PARSING)
        case "json":
            return json.read_json(source)
        case _:
            with parquet.ParquetFile(source) as file:
                return file.read().cast(schema_of_parquet(file.metadata))


def read_bounded(source: Any, kind: str, columns: pa.Schema | None, limit: Callable[[int, int], None]) -> pa.Table:
    """The rows of one file, in parts, so that a file that is too large need not fit into memory.

    :param source: an open file
    :param columns: the columns to read, with their types; None: all, with the types of Arrow. A Parquet file has its own types.
    :param limit: called with the numbers of rows and bytes read so far; it raises an error if they are too many
    :raises pyarrow.ArrowException: it cannot be read
    """
    rows = size = 0
    read: list[pa.RecordBatch] = []
    schema, batches = _batches(source, kind, columns)
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        limit(rows, size)
        read.append(batch)
    return pa.Table.from_batches(read, schema)


def types_of_file(file: Path, kind: str, check: Callable[[pa.RecordBatch], None]) -> pa.Schema:
    """The columns of a file of CSV or JSON, and the types of Arrow that :func:`read_table` gives them, found part by part.

    :param check: called with each part
    :raises pyarrow.ArrowException: a part has other columns or types than the first one; then only :func:`read_table` knows them
    """
    schema = _batches(file, kind, None, block=_FIRST)[0]
    for batch in parts_of_file(file, kind, schema, others="error"):
        check(batch)
    return schema


def parts_of_file(file: Path, kind: str, columns: pa.Schema, *, others: str = "ignore") -> Iterable[pa.RecordBatch]:
    """Some columns of a file of CSV or JSON, part by part, with these types.

    :param others: what other fields of JSON are: "ignore" or "error"
    """
    return _batches(file, kind, columns, block=_BLOCK, others=others)[1]


def _batches(
    source: Any, kind: str, columns: pa.Schema | None, *, block: int | None = None, others: str = "ignore"
) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if kind == "csv":
        given = {} if columns is None else {field.name: field.type for field in columns}
        options = csv.ConvertOptions(column_types=given, include_columns=list(given), **_VALUES)
        reading = csv.ReadOptions(block_size=block)
        reader = csv.open_csv(source, reading, convert_options=options, parse_options=_PARSING)
        return reader.schema, reader
    if kind == "json":
        explicit = (
            None if columns is None else json.ParseOptions(explicit_schema=columns, unexpected_field_behavior=others)
        )
        read = json.open_json(source, json.ReadOptions(block_size=block), explicit)
        return read.schema, read
    file = parquet.ParquetFile(source)
    names = [name for name in file.schema_arrow.names if columns is None or name in columns.names]
    schema = pa.schema([file.schema_arrow.field(name) for name in names])
    return schema, file.iter_batches(columns=names)


def as_in_spark(events: pa.Table, kind: str, time: str | None = None) -> pa.Table:
    """Events of a file with the types that Spark infers. Strings and dates of the column *time* become timestamps.

    :param kind: csv, json or parquet. A timestamp of text without a time zone is UTC; one of Parquet is a TIMESTAMP_NTZ.
    :raises ColumnTypeError: a string of the column *time* is no timestamp
    """
    for number, field in enumerate(events.schema):
        column = events.column(number)
        if field.name == time and (pa.types.is_string(field.type) or pa.types.is_date(field.type)):
            column = _in_utc(timestamps(column))
            if pa.types.is_string(column.type):
                raise _no_timestamp(field.name, column)
        elif field.name == time and pa.types.is_integer(field.type):
            column = column.cast(pa.int64())
        elif field.name == time and pa.types.is_null(field.type):
            column = column.cast(TIMESTAMPS[1])
        elif pa.types.is_timestamp(field.type):
            column = column.cast(pa.timestamp("us", field.type.tz), safe=False)
            column = column if kind == "parquet" else _in_utc(column)
        elif kind != "parquet" and pa.types.is_binary(field.type):
            column = _decoded(column)
        events = events.set_column(number, field.name, column)
    return events


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text that is not UTF-8, as Spark reads it."""
    texts = [value if value is None else value.decode(errors="replace") for value in column.to_pylist()]
    return pa.chunked_array([texts], pa.string())


def _in_utc(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Timestamps without a time zone are in that of the session, which is UTC here."""
    if not pa.types.is_timestamp(column.type) or column.type.tz is not None:
        return column
    return pc.assume_timezone(column, "UTC")


TIMESTAMPS = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
"""The types of strings without and with a time zone."""
_WITH_ZONE = r"\d{2}:\d{2}.*(Z|[+-]\d{2}(:?\d{2})?)$"


def timestamps(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Strings and dates as timestamps, if they are; otherwise the column as it is.

    >>> timestamps(pa.chunked_array([["2026-01-31 12:00:00", "2026-01-31T12:00:00+02:00"]])).to_pylist()[1].hour
    10
    """
    for kind in TIMESTAMPS:
        with suppress(pa.ArrowInvalid):
            return column.cast(kind)
    with suppress(pa.ArrowInvalid):  # some have a time zone, and the others are in UTC
        zoned = pc.match_substring_regex(column, _WITH_ZONE)
        local = _in_utc(pc.if_else(zoned, None, column).cast(TIMESTAMPS[0]))
        return pc.coalesce(pc.if_else(zoned, column, None).cast(TIMESTAMPS[1]), local)
    return column


def _no_timestamp(name: str, column: pa.ChunkedArray) -> ColumnTypeError:
    """
    :param column: strings, of which one at least is no timestamp
    """
    while len(column) > 1:
        half = column.slice(0, len(column) // 2)
        column = half if pa.types.is_string(timestamps(half).type) else column.slice(len(half))
    return ColumnTypeError(
        f'the event time "{name}" has a string that is no timestamp: {shown(column[0].as_py())}',
        "A timestamp is written as 2026-01-31 12:00:00, or with a time zone as 2026-01-31T12:00:00.5+01:00.",
        f"""duckdb.sql("SELECT * REPLACE (strptime({name}, '%d/%m/%Y %H:%M') AS {name}) FROM 'events.csv'")""",
    )
