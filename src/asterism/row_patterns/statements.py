"""Finds MATCH_RECOGNIZE clauses in statements by their tokens and parentheses. See docs/decisions/0093."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from asterism.errors import ExpressionError, ExpressionSyntaxError
from asterism.expressions.parsing import tokenize
from asterism.row_patterns.clause.clause import DialectName
from asterism.row_patterns.match_recognize import MatchRecognize

MAX_STATEMENT = 1_000_000  # characters
MAX_CLAUSES = 100
CLAUSE, DYNAMIC_CLAUSE = "MATCH_RECOGNIZE", "MATCH_RECOGNIZE_DYNAMIC"

_BEFORE_A_NAME = (".", "AS", "EXISTS", "INTO", "OVERWRITE", "TABLE", "VIEW", "WITH")
"""Words before the name of a table or its alias, which can have a list of columns behind it."""
_KINDS_OF_JOIN = ("ANTI", "CROSS", "FULL", "INNER", "LATERAL", "LEFT", "NATURAL", "OUTER", "RIGHT", "SEMI")
_BEHIND_FROM = ("WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "FROM")
MAX_NESTING = 100  # parentheses around a clause
_BEHIND_A_TABLE = ("ON", "USING", "FOR", "VERSION", "TIMESTAMP")


@dataclass(frozen=True, slots=True)
class FoundClause:
    """A clause from *begin* to *end* in the text; *keyword* is the index of its first token, which is *word*."""

    keyword: int
    word: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class StatementTokens:
    """
    :ivar opened_by: for each token, the index of the parenthesis that is open before it, -1 if there is none
    :ivar closed_at: for each opening parenthesis, the index of the closing one
    """

    tokens: list[Token]
    opened_by: Sequence[int]
    closed_at: Mapping[int, int]
    clauses: Sequence[FoundClause]

    @classmethod
    def read(cls, source: str) -> StatementTokens:
        """:raises ExpressionSyntaxError: the text has no tokens, or a clause does not end"""
        tokens = tokenize(source, "statement", MAX_STATEMENT)
        while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
            tokens.pop()
        opened_by, closed_at, stack = [], {}, [-1]
        for at, token in enumerate(tokens):
            if token.token_type is TokenType.R_PAREN and len(stack) > 1:
                closed_at[stack.pop()] = at
            opened_by.append(stack[-1])
            if token.token_type is TokenType.L_PAREN:
                stack.append(at)
        clauses = []
        for at, token in enumerate(tokens):
            if at and word_of(tokens[at - 1]) in _BEFORE_A_NAME:
                continue
            word, following = word_of(token), tokens[at + 1].token_type if at + 1 < len(tokens) else None
            if word in (CLAUSE, DYNAMIC_CLAUSE) and following is TokenType.L_PAREN:
                if at + 1 not in closed_at:
                    problem = f"the parenthesis after {word} is not closed"
                    raise ExpressionSyntaxError.at(problem, source, tokens[at + 1].start)
                clauses.append(FoundClause(at, word, token.start, tokens[closed_at[at + 1]].end + 1))
        return cls(tokens, opened_by, closed_at, clauses)

    def table_names(self, begin: int, end: int) -> list[tuple[str, ...]]:
        """The names of the tables in a part of FROM, from token *begin* to *end*: aliases, or else names with those of the
        database and the catalog before them. Tables without a name are left out.

        >>> statement = StatementTokens.read("db.trips JOIN cars AS c (id) ON id = car LEFT JOIN (SELECT 1) USING (x)")
        >>> statement.table_names(0, len(statement.tokens))
        [('db', 'trips'), ('c',)]
        """
        names: list[tuple[str, ...]] = []
        part: list[int] = []
        level, visible = self.opened_by[begin], True
        for at in [*(at for at in range(begin, end) if self.opened_by[at] == level), end]:
            word = "JOIN" if at == end else word_of(self.tokens[at])
            if word != "JOIN" and (word != "," or (part and word_of(self.tokens[part[0]]) == "VALUES")):
                part.append(at)
                continue
            kinds = []
            while part and word_of(self.tokens[part[-1]]) in _KINDS_OF_JOIN:
                kinds.append(word_of(self.tokens[part.pop()]))
            if visible:
                names += self._names_of_table(part)
            part, visible = [], not {"SEMI", "ANTI"} & set(kinds)
        return names

    def read_tables(self, begin: int, end: int, *, table_first: bool = True) -> frozenset[str] | None:
        """The names of tables, in lower case, that a part of a statement can read, from token *begin* to *end*; None: any table.
        They can include a column after a comma of FROM inside of a function.

        :param table_first: whether the part begins with a table

        >>> statement = StatementTokens.read("SELECT a, b FROM s, t AS u WHERE c IN (SELECT d FROM db.v JOIN w USING (e))")
        >>> sorted(statement.read_tables(0, len(statement.tokens), table_first=False))
        ['db', 's', 't', 'w']
        """
        names = set()
        for at in range(begin, end):
            if word_of(self.tokens[at]) == "IDENTIFIER":
                return None
            if _is_name(self.tokens[at]) and self._is_table(at, begin if table_first else -1):
                names.add(self.tokens[at].text.lower())
        return frozenset(names)

    def _is_table(self, at: int, first: int) -> bool:
        """Whether a table can begin at a token, judged by the tokens before it.

        :param first: where a table begins
        """
        while at != first and at > 0 and self.tokens[at - 1].token_type is TokenType.L_PAREN:
            at -= 1
        if at == first:
            return True
        before = word_of(self.tokens[at - 1]) if at > 0 else ""
        if before != ",":
            is_distinct = at > 1 and word_of(self.tokens[at - 2]) == "DISTINCT"
            return before in ("FROM", "JOIN", "TABLE", "LATERAL") and not is_distinct
        for earlier in range(at - 2, self.opened_by[at], -1):
            if self.opened_by[earlier] == self.opened_by[at]:
                if earlier == first or (word := word_of(self.tokens[earlier])) in ("FROM", "JOIN", "ON", "USING"):
                    return True
                if word in ("SELECT", "WHERE", "BY", "HAVING", "VALUES", "LIMIT", "WITH", "SET"):
                    return False
        return False

    def subqueries(self, clause: FoundClause) -> Iterator[tuple[int, int]]:
        """The scalar subqueries in a clause: the tokens of their parentheses.

        >>> statement = StatementTokens.read("SELECT * FROM t MATCH_RECOGNIZE (MEASURES (SELECT 1) AS x PATTERN (A))")
        >>> list(statement.subqueries(statement.clauses[0]))
        [(7, 10)]
        """
        at = clause.keyword + 2
        while at < self.closed_at[clause.keyword + 1]:
            before, here = word_of(self.tokens[at - 1]), self.tokens[at]
            opens = here.token_type is TokenType.L_PAREN
            words = [word_of(token) for token in self.tokens[at + 1 : at + 3]]
            if opens and words[0] in ("SELECT", "WITH") and words[1] not in (",", ")", ".") and before != "PATTERN":
                if before not in ("IN", "EXISTS", "ANY", "ALL", "SOME"):
                    yield at, self.closed_at[at]
                at = self.closed_at[at]
            elif opens and before == "PATTERN":
                at = self.closed_at[at]
            at += 1

    def outer_table_names(self, clause: FoundClause) -> list[tuple[str, ...]]:
        """The names of the tables of the queries around the query of a clause.

        >>> statement = StatementTokens.read("SELECT (SELECT max(n) FROM t MATCH_RECOGNIZE (PATTERN (A))) FROM cars AS c")
        >>> statement.outer_table_names(statement.clauses[0])
        [('c',)]
        """
        names: list[tuple[str, ...]] = []
        level = self.opened_by[clause.keyword]
        for _ in range(MAX_NESTING):
            if level < 0:
                break
            level = self.opened_by[level]
            end = self.closed_at.get(level, len(self.tokens))
            inside = [at for at in range(level + 1, end) if self.opened_by[at] == level]
            for at in inside:
                if word_of(self.tokens[at]) == "FROM":
                    ends = (n for n in inside if n > at and word_of(self.tokens[n]) in _BEHIND_FROM)
                    names += self.table_names(at + 1, next(ends, end))
        return names

    def _names_of_table(self, part: list[int]) -> list[tuple[str, ...]]:
        """The names of a table factor, by the tokens outside of parentheses and the parentheses."""
        words = [word_of(self.tokens[at]) for at in part]
        ends = [number for number, word in enumerate(words) if word in _BEHIND_A_TABLE and number]
        part = part[: ends[0]] if ends else part
        if "TABLESAMPLE" in words[1:]:
            sample = words.index("TABLESAMPLE", 1)
            part = part[sample + 3 :] or part[:sample]
        ends_with_list = len(part) > 2 and self.tokens[part[-1]].token_type is TokenType.R_PAREN
        if ends_with_list and part[-3:-2] != part[:1]:  # the columns of an alias, not the arguments of a function
            part = part[:-2]
        elif len(part) == 2 and self.tokens[part[0]].token_type is TokenType.L_PAREN:
            inside = part[0] + 1
            is_query = word_of(self.tokens[inside]) in ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
            return [] if is_query else self.table_names(inside, part[1])
        if part and part[-1] in (clause.keyword for clause in self.clauses):
            return []
        name: list[str] = []
        while part and _is_name(self.tokens[part[-1]]):
            name.insert(0, self.tokens[part.pop()].text)
            if not part or self.tokens[part[-1]].token_type is not TokenType.DOT:
                return [tuple(name)]
            part.pop()
        return []


def _is_name(token: Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER or re.fullmatch(r"(?!\d)\w+", word_of(token)) is not None


def word_of(token: Token) -> str:
    """A token in upper case; an empty string for quoted names and strings."""
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING):
        return ""
    return token.text.upper()


def clauses_in(text: str, dialect: DialectName = "standard") -> list[tuple[int, MatchRecognize]]:
    """The clauses of a text, each with its place: those of a statement, or the text itself.

    :raises ExpressionError: a clause is invalid; with the position in the text

    >>> clauses_in("SELECT * FROM a MATCH_RECOGNIZE (PATTERN (A B+))")
    [(16, MatchRecognize('A B+'))]
    >>> clauses_in("PATTERN (A B+)")
    [(0, MatchRecognize('A B+'))]
    """
    found_clauses = StatementTokens.read(text).clauses
    if not found_clauses:
        return [(0, MatchRecognize(text, dialect))]
    if len(found_clauses) > MAX_CLAUSES:
        raise ExpressionSyntaxError.at(f"more than {MAX_CLAUSES:,} clauses", text, found_clauses[MAX_CLAUSES].begin)
    clauses = []
    for clause in found_clauses:
        if clause.word == DYNAMIC_CLAUSE:
            raise ExpressionSyntaxError.at(f"the patterns of {DYNAMIC_CLAUSE} are in rules", text, clause.begin)
        try:
            clauses.append((clause.begin, MatchRecognize(text[clause.begin : clause.end], dialect)))
        except ExpressionError as error:
            raise error.moved(text, clause.begin) from None
    return clauses
