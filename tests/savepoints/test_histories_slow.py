"""Joins, operators and rules that begin with a history have the rows of queries whose streams had all events."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    BroadcastStream,
    KeyedStream,
    TumblingWindows,
    bootstrap_savepoint,
    connect,
    create_savepoint,
    interval_join,
    multi_join,
    read_savepoint,
    rescale_checkpoint,
    window,
)
from asterism.cli.main import main
from asterism.discovery import status_of
from asterism.errors import StreamDefinitionError
from asterism.rules.definition.processor import PatternProcessor
from asterism.sinks import FileSink
from asterism.spark.session.history import StoredHistory
from tests.kit import until
from tests.savepoints.test_history_slow import UNTIL
from tests.savepoints.test_regrouping import Accounts
from tests.savepoints.test_rules_regrouped import OTHERS, RULES
from tests.savepoints.test_rules_slow import counts_of
from tests.savepoints.test_savepoints_slow import AB, EVENTS, SECOND, Query, of_pattern, parts
from tests.spark.rules import Event, Watch

pytestmark = pytest.mark.spark
Options = dict[str, Any]
Made = tuple[Any, list[str]]


def sides(df: DataFrame) -> dict[str, DataFrame]:
    return {"left": df.where("v % 2 = 0"), "right": df.where("v % 3 <> 1")}


def of_join(df: DataFrame, options: Options) -> Made:
    """Spark computes a part of the condition."""
    left, right = (KeyedStream(side, "user", "ts", 3 * SECOND) for side in sides(df).values())
    on = "variant_get(parse_json(string(v)), '$', 'int') <= r_v"
    return interval_join(left, right, (-9 * SECOND, 5 * SECOND), how="full", prefix="r_", on=on, **options), ["results"]


def kinds(df: DataFrame) -> dict[str, DataFrame]:
    return {kind: df.where(f"kind = '{kind}'").selectExpr("user", "ts", f"v AS {kind}") for kind in "ab"} | {
        "c": df.where("v > 5").selectExpr("user", "ts", "v AS c")
    }


def of_multi_join(df: DataFrame, options: Options) -> Made:
    streams = {name: KeyedStream(side, "user", "ts", 3 * SECOND) for name, side in kinds(df).items()}
    between = dict.fromkeys((("a", "b"), ("b", "c")), (-9 * SECOND, 9 * SECOND))
    prefix = {"b": "b_", "c": "c_"}
    return multi_join(streams, between, how={"c": "left"}, prefix=prefix, **options), ["results"]


def of_operator(df: DataFrame, options: Options) -> Made:
    """Beside a table, which is read before the history."""
    limits = df.sparkSession.createDataFrame([("n1", 5), ("n2", 7)], "name STRING, v BIGINT").coalesce(1)
    orders = KeyedStream(df.drop("kind"), "user", "ts", 3 * SECOND)
    return connect(Accounts(), orders=orders, limits=BroadcastStream(limits), **options), ["out"]


def of_partitions(df: DataFrame, options: Options) -> Made:
    """Each kind is a partition, of which one is behind the others."""
    events = KeyedStream(df, "user", "ts", 3 * SECOND, watermark_by=["kind"])
    return CEP.pattern(events, AB, **options), ["matches", "timed_out", "late"]


def of_late_windows(df: DataFrame, options: Options) -> Made:
    """Some events are late, and fire again, and others are too late."""
    events = KeyedStream(df, "user", "ts")
    return window(events, TumblingWindows.of(10 * SECOND), allowed_lateness=2 * SECOND, **options), ["results", "late"]


def history_of(make: Any, table: DataFrame) -> Any:
    if make is of_join:
        return sides(table)
    if make is of_multi_join:
        return kinds(table)
    return {"orders": table.drop("kind")} if make is of_operator else table


class WithHistory(Query):
    def start(self, history: Any, *, drain: bool = False, key_groups: int | None = 3, **more: Any) -> None:
        reader = self.spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
        options = {} if key_groups is None else {"key_groups": key_groups}
        stream, outputs = self.make(reader.parquet(str(self.folder / "events")), options)
        contents = {"aggregate": ["SUM(v) AS v"]} if self.make is of_late_windows else {}
        sinks = {output: FileSink(str(self.folder / output)) for output in outputs}
        begin = {} if history is None else {"history": history}
        stream.run(sinks, checkpoint=str(self.folder / "checkpoint"), drain=drain, **begin, **contents, **more)


def prepared(spark: SparkSession, folder: Path, make: Any, *, by_time: bool) -> tuple[Query, WithHistory, DataFrame]:
    """One stream, whose first file is the history; a query that begins with it; and the history."""
    whole, query = Query(spark, folder / "whole", make), WithHistory(spark, folder / "query", make)
    events = [row for rows in parts() for row in rows]
    first = [row for row in events if row["ts"] < UNTIL] if by_time else events[:90]
    rest = [row for row in events if row not in first]
    whole.write(0, first)
    for number in range(0, len(rest), 30):
        whole.write(1 + number, rest[number : number + 30])
        query.write(1 + number, rest[number : number + 30])
    table = Query(spark, folder / "table", make)
    table.write(0, events[:120] if by_time else first)
    if by_time:  # the stream has some of the history again
        query.write(0, first[-20:])
    return whole, query, spark.read.schema(EVENTS).parquet(str(folder / "table" / "events"))


@pytest.mark.parametrize("make", [of_join, of_multi_join, of_operator, of_partitions, of_late_windows])
@pytest.mark.parametrize("by_time", [False, True], ids=["by position", "by time"])
def test_a_history_comes_before_the_streams(spark: SparkSession, tmp_path: Path, make: Any, by_time: bool) -> None:
    whole, query, table = prepared(spark, tmp_path, make, by_time=by_time)
    if make is of_late_windows:
        Query.run(whole, "checkpoint", drain=True, key_groups=3)
    else:
        whole.run("checkpoint", drain=True, key_groups=3)
    history, options = history_of(make, table), {"history_until": UNTIL} if by_time else {}
    if by_time:
        query.start(history, **options)
        rescale_checkpoint(spark, str(query.folder / "checkpoint"), tasks=1, key_groups=5)
    query.start(history, drain=True, key_groups=None, **options)
    assert query.rows() == whole.rows()
    assert any(query.rows().values())


def test_a_savepoint_of_several_tables(spark: SparkSession, tmp_path: Path) -> None:
    whole, query, table = prepared(spark, tmp_path, of_multi_join, by_time=True)
    whole.run("checkpoint", drain=True, key_groups=3)
    stream, outputs = of_multi_join(spark.readStream.schema(EVENTS).parquet(str(query.folder / "events")), {})
    sinks = {output: FileSink(str(query.folder / output)) for output in outputs}
    savepoint = str(tmp_path / "savepoint")
    bootstrap_savepoint(stream, kinds(table), savepoint, sinks, until=UNTIL)
    (query.folder / "results").rename(tmp_path / "first")
    assert read_savepoint(spark, savepoint).key_groups().count()
    query.start(savepoint, drain=True, key_groups=5)
    first = spark.read.parquet(str(tmp_path / "first")).drop("batch").collect()
    assert query.rows()["results"] + Counter(map(str, first)) == whole.rows()["results"]


def test_histories_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    _, query, table = prepared(spark, tmp_path, of_join, by_time=False)
    with pytest.raises(StreamDefinitionError, match="has a history for each of them"):
        query.start(table)
    with pytest.raises(StreamDefinitionError, match="no stream 'middle'"):
        query.start({"middle": table})
    operator = WithHistory(spark, query.folder, of_operator)
    with pytest.raises(StreamDefinitionError, match="no stream 'limits'"):
        operator.start({"limits": table})
    events = KeyedStream(spark.readStream.schema(EVENTS).parquet(str(query.folder / "events")), "user", "ts")
    matches = KeyedStream(CEP.pattern(events, AB).select("match_time AS ts"), "user", "ts")
    chain = window(matches, TumblingWindows.of(SECOND))
    with pytest.raises(StreamDefinitionError, match="one behind the other, cannot have a history"):
        chain.run(
            {"results": FileSink(str(tmp_path / "x"))}, checkpoint=str(tmp_path / "c"), aggregate=["COUNT(*) AS n"],
            history=table,
        )  # fmt: skip


# ---------------------------------------------------------------------- rules

NEW = [*RULES[:1], OTHERS[0], *RULES[2:4], *OTHERS[1:6]]


class RulesWithHistory(Watch):
    def __init__(self, spark: SparkSession, folder: Path, key_groups: int) -> None:
        folder.mkdir()
        super().__init__(spark, folder, delay=6, key_groups=key_groups)

    def start_with(self, history: DataFrame | str, **more: Any) -> None:
        sinks: Any = self.sinks
        self.stream.run(sinks, checkpoint=str(self.checkpoint), drain=False, history=history, **more)

    def rows(self) -> Counter[str]:
        return Counter(f"{name} {row}" for name, sink in self.sinks.items() for row in sink.rows)


def random_events(rng: random.Random, number: int) -> list[Event]:
    users = ["ann", "bob", "Bob", "eve", "max", "tom"]
    return [
        (20 * number + rng.randrange(26) - 6, kind, rng.choice(users), rng.randrange(4), 1.0)
        for kind in rng.choices("abc", k=60)
    ]


def together(files: list[list[Event]]) -> list[Event]:
    """The order of arrival, which decides between equal times, would otherwise be that in which Spark reads the files."""
    return [event for file in files for event in file]


def set_of(rules: list[PatternProcessor]) -> list[PatternProcessor]:
    return [*{rule.id: rule for rule in rules}.values()]


@pytest.mark.parametrize("interrupted", [False, True])
def test_rules_begin_with_a_history(
    spark: SparkSession, tmp_path: Path, interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rules at the first start, also if it is interrupted and they have changed meanwhile; then with the new ones."""
    rng = random.Random(3)
    files = [random_events(rng, number) for number in range(4)]
    whole = RulesWithHistory(spark, tmp_path / "whole", 4)
    query = RulesWithHistory(spark, tmp_path / "query", 3)
    first, later = set_of([*RULES[:4], *OTHERS[1:5]]), set_of(NEW)
    whole.rules(*first)
    whole.events(*together(files[:2]))
    whole.once()
    whole.rules(*later)
    for file in files[2:]:
        whole.events(*file)
        whole.once()

    query.rules(*first)
    helper = RulesWithHistory(spark, tmp_path / "table", 1)
    helper.events(*together(files[:2]))
    history = spark.read.parquet(str(helper.folder / "events"))
    if interrupted:
        with monkeypatch.context() as patch:
            write = StoredHistory._write
            patch.setattr(StoredHistory, "_write", lambda self, n, d: 1 / 0 if "batches" in d else write(self, n, d))
            with pytest.raises(ZeroDivisionError):
                query.start_with(history)
        delivered = query.rows()
        for sink in query.sinks.values():
            sink.rows.clear()
    else:
        query.start_with(history)
    query.rules(*later)
    query.events(*files[2])
    query.start_with(history)
    if interrupted:
        assert delivered
        assert not delivered - query.rows()
    query.events(*files[3])
    query.once()
    assert query.rows() == whole.rows()
    assert query.rows()
    until(lambda: counts_of(query) == counts_of(whole))
    assert [rule.id for rule in status_of(str(query.checkpoint)).rules]
    create_savepoint(spark, str(query.checkpoint), str(tmp_path / "savepoint"))


