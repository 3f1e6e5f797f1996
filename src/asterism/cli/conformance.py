"""The command ``asterism conformance``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asterism.cli.local_spark import local_spark, temporary_folder
from asterism.cli.terminal import errors_explained, stderr, told_if_slow
from asterism.errors import StreamDefinitionError
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    from asterism.conformance.corpus import Case, Outcome

SHORT = 200
"""Characters of a reason; the whole of it, all expected and actual matches, is what ``--verbose`` shows."""


# ---------------------------------------------------------------------- asterism conformance


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--engine",
    default="kernel",
    show_default=True,
    help="What runs the cases: the kernel, or an engine that a program has registered.",
)
@click.option(
    "--cuts",
    type=click.Choice(["whole", "rows", "random"]),
    default="whole",
    show_default=True,
    help="How the events between two watermarks arrive: together, one by one, or cut at random.",
)
@click.option("--seed", default=0, show_default=True, help="For the random cuts.")
@click.option(
    "--semantics",
    type=click.Choice([semantics.value for semantics in Semantics]),
    default=Semantics.FLINK.value,
    show_default=True,
    help="Whose answers are computed. They are compared with Flink's in any case.",
)
@click.option(
    "--spark",
    "on_spark",
    is_flag=True,
    help="Run the kernel in a local streaming query, with state in Spark's state store.",
)
@click.option("--verbose", is_flag=True, help="Reasons in full length.")
def conformance(
    paths: Sequence[Path], engine: str, cuts: str, seed: int, semantics: str, on_spark: bool, verbose: bool
) -> None:
    """Run the cases of a conformance corpus.

    PATHS are files with one case a line, or folders with such files (*.jsonl). The id of each case whose answer is not
    Flink's is printed, with the reason; the last line says how many passed and failed.
    """
    if on_spark and engine != "kernel":
        raise click.UsageError("--spark runs the kernel; it cannot be combined with another --engine.")
    with errors_explained():
        from asterism.conformance.corpus import read_cases
        from asterism.conformance.engines import warm_up

        cases = list(read_cases(_corpus_files(paths)))
        with told_if_slow("compiling the kernel, once per machine"):
            warm_up(engine)
        outcomes = _run_on_spark if on_spark else _run_here
        passed = failed = 0
        with _bar() as (advance, say):
            for outcome in outcomes(cases, engine, Semantics(semantics), cuts, seed, advance):
                passed, failed = passed + outcome.passed, failed + (not outcome.passed)
                if not outcome.passed:
                    say(f"{outcome.case}  {_reason(outcome.problem, verbose)}")
    click.echo(f"{passed} passed, {failed} failed")
    if failed:
        sys.exit(1)


Advance = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""


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
        found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not found:
            raise StreamDefinitionError(f"{path} has no *.jsonl files")
        files += found
    return files


def _reason(problem: str, verbose: bool) -> str:
    line = " ".join(problem.split())
    return line if verbose or len(line) <= SHORT else line[:SHORT] + " ..."


@contextmanager
def _bar() -> Iterator[tuple[Advance, Callable[[str], None]]]:
    """A progress bar on stderr, if that is a terminal: what moves it, and what prints a line beside it."""
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

        def say(line: str) -> None:
            # On one terminal, the bar has to make room for the line.
            if sys.stdout.isatty():
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                click.echo(line)

        yield advance, say
