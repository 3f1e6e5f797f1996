"""The items of ``python -m benchmarks.run``: which programs measure them, and which results follow from their records."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from benchmarks import flink, live, live_processes, tables
from benchmarks.joins import JOINS
from benchmarks.multi_joins import CHAIN, MULTI
from benchmarks.results import Result
from benchmarks.row_patterns import CASES, LONG
from benchmarks.throughput import (
    BATCH,
    BATCH_FLOOR,
    FLOOR,
    PARQUET_STREAM,
    SQL_BATCH,
    SQL_STREAM,
    STATEMENT,
    STREAM,
    WINDOW,
)
from benchmarks.windows import WINDOWS
from benchmarks.workloads import WORKLOADS

FLINK = "benchmarks.flink"


@dataclass(frozen=True, slots=True)
class Step:
    """A program that measures a part of an item, in a process of its own."""

    name: str
    module: str
    arguments: tuple[str, ...]
    limit: float = 3600
    """Seconds after which it is ended."""
    cpus: int = 0
    """How many CPUs it may use; 0: all."""
    checked: bool = True
    """Whether ``make bench-check`` runs it: it gives ratios, and takes little time."""


Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Records:
    """What the steps of an item have printed."""

    of_step: Mapping[str, Sequence[Record]]

    def median(self, step: str, field: str, **where: Any) -> float | None:
        """The median over the rounds of a step, without the warm-up (round 0) if there are others; None: not measured."""
        found = self._where(step, where)
        rounds = [record for record in found if record.get("round", 1)] or found
        values = [record[field] for record in rounds if record.get(field) is not None]
        return float(statistics.median(values)) if values else None

    def most(self, step: str, field: str, **where: Any) -> float | None:
        """The largest value of all rounds; None: not measured."""
        values = (record.get(field) for record in self._where(step, where))
        return max((float(value) for value in values if value is not None), default=None)

    def _where(self, step: str, where: Mapping[str, Any]) -> list[Record]:
        records = self.of_step.get(step, ())
        return [record for record in records if all(record.get(name) == value for name, value in where.items())]


class Found:
    """Collects results; those with a value that was not measured are left out."""

    def __init__(self, item: str) -> None:
        self.item = item
        self.results: list[Result] = []

    def value(self, case: str, name: str, value: float | None, unit: str, *, per: float = 1, **options: Any) -> None:
        """*per*: how many of what was measured are one of *unit*."""
        if value is not None:
            self.results.append(Result(self.item, case, name, round(value / per, 4), unit, **options))

    def ratio(self, case: str, name: str, of: float | None, to: float | None, **options: Any) -> None:
        if of is not None and to:
            self.results.append(Result(self.item, case, name, round(of / to, 4), **options))


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    about: str
    steps: Callable[[str], list[Step]]
    """Of a size."""
    results: Callable[[Records, Found, str], None]
    checked: bool = False
    """Whether ``make bench-check`` measures it."""


# ------------------------------------------------------------------ W1 to W5

LARGER = {"XS": "S", "S": "M", "M": "L"}
WARM_UPS = 3
"""Flink's second run of a stream is as fast as its third. Asterism's rounds are shorter, and become faster up to the fourth."""


def _measure(
    name: str, size: str, workload: str, modes: str, *more: str, runs: int = 3, warm_ups: int = 1, cpus: int = 0
) -> Step:
    numbers = ("--runs", str(runs), "--warm-ups", str(warm_ups))
    arguments = ("--size", size, "--workloads", workload, "--modes", modes, *numbers, *more)
    return Step(name, "benchmarks.throughput", arguments, cpus=cpus)


def _flink(size: str, workload: str, variant: str, *, runs: int = 2, limit: float = 1800, checked: bool = True) -> Step:
    """With a limit of its own, which it reports. That of the step is only reached if that fails."""
    arguments = (
        "--size",
        size,
        "--workloads",
        workload,
        "--variants",
        variant,
        "--runs",
        str(runs),
        "--limit",
        str(limit),
    )
    return Step(f"{workload} {variant}", FLINK, arguments, limit=limit + 300, checked=checked)


def _throughput_steps(size: str) -> list[Step]:
    steps = []
    for name in WORKLOADS:
        steps.append(_measure(name, size, name, f"{FLOOR},{STREAM}", warm_ups=WARM_UPS))
        written = _measure(f"{name} {PARQUET_STREAM}", size, name, PARQUET_STREAM, warm_ups=WARM_UPS)
        steps.append(replace(written, checked=False))
        steps += [_flink(size, name, variant.name) for variant in _streams_of_flink(name)]
    steps.append(_measure("W1 tuned", size, "W1", STREAM, "--settings", "tuned", warm_ups=WARM_UPS))
    return steps


def _throughput(records: Records, found: Found, size: str) -> None:
    for name in WORKLOADS:
        rest = _times_flink(records, found, name)
        found.ratio(name, "times the floor", rest, records.median(name, "events_per_s", mode=FLOOR))
    default, tuned = (records.median(step, "seconds", mode=STREAM) for step in ("W1", "W1 tuned"))
    found.ratio("W1", "default settings over tuned", default, tuned, target=1.2, less=True)


def _times_flink(records: Records, found: Found, name: str) -> float | None:
    """The results of a workload that are compared with Flink's. Returns its events per second after the first micro-batch."""
    rest = records.median(name, "rest_events_per_s", mode=STREAM)
    whole = records.median(name, "events_per_s", mode=STREAM)
    by_flink = records.median(f"{name} {flink.STREAM}", "events_per_s")
    filtered = records.median(f"{name} {flink.FILTERED}", "events_per_s")
    found.value(name, "thousand events/s, after the first", rest, "k", per=1000)
    found.value(name, "Flink", by_flink, "k", per=1000)
    found.ratio(name, "times Flink, after the first", rest, by_flink, target=4 if name == "W2" else 5)
    found.ratio(name, "times Flink with a filter", rest, filtered, target=2)
    found.ratio(name, "times Flink, whole run", whole, by_flink, target=2.5)
    written = records.median(f"{name} {PARQUET_STREAM}", "rest_events_per_s")
    found.ratio(name, "times Flink, written as Parquet", written, by_flink)
    return rest


