"""SQL aggregates over groups of elements: the panes of windows, and the events that the stages of a match took.

``calls`` parses calls of aggregate functions and computes them for groups; ``functions`` defines the functions;
``accumulators`` and ``hyperloglog`` define the partial aggregates that are kept of a group between its elements.

See docs/decisions/0024.
"""

from asterism.expressions.aggregates.calls import (
    CALLS_OF_MATCHES,
    OF_MATCH,
    Aggregates,
    Call,
    Calls,
    Measures,
    call_of,
    check_measure,
    parse_measure,
    word_of_aggregates,
)
from asterism.expressions.aggregates.functions import FUNCTIONS, SqlAggregate

__all__ = [
    "CALLS_OF_MATCHES",
    "FUNCTIONS",
    "OF_MATCH",
    "Aggregates",
    "Call",
    "Calls",
    "Measures",
    "SqlAggregate",
    "call_of",
    "check_measure",
    "parse_measure",
    "word_of_aggregates",
]
