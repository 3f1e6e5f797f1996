"""The attack in a log of an SSH server, found by two live engines in two processes, each with a part of the addresses.

    python examples/live_processes.py attacks-state

The log is read in batches of 100 lines, as if they were just arriving, and each batch is divided by the address. The position of
a batch is its number. After a failure, a process gets the batches after those that its state has: call the program again.
Without a folder for the state, it is in a temporary one.
"""

from __future__ import annotations

import multiprocessing
import sys
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from asterism import CEP, AfterMatchSkipStrategy, KeyedStream, Pattern

LOG = Path(__file__).resolve().parent / "data" / "ssh_auth.csv"
PARTS, BATCH = 2, 100
SCHEMA = pa.schema([("ip", pa.string()), ("ts", pa.timestamp("us")), ("event", pa.string()), ("user", pa.string())])
LOGINS: Any = KeyedStream(SCHEMA, key="ip", time="ts")
ATTACK = (
    Pattern.begin("fails", AfterMatchSkipStrategy.skip_past_last_event())
    .where("event = 'failed'").times_or_more(3).consecutive()
    .next("login").where("event = 'accepted'").within(timedelta(minutes=10))
)  # fmt: skip
MEASURES = ["match_id", "COUNT(fails.*) AS failures", "login.user AS user"]


def part_of(addresses: pa.ChunkedArray) -> pa.Array:
    """The part of each address. It is the same in every process, which Python's ``hash`` is not."""
    distinct = addresses.combine_chunks().dictionary_encode()
    parts = [zlib.crc32(address.encode()) % PARTS for address in distinct.dictionary.to_pylist()]
    return pa.array(parts, pa.int64()).take(distinct.indices)


def batches() -> Iterator[tuple[pa.Table, datetime]]:
    """The log in batches, each with a time before which no event comes any more."""
    log = csv.read_csv(LOG).select(SCHEMA.names).cast(SCHEMA)
    log = log.filter(pc.is_in(log["event"], pa.array(["failed", "accepted"])))
    for begin in range(0, log.num_rows, BATCH):
        batch = log.slice(begin, BATCH)
        yield batch, batch["ts"][-1].as_py() - timedelta(seconds=1)  # the next batch may begin in the same second


def find(part: int, folder: str, pipe: Connection) -> None:
    """What each process does: find the attacks from the addresses of its part."""
    with CEP.pattern(LOGINS, ATTACK).open(Path(folder, f"part-{part}"), select={"matches": MEASURES}) as engine:
        pipe.send(engine.position)
        while (batch := pipe.recv()) is not None:
            number, events, watermark = batch
            for attack in engine.process(events, position=number, watermark=watermark)["matches"].to_pylist():
                print(f"{attack['ip']}: {attack['failures']} failures, then a login as {attack['user']}", flush=True)


def run(folder: str) -> None:
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    processes = []
    for part in range(PARTS):
        pipe, other = context.Pipe()
        processes.append(context.Process(target=find, args=(part, folder, other)))
        processes[-1].start()
        other.close()
        pipes.append(pipe)
    positions = [pipe.recv() for pipe in pipes]
    for number, (batch, watermark) in enumerate(batches()):
        parts = part_of(batch["ip"])
        for part, pipe in enumerate(pipes):
            if positions[part] is None or number > positions[part]:
                events = batch.filter(pc.equal(parts, part))
                pipe.send((number, events, watermark))  # without events, too: the watermark decides about matches
    for process, pipe in zip(processes, pipes, strict=True):
        pipe.send(None)
        process.join()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        with TemporaryDirectory() as temporary:
            run(temporary)
