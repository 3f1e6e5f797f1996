"""Starts a query from a savepoint: the first start makes its checkpoint, later ones continue with it.

See docs/decisions/0125.
"""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from asterism.errors import StateError, StreamDefinitionError
from asterism.rules.sets.set_store import STORE
from asterism.savepoints.manifest import MANIFEST, no_savepoint
from asterism.spark.host.execution import check_checkpoint
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.restoring import RESTORING, SAVEPOINT, digest_of, write_checkpoint
from asterism.spark.session.checkpoints import RESTORED
from asterism.spark.session.leases import FOLDER, leased
from asterism.spark.session.settings import stateful_tasks
from asterism.streams.run_options import RunOptions


def begin_from_savepoint(
    spark: SparkSession, options: RunOptions, *, streaming: bool, store: str | None = None
) -> None:
    """Make the checkpoint of a query from its savepoint, unless that has been done.

    :param store: that of the rules of the query, if it is not in the checkpoint
    :raises StateError: the checkpoint exists and was not made from this savepoint, or there is no such savepoint
    :raises StreamDefinitionError: the query is not a stream
    """
    if options.from_savepoint is None:
        return
    if not streaming:
        options.check_of_table()
    if options.history is not None:
        raise StreamDefinitionError(
            "a query begins from a savepoint or with a history, not with both",
            hint="the savepoint contains what the former query has read",
        )
    check_checkpoint(options.checkpoint)
    folder, target = StoredFolder.of(spark, options.from_savepoint), StoredFolder.of(spark, str(options.checkpoint))
    if _is_made(target, folder):
        return
    sets = target / STORE if store is None else StoredFolder.of(spark, store)
    tasks = None if options.key_groups is None else stateful_tasks(spark, options.key_groups)
    with leased(spark, target.location):
        if not _is_made(target, folder):  # by another process
            write_checkpoint(spark, folder, target, sets, key_groups=options.key_groups, tasks=tasks)


def _is_made(target: StoredFolder, savepoint: StoredFolder) -> bool:
    """Whether the checkpoint was made from the savepoint. Later, the savepoint may be removed.

    :raises StateError: the checkpoint exists and was not made from it, or neither exists
    """
    text = savepoint.read(MANIFEST)
    restored = json.loads(target.read(RESTORED) or "{}")
    if not {*target.names()} - {FOLDER} or RESTORING in restored:
        if text is None:
            raise no_savepoint(savepoint.location)
        return False
    made_from = restored.get(SAVEPOINT, {})
    if text is not None and made_from.get("digest") == digest_of(text):
        return True
    if text is None and made_from.get("location") == savepoint.location:
        return True
    before = made_from.get("location")
    raise StateError(
        f"the checkpoint {target.location} was not made from the savepoint {savepoint.location}",
        "It is that of a query that began without a savepoint."
        if before is None
        else f"It was made from {before}{'' if before != savepoint.location else ', which was another one'}.",
        "a new checkpoint location; or leave out from_savepoint=, to continue with the checkpoint",
    )
