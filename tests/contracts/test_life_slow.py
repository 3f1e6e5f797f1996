"""State of a newer release is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import asterism.operators.state.state_store
import tests.contracts.ledger
from asterism.errors import NewerStateError
from asterism.operators.stream_operator import StreamOperator
from tests.contracts.ledger import FEES, MOVES, Ledger, data, ledger, ledger_sinks, utc, write

pytestmark = pytest.mark.spark
for module in (tests.contracts.ledger, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)


@contextmanager
def newer_release() -> Iterator[None]:
    before = asterism.operators.state.state_store.LAYOUT
    asterism.operators.state.state_store.LAYOUT = before + 1
    try:
        yield
    finally:
        asterism.operators.state.state_store.LAYOUT = before


class OfNewerRelease(Ledger):
    """Writes its state as a newer release would."""

    def open(self) -> None:
        self.release = newer_release()
        self.release.__enter__()

    def close(self) -> None:
        self.release.__exit__(None, None, None)


def test_state_of_a_newer_release_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    moves, fees = data(60)
    write(moves[:30], MOVES, tmp_path / "moves", 1)
    write(fees, FEES, tmp_path / "fees", 1)
    sinks = ledger_sinks()

    def run(operator: StreamOperator, **how: Any) -> None:
        ledger(spark, tmp_path, operator, key_groups=2).run(sinks, checkpoint=str(tmp_path / "checkpoint"), **how)

    run(OfNewerRelease(), drain=False)
    before = {name: utc(sink.rows) for name, sink in sinks.items()}
    write(moves[30:], MOVES, tmp_path / "moves", 1, first=1)
    with pytest.raises(NewerStateError, match="this release reads only up to layout") as caught:
        run(Ledger())
    assert "key group " in str(caught.value)
    assert {name: utc(sink.rows) for name, sink in sinks.items()} == before
