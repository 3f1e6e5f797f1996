"""The command ``asterism match``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.local_spark import (
    Files,
    files_to_read,
    local_spark,
    read_batch,
    read_stream,
    temporary_folder,
    with_event_time,
)
from asterism.cli.common.terminal import (
    errors_explained,
    input_option,
    max_out_of_orderness_option,
    order_by_option,
    print_table,
    semantics_option,
    status_line,
    time_option,
    watermark_by_option,
)
from asterism.cli.rules.rule_files import RuleInFile, pattern_or_rule_argument
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.text.printable import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from asterism.rules.definition.processor import PatternProcessor
    from asterism.streams.keyed_stream import KeyedStream

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
@pattern_or_rule_argument
@input_option(
    "source", "Events: .csv (with a header), .csv.gz, .jsonl, .jsonl.gz, .parquet, or a folder of files of one format."
)
@click.option("--key", "keys", multiple=True, help="Key column; can be repeated. Without one, all events have one key.")
@time_option
@order_by_option
@max_out_of_orderness_option
@watermark_by_option
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
def match(
    pattern: Path | RuleInFile, source: Path, output: str, out: Path | None, limit: int, stream: bool, **options: Any
) -> None:
    """Match a pattern in files of events.

    PATTERN is a file with a pattern in the JSON graph format, or FILE#ID, a rule in a file of rules. A rule has its own key and
    measures, and the same matches as in a query with rules. Its timestamp is ignored, and its function is not called.

    \b
    asterism match brute_force.json --input ssh.csv --key ip --time ts
    asterism match rules.yaml#brute-force --input ssh.csv --time ts
    """
    if not stream and (options["checkpoint"] or options["files_per_batch"]):
        raise click.UsageError("--checkpoint and --files-per-batch require --stream.")
    with errors_explained():
        if isinstance(pattern, RuleInFile):
            wanted: Pattern | PatternProcessor = _as_wanted(pattern.processor(), output, options)
        else:
            wanted = Pattern.from_json(pattern.read_bytes())
        job = MatchJob(wanted, files_to_read(source), output, stream, **options)
        with temporary_folder() as folder, local_spark() as spark:
            with status_line("matching (the first time on a machine, this compiles the kernel)"):
                unordered = job.run(spark, folder).persist()
                total = unordered.count()
            rows = job.ordered(unordered)
            singular, plural = COUNTED[output]
            what = f"{total:,} {singular if total == 1 else plural}"
            # Match ids are not shown on a terminal; they can be selected, or written to a file.
            shown_rows = rows if job.measures and not job.rule else rows.drop("match_id", *job.unused_columns)
            show_or_write(rows, shown_rows, what, out, folder, limit, hidden=job.keys, total=total)
            unordered.unpersist()


def _as_wanted(rule: PatternProcessor, output: str, options: dict[str, Any]) -> PatternProcessor:
    """The rule with the output and the measures of the command line."""
    if options["order_by"]:
        raise click.UsageError("--order-by is for patterns: a rule in SQL has an ORDER BY.")
    measures, is_timed_out = tuple(options["measures"]), output == "timed_out"
    if rule.sql is None:
        return replace(rule, select=measures or rule.select, function=None, timed_out=rule.timed_out or is_timed_out)
    if measures:
        raise click.UsageError("--select is for patterns: a rule in SQL has MEASURES.")
    if is_timed_out:
        raise click.UsageError("a rule in SQL has no timed-out partial matches.")
    return rule


@dataclass(frozen=True)
class MatchJob:
    """The arguments of ``asterism match``."""

    pattern: Pattern | PatternProcessor
    files: Files
    output: str
    stream: bool
    keys: Sequence[str]
    time: str | None
    order_by: Sequence[str]
    max_out_of_orderness: timedelta
    watermark_by: Sequence[str]
    measures: Sequence[str]
    semantics: str
    checkpoint: Path | None
    files_per_batch: int | None

    @property
    def rule(self) -> PatternProcessor | None:
        return None if isinstance(self.pattern, Pattern) else self.pattern

    @property
    def unused_columns(self) -> list[str]:
        """The columns that are the same in all results of a rule."""
        rule = self.rule
        if rule is None or self.output == "late":
            return []
        has_measures, has_events = bool(rule.select), not rule.select
        if rule.sql is not None:
            from asterism.row_patterns.clause.clause import RowsPerMatch
            from asterism.row_patterns.clause.reading import read

            clause = read(rule.sql)
            has_measures, has_events = bool(clause.measures), clause.rows is not RowsPerMatch.ONE
        unused = {"measures": not has_measures, "events": not has_events, "labels": not rule.labels}
        unused["suppressed"] = rule.suppress is None and self.output == "matches"
        return ["processor_id", "processor_version", "result", *(name for name in unused if unused[name])]

    def ordered(self, rows: DataFrame) -> DataFrame:
        """The rows of an output, by key and time."""
        from asterism.matching.outputs import MATCH_TIME, TIMEOUT_TIME

        order = [name for name in (*self.keys, MATCH_TIME, TIMEOUT_TIME, self.time) if name in rows.columns]
        return rows.orderBy(*map(quoted_name, order)) if order else rows

    def run(self, spark: SparkSession, work: Path) -> DataFrame:
        """The rows of the result. A stream is run to its end."""
        from asterism.cep import CEP
        from asterism.streams.keyed_stream import KeyedStream

        events = read_batch(spark, self.files)
        if self.stream:
            events = read_stream(spark, self.files, events.schema, self.files_per_batch)
        described = KeyedStream(
            with_event_time(events, self.time),
            key=self.keys,
            time=self.time,
            max_out_of_orderness=self.max_out_of_orderness,
            watermark_by=self.watermark_by,
            order_by=self.order_by,
        )
        if isinstance(self.pattern, Pattern):
            stream = CEP.pattern(described, self.pattern, semantics=Semantics(self.semantics))
            rows = stream.select(*self.measures, output=self.output) if self.measures else getattr(stream, self.output)
            if self.stream:
                select = {self.output: self.measures} if self.measures else None
                rows = self._written(spark, partial(stream.run, select=select), rows.schema, work)
        else:
            rows = self._rule_rows(spark, described, self.pattern, work)
        # Sorted by the time at which a match was decided, as a stream returns them.
        times = [name for name in ("match_time", "timeout_time") if name in rows.columns]
        return rows.orderBy(*times) if times else rows

    def _rule_rows(self, spark: SparkSession, described: KeyedStream, rule: PatternProcessor, work: Path) -> DataFrame:
        from asterism.cep import CEP
        from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory

        factory = GivenPatternProcessorDiscovererFactory((rule,))
        stream = CEP.pattern_processors(described, factory, semantics=Semantics(self.semantics), on_limit="fail")
        stream.check(rule)
        if not self.stream:
            return stream.output(self.output)
        table = replace(described, df=with_event_time(read_batch(spark, self.files), self.time))
        schema = CEP.pattern_processors(table, factory).output(self.output).schema
        return self._written(spark, stream.run, schema, work)

    def _written(self, spark: SparkSession, run: Callable[..., Any], schema: StructType, work: Path) -> DataFrame:
        sink = PartsSink(work / "rows")
        run({self.output: sink}, checkpoint=str(self.checkpoint or work / "checkpoint"))
        return sink.read(spark, schema)


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


# ---------------------------------------------------------------------- rows for the terminal and files


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
    """Write the *rows* to a file, or show the first of *shown_rows*. Then print their number, *what*."""
    if out is not None:
        _write(rows, out, work)
        click.echo(f"{what} written to {out}")
    else:
        _show(shown_rows, limit, hidden)
        click.echo(what + (f", the first {limit:,} are shown" if total > limit else ""))


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
    # collect() would convert times to the time zone of this process.
    values = rows.limit(limit).toArrow().to_pylist(maps_as_pydicts="lossy")
    print_table(rows.columns, ([shown(value, keys) for value in row.values()] for row in values))


def shown(value: Any, keys: Sequence[str] = ()) -> str:
    """A value as the string in a table cell. A list of events is shown as its first event, the number of the others, and its last
    event, without key columns.

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
