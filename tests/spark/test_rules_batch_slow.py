"""Rules over a table: late events, and a rule that explodes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream, Pattern, PatternProcessor
from asterism.errors import NullEventTimeError
from tests.spark.test_rules_batch import RULES, chain

pytestmark = pytest.mark.spark


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