def _large_batches_steps(size: str) -> list[Step]:
    larger = LARGER.get(size, size)
    steps = []
    for name in WORKLOADS:
        steps.append(_measure(name, larger, name, STREAM, runs=2))
        steps += [_flink(larger, name, variant.name, runs=1) for variant in _streams_of_flink(name)]
    return steps


def _large_batches(records: Records, found: Found, size: str) -> None:
    for name in WORKLOADS:
        _times_flink(records, found, name)


def _streams_of_flink(workload: str) -> list[flink.Variant]:
    variants = (flink.VARIANTS[variant] for variant in (flink.STREAM, flink.FILTERED))
    return [variant for variant in variants if workload in variant.workloads]


def _batch_steps(size: str) -> list[Step]:
    steps = [
        _measure(
            name,
            size,
            name,
            f"{WINDOW},{BATCH}" if name == "W5" else f"{BATCH_FLOOR},{WINDOW},{BATCH}",
            warm_ups=WARM_UPS,
        )
        for name in WORKLOADS
    ]
    return [*steps, _flink(size, "W5", flink.BATCH)]


def _batch(records: Records, found: Found, size: str) -> None:
    for name in WORKLOADS:
        seconds = records.median(name, "seconds", mode=BATCH)
        by_hand = records.median(name, "seconds", mode=WINDOW)
        by_flink = records.median(f"{name} {flink.BATCH}", "seconds")
        found.value(name, "seconds", seconds, "s")
        found.value(name, "window query", by_hand, "s")
        target = None if name == "W5" else 1.2  # a window query for W5 builds all subsets in arrays
        found.ratio(name, "over the window query", seconds, by_hand, target=target, less=True)
        floor = records.median(name, "seconds", mode=BATCH_FLOOR)
        found.ratio(name, "floor over the window query", floor, by_hand, less=True)
        found.value(name, "Flink", by_flink, "s")
        found.ratio(name, "times Flink", by_flink, seconds, target=5)


