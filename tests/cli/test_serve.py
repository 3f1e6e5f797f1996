"""``asterism rules serve``, as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from asterism.cli.main import main
from tests.console.kit import READER, WRITER, rule, token_file


def start(*arguments: object) -> tuple[subprocess.Popen[str], str]:
    """The process, and the address on which it listens."""
    program = "from asterism.cli.main import main; main()"
    command = [sys.executable, "-c", program, "rules", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("console on http://127.0.0.1:"):
        pytest.fail(line + str(process.communicate()))
    return process, line.removeprefix("console on ").strip()


def test_a_console_is_served_until_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([rule()]))
    tokens = token_file(tmp_path / "tokens.json")
    process, address = start(path, "--token-file", tokens, "--checkpoint", tmp_path / "checkpoint")
    try:
        request = urllib.request.Request(address + "/processors", headers={"Authorization": f"Bearer {READER}"})
        with urllib.request.urlopen(request, timeout=30) as response:
            assert json.loads(response.read()) == {"processors": [rule()]}
        with urllib.request.urlopen(address + "/", timeout=30) as response:
            assert b"<title>Asterism rules</title>" in response.read()
        # Its endpoint is one for commands, too.
        (tmp_path / "new.json").write_text(json.dumps([rule(version=2, labels={"a": "b"}), rule("other")]))
        for token, status in ((READER, 2), (WRITER, 0)):
            command = ["rules", "apply", str(tmp_path / "new.json"), address]
            result = CliRunner().invoke(main, command, env={"ASTERISM_TOKEN": token})
            assert result.exit_code == status, result.output
        assert [(one["id"], one["version"], one["changedBy"]) for one in json.loads(path.read_text())["processors"]] == [
            ("pair", 2, "ann"), ("other", 1, "ann"),
        ]  # fmt: skip
    finally:
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == ""
    assert "is not the checkpoint of a query" in errors  # the query may be started later
    assert "Traceback" not in errors


def test_without_tokens_this_is_said(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text("[]")
    process, _ = start(path)
    assert process.stdout is not None
    assert process.stdout.readline() == "There are no tokens: everyone on this machine can change the rules.\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch.json"], "nosuch.json cannot be read"),
        (["rules.json", "--host", "0.0.0.0"], "everyone who can reach it could change the rules"),
        (["rules.json", "--token-file", "nosuch"], "nosuch cannot be read"),
        (["rules.json", "--schema", "price MONEY"], "not a list of columns with Spark SQL types"),
        (["rules.json", "--port", "1", "--host", "127.0.0.999"], "everyone who can reach it"),
        (["rules.json", "--history", "nosuch"], "does not exist"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.json").write_text("[]")
    result = CliRunner().invoke(main, ["rules", "serve", *arguments])
    assert result.exit_code == 2
    assert message in result.output
