"""Chained operators in one query: detects that a stream is the output of another operator.

The columns of an operator's output have a mark in their metadata, which is preserved by ``select``, ``where``, joins and, if
the first DataFrame has it, ``union``. For a marked input, an operator uses Spark's watermark, which Spark propagates through
the query (docs/decisions/0018).
"""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from asterism.errors import StreamDefinitionError
from asterism.text.printable import quoted_name

MARK = "asterism"
"""The key in a column's metadata."""
DRAINS, WATERMARK, BEHIND = "drains", "watermark", "behind"
OURS, OTHER = "ours", "other"
"""The kind of Spark's watermark: that of the operator's inputs, or another one, defined by the user."""
_DELAY = "spark.watermarkDelayMs"
"""The metadata key with which Spark itself marks a column that has a watermark."""
_PROCESS = uuid.uuid4().hex
"""Part of the mark, since a table can be written with the metadata and read as a stream later, without an operator."""


def marked(df: DataFrame, *, watermark: str | None, drains: bool, behind: int | None = 0) -> DataFrame:
    """*df*, a streaming output of an operator, with the mark.

    :param watermark: the kind of Spark's watermark, if there is one
    :param drains: whether the operator ends its input independently
    :param behind: how far the time of a row may lie behind that watermark, in microseconds; None: any time
    """
    mark = {MARK: {"process": _PROCESS, WATERMARK: watermark, DRAINS: drains, BEHIND: behind}}
    return df.select(*[F.col(quoted_name(name)).alias(name, metadata=mark) for name in df.columns])


def _marks(df: DataFrame) -> list[dict[str, object]]:
    if not df.isStreaming:
        return []
    marks = (field.metadata.get(MARK) for field in df.schema)
    return [mark for mark in marks if isinstance(mark, dict) and mark.get("process") == _PROCESS]


def has_upstream(df: DataFrame) -> bool:
    """Whether this stream is the output of an operator."""
    return bool(_marks(df))


def has_watermark(df: DataFrame) -> bool:
    """Whether this stream is the output of an operator, and Spark's watermark is that of its rows."""
    marks = _marks(df)
    return bool(marks) and all(mark.get(WATERMARK) == OURS for mark in marks)


def behind(df: DataFrame) -> int:
    """How far the times of rows may lie behind Spark's watermark, in microseconds, if this stream is the output of an operator.

    :raises StreamDefinitionError: any time
    """
    delays = [mark.get(BEHIND, 0) for mark in _marks(df)]
    if any(not isinstance(delay, int) for delay in delays):
        raise StreamDefinitionError(
            "the rows of this stream can be late by any time, because MATCH_RECOGNIZE over a stream made them without WITHIN",
            "A match is emitted when it is decided. Its rows can be from long before that, and would be dropped.",
            "WITHIN in that clause, without NEXT and $, and without PREV in MEASURES; or write its result to a table, and read"
            " that as a stream",
        )
    return max((delay for delay in delays if isinstance(delay, int)), default=0)


def is_watermarked(df: DataFrame) -> bool:
    """Whether Spark has a watermark for this stream. It does not accept a second one."""
    return any(_DELAY in field.metadata for field in df.schema) or any(mark.get(WATERMARK) for mark in _marks(df))


def ends_by_itself(df: DataFrame) -> bool:
    """Whether this stream is the output of an operator that ends its input independently."""
    return any(mark.get(DRAINS) for mark in _marks(df))


def goes_on(df: DataFrame) -> bool:
    """Whether this stream is the output of an operator that does not end its input independently."""
    return any(not mark.get(DRAINS) for mark in _marks(df))
