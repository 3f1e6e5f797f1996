"""The functions of conditions and measures, with their usage and notes.

:func:`function` adds a function to the table, against which ``docs/sql.md`` is checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa

from asterism.expressions.operators import (
    add_days,
    arithmetic,
    choose,
    compare,
    is_null,
    null_safe,
    remainder,
    shift,
    try_divide,
)
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FLOATS,
    INT,
    INTEGERS,
    INTERVALS,
    MONTHS,
    NTZ,
    NULL,
    SMALLINT,
    STRING,
    TIME,
    TINYINT,
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
    Cost,
    Sql,
    UnsupportedError,
    cast,
    combined,
    error,
    instant_near,
    limited,
    local_time,
    made_by,
    micros_of,
    null,
    number_constant,
    seconds_of,
    strict,
    string_constant,
    unify,
)

Builder = Callable[..., Sql]

MAX_STRING = 10_000  # the maximum number of characters of lpad, rpad and repeat


@dataclass(frozen=True, slots=True)
class Function:
    """The usage and notes of a function; *build* makes its value from the session time zone and the arguments."""

    usage: str
    note: str
    group: str
    build: Builder

    @property
    def name(self) -> str:
        return self.usage.partition("(")[0]

    def __call__(self, zone: str, arguments: list[Sql]) -> Sql:
        try:
            inspect.signature(self.build).bind(zone, *arguments)
        except TypeError:
            raise UnsupportedError(
                f"{self.name.upper()} does not take {len(arguments)} arguments", self.usage
            ) from None
        return limited(replace(self.build(zone, *arguments), constant=None))  # a computed value is not a literal


FUNCTIONS: dict[str, Function] = {}
"""The functions by name, in lower case; aliases share an entry."""


def function(group: str, usage: str, *others: str, note: str = "") -> Callable[[Builder], Builder]:
    """Add a function to the table, under the name in *usage* and under *others*."""

    def add(build: Builder) -> Builder:
        entry = Function(usage, note, group, build)
        for name in (entry.name, *others):
            FUNCTIONS[name] = entry
        return build

    return add


NOT_PURE = frozenset(
    [
        "current_date",
        "current_time",
        "current_timestamp",
        "current_timezone",
        "current_user",
        "localtimestamp",
        "now",
        "rand",
        "randn",
        "random",
        "randstr",
        "session_user",
        "uniform",
        "user",
        "uuid",
        "input_file_name",
        "monotonically_increasing_id",
        "spark_partition_id",
        "curdate",
    ]
)
"""Functions whose results do not depend on the event alone."""


# ---------------------------------------------------------------------------------------------------- arguments


def string(value: Sql, zone: str) -> Sql:
    """An argument that must be a string. Spark casts other types implicitly, but does not say so."""
    if value.type not in (STRING, NULL):
        raise UnsupportedError(f"a STRING is needed, not {name_of(value.type)}", "CAST(... AS STRING)")
    return cast(value, STRING, zone)


def number(value: Sql, zone: str, kind: pa.DataType = DOUBLE) -> Sql:
    if not is_numeric(value.type) and value.type != NULL:
        raise UnsupportedError(f"a number is needed, not {name_of(value.type)}", "CAST it")
    return cast(value, kind, zone)


def integer(value: Sql, zone: str, kind: pa.DataType = INT) -> Sql:
    if value.type not in (*INTEGERS, NULL) or (value.type == BIGINT and kind != BIGINT):
        raise UnsupportedError(f"an INT is needed, not {name_of(value.type)}", "CAST(... AS INT)")
    return cast(value, kind, zone)


def literal_integer(value: Sql, what: str, limit: int) -> int:
    if value.type not in INTEGERS or value.constant is None:
        raise UnsupportedError(f"{what} must be an integer literal")
    number = int(value.constant)
    if abs(number) > limit:
        raise UnsupportedError(f"{what} must be at most {limit:,}")
    return number


def literal_string(value: Sql, what: str) -> str:
    if not isinstance(value.constant, str):
        raise UnsupportedError(f"{what} must be a string literal")
    return value.constant


def day(value: Sql, zone: str) -> Sql:
    if not is_temporal(value.type) and value.type != NULL and value.constant is None:
        raise UnsupportedError(f"a DATE is needed, not {name_of(value.type)}", "CAST(... AS DATE)")
    return cast(value, DATE, zone)


def moment(value: Sql, zone: str) -> Sql:
    """An argument that must be a TIMESTAMP or TIMESTAMP_NTZ."""
    if pa.types.is_timestamp(value.type):
        return value
    if value.type not in (DATE, NULL) and value.constant is None:
        raise UnsupportedError(f"a TIMESTAMP is needed, not {name_of(value.type)}", "CAST(... AS TIMESTAMP)")
    return cast(value, pa.timestamp("us", zone), zone)


def int_of(template: str, *parts: Sql, raises: bool = False) -> Sql:
    return strict(f"CAST({template} AS INTEGER)", INT, *parts, raises=raises)


# ---------------------------------------------------------------------------------------------------- choices and nulls


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


# ---------------------------------------------------------------------------------------------------- numbers


@function("Numbers", "abs(x)", note="fails for the smallest integer of a type")
def _abs(zone: str, x: Sql) -> Sql:
    if x.type not in INTERVALS:
        x = number(x, zone, DOUBLE if x.type == NULL else x.type)
    return made_by("ABS", strict("abs({0})", x.type, x, raises=x.type in (*INTEGERS, *INTERVALS)), x)


@function("Numbers", "sign(x)", "signum", note="a DOUBLE")
def _sign(zone: str, x: Sql) -> Sql:
    # The sign of a zero, of either sign, and of NaN is the value itself.
    text = "CASE WHEN {0} = 0 OR isnan({0}) THEN {0} WHEN {0} > 0 THEN 1 WHEN {0} < 0 THEN -1 END"
    return strict(f"CAST({text} AS DOUBLE)", DOUBLE, number(x, zone))


@function("Numbers", "ceil(x)", "ceiling", note="a BIGINT, or a DECIMAL for a DECIMAL; NaN becomes 0")
def _ceil(zone: str, x: Sql) -> Sql:
    return _whole("ceil", x, zone)


@function("Numbers", "floor(x)", note="likewise")
def _floor(zone: str, x: Sql) -> Sql:
    return _whole("floor", x, zone)


def _whole(name: str, x: Sql, zone: str) -> Sql:
    if is_decimal(x.type):
        kind = pa.decimal128(max(x.type.precision - x.type.scale + (x.type.scale > 0), 1), 0)
        if x.type.scale == 0:
            return cast(x, kind, zone)
        return strict(f"CAST({name}({{0}}) AS {duckdb_type(kind)})", kind, x)
    if x.type in INTEGERS:
        return cast(x, BIGINT, zone)
    x = number(x, zone)
    text = f"CASE WHEN isnan({{0}}) THEN 0 ELSE CAST({name}({{0}}) AS BIGINT) END"
    return strict(f"CAST({text} AS BIGINT)", BIGINT, x, raises=True)


@function("Numbers", "round(x[, digits])", note="halves away from zero; digits from 0 to 30; not for FLOAT")
def _round(zone: str, x: Sql, digits: Sql | None = None) -> Sql:
    return _rounded(zone, x, digits, even=False)


@function("Numbers", "bround(x[, digits])", note="halves to the even digit; for DOUBLE and integers")
def _bround(zone: str, x: Sql, digits: Sql | None = None) -> Sql:
    return _rounded(zone, x, digits, even=True)


def _rounded(zone: str, x: Sql, digits: Sql | None, *, even: bool) -> Sql:
    places = 0 if digits is None else literal_integer(digits, "the number of digits", 30)
    if places < 0:
        raise UnsupportedError("the number of digits cannot be negative")
    if x.type in INTEGERS:
        return replace(x, constant=None)
    if is_decimal(x.type) and not even:
        scale = min(x.type.scale, places)
        kind = pa.decimal128(min(x.type.precision - x.type.scale + 1 + scale, 38), scale)
        if scale == x.type.scale and kind.precision >= x.type.precision:
            return cast(replace(x, constant=None), kind, zone)
        return strict(f"CAST({{0}} AS {duckdb_type(kind)})", kind, x, raises=kind.precision == 38)
    if x.type in (DOUBLE, NULL):
        return strict(f"rounded({{0}}, {places}, {even})", DOUBLE, number(x, zone))
    raise UnsupportedError(f"{'bround' if even else 'round'} does not support {name_of(x.type)}", "CAST(... AS DOUBLE)")


@function("Numbers", "sqrt(x)", note="NaN for a negative number")
def _sqrt(zone: str, x: Sql) -> Sql:
    return strict("sqrt({0})", DOUBLE, number(x, zone))


_LAST_DIGIT = "may differ from Spark in the last digit of a DOUBLE"


@function("Numbers", "exp(x)", note=_LAST_DIGIT)
def _exp(zone: str, x: Sql) -> Sql:
    return strict("exp({0})", DOUBLE, number(x, zone))


@function("Numbers", "ln(x)", note=f"NULL where x <= 0; {_LAST_DIGIT}")
def _ln(zone: str, x: Sql) -> Sql:
    return _logarithm("ln", x, zone)


@function("Numbers", "log10(x)", note=f"NULL where x <= 0; {_LAST_DIGIT}")
def _log10(zone: str, x: Sql) -> Sql:
    return _logarithm("log10", x, zone)


@function("Numbers", "log2(x)", note=f"NULL where x <= 0; {_LAST_DIGIT}")
def _log2(zone: str, x: Sql) -> Sql:
    return _logarithm("log2", x, zone)


def _logarithm(name: str, x: Sql, zone: str) -> Sql:
    return strict(f"CASE WHEN {{0}} > 0 THEN {name}({{0}}) END", DOUBLE, number(x, zone), nulls=True)


@function("Numbers", "pow(x, y)", "power", note=_LAST_DIGIT)
def _pow(zone: str, x: Sql, y: Sql) -> Sql:
    # Unlike C, Java returns NaN for 1 to the power of NaN or infinity, and for -1 to the power of infinity.
    unknown = "isnan({1}) OR (abs({0}) = 1 AND isinf({1}))"
    text = f"CASE WHEN {unknown} THEN CAST('nan' AS DOUBLE) ELSE pow({{0}}, {{1}}) END"
    return strict(f"CAST({text} AS DOUBLE)", DOUBLE, number(x, zone), number(y, zone), guarded=True)


@function("Numbers", "mod(a, b)", note="as a % b")
def _mod(zone: str, a: Sql, b: Sql) -> Sql:
    return arithmetic("%", a, b, zone)


@function("Numbers", "pmod(a, b)", note="the remainder with the sign of b, or 0; not for DECIMAL")
def _pmod(zone: str, a: Sql, b: Sql) -> Sql:
    kind = common_type(a.type, b.type)
    if kind is None or (kind not in INTEGERS and kind not in FLOATS):
        raise UnsupportedError("pmod takes integers and floating point numbers", "CAST(... AS DOUBLE)")
    a, b = cast(a, kind, zone), cast(b, kind, zone)
    rest = remainder(a, b)
    again = remainder(strict("({0} + {1})", kind, rest, b, raises=kind in INTEGERS), b)
    zero = cast(Sql("CAST(0 AS TINYINT)", TINYINT, ()), kind, zone)
    return choose([(compare("<", rest, zero, zone), again)], rest, zone)


@function("Numbers", "try_divide(a, b)", note="NULL where b is 0; other failures stay")
def _try_divide(zone: str, a: Sql, b: Sql) -> Sql:
    return try_divide(a, b, zone)


@function("Numbers", "bit_count(n)")
def _bit_count(zone: str, n: Sql) -> Sql:
    # For negative numbers of any type, the bits of a BIGINT are counted.
    return int_of("bit_count({0})", cast(n, BIGINT, zone) if n.type == BOOLEAN else integer(n, zone, BIGINT))


# ---------------------------------------------------------------------------------------------------- texts


@function(
    "Texts",
    "concat(a, ...)",
    note="numbers but floating point ones, BOOLEAN, dates and times are taken as CAST to STRING",
)
def _concat(zone: str, first: Sql, *others: Sql) -> Sql:
    parts = [cast(part, STRING, zone) for part in (first, *others)]
    if len(parts) == 1:
        return replace(parts[0], constant=None)
    # A single concat, because a chain of || would also compute every prefix. concat skips NULLs.
    text = f"concat({', '.join(f'{{{number}}}' for number in range(len(parts)))})"
    size = sum((part.size for part in parts), Cost())
    return strict(text, STRING, *parts, guarded=True, eager=True, size=size)


@function("Texts", "upper(text)", "ucase", note="by the full mapping of Unicode: `ß` becomes `SS`")
def _upper(zone: str, value: Sql) -> Sql:
    return strict("upper_case({0})", STRING, string(value, zone))


@function("Texts", "lower(text)", "lcase", note="likewise")
def _lower(zone: str, value: Sql) -> Sql:
    return strict("lower_case({0})", STRING, string(value, zone))


@function("Texts", "length(text)", "char_length", "character_length", "len", note="in code points; of BINARY in bytes")
def _length(zone: str, value: Sql) -> Sql:
    if value.type == BINARY:
        return int_of("octet_length({0})", value)
    return int_of("length({0})", string(value, zone))


@function("Texts", "octet_length(text)", note="in bytes of UTF-8")
def _octet_length(zone: str, value: Sql) -> Sql:
    return int_of("strlen({0})", string(value, zone))


@function("Texts", "trim(text)", note="spaces, no other characters")
def _trim(zone: str, value: Sql) -> Sql:
    return strict("trim({0}, ' ')", STRING, string(value, zone))


@function("Texts", "ltrim(text)", note="likewise")
def _ltrim(zone: str, value: Sql) -> Sql:
    return strict("ltrim({0}, ' ')", STRING, string(value, zone))


@function("Texts", "rtrim(text)", note="likewise")
def _rtrim(zone: str, value: Sql) -> Sql:
    return strict("rtrim({0}, ' ')", STRING, string(value, zone))


@function("Texts", "substring(text, start[, length])", "substr", note="from 1; a negative start counts from the end")
def _substring(zone: str, value: Sql, start: Sql, length: Sql | None = None) -> Sql:
    value, start = string(value, zone), integer(start, zone)
    if isinstance(start.constant, Decimal) and start.constant > 0:
        shortened = "" if length is None else ", greatest({2}, 0)"
        parts = [] if length is None else [integer(length, zone)]
        return strict(f"substring({{0}}, {{1}}{shortened})", STRING, value, start, *parts, guarded=True)
    length = number_constant(Decimal(2**31 - 1), INT) if length is None else length
    place = "CASE WHEN {1} > 0 THEN {1} - 1 WHEN {1} < 0 THEN length({0}) + {1} ELSE 0 END"
    inside = f"greatest(least(({place}) + CAST({{2}} AS BIGINT), 2147483647) - greatest({place}, 0), 0)"
    cut = f"substring({{0}}, greatest({place}, 0) + 1, {inside})"
    return strict(cut, STRING, value, start, integer(length, zone), guarded=True)


@function("Texts", "left(text, n)")
def _left(zone: str, value: Sql, n: Sql) -> Sql:
    return strict("substring({0}, 1, greatest({1}, 0))", STRING, string(value, zone), integer(n, zone), guarded=True)


@function("Texts", "right(text, n)")
def _right(zone: str, value: Sql, n: Sql) -> Sql:
    start = "greatest(length({0}) - greatest(CAST({1} AS BIGINT), 0), 0) + 1"
    return strict(f"substring({{0}}, {start})", STRING, string(value, zone), integer(n, zone), guarded=True)


def _test(usage: str, name: str) -> None:
    @function("Texts", usage)
    def build(zone: str, value: Sql, other: Sql) -> Sql:
        return strict(f"{name}({{0}}, {{1}})", BOOLEAN, string(value, zone), string(other, zone))


_test("startswith(text, other)", "starts_with")
_test("endswith(text, other)", "suffix")
_test("contains(text, other)", "contains")


@function("Texts", "replace(text, search[, new])", note="`new` must be a literal")
def _replace(zone: str, value: Sql, search: Sql, new: Sql | None = None) -> Sql:
    new = string_constant("") if new is None else new
    value, search = string(value, zone), string(search, zone)
    # Each occurrence grows by the ratio of the lengths, so the result grows by at most this ratio.
    least = max(len(search.constant.encode()), 1) if isinstance(search.constant, str) else 1
    growth = max(1, len(literal_string(new, "what replaces").encode()) / least)
    return strict("replace({0}, {1}, {2})", STRING, value, search, new, size=value.size.times(growth))


@function("Texts", "instr(text, other)", note="from 1; 0 where there is none")
def _instr(zone: str, value: Sql, other: Sql) -> Sql:
    return int_of("strpos({0}, {1})", string(value, zone), string(other, zone))


@function("Texts", "locate(other, text)", "position", note="likewise")
def _locate(zone: str, other: Sql, value: Sql) -> Sql:
    return int_of("strpos({1}, {0})", string(other, zone), string(value, zone))


@function("Texts", "lpad(text, n[, with])", note="n must be a literal, at most 10,000")
def _lpad(zone: str, value: Sql, n: Sql, pad: Sql | None = None) -> Sql:
    return _padded("lpad", zone, value, n, pad)


@function("Texts", "rpad(text, n[, with])", note="likewise")
def _rpad(zone: str, value: Sql, n: Sql, pad: Sql | None = None) -> Sql:
    return _padded("rpad", zone, value, n, pad)


def _padded(name: str, zone: str, value: Sql, n: Sql, pad: Sql | None) -> Sql:
    pad = string_constant(" ") if pad is None else string(pad, zone)
    size = max(literal_integer(n, "the length", MAX_STRING), 0)
    padded = f"CASE WHEN {{1}} = '' THEN substring({{0}}, 1, {size}) ELSE {name}({{0}}, {size}, {{1}}) END"
    return strict(padded, STRING, string(value, zone), pad, size=Cost(fixed=4 * size))  # bytes


@function("Texts", "repeat(text, n)", note="n must be a literal, at most 100 for a text of an event")
def _repeat(zone: str, value: Sql, n: Sql) -> Sql:
    times = max(literal_integer(n, "the number of repetitions", MAX_STRING), 0)
    value = string(value, zone)
    return strict(f"repeat({{0}}, {times})", STRING, value, size=value.size.times(max(times, 1)))


@function("Texts", "reverse(text)", note="code point by code point")
def _reverse(zone: str, value: Sql) -> Sql:
    return strict("reversed_string({0})", STRING, string(value, zone))


@function(
    "Texts",
    "split_part(text, separator, n)",
    note="from 1; a negative n counts from the end; 0 fails; '' where there is none",
)
def _split_part(zone: str, value: Sql, separator: Sql, n: Sql) -> Sql:
    value, separator, n = string(value, zone), string(separator, zone), integer(n, zone)
    text = (
        f"CASE WHEN {{2}} = 0 THEN {error('part 0 of split_part')} "
        "WHEN {1} = '' THEN CASE WHEN {2} IN (1, -1) THEN {0} ELSE '' END ELSE split_part({0}, {1}, {2}) END"
    )
    return strict(text, STRING, value, separator, n, raises=not n.constant, guarded=True)


# ---------------------------------------------------------------------------------------------------- dates and times


def _field(group: str, name: str, template: str, *others: str, note: str = "") -> None:
    @function(group, f"{name}(when)", *others, note=note)
    def build(zone: str, when: Sql) -> Sql:
        return field(name, when, zone)

    _FIELDS[name] = template


_FIELDS: dict[str, str] = {}
_TIME_FIELDS = ("hour", "minute", "second")


def field(name: str, when: Sql, zone: str) -> Sql:
    """A field of a date or time, in the session time zone."""
    if name in _TIME_FIELDS:
        return int_of(_FIELDS[name], local_time(moment(when, zone), zone))
    if when.type == NULL or when.constant is not None:
        when = day(when, zone)
    if not is_temporal(when.type):
        raise UnsupportedError(f"a DATE or a TIMESTAMP is needed, not {name_of(when.type)}", "CAST it")
    return int_of(_FIELDS[name], local_time(when, zone))


_WHEN = "Dates and times"
_field(_WHEN, "year", "year({0})")
_field(_WHEN, "quarter", "quarter({0})")
_field(_WHEN, "month", "month({0})")
_field(_WHEN, "day", "day({0})", "dayofmonth")
_field(_WHEN, "dayofweek", "dayofweek({0}) + 1", note="1 is Sunday")
_field(_WHEN, "weekday", "isodow({0}) - 1", note="0 is Monday")
_field(_WHEN, "dayofyear", "dayofyear({0})")
_field(_WHEN, "weekofyear", "weekofyear({0})", note="of ISO 8601")
_field(_WHEN, "hour", "hour({0})")
_field(_WHEN, "minute", "minute({0})")
_field(_WHEN, "second", "second({0})", note="without the fraction")

EXTRACTED = {
    "YEAR": "year", "YEARS": "year", "QUARTER": "quarter", "MONTH": "month", "MONTHS": "month", "WEEK": "weekofyear",
    "DAY": "day", "DAYS": "day", "DAYOFWEEK": "dayofweek", "DOW": "dayofweek", "DOY": "dayofyear", "HOUR": "hour",
    "HOURS": "hour", "MINUTE": "minute", "MINUTES": "minute",
}  # fmt: skip
"""The fields of EXTRACT, with the functions that compute them."""

_UNITS = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month", "MON": "month", "MM": "month",
    "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second",
    "MILLISECOND": "millisecond", "MICROSECOND": "microsecond",
}  # fmt: skip


def _unit(value: Sql, allowed: int) -> str:
    name = literal_string(value, "the unit").upper()
    units = dict(list(_UNITS.items())[:allowed])
    if name not in units:
        raise UnsupportedError(f"unknown unit {name!r}", ", ".join(units))
    return units[name]


@function(
    _WHEN,
    "date_trunc('unit', when)",
    note="YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND, MICROSECOND",
)
def _date_trunc(zone: str, unit: Sql, when: Sql) -> Sql:
    name = _unit(unit, len(_UNITS))
    when = cast(moment(when, zone), pa.timestamp("us", zone), zone)
    if name in ("second", "millisecond", "microsecond"):
        return strict(f"date_trunc('{name}', {{0}})", when.type, when)
    cut = strict(f"date_trunc('{name}', {{0}})", NTZ, local_time(when, zone))
    if name in ("day", "hour", "minute"):
        return instant_near(cut, when, zone)
    return cast(cut, when.type, zone)


@function(_WHEN, "trunc(when, 'unit')", note="a DATE; YEAR, QUARTER, MONTH, WEEK")
def _trunc(zone: str, when: Sql, unit: Sql) -> Sql:
    return strict(f"CAST(date_trunc('{_unit(unit, 8)}', {{0}}) AS DATE)", DATE, day(when, zone))


_MICROS = {
    "MICROSECOND": 1, "MILLISECOND": 10**3, "SECOND": 10**6, "MINUTE": 60 * 10**6, "HOUR": 3600 * 10**6, "DAY": 86_400 * 10**6,
    "DAYOFYEAR": 86_400 * 10**6, "WEEK": 7 * 86_400 * 10**6,
}  # fmt: skip
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
UNIT_FIRST = ("timestampdiff", "timestampadd", "datediff", "date_diff", "dateadd", "date_add")
"""Functions whose first argument may be a unit as a keyword."""


def _time_unit(value: Sql) -> str:
    name = literal_string(value, "the unit").upper()
    if name not in _MICROS and name not in _MONTHS:
        raise UnsupportedError(f"unknown unit {name!r}", ", ".join([*_MICROS, *_MONTHS]))
    return name


@function(
    _WHEN, "timestampadd(unit, n, when)", note="a time moved by n of MICROSECOND ... WEEK, MONTH, QUARTER or YEAR"
)
def _timestampadd(zone: str, unit: Sql, n: Sql, when: Sql) -> Sql:
    name, n, when = _time_unit(unit), replace(integer(n, zone), constant=None), moment(when, zone)
    if when.type == DATE:
        when = cast(when, pa.timestamp("us", zone), zone)
    if name in _MONTHS:
        months = strict(f"({{0}} * {_MONTHS[name]})", MONTHS, n, raises=True)
        return shift(when, months, zone)
    return shift(
        when, strict(f"({{0}} * CAST({_MICROS[name]} AS BIGINT))", TIME, cast(n, BIGINT, zone), raises=True), zone
    )


@function(_WHEN, "timestampdiff(unit, start, end)", note="whole units between what the clocks show, a BIGINT")
def _timestampdiff(zone: str, unit: Sql, start: Sql, end: Sql) -> Sql:
    name = _time_unit(unit)
    local_times = [local_time(cast(moment(when, zone), pa.timestamp("us", zone), zone), zone) for when in (start, end)]
    if name in _MONTHS:
        return strict(f"(months_between_times({{0}}, {{1}}) // {_MONTHS[name]})", BIGINT, *local_times)
    a, b = (micros_of(local) for local in local_times)
    return strict(f"(({{1}} - {{0}}) // {_MICROS[name]})", BIGINT, a, b, raises=True)


@function(
    _WHEN,
    "date_add(day, n)",
    "dateadd",
    note="fails beyond the days of a DATE, where Spark's wrap; date_add(unit, n, when): as timestampadd",
)
def _date_add(zone: str, when: Sql, n: Sql, moved: Sql | None = None) -> Sql:
    if moved is not None:
        return _timestampadd(zone, when, n, moved)
    return add_days(day(when, zone), integer(n, zone), zone)


@function(_WHEN, "date_sub(day, n)", note="likewise")
def _date_sub(zone: str, when: Sql, n: Sql) -> Sql:
    return add_days(day(when, zone), integer(n, zone), zone, "-")


@function(_WHEN, "datediff(end, start)", "date_diff", note="days; datediff(unit, start, end): as timestampdiff")
def _datediff(zone: str, end: Sql, start: Sql, last: Sql | None = None) -> Sql:
    if last is not None:
        return _timestampdiff(zone, end, start, last)
    return int_of("({0} - {1})", day(end, zone), day(start, zone), raises=True)


@function(_WHEN, "add_months(day, n)")
def _add_months(zone: str, when: Sql, n: Sql) -> Sql:
    return shift(day(when, zone), replace(integer(n, zone), type=MONTHS, constant=None), zone)


@function(_WHEN, "last_day(day)", note="of the month")
def _last_day(zone: str, when: Sql) -> Sql:
    return strict("last_day({0})", DATE, day(when, zone))


@function(_WHEN, "make_date(year, month, day)", note="fails where there is no such day")
def _make_date(zone: str, year: Sql, month: Sql, number: Sql) -> Sql:
    parts = [integer(part, zone) for part in (year, month, number)]
    return strict("make_date({0}, {1}, {2})", DATE, *parts, raises=True)


@function(_WHEN, "to_date(a)", note="as CAST(a AS DATE); without a format")
def _to_date(zone: str, value: Sql) -> Sql:
    return cast(value, DATE, zone)


@function(_WHEN, "to_timestamp(a)", note="as CAST(a AS TIMESTAMP); without a format")
def _to_timestamp(zone: str, value: Sql) -> Sql:
    return cast(value, pa.timestamp("us", zone), zone)


def _timestamp(value: Sql) -> Sql:
    if not is_instant(value.type) and value.type != NULL:
        raise UnsupportedError(f"a TIMESTAMP is needed, not {name_of(value.type)}", "CAST(... AS TIMESTAMP)")
    return value if value.type != NULL else replace(null(NTZ))


@function(_WHEN, "unix_seconds(timestamp)", note="since 1970 UTC, rounded down")
def _unix_seconds(zone: str, value: Sql) -> Sql:
    return seconds_of(_timestamp(value))


@function(_WHEN, "unix_timestamp(timestamp)", note="since 1970 UTC, rounded towards 1970")
def _unix_timestamp(zone: str, value: Sql) -> Sql:
    return strict("(epoch_us({0}) // 1000000)", BIGINT, _timestamp(value))


@function(_WHEN, "unix_millis(timestamp)", note="since 1970 UTC, rounded down")
def _unix_millis(zone: str, value: Sql) -> Sql:
    return strict("(epoch_us(date_trunc('millisecond', {0})) // 1000)", BIGINT, _timestamp(value))


@function(_WHEN, "unix_micros(timestamp)", note="since 1970 UTC")
def _unix_micros(zone: str, value: Sql) -> Sql:
    return micros_of(_timestamp(value))


@function(_WHEN, "unix_date(day)", note="days since 1970")
def _unix_date(zone: str, value: Sql) -> Sql:
    if pa.types.is_timestamp(value.type):
        raise UnsupportedError(f"a DATE is needed, not {name_of(value.type)}", "CAST(... AS DATE)")
    return int_of("({0} - DATE '1970-01-01')", day(value, zone))


def _from_epoch(usage: str, micros: int) -> None:
    @function(_WHEN, usage, note="an integer since 1970 UTC")
    def build(zone: str, value: Sql) -> Sql:
        value = integer(value, zone, BIGINT)
        return strict(f"make_timestamp(({{0}} * {micros}))", pa.timestamp("us", zone), value, raises=micros > 1)


_from_epoch("timestamp_seconds(n)", 1_000_000)
_from_epoch("timestamp_millis(n)", 1000)
_from_epoch("timestamp_micros(n)", 1)


@function(_WHEN, "date_from_unix_date(n)", note="days since 1970")
def _date_from_unix_date(zone: str, value: Sql) -> Sql:
    return strict("make_date({0})", DATE, integer(value, zone))


# ---------------------------------------------------------------------------------------------------- casts, collections


def _cast_function(name: str, to: pa.DataType | None) -> None:
    @function("Casts", f"{name}(a)", note=f"as CAST(a AS {name.upper()})")
    def build(zone: str, value: Sql) -> Sql:
        return replace(cast(value, to or pa.timestamp("us", zone), zone), constant=None)


for _name, _to in (
    ("boolean", BOOLEAN), ("tinyint", TINYINT), ("smallint", SMALLINT), ("int", INT), ("bigint", BIGINT), ("float", FLOAT),
    ("double", DOUBLE), ("string", STRING), ("date", DATE), ("timestamp", None),
):  # fmt: skip
    _cast_function(_name, _to)


def _array(value: Sql) -> Sql:
    if not pa.types.is_list(value.type):
        raise UnsupportedError(f"an ARRAY is needed, not {name_of(value.type)}")
    return value


@function("Arrays and maps", "size(a)", "cardinality", note="of an ARRAY or a MAP; NULL of NULL")
def _size(zone: str, value: Sql) -> Sql:
    return int_of(
        "cardinality({0})" if pa.types.is_map(value.type) else "len({0})",
        value if pa.types.is_map(value.type) else _array(value),
    )


@function("Arrays and maps", "array_size(array)")
def _array_size(zone: str, value: Sql) -> Sql:
    return int_of("len({0})", _array(value))


@function("Arrays and maps", "array_contains(array, a)", note="NULL where it is not in an array that holds a NULL")
def _array_contains(zone: str, array: Sql, value: Sql) -> Sql:
    item = _array(array).type.value_type
    if value.type == NULL or is_nested(item) or common_type(item, value.type) != item:
        raise UnsupportedError(
            f"{name_of(array.type)} cannot hold {name_of(value.type)}", f"CAST(... AS {name_of(item)})"
        )
    value = cast(value, item, zone)
    nulls = "len(list_filter({0}, lambda item: item IS NULL))"
    sql_text = f"CASE WHEN list_contains({{0}}, {{1}}) THEN TRUE WHEN {nulls} = 0 THEN FALSE END"
    return strict(sql_text, BOOLEAN, array, value, nulls=True, guarded=True)


@function("Arrays and maps", "get(array, i)", note="from 0; NULL outside; i is no BIGINT")
def _get(zone: str, array: Sql, i: Sql) -> Sql:
    # As a BIGINT, because one more than the largest INT overflows.
    text = "CASE WHEN {1} >= 0 THEN list_extract({0}, CAST({1} AS BIGINT) + 1) END"
    return _picked(text, _array(array), integer(i, zone))


@function(
    "Arrays and maps",
    "element_at(array, i)",
    note="from 1; a negative i counts from the end; fails outside. element_at(map, key): as map[key]",
)
def _element_at(zone: str, collection: Sql, i: Sql) -> Sql:
    if pa.types.is_map(collection.type):
        return item_of(collection, i, zone)
    outside = f"WHEN {{1}} = 0 OR abs(CAST({{1}} AS BIGINT)) > len({{0}}) THEN {error('there is no such element')}"
    text = f"CASE WHEN {{0}} IS NULL OR {{1}} IS NULL THEN NULL {outside} ELSE list_extract({{0}}, {{1}}) END"
    return _picked(text, _array(collection), integer(i, zone), raises=True)


@function("Arrays and maps", "try_element_at(array, i)", note="likewise, but NULL outside; 0 fails")
def _try_element_at(zone: str, collection: Sql, i: Sql) -> Sql:
    if pa.types.is_map(collection.type):
        return item_of(collection, i, zone)
    text = f"CASE WHEN {{0}} IS NOT NULL AND {{1}} = 0 THEN {error('there is no element 0')} ELSE list_extract({{0}}, {{1}}) END"
    return _picked(text, _array(collection), integer(i, zone), raises=not i.constant)


def _picked(text: str, collection: Sql, at: Sql, *, raises: bool = False) -> Sql:
    return strict(f"({text})", collection.type.value_type, collection, at, raises=raises, nulls=True)


def item_of(collection: Sql, at: Sql, zone: str) -> Sql:
    """``collection[at]``"""
    if pa.types.is_map(collection.type):
        key = collection.type.key_type
        if at.type == NULL or is_nested(key) or common_type(key, at.type) != key:
            raise UnsupportedError(f"the keys of a {name_of(collection.type)} are not {name_of(at.type)}")
        at = cast(at, key, zone)
        return strict("map_extract_value({0}, {1})", collection.type.item_type, collection, at, nulls=True)
    at = integer(at, zone, BIGINT)
    outside = f"WHEN {{1}} < 0 OR {{1}} >= len({{0}}) THEN {error('there is no such element')}"
    text = f"CASE WHEN {{0}} IS NULL OR {{1}} IS NULL THEN NULL {outside} ELSE list_extract({{0}}, {{1}} + 1) END"
    return _picked(text, _array(collection), at, raises=True)


def field_of(value: Sql, name: str) -> Sql:
    """``value.name``"""
    if not pa.types.is_struct(value.type):
        raise UnsupportedError(f"{name_of(value.type)} has no fields")
    names = [part.name for part in value.type]
    alike = [part for part in names if part == name] or [part for part in names if part.lower() == name.lower()]
    if len(alike) != 1 or names.count(alike[0]) != 1:
        raise UnsupportedError(f"unknown field {name!r}", f"fields: {', '.join(names)}")
    label = "'" + alike[0].replace("'", "''") + "'"
    return strict(
        f"struct_extract({{0}}, {label.replace('{', '{{').replace('}', '}}')})",
        value.type.field(alike[0]).type,
        value,
        nulls=True,
    )
