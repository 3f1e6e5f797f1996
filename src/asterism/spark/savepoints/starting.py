"""Makes the checkpoint of a query from a savepoint: by a command, or when it starts first; later starts continue with it.

See docs/decisions/0125 and 0148.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Unpack

from pyspark.sql import SparkSession

from asterism.arguments import expect, expect_number, expect_options, expect_string
from asterism.changes.plan import SavepointPlan
from asterism.errors import CheckpointMismatchError, StateError, StreamDefinitionError
from asterism.operators.evolution import CANNOT_CONTINUE
from asterism.operators.key_group import MAX_KEY_GROUPS, KeyGroupOperator
from asterism.rules.sets.set_store import STORE
from asterism.savepoints.manifest import MANIFEST, MAX_SIZE, Manifest, no_savepoint
from asterism.spark.host.evolution import LAST_OPERATOR
from asterism.spark.host.execution import check_checkpoint
from asterism.spark.savepoints.changing import ChangeOptions, changed_savepoint
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.restoring import (
    RESTORING,
    SAVEPOINT,
    check_new,
    digest_of,
    write_checkpoint,
)
from asterism.spark.session.checkpoints import RESTORED
from asterism.spark.session.leases import FOLDER, leased_here
from asterism.spark.session.settings import expect_session, stateful_tasks
from asterism.streams.run_options import AllowedChange, RunOptions

_log = logging.getLogger("asterism.savepoints")


def restore_savepoint(
    spark: SparkSession,
    savepoint: str,
    checkpoint: str,
    *,
    key_groups: int | None = None,
    tasks: int | None = None,
    store: str | None = None,
    definition: Any = None,
    **change: Unpack[ChangeOptions],
) -> SavepointPlan | None:
    """Make a checkpoint from a savepoint. The query that is started with it continues where the other one was stopped, with the
    same rows as if it had not been stopped.

    If the process ends before this returns, call it again: until it has returned once, no query starts with the checkpoint.

    :param savepoint: the folder that :func:`create_savepoint` has written
    :param checkpoint: a new location
    :param key_groups: the number of key groups of each operator. Default: that of the savepoint
    :param tasks: the number of stateful tasks, at most one for each key group. Default: that of the savepoint
    :param store: a new folder for the sets of rules, if the query has a ``store``. Default: they are in the checkpoint
    :param definition: another definition, with which the query continues, as for :func:`change_savepoint`. Default: that of the
        savepoint
    :param change: with a *definition*, the options ``renamed``, ``measures``, ``allow_dropped`` and ``operator_id`` of
        :func:`change_savepoint`
    :return: with a *definition*, what became of the state; otherwise None
    :raises StateError: there is no savepoint, or the checkpoint or the store already exists; with a *definition*, as
        :func:`change_savepoint`

    Source: Flink, "Resuming from Savepoints". docs/savepoints.md has a runnable example.
    """
    expect_session(spark, "restore_savepoint")
    for location, what in ((savepoint, "savepoint"), (checkpoint, "checkpoint"), (store, "store")):
        if location is not None or what != "store":
            expect_string(StateError, location, f"the {what} must be a location", '"/savepoints/carts"')
    for name, number in (("key_groups", key_groups), ("tasks", tasks)):
        expect(StateError, number, int | None, f"{name} must be an integer", f"{name}=32")
        if number is not None:
            expect_number(StateError, number, name, least=1, most=MAX_KEY_GROUPS)
    expect_options("restore_savepoint", change, ChangeOptions)
    if definition is None and change:
        raise StateError(f"{next(iter(change))} is for a restore with another definition", hint="definition=...")
    folder, target = StoredFolder.of(spark, savepoint), StoredFolder.of(spark, checkpoint)
    sets = target / STORE if store is None else StoredFolder.of(spark, store)
    if definition is None:
        write_checkpoint(spark, folder, target, sets, key_groups=key_groups, tasks=tasks)
        return None
    check_new(target)
    with changed_savepoint(spark, savepoint, target, definition, **change) as (changed, plan):
        write_checkpoint(spark, changed, target, sets, key_groups=key_groups, tasks=tasks, made_from=folder)
    return plan


def begin_from_savepoint(
    spark: SparkSession,
    options: RunOptions,
    *,
    streaming: bool,
    operator: KeyGroupOperator | None = None,
    store: str | None = None,
) -> None:
    """Make the checkpoint of a query from its savepoint, unless that has been done.

    :param operator: the last one of the query, if its state can be changed
    :param store: that of the rules of the query, if it is not in the checkpoint
    :raises StateError: the checkpoint exists and was not made from this savepoint, or there is no such savepoint; or a part of
        the state would be dropped, and that is not allowed
    :raises CheckpointMismatchError: the savepoint is of another definition, and that is not allowed
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
    if operator is None and options.change.allowed:
        raise StreamDefinitionError(
            "rules are not another definition: their state is that of the sets in the savepoint",
            hint="leave out allow_changed=",
        )
    check_checkpoint(options.checkpoint)
    folder, target = StoredFolder.of(spark, options.from_savepoint), StoredFolder.of(spark, str(options.checkpoint))
    if _is_made(target, folder):
        return
    sets = target / STORE if store is None else StoredFolder.of(spark, store)
    tasks = None if options.key_groups is None else stateful_tasks(spark, options.key_groups)
    with leased_here(spark, target.location):
        if _is_made(target, folder):  # by another process
            return
        if not _is_changed(folder, operator, options.change):
            write_checkpoint(spark, folder, target, sets, key_groups=options.key_groups, tasks=tasks)
            return
        change: ChangeOptions = {"renamed": options.change.renamed, "allow_dropped": options.change.dropped}
        with changed_savepoint(spark, folder.location, target, operator, operator_id=LAST_OPERATOR, **change) as (
            changed,
            plan,
        ):
            _log.warning("the state of %s continues with another definition:\n%s", folder.location, plan)
            write_checkpoint(spark, changed, target, sets, key_groups=options.key_groups, tasks=tasks, made_from=folder)


def _is_changed(savepoint: StoredFolder, operator: KeyGroupOperator | None, change: AllowedChange) -> bool:
    """Whether the savepoint is of another definition than that of the query.

    :raises CheckpointMismatchError: it is, and that is not allowed
    """
    if operator is None:
        return False
    text = savepoint.read(MANIFEST, MAX_SIZE)
    if text is None:
        raise no_savepoint(savepoint.location)
    summary = Manifest.from_json(text, savepoint.location).summary  # of the last operator
    if summary is None:
        return False
    try:
        operator.check_state(summary.definition)
    except CheckpointMismatchError as error:
        if change.allowed:
            return True
        raise CheckpointMismatchError(
            f"the savepoint {savepoint.location} is of another definition: "
            f"{error.message.removeprefix(CANNOT_CONTINUE)}",
            error.detail,
            "allow_changed=True, after `plan_savepoint` has shown what becomes of the state; or start the former query",
        ) from error
    return False


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
