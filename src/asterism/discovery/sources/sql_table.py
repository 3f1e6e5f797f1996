"""Pattern processors in a database table, through SQLAlchemy."""

from __future__ import annotations

import functools
import hashlib
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from asterism.arguments import expect, expect_string
from asterism.discovery.sources.database import Database, parsed_url, shown_url
from asterism.discovery.sources.documents import MAX_TOTAL
from asterism.discovery.sources.polling import Items, PollingDiscoverer
from asterism.discovery.sources.rows import (
    FLIP_COLUMNS,
    LONG,
    MAX_SHORT,
    PARAMETER_TABLE_SUFFIX,
    TABLE,
    Row,
    called,
    is_template_row,
    needs_parameters,
    processors_of,
)
from asterism.errors import AsterismError, PatternProcessorError, RuleSourceError
from asterism.rules.definition.processor import PatternProcessor, Slot, with_place
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    ProcessorRegistry,
    RefusedProcessor,
    checked_interval,
    slots_of,
    without_duplicates,
)
from asterism.text.strict_json import MAX_BYTES

MAX_ROWS = 100_000
AT_ONCE = 500  # ids per query; for more, the whole table is read


class SqlPatternProcessorDiscovererFactory(PatternProcessorDiscovererFactory):
    """Watches a database table.

    :param url: an SQLAlchemy URL: ``sqlite:///rules.db``, ``postgresql://user:password@host/database``, ``mysql://...``; or
        that of JDBC: ``jdbc:mysql://host/database?user=...``
    :param table: its name, or ``schema.table``; either a table in the format of :func:`create_pattern_processor_table`, or
        one with FLIP-200's columns ``uid``, ``className``, ``constructorParams``
    :param interval: the polling interval; it doubles after each failure, up to a minute
    :param registry: the classes that a table in FLIP-200's format may name
    :param connect_args: further arguments for the driver
    :raises PatternProcessorError: the URL cannot be parsed, or the interval is not a positive timedelta

    Of several versions of an id, the highest enabled one counts, and before it lower ones with earlier timestamps. The same
    holds for its shadows. A row that cannot be used is refused without affecting others. The rows of templates can be in a second
    table, ``<table>_rows``, see ``docs/rules/sources.md``.

    >>> SqlPatternProcessorDiscovererFactory("postgresql://rules:secret@db.example.com/fraud")
    SqlPatternProcessorDiscovererFactory('postgresql://rules:***@db.example.com/fraud', 'pattern_processors')
    """

    def __init__(
        self,
        url: str | sa.URL,
        table: str = TABLE,
        *,
        interval: timedelta = timedelta(seconds=1),
        registry: ProcessorRegistry | None = None,
        connect_args: Mapping[str, Any] | None = None,
    ) -> None:
        expect_string(PatternProcessorError, table, "the table name must be a string", 'table="rules"')
        expect(PatternProcessorError, registry, ProcessorRegistry | None, "the registry must be a ProcessorRegistry")
        expect(PatternProcessorError, connect_args, Mapping | None, "connect_args must be a dict")
        self.url, self.table, self.interval = parsed_url(url), table, checked_interval(interval)
        self.registry = registry or ProcessorRegistry()
        self.connect_args = dict(connect_args or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_url(self.url)!r}, {self.table!r})"

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        return SqlDiscoverer(Database(self.url, self.connect_args), self.table, self.interval, self.registry)


def create_pattern_processor_table(url: str | sa.URL, table: str = TABLE) -> None:
    """Create the table that :class:`SqlPatternProcessorDiscovererFactory` reads, and the SQLite file if it does not exist.

    :param url: an SQLAlchemy URL
    :param table: its name, or ``schema.table``
    :raises PatternProcessorError: the table already exists, or it cannot be created
    """
    expect_string(PatternProcessorError, table, "the table name must be a string", 'table="rules"')
    made = rule_table(table)
    with closing(Database(parsed_url(url))) as database, database.begin(create=True) as connection:
        if sa.inspect(connection).has_table(made.name, made.schema):
            raise PatternProcessorError(f"there is a table {table!r} already")
        made.create(connection)


_MYSQL = ("mysql", "mariadb")
# SQLite has no timestamp type. That of MySQL has no time zone and, by default, a precision of seconds.
_TIME = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite").with_variant(mysql.DATETIME(fsp=6), *_MYSQL)
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), *_MYSQL)  # TEXT of MySQL has 64 kB
# By default, MySQL compares regardless of case, and may use another character set.
_CHARACTERS, _COLLATION = "utf8mb4", "utf8mb4_bin"