def _tables_steps(size: str) -> list[Step]:
    steps = []
    for name in WORKLOADS:
        for mode in tables.MODES:
            warm_ups = str(WARM_UPS if mode == tables.SPARK else 1)
            arguments = ("--size", size, "--workloads", name, "--modes", mode, "--warm-ups", warm_ups)
            steps.append(Step(f"{name} {mode}", "benchmarks.tables", arguments))
    return [*steps, _flink(size, "W5", flink.BATCH)]


def _tables(records: Records, found: Found, size: str) -> None:
    for name in WORKLOADS:
        seconds = {mode: records.median(f"{name} {mode}", "seconds", mode=mode) for mode in tables.MODES}
        ours = seconds[tables.ASTERISM]
        found.value(name, "seconds", ours, "s")
        found.value(name, "CPU", records.median(f"{name} {tables.ASTERISM}", "cpu_s"), "s")
        found.ratio(name, "two threads over one", seconds[tables.ONE_THREAD], ours)
        found.ratio(name, "times Spark's warm session", seconds[tables.SPARK], ours, target=1.5)
        found.ratio(name, "times DuckDB", seconds[tables.DUCKDB], ours, target=2)
        found.ratio(name, "times Polars", seconds[tables.POLARS], ours, target=2)
        found.ratio(name, "times Flink", records.median(f"{name} {flink.BATCH}", "seconds"), ours, target=8)


IN_PROCESSES = "W1 in processes"


def _live_steps(size: str) -> list[Step]:
    """All but the last two do not depend on the data."""
    cases = ("latency", "rules", "throughput", "cold")
    steps = [Step(case, "benchmarks.live", ("--cases", case), limit=900) for case in cases]
    modes = f"{live_processes.PROCESSES},{live_processes.THREADS}"
    in_processes = Step(IN_PROCESSES, "benchmarks.live_processes", ("--size", size, "--modes", modes))
    return [*steps, in_processes, _flink(size, "W1", flink.STREAM)]


def _live(records: Records, found: Found, size: str) -> None:
    def latencies(row: str, step: str, most: float, **where: Any) -> None:
        found.value(row, "median", records.median(step, "p50", **where), "ms")
        found.value(row, "99%", records.median(step, "p99", **where), "ms", target=most, less=True)
        found.value(row, "CPU of a call", records.median(step, "cpu_ms", **where), "ms")

    for users in (100, 10_000):
        latencies(f"one pattern, {users:,} users", "latency", 5, case=live.PATTERN, users=users)
    latencies("1,000 rules, 10,000 users", "rules", 20, case=live.RULES)
    for batch in live.EVENTS_BY_BATCH:
        rate = records.median("throughput", "events_per_second", batch=batch)
        found.value(f"batches of {batch:,}, one pattern", "thousand events/s, one thread", rate, "k", per=1000)
    one, two, in_threads = (
        records.median(IN_PROCESSES, "events_per_s", mode=mode, engines=engines)
        for mode, engines in ((live_processes.PROCESSES, 1), (live_processes.PROCESSES, 2), (live_processes.THREADS, 2))
    )
    case = f"W1, batches of {live_processes.BATCH:,}"
    found.value(case, "thousand events/s, one thread", one, "k", per=1000)
    found.value(case, "two processes", two, "k", per=1000)
    found.ratio(case, "times one process", two, one)
    found.ratio(case, "two threads over one", in_threads, one)
    by_flink = records.median(f"W1 {flink.STREAM}", "events_per_s")
    found.value(case, "Flink", by_flink, "k", per=1000)
    found.ratio(case, "times Flink, two processes", two, by_flink, target=5)
    for case in live.COLD_STARTS:
        ours, by_duckdb = (
            records.median("cold", "seconds", case=case, program=program) for program in (live.ASTERISM, live.DUCKDB)
        )
        found.value(f"new process, {case}", "first match", ours, "s", target=1, less=True)
        found.ratio(f"new process, {case}", "over DuckDB's first answer", ours, by_duckdb, less=True)


