"""Pattern processors on Spark: what changes while a query runs, is killed, is started anew, or cannot reach its rules."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from asterism import Pattern, PatternProcessorStream
from asterism.errors import AsterismError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.discovery_status import INTERRUPTED
from asterism.rules.sets.set_store import STORE, FolderStore
from tests.discovery.places import Place
from tests.end_to_end.victim import AB, PASSWORD, disguises, watch
from tests.kit import until
from tests.spark.rules import Event, Found, Watch, at, chain, e, found, rule

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])


# ---------------------------------------------------------------------- the discoverer is not there


def check_without_discoverer(spark: SparkSession, tmp_path: Path, place: Place) -> None:
    of_both = Pattern.begin("c").where("kind = 'c'").followed_by("d").where("concat(LAST(c.kind), kind) = 'cd'")
    cd = PatternProcessor("cd", 1, of_both)  # DuckDB evaluates its condition
    query = Watch(spark, tmp_path, factory=place.factory())
    place.write([AB.to_dict()])
    query.events(e(1, "a"), e(1.5, "tick"))
    query.once()
    place.break_it()
    with query.running():
        status = query.wait_for({"ab": 1}, INTERRUPTED)
        assert status.error is not None
        assert status.error.startswith("RuleSourceError: [RULE_SOURCE] ")
        assert place.secret is None or place.secret not in status.error
        query.send(e(2, "b"), e(3, "c"))
        assert query.query is not None
        assert query.query.lastProgress is not None
        assert PatternProcessorStream.discovery(query.query.lastProgress).startswith("interrupted: RuleSourceError: ")
        place.mend()
        place.write([AB.to_dict(), cd.to_dict()])
        assert query.wait_for({"ab": 1, "cd": 1}).error is None
        query.settle().send(e(4, "c"), e(5, "d"))
    assert query.found == [("ab", 1, ("ann",), "a1 b2"), ("cd", 1, ("ann",), "c4 d5")]


def test_the_plan_of_a_query_has_no_password(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = watch(spark, tmp_path)
    query.rules(AB)
    query.options["store"] = str(tmp_path / "store")
    query.stream.output("matches").explain(True)
    plan = capsys.readouterr().out.encode()
    assert b"StreamingRelationV2" in plan
    assert not any(secret in plan for secret in disguises(PASSWORD))


def test_without_any_set_a_query_fails(spark: SparkSession, tmp_path: Path) -> None:
    query = Watch(spark, tmp_path)
    with pytest.raises(AsterismError, match="no pattern processors could be discovered"):
        query.once()


# ---------------------------------------------------------------------- a simple model


@dataclass(frozen=True)
class Chain:
    """A rule that can be told in a line."""

    name: str
    version: int
    kinds: tuple[str, ...]
    strict: bool = False
    within: float = 50.5
    key: tuple[str, ...] | None = None
    timestamp: float | None = None

    @property
    def processor(self) -> PatternProcessor:
        pattern = chain(*self.kinds, strict=self.strict, within=self.within)
        timestamp = None if self.timestamp is None else at(self.timestamp)
        return PatternProcessor(self.name, self.version, pattern, timestamp, self.key)


@dataclass(eq=False)
class Life:
    """A version of a rule, with its partial matches: for the events of the times that are its."""

    rule: Chain
    began: float
    until: float = float("inf")
    open: dict[tuple[str, ...], list[tuple[Event, ...]]] = field(default_factory=dict)

    @property
    def begins(self) -> float:
        return self.began if self.rule.timestamp is None else self.rule.timestamp

    @property
    def key(self) -> tuple[str, ...]:
        return self.rule.key or ("user",)

    def see(self, event: Event) -> Iterator[Found]:
        second, kind, user, item, _ = event
        key = tuple(str({"user": user, "item": item}[name]) for name in self.key)
        going = []
        for run in [*self.open.get(key, ()), ()]:
            if run and second - run[0][0] >= self.rule.within:
                continue
            if kind == self.rule.kinds[len(run)]:
                run = (*run, event)
                if len(run) == len(self.rule.kinds):
                    yield self.rule.name, self.rule.version, key, " ".join(f"{e[1]}{e[0]:g}" for e in run)
                else:
                    going.append(run)
            elif run and not self.rule.strict:
                going.append(run)
        self.open[key] = going


class Model:
    """What is to be found: micro-batch by micro-batch, each with the sets that it brings, and its events."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.keys = {("user",): 0}
        """By which key rules group, with the number of the set since which they do: events have arrived with it, or wait."""
        self.sets = 0
        self.waiting: list[tuple[Event, int]] = []
        self.watermark = float("-inf")
        self.found: list[Found] = []

    def announce(self, rules: Sequence[Chain], number: int, waiting: Sequence[tuple[int, Chain]] = ()) -> None:
        """The whole truth: what is not in it goes, what has another version is replaced, at once or at its time.

        :param waiting: versions of sets that came together with this one
        """
        lives: list[Life] = []
        for one in rules:
            mine = [life for life in self.lives if life.rule.name == one.name]
            together = [version for came, version in waiting if version.name == one.name and came > self.sets]
            for version in [*together, one]:
                new = Life(version, self.watermark)
                life = next((life for life in mine if life.rule.version == version.version), new)
                before = [other for other in mine if other is not life and other.begins < life.begins]
                mine = [*before, life] if life.begins > self.watermark else [life]
            for life, after in zip(mine, [*mine[1:], None], strict=True):
                life.until = float("inf") if after is None else after.begins
            lives += mine
        self.lives, self.sets = lives, number
        self.keys = {("user",): 0} | {life.key: self.keys.get(life.key, number) for life in lives}

    def batch(self, events: Sequence[Event]) -> None:
        self.waiting += [(event, self.sets) for event in events if event[0] > self.watermark]
        self.watermark = max([self.watermark, *(event[0] - 0.001 for event in events)])
        for event, number in sorted(one for one in self.waiting if one[0][0] <= self.watermark):
            for life in self.lives:
                if self.keys[life.key] <= number and life.begins <= event[0] < life.until:
                    self.found += life.see(event)
        self.waiting = [one for one in self.waiting if one[0][0] > self.watermark]
        self.lives = [life for life in self.lives if life.until > self.watermark]

    def follow(self, query: Watch, rules: Sequence[Chain]) -> list[Found]:
        """The micro-batches as they were."""
        known = {(one.name, one.version): one for one in rules}
        store = FolderStore(f"{query.checkpoint}/{STORE}")
        for number, events in query.history():
            if number > self.sets:  # of those that came together the last one counts, with the versions that wait
                came = store.get(number)
                waiting = [(one.added, known[one.processor.id, one.processor.version]) for one in came.earlier]
                self.announce([known[one.id, one.version] for one in came.processors], number, waiting)
            self.batch(events)
        return sorted(self.found)


