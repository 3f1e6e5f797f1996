"""Common parts of the commands: error messages, consoles, and types of arguments."""

from __future__ import annotations

import errno
import os
import re
import runpy
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar

import click

from asterism.errors import AsterismError, error_in, printable
from asterism.patterns.semantics import Semantics
from asterism.text.printable import one_line

if TYPE_CHECKING:
    from rich.console import Console

_F = TypeVar("_F", bound=Callable[..., Any])
PIPED_WIDTH = 160
"""Width of a table in characters, if the output is not a terminal."""


def stdout() -> Console:
    """A console for tables."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH)


Cell = str | tuple[str, str]
"""A text, or a text with its style."""


def print_table(
    columns: Sequence[str],
    rows: Iterable[Iterable[Cell]],
    *,
    title: str | None = None,
    numbers: Collection[str] = (),
    optional: Collection[str] = (),
) -> None:
    """Print a table.

    :param numbers: the columns that are aligned on the right
    :param optional: the columns that are left out if they are empty
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[Text(cell) if isinstance(cell, str) else Text(*cell) for cell in row] for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold")
    shown = [at for at, name in enumerate(columns) if name not in optional or any(row[at] for row in cells)]
    for at in shown:
        justify: Literal["left", "right"] = "right" if columns[at] in numbers else "left"
        table.add_column(Text(columns[at]), overflow="fold", justify=justify)
    for row in cells:
        table.add_row(*(row[at] for at in shown))
    stdout().print(table)


class CommandFailure(click.ClickException):
    """The command cannot continue."""

    exit_code = 2


