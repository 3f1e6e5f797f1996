"""JSON as Spark reads it: with Jackson, which also takes strings in single quotes and with control characters, and does not look
at what follows the first value. A value that is no JSON gives NULL.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from asterism.expressions.udfs import constant, each, routine

MAX_DEPTH = 200
"""The maximum depth of JSON; what is nested deeper is no JSON here."""


MAX_DIGITS = 1000
"""The maximum length of a number, that of Jackson."""


class JsonNumber(str):
    """A number as it is written."""

    __slots__ = ()


class Object(list[tuple[str, Any]]):
    """The fields of an object, in order; names may occur twice."""


class NoJsonError(ValueError):
    """A text is not JSON."""


def _constant(word: str) -> Any:
    raise NoJsonError(word)


def _number(digits: str) -> JsonNumber:
    if len(digits) > MAX_DIGITS:
        raise NoJsonError(digits[:60])
    return JsonNumber(digits)


_DECODER, _STANDARD_DECODER = (
    json.JSONDecoder(
        object_pairs_hook=Object, parse_float=_number, parse_int=_number, parse_constant=special, strict=strict
    )
    for special, strict in ((_constant, False), (JsonNumber, True))
)
_SPACE = re.compile(r"[ \t\r\n]*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+"?' + r"|'((?:[^'\\]|\\.)*+)('?)", re.DOTALL)
"""Strings; without the quote at their end too, so that the search takes linear time."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


def read(text: str, *, standard: bool = False) -> Any:
    """The first value of a text: None, a bool, a str, a :class:`JsonNumber`, a list or an :class:`Object`.

    :param standard: no control characters in strings; but ``NaN``, ``Infinity`` and ``-Infinity`` are numbers
    :raises NoJsonError: there is none

    >>> read("{'a': [1.50, null]} and more")
    [('a', ['1.50', None])]
    """
    if "'" in text:
        text = _QUOTED.sub(_in_double_quotes, text)
    if text.count("[") + text.count("{") > MAX_DEPTH:
        depth = 0
        for bracket in _BRACKETS.findall(text):
            depth += (bracket in "[{") - (bracket in "]}") if len(bracket) == 1 else 0
            if depth > MAX_DEPTH:
                raise NoJsonError("too deep")
    begin = _SPACE.match(text)
    assert begin is not None
    try:
        value, end = (_STANDARD_DECODER if standard else _DECODER).raw_decode(text, begin.end())
    except (ValueError, RecursionError):
        raise NoJsonError(text[:60]) from None
    if isinstance(value, JsonNumber) and text[end : end + 1] not in ("", " ", "\t", "\r", "\n"):
        raise NoJsonError(text[:60])
    return value


def _in_double_quotes(match: re.Match[str]) -> str:
    inside, end = match.groups()
    if inside is None or not end:
        return match.group()
    return '"' + inside.replace("\\'", "'").replace('"', '\\"') + '"'


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_TO_ESCAPE = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')


_CONTROL = re.compile(r'["\\\x00-\x1f]')


def quoted(text: str, *, pairs: bool = True) -> str:
    """A string as JSON.

    :param pairs: whether characters that take two units of UTF-16 are written as two escapes, as Jackson does in bytes
    """
    return f'"{(_TO_ESCAPE if pairs else _CONTROL).sub(_escaped, text)}"'


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    units = memoryview(character.encode("utf-16-le", "surrogatepass")).cast("H")
    return _ESCAPES.get(character) or "".join(f"\\u{unit:04X}" for unit in units)


def number(digits: str) -> str:
    """A number as Spark writes it: one with a point or an exponent as a DOUBLE of Java, by its shortest form."""
    if digits[-1].isalpha():
        return f'"{digits}"'
    if not set(digits) & set(".eE"):
        return "0" if digits == "-0" else digits
    value = float(digits)
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        shortest = format(Decimal(repr(value)), "f")
        return shortest if "." in shortest else shortest + ".0"
    sign, places, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, places)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"


