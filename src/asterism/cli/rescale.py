"""The command ``asterism rescale``."""

from __future__ import annotations

import click

from asterism.cli.common.local_spark import local_spark
from asterism.cli.common.terminal import errors_explained, status_line


@click.command(name="rescale")
@click.argument("checkpoint")
@click.option("--tasks", type=click.IntRange(1), required=True, help="The number of stateful tasks.")
@click.option("--key-groups", type=click.IntRange(1), help="The number of key groups. Default: four for each task.")
def rescale(checkpoint: str, tasks: int, key_groups: int | None) -> None:
    """Give the CHECKPOINT of a stopped query another number of tasks and key groups.

    The query continues with the same location. If the command is interrupted, the query continues as before; or repeat it.
    """
    from asterism.spark.savepoints.rescaling import rescale_checkpoint

    with errors_explained(), local_spark() as spark, status_line("rescaling the checkpoint"):
        rescale_checkpoint(spark, checkpoint, tasks=tasks, key_groups=key_groups)
