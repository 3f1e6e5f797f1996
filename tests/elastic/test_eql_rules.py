"""Rules in EQL with what all rules have: adoption, suppression, labels, history, snapshots, the console and commands."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream
from asterism.cli.main import main
from asterism.cli.rules.backtest_worker import BacktestHandler
from asterism.console.samples import SampleSettings
from asterism.rules.definition.processor import PatternProcessor
from tests.console.kit import Asker, application
from tests.kit import FACTOR, until
from tests.live.driver import in_order, play
from tests.rules.driver import SCHEMA, Driver, Event, table_of

AB = '[any where kind == "a{}"] [any where kind == "b"]'
C = '[any where kind == "c"]'
KINDS = {
    "event": 'any where kind : "a{}" and x >= 1',
    "until": f"sequence by user with maxspan=20s {AB} until {C}",
    "runs": "sequence by user with maxspan=30s " + AB.replace("] [", "] with runs=3 ["),
    "absence": "sequence by user with maxspan=20s " + AB.replace("] [", f"] !{C} ["),
    "absence at the end": f"sequence by user with maxspan=9s {AB} !{C}",
    "keys": f"sequence with maxspan=20s {AB.replace('] [', '] by user [')} by string(user) until {C} by user",
}
"""Queries, of which a letter that is added to a text makes another version that means the same: ``a`` and ``a*`` for ``:``."""


def query(kind: str, *, changed: bool = False) -> str:
    """A query, or another one that finds the same in the events of :func:`random_events`."""
    if not changed:
        return KINDS[kind].format("")
    return KINDS[kind].replace('== "a{}"', 'in ("a", "z")').format("*")


def in_eql(kind: str, version: int = 1, *, changed: bool = False, **more: Any) -> PatternProcessor:
    item = {"id": "r", "version": version, "eql": query(kind, changed=changed), **more}
    return PatternProcessor.from_dict(item)


def random_events(rng: random.Random, count: int = 40) -> list[Event]:
    return [(float(second), rng.choice(["ann", "bob"]), 1, rng.choice("aabbc"), 1.0) for second in range(count)]


def alerts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The key, the times and the suppressed matches of each alert, whatever the version."""
    names = ("key", "start_time", "end_time", "suppressed")
    return sorted(str([row[name] for name in names]) for row in rows)


def run(events: Sequence[Event], sets: dict[int, list[PatternProcessor]], rng: random.Random) -> Driver:
    """Random micro-batches, with watermarks behind them; each set arrives before the event with its number."""
    driver, begin = Driver(keys=[], key_groups=2), 0
    while begin < len(events):
        end = min([begin + rng.randint(1, 12), len(events), *[number for number in sets if number > begin]])
        driver.batch(events[begin:end], sets=sets.get(begin), watermark=begin - 1 if begin else None)
        begin = end
    return driver.end()


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_that_is_written_otherwise_loses_nothing(kind: str) -> None:
    """Its alerts, and the numbers of suppressed ones, are those of a rule that was never replaced."""
    adopted, versions = 0, set()
    for seed in range(2 * FACTOR):
        rng = random.Random(seed)
        events = random_events(rng)
        more: dict[str, Any] = {"suppress": {"for": "15 seconds"}} if seed % 2 else {}
        first = in_eql(kind, **more)
        second = in_eql(kind, 2, changed=True, adopt=rng.choice([True, 1]), **more)
        whole = run(events, {0: [first]}, rng)
        changed = run(events, {0: [first], rng.randint(10, 25): [second]}, rng)
        assert alerts(changed.rows["matches"]) == alerts(whole.rows["matches"]) != [], seed
        versions |= {row["processor_version"] for row in changed.rows["matches"]}
        counts = changed.counts.versions.values()
        assert sum(each.not_adopted for each in counts) == 0
        adopted += sum(each.adopted for each in counts)
    assert 2 in versions
    assert bool(adopted) == (kind != "event")


def items(**more: Any) -> list[dict[str, Any]]:
    """A rule of each kind."""
    return [{"id": kind, "version": 1, "eql": query(kind), **more} for kind in KINDS]


