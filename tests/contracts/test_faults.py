"""Operators on Spark, as a user runs them: killed, spread in other ways, with a clock, with bounded inputs, with mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import tests.contracts.ledger
from asterism.keyed_state import BroadcastValueState, ListState, ValueState
from asterism.spark.connect import connect
from asterism.spark.streams import BroadcastStream, KeyedStream
from asterism.stream_operator import BroadcastInput, Input, InputSelection, Output, StreamOperator
from tests.contracts.ledger import MOVES, START, Ledger, data, expected, in_order, ledger, source, write

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(tests.contracts.ledger)
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Collect:
    """A sink that keeps the rows of every micro-batch; one that comes again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[dict[str, Any]]] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [row.asDict() for row in df.collect()]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches.values() for row in batch]


def ledger_sinks() -> dict[str, Collect]:
    return {name: Collect() for name in Ledger.declared(Output)}


def utc(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Spark gives out times without a zone, in that of this process."""
    return in_order(
        {name: v.astimezone(UTC) if isinstance(v, datetime) else v for name, v in row.items()} for row in rows
    )


def test_kill_minus_nine_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """In the middle of a call that has changed keyed state, and when a sink has written and Spark has not committed."""
    moves, fees = data()
    write(moves, MOVES, tmp_path / "moves", 6)
    write(fees, tests.contracts.ledger.FEES, tmp_path / "fees", 6)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])}
    log = tmp_path / "log"
    for attempt in range(3):
        with log.open("ab") as out:
            victim = subprocess.Popen(
                [sys.executable, "-m", "tests.contracts.ledger", str(tmp_path)],
                env=environment, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
            status = victim.wait(timeout=200)
        assert status == (0 if attempt == 2 else -9), log.read_text()[-3000:]
    assert {path.name for path in tmp_path.iterdir()} >= {"done", "move 250", "sink"}
    wanted = expected(moves, fees)
    assert len(wanted["booked"]) == len(moves)
    for name, rows in wanted.items():
        found = spark.read.parquet(str(tmp_path / name)).drop("batch").toArrow().to_pylist()
        assert in_order(found) == rows
