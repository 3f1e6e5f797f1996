"""Translates the syntax tree of an expression to its value: the Spark type of each part, and its SQL for DuckDB.

See docs/decisions/0009.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from asterism.errors import ExpressionError, ExpressionSyntaxError, ExpressionTypeError
from asterism.expressions import operators
from asterism.expressions.computed_columns import is_computed, sql_of_column
from asterism.expressions.functions import FUNCTIONS, Function, Lambda, extracted, field_of, item_of, like, rlike
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DAYS,
    DOUBLE,
    FLOAT,
    FLOATS,
    INT,
    MAX_DIGITS,
    MONTHS,
    NTZ,
    SMALLINT,
    SPARK_TYPE,
    STRING,
    TIME,
    TINYINT,
    UNKNOWN,
    duckdb_type,
    is_nested,
    name_of,
    type_of_column,
)
from asterism.expressions.udfs import USER_FUNCTIONS
from asterism.expressions.values import (
    Cost,
    Sql,
    UnsupportedError,
    binary_constant,
    boolean_constant,
    cast,
    limited,
    null,
    number_constant,
    strict,
    string_constant,
)
from asterism.text.printable import quoted_name

MAX_LAMBDAS = 3
DOCUMENTATION = "docs/sql.md lists what is supported"


class ShiftRightUnsigned(exp.BitwiseRightShift):
    """``a >>> n``, which the parser of sqlglot does not know."""


class LambdaVariable(exp.Expression):
    """A parameter of a lambda, in its body."""


COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV",
}  # fmt: skip
_BITWISE: dict[type[exp.Expr], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}
_SHIFTS: dict[type[exp.Expr], str] = {
    exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>", ShiftRightUnsigned: ">>>",
}  # fmt: skip
_TYPES = {
    "BOOLEAN": BOOLEAN, "TINYINT": TINYINT, "SMALLINT": SMALLINT, "INT": INT, "BIGINT": BIGINT, "FLOAT": FLOAT,
    "DOUBLE": DOUBLE, "TEXT": STRING, "DATE": DATE, "TIMESTAMPNTZ": NTZ, "BINARY": BINARY,
}  # fmt: skip
_UNIT_MICROS = {
    "MICROSECOND": 1, "MILLISECOND": 10**3, "SECOND": 10**6, "MINUTE": 60 * 10**6, "HOUR": 3600 * 10**6,
    "DAY": 86_400 * 10**6, "WEEK": 7 * 86_400 * 10**6,
}  # fmt: skip
_UNIT_MONTHS = {"MONTH": 1, "YEAR": 12}


def position_of(node: exp.Expr) -> int | None:
    """The position of the node in the text, if the parser provides it."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts, default=None)


def interval_of(node: exp.Interval) -> tuple[int, pa.DataType]:
    """(length, type) of an interval literal: in microseconds, or in months."""
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal):
        raise UnsupportedError("the length of an interval must be a number")
    if isinstance(unit, exp.IntervalSpan):
        return _interval_of_two_units(node.this.name.strip(), unit.this.name.upper(), unit.expression.name.upper())
    if not isinstance(unit, exp.Var):
        raise UnsupportedError("an interval has one number and one unit", "INTERVAL 90 MINUTES, or a sum of two")
    name = unit.name.upper()
    name = name if name in _UNIT_MICROS or name in _UNIT_MONTHS else name.removesuffix("S")
    length = str(node.this.name).strip()
    if re.fullmatch(r"[+-]?\d{1,18}", length) and name in _UNIT_MONTHS:
        months = int(length) * _UNIT_MONTHS[name]
        limit, kind = 2**31, MONTHS
    elif name in _UNIT_MICROS and re.fullmatch(
        r"[+-]?\d{1,18}" + (r"(\.\d{1,9})?" if name == "SECOND" else ""), length
    ):
        months = int(decimal.Decimal(length) * _UNIT_MICROS[name])
        limit, kind = 2**63, DAYS if name in ("DAY", "WEEK") else TIME
    else:
        raise UnsupportedError(
            f"{length!r} {unit.name} is not an interval", "INTERVAL 90 MINUTES, INTERVAL '1.5' SECOND"
        )
    if abs(months) >= limit:
        raise UnsupportedError(f"an interval of {length} {unit.name} is too long")
    return months, kind


