"""Find the attacks in a real SSH log, with Spark Structured Streaming.

The log is divided into files, which Spark reads one per micro-batch, as if they were just arriving. Two patterns are matched;
their matches are printed and drawn.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from asterism import CEP, AfterMatchSkipStrategy, KeyedStream, Pattern

if TYPE_CHECKING:  # without matplotlib, there is no picture
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

# ------------------------------------------------------------------ what to look for

BRUTE_FORCE = (
    Pattern.begin("fails", AfterMatchSkipStrategy.skip_past_last_event())
    .where("event = 'failed'")
    .times_or_more(3)
    .consecutive()
    .next("login")
    .where("event = 'accepted'")
    .within(timedelta(minutes=10))
)
"""Three or more failed logins in a row, then a successful one, all within ten minutes."""

LEFT_OPEN = (
    Pattern.begin("login")
    .where("event = 'accepted'")
    .not_followed_by("logout")
    .where("event IN ('disconnected', 'closed') AND port = LAST(login.port)")
    .within(timedelta(hours=8))
)
"""A login whose connection has not ended eight hours later: an event that did *not* occur before a deadline."""


@dataclass(frozen=True)
class Attack:
    """Failed logins, the first one being ``first_id``, and the successful login, ``last_id``."""

    ip: str
    first_id: int
    last_id: int
    failures: int
    user: str
    start: datetime
    success: datetime


@dataclass(frozen=True)
class OpenSession:
    """A login, and nothing after it."""

    ip: str
    event_id: int
    user: str
    port: int
    login: datetime


def find_attacks(events: DataFrame, checkpoint: Path, view: View | None = None) -> list[Attack]:
    stream = keyed(events.where("event IN ('failed', 'accepted')"))
    measures = [
        "FIRST(fails.event_id) AS first_id",
        "login.event_id AS last_id",
        "COUNT(fails.*) AS failures",
        "login.user AS user",
        "FIRST(fails.ts) AS start",
        "login.ts AS success",
    ]
    rows = watch(stream, BRUTE_FORCE, measures, checkpoint, view)
    return sorted((Attack(**row) for row in rows), key=lambda attack: attack.first_id)


def find_open_sessions(events: DataFrame, checkpoint: Path, view: View | None = None) -> list[OpenSession]:
    measures = ["login.event_id AS event_id", "login.user AS user", "login.port AS port", "login.ts AS login"]
    # Not drained: the end of the log is not the end of a session that was opened just before it.
    rows = watch(keyed(events), LEFT_OPEN, measures, checkpoint, view, drain=False)
    return sorted((OpenSession(**row) for row in rows), key=lambda session: session.event_id)


# ------------------------------------------------------------------ the stream

HERE = Path(__file__).resolve().parent
LOG, PATTERNS = HERE / "data" / "ssh_auth.csv", HERE / "patterns"
COLUMNS = (
    "event_id INT, ts TIMESTAMP, pid INT, ip STRING, port INT, event STRING, method STRING, user STRING, valid_user INT"
)
FILES = 12


def cut_log(folder: Path) -> None:
    """Write the log to *folder* as files of about the same size, in order of time."""
    with LOG.open(encoding="utf-8") as log:
        header, *lines = log
    size = -(-len(lines) // FILES)
    rest = iter(lines)
    for number in range(FILES):
        file = folder / f"{number:02}.csv"
        file.write_text(header + "".join(islice(rest, size)), encoding="utf-8")
        os.utime(file, (number, number))  # Spark takes the oldest file first


def read_stream(spark: SparkSession, folder: Path) -> DataFrame:
    """The files of *folder* as a stream, one file per micro-batch."""
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).csv(str(folder), header=True)


def keyed(events: DataFrame) -> KeyedStream:
    """Keyed by remote address; events with equal times, of which there are many, are in the order of the log."""
    return KeyedStream(events, key="ip", time="ts", order_by=["event_id"])


def watch(
    stream: KeyedStream,
    pattern: Pattern,
    measures: Sequence[str],
    checkpoint: Path,
    view: View | None = None,
    *,
    drain: bool = True,
) -> list[dict[str, Any]]:
    """Run a streaming query over all files and collect its results."""
    found: dict[int, list[dict[str, Any]]] = {}

    def gather(matches: DataFrame, batch_id: int) -> None:
        found[batch_id] = matches.toArrow().to_pylist()
        if view is not None:
            view.found = sum(map(len, found.values()))

    observed = replace(stream, df=stream.df.observe("read", F.max("ts").alias("up_to")))  # for the progress below
    # 32 key groups, the default, are for clusters.
    matches = CEP.pattern(observed, pattern, key_groups=4)
    with ExitStack() as stack:
        if view is not None:
            stack.enter_context(view.following(stream.df.sparkSession))
        matches.run({"matches": gather}, select={"matches": measures}, checkpoint=str(checkpoint), drain=drain)
    return [row for batch_id in sorted(found) for row in found[batch_id]]


# ------------------------------------------------------------------ while it runs


class View(StreamingQueryListener):
    """The progress of a query: a bar on a terminal, otherwise a line per micro-batch."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title = console, title
        self.running = self.batches = self.events = self.found = 0
        self.reached = ""
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[status]}"),
            console=console,
            expand=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task(title, total=FILES, status="starting the query")

    @contextmanager
    def following(self, spark: SparkSession) -> Iterator[None]:
        if not self.console.is_terminal:
            self.console.print(self.title)
        spark.streams.addListener(self)
        try:
            with self.bar:
                yield
                # Spark reports progress with a short delay.
                patience = time.monotonic() + 10
                while self.running and time.monotonic() < patience:
                    time.sleep(0.02)
        finally:
            spark.streams.removeListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self.running += 1

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self.running -= 1

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        events = sum(s.numInputRows for s in progress.sources if s.description.startswith("FileStreamSource"))
        self.batches += events > 0
        self.events += events
        read = progress.observedMetrics.get("read")
        if read is not None and read.up_to is not None:
            self.reached = f"{read.up_to:%d %b %H:%M}"
        status = f"batch {self.batches:2}  {self.events:4} events, up to {self.reached}  found {self.found}"
        if self.console.is_terminal:
            self.bar.update(self.task, completed=self.batches, status=status)
        elif events:
            self.console.print("  " + status, highlight=False)