CLAUSES = tuple(name for name, workload in WORKLOADS.items() if workload.clause is not None)
TABLES = "tables"


def _row_patterns_steps(size: str) -> list[Step]:
    steps = []
    for name in CLAUSES:
        modes = f"{WINDOW},{SQL_BATCH},{SQL_STREAM},{STATEMENT}"
        steps.append(_measure(name, size, name, modes, warm_ups=WARM_UPS))
        steps.append(_flink(size, name, flink.SQL))
    return [*steps, Step(TABLES, "benchmarks.row_patterns", ("--size", size, "--runs", "5"))]


def _row_patterns(records: Records, found: Found, size: str) -> None:
    for name in CLAUSES:
        rest = records.median(name, "rest_events_per_s", mode=SQL_STREAM)
        whole = records.median(name, "events_per_s", mode=SQL_STREAM)
        by_flink = records.median(f"{name} {flink.SQL}", "events_per_s")
        found.value(name, "thousand rows/s, after the first", rest, "k", per=1000)
        found.value(name, "Flink SQL", by_flink, "k", per=1000)
        found.ratio(name, "times Flink SQL, after the first", rest, by_flink, target=10)
        found.ratio(name, "times Flink SQL, whole run", whole, by_flink)
        by_statement = records.median(name, "rest_events_per_s", mode=STATEMENT)
        found.ratio(name, "statement over the clause's own run", rest, by_statement, target=1.2, less=True)
        seconds = records.median(name, "seconds", mode=SQL_BATCH)
        by_hand = records.median(name, "seconds", mode=WINDOW)
        found.value(name, "batch", seconds, "s")
        found.ratio(name, "batch over the window query", seconds, by_hand, target=2, less=True)
    for case in CASES:
        found.value(case, "thousand rows/s", records.median(TABLES, "rows_per_s", case=case), "k", per=1000)
        target = 1 if case == LONG else None
        found.value(case, "batch", records.median(TABLES, "seconds", case=case), "s", target=target, less=True)


REPLAYED = ("W1", "W2")
HEAP_GB = 2


def _replay_steps(size: str) -> list[Step]:
    sizes = (size, LARGER.get(size, size))
    return [
        _measure(f"{name} {one}", one, name, f"{BATCH},{STREAM}", "--memory", f"{HEAP_GB}g", runs=1)
        for name, one in product(REPLAYED, dict.fromkeys(sizes))
    ]


def _replay(records: Records, found: Found, size: str) -> None:
    larger = LARGER.get(size, size)
    target = 4.5 if (size, larger) == ("M", "L") else None
    for name, mode in product(REPLAYED, (BATCH, STREAM)):
        case = f"{name}, {mode}"
        small, large = (records.median(f"{name} {one}", "seconds", mode=mode) for one in (size, larger))
        memory = records.most(f"{name} {larger}", "peak_rss_mb", mode=mode)
        found.value(case, f"size {larger}", large, "s")
        found.ratio(case, f"{larger} over {size}", large, small, target=target, less=True)
        target_memory = None if target is None else 6
        found.value(case, "largest memory", memory, "GB", per=1024, target=target_memory, less=True)


CORES = ("W1", "W2")


def _cores_steps(size: str) -> list[Step]:
    return [
        _measure(f"{name}, {cores}", size, name, f"{FLOOR},{STREAM}", "--cores", str(cores), runs=2, cpus=cores)
        for name, cores in product(CORES, (1, 2))
    ]


def _cores(records: Records, found: Found, size: str) -> None:
    for name in CORES:
        one, two = (records.median(f"{name}, {cores}", "rest_events_per_s", mode=STREAM) for cores in (1, 2))
        found.value(name, "thousand events/s on one core", one, "k", per=1000)
        found.ratio(name, "on two cores", two, one, target=1.8)
        one, two = (records.median(f"{name}, {cores}", "events_per_s", mode=FLOOR) for cores in (1, 2))
        found.ratio(name, "floor on two cores", two, one)


# ------------------------------------------------------------------ state, cold start