_PARTS = {
    "YEAR": r"\d{1,9}", "MONTH": r"-(?:0?\d|1[01])", "DAY": r"\d{1,9}", "HOUR": r" (?:[01]?\d|2[0-3])",
    "MINUTE": r":[0-5]?\d", "SECOND": r":[0-5]?\d(?:\.\d{1,9})?",
}  # fmt: skip
"""The parts of an interval of several units, with the character before each."""


def _interval_of_two_units(text: str, largest: str, smallest: str) -> tuple[int, pa.DataType]:
    """:func:`interval_of` ``'2 03:04' DAY TO MINUTE``."""
    units = ["YEAR", "MONTH"] if largest == "YEAR" else ["DAY", "HOUR", "MINUTE", "SECOND"]
    units = units[units.index(largest) : units.index(smallest) + 1]
    pattern = "".join(f"({_PARTS[unit] if unit != largest else r'[0-9]{1,9}'})" for unit in units)
    match = re.fullmatch(rf"([+-]?){pattern}", text, re.ASCII)
    if match is None:
        examples = {
            "YEAR": "'1-6' YEAR TO MONTH", "DAY": "'2 03:04' DAY TO MINUTE", "HOUR": "'1:30' HOUR TO MINUTE",
            "MINUTE": "'5:30.5' MINUTE TO SECOND",
        }  # fmt: skip
        hint = f"INTERVAL {examples[largest]}"
        raise UnsupportedError(f"{text!r:.60} {largest} TO {smallest} is not an interval", hint)
    sizes = _UNIT_MONTHS if largest == "YEAR" else _UNIT_MICROS
    parts = zip(units, match.groups()[1:], strict=True)
    length = sum(int(decimal.Decimal(part.lstrip(" :-")) * sizes[unit]) for unit, part in parts)
    kind = MONTHS if largest == "YEAR" else TIME
    if length >= (2**31 if kind == MONTHS else 2**63):
        raise UnsupportedError(f"an interval of {text} {largest} TO {smallest} is too long")
    return -length if match.group(1) == "-" else length, kind


