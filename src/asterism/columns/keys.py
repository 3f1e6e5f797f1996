"""Keys as strings, from which the values can be restored. See docs/decisions/0089."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import from_strings
from asterism.columns.groups import normalize_nan_and_zero

KEY = "__key"
"""Column of keys as strings."""
_COLON, _NULL, _NOTHING = from_strings([":", "-", ""])


def key_strings(columns: Sequence[pa.ChunkedArray], rows: int) -> pa.Array:
    """Keys as strings for :func:`key_values`: each value after its length, ``-`` for a null.

    The string of a key depends on this key alone. Equal keys have the same string, and all others different ones: the values are
    those of Spark's GROUP BY, for which -0.0 is 0.0 and every NaN is the same.
    """
    if not columns:
        return from_strings([""] * rows)
    parts = []
    for column in columns:
        string = _as_string(column)
        part = pc.binary_join_element_wise(pc.cast(pc.utf8_length(string), pa.string()), string, _COLON)
        parts.append(pc.fill_null(part, _NULL) if part.null_count else part)
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _NOTHING)
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _as_string(column: pa.ChunkedArray) -> pa.ChunkedArray:
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_nested(kind):
        return _strings_of(column, lambda value: str(_normalized(value)))
    if not any(is_kind(kind) for is_kind in _BYTES):
        try:
            return pc.cast(normalize_nan_and_zero(column), pa.string())
        except pa.ArrowNotImplementedError:  # a type without text, such as an interval of months
            return _strings_of(column, str)
    try:
        strings = pc.cast(column.cast(pa.binary()), pa.string())
    except pa.ArrowInvalid:  # bytes that are not UTF-8
        return _strings_of(column, _string_of_bytes)
    literals = pc.or_(pc.starts_with(strings, "b'"), pc.starts_with(strings, 'b"'))
    return _strings_of(column, _string_of_bytes) if pc.any(literals).as_py() else strings


_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)


def _string_of_bytes(value: bytes) -> str:
    r"""Bytes as UTF-8. Those that are not UTF-8, and those that look like a literal of Python, are a literal of Python.

    >>> [_string_of_bytes(value) for value in (b"ann", b"\xff", b"b'a'")]
    ['ann', "b'\\xff'", 'b"b\'a\'"']
    """
    if value.startswith((b"b'", b'b"')):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return str(value)


def _normalized(value: Any) -> Any:
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: _normalized(part) for name, part in value.items()}
    return type(value)(map(_normalized, value)) if isinstance(value, list | tuple) else value


def _strings_of(column: pa.ChunkedArray, string_of: Callable[[Any], str]) -> pa.ChunkedArray:
    return pa.chunked_array(
        [[None if value is None else string_of(value) for value in column.to_pylist()]], pa.string()
    )


def key_values(string: str) -> list[str | None]:
    """The values of a key string.

    >>> key_values("3:ann-2:42")
    ['ann', None, '42']
    """
    texts: list[str | None] = []
    at = 0
    while at < len(string):
        if string[at] == "-":
            texts.append(None)
            at += 1
        else:
            colon = string.index(":", at)
            end = colon + 1 + int(string[at:colon])
            texts.append(string[colon + 1 : end])
            at = end
    return texts
