"""Lookup tables change between two runs."""

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
    read_state,
)
from asterism.cli.main import main
from asterism.errors import CheckpointMismatchError
from asterism.rules.sets.set_store import STORE, FolderStore
from tests.kit import until
from tests.spark.rules import INTERVAL, Watch, e
from tests.spark.test_lookups import ABOVE, IN_SQL, TOTAL, Limits, found

pytestmark = pytest.mark.spark


def test_lookups_change_between_two_runs(spark: SparkSession, tmp_path: Path) -> None:
    columns = "customer STRING, max DOUBLE"

    def lookup(name: str, schema: str, *rows: tuple[Any, ...]) -> Lookup:
        names = [part.split()[0] for part in schema.split(", ")]
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows), ""]))
        return Lookup(path, key="customer", on="user", schema=schema, interval=INTERVAL)

    query = Watch(spark, tmp_path, delay=1, lookups={"limits": lookup("limits", columns, ("ann", 5), ("bob", 50))})
    query.rules(TOTAL, IN_SQL)
    query.events(e(1, "a", "bob", x=40), e(2, "a", "ann", x=6))  # the second one waits for the watermark
    query.once()
    assert found(query) == []

    # One is added, which takes the first place, and another one has more columns.
    known = lookup("known", "customer STRING", ("bob",))
    wider = lookup("limits", columns + ", most DOUBLE", ("ann", 5, 8), ("bob", 50, 70))
    query.options["lookups"] = {"known": known, "limits": wider}
    most = PatternProcessor(
        "most", 1, Pattern.begin("a").where("kind = 'a' AND x > limits.most AND known.customer IS NOT NULL")
    )
    query.rules(TOTAL, IN_SQL, most)
    query.events(e(3, "b", "bob", x=20), e(4, "a", "bob", x=60), e(5, "a", "bob", x=71), e(9, "tick"))
    query.once()
    expected = [
        ("most", 5, 5, None),
        ("sql", 2, 2, "5.0"),
        ("sql", 4, 4, "50.0"),
        ("sql", 5, 5, "50.0"),
        ("total", 1, 3, "50.0"),
    ]
    assert found(query) == expected

    state = read_state(spark, str(query.checkpoint)).partial_matches(events=True).collect()
    assert {list(one.event.asDict())[-1] for row in state for one in row.accepted or ()} <= {"limits"}

    # A rule reads it.
    query.options["lookups"] = {"limits": wider}
    with pytest.raises(
        CheckpointMismatchError, match=r"(?s)the lookup known was removed, and rules read it.*most version 1"
    ):
        query.once()
    # What writeStream starts is refused by its processes.
    stream = CEP.pattern_processors(
        query.stream.stream, query.factory, store=f"{query.checkpoint}/{STORE}", key_groups=4, lookups={"limits": wider}
    )
    writer = stream.output("matches").writeStream.format("noop").option("checkpointLocation", str(query.checkpoint))
    refused = writer.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="the lookup known was removed, and rules read it"):
        refused.awaitTermination()
    # Without the rule, it can be removed.
    query.options["lookups"] = {"known": known, "limits": wider}
    query.rules(TOTAL, IN_SQL)
    query.events(e(11, "a", "ann", x=4), e(19, "tick"))
    query.once()
    query.options["lookups"] = {"limits": wider}
    query.events(e(21, "b", "ann", x=3), e(29, "tick"))
    query.once()
    assert found(query) == sorted([*expected, ("total", 2, 21, "5.0"), ("total", 11, 21, "5.0")])
    assert query.status.lookups.keys() == {"limits"}


def test_a_repeated_micro_batch_has_the_rows_that_it_had(spark: SparkSession, tmp_path: Path) -> None:
    """It fails when other rows are published; the next micro-batch has these."""
    limits = Limits(spark, tmp_path, ann=1)
    query = limits.query
    query.rules(ABOVE, IN_SQL)
    query.events(e(30, "tick"))
    query.once()
    query.events(e(31, "a", x=2), e(32, "a", "bob", x=99), e(40, "tick"))
    attempts: list[list[dict[str, Any]]] = []

    def fails_once(df: DataFrame, batch: int) -> None:
        rows = df.collect()
        attempts.append([row.asDict() for row in rows])
        if len(attempts) == 1:
            store = FolderStore(f"{query.checkpoint}/{STORE}")
            before = store.numbers()[-1]
            limits.write(ann=1000)
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
    assert found(query) == [("above", 42, 42, None), ("sql", 42, 42, "1000.0")]


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
