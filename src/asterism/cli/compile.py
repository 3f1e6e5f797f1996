"""The command ``asterism compile``."""

from __future__ import annotations

import click

from asterism.cli.common.terminal import errors_explained, status_line

KINDS = ("patterns", "rules", "windows", "row_patterns")


@click.command(name="compile")
@click.argument("kinds", nargs=-1, type=click.Choice(KINDS))
def compile_(kinds: tuple[str, ...]) -> None:
    """Compile the kernels for this machine, of all kinds of operators or of some. Queries then start faster.

    The compiled code is stored beside the package if it is writable, or else in the user's cache folder; NUMBA_CACHE_DIR names
    another folder. Run it when a container image is built, on the type of processor on which the image will run.

    \b
    RUN pip install asterism && asterism compile
    """
    with errors_explained():
        from asterism.testing.warm_up import compile_kernels

        for kind in kinds or KINDS:
            with status_line(f"compiling the kernels of {kind}"):
                compile_kernels(kind)
    click.echo("the kernels are compiled")
