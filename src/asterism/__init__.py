"""Complex event processing for Apache Spark."""

from asterism.compiler import Semantics
from asterism.pattern import AfterMatchSkipStrategy, Contiguity, Pattern, WithinType

__all__ = ["AfterMatchSkipStrategy", "Contiguity", "Pattern", "Semantics", "WithinType"]
