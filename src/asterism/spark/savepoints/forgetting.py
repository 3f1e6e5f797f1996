"""Removes all that belongs to some keys from the checkpoint of a stopped query, in place, and then the former files."""

from __future__ import annotations

import json
from dataclasses import replace

from pyspark.sql import SparkSession

from asterism.arguments import expect_string
from asterism.errors import StateError
from asterism.savepoints.manifest import SOURCES
from asterism.spark.savepoints.contents import SavepointChanges
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.rescaling import in_place
from asterism.spark.savepoints.restoring import write_checkpoint
from asterism.spark.savepoints.writing import Keys, SavepointWriter
from asterism.spark.session.checkpoints import CURRENT, current_checkpoint
from asterism.spark.session.history import FOLDER as HISTORY
from asterism.spark.session.leases import leased_here, runs_here
from asterism.spark.session.settings import expect_session

_OF_SPARK = (HISTORY, "commits", "metadata", "offsets", SOURCES, "state")
_OF_CHANGES = ("rescaled-", "forgotten-", "changed-")


def forget_keys(
    spark: SparkSession, checkpoint: str, keys: Keys, *, operator_id: int | None = None
) -> SavepointChanges:
    """Remove all that belongs to some keys from the checkpoint of a stopped query, such as that of a customer who must be
    forgotten. The query continues with the same location, and with the rows of a query that never had these keys.

    The new state and logs are in a folder of the checkpoint. A file that is written last says so: until then, the query continues
    with the former ones, also if this function was interrupted. The former files remain, and still contain the keys: the result
    names them, and :func:`remove_former_state` removes them.

    :param keys: for each key a mapping of key columns to values, or a DataFrame with key columns. With some of the key columns,
        all keys with these values are removed.
    :param operator_id: with several operators, Spark's number of one of them; 0 is the last one. Default: all that have these key
        columns
    :raises StateError: as :func:`create_savepoint`; or the query has no key, or no such key column
    :raises CheckpointInUseError: another process runs the query

    Source: Flink, "State Processor API". docs/savepoints.md has a runnable example.
    """
    expect_session(spark, "forget_keys")
    expect_string(StateError, checkpoint, "the checkpoint must be a location", '"/checkpoints/carts"')
    with in_place(spark, checkpoint, "forgotten") as (savepoint, new):
        without = StoredFolder.of(spark, f"{savepoint.location}.without")
        without.delete()
        try:
            writer = SavepointWriter.from_existing_savepoint(spark, savepoint.location)
            changes = writer.remove_keys(keys, operator_id=operator_id).write(without.location)
            write_checkpoint(spark, without, new, None, key_groups=None, tasks=None)  # the sets of rules stay
        finally:
            without.delete()
    return replace(changes, former_files=[name.location for name in _former(StoredFolder.of(spark, checkpoint))])


def remove_former_state(spark: SparkSession, checkpoint: str) -> list[str]:
    """Remove the former files of a checkpoint that was changed in place. After that, there is no way back.

    :param checkpoint: the checkpoint location of a query that is not running
    :return: the folders that were removed
    :raises StateError: the checkpoint was not changed in place, or the query runs
    :raises CheckpointInUseError: another process runs the query
    """
    expect_session(spark, "remove_former_state")
    expect_string(StateError, checkpoint, "the checkpoint must be a location", '"/checkpoints/carts"')
    whole = StoredFolder.of(spark, checkpoint)
    current = current_checkpoint(spark, whole.location)
    if whole.read(CURRENT) is None:
        raise StateError(f"the checkpoint {checkpoint} was not changed in place", hint="it has no former files")
    with leased_here(spark, current):
        if runs_here(current):
            raise StateError(f"the query with the checkpoint {checkpoint} runs", hint="stop it: query.stop()")
        former = _former(whole)
        whole.replace(CURRENT, json.dumps({"folder": json.loads(whole.read(CURRENT) or "{}")["folder"]}))
        for folder in former:
            folder.delete()
            parent, _, name = folder.path.rpartition("/")
            StoredFolder(whole.location, whole.files, parent).delete_file(name)
    return [folder.location for folder in former]


def _former(whole: StoredFolder) -> list[StoredFolder]:
    """What a checkpoint has beside its current folder, of Spark and of former changes."""
    text = whole.read(CURRENT)
    current = None if text is None else json.loads(text)["folder"]
    return [
        whole / name
        for name in whole.names()
        if name != current and (name in _OF_SPARK or name.startswith(_OF_CHANGES))
    ]
