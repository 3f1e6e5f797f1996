"""Commands on a rule of a file: FILE#ID."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from asterism import MatchRecognize, Pattern
from asterism.cli.main import main

RULES = """\
# Logins
- id: brute-force
  version: 1
  key: [ip]
  timestamp: 2100-01-01T00:00:00Z
  pattern:
    type: COMPOSITE
    nodes:
    - {name: fails, type: ATOMIC, quantifier: {properties: [TIMES], times: {from: 2, to: 2}},
       condition: {type: SQL, expression: event = 'failed'}}
    - {name: login, type: ATOMIC, quantifier: {properties: [SINGLE]},
       condition: {type: SQL, expression: event = 'accepted'}}
    edges: [{source: fails, target: login, type: SKIP_TILL_NEXT}]
    window: {type: FIRST_AND_LAST, time: {unit: MINUTES, size: 10}}
  select: [LAST(login.user) AS user]
- id: "burst #2"
  version: 3
  enabled: false
  sql: |
    PARTITION BY ip
    MEASURES LAST(S.user) AS user
    PATTERN (F{2} S)
    DEFINE F AS event = 'failed', S AS event = 'accepted'
- {id: upper, version: 1, key: [UPPER(ip)], sql: null, pattern: {type: COMPOSITE, nodes: [
   {name: a, type: ATOMIC, quantifier: {properties: [SINGLE]}}]}}
- {id: bad, version: -1, pattern: {}}
"""
EVENTS = """\
ts,ip,event,user
2026-01-01 00:00:01,1.1.1.1,failed,ann
2026-01-01 00:00:02,1.1.1.1,failed,ann
2026-01-01 00:00:03,2.2.2.2,failed,bob
2026-01-01 00:00:04,1.1.1.1,accepted,ann
2026-01-01 00:00:05,2.2.2.2,accepted,bob
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(RULES)
    Path("events.csv").write_text(EVENTS)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def clause() -> str:
    begin = RULES.index("    PARTITION BY")
    return RULES[begin : RULES.index("- {id: upper")]


def test_explain() -> None:
    result = run("explain", "rules.yaml#brute-force")
    assert result.exit_code == 0
    assert "event = 'failed'" in result.output
    assert run("explain", "rules.yaml#burst #2").output == MatchRecognize(clause()).explain() + "\n"
    assert run("explain", "rules.yaml#burst #2", "--svg", "a.svg").output == "drawing written to a.svg\n"
    assert run("explain", ".#upper").output == Pattern.begin("a").explain() + "\n"


@pytest.mark.parametrize("name", ["ab.yaml", "ab.yml", "ab.json"])
def test_a_pattern_in_any_file(name: str) -> None:
    pattern = Pattern.begin("a").where("event = 'failed'").next("b")
    Path(name).write_text(pattern.to_json())
    assert run("explain", name).output == pattern.explain() + "\n"
    assert run("validate", name).output.startswith(f"{name}: ok")
    traced = run("trace", name, "--input", "events.csv", "--time", "ts", "--key-column", "ip", "--key", "1.1.1.1")
    assert "2 matches" in traced.output


def test_a_rule_and_its_shadow() -> None:
    lines = [
        f'{{"id": "a", "version": {n}, "shadow": {flag}, "sql": "PATTERN (A{{{n}}}) DEFINE A AS TRUE"}}'
        for n, flag in ((2, "true"), (1, "false"))
    ]
    Path("both.json").write_text(f"[{', '.join(lines)}]")
    explained = {name: run("explain", f"both.json#{name}").output for name in ("a", "a@1", "a@2")}
    assert explained["a"] == explained["a@1"] != explained["a@2"]
    assert run("explain", "both.json#a@3").exit_code == 2
    assert "name one: 'both.json#a'" in run("explain", "both.json").output
    Path("only.json").write_text(f"[{lines[0]}]")
    assert run("explain", "only.json").output == explained["a@2"]


