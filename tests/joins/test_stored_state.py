"""State of joins that an earlier release has written opens. ``python -m tests.joins.test_stored_state`` stores it; what is stored
is never written again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from asterism import SlidingWindows
from asterism.testing import JoinHarness

STORED = Path(__file__).parent / "stored" / "0.2.0-alpha"
SECOND = timedelta(seconds=1)
ORDERS = {"key": ["shop", "id"], "time": "ts", "columns": "shop STRING, id BIGINT, ts TIMESTAMP, amount DECIMAL(10, 2)"}
PRICES = {
    "key": ["shop", "item"],
    "time": "at",
    "columns": "shop STRING, item BIGINT, at BIGINT, price DECIMAL(10, 2), tags ARRAY<STRING>",
    "idle_after": 60 * SECOND,
}
JOINS: dict[str, Callable[[], JoinHarness]] = {
    "interval": lambda: JoinHarness.interval_join(
        ORDERS, PRICES, (-5 * SECOND, 5 * SECOND), how="left", on="price >= amount", key_groups=2
    ),
    "as_of": lambda: JoinHarness.as_of_join(ORDERS, {**PRICES, "order_by": ["-price"]}, how="left", key_groups=2),
    "window": lambda: JoinHarness.window_join(
        ORDERS, PRICES, SlidingWindows.of(9 * SECOND, 3 * SECOND), how="left_anti", key_groups=2
    ),
    "multi": lambda: JoinHarness.multi_join(
        {"orders": ORDERS, "prices": PRICES, "refunds": {**ORDERS, "columns": ORDERS["columns"].replace("amount", "refund")}},
        {("orders", "prices"): (-5 * SECOND, 5 * SECOND), ("prices", "refunds"): (0 * SECOND, 6 * SECOND)},
        how={"refunds": "left"},
        on={"prices": "price >= amount"},
        prefix={"refunds": "refund_"},
        key_groups=2,
    ),
}  # fmt: skip


def send(harness: JoinHarness, first: int, last: int) -> None:
    """Rows of some seconds; those of the last ones wait."""
    orders = [{"shop": "ab"[n % 2], "id": n % 3 or None, "ts": f"{n}s", "amount": n % 4} for n in range(first, last)]
    prices = [
        {"shop": "ab"[n % 2], "item": n % 3 or None, "at": n * 1000, "price": n % 5, "tags": ["x", str(n)]}
        for n in range(first, last)
    ]
    refunds = [{**{k: v for k, v in row.items() if k != "amount"}, "refund": row["amount"]} for row in orders[::2]]
    for name, rows in zip(harness.wires, (orders, prices, refunds), strict=False):
        harness.send(name, rows)
    harness.advance_watermark(f"{last - 3}s")


@pytest.mark.parametrize("name", JOINS)
def test_state_of_an_earlier_release_opens(name: str) -> None:
    whole = JOINS[name]()
    send(whole, 0, 20)
    stored = [
        (base64.b64decode(header), {int(number): base64.b64decode(page) for number, page in pages.items()})
        for header, pages in json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
    ]
    restored = JOINS[name]().restore(replace(whole.snapshot(), state=tuple(stored)))
    for harness in (whole, restored):
        send(harness, 20, 40)
        harness.end()
        assert harness.is_empty
    assert len(whole.results) > 20
    assert sorted(map(str, restored.results)) == sorted(map(str, whole.results))


def main() -> None:
    STORED.mkdir(parents=True, exist_ok=True)
    for name, make in JOINS.items():
        path = STORED / f"{name}.json"
        if path.exists():
            continue
        harness = make()
        send(harness, 0, 20)
        stores = [
            [
                base64.b64encode(header or b"").decode(),
                {n: base64.b64encode(page).decode() for n, page in pages.items()},
            ]
            for header, pages in harness.snapshot().state
        ]
        path.write_text(json.dumps(stores, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
