"""A query on Spark that continues with another pattern."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    BroadcastInput,
    BroadcastMapState,
    BroadcastStream,
    Input,
    KeyedStream,
    Output,
    Pattern,
    StreamOperator,
    ValueState,
    change_checkpoint,
    change_savepoint,
    connect,
    create_savepoint,
    plan_savepoint,
    restore_savepoint,
)
from asterism.cli.main import main
from asterism.errors import CheckpointMismatchError, StateError, StreamDefinitionError
from asterism.sinks import FileSink
from tests.savepoints.test_savepoints_slow import AB, EVENTS, SECOND, Query, parts

pytestmark = pytest.mark.spark


NEW = Pattern.begin("first").where("kind = 'a' AND v < 99").followed_by("b").where("kind = 'b'").within(30 * SECOND)


class Total(StreamOperator):
    orders = Input("user STRING, ts TIMESTAMP, v BIGINT")
    limits = BroadcastInput("name STRING, v BIGINT")
    total = ValueState("INT")
    limit = BroadcastMapState("STRING", "INT")
    out = Output("user STRING, v BIGINT, limits BIGINT")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.v)
        self.out.collect(user=e.user, v=self.total.value(), limits=len(list(self.limit.items())))

    @limits.process_element
    def change(self, e: Any, ctx: Any) -> None:
        self.limit.put(e.name, e.v)


class WideTotal(StreamOperator):
    orders = Input("user STRING, ts TIMESTAMP, v BIGINT")
    limits = BroadcastInput("name STRING, v BIGINT")
    amount = ValueState("BIGINT")
    bounds = BroadcastMapState("STRING", "BIGINT")
    out = Output("user STRING, v BIGINT, limits BIGINT")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.amount.update((self.amount.value() or 0) + e.v + 2**40)
        self.out.collect(user=e.user, v=self.amount.value(), limits=len(list(self.bounds.items())))

    @limits.process_element
    def change(self, e: Any, ctx: Any) -> None:
        self.bounds.put(e.name, e.v)


def test_the_checkpoint_of_an_operator_is_changed_in_place(spark: SparkSession, tmp_path: Path) -> None:
    """States, also a broadcast one, have other names and wider types."""

    def write(name: str, columns: str, values: str) -> None:
        rows = spark.sql(f"SELECT * FROM VALUES {values} AS t({columns})")
        rows.write.mode("append").parquet(str(tmp_path / name))

    def stream(operator: StreamOperator) -> Any:
        orders = spark.readStream.schema("user STRING, ts TIMESTAMP, v BIGINT").parquet(str(tmp_path / "orders"))
        limits = spark.readStream.schema("name STRING, v BIGINT").parquet(str(tmp_path / "limits"))
        return connect(
            operator, orders=KeyedStream(orders, key="user", time="ts"), limits=BroadcastStream(limits), key_groups=2
        )

    def run(operator: StreamOperator) -> None:
        sink = FileSink(str(tmp_path / "out"))
        stream(operator).run({"out": sink}, checkpoint=str(tmp_path / "checkpoint"), drain=False)

    write("limits", "name, v", "('a', 1L), ('b', 2L)")
    write(
        "orders",
        "user, ts, v",
        "('ann', TIMESTAMP '2025-01-01 12:00:00', 3L), ('ann', TIMESTAMP '2025-01-01 12:00:10', 5L)",
    )
    run(Total())
    with pytest.raises(StateError, match="drops"):
        change_checkpoint(spark, str(tmp_path / "checkpoint"), stream(WideTotal()))
    renamed = {"total": "amount", "limit": "bounds"}
    plan = change_checkpoint(spark, str(tmp_path / "checkpoint"), stream(WideTotal()), renamed=renamed)
    assert {(part.what, count) for part, count in plan.counts.items()} == {
        ('entries of the state "total"', 1),
        ('entries of the state "limit"', 2),
        ("events that wait", 1),
    }
    write("orders", "user, ts, v", "('ann', TIMESTAMP '2025-01-01 12:00:20', 4L)")
    run(WideTotal())
    rows = spark.read.parquet(str(tmp_path / "out")).select("user", "v", "limits").collect()
    assert sorted(map(tuple, rows))[-1] == ("ann", 2**40 + 8, 2)


def query(spark: SparkSession, folder: Path, of: Pattern) -> Query:
    def make(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
        events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
        return CEP.pattern(events, of, **options), ["matches", "timed_out"]

    return Query(spark, folder, make)


def test_a_query_continues_with_another_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """The stage is renamed, and its condition is another one that decides the same. Events wait for the watermark meanwhile."""
    whole, old, changed = (
        query(spark, tmp_path / name, of) for name, of in (("whole", NEW), ("old", AB), ("changed", NEW))
    )
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        (old if number < 3 else changed).write(number, rows)
    whole.run("checkpoint", drain=True)
    old.run("checkpoint", drain=False, key_groups=3)
    savepoint, target = str(tmp_path / "savepoint"), str(tmp_path / "new")
    create_savepoint(spark, str(old.folder / "checkpoint"), savepoint)

    renamed = {"a": "first"}
    assert plan_savepoint(spark, savepoint, NEW).dropped > 0  # the stage "a" was removed
    plan = plan_savepoint(spark, savepoint, NEW, renamed=renamed)
    assert {(part.what, part.outcome) for part in plan.counts} == {
        ("partial matches", "continues"),
        ("events that wait", "continues"),
    }
    with pytest.raises(StateError, match="drops"):
        change_savepoint(spark, savepoint, target, NEW)
    assert not Path(target).exists()
    assert change_savepoint(spark, savepoint, target, NEW, renamed=renamed) == plan

    # The names of the files that were read are in the checkpoint, so the folder remains.
    for number, rows in enumerate(parts()[3:], start=3):
        old.write(number, rows)
    changed.folder = old.folder
    before = old.rows()
    restore_savepoint(spark, target, str(old.folder / "second"), key_groups=5, tasks=2)
    for output in before:
        (old.folder / output).rename(tmp_path / f"former {output}")
    changed.run("second", drain=True)
    for output, rows in whole.rows().items():
        after = changed.rows()[output]
        assert after
        assert sum(after.values()) + sum(before[output].values()) == sum(rows.values())
        assert not after - rows

    file = tmp_path / "pattern.json"
    file.write_text(NEW.to_json())
    arguments = ["savepoint", "plan", savepoint, str(file), "--json"]
    shown = json.loads(CliRunner().invoke(main, arguments, catch_exceptions=False).stdout)
    assert shown["dropped"] == sum(part["count"] for part in shown["parts"] if part["outcome"] == "dropped") > 0


def test_a_query_starts_with_another_pattern_in_one_step(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without consent it is refused, and no checkpoint is made; later starts with the same arguments continue."""
    whole, old = query(spark, tmp_path / "whole", NEW), query(spark, tmp_path / "old", AB)
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        if number < 3:
            old.write(number, rows)
    whole.run("checkpoint", drain=True)
    old.run("checkpoint", drain=False, key_groups=3)
    savepoint = str(tmp_path / "savepoint")
    create_savepoint(spark, str(old.folder / "checkpoint"), savepoint)
    before = old.rows()
    for output in before:
        (old.folder / output).rename(tmp_path / f"former {output}")

    changed = query(spark, old.folder, NEW)
    for begin, error, text in (
        (None, CheckpointMismatchError, "is of another definition: .*(?s:.*)allow_changed=True"),
        ({"allow_changed": True}, StateError, "drops"),
        ({"renamed": {"a": "first"}}, StreamDefinitionError, "need allow_changed"),
    ):
        with pytest.raises(error, match=text):
            changed.run("second", drain=False, from_savepoint=savepoint, begin=begin)
        assert not (old.folder / "second" / "offsets").exists()
    begin = {"allow_changed": True, "renamed": {"a": "first"}}
    for number, rows in enumerate(parts()[3:], start=3):
        old.write(number, rows)
        changed.run("second", drain=number == 5, from_savepoint=savepoint, begin=begin)
    assert caplog.text.count("continues with another definition") == 1
    for output, rows in whole.rows().items():
        after = changed.rows()[output]
        assert after
        assert sum(after.values()) + sum(before[output].values()) == sum(rows.values())
        assert not after - rows

    file = tmp_path / "pattern.json"
    file.write_text(NEW.to_json())
    arguments = ["savepoint", "restore", savepoint, str(tmp_path / "third"), "--definition", str(file), "--json"]
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2
    assert "--allow-dropped" in refused.output
    shown = CliRunner().invoke(main, [*arguments, "--rename", "a=first"], catch_exceptions=False)
    assert json.loads(shown.stdout)["dropped"] == 0
    plan = restore_savepoint(spark, savepoint, str(tmp_path / "fourth"), definition=NEW, renamed={"a": "first"})
    assert plan == plan_savepoint(spark, savepoint, NEW, renamed={"a": "first"})
    assert not (tmp_path / "fourth.changed").exists()
    assert (tmp_path / "third" / "offsets").exists()


