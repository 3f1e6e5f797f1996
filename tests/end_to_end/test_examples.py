"""The examples find what their data say."""

from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from asterism import timeline
from examples import early_results, exchange_rates, flight_delays, order_journey, thresholds, vital_signs

pytestmark = pytest.mark.spark


def printed() -> tuple[Console, StringIO]:
    """A terminal of 80 columns, and what stands on it."""
    text = StringIO()
    return Console(file=text, width=80), text


def test_payments_are_converted_at_the_rate_of_their_time(spark: SparkSession, tmp_path: Path) -> None:
    exchange_rates.write_files(tmp_path)
    found = exchange_rates.convert(spark, tmp_path)
    assert [(row["id"], row["rate"], row["euros"], row["total"]) for row in found["converted"]] == [
        (1, 0.90, 90.0, 90.0),
        (2, 1.15, 23.0, 23.0),
        (3, 0.85, 85.0, 175.0),
        (5, 1.15, 11.5, 186.5),
        (6, 1.20, 12.0, 198.5),
        (7, 1.05, 52.5, 75.5),
    ]
    assert found["unknown"] == [{"id": 4, "account": "bob", "currency": "CHF"}]
    console, text = printed()
    exchange_rates.show(console, found)
    assert "10.00 GBP  │ 1.20 │ 12.00 │ 198.50" in text.getvalue()
    assert "Payment 4: no rate of CHF was in force" in text.getvalue()


def test_orders_tell_what_they_miss_after_their_deadline(spark: SparkSession, tmp_path: Path) -> None:
    order_journey.write_files(tmp_path)
    found = order_journey.follow(spark, tmp_path)
    assert [(row["order_id"], row["customer"], row["what"]) for row in found["missing"]] == [
        (2, "bob", "shipment"),
        (3, "cid", "payment and shipment"),
        (4, "dora", "payment"),
    ]
    assert found["missing"][0]["ordered"] == datetime(2025, 3, 3, 10, tzinfo=UTC)
    assert [(row["order_id"], row["what"]) for row in found["strays"]] == [(3, "payment"), (9, "payment")]
    console, text = printed()
    order_journey.show(console, found)
    assert "cid      │ 03 Mar 11:00 │ payment and shipment" in text.getvalue()
    assert "A payment for order 9, which is not open" in text.getvalue()


def test_a_threshold_changes_while_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    found = thresholds.watch(spark, tmp_path)
    assert [(f"{row['time']:%H:%M}", row["oven"], row["threshold"], row["what"]) for row in found] == [
        ("12:01", "west", 250.0, "too hot"),
        ("12:02", "west", 250.0, "well again"),
        ("12:03", "east", 230.0, "too hot"),
        ("12:03", "west", 230.0, "too hot"),
        ("12:05", "west", 230.0, "well again"),
    ]
    console, text = printed()
    thresholds.show(console, found)
    assert "12:01 │ west │ 255 °C      │ 250 °C    │ too hot" in text.getvalue()


def test_hours_are_told_early_on_time_and_again_when_a_sale_comes_late(spark: SparkSession, tmp_path: Path) -> None:
    early_results.write_files(tmp_path)
    found = early_results.add_up(spark, tmp_path)
    rows = found["results"]
    assert [
        (row["window_start"].hour, row["kind"], row["sales"], row["total"]) for row in rows if row["shop"] == "bern"
    ] == [
        (9, "early", 2, 30.0),
        (9, "early", 3, 35.0),
        (9, "on_time", 3, 35.0),
        (9, "late", 4, 75.0),
        (10, "early", 1, 15.0),
        (10, "on_time", 1, 15.0),
    ]
    assert [row["firing"] for row in rows] == [1, 2, 3, 4, 1, 2, 1, 2, 3, 1, 2, 3, 1, 2]
    assert [(row["shop"], row["amount"]) for row in found["late"]] == [("bern", 99.0)]
    console, text = printed()
    early_results.show(console, found)
    assert "bern │ 09:00 │ 4      │ late    │ 4     │ 75.00" in text.getvalue()
    assert "Too late: 99.00 in bern at 09:50" in text.getvalue()


def runs_of_delays(flights: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """The same by hand, for the flights of an aircraft in order: number of flights, first and last delay."""
    found, at = [], 0
    while at < len(flights):
        end = at
        if flights[at]["dep_delay"] is not None and flights[at]["dep_delay"] >= 15:
            while end + 1 < len(flights):
                before, after = flights[end], flights[end + 1]
                if after["dep_delay"] is None or after["dep_delay"] < before["dep_delay"] + 15:
                    break
                if end > at and after["sched_dep"] - before["sched_dep"] >= timedelta(hours=12):
                    break
                end += 1
        if end - at >= 2:
            found.append((end - at + 1, flights[at]["dep_delay"], flights[end]["dep_delay"]))
            at = end
        at += 1
    return found


def test_delays_that_grow_from_flight_to_flight(spark: SparkSession) -> None:
    aircraft: dict[str, list[dict[str, Any]]] = {}
    order = [("sched_dep", "ascending"), ("flight_id", "ascending")]
    for flight in pq.read_table(flight_delays.FLIGHTS).sort_by(order).to_pylist():
        aircraft.setdefault(flight["tailnum"], []).append(flight)
    counted = [(tailnum, *run) for tailnum, flights in aircraft.items() for run in runs_of_delays(flights)]
    rows = flight_delays.longest(flight_delays.find(spark)).collect()
    assert [(row.flights, row.ended) for row in rows] == sorted(((n, to) for _, n, _, to in counted), reverse=True)[:10]
    assert {(row.tailnum, row.flights, row.began, row.ended) for row in rows} <= set(counted)


def test_a_patient_who_was_not_seen_in_time(spark: SparkSession) -> None:
    found = vital_signs.find(spark)
    rows = found.select("MAX(warning.pulse) AS pulse", "MIN(warning.oxygen) AS oxygen", "match_time").collect()
    assert [tuple(row) for row in rows] == [("ben", 126, 88, datetime(2025, 3, 3, 9))]
    assert ">ben<" in timeline(found.matches, "patient", end="match_time").to_svg()
