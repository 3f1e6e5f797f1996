"""The commands ``asterism savepoint`` that change what a savepoint or a checkpoint contains."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.local_spark import files_to_read, local_spark, read_batch
from asterism.cli.common.terminal import Duration, errors_explained, status_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from asterism.spark.savepoints.contents import SavepointChanges

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
operator_option = click.option(
    "--operator-id",
    type=click.IntRange(0),
    help="With several operators: Spark's number of one of them; 0 is the last.",
)


class Key(click.ParamType[Mapping[str, str]]):
    """The key columns and their values: user=alice, or user=alice,shop=3."""

    name = "column=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, str]:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        pairs = [part.partition("=") for part in value.split(",")]
        if not all(name and equals for name, equals, _ in pairs):
            self.fail(f"{value!r} is not a key: write column=value, as in user=alice", param, ctx)
        return {name: text for name, _, text in pairs}


@click.command(name="forget")
@click.argument("source")
@click.argument("target", required=False)
@click.option(
    "--key", "keys", multiple=True, type=Key(), help="A key, such as user=alice or user=alice,shop=3; can be repeated."
)
@click.option(
    "--keys",
    "file",
    type=click.Path(exists=True, path_type=Path),
    help="Keys in a file with key columns: .csv (with a header), .jsonl or .parquet.",
)
@click.option(
    "--remove-former", is_flag=True, help="Without TARGET: remove the former files, too. There is no way back then."
)
@operator_option
@json_option
def forget(
    source: str,
    target: str | None,
    keys: Sequence[Mapping[str, str]],
    file: Path | None,
    remove_former: bool,
    operator_id: int | None,
    as_json: bool,
) -> None:
    """Remove the state of some keys, such as those of a customer who must be forgotten.

    With TARGET, SOURCE is a savepoint, and TARGET the new one. Without, SOURCE is the checkpoint of a stopped query, which is
    changed in place: the query continues with the same location. If the command is interrupted, the query continues as before; or
    repeat it. The former files of the checkpoint remain until they are removed.

    With several operators, the keys are removed from all that have these key columns.

    \b
    asterism savepoint forget /checkpoints/carts --key user=alice
    asterism savepoint remove-former /checkpoints/carts
    """
    from asterism.spark.savepoints.forgetting import forget_keys, remove_former_state
    from asterism.spark.savepoints.writing import SavepointWriter

    if bool(keys) == (file is not None):
        raise click.UsageError("Name the keys with --key, or with --keys.")
    if remove_former and target is not None:
        raise click.UsageError("--remove-former is for a checkpoint, without TARGET.")
    with errors_explained(), local_spark() as spark:
        chosen = list(keys) if file is None else _keys_in(spark, file)
        with status_line("removing the keys"):
            if target is None:
                changes = forget_keys(spark, source, chosen, operator_id=operator_id)
                removed = remove_former_state(spark, source) if remove_former else []
            else:
                writer = SavepointWriter.from_existing_savepoint(spark, source)
                changes, removed = writer.remove_keys(chosen, operator_id=operator_id).write(target), []
    _show(changes, as_json, removed)
    if not as_json and changes.former_files and not remove_former:
        click.echo(f"asterism savepoint remove-former {source}   # removes them; then there is no way back")


def _keys_in(spark: SparkSession, file: Path) -> DataFrame:
    files = files_to_read(file)
    if files.format == "csv":  # a key such as 007 is a string until the type of its column is known
        return spark.read.option("header", "true").csv(str(file))
    return read_batch(spark, files)


@click.command(name="remove-former")
@click.argument("checkpoint")
def remove_former(checkpoint: str) -> None:
    """Remove the former files of a CHECKPOINT that was changed in place, by `asterism rescale` or `asterism savepoint forget`.

    There is no way back then. The query must not be running.
    """
    from asterism.spark.savepoints.forgetting import remove_former_state

    with errors_explained(), local_spark() as spark, status_line("removing the former files"):
        removed = remove_former_state(spark, checkpoint)
    for name in removed:
        click.echo(f"removed {name}")


@click.command(name="undo")
@click.argument("checkpoint")
def undo(checkpoint: str) -> None:
    """Go back to the state before CHECKPOINT was changed in place, by `asterism rescale` or `asterism savepoint forget`.

    Refused if the query has run since, or if the former files were removed.
    """
    from asterism.spark.savepoints.rescaling import undo_change

    with errors_explained(), local_spark() as spark, status_line("going back"):
        undo_change(spark, checkpoint)


@click.command(name="drop-partial-matches")
@click.argument("savepoint")
@click.argument("target")
@click.option("--stage", help="Only those whose last event is of this stage. Default: of any stage.")
@click.option(
    "--older-than",
    type=Duration(),
    help="Only those whose first event is so long before the watermark: 5s, 10m, 2h, 1d.",
)
@click.option("--max-per-key", type=click.IntRange(0), help="Only those beyond the latest ones of each key.")
@operator_option
@json_option
def drop_partial_matches(
    savepoint: str,
    target: str,
    stage: str | None,
    older_than: timedelta | None,
    max_per_key: int | None,
    operator_id: int | None,
    as_json: bool,
) -> None:
    """Write SAVEPOINT without some partial matches to the new folder TARGET. They do not time out either.

    \b
    asterism savepoint drop-partial-matches /savepoints/carts /savepoints/recent --stage cart --older-than 7d
    """
    from asterism.spark.savepoints.writing import SavepointWriter

    with errors_explained(), local_spark() as spark, status_line("dropping partial matches"):
        writer = SavepointWriter.from_existing_savepoint(spark, savepoint)
        limits: dict[str, Any] = {"stage": stage, "older_than": older_than, "max_per_key": max_per_key}
        writer.drop_partial_matches(**limits, operator_id=operator_id)
        changes = writer.write(target)
    _show(changes, as_json, [])


def _show(changes: SavepointChanges, as_json: bool, removed_files: Sequence[str]) -> None:
    if as_json:
        document = {
            **_document(changes),
            "operators": {number: _document(each) for number, each in changes.operators.items()},
            "former_files": list(changes.former_files),
            "removed_files": list(removed_files),
        }
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    if changes.operators:
        for number, each in changes.operators.items():
            _show_counts(each, f"operator {number}: ")
    else:
        _show_counts(changes, "")
    of_operators = {name for each in changes.operators.values() for name in each.mentions}
    for name, count in changes.mentions.items():
        if name not in of_operators:
            click.echo(f"still mentioned in {name}: {count:,} rows or files contain the value of a key")
    for name in changes.former_files:
        click.echo(f"{'removed' if name in removed_files else 'still contains what was removed'}: {name}")


def _document(changes: SavepointChanges) -> dict[str, Any]:
    counts = {"removed": changes.removed, "before": dict(changes.before), "after": dict(changes.after)}
    return {**counts, "mentions": dict(changes.mentions)}


def _show_counts(changes: SavepointChanges, operator: str) -> None:
    for name, count in changes.removed.items():
        click.echo(f"{operator}removed {name}: {count:,} of {changes.before[name]:,}")
    if not changes.removed:
        click.echo(f"{operator}nothing was removed")
    for name, count in changes.mentions.items() if operator else ():
        click.echo(f"{operator}still mentioned in {name}: {count:,} rows contain the value of a key")