def bootstrapped(*arguments: object) -> None:
    result = CliRunner().invoke(main, ["savepoint", "bootstrap", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert "begin queries with run(..., history=" in result.output


def test_a_command_makes_a_savepoint_for_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    whole, query, _ = prepared(spark, tmp_path, of_pattern, by_time=True)
    whole.run("checkpoint", drain=True, key_groups=3)
    file, savepoint = tmp_path / "ab.json", tmp_path / "savepoint"
    file.write_text(AB.to_json())
    bootstrapped(
        savepoint, "--pattern", file, "--input", tmp_path / "table" / "events", "--until", UNTIL.isoformat(), "--key", "user",
        "--time", "ts", "--max-out-of-orderness", "3s", "--results", tmp_path / "of_history",
        "--output", "matches", "--output", "timed_out",
    )  # fmt: skip
    query.start(str(savepoint), drain=True, key_groups=2)
    found = query.rows()
    for output, rows in whole.rows().items():
        first = spark.read.parquet(str(tmp_path / "of_history" / output)).drop("batch").collect()
        assert found[output] + Counter(map(str, first)) == rows
        assert rows


def test_a_savepoint_of_a_table_has_rules(spark: SparkSession, tmp_path: Path) -> None:
    """Two queries begin with it; the rules of one of them change."""
    rng = random.Random(5)
    files = [random_events(rng, number) for number in range(4)]
    first, later = set_of([*RULES[:4], *OTHERS[1:5]]), set_of(NEW)
    helper = RulesWithHistory(spark, tmp_path / "table", 1)
    helper.rules(*first)
    helper.events(*together(files[:2]))
    savepoint, results = tmp_path / "savepoint", tmp_path / "of_history"
    bootstrapped(
        savepoint, "--rules", helper.file, "--input", helper.folder / "events", "--key", "user", "--time", "ts",
        "--max-out-of-orderness", "6s", "--results", results,
    )  # fmt: skip
    of_history = Counter(
        (row.processor_id, row.match_id) for row in spark.read.parquet(str(results / "matches")).collect()
    )
    assert of_history
    for number, then in enumerate((first, later)):
        whole = RulesWithHistory(spark, tmp_path / f"whole-{number}", 4)
        whole.rules(*first)
        whole.events(*together(files[:2]))
        whole.once()
        query = RulesWithHistory(spark, tmp_path / f"query-{number}", 3 + number)
        for each in (whole, query):
            each.rules(*then)
            each.events(*files[2])
            if each is query:
                query.start_with(str(savepoint))
            else:
                whole.once()
            each.events(*files[3])
            each.once()
        found = [
            Counter((row["processor_id"], row["match_id"]) for row in each.sinks["matches"].rows)
            for each in (whole, query)
        ]
        assert found[0] == found[1] + of_history
        assert found[1]
