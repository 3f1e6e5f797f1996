"""Functions of parts of texts, of lists and maps in texts, and of how similar texts are."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from asterism.expressions.functions.table import (
    MAX_STRING,
    function,
    integer,
    literal_integer,
    literal_string,
    string,
    string_or_octets,
)
from asterism.expressions.types import BINARY, BOOLEAN, DOUBLE, INT, NULL, STRING, name_of
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

_TEXTS = "Texts"
_STRINGS = pa.list_(STRING)


@function(_TEXTS, "ascii(text)", note="the code point of the first character; 0 of ''")
def _ascii(zone: str, value: Sql) -> Sql:
    return strict("CAST(greatest(unicode({0}), 0) AS INTEGER)", INT, string(value, zone), guarded=True)


@function(_TEXTS, "chr(n)", "char", note="the character with code n modulo 256; '' where n < 0")
def _chr(zone: str, n: Sql) -> Sql:
    n = integer(n, zone, pa.int64())
    return strict("CASE WHEN {0} < 0 THEN '' ELSE chr(CAST({0} & 255 AS INTEGER)) END", STRING, n, guarded=True)


@function(_TEXTS, "space(n)", note="n spaces; n must be a literal, at most 10,000")
def _space(zone: str, n: Sql) -> Sql:
    count = max(literal_integer(n, "the number of spaces", MAX_STRING), 0)
    return combined(f"repeat(' ', {count})", STRING, [], (), size=Cost(fixed=count))


@function(_TEXTS, "initcap(text)", note="each word in lower case with a capital; words are separated by spaces only")
def _initcap(zone: str, value: Sql) -> Sql:
    value = string(value, zone)
    return strict("initial_capitals({0})", STRING, value, size=value.size.times(3))


@function(_TEXTS, "quote(text)", note="in single quotes, with a backslash before each inside")
def _quote(zone: str, value: Sql) -> Sql:
    value = string(value, zone)
    text = r"concat('''', replace({0}, '''', '\'''), '''')"
    return strict(text, STRING, value, guarded=True, size=value.size.times(2) + Cost(fixed=2))


@function(
    _TEXTS,
    "mask(text[, upper[, lower[, digit[, other]]]])",
    note="letters as `X` and `x`, digits as `n`, or as the given literals; NULL keeps characters, by default others",
    strict=False,
)
def _mask(
    zone: str,
    value: Sql,
    upper: Sql | None = None,
    lower: Sql | None = None,
    digit: Sql | None = None,
    other: Sql | None = None,
) -> Sql:
    masks = []
    for mask, default in zip((upper, lower, digit, other), ("X", "x", "n", None), strict=True):
        new = default if mask is None else None
        if mask is not None and mask.type != NULL:
            new = literal_string(mask, "what masks")
            if len(new) != 1:
                raise UnsupportedError("what masks must be a single character")
        masks.append("CAST(NULL AS VARCHAR)" if new is None else string_constant(new).text)
    value = string(value, zone)
    shown = [mask.replace("{", "{{").replace("}", "}}") for mask in masks]
    return strict(f"masked({{0}}, {', '.join(shown)})", STRING, value, size=value.size.times(4))


@function(_TEXTS, "overlay(text, new, start[, length])", note="`new` in place of `length` characters; also of BINARY")
def _overlay(zone: str, value: Sql, new: Sql, start: Sql, length: Sql | None = None) -> Sql:
    length = number_constant(Decimal(-1), INT) if length is None else integer(length, zone)
    value, new = string_or_octets(value, zone), string_or_octets(new, zone)
    if value.type != new.type:
        raise UnsupportedError(f"{name_of(value.type)} and {name_of(new.type)} cannot be combined", "CAST one of them")
    routine = "overlaid_bytes" if value.type == BINARY else "overlaid"
    parts = [value, new, integer(start, zone), length]
    return strict(f"{routine}({{0}}, {{1}}, {{2}}, {{3}})", value.type, *parts, size=value.size.times(2) + new.size)


@function(
    _TEXTS, "translate(text, from, to)", note="each character in `from` becomes that at the same place in `to`, if any"
)
def _translate(zone: str, value: Sql, source: Sql, target: Sql) -> Sql:
    value = string(value, zone)
    parts = [value, string(source, zone), string(target, zone)]
    return strict("translated({0}, {1}, {2})", STRING, *parts, size=value.size.times(4))


@function(
    _TEXTS,
    "substring_index(text, delimiter, n)",
    note="what is before the n-th one; after it, from the end, where n < 0",
)
def _substring_index(zone: str, value: Sql, delimiter: Sql, n: Sql) -> Sql:
    parts = [string(value, zone), string(delimiter, zone), integer(n, zone)]
    return strict("part_before({0}, {1}, {2})", STRING, *parts)


# ---------------------------------------------------------------------------------------------------- lists


@function(_TEXTS, "concat_ws(separator, a, ...)", note="texts, and those in arrays; NULL is left out", strict=False)
def _concat_ws(zone: str, separator: Sql, *values: Sql) -> Sql:
    separator = string(separator, zone)
    parts = [value if value.type == _STRINGS else string(value, zone) for value in values]
    made = sum((part.size for part in parts), Cost()) + separator.size.times(max(len(parts) - 1, 0))
    if any(part.type == _STRINGS for part in parts):
        # There is a separator between elements, of which there are at most as many as their string has bytes.
        made = made.times(1 + len(literal_string(separator, "the separator of arrays").encode()))
        items = ", ".join(f"COALESCE({p.text}, [])" if p.type == _STRINGS else f"[{p.text}]" for p in parts)
        text = f"array_to_string(list_filter(flatten([{items}]), lambda part: part IS NOT NULL), {separator.text})"
    elif parts:
        text = f"concat_ws({', '.join(part.text for part in (separator, *parts))})"
    else:
        text = "''"
    text = f"CAST(CASE WHEN {separator.is_null} THEN NULL ELSE {text} END AS VARCHAR)"
    return combined(text, STRING, [separator, *parts], separator.nullable_operands, size=made)


@function(
    _TEXTS, "elt(n, a, ...)", note="the n-th text, from 1; fails where there is none; also of BINARY", strict=False
)
def _elt(zone: str, n: Sql, first: Sql, *others: Sql) -> Sql:
    n, values = integer(n, zone), [first, *others]
    kind = BINARY if {BINARY} <= {value.type for value in values} <= {BINARY, NULL} else STRING
    choices = [cast(value, kind, zone) for value in values]
    branches = " ".join(f"WHEN {number} THEN {choice.text}" for number, choice in enumerate(choices, 1))
    outside = f"CASE WHEN {n.text} IS NOT NULL THEN {error('there is no such text')} END"
    text = f"CASE {n.text} {branches} ELSE {outside} END"
    return combined(f"CAST({text} AS {'BLOB' if kind == BINARY else 'VARCHAR'})", kind, [n, *choices], raises=True)


@function(_TEXTS, "find_in_set(text, list)", note="the place in a list with commas, from 1; 0 where it is not in it")
def _find_in_set(zone: str, value: Sql, items: Sql) -> Sql:
    text = "CASE WHEN contains({0}, ',') THEN 0 ELSE COALESCE(list_position(string_split({1}, ','), {0}), 0) END"
    return strict(f"CAST({text} AS INTEGER)", INT, string(value, zone), string(items, zone), guarded=True)


@function(
    _TEXTS,
    "str_to_map(text[, pairs[, values]])",
    note="a MAP, by default of `a:1,b:2`; the delimiters are literals; fails for a key that occurs twice",
)
def _str_to_map(zone: str, value: Sql, pairs: Sql | None = None, values: Sql | None = None) -> Sql:
    delimiters = [
        string_constant(default) if given is None else given for given, default in ((pairs, ","), (values, ":"))
    ]
    for delimiter in delimiters:
        text = literal_string(delimiter, "the delimiter")
        if not text or set(text) & set(r"\.[]{}()*+-?^$|<>#&~"):
            raise UnsupportedError(
                f"{text!r} cannot be a delimiter", "it must have no special characters of regular expressions"
            )
    value = string(value, zone)
    parts = [value, *delimiters]
    return strict(
        "string_map({0}, {1}, {2})", pa.map_(STRING, STRING), *parts, raises=True, size=value.size.times(4)
    )  # as split


# ---------------------------------------------------------------------------------------------------- similarity


@function(_TEXTS, "levenshtein(a, b[, most])", note="the edit distance; -1 where it is more than `most`", strict=False)
def _levenshtein(zone: str, a: Sql, b: Sql, most: Sql | None = None) -> Sql:
    a, b = string(a, zone), string(b, zone)
    # DuckDB compares bytes.
    short = "strlen({0}) = length({0}) AND strlen({1}) = length({1}) AND strlen({0}) * strlen({1}) <= 1000000"
    text = f"CASE WHEN {short} THEN levenshtein({{0}}, {{1}}) ELSE edit_distance({{0}}, {{1}}) END"
    distance = strict(f"CAST({text} AS INTEGER)", INT, a, b, guarded=True)
    if most is None:
        return distance
    most = combined(f"COALESCE({integer(most, zone).text}, 0)", INT, [integer(most, zone)], ())
    return strict("CASE WHEN {0} <= {1} THEN {0} ELSE CAST(-1 AS INTEGER) END", INT, distance, most, guarded=True)


@function(_TEXTS, "jaro_winkler_similarity(a, b)", note="a DOUBLE from 0 to 1")
def _jaro_winkler(zone: str, a: Sql, b: Sql) -> Sql:
    return strict("jaro_winkler({0}, {1})", DOUBLE, string(a, zone), string(b, zone))


@function(_TEXTS, "soundex(text)", note="how an English word sounds: `R163`")
def _soundex(zone: str, value: Sql) -> Sql:
    return strict("soundex_code({0})", STRING, string(value, zone), size=string(value, zone).size + Cost(fixed=4))


@function(_TEXTS, "luhn_check(digits)", note="whether the check digit of a number, such as that of a card, is right")
def _luhn_check(zone: str, value: Sql) -> Sql:
    return strict("luhn_valid({0})", BOOLEAN, string(value, zone))
