"""Validates the results of user functions, so that no data is lost silently, and reports their failures."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.arguments import described
from asterism.columns.arrays import cast_to
from asterism.errors import PACKAGE_FOLDER, OperatorError, UserFunctionError
from asterism.expressions.types import name_of as type_name

_INSTALLED = ("site-packages", "dist-packages")
_SHOWN = 200
"""Maximum length of a value in a message."""


def called(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a user function. If it fails, the error has the line of user code."""
    try:
        return function(*arguments)
    except Exception as error:
        raise UserFunctionError(f"{what} failed", f"{described(error)}{_place(error)}") from error


def _place(error: Exception) -> str:
    """The last line that is not in this library or another installed one."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(PACKAGE_FOLDER)
    ]
    of_user = [frame for frame in frames if not any(part in Path(frame.filename).parts for part in _INSTALLED)]
    if not frames:
        return ""
    frame = (of_user or frames)[-1]
    return f"\n{Path(frame.filename).name}, line {frame.lineno}" + (f": {frame.line}" if frame.line else "")


# ---------------------------------------------------------------------- tables


def table_of(what: str, answer: Any, schema: pa.Schema) -> pa.Table:
    """The rows that *what* returned, with the columns of *schema*.

    :raises OperatorError: it is not a table; a column is missing or unknown; a value does not match its type
    """
    if isinstance(answer, pa.RecordBatch):
        answer = pa.Table.from_batches([answer])
    if isinstance(answer, Mapping):
        answer = [answer]
    if isinstance(answer, list | tuple) and all(isinstance(row, Mapping) for row in answer):
        for row in answer:
            check_names(what, row, schema)
        return rows_of(what, answer, schema)
    if isinstance(answer, pa.Table):
        check_names(what, answer.column_names, schema)
        columns = [_cast(what, answer.column(field.name), field) for field in schema]
        return pa.table(columns, schema=schema)
    if callable(getattr(answer, "to_numpy", None)) and hasattr(answer, "columns"):
        check_names(what, answer.columns, schema)
        columns = []
        for field in schema:
            series = answer[field.name]
            if series.dtype == object:  # Arrow converts other types without loss
                check_values(what, series, field)
            columns.append(_converted(what, series, field, from_pandas=True))
        return pa.table(columns, schema=schema)
    raise UserFunctionError(
        f"{what} returned {_shown(answer)}",
        hint="it must return a table, a DataFrame, a dict or a list of dicts with: " + ", ".join(schema.names),
    )


def rows_of(what: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """*rows*, whose names are those of *schema*, as a table."""
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        check_values(what, values, field)
        columns.append(_converted(what, values, field))
    return pa.table(columns, schema=schema)


def check_names(what: str, names: Iterable[Any], schema: pa.Schema) -> None:
    """:raises OperatorError: *names* are not those of *schema*"""
    returned = list(names)
    if returned == schema.names:
        return
    missing = [name for name in schema.names if name not in returned]
    unknown = [name for name in returned if name not in schema.names] + [
        name for name in returned if returned.count(name) > 1
    ]
    if not missing and not unknown:
        return
    columns = f"Its columns: {', '.join(schema.names)}\nReturned: {', '.join(map(str, returned)) or 'none'}"
    if missing:
        raise UserFunctionError(
            f'{what} returned no column "{missing[0]}"', columns, "return None if there is no value"
        )
    raise UserFunctionError(
        f'{what} returned "{unknown[0]}", which is not one of its columns',
        columns,
        "remove it, or declare it",
    )


def check_values(what: str, values: Iterable[Any], field: pa.Field) -> None:
    """:raises OperatorError: Arrow would truncate one of them"""
    if may_lose(field.type):
        for value in values:
            if loses(value, field.type):
                raise _does_not_fit(what, field, value, f"The conversion of {_shown(value)} would lose digits.")


def _cast(what: str, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return cast_to(column, field.type)
    except pa.ArrowException as error:
        raise _does_not_fit(what, field, column.type, str(error)) from None


def _converted(what: str, values: Any, field: pa.Field, *, from_pandas: bool | None = None) -> pa.Array:
    try:
        return pa.array(values, field.type, from_pandas=from_pandas)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = str(error)
    wrong = [value for value in values if not _fits(value, field.type, from_pandas)]
    raise _does_not_fit(what, field, wrong[0] if wrong else values, reason)


def _fits(value: Any, kind: pa.DataType, from_pandas: bool | None) -> bool:
    if loses(value, kind):
        return False
    try:
        pa.array([value], kind, from_pandas=from_pandas)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _does_not_fit(what: str, field: pa.Field, value: object, reason: str) -> OperatorError:
    return UserFunctionError(
        f'{what} returned {_shown(value)} for "{field.name}", which is {type_name(field.type)}',
        reason,
        "return a value of that type, such as round(value), or declare another type",
    )


def _shown(value: object) -> str:
    text = repr(value) if value is None or isinstance(value, Mapping | list | tuple | str | int | float) else str(value)
    if text.startswith("<"):  # a default repr, with only the address of the object
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


# ---------------------------------------------------------------------- values that Arrow would truncate


def may_lose(kind: pa.DataType) -> bool:
    """Whether a column of this type may truncate values."""
    if pa.types.is_nested(kind):
        return True
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def loses(value: Any, kind: pa.DataType) -> bool:
    """Whether Arrow would truncate *value*."""
    if value is None:
        return False
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return any(loses(key, kind.key_type) or loses(inner, kind.item_type) for key, inner in pairs)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if not isinstance(value, Mapping):
            return False  # Arrow accepts only tuples of the right length
        return set(value) != set(names) or any(loses(value[field.name], field.type) for field in kind)
    if pa.types.is_nested(kind):
        return isinstance(value, Iterable) and any(loses(inner, kind.value_type) for inner in value)
    if isinstance(value, float | Decimal | np.floating):
        return may_lose(kind) and math.isfinite(value) and bool(value % 1)
    if isinstance(value, datetime):
        if pa.types.is_date(kind):
            return value.time() != time()
        step = {"s": 1_000_000, "ms": 1000}.get(getattr(kind, "unit", ""), 1)
        return bool(value.microsecond % step)
    return False
