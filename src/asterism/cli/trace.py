"""The command ``asterism trace``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.files import is_sql_file, only_clause, read_clauses, read_pattern_file
from asterism.cli.common.terminal import (
    Duration,
    errors_explained,
    input_option,
    order_by_option,
    semantics_option,
    status_line,
    time_option,
    udfs_file_option,
    watermark_by_option,
)
from asterism.cli.rules.rule_files import RuleInFile, key_of, pattern_or_rule_argument, with_key
from asterism.cli.rules.sigma_files import pipeline_options
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    from asterism.row_patterns.match_recognize import MatchRecognize
    from asterism.sigma.pipelines import SigmaOptions
    from asterism.trace.report import Trace
    from asterism.trace.row_patterns import RowPatternTrace


@click.command()
@pattern_or_rule_argument
@input_option("source", "Events: files as for `asterism match`.")
@click.option(
    "--key", "values", multiple=True, help="The key to trace: one value for each --key-column, in the same order."
)
@click.option(
    "--key-column", "columns", multiple=True, help="Key column; can be repeated. Without one, all events have one key."
)
@time_option
@order_by_option
@click.option(
    "--max-out-of-orderness",
    type=Duration(),
    help="Events arrive in the order of the files; as in a stream, those that lag by more than this are late: 500ms, 5s, 10m,"
    " 2h, 1d. Default: events are sorted by time.",
)
@watermark_by_option
@semantics_option("The semantics: those of the library, or exactly those of Flink.")
@udfs_file_option
@pipeline_options
@click.option("--no-drain", is_flag=True, help="Do not end the input after the last event.")
@click.option(
    "--only-dropped",
    is_flag=True,
    help="Show only matches, late events, and partial matches that were dropped or held back.",
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=200, show_default=True, help="The maximum number of steps to show."
)
def trace(
    pattern: Path | RuleInFile,
    source: Path,
    values: Sequence[str],
    columns: Sequence[str],
    only_dropped: bool,
    limit: int,
    sigma: SigmaOptions,
    **options: Any,
) -> None:
    """Show, event by event, why a pattern matched or did not match.

    PATTERN is a file with a pattern in the JSON graph format. The trace is of one key: which partial matches began, advanced
    and were dropped, and why. Spark is not required.

    PATTERN can also be a .sql file with a MATCH_RECOGNIZE clause, alone or in a statement. The trace is of one partition: for
    each row whether a match begins at it, and why not. ORDER BY says which rows follow each other; --time is only needed to read
    strings as timestamps.

    PATTERN can also be FILE#ID, a rule in a file of rules, a file of Sigma rules, or an .eql file with a query in EQL. The key is
    that of the rule, so that only --key is required.

    \b
    asterism trace brute_force.json --input ssh.csv --key-column ip --key 10.0.0.1 --time ts
    asterism trace falls.sql --input prices.parquet --key-column symbol --key IBM
    asterism trace rules.yaml#brute-force --input ssh.csv --key 10.0.0.1 --time ts
    """
    with errors_explained():
        from asterism.columns.event_files import read_events
        from asterism.rules.binding.clauses import traced_clause_of
        from asterism.rules.definition.source_words import PLAIN
        from asterism.trace.report import trace as trace_of
        from asterism.trace.row_patterns import trace_rows

        wanted: Pattern | MatchRecognize
        words, key_of_rule = PLAIN, dict[str, str]()
        is_rule = isinstance(pattern, RuleInFile)
        if isinstance(pattern, RuleInFile):
            rule, words = pattern.with_words(sigma)
            key_of_rule = {} if columns else key_of(rule)
            columns = columns or list(key_of_rule)
            wanted = traced_clause_of(rule, options["time"]) if rule.pattern is None else rule.pattern
        elif is_sql_file(pattern):
            wanted = only_clause(read_clauses(pattern, options["semantics"]), pattern)
        else:
            wanted = Pattern.from_json(read_pattern_file(pattern))
        if len(values) != len(columns):
            raise click.UsageError(
                f"{len(columns)} --key-column and {len(values)} --key: one value is required for each column."
                + (f" The key of the rule is {', '.join(columns)}." if is_rule and columns else "")
            )
        for name in ("order_by", "max_out_of_orderness", "watermark_by", "no_drain"):
            if options[name] and not isinstance(wanted, Pattern):
                option = "--" + name.replace("_", "-")
                raise click.UsageError(f"{option} is for patterns in JSON: a clause is traced as over a table.")
        key = dict(zip(columns, values, strict=True))
        rows = with_key(read_events(source, options["time"]), key_of_rule)
        report: Trace | RowPatternTrace
        with status_line("tracing"):
            if isinstance(wanted, Pattern):
                report = trace_of(
                    wanted,
                    rows,
                    key=key,
                    time=options["time"],
                    semantics=Semantics(options["semantics"]),
                    order_by=options["order_by"],
                    max_out_of_orderness=options["max_out_of_orderness"],
                    watermark_by=options["watermark_by"],
                    drain=not options["no_drain"],
                    udfs=options["udfs"],
                )
            else:
                report = trace_rows(wanted, rows, key=key, explained=limit, udfs=options["udfs"], words=words.variables)
        for what, line in report.lines(limit=limit, only_dropped=only_dropped):
            click.secho(words.line(line), **_STYLES.get(what.value if what is not None else "", {}))


_STYLES: dict[str, dict[str, Any]] = {
    "matched": {"fg": "green", "bold": True},
    "timed out": {"fg": "yellow", "bold": True},
    "skipped after a match": {"dim": True},
    "dropped": {"fg": "red"},
    "held": {"fg": "yellow"},
    "discarded": {"fg": "yellow"},
    "narrowed": {"fg": "yellow"},
    "late": {"fg": "yellow"},
    "waited": {"dim": True},
    "nothing": {"dim": True},
}
