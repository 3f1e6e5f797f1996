"""`asterism compile` calls every kernel, so that no query compiles one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

import asterism
from asterism.cli.compile import KINDS
from asterism.cli.main import main
from asterism.testing.warm_up import USES, compile_kernels

SOURCE = Path(asterism.__file__).parent


def test_every_kernel_is_compiled() -> None:
    for kind in USES:
        compile_kernels(kind)
    from asterism.columns.compiled import _EntryPoint

    modules = [path.relative_to(SOURCE.parent) for path in SOURCE.rglob("*.py") if "@entry" in path.read_text("utf-8")]
    found = {
        f"{path}: {name}": bool(value.compiled.signatures)  # type: ignore[attr-defined] # a dispatcher of numba
        for path in modules
        for name, value in vars(import_module(".".join(path.with_suffix("").parts))).items()
        if isinstance(value, _EntryPoint)
    }
    assert len(found) > 10
    assert [name for name, is_compiled in found.items() if not is_compiled] == []


@pytest.mark.parametrize(("arguments", "status"), [(["windows"], 0), (["winds"], 2)])
def test_the_command(arguments: list[str], status: int) -> None:
    result = CliRunner().invoke(main, ["compile", *arguments])
    assert result.exit_code == status
    assert ("the kernels are compiled" in result.output) == (status == 0)


def test_kinds_of_the_command() -> None:
    assert tuple(USES) == KINDS
