"""Functions in Python that expressions call by name where Spark does not evaluate them: in rules, and without Spark.

A query lists them for its rules, and a test hands them over: ``udfs={"haversine": haversine}``. They are called like the
functions that a Spark session registers: with the values of a row, None for NULL, whatever the types of the arguments are; or
with pandas Series or Arrow arrays, if they are such functions of PySpark.

Inside of :func:`listed`, expressions that are parsed know the functions. The syntax tree has the name under which a function is
registered in this process, so that the tree, and the SQL for DuckDB, mean the same everywhere.

See docs/decisions/0115.
"""

from __future__ import annotations

import inspect
import re
import traceback
import types
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

from asterism.arguments import shown
from asterism.columns.schemas import type_of
from asterism.columns.time_zones import zone_of
from asterism.errors import StreamDefinitionError
from asterism.expressions.functions import FUNCTIONS, NOT_PURE, Function
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOATS,
    INTEGERS,
    NULL,
    STRING,
    duckdb_type,
    is_instant,
    is_nested,
    is_numeric,
    name_of,
    spark_type,
    stored_type,
)
from asterism.expressions.udfs import USER_FUNCTIONS
from asterism.expressions.values import Cost, Sql, UnsupportedError, combined, quoted
from asterism.text.printable import one_line

MAX_RESULT = 10_000
"""The maximum size in bytes of a string, and of an array or a map, that a function returns."""
_MAX_FUNCTIONS = 1_000
_HINT = 'udfs={"haversine": haversine}, a function with type hints, (function, "double"), or a udf of PySpark'
_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
RESERVED = frozenset([
    "and", "any", "any_value", "approx_count_distinct", "approx_percentile", "array_agg", "avg", "between", "bool_and",
    "bool_or", "case", "cast", "classifier", "collect_list", "collect_set", "count", "count_if", "distinct", "else", "end",
    "every", "extract", "false", "final", "first", "first_value", "from", "in", "interval", "is", "last", "last_value",
    "match_number", "match_proctime", "match_rowtime", "max", "max_by", "mean", "median", "min", "min_by", "next", "not",
    "null", "or", "over", "percentile", "percentile_approx", "prev", "running", "select", "some", "std", "stddev", "stddev_pop",
    "stddev_samp", "sum", "then", "true", "try_cast", "var_pop", "var_samp", "variance", "when", "where", "within",
])  # fmt: skip
"""Aggregate functions, and words that a call cannot begin with or that begin another expression."""
_ROWS, _PANDAS, _ARROW = "rows", "pandas", "arrow"
_EVAL_TYPES = {100: _ROWS, 101: _ROWS, 200: _PANDAS, 250: _ARROW}
"""The kinds of functions of PySpark that take and return one value for each row (``PythonEvalType``)."""
_OF_HINTS = {
    bool: BOOLEAN, int: BIGINT, float: DOUBLE, str: STRING, bytes: BINARY, Decimal: pa.decimal128(38, 18), date: DATE,
    datetime: pa.timestamp("us", "UTC"),
}  # fmt: skip
"""The types of the results of functions with type hints, as those of Spark's Python data sources."""


class Purpose(StrEnum):
    """Where functions are listed, with what an error says about a function that is not among them."""

    NOTHING = ""
    RULES = (
        "a rule can call a function in Python that the query lists: CEP.pattern_processors(..., udfs={name: function})"
    )
    WITHOUT_SPARK = (
        "in a query, Spark evaluates what reads a single event, also functions of the session; without Spark, hand such a"
        " function over, udfs={name: function}, or give its value as a column of the events"
    )
    TABLES = "without Spark, there are only these: compute the value first, as a column of the table"
    CHECKED = "a function of the query is declared by its name and the type of its result: --udf haversine:double"


