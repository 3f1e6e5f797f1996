"""Functions of JSON in texts."""

from __future__ import annotations

import pyarrow as pa

from asterism.expressions.functions.table import function, literal_string, string
from asterism.expressions.routines import json as routines
from asterism.expressions.types import BOOLEAN, DATE, INT, INTEGERS, STRING, is_decimal, name_of, quoted_name
from asterism.expressions.values import ELEMENT, Cost, Sql, UnsupportedError, cast, quoted, strict

_JSON = "JSON"
_PLAIN_SCALE = 6
"""Java writes a decimal with more places with an exponent, if it is small."""


@function(
    _JSON,
    "get_json_object(text, 'path')",
    note="a STRING, of `$.a.b[0]`, `$['a b']` or `$.items[*].price`; NULL where there is nothing, and for what is no JSON",
)
def _get_json_object(zone: str, value: Sql, path: Sql) -> Sql:
    steps = literal_string(path, "the path")
    try:
        routines.steps(steps)
    except ValueError as problem:
        raise UnsupportedError(str(problem), "$.order.items[0]['unit price']") from None
    value = string(value, zone)
    literal = quoted(steps).replace("{", "{{").replace("}", "}}")
    return strict(f"found_in_json({{0}}, {literal})", STRING, value, nulls=True, size=value.size.times(6))


@function(_JSON, "json_array_length(text)", note="of the outermost array; NULL for anything else")
def _json_array_length(zone: str, value: Sql) -> Sql:
    return strict("length_of_json({0})", INT, string(value, zone), nulls=True)


@function(
    _JSON,
    "json_object_keys(text)",
    note="the names of the fields of the outermost object, an ARRAY; NULL for anything else",
)
def _json_object_keys(zone: str, value: Sql) -> Sql:
    value = string(value, zone)
    return strict("names_in_json({0})", pa.list_(STRING), value, nulls=True, size=value.size.times(4))


@function(
    _JSON,
    "to_json(a)",
    note="of a STRUCT, an ARRAY or a MAP of STRING, BOOLEAN, integers, DECIMAL and DATE; fields that are NULL are left out",
)
def _to_json(zone: str, value: Sql) -> Sql:
    if not (pa.types.is_struct(value.type) or pa.types.is_list(value.type) or pa.types.is_map(value.type)):
        raise UnsupportedError(f"a STRUCT, an ARRAY or a MAP is needed, not {name_of(value.type)}")
    text, raises = _as_json("part", value.type, zone)
    longest = _longest_part(value.type)
    size = value.size.times(max(6, longest / ELEMENT)) + Cost(fixed=longest)
    text = text.replace("{", "{{").replace("}", "}}")
    made = f"CAST(list_extract(list_transform([{{0}}], lambda part: {text}), 1) AS VARCHAR)"
    return strict(made, STRING, value, raises=raises, size=size)


def _as_json(text: str, kind: pa.DataType, zone: str, depth: int = 0) -> tuple[str, bool]:
    """SQL of the JSON of a value, NULL if that is NULL, and whether it can fail."""
    part = f"part{depth}"
    if pa.types.is_struct(kind):
        fields, raises = [], False
        for field in kind:
            inner, fails = _as_json(f"{text}.{quoted_name(field.name)}", field.type, zone, depth)
            fields.append(f"{quoted(routines.quoted(field.name, pairs=False) + ':')} || {inner}")
            raises |= fails
        listed = f"list_filter([{', '.join(fields)}], lambda {part}: {part} IS NOT NULL)"
        made = f"('{{' || array_to_string({listed}, ',') || '}}')"
    elif pa.types.is_list(kind):
        inner, raises = _as_json(part, kind.value_type, zone, depth + 1)
        listed = f"list_transform({text}, lambda {part}: COALESCE({inner}, 'null'))"
        made = f"('[' || array_to_string({listed}, ',') || ']')"
    elif pa.types.is_map(kind) and kind.key_type == STRING:
        inner, raises = _as_json(f"{part}.value", kind.item_type, zone, depth + 1)
        entry = f"string_as_json({part}.key) || ':' || COALESCE({inner}, 'null')"
        listed = f"list_transform(map_entries({text}), lambda {part}: {entry})"
        made = f"('{{' || array_to_string({listed}, ',') || '}}')"
    elif kind == STRING:
        return f"string_as_json({text})", False
    elif is_decimal(kind) and kind.scale > _PLAIN_SCALE:
        return f"decimal_as_json({cast(Sql(text, kind), STRING, zone).text})", False
    elif kind == BOOLEAN or kind in INTEGERS or is_decimal(kind):
        return cast(Sql(text, kind), STRING, zone).text, False
    elif kind == DATE:
        date = cast(Sql(text, kind), STRING, zone)
        return f"('\"' || {date.text} || '\"')", date.raises
    else:
        raise UnsupportedError(f"{name_of(kind)} cannot be written as JSON here", "CAST(... AS STRING)")
    return f"CASE WHEN {text} IS NULL THEN NULL ELSE {made} END", raises


def _longest_part(kind: pa.DataType) -> int:
    """The maximum length of the JSON of a part that is no string, with the name of its field."""
    if pa.types.is_struct(kind):
        return max(6 * len(field.name) + _longest_part(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _longest_part(kind.value_type)
    return _longest_part(kind.item_type) if pa.types.is_map(kind) else 48