def written(value: Any) -> str:
    """A value as JSON without spaces."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case JsonNumber():
            return number(value)
        case str():
            return quoted(value)
        case Object():
            return "{" + ",".join(f"{quoted(name)}:{written(part)}" for name, part in value) + "}"
    return "[" + ",".join(map(written, value)) + "]"


# ---------------------------------------------------------------------------------------------------- paths


class PathStep(NamedTuple):
    """A step of a path: a field, an element, or all elements (None)."""

    of_array: bool
    key: str | int | None


_STEP = re.compile(r"\.([^\s.\[*][^.\[]*)|\['([^\s'?*][^'?]*)'\]|\[(\d{1,9})\]|\[(\*)\]", re.ASCII)


def steps(path: str) -> list[PathStep]:
    """The steps of ``$.a['b'][0][*]``; ValueError if it has others."""
    if not path.startswith("$"):
        raise ValueError("a path begins with $")
    found, at = [], 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise ValueError(f"{path[at:]!r:.60} is no step of a path")
        name, quoted_name, index, every = match.groups()
        if name is not None or quoted_name is not None:
            found.append(PathStep(False, name if quoted_name is None else quoted_name))
        else:
            found.append(PathStep(True, None if every else int(index)))
        at = match.end()
    return found


_RAW, _QUOTED_STYLE, _FLAT = "raw", "quoted", "flat"


def found_in(value: Any, path: list[PathStep], out: list[str], style: str) -> bool:
    """Write what *path* finds, as Hive does; whether there is something."""
    if not path:
        if isinstance(value, str) and not isinstance(value, JsonNumber) and style == _RAW:
            out.append(value)
            return True
        if isinstance(value, list) and not isinstance(value, Object) and style == _FLAT:
            return sum(found_in(part, [], out, style) for part in value) > 0
        out.append(written(value))
        return True
    (of_array, key), *rest = path
    if isinstance(value, Object):
        if of_array:
            return False
        # The first field with this name in which something is found.
        return any(found_in(part, rest, out, style) for name, part in value if name == key and part is not None)
    if not isinstance(value, list) or not of_array:
        return False
    every = PathStep(True, None)
    if key is not None:
        inner = _QUOTED_STYLE if rest[:1] == [every] else style
        assert isinstance(key, int)
        return key < len(value) and found_in(value[key], rest, out, inner)
    if rest[:1] == [every]:
        return _listed(value, rest[1:], out, _FLAT)
    if style == _QUOTED_STYLE:
        return _listed(value, rest, out, style)
    parts: list[str] = []
    count = sum(found_in(part, rest, parts, _QUOTED_STYLE if style == _RAW else style) for part in value)
    if count:
        # A single result is written without brackets.
        out.append(f"[{','.join(parts)}]" if count > 1 else ",".join(parts))
    return count > 0


def _listed(values: list[Any], path: list[PathStep], out: list[str], style: str) -> bool:
    parts: list[str] = []
    count = sum(found_in(part, path, parts, style) for part in values)
    out.append(f"[{','.join(parts)}]")
    return count > 0


# ---------------------------------------------------------------------------------------------------- routines


def _or_null(function: Callable[[Any], Any]) -> Callable[[str], Any]:
    def call(text: str) -> Any:
        try:
            return function(read(text))
        except NoJsonError:
            return None

    return call


@routine("VARCHAR", "VARCHAR", "VARCHAR", nulls=True)
def found_in_json(texts: pa.ChunkedArray, paths: pa.ChunkedArray) -> pa.Array:
    path = steps(constant(paths))

    def find(value: Any) -> str | None:
        out: list[str] = []
        return _sound("".join(out)) if found_in(value, path, out, _RAW) else None

    return each(texts, _or_null(find), pa.string())


def _sound(text: str) -> str | None:
    """NULL for half a character, which an escape can make."""
    return None if any("\ud800" <= character <= "\udfff" for character in text) else text


@routine("INTEGER", "VARCHAR", nulls=True)
def length_of_json(texts: pa.ChunkedArray) -> pa.Array:
    def length(value: Any) -> int | None:
        return len(value) if isinstance(value, list) and not isinstance(value, Object) else None

    return each(texts, _or_null(length), pa.int32())


@routine("VARCHAR[]", "VARCHAR", nulls=True)
def names_in_json(texts: pa.ChunkedArray) -> pa.Array:
    def names(value: Any) -> list[str | None] | None:
        return [_sound(name) for name, _ in value] if isinstance(value, Object) else None

    return each(texts, _or_null(names), pa.list_(pa.string()))


@routine("VARCHAR", "VARCHAR")
def string_as_json(texts: pa.ChunkedArray) -> pa.Array:
    return each(texts, functools.partial(quoted, pairs=False), pa.string())


@routine("VARCHAR", "VARCHAR")
def decimal_as_json(texts: pa.ChunkedArray) -> pa.Array:
    """Decimals as Java's ``BigDecimal.toString``, which uses exponents as Python does."""
    return each(texts, lambda text: str(Decimal(text)), pa.string())
