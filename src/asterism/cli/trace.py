"""The command ``asterism trace``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from asterism.cli.files import read_pattern_file
from asterism.cli.terminal import (
    Duration,
    errors_explained,
    order_by_option,
    pattern_argument,
    semantics_option,
    status_line,
    time_option,
)
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics


@click.command()
@pattern_argument
@click.option(
    "--input",
    "source",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="Events: files as for `asterism match`.",
)
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
@semantics_option("The semantics: those of the library, or exactly those of Flink.")
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
    """Show, event by event, why a pattern matched or did not match.

    PATTERN is a file with a pattern in the JSON graph format. The trace is of one key: which partial matches began, advanced
    and were dropped, and why. Spark is not required.

    \b
    asterism trace brute_force.json --input ssh.csv --key-column ip --key 10.0.0.1 --time ts
    """
    if len(values) != len(columns):
        raise click.UsageError(
            f"{len(columns)} --key-column and {len(values)} --key: one value is required for each column."
        )
    with errors_explained():
        from asterism.cli.event_files import read_events
        from asterism.trace.report import trace as trace_of

        wanted = Pattern.from_json(read_pattern_file(pattern))
        with status_line("tracing"):
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