@contextmanager
def errors_explained() -> Iterator[None]:
    """Report errors that the user can fix without a traceback."""
    try:
        yield
    except AsterismError as error:
        raise CommandFailure(str(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader has closed the pipe
            raise
        raise CommandFailure(printable(str(error))) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        known = error_in(error)
        raise CommandFailure(first_paragraph(str(error)) if known is None else str(known)) from error


def first_paragraph(text: str) -> str:
    """The first paragraph of a message of Spark, without the prefix of Py4J and without plans and stack traces."""
    text = re.sub(
        r"^An error occurred while calling \S+\s+: [\w.$]+: |^\[STREAM_FAILED\].*?with exception: ", "", text.strip()
    )
    return re.split(r"\n\s*\n|\n\s*at |\nJVM stacktrace|;\n|\n=== |\n== DataFrame", text)[0]


class Column(click.ParamType[tuple[str, Any]]):
    """The name of a column and its Spark type: price:double."""

    name = "name:type"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        from asterism.columns.schemas import type_of
        from asterism.errors import StreamDefinitionError

        name, _, kind = value.partition(":")
        if not name or not kind:
            self.fail(f"{value!r} is not a column: write its name and its type, as in price:double", param, ctx)
        try:
            return name, type_of(kind)
        except StreamDefinitionError as error:
            self.fail(error.message, param, ctx)


def distinct(
    ctx: click.Context, param: click.Parameter, values: Sequence[tuple[str, ...]]
) -> Sequence[tuple[str, ...]]:
    """The values of an option, whose names, which come first, must be distinct."""
    names = [name for name, *_ in values]
    if len(set(names)) < len(names):
        raise click.UsageError(f"{param.opts[0]} names {max(names, key=names.count)!r} twice.")
    return values


column_option = click.option(
    "--column",
    "columns",
    multiple=True,
    type=Column(),
    callback=distinct,
    help="A column of the events and its Spark type, such as price:double; repeat it for each column that SQL reads.",
)


class FunctionsFile(click.ParamType[Any]):
    """A file in Python with functions that SQL can call: udfs = {'risk': risk}."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from asterism.expressions.routines.user_functions import UserFunctions, checked

        if isinstance(value, UserFunctions):
            return value
        path = click.Path(exists=True, dir_okay=False).convert(value, param, ctx)
        try:
            given = runpy.run_path(str(path)).get("udfs")
        except Exception as error:
            self.fail(f"{value} fails: {type(error).__name__}: {one_line(str(error), 200)}", param, ctx)
        with errors_explained():
            return checked(given)


udfs_file_option = click.option(
    "--udfs",
    type=FunctionsFile(),
    help="A file in Python with the functions that the query lists for its rules, udfs = {'risk': risk}. It is executed.",
)
udf_option = click.option(
    "--udf",
    "udfs",
    multiple=True,
    type=Column(),
    callback=distinct,
    help="A function in Python that the query lists for its rules, with the type of its result, such as risk:int.",
)


table_option = click.option(
    "--table",
    default="pattern_processors",
    show_default=True,
    help="With a database: the table, as table or schema.table.",
)


SLOW = 3.0
"""Seconds after which a message explains a slow start. A compiled kernel is loaded within one second."""
_BETWEEN_NOTICES = 10.0


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def notice_if_slow(text: str) -> Iterator[Callable[[str], None]]:
    """Print on standard error what a command does, if it takes longer than three seconds, and then every ten seconds if this has
    changed.
    """
    current, ended = [text], threading.Event()

    def print_notices(file: TextIO) -> None:
        printed, seconds = "", SLOW
        while not ended.wait(seconds):
            if printed != current[0]:
                printed = current[0]
                click.echo(printed, file=file)
            seconds = _BETWEEN_NOTICES

    with _standard_error() as file:
        thread = threading.Thread(target=print_notices, args=(file,), daemon=True)
        thread.start()
        try:
            yield lambda changed: current.__setitem__(0, changed)
        finally:
            ended.set()
            thread.join()


@contextmanager
def _standard_error() -> Iterator[TextIO]:
    """Standard error as it is now. It is redirected while Spark starts."""
    try:
        copy = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):  # it is not a file
        yield sys.stderr
        return
    with os.fdopen(copy, "w", encoding="utf-8") as file:
        yield file


class Duration(click.ParamType[timedelta]):
    """A number and a unit: 500ms, 5s, 10m, 2h, 1d."""

    name = "duration"
    units = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}  # noqa: RUF012

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", value)
        if match is None:
            self.fail(f"{value!r} is not a duration: write a number and one of ms, s, m, h, d, as in 5s", param, ctx)
        try:
            return timedelta(**{self.units[match[2]]: int(match[1])})
        except OverflowError:
            self.fail(f"{value!r} is out of range", param, ctx)


MATCHING = "matching (the first time on a machine, this compiles the kernel)"


_line: ContextVar[Callable[[str], None] | None] = ContextVar("_line", default=None)
"""Changes the text of the status line that is shown."""


@contextmanager
def status_line(text: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error what a command does, with the seconds that it has taken; if that is not a terminal, what takes
    longer than three seconds. Inside the block, the function changes the text. A line inside another one changes its text.
    """
    if (outer := _line.get()) is not None:
        outer(text)
        yield outer
        return
    with _terminal_line(text) if stderr().is_terminal else notice_if_slow(text) as show:
        token = _line.set(show)
        try:
            yield show
        finally:
            _line.reset(token)


@contextmanager
def _terminal_line(text: str) -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with _standard_error() as file:
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=file, force_terminal=True), transient=True) as line:
            task = line.add_task(text, total=None)
            yield lambda changed: line.update(task, description=changed)


time_option = click.option(
    "--time",
    help="Event-time column: timestamps, as such or as strings, or epoch milliseconds. Default: processing time.",
)
order_by_option = click.option(
    "--order-by",
    multiple=True,
    help="Order of events with equal times: a column, descending with a leading '-'; can be repeated.",
)


max_out_of_orderness_option = click.option(
    "--max-out-of-orderness",
    type=Duration(),
    default="0s",
    show_default=True,
    help="With --stream: how far an event may lie behind the latest event time before it is late: 500ms, 5s, 10m, 2h, 1d.",
)

watermark_by_option = click.option(
    "--watermark-by",
    multiple=True,
    help="As in a stream: a column that distinguishes partitions, each of which has a watermark; can be repeated.",
)


spark_option = click.option(
    "--spark", is_flag=True, help="Run on a local Spark, which needs Java, instead of in this process."
)


def input_option(name: str, help: str, *, required: bool = True, multiple: bool = False) -> Callable[[_F], _F]:
    """The option ``--input``: files of events."""
    kind = click.Path(exists=True, path_type=Path)
    return click.option("--input", name, required=required, multiple=multiple, type=kind, help=help)


def semantics_option(help: str, default: Semantics = Semantics.DEFAULT) -> Callable[[_F], _F]:
    """The option ``--semantics``; its value is that of a member of :class:`Semantics`."""
    names = [semantics.value for semantics in Semantics]
    return click.option("--semantics", type=click.Choice(names), default=default.value, show_default=True, help=help)
