"""Broadcast state in parts: what a call reads and writes, and that a process may or may not know a version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from asterism.columns.time import END_OF_TIME
from asterism.operators.runtime import Arrived
from asterism.operators.state import broadcast_state
from asterism.operators.state.broadcast_state import PART, BroadcastState
from asterism.operators.state.keyed_state import (
    BroadcastListState,
    BroadcastMapState,
    BroadcastValueState,
    StateKind,
    StateSpec,
    ValueState,
)
from asterism.operators.state.page_numbers import PageKind
from asterism.operators.state.state_store import MemoryStore, tables_to_bytes
from asterism.operators.stream_operator import BroadcastInput, Input, Output, StreamOperator
from asterism.testing import StreamOperatorHarness

PAGE = 256
MANY = 100 * PART
SPECS = {
    "prices": StateSpec("prices", StateKind.MAP, pa.float64(), pa.string(), None, broadcast=True),
    "names": StateSpec("names", StateKind.LIST, pa.string(), None, None, broadcast=True),
    "last": StateSpec("last", StateKind.VALUE, pa.string(), None, None, broadcast=True),
}


class CountingStore(MemoryStore):
    """Counts the bytes and the pages that are read and written."""

    __slots__ = ("counts",)

    def __init__(self, pages: dict[int, bytes] | None = None) -> None:
        super().__init__(pages=dict(pages or {}))
        self.counts: Counter[str] = Counter()

    def read_page(self, number: int) -> bytes | None:
        value = super().read_page(number)
        self.counts.update({"reads": 1, "read": len(value or b"")})
        return value

    def write_page(self, number: int, value: bytes | None) -> None:
        self.counts.update({"writes": 1, "written": len(value or b"")})
        super().write_page(number, value)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    broadcast_state._known.clear()
    yield
    broadcast_state._known.clear()


def change(store: MemoryStore, **entries: Any) -> None:
    """One call that changes states: a list, a value, or entries of the map (None removes one)."""
    state = BroadcastState(store, PAGE, SPECS)
    for name, new in entries.items():
        table = state.tables[name]
        table.begin_change()
        if name == "prices":
            for key, value in new.items():
                if value is None:
                    table.entries(0).pop(key, None)
                else:
                    table.entries(0)[key] = (value, END_OF_TIME)
        else:
            table.replace(0, [(one, END_OF_TIME) for one in new] if name == "names" else (new, END_OF_TIME))
    state.write(over=False)


def contents(store: MemoryStore) -> tuple[list[tuple[str, float]], list[str], str | None]:
    tables = BroadcastState(store, PAGE, SPECS).tables
    prices, names, last = (tables[name].entries(0) for name in SPECS)
    return [(key, value) for key, (value, _) in prices.items()], [name for name, _ in names], last and last[0]


def loaded() -> CountingStore:
    store = CountingStore()
    change(store, prices={f"item {n}": n / 2 for n in range(MANY)}, names=["a"] * (3 * PART + 1), last="x")
    return store


@pytest.mark.parametrize("forget", [False, True], ids=["known", "not known"])
def test_a_change_writes_its_part(forget: bool) -> None:
    store = loaded()
    assert 60 < len([page for page in store.pages if page >= PageKind.BROADCAST_PART.first]) < 200
    wanted = contents(store)
    for new, writes in [
        ({"item 700": -1.0}, 2),  # the part and the index
        ({"new": 0.0}, 3),  # the last part; or two, if the new entry ends it
        ({"item 50000": None}, 3),  # two parts may become one
    ]:
        if forget:
            broadcast_state._known.clear()
        store.counts.clear()
        change(store, prices=new)
        assert store.counts["writes"] <= writes + 1
        assert store.counts["written"] < 200_000
        wanted = (
            [(key, new.get(key, value)) for key, value in wanted[0] if new.get(key, value) is not None]
            + [(key, value) for key, value in new.items() if value is not None and key not in dict(wanted[0])],
            *wanted[1:],
        )
        broadcast_state._known.clear()
        assert contents(store) == wanted
    change(store, prices=dict.fromkeys(dict(wanted[0])), names=[], last=None)
    assert contents(store) == ([], [], None)


def test_a_version_is_decoded_and_encoded_once_in_a_process() -> None:
    stores = [CountingStore(loaded().pages) for _ in range(3)]
    broadcast_state._known.clear()
    for store in stores:
        contents(store)
    assert [store.counts["reads"] for store in stores[1:]] == [1, 1]  # the index
    encoded = []
    parts_of = broadcast_state._parts_of

    def counted(*arguments: Any) -> list[bytes]:
        encoded.append(1)
        return parts_of(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broadcast_state, "_parts_of", counted)
        for store in stores:
            change(store, prices={"item 5": 7.5})
    assert len(encoded) == 1
    assert stores[0].pages == stores[1].pages == stores[2].pages


def test_equal_states_are_compared_once_in_a_process() -> None:
    """A second query, or a micro-batch that is repeated, makes equal entries that are other objects."""
    compared = []
    alike = broadcast_state._alike

    def counted(*arguments: Any) -> bool:
        compared.append(1)
        return alike(*arguments)

    changes = [{"item": item, "price": 0.5} for item in "abc"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broadcast_state, "_alike", counted)
        for comparisons in (0, 4):  # names and values of the map, the list, the value
            compared.clear()
            harness = StreamOperatorHarness(Prices(), {"changes": {}, "sales": {"key": "item"}}, key_groups=8)
            harness.send("changes", changes)
            assert len(compared) == comparisons
    assert len({store.read_page(PAGE) for store in harness.stores}) == 1


def test_a_lookup_reads_the_index_alone() -> None:
    """Nothing is decoded, copied or written, whatever the size of the state."""
    harness = StreamOperatorHarness(Prices(), {"changes": {}, "sales": {"key": "item"}}, key_groups=4)
    harness.send("changes", [{"item": f"item {n}", "price": 0.5} for n in range(3 * PART)])
    harness.stores = [CountingStore(store.pages) for store in harness.stores]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broadcast_state, "_entries_of", lambda *arguments: pytest.fail("decoded"))
        patch.setattr(broadcast_state.BroadcastEntries, "begin_change", lambda table: pytest.fail("copied"))
        harness.send("sales", [{"item": f"item {n}"} for n in range(40)])
    assert [row["price"] for row in harness.rows("sold")] == [0.5] * 40
    assert [(store.counts["reads"], store.counts["writes"]) for store in harness.stores] == [(1, 0)] * 4


def test_an_unused_state_is_not_read() -> None:
    store = loaded()
    broadcast_state._known.clear()
    store.counts.clear()
    assert BroadcastState(store, PAGE, SPECS).tables["last"].entries(0) == ("x", END_OF_TIME)
    assert store.counts["reads"] == 2


def test_zeros_of_both_signs_are_different_values() -> None:
    one, other = CountingStore(), CountingStore()
    change(one, prices={"a": 0.0})
    change(other, prices={"a": -0.0})
    assert [str(contents(store)[0]) for store in (one, other)] == ["[('a', 0.0)]", "[('a', -0.0)]"]


def test_a_call_without_a_change_writes_nothing_and_the_end_deletes_everything() -> None:
    store = loaded()
    store.counts.clear()
    BroadcastState(store, PAGE, SPECS).write(over=False)
    assert store.counts["writes"] == 0
    BroadcastState(store, PAGE, SPECS).write(over=True)
    assert store.pages == {}


def test_the_state_of_an_earlier_release() -> None:
    """It was one page with a table for each state."""
    rows = [
        pa.table({"key": [0, 0], "name": ["b", "a"], "value": [2.0, 1.0]}, SPECS["prices"].schema),
        pa.table({"key": [0], "value": ["n"]}, SPECS["names"].schema),
        SPECS["last"].schema.empty_table(),
    ]
    store = CountingStore({PAGE: tables_to_bytes(rows)})
    assert contents(store) == ([("b", 2.0), ("a", 1.0)], ["n"], None)
    BroadcastState(store, PAGE, SPECS).write(over=False)
    assert store.pages[PAGE] != tables_to_bytes(rows)
    assert contents(store) == ([("b", 2.0), ("a", 1.0)], ["n"], None)
    BroadcastState(store, PAGE, SPECS).write(over=True)
    assert store.pages == {}


class Prices(StreamOperator):
    changes = BroadcastInput("item STRING, price DOUBLE")
    sales = Input("item STRING")
    prices = BroadcastMapState("STRING", "DOUBLE")
    known = BroadcastListState("STRING")
    last = BroadcastValueState("STRING")
    sold = Output("item STRING, price DOUBLE, known BIGINT, last STRING")

    @changes.process_element
    def change(self, e: Any, ctx: Any) -> None:
        self.prices.put(e.item, e.price)
        self.known.add(e.item)
        self.last.update(e.item)

    @sales.process_element
    def sell(self, e: Any, ctx: Any) -> None:
        self.sold.collect(
            item=e.item, price=self.prices.get(e.item), known=len(self.known.get()), last=self.last.value()
        )


@pytest.mark.parametrize("forget", [False, True], ids=["known", "not known"])
def test_key_groups_and_restarts(forget: bool) -> None:
    harness = StreamOperatorHarness(Prices(), {"changes": {}, "sales": {"key": "item"}}, key_groups=4)
    for number in range(6):
        harness.send("changes", [{"item": item, "price": number + 0.5} for item in "abcdefgh"[: number + 2]])
        harness.send("sales", [{"item": item} for item in "abcdefgh"])
        if forget:
            broadcast_state._known.clear()
            harness = harness.again(key_groups=4).restore(harness.snapshot())
    rows = harness.rows("sold")
    assert len(rows) == 48
    for at, row in enumerate(rows):
        number = at // 8
        price = number + 0.5 if row["item"] in "abcdefgh"[: number + 2] else None
        items = sum(step + 2 for step in range(number + 1))
        assert (row["price"], row["known"], row["last"]) == (price, items, "abcdefgh"[number + 1])
    assert harness.end().is_empty


class Loader(StreamOperator):
    """Counts the calls of its functions, in a process, and what they are given."""

    clicks = Input("k STRING, t TIMESTAMP")
    limits = BroadcastInput("name STRING, v BIGINT")
    visits = BroadcastInput("v BIGINT")
    limit = BroadcastMapState("STRING", "BIGINT")
    seen = ValueState("BIGINT")
    out = Output("k STRING, v BIGINT, n BIGINT")
    said = Output("name STRING")
    calls: ClassVar[Counter[str]] = Counter()

    @limits.process_element
    def on_limit(self, e: Any, ctx: Any) -> None:
        self.calls["limits"] += 1
        self.limit.put(e.name, (self.limit.get(e.name) or 0) + e.v)
        self.said.collect(name=e.name)

    @visits.process_element
    def on_visit(self, e: Any, ctx: Any) -> None:
        self.calls["visits"] += 1
        self.limit.put("visits", e.v)
        ctx.apply_to_keyed_state(self.seen, lambda key, seen: seen.update(e.v))

    @clicks.process_element
    def on_click(self, e: Any, ctx: Any) -> None:
        self.out.collect(k=e.k, v=self.limit.get("a"), n=self.seen.value())
        self.seen.update(0)


def test_functions_are_called_for_one_key_group() -> None:
    """The others take over its state, and each can change it further. The first one emits rows."""
    inputs = {"clicks": {"key": "k", "time": "t"}, "limits": {}, "visits": {}}
    harness = StreamOperatorHarness(Loader(), inputs, key_groups=8)
    Loader.calls.clear()
    harness.send("limits", [{"name": name, "v": 1} for name in "abc"])
    harness.send("limits", {"name": "a", "v": 10})
    assert Loader.calls["limits"] == 4
    assert [row["name"] for row in harness.rows("said")] == ["a", "b", "c", "a"]
    keys = [f"k{n}" for n in range(20)]
    harness.send("clicks", [{"k": k, "t": timedelta(seconds=1)} for k in keys]).advance_watermark("2s")
    Loader.calls.clear()
    harness.send("visits", {"v": 5})  # keys are visited: that is not shared
    assert Loader.calls["visits"] == 8
    harness.send("clicks", [{"k": k, "t": timedelta(seconds=3)} for k in keys]).advance_watermark("4s")
    found = [(row["v"], row["n"]) for row in harness.rows("out")]
    assert found == [(11, None)] * 20 + [(11, 5)] * 20
    assert len({store.read_page(PAGE) for store in harness.stores}) == 1


class Batches(StreamOperator):
    """Records the batches of a broadcast input."""

    rows = BroadcastInput("t TIMESTAMP, v BIGINT")
    others = BroadcastInput("t TIMESTAMP, v BIGINT")
    clicks = Input("k STRING, t TIMESTAMP")
    seen = Output("batch ARRAY<BIGINT>")

    @rows.process_batch
    def on_rows(self, batch: pa.Table, ctx: Any) -> None:
        self.seen.collect(batch=batch.column("v").to_pylist())

    @others.process_element
    def on_other(self, e: Any, ctx: Any) -> None:
        self.seen.collect(batch=[e.v])

    @clicks.process_element
    def on_click(self, e: Any, ctx: Any) -> None:
        self.seen.collect(batch=[])


@pytest.mark.parametrize("clicks", [False, True], ids=["a load", "among others"])
def test_a_batch_of_a_broadcast_input_is_all_elements_of_one_time(
    clicks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not converted to Python."""
    elements_of = Arrived.elements

    def elements(arrived: Arrived) -> Any:
        assert arrived.spec.name != "rows"
        return elements_of(arrived)

    monkeypatch.setattr(Arrived, "elements", elements)
    inputs = {"rows": {"time": "t"}, "others": {"time": "t"}, "clicks": {"key": "k", "time": "t"}}
    harness = StreamOperatorHarness(Batches(), inputs)
    rows = [(1, 1), (2, 2), (1, 3), (2, 4), (3, 5), (2, 6)]
    harness.send("rows", [{"t": timedelta(seconds=t), "v": v} for t, v in rows])
    harness.send("others", [{"t": timedelta(seconds=t), "v": -v} for t, v in rows[:3]])
    if clicks:
        harness.send("clicks", {"k": "a", "t": timedelta(seconds=1)})
    found = [row["batch"] for row in harness.end().rows("seen")]
    assert found == [[1, 3], [-1], [-3], *([[]] if clicks else []), [2, 4, 6], [-2], [5]]
