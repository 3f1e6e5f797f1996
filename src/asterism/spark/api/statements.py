"""Statements of Spark SQL: the rest of a statement, after its clauses and calls, is executed by Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from asterism.arguments import expect, expect_string, shown
from asterism.errors import (
    ExpressionSyntaxError,
    StreamDefinitionError,
    UnsupportedSyntaxError,
)
from asterism.matching.spec import OnLimit
from asterism.operators.stream_operator import StreamOperator
from asterism.row_patterns.clause.clause import DialectName, dialect_of
from asterism.row_patterns.operator import MAX_ROWS, check_limit
from asterism.row_patterns.statements import CLAUSE
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.spark.api.patterns import pattern_processors
from asterism.spark.api.table_functions import (
    CallRunner,
    TableFunction,
    Watermarks,
    calls_in,
    is_function,
    registered,
    unknown_function,
)
from asterism.spark.host.query_settings import QueryTraits, carrying
from asterism.spark.session.pipelines import analyzable, analyzing
from asterism.spark.session.settings import errors_not_logged
from asterism.spark.session.unwrapping import unwrapping
from asterism.streams.keyed_stream import KeyedStream, check_watermarks
from asterism.streams.run_options import check_use
from asterism.streams.statements import Statement, StatementRun
from asterism.text.printable import quoted_name

_BEFORE_A_TABLE = ("FROM", "JOIN", ",", "LATERAL")
_NOT_IN_A_TABLE = ("WHERE", "SELECT", "GROUP", "ORDER", "HAVING", "LIMIT")
_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(", "INSERT")


def sql(
    text: str,
    spark: SparkSession,
    *,
    max_out_of_orderness: timedelta = timedelta(0),
    idle_after: timedelta | None = None,
    watermark_by: Sequence[str] = (),
    key_groups: int | None = None,
    drain: bool = False,
    max_rows: int = MAX_ROWS,
    on_limit: OnLimit = "error",
    dialect: DialectName = "standard",
    **tables: DataFrame | PatternProcessorDiscovererFactory | type[StreamOperator],
) -> DataFrame:
    """See :func:`asterism.sql`."""
    hint = 'sql("SELECT * FROM trades MATCH_RECOGNIZE (...)", spark, trades=df)'
    expect_string(StreamDefinitionError, text, "a statement must be a string", hint)
    if not is_session(spark):
        raise StreamDefinitionError(f"the second argument must be a SparkSession, not {shown(spark)}", hint=hint)
    # The options are checked here, too: a statement without a clause does not use them.
    expect(
        StreamDefinitionError,
        max_out_of_orderness,
        timedelta,
        "max_out_of_orderness must be a timedelta",
        "timedelta(seconds=5)",
    )
    check_watermarks(idle_after, watermark_by)
    check_use(key_groups, drain)
    check_limit(max_rows, on_limit)
    dialect_of(dialect)
    functions = registered(tables)
    spark = analyzing(spark)
    named: dict[str, Any] = {name: value for name, value in tables.items() if not is_function(value)}
    for name, df in named.items():
        kind = DataFrame | PatternProcessorDiscovererFactory
        expect(StreamDefinitionError, df, kind, f"the table {name!r:.60} must be a DataFrame", hint)
    called = [rf"{re.escape(name)}`?\s*\(" for name in functions]
    if not named and not re.search("|".join([CLAUSE, *called]), text, re.IGNORECASE):
        return _of_spark(lambda: spark.sql(text), lambda: Statement.read(text), functions)
    statement = Statement.read(text)
    calls = list(calls_in(text, statement, functions))
    statement.check_kind([call.name for call in calls])
    options: dict[str, Any] = {"key_groups": key_groups, "drain": drain}
    watermarks = Watermarks(max_out_of_orderness, idle_after, watermark_by)
    search_options = {"max_rows": max_rows, "on_limit": on_limit, "dialect": dialect}
    run = _SparkStatementRun(spark, watermarks, statement, named, options, search_options)
    runner = CallRunner(text, functions, spark, run.table_of, options, watermarks)
    run.run_parts([*statement.clauses, *calls], runner.run)
    result = _of_spark(run.whole, lambda: statement, functions)
    return unwrapping(carrying(result, QueryTraits.of(run.frames.values())) if result.isStreaming else result)


class _SparkStatementRun(StatementRun):
    """A statement of which Spark runs the rest."""

    refused = AnalysisException

    def __init__(
        self,
        spark: SparkSession,
        watermarks: Watermarks,
        statement: Statement,
        named: Mapping[str, Any],
        options: Mapping[str, Any],
        search_options: Mapping[str, Any],
    ) -> None:
        self.spark, self.watermarks = spark, watermarks
        super().__init__(statement, named, options, search_options)

    def readable(self, rows: DataFrame) -> DataFrame:
        return analyzable(rows)

    def run(self, query: str) -> DataFrame:
        used = {name: df for name, df in self.frames.items() if f"{{{name}}}" in query}
        return self.spark.sql(query, None, **used) if used else self.spark.sql(query.format())

    def catalog(self) -> str:
        return self.spark.catalog.currentCatalog()

    def columns_of(self, rows: DataFrame) -> Sequence[str]:
        return rows.columns

    def renamed(self, rows: DataFrame, names: Mapping[str, str]) -> DataFrame:
        return rows.select(*(F.col(quoted_name(name)).alias(other) for name, other in names.items()))

    def watermarks_of(self, rows: DataFrame) -> Mapping[str, Any]:
        return self.watermarks.of(rows)

    def of_rules(self, stream: KeyedStream, factory: PatternProcessorDiscovererFactory, options: Any) -> DataFrame:
        return pattern_processors(stream, factory, **options).output("matches")  # which checks the options

    def check_subquery(self, rows: Callable[[str], DataFrame], query: str, start: int) -> None:
        source = self.statement.source
        hint = "compute it before, as a column: SELECT *, (SELECT ...) AS largest FROM events"
        try:
            with errors_not_logged():
                streams = rows(query).isStreaming
        except AnalysisException as error:
            if not str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
                raise
            name = (error.getMessageParameters() or {}).get("objectName", "a name").replace("`", "")
            problem = f"{name:.100} is no column of the subquery, which cannot read the rows of the clause"
            raise UnsupportedSyntaxError.at(problem, source, start, hint) from None
        if streams:
            raise UnsupportedSyntaxError.at("a subquery of a clause cannot read a stream", source, start)


def _of_spark(
    run: Callable[[], DataFrame], statement: Callable[[], Statement], functions: Mapping[str, TableFunction]
) -> DataFrame:
    """The result of a statement in Spark. If Spark refused it, the error names a misspelled table function, if there is one."""
    try:
        return run()
    except AnalysisException as refused:
        error = None
        if functions:
            with suppress(ExpressionSyntaxError):
                read = statement()
                error = unknown_function(read.source, read, functions)
        if error is not None:
            raise error from None
        with suppress(ExpressionSyntaxError):
            unknown = (refused.getMessageParameters() or {}).get("objectName", "")
            statement().check_measure_of_rules(unknown, refused)
        raise


def is_session(value: Any) -> bool:
    """Whether this is a Spark session. That of Spark Connect is another class, which cannot be imported without its packages."""
    return isinstance(value, SparkSession) or (is_remote() and callable(getattr(value, "sql", None)))
