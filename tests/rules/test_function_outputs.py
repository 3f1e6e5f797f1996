"""Functions of rules with outputs of their own, and functions and conditions of rules that are opened and closed."""

from __future__ import annotations

import json
import random
from collections import Counter as Counts
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from asterism import (
    Counter,
    Gauge,
    MatchContext,
    OpenContext,
    Output,
    Pattern,
    PatternProcessFunction,
    RegisteredCondition,
)
from asterism.errors import StreamDefinitionError, UserFunctionError
from asterism.patterns.conditions import NamedCondition
from asterism.rules.matching.result_rows import ERRORS, MATCHES, SHADOW, TIMED_OUT
from tests.rules.driver import SCHEMA, Driver, Event, chain, cuts, processor

LOG: list[str] = []


class Escalations(PatternProcessFunction):
    escalations = Output("rule STRING, version BIGINT, id STRING, x DOUBLE")
    unfinished = Output("rule STRING, id STRING")
    escalated = Counter()

    def open(self, context: OpenContext) -> None:
        assert context.schema.names == SCHEMA.names
        LOG.append("open")

    def close(self) -> None:
        LOG.append("close")

    def process_matches(self, matches: pa.Table, ctx: MatchContext) -> pa.Table:
        rows = []
        for match in matches.to_pylist():
            x = match["a"][0]["x"]
            if x > 1:
                self.escalated.inc()
                row = {"rule": ctx.processor_id, "version": ctx.processor_version, "id": match["match_id"]}
                self.escalations.collect(row, x=1 / (x - 7))
            rows.append({"match_id": match["match_id"], "x": x})
        return pa.Table.from_pylist(rows, pa.schema([("match_id", pa.string()), ("x", pa.float64())]))

    def process_timed_out_matches(self, matches: pa.Table, ctx: MatchContext) -> None:
        for id in matches["match_id"].to_pylist():
            self.unfinished.collect(rule=ctx.processor_id, id=id)


@pytest.fixture(autouse=True)
def log() -> list[str]:
    LOG.clear()
    return LOG


def e(second: float, kind: str, user: str = "ann", x: float = 0.0) -> Event:
    return second, user, 7, kind, x


AB = processor("ab", 1, chain("a", "b"), function="escalate", timed_out=True)
AC = processor("ac", 3, chain("a", "c"), function="escalate")
FUNCTIONS = {"escalate": Escalations()}
EVENTS = [
    e(1, "a", x=2.0), e(2, "b"), e(3, "c"), e(4, "a", "bob"), e(5, "b", "bob"), e(6, "a", "eve", x=3.0), e(70, "c", "eve"),
    e(71, "a", "eve", x=9.0), e(72, "b", "eve"),
]  # fmt: skip


def rows_of(driver: Driver, *outputs: str) -> dict[str, Counts[str]]:
    return {name: Counts(map(str, driver.rows[name])) for name in outputs}


def test_rules_share_the_outputs_of_their_function(log: list[str]) -> None:
    driver = Driver(functions=FUNCTIONS).batch(EVENTS, sets=[AB, AC]).end()
    rows = driver.rows["escalations"]
    assert sorted((row["rule"], row["version"], row["x"]) for row in rows) == [
        ("ab", 1, -0.2), ("ab", 1, 0.5), ("ac", 3, -0.2)
    ]  # fmt: skip
    assert {row["id"] for row in rows} <= {row["match_id"] for row in driver.rows[MATCHES]}
    assert [json.loads(row["result"])["x"] for row in driver.rows[MATCHES] if row["processor_id"] == "ac"] == [2.0]
    assert [(row["processor_id"], row["result"], row["events"]) for row in driver.rows[TIMED_OUT]] == [
        ("ab", None, None)
    ]
    assert [(row["rule"], row["id"]) for row in driver.rows["unfinished"]] == [
        ("ab", row["match_id"]) for row in driver.rows[TIMED_OUT]
    ]
    assert driver.metrics["escalated"] == 3
    driver.operator.close()
    assert log == ["open", "close"]


@pytest.mark.parametrize("seed", range(3))
def test_they_do_not_depend_on_micro_batches_and_changes_of_other_rules(seed: int) -> None:
    rng = random.Random(seed)
    outputs = MATCHES, TIMED_OUT, "escalations", "unfinished"
    whole = Driver(functions=FUNCTIONS).batch(EVENTS, sets=[AB, AC]).end()
    other = processor("other", 1, chain("b", "c"))
    driver = Driver(functions=FUNCTIONS, key_groups=2).batch(sets=[AB, AC])
    for number, piece in enumerate(cuts(EVENTS, rng)):
        driver.batch(piece, sets=[AB, AC, replace(other, version=number + 1)], watermark=piece[-1][0])
    driver.end()
    for driver_ in (driver, whole):
        driver_.rows[MATCHES] = [row for row in driver_.rows[MATCHES] if row["processor_id"] != "other"]
    assert rows_of(driver, *outputs) == rows_of(whole, *outputs)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_what_was_emitted_before_a_function_fails_stays(size: int) -> None:
    events = [e(1, "a", x=2.0), e(2, "b"), e(3, "a", x=7.0), e(4, "b"), e(5, "a", x=9.0), e(6, "b"), e(7, "c")]
    driver = Driver(functions=FUNCTIONS, disable_on_error=True).batch(sets=[replace(AB, timed_out=False), AC])
    for begin in range(0, len(events), size):
        piece = events[begin : begin + size]
        driver.batch(piece, watermark=piece[-1][0])
    driver.end()
    assert [(row["rule"], row["x"]) for row in driver.rows["escalations"] if row["rule"] == "ab"] == [("ab", -0.2)]
    assert sorted(row["processor_id"] for row in driver.rows[ERRORS]) == ["ab", "ac"]
    assert driver.metrics["escalated"] == 1


