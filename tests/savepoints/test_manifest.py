"""What a manifest says about times, and folders that an interrupted call has left."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from asterism.columns.time import BEFORE_TIME
from asterism.errors import StateError
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.savepoints.key_groups import Summary
from asterism.savepoints.manifest import INCOMPLETE, MANIFEST, Manifest, QueryPosition
from asterism.spark.savepoints.creating import _is_interrupted, begin_writing, check_unused
from asterism.spark.session.leases import FOLDER
from tests.savepoints.kit import folder_of

INPUTS = {"orders": pa.schema([]), "payments": pa.schema([])}
DEFINITION = StateDefinition(OperatorKind.JOIN, pa.schema([]), {}, INPUTS, {})


def made(of_operator: int, of_inputs: list[int], of_spark: int = 0) -> Manifest:
    summary = Summary(DEFINITION, b"", None, of_operator, of_inputs, [0, 0], announced=True)
    commit = f'v1\n{{"nextBatchWatermarkMs":{of_spark}}}'
    position = QueryPosition("id", 3, 0, "v1", commit)
    return Manifest("0.2", "4.3", "2026-01-01T00:00:01+00:00", position, "EventTime", 2, 2, summary, {})


def watermark_of(manifest: Manifest) -> int:
    assert manifest.summary is not None
    return manifest.watermark_of(manifest.summary)


def test_an_input_that_is_ahead_does_not_count() -> None:
    assert watermark_of(made(5, [5, 90])) == 5


def test_the_watermark_of_spark_counts_if_the_operator_has_none() -> None:
    assert watermark_of(made(BEFORE_TIME, [BEFORE_TIME] * 2, of_spark=7)) == 7_000
    assert watermark_of(made(BEFORE_TIME, [BEFORE_TIME] * 2)) == BEFORE_TIME
    assert made(0, [0, 0]).written_at == 1_767_225_601_000_000


def test_a_call_is_repeated_that_ended_before_it_removed_its_mark(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.write(MANIFEST, "{}")
    assert not _is_interrupted(folder, "/checkpoints/carts")
    folder.write(INCOMPLETE, '{"checkpoint": "/checkpoints/carts"}')
    assert _is_interrupted(folder, "/checkpoints/carts")
    assert not _is_interrupted(folder, "/checkpoints/orders")
    with pytest.raises(StateError, match="is not empty"):
        check_unused(folder, None)
    folder.delete_file(MANIFEST)
    assert _is_interrupted(folder, "/checkpoints/orders")
    check_unused(folder, None)
    folder.write("rules.json", "{}")
    (folder / FOLDER).write("1", "")
    begin_writing(folder, None)
    assert folder.names() == [FOLDER, INCOMPLETE]
    folder.delete_file(INCOMPLETE)
    check_unused(folder, "/checkpoints/carts")  # a lease alone is nothing
