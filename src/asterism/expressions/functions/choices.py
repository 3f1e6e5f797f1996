"""Functions that choose a value, or deal with NULL."""

from __future__ import annotations

from asterism.expressions.functions.table import function, number, string
from asterism.expressions.operators import choose, compare, is_null, null_safe
from asterism.expressions.types import BOOLEAN, DOUBLE, FLOAT, FLOATS, NULL, is_nested, name_of
from asterism.expressions.values import Sql, UnsupportedError, combined, made_by, null, strict, string_constant, unify


@function("Choices and NULL", "if(condition, a, b)", note="the side that is not chosen cannot fail")
def _if(zone: str, condition: Sql, a: Sql, b: Sql) -> Sql:
    return choose([(condition, a)], b, zone, "IF")


@function(
    "Choices and NULL",
    "coalesce(a, ...)",
    note="what comes after the first that is not NULL cannot fail",
)
def _coalesce(zone: str, first: Sql, *others: Sql) -> Sql:
    values = unify([first, *others], zone, "COALESCE")
    joined = ", ".join(value.text for value in values)
    nulls = tuple(text for value in values for text in value.nullable_operands) if len(values) == 1 else None
    return made_by("COALESCE", combined(f"COALESCE({joined})", values[0].type, values, nulls), *values)


@function("Choices and NULL", "ifnull(a, b)", "nvl", note="as coalesce(a, b)")
def _ifnull(zone: str, a: Sql, b: Sql) -> Sql:
    return _coalesce(zone, a, b)


@function("Choices and NULL", "nullif(a, b)", note="NULL where a = b, otherwise a")
def _nullif(zone: str, a: Sql, b: Sql) -> Sql:
    return choose([(compare("=", a, b, zone), null(a.type) if not is_nested(a.type) else null())], a, zone)


@function("Choices and NULL", "nvl2(a, b, c)", note="b where a is not NULL, otherwise c")
def _nvl2(zone: str, a: Sql, b: Sql, c: Sql) -> Sql:
    return choose([(is_null(a, negated=True), b)], c, zone)


@function("Choices and NULL", "isnull(a)")
def _isnull(zone: str, a: Sql) -> Sql:
    return is_null(a, negated=False)


@function("Choices and NULL", "isnotnull(a)")
def _isnotnull(zone: str, a: Sql) -> Sql:
    return is_null(a, negated=True)


@function("Choices and NULL", "equal_null(a, b)", note="as a <=> b")
def _equal_null(zone: str, a: Sql, b: Sql) -> Sql:
    return null_safe(a, b, zone, distinct=False)


@function("Choices and NULL", "greatest(a, b, ...)", note="of those that are not NULL; NaN is the largest number")
def _greatest(zone: str, first: Sql, second: Sql, *others: Sql) -> Sql:
    return _extreme("greatest", [first, second, *others], zone)


@function("Choices and NULL", "least(a, b, ...)", note="likewise")
def _least(zone: str, first: Sql, second: Sql, *others: Sql) -> Sql:
    return _extreme("least", [first, second, *others], zone)


def _extreme(name: str, values: list[Sql], zone: str) -> Sql:
    if any(is_nested(value.type) for value in values):
        raise UnsupportedError(f"{name} does not support arrays, maps and structs")
    values = unify(values, zone, name, texts=False)
    joined = ", ".join(value.text for value in values)
    return made_by(name.upper(), combined(f"{name}({joined})", values[0].type, values), *values)


@function("Choices and NULL", "isnan(x)", note="FALSE for NULL")
def _isnan(zone: str, x: Sql) -> Sql:
    x = number(x, zone, x.type if x.type in FLOATS else DOUBLE)
    return combined(f"COALESCE(isnan({x.text}), FALSE)", BOOLEAN, [x], ())


@function("Choices and NULL", "nanvl(x, y)", note="y where x is NaN, otherwise x")
def _nanvl(zone: str, x: Sql, y: Sql) -> Sql:
    kind = FLOAT if x.type == y.type == FLOAT else DOUBLE
    x, y = number(x, zone, kind), number(y, zone, kind)
    return choose([(strict("isnan({0})", BOOLEAN, x), y)], x, zone)


@function(
    "Choices and NULL", "raise_error(text)", strict=False, note="fails with this message; its type is that of NULL"
)
def _raise_error(zone: str, message: Sql) -> Sql:
    return strict("error(COALESCE({0}, 'null'))", NULL, string(message, zone), raises=True, nulls=True)


@function(
    "Choices and NULL",
    "assert_true(condition[, text])",
    strict=False,
    note="NULL, or fails with the message where the condition is FALSE or NULL",
)
def _assert_true(zone: str, condition: Sql, message: Sql | None = None) -> Sql:
    if condition.type not in (BOOLEAN, NULL):
        raise UnsupportedError(f"a BOOLEAN is needed, not {name_of(condition.type)}")
    message = string_constant("the condition is not true") if message is None else string(message, zone)
    return choose([(condition, null())], _raise_error(zone, message), zone, "IF")
