"""Why a pattern matched or did not: the events of one key, and what each did to the partial matches.

:func:`trace` is the entry point for a :class:`~asterism.Pattern`, :func:`trace_rows` for a MATCH_RECOGNIZE clause.
"""

from asterism.trace.report import Trace, trace
from asterism.trace.row_patterns import RowPatternTrace, trace_rows
from asterism.trace.row_search import Obstacle, StartOutcome, TracedStart, TriedRow
from asterism.trace.steps import Check, TraceMatch, TraceStep, What, Why

__all__ = [
    "Check",
    "Obstacle",
    "RowPatternTrace",
    "StartOutcome",
    "Trace",
    "TraceMatch",
    "TraceStep",
    "TracedStart",
    "TriedRow",
    "What",
    "Why",
    "trace",
    "trace_rows",
]
