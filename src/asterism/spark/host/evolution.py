"""Checks, before a query starts, whether it can continue with the checkpoint of a former definition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from asterism.errors import StateError
from asterism.operators.key_group import KeyGroupOperator
from asterism.operators.state.group_header import other_query
from asterism.rules.matching.operator import DynamicCepOperator
from asterism.savepoints.offset_log import is_control, offsets_of_log
from asterism.spark.host.host import NO_TIME
from asterism.spark.host.partitioning import check_key_groups_of
from asterism.spark.session.checkpoints import local_folder

LAST_OPERATOR = 0
"""The number that Spark gives to the last operator of a query, from which it numbers those before it."""


def check_checkpoint_of(
    spark: SparkSession,
    checkpoint: str,
    offsets: Sequence[Mapping[str, Any]],
    operator: KeyGroupOperator,
    key_groups: int,
) -> None:
    """Check that a query whose last operator is *operator* can continue a checkpoint. Key groups check this again when they are
    called. For upstream operators, that is the only check. The *offsets* are those of :func:`control_offsets`.
    """
    if len(offsets) == 1:
        check_key_groups_of(offsets[0], key_groups)
    if offsets and operator.fingerprint.hex() not in {offset["definition"] for offset in offsets}:
        _check_state(spark, checkpoint, operator, None if len(offsets) == 1 else LAST_OPERATOR)


def _check_state(spark: SparkSession, checkpoint: str, operator: KeyGroupOperator, operator_id: int | None) -> None:
    """:raises StateError: the state is that of an operator with which *operator* is not compatible"""
    from asterism.spark.host.state_reader import read_state

    try:
        state = read_state(spark, checkpoint, operator_id=operator_id)
    except StateError:  # no micro-batch has completed
        return
    for definition in state.definitions:
        operator.check_state(definition)
        if isinstance(operator, DynamicCepOperator):
            newest = operator.source.retained()[-1:]
            operator.check_rules(
                definition,
                [*state.processors(), *(processor for newest_set in newest for processor in newest_set.processors)],
            )
    if not state.definitions and not state.is_empty:
        raise other_query()  # state of an earlier release, of which the definition is unknown


def control_offsets(spark: SparkSession, checkpoint: str) -> list[dict[str, Any]]:
    """The offsets of the control sources in the newest offset log of a checkpoint: one for each operator, that of the last
    operator last. There are none if there is no checkpoint, or if it cannot be read.
    """
    logs = _offset_logs(spark, checkpoint)
    if not logs:
        return []
    return [offset for offset in offsets_of_log(logs[max(logs)]) if is_control(offset)]


def time_mode_of(spark: SparkSession, checkpoint: str) -> str | None:
    """The time mode of the only operator of a checkpoint, which Spark does not allow to change; None: it is not known."""
    folder = local_folder(spark, checkpoint)
    if folder is not None and not (folder / "state").is_dir():
        return None  # to ask Spark takes a tenth of a second
    try:
        operators = spark.read.format("state-metadata").load(checkpoint).select("operatorProperties").collect()
    except PySparkException:  # no micro-batch has been planned
        return None
    modes = [json.loads(row.operatorProperties or "{}").get("timeMode") for row in operators]
    return None if len(modes) != 1 else NO_TIME if modes[0] == "NoTime" else modes[0]


def _offset_logs(spark: SparkSession, checkpoint: str) -> dict[int, str]:
    """The newest offset log, by its number; more than one, if Spark reads them."""
    folder = local_folder(spark, checkpoint)
    if folder is not None:
        numbers = [int(path.name) for path in (folder / "offsets").glob("*") if path.name.isdigit()]
        return {n: (folder / "offsets" / str(n)).read_text("utf-8") for n in numbers if n == max(numbers)}
    try:
        rows = (
            # Of a single path, Spark would look whether a sink has written it, and log that it is not there, with a stack trace.
            spark.read.text([f"{checkpoint}/offsets/[0-9]*"] * 2, wholetext=True)
            .select("value", "_metadata.file_name")
            .collect()
        )
    except PySparkException:  # there is no checkpoint yet
        return {}
    return {int(row.file_name): row.value for row in rows if row.file_name.isdigit()}
