"""``asterism rules test``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from asterism import Pattern, PatternProcessor
from asterism.cli.main import main

PAIR = PatternProcessor("pair", 1, Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'"))
GOOD = {"name": "good", "events": "a1 x2 b3", "matches": ["a1 b3"]}
WRONG = {"name": "<b>wrong</b>", "events": "a1 x2", "matches": ["a1 b3"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str, *arguments: str, rules: list[dict[str, Any]]) -> Result:
    Path("rules.json").write_text(json.dumps(rules))
    return CliRunner().invoke(main, ["rules", command, "rules.json", *arguments])


def rule(**more: Any) -> dict[str, Any]:
    return PAIR.to_dict() | more


def test_tests_that_pass() -> None:
    rules = [rule(tests=[GOOD]), rule(id="other", enabled=False, tests=[GOOD]), rule(id="none")]
    result = run("test", rules=rules)
    assert (result.exit_code, result.output) == (0, "2 passed, 1 without tests\n")
    assert run("test", "none", rules=rules).output == "1 without tests\n"
    result = run("test", "nosuch", rules=rules)
    assert (result.exit_code, result.output) == (2, "Error: [RULE_NOT_FOUND] there is no processor 'nosuch'\n")
    assert run("test", rules=[]).output == "no rules\n"


def test_the_tests_in_the_documentation_pass() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rules" / "trying.md").read_text(encoding="utf-8")
    text = "".join(page.split(f"\n{name} = ")[1].split('"""\n')[1].split('"""')[0] for name in ("burst", "tested"))
    Path("rules.yaml").write_text(text)
    result = CliRunner().invoke(main, ["rules", "test", "rules.yaml"])
    assert (result.exit_code, result.output) == (0, "2 passed\n")


FUNCTIONS = """
def risk(kind: str) -> int:
    return {"a": 1, "b": 5}.get(kind, 0)

udfs = {"risk": risk}
"""


def test_functions_in_python_that_the_query_lists() -> None:
    pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("risk(kind) > 3 * risk(LAST(a.kind))")
    Path("functions.py").write_text(FUNCTIONS)
    rules = [rule(pattern=json.loads(pattern.to_json()), tests=[GOOD])]
    assert "unknown function risk" in run("test", rules=rules).output
    assert run("test", "--udfs", "functions.py", rules=rules).output == "1 passed\n"
    Path("events.csv").write_text("ts,kind\n2026-01-01 00:00:01,a\n2026-01-01 00:00:02,x\n2026-01-01 00:00:03,b\n")
    command = ["trace", "rules.json#pair", "--input", "events.csv", "--time", "ts", "--udfs", "functions.py"]
    traced = CliRunner().invoke(main, command)
    assert traced.exit_code == 0, traced.output
    assert "1 match" in traced.output


def test_a_file_without_functions() -> None:
    for text, reason in (("udfs = [1]", "udfs must be a dict by name"), ("1 / 0", "fails: ZeroDivisionError")):
        Path("functions.py").write_text(text)
        result = run("test", "--udfs", "functions.py", rules=[rule()])
        assert result.exit_code != 0
        assert reason in result.output


def test_a_test_that_fails() -> None:
    result = run("test", rules=[rule(tests=[GOOD, WRONG])])
    assert (result.exit_code, result.output) == (
        1,
        "rules.json: pair: <b>wrong</b>: failed\n"
        "  expected, not found: a1 b3\n"
        "  events: a1 x2\n"
        "  Hint: asterism trace 'rules.json#pair' --input EVENTS shows event by event why there is no match\n"
        "1 passed, 1 failed\n",
    )


def test_a_shadow_is_tested_as_if_it_were_in_force() -> None:
    shadow = rule(version=2, shadow=True, tests=[GOOD, WRONG])
    result = run("test", rules=[rule(version=1, tests=[GOOD]), shadow])
    assert result.exit_code == 1
    assert "rules.json: pair@2: <b>wrong</b>: failed\n" in result.output
    assert "asterism trace 'rules.json#pair@2'" in result.output
    assert result.output.endswith("2 passed, 1 failed\n")


def test_invalid_tests_and_rules() -> None:
    result = run("test", rules=[rule(tests=[{}]), rule(id="bad", version=-1)])
    assert result.exit_code == 1
    assert "rules.json: pair: [PATTERN_PROCESSOR] test 1 needs 'name'" in result.output
    assert result.output.endswith("2 invalid\n")
    result = run("validate", rules=[rule(tests=[{}])])
    assert (result.exit_code, "test 1 needs 'name'" in result.output) == (1, True)


def test_validate_counts_tests() -> None:
    output = run("validate", rules=[rule(tests=[GOOD, WRONG]), rule(id="one", tests=[GOOD]), rule(id="none")]).output
    assert [line.rpartition(", ")[2] for line in output.splitlines()] == ["2 tests", "1 test", "NO_SKIP"]
