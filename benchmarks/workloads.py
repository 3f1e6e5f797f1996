"""The workloads as Asterism patterns. README.md says what each of them finds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from asterism import CEP, KeyedStream, Pattern
from asterism.spark.plan import DEFAULT_KEY_GROUPS
from asterism.spark.query import PatternStream

KEY, TIME = "user_id", "ts"
DISORDER = timedelta(seconds=5)
COLUMNS = ("event_time", "user_id", "item_id", "kind", "amount")


@dataclass(frozen=True, slots=True)
class Workload:
    """A pattern, and the event times of its matches, in match order, as measures ``t1``, ``t2``, ..."""

    name: str
    pattern: Pattern
    measures: tuple[str, ...]
    kinds: tuple[str, ...] | None = None
    """What a filter written by hand would let through; None: every event matters."""

    @property
    def tag(self) -> int:
        """What distinguishes the checksums of different workloads."""
        return int(self.name[1:])

    def times(self, matches: pa.Table, *, summed: bool = True) -> list[npt.NDArray[np.int64]]:
        """The event times of the matches; of W1, *summed* tells that the second column is a sum."""
        times = [matches.column(f"t{number}").to_numpy() for number in range(1, len(self.measures) + 1)]
        if self.name == "W1" and summed:
            times[1] = times[1] - times[0] - times[2]
        return times

    def find(self, events: DataFrame, *, key_groups: int = DEFAULT_KEY_GROUPS) -> PatternStream:
        stream = KeyedStream(events, key=KEY, time=TIME, max_out_of_orderness=DISORDER)
        return CEP.pattern(stream, self.pattern, key_groups=key_groups)


def _minutes(minutes: int) -> timedelta:
    return timedelta(minutes=minutes)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "W1",
            Pattern.begin("a")
            .where("kind = 'login_fail'")
            .times(3)
            .followed_by("b")
            .where("kind = 'login_ok'")
            .within(_minutes(10)),
            # t2 is a sum here: of three integers, it tells the one between the first and the last
            (
                "FIRST(a.event_time) AS t1",
                "SUM(a.event_time) AS t2",
                "LAST(a.event_time) AS t3",
                "b.event_time AS t4",
            ),
            ("login_fail", "login_ok"),
        ),
        Workload(
            "W2",
            Pattern.begin("v")
            .where("kind = 'view'")
            .next("c")
            .where("kind = 'cart'")
            .next("b")
            .where("kind = 'buy'")
            .within(_minutes(60)),
            ("v.event_time AS t1", "c.event_time AS t2", "b.event_time AS t3"),
        ),
        Workload(
            "W3",
            Pattern.begin("a")
            .where("kind = 'transfer'")
            .followed_by("b")
            .where("kind = 'transfer' AND amount > 10 * LAST(a.amount)")
            .within(_minutes(30)),
            ("a.event_time AS t1", "b.event_time AS t2"),
            ("transfer",),
        ),
        Workload(
            "W4",
            Pattern.begin("a").where("kind = 'cart'").not_followed_by("b").where("kind = 'buy'").within(_minutes(30)),
            ("a.event_time AS t1",),
            ("cart", "buy"),
        ),
    )
}