def test_a_shadow_emits_nothing_to_the_outputs_of_functions() -> None:
    shadow = replace(AB, version=2, shadow=True)
    for wanted in (True, False):
        driver = Driver(functions=FUNCTIONS, wants_shadow=wanted).batch(EVENTS, sets=[AB, shadow]).end()
        assert {(row["rule"], row["version"]) for row in driver.rows["escalations"]} == {("ab", 1)}
        assert len(driver.rows["unfinished"]) == 1
        assert len(driver.rows[SHADOW]) == (3 if wanted else 0)
        assert driver.metrics["escalated"] == 2


def test_a_suppressed_match_is_not_processed() -> None:
    from datetime import timedelta

    once = replace(AB, timed_out=False, suppress=timedelta(hours=1))
    driver = Driver(functions=FUNCTIONS)
    driver.batch([e(1, "a", x=2.0), e(2, "b"), e(3, "a", x=3.0), e(4, "b")], sets=[once]).end()
    assert [row["x"] for row in driver.rows["escalations"]] == [-0.2]


class Other(PatternProcessFunction):
    def process_matches(self, matches: pa.Table, ctx: MatchContext) -> None:
        return None


def test_functions_may_declare_the_same_and_nothing_different() -> None:
    same = type("Same", (Other,), {"escalations": Escalations.escalations, "escalated": Counter()})
    assert "escalations" in Driver(functions={**FUNCTIONS, "same": same()}).rows
    for declared in ({"escalations": Output("n BIGINT")}, {"escalated": Gauge()}):
        with pytest.raises(StreamDefinitionError, match=r"declare .* differently"):
            Driver(functions={**FUNCTIONS, "other": type("Different", (Other,), declared)()})
    for declared in ({"errors": Output("n BIGINT")}, {"shadow": Output("n BIGINT")}, {"suppressed": Counter()}):
        with pytest.raises(StreamDefinitionError, match="which a query has anyway"):
            Driver(functions={"other": type("Taken", (Other,), declared)()})


def test_without_rows_a_match_has_no_result() -> None:
    driver = Driver(functions={"escalate": Other()}).batch(EVENTS, sets=[AB]).end()
    assert [(row["processor_id"], row["result"]) for row in driver.rows[MATCHES]] == [("ab", None)] * 3


def test_a_function_that_cannot_be_opened_fails_the_query_and_not_the_rule() -> None:
    class Unreachable(Escalations):
        def open(self, context: OpenContext) -> None:
            raise ConnectionError("no route")

    driver = Driver(functions={"escalate": Unreachable()}, disable_on_error=True)
    with pytest.raises(UserFunctionError, match=r"Unreachable\.open failed"):
        driver.batch(EVENTS, sets=[AB]).end()
    driver = Driver(functions={"escalate": Unreachable()}, disable_on_error=True)
    driver.batch(EVENTS, sets=[replace(AB, shadow=True)]).end()
    assert [row["processor_id"] for row in driver.rows[ERRORS]] == ["ab"]


class IsKind:
    def open(self, context: OpenContext) -> None:
        self.schema = context.schema
        LOG.append("open")

    def close(self) -> None:
        LOG.append("close")

    def __call__(self, events: pa.Table, kind: str, other: str = "") -> Any:
        assert events.schema.names == self.schema.names
        return pc.or_(pc.equal(events["kind"], kind), pc.equal(events["kind"], other))


def test_a_registered_condition_is_opened_once(log: list[str]) -> None:
    conditions = {"is": RegisteredCondition(IsKind(), {"kind": str, "other": str})}

    def rule(name: str, *kinds: str) -> Any:
        begin = Pattern.begin("a").where(NamedCondition("is", [kinds[0]]))
        return processor(name, 1, begin.followed_by("b").where(NamedCondition("is", [kinds[1]])))

    driver = Driver(conditions=conditions)
    driver.operator.compiler.try_out(rule("ab", "a", "b"))
    assert log == ["open", "close"], "a check does not leave it open"
    for begin in range(0, len(EVENTS), 3):
        driver.batch(EVENTS[begin : begin + 3], sets=[rule("ab", "a", "b"), rule("bc", "b", "c")])
    driver.end()
    assert log == ["open", "close", "open"]
    driver.operator.close()
    driver.operator.close()
    assert log == ["open", "close", "open", "close"]
    assert {found[0] for found in driver.found} == {"ab", "bc"}
