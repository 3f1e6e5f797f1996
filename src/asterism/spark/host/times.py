"""Event times as Spark columns, in the same microseconds as :class:`asterism.columns.time.TimeColumn`."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from asterism.columns.internal import internal
from asterism.columns.time import DAY, FAR, TIME_UNITS
from asterism.text.printable import quoted_name

EVENT_TIME, PARTITION = internal("event_time"), internal("partition_")
"""The event time in microseconds, and the first part of the names of the columns of ``watermark_by``, before the exchange."""
_NTZ = (
    f"bigint(unix_date(date({{0}}))) * {DAY} + bigint(hour({{0}})) * 3600000000 + bigint(minute({{0}})) * 60000000"
    " + bigint(extract(SECOND FROM {0}) * 1000000)"
)


def spark_delay(max_out_of_orderness: timedelta) -> int:
    """The delay of Spark's watermark in milliseconds, rounded up: Spark's watermark is never later than
    ``max(time) - max_out_of_orderness - 1 ms``.

    >>> spark_delay(timedelta(0)), spark_delay(timedelta(microseconds=500)), spark_delay(timedelta(seconds=1))
    (1, 2, 1001)
    """
    return -(-max_out_of_orderness // timedelta(milliseconds=1)) + 1


def event_micros(df: DataFrame, name: str, unit: str) -> Column:
    """The event time in a column, in microseconds since 1970-01-01 UTC; null if it is null or out of range.

    It does not depend on the session's time zone, which a cast from TIMESTAMP_NTZ to TIMESTAMP would use.
    """
    column, kind = quoted_name(name), df.schema[name].dataType
    if isinstance(kind, T.TimestampType):
        micros = F.unix_micros(F.col(column))
    elif isinstance(kind, T.TimestampNTZType):
        micros = F.expr(_NTZ.format(column))
    elif isinstance(kind, T.DateType):
        micros = F.unix_date(F.col(column)).cast("long") * DAY
    elif TIME_UNITS[unit] >= 1000:
        micros = F.try_multiply(F.col(column), F.lit(TIME_UNITS[unit] // 1000))
    else:
        micros = F.expr(f"{column} div 1000 - int(pmod({column}, 1000) != 0 AND {column} < 0)").cast("long")
    return F.when(micros.between(-FAR, FAR), micros)
