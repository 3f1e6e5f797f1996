"""All pairs of operators, and outputs that are united."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from asterism import KeyedStream
from asterism.streams.operators import connect
from tests.spark import test_composition
from tests.spark.streams import Collect
from tests.spark.test_composition import (
    GROUPS,
    OPERATORS,
    Case,
    Numbered,
    check_chain,
    clauses,
    comparable,
    connected,
    finish,
    pattern,
    rows_of,
    windowed,
)

pytestmark = pytest.mark.spark
case = test_composition.case


CHAINS = [
    ("connect", "window", "clause", "pattern"),
    ("join", "processors", "interval_join"),
    ("pattern", "multi_join", "window"),
]
"""Each operator at least once."""


@pytest.mark.parametrize("names", CHAINS, ids=" ".join)
def test_chains(case: Case, names: tuple[str, ...]) -> None:
    check_chain(case, names)


def test_each_operator_is_in_a_chain() -> None:
    assert {name for chain in CHAINS for name in chain} == set(OPERATORS)


@pytest.mark.parametrize(("first", "second"), [*product(OPERATORS, repeat=2)])
def test_pairs(case: Case, first: str, second: str) -> None:
    before, rows = check_chain(case, (first, second))
    assert 0 < before < rows > 2


def test_outputs_are_united(case: Case) -> None:
    """Of one operator, which is computed twice, each time with its own state; and of different ones."""

    def chain(df: DataFrame, drain: bool) -> Any:
        numbered = connected(df, case.folder, drain)
        both = numbered.output("out").union(numbered.output("out")).union(rows_of(pattern(df, case.folder, drain)))
        return windowed(both, case.folder, drain)

    case.add(0)
    case.run(chain, drain=False)
    case.add(1)
    case.run(chain, drain=True)
    assert comparable(case.sink) == case.expected(chain)


@pytest.mark.parametrize("kind", ["bounded input", "clause"])
def test_run_also_ends_the_input_of_an_operator_whose_upstream_operator_drains(case: Case, kind: str) -> None:
    """The upstream operator ends its input in the first query of ``run``, before the query that ends that of all operators."""

    def chain(df: DataFrame, drain: bool) -> Any:
        if kind == "clause":
            return clauses(clauses(df, case.folder, drain).matches, case.folder, False)
        nothing = case.table.where("v < 0")
        inputs = {"left": KeyedStream(df, "k", "t"), "right": KeyedStream(nothing, "k", "t")}
        return pattern(rows_of(connect(Numbered(), **inputs, drain=drain, **GROUPS)), case.folder, False)

    case.add(0, 1)
    expected = case.expected(lambda df, _: chain(df, False))
    finish(chain(case.stream, True), case.sink, str(case.folder / "checkpoint"), True)
    assert comparable(case.sink) == expected
    assert expected


@pytest.mark.parametrize("first", ["pattern", "connect"])
def test_deadlines_behind_an_operator_pass_without_rows(case: Case, first: str) -> None:
    """What the first operator has given waits in windows of the second; later it gives nothing, but time goes on."""

    def chain(df: DataFrame, drain: bool) -> Any:
        before = rows_of(OPERATORS[first](df, case.folder, drain)).where("t < TIMESTAMP '2025-01-01 00:01:00'")
        return windowed(before, case.folder, drain)

    case.add(0, 1)
    case.run(chain, drain=False)  # nothing is ended
    assert comparable(case.sink) == case.expected(chain)


def test_a_failure_while_all_operators_end(case: Case) -> None:
    """The sink fails in the micro-batch that ends the input; started anew without a drain, it is repeated with the same rows."""

    def chain(df: DataFrame, drain: bool) -> Any:
        return windowed(rows_of(connected(df, case.folder, drain)), case.folder, drain)

    case.add(0, 1)
    case.run(chain, drain=False)
    before = max(case.sink.batches)
    keep = case.sink

    class Fails(Collect):
        def __call__(self, df: DataFrame, batch_id: int) -> None:
            super().__call__(df, batch_id)
            if batch_id > before and self.rows:
                raise RuntimeError("the sink failed")

    case.sink = Fails()
    with pytest.raises(StreamingQueryException, match="the sink failed"):
        case.run(chain, drain=True)
    failed, case.sink = case.sink, keep
    case.run(chain, drain=False)
    (number,) = failed.batches.keys() & keep.batches.keys()
    assert sorted(map(str, failed.batches[number])) == sorted(map(str, keep.batches[number]))
    assert comparable(keep) == case.expected(chain)
