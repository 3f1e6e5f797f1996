"""Queries that were changed, and go on with their checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import (
    MapState,
    Output,
    read_state,
)
from asterism.errors import StateError
from tests.contracts.ledger import FEES, MOVES, Ledger, data, ledger, ledger_sinks, write
from tests.spark.streams import Collect

pytestmark = pytest.mark.spark


class LargerLedger(Ledger):
    """A state and an output more, and another function."""

    largest = MapState("STRING", "BIGINT")
    records = Output("account BIGINT, amount BIGINT, balance BIGINT")

    @Ledger.moves.process_element
    def on_larger_move(self, e: Any, ctx: Any) -> None:
        Ledger.on_move(self, e, ctx)
        if e.amount > (self.largest.get("amount") or -1):
            self.largest.put("amount", e.amount)
            self.records.collect(account=e.account, amount=e.amount, balance=self.balance.value())


class SmallerLedger(Ledger):
    ids = MapState("BIGINT", "BIGINT")  # type: ignore[assignment]


def test_an_operator_with_another_state_and_output(spark: SparkSession, tmp_path: Path) -> None:
    moves, fees = data(200, accounts=5)
    write(moves[:100], MOVES, tmp_path / "moves", 1)
    write(fees, FEES, tmp_path / "fees", 1)
    checkpoint = str(tmp_path / "checkpoint")
    sinks = ledger_sinks()
    ledger(spark, tmp_path, Ledger(), key_groups=3).run(sinks, checkpoint=checkpoint, drain=False)
    balances = {row.key.account: row.value for row in read_state(spark, checkpoint).state("balance").collect()}
    assert len(balances) == 5

    write(moves[100:], MOVES, tmp_path / "moves", 1, first=1)
    records = Collect()
    larger = ledger(spark, tmp_path, LargerLedger(), key_groups=3)
    larger.run({**sinks, "records": records}, checkpoint=checkpoint, drain=False)
    booked = {row["id"] for row in sinks["booked"].rows}
    state = read_state(spark, checkpoint)
    largest = {row.key.account: row.value for row in state.state("largest").collect()}
    assert largest == {
        account: max(row["amount"] for row in records.rows if row["account"] == account) for account in balances
    }
    # The first offset with the new definition begins a micro-batch; the query then needs no permission any more.
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    [control] = [offset for offset in map(json.loads, newest.read_text().splitlines()[2:]) if "definition" in offset]
    assert control["definition"] == larger.operator.fingerprint.hex()

    with pytest.raises(StateError, match='the state "largest" of Ledger was removed'):
        ledger(spark, tmp_path, Ledger(), key_groups=3).run(sinks, checkpoint=checkpoint)
    with pytest.raises(StateError, match='the state "ids" of SmallerLedger was a list and is a map'):
        ledger(spark, tmp_path, SmallerLedger(), key_groups=3).run(sinks, checkpoint=checkpoint)
    larger.run({**sinks, "records": records}, checkpoint=checkpoint)
    assert booked | {row["id"] for row in sinks["booked"].rows} == {move["id"] for move in moves}
