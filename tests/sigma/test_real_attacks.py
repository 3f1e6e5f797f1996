"""Sigma and EQL over the logs of real attacks: rules that are said to detect a technique fire when it is carried out."""

from __future__ import annotations

import random
import runpy
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import CEP, KeyedStream, eql
from asterism.elastic.rules import clause_of_rule
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.definition.rule_tests import RuleTest
from asterism.testing.rule_harness import run_rule_test
from examples import sigma_alerts
from tests.kit import EXAMPLES, examples

Alert = tuple[str, str, str]
"""The title of the rule, the technique that is carried out, and the id of the match."""
FIRED = {
    ("Copying Sensitive Files with Credential Data", "T1003.002"): 1,
    ("Dumping of Sensitive Hives Via Reg.EXE", "T1003.004"): 1,
    ("File Download Via Bitsadmin", "T1197"): 1,
    ("File Download Via Bitsadmin To A Suspicious Target Folder", "T1197"): 1,
    ("Lsass Memory Dump via Comsvcs DLL", "T1003.001"): 2,
    ("Mavinject Inject DLL Into Running Process", "T1055.001"): 1,
    ("Potential Persistence Attempt Via Existing Service Tampering", "T1543.003"): 2,
    ("Potential Persistence Via Logon Scripts - CommandLine", "T1037.001"): 1,
    ("Potential Persistence Via Logon Scripts - Registry", "T1037.001"): 1,
    ("Potential SAM Database Dump", "T1003.002"): 1,
    ("Process Memory Dump Via Comsvcs.DLL", "T1003.001"): 1,
    ("PsExec Service File Creation", "T1003.004"): 1,
    ("Psexec Execution", "T1003.004"): 1,
    ("Suspicious Download From File-Sharing Website Via Bitsadmin", "T1197"): 1,
    ("Suspicious Service Path Modification", "T1543.003"): 1,
}
"""How often each rule fires, by the technique that is carried out. PsExec runs the program that dumps secrets."""


@pytest.fixture(scope="module")
def log() -> pa.Table:
    return sigma_alerts.logs()["windows"]


def alerts_in(matches: pa.Table) -> list[Alert]:
    found = []
    for row in matches.to_pylist():
        labels = dict(row["labels"])
        [event] = row["events"]
        found.append((labels["title"], event["event"]["simulated"], row["match_id"]))
        assert event["event"]["simulated"] in labels["techniques"].split(", ") or "psexec" in labels["title"].lower()
        assert labels["author"]
    return found


@pytest.fixture(scope="module")
def alerts(log: pa.Table) -> list[Alert]:
    stream = KeyedStream(log, "Hostname", time="ts")
    return alerts_in(CEP.pattern_processors(stream, sigma_alerts.collections()["windows"]).output("matches"))


def test_the_rules_of_each_technique_fire_in_a_table(log: pa.Table, alerts: list[Alert]) -> None:
    assert Counter((title, technique) for title, technique, _ in alerts) == FIRED
    assert {technique for _, technique, _ in alerts} == set(log["simulated"].to_pylist())


@pytest.mark.parametrize("seed", range(examples(1, usual=2)))
def test_the_rules_fire_in_a_stream_that_is_cut_at_random(log: pa.Table, alerts: list[Alert], seed: int) -> None:
    stream = KeyedStream(log.schema, "Hostname", time="ts")
    cuts = sorted(random.Random(seed).sample(range(1, log.num_rows), 20))
    found = []
    with CEP.pattern_processors(stream, sigma_alerts.collections()["windows"]).open() as engine:
        for start, end in zip([0, *cuts], [*cuts, log.num_rows], strict=True):
            found += alerts_in(engine.process(log.slice(start, end - start))["matches"])
        found += alerts_in(engine.finish()["matches"])
    assert sorted(found) == sorted(alerts)


LOGON_SCRIPT = """
    sequence by ProcessGuid with maxspan=10s
      [any where EventID == 1 and CommandLine : "*UserInitMprLogonScript*"]
      [any where EventID == 13 and TargetObject : "*\\\\Environment\\\\UserInitMprLogonScript"]
"""
SERVICE = """
    sequence by Hostname with maxspan=1m
      [any where EventID == 13 and TargetObject : "*\\\\Services\\\\*\\\\ImagePath" and Details : "*powershell*"]
      [any where EventID == 1 and ParentImage : "*\\\\services.exe" and Image : "*\\\\powershell.exe"]
"""


@pytest.mark.parametrize(("query", "technique"), [(LOGON_SCRIPT, "T1037.001"), (SERVICE, "T1543.003")])
def test_sequences_of_eql_find_the_attack(log: pa.Table, query: str, technique: str) -> None:
    found = eql(query, log, time="ts")
    assert found["event_number"].to_pylist() == [1, 2]
    assert set(found["simulated"].to_pylist()) == {technique}
    rule = PatternProcessor("attack", 1, sql=clause_of_rule(query, ["event_2.simulated AS technique"]))
    columns = [
        "EventID",
        "ProcessGuid",
        "Hostname",
        "CommandLine",
        "TargetObject",
        "Details",
        "ParentImage",
        "Image",
        "simulated",
    ]
    events = tuple({"ts": f"{number}s", **row} for number, row in enumerate(found.select(columns).to_pylist()))
    types = {name: "int" if name == "EventID" else "string" for name in columns}
    assert (
        run_rule_test(rule, RuleTest("attack", events, matches=({"technique": technique},), columns=types)).failure
        == ()
    )


def test_the_example_writes_alerts_with_labels_and_suppression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["sigma_alerts.py"])
    monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda: nullcontext(str(tmp_path)))
    found: Any = runpy.run_path(str(EXAMPLES / "sigma_alerts.py"), run_name="__main__")["found"]
    printed = capsys.readouterr().out.splitlines()
    attack = "critical  24.151.103.17    Login After Passwords Were Guessed (T1110.001)"
    assert [line for line in printed if "critical" in line] == [f"2017-03-30 16:01:36  {attack}"]
    assert any("Passwords Guessed Over SSH (T1110.001), 36 suppressed" in line for line in printed)
    with closing(sqlite3.connect(found.file)) as database:
        [row] = database.execute("SELECT level, author FROM alerts WHERE title LIKE 'Mavinject%'").fetchall()
    assert row == ("high", "frack113, Florian Roth")
    assert sum(FIRED.values()) == sum("WORKSTATION5" in line for line in printed)
