"""The command ``asterism match``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.local_spark import (
    files_to_read,
    local_spark,
    read_batch,
    read_stream,
    temporary_folder,
    with_event_time,
)
from asterism.cli.common.results import in_order, limit_option, out_option, show_or_write
from asterism.cli.common.terminal import (
    MATCHING,
    errors_explained,
    input_option,
    max_out_of_orderness_option,
    order_by_option,
    semantics_option,
    spark_option,
    status_line,
    time_option,
    watermark_by_option,
)
from asterism.cli.rules.rule_files import RuleInFile, pattern_or_rule_argument
from asterism.cli.rules.sigma_files import pipeline_options
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from asterism.rules.definition.processor import PatternProcessor
    from asterism.sigma.pipelines import SigmaOptions
    from asterism.streams.keyed_stream import KeyedStream

COUNTED = {
    "matches": ("match", "matches"),
    "timed_out": ("timed-out partial match", "timed-out partial matches"),
    "late": ("late event", "late events"),
}


@click.command()
@pattern_or_rule_argument
@input_option(
    "source",
    "Events: .csv (with a header), .jsonl, .json or .ndjson (an object in each line), all of these also with .gz; .parquet; "
    "or a folder of files of one format.",
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
@spark_option
@pipeline_options
@click.option(
    "--stream",
    is_flag=True,
    help="Run on Spark as a streaming query over the existing files, then end the stream.",
)
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
    pattern: Path | RuleInFile,
    source: Path,
    output: str,
    out: Path | None,
    limit: int,
    spark: bool,
    stream: bool,
    sigma: SigmaOptions,
    **options: Any,
) -> None:
    """Match a pattern in files of events. Spark is used only with --spark or --stream.

    PATTERN is a file with a pattern in the JSON graph format, or FILE#ID, a rule in a file of rules. A rule has its own key and
    measures, and the same matches as in a query with rules. Its timestamp is ignored, and its function is not called. PATTERN can
    also be a file of Sigma rules, without #ID if only one has matches of its own, or an .eql file with a query in EQL.

    \b
    asterism match brute_force.json --input ssh.csv --key ip --time ts
    asterism match rules.yaml#brute-force --input ssh.csv --time ts
    asterism match sigma/whoami.yml --pipeline sysmon --input processes.parquet --time ts
    """
    if not stream and (options["checkpoint"] or options["files_per_batch"]):
        raise click.UsageError("--checkpoint and --files-per-batch require --stream.")
    with errors_explained():
        if isinstance(pattern, RuleInFile):
            wanted: Pattern | PatternProcessor = _as_wanted(
                pattern.processor(sigma, options["measures"]), output, options
            )
        else:
            wanted = Pattern.from_json(pattern.read_bytes())
        job = MatchJob(wanted, source, output, stream, **options)
        with status_line(MATCHING):
            rows = job.ordered(job.rows_on_spark() if spark or stream else job.rows())
        singular, plural = COUNTED[output]
        what = f"{rows.num_rows:,} {singular if rows.num_rows == 1 else plural}"
        # Match ids are not shown on a terminal; they can be selected, or written to a file.
        hidden = [] if job.measures and not job.rule else ["match_id", *job.unused_columns]
        shown_rows = rows.select([name for name in rows.column_names if name not in hidden])
        show_or_write(rows, shown_rows, what, out, limit, hidden=job.keys)


def _as_wanted(rule: PatternProcessor, output: str, options: dict[str, Any]) -> PatternProcessor:
    """The rule with the output of the command line."""
    if options["order_by"]:
        raise click.UsageError("--order-by is for patterns: a rule in SQL has an ORDER BY.")
    is_timed_out = output == "timed_out"
    if rule.sql is None:
        return replace(rule, function=None, timed_out=rule.timed_out or is_timed_out)
    if is_timed_out:
        raise click.UsageError("a rule in SQL has no timed-out partial matches.")
    return rule


@dataclass(frozen=True)
class MatchJob:
    """The arguments of ``asterism match``."""

    pattern: Pattern | PatternProcessor
    source: Path
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

    def ordered(self, rows: pa.Table) -> pa.Table:
        """The rows of an output, by key and time."""
        from asterism.matching.outputs import MATCH_TIME, TIMEOUT_TIME

        return in_order(rows, [*self.keys, MATCH_TIME, TIMEOUT_TIME, *([] if self.time is None else [self.time])])

    def rows(self) -> pa.Table:
        """The rows of the result, without Spark."""
        return self._results(self._described(self.source))[0]

    def rows_on_spark(self) -> pa.Table:
        """The rows of the result on Spark. A stream is run to its end."""
        with temporary_folder() as work, local_spark() as spark:
            files = files_to_read(self.source)
            batch = read_batch(spark, files)
            rows, _ = self._results(self._described(with_event_time(batch, self.time)))
            if not self.stream:
                return rows.toArrow()
            events = read_stream(spark, files, batch.schema, self.files_per_batch)
            _, run = self._results(self._described(with_event_time(events, self.time)))
            sink = PartsSink(work / "rows")
            run({self.output: sink}, checkpoint=str(self.checkpoint or work / "checkpoint"))
            return sink.read(spark, rows.schema).toArrow()

    def _described(self, events: Any) -> KeyedStream[Any]:
        from asterism.streams.keyed_stream import KeyedStream

        return KeyedStream(
            events,
            key=self.keys,
            time=self.time,
            max_out_of_orderness=self.max_out_of_orderness,
            watermark_by=self.watermark_by,
            order_by=self.order_by,
        )

    def _results(self, events: KeyedStream[Any]) -> tuple[Any, Callable[..., Any]]:
        """The rows of the output over a table, and the function that writes it. Of a stream there are no rows."""
        from asterism.cep import CEP

        if not isinstance(self.pattern, Pattern):
            from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory

            factory = GivenPatternProcessorDiscovererFactory((self.pattern,))
            rules = CEP.pattern_processors(events, factory, semantics=Semantics(self.semantics), on_limit="fail")
            rules.check(self.pattern)
            return None if _is_stream(events) else rules.output(self.output), rules.run
        stream = CEP.pattern(events, self.pattern, semantics=Semantics(self.semantics))
        rows: Any = None
        if not _is_stream(events):
            rows = stream.select(*self.measures, output=self.output) if self.measures else getattr(stream, self.output)
        return rows, partial(stream.run, select={self.output: self.measures} if self.measures else None)


def _is_stream(events: KeyedStream[Any]) -> bool:
    return getattr(events.df, "isStreaming", False)


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
