"""Rows in a table of a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from asterism.arguments import expect, expect_string
from asterism.errors import ColumnNotFoundError, PatternProcessorError, SinkError
from asterism.sinks.common import ToArrow, check_key, named_columns

if TYPE_CHECKING:
    import sqlalchemy as sa

ROWS = 1_000
"""The number of rows in one call of the driver."""


class SqlSink:
    """Inserts rows into a table of SQLite or PostgreSQL, each of them once.

    A sink of :meth:`PatternStream.run` and of the other streams: it is called with the rows of a micro-batch. All of them are
    inserted in one transaction. A row whose key the table already has is not inserted, so a micro-batch that is repeated
    after a failure changes nothing. This is exactly once only if the database compares keys, so the table must have a primary
    key or a unique constraint on exactly the columns of *key*; a table without one is refused.

    The rows are collected on the driver. The table must exist. Columns of the table that a row does not have get their
    defaults. Types are those of the database's driver; in SQLite, times are stored as text in UTC.

    :param url: the database: ``sqlite:///alarms.db``, ``postgresql://user:password@host/database`` (needs the extra
        ``postgres``), or a :class:`sqlalchemy.URL`
    :param table: the name of the table, in PostgreSQL with its schema: ``public.alarms``
    :param key: the column, or the columns, that identify a row. The key of a match is ``match_id``, which does not depend on
        micro-batches or restarts.
    :raises SinkError: an argument is invalid. When it is called: the table does not exist, has no unique constraint on the
        key, or has other columns; a row has no key, or a value that is not scalar; the database does not respond
    :raises ColumnNotFoundError: when it is called: the table has no such column

    >>> SqlSink("postgresql://ann:secret@db.example.com/fraud", "alarms")
    SqlSink('postgresql://ann:***@db.example.com/fraud', 'alarms', key=('match_id',))
    """

    def __init__(self, url: str | sa.URL, table: str, *, key: str | Sequence[str] = "match_id") -> None:
        import sqlalchemy as sa

        from asterism.discovery.sources.database import parsed_url

        expect(SinkError, url, str | sa.URL, "the URL of a sink must be a string", "sqlite:///alarms.db")
        expect_string(SinkError, table, "the table of a sink must be a string", '"alarms"')
        keys = named_columns(key)
        with _errors():
            self.url = parsed_url(url)
        if self.url.get_backend_name() not in ("sqlite", "postgresql"):
            raise SinkError(
                f"a sink cannot write to {self.url.get_backend_name()} exactly once",
                hint="SQLite or PostgreSQL; for others, write a function that inserts rows whose key is new",
            )
        self.table, self.key = table, keys

    def __repr__(self) -> str:
        from asterism.discovery.sources.database import shown_url

        return f"SqlSink({shown_url(self.url)!r}, {self.table!r}, key={self.key})"

    def __call__(self, df: ToArrow | pa.Table, batch_id: int) -> None:
        """Write the rows of a micro-batch or of a call; *batch_id* does not matter."""
        self.insert(df if isinstance(df, pa.Table) else df.toArrow())

    def insert(self, rows: pa.Table) -> None:
        """Insert those of *rows* that the table does not have."""
        from asterism.discovery.sources.database import Database

        expect(SinkError, rows, pa.Table, "the rows of a sink must be a pyarrow.Table")
        self._check(rows)
        with _errors():
            database = Database(self.url)
            try:
                with database.begin() as connection:
                    statement = self._statement(connection, rows.column_names)
                    for batch in rows.to_batches(max_chunksize=ROWS):
                        values = batch.to_pylist()
                        if database.is_sqlite:
                            values = [{name: _in_sqlite(value) for name, value in row.items()} for row in values]
                        if values:
                            connection.execute(statement, values)
            finally:
                database.close()

    def _check(self, rows: pa.Table) -> None:
        check_key(self.key, rows.column_names)
        for name in self.key:
            if rows.column(name).null_count:
                raise SinkError(f"{rows.column(name).null_count} rows have no {name!r}, which is their key")
        nested = [field.name for field in rows.schema if pa.types.is_nested(field.type)]
        if nested:
            raise SinkError(
                f"the column {nested[0]!r} has events or other values that are not scalar",
                hint='write measures instead: select={"matches": ["match_id", "COUNT(a.*) AS events"]}',
            )

    def _statement(self, connection: sa.Connection, columns: Sequence[str]) -> Any:
        import sqlalchemy as sa
        from sqlalchemy.dialects import postgresql, sqlite

        from asterism.discovery.sources.sql_table import split_name

        schema, name = split_name(self.table)
        inspector = sa.inspect(connection)
        if not inspector.has_table(name, schema):
            raise SinkError(
                f"there is no table {self.table!r}", hint=f"CREATE TABLE ... PRIMARY KEY ({', '.join(self.key)})"
            )
        available = [column["name"] for column in inspector.get_columns(name, schema)]
        for column in columns:
            if column not in available:
                raise ColumnNotFoundError.from_missing_and_available(column, available, f"in the table {self.table!r}")
        unique = [inspector.get_pk_constraint(name, schema)["constrained_columns"]]
        unique += [constraint["column_names"] for constraint in inspector.get_unique_constraints(name, schema)]
        if set(self.key) not in map(set, unique):
            raise SinkError(
                f"the table {self.table!r} cannot be written exactly once: {', '.join(self.key)} is not unique",
                hint=f"ALTER TABLE {self.table} ADD PRIMARY KEY ({', '.join(self.key)})"
                if connection.dialect.name == "postgresql"
                else f"create it with PRIMARY KEY ({', '.join(self.key)})",
            )
        # Without types, so that values reach the driver as they are.
        target = sa.table(name, *(sa.column(column) for column in columns), schema=schema)
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        return insert(target).on_conflict_do_nothing(index_elements=self.key)


def _in_sqlite(value: Any) -> Any:
    """A value of a type that SQLite has."""
    match value:
        case datetime():
            moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value
            return moment.isoformat(" ")
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case _:
            return value


@contextmanager
def _errors() -> Iterator[None]:
    """Raise the errors of the database, which are those of rules, as errors of a sink."""
    try:
        yield
    except PatternProcessorError as error:
        raise SinkError(error.message, error.detail, error.hint) from None
