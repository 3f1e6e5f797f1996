"""A history, which a batch job reads, and then the stream have the rows of one stream from the beginning."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from asterism.columns.groups import KEY_HASH
from asterism.errors import StreamDefinitionError
from asterism.operators.state.page_numbers import HEADER
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes
from asterism.spark.host.batch import BATCH_GROUP, BATCH_TIME, END_OF_GROUP, run_history
from asterism.spark.host.host import NO_TIME
from asterism.spark.host.partitioning import group_of
from asterism.streams.run_options import QueryHistory
from asterism.testing.operator_harness import OperatorHarness, key_hashes
from tests.savepoints.test_regrouping import CASES, EPOCH, KINDS, SCHEMA, SECOND, USERS

OF_EVENTS = [case for case in CASES if case not in ("interval join", "as-of join", "operator")]
KEY_GROUPS = 4


def events(seed: int) -> list[dict[str, Any]]:
    """Events up to six seconds out of order."""
    rng = random.Random(seed)
    return [
        {
            "user": rng.choice(USERS[:5]),
            "ts": EPOCH + (number + 6 - rng.randrange(7)) * SECOND,
            "kind": rng.choice(KINDS),
            "v": rng.randrange(9),
        }
        for number in range(120)
    ]


def read_history(harness: OperatorHarness, rows: list[dict[str, Any]], watermark: int, cut: int) -> Counter[str]:
    """Begin with a history, in record batches of *cut* rows. Return its results."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    hashes = key_hashes(table.select(["user"]))
    groups = (hashes.view(np.uint64) % np.uint64(KEY_GROUPS)).astype(np.int32)
    table = table.append_column(KEY_HASH, pa.array(hashes)).append_column(BATCH_GROUP, pa.array(groups))
    table = table.append_column(BATCH_TIME, pc.cast(table.column("ts"), pa.int64()))
    table = table.append_column(END_OF_GROUP, pa.array([False] * len(rows)))
    ends = pa.table({BATCH_GROUP: pa.array(range(KEY_GROUPS), pa.int32()), END_OF_GROUP: [True] * KEY_GROUPS})
    table = pa.concat_tables([table, ends], promote_options="default")
    table = table.sort_by([(BATCH_GROUP, "ascending"), (END_OF_GROUP, "ascending"), (BATCH_TIME, "ascending")])

    def batches() -> Iterator[pa.RecordBatch]:
        # Of a group, a call has no more than what comes together.
        yield from table.combine_chunks().to_batches(max_chunksize=cut)

    results: Counter[str] = Counter()
    for batch in run_history(harness.operator, watermark, 0, NO_TIME)(batches()):
        for row in batch.to_pylist():
            if row["output"] is not None:
                of_output = batch_from_bytes(row["chunk"], harness.operator.output_schemas[row["output"]])
                results.update(f"{row['output']} {each}" for each in of_output.to_pylist())
                continue
            store: MemoryStore = harness.stores[group_of(row["key_group"])]
            if row["page"] == HEADER:
                store.write_header(row["value"])
            else:
                store.write_page(row["page"], row["value"])
    assert all(store.header is not None for store in harness.stores)
    return results


@pytest.mark.parametrize(
    ("case", "by_time"), [(case, number % 2 == 0) for number, case in enumerate(OF_EVENTS)], ids=OF_EVENTS
)
def test_a_history_and_a_stream_are_one_stream(case: str, by_time: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asterism.spark.host.exchange.GATHER", 16)  # several calls for a key group
    whole = events(4)
    seam = 70
    if by_time:
        until = EPOCH + 60 * SECOND
        first = [row for row in whole if row["ts"] < until]
        rest = [row for row in whole if row["ts"] >= until]
    else:
        first, rest = whole[:seam], whole[seam:]

    def as_stream(harness: OperatorHarness, rows: list[dict[str, Any]], latest: datetime) -> None:
        for begin in range(0, len(rows), 9):
            part = rows[begin : begin + 9]
            harness.feed(pa.Table.from_pylist(part, SCHEMA))
            latest = max(latest, *(row["ts"] for row in part))
            harness.feed_watermark(watermark_of(latest))
        harness.end()

    def rows_of(harness: OperatorHarness) -> Counter[str]:
        return Counter(f"{name} {row}" for name in harness.operator.output_schemas for row in harness.rows(name))

    expected, harness = CASES[case](KEY_GROUPS), CASES[case](KEY_GROUPS)
    as_stream(expected, [*first, *rest], EPOCH)
    latest = max(row["ts"] for row in first)
    results = read_history(harness, first, watermark_of(latest), cut=16)
    as_stream(harness, rest, latest)
    assert results
    assert results + rows_of(harness) == rows_of(expected)


def watermark_of(latest: datetime) -> int:
    return (latest - EPOCH - 7 * SECOND) // timedelta(microseconds=1)


def test_a_history_is_a_table_of_spark() -> None:
    with pytest.raises(StreamDefinitionError, match="must be a table of Spark"):
        QueryHistory.checked(history=[])
    with pytest.raises(StreamDefinitionError, match="needs a history"):
        QueryHistory.checked(history_until=datetime(2025, 1, 1, tzinfo=UTC))
    with pytest.raises(StreamDefinitionError, match="with a time zone"):
        QueryHistory.checked(history=[], history_until=datetime(2025, 1, 1))
