"""Which rows make a computation fail: it is computed in parts, and the part that fails is divided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from asterism.errors import InvalidEventError

MAX_FAILURES = 16
"""After so many rows that fail, a part that fails is not divided any more."""
_T = TypeVar("_T")


def evaluated_in_parts(
    evaluate: Callable[[pa.Table], _T], rows: pa.Table, most: int = MAX_FAILURES
) -> Iterator[tuple[slice, _T | None]]:
    """The results of *evaluate* for parts of *rows*, in order, or None for a part for which it raises InvalidEventError: a single
    row, or after *most* failures a part of any size.

    >>> def square_roots(rows):
    ...     if min(rows["v"].to_pylist()) < 0:
    ...         raise InvalidEventError("negative")
    ...     return [v**0.5 for v in rows["v"].to_pylist()]
    >>> list(evaluated_in_parts(square_roots, pa.table({"v": [4, 9, -1, 16]})))
    [(slice(0, 2, None), [2.0, 3.0]), (slice(2, 3, None), None), (slice(3, 4, None), [4.0])]
    """
    parts = [(0, rows.num_rows)]
    while parts:
        begin, end = parts.pop()
        try:
            yield slice(begin, end), evaluate(rows.slice(begin, end - begin))
        except InvalidEventError:
            if end - begin <= 1 or not most:
                most = max(most - 1, 0)
                yield slice(begin, end), None
            else:
                middle = (begin + end) // 2
                parts += [(middle, end), (begin, middle)]


def first_failure(
    failure: Callable[[int], Exception | None], begin: int, end: int, error: Exception
) -> tuple[int, Exception]:
    """The first number from *begin* on for which *failure* returns an error, and this error. If there is none before *end*,
    *end* and *error*. What fails for a number fails for all greater ones.

    >>> first_failure(lambda number: ValueError(number) if number >= 3 else None, 0, 10, ValueError())
    (3, ValueError(3))
    """
    while begin < end:
        middle = (begin + end) // 2
        reason = failure(middle)
        begin, end, error = (middle + 1, end, error) if reason is None else (begin, middle, reason)
    return begin, error


def failure_of(call: Callable[[], object]) -> Exception | None:
    """The error of a call; None if it succeeds. A lack of memory is raised."""
    try:
        call()
    except MemoryError:
        raise
    except Exception as error:
        return error
    return None
