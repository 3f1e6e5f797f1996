"""The nemesis: feeds a victim with events and rules, does harm to it, fault after fault, and has it checked at the end."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit import spawned
from tests.nemesis.queries import QUERIES, SECONDS
from tests.nemesis.replay import FINISH, FINISHED, Verdict, check, check_lakes, kept_operator
from tests.nemesis.storages import Checkpoint, Storage
from tests.servers import lakes

ROOT = Path(__file__).resolve().parents[2]
INJECT = Path(__file__).parent / "inject"

_spec = importlib.util.spec_from_file_location("crash_points", INJECT / "crash_points.py")
assert _spec is not None
assert _spec.loader is not None
crash_points: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crash_points)

SELF, JVM, DRIVER, ALL = "self", "jvm", "driver", "all"
KILL, STOP, ERROR, CLOCK = "kill", "stop", "error", "clock"

BOTH = ("before", "after")
COMMON = [
    *(f"{name}.{when}" for name in ("source.offset", "source.commit") for when in BOTH),
    *(f"{name}.{when}" for name in ("pack.prepare", "state.call", "state.operator", "state.flush") for when in BOTH),
    "state.init.after", "sink.before", "sink.middle", "sink.after", "batch.end",
    "file.offset", "file.state", "file.commit",
]  # fmt: skip
RULES = [
    # Without rules a control source has nothing to read between the first micro-batch and the end of input.
    *(f"{name}.{when}" for name in ("source.partitions", "source.read") for when in BOTH),
    *(f"{name}.{when}" for name in ("rules.claim", "rules.updated", "rules.committed") for when in BOTH),
    *(f"{name}.{when}" for name in ("store.put", "store.write", "store.move", "store.status") for when in BOTH),
]  # fmt: skip
FILES = {"file.offset": "offsets", "file.state": "state", "file.commit": "commits"}
"""Points that nobody passes: a file has appeared in the checkpoint. The nemesis sees it, and acts."""
FAULTS: list[tuple[str, str]] = [
    (KILL, SELF), (KILL, SELF), (KILL, SELF), (KILL, JVM), (KILL, DRIVER), (KILL, ALL),
    (STOP, SELF), (STOP, JVM), (STOP, DRIVER), (ERROR, SELF), (CLOCK, SELF),
]  # fmt: skip
STORED = "storage"
"""A point that is at no function: the storage of the checkpoint is harmed."""
MOST_FAILURES = 20
"""One after the other, without a micro-batch between them: the query cannot go on."""
IN_THE_DRIVER = ("sink.", "batch.")
AT_START = ("rules.claim",)
IN_EACH_KEY_GROUP = ("pack.", "state.", "file.state")
"""Points that are passed several times in a micro-batch."""


@dataclass(frozen=True)
class Fault:
    """What happens, where, and at the how-many-th passing."""

    number: int
    point: str
    passing: int
    fault: str
    target: str
    seconds: float = 0.0

    def __str__(self) -> str:
        seconds = f" {self.seconds:g} s" if self.seconds else ""
        return f"{self.fault} {self.target}{seconds} at {self.point} #{self.passing}"

    @property
    def name(self) -> str:
        return f"{self.fault} {self.target}"


def points_of(kind: str, storage: Storage | None = None) -> list[str]:
    points = [*COMMON, *(RULES if QUERIES[kind].has_rules else [])]
    return [point for point in points if storage is None or storage.renames or not point.startswith("store.move")]


def drawn(rng: random.Random, number: int, point: str) -> Fault:
    fault, target = rng.choice(FAULTS)
    if point in FILES:
        fault, target = rng.choice([(KILL, JVM), (KILL, DRIVER), (KILL, ALL), (STOP, JVM), (STOP, DRIVER)])
    elif point.startswith(IN_THE_DRIVER) and target == DRIVER:
        target = SELF
    seconds = 0.0
    if fault == STOP:
        seconds = rng.choice([0.5, 1.0, 3.0])
    elif fault == CLOCK:
        seconds = rng.choice([-86_400.0, -60.0, 60.0, 3_600.0, 86_400.0 * 40])
    most = 6 if point.startswith(IN_EACH_KEY_GROUP) else 1 if point.startswith(AT_START) else 2
    return Fault(number, point, rng.randint(1, most), fault, target, seconds)


@dataclass
class Outcome:
    """Of a fault: did it happen, in which micro-batch, and did the query go on?"""

    fault: Fault
    hit: bool = False
    batch: int = -1
    recovered: bool = False
    seconds: float = 0.0


@dataclass
class Life:
    """One query from its first event to its drain.

    :param faults: one after the other; the next when the query has recovered from the last
    :param tell: hears what happens
    :param java: options of its JVM
    """

    folder: Path
    kind: str
    seed: int
    faults: Sequence[Fault]
    tell: Callable[[str], None] = lambda _: None
    java: str = ""
    storage: Storage | None = None
    """Where its checkpoint is; None: in its folder."""
    lakes: bool = False
    """Whether its rows are also written to Delta and Iceberg."""
    patience: float = 300.0
    """Seconds without a micro-batch after which the query counts as hung."""
    outcomes: list[Outcome] = field(default_factory=list)
    starts: int = 0

    def __post_init__(self) -> None:
        (self.folder / crash_points.PASSED).mkdir(parents=True, exist_ok=True)
        self.query = QUERIES[self.kind](self.folder, self.seed)
        self.checkpoint = Checkpoint(self.folder, self.storage)
        self.rng = random.Random(f"life {self.seed}")
        self.victim: subprocess.Popen[bytes] | None = None
        self.fed = 0
        self.moved = time.monotonic()
        self.seen = -1
        self.failures = 0

    # ------------------------------------------------------------------ the victim

    def start(self) -> None:
        path = os.pathsep.join([str(INJECT), str(ROOT / "src"), str(ROOT)])
        environment = os.environ | {"PYTHONPATH": path}
        if self.lakes:
            environment = lakes.environment(INJECT) | {"NEMESIS_LAKES": "1"}
        environment |= {"NEMESIS": str(self.folder), "NEMESIS_JAVA": self.java}
        with (self.folder / "log").open("ab") as log:
            self.victim = spawned(
                [sys.executable, "-m", "tests.nemesis.victim", str(self.folder), self.kind, str(self.seed)],
                env=environment, stdout=log, stderr=log, start_new_session=True, cwd=ROOT,
            )  # fmt: skip
        self.starts += 1

    def bury(self) -> None:
        """End what is left of the victim: whatever belongs to its session. There must not be two of them on a checkpoint."""
        assert self.victim is not None
        session = self.victim.pid
        for _ in range(100):
            left = list(_members(session))
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.victim.poll()
            if not left:
                return
            time.sleep(0.05)
        raise AssertionError(f"processes of {session} do not die: {left}")

    def tick(self) -> None:
        """Restart what is dead, and feed what is hungry."""
        assert self.victim is not None
        if self.victim.poll() is not None and not (self.folder / FINISHED).exists():
            self.bury()
            self.start()
        committed = self.committed
        if committed != self.seen:
            self.seen, self.moved, self.failures = committed, time.monotonic(), self._failures
        if self._failures > self.failures + MOST_FAILURES:
            raise AssertionError(f"it fails again and again; {self.folder}/log:\n{self.log[-3000:]}")
        if time.monotonic() - self.moved > self.patience:
            raise TimeoutError(f"no micro-batch for {self.patience:g} seconds; {self.folder}/log:\n{self.log[-3000:]}")
        if not (self.folder / FINISH).exists() and self.fed < committed + 2:
            self.query.feed(self.fed)
            self.fed += 1
            if self.rng.random() < 0.4:
                self.change_rules()

    def change_rules(self) -> None:
        if self.query.has_rules:
            self.query.change_rules(self.rng, self.fed * SECONDS)

    @property
    def _failures(self) -> int:
        restarts = self.folder / "restarts"
        return self.starts + (restarts.stat().st_size if restarts.exists() else 0)

    @property
    def never_passed(self) -> set[str]:
        """Points at which no fault can happen: the library has changed, and FUNCTIONS has not."""
        return (
            set(points_of(self.kind, self.storage))
            - set(FILES)
            - {path.name for path in (self.folder / crash_points.PASSED).iterdir()}
        )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def committed(self) -> int:
        return self.checkpoint.newest("commits") + 1

    # ------------------------------------------------------------------ its life

    def run(self) -> Verdict:
        """:raises TimeoutError: the query hangs"""
        self.change_rules()
        self.start()
        try:
            self.wait(lambda: self.committed >= 2)
            for fault in self.faults:
                self.outcomes.append(Outcome(fault))
                self.strike(self.outcomes[-1])
            (self.folder / FINISH).touch()
            self.wait((self.folder / FINISHED).exists)
            assert self.victim is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.victim.wait(timeout=30)
        finally:
            self.bury()
        self.checkpoint.fetched()
        verdict = check(self.query, kept_operator(self.folder), self.folder)
        if self.lakes:
            check_lakes(verdict, self.query, self.folder)
        return verdict

    def wait(self, condition: Callable[[], bool], until: float = float("inf")) -> bool:
        end = time.monotonic() + until
        while not condition():
            if time.monotonic() > end:
                return False
            self.tick()
            time.sleep(0.02)
        return True

    def strike(self, outcome: Outcome) -> None:
        fault, begin = outcome.fault, time.monotonic()
        fired = self.folder / f"fired-{fault.number}"
        before = self.committed
        if fault.point == STORED:
            assert self.storage is not None
            self.storage.harm(fault.target, fault.seconds)
            fired.touch()
            self.wait(lambda: False, fault.seconds)
        elif fault.point in FILES:
            self.strike_at_file(fault)
        else:
            new = self.folder / "fault.new"
            new.write_text(json.dumps(fault.__dict__))
            new.replace(self.folder / "fault.json")
            if fault.point.startswith(AT_START):
                self.bury()
            # A point may not be passed so often.
            self.wait(lambda: fired.exists() or self.committed >= before + 5)
        outcome.hit = fired.exists()
        if outcome.hit:
            outcome.batch = self.checkpoint.newest("offsets")
            if self.rng.random() < 0.7:
                self.change_rules()  # before what failed is repeated
            hit_at = self.committed
            self.wait(lambda: self.committed > hit_at)
            outcome.recovered = True
        (self.folder / "fault.json").unlink(missing_ok=True)
        outcome.seconds = time.monotonic() - begin
        self.tell(f"  {self.kind} {self.seed}: {fault}: " + ("hit, recovered" if outcome.hit else "not passed"))

    def strike_at_file(self, fault: Fault) -> None:
        part = FILES[fault.point]
        seen = self.checkpoint.count(part)
        self.wait((self.folder / "processes.json").exists)
        passed = 0
        while passed < fault.passing:
            self.tick()
            for _ in range(200):  # more often than the rest is looked at
                now = self.checkpoint.count(part)
                if now > seen:
                    passed, seen = passed + 1, now
                    break
                time.sleep(0.001)
        (self.folder / f"fired-{fault.number}").touch()
        with contextlib.suppress(ProcessLookupError):  # it had just died of another one
            crash_points.happen(self.folder, fault.__dict__, -1)


def _members(session: int) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) == session and (process / "stat").read_text().split(") ")[1][0] != "Z":
                yield int(process.name)
        except (ProcessLookupError, FileNotFoundError):
            continue
