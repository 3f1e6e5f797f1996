"""The command ``asterism conformance``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asterism.cli.common.local_spark import local_spark, temporary_folder
from asterism.cli.common.terminal import errors_explained, notice_if_slow, semantics_option, stderr
from asterism.errors import StreamDefinitionError
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    from asterism.conformance.corpus import Case, Outcome

SHORT = 200
"""Maximum length of a reason. With ``--verbose`` it is not cut, and has all expected and actual matches."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--engine",
    default="kernel",
    show_default=True,
    help="The engine that runs the cases: the kernel, or one that a program has registered.",
)
@click.option(
    "--cuts",
    type=click.Choice(["whole", "rows", "random"]),
    default="whole",
    show_default=True,
    help="How the events between two watermarks arrive: together, one by one, or cut at random.",
)
@click.option("--seed", default=0, show_default=True, help="The seed of the random cuts.")
@semantics_option(
    "The semantics of the results. They are always compared with Flink's results.", default=Semantics.FLINK
)
@click.option(
    "--spark",
    "on_spark",
    is_flag=True,
    help="Run the kernel in a local streaming query, with state in Spark's state store.",
)
@click.option("--verbose", is_flag=True, help="Show reasons in full.")
def conformance(
    paths: Sequence[Path], engine: str, cuts: str, seed: int, semantics: str, on_spark: bool, verbose: bool
) -> None:
    """Run the cases of a conformance corpus.

    PATHS are files with one case per line, or folders with such files (*.jsonl). The id of each case whose result differs
    from Flink's is printed, with the reason; the last line has the numbers of passed and failed cases.
    """
    if on_spark and engine != "kernel":
        raise click.UsageError("--spark runs the kernel; it cannot be combined with another --engine.")
    with errors_explained():
        from asterism.conformance.corpus import read_cases
        from asterism.conformance.engines import warm_up

        cases = list(read_cases(_corpus_files(paths)))
        with notice_if_slow("compiling the kernel, once per machine"):
            warm_up(engine)
        outcomes = _run_on_spark if on_spark else _run_here
        passed = failed = 0
        with _bar() as (advance, print_line):
            for outcome in outcomes(cases, engine, Semantics(semantics), cuts, seed, advance):
                passed, failed = passed + outcome.passed, failed + (not outcome.passed)
                if not outcome.passed:
                    print_line(f"{outcome.case}  {_reason(outcome.problem, verbose)}")
    click.echo(f"{passed} passed, {failed} failed")
    if failed:
        sys.exit(1)


Advance = Callable[[int, int], None]
"""A function that is called with the number of finished cases or micro-batches and their total number."""


def _run_here(
    cases: Sequence[Case], engine: str, semantics: Semantics, cuts: str, seed: int, advance: Advance
) -> Iterator[Outcome]:
    from asterism.conformance.engines import run_case

    for number, case in enumerate(cases, 1):
        yield run_case(case, engine, semantics, cuts, seed)
        advance(number, len(cases))


def _run_on_spark(
    cases: Sequence[Case], engine: str, semantics: Semantics, cuts: str, seed: int, advance: Advance
) -> Iterator[Outcome]:
    with temporary_folder() as folder, local_spark() as spark:
        from asterism.conformance.on_spark import run_cases

        yield from run_cases(spark, cases, folder, semantics, cuts, seed, advance)


def _corpus_files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        corpus = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not corpus:
            raise StreamDefinitionError(f"{path} has no *.jsonl files")
        files += corpus
    return files


def _reason(problem: str, verbose: bool) -> str:
    line = " ".join(problem.split())
    return line if verbose or len(line) <= SHORT else line[:SHORT] + " ..."


@contextmanager
def _bar() -> Iterator[tuple[Advance, Callable[[str], None]]]:
    """A progress bar on stderr, if that is a terminal: a function that advances it, and one that prints a line."""
    console = stderr()
    if not console.is_terminal:
        yield lambda done, total: None, click.echo
        return
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = [*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as progress:
        task = progress.add_task("conformance", total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        def print_line(line: str) -> None:
            # If both are on the same terminal, the progress bar must be redrawn below the line.
            if sys.stdout.isatty():
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                click.echo(line)

        yield advance, print_line
