"""``asterism demo`` without Spark: which program it runs, and that the wheel has what the program reads."""

from __future__ import annotations

import runpy
import sys
import tomllib
from contextlib import chdir, nullcontext
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from click.testing import CliRunner

from asterism.cli import demo
from asterism.cli.common import files
from asterism.cli.main import main
from examples import ssh_attacks
from tests.kit import ROOT


def test_the_program_of_the_checkout_is_run_in_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[list[str]] = []

    def run(path: str, run_name: str) -> None:
        assert (path, run_name) == (str(ROOT / "examples" / "ssh_attacks.py"), "__main__")
        ran.append(sys.argv[1:])
        Path("found.svg").touch()

    monkeypatch.setattr(runpy, "run_path", run)
    monkeypatch.setattr(demo, "local_spark", nullcontext)
    monkeypatch.chdir(ROOT)
    shown = [
        f"a picture: {tmp_path}/somewhere/found.svg",
        "the same question as a command:",
        "  asterism match examples/patterns/brute_force.json --input examples/data/ssh_auth.csv --key ip --time ts",
    ]
    for options, first, runs in (
        ([], [], [[]]),
        (["--spark"], ["the same pattern over a stream, on Spark:"], [[], ["--stream"]]),
    ):
        ran.clear()
        result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "somewhere"), *options])
        assert result.exit_code == 0, result.output
        assert result.output.splitlines() == [*first, *shown]
        assert ran == runs


def test_the_attack_is_found_without_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chdir(tmp_path):
        ssh_attacks.table()
        assert (tmp_path / "ssh_attacks.svg").read_text(encoding="utf-8").count("<title>fails: ") == 147
    assert capsys.readouterr().out == (
        "24.151.103.17: 147 failures from 2017-03-30 15:54:19, then a login as elastic_user_0\n"
    )


def test_the_installed_program_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / demo.PROGRAM).touch()
    spec = ModuleSpec("asterism_demo", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(files, "CHECKOUT", tmp_path / "lib")
    monkeypatch.setattr(files, "find_spec", {"asterism_demo": spec}.get)
    assert demo.find_program() == tmp_path / demo.PROGRAM


def test_without_the_program_the_command_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_program", lambda: None)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert "install Asterism from a wheel, or run make demo in a checkout" in result.output


def test_the_wheel_has_the_program_with_its_data() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    included = wheel["force-include"]
    assert all((ROOT / source).exists() for source in included)
    assert {"asterism_demo/ssh_attacks.py", "asterism_demo/data/ssh_auth.csv", "asterism_demo/patterns"} <= set(
        included.values()
    )
