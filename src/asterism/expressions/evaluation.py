"""Evaluates expressions over Arrow tables with DuckDB, for a whole batch of events at once, with the same results as in
Spark.

:class:`Vectorized` collects the distinct expressions of a pattern, translated by :mod:`asterism.expressions.translation`, and
evaluates those that are not plain columns in one query. They read the current event only. Conditions that read earlier events
are programs of the kernel, which get the values of such expressions from *slots*
(:mod:`asterism.matching.condition_programs`).

An expression is evaluated on zero rows when it is added, and the size of its strings is limited (``docs/sql.md``).

See docs/decisions/0006.
"""

from __future__ import annotations

import atexit
import contextlib
import decimal
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from asterism.columns.arrays import Ints, empty_table
from asterism.errors import EvaluationFailedError, ExpressionSyntaxError, ExpressionTypeError
from asterism.expressions import udfs
from asterism.expressions.names import columns_of, plain_column
from asterism.expressions.ranges import Indexable, indexable
from asterism.expressions.translation import Translator
from asterism.expressions.types import (
    BOOLEAN,
    MONTHS,
    NULL,
    TIME_ZONE,
    given_type,
    holds,
    name_of,
    spark_type,
    stored_type,
)
from asterism.expressions.values import ELEMENT, MAX_FIXED, MAX_GROWTH, MAX_PROGRAM, Cost, Sql

AT_ONCE = 64 * 1024 * 1024  # the maximum bytes of strings made at a time; an error if a single event needs more
MAX_RULE_GROWTH = 10 * MAX_GROWTH  # for all expressions of a pattern together
_VECTOR = 2048  # the rows that DuckDB processes at a time
_PREPARED = 1000  # prepared statements per thread, each of some 40 KB
_SMALL = 65_536  # the maximum rows of a batch for which they are used


TRIAL = 5.0
"""The maximum CPU time, in seconds, that the expressions of a rule may take for a few sample events. It is generous because
it only backs up the static limits: an expression takes some milliseconds, mostly for planning.
"""
_CHEAP = 0.01
_MAX_TRIED = 10_000
_TRIED_BEFORE: dict[tuple[tuple[str, str], str], None] = {}
"""The expressions that :meth:`Vectorized.try_out` has evaluated."""
_TRYING = threading.Lock()
_TRY = "filter such events out; try_divide(a, b) and TRY_CAST(a AS type) give NULL instead"

_ACCEPT = "filter such events out, or return None in the function; functions in Python are also called for NULL"

# ---------------------------------------------------------------------------------------------------- DuckDB


