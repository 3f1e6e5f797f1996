"""Parses an expression with sqlglot, and accepts only what is known to have the same meaning here as in Spark.

Expressions are untrusted input, so :func:`parse` rejects whatever is not listed in this file, and limits the length and depth
of expressions. Each token must be found again in the syntax tree, because the parser silently drops some tokens.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from asterism.errors import ExpressionSyntaxError, UnknownFunctionError, UnsupportedSyntaxError
from asterism.expressions.computed_columns import Names, with_columns
from asterism.expressions.functions import FUNCTIONS, NOT_PURE, UNIT_FIRST
from asterism.expressions.other_languages import call_in_spark, foreign_syntax
from asterism.expressions.routines.user_functions import listed_functions
from asterism.expressions.translation import DOCUMENTATION, LambdaVariable, ShiftRightUnsigned, position_of
from asterism.expressions.udfs import USER_FUNCTIONS

_NAMED_ARGUMENTS = ("struct", "arrays_zip")
"""The functions whose arguments name the fields of their result."""
MAX_TEXT = 20_000  # characters; generous for a person, harmless for the parser
MAX_DEPTH = 50  # nesting; Python's recursion limit is near 1,000 frames and sqlglot takes several per level
MAX_OPERATIONS = 200  # nested operations, as in a + b + c ...; except AND and OR


class Previous(exp.Last):
    """``PREV(x)``, the value of an earlier event of the key."""

    _sql_names: ClassVar[list[str]] = ["PREV"]


AGGREGATES: dict[type[exp.Expr], str] = {
    exp.First: "FIRST",
    exp.Last: "LAST",
    exp.Sum: "SUM",
    exp.Count: "COUNT",
    exp.Avg: "AVG",
    exp.Min: "MIN",
    exp.Max: "MAX",
    Previous: "PREV",
}

_PREDICATES: tuple[type[exp.Expr], ...] = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.In, exp.Between, exp.Like,
    exp.ILike, exp.RegexpLike, exp.Escape,
)  # fmt: skip
_BITWISE = (
    exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift, ShiftRightUnsigned,
)  # fmt: skip
_SUPPORTED: tuple[type[exp.Expr], ...] = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.DPipe,
    exp.BitwiseNot, exp.Literal, exp.RawString, exp.Boolean, exp.Null, exp.Column, exp.Identifier, exp.Star, exp.Interval,
    exp.IntervalSpan, exp.HexString,
    exp.Var, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.Case, exp.If, exp.Extract, exp.Dot, exp.Bracket,
    exp.Anonymous, exp.Lambda, LambdaVariable, *_PREDICATES, *_BITWISE, *AGGREGATES,
)  # fmt: skip
_TYPED = {
    "dpipe": "||", "bitwiseand": "&", "bitwiseor": "|", "bitwisexor": "^", "intdiv": "DIV", "nullsafeeq": "<=>", "neg": "-",
    "eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=", "add": "+", "sub": "-", "mul": "*", "div": "/",
    "mod": "%", "bitwiseleftshift": "<<", "bitwiserightshift": ">>", "shiftrightunsigned": ">>>",
    "attimezone": "AT TIME ZONE", "bitwisenot": "~", "nullsafeneq": "IS DISTINCT FROM", "regexplike": "RLIKE", "window": "OVER",
    "withingroup": "WITHIN GROUP", "alias": "AS",
}  # fmt: skip
"""The keyword as written, if the parser has another name for it."""
_BINARY = frozenset(("this", "expression"))
_AGGREGATED: tuple[type[exp.Expr], ...] = (exp.Sum, exp.Avg, exp.Min, exp.Max)
_PARTS_OF: dict[type[exp.Expr], str] = {
    **dict.fromkeys(_SUPPORTED, "this expression"), **dict.fromkeys(_AGGREGATED, "this"),
    exp.Literal: "this is_string", exp.Identifier: "this quoted", exp.Column: "this table db catalog", exp.Star: "",
    exp.Div: "this expression typed safe", exp.DPipe: "this expression safe", exp.Null: "", exp.Interval: "this unit",
    exp.IntervalSpan: "this expression", exp.HexString: "this",
    exp.Cast: "this to safe", exp.TryCast: "this to safe", exp.DataType: "this expressions", exp.DataTypeParam: "this",
    exp.Case: "this ifs default", exp.If: "this true", exp.Bracket: "this expressions", exp.Anonymous: "this expressions",
    exp.Lambda: "this expressions", LambdaVariable: "this",
    exp.In: "this expressions", exp.Between: "this low high", exp.Like: "this expression negate",
    exp.ILike: "this expression negate", exp.Count: "this big_int", exp.Filter: "this expression", exp.Where: "this",
}  # fmt: skip
_CONSUMED = {kind: frozenset(names.split()) for kind, names in _PARTS_OF.items()}
"""The arguments of a node that are translated. Any other argument is rejected, such as the SYMMETRIC of a BETWEEN."""
_CONSUMED_OF_CALLS = _CONSUMED | {
    exp.Distinct: frozenset(("expressions",)),
    exp.IgnoreNulls: frozenset(("this",)), exp.RespectNulls: frozenset(("this",)),
    exp.Order: frozenset(("this", "expressions")), exp.Ordered: frozenset(("this", "desc", "nulls_first")),
}  # fmt: skip
"""The same, with the arguments of calls of aggregate functions."""
_TYPE = re.compile(
    r"BOOLEAN|TINYINT|BYTE|SMALLINT|SHORT|INT|INTEGER|BIGINT|LONG|FLOAT|REAL|DOUBLE|STRING|BINARY|DATE|TIMESTAMP(_NTZ|_LTZ)?"
    r"|[LSYDF]|(DECIMAL|DEC|NUMERIC)(\(\d{1,3}(,\d{1,3})?\))?"
)
"""The types that a CAST may name, as Spark spells them, and the suffixes of numbers. The parser accepts more types, and drops
the length of a VARCHAR.
"""


_SHIFTS = {"<<": TokenType.DSTAR, ">>": TokenType.COLON_GT, ">>>": TokenType.NCOLON_GT}
"""The operators that move bits, which the tokenizer reads as comparisons, as token types that nothing else uses."""
_ANGLES = (TokenType.LT, TokenType.GT, *_SHIFTS.values())

INTERVAL_SPANS = {
    (largest, smallest)
    for units in (("YEAR", "MONTH"), ("DAY", "HOUR", "MINUTE", "SECOND"))
    for largest, smallest in itertools.combinations(units, 2)
}
"""The pairs of units of an interval."""


class _Tokenizer(Spark.Tokenizer):
    # A doubled quote inside a string is a quote, as in standard SQL and in Spark 4.
    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]
    # An expression can begin with a column that is named like a command: show, set, describe.
    COMMANDS: ClassVar[set[TokenType]] = set()


def _with_unit(name: str, parser: SparkParser) -> exp.Expr:
    """A call whose first argument may be a unit of time, as in ``timestampdiff(HOUR, a, b)``."""
    arguments = parser._parse_csv(parser._parse_assignment)
    first = arguments[0] if len(arguments) == 3 else None
    if isinstance(first, exp.Column) and not first.table and not first.this.args.get("quoted"):
        unit = exp.Var(this=first.name)
        unit.meta.update(first.this.meta)
        arguments[0] = unit
    return exp.Anonymous(this=name, expressions=arguments)


class _Parser(SparkParser):
    """Keeps function calls as written; :data:`asterism.expressions.functions.FUNCTIONS` defines their meaning."""

    BITWISE: ClassVar[dict[Any, Any]] = {
        **SparkParser.BITWISE,
        _SHIFTS["<<"]: exp.BitwiseLeftShift,
        _SHIFTS[">>"]: exp.BitwiseRightShift,
        _SHIFTS[">>>"]: ShiftRightUnsigned,
    }
    FUNCTIONS: ClassVar[dict[str, Any]] = {
        name: SparkParser.FUNCTIONS[name] for name in AGGREGATES.values() if name not in ("FIRST", "LAST", "PREV")
    } | {"FIRST": exp.First.from_arg_list, "LAST": exp.Last.from_arg_list, "PREV": Previous.from_arg_list}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self._parse_called_cast(safe=None),
        "TRY_CAST": lambda self: self._parse_called_cast(safe=True),
        "EXTRACT": SparkParser.FUNCTION_PARSERS["EXTRACT"],
        **{name.upper(): functools.partial(_with_unit, name) for name in UNIT_FIRST},
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    STATEMENT_PARSERS: ClassVar[dict[Any, Any]] = {}

    def _parse_interval(self, *args: Any, **options: Any) -> Any:
        """Read also an interval of two units, as in ``INTERVAL '1:30' HOUR TO MINUTE``."""
        tokens = self._tokens[self._index : self._index + 5]
        if len(tokens) < 5 or tokens[0].token_type is not TokenType.INTERVAL:
            return super()._parse_interval(*args, **options)
        length, largest, to, smallest = tokens[1:]
        units = (largest.text.upper(), smallest.text.upper())
        if length.token_type is not TokenType.STRING or to.text.upper() != "TO" or units not in INTERVAL_SPANS:
            return super()._parse_interval(*args, **options)
        self._advance()
        literal = self._parse_primary()
        self._advance(3)
        span = exp.IntervalSpan(this=exp.Var(this=largest.text), expression=exp.Var(this=smallest.text))
        return exp.Interval(this=literal, unit=span)

    def _parse_paren(self) -> exp.Expr | None:
        """Mark parentheses that are in the text, because the parser adds others."""
        node: exp.Expr | None = super()._parse_paren()
        if isinstance(node, exp.Paren):
            node.meta["typed"] = True
        return node

    def _parse_called_cast(self, safe: bool | None) -> exp.Expr:
        """Mark an explicit CAST. The parser also makes a cast of 5L, which is a number literal in Spark."""
        node: exp.Expr = self._parse_cast(False, safe=safe)
        node.meta["called"] = True
        return node

    def _parse_types(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        """Store the spelling of a type."""
        begin = self._index
        node: exp.Expr | None = super()._parse_types(*arguments, **options)
        if node is not None:
            node.meta["written"] = "".join(token.text for token in self._tokens[begin : self._index]).upper()
        return node

    def _parse_where(self, skip_where_token: bool = False) -> exp.Where | None:
        if skip_where_token and self._prev.token_type is not TokenType.WHERE:
            word = self._tokens[self._index - 2]
            raise ExpressionSyntaxError.at("FILTER must be followed by (WHERE condition)", self.sql, word.start)
        node: exp.Where | None = super()._parse_where(skip_where_token)
        return node


class _CallsParser(_Parser):
    """Keeps calls of aggregate functions as written, too, with FILTER and IGNORE NULLS around them."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    prefixes: Collection[str] = ()
    """words before a call, in lower case; see :func:`parse`"""

    def _parse_unary(self) -> exp.Expr | None:
        """Read the word before a call, as in ``FINAL LAST(a.x)``."""
        word, following = self._curr, self._next
        if not word or not following or word.text.lower() not in self.prefixes or word.token_type in _NAMES[1:]:
            return super()._parse_unary()
        if not _WORD.fullmatch(following.text) or following.token_type in _NAMES[1:]:
            return super()._parse_unary()
        self._advance()
        node: exp.Expr | None = super()._parse_unary()
        inner = node.this if isinstance(node, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)) else node
        inner = inner.this if isinstance(inner, exp.Filter) else inner
        if not isinstance(inner, exp.Anonymous):
            raise ExpressionSyntaxError.at(f"{word.text.upper()} must be followed by a call", self.sql, word.start)
        call = exp.Anonymous(this=word.text, expressions=[node])
        call.meta.update(prefix=True, start=word.start, call_end=self._prev.end + 1)
        return call

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        """Store the end of a call, with its suffixes, in the node."""
        node: exp.Expr | None = super()._parse_window(this, alias)
        if node is not None:
            node.meta["call_end"] = self._prev.end + 1
        return node


