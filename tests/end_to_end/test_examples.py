"""The examples find what their data say."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from examples import flight_delays
from tests.end_to_end.programs import run_program

pytestmark = pytest.mark.spark

Program = Callable[[str], dict[str, Any]]


@pytest.fixture
def program(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    return lambda name: run_program(name, spark, tmp_path, monkeypatch)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


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


def test_delays_that_grow_from_flight_to_flight(program: Program, tmp_path: Path) -> None:
    aircraft: dict[str, list[dict[str, Any]]] = {}
    order = [("sched_dep", "ascending"), ("flight_id", "ascending")]
    for flight in pq.read_table(flight_delays.FLIGHTS).sort_by(order).to_pylist():
        aircraft.setdefault(flight["tailnum"], []).append(flight)
    counted = [(tailnum, *run) for tailnum, flights in aircraft.items() for run in runs_of_delays(flights)]
    rows = list(program("flight_delays")["runs"].itertuples())
    assert [(row.flights, row.ended) for row in rows] == sorted(((n, to) for _, n, _, to in counted), reverse=True)[:10]
    assert {(row.tailnum, row.flights, row.began, row.ended) for row in rows} <= set(counted)
    assert "<title>" in (tmp_path / "flight_delays.svg").read_text(encoding="utf-8")


def test_a_patient_who_was_not_seen_in_time(program: Program, tmp_path: Path) -> None:
    rows = program("vital_signs")["alarms"].itertuples(index=False)
    assert [tuple(row) for row in rows] == [("ben", 126, 88, datetime(2025, 3, 3, 9))]
    assert ">ben<" in (tmp_path / "vital_signs.svg").read_text(encoding="utf-8")