class Translator:
    """Translates resolved expressions over one schema; column number *n* of the table is named ``cn``."""

    def __init__(self, schema: pa.Schema, zone: str, source: str) -> None:
        self.schema = schema
        self.zone = zone
        self.source = source
        """the expression as written by the user, for messages"""
        self.variables: list[tuple[dict[str, Sql], Cost, list[str]]] = []
        """the parameters of the lambdas around a node, from the outermost on, the sizes of their arrays, and the names of
        those that are not available in lambdas inside
        """

    def translate(self, node: exp.Expr) -> Sql:
        """The value of *node*; :class:`~asterism.errors.ExpressionError` if it cannot be computed as in Spark."""
        try:
            return limited(self.visit(node))
        except UnsupportedError as problem:
            raise ExpressionTypeError.at(problem.problem, self.source, position_of(node), problem.hint) from None

    def visit(self, node: exp.Expr) -> Sql:
        """The value of one node, made from those that :meth:`translate` returns for its parts."""
        translated = _TRANSLATIONS.get(type(node))
        if translated is None:
            raise self._syntax(f"{node.key.upper()} is not supported here", node)
        return translated(self, node)

    def _sides(self, node: exp.Expr) -> tuple[Sql, Sql]:
        return self.translate(node.this), self.translate(node.args["expression"])

    def _parts(self, nodes: Iterable[exp.Expr]) -> list[Sql]:
        return [self.translate(node) for node in nodes]

    def _syntax(self, problem: str, node: exp.Expr, hint: str | None = DOCUMENTATION) -> ExpressionError:
        return ExpressionSyntaxError.at(problem, self.source, position_of(node), hint)

    def _column(self, node: exp.Column) -> Sql:
        number = self.schema.names.index(node.name)
        known = type_of_column(self.schema.field(number), self.zone)
        if known is None:
            raise self._not_computed(node)
        size = Cost(growth=1) if known in (STRING, BINARY) or is_nested(known) else Sql("", known).size
        return Sql(f"c{number}", known, size=size, strict=True)

    def _not_computed(self, node: exp.Column) -> UnsupportedError:
        """The column is of a type that expressions do not support."""
        column = self.schema.field(node.name)
        written = (column.metadata or {}).get(SPARK_TYPE)
        computed = is_computed(node.name)
        what = f"{sql_of_column(node.name):.200}" if computed else f"column {node.name!r}"
        if written is None:
            return UnsupportedError(f"{what} is of type {column.type}, which is not supported in SQL")
        kind = written.decode()
        if computed:
            hint = "strings are compared by bytes: lower(...)" if "collate" in kind else "CAST it to another type"
            return UnsupportedError(f"{what} is of type {kind}, which is not supported in SQL", hint)
        quoted = quoted_name(node.name)
        hint = f"compute the needed part in another column first: CAST({quoted} AS ...), {quoted} IS NULL"
        if "collate" in kind:
            hint = f"strings are compared by bytes; select {quoted} COLLATE UTF8_BINARY before, or lower(...) of that"
        return UnsupportedError(f"{what} is of type {kind}, which is not supported in SQL", hint)

    def _literal(self, node: exp.Literal) -> Sql:
        return string_constant(node.this) if node.is_string else self._number(node.this)

    def _variable(self, node: LambdaVariable) -> Sql:
        name = str(node.this.name).lower()
        for depth, (variables, array, hidden) in enumerate(reversed(self.variables)):
            if depth and name in hidden:
                raise UnsupportedError(f"{node.this.name} is not available in a lambda inside of its own")
            if name in variables:
                # In a lambda inside of its own, an element is at most as large as the whole array.
                return variables[name] if not depth else replace(variables[name], size=replace(array, element=0))
        raise self._syntax(f"{node.this.name!r:.60} is a parameter of a lambda that is not available here", node)

    def _lambda(self, node: exp.Lambda) -> Lambda:
        names = [str(part.name).lower() for part in node.expressions]

        def body(values: Sequence[Sql], array: Cost, hidden: int) -> Sql:
            if len(self.variables) >= MAX_LAMBDAS:
                raise UnsupportedError(f"lambdas can be nested at most {MAX_LAMBDAS} times")
            outer = self.variables[-1][1] if self.variables else Cost()
            whole = replace(array, element=0) + outer.times(array.element)
            self.variables.append((dict(zip(names, values, strict=True)), whole, names[:hidden]))
            try:
                return self.translate(node.this)
            finally:
                self.variables.pop()

        first = 10 * len(self.variables)
        return Lambda(len(names), body, lambda count: [f"e{first + number}" for number in range(count)])

    def _interval(self, node: exp.Interval) -> Sql:
        length, data_type = interval_of(node)
        return Sql(f"CAST({length} AS {'INTEGER' if data_type == MONTHS else 'BIGINT'})", data_type, ())

    def _extract(self, node: exp.Extract) -> Sql:
        return extracted(str(node.this.name), self.translate(node.expression), self.zone)

    def _number(self, digits: str) -> Sql:
        """A number literal: an integer of the smallest type from INT on, a decimal, or with an exponent a DOUBLE."""
        if "e" in digits.lower():
            return _floating(digits, DOUBLE)
        value = decimal.Decimal(digits)
        exponent = int(value.as_tuple().exponent)
        size = max(len(value.as_tuple().digits), -exponent)
        if size > MAX_DIGITS:
            raise UnsupportedError(f"a number of more than {MAX_DIGITS:,} digits")
        value = value or abs(value)
        if exponent < 0 or "." in digits:
            return number_constant(value, pa.decimal128(size, -exponent))
        for kind in (INT, BIGINT):
            if -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1):
                return number_constant(value, kind)
        return number_constant(value, pa.decimal128(size, 0))

    def _suffixed(self, node: exp.Cast, digits: str) -> Sql:
        """A number literal with a type suffix, such as 5L."""
        to = self.type_of(node)
        if to in FLOATS:
            return _floating(digits, to)
        number = cast(self._number(digits), to, self.zone)
        if number.raises:
            raise UnsupportedError(f"{digits} is not a {name_of(to)}")
        return number

    def _negative(self, node: exp.Neg) -> Sql:
        """A negative number. In Spark, a minus sign before a number literal belongs to the literal."""
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return self._number("-" + inner.this)
        if _is_suffixed(inner):
            return self._suffixed(inner, "-" + inner.this.this)
        return operators.negative(self.translate(inner), self.zone)

    def _not(self, node: exp.Not) -> Sql:
        inner = node.this
        if isinstance(inner, exp.Is):
            return self._is(inner, negated=True)
        return operators.negation(self.translate(inner))

    def _is(self, node: exp.Is, *, negated: bool) -> Sql:
        if isinstance(node.expression, exp.Null) and isinstance(node.this, exp.Column):
            number = self.schema.names.index(node.this.name)
            if type_of_column(self.schema.field(number), self.zone) is None:
                return operators.is_null(Sql(f"c{number}", UNKNOWN, strict=True), negated=negated)
        value = self.translate(node.this)
        if isinstance(node.expression, exp.Null):
            return operators.is_null(value, negated=negated)
        truth = operators.is_truth(value, bool(node.expression.this))
        return operators.negation(truth) if negated else truth

    def _between(self, node: exp.Between) -> Sql:
        value, low, high = self._parts([node.this, node.args["low"], node.args["high"]])
        return operators.between(value, low, high, self.zone)

    def _like(self, node: exp.Like | exp.ILike | exp.Escape) -> Sql:
        escape = None
        if isinstance(node, exp.Escape):
            escape = self.translate(node.expression)
            node = node.this
        if not isinstance(node, exp.Like | exp.ILike):
            raise self._syntax("ESCAPE is not supported here", node)
        value, pattern = self.translate(node.this), self.translate(node.expression)
        matches = like(self.zone, value, pattern, escape, fold=isinstance(node, exp.ILike))
        return strict("(NOT {0})", BOOLEAN, matches) if node.args.get("negate") else matches

    def _regex(self, node: exp.RegexpLike) -> Sql:
        return rlike(self.zone, self.translate(node.this), self.translate(node.expression))

    def _case(self, node: exp.Case) -> Sql:
        branches = []
        of = None if node.this is None else self.translate(node.this)
        if of is not None:
            limited(replace(of, text=of.text * len(node.args["ifs"])))
        for branch in node.args["ifs"]:
            condition = self.translate(branch.this)
            if of is not None:
                condition = operators.compare("=", of, condition, self.zone)
            branches.append((condition, self.translate(branch.args["true"])))
        default = node.args.get("default")
        return operators.choose(branches, None if default is None else self.translate(default), self.zone)

    def _cast(self, node: exp.Cast) -> Sql:
        if _is_suffixed(node):
            return self._suffixed(node, node.this.this)
        value = self.translate(node.this)
        converted = cast(value, self.type_of(node), self.zone, safe=bool(node.args.get("safe")))
        return replace(converted, constant=None)

    def type_of(self, node: exp.Cast) -> pa.DataType:
        """The type that a CAST names."""
        to = node.to
        name = to.this.name if isinstance(to.this, exp.DataType.Type) else ""
        if name in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"):
            return pa.timestamp("us", self.zone)
        if name == "DECIMAL":
            precision, scale = ([int(part.name) for part in to.expressions] + [10, 0][len(to.expressions) :])[:2]
            if 0 <= scale <= precision <= MAX_DIGITS and precision:
                return pa.decimal128(precision, scale)
        elif name in _TYPES and not to.expressions:
            return _TYPES[name]
        raise UnsupportedError(f"CAST to {to.sql(dialect='spark')} is not supported", DOCUMENTATION)

    def _call(self, node: exp.Anonymous) -> Sql:
        name = str(node.this)
        entry: Function
        if name in USER_FUNCTIONS:
            entry, name = USER_FUNCTIONS[name].entry, USER_FUNCTIONS[name].name
        else:
            entry = FUNCTIONS[name.lower()]
        arguments: list[Sql | Lambda] = []
        for number, part in enumerate(node.expressions):
            if isinstance(part, exp.Lambda):
                arguments.append(self._lambda(part))
            else:
                value = string_constant(part.name) if isinstance(part, exp.Var) else self.translate(part)
                arguments.append(value)
            if number > 1000:
                raise self._syntax(f"{name} has too many arguments", node)
        try:
            return entry(self.zone, arguments)
        except UnsupportedError as problem:
            named = entry.name.upper() in problem.problem.upper()
            raise UnsupportedError(
                problem.problem if named else f"{name.upper()}: {problem.problem}", problem.hint
            ) from None


