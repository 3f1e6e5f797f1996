"""More of rules on Spark: stores that are exchanged, random updates, rules that fail, discoverers of other kinds."""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from asterism import Pattern
from asterism.discovery import SqlPatternProcessorDiscovererFactory
from asterism.errors import AsterismError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.discovery_status import OFF
from asterism.rules.sets.interfaces import ProcessorRegistry
from asterism.rules.sets.set_store import FolderStore
from tests.discovery.places import FilePlace, PostgresqlPlace
from tests.discovery.postgresql import Server
from tests.end_to_end.victim import AB, BY_ITEM
from tests.kit import FACTOR, until
from tests.spark.rules import INTERVAL, Watch, at, e, found, rule
from tests.spark.test_rules import FAILS, Chain, Model, check_without_discoverer, some_events

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_the_last_set_goes_on_without_its_file(spark: SparkSession, tmp_path: Path) -> None:
    with closing(FilePlace(tmp_path)) as place:
        check_without_discoverer(spark, tmp_path, place)


def test_the_last_set_goes_on_without_its_database(
    spark: SparkSession, tmp_path: Path, postgresql: Server, database: str
) -> None:
    with closing(PostgresqlPlace(postgresql, database)) as place:
        check_without_discoverer(spark, tmp_path, place)


def test_an_older_folder_of_sets_is_noticed_when_the_rules_have_changed(spark: SparkSession, tmp_path: Path) -> None:
    """Its next set then has the number of one that was used. The key groups, which have that, would never get it."""
    store, backup = tmp_path / "store", tmp_path / "backup"
    query = Watch(spark, tmp_path, store=str(store))
    query.rules(AB)
    query.events(e(1, "a"))
    query.once()
    until(lambda: FolderStore(str(store)).read_status().state == OFF)
    shutil.copytree(store, backup)
    query.rules(AB, BY_ITEM)
    query.events(e(2, "a"))
    query.once()
    until(lambda: FolderStore(str(store)).read_status().state == OFF)
    shutil.move(store, tmp_path / "used")
    shutil.copytree(backup, store)
    query.rules(BY_ITEM)
    query.events(e(3, "b"), e(9, "z"))
    with pytest.raises(AsterismError, match="set 2 of pattern processors is not the one that the checkpoint has used"):
        query.once()
    shutil.rmtree(store)
    shutil.move(tmp_path / "used", store)
    query.once()
    assert [(id, matched) for id, _, _, matched in query.found] == [("by item", "a2 b3")]


def test_events_that_wait_meet_the_rules_of_the_next_run(spark: SparkSession, tmp_path: Path) -> None:
    """The watermark passes the events in the second run, whose rules are others."""
    query = Watch(spark, tmp_path, delay=60)
    query.rules(AB, rule("gone", 1, "a", "b"))
    query.events(e(12, "a"), e(14, "A", "bob"), e(15, "z", "cy"))
    query.once()
    anew = {"id": "sql", "version": 1, "sql": "PATTERN (A B) DEFINE A AS upper(kind) = 'A', B AS kind = 'b'"}
    query.rules(rule("ab", 2, "a", "b", timestamp=at(10)), anew)
    query.events(e(13, "b"), e(16, "b", "bob"), e(100, "z", "cy"))
    query.once()
    rows = query.sinks["matches"].rows
    assert found(row for row in rows if row["processor_id"] == "ab") == [("ab", 2, ("ann",), "a12 b13")]
    assert sorted((row["processor_id"], *row["key"]) for row in rows) == [("ab", "ann"), ("sql", "ann"), ("sql", "bob")]


@dataclass
class Failing:
    """A sink that fails when it has written a micro-batch that Spark has not committed yet: the last of so many."""

    sink: Callable[[DataFrame, int], None]
    left: int

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.sink(df, batch_id)
        self.left -= 1
        if not self.left:
            raise RuntimeError("the sink fails")