def test_a_live_engine_that_is_killed_and_opened_again(tmp_path: Path) -> None:
    """All kinds at once, suppressed and with labels: the rows are those of a table."""
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(items(suppress={"for": "10 seconds"}, labels={"severity": "high"})))
    factory = FilePatternProcessorDiscovererFactory(file)
    events = table_of(random_events(random.Random(5)))

    def stream(of: pa.Table | pa.Schema) -> Any:
        return CEP.pattern_processors(KeyedStream(of, time="ts"), factory)

    expected = stream(events).output("matches")
    assert {row["processor_id"] for row in expected.to_pylist()} == set(KINDS)
    assert {tuple(row["labels"]) for row in expected.to_pylist()} == {(("severity", "high"),)}
    assert any(row["suppressed"] for row in expected.to_pylist())
    found = play(
        lambda folder: stream(SCHEMA).open(folder, outputs=["matches"], snapshot_every=None),
        {"events": events},
        tmp_path / "state",
        seed=3,
        largest=9,
    )["matches"]
    names = [name for name in found.column_names if name != "match_time"]
    assert in_order(found.select(names)) == in_order(expected.select(names))


def test_a_changed_query_in_a_live_engine_and_its_history(tmp_path: Path) -> None:
    file, state = tmp_path / "rules.json", tmp_path / "state"
    item = {"id": "until", "version": 1, "eql": query("until"), "labels": {"severity": "low"}}
    file.write_text(json.dumps([item]))
    factory = FilePatternProcessorDiscovererFactory(file, interval=timedelta(milliseconds=20))
    stream = CEP.pattern_processors(KeyedStream(SCHEMA, time="ts"), factory)
    with stream.open(state) as engine:
        engine.process(table_of([(1, "ann", 1, "a", 1.0)]))
        changed = {
            **item,
            "version": 2,
            "eql": query("until", changed=True),
            "adopt": 1,
            "labels": {"severity": "high"},
        }
        file.write_text(json.dumps([changed]))
        until(lambda: engine.status().processors == {"until": 2})
        assert engine.process(table_of([(2, "bob", 1, "x", 1.0)]))["matches"].num_rows == 0
    with stream.open(state) as engine:
        engine.process(table_of([(3, "ann", 1, "b", 1.0)]))
        [row] = engine.finish()["matches"].to_pylist()
    assert (row["processor_version"], row["key"], dict(row["labels"])) == (2, ["ann"], {"severity": "high"})
    shown = run_command("rules", "history", state).output
    assert "until" in shown
    assert run_command("rules", "status", state).exit_code == 0


# ---------------------------------------------------------------------- commands


