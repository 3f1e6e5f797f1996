"""A query with several operators continues from a savepoint with the rows of one that was never stopped."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    DataStream,
    Input,
    KeyedStream,
    ListState,
    Output,
    Pattern,
    SavepointWriter,
    StreamOperator,
    TumblingWindows,
    ValueState,
    change_savepoint,
    connect,
    create_savepoint,
    diff_savepoints,
    forget_keys,
    interval_join,
    plan_savepoint,
    read_savepoint,
    read_state,
    remove_former_state,
    rescale_checkpoint,
    restore_savepoint,
    window,
)
from asterism.cli.main import main
from asterism.errors import StateError
from tests.savepoints.test_savepoints_slow import AB, EVENTS, SECOND, Query, parts
from tests.savepoints.test_writing_slow import FORGOTTEN, files_with, plain_files, with_name

__all__ = ["plain_files"]

pytestmark = pytest.mark.spark


def of_chain(df: DataFrame, options: dict[str, Any], *, seconds: int = 20) -> tuple[Any, list[str]]:
    """Windows over the matches of a pattern."""
    events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
    pattern = CEP.pattern(events, AB, drain=options.get("drain", False), key_groups=options.get("key_groups", 3))
    matches = pattern.select("b.v AS v", "match_time AS ts")
    return window(KeyedStream(matches, "user", "ts"), TumblingWindows.of(seconds * SECOND), **options), ["results"]


def side_by_side(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
    """A join of the matches of two patterns."""
    drain, groups = options.get("drain", False), options.get("key_groups", 3)
    events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
    left = CEP.pattern(events, AB, drain=drain, key_groups=groups).select("a.v AS v", "match_time AS ts")
    second = KeyedStream(df.where("v % 2 = 0"), key="user", time="ts", max_out_of_orderness=3 * SECOND)
    right = CEP.pattern(second, AB, drain=drain, key_groups=groups).select("b.v AS w", "match_time AS ts")
    bounds = (-30 * SECOND, 30 * SECOND)
    join = interval_join(
        KeyedStream(left, "user", "ts"), KeyedStream(right, "user", "ts"), bounds, how="full", prefix="r_", **options
    )
    return join, ["results"]


@pytest.mark.parametrize("make", [of_chain, side_by_side])
def test_several_operators_continue(spark: SparkSession, tmp_path: Path, make: Any) -> None:
    whole, moved = Query(spark, tmp_path / "whole", make), Query(spark, tmp_path / "moved", make)
    savepoint = str(tmp_path / "savepoint")
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        moved.write(number, rows)
        if number == 1:
            moved.run("first", drain=False, key_groups=3)
            create_savepoint(spark, str(moved.folder / "first"), savepoint)
            with pytest.raises(StateError, match=r"has [23] operators"):
                read_savepoint(spark, savepoint)
            states = (
                read_state(spark, str(moved.folder / "first"), operator_id=1),
                read_savepoint(spark, savepoint, operator_id=1),
            )
            matches = [sorted(map(str, state.partial_matches(events=True).collect())) for state in states]
            assert matches[0] == matches[1] != []
            restore_savepoint(spark, savepoint, str(moved.folder / "second"), key_groups=8, tasks=2)
        elif number == 3:
            moved.run("second", drain=False, key_groups=8)
            rescale_checkpoint(spark, str(moved.folder / "second"), tasks=1, key_groups=2)
    moved.run("second", drain=True, key_groups=2)
    whole.run("checkpoint", drain=True)
    assert moved.rows() == whole.rows()
    assert all(moved.rows().values())


ABC = (
    Pattern.begin("a").where("kind = 'a'").followed_by("last").where("kind = 'b'")
    .followed_by("c").where("kind = 'a'").within(30 * SECOND)
)  # fmt: skip


def test_a_customer_is_forgotten_in_all_operators(spark: SparkSession, plain_files: None, tmp_path: Path) -> None:
    chain = partial(of_chain, seconds=200)  # none of them closes before the key is forgotten
    whole, query = Query(spark, tmp_path / "whole", chain), Query(spark, tmp_path / "query", chain)
    checkpoint = query.folder / "checkpoint"
    others = [[row for row in rows if row["user"] != "u0"] for rows in parts()]
    for number, rows in enumerate(others):
        whole.write(number, rows)
    whole.run("checkpoint", drain=True, key_groups=3)
    for number in range(3):
        query.write(number, with_name(parts()[number]))
    query.run("checkpoint", drain=False, key_groups=3)
    with pytest.raises(StateError, match='no key column "buyer"'):
        forget_keys(spark, str(checkpoint), [{"buyer": FORGOTTEN}])
    changes = forget_keys(spark, str(checkpoint), [{"user": FORGOTTEN}])
    assert {number: each.removed["keys"] for number, each in changes.operators.items()} == {0: 1, 1: 1}
    assert changes.operators[0].removed["panes"] > 0
    assert changes.operators[1].removed["partial_matches"] > 0
    assert changes.removed["keys"] == 2
    assert not changes.mentions
    remove_former_state(spark, str(checkpoint))
    assert files_with(FORGOTTEN, checkpoint) == []
    for number in range(3, 6):
        query.write(number, others[number])
    query.run("checkpoint", drain=True)
    remaining = Counter({row: n for row, n in query.rows()["results"].items() if FORGOTTEN not in row})
    assert remaining == whole.rows()["results"]


def of_other_types(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
    """Windows whose key has the name of the pattern's, and is a number."""
    events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
    pattern = CEP.pattern(events, AB, drain=options.get("drain", False), key_groups=options.get("key_groups", 3))
    matches = pattern.select("b.v AS number", "b.v AS v", "match_time AS ts")
    matches = matches.drop("user").withColumnRenamed("number", "user")
    return window(KeyedStream(matches, "user", "ts"), TumblingWindows.of(200 * SECOND), **options), ["results"]


