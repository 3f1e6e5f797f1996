"""Patterns over tables with their answers, which every host gives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from asterism import (
    CEP,
    AfterMatchSkipStrategy,
    CountTrigger,
    Evictor,
    GlobalWindows,
    KeyedStream,
    Output,
    Pattern,
    PatternProcessFunction,
    Semantics,
    SessionWindows,
    Side,
    SlidingWindows,
    TumblingWindows,
    as_of_join,
    interval_join,
    match_recognize,
    multi_broadcast_join,
    multi_join,
    window,
    window_join,
)

Rows = list[tuple[Any, ...]]
SECOND = dt.timedelta(seconds=1)


def seconds(*values: float) -> list[dt.datetime]:
    return [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + value * SECOND for value in values]


TRADES = pa.table(
    {
        "id": [1, 2, 3, 4, 5, 6, 7, 8],
        "symbol": ["a", "b", "A", "b", "a", "b", None, None],
        "ts": pa.array(seconds(1, 2, 3, 4, 5, 6, 7, 8), pa.timestamp("us", "UTC")),
        "price": [5.0, 9.0, 3.0, 8.0, 7.0, 2.0, 4.0, 6.0],
        "volume": pa.array([1, 2, None, 4, 5, 6, 7, 8], pa.int32()),
        "fee": [Decimal("0.10"), Decimal("0.20"), Decimal("0.30"), None, Decimal("0.50"), Decimal("0.60"), None, None],
        "note": pa.array([{"tags": ["x"]}, None, {"tags": []}, {"tags": None}, None, None, None, None]),
    }
)
UNSORTED = TRADES.take([6, 3, 0, 7, 5, 1, 4, 2])
LONG_TIMES = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "user": ["u", "u", "u", "u", "u"],
        "ts": [1, 1, 1, 90, None],
        "rank": [2, 3, 1, 1, 1],
    }
)
DATES = pa.table({"id": [1, 2, 3], "day": [dt.date(2026, 1, 1), dt.date(2026, 1, 2), dt.date(2026, 1, 9)]})


def two() -> Pattern:
    return Pattern.begin("x").followed_by("y").where("price < LAST(x.price)").within(10 * SECOND)


class Counted(PatternProcessFunction):
    """Emits the ids of first events to an output of its own."""

    firsts = Output("id BIGINT")

    def process_matches(self, matches: pa.Table, context: Any) -> pa.Table:
        ids = [events[0]["id"] for events in matches.column("x").to_pylist()]
        self.firsts.collect_batch(pa.table({"id": pa.array(ids, pa.int64())}))
        return pa.table({"n": pa.array([len(ids)] * len(ids), pa.int64())})


@dataclass(frozen=True)
class Case:
    """A query over a table.

    :param stream: the options of the KeyedStream
    :param options: those of the pattern
    :param rows: from the results to the rows of one output: a table or a DataFrame
    :param expected: the rows, in any order; None: only hosts are compared
    """

    table: pa.Table
    pattern: Callable[[], Pattern]
    rows: Callable[[Any], Any]
    expected: Rows | None
    stream: Mapping[str, Any] = field(default_factory=lambda: {"key": "symbol", "time": "ts"})
    options: Mapping[str, Any] = field(default_factory=dict)

    def results(self, events: Any) -> Any:
        return CEP.pattern(KeyedStream(events, **self.stream), self.pattern(), **self.options)


ID_PAIRS = ["x.id AS x", "y.id AS y"]
CASES: dict[str, Case] = {
    "pairs": Case(TRADES, two, lambda found: found.select(*ID_PAIRS), [("b", 2, 4), ("b", 4, 6)]),
    "unsorted": Case(UNSORTED, two, lambda found: found.select(*ID_PAIRS), [("b", 2, 4), ("b", 4, 6)]),
    "matches": Case(TRADES, two, lambda found: found.matches, None),
    "timed_out": Case(
        TRADES, two, lambda found: found.select("x.id AS x", output="timed_out"),
        [("a", 1), ("A", 3), ("a", 5), ("b", 6), (None, 7), (None, 8)],
    ),
    "all of timed_out": Case(TRADES, two, lambda found: found.timed_out, None),
    "a key that is an expression": Case(
        TRADES, two, lambda found: found.select(*ID_PAIRS), [("a", 1, 3), ("b", 2, 4), ("b", 4, 6)],
        {"key": "lower(symbol) AS s", "time": "ts"},
    ),
    "two keys": Case(
        TRADES, two, lambda found: found.select(*ID_PAIRS), [("b", 0, 2, 4), ("b", 0, 4, 6)],
        {"key": ["symbol", "id % 2 AS odd"], "time": "ts"},
    ),
    "no key": Case(
        TRADES, lambda: two().within(1.5 * SECOND), lambda found: found.select(*ID_PAIRS), [(2, 3), (4, 5), (5, 6)],
        {"time": "ts"},
    ),
    "functions in conditions": Case(
        TRADES,
        lambda: Pattern.begin("x").where("upper(symbol) = 'A' AND coalesce(volume, 0) * 2 <= 2 AND hour(ts) = 0"),
        lambda found: found.select("x.id AS x"), [("a", 1), ("A", 3)],
    ),
    "measures": Case(
        TRADES, lambda: Pattern.begin("x").one_or_more().consecutive().next("y").where("price < 3"),
        lambda found: found.select(
            "COUNT(x.*) AS n", "SUM(x.fee) AS fees", "AVG(x.price) AS mean", "MAX(x.volume) AS most", "y.ts AS at",
            "ARRAY_AGG(x.id) AS ids", "match_time", "start_time",
        ),
        [
            ("b", 2, Decimal("0.20"), 8.5, 4, seconds(6)[0], [2, 4], seconds(6)[0], seconds(2)[0]),
            ("b", 1, None, 8.0, 4, seconds(6)[0], [4], seconds(6)[0], seconds(4)[0]),
        ],
    ),
    "conditions in Python": Case(
        TRADES, lambda: Pattern.begin("x").where(lambda events: [price > 6 for price in events["price"].to_pylist()]),
        lambda found: found.select("x.id AS x"), [("b", 2), ("b", 4), ("a", 5)],
    ),
    "Flink's semantics": Case(
        TRADES, two, lambda found: found.select(*ID_PAIRS), [("b", 2, 4), ("b", 4, 6)], options={"semantics": Semantics.FLINK}
    ),
    "skipping": Case(
        TRADES, lambda: Pattern.begin("x", AfterMatchSkipStrategy.skip_past_last_event()).next("y"),
        lambda found: found.select(*ID_PAIRS), [("a", 1, 5), ("b", 2, 4), (None, 7, 8)],
    ),
    "equal times": Case(
        LONG_TIMES.slice(0, 4), lambda: Pattern.begin("x").next("y"), lambda found: found.select(*ID_PAIRS),
        [("u", 3, 1), ("u", 1, 2), ("u", 2, 4)],
        {"key": "user", "time": "ts", "time_unit": "seconds", "order_by": ["rank"]},
    ),
    "arrival order": Case(
        LONG_TIMES.slice(0, 4), lambda: Pattern.begin("x").next("y"), lambda found: found.select(*ID_PAIRS),
        [("u", 1, 2), ("u", 2, 3), ("u", 3, 4)], {"key": "user", "time": "ts", "time_unit": "seconds"},
    ),
    "late": Case(
        LONG_TIMES, lambda: Pattern.begin("x"), lambda found: found.late, [(5, "u", None, 1)],
        {"key": "user", "time": "ts"},
    ),
    "dates": Case(
        DATES, lambda: Pattern.begin("x").next("y").within(dt.timedelta(days=2)),
        lambda found: found.select(*ID_PAIRS, "match_time"), [(1, 2, dt.date(2026, 1, 2))], {"time": "day"},
    ),
    "a match function": Case(
        TRADES, two, lambda found: found.process(lambda matches: matches.select(["symbol"]), "symbol STRING"),
        [("b",), ("b",)],
    ),
    "an output of a match function": Case(
        TRADES, two, lambda found: found.process(Counted(), "n BIGINT", output="firsts"), [(2,), (4,)]
    ),
    "no matches": Case(TRADES, lambda: Pattern.begin("x").where("price > 100"), lambda found: found.matches, []),
    "no events": Case(TRADES.slice(0, 0), two, lambda found: found.select(*ID_PAIRS), []),
}  # fmt: skip


@dataclass(frozen=True)
class ClauseCase:
    """A clause over the table, with the rows of its matches in any order; None: only hosts are compared."""

    clause: str
    expected: Rows | None
    options: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, rows: Any) -> Any:
        return match_recognize(rows, self.clause, **self.options).matches


_FALLS = "PATTERN (A B+) DEFINE B AS price < PREV(price)"
CLAUSES: dict[str, ClauseCase] = {
    "one row": ClauseCase(
        f"PARTITION BY symbol ORDER BY ts MEASURES A.id AS first, LAST(B.id) AS last, COUNT(*) AS n {_FALLS}",
        [("b", 2, 6, 3)],
    ),
    "all rows": ClauseCase(
        f"ORDER BY ts MEASURES MATCH_NUMBER() AS m, CLASSIFIER() AS c ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW {_FALLS}",
        None,
    ),
    "an expression as a key": ClauseCase(
        f"PARTITION BY lower(symbol) AS s ORDER BY ts DESC MEASURES A.id AS first, SUM(fee) AS fees {_FALLS}",
        [("a", 5, Decimal("0.80")), (None, 8, None)],
    ),
    "within": ClauseCase(
        "PARTITION BY symbol ORDER BY ts MEASURES FIRST(id) AS first, hour(LAST(ts)) AS hour"
        " PATTERN (A B) WITHIN INTERVAL '2' SECOND DEFINE A AS upper(symbol) = 'B'",
        [("b", 2, 0)],
    ),
    "Flink's dialect": ClauseCase(
        f"PARTITION BY symbol ORDER BY ts MEASURES A.id AS first ONE ROW PER MATCH {_FALLS}",
        [("b", 2), ("b", 4)],
        {"dialect": "flink"},
    ),
    "no matches": ClauseCase("ORDER BY ts MEASURES A.id AS a PATTERN (A) DEFINE A AS price > 100", []),
}


@dataclass(frozen=True)
class WindowCase:
    """Windows over the table, with the rows of a result in any order; None: only hosts are compared."""

    windows: Callable[[], Any]
    rows: Callable[[Any], Any]
    expected: Rows | None
    stream: Mapping[str, Any] = field(default_factory=lambda: {"key": "symbol", "time": "ts"})
    options: Mapping[str, Any] = field(default_factory=dict)

    def results(self, events: Any) -> Any:
        return window(KeyedStream(events, **self.stream), self.windows(), **self.options)


def _sum(windowed: Any) -> Any:
    return windowed.aggregate("sum(volume) AS n", "max_by(id, ts) AS last")


WINDOWS: dict[str, WindowCase] = {
    "tumbling": WindowCase(
        lambda: TumblingWindows.of(4 * SECOND), _sum,
        [
            ("a", seconds(0)[0], seconds(4)[0], 1, "on_time", True, 1, 1),
            ("A", seconds(0)[0], seconds(4)[0], 1, "on_time", True, None, 3),
            ("b", seconds(0)[0], seconds(4)[0], 1, "on_time", True, 2, 2),
            ("a", seconds(4)[0], seconds(8)[0], 1, "on_time", True, 5, 5),
            ("b", seconds(4)[0], seconds(8)[0], 1, "on_time", True, 10, 6),
            (None, seconds(4)[0], seconds(8)[0], 1, "on_time", True, 7, 7),
            (None, seconds(8)[0], seconds(12)[0], 1, "on_time", True, 8, 8),
        ],
    ),
    "sliding": WindowCase(lambda: SlidingWindows.of(4 * SECOND, 2 * SECOND), _sum, None),
    "sessions": WindowCase(
        lambda: SessionWindows.with_gap(2.5 * SECOND), _sum, None, {"key": "lower(symbol) AS s", "time": "ts"}
    ),
    "count": WindowCase(
        GlobalWindows, _sum, None, options={"trigger": CountTrigger.at_least(2), "evictor": Evictor.count(1)}
    ),
    "processing time": WindowCase(
        GlobalWindows, lambda windowed: windowed.aggregate("count(*) AS n"), None, {"key": "symbol"},
        {"trigger": CountTrigger.at_least(2)},
    ),
    "a window function": WindowCase(
        lambda: TumblingWindows.of(4 * SECOND),
        lambda windowed: windowed.process(
            lambda elements, window: {"ids": elements.column("id").to_pylist()}, "ids ARRAY<BIGINT>"
        ),
        None,
    ),
    "reduce": WindowCase(
        lambda: TumblingWindows.of(8 * SECOND),
        lambda windowed: windowed.reduce(lambda a, b: max(a, b, key=lambda row: row["price"])),
        None,
    ),
    "late": WindowCase(lambda: TumblingWindows.of(4 * SECOND), lambda windowed: windowed.late, []),
}  # fmt: skip


QUOTES = pa.table(
    {
        "quote": [1, 2, 3, 4, 5],
        "symbol": ["b", "a", "b", None, "a"],
        "ts": pa.array(seconds(5, 1, 2, 7, 9), pa.timestamp("us", "UTC")),
        "bid": [8.5, 4.0, 9.5, 3.0, 6.0],
    }
)
SECONDS = (dt.timedelta(seconds=-2), dt.timedelta(seconds=1))


def sides(trades: Any, quotes: Any) -> tuple[KeyedStream[Any], KeyedStream[Any]]:
    return KeyedStream(trades, key="symbol", time="ts"), KeyedStream(quotes, key="symbol", time="ts")


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "interval": lambda trades, quotes: interval_join(*sides(trades, quotes), SECONDS, prefix="q_").results,
    "left, with a condition": lambda trades, quotes: (
        interval_join(*sides(trades, quotes), SECONDS, how="left", on="price > q_bid", prefix="q_").results
    ),
    "full": lambda trades, quotes: interval_join(*sides(trades, quotes), SECONDS, how="full", prefix="q_").results,
    "as of": lambda trades, quotes: as_of_join(*sides(trades, quotes), how="left", prefix="q_").results,
    "window": lambda trades, quotes: (
        window_join(*sides(trades, quotes), TumblingWindows.of(4 * SECOND), prefix="q_").results
    ),
    "many": lambda trades, quotes: (
        multi_join(
            dict(zip(("trades", "quotes"), sides(trades, quotes), strict=True)),
            {("trades", "quotes"): SECONDS},
            how={"quotes": "left"},
            prefix={"quotes": "q_"},
        ).results
    ),
    "late": lambda trades, quotes: interval_join(*sides(trades, quotes), SECONDS, prefix="q_").late_left,
    "small tables": lambda trades, quotes: multi_broadcast_join(
        trades,
        quotes=Side(quotes, on={"symbol": "symbol"}, how="left", select=["quote", "bid"], prefix="q_"),
        same=Side(quotes, on={"q_quote": "quote", "symbol": "symbol"}, select=["ts"], prefix="s_"),
    ),
    "small tables that filter": lambda trades, quotes: multi_broadcast_join(
        trades,
        known=Side(quotes, on="symbol", how="left_semi"),
        same=Side(quotes, on={"price": "bid"}, how="left_anti"),
    ),
}
