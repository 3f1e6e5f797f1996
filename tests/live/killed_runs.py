"""Random queries as live engines in processes that are killed, and what their rows would have been without."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism import (
    CEP,
    AfterMatchSkipStrategy,
    BroadcastStream,
    KeyedStream,
    Pattern,
    PatternProcessor,
    SlidingWindows,
    connect,
    interval_join,
    match_recognize,
    window,
)
from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory
from asterism.live.engine import LiveEngine
from tests.operators.test_stream_operator_property import ByElement

SECOND = timedelta(seconds=1)
EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int64())])
QUERIES: dict[str, Sequence[str]] = {
    "pattern": ("events",),
    "rules": ("events",),
    "clause": ("events",),
    "windows": ("events",),
    "join": ("left", "right"),
    "operator": ("left", "right", "rules"),
}
"""The inputs of each kind of query."""
CLAUSE = """
    PARTITION BY k ORDER BY t MEASURES FIRST(A.t) AS first, LAST(B.t) AS last, SUM(B.v) AS v
    PATTERN (A B+ C) WITHIN INTERVAL '40' SECOND DEFINE A AS v < 4, B AS v >= A.v, C AS v > 6
"""
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


@dataclass(frozen=True)
class Call:
    """
    :param rows: those of a batch; None: only the watermark advances
    :param input: None: the stream ends
    """

    input: str | None
    rows: pa.Table | None = None
    watermark: datetime | None = None

    def run(self, engine: LiveEngine, number: int) -> Mapping[str, pa.Table]:
        if self.input is None:
            return engine.finish()
        if self.rows is None:
            return engine.advance_watermark(self.watermark, input=self.input)
        return engine.process(self.rows, input=self.input, position=number, watermark=self.watermark)


def calls_of(rng: random.Random, inputs: Sequence[str]) -> list[Call]:
    """Batches in the order of time, with late events, and watermarks with and without events."""
    calls, now = [], 0.0
    for _ in range(rng.randint(30, 120)):
        now += rng.expovariate(0.5)
        name, mark = rng.choice(inputs), EPOCH + timedelta(seconds=int(now) - rng.randint(1, 9))
        if rng.random() < 0.15:
            calls.append(Call(name, None, mark))
            continue
        rows = [
            {
                "k": f"k{rng.randrange(rng.choice([2, 40]))}",
                "t": EPOCH + timedelta(seconds=int(now) - int(rng.expovariate(0.5))),
                "v": rng.randrange(10),
            }
            for _ in range(rng.choice([1, 3, 30]))
        ]
        table = pa.Table.from_pylist(rows, SCHEMA)
        calls.append(Call(name, table.drop("k") if name == "rules" else table, rng.choice([None, mark])))
    return [*calls, Call(None)]


def random_pattern(rng: random.Random) -> Pattern:
    skip = rng.choice([AfterMatchSkipStrategy.no_skip(), AfterMatchSkipStrategy.skip_past_last_event()])
    pattern = Pattern.begin("s0", skip)
    for number in range(rng.randint(2, 4)):
        if number:
            pattern = getattr(pattern, rng.choice(["next", "followed_by", "followed_by", "followed_by_any"]))(
                f"s{number}"
            )
        pattern = pattern.where(rng.choice(["v < 5", "v > 3", "v % 2 = 0", "true" if number else "v = 1"]))
        if rng.random() < 0.3:
            pattern = rng.choice([lambda p: p.times(2), lambda p: p.times(1, 3), lambda p: p.times_or_more(1)])(pattern)
    if rng.random() < 0.25:
        pattern = pattern.not_followed_by("no").where("v = 9")
    return pattern.within(timedelta(seconds=rng.choice([3, 10, 40])))


def opener(kind: str, rng: random.Random) -> Callable[..., LiveEngine]:
    """``open`` of a random query."""
    delay = rng.choice([0, 3]) * SECOND
    pages = rng.choice([None, 3])
    keyed: Any = {
        name: KeyedStream(SCHEMA, "k", "t", max_out_of_orderness=delay) for name in ("events", "left", "right")
    }
    outputs = ["matches", "timed_out", "late"]
    if kind == "pattern":
        pattern = random_pattern(rng)
        return lambda folder, **options: CEP.pattern(keyed["events"], pattern, pages=pages).open(
            folder, outputs=outputs, **options
        )
    if kind == "rules":
        keys = [("k",), ("v",), ()]
        rules = tuple(
            PatternProcessor(f"r{number}", 1, random_pattern(rng), key=rng.choice(keys), timed_out=rng.random() < 0.5)
            for number in range(rng.randint(1, 8))
        )
        factory = GivenPatternProcessorDiscovererFactory(rules)
        return lambda folder, **options: CEP.pattern_processors(keyed["events"], factory).open(
            folder, outputs=outputs, **options
        )
    stream: Any
    if kind == "clause":
        stream = match_recognize(SCHEMA, CLAUSE, max_out_of_orderness=delay, pages=pages)
    elif kind == "windows":
        stream = window(keyed["events"], SlidingWindows.of(9 * SECOND, 3 * SECOND), pages=pages)
        return lambda folder, **options: stream.open(folder, aggregate=["sum(v) AS v"], **options)
    elif kind == "join":
        stream = interval_join(keyed["left"], keyed["right"], (-3 * SECOND, 5 * SECOND), prefix="right_")
    else:
        limits: Any = BroadcastStream(SCHEMA.remove(0), "t")
        stream = connect(ByElement(), left=keyed["left"], right=keyed["right"], rules=limits, pages=pages)
    opens: Callable[..., LiveEngine] = stream.open
    return opens


@dataclass(frozen=True)
class Run:
    """A query, its calls, and how often there are snapshots, by a seed."""

    seed: int

    @property
    def kind(self) -> str:
        return list(QUERIES)[self.seed % len(QUERIES)]

    @property
    def calls(self) -> list[Call]:
        return calls_of(random.Random(self.seed), QUERIES[self.kind])

    def open(self, folder: Path | None) -> LiveEngine:
        rng = random.Random(self.seed + 1)
        every = rng.choice([None, 1, 20, timedelta(milliseconds=3), timedelta(milliseconds=50)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return opener(self.kind, rng)(folder, snapshot_every=every)

    def whole(self) -> tuple[list[dict[str, list[str]]], Any]:
        """The rows of each call, and the counts, of a run in this process."""
        with closing(self.open(None)) as engine:
            rows = [texts(call.run(engine, number)) for number, call in enumerate(self.calls)]
            return rows, counts(engine)

    def killed(self, folder: Path, kills: int) -> tuple[list[dict[str, list[str]]], Any]:
        """The same of processes in a folder, of which all but the last are killed."""
        rng, lines = random.Random(self.seed + 2), folder / "rows"
        lines.touch()
        for _ in range(kills):
            process = _processes.Process(target=play, args=(self.seed, str(folder)))
            process.start()
            at = lines.stat().st_size + rng.choice([0, 1, 300, 3000, 30_000])
            while process.is_alive() and lines.stat().st_size < at:
                time.sleep(0.002)
            time.sleep(rng.choice([0, 0, 0.01, 0.05]) * rng.random())
            process.kill()
            process.join()
            assert process.exitcode in (0, -9)
        process = _processes.Process(target=play, args=(self.seed, str(folder)))
        process.start()
        process.join(120)
        assert process.exitcode == 0
        return written(lines, len(self.calls))


def texts(rows: Mapping[str, pa.Table]) -> dict[str, list[str]]:
    return {name: sorted(map(str, table.to_pylist())) for name, table in rows.items() if table.num_rows}


def counts(engine: LiveEngine) -> Any:
    numbers = engine.progress["observedMetrics"]["asterism"]
    return [engine.progress["numInputRows"], {name: value for name, value in numbers.items() if value}]


def play(seed: int, folder: str) -> None:
    """Make the calls that the engine does not have yet, and write down the rows of each."""
    run, rng = Run(seed), random.Random()
    with run.open(Path(folder) / "state") as engine, Path(folder, "rows").open("a", buffering=1) as file:
        file.write("\n")  # after a line that was not written to its end
        place = engine.position
        begun = [each for each in (place.values() if isinstance(place, dict) else [place]) if each is not None]
        calls = run.calls
        for number in range(max(begun, default=-1) + 1, len(calls)):
            rows = texts(calls[number].run(engine, number))
            file.write(json.dumps([number, rows]) + "\n")
            if rng.random() < 0.05:
                engine.snapshot()
        file.write(json.dumps(["counts", counts(engine)]) + "\n")


def written(file: Path, calls: int) -> tuple[list[dict[str, list[str]]], Any]:
    """The rows of each call, of which each is counted once although it may have come several times, and the last counts."""
    found: list[dict[str, list[str]]] = [{} for _ in range(calls)]
    last: Any = None
    for line in file.read_text().splitlines():
        with suppress(ValueError):  # the end of a process
            number, rows = json.loads(line)
            if number == "counts":
                last = rows
                continue
            for name, texts_of_output in rows.items():
                assert found[number].setdefault(name, texts_of_output) == texts_of_output, (number, name)
    return found, last


def differences(seed: int, folder: Path, kills: int = 4) -> Iterator[str]:
    """What differs between a run in processes that are killed and one that is not."""
    run = Run(seed)
    expected, expected_counts = run.whole()
    found, found_counts = run.killed(folder, kills)
    for number, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
        if theirs != ours:
            yield f"{run.kind}, seed {seed}, call {number}: {theirs} became {ours}"
    if expected_counts != found_counts:
        yield f"{run.kind}, seed {seed}: {expected_counts} became {found_counts}"
