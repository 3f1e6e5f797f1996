"""The workloads as Asterism patterns, and as MATCH_RECOGNIZE. README.md says what each of them finds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from asterism import CEP, KeyedStream, Pattern, match_recognize, sql
from asterism.streams.pattern_stream import PatternStream
from asterism.streams.row_patterns import RowPatternStream

KEY, TIME, TIMESTAMP = "user_id", "event_time", "ts"
"""The key of the events, their time in milliseconds, and the same as a TIMESTAMP."""
DISORDER = timedelta(seconds=5)
COLUMNS = ("event_time", "user_id", "item_id", "kind", "amount")


@dataclass(frozen=True, slots=True)
class Workload:
    """A pattern, and the event times of its matches, in match order, as measures ``t1``, ``t2``, ...; without measures, where
    matches have different lengths, they are read from the events of the match.
    """

    name: str
    pattern: Pattern
    measures: tuple[str, ...] | None
    kinds: tuple[str, ...] | None = None
    """What a filter written by hand would let through; None: every event matters."""
    clause: str | None = None
    """The same as MATCH_RECOGNIZE, with the event times as columns ``t1``, ``t2``, ...; None: it has no such form."""

    @property
    def tag(self) -> int:
        """What distinguishes the checksums of different workloads."""
        return int(self.name[1:])

    def times(self, matches: pa.Table, *, as_columns: bool = False) -> pa.ListArray:
        """The event times of each match; *as_columns*: of a window query or a clause, whose columns are the times."""
        if self.measures is None:
            return one_chunk(matches.column("times")) if as_columns else self._event_times(matches)
        times = [matches.column(f"t{number}").to_numpy() for number in range(1, len(self.measures) + 1)]
        if self.name == "W1" and not as_columns:
            times[1] = times[1] - times[0] - times[2]  # it was a sum
        offsets = np.arange(0, matches.num_rows * len(times) + 1, len(times), dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.column_stack(times).ravel()))

    def _event_times(self, matches: pa.Table) -> pa.ListArray:
        """Stage after stage; no stage comes again after another one."""
        stages = [one_chunk(matches.column(stage.name)) for stage in self.pattern.stages]
        counts = [pc.list_value_length(stage).to_numpy(zero_copy_only=False) for stage in stages]
        ends = np.cumsum(np.sum(counts, axis=0))
        place = np.concatenate([[0], ends[:-1]])
        times = np.empty(ends[-1] if len(ends) else 0, np.int64)
        for stage, count in zip(stages, counts, strict=True):
            within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            times[np.repeat(place, count) + within] = pc.struct_field(pc.list_flatten(stage), "event_time").to_numpy()
            place = place + count
        return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]).astype(np.int32)), pa.array(times))

    def find(self, events: DataFrame, *, key_groups: int | None = None) -> PatternStream:
        if self.measures is None:
            events = events.drop("item_id")  # a match has all columns of its events
        stream = KeyedStream(events, key=KEY, time=TIME, max_out_of_orderness=DISORDER)
        return CEP.pattern(stream, self.pattern, key_groups=key_groups)

    def matches(self, events: DataFrame) -> DataFrame:
        found = self.find(events)
        return found.matches if self.measures is None else found.select(*self.measures)

    def match_clause(self, events: DataFrame, *, key_groups: int | None = None) -> RowPatternStream:
        assert self.clause is not None
        return match_recognize(events, self.clause, max_out_of_orderness=DISORDER, key_groups=key_groups)

    def statement(self, events: DataFrame, *, key_groups: int | None = None) -> DataFrame:
        text = f"SELECT * FROM events MATCH_RECOGNIZE ({self.clause})"
        return sql(text, events.sparkSession, max_out_of_orderness=DISORDER, key_groups=key_groups, events=events)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _clause(measures: str, pattern: str, minutes: int, define: str) -> str:
    return (
        f"PARTITION BY {KEY} ORDER BY {TIMESTAMP} MEASURES {measures} AFTER MATCH SKIP TO NEXT ROW"
        f" PATTERN ({pattern}) WITHIN INTERVAL '{minutes}' MINUTE DEFINE {define}"
    )


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
            _clause(
                "F1.event_time AS t1, F2.event_time AS t2, F3.event_time AS t3, K.event_time AS t4",
                "F1 X1* F2 X2* F3 X3* K",
                10,
                "F1 AS kind = 'login_fail', X1 AS kind <> 'login_fail', F2 AS kind = 'login_fail',"
                " X2 AS kind <> 'login_fail', F3 AS kind = 'login_fail', X3 AS kind <> 'login_ok', K AS kind = 'login_ok'",
            ),
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
            clause=_clause(
                "V.event_time AS t1, C.event_time AS t2, B.event_time AS t3",
                "V C B",
                60,
                "V AS kind = 'view', C AS kind = 'cart', B AS kind = 'buy'",
            ),
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
            _clause(
                "A.event_time AS t1, B.event_time AS t2",
                "A X* B",
                30,
                "A AS kind = 'transfer', X AS kind <> 'transfer' OR amount <= 10 * A.amount,"
                " B AS kind = 'transfer' AND amount > 10 * A.amount",
            ),
        ),
        Workload(
            "W4",
            Pattern.begin("a").where("kind = 'cart'").not_followed_by("b").where("kind = 'buy'").within(_minutes(30)),
            ("a.event_time AS t1",),
            ("cart", "buy"),
        ),
        Workload(
            "W5",
            Pattern.begin("a")
            .where("kind = 'view' AND amount >= 60")
            .followed_by_any("b")
            .where("kind = 'cart' AND amount >= 50")
            .one_or_more()
            .allow_combinations()
            .followed_by_any("c")
            .where("kind = 'buy'")
            .within(_minutes(10)),
            None,
            ("view", "cart", "buy"),
        ),
    )
}