def test_keys_of_the_same_name_with_other_types(spark: SparkSession, tmp_path: Path) -> None:
    query, savepoint = Query(spark, tmp_path / "query", of_other_types), str(tmp_path / "savepoint")
    for number in range(3):
        query.write(number, parts()[number])
    query.run("first", drain=False, key_groups=3)
    create_savepoint(spark, str(query.folder / "first"), savepoint)
    number = read_savepoint(spark, savepoint, operator_id=0).windows().select("key.user").first()
    assert number is not None
    keys = [{"user": "u1"}, {"user": str(number.user)}, {"user": None}]
    writer = SavepointWriter.from_existing_savepoint(spark, savepoint)
    with pytest.raises(StateError, match='a value of the key column "user" is not a bigint'):
        writer.remove_keys(keys, operator_id=0)
    changes = writer.remove_keys(keys).write(str(tmp_path / "without"))
    assert {number: each.removed["keys"] for number, each in changes.operators.items()} == {0: 1, 1: 1}


def test_one_operator_of_several_is_changed(spark: SparkSession, tmp_path: Path) -> None:
    query, savepoint = Query(spark, tmp_path / "query", of_chain), str(tmp_path / "savepoint")
    for number in range(3):
        query.write(number, parts()[number])
    query.run("first", drain=False, key_groups=3)
    create_savepoint(spark, str(query.folder / "first"), savepoint)
    with pytest.raises(StateError, match="has 2 operators"):
        plan_savepoint(spark, savepoint, ABC)
    with pytest.raises(StateError, match="no state of a pattern"):
        plan_savepoint(spark, savepoint, ABC, operator_id=0)
    renamed: dict[str, Any] = {"renamed": {"b": "last"}, "operator_id": 1}
    open_before = read_savepoint(spark, savepoint, operator_id=1).partial_matches().count()
    plan = plan_savepoint(spark, savepoint, ABC, **renamed)
    assert plan.dropped == 0
    assert sum(n for part, n in plan.rows() if part.what == "partial matches") == open_before > 0
    changed, trimmed = str(tmp_path / "changed"), str(tmp_path / "trimmed")
    change_savepoint(spark, savepoint, changed, ABC, **renamed)
    differences = diff_savepoints(spark, savepoint, changed)
    assert not differences.operators[0]
    assert differences.operators[1]
    writer = SavepointWriter.from_existing_savepoint(spark, changed)
    with pytest.raises(StateError, match="has 2 operators"):
        writer.drop_partial_matches(stage="a")
    dropped = writer.drop_partial_matches(stage="a", operator_id=1).write(trimmed)
    assert dropped.operators[1].removed["partial_matches"] > 0
    assert not dropped.operators[0].removed
    assert not diff_savepoints(spark, changed, trimmed).operators[0]
    command = ["savepoint", "forget", changed, str(tmp_path / "forgotten"), "--key", "user=u1", "--operator-id", "1"]
    report = CliRunner().invoke(main, command, catch_exceptions=False).stdout
    assert "operator 0: nothing was removed" in report
    assert "operator 1: removed keys: 1 of " in report
    restore_savepoint(spark, changed, str(query.folder / "second"))
    state = read_state(spark, str(query.folder / "second"), operator_id=1)
    assert state.partial_matches().count() == open_before


