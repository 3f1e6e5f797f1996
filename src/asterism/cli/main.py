"""The command ``asterism``: runs the conformance corpus, looks for a pattern in files, and checks and explains patterns.

Exit status: 0; 1 where a case fails or a pattern is wrong; 2 where the command cannot do what it is asked, with the reason on
stderr.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from asterism.cli.rules import rules
from asterism.cli.terminal import Column, distinct, errors_explained, first_paragraph, stdout
from asterism.errors import StreamDefinitionError
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

    from asterism.conformance.corpus import Case, Outcome
    from asterism.patterns.pattern import Pattern
    from asterism.spark.patterns import PatternStream


SLOW = 3.0
"""Seconds after which a silent start is explained. A compiled kernel is there within one."""
SHORT = 200
"""Characters of a reason; the whole of it, all expected and actual matches, is what ``--verbose`` shows."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="asterism")
def main() -> None:
    """Complex event processing on Apache Spark."""


main.add_command(rules)


# ---------------------------------------------------------------------- progress


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def _told_if_slow(text: str) -> Iterator[None]:
    timer = threading.Timer(SLOW, click.echo, [text], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# ---------------------------------------------------------------------- Spark


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """The active Spark session; where there is none, a local one, for as long as it is needed."""
    from pyspark.sql import SparkSession

    import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter, so it comes before the session

    spark = SparkSession.getActiveSession()
    ours = spark is None
    if spark is None:
        if _stderr().is_terminal:
            click.echo("starting Spark", err=True)
        builder = SparkSession.builder.master("local[*]").appName("asterism")
        for key, value in _SETTINGS.items():
            builder = builder.config(key, value)
        with _quiet_stderr():
            spark = builder.getOrCreate()
    try:
        with _no_logging():
            yield spark
    finally:
        if ours:
            spark.stop()


_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "OFF",  # what goes wrong is said once, by this command
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """To be opened before a Spark session, and deleted after it: its state stores write on when a query has ended."""
    with tempfile.TemporaryDirectory(prefix="asterism-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _no_logging() -> Iterator[None]:
    """PySpark logs errors, in pages of JSON, before it raises them."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Processes started here write their stderr elsewhere: the JVM and Spark's workers chatter as long as they live. If
    the start fails, what they wrote is part of the error.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as elsewhere:
        ours = os.dup(2)
        os.dup2(elsewhere.fileno(), 2)
        try:
            yield
        except Exception as error:
            elsewhere.seek(0)
            written = elsewhere.read().decode(errors="replace").strip()
            detail = "\n".join([*written.splitlines()[-5:], first_paragraph(str(error))])
            hint = "Spark needs Java 17 or later, on the PATH or where JAVA_HOME says"
            raise StreamDefinitionError("Spark did not start", detail, hint) from error
        finally:
            os.dup2(ours, 2)
            os.close(ours)


# ---------------------------------------------------------------------- asterism conformance


@main.command()
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
        with _told_if_slow("compiling the kernel, once per machine"):
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
    console = _stderr()
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


# ---------------------------------------------------------------------- asterism match


class Duration(click.ParamType[timedelta]):
    """A number and a unit: 500ms, 5s, 10m, 2h, 1d."""

    name = "duration"
    units = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}  # noqa: RUF012

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", value)
        if found is None:
            self.fail(f"{value!r} is not a duration: write a number and one of ms, s, m, h, d, as in 5s", param, ctx)
        try:
            return timedelta(**{self.units[found[2]]: int(found[1])})
        except OverflowError:
            self.fail(f"{value!r} is out of range", param, ctx)


_CSV = ("csv", {"header": "true", "inferSchema": "true"})
_JSON: tuple[str, dict[str, str]] = ("json", {})
FORMATS: dict[str, tuple[str, dict[str, str]]] = {
    ".csv": _CSV,
    ".csv.gz": _CSV,
    ".jsonl": _JSON,
    ".jsonl.gz": _JSON,
    ".parquet": ("parquet", {}),
}
"""By the end of a file's name: Spark's name of the format, and how to read it."""
COUNTED = {
    "matches": ("match", "matches"),
    "timed_out": ("timed-out partial match", "timed-out partial matches"),
    "late": ("late event", "late events"),
}
WRITE_OPTIONS = {"header": "true", "escape": '"'}  # a quote in a text of CSV is doubled, as most programs expect
WRITTEN = {".csv": "csv", ".jsonl": "json", ".parquet": "parquet"}


def _out_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix not in WRITTEN:
        raise click.BadParameter(f"the name must end in {', '.join(WRITTEN)}", ctx, param)
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {value.absolute().parent}", ctx, param)
    return value


@main.command()
@click.argument("pattern", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--input",
    "source",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="Events: .csv (with a header), .csv.gz, .jsonl, .jsonl.gz, .parquet, or a folder of files of one format.",
)
@click.option("--key", "keys", multiple=True, help="Key column; can be repeated. Without one, all events have one key.")
@click.option(
    "--time", help="Event-time column: a timestamp, text of one, or epoch milliseconds. Default: processing time."
)
@click.option(
    "--order-by",
    multiple=True,
    help="Order of events with equal times: a column, descending with a leading '-'; can be repeated.",
)
@click.option(
    "--max-out-of-orderness",
    type=Duration(),
    default="0s",
    show_default=True,
    help="How much later than a younger event an event may arrive and still count (--stream): 500ms, 5s, 10m, 2h, 1d.",
)
@click.option(
    "--select",
    "measures",
    multiple=True,
    help="SQL over a match, such as 'COUNT(a.*) AS n'; can be repeated. Default: all events.",
)
@click.option(
    "--output",
    type=click.Choice(["matches", "timed_out", "late"]),
    default="matches",
    show_default=True,
    help="What is asked for.",
)
@click.option(
    "--semantics",
    type=click.Choice([semantics.value for semantics in Semantics]),
    default=Semantics.DEFAULT.value,
    show_default=True,
    help="The library's own, or Flink's to the letter.",
)
@click.option("--stream", is_flag=True, help="Run as a streaming query over what is there, then end the stream.")
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where a --stream run goes on from. Default: a temporary folder.",
)
@click.option(
    "--files-per-batch", type=click.IntRange(min=1), help="With --stream, files in one micro-batch. Default: all."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_out_file,
    help="Write to this .csv, .jsonl or .parquet file instead.",
)
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Rows to show.")
def match(pattern: Path, source: Path, output: str, out: Path | None, limit: int, stream: bool, **options: Any) -> None:
    """Look for a pattern in files of events.

    PATTERN is a file with a pattern in the JSON graph format.

    \b
    asterism match brute_force.json --input ssh.csv --key ip --time ts
    """
    if not stream and (options["checkpoint"] or options["files_per_batch"]):
        raise click.UsageError("--checkpoint and --files-per-batch go with --stream.")
    with errors_explained():
        from asterism.patterns.pattern import Pattern

        job = MatchJob(Pattern.from_json(pattern.read_bytes()), files_to_read(source), output, stream, **options)
        with temporary_folder() as folder, local_spark() as spark:
            with _status("matching (the first time on a machine, this compiles the kernel)"):
                rows = job.run(spark, folder).persist()
                total = rows.count()
            one, many = COUNTED[output]
            what = f"{total} {one if total == 1 else many}"
            if out is not None:
                _write(rows, out, folder)
                click.echo(f"{what} written to {out}")
            else:
                # On a screen an id would only take room; who wants it asks for it, or for a file.
                _show(rows if job.measures else rows.drop("match_id"), limit, job.keys)
                click.echo(f"{what}" + (f", the first {limit} are shown" if total > limit else ""))
            rows.unpersist()


@dataclass(frozen=True)
class Files:
    """Files of one format, as a glob of Spark: that is the one way to read a single file as a stream."""

    glob: str
    format: str
    options: dict[str, str]


def files_to_read(path: Path) -> Files:
    """The file, or the files in the folder, with their format."""
    names = [file.name for file in sorted(path.iterdir()) if file.name[0] not in "._"] if path.is_dir() else [path.name]
    ends = sorted({end for end in FORMATS for name in names if name.endswith(end)})
    formats = {FORMATS[end][0] for end in ends}
    if len(formats) != 1:
        raise StreamDefinitionError(
            f"{path}: files of several formats ({', '.join(ends)})"
            if formats
            else f"{path}: no file of a known format",
            hint=f"known are {', '.join(FORMATS)}",
        )
    folder = path if path.is_dir() else path.parent
    wanted = "*{" + ",".join(ends) + "}" if path.is_dir() else "{" + _escaped(path.name) + "}"
    return Files(f"{_escaped(str(folder.absolute()))}/{wanted}", *FORMATS[ends[0]])


def _escaped(name: str) -> str:
    return re.sub(r"([][*?{},\\])", r"\\\1", name)


def _status(text: str) -> AbstractContextManager[Any]:
    console = _stderr()
    return console.status(text) if console.is_terminal else nullcontext()


@dataclass(frozen=True)
class MatchJob:
    """What ``asterism match`` is asked to do."""

    pattern: Pattern
    files: Files
    output: str
    stream: bool
    keys: Sequence[str]
    time: str | None
    order_by: Sequence[str]
    max_out_of_orderness: timedelta
    measures: Sequence[str]
    semantics: str
    checkpoint: Path | None
    files_per_batch: int | None

    def run(self, spark: SparkSession, work: Path) -> DataFrame:
        """The rows that were found; of a stream, all that came out before it ended."""
        from asterism.spark.keyed_stream import KeyedStream
        from asterism.spark.patterns import CEP

        events = with_event_time(self._read(spark), self.time)
        described = KeyedStream(
            events,
            key=self.keys,
            time=self.time,
            max_out_of_orderness=self.max_out_of_orderness,
            order_by=self.order_by,
        )
        found = CEP.pattern(described, self.pattern, semantics=Semantics(self.semantics))
        rows = found.select(*self.measures, output=self.output) if self.measures else getattr(found, self.output)
        if self.stream:
            rows = self._run_stream(spark, found, rows, work)
        # When a match was decided is the order in which a stream brings it.
        times = [name for name in ("match_time", "timeout_time") if name in rows.columns]
        return rows.orderBy(*times) if times else rows

    def _read(self, spark: SparkSession) -> DataFrame:
        files = self.files
        batch = _read_batch(spark, files)
        if not self.stream:
            return batch
        reader = spark.readStream.format(files.format).options(**files.options).schema(batch.schema)
        if self.files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", self.files_per_batch)
        return reader.load(files.glob)

    def _run_stream(self, spark: SparkSession, found: PatternStream, rows: DataFrame, work: Path) -> DataFrame:
        parts = work / "rows"
        parts.mkdir()

        def sink(df: DataFrame, batch_id: int) -> None:
            df.write.mode("overwrite").parquet(str(parts / str(batch_id)))

        select = {self.output: self.measures} if self.measures else None
        found.run({self.output: sink}, checkpoint=str(self.checkpoint or work / "checkpoint"), select=select)
        written = [str(part) for part in sorted(parts.iterdir())]
        # Going on from a checkpoint, there may have been nothing to do.
        return spark.read.schema(rows.schema).parquet(*written) if written else spark.createDataFrame([], rows.schema)


def _read_batch(spark: SparkSession, files: Files) -> DataFrame:
    return spark.read.format(files.format).options(**files.options).load(files.glob)


def with_event_time(df: DataFrame, column: str | None) -> DataFrame:
    """What inferred schemas may have, text, dates and smaller integers, becomes an event time of a keyed stream."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if column is None or column not in df.columns:
        return df
    kind = df.schema[column].dataType
    quoted = F.col("`" + column.replace("`", "``") + "`")
    if isinstance(kind, T.StringType | T.DateType):
        return df.withColumn(column, F.to_timestamp(quoted))
    if isinstance(kind, T.IntegerType):
        return df.withColumn(column, quoted.cast("long"))
    return df


# ---------------------------------------------------------------------- asterism validate


@main.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE..."
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    type=Column(),
    help="A column of the events and its Spark type, as price:double; repeat it for each that conditions read.",
)
@click.option(
    "--input",
    "source",
    type=click.Path(exists=True, path_type=Path),
    help="Take the columns from events: files as for `asterism match`, which are read by Spark.",
)
@click.option("--time", help="With --input: the event-time column, as for `asterism match`.")
@click.option(
    "--semantics",
    type=click.Choice([semantics.value for semantics in Semantics]),
    default=Semantics.DEFAULT.value,
    show_default=True,
    help="The library's own, which refuses what Flink ignores, or Flink's.",
)
def validate(
    files: Sequence[Path],
    columns: Sequence[tuple[str, Any]],
    source: Path | None,
    time: str | None,
    semantics: str,
) -> None:
    """Check files with patterns in the JSON graph format.

    Every problem is told with its line and column; the exit status is 1 if there is one. The SQL of conditions is checked
    too: its columns and types, if --column or --input says what the events have.

    \b
    asterism validate rules/*.json --column ip:string --column event:string
    """
    if columns and source is not None:
        raise click.UsageError("--column and --input both say what the events have: use one of them.")
    if time is not None and source is None:
        raise click.UsageError("--time goes with --input.")
    distinct(columns)
    with errors_explained():
        import pyarrow as pa

        from asterism.rules.validation import check, summary

        schema = _schema_of(source, time) if source is not None else pa.schema(columns) if columns else None
        wrong = False
        for file in files:
            checked = check(_beginning_of(file), schema, Semantics(semantics))
            for problem in checked.problems:
                click.echo(f"{file}:{problem}")
            if checked.more:
                click.echo(f"{file}: {checked.more} more problems")
            for warning in checked.warnings:
                click.echo(f"{file}:{replace(warning, message=f'warning: {warning.message}')}")
            if checked.pattern is not None:
                click.echo(f"{file}: ok, {summary(checked.pattern)}")
            wrong |= checked.pattern is None
    if wrong:
        sys.exit(1)


def _beginning_of(file: Path) -> bytes:
    """Enough to tell that it is too large."""
    from asterism.text.strict_json import MAX_BYTES

    try:
        with file.open("rb") as content:
            return content.read(MAX_BYTES + 1)
    except OSError as error:
        raise StreamDefinitionError(f"{file} cannot be read", error.strerror) from None


def _schema_of(source: Path, time: str | None) -> pa.Schema:
    """What the conditions of a pattern find if `asterism match` reads these files."""
    with local_spark() as spark:
        return with_event_time(_read_batch(spark, files_to_read(source)), time).limit(0).toArrow().schema


# ---------------------------------------------------------------------- asterism explain, asterism trace


@main.command()
@click.argument("pattern", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a drawing to this file, instead of the text."
)
@click.option(
    "--what",
    type=click.Choice(["stages", "automaton"]),
    default="stages",
    show_default=True,
    help="What the drawing shows.",
)
@click.option(
    "--semantics",
    type=click.Choice([semantics.value for semantics in Semantics]),
    default=Semantics.DEFAULT.value,
    show_default=True,
    help="Whose automaton.",
)
def explain(pattern: Path, svg: Path | None, what: Literal["stages", "automaton"], semantics: str) -> None:
    """Tell what a pattern looks for, and how.

    PATTERN is a file with a pattern in the JSON graph format.

    \b
    asterism explain brute_force.json
    asterism explain brute_force.json --svg brute_force.svg
    """
    with errors_explained():
        from asterism.patterns.pattern import Pattern

        wanted = Pattern.from_json(_beginning_of(pattern))
        if svg is None:
            click.echo(wanted.explain(Semantics(semantics)))
            return
        try:
            svg.write_text(wanted.to_svg(what, Semantics(semantics)) + "\n", encoding="utf-8")
        except OSError as error:
            raise StreamDefinitionError(f"{svg} cannot be written", error.strerror) from None
        click.echo(f"drawing written to {svg}")


@main.command()
@click.argument("pattern", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--input",
    "source",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="Events: files as for `asterism match`.",
)
@click.option("--key", "values", multiple=True, help="The key to follow: a value for each --key-column, in order.")
@click.option(
    "--key-column", "columns", multiple=True, help="Key column; can be repeated. Without one, all events have one key."
)
@click.option(
    "--time", help="Event-time column: a timestamp, text of one, or epoch milliseconds. Default: processing time."
)
@click.option(
    "--order-by",
    multiple=True,
    help="Order of events with equal times: a column, descending with a leading '-'; can be repeated.",
)
@click.option(
    "--max-out-of-orderness",
    type=Duration(),
    help="Events arrive in the order of the files, and what is later than this is late, as in a stream: 500ms, 5s, 10m,"
    " 2h, 1d. Default: events are sorted by time.",
)
@click.option(
    "--semantics",
    type=click.Choice([semantics.value for semantics in Semantics]),
    default=Semantics.DEFAULT.value,
    show_default=True,
    help="The library's own, or Flink's to the letter.",
)
@click.option("--no-drain", is_flag=True, help="Do not end the input after the last event.")
@click.option("--only-dropped", is_flag=True, help="Show only what was dropped, held back, late or a match.")
@click.option("--limit", type=click.IntRange(min=0), default=200, show_default=True, help="Lines about single steps.")
def trace(
    pattern: Path,
    source: Path,
    values: Sequence[str],
    columns: Sequence[str],
    semantics: str,
    no_drain: bool,
    only_dropped: bool,
    limit: int,
    **options: Any,
) -> None:
    """Tell, event by event, why a pattern matched or did not.

    PATTERN is a file with a pattern in the JSON graph format. For one key: which partial matches began, advanced and were
    dropped, and by what. Spark is not needed.

    \b
    asterism trace brute_force.json --input ssh.csv --key-column ip --key 10.0.0.1 --time ts
    """
    if len(values) != len(columns):
        raise click.UsageError(
            f"{len(columns)} --key-column and {len(values)} --key: there must be one value for each column."
        )
    with errors_explained():
        from asterism.cli.event_files import read_events
        from asterism.patterns.pattern import Pattern
        from asterism.trace.report import trace as trace_of

        wanted = Pattern.from_json(_beginning_of(pattern))
        with _status("tracing"):
            found = trace_of(
                wanted,
                read_events(source, options["time"]),
                key=dict(zip(columns, values, strict=True)),
                semantics=Semantics(semantics),
                drain=not no_drain,
                **options,
            )
        for what, line in found.lines(limit=limit, only_dropped=only_dropped):
            click.secho(line, **_TRACE_STYLES.get(what.value if what is not None else "", {}))


_TRACE_STYLES: dict[str, dict[str, Any]] = {
    "matched": {"fg": "green", "bold": True},
    "dropped": {"fg": "red"},
    "held": {"fg": "yellow"},
    "narrowed": {"fg": "yellow"},
    "late": {"fg": "yellow"},
    "waited": {"dim": True},
    "nothing": {"dim": True},
}


# ---------------------------------------------------------------------- rows for people and files


def _write(rows: DataFrame, out: Path, work: Path) -> None:
    """One file. What CSV cannot hold, lists of events, goes there as JSON."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    kind = WRITTEN[out.suffix]
    if kind == "csv":
        for field in rows.schema:
            if isinstance(field.dataType, T.ArrayType | T.StructType | T.MapType):
                rows = rows.withColumn(field.name, F.to_json("`" + field.name.replace("`", "``") + "`"))
    written = work / "written"
    rows.coalesce(1).write.format(kind).options(**WRITE_OPTIONS).save(str(written))
    [part] = written.glob("part-*")
    # A rename would keep Spark's permissions and fail across file systems.
    out.write_bytes(part.read_bytes())


def _show(rows: DataFrame, limit: int, keys: Sequence[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in rows.columns:
        table.add_column(Text(name), overflow="fold")
    # Rows of collect() would have times in the time zone of this process.
    for row in rows.limit(limit).toArrow().to_pylist():
        table.add_row(*(Text(shown(value, keys)) for value in row.values()))
    stdout().print(table)


def shown(value: Any, keys: Sequence[str] = ()) -> str:
    """A value in a cell of the table; of a list of events the first, the last and how many are between, without keys.

    >>> shown([{"ip": "10.0.0.1", "n": n, "user": None} for n in range(5)], keys=["ip"])
    'n=0\\n(3 more)\\nn=4'
    """
    if value is None:
        return ""
    if isinstance(value, list):
        events = [shown(event, keys) for event in value]
        return "\n".join(events if len(events) <= 3 else [events[0], f"({len(events) - 2} more)", events[-1]])
    if isinstance(value, dict):
        return " ".join(
            f"{name}={shown(part)}" for name, part in value.items() if part is not None and name not in keys
        )
    # The session's time zone is UTC; an offset behind each time would only take room.
    return str(value.replace(tzinfo=None) if isinstance(value, datetime) else value)