class _Generator(SparkGenerator):
    """Writes the nodes that :func:`parse` makes in the SQL of Spark."""

    TRANSFORMS: ClassVar[dict[type[exp.Expr], Any]] = {
        **SparkGenerator.TRANSFORMS,
        LambdaVariable: lambda self, node: self.sql(node, "this"),
        # As functions, because several conditions may become one text: see ``_check_tokens``.
        exp.BitwiseRightShift: lambda self, node: self.func("shiftright", node.this, node.expression),
        ShiftRightUnsigned: lambda self, node: self.func("shiftrightunsigned", node.this, node.expression),
        exp.Anonymous: lambda self, node: self.anonymous_sql(_as_written(node)),
    }


def _as_written(call: exp.Anonymous) -> exp.Anonymous:
    """A call without the words that :func:`_name_fields` has added, and with the name that is in the text."""
    name = str(call.this).lower()
    if name in USER_FUNCTIONS:
        return exp.Anonymous(this=USER_FUNCTIONS[name].name, expressions=[part.copy() for part in call.expressions])
    if name not in _NAMED_ARGUMENTS:
        return call
    parts = [part.copy() for part in call.expressions]
    if name == "struct":
        parts = [exp.Literal.string(part.name) if isinstance(part, exp.Var) else part for part in parts]
        return exp.Anonymous(this="named_struct", expressions=parts)
    return exp.Anonymous(this=call.this, expressions=parts[1::2])


