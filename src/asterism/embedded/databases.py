"""Databases of DuckDB for parts of queries over Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

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
