"""Pattern processors over a table: rules tried out on history give what they would have given on the stream; late events, and a
rule that explodes.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream, Pattern, PatternProcessor
from asterism.errors import NullEventTimeError

pytestmark = pytest.mark.spark

EVENTS = [
    (1, "ann", 7, "a"), (2, "bob", 7, "b"), (3, "ann", 8, "c"), (4, "ann", 8, "b"), (5, "cy", 9, "a"), (20, "cy", 9, "b"),
    (21, "bob", 8, "a"), (22, "bob", 8, "b"), (30, "bob", 8, "a"),
]  # fmt: skip


def chain(*kinds: str, strict: bool = False) -> Pattern:
    pattern = Pattern.begin(kinds[0]).where(f"kind = '{kinds[0]}'")
    for kind in kinds[1:]:
        pattern = (pattern.next(kind) if strict else pattern.followed_by(kind)).where(f"kind = '{kind}'")
    return pattern.within(timedelta(seconds=10))


CLAUSE = "PARTITION BY item ORDER BY ts MEASURES LAST(user) AS u PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
RULES = [
    PatternProcessor("by user", 1, chain("a", "b"), timed_out=True),
    PatternProcessor("by item", 3, chain("a", "b", strict=True), key=("item",), select=("LAST(b.user) AS u",)),
    PatternProcessor("later", 1, chain("a", "b"), key=(), timestamp=datetime.fromtimestamp(21, UTC)),
    PatternProcessor("in sql", 2, sql=CLAUSE),
    PatternProcessor("all rows", 1, sql="ALL ROWS PER MATCH " + CLAUSE[CLAUSE.index("PATTERN") :]),
]


def found(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(
        (row.processor_id, row.processor_version, tuple(row.key), row.match_time, str(row.events), str(row.measures))
        for row in rows
    )


def test_a_table_gives_what_a_stream_gives(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps([rule.to_dict() for rule in RULES]), encoding="utf-8")
    rows = [(datetime.fromtimestamp(second, UTC), *rest) for second, *rest in EVENTS]
    table = spark.createDataFrame(rows, "ts TIMESTAMP, user STRING, item BIGINT, kind STRING")
    table.repartition(2).write.parquet(str(tmp_path / "events"))
    factory = FilePatternProcessorDiscovererFactory(tmp_path / "rules.json")

    def processors(events: DataFrame) -> Any:
        return CEP.pattern_processors(
            KeyedStream(events, key="user", time="ts", max_out_of_orderness=timedelta(30)), factory, key_groups=4
        )

    batch = processors(spark.read.parquet(str(tmp_path / "events")))
    collected: dict[str, list[Any]] = {"matches": [], "timed_out": []}
    batch.run({name: lambda rows, _, name=name: collected[name].extend(rows.collect()) for name in collected})
    streamed: list[Any] = []
    stream = spark.readStream.schema(table.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "events"))
    processors(stream).run(
        {"matches": lambda rows, _: streamed.extend(rows.collect())}, checkpoint=str(tmp_path / "checkpoint")
    )
    assert found(collected["matches"]) == found(streamed) == found(batch.output("matches").collect())
    assert [row[:3] for row in found(collected["matches"])] == [
        ("all rows", 1, ("bob",)), ("all rows", 1, ("bob",)), ("all rows", 1, ("cy",)), ("all rows", 1, ("cy",)),
        ("by item", 3, ("7",)), ("by item", 3, ("8",)), ("by user", 1, ("ann",)), ("by user", 1, ("bob",)),
        ("in sql", 2, ("7",)), ("in sql", 2, ("8",)), ("in sql", 2, ("9",)), ("later", 1, ()),
    ]  # fmt: skip
    assert sorted((row.processor_id, *row.key) for row in collected["timed_out"]) == [
        ("by user", "bob"),
        ("by user", "cy"),
    ]


def test_an_event_without_a_time_is_late_over_a_table_too(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps([RULES[0].to_dict()]), encoding="utf-8")
    rows = [(None if kind == "b" else datetime.fromtimestamp(1, UTC), "ann", 7, kind) for kind in "abac"]
    table = spark.createDataFrame(rows, "ts TIMESTAMP, user STRING, item BIGINT, kind STRING").coalesce(1)
    factory = FilePatternProcessorDiscovererFactory(tmp_path / "rules.json")
    processors = CEP.pattern_processors(KeyedStream(table, key="user", time="ts"), factory)
    assert [(row.ts, row.kind) for row in processors.output("late").collect()] == [(None, "b")]
    with pytest.raises(NullEventTimeError, match='the event time "ts" of 1 events is null'):
        processors.output("matches").collect()


def test_a_rule_that_explodes_goes_alone(spark: SparkSession, tmp_path: Path) -> None:
    """31 events of a loop with all combinations: over a table and over a stream the other rule finds what it finds."""
    bomb = (
        Pattern.begin("a")
        .where("kind = 'a'")
        .followed_by_any("b")
        .where("kind = 'b'")
        .one_or_more()
        .allow_combinations()
    )
    rules = [
        PatternProcessor("bomb", 1, bomb.followed_by("c").where("kind = 'c'")),
        PatternProcessor("good", 1, chain("a", "c")),
    ]
    (tmp_path / "rules.json").write_text(json.dumps([rule.to_dict() for rule in rules]), encoding="utf-8")
    kinds = ["a", *["b"] * 31, "a", "c"]
    rows = [(datetime.fromtimestamp(second, UTC), "ann", kind) for second, kind in enumerate(kinds)]
    spark.createDataFrame(rows, "ts TIMESTAMP, user STRING, kind STRING").write.parquet(str(tmp_path / "events"))
    table = spark.read.parquet(str(tmp_path / "events"))
    stream = spark.readStream.schema(table.schema).parquet(str(tmp_path / "events"))
    factory = FilePatternProcessorDiscovererFactory(tmp_path / "rules.json")
    for events, options in ((table, {}), (stream, {"checkpoint": str(tmp_path / "checkpoint")})):
        collected: dict[str, list[Any]] = {"matches": [], "errors": []}
        CEP.pattern_processors(KeyedStream(events, key="user", time="ts"), factory, key_groups=4).run(
            {name: lambda rows, _, name=name, to=collected: to[name].extend(rows.collect()) for name in collected},
            **options,
        )
        assert [row.processor_id for row in collected["matches"]] == ["good"]
        (error,) = collected["errors"]
        assert error.processor_id == "bomb"
        assert "a key has more than 10,000 partial matches" in error.error