class _Source:
    """The rows of a prepared statement, which change between executions."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.rows.__arrow_c_stream__(requested_schema)


class _DuckDBError(Exception):
    """An error message of DuckDB without its prefix."""


class _DuckDB:
    """An in-memory database that can only read the Arrow tables passed to it.

    To parse a statement, determine its columns and functions and plan it takes longer than to run it on a small batch, so
    statements are prepared and kept.
    """

    def __init__(self) -> None:
        import duckdb

        config = {"threads": 1, "memory_limit": "4GB"}
        self.connection = connection = duckdb.connect(":memory:", config=config)  # type: ignore[arg-type]
        connection.execute("SET temp_directory = ''")
        connection.execute("SET enable_external_access = false")
        # When the optimizer reorders expressions, they may fail where Spark's do not, or vice versa; the gain is small.
        names = [name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()]
        connection.execute(f"SET disabled_optimizers = '{','.join(names)}'")
        connection.execute("SET lock_configuration = true")
        self.prepared: OrderedDict[Any, tuple[str, _Source]] = OrderedDict()
        self.count = 0
        self._routines: set[str] = set()
        """the names of those that are registered"""

    def once(self, texts: Sequence[str], rows: pa.Table) -> pa.Table:
        """Evaluate expressions over some rows."""
        self.connection.register("events", rows)
        try:
            table: pa.Table = self.connection.sql(self._with_routines(_query(texts, "events"))).to_arrow_table()
        finally:
            self.connection.unregister("events")
        return table

    def _with_routines(self, query: str) -> str:
        """The query, after the routines that it calls are registered."""
        udfs.register(self.connection, query, self._routines)
        return query

    def again(self, texts: tuple[str, ...], rows: pa.Table, *, conditions: bool = False) -> pa.Table:
        """:meth:`once` with a prepared statement that is kept.

        :param conditions: whether all expressions are BOOLEAN; for small batches, DuckDB gives these faster to NumPy
        """
        key = texts, tuple(zip(rows.schema.names, rows.schema.types, strict=True))
        if key not in self.prepared:
            while len(self.prepared) >= _PREPARED:
                name, _ = self.prepared.popitem(last=False)[1]
                self.connection.execute(f"DEALLOCATE {name}")
                self.connection.unregister(f"of_{name}")
            self.count += 1
            name, source = f"statement_{self.count}", _Source(rows)
            self.connection.register(f"of_{name}", source)
            try:
                self.connection.execute(f"PREPARE {name} AS {self._with_routines(_query(texts, f'of_{name}'))}")
            except BaseException:
                self.connection.unregister(f"of_{name}")
                raise
            self.prepared[key] = name, source
        self.prepared.move_to_end(key)
        name, source = self.prepared[key]
        source.rows = rows
        try:
            if conditions:
                columns = self.connection.execute(f"EXECUTE {name}").fetchnumpy()
                return pa.table({name: _from_numpy(column) for name, column in columns.items()})
            table: pa.Table = self.connection.sql(f"EXECUTE {name}").to_arrow_table()
        finally:
            source.rows = rows.slice(0, 0)
        return table


def _from_numpy(column: Any) -> pa.Array:
    return pa.array(np.ma.getdata(column), mask=np.ma.getmaskarray(column))


def _query(texts: Sequence[str], name: str) -> str:
    columns = ", ".join(f"{text} AS r{number}" for number, text in enumerate(texts))
    return f"SELECT {columns} FROM {name}"


_databases: dict[tuple[int, int], _DuckDB] = {}
"""One database per process and thread, because a connection runs one query at a time. This is not thread-local data: a forked
process deletes that of the threads that it does not have, which crashes DuckDB.
"""


def _database() -> _DuckDB:
    """The database of this thread; a forked process starts without any."""
    process, thread = key = os.getpid(), threading.get_ident()
    database = _databases.get(key)
    if database is None:
        if not _databases:
            # At interpreter exit they would be finalized after the modules that they need.
            atexit.register(_databases.clear)
        ended = {ident for owner, ident in list(_databases) if owner == process} - {
            thread.ident for thread in threading.enumerate()
        }
        for other in ended - {thread}:
            _databases.pop((process, other), None)
        database = _databases[key] = _DuckDB()
    return database


# ---------------------------------------------------------------------------------------------------- made-up events


def _scope_of(schema: pa.Schema) -> str:
    return _scope_of_plain(schema.remove_metadata())


@lru_cache(maxsize=16)
def _scope_of_plain(schema: pa.Schema) -> str:
    return str(schema)


def sample(schema: pa.Schema) -> pa.Table:
    """A few sample events: NULLs, zeros, ones, and long strings."""
    return _sample(schema.remove_metadata()).replace_schema_metadata(schema.metadata)


@lru_cache(maxsize=16)
def _sample(schema: pa.Schema) -> pa.Table:
    count = 8
    columns = [pa.array([_example(field.type, number) for number in range(count)], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _example(kind: pa.DataType, number: int) -> Any:
    types = pa.types
    if number == 0 or types.is_null(kind):
        return None
    if types.is_dictionary(kind):
        return _example(kind.value_type, number)
    if types.is_struct(kind):
        return {field.name: _example(field.type, number) for field in kind}
    if types.is_map(kind):
        return [(_example(kind.key_type, number), _example(kind.item_type, number))]
    if types.is_nested(kind):
        return [_example(kind.value_type, number)] * (kind.list_size if types.is_fixed_size_list(kind) else number)
    if types.is_boolean(kind):
        return number % 2 == 0
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return b"a" * number
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "".join(chr(ord("a") + at % 26) for at in range(4**number % 1021))
    if types.is_floating(kind):
        return float(number)
    if types.is_decimal(kind):
        return decimal.Decimal(number).scaleb(-kind.scale)
    return number if types.is_integer(kind) or types.is_temporal(kind) else None


# ---------------------------------------------------------------------------------------------------- evaluation

_TRIED = ContextVar("tried", default=False)


@contextlib.contextmanager
def tried_before() -> Iterator[None]:
    """Skip the trial in DuckDB of each expression that is added inside, which takes half of the time to bind a rule. The
    expressions were tried elsewhere, or are tried together (:meth:`Vectorized.try_out`).
    """
    token = _TRIED.set(True)
    try:
        yield
    finally:
        _TRIED.reset(token)


@lru_cache(maxsize=4096)
def _try_out(schema: pa.Schema, zone: str, text: str, data_type: pa.DataType) -> None:
    """Evaluate an expression on zero rows. Only success is cached.

    :param schema: without metadata, with which it has no hash before pyarrow 22
    """
    Vectorized(schema.with_metadata({TIME_ZONE: zone}))._run([text], [data_type], empty_table(schema), keep=False)


@dataclass(slots=True)
class Vectorized:
    """Distinct pure expressions over one schema, evaluated together. Contains only SQL, so that it can be serialized.

    The session time zone, in which times without a zone are interpreted, is in the metadata of the schema; otherwise it is
    that of the first TIMESTAMP column, or UTC.
    """

    schema: pa.Schema
    texts: list[str] = field(default_factory=list)
    types: list[pa.DataType] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    """the expressions as written by the user, for messages"""
    costs: list[Cost] = field(default_factory=list)
    indexable: list[Indexable | None] = field(default_factory=list)
    """the expressions as ranges of columns and the rest, for conditions that have some"""
    zone: str = field(init=False)
    _label: str | None = field(init=False)
    """the time zone of the first TIMESTAMP column"""
    _tried_scope: tuple[str, str] | None = field(init=False, default=None, compare=False, repr=False)
    """the cached value of :attr:`_scope`"""

    def __post_init__(self) -> None:
        metadata = self.schema.metadata or {}
        zones = (str(t.tz) for t in self.schema.types if pa.types.is_timestamp(t) and t.tz is not None)
        self._label = next(zones, None)
        self.zone = str(metadata[TIME_ZONE].decode()) if TIME_ZONE in metadata else self._label or "UTC"

    def __getstate__(self) -> dict[str, Any]:
        # Without the zone, which is that of the schema: the state depends on it only if an expression does (see zone_if_used).
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc] # as pickle does, on an object without values

    def add(self, node: exp.Expr, text: str) -> int:
        """Add an expression and return its number; *text* is the expression as written by the user, for messages."""
        value = self.translate(node, text)
        return self.add_value(value, text, is_harmless=_is_harmless(node, value))

    def add_value(self, value: Sql, text: str, known: Indexable | None = None, *, is_harmless: bool = False) -> int:
        """:meth:`add` for an expression that is already translated.

        :param known: the expression as ranges, if that is known
        :param is_harmless: whether it needs no trial: DuckDB accepts it, and evaluates it in little time
        """
        if value.text not in self.texts:
            data_type = self.type_of_value(value, text)
            self._check_cost(value, text)
            if is_harmless:
                self._note_tried([value.text])
            elif plain_column(value.text) is None and not _TRIED.get():
                self._try_out(value.text, data_type, text)
            self.costs.append(value.cost)
            self.indexable.append(indexable(value) if known is None else known)
            self.types.append(data_type)
            self.texts.append(value.text)
            self.sources.append(text)
        return self.texts.index(value.text)

    def adopt(self, other: Vectorized, number: int) -> int:
        """Add an expression of *other*, which has the same schema and has tried it already. Returns its number here."""
        text = other.texts[number]
        if text not in self.texts:
            self.texts.append(text)
            self.types.append(other.types[number])
            self.sources.append(other.sources[number])
            self.costs.append(other.costs[number])
            self.indexable.append(other.indexable[number])
        return self.texts.index(text)

    def adopt_rest(self, other: Vectorized, number: int) -> int:
        """As :meth:`adopt`, for the rest of an expression that is indexable in part."""
        known = other.indexable[number]
        assert known is not None
        assert known.rest is not None
        if known.rest.text not in self.texts:
            self.texts.append(known.rest.text)
            self.types.append(BOOLEAN)
            self.sources.append(other.sources[number])
            self.costs.append(known.rest.cost)
            self.indexable.append(None)
        return self.texts.index(known.rest.text)

    def what_is_evaluated(self) -> Vectorized:
        """The expressions, and of those that are indexable only the rests."""
        copied = Vectorized(self.schema)
        for number, one in enumerate(self.indexable):
            if one is None:
                copied.adopt(self, number)
            elif one.rest is not None:
                copied.adopt_rest(self, number)
        return copied

    def alone(self, number: int) -> Vectorized:
        """A copy with only this expression."""
        selected = Vectorized(self.schema)
        selected.adopt(self, number)
        return selected

    def translate(self, node: exp.Expr, text: str) -> Sql:
        """Translate a resolved expression for DuckDB."""
        return Translator(self.schema, self.zone, text).translate(node)

    def constant(self, value: Sql) -> pa.Scalar:
        """The value of an expression without columns; :class:`~asterism.errors.ExpressionTypeError` if it fails."""
        if isinstance(value.constant, str):
            return pa.scalar(value.constant)
        row = pa.table([pa.nulls(1, field.type) for field in self.schema], schema=self.schema)
        try:
            return self._run([value.text], [given_type(value.type, self.zone)], row, keep=False)[0][0]
        except _DuckDBError as error:
            raise ExpressionTypeError.at(str(error), value.text) from None

    def try_out(self, limit: float) -> float:
        """Evaluate everything once for a few sample events. Returns the CPU time in seconds.

        Expressions that have taken less than 10 ms each are not tried again in this process.

        :raises ExpressionSyntaxError: it took more than *limit*, so each batch of events would take as long
        :raises ExpressionTypeError: DuckDB rejects an expression
        """
        scope = self._scope
        computed = [
            number
            for number, text in enumerate(self.texts)
            if plain_column(text) is None and (scope, text) not in _TRIED_BEFORE
        ]
        if not computed:
            return 0.0
        rows = sample(self.schema)
        taken = 0.0
        with contextlib.suppress(_DuckDBError):
            begin = time.thread_time()
            self._computed(computed, rows, keep=False)
            taken = time.thread_time() - begin
            if taken <= _CHEAP * len(computed):
                self._note_tried(self.texts[number] for number in computed)
            if taken <= limit:
                return taken
        # Evaluate one by one, because one fails on the sample values or takes too long.
        taken = 0.0
        for number in computed:
            begin = time.thread_time()
            self._try_out(self.texts[number], self.types[number], self.sources[number])
            with contextlib.suppress(_DuckDBError):
                self._computed([number], rows, keep=False)
            taken += time.thread_time() - begin
            if taken > limit:
                raise ExpressionSyntaxError.at(
                    f"the expressions took {taken:.1f} s of CPU time for {rows.num_rows:,} events (limit {TRIAL:.1f} s)",
                    self.sources[number],
                    hint="use simpler patterns and fewer functions",
                )
        return taken

    @property
    def _scope(self) -> tuple[str, str]:
        """The columns and the time zone, of which the schema has no fast hash."""
        if self._tried_scope is None:
            self._tried_scope = _scope_of(self.schema), self.zone
        return self._tried_scope

    def _note_tried(self, texts: Iterable[str]) -> None:
        scope = self._scope
        with _TRYING:
            while len(_TRIED_BEFORE) > _MAX_TRIED:
                _TRIED_BEFORE.pop(next(iter(_TRIED_BEFORE)))  # the oldest
            _TRIED_BEFORE.update(dict.fromkeys((scope, text) for text in texts))

    def type_of(self, node: exp.Expr, text: str) -> pa.DataType:
        """The type of an expression; :class:`~asterism.errors.ExpressionTypeError` if it has none."""
        return self.type_of_value(self.translate(node, text), text)

    def type_of_value(self, value: Sql, text: str) -> pa.DataType:
        """:meth:`type_of` for an expression that is already translated."""
        plain = plain_column(value.text)
        if plain is not None:
            return self.schema.field(plain).type
        if holds(value.type, MONTHS):
            raise ExpressionTypeError.at(f"an expression cannot be of type {name_of(value.type)}", text)
        return given_type(value.type, self._label or self.zone)

    def _check_cost(self, value: Sql, text: str) -> None:
        """Check the limit for all expressions together."""
        cost = sum(self.costs, value.cost)
        hint = "split it into several patterns"
        if cost.growth > MAX_RULE_GROWTH or cost.fixed > 10 * MAX_FIXED:
            raise ExpressionSyntaxError.at(
                "with this expression, the strings and arrays that all expressions create are too large",
                text,
                hint=hint,
            )
        if cost.program > MAX_PROGRAM:
            raise ExpressionSyntaxError.at(
                f"with this expression, the regular expressions are too large: {cost.program:,} characters and classes"
                f" (limit {MAX_PROGRAM:,})",
                text,
                hint=hint,
            )

    def _try_out(self, text: str, data_type: pa.DataType, source: str) -> None:
        """Evaluate on zero rows, so that errors of DuckDB are not first raised at the first event."""
        try:
            _try_out(self.schema.remove_metadata(), self.zone, text, data_type)
        except _DuckDBError as error:
            if "expression depth" in str(error):
                raise ExpressionSyntaxError.at("the expression is nested too deeply", source) from None
            raise ExpressionTypeError.at(str(error), source) from None

    def evaluate(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """One column per expression, in the order in which they were added."""
        return [*self.evaluate_some(table, range(len(self.texts))).values()]

    def evaluate_some(self, table: pa.Table, numbers: Iterable[int]) -> dict[int, pa.ChunkedArray]:
        """The columns of the expressions with these *numbers*."""
        plain = {number: plain_column(self.texts[number]) for number in numbers}
        computed = [number for number in plain if plain[number] is None]
        try:
            results = iter(self._computed(computed, table) if computed else [])
        except _DuckDBError as error:
            culprit = self._culprit(table)
            hint = _ACCEPT if any(name in text for text in self.texts for name in udfs.USER_FUNCTIONS) else _TRY
            raise EvaluationFailedError(f"an expression could not be computed: {error}", culprit, hint) from None
        return {number: next(results) if at is None else table.column(at) for number, at in plain.items()}

    def _culprit(self, table: pa.Table) -> str | None:
        """The expression, as written by the user, that fails on these rows."""
        for number, text in enumerate(self.texts):
            if plain_column(text) is not None:
                continue
            try:
                self._computed([number], table, keep=False)
            except _DuckDBError:
                return self.sources[number]
        return None

    def _computed(self, numbers: list[int], table: pa.Table, *, keep: bool = True) -> list[pa.ChunkedArray]:
        """Evaluate expressions together, except for those whose strings for these rows need too much memory at once."""
        rows = min(table.num_rows, _VECTOR)
        making = [number for number in numbers if self.costs[number].room(1)]
        read = {number: [n for n in columns_of(self.texts[number]) if n < table.num_columns] for number in making}
        lengths = {n: _longest(table.column(n)) for n in set().union(*read.values())}
        longest = {number: max((lengths[n] for n in read[number]), default=0) for number in making}
        needed = {number: self.costs[number].room(longest[number]) for number in making}
        heavy = set(making) if rows * sum(needed.values()) > AT_ONCE else set()
        together = [number for number in numbers if number not in heavy]
        columns = dict(zip(together, self._run_all(together, table, keep), strict=True))
        for number in heavy:
            grown = self.costs[number].bytes(longest[number])
            if grown > AT_ONCE and table.num_rows:
                raise _DuckDBError(
                    f"from a value of {longest[number]:,} bytes it can create {int(grown):,} bytes (limit {AT_ONCE:,})"
                )
            size = max(1, int(AT_ONCE / needed[number]))
            slices = [
                self._run_all([number], table.slice(begin, size), keep)[0]
                for begin in range(0, max(table.num_rows, 1), size)
            ]
            columns[number] = pa.chunked_array([chunk for part in slices for chunk in part.chunks], slices[0].type)
        return [columns[number] for number in numbers]

    def _run_all(self, numbers: list[int], table: pa.Table, keep: bool) -> list[pa.ChunkedArray]:
        texts, types = [self.texts[number] for number in numbers], [self.types[number] for number in numbers]
        # Results of prepared statements are materialized before they are returned, which pays off only for small results.
        return self._run(texts, types, table, keep=keep and table.num_rows <= _SMALL) if numbers else []

    def _run(self, texts: list[str], types: list[pa.DataType], table: pa.Table, *, keep: bool) -> list[pa.ChunkedArray]:
        import duckdb

        needed = sorted({number for text in texts for number in columns_of(text) if number < table.num_columns})
        view = pa.table([self._as_duckdb_sees(table.column(n)) for n in needed], names=[f"c{n}" for n in needed])
        if not needed:  # only constants: a column must provide the number of rows
            view = pa.table({"rows": pa.nulls(table.num_rows, pa.int8())})
        database = _database()
        try:
            if keep:
                result = database.again(tuple(texts), view, conditions=all(kind == BOOLEAN for kind in types))
            else:
                result = database.once(texts, view)
        except duckdb.Error as error:
            raise _DuckDBError(_undecorated(str(error))) from None
        return [_as_spark_sees(column, kind) for column, kind in zip(result.columns, types, strict=True)]

    def _as_duckdb_sees(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Convert to DuckDB: timestamps to UTC without a zone, intervals to numbers, other types to the nearest type of
        Spark.
        """
        known = spark_type(column.type, self.zone)
        if known is None:  # the only operation on it is IS NULL
            return pc.if_else(column.is_null(), None, True)
        return column.cast(known, safe=False).cast(stored_type(known))