def _series(size: str) -> list[int]:
    return [10**3, 10**4, 10**5] if size in ("XS", "S") else [10**3, 10**4, 10**5, 10**6, 10**7]


def _state_steps(size: str) -> list[Step]:
    """The last series needs a process of its own: nobody knows that it ends."""
    *others, last = (str(count) for count in _series(size))
    return [
        Step("series", "benchmarks.state", ("--open", ",".join(others), "--batches", "16")),
        Step("largest", "benchmarks.state", ("--open", last, "--batches", "12")),
    ]


def _state(records: Records, found: Found, size: str) -> None:
    *others, last = _series(size)
    first = others[0]
    for step, count in (*(("series", count) for count in others), ("largest", last)):
        case = f"{count:,}"
        for name, field, unit, per in (("seconds", "seconds", "s", 1), ("written", "bytes_written", "MB", 10**6)):
            value, before = records.median(step, field, open=count), records.median("series", field, open=first)
            found.value(case, name, value, unit, per=per)
            if count > first:
                target = 1.5 if count <= 10**6 else None
                found.ratio(case, f"{name} over {first:,}", value, before, target=target, less=True)


COLD = "cold"


def _cold_steps(size: str) -> list[Step]:
    return [Step(COLD, "benchmarks.cold_start", ("--rounds", "2"))]


def _cold_start(records: Records, found: Found, size: str) -> None:
    def of(case: str, field: str) -> float | None:
        return records.median(COLD, field, case=case)

    for case in ("match, nothing compiled", "match"):
        found.value(case, "first result", of(case, "first"), "s", target=3, less=True)
    for case in ("stream, nothing compiled", "stream"):
        found.value(case, "first result", of(case, "first"), "s")
        found.ratio(case, "first over Spark's own", of(case, "first"), of("spark", "first"), target=1.5, less=True)
        found.ratio(case, "others over Spark's own", of(case, "others"), of("spark", "others"), less=True)
        found.ratio(case, "first over Spark's state in Python", of(case, "first"), of("state", "first"), less=True)
        found.ratio(case, "others over Spark's state in Python", of(case, "others"), of("state", "others"), less=True)
        first_again, others_again = of(case, "first, again"), of(case, "others, again")
        found.ratio(case, "first over others, warm session", first_again, others_again, target=1.5, less=True)
        found.ratio(
            case, "run, default settings over tuned", of(case, "run"), of("stream, tuned", "run"), target=1.2, less=True
        )


# ------------------------------------------------------------------ rules


def _size_of_rules(size: str) -> str:
    """Flink does not come to an end at larger sizes."""
    return size if size == "XS" else "S"


RULES = (1, 100, 1_000)
MANY_RULES = 10_000
FLINK_LIMIT = 600


def _rules_steps(size: str) -> list[Step]:
    at = _size_of_rules(size)
    counts = ",".join(str(count) for count in RULES)
    many = ("--size", "XS", "--counts", str(MANY_RULES), "--runs", "0")
    return [
        Step("rules", "benchmarks.dynamic", ("--size", at, "--counts", counts, "--fixed", "--runs", "2")),
        Step("unwritten", "benchmarks.dynamic", ("--size", at, "--counts", "100,1000", "--unwritten", "--runs", "2")),
        _flink(at, "W6", flink.STREAM, runs=0, limit=FLINK_LIMIT, checked=False),
        Step("many", "benchmarks.dynamic", many, limit=1800, checked=False),
    ]


