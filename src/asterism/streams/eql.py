"""EQL over tables and streams."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from asterism.arguments import expect_string
from asterism.elastic.conditions import CATEGORY, TIME
from asterism.errors import StreamDefinitionError
from asterism.streams.hosts import host_of, module_of
from asterism.streams.keyed_stream import check_watermarks
from asterism.streams.run_options import check_use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EQL = "eql"
"""The module of a host that evaluates queries."""


@overload
def eql(
    query: str,
    events: DataFrame,
    *,
    time: str = ...,
    category: str = ...,
    max_out_of_orderness: timedelta = ...,
    idle_after: timedelta | None = ...,
    watermark_by: Sequence[str] = ...,
    key_groups: int | None = ...,
) -> DataFrame: ...


@overload
def eql(
    query: str,
    events: Any,
    *,
    time: str = ...,
    category: str = ...,
    max_out_of_orderness: timedelta = ...,
    idle_after: timedelta | None = ...,
    watermark_by: Sequence[str] = ...,
    key_groups: int | None = ...,
) -> pa.Table: ...


def eql(
    query: str,
    events: Any,
    *,
    time: str = TIME,
    category: str = CATEGORY,
    max_out_of_orderness: timedelta = timedelta(0),
    idle_after: timedelta | None = None,
    watermark_by: Sequence[str] = (),
    key_groups: int | None = None,
) -> Any:
    """The events, or sequences of events, that a query in EQL finds.

    :param query: a query, such as ``process where process.name : "cmd.exe"`` or
        ``sequence by user with maxspan=5m [ ] [ ]``. A field with dots is a column of this name, or else a field of a STRUCT.
    :param events: a streaming or a batch DataFrame; or a table, for a query without Spark, as for :class:`asterism.KeyedStream`
    :param time: the column of the event time. Default: ``@timestamp``
    :param category: the column of the event category. Default: ``event.category``
    :param max_out_of_orderness, idle_after, watermark_by: as for :class:`asterism.KeyedStream` (sequences over streams)
    :param key_groups: as for :func:`asterism.match_recognize` (sequences over streams)
    :returns: of an event query, the events with their columns. Of a sequence, also the events, in their order, with two columns
        before theirs: ``sequence`` (BIGINT), the number of the sequence among those with the same keys, and ``event_number``
        (INT), from 1, the number of the event in it. Over a table, sequences are in the order in which they end. With the pipe
        ``count``, one row with the column ``count`` (BIGINT)
    :raises ExpressionError: the query is invalid, or does not fit the columns
    :raises StreamDefinitionError: an argument is invalid

    >>> import pyarrow as pa
    >>> events = pa.table({"@timestamp": [1, 2, 3], "user": ["ann", "bob", "ann"], "action": ["fail", "fail", "login"]})
    >>> eql('sequence by user [any where action == "fail"] [any where action == "login"]', events)["action"].to_pylist()
    ['fail', 'login']

    More examples: docs/from_eql.md. Source: https://www.elastic.co/guide/en/elasticsearch/reference/current/eql-syntax.html
    """
    expect_string(StreamDefinitionError, query, "a query must be a string", "'process where pid == 4'")
    expect_string(StreamDefinitionError, time, "time must be the name of a column", 'time="ts"')
    expect_string(StreamDefinitionError, category, "category must be the name of a column", 'category="kind"')
    check_watermarks(idle_after, watermark_by)
    check_use(key_groups)
    options = {
        "max_out_of_orderness": max_out_of_orderness,
        "idle_after": idle_after,
        "watermark_by": watermark_by,
        "key_groups": key_groups,
    }
    return module_of(host_of(events), _EQL).eql(query, events, time, category, options)
