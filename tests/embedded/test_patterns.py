"""Patterns over Arrow tables, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from asterism import CEP, KeyedStream, Pattern, PatternStream
from asterism.errors import PatternWarning
from tests.embedded.cases import CASES, TRADES, Counted, two

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    case = CASES[name]
    table = case.rows(case.results(case.table))
    assert isinstance(table, pa.Table)
    if case.expected is not None:
        assert sorted(rows_of(table), key=str) == sorted(case.expected, key=str)


def test_results_do_not_depend_on_chunks_nor_on_the_order_of_rows() -> None:
    whole = CEP.pattern(KeyedStream(TRADES, key="symbol", time="ts"), two()).matches
    for order in ([7, 6, 5, 4, 3, 2, 1, 0], [3, 0, 6, 1, 7, 2, 5, 4]):
        parts = pa.concat_tables([TRADES.take([number]) for number in order])
        assert parts.column("id").num_chunks == 8
        found = CEP.pattern(KeyedStream(parts, key="symbol", time="ts"), two()).matches
        assert found.sort_by("match_id").equals(whole.sort_by("match_id"))


def test_the_public_classes() -> None:
    stream = KeyedStream(TRADES, key="symbol", time="ts")
    assert isinstance(stream, KeyedStream)
    assert stream.keys == ["symbol"]
    found = CEP.pattern(stream, two())
    assert isinstance(found, PatternStream)
    assert found.matches.schema == found.operator.output_schemas["matches"]


def test_several_outputs_are_computed_once() -> None:
    calls: list[int] = []

    def condition(events: pa.Table) -> list[bool]:
        calls.append(events.num_rows)
        return [price > 6 for price in events["price"].to_pylist()]

    found = CEP.pattern(KeyedStream(TRADES, key="symbol", time="ts"), Pattern.begin("x").where(condition))
    calls.clear()
    written: dict[str, tuple[pa.Table, int]] = {}

    def sink(output: str) -> Any:
        return lambda rows, number: written.update({output: (rows, number)})

    select = {"matches": ["x.id AS x"]}
    assert found.run({"matches": sink("matches"), "late": sink("late")}, select=select) is None
    assert calls == [8]
    assert [(rows.num_rows, number) for rows, number in written.values()] == [(3, 0), (0, 0)]
    assert written["late"][0].schema.names == TRADES.column_names


def test_outputs_of_a_match_function() -> None:
    written: dict[str, Any] = {}
    found = CEP.pattern(KeyedStream(TRADES, key="symbol", time="ts"), two())
    sinks = {
        output: lambda rows, _, output=output: written.update({output: rows.to_pydict()})
        for output in ("matches", "firsts")
    }
    found.run(sinks, process=Counted(), schema="n BIGINT")
    assert written == {"matches": {"n": [2, 2]}, "firsts": {"id": [2, 4]}}


def test_a_warning_about_the_pattern() -> None:
    with pytest.warns(PatternWarning):
        CEP.pattern(KeyedStream(TRADES, time="ts"), Pattern.begin("x").where("1 = 2"))