class UserFunction:
    """A function with its name in SQL.

    :param call: None: only its name and type are known, and its values are NULL
    :param kind: whether it takes and returns single values, pandas Series or Arrow arrays
    :param registered: the name in syntax trees and in SQL for DuckDB, which is the same in all processes of a query
    """

    __slots__ = ("call", "entry", "kind", "name", "registered", "result")

    def __init__(
        self, name: str, call: Callable[..., Any] | None, result: pa.DataType, kind: str, registered: str | None = None
    ) -> None:
        self.name, self.call, self.result, self.kind = name, call, result, kind
        self.registered = registered or f"udf_{uuid.uuid4().hex}_{name.lower()}"
        self.entry = Function(self.signature, "", "", self._value, strict=False)
        USER_FUNCTIONS[self.registered] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.name, self.call, self.result, self.kind, self.registered)

    @property
    def arguments(self) -> inspect.Signature | None:
        """The parameters; None: they are not known."""
        try:
            return None if self.call is None else inspect.signature(self.call)
        except (TypeError, ValueError):  # a function that is not written in Python
            return None

    @property
    def signature(self) -> str:
        """Its name, parameters and type.

        >>> checked({"area": (lambda width, height: width * height, "double")})["area"].signature
        'area(width, height): DOUBLE'
        """
        names = "..." if self.arguments is None else ", ".join(map(str, self.arguments.parameters))
        return f"{self.name}({names}): {name_of(self.result)}"

    # ------------------------------------------------------------------ translation

    def _value(self, zone: str, *arguments: Sql) -> Sql:
        """The value of a call."""
        self._check(arguments)
        for argument in arguments:
            if _has(argument.type, pa.types.is_struct) or pa.types.is_duration(argument.type):
                raise UnsupportedError(
                    f"an argument of {self.name} cannot be of type {name_of(argument.type)}", "pass its fields"
                )
        instants = " ".join(str(at) for at, argument in enumerate(arguments) if is_instant(argument.type))
        texts = [quoted(f"{zone}|{instants}"), *(argument.text for argument in arguments)]
        made = is_nested(self.result) or self.result in (STRING, BINARY)
        result = pa.timestamp("us", zone) if is_instant(self.result) else self.result
        return combined(
            f"{self.registered}({', '.join(texts)})",
            result,
            arguments,
            raises=True,
            size=Cost(fixed=MAX_RESULT) if made else None,
        )

    def _check(self, arguments: Sequence[Sql]) -> None:
        parameters = self.arguments
        if parameters is None or self.call is None:
            return
        try:
            given = parameters.bind(*arguments).arguments
        except TypeError:
            raise UnsupportedError(f"{self.name} does not take {len(arguments)} arguments", self.signature) from None
        hints = _hints(self.call) if self.kind == _ROWS else {}
        for name, argument in given.items():
            wanted = hints.get(name)
            if isinstance(argument, Sql) and wanted in _OF_HINTS and not _takes(wanted, argument.type):
                kind = name_of(_OF_HINTS[wanted])
                raise UnsupportedError(
                    f"the argument {name} of {self.name} must be {kind.split('(')[0]}, not {name_of(argument.type)}",
                    f"CAST(... AS {kind})",
                )

    # ------------------------------------------------------------------ evaluation

    @property
    def duckdb_result(self) -> str:
        return duckdb_type(self.result)

    def __call__(self, setup: pa.ChunkedArray, *columns: pa.ChunkedArray) -> pa.Array:
        """The values for rows. *setup* has the session time zone, and the numbers of the arguments that are a TIMESTAMP."""
        result = stored_type(self.result)
        if self.call is None or not len(setup):
            return pa.nulls(len(setup), result)
        zone, _, places = setup[0].as_py().partition("|")
        instants = {int(place) for place in places.split()}
        try:
            if self.kind == _ROWS:
                return self._of_rows(zone, instants, columns, len(setup))
            return self._of_columns(zone, instants, columns, len(setup))
        except _ResultError as error:
            raise _CallError(f"{self.name} {error}") from None
        except Exception as error:
            raise _CallError(f"{self.name} failed: {_described(error)}") from None

    def _of_rows(self, zone: str, instants: set[int], columns: Sequence[pa.ChunkedArray], count: int) -> pa.Array:
        assert self.call is not None
        values = [
            (_local(column, zone) if at in instants else column).to_pylist(maps_as_pydicts="strict")
            for at, column in enumerate(columns)
        ]
        rows = zip(*values, strict=True) if values else (() for _ in range(count))
        results = [self.call(*row) for row in rows]
        if is_instant(self.result):
            return _instants(results, zone)
        if self.result in FLOATS:
            results = [float(value) if type(value) is int else value for value in results]
        elif self.result in INTEGERS:  # Arrow would cut off the fraction
            part = next((value for value in results if isinstance(value, float | np.floating) and value % 1), None)
            if part is not None:
                raise _ResultError(f"returned a value that is not {name_of(self.result)}: {part}")
        return self._checked(lambda: pa.array(results, stored_type(self.result)))

    def _of_columns(self, zone: str, instants: set[int], columns: Sequence[pa.ChunkedArray], count: int) -> pa.Array:
        assert self.call is not None
        arrays = [column.combine_chunks() for column in columns]
        given: list[Any] = []
        for at, array in enumerate(arrays):
            if self.kind == _PANDAS:
                given.append((_local(array, zone) if at in instants else array).to_pandas())
            else:
                given.append(array.cast(pa.timestamp("us", zone)) if at in instants else array)
        results = self.call(*given)
        if self.kind == _ARROW:
            results = results.combine_chunks() if isinstance(results, pa.ChunkedArray) else results
            if not isinstance(results, pa.Array):
                raise _ResultError(f"returned {shown(results)}, not an Arrow array")
        if len(results) != count:
            raise _ResultError(f"returned {len(results):,} values for {count:,} rows")
        if is_instant(self.result):
            return _instants(results.to_pylist() if self.kind == _ARROW else results.tolist(), zone)
        if self.kind == _ARROW:
            return self._checked(lambda: results.cast(stored_type(self.result)))
        return self._checked(lambda: pa.Array.from_pandas(results, type=stored_type(self.result)))

    def _checked(self, convert: Callable[[], pa.Array]) -> pa.Array:
        try:
            array = convert()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _ResultError(
                f"returned a value that is not {name_of(self.result)}: {one_line(str(error), 200)}"
            ) from None
        if self.result in (STRING, BINARY) or is_nested(self.result):
            size = max((len(value) for value in array.to_pylist() if value is not None), default=0)
            if size > MAX_RESULT or array.nbytes > MAX_RESULT * max(len(array), 8):
                raise _ResultError(f"returned a value of more than {MAX_RESULT:,} bytes")
        return array


