"""More of the examples find what their data say."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples import exchange_rates, order_journey, thresholds
from tests.end_to_end import test_examples
from tests.end_to_end.test_examples import Program, at

pytestmark = pytest.mark.spark
program = test_examples.program


def test_payments_are_converted_at_the_rate_of_their_time(program: Program, tmp_path: Path) -> None:
    arrived: dict[str, list[Any]] = {"payments": [], "rates": []}
    for name, *rows in exchange_rates.ARRIVING:
        arrived[name] += rows
    expected = []
    for id, time, account, currency, amount in arrived["payments"]:
        since, rate = max(
            ((since, rate) for since, of, rate in arrived["rates"] if of == currency and since <= time),
            default=(None, None),
        )
        euros = None if rate is None else round(amount * rate, 2)
        expected.append((id, at(time), account, currency, amount, since and at(since), euros))
    found = program("exchange_rates")["found"]
    assert [tuple(row) for row in found.collect()] == expected
    assert [row[-1] for row in expected] == [90.0, None, 85.0, 12.0]
    assert ">ann, GBP<" in (tmp_path / "exchange_rates.svg").read_text(encoding="utf-8")


def test_orders_tell_what_they_miss_after_their_deadline(program: Program, tmp_path: Path) -> None:
    times = {name: {id: at(f"2025-{time}") for id, time in rows.items()} for name, rows in order_journey.EVENTS.items()}
    orders, watermark = times.pop("orders"), at("2025-03-09 08:00")
    missing, strays = [], []
    for id, ordered in orders.items():
        deadline = ordered + timedelta(days=3)
        steps = [step for step in ("payments", "shipments") if times[step].get(id, deadline) >= deadline]
        if steps and deadline <= watermark:
            missing.append((id, ordered, deadline, steps))
    for step, rows in times.items():
        for id, time in rows.items():
            if id not in orders or time >= orders[id] + timedelta(days=3):
                strays.append((id, time, step))
    found = program("order_journey")["found"]
    assert [tuple(row) for row in found["missing"].collect()] == missing
    assert [tuple(row) for row in found["strays"].collect()] == sorted(strays)
    assert [id for id, *_ in missing] == [2, 3, 4]
    assert [id for id, *_ in sorted(strays)] == [3, 9]
    assert ">4<" in (tmp_path / "order_journey.svg").read_text(encoding="utf-8")


def test_hours_are_told_early_on_time_and_again_when_a_sale_comes_late(program: Program, tmp_path: Path) -> None:
    found = program("early_results")["found"]
    rows = found["results"].orderBy("shop", "window_start", "firing").collect()
    assert [(row.window_start.hour, row.kind, row.sales, row.total) for row in rows if row.shop == "bern"] == [
        (9, "early", 2, 30),
        (9, "early", 3, 35),
        (9, "on_time", 3, 35),
        (9, "late", 4, 75),
        (10, "early", 1, 15),
        (10, "on_time", 1, 15),
    ]
    assert [row.firing for row in rows] == [1, 2, 3, 4, 1, 2, 1, 2, 3, 1, 2, 3, 1, 2]
    assert [(row.shop, row.amount) for row in found["late"].collect()] == [("bern", 99)]
    picture = (tmp_path / "early_results.svg").read_text(encoding="utf-8")
    assert all(
        text in picture for text in ("#1 early: 10 20", "#3 on time: 10 20 5", "#4 late: 10 20 5 40", "too late: 99")
    )


def test_a_threshold_changes_while_the_query_runs(program: Program, tmp_path: Path) -> None:
    expected, since = [], dict[str, datetime]()
    for oven, text, celsius in thresholds.READINGS[:-2]:  # the watermark has not passed the last ones
        time = at(text)
        is_hot = celsius > (250 if time.minute < 3 else 230)
        if is_hot and oven not in since:
            since[oven] = time
            expected.append((oven, time, celsius, None, "too hot"))
        elif oven in since and not is_hot:
            expected.append((oven, time, celsius, since.pop(oven), "well again"))
    found = program("thresholds")["found"]
    assert [tuple(row) for row in found.collect()] == expected
    assert [(row[0], row[1].minute) for row in expected] == [
        ("west", 1), ("west", 2), ("east", 3), ("west", 3), ("west", 5), ("east", 7)
    ]  # fmt: skip
    assert ">east<" in (tmp_path / "thresholds.svg").read_text(encoding="utf-8")
