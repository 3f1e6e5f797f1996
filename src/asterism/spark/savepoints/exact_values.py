"""Values of keys as values of another type, if nothing is lost: 7.5 is no integer, and not 7.

Spark's casts round and truncate. A key that is removed must be the one that was named.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

_NUMBERS, _TIMES = (T.NumericType,), (T.DateType, T.TimestampType, T.TimestampNTZType)
_WITH_TEXT = (T.StringType, T.BinaryType, T.BooleanType, *_NUMBERS, *_TIMES)
_DIGITS_BEYOND_MICROS = r"\.\d{6}\d*[1-9]"
_TEXT_OF_INFINITY = r"(?i)^\s*[+-]?inf(inity)?\s*$"
_MOST_DIGITS = T.DecimalType(38, 18)


def exact(value: Column, given: T.DataType, wanted: T.DataType) -> Column:
    """A value of the type *given* as one of the type *wanted*; NULL if it is none, or would be rounded or truncated."""
    if given == wanted or isinstance(given, T.NullType):
        return value.cast(wanted)
    if isinstance(wanted, T.StringType):
        return value.cast(wanted) if isinstance(given, _WITH_TEXT) else F.lit(None).cast(wanted)
    if isinstance(given, T.StringType):
        made = value.try_cast(wanted)
        return F.when(_is_exact_text(value, made, wanted), made)
    same_kind = any(isinstance(given, kinds) and isinstance(wanted, kinds) for kinds in (_NUMBERS, _TIMES))
    if not (same_kind or (type(given) is type(wanted) and not isinstance(given, T.MapType))):
        return F.lit(None).cast(wanted)
    made = value.try_cast(wanted)
    return F.when(made.try_cast(given).eqNullSafe(value), made)


def _is_exact_text(text: Column, made: Column, wanted: T.DataType) -> Column:
    """Whether a text says no more than the value *made* of it."""
    if isinstance(wanted, T.TimestampType):
        return ~text.rlike(_DIGITS_BEYOND_MICROS)
    if isinstance(wanted, T.TimestampNTZType):  # a time zone in the text would not count
        return ~text.rlike(_DIGITS_BEYOND_MICROS) & text.try_cast("timestamp").eqNullSafe(made.cast("timestamp"))
    if isinstance(wanted, T.DateType):  # what follows the day would not count
        return text.try_cast("timestamp_ntz").eqNullSafe(made.cast("timestamp_ntz"))
    if isinstance(wanted, T.DecimalType):
        return text.rlike(rf"^\s*[+-]?\d*(\.\d{{0,{wanted.scale}}}0*)?\s*$")
    if isinstance(wanted, T.FloatType | T.DoubleType):
        of_text, of_number = text.try_cast(_MOST_DIGITS), made.cast("string").try_cast(_MOST_DIGITS)
        is_finite = ~F.abs(made).eqNullSafe(F.lit(float("inf")))
        return (is_finite | text.rlike(_TEXT_OF_INFINITY)) & F.coalesce(of_text == of_number, F.lit(True))
    return ~text.rlike(_DIGITS_BEYOND_MICROS) if wanted.typeName().startswith("time") else F.lit(True)