def rule_table(name: str) -> sa.Table:
    """The table of rules; ``docs/rules/sources.md`` describes its columns."""
    schema, table = split_name(name)
    return sa.Table(
        table,
        sa.MetaData(),
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("timestamp", _TIME),
        sa.Column("key", _TEXT),
        sa.Column("pattern", _TEXT),
        sa.Column("sql", _TEXT),
        sa.Column("sigma", _TEXT),
        sa.Column("eql", _TEXT),
        sa.Column("select", _TEXT),
        sa.Column("function", sa.String(200)),
        sa.Column("timed_out", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("max_partial_matches", sa.Integer),
        sa.Column("suppress", _TEXT),
        sa.Column("expires", _TIME),
        sa.Column("shadow", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("adopt", sa.String(20)),
        sa.Column("labels", _TEXT),
        sa.Column("parameters", _TEXT),
        sa.Column("rows", _TEXT),
        sa.Column("changed_by", sa.String(200)),
        sa.Column("changed_at", _TIME),
        sa.Column("comment", _TEXT),
        sa.Column("tests", _TEXT),
        sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("withdrawn", sa.Boolean, nullable=False, server_default=sa.false()),
        schema=schema,
        mysql_charset=_CHARACTERS,
        mysql_collate=_COLLATION,
        mariadb_charset=_CHARACTERS,
        mariadb_collate=_COLLATION,
    )


def split_name(name: str) -> tuple[str | None, str]:
    """
    >>> split_name("fraud.rules"), split_name("rules")
    (('fraud', 'rules'), (None, 'rules'))
    """
    schema, _, table = name.rpartition(".")
    return schema or None, table


_COLUMNS = tuple(rule_table(TABLE).columns.keys())
# ---------------------------------------------------------------------- the table


Digests = dict[str | None, tuple[bytes, ...]]
"""For each id, the digests of its rows. If they are unchanged, so are the rows."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table in either format. *names*: the names of columns that are used here, with those in the database."""

    source: sa.TableClause
    names: Mapping[str, str]

    @classmethod
    def of(cls, connection: sa.Connection, name: str) -> Table:
        """:raises PatternProcessorError: it does not have the columns of either format"""
        schema, table = split_name(name)
        columns = [column["name"] for column in sa.inspect(connection).get_columns(table, schema)]
        plain = {_plain(column): column for column in columns}
        native, flip = (
            {wanted: plain[_plain(wanted)] for wanted in form if _plain(wanted) in plain}
            for form in (_COLUMNS, FLIP_COLUMNS)
        )
        source = sa.table(table, *(sa.column(column) for column in columns), schema=schema)
        if {"id", "version"} <= native.keys() and not native.keys().isdisjoint(("pattern", "sql")):
            return cls(source, native)
        if len(flip) == len(FLIP_COLUMNS):
            return cls(source, flip)
        raise RuleSourceError(
            f"the table {name!r} is not a table of pattern processors",
            f"It has the columns {', '.join(columns)}.",
            "it must have id, version and pattern or sql; or uid, className and constructorParams",
        )

    @property
    def is_flip(self) -> bool:
        return "uid" in self.names

    @property
    def identity(self) -> str:
        """The column by which rows are grouped."""
        return "uid" if self.is_flip else "id"

    def text(self, name: str) -> sa.ColumnElement[Any]:
        """A column as text of bounded length, so that the driver can read every value."""
        limit = MAX_BYTES if name in LONG else MAX_SHORT
        return sa.func.substr(sa.cast(self.source.c[self.names[name]], sa.Text), 1, limit + 1)

    def check_size(self, connection: sa.Connection) -> None:
        """:raises PatternProcessorError: the table has more text than may be read in one poll"""
        lengths = (sa.func.coalesce(sa.func.length(self.text(name)), 0) for name in self.names)
        length = functools.reduce(operator.add, lengths).label("length")
        each = sa.select(length).limit(MAX_ROWS + 1).subquery()
        total = connection.scalar(sa.select(sa.func.sum(each.c.length))) or 0
        if total > MAX_TOTAL:
            raise RuleSourceError(
                f"the table {self.source.fullname!r} has {total:,} characters in its rules (limit {MAX_TOTAL:,})"
            )

    def rows(self, connection: sa.Connection, ids: Iterable[str | None] | None = None) -> list[Row]:
        query = sa.select(*(self.text(name).label(name) for name in self.names)).limit(MAX_ROWS + 1)
        wanted = None if ids is None else {id for id in ids if id is not None}
        if wanted is not None:
            query = query.where(self.text(self.identity).in_(wanted))
        rows = self._bounded([dict(row) for row in connection.execute(query).mappings()])
        # MySQL may compare regardless of case.
        return rows if wanted is None else [row for row in rows if row[self.identity] in wanted]

    def digests(self, connection: sa.Connection) -> Digests:
        """Compute the digests in PostgreSQL."""
        whole = sa.cast(self.source.table_valued(), sa.Text)
        digest = sa.func.sha256(sa.func.convert_to(whole, "UTF8"))
        query = sa.select(self.text(self.identity), digest).limit(MAX_ROWS + 1)
        return _by_id((row[0], bytes(row[1])) for row in self._bounded(connection.execute(query).all()))

    def _bounded(self, rows: Sequence[Any]) -> list[Any]:
        if len(rows) > MAX_ROWS:
            raise RuleSourceError(f"the table {self.source.fullname!r} has more than {MAX_ROWS:,} rows")
        return list(rows)


def parameter_rows(connection: sa.Connection, table: str) -> dict[str | None, list[Row]] | None:
    """The rows of the templates in *table*, which are in a table beside it; None: there is no such table.

    :raises PatternProcessorError: it has other columns, or is too large
    """
    schema, name = split_name(table + PARAMETER_TABLE_SUFFIX)
    inspector = sa.inspect(connection)
    if not inspector.has_table(name, schema):
        return None
    columns = [column["name"] for column in inspector.get_columns(name, schema)]
    names = {
        column.lower() if column.lower() in ("template", "id", "enabled") else column: column for column in columns
    }
    if not {"template", "id"} <= names.keys():
        raise RuleSourceError(
            f"the table {table + PARAMETER_TABLE_SUFFIX!r} is not a table of the rows of templates",
            f"It has the columns {', '.join(columns)}.",
            "it must have template, id, and a column for each parameter",
        )
    form = Table(sa.table(name, *(sa.column(column) for column in columns), schema=schema), names)
    form.check_size(connection)
    by_template: dict[str | None, list[Row]] = defaultdict(list)
    for row in form.rows(connection):
        by_template[row["template"]].append({name: value for name, value in row.items() if name != "template"})
    for rows in by_template.values():
        rows.sort(key=lambda row: (str(row["id"]), str(row)))  # the database may return them in any order
    return by_template


def _plain(name: str) -> str:
    """Normalize a column name, so that className, classname and class_name are equal."""
    return name.replace("_", "").lower()


def _digest(row: Row) -> bytes:
    digest = hashlib.sha256()
    for name, value in sorted(row.items()):
        text = None if value is None else value.encode("utf-8", "surrogateescape")
        digest.update(f"{name} {None if text is None else len(text)} ".encode())
        digest.update(text or b"")
    return digest.digest()


def _by_id(digests: Iterable[tuple[str | None, bytes]]) -> Digests:
    grouped: dict[str | None, list[bytes]] = defaultdict(list)
    for id, digest in digests:
        grouped[id].append(digest)
    return {id: tuple(sorted(those)) for id, those in grouped.items()}


# ---------------------------------------------------------------------- the discoverer


class SqlDiscoverer(PollingDiscoverer):
    """See :class:`SqlPatternProcessorDiscovererFactory`.

    Changes are found by a digest of every row. PostgreSQL computes the digests itself, so that only the rows of changed ids
    are transferred. Other databases may have no such function, so all rows are transferred.
    """

    def __init__(self, database: Database, table: str, interval: timedelta, registry: ProcessorRegistry) -> None:
        super().__init__(interval=interval)
        self.database, self.table, self.registry = database, table, registry
        self._form: Table | None = None
        self._digests: Digests | None = None
        self._discovered: dict[str | None, list[Discovered]] = {}
        self._templates: _RowDigests = {}
        """The templates whose rows are in the second table, with digests of these rows; None: there was no such table."""
        self._items: dict[str | None, Items] = {}
        """For each template, the rules that were read last."""
        self._parameters: dict[str | None, list[Row]] | None = None
        """The rows of that table, if there are such templates."""
        self._made: dict[str | None, tuple[Slot, ...]] = {}
        """In FLIP-200's format: maps a uid to the processors that its rows last produced."""

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        with closing(self.database):  # the watching thread has its own connection, and closes it
            return super().initial_pattern_processors()

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        with closing(self.database):
            super().discover_pattern_processor_updates(manager)

    def poll(self) -> Sequence[Discovered] | None:
        with self.database.read() as connection:
            changes = self._from_postgresql(connection) if self.database.is_postgresql else self._from_any(connection)
            (form, digests, changed, rows), templates = self._with_parameters(connection, changes)
        self._form = form
        if changed is None:
            return None
        grouped: dict[str | None, list[Row]] = defaultdict(list)
        for row in rows:
            grouped[row[form.identity]].append(row)
        self._discovered = {id: self._discovered[id] for id in digests if id not in changed} | {
            id: self._processors(form, id, grouped[id]) for id in changed if id in digests
        }
        self._digests, self._templates = digests, templates
        self._items = {id: items for id, items in self._items.items() if id in digests}
        self._made = {uid: ids for uid, ids in self._made.items() if uid in digests}
        return without_duplicates(processor for id in sorted(digests, key=str) for processor in self._discovered[id])

    def _from_postgresql(self, connection: sa.Connection) -> _Changes:
        form = self._form or Table.of(connection, self.table)
        self._form = None  # to be determined again if this fails
        digests = form.digests(connection)
        changed = self._changed(digests)
        if changed is None:
            return form, digests, None, []
        form = Table.of(connection, self.table)  # adding or removing a column also changes a row
        form.check_size(connection)
        return form, digests, changed, form.rows(connection, changed if len(changed) <= AT_ONCE else None)

    def _from_any(self, connection: sa.Connection) -> _Changes:
        form = Table.of(connection, self.table)
        form.check_size(connection)
        rows = form.rows(connection)
        digests = _by_id((row[form.identity], _digest(row)) for row in rows)
        return form, digests, self._changed(digests), rows

    def _with_parameters(self, connection: sa.Connection, changes: _Changes) -> tuple[_Changes, _RowDigests]:
        """Add the templates whose rows have changed in the second table; return the changes, and the digests of these rows."""
        form, digests, changed, rows = changes
        new = changed or set()
        templates = {id for id in self._templates if id in digests and id not in new}
        templates |= {row[form.identity] for row in rows if needs_parameters(row)} & new
        self._parameters = parameter_rows(connection, self.table) if templates else None
        rows_of = None if self._parameters is None else self._parameters.get
        now = {id: None if rows_of is None else tuple(sorted(map(_digest, rows_of(id, [])))) for id in templates}
        more = {id for id in templates - new if now[id] != self._templates[id]}
        missing = more - {row[form.identity] for row in rows}
        if missing:
            rows = [*rows, *form.rows(connection, missing)]
        return (form, digests, new | more if changed is not None or more else None, rows), now

    def _changed(self, digests: Digests) -> set[str | None] | None:
        """The ids whose rows have changed; None if no row has changed."""
        before = self._digests
        if before is None:
            return set(digests)
        return {id for id in before.keys() | digests.keys() if before.get(id) != digests.get(id)} or None

    def _processors(self, form: Table, id: str | None, rows: Sequence[Row]) -> list[Discovered]:
        if id is None:
            error = PatternProcessorError(f"there is a row without {form.identity}")
            return [RefusedProcessor("NULL", error, place=self.table, unidentified=True)]
        if form.is_flip:
            return self._created(id, rows)
        parameters = None if self._parameters is None else self._parameters.get(id, [])
        items = self._items.setdefault(id, Items()) if any(map(is_template_row, rows)) else Items()
        return processors_of(rows, self.table, items, parameters)

    def _created(self, uid: str, rows: Sequence[Row]) -> list[Discovered]:
        processors: list[Discovered] = []
        where = f"{self.table}, uid {uid}"
        for row in rows:
            try:
                processors.append(with_place(self.registry.create(*called(row)), where))
            except AsterismError as error:
                unknown = [RefusedProcessor(f"uid {uid}", error, place=self.table, unidentified=True)]
                known = [RefusedProcessor(i, error, place=where, shadow=s) for i, s in self._made.get(uid, ())]
                processors += known if uid in self._made else unknown
        if all(isinstance(processor, PatternProcessor) for processor in processors):
            self._made[uid] = tuple(slot for processor in processors for slot in slots_of(processor))
        return processors


_Changes = tuple[Table, Digests, set[str | None] | None, list[Row]]
"""The format of the table, the digests, the changed ids (None: nothing has changed), and their rows, possibly among others."""
_RowDigests = dict[str | None, tuple[bytes, ...] | None]
