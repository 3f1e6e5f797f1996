"""One call that makes three million matches of one key, in little memory."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from asterism import Pattern
from asterism.columns.time import END_OF_TIME
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore

SCHEMA = pa.schema([("ts", pa.int64()), ("kind", pa.string()), ("x", pa.int64()), ("y", pa.int64())])
ROOM = 700 * 2**20
"""Bytes of address space beyond those that are in use before; the matches have more than a thousand million."""


def found(firsts: int, seconds: int) -> int:
    pattern = Pattern.begin("a").where("kind = 'a'").followed_by_any("b").where("kind = 'b'")
    operator = CepOperator(pattern, SCHEMA, time="ts", outputs={"matches": OutputSpec(OutputKind.MATCHES)})
    count = firsts + seconds
    kinds = ["a"] * firsts + ["b"] * seconds
    events = pa.table([np.arange(count), kinds, np.arange(count), np.arange(count)], schema=SCHEMA)
    arrivals = [Arrival(EVENTS, operator.prepare(EVENTS, events))]
    total = 0
    for result in operator.slices(MemoryStore(), arrivals, Now(END_OF_TIME)):
        for table in result.outputs.values():
            total += table.num_rows
    return total


def main() -> None:
    found(5, 5)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    firsts, seconds = (int(value) for value in sys.argv[1:] or ("3000", "1000"))
    sys.stdout.write(f"{found(firsts, seconds)} matches\n")


if __name__ == "__main__":
    main()
