"""Queries on a cluster of hosts, while faults happen; and whether their rows are those of a replay."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.hosts import services
from tests.hosts.cluster import LOST_AFTER, WORKERS, Cluster, timeouts
from tests.hosts.driver import JOB, PROGRESS
from tests.hosts.namespaces import Program
from tests.hosts.network import Link
from tests.hosts.queries import HOST_QUERIES, TopicQuery
from tests.kit import until
from tests.nemesis.queries import SECONDS, Query
from tests.nemesis.replay import FINISH, FINISHED, Verdict, check, kept_operator
from tests.servers.s3 import BUCKET

SEED = 7
LOSS = "loss and delay"


@dataclass(frozen=True)
class Scenario:
    """:param kind: of the query; :param fault: one of :data:`FAULTS`; :param checkpoint: where it is: ``hdfs`` or ``s3``"""

    kind: str
    fault: str
    checkpoint: str = "hdfs"

    @property
    def passes(self) -> bool:
        """Whether the hosts can be used again."""
        return self.fault == "none" or self.fault.endswith(" s")

    @property
    def seconds(self) -> int:
        """After how many without an answer a host counts as lost."""
        return 120 if self.fault == LOSS else LOST_AFTER

    def __str__(self) -> str:
        place = "" if self.checkpoint == "hdfs" else f", checkpoint in {self.checkpoint.upper()}"
        return f"{self.kind}{place}: {self.fault}"


PATIENCE = 600.0
"""Seconds without a micro-batch after which a query counts as hung."""


class Run:
    """One query on the cluster, from its first event to the end of its input.

    :param files: how many files of events there are, each a micro-batch
    """

    def __init__(self, cluster: Cluster, scenario: Scenario, files: int) -> None:
        self.cluster, self.kind, self.files = cluster, scenario.kind, files
        self.checkpoint = scenario.checkpoint
        self.name = f"{scenario.kind}-{cluster.runs}"
        cluster.runs += 1
        self.path = cluster.here / self.name
        """The folder of the query: in HDFS, and on the host of its driver."""
        self.rng = random.Random(f"hosts {self.kind}")
        self.second = 0.0
        made = cluster.storage.folder / "made" / self.name
        self.query = HOST_QUERIES[self.kind](made, SEED)
        for number in range(files):
            self.query.feed(number)
        cluster.hdfs.shell("-mkdir", "-p", str(self.path))
        sources = [f"made/{self.name}/{source}" for source in self.query.sources]
        cluster.hdfs.shell("-put", "-p", *sources, str(self.path))
        self.settings = {
            **timeouts(cluster.seconds),
            "spark.master": cluster.url,
            "spark.hadoop.fs.defaultFS": cluster.hdfs.uri,
            "spark.hadoop.hadoop.tmp.dir": str(cluster.here / "tmp" / "hadoop"),  # S3A writes there what it uploads
        }
        if isinstance(self.query, TopicQuery):
            self.settings |= cluster.serve("kafka", made)
        if self.checkpoint == "s3":
            self.settings |= cluster.serve("s3", made)

    def start(self, driver: str) -> None:
        """On another driver, what the query itself has stored is in HDFS alone; the file of the rules is brought along."""
        if driver not in self.cluster.hosts:
            self.cluster.hosts.add(driver)
        self.driver = driver
        self.folder.mkdir(exist_ok=True)
        self.change_rules()
        checkpoint = f"s3a://{BUCKET}/checkpoint" if self.checkpoint == "s3" else f"{self.path}/checkpoint"
        job = {"kind": self.kind, "seed": SEED, "checkpoint": checkpoint, "settings": self.settings}
        (self.folder / JOB).write_text(json.dumps(job))
        self.program: Program = self.cluster.run(driver, self.name, "tests.hosts.driver", str(self.path))

    @property
    def folder(self) -> Path:
        """Of the query on the host of its driver."""
        return self.cluster.hosts.all / self.driver / self.name

    @property
    def committed(self) -> int:
        """The last micro-batch that has ended."""
        try:
            return int((self.folder / PROGRESS).read_text())
        except (FileNotFoundError, ValueError):
            return -1

    def change_rules(self) -> None:
        if self.query.has_rules:
            self.query.change_rules(self.rng, max(self.committed, 0) * SECONDS)
            shutil.copy(self.query.folder / "rules.json", self.folder / "rules.new")
            (self.folder / "rules.new").replace(self.folder / "rules.json")

    def reach(self, batch: int) -> None:
        """Wait until a micro-batch has ended. Meanwhile, the rules change every few seconds."""
        moved, before = time.monotonic(), self.committed
        changed = moved
        while self.committed < batch:
            now = time.monotonic()
            if self.committed != before:
                before, moved = self.committed, now
            if now > moved + PATIENCE or self.program.status is not None:
                raise AssertionError(f"{self.name} hangs after {before}: {self.program.text()[-3000:]}")
            if now > changed + 8:
                changed = now
                self.change_rules()
            time.sleep(0.1)

    def finish(self) -> Verdict:
        (self.folder / FINISH).touch()
        self.program.wait_for(self.folder / FINISHED, PATIENCE)
        self.program.end(60)
        return self.check()

    def check(self) -> Verdict:
        collected = self.cluster.storage.folder / "collected"
        collected.mkdir(exist_ok=True)
        self.cluster.hdfs.shell("-get", str(self.path), "collected")
        query = HOST_QUERIES[self.kind](collected / self.name, SEED)
        if self.checkpoint == "s3":
            self._copy_objects(query)
        if isinstance(query, TopicQuery):
            query.as_files()
        return check(query, kept_operator(self.folder), collected / self.name, inserted_ids=False)

    def _copy_objects(self, query: Query) -> None:
        folder = self.cluster.hosts["s3"].folder / self.name
        (folder / services.COPY).touch()
        until(lambda: not (folder / services.COPY).exists(), seconds=60)
        shutil.copytree(folder / services.OBJECTS / "checkpoint", query.checkpoint)

    @property
    def restarts(self) -> int:
        return self.program.text().count("the query is started again")


# ---------------------------------------------------------------------- faults

BEFORE = 2
"""The micro-batches before a fault."""
SHORT = 5.0
"""Seconds of a fault that passes."""
LOSSY = Link(loss=0.2, delay=0.2)


def _cut(run: Run, others: Collection[str], seconds: float | None) -> None:
    """Cut the first worker off from *others*; None: for good."""
    hosts = run.cluster.hosts
    hosts[WORKERS[0]].cut(*(hosts[name] for name in others))
    if seconds is not None:
        time.sleep(seconds)
        hosts.network.mend()


def cut_from_driver(run: Run, seconds: float | None = None) -> None:
    _cut(run, [run.driver], seconds)


def cut_from_peers(run: Run, seconds: float | None = None) -> None:
    _cut(run, WORKERS[1:], seconds)


def cut_from_storage(run: Run, seconds: float | None = None) -> None:
    _cut(run, ["storage"], seconds)


def server_cut_from_all(run: Run, name: str) -> None:
    """For a while."""
    hosts = run.cluster.hosts
    hosts[name].cut(*hosts)
    time.sleep(4 * SHORT)
    hosts.network.mend()


def lossy(run: Run) -> None:
    """All links lose and delay packets, until a micro-batch has ended that began meanwhile. This takes minutes: a call takes a
    second on average, and a file of HDFS some ten.
    """
    hosts = run.cluster.hosts
    for host in hosts:
        host.link(LOSSY, *hosts)
    run.reach(run.committed + 2)
    hosts.network.mend()


def workers_change(run: Run) -> None:
    """One is added, and two that have run tasks are lost."""
    run.cluster.add_worker("worker4")
    run.cluster.remove_worker(WORKERS[0])
    run.reach(run.committed + 1)
    run.cluster.remove_worker(WORKERS[1])


def driver_lost(run: Run) -> None:
    """The query goes on on another host, which has nothing of the first."""
    run.cluster.hosts.remove(run.driver)
    run.start("driver2")


Fault = Callable[[Run], None]
FAULTS: dict[str, Fault] = {
    "none": lambda run: None,
    "cut from driver 5 s": partial(cut_from_driver, seconds=SHORT),
    "cut from peers 5 s": partial(cut_from_peers, seconds=SHORT),
    "cut from storage 5 s": partial(cut_from_storage, seconds=SHORT),
    "storage cut from all 20 s": partial(server_cut_from_all, name="storage"),
    "kafka cut from all 20 s": partial(server_cut_from_all, name="kafka"),
    "s3 cut from all 20 s": partial(server_cut_from_all, name="s3"),
    LOSS: lossy,
    "cut from driver": cut_from_driver,
    "cut from peers": cut_from_peers,
    "cut from storage": cut_from_storage,
    "driver lost": driver_lost,
    "workers change": workers_change,
}


SCENARIOS = [
    *(Scenario(kind, "none") for kind in HOST_QUERIES),
    Scenario("rules", "none", "s3"),
    Scenario("rules", "s3 cut from all 20 s", "s3"),
    Scenario("kafka", "kafka cut from all 20 s"),
    *(Scenario("pattern", fault) for fault in FAULTS if not fault.startswith(("none", "kafka", "s3", LOSS))),
    Scenario("sql", LOSS),  # which has a single output
    Scenario("rules", "driver lost"),
]


@dataclass(frozen=True)
class Outcome:
    """:param seconds: from the fault to the end of the next micro-batch; :param failures: of the query"""

    verdict: Verdict
    seconds: float
    failures: int


def outcome(cluster: Cluster, scenario: Scenario, files: int) -> Outcome:
    """Of a query with a fault in its middle. Afterwards all links are good."""
    run = Run(cluster, scenario, files)
    run.start("driver1")
    run.reach(BEFORE)
    begin, before = time.monotonic(), run.committed
    FAULTS[scenario.fault](run)
    run.reach(before + 1)
    seconds = time.monotonic() - begin
    run.reach(files - 1)
    verdict = run.finish()
    cluster.hosts.network.mend()
    return Outcome(verdict, seconds, run.restarts)
