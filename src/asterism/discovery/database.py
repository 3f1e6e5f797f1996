"""Connections to a database through SQLAlchemy, and how they are told of without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError

from asterism.errors import PatternProcessorError

TIMEOUT = 10  # seconds for a connection, and for the other side to answer at all
STATEMENT_TIMEOUT = 30  # seconds
_MYSQL = "pip install pymysql, and {0}+pymysql://user:password@host/database"
_DRIVERS = {
    "postgresql": "pip install 'asterism[postgres]'",
    "mysql": _MYSQL.format("mysql"),
    "mariadb": _MYSQL.format("mariadb"),
    "oracle": "pip install oracledb, and oracle+oracledb://...",
    "mssql": "pip install pymssql, and mssql+pymssql://...",
}
"""By database, what to do where its driver is not installed."""


def parsed_url(url: str | sa.URL) -> sa.URL:
    """:raises PatternProcessorError: it is none, or its database is of no use here; the text does not repeat it"""
    try:
        found = sa.make_url(url)
        found.get_backend_name()
    except Exception:
        # It may have a password in it, and so may what is said about it.
        raise PatternProcessorError(
            "the URL of the database cannot be read",
            hint="sqlite:///rules.db, or postgresql://user:password@host/database; in a password write %40 for @, %2F for /",
        ) from None
    if found.host is not None and "@" in found.host:
        raise PatternProcessorError("the URL of the database has two @", hint="in a password write %40")
    if found.get_backend_name() == "sqlite" and found.database in (None, "", ":memory:"):
        raise PatternProcessorError(
            "a SQLite database in memory can be seen by nobody else", hint="sqlite:///rules.db, a file"
        )
    if found.get_backend_name() == "sqlite" and not str(found.database).startswith("file:"):
        return found.set(database=str(Path(str(found.database)).absolute()))
    if found.drivername in ("postgresql", "postgres"):
        return found.set(drivername="postgresql+psycopg")
    return found


def shown_url(url: sa.URL) -> str:
    """Without the password, and without options, of which some are secret, too."""
    drivername = url.drivername.replace("+psycopg", "")
    return url.set(query={}, drivername=drivername).render_as_string(hide_password=True)


class Database:
    """Connections to a database; whatever goes wrong is told without secrets."""

    def __init__(self, url: sa.URL, connect_args: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self.is_postgresql = url.get_backend_name() == "postgresql"
        arguments: dict[str, Any] = {}
        options: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_pre_ping": True}
        if self.is_sqlite:
            # A connection that is kept would go on with a file that has been replaced.
            options = {"poolclass": sa.pool.NullPool}
        if url.drivername == "postgresql+psycopg":
            # Nothing is prepared, so that it works through a pooler of connections, too.
            arguments = {"connect_timeout": TIMEOUT, "tcp_user_timeout": TIMEOUT * 1000, "prepare_threshold": None}
            # A machine that is gone while it computes an answer would be waited for, for hours.
            arguments |= {"keepalives_idle": TIMEOUT, "keepalives_interval": TIMEOUT, "keepalives_count": 3}
        arguments |= connect_args or {}
        secrets = [url.password, *(value for name, value in arguments.items() if "pass" in name)]
        secrets += [value for name, value in url.query.items() if "pass" in name]
        self._secrets = [str(secret) for secret in secrets if secret]
        try:
            self._engine = sa.create_engine(url, connect_args=arguments, hide_parameters=True, **options)
        except ImportError as error:
            hint = _DRIVERS.get(url.get_backend_name())
            problem = f"the driver for {url.drivername} is not installed"
            raise PatternProcessorError(problem, self._told(error), hint) from None
        except SQLAlchemyError as error:
            raise self._failure(error) from None

    def __repr__(self) -> str:
        return f"Database({shown_url(self.url)!r})"

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction in which nothing changes while it is looked at."""
        with self.begin() as connection:
            if self.is_postgresql:
                connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
                for setting in (
                    f"statement_timeout = '{STATEMENT_TIMEOUT}s'",
                    "DateStyle = 'ISO'",
                    "TimeZone = 'UTC'",
                ):
                    connection.execute(sa.text(f"SET LOCAL {setting}"))
            yield connection

    @contextmanager
    def begin(self, *, create: bool = False) -> Iterator[sa.Connection]:
        """A transaction. *create*: a SQLite file may come into being.

        :raises PatternProcessorError: the database does not answer, or not as it should
        """
        try:
            if not create:
                self._must_exist()
            with self._engine.begin() as connection:
                if self.is_sqlite:
                    # What is not UTF-8 is refused with its row, and does not make the table unreadable.
                    dbapi: Any = connection.connection.dbapi_connection
                    dbapi.text_factory = _decoded
                yield connection
        except NoSuchTableError as error:
            problem = f"there is no table {str(error)!r} in {shown_url(self.url)}"
            raise PatternProcessorError(problem, hint="`asterism rules create` makes one") from None
        except (SQLAlchemyError, OSError, UnicodeError) as error:  # a driver may not be able to write what a shell gave
            # Whatever it was, the next attempt begins anew.
            self.close()
            raise self._failure(error) from None

    def _must_exist(self) -> None:
        # To connect would make an empty one.
        name = str(self.url.database)
        if self.is_sqlite and not name.startswith("file:") and not Path(name).exists():
            raise PatternProcessorError(f"there is no database {name}")

    def close(self) -> None:
        self._engine.dispose()

    def _failure(self, error: Exception) -> PatternProcessorError:
        return PatternProcessorError(f"{shown_url(self.url)} cannot be used", self._told(error))

    def _told(self, error: Exception) -> str:
        told = "\n".join(" ".join(line.split()) for line in str(getattr(error, "orig", None) or error).splitlines())
        for secret in sorted(self._secrets, key=len, reverse=True):
            for form in {secret, quote(secret, safe=""), quote_plus(secret)}:
                told = told.replace(form, "***")
        return told[:1000]


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
