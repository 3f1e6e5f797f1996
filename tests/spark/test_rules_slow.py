"""More of rules on Spark: stores that are exchanged, random updates, rules that fail, discoverers of other kinds."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from asterism import Pattern, PatternProcessorStream, RegisteredCondition
from asterism.discovery import SqlPatternProcessorDiscovererFactory
from asterism.errors import AsterismError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.discovery_status import OFF
from asterism.rules.sets.interfaces import ProcessorRegistry
from asterism.rules.sets.set_store import FolderStore
from tests.discovery.places import FilePlace, PostgresqlPlace, UrlPlace
from tests.discovery.postgresql import Server
from tests.end_to_end.victim import AB, BY_ITEM
from tests.kit import FACTOR, until
from tests.spark.rules import INTERVAL, Event, Watch, at, chain, e, found, rule
from tests.spark.test_rules import Chain, Model, check_without_discoverer, some_events

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def counted(query: Any) -> dict[str, int]:
    """The matches of each processor, as the progress of a query tells."""
    counts: dict[str, int] = {}
    for progress in query.recentProgress:
        for name, count in PatternProcessorStream.matches_by_processor(progress).items():
            counts[name] = counts.get(name, 0) + count
    return counts


def graph(condition: str, stages: int = 1) -> dict[str, Any]:
    nodes = [
        {
            "name": f"s{number}",
            "type": "ATOMIC",
            "quantifier": {"properties": ["SINGLE"]},
            "condition": {"type": "SQL", "expression": condition},
        }
        for number in range(stages)
    ]
    edges = [{"source": f"s{n}", "target": f"s{n + 1}", "type": "STRICT"} for n in range(stages - 1)]
    return {"type": "COMPOSITE", "nodes": nodes, "edges": edges}


FAILS = Pattern.begin("a").where("kind = 'a'").next("b").where("1 / (x - LAST(a.x)) > 0").within(timedelta(minutes=1))


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


def test_a_new_key_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Events are grouped by user; then a rule comes that groups by item, and one that has one group for all."""
    alone = rule("alone", 1, "a", "b", key=())
    query = Watch(spark, tmp_path)
    query.rules(AB)
    with query.running():
        query.send(e(1, "a"), e(2, "a", "bob", 8))
        query.taken(AB, BY_ITEM, alone)
        query.send(e(3, "a", "cy", 9), e(4, "b", "ann", 9), e(5, "b", "bob", 8))
        query.taken(BY_ITEM)
        query.send(e(6, "a", "ann", 8), e(7, "b", "ann", 7), e(8, "b", "cy", 8))
        counts = counted(query.query)
    assert query.found == [
        ("ab", 1, ("ann",), "a1 b4"),
        ("ab", 1, ("bob",), "a2 b5"),
        ("alone", 1, (), "a3 b4"),
        ("by item", 1, ("8",), "a6 b8"),
        ("by item", 1, ("9",), "a3 b4"),
    ]
    assert counts == {"ab": 2, "alone": 1, "by item": 2}
    until(lambda: query.status.state == OFF)


def test_ac_is_never_found_instead_of_abc(spark: SparkSession, tmp_path: Path) -> None:
    """A rule for A, B, C is replaced by one for A, C: FLIP-200 accepts that in between AC is found where there is ABC.

    Many users, each with some letters before the replacement and some after it, in all key groups and partitions.
    """
    cases = [("", "abc"), ("a", "bc"), ("ab", "c"), ("abc", ""), ("", "ac"), ("a", "c"), ("ac", "")]
    users = [f"{before}|{after}|{number}" for before, after in cases for number in range(12)]

    def letters(phase: int) -> list[Event]:
        pairs = [(letter, user) for user in users for letter in user.split("|")[phase]]
        return [e(phase * 100 + n / 8, letter, user) for n, (letter, user) in enumerate(pairs)]

    query = Watch(spark, tmp_path, key_groups=7)
    query.rules(PatternProcessor("rule", 1, chain("a", "b", "c", within=None)))
    with query.running():
        query.send(*letters(0))
        query.taken(PatternProcessor("rule", 2, chain("a", "c", within=None)))
        query.send(*letters(1))
    matches = [(row["key"][0], row["processor_version"], "".join(one["stage"] for one in row["events"]))
               for row in query.sinks["matches"].rows]  # fmt: skip
    expected = {"abc|": (1, "abc"), "|abc": (2, "ac"), "|ac": (2, "ac")}
    assert sorted(matches) == sorted(
        (user, *expected[user.rpartition("|")[0]]) for user in users if user.rpartition("|")[0] in expected
    )


