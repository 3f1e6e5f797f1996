"""Seeded generator of the benchmark's event stream.

The stream is a mix of user *sessions*. A session has a user (Zipf or uniform popularity), a start that is uniform over the
span, a geometric number of events, exponential gaps between them, and kinds that follow a first-order Markov chain. Event
times (ms) are globally unique, so that every order within a key is total and any two engines must find the same matches;
the event time also serves as the event's id in the checksum of the matches.

Rows are written in order of arrival: an event arrives at ``event_time + U[0, disorder)``, so ``max(event_time seen so far) -
disorder - 1`` is a watermark that makes no event late.

The output folder holds

* ``parquet/part-NNNNN.parquet``: contiguous slices in order of arrival, with the columns ``event_time``, ``user_id``, ``item_id``
  (int64), ``kind`` (string), ``amount`` (double) and ``ts`` (timestamp of ``event_time``);
* ``events.bin`` (with ``--bin``): the same rows as little-endian records of 40 bytes, for programs without Parquet;
* ``meta.json``: parameters, counts, and the SHA-256 of those records, which tells whether two data sets are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Array = npt.NDArray[Any]

KINDS = ["view", "search", "cart", "buy", "login_fail", "login_ok", "transfer", "logout"]
BASE_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
SIZES = {
    "XS": (100_000, 1_000),
    "S": (1_000_000, 10_000),
    "M": (5_000_000, 100_000),
    "L": (20_000_000, 1_000_000),
}
"""Events and users of the standard sizes."""

# rows: current kind, columns: next kind, in the order of KINDS
INITIAL = [0.36, 0.05, 0.0, 0.0, 0.16, 0.33, 0.10, 0.0]
TRANSITION = [
    [0.55, 0.15, 0.15, 0.04, 0.01, 0.01, 0.04, 0.05],  # view
    [0.70, 0.20, 0.05, 0.00, 0.00, 0.00, 0.02, 0.03],  # search
    [0.34, 0.10, 0.12, 0.30, 0.01, 0.00, 0.04, 0.09],  # cart
    [0.48, 0.10, 0.10, 0.02, 0.00, 0.00, 0.10, 0.20],  # buy
    [0.05, 0.00, 0.00, 0.00, 0.52, 0.37, 0.00, 0.06],  # login_fail
    [0.58, 0.17, 0.03, 0.00, 0.02, 0.00, 0.15, 0.05],  # login_ok
    [0.26, 0.05, 0.00, 0.00, 0.01, 0.00, 0.50, 0.18],  # transfer
    [0.30, 0.00, 0.00, 0.00, 0.28, 0.40, 0.02, 0.00],  # logout
]
MEAN_SESSION = 10.0
MAX_SESSION = 64
MEAN_GAP_S = 30.0
SAME_ITEM = 0.6

RECORD = np.dtype(
    [("event_time", "<i8"), ("user_id", "<i8"), ("item_id", "<i8"), ("amount", "<f8"), ("kind", "<i4"), ("pad", "<i4")]
)


@dataclass(frozen=True, slots=True)
class Parameters:
    events: int
    users: int
    items: int
    seed: int = 42
    disorder_ms: int = 5_000
    span_ms: int = 86_400_000
    dist: str = "zipf"
    exponent: float = 0.6

    @classmethod
    def of_size(cls, size: str) -> Parameters:
        events, users = SIZES[size]
        return cls(events, users, users // 2)


def popularity(rng: np.random.Generator, ids: int, draws: int, dist: str, exponent: float) -> Array:
    """*draws* ids out of ``[0, ids)``: uniform, or Zipf over a shuffled ranking."""
    if dist == "uniform":
        return rng.integers(0, ids, draws)
    weights = np.arange(1, ids + 1, dtype=np.float64) ** -exponent
    distribution = np.cumsum(weights)
    ranks = np.searchsorted(distribution, rng.random(draws) * distribution[-1], side="right")
    shuffled: Array = rng.permutation(ids)[np.minimum(ranks, ids - 1)]
    return shuffled


def generate(parameters: Parameters) -> Array:
    """All events as RECORDs, in order of arrival."""
    p, events = parameters, parameters.events
    rng = np.random.default_rng(p.seed)
    # sessions: draw until they hold enough events, cut the last one short
    lengths = np.empty(0, dtype=np.int64)
    while lengths.sum() < events:
        more = np.minimum(rng.geometric(1.0 / MEAN_SESSION, int(events / MEAN_SESSION) + 1000), MAX_SESSION)
        lengths = np.concatenate([lengths, more])
    last = int(np.searchsorted(np.cumsum(lengths), events))
    lengths = lengths[: last + 1].copy()
    lengths[last] -= lengths.sum() - events
    lengths = lengths[lengths > 0]
    sessions = len(lengths)
    first = np.zeros(sessions, dtype=np.int64)
    first[1:] = np.cumsum(lengths)[:-1]
    session = np.repeat(np.arange(sessions), lengths)
    is_first = np.zeros(events, dtype=bool)
    is_first[first] = True

    user = popularity(rng, p.users, sessions, p.dist, p.exponent)[session]

    # event times: the session's start plus the gaps so far
    gaps = np.maximum(1.0, rng.exponential(MEAN_GAP_S * 1000.0, events))
    gaps[is_first] = 0.0
    total = np.cumsum(gaps)
    start = rng.random(sessions) * p.span_ms
    time = (start[session] + total - total[first][session]).astype(np.int64)

    # kinds: all sessions step through the chain together
    initial = np.cumsum(INITIAL)
    chain = np.cumsum(np.array(TRANSITION), axis=1)
    draw = rng.random(events)
    kind = np.zeros(events, dtype=np.int32)
    kind[first] = np.minimum(np.searchsorted(initial, draw[first], side="right"), len(KINDS) - 1)
    for step in range(1, MAX_SESSION):
        at = first[lengths > step] + step
        if not len(at):
            break
        rows = chain[kind[at - 1]]
        kind[at] = np.minimum((draw[at, None] >= rows).sum(axis=1), len(KINDS) - 1)

    # items: stay on the previous event's item with probability SAME_ITEM
    fresh = is_first | (rng.random(events) >= SAME_ITEM)
    item = popularity(rng, p.items, int(fresh.sum()), p.dist, p.exponent)[np.cumsum(fresh) - 1]

    # amounts: log-normal, transfers with a heavier tail
    sigma = np.where(kind == KINDS.index("transfer"), 1.5, 1.0)
    amount = np.round(np.exp(3.0 + sigma * rng.standard_normal(events)), 2)

    # unique, increasing event times
    order = np.argsort(time, kind="stable")
    time = time[order]
    position = np.arange(events)
    time = np.maximum.accumulate(time - position) + position + BASE_MS

    out = np.zeros(events, dtype=RECORD)
    out["event_time"] = time
    out["user_id"] = user[order]
    out["item_id"] = item[order]
    out["amount"] = amount[order]
    out["kind"] = kind[order]
    if p.disorder_ms > 0:
        arrival = time + rng.integers(0, p.disorder_ms, events)
        out = out[np.argsort(arrival, kind="stable")]
    return out


def as_table(records: Array) -> pa.Table:
    """Records as Arrow, with the columns of the Parquet files."""
    columns = {name: pa.array(np.ascontiguousarray(records[name])) for name in ("event_time", "user_id", "item_id")}
    kinds = pa.DictionaryArray.from_arrays(pa.array(np.ascontiguousarray(records["kind"])), pa.array(KINDS))
    columns["kind"] = kinds.cast(pa.string())
    columns["amount"] = pa.array(np.ascontiguousarray(records["amount"]))
    columns["ts"] = columns["event_time"].cast(pa.timestamp("ms", tz="UTC"))
    return pa.table(columns)


def write(
    records: Array, folder: Path, parameters: Parameters, *, files: int = 16, binary: bool = False
) -> dict[str, Any]:
    """Write the data set; returns what ``meta.json``, written last, holds."""
    (folder / "parquet").mkdir(parents=True, exist_ok=True)
    bounds = np.linspace(0, len(records), files + 1).astype(np.int64)
    for index in range(files):
        table = as_table(records[bounds[index] : bounds[index + 1]])
        pq.write_table(table, folder / "parquet" / f"part-{index:05d}.parquet", compression="snappy")
    if binary:
        records.tofile(folder / "events.bin")
    counts = np.bincount(records["kind"], minlength=len(KINDS))
    meta = asdict(parameters) | {
        "kinds": KINDS,
        "record_bytes": RECORD.itemsize,
        "files": files,
        "sha256_bin": hashlib.sha256(records.data).hexdigest(),
        "first_event_time": int(records["event_time"].min()),
        "last_event_time": int(records["event_time"].max()),
        "kind_counts": {kind: int(count) for kind, count in zip(KINDS, counts, strict=True)},
        "numpy": np.__version__,
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))
    return meta


def main(arguments: list[str] | None = None) -> None:
    cli = argparse.ArgumentParser(description="Generate the benchmark's events.")
    cli.add_argument("--out", type=Path, required=True, help="folder to write")
    cli.add_argument("--size", choices=list(SIZES), help="a standard size; --events and --users override it")
    cli.add_argument("--events", type=int)
    cli.add_argument("--users", type=int)
    cli.add_argument("--items", type=int, help="default: users / 2")
    cli.add_argument("--dist", choices=["zipf", "uniform"], default="zipf")
    cli.add_argument("--exponent", type=float, default=0.6)
    cli.add_argument("--seed", type=int, default=42)
    cli.add_argument("--disorder-ms", type=int, default=5_000)
    cli.add_argument("--span-ms", type=int, default=86_400_000)
    cli.add_argument("--files", type=int, default=16, help="number of Parquet files")
    cli.add_argument("--bin", action="store_true", help="write events.bin too")
    args = cli.parse_args(arguments)
    events, users = SIZES.get(args.size, (args.events, args.users))
    events, users = args.events or events, args.users or users
    if not events or not users:
        cli.error("give --size, or --events and --users")
    parameters = Parameters(
        events=events,
        users=users,
        items=args.items or max(1, users // 2),
        seed=args.seed,
        disorder_ms=args.disorder_ms,
        span_ms=args.span_ms,
        dist=args.dist,
        exponent=args.exponent,
    )
    print(json.dumps(write(generate(parameters), args.out, parameters, files=args.files, binary=args.bin)))


if __name__ == "__main__":
    main()
