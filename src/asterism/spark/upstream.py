"""Operators behind operators in one query: how one knows that its stream comes from another.

The columns of an operator's output carry a mark in their metadata, which outlives ``select``, ``where``, joins and, where it is
on the first DataFrame, ``union``. An operator whose input is marked takes that input's watermark from Spark, which carries it
through the query (docs/decisions/0018).
"""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MARK = "asterism"
"""The key in a column's metadata."""
DRAINS, WATERMARK = "drains", "watermark"
OURS, OTHER = "ours", "other"
"""Of Spark's watermark: it is that of the operator's inputs; it is another one, of the user's."""
_DELAY = "spark.watermarkDelayMs"
"""Where Spark itself notes that a column has a watermark."""
_PROCESS = uuid.uuid4().hex
"""In the mark: a table that was written with it, and is read as a stream, is no operator."""


def marked(df: DataFrame, *, watermark: str | None, drains: bool) -> DataFrame:
    """*df*, a streaming output of an operator, with its mark.

    :param watermark: what Spark's is, if it has one here
    :param drains: does it end its input by itself?
    """
    mark = {MARK: {"process": _PROCESS, WATERMARK: watermark, DRAINS: drains}}
    return df.select(*[F.col("`" + name.replace("`", "``") + "`").alias(name, metadata=mark) for name in df.columns])


def _marks(df: DataFrame) -> list[dict[str, object]]:
    if not df.isStreaming:
        return []
    found = (field.metadata.get(MARK) for field in df.schema)
    return [mark for mark in found if isinstance(mark, dict) and mark.get("process") == _PROCESS]


def has_upstream(df: DataFrame) -> bool:
    """Does this stream come from an operator?"""
    return bool(_marks(df))


def has_watermark(df: DataFrame) -> bool:
    """Does it, and does Spark's watermark tell how far its rows have come?"""
    marks = _marks(df)
    return bool(marks) and all(mark.get(WATERMARK) == OURS for mark in marks)


def is_watermarked(df: DataFrame) -> bool:
    """Has Spark a watermark of this stream? It does not take another."""
    return any(_DELAY in field.metadata for field in df.schema) or any(mark.get(WATERMARK) for mark in _marks(df))


def goes_on(df: DataFrame) -> bool:
    """Does it come from an operator whose input does not end by itself?"""
    return any(not mark.get(DRAINS) for mark in _marks(df))
