"""The command line, but for what needs Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from asterism.cli.common.local_spark import files_to_read
from asterism.cli.common.results import shown
from asterism.cli.common.terminal import errors_explained
from asterism.cli.main import main
from asterism.errors import StreamDefinitionError
from tests.kit import CORPUS


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def case() -> dict[str, Any]:
    """A case that passes, and has matches."""
    with (CORPUS / "contiguity.jsonl").open(encoding="utf-8") as lines:
        cases = map(json.loads, lines)
        return next(case for case in cases if case["expected"]["matches"])


@pytest.fixture
def corpus(case: dict[str, Any], tmp_path: Path) -> Path:
    """A good case, and one whose recorded answer is wrong."""
    wrong = case | {"id": "wrong-on-purpose", "expected": case["expected"] | {"matches": []}}
    path = tmp_path / "two.jsonl"
    path.write_text(f"{json.dumps(case)}\n\n{json.dumps(wrong)}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "options", [[], ["--engine", "reference"], ["--cuts", "rows"], ["--cuts", "random", "--seed", 7]]
)
def test_conformance_names_failing_cases_and_counts(corpus: Path, options: list[object]) -> None:
    result = run("conformance", corpus, *options)
    failing, last = result.stdout.splitlines()
    assert failing.startswith("wrong-on-purpose  matches: expected [], got [[")
    assert last == "1 passed, 1 failed"
    assert result.exit_code == 1


def test_conformance_succeeds_when_all_pass(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(json.dumps(case), encoding="utf-8")
    result = run("conformance", tmp_path / "one.jsonl")
    assert (result.stdout, result.exit_code) == ("1 passed, 0 failed\n", 0)


def test_conformance_of_a_folder_runs_its_case_files(corpus: Path) -> None:
    (corpus.parent / "more.jsonl").write_bytes(corpus.read_bytes())
    (corpus.parent / "README.md").write_text("not cases", encoding="utf-8")
    assert run("conformance", corpus.parent).stdout.splitlines()[-1] == "2 passed, 2 failed"


def test_conformance_shortens_reasons_unless_verbose(case: dict[str, Any], tmp_path: Path) -> None:
    wrong = case | {"expected": case["expected"] | {"matches": case["expected"]["matches"] * 100}}
    path = tmp_path / "wrong.jsonl"
    path.write_text(json.dumps(wrong), encoding="utf-8")
    short, verbose = run("conformance", path).stdout, run("conformance", "--verbose", path).stdout
    assert len(short) < 300
    assert len(verbose) > 1000
    assert " ..." in short


def test_conformance_counts_what_should_have_been_rejected(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "accepted.jsonl"
    path.write_text(json.dumps(case | {"expected": {"error": "X: no"}}), encoding="utf-8")
    result = run("conformance", path)
    assert result.stdout == f"{case['id']}  should have been rejected: X: no\n0 passed, 1 failed\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"id": ', "Expecting value"),
        ("[]", "a case is a JSON object"),
        ('{"id": "x"}', "'pattern' is missing or of the wrong type"),
        (b"\xff\xfe\x00", "not valid UTF-8"),
    ],
)
def test_conformance_says_what_is_not_a_case(tmp_path: Path, content: str | bytes, problem: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run("conformance", path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert str(path) in result.stderr
    assert problem in result.stderr


def test_conformance_says_which_line_is_not_a_case(case: dict[str, Any], tmp_path: Path) -> None:
    unknown = case | {"steps": [{"events": [999]}]}
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{json.dumps(case)}\n{json.dumps(unknown)}\n", encoding="utf-8")
    result = run("conformance", path)
    assert (
        f"Error: [STREAM_DEFINITION] {path}, line 2: not a case\n  step 1 names the unknown event 999\n"
        in result.stderr
    )


def test_conformance_needs_files(tmp_path: Path) -> None:
    assert run("conformance", tmp_path / "missing").exit_code == 2
    empty = run("conformance", tmp_path)
    assert empty.exit_code == 2
    assert "has no *.jsonl files" in empty.stderr


def test_conformance_on_spark_is_the_kernel(corpus: Path) -> None:
    result = run("conformance", corpus, "--spark", "--engine", "reference")
    assert result.exit_code == 2
    assert "cannot be combined" in result.stderr


def test_conformance_offers_what_is_registered(corpus: Path) -> None:
    result = run("conformance", corpus, "--engine", "flink")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "Error: [STREAM_DEFINITION] there is no engine 'flink'\n  Engines: kernel, reference.\n"
    )


NODE = {"name": "a", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}}
PATTERN = json.dumps({"type": "COMPOSITE", "edges": [], "nodes": [NODE]})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--max-out-of-orderness", "5 parsecs"], "write a number and one of ms, s, m, h, d"),
        (["--max-out-of-orderness", "999999999999d"], "out of range"),
        (["--out", "matches.txt"], "the name must end in .csv, .jsonl, .parquet"),
        (["--out", "missing/matches.csv"], "there is no folder"),
        (["--checkpoint", "somewhere"], "require --stream"),
        (["--output", "everything"], "'everything' is not one of"),
    ],
)
def test_match_refuses_options_before_it_starts_spark(tmp_path: Path, options: list[str], problem: str) -> None:
    (tmp_path / "pattern.json").write_text(PATTERN, encoding="utf-8")
    (tmp_path / "events.csv").write_text("x\n1\n", encoding="utf-8")
    result = run("match", tmp_path / "pattern.json", "--input", tmp_path / "events.csv", *options)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_match_refuses_a_malformed_pattern_before_it_starts_spark(tmp_path: Path) -> None:
    (tmp_path / "pattern.json").write_text("{", encoding="utf-8")
    (tmp_path / "events.csv").write_text("x\n1\n", encoding="utf-8")
    result = run("match", tmp_path / "pattern.json", "--input", tmp_path / "events.csv")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: [PATTERN_FORMAT] invalid JSON\n  Expecting")


def test_files_of_a_folder_have_one_format(tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    with pytest.raises(StreamDefinitionError, match="no file in a supported format"):
        files_to_read(tmp_path)
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv.gz").touch()
    files = files_to_read(tmp_path)
    assert (files.format, files.glob) == ("csv", f"{tmp_path}/*{{.csv,.csv.gz}}")
    (tmp_path / "c.parquet").touch()
    with pytest.raises(StreamDefinitionError, match="several formats"):
        files_to_read(tmp_path)


def test_file_names_are_not_globs(tmp_path: Path) -> None:
    path = tmp_path / "a[1],{2}.jsonl"
    path.touch()
    assert files_to_read(path).glob == str(tmp_path) + r"/{a\[1\]\,\{2\}.jsonl}"


def test_bugs_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError), errors_explained():
        1 / 0  # noqa: B018


def test_few_events_are_all_shown() -> None:
    assert shown([{"n": 1}, {"n": 2}, {"n": 3}]) == "n=1\nn=2\nn=3"
    assert shown([]) == ""


def test_help_needs_nothing_heavy() -> None:
    heavy = {"pyspark", "numba", "pyarrow", "pandas", "rich", "duckdb"}
    program = f"import sys, asterism.cli.main; print(sorted({heavy!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert loaded.stdout == "[]\n"
    assert run("--help").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "one of --pattern, --clause and --rules is needed"),
        (["--rules", "r.json", "--select", "a.x AS x"], "--select does not go with --rules"),
        (["--clause", __file__, "--semantics", "flink"], "--semantics does not go with --clause"),
        (["--rules", "r.json", "--until", "yesterday"], "'yesterday' is not a time: write it as 2026-01-01T00:00:00Z"),
    ],
)
def test_a_savepoint_of_a_table_needs_a_definition(options: list[str], message: str) -> None:
    arguments = ["savepoint", "bootstrap", "/target", "--input", "events", "--results", "/results"]
    result = CliRunner().invoke(main, [*arguments, *options])
    assert result.exit_code == 2
    assert message in result.output
