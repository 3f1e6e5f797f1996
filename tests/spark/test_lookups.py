"""Tables that rules read by a key of the event, on Spark."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyarrow import parquet
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    FilePatternProcessorDiscovererFactory,
    KeyedStream,
    Lookup,
    Pattern,
    PatternProcessor,
)
from asterism.cli.main import main
from asterism.rules.sets.set_store import STORE, FolderStore
from tests.kit import until
from tests.spark.rules import INTERVAL, Watch, e

pytestmark = pytest.mark.spark

ABOVE = PatternProcessor("above", 1, Pattern.begin("a").where("kind = 'a' AND x > limits.max"))
TOTAL = PatternProcessor(
    "total", 1,
    Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND a.x + x > limits.max"),
    select=("LAST(b.limits.max) AS max",),
)  # fmt: skip
IN_SQL = PatternProcessor(
    "sql", 1, None, sql="MEASURES A.limits.max AS max PATTERN (A) DEFINE A AS kind = 'a' AND x > limits.max"
)


def found(query: Watch) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["processor_id"],
            row["start_time"].timestamp(),
            row["end_time"].timestamp(),
            dict(row["measures"] or {}).get("max"),
        )
        for row in query.sinks["matches"].rows
    )


def test_a_table_changes_while_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "limits.csv"

    def write(**limits: Any) -> None:
        new = tmp_path / "new"
        new.write_text("\n".join(["customer,max", *(f"{name},{value}" for name, value in limits.items()), ""]))
        new.replace(path)

    write(ann=5, bob=50)
    lookup = Lookup(path, key="customer", on="user", schema="customer STRING, max DOUBLE", interval=INTERVAL)
    query = Watch(spark, tmp_path, lookups={"limits": lookup})
    query.rules(ABOVE, TOTAL, IN_SQL)
    with query.running():
        query.send(e(1, "a", x=6), e(2, "a", "bob", x=6), e(3, "a", "cy", x=100))
        write(ann=50, bob=5)
        until(lambda: query.status.lookups["limits"].version == 2, query.query)
        query.settle().send(e(11, "a", x=6), e(12, "b", "bob", x=1), e(13, "a", "bob", x=6))
        write(ann="much")
        until(lambda: query.status.lookups["limits"].error is not None, query.query)
        state = query.status.lookups["limits"]
        assert "limits.csv cannot be read" in (state.error or "")
        assert (state.version, state.rows) == (2, 2)
        query.settle().send(e(21, "a", "bob", x=7))
    expected = [
        ("above", 1, 1, None), ("above", 13, 13, None), ("above", 21, 21, None),
        ("sql", 1, 1, "5.0"), ("sql", 13, 13, "5.0"), ("sql", 21, 21, "5.0"),
        ("total", 2, 12, "5.0"),
    ]  # fmt: skip
    assert found(query) == expected

    # A micro-batch fails when other rows are published, is repeated with the rows that it had, and the next one has the others.
    write(ann=1)
    query.events(e(31, "a", x=2), e(32, "a", "bob", x=99), e(40, "tick"))
    attempts: list[list[dict[str, Any]]] = []

    def fails_once(df: DataFrame, batch: int) -> None:
        rows = df.collect()
        attempts.append([row.asDict() for row in rows])
        if len(attempts) == 1:
            store = FolderStore(f"{query.checkpoint}/{STORE}")
            before = store.numbers()[-1]
            write(ann=1000)
            until(lambda: store.numbers()[-1] > before)
            raise RuntimeError("the sink fails")

    collect = query.sinks["matches"]
    query.sinks = {"matches": fails_once}
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.once()
    assert [row["processor_id"] for row in attempts[0]] == ["above", "sql"]
    query.once()
    query.sinks = {"matches": collect}
    assert attempts[1] == attempts[0]
    query.events(e(41, "a", x=999), e(42, "a", x=1001), e(50, "tick"))
    query.once()
    assert found(query) == sorted([*expected, ("above", 42, 42, None), ("sql", 42, 42, "1000.0")])


def test_a_bounded_job_and_a_backtest_have_one_version(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        (datetime.fromtimestamp(second), user, 7, kind, x)
        for second, user, kind, x in [
            (1, "ann", "a", 6.0),
            (2, "bob", "a", 6.0),
            (3, "cy", "a", 6.0),
            (4, "bob", "b", 60.0),
        ]
    ]
    events = KeyedStream(
        spark.createDataFrame(rows, "ts TIMESTAMP, user STRING, item BIGINT, kind STRING, x DOUBLE"),
        key="user",
        time="ts",
    )
    limits = spark.createDataFrame([("ann", 5.0), ("bob", 50.0)], "customer STRING, max DOUBLE")
    connection = sqlite3.connect(tmp_path / "limits.db")
    connection.execute("CREATE TABLE limits (customer TEXT, max REAL)")
    connection.execute("INSERT INTO limits VALUES ('ann', 100), ('bob', 5)")
    connection.commit()
    query = Watch(spark, tmp_path)
    query.rules(ABOVE, TOTAL, IN_SQL)
    rules = FilePatternProcessorDiscovererFactory(query.file)
    lookups = {"limits": Lookup(limits, key="customer", on="user")}
    found = CEP.pattern_processors(events, rules, key_groups=4, lookups=lookups).output("matches").collect()
    assert sorted((row.processor_id, *row.key) for row in found) == [("above", "ann"), ("sql", "ann"), ("total", "bob")]

    path = tmp_path / "events.parquet"
    parquet.write_table(events.df.toArrow(), path)
    given = ["--input", path, "--key", "user", "--time", "ts", "--fail-if", "matches < 1"]
    words = [
        "rules",
        "backtest",
        query.file,
        *given,
        "--lookup",
        "limits",
        f"sqlite:///{tmp_path}/limits.db#limits",
        "customer=user",
    ]
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert (result.exit_code, result.output.splitlines()[0].split(" over")[0]) == (0, "3 rules")
    assert (result.output.count("key bob;"), result.output.count("key ann;")) == (3, 0), result.output
