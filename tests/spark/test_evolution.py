"""Queries that were changed, and go on with their checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import (
    CEP,
    CountTrigger,
    EventTimeTrigger,
    MapState,
    Output,
    read_state,
    window,
)
from asterism.errors import StateError
from asterism.windows.assigners import TumblingWindows
from tests.contracts.ledger import FEES, MOVES, Ledger, data, ledger, ledger_sinks, write
from tests.spark.streams import ABSENCE, FUNNEL, Collect, events, ids, stream_of, write_files
from tests.spark.test_windows import MINUTE

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


def test_windows_with_other_counts_and_measures_and_a_pattern_after_a_drain(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = events(400)
    write_files(table.slice(0, 200), tmp_path / "in", [])
    checkpoint = str(tmp_path / "checkpoint")

    def run(count: int, *measures: str, drain: bool) -> Collect:
        trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(count))
        windowed = window(stream_of(spark, tmp_path / "in"), TumblingWindows.of(MINUTE), trigger=trigger, key_groups=2)
        found = Collect()
        windowed.run({"results": found}, aggregate=measures, checkpoint=checkpoint, drain=drain)
        return found

    before = run(3, "count(*) AS n", drain=False)
    write_files(table.slice(200, 200), tmp_path / "in", [], first=1)
    after = run(2, "sum(price) AS total", "count(*) AS n", drain=True)
    assert {"n", "total"} <= after.rows[0].keys()
    last = [row["n"] for row in (*before.rows, *after.rows) if row["is_last"]]
    assert sum(last) == table.num_rows

    # There is no state any more, so the query can be any other with the same sources.
    assert read_state(spark, checkpoint).is_empty
    write_files(table.slice(0, 50), tmp_path / "in", [], first=2)
    stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, key_groups=4)
    with pytest.raises(StateError, match="created with 2 key groups"):
        stream.run({"matches": Collect()}, checkpoint=checkpoint)
    late = stream_of(spark, tmp_path / "in")
    found = Collect()
    stream = CEP.pattern(late, ABSENCE)
    stream.run({"matches": found, "late": Collect()}, checkpoint=checkpoint)
    assert ids(found.rows)
