"""What the benchmark programs share: the Spark session, data, checksums, memory readings and the record of a run."""

from __future__ import annotations

import argparse
import json
import os
import threading
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter
from benchmarks import gen_data

HERE = Path(__file__).parent
GOLD = 0x9E3779B97F4A7C15
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
MILLISECOND = timedelta(milliseconds=1)


# ------------------------------------------------------------------ answers


def checksum(tag: int, matches: pa.ListArray) -> str:
    """The sum of the matches' hashes, as programs.md defines it; *matches* are lists of event times in match order."""
    times = matches.flatten().to_numpy().view(np.uint64)
    lengths = pc.list_value_length(matches).to_numpy(zero_copy_only=False)
    begins = np.cumsum(lengths) - lengths
    hashes = np.full(len(matches), np.uint64(GOLD + tag), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for position in range(lengths.max(initial=0)):
            going = np.flatnonzero(lengths > position)
            z = hashes[going] ^ times[begins[going] + position]
            z ^= z >> np.uint64(30)
            z *= np.uint64(MIX[0])
            z ^= z >> np.uint64(27)
            z *= np.uint64(MIX[1])
            hashes[going] = z ^ z >> np.uint64(31)
        return f"{int(hashes.sum(dtype=np.uint64)):016x}"


def expected(size: str, workload: str) -> tuple[int, str]:
    """The number of matches and their checksum."""
    answer = json.loads((HERE / "expected.json").read_text())[size][workload]
    return answer["matches"], answer["checksum"]


# ------------------------------------------------------------------ data


def command_line(module: str, description: str) -> argparse.ArgumentParser:
    """The command line of a benchmark, with the options of its data.

    :param module: the name of the module in ``benchmarks``
    """
    cli = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=description)
    cli.add_argument("--size", choices=list(gen_data.SIZES), default="S")
    cli.add_argument(
        "--data", type=Path, help="folder of the data, generated if absent; default: benchmarks/data/<size>"
    )
    return cli


def data_folder(size: str, folder: Path | None, *, binary: bool = False) -> Path:
    """The folder with the data of *size*, which are generated if they are not there; *binary*: with ``events.bin``."""
    folder = folder or HERE / "data" / size
    parameters = gen_data.Parameters.of_size(size)
    meta, records = folder / "meta.json", folder / "events.bin"
    if not meta.exists() or (binary and not records.exists()):
        gen_data.write(gen_data.generate(parameters), folder, parameters, binary=binary)
    found = json.loads(meta.read_text())
    if any(found[name] != value for name, value in asdict(parameters).items()):
        raise SystemExit(f"{folder} does not hold the data of size {size}")
    return folder


# ------------------------------------------------------------------ Spark


DEFAULT, TUNED = "default", "tuned"
SETTINGS = (DEFAULT, TUNED)


def session(cores: int, memory: str, settings: str = TUNED) -> SparkSession:
    """A session as Spark makes it by default, apart from what the machine requires (heap, address), or a tuned one."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("asterism benchmarks")
        .config("spark.driver.memory", memory)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    if settings == TUNED:
        builder = (
            builder.config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC")
            .config("spark.sql.shuffle.partitions", cores)
            .config("spark.sql.adaptive.coalescePartitions.enabled", "false")  # keeps every core busy
            # Without Hadoop's native library the default starts processes (readlink, chmod) for every checkpoint file.
            .config(
                "spark.sql.streaming.checkpointFileManagerClass",
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
            )
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


# ------------------------------------------------------------------ memory


def family_pages() -> dict[int, int]:
    """Resident pages of this process and each of its descendants (the JVM, Python workers), from Linux's ``/proc``."""
    proc = Path("/proc")
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in proc.iterdir() if proc.is_dir() else ():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it has just ended
                continue
            parents[int(entry.name)], pages[int(entry.name)] = int(fields[1]), int(fields[21])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return {pid: pages[pid] for pid in family if pid in pages}


def family_use() -> dict[bool, tuple[float, float]]:
    """The resident megabytes and the CPU seconds so far of the JVM (True) and of all Python processes (False) of this process."""
    found = {True: (0.0, 0.0), False: (0.0, 0.0)}
    for pid, pages in family_pages().items():
        try:
            name, rest = (Path("/proc") / str(pid) / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:  # it has just ended
            continue
        fields, is_jvm = rest.split(), name == "java"
        mb, seconds = found[is_jvm]
        ticks = int(fields[11]) + int(fields[12])
        found[is_jvm] = (
            mb + pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            seconds + ticks / os.sysconf("SC_CLK_TCK"),
        )
    return found


def family_seconds() -> float:
    """The CPU seconds so far of this process and all its descendants, with those that have ended and were waited for."""
    ticks = 0
    for pid in family_pages():
        try:
            fields = (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has just ended
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def family_memory() -> dict[str, float]:
    """The resident megabytes of this process and each of its descendants, by id and what they run: a module, or the JVM."""
    found = {}
    for pid, pages in family_pages().items():
        try:
            words = (Path("/proc") / str(pid) / "cmdline").read_text().split("\0")
        except OSError:  # it has just ended
            continue
        if not words[0]:  # it has ended, and nobody has waited for it
            continue
        module = words[words.index("-m") + 1] if "-m" in words else Path(words[0]).name
        found[f"{pid} {module}"] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return found


class PeakMemory:
    """Samples the family's memory while it is entered; elsewhere than on Linux it sees none."""

    def __enter__(self) -> PeakMemory:
        self.mb = 0.0
        self._before = family_pages()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._done.wait(0.5):
            self._sample()

    def _sample(self) -> None:
        """A process counts when it is seen again: for a moment, one that the JVM has forked has all of its parent's memory."""
        now = family_pages()
        pages = sum(count for pid, count in now.items() if pid in self._before)
        self.mb = max(self.mb, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        self._before = now


# ------------------------------------------------------------------ the record of a run


@dataclass(slots=True)
class Run:
    """One run of one thing. Of its micro-batches, ``first_batch_s`` is the first, ``rest_events_per_s`` the rate of the
    others that bring events, and ``end_s`` those that bring none: the end of the stream.
    """

    workload: str
    mode: str
    round: int
    """0 is the warm-up"""
    events: int
    seconds: float
    events_per_s: int = 0
    first_batch_s: float | None = None
    rest_events_per_s: int | None = None
    end_s: float | None = None
    batches: int | None = None
    matches: int | None = None
    checksum: str | None = None
    ok: bool = True
    peak_rss_mb: int = 0

    def __post_init__(self) -> None:
        self.events_per_s = round(self.events / self.seconds)

    @property
    def warm_up(self) -> bool:
        return self.round == 0

    def to_json(self) -> str:
        record: dict[str, Any] = asdict(self)
        return json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in record.items() if v is not None})