def test_the_key_gets_another_name_and_a_wider_type(spark: SparkSession, tmp_path: Path) -> None:
    """The hashes of keys change, and so do the key groups in which they are."""

    def keyed_by(folder: Path, name: str, kind: str) -> Query:
        def make(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
            rows = df.selectExpr("ts", "kind", "v", f"CAST(substring(user, 2) AS {kind}) AS {name}")
            events = KeyedStream(rows, key=name, time="ts", max_out_of_orderness=3 * SECOND)
            return CEP.pattern(events, AB, **options), ["matches"]

        return Query(spark, folder, make)

    whole, old = keyed_by(tmp_path / "whole", "customer", "BIGINT"), keyed_by(tmp_path / "old", "k", "INT")
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        if number < 3:
            old.write(number, rows)
    whole.run("checkpoint", drain=True)
    old.run("checkpoint", drain=False, key_groups=3)
    savepoint = str(tmp_path / "savepoint")
    create_savepoint(spark, str(old.folder / "checkpoint"), savepoint)
    before = old.rows()["matches"]
    (old.folder / "matches").rename(tmp_path / "former matches")
    changed = keyed_by(old.folder, "customer", "BIGINT")
    stream, _ = changed.make(spark.readStream.schema(EVENTS).parquet(str(old.folder / "events")), {})
    with pytest.raises(StateError, match="cannot be derived"):
        restore_savepoint(spark, savepoint, str(old.folder / "second"), definition=stream)
    plan = restore_savepoint(
        spark, savepoint, str(old.folder / "second"), key_groups=5, definition=stream, renamed={"k": "customer"}
    )
    assert plan is not None
    assert plan.dropped == 0
    assert plan.notes[0] == "the key (k int32) is now (customer int64)"
    for number, rows in enumerate(parts()[3:], start=3):
        old.write(number, rows)
    changed.run("second", drain=True)
    after, expected = changed.rows()["matches"], whole.rows()["matches"]
    assert after
    assert sum(after.values()) + sum(before.values()) == sum(expected.values())
    assert not after - expected
