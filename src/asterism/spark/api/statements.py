"""Statements of Spark SQL with MATCH_RECOGNIZE, and with operators as table functions.

From left to right, each clause with the table factor before it, and each call of a table function, is replaced by a temporary
view of its result. Spark executes the rest. Only clauses and calls are parsed here; of the rest of the statement, only tokens,
parentheses and the names of common table expressions are read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote
from sqlglot.tokenizer_core import TokenType

from asterism.arguments import expect, expect_string, shown
from asterism.errors import (
    ColumnNotFoundError,
    ExpressionError,
    ExpressionSyntaxError,
    StreamDefinitionError,
    UnsupportedSyntaxError,
)
from asterism.matching.spec import OnLimit
from asterism.operators.stream_operator import StreamOperator
from asterism.row_patterns.clause.clause import DialectName, InputTable, dialect_of
from asterism.row_patterns.clause.reading import FACTORY, read_dynamic
from asterism.row_patterns.match_recognize import MatchRecognize
from asterism.row_patterns.operator import MAX_ROWS, check_limit
from asterism.row_patterns.resolution import outer_row
from asterism.row_patterns.statements import CLAUSE, DYNAMIC_CLAUSE, MAX_NESTING, FoundClause, StatementTokens, word_of
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.spark.api.patterns import pattern_processors
from asterism.spark.api.table_functions import (
    CallRunner,
    FunctionCall,
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
from asterism.streams.row_patterns import match_recognize
from asterism.streams.run_options import check_use
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
    """The result of a statement of Spark SQL, in which tables, views and subqueries can be followed by MATCH_RECOGNIZE, or by
    MATCH_RECOGNIZE_DYNAMIC, whose patterns are rules that can change while the query runs. Operators are table functions:
    ``FROM TABLE(sessions(TABLE clicks PARTITION BY user, on_time => DESCRIPTOR(ts)))``, see :func:`asterism.register_function`.

    With a clause or a call over a stream, the result is a streaming DataFrame, which ``writeStream`` starts. The options are
    those of :func:`asterism.match_recognize`, for every clause; those of watermarks, *key_groups* and *drain* also for every
    call. Late rows are dropped and counted.

    :param max_out_of_orderness, idle_after, watermark_by: as for :class:`asterism.KeyedStream`, for every stream before a clause
        or in a call that has an event time. The result of another clause or call has the watermark of that one, so
        *watermark_by* is not for it; all other streams must have its columns.
    :param dialect: as for :func:`asterism.match_recognize`, for every clause
    :param tables: DataFrames, by the names that the statement uses; they hide tables and views with these names. For
        MATCH_RECOGNIZE_DYNAMIC, also discoverer factories of pattern processors. For calls, also subclasses of StreamOperator,
        which hide registered functions. A table with the name of an option needs another name. There are no ``args``: values for
        parameters such as ``:x`` come in a DataFrame, or as literals.
    :raises ExpressionError: a clause or a call is invalid; with the position in the statement
    :raises StreamDefinitionError: an argument is invalid
    :raises pyspark.errors.AnalysisException: the rest of the statement is invalid

    Runnable examples: docs/match_recognize.md, docs/operators.md.
    """
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
        return _of_spark(lambda: spark.sql(text), lambda: _Statement.read(text), functions)
    statement = _Statement.read(text)
    calls = list(calls_in(text, statement, functions))
    statement.check_kind(calls)
    options: dict[str, Any] = {"key_groups": key_groups, "drain": drain}
    watermarks = Watermarks(max_out_of_orderness, idle_after, watermark_by)
    search_options = {"max_rows": max_rows, "on_limit": on_limit, "dialect": dialect}
    run = _StatementRun(statement, spark, named, watermarks, options, search_options)
    runner = CallRunner(text, functions, spark, run.table_of, options, watermarks)
    # A clause inside the table of another clause ends before it.
    parts: list[FoundClause | FunctionCall] = [*statement.clauses, *calls]
    for number, part in enumerate(sorted(parts, key=lambda part: part.end)):
        if isinstance(part, FunctionCall):
            begin, result = part.begin, runner.run(part)
        else:
            begin, result = run.result_of(part)
        run.frames[f"matches_{number}"] = result
        statement.replaced.append((begin, part.end, f"matches_{number}"))
    result = _of_spark(run.whole, lambda: statement, functions)
    return unwrapping(carrying(result, QueryTraits.of(run.frames.values())) if result.isStreaming else result)


@dataclass(frozen=True, slots=True)
class _StatementRun:
    """A statement, whose clauses and calls are run one after the other.

    :param named: the tables and the discoverer factories of the caller, by name
    :param options: the options of every clause
    :param search_options: further options of MATCH_RECOGNIZE
    :param given: the tables of the caller that the statement uses, as common table expressions by name
    :param frames: these tables, and the results so far, by the names by which queries refer to them
    """

    statement: _Statement
    spark: SparkSession
    named: Mapping[str, Any]
    watermarks: Watermarks
    options: Mapping[str, Any]
    search_options: Mapping[str, Any]
    given: dict[str, str] = field(default_factory=dict)
    frames: dict[str, DataFrame] = field(default_factory=dict)

    def __post_init__(self) -> None:
        used = {token.text.lower() for token in self.statement.tokens}
        for name, df in self.named.items():
            if name.lower() in used and not isinstance(df, PatternProcessorDiscovererFactory):
                place = f"table_{len(self.given)}"
                self.frames[place] = analyzable(df)
                self.given[name] = f"{quoted_name(name)} AS (SELECT * FROM {{{place}}})"

    def table_of(self, begin: int, end: int, at: int) -> DataFrame:
        """The table between two places of the statement, as seen from the token *at*."""
        statement = self.statement
        starts = [token.start for token in statement.tokens]
        names = statement.read_tables(bisect_left(starts, begin), bisect_left(starts, end))
        query = statement.query(self.given, names, at, f"SELECT * FROM {statement.text(begin, end)}")
        return _run(self.spark, query, self.frames)

    def result_of(self, clause: FoundClause) -> tuple[int, DataFrame]:
        """Where the table before a clause begins, and the result of the clause."""
        statement = self.statement
        first = statement.table_before(clause)
        begin, end = statement.tokens[first].start, statement.tokens[clause.keyword - 1].end + 1
        inside = [*statement.subqueries(clause)] if clause.word == CLAUSE else []
        names_read = statement.tables_read_by(first, clause, inside)
        text = statement.text(begin, end)

        def query(selected: str) -> DataFrame:
            written = statement.query(self.given, names_read, clause.keyword, f"SELECT {selected}")
            return _run(self.spark, written, self.frames)

        def select(columns: str) -> DataFrame:
            try:
                return query(f"{columns} FROM {text}")
            except AnalysisException as error:
                statement.check_outer_row(clause, str(error))
                raise

        subqueries = []
        for opening, closing in inside:
            start = statement.tokens[opening].start
            if select("*").isStreaming:
                problem = "over a stream, a clause cannot have subqueries: their values would be those of a micro-batch"
                raise UnsupportedSyntaxError.at(problem, statement.source, start)
            subquery = statement.text(start, statement.tokens[closing].end + 1)
            _check_subquery(partial(query, f"{subquery} AS value"), statement.source, start)
            subqueries.append(subquery)
        written = statement.source[clause.begin : clause.end]
        names = statement.table_names(first, clause.keyword)
        table = _TableBeforeClause.read(self.spark, select, names, written, subqueries)
        for (opening, closing), name in zip(inside, table.constants, strict=True):
            after, until = (statement.tokens[at].start - clause.begin for at in (opening, closing))
            written = written[: after + 1] + name.ljust(until - after - 1) + written[until:]
        try:
            return begin, self._matches(clause, table, written)
        except ExpressionError as error:
            raise error.moved(statement.source, clause.begin) from None

    def _matches(self, clause: FoundClause, table: _TableBeforeClause, written: str) -> DataFrame:
        """
        :param written: the clause, with the names of columns in place of its subqueries
        """
        if clause.word == DYNAMIC_CLAUSE:
            return _by_rules(table, written, self.named, self.watermarks, self.options)
        read = MatchRecognize(written, self.search_options["dialect"])
        outer = (InputTable(name, outer=True) for name in self.statement.outer_table_names(clause))
        read.clause = replace(read.clause, tables=(*table.tables, *outer), constants=table.constants)
        options = {**self.watermarks.of(table.df), **self.options, **self.search_options}
        return table.shown(match_recognize(table.df, read, **options).matches)

    def whole(self) -> DataFrame:
        """The result of the statement, after its parts were run."""
        return _run(self.spark, self.statement.whole(list(self.given.values())), self.frames)


def _of_spark(
    run: Callable[[], DataFrame], statement: Callable[[], _Statement], functions: Mapping[str, TableFunction]
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
            statement().check_measure_of_rules(refused)
        raise


@dataclass(frozen=True, slots=True)
class _TableBeforeClause:
    """The table before a clause.

    :ivar renamed: the names in the tables of the columns that have other names in *df*; two tables of a join can have
        columns of the same name
    :ivar constants: the columns of the subqueries of the clause, which Spark computes once
    """

    df: DataFrame
    tables: tuple[InputTable, ...]
    renamed: Mapping[str, str]
    constants: tuple[str, ...]

    @classmethod
    def read(
        cls,
        spark: SparkSession,
        select: Callable[[str], DataFrame],
        names: Sequence[tuple[str, ...]],
        clause: str,
        subqueries: Sequence[str],
    ) -> _TableBeforeClause:
        """:param select: the columns of the table that are listed in an SQL text"""
        every, renamed = select("*"), {}
        prefix = "_"  # short, so that the name takes the place of the subquery
        while any(name.startswith(prefix) for name in every.columns):
            prefix += "_"
        constants = tuple(f"{prefix}{number}" for number in range(len(subqueries)))
        computed = [f"{text} AS {name}" for text, name in zip(subqueries, constants, strict=True)]
        catalog = (spark.catalog.currentCatalog(),) if any(len(name) == 2 for name in names) else ()
        tables = [InputTable((*catalog, *name) if len(name) == 2 else name) for name in names]
        if len(tables) < 2:
            return cls(select(", ".join(["*", *computed])) if computed else every, tuple(tables), {}, constants)
        prefixes = [".".join(map(quoted_name, name)) for name in names]
        columns = [select(f"{prefix}.*").columns for prefix in prefixes]
        counts = Counter(name.lower() for name in every.columns)
        in_tables = Counter(name.lower() for table in columns for name in table)
        listed = [quoted_name(name) for name in every.columns if counts[name.lower()] == 1]
        for number, (table, prefix) in enumerate(zip(tables, prefixes, strict=True)):
            for name in columns[number]:
                # USING and NATURAL JOIN add merged columns; the columns of the two tables remain.
                merged = counts[name.lower()] == 1 and in_tables[name.lower()] > 1
                if counts[name.lower()] > 1 or (
                    merged and re.search(rf"\.\s*`?{re.escape(name)}\b", clause, re.IGNORECASE)
                ):
                    other = f"{table}.{name}"
                    listed.append(f"{prefix}.{quoted_name(name)} AS {quoted_name(other)}")
                    renamed[other] = name
                    tables[number] = replace(table, columns=(*tables[number].columns, (name, other)))
        listed = [*(listed if renamed else ["*"]), *computed]
        return cls(select(", ".join(listed)) if renamed or computed else every, tuple(tables), renamed, constants)

    def shown(self, matches: DataFrame) -> DataFrame:
        """The result of the clause, with the names that the columns have in their tables."""
        if {*self.renamed, *self.constants}.isdisjoint(matches.columns):
            return matches
        # A merged column occurs once.
        columns = [name for name in matches.columns if self.renamed.get(name) not in matches.columns]
        columns = [name for name in columns if name not in self.constants]
        return matches.select(*(F.col(quoted_name(name)).alias(self.renamed.get(name, name)) for name in columns))


def _check_subquery(subquery: Callable[[], DataFrame], source: str, start: int) -> None:
    """Check that a subquery of a clause reads no row of the clause, and no stream."""
    hint = "compute it before, as a column: SELECT *, (SELECT ...) AS largest FROM events"
    try:
        with errors_not_logged():
            streams = subquery().isStreaming
    except AnalysisException as error:
        if not str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
            raise
        name = (error.getMessageParameters() or {}).get("objectName", "a name").replace("`", "")
        problem = f"{name:.100} is no column of the subquery, which cannot read the rows of the clause"
        raise UnsupportedSyntaxError.at(problem, source, start, hint) from None
    if streams:
        raise UnsupportedSyntaxError.at("a subquery of a clause cannot read a stream", source, start)


def _by_rules(
    table: _TableBeforeClause,
    text: str,
    given: Mapping[str, Any],
    watermarks: Watermarks,
    options: Mapping[str, Any],
) -> DataFrame:
    """The matches of a MATCH_RECOGNIZE_DYNAMIC clause."""
    clause = read_dynamic(text, table.tables)
    named = clause.options[FACTORY]
    factory = next((value for name, value in given.items() if name.lower() == named.text.lower()), None)
    if not isinstance(factory, PatternProcessorDiscovererFactory):
        problem = f"there is no discoverer factory {named.text!r:.100}"
        hint = f"sql(..., {named.text:.100}=FilePatternProcessorDiscovererFactory(path))"
        raise ExpressionSyntaxError.at(problem, text, named.start, hint)
    stream = KeyedStream(table.df, key=list(clause.partition_by), time=clause.order_by, **watermarks.of(table.df))
    written = {name: value.text for name, value in clause.options.items() if name != FACTORY}
    settings: dict[str, Any] = {**options, **written}  # pattern_processors checks them
    return pattern_processors(stream, factory, **settings).output("matches")


def is_session(value: Any) -> bool:
    """Whether this is a Spark session. That of Spark Connect is another class, which cannot be imported without its packages."""
    return isinstance(value, SparkSession) or (is_remote() and callable(getattr(value, "sql", None)))


def _run(spark: SparkSession, query: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The result of a query that refers to *frames* in braces; other braces are doubled."""
    used = {name: df for name, df in frames.items() if f"{{{name}}}" in query}
    return spark.sql(query, None, **used) if used else spark.sql(query.format())


