"""Events that wait for the watermark are stored once, and read when it has passed them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from asterism.columns.time import END_OF_TIME, TIME
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import PageKind
from asterism.operators.state.state_store import MemoryStore
from asterism.operators.state.waiting_events import CHUNK_BYTES, WaitingEvents
from tests.kit import small_pages

SCHEMA = pa.schema([(TIME, pa.int64()), ("n", pa.int64())])


class Waiting:
    """The waiting events of one input, with the header written and read between calls."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.header = GroupHeader.new(b"f", 1, 2, 0)

    def exchange(self, rows: list[tuple[int, int]], watermark: int) -> list[int]:
        self.header = GroupHeader.from_bytes(self.header.to_bytes(), b"f")
        events = WaitingEvents(self.store, self.header, 1, SCHEMA)
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], []]
        arrived = [pa.table(columns, schema=SCHEMA)] if rows else []
        found: list[int] = [n for table in events.exchange(arrived, watermark) for n in table.column("n").to_pylist()]
        return found

    @property
    def first(self) -> int:
        return WaitingEvents(self.store, self.header, 1, SCHEMA).first_time()


def test_what_waits_is_neither_read_nor_written() -> None:
    waiting = Waiting()
    count = CHUNK_BYTES // 16 + 1
    assert waiting.exchange([(1_000 + n, n) for n in range(count)], 0) == []
    assert waiting.header.buffers == [b"", b""]
    assert waiting.header.chunks == [[], [(PageKind.WAITING_EVENTS.first, 1_000)]]
    stored = waiting.store.pages[PageKind.WAITING_EVENTS.first]
    assert waiting.exchange([(5, -1), (6, -2)], 5) == [-1]
    assert waiting.first == 6
    assert waiting.store.pages[PageKind.WAITING_EVENTS.first] is stored
    assert waiting.exchange([], 1_000) == [0, -2]
    assert waiting.first == 1_001
    assert waiting.exchange([], END_OF_TIME) == list(range(1, count))
    assert not waiting.store.pages
    assert not waiting.header.is_waiting(1)
    assert waiting.first == END_OF_TIME


@pytest.mark.parametrize("seed", range(20))
def test_they_pass_in_the_order_of_arrival(seed: int) -> None:
    """Equal times are ordered by arrival, wherever the events are stored."""
    rng = random.Random(seed)
    waiting, all_at_once = Waiting(), list[tuple[int, int]]()
    number = watermark = 0
    with small_pages():
        for _ in range(40):
            rows = [(watermark + rng.randrange(1, 12), number + n) for n in range(rng.randrange(30))]
            number += len(rows)
            all_at_once += rows
            watermark += rng.randrange(4)
            found = waiting.exchange(rows, watermark)
            assert found == [n for time, n in all_at_once if time <= watermark]
            all_at_once = [row for row in all_at_once if row[0] > watermark]
            assert waiting.first == min((time for time, _ in all_at_once), default=END_OF_TIME)
    assert np.array(waiting.exchange([], END_OF_TIME)).tolist() == [n for _, n in all_at_once]
    assert not waiting.store.pages
