"""Where the time of a micro-batch goes: ``python -m benchmarks.micro_batches``.

The cases *stream*, *state* and *spark* of ``cold_start``, each in a new process and twice in its session: over files of 1,000
events, with as many shuffle partitions. The parts come from Spark's event log, for the first micro-batch of a fresh session
(*first*), the first of the second query (*warm first*), and the median of the others of that query (*warm*):

* *until the first trigger*: the query is built and started, in Python and in the JVM;
* *offsets*, *planning*, *logs*: what Spark reports as ``latestOffset`` and ``getBatch``, ``queryPlanning``, ``walCommit`` and
  ``commitOffsets``;
* *sink, before the job*: from the begin of the sink to the begin of its job: the rows of the outputs are planned;
* *first stage*, *second stage*: of the job, from the begin to the end of each. A pattern packs events in the first one, and has
  the operator and its output in the second one; the others have no Python in the first one;
* *sink, after the job*: the rows are brought to the driver;
* *Python*: all tasks together, from the begin of the input to the end of the output; *CPU of the JVM*: of all tasks.

One JSON line per case and micro-batch on standard output, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import cold_start

CASES = {"stream": cold_start.run_pattern, "state": cold_start.run_state, "spark": cold_start.run_window}
OFFSETS, LOGS = ("latestOffset", "getBatch"), ("walCommit", "commitOffsets")
PYTHON = "time to run Python workers"
Parts = dict[str, float]


def run_twice(case: str, log: str) -> None:
    """Two queries in one session; prints when each begins, in seconds since the epoch."""
    spark = cold_start.session(
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log,
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
    )
    begins = []
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "in")
        cold_start.write(folder)
        for name in ("first", "second"):
            begins.append(time.time())
            CASES[case](spark, folder, Path(scratch, name))
    spark.stop()
    print(json.dumps(begins))


def parts_of(events: Iterable[dict[str, Any]], begins: list[float]) -> list[list[Parts]]:
    """The parts of the micro-batches with input of each query."""
    jobs: dict[tuple[str, str], dict[str, Any]] = {}
    stages: dict[int, dict[str, Any]] = {}
    runs: dict[str, list[Parts]] = {}
    sinks: dict[int, tuple[int, int]] = {}
    began: dict[int, int] = {}
    for event in events:
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerSQLExecutionStart" and event["executionId"] == event["rootExecutionId"]:
            began[event["executionId"]] = event["time"]
        elif kind == "SparkListenerSQLExecutionEnd" and event["executionId"] in began:
            sinks[event["executionId"]] = began[event["executionId"]], event["time"]
        elif kind == "SparkListenerJobStart":
            properties = event["Properties"]
            if batch := properties.get("streaming.sql.batchId"):
                jobs[properties["sql.streaming.queryId"], batch] = event
        elif kind == "SparkListenerStageCompleted":
            stages[event["Stage Info"]["Stage ID"]] = event["Stage Info"]
        elif kind.endswith("QueryProgressEvent"):
            progress = event["progress"]
            job = jobs.get((progress["id"], str(progress["batchId"])))
            if job is not None and any(source["numInputRows"] for source in progress["sources"]):
                of_query = runs.setdefault(progress["id"], [])
                begin = begins[len(runs) - 1] if not of_query else None
                of_query.append(_parts(progress, job, stages, sinks, begin))
    return list(runs.values())


def _parts(
    progress: dict[str, Any],
    job: dict[str, Any],
    stages: dict[int, dict[str, Any]],
    sinks: dict[int, tuple[int, int]],
    begin: float | None,
) -> Parts:
    durations = progress["durationMs"]
    sink = sinks.get(int(job["Properties"]["spark.sql.execution.root.id"]))
    run = [stages[number] for number in sorted(job["Stage IDs"]) if number in stages]
    parts: Parts = {}
    if begin is not None:
        parts["until the first trigger"] = 1000 * (datetime.fromisoformat(progress["timestamp"]).timestamp() - begin)
    parts["offsets"] = sum(durations.get(name, 0) for name in OFFSETS)
    parts["planning"] = durations["queryPlanning"]
    parts["logs"] = sum(durations.get(name, 0) for name in LOGS)
    if sink is not None:
        parts["sink, before the job"] = job["Submission Time"] - sink[0]
        parts["sink, after the job"] = sink[1] - run[-1]["Completion Time"]
    for name, stage in zip(("first stage", "second stage"), run, strict=False):
        parts[name] = stage["Completion Time"] - stage["Submission Time"]
    parts["micro-batch"] = durations["triggerExecution"]
    parts["Python"] = sum(_accumulated(stage, PYTHON) for stage in run)
    parts["CPU of the JVM"] = sum(_accumulated(stage, "internal.metrics.executorCpuTime") for stage in run) / 1e6
    return parts


def _accumulated(stage: dict[str, Any], name: str) -> float:
    return sum(float(value["Value"]) for value in stage["Accumulables"] if value["Name"] == name)


def profiled(case: str) -> Iterator[dict[str, Any]]:
    """Run a case in a new process: a record for each kind of micro-batch."""
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as log:
        command = [sys.executable, "-m", "benchmarks.micro_batches", "--only", case, log]
        ended = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        (path,) = (path for path in Path(log).iterdir() if path.is_file() and not path.name.startswith("."))
        with path.open() as lines:
            first, second = parts_of(map(json.loads, lines), json.loads(ended.stdout.splitlines()[-1]))
    others = second[1:]
    median = {name: statistics.median(parts[name] for parts in others) for name in others[0]}
    for name, parts in (("first", first[0]), ("warm first", second[0]), ("warm", median)):
        yield {"case": case, "micro_batch": name} | {part: round(value) for part, value in parts.items()}


def main(arguments: list[str] | None = None) -> int:
    cli = argparse.ArgumentParser(
        prog="python -m benchmarks.micro_batches", description="Where the time of a micro-batch goes."
    )
    cli.add_argument("--cases", default=",".join(CASES), help=f"separated by commas; default: {','.join(CASES)}")
    cli.add_argument("--rounds", type=int, default=1)
    cli.add_argument("--only", nargs=2, help=argparse.SUPPRESS)  # of a new process
    args = cli.parse_args(arguments)
    if args.only is not None:
        run_twice(*args.only)
        return 0
    cold_start.compile_package()
    for _ in range(args.rounds):
        for case in args.cases.split(","):
            for record in profiled(case):
                print(json.dumps(record), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
