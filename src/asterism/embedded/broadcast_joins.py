"""Joins with small tables over Arrow tables. DuckDB finds the pairs of rows, so that Spark's rules for equal values apply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.time import MILLISECONDS
from asterism.embedded.databases import database, errors_of_database
from asterism.embedded.events import table_of, zone_of_schema
from asterism.joins.types import FILTERING, INNER, LEFT_SEMI
from asterism.streams.broadcast_joins import Side

_LEFT, _RIGHT = "left_row", "right_row"


def frame(table: Any, what: str, hint: str) -> pa.Table:
    """A table with the types that it would have in Spark.

    :param what: the argument, for errors
    :raises StreamDefinitionError: it is no table
    """
    return table_of(table, None, MILLISECONDS, what=what, hint=hint)


def is_stream(table: pa.Table) -> bool:
    return False


def joined(left: pa.Table, side: Side[pa.Table], mark: str) -> pa.Table:
    """The left side, joined with a table.

    :param mark: a prefix for names that no column has
    """
    ours = [left.column(name) for name in side.columns]
    theirs = [side.df.column(name) for name in side.columns.values()]
    rows, others = _pairs(ours, theirs, side.how, zone_of_schema(left.schema))
    kept = left.take(rows)
    if side.how in FILTERING:
        return kept
    for name in side.brings:
        kept = kept.append_column(side.prefix + name, side.df.column(name).take(others))
    return kept


def _pairs(ours: list[Any], theirs: list[Any], how: str, zone: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The rows of both sides that belong together, in the order of the left side; of a row without a partner null."""
    names = [f"key{number}" for number in range(len(ours))]
    tables = {
        name: pa.table([*columns, pa.array(np.arange(len(columns[0])))], names=[*names, row])
        for name, columns, row in (("ours", ours, _LEFT), ("theirs", theirs, _RIGHT))
    }
    equal = " AND ".join(f"ours.{name} = theirs.{name}" for name in names)
    if how in FILTERING:
        query = f"SELECT {_LEFT}, NULL AS {_RIGHT} FROM ours {'SEMI' if how == LEFT_SEMI else 'ANTI'} JOIN theirs ON {equal}"
    else:
        query = f"SELECT {_LEFT}, {_RIGHT} FROM ours {'' if how == INNER else 'LEFT'} JOIN theirs ON {equal}"
    with database(zone) as connection, errors_of_database("the tables cannot be joined"):
        for name, table in tables.items():
            connection.register(name, table)
        pairs = connection.sql(f"{query} ORDER BY {_LEFT}, {_RIGHT}").to_arrow_table()
    return pairs.column(_LEFT), pairs.column(_RIGHT)