_LARGEST = {
    DOUBLE: decimal.Decimal(repr(float(np.finfo(np.float64).max))),
    FLOAT: decimal.Decimal(repr(float(np.finfo(np.float32).max))),
}


def _floating(digits: str, data_type: pa.DataType) -> Sql:
    exponent = digits.lower().partition("e")[2]
    if len(exponent) > 5 or len(digits) > 1000 or abs(decimal.Decimal(digits)) > _LARGEST[data_type]:
        raise UnsupportedError(f"{digits:.60} does not fit into a {name_of(data_type)}")
    number = float(digits) if data_type == DOUBLE else None
    return Sql(f"CAST('{digits}' AS {duckdb_type(data_type)})", data_type, (), number=number)


def _is_suffixed(node: exp.Expr) -> bool:
    """Whether it is a number with a type suffix, such as 5L, which the parser reads as a cast."""
    return (
        isinstance(node, exp.Cast)
        and isinstance(node.this, exp.Literal)
        and not node.this.is_string
        and not node.meta.get("called")
    )


def _binary(compute: Callable[[str, Sql, Sql, str], Sql], operator: str) -> _Translation:
    return lambda to, node: compute(operator, *to._sides(node), to.zone)


_Translation = Callable[[Translator, Any], Sql]
_TRANSLATIONS: dict[type[exp.Expr], _Translation] = {
    **{kind: _binary(operators.compare, operator) for kind, operator in COMPARISONS.items()},
    **{kind: _binary(operators.arithmetic, operator) for kind, operator in ARITHMETIC.items()},
    **{kind: _binary(operators.bitwise, operator) for kind, operator in _BITWISE.items()},
    **{kind: _binary(operators.shift_bits, operator) for kind, operator in _SHIFTS.items()},
    exp.Paren: lambda to, node: to.translate(node.this),
    exp.And: lambda to, node: operators.conjunction(to._parts(node.flatten())),
    exp.Or: lambda to, node: operators.disjunction(to._parts(node.flatten())),
    exp.Column: Translator._column,
    exp.Literal: Translator._literal,
    exp.RawString: lambda to, node: string_constant(node.this),
    exp.HexString: lambda to, node: binary_constant(node.this),
    exp.Boolean: lambda to, node: boolean_constant(node.this),
    exp.Null: lambda to, node: null(),
    exp.Neg: Translator._negative,
    exp.Not: Translator._not,
    exp.BitwiseNot: lambda to, node: operators.bitwise_not(to.translate(node.this)),
    exp.NullSafeEQ: lambda to, node: operators.null_safe(*to._sides(node), to.zone, distinct=False),
    exp.NullSafeNEQ: lambda to, node: operators.null_safe(*to._sides(node), to.zone, distinct=True),
    exp.Is: lambda to, node: to._is(node, negated=False),
    exp.In: lambda to, node: operators.is_in(to.translate(node.this), to._parts(node.expressions), to.zone),
    exp.Between: Translator._between,
    exp.Like: Translator._like,
    exp.ILike: Translator._like,
    exp.Escape: Translator._like,
    exp.RegexpLike: Translator._regex,
    exp.DPipe: lambda to, node: FUNCTIONS["concat"](to.zone, list(to._sides(node))),
    exp.Case: Translator._case,
    exp.Cast: Translator._cast,
    exp.TryCast: Translator._cast,
    exp.Interval: Translator._interval,
    exp.Extract: Translator._extract,
    exp.Dot: lambda to, node: field_of(to.translate(node.this), node.expression.name),
    exp.Bracket: lambda to, node: item_of(to.translate(node.this), to.translate(node.expressions[0]), to.zone),
    exp.Anonymous: Translator._call,
    LambdaVariable: Translator._variable,
}
"""How the value of each supported node is made."""
