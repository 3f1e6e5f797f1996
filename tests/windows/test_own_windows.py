"""Window assigners and evictors of users: they do what the built-in ones do, however elements arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from asterism.testing import WindowHarness, check_window_independence
from asterism.windows.assigners import CumulativeWindows, SlidingWindows, TumblingWindows, Windows
from asterism.windows.drawing import draw
from asterism.windows.evictors import Evictor
from asterism.windows.triggers import CountTrigger, EventTimeTrigger, TimeSpan

SECOND = timedelta(seconds=1)
EARLY = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
EVENTS = "ann.a1@1s bob.a2@2s ann.a3@9s |5s ann.a4@14s ann.a5@6s |12s bob.a6@11s ann.a7@12s ann.a8@13s |40s"


@dataclass(frozen=True)
class OwnSliding(Windows):
    """SlidingWindows, by hand."""

    size: int
    slide: int

    def assign(self, times: Any) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        rows, starts = [], []
        for row, time in enumerate(times.tolist()):
            newest = time // self.slide * self.slide
            mine = range(newest - self.size + self.slide, newest + 1, self.slide)
            rows += [row] * len(mine)
            starts += mine
        return rows, starts, [start + self.size for start in starts]


@dataclass(frozen=True)
class OwnCumulative(Windows):
    """CumulativeWindows of nine and three seconds, by hand: windows with the same start."""

    def assign(self, times: Any) -> tuple[Any, Any, Any]:
        start = times // 9_000_000 * 9_000_000
        ends = start[:, None] + np.array([3, 6, 9]) * 1_000_000
        row, number = np.nonzero(ends > times[:, None])
        return row, start[row], ends[row, number]


class Newest(Evictor):
    """Evictor.count(2), by hand."""

    def __init__(self, after: bool) -> None:
        self.after = after

    def keeps(self, elements: pa.Table, window: TimeSpan) -> Any:
        assert window.start is not None
        return np.arange(elements.num_rows) >= elements.num_rows - 2


@pytest.mark.parametrize(
    ("own", "built_in"),
    [
        (OwnSliding(10_000_000, 5_000_000), SlidingWindows.of(10 * SECOND, 5 * SECOND)),
        (OwnCumulative(), CumulativeWindows.of(9 * SECOND, 3 * SECOND)),
    ],
    ids=repr,
)
def test_own_windows_do_what_the_built_in_ones_do(own: Windows, built_in: Windows) -> None:
    found = [
        check_window_independence(windows, EARLY, EVENTS, cuts=1, allowed_lateness=9 * SECOND)
        for windows in (own, built_in)
    ]
    assert found[0].firings == found[1].firings
    assert len(found[0].firings) > 8
    assert draw(own, EARLY) == draw(built_in, EARLY).replace(repr(built_in), repr(own))


@pytest.mark.parametrize("after", [False, True])
def test_an_own_evictor_does_what_a_built_in_one_does(after: bool) -> None:
    found = [
        check_window_independence(TumblingWindows.of(10 * SECOND), EARLY, EVENTS, cuts=1, evictor=evictor)
        for evictor in (Newest(after), Evictor.count(2, after=after))
    ]
    assert found[0].firings == found[1].firings


class CardsOnly(Evictor):
    """May remove everything."""

    def keeps(self, elements: pa.Table, window: TimeSpan) -> Any:
        return pc.equal(elements["kind"], "card")


def test_a_window_fires_though_its_elements_have_been_evicted() -> None:
    options: dict[str, Any] = {"evictor": CardsOnly(), "aggregate": ["count(*) AS n", "sum(value) AS total"]}
    found = check_window_independence(
        TumblingWindows.of(10 * SECOND), EARLY, "a1@1s a2@2s a3@3s card4@4s |10s", **options
    )
    assert found.firings == [
        "[0s,10s) #1 early: n=0 total=null",
        "[0s,10s) #2 early: n=1 total=4",
        "[0s,10s) #3 on_time!: n=1 total=4",
    ]
    found = check_window_independence(TumblingWindows.of(10 * SECOND), EARLY, "a1@1s |5s a2@2s |10s", **options)
    assert found.firings == ["[0s,10s) #1 early: n=0 total=null", "[0s,10s) #2 on_time!: n=0 total=null"]


def test_the_repr_of_own_things_does_not_depend_on_the_process() -> None:
    assert repr(CardsOnly()) == "CardsOnly(...)"
    assert repr(OwnCumulative()) == "OwnCumulative()"
    assert WindowHarness(OwnCumulative()).window_operator.fingerprint


def test_cumulative_windows() -> None:
    """The example of CUMULATE in the documentation of Flink SQL, with a second for a minute."""
    windows = CumulativeWindows.of(10 * SECOND, 2 * SECOND)
    found = WindowHarness(windows, aggregate="sum(value) AS price").send("c4@5s a2@7s d5@9s b3@11s e1@13s f6@17s").end()
    assert found.firings == [
        "[0s,6s) #1 on_time!: price=4",
        "[0s,8s) #1 on_time!: price=6",
        "[0s,10s) #1 on_time!: price=11",
        "[10s,12s) #1 on_time!: price=3",
        "[10s,14s) #1 on_time!: price=4",
        "[10s,16s) #1 on_time!: price=4",
        "[10s,18s) #1 on_time!: price=10",
        "[10s,20s) #1 on_time!: price=10",
    ]


def test_a_day_of_25_hours_has_25_cumulative_windows() -> None:
    windows = CumulativeWindows.of(timedelta(days=1), timedelta(hours=1), zone="Europe/Berlin")
    midnight = 1_729_980_000_000_000  # 2024-10-27 in Berlin, when clocks are set back
    rows, starts, ends = windows.assign(np.array([midnight, midnight + 24 * 3_600_000_000]))
    assert rows.tolist() == [0] * 25 + [1]
    assert set(starts.tolist()) == {midnight}
    assert ends.tolist() == [midnight + hour * 3_600_000_000 for hour in [*range(1, 26), 25]]
