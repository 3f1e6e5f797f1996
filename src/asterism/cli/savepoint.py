"""The commands ``asterism savepoint``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.local_spark import local_spark
from asterism.cli.common.terminal import errors_explained, status_line
from asterism.cli.rules.rule_files import PatternFile, RuleInFile
from asterism.cli.savepoint_bootstrap import bootstrap
from asterism.cli.savepoint_changes import drop_partial_matches, forget, remove_former, undo
from asterism.cli.savepoint_plan import change, change_in_place, change_options, pattern_of, plan, show_plan
from asterism.text.printable import one_line

if TYPE_CHECKING:
    from asterism.savepoints.differences import ChangedValue, SavepointDifferences

_WIDTH = 120
"""Maximum length of a value."""


@click.group(name="savepoint")
def savepoint() -> None:
    """The state of a stopped query in a portable form: for other key groups, another place, another version of Spark."""


for command in (bootstrap, plan, change, change_in_place, forget, drop_partial_matches, remove_former, undo):
    savepoint.add_command(command)


@savepoint.command(name="create")
@click.argument("checkpoint")
@click.argument("target")
@click.option("--store", help="The store of the rules, if it is not in the checkpoint.")
def create(checkpoint: str, target: str, store: str | None) -> None:
    """Write the state in CHECKPOINT, and the positions of its sources, to the new folder TARGET.

    The query must not be running. The checkpoint does not change. CHECKPOINT may be the folder of a live engine: a query on Spark
    then begins with run(..., history=TARGET).
    """
    from asterism.live.snapshots import is_live_folder

    if "://" not in checkpoint and is_live_folder(checkpoint):
        from asterism.live.takeover import create_live_savepoint

        with errors_explained():
            _show_positions(create_live_savepoint(checkpoint, target, store=store))
        return
    from asterism.spark.savepoints.creating import create_savepoint

    with errors_explained(), local_spark() as spark, status_line("writing the savepoint"):
        create_savepoint(spark, checkpoint, target, store=store)


@savepoint.command(name="restore")
@click.argument("savepoint")
@click.argument("checkpoint")
@click.option("--key-groups", type=click.IntRange(1), help="The number of key groups. Default: that of the savepoint.")
@click.option("--tasks", type=click.IntRange(1), help="The number of stateful tasks. Default: that of the savepoint.")
@click.option("--store", help="A new folder for the sets of rules, if the query has a store.")
@click.option(
    "--definition",
    type=PatternFile(),
    help="Another pattern with which the query continues, as for `asterism savepoint change`.",
)
@click.option("--live", is_flag=True, help="CHECKPOINT becomes the folder of a live engine.")
@change_options
@click.option("--allow-dropped", is_flag=True, help="With --definition: drop what cannot be continued.")
@click.option("--json", "as_json", is_flag=True, help="With --definition: print the plan as JSON.")
def restore(
    savepoint: str,
    checkpoint: str,
    definition: Path | RuleInFile | None,
    as_json: bool,
    live: bool,
    store: str | None,
    **options: Any,
) -> None:
    """Make the new CHECKPOINT from SAVEPOINT. The query that is started with it continues where the other one was stopped.

    If the command is interrupted, repeat it.
    """
    from asterism.spark.savepoints.starting import restore_savepoint

    of_place = {name: options.pop(name) for name in ("key_groups", "tasks")}
    if live:
        from asterism.live.takeover import restore_live_savepoint

        if definition is not None or any(of_place.values()) or any(options.values()):
            raise click.UsageError("--live takes no option but --store.")
        with errors_explained():
            _show_positions(restore_live_savepoint(savepoint, checkpoint, store=store))
        return
    if definition is None and any(options.values()):
        raise click.UsageError(
            "--rename, --select, --operator-id and --allow-dropped are for a restore with --definition."
        )
    with errors_explained(), local_spark() as spark:
        change = {} if definition is None else {"definition": pattern_of(definition), **options}
        with status_line("restoring the savepoint"):
            made = restore_savepoint(spark, savepoint, checkpoint, store=store, **of_place, **change)
        if made is not None:
            show_plan(made, as_json)


@savepoint.command(name="show")
@click.argument("savepoint")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest without the definition of the state.")
def show(savepoint: str, as_json: bool) -> None:
    """Show what SAVEPOINT contains. Every program that reads Parquet can read its rows."""
    from asterism.files.file_systems import opened, read_text
    from asterism.savepoints.manifest import MANIFEST, MAX_SIZE, Manifest, no_savepoint

    with errors_explained():
        files, path = opened(savepoint.rstrip("/"))
        try:
            text = read_text(files, f"{path}/{MANIFEST}", MAX_SIZE)
        except FileNotFoundError:
            raise no_savepoint(savepoint) from None
        Manifest.from_json(text, savepoint)
    if not as_json:
        _show(text)
        return
    document = json.loads(text)
    if document["operator"] is not None:
        del document["operator"]["definition"]
    click.echo(json.dumps(document, ensure_ascii=False))


@savepoint.command(name="diff")
@click.argument("before")
@click.argument("after")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def diff(before: str, after: str, as_json: bool) -> None:
    """Show the differences between the savepoints BEFORE and AFTER: positions, watermarks, the definition, rules, and the keys
    whose state is new, removed or changed.
    """
    from asterism.spark.savepoints.comparing import diff_savepoints

    with errors_explained(), local_spark() as spark, status_line("comparing the savepoints"):
        differences = diff_savepoints(spark, before, after)
    if as_json:
        click.echo(json.dumps(differences.to_dict(), ensure_ascii=False))
    else:
        click.echo("\n".join(lines_of(differences)))


def lines_of(differences: SavepointDifferences) -> Iterator[str]:
    """The differences for a terminal."""
    if not differences:
        yield "no differences"
        return
    for difference in (*differences.query, *differences.sources):
        yield _line("", difference)
    for operator in differences.operators:
        if operator:
            yield f"operator {operator.operator_id}"
        for name, found in (
            ("", operator.definition),
            ("watermark of ", operator.watermarks),
            ("rule ", operator.rules),
        ):
            for difference in found:
                yield _line(f"  {name}", difference)
        for table in operator.tables:
            if table.added or table.removed or table.changed:
                yield (
                    f"  {table.table}: {table.before:,} before, {table.after:,} after; {table.added:,} added, "
                    f"{table.removed:,} removed, {table.changed:,} changed"
                )


def _line(prefix: str, difference: ChangedValue) -> str:
    before, after = ("-" if value is None else one_line(str(value), _WIDTH) for value in difference[1:])
    return f"{prefix}{one_line(difference.name, _WIDTH)}: {before} -> {after}"


def _show_positions(positions: Any) -> None:
    click.echo(f"the state has everything up to {json.dumps(positions, ensure_ascii=False)}")


def _show(text: str) -> None:
    document: dict[str, Any] = json.loads(text)
    operator, query = document["operator"], document["query"]
    kind = "no state" if operator is None else operator["kind"]
    versions = one_line(f"Asterism {document['asterism']}, Spark {document['spark']}", _WIDTH)
    click.echo(
        f"{kind} after micro-batch {query['batch_id']}, of {document['created']}: {document['key_groups']} key groups, "
        f"{document['tasks']} tasks; {versions}"
    )
    for name, count in document["counts"].items():
        click.echo(f"{name}: {count:,} rows")
