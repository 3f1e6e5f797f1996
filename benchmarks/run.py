"""All benchmarks: ``python -m benchmarks.run --size M``.

Each item is measured by programs in processes of their own, one after the other. Progress is written to standard error, a table
per item to standard output. The records of each program are kept in ``benchmarks/data/results/<size>``, or in ``--out``: after an
interruption, the same command continues with the programs that have not ended.

The exit status is 1 if a program failed, or a result of a query was not the expected one, or, with ``--check``, a ratio became
worse.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import flink, harness, results
from benchmarks.gen_data import SIZES
from benchmarks.items import FLINK, ITEMS, Found, Item, Records, Step
from benchmarks.results import Comparison, Result

REPOSITORY = harness.HERE.parent
LEAST_MEMORY = 2**30
_SHOWN = ("seconds", "first", "more_than_s", "rest_events_per_s", "median_s", "p99_s")


class Measurements:
    """The records of the programs, in files of a folder: one for each that has ended."""

    def __init__(
        self, folder: Path, size: str, say: Callable[[str], None], *, quiet: float = 0, check: bool = False
    ) -> None:
        self.folder, self.size, self.say, self.quiet, self.check = folder, size, say, quiet, check
        self.failed: list[str] = []
        """The names of the programs that failed."""

    def forget(self, items: Iterable[Item]) -> None:
        for item in items:
            shutil.rmtree(self.folder / item.name, ignore_errors=True)

    def of(self, item: Item) -> list[Result]:
        """The results of an item; its programs run unless they have."""
        steps = [step for step in item.steps(self.size) if step.checked or not self.check]
        for reason in sorted({reason for step in steps if (reason := _missing(step))}):
            self.say(f"{item.name}: {reason}")
        steps = [step for step in steps if not _missing(step)]
        found: dict[str, list[dict[str, Any]]] = {}
        dates, busy = [], []
        for number, step in enumerate(steps, 1):
            path = self.folder / item.name / f"{step.name.replace(' ', '_')}.json"
            if not path.exists():
                self.say(f"{item.name} {number}/{len(steps)}: {step.name}")
                record = self._run(step, path.with_suffix(".log"))
                if record is None:
                    self.failed.append(f"{item.name}: {step.name}")
                    continue
                path.write_text(json.dumps(record, indent=1))
            record = json.loads(path.read_text())
            found[step.name] = record["records"]
            dates.append(record["date"])
            busy.append(record["busy"])
        collected = Found(item.name)
        item.results(Records(found), collected, self.size)
        return [
            replace(result, size=self.size, date=max(dates), machine=results.machine(), busy=max(busy))
            for result in collected.results
        ]

    def _run(self, step: Step, log: Path) -> dict[str, Any] | None:
        """What a program printed, and the conditions; None: it failed."""
        log.parent.mkdir(parents=True, exist_ok=True)
        busy = round(wait_until_quiet(self.quiet), 2)
        begin = time.monotonic()
        command = [sys.executable, "-m", step.module, *step.arguments]
        if step.cpus:
            cpus = sorted(os.sched_getaffinity(0))[: step.cpus]
            command = ["taskset", "--cpu-list", ",".join(map(str, cpus)), *command]
        records: list[dict[str, Any]] = []
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            ) as process,
        ):
            watch = Watch(process, step.limit)
            try:
                watch.start()
                assert process.stdout is not None
                for line in process.stdout:
                    if not line.startswith("{"):  # of a library
                        continue
                    record = json.loads(line)
                    records.append(record)
                    self.say(f"  {_brief(record)}")
                status = process.wait()
            finally:
                watch.done.set()
                _end(process)
        if status:
            self.say(f"  FAILED ({watch.reason or f'status {status}'}): {' '.join(command)}\n{_tail(log)}")
            return None
        date = datetime.now(UTC).date().isoformat()
        return {
            "command": command,
            "date": date,
            "seconds": round(time.monotonic() - begin),
            "busy": busy,
            "records": records,
        }


def _missing(step: Step) -> str | None:
    """What a program needs and the machine does not have."""
    if step.module == FLINK and flink.library() is None:
        return "without Flink, whose jars are not there (see benchmarks/programs.md)"
    if step.cpus and (shutil.which("taskset") is None or len(os.sched_getaffinity(0)) < step.cpus):
        return f"not measured on {step.cpus} CPUs: it needs them, and taskset"
    return None


class Watch(threading.Thread):
    """Ends a program that takes too long, or almost all memory of the machine."""

    def __init__(self, process: subprocess.Popen[str], limit: float) -> None:
        super().__init__(daemon=True)
        self.process, self.limit = process, limit
        self.done = threading.Event()
        self.reason: str | None = None
        """Why the program was ended."""

    def run(self) -> None:
        deadline = time.monotonic() + self.limit
        while not self.done.wait(0.5):
            if time.monotonic() > deadline:
                self.reason = f"ended after {self.limit:.0f} s"
            elif _available_memory() < LEAST_MEMORY:
                self.reason = f"ended, because the machine had less than {LEAST_MEMORY // 2**20} MB of memory left"
            if self.reason:
                _end(self.process)
                return


def _available_memory() -> int:
    """Bytes; elsewhere than on Linux, more than enough."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return sys.maxsize
    return next(int(line.split()[1]) << 10 for line in meminfo.read_text().splitlines() if "MemAvailable" in line)


