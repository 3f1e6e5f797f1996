"""Complex event processing for Apache Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from asterism.compiler import Semantics
from asterism.conditions import IterativeCondition
from asterism.pattern import AfterMatchSkipStrategy, Contiguity, Pattern, WithinType

if TYPE_CHECKING:
    from asterism.discovery import (
        FilePatternProcessorDiscovererFactory,
        HttpPatternProcessorDiscovererFactory,
        SqlPatternProcessorDiscovererFactory,
        UrlPatternProcessorDiscovererFactory,
    )
    from asterism.keyed_state import (
        BroadcastListState,
        BroadcastMapState,
        BroadcastValueState,
        ListState,
        MapState,
        ReducingState,
        ValueState,
    )
    from asterism.processors import (
        PatternProcessor,
        PatternProcessorDiscoverer,
        PatternProcessorDiscovererFactory,
        PatternProcessorManager,
        PeriodicPatternProcessorDiscoverer,
        ProcessorRegistry,
        RefusedProcessor,
    )
    from asterism.spark.connect import OperatorStream, connect
    from asterism.spark.dynamic import PatternProcessorStream
    from asterism.spark.joins import Side, multi_broadcast_join
    from asterism.spark.query import CEP, PatternStream
    from asterism.spark.streams import BroadcastStream, KeyedStream
    from asterism.stream_operator import (
        BroadcastInput,
        Context,
        Counter,
        Element,
        Input,
        InputSelection,
        Output,
        StreamOperator,
        Timer,
    )

__all__ = [
    "CEP",
    "AfterMatchSkipStrategy",
    "BroadcastInput",
    "BroadcastListState",
    "BroadcastMapState",
    "BroadcastStream",
    "BroadcastValueState",
    "Context",
    "Contiguity",
    "Counter",
    "Element",
    "FilePatternProcessorDiscovererFactory",
    "HttpPatternProcessorDiscovererFactory",
    "Input",
    "InputSelection",
    "IterativeCondition",
    "KeyedStream",
    "ListState",
    "MapState",
    "OperatorStream",
    "Output",
    "Pattern",
    "PatternProcessor",
    "PatternProcessorDiscoverer",
    "PatternProcessorDiscovererFactory",
    "PatternProcessorManager",
    "PatternProcessorStream",
    "PatternStream",
    "PeriodicPatternProcessorDiscoverer",
    "ProcessorRegistry",
    "ReducingState",
    "RefusedProcessor",
    "Semantics",
    "Side",
    "SqlPatternProcessorDiscovererFactory",
    "StreamOperator",
    "Timer",
    "UrlPatternProcessorDiscovererFactory",
    "ValueState",
    "WithinType",
    "connect",
    "multi_broadcast_join",
]

_LATE = {
    "discovery": [
        "FilePatternProcessorDiscovererFactory", "HttpPatternProcessorDiscovererFactory",
        "SqlPatternProcessorDiscovererFactory", "UrlPatternProcessorDiscovererFactory",
    ],
    "keyed_state": [
        "BroadcastListState", "BroadcastMapState", "BroadcastValueState", "ListState", "MapState", "ReducingState", "ValueState",
    ],
    "stream_operator": [
        "BroadcastInput", "Context", "Counter", "Element", "Input", "InputSelection", "Output", "StreamOperator", "Timer",
    ],
    "processors": [
        "PatternProcessor", "PatternProcessorDiscoverer", "PatternProcessorDiscovererFactory", "PatternProcessorManager",
        "PeriodicPatternProcessorDiscoverer", "ProcessorRegistry", "RefusedProcessor",
    ],
    "spark.connect": ["OperatorStream", "connect"],
    "spark.dynamic": ["PatternProcessorStream"],
    "spark.joins": ["Side", "multi_broadcast_join"],
    "spark.query": ["CEP", "PatternStream"],
    "spark.streams": ["BroadcastStream", "KeyedStream"],
}  # fmt: skip
"""Where to find what is imported when it is asked for: patterns and operators can be written and tested without Spark."""
_MODULES = {name: module for module, names in _LATE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"asterism.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
