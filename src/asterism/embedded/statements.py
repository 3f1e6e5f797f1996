"""Statements of SQL over Arrow tables: the rest of a statement, after its clauses, is executed by DuckDB. See
docs/decisions/0135.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp, parse
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError

from asterism.arguments import expect_string
from asterism.columns.internal import internal
from asterism.columns.time import MILLISECONDS
from asterism.embedded.databases import database
from asterism.embedded.events import table_of
from asterism.errors import StreamDefinitionError, UnsupportedSyntaxError
from asterism.expressions.types import quoted_name
from asterism.operators.stream_operator import StreamOperator
from asterism.row_patterns.clause.clause import dialect_of
from asterism.row_patterns.operator import check_limit
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.streams.hosts import EMBEDDED, is_of_spark, module_of, needs_spark
from asterism.streams.keyed_stream import KeyedStream, check_watermarks
from asterism.streams.run_options import check_use
from asterism.streams.statements import Statement, StatementRun

_SHOWN = 60
"""How many characters of a statement an error shows."""
_HINT = 'sql("SELECT * FROM trades MATCH_RECOGNIZE (...)", trades=table)'


def sql(
    text: str,
    spark: None = None,
    *,
    max_out_of_orderness: timedelta,
    idle_after: timedelta | None,
    watermark_by: Sequence[str],
    key_groups: int | None,
    drain: bool,
    max_rows: int,
    on_limit: Any,
    dialect: Any,
    **tables: Any,
) -> pa.Table:
    """See :func:`asterism.sql`."""
    expect_string(StreamDefinitionError, text, "a statement must be a string", _HINT)
    check_watermarks(idle_after, watermark_by)
    check_use(key_groups, drain)
    check_limit(max_rows, on_limit)
    dialect_of(dialect)
    named = {}
    for name, value in tables.items():
        if isinstance(value, type) and issubclass(value, StreamOperator):
            raise needs_spark("an operator in a statement")
        if is_of_spark(value):
            raise StreamDefinitionError(
                f"the table {name!r:.60} is a DataFrame of Spark, and there is no session",
                hint="sql(text, spark, ...)",
            )
        is_factory = isinstance(value, PatternProcessorDiscovererFactory)
        named[name] = value if is_factory else table_of(value, None, MILLISECONDS)
    statement = Statement.read(text)
    statement.check_kind()
    if not statement.is_query:
        raise _no_query()
    search = {"max_rows": max_rows, "on_limit": on_limit, "dialect": dialect}
    options = {"key_groups": key_groups, "drain": drain}
    # The zone of a table without times of a zone says nothing.
    kinds = [kind for rows in named.values() if isinstance(rows, pa.Table) for kind in rows.schema.types]
    zones = [str(kind.tz) for kind in kinds if pa.types.is_timestamp(kind) and kind.tz is not None]
    with database(zones[0] if zones else "UTC") as connection:
        run = _DuckDBStatementRun(connection, max_out_of_orderness, statement, named, options, search)
        run.run_parts(statement.clauses, _no_call)
        return run.table(run.whole())


def _no_call(part: Any) -> Any:
    raise AssertionError("a statement over Arrow tables has no calls of operators")


class _DuckDBStatementRun(StatementRun):
    """A statement of which DuckDB runs the rest."""

    refused = StreamDefinitionError

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        max_out_of_orderness: timedelta,
        statement: Statement,
        named: Mapping[str, Any],
        options: Mapping[str, Any],
        search_options: Mapping[str, Any],
    ) -> None:
        self._connection, self._delay = connection, max_out_of_orderness
        super().__init__(statement, named, options, search_options)

    def readable(self, rows: pa.Table) -> pa.Table:
        return rows

    def run(self, query: str) -> pa.Table:
        names = {name: internal(name) for name in self.frames}
        for name, rows in self.frames.items():
            self._connection.register(names[name], rows)
        try:
            return self.table(self._connection.sql(_translated(query.format(**names))))
        except duckdb.Error as error:
            for line in str(error).splitlines():
                unknown = line.partition('column "')[2].partition('"')[0]
                self.statement.check_measure_of_rules(unknown, error)
            problem = str(error).partition("\n")[0].replace(internal(""), "")
            unknown = problem.partition("Table with name ")[2].partition(" ")[0]
            hint = f'sql("...", {unknown}=table) gives it a table' if unknown.isidentifier() else None
            raise StreamDefinitionError("the statement is refused by DuckDB", problem, hint) from error

    @staticmethod
    def table(rows: Any) -> pa.Table:
        """The rows of a relation, with the types that they would have in Spark."""
        if isinstance(rows, pa.Table):
            return rows
        wide = [
            name for name, kind in zip(rows.columns, rows.types, strict=True) if str(kind) in ("HUGEINT", "UHUGEINT")
        ]
        if wide:  # the sum of integers
            quoted = {name: quoted_name(name) for name in wide}
            casts = ", ".join(f"CAST({quoted[name]} AS BIGINT) AS {quoted[name]}" for name in wide)
            rows = rows.project(f"* REPLACE ({casts})")
        return table_of(rows.to_arrow_table(), None, MILLISECONDS)

    def catalog(self) -> str:
        return "memory"

    def columns_of(self, rows: pa.Table) -> Sequence[str]:
        names: list[str] = rows.column_names
        return names

    def renamed(self, rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
        return pa.Table.from_arrays([rows.column(name) for name in names], names=list(names.values()))

    def watermarks_of(self, rows: pa.Table) -> Mapping[str, Any]:
        return {"max_out_of_orderness": self._delay}

    def of_rules(self, stream: KeyedStream[Any], factory: PatternProcessorDiscovererFactory, options: Any) -> pa.Table:
        patterns = module_of(EMBEDDED, "patterns")
        matches: pa.Table = patterns.pattern_processors(stream, factory, **options).output("matches")
        return matches

    def check_subquery(self, rows: Callable[[str], Any], query: str, start: int) -> None:
        try:
            rows(query)
        except StreamDefinitionError as error:
            problem = "a subquery of a clause is refused, perhaps because it reads the rows of the clause"
            hint = "compute it before, as a column: SELECT *, (SELECT ...) AS largest FROM events"
            raise UnsupportedSyntaxError.at(problem, self.statement.source, start, hint) from error


def _no_query() -> StreamDefinitionError:
    return StreamDefinitionError(
        "without Spark, a statement must be a query", hint="sql(text, spark, ...) runs any statement of Spark"
    )


def _translated(query: str) -> str:
    """A query of Spark SQL in DuckDB's dialect.

    :raises StreamDefinitionError: it is not a query, or cannot be translated
    """
    try:
        statements = [statement for statement in parse(query, read="spark") if statement is not None]
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            raise _no_query()
        return statements[0].sql("duckdb", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise StreamDefinitionError("the statement cannot be translated for DuckDB", _reason(error)) from None


def _reason(error: SqlglotError) -> str:
    """What is wrong, and where. The lines and columns of the parser are those of the text without the clauses."""
    details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    problem = str(details.get("description") or error).partition("\n")[0].partition(" but got <Token")[0]
    if problem.startswith("Required keyword"):
        problem = "Something is missing"
    before = " ".join(f"{details.get('start_context', '')}{details.get('highlight', '')}".split())[-_SHOWN:]
    return (f"{problem.rstrip('.')}, here: ...{before}" if before else problem).replace(internal(""), "")
