"""Functions that take a lambda. Its body is SQL of DuckDB in a lambda of DuckDB, whose parameters are ``e0``, ``e1`` ...

A lambda is called for each element, so the size of what it makes is bounded with the size of the array:
:meth:`asterism.expressions.values.Cost.for_each`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from asterism.expressions.functions.arrays import array, comparable, size_of
from asterism.expressions.functions.table import Lambda, function
from asterism.expressions.routines import arrays as _routines  # noqa: F401 - registers sorted_places
from asterism.expressions.types import (
    BINARY,
    BOOLEAN,
    INT,
    NULL,
    STRING,
    duckdb_type,
    is_nested,
    name_of,
)
from asterism.expressions.values import Cost, Sql, UnsupportedError, cast, error, strict

LAMBDAS = "Functions with lambdas"
MAX_COMPARED = 300
"""The maximum number of elements that a comparator of array_sort sorts, because it compares each with each."""


def parameter(name: str, kind: pa.DataType) -> Sql:
    """A parameter of a lambda, an element of an array."""
    return Sql(name, kind, size=Cost(element=1) if _is_long(kind) else Sql("", kind).size, strict=True)


def _is_long(kind: pa.DataType) -> bool:
    return is_nested(kind) or kind in (STRING, BINARY)


def called(
    function: Lambda, kinds: Sequence[pa.DataType], size: Cost, *, least: int = 0, hidden: int = 0
) -> tuple[str, Sql]:
    """The parameters in SQL, and the body, of a lambda that takes elements of these types, at least the first ones.

    :param hidden: so many parameters are not available in lambdas inside of it
    """
    least = least or len(kinds)
    if not least <= function.count <= len(kinds):
        counts = f"{least}" if least == len(kinds) else f"{least} or {len(kinds)}"
        raise UnsupportedError(f"a lambda with {counts} parameters is needed, not one with {function.count}")
    names = function.names(function.count)
    values = [parameter(name, kind) for name, kind in zip(names, kinds, strict=False)]
    body = function.translate(values, size, hidden)
    return ", ".join(names), replace(body, constant=None)


def typed(body: Sql) -> Sql:
    if body.type == NULL:
        raise UnsupportedError("the type of its elements is not known", "CAST(NULL AS INT)")
    return body


def condition(body: Sql) -> Sql:
    if body.type not in (BOOLEAN, NULL):
        raise UnsupportedError(f"the lambda must give a BOOLEAN, not {name_of(body.type)}")
    return body if body.type == BOOLEAN else replace(body, text="CAST(NULL AS BOOLEAN)", type=BOOLEAN)


def applied(
    template: str,
    data_type: pa.DataType,
    parts: Sequence[Sql],
    body: Sql,
    *,
    size: Cost | None = None,
    nulls: bool = False,
    guarded: bool = False,
    raises: bool = False,
) -> Sql:
    """A value made by calling a lambda for each element of the first part.

    :param template: as for :func:`strict`, of *parts* and the body
    """
    collection = parts[0]
    made = (body.cost + Cost(fixed=1)).for_each(collection.size) + (Cost() if size is None else size)
    template = template.replace("{body}", body.text.replace("{", "{{").replace("}", "}}"))
    value = strict(
        template,
        data_type,
        *parts,
        raises=raises or body.raises,
        nulls=nulls,
        guarded=guarded,
        size=collection.size if size is None else size,
    )
    return replace(value, cost=value.cost + made + Cost(made=made.growth))


def _of_elements(body: Sql, collection: Sql) -> Cost:
    """The size of an array with the value of *body* for each element."""
    return size_of(body).for_each(collection.size)


@function(LAMBDAS, "transform(array, x -> a)", lambdas=(1,), note="`(x, i) -> a` also gets the place of x, from 0")
def _transform(zone: str, value: Sql, each: Lambda) -> Sql:
    item = array(value).type.value_type
    names, body = called(each, [item, INT], value.size, least=1)
    typed(body)
    text = _with_place("list_transform({0}, lambda ", names, "{body}")
    return applied(text, pa.list_(body.type), [value], body, size=_of_elements(body, value))


def _with_place(begin: str, names: str, body: str) -> str:
    """A lambda of DuckDB, which counts from 1 in BIGINT, for one of Spark, which counts from 0 in INT."""
    item, _, place = names.partition(", ")
    if not place:
        return f"{begin}{item}: {body})"
    # The body is a lambda over a list of one element, which names the place as in Spark.
    return (
        f"{begin}{item}, place: list_extract(list_transform([CAST(place - 1 AS INTEGER)], lambda {place}: {body}), 1))"
    )


@function(
    LAMBDAS,
    "filter(array, x -> condition)",
    lambdas=(1,),
    note="`(x, i) -> condition` also gets the place of x, from 0",
)
def _filter(zone: str, value: Sql, each: Lambda) -> Sql:
    names, body = called(each, [array(value).type.value_type, INT], value.size, least=1)
    return applied(_with_place("list_filter({0}, lambda ", names, "{body}"), value.type, [value], condition(body))


def _quantified(value: Sql, each: Lambda, decisive: str, operator: str) -> Sql:
    names, body = called(each, [array(value).type.value_type], value.size)
    body = condition(body)
    start = "FALSE" if decisive == "TRUE" else "TRUE"
    # What follows the deciding element is not computed.
    step = f"CASE WHEN decided IS NOT DISTINCT FROM {decisive} THEN decided ELSE (decided {operator} {{body}}) END"
    return applied(f"list_reduce({{0}}, lambda decided, {names}: {step}, {start})", BOOLEAN, [value], body, nulls=True)


@function(
    LAMBDAS, "exists(array, x -> condition)", lambdas=(1,), note="NULL where it is NULL for some and TRUE for none"
)
def _exists(zone: str, value: Sql, each: Lambda) -> Sql:
    return _quantified(value, each, "TRUE", "OR")


@function(
    LAMBDAS, "forall(array, x -> condition)", lambdas=(1,), note="NULL where it is NULL for some and FALSE for none"
)
def _forall(zone: str, value: Sql, each: Lambda) -> Sql:
    return _quantified(value, each, "FALSE", "AND")


@function(
    LAMBDAS,
    "aggregate(array, start, (total, x) -> a[, total -> b])",
    "reduce",
    lambdas=(2, 3),
    note="`a` is of the type of `start`; a text or an array that grows with each element is refused",
)
def _aggregate(zone: str, value: Sql, start: Sql, merge: Lambda, finish: Lambda | None = None) -> Sql:
    item = array(value).type.value_type
    typed(start)
    names, body = called(merge, [start.type, item], start.size + value.size, hidden=int(_is_long(start.type)))
    if body.type == NULL:
        body = cast(body, start.type, zone)
    if body.type != start.type:
        problem = f"the lambda must give {name_of(start.type)}, as the start, not {name_of(body.type)}"
        raise UnsupportedError(problem, f"CAST(... AS {name_of(start.type)})")
    # What depends on the value so far must be at most as large as it.
    grows = body.size.element > 1 or (body.size.element and (body.size.growth or body.size.fixed or body.size.square))
    if grows and _is_long(start.type):
        problem = "its value could grow with each element"
        raise UnsupportedError(problem, "array_join(transform(array, x -> ...), '')")
    kind = duckdb_type(start.type)
    text = f"list_reduce({{0}}, lambda {names}: CAST({{body}} AS {kind}), {{1}})"
    whole = start.size + value.size + replace(body.size, element=0)
    # The array alone decides whether it is NULL: the start may be.
    made = applied(
        f"(CASE WHEN {{0}} IS NULL THEN NULL ELSE {text} END)",
        start.type,
        [value, _always(start)],
        body,
        size=whole,
        nulls=True,
    )
    if finish is None:
        return made
    (name,) = finish.names(1)
    given = replace(parameter(name, start.type), size=Cost(element=1))
    if finish.count != 1:
        raise UnsupportedError("the last lambda must have one parameter")
    last = typed(finish.translate([given], whole, 0))
    text = f"list_extract(list_transform([{{0}}], lambda {name}: {{body}}), 1)"
    text = f"CAST({text} AS {duckdb_type(last.type)})"
    text = f"(CASE WHEN {{1}} IS NULL THEN NULL ELSE {text} END)"
    return applied(
        text, last.type, [replace(made, nulls=()), value], last, size=size_of(last).for_each(whole), nulls=True
    )


def _always(value: Sql) -> Sql:
    """The value as an operand that is computed also if it is NULL."""
    return replace(value, nulls=()) if not value.raises else value


@function(
    LAMBDAS,
    "zip_with(array, array, (x, y) -> a)",
    lambdas=(2,),
    note="NULL for the missing elements of the shorter array",
)
def _zip_with(zone: str, a: Sql, b: Sql, each: Lambda) -> Sql:
    kinds = [array(value).type.value_type for value in (a, b)]
    both = Cost() + a.size + b.size
    names, body = called(each, kinds, both)
    typed(body)
    first, second = names.split(", ")
    # An element of the zipped list is a struct; each parameter is one of its fields.
    inner = f"list_extract(list_transform([pair[2]], lambda {second}: {{body}}), 1)"
    inner = f"list_extract(list_transform([pair[1]], lambda {first}: {inner}), 1)"
    text = f"list_transform(list_zip({{0}}, {{1}}), lambda pair: {inner})"
    parts, size = [replace(a, size=both), b], size_of(body).for_each(both)
    return applied(text, pa.list_(body.type), parts, body, size=size, guarded=True)


@function(
    LAMBDAS,
    "array_sort(array[, (x, y) -> n])",
    lambdas=(1,),
    note=f"NULL last; n is negative where x is before y, 0 or positive, an INT; of at most {MAX_COMPARED} elements with a lambda",
)
def _array_sort(zone: str, value: Sql, compare: Lambda | None = None) -> Sql:
    item = array(value).type.value_type
    if compare is None:
        return strict("list_sort({0}, 'ASC', 'NULLS LAST')", comparable(value, ordered=True).type, value)
    names, body = called(compare, [item, item], value.size)
    if body.type != INT:
        raise UnsupportedError(f"the lambda must give an INT, not {name_of(body.type)}", "CAST(... AS INT)")
    x, y = names.split(", ")
    compared = f"list_extract(list_transform([b.v], lambda {y}: {{body}}), 1)"
    compared = f"list_extract(list_transform([a.v], lambda {x}: {compared}), 1)"
    compared = f"CAST(CASE WHEN a.i <> b.i THEN sign({compared}) ELSE 0 END AS TINYINT)"
    rows = f"list_transform(entries, lambda a: list_transform(entries, lambda b: {compared}))"
    entries = "list_transform({0}, lambda item, place: struct_pack(i := place, v := item))"
    matrix = f"list_extract(list_transform([{entries}], lambda entries: {rows}), 1)"
    order = f"list_transform(sorted_places(flatten({matrix}), CAST(len({{0}}) AS INTEGER)), lambda place: {{0}}[place])"
    many = error(f"array_sort with a lambda sorts at most {MAX_COMPARED} elements")
    text = f"(CASE WHEN len({{0}}) > {MAX_COMPARED} THEN {many} ELSE {order} END)"
    return applied(text, value.type, [value], replace(body, raises=True, cost=body.cost.times(MAX_COMPARED)))
