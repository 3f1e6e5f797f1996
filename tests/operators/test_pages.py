"""How many pages of state there are, and which of them a call reads and writes."""

from __future__ import annotations

import random
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.columns.hashing import hash_keys
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.operators.state.pages import PAGE_BYTES, pages_of, wanted_pages
from asterism.operators.state.state_store import MemoryStore
from asterism.testing import PatternHarness
from tests.kit import examples, small_pages

SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("kind", pa.string())])
AB = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'")


def harness(**options: object) -> PatternHarness:
    return PatternHarness(AB, SCHEMA, keys=["user"], time="ts", **options)  # type: ignore[arg-type]


def send(to: PatternHarness, kind: str, users: list[int], second: int) -> None:
    columns = [[f"u{user}" for user in users], [second * 1_000_000] * len(users), [kind] * len(users)]
    to.feed(pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA))
    to.move(watermark=second * 1_000_000)


class Counted(MemoryStore):
    """A store that knows which pages a call has read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []
        self.written: dict[int, int] = {}

    def read_page(self, number: int) -> bytes | None:
        self.read.append(number)
        return super().read_page(number)

    def write_page(self, number: int, value: bytes | None) -> None:
        self.written[number] = 0 if value is None else len(value)
        super().write_page(number, value)


def test_small_calls_over_a_large_state_touch_little_of_it() -> None:
    cep = harness()
    store = Counted()
    cep.stores[:] = [store]
    send(cep, "a", list(range(20_000)), 1)
    assert store.pages.keys() == {0, DEFINITION_PAGE}
    whole = len(store.pages[0])
    assert whole > 10 * PAGE_BYTES
    send(cep, "b", [3], 2)  # from now on, there are many pages
    assert len(store.pages) == 1_024 + 1
    for second, user in enumerate([5, 77, 4_000, 19_999], 3):
        store.read, store.written = [], {}
        send(cep, "b", [user], second)
        assert len(store.read) == len(store.written) == 1
        assert sum(store.written.values()) < whole / 32
    assert len(cep.rows("matches")) == 5
    size = sum(len(value) for number, value in store.pages.items() if number != DEFINITION_PAGE)
    assert GroupHeader.from_bytes(store.header or b"", cep.cep.fingerprint).size == size
    send(cep, "b", list(range(0, 20_000, 2)), 10)  # a call with most keys has fewer pages
    assert len(store.pages) == 256 + 1
    send(cep, "b", list(range(1, 20_000, 2)), 11)
    assert cep.end().is_empty
    assert len(cep.rows("matches")) == 20_000


def test_deadlines_of_most_pages_divide_no_state() -> None:
    """Otherwise, each call would read and write many pages."""
    cep = PatternHarness(AB.within(timedelta(seconds=10)), SCHEMA, keys=["user"], time="ts")
    with small_pages():
        for second in range(1, 40):
            send(cep, "a", [second], second)
    (store,) = cep.stores
    assert len(store.pages) < 16


@pytest.mark.parametrize("seed", range(examples(1, usual=3)))
def test_the_number_of_pages_changes_no_result(seed: int) -> None:
    one, many = harness(pages=1), harness()
    rng = random.Random(seed)
    numbers = set()
    with small_pages():
        for second in range(1, 60):
            users = [rng.randrange(300) for _ in range(rng.choice([1, 2, 100]))]
            kind = rng.choice("ab")
            for to in (one, many):
                send(to, kind, users, second)
            numbers.add(min(len(many.stores[0].pages) - 1, 5))
            if rng.random() < 0.2:
                many = harness().restore(many.snapshot())
    assert sorted(map(str, many.rows("matches"))) == sorted(map(str, one.rows("matches")))
    assert numbers >= {1, 5}
    assert many.end().is_empty


def test_keys_of_every_type_have_one_page() -> None:
    """The page of a key does not depend on the other keys of a call."""
    columns = {
        "string": pa.array(["ann", "", None, "äö"]),
        "binary": pa.array([b"a", b"\xff", None, b""]),
        "number": pa.array([1, -1, None, 2**60]),
        "float": pa.array([1.5, float("nan"), None, -0.0]),
        "single": pa.array([1.5, float("nan"), None, 0.0], pa.float32()),
        "decimal": pa.array([1, 2, None, 3], pa.decimal128(10, 2)),
        "boolean": pa.array([True, False, None, True]),
        "date": pa.array([1, 2, None, 3], pa.date32()),
        "time": pa.array([1, 2, None, 3], pa.timestamp("us", "UTC")),
        "struct": pa.array([{"x": 1}, {"x": 2}, None, {"x": None}]),
        "list": pa.array([[1], [], None, [None]]),
    }
    for name, column in columns.items():
        together = hash_keys(pa.table({"k": column}))
        alone = [hash_keys(pa.table({"k": column.slice(row, 1)}))[0] for row in range(4)]
        assert together.tolist() == alone, name
        assert len(set(together.tolist())) == (3 if name == "boolean" else 4), name
    assert pages_of(pa.table({"k": ["a", "b"]}), 1).tolist() == [0, 0]


def test_pages_are_filled_evenly() -> None:
    counts = np.bincount(pages_of(pa.table({"k": np.arange(64_000)}), 64), minlength=64)
    assert counts.min() > 800
    assert counts.max() < 1_200


@pytest.mark.parametrize(
    ("pages", "size", "keys", "wanted"),
    [
        (1, PAGE_BYTES, 1, 1), (1, 20 * PAGE_BYTES, 10, 64), (1, 20 * PAGE_BYTES, 16, 1), (64, 20 * PAGE_BYTES, 32, 64),
        (64, 20 * PAGE_BYTES, 33, 16), (64, 128 * PAGE_BYTES, 1, 64), (64, 129 * PAGE_BYTES, 1, 256),
        (64, PAGE_BYTES, 1, 16), (16, 0, 1, 4), (4, 0, 1, 1), (1, 2**40, 1, 16384), (16384, 2**40, 1, 16384),
    ],
)  # fmt: skip
def test_wanted_pages(pages: int, size: int, keys: int, wanted: int) -> None:
    assert wanted_pages(pages, size, keys) == wanted