def test_what_is_bad_is_refused_alone(spark: SparkSession, tmp_path: Path) -> None:
    forbidden = tmp_path / "forbidden.csv"
    os.mkfifo(forbidden)  # who reads it waits for ever
    reads = f"kind = (SELECT kind FROM read_csv('{forbidden}'))"
    good = graph("kind = 'a'")
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "ab": ({"version": 2, "pattern": graph("kind = ")}, "kind = "),
        "column": ({"pattern": graph("colour = 'a'")}, "unknown column 'colour'"),
        "type": ({"pattern": graph("kind + 1")}, "kind + 1"),
        "stages": ({"pattern": graph("kind = 'a'", 10_000)}, "too large"),
        "negative": ({"version": -1, "pattern": good}, "a version must be an integer from 0"),
        "function": ({"pattern": good, "function": "os.system"}, "the function 'os.system' is not known"),
        "subquery": ({"pattern": graph(reads)}, "SELECT"),
        "file": ({"pattern": graph(f"read_csv('{forbidden}')")}, "read_csv"),
        "key": ({"pattern": good, "key": [f"read_csv('{forbidden}')"]}, "read_csv"),
        "measure": ({"pattern": good, "select": [f"read_text('{forbidden}') AS t"]}, "read_text"),
        "time": ({"pattern": good, "timestamp": "tomorrow"}, "timestamp is not a point in time"),
        "field": ({"pattern": good, "className": "os.system"}, "no field 'className'"),
        "by item": (BY_ITEM.to_dict() | {"version": 7}, "two processors have the id 'by item'"),
    }
    far = rule("far", 1, "a", timestamp=at(250_000_000_000))
    past = rule("past", 1, "b", timestamp=at(-1))
    query = Watch(spark, tmp_path)
    query.rules(AB)
    with query.running():
        query.send(e(1, "a"))
        items = [{"id": name, "version": 1, **item} for name, (item, _) in bad.items()]
        query.rules(items[0], far, BY_ITEM, *items[1:], past)
        status = query.wait_for({"ab": 1, "far": 1, "by item": 1, "past": 1})
        query.settle().send(e(2, "b"), e(3, "a", "bob", 8), e(4, "b", "cy", 8))
        assert status.refused.keys() == bad.keys()
        for name, (_, reason) in bad.items():
            assert reason in status.refused[name], name
        query.write("[{]")  # nothing of it can be read: everything stays
        until(lambda: all("invalid JSON" in query.status.refused.get(name, "") for name in ("ab", "far")), query.query)
        query.send(e(5, "b", "bob"))
    assert query.found == [
        ("ab", 1, ("ann",), "a1 b2"),
        ("ab", 1, ("bob",), "a3 b5"),
        ("by item", 1, ("8",), "a3 b4"),
        ("past", 1, ("ann",), "b2"),
        ("past", 1, ("bob",), "b5"),
        ("past", 1, ("cy",), "b4"),
    ]


