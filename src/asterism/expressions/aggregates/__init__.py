"""SQL aggregates over groups of elements: the panes of windows, and the events that the stages of a match took.

``calls`` reads calls of aggregate functions from SQL and computes them for groups; ``functions`` are the functions;
``accumulators`` and ``hyperloglog`` are what is kept of a group while its elements come.
"""

from asterism.expressions.aggregates.calls import Aggregates, Call, Calls, Measures, check_measure
from asterism.expressions.aggregates.functions import FUNCTIONS, AggregateFunction

__all__ = ["FUNCTIONS", "AggregateFunction", "Aggregates", "Call", "Calls", "Measures", "check_measure"]