class Instances(StreamOperator):
    """A total and a list of each instance of an operator over streams without a key."""

    orders = Input("user STRING, ts TIMESTAMP, v BIGINT")
    total = ValueState("BIGINT")
    last = ListState("BIGINT")
    out = Output("line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.v)
        self.last.add(e.v)
        self.out.collect(line=f"{self.total.value()} {self.last.get()}")


class Lists(StreamOperator):
    """Without the total."""

    orders = Input("user STRING, ts TIMESTAMP, v BIGINT")
    last = ListState("BIGINT")
    out = Output("line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.last.add(e.v)
        self.out.collect(line=f"{self.last.get()}")


def of_instances(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
    stream = DataStream(df, time="ts", max_out_of_orderness=3 * SECOND)
    return connect(options.pop("operator", Instances()), orders=stream, **options), ["out"]


def test_instances_continue(spark: SparkSession, tmp_path: Path) -> None:
    whole, moved = Query(spark, tmp_path / "whole", of_instances), Query(spark, tmp_path / "moved", of_instances)
    savepoint = str(tmp_path / "savepoint")
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        moved.write(number, rows)
        if number == 2:
            moved.run("first", drain=False, key_groups=3)
            create_savepoint(spark, str(moved.folder / "first"), savepoint)
            restore_savepoint(spark, savepoint, str(moved.folder / "second"), tasks=2)
    moved.run("second", drain=True)
    whole.run("checkpoint", drain=True, key_groups=3)
    assert moved.rows() == whole.rows()
    assert moved.rows()["out"].total() == 180

    with pytest.raises(StateError, match='have a value of the state "total"'):
        restore_savepoint(spark, savepoint, str(tmp_path / "fewer"), key_groups=2)
    stream, _ = of_instances(
        spark.readStream.schema(EVENTS).parquet(str(moved.folder / "events")), {"operator": Lists()}
    )
    with pytest.raises(StateError, match="allow_dropped"):
        change_savepoint(spark, savepoint, str(tmp_path / "lists"), stream)
    change_savepoint(spark, savepoint, str(tmp_path / "lists"), stream, allow_dropped=True)
    restore_savepoint(spark, str(tmp_path / "lists"), str(tmp_path / "fewer"), key_groups=2)
    restore_savepoint(spark, savepoint, str(tmp_path / "more"), key_groups=5)
    lists = [
        sorted(row.value for row in state.state("last").collect())
        for state in (
            read_savepoint(spark, savepoint),
            *(read_state(spark, str(tmp_path / name)) for name in ("fewer", "more")),
        )
    ]
    assert lists[0] == lists[1] == lists[2] != []
    waiting = [read_state(spark, str(tmp_path / name)).waiting_events().count() for name in ("fewer", "more")]
    assert waiting[0] == waiting[1] == read_savepoint(spark, savepoint).waiting_events().count() > 0