def test_trace() -> None:
    options = ["--input", "events.csv", "--time", "ts"]
    result = run("trace", "rules.yaml#brute-force", *options, "--key", "1.1.1.1")
    assert result.exit_code == 0
    assert "match 1: #4 fails=[1 2] login=[3]" in result.output
    result = run("trace", "rules.yaml#burst #2", *options, "--key", "2.2.2.2")
    assert "no matches" in result.output
    assert "closest to a match: F=[1]" in result.output
    result = run("trace", "rules.yaml#brute-force", *options)
    assert result.exit_code == 2
    assert (
        "1 --key-column and 0 --key: one value is required for each column. The key of the rule is ip." in result.output
    )
    result = run("trace", "rules.yaml#upper", *options, "--key", "1.1.1.1")
    assert "key UPPER(ip)='1.1.1.1': 3 events" in result.output
    assert run("trace", "rules.yaml#upper", *options, "--key-column", "ip", "--key", "1.1.1.1").exit_code == 0


def test_validate() -> None:
    columns = [f"--column={name}:string" for name in ("ip", "event", "user")]
    result = run("validate", "rules.yaml#brute-force", "rules.yaml#burst #2", *columns)
    assert (result.exit_code, len(result.output.splitlines())) == (0, 2), result.output
    assert "brute-force version 1: ok, 2 stages (fails, login)" in result.output
    assert "burst #2 version 3: ok, off, MATCH_RECOGNIZE" in result.output
    result = run("validate", "rules.yaml#bad")
    assert result.exit_code == 1
    assert "a version must be an integer" in result.output
    assert run("validate", "rules.yaml#brute-force", "--column", "ip:string").exit_code == 1


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("rules.yaml#none", "rules.yaml has no rule 'none'\n  Rules: brute-force, burst #2, upper, bad\n"),
        ("rules.yaml#bad", "a pattern must be an object of type COMPOSITE"),
        ("rules.yaml#", "File 'rules.yaml#' does not exist."),
        ("#brute-force", "File '#brute-force' does not exist."),
        ("none.yaml#a", "File 'none.yaml#a' does not exist."),
        (".", "File '.' is a directory."),
        ("broken.yaml#a", "Error: "),
        ("twice.yaml#a", "twice.yaml has 2 rules 'a'"),
        ("rules.yaml#\x1b[2J", "has no rule '\\x1b[2J'"),
    ],
)
def test_what_is_not_there_is_told(rule: str, message: str) -> None:
    Path("broken.yaml").write_text("- {")
    Path("twice.yaml").write_text("- {id: a, version: 1, pattern: {}}\n- {id: a, version: 2, pattern: {}}\n")
    result = run("explain", rule)
    assert result.exit_code == 2
    assert message in result.output


def test_a_file_whose_name_has_the_sign() -> None:
    Path("a#b.json").write_text(Pattern.begin("a").to_json())
    assert run("explain", "a#b.json").output == Pattern.begin("a").explain() + "\n"
    Path("rules.yaml").rename("r#1.yaml")
    assert run("explain", "r#1.yaml#upper").exit_code == 0


def check_match(out: Path, rule: str, *options: str) -> None:
    result = run("match", rule, *options, "--out", str(out))
    assert (result.exit_code, result.stdout) == (0, f"1 match written to {out}\n"), result.output
    (row,) = pq.read_table(out).to_pylist()
    assert (row["key"], dict(row["measures"]), row["events"]) == (["1.1.1.1"], {"user": "ann"}, None)


def test_match(folder: Path) -> None:
    options = ["--input", "events.csv", "--time", "ts"]
    check_match(folder / "out.parquet", "rules.yaml#brute-force", *options)
    check_match(folder / "out.parquet", "rules.yaml#burst #2", *options)
    result = run("match", "rules.yaml#brute-force", *options)
    assert "user=ann" in result.output
    assert "processor_id" not in result.output