class _Dialect(Spark):
    Tokenizer = _Tokenizer
    Parser = _Parser
    Generator = _Generator


def sql_of(tree: exp.Expr) -> str:
    """The tree of an expression as Spark SQL.

    >>> sql_of(parse("exists(tags, t -> t = 'x') AND n >>> 1 = 2"))
    "EXISTS(tags, t -> t = 'x') AND SHIFTRIGHTUNSIGNED(n, 1) = 2"
    """
    return tree.sql(dialect=_Dialect, comments=False)


class _CallsDialect(_Dialect):
    Parser = _CallsParser


# ---------------------------------------------------------------------------------------------------- parsing

_SETTING = re.compile(r"\$\{\S+?\}")


def tokenize(text: str, what: str = "expression", limit: int = MAX_TEXT) -> list[Token]:
    """The tokens of a text, in which nothing is skipped but spaces and comments.

    :param what: what the text is, for messages
    :param limit: the maximum number of characters
    """
    if len(text) > limit:
        article = "an" if what.startswith("e") else "a"
        problem = f"{article} {what} of {len(text):,} characters is too long (limit {limit:,})"
        raise ExpressionSyntaxError.at(problem, text)
    half = re.search("[\ud800-\udfff]", text)
    if half is not None:
        raise ExpressionSyntaxError.at(f"the {what} contains an unpaired surrogate", text, half.start())
    setting = _SETTING.search(text)
    if setting is not None:
        raise ExpressionSyntaxError.at(
            "Spark replaces ${...} with a setting before it parses the SQL", text, setting.start(), "'$' || '{...}'"
        )
    try:
        tokens = list(_Dialect().tokenize(text))
    except TokenError:
        raise ExpressionSyntaxError.at(
            f"the {what} cannot be parsed", text, hint="is every string, name and comment closed?"
        ) from None
    end = 0
    for token in tokens:
        if token.start > end:
            _check_between(text, end, token.start)
        end = max(end, token.end + 1)
    _check_between(text, end, len(text))
    return tokens