@pytest.mark.parametrize("seed", range(FACTOR))
def test_a_long_random_run_equals_the_model(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Updates and events as they come, sets that come together, a query that is stopped, and one that fails in its sink."""
    rng = random.Random(seed)
    query = Watch(spark, tmp_path, key_groups=5)
    known: list[Chain] = []
    current: dict[str, Chain] = {}
    collect = query.sinks["matches"]
    second = 1

    def update() -> None:
        for name in rng.sample("pqrs", rng.choice([1, 1, 1, 2])):
            if rng.random() < 0.15:
                current.pop(name, None)
                continue
            current[name] = Chain(
                name,
                len(known),
                tuple(rng.sample("abcd", rng.choice([2, 2, 3]))),
                strict=rng.random() < 0.3,
                within=rng.choice([6.5, 20.5]),
                key=rng.choice([None, ("item",), ("user", "item")]),
                timestamp=rng.choice([None, None, second + rng.randint(-3, 15)]),
            )
            known.append(current[name])
        query.rules(*(one.processor for one in current.values()))

    def send(count: int) -> None:
        nonlocal second
        query.events(*some_events(rng, second, count))
        second += count

    update()
    for life in range(3):
        fails = life % 3 == 1
        query.sinks["matches"] = Failing(collect, rng.randint(2, 4)) if fails else collect
        running = query.start(processingTime="0 seconds")
        for _ in range(8):
            if rng.random() < 0.7:
                update()
                time.sleep(rng.choice([0.0, 0.1, 0.5]))
            if rng.random() < 0.7:
                send(rng.randint(3, 15))
            time.sleep(rng.choice([0.0, 0.1, 0.5]))
        while fails and running.isActive:
            send(1)
            time.sleep(0.5)
        assert (running.exception() is not None) == fails
        running.stop()
    query.sinks["matches"] = collect
    query.events(e(second + 100, "tick"))
    query.once()
    expected = Model().follow(query, known)
    assert len(expected) > 10
    assert query.found == expected


def test_a_processor_that_fails_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """And again, whatever the next version is, for the micro-batch is the same; until it is allowed to be disabled."""
    query = Watch(spark, tmp_path)
    query.rules(AB, PatternProcessor("fraud-7", 3, FAILS))
    query.events(e(1, "a", x=1.0), e(2, "b", x=1.0), e(3, "z"))
    with pytest.raises(AsterismError, match='the pattern processor "fraud-7" version 3 failed') as caught:
        query.once()
    for part in ("division by zero", 'stage "b"', "key 'ann'", "event of 1970-01-01T00:00:02"):
        assert part in str(caught.value)
    query.rules(AB, PatternProcessor("fraud-7", 4, FAILS))
    with pytest.raises(AsterismError, match='the pattern processor "fraud-7" version 3 failed'):
        query.once()
    query.options["on_error"] = "disable"
    query.once()
    query.events(e(4, "a", x=1.0), e(5, "b", x=2.0), e(6, "z"))
    query.options["on_error"] = "fail"
    query.once()
    assert query.found == [
        ("ab", 1, ("ann",), "a1 b2"),
        ("ab", 1, ("ann",), "a4 b5"),
        ("fraud-7", 4, ("ann",), "a4 b5"),
    ]
    assert [row["processor_version"] for row in query.sinks["errors"].rows] == [3]


def dummy(a: int) -> PatternProcessor:
    """The class of the example has one parameter, an int; here it says which item to look for."""
    return PatternProcessor(f"dummy-{a}", 1, Pattern.begin("event").where(f"item = {a}"))


def test_the_example_of_flip_200(spark: SparkSession, tmp_path: Path, postgresql: Server, database: str) -> None:
    """Its table, on PostgreSQL, with its class; a row is added, one changed, one removed, one names what is not registered."""
    name = "org.apache.flink.cep.processor.DummyPatternProcessor"

    def execute(statement: str, *values: Any) -> None:
        with psycopg.connect(database) as connection:
            connection.execute(statement, values)

    def put(uid: int, value: int, class_name: str = name) -> None:
        execute(
            """INSERT INTO rules VALUES (%s, %s, %s)
               ON CONFLICT (uid) DO UPDATE SET "constructorParams" = EXCLUDED."constructorParams" """,
            uid, class_name, json.dumps([{"type": "int", "value": value}]),
        )  # fmt: skip

    execute('CREATE TABLE rules (uid INT PRIMARY KEY, "className" TEXT, "constructorParams" JSONB)')
    put(1, 0)
    put(2, 1)
    registry = ProcessorRegistry({name: dummy})
    factory = SqlPatternProcessorDiscovererFactory(database, "rules", registry=registry, interval=INTERVAL)
    query = Watch(spark, tmp_path, factory=factory, keys=())
    with query.running():
        query.wait_for({"dummy-0": 1, "dummy-1": 1})
        query.settle().send(e(1, "x", item=0), e(2, "x", item=1), e(3, "x", item=5))
        # The row that is not understood may be any processor: as long as it is there, none goes. It comes first, because
        # the table may be read between any two of these.
        put(9, 2, "os.system")
        put(3, 7)
        put(1, 5)
        execute("DELETE FROM rules WHERE uid = 2")
        status = query.wait_for({f"dummy-{n}": 1 for n in (0, 1, 5, 7)})
        assert "the class 'os.system' is not registered" in status.refused["uid 9"]
        execute("DELETE FROM rules WHERE uid = 9")
        query.wait_for({"dummy-5": 1, "dummy-7": 1})
        query.settle().send(*(e(10 + item, "x", item=item) for item in range(8)))
    assert [(name, events) for name, _, _, events in query.found] == [
        ("dummy-0", "x1"),
        ("dummy-1", "x2"),
        ("dummy-5", "x15"),
        ("dummy-7", "x17"),
    ]


def test_a_folder_of_sets_that_is_lost_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise the sets of the new folder would have numbers that were there, and be taken for old ones."""
    query = Watch(spark, tmp_path, store=str(tmp_path / "store"))
    query.rules(AB)
    query.events(e(1, "a"))
    with query.running():
        query.settle().rules(AB, BY_ITEM)
        until(lambda: FolderStore(str(tmp_path / "store")).read_status().version == 2, query.query)
        query.settle()
    query.options["store"] = str(tmp_path / "another")
    query.events(e(2, "b"), e(9, "z"))
    with pytest.raises(AsterismError, match="the checkpoint has 2 sets of pattern processors"):
        query.once()
    query.options["store"] = str(tmp_path / "store")
    query.once()
    assert query.found == [("ab", 1, ("ann",), "a1 b2")]


def test_after_the_end_of_input_rules_are_told_again(spark: SparkSession, tmp_path: Path) -> None:
    """A drain leaves no state. A run that goes on after it has the rules, though their set has not changed."""
    query = Watch(spark, tmp_path)
    query.rules(AB)
    for second in (1, 101):
        query.events(e(second, "a"), e(second + 1, "b"))
        query.stream.run(query.sinks, checkpoint=str(query.checkpoint))
    assert query.found == [("ab", 1, ("ann",), "a1 b2"), ("ab", 1, ("ann",), "a101 b102")]
