"""The command ``asterism demo``: runs the example ``ssh_attacks.py``, which is part of the wheel with its data."""

from __future__ import annotations

import runpy
import sys
from contextlib import chdir
from pathlib import Path

import click

from asterism.cli.common.files import folder_with
from asterism.cli.common.local_spark import local_spark

PROGRAM = "ssh_attacks.py"


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="The folder for the pictures.",
)
@click.option("--spark", is_flag=True, help="Then match the same pattern, and another one, over a stream on Spark.")
def demo(out: Path, spark: bool) -> None:
    """Find the attacks in a real SSH log.

    With --spark, the log is then read file by file, as if it were just arriving. On a slow machine, that takes some minutes.
    """
    program = find_program()
    if program is None:
        raise click.ClickException(
            "the demo is not installed: install Asterism from a wheel, or run make demo in a checkout"
        )
    out.mkdir(parents=True, exist_ok=True)
    with chdir(out):
        _run(program)
        if spark:
            click.echo("the same pattern over a stream, on Spark:")
            with local_spark():
                _run(program, "--stream")
    for picture in sorted(out.glob("*.svg")):
        click.echo(f"a picture: {picture}")
    pattern, log = (_shown(program.parent / name) for name in ("patterns/brute_force.json", "data/ssh_auth.csv"))
    click.echo(f"the same question as a command:\n  asterism match {pattern} --input {log} --key ip --time ts")


def _run(program: Path, *arguments: str) -> None:
    before = sys.argv
    sys.argv = [str(program), *arguments]
    try:
        runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.argv = before


def find_program() -> Path | None:
    """The program: that of the checkout, or the installed one."""
    folder = folder_with(PROGRAM, in_checkout="examples", in_wheel="asterism_demo")
    return None if folder is None else folder / PROGRAM


def _shown(path: Path) -> Path:
    """The path, relative to the working directory if it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
