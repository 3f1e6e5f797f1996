"""Files with queries in EQL and with Elastic's detection rules, added to a place of rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from asterism.cli.main import main
from asterism.discovery.editing.editing import rules_at
from asterism.elastic.rule_files import document_of
from asterism.errors import PatternProcessorError

ID = "0b1d6f5a-6f35-4d8e-b0a8-c6e2f1d0a9b1"
RULE = f"""
[metadata]
creation_date = "2026/01/31"

[rule]
author = ["Ann", "Bob"]
name = "Shell Started By A Document"
rule_id = "{ID}"
type = "eql"
language = "eql"
risk_score = 73
severity = "high"
tags = ["OS: Windows", "Tactic: Execution"]
false_positives = ["Macros of the controlling department."]
query = '''
sequence by host.id with maxspan=1m
  [process where process.name : "winword.exe"]
  [process where process.name : "cmd.exe"]
'''

[[rule.threat]]
framework = "MITRE ATT&CK"
[[rule.threat.technique]]
id = "T1059"
[[rule.threat.technique.subtechnique]]
id = "T1059.003"
[[rule.threat.technique]]
id = "T1204"
"""


def test_rules_add(tmp_path: Path) -> None:
    folder = tmp_path / "eql"
    (folder / "more").mkdir(parents=True)
    (folder / "shells.eql").write_text('process where process.name : "cmd.exe"\n')
    (folder / "more" / "document.toml").write_text(RULE)
    (folder / "more" / "kuery.toml").write_text(
        '[rule]\nrule_id = "k"\ntype = "query"\nlanguage = "kuery"\nquery = "a:b"\n'
    )
    (folder / "wrong.eql").write_text("process where\n")
    arguments = ["rules", "add", str(tmp_path / "rules.yaml"), str(folder), "--eql"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert f"{folder}/more/kuery.toml: [PATTERN_PROCESSOR] the rule is of the type 'query', not eql" in done.output
    assert f"{folder}/wrong.eql: [" in done.output
    assert "2 of 4 rules are refused" in done.output
    document, shells = sorted(rules_at(str(tmp_path / "rules.yaml")).all(), key=lambda rule: rule.id)
    assert (document.id, document.version, shells.id) == (ID, 1, "shells")
    assert document.item["eql"].startswith("sequence by host.id with maxspan=1m\n  [process")
    labels = document.processor().labels
    assert labels["level"] == "high"
    assert labels["techniques"] == "T1059.003, T1204"
    assert labels["author"] == "Ann, Bob"
    assert "already exists" in CliRunner().invoke(main, arguments).output
    (folder / "shells.eql").write_text('process where process.name : "pwsh.exe"\n')
    assert "shells version 2 added, in place of version 1" in CliRunner().invoke(main, arguments).output
    assert CliRunner().invoke(main, [*arguments, "--sigma"]).exit_code == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("[rule", "cannot be read"),
        ("a = 1", r"no \[rule\]"),
        ("rule = 5", r"no \[rule\]"),
        ('[rule]\ntype = "eql"\nlanguage = "esql"', "of the type 'esql'"),
        ('[rule]\ntype = "eql"\nrule_id = 5\nquery = "any where true"', "rule_id and query"),
        ("a = " + "[" * 100_000, "cannot be read"),
        ("a" + ".a" * 100_000 + " = 1", "more than 30 dots"),
        ('x = {" "' + '." "' * 100_000 + " = 1}", "more than 30 dots"),
        ("x" * 1_000_001, "too large"),
    ],
)
def test_files_that_are_refused(text: str, problem: str) -> None:
    with pytest.raises(PatternProcessorError, match=problem):
        document_of(text.encode(), Path("rule.toml"))