def test_or_it_is_disabled_until_its_next_version(spark: SparkSession, tmp_path: Path) -> None:
    mended = PatternProcessor("fraud-7", 4, FAILS)
    query = Watch(spark, tmp_path, on_error="disable", key_groups=1)
    query.rules(AB, PatternProcessor("fraud-7", 3, FAILS))
    with query.running():
        query.send(e(1, "a", x=1.0), e(2, "b", x=1.0))
        query.send(e(3, "a", x=1.0), e(4, "b", x=2.0))
        query.taken(AB, mended)
        query.send(e(5, "a", x=1.0), e(6, "b", x=2.0))
    (error,) = query.sinks["errors"].rows
    assert (error["processor_id"], error["processor_version"]) == ("fraud-7", 3)
    assert "division by zero" in error["error"]
    assert query.found == [
        ("ab", 1, ("ann",), "a1 b2"),
        ("ab", 1, ("ann",), "a3 b4"),
        ("ab", 1, ("ann",), "a5 b6"),
        ("fraud-7", 4, ("ann",), "a5 b6"),
    ]


def test_the_last_set_goes_on_without_the_discoverer(spark: SparkSession, tmp_path: Path) -> None:
    with contextlib.closing(UrlPlace()) as place:
        check_without_discoverer(spark, tmp_path, place)


def test_templates_conditions_and_functions_in_a_query(spark: SparkSession, tmp_path: Path) -> None:
    """A changed row changes one rule, and the others keep their partial matches; also after a new start."""

    def above(events: pa.Table, limit: float) -> pa.ChunkedArray:
        return pc.greater(events["x"], limit)

    def twice(matches: pa.Table) -> pa.Table:
        return pa.table(
            {"match_id": matches["match_id"].to_pylist() * 2, "n": [1] * matches.num_rows + [2] * matches.num_rows}
        )

    def template(**limits: float) -> dict[str, Any]:
        pattern = chain("a", "b").to_json()
        item = {"id": "t", "parameters": {"limit": "number"}, "pattern": json.loads(pattern), "function": "twice"}
        condition = {"type": "CLASS", "className": "above", "args": [":limit"]}
        item["pattern"]["nodes"][0]["condition"] = condition
        return item | {"rows": [{"id": name, "limit": limit} for name, limit in limits.items()]}

    conditions = {"above": RegisteredCondition(above, {"limit": float})}
    query = Watch(spark, tmp_path, conditions=conditions, functions={"twice": twice})
    query.rules(template(low=1, high=5))
    query.events(e(1, "a", x=7), e(1.5, "tick"))
    query.once()
    query.rules(template(low=1, high=6))
    query.events(e(2, "a", x=5.5), e(3, "b"), e(9, "tick"))
    query.once()
    rows = query.sinks["matches"].rows
    assert sorted((row["processor_id"], row["start_time"].second, row["result"][-4:]) for row in rows) == [
        ("t/low", 1, ": 1}"), ("t/low", 1, ": 2}"), ("t/low", 2, ": 1}"), ("t/low", 2, ": 2}")
    ]  # fmt: skip
    assert len({row["match_id"] for row in rows}) == 4


@pytest.mark.parametrize("seed", range(FACTOR))
def test_times_are_exact_wherever_micro_batches_end(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The second version is for the events from second 11 on, the third for those from second 21 on: with other keys, and long
    after the sets of the versions before have been committed.
    """
    rules = [
        Chain("r", 1, ("a", "b")),
        Chain("r", 2, ("a", "c"), key=("item",), timestamp=11),
        Chain("r", 3, ("d", "b"), key=("user", "item"), timestamp=21),
    ]
    events = some_events(random.Random(5), 1, 30)
    expected = Model()
    expected.announce([rules[0]], 1)
    expected.announce([rules[1]], 2)
    expected.batch(events[:14])
    expected.announce([rules[2]], 3)
    expected.batch([*events[14:], e(99, "tick")])
    rng = random.Random(seed)
    query = Watch(spark, tmp_path)

    def send(rest: list[Event]) -> None:
        while rest:
            size = rng.randint(3, 12)
            query.events(*rng.sample(rest[:size], len(rest[:size])))
            query.settle()
            rest = rest[size:]

    query.rules(rules[0].processor)
    with query.running():
        for one in rules[:2]:
            query.taken(one.processor)
        send(events[:14])
        query.taken(rules[2].processor)
        send(events[14:])
        query.send(e(98, "tick"))
    assert {version for _, version, *_ in expected.found} == {1, 2, 3}
    assert query.found == sorted(expected.found)
