"""Rules and backtests over Arrow tables, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import (
    CEP,
    Backtest,
    FilePatternProcessorDiscovererFactory,
    KeyedStream,
    Pattern,
    PatternProcessor,
    PatternProcessorStream,
)
from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory
from asterism.errors import PatternProcessorError
from tests.embedded.rule_cases import CLAUSE, COMPARED, EVENTS, FAILING, RULE_CASES, RULES, compared


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist(maps_as_pydicts="strict")]


@pytest.mark.parametrize("name", RULE_CASES)
def test_cases(name: str) -> None:
    case = RULE_CASES[name]
    table = case.rows(case.table)
    assert isinstance(table, pa.Table)
    if case.expected is not None:
        assert sorted(rows_of(table.select(case.columns)), key=str) == sorted(case.expected, key=str)


def test_results_depend_neither_on_chunks_nor_on_key_groups() -> None:
    case = RULE_CASES["all"]
    whole = case.rows(EVENTS).sort_by("match_id")
    parts = pa.concat_tables([EVENTS.slice(number, 1) for number in reversed(range(EVENTS.num_rows))])
    for key_groups in (1, 3, 32):
        stream = CEP.pattern_processors(
            KeyedStream(parts, **case.stream), case.stream_of(EVENTS).factory, key_groups=key_groups
        )
        assert sorted(map(str, stream.output("matches").to_pylist())) == sorted(map(str, whole.to_pylist()))


def test_several_outputs_of_rules_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([rule.to_dict() for rule in RULES]), encoding="utf-8")
    factory = FilePatternProcessorDiscovererFactory(path)
    rules = CEP.pattern_processors(KeyedStream(EVENTS, key="user", time="ts"), factory)
    assert isinstance(rules, PatternProcessorStream)
    written: dict[str, int] = {}
    sinks = {
        name: lambda rows, number, name=name: written.update({name: rows.num_rows}) for name in ("matches", "late")
    }
    assert rules.run(sinks, without=["all rows", "by user@2"]) is None
    assert written == {"matches": 5, "late": 0}
    assert rules.output("matches", without=["in sql"]).num_rows == 8
    rules.check(RULES[0])


def test_a_rule_that_fails_ends_the_query() -> None:
    case = RULE_CASES["errors"]
    rules = CEP.pattern_processors(KeyedStream(EVENTS, key="user", time="ts"), case.stream_of(EVENTS).factory)
    with pytest.raises(PatternProcessorError, match=r'"failing" failed|failing'):
        rules.output("matches")


def test_a_backtest() -> None:
    report = compared(EVENTS)
    assert isinstance(report, Backtest)
    assert {rule.id: (rule.added, rule.removed, rule.kept) for rule in report.rules} == COMPARED
    assert report.matches.num_rows == 17
    assert report.matches.column_names[:3] == ["id", "difference", "processor_version"]
    alone = CEP.backtest(KeyedStream(EVENTS, key="user", time="ts"), [*RULES[:2], FAILING], examples=1)
    [_, by_item, failing] = alone.rules
    assert by_item.new is not None
    assert failing.new is not None
    assert (by_item.new.matches, by_item.new.keys, by_item.new.most_in_a_day) == (2, 2, 1)
    assert (by_item.added, len(by_item.examples)) == (None, 1)
    assert (failing.new.errors, (failing.new.error or "").partition(":")[0]) == (1, "EvaluationFailedError")
    assert compared(EVENTS.slice(0, 0)).events == 0


def test_rules_that_read_earlier_events_beside_clauses() -> None:
    """The events of the clause come first among those of a key group, and no pattern sees them."""
    rise = Pattern.begin("a").where("kind = 'b' AND price > PREV(price)")
    rules = (PatternProcessor("clause", 1, sql=CLAUSE), PatternProcessor("rise", 1, rise, key=("user",)))
    stream = KeyedStream(EVENTS, key="kind", time="ts")
    found = CEP.pattern_processors(stream, GivenPatternProcessorDiscovererFactory(rules), key_groups=1)
    rows = found.output("matches")
    assert sorted(row["end_time"].second for row in rows.to_pylist() if row["processor_id"] == "rise") == [4, 20, 22]
