"""What Asterism itself keeps in a checkpoint: where it continues after it was rescaled, and from what it was restored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from asterism.errors import StateError
from asterism.spark.session.settings import is_local

RESTORED = "asterism_restored.json"
"""The file of a checkpoint that was made from a savepoint: ``batches``, or ``restoring`` as long as it is not complete."""
READING_HISTORY = "reading_history"
"""There in place of ``restoring``, in a checkpoint that begins with a history."""

SETS = "sets"
"""There, too: the store to which the sets of rules are copied from a savepoint."""


def restored_batches(spark: SparkSession, checkpoint: str) -> int:
    """How many micro-batches the sinks of a query have seen before the first one of its checkpoint; 0 unless the checkpoint was
    made from a savepoint.

    :raises StateError: the checkpoint is incomplete
    """
    restored = _own_file(spark, checkpoint, RESTORED)
    if restored is None:
        return 0
    if READING_HISTORY in restored:
        raise StateError(
            f"the checkpoint {checkpoint} is incomplete: its history was not read to its end",
            "The results of the history are not all in the sinks.",
            "start the query again, with the same history=",
        )
    if "restoring" in restored:
        raise StateError(
            f"the checkpoint {checkpoint} is incomplete: it was not restored to its end",
            f"Savepoint: {restored['restoring']}",
            "restore it again, with the same command",
        )
    return int(restored["batches"])


def begins_with_history(spark: SparkSession, checkpoint: str) -> bool:
    """Whether Spark finds that a checkpoint was made by a query with a history."""
    return "key_groups" in (_own_file(spark, checkpoint, RESTORED) or {})


CURRENT = "asterism_current.json"
"""The file of a checkpoint that was rescaled: ``folder``, the name of the folder in it that has the state and the logs."""


def current_checkpoint(spark: SparkSession, checkpoint: str) -> str:
    """The location of the state and the logs of a checkpoint: itself, unless it was rescaled."""
    current = _own_file(spark, checkpoint, CURRENT)
    return checkpoint if current is None else f"{checkpoint.rstrip('/')}/{current['folder']}"


def _own_file(spark: SparkSession, checkpoint: str, name: str) -> dict[str, Any] | None:
    """The JSON document in a file of Asterism in a checkpoint; None: there is none."""
    folder = local_folder(spark, checkpoint)
    document: dict[str, Any] | None
    try:
        if folder is not None:
            document = json.loads((folder / name).read_text("utf-8"))
        else:
            row = spark.read.text(f"{checkpoint}/{name}", wholetext=True).first()
            document = None if row is None else json.loads(row.value)
    except (FileNotFoundError, NotADirectoryError, PySparkException):
        return None
    return document


def local_folder(spark: SparkSession, checkpoint: str) -> Path | None:
    """The folder of a checkpoint in a local file system, which this process can read; None: only Spark can."""
    return None if is_remote() or not is_local(spark, checkpoint) else Path(checkpoint.removeprefix("file:"))