def parse(
    text: str,
    aggregates: Collection[str] = (),
    prefixes: Collection[str] = (),
    unlisted: Collection[str] = (),
    *,
    names: Names | None = None,
) -> exp.Expr:
    """Parse one expression into a syntax tree of supported nodes only.

    :param aggregates: names of functions, in lower case, whose calls are kept as ``Anonymous`` nodes, with DISTINCT in them
        and FILTER and IGNORE NULLS around them; if empty, FIRST, LAST, SUM, COUNT, AVG, MIN and MAX are separate nodes
    :param prefixes: those of *aggregates* that are words before a call: ``FINAL LAST(a.x)`` is an ``Anonymous`` node with the
        call as its only argument, marked by ``prefix`` in its metadata
    :param unlisted: those of *aggregates* that no message recommends
    :param names: the computed columns, which are read in place of their SQL: :meth:`asterism.expressions.names.Scope.parse`

    >>> parse("price > 1 2")
    Traceback (most recent call last):
    ...
    asterism.errors.ExpressionSyntaxError: [EXPRESSION_SYNTAX] unexpected token
      price > 1 2
                ^
    """
    tokens = tokenize(text)
    if names is not None:
        tokens = with_columns(tokens, text, names)
    trees = _trees(tokens, text, aggregates, prefixes)
    if len(trees) != 1 or trees[0] is None or isinstance(trees[0], exp.Block):
        raise ExpressionSyntaxError.at("exactly one expression is expected", text)
    if tokens[-1].token_type is TokenType.SEMICOLON:  # Spark parses a single expression without a terminator
        raise ExpressionSyntaxError.at("unexpected token", text, tokens[-1].start)
    tree: exp.Expr = trees[0]
    _name_fields(tree)
    _bind_variables(tree, text)
    inner = tree.this if isinstance(tree, exp.Alias) else tree
    if re.search(r"\bAS\s*$", text, flags=re.IGNORECASE):
        raise ExpressionSyntaxError.at("AS needs a name", text)
    for node in inner.walk():
        if isinstance(node, exp.Dot) and not isinstance(node.expression, _NAME):
            _check_language(tokens, text)
        _check(node, text, aggregates, unlisted)
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
            _check_cast_of_literal(node, text)
    if _height(inner) > MAX_OPERATIONS:
        raise ExpressionSyntaxError.at("the expression is nested too deeply", text)
    if isinstance(tree, exp.Alias) and not isinstance(tree.args.get("alias"), exp.Identifier):
        raise ExpressionSyntaxError.at("unexpected token", text, position_of(tree.args["alias"]))
    _account(tokens, tree, text)
    _register_calls(tree)
    return tree


def _register_calls(tree: exp.Expr) -> None:
    """Give the calls of functions that are listed the names under which they are registered."""
    listed = listed_functions()
    for node in tree.find_all(exp.Anonymous) if listed else ():
        name = str(node.this).lower()
        if name in listed and "prefix" not in node.meta:
            node.set("this", listed[name].registered)


def _trees(
    tokens: list[Token], text: str, aggregates: Collection[str], prefixes: Collection[str]
) -> list[exp.Expr | None]:
    """What the parser makes of *tokens*."""
    _name_keywords(tokens)
    tokens = _with_shifts(tokens, text)
    dialect = _CallsDialect() if aggregates else _Dialect()
    parser = dialect.parser()
    if prefixes:
        parser.prefixes = prefixes  # type: ignore[attr-defined]  # a _CallsParser
    try:
        _check_tokens(tokens, text)
        return parser.parse(tokens, text)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        problem = str(first.get("description") or "the expression cannot be parsed").partition(" but got <Token")[0]
        # The parser reports where the token ends. What it expects is missing there.
        place = first.get("line"), first.get("col")
        token = next((token for token in tokens if (token.line, token.col) == place), None)
        position = None if token is None else token.end if problem.startswith("Expecting") else token.start
        if problem.startswith("Required keyword"):
            problem, position = "the expression is incomplete", None
        elif problem.startswith("Invalid expression"):
            problem = "unexpected token"
        _check_language(tokens, text)
        raise ExpressionSyntaxError.at(problem[0].lower() + problem[1:].rstrip("."), text, position) from None
    except RecursionError:
        raise ExpressionSyntaxError.at("the expression is nested too deeply", text) from None
    except _PARSER_BUGS as error:
        raise ExpressionSyntaxError.at(f"the expression cannot be parsed ({type(error).__name__})", text) from None


def _name_fields(tree: exp.Expr) -> None:
    """Write a word with the name of the field before each argument of ``struct(a, b AS c)``: a, c. Also for arrays_zip."""
    for node in list(tree.find_all(exp.Anonymous)):
        function = str(node.this).lower()
        if function not in _NAMED_ARGUMENTS:
            continue
        parts: list[exp.Expr] = []
        for number, part in enumerate(node.expressions):
            name: exp.Expr | None = None
            if (
                isinstance(part, exp.Alias)
                and isinstance(part.args.get("alias"), exp.Identifier)
                and function == "struct"
            ):
                part, name = part.this, part.args["alias"]
            elif isinstance(part, exp.Column) and isinstance(part.this, exp.Identifier):
                name = part.this
            elif isinstance(part, exp.Identifier):
                name = part
            elif isinstance(part, exp.Dot) and isinstance(part.expression, exp.Identifier):
                name = part.expression
            unnamed = f"col{number + 1}" if function == "struct" else str(number)
            word = exp.Var(this=unnamed if name is None else name.name)
            word.meta.update({} if name is None else name.meta)
            parts += [word, part]
        node.set("expressions", parts)


