"""Reads a MATCH_RECOGNIZE clause.

sqlglot's tokenizer provides the tokens. Expressions remain text for :mod:`asterism.expressions.parsing`. sqlglot's parser of the
clause supports neither SUBSET nor WITHIN, and does not parse patterns, so the grammar is here::

    clause      [PARTITION BY key, ...] [ORDER BY key, ...] [MEASURES expression AS name, ...] [rows] [AFTER MATCH skip]
                PATTERN ( alternation ) [WITHIN interval] [SUBSET name = ( name, ... ), ...] [DEFINE name AS condition, ...]
    alternation sequence { '|' sequence }
    sequence    quantified { quantified }
    quantified  primary [ ( * | + | ? | {n} | {n,} | {,m} | {n,m} ) [?] [{name}] ]
    primary     name | '^' | '$' | '(' [alternation] ')' | '{-' alternation '-}' | PERMUTE ( alternation, ... ) | [^name]

The spellings of other systems are recognised, and the error names the spelling to use instead.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, TypeVar

from sqlglot.tokenizer_core import Token, TokenType

from asterism.errors import ExpressionSyntaxError
from asterism.expressions.parsing import tokenize
from asterism.row_patterns.clause import clause as syntax
from asterism.row_patterns.clause.flink_dialect import DEFAULT_SKIP, as_in_flink

MAX_CLAUSE = 50_000  # characters; an expression may have 20,000
MAX_NESTING = 50  # parentheses in a pattern, as in an expression
MAX_REPETITIONS = 10**6  # the number in {n}; checking.py limits the pattern with its repetitions written out

_T = TypeVar("_T")
_SECTIONS = (
    "PARTITION BY", "ORDER BY", "MEASURES", "ROWS PER MATCH", "AFTER MATCH", "PATTERN", "WITHIN", "SUBSET", "DEFINE",
)  # fmt: skip
"""The sections of a clause, in the order in which they must be written."""
_OPENED_BY: dict[str, tuple[tuple[str, ...], str]] = {
    "PARTITION BY": ((), "PARTITION BY"), "ORDER BY": ((), "ORDER BY"), "MEASURES": ((), "MEASURES"),
    "ONE": (("ROW",), "ROWS PER MATCH"), "ALL": (("ROWS",), "ROWS PER MATCH"), "AFTER": (("MATCH",), "AFTER MATCH"),
    "PATTERN": (("(",), "PATTERN"), "WITHIN": ((), "WITHIN"), "SUBSET": ((), "SUBSET"), "DEFINE": ((), "DEFINE"),
}  # fmt: skip
"""By their first word: the words that must follow it, and the section."""
_KEYWORDS = ("PARTITION", "ORDER", "MEASURES", "AFTER", "PATTERN", "WITHIN", "SUBSET", "DEFINE")
_ELSEWHERE: dict[tuple[str, ...], tuple[str, str | None]] = {
    ("INITIAL",): ("INITIAL belongs to row patterns in windows (SQL:2016, R020)", "leave it out"),
    ("SEEK",): ("SEEK belongs to row patterns in windows (SQL:2016, R020)", "leave it out"),
    ("LIMIT", "DURATION"): (
        "LIMIT DURATION is Azure Stream Analytics' spelling", "WITHIN INTERVAL '5' MINUTE, after PATTERN",
    ),
    ("INTERVAL",): ("INTERVAL without WITHIN is Esper's spelling", "WITHIN INTERVAL '5' MINUTE, after PATTERN"),
    ("ALL", "MATCHES"): ("ALL MATCHES is Esper's spelling", "AFTER MATCH SKIP TO NEXT ROW finds a match from each row"),
    ("RESULTS", "ALL"): ("RESULTS is Vertica's spelling", "ALL ROWS PER MATCH, before PATTERN"),
    ("ONE", "ROWS"): ("ONE is followed by ROW", "ONE ROW PER MATCH"),
    ("ALL", "ROW"): ("ALL is followed by ROWS", "ALL ROWS PER MATCH"),
    ("DEFINES",): ("DEFINES is DuckDB's spelling", "DEFINE A AS price > 10"),
}  # fmt: skip
"""Spellings of other systems, and what to write instead."""
FACTORY = "pattern_processor_discoverer_factory"
DYNAMIC_OPTIONS = (FACTORY, "store", "on_error")
"""The options of MATCH_RECOGNIZE_DYNAMIC."""
_QUANTIFIERS = ("*", "+", "?", "??", "{")
_WORD = re.compile(r"(?!\d+\Z)\w+")
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_NO_WORDS = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER)


def misspelled(word: str) -> str | None:
    """The keyword of a clause of which a word is probably a misspelling.

    >>> misspelled("MESURES"), misspelled("price")
    ('MEASURES', None)
    """
    close = difflib.get_close_matches(word.upper(), _KEYWORDS, n=1, cutoff=0.8)
    return close[0] if close and word.upper() not in _KEYWORDS else None


def read(text: str, dialect: syntax.ClauseDialect = syntax.ClauseDialect.STANDARD) -> syntax.Clause:
    """Read a clause, with or without the words ``MATCH_RECOGNIZE ( )`` around it.

    :param dialect: see :mod:`asterism.row_patterns.clause.flink_dialect`
    :raises asterism.errors.ExpressionSyntaxError: with the position in the text

    >>> clause = read("ORDER BY ts MEASURES last(B.ts) AS until PATTERN (A B+?) DEFINE B AS price > PREV(price)")
    >>> str(clause.pattern), clause.measures[0].expression.text, clause.definitions[0].condition.text
    ('A B+?', 'last(B.ts)', 'price > PREV(price)')
    """
    return _Reader(text).clause(dialect)


def read_dynamic(text: str, tables: Sequence[syntax.InputTable] = ()) -> syntax.DynamicClause:
    """Read a MATCH_RECOGNIZE_DYNAMIC clause.

    :param tables: the tables of the input

    Source: FLIP-200, which sketches it with a single option.

    :raises asterism.errors.ExpressionSyntaxError: with the position in the text

    >>> clause = read_dynamic("MATCH_RECOGNIZE_DYNAMIC (PARTITION BY user ORDER BY ts"
    ...                       " pattern_processor_discoverer_factory = rules, store = '/rules')")
    >>> clause.partition_by, clause.order_by, {name: value.text for name, value in clause.options.items()}
    (('user',), 'ts', {'pattern_processor_discoverer_factory': 'rules', 'store': '/rules'})
    """
    return _Reader(text).dynamic_clause(tables)


class _Reader:
    """One method per rule of the grammar. ``_at`` is the number of the next token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text, "clause", MAX_CLAUSE)
        self._at = 0
        self._end = len(self._tokens)
        self._nesting = 0

    # ------------------------------------------------------------------------------------------------ tokens

    def _fail(self, problem: str, at: int | None = None, hint: str | None = None) -> NoReturn:
        """Raise an error at a token, by default the next one."""
        raise ExpressionSyntaxError.at(problem, self._text, self._start(self._at if at is None else at), hint)

    def _start(self, at: int) -> int:
        """The position of a token; behind the last token, the end of the text."""
        if at < len(self._tokens):
            return self._tokens[at].start
        return self._tokens[-1].end + 1 if self._tokens else 0

    def _token(self, at: int | None = None) -> Token | None:
        at = self._at if at is None else at
        return self._tokens[at] if at < self._end else None

    def _word(self, at: int | None = None) -> str:
        """A token in upper case; an empty string at the end, and for quoted names, strings and numbers."""
        token = self._token(at)
        if token is None or token.token_type in _NO_WORDS:
            return ""
        return " ".join(token.text.upper().split())

    def _follow(self, *words: str, at: int | None = None) -> bool:
        """Whether these are the next tokens."""
        at = self._at if at is None else at
        return all(self._word(at + n) == word for n, word in enumerate(words))

    def _accept(self, *words: str) -> bool:
        if not self._follow(*words):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str, problem: str, hint: str | None = None) -> None:
        if not self._accept(word):
            self._unexpected(problem, hint)

    def _unexpected(self, problem: str, hint: str | None = None) -> NoReturn:
        """Fail at the next token. The error explains spellings of other systems."""
        for words, (theirs, ours) in _ELSEWHERE.items():
            if self._follow(*words):
                self._fail(theirs, hint=ours)
        self._check_spelling(self._at, self._at + 1)
        self._fail(problem, hint=hint)

    def _section(self, at: int) -> str | None:
        """The section that begins with this token."""
        words = _OPENED_BY.get(self._word(at))
        if words is None or self._word(at + 1) in (".", "GROUP"):  # DEFINE.price is a column, WITHIN GROUP no section
            return None
        return words[1] if self._follow(*words[0], at=at + 1) else None

    @staticmethod
    def _is_name(token: Token) -> bool:
        if token.token_type is TokenType.IDENTIFIER:
            return True
        return token.token_type not in _NO_WORDS and _WORD.fullmatch(token.text) is not None

    def _name(self, what: str) -> tuple[str, bool, int]:
        """(a name, whether it is quoted, its position)"""
        token = self._token()
        if token is None or not self._is_name(token):
            if token is not None and self._text[token.start] == '"':
                hint = f"`{token.text:.100}`"
                self._fail("names are quoted with backquotes, as in Spark SQL; double quotes make a string", hint=hint)
            self._unexpected(f"{what} is expected here")
        self._at += 1
        return token.text, token.token_type is TokenType.IDENTIFIER, token.start

    def _variable(self, what: str = "the name of a variable") -> tuple[str, int]:
        """(the name of a variable, in upper case unless it is quoted; its position)"""
        name, is_quoted, start = self._name(what)
        return name if is_quoted else name.upper(), start

    def _list(self, element: Callable[[], _T]) -> tuple[_T, ...]:
        """One or more elements, separated by commas."""
        elements = [element()]
        while self._accept(","):
            elements.append(element())
        return tuple(elements)

    def _expression(self, what: str, *ends: TokenType) -> syntax.ExpressionText:
        """The text up to a comma, to the next section, or to one of the tokens *ends*, outside of parentheses."""
        begin, depth = self._at, 0
        while (token := self._token()) is not None:
            kind = token.token_type
            depth += (kind in _OPENING) - (kind in _CLOSING)
            section = self._section(self._at)  # a column may be named like a section, but no function is named PATTERN
            at_end = kind is TokenType.COMMA or kind in ends or (section and (self._at > begin or section == "PATTERN"))
            if depth < 0 or (depth == 0 and at_end):
                break
            self._at += 1
        if self._at == begin:
            self._unexpected(f"{what} is expected here")
        start = self._tokens[begin].start
        return syntax.ExpressionText(self._text[start : self._tokens[self._at - 1].end + 1], start)

    # ------------------------------------------------------------------------------------------------ the clause

    def clause(self, dialect: syntax.ClauseDialect) -> syntax.Clause:
        if self._accept("MATCH_RECOGNIZE"):
            self._expect("(", "MATCH_RECOGNIZE must be followed by (")
            if self._tokens[-1].token_type is not TokenType.R_PAREN:
                self._fail("the parenthesis after MATCH_RECOGNIZE is not closed at the end", len(self._tokens))
            self._end = len(self._tokens) - 1
        sections: dict[str, object] = {}
        readers: dict[str, tuple[str, Callable[[], object]]] = {
            "PARTITION BY": ("partition_by", lambda: self._list(self._partition_key)),
            "ORDER BY": ("order_by", lambda: self._list(self._order_key)),
            "MEASURES": ("measures", lambda: self._list(self._measure)),
            "ROWS PER MATCH": ("rows", self._rows),
            "AFTER MATCH": ("skip", self._skip),
            "PATTERN": ("pattern", self._pattern),
            "WITHIN": ("within", lambda: self._expression("an interval")),
            "SUBSET": ("subsets", lambda: self._list(self._subset)),
            "DEFINE": ("definitions", lambda: self._list(self._definition)),
        }
        last = ""
        while self._token() is not None:
            section = self._section(self._at)
            if section is None:
                self._stray(last)
            if last and _SECTIONS.index(section) <= _SECTIONS.index(last):
                self._fail(
                    f"{section} is written twice" if section == last else f"{section} must come before {last}",
                    hint=f"the order is {', '.join(_SECTIONS)}",
                )
            last = section
            self._at += section not in ("ROWS PER MATCH", "AFTER MATCH")
            field, reader = readers[section]
            sections[field] = reader()
            if section == "ROWS PER MATCH":
                sections["timeouts"] = self._accept("SHOW", "TIMEOUT", "MATCHES")
        if "pattern" not in sections:
            self._check_spelling(0)
            self._fail("a clause needs PATTERN", hint="PATTERN (A B+) DEFINE B AS ...")
        clause = syntax.Clause(self._text, dialect=dialect, **sections)  # type: ignore[arg-type]  # by the table above
        if dialect is syntax.ClauseDialect.STANDARD:
            return clause
        skip = clause.skip if "skip" in sections else DEFAULT_SKIP
        return replace(clause, pattern=as_in_flink(clause.pattern), skip=skip)

    def dynamic_clause(self, tables: Sequence[syntax.InputTable]) -> syntax.DynamicClause:
        self._expect("MATCH_RECOGNIZE_DYNAMIC", "MATCH_RECOGNIZE_DYNAMIC is expected here")
        self._expect("(", "MATCH_RECOGNIZE_DYNAMIC must be followed by (")
        self._end = len(self._tokens) - 1
        keys: tuple[str, ...] = ()
        if self._accept("PARTITION BY"):
            keys = self._list(lambda: self._column("a column", tables))
        time = self._column("the event-time column", tables) if self._accept("ORDER BY") else None
        options: dict[str, syntax.ExpressionText] = {}
        begin = self._at
        for at, name, value in self._list(self._option):
            if name in options:
                self._fail(f"{name} is written twice", at)
            options[name] = value
        if FACTORY not in options:
            self._fail(f"{FACTORY} is missing", begin, f"{FACTORY} = rules")
        if self._token() is not None:
            if self._word().lower() in DYNAMIC_OPTIONS:
                self._fail("a comma is missing between two options")
            self._fail("unexpected text after the options")
        return syntax.DynamicClause(keys, time, options)

    def _column(self, what: str, tables: Sequence[syntax.InputTable]) -> str:
        """The name of a column, with or without the name of its table."""
        begin = self._at
        name = [self._name(what)[0]]
        while self._accept("."):
            name.append(self._name(what)[0])
        *prefix, column = name
        if not prefix:
            return column
        table = next((table for table in tables if table.is_called(prefix)), None)
        if table is None:
            self._fail(f"unknown table {'.'.join(prefix)!r:.100}", begin, column)
        return next((in_input for in_table, in_input in table.columns if in_table.lower() == column.lower()), column)

    def _option(self) -> tuple[int, str, syntax.ExpressionText]:
        """(the number of its token, its name, its value)"""
        at = self._at
        name = self._name("the name of an option")[0].lower()
        if name not in DYNAMIC_OPTIONS:
            self._fail(f"there is no option {name!r:.100}", at, f"options: {', '.join(DYNAMIC_OPTIONS)}")
        self._expect("=", f"{name} must be followed by =")
        token = self._token()
        if token is None:
            self._fail(f"the value of {name} is missing")
        if token.token_type is TokenType.STRING:
            self._at += 1
        else:
            self._name("a name or a string")
        return at, name, syntax.ExpressionText(token.text, token.start)

    def _stray(self, last: str) -> NoReturn:
        """Fail at a token that begins no section."""
        if self._word() == "PATTERN" and self._word(self._at + 2) == "AS":
            self._fail("PATTERN name AS (...) is Vertica's spelling", hint="PATTERN (A B+)")
        if self._word() == "PATTERN":
            self._fail("PATTERN must be followed by (", self._at + 1)
        if self._word() == ")":
            self._fail("a closing parenthesis without an opening one")
        hint = f"after {last} may come: {', '.join(_SECTIONS[_SECTIONS.index(last) + 1 :])}" if last else None
        self._unexpected("unexpected text" + (f" after {last}" if last else ""), hint)

    def _check_spelling(self, begin: int, end: int | None = None) -> None:
        """Fail at the first token that is probably a misspelled keyword."""
        for at in range(begin, self._end if end is None else end):
            meant = misspelled(self._word(at)) if self._word(at) else None
            if meant is not None:
                self._fail(f"unexpected text {self._tokens[at].text!r:.60}", at, f"did you mean {meant}?")

    def _partition_key(self) -> syntax.PartitionKey:
        expression = self._expression("a column", TokenType.ALIAS)
        return syntax.PartitionKey(expression, self._name("a name")[0] if self._accept("AS") else None)

    def _order_key(self) -> syntax.OrderKey:
        begin = self._at
        with_options = self._expression("a column")
        end, descending, nulls_first = self._at, False, None
        if self._follow("NULLS", at=end - 2) and self._word(end - 1) in ("FIRST", "LAST") and end - 2 > begin:
            nulls_first, end = self._word(end - 1) == "FIRST", end - 2
        if self._word(end - 1) in ("ASC", "DESC") and end - 1 > begin:
            descending, end = self._word(end - 1) == "DESC", end - 1
        text = self._text[with_options.start : self._tokens[end - 1].end + 1]
        return syntax.OrderKey(syntax.ExpressionText(text, with_options.start), descending, nulls_first)

    def _measure(self) -> syntax.Measure:
        begin = self._at
        expression = self._expression("a measure", TokenType.ALIAS)
        if self._word() != "AS":
            self._check_spelling(begin + 1, self._at)
        self._expect("AS", "a measure needs a name", f"{expression.text:.100} AS name")
        name, _, start = self._name("the name of the measure")
        return syntax.Measure(expression, name, start)

    def _rows(self) -> syntax.RowsPerMatch:
        for rows in syntax.RowsPerMatch:
            if self._accept(*rows.value.split()):
                return rows
        if not self._accept("ALL", "ROWS", "PER", "MATCH"):
            self._fail("ONE ROW and ALL ROWS must be followed by PER MATCH")
        return syntax.RowsPerMatch.ALL_SHOW_EMPTY

    def _skip(self) -> syntax.Skip:
        self._accept("AFTER", "MATCH")
        start = self._start(self._at)
        choices = "PAST LAST ROW, TO NEXT ROW, TO FIRST variable or TO LAST variable"
        if self._accept("NO", "SKIP"):
            return syntax.Skip(syntax.SkipTo.NO_SKIP, start=start)
        self._expect("SKIP", "AFTER MATCH must be followed by SKIP or NO SKIP", f"AFTER MATCH SKIP {choices}")
        for to in (syntax.SkipTo.PAST_LAST_ROW, syntax.SkipTo.NEXT_ROW):
            if self._accept(*to.value.split()):
                return syntax.Skip(to, start=start)
        self._expect("TO", f"SKIP must be followed by {choices}")
        to = syntax.SkipTo.FIRST if self._word() == "FIRST" else syntax.SkipTo.LAST
        self._at += self._word() in ("FIRST", "LAST")
        variable, start = self._variable()
        return syntax.Skip(to, variable, start)

    def _subset(self) -> syntax.Subset:
        name, start = self._variable("the name of a subset")
        self._expect("=", "a subset needs its variables", "SUBSET U = (A, B)")
        self._expect("(", "the variables of a subset must be in parentheses", "SUBSET U = (A, B)")
        members = self._list(self._variable)
        self._expect(")", "a comma or a closing parenthesis is expected here")
        return syntax.Subset(name, tuple(member for member, _ in members), start, tuple(at for _, at in members))

    def _definition(self) -> syntax.Definition:
        begin = self._at
        variable, start = self._variable()
        if variable == "AUTO" and self._word() != "AS":
            problem = "DEFINE AUTO is DuckDB's: the condition of a variable is the column with its name"
            self._fail(problem, begin, "DEFINE RISING AS rising, FALLING AS falling")
        self._expect("AS", "AS and a condition are expected here", "DEFINE A AS price > 10")
        return syntax.Definition(variable, self._expression("a condition"), start)

    # ------------------------------------------------------------------------------------------------ the pattern

    def _pattern(self) -> syntax.PatternNode:
        self._expect("(", "PATTERN must be followed by (")
        pattern = self._alternation()
        self._close(")", "PATTERN (")
        return pattern

    def _close(self, bracket: str, opening: str) -> None:
        if self._token() is None:
            self._fail(f"{opening} is not closed")
        if not self._accept(bracket):
            self._strange()

    def _alternation(self) -> syntax.PatternNode:
        start = self._start(self._at)
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self._fail(f"the pattern is nested too deeply (limit {MAX_NESTING:,} levels)")
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        self._nesting -= 1
        flat = [inner for part in parts for inner in (part.of if isinstance(part, syntax.Alternation) else (part,))]
        return flat[0] if len(flat) == 1 else syntax.Alternation(tuple(flat), start=start)

    def _sequence(self) -> syntax.PatternNode:
        start = self._start(self._at)
        parts: list[syntax.PatternNode] = []
        while (part := self._primary()) is not None:
            part = self._quantified(part)
            parts += part.of if isinstance(part, syntax.Concatenation) else (part,)
        if self._follow("||") or (not parts and (self._word() in ("|", ")", "-", ","))):
            self._fail("an alternative without a row must be written as ()", hint="(A | ())")
        if not parts:
            self._strange()
        return parts[0] if len(parts) == 1 else syntax.Concatenation(tuple(parts), start=start)

    def _primary(self) -> syntax.PatternNode | None:
        """The next element; None if none begins here."""
        start, word, token = self._start(self._at), self._word(), self._token()
        if token is not None and not self._follow("PERMUTE", "(") and self._is_name(token):
            if word in ("AND", "OR", "NOT", "AS"):
                self._strange()
            name, start = self._variable()
            return syntax.Variable(name, start=start)
        if word in ("^", "$"):
            self._at += 1
            return syntax.PartitionStart(start=start) if word == "^" else syntax.PartitionEnd(start=start)
        if self._accept("(", ")"):
            return syntax.EmptyPattern(start=start)
        if self._accept("("):
            inner = self._alternation()
            self._close(")", "a parenthesis")
            return inner
        if self._accept("{", "-"):
            inner = self._alternation()
            if self._token() is not None and not self._follow("-", "}"):
                self._strange()
            self._close("-", "{-")
            self._close("}", "{-")
            return syntax.Exclusion(inner, start=start)
        if self._accept("PERMUTE", "("):
            parts = self._list(self._alternation)
            self._close(")", "PERMUTE (")
            return syntax.Permutation(parts, start=start)
        if self._follow("[", "^"):
            self._at += 2
            name, _ = self._variable()
            if not self._accept("]"):
                self._fail("[^ must be followed by one variable and ]", hint="A [^B]; with OR in the condition of B")
            return syntax.NotNext(name, start=start)
        return None

    def _quantified(self, part: syntax.PatternNode) -> syntax.PatternNode:
        begin, bounds = self._at, self._bounds()
        if bounds is None:
            return part
        if isinstance(part, syntax.NotNext):
            self._fail(f"{part} cannot be repeated or left out: it takes no row", begin)
        least, most, greedy = bounds
        until = self._until(most)
        end = self._at
        if self._bounds() is not None:
            self._fail("one quantifier cannot follow another", end, "put the first into parentheses, as in (A*)+")
        return syntax.Quantified(part, least, most, greedy, until, start=part.start)

    def _until(self, most: int | None) -> str | None:
        """The variable of ``{C}`` after a quantifier, if it follows."""
        token = self._token(self._at + 1)
        if not self._follow("{") or self._follow("{", "-") or token is None or not self._is_name(token):
            return None
        if most is not None:
            self._fail("{C} must follow a loop without an upper limit", hint="A+{C}, A*{C}, A{2,}{C}")
        self._at += 1
        name, _ = self._variable()
        if not self._accept("}"):
            self._fail("{ must be followed by one variable and }", hint="A+{C}; with OR in the condition of C")
        return name

    def _bounds(self) -> tuple[int, int | None, bool] | None:
        """(least, most, greedy) of a quantifier, if one follows."""
        if self._word() not in _QUANTIFIERS:
            return None
        if self._accept("??"):
            return 0, 1, False
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._accept(sign):
                return least, most, not self._accept("?")
        if not self._follow("{") or self._follow("{", "-"):
            return None
        begin = self._at
        self._at += 1
        low, comma = self._number(), self._accept(",")
        high = self._number() if comma else low
        if not self._accept("}") or (low is None and not comma):
            self._fail("a quantifier in braces is {n}, {n,}, {,m} or {n,m}, with whole numbers")
        if high is not None and (high == 0 or high < (low or 0)):
            self._fail("the upper limit of a quantifier must be at least 1, and not below the lower limit", begin)
        return low or 0, high, not self._accept("?")

    def _number(self) -> int | None:
        token = self._token()
        if token is None or token.token_type is not TokenType.NUMBER:
            return None
        if not re.fullmatch("[0-9]+", self._text[token.start : token.end + 1]):
            self._fail("a quantifier in braces is {n}, {n,}, {,m} or {n,m}, with whole numbers")
        if len(token.text) > len(str(MAX_REPETITIONS)) or int(token.text) > MAX_REPETITIONS:
            self._fail(f"a quantifier of more than {MAX_REPETITIONS:,} repetitions")
        self._at += 1
        return int(token.text)

    def _strange(self) -> NoReturn:
        """Fail at a token that does not belong in a pattern."""
        word, token = self._word(), self._token()
        if token is None:
            self._fail("the pattern is incomplete")
        if token.token_type is TokenType.STRING:
            self._name("the name of a variable")
        if word == ",":
            self._fail("the elements of a pattern are written one after the other, without commas", hint="(A B)")
        if word in ("->", "=>", "~>"):
            self._fail("the elements of a pattern are written one after the other, without arrows", hint="(A B)")
        if word == "[":
            self._fail("a row that must not follow is written as [^ and one variable", hint="A [^B], A {- X*? -} [^B]")
        if word in ("AND", "&", "&&"):
            self._fail(f"{word} does not belong in a pattern", hint="PERMUTE(A, B) for any order")
        if word in ("OR", "NOT", "!"):
            hint = "(A | B)" if word == "OR" else "a variable with the negated condition"
            self._fail(f"{word} does not belong in a pattern", hint=hint)
        if word == "AS":
            self._fail("AS does not belong in a pattern", hint="is its parenthesis closed before DEFINE?")
        if word in _QUANTIFIERS:
            self._fail("a quantifier needs something before it", hint="A*, (A B)+")
        self._fail("unexpected text in the pattern")
