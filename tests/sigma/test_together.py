"""Rules of all languages in one set: graphs, SQL, Sigma and EQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream
from asterism.cli.main import main
from asterism.rules.definition.costs import cost_of
from asterism.rules.definition.processor import PatternProcessor

RULES = """
- id: graph
  version: 1
  key: [user]
  pattern:
    type: COMPOSITE
    nodes:
    - {name: fails, type: ATOMIC, quantifier: {properties: [LOOPING], times: {from: 2}, consumingStrategy: STRICT},
       condition: {type: SQL, expression: "kind = 'failed'"}}
    - {name: login, type: ATOMIC, quantifier: {properties: [SINGLE]}, condition: {type: SQL, expression: "kind = 'accepted'"}}
    edges: [{source: fails, target: login, type: STRICT}]
    window: {type: FIRST_AND_LAST, time: {unit: MINUTES, size: 10}}
    afterMatchStrategy: {type: SKIP_PAST_LAST_EVENT}
  labels: {severity: high}
  tests: [{name: one, literals: {kind: kind, key: user}, events: failed failed accepted, matches: [[1, 2, 3]]}]
- id: sql
  version: 1
  sql: |
    PARTITION BY user MEASURES COUNT(F.*) AS n PATTERN (F{2,} S) WITHIN INTERVAL '10' MINUTE
    DEFINE F AS kind = 'failed', S AS kind = 'accepted'
  tests: [{name: one, literals: {kind: kind, key: user}, events: failed failed accepted, matches: [{n: 2}]}]
- id: eql
  version: 1
  eql: |
    sequence by user with maxspan=10m
      [any where kind == "failed"] with runs=2
      [any where kind == "accepted"]
  select: [event_3.kind AS last]
  suppress: {for: 1 hour}
  labels: {technique: T1110}
  tests:
  - name: one
    literals: {kind: kind}
    columns: {user: string}
    events: failed(user=ann) failed(user=ann) accepted(user=ann)
    matches: [{last: accepted}]
- id: sigma
  version: 1
  sigma: |
    title: Accepted
    level: low
    logsource: {product: linux}
    detection: {selection: {kind: ACCEPTED}, condition: selection}
  suppress: {for: 1 hour}
  tests: [{name: one, literals: {kind: kind, key: user}, events: failed accepted, matches: [[2]]}]
- id: sigma
  version: 2
  shadow: true
  sigma: |
    title: Failed
    logsource: {product: linux}
    detection: {selection: {kind|startswith: fail}, condition: selection}
"""
START = datetime(2026, 1, 31, tzinfo=UTC)
LOG = pa.table(
    {
        "ts": [START + timedelta(minutes=minute) for minute in range(6)],
        "user": ["ann"] * 6,
        "kind": ["failed", "failed", "accepted", "failed", "failed", "accepted"],
    }
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES, encoding="utf-8")
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_matches_labels_suppression_and_shadows(file: Path) -> None:
    found = CEP.pattern_processors(KeyedStream(LOG, "user", time="ts"), FilePatternProcessorDiscovererFactory(file))
    rows = found.output("matches").to_pylist()
    counts = {id: sum(row["processor_id"] == id for row in rows) for id in ("graph", "sql", "eql", "sigma")}
    assert counts == {"graph": 2, "sql": 2, "eql": 1, "sigma": 1}  # those of the last two are suppressed for an hour
    labels = {row["processor_id"]: dict(row["labels"]) for row in rows}
    assert (labels["eql"], labels["sigma"]["level"], labels["sigma"]["title"]) == (
        {"technique": "T1110"},
        "low",
        "Accepted",
    )
    assert found.output("shadow").num_rows == 4


def test_their_tests_costs_and_validation(file: Path, tmp_path: Path) -> None:
    assert "4 passed, 1 without tests" in run("rules", "test", file)
    assert "eql" in run("rules", "validate", file)
    result = CliRunner().invoke(
        main, ["rules", "validate", str(_with(file, tmp_path, '"accepted"]', '"accepted" or]'))]
    )
    assert result.exit_code == 1
    assert "other.yaml:27:39: eql version 1: unexpected ]" in result.output
    assert "event_3" not in result.output
    columns = ("--column", "kimd:string", "--column", "user:string")
    result = CliRunner().invoke(main, ["rules", "validate", str(file), *columns])
    assert (
        "sigma version 1: sigma: the field 'kind' of the detection 'selection': unknown column 'kind'" in result.output
    )
    assert "rules.yaml:26:18: eql version 1: eql: unknown column 'kind'" in result.output
    rules = FilePatternProcessorDiscovererFactory(file).create_pattern_processor_discoverer()
    processors = [each for each in rules.initial_pattern_processors() if isinstance(each, PatternProcessor)]
    assert len(processors) == 5
    assert all(cost_of(each) is not None for each in processors)


def test_a_backtest_of_changed_rules(file: Path, tmp_path: Path) -> None:
    stream = KeyedStream(LOG, "user", time="ts")
    changed = _with(file, tmp_path, "runs=2", "runs=4").read_text(encoding="utf-8").replace("ACCEPTED", "failed")
    (tmp_path / "changed.yaml").write_text(changed.replace("version: 1", "version: 3"), encoding="utf-8")
    report = CEP.backtest(
        stream,
        FilePatternProcessorDiscovererFactory(tmp_path / "changed.yaml"),
        against=FilePatternProcessorDiscovererFactory(file),
    )
    found = {rule.id: (rule.added, rule.removed) for rule in report.rules}
    assert found["graph"] == found["sql"] == (0, 0)
    assert found["eql"] == (1, 1)  # an earlier failure, and a later login
    assert found["sigma"] == (4, 1)  # the shadow, which is not suppressed, is the rule to come


SIGMA = """
title: Failed
name: failed
logsource: {product: linux}
detection: {selection: {kind: failed}, condition: selection}
---
title: Many
name: many
correlation: {type: event_count, rules: [failed], group-by: [user], timespan: 5m, condition: {gte: 2}}
"""


def test_commands_take_files_of_sigma_and_eql(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(LOG, tmp_path / "log.parquet")
    (tmp_path / "many.yml").write_text(SIGMA, encoding="utf-8")
    (tmp_path / "guess.eql").write_text('sequence by user [any where kind == "failed"] [any where kind == "accepted"]')
    events = ("--input", tmp_path / "log.parquet", "--time", "ts")
    for file, expected, traced in (("many.yml", "1 match", "match 1"), ("guess.eql", "2 matches", "2 matches")):
        assert expected in run("match", tmp_path / file, *events)
        shown = run("explain", tmp_path / file).partition("It runs as:")[2]
        assert ("'failed'" if file == "many.yml" else 'kind == "failed"') in shown
        assert traced in run("trace", tmp_path / file, *events, "--key", "ann")
        assert ": ok, " in run("validate", tmp_path / file)
        run("explain", tmp_path / file, "--svg", tmp_path / "drawing.svg")
        assert "<svg" in (tmp_path / "drawing.svg").read_text(encoding="utf-8")
    (tmp_path / "two.yml").write_text(
        SIGMA.replace("type: event_count", "type: event_count, generate: true"), encoding="utf-8"
    )
    result = CliRunner().invoke(main, ["match", str(tmp_path / "two.yml"), *map(str, events)])
    assert "two.yml has 2 rules" in result.output
    assert "4 matches" in run("match", f"{tmp_path}/two.yml#failed", *events)


def _with(file: Path, folder: Path, old: str, new: str) -> Path:
    assert old in RULES
    path = folder / "other.yaml"
    path.write_text(RULES.replace(old, new), encoding="utf-8")
    return path
