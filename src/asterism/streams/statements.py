"""Statements of SQL with MATCH_RECOGNIZE, and with operators as table functions, on every host.

From left to right, each clause with the table factor before it, and each call of a table function, is replaced by a table
of its result. A database executes the rest. Only clauses and calls are parsed here; of the rest of the statement, only tokens,
parentheses and the names of common table expressions are read.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot.tokenizer_core import TokenType

from asterism.arguments import shown
from asterism.errors import (
    ColumnNotFoundError,
    ExpressionError,
    ExpressionSyntaxError,
    StreamDefinitionError,
    UnsupportedSyntaxError,
)
from asterism.row_patterns.clause.clause import InputTable
from asterism.row_patterns.clause.reading import FACTORY, read_dynamic
from asterism.row_patterns.match_recognize import MatchRecognize
from asterism.row_patterns.resolution import outer_row
from asterism.row_patterns.statements import CLAUSE, DYNAMIC_CLAUSE, MAX_NESTING, FoundClause, StatementTokens, word_of
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.row_patterns import match_recognize
from asterism.text.printable import quoted_name

_BEFORE_A_TABLE = ("FROM", "JOIN", ",", "LATERAL")
_NOT_IN_A_TABLE = ("WHERE", "SELECT", "GROUP", "ORDER", "HAVING", "LIMIT")
_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(", "INSERT")


class StatementRun(ABC):
    """A statement, whose clauses and calls are run one after the other, on a host that has a database for the rest.

    :param named: the tables and the discoverer factories of the caller, by name
    :param options: the options of every clause
    :param search_options: further options of MATCH_RECOGNIZE
    :ivar given: the tables of the caller that the statement uses, as common table expressions by name
    :ivar frames: these tables, and the results so far, by the names by which queries refer to them
    """

    refused: type[Exception]
    """the error of the database if a query is wrong"""

    def __init__(
        self,
        statement: Statement,
        named: Mapping[str, Any],
        options: Mapping[str, Any],
        search_options: Mapping[str, Any],
    ) -> None:
        self.statement, self.named, self.options, self.search_options = statement, named, options, search_options
        self.given: dict[str, str] = {}
        self.frames: dict[str, Any] = {}
        used = {token.text.lower() for token in statement.tokens}
        for name, rows in named.items():
            if name.lower() in used and not isinstance(rows, PatternProcessorDiscovererFactory):
                place = f"table_{len(self.given)}"
                self.frames[place] = self.readable(rows)
                self.given[name] = f"{quoted_name(name)} AS (SELECT * FROM {{{place}}})"

    # ------------------------------------------------------------------ what a host does

    @abstractmethod
    def readable(self, rows: Any) -> Any:
        """The rows of a table of the caller, as queries read them."""

    @abstractmethod
    def run(self, query: str) -> Any:
        """The rows of a query that refers to frames in braces; other braces are doubled."""

    @abstractmethod
    def catalog(self) -> str:
        """The name of the current catalog."""

    @abstractmethod
    def check_subquery(self, rows: Callable[[str], Any], query: str, start: int) -> None:
        """Check that a subquery of a clause reads no row of the clause, and no stream.

        :param rows: runs a query that selects something
        :param start: where the subquery begins in the statement
        """

    @abstractmethod
    def columns_of(self, rows: Any) -> Sequence[str]:
        """The names of the columns."""

    @abstractmethod
    def renamed(self, rows: Any, names: Mapping[str, str]) -> Any:
        """Some columns, by other names."""

    @abstractmethod
    def watermarks_of(self, rows: Any) -> Mapping[str, Any]:
        """The options for the watermark of a table before a clause."""

    @abstractmethod
    def of_rules(self, stream: KeyedStream[Any], factory: PatternProcessorDiscovererFactory, options: Any) -> Any:
        """The matches of rules."""

    # ------------------------------------------------------------------ clauses

    def table_of(self, begin: int, end: int, at: int) -> Any:
        """The table between two places of the statement, as seen from the token *at*."""
        statement = self.statement
        starts = [token.start for token in statement.tokens]
        names = statement.read_tables(bisect_left(starts, begin), bisect_left(starts, end))
        return self.run(statement.query(self.given, names, at, f"SELECT * FROM {statement.text(begin, end)}"))

    def result_of(self, clause: FoundClause) -> tuple[int, Any]:
        """Where the table before a clause begins, and the result of the clause."""
        statement = self.statement
        first = statement.table_before(clause)
        begin, end = statement.tokens[first].start, statement.tokens[clause.keyword - 1].end + 1
        inside = [*statement.subqueries(clause)] if clause.word == CLAUSE else []
        names_read = statement.tables_read_by(first, clause, inside)
        text = statement.text(begin, end)

        def query(selected: str) -> Any:
            return self.run(statement.query(self.given, names_read, clause.keyword, f"SELECT {selected}"))

        def select(columns: str) -> Any:
            try:
                return query(f"{columns} FROM {text}")
            except self.refused as error:
                statement.check_outer_row(clause, str(error))
                raise

        subqueries = []
        for opening, closing in inside:
            start = statement.tokens[opening].start
            if getattr(select("*"), "isStreaming", False):
                problem = "over a stream, a clause cannot have subqueries: their values would be those of a micro-batch"
                raise UnsupportedSyntaxError.at(problem, statement.source, start)
            subquery = statement.text(start, statement.tokens[closing].end + 1)
            self.check_subquery(query, f"{subquery} AS value", start)
            subqueries.append(subquery)
        written = statement.source[clause.begin : clause.end]
        names = statement.table_names(first, clause.keyword)
        table = TableBeforeClause.read(self, select, names, written, subqueries)
        for (opening, closing), name in zip(inside, table.constants, strict=True):
            after, until = (statement.tokens[at].start - clause.begin for at in (opening, closing))
            written = written[: after + 1] + name.ljust(until - after - 1) + written[until:]
        try:
            return begin, self._matches(clause, table, written)
        except ExpressionError as error:
            raise error.moved(statement.source, clause.begin) from None

    def _matches(self, clause: FoundClause, table: TableBeforeClause, written: str) -> Any:
        """
        :param written: the clause, with the names of columns in place of its subqueries
        """
        if clause.word == DYNAMIC_CLAUSE:
            return self._by_rules(table, written)
        read = MatchRecognize(written, self.search_options["dialect"])
        outer = (InputTable(name, outer=True) for name in self.statement.outer_table_names(clause))
        read.clause = replace(read.clause, tables=(*table.tables, *outer), constants=table.constants)
        options = {**self.watermarks_of(table.df), **self.options, **self.search_options}
        matches = match_recognize(table.df, read, **options).matches
        names = table.shown(self.columns_of(matches))
        return matches if names is None else self.renamed(matches, names)

    def _by_rules(self, table: TableBeforeClause, text: str) -> Any:
        """The matches of a MATCH_RECOGNIZE_DYNAMIC clause."""
        clause = read_dynamic(text, table.tables)
        named = clause.options[FACTORY]
        factory = next((value for name, value in self.named.items() if name.lower() == named.text.lower()), None)
        if not isinstance(factory, PatternProcessorDiscovererFactory):
            problem = f"there is no discoverer factory {named.text!r:.100}"
            hint = f"sql(..., {named.text:.100}=FilePatternProcessorDiscovererFactory(path))"
            raise ExpressionSyntaxError.at(problem, text, named.start, hint)
        watermarks = self.watermarks_of(table.df)
        stream = KeyedStream(table.df, key=list(clause.partition_by), time=clause.order_by, **watermarks)
        written = {name: value.text for name, value in clause.options.items() if name != FACTORY}
        return self.of_rules(stream, factory, {**self.options, **written})

    def run_parts(self, parts: Sequence[Any], result_of_call: Callable[[Any], Any]) -> None:
        """Run the clauses and the calls, from left to right.

        :param result_of_call: the result of a part that is not a clause
        """
        # A clause inside the table of another clause ends before it.
        for number, part in enumerate(sorted(parts, key=lambda part: part.end)):
            if isinstance(part, FoundClause):
                begin, result = self.result_of(part)
            else:
                begin, result = part.begin, result_of_call(part)
            self.frames[f"matches_{number}"] = result
            self.statement.replaced.append((begin, part.end, f"matches_{number}"))

    def whole(self) -> Any:
        """The rows of the statement, after its parts were run."""
        return self.run(self.statement.whole(list(self.given.values())))


@dataclass(frozen=True, slots=True)
class TableBeforeClause:
    """The table before a clause.

    :ivar renamed: the names in the tables of the columns that have other names in *df*; two tables of a join can have
        columns of the same name
    :ivar constants: the columns of the subqueries of the clause, which Spark computes once
    """

    df: Any
    tables: tuple[InputTable, ...]
    renamed: Mapping[str, str]
    constants: tuple[str, ...]

    @classmethod
    def read(
        cls,
        host: StatementRun,
        select: Callable[[str], Any],
        names: Sequence[tuple[str, ...]],
        clause: str,
        subqueries: Sequence[str],
    ) -> TableBeforeClause:
        """
        :param select: the columns of the table that are listed in an SQL text
        """
        every, renamed = select("*"), {}
        every_columns = host.columns_of(every)
        prefix = "_"  # short, so that the name takes the place of the subquery
        while any(name.startswith(prefix) for name in every_columns):
            prefix += "_"
        constants = tuple(f"{prefix}{number}" for number in range(len(subqueries)))
        computed = [f"{text} AS {name}" for text, name in zip(subqueries, constants, strict=True)]
        catalogs = (host.catalog(),) if any(len(name) == 2 for name in names) else ()
        tables = [InputTable((*catalogs, *name) if len(name) == 2 else name) for name in names]
        if len(tables) < 2:
            return cls(select(", ".join(["*", *computed])) if computed else every, tuple(tables), {}, constants)
        prefixes = [".".join(map(quoted_name, name)) for name in names]
        columns = [host.columns_of(select(f"{prefix}.*")) for prefix in prefixes]
        counts = Counter(name.lower() for name in every_columns)
        in_tables = Counter(name.lower() for table in columns for name in table)
        listed = [quoted_name(name) for name in every_columns if counts[name.lower()] == 1]
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

    def shown(self, columns: Sequence[str]) -> dict[str, str] | None:
        """The columns of the result of the clause, with the names that they have in their tables; None: as they are."""
        if {*self.renamed, *self.constants}.isdisjoint(columns):
            return None
        # A merged column occurs once.
        shown = [name for name in columns if self.renamed.get(name) not in columns and name not in self.constants]
        return {name: self.renamed.get(name, name) for name in shown}


@dataclass(frozen=True, slots=True)
class Statement(StatementTokens):
    """A statement, of which parts have been replaced.

    :ivar replaced: parts of the text, from begin to end, with the names of frames
    """

    source: str
    replaced: list[tuple[int, int, str]]

    @classmethod
    def read(cls, source: str) -> Statement:
        explain = re.match(r"\s*EXPLAIN\b", source, re.IGNORECASE)  # the tokenizer takes what follows as one token
        if explain:
            problem, hint = (
                "EXPLAIN cannot have MATCH_RECOGNIZE or a call of an operator",
                'sql("SELECT ... MATCH_RECOGNIZE (...)", spark).explain()',
            )
            raise ExpressionSyntaxError.at(problem, source, explain.end() - len("EXPLAIN"), hint)
        tokens = StatementTokens.read(source)
        return cls(tokens.tokens, tokens.opened_by, tokens.closed_at, tokens.clauses, source, [])

    def check_kind(self, calls: Sequence[str] = ()) -> None:
        """Reject statements with a clause or a call that Spark would keep as text: the text would refer to temporary views that
        no longer exist.

        :param calls: the names of the table functions that are called
        """
        words = [word_of(token) for token in self.tokens]
        if not (self.clauses or calls) or not words:
            return
        what = CLAUSE if self.clauses else calls[0]
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

    def check_measure_of_rules(self, unknown: str, error: Exception) -> None:
        """Fail if a column that the database does not find may be a measure of MATCH_RECOGNIZE_DYNAMIC.

        :param unknown: the column, perhaps with its table and in quotes
        """
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

    @property
    def is_query(self) -> bool:
        """Whether the statement begins as a query or an INSERT."""
        return bool(self.tokens) and word_of(self.tokens[0]) in _QUERIES

    def whole(self, given: Sequence[str]) -> str:
        """The statement with all replacements."""
        if not self.tokens:
            return self.source
        end = self.tokens[-1].end + 1
        first = word_of(self.tokens[0])
        if not given:
            return self.text(0, end)
        if not self.is_query:
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
