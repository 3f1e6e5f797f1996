"""Functions of texts."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa

from asterism.expressions.functions.table import (
    MAX_STRING,
    function,
    int_of,
    integer,
    literal_integer,
    literal_string,
    string,
    string_or_octets,
)
from asterism.expressions.routines import texts  # noqa: F401
from asterism.expressions.types import BINARY, BOOLEAN, INT, NULL, STRING
from asterism.expressions.values import (
    Cost,
    Sql,
    UnsupportedError,
    cast,
    combined,
    error,
    number_constant,
    strict,
    string_constant,
)


@function(
    "Texts",
    "concat(a, ...)",
    note="numbers but floating point ones, BOOLEAN, dates and times are taken as CAST to STRING; BINARY with BINARY is BINARY; "
    "also of arrays",
)
def _concat(zone: str, first: Sql, *others: Sql) -> Sql:
    values = [first, *others]
    if pa.types.is_list(first.type):
        from asterism.expressions.functions.arrays import concatenated  # later in the documentation

        return concatenated(values, zone)
    binary = {BINARY} <= {value.type for value in values} <= {BINARY, NULL}
    parts = [cast(value, BINARY if binary else STRING, zone) for value in values]
    if len(parts) == 1:
        return replace(parts[0], constant=None)
    # A single concat, because a chain of || would also compute every prefix. concat skips NULLs.
    text = f"concat({', '.join(f'{{{number}}}' for number in range(len(parts)))})"
    if binary:
        text = f"unhex({text.replace('{', 'hex({').replace('}', '})')})"
    size = sum((part.size for part in parts), Cost())
    return strict(text, parts[0].type, *parts, guarded=True, eager=True, size=size)


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


@function("Texts", "octet_length(text)", note="in bytes of UTF-8; also of BINARY")
def _octet_length(zone: str, value: Sql) -> Sql:
    return int_of(_BYTES[value.type == BINARY], string_or_octets(value, zone))


@function("Texts", "bit_length(text)", note="eight times that")
def _bit_length(zone: str, value: Sql) -> Sql:
    return int_of(f"(8 * {_BYTES[value.type == BINARY]})", string_or_octets(value, zone))


_BYTES = ("strlen({0})", "octet_length({0})")


def _trimming(usage: str, name: str, note: str) -> None:
    @function("Texts", usage, note=note)
    def build(zone: str, characters: Sql, value: Sql | None = None) -> Sql:
        if value is None:
            return strict(f"{name}({{0}}, ' ')", STRING, string(characters, zone))
        return strict(f"{name}({{1}}, {{0}})", STRING, string(characters, zone), string(value, zone))


_trimming("trim([characters, ]text)", "trim", "spaces, or the given characters, at both ends")
_trimming("ltrim([characters, ]text)", "ltrim", "likewise, at the beginning")
_trimming("rtrim([characters, ]text)", "rtrim", "likewise, at the end")


@function("Texts", "btrim(text[, characters])", note="as trim, with the arguments the other way round")
def _btrim(zone: str, value: Sql, characters: Sql | None = None) -> Sql:
    characters = string_constant(" ") if characters is None else characters
    return strict("trim({0}, {1})", STRING, string(value, zone), string(characters, zone))


@function(
    "Texts",
    "substring(text, start[, length])",
    "substr",
    note="from 1; a negative start counts from the end; also of BINARY",
)
def _substring(zone: str, value: Sql, start: Sql, length: Sql | None = None) -> Sql:
    value, start = string_or_octets(value, zone), integer(start, zone)
    if value.type == BINARY:
        longest = number_constant(Decimal(2**31 - 1), INT)
        parts = [value, start, longest if length is None else integer(length, zone)]
        return strict("part_of_bytes({0}, {1}, {2})", BINARY, *parts)
    if isinstance(start.constant, Decimal) and start.constant > 0:
        shortened = "" if length is None else ", greatest({2}, 0)"
        parts = [] if length is None else [integer(length, zone)]
        return strict(f"substring({{0}}, {{1}}{shortened})", STRING, value, start, *parts, guarded=True)
    length = number_constant(Decimal(2**31 - 1), INT) if length is None else length
    place = "CASE WHEN {1} > 0 THEN {1} - 1 WHEN {1} < 0 THEN length({0}) + {1} ELSE 0 END"
    inside = f"greatest(least(({place}) + CAST({{2}} AS BIGINT), 2147483647) - greatest({place}, 0), 0)"
    cut = f"substring({{0}}, greatest({place}, 0) + 1, {inside})"
    return strict(cut, STRING, value, start, integer(length, zone), guarded=True)


@function("Texts", "left(text, n)", note="also of BINARY")
def _left(zone: str, value: Sql, n: Sql) -> Sql:
    if value.type == BINARY:
        return strict("part_of_bytes({0}, 1, {1})", BINARY, value, integer(n, zone))
    return strict("substring({0}, 1, greatest({1}, 0))", STRING, string(value, zone), integer(n, zone), guarded=True)


@function("Texts", "right(text, n)")
def _right(zone: str, value: Sql, n: Sql) -> Sql:
    start = "greatest(length({0}) - greatest(CAST({1} AS BIGINT), 0), 0) + 1"
    return strict(f"substring({{0}}, {start})", STRING, string(value, zone), integer(n, zone), guarded=True)


def _test(usage: str, name: str, of_bytes: str) -> None:
    @function("Texts", usage, note="also of BINARY")
    def build(zone: str, value: Sql, other: Sql) -> Sql:
        if value.type == other.type == BINARY:
            return strict(of_bytes, BOOLEAN, value, other)
        return strict(f"{name}({{0}}, {{1}})", BOOLEAN, string(value, zone), string(other, zone))


_test("startswith(text, other)", "starts_with", "starts_with(hex({0}), hex({1}))")
_test("endswith(text, other)", "suffix", "suffix(hex({0}), hex({1}))")
_test("contains(text, other)", "contains", "bytes_contain({0}, {1})")


@function("Texts", "replace(text, search[, new])", note="`new` must be a literal")
def _replace(zone: str, value: Sql, search: Sql, new: Sql | None = None) -> Sql:
    new = string_constant("") if new is None else new
    value, search = string(value, zone), string(search, zone)
    # Each occurrence grows by the ratio of the lengths, so the result grows by at most this ratio.
    least = max(len(search.constant.encode()), 1) if isinstance(search.constant, str) else 1
    growth = max(1, len(literal_string(new, "what replaces").encode()) / least)
    return strict("replace({0}, {1}, {2})", STRING, value, search, new, size=value.size.times(growth))


@function(
    "Texts",
    "instr(text, other[, start[, n]])",
    note="from 1; 0 where there is none. The n-th one from `start` on; a negative `start` searches backwards from the end",
)
def _instr(zone: str, value: Sql, other: Sql, start: Sql | None = None, n: Sql | None = None) -> Sql:
    value, other = string(value, zone), string(other, zone)
    if start is None:
        return int_of("strpos({0}, {1})", value, other)
    n = _ONE if n is None else integer(n, zone)
    raises = not (isinstance(n.constant, Decimal) and n.constant > 0)
    return strict("place_of({0}, {1}, {2}, {3})", INT, value, other, integer(start, zone), n, raises=raises)


_ONE = number_constant(Decimal(1), INT)


@function("Texts", "locate(other, text[, start])", "position", note="likewise; 0 where `start` is NULL or less than 1")
def _locate(zone: str, other: Sql, value: Sql, start: Sql | None = None) -> Sql:
    value, other = string(value, zone), string(other, zone)
    if start is None:
        return int_of("strpos({1}, {0})", other, value)
    start = integer(start, zone)
    found = strict("place_of({1}, {0}, {2}, 1)", INT, other, value, start)
    none = strict("CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN 0 END", INT, other, value)
    text = f"CASE WHEN {start.text} IS NULL THEN 0 WHEN {start.text} < 1 THEN {none.text} ELSE {found.text} END"
    return combined(f"CAST({text} AS INTEGER)", INT, [start, none, found])


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


@function("Texts", "reverse(text)", note="code point by code point; also of an ARRAY")
def _reverse(zone: str, value: Sql) -> Sql:
    if pa.types.is_list(value.type):
        from asterism.expressions.functions.arrays import reversed_array

        return reversed_array(value)
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


_COLLATION = "UTF8_BINARY"


@function(
    "Texts", "collation(text)", strict=False, note="`SYSTEM.BUILTIN.UTF8_BINARY`: texts are compared by their bytes"
)
def _collation(zone: str, value: Sql) -> Sql:
    string(value, zone)
    name = string_constant(f"SYSTEM.BUILTIN.{_COLLATION}")
    return combined(name.text, STRING, [], (), size=name.size)


@function("Texts", "collate(text, 'UTF8_BINARY')", note="the text itself; there are no other collations")
def _collate(zone: str, value: Sql, name: Sql) -> Sql:
    if literal_string(name, "the collation").upper() != _COLLATION:
        raise UnsupportedError(f"unknown collation {name.constant!r:.60}", _COLLATION)
    return replace(string(value, zone), constant=None)
