"""Operators: comparison, logic, arithmetic on numbers and on times.

Each takes values and returns a value, or raises :class:`~asterism.expressions.values.UnsupportedError`.

See docs/decisions/0025.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from asterism.columns.time import DAY
from asterism.expressions.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DAYS,
    DOUBLE,
    FLOATS,
    INT,
    INTEGERS,
    INTERVALS,
    MAX_DIGITS,
    MONTHS,
    NTZ,
    NULL,
    STRING,
    TIME,
    TINYINT,
    bounded,
    common_type,
    duckdb_type,
    is_decimal,
    is_instant,
    is_nested,
    is_numeric,
    is_temporal,
    name_of,
)
from asterism.expressions.values import (
    Sql,
    UnsupportedError,
    cast,
    combined,
    error,
    exact_decimal,
    instant_near,
    is_fixed,
    limited,
    local_time,
    made_by,
    micros_of,
    null,
    strict,
    unify,
)

OPERATORS: dict[str, str] = {
    "a = b; a == b": "NaN is equal to itself, as everywhere in Spark",
    "a <> b; a != b": "",
    "a < b; a <= b; a > b; a >= b": "texts by the bytes of UTF-8; NaN is larger than any number; FALSE is less than TRUE",
    "a <=> b": "equal or both NULL",
    "a IS DISTINCT FROM b; a IS NOT DISTINCT FROM b": "",
    "a BETWEEN b AND c; a NOT BETWEEN b AND c": "",
    "a IN (b, ...); a NOT IN (b, ...)": "NULL where it is not in a list that holds a NULL",
    "a IS NULL; a IS NOT NULL": "",
    "a IS TRUE; a IS FALSE; a IS UNKNOWN": "also with NOT",
    "a AND b; a OR b; NOT a; ! a": "what the left side decides alone is decided by it: `x <> 0 AND 1 / x > 2` does not fail",
    "a LIKE 'pattern' [ESCAPE 'c']; a ILIKE 'pattern'": "`%` is any text, `_` one character; the pattern must be a literal",
    "a RLIKE 'pattern'; a REGEXP 'pattern'": "see below; the pattern must be a literal",
    "CASE WHEN a THEN b ... [ELSE c] END": "branches that are not chosen cannot fail",
    "CASE a WHEN b THEN c ... [ELSE d] END": "",
    "a + b; a - b; a * b; - a": "fail where the result does not fit; also times and intervals, see below",
    "a / b": "fails where b is 0; integers are divided as DOUBLE",
    "a % b": "has the sign of a; fails where b is 0",
    "a DIV b": "the whole part of the quotient, a BIGINT; integers",
    "a & b; a | b; a ^ b; ~ a": "integers; mixed ones need parentheses",
    "a << n; a >> n; a >>> n": "the bits of an INT or BIGINT moved by n; next to other operators on bits with parentheses",
    "a || b": "as concat",
    "a.b": "a field of a STRUCT",
    "a[i]": "an element of an ARRAY, from 0, fails outside; the value of a key of a MAP, NULL if it has none",
    "CAST(a AS type); a :: type": "see below",
    "TRY_CAST(a AS type)": "NULL where CAST fails",
    "EXTRACT(field FROM a)": "YEAR, YEAROFWEEK, QUARTER, MONTH, WEEK, DAY, DAYOFWEEK, DAYOFWEEK_ISO, DOY, HOUR, "
    "MINUTE, SECOND with its fraction, and Spark's synonyms; not of intervals",
}
"""The operators with notes, for the documentation."""


# ---------------------------------------------------------------------------------------------------- comparison


def compare(operator: str, a: Sql, b: Sql, zone: str) -> Sql:
    a, b = _comparable(operator, [a, b], zone)
    return made_by(operator, strict(f"({{0}} {operator} {{1}})", BOOLEAN, a, b), a, b)


def _comparable(operator: str, values: Sequence[Sql], zone: str) -> list[Sql]:
    for value in values:
        if is_nested(value.type):
            raise UnsupportedError(
                f"{operator} does not support {name_of(value.type)}",
                "compare its elements or fields, or compare it before, as a column: SELECT *, a = b AS equal FROM events",
            )
    return unify(values, zone, operator)


def null_safe(a: Sql, b: Sql, zone: str, *, distinct: bool) -> Sql:
    a, b = _comparable("<=>", [a, b], zone)
    name = "IS DISTINCT FROM" if distinct else "IS NOT DISTINCT FROM"
    return made_by(name, combined(f"({a.text} {name} {b.text})", BOOLEAN, [a, b], ()), a, b)


def is_in(value: Sql, choices: Sequence[Sql], zone: str) -> Sql:
    value, *choices = _comparable("IN", [value, *choices], zone)
    if any(choice.raises for choice in choices):
        # Spark stops at the first equal item.
        comparison = disjunction([compare("=", value, choice, zone) for choice in choices])
    else:
        text = f"({value.text} IN ({', '.join(choice.text for choice in choices)}))"
        comparison = combined(text, BOOLEAN, [value, *choices])
    return made_by("IN", comparison, value, *choices)


def between(value: Sql, low: Sql, high: Sql, zone: str) -> Sql:
    tests = [compare(">=", value, low, zone), compare("<=", value, high, zone)]
    return made_by("BETWEEN", conjunction(tests), *tests)


def is_null(value: Sql, *, negated: bool) -> Sql:
    name = "IS NOT NULL" if negated else "IS NULL"
    return made_by(name, combined(f"({value.text} {name})", BOOLEAN, [value], ()), value)


def is_truth(value: Sql, truth: bool) -> Sql:
    value, name = boolean(value, "IS"), "TRUE" if truth else "FALSE"
    return made_by(f"IS {name}", combined(f"({value.text} IS NOT DISTINCT FROM {name})", BOOLEAN, [value], ()), value)


# ---------------------------------------------------------------------------------------------------- logic


def boolean(value: Sql, where: str) -> Sql:
    if value.type == NULL:
        return null(BOOLEAN)
    if value.type != BOOLEAN:
        raise UnsupportedError(f"{where} needs BOOLEAN, not {name_of(value.type)}")
    return value


def negation(value: Sql) -> Sql:
    value = boolean(value, "NOT")
    return made_by("NOT", strict("(NOT {0})", BOOLEAN, value), value)


def conjunction(parts: Sequence[Sql]) -> Sql:
    return _joined([boolean(part, "AND") for part in parts], "AND", "FALSE")


def disjunction(parts: Sequence[Sql]) -> Sql:
    return _joined([boolean(part, "OR") for part in parts], "OR", "TRUE")


def _joined(parts: Sequence[Sql], operator: str, decisive: str) -> Sql:
    """AND or OR of all parts; parts after the deciding one are not evaluated if they could fail."""
    # Parts that cannot fail are joined without nesting, so that a long chain is not deep.
    runs = [list(run) for _, run in itertools.groupby(parts, key=lambda part: part.raises)]
    units = [unit for run in runs for unit in (run if run[0].raises else [Sql(_side_by_side(run, operator), BOOLEAN)])]
    text = units[-1].text
    for number in range(len(units) - 2, -1, -1):
        before = units[number].text
        text = f"({before} {operator} {text})"
        if any(unit.raises for unit in units[number + 1 :]):
            text = f"(CASE WHEN {before} IS NOT DISTINCT FROM {decisive} THEN {decisive} ELSE {text} END)"
        limited(Sql(text, BOOLEAN))
    return made_by(operator, combined(text, BOOLEAN, parts), *parts)


def _side_by_side(parts: Sequence[Sql], operator: str) -> str:
    texts = f" {operator} ".join(part.text for part in parts)
    return f"({texts})" if len(parts) > 1 else texts


def choose(branches: Sequence[tuple[Sql, Sql]], otherwise: Sql | None, zone: str, where: str = "CASE") -> Sql:
    """The value of the first branch whose condition is TRUE. The operands alternate conditions and values, and end with the
    default.
    """
    conditions = [boolean(condition, where) for condition, _ in branches]
    if any(condition.type == NULL for condition, _ in branches) and where == "CASE":
        raise UnsupportedError("CASE needs BOOLEAN, not NULL")
    *values, last = unify([*(value for _, value in branches), otherwise or null()], zone, where)
    text = " ".join(f"WHEN {when.text} THEN {then.text}" for when, then in zip(conditions, values, strict=True))
    type_ = last.type
    chosen = f"CASE {text} ELSE {last.text} END"
    text = f"({chosen})" if is_nested(type_) else f"CAST({chosen} AS {duckdb_type(type_)})"
    operands = [part for branch in zip(conditions, values, strict=True) for part in branch]
    return made_by("CASE", combined(text, type_, [*conditions, *values, last]), *operands, last)


# ---------------------------------------------------------------------------------------------------- numbers


def arithmetic(operator: str, a: Sql, b: Sql, zone: str) -> Sql:
    """``+``, ``-``, ``*``, ``/``, ``%``, DIV and PMOD."""
    kinds = (a.type, b.type)
    if operator in "+-*" and any(is_temporal(kind) or kind in (*INTERVALS, MONTHS) for kind in kinds):
        return _time_arithmetic(operator, a, b, zone)
    if NULL in kinds:
        # A NULL takes the type of the other operand; NULL divided by a number is a DOUBLE.
        other = DOUBLE if kinds == (NULL, NULL) or (operator == "/" and a.type == NULL) else max(kinds, key=NULL.__ne__)
        a, b = (null(other) if value.type == NULL else value for value in (a, b))
    if not (is_numeric(a.type) and is_numeric(b.type)):
        wrong = [name_of(kind) for kind in kinds if not is_numeric(kind)]
        raise UnsupportedError(f"{operator} needs numbers, not {wrong[0]}", "CAST it" if STRING in kinds else None)
    decimals = is_decimal(a.type) or is_decimal(b.type)
    if operator == "DIV" and (decimals or a.type in FLOATS or b.type in FLOATS):
        # For decimals, Spark's own result wraps around on overflow.
        raise UnsupportedError("DIV takes integers", "CAST(a / b AS BIGINT)")
    if decimals and not (a.type in FLOATS or b.type in FLOATS):
        return _decimal_arithmetic(operator, a, b, zone)
    kind = common_type(a.type, b.type)
    if operator == "/":
        kind = DOUBLE
    elif operator == "DIV":
        kind = BIGINT
    a, b = cast(a, kind, zone), cast(b, kind, zone)
    if operator in "+-*":
        return made_by(operator, strict(f"({{0}} {operator} {{1}})", kind, a, b, raises=kind in INTEGERS), a, b)
    if operator == "%":
        return remainder(a, b)
    if operator == "PMOD":
        return _positive_remainder(a, b, zone)
    if operator == "DIV":
        return _unless_zero("({a} // {b})", kind, a, b)
    return made_by("/", _unless_zero("({a} / {b})", kind, a, b), a, b)


def _unless_zero(template: str, data_type: pa.DataType, a: Sql, b: Sql) -> Sql:
    """The division of ``{a}`` by ``{b}``, with an error if ``{b}`` is zero."""
    template = template.replace("{a}", "{1}").replace("{b}", "{0}")  # Spark computes the divisor first
    if b.constant:  # a number other than 0
        return strict(template, data_type, b, a, raises="//" in template and b.constant == -1)
    zero = f"{{0}} = CAST(0 AS {duckdb_type(b.type)})"
    # NULL divided by 0 is NULL.
    text = f"(CASE WHEN {zero} AND {{1}} IS NOT NULL THEN {error('division by zero')} ELSE {template} END)"
    return strict(text, data_type, b, a, raises=True)


def remainder(a: Sql, b: Sql) -> Sql:
    """``a % b`` of two values of the same type."""
    if a.type in INTEGERS:
        # The smallest integer divided by -1 overflows, but its remainder does not.
        divisor = f"CASE {{b}} WHEN -1 THEN CAST(1 AS {duckdb_type(a.type)}) ELSE {{b}} END"
        return _unless_zero(f"({{a}} % {divisor})", a.type, a, b)
    return _unless_zero("({a} % {b})", a.type, a, b)


def _positive_remainder(a: Sql, b: Sql, zone: str) -> Sql:
    kind, rest = a.type, remainder(a, b)
    again = remainder(strict("({0} + {1})", kind, rest, b, raises=kind in INTEGERS), b)
    zero = cast(Sql("CAST(0 AS TINYINT)", TINYINT, ()), kind, zone)
    return replace(choose([(compare("<", rest, zero, zone), again)], rest, zone), operation=None)


def _null_if_zero(a: Sql, b: Sql) -> Sql:
    """The divisor *b* of *a*, NULL instead of 0."""
    if b.constant == 0:
        return null(exact_decimal(b) if is_decimal(a.type) else b.type)
    if b.constant is None and is_numeric(b.type):
        return strict(f"nullif({{0}}, CAST(0 AS {duckdb_type(b.type)}))", b.type, b, nulls=True)
    return b


def attempt(operator: str, a: Sql, b: Sql, zone: str) -> Sql:
    """``+``, ``-``, ``*`` or ``%`` that return NULL if they fail; a failure of *a* or *b* stays."""
    if operator == "%":
        return replace(arithmetic(operator, a, _null_if_zero(a, b), zone), nulls=None, operation=None)
    value = arithmetic(operator, a, b, zone)
    kind = value.type
    never_fails = kind in FLOATS or NULL in (a.type, b.type)
    if value.operation is None or never_fails or DATE in (a.type, b.type):  # a DATE wraps around in Spark
        return replace(value, operation=None)
    x, y = value.operation.operands
    if kind in INTEGERS:
        text = f"TRY_CAST((CAST({{0}} AS HUGEINT) {operator} CAST({{1}} AS HUGEINT)) AS {duckdb_type(kind)})"
        return strict(text, kind, x, y, nulls=True)
    if is_decimal(kind):
        return replace(_decimal_arithmetic(operator, a, b, zone, attempted=True), nulls=None, operation=None)
    if a.raises or b.raises:
        raise UnsupportedError("its arguments can fail, which is supported only for numbers")
    return replace(value, text=f"TRY({value.text})", nulls=None, raises=False, operation=None)


def try_divide(a: Sql, b: Sql, zone: str) -> Sql:
    """Division that returns NULL if b is 0."""
    if a.type in INTERVALS or MONTHS in (a.type, b.type):
        raise UnsupportedError("TRY_DIVIDE needs numbers, not an interval")
    divided = replace(arithmetic("/", a, _null_if_zero(a, b), zone), nulls=None)
    if is_decimal(divided.type):
        return divided
    return made_by("TRY_DIVIDE", divided, *(cast(value, divided.type, zone) for value in (a, b)))


_LONG_DIGITS = 18  # the digits that fit into 64 bits


def _decimal_arithmetic(operator: str, a: Sql, b: Sql, zone: str, *, attempted: bool = False) -> Sql:
    """*attempted*: it is NULL where it does not fit."""
    x, y = exact_decimal(a), exact_decimal(b)
    a, b = cast(a, x, zone), cast(b, y, zone)
    whole, scale = max(x.precision - x.scale, y.precision - y.scale), max(x.scale, y.scale)
    digits = whole + scale  # the digits of the exact result
    if operator in "+-":
        digits += 1
        kind = bounded(digits, scale)
    elif operator in ("%", "PMOD"):
        kind = bounded(min(x.precision - x.scale, y.precision - y.scale) + scale, scale)
    elif operator == "*":
        digits, scale = x.precision + y.precision, x.scale + y.scale
        kind = bounded(digits + 1, scale)
        if max(x.precision, y.precision) <= _LONG_DIGITS < digits <= MAX_DIGITS:
            # DuckDB multiplies in 64 bits unless one of the operands is wider.
            a = cast(replace(a, constant=None), pa.decimal128(MAX_DIGITS - y.precision, x.scale), zone)
    else:
        places = max(6, x.scale + y.precision + 1)
        kind = bounded(x.precision - x.scale + y.scale + places, places)
    result = duckdb_type(kind)
    native = operator not in ("/", "PMOD") and digits <= MAX_DIGITS and kind.scale == scale
    if native:
        template = f"CAST(({{a}} {operator} {{b}}) AS {result})"
    else:
        sides = "CAST({a} AS VARCHAR), CAST({b} AS VARCHAR)"
        routine = "try_decimal_result" if attempted else "decimal_result"
        template = f"CAST({routine}('{operator}', {sides}, {kind.precision}, {kind.scale}) AS {result})"
    if operator in "+-*":
        template = template.replace("{a}", "{0}").replace("{b}", "{1}")
        return made_by(operator, strict(template, kind, a, b, raises=not (native or attempted)), a, b)
    return _unless_zero(template, kind, a, b)


def negative(value: Sql, zone: str) -> Sql:
    kind = value.type
    if kind == NULL:
        return null(DOUBLE)
    if kind in INTEGERS or kind in INTERVALS or kind == MONTHS:
        negated = strict(f"(CAST(0 AS {duckdb_type(kind)}) - {{0}})", kind, value, raises=True)
    elif is_numeric(kind):
        negated = strict("(- {0})", kind, value)
    else:
        raise UnsupportedError(f"- needs a number, not {name_of(kind)}")
    return made_by("NEGATIVE", negated, value)


def bitwise(operator: str, a: Sql, b: Sql, zone: str) -> Sql:
    for value in (a, b):
        if value.type not in INTEGERS:
            raise UnsupportedError(f"{operator} needs integers, not {name_of(value.type)}")
    a, b = unify([a, b], zone, operator)
    return strict("xor({0}, {1})" if operator == "^" else f"({{0}} {operator} {{1}})", a.type, a, b)


def shift_bits(operator: str, value: Sql, bits: Sql, zone: str) -> Sql:
    """``<<``, ``>>`` or ``>>>``, of an INT or a BIGINT; of the number of bits, only the lowest 5 or 6 count."""
    for part in (value, bits):
        if part.type not in (*INTEGERS, NULL):
            raise UnsupportedError(f"{operator} needs integers, not {name_of(part.type)}")
    if bits.type == BIGINT:
        raise UnsupportedError(f"{operator} needs an INT on its right side, not BIGINT", "CAST(... AS INT)")
    kind = BIGINT if value.type == BIGINT else INT
    value, bits = cast(value, BIGINT, zone), cast(bits, INT, zone)
    text = f"CAST(shifted('{operator}', {kind.bit_width}, {{0}}, {{1}}) AS {duckdb_type(kind)})"
    return strict(text, kind, value, bits)


def bitwise_not(value: Sql) -> Sql:
    if value.type not in INTEGERS:
        raise UnsupportedError(f"~ needs an integer, not {name_of(value.type)}")
    return strict("(~ {0})", value.type, value)


# ---------------------------------------------------------------------------------------------------- times and intervals


def _time_arithmetic(operator: str, a: Sql, b: Sql, zone: str) -> Sql:
    intervals = (*INTERVALS, MONTHS)
    if operator == "*":
        if b.type in INTERVALS:
            a, b = b, a
        if a.type in INTERVALS and b.type in INTEGERS:
            return made_by("*", strict("({0} * {1})", TIME, a, cast(b, BIGINT, zone), raises=True), a, b)
    elif operator == "+" and ((a.type in intervals and is_temporal(b.type)) or (a.type in INTEGERS and b.type == DATE)):
        return _time_arithmetic(operator, b, a, zone)
    elif is_temporal(a.type) and b.type in intervals:
        moved = shift(a, replace(negative(b, zone), raises=b.raises) if operator == "-" else b, zone)
        return made_by(operator, moved, cast(a, moved.type, zone), b)
    elif a.type == DATE and b.type in INTEGERS:
        return made_by(operator, add_days(a, b, zone, operator), a, b)
    elif operator == "-" and a.type == b.type == DATE:
        return made_by("-", strict(f"(({{0}} - {{1}}) * {DAY})", DAYS, a, b), a, b)
    elif operator == "-" and is_temporal(a.type) and is_temporal(b.type):
        if {is_instant(a.type), is_instant(b.type)} == {True, False} and NTZ in (a.type, b.type):
            raise UnsupportedError("- cannot combine TIMESTAMP and TIMESTAMP_NTZ", "CAST one of them")
        kind = common_type(a.type, b.type)
        # Spark computes the difference of the local times.
        a, b = (cast(value, kind, zone) for value in (a, b))
        if not is_fixed(zone):
            a, b = cast(a, NTZ, zone), cast(b, NTZ, zone)
        micros = [micros_of(local_time(value, zone)) for value in (a, b)]
        return made_by("-", strict("({0} - {1})", TIME, *micros, raises=True), a, b)
    elif a.type in intervals and b.type in intervals and (a.type == MONTHS) == (b.type == MONTHS):
        kind = a.type if a.type == b.type else TIME
        return made_by(operator, strict(f"({{0}} {operator} {{1}})", kind, a, b, raises=True), a, b)
    raise UnsupportedError(f"{operator} cannot combine {name_of(a.type)} and {name_of(b.type)}")


def add_days(day: Sql, number: Sql, zone: str, operator: str = "+") -> Sql:
    if number.type == BIGINT:
        raise UnsupportedError("a number of days cannot be a BIGINT", "CAST it to INT")
    return strict(f"({{0}} {operator} {{1}})", DATE, day, cast(number, INT, zone), raises=True)


def shift(moment: Sql, interval: Sql, zone: str) -> Sql:
    """A date or time plus an interval. Days and months are calendar units; hours are elapsed time.

    The operation fails for times 290,000 years away; an interval literal is not counted as one that can fail.
    """
    raises = interval.nulls != ()
    if interval.type == MONTHS:
        if moment.type == DATE:
            return strict("CAST(({0} + to_months({1})) AS DATE)", DATE, moment, interval, raises=raises)
        moved = strict("({0} + to_months({1}))", NTZ, local_time(moment, zone), interval, raises=raises)
        return instant_near(moved, moment, zone)
    if moment.type == DATE:
        if interval.type == DAYS:
            days = strict(f"CAST(({{0}} // {DAY}) AS INTEGER)", INT, interval, raises=raises)
            return strict("({0} + {1})", DATE, moment, days, raises=raises)
        moment = cast(moment, pa.timestamp("us", zone), zone)
    whole = strict(f"(({{0}} // {DAY}) * {DAY})", BIGINT, interval)
    local = local_time(moment, zone)
    moved = strict("make_timestamp(({0} + {1}))", NTZ, micros_of(local), whole, raises=raises)
    rest = strict(f"({{0}} % {DAY})", BIGINT, interval)
    start = micros_of(instant_near(moved, moment, zone))
    return strict("make_timestamp(({0} + {1}))", moment.type, start, rest, raises=raises)
