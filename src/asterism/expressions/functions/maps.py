"""Functions of maps and structs. Keys are never NULL and occur once, as in Spark, which fails otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from asterism.expressions.functions.arrays import array, size_of, total
from asterism.expressions.functions.lambdas import LAMBDAS, applied, called, condition, typed
from asterism.expressions.functions.table import Lambda, function, literal_string
from asterism.expressions.types import BOOLEAN, FLOATS, NULL, common_type, duckdb_type, is_nested, name_of, quoted_name
from asterism.expressions.values import Cost, Sql, UnsupportedError, cast, combined, error, strict, unify

MAPS = "Arrays and maps"


def map_of(value: Sql) -> Sql:
    if not pa.types.is_map(value.type):
        raise UnsupportedError(f"a MAP is needed, not {name_of(value.type)}")
    return value


def map_type(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    if is_nested(key) or key in FLOATS or key == NULL:
        raise UnsupportedError(f"{name_of(key)} cannot be a key of a map here")
    return pa.map_(key, value)


_ENTRY = "struct_pack(key := {}, value := {})"
_DUPLICATE = error("a key of the map is NULL or occurs twice")


def from_entries(entries: str, kind: pa.DataType) -> str:
    """SQL of a map of a list of structs of a key and a value."""
    made = f"map_from_entries(list_transform(entries, lambda entry: {_ENTRY.format('entry[1]', 'entry[2]')}))"
    keys = "list_transform(entries, lambda entry: entry[1])"
    wrong = f"list_unique({keys}) < len(entries)"
    checked = f"CASE WHEN {wrong} THEN {_DUPLICATE} ELSE {made} END"
    return f"CAST(list_extract(list_transform([{entries}], lambda entries: {checked}), 1) AS {duckdb_type(kind)})"


@function(
    MAPS,
    "map(key, value, ...)",
    strict=False,
    note="fails for a key that is NULL or occurs twice; keys are no FLOAT or DOUBLE",
)
def _map(zone: str, *parts: Sql) -> Sql:
    if not parts or len(parts) % 2:
        raise UnsupportedError("keys and values are needed in pairs", "map('a', 1, 'b', 2)")
    keys = unify(parts[::2], zone, "MAP", texts=False)
    values = _unified(parts[1::2], zone)
    kind = map_type(keys[0].type, typed(values[0]).type)
    lists = [
        f"CAST([{', '.join(part.text for part in side)}] AS {duckdb_type(side[0].type)}[])" for side in (keys, values)
    ]
    text = from_entries(f"list_zip({lists[0]}, {lists[1]})", kind)
    size = sum((size_of(part) for part in (*keys, *values)), Cost())
    return combined(text, kind, [*keys, *values], (), raises=True, size=size)


def _unified(values: Sequence[Sql], zone: str) -> list[Sql]:
    """Values of one type, which may be nested."""
    if not any(is_nested(value.type) for value in values):
        return unify(values, zone, "MAP", texts=False)
    kind: pa.DataType | None = values[0].type
    for value in values[1:]:
        kind = None if kind is None else common_type(kind, value.type)
    if kind is None:
        raise UnsupportedError("the values are of types that cannot be combined", "CAST them")
    return [cast(value, kind, zone) for value in values]


@function(MAPS, "map_keys(map)")
def _keys(zone: str, value: Sql) -> Sql:
    return strict("map_keys({0})", pa.list_(map_of(value).type.key_type), value)


@function(MAPS, "map_values(map)")
def _values(zone: str, value: Sql) -> Sql:
    return strict("map_values({0})", pa.list_(map_of(value).type.item_type), value)


@function(MAPS, "map_entries(map)", note="an ARRAY of STRUCTs with the fields `key` and `value`")
def _entries(zone: str, value: Sql) -> Sql:
    kind = map_of(value).type
    entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
    return strict("map_entries({0})", pa.list_(entry), value)


@function(MAPS, "map_contains_key(map, key)")
def _contains_key(zone: str, value: Sql, key: Sql) -> Sql:
    kind = map_of(value).type.key_type
    if key.type == NULL or is_nested(kind) or common_type(kind, key.type) != kind:
        raise UnsupportedError(f"the keys of a {name_of(value.type)} are not {name_of(key.type)}")
    return strict("list_contains(map_keys({0}), {1})", BOOLEAN, value, cast(key, kind, zone), guarded=True)


@function(MAPS, "map_concat(map, ...)", note="fails for a key that occurs twice")
def _concat(zone: str, *values: Sql) -> Sql:
    if not values:
        raise UnsupportedError("a map is needed")
    values = tuple(_unified([map_of(value) for value in values], zone))
    kind = map_type(values[0].type.key_type, values[0].type.item_type)
    lists = ", ".join(f"map_entries({{{number}}})" for number in range(len(values)))
    pairs = f"list_transform(flatten([{lists}]), lambda entry: row(entry.key, entry.value))"
    return strict(from_entries(pairs, kind), kind, *values, raises=True, guarded=True, eager=True, size=total(*values))


@function(MAPS, "map_from_arrays(keys, values)", note="fails for arrays of different sizes, and as map(...)")
def _from_arrays(zone: str, keys: Sql, values: Sql) -> Sql:
    kind = map_type(array(keys).type.value_type, array(values).type.value_type)
    other = error("there are as many keys as values in a map")
    text = f"CASE WHEN len({{0}}) <> len({{1}}) THEN {other} ELSE {from_entries('list_zip({0}, {1})', kind)} END"
    return strict(f"({text})", kind, keys, values, raises=True, guarded=True, size=total(keys, values))


@function(
    MAPS,
    "map_from_entries(array)",
    note="of STRUCTs with two fields; NULL where one of them is NULL; fails as map(...)",
)
def _from_entries(zone: str, value: Sql) -> Sql:
    entry = array(value).type.value_type
    if not pa.types.is_struct(entry) or entry.num_fields != 2:
        raise UnsupportedError(f"an ARRAY of STRUCTs with two fields is needed, not {name_of(value.type)}")
    first, second = (f"entry.{quoted_name(part.name)}" for part in entry)
    kind = map_type(entry[0].type, entry[1].type)
    pairs = f"list_transform({{0}}, lambda entry: row({first}, {second}))"
    text = f"CASE WHEN len(list_filter({{0}}, lambda entry: entry IS NULL)) = 0 THEN {from_entries(pairs, kind)} END"
    return strict(f"({text})", kind, value, raises=True, nulls=True)


# ---------------------------------------------------------------------------------------------------- with lambdas


def _of_entry(names: str, body: str) -> str:
    """The body of a lambda over a key and a value, as the body of one over an entry."""
    key, value = names.split(", ")
    inner = f"list_extract(list_transform([entry.value], lambda {value}: {body}), 1)"
    return f"list_extract(list_transform([entry.key], lambda {key}: {inner}), 1)"


@function(LAMBDAS, "map_filter(map, (key, value) -> condition)", lambdas=(1,))
def _filter(zone: str, value: Sql, each: Lambda) -> Sql:
    kind = map_of(value).type
    names, body = called(each, [kind.key_type, kind.item_type], value.size)
    text = f"map_from_entries(list_filter(map_entries({{0}}), lambda entry: {_of_entry(names, '{body}')}))"
    return applied(text, kind, [value], condition(body), guarded=True)


@function(LAMBDAS, "transform_values(map, (key, value) -> a)", lambdas=(1,))
def _transform_values(zone: str, value: Sql, each: Lambda) -> Sql:
    source = map_of(value).type
    names, body = called(each, [source.key_type, source.item_type], value.size)
    kind = pa.map_(source.key_type, typed(body).type)
    entry = _ENTRY.format("entry.key", _of_entry(names, "{body}"))
    text = f"map_from_entries(list_transform(map_entries({{0}}), lambda entry: {entry}))"
    return applied(text, kind, [value], body, size=value.size + size_of(body).for_each(value.size), guarded=True)


@function(
    LAMBDAS, "transform_keys(map, (key, value) -> a)", lambdas=(1,), note="fails for a key that is NULL or occurs twice"
)
def _transform_keys(zone: str, value: Sql, each: Lambda) -> Sql:
    source = map_of(value).type
    names, body = called(each, [source.key_type, source.item_type], value.size)
    kind = map_type(typed(body).type, source.item_type)
    pairs = f"list_transform(map_entries({{0}}), lambda entry: row({_of_entry(names, '{body}')}, entry.value))"
    size = value.size + size_of(body).for_each(value.size)
    return applied(from_entries(pairs, kind), kind, [value], body, size=size, guarded=True, raises=True)


@function(
    LAMBDAS,
    "map_zip_with(map, map, (key, x, y) -> a)",
    lambdas=(2,),
    note="for each key of one of them; NULL for the value that the other lacks",
)
def _zip_with(zone: str, a: Sql, b: Sql, each: Lambda) -> Sql:
    if map_of(a).type.key_type != map_of(b).type.key_type:
        raise UnsupportedError("the keys of the maps are of different types")
    both = a.size + b.size
    names, body = called(each, [a.type.key_type, a.type.item_type, b.type.item_type], both)
    kind = pa.map_(a.type.key_type, typed(body).type)
    key, x, y = names.split(", ")
    inner = f"list_extract(list_transform([map_extract_value({{1}}, entry)], lambda {y}: {{body}}), 1)"
    inner = f"list_extract(list_transform([map_extract_value({{0}}, entry)], lambda {x}: {inner}), 1)"
    inner = f"list_extract(list_transform([entry], lambda {key}: {inner}), 1)"
    others = "list_filter(map_keys({1}), lambda other: NOT list_contains(map_keys({0}), other))"
    keys = f"list_concat(map_keys({{0}}), {others})"
    text = f"map_from_entries(list_transform({keys}, lambda entry: {_ENTRY.format('entry', inner)}))"
    many = error("maps with so many keys cannot be zipped")
    text = f"(CASE WHEN cardinality({{0}}) * cardinality({{1}}) > 1000000 THEN {many} ELSE {text} END)"
    size = both + size_of(body).for_each(both)
    return applied(text, kind, [a, b], body, size=size, guarded=True, raises=True)


# ---------------------------------------------------------------------------------------------------- structs


@function(
    MAPS,
    "named_struct('name', a, ...)",
    "struct",
    strict=False,
    note="a STRUCT; struct(a, b AS c) has the fields a and c",
)
def _named_struct(zone: str, *parts: Sql) -> Sql:
    if not parts or len(parts) % 2:
        raise UnsupportedError("names and values are needed in pairs", "named_struct('a', 1, 'b', 2)")
    names = [literal_string(name, "the name of a field") for name in parts[::2]]
    if len({name.lower() for name in names}) < len(names) or not all(names):
        raise UnsupportedError("the names of fields must be different")
    values = [typed(value) for value in parts[1::2]]
    kind = pa.struct([(name, value.type) for name, value in zip(names, values, strict=True)])
    fields = ", ".join(f"{quoted_name(name)} := {value.text}" for name, value in zip(names, values, strict=True))
    return combined(f"struct_pack({fields})", kind, values, (), size=sum(map(size_of, values), Cost()))


@function(
    MAPS,
    "arrays_zip(array, ...)",
    note="STRUCTs with the names of columns as fields, or `0`, `1` ...; NULL for missing elements",
)
def _arrays_zip(zone: str, *parts: Sql) -> Sql:
    names = [literal_string(name, "the name of a field") for name in parts[::2]]
    values = [array(value) for value in parts[1::2]]
    if not values or len({name.lower() for name in names}) < len(names):
        raise UnsupportedError("the names of fields must be different")
    kind = pa.struct([(name, value.type.value_type) for name, value in zip(names, values, strict=True)])
    fields = ", ".join(f"{quoted_name(name)} := item[{number}]" for number, name in enumerate(names, 1))
    zipped = f"list_zip({', '.join(f'{{{number}}}' for number in range(len(values)))})"
    text = f"list_transform({zipped}, lambda item: struct_pack({fields.replace('{', '{{').replace('}', '}}')}))"
    return strict(text, pa.list_(kind), *values, guarded=True, size=total(*values))
