"""Complex event processing for Apache Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asterism.compiler import Semantics
from asterism.pattern import AfterMatchSkipStrategy, Contiguity, Pattern, WithinType

if TYPE_CHECKING:
    from asterism.spark.query import CEP, KeyedStream, PatternStream

__all__ = [
    "CEP",
    "AfterMatchSkipStrategy",
    "Contiguity",
    "KeyedStream",
    "Pattern",
    "PatternStream",
    "Semantics",
    "WithinType",
]

_ON_SPARK = {"CEP", "KeyedStream", "PatternStream"}


def __getattr__(name: str) -> Any:
    # Patterns can be written and tested without Spark: pyspark is imported when it is asked for.
    if name in _ON_SPARK:
        import asterism.spark.query

        return getattr(asterism.spark.query, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