def _unpickled(name: str, call: Any, result: pa.DataType, kind: str, registered: str) -> UserFunction:
    known = USER_FUNCTIONS.get(registered)
    return known if isinstance(known, UserFunction) else UserFunction(name, call, result, kind, registered)


class _CallError(Exception):
    """A call has failed; DuckDB passes on the text."""


class _ResultError(Exception):
    """The function returned something unsuitable."""


def _described(error: Exception) -> str:
    """The exception, and the line of the user's code that raised it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {one_line(str(error), 300)}{place}"


def _has(data_type: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or a part of it, passes a test. A TIMESTAMP in an array or a map counts as a struct."""
    if test(data_type):
        return True
    if pa.types.is_map(data_type):
        parts = [data_type.key_type, data_type.item_type]
    else:
        parts = [data_type.field(number).type for number in range(data_type.num_fields)]
    return any(is_instant(part) or _has(part, test) for part in parts)


def _local(column: Any, zone: str) -> Any:
    """Local times of a zone, without a zone, as Spark passes a TIMESTAMP to Python."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    valid = column.is_valid()
    values = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    local = pa.array(values + zone_of(zone).at_instant(values), mask=~valid.to_numpy(zero_copy_only=False))
    return local.cast(pa.timestamp("us"))


def _instants(values: Sequence[Any], zone: str) -> pa.Array:
    """The points in time of datetimes, which without a zone are local times."""
    aware = [value.tzinfo is not None if isinstance(value, datetime) else False for value in values]
    plain = []
    for value in values:
        if value is not None and not isinstance(value, datetime):
            raise _ResultError(f"returned a value that is not TIMESTAMP: {value!r:.100}")
        if value is not None and value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        plain.append(value)
    array = pa.array(plain, pa.timestamp("us"))
    micros = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    moved = np.where(np.array(aware, bool), micros, micros - zone_of(zone).at_local_time(micros))
    return pa.array(moved, mask=array.is_null().to_numpy(zero_copy_only=False)).cast(pa.timestamp("us"))


# ---------------------------------------------------------------------------------------------------- what is listed


@dataclass(frozen=True, eq=False)
class UserFunctions(Mapping[str, UserFunction]):
    """Functions by their names in lower case."""

    by_name: Mapping[str, UserFunction] = field(default_factory=dict)
    purpose: Purpose = Purpose.NOTHING

    def __getitem__(self, name: str) -> UserFunction:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UserFunctions) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.purpose, *sorted(function.registered for function in self.by_name.values())

    @property
    def hint(self) -> str | None:
        """What an error says about a function that is not among these."""
        if self.purpose is Purpose.NOTHING:
            return None
        if self.purpose is Purpose.TABLES:
            return str(self.purpose)
        names = ", ".join(sorted(function.name for function in self.values())) or "none"
        return f"{self.purpose}; listed: {names:.500}"


_NONE = UserFunctions()
_LISTED: ContextVar[UserFunctions] = ContextVar("listed", default=_NONE)


def listed_functions() -> UserFunctions:
    """The functions that expressions can call."""
    return _LISTED.get()


@contextmanager
def listed(functions: UserFunctions, purpose: Purpose | None = None) -> Iterator[None]:
    """Inside of the block, expressions that are parsed can call *functions*.

    :param purpose: another one than that of *functions*
    """
    if purpose is not None and purpose is not functions.purpose:
        functions = UserFunctions(functions.by_name, purpose)
    token = _LISTED.set(functions)
    try:
        yield
    finally:
        _LISTED.reset(token)


def checked(given: Any, purpose: Purpose = Purpose.NOTHING) -> UserFunctions:
    """Functions by name, each a function with type hints, a pair of a function and a type, or a function of PySpark.

    :raises StreamDefinitionError: something else was given, or a name has a meaning in SQL

    >>> def twice(x: int) -> int:
    ...     return 2 * x
    >>> checked({"twice": twice})["twice"].signature
    'twice(x): BIGINT'
    """
    if isinstance(given, UserFunctions):
        return given if purpose is given.purpose else UserFunctions(given.by_name, purpose)
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise StreamDefinitionError(f"udfs must be a dict by name, not {shown(given)}", hint=_HINT)
    if len(given) > _MAX_FUNCTIONS:
        raise StreamDefinitionError(f"{len(given):,} functions are too many (limit {_MAX_FUNCTIONS:,})")
    functions: dict[str, UserFunction] = {}
    for name, function in given.items():
        _check_name(name)
        if name.lower() in functions:
            raise StreamDefinitionError(
                f"there are two functions {name!r:.60}", hint="names of functions are case-insensitive"
            )
        functions[name.lower()] = _checked_function(name, function)
    return UserFunctions(functions, purpose)


def declared(types_by_name: Mapping[str, pa.DataType]) -> UserFunctions:
    """Functions of which only the types of the results are known, for checks: their values are NULL.

    :raises StreamDefinitionError: a name has a meaning in SQL, or no function can be of the type
    """
    functions = {}
    for name, data_type in types_by_name.items():
        _check_name(name)
        functions[name.lower()] = UserFunction(name, None, _result(name, data_type), _ROWS)
    return UserFunctions(functions, Purpose.CHECKED)


def types_of_signatures(signatures: Mapping[str, str]) -> dict[str, pa.DataType]:
    """The types of the results, by name, from the signatures in the status of a query.

    >>> types_of_signatures({"area": "area(width, height): DOUBLE"})
    {'area': DataType(double)}
    """
    types_by_name = {}
    for name, signature in signatures.items():
        _, colon, text = str(signature).rpartition("): ")
        if colon:
            types_by_name[name] = type_of(text)
    return types_by_name


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise StreamDefinitionError(f"{name!r:.100} cannot be the name of a function", hint=_HINT)
    if name.lower() in FUNCTIONS or name.lower() in NOT_PURE or name.lower() in RESERVED:
        raise StreamDefinitionError(f"the name {name} has a meaning in SQL", hint="another name for the function")


def _checked_function(name: str, given: Any) -> UserFunction:
    kind, function = _ROWS, given
    result: Any = None
    if isinstance(given, tuple) and len(given) == 2:
        function, result = given
    elif all(hasattr(given, attribute) for attribute in ("func", "returnType", "evalType")):  # of PySpark
        if given.evalType not in _EVAL_TYPES:
            hint = "a function that returns a value, or a pandas Series or Arrow array, for each row"
            raise StreamDefinitionError(f"{name} is a function of another kind ({given.evalType})", hint=hint)
        if not getattr(given, "deterministic", True):
            raise StreamDefinitionError(f"{name} is not deterministic, so results would depend on when it is called")
        kind, function, result = _EVAL_TYPES[given.evalType], given.func, given.returnType
    if not callable(function):
        raise StreamDefinitionError(f"{name} must be a function, not {shown(given)}", hint=_HINT)
    if result is None:
        returned = _hints(function).get("return")
        if returned is None:
            raise StreamDefinitionError(
                f"the type of the result of {name} is not known", hint=f'a type hint, or ({name}, "double")'
            )
        result = _type_of_hint(name, returned)
    return UserFunction(name, function, _result(name, result), kind)


def _result(name: str, given: Any) -> pa.DataType:
    """The type of a result, from a text, a type of PySpark or an Arrow type."""
    text = given.simpleString() if hasattr(given, "simpleString") else given
    if not isinstance(text, str | pa.DataType):
        raise StreamDefinitionError(f"the type of the result of {name} must be a type, not {shown(given)}", hint=_HINT)
    result = spark_type(type_of(text), "UTC")
    if result is None or result == NULL or _has(result, pa.types.is_struct):
        raise StreamDefinitionError(
            f"{name} cannot return {text!s:.100}", hint="a number, a string, a date, an array ..."
        )
    return result


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function, without None."""
    try:
        hints = get_type_hints(function)
    except Exception:
        try:
            hints = get_type_hints(type(function).__call__)
        except Exception:
            return {}
    return {name: _without_none(hint) for name, hint in hints.items()}


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        return parts[0] if len(parts) == 1 else hint
    return hint


def _type_of_hint(name: str, hint: Any) -> pa.DataType:
    if isinstance(hint, type) and hint in _OF_HINTS:
        return _OF_HINTS[hint]
    if get_origin(hint) is list and len(get_args(hint)) == 1:
        return pa.list_(_type_of_hint(name, _without_none(get_args(hint)[0])))
    raise StreamDefinitionError(
        f"the type hint {hint!r:.60} of {name} has no type in SQL", hint=f'({name}, "array<double>")'
    )


def _takes(hint: type, data_type: pa.DataType) -> bool:
    """Whether an argument can have a type hint."""
    if data_type == NULL:
        return True
    if hint in (int, float, Decimal):
        return is_numeric(data_type)
    if hint is datetime:
        return bool(pa.types.is_timestamp(data_type))
    return bool(data_type == _OF_HINTS[hint])
