"""The command ``asterism validate``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.files import dialect_for, is_sql_file, read_pattern_file
from asterism.cli.common.local_spark import files_to_read, local_spark, read_batch, with_event_time
from asterism.cli.common.terminal import column_option, errors_explained, input_option, semantics_option
from asterism.cli.rules.commands import all_good
from asterism.cli.rules.rule_files import PatternFile, RuleInFile
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    import pyarrow as pa


@click.command()
@click.argument("files", nargs=-1, required=True, type=PatternFile(), metavar="FILE...")
@column_option
@input_option(
    "source",
    "Take the columns from these events: files as for `asterism match`. Spark is required.",
    required=False,
)
@click.option("--time", help="With --input: the event-time column, as for `asterism match`.")
@semantics_option("The semantics: those of the library, which reject what Flink ignores, or those of Flink.")
def validate(
    files: Sequence[Path | RuleInFile],
    columns: Sequence[tuple[str, Any]],
    source: Path | None,
    time: str | None,
    semantics: str,
) -> None:
    """Validate files with patterns in the JSON graph format, and .sql files with MATCH_RECOGNIZE clauses. FILE#ID is a rule in a
    file of rules.

    Every problem is reported with its line and column; the exit status is 1 if there is one. The SQL of conditions is
    checked, too; its columns and types are checked if --column or --input is given.

    \b
    asterism validate rules/*.json --column ip:string --column event:string
    """
    if columns and source is not None:
        raise click.UsageError("--column and --input cannot be combined: both define the columns of the events.")
    if time is not None and source is None:
        raise click.UsageError("--time requires --input.")
    with errors_explained():
        import pyarrow as pa

        from asterism.rules.checking.validation import check, summary

        schema = _schema_of(source, time) if source is not None else pa.schema(columns) if columns else None
        wrong = False
        for file in files:
            if isinstance(file, RuleInFile):
                wrong |= not all_good([file.read()], schema, Semantics(semantics))
                continue
            if is_sql_file(file):
                wrong |= not _clauses_are_valid(file, schema, semantics)
                continue
            checked = check(read_pattern_file(file), schema, Semantics(semantics))
            for problem in checked.problems:
                click.echo(f"{file}:{problem}")
            if checked.more:
                click.echo(f"{file}: {checked.more:,} more problems")
            for warning in checked.warnings:
                click.echo(f"{file}:{replace(warning, message=f'warning: {warning.message}')}")
            if checked.pattern is not None:
                click.echo(f"{file}: ok, {summary(checked.pattern)}")
            wrong |= checked.pattern is None
    if wrong:
        sys.exit(1)


def _clauses_are_valid(file: Path, schema: pa.Schema | None, semantics: str) -> bool:
    from asterism.rules.checking.clause_validation import check_text

    summaries, problems = check_text(read_pattern_file(file), schema, dialect_for(semantics))
    for problem in problems:
        click.echo(f"{file}:{problem}")
    for summary in summaries:
        click.echo(f"{file}: ok, {summary}")
    return not problems


def _schema_of(source: Path, time: str | None) -> pa.Schema:
    """The schema of the events if `asterism match` reads these files."""
    with local_spark() as spark:
        return with_event_time(read_batch(spark, files_to_read(source)), time).limit(0).toArrow().schema
