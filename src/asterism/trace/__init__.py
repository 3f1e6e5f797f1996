"""Why a pattern matched or did not: the events of one key, and what each did to the partial matches.

:func:`trace` is the entry point.
"""

from asterism.trace.report import Trace, trace
from asterism.trace.steps import Check, TraceMatch, TraceStep, What, Why

__all__ = ["Check", "Trace", "TraceMatch", "TraceStep", "What", "Why", "trace"]