def _rules(records: Records, found: Found, size: str) -> None:
    def rest(count: int) -> float | None:
        return records.median("rules", "rest_events_per_s", rules=count)

    fixed = records.median("rules", "rest_events_per_s", rules=0)
    found.value("one fixed pattern", "thousand events/s, after the first", fixed, "k", per=1000)
    for count in RULES:
        case = f"{count:,} rule" + "s" * (count > 1)
        found.value(case, "thousand events/s, after the first", rest(count), "k", per=1000)
        memory = records.most("rules", "peak_rss_mb", rules=count)
        found.value(case, "largest memory", memory, "GB", per=1024)
    found.ratio("1 rule", "times the fixed pattern", rest(1), fixed, target=1)
    found.ratio("1,000 rules", "cost over 100 rules", rest(100), rest(1_000), target=3, less=True)
    few, more = (records.median("unwritten", "rest_events_per_s", rules=n) for n in (100, 1_000))
    found.ratio("1,000 rules", "cost over 100 rules, matches not written", few, more, target=3, less=True)
    w6 = f"W6 {flink.STREAM}"
    seconds = records.median("rules", "seconds", rules=100)
    by_flink, more_than = records.median(w6, "seconds"), records.median(w6, "more_than_s")
    found.ratio("100 rules", "times Flink (W6)", by_flink or more_than, seconds, target=20, bound=by_flink is None)
    case = f"{MANY_RULES:,} rules, size XS"
    many = records.median("many", "rest_events_per_s", rules=MANY_RULES)
    found.value(case, "thousand events/s, after the first", many, "k", per=1000)
    memory = records.most("many", "peak_rss_mb", rules=MANY_RULES)
    found.value(case, "largest memory", memory, "GB", per=1024)


# ------------------------------------------------------------------ windows


def _windows_steps(size: str) -> list[Step]:
    arguments = ("--size", size, "--modes", "asterism,spark", "--runs", "3")
    return [Step(name, "benchmarks.windows", ("--windows", name, *arguments)) for name in WINDOWS]


def _windows(records: Records, found: Found, size: str) -> None:
    for name in WINDOWS:
        rest, by_spark = (records.median(name, "rest_events_per_s", mode=mode) for mode in ("asterism", "spark"))
        first, first_of_spark = (records.median(name, "first_batch_s", mode=mode) for mode in ("asterism", "spark"))
        found.value(name, "thousand events/s, after the first", rest, "k", per=1000)
        found.ratio(name, "times Spark's own", rest, by_spark, target=1)
        found.ratio(name, "first micro-batch over Spark's", first, first_of_spark, target=1.5, less=True)


# ------------------------------------------------------------------ joins


def _joins_steps(size: str) -> list[Step]:
    return [Step(name, "benchmarks.joins", ("--size", size, "--joins", name)) for name in JOINS]


def _joins(records: Records, found: Found, size: str) -> None:
    for name in JOINS:
        rest, by_spark = (records.median(name, "rest_events_per_s", mode=mode) for mode in ("asterism", "spark"))
        whole, whole_of_spark = (records.median(name, "events_per_s", mode=mode) for mode in ("asterism", "spark"))
        found.value(name, "thousand events/s, after the first", rest, "k", per=1000)
        found.ratio(name, "times Spark's own", rest, by_spark, target=1)
        found.ratio(name, "times Spark's own, whole run", whole, whole_of_spark)


THREE = "three streams"


def _multi_joins_steps(size: str) -> list[Step]:
    return [Step(THREE, "benchmarks.multi_joins", ("--size", size, "--modes", MULTI, CHAIN, "--runs", "2"))]


def _multi_joins(records: Records, found: Found, size: str) -> None:
    def of(mode: str, field: str) -> float | None:
        return records.median(THREE, field, mode=mode)

    for case, mode in (("multi_join", MULTI), ("chain of interval_join", CHAIN)):
        found.value(case, "seconds", of(mode, "seconds"), "s")
        found.value(case, "files of state", of(mode, "state_mb"), "MB")
        if mode == MULTI:
            found.ratio(case, "times the chain", of(CHAIN, "seconds"), of(MULTI, "seconds"), target=1)
            found.ratio(case, "state over the chain", of(MULTI, "state_mb"), of(CHAIN, "state_mb"), target=1, less=True)


# ------------------------------------------------------------------ latency


def _latency_steps(size: str) -> list[Step]:
    whats = ("idle", "quiet", "match", "rule")
    return [Step(what, "benchmarks.latency", ("--what", what), checked=what == "idle") for what in whats]


