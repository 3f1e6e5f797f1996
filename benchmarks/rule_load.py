"""Rules that change all the time: ``python -m benchmarks.rule_load``.

A query reads 1,000 events/s and has 1,000 rules. A client sends 50 changes a second to its endpoint, each the next version of a
rule. At the end, every rule must have the version that was acknowledged last, and no event may have completed matches of two
versions of a rule.

One JSON line on standard output. The exit status is 1 if a change was lost, or in force twice.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, Pattern
from asterism.discovery import HttpPatternProcessorDiscovererFactory, history_of, wait_for
from asterism.rules.definition.processor import PatternProcessor
from benchmarks import harness
from benchmarks.latency import PATIENCE, USERS, events_since_now, running, trigger_of

TOKEN = "a-token-for-this-benchmark"
CLIENTS = 8
RECENT = 20
"""The number of micro-batches whose matches are compared."""
SAMPLES = 20
"""The number of samples of the memory."""


def rule_of(number: int, version: int) -> PatternProcessor:
    """One that finds pairs of events of one user. Each version has a condition of its own."""
    first = f"number % 2 = 0 AND user = {number % USERS} AND number > -{version}"
    return PatternProcessor(
        f"rule {number}", version, Pattern.begin("a").where(first).next("b").where("number % 2 = 1")
    )


class RuleClient:
    """Changes rules, each of which belongs to one client."""

    def __init__(self, port: int, rules: range) -> None:
        self.port, self.rules = port, rules
        self.acknowledged: dict[str, int] = {}
        self.seconds: list[float] = []
        """Of the requests."""

    def put(self, number: int) -> None:
        new = rule_of(number, self.acknowledged.get(f"rule {number}", 0) + 1)
        begin = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection.request("PUT", f"/processors/rule%20{number}", new.text.encode(), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status not in (200, 201):
            raise RuntimeError(f"the endpoint answered {answer.status}: {text[:200]!r}")
        self.acknowledged[new.id] = new.version
        self.seconds.append(time.monotonic() - begin)

    def change(self, seconds: float, rate: float) -> None:
        """Change one rule after the other, at *rate* per second."""
        begin = time.monotonic()
        for n in range(int(seconds * rate)):
            time.sleep(max(0.0, begin + n / rate - time.monotonic()))
            self.put(self.rules[n % len(self.rules)])


class MatchedEvents:
    """A sink that counts the matches, and those that have the rule and the event of another one."""

    def __init__(self) -> None:
        self.matches, self.twice = 0, 0
        self._recent: deque[Counter[tuple[str, int]]] = deque(maxlen=RECENT)
        """The matches of the last micro-batches. Event time is common to all keys, so later ones have other events."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        found = rows.select("processor_id", "match_time").collect()
        new = Counter((row.processor_id, row.match_time) for row in found)
        self.matches += len(found)
        self.twice += len(found) - len(new) + sum(len(new.keys() & old.keys()) for old in self._recent)
        self._recent.append(new)


