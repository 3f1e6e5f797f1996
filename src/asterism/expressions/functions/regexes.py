"""Functions of patterns: LIKE and regular expressions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa

from asterism.expressions import regex as patterns
from asterism.expressions.functions.table import FUNCTIONS, function, int_of, literal_integer, literal_string, string
from asterism.expressions.routines.regexes import replacement
from asterism.expressions.types import BOOLEAN, INT, STRING
from asterism.expressions.values import Cost, Sql, UnsupportedError, number_constant, strict, string_constant

_GROUP = "Patterns"
_LISTED = 4
"""How much longer an array of strings is than the string of which they are parts, at most a byte each."""


@function(_GROUP, "like(text, 'pattern'[, 'escape'])", note="as a LIKE b")
def _like(zone: str, value: Sql, pattern: Sql, escape: Sql | None = None) -> Sql:
    return like(zone, value, pattern, escape, fold=False)


@function(_GROUP, "ilike(text, 'pattern'[, 'escape'])", note="as a ILIKE b")
def _ilike(zone: str, value: Sql, pattern: Sql, escape: Sql | None = None) -> Sql:
    return like(zone, value, pattern, escape, fold=True)


def like(zone: str, value: Sql, pattern: Sql, escape: Sql | None, *, fold: bool) -> Sql:
    text = literal_string(pattern, "the pattern of LIKE")
    character = "\\" if escape is None else literal_string(escape, "the escape character")
    value = string(value, zone)
    if fold:
        value, text = FUNCTIONS["lower"](zone, [value]), text.lower()
    return strict("({0} LIKE {1} ESCAPE '\\')", BOOLEAN, value, string_constant(patterns.like(text, character)))


@function(
    _GROUP,
    "rlike(text, 'pattern')",
    "regexp_like",
    "regexp",
    note="as a RLIKE b; the pattern must be a literal, see below",
)
def rlike(zone: str, value: Sql, pattern: Sql) -> Sql:
    parsed = patterns.regex(literal_string(pattern, "the pattern of RLIKE"))
    value, shown = string(value, zone), replace(string_constant(parsed.for_re2()), cost=Cost(program=parsed.size))
    if not parsed.any_end:
        return strict("regexp_matches({0}, {1})", BOOLEAN, value, shown)
    like = (
        "CASE WHEN regexp_matches({0}, {1}) THEN TRUE "
        "WHEN regexp_matches({0}, {2}) THEN regexp_matches(regexp_replace({0}, {2}, ''), {1}) ELSE FALSE END"
    )
    return strict(like, BOOLEAN, value, shown, string_constant(patterns.TERMINATOR), guarded=True)


def _parsed(pattern: Sql) -> patterns.Regex:
    """A pattern of which more is asked than whether it matches."""
    parsed = patterns.regex(literal_string(pattern, "the pattern"))
    if parsed.repeats_nothing:
        raise UnsupportedError(
            "a repeated group in the pattern can match the empty string", "write a+ instead of (a*)+"
        )
    return parsed


def _number(group: Sql | None, parsed: patterns.Regex) -> int:
    """The number of a group, by default the first."""
    number = 1 if group is None else literal_integer(group, "the number of the group", 1000)
    if not 0 <= number <= parsed.groups:
        raise UnsupportedError(f"the pattern has no group {number}", "0 as a third argument is the whole match")
    return number


def _found(
    routine: str,
    native: str,
    data_type: pa.DataType,
    parsed: patterns.Regex,
    value: Sql,
    *parts: Sql,
    captured: Collection[int] = (),
    slow: bool = False,
    size: Cost | None = None,
) -> Sql:
    """The value of *native*, or of *routine* where RE2 differs from Java.

    The placeholders of both are ``{0}`` for the string, ``{1}`` for the pattern for RE2, and the following ones for *parts*.

    :param slow: whether RE2 always differs
    """
    compiled = replace(string_constant(parsed.for_re2(captured)), cost=Cost(program=parsed.size))
    text = routine if slow else native
    if parsed.any_end and not slow:
        text = f"CASE WHEN regexp_matches({{0}}, {{{len(parts) + 2}}}) THEN {routine} ELSE {native} END"
    return strict(text, data_type, value, compiled, *parts, string_constant(patterns.TERMINATOR), size=size)


@function(_GROUP, "regexp_extract(text, 'pattern'[, group])", note="of the first match; '' where there is none")
def _regexp_extract(zone: str, value: Sql, pattern: Sql, group: Sql | None = None) -> Sql:
    parsed = _parsed(pattern)
    number = _number(group, parsed)
    native = f"regexp_extract({{0}}, {{1}}, {min(number, 1)})"
    routine = f"regex_group({{0}}, {{2}}, {number})"
    return _found(routine, native, STRING, parsed, string(value, zone), pattern, captured=[number])


@function(_GROUP, "regexp_substr(text, 'pattern')", note="the first match; NULL where there is none, or it is empty")
def _regexp_substr(zone: str, value: Sql, pattern: Sql) -> Sql:
    return strict("nullif({0}, '')", STRING, _regexp_extract(zone, value, pattern, _ZERO), nulls=True)


_ZERO = number_constant(Decimal(0), INT)


@function(_GROUP, "regexp_extract_all(text, 'pattern'[, group])", note="of each match, an array")
def _regexp_extract_all(zone: str, value: Sql, pattern: Sql, group: Sql | None = None) -> Sql:
    parsed = _parsed(pattern)
    number = _number(group, parsed)
    native = f"regexp_extract_all({{0}}, {{1}}, {min(number, 1)})"
    if number:  # a group that is in no alternative of the match
        native = f"list_transform({native}, lambda part: COALESCE(part, ''))"
    return _found(
        f"regex_groups({{0}}, {{2}}, {number})",
        native,
        pa.list_(STRING),
        parsed,
        value := string(value, zone),
        pattern,
        captured=[number],
        slow=parsed.can_be_empty,
        size=value.size.times(_LISTED),
    )


@function(_GROUP, "regexp_count(text, 'pattern')", note="the number of matches")
def _regexp_count(zone: str, value: Sql, pattern: Sql) -> Sql:
    return int_of("len({0})", _regexp_extract_all(zone, value, pattern, _ZERO))


@function(
    _GROUP, "regexp_instr(text, 'pattern')", note="the position of the first match, from 1; 0 where there is none"
)
def _regexp_instr(zone: str, value: Sql, pattern: Sql) -> Sql:
    parsed = _parsed(pattern)
    before = replace(string_constant(f"(?s)^(.*?)(?:{parsed.for_re2()})"), cost=Cost(program=parsed.size + 10))
    native = "CASE WHEN regexp_matches({0}, {1}) THEN length(regexp_extract({0}, {3}, 1)) + 1 WHEN {0} IS NOT NULL THEN 0 END"
    found = _found("regex_place({0}, {2})", native, INT, parsed, string(value, zone), pattern, before)
    return int_of("{0}", found)


@function(
    _GROUP,
    "regexp_replace(text, 'pattern', 'new'[, position])",
    note="all matches from a position on, by default 1; `$1` in `new`, a literal, is the first group",
)
def _regexp_replace(zone: str, value: Sql, pattern: Sql, new: Sql, position: Sql | None = None) -> Sql:
    parsed, value = _parsed(pattern), string(value, zone)
    begin = 1 if position is None else literal_integer(position, "the position", 2**31 - 1)
    if begin < 1:
        raise UnsupportedError("the position must be at least 1")
    try:
        pieces = replacement(literal_string(new, "what replaces"), parsed.groups)
    except ValueError as problem:
        raise UnsupportedError(str(problem)) from None
    captured = sorted({piece for piece in pieces if isinstance(piece, int) and piece})
    rewritten = "".join(
        piece.replace("\\", r"\\") if isinstance(piece, str) else f"\\{captured.index(piece) + 1 if piece else 0}"
        for piece in pieces
    )
    written = sum(len(piece.encode()) for piece in pieces if isinstance(piece, str))
    references = sum(isinstance(piece, int) for piece in pieces)
    fewest = patterns.shortest(parsed.whole)  # bytes of a match
    growth = max(1, written / fewest + references) if fewest else 1 + 2 * written + references
    return _found(
        f"regex_replaced({{0}}, {{2}}, {{3}}, {begin})",
        "regexp_replace({0}, {1}, {4}, 'g')",
        STRING,
        parsed,
        value,
        pattern,
        new,
        string_constant(rewritten),
        captured=captured,
        slow=parsed.can_be_empty or begin > 1 or len(captured) > 9,
        size=value.size.times(growth) + Cost(fixed=written),
    )


@function(
    _GROUP,
    "split(text, 'pattern'[, limit])",
    note="an array of what is between the matches; of the characters for ''. Where limit > 0, of at most so many strings",
)
def _split(zone: str, value: Sql, pattern: Sql, limit: Sql | None = None) -> Sql:
    parsed, value = _parsed(pattern), string(value, zone)
    most = -1 if limit is None else literal_integer(limit, "the limit", 2**31 - 1)
    native = "string_split_regex({0}, {1})"
    literal = parsed.literal
    return _found(
        f"regex_split({{0}}, {{2}}, {most})",
        native if not literal else "string_split({0}, {3})",
        pa.list_(STRING),
        parsed,
        value,
        pattern,
        string_constant(literal or ""),
        slow=parsed.can_be_empty or most > 0,
        size=value.size.times(_LISTED),
    )
