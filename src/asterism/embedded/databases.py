"""Databases of DuckDB for parts of queries over Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from asterism.errors import StreamDefinitionError


def database(zone: str) -> duckdb.DuckDBPyConnection:
    """A database that can only read the tables that it is given."""
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("SET TimeZone = '" + zone.replace("'", "''") + "'")
    except duckdb.Error:
        connection.close()
        raise StreamDefinitionError(
            f"DuckDB does not know the time zone {zone!r:.60}", hint="a zone with a name, such as Europe/Berlin"
        ) from None
    return _closed(connection)


def is_read_alike(files: Sequence[Path], schema: pa.Schema, names: Sequence[str]) -> bool:
    """Whether DuckDB finds the same files of Parquet as Arrow, and in these columns the same values.

    :param schema: all columns of each file, as Arrow reads them
    """
    if any(set("*?[") & set(str(file)) for file in files):  # a pattern of names
        return False
    if len({name.lower() for name in schema.names}) < len(schema.names):
        return False
    are = pa.types
    alike = (
        are.is_integer,
        are.is_float32,
        are.is_float64,
        are.is_boolean,
        are.is_string,
        are.is_date32,
        are.is_decimal128,
    )
    kinds = [schema.field(name).type for name in names]
    return all(
        any(is_kind(kind) for is_kind in alike) or (are.is_timestamp(kind) and kind.unit in ("us", "ms"))
        for kind in kinds
    )


def database_of_files(files: Sequence[Path], threads: int) -> duckdb.DuckDBPyConnection:
    """A database that can only read these files."""
    connection = duckdb.connect(":memory:", config={"threads": threads})
    connection.execute("SET allowed_paths = $1", [[str(file) for file in files]])
    return _closed(connection)


def _closed(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Queries cannot read variables of Python nor other files, and cannot change that."""
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


@contextmanager
def errors_of_database(problem: str) -> Iterator[None]:
    """Errors of DuckDB in the block are a StreamDefinitionError.

    :param problem: its message
    """
    try:
        yield
    except duckdb.Error as error:
        raise StreamDefinitionError(problem, str(error).partition("\n")[0]) from error
