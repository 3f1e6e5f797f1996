"""Timelines of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from asterism.arguments import expect_string, shown
from asterism.errors import StreamDefinitionError
from asterism.matching.outputs import END_TIME, START_TIME
from asterism.streams.hosts import is_of_spark
from asterism.text.printable import quoted_name
from asterism.trace.timeline import MAX_ROWS, Timeline


def timeline(matches: Any, key: str | Sequence[str] = (), *, start: str = START_TIME, end: str = END_TIME) -> Timeline:
    """Draw matches on a time axis: a line for each key, a bar for each match, a point for each event.

    :param matches: the matches of a pattern over a table, or any rows with a start and an end, such as the results of windows: a
        DataFrame of Spark that is not a stream, a table of pyarrow, Polars, pandas or DuckDB. Columns that contain the events of
        a stage, as those of :attr:`asterism.PatternStream.matches`, become points.
    :param key: the columns whose values have a line each. Default: one line.
    :param start: the column with the start of a match, a timestamp
    :param end: the column with its end, a timestamp
    :return: a drawing, which notebooks show; ``to_svg()`` returns it as a string. It has the first 1,000 matches by start, and
        the first 30 keys.
    :raises StreamDefinitionError: there is no such column, it is not a timestamp, or the DataFrame is a stream

    >>> from datetime import datetime
    >>> rows = pa.table({"user": ["ann"], "start_time": [datetime(2026, 1, 1)], "end_time": [datetime(2026, 1, 2)]})
    >>> timeline(rows, "user")
    Timeline(1 matches)
    """
    for name, column in (("start", start), ("end", end)):
        expect_string(StreamDefinitionError, column, f"{name} must be the name of a column", f'{name}="window_{name}"')
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise StreamDefinitionError(f"the key must be columns, not {shown(key)}", hint='timeline(matches, key="user")')
    if is_of_spark(matches) and hasattr(matches, "isStreaming"):
        if matches.isStreaming:
            raise StreamDefinitionError(
                "a stream cannot be drawn",
                hint="timeline(spark.read.table(...)), over the rows that its sink has written",
            )
        rows = matches
        if start in matches.columns:
            rows = matches.orderBy(quoted_name(start))
        table = rows.limit(MAX_ROWS + 1).toArrow()
    elif hasattr(matches, "__arrow_c_stream__"):
        table = pa.table(matches)
    else:
        raise StreamDefinitionError(
            f"a timeline needs a DataFrame, not {shown(matches)}", hint="timeline(CEP.pattern(...).matches)"
        )
    return Timeline(table.slice(0, MAX_ROWS), tuple(names), start, end, has_more=table.num_rows > MAX_ROWS)
