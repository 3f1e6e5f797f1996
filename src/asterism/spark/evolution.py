"""Finds out, before a query starts, whether it can continue with the checkpoint of a former definition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from asterism.errors import StateError
from asterism.operators.evolution import check_evolution
from asterism.operators.group_header import other_query
from asterism.operators.key_group import KeyGroupOperator
from asterism.rules.file_systems import is_path
from asterism.spark.partitioning import check_key_groups_of


def former_definition(
    spark: SparkSession,
    checkpoint: str,
    offsets: Sequence[dict[str, Any]],
    operator: KeyGroupOperator | None,
    key_groups: int,
) -> str | None:
    """The definition of the checkpoint, if it is that of a changed query whose state *operator* can continue. None: it has the
    definition of *operator*, or there is none, or it cannot be read; the control source then decides.

    :param offsets: those of :func:`control_offsets`
    :raises StateError: it cannot be continued
    """
    if len(offsets) != 1:  # a query with several operators cannot change
        return None
    check_key_groups_of(offsets[0], key_groups)
    former: str = offsets[0]["definition"]
    if operator is None or former == operator.fingerprint.hex():
        return None
    from asterism.spark.state_reader import read_state

    try:
        state = read_state(spark, checkpoint)
    except StateError:  # no micro-batch has completed
        return None
    for definition in state.definitions:
        check_evolution(definition, operator.definition)
    if state.definitions or state.is_empty:
        return former
    raise other_query()  # state of an earlier release, of which the definition is unknown


def control_offsets(spark: SparkSession, checkpoint: str) -> list[dict[str, Any]]:
    """The offsets of the control sources in the newest offset log of a checkpoint, one for each operator. There are none if there
    is no checkpoint, or if it cannot be read.
    """
    logs = _offset_logs(spark, checkpoint)
    if not logs:
        return []
    found: list[Any] = []
    for line in logs[max(logs)].splitlines()[2:]:
        with suppress(ValueError):
            found.append(json.loads(line))
    return [offset for offset in found if isinstance(offset, dict) and "definition" in offset and "keyGroups" in offset]


def _offset_logs(spark: SparkSession, checkpoint: str) -> dict[int, str]:
    """The newest offset log, by its number; more than one, if Spark reads them."""
    if is_path(checkpoint) and not is_remote():
        numbers = [int(path.name) for path in Path(checkpoint, "offsets").glob("*") if path.name.isdigit()]
        return {n: Path(checkpoint, "offsets", str(n)).read_text("utf-8") for n in numbers if n == max(numbers)}
    try:
        rows = (
            spark.read.text(f"{checkpoint}/offsets/[0-9]*", wholetext=True)
            .select("value", "_metadata.file_name")
            .collect()
        )
    except PySparkException:  # there is no checkpoint yet
        return {}
    return {int(row.file_name): row.value for row in rows if row.file_name.isdigit()}
