"""Queries on a cluster, and their expected results."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import harness, rules, windows
from benchmarks.gen_data import Parameters, generate, write
from benchmarks.streaming import in_order_of_arrival
from benchmarks.workloads import DISORDER, WORKLOADS
from tests.cluster.processes import Cluster, Process
from tests.end_to_end.victim import CALL, held, hold_mark

Answer = tuple[int, str]
"""The number of results, and their checksum."""


def run(cluster: Cluster, data: Path, folder: Path, names: Sequence[str]) -> Mapping[str, pa.Table]:
    """The rows of each query. With a name W1_2, a worker is killed while micro-batch 2 of W1 runs; another one takes its
    place, unless it is the last query.

    :param data: a folder with the files of a benchmark, in order of arrival
    """
    arguments = [cluster.url, str(data / "parquet"), str(folder), *names]
    with Process(folder, "driver", sys.executable, "-m", "tests.cluster.driver", *arguments) as driver:
        for name in names:
            if "_" in name:
                driver.wait(held(folder / name, CALL))
                cluster.kill_worker()
                hold_mark(folder / name, CALL).unlink()
                if name != names[-1]:
                    cluster.start_worker()
            driver.wait(folder / name / "seconds")
        driver.wait()
        lost = re.findall(r"ERROR TaskSchedulerImpl: Lost executor \d+", driver.text())
    assert len(lost) == sum("_" in name for name in names), "a worker was killed that had no executor"
    return {name: pq.read_table(folder / name / "out") for name in names}


def data_of(parameters: Parameters, folder: Path) -> None:
    """Make the data as :func:`run` reads them."""
    write(generate(parameters), folder / "made", parameters)
    (folder / "made" / "meta.json").rename(folder / "meta.json")
    in_order_of_arrival(folder / "made" / "parquet", folder / "parquet")


def answer(name: str, rows: pa.Table, data: Path) -> Answer:
    if name in WORKLOADS:
        workload = WORKLOADS[name]
        return rows.num_rows, harness.checksum(workload.tag, workload.times(rows))
    if name == "W6":
        return rules.answer(rows)
    return windows.answer(rows, windows.WINDOWS[name][0], _until(data))


def expected(name: str, size: str, data: Path) -> Answer:
    return _windows(name, data) if name in windows.WINDOWS else harness.expected(size, name)


def _windows(name: str, data: Path) -> Answer:
    size, slide = (length // windows.MICROSECOND for length in windows.WINDOWS[name])
    events = pq.read_table(data / "parquet")
    times = events.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    newest = pc.multiply(pc.divide(times, slide), slide)
    cents = pc.round(pc.multiply(events.column("amount"), 100)).cast(pa.int64())
    starts = [pc.subtract(newest, number * slide) for number in range(size // slide)]
    elements = pa.concat_tables(
        [pa.table({"key": events.column("user_id"), "window_start": start, "cents": cents}) for start in starts]
    )
    rows = elements.group_by(["key", "window_start"]).aggregate([("cents", "sum"), ("cents", "count")])
    rows = rows.rename_columns({"cents_sum": "total", "cents_count": "n"})
    starts_as_times = rows.column("window_start").cast(pa.timestamp("us", "UTC"))
    rows = rows.set_column(rows.schema.get_field_index("window_start"), "window_start", starts_as_times)
    return windows.answer(rows, windows.WINDOWS[name][0], _until(data))


def _until(data: Path) -> int:
    """Windows that end before this time (microseconds) have been closed by the watermark."""
    last: int = json.loads((data / "meta.json").read_text())["last_event_time"]
    return last * 1000 - (DISORDER + windows.MARGIN) // timedelta(microseconds=1)
