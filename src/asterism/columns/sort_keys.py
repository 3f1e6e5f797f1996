"""The order of rows by columns, as ``order_by`` writes it: ``price``, ``-price``, ``price NULLS LAST``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, from_numpy
from asterism.errors import ColumnTypeError

_WRITTEN = re.compile(r"(-?)(.*?)(?:\s+NULLS\s+(FIRST|LAST))?", re.IGNORECASE | re.DOTALL)


class SortKey(NamedTuple):
    """*nulls_first*: where NULL is; None: as in Spark, NULL is less than all other values."""

    name: str
    descending: bool = False
    nulls_first: bool | None = None

    @classmethod
    def of(cls, text: str) -> SortKey:
        """
        >>> SortKey.of("-price nulls first")
        SortKey(name='price', descending=True, nulls_first=True)
        >>> SortKey.of("price NULLS FIRST") == SortKey.of("price")
        True
        """
        written = _WRITTEN.fullmatch(text)
        assert written is not None, "it matches any text"
        descending, name, nulls = written.groups()
        first = None if nulls is None else nulls.upper() == "FIRST"
        return cls(name, bool(descending), None if first is not bool(descending) else first)

    def __str__(self) -> str:
        nulls = "" if self.nulls_first is None else " NULLS FIRST" if self.nulls_first else " NULLS LAST"
        return f"{'-' if self.descending else ''}{self.name}{nulls}"

    @property
    def described(self) -> tuple[Any, ...]:
        """For a fingerprint. Until 0.1.0, there was no other place for NULL."""
        return self[:2] if self.nulls_first is None else tuple(self)


def check_order(schema: pa.Schema, keys: Sequence[SortKey]) -> None:
    """:raises ColumnTypeError: the values of a column have no order"""
    for key in keys:
        kind = schema.field(key.name).type
        if pa.types.is_nested(kind) or pa.types.is_interval(kind):
            raise no_order(key.name, str(kind))


def no_order(name: str, kind: str) -> ColumnTypeError:
    return ColumnTypeError(
        f'events cannot be ordered by "{name}", which is of type {kind}',
        hint="order by a column with one of its fields or items",
    )


def order_of(rows: pa.Table, keys: Sequence[SortKey]) -> Ints:
    """The positions of the rows in the order of columns. The sort is stable. As in Spark, null is the smallest value unless the
    key says otherwise, NaN is the largest, and -0.0 is equal to 0.0.

    >>> order_of(pa.table({"a": [2, None, 2, 1], "b": ["x", "y", "z", None]}), [SortKey("a", True), SortKey("b", True)])
    array([2, 0, 3, 1])
    """
    order = np.arange(rows.num_rows)
    for name, descending, nulls_first in reversed(keys):
        values = rows.column(name).take(from_numpy(order))
        positions = pc.sort_indices(values, sort_keys=[("", "descending" if descending else "ascending")]).to_numpy()
        # In both directions, pyarrow sorts NaN and then null to the end.
        nans = (pc.sum(pc.is_nan(values)).as_py() or 0) if pa.types.is_floating(values.type) else 0
        nulls = len(values) - values.null_count
        others, largest, smallest = np.split(positions, [nulls - nans, nulls])
        known = [largest, others] if descending else [others, largest]
        first = (not descending) if nulls_first is None else nulls_first
        order = order[np.concatenate([smallest, *known] if first else [*known, smallest])]
    return order