_HARMLESS = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Is, exp.Like,
    exp.Column, exp.Dot, exp.Identifier, exp.Literal, exp.Boolean, exp.Null,
)  # fmt: skip
_HARMLESS_CALLS = frozenset({"coalesce", "lower", "contains", "startswith", "endswith"})


def _is_harmless(node: exp.Expr, value: Sql) -> bool:
    """Whether an expression cannot fail, and takes time in proportion to its texts: its trial would show nothing. Comparisons of
    fields, as in EQL, are such expressions.
    """
    if value.raises:
        return False
    return all(
        isinstance(part, _HARMLESS) or (isinstance(part, exp.Anonymous) and str(part.this).lower() in _HARMLESS_CALLS)
        for part in node.walk()
    )


def _longest(column: pa.ChunkedArray) -> int:
    """The number of bytes of the longest string in a column, or of the largest array, map or struct."""
    return max((int(_sizes(chunk).max(initial=0)) for chunk in column.chunks), default=0)


def _sizes(array: pa.Array) -> Ints:
    """The bytes of the strings in each value; each part of an array, a map or a struct counts :data:`ELEMENT` more."""
    types, kind = pa.types, array.type
    if types.is_dictionary(kind):
        sizes: Ints = _sizes(array.dictionary)
        return sizes[array.indices.fill_null(0)] if len(sizes) else np.zeros(len(array), np.int64)
    if types.is_struct(kind):
        total: Ints = np.zeros(len(array), np.int64)
        for part in array.flatten():
            total = total + _sizes(part) + ELEMENT
        return total
    if types.is_map(kind):
        return _sizes(array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))))
    if types.is_fixed_size_list(kind):
        return _sizes(array.cast(pa.list_(kind.value_type)))
    if types.is_list(kind) or types.is_large_list(kind):
        parts = np.concatenate([[0], np.cumsum(_sizes(array.flatten()) + ELEMENT)])
        ends = np.cumsum(array.value_lengths().fill_null(0).to_numpy())
        sums: Ints = parts[np.concatenate([[0], ends])]
        return sums[1:] - sums[:-1]
    if types.is_string_view(kind) or types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return np.asarray(pc.binary_length(array).fill_null(0), np.int64)
    return np.zeros(len(array), np.int64)


def _undecorated(message: str) -> str:
    """The essential part of an error message of DuckDB."""
    first = message.split("\n")[0] if "Error: " in message.split("\n")[0] else message
    message = re.sub(r"^[A-Z][A-Za-z ]*Error: (Python exception occurred while executing the UDF: \w+: )?", "", first)
    return message if len(message) <= 500 else message[:500] + " ..."


def _as_spark_sees(column: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    """Convert a result of DuckDB to the type that it has in Spark."""
    if column.type == data_type:
        return column
    if data_type == NULL:
        return pa.chunked_array([pa.nulls(len(column))])
    return column.cast(data_type)
