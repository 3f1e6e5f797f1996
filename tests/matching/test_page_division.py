"""Pages of partial matches that are divided into many."""

from __future__ import annotations

import random
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.matching.page import PackedPage, Page, resident, together
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.testing import PatternHarness

SCHEMA = pa.schema([("user", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("kind", pa.string())])
PATTERN = (
    Pattern.begin("a")
    .where("kind = 'a'")
    .followed_by("b")
    .where("kind = 'b'")
    .one_or_more()
    .followed_by("c")
    .where("kind = 'c'")
).within(timedelta(hours=1))


def a_page(users: int) -> Page:
    """Partial matches that share events and nodes, of keys whose events are mixed."""
    cep = PatternHarness(PATTERN, SCHEMA, keys=["user"], time="ts")
    rng = random.Random(5)
    rows = [(rng.randrange(users), rng.randrange(100) * 1_000_000, rng.choice("aab")) for _ in range(6 * users)]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    cep.feed(pa.table(columns, schema=SCHEMA))
    cep.move(watermark=200_000_000)
    (store,) = cep.stores
    (stored,) = [value for number, value in store.pages.items() if number != DEFINITION_PAGE]
    return Page.from_bytes(stored, cep.cep.key_schema, cep.cep.pattern.event_schema)


@pytest.mark.parametrize("parts", [1, 3, 16, 17, 64, 65, 300])
def test_a_divided_page_has_the_pages_of_its_keys(parts: int) -> None:
    page = a_page(400)
    rng = np.random.default_rng(parts)
    part_of = rng.integers(0, parts, page.keys.num_rows)
    wanted = [rows for rows in (np.flatnonzero(part_of == part) for part in range(parts)) if len(rows)]
    divided = [part.page for part in resident(page, wanted)]
    assert [reduced(part) for part in divided] == [page.of(rows).to_bytes() for rows in wanted]
    assert sum(part.keys.num_rows for part in divided) == page.keys.num_rows


def test_pages_in_memory_are_stored_as_others() -> None:
    page = a_page(60)
    parts = np.array_split(np.arange(page.keys.num_rows), 7)
    packed = list(page.packed(parts))
    kinds = page.keys.schema, page.events.schema
    assert [reduced(Page.from_bytes(part.to_bytes(), *kinds)) for part in packed] == [
        page.of(rows).to_bytes() for rows in parts
    ]
    assert [len(part.to_bytes()) for part in packed] == [len(part.page.to_bytes()) for part in packed]
    # After a restart, some pages are from a snapshot.
    mixed: list[Page | PackedPage] = [packed[0], packed[1].page, *packed[2:]]
    assert reduced(together(mixed)) == reduced(together(packed)) == page.of(np.arange(page.keys.num_rows)).to_bytes()


def test_large_pages_are_divided_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    page = a_page(60)
    parts = np.array_split(np.arange(page.keys.num_rows), 7)
    whole = [reduced(part.page) for part in page.packed(parts)]
    monkeypatch.setattr("asterism.matching.page.MAX_BATCH", 1)
    assert [reduced(part.page) for part in page.packed(parts)] == whole


def reduced(page: Page) -> bytes:
    """The bytes of the page as it is read again, without the bitmaps of slices: they say that nothing is null."""
    key_schema, event_schema = page.keys.schema, page.events.schema
    return Page.from_bytes(page.to_bytes(), key_schema, event_schema).of(np.arange(page.keys.num_rows)).to_bytes()