def test_what_does_not_fit_a_rule() -> None:
    options = ["--input", "events.csv", "--time", "ts"]
    for rule, more, message in (
        ("brute-force", ["--order-by", "user"], "--order-by is for patterns"),
        ("burst #2", ["--select", "COUNT(F.*) AS n"], "--select is for patterns"),
        ("burst #2", ["--output", "timed_out"], "no timed-out partial matches"),
        ("brute-force", ["--select", "LAST(login.nosuch) AS n"], "unknown column 'nosuch'"),
    ):
        result = run("match", f"rules.yaml#{rule}", *options, *more)
        assert (result.exit_code, message in result.output) == (2, True), result.output


def test_a_sigma_rule_with_a_pipeline_is_shown_as_it_is_written() -> None:
    Path("failed.yml").write_text(
        "title: Failed\nlogsource: {product: linux}\n"
        "detection: {selection: {action|startswith: FAIL}, condition: selection}\n"
    )
    Path("columns.yml").write_text(
        "name: ours\npriority: 1\ntransformations: [{type: field_name_mapping, mapping: {action: event}}]\n"
    )
    options = ("--pipeline", "columns.yml")
    found = run("match", "failed.yml", *options, "--input", "events.csv", "--time", "ts", "--out", "found.parquet")
    assert (found.exit_code, pq.read_table("found.parquet").num_rows) == (0, 3)
    assert "unknown column" in run("match", "failed.yml", "--input", "events.csv").output
    traced = run("trace", "failed.yml", *options, "--input", "events.csv", "--time", "ts").output
    assert "event|startswith: 'fail' is false" in traced
    explained = run("explain", "failed.yml", *options).output
    assert explained.startswith("Failed: selection\n  selection: action|startswith: FAIL\n\nIt runs as:\n")
    assert "where event|startswith: 'fail'" in explained
    assert run("explain", "failed.yml", "--svg", "a.svg").exit_code == 0
    assert "action|startswith: FAIL" in Path("a.svg").read_text()
    refused = run("match", "rules.yaml#upper", *options, "--input", "events.csv")
    assert "--pipeline and --keyword-column are for Sigma rules, and rules.yaml has none" in refused.output


def test_the_trace_of_a_query_in_eql_names_its_events() -> None:
    Path("guess.eql").write_text(
        'sequence by ip with maxspan=1m [any where event == "failed"] [any where event == "accepted"]'
    )
    traced = run("trace", "guess.eql", "--key", "1.1.1.1", "--input", "events.csv", "--time", "ts").output
    assert "match 1: event 1=[2] event 2=[3]" in traced
    assert run("explain", "guess.eql").output.startswith("a sequence by ip, within 1 min from")


def test_a_query_in_eql_over_documents_with_nested_fields() -> None:
    Path("guess.eql").write_text(
        'sequence by user.name with maxspan=1m [any where outcome == "failed"] [any where outcome == "accepted"]'
    )
    lines = [
        f'{{"@timestamp": "2026-01-01T00:00:0{second}Z", "user": {{"name": "{name}"}}, "outcome": "{outcome}"}}'
        for second, (name, outcome) in enumerate([("ann", "failed"), ("bob", "failed"), ("ann", "accepted")])
    ]
    Path("events.ndjson").write_text("\n".join(lines))
    options = ["--input", "events.ndjson", "--time", "@timestamp"]
    measures = ["--select", "event_1.user.name AS first", "--select", "event_2.outcome AS last"]
    found = run("match", "guess.eql", *options, *measures, "--out", "found.parquet")
    assert found.exit_code == 0, found.output
    assert [dict(row["measures"]) for row in pq.read_table("found.parquet").to_pylist()] == [
        {"first": "ann", "last": "accepted"}
    ]
    traced = run("trace", "guess.eql", "--key", "ann", *options).output
    assert "key user.name='ann': 2 rows" in traced
    assert "match 1: event 1=[1] event 2=[2]" in traced
    assert "did you mean user.name='ann'" in run("trace", "guess.eql", "--key", "anna", *options).output
