"""Functions of JSON in texts."""

from __future__ import annotations

import pyarrow as pa

from asterism.errors import StreamDefinitionError
from asterism.expressions.functions.table import function, literal_string, string
from asterism.expressions.routines import json as routines
from asterism.expressions.routines import parsed_json
from asterism.expressions.types import (
    BOOLEAN,
    DATE,
    INT,
    INTEGERS,
    STRING,
    duckdb_type,
    is_decimal,
    name_of,
    quoted_name,
    spark_type,
)
from asterism.expressions.values import (
    ELEMENT,
    Cost,
    Sql,
    UnsupportedError,
    cast,
    combined,
    quoted,
    strict,
    string_constant,
)

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


@function(
    _JSON,
    "from_json(text, 'schema')",
    note="columns with types, `a INT, b ARRAY<STRING>`, or a type `STRUCT<...>`, `ARRAY<...>`, `MAP<STRING, ...>`; what does not "
    "fit is NULL, see below",
)
def _from_json(zone: str, value: Sql, schema: Sql) -> Sql:
    written = literal_string(schema, "the schema")
    try:
        kind = spark_type(parsed_json.of_schema(written), zone)
        assert kind is not None
        parsed_json.converter(kind, zone)
    except StreamDefinitionError as problem:
        raise UnsupportedError(problem.message, problem.hint) from None
    except ValueError as problem:
        raise UnsupportedError(f"{problem} cannot be read from JSON here", parsed_json.TYPES) from None
    check_names(kind)
    value = string(value, zone)
    made = f"json_as({{0}}, {_literal(written)}, {_literal(zone)})"
    per_element, once = _names_of(kind)
    size = value.size.times(max(6, per_element)) + Cost(fixed=once)
    return strict(f"CAST(CAST({made} AS JSON) AS {_literal_type(kind)})", kind, value, nulls=True, size=size)


def _literal(text: str) -> str:
    """A literal in a template."""
    return quoted(text).replace("{", "{{").replace("}", "}}")


def _literal_type(kind: pa.DataType) -> str:
    return duckdb_type(kind).replace("{", "{{").replace("}", "}}")


def check_names(kind: pa.DataType) -> None:
    """Names of fields that differ by more than case, as those of columns."""
    types = pa.types
    if types.is_struct(kind):
        names = [field.name.lower() for field in kind]
        if len(set(names)) < len(names) or "_corrupt_record" in names:
            raise UnsupportedError("a schema must not name a field twice, or _corrupt_record")
        for field in kind:
            check_names(field.type)
    elif types.is_list(kind):
        check_names(kind.value_type)
    elif types.is_map(kind):
        check_names(kind.item_type)


def _names_of(kind: pa.DataType) -> tuple[float, int]:
    """Bytes of names that each byte of JSON can make, because a struct has all its fields, and those that are made once."""
    types = pa.types
    if types.is_struct(kind):
        inner = [_names_of(field.type) for field in kind]
        once = sum(2 * len(field.name.encode()) + ELEMENT for field in kind) + sum(part for _, part in inner)
        return max((each for each, _ in inner), default=0), once
    if types.is_list(kind) or types.is_map(kind):
        each, once = _names_of(kind.value_type if types.is_list(kind) else kind.item_type)
        return max(each, once / 2), 0
    return 0, 0


@function(
    _JSON,
    "schema_of_json('text')",
    note="the type of a literal, as from_json takes it; decimal numbers are DOUBLE",
)
def _schema_of_json(zone: str, value: Sql) -> Sql:
    text = literal_string(value, "the JSON")
    try:
        kind = parsed_json.schema_of(routines.read(text, standard=True)) if text.strip() else None
    except routines.NoJsonError:
        raise UnsupportedError("the text is no JSON") from None
    except ValueError as problem:
        raise UnsupportedError(str(problem)) from None
    shown = string_constant(parsed_json.shown_schema(kind) or "STRING")
    return combined(shown.text, STRING, [], (), size=shown.size)
