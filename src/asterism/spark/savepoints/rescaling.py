"""Changes the checkpoint of a stopped query in place, and gives it another number of tasks and key groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from asterism.arguments import expect_number, expect_string
from asterism.errors import StateError
from asterism.operators.key_group import MAX_KEY_GROUPS
from asterism.spark.savepoints.creating import checked_operators, create_savepoint
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.restoring import write_checkpoint
from asterism.spark.session.checkpoints import CURRENT, current_checkpoint
from asterism.spark.session.leases import leased_here, runs_here
from asterism.spark.session.settings import expect_session

_PART = ".savepoint"
_WHOLE = ""
"""In place of the name of a folder: that of the checkpoint itself."""


def rescale_checkpoint(spark: SparkSession, checkpoint: str, *, tasks: int, key_groups: int | None = None) -> None:
    """Give the checkpoint of a stopped query another number of stateful tasks and key groups. The query continues with the same
    location.

    The new state and logs are in a folder of the checkpoint. A file that is written last says so: until then, the query continues
    with the former ones, also if this function was interrupted. The former ones remain.

    :param tasks: the number of stateful tasks
    :param key_groups: Default: four for each task, at least 8
    :raises StateError, CheckpointInUseError: as :func:`asterism.create_savepoint`

    Source: Flink, "Elastic Scaling", which rescales a job from its savepoint. docs/savepoints.md has an example.
    """
    expect_session(spark, "rescale_checkpoint")
    expect_string(StateError, checkpoint, "the checkpoint must be a location", '"/checkpoints/carts"')
    for name, number in (("tasks", tasks), ("key_groups", key_groups)):
        if number is not None or name == "tasks":
            expect_number(StateError, number, name, least=1, most=MAX_KEY_GROUPS)
    groups = key_groups or min(max(4 * tasks, 8), MAX_KEY_GROUPS)
    if groups < tasks:
        raise StateError(f"{tasks:,} tasks need as many key groups, not {groups:,}", hint=f"key_groups={4 * tasks}")
    with in_place(spark, checkpoint, "rescaled") as (savepoint, new):
        write_checkpoint(spark, savepoint, new, None, key_groups=groups, tasks=tasks)  # the sets of rules stay


@contextmanager
def in_place(spark: SparkSession, checkpoint: str, name: str) -> Iterator[tuple[StoredFolder, StoredFolder]]:
    """Replace the state and the logs of a stopped query: the block makes a checkpoint, in the second folder, from the savepoint
    in the first one. After it, the query continues with the new ones.

    :param name: of the new folder, with a number
    """
    whole = StoredFolder.of(spark, checkpoint)
    current = current_checkpoint(spark, whole.location)
    checked_operators(spark, current)  # before a lease is written there
    with leased_here(spark, current):
        if current_checkpoint(spark, whole.location) != current:
            raise StateError(
                f"another process has changed the checkpoint {checkpoint} meanwhile", hint="repeat the call"
            )
        former = json.loads(whole.read(CURRENT) or "{}").get("folder", _WHOLE)
        name = f"{name}-{int(former.rpartition('-')[2] or 0) + 1}"
        savepoint, new = whole / (name + _PART), whole / name
        for left in (savepoint, new):  # by a call that was interrupted
            left.delete()
        try:
            create_savepoint(spark, whole.location, savepoint.location)
            yield savepoint, new
        except BaseException:
            new.delete()
            raise
        finally:
            savepoint.delete()
        whole.replace(CURRENT, json.dumps({"folder": name, "former": former}))


def undo_change(spark: SparkSession, checkpoint: str) -> None:
    """Go back to the state before a stopped query's checkpoint was changed in place, by :func:`rescale_checkpoint`,
    :func:`change_checkpoint` or :func:`forget_keys`, if the query has not run since.

    :raises StateError: the checkpoint was not changed in place, its former files were removed, or the query has run since
    :raises CheckpointInUseError: another process runs the query
    """
    expect_session(spark, "undo_change")
    expect_string(StateError, checkpoint, "the checkpoint must be a location", '"/checkpoints/carts"')
    whole = StoredFolder.of(spark, checkpoint)
    document = json.loads(whole.read(CURRENT) or "{}")
    if "former" not in document:
        raise StateError(
            f"the checkpoint {checkpoint} has no former files", "It was not changed in place, or they were removed."
        )
    folder, former = whole / document["folder"], document["former"]
    with leased_here(spark, folder.location):
        if (folder / "commits").numbers() != [0] or runs_here(folder.location):
            raise StateError(
                f"the query with the checkpoint {checkpoint} has run since the change",
                hint="restore a savepoint from before the change to a new checkpoint",
            )
        if former == _WHOLE:
            whole.delete_file(CURRENT)
        else:
            whole.replace(CURRENT, json.dumps({"folder": former}))
    folder.delete()
