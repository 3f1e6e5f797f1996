"""The test kit: runs patterns and other operators without Spark, files or the system clock.

:func:`match` runs a pattern on events that are written as literals. :class:`PatternHarness` runs it step by step, and the
test controls the time; :class:`RowPatternHarness` does this for a MATCH_RECOGNIZE clause. :func:`assert_matches` reports
differences, and :func:`check_independence` checks that the result does not depend on how the events are divided into batches.
:class:`WindowHarness`, :func:`assert_firings` and :func:`check_window_independence` do the same for windows and triggers, and
:class:`StreamOperatorHarness` and :func:`check_operator_independence` for operators with any number of inputs.
:class:`JoinHarness` runs a join. The test kit does not require pytest. ``docs/testing.md`` has examples.

>>> from asterism import Pattern
>>> pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND value > LAST(a.value)")
>>> match(pattern, "a1 x2 b3 b4").matches
['a1 b3']
"""

from asterism.testing.assertions import assert_matches
from asterism.testing.independence import (
    check_independence,
    check_operator_independence,
    check_window_independence,
)
from asterism.testing.join_harness import JoinHarness
from asterism.testing.literals import EVENTS, Literals, table_of
from asterism.testing.operator_harness import OperatorHarness, Snapshot
from asterism.testing.pattern_harness import Finding, PatternHarness, match
from asterism.testing.row_pattern_harness import RowPatternHarness
from asterism.testing.stream_harness import End, ProcessingTime, Send, StreamOperatorHarness, Watermark
from asterism.testing.window_harness import WindowFiring, WindowHarness, assert_firings

__all__ = [
    "EVENTS",
    "End",
    "Finding",
    "JoinHarness",
    "Literals",
    "OperatorHarness",
    "PatternHarness",
    "ProcessingTime",
    "RowPatternHarness",
    "Send",
    "Snapshot",
    "StreamOperatorHarness",
    "Watermark",
    "WindowFiring",
    "WindowHarness",
    "assert_firings",
    "assert_matches",
    "check_independence",
    "check_operator_independence",
    "check_window_independence",
    "match",
    "table_of",
]