def _end(process: subprocess.Popen[str]) -> None:
    """End the program with its descendants, which are in its session, if it runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _tail(log: Path) -> str:
    return "\n".join(f"  | {line}" for line in log.read_text(errors="replace").splitlines()[-20:])


def _brief(record: dict[str, Any]) -> str:
    """A record in a line: what was measured, and the most important numbers."""
    what = [str(record[name]) for name in ("case", "latency", "windows", "join", "workload", "mode") if name in record]
    what += [f"{name} {record[name]:,}" for name in ("rules", "open", "round") if name in record]
    numbers = [f"{name} {record[name]:,}" for name in _SHOWN if record.get(name) is not None]
    return f"{', '.join(what)}: {', '.join(numbers)}"


def _busy_ticks() -> int:
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0
    user, nice, system, _, _, interrupts, soft, stolen = map(int, stat.read_text().split()[1:9])
    return user + nice + system + interrupts + soft + stolen


def wait_until_quiet(seconds: float) -> float:
    """The cores that other programs use, over two seconds. Waits at most *seconds* until they are less than 0.15."""
    deadline = time.monotonic() + seconds
    while True:
        before, begin = _busy_ticks(), time.monotonic()
        time.sleep(2)
        busy = (_busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)
        if busy < 0.15 or time.monotonic() > deadline:
            return busy


# ------------------------------------------------------------------ tables


def table(item: Item, found: list[Result]) -> Table:
    header, rows = results.rows(found)
    shown = Table(title=f"{item.name}: {item.about}")
    for number, name in enumerate(header):
        shown.add_column(name, justify="right" if number else "left")
    for row in rows:
        shown.add_row(*row)
    return shown


def comparison_table(comparisons: list[Comparison]) -> Table:
    shown = Table("item", "case", "ratio", "stored", "now", "", title="ratios, the worst change first")
    for comparison in comparisons:
        now, stored = comparison.now, comparison.stored
        change = f"{comparison.times_worse:.2f} times worse" if comparison.times_worse >= 1 else "better"
        verdict = f"WORSE: {change}" if comparison.worse else change
        shown.add_row(now.item, now.case, now.name, results.number(stored.value), results.number(now.value), verdict)
    return shown


# ------------------------------------------------------------------ command line


def check(measured: Measurements, items: list[Item], tolerance: float, console: Console) -> bool:
    """Whether no ratio became worse. An item with a worse one is measured again, and the better value counts."""
    stored = results.load(results.STORED)
    found = {item.name: measured.of(item) for item in items}

    def comparisons() -> list[Comparison]:
        return results.compare([result for of_item in found.values() for result in of_item], stored, tolerance)

    for name in sorted({comparison.now.item for comparison in comparisons() if comparison.worse}):
        measured.say(f"{name}: worse, so it is measured again")
        measured.forget([ITEMS[name]])
        found[name] = results.better_of(found[name], measured.of(ITEMS[name]))
    compared = comparisons()
    console.print(comparison_table(compared))
    if not compared:
        console.print(f"No ratio of size {measured.size} is stored: measure with --store first.")
    return bool(compared) and not any(comparison.worse for comparison in compared)


def _items(text: str) -> list[Item]:
    names = text.split(",")
    unknown = [name for name in names if name not in ITEMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(ITEMS)}")
    return [ITEMS[name] for name in names]


def main(arguments: list[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Run all benchmarks.")
    cli.add_argument("--size", choices=list(SIZES), default="S")
    cli.add_argument("--items", type=_items, help=f"separated by commas; default: all ({', '.join(ITEMS)})")
    cli.add_argument("--again", action="store_true", help="measure the items again that have been measured")
    cli.add_argument("--out", type=Path, help="folder of the records; default: benchmarks/data/results/<size>")
    cli.add_argument(
        "--quiet", type=float, default=0, help="seconds to wait for other programs before each measurement"
    )
    cli.add_argument("--store", action="store_true", help="write results.json and the tables of README.md")
    cli.add_argument("--check", action="store_true", help="compare the ratios that take little time with results.json")
    cli.add_argument(
        "--tolerance", type=float, default=0.3, help="of --check: 0.3 allows a ratio to be 1.3 times worse"
    )
    args = cli.parse_args(arguments)
    if args.check and (args.store or args.out or args.again):
        cli.error("--check measures everything again, in a temporary folder")

    console = Console()
    console.width = max(console.width, 130)
    begin = time.monotonic()

    def say(text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - begin), 60)
        print(f"[{minutes:3}:{seconds:02}] {text}", file=sys.stderr, flush=True)

    if args.check:
        with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch:
            measured = Measurements(Path(scratch), args.size, say, quiet=args.quiet, check=True)
            known = {result.item for result in results.load(results.STORED) if result.size == args.size}
            items = args.items or [item for item in ITEMS.values() if item.checked and item.name in known]
            good = check(measured, items, args.tolerance, console)
    else:
        folder = args.out or harness.HERE / "data" / "results" / args.size
        measured = Measurements(folder, args.size, say, quiet=args.quiet)
        items = args.items or list(ITEMS.values())
        if args.again:
            measured.forget(items)
        found = []
        for item in items:
            of_item = measured.of(item)
            found += of_item
            if of_item:
                console.print(table(item, of_item))
        if args.store:
            stored = results.merged(results.load(results.STORED), found)
            results.save(stored, results.STORED)
            results.README.write_text(results.with_results(results.README.read_text(), stored))
        good = True
    for name in measured.failed:
        console.print(f"FAILED: {name}")
    return 0 if good and not measured.failed else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the running program is ended, too
    sys.exit(main())
