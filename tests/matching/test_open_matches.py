"""Many partial matches of one key: the results of the slow matcher, at a cost that grows with the events."""

from __future__ import annotations

import random
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from asterism import AfterMatchSkipStrategy, Pattern, WithinType
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from tests.kit import bounded
from tests.matching.twin import found

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")

SKIPS = {
    "no_skip": AfterMatchSkipStrategy.no_skip(),
    "to_next": AfterMatchSkipStrategy.skip_to_next(),
    "past_last": AfterMatchSkipStrategy.skip_past_last_event(),
    "to_first": AfterMatchSkipStrategy.skip_to_first("b"),
    "to_last": AfterMatchSkipStrategy.skip_to_last("a"),
}
MS = timedelta(milliseconds=1)


def stage(pattern: Pattern) -> Pattern:
    return pattern.where(f"name = '{pattern.stages[-1].name}'")


def patterns(skip: AfterMatchSkipStrategy) -> dict[str, Pattern]:
    first = stage(Pattern.begin("a", skip))
    return {
        "relaxed": stage(first.followed_by("b")),
        "all": stage(first.followed_by_any("b")),
        "three": stage(stage(first.followed_by("b")).followed_by("c")),
        "loop": stage(stage(first.followed_by("b")).one_or_more().followed_by("c")),
        "looping start": stage(first.one_or_more().followed_by("b")),
        "forbidden": stage(stage(first.not_followed_by("c")).followed_by("b")),
        "gap": stage(stage(first.followed_by("b")).followed_by("c")),
    }


@pytest.mark.parametrize(
    ("name", "skip"), [(name, ("no_skip", "past_last")[n % 2]) for n, name in enumerate(patterns(SKIPS["no_skip"]))]
)
def test_results_are_those_of_the_slow_matcher(name: str, skip: str) -> None:
    """In both semantics, in one piece and in several."""
    rng = random.Random(f"{name} {skip}")
    pattern = patterns(SKIPS[skip])[name].within(rng.choice([6, 25]) * MS)
    if name == "gap":
        pattern = patterns(SKIPS[skip])[name].within(5 * MS, WithinType.PREVIOUS_AND_CURRENT)
    words, at = [], 0
    for number in range(26 if name != "looping start" else 14):
        at += rng.choice([0, 1, 1, 2])
        words.append(f"{rng.choice('aaaaaaabcx')}{at}")
        if number % 9 == 8:
            words.append("|")
    found(pattern, " ".join(words), limit=None)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_limit_keeps_the_oldest(limit: int) -> None:
    pattern = stage(stage(Pattern.begin("a")).followed_by("b")).within(20 * MS)
    assert found(pattern, "a1 a2 a3 a4 x5 a6 b7 a8 a8 a9 b10", limit=limit)


@pytest.mark.parametrize("skip", ["no_skip", "to_next", "past_last", "to_last"])
def test_the_cost_grows_with_the_events(skip: str) -> None:
    """200,000 clicks, half of which time out one by one; the others are completed at once. It took minutes."""
    clicks = 200_000
    kinds = ["a"] * clicks + ["b"]
    events = pa.table({"key": ["u"] * len(kinds), "ts": np.arange(len(kinds)), "name": kinds})
    outputs = {kind.value: OutputSpec(kind) for kind in (OutputKind.MATCHES, OutputKind.TIMED_OUT)}
    pattern = stage(stage(Pattern.begin("a", SKIPS[skip])).followed_by("b")).within(clicks // 2 * MS)
    operator = CepOperator(pattern, events.schema, time="ts", keys=["key"], outputs=outputs, max_partial_matches=None)
    store, prepared = MemoryStore(), operator.prepare(EVENTS, events)
    counts = dict.fromkeys(outputs, 0)
    with bounded(150):  # with the time to compile
        for arrivals, now in (([Arrival(EVENTS, prepared)], Now()), ([], Now(2**63 - 1))):
            for name, rows in operator.process(store, arrivals, now).outputs.items():
                counts[name] += rows.num_rows
    assert counts == {"matches": 1 if skip == "past_last" else clicks // 2 - 1, "timed_out": clicks // 2 + 1}
