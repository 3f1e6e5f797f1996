"""The commands ``asterism savepoint plan``, ``change`` and ``change-checkpoint``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.local_spark import local_spark
from asterism.cli.common.terminal import errors_explained, print_table, status_line
from asterism.cli.rules.rule_files import PatternFile, RuleInFile
from asterism.errors import StateError
from asterism.patterns.pattern import Pattern

if TYPE_CHECKING:
    from asterism.changes.plan import SavepointPlan


def _names(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    names = dict(value.partition("=")[::2] for value in values)
    if not all(former and new for former, new in names.items()):
        raise click.BadParameter("write it as former=new", ctx, param)
    return names


def _definition(command: Callable[..., Any]) -> Callable[..., Any]:
    command = change_options(command)
    command = click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")(command)
    return click.argument("definition", type=PatternFile())(command)


def change_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a change to another definition, but *--allow-dropped*."""
    options = (
        click.option(
            "--rename", "renamed", multiple=True, callback=_names, metavar="FORMER=NEW",
            help="A stage that has another name; can be repeated.",
        ),
        click.option(
            "--select", "measures", multiple=True,
            help="A measure that the query will have; can be repeated. Parts of the state that lack a column of it are dropped.",
        ),
        click.option(
            "--operator-id", type=click.IntRange(0),
            help="With several operators: Spark's number of the one with this definition; 0 is the last.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command(name="plan")
@click.argument("savepoint")
@_definition
def plan(savepoint: str, **options: Any) -> None:
    """Show the effect of another DEFINITION on the state in SAVEPOINT: which partial matches continue, and which are dropped, and
    why. Nothing is written.

    DEFINITION is a file with a pattern in the JSON graph format, or FILE#ID, a rule in a file of rules.
    """
    from asterism.spark.savepoints.changing import plan_savepoint

    _run("reading the savepoint", plan_savepoint, savepoint, **options)


@click.command(name="change")
@click.argument("savepoint")
@click.argument("target")
@_definition
@click.option("--allow-dropped", is_flag=True, help="Drop what cannot be continued.")
def change(savepoint: str, target: str, **options: Any) -> None:
    """Write the new savepoint TARGET from SAVEPOINT, for a query with another DEFINITION. If something would be dropped, nothing
    is written without --allow-dropped.

    DEFINITION is a file with a pattern in the JSON graph format, or FILE#ID, a rule in a file of rules.
    """
    from asterism.spark.savepoints.changing import change_savepoint

    _run("changing the savepoint", change_savepoint, savepoint, target, **options)


@click.command(name="change-checkpoint")
@click.argument("checkpoint")
@_definition
@click.option("--allow-dropped", is_flag=True, help="Drop what cannot be continued.")
def change_in_place(checkpoint: str, **options: Any) -> None:
    """Change CHECKPOINT, that of a stopped query, in place for another DEFINITION: the query continues with the same location. If
    the command is interrupted, the query continues as before; or repeat it. `asterism savepoint undo` goes back.

    DEFINITION is a file with a pattern in the JSON graph format, or FILE#ID, a rule in a file of rules.
    """
    from asterism.spark.savepoints.changing import change_checkpoint

    _run("changing the checkpoint", change_checkpoint, checkpoint, **options)


def _run(
    status: str,
    call: Callable[..., SavepointPlan],
    *places: str,
    definition: Path | RuleInFile,
    as_json: bool,
    **options: Any,
) -> None:
    """Plan or change what is at the *places*, and show what becomes of the state."""
    with errors_explained(), local_spark() as spark:
        with status_line(status):
            made = call(spark, *places, pattern_of(definition), **options)
        show_plan(made, as_json)


def pattern_of(definition: Path | RuleInFile) -> Pattern:
    if isinstance(definition, Path):
        return Pattern.from_json(definition.read_bytes())
    pattern = definition.processor().pattern
    if pattern is None:
        raise StateError(f"the rule {definition} is not a pattern", hint="plan with the stream, in Python")
    return pattern


def show_plan(made: SavepointPlan, as_json: bool) -> None:
    if as_json:
        parts = [{**part._asdict(), "count": count} for part, count in made.rows()]
        click.echo(json.dumps({"dropped": made.dropped, "parts": parts, "notes": list(made.notes)}, ensure_ascii=False))
        return
    if made.counts:
        rows = ((p.what, p.stage, p.waits_for, p.outcome, f"{n:,}", p.reason) for p, n in made.rows())
        columns = ["state", "stage", "waits for", "outcome", "count", "reason"]
        print_table(columns, rows, numbers=["count"], optional=["stage", "waits for", "reason"])
    else:
        click.echo("there is no state")
    for note in made.notes:
        click.echo(f"note: {note}")
