"""Every allocation of the matching loops fails once: run in a process where numba compiles nothing (NUMBA_DISABLE_JIT)."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.columns.groups import KEY_HASH
from asterism.columns.time import END_OF_TIME
from asterism.errors import LimitExceededError
from asterism.matching import kernels, linking, matcher, page
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.sequence import AfterMatchSkipStrategy
from asterism.rules.matching import selections as shares

SCHEMA = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("kind", pa.string()), ("x", pa.int64())])


class Memory:
    """numpy, whose *fails*-th allocation does not succeed."""

    def __init__(self) -> None:
        self.requests = 0
        self.fails = -1

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name not in (
            "empty",
            "zeros",
            "full",
            "concatenate",
            "cumsum",
            "sort",
            "nonzero",
            "repeat",
            "array",
            "arange",
        ):
            return found

        def allocate(*args: Any, **options: Any) -> Any:
            self.requests += 1
            if self.requests - 1 == self.fails:
                raise MemoryError(f"allocation {self.fails}")
            return found(*args, **options)

        return allocate


def patterns() -> dict[str, tuple[Pattern, dict[str, Any]]]:
    loop = (
        Pattern.begin("a")
        .where("kind = 'a'")
        .followed_by_any("b")
        .where("kind = 'b'")
        .one_or_more()
        .allow_combinations()
    )
    loop = loop.followed_by("c").where("kind = 'c' AND x > SUM(b.x)").within(timedelta(seconds=40))
    pairs = Pattern.begin("a").where("kind = 'a'").followed_by_any("b").where("kind = 'b'")
    return {
        "loop": (loop, {}),
        "dropped": (loop, {"max_partial_matches": 5, "on_limit": "drop"}),
        "held": (pairs.skip_strategy(AfterMatchSkipStrategy.skip_past_last_event()), {}),
        "pages": (pairs, {"pages": 3}),
    }


def tried(pattern: Pattern, options: dict[str, Any], memory: Memory) -> int:
    """Of a call over state and events; how many allocations it has."""
    outputs = {kind.value: OutputSpec(kind) for kind in OutputKind}
    operator = CepOperator(pattern, SCHEMA, keys=["key"], time="ts", outputs=outputs, **options)
    kinds = "aabbcbc"
    rows = [{"key": f"k{n % 2}", "ts": n * 1000, "kind": kinds[n // 2], "x": n} for n in range(2 * len(kinds))]

    def prepared(some: list[dict[str, Any]]) -> pa.Table:
        table = pa.Table.from_pylist(some, schema=SCHEMA)
        hashes = pa.array([int(row["key"][1:]) << 32 for row in some], pa.int64())
        return operator.prepare(EVENTS, table.append_column(KEY_HASH, hashes))

    first = MemoryStore()
    operator.process(first, [Arrival(EVENTS, prepared(rows[:6])), Arrival(EVENTS, None, 4_500_000)], Now())
    arrivals = [Arrival(EVENTS, prepared(rows[6:])), Arrival(EVENTS, None, 11_000_000)]

    def call() -> tuple[MemoryStore, Any]:
        store = MemoryStore(first.header, dict(first.pages))
        return store, operator.process(store, arrivals, Now())

    memory.requests, memory.fails = 0, -1
    expected = call()
    count = memory.requests
    for number in range(count):
        store = MemoryStore(first.header, dict(first.pages))
        memory.requests, memory.fails = 0, number
        with pytest.raises((LimitExceededError, MemoryError), match=rf"allocation {number}\b"):
            operator.process(store, arrivals, Now())
        assert store == first, f"allocation {number}: state was written"
        memory.fails = -1
        if number % 8 == 0:  # nothing that is kept in the process is broken
            assert same(operator.process(store, arrivals, Now()), expected[1]), f"allocation {number}"
            assert store == expected[0], f"allocation {number}: another state"
    operator.process(store, [], Now(END_OF_TIME))
    assert store.is_empty
    return count


def same(one: Any, other: Any) -> bool:
    return bool(
        one.outputs == other.outputs and one.metrics == other.metrics and one.next_event_time == other.next_event_time
    )


def main() -> None:
    memory = Memory()
    for module in (kernels, linking, matcher, page, shares):
        module.np = memory  # type: ignore[attr-defined]
    whole = matcher.SLICE
    for name, size in (("loop", whole), ("loop", 5), ("dropped", whole), ("held", 3), ("pages", whole)):
        matcher.SLICE = size
        pattern, options = patterns()[name]
        sys.stdout.write(f"{name} {tried(pattern, options, memory)}\n")


if __name__ == "__main__":
    main()
