"""The state of a live engine is that of a key group on Spark: through the tables of a savepoint, it becomes several key groups,
and a live engine again.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import CEP, KeyedStream, Pattern
from asterism.live.snapshots import SnapshotFolder, SnapshotRecord, read_snapshot
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.state.page_numbers import HEADER
from asterism.operators.state.state_store import MemoryStore
from asterism.testing import PatternHarness
from tests.live.driver import in_order
from tests.savepoints.regrouping import regrouped

SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
RISES = Pattern.begin("a").followed_by("b").where("v > LAST(a.v)").within(timedelta(seconds=40))
EVENTS = pa.table(
    [[f"u{n % 17}" for n in range(300)], [1000 * n for n in range(300)], [(n * 37) % 101 for n in range(300)]],
    schema=SCHEMA,
)


def store_of(folder: Path) -> MemoryStore:
    pages = dict(read_snapshot(folder)[1])
    return MemoryStore(pages.pop(HEADER, None), pages)


@pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")
def test_a_live_engine_becomes_key_groups_and_a_live_engine_again(tmp_path: Path) -> None:
    stream: Any = KeyedStream(SCHEMA, key="user", time="ts", max_out_of_orderness=timedelta(seconds=3))
    live = CEP.pattern(stream, RISES)
    whole = CEP.pattern(KeyedStream(EVENTS, key="user", time="ts"), RISES).matches
    rows = []
    with live.open(tmp_path / "first") as engine:
        rows.append(engine.process(EVENTS.slice(0, 100))["matches"])
    # As on Spark: four key groups, each with some of the keys. The events that wait move, too.
    outputs = {"matches": OutputSpec(OutputKind.MATCHES)}
    harness = PatternHarness(RISES, SCHEMA, keys=["user"], outputs=outputs, key_groups=4)
    harness.stores[:] = regrouped([store_of(tmp_path / "first")], 4)
    assert sum(store.header is not None for store in harness.stores) == 4
    harness.send(EVENTS.slice(100, 100)).advance_watermark(timedelta(milliseconds=196_000 - 1))
    rows.append(harness.output("matches"))
    harness.close()
    (store,) = regrouped(harness.stores, 1)
    second = SnapshotFolder(tmp_path / "second")
    pages = {**store.pages, HEADER: store.header}
    second.write(pages, SnapshotRecord(positions={"events": 200}, zone="UTC"), lambda: None, pytest.fail)
    second.close()
    with live.open(tmp_path / "second") as engine:
        assert engine.position == 200
        rows.append(engine.process(EVENTS.slice(200))["matches"])
        rows.append(engine.finish()["matches"])
    assert all(table.num_rows for table in rows)
    assert in_order(pa.concat_tables(rows)) == in_order(whole)
