"""The harness of MATCH_RECOGNIZE clauses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from asterism import MatchRecognize
from asterism.errors import (
    ColumnNotFoundError,
    ExpressionSyntaxError,
    InvalidEventError,
    LimitExceededError,
    StreamDefinitionError,
)
from asterism.testing import EVENTS, Literals, RowPatternHarness
from asterism.trace import trace_rows

CLAUSE = """
    PARTITION BY key ORDER BY ts MEASURES A.value AS a, COUNT(B.*) AS bs
    PATTERN (A B*) DEFINE A AS kind = 'a', B AS kind = 'b' AND value > A.value
"""
ROWS = "ann.a1 bob.a2 ann.b3 ann.b4 | ann.b1 bob.b9 | ann.a7 bob.x1"


@pytest.mark.parametrize("key_groups", [1, 5])
@pytest.mark.parametrize("pages", [None, 3])
def test_matches_do_not_depend_on_how_the_state_is_divided(key_groups: int, pages: int | None) -> None:
    harness = RowPatternHarness(MatchRecognize(CLAUSE), key_groups=key_groups, pages=pages).send(ROWS).end()
    assert sorted(map(repr, harness.matches)) == sorted(
        map(
            repr,
            [
                {"key": "ann", "a": 1, "bs": 2},
                {"key": "bob", "a": 2, "bs": 1},
                {"key": "ann", "a": 7, "bs": 0},
            ],
        )
    )
    assert harness.waiting == []
    assert harness.is_empty


def test_what_waits() -> None:
    harness = RowPatternHarness(CLAUSE).send("ann.x0 ann.a1 ann.b3 bob.a2 |")
    assert sorted([row["value"] for row in rows] for rows in harness.waiting) == [[1, 3], [2]]
    harness.send("ann.b5 bob.x1")
    assert sorted([row["value"] for row in rows] for rows in harness.waiting) == [[1, 3], [2]]  # not passed yet
    harness.advance_watermark()
    assert [[row["value"] for row in rows] for rows in harness.waiting] == [[1, 3, 5]]
    assert harness.matches == [{"key": "bob", "a": 2, "bs": 0}]


def test_measures_have_the_processing_time_at_which_a_match_is_given_out() -> None:
    clause = """
        PARTITION BY key ORDER BY ts
        MEASURES MATCH_PROCTIME() AS at, MATCH_PROCTIME() - INTERVAL '1' SECOND AS before
        ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'
    """
    harness = RowPatternHarness(clause).send("ann.a1 ann.b3").advance_processing_time("5s").send("|")
    harness.advance_processing_time("7s").send("ann.x4 |").end()
    times = [[None if at is None else at.second for at in (row["at"], row["before"])] for row in harness.matches]
    assert times == [[5, 4], [5, 4], [None, None]]


def test_a_snapshot_goes_on_in_another_harness() -> None:
    harness = RowPatternHarness(CLAUSE).send("ann.a1 ann.b3 |")
    other = harness.again().restore(harness.snapshot()).send("ann.b4 |").end()
    assert other.matches == [{"key": "ann", "a": 1, "bs": 2}]
    assert harness.matches == []


def test_own_columns_and_an_expression_as_key() -> None:
    schema = pa.schema({"user": pa.string(), "at": pa.int64(), "event": pa.string(), "value": pa.int64()})
    clause = "PARTITION BY lower(user) AS who ORDER BY at MEASURES COUNT(*) AS n PATTERN (A{2}) DEFINE A AS event = 'a'"
    harness = RowPatternHarness(clause, schema, literals=Literals(kind="event", key="user"), key_groups=4)
    assert harness.send("Ann.a1 ann.a2 bob.a3@4s |").matches == [{"who": "ann", "n": 2}]
    assert harness.send("bob.a4@1s").late == [{"user": "bob", "at": 1000, "event": "a", "value": 4}]


def test_limit() -> None:
    with pytest.raises(LimitExceededError):
        RowPatternHarness(CLAUSE, max_rows=2).send("ann.a1 ann.b2 ann.b3 ann.b4 |")
    dropped = RowPatternHarness(CLAUSE, max_rows=2, on_limit="drop").send("ann.a1 ann.b2 ann.b3 ann.b4 |")
    assert dropped.metrics["starts_dropped"] == 1


def test_the_trace_has_the_same_matches() -> None:
    harness = RowPatternHarness(CLAUSE).send(ROWS).end()
    rows = pa.concat_tables(harness.sent)
    traced = [len(trace_rows(CLAUSE, rows, key={"key": key}).matches) for key in ("ann", "bob")]
    assert traced == [sum(row["key"] == key for row in harness.matches) for key in ("ann", "bob")]


def test_wrong_arguments() -> None:
    with pytest.raises(ExpressionSyntaxError, match="ORDER BY must begin with the event time"):
        RowPatternHarness("MEASURES A.value AS a PATTERN (A)")
    with pytest.raises(ColumnNotFoundError):
        RowPatternHarness("ORDER BY ts MEASURES A.price AS a PATTERN (A)")
    with pytest.raises(StreamDefinitionError, match="the columns of the rows must be"):
        RowPatternHarness(CLAUSE, {"a": 1})
    with pytest.raises(StreamDefinitionError, match="literals must be Literals"):
        RowPatternHarness(CLAUSE, EVENTS, literals="a1")  # type: ignore[arg-type]
    with pytest.raises(StreamDefinitionError, match="a clause must be a string"):
        RowPatternHarness(1)  # type: ignore[arg-type]
    with pytest.raises(InvalidEventError, match="the stream has ended"):
        RowPatternHarness(CLAUSE).end().send("a1")
