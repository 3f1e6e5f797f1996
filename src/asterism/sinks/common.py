"""What several sinks share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import pyarrow as pa

from asterism.arguments import expect_strings
from asterism.errors import SinkError

KEY = 'key="match_id"'
"""An example of a key."""


class ToArrow(Protocol):
    """What a sink needs of a DataFrame."""

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """All rows."""


def named_columns(names: str | Sequence[str], argument: str = "key", hint: str = KEY) -> tuple[str, ...]:
    """The columns that an argument of a sink names.

    :raises SinkError: it is neither a column nor a list of columns
    """
    columns = (names,) if isinstance(names, str) else names
    expect_strings(SinkError, columns, f"the {argument} of a sink must be a column or a list of columns", hint)
    if not columns:
        raise SinkError(f"the {argument} of a sink needs a column", hint=hint)
    return tuple(columns)


def check_key(key: Sequence[str], columns: Collection[str]) -> None:
    """:raises SinkError: *columns*, those of the rows, lack a column that identifies a row"""
    for name in key:
        if name not in columns:
            raise SinkError(
                f"the rows have no column {name!r}, so they cannot be written exactly once",
                f"Columns: {', '.join(columns)}",
                f'add it to the measures: select={{"matches": ["{name}", ...]}}'
                if name == "match_id"
                else "name the columns that identify a row: key=[...]",
            )
