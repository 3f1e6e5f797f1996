"""Complex event processing for Apache Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from asterism.compiler import Semantics
from asterism.pattern import AfterMatchSkipStrategy, Contiguity, Pattern, WithinType

if TYPE_CHECKING:
    from asterism.spark.query import CEP, PatternStream
    from asterism.spark.streams import BroadcastStream, KeyedStream

__all__ = [
    "CEP",
    "AfterMatchSkipStrategy",
    "BroadcastStream",
    "Contiguity",
    "KeyedStream",
    "Pattern",
    "PatternStream",
    "Semantics",
    "WithinType",
]

_ON_SPARK = {
    "CEP": "query",
    "BroadcastStream": "streams",
    "KeyedStream": "streams",
    "PatternStream": "query",
}


def __getattr__(name: str) -> Any:
    # Patterns can be written and tested without Spark: pyspark is imported when it is asked for.
    if name in _ON_SPARK:
        return getattr(import_module(f"asterism.spark.{_ON_SPARK[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
