"""The test kit: a pattern, or another operator, without Spark, files or a clock.

:func:`match` runs a pattern over events that are written as words; :class:`PatternHarness` does it step by step, with time in
the test's hands; :func:`assert_matches` says what differs, and :func:`check_independence` that the answer does not depend on
how the events are cut. :class:`StreamOperatorHarness` and :func:`check_operator_independence` do the same for operators with any
number of inputs. Nothing here needs pytest. ``docs/testing.md`` shows all of it at work.

>>> from asterism import Pattern
>>> pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND value > LAST(a.value)")
>>> match(pattern, "a1 x2 b3 b4").matches
['a1 b3']
"""

from asterism.testing.assertions import assert_matches
from asterism.testing.independence import check_independence, check_operator_independence
from asterism.testing.literals import EVENTS, Literals, table_of
from asterism.testing.operator_harness import OperatorHarness, Snapshot
from asterism.testing.pattern_harness import Finding, PatternHarness, match
from asterism.testing.stream_harness import Clock, End, Send, StreamOperatorHarness, Watermark

__all__ = [
    "EVENTS",
    "Clock",
    "End",
    "Finding",
    "Literals",
    "OperatorHarness",
    "PatternHarness",
    "Send",
    "Snapshot",
    "StreamOperatorHarness",
    "Watermark",
    "assert_matches",
    "check_independence",
    "check_operator_independence",
    "match",
    "table_of",
]
