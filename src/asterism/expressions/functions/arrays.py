"""Functions of arrays. Spark's order of elements and its equality are kept: NULL equals NULL where duplicates are removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from asterism.expressions.functions.table import function, integer, literal_integer, string
from asterism.expressions.types import (
    BIGINT,
    BOOLEAN,
    FLOATS,
    INTEGERS,
    NULL,
    STRING,
    common_type,
    duckdb_type,
    is_nested,
    name_of,
)
from asterism.expressions.values import (
    ELEMENT,
    Cost,
    Sql,
    UnsupportedError,
    boolean_constant,
    cast,
    combined,
    error,
    strict,
    unify,
)

ARRAYS = "Arrays and maps"
MAX_ELEMENTS = 10_000
"""The maximum number of elements of an array that a function makes of numbers: sequence, array_repeat."""

_MOST = Cost(fixed=MAX_ELEMENTS * ELEMENT)


def array(value: Sql) -> Sql:
    if not pa.types.is_list(value.type):
        raise UnsupportedError(f"an ARRAY is needed, not {name_of(value.type)}")
    return value


def size_of(value: Sql) -> Cost:
    """The size of a value as an element of an array."""
    nested = is_nested(value.type) or value.type in (STRING, pa.binary())
    return value.size + Cost(fixed=ELEMENT) if nested else Cost(fixed=ELEMENT)


def total(*values: Sql) -> Cost:
    """The size of an array of the elements of all *values*."""
    return sum((value.size for value in values), Cost())


def same_kind(arrays: list[Sql], zone: str) -> list[Sql]:
    """Arrays converted to one type; strings are not converted to other types."""
    kind = array(arrays[0]).type
    for value in arrays[1:]:
        common = common_type(kind, array(value).type)
        if common is None:
            raise UnsupportedError(f"{name_of(kind)} and {name_of(value.type)} cannot be combined", "CAST the elements")
        kind = common
    return [cast(value, kind, zone) for value in arrays]


def with_element(value: Sql, element: Sql, zone: str) -> tuple[Sql, Sql]:
    """An array and a value that becomes one of its elements, both of the type that can hold them."""
    if element.type == NULL:
        return array(value), cast(element, value.type.value_type, zone)
    value, single = same_kind([value, Sql("", pa.list_(element.type))], zone)
    return value, cast(element, single.type.value_type, zone)


def comparable(value: Sql, *, ordered: bool = False) -> Sql:
    """An array whose elements can be compared: of maps, none can; of arrays and structs, only whether they are equal."""
    item = array(value).type.value_type
    if _has_map(item) or (ordered and is_nested(item)):
        raise UnsupportedError(f"the elements of {name_of(value.type)} cannot be compared")
    return value


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _has_map(kind.value_type)
    return pa.types.is_map(kind) or (pa.types.is_struct(kind) and any(_has_map(part.type) for part in kind))


@function(
    ARRAYS, "array(a, ...)", strict=False, note="of one type; an array without elements is `slice(array(1), 1, 0)`"
)
def _array(zone: str, *values: Sql) -> Sql:
    if not values or all(value.type == NULL for value in values):
        raise UnsupportedError("the type of its elements is not known", "array(CAST(NULL AS INT))")
    if any(is_nested(value.type) for value in values):
        arrays = same_kind([Sql("", pa.list_(value.type)) for value in values], zone)
        values = tuple(cast(value, arrays[0].type.value_type, zone) for value in values)
    else:
        values = tuple(unify(values, zone, "ARRAY", texts=False))
    kind = pa.list_(values[0].type)
    text = f"CAST([{', '.join(value.text for value in values)}] AS {duckdb_type(kind)})"
    return combined(text, kind, values, (), size=sum(map(size_of, values), Cost()))


@function(ARRAYS, "array_append(array, a)", strict=False)
def _append(zone: str, value: Sql, element: Sql) -> Sql:
    value, element = with_element(value, element, zone)
    return _joined(value, element, "list_append({0}, {1})")


@function(ARRAYS, "array_prepend(array, a)", strict=False)
def _prepend(zone: str, value: Sql, element: Sql) -> Sql:
    value, element = with_element(value, element, zone)
    return _joined(value, element, "list_prepend({1}, {0})")


def _joined(value: Sql, element: Sql, template: str, *more: Sql, raises: bool = False) -> Sql:
    """An array with an element that may be NULL."""
    parts = [value, element, *more]
    nullable = [value, *more]
    text = template.format(*(part.text for part in parts))
    tests = " OR ".join(f"{part.text} IS NULL" for part in nullable)
    nulls = tuple(dict.fromkeys(text for part in nullable for text in part.nullable_operands))
    return combined(
        f"(CASE WHEN {tests} THEN NULL ELSE {text} END)", value.type, parts, nulls, raises=raises,
        size=value.size + size_of(element),
    )  # fmt: skip


@function(
    ARRAYS,
    "array_insert(array, i, a)",
    strict=False,
    note="before the element i, from 1, or after it, from the end, where i < 0",
)
def _insert(zone: str, value: Sql, at: Sql, element: Sql) -> Sql:
    value, element = with_element(value, element, zone)
    at = integer(at, zone)
    item = duckdb_type(value.type.value_type)
    start, length = "CAST({2} AS BIGINT)", "CAST(len({0}) AS BIGINT)"

    def missing(count: str) -> str:
        return f"list_transform(range(greatest({count}, 0)), lambda missing: CAST(NULL AS {item}))"

    before = f"list_concat(list_slice({{0}}, 1, {start} - 1), {missing(f'{start} - 1 - {length}')})"
    front = f"list_concat({before}, list_prepend({{1}}, list_slice({{0}}, {start}, {length})))"
    after = f"list_slice({{0}}, greatest({length} + 2 + {start}, 1), {length})"
    back = (
        f"list_concat(list_append(list_slice({{0}}, 1, greatest({length} + 1 + {start}, 0)), {{1}}), "
        f"list_concat({missing(f'-({start}) - 1 - {length}')}, {after}))"
    )
    wrong = f"{{2}} = 0 OR abs({start}) > {length} + {MAX_ELEMENTS}"
    fails = f"WHEN {wrong} THEN {error('an element cannot be inserted there')}"
    template = f"CASE {fails} WHEN {{2}} > 0 THEN {front} ELSE {back} END"
    made = _joined(value, element, template, at, raises=True)
    # Of NULLs between the array and the element.
    gap = _MOST if at.constant is None else Cost(fixed=min(abs(int(at.constant)), MAX_ELEMENTS) * ELEMENT)
    return replace(made, size=made.size + gap, cost=made.cost + gap)


@function(ARRAYS, "array_compact(array)", note="without NULL")
def _compact(zone: str, value: Sql) -> Sql:
    return strict("list_filter({0}, lambda item: item IS NOT NULL)", array(value).type, value)


@function(ARRAYS, "array_remove(array, a)")
def _remove(zone: str, value: Sql, element: Sql) -> Sql:
    value, element = with_element(comparable(value), element, zone)
    return strict("list_filter({0}, lambda item: item IS DISTINCT FROM {1})", value.type, value, element, guarded=True)


@function(ARRAYS, "array_position(array, a)", note="from 1, a BIGINT; 0 where it is not in it")
def _position(zone: str, value: Sql, element: Sql) -> Sql:
    value, element = with_element(comparable(value), element, zone)
    return strict("CAST(COALESCE(list_position({0}, {1}), 0) AS BIGINT)", BIGINT, value, element, guarded=True)


# ---------------------------------------------------------------------------------------------------- sets


def _numbered(text: str, side: int, kind: pa.DataType) -> str:
    value = "item + 0" if kind.value_type in FLOATS else "item"  # of 0.0 and -0.0, only the first remains
    return f"list_transform({text}, lambda item, place: struct_pack(v := {value}, s := {side}, i := place))"


def _by_value(text: str, keep: str) -> str:
    """The first occurrences that *keep* selects, in their order: *sorted* are the elements by value, side and place."""
    kept = f"list_filter(entries, lambda entry, place: {keep})"
    placed = f"list_transform({kept}, lambda entry: struct_pack(i := entry.i, v := entry.v))"
    chosen = f"list_transform(list_sort({placed}), lambda entry: entry.v)"
    return f"list_extract(list_transform([list_sort({text})], lambda entries: {chosen}), 1)"


_NEW = "(place = 1 OR entry.v IS DISTINCT FROM entries[place - 1].v)"


@function(ARRAYS, "array_distinct(array)", note="in the order of first occurrence")
def _distinct(zone: str, value: Sql) -> Sql:
    return strict(_by_value(_numbered("{0}", 0, array(value).type), _NEW), comparable(value).type, value)


@function(ARRAYS, "array_union(array, array)", note="without duplicates, in the order of first occurrence")
def _union(zone: str, a: Sql, b: Sql) -> Sql:
    a, b = same_kind([comparable(a), comparable(b)], zone)
    text = _by_value(_numbered("list_concat({0}, {1})", 0, a.type), _NEW)
    return strict(text, a.type, a, b, size=total(a, b), guarded=True)


def _of_both(a: Sql, b: Sql, keep: str, zone: str) -> Sql:
    a, b = same_kind([comparable(a), comparable(b)], zone)
    text = _by_value(f"list_concat({_numbered('{1}', 0, a.type)}, {_numbered('{0}', 1, a.type)})", keep)
    return strict(text, a.type, a, b, size=a.size, guarded=True)


_KNOWN = "(place > 1 AND entry.v IS NOT DISTINCT FROM entries[place - 1].v AND entries[place - 1].s = 0)"


@function(
    ARRAYS,
    "array_intersect(array, array)",
    note="of the first array, what the second one also holds, without duplicates",
)
def _intersect(zone: str, a: Sql, b: Sql) -> Sql:
    return _of_both(a, b, f"entry.s = 1 AND {_KNOWN}", zone)


@function(
    ARRAYS,
    "array_except(array, array)",
    note="of the first array, what the second one does not hold, without duplicates",
)
def _except(zone: str, a: Sql, b: Sql) -> Sql:
    return _of_both(a, b, f"entry.s = 1 AND {_NEW}", zone)


@function(ARRAYS, "arrays_overlap(array, array)", note="NULL where only a NULL could be in both, if none is empty")
def _overlap(zone: str, a: Sql, b: Sql) -> Sql:
    a, b = same_kind([comparable(a), comparable(b)], zone)
    common = _of_both(a, b, f"entry.s = 1 AND entry.v IS NOT NULL AND {_KNOWN}", zone)
    has_null = " OR ".join(f"len(list_filter({{{side}}}, lambda item: item IS NULL)) > 0" for side in (0, 1))
    text = f"CASE WHEN len({{2}}) > 0 THEN TRUE WHEN ({has_null}) AND len({{0}}) > 0 AND len({{1}}) > 0 THEN NULL ELSE FALSE END"
    return strict(f"({text})", BOOLEAN, a, b, common, nulls=True, guarded=True)


# ---------------------------------------------------------------------------------------------------- order


@function(ARRAYS, "sort_array(array[, ascending])", note="NULL first, or last where `ascending` is FALSE")
def _sort(zone: str, value: Sql, ascending: Sql | None = None) -> Sql:
    ascending = boolean_constant(True) if ascending is None else ascending
    if ascending.text not in ("TRUE", "FALSE"):
        raise UnsupportedError("`ascending` must be TRUE or FALSE")
    order = "'ASC', 'NULLS FIRST'" if ascending.text == "TRUE" else "'DESC', 'NULLS LAST'"
    return strict(f"list_sort({{0}}, {order})", comparable(value, ordered=True).type, value)


@function(ARRAYS, "array_max(array)", note="NaN is the largest number; NULL of an array without values")
def _max(zone: str, value: Sql) -> Sql:
    return _extreme(value, "max")


@function(ARRAYS, "array_min(array)", note="NULL of an array without values")
def _min(zone: str, value: Sql) -> Sql:
    return _extreme(value, "min")


def _extreme(value: Sql, function: str) -> Sql:
    item = comparable(value, ordered=True).type.value_type
    text = f"list_{function}({{0}})"
    if item in FLOATS:  # the first of 0.0 and -0.0
        better = "<" if function == "min" else ">"
        missing = f"CAST(NULL AS {duckdb_type(item)})"
        chosen = f"CASE WHEN best IS NULL OR item {better} best THEN item ELSE best END"
        text = f"list_reduce(list_filter({{0}}, lambda item: item IS NOT NULL), lambda best, item: {chosen}, {missing})"
    return strict(f"CAST({text} AS {duckdb_type(item)})", item, value, nulls=True)


# ---------------------------------------------------------------------------------------------------- parts and wholes


@function(
    ARRAYS,
    "slice(array, start, length)",
    note="from 1, or from the end where start < 0; fails for start 0 or length < 0",
)
def _slice(zone: str, value: Sql, start: Sql, length: Sql) -> Sql:
    parts = [array(value), integer(start, zone), integer(length, zone)]
    begin = "CAST(CASE WHEN {1} > 0 THEN {1} ELSE CAST(len({0}) AS BIGINT) + {1} + 1 END AS BIGINT)"
    wrong = f"WHEN {{1}} = 0 OR {{2}} < 0 THEN {error('there is no such part of an array')}"
    part = f"list_slice({{0}}, {begin}, {begin} + CAST({{2}} AS BIGINT) - 1)"
    nulls = "{0} IS NULL OR {1} IS NULL OR {2} IS NULL"
    text = f"(CASE WHEN {nulls} THEN NULL {wrong} WHEN {begin} < 1 THEN list_slice({{0}}, 1, 0) ELSE {part} END)"
    return strict(text, value.type, *parts, raises=True)


@function(ARRAYS, "flatten(array)", note="one array of the elements of all; NULL where one of them is NULL")
def _flatten(zone: str, value: Sql) -> Sql:
    kind = array(value).type.value_type
    if not pa.types.is_list(kind):
        raise UnsupportedError(f"an ARRAY of arrays is needed, not {name_of(value.type)}")
    text = "CASE WHEN len(list_filter({0}, lambda item: item IS NULL)) = 0 THEN flatten({0}) END"
    return strict(f"({text})", kind, value, nulls=True)


@function(ARRAYS, "array_repeat(a, n)", strict=False, note=f"n must be a literal, at most {MAX_ELEMENTS:,}")
def _repeat(zone: str, element: Sql, n: Sql) -> Sql:
    if element.type == NULL:
        raise UnsupportedError("the type of its elements is not known", "CAST(NULL AS INT)")
    count = max(literal_integer(n, "the number of elements", MAX_ELEMENTS), 0)
    text = f"list_transform(range({count}), lambda number: {element.text})"
    return combined(text, pa.list_(element.type), [element], (), size=size_of(element).times(count))


def concatenated(arrays: Sequence[Sql], zone: str) -> Sql:
    """The elements of all *arrays*."""
    values = same_kind(list(arrays), zone)
    lists = ", ".join(f"{{{number}}}" for number in range(len(values)))
    return strict(f"flatten([{lists}])", values[0].type, *values, guarded=True, eager=True, size=total(*values))


def reversed_array(value: Sql) -> Sql:
    return strict("list_reverse({0})", array(value).type, value)


@function(
    ARRAYS,
    "sequence(start, end[, step])",
    note=f"integers with both ends, step 1 or -1 by default; fails for the wrong sign, and for more than {MAX_ELEMENTS:,}",
)
def _sequence(zone: str, start: Sql, end: Sql, step: Sql | None = None) -> Sql:
    parts = [start, end, *([] if step is None else [step])]
    if any(part.type not in INTEGERS for part in parts):
        raise UnsupportedError("integers are needed", "transform(sequence(0, 6), i -> date_add(day, i))")
    parts = unify(parts, zone, "SEQUENCE")
    kind = parts[0].type
    first, last, by = (f"CAST({{{n}}} AS HUGEINT)" for n in range(3))
    if step is None:
        by = "(CASE WHEN {0} <= {1} THEN 1 ELSE -1 END)"
    wrong = f"{by} = 0 AND {first} <> {last} OR {by} > 0 AND {first} > {last} OR {by} < 0 AND {first} < {last}"
    many = f"abs({last} - {first}) // greatest(abs({by}), 1) >= {MAX_ELEMENTS}"
    count = f"CAST(CASE WHEN {first} = {last} THEN 1 ELSE abs({last} - {first}) // abs({by}) + 1 END AS BIGINT)"
    made = f"list_transform(range({count}), lambda number: CAST({first} + number * {by} AS {duckdb_type(kind)}))"
    nulls = " OR ".join(f"{{{n}}} IS NULL" for n in range(len(parts)))
    text = (
        f"(CASE WHEN {nulls} THEN NULL WHEN {wrong} THEN {error('the sequence has no such step')} "
        f"WHEN {many} THEN {error(f'the sequence has more than {MAX_ELEMENTS:,} elements')} ELSE {made} END)"
    )
    size = _MOST
    if all(part.constant is not None for part in parts):
        first_value, last_value, *by_value = (int(part.constant or 0) for part in parts)
        most = abs(last_value - first_value) // max(abs(by_value[0]) if by_value else 1, 1) + 1
        size = Cost(fixed=min(most, MAX_ELEMENTS) * ELEMENT)
    return strict(text, pa.list_(kind), *parts, raises=True, size=size)


@function(ARRAYS, "array_join(array, separator[, null])", note="a text; NULL is left out, or becomes `null`")
def _join(zone: str, value: Sql, separator: Sql, null: Sql | None = None) -> Sql:
    if array(value).type.value_type != STRING:
        raise UnsupportedError(
            f"an ARRAY<STRING> is needed, not {name_of(value.type)}", "transform(a, x -> CAST(x AS STRING))"
        )
    parts = [value, string(separator, zone)]
    items = "list_filter({0}, lambda item: item IS NOT NULL)"
    if null is not None:
        parts.append(string(null, zone))
        items = "list_transform({0}, lambda item: COALESCE(item, {2}))"
    each = sum((part.size for part in parts[1:]), Cost())
    return strict(
        f"array_to_string({items}, {{1}})", STRING, *parts, guarded=True, size=value.size + each.for_each(value.size)
    )
