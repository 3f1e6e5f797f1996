"""The command ``asterism match``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.local_spark import local_spark, temporary_folder
from asterism.cli.spark_files import Files, files_to_read, read_batch, read_stream, with_event_time
from asterism.cli.terminal import (
    Duration,
    errors_explained,
    order_by_option,
    pattern_argument,
    semantics_option,
    status_line,
    stdout,
    time_option,
)
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.text.printable import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from asterism.spark.patterns import PatternStream

COUNTED = {
    "matches": ("match", "matches"),
    "timed_out": ("timed-out partial match", "timed-out partial matches"),
    "late": ("late event", "late events"),
}
WRITE_OPTIONS = {"header": "true", "escape": '"'}  # quotes in CSV strings are doubled, as most programs expect
WRITTEN = {".csv": "csv", ".jsonl": "json", ".parquet": "parquet"}


def _out_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix not in WRITTEN:
        raise click.BadParameter(f"the name must end in {', '.join(WRITTEN)}", ctx, param)
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {value.absolute().parent}", ctx, param)
    return value


out_option = click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_out_file,
    help="Write the rows to this .csv, .jsonl or .parquet file instead of printing them.",
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="The maximum number of rows to show."
)


@click.command()
@pattern_argument
@click.option(
    "--input",
    "source",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="Events: .csv (with a header), .csv.gz, .jsonl, .jsonl.gz, .parquet, or a folder of files of one format.",
)
@click.option("--key", "keys", multiple=True, help="Key column; can be repeated. Without one, all events have one key.")
@time_option
@order_by_option
@click.option(
    "--max-out-of-orderness",
    type=Duration(),
    default="0s",
    show_default=True,
    help="With --stream: how far an event may lie behind the latest event time before it is late: 500ms, 5s, 10m, 2h, 1d.",
)
@click.option(
    "--select",
    "measures",
    multiple=True,
    help="A measure, such as 'COUNT(a.*) AS n'; can be repeated. Default: all events.",
)
@click.option(
    "--output",
    type=click.Choice(["matches", "timed_out", "late"]),
    default="matches",
    show_default=True,
    help="The output to show.",
)
@semantics_option("The semantics: those of the library, or exactly those of Flink.")
@click.option("--stream", is_flag=True, help="Run as a streaming query over the existing files, then end the stream.")
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --stream, the checkpoint from which the query continues. Default: a temporary folder.",
)
@click.option(
    "--files-per-batch",
    type=click.IntRange(min=1),
    help="With --stream, the number of files in a micro-batch. Default: all.",
)
@out_option
@limit_option
def match(pattern: Path, source: Path, output: str, out: Path | None, limit: int, stream: bool, **options: Any) -> None:
    """Match a pattern in files of events.

    PATTERN is a file with a pattern in the JSON graph format.

    \b
    asterism match brute_force.json --input ssh.csv --key ip --time ts
    """
    if not stream and (options["checkpoint"] or options["files_per_batch"]):
        raise click.UsageError("--checkpoint and --files-per-batch require --stream.")
    with errors_explained():
        job = MatchJob(Pattern.from_json(pattern.read_bytes()), files_to_read(source), output, stream, **options)
        with temporary_folder() as folder, local_spark() as spark:
            with status_line("matching (the first time on a machine, this compiles the kernel)"):
                rows = job.run(spark, folder).persist()
                total = rows.count()
            one, many = COUNTED[output]
            what = f"{total} {one if total == 1 else many}"
            # Match ids are not shown on a terminal; they can be selected, or written to a file.
            shown_rows = rows if job.measures else rows.drop("match_id")
            show_or_write(rows, shown_rows, what, out, folder, limit, hidden=job.keys, total=total)
            rows.unpersist()


@dataclass(frozen=True)
class MatchJob:
    """The arguments of ``asterism match``."""

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
        """The rows of the result; of a stream, all rows until its end."""
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
        # Sorted by the time at which a match was decided, as a stream returns them.
        times = [name for name in ("match_time", "timeout_time") if name in rows.columns]
        return rows.orderBy(*times) if times else rows

    def _read(self, spark: SparkSession) -> DataFrame:
        files = self.files
        batch = read_batch(spark, files)
        return read_stream(spark, files, batch.schema, self.files_per_batch) if self.stream else batch

    def _run_stream(self, spark: SparkSession, found: PatternStream, rows: DataFrame, work: Path) -> DataFrame:
        sink = PartsSink(work / "rows")
        select = {self.output: self.measures} if self.measures else None
        found.run({self.output: sink}, checkpoint=str(self.checkpoint or work / "checkpoint"), select=select)
        return sink.read(spark, rows.schema)


class PartsSink:
    """A sink that writes micro-batches into a folder, and reads them again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(str(self._folder / str(batch_id)))

    def read(self, spark: SparkSession, schema: StructType) -> DataFrame:
        written = [str(part) for part in sorted(self._folder.iterdir())]
        # A run that continues from a checkpoint may have no new data.
        return spark.read.schema(schema).parquet(*written) if written else spark.createDataFrame([], schema)


# ---------------------------------------------------------------------- rows for people and files


def show_or_write(
    rows: DataFrame,
    shown_rows: DataFrame,
    what: str,
    out: Path | None,
    work: Path,
    limit: int,
    *,
    total: int,
    hidden: Sequence[str] = (),
) -> None:
    """Write the *rows* to a file, or show the first of *shown_rows*; then say how many there are.

    :param what: the number of rows in words
    :param work: a folder for temporary files
    :param hidden: the columns of events that are not shown
    """
    if out is not None:
        _write(rows, out, work)
        click.echo(f"{what} written to {out}")
    else:
        _show(shown_rows, limit, hidden)
        click.echo(what + (f", the first {limit} are shown" if total > limit else ""))


def _write(rows: DataFrame, out: Path, work: Path) -> None:
    """Write one file. CSV does not support lists of events; they are written as JSON."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    kind = WRITTEN[out.suffix]
    if kind == "csv":
        for field in rows.schema:
            if isinstance(field.dataType, T.ArrayType | T.StructType | T.MapType):
                rows = rows.withColumn(field.name, F.to_json(quoted_name(field.name)))
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
    # collect() would convert times to the time zone of this process.
    for row in rows.limit(limit).toArrow().to_pylist():
        table.add_row(*(Text(shown(value, keys)) for value in row.values()))
    stdout().print(table)


def shown(value: Any, keys: Sequence[str] = ()) -> str:
    """A value as the string in a table cell. Of a list of events, only the first, the last and the number of others, without
    keys.

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
    # The session's time zone is UTC; the offset is omitted.
    return str(value.replace(tzinfo=None) if isinstance(value, datetime) else value)