def run_command(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize("kind", KINDS)
def test_commands_match_explain_and_trace_a_query(tmp_path: Path, kind: str) -> None:
    (tmp_path / "query.eql").write_text(query(kind).replace("x >= 1", "price >= 1"))
    (tmp_path / "events.csv").write_text(EVENTS)
    events = ("--input", tmp_path / "events.csv", "--time", "ts")
    key = () if kind in ("event", "keys") else ("--key", "ann")
    matches = MATCHES.get(kind, [["ann"]])
    assert f"{len(matches)} match" in run_command("match", tmp_path / "query.eql", *events).output
    assert run_command("explain", tmp_path / "query.eql").exit_code == 0
    traced = run_command("trace", tmp_path / "query.eql", *events, *key).output
    assert f"{len(matches) if not key else 1} match" in traced


def test_commands_add_test_and_backtest_queries(tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    for kind in KINDS:
        (tmp_path / "queries" / f"{kind}.eql").write_text(query(kind).replace("x >= 1", "price >= 1"))
    (tmp_path / "queries" / "sample.eql").write_text("sample by user [any where true] [any where true]")
    (tmp_path / "rules.yaml").write_text("[]")
    (tmp_path / "events.csv").write_text(EVENTS)
    added = run_command("rules", "add", tmp_path / "rules.yaml", tmp_path / "queries", "--eql")
    assert "sample.eql: [UNSUPPORTED_SYNTAX] a rule cannot be a sample" in added.output
    assert added.output.count(" version 1 added") == len(KINDS)
    assert f"{len(KINDS)} without tests" in run_command("rules", "test", tmp_path / "rules.yaml").output
    tried = run_command(
        "rules", "backtest", tmp_path / "rules.yaml", "--input", tmp_path / "events.csv", "--time", "ts"
    )
    numbers = {line[:20].strip(): line[20:].split()[:2] for line in tried.output.splitlines()}
    assert {kind: int(numbers[kind][1]) for kind in KINDS} == {kind: len(MATCHES.get(kind, [0])) for kind in KINDS}


# ---------------------------------------------------------------------- the console

EVENTS = """ts,user,kind,price
2026-01-31 12:00:01,ann,a,1
2026-01-31 12:00:02,ann,a,1
2026-01-31 12:00:03,ann,a,1
2026-01-31 12:00:04,ann,b,3
2026-01-31 12:00:30,bob,a,2
2026-01-31 12:00:31,bob,c,2
2026-01-31 12:00:32,bob,b,2
"""
MATCHES: dict[str, list[list[str]]] = {"event": [[]] * 4, "keys": [[]], "absence at the end": [["ann"], ["bob"]]}
"""The keys of the matches in these events; of the other kinds, only ann."""


def test_a_backtest_of_the_console(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text(EVENTS)
    handler = BacktestHandler(SampleSettings(None, (str(tmp_path / "events.csv"),), (), "ts"))
    old = {"id": "r", "version": 1, "eql": query("until")}
    report = handler(
        {"rule": {**old, "version": 2, "eql": query("absence at the end")}, "against": old}, lambda progress: None
    )
    assert (report["rule"]["added"], report["rule"]["removed"], report["rule"]["kept"]) == (1, 0, 1)


@pytest.fixture
def client(tmp_path: Path) -> Asker:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(items()).replace(" and x >= 1", " and price >= 1"))
    return Asker(application(str(file)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_console_shows_checks_and_tries_a_query(client: Asker, kind: str) -> None:
    shown = client.good("POST", "/api/rule", {"id": kind})
    text = shown["versions"][0]["text"]
    checked = client.good("POST", "/api/check", {"text": text, "id": kind})
    assert checked["problems"] == []
    assert checked["effect"]["effect"] == "unchanged"
    assert checked["drawing"].startswith("<svg")
    assert checked["explanation"].startswith("each event" if kind == "event" else "a sequence")
    tried = client.good("POST", "/api/sample", {"text": text, "id": kind, "events": EVENTS, "key": None})
    matches = [match["key"] for match in tried["matches"]]
    assert matches == MATCHES.get(kind, [["ann"]])
    lines = [line for _, line in tried["trace"]["lines"]]
    assert f"{1 if shown['versions'][0]['text'].count('by user') == 1 else len(matches)} match" in " ".join(lines), (
        lines
    )
    assert not any("w1_0" in line.lower() or "`" in line for line in lines), lines


def test_the_console_saves_a_changed_query_and_shows_its_problems(client: Asker) -> None:
    shown = client.good("POST", "/api/rule", {"id": "until"})
    changed = shown["versions"][0]["text"].replace("maxspan=20s", "maxspan=21s")
    assert client.good("POST", "/api/check", {"text": changed, "id": "until"})["effect"]["effect"] == "version"
    client.good("POST", "/api/save", {"text": changed, "tag": shown["tag"], "comment": "longer"})
    stored = client.good("POST", "/api/rule", {"id": "until"})["versions"][0]["text"]
    assert "maxspan=21s" in stored
    assert "version: 2" in stored
    wrong = changed.replace('[any where kind == "b"]', '[any where kind = "b"]')
    [problem] = client.good("POST", "/api/check", {"text": wrong, "id": "until"})["problems"]
    assert (problem["line"], problem["column"]) == (3, wrong.splitlines()[2].index('= "b"') + 1)
