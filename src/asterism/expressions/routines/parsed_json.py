"""JSON read as a type, as ``from_json`` does in Spark's mode PERMISSIVE: what does not fit is NULL, with the part around it."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from decimal import InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.schemas import type_of
from asterism.expressions import udfs
from asterism.expressions.routines.json import JsonNumber, NoJsonError, Object, read, written
from asterism.expressions.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGERS,
    STRING,
    TINYINT,
    is_decimal,
    name_of,
)
from asterism.expressions.udfs import constant, each, routine

TYPES = "STRING, BOOLEAN, numbers, DATE, TIMESTAMP, and arrays, maps and structs of them"
MAX_DEPTH = 20
"""The maximum depth of a type."""
_INFINITIES = {
    "NaN": math.nan, "+INF": math.inf, "INF": math.inf, "+Infinity": math.inf, "Infinity": math.inf, "-INF": -math.inf,
    "-Infinity": -math.inf,
}  # fmt: skip
_WITH_ZONE = re.compile(r"(Z|[+-]\d{1,2}:\d{1,2})\s*$")
_HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")
_EARLIEST_GREGORIAN = -141_427  # the day from which the calendars of Java and Spark agree

Convert = Callable[[Any], Any]
"""From a value of JSON to what DuckDB casts to the type, as JSON."""


class _UnfitError(Exception):
    """A value does not fit the type. *partial*: what remains of an array, a map or a struct."""

    def __init__(self, partial: Any = None) -> None:
        super().__init__()
        self.partial = partial


def of_schema(text: str) -> pa.DataType:
    """The type that a schema names: a type, or a list of columns with types.

    :raises asterism.errors.StreamDefinitionError: it is neither
    """
    begin = re.match(r"\s*(STRUCT|ARRAY|MAP)\s*<", text, re.IGNORECASE)
    return type_of(text if begin else f"STRUCT<{text}>", text)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, JsonNumber) and value != ""


def _is_whole(value: Any) -> bool:
    return isinstance(value, JsonNumber) and not set(value) & set(".eENI")


def _string(value: Any) -> str:
    text = value if isinstance(value, str) and not isinstance(value, JsonNumber) else written(value)
    return _HALF_A_CHARACTER.sub("?", text)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _UnfitError
    return value


def _integer(kind: pa.DataType, value: Any) -> int:
    if not _is_whole(value):
        raise _UnfitError
    number, limit = int(value), int(2 ** (kind.bit_width - 1))
    if kind == TINYINT and limit <= number < 2 * limit:  # Java takes it as bits
        return number - 2 * limit
    if not -limit <= number < limit:
        raise _UnfitError
    return number


def _floating(kind: pa.DataType, value: Any) -> str:
    if isinstance(value, JsonNumber) or (_is_text(value) and value in _INFINITIES):
        number = (
            _INFINITIES.get(value, 0.0) if value in _INFINITIES else float(int(value) if _is_whole(value) else value)
        )
        with np.errstate(over="ignore"):
            finite = math.isfinite(number) and (kind == DOUBLE or bool(np.isfinite(np.float32(number))))
        if finite:  # of a FLOAT the text, which would be rounded twice
            return str(value) if kind == FLOAT and not _is_whole(value) else repr(number)
        return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
    raise _UnfitError


def _decimal(kind: pa.DataType, value: Any) -> str:
    if not (isinstance(value, JsonNumber) or _is_text(value)) or not udfs.DECIMAL.fullmatch(value):
        raise _UnfitError
    try:
        return udfs.read_decimal(str(value), kind.precision, kind.scale)
    except (ValueError, OverflowError, InvalidOperation):
        raise _UnfitError from None


def _date(value: Any) -> str:
    if not _is_text(value):
        raise _UnfitError
    try:
        days = udfs.read_date(value)
    except ValueError:
        days = int(value) if re.fullmatch("[+-]?[0-9]{1,9}", value) else _EARLIEST_GREGORIAN - 1
        if days < _EARLIEST_GREGORIAN:
            raise _UnfitError from None
    return _shown(days * 86_400_000_000)[:-16]


def _shown(micros: int) -> str:
    """A time in SQL for DuckDB; years beyond 9999, and before 1, do not fit."""
    moment = np.datetime64(micros, "us")
    if not np.datetime64("0001-01-01") <= moment <= np.datetime64("9999-12-31T23:59:59.999999"):
        raise _UnfitError
    return str(moment).replace("T", " ")


def _timestamp(zone: str | None, value: Any) -> str:
    if zone is not None and _is_whole(value) and abs(int(value)) < 2**62 // 1_000_000:
        return _shown(int(value) * 1_000_000)
    if not _is_text(value) or (zone is None and _WITH_ZONE.search(value)):
        raise _UnfitError
    try:
        return _shown(udfs.read_timestamp(value, zone))
    except ValueError:
        raise _UnfitError from None


def _array(item: Convert, value: Any) -> list[Any]:
    if not isinstance(value, list) or isinstance(value, Object):
        raise _UnfitError
    items, fits = [], True
    for part in value:
        converted, whole = _part(item, part)
        items.append(converted)
        fits &= whole
    if not fits:
        raise _UnfitError(items)
    return items


def _part(convert: Convert, value: Any) -> tuple[Any, bool]:
    """A part, or what remains of it, and whether all of it fits; :class:`_UnfitError` if nothing remains."""
    if value is None:
        return None, True
    try:
        return convert(value), True
    except _UnfitError as problem:
        if problem.partial is None:
            raise
        return problem.partial, False


def _map(item: Convert, value: Any) -> dict[str, Any]:
    if not isinstance(value, Object):
        raise _UnfitError
    entries, fits = dict[str, Any](), True
    for name, part in value:
        entries[_HALF_A_CHARACTER.sub("?", name)], whole = _part(item, part)
        fits &= whole
    if not fits:
        raise _UnfitError(entries)
    return entries


def _struct(fields: dict[str, Convert], value: Any) -> dict[str, Any]:
    if not isinstance(value, Object):
        raise _UnfitError
    row: dict[str, Any] = dict.fromkeys(fields)
    fits = True
    for name, part in value:
        if name not in fields:
            continue
        try:
            row[name], whole = _part(fields[name], part)
        except _UnfitError:  # what a field of the same name before it has set remains
            whole = False
        fits &= whole
    if not fits:
        raise _UnfitError(row)
    return row


def converter(kind: pa.DataType, zone: str, depth: int = 0) -> Convert:
    """:raises ValueError: the type is not supported, with its name"""
    types = pa.types
    if depth > MAX_DEPTH:
        raise ValueError(f"types of {MAX_DEPTH} levels in another")
    if types.is_list(kind):
        return functools.partial(_array, converter(kind.value_type, zone, depth + 1))
    if types.is_map(kind) and kind.key_type == STRING:
        return functools.partial(_map, converter(kind.item_type, zone, depth + 1))
    if types.is_struct(kind):
        return functools.partial(_struct, {field.name: converter(field.type, zone, depth + 1) for field in kind})
    if kind in INTEGERS:
        return functools.partial(_integer, kind)
    if kind in (FLOAT, DOUBLE):
        return functools.partial(_floating, kind)
    if is_decimal(kind):
        return functools.partial(_decimal, kind)
    if types.is_timestamp(kind):
        return functools.partial(_timestamp, zone if kind.tz else None)
    simple: dict[pa.DataType, Convert] = {STRING: _string, BOOLEAN: _boolean, DATE: _date}
    if kind not in simple:
        raise ValueError(name_of(kind))
    return simple[kind]


@routine("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", nulls=True)
def json_as(texts: pa.ChunkedArray, schemas: pa.ChunkedArray, zones: pa.ChunkedArray) -> pa.Array:
    """The values of JSON that fit a type, as JSON that DuckDB casts to it."""
    kind = of_schema(constant(schemas))
    convert = converter(kind, constant(zones))
    empty = dict.fromkeys(field.name for field in kind) if pa.types.is_struct(kind) else None
    lists_structs = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)

    def convert_text(text: str) -> str | None:
        if not text.strip(" \t\r\n"):
            return None
        try:
            value = read(text, standard=True)
            value = [value] if lists_structs and isinstance(value, Object) else value
            converted = convert(value)
        except NoJsonError:
            converted = empty
        except _UnfitError as problem:
            converted = empty if problem.partial is None else problem.partial
        return None if converted is None else json.dumps(converted, ensure_ascii=False)

    return each(texts, convert_text, pa.string())


# ---------------------------------------------------------------------------------------------------- schema_of_json

_LARGEST = 2**63
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9_]+", re.ASCII)
_LONG_AS_DECIMAL = 20
_MOST_DIGITS = 38


def schema_of(value: Any) -> Any:
    """The type of JSON: a simple type, the digits of a decimal, None of null, a list of one type, or a dict.

    :raises ValueError: an object names a field twice
    """
    match value:
        case None:
            return None
        case bool():
            return BOOLEAN
        case JsonNumber() if _is_whole(value):
            digits = len(value.lstrip("-"))
            return BIGINT if -_LARGEST <= int(value) < _LARGEST else digits if digits <= _MOST_DIGITS else DOUBLE
        case JsonNumber():
            return DOUBLE
        case str():
            return STRING
        case Object():
            fields = {name: schema_of(part) for name, part in sorted(value, key=lambda field: field[0])}
            if len(fields) < len(value):
                raise ValueError("an object names a field twice")
            return fields
    return [functools.reduce(_common, map(schema_of, value), None)]


def _common(a: Any, b: Any) -> Any:
    if a is None or b is None or a == b:
        return b if a is None else a
    if isinstance(a, list) and isinstance(b, list):
        return [_common(a[0], b[0])]
    if isinstance(a, dict) and isinstance(b, dict):
        return {name: _common(a.get(name), b.get(name)) for name in sorted({*a, *b})}
    numbers = [kind for kind in (a, b) if kind in (BIGINT, DOUBLE) or isinstance(kind, int)]
    if len(numbers) < 2:
        return STRING
    if DOUBLE in numbers:
        return DOUBLE
    return max(_LONG_AS_DECIMAL if kind == BIGINT else kind for kind in numbers)


def shown_schema(kind: Any) -> str | None:
    """The type in DDL; None of a struct without fields."""
    if isinstance(kind, list):
        inner = shown_schema(kind[0])
        return None if inner is None else f"ARRAY<{inner}>"
    if isinstance(kind, dict):
        fields = [(name, shown_schema(part)) for name, part in kind.items()]
        shown = [f"{_quoted_name(name)}: {part}" for name, part in fields if part is not None]
        return f"STRUCT<{', '.join(shown)}>" if shown else None
    if isinstance(kind, pa.DataType):
        return name_of(kind)
    return "STRING" if kind is None else f"DECIMAL({kind},0)"


def _quoted_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