def measure(rules: int, seconds: float, rate: float, cores: int) -> dict[str, Any]:
    spark = harness.session(cores, "4g", harness.DEFAULT)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    clients = [RuleClient(port, range(n, rules, CLIENTS)) for n in range(CLIENTS)]
    matched = MatchedEvents()
    memory: list[dict[bool, tuple[float, float]]] = []
    of_processes: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="asterism-rules-") as folder, ThreadPoolExecutor(CLIENTS) as threads:
        factory = HttpPatternProcessorDiscovererFactory(port, token=TOKEN, state=f"{folder}/set.json")
        found = CEP.pattern_processors(events_since_now(spark), factory, store=f"{folder}/store")
        start = partial(found.run, {"matches": matched}, trigger=trigger_of(0.5))
        with running(lambda checkpoint: start(checkpoint=checkpoint)) as query:
            _await_endpoint(port)
            for client in clients:
                for number in client.rules:
                    client.put(number)
            wait_for(f"{folder}/store", _acknowledged(clients), timeout=timedelta(seconds=PATIENCE))
            for client in clients:
                client.seconds.clear()
            heap = [_live_heap_mb(spark)]
            before = harness.family_use()
            begin = time.monotonic()
            work = [threads.submit(client.change, seconds, rate / CLIENTS) for client in clients]
            for _ in range(SAMPLES):
                time.sleep(seconds / SAMPLES)
                memory.append(harness.family_use())
                of_processes.append(harness.family_memory())
            for one in work:
                one.result()
            took = time.monotonic() - begin
            settled = time.monotonic()
            status = wait_for(f"{folder}/store", _acknowledged(clients), timeout=timedelta(seconds=PATIENCE))
            settled = time.monotonic() - settled
            after = harness.family_use()
            heap.append(_live_heap_mb(spark))
            batches = query.lastProgress
        wanted = _acknowledged(clients)
        in_force = Counter((rule.id, rule.version) for rule in status.rules if rule.state == "in force")
        history = history_of(f"{folder}/store")
    of_rule: dict[str, list[int]] = {}
    for entry in history:
        of_rule.setdefault(entry.id, []).append(entry.version or 0)
    cpu = {is_jvm: after[is_jvm][1] - before[is_jvm][1] for is_jvm in (False, True)}
    python_mb, jvm_mb = ([round(one[is_jvm][0]) for one in memory] for is_jvm in (False, True))
    waits = [one for client in clients for one in client.seconds]
    return {
        "rules": rules,
        "seconds": round(took, 1),
        "changes": len(waits),
        "changes_per_s": round(len(waits) / took, 1),
        "put_median_s": round(statistics.median(waits), 4),
        "put_p99_s": round(statistics.quantiles(waits, n=100)[98], 4),
        "settled_s": round(settled, 2),
        "sets": max(entry.set for entry in history),
        "matches": matched.matches,
        "micro_batches": 0 if batches is None else batches["batchId"],
        "lost": sum(in_force[id, version] != 1 for id, version in wanted.items()),
        "refused": sum(entry.what == "refused" for entry in history),
        "twice": matched.twice + sum(versions != sorted(set(versions)) for versions in of_rule.values()),
        "python_cpu_ms_per_change": round(1000 * cpu[False] / len(waits), 1),
        "jvm_cpu_ms_per_change": round(1000 * cpu[True] / len(waits), 1),
        "load": round(os.getloadavg()[1], 1),
        "python_mb": python_mb,
        "jvm_mb": jvm_mb,
        "live_heap_mb": heap,
        "mb_by_process": _by_process(of_processes),
        "growth": _growth(python_mb),
        "jvm_growth": _growth(jvm_mb),
    }


def _acknowledged(clients: list[RuleClient]) -> dict[str, int]:
    return {id: version for client in clients for id, version in client.acknowledged.items()}


def _await_endpoint(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _growth(mb: list[int]) -> float:
    """From the second quarter of the samples to the last one."""
    before, after = _quarters(mb)
    return round(after / before, 3)


def _quarters(mb: Sequence[float]) -> tuple[float, float]:
    """The medians of the second quarter of the samples and of the last one."""
    quarter = SAMPLES // 4
    return statistics.median(mb[quarter : 2 * quarter]), statistics.median(mb[-quarter:])


def _by_process(samples: Sequence[Mapping[str, float]]) -> dict[str, list[int]]:
    """:func:`_quarters` of each process that ran all the time."""
    names = [name for name in samples[0] if all(name in sample for sample in samples)]
    return {name: [round(mb) for mb in _quarters([sample[name] for sample in samples])] for name in names}


def _live_heap_mb(spark: SparkSession) -> int:
    """What of the JVM's heap is in use after a collection; the rest of its memory is garbage, or free."""
    runtime = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr] # it is a classic session
    runtime.gc()
    return int((runtime.totalMemory() - runtime.freeMemory()) / 2**20)


def main(arguments: list[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m benchmarks.rule_load", description="Change rules while a query runs.")
    cli.add_argument("--rules", type=int, default=1_000)
    cli.add_argument("--seconds", type=float, default=300, help="of changes")
    cli.add_argument("--rate", type=float, default=50, help="changes per second")
    cli.add_argument("--cores", type=int, default=2)
    args = cli.parse_args(arguments)
    record = measure(args.rules, args.seconds, args.rate, args.cores)
    print(json.dumps({"round": 1} | record), flush=True)
    return 1 if record["lost"] or record["twice"] else 0


if __name__ == "__main__":
    sys.exit(main())
