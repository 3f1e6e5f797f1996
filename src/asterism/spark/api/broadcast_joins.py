"""Joins with small tables over DataFrames of Spark."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from asterism.arguments import expect
from asterism.errors import StreamDefinitionError
from asterism.spark.session.pipelines import analyzable
from asterism.streams.broadcast_joins import Side
from asterism.text.printable import quoted_name


def frame(df: Any, what: str, hint: str) -> DataFrame:
    """A DataFrame that Spark can analyze.

    :param what: the argument, for the error
    :raises StreamDefinitionError: it is something else
    """
    expect(StreamDefinitionError, df, DataFrame, f"{what} must be a DataFrame", hint)
    return analyzable(df)


def is_stream(df: DataFrame) -> bool:
    return df.isStreaming


def joined(left: DataFrame, side: Side, mark: str) -> DataFrame:
    """The left side, joined with a table.

    :param mark: a prefix for names that no column has
    """
    # Unique names prevent ambiguous references between tables that are derived from one another.
    keys = {ours: mark + theirs for ours, theirs in side.columns.items()}
    right = side.df.select(
        *[F.col(quoted_name(theirs)).alias(mark + theirs) for theirs in dict.fromkeys(side.columns.values())],
        *[F.col(quoted_name(name)).alias(side.prefix + name) for name in side.brings],
    )
    on = reduce(and_, [F.col(quoted_name(ours)) == F.col(quoted_name(theirs)) for ours, theirs in keys.items()])
    return left.join(F.broadcast(right), on, side.how).drop(*keys.values())