def _bind_variables(tree: exp.Expr, text: str) -> None:
    """Make a :class:`LambdaVariable` of each name in the body of a lambda that is one of its parameters. As in Spark, case does
    not matter, and a parameter hides a column.
    """
    for function in list(tree.find_all(exp.Lambda, bfs=False)):
        names = [part.name.lower() for part in function.expressions]
        if len(names) > len(set(names)) or not all(isinstance(part, exp.Identifier) for part in function.expressions):
            raise ExpressionSyntaxError.at(
                "the parameters of a lambda must be different names", text, position_of(function)
            )
        for node in list(function.this.walk()):
            column = isinstance(node, exp.Column)
            first = node.parts[0] if column else node
            bare = column or (isinstance(node, exp.Identifier) and not _is_part_of_name(node))
            if not bare or not isinstance(first, exp.Identifier) or first.name.lower() not in names:
                continue
            bound: exp.Expr = LambdaVariable(this=first.copy())
            for part in node.parts[1:] if column else ():
                bound = exp.Dot(this=bound, expression=part.copy())
            node.replace(bound)


def _is_part_of_name(node: exp.Expr) -> bool:
    """Whether an identifier is that of a column, a field, a variable or a parameter."""
    return isinstance(node.parent, exp.Column | LambdaVariable | exp.Alias) or (
        node.arg_key in ("expressions", "expression") and isinstance(node.parent, exp.Dot | exp.Lambda)
    )


def _check_cast_of_literal(node: exp.Cast, text: str) -> None:
    """Tell 5::BIGINT and DATE '2026-01-01', which become casts, from 5L, which is a number."""
    end = node.this.meta.get("end")
    if end is None:
        raise UnsupportedSyntaxError.at("the suffix BD is not supported here", text, hint="CAST(... AS DECIMAL(p,s))")
    if text[end].isalpha():
        return
    typed = node.this.is_string and "called" not in node.meta and not _CASTS.match(text, end + 1)
    if typed and not str(node.to.meta.get("written")).startswith(("DATE", "TIMESTAMP")):
        raise UnsupportedSyntaxError.at(
            "only DATE and TIMESTAMP are supported before a string",
            text,
            node.this.meta.get("start"),
            "CAST('...' AS type)",
        )
    node.meta["called"] = True


def _name_keywords(tokens: Sequence[Token]) -> None:
    """Make names of the keywords before a dot, as in ``DROP.price``: all of Spark's keywords are names there."""
    for keyword, dot, following in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if dot.token_type is not TokenType.DOT or following.token_type in _NAMES[2:]:
            continue
        if keyword.token_type not in _NAMES and re.fullmatch("[A-Za-z_]+", keyword.text):
            keyword.token_type = TokenType.VAR


def _with_shifts(tokens: Sequence[Token], text: str) -> list[Token]:
    """The tokens, with one for each operator that moves bits."""
    joined: list[Token] = []
    for token in tokens:
        before = joined[-1] if joined else None
        if (
            before is not None
            and token.token_type in _ANGLES
            and before.token_type in _ANGLES
            and before.text[0] == token.text
        ):
            if before.end + 1 != token.start or before.text + token.text not in _SHIFTS:
                raise ExpressionSyntaxError.at("unexpected token", text, token.start)
            written = before.text + token.text
            joined[-1] = Token(_SHIFTS[written], written, before.line, before.col, before.start, token.end)
        else:
            joined.append(token)
    return joined


