"""Complex event processing over tables and streams, in this process and on Apache Spark.

Begin with KeyedStream, Pattern and CEP. Docstrings and messages name pages of the documentation, such as
docs/limits.md: ``asterism docs limits`` shows this page, and ``asterism docs`` lists all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING
from typing import Any as Value

import asterism.spark  # noqa: F401 - sets the interpreter of a session that is created before the first use of the library
from asterism.loading import loading

if TYPE_CHECKING:
    __version__: str
    from asterism.cep import CEP
    from asterism.changes.plan import SavepointPlan
    from asterism.discovery import (
        FilePatternProcessorDiscovererFactory,
        HttpPatternProcessorDiscovererFactory,
        KafkaPatternProcessorDiscovererFactory,
        SigmaPatternProcessorDiscovererFactory,
        SqlPatternProcessorDiscovererFactory,
        UrlPatternProcessorDiscovererFactory,
    )
    from asterism.live.batches import Batch
    from asterism.live.engine import LiveEngine
    from asterism.live.takeover import create_live_savepoint, restore_live_savepoint
    from asterism.matching.process_function import MatchContext, PatternProcessFunction
    from asterism.operators.context import Context, Element, Timer
    from asterism.operators.rich_functions import OpenContext
    from asterism.operators.state.keyed_state import (
        AggregateFunction,
        AggregatingState,
        BroadcastListState,
        BroadcastMapState,
        BroadcastValueState,
        ListState,
        MapState,
        ReducingState,
        ValueState,
    )
    from asterism.operators.stream_operator import (
        BroadcastInput,
        Gauge,
        Histogram,
        Input,
        InputSelection,
        Output,
        StreamOperator,
    )
    from asterism.operators.stream_operator import Counter as Counter
    from asterism.patterns.conditions import IterativeCondition, NamedCondition, NotCondition, SqlCondition
    from asterism.patterns.json_format import pattern_json_schema
    from asterism.patterns.pattern import Pattern
    from asterism.patterns.semantics import Semantics
    from asterism.patterns.sequence import AfterMatchSkipStrategy, Contiguity, WithinType
    from asterism.row_patterns.match_recognize import MatchRecognize
    from asterism.rules.definition.processor import PatternProcessor
    from asterism.rules.definition.registered_conditions import RegisteredCondition
    from asterism.rules.publishing.lookup_watch import Lookup
    from asterism.rules.sets.interfaces import (
        PatternProcessorDiscoverer,
        PatternProcessorDiscovererFactory,
        PatternProcessorManager,
        PeriodicPatternProcessorDiscoverer,
        ProcessorRegistry,
        RefusedProcessor,
    )
    from asterism.spark.api.running import run
    from asterism.spark.api.table_functions import register_function
    from asterism.spark.host.state_reader import StateReader, read_state
    from asterism.spark.savepoints.bootstrapping import bootstrap_savepoint
    from asterism.spark.savepoints.changing import change_checkpoint, change_savepoint, plan_savepoint
    from asterism.spark.savepoints.comparing import diff_savepoints
    from asterism.spark.savepoints.contents import SavepointChanges
    from asterism.spark.savepoints.creating import create_savepoint
    from asterism.spark.savepoints.forgetting import forget_keys, remove_former_state
    from asterism.spark.savepoints.rescaling import rescale_checkpoint, undo_change
    from asterism.spark.savepoints.restoring import read_savepoint
    from asterism.spark.savepoints.starting import restore_savepoint
    from asterism.spark.savepoints.writing import SavepointWriter
    from asterism.spark.watching.metrics import export_metrics
    from asterism.spark.watching.monitor import monitor
    from asterism.streams.backtests import Backtest
    from asterism.streams.broadcast_joins import Side, multi_broadcast_join
    from asterism.streams.data_streams import BroadcastStream, DataStream
    from asterism.streams.eql import eql
    from asterism.streams.joins import (
        JoinedStream,
        MultiJoinedStream,
        as_of_join,
        interval_join,
        multi_join,
        window_join,
    )
    from asterism.streams.keyed_stream import KeyedStream
    from asterism.streams.operators import OperatorStream, connect
    from asterism.streams.pattern_processors import PatternProcessorStream
    from asterism.streams.pattern_stream import PatternStream
    from asterism.streams.row_patterns import RowPatternStream, match_recognize
    from asterism.streams.sql import sql
    from asterism.streams.timelines import timeline
    from asterism.streams.windows import WindowedStream, window
    from asterism.windows.assigners import (
        CumulativeWindows,
        GlobalWindows,
        SessionWindows,
        SlidingWindows,
        TumblingWindows,
        Windows,
    )
    from asterism.windows.drawing import draw
    from asterism.windows.evictors import Evictor
    from asterism.windows.folds import Fold
    from asterism.windows.operator import WindowOperator
    from asterism.windows.process_function import ProcessWindowFunction, WindowContext
    from asterism.windows.triggers import (
        All,
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
        CountTrigger,
        DeltaTrigger,
        EventTimeTrigger,
        NeverTrigger,
        ProcessingTimeTrigger,
        PurgingTrigger,
        TimeSpan,
        Trigger,
        TriggerContext,
        TriggerResult,
        never,
    )
    from asterism.windows.triggers import Any as Any
    from asterism.windows.triggers import Sequence as Sequence

__all__ = [
    "CEP",
    "AfterMatchSkipStrategy",
    "AggregateFunction",
    "AggregatingState",
    "All",
    "Backtest",
    "Batch",
    "BroadcastInput",
    "BroadcastListState",
    "BroadcastMapState",
    "BroadcastStream",
    "BroadcastValueState",
    "Context",
    "Contiguity",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "CumulativeWindows",
    "DataStream",
    "DeltaTrigger",
    "Element",
    "EventTimeTrigger",
    "Evictor",
    "FilePatternProcessorDiscovererFactory",
    "Fold",
    "Gauge",
    "GlobalWindows",
    "Histogram",
    "HttpPatternProcessorDiscovererFactory",
    "Input",
    "InputSelection",
    "IterativeCondition",
    "JoinedStream",
    "KafkaPatternProcessorDiscovererFactory",
    "KeyedStream",
    "ListState",
    "LiveEngine",
    "Lookup",
    "MapState",
    "MatchContext",
    "MatchRecognize",
    "MultiJoinedStream",
    "NamedCondition",
    "NeverTrigger",
    "NotCondition",
    "OpenContext",
    "OperatorStream",
    "Output",
    "Pattern",
    "PatternProcessFunction",
    "PatternProcessor",
    "PatternProcessorDiscoverer",
    "PatternProcessorDiscovererFactory",
    "PatternProcessorManager",
    "PatternProcessorStream",
    "PatternStream",
    "PeriodicPatternProcessorDiscoverer",
    "ProcessWindowFunction",
    "ProcessingTimeTrigger",
    "ProcessorRegistry",
    "PurgingTrigger",
    "ReducingState",
    "RefusedProcessor",
    "RegisteredCondition",
    "RowPatternStream",
    "SavepointChanges",
    "SavepointPlan",
    "SavepointWriter",
    "Semantics",
    "SessionWindows",
    "Side",
    "SigmaPatternProcessorDiscovererFactory",
    "SlidingWindows",
    "SqlCondition",
    "SqlPatternProcessorDiscovererFactory",
    "StateReader",
    "StreamOperator",
    "TimeSpan",
    "Timer",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "TumblingWindows",
    "UrlPatternProcessorDiscovererFactory",
    "ValueState",
    "WindowContext",
    "WindowOperator",
    "WindowedStream",
    "Windows",
    "WithinType",
    "as_of_join",
    "bootstrap_savepoint",
    "change_checkpoint",
    "change_savepoint",
    "connect",
    "create_live_savepoint",
    "create_savepoint",
    "diff_savepoints",
    "draw",
    "eql",
    "export_metrics",
    "forget_keys",
    "interval_join",
    "match_recognize",
    "monitor",
    "multi_broadcast_join",
    "multi_join",
    "never",
    "pattern_json_schema",
    "plan_savepoint",
    "read_savepoint",
    "read_state",
    "register_function",
    "remove_former_state",
    "rescale_checkpoint",
    "restore_live_savepoint",
    "restore_savepoint",
    "run",
    "sql",
    "timeline",
    "undo_change",
    "window",
    "window_join",
]
"""The public names, without Any, Sequence and Counter: after ``from asterism import *``, these are still those of ``typing`` and
``collections``.
"""

_NAMES = {
    "discovery": [
        "FilePatternProcessorDiscovererFactory", "HttpPatternProcessorDiscovererFactory",
        "KafkaPatternProcessorDiscovererFactory", "SigmaPatternProcessorDiscovererFactory",
        "SqlPatternProcessorDiscovererFactory",
        "UrlPatternProcessorDiscovererFactory",
    ],
    "operators.state.keyed_state": [
        "AggregateFunction", "AggregatingState", "BroadcastListState", "BroadcastMapState", "BroadcastValueState",
        "ListState", "MapState", "ReducingState", "ValueState",
    ],
    "operators.context": ["Context", "Element", "Timer"],
    "operators.stream_operator": [
        "BroadcastInput", "Counter", "Gauge", "Histogram", "Input", "InputSelection", "Output", "StreamOperator",
    ],
    "rules.sets.interfaces": [
        "PatternProcessorDiscoverer", "PatternProcessorDiscovererFactory", "PatternProcessorManager",
        "PeriodicPatternProcessorDiscoverer", "ProcessorRegistry", "RefusedProcessor",
    ],
    "rules.publishing.lookup_watch": ["Lookup"],
    "rules.definition.processor": ["PatternProcessor"],
    "rules.definition.registered_conditions": ["RegisteredCondition"],
    "spark.watching.metrics": ["export_metrics"],
    "spark.watching.monitor": ["monitor"],
    "streams.operators": ["OperatorStream", "connect"],
    "streams.broadcast_joins": ["Side", "multi_broadcast_join"],
    "streams.eql": ["eql"],
    "streams.row_patterns": ["RowPatternStream", "match_recognize"],
    "streams.sql": ["sql"],
    "spark.host.state_reader": ["StateReader", "read_state"],
    "changes.plan": ["SavepointPlan"],
    "spark.savepoints.bootstrapping": ["bootstrap_savepoint"],
    "spark.savepoints.changing": ["change_checkpoint", "change_savepoint", "plan_savepoint"],
    "spark.savepoints.comparing": ["diff_savepoints"],
    "spark.savepoints.creating": ["create_savepoint"],
    "spark.savepoints.contents": ["SavepointChanges"],
    "spark.savepoints.forgetting": ["forget_keys", "remove_former_state"],
    "spark.savepoints.rescaling": ["rescale_checkpoint", "undo_change"],
    "spark.savepoints.restoring": ["read_savepoint"],
    "spark.savepoints.starting": ["restore_savepoint"],
    "spark.savepoints.writing": ["SavepointWriter"],
    "spark.api.running": ["run"],
    "spark.api.table_functions": ["register_function"],
    "streams.joins": [
        "JoinedStream", "MultiJoinedStream", "as_of_join", "interval_join", "multi_join", "window_join",
    ],
    "streams.data_streams": ["BroadcastStream", "DataStream"],
    "cep": ["CEP"],
    "streams.keyed_stream": ["KeyedStream"],
    "live.engine": ["LiveEngine"],
    "live.takeover": ["create_live_savepoint", "restore_live_savepoint"],
    "live.batches": ["Batch"],
    "streams.backtests": ["Backtest"],
    "streams.pattern_processors": ["PatternProcessorStream"],
    "streams.pattern_stream": ["PatternStream"],
    "streams.timelines": ["timeline"],
    "streams.windows": ["WindowedStream", "window"],
    "windows.triggers": [
        "All", "Any", "ContinuousEventTimeTrigger", "ContinuousProcessingTimeTrigger", "CountTrigger", "DeltaTrigger",
        "EventTimeTrigger", "NeverTrigger", "ProcessingTimeTrigger", "PurgingTrigger", "Sequence", "TimeSpan", "Trigger",
        "TriggerContext", "TriggerResult", "never",
    ],
    "windows.assigners": [
        "CumulativeWindows", "GlobalWindows", "SessionWindows", "SlidingWindows", "TumblingWindows", "Windows",
    ],
    "windows.drawing": ["draw"],
    "windows.evictors": ["Evictor"],
    "windows.folds": ["Fold"],
    "windows.operator": ["WindowOperator"],
    "windows.process_function": ["ProcessWindowFunction", "WindowContext"],
    "matching.process_function": ["MatchContext", "PatternProcessFunction"],
    "operators.rich_functions": ["OpenContext"],
    "patterns.conditions": ["IterativeCondition", "NamedCondition", "NotCondition", "SqlCondition"],
    "patterns.json_format": ["pattern_json_schema"],
    "patterns.pattern": ["Pattern"],
    "patterns.semantics": ["Semantics"],
    "patterns.sequence": ["AfterMatchSkipStrategy", "Contiguity", "WithinType"],
    "row_patterns.match_recognize": ["MatchRecognize"],
}  # fmt: skip
"""Modules of the names. They are imported on first use, so that patterns and operators need no Spark, and the processes that
Spark starts for each query import almost nothing of this package.
"""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __dir__() -> list[str]:
    """All public names, for completion."""
    return sorted(_MODULES)


_BOTH = "{} here, in event time and in processing time"
_IN_FLINK = {
    "TumblingEventTimeWindows": _BOTH.format("TumblingWindows"),
    "TumblingProcessingTimeWindows": _BOTH.format("TumblingWindows"),
    "SlidingEventTimeWindows": _BOTH.format("SlidingWindows"),
    "SlidingProcessingTimeWindows": _BOTH.format("SlidingWindows"),
    "EventTimeSessionWindows": _BOTH.format("SessionWindows"),
    "ProcessingTimeSessionWindows": _BOTH.format("SessionWindows"),
    "CountEvictor": _BOTH.format("Evictor.count"),
    "DeltaEvictor": _BOTH.format("Evictor.delta"),
    "TimeEvictor": _BOTH.format("Evictor.time"),
    "EndOfStreamTrigger": _BOTH.format("EventTimeTrigger.after_end_of_window"),
    "KeyedProcessFunction": "StreamOperator here",
    "OutputTag": "the name of an output here, as in run({'late': sink}); operators and match functions declare an Output",
    "ProcessFunction": "StreamOperator here",
    "RichIterativeCondition": "IterativeCondition here, of an object with __call__, open and close",
    "RichFunction": "an object with open(context) and close() here, see OpenContext",
    "TimedOutPartialMatchHandler": "process_timed_out_matches of a PatternProcessFunction here",
    "SimpleCondition": "where(...) here, with SQL or a function",
    "Time": "datetime.timedelta here",
    "ValueStateDescriptor": "ValueState here, as a class attribute of a StreamOperator",
    "ListStateDescriptor": "ListState here, as a class attribute of a StreamOperator",
    "MapStateDescriptor": "MapState here, as a class attribute of a StreamOperator",
    "WatermarkStrategy": "KeyedStream(df, time=..., max_out_of_orderness=...) here",
}
"""Names of Flink that differ in Asterism."""


def __getattr__(name: str) -> Value:
    if name in _IN_FLINK:  # an ImportError, because "from asterism import" hides the text of an AttributeError
        raise ImportError(f"asterism has no {name!r}: it is {_IN_FLINK[name]}")
    if name == "__version__":
        return import_module("importlib.metadata").version("asterism")
    if name in _MODULES:
        from asterism.errors import explain_missing_spark

        with explain_missing_spark(f"asterism.{name}"), loading():
            return getattr(import_module(f"asterism.{_MODULES[name]}"), name)
    spelled = import_module("asterism.spelling").python_name(name)
    if spelled != name and spelled in _MODULES:
        raise ImportError(f"asterism has no {name!r}: it is {spelled} here")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(ipython: Value) -> None:
    """``%load_ext asterism`` in a notebook: the cell magic ``%%asterism``, see docs/match_recognize.md."""
    import_module("asterism.spark.api.notebooks").load(ipython)
