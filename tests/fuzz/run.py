"""``make fuzz``: many random texts, by ``python -m tests.fuzz.run [how many] [seed]``; which texts did harm, and why."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import IO

from tests.fuzz.texts import Texts

MAX_SECONDS = 8.0
"""of CPU time, for one text; the slowest that is known takes about two, with forty conditions"""
MAX_MEMORY = 2 * 1024**3  # bytes that a worker may have in use after all its texts
MAX_WAIT = 300.0  # seconds by the clock, after which a text is taken to hang


@dataclass
class Report:
    """How many texts were taken and refused, and what else happened: (seed, kind, text, what)."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str, str]] = field(default_factory=list)
    slowest: float = 0.0
    memory: int = 0

    def __str__(self) -> str:
        lines = [f"{dict(self.outcomes)}, slowest {self.slowest:.2f} s of CPU time, {self.memory / 1e6:.0f} MB"]
        lines += [f"\nseed {seed} {kind}\n{text[:2000]!r}\n{what}" for seed, kind, text, what in self.failures]
        return "\n".join(lines)


class Worker:
    """A process that looks at one text after the other; after a failure that it does not survive there is a new one."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.fuzz.worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answers: queue.Queue[str] = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout, self._answers), daemon=True).start()

    @staticmethod
    def _read(stream: IO[str], answers: queue.Queue[str]) -> None:
        for line in stream:
            answers.put(line)
        answers.put("")

    def ask(self, kind: str, text: str) -> dict[str, float | str]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([kind, text]) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=MAX_WAIT)
        except (queue.Empty, BrokenPipeError):
            line = ""
        if not line:
            self.close()
            code = self._process.returncode
            self._start()
            return {"outcome": f"the process hung or died ({code})", "seconds": 0.0, "memory": 0}
        answer: dict[str, float | str] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def run(count: int, seed: int) -> Report:
    """Look at the texts of *count* seeds, one each, from *seed* on."""
    report, worker = Report(), Worker()
    try:
        for number in range(seed, seed + count):
            kind, text = Texts(number).one()
            answer = worker.ask(kind, text)
            found, seconds = str(answer["outcome"]), float(answer["seconds"])
            report.slowest = max(report.slowest, seconds)
            report.memory = max(report.memory, int(answer["memory"]))
            if seconds > MAX_SECONDS:
                found = f"{seconds:.1f} s of CPU time"
            if found in ("taken", "refused"):
                report.outcomes[f"{kind} {found}"] += 1
            else:
                report.failures.append((number, kind, text, found))
    finally:
        worker.close()
    if report.memory > MAX_MEMORY:
        report.failures.append((seed, "all", "", f"{report.memory / 1e6:.0f} MB in use"))
    return report


def main(arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 10_000
    seed = int(arguments[1]) if len(arguments) > 1 else time.time_ns() % 10**9
    print(f"{count} texts from seed {seed} on", flush=True)  # noqa: T201
    report = run(count, seed)
    print(report)  # noqa: T201
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
