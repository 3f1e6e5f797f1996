"""Keys as strings, from which the values can be restored."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

KEY = "__key"
"""Column of keys as strings."""


def key_strings(columns: Sequence[pa.ChunkedArray], rows: int) -> pa.Array:
    """Keys as strings for :func:`key_values`: each value after its length, ``-`` for a null."""
    if not columns:
        return pa.array([""] * rows, pa.string())
    parts = []
    for column in columns:
        string = _as_string(column)
        part = pc.binary_join_element_wise(pc.cast(pc.utf8_length(string), pa.string()), string, ":")
        parts.append(pc.fill_null(part, "-"))
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _as_string(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return pc.cast(column, pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # a struct; bytes that are not UTF-8
        return pa.chunked_array([[None if value is None else str(value) for value in column.to_pylist()]], pa.string())


def key_values(string: str) -> list[str | None]:
    """The values of a key string.

    >>> key_values("3:ann-2:42")
    ['ann', None, '42']
    """
    found: list[str | None] = []
    at = 0
    while at < len(string):
        if string[at] == "-":
            found.append(None)
            at += 1
        else:
            colon = string.index(":", at)
            end = colon + 1 + int(string[at:colon])
            found.append(string[colon + 1 : end])
            at = end
    return found
