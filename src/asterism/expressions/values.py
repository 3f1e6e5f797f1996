"""The value of an expression: its Spark type, the operation that makes it, and its SQL for DuckDB; casts and common types.

Spark skips what it does not need: the right operand if the left one is NULL, or the rest of an AND after FALSE. DuckDB
computes both operands. This makes a difference only if the right one can fail, so each value has a flag for whether it can.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp

from asterism.columns.time_zones import zone_of
from asterism.expressions import udfs
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DIGITS,
    DOUBLE,
    FLOAT,
    FLOATS,
    INTEGERS,
    INTERVALS,
    NTZ,
    NULL,
    STRING,
    TIME,
    TINYINT,
    common_type,
    decimal_of,
    duckdb_type,
    is_decimal,
    is_instant,
    is_nested,
    is_numeric,
    is_temporal,
    name_of,
)

MAX_LENGTH = 200_000  # characters of the SQL for DuckDB; a value that is used twice is written twice
MAX_GROWTH = 100  # the size of all strings that an expression makes, relative to a string of the event
MAX_FIXED = 1_000_000  # bytes that it may make independently of the event
MAX_PROGRAM = 10_000  # the size of its regular expressions, which are compiled for each batch of events: some 20 ms
EXACT_DIGITS = 15  # a decimal with up to this many digits divided by a power of ten is the nearest double
_COLUMN = re.compile(r"\b[ce]\d+\b")  # or a parameter of a lambda


class UnsupportedError(Exception):
    """An expression that cannot be translated for DuckDB, with a hint for an alternative."""

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.hint = problem, hint


@dataclass(frozen=True, slots=True)
class Cost:
    """Upper bounds of the memory for an expression, in addition to its columns.

    Strings, arrays, maps and structs take *growth* times the size of the largest one of the event, plus *fixed* bytes, plus
    *square* times the square of that size. *program* is the size of regular expressions, about the number of characters and
    classes in them after repetitions are expanded. *made* is *growth* including the values that are no larger than those of the
    event: their number is not limited, but they take memory, too. In the body of a lambda, *element* is the size relative to
    the element that it is called for.
    """

    growth: float = 0
    fixed: float = 0
    program: int = 0
    made: float = 0
    square: float = 0
    element: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.growth + other.growth,
            self.fixed + other.fixed,
            self.program + other.program,
            self.made + other.made,
            self.square + other.square,
            self.element + other.element,
        )

    def times(self, count: float) -> Cost:
        return Cost(
            self.growth * count,
            self.fixed * count,
            int(self.program * count),
            self.made * count,
            self.square * count,
            self.element * count,
        )

    def for_each(self, array: Cost) -> Cost:
        """The cost for all elements of an array of the size *array*, if this is the cost for one element."""
        count = Cost(array.growth / ELEMENT, array.fixed / ELEMENT, element=array.element / ELEMENT)
        if (self.square and (count.growth or count.element)) or (self.growth and count.element) or array.square:
            raise UnsupportedError("it can make too many elements, because functions of arrays are nested too deeply")
        return Cost(
            growth=self.element * array.growth + self.growth * count.fixed + self.fixed * count.growth,
            fixed=self.element * array.fixed + self.fixed * count.fixed,
            program=self.program,
            made=self.made * max(count.fixed, 1),
            square=self.growth * count.growth + self.square * count.fixed,
            element=self.element * array.element + self.fixed * count.element,
        )

    def bytes(self, largest: int) -> float:
        """The bytes of all larger values, if the largest value of the event has *largest* bytes."""
        return self.growth * largest + self.square * largest**2 + self.fixed

    def room(self, largest: int) -> float:
        """The bytes of all values."""
        return self.made * largest + self.square * largest**2 + self.fixed


class Operation(NamedTuple):
    """An operation and its operands, already converted to the types that it takes.

    The names are those of SQL, in upper case: ``=``, ``+``, ``AND``, ``CASE`` ...
    """

    name: str
    operands: tuple[Sql, ...]


ELEMENT = 8
"""The bytes that each element of an array counts in addition to its string."""
_SHORT = Cost(fixed=64)  # of values that are not strings
_WORTH_COUNTING = 256  # bytes


@dataclass(frozen=True, slots=True)
class Sql:
    """A value: *text* is SQL that is valid anywhere in an expression of DuckDB; *type* is its type in Spark."""

    text: str
    type: pa.DataType
    nulls: tuple[str, ...] | None = None
    """SQL expressions: the value is NULL exactly if one of them is; None: if the value itself is"""
    raises: bool = False
    """whether it can fail"""
    size: Cost = _SHORT
    """bounds of its length"""
    cost: Cost = Cost()
    """of everything that is computed for it"""
    constant: str | decimal.Decimal | None = None
    """the value of a literal"""
    strict: bool = False
    """whether it is NULL if everything that it reads is NULL"""
    number: int | float | None = None
    """for a date or time literal: days or microseconds since 1970; for a DOUBLE literal that is not a decimal: its value"""
    operation: Operation | None = None
    """the operation that makes it, if it can also be computed by other means than DuckDB"""
    node: exp.Expr | None = field(default=None, compare=False)
    """the node of the syntax tree with this value, if it is kept; None for an implicit cast, for example"""

    @property
    def nullable_operands(self) -> tuple[str, ...]:
        return (self.text,) if self.nulls is None else self.nulls

    @property
    def is_null(self) -> str:
        """The SQL condition that it is NULL."""
        return (
            "(" + " OR ".join(f"{text} IS NULL" for text in self.nullable_operands) + ")"
            if self.nullable_operands
            else "FALSE"
        )


def quoted(text: str) -> str:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UnsupportedError("a string with a NUL character or an unpaired surrogate is not supported")
    return "'" + text.replace("'", "''") + "'"


def null(data_type: pa.DataType = NULL) -> Sql:
    return Sql(_null_literal(data_type), data_type, strict=True)


def _null_literal(data_type: pa.DataType) -> str:
    return f"CAST(NULL AS {duckdb_type(data_type)})"


def string_constant(text: str) -> Sql:
    return Sql(quoted(text), STRING, (), size=Cost(fixed=len(text.encode())), constant=text)


def binary_constant(digits: str) -> Sql:
    """A literal such as X'0AFF', which may have an odd number of digits."""
    return Sql(f"unhex('{'0' * (len(digits) % 2)}{digits}')", BINARY, (), size=Cost(fixed=len(digits)))


def number_constant(value: decimal.Decimal, data_type: pa.DataType) -> Sql:
    return Sql(f"CAST('{value:f}' AS {duckdb_type(data_type)})", data_type, (), constant=value)


def boolean_constant(value: bool) -> Sql:
    return Sql("TRUE" if value else "FALSE", BOOLEAN, ())


def error(message: str) -> str:
    return f"error({quoted(message)})"


def strict(
    template: str,
    data_type: pa.DataType,
    *parts: Sql,
    raises: bool = False,
    nulls: bool = False,
    guarded: bool = False,
    eager: bool = False,
    size: Cost | None = None,
) -> Sql:
    """A value made of others, NULL if one of them is; with *nulls* also in other cases.

    *raises*: whether the operation itself can fail. *guarded*: the template may return a value other than NULL if a part is
    NULL. *eager*: Spark computes all parts. *template* references the parts as ``{0}``, ``{1}`` ... *size*: of the result, if
    it can be longer than each part.
    """
    text = template.format(*(part.text for part in parts))
    skipping = max((number for number, part in enumerate(parts) if part.raises), default=0)
    tested = parts if guarded else () if eager else parts[:skipping]
    tests = [part for part in tested if part.nullable_operands or part.raises]
    # Spark does not evaluate what follows a NULL.
    cases = "".join(f" WHEN {f'{part.text} IS NULL' if part.raises else part.is_null} THEN NULL" for part in tests)
    # DuckDB does not evaluate the operands next to a constant NULL, before it or after it.
    fixed = (number for number, part in enumerate(parts) if part.nulls != () and not _COLUMN.search(part.text))
    empty = next(fixed, 0) if any(part.raises for part in parts) else 0
    computed = [part.text for part in (parts if eager else parts[:empty]) if part.raises]
    if computed:
        # With OR it would not evaluate what follows a TRUE.
        cases = f" WHEN greatest({', '.join(f'{part} IS NULL' for part in computed)}) THEN NULL{cases}"
    if cases:
        text = f"(CASE{cases} ELSE {text} END)"
    elif not text.endswith(")"):
        text = f"({text})"
    nullable_operands = (
        None if nulls else tuple(dict.fromkeys(text for part in parts for text in part.nullable_operands))
    )
    made = combined(text, data_type, parts, nullable_operands, raises=raises, size=size)
    return replace(made, strict=any(part.strict for part in parts))


def combined(
    text: str,
    data_type: pa.DataType,
    parts: Iterable[Sql],
    nulls: tuple[str, ...] | None = None,
    *,
    raises: bool = False,
    size: Cost | None = None,
) -> Sql:
    """A value made of others, each costed as often as its SQL occurs in *text*; other arguments as for :func:`strict`."""
    parts = list(parts)
    if data_type != STRING and not is_nested(data_type) and not pa.types.is_binary(data_type):
        size = _SHORT
    elif size is None:
        size = largest(parts)
    cost = Cost()
    for part in {part.text: part for part in parts}.values():
        if part.cost != _FREE:
            cost += part.cost.times(max(text.count(part.text), 1))
    if size.growth > 1 or size.fixed > _WORTH_COUNTING or size.square or size.element > 1:
        cost += size
    if size.growth or size.element:
        cost += Cost(made=size.growth or 1)
    return limited(Sql(text, data_type, nulls, raises or any(part.raises for part in parts), size, cost))


def largest(parts: Sequence[Sql]) -> Cost:
    """The size of a value that is no larger than one of the parts."""
    sizes = [part.size for part in parts] or [Cost(growth=1)]
    return Cost(
        growth=max(size.growth for size in sizes),
        fixed=max(size.fixed for size in sizes),
        square=max(size.square for size in sizes),
        element=max(size.element for size in sizes),
    )


def made_by(name: str, value: Sql, *operands: Sql) -> Sql:
    """The value, with the operation that makes it."""
    return replace(value, operation=Operation(name, operands), node=None)


_FREE = Cost()


def limited(value: Sql) -> Sql:
    """The value, unless it could need too much memory."""
    if len(value.text) > MAX_LENGTH:
        raise UnsupportedError("the expression is too long after expansion", "split the condition")
    if max(value.cost.growth, value.cost.square, value.cost.element) > MAX_GROWTH:
        raise UnsupportedError(
            f"the strings and arrays that it creates can be more than {MAX_GROWTH:,} times as large as those of the event"
        )
    if value.cost.fixed > MAX_FIXED:
        raise UnsupportedError(f"the strings and arrays that it creates can have more than {MAX_FIXED:,} bytes")
    if value.cost.program > MAX_PROGRAM:
        raise UnsupportedError(
            f"its regular expressions are too large: {value.cost.program:,} characters and classes (limit {MAX_PROGRAM:,})",
            "write smaller repetitions; {2,5} counts ten times",
        )
    return value


# ---------------------------------------------------------------------------------------------------- casts


def cast(value: Sql, to: pa.DataType, zone: str, *, safe: bool = False) -> Sql:
    """CAST in Spark's ANSI mode, which fails if it cannot convert; *safe*: TRY_CAST, which returns NULL instead.

    :raises UnsupportedError: Spark does not convert between these types, or its result cannot be reproduced here
    """
    if value.type == to:
        return value
    if value.type == NULL:
        # An error stays one.
        return strict(f"CAST({{0}} AS {duckdb_type(to)})", to, value) if value.raises else null(to)
    if value.constant is not None and not safe:
        constant = _constant_cast(value.constant, to, zone)
        if constant is not None:
            return constant
    if value.type in INTERVALS and to == TIME:
        return replace(value, type=TIME)
    converted = _cast_nested(value, to, zone) if is_nested(to) and not safe else _cast(value, to, zone, safe)
    if converted is None:
        # How Java formats floating-point numbers depends on its version.
        hint = "CAST(CAST(... AS DECIMAL(20,6)) AS STRING)" if value.type in FLOATS and to == STRING else None
        raise UnsupportedError(f"CAST from {name_of(value.type)} to {name_of(to)} is not supported", hint)
    return replace(converted, nulls=None) if safe else made_by("CAST", converted, value)


def _cast(value: Sql, to: pa.DataType, zone: str, safe: bool) -> Sql | None:
    source, target = value.type, duckdb_type(to) if not pa.types.is_nested(to) else ""
    verb = "TRY_CAST" if safe else "CAST"
    if source == BOOLEAN:
        if to in INTEGERS or to in FLOATS:
            return strict(f"CAST({{0}} AS {target})", to, value)
        if is_decimal(to):
            return strict(f"{verb}(CAST({{0}} AS INTEGER) AS {target})", to, value, raises=to.precision == to.scale)
        return strict("CAST({0} AS VARCHAR)", to, value) if to == STRING else None
    if is_numeric(source):
        return _cast_number(value, to, target, verb, safe)
    if source == STRING:
        return _cast_string(value, to, target, zone, safe)
    if source == BINARY:
        # In Spark such a string could be no valid UTF-8.
        return strict("decode({0})", to, value, raises=True) if to == STRING and not safe else None
    if source == DATE:
        if to == NTZ:
            return strict("CAST({0} AS TIMESTAMP)", to, value)
        if is_instant(to):
            return instant(strict("CAST({0} AS TIMESTAMP)", NTZ, value), zone)
        return strict(_written("{0}", "DATE"), to, value, raises=True) if to == STRING else None
    if is_temporal(source):
        local = local_time(value, zone)
        if to == DATE:
            return strict("CAST({0} AS DATE)", to, local)
        if to == STRING:
            return strict(_written("{0}", "TIMESTAMP"), to, local, raises=True)
        if to in INTEGERS and is_instant(source):
            seconds = seconds_of(value)
            return seconds if to == BIGINT else _cast_number(seconds, to, target, verb, safe)
        if to in FLOATS and is_instant(source):
            return cast(strict("(CAST(epoch_us({0}) AS DOUBLE) / 1000000)", DOUBLE, value), to, zone)
        if to == NTZ:
            return local
        return instant(value, zone) if is_instant(to) else None
    return None


def _cast_nested(value: Sql, to: pa.DataType, zone: str) -> Sql | None:
    """Convert the parts of an array, a map or a struct; the fields of structs have the same names."""
    source, types = value.type, pa.types
    if types.is_list(source) and types.is_list(to):
        if source.value_type == NULL:
            return strict(f"CAST({{0}} AS {duckdb_type(to)})", to, value)
        item = cast(Sql("part", source.value_type), to.value_type, zone)
        text = f"list_transform({{0}}, lambda part: {item.text})"
        return strict(text, to, value, raises=item.raises)
    if types.is_map(source) and types.is_map(to):
        if NULL in (source.key_type, source.item_type):
            return strict(f"CAST({{0}} AS {duckdb_type(to)})", to, value)
        key = cast(Sql("part.key", source.key_type), to.key_type, zone)
        item = cast(Sql("part.value", source.item_type), to.item_type, zone)
        made = f"struct_pack(key := {key.text}, value := {item.text})"
        text = f"map_from_entries(list_transform(map_entries({{0}}), lambda part: {made}))"
        return strict(text, to, value, raises=key.raises or item.raises)
    return None


def _cast_number(value: Sql, to: pa.DataType, target: str, verb: str, safe: bool) -> Sql | None:
    source = value.type
    if to == BOOLEAN:
        return strict(f"({{0}} <> CAST(0 AS {duckdb_type(source)}))", to, value)
    if is_instant(to) and source in INTEGERS and source != BIGINT:
        return strict("make_timestamp((CAST({0} AS BIGINT) * 1000000))", to, value)
    if to in INTEGERS:
        if source in INTEGERS:
            narrower = INTEGERS.index(to) < INTEGERS.index(source)
            return strict(f"{verb if narrower else 'CAST'}({{0}} AS {target})", to, value, raises=narrower and not safe)
        whole = f"{verb}(trunc({{0}}) AS {target})"
        if source in FLOATS and to == BIGINT:
            # 2^63 is not a BIGINT, but Spark compares with the largest BIGINT as a double, which is 2^63.
            whole = f"CASE WHEN {{0}} = 9223372036854775808 THEN 9223372036854775807 ELSE {whole} END"
            whole = f"CAST({whole} AS BIGINT)"
        return strict(whole, to, value, raises=not safe)
    if is_decimal(source) and (to == FLOAT or (to == DOUBLE and source.precision > EXACT_DIGITS)):
        return strict(f"CAST(CAST({{0}} AS VARCHAR) AS {target})", to, value)
    if to == FLOAT and source == DOUBLE:
        infinite = "CASE WHEN {0} > 0 THEN CAST('inf' AS FLOAT) WHEN {0} < 0 THEN CAST('-inf' AS FLOAT) END"
        return strict(f"COALESCE(TRY_CAST({{0}} AS FLOAT), {infinite})", to, value)
    if to in FLOATS:
        return strict(f"CAST({{0}} AS {target})", to, value)
    if is_decimal(to) and source in FLOATS:
        double = "CAST({0} AS DOUBLE)"
        attempt = "try_" if safe else ""
        text = f"CAST({attempt}double_to_decimal({double}, {to.precision}, {to.scale}) AS {target})"
        if to.scale < EXACT_DIGITS:
            near = f"{verb}(rounded({double}, {to.scale}, FALSE) AS {target})"
            text = f"CASE WHEN abs({{0}}) < 1e{EXACT_DIGITS - to.scale} THEN {near} ELSE {text} END"
        text = f"(CASE WHEN isfinite({{0}}) THEN {text} END)"
        return strict(text, to, value, raises=not safe, nulls=True)
    if is_decimal(to):
        have = pa.decimal128(DIGITS[source], 0) if source in INTEGERS else source
        fits = to.precision - to.scale >= have.precision - have.scale + (to.scale < have.scale)
        return strict(f"{'CAST' if fits else verb}({{0}} AS {target})", to, value, raises=not fits and not safe)
    if to == STRING and source not in FLOATS:
        text = "CAST({0} AS VARCHAR)"
        if is_decimal(source) and source.precision == source.scale:
            text = f"regexp_replace({text}, '^(-?)\\.', '\\10.')"  # DuckDB writes no zero before the decimal point
        return strict(text, to, value)
    return None


def _written(text: str, kind: str) -> str:
    """A date or time as a string; both engines write the same only for four-digit years."""
    first, last = (
        ("0001-01-01", "9999-12-31") if kind == "DATE" else ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")
    )
    inside = f"{text} BETWEEN {kind} '{first}' AND {kind} '{last}'"
    outside = error("a year before 1 or after 9999 cannot be converted to a string")
    return f"CAST(CASE WHEN NOT {inside} THEN {outside} ELSE CAST({text} AS VARCHAR) END AS VARCHAR)"


_ENDS = r"[\x00-\x20\x7f]"  # trimmed by Spark at both ends of a string; fewer for a floating-point number
_FLOAT_ENDS = r"[\x00-\x20]"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?"
_NO_NUMBER = "(?i:[+-]?inf(inity)?|nan)|[+-]?NaN"
_BOOLEANS = {"TRUE": ("t", "true", "y", "yes", "1"), "FALSE": ("f", "false", "n", "no", "0")}


def _cast_string(value: Sql, to: pa.DataType, target: str, zone: str, safe: bool) -> Sql | None:
    if to == BINARY:
        return strict("encode({0})", to, value)
    routine = None
    attempt = "try_" if safe else ""
    if is_decimal(to):
        routine = f"CAST({attempt}string_to_decimal({{0}}, {to.precision}, {to.scale}) AS {target})"
    elif to == DATE:
        routine = f"{attempt}string_to_date({{0}})"
    elif to == NTZ:
        routine = "try_string_to_time('', {0})" if safe else "string_to_local_time({0})"
    elif is_instant(to):
        routine = f"{'try_string_to_time' if safe else 'string_to_instant'}({quoted(_known(zone))}, {{0}})"
    if routine is not None:
        return strict(routine, to, value, raises=not safe or (is_temporal(to) and to != DATE), nulls=safe)
    ends = _FLOAT_ENDS if to in FLOATS else _ENDS
    inner = f"regexp_replace({{0}}, '^{ends}+|{ends}+$', '', 'g')"
    wrong = "NULL" if safe else f"error({{0}} || {quoted(f' is not a valid {name_of(to)}')})"
    if to in INTEGERS:
        verb = "TRY_CAST" if safe else "CAST"
        text = f"CASE WHEN regexp_full_match({inner}, '[+-]?[0-9]+') THEN {verb}({inner} AS {target}) ELSE {wrong} END"
    elif to in FLOATS:
        word = f"regexp_replace(lower({inner}), '^[+-]?(nan)$|(inf)inity$|^[+]', '\\1\\2')"
        text = (
            f"CASE WHEN regexp_full_match({inner}, '{_NUMBER}') "
            f"THEN CAST(regexp_replace({inner}, '[dDfF]$', '') AS {target}) "
            f"WHEN regexp_full_match({inner}, '{_NO_NUMBER}') THEN CAST({word} AS {target}) "
            f"ELSE {wrong} END"
        )
    elif to == BOOLEAN:
        words = "".join(f" WHEN '{word}' THEN {truth}" for truth, words in _BOOLEANS.items() for word in words)
        text = f"CASE lower({inner}){words} ELSE {wrong} END"
    else:
        return None
    return strict(f"CAST({text} AS {target})", to, value, raises=not safe)


def _constant_cast(constant: str | decimal.Decimal, to: pa.DataType, zone: str) -> Sql | None:
    """Convert a literal once, so that an invalid one is an error before the first event."""
    if isinstance(constant, decimal.Decimal):
        if to in INTEGERS:
            limit = 2 ** (to.bit_width - 1)
            return number_constant(constant, to) if constant % 1 == 0 and -limit <= constant < limit else None
        if is_decimal(to):
            digits = constant.as_tuple()
            exponent = int(digits.exponent)
            fits = -exponent <= to.scale and len(digits.digits) + exponent <= to.precision - to.scale
            return number_constant(constant, to) if fits else None
        return number_constant(constant, to) if to in FLOATS else None
    try:
        if to == DATE:
            days = udfs.read_date(constant)
            return Sql(f"make_date({days})", to, (), number=days)
        if is_temporal(to):
            micros = udfs.read_timestamp(constant, _known(zone) if is_instant(to) else None)
            return Sql(f"make_timestamp(CAST({micros} AS BIGINT))", to, (), number=micros)
        stripped = constant.strip(udfs.CONTROL)
        if to in INTEGERS:
            limit = 2 ** (to.bit_width - 1)
            if re.fullmatch(r"[+-]?[0-9]{1,30}", stripped) and -limit <= int(stripped) < limit:
                return Sql(number_constant(decimal.Decimal(int(stripped)), to).text, to, ())
            raise ValueError(f"{constant!r} is not a valid {name_of(to)}")
        if to in FLOATS:
            number = constant.strip(udfs.CONTROL[:33])
            if re.fullmatch(_NUMBER, number):
                return Sql(f"CAST('{re.sub('[dDfF]$', '', number)}' AS {duckdb_type(to)})", to, ())
            if not re.fullmatch(_NO_NUMBER, number):
                raise ValueError(f"{constant!r} is not a valid {name_of(to)}")
        if to == BOOLEAN:
            truth = next((truth for truth, words in _BOOLEANS.items() if stripped.lower() in words), None)
            if truth is None:
                raise ValueError(f"{constant!r} is not a valid BOOLEAN")
            return boolean_constant(truth == "TRUE")
        if is_decimal(to):
            return Sql(f"CAST('{udfs.read_decimal(constant, to.precision, to.scale)}' AS {duckdb_type(to)})", to, ())
    except (ValueError, OverflowError) as problem:
        raise UnsupportedError(str(problem)) from None
    return None


# ---------------------------------------------------------------------------------------------------- points in time


def _known(zone: str) -> str:
    try:
        zone_of(zone)
    except (KeyError, ValueError):
        raise UnsupportedError(f"unknown time zone {zone!r}", "a name such as Europe/Madrid, or +02:00") from None
    return zone


def is_fixed(zone: str) -> bool:
    """Whether local time is UTC at all times."""
    zone_ = zone_of(_known(zone))
    return not len(zone_.instants) and not zone_.offsets[0]


def retyped(value: Sql, data_type: pa.DataType) -> Sql:
    """The same value with another type and different SQL, because values with the same SQL are computed once."""
    return replace(value, text=f"({value.text})", type=data_type, nulls=value.nullable_operands, operation=None)


def local_time(value: Sql, zone: str) -> Sql:
    """The local time of a TIMESTAMP in the session time zone; a TIMESTAMP_NTZ already is a local time."""
    if not is_instant(value.type):
        return value
    if is_fixed(zone):
        return retyped(value, NTZ)
    return strict(f"local_time({quoted(zone)}, {{0}})", NTZ, value)


def instant(local: Sql, zone: str) -> Sql:
    """The TIMESTAMP of a local time in the session time zone; a local time that occurs twice is the first one."""
    data_type = pa.timestamp("us", zone)
    if is_instant(local.type):
        return local
    if is_fixed(zone):
        return retyped(local, data_type)
    return strict(f"instant({quoted(zone)}, {{0}})", data_type, local)


def instant_near(local: Sql, near: Sql, zone: str) -> Sql:
    """:func:`instant`, but a local time that occurs twice gets the offset that applies at *near*, a TIMESTAMP."""
    if not is_instant(near.type):
        return local
    if is_fixed(zone):
        return retyped(local, near.type)
    return strict(f"instant_near({quoted(zone)}, {{0}}, {{1}})", near.type, local, near)


def micros_of(value: Sql) -> Sql:
    return strict("epoch_us({0})", BIGINT, value)


def seconds_of(value: Sql) -> Sql:
    """Whole seconds since 1970, rounded down for earlier times."""
    return strict("(epoch_us(date_trunc('second', {0})) // 1000000)", BIGINT, value)


# ---------------------------------------------------------------------------------------------------- one type for several


def unify(values: Iterable[Sql], zone: str, where: str, *, texts: bool = True) -> list[Sql]:
    """Convert values to the type that Spark determines for all of them.

    A string is converted to another type only if it is a literal; *texts*: whether strings may be converted at all.
    """
    values = list(values)
    kinds = [value.type for value in values]
    common: pa.DataType | None = NULL
    # Spark considers strings first, so that a string among numbers and times is rejected at any position.
    for kind in sorted(dict.fromkeys(kinds), key=lambda kind: kind != STRING):
        common = None if common is None else common_type(common, kind)
    if common is None or (STRING in kinds and common != STRING and not texts):
        names = " and ".join(dict.fromkeys(name_of(kind) for kind in kinds if kind != NULL))
        raise UnsupportedError(f"{where} cannot combine {names}", "CAST one of them")
    if common != STRING and any(value.type == STRING and value.constant is None for value in values):
        other = next(name_of(kind) for kind in kinds if kind not in (STRING, NULL))
        raise UnsupportedError(f"{where} cannot combine STRING and {other}", f"CAST(... AS {name_of(common)})")
    return [cast(value, common, zone) for value in values]


def exact_decimal(value: Sql) -> pa.DataType:
    """The decimal type of a number in arithmetic: that of an integer literal has only as many digits as the literal, unless
    it is a TINYINT.
    """
    if value.type in INTEGERS and value.type != TINYINT and isinstance(value.constant, decimal.Decimal):
        return pa.decimal128(len(value.constant.as_tuple().digits), 0)
    return decimal_of(value.type)
