"""``asterism.sql``: statements with MATCH_RECOGNIZE, with Spark or without it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from asterism.matching.spec import OnLimit
from asterism.row_patterns.clause.clause import DialectName
from asterism.row_patterns.operator import MAX_ROWS
from asterism.streams.hosts import EMBEDDED, SPARK, module_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from asterism.operators.stream_operator import StreamOperator
    from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory


@overload
def sql(
    text: str,
    spark: SparkSession,
    *,
    max_out_of_orderness: timedelta = ...,
    idle_after: timedelta | None = ...,
    watermark_by: Sequence[str] = ...,
    key_groups: int | None = ...,
    drain: bool = ...,
    max_rows: int = ...,
    on_limit: OnLimit = ...,
    dialect: DialectName = ...,
    **tables: DataFrame | PatternProcessorDiscovererFactory | type[StreamOperator],
) -> DataFrame: ...


@overload
def sql(
    text: str,
    spark: None = ...,
    *,
    max_out_of_orderness: timedelta = ...,
    idle_after: timedelta | None = ...,
    watermark_by: Sequence[str] = ...,
    key_groups: int | None = ...,
    drain: bool = ...,
    max_rows: int = ...,
    on_limit: OnLimit = ...,
    dialect: DialectName = ...,
    **tables: Any,
) -> pa.Table: ...


def sql(
    text: str,
    spark: SparkSession | None = None,
    *,
    max_out_of_orderness: timedelta = timedelta(0),
    idle_after: timedelta | None = None,
    watermark_by: Sequence[str] = (),
    key_groups: int | None = None,
    drain: bool = False,
    max_rows: int = MAX_ROWS,
    on_limit: OnLimit = "error",
    dialect: DialectName = "standard",
    **tables: Any,
) -> Any:
    """The result of a statement of SQL, in which tables, views and subqueries can be followed by MATCH_RECOGNIZE, or by
    MATCH_RECOGNIZE_DYNAMIC, whose patterns are rules that can change while the query runs. Operators are table functions:
    ``FROM TABLE(sessions(TABLE clicks PARTITION BY user, on_time => DESCRIPTOR(ts)))``, see :func:`asterism.register_function`.

    The rest of the statement is SQL of Spark. With a session, Spark executes it. Without one, it is translated for DuckDB, which
    reads the *tables* alone; then it must be a query, and the result is an Arrow table (docs/tables.md).

    With a clause or a call over a stream, the result is a streaming DataFrame, which ``writeStream`` starts. The options are
    those of :func:`asterism.match_recognize`, for every clause; those of watermarks, *key_groups* and *drain* also for every
    call. Late rows are dropped and counted.

    :param spark: the session; None: this process runs the statement, without Spark
    :param max_out_of_orderness, idle_after, watermark_by: as for :class:`asterism.KeyedStream`, for every stream before a clause
        or in a call that has an event time. The result of another clause or call has the watermark of that one, so
        *watermark_by* is not for it; all other streams must have its columns.
    :param dialect: as for :func:`asterism.match_recognize`, for every clause
    :param tables: DataFrames, by the names that the statement uses; they hide tables and views with these names. Without a
        session anything that a :class:`asterism.KeyedStream` takes for a table. For MATCH_RECOGNIZE_DYNAMIC, also discoverer
        factories of pattern processors. For calls, also subclasses of StreamOperator, which hide registered functions. A table
        with the name of an option needs another name. There are no ``args``: values for parameters such as ``:x`` come in a
        DataFrame, or as literals.
    :raises ExpressionError: a clause or a call is invalid; with the position in the statement
    :raises StreamDefinitionError: an argument is invalid
    :raises pyspark.errors.AnalysisException: the rest of the statement is invalid; without a session StreamDefinitionError

    Runnable examples: docs/match_recognize.md, docs/operators.md.
    """
    host = EMBEDDED if spark is None else SPARK
    return module_of(host, "statements").sql(
        text,
        spark,
        max_out_of_orderness=max_out_of_orderness,
        idle_after=idle_after,
        watermark_by=watermark_by,
        key_groups=key_groups,
        drain=drain,
        max_rows=max_rows,
        on_limit=on_limit,
        dialect=dialect,
        **tables,
    )
