"""The instances of an operator over streams without a key keep their state, and lists of fewer instances are put together."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from asterism import Input, ListState, MapState, Output, StreamOperator, ValueState
from asterism.savepoints.instances import is_distributed, undivided_tables
from asterism.testing import StreamOperatorHarness
from tests.savepoints.regrouping import regroup

SECOND = timedelta(seconds=1)
COLUMNS = "ts TIMESTAMP, v BIGINT"


class Sums(StreamOperator):
    """Values, a map, a list and timers of each instance."""

    numbers = Input(COLUMNS)
    total = ValueState("BIGINT")
    by_rest = MapState("BIGINT", "BIGINT")
    last = ListState("BIGINT")
    out = Output("line STRING")

    @numbers.process_element
    def add(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.v)
        self.by_rest.put(e.v % 3, e.v)
        self.last.add(e.v)
        ctx.register_event_time_timer("t", e.ts + 5 * SECOND)
        self.out.collect(line=f"{self.total.value()} {sorted(self.by_rest.items())} {self.last.get()}")

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(line=f"timer {self.last.get()}")


class Buffer(StreamOperator):
    """A list, which is emitted at the end."""

    numbers = Input(COLUMNS)
    kept = ListState("BIGINT")
    out = Output("v BIGINT")

    @numbers.process_element
    def keep(self, e: Any, ctx: Any) -> None:
        self.kept.add(e.v)

    @numbers.end_input
    def end(self, ctx: Any) -> None:
        ctx.apply_to_keyed_state(self.kept, self.emit)

    def emit(self, key: Any, kept: Any) -> None:
        for value in kept.get():
            self.out.collect(v=value)


def run(operator: StreamOperator, key_groups: list[int], *, moves: bool = True) -> Counter[str]:
    """The rows of a run that has these numbers of instances one after the other.

    :param moves: whether the state moves through a savepoint; otherwise the number of instances does not change
    """
    rng = random.Random(4)
    stream = {"time": "ts", "distributed": True}
    harness = StreamOperatorHarness(operator, {"numbers": stream}, key_groups=key_groups[0])
    for number, now in enumerate(key_groups):
        if number and moves:
            regroup(harness, now)
        for second in range(10 * number, 10 * number + 10):
            rows = [{"ts": f"{second + rng.randrange(3)}s", "v": rng.randrange(100)} for _ in range(3)]
            harness.send("numbers", rows).advance_watermark(f"{max(second - 2, 0)}s")
    return Counter(map(str, harness.end().rows("out")))


def test_instances_keep_their_state() -> None:
    expected = run(Sums(), [3, 3, 3], moves=False)
    assert expected.total() > 90
    assert run(Sums(), [3, 3, 3]) == expected


@pytest.mark.parametrize("key_groups", [[3, 8], [8, 3], [3, 8, 2, 5], [4, 1]])
def test_no_element_of_a_list_is_lost_or_there_twice(key_groups: list[int]) -> None:
    assert run(Buffer(), key_groups) == run(Buffer(), [1] * len(key_groups))


def test_what_several_instances_cannot_have_together() -> None:
    stream = {"numbers": {"time": "ts", "distributed": True}}
    definition = StreamOperatorHarness(Sums(), stream).operator.definition
    assert is_distributed(definition)
    assert undivided_tables(definition) == ["state:total", "state:by_rest", "timers"]
    keyed = StreamOperatorHarness(Sums(), {"numbers": {"time": "ts", "key": "v"}}).operator.definition
    assert not is_distributed(keyed)
