"""``asterism demo`` without Spark: which program it runs, and that the wheel has what the program reads."""

from __future__ import annotations

import runpy
import sys
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from click.testing import CliRunner

from asterism.cli import demo
from asterism.cli.main import main
from tests.kit import ROOT


def test_the_program_of_the_checkout_is_run_with_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(runpy, "run_path", lambda path, run_name: called.append((path, run_name, sys.argv[1:])))
    result = CliRunner().invoke(main, ["demo", "--out", "somewhere"])
    assert result.exit_code == 0
    assert called == [(str(ROOT / "examples" / "ssh_attacks.py"), "__main__", ["--out", "somewhere"])]


def test_the_installed_program_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / demo.PROGRAM).touch()
    spec = ModuleSpec("asterism_demo", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "lib" / "asterism" / "cli" / "demo.py"))
    monkeypatch.setattr(demo, "find_spec", {"asterism_demo": spec}.get)
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
