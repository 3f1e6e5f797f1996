"""State as bytes and back."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pyarrow as pa

from asterism.matching import kernels
from asterism.matching.key_rows import KeyRows
from asterism.matching.page import NO_EVENT, Page
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes, batch_to_bytes

KEYS = pa.schema([("k:user", pa.string()), ("k:n", pa.int64())])
EVENTS = pa.schema(
    [("e:price", pa.float64()), ("e:at", pa.timestamp("us", "Europe/Madrid")), ("s:0", pa.list_(pa.string()))]
)


def page() -> Page:
    keys = pa.table([["u", None], [1, None]], schema=KEYS)
    events = pa.table([[1.5, None, float("inf")], [0, 1, None], [["x"], [], None]], schema=EVENTS)
    return Page(
        keys=keys,
        events=events,
        times=np.array([5, 6, 2**62]),
        positions=np.array([0, 0, 3]),
        nodes=np.array([[0, 1, -1], [1, 2, 0]]),
        rows=KeyRows(
            run_at=np.array([0, 1, 1]),
            run_rows=np.array([[0, 1, 3]]),
            waiting_at=np.array([0, 0, 2]),
            waiting_rows=np.array([[0, 1, 7], [1, 1, 8]]),
            timer_at=np.array([0, 0, 1]),
            timer_rows=np.array([[99]]),
        ),
    )


def same(after: Page, before: Page) -> bool:
    assert after.keys.equals(before.keys)
    assert after.events.to_pylist() == before.events.to_pylist()
    assert after.events.schema == EVENTS
    for name in ("times", "positions", "nodes"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name), err_msg=name)
    for name in KeyRows._fields:
        np.testing.assert_array_equal(getattr(after.rows, name), getattr(before.rows, name), err_msg=name)
    return True


def test_page_round_trip() -> None:
    """Keys, events with their types and nulls, and every array come back as they were."""
    before = page()
    assert same(Page.from_bytes(before.to_bytes(), KEYS, EVENTS), before)


def test_page_of_the_first_release() -> None:
    """All arrays had 64 bits."""
    written = base64.b64decode(
        "eNpzDA4JYmJgZOBgZACDGVCamQGVZmPALo5LHmoMAyuaPBQ4MKABZjQ+TP9/KIDxmRiwA0Y0Gl2cGYc+Jhzq2XGYy0HA/mQkd58A0iJQPg+DGDAMWIH6"
        "eYAQ5CAWBgkgZQE3gQvI52FgAargAvJygFgAzX2sWOzjgJsPARJo8gpofA0oLYAWBkxo6pjwhCsjEr+UQPiDwkGDkXA4ZOAIhzVQtyLHHyeecJAg4G8J"
        "tAQIk/dAC5cINH9EoNmTgMW/LFjSPyE+enixovB+2KPKfqjHlU+w5SNGtLgC0RVQNgA7ax2f"
    )
    assert same(Page.from_bytes(zlib.decompress(written), KEYS, EVENTS), page())


def test_no_event_has_one_number() -> None:
    assert kernels.NO_EVENT == NO_EVENT
    before = page()
    before.rows = before.rows._replace(run_rows=np.array([[NO_EVENT, -1, 3]]))
    after = Page.from_bytes(before.to_bytes(), KEYS, EVENTS)
    assert after.rows.run_rows.tolist() == before.rows.run_rows.tolist()
    assert len(before.to_bytes()) == len(page().to_bytes())


def test_pages_together_and_apart() -> None:
    one, other = page(), page()
    other.keys = pa.table([["v", "w"], [1, 2]], schema=KEYS)
    other.rows = other.rows._replace(run_rows=np.array([[NO_EVENT, -1, 3]]))
    both = Page.concat([one, other, Page.empty(KEYS, EVENTS)])
    assert both.keys["k:user"].to_pylist() == ["u", None, "v", "w"]
    assert both.rows.run_rows.tolist() == [[0, 1, 3], [NO_EVENT, -1, 3]]
    assert both.rows.waiting_rows.tolist() == [[0, 1, 7], [1, 1, 8], [3, 3, 7], [4, 3, 8]]
    assert both.nodes.tolist() == [[0, 1, -1], [1, 2, 0], [3, 1, -1], [4, 2, 2]]
    # The third event is of no partial match.
    assert Page.concat([both.of(np.array([0, 1])), both.of(np.array([2, 3]))]).times.tolist() == [5, 6, 5, 6]
    assert both.of(np.array([3])).rows.waiting_rows.tolist() == [[0, 1, 7], [1, 1, 8]]


def test_empty_page_round_trip() -> None:
    after = Page.from_bytes(Page.empty(KEYS, EVENTS).to_bytes(), KEYS, EVENTS)
    assert (after.keys.num_rows, after.events.num_rows, after.nodes.shape, after.rows.timer_rows.shape) == (
        0,
        0,
        (0, 3),
        (0, 1),
    )


def test_page_of_a_slice_round_trip() -> None:
    """Only the rows of the slice are written."""
    before = page()
    before.keys = pa.concat_tables([before.keys] * 3).slice(1, 2)
    assert Page.from_bytes(before.to_bytes(), KEYS, EVENTS).keys.to_pylist() == [
        {"k:user": None, "k:n": None},
        {"k:user": "u", "k:n": 1},
    ]


def test_header_round_trip() -> None:
    before = GroupHeader.new(b"fingerprint", pages=2, inputs=3, processing_time=7)
    before.next_event_times[:] = [1, 2**63 - 1]
    before.next_processing_times[1] = 5
    before.watermarks[2] = 9
    before.buffers[1], before.watermark = b"buffered", 4
    after = GroupHeader.from_bytes(before.to_bytes(), b"fingerprint")
    assert after.to_bytes() == before.to_bytes()
    assert (after.next_event_times.tolist(), after.next_processing_times.tolist()) == ([1, 2**63 - 1], [2**63 - 1, 5])
    assert (after.watermarks.tolist()[2], after.last_activity.tolist(), after.watermark) == (9, [7, 7, 7], 4)
    assert after.buffers == [b"", b"buffered", b""]
    after.next_event_times[0] = 5  # it is ours to change


def test_batch_without_rows_round_trip() -> None:
    assert batch_from_bytes(batch_to_bytes(EVENTS.empty_table()), EVENTS).equals(EVENTS.empty_table())


def test_batch_of_chunks_round_trip() -> None:
    twice = pa.concat_tables([page().events, page().events])
    assert batch_from_bytes(batch_to_bytes(twice), EVENTS).to_pylist() == twice.to_pylist()


def test_memory_store_is_empty_once_everything_was_removed() -> None:
    store = MemoryStore()
    assert store.is_empty
    store.write_header(b"h")
    store.write_page(3, b"p")
    assert (store.read_header(), store.read_page(3), store.is_empty) == (b"h", b"p", False)
    store.write_header(None)
    store.write_page(3, None)
    store.write_page(4, None)
    assert (store.read_page(3), store.is_empty) == (None, True)