def show_attacks(console: Console, attacks: Sequence[Attack]) -> None:
    console.print("\n[bold]Passwords guessed:[/bold] 3 or more failures in a row, then a login, within 10 minutes")
    table = Table("Address", "From", "Failures", "Got in as", "After")
    for attack in attacks:
        address = f"[bold red]{attack.ip}[/bold red]"
        table.add_row(address, _time(attack.start), str(attack.failures), attack.user, _duration(attack))
    console.print(table)


def show_open_sessions(console: Console, sessions: Sequence[OpenSession]) -> None:
    console.print("\n[bold]Sessions left open:[/bold] a login, and no end of its connection within 8 hours")
    table = Table("Address", "Login", "User", "Port")
    for session in sessions:
        table.add_row(session.ip, _time(session.login), session.user, str(session.port))
    console.print(table)


def _time(moment: datetime) -> str:
    return f"{moment:%d %b %H:%M:%S}"


def _duration(attack: Attack) -> str:
    minutes, seconds = divmod(int((attack.success - attack.start).total_seconds()), 60)
    return f"{minutes} min {seconds} s"


# ------------------------------------------------------------------ the picture

KINDS = {"failed": "#d62728", "invalid_user": "#9467bd", "accepted": "#2ca02c", "other": "#9aa0a6"}
OPEN_COLOR = "#ff9f1c"