def _latency(records: Records, found: Found, size: str) -> None:
    ours, by_spark = (records.median("idle", "median_s", mode=mode) for mode in ("asterism", "spark"))
    case = "micro-batch without events"
    found.value(case, "median", ours, "s")
    beyond = None if ours is None or by_spark is None else (ours - by_spark) * 1000
    found.value(case, "beyond Spark's own", beyond, "ms", target=250, less=True)
    found.ratio(case, "over Spark's own", ours, by_spark, less=True)
    for case, trigger, most in (("event to match in the sink", 0.5, 1), ("the same, Spark's default trigger", 0, 0.45)):
        found.value(case, "median", records.median("match", "median_s", trigger_s=trigger), "s")
        found.value(case, "99%", records.median("match", "p99_s", trigger_s=trigger), "s", target=most, less=True)
        found.value(case, "CPU without events", records.median("quiet", "cpu_per_s", trigger_s=trigger), "s/s")
    case = "commit of a rule until it is in force"
    found.value(case, "median", records.median("rule", "in_force_median_s"), "s")
    found.value(case, "90%", records.median("rule", "in_force_p90_s"), "s", target=0.8, less=True)
    case = "commit of a rule to its first match in the sink"
    found.value(case, "median", records.median("rule", "median_s"), "s")
    found.value(case, "90%", records.median("rule", "p90_s"), "s")


# ------------------------------------------------------------------ changes of rules


def _rule_load_steps(size: str) -> list[Step]:
    """One that does not depend on the data."""
    return [Step("changes", "benchmarks.rule_load", (), limit=1800, checked=False)]


def _rule_load(records: Records, found: Found, size: str) -> None:
    case = "1,000 rules, 1,000 events/s"
    for name, field, target in (
        ("changes lost", "lost", 0),
        ("in force twice", "twice", 0),
        ("memory of Python, last over second quarter", "growth", 1.05),
    ):
        found.value(case, name, records.median("changes", field), "", target=target, less=True)
    found.value(case, "changes per second", records.median("changes", "changes_per_s"), "", target=49)
    found.value(case, "CPU of Python per change", records.median("changes", "python_cpu_ms_per_change"), "ms")
    found.value(case, "request, 99%", records.median("changes", "put_p99_s"), "s")
    found.value(case, "until the last is in force", records.median("changes", "settled_s"), "s")


ITEMS = {
    item.name: item
    for item in (
        Item("throughput", "W1 to W5 as streams.", _throughput_steps, _throughput, checked=True),
        Item(
            "large_batches",
            "W1 to W5 as streams of the next size, in as many micro-batches.",
            _large_batches_steps,
            _large_batches,
        ),
        Item("batch", "W1 to W5 as batch queries.", _batch_steps, _batch, checked=True),
        Item("tables", "W1 to W5 without Spark, beside Spark, DuckDB, Polars and Flink.", _tables_steps, _tables),
        Item("live", "A live engine without Spark: latency, throughput, start.", _live_steps, _live),
        Item(
            "row_patterns",
            "MATCH_RECOGNIZE: W1 to W3, and tables without Spark.",
            _row_patterns_steps,
            _row_patterns,
            checked=True,
        ),
        Item("replay", "W1 and W2 over the data of the next size.", _replay_steps, _replay),
        Item("state", "Micro-batches of 1,000 events over open partial matches.", _state_steps, _state, checked=True),
        Item("cold_start", "First results in new processes.", _cold_steps, _cold_start),
        Item("rules", "1 to 10,000 rules over one stream.", _rules_steps, _rules, checked=True),
        Item("windows", "Windows, and Spark's own.", _windows_steps, _windows, checked=True),
        Item("joins", "Joins of two streams, and Spark's own.", _joins_steps, _joins, checked=True),
        Item(
            "multi_joins",
            "A join of three streams, as one operator and as a chain.",
            _multi_joins_steps,
            _multi_joins,
            checked=True,
        ),
        Item("latency", "Seconds from cause to effect.", _latency_steps, _latency, checked=True),
        Item("rule_load", "Changes of rules through the endpoint, for five minutes.", _rule_load_steps, _rule_load),
        Item("cores", "W1 and W2 on one core and on two.", _cores_steps, _cores),
    )
}
