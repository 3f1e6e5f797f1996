"""Rules over a table with their answers, which every host gives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from asterism import (
    CEP,
    Backtest,
    KeyedStream,
    Lookup,
    NamedCondition,
    Pattern,
    PatternProcessFunction,
    PatternProcessor,
    Semantics,
)
from asterism import Output as EmittedOutput
from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory
from tests.embedded.cases import Rows, seconds

DAY = 86_400
EVENTS = pa.table(
    {
        "ts": pa.array([*seconds(1, 2, 3, 4, 5, 20, DAY + 21, DAY + 22, DAY + 30)], pa.timestamp("us", "UTC")),
        "user": ["ann", "bob", "ann", "ann", "cy", "cy", "bob", "bob", "bob"],
        "item": [7, 7, 8, 8, 9, 9, 8, 8, 8],
        "kind": list("abcbababa"),
        "price": [Decimal(price).scaleb(-1) for price in (10, 20, 30, 40, 50, 60, 70, 80, 90)],
    }
)
WITHOUT_TIME = pa.concat_tables(
    [EVENTS, EVENTS.slice(0, 1).set_column(0, EVENTS.schema.field("ts"), pa.nulls(1, EVENTS.schema.field("ts").type))]
)
CLAUSE = "PARTITION BY item ORDER BY ts MEASURES LAST(user) AS u PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
ALL_ROWS = "ALL ROWS PER MATCH " + CLAUSE[CLAUSE.index("PATTERN") :]


def chain(*kinds: str, strict: bool = False) -> Pattern:
    pattern = Pattern.begin(kinds[0]).where(f"kind = '{kinds[0]}'")
    for kind in kinds[1:]:
        pattern = (pattern.next(kind) if strict else pattern.followed_by(kind)).where(f"kind = '{kind}'")
    return pattern.within(dt.timedelta(seconds=10))


RULES = [
    PatternProcessor("by user", 2, chain("a", "b"), timed_out=True),
    PatternProcessor("by item", 3, chain("a", "b", strict=True), key=("item",), select=("LAST(b.user) AS u",)),
    PatternProcessor("later", 1, chain("a", "b"), key=(), timestamp=dt.datetime(2100, 1, 1, tzinfo=dt.UTC)),
    PatternProcessor("in sql", 2, sql=CLAUSE),
    PatternProcessor("all rows", 1, sql=ALL_ROWS),
]
OTHERS = [
    PatternProcessor("by user", 1, chain("a", "b", strict=True)),
    RULES[1],
    PatternProcessor("in sql", 1, chain("a", "b"), key=("item",)),
    PatternProcessor("all rows", 0, sql=ALL_ROWS),
    PatternProcessor("gone", 1, chain("a")),
]
COMPARED = {
    "by user": (1, 0, 1),  # without strict contiguity, one more; the other has the same events
    "by item": (0, 0, 2),  # the same rule on both sides
    "later": (2, 0, 0),
    "in sql": (1, 0, 2),  # a graph on the other side: by times
    "all rows": (0, 0, 4),  # another version of the same clause; each row is a match
    "gone": (0, 4, 0),
}
"""The numbers of matches that were added, removed and kept."""


class Users(PatternProcessFunction):
    """Emits the users of matches to an output of its own."""

    users = EmittedOutput("user STRING")

    def process_matches(self, matches: pa.Table, context: Any) -> pa.Table:
        users = [events[0]["user"] for events in matches.column("a").to_pylist()]
        self.users.collect_batch(pa.table({"user": users}))
        return pa.table({"n": pa.array([len(user) for user in users], pa.int64())})


def risk(price: float) -> int:
    return round(price)


@dataclass(frozen=True)
class RuleCase:
    """Rules over a table.

    :param output: the output whose rows are compared
    :param rows: from these rows to those of *expected*: the columns
    :param expected: the rows, in any order; None: only hosts are compared
    """

    rules: Sequence[PatternProcessor]
    output: str
    columns: Sequence[str]
    expected: Rows | None
    table: pa.Table = field(default_factory=lambda: EVENTS)
    stream: Mapping[str, Any] = field(default_factory=lambda: {"key": "user", "time": "ts"})
    options: Mapping[str, Any] = field(default_factory=dict)

    def stream_of(self, events: Any) -> Any:
        factory = GivenPatternProcessorDiscovererFactory(tuple(self.rules))
        return CEP.pattern_processors(KeyedStream(events, **self.stream), factory, **self.options)

    def rows(self, events: Any) -> Any:
        return self.stream_of(events).output(self.output)


FAILING = PatternProcessor("failing", 1, Pattern.begin("a").where("1 / (price - 5.0) > 0"))
LIMITS = pa.table({"user": ["ann", "bob"], "most": [1.5, 7.5]})
RULE_CASES: dict[str, RuleCase] = {
    "all": RuleCase(
        RULES, "matches", ["processor_id", "key"],
        [("all rows", ["bob"]), ("all rows", ["bob"]), ("all rows", ["cy"]), ("all rows", ["cy"]), ("by item", ["7"]),
         ("by item", ["8"]), ("by user", ["ann"]), ("by user", ["bob"]), ("in sql", ["7"]), ("in sql", ["8"]), ("in sql", ["9"])],
    ),
    "timed out": RuleCase(
        RULES, "timed_out", ["processor_id", "key", "timeout_time"],
        [("by user", ["cy"], seconds(15)[0]), ("by user", ["bob"], seconds(DAY + 40)[0])],
    ),
    "errors": RuleCase(
        [FAILING, RULES[0]], "errors", ["processor_id", "time"], [("failing", seconds(5)[0])],
        options={"on_error": "disable", "key_groups": 4},
    ),
    "late": RuleCase([RULES[0]], "late", ["user", "ts"], [("ann", None)], WITHOUT_TIME),
    "shadow": RuleCase(
        [RULES[0], PatternProcessor("by user", 9, chain("a"), shadow=True)], "shadow", ["processor_version", "key"],
        [(9, ["ann"]), (9, ["cy"]), (9, ["bob"]), (9, ["bob"])],
    ),
    "a function": RuleCase(
        [PatternProcessor("f", 1, chain("a"), function="users")], "matches", ["key", "result"],
        [(["ann"], '{"n": 3}'), (["cy"], '{"n": 2}'), (["bob"], '{"n": 3}'), (["bob"], '{"n": 3}')],
        options={"functions": {"users": Users()}},
    ),
    "an output of a function": RuleCase(
        [PatternProcessor("f", 1, chain("a"), function="users")], "users", ["user"], [("ann",), ("cy",), ("bob",), ("bob",)],
        options={"functions": {"users": Users()}},
    ),
    "a lookup": RuleCase(
        [PatternProcessor("l", 1, Pattern.begin("a").where("price > limits.most"))], "matches", ["key", "start_time"],
        [(["ann"], seconds(3)[0]), (["ann"], seconds(4)[0]), (["bob"], seconds(DAY + 22)[0]), (["bob"], seconds(DAY + 30)[0])],
        options={"lookups": {"limits": Lookup(LIMITS, "user")}},
    ),
    "a function in SQL": RuleCase(
        [PatternProcessor("u", 1, Pattern.begin("a").where("risk(CAST(price AS DOUBLE)) = 9"))], "matches", ["start_time"],
        [(seconds(DAY + 30)[0],)], options={"udfs": {"risk": risk}},
    ),
    "no key, by a condition, in Flink's semantics": RuleCase(
        [PatternProcessor("c", 1, Pattern.begin("a").where(NamedCondition("dear")).next("b"), key=())], "matches", ["start_time"],
        None,
        options={"conditions": {"dear": lambda events: pc.greater(events["price"], 7)}, "semantics": Semantics.FLINK},
    ),
    "no event": RuleCase(RULES, "matches", ["key"], [], EVENTS.slice(0, 0)),
}  # fmt: skip


def compared(events: Any, **options: Any) -> Backtest[Any]:
    """The rules over the events, and the others."""
    return CEP.backtest(KeyedStream(events, key="user", time="ts"), RULES, OTHERS, key_groups=4, **options)
