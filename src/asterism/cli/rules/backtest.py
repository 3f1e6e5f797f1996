"""The command ``asterism rules backtest``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.local_spark import files_to_read, local_spark, read_batch, with_event_time
from asterism.cli.common.terminal import (
    MATCHING,
    distinct,
    errors_explained,
    input_option,
    semantics_option,
    spark_option,
    status_line,
    table_option,
    time_option,
    udfs_file_option,
)
from asterism.errors import StreamDefinitionError
from asterism.patterns.semantics import Semantics
from asterism.text.printable import one_line
from asterism.text.progress import showing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from asterism.rules.checking.backtest import BacktestReport
    from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory

_MAX_NAMES = 20
"""The maximum number of rules that a message names."""


lookup_option = click.option(
    "--lookup",
    "lookups",
    nargs=3,
    multiple=True,
    metavar="NAME SOURCE KEY",
    callback=distinct,
    help="A lookup: its name; a file, a folder or URL#TABLE; and its key column, or COLUMN=EXPRESSION with the SQL expression"
    " over an event that gives the key; can be repeated.",
)


@click.command()
@click.argument("source")
@input_option("inputs", "Events: files as for `asterism match`; can be repeated.", multiple=True)
@click.option("--key", "keys", multiple=True, help="Key column of the stream; can be repeated.")
@time_option
@lookup_option
@click.option("--against", help="The rules to compare with: another SOURCE, or the URL of a web server.")
@table_option
@udfs_file_option
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    help="A condition on the result of a rule, such as 'matches > 1000' or 'removed > 0'; can be repeated.",
)
@click.option(
    "--examples",
    type=click.IntRange(min=0, max=1000),
    default=3,
    show_default=True,
    help="The maximum number of matches to show of each rule: of those added, and of those removed.",
)
@click.option(
    "--label",
    help="A column, BOOLEAN or a number, of the events that the rules are to find: shows precision and recall.",
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=200, show_default=True, help="The maximum number of rules to show."
)
@semantics_option("The semantics: those of the library, or exactly those of Flink.")
@spark_option
def backtest(
    source: str, against: str | None, table: str, conditions: Sequence[str], limit: int, **options: Any
) -> None:
    """Run rules over files of events, and compare what they find with what other rules find. Spark is not required.

    A rule that fails is disabled, and the others continue. Timestamps of rules are ignored. The exit status is 1 if a rule of
    SOURCE is refused, or if the condition of a --fail-if is true for a rule.

    The columns in conditions are id, version, refused, matches, keys, matches_per_day, most_in_a_day, timed_out, errors and
    error; with --against also added, removed, kept, old_version, old_refused, old_matches, old_keys,
    old_matches_per_day, old_most_in_a_day, old_timed_out and old_errors. With --label, there are also true_matches, found,
    precision and recall, and with --against those with old_.

    \b
    asterism rules backtest rules.yaml --input events.parquet --time ts --against sqlite:///rules.db \\
      --fail-if "removed > 0" --fail-if "matches > 2 * old_matches" --lookup limits limits.csv customer=user
    """
    with errors_explained():
        from asterism.discovery.sources.sources import factory_of
        from asterism.rules.checking.backtest import check_where

        for condition in conditions:
            check_where(condition, compared=against is not None, labelled=options["label"] is not None)
        rules = factory_of(source, table)
        others = None if against is None else factory_of(against, table)
        report = _report(rules, others, **options)
        click.echo(report.text(limit=limit) if report.rules else "no rules")
        failures = [(condition, report.where(condition)) for condition in conditions]
        failures.append(("refused", list(report.refused)))
        failed = [(what, ids) for what, ids in failures if ids]
        if failed:
            click.echo()
        for what, ids in failed:
            more = f" and {len(ids) - _MAX_NAMES:,} more" if len(ids) > _MAX_NAMES else ""
            click.echo(f"failed: {one_line(what, 200)}: {', '.join(one_line(id, 60) for id in ids[:_MAX_NAMES])}{more}")
    if failed:
        sys.exit(1)


def _report(
    rules: PatternProcessorDiscovererFactory,
    others: PatternProcessorDiscovererFactory | None,
    *,
    inputs: Sequence[Path],
    keys: Sequence[str],
    time: str | None,
    lookups: Sequence[tuple[str, str, str]],
    semantics: str,
    spark: bool,
    **more: Any,
) -> BacktestReport:
    """:param more: other options of :meth:`asterism.CEP.backtest`"""
    from asterism.cep import CEP
    from asterism.rules.publishing.lookup_watch import lookups_of
    from asterism.streams.keyed_stream import KeyedStream

    with local_spark() if spark else nullcontext() as session, status_line("reading the events") as show:
        events = history_table(inputs, time) if session is None else history_frame(session, inputs, time)
        show(MATCHING)
        with showing(lambda progress: show(f"matching: {progress}")):
            return CEP.backtest(
                KeyedStream(events, key=keys, time=time),
                rules,
                others,
                lookups=lookups_of(lookups),
                semantics=Semantics(semantics),
                **more,
            )


def history_table(paths: Sequence[Path], time: str | None) -> pa.Table:
    """The events of several files or folders, without Spark.

    :raises StreamDefinitionError: they cannot be read, or a column has several types
    """
    import pyarrow as pa

    from asterism.columns.event_files import read_events

    tables = [read_events(path, time) for path in paths]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise StreamDefinitionError("the files of events do not fit together", str(error)) from None


def history_frame(spark: SparkSession, paths: Sequence[Path], time: str | None) -> DataFrame:
    """The events of several files or folders."""
    from pyspark.sql import DataFrame

    both = partial(DataFrame.unionByName, allowMissingColumns=True)
    frames = [read_batch(spark, files) for files in map(files_to_read, paths)]
    return with_event_time(reduce(both, frames), time)