def draw(attacks: Sequence[Attack], sessions: Sequence[OpenSession], file: Path) -> None:
    """Draw a line for each of the most active addresses, and the first attack in detail."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    log = pd.read_csv(LOG, parse_dates=["ts"])
    log["ts"] = log["ts"].dt.tz_localize("UTC")
    log["kind"] = log["event"].where(log["event"].isin(list(KINDS)), "other")

    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15, hspace=0.03)
    figure = Figure(figsize=(15, 12.5 if attacks else 9.5), layout=layout)
    if attacks:
        whole, near = figure.subplots(2, height_ratios=[3.2, 1])
        _draw_near(near, log, attacks[0])
    else:
        whole = figure.subplots()
    _draw_whole(whole, log, attacks, sessions)
    figure.savefig(file, dpi=110)


def _draw_whole(axes: Axes, log: pd.DataFrame, attacks: Sequence[Attack], sessions: Sequence[OpenSession]) -> None:
    from matplotlib import dates
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    counts = log["ip"].value_counts()
    matched = {attack.ip for attack in attacks} | {session.ip for session in sessions}
    addresses = sorted({*counts.index[:10], *matched}, key=lambda ip: (ip not in matched, -counts[ip]))
    heights = dict(zip(KINDS, (0.27, 0.09, -0.09, -0.27), strict=True))
    for kind, color in KINDS.items():
        dots = log[(log["kind"] == kind) & log["ip"].isin(addresses)]
        lanes = dots["ip"].map(addresses.index) - heights[kind]
        axes.scatter(dots["ts"], lanes, s=30, color=color, alpha=0.7, linewidths=0, zorder=3)
    for session in sessions:
        lane = addresses.index(session.ip)
        hours = dates.date2num(session.login), 8 / 24
        axes.broken_barh([hours], (lane - 0.42, 0.84), color=OPEN_COLOR, alpha=0.6, linewidth=0, zorder=2)
    for attack in attacks:
        axes.annotate(
            f"{attack.failures} failures, then a login as {attack.user}",
            xy=(dates.date2num(attack.success), addresses.index(attack.ip)),
            xytext=(60, 0),
            textcoords="offset points",
            va="center",
            fontsize=14,
            fontweight="bold",
            color=KINDS["failed"],
            bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": KINDS["failed"]},
            arrowprops={"arrowstyle": "-|>", "color": KINDS["failed"], "linewidth": 2},
            zorder=5,
        )
    axes.set_yticks(range(len(addresses)), [f"{ip}\n{counts[ip]} events" for ip in addresses], fontsize=12)
    axes.set_ylim(len(addresses) - 0.5, -0.5)
    for line in range(1, len(addresses)):
        axes.axhline(line - 0.5, color="#e4e6e9", linewidth=1)
    axes.xaxis.set_major_locator(dates.DayLocator(interval=3))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%d %b"))
    axes.set_title(
        "The SSH log: the most active addresses, and what the patterns found", loc="left", fontsize=18, pad=44
    )
    handles: list[Artist] = [
        Line2D([], [], marker="o", linestyle="", markersize=9, color=color, label=kind) for kind, color in KINDS.items()
    ]
    handles.append(Patch(color=OPEN_COLOR, alpha=0.6, label="login, not closed for 8 hours"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=5, frameon=False, fontsize=13)
    _tidy(axes)


def _draw_near(axes: Axes, log: pd.DataFrame, attack: Attack) -> None:
    from matplotlib import dates

    margin = timedelta(minutes=3.5)
    begin, start, success, end = (
        dates.date2num(moment)
        for moment in (attack.start - margin, attack.start, attack.success, attack.success + margin)
    )
    near = log[(log["ip"] == attack.ip) & log["ts"].between(attack.start - margin, attack.success + margin)]
    kinds = ["failed", "accepted", "other"]
    for lane, kind in enumerate(kinds):
        moments = near.loc[near["kind"] == kind, "ts"]
        axes.scatter(moments, [lane] * len(moments), marker="|", s=700, linewidths=2, color=KINDS[kind], zorder=3)
    axes.axvspan(start, success, color=KINDS["failed"], alpha=0.1, linewidth=0)
    axes.annotate(
        f"login as {attack.user}",
        xy=(success, kinds.index("accepted")),
        xytext=(36, 0),
        textcoords="offset points",
        va="center",
        fontsize=14,
        fontweight="bold",
        color=KINDS["accepted"],
        arrowprops={"arrowstyle": "-|>", "color": KINDS["accepted"], "linewidth": 2},
    )
    axes.set_yticks(range(len(kinds)), kinds, fontsize=13)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_xlim(begin, end)
    axes.xaxis.set_major_locator(dates.MinuteLocator(interval=2))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))
    title = f"{attack.ip} on {attack.start:%d %B}: {attack.failures} failures in {_duration(attack)}, then a login"
    axes.set_title(title, loc="left", fontsize=16)
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    axes.tick_params(axis="x", labelsize=13)
    axes.tick_params(axis="both", length=0)
    axes.grid(axis="x", color="#eceef0")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


# ------------------------------------------------------------------ the program


def start_spark(log: Path) -> SparkSession:
    """A session on two cores of this machine. Spark and its workers write to the file *log*: they inherit the standard error
    that is set when they are started.
    """
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("ssh attacks")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    sys.stderr.flush()
    own = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        spark = builder.getOrCreate()
    finally:
        os.dup2(own, 2)
        os.close(own)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _shown(path: Path) -> Path:
    """The path as one would type it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo-output"), metavar="DIR", help="default: %(default)s")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    console = Console()

    console.print("Starting Spark ...")
    spark = start_spark(out / "spark.log")
    with tempfile.TemporaryDirectory() as work:
        files = Path(work, "log")
        files.mkdir()
        cut_log(files)
        events = read_stream(spark, files)
        attacks = find_attacks(events, Path(work, "attacks"), View(console, "Passwords guessed"))
        sessions = find_open_sessions(events, Path(work, "sessions"), View(console, "Sessions left open"))
        spark.stop()

    show_attacks(console, attacks)
    show_open_sessions(console, sessions)
    if importlib.util.find_spec("matplotlib") is None:
        console.print(
            "\nNo picture, because matplotlib is not installed: pip install 'asterism\\[demo]'", highlight=False
        )
    else:
        draw(attacks, sessions, out / "ssh_attacks.png")
        console.print(f"\nThe picture: {out / 'ssh_attacks.png'}", highlight=False)
    console.print(
        "Next, the same question from the command line:\n"
        f"  asterism match {_shown(PATTERNS / 'brute_force.json')} --input {_shown(LOG)} --key ip --time ts",
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