@dataclass(frozen=True, slots=True)
class _Statement(StatementTokens):
    """A statement, of which parts have been replaced.

    :ivar replaced: parts of the text, from begin to end, with the names of frames
    """

    source: str
    replaced: list[tuple[int, int, str]]

    @classmethod
    def read(cls, source: str) -> _Statement:
        explain = re.match(r"\s*EXPLAIN\b", source, re.IGNORECASE)  # the tokenizer takes what follows as one token
        if explain:
            problem, hint = (
                "EXPLAIN cannot have MATCH_RECOGNIZE or a call of an operator",
                'sql("SELECT ... MATCH_RECOGNIZE (...)", spark).explain()',
            )
            raise ExpressionSyntaxError.at(problem, source, explain.end() - len("EXPLAIN"), hint)
        tokens = StatementTokens.read(source)
        return cls(tokens.tokens, tokens.opened_by, tokens.closed_at, tokens.clauses, source, [])

    def check_kind(self, calls: Sequence[FunctionCall] = ()) -> None:
        """Reject statements with a clause or a call that Spark would keep as text: the text would refer to temporary views that
        no longer exist.
        """
        words = [word_of(token) for token in self.tokens]
        if not (self.clauses or calls) or not words:
            return
        what = CLAUSE if self.clauses else calls[0].name
        makes_view = (
            words[0] in ("CREATE", "ALTER") and next((w for w in words if w in ("VIEW", "TABLE")), "") == "VIEW"
        )
        if makes_view or words[0] == "CACHE":
            problem = f"a view cannot contain {what}" if makes_view else f"CACHE TABLE cannot have {what}"
            hint = f'sql("SELECT ... {what} (...)", spark).createOrReplaceTempView("falls")'
            raise ExpressionSyntaxError.at(problem, self.source, self.tokens[0].start, hint)

    def table_before(self, clause: FoundClause) -> int:
        """The first token of the table, view or subquery before a clause, perhaps with an alias; or of the join that ends
        there with its condition.
        """
        level = self.opened_by[clause.keyword]
        words = [
            (at, word_of(self.tokens[at])) for at in range(level + 1, clause.keyword) if self.opened_by[at] == level
        ]
        before = [
            (at, word)
            for at, word in words
            if word in _BEFORE_A_TABLE and not (word == "FROM" and word_of(self.tokens[at - 1]) == "DISTINCT")
        ]
        first = before[-1][0] + 1 if before else level + 1
        if any(word in ("ON", "USING") for at, word in words if at >= first):
            first = next((at + 1 for at, word in reversed(before) if word in ("FROM", ",")), level + 1)
        if self.tokens[first].token_type is TokenType.L_PAREN:  # perhaps a row of VALUES (...), (...)
            rows = [(at, word) for at, word in words if at < first]
            while rows and rows[-1][1] in (",", ")", "("):
                rows.pop()
            first = rows[-1][0] if rows and rows[-1][1] == "VALUES" else first
        inside = [word for at, word in words if at >= first]
        if inside[:1] == ["TABLE"] and inside[1:2] != ["("]:
            problem = f"{clause.word} follows the name of the table, without TABLE"
            hint = f"SELECT * FROM trades {clause.word} (...)"
            raise ExpressionSyntaxError.at(problem, self.source, self.tokens[first].start, hint)
        if not inside or any(word in _NOT_IN_A_TABLE for word in inside):
            problem = f"{clause.word} must follow a table, a view or a subquery in parentheses"
            hint = f"SELECT * FROM trades {clause.word} (...)"
            raise ExpressionSyntaxError.at(problem, self.source, clause.begin, hint)
        return first

    def tables_read_by(
        self, first: int, clause: FoundClause, subqueries: Sequence[tuple[int, int]]
    ) -> frozenset[str] | None:
        """The names of tables that the table before a clause, from token *first* on, and its subqueries can read; None: any."""
        parts = [self.read_tables(first, clause.keyword)]
        parts += [self.read_tables(opening + 1, closing, table_first=False) for opening, closing in subqueries]
        return None if None in parts else frozenset().union(*(part for part in parts if part is not None))

    def check_outer_row(self, clause: FoundClause, error: str) -> None:
        """Fail if the table before a clause reads a table of the query around it, which is why Spark refused it."""
        outer = {name[-1].lower() for name in self.outer_table_names(clause)}
        for at in range(self.table_before(clause), clause.keyword - 2):
            table, column = self.tokens[at].text, self.tokens[at + 2].text
            is_named = self.tokens[at + 1].token_type is TokenType.DOT and table.lower() in outer
            if is_named and f"`{table}`.`{column}`".lower() in error.lower():
                raise outer_row(f"{table}.{column}", self.source, self.tokens[at].start)

    def check_measure_of_rules(self, error: AnalysisException) -> None:
        """Fail if a column that Spark does not find may be a measure of MATCH_RECOGNIZE_DYNAMIC."""
        unknown = (error.getMessageParameters() or {}).get("objectName", "")
        if all(clause.word != DYNAMIC_CLAUSE for clause in self.clauses) or not unknown:
            return
        *table, column = unknown.replace("`", "").split(".")
        problem = f"unknown column {unknown}"
        hint = f"the measures of rules are in a map: {'.'.join([*table, 'measures'])}[{column!r}]"
        raise ColumnNotFoundError(problem, None, hint) from error

    def text(self, begin: int, end: int) -> str:
        """A part of the statement, with the replacements made so far, for :func:`_run`."""
        parts, at = [], begin
        inside = sorted(
            replacement for replacement in self.replaced if begin <= replacement[0] and replacement[1] <= end
        )
        for from_, to, name in inside:
            if from_ < at or any(a <= from_ and to <= b and (a, b) != (from_, to) for a, b, _ in inside):
                continue
            parts += [_escaped(self.source[at:from_]), f"{{{name}}}"]
            at = to
        return "".join([*parts, _escaped(self.source[at:end])])

    def query(self, given: Mapping[str, str], names: frozenset[str] | None, at: int, query: str) -> str:
        """A query with the common table expressions that it reads, as seen from token *at*. Those of inner queries hide those of
        outer ones. The others are left out, because Spark regards a query with a streaming one as a stream.

        :param given: further common table expressions, by name
        :param names: what the query reads, see :meth:`read_tables`
        """
        opened = self.opened_by[at]
        path = []
        while opened >= 0:
            path.append(opened)
            if len(path) > MAX_NESTING:
                problem = f"MATCH_RECOGNIZE inside of more than {MAX_NESTING:,} parentheses"
                raise ExpressionSyntaxError.at(problem, self.source, self.tokens[at].start)
            opened = self.opened_by[opened]
        for level in (*path, -1):
            defined: list[str] = []
            recursive = False
            for is_recursive, name, close in reversed(list(self._expressions(level))):
                if close < at and (names is None or self.tokens[name].text.lower() in names):
                    more = self.read_tables(name + 1, close, table_first=False)
                    names = None if names is None or more is None else names | more
                    defined.insert(0, self.text(self.tokens[name].start, self.tokens[close].end + 1))
                    recursive |= is_recursive
            query = _with(defined, query, recursive=recursive)
        return _with([text for name, text in given.items() if names is None or name.lower() in names], query)

    def _expressions(self, level: int) -> Iterator[tuple[bool, int, int]]:
        """The common table expressions of a query in a parenthesis: whether they are recursive, and the first and last tokens."""
        end_of_level = self.closed_at.get(level, len(self.tokens)) if level >= 0 else len(self.tokens)
        places = [at for at in range(level + 1, end_of_level) if self.opened_by[at] == level]
        for place, at in enumerate(places):
            if word_of(self.tokens[at]) != "WITH":
                continue
            rest = places[place + 1 :]
            recursive = bool(rest) and word_of(self.tokens[rest[0]]) == "RECURSIVE"
            rest = rest[recursive:]
            while rest:
                # The name can be followed by columns in parentheses.
                body = next(
                    (n for n, here in enumerate(rest[:8]) if here in self.closed_at and self._is_query(here)), None
                )
                if body is None:
                    break
                close = self.closed_at[rest[body]]
                yield recursive, rest[0], close
                after = rest.index(close) if close in rest else len(rest)
                if after + 1 >= len(rest) or word_of(self.tokens[rest[after + 1]]) != ",":
                    break
                rest = rest[after + 2 :]
            return

    def _is_query(self, opening: int) -> bool:
        return opening + 1 < len(self.tokens) and word_of(self.tokens[opening + 1]) in _QUERIES

    def whole(self, given: Sequence[str]) -> str:
        """The statement with all replacements."""
        if not self.tokens:
            return self.source
        end = self.tokens[-1].end + 1
        first = word_of(self.tokens[0])
        if not given:
            return self.text(0, end)
        if first not in _QUERIES:
            raise StreamDefinitionError(
                f"DataFrames can be given by name only to queries and INSERT, not to {shown(first)}",
                hint='df.createOrReplaceTempView("events"), and leave the argument out',
            )
        if all(
            word_of(token) != "INSERT" for token, opened in zip(self.tokens, self.opened_by, strict=True) if opened < 0
        ):
            return _with(given, self.text(0, end))
        if first != "WITH":
            return _with(given, "") + self.text(0, end)
        recursive = word_of(self.tokens[1]) == "RECURSIVE"
        begin = self.tokens[1 + recursive].start
        return _with([*given, self.text(begin, end)], "", recursive=recursive)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _with(defined: Sequence[str], query: str, *, recursive: bool = False) -> str:
    """A query after common table expressions. If it begins with WITH, it is in parentheses, so that names can repeat."""
    if not defined:
        return query
    return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(defined)} {f'({query})' if query else ''}"
