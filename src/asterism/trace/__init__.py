"""Why a pattern matched or did not: the events of one key, and what each did to the partial matches.

:func:`trace` is the entry point.
"""

from asterism.trace.condition_probe import Check
from asterism.trace.partial_matches import TraceMatch, TraceStep, What, Why
from asterism.trace.report import Trace, trace

__all__ = ["Check", "Trace", "TraceMatch", "TraceStep", "What", "Why", "trace"]
