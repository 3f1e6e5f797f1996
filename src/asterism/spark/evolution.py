"""Finds out, before a query starts, whether it can continue with the checkpoint of a former definition."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from asterism.operators.evolution import check_evolution
from asterism.operators.key_group import KeyGroupOperator
from asterism.rules.file_systems import is_path


def former_definition(spark: SparkSession, checkpoint: str, operator: KeyGroupOperator) -> str | None:
    """The definition of the checkpoint, if it is that of a changed query whose state *operator* can continue. None: it has the
    definition of *operator*, or there is none, or it cannot be read; the control source then decides.

    :raises StateError: it cannot be continued
    """
    found = _last_definitions(spark, checkpoint)
    if len(found) != 1 or found[0] == operator.fingerprint.hex():  # a query with several operators cannot change
        return None
    from asterism.spark.state_reader import read_state

    former = read_state(spark, checkpoint).definitions
    for definition in former:
        check_evolution(definition, operator.definition)
    return found[0] if former else None


def _last_definitions(spark: SparkSession, checkpoint: str) -> list[str]:
    """The definitions of the operators in the newest offset log of a checkpoint."""
    logs = _offset_logs(spark, checkpoint)
    if not logs:
        return []
    found: list[Any] = []
    for line in logs[max(logs)].splitlines()[2:]:
        with suppress(ValueError):
            found.append(json.loads(line))
    return [offset["definition"] for offset in found if isinstance(offset, dict) and "definition" in offset]


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
