"""Database connections through SQLAlchemy, with errors that contain no secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import sqlalchemy as sa
from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError

from asterism.errors import PatternProcessorError, RuleSourceError

TIMEOUT = 10  # seconds for a connection, and for any response of the server
STATEMENT_TIMEOUT = 30  # seconds
_DRIVERS = {
    "postgresql": "pip install 'asterism[postgres]'",
    "mysql": "pip install 'asterism[mysql]'",
    "mariadb": "pip install 'asterism[mysql]'",
    "oracle": "pip install oracledb, and use oracle+oracledb://...",
    "mssql": "pip install pymssql, and use mssql+pymssql://...",
}
"""For each database, the hint if its driver is not installed."""
_USUAL_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_JDBC = "jdbc:"
_IGNORED_BY_JDBC: dict[str, str | None] = {
    "usessl": "false",
    "sslmode": "disabled",
    "allowpublickeyretrieval": None,
    "autoreconnect": None,
    "characterencoding": None,
    "rewritebatchedstatements": None,
    "servertimezone": None,
    "useunicode": None,
    "zerodatetimebehavior": None,
}
"""Options of JDBC's drivers, in lower case, that change nothing here, with the value for which this is so; None: any."""


def parsed_url(url: str | sa.URL) -> sa.URL:
    """
    :param url: an SQLAlchemy URL, or that of JDBC for PostgreSQL, MySQL or MariaDB
    :raises PatternProcessorError: it is not a URL, or its database is not supported; the message does not contain the URL

    >>> parsed_url("jdbc:mysql://db.example.com:3306/fraud?user=rules&password=secret&useSSL=false")
    mysql+pymysql://rules:***@db.example.com:3306/fraud
    """
    is_jdbc = isinstance(url, str) and url.startswith(_JDBC)
    try:
        parsed = sa.make_url(str(url).removeprefix(_JDBC) if is_jdbc else url)
        parsed.get_backend_name()
    except Exception:
        # The URL, and the original error, may contain a password.
        raise RuleSourceError(
            "the URL of the database cannot be parsed",
            hint="sqlite:///rules.db, or postgresql://user:password@host/database; in a password, write %40 for @ and %2F for /",
        ) from None
    if parsed.host is not None and "@" in parsed.host:
        raise RuleSourceError("the URL of the database contains two @", hint="in a password, write %40 for @")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise RuleSourceError(
            "an in-memory SQLite database is not supported: other processes cannot read it",
            hint="use a file: sqlite:///rules.db",
        )
    if parsed.get_backend_name() == "sqlite" and not str(parsed.database).startswith("file:"):
        return parsed.set(database=str(Path(str(parsed.database)).absolute()))
    if is_jdbc:
        parsed = _from_jdbc(parsed)
    return parsed.set(drivername=_USUAL_DRIVERS.get(parsed.drivername, parsed.drivername))


def _from_jdbc(url: sa.URL) -> sa.URL:
    """:raises PatternProcessorError: the URL has options that are not known here"""
    options = {name: str(value) for name, value in url.query.items()}
    url = url.set(username=options.pop("user", url.username), password=options.pop("password", url.password))
    for name, value in options.items():
        ignored = _IGNORED_BY_JDBC.get(name.lower(), "")
        if ignored is not None and ignored != value.lower():
            raise RuleSourceError(
                f"the option {name!r:.60} of a JDBC URL is not supported",
                "Python's drivers have other options than those of JDBC.",
                "mysql://user:password@host/database?ssl_ca=..., with the options of pymysql",
            )
    return url.set(query={})


def shown_url(url: sa.URL) -> str:
    """The URL without the password and without options, some of which are also secret."""
    drivername = url.drivername.removesuffix("+psycopg").removesuffix("+pymysql")
    return url.set(query={}, drivername=drivername).render_as_string(hide_password=True)


class Database:
    """Connections to a database. Errors contain no secrets."""

    def __init__(self, url: sa.URL, connect_args: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self.is_postgresql = url.get_backend_name() == "postgresql"
        arguments: dict[str, Any] = {}
        options: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_pre_ping": True}
        if self.is_sqlite:
            # A pooled connection would continue to use a file that has been replaced.
            options = {"poolclass": sa.pool.NullPool}
        if url.drivername == "postgresql+psycopg":
            # Statements are not prepared, so that connection poolers work.
            arguments = {"connect_timeout": TIMEOUT, "tcp_user_timeout": TIMEOUT * 1000, "prepare_threshold": None}
            # Otherwise, a connection to a server that has gone away would wait for its response for hours.
            arguments |= {"keepalives_idle": TIMEOUT, "keepalives_interval": TIMEOUT, "keepalives_count": 3}
        if url.drivername in ("mysql+pymysql", "mariadb+pymysql"):
            arguments = {
                "connect_timeout": TIMEOUT,
                "read_timeout": STATEMENT_TIMEOUT,
                "write_timeout": STATEMENT_TIMEOUT,
            }
        arguments |= connect_args or {}
        secrets = [url.password, *(value for name, value in arguments.items() if "pass" in name)]
        secrets += [value for name, value in url.query.items() if "pass" in name]
        self._secrets = [str(secret) for secret in secrets if secret]
        try:
            self._engine = sa.create_engine(url, connect_args=arguments, hide_parameters=True, **options)
        except ImportError as error:
            hint = _DRIVERS.get(url.get_backend_name())
            problem = f"the driver for {url.drivername} is not installed"
            raise RuleSourceError(problem, self._message(error), hint) from None
        except SQLAlchemyError as error:
            raise self._failure(error) from None

    def __repr__(self) -> str:
        return f"Database({shown_url(self.url)!r})"

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction in which all reads see the same snapshot."""
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
        """A transaction, whose errors are PatternProcessorError. *create*: whether a SQLite file may be created."""
        try:
            # Connecting would create an empty file.
            name = str(self.url.database)
            if self.is_sqlite and not create and not name.startswith("file:") and not Path(name).exists():
                raise RuleSourceError(f"there is no database {name}")
            with self._engine.begin() as connection:
                if self.is_sqlite:
                    # A value that is not UTF-8 is refused with its row, and does not make the table unreadable.
                    dbapi: Any = connection.connection.dbapi_connection
                    dbapi.text_factory = _decoded
                yield connection
        except NoSuchTableError as error:
            problem = f"there is no table {str(error)!r} in {shown_url(self.url)}"
            raise RuleSourceError(problem, hint="create it with `asterism rules create`") from None
        except (SQLAlchemyError, OSError, UnicodeError, OverflowError) as error:
            # A driver may be unable to encode what a shell passed, or to store a number.
            # The next attempt opens a new connection, whatever the error was.
            self.close()
            raise self._failure(error) from None

    def close(self) -> None:
        self._engine.dispose()

    def _failure(self, error: Exception) -> PatternProcessorError:
        return RuleSourceError(f"{shown_url(self.url)} cannot be used", self._message(error))

    def _message(self, error: Exception) -> str:
        message = "\n".join(" ".join(line.split()) for line in str(getattr(error, "orig", None) or error).splitlines())
        for secret in sorted(self._secrets, key=len, reverse=True):
            for form in {secret, quote(secret, safe=""), quote_plus(secret)}:
                message = message.replace(form, "***")
        return message[:1000]


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