_TYPES_WITH_PARTS = ("ARRAY", "MAP", "STRUCT")
_CASTS = re.compile(r"\s*::")
_PARSER_BUGS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""The exceptions that sqlglot raises for some invalid SQL."""


def _check_tokens(tokens: Sequence[Token], text: str) -> None:
    """Reject what would exceed the recursion limit of the parser, and what the parser accepts although Spark does not."""
    depth = cases = run = opened = 0
    before = None
    for number, token in enumerate(tokens):
        kind = token.token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        cases += (kind is TokenType.CASE) - (kind is TokenType.END)
        run = run + 1 if kind in _PREFIXES else 0
        if max(depth, cases, run) > MAX_DEPTH:
            raise ExpressionSyntaxError.at(
                f"the expression is nested too deeply (limit {MAX_DEPTH:,} levels)", text, token.start
            )
        # Spark's tokenizer reads no >> after the word ARRAY, MAP or STRUCT, until a > ends the type that it expects.
        opened = max(
            opened + (token.text.upper() in _TYPES_WITH_PARTS and kind not in _NAMES[1:]) - (token.text == ">"), 0
        )
        if opened and token.text in (">>", ">>>"):
            hint = "shiftright(a, n)" if token.text == ">>" else "shiftrightunsigned(a, n)"
            raise UnsupportedSyntaxError.at(
                f"{token.text} is not supported after ARRAY, MAP or STRUCT", text, token.start, hint
            )
        if kind is TokenType.L_BRACE:
            raise ExpressionSyntaxError.at("unexpected token", text, token.start)
        if kind is TokenType.HEX_STRING and text[token.start] == "0":
            raise UnsupportedSyntaxError.at(
                "hexadecimal numbers are not supported", text, token.start, "X'1F' is BINARY"
            )
        if (
            before in _ARROWS and kind in _NAMES[1:] and not _begins_body(tokens, number)
        ):  # the parser reads it as a JSON path, and logs errors in it
            raise UnsupportedSyntaxError.at("-> is not supported here", text, token.start, DOCUMENTATION)
        before = kind


def _begins_body(tokens: Sequence[Token], at: int) -> bool:
    """Whether the arrow before a token is that of a lambda: ``f(x -> 'a')`` or ``f((x, y) -> 'a')``."""
    at -= 2
    if tokens[at + 1].token_type is not TokenType.ARROW or at < 1:
        return False
    if tokens[at].token_type is TokenType.R_PAREN:
        while at and tokens[at].token_type is not TokenType.L_PAREN:
            at -= 1
    return tokens[at - 1].token_type in (TokenType.L_PAREN, TokenType.COMMA)


def _check_between(text: str, begin: int, end: int) -> None:
    """Check that the text skipped by the tokenizer is also skipped by Spark."""
    if not _BETWEEN.fullmatch(text, begin, end):
        match = re.compile(r"/\*\+|\{[#%]|/\*|--|[^ \t\r\n]").search(text, begin, end)
        at = match.start() if match is not None else begin
        what = (
            "a hint" if text.startswith("/*+", at) else "this kind of comment" if text[at] in "/-{" else f"{text[at]!r}"
        )
        raise UnsupportedSyntaxError.at(f"{what} is not supported here", text, at)


_BETWEEN = re.compile(r"(?:[ \t\r\n]|--[^\n]*+(?<!\\)(?:\n|\Z)|/\*(?!\+)(?:(?!/\*|\*/).)*+\*/)*+", re.DOTALL)
"""Spaces and comments, except line comments that end with a backslash and nested comments, which the parser reads
differently.
"""
_ARROWS = (TokenType.ARROW, TokenType.DARROW, TokenType.HASH_ARROW, TokenType.DHASH_ARROW)
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_PREFIXES = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.INTERVAL)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.RAW_STRING)


def _check_language(tokens: Sequence[Token], text: str) -> None:
    """Fail if a text that cannot be parsed is Python."""
    foreign = foreign_syntax(tokens)
    if foreign is not None:
        raise ExpressionSyntaxError.at(foreign.problem, text, foreign.position, foreign.hint) from None


def _account(tokens: Sequence[Token], tree: exp.Expr, text: str) -> None:
    """Check that each name and each literal of the text is in the tree, because the parser silently drops some tokens."""
    there: Counter[str] = Counter()
    commas = tests = 0
    for node in tree.walk():
        commas += max(len(node.expressions) - 1, 0)
        if isinstance(node, exp.First | exp.Last):
            commas += node.args.get("expression") is not None
        tests += isinstance(node, exp.Is)
        there.update(_words(node))
    for number, token in enumerate(tokens):
        kind = token.token_type
        commas -= kind is TokenType.COMMA
        tests -= kind is TokenType.IS
        if kind not in _NAMES:
            continue
        word = token.text
        if kind is TokenType.NUMBER:
            dot = (
                number
                and tokens[number - 1].token_type is TokenType.DOT
                and tokens[number - 1].start == token.start - 1
            )
            word = "0." + word if dot else _digits(word)
        word = word.lower() if kind is TokenType.VAR else word
        if not there[word]:
            raise UnsupportedSyntaxError.at(
                f"{token.text!r:.60} is not supported here", text, token.start, DOCUMENTATION
            )
        there[word] -= 1
    if commas < 0:
        raise ExpressionSyntaxError.at("unexpected comma", text)
    if tests > 0:
        raise ExpressionSyntaxError.at("to test for NULL, use IS NULL or IS NOT NULL", text)


def _words(node: exp.Expr) -> Iterator[str]:
    """The tokens that a node represents; names also in lower case."""
    match node:
        case exp.Identifier() | exp.Anonymous() | exp.Var():
            name = str(node.this)
            yield name
            if name != name.lower():
                yield name.lower()
        case exp.Literal() if isinstance(node.parent, exp.Interval):
            unit = node.parent.args.get("unit")
            yield from (str(node.this), str(node.this).lstrip("-+"), str(node.meta.get("typed", "")))
            if isinstance(unit, exp.IntervalSpan):
                yield "to"
            if isinstance(unit, exp.Var):
                yield f"{node.this} {unit.name}"
                yield f"{node.this} {unit.name}".lower()
        case exp.Literal():
            yield str(node.this) if node.is_string else _digits(str(node.this))
        case exp.RawString():
            yield str(node.this)
        case exp.Cast():
            yield from ("cast", "try_cast")
            yield from _WORD.findall(str(node.to.meta.get("written", "")).lower())
        case exp.Extract():
            yield "extract"
        case exp.Ordered():
            yield from ("nulls", "first", "last")
        case exp.IgnoreNulls() | exp.RespectNulls():
            yield from ("ignore" if isinstance(node, exp.IgnoreNulls) else "respect", "nulls")
        case _ if type(node) in AGGREGATES:
            yield AGGREGATES[type(node)].lower()


_WORD = re.compile(r"\w+")


def _digits(number: str) -> str:
    return "0" + number if number.startswith(".") else number


def _check(node: exp.Expr, text: str, aggregates: Collection[str], unlisted: Collection[str] = ()) -> None:
    """Reject what is not known to have the same meaning here as in Spark."""
    _check_clauses(node, text, aggregates)
    if isinstance(node, exp.Anonymous):
        _check_call(node, text, aggregates, unlisted)
    _check_arguments(node, text, _CONSUMED_OF_CALLS if aggregates else _CONSUMED)
    _check_form(node, text)
    _check_precedence(node, text)


def _check_clauses(node: exp.Expr, text: str, aggregates: Collection[str]) -> None:
    """Reject subqueries, and what may follow or precede the arguments of a call."""
    if isinstance(node, exp.Query | exp.Subquery) or (isinstance(node, exp.In) and node.args.get("query") is not None):
        raise subquery(text, text.upper().find("SELECT"))
    if isinstance(node, exp.WithinGroup):
        hint = "array_agg(name ORDER BY price DESC), percentile(price, 0.5)"
        raise UnsupportedSyntaxError.at("WITHIN GROUP is not supported", text, _place(node, "WITHIN", text), hint)
    if isinstance(node, exp.Window):
        raise window_function(text, _place(node, "OVER", text))
    if isinstance(node, exp.Distinct) and not aggregates:
        hint = (
            "measures support it, and so do the conditions of MATCH_RECOGNIZE: DEFINE B AS COUNT(DISTINCT A.user) > 2"
        )
        raise UnsupportedSyntaxError.at("DISTINCT is not supported here", text, _place(node, "DISTINCT", text), hint)


def _check_call(node: exp.Anonymous, text: str, aggregates: Collection[str], unlisted: Collection[str]) -> None:
    name, arguments = str(node.this), node.expressions
    known = name.lower() in FUNCTIONS or name.lower() in listed_functions()
    if node.name.lower() not in aggregates and not known:
        raise _unknown_function(node, text, [name for name in aggregates if name not in unlisted])
    lambdas = FUNCTIONS[name.lower()].lambdas if name.lower() in FUNCTIONS else ()
    for number, part in enumerate(arguments):
        if isinstance(part, exp.Lambda) != (number in lambdas):
            usage = FUNCTIONS[name.lower()].usage if name.lower() in FUNCTIONS else None
            problem = f"argument {number + 1} of {name} must be {'a' if number in lambdas else 'no'} lambda"
            raise ExpressionSyntaxError.at(problem, text, position_of(part), usage)
    if name.lower() in UNIT_FIRST and len(arguments) == 3:
        unit = arguments[0]
        if isinstance(unit, exp.Literal) and unit.is_string:
            problem = f"the unit of {name} must be a word without quotes"
            raise ExpressionSyntaxError.at(problem, text, position_of(unit), f"{name}({unit.name}, ..., ...)")


def _check_arguments(node: exp.Expr, text: str, supported: Mapping[type[exp.Expr], Collection[str]]) -> None:
    """Reject nodes and arguments of nodes that are not *supported*."""
    # Given a FORMAT, the parser replaces some casts by other nodes.
    if "called" in node.meta and node.args.get("format") is not None:
        raise UnsupportedSyntaxError.at(
            "FORMAT is not supported here", text, _place(node, "FORMAT", text), DOCUMENTATION
        )
    consumed = supported.get(type(node))
    others = [name for name, value in node.args.items() if value and name not in (consumed or ())]
    # The parser's IntervalSpan is a DataType, too.
    if isinstance(node, exp.IntervalSpan) and isinstance(node.parent, exp.Interval) and not others:
        span = tuple(str(node.args[name].name).upper() for name in ("this", "expression"))
        if node.parent.this.is_string and span in INTERVAL_SPANS:
            return
    if isinstance(node, exp.DataType):
        written = str(node.meta.get("written", ""))
        if others or not _TYPE.fullmatch(written):
            hint = "CAST(... AS STRING)" if re.match("(VAR)?CHAR|TEXT", written) else DOCUMENTATION
            problem = f"the type {written or node.sql()!s:.60} is not supported here"
            raise UnsupportedSyntaxError.at(problem, text, None, hint)
        return
    if consumed is None or others:
        word = _TYPED.get(node.key, node.key.upper())
        if consumed is not None:
            word = " ".join([word, *(name.upper().rstrip("_") for name in others)])
        hint = "array(1, 2)" if isinstance(node, exp.Array) else DOCUMENTATION
        raise UnsupportedSyntaxError.at(f"{word} is not supported here", text, _place(node, word, text), hint)


def _check_form(node: exp.Expr, text: str) -> None:
    """Reject parts that the parser accepts, and Spark does not."""
    if isinstance(node, exp.Is) and not isinstance(node.expression, exp.Boolean | exp.Null):
        raise ExpressionSyntaxError.at(
            "IS must be followed by NULL, TRUE, FALSE or UNKNOWN",
            text,
            position_of(node.expression),
            "IS NULL" if node.expression.name == "None" else None,
        )
    for name, kinds in _PARTS.get(type(node), {}).items():
        part = node.args.get(name)
        if part is not None and not isinstance(part, kinds):
            raise ExpressionSyntaxError.at(
                "unexpected token", text, position_of(part if isinstance(part, exp.Expr) else node)
            )
    if isinstance(node, exp.In) and not node.expressions:
        raise ExpressionSyntaxError.at("IN needs a list", text, position_of(node))
    number = isinstance(node, exp.Literal) and not node.is_string and not isinstance(node.parent, exp.Interval)
    if number and not _NUMBER.fullmatch(str(node.this)):
        raise ExpressionSyntaxError.at(f"{str(node.this)!r:.60} is not a number", text, position_of(node))
    if isinstance(node, exp.Bracket) and len(node.expressions) != 1:
        raise ExpressionSyntaxError.at("[ ] takes one index", text, position_of(node))


def _check_precedence(node: exp.Expr, text: str) -> None:
    """Reject operators next to each other if the parser and Spark read them differently."""
    for part in _operands(node):
        if (isinstance(part, _LOOSER.get(type(node), ())) and type(part) is not type(node)) or (
            isinstance(node, _PREDICATES) and isinstance(part, (*_PREDICATES, exp.Not, exp.And, exp.Or))
        ):
            word, inner = (_TYPED.get(n.key, n.key.upper()) for n in (node, part))
            raise ExpressionSyntaxError.at(
                f"{inner} next to {word} needs parentheses",
                text,
                position_of(part),
                "their precedence differs between SQL dialects",
            )


def _unknown_function(node: exp.Anonymous, text: str, aggregates: Collection[str]) -> ExpressionSyntaxError:
    name, above = str(node.this), node.find_ancestor(exp.Anonymous)
    if name.lower() in NOT_PURE:
        return not_pure(name, text, position_of(node))
    if above is not None and above.name.lower() in aggregates:  # aggregate functions cannot be nested
        aggregates = ()
    hint = f"docs/sql.md lists all functions; aggregates: {', '.join(aggregates)}" if aggregates else DOCUMENTATION
    listed = listed_functions()
    close = difflib.get_close_matches(name.lower(), [*aggregates, *FUNCTIONS, *listed], n=1, cutoff=0.8)
    in_spark = None if close else call_in_spark(node)
    if close or in_spark:
        hint = f"did you mean {close[0] if close else in_spark}?"
    elif listed.hint:
        hint = f"{hint}; {listed.hint}"
    return UnknownFunctionError.at(f"unknown function {name}", text, position_of(node), hint)


_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NAME = (exp.Identifier, exp.Star)
_PARTS: dict[type[exp.Expr], dict[str, Any]] = {
    exp.Column: dict.fromkeys(("this", "table", "db", "catalog"), _NAME),
    exp.Dot: {"expression": _NAME},
    exp.Extract: {"this": exp.Var},
}
"""The allowed types of the arguments of a node: the parser also accepts a number or a string as a name."""
_LOOSER: dict[type[exp.Expr], tuple[type[exp.Expr], ...]] = dict.fromkeys(_BITWISE, (*_BITWISE, exp.DPipe)) | {
    exp.DPipe: (*_BITWISE, exp.Add, exp.Sub, *_PREDICATES, exp.Not)
}
"""Operators whose precedence differs between the parser and Spark."""


def _place(node: exp.Expr, word: str, text: str) -> int | None:
    """The position of *word* if it occurs exactly once; otherwise that of the node."""
    return text.upper().find(word) if text.upper().count(word) == 1 else position_of(node)


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """The left and right operands of an operator."""
    if isinstance(node, exp.Escape):
        return
    for name in ("this", "expression", "low", "high"):
        part = node.args.get(name)
        while isinstance(part, exp.Paren) and "typed" not in part.meta:
            part = part.this
        if isinstance(part, exp.Expr):
            yield part


def not_pure(name: str, text: str, position: int | None) -> ExpressionSyntaxError:
    return UnsupportedSyntaxError.at(
        f"{name} is not supported: its result does not depend only on the events", text, position
    )


def subquery(text: str, position: int | None) -> ExpressionSyntaxError:
    hint = "compute it before, as a column: SELECT *, (SELECT ...) AS largest FROM events"
    return UnsupportedSyntaxError.at("subqueries are not supported", text, position, hint)


def window_function(text: str, position: int | None) -> ExpressionSyntaxError:
    hint = "compute it before, as a column: SELECT *, row_number() OVER (...) AS number FROM events"
    return UnsupportedSyntaxError.at("window functions are not supported", text, position, hint)


def _height(tree: exp.Expr) -> int:
    """The depth of nested operations; a chain of ANDs, or of ORs, counts as one."""
    deepest, stack = 0, [(tree, 0)]
    while stack:
        node, height = stack.pop()
        deepest = max(deepest, height)
        for part in node.iter_expressions():
            same = isinstance(node, exp.And | exp.Or) and type(part) is type(node)
            stack.append((part, height + (not same)))
    return deepest


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The top-level conjuncts."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return [part for side in node.flatten() for part in conjuncts(side)]
    return [node]