def some_events(rng: random.Random, first: int, count: int) -> list[Event]:
    users = ["ann", "bob", "cy"]
    return [e(first + n, rng.choice("abcd"), rng.choice(users), rng.randint(1, 2)) for n in range(count)]


# ---------------------------------------------------------------------- a micro-batch that is repeated


def test_a_repeated_micro_batch_gives_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """All its outputs to the byte, though a rule was published between the two attempts."""
    query = Watch(spark, tmp_path, on_error="disable")
    attempts: dict[str, list[Any]] = {"matches": [], "late": [], "errors": []}
    divides = PatternProcessor("divides", 1, Pattern.begin("a").where("kind = 'a' AND 1 / x > 0"), key=("item",))
    published = [rule("z", 1, "z", "x"), rule("by item", 1, "x", "z", key=("item", "kind"))]

    def keep(name: str) -> Callable[[DataFrame, int], None]:
        def sink(df: DataFrame, batch_id: int) -> None:
            rows = df.toArrow()
            if batch_id == 1:
                attempts[name].append(rows)
            if batch_id == 1 and name == "errors" and len(attempts[name]) == 1:
                query.rules(AB, divides, *published)
                store = FolderStore(f"{query.checkpoint}/{STORE}")
                until(lambda: 2 in store.numbers())
                raise RuntimeError("the sink fails")

        return sink

    query.sinks = {name: keep(name) for name in attempts}
    query.rules(AB, divides)
    query.events(e(100, "tick"))
    query.once()
    query.events(
        e(10, "a"), e(11, "z"), (None, "z", "ann", 7, 0.0), e(200, "z"), e(200, "a"), e(200, "z", item=8), e(201, "b"),
        e(230, "x"), e(300, "tick"),
    )  # fmt: skip
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.once()
    query.once()
    for name, (first, second) in attempts.items():
        assert first == second, name
    assert found(attempts["matches"][0].to_pylist()) == [("ab", 1, ("ann",), "a200 b201")]
    assert sorted((row["kind"], row["ts"] is None) for row in attempts["late"][0].to_pylist()) == [
        ("a", False),
        ("z", True),
    ]
    assert attempts["errors"][0].num_rows == 1
